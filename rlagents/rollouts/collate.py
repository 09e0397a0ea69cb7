"""Ragged trajectories to one batch of a few fixed shapes. NumPy only: the learner moves it to the devices."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlagents.facts import TurnFacts
from rlagents.rollouts.trajectory import Trajectory
from rlagents.sampling.prompts import split_prompts
from rlagents.types import Batch, Kind, Masks, Rewards, Sequences

_LARGEST = float(np.finfo(np.float32).max)


def collate(
    groups: Sequence[Sequence[Trajectory]],
    *,
    prefix_buckets: Sequence[int],
    member_buckets: Sequence[int],
    turn_buckets: Sequence[int],
    pad_prompts_to: int,
    named: Sequence[str] = (),
    share_prefix: bool = True,
) -> Batch:
    """One row a group; the members' shared prefix once, and what is left of each prompt as PROMPT tokens of its own.

    Lengths are padded on the right to the smallest bucket that holds them all, groups to ``pad_prompts_to`` with
    ``valid`` False, so that a program sees at most ``len(prefix_buckets) * len(member_buckets) * len(turn_buckets)``
    shapes.

    Args:
      groups: at least one; each with the same number of members, in order, of one task.
      prefix_buckets: lengths of the shared prefix, ``l``.
      member_buckets: lengths of a member's own tokens, ``t``.
      turn_buckets: numbers of model turns, ``s``.
      pad_prompts_to: number of rows, ``p``.
      share_prefix: False leaves the prefix empty and gives every member its whole prompt, which changes no result.
      named: facts of :class:`rlagents.facts.Outcome` that go along, in every batch alike.

    Raises:
      ValueError: groups of different sizes, a group whose members are not one task's, more groups than
        ``pad_prompts_to``, a length that no bucket holds, an outcome without one of the ``named`` facts, a reward,
        named fact or turn score that is not finite.
    """
    group_size = _group_size(groups)
    if len(groups) > pad_prompts_to:
        raise ValueError(f"{len(groups)} groups do not fit pad_prompts_to={pad_prompts_to}; collate fewer at a time.")
    splits = [split_prompts([member.prompt_ids for member in group], share=share_prefix) for group in groups]
    prefixes = [prefix for prefix, _ in splits]
    members = [[_own(member, tail) for member, tail in zip(group, tails)] for group, (_, tails) in zip(groups, splits)]
    every = [own for group in members for own in group]

    rows = (pad_prompts_to,)
    cells = (pad_prompts_to, group_size)
    prefix_shape = (*rows, _bucket("prefix", max(map(len, prefixes)), prefix_buckets))
    token_shape = (*cells, _bucket("member", max(len(own.tokens) for own in every), member_buckets))
    turn_shape = (*cells, _bucket("turn", max(own.facts.num_turns for own in every), turn_buckets))

    def table(fact: Callable[[_Own], Any], shape: tuple[int, ...], dtype: Any, fill: float = 0) -> Any:
        return _pad([[fact(own) for own in group] for group in members], shape, dtype, fill)

    def turn_table(fact: Callable[[TurnFacts], Any], dtype: Any) -> Any:
        return table(lambda own: [fact(turn) for turn in own.facts.turn_facts], turn_shape, dtype)

    return Batch(
        sequences=Sequences(
            prefix=_pad(prefixes, prefix_shape, np.int32),
            prefix_length=_pad([len(prefix) for prefix in prefixes], rows, np.int32),
            tokens=table(lambda own: own.tokens, token_shape, np.int32),
            length=table(lambda own: len(own.tokens), cells, np.int32),
        ),
        rewards=Rewards(
            outcome=table(_outcome, cells, np.float32),
            turn_scores=table(_turn_scores, turn_shape, np.float32),
            turn_tool_calls=turn_table(lambda turn: turn.tool_calls, np.int32),
            turn_tool_successes=turn_table(lambda turn: turn.tool_successes, np.int32),
            turn_void=turn_table(lambda turn: turn.void, bool),
            named={name: table(partial(_named_fact, name), cells, np.float32) for name in named},
        ),
        masks=Masks(
            kind=table(lambda own: own.kinds, token_shape, np.int32, Kind.PAD),
            turn=table(lambda own: own.turns, token_shape, np.int32, -1),
            num_turns=table(lambda own: own.facts.num_turns, cells, np.int32),
            valid=table(lambda own: own.facts.valid, cells, bool),
            truncated=table(lambda own: own.facts.truncated, cells, bool),
            condition=table(lambda own: own.facts.condition, cells, np.int32, -1),
        ),
        rollout=table(lambda own: own.log_probs, token_shape, np.float32),
    )


def padding_fraction(batch: Batch) -> float:
    """Share of the batch's token positions, prefixes and members', that hold no token."""
    held = np.sum(batch.sequences.prefix_length) + np.sum(batch.sequences.length)
    return 1.0 - float(held) / (np.size(batch.sequences.prefix) + np.size(batch.sequences.tokens))


class _Own(NamedTuple):
    """A member's own tokens: what the shared prefix left of its prompt, and all that followed."""

    tokens: Sequence[int]
    kinds: Sequence[Kind]
    turns: Sequence[int]
    log_probs: Sequence[float]
    facts: Trajectory


def _own(member: Trajectory, tail: list[int]) -> _Own:
    n = len(tail)
    return _Own(
        tokens=[*tail, *member.token_ids],
        kinds=[*[Kind.PROMPT] * n, *member.kinds],
        turns=[*[-1] * n, *member.turns],
        log_probs=[*[0.0] * n, *member.log_probs],
        facts=member,
    )


def _pad(values: Sequence[Any], shape: tuple[int, ...], dtype: Any, fill: float = 0) -> Any:
    """Nested lists, ragged or short, to an array of ``shape``."""
    padded = np.full(shape, fill, dtype)
    for row, value in zip(padded, values) if len(shape) > 1 else ():
        row[...] = _pad(value, shape[1:], dtype, fill)
    if len(shape) == 1:
        padded[: len(values)] = values
    return padded


def _finite(what: str, value: float, member: Trajectory) -> float:
    """``value``, checked here where its task is still known: on the devices it would only be a loss that is NaN."""
    # Arrays are float32, whose largest number is far below Python's.
    if not abs(value) <= _LARGEST:
        raise ValueError(
            f"{what} of task {member.task_id!r}, member {member.member}, is {value!r}; expected a finite number that"
            " float32 holds: mend how the environment scores it."
        )
    return value


def _outcome(own: _Own) -> float:
    outcome = own.facts.outcome
    return 0.0 if outcome is None else _finite("the outcome's reward", outcome.reward, own.facts)


def _turn_scores(own: _Own) -> list[float]:
    scores = enumerate(own.facts.turn_scores)
    return [_finite(f"the score of turn {turn}", score, own.facts) for turn, score in scores]


def _named_fact(name: str, own: _Own) -> float:
    member = own.facts
    if member.outcome is None:
        return 0.0
    if name not in member.outcome.named:
        raise ValueError(
            f"an outcome of task {member.task_id!r} has no fact named {name!r}, only {sorted(member.outcome.named)}; "
            "every outcome must have those that are collated."
        )
    return _finite(f"the fact {name!r}", member.outcome.named[name], member)


def _bucket(what: str, length: int, buckets: Sequence[int]) -> int:
    fitting = [bucket for bucket in buckets if bucket >= length]
    if not fitting:
        raise ValueError(
            f"the longest {what} is {length}, which none of {what}_buckets {sorted(buckets)} holds; give a larger "
            "bucket, or let nothing grow so long (rollouts by their limits, demonstrations by their texts)."
        )
    return min(fitting)


def _group_size(groups: Sequence[Sequence[Trajectory]]) -> int:
    """The one size of all groups; checks that each group is what its members' ids say."""
    sizes = {len(group) for group in groups}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"groups must be of one size, at least 1; got sizes {sorted(sizes)}.")
    for group in groups:
        names = {(member.task_id, member.stream) for member in group}
        if len(names) != 1 or [member.member for member in group] != list(range(len(group))):
            found = [(member.task_id, member.stream, member.member) for member in group]
            raise ValueError(f"a group holds one task's members in order, got (task, stream, member) {found}.")
    streams = [group[0].stream for group in groups]
    if len(set(streams)) != len(streams):
        raise ValueError(f"two groups have one stream index: {sorted(streams)}; they would be one group.")
    return sizes.pop()
