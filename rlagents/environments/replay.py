"""Assistant texts played through an environment, without a model and without tokens: what they come to."""

from collections.abc import Sequence
from typing import NamedTuple

from rlagents.environments.base import Environment
from rlagents.facts import Message, Outcome, Task, Transcript


class Played(NamedTuple):
    """What texts came to."""

    messages: Sequence[Message]
    """The whole conversation, observations included."""
    outcome: Outcome
    """The environment's score of the trajectory alone."""
    ends: bool
    """Whether the episode is over after the last text."""


def play(environment: Environment, task: Task, texts: Sequence[str]) -> Played:
    """Say ``texts`` in a task, in order. A conversation that is not over after them counts as truncated.

    Raises ValueError for no texts, and where the episode is over before the last one; whatever the environment raises
    passes through.
    """
    if not texts:
        raise ValueError(f"task {task.id!r}: there is no assistant text to play; a trajectory needs one turn or more.")
    messages = [dict(message) for message in environment.opening(task).messages]
    episode, turns, done = environment.start(task), [], False
    for number, text in enumerate(texts):
        if done:
            raise ValueError(f"task {task.id!r}: after text {number} of {len(texts)} the episode is over.")
        observation = episode.step(text)
        done = observation.done
        messages.append({"role": "assistant", "content": text})
        messages.extend(dict(message) for message in observation.messages)
        turns.append(observation.turn)
    transcript = Transcript(messages, turns, truncated=not done, record=episode.finish())
    (outcome,) = environment.score(task, [transcript])
    return Played(messages, outcome, done)
