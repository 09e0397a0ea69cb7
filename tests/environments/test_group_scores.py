"""Scores that need the whole group go from ``Environment.score`` to the learner's arrays, turn by turn."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlagents.environments.answers import f1
from rlagents.environments.silver_documents import SearchRecord, new_documents, silver_documents, turn_scores
from rlagents.facts import Observation, Opening, Outcome, Task, Transcript, TurnFacts
from rlagents.rollouts.collate import collate
from rlagents.rollouts.local_pool import LocalPool
from tests.rollouts.playing import LIMITS, run, tasks

LIBRARY = {
    "France": ["Paris", "Lyon", "Nice"],
    "Seine": ["Paris", "Rouen", "Troyes"],
    "Rhine": ["Bonn", "Basel", "Nice"],
}


class Searching:
    """``search <subject>`` shows three documents, ``answer <text>`` ends the episode."""

    def __init__(self):
        self.documents, self.answer = [], None

    def step(self, text: str) -> Observation:
        command, _, argument = text.partition(" ")
        found = LIBRARY.get(argument, []) if command == "search" else []
        self.documents.append(found)
        if command == "answer":
            self.answer = argument
            return Observation([], done=True)
        return Observation([{"role": "tool", "content": " ".join(found)}], done=False, turn=TurnFacts(0.5, 1, 1))

    def finish(self):
        return self.documents, self.answer


@dataclass(frozen=True)
class SearchEnvironment:
    stop_strings: Sequence[str] = ()
    max_turns: int = 4
    refinements: Sequence = ()

    def opening(self, task: Task) -> Opening:
        return Opening([{"role": "user", "content": "Which city?"}])

    def start(self, task: Task) -> Searching:
        return Searching()

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        members = []
        for transcript in transcripts:
            # A worker that died left no record: nothing retrieved, nothing answered.
            documents, answer = transcript.record or ([[]] * len(transcript.turns), None)
            value = 0.0 if answer is None else f1(answer, task.payload["golds"])
            members.append(SearchRecord(documents, value, answer is not None))
        scores = turn_scores(members, silver_documents(members), self.refinements)
        return [Outcome(member.f1, turn_scores=own) for member, own in zip(members, scores, strict=True)]


SAID = [
    ["search France", "answer Paris"],
    ["search Seine", "search Seine", "answer Bonn"],
    ["search Rhine", "search Seine", "search France", "search nothing"],
]


def batch_of(environment, golds):
    result = run(
        lambda stream, member, turn: SAID[member][turn],
        tasks({"golds": golds}),
        pool=LocalPool(environment),
        group_size=3,
        limits=replace(LIMITS, max_turns=environment.max_turns),
    )
    buckets = {"prefix_buckets": (256,), "member_buckets": (1024,), "turn_buckets": (5,)}
    return collate(result.groups, **buckets, pad_prompts_to=1)


def test_silver_documents_reach_the_turn_scores_of_the_batch():
    batch = batch_of(SearchEnvironment(), ["Paris"])
    assert batch.rewards.outcome.tolist() == [[1.0, 0.0, 0.0]]
    assert batch.masks.num_turns.tolist() == [[2, 3, 4]]
    assert batch.masks.truncated.tolist() == [[False, False, True]]
    third = 1 / 3
    expected = [[1, 0, 0, 0, 0], [third, third, 0, 0, 0], [third, third, 1, 0, 0]]
    np.testing.assert_allclose(batch.rewards.turn_scores[0], expected, rtol=1e-6)


def test_refinements_are_fields_of_an_environment():
    batch = batch_of(SearchEnvironment(refinements=(new_documents,)), ["Paris"])
    third = 1 / 3
    expected = [[1, 0, 0, 0, 0], [third, 0, 0, 0, 0], [third, third, third, 0, 0]]
    np.testing.assert_allclose(batch.rewards.turn_scores[0], expected, rtol=1e-6)


# The scores seen turn by turn (0.5 a search) are replaced, not added to, also where the group has no silver documents.
def test_a_group_without_an_eligible_member_scores_nothing():
    batch = batch_of(SearchEnvironment(), ["Berlin"])
    assert not batch.rewards.turn_scores.any()
