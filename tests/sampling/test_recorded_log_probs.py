"""What the sampler records is what the trainer computes: the most valuable test of all."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlagents.models import token_log_probs
from rlagents.sampling import SamplingRule
from rlagents.types import Sequences
from tests.sampling.support import CONFIG, KEYS, Member, Script, check_member, make_params, make_sampler, play

PROMPTS = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 9, 6, 7], [1, 2, 3, 4, 5, 8]]
REPLIES = [[20, 21, 22, 23, 24, 25], [11]]


def learner_log_probs(members: list[Member], prefix_length: int, temperature: float) -> np.ndarray:
    """``[g, t]`` of member tokens, by the training path."""
    longest = max(len(member.conversation) for member in members) - prefix_length
    tokens = np.zeros((1, len(members), longest), np.int32)
    length = np.zeros((1, len(members)), np.int32)
    for g, member in enumerate(members):
        own = member.conversation[prefix_length:]
        tokens[0, g, : len(own)], length[0, g] = own, len(own)
    sequences = Sequences(
        jnp.array([members[0].conversation[:prefix_length]]),
        jnp.array([prefix_length]),
        jnp.asarray(tokens),
        jnp.asarray(length),
    )
    return np.asarray(token_log_probs(CONFIG, make_params(), sequences, temperature)[0][0])


def assert_same_as_learner(members: list[Member], prefix_length: int, temperature: float) -> None:
    expected = learner_log_probs(members, prefix_length, temperature)
    for g, member in enumerate(members):
        assert len(member.turns) == 3
        for start, turn in member.turns:
            assert turn.token_ids
            span = slice(start - prefix_length, start - prefix_length + len(turn.token_ids))
            np.testing.assert_allclose(turn.log_probs, expected[g, span], atol=1e-4)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_recorded_log_probs_equal_the_learners(temperature):
    sampler = make_sampler(rule=SamplingRule(temperature), stop_token_ids=(5, 17))
    (members,) = play(sampler, [Script(PROMPTS, KEYS, REPLIES)])
    assert_same_as_learner(members, 3, temperature)
    assert sum(check_member(member, temperature) for member in members) > 20


@pytest.mark.parametrize("rule", [SamplingRule(0.7, top_p=0.6), SamplingRule(0.7, top_k=3), SamplingRule(0.7, 5, 0.5)])
def test_truncated_sampling_still_records_the_full_distribution(rule):
    (members,) = play(make_sampler(rule=rule), [Script(PROMPTS, KEYS, REPLIES)])
    assert_same_as_learner(members, 3, rule.temperature)


def test_greedy_records_at_temperature_1():
    (members,) = play(make_sampler(rule=SamplingRule(0.0)), [Script(PROMPTS, KEYS, REPLIES)])
    assert_same_as_learner(members, 3, 1.0)
