"""Time, memory and compile time of the gradient pass of a GRPO training step on random tokens: no rollout, no AdamW.

    python -m experiments.benchmarks.gradient_pass --prompts 1 --group 4 --prompt-len 257 --gen 255

``temp_mb`` is what the compiled program allocates beside its arguments (weights, batch) and results (the gradient): the
compiler's own count, free of noise. ``max_rss_mb`` is the whole process, compiler included. Prints one JSON line.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.benchmarks import shapes, train_step
from rlagents import learner, models
from rlagents.compilation import compilers_memory_returned
from rlagents.learner.binding import Totals, bind, open_update
from rlagents.machinery import abstract_params, random_params
from rlagents.methods import recipes
from rlagents.sampling import StopReason, Turn
from rlagents.sharding import shard_batch, single_device_mesh
from rlagents.types import Batch, LogProbs, Params


def random_batch(flags: argparse.Namespace) -> Batch:
    """Turns of ``--gen`` random tokens, as if they had been sampled."""
    rng = np.random.default_rng(0)

    def turn() -> Turn:
        tokens = rng.integers(1, flags.vocab, flags.gen).tolist()
        return Turn(0, tokens, [-float(np.log(flags.vocab))] * flags.gen, StopReason.LENGTH, "", 0)

    turns = [[turn() for _ in range(flags.group)] for _ in range(flags.prompts)]
    return train_step.make_batch(flags, shapes.prompts(flags, 0), turns)


def make_gradient(
    flags: argparse.Namespace, config: models.DecoderConfig
) -> Callable[[Params, Batch, LogProbs], Totals]:
    """``(params, batch, facts) -> ((loss, metrics), gradient)``, of all prompts in one micro-batch."""
    method, mesh = recipes.grpo(kl_coefficient=flags.beta), single_device_mesh()
    optimizer = learner.make_optimizer(optax.constant_schedule(flags.lr))
    shardings = learner.state_shardings(
        abstract_params(config), optimizer, method.init(), models.logical_axes(config), mesh
    )
    passes = train_step.make_passes(flags, config)
    bound = bind(method, passes, shardings, updates_per_batch=1, epochs=1, reuse_policy_as_old=True)

    def gradient(params: Params, batch: Batch, facts: LogProbs) -> Totals:
        credit, state, _ = method.credit(method.init(), facts, batch.rewards, batch.masks)
        measures = open_update(method, batch.sequences, batch.masks, credit).measures
        data = (facts, batch.rollout, credit, batch.masks, measures)
        return bound.gradient(params, state, (batch.sequences, data))

    return gradient


def timed_passes(
    flags: argparse.Namespace, params: Params, batch: Batch, facts: LogProbs, watch: shapes.Stopwatch
) -> tuple[Totals, dict[str, float]]:
    """Compile, run ``--warmup`` and ``--iters`` times; the result and the figures of the JSON line."""
    begun = time.perf_counter()
    lowered = jax.jit(make_gradient(flags, shapes.decoder_config(flags))).lower(params, batch, facts)
    traced = time.perf_counter()
    program = lowered.compile()
    compiled = time.perf_counter()
    totals = None
    for _ in range(flags.warmup + flags.iters):
        totals = None  # one gradient is alive at a time, as in a step
        totals = watch("gradient", partial(program, params, batch, facts))
    memory = program.memory_analysis()
    if memory is None:
        raise RuntimeError("this backend does not say what a compiled program allocates")
    assert totals is not None
    return totals, {
        "trace_s": traced - begun,
        "compile_s": compiled - traced,
        "gradient_s": watch.median("gradient", flags.warmup),
        "gradient_cpu_s": watch.median_cpu("gradient", flags.warmup),
        "flops": train_step.counted_flops(flags, passes_without_gradient=0),
        "temp_mb": memory.temp_size_in_bytes / 2**20,
    }


def main() -> None:
    """Measure and print."""
    flags = shapes.with_flags(train_step.add_flags(shapes.arguments(__doc__)))
    config, watch = shapes.decoder_config(flags), shapes.Stopwatch()
    params = random_params(config)(jax.random.key(0), None)
    batch = shard_batch(random_batch(flags), single_device_mesh())
    # What was sampled stands for the reference: its pass is not what is measured.
    facts = LogProbs(policy=jnp.zeros_like(batch.rollout), reference=batch.rollout)
    _, figures = timed_passes(flags, params, batch, facts, watch)
    shapes.print_line(flags, config, watch, **figures)


if __name__ == "__main__":
    with compilers_memory_returned():
        main()
