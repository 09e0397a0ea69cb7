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
    state_shardings,
    whole_groups,
)
from rlagents.learner.plan import plan_micro_batches
from rlagents.learner.rows import put_tokens, take_sequences, take_tokens
from rlagents.methods import (
    adaptive_kl_penalty,
    chain,
    clipped_surrogate,
    entropy_bonus,
    group_advantage,
    likelihood_drop_penalty,
    method,
    sequence_mean,
    truncated_token_weights,
)
from rlagents.methods.exploration import everywhere, over_batch
from rlagents.methods.recipes import grpo
from rlagents.rollouts.collate import padding_fraction
from rlagents.sharding import make_mesh, prompt_sharding, shard_batch, single_device_mesh
from rlagents.types import Mean
from tests import toy_policy
from tests.effort import draws
from tests.methods.laws import collectives

SGD = from_optax(optax.sgd(1.0), optax.constant_schedule(1.0))
# Several updates at rate 1 leave every trust region, and rounding grows with them.
SLOW = from_optax(optax.sgd(0.05), optax.constant_schedule(0.05))
WHOLE = whole_groups(toy_policy.apply)
SLICED = member_slices(toy_policy.prefix_kv, toy_policy.member_scores, members=1)
MESH = single_device_mesh()
BUCKETS = {"prefix_buckets": (3,), "member_buckets": (5,)}
LONG_PREFIXES = {"prefix_buckets": (), "member_buckets": (5,)}
GRPO = grpo()
NO_KL = grpo(kl_coefficient=0.0)
# All facts, live entropy, two measures.
READS_ALL = method(
    chain(
        group_advantage(ddof=1, epsilon=1e-6),
        truncated_token_weights(2.0),
        entropy_bonus(0.01, which=everywhere, against=over_batch),
        clipped_surrogate(0.2, 0.2),
        adaptive_kl_penalty(initial=0.04, target=0.1, horizon=8),
        likelihood_drop_penalty(0.1),
    ),
    sequence_mean(),
)
P, G, L, T = 8, 2, 5, 12


def ragged(seed, lengths, invalid=(), p=P, t=T):
    """Prompt ``i`` holds members of at most ``lengths[i]`` tokens; no member of a prompt in ``invalid`` counts."""
    batch = toy_policy.random_batch(seed, p=p, g=G, l=L, t=t)
    length = np.minimum(batch.sequences.length, np.asarray(lengths)[:, None])
    beyond = np.arange(t) >= length[..., None]
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


def all_valid(batch):
    return dataclasses.replace(batch, masks=dataclasses.replace(batch.masks, valid=np.ones((P, G), bool)))


def learners(
    method, *, optimizer=SGD, updates=1, epochs=1, packed_passes=WHOLE, mesh=MESH, prompts=2, long_prefixes=False
):
    """The plain learner on one device, the packed one on ``mesh``, and how their states are sharded."""
    plain_places, places = (
        state_shardings(toy_policy.init_params(), optimizer, method.init(), toy_policy.AXES, where)
        for where in (MESH, mesh)
    )
    options = {"prompts_per_micro_batch": prompts, "updates_per_batch": updates, "epochs": epochs}
    plain = make_learner(method, WHOLE, optimizer, plain_places, **options)
    buckets = LONG_PREFIXES if long_prefixes else BUCKETS
    packed = make_packed_learner(method, packed_passes, optimizer, places, **options, **buckets)
    return (plain, optimizer, plain_places), (packed, optimizer, places)


cached_learners = functools.cache(learners)


def learn(bound, method, batch):
    """Parameters before and after all updates, reports, facts and metrics of one rollout batch."""
    learner, optimizer, shardings = bound
    state = create_state(toy_policy.init_params(), optimizer, method.init(), jax.random.key(0), shardings)
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
    plain, packed = cached_learners(method, **options)
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
            if isinstance(mean, Mean):
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
    assert_same_learning(NO_KL, ragged(seed, lengths, invalid))


@given(st.integers(0, 2**16), LENGTHS, INVALID)
@settings(max_examples=draws(5), deadline=None)
@example(0, [T, T, 2, 2, 2, 2, 2, 2], {1, 3, 5, 7})
def test_packed_learns_as_plain_in_several_updates_and_member_slices(seed, lengths, invalid):
    """The second update of each epoch is empty in the example: it moves nothing."""
    batch = ragged(seed, lengths, invalid)
    options = {"updates": 2, "epochs": 2, "packed_passes": SLICED, "long_prefixes": True}
    assert_same_learning(READS_ALL, batch, optimizer=SLOW, **options)


def test_packed_learns_as_plain_over_eight_devices():
    """Each gives its longest prompt to the first micro-batch, the next one to the second."""
    batch = ragged(3, np.random.default_rng(0).integers(2, T + 1, 16), {5}, p=16)
    assert_same_learning(GRPO, batch, mesh=make_mesh(data=2, fsdp=4), prompts=8, long_prefixes=True)


def test_no_token_moves_between_devices():
    """A device takes from its own prompts and puts back among them; a plain gather by rows of the batch does not."""
    mesh = make_mesh(data=2, fsdp=2, tensor=2)
    batch = shard_batch(ragged(3, [T] * P), mesh)
    rows = np.array([[1], [0], [0], [1]], np.int32)
    split = prompt_sharding(mesh)

    def there_and_back(batch, rows):
        taken = take_tokens(batch.rollout, rows, 4, mesh)
        return take_sequences(batch.sequences, rows, 3, 4, mesh), put_tokens(batch.rollout, rows, taken, mesh)

    def program(function, rows):
        return jax.jit(function, out_shardings=split).lower(batch, rows).compile()

    assert not collectives(program(there_and_back, rows))
    assert collectives(program(lambda batch, rows: batch.rollout[rows], np.array([1, 2, 4, 7], np.int32)))
    sequences, back = jax.jit(there_and_back)(batch, rows)
    np.testing.assert_array_equal(back, batch.rollout)
    np.testing.assert_array_equal(sequences.tokens, np.asarray(batch.sequences.tokens)[[1, 2, 4, 7], :, :4])
    np.testing.assert_array_equal(sequences.prefix, np.asarray(batch.sequences.prefix)[[1, 2, 4, 7], :3])
    for own, cut, most in (("prefix_length", sequences.prefix_length, 3), ("length", sequences.length, 4)):
        np.testing.assert_array_equal(cut, np.minimum(np.asarray(getattr(batch.sequences, own))[[1, 2, 4, 7]], most))


def test_an_emptied_batch_runs_no_micro_batch_and_moves_nothing():
    _, packed = cached_learners(NO_KL)
    batch = ragged(1, [3] * P, range(P))
    placed, _ = packed[0].place(batch)
    assert placed.plan.updates == ((),)
    state, (report,), *_ = learn(packed, NO_KL, batch)
    assert bool(report.empty)
    assert (float(report.loss), float(report.gradient_norm), int(state.skipped)) == (0, 0, 1)
    for after, before in zip(jax.tree.leaves(state.params), jax.tree.leaves(toy_policy.init_params()), strict=True):
        np.testing.assert_array_equal(after, before)


def test_what_is_not_finite_moves_nothing():
    """In one of four micro-batches, the last: neither the others before it nor it itself."""

    def poisoned(params, sequences):
        log_prob, entropy = toy_policy.apply(params, sequences)
        # sqrt at 0: the value is fine, the gradient inf * 0.
        zero = params["mix"][0, 0] - jax.lax.stop_gradient(params["mix"][0, 0])
        poison = sequences.prefix[:, :1, None] == 0
        return log_prob + jnp.sqrt(jnp.where(poison, jnp.square(zero), 1)) - ~poison, entropy

    _, packed = learners(NO_KL, packed_passes=whole_groups(poisoned), long_prefixes=True)
    batch = all_valid(ragged(1, [12, 5, 5, 5, 5, 5, 5, 4]))
    prefix = batch.sequences.prefix.copy()
    prefix[:, 0] = np.where(np.arange(P) == P - 1, 0, 5)
    batch = dataclasses.replace(batch, sequences=dataclasses.replace(batch.sequences, prefix=prefix))
    state, (report,), *_ = learn(packed, NO_KL, batch)
    assert jax.tree.map(bool, report.gradient_finite) == {"embedding": True, "head": True, "mix": False}
    assert not bool(report.applied)
    assert (int(state.nonfinite_in_a_row), int(state.skipped), int(state.step)) == (1, 1, 1)
    for after, before in zip(jax.tree.leaves(state.params), jax.tree.leaves(toy_policy.init_params()), strict=True):
        np.testing.assert_array_equal(after, before)


def test_passes_compile_once_a_pair_of_buckets(caplog):
    """Not per batch, nor per shape of batches: these are padded to lengths that the model never sees."""
    _, packed = learners(GRPO)
    pairs, batches = set(), [ragged(seed, [5, 2, 4, 3, 5, 5, 2, 3], t=t) for seed, t in enumerate((12, 12, 13))]
    with jax.log_compiles():
        for batch in batches:
            placed, _ = packed[0].place(batch)
            pairs |= {micro_batch[1:] for update in placed.plan.updates for micro_batch in update}
            learn(packed, GRPO, batch)
    messages = [record.message for record in caplog.records]
    assert sum("Compiling jit(accumulate)" in message for message in messages) == len(pairs) <= 2
    assert sum("Compiling jit(scores)" in message for message in messages) == len(pairs)


@given(
    st.integers(0, 2**16), LENGTHS, INVALID, st.sampled_from([(1, 1, 1), (2, 1, 2), (2, 2, 1), (4, 2, 4), (2, 4, 2)])
)
@settings(max_examples=draws(60), deadline=None)
@example(0, [T, 2, 2, 2, 2, 2, 2, 2], set(), (2, 1, 2))
def test_a_plan_computes_what_can_be_trained_and_little_else(seed, lengths, invalid, sizes):
    """Every prompt that can be trained, once, in its update, whole; of each part of the mesh as many."""
    prompts, updates, shards = sizes
    batch = ragged(seed, lengths, invalid)
    plan = plan_micro_batches(
        batch, prompts_per_micro_batch=prompts, updates_per_batch=updates, prompt_shards=shards, **BUCKETS
    )
    assert len(plan.updates) == updates
    held, positions, seen = 0, 0, []
    for update, micro_batches in enumerate(plan.updates):
        sizes_of_parts = []
        for rows, prefix_tokens, member_tokens in micro_batches:
            assert rows.shape == (shards, prompts // shards)
            assert (prefix_tokens in (3, L), member_tokens in (5, T)) == (True, True)
            chosen = [part * (P // shards) + row for part, own in enumerate(rows) for row in own]
            seen += chosen
            needs = [need(batch, row) for row in chosen]
            assert all(row % updates == update for row in chosen)
            assert any(member for _, member in needs)
            # The smallest buckets that hold what is needed.
            assert prefix_tokens == (3 if max(prefix for prefix, _ in needs) <= 3 else L)
            assert member_tokens == (5 if max(member for _, member in needs) <= 5 else T)
            sizes_of_parts.append(np.array([prefix + G * member for prefix, member in needs]).reshape(shards, -1))
            for row in chosen:
                held += min(batch.sequences.prefix_length[row], prefix_tokens)
                held += sum(min(length, member_tokens) for length in batch.sequences.length[row])
                positions += prefix_tokens + G * member_tokens
        # Longest first, in every part.
        assert all(np.all(np.diff(part) <= 0) for part in np.concatenate([np.empty((shards, 0)), *sizes_of_parts], 1))
    assert len(seen) == len(set(seen))
    assert {row for row in range(P) if need(batch, row)[1]} <= set(seen)
    assert plan.padding_fraction == pytest.approx(1 - held / positions if positions else 0)


def need(batch, row):
    """Prefix and member tokens of a prompt up to the last that may be trained; none where there is none."""
    trained = [place + 1 for member in range(G) for place in range(T) if batch.masks.trainable[row, member, place]]
    return (batch.sequences.prefix_length[row], max(trained)) if trained else (0, 0)


def test_prompts_of_like_length_share_a_micro_batch():
    """Two long prompts among six short ones: one of four micro-batches is long, and padding falls."""
    batch = all_valid(ragged(4, [2, 2, T, 2, 2, 2, T, 2]))
    options = {"prompts_per_micro_batch": 2, "updates_per_batch": 1, "prompt_shards": 1}
    plan = plan_micro_batches(batch, **options, **BUCKETS)
    assert sorted(plan.updates[0][0].rows[0]) == [2, 6]
    assert [micro_batch.member_tokens for micro_batch in plan.updates[0]] == [T, 5, 5, 5]
    assert plan.padding_fraction < padding_fraction(batch) - 0.2
    alone = plan_micro_batches(batch, **options, prefix_buckets=(), member_buckets=())
    assert {micro_batch[1:] for micro_batch in alone.updates[0]} == {(L, T)}, "without buckets, the batch's own lengths"


def test_what_cannot_be_packed_is_refused(monkeypatch):
    batch = ragged(0, [T] * P)
    for prompts, updates, shards, said in (
        (2, 3, 1, "8 prompts of a rollout batch cannot be cut into pieces of 3"),
        (3, 1, 1, "8 prompts of an update batch cannot be cut into pieces of 3"),
        (2, 1, 4, "2 prompts of a micro-batch .* cannot be cut into pieces of 4"),
    ):
        with pytest.raises(ValueError, match=said):
            plan_micro_batches(
                batch, prompts_per_micro_batch=prompts, updates_per_batch=updates, prompt_shards=shards, **BUCKETS
            )
    with pytest.raises(ValueError, match="must be 1 or more, found 0, 1 and 1"):
        learners(GRPO, prompts=0)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match=r"on 1 host, found 2: .* use make_learner \(rl.pack_micro_batches=False\)"):
        make_packed_learner(GRPO, WHOLE, SGD, learners(GRPO)[0][2], prompts_per_micro_batch=2, **BUCKETS)
