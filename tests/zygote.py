"""Imports what the training program imports, once, and forks: each run begins as a process of its own, and at once.

A line on standard input, ``[output file, word, ...]``, starts the program with these words; two lines answer, the
process id, and when it has ended its exit code (negative: the signal). The backend of JAX starts in the fork.
"""

import json
import os
import runpy
import sys

import rlagents.compilation
import rlagents.reinforce
import rlagents.warm_up
import tests.tiny_run

_IMPORTED = (rlagents.compilation, rlagents.reinforce, rlagents.warm_up, tests.tiny_run)


def main() -> None:
    """Until standard input is closed."""
    while line := sys.stdin.readline():
        output, *words = json.loads(line)
        process = os.fork()
        if process == 0:
            _become(output, words)
            return
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def _become(output: str, words: list[str]) -> None:
    """The program: what it raises ends this process as it would end the interpreter."""
    written, nothing = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), os.open(os.devnull, os.O_RDONLY)
    for descriptor, stands_for in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(descriptor, stands_for)
    sys.argv = ["rlagents/train.py", *words]
    runpy.run_module("rlagents.train", run_name="__main__")


if __name__ == "__main__":
    main()
