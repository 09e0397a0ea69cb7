"""Hugging Face's ``config.json`` of the supported families, read into a ``DecoderConfig`` and written from one."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from rlagents.models.config import DecoderConfig, LinearScaling, Llama3Scaling, gelu_tanh
from rlagents.models.config_file import ConfigFile, Json


@dataclasses.dataclass(frozen=True)
class Family:
    """How one ``model_type`` spells what the others spell differently."""

    model_type: str
    architecture: str
    read: Callable[[ConfigFile], Json]
    """Fields of ``DecoderConfig`` other than the sizes that all families share."""
    write: Callable[[DecoderConfig], Json]


def read_config(contents: Json, where: str, dtype: Any) -> DecoderConfig:
    """``DecoderConfig`` of a ``config.json``; weights and computation in ``dtype``.

    Raises ValueError for an unsupported ``model_type`` or feature, a missing key, and a size or number that is none;
    ``where`` names the file.
    """
    file = ConfigFile(contents, where)
    model_type = file["model_type"]
    family = next((family for family in FAMILIES if family.model_type == model_type), None)
    if family is None:
        names = ", ".join(family.model_type for family in FAMILIES)
        raise ValueError(f"{where}: model_type {model_type!r} is not supported; supported are {names}.")
    if "quantization_config" in contents:
        raise ValueError(f"{where} describes quantized weights; save them dequantized (bfloat16, say) first.")
    heads = file.size("num_attention_heads")
    return DecoderConfig(
        vocab_size=file.size("vocab_size"),
        embed_dim=file.size("hidden_size"),
        mlp_dim=file.size("intermediate_size"),
        num_layers=file.size("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=file.size("num_key_value_heads", heads),
        rms_epsilon=file.number("rms_norm_eps", 1e-6),
        max_positions=file.size("max_position_embeddings"),
        param_dtype=dtype,
        compute_dtype=dtype,
        **family.read(file),
    )


def write_config(config: DecoderConfig) -> Json:
    """The ``config.json`` from which ``read_config`` and transformers make this model, its padding left away.

    Raises ValueError when no supported family has this combination of features.
    """
    wanted = config.replace(vocab_padding=0, param_dtype=jnp.float32, compute_dtype=jnp.float32)
    for family in FAMILIES:
        contents = {
            "architectures": [family.architecture],
            "model_type": family.model_type,
            "dtype": np.dtype(config.param_dtype).name,
            "vocab_size": config.vocab_size,
            "hidden_size": config.embed_dim,
            "intermediate_size": config.mlp_dim,
            "num_hidden_layers": config.num_layers,
            "num_attention_heads": config.num_heads,
            "num_key_value_heads": config.num_kv_heads,
            "head_dim": config.head_dim,
            "rms_norm_eps": config.rms_epsilon,
            "max_position_embeddings": config.max_positions,
            "tie_word_embeddings": config.tie_embeddings,
            "rope_theta": config.rope_theta,
            "rope_scaling": _write_scaling(config),
            **family.write(config),
        }
        if read_config(contents, family.model_type, jnp.float32) == wanted:
            return contents
    names = ", ".join(family.model_type for family in FAMILIES)
    raise ValueError(f"no supported family ({names}) has this combination of features: {wanted}.")


def _rope(file: ConfigFile, parameters: Json) -> Json:
    """Rotary base and scaling of the full-attention layers."""
    rope = ConfigFile(parameters, f"{file.where}: rope parameters")
    kind = rope.otherwise("rope_type", rope.otherwise("type", "default"))
    scaling = None
    if kind == "llama3":
        scaling = Llama3Scaling(
            rope.number("factor"),
            rope.number("low_freq_factor"),
            rope.number("high_freq_factor"),
            rope.size("original_max_position_embeddings"),
        )
    elif kind == "linear":
        scaling = LinearScaling(rope.number("factor"))
    elif kind != "default":
        raise ValueError(f"{file.where}: rope_type {kind!r} is not supported; supported are default, linear, llama3.")
    file.refuse_unless("partial_rotary_factor", 1.0)
    theta = rope.number("rope_theta", file.number("rope_theta", 10_000.0))
    return {"rope_theta": float(theta), "rope_scaling": scaling}


def _one_rope(file: ConfigFile) -> Json:
    return _rope(file, file.otherwise("rope_parameters", file.otherwise("rope_scaling", {})))


def _write_scaling(config: DecoderConfig) -> Json | None:
    match config.rope_scaling:
        case Llama3Scaling(factor, low, high, original):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": original,
            }
        case LinearScaling(factor):
            return {"rope_type": "linear", "factor": factor}
    return None


def _sliding(window: int | None, layers: list[bool]) -> Json:
    if window is None or not any(layers):
        return {}
    return {"sliding_window": window, "sliding_layers": tuple(layers)}


def _layer_types(config: DecoderConfig) -> list[str]:
    slides = config.sliding_layers or (False,) * config.num_layers
    return ["sliding_attention" if slide else "full_attention" for slide in slides]


def _head_dim(file: ConfigFile) -> int:
    if file.otherwise("head_dim", None) is None:
        return file.size("hidden_size") // file.size("num_attention_heads")
    return file.size("head_dim")


def _read_llama(file: ConfigFile) -> Json:
    for key in ("attention_bias", "mlp_bias"):
        file.refuse_unless(key, False)
    file.refuse_unless("hidden_act", "silu")
    return {
        "head_dim": _head_dim(file),
        "tie_embeddings": file.otherwise("tie_word_embeddings", False),
        **_one_rope(file),
    }


def _write_llama(config: DecoderConfig) -> Json:
    return {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}


def _read_qwen(file: ConfigFile) -> Json:
    file.refuse_unless("attention_bias", False)
    file.refuse_unless("hidden_act", "silu")
    window = file.size("sliding_window") if file.otherwise("use_sliding_window", False) else None
    layers = range(file.size("num_hidden_layers"))
    by_index = [layer >= file.otherwise("max_window_layers", 28) for layer in layers]
    types = file.otherwise("layer_types", None)
    return {
        "head_dim": _head_dim(file),
        "tie_embeddings": file.otherwise("tie_word_embeddings", False),
        **_sliding(window, by_index if types is None else [name == "sliding_attention" for name in types]),
        **_one_rope(file),
    }


def _read_qwen2(file: ConfigFile) -> Json:
    return {"qkv_bias": True, **_read_qwen(file)}


def _read_qwen3(file: ConfigFile) -> Json:
    return {"qk_norm": True, **_read_qwen(file)}


def _write_qwen(config: DecoderConfig) -> Json:
    return {
        "hidden_act": "silu",
        "use_sliding_window": config.sliding_window is not None,
        "sliding_window": config.sliding_window,
        "layer_types": _layer_types(config),
    }


def _read_gemma3(file: ConfigFile) -> Json:
    file.refuse_unless("attention_bias", False)
    file.refuse_unless("hidden_activation", "gelu_pytorch_tanh")
    file.refuse_unless("use_bidirectional_attention", False)
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        file.refuse_unless(key, None)
    layers = range(file.size("num_hidden_layers"))
    pattern = file.size("sliding_window_pattern", 6)
    by_index = [(layer + 1) % pattern != 0 for layer in layers]
    types = file.otherwise("layer_types", None)
    sliding = _sliding(
        file["sliding_window"], by_index if types is None else [name == "sliding_attention" for name in types]
    )
    both = file.otherwise("rope_parameters", {})
    full = both.get("full_attention", file.otherwise("rope_scaling", {}))
    local = both.get("sliding_attention", {})
    if sliding:
        rope = ConfigFile(local, f"{file.where}: rope parameters of sliding_attention")
        sliding["sliding_rope_theta"] = float(rope.number("rope_theta", file.number("rope_local_base_freq", 10_000.0)))
    return {
        "head_dim": file.size("head_dim"),
        "tie_embeddings": file.otherwise("tie_word_embeddings", True),
        "qk_norm": True,
        "post_norms": True,
        "norm_offset": 1.0,
        "activation": gelu_tanh,
        "embedding_scale": math.sqrt(file.size("hidden_size")),
        "query_scale": file.number("query_pre_attn_scalar") ** -0.5,
        **sliding,
        **_rope(file, {"rope_theta": file.number("rope_theta", 1_000_000.0), **full}),
    }


def _write_gemma3(config: DecoderConfig) -> Json:
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": round(config.attention_scale**-2),
        "sliding_window": config.sliding_window,
        "layer_types": _layer_types(config),
        "rope_local_base_freq": config.sliding_rope_theta,
        "attention_bias": False,
    }


FAMILIES = (
    Family("llama", "LlamaForCausalLM", _read_llama, _write_llama),
    Family("qwen2", "Qwen2ForCausalLM", _read_qwen2, _write_qwen),
    Family("qwen3", "Qwen3ForCausalLM", _read_qwen3, _write_qwen),
    Family("gemma3_text", "Gemma3ForCausalLM", _read_gemma3, _write_gemma3),
)
