"""Which checkpoints stay, as a function of steps and scores; and that deleting is one move."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlagents.checkpoints import CheckpointOptions, Checkpoints, RunRecord, folders
from rlagents.checkpoints.retention import kept
from tests.effort import draws
from tests.test_checkpoints import new_state, step_and_shardings

SCORES = st.dictionaries(
    st.integers(1, 50), st.none() | st.integers(-3, 3) | st.floats(allow_nan=True, allow_infinity=True), min_size=1
)


@given(SCORES, st.integers(1, 4), st.integers(0, 4), st.none() | st.integers(1, 7))
@settings(max_examples=draws(100), deadline=None)
@example({1: math.inf, 2: 1.0, 3: None}, 1, 1, None)
@example({1: math.nan, 2: 1.0, 3: None}, 1, 2, None)
def test_what_stays(scores, keep_last, keep_best, every):
    staying = kept(scores, keep_last=keep_last, keep_best=keep_best, keep_every_steps=every)
    assert staying <= scores.keys()
    assert max(scores) in staying
    assert set(sorted(scores)[-keep_last:]) <= staying
    assert all(step in staying for step in scores if every is not None and step % every == 0)
    finite = {step: score for step, score in scores.items() if score is not None and math.isfinite(score)}
    best = sorted(finite, key=lambda step: (-finite[step], -step))[:keep_best]
    assert set(best) <= staying
    others = staying - set(best) - set(sorted(scores)[-keep_last:])
    assert all(every is not None and step % every == 0 for step in others)


def test_the_best_by_the_named_metric_stay_across_a_restart(tmp_path):
    _, shardings = step_and_shardings()
    state = new_state(shardings)
    success = {1: 0.1, 2: 0.9, 3: None, 4: 0.3, 5: 0.2, 6: 0.9}
    for half in ((1, 2, 3), (4, 5, 6)):
        with Checkpoints(tmp_path, keep_last=1, keep_best=2, best_metric="success/level 1") as checkpoints:
            for step in half:
                metrics = {} if success[step] is None else {"success/level 1": success[step], "success": -success[step]}
                checkpoints.save(step, state, RunRecord({"prompts": step}, metrics=metrics))
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.steps() == [2, 6]
        assert checkpoints.record(2).metrics == {"success/level 1": 0.9, "success": -0.9}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "6"]


def test_the_old_one_is_deleted_only_when_the_new_one_is_complete(tmp_path, monkeypatch):
    _, shardings = step_and_shardings()
    state, events = new_state(shardings), []
    for name in ("complete", "delete"):
        original = getattr(folders, name)

        def told(*arguments, name=name, original=original):
            events.append((name, folders.steps_in(tmp_path)))
            return original(*arguments)

        monkeypatch.setattr(folders, name, told)
    with Checkpoints(tmp_path, keep_last=1) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, state, RunRecord({}))
    assert events == [("complete", []), ("complete", [1]), ("delete", [1, 2])]


def test_one_whose_deletion_was_cut_short_is_none_and_its_rest_is_removed(tmp_path, monkeypatch):
    _, shardings = step_and_shardings()
    with Checkpoints(tmp_path, keep_last=2) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, new_state(shardings), RunRecord({}))
    with monkeypatch.context() as patch:
        patch.setattr(folders.shutil, "rmtree", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            folders.delete(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "deleting-1"]
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.steps() == [2]
        checkpoints.tidy()
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every_steps": 0}, "checkpoint.every_steps is 0; give a whole number >= 1"),
        ({"keep_last": 0}, "checkpoint.keep_last is 0; give a whole number >= 1"),
        ({"keep_best": -1}, "checkpoint.keep_best is -1; give a whole number >= 0"),
        ({"keep_best": True}, "checkpoint.keep_best is True"),
        ({"best_metric": ""}, "checkpoint.best_metric is ''; give a name in evaluations.jsonl"),
        ({"restore_from": None}, "checkpoint.restore_from is None; give the folder"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        CheckpointOptions(**{"every_steps": 1, **options})
    with pytest.raises(ValueError, match="keep_best=-1 0 or more"):
        Checkpoints("anywhere", keep_best=-1)


def test_a_metric_that_no_evaluation_gives_is_refused_with_those_it_gives():
    values = {"success": 0.5, "success/level 1": 0.5}
    CheckpointOptions(every_steps=1, keep_best=1, best_metric="success/level 1").check_metric(values)
    CheckpointOptions(every_steps=1, keep_best=0, best_metric="sucess").check_metric(values)
    with pytest.raises(ValueError, match="'sucess', which an evaluation does not give; it gives success,"):
        CheckpointOptions(every_steps=1, keep_best=1, best_metric="sucess").check_metric(values)
