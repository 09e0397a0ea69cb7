"""Traps that users of such losses have met. Each test first shows that the naive version falls in."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlagents.methods import (
    MethodError,
    chain,
    clipped_surrogate,
    group_advantage,
    kl_penalty_k3,
    method,
    on_policy,
    recipes,
    sequence_mean,
    token_mean,
)
from rlagents.numerics import masked_std, safe_divide
from rlagents.types import Kind, LogProbs, Masks, Rewards
from tests.methods.batches import make_batch
from tests.methods.harness import assert_close

PLAIN = method(chain(group_advantage(ddof=0, epsilon=1e-6), clipped_surrogate(0.2, 0.2)), token_mean())
PROMPT, MODEL, TOOL, FORCED, PAD = Kind.PROMPT, Kind.MODEL, Kind.TOOL, Kind.FORCED, Kind.PAD


def one_group(kinds, outcome=(1.0, 0.0), valid=None, **logprobs):
    """One prompt whose members have these kinds of tokens, log-probs -1 where nothing else is given."""
    kind = np.array([kinds], np.int32)
    p, g, t = kind.shape
    turn = np.where((kind == MODEL) | (kind == FORCED), 0, -1)
    valid = np.ones((p, g), bool) if valid is None else np.array([valid])
    masks = Masks(kind, turn, np.ones((p, g), int), valid, np.zeros((p, g), bool), np.full((p, g), -1))
    zeros = np.zeros((p, g, 1), np.float32)
    rewards = Rewards(np.array([outcome], np.float32), zeros, zeros.astype(int), zeros.astype(int), zeros.astype(bool))
    filled = {"policy": np.full((p, g, t), -1.0, np.float32)} | logprobs
    return LogProbs(**filled), rewards, masks


def gradient(a_method, logprobs, rewards, masks):
    """Gradient of the loss by policy, ``old`` being the policy's own where it is not given."""

    def loss(logprobs):
        return a_method(on_policy(logprobs) if logprobs.old is None else logprobs, rewards, masks)[0]

    return np.asarray(jax.grad(loss)(jax.tree.map(jnp.asarray, logprobs)).policy)


def test_end_of_text_is_learned_although_it_is_also_the_padding():
    """Masks come from who wrote a token, not from its value."""
    eos = pad = 0
    tokens = np.array([[[5, 7, 8, eos, pad], [5, 7, eos, pad, pad]]])
    batch = one_group([[PROMPT, MODEL, MODEL, MODEL, PAD], [PROMPT, MODEL, MODEL, PAD, PAD]])
    naive_mask = tokens != pad
    assert not naive_mask[0, 0, 3]
    assert not naive_mask[0, 1, 2]
    ours = gradient(PLAIN, *batch)
    assert ours[0, 0, 3] != 0
    assert ours[0, 1, 2] != 0
    assert (ours[:, :, 4] == 0).all()


def test_what_tools_templates_and_prompts_wrote_is_never_trained():
    """A mask made of "after the prompt, before the end" trains on tool output."""
    kinds = [[PROMPT, FORCED, MODEL, TOOL, MODEL, PAD], [PROMPT, FORCED, MODEL, TOOL, TOOL, MODEL]]
    logprobs, rewards, masks = one_group(kinds)
    naive_mask = (masks.kind != PAD) & (np.cumsum(masks.kind != PROMPT, axis=-1) > 0)
    assert (naive_mask & np.isin(masks.kind, (TOOL, FORCED))).sum() == 5
    ours = gradient(PLAIN, logprobs, rewards, masks)
    np.testing.assert_array_equal(ours != 0, masks.kind == MODEL)


def test_length_is_what_the_model_wrote_not_the_span_from_first_to_last_token():
    _, _, masks = one_group([[PROMPT, MODEL, TOOL, TOOL, TOOL, MODEL], [PROMPT, MODEL, MODEL, PAD, PAD, PAD]])
    mask = masks.trainable
    places = np.arange(mask.shape[-1])
    last = np.where(mask, places, -1).max(axis=-1)
    first = np.where(mask, places, 99).min(axis=-1)
    np.testing.assert_array_equal(last - first + 1, [[5, 2]])
    weights = np.asarray(sequence_mean()(jnp.asarray(mask)))
    np.testing.assert_allclose(weights[mask], 1 / 2 / 2)


def test_nan_behind_the_mask_stays_there():
    """NaN times 0 is NaN, in the value and in the gradient."""
    logprobs, rewards, masks = make_batch(0)
    advantages, mask = np.ones_like(logprobs.policy), masks.trainable

    def naive(policy):
        return -jnp.sum(jnp.exp(policy - logprobs.old) * advantages * mask.astype(np.float32))

    def naive_masked_late(policy):
        return -jnp.sum(jnp.where(mask, jnp.exp(policy - logprobs.old) * advantages, 0))

    assert np.isnan(naive(logprobs.policy))
    assert np.isfinite(naive_masked_late(logprobs.policy))
    assert np.isnan(jax.grad(naive_masked_late)(logprobs.policy)).any()
    loss, metrics = recipes.grpo()(logprobs, rewards, masks)
    assert np.isfinite([loss, *metrics.values()]).all()
    assert np.isfinite(gradient(recipes.grpo(), logprobs, rewards, masks)).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_far_from_the_reference_value_and_gradient_of_k3_stay_finite(sign):
    """Clipping after ``exp`` repairs the value and leaves ``inf * 0`` in the gradient."""
    far = np.full((1, 2, 3), -1.0 + sign * 200.0, np.float32)

    def naive(policy):
        d = far - policy
        return jnp.minimum(jnp.exp(d) - d - 1, 1e4).sum()

    near = np.full((1, 2, 3), -1.0, np.float32)
    if sign > 0:
        assert np.isnan(jax.grad(naive)(near)).all()
    batch = one_group([[PROMPT, MODEL, MODEL]] * 2, reference=far)
    stay = method(chain(*PLAIN.transform.stages, kl_penalty_k3(0.1)), token_mean())
    loss, metrics = stay(on_policy(batch[0]), *batch[1:])
    assert np.isfinite([loss, metrics["kl"]]).all()
    assert np.isfinite(gradient(stay, *batch)).all()


def split_gradient(a_method, batch, pieces, *, measured_apart):
    """Gradients of slices along p, measures taken whole, or (naively) on each slice for itself."""
    logprobs, rewards, masks = jax.tree.map(jnp.asarray, batch)
    credit, state, _ = a_method.credit(a_method.init(), logprobs, rewards, masks)
    measures = a_method.measures(credit, masks)
    out = []
    for piece in pieces:
        cut = jax.tree.map(lambda x, piece=piece: x[piece], (logprobs, credit, masks, measures))
        weights = a_method.measures(cut[1], cut[2]) if measured_apart else cut[3]

        def loss(policy, cut=cut, weights=weights):
            return a_method.loss(state, replace(cut[0], policy=policy), cut[1], cut[2], weights)[0]

        out.append(jax.grad(loss)(cut[0].policy))
    return np.concatenate(out)


@pytest.mark.parametrize("reduction", [token_mean(), sequence_mean()], ids=["token_mean", "sequence_mean"])
def test_how_micro_batches_are_cut_changes_nothing_and_nobody_divides_again(reduction):
    """Means per micro-batch weigh tokens by the company they are in; dividing the sum once more shrinks the step."""
    a_method = method(chain(*PLAIN.transform.stages, kl_penalty_k3(0.1)), reduction)
    logprobs, rewards, masks = make_batch(3, rewards="continuous", invalid=0.0)
    ragged = np.array([[True, True, True], [True, True, False], [True, False, False], [True, True, False]])
    batch = logprobs, rewards, replace(masks, valid=ragged)
    whole = gradient(a_method, *batch)
    halves, uneven = [slice(0, 2), slice(2, 4)], [slice(0, 1), slice(1, 4)]
    for pieces in (halves, uneven):
        naive = split_gradient(a_method, batch, pieces, measured_apart=True) / len(pieces)
        assert np.abs(naive - whole).max() > 0.05 * np.abs(whole).max()
        ours = split_gradient(a_method, batch, pieces, measured_apart=False)
        assert_close(ours, whole, relative=1e-6)
        divided_again = ours / len(pieces)
        assert np.abs(divided_again - whole).max() > 0.4 * np.abs(whole).max()


def test_a_group_of_equal_rewards_is_no_group_of_huge_advantages():
    """``sqrt(E[x^2] - E[x]^2)`` of equal floats is rounding residue, and passes for a standard deviation."""
    rewards = np.array([0.7] * 7 + [0.0], np.float32)
    seven = jnp.array(rewards[:7])
    one_pass = jnp.sqrt(jnp.maximum(jnp.mean(seven**2) - jnp.mean(seven) ** 2, 0))
    naive = (1.0 - 0.7) / (one_pass + 1e-12)
    assert one_pass > 0
    assert naive > 500
    everywhere = jnp.ones(7, bool)
    assert masked_std(seven, everywhere, axis=-1, ddof=1) == 0
    assert safe_divide(0.3, masked_std(seven, everywhere, axis=-1, ddof=1)) == 0
    kinds = [[PROMPT, MODEL]] * 8
    lost = gradient(PLAIN, *one_group(kinds, outcome=rewards, valid=[True] * 7 + [False]))
    assert (lost == 0).all()
    kept = gradient(PLAIN, *one_group(kinds, outcome=rewards))
    np.testing.assert_allclose(-kept[0, :, 1] * 8, [1 / np.sqrt(7)] * 7 + [-np.sqrt(7)], rtol=1e-4)


def test_the_penalty_pulls_towards_the_reference_it_is_given():
    """k1 = policy - reference used as a loss has gradient 1 whatever the reference is."""
    kinds = [[PROMPT, MODEL, MODEL]] * 2
    references = [np.full((1, 2, 3), value, np.float32) for value in (-0.5, -1.0, -2.5)]
    k1 = [jax.grad(lambda policy, r=r: (policy - r).sum())(jnp.full((1, 2, 3), -1.0)) for r in references]
    assert all((slope == 1).all() for slope in k1)
    pull = method(chain(*PLAIN.transform.stages, kl_penalty_k3(1.0)), token_mean())
    same = (0.0, 0.0)
    for reference in references:
        ours = gradient(pull, *one_group(kinds, outcome=same, reference=reference))
        expected = (1 - np.exp(reference - -1.0)) / 4
        np.testing.assert_allclose(ours[0, :, 1:], expected[0, :, 1:], rtol=1e-5, atol=1e-9)
    stronger, agreeing, weaker = (1 - np.exp(r[0, 0, 0] + 1) for r in references)
    assert stronger < agreeing == 0 < weaker


def test_under_the_policy_the_gradient_of_k3_is_that_of_the_other_direction():
    """What the docstring of kl_penalty_k3 says, summed exactly over a vocabulary of five."""
    logits = jax.random.normal(jax.random.key(0), (5,))
    reference = jax.nn.log_softmax(jax.random.normal(jax.random.key(1), (5,)))
    policy = jax.nn.log_softmax(logits)

    def expected_gradient(estimate):
        def loss(logits):
            return jnp.sum(jax.lax.stop_gradient(jnp.exp(policy)) * estimate(jax.nn.log_softmax(logits)))

        return jax.grad(loss)(logits)

    def towards(weights):
        """Gradient of KL(reference || policy)."""
        return jax.grad(lambda logits: -jnp.sum(weights * jax.nn.log_softmax(logits)))(logits)

    ours = expected_gradient(lambda now: jnp.expm1(reference - now) - (reference - now))
    np.testing.assert_allclose(ours, towards(jnp.exp(reference)), atol=1e-6)
    np.testing.assert_allclose(expected_gradient(lambda now: now - reference), np.zeros(5), atol=1e-6)
    assert np.abs(ours).max() > 0.1


def test_log_probs_that_nobody_recorded_make_the_ratio_one_and_count_nowhere():
    """Filled with 1, as if they were probabilities, they make a ratio of exp(-2) and bend every mean."""
    logprobs, rewards, masks = one_group([[PROMPT, MODEL, TOOL, MODEL], [PROMPT, MODEL, TOOL, TOOL]])
    there = masks.kind == MODEL
    recorded = np.where(there, logprobs.policy, np.nan)
    naive = jnp.exp(jnp.where(there, logprobs.policy, -1.0) - jnp.where(there, recorded, 1.0))
    assert naive[~there].max() < 0.2
    assert naive.mean() < 0.6
    _, metrics = PLAIN(replace(logprobs, old=recorded), rewards, masks)
    assert metrics["ratio"] == 1
    _, metrics = PLAIN(on_policy(replace(logprobs, policy=recorded)), rewards, masks)
    assert metrics["ratio"] == 1
    moved = replace(logprobs, old=recorded - np.float32(np.log(1.1)))
    assert PLAIN(moved, rewards, masks)[1]["ratio"] == pytest.approx(1.1, rel=1e-5)


def test_groups_are_an_axis_and_no_reshape_puts_a_member_into_another_group():
    """Rewards folded by position into groups of the wrong size give other groups, or all zeros, silently."""
    flat = np.array([1, 0, 0, 0, 1, 1, 1, 1, 0], np.float32)
    right, wrong = flat.reshape(3, 3), flat[:8].reshape(4, 2)
    assert not np.array_equal(right.std(axis=1) == 0, wrong.std(axis=1)[:3] == 0)
    assert (flat.reshape(9, 1).std(axis=1) == 0).all()
    kinds = np.full((3, 3, 2), MODEL)
    logprobs, rewards, masks = one_group(kinds[0])
    batch = jax.tree.map(lambda x: np.repeat(x[:, :1], 3, axis=1).repeat(3, axis=0), (logprobs, rewards, masks))
    batch = (batch[0], replace(batch[1], outcome=right), batch[2])
    credit, _, _ = PLAIN.credit(PLAIN.init(), *batch)
    expected = [[np.sqrt(2), -np.sqrt(0.5), -np.sqrt(0.5)], [-np.sqrt(2), np.sqrt(0.5), np.sqrt(0.5)]]
    expected.append(expected[1][1:] + expected[1][:1])
    np.testing.assert_allclose(credit.advantages[..., 0], expected, rtol=1e-4)
    for outcome in (flat, flat.reshape(9, 1), right[:, :2]):
        with pytest.raises(MethodError, match=r"Rewards.outcome has shape .*keep every group whole on axis g"):
            PLAIN.credit(PLAIN.init(), batch[0], replace(batch[1], outcome=outcome), batch[2])
