"""Where each weight lies in a checkpoint file: its name, and how its axes are ordered and flattened there."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from rlagents.models.config import DecoderConfig

Range = tuple[int, int]


class TensorSource(Protocol):
    """A checkpoint from which blocks of tensors can be read."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape in the file; raises an error that says what is missing."""
        ...

    def read(self, name: str, ranges: Sequence[Range]) -> np.ndarray:
        """The block within ``ranges``, one ``(start, stop)`` for each axis."""
        ...


@dataclasses.dataclass(frozen=True)
class Weight:
    """One leaf of the parameters, without the axis of layers.

    ``layout`` has a tuple for each axis of the file's tensor: which axes of ours it runs over, the last one fastest.
    """

    path: tuple[str, ...]
    name: str
    """Name in a Hugging Face checkpoint; with ``{layer}`` for a weight that every layer has."""
    layout: tuple[tuple[int, ...], ...]

    def file_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape in the file of a weight that has ``shape`` here."""
        return tuple(math.prod(shape[axis] for axis in group) for group in self.layout)

    def to_file(self, array: np.ndarray) -> np.ndarray:
        """Our array as the file has it."""
        order = [axis for group in self.layout for axis in group]
        return np.ascontiguousarray(array.transpose(order).reshape(self.file_shape(array.shape)))

    def from_file(self, source: TensorSource, name: str, shape: Sequence[int], index: Sequence[slice]) -> np.ndarray:
        """The block ``index`` of our array. Reads no more than the block when only leading axes of groups are split."""
        bounds = [part.indices(size)[:2] for part, size in zip(index, shape)]
        ranges, sizes, rest = [], [], []
        for group in self.layout:
            first, inner = group[0], math.prod(shape[axis] for axis in group[1:])
            start, stop = bounds[first]
            ranges.append((start * inner, stop * inner))
            sizes += [stop - start, *(shape[axis] for axis in group[1:])]
            rest += [slice(None), *(slice(*bounds[axis]) for axis in group[1:])]
        order = [axis for group in self.layout for axis in group]
        block = source.read(name, ranges).reshape(sizes)[tuple(rest)]
        return block.transpose(np.argsort(order))


_VECTOR = ((0,),)
_HEADS_VECTOR = ((0, 1),)
_TABLE = ((0,), (1,))
_MATRIX = ((1,), (0,))
_TO_HEADS = ((1, 2), (0,))
_FROM_HEADS = ((2,), (0, 1))


def weights(config: DecoderConfig) -> Iterator[Weight]:
    """Every weight of a decoder."""
    yield Weight(("embedding",), "model.embed_tokens.weight", _TABLE)
    yield Weight(("final_norm", "weight"), "model.norm.weight", _VECTOR)
    if not config.tie_embeddings:
        yield Weight(("head",), "lm_head.weight", _TABLE)
    for path, name, layout in _layer_weights(config):
        yield Weight(("layers", *path), f"model.layers.{{layer}}.{name}", layout)


def _layer_weights(config: DecoderConfig) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    for ours, theirs in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        yield ("attention", ours), f"self_attn.{theirs}.weight", _TO_HEADS
        if config.qkv_bias:
            yield ("attention", f"{ours}_bias"), f"self_attn.{theirs}.bias", _HEADS_VECTOR
    yield ("attention", "output"), "self_attn.o_proj.weight", _FROM_HEADS
    if config.qk_norm:
        yield ("attention", "query_norm", "weight"), "self_attn.q_norm.weight", _VECTOR
        yield ("attention", "key_norm", "weight"), "self_attn.k_norm.weight", _VECTOR
    for name in ("gate", "up", "down"):
        yield ("mlp", name), f"mlp.{name}_proj.weight", _MATRIX
    yield ("attention_norm", "weight"), "input_layernorm.weight", _VECTOR
    if config.post_norms:
        yield ("post_attention_norm", "weight"), "post_attention_layernorm.weight", _VECTOR
        yield ("mlp_norm", "weight"), "pre_feedforward_layernorm.weight", _VECTOR
        yield ("post_mlp_norm", "weight"), "post_feedforward_layernorm.weight", _VECTOR
    else:
        yield ("mlp_norm", "weight"), "post_attention_layernorm.weight", _VECTOR


def file_names(config: DecoderConfig, weight: Weight) -> list[str]:
    """Names in the file: one, or one for each layer."""
    if weight.path[0] != "layers":
        return [weight.name]
    return [weight.name.format(layer=layer) for layer in range(config.num_layers)]
