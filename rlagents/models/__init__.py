"""One config-driven decoder and its pure functions over a plain nested dict of weights."""

from rlagents.models.config import DecoderConfig, LinearScaling, Llama3Scaling, gelu_tanh
from rlagents.models.decoder import KV, empty_kv, extend, logits, prefill
from rlagents.models.modules import init_params, logical_axes
from rlagents.models.shared import member_log_probs, prefix_kv, token_log_probs

__all__ = [
    "KV",
    "DecoderConfig",
    "LinearScaling",
    "Llama3Scaling",
    "empty_kv",
    "extend",
    "gelu_tanh",
    "init_params",
    "logical_axes",
    "logits",
    "member_log_probs",
    "prefill",
    "prefix_kv",
    "token_log_probs",
]
