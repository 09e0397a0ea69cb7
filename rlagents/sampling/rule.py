"""The sampling rule: how the next token is drawn from logits, and which log-probability is recorded for it."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key


@dataclasses.dataclass(frozen=True)
class SamplingRule:
    """Temperature, then top-k, then top-p (the nucleus is taken of what top-k left, renormalised).

    Args:
      temperature: logits are divided by it; 0 takes the most likely token.
      top_k: keep the k most likely tokens (all that tie with the k-th); None keeps all.
      top_p: keep the smallest set of most likely tokens whose probability reaches ``top_p``; None keeps all.

    Raises:
      ValueError: temperature below 0 or not finite, top_k below 1, top_p outside (0, 1].
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}; give a number >= 0 (0 takes the most likely token)")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; give a whole number >= 1, or None to keep every token")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; give a number in (0, 1], or None to keep every token")

    @property
    def recorded_temperature(self) -> float:
        """Temperature of the recorded log-prob: the sampling temperature, or 1 where decoding is greedy."""
        return self.temperature or 1.0


def draw(
    rule: SamplingRule, keys: Key[Array, " d"], logits: Float[Array, "d v"]
) -> tuple[Int[Array, " d"], Float[Array, " d"]]:
    """Draw one token a row by Gumbel-argmax.

    ``token = argmax(logits / temperature + gumbel(key))`` over the tokens that top-k and top-p keep;
    ``log_prob = log_softmax(logits / temperature)[token]`` over the **full** vocabulary, whatever was kept: that is
    what a trainer recomputes.

    Args:
      rule: a compile-time constant.
      keys: one a row.
      logits: float32, before the division by temperature.

    Returns:
      Tokens (int32) and their log-probs (float32, nats).
    """
    scaled = logits.astype(jnp.float32) / rule.recorded_temperature
    if rule.temperature == 0:
        token = _argmax(scaled)
    else:
        vocabulary = scaled.shape[-1:]
        noise = jax.vmap(lambda key: jax.random.gumbel(key, vocabulary, jnp.float32))(keys)
        token = _argmax(_keep_nucleus(rule, _keep_top(rule, scaled)) + noise)
    chosen = jnp.take_along_axis(scaled, token[:, None], axis=-1)[:, 0]
    return token, chosen - jax.nn.logsumexp(scaled, axis=-1)


def _argmax(x: Float[Array, "d v"]) -> Int[Array, " d"]:
    """First index of the largest entry, int32, as two plain reductions: XLA's own is several times slower on CPU."""
    last = x.shape[-1] - 1
    index = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return jnp.min(jnp.where(x == jnp.max(x, axis=-1, keepdims=True), index, last), axis=-1)


def _keep_top(rule: SamplingRule, scaled: Float[Array, "d v"]) -> Float[Array, "d v"]:
    if rule.top_k is None:
        return scaled
    kth = jax.lax.top_k(scaled, min(rule.top_k, scaled.shape[-1]))[0][:, -1:]
    return jnp.where(scaled >= kth, scaled, -jnp.inf)


def _keep_nucleus(rule: SamplingRule, scaled: Float[Array, "d v"]) -> Float[Array, "d v"]:
    """Keep the tokens from the highest level of logits on at which ``top_p`` is reached.

    The level is found bit by bit, by 32 sums over the vocabulary, in a fraction of the time of sorting it.
    """
    top_p = rule.top_p
    if top_p is None or top_p == 1:
        return scaled
    probability, level = jax.nn.softmax(scaled, axis=-1), _ordered(scaled)

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds  # From low on, top_p is reached; from high on, it is not.
        middle = (low & high) + ((low ^ high) >> 1)
        reached = jnp.sum(jnp.where(level >= middle, probability, 0.0), axis=-1, keepdims=True) >= top_p
        return jnp.where(reached, middle, low), jnp.where(reached, high, middle)

    most_likely = jnp.max(level, axis=-1, keepdims=True)
    least = jnp.full_like(most_likely, jnp.iinfo(jnp.int32).min)
    low, _ = jax.lax.fori_loop(0, 32, halve, (least, most_likely + 1))
    return jnp.where(level >= low, scaled, -jnp.inf)


def _ordered(x: Float[Array, "d v"]) -> Int[Array, "d v"]:
    """Whole numbers in the order of float32 ``x``: bits of a float, but where it is negative, larger is less."""
    bits = jax.lax.bitcast_convert_type(x + 0.0, jnp.int32)  # + 0.0 makes -0.0 and 0.0 one
    return jnp.where(bits < 0, bits ^ jnp.int32(0x7FFFFFFF), bits)
