"""Time of a rollout: one turn of ``--gen`` tokens for every member of every prompt's group, random weights.

    python -m experiments.benchmarks.rollout --prompts 8 --group 8 --prompt-len 64 --gen 128

No token stops a turn, so every sequence runs to its end. Prints one JSON line.
"""

import argparse
from functools import partial
from typing import Any

import jax

from experiments.benchmarks import machine, shapes, work
from rlagents import models
from rlagents.machinery import random_params
from rlagents.sampling import Sampler, SamplingRule, Turn
from rlagents.types import Params


def endless_sampler(flags: argparse.Namespace, config: models.DecoderConfig, params: Params, **sizes: Any) -> Sampler:
    """No token and no text stops a turn; ``sizes`` are the sampler's own arguments."""
    return Sampler(
        config,
        params,
        decode_text=lambda token_ids: "",
        stop_token_ids=[],
        block_steps=flags.block_steps,
        rule=SamplingRule(temperature=flags.temperature),
        **sizes,
    )


def make_sampler(flags: argparse.Namespace, config: models.DecoderConfig, params: Params) -> Sampler:
    """All members at once, and all short prefixes."""
    return endless_sampler(
        flags,
        config,
        params,
        num_groups=flags.prompts,
        num_rows=flags.prompts * flags.group,
        decode_rows=flags.prompts * flags.group,
        prefill_groups=flags.prompts if flags.prompts * flags.prompt_len <= 1024 else 1,
        max_prefix_tokens=flags.prompt_len - 1,
        max_member_tokens=flags.gen + 1,
        largest_group=flags.group,
    )


def add_flags(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """What only a sampler of ours has."""
    parser.add_argument("--block-steps", type=shapes.at_least(1), default=32)
    return parser


def timed_rollouts(
    flags: argparse.Namespace, sampler: Sampler, watch: shapes.Stopwatch
) -> tuple[list[list[int]], list[list[Turn]]]:
    """``--warmup`` and ``--iters`` rollouts of fresh prompts; returns the last one's prompts and turns."""
    asked, turns = [], []
    for number in range(flags.warmup + flags.iters):
        asked = shapes.prompts(flags, number)
        turns = watch("rollout", partial(sampler.generate, asked, flags.gen, members=flags.group))
    lengths = {len(turn.token_ids) for group in turns for turn in group}
    assert lengths == {flags.gen}, f"turns of {lengths} tokens, expected {flags.gen}"
    return asked, turns


def rollout_figures(flags: argparse.Namespace, watch: shapes.Stopwatch) -> dict[str, float]:
    """Of the JSON line."""
    seconds = watch.median("rollout", flags.warmup)
    return {
        "rollout_first_s": watch.seconds["rollout"][0],
        "rollout_s": seconds,
        "rollout_cpu_s": watch.median_cpu("rollout", flags.warmup),
        "rollout_tok_s": flags.prompts * flags.group * flags.gen / seconds,
    }


def limit_shares(flags: argparse.Namespace, seconds: float, rates: machine.Machine) -> tuple[float, float]:
    """Shares of the matrix-product rate and of the reading rate that a whole rollout of ``seconds`` reaches."""
    counted = work.rollout(
        shapes.decoder_config(flags),
        prompts=flags.prompts,
        group=flags.group,
        prefix=flags.prompt_len - 1,
        sampled=flags.gen,
    )
    return counted.flops / rates.flops_per_second / seconds, counted.bytes / rates.bytes_per_second / seconds


def main() -> None:
    """Measure and print."""
    flags = shapes.with_flags(add_flags(shapes.arguments(__doc__)))
    config, watch = shapes.decoder_config(flags), shapes.Stopwatch()
    params = random_params(config)(jax.random.key(0), None)
    timed_rollouts(flags, make_sampler(flags, config, params), watch)
    shapes.print_line(flags, config, watch, **rollout_figures(flags, watch))


if __name__ == "__main__":
    main()
