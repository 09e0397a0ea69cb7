"""A tiny decoder, scripted conversations, and a judge that knows no KV cache, no slots and no batches."""

import dataclasses
import functools
from collections import deque
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlagents.models import KV, DecoderConfig, empty_kv, extend, init_params, logits
from rlagents.sampling import Sampler, StreamKey, Turn

CONFIG = DecoderConfig(
    vocab_size=29,
    embed_dim=16,
    mlp_dim=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    qkv_bias=True,
    tie_embeddings=False,
)
KEYS = StreamKey(0, 11, 0, 0)
TIE = 1e-4
"""Perturbed logits nearer than this may come out in either order."""


@functools.cache
def make_params(config: DecoderConfig = CONFIG, seed: int = 0) -> Any:
    """Random weights, sharp enough that history matters, not so sharp that draws repeat."""
    params = jax.jit(init_params, static_argnums=0)(config, jax.random.key(seed))
    return {**params, "head": 2 * params["head"]}


def letters(token_ids: Sequence[int]) -> str:
    """Token 0 is 'a', token 1 is 'b', ...; tokens beyond 'z' are two letters, so that strings cross token borders."""
    return "".join(chr(97 + token) if token < 26 else "xy" for token in token_ids)


def make_sampler(**changes: Any) -> Sampler:
    """A sampler of the tiny decoder, with some arguments changed; ready for the largest group, to share programs."""
    arguments: dict[str, Any] = {
        "config": CONFIG,
        "params": make_params(),
        "decode_text": letters,
        "stop_token_ids": (),
        "num_groups": 2,
        "num_rows": 6,
        "decode_rows": 6,
        "max_prefix_tokens": 16,
        "max_member_tokens": 32,
        "extend_chunk_tokens": 4,
        "extend_rows": 3,
        "block_steps": 4,
        "largest_group": changes.get("num_rows", 6),
        **changes,
    }
    return Sampler(**arguments)


@dataclasses.dataclass(frozen=True)
class Script:
    """A group to play: after turn ``i`` of any member, ``replies[i]`` is appended and the next turn asked for."""

    prompts: list[list[int]]
    keys: StreamKey
    replies: list[list[int]] = dataclasses.field(default_factory=list)
    max_new_tokens: int = 5


@dataclasses.dataclass
class Member:
    """What became of a member: all its tokens, and where each turn begins among them."""

    material: tuple[int, ...]
    conversation: list[int]
    turns: list[tuple[int, Turn]] = dataclasses.field(default_factory=list)

    @property
    def sampled(self) -> list[list[int]]:
        return [turn.token_ids for _, turn in self.turns]


def play(sampler: Sampler, scripts: Sequence[Script]) -> list[list[Member]]:
    """Play groups as slots become free, in the order given."""
    waiting = deque(enumerate(scripts))
    played: list[list[Member]] = [[] for _ in scripts]
    handles, whose = {}, {}
    while waiting or handles:
        while waiting and sampler.can_open(len(waiting[0][1].prompts)):
            index, script = waiting.popleft()
            handles[index] = handle = sampler.open_group(script.prompts, script.keys)
            for number, (row, prompt) in enumerate(zip(handle.rows, script.prompts, strict=True)):
                member = Member((*script.keys, number), list(prompt))
                played[index].append(member)
                whose[row] = index, member
                sampler.request(row, script.max_new_tokens)
        assert handles, "a group fits into an empty sampler"
        for turn in sampler.step():
            index, member = whose[turn.row]
            replies = scripts[index].replies
            member.turns.append((len(member.conversation), turn))
            member.conversation += turn.token_ids
            if len(member.turns) > len(replies):
                del whose[turn.row]
                continue
            reply = replies[len(member.turns) - 1]
            member.conversation += reply
            sampler.append(turn.row, reply)
            sampler.request(turn.row, scripts[index].max_new_tokens)
        playing = {index for index, _ in whose.values()}
        for index in [index for index in handles if index not in playing]:
            sampler.close_group(handles.pop(index))
    return played


@functools.partial(jax.jit, static_argnames="config")
def _all_logits(config: DecoderConfig, params: Any, tokens: jax.Array, length: jax.Array) -> jax.Array:
    nothing = empty_kv(config, 1, 1)
    own: KV = empty_kv(config, 1, tokens.shape[0])
    zero = jnp.zeros(1, jnp.int32)
    hidden, _ = extend(config, params, tokens[None], length[None], own, zero, nothing, zero, zero)
    return logits(config, params, hidden[0])


def all_logits(conversation: Sequence[int], config: DecoderConfig = CONFIG, params: Any = None) -> np.ndarray:
    """Logits ``[len(conversation), v]`` for the token after each, in one pass from nothing."""
    tokens = np.zeros(64 * (1 + len(conversation) // 64), np.int32)
    tokens[: len(conversation)] = conversation
    params = make_params(config) if params is None else params
    return np.asarray(_all_logits(config, params, tokens, np.int32(len(conversation))))[: len(conversation)]


def gumbel(material: Sequence[int], position: int, vocab_size: int) -> np.ndarray:
    """The noise for one token, key folded step by step."""
    key = jax.random.key(0, impl="threefry2x32")
    for part in (*material, position):
        key = jax.random.fold_in(key, np.uint32(part))
    return np.asarray(jax.random.gumbel(key, (vocab_size,)))


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def check_member(member: Member, temperature: float = 1.0) -> int:
    """Every sampled token is the one its key draws after its history; every log-prob is right. Returns how many."""
    log_probs = log_softmax(all_logits(member.conversation) / temperature)
    checked = 0
    for start, turn in member.turns:
        assert member.conversation[start : start + len(turn.token_ids)] == turn.token_ids
        for offset, (token, recorded) in enumerate(zip(turn.token_ids, turn.log_probs, strict=True)):
            position = start + offset
            before = log_probs[position - 1]
            perturbed = before + gumbel(member.material, position, len(before))
            assert perturbed[token] >= perturbed.max() - TIE, (position, token, perturbed)
            np.testing.assert_allclose(recorded, before[token], atol=1e-4)
            checked += 1
    return checked
