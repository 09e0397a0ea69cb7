"""Micro-batches packed by length: the plain learner's numbers, whatever the lengths, from fewer positions."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlagents.learner import (
    create_state,
    from_optax,
    make_learner,
    make_packed_learner,
    member_slices,
    own_copy,
    state_shardings,
    whole_groups,
)
from rlagents.learner.packed import PackedBatch
from rlagents.learner.rows import put_tokens, take_sequences, take_tokens
from rlagents.methods.recipes import aepo, grpo, gspo, lld
from rlagents.sharding import make_mesh, prompt_sharding, shard_batch, single_device_mesh
from tests import toy_policy
from tests.effort import draws
from tests.methods.laws import collectives

SGD = from_optax(optax.sgd(1.0), optax.constant_schedule(1.0))
WHOLE = whole_groups(toy_policy.apply)
SLICED = member_slices(toy_policy.prefix_kv, toy_policy.member_scores, members=1)
MESH = single_device_mesh()
BUCKETS = {"prefix_buckets": (3,), "member_buckets": (5,)}
GRPO = grpo()
P, G, L, T = 8, 2, 5, 12


def ragged(seed, lengths, invalid=(), p=P):
    """Prompt ``i`` holds members of at most ``lengths[i]`` tokens; no member of a prompt in ``invalid`` counts."""
    batch = toy_policy.random_batch(seed, p=p, g=G, l=L, t=T)
    length = np.minimum(batch.sequences.length, np.asarray(lengths)[:, None])
    beyond = np.arange(T) >= length[..., None]
    valid = batch.masks.valid & ~np.isin(np.arange(p), list(invalid))[:, None]
    return dataclasses.replace(
        batch,
        sequences=dataclasses.replace(batch.sequences, length=length),
        masks=dataclasses.replace(
            batch.masks,
            kind=np.where(beyond, 0, batch.masks.kind),
            turn=np.where(beyond, -1, batch.masks.turn),
            valid=valid,
        ),
        rollout=np.where(beyond, 0, batch.rollout).astype(np.float32),
    )


@functools.cache
def learners(method, updates=1, epochs=1, passes=WHOLE, packed_passes=None, mesh=MESH, prompts=2):
    """The plain learner on one device, the packed one on ``mesh``, and how their states are sharded."""
    places = [
        state_shardings(toy_policy.init_params(), SGD, method.init(), toy_policy.AXES, where) for where in (MESH, mesh)
    ]
    schedule = {"updates_per_batch": updates, "epochs": epochs}
    plain = make_learner(method, passes, SGD, places[0], prompts_per_micro_batch=prompts, **schedule)
    packed = make_packed_learner(
        method, packed_passes or passes, SGD, places[1], prompts_per_micro_batch=prompts, **schedule, **BUCKETS
    )
    return (plain, places[0]), (packed, places[1])


def learn(bound, method, batch):
    """Parameters before and after all updates, reports, facts and metrics of one rollout batch."""
    learner, shardings = bound
    state = create_state(toy_policy.init_params(), SGD, method.init(), jax.random.key(0), shardings)
    reference = jax.device_put(toy_policy.init_params(1), shardings.params)
    placed, _ = learner.place(batch)
    facts = learner.prepare(state.params, reference, placed)
    state, credit, credited = learner.credit(state, placed, facts)
    reports = []
    for update in learner.schedule:
        state, report = learner.step(state, placed, facts, credit, update)
        reports.append(report)
    return state, reports, facts, credited


def close(a, b):
    """Equal to 1e-5 of the largest entry, leaf by leaf."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert np.max(np.abs(x - y)) <= 1e-5 * max(np.max(np.abs(y)), 1e-30)


def assert_same_learning(method, batch, **options):
    plain, packed = learners(method, **options)
    (state, reports, facts, credited), ours = (learn(bound, method, batch) for bound in (plain, packed))
    before = toy_policy.init_params()
    # What an update moved is compared at the size of the parameters' own rounding: they are of size 1.
    close(ours[0].params, state.params)
    moved, expected = (
        jax.tree.map(lambda x, start: np.asarray(x) - np.asarray(start), after, before)
        for after in (ours[0].params, state.params)
    )
    for x, y in zip(jax.tree.leaves(moved), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=max(1e-5 * np.max(np.abs(y)), 5e-7))
    assert (int(ours[0].step), int(ours[0].skipped)) == (int(state.step), int(state.skipped))
    for name in ("old", "old_entropy", "reference", "rollout"):
        fact, own = getattr(facts, name), getattr(ours[2], name)
        assert (fact is None) == (own is None)
        if fact is not None:
            shown = batch.masks.trainable
            np.testing.assert_allclose(np.asarray(own)[shown], np.asarray(fact)[shown], rtol=1e-5, atol=1e-6)
    for report, own in zip(reports, ours[1], strict=True):
        np.testing.assert_allclose(own.loss, report.loss, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(own.gradient_norm, report.gradient_norm, rtol=1e-4, atol=1e-6)
        assert jax.tree.map(int, own.counts) == jax.tree.map(int, report.counts)
        assert (bool(own.empty), bool(own.applied)) == (bool(report.empty), bool(report.applied))
        assert own.metrics.keys() == report.metrics.keys()
        for name, mean in report.metrics.items():
            np.testing.assert_allclose(own.metrics[name].value, mean.value, rtol=1e-5, atol=1e-6, err_msg=name)
            np.testing.assert_allclose(own.metrics[name].count, mean.count, rtol=1e-6, err_msg=name)
    for name, mean in credited.items():
        np.testing.assert_allclose(ours[3][name].value, mean.value, rtol=1e-5, atol=1e-6, err_msg=name)


LENGTHS = st.lists(st.integers(2, T), min_size=P, max_size=P)
INVALID = st.sets(st.integers(0, P - 1))


@given(st.integers(0, 2**16), LENGTHS, INVALID)
@settings(max_examples=draws(10), deadline=None)
@example(0, [T, 2, 2, 2, 2, 2, 2, 2], set())
@example(1, [3] * P, set(range(P)))
def test_packed_learns_as_plain(seed, lengths, invalid):
    assert_same_learning(GRPO, ragged(seed, lengths, invalid))


@given(st.integers(0, 2**16), LENGTHS, INVALID)
@settings(max_examples=draws(5), deadline=None)
@example(0, [T, T, 2, 2, 2, 2, 2, 2], {1, 3, 5, 7})
def test_packed_learns_as_plain_in_several_updates_and_member_slices(seed, lengths, invalid):
    """The second of the slices is empty in the example: it moves nothing."""
    batch = ragged(seed, lengths, invalid)
    assert_same_learning(GRPO, batch, updates=2, epochs=2, packed_passes=SLICED)


@pytest.mark.parametrize("method", [gspo(), lld(), aepo()], ids=["sequences", "own-measure", "old-entropy"])
def test_packed_learns_as_plain_whatever_the_method_reads(method):
    assert_same_learning(method, ragged(2, [12, 3, 4, 9, 2, 7, 12, 5], {4}), updates=2)
