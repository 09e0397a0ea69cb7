"""Messages to tokens, each once: a chat template seen as something that only ever appends.

:class:`Chat` renders opening messages, and later just the *difference* that new messages make. What the model wrote
never enters a render (a placeholder stands in its place) and is never decoded and tokenised again: the tokens it was
sampled as are the tokens it is trained on.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rlagents.facts import Message
from rlagents.rollouts.append_only import RewritingTemplateError, Tools, closing_string, differs
from rlagents.rollouts.pinned_date import pin_date
from rlagents.rollouts.templates import STAND_INS

PINNED_DATE = datetime.date(2024, 7, 26)
PLACEHOLDER = "(assistant turn)"


class Tokenizer(Protocol):
    """What is used of a Hugging Face tokenizer."""

    chat_template: Any

    def apply_chat_template(self, conversation: Any, **keywords: Any) -> Any: ...  # noqa: D102
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...  # noqa: D102
    def decode(self, token_ids: Any, **keywords: Any) -> Any: ...  # noqa: D102


class Chat:
    """A tokenizer and an append-only chat template.

    Args:
      tokenizer: a Hugging Face tokenizer.
      template: Jinja chat template; ``training_template(tokenizer)`` finds one.
      pinned_date: the date every render bears, so that a conversation does not change at midnight.
      template_arguments: further variables of the template (``{"enable_thinking": False}``).

    Raises:
      RewritingTemplateError: the template rewrites history; says which message changed and what was found.
      ValueError: no template, or the tokenizer does not give text back as it was (it cannot tokenise a conversation
        piece by piece).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: str,
        *,
        pinned_date: datetime.date = PINNED_DATE,
        template_arguments: Mapping[str, Any] | None = None,
    ):
        if not isinstance(template, str) or not template:
            own = getattr(tokenizer, "chat_template", None)
            lacks = "" if own else " The tokenizer has no chat template of its own."
            raise ValueError(
                f"Chat(template={template!r}): expected the text of a Jinja chat template.{lacks} Pass"
                f" {'training_template(tokenizer), ' if own else ''}one of rlagents.rollouts.templates, or your own."
            )
        self.tokenizer = tokenizer
        self.template = template
        self._renderer = _Renderer(tokenizer, template, pinned_date, template_arguments)
        self.closing = closing_string(self._renderer)
        """What the template writes after the assistant's text, up to the next message."""
        self.closing_ids = self.encode(self.closing)
        self._check_lossless()

    def render(self, messages: Sequence[Message], tools: Tools, add_generation_prompt: bool) -> str:
        """The conversation as text."""
        return self._renderer(messages, tools, add_generation_prompt)

    def encode(self, text: str) -> list[int]:
        """Token ids of a piece of a conversation, no special tokens added."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Exact text of tokens, special tokens included."""
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def decode_text(self, token_ids: Sequence[int]) -> str:
        """Text of tokens without special tokens: what an environment gets to see."""
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Tokens that end a model turn: the closing's first token if it is a special one, and the end of text."""
        end_of_text = getattr(self.tokenizer, "eos_token_id", None)
        closing = [token for token in self.closing_ids[:1] if not self.decode_text([token])]
        return frozenset(closing) | (frozenset() if end_of_text is None else {int(end_of_text)})

    def open(self, messages: Sequence[Message], tools: Tools = None) -> str:
        """Text of the opening messages up to where the model begins to write.

        Raises:
          ValueError: no messages, content that is not text, or tool schemas that the template leaves out.
        """
        for index, message in enumerate(messages):
            if not isinstance(message.get("content"), str):
                raise ValueError(
                    f"message {index} has content of type {type(message.get('content')).__name__}, not str."
                )
        opened = self.render(messages, tools, True)
        if tools and opened == self.render(messages, None, True):
            raise ValueError(
                "the chat template leaves out the tool schemas. Write the tools into the system message, or use a "
                "template that renders them."
            )
        return opened

    def extend(self, history: Sequence[Message], tools: Tools, opened: str) -> str:
        """Text that follows the model's last turn: the turn's closing, new messages, the opening of the next turn.

        Args:
          history: all messages, the new ones included, with PLACEHOLDER for what the model wrote.
          tools: as in the opening.
          opened: render of ``history`` up to where the model's last turn begins.
        """
        text, expected = self.render(history, tools, True), opened + PLACEHOLDER + self.closing
        if not text.startswith(expected):
            raise RewritingTemplateError(
                f"the chat template rewrote history when message {len(history) - 1} ({history[-1]['role']}) was "
                "appended, which none of its probes showed. Use an append-only template."
            )
        return text[len(opened + PLACEHOLDER) :]

    def unwritten(self, turn_ids: Sequence[int], following: str) -> list[int]:
        """Token ids of ``following`` (of :meth:`extend`) less the part of the closing that the model wrote itself.

        A model that stopped with ``<|im_end|>`` gets only the ``\\n`` after it; one that stopped with a string, or with
        another stop token, gets the whole closing.
        """
        ids = self.encode(following)
        for count in range(min(len(self.closing_ids), len(turn_ids)), 0, -1):
            if list(turn_ids[-count:]) == ids[:count]:
                return ids[count:]
        return ids

    def _check_lossless(self) -> None:
        for text in (f"{self.closing}a b\n c", "\n\nd", " e", self.closing):
            if (found := self.decode(self.encode(text))) != text:
                raise ValueError(
                    f"the tokenizer turns {text!r} into {found!r}: pieces of a conversation would not join up. Use a "
                    "byte-level tokenizer, or one without a prefix space."
                )


def training_template(tokenizer: Tokenizer, *, template_arguments: Mapping[str, Any] | None = None) -> str:
    """The chat template to train ``tokenizer``'s model with.

    Its own, if that is append-only; otherwise the one of ``templates.STAND_INS`` that renders every single-turn probe
    as its own template does.

    Raises:
      ValueError: the tokenizer has no chat template.
      RewritingTemplateError: its template rewrites history and no stand-in renders a single turn alike.
    """
    if not tokenizer.chat_template:
        raise ValueError("the tokenizer has no chat template; choose one of rlagents.rollouts.templates, or write one.")

    def render(template: str) -> _Renderer:
        return _Renderer(tokenizer, template, PINNED_DATE, template_arguments)

    own = render(tokenizer.chat_template)
    try:
        closing_string(own)
    except RewritingTemplateError as error:
        differences = {name: differs(own, render(template)) for name, template in STAND_INS.items()}
        for name, difference in differences.items():
            if difference is None:
                return STAND_INS[name]
        tried = "; ".join(f"{name}: {difference}" for name, difference in differences.items())
        raise RewritingTemplateError(f"{error} Stand-ins differ from it on a single turn: {tried}.") from None
    return tokenizer.chat_template


class _Renderer:
    """A template bound to a tokenizer (for its special tokens), a date and further variables."""

    def __init__(self, tokenizer: Tokenizer, template: str, date: datetime.date, arguments: Mapping[str, Any] | None):
        self._tokenizer = tokenizer
        self._template, variables = pin_date(template, date)
        self._variables = variables | dict(arguments or {})

    def __call__(self, messages: Sequence[Message], tools: Tools, add_generation_prompt: bool) -> str:
        return self._tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=None if tools is None else [dict(tool) for tool in tools],
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            **self._variables,
        )
