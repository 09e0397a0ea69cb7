"""What distinguishes one decoder from another: sizes and the few places where the families differ."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's stretching of the rotary wavelengths.

    Wavelengths above ``original_max_positions / low_frequency_factor`` grow by ``factor``, those below
    ``original_max_positions / high_frequency_factor`` stay, those between are interpolated.
    """

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_max_positions: int

    def __call__(self, inverse_frequencies: np.ndarray) -> np.ndarray:
        """``[head_dim / 2]`` radians per position, before and after."""
        turns = self.original_max_positions * inverse_frequencies / (2 * np.pi)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
        return inverse_frequencies * (kept + (1 - kept) / self.factor)


@dataclasses.dataclass(frozen=True)
class LinearScaling:
    """Every rotary wavelength grows by ``factor`` (the larger Gemma 3's global layers)."""

    factor: float

    def __call__(self, inverse_frequencies: np.ndarray) -> np.ndarray:
        """``[head_dim / 2]`` radians per position, before and after."""
        return inverse_frequencies / self.factor


def gelu_tanh(x: jax.Array) -> jax.Array:
    """GELU in its tanh approximation (Gemma 3)."""
    return jax.nn.gelu(x, approximate=True)


_SIZES = ("vocab_size", "embed_dim", "mlp_dim", "num_layers", "num_heads", "num_kv_heads", "head_dim", "max_positions")


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """A decoder-only transformer with grouped-query attention. Hashable, so it may be a static argument.

    The defaults are Llama's. Qwen2 adds ``qkv_bias``; Qwen3 adds ``qk_norm``; Gemma 3 adds ``qk_norm``, ``post_norms``,
    ``norm_offset=1``, ``embedding_scale=sqrt(embed_dim)``, ``activation=gelu_tanh`` and sliding layers.
    """

    vocab_size: int
    embed_dim: int
    mlp_dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    tie_embeddings: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    """Normalise what attention and MLP add, too, before it is added."""
    norm_offset: float = 0.0
    """RMS norms multiply by ``norm_offset + weight``."""
    rms_epsilon: float = 1e-6
    activation: Callable[[jax.Array], jax.Array] = jax.nn.silu
    embedding_scale: float = 1.0
    query_scale: float | None = None
    """Multiplies attention logits; None means ``head_dim ** -0.5``."""
    rope_theta: float = 10_000.0
    rope_scaling: Llama3Scaling | LinearScaling | None = None
    max_positions: int = 4096
    """Context the weights were trained for: told to other libraries, enforced nowhere here."""
    vocab_padding: int = 0
    """Rows of embedding and head past the vocabulary, there so that a mesh divides them: they are no tokens, have no
    share in any softmax, get no gradient and are not saved for other libraries."""
    sliding_window: int | None = None
    """A sliding layer sees the last ``sliding_window`` tokens, the query's own included."""
    sliding_layers: tuple[bool, ...] = ()
    """Which layers slide; one entry a layer where ``sliding_window`` is given, else empty."""
    sliding_rope_theta: float | None = None
    """Rotary base of the sliding layers, unscaled; None means that they share the others' rotary embedding."""
    param_dtype: Any = jnp.float32
    compute_dtype: Any = jnp.float32

    def __post_init__(self):
        for name in _SIZES:
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or size <= 0:
                raise ValueError(f"DecoderConfig({name}={size!r}): expected a positive integer.")
        padding = self.vocab_padding
        if isinstance(padding, bool) or not isinstance(padding, int | np.integer) or padding < 0:
            raise ValueError(f"DecoderConfig(vocab_padding={padding!r}): expected a whole number of rows, 0 or more.")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads={self.num_heads} is no multiple of num_kv_heads={self.num_kv_heads}; "
                "every key-value head serves the same number of query heads."
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} is odd; rotary embeddings rotate pairs.")
        expected = self.num_layers if self.sliding_window is not None else 0
        if len(self.sliding_layers) != expected:
            raise ValueError(
                f"sliding_layers has {len(self.sliding_layers)} entries, expected {expected} "
                f"(num_layers={self.num_layers}, sliding_window={self.sliding_window})."
            )
        if self.sliding_window is not None and self.sliding_window <= 0:
            raise ValueError(f"sliding_window={self.sliding_window}: expected a positive number of tokens, or None.")
        if self.sliding_rope_theta is not None and self.sliding_window is None:
            raise ValueError("sliding_rope_theta is given but sliding_window is None; no layer would use it.")

    @property
    def vocab_rows(self) -> int:
        """Rows of embedding and head: the vocabulary and its padding."""
        return self.vocab_size + self.vocab_padding

    @property
    def attention_scale(self) -> float:
        """Factor on ``query . key``."""
        return self.head_dim**-0.5 if self.query_scale is None else self.query_scale

    def replace(self, **changes: Any) -> "DecoderConfig":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)
