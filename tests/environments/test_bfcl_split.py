"""No number is on both sides of a split, whatever the tasks, and equal seeds split alike everywhere."""

import itertools
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.environments.bfcl_split import TABLE_7, official_category, split_by_number
from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks, task_number
from rlagents.facts import Task
from tests.effort import draws

OFFICIAL = [task for category in CATEGORIES for task in official_tasks(category)]


def named(pairs):
    return [Task(f"multi_turn_{category}_{number}") for category, number in pairs]


def sides_share_nothing(split):
    return not {task_number(task) for task in split.train} & {task_number(task) for task in split.test}


@pytest.mark.parametrize("seed", range(5))
def test_the_official_tasks_are_split_without_a_leak(seed):
    split = split_by_number(OFFICIAL, seed=seed)
    assert sides_share_nothing(split)
    assert (len(split.train), len(split.test)) == (720, 80)
    assert Counter(map(official_category, split.test)) == dict.fromkeys(CATEGORIES, 20)
    assert [task for task in OFFICIAL if task in split.train or task in split.test] == OFFICIAL
    assert not split.has_counts


def test_the_counts_of_the_paper_cannot_be_had_without_a_leak():
    """All categories hold the same numbers, so any set of them takes equally many tasks of each."""
    for category in CATEGORIES:
        assert sorted(map(task_number, official_tasks(category))) == list(range(200))
    assert len(set(TABLE_7.values())) > 1
    assert (sum(TABLE_7.values()), sorted(TABLE_7)) == (80, sorted(CATEGORIES))


def test_a_seed_is_one_split_in_every_order_and_process():
    first = split_by_number(OFFICIAL, seed=3)
    mixed = random.Random(0).sample(OFFICIAL, len(OFFICIAL))
    again = split_by_number(mixed, seed=3)
    assert {task.id for task in again.test} == {task.id for task in first.test}
    assert split_by_number(OFFICIAL, seed=4).test != first.test
    program = (
        "from rlagents.environments.bfcl_split import split_by_number\n"
        "from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks\n"
        "tasks = [task for category in CATEGORIES for task in official_tasks(category)]\n"
        "print(*[task.id for task in split_by_number(tasks, seed=3).test])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [task.id for task in first.test]


PAIRS = st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 5)), min_size=1, max_size=10)


@settings(max_examples=draws(200), deadline=None)
@given(PAIRS, st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.integers(0, 3)}), st.integers(0, 5))
def test_counts_are_met_exactly_where_some_set_of_numbers_meets_them(pairs, counts, seed):
    tasks = named(sorted(pairs))
    numbers = sorted({number for _, number in pairs})

    def counted(held_out):
        there = Counter(category for category, number in pairs if number in held_out)
        return {name: there[name] for name in counts} == counts

    subsets = [set(some) for size in range(1, len(numbers)) for some in itertools.combinations(numbers, size)]
    possible = any(counted(some) for some in subsets)
    if not 0 < round(0.4 * len(numbers)) < len(numbers) and not possible:
        with pytest.raises(ValueError, match="side would be empty"):
            split_by_number(tasks, seed=seed, test_share=0.4, counts=counts)
        return
    split = split_by_number(tasks, seed=seed, test_share=0.4, counts=counts)
    assert sides_share_nothing(split)
    assert split.has_counts == possible
    if possible:
        assert counted({task_number(task) for task in split.test})


def test_other_numbers_have_the_paper_s_counts():
    """With numbers of its own for each category, Table 7 is the default."""
    tasks = named((name, 1000 * place + number) for place, name in enumerate(CATEGORIES) for number in range(200))
    split = split_by_number(tasks)
    assert split.has_counts
    assert Counter(map(official_category, split.test)) == TABLE_7


def test_what_cannot_be_split_is_refused():
    with pytest.raises(ValueError, match="one side would be empty"):
        split_by_number(named([("base", 1), ("miss_func", 1)]))
    with pytest.raises(ValueError, match="one side would be empty"):
        split_by_number([])
    with pytest.raises(ValueError, match="test_share is 1"):
        split_by_number(OFFICIAL, test_share=1.0)
    with pytest.raises(ValueError, match="2 tasks have 1 ids"):
        split_by_number(named([("base", 1), ("base", 1)]))
