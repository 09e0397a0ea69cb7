"""A run does not end because nobody reads what it prints."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlagents.progress import RichProgress, progress
from rlagents.steady_output import SteadyStream, steady_output
from tests import smallest_run

ROOT = Path(__file__).resolve().parents[1]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_what_is_printed_arrives_as_it_is():
    terminal = Terminal()
    stream = SteadyStream(terminal)
    print("a", "ü", file=stream, flush=True)
    assert (terminal.getvalue(), stream.isatty(), stream.failed) == ("a ü\n", True, None)
    assert isinstance(progress(3, stream), RichProgress)
    assert not SteadyStream(io.StringIO()).isatty()


def test_a_stream_that_fails_is_written_to_no_more():
    class Broken(Terminal):
        writes = 0

        def write(self, text):
            self.writes += 1
            raise BrokenPipeError

    broken = Broken()
    stream = SteadyStream(broken)
    for _ in range(3):
        print("lost", file=stream, flush=True)
    assert broken.writes == 1
    assert isinstance(stream.failed, BrokenPipeError)
    assert not stream.isatty()


def test_streams_that_were_closed_before_or_are_closed_meanwhile():
    print("lost", file=SteadyStream(None), flush=True)
    with pytest.raises(io.UnsupportedOperation):
        SteadyStream(None).fileno()
    closed = io.StringIO()
    stream = SteadyStream(closed)
    closed.close()
    print("lost", file=stream, flush=True)
    assert isinstance(stream.failed, ValueError)


@pytest.mark.parametrize(
    ("redirection", "arrives"),
    [("| head -n 1", "line 0\n"), (">/dev/full", ""), (">&-", ""), (">&- 2>&-", "")],
)
def test_a_program_goes_on_to_its_end_whatever_becomes_of_its_output(redirection, arrives, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, time\n"
        "from rlagents.steady_output import steady_output\n"
        "with steady_output():\n"
        "    for line in range(200):\n"
        "        print('line', line, flush=True)\n"
        "        print('line', line, file=sys.stderr)\n"
        "        time.sleep(0.001)\n"
        "open('ended', 'w').close()\n"
    )
    shell = f"set -o pipefail; {sys.executable} {program} {redirection}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, arrives), done.stderr
    assert (tmp_path / "ended").exists()


@pytest.mark.usefixtures("no_processes")
def test_a_run_whose_output_fails_is_the_run_that_is_watched(tmp_path, monkeypatch):
    config = smallest_run.get_config()
    config.rl.steps = 2
    smallest_run.run(config, tmp_path / "run")
    with open("/dev/full", "w") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        with steady_output():
            smallest_run.run(config, tmp_path / "unseen")
            assert sys.stdout.failed is not None
    seen, unseen = (
        sorted(path.name for path in (tmp_path / name / "checkpoints").iterdir()) for name in ("run", "unseen")
    )
    assert seen == unseen == ["2"]
