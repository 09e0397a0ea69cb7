"""How near a training step and decoding come to the machine's limits, measured in the same process.

    python -m experiments.benchmarks.limits

By default a model of 60.6 million parameters with 64 members at once. Prints one JSON line:

- ``train_step_share``: counted work of a step (gradient, and reference unless ``--beta`` is 0; recomputation is not
  work) at the measured rate of matrix products, over the time it took, AdamW included;
- ``decode_over_limit``: time of decoding over the larger of its arithmetic and memory traffic at the measured rates.

Decoding is the difference of a rollout of ``--gen`` tokens and one of a single token on the same sampler, so prefill
and the first token are in neither its time nor its work. The machine is measured before and after; its better rates
count.
"""

import argparse
from functools import partial

from experiments.benchmarks import machine, rollout, shapes, train_step, work
from rlagents.compilation import compilers_memory_returned
from rlagents.sampling import Sampler
from rlagents.sharding import shard_batch, single_device_mesh


def arguments() -> argparse.ArgumentParser:
    """The shared flags, with a larger model."""
    parser = train_step.add_flags(rollout.add_flags(shapes.arguments(__doc__)))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(layers=9, d=640, heads=10, kv_heads=5, ffn=2560, vocab=8192, warmup=1, iters=3)
    return parser


def timed_first_tokens(flags: argparse.Namespace, sampler: Sampler, watch: shapes.Stopwatch) -> None:
    """The same rollouts, of one token."""
    for number in range(flags.warmup + flags.iters):
        asked = shapes.prompts(flags, number)
        watch("first token", partial(sampler.generate, asked, 1, members=flags.group))


def decode_figures(flags: argparse.Namespace, watch: shapes.Stopwatch, rates: machine.Machine) -> dict[str, float]:
    """Of the JSON line."""
    counted = work.decode(
        shapes.decoder_config(flags),
        prompts=flags.prompts,
        group=flags.group,
        prefix=flags.prompt_len - 1,
        first=1,
        last=flags.gen - 1,
    )
    first = watch.median("first token", flags.warmup)
    seconds = watch.median("rollout", flags.warmup) - first
    arithmetic, memory = counted.flops / rates.flops_per_second, counted.bytes / rates.bytes_per_second
    return {
        "first_token_s": first,
        "decode_s": seconds,
        "decode_tok_s": flags.prompts * flags.group * (flags.gen - 1) / seconds,
        "decode_arithmetic_s": arithmetic,
        "decode_memory_s": memory,
        "decode_over_limit": seconds / max(arithmetic, memory),
    }


def main() -> None:
    """Measure and print."""
    parser = arguments()
    flags = shapes.with_flags(parser)
    if flags.gen < 2:
        parser.error("--gen must be 2 or more: the first token is not counted as decoding")
    config, watch, before = shapes.decoder_config(flags), shapes.Stopwatch(), machine.measure()
    training = train_step.make_training(flags, config)
    sampler = rollout.make_sampler(flags, config, training.params)
    asked, turns = rollout.timed_rollouts(flags, sampler, watch)
    timed_first_tokens(flags, sampler, watch)
    batch = shard_batch(train_step.make_batch(flags, asked, turns), single_device_mesh())
    train_step.timed_steps(flags, training, batch, watch)
    rates = before.at_best(machine.measure())
    figures = train_step.step_figures(flags, watch)
    shapes.print_line(
        flags,
        config,
        watch,
        matrix_gflops=rates.flops_per_second / 1e9,
        read_gb_s=rates.bytes_per_second / 1e9,
        copy_gb_s=rates.copied_bytes_per_second / 1e9,
        train_step_s=figures["train_step_s"],
        train_step_share=train_step.matrix_share(flags, figures["train_step_s"], rates),
        rollout_s=watch.median("rollout", flags.warmup),
        **decode_figures(flags, watch, rates),
    )


if __name__ == "__main__":
    with compilers_memory_returned():
        main()
