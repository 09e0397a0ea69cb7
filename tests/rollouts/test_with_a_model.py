"""The whole way with a real sampler: what it recorded is what the training path computes from the collated batch."""

import dataclasses

import jax
import numpy as np
import pytest

from rlagents.experiment import THINK_PREFIX
from rlagents.facts import Task
from rlagents.models import DecoderConfig, init_params, token_log_probs
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.collate import collate
from rlagents.rollouts.conditions import append_to_first_user_message
from rlagents.rollouts.driver import StreamTask, rollout
from rlagents.rollouts.members import Limits
from rlagents.rollouts.pool import ProcessPool
from rlagents.sampling import Sampler, SamplingRule
from rlagents.sampling.turns import StopReason
from rlagents.sharding import make_mesh
from rlagents.types import Kind
from tests.rollouts.tiny import CHATML, tokenizer
from tests.rollouts.worlds import EchoEnvironment

CHAT = Chat(tokenizer(), CHATML)
LIMITS = Limits(max_turns=3, max_turn_tokens=12, max_response_tokens=80, max_prompt_tokens=60)
CONFIG = DecoderConfig(
    vocab_size=len(tokenizer()), embed_dim=16, mlp_dim=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4
)
FORCED = CHAT.encode(f"{THINK_PREFIX} It")
# An untrained model hardly ever ends a turn; so does every ninth token.
STOPS = sorted(CHAT.stop_token_ids | set(range(0, CONFIG.vocab_size, 9)))


def with_member(task, opening, place):
    return append_to_first_user_message(opening.messages, f" <{place.member}>"), place.member


def sharp_params():
    params = init_params(CONFIG, jax.random.key(0))
    return {**params, "embedding": 4 * params["embedding"]}


@pytest.fixture(scope="module")
def pool():
    with ProcessPool(EchoEnvironment(), num_workers=2) as pool:
        yield pool


def make_sampler(temperature, **changes):
    """A sampler of the sharp decoder."""
    sizes = {"num_groups": 2, "num_rows": 6, "decode_rows": 4}
    return Sampler(
        CONFIG,
        sharp_params(),
        decode_text=CHAT.decode_text,
        stop_token_ids=STOPS,
        max_prefix_tokens=48,
        max_member_tokens=120,
        extend_chunk_tokens=8,
        block_steps=4,
        rule=SamplingRule(temperature),
        **(sizes | changes),
    )


def roll_out(pool, sampler, last_needed=None):
    """Three groups of three."""
    return rollout(
        [StreamTask(stream, Task(str(stream))) for stream in range(3)],
        sampler=sampler,
        chat=CHAT,
        pool=pool,
        group_size=3,
        limits=LIMITS,
        run=7,
        step=0,
        member_messages=with_member,
        forced_prefix=FORCED,
        last_needed=last_needed,
    )


def assert_alike(groups, others):
    for mine, theirs in zip(groups, others, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one.token_ids == other.token_ids
            assert one.kinds == other.kinds
            np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)


@jax.jit
def log_probs(params, sequences, temperature):
    return token_log_probs(CONFIG, params, sequences, temperature)[0]


def assert_forced_tokens_open_every_turn(trajectory):
    before = Kind.PROMPT
    for turn in range(trajectory.num_turns):
        at = [index for index, number in enumerate(trajectory.turns) if number == turn]
        assert at == list(range(at[0], at[0] + len(at)))
        kinds = [trajectory.kinds[index] for index in at]
        assert kinds == [Kind.FORCED] * len(FORCED) + [Kind.MODEL] * (len(at) - len(FORCED))
        assert len(at) > len(FORCED)
        assert [trajectory.token_ids[index] for index in at[: len(FORCED)]] == FORCED
        assert (trajectory.kinds[at[0] - 1] if at[0] else Kind.PROMPT) == before
        assert not any(trajectory.log_probs[index] for index in at[: len(FORCED)])
        before = Kind.TOOL


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_recorded_log_probs_equal_those_of_the_collated_batch(pool, temperature):
    params = sharp_params()
    result = roll_out(pool, make_sampler(temperature))
    every = [trajectory for group in result.groups for trajectory in group]
    assert len(every) == 9
    assert sum(trajectory.num_turns for trajectory in every) > 9
    reasons = {reason for trajectory in every for reason in trajectory.stop_reasons}
    assert reasons >= {StopReason.STOP_TOKEN}
    batch = collate(result.groups, prefix_buckets=(48,), member_buckets=(128,), turn_buckets=(3,), pad_prompts_to=4)
    assert set(np.unique(batch.masks.kind)) == set(Kind)
    log_prob = log_probs(params, batch.sequences, temperature)
    model = np.asarray(batch.masks.trainable)
    assert model.sum() > 50
    np.testing.assert_allclose(np.asarray(log_prob)[model], batch.rollout[model], atol=1e-4)
    assert not batch.rollout[~model].any()
    # Forced tokens open every turn, also after observations. Nobody is trained on them, but all that follows is
    # conditioned on them, in sampling and in training alike.
    for trajectory in every:
        assert_forced_tokens_open_every_turn(trajectory)
    forced = batch.masks.kind == Kind.FORCED
    assert forced.sum() == len(FORCED) * sum(trajectory.num_turns for trajectory in every)
    assert not (forced & model).any()
    others = dataclasses.replace(batch.sequences, tokens=np.where(forced, 0, batch.sequences.tokens))
    other = log_probs(params, others, temperature)
    assert np.abs(np.asarray(other)[model] - batch.rollout[model]).max() > 0.05
    # At the wrong temperature they differ, so the comparison can fail.
    other = log_probs(params, batch.sequences, 1.7 - temperature)
    assert np.abs(np.asarray(other)[model] - batch.rollout[model]).max() > 0.05


def test_a_rollout_over_eight_devices_is_that_of_one(pool):
    alone = roll_out(pool, make_sampler(1.0))
    sampler = make_sampler(1.0, num_groups=4, num_rows=8, mesh=make_mesh(data=1, fsdp=4, tensor=2))
    spread = roll_out(pool, sampler)
    for leaf in jax.tree.leaves(sampler._device._params):
        if leaf.size > 1000:
            shards = {shard.device: shard.data.size for shard in leaf.addressable_shards}
            assert max(shards.values()) * 2 <= leaf.size, "no whole matrix lives on one device"
    assert_alike(alone.groups, spread.groups)


@pytest.mark.parametrize("blocks", [1, 2])
def test_groups_stopped_in_the_middle_leave_no_trace(pool, blocks):
    """Neither in the group that is kept, nor in what the sampler says next, with other weights in between."""
    sampler = make_sampler(1.0, blocks_in_flight=blocks)
    whole = roll_out(pool, sampler)
    stopped = roll_out(pool, sampler, last_needed=lambda ended: min(ended))
    assert stopped.counts["groups_stopped"] > 0
    assert_alike(stopped.groups, whole.groups[: len(stopped.groups)])
    sampler.load(jax.tree.map(jax.numpy.zeros_like, sharp_params()), 1)
    sampler.load(sharp_params(), 2)
    assert_alike(roll_out(pool, sampler).groups, whole.groups)
