"""Small worlds for tests, importable by worker processes: no jax here."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlagents.facts import Observation, Opening, Outcome, Task, Transcript, TurnFacts


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


class Counting:
    """Adds numbers; ``<command> <argument>`` as the model's text. Every misbehaviour has a command."""

    def __init__(self, task: Task):
        self.task, self.total, self.steps, self.spoiled = task, 0, 0, False

    def step(self, text: str) -> Observation:
        command, _, argument = text.partition(" ")
        self.steps += 1
        return getattr(self, f"do_{command}")(argument)

    def finish(self):
        if self.spoiled:
            raise RuntimeError("no record")
        if self.task.payload.get("bad_record"):
            return lambda: None
        return {"total": self.total, "steps": self.steps, "pid": os.getpid()}

    def answer(self, content=None, **more) -> Observation:
        content = f"total {self.total}" if content is None else content
        return Observation([tool(content, **more)], done=False, turn=TurnFacts(0.5, 1, 1))

    def do_add(self, argument):
        self.total += int(argument)
        return self.answer()

    def do_spoil(self, _):
        self.spoiled = True
        return self.answer()

    def do_pid(self, _):
        return self.answer(str(os.getpid()))

    def do_modules(self, _):
        return self.answer(" ".join(sorted(sys.modules)))

    def do_done(self, _):
        return Observation([], done=True, turn=TurnFacts(1.0))

    def do_raise(self, argument):
        self.total += 1000
        raise KeyError(argument)

    def do_exit(self, _):
        sys.exit(3)

    def do_interrupt(self, _):
        raise KeyboardInterrupt

    def do_hang(self, _):
        self.total += 1000
        time.sleep(600)

    def do_wait_for(self, path):
        while not Path(path).exists():
            time.sleep(0.005)
        return self.answer()

    def do_die(self, _):
        os._exit(1)

    def do_die_once(self, path):
        if not Path(path).exists():
            Path(path).write_text("died")
            os._exit(1)
        return self.answer()

    def do_flood(self, argument):
        return self.answer("x" * int(argument))

    def do_flood_aside(self, argument):
        return self.answer("small", extra="x" * int(argument))

    def do_print(self, _):
        for stream in (sys.stdout, sys.stderr):
            stream.write("y" * 2_000_000)
            stream.flush()
        return self.answer(" ".join(os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in (0, 1, 2)))

    def do_allocate(self, argument):
        return self.answer(str(len(bytearray(int(argument)))))

    def do_bytes(self, _):
        return self.answer(b"not text")

    def do_parts(self, _):
        return self.answer([{"type": "image"}])

    def do_surrogate(self, _):
        return self.answer("\ud800")

    def do_nothing(self, _):
        return None

    def do_no_list(self, _):
        return Observation(None, done=False)

    def do_nan(self, _):
        return Observation([], done=False, turn=TurnFacts(float("nan")))

    def do_unpicklable(self, _):
        return self.answer(extra=lambda: None)

    def do_random(self, _):
        return self.answer(os.urandom(8).hex())

    def do_child(self, path):
        """Leaves a child process behind that would write to ``path`` in a second, then hangs."""
        if os.fork() == 0:
            time.sleep(1)
            Path(path).write_text("alive")
            os._exit(0)
        time.sleep(600)


@dataclass(frozen=True)
class CountingEnvironment:
    stop_strings: Sequence[str] = ()
    max_turns: int = 8

    def opening(self, task: Task) -> Opening:
        if task.payload.get("bad_opening"):
            raise RuntimeError("no such task")
        return Opening([{"role": "user", "content": task.payload.get("question", "Count.")}])

    def start(self, task: Task) -> Counting:
        if task.payload.get("bad_start"):
            raise RuntimeError("no world")
        if task.payload.get("die_at_start"):
            os._exit(2)
        return Counting(task)

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        if task.payload.get("bad_score"):
            raise RuntimeError("no judge")
        if task.payload.get("short_score"):
            return []
        return [Outcome(float(t.record["total"]), named={"steps": float(t.record["steps"])}) for t in transcripts]


class NeedsJax(CountingEnvironment):
    def __reduce__(self):
        return _load_jax, ()


class DiesAtFork(CountingEnvironment):
    def __reduce__(self):
        return _die_at_fork, ()


def _die_at_fork():
    os.register_at_fork(after_in_child=lambda: os._exit(1))
    return DiesAtFork()


def _load_jax():
    import jax  # noqa: F401

    return NeedsJax()


class Echo:
    """Answers anything; over after ``max_steps`` steps."""

    def __init__(self, max_steps: int):
        self.left = max_steps

    def step(self, text: str) -> Observation:
        self.left -= 1
        parts = [tool(f"{len(text)} letters"), tool(f"{self.left} left")]
        return Observation(parts, done=self.left == 0, turn=TurnFacts(len(text) / 100))

    def finish(self):
        return self.left


@dataclass(frozen=True)
class EchoEnvironment:
    stop_strings: Sequence[str] = ()
    max_turns: int = 8

    def opening(self, task: Task) -> Opening:
        return Opening([{"role": "system", "content": "Say."}, {"role": "user", "content": f"Task {task.id}."}])

    def start(self, task: Task) -> Echo:
        return Echo(3)

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        return [Outcome(float(transcript.record == 0)) for transcript in transcripts]
