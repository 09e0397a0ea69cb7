"""Imports what the training program imports, once, and forks: each run begins as a process of its own, and at once.

A line on standard input, ``[output file, word, ...]``, starts the program with these words; two lines answer, the
process id, and when it has ended its exit code (negative: the signal). The backend of JAX starts in the fork. What it
prints goes through a pipe, which no limit on the size of its files can fill.
"""

import json
import os
import runpy
import subprocess
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
        read, written = os.pipe()
        with open(output, "wb") as file:
            keeper = subprocess.Popen(["cat"], stdin=read, stdout=file)
        os.close(read)
        process = os.fork()
        if process == 0:
            _become(written, words)
            return
        os.close(written)
        print(process, flush=True)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        keeper.wait(60)  # until what the program has started, too, has ended
        print(code, flush=True)


def _become(written: int, words: list[str]) -> None:
    """The program: what it raises ends this process as it would end the interpreter."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, stands_for in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(descriptor, stands_for)
    os.close(written)
    sys.argv = ["rlagents/train.py", *words]
    runpy.run_module("rlagents.train", run_name="__main__")


if __name__ == "__main__":
    main()
