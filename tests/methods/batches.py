"""Random batches: ragged turns of every kind of token, invalid members, NaN wherever nothing was said."""

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from rlagents.types import Kind, LogProbs, Masks, Rewards
from tests.effort import draws

SHAPE = (4, 3, 9, 3)
"""p, g, t, s of the law tests: one shape, so that every method is compiled once."""

laws = settings(
    max_examples=draws(8), deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)

REWARDS = {
    "binary": lambda rng, shape: rng.integers(0, 2, shape).astype(float),
    "equal": lambda rng, shape: np.full(shape, 0.1),
    "continuous": lambda rng, shape: rng.normal(size=shape),
    "shifted": lambda rng, shape: 1000 + rng.normal(size=shape),
}


def conversation(rng, t, s):
    """Kinds and turns of one member: PROMPT, then turns of FORCED? MODEL TOOL?, then PAD; and how many turns it has."""
    kinds, turns = [Kind.PROMPT] * int(rng.integers(1, 3)), []
    turns = [-1] * len(kinds)
    num_turns = int(rng.integers(1, s + 1))
    for turn in range(num_turns):
        for kind, most in ((Kind.FORCED, 1), (Kind.MODEL, 3), (Kind.TOOL, 2)):
            count = int(rng.integers(1 if kind is Kind.MODEL else 0, most + 1))
            kinds += [kind] * count
            turns += [turn if kind in (Kind.FORCED, Kind.MODEL) else -1] * count
    kinds, turns = kinds[:t], turns[:t]
    pad = t - len(kinds)
    return kinds + [Kind.PAD] * pad, turns + [-1] * pad, max(turns) + 1


def make_batch(seed, shape=SHAPE, *, spread=0.3, rewards="binary", invalid=0.2, padding=np.nan, dtype=np.float32):
    """``(LogProbs, Rewards, Masks)`` of NumPy arrays; floats hold ``padding`` wherever there is nothing.

    ``spread`` is the size (nats) of the differences between policy and facts. Values are rounded to float32 first, so
    that an oracle in float64 and the library in float32 read the same numbers.
    """
    rng = np.random.default_rng(seed)
    p, g, t, s = shape
    rows = [conversation(rng, t, s) for _ in range(p * g)]
    kind = np.array([row[0] for row in rows], np.int32).reshape(p, g, t)
    turn = np.array([row[1] for row in rows], np.int32).reshape(p, g, t)
    num_turns = np.array([row[2] for row in rows], np.int32).reshape(p, g)
    valid = rng.random((p, g)) >= invalid
    truncated = rng.random((p, g)) < 0.2
    masks = Masks(kind, turn, num_turns, valid, truncated, rng.integers(-1, 2, (p, g)).astype(np.int32))

    def shown(values, where):
        return np.where(where, values.astype(np.float32), padding).astype(dtype)

    spoken = (kind == Kind.MODEL) & valid[..., None]
    policy = -np.abs(rng.normal(size=kind.shape)) * 2
    near = [policy + spread * rng.normal(size=kind.shape) for _ in range(3)]
    entropy, old_entropy = np.abs(rng.normal(size=(2, *kind.shape)))
    logprobs = LogProbs(*(shown(x, spoken) for x in (policy, entropy, near[0], old_entropy, near[1], near[2])))
    there = (np.arange(s) < num_turns[..., None]) & valid[..., None]
    calls = rng.integers(0, 3, (p, g, s)).astype(np.int32)
    said = Rewards(
        outcome=shown(REWARDS[rewards](rng, (p, g)), valid),
        turn_scores=shown(rng.random((p, g, s)), there),
        turn_tool_calls=calls,
        turn_tool_successes=rng.integers(0, calls + 1).astype(np.int32),
        turn_void=rng.random((p, g, s)) < 0.1,
        named={"format": shown(rng.random((p, g)), valid)},
    )
    return logprobs, said, masks


def batches(shape=SHAPE, **fixed):
    """A hypothesis strategy over :func:`make_batch`; keyword arguments fix what varies, or give its strategy."""
    free = {
        "seed": st.integers(0, 2**32 - 1),
        "spread": st.sampled_from([0.0, 0.1, 1.0, 12.0]),
        "rewards": st.sampled_from(list(REWARDS)),
        "invalid": st.sampled_from([0.0, 0.3, 0.7]),
    }
    return st.builds(
        make_batch,
        shape=st.just(shape),
        **(free | {name: v if isinstance(v, st.SearchStrategy) else st.just(v) for name, v in fixed.items()}),
    )
