"""Expert texts as trajectories, through the same buffer and the real environment: what supervised learning imitates."""

from collections.abc import Sequence

from rlagents.environments.base import Environment
from rlagents.facts import Task, Transcript
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conversation import Conversation
from rlagents.rollouts.trajectory import Trajectory, token_fields
from rlagents.sampling.turns import StopReason


def expert_trajectory(
    environment: Environment, chat: Chat, task: Task, texts: Sequence[str], *, stream: int
) -> Trajectory:
    """Play an expert's assistant texts; observations are the environment's own.

    The tokens of each text and the stop token after it are MODEL; their ``log_probs`` are 0.0, for nobody sampled them.
    The outcome is the environment's score of the trajectory alone.

    Args:
      environment: runs in this process.
      chat: tokenizer and template.
      task: what the expert solves.
      texts: assistant turns, in order.
      stream: index that names the trajectory.

    Raises:
      ValueError: no texts, the template's closing does not begin with a stop token, or the environment ends the
        episode before or after the last text.
    """
    if not texts:
        raise ValueError(f"the expert of task {task.id!r} says nothing; a trajectory needs a model turn.")
    stop = chat.closing_ids[:1]
    if not chat.stop_token_ids.issuperset(stop):
        raise ValueError(f"the template closes a turn with {chat.closing!r}: no stop token that could be learned.")
    opening = environment.opening(task)
    conversation = Conversation(chat, opening.messages, opening.tools)
    episode = environment.start(task)
    turn_facts = []
    for number, text in enumerate(texts):
        ids = [*chat.encode(text), *stop]
        conversation.add_turn(ids, [0.0] * len(ids), text)
        observation = episode.step(text)
        turn_facts.append(observation.turn)
        if observation.done != (number == len(texts) - 1):
            raise ValueError(
                f"task {task.id!r}: after turn {number + 1} of the expert's {len(texts)} the episode is "
                f"{'over' if observation.done else 'not over'}."
            )
        if not observation.done:
            conversation.append(conversation.continuation(observation.messages))
    conversation.messages.extend(dict(message) for message in observation.messages)
    transcript = Transcript(conversation.messages, turn_facts, truncated=False, record=episode.finish())
    (outcome,) = environment.score(task, [transcript])
    return Trajectory(
        task_id=task.id,
        stream=stream,
        member=0,
        condition=-1,
        **token_fields(conversation),
        turn_facts=turn_facts,
        stop_reasons=[StopReason.STOP_TOKEN] * len(texts),
        outcome=outcome,
        truncated=False,
    )
