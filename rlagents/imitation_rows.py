"""Rows of demonstrations: of experts, of experts spoiled by rote, of a policy that failed; and RC-GRPO's two datasets.

    rctp   every expert, shown with the high reward, and as many failures, shown with the low one
    sft    every expert, shown with no reward at all

Every row was played through the environment before it became one: an expert earns the reward, a failure does not.
Source: RC-GRPO (arXiv 2602.03025), appendix B.1.1; how failures are chosen is not stated there, and ours.
"""

import dataclasses
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from rlagents.data.demonstrations import EXPERT, POLICY, SCRIPTED, DemonstrationRow
from rlagents.environments.base import Environment
from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_corruption import corrupted
from rlagents.environments.bfcl_failures import CUT_SHORT, cause_in
from rlagents.environments.replay import play
from rlagents.facts import Task
from rlagents.rollouts.conditions import HIGH, LOW
from rlagents.rollouts.episodes import ENVIRONMENT_ERRORS
from rlagents.rollouts.trajectory import Trajectory
from rlagents.sampling.turns import StopReason

Category = Callable[[Task], str]
"""``task -> category``."""

NO_CONDITION = -1
_UNNAMED = "failed"
"""Cause of a failure in an environment that names none."""


def expert_rows(environment: BfclEnvironment, tasks: Sequence[Task], category: Category) -> list[DemonstrationRow]:
    """The ground truth of each task as the expert says it.

    Raises ValueError for one that does not replay: the environment fails, or the reward is not 1 or the episode not
    over at the end.
    """
    return [_expert_row(environment, task, category(task)) for task in tasks]


def scripted_rows(
    environment: BfclEnvironment, tasks: Sequence[Task], category: Category, *, seed: int
) -> list[DemonstrationRow]:
    """A failure of each task, written from its truth; see :func:`rlagents.environments.bfcl_corruption.corrupted`."""
    rows = []
    for task in tasks:
        texts, cause = corrupted(environment, task, seed=seed)
        rows.append(DemonstrationRow(task.id, category(task), NO_CONDITION, cause, SCRIPTED, texts, True))
    return rows


def policy_rows(
    groups: Sequence[Sequence[Trajectory]],
    environment: Environment,
    tasks: Mapping[str, Task],
    category: Category,
    *,
    without: Collection[str] = (CUT_SHORT,),
) -> list[DemonstrationRow]:
    """Failures among a policy's rollouts: trajectories of reward 0, each once per task by what the assistant said.

    What was said is played again, and the cause is that of the replay. A trajectory that does not fail again, because
    a tool was slow or away when it was sampled, is nobody's mistake and left out; so is a turn that was cut in the
    middle of its text, since imitating it would teach to stop there.

    Args:
      groups: of any tasks, lost trajectories among them.
      environment: runs in this process.
      tasks: id -> task, of all groups.
      category: of a task.
      without: causes to leave out; what a budget cut short shows no mistake of its own.

    Raises:
      ValueError: a group of a task that ``tasks`` does not have.
    """
    rows: dict[tuple[str, tuple[str, ...]], DemonstrationRow] = {}
    for member in (member for group in groups for member in group):
        texts = _whole_turns(member)
        key = (member.task_id, texts)
        if member.outcome is None or not member.valid or member.outcome.reward != 0.0 or not texts or key in rows:
            continue
        if member.task_id not in tasks:
            raise ValueError(f"a trajectory is of task {member.task_id!r}, which is none of the {len(tasks)} tasks.")
        task = tasks[member.task_id]
        try:
            played = play(environment, task, texts)
        except ValueError:
            continue
        cause = cause_in(played.outcome) or _UNNAMED
        if played.outcome.reward == 0.0 and cause not in without:
            rows[key] = DemonstrationRow(task.id, category(task), NO_CONDITION, cause, POLICY, texts, played.ends)
    return list(rows.values())


def balanced(
    experts: Sequence[DemonstrationRow],
    failures: Sequence[DemonstrationRow],
    *,
    seed: int,
    fill: Sequence[DemonstrationRow] = (),
) -> list[DemonstrationRow]:
    """As many failures as there are experts: one of each task while there are any, then a second of each, and so on.

    Only failures of the experts' own tasks are taken: those of other tasks may be of the other side of a split. Where
    ``failures`` are too few, ``fill`` makes up for them, tasks without a failure first. The same rows, in whatever
    order, and the same seed give the same choice.

    Raises ValueError where both together are too few.
    """
    wanted = len(experts)
    own = {row.task_id for row in experts}
    chosen = _in_rounds([row for row in failures if row.task_id in own], seed)[:wanted]
    missing = own - {row.task_id for row in chosen}
    taken = {(row.task_id, row.texts) for row in chosen}
    more = _in_rounds([row for row in fill if row.task_id in own and (row.task_id, row.texts) not in taken], seed)
    more.sort(key=lambda row: row.task_id not in missing)  # stable: the order of the draw stays
    chosen += more[: wanted - len(chosen)]
    if len(chosen) < wanted:
        raise ValueError(
            f"{len(chosen)} different failures for {wanted} experts, of whose tasks "
            f"{len(own - {row.task_id for row in chosen})} have none; sample more rollouts of a task, or fill up with "
            "scripted failures."
        )
    return chosen


def rctp_rows(
    experts: Sequence[DemonstrationRow], failures: Sequence[DemonstrationRow], *, seed: int
) -> list[DemonstrationRow]:
    """Experts with the high reward and failures with the low one, in turn, each kind in a random order.

    Raises ValueError unless there are equally many: the reward token is then high for half of the rows (p = 0.5).
    """
    if len(experts) != len(failures):
        raise ValueError(f"{len(experts)} experts and {len(failures)} failures; RCTP takes them one to one.")
    high = [dataclasses.replace(row, condition=HIGH) for row in _mixed(experts, f"experts-{seed}")]
    low = [dataclasses.replace(row, condition=LOW) for row in _mixed(failures, f"failures-{seed}")]
    return [row for pair in zip(high, low, strict=True) for row in pair]


def sft_rows(experts: Sequence[DemonstrationRow], *, seed: int) -> list[DemonstrationRow]:
    """Experts without a condition, in a random order: the one that they have among the ``rctp_rows`` of that seed."""
    return [dataclasses.replace(row, condition=NO_CONDITION) for row in _mixed(experts, f"experts-{seed}")]


def _expert_row(environment: BfclEnvironment, task: Task, category: str) -> DemonstrationRow:
    try:
        texts = tuple(text for turn in environment.expert(task) for text in turn)
        played = play(environment, task, texts)
    except ENVIRONMENT_ERRORS as error:
        raise ValueError(
            f"the ground truth of task {task.id!r} does not replay ({type(error).__name__}: {error}); leave the task "
            "out, or mend it."
        ) from error
    if played.outcome.reward != 1.0 or not played.ends:
        facts = ", ".join(f"{name} {value:g}" for name, value in played.outcome.named.items() if value)
        raise ValueError(
            f"the ground truth of task {task.id!r} does not replay: it earns the reward {played.outcome.reward:g} "
            f"({facts}); leave the task out, or mend it."
        )
    return DemonstrationRow(task.id, category, NO_CONDITION, "", EXPERT, texts, True)


def _whole_turns(member: Trajectory) -> tuple[str, ...]:
    """What the policy said, turn by turn, less a turn whose text was cut."""
    count = member.num_turns
    said = [message["content"] for message in member.messages if message["role"] == "assistant"]
    texts = said[len(said) - count :]
    cut = count > 0 and member.stop_reasons[-1] in (StopReason.LENGTH, StopReason.BUDGET)
    return tuple(texts[:-1] if cut else texts)


def _in_rounds(rows: Sequence[DemonstrationRow], seed: int) -> list[DemonstrationRow]:
    """One of each task, then a second of each, ..: tasks, and the rows of each, in random orders."""
    by_task: dict[str, list[DemonstrationRow]] = defaultdict(list)
    for row in rows:
        by_task[row.task_id].append(row)
    mixed = {task: _mixed(of_task, f"failures-{seed}-{task}") for task, of_task in by_task.items()}
    tasks = random.Random(f"tasks-{seed}").sample(sorted(mixed), len(mixed))
    rounds = max(map(len, mixed.values()), default=0)
    return [mixed[task][turn] for turn in range(rounds) for task in tasks if turn < len(mixed[task])]


def _mixed(rows: Sequence[DemonstrationRow], seed: str) -> list[DemonstrationRow]:
    """Rows in an order that follows from the seed and from which rows they are, not from how they came."""
    ordered = sorted(rows, key=lambda row: (row.task_id, row.source, row.texts))
    return random.Random(seed).sample(ordered, len(ordered))
