"""Problems come all at once, each once; what only follows from them is left out."""

import pytest

from rlagents.problems import ConfigError, Problems, near_match


def refuse(line):
    raise ValueError(line)


def exhaust():
    raise RuntimeError("not a matter of the config")


def test_all_are_told_in_the_order_in_which_they_were_found():
    problems = Problems()
    for line in ("seed is -1; give more.", "rl.steps is -2; give more.", "seed is -1; give more."):
        problems.ask(refuse, line)
    with pytest.raises(ConfigError) as caught:
        problems.refuse()
    assert caught.value.lines == ("seed is -1; give more.", "rl.steps is -2; give more.")
    assert str(caught.value) == "2 problems:\n  - seed is -1; give more.\n  - rl.steps is -2; give more."


def test_one_is_told_as_it_is_and_none_is_no_error():
    problems = Problems()
    problems.refuse()
    problems.ask(refuse, "seed is -1.")
    with pytest.raises(ConfigError, match=r"^seed is -1\.$"):
        problems.refuse()


def test_those_of_a_check_that_collects_are_taken_one_by_one():
    inner, outer = Problems(), Problems()
    inner.note("a is 1.", "b is 2.")
    outer.ask(inner.refuse)
    assert outer.lines == ["a is 1.", "b is 2."]


def test_what_a_check_returns_comes_through_and_none_where_it_refused():
    problems = Problems()
    assert problems.ask(max, 1, 2) == 2
    assert problems.ask(refuse, "no.") is None


def test_a_consequence_is_left_out_and_a_mistake_of_ours_is_not():
    problems = Problems()
    with pytest.raises(KeyError):
        problems.ask(lambda: {}["rl"])
    problems.note("the config has no rl.")
    assert problems.ask(lambda: {}["rl"]) is None
    assert problems.ask(lambda: 1 // 0) is None
    with pytest.raises(RuntimeError):
        problems.ask(exhaust)
    assert problems.lines == ["the config has no rl."]


def test_what_a_problem_is_about_is_told_from_how_it_begins():
    problems = Problems()
    problems.note("mesh.data is 0; give more.", "limits: max_turns is 0.", "sampler.num_rows is 3.")
    assert problems.about("mesh")
    assert problems.about("limits")
    assert problems.about("sampler.num_rows")
    assert not problems.about("data")
    assert not problems.about("sampler.num_row")
    assert not problems.about("rl", "me")


def test_the_near_match_of_a_name():
    known = ["rl.steps", "rl.group_size", "sampler.num_rows"]
    assert near_match("rl.stepz", known) == " Did you mean rl.steps?"
    assert near_match("rl.groupsize", known) == " Did you mean rl.group_size?"
    assert near_match("nothing_like_it", known) == ""
