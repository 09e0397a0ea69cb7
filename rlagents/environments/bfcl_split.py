"""Training and test tasks that share no number: tasks with one number are variants of one problem in every category.

RC-GRPO (arXiv 2602.03025, appendix B.1.1) splits the 800 official tasks by number, 90 to 10, and its Table 7 counts 18,
23, 17 and 22 test tasks. No split by number has these counts: each category holds all numbers from 0 to 199, so every
number that is held out takes one task from each, and all four counts are equal.
"""

import functools
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rlagents.environments.bfcl_tasks import task_number
from rlagents.facts import Task

TABLE_7: Mapping[str, int] = {"base": 18, "long_context": 23, "miss_func": 17, "miss_param": 22}
"""Test tasks of each category in the paper."""


class Split(NamedTuple):
    """Both sides of a split, each in the order in which its tasks were given."""

    train: tuple[Task, ...]
    test: tuple[Task, ...]
    has_counts: bool
    """Whether the test side has the counts that were asked for; if not, it has a share of the numbers."""


def official_category(task: Task) -> str:
    """The category of an official task: ``multi_turn_miss_func_7`` is of ``miss_func``."""
    return task.id.removeprefix("multi_turn_").rpartition("_")[0]


def split_by_number(
    tasks: Sequence[Task],
    *,
    seed: int = 0,
    test_share: float = 0.1,
    counts: Mapping[str, int] = TABLE_7,
    number: Callable[[Task], int] = task_number,
    category: Callable[[Task], str] = official_category,
) -> Split:
    """Split tasks so that all tasks with one number are on one side.

    Where some set of numbers leaves exactly ``counts`` test tasks in each category, one such set is drawn; where none
    does (the official tasks), ``round(test_share * numbers)`` numbers are drawn, all sets equally likely. The same
    tasks, in whatever order, and the same seed give the same sides, in every process.

    Args:
      tasks: of any categories.
      seed: of the draw.
      test_share: of the numbers, where ``counts`` cannot be had.
      counts: category -> test tasks wanted; a category that it does not name has none.
      number: what variants share.
      category: of a task.

    Raises:
      ValueError: a share outside (0, 1), a side that would be empty, two tasks with one id.
    """
    if not 0.0 < test_share < 1.0:
        raise ValueError(f"test_share is {test_share}; give a share of the numbers between 0 and 1.")
    if len({task.id for task in tasks}) != len(tasks):
        raise ValueError(f"{len(tasks)} tasks have {len({task.id for task in tasks})} ids; ids have to be unique.")
    found: dict[int, list[str]] = defaultdict(list)
    for task in tasks:
        found[number(task)].append(category(task))
    source = random.Random(f"split-{seed}")
    order = source.sample(sorted(found), len(found))
    held_out = _numbers_with_counts(order, found, counts)
    has_counts = held_out is not None
    if held_out is None:
        held_out = frozenset(order[: round(test_share * len(order))])
    if not held_out or len(held_out) == len(order):
        raise ValueError(
            f"of {len(order)} numbers, {len(held_out)} would be held out, and one side would be empty; give more tasks "
            "or another test_share."
        )
    return Split(
        train=tuple(task for task in tasks if number(task) not in held_out),
        test=tuple(task for task in tasks if number(task) in held_out),
        has_counts=has_counts,
    )


def _numbers_with_counts(
    order: Sequence[int], found: Mapping[int, Sequence[str]], counts: Mapping[str, int]
) -> frozenset[int] | None:
    """Numbers whose tasks are exactly ``counts``, the first in ``order`` of those that are alike; None for none.

    Numbers are alike if they have as many tasks of each category: what counts is how many are taken of each kind.
    """
    names = sorted(set(counts).union(*found.values())) if found else []
    kinds: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for one in order:
        kinds[tuple(found[one].count(name) for name in names)].append(one)
    sizes = [(kind, len(numbers)) for kind, numbers in kinds.items()]

    @functools.cache
    def taken(place: int, left: tuple[int, ...]) -> tuple[int, ...] | None:
        if place == len(sizes):
            return () if not any(left) else None
        kind, size = sizes[place]
        for some in range(size + 1):
            rest = tuple(want - some * each for want, each in zip(left, kind))
            if min(rest, default=0) < 0:
                return None
            following = taken(place + 1, rest)
            if following is not None:
                return (some, *following)
        return None

    amounts = taken(0, tuple(counts.get(name, 0) for name in names))
    if amounts is None or sum(amounts) in (0, len(order)):
        return None
    return frozenset(one for numbers, amount in zip(kinds.values(), amounts) for one in numbers[:amount])
