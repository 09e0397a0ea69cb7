"""A group of trajectories as a line of ``trajectories.jsonl``, and the trajectories of such a line: no jax.

A line holds ``step``, ``task``, ``stream``, ``opening`` (the messages that all members begin with, up to the first that
one of them wrote) and ``members``; each of these what ``Trajectory.summary`` says of it, less what the line says,
``messages`` after the opening, and, where the learner looked at its tokens, ``pieces`` (their texts) and ``columns``:
base64 of little-endian numbers, one a token, as ``COLUMNS`` names them. Numbers that are not finite are strings, as in
all logs.
"""

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

COLUMNS: Mapping[str, str] = {
    "id": "<u4",
    "kind": "<u1",
    "turn": "<i2",
    "mask": "<u1",
    "log_prob": "<f2",
    "entropy": "<f2",
    "ratio": "<f2",
    "advantage": "<f2",
}
"""What is said of each token: its id, who wrote it (``types.Kind``), its model turn or -1, whether it may be trained;
log-probability (nats) as sampled, entropy (nats) before the update, policy after the update over policy before, and the
advantage. Half precision tells three digits; what is beyond 65504 is infinite."""


def group_line(
    step: int, members: Sequence[Mapping[str, Any]], tokens: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """The line of one group.

    Args:
      step: of the update that learned from it, or that it was evaluated after.
      members: their ``Trajectory.summary()``, of one task.
      tokens: ``pieces`` and the ``COLUMNS`` of each member; None where nobody looked at them.

    Raises ValueError for no members, and for columns that differ in length.
    """
    if not members:
        raise ValueError("a group has at least one member, found none")
    opening = _shared_beginning([member["messages"][: _first_turn(member)] for member in members])
    whole = {"task", "stream"}
    rows = []
    for number, member in enumerate(members):
        row = {name: _plain(value) for name, value in member.items() if name not in whole}
        row["messages"] = row["messages"][len(opening) :]
        if tokens is not None:
            row |= {"pieces": list(tokens[number]["pieces"]), "columns": _packed(tokens[number])}
        rows.append(row)
    first = members[0]
    return {
        "step": int(step),
        "task": first["task"],
        "stream": int(first["stream"]),
        "opening": opening,
        "members": rows,
    }


def opening_and_said(line: Mapping[str, Any]) -> tuple[list[Any], list[list[Any]]]:
    """Messages before anyone's first turn, and each member's after them: of every conversation what came before it, and
    the agent's part with what answered it.

    An ``opening`` of older logs goes on into turns that all members wrote alike. They are as many as assistant messages
    are missing from a member's own: each member gets its own back.
    """
    whole = [[*line["opening"], *member["messages"]] for member in line["members"]]
    firsts = [_first_turn(member | {"messages": messages}) for member, messages in zip(line["members"], whole)]
    end = min(len(line["opening"]), *firsts)
    return list(line["opening"][:end]), [messages[end:] for messages in whole]


def trajectories(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The members of a line, each with all that it says of them: ``messages`` whole, ``columns`` as arrays.

    Raises ValueError for a line that ``group_line`` did not make.
    """
    try:
        whole = {"step": line["step"], "task": line["task"], "stream": line["stream"]}
        return [
            {
                **whole,
                **member,
                "messages": [*line["opening"], *member["messages"]],
                **({"columns": unpacked(member)} if "columns" in member else {}),
            }
            for member in line["members"]
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no line of a group of trajectories: {type(error).__name__}: {error}") from error


def unpacked(member: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The columns of a member of a line as arrays. Raises ValueError where they are not one number a piece."""
    try:
        columns = {name: np.frombuffer(base64.b64decode(x), COLUMNS[name]) for name, x in member["columns"].items()}
        found = {name: column.size for name, column in columns.items()} | {"pieces": len(member["pieces"])}
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise ValueError(f"columns of tokens are damaged: {type(error).__name__}: {error}") from error
    if len(set(found.values())) > 1:
        raise ValueError(f"columns of tokens differ in length: {found}")
    return columns


def _packed(tokens: Mapping[str, Any]) -> dict[str, str]:
    sizes = {name: len(tokens[name]) for name in ("pieces", *COLUMNS) if name in tokens}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"the columns of a member's tokens must have one length, found {sizes}")
    with np.errstate(over="ignore"):
        columns = {name: np.asarray(tokens[name]).astype(kind) for name, kind in COLUMNS.items() if name in tokens}
    return {name: base64.b64encode(column.tobytes()).decode() for name, column in columns.items()}


def _shared_beginning(conversations: Sequence[Sequence[Any]]) -> list[Any]:
    shared = []
    for messages in zip(*conversations):
        if any(message != messages[0] for message in messages):
            break
        shared.append(messages[0])
    return shared


def _first_turn(member: Mapping[str, Any]) -> int:
    """Place of the first message that the model wrote: turns are counted from there, also where all members begin
    alike. Assistant messages before it are examples of the opening."""
    said = [place for place, message in enumerate(member["messages"]) if message["role"] == "assistant"]
    turns = len(member["stop_reasons"])
    return said[max(0, len(said) - turns)] if turns and said else len(member["messages"])


def _plain(value: Any) -> Any:
    """JSON knows no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
