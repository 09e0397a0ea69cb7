"""What differs between the members of a group: the opening each is shown, such as a reward goal drawn for it.

    member_messages=reward_goal(bernoulli(0.5)), evaluation_messages=reward_goal(fixed(HIGH))

is the sampling side of RC-GRPO (arXiv 2602.03025). Only the policy is shown these messages: the environment scores its
own opening and what was said after it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlagents.facts import Message, Opening, Task
from rlagents.sampling.keys import StreamKey

LOW, HIGH = 0, 1
"""Conditions of :func:`reward_goal` with its own literals, as ``Masks.condition`` holds them."""

GOAL_LITERALS = ("<|low_reward|>", "<|high_reward|>")
GOAL_TEMPLATE = "\n[Reward Goal: {}]"
"""Of RC-GRPO, arXiv 2602.03025, appendix B, by condition; what separates the goal from the message is ours."""

_DRAWS = 0x60A1
"""Begins the seed of every draw: shorter seeds are padded with zeros, so without it they could be another's."""


@dataclass(frozen=True)
class Place:
    """Who a member is, whatever runs where and when: all that its chance may follow from.

    Attributes:
      key: random key material of its group.
      member: index within the group.
      group_size: members of the group.
    """

    key: StreamKey
    member: int
    group_size: int


MemberMessages = Callable[[Task, Opening, Place], tuple[Sequence[Message], int]]
"""``(task, opening, place) -> (opening messages shown to the policy, condition)``; condition -1 for none."""

Draw = Callable[[Place], int]
"""``place -> condition``: a pure function of the place, so that a resumed run draws what it drew."""


def same_for_all(task: Task, opening: Opening, place: Place) -> tuple[Sequence[Message], int]:
    """Every member gets the opening as it is, and no condition."""
    del task, place
    return opening.messages, -1


ConditionMessages = Callable[[Task, Opening, int], Sequence[Message]]
"""``(task, opening, condition) -> opening messages shown to the policy``; condition -1 for none."""


def unconditioned(task: Task, opening: Opening, condition: int) -> Sequence[Message]:
    """The opening as it is. Raises ValueError for any condition but -1: there is nothing that would show it."""
    if condition != -1:
        raise ValueError(f"task {task.id!r} has condition {condition}, and nothing says how it is shown.")
    return opening.messages


def goal_messages(literals: Sequence[str] = GOAL_LITERALS, template: str = GOAL_TEMPLATE) -> ConditionMessages:
    """Append the reward goal of a condition to the first user message; condition -1 appends nothing.

    RC-GRPO, arXiv 2602.03025, appendix B. The paper does not say what separates the goal from the message; here it is
    one line break. The literals are tokenised as any text: special tokens only where the tokenizer has them as such
    (``rlagents.models.vocabulary.with_special_tokens``).

    Args:
      literals: one for each condition, none of them alike.
      template: text to append, with ``{}`` for the literal.

    Raises:
      ValueError: fewer than one literal, two alike, a template without exactly one ``{}``; from what is returned, an
        opening without a user message or a condition that has no literal.
    """
    if isinstance(literals, str) or not literals or len(set(literals)) != len(literals):
        raise ValueError(f"the literals are {literals!r}; give a list of texts, one for each condition, no two alike.")
    if template.count("{}") != 1:
        raise ValueError(f"the template is {template!r}; expected exactly one {{}}, where the literal is to stand.")

    def messages(task: Task, opening: Opening, condition: int) -> Sequence[Message]:
        if condition == -1:
            return opening.messages
        if not 0 <= condition < len(literals):
            raise ValueError(
                f"condition {condition} cannot be shown: there are literals for 0 to {len(literals) - 1} only."
            )
        try:
            return append_to_first_user_message(opening.messages, template.replace("{}", literals[condition]))
        except ValueError as error:
            raise ValueError(f"task {task.id!r}: {error}") from error

    return messages


def reward_goal(draw: Draw, literals: Sequence[str] = GOAL_LITERALS, template: str = GOAL_TEMPLATE) -> MemberMessages:
    """Show each member the reward goal of the condition drawn for it; see :func:`goal_messages`.

    Raises ValueError as that does, and for a member that no condition is drawn for.
    """
    shown = goal_messages(literals, template)

    def member_messages(task: Task, opening: Opening, place: Place) -> tuple[Sequence[Message], int]:
        condition = draw(place)
        if not 0 <= condition < len(literals):
            raise ValueError(f"drew condition {condition}, but there are literals for 0 to {len(literals) - 1} only.")
        return shown(task, opening, condition), condition

    return member_messages


def append_to_first_user_message(messages: Sequence[Message], text: str) -> list[Message]:
    """Copy ``messages``, with ``text`` at the end of the first user message's content.

    Raises ValueError where there is no user message, or its content is not text.
    """
    first = next((index for index, message in enumerate(messages) if message["role"] == "user"), None)
    if first is None:
        roles = [message["role"] for message in messages]
        raise ValueError(f"the opening has roles {roles} and no user message to append {text!r} to; give it one.")
    content = messages[first]["content"]
    if not isinstance(content, str):
        raise ValueError(f"the first user message has content of type {type(content).__name__}, expected str.")
    appended = {**messages[first], "content": content + text}
    return [*messages[:first], appended, *messages[first + 1 :]]


def bernoulli(p: float) -> Draw:
    """HIGH with probability ``p``, else LOW, independently for each member: RC-GRPO, arXiv 2602.03025, eq. 3 (p = 0.5).

    Raises ValueError unless ``0 <= p <= 1``.
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"bernoulli(p={p}): expected a probability between 0 and 1.")
    return lambda place: HIGH if _random(*place.key, place.member).random_sample() < p else LOW


def stratified(k: int) -> Draw:
    """HIGH for exactly ``k`` members of every group, each set of ``k`` equally likely; LOW for the others.

    Raises ValueError for a negative ``k`` and, when it draws, for a group of fewer than ``k`` members.
    """
    if not isinstance(k, int) or k < 0:
        raise ValueError(f"stratified(k={k!r}): expected a whole number of members, 0 or more.")

    def draw(place: Place) -> int:
        if k > place.group_size:
            raise ValueError(f"stratified(k={k}) cannot draw {k} of a group of {place.group_size}; lower k.")
        return HIGH if _random(*place.key).permutation(place.group_size)[place.member] < k else LOW

    return draw


def fixed(condition: int) -> Draw:
    """One condition for all: ``fixed(HIGH)`` is how RC-GRPO evaluates. Raises ValueError for a negative one."""
    if condition < 0:
        raise ValueError(f"fixed(condition={condition}): expected an index of the literals; -1 means no condition.")
    return lambda place: condition


def _random(*material: int) -> np.random.RandomState:
    """``RandomState`` because its stream is frozen across NumPy releases."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence((_DRAWS, *map(int, material)))))
