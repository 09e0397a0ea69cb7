"""A policy of three small matrices with a shared prefix, and random batches for it: what learner tests learn with."""

import jax
import jax.numpy as jnp
import numpy as np

from rlagents.types import Batch, Kind, Masks, Rewards, Sequences

VOCAB = 11
WIDTH = 8
AXES = {"embedding": ("vocab", "embed"), "mix": ("embed", None), "head": ("embed", "vocab")}


def init_params(seed: int = 0) -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(seed), 3)
    return {
        "embedding": jax.random.normal(keys[0], (VOCAB, WIDTH)),
        "mix": jax.random.normal(keys[1], (WIDTH, WIDTH)) * 0.3,
        "head": jax.random.normal(keys[2], (WIDTH, VOCAB)) * 0.5,
    }


def prefix_kv(params, prefix, prefix_length):
    real = jnp.arange(prefix.shape[-1]) < prefix_length[:, None]
    total = jnp.where(real[..., None], params["embedding"][prefix], 0).sum(1)
    return jnp.tanh(total @ params["mix"])


def member_scores(params, kv, sequences):
    before = params["embedding"][sequences.tokens[..., :-1]]
    hidden = jnp.tanh(jnp.cumsum(before, axis=2) @ params["mix"] + kv[:, None, None, :])
    log_probs = jax.nn.log_softmax(hidden @ params["head"])
    chosen = jnp.take_along_axis(log_probs, sequences.tokens[..., 1:, None], axis=-1)[..., 0]
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
    real = jnp.arange(1, sequences.tokens.shape[-1]) < sequences.length[..., None]

    def place(x):
        return jnp.pad(jnp.where(real, x, 0), ((0, 0), (0, 0), (1, 0)))

    return place(chosen), place(entropy)


def apply(params, sequences):
    return member_scores(params, prefix_kv(params, sequences.prefix, sequences.prefix_length), sequences)


def random_batch(seed: int = 0, *, p: int = 4, g: int = 4, l: int = 5, t: int = 9, vocab: int = VOCAB) -> Batch:  # noqa: E741
    """Ragged multi-turn trajectories: a prompt token, then turns of model tokens with tool tokens between them."""
    rng = np.random.default_rng(seed)
    length = rng.integers(3, t + 1, (p, g))
    kind = np.zeros((p, g, t), np.int32)
    turn = np.full((p, g, t), -1, np.int32)
    num_turns = np.zeros((p, g), np.int32)
    for i, j in np.ndindex(p, g):
        kind[i, j, 0] = Kind.PROMPT
        position, current = 1, 0
        while position < length[i, j]:
            end = min(position + rng.integers(1, 4), length[i, j])
            kind[i, j, position:end], turn[i, j, position:end] = Kind.MODEL, current
            kind[i, j, end : min(end + 1, length[i, j])] = Kind.TOOL
            position, current = end + 1, current + 1
        num_turns[i, j] = current
    s = t // 2
    valid = rng.random((p, g)) > 0.1
    return Batch(
        sequences=Sequences(
            prefix=rng.integers(0, vocab, (p, l)).astype(np.int32),
            prefix_length=rng.integers(1, l + 1, p).astype(np.int32),
            tokens=rng.integers(0, vocab, (p, g, t)).astype(np.int32),
            length=length.astype(np.int32),
        ),
        rewards=Rewards(
            outcome=rng.random((p, g)).astype(np.float32),
            turn_scores=np.zeros((p, g, s), np.float32),
            turn_tool_calls=np.zeros((p, g, s), np.int32),
            turn_tool_successes=np.zeros((p, g, s), np.int32),
            turn_void=np.zeros((p, g, s), bool),
        ),
        masks=Masks(
            kind=kind,
            turn=turn,
            num_turns=num_turns,
            valid=valid,
            truncated=np.zeros((p, g), bool),
            condition=np.full((p, g), -1, np.int32),
        ),
        rollout=np.where(kind == Kind.MODEL, -rng.random((p, g, t)), 0).astype(np.float32),
    )
