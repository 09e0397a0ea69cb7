"""Demonstrations as trajectories, through the same buffer and the real environment: what is to be imitated."""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlagents.environments.base import Environment
from rlagents.facts import Task, Transcript
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conditions import ConditionMessages, unconditioned
from rlagents.rollouts.conversation import Conversation
from rlagents.rollouts.trajectory import Trajectory, token_fields
from rlagents.sampling.turns import StopReason


class Demonstration(NamedTuple):
    """What an assistant says in one task, turn by turn, to be imitated."""

    texts: Sequence[str]
    ends: bool = True
    """Whether the episode is over after the last text; False for a demonstration that breaks off before."""
    condition: int = -1
    """What the task was shown with, such as the reward that this demonstration earns; -1 for none."""


Expert = Callable[[Task], Sequence[Sequence[str]]]
"""task -> assistant texts that solve it, by user turn: calls, and the closing words last."""


Demonstrator = Callable[[Task, int], Demonstration]
"""task, number of supervised steps taken -> what an assistant says in the task when it is shown then."""


def complete(expert: Expert) -> Demonstrator:
    """Return a demonstrator who says all that the expert says."""
    return lambda task, step: Demonstration([text for texts in expert(task) for text in texts])


def first_then(first: Demonstrator, then: Demonstrator, *, first_steps: int) -> Demonstrator:
    """Return ``first`` for the first supervised steps and ``then`` for all later ones: two lessons, in order.

    Raises ValueError for a negative ``first_steps``.
    """
    if first_steps < 0:
        raise ValueError(f"first_steps is {first_steps}; a lesson takes 0 steps or more.")
    return lambda task, step: first(task, step) if step < first_steps else then(task, step)


def hasty(expert: Expert, share: float) -> Demonstrator:
    """Return a demonstrator who knows what the expert knows, but is at times done when a last call is still to be made.

    With probability ``share``, each user turn of two calls or more loses its last call, and the demonstration breaks
    off after that turn: what the expert would do later may build on the call that is missing. A policy that imitates
    such demonstrations knows every call and has the habit too; a reward can take it off again, imitation cannot.
    Chance follows from the task's id: a task is demonstrated in one way.

    Raises:
      ValueError: ``share`` is no probability.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"the share of hasty turns is {share}; give a probability between 0 and 1.")

    def demonstrate(task: Task, step: int) -> Demonstration:
        source, user_turns = random.Random(f"hasty-{task.id}"), expert(task)
        said: list[str] = []
        for number, (*calls, closing) in enumerate(user_turns):
            if len(calls) > 1 and source.random() < share:
                return Demonstration([*said, *calls[:-1], closing], ends=number == len(user_turns) - 1)
            said += [*calls, closing]
        return Demonstration(said)

    return demonstrate


def expert_trajectory(
    environment: Environment,
    chat: Chat,
    task: Task,
    demonstration: Demonstration,
    *,
    stream: int,
    shown: ConditionMessages = unconditioned,
) -> Trajectory:
    """Play a demonstration's assistant texts; observations are the environment's own.

    The tokens of each text and the stop token after it are MODEL; their ``log_probs`` are 0.0, for nobody sampled them.
    The outcome is the environment's score of the trajectory alone; one that breaks off is marked as truncated.

    Args:
      environment: runs in this process.
      chat: tokenizer and template.
      task: what is demonstrated.
      demonstration: assistant turns, in order.
      stream: index that names the trajectory.
      shown: opening messages of the demonstration's condition.

    Raises:
      ValueError: no texts, a condition that ``shown`` does not have, the template's closing does not begin with a stop
        token, or the environment ends the episode elsewhere than the demonstration says.
    """
    texts, ends, condition = demonstration
    if not texts:
        raise ValueError(f"the expert of task {task.id!r} says nothing; a trajectory needs a model turn.")
    stop = chat.closing_ids[:1]
    if not chat.stop_token_ids.issuperset(stop):
        raise ValueError(f"the template closes a turn with {chat.closing!r}: no stop token that could be learned.")
    opening = environment.opening(task)
    conversation = Conversation(chat, shown(task, opening, condition), opening.tools)
    episode = environment.start(task)
    turn_facts = []
    for number, text in enumerate(texts):
        ids = [*chat.encode(text), *stop]
        conversation.add_turn(ids, [0.0] * len(ids), text)
        observation = episode.step(text)
        turn_facts.append(observation.turn)
        last = number == len(texts) - 1
        if observation.done != (last and ends):
            raise ValueError(
                f"task {task.id!r}: after turn {number + 1} of the expert's {len(texts)} the episode is "
                f"{'over' if observation.done else 'not over'}."
            )
        if not last:
            conversation.append(conversation.continuation(observation.messages))
    conversation.messages.extend(dict(message) for message in observation.messages)
    transcript = Transcript(conversation.messages, turn_facts, truncated=not ends, record=episode.finish())
    (outcome,) = environment.score(task, [transcript])
    return Trajectory(
        task_id=task.id,
        stream=stream,
        member=0,
        condition=condition,
        **token_fields(conversation),
        turn_facts=turn_facts,
        stop_reasons=[StopReason.STOP_TOKEN] * len(texts),
        outcome=outcome,
        truncated=not ends,
    )
