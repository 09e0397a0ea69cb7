"""The decoder's weights and the parts of a layer, as NNX modules.

Every weight is declared once, with its shape, the logical names of its axes and its initial spread; ``init_params`` and
``logical_axes`` both read that declaration. Weights are plain nested dicts outside this file, layers stacked on axis 0.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rlagents.models.chunks import one_row
from rlagents.models.config import DecoderConfig
from rlagents.models.rope import Rotary, rotate
from rlagents.types import Params


def _weight(config: DecoderConfig, rngs: nnx.Rngs, axes: dict[str, int], spread: float, names: tuple | None = None):
    """Normal with standard deviation ``spread``; ``axes`` gives names and sizes."""
    shape = tuple(axes.values())
    value = jax.random.normal(rngs.params(), shape, jnp.float32) * spread
    return nnx.Param(value.astype(config.param_dtype), axes=tuple(axes) if names is None else names)


def _constant(config: DecoderConfig, name: str | tuple, shape: tuple[int, ...], value: float):
    return nnx.Param(jnp.full(shape, value, config.param_dtype), axes=name if isinstance(name, tuple) else (name,))


class RMSNorm(nnx.Module):
    """``x / sqrt(mean(x^2) + epsilon) * (offset + weight)`` over the last axis, in float32."""

    def __init__(self, config: DecoderConfig, size: int, axis: str):
        self.config = config
        self.weight = _constant(config, axis, (size,), 1.0 - config.norm_offset)

    def __call__(self, x: Array) -> Array:
        """Same shape and dtype as ``x``."""
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.config.rms_epsilon)
        return (y * (self.config.norm_offset + self.weight[...].astype(jnp.float32))).astype(x.dtype)


class Attention(nnx.Module):
    """Projections of an attention layer; the attention itself is ``attention.py``."""

    def __init__(self, config: DecoderConfig, rngs: nnx.Rngs):
        self.config = config
        d, h, c, k = config.embed_dim, config.num_heads, config.num_kv_heads, config.head_dim
        self.query = _weight(config, rngs, {"embed": d, "heads": h, "head_dim": k}, d**-0.5)
        self.key = _weight(config, rngs, {"embed": d, "kv_heads": c, "head_dim": k}, d**-0.5)
        self.value = _weight(config, rngs, {"embed": d, "kv_heads": c, "head_dim": k}, d**-0.5)
        out_spread = (h * k * 2 * config.num_layers) ** -0.5
        self.output = _weight(config, rngs, {"heads": h, "head_dim": k, "embed": d}, out_spread)
        if config.qkv_bias:
            self.query_bias = _constant(config, ("heads", "head_dim"), (h, k), 0.0)
            self.key_bias = _constant(config, ("kv_heads", "head_dim"), (c, k), 0.0)
            self.value_bias = _constant(config, ("kv_heads", "head_dim"), (c, k), 0.0)
        if config.qk_norm:
            self.query_norm = RMSNorm(config, k, "head_dim")
            self.key_norm = RMSNorm(config, k, "head_dim")

    def project(self, x: Float[Array, "*batch t d"], table: Rotary) -> tuple[Array, Array, Array]:
        """Rotated queries ``[*batch h t k]``, rotated keys and plain values ``[*batch c t k]``."""

        def heads(kernel: nnx.Param) -> Array:
            projected = jnp.einsum("nd,dhk->nhk", one_row(x), kernel[...].astype(x.dtype))
            return jnp.swapaxes(projected.reshape(*x.shape[:-1], *projected.shape[1:]), -2, -3)

        query, key, value = heads(self.query), heads(self.key), heads(self.value)
        if self.config.qkv_bias:
            query += self.query_bias[...].astype(x.dtype)[:, None]
            key += self.key_bias[...].astype(x.dtype)[:, None]
            value += self.value_bias[...].astype(x.dtype)[:, None]
        if self.config.qk_norm:
            query, key = self.query_norm(query), self.key_norm(key)
        return rotate(query, table), rotate(key, table), value

    def combine(self, heads: Float[Array, "*batch hk"]) -> Float[Array, "*batch d"]:
        """Output projection of what all heads gathered, one head's after the other's."""
        output = self.output[...].astype(heads.dtype)
        return (one_row(heads) @ output.reshape(-1, output.shape[-1])).reshape(*heads.shape[:-1], output.shape[-1])


class MLP(nnx.Module):
    """Gated MLP ``(activation(x gate) * (x up)) down``."""

    def __init__(self, config: DecoderConfig, rngs: nnx.Rngs):
        self.config = config
        d, f = config.embed_dim, config.mlp_dim
        self.gate = _weight(config, rngs, {"embed": d, "mlp": f}, d**-0.5)
        self.up = _weight(config, rngs, {"embed": d, "mlp": f}, d**-0.5)
        self.down = _weight(config, rngs, {"mlp": f, "embed": d}, (f * 2 * config.num_layers) ** -0.5)

    def __call__(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """Same shape and dtype as ``x``."""
        gate, up, down = (w[...].astype(x.dtype) for w in (self.gate, self.up, self.down))
        rows = one_row(x)
        return ((self.config.activation(rows @ gate) * (rows @ up)) @ down).reshape(x.shape)


class Block(nnx.Module):
    """One layer, split where attention to other tokens happens."""

    def __init__(self, config: DecoderConfig, rngs: nnx.Rngs):
        self.config = config
        self.attention_norm = RMSNorm(config, config.embed_dim, "embed")
        self.attention = Attention(config, rngs)
        self.mlp_norm = RMSNorm(config, config.embed_dim, "embed")
        self.mlp = MLP(config, rngs)
        if config.post_norms:
            self.post_attention_norm = RMSNorm(config, config.embed_dim, "embed")
            self.post_mlp_norm = RMSNorm(config, config.embed_dim, "embed")

    def before(self, x: Float[Array, "*batch t d"], table: Rotary) -> tuple[Array, Array, Array]:
        """Queries, keys and values of the layer."""
        return self.attention.project(self.attention_norm(x), table)

    def after(self, x: Float[Array, "*batch d"], heads: Float[Array, "*batch hk"]) -> Float[Array, "*batch d"]:
        """The layer's output, given its input and what attention gathered; token by token."""
        added = self.attention.combine(heads)
        x = x + (self.post_attention_norm(added) if self.config.post_norms else added)
        added = self.mlp(self.mlp_norm(x))
        return x + (self.post_mlp_norm(added) if self.config.post_norms else added)


class Trunk(nnx.Module):
    """What is not a layer: embedding, final norm, head."""

    def __init__(self, config: DecoderConfig, rngs: nnx.Rngs):
        self.config = config
        axes = {"vocab": config.vocab_rows, "embed": config.embed_dim}
        self.embedding = _weight(config, rngs, axes, config.embed_dim**-0.5)
        self.final_norm = RMSNorm(config, config.embed_dim, "embed")
        if not config.tie_embeddings:
            self.head = _weight(config, rngs, axes, config.embed_dim**-0.5)

    def embed(self, tokens: Int[Array, "*batch t"]) -> Float[Array, "*batch t d"]:
        """Embeddings in the compute dtype; a token outside the vocabulary, a padding row among them, gives NaN."""
        dtype = self.config.compute_dtype
        if self.config.vocab_padding:
            tokens = jnp.where(tokens < self.config.vocab_size, tokens, self.config.vocab_rows)
        x = jnp.take(self.embedding[...], tokens, axis=0).astype(dtype)
        return x * jnp.asarray(self.config.embedding_scale, dtype)


@functools.cache
def _abstract(config: DecoderConfig) -> tuple[nnx.GraphDef, Any, nnx.GraphDef, Any]:
    def build():
        return Trunk(config, nnx.Rngs(0)), Block(config, nnx.Rngs(0))

    trunk, block = nnx.eval_shape(build)
    return *nnx.split(trunk), *nnx.split(block)


def trunk(config: DecoderConfig, params: Params) -> Trunk:
    """The trunk holding these weights."""
    return nnx.merge(_abstract(config)[0], {name: params[name] for name in params if name != "layers"})


def block(config: DecoderConfig, layer_params: Params) -> Block:
    """The layer holding these weights (one layer's slice of ``params["layers"]``)."""
    return nnx.merge(_abstract(config)[2], layer_params)


def init_params(config: DecoderConfig, key: PRNGKeyArray) -> Params:
    """Random weights: normal with variance ``1 / fan-in``, residual outputs divided by ``sqrt(2 num_layers)``.

    Can be jitted with out_shardings, so that no device ever holds the whole.
    """
    trunk_key, layers_key = jax.random.split(key)

    def layer(key: PRNGKeyArray) -> Params:
        return nnx.to_pure_dict(nnx.state(Block(config, nnx.Rngs(key))))

    params = nnx.to_pure_dict(nnx.state(Trunk(config, nnx.Rngs(trunk_key))))
    return {**params, "layers": jax.vmap(layer)(jax.random.split(layers_key, config.num_layers))}


def logical_axes(config: DecoderConfig) -> Params:
    """The tree of ``init_params`` with a tuple of logical axis names in place of every array.

    Names: layers, vocab, embed, heads, kv_heads, head_dim, mlp.
    """
    _, trunk_state, _, block_state = _abstract(config)

    def names(state: Any, leading: tuple[str, ...]) -> Params:
        is_leaf = lambda x: isinstance(x, nnx.Variable)  # noqa: E731
        return nnx.to_pure_dict(
            jax.tree.map(lambda v: v.replace((*leading, *v.get_metadata()["axes"])), state, is_leaf=is_leaf)
        )

    return {**names(trunk_state, ()), "layers": names(block_state, ("layers",))}
