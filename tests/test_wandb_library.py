"""The library of Weights & Biases itself, offline, writes down what a run logs, and what its resumption logs."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")

ROOT = Path(__file__).resolve().parents[1]
NAN = ("NaN",)
_RUN = """
import sys
from pathlib import Path
from rlagents.metrics.run_log import RunLog

first, last = int(sys.argv[2]), int(sys.argv[3])
with RunLog(Path(sys.argv[1]), {"seed": 3, "rl": {"steps": 4}}, first_step=first, wandb="agents") as log:
    for step in range(first, last):
        log.evaluation(step, {"success": step / 10})
        log.metrics(step, {"reward": step / 2, "seconds/rollout": 0.25, "loss": float("nan")})
"""


def records(path):
    """Yield the records of a file of the library: a header of 7 bytes, then LevelDB's log (blocks of 32 KiB; each
    piece after its checksum, length and kind: whole, first, middle, last)."""
    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = pb.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def value(written):
    """A number that is not finite as a tuple of its name: equal to itself, and to no text."""
    return json.loads(written, parse_constant=lambda name: (name,))


def history(run):
    """What a file of the library says was logged, by its own counter, and its run's id, project and config."""
    steps, about = {}, None
    for record in records(run):
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): value(item.value_json) for item in record.history.item}
            steps[record.history.step.num] = {name: value for name, value in items.items() if name[0] != "_"}
        elif record.WhichOneof("record_type") == "run" and about is None:
            config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
            about = (record.run.run_id, record.run.project, {name: config[name] for name in config if name[0] != "_"})
    return steps, about


def run(workdir, first, last, home):
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "HOME": str(home)}
    command = [sys.executable, "-c", _RUN, str(workdir), str(first), str(last)]
    subprocess.run(command, check=True, env=os.environ | offline, cwd=ROOT, timeout=300)


def test_the_library_writes_down_every_line_once_under_one_id(tmp_path):
    workdir = tmp_path / "run"
    run(workdir, 0, 3, tmp_path)
    run(workdir, 3, 4, tmp_path)
    files = sorted((workdir / "wandb").glob("offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)
    assert len(files) == 2
    logged = {}
    for file in files:
        steps, about = history(file)
        assert about == ((workdir / "wandb_id").read_text().strip(), "agents", {"seed": 3, "rl": {"steps": 4}})
        assert not logged.keys() & steps.keys()
        logged |= steps
    assert logged == {
        number: line
        for step in range(4)
        for number, line in (
            (2 * step, {"step": step, "evaluations/success": step / 10}),
            (2 * step + 1, {"step": step, "reward": step / 2, "seconds/rollout": 0.25, "loss": NAN}),
        )
    }
