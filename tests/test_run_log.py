"""What a run writes goes everywhere under the same names, every step once however often the run was killed."""

import errno
import functools
import json
import math
import sys
import types

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX.event_file_writer import EventsWriter

from rlagents.durable import WriteError
from rlagents.metrics import files_of, read_lines, read_metrics
from rlagents.metrics.run_log import RunLog, check_logging, check_reachable
from rlagents.problems import ConfigError


def step_values(step):
    return {"reward": step / 2, "success/level 1": 1.0, "seconds/roll out": 0.5}


def write(workdir, first, last, *, evaluated=(), **options):
    with RunLog(workdir, {"seed": 3}, first_step=first, **options) as log:
        for step in range(first, last):
            if step in evaluated:
                log.evaluation(step, {"success": step / 10, "tasks_skipped": 0})
            log.metrics(step, step_values(step))
        if last in evaluated:
            log.evaluation(last, {"success": last / 10, "tasks_skipped": 0})


def scalars(folder):
    """What TensorBoard itself reads."""
    board = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: [(e.step, e.value) for e in board.Scalars(tag)] for tag in board.Tags()["scalars"]}


def rows(path):
    """The same of a file of lines."""
    found = {}
    for row in read_metrics(path):
        for name, value in row.items():
            if name != "step":
                found.setdefault(name, []).append((row["step"], value))
    return found


def test_tensorboard_shows_the_lines(tmp_path):
    write(tmp_path, 0, 4, evaluated=(0, 4), tensorboard=True)
    assert scalars(tmp_path / "tensorboard" / "metrics") == rows(tmp_path / "metrics.jsonl")
    shown = scalars(tmp_path / "tensorboard" / "evaluations")
    assert shown["success"] == [(0, 0.0), (4, pytest.approx(0.4))]
    assert shown.keys() == rows(tmp_path / "evaluations.jsonl").keys()


def test_after_a_kill_tensorboard_shows_every_step_once(tmp_path):
    with RunLog(tmp_path, {}, tensorboard=True) as log:
        for step in range(5):
            log.metrics(step, {"reward": -1.0 if step > 1 else step / 2})
    (file,) = (tmp_path / "tensorboard" / "metrics").iterdir()
    with file.open("ab") as events:
        events.write(b"\x18\x00\x00")  # a record cut short
    write(tmp_path, 2, 6, evaluated=(3,), tensorboard=True)
    write(tmp_path, 3, 6, evaluated=(4,), tensorboard=True)
    assert scalars(tmp_path / "tensorboard" / "metrics")["reward"] == [(step, step / 2) for step in range(6)]
    assert scalars(tmp_path / "tensorboard" / "metrics")["reward"] == rows(tmp_path / "metrics.jsonl")["reward"]
    evaluated = scalars(tmp_path / "tensorboard" / "evaluations")["success"]
    assert [step for step, _ in evaluated] == [3, 4]


def test_however_often_it_is_killed_and_the_clock_set_back_tensorboard_shows_every_step_once(tmp_path, monkeypatch):
    for resumed in range(12):
        monkeypatch.setattr("time.time", lambda seconds=2e9 - resumed: seconds)
        write(tmp_path, resumed, resumed + 3, tensorboard=True)
    shown = scalars(tmp_path / "tensorboard" / "metrics")["reward"]
    assert [step for step, _ in shown] == list(range(14))
    assert shown == rows(tmp_path / "metrics.jsonl")["reward"]


def test_events_are_there_before_the_file_is_closed(tmp_path):
    log = RunLog(tmp_path, {}, tensorboard=True)
    log.metrics(0, {"reward": math.inf})
    assert scalars(tmp_path / "tensorboard" / "metrics") == {"reward": [(0, math.inf)]}
    log.close()


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(events):
        raise OSError(errno.ENOSPC, "No space left on device")

    with RunLog(tmp_path, {}, tensorboard=True) as log:
        monkeypatch.setattr(EventsWriter, "flush", full)
        with pytest.raises(WriteError, match=r"tensorboard/metrics cannot be written \(No space left on device\)"):
            log.metrics(0, {"reward": 1.0})
        monkeypatch.undo()
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [0]


def test_an_evaluation_that_a_resume_goes_on_from_is_kept(tmp_path):
    write(tmp_path, 0, 4, evaluated=(0, 2, 4), tensorboard=True)
    write(tmp_path, 2, 3, tensorboard=True)
    assert [row["step"] for row in read_metrics(tmp_path / "evaluations.jsonl")] == [0, 2]
    assert [step for step, _ in scalars(tmp_path / "tensorboard" / "evaluations")["success"]] == [0, 2]


def test_all_files_rotate(tmp_path):
    with RunLog(tmp_path, {}, max_megabytes=1e-3) as log:
        for step in range(100):
            log.metrics(step, step_values(step))
            log.evaluation(step, step_values(step))
            log.alarm(step, "kl_exploded", math.inf, 0.5, "far away")
    for name in ("metrics.jsonl", "evaluations.jsonl", "alarms.jsonl"):
        assert len(files_of(tmp_path / name)) > 3
        assert all(file.stat().st_size <= 1e-3 * 2**20 for file in files_of(tmp_path / name))
        assert [row["step"] for row in read_lines(tmp_path / name)] == list(range(100))
    said = {"step": 99, "alarm": "kl_exploded", "value": "inf", "threshold": 0.5, "message": "far away"}
    assert list(read_lines(tmp_path / "alarms.jsonl"))[-1] == said


class LibraryError(Exception):
    pass


class Server:
    """Stands in for the library: runs by id, each with what was logged."""

    def __init__(self):
        self.runs, self.begun, self.mode, self.answers = {}, [], "online", []

    def login(self, *, prompt):
        assert not prompt
        answer = self.answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def init(self, **options):
        self.begun.append(options)
        if self.answers:
            raise self.answers.pop()
        return ServedRun(self.runs.setdefault(options["id"], {}))


class ServedRun:
    def __init__(self, history):
        self._history, self.step, self.axes = history, max(history, default=-1) + 1, []

    def define_metric(self, name, step_metric):
        self.axes.append((name, step_metric))

    def log(self, values, step):
        assert step >= max(self._history, default=0), "the library drops what comes too late"
        self._history.setdefault(step, {}).update(json.loads(json.dumps(values)))

    def finish(self):
        pass


@pytest.fixture
def server(monkeypatch):
    server, module = Server(), types.ModuleType("wandb")
    module.init, module.Error = server.init, LibraryError
    module.setup = lambda: types.SimpleNamespace(settings=types.SimpleNamespace(mode=server.mode))
    module.login = server.login
    monkeypatch.setitem(sys.modules, "wandb", module)
    return server


def test_weights_and_biases_shows_the_lines_of_a_run_that_was_killed_and_resumed(tmp_path, server):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    write(whole, 0, 6, evaluated=(0, 2, 4, 6), wandb="project")
    write(killed, 0, 5, evaluated=(0, 2, 4), wandb="project")
    write(killed, 2, 6, evaluated=(4, 6), wandb="project")
    first, second, again = server.begun
    assert first["id"] != second["id"] == again["id"]
    assert (second["project"], second["name"], second["resume"]) == ("project", "killed", "allow")
    assert second["config"] == {"seed": 3}
    history = server.runs[second["id"]]
    assert history == server.runs[first["id"]]
    lines = sorted(history.items())
    assert [line for number, line in lines if number % 2] == [{"step": s} | step_values(s) for s in range(6)]
    assert [line for number, line in lines if number % 2 == 0] == [
        {"step": s, "evaluations/success": s / 10, "evaluations/tasks_skipped": 0} for s in (0, 2, 4, 6)
    ]
    moved = killed.rename(tmp_path / "moved")
    write(moved, 6, 7, wandb="project")
    assert server.begun[-1]["id"] == second["id"]


def test_who_is_not_logged_in_is_told_before_a_run_begins_and_a_run_that_cannot_begin_too(tmp_path, server):
    server.answers = [True]
    check_reachable(wandb="project")
    server.answers = [False]
    with pytest.raises(
        ConfigError, match=r"cannot be logged to \(there is no login\); run wandb login, set WANDB_MODE"
    ):
        check_reachable(wandb="project")
    for begin in (check_reachable, functools.partial(RunLog, tmp_path, {})):
        server.answers = [LibraryError("no answer.\nSee the log.")]
        with pytest.raises(ConfigError, match=r"cannot be logged to \(no answer\); run wandb login"):
            begin(wandb="project")
    # Nobody is asked who wants no network.
    check_reachable()
    for server.mode in ("offline", "disabled"):
        check_reachable(wandb="project")


def test_without_the_library_a_run_that_asks_for_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ModuleNotFoundError, match=r"not installed; install it \(pip install wandb\), or give wandb=''"):
        check_logging(wandb="project")
    with pytest.raises(ModuleNotFoundError):
        RunLog(tmp_path / "run", {}, wandb="project")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tensorboard": 1}, "tensorboard is 1; give True or False."),
        ({"wandb": None}, "wandb is None; give the name of a project, or '' to log without"),
        ({"max_megabytes": 0}, "max_megabytes is 0; give a number > 0."),
    ],
)
def test_wrong_settings_are_refused(given, said, tmp_path):
    for function in (check_logging, lambda **options: RunLog(tmp_path, {}, **options)):
        with pytest.raises(ValueError) as caught:  # noqa: PT011  the text is what the test looks at
            function(**given)
        assert str(caught.value).startswith(said)
