"""What becomes of each kind of failure of an environment, found by letting it fail.

    python -m tests.rollouts.fault_table

prints the table. Every row plays two groups of two members on one worker, so that all of them share it: something goes
wrong with the first member of the first group, and the others only count.
"""

import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from rlagents.facts import Outcome
from rlagents.rollouts.episodes import EpisodeRules
from rlagents.rollouts.pool import ProcessPool
from tests.rollouts.playing import ENVIRONMENT, run, tasks

MEGABYTE = 1 << 20
HEALTHY = ("add 1", "where", "add 2", "done")
INVALID, GROUP_INVALID, SKIPPED = "the trajectory is invalid", "the group is invalid", "the task is skipped"
NOTHING = "nothing: the tool's answer is taken"
REPLACED = {"workers_replaced": 1}
TWICE = {"workers_replaced": 2, "workers_leaked": 2}
ALWAYS = {"model_turns", "trajectories", "episodes_rebuilt"}
"""Counts that are not about what went wrong."""


@dataclass(frozen=True)
class Row:
    """One failure and what is to be seen of it.

    Attributes:
      failure: what goes wrong.
      turn: what the faulty member says instead of its second turn; ``{folder}`` is an empty folder.
      payload: of the first group's task.
      sees: the observation, or what becomes of the trajectory, the group or the task.
      counts: all that is counted of it, but for lost trajectories.
      sibling: what the other member of the group says instead.
      around: what happens meanwhile in the program that trains.
    """

    failure: str
    turn: str = HEALTHY[1]
    payload: Mapping[str, Any] = field(default_factory=dict)
    sees: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    sibling: str = HEALTHY[1]
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext

    @property
    def counted(self):
        """``counts``, and trajectories that are marked invalid."""
        lost = {INVALID: 1, GROUP_INVALID: 2}.get(self.sees)
        return dict(self.counts) | ({} if lost is None else {"trajectories_lost": lost})


class Found(NamedTuple):
    """What a row came to; ``others`` are the trajectories that nothing went wrong with."""

    sees: str
    counts: dict[str, int]
    others: list

    @property
    def seen_by_policy(self):
        return self.sees.startswith("Error: ")


@contextlib.contextmanager
def jumping_clock():
    """The wall clock goes an hour ahead, or back, with every look at it."""
    hours = itertools.cycle((0.0, 1.0, -1.0, 24.0))

    def looked_at():
        return 1e9 + 3600.0 * next(hours)

    with mock.patch("time.time", looked_at):
        yield


def raised(sees, name="tool_raised"):
    return {"sees": f"Error: {sees}", "counts": {name: 1}}


def replaced(sees, name):
    return {"sees": f"Error: {sees}", "counts": {name: 1} | REPLACED}


RESTARTED = REPLACED | {"servers_restarted": 1}
AWAY = {"openings_lost": 1, "calls_retried": 2}
ONE_DIED = {"counts": REPLACED | {"tool_died": 1}}
DIED = replaced("the tool's process died", "tool_died")
TIMED_OUT = replaced("the tool timed out", "tool_timed_out")
UNREADABLE = replaced("the tool's answer cannot be read", "tool_malformed")
FLOODED = replaced("the tool answered too much", "tool_flooded")
MALFORMED = raised("the environment's answer is malformed", "tool_malformed")

ROWS = [
    Row("raises", "raise x", **raised("KeyError")),
    Row("calls sys.exit()", "exit", **raised("SystemExit")),
    Row("raises KeyboardInterrupt", "interrupt", **raised("KeyboardInterrupt")),
    Row("hangs", "hang", **TIMED_OUT),
    Row("hangs within C, deaf to SIGTERM", "stubborn", **TIMED_OUT),
    Row("ends its process", "die", **DIED),
    Row("dies by SIGKILL", "kill", **DIED),
    Row("dies by a segmentation fault", "segfault", **DIED),
    Row("allocates too much at once", f"allocate {4096 * MEGABYTE}", **raised("MemoryError")),
    Row(
        "starts children that take too much memory",
        f"hoard {160 * MEGABYTE}",
        **replaced("the tool used more memory", "tool_out_of_memory"),
    ),
    Row(
        "leaks memory (into its process, as an episode ends)",
        payload={"leak_at_the_end": {"memory": 220 * MEGABYTE}},
        sees=NOTHING,
        counts=TWICE,  # both members of the group
    ),
    Row(
        "leaks open files (into its process, as an episode ends)",
        payload={"leak_at_the_end": {"files": 600}},
        sees=NOTHING,
        counts=TWICE,
    ),
    Row(
        "holds more in one episode than a worker may",
        f"keep {220 * MEGABYTE}",
        sees=INVALID,
        counts=TWICE,
    ),
    Row("answers with a flood", "flood 200000", **raised("the tool answered 200000 characters", "tool_flooded")),
    Row("answers with a flood beside the text", "flood_aside 5000000", **FLOODED),
    Row("answers with None", "nothing", **MALFORMED),
    Row("answers with what is no text", "bytes", **MALFORMED),
    Row("answers with what cannot be pickled", "unpicklable", **MALFORMED),
    Row("answers with a turn score that is not finite", "nan", **MALFORMED),
    Row("answers with facts of wrong types", "lie calls", **MALFORMED),
    Row("writes garbage into the worker's connection", "garbage", **UNREADABLE),
    Row("forges an answer of the wrong kind", "forge", **UNREADABLE),
    Row("closes the worker's connection", "close", **DIED),
    Row("prints", "print", sees=NOTHING),
    Row("detaches a process, and a sibling dies", "detach {folder}/alive", sees=NOTHING, sibling="die", **ONE_DIED),
    Row("changes folder, variables, limits, handlers; sets an alarm", "disturb", sees=NOTHING),
    Row("changes what cannot be put back, and so again when replayed", "strand", sees=INVALID, counts=TWICE),
    Row("is remote, and away for a moment", "remote 2 {folder}", sees=NOTHING, counts={"calls_retried": 2}),
    Row("is remote, and stays away", "remote 99 {folder}", sees=INVALID, counts={"calls_retried": 2}),
    Row("does not answer alike when it is rebuilt", "random", sees=INVALID, sibling="die", **ONE_DIED),
    Row("kills the server of all workers", "kill_server {folder}/killed", sees=NOTHING, counts=RESTARTED),
    Row("the wall clock jumps", around=jumping_clock, sees=NOTHING),
    Row("opening raises", payload={"bad_opening": True}, sees=SKIPPED, counts={"openings_lost": 1}),
    Row("opening hangs", payload={"hang_opening": True}, sees=SKIPPED, counts={"openings_lost": 1} | REPLACED),
    Row("opening is no text", payload={"opening_of_bytes": True}, sees=SKIPPED, counts={"openings_lost": 1}),
    Row("opening is remote, and stays away", payload={"away": True}, sees=SKIPPED, counts=AWAY),
    Row("start raises", payload={"bad_start": True}, sees=GROUP_INVALID),
    Row("start ends the process", payload={"die_at_start": True}, sees=GROUP_INVALID, counts={"workers_replaced": 2}),
    Row("no record can be made", "spoil", sees=INVALID),
    Row("scoring raises", payload={"bad_score": True}, sees=GROUP_INVALID),
    Row("scoring hangs", payload={"hang_score": True}, sees=GROUP_INVALID, counts=REPLACED),
    Row("scores too few", payload={"short_score": True}, sees=GROUP_INVALID),
    Row("the reward is NaN", payload={"lying_score": Outcome(float("nan"))}, sees=GROUP_INVALID),
    Row("the reward is larger than float32", payload={"lying_score": Outcome(1e300)}, sees=GROUP_INVALID),
    Row("a turn score is NaN", payload={"lying_score": Outcome(1.0, [float("nan")] * 4)}, sees=GROUP_INVALID),
]  # fmt: skip


def pool() -> ProcessPool:
    """One worker, with little of everything; times are long enough for a machine that is busy."""
    return ProcessPool(
        ENVIRONMENT,
        num_workers=1,
        step_timeout_seconds=3.0,
        call_timeout_seconds=3.0,
        rules=EpisodeRules(max_observation_chars=100_000),
        worker_memory_bytes=400 * MEGABYTE,
        max_reply_bytes=1 << 20,
        max_retries=2,
        retry_seconds=0.01,
    )


def play(row: Row, workers: ProcessPool) -> Found:
    """Let it happen."""
    with tempfile.TemporaryDirectory() as folder, row.around():
        instead = {(10, 0, 1): row.turn.format(folder=folder), (10, 1, 1): row.sibling}
        result = run(
            lambda stream, member, turn: instead.get((stream, member, turn), HEALTHY[turn]),
            tasks(row.payload, {}),
            pool=workers,
        )
        if "alive" in row.turn:
            time.sleep(2.5)
            assert not Path(f"{folder}/alive").exists(), "a process outlived its worker"
    counts = {name: count for name, count in sorted(result.counts.items()) if count and name not in ALWAYS}
    whole = len(result.groups) == 2
    first, second = result.groups[0] if whole else None, result.groups[-1]
    others = [*second] if first is None or not first[1].valid or row.sibling != HEALTHY[1] else [first[1], *second]
    return Found(_seen(first, result), counts, others)


def _seen(group, result) -> str:
    if group is None:
        assert [skipped.stream for skipped in result.skipped] == [10]
        return SKIPPED
    if not any(member.valid for member in group):
        assert all(member.outcome is None for member in group)
        return GROUP_INVALID
    if not group[0].valid:
        assert group[0].outcome is None
        return INVALID
    errors = [message["content"] for message in group[0].messages if message["content"].startswith("Error: ")]
    return errors[0] if errors else NOTHING


def markdown(rows=ROWS) -> str:
    """The table, as found."""
    lines = ["| the environment ... | what follows | counted as |", "| --- | --- | --- |"]
    with pool() as workers:
        for row in rows:
            found = play(row, workers)
            counts = ", ".join(f"{name} {count}" for name, count in found.counts.items()) or "-"
            seen = found.sees.splitlines()[0].removeprefix("Error: ").strip(" :")
            sees = f'observation: "{seen if len(seen) < 80 else seen[:75] + " ..."}"' if found.seen_by_policy else seen
            lines.append(f"| {row.failure} | {sees} | {counts} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
