"""A rollout as a JSON document, and the rollout of such a document: what a checkpoint keeps of one sampled ahead."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rlagents.facts import Outcome, TurnFacts
from rlagents.rollouts.driver import Rollout, Skipped
from rlagents.rollouts.trajectory import Trajectory
from rlagents.sampling.turns import StopReason
from rlagents.types import Kind


def to_document(sampled: Rollout) -> dict[str, Any]:
    """All of ``sampled`` in plain JSON types. Numbers come back exactly; messages have to be JSON already."""
    return {
        "groups": [[_trajectory_document(member) for member in group] for group in sampled.groups],
        "skipped": [dataclasses.asdict(skipped) for skipped in sampled.skipped],
        "counts": {name: int(count) for name, count in sampled.counts.items()},
    }


def from_document(document: Mapping[str, Any]) -> Rollout:
    """The rollout that ``to_document`` was given.

    Raises ValueError for a document that it did not make.
    """
    try:
        return Rollout(
            groups=[[_trajectory(member) for member in group] for group in document["groups"]],
            skipped=[Skipped(**skipped) for skipped in document["skipped"]],
            counts=Counter(document["counts"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"the rollout that was sampled ahead is damaged ({type(error).__name__}: {error}); go back to an earlier "
            "checkpoint."
        ) from error


def _trajectory_document(member: Trajectory) -> dict[str, Any]:
    outcome = member.outcome
    return {
        "task_id": member.task_id,
        "stream": int(member.stream),
        "member": int(member.member),
        "condition": int(member.condition),
        "prompt_ids": [int(token) for token in member.prompt_ids],
        "token_ids": [int(token) for token in member.token_ids],
        "kinds": [int(kind) for kind in member.kinds],
        "turns": [int(turn) for turn in member.turns],
        "log_probs": [float(log_prob) for log_prob in member.log_probs],
        "messages": [dict(message) for message in member.messages],
        "turn_facts": [
            [float(turn.score), int(turn.tool_calls), int(turn.tool_successes), bool(turn.void)]
            for turn in member.turn_facts
        ],
        "stop_reasons": [reason.value for reason in member.stop_reasons],
        "outcome": None if outcome is None else _outcome_document(outcome),
        "truncated": bool(member.truncated),
        "weight_versions": [int(version) for version in member.weight_versions],
        "lost": member.lost,
    }


def _outcome_document(outcome: Outcome) -> dict[str, Any]:
    scores = outcome.turn_scores
    return {
        "reward": float(outcome.reward),
        "turn_scores": None if scores is None else [float(score) for score in scores],
        "named": {name: float(value) for name, value in outcome.named.items()},
    }


def _trajectory(document: Mapping[str, Any]) -> Trajectory:
    outcome = document["outcome"]
    return Trajectory(
        **{
            **document,
            "kinds": [Kind(kind) for kind in document["kinds"]],
            "turn_facts": [TurnFacts(*facts) for facts in document["turn_facts"]],
            "stop_reasons": [StopReason(reason) for reason in document["stop_reasons"]],
            "outcome": None if outcome is None else Outcome(**outcome),
        }
    )
