"""One worker process: a loop over requests. Imports no jax."""

import os
import pickle
import resource
import socket

from rlagents.environments.base import Environment
from rlagents.facts import TransientToolError
from rlagents.rollouts.episodes import EpisodeRules, Episodes
from rlagents.rollouts.faults import Again, Answer, Lost
from rlagents.rollouts.processes import die_with_parent
from rlagents.rollouts.surroundings import Surroundings
from rlagents.rollouts.wire import receive_frame, send_frame

MOST_FILES = 1024
"""Files that a worker may have open."""

_MOST_CHARS = 2000
"""Of what an environment says when it fails."""


def serve(
    connection: socket.socket, environment: Environment, rules: EpisodeRules, memory_bytes: int, server: int
) -> None:
    """Answer requests until the other side closes, or process ``server`` dies.

    A request is ``(method of Episodes, arguments)``, pickled.

    What a request changes in the process that is no episode's is put back before the next.
    """
    _confine(memory_bytes, server)
    surroundings = Surroundings()
    # No terminal reaches a worker, so a KeyboardInterrupt, too, can only be the environment's.
    episodes = Episodes(environment, rules, errors=(BaseException,))
    while (request := receive_frame(connection)) is not None:
        method, arguments = pickle.loads(request)
        try:
            value = getattr(episodes, method)(*arguments)
        except TransientToolError as error:
            value = Again(str(error)[:_MOST_CHARS])
        except BaseException as error:
            value = _lost(method, error)
        spoiled = surroundings.restore()
        try:
            answer = pickle.dumps(Answer(value, spoiled))
        except BaseException as error:
            answer = pickle.dumps(Answer(_lost(method, error), spoiled))
        send_frame(connection, answer)


def _lost(method: str, error: BaseException) -> Lost:
    return Lost(f"{method}: {type(error).__name__}: {error}"[:_MOST_CHARS])


def _confine(memory_bytes: int, server: int) -> None:
    """A session of its own (so that a kill reaches its children), no terminal, limits on memory and open files."""
    die_with_parent(server)
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    if nowhere > 2:
        os.close(nowhere)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = MOST_FILES if most == resource.RLIM_INFINITY else min(most, MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
