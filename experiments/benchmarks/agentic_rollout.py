"""Time of a rollout of many turns with tools: random weights, given observations, a tool that only takes its time.

    python -m experiments.benchmarks.agentic_rollout --prompts 4 --prompt-len 1025 --compare reprefill reprefill-exact
    python -m experiments.benchmarks.agentic_rollout --prompt-len 65 --members 128 --in-flight 64 --decode-rows 32 \
        --tool-seconds 0.5 --compare slow-tool one-block

Every member has ``--turns`` turns of ``--turn-tokens`` tokens, none of which stops a turn, and after each but the last
an observation of ``--observation-tokens``. Mode ``reprefill`` is the plain loop that many libraries run: at each turn
the whole history of each member is a prompt of its own, computed anew, here with our own sampler, made for the longest
history; all members wait for the slowest tool. In ``reprefill-exact`` every turn has a sampler of its own, made for its
histories, so that nothing is padded; the better of the two is what counts. ``--compare`` runs variants in turn in one
process and adds ratios: of wall time, and of the seconds that the process kept cores busy, which tell more where others
use the machine too, but nothing of time spent waiting for tools. Prints one JSON line, whose ``mode`` names what ran.
"""

import argparse
import heapq
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import jax
import numpy as np

from experiments.benchmarks import rollout, shapes
from rlagents import models
from rlagents.sampling import Domain, Sampler, StreamKey
from rlagents.types import Params

VARIANTS = ("ours", "reprefill", "reprefill-exact", "slow-tool", "one-block")
"""As the flags say; histories computed anew; the same, unpadded; a tool of ``--tool-seconds``; one block in flight."""


def add_flags(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """What a rollout of many turns has besides the shared flags."""
    count, seconds = shapes.at_least(0), shapes.at_least(0.0, float)
    for name, default in (
        ("turns", 6),
        ("turn-tokens", 40),
        ("observation-tokens", 80),
        ("block-steps", 40),
    ):
        parser.add_argument(f"--{name}", type=shapes.at_least(1), default=default)
    parser.add_argument("--blocks-in-flight", type=int, choices=(1, 2), default=2)
    parser.add_argument("--extend-rows", type=count, default=0, help="members fed at once; 0 is --decode-rows")
    parser.add_argument("--members", type=count, default=0, help="in all; 0 is --prompts x --group")
    parser.add_argument("--in-flight", type=count, default=0, help="members with KV at once; 0 is all of them")
    parser.add_argument("--decode-rows", type=count, default=0, help="members decoded at once; 0 is all in flight")
    parser.add_argument("--tool-seconds", type=seconds, default=0.0)
    parser.add_argument("--host-seconds", type=seconds, default=0.0, help="what the host does after each block, asleep")
    variants = parser.add_mutually_exclusive_group()
    variants.add_argument("--mode", choices=VARIANTS[:3], default="ours")
    variants.add_argument("--compare", nargs="+", choices=VARIANTS[1:], default=[], help="beside ours, not with --mode")
    return parser


def sized(flags: argparse.Namespace) -> argparse.Namespace:
    """With the numbers that 0 stood for, and in ``mode`` what runs.

    Raises ValueError where groups are not whole, where more rows are asked than there are, and where the slow tool
    takes no time.
    """
    flags.members = flags.members or flags.prompts * flags.group
    flags.prompts = flags.members // flags.group
    flags.in_flight = flags.in_flight or flags.members
    flags.decode_rows = flags.decode_rows or flags.in_flight
    flags.extend_rows = flags.extend_rows or flags.decode_rows
    if flags.members % flags.group or flags.in_flight % flags.group:
        raise ValueError(
            f"found --members {flags.members} and --in-flight {flags.in_flight}, expected whole groups of --group "
            f"{flags.group}"
        )
    for name, whole in (("in_flight", "members"), ("decode_rows", "in_flight"), ("extend_rows", "in_flight")):
        most = getattr(flags, whole)
        if getattr(flags, name) > most:
            flag, whole_flag = (f"--{text.replace('_', '-')}" for text in (name, whole))
            raise ValueError(f"found {flag} {getattr(flags, name)}, expected {most} at most, which is {whole_flag}")
    if "slow-tool" in flags.compare and not flags.tool_seconds:
        raise ValueError("found --compare slow-tool with --tool-seconds 0, expected more: the tool would be instant")
    flags.mode = " ".join(dict.fromkeys(["ours", *flags.compare])) if flags.compare else flags.mode
    return flags


def make_sampler(flags: argparse.Namespace, params: Params, *, blocks_in_flight: int) -> Sampler:
    """Holds ``--in-flight`` members, whose groups share their prompts."""
    return rollout.endless_sampler(
        flags,
        shapes.decoder_config(flags),
        params,
        num_groups=flags.in_flight // flags.group,
        num_rows=flags.in_flight,
        decode_rows=flags.decode_rows,
        max_prefix_tokens=flags.prompt_len - 1,
        max_member_tokens=1 + flags.turns * (flags.turn_tokens + flags.observation_tokens),
        extend_rows=flags.extend_rows,
        extend_chunk_tokens=flags.observation_tokens,
        largest_group=flags.group,
        blocks_in_flight=blocks_in_flight,
    )


def continue_turns(flags: argparse.Namespace, sampler: Sampler, seed: int, *, tool_seconds: float) -> int:
    """Every turn goes on from the KV of those before; nobody waits for another's tool. Returns tokens sampled."""
    rng = np.random.default_rng(seed)
    waiting = deque(enumerate(shapes.prompts(flags, seed)))
    groups, turns_left, at_tool = {}, {}, []
    sampled = decoding = 0
    while waiting or groups:
        while waiting and sampler.can_open(flags.group):
            stream, prompt = waiting.popleft()
            handle = sampler.open_group([prompt] * flags.group, StreamKey(Domain.TRAIN, 0, seed, stream))
            groups[stream] = handle
            for row in handle.rows:
                turns_left[row] = flags.turns
                sampler.request(row, flags.turn_tokens)
                decoding += 1
        while at_tool and at_tool[0][0] <= time.perf_counter():
            row = heapq.heappop(at_tool)[1]
            sampler.append(row, _observation(flags, rng))
            sampler.request(row, flags.turn_tokens)
            decoding += 1
        if not decoding:
            time.sleep(max(0.0, at_tool[0][0] - time.perf_counter()))
        turns = sampler.step()
        time.sleep(flags.host_seconds)
        for turn in turns:
            sampled, decoding = sampled + len(turn.token_ids), decoding - 1
            turns_left[turn.row] -= 1
            if turns_left[turn.row]:
                heapq.heappush(at_tool, (time.perf_counter() + tool_seconds, turn.row))
        for stream in [stream for stream, group in groups.items() if not any(turns_left[row] for row in group.rows)]:
            sampler.close_group(groups.pop(stream))
    return sampled


def make_plain_sampler(flags: argparse.Namespace, params: Params, *, turns: int) -> Sampler:
    """Takes the histories of so many turns as prompts, and shares nothing."""
    return rollout.endless_sampler(
        flags,
        shapes.decoder_config(flags),
        params,
        num_groups=flags.decode_rows,
        num_rows=flags.decode_rows,
        decode_rows=flags.decode_rows,
        max_prefix_tokens=flags.prompt_len - 1 + turns * (flags.turn_tokens + flags.observation_tokens),
        max_member_tokens=flags.turn_tokens + 1,
    )


def compute_histories_anew(
    flags: argparse.Namespace, samplers: Sequence[Sampler], seed: int, *, tool_seconds: float
) -> int:
    """Every turn begins with the whole history of every member as its prompt; a sampler a turn. Returns tokens."""
    rng = np.random.default_rng(seed)
    histories = [list(prompt) for prompt in shapes.prompts(flags, seed) for _ in range(flags.group)]
    sampled = 0
    for number, sampler in enumerate(samplers):
        for history, (turn,) in zip(histories, sampler.generate(histories, flags.turn_tokens, seed=seed)):
            sampled += len(turn.token_ids)
            history += turn.token_ids + _observation(flags, rng)
        if number + 1 < flags.turns:
            time.sleep(tool_seconds)
    return sampled


def _observation(flags: argparse.Namespace, rng: np.random.Generator) -> list[int]:
    return rng.integers(1, flags.vocab, flags.observation_tokens).tolist()


def make_variant(name: str, flags: argparse.Namespace, params: Params, tool_seconds: float) -> Callable[[int], int]:
    """``seed -> tokens sampled``."""
    if name.startswith("reprefill"):
        if name == "reprefill":
            samplers = [make_plain_sampler(flags, params, turns=flags.turns - 1)] * flags.turns
        else:
            samplers = [make_plain_sampler(flags, params, turns=turns) for turns in range(flags.turns)]
        return partial(compute_histories_anew, flags, samplers, tool_seconds=tool_seconds)
    sampler = make_sampler(flags, params, blocks_in_flight=1 if name == "one-block" else flags.blocks_in_flight)
    return partial(continue_turns, flags, sampler, tool_seconds=tool_seconds)


def main() -> None:
    """Measure every variant in turn, ``--warmup`` and ``--iters`` times, and print."""
    parser = add_flags(shapes.arguments(__doc__))
    try:
        flags = sized(shapes.with_flags(parser))
    except ValueError as error:
        parser.error(str(error))
    config, watch = shapes.decoder_config(flags), shapes.Stopwatch()
    params = jax.jit(lambda key: models.init_params(config, key))(jax.random.key(0))
    names = flags.mode.split()
    # Compared with a slow tool, all others have an instant one.
    instant = "slow-tool" in names
    variants = {
        name: make_variant(name, flags, params, 0.0 if instant and name != "slow-tool" else flags.tool_seconds)
        for name in names
    }
    tokens = flags.members * flags.turns * flags.turn_tokens
    for seed in range(flags.warmup + flags.iters):
        for name, variant in variants.items():
            sampled = watch(name, partial(variant, seed))
            assert sampled == tokens, f"{name} sampled {sampled} tokens, expected {tokens}"
    seconds = {name: watch.median(name, flags.warmup) for name in names}
    figures = {f"{name}_s": value for name, value in seconds.items()}
    figures |= {f"{name}_tok_s": tokens / value for name, value in seconds.items()}
    figures |= {f"{name}_over_{names[0]}_s": seconds[name] / seconds[names[0]] for name in names[1:]}
    busy = {name: watch.median_cpu(name, flags.warmup) for name in names}
    figures |= {f"{name}_over_{names[0]}_cpu_s": busy[name] / busy[names[0]] for name in names[1:]}
    shapes.print_line(flags, config, watch, **figures)


if __name__ == "__main__":
    main()
