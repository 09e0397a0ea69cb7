"""Files of JSON lines: nothing is lost by rotation, nothing is twice after a resume, a kill at any byte is harmless."""

import itertools
import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.durable import WriteError
from rlagents.metrics.lines import JsonLines, files_of, json_number, read_lines, strict_json
from tests.effort import draws

SIZES = st.lists(st.integers(0, 60), max_size=30)


def row(step, size=0):
    return {"step": step, "text": "x" * size}


def write(path, rows, **options):
    with JsonLines(path, **options) as lines:
        for one in rows:
            lines.write(one)


def contents(path):
    return {file.name: file.read_bytes() for file in files_of(path)}


def test_files_rotate_and_are_read_in_order(tmp_path):
    path = tmp_path / "deep" / "m.jsonl"
    rows = [row(step, 20) for step in range(12)]
    line = len(json.dumps(rows[0])) + 1
    write(path, rows, max_bytes=3 * line)
    # Steps of two digits make a longer line: two to a file.
    assert [file.name for file in files_of(path)] == [
        "m.0001.jsonl",
        "m.0002.jsonl",
        "m.0003.jsonl",
        "m.0004.jsonl",
        "m.jsonl",
    ]
    assert [len(text.splitlines()) for text in contents(path).values()] == [3, 3, 3, 2, 1]
    assert list(read_lines(path)) == rows


@given(SIZES, st.integers(1, 200))
@settings(deadline=None, max_examples=draws(40))
def test_no_file_is_too_large_and_no_line_is_lost(tmp_path_factory, sizes, max_bytes):
    path = tmp_path_factory.mktemp("lines") / "m.jsonl"
    rows = [row(step, size) for step, size in enumerate(sizes)]
    write(path, rows, max_bytes=max_bytes)
    assert list(read_lines(path)) == rows
    for text in contents(path).values():
        assert len(text) <= max_bytes or text.count(b"\n") == 1


@given(
    st.lists(st.integers(0, 40), min_size=12, max_size=30) | SIZES, st.integers(60, 240) | st.integers(1, 60), st.data()
)
@settings(deadline=None, max_examples=draws(60))
def test_killed_anywhere_and_resumed_the_files_are_those_of_a_run_never_interrupted(
    tmp_path_factory, sizes, max_bytes, data
):
    folder = tmp_path_factory.mktemp("lines")
    whole, killed = folder / "whole" / "m.jsonl", folder / "killed" / "m.jsonl"
    rows = [row(step // 2, size) for step, size in enumerate(sizes)]  # two lines a step
    checkpoint = data.draw(st.integers(0, len(rows) // 2))
    write(whole, rows, max_bytes=max_bytes)
    done = data.draw(st.integers(2 * checkpoint, len(rows)))
    write(killed, rows[:done], max_bytes=max_bytes)
    with killed.open("ab") as file:
        file.write(json.dumps(row(checkpoint, 5)).encode()[: data.draw(st.integers(0, 20))])
    write(killed, rows[2 * checkpoint :], first_step=checkpoint, max_bytes=max_bytes)
    assert contents(killed) == contents(whole)
    assert sorted(killed.parent.iterdir()) == sorted(files_of(killed))


def test_a_resume_within_an_older_file_goes_on_in_it(tmp_path):
    """Not in a new one beside it: what a run leaves does not tell how often it was killed."""
    rows, whole, killed = [row(step) for step in range(8)], tmp_path / "whole" / "m.jsonl", tmp_path / "m.jsonl"
    max_bytes = 4 * (len(json.dumps(rows[0])) + 1)
    for path in (whole, killed):
        write(path, rows, max_bytes=max_bytes)
    write(killed, rows[2:], first_step=2, max_bytes=max_bytes)
    assert contents(killed) == contents(whole)


def test_a_line_that_lacks_nothing_but_its_end_is_whole_and_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"step": 0}\n{"step": 1}')
    write(path, [{"step": 2}], first_step=2)
    assert path.read_bytes() == b'{"step": 0}\n{"step": 1}\n{"step": 2}\n'


def test_files_are_in_order_beyond_9999_of_them(tmp_path):
    for number in (10000, 9999):
        (tmp_path / f"m.{number}.jsonl").write_text(f'{{"step": {number}}}\n')
    write(tmp_path / "m.jsonl", [{"step": 10001}, {"step": 10002}], first_step=10001, max_bytes=20)
    assert [line["step"] for line in read_lines(tmp_path / "m.jsonl")] == [9999, 10000, 10001, 10002]


def test_killed_while_it_was_opened(tmp_path, monkeypatch):
    """Files are mended from the newest back: wherever that ends, the next start finds a run's beginning."""
    rows = [row(step) for step in range(20)]
    max_bytes = 4 * (len(json.dumps(rows[0])) + 1)
    interrupted = []
    for survived in itertools.count():
        path, calls = tmp_path / str(survived) / "m.jsonl", []
        write(path, rows, max_bytes=max_bytes)
        with monkeypatch.context() as patch:
            for name in ("unlink", "replace", "rename"):
                patch.setattr(type(path), name, taken_away(getattr(type(path), name), calls, survived))
            try:
                JsonLines(path, first_step=5).close()
            except KeyboardInterrupt:
                interrupted.append(survived)
                assert list(read_lines(path))[:5] == rows[:5]
        write(path, rows[5:], first_step=5, max_bytes=max_bytes)
        assert list(read_lines(path)) == rows
        if survived not in interrupted:
            break
    assert len(interrupted) > 5


def taken_away(original, calls, survived):
    """``original``, but the call after ``survived`` of them never happens."""

    def function(*arguments, **options):
        calls.append(arguments)
        if len(calls) > survived:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    return function


def test_what_is_damaged_is_left_out_and_told(tmp_path):
    path, found = tmp_path / "m.jsonl", []
    path.write_bytes(b'{"step": 0}\nnonsense\n[1]\n{"loss": 1}\n{"step": "1"}\n{"step": 2}\n\xff\n{"step": 3')
    assert list(read_lines(path, lambda file, line: found.append((file.name, line)))) == [{"step": 0}, {"step": 2}]
    assert found == [("m.jsonl", line) for line in (2, 3, 4, 5, 7, 8)]
    with pytest.raises(FileNotFoundError, match=r"there is no .*other\.jsonl"):
        read_lines(tmp_path / "other.jsonl")


def test_a_damaged_line_between_those_that_are_kept_stays(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'nonsense\n{"step": 0}\n{"st\n\n{"step": 1}\n\xff\n{"step": 2}\n{"step": 3')
    JsonLines(path, first_step=2).close()
    assert path.read_bytes() == b'nonsense\n{"step": 0}\n{"st\n\n{"step": 1}\n'


@pytest.mark.parametrize(
    "value",
    ["NaN", "-Infinity", "1e999", "-1e999", "9" * 301, "[" * 100_000, '{"a":' * 100_000, "[NaN]"],
    ids=lambda value: value[:9],
)
def test_what_no_line_of_ours_says_is_damaged(value, tmp_path):
    (tmp_path / "a.jsonl").write_text(f'{{"step": 1}}\n{{"step": 2, "x": {value}}}\n{{"step": 3, "x": {"9" * 300}}}\n')
    damaged = []
    rows = list(read_lines(tmp_path / "a.jsonl", lambda file, line: damaged.append(line)))
    assert [row["step"] for row in rows] == [1, 3]
    assert damaged == [2]
    with pytest.raises(ValueError, match=r"no number of JSON|beyond all floats|digits|nested too deeply"):
        strict_json(value)


@pytest.mark.parametrize("step", ["true", "1.0", '"1"', "null", str(2**53), str(-(2**53))])
def test_a_step_is_a_whole_number_of_some_size(step, tmp_path):
    (tmp_path / "a.jsonl").write_text(f'{{"step": {step}}}\n{{"step": {2**53 - 1}}}\n')
    assert [row["step"] for row in read_lines(tmp_path / "a.jsonl")] == [2**53 - 1]


def test_a_file_that_is_removed_under_its_writer_is_told(tmp_path):
    with JsonLines(tmp_path / "run" / "a.jsonl", first_step=0) as lines:
        lines.write({"step": 0})
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(
            WriteError, match=r"a\.jsonl cannot be written \(No such file or directory, 12 bytes wanted\)"
        ):
            lines.write({"step": 1})


def test_files_of_others_are_left_alone(tmp_path):
    for name in ("m.txt", "m.1.jsonl", "m.0001.jsonl.rewritten", "mm.0001.jsonl", "m.0001.json"):
        (tmp_path / name).write_text('{"step": 9}\n')
    write(tmp_path / "m.jsonl", [row(0)], first_step=0)
    assert files_of(tmp_path / "m.jsonl") == [tmp_path / "m.jsonl"]
    assert list(read_lines(tmp_path / "m.jsonl")) == [row(0)]


def test_a_bad_row_is_refused_and_leaves_the_file_as_it_was(tmp_path):
    with JsonLines(tmp_path / "m.jsonl") as lines:
        lines.write({"step": 1})
        for bad in ({}, {"step": "1"}, {"step": True}, {"step": 1.0}):
            with pytest.raises(ValueError, match="the number of its step"):
                lines.write(bad)
        with pytest.raises(ValueError, match="not JSON compliant"):
            lines.write({"step": 2, "x": float("nan")})
    assert (tmp_path / "m.jsonl").read_text() == '{"step": 1}\n'
    with pytest.raises(ValueError, match=r"max_bytes is 0; give a whole number of bytes >= 1"):
        JsonLines(tmp_path / "m.jsonl", max_bytes=0)


def test_numbers_as_json_can_say_them():
    assert [json_number("x", value) for value in (True, 2, 0.5, float("-inf"))] == [1, 2, 0.5, "-inf"]
    with pytest.raises(ValueError, match="metric 'x' must be one number, found None"):
        json_number("x", None)
