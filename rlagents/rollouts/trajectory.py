"""What a rollout yields: one trajectory, ragged, on the host."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlagents.facts import Message, Outcome, TurnFacts
from rlagents.rollouts.conversation import Conversation
from rlagents.sampling.turns import StopReason
from rlagents.types import Kind


@dataclass(frozen=True)
class Trajectory:
    """One member's conversation with its masks and facts.

    Attributes:
      task_id: of the task; with ``stream`` it names the group.
      stream: index of the task in the prompt stream.
      member: index within the group.
      condition: which reward token was injected; -1 for none.
      prompt_ids: tokens of the opening messages.
      token_ids: all tokens after it; ``kinds``, ``turns`` and ``log_probs`` go with them one to one.
      kinds: who wrote each token.
      turns: index of the model turn of MODEL and FORCED tokens; -1 elsewhere.
      log_probs: nats, as the sampler recorded them; 0.0 where a token was not sampled.
      messages: the conversation as the policy saw it; the environment saw its own opening.
      turn_facts: one a model turn.
      stop_reasons: why each model turn ended; one a model turn.
      outcome: the environment's score; None if the trajectory is lost.
      truncated: whether a token budget or the turn limit ended it.
      weight_versions: which weights sampled each model turn, as the number of rollout batches that they have learned
        from; one a model turn, or none at all where no weights did (demonstrations).
      lost: what the infrastructure could not do; None if nothing went wrong. A lost trajectory is never trained on.

    Raises:
      ValueError: at construction, if the lists of tokens, or those of turns, differ in length.
    """

    task_id: str
    stream: int
    member: int
    condition: int
    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    kinds: Sequence[Kind]
    turns: Sequence[int]
    log_probs: Sequence[float]
    messages: Sequence[Message]
    turn_facts: Sequence[TurnFacts]
    stop_reasons: Sequence[StopReason]
    outcome: Outcome | None
    truncated: bool
    weight_versions: Sequence[int] = ()
    lost: str | None = None

    def __post_init__(self):
        lengths = {len(self.token_ids), len(self.kinds), len(self.turns), len(self.log_probs)}
        if len(lengths) != 1:
            raise ValueError(f"token_ids, kinds, turns and log_probs must have one length, got {sorted(lengths)}.")
        num_turns = max(self.turns, default=-1) + 1
        if not num_turns == len(self.turn_facts) == len(self.stop_reasons):
            raise ValueError(
                f"{num_turns} model turns came with {len(self.turn_facts)} turn facts and {len(self.stop_reasons)} "
                "stop reasons; there is one of each a turn."
            )
        if len(self.weight_versions) not in (0, num_turns):
            raise ValueError(
                f"{num_turns} model turns came with {len(self.weight_versions)} weight versions; there is one a turn, "
                "or none where no weights sampled."
            )
        if self.outcome is None and self.lost is None:
            raise ValueError("a trajectory that is not lost needs an outcome.")

    @property
    def valid(self) -> bool:
        """False if it was lost to an infrastructure fault."""
        return self.lost is None

    @property
    def num_turns(self) -> int:
        """Model turns."""
        return len(self.turn_facts)

    @property
    def turn_scores(self) -> list[float]:
        """One a model turn: the outcome's where it has any, else those seen when the turns were executed."""
        scored = None if self.outcome is None else self.outcome.turn_scores
        return [turn.score for turn in self.turn_facts] if scored is None else list(scored)

    def token_versions(self) -> np.ndarray:
        """Version of the weights that sampled each MODEL token, in order; empty where no weights did."""
        versions, turns = np.asarray(self.weight_versions, np.int64), np.asarray(self.turns, np.int64)
        return versions[turns[np.asarray(self.kinds) == Kind.MODEL]] if versions.size else versions

    def summary(self) -> dict[str, Any]:
        """For logs: all but the tokens, in plain JSON types; ``tokens`` counts them by kind."""
        counts = Counter(kind.name.lower() for kind in self.kinds)
        return {
            "task": self.task_id,
            "stream": self.stream,
            "member": self.member,
            "condition": self.condition,
            "reward": None if self.outcome is None else float(self.outcome.reward),
            "named": {} if self.outcome is None else {name: float(x) for name, x in self.outcome.named.items()},
            "turn_scores": [float(score) for score in self.turn_scores],
            "tool_calls": [int(turn.tool_calls) for turn in self.turn_facts],
            "tool_successes": [int(turn.tool_successes) for turn in self.turn_facts],
            "void": [bool(turn.void) for turn in self.turn_facts],
            "stop_reasons": [reason.value for reason in self.stop_reasons],
            "weight_versions": [int(version) for version in self.weight_versions],
            "truncated": self.truncated,
            "lost": self.lost,
            "tokens": {"prompt": len(self.prompt_ids)} | {name: counts[name] for name in ("model", "tool", "forced")},
            "messages": [{"role": message["role"], "content": message["content"]} for message in self.messages],
        }


def token_fields(conversation: Conversation) -> dict[str, Any]:
    """The fields of a trajectory that its conversation holds."""
    buffer, start = conversation.buffer, conversation.prompt_length
    return {
        "prompt_ids": buffer.ids[:start],
        "token_ids": buffer.ids[start:],
        "kinds": buffer.kinds[start:],
        "turns": buffer.turns[start:],
        "log_probs": buffer.log_probs[start:],
        "messages": conversation.messages,
    }
