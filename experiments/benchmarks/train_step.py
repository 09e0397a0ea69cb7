"""Time of a GRPO training step on what was just sampled: reference log-probs, credit, gradient, AdamW.

    python -m experiments.benchmarks.train_step --prompts 8 --group 8 --prompt-len 64 --gen 128

One process does both phases, as in training: its peak memory is that of a run. Prints one JSON line.
"""

import argparse
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from experiments.benchmarks import machine, rollout, shapes, work
from rlagents import learner, models
from rlagents.compilation import compilers_memory_returned
from rlagents.machinery import random_params
from rlagents.methods import recipes
from rlagents.model_passes import model_passes
from rlagents.models.blockwise import ATTENTION_CHUNK_LOGITS
from rlagents.models.causal import ATTENTION_PARTS
from rlagents.models.shared import HEAD_CHUNK_TOKENS, LAYER_CHUNK_TOKENS
from rlagents.sampling import Turn
from rlagents.sharding import shard_batch, single_device_mesh
from rlagents.types import Batch, Kind, LogProbs, Masks, Params, Rewards, Sequences

PASSES = {
    "loss_chunk_tokens": HEAD_CHUNK_TOKENS,
    "head_chunk_tokens": HEAD_CHUNK_TOKENS,
    "layer_chunk_tokens": LAYER_CHUNK_TOKENS,
    "attention_chunk_logits": ATTENTION_CHUNK_LOGITS,
    "attention_parts": ATTENTION_PARTS,
    "activation_gigabytes": 0.0,
}
"""Keys of ``config.passes`` and their defaults."""


def make_batch(flags: argparse.Namespace, asked: list[list[int]], turns: list[list[Turn]]) -> Batch:
    """The sampled turns as a batch: each prompt but its last token is the shared prefix."""
    cells = (flags.prompts, flags.group)

    def array(values: Any, dtype: Any) -> Any:
        return np.asarray(values, dtype)

    def full(shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
        return np.full(shape, value, dtype)

    tokens = array([[[asked_[-1], *turn.token_ids] for turn in group] for asked_, group in zip(asked, turns)], np.int32)
    kind, turn = full(tokens.shape, Kind.MODEL, np.int32), full(tokens.shape, 0, np.int32)
    kind[..., 0], turn[..., 0] = Kind.PROMPT, -1
    return Batch(
        sequences=Sequences(
            # Of one token, a prompt leaves no prefix; arrays still hold a position.
            prefix=array(asked, np.int32)[:, : max(1, flags.prompt_len - 1)],
            prefix_length=full((flags.prompts,), flags.prompt_len - 1, np.int32),
            tokens=tokens,
            length=full(cells, tokens.shape[-1], np.int32),
        ),
        rewards=Rewards(
            outcome=array(np.random.default_rng(0).integers(0, 7, cells) / 7, np.float32),
            turn_scores=full((*cells, 1), 0, np.float32),
            turn_tool_calls=full((*cells, 1), 0, np.int32),
            turn_tool_successes=full((*cells, 1), 0, np.int32),
            turn_void=full((*cells, 1), False, bool),
        ),
        masks=Masks(
            kind=kind,
            turn=turn,
            num_turns=full(cells, 1, np.int32),
            valid=full(cells, True, bool),
            truncated=full(cells, False, bool),
            condition=full(cells, -1, np.int32),
        ),
        rollout=array([[[0.0, *turn.log_probs] for turn in group] for group in turns], np.float32),
    )


def update(
    learn: learner.Learner, state: learner.TrainState, batch: Batch, facts: LogProbs
) -> tuple[learner.TrainState, learner.StepReport]:
    """Credit, then the one update."""
    state, credit, _ = learn.credit(state, batch, facts)
    return learn.step(state, batch, facts, credit, learn.schedule[0])


class Training(NamedTuple):
    """What a step needs beside a batch."""

    learn: learner.Learner
    state: learner.TrainState
    params: Params
    """First weights, which are also the reference."""


def add_flags(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The keys of ``config.passes``."""
    for name, default in PASSES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=shapes.at_least(0, type(default)), default=default)
    return parser


def make_passes(flags: argparse.Namespace, config: models.DecoderConfig) -> learner.Passes:
    """The model as the learner runs it."""
    return model_passes(config, flags.temperature, **{name: getattr(flags, name) for name in PASSES})


def make_training(flags: argparse.Namespace, config: models.DecoderConfig) -> Training:
    """GRPO with a reference, AdamW, random weights."""
    params = random_params(config)(jax.random.key(0), None)
    method = recipes.grpo(kl_coefficient=flags.beta)
    optimizer = learner.make_optimizer(optax.constant_schedule(flags.lr))
    mesh = single_device_mesh()
    shardings = learner.state_shardings(params, optimizer, method.init(), models.logical_axes(config), mesh)
    state = learner.create_state(params, optimizer, method.init(), jax.random.key(0), shardings)
    learn = learner.make_learner(
        method,
        make_passes(flags, config),
        optimizer,
        shardings,
        prompts_per_micro_batch=flags.train_micro or flags.prompts,
    )
    return Training(learn, state, params)


def timed_steps(flags: argparse.Namespace, training: Training, batch: Batch, watch: shapes.Stopwatch) -> None:
    """``--warmup`` and ``--iters`` steps on one batch; the state of ``training`` is donated.

    Raises NonFiniteError where a step was skipped for a value that is not finite: it would be timed as a good one.
    """
    learn, state, params = training
    for _ in range(flags.warmup + flags.iters):
        facts = watch("reference", partial(learn.prepare, state.params, params, batch))
        state, report = watch("update", partial(update, learn, state, batch, facts))
        learner.check_finite(report, max_nonfinite_in_a_row=1)


def step_figures(flags: argparse.Namespace, watch: shapes.Stopwatch) -> dict[str, float]:
    """Of the JSON line."""
    reference, update_seconds = (watch.median(name, flags.warmup) for name in ("reference", "update"))
    seconds = reference + update_seconds
    return {
        "ref_logps_s": reference,
        "ref_cpu_s": watch.median_cpu("reference", flags.warmup),
        "update_s": update_seconds,
        "update_cpu_s": watch.median_cpu("update", flags.warmup),
        "update_first_s": watch.seconds["update"][0],
        "train_step_s": seconds,
        "train_tok_s": flags.prompts * flags.group * (flags.prompt_len + flags.gen) / seconds,
    }


def counted_flops(flags: argparse.Namespace, *, passes_without_gradient: int | None = None) -> float:
    """Work of a step of this shape; None is a pass without gradient for the reference, and none at ``--beta`` 0."""
    if passes_without_gradient is None:
        passes_without_gradient = 1 if flags.beta else 0
    return work.train_step(
        shapes.decoder_config(flags),
        prompts=flags.prompts,
        group=flags.group,
        prefix=flags.prompt_len - 1,
        own=flags.gen + 1,
        sampled=flags.gen,
        passes_without_gradient=passes_without_gradient,
    )


def matrix_share(flags: argparse.Namespace, seconds: float, rates: machine.Machine) -> float:
    """Share of the measured matrix-product rate that a step of ``seconds`` reaches; recomputation is not work."""
    return counted_flops(flags) / rates.flops_per_second / seconds


def main() -> None:
    """Measure and print."""
    flags = shapes.with_flags(add_flags(rollout.add_flags(shapes.arguments(__doc__))))
    config, watch = shapes.decoder_config(flags), shapes.Stopwatch()
    training = make_training(flags, config)
    asked, turns = rollout.timed_rollouts(flags, rollout.make_sampler(flags, config, training.params), watch)
    timed_steps(flags, training, shard_batch(make_batch(flags, asked, turns), single_device_mesh()), watch)
    figures = rollout.rollout_figures(flags, watch) | step_figures(flags, watch)
    shapes.print_line(flags, config, watch, **figures)


if __name__ == "__main__":
    with compilers_memory_returned():
        main()
