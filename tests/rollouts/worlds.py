"""Small worlds for tests, importable by worker processes: no jax here."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rlagents.facts import Observation, Opening, Outcome, Task, Transcript, TransientToolError, TurnFacts
from tests.rollouts.mishaps import Mishaps, keep


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


class Counting(Mishaps):
    """Adds numbers; ``<command> <argument>`` as the model's text. Every misbehaviour has a command."""

    def __init__(self, task: Task):
        self.task, self.total, self.steps, self.spoiled = task, 0, 0, False

    def step(self, text: str) -> Observation:
        command, _, argument = text.partition(" ")
        self.steps += 1
        return getattr(self, f"do_{command}")(argument)

    def finish(self):
        keep(**self.task.payload.get("leak_at_the_end", {}))
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


@dataclass(frozen=True)
class CountingEnvironment:
    stop_strings: Sequence[str] = ()
    max_turns: int = 8

    def opening(self, task: Task) -> Opening:
        if task.payload.get("bad_opening"):
            raise RuntimeError("no such task")
        if task.payload.get("kill_parent"):
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(600)
        if task.payload.get("hang_opening"):
            time.sleep(600)
        if task.payload.get("opening_of_bytes"):
            return Opening([{"role": "user", "content": b"Count."}])
        if task.payload.get("away"):
            raise TransientToolError("no route to host")
        return Opening([{"role": "user", "content": task.payload.get("question", "Count.")}])

    def start(self, task: Task) -> Counting:
        if task.payload.get("bad_start"):
            raise RuntimeError("no world")
        if task.payload.get("die_at_start"):
            os._exit(2)
        if task.payload.get("hang_start"):
            time.sleep(600)
        return Counting(task)

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        if task.payload.get("bad_score"):
            raise RuntimeError("no judge")
        if task.payload.get("short_score"):
            return []
        if task.payload.get("hang_score"):
            time.sleep(600)
        if task.payload.get("lying_score"):
            return [task.payload["lying_score"]] * len(transcripts)
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
