"""One conversation: its messages and its tokens, grown together, so that neither is ever derived from the other."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from rlagents.facts import Message
from rlagents.rollouts.append_only import Tools
from rlagents.rollouts.buffer import TokenBuffer
from rlagents.rollouts.chat import PLACEHOLDER, Chat


@dataclass(frozen=True)
class Continuation:
    """What appending an observation would add: see :meth:`Conversation.continuation`."""

    messages: Sequence[Message]
    token_ids: list[int]
    opened: str


class Conversation:
    """Grows by turns: optional forced tokens, the model's tokens, then the observation.

    Attributes:
      messages: what was said so far; assistant messages hold the text as it was handed to the environment.
      buffer: the tokens.
      prompt_length: how many of them are the opening.
      num_turns: model turns so far.

    Raises:
      ValueError: as :meth:`Chat.open`.
    """

    def __init__(self, chat: Chat, messages: Sequence[Message], tools: Tools = None):
        self._chat, self._tools = chat, tools
        self._opened = chat.open(messages, tools)
        self._history = [dict(message) for message in messages]  # PLACEHOLDER where the model wrote
        self._turn_ids: list[int] = []
        self.messages = [dict(message) for message in messages]
        self.buffer = TokenBuffer()
        self.buffer.append_prompt(chat.encode(self._opened))
        self.prompt_length = len(self.buffer)
        self._opening_messages = len(self.messages)
        self.num_turns = 0

    def fork(self) -> "Conversation":
        """A conversation of its own that has said the same so far; nothing is tokenised again."""
        twin = copy.copy(self)
        twin.messages, twin._history, twin._turn_ids = list(self.messages), list(self._history), list(self._turn_ids)
        twin.buffer = self.buffer.copy()
        return twin

    @property
    def prompt_ids(self) -> list[int]:
        """Tokens of the opening."""
        return self.buffer.ids[: self.prompt_length]

    @property
    def said(self) -> list[Message]:
        """Messages after the opening."""
        return self.messages[self._opening_messages :]

    def force(self, token_ids: Sequence[int]) -> None:
        """Open the coming model turn with these tokens."""
        self.buffer.append_forced(token_ids, self.num_turns)

    def add_turn(self, token_ids: Sequence[int], log_probs: Sequence[float], text: str) -> None:
        """A model turn as sampled: all its tokens (the stop included), and the text the environment is given."""
        self.buffer.append_model(token_ids, log_probs, self.num_turns)
        self._turn_ids = list(token_ids)
        self.messages.append({"role": "assistant", "content": text})
        self._history.append({"role": "assistant", "content": PLACEHOLDER})
        self.num_turns += 1

    def continuation(self, messages: Sequence[Message]) -> Continuation:
        """What appending the observation ``messages`` would add; all at once: templates join tool results."""
        history = [*self._history, *messages]
        following = self._chat.extend(history, self._tools, self._opened)
        opened = self._opened + PLACEHOLDER + following
        return Continuation(messages, self._chat.unwritten(self._turn_ids, following), opened)

    def append(self, continuation: Continuation) -> None:
        """Append an observation. ``continuation`` must have been made since the last turn."""
        self.buffer.append_tool(continuation.token_ids)
        self.messages.extend(dict(message) for message in continuation.messages)
        self._history.extend(dict(message) for message in continuation.messages)
        self._opened = continuation.opened
