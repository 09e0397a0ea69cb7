"""One worker process: a loop over requests. Imports no jax."""

import os
import pickle
import resource
import socket

from rlagents.environments.base import Environment
from rlagents.rollouts.episodes import EpisodeRules, Episodes
from rlagents.rollouts.faults import Lost
from rlagents.rollouts.wire import receive_frame, send_frame


def serve(connection: socket.socket, environment: Environment, rules: EpisodeRules, memory_bytes: int) -> None:
    """Answer requests until the other side closes. A request is ``(method of Episodes, arguments)``, pickled."""
    _confine(memory_bytes)
    # No terminal reaches a worker, so a KeyboardInterrupt, too, can only be the environment's.
    episodes = Episodes(environment, rules, errors=(BaseException,))
    while (request := receive_frame(connection)) is not None:
        method, arguments = pickle.loads(request)
        try:
            answer = pickle.dumps(getattr(episodes, method)(*arguments))
        except BaseException as error:
            answer = pickle.dumps(Lost(f"{method}: {type(error).__name__}: {error}"[:2000]))
        send_frame(connection, answer)


def _confine(memory_bytes: int) -> None:
    """A session of its own (so that a kill reaches its children), no terminal, a memory limit."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
