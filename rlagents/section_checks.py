"""Config sections that are a function's arguments: their values are refused at the start, not where they are used.

Each is checked by what takes it, and named in full: ``sampler.decode_rows``. Every function raises ValueError with one
line that names the key, what it is and what it should be, as those of ``config_checks`` do.
"""

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

from rlagents.argument_checks import check_above, check_flag, check_whole, is_number, is_whole
from rlagents.checkpoints import CheckpointOptions
from rlagents.config_checks import check_split
from rlagents.config_sections import value_of
from rlagents.experiment import Config
from rlagents.model_passes import model_passes
from rlagents.models import DecoderConfig
from rlagents.sampling import Sampler, SamplingRule
from rlagents.sampling.pipeline import check_blocks_in_flight
from rlagents.sampling.sizes import Sizes, sizes_of
from rlagents.trajectory_log import TrajectoryOptions


def check_rule(config: Config, *, trains: bool) -> None:
    """The sampling rule is a lawful one; a run that learns by reinforcement samples from a distribution.

    The learner divides logits by the temperature, so 0, the most likely token, is for evaluation alone.
    """
    given = config.rule
    for name, fine, expected in (
        ("temperature", is_number, "a number >= 0"),
        ("top_k", _whole_or_none, "a whole number >= 1, or None to keep every token"),
        ("top_p", _number_or_none, "a number in (0, 1], or None to keep every token"),
    ):
        if name in given and not fine(given[name]):
            raise ValueError(f"rule.{name} is {given[name]!r}; give {expected}.")
    with _named("rule"):
        rule = SamplingRule(**given)
    if trains and config.rl.steps and rule.temperature == 0:
        raise ValueError(
            "rule.temperature is 0, which takes the most likely token: there is nothing to learn from; give a number "
            "> 0 (only rlagents.evaluate takes 0)."
        )


def check_passes(config: Config, decoder: DecoderConfig) -> None:
    """The model can be run as ``passes`` says."""
    with _named("passes"):
        model_passes(decoder, 1.0, **config.passes)


def check_sampler(config: Config, prompt_shards: int, *, trains: bool) -> None:
    """A sampler can be made as ``sampler`` says, its groups and rows can be split, and the groups to come fit it.

    What the section leaves out is as in the sampler's own signature.
    """
    bound = inspect.signature(Sampler).bind_partial(**config.sampler, max_prefix_tokens=0)  # that of the limits
    bound.apply_defaults()
    values = bound.arguments
    with _named("sampler"):
        check_blocks_in_flight(values["blocks_in_flight"])
        for name in ("share_prefix", "few_query_attention"):
            check_flag(name, values[name])
        sizes = sizes_of(**{field.name: values[field.name] for field in dataclasses.fields(Sizes)})
        for name in ("num_groups", "num_rows"):
            check_split(name, getattr(sizes, name), prompt_shards)
    if not values["share_prefix"]:
        for name in ("evaluation.limits.max_prompt_tokens", *(["limits.max_prompt_tokens"] if trains else [])):
            longest = value_of(config, name)
            if is_whole(longest) and longest >= sizes.max_member_tokens:
                raise ValueError(
                    f"sampler.share_prefix is False, so that a member holds its whole prompt, of at most {longest} "
                    f"tokens ({name}); sampler.max_member_tokens is {sizes.max_member_tokens} and leaves no room for a "
                    f"turn. Give sampler.max_member_tokens > {longest}, best with room for the response too."
                )
    for name in ("evaluation.samples_per_task", *(["rl.group_size"] if trains and config.rl.steps else [])):
        members = value_of(config, name)
        if members > sizes.num_rows:
            raise ValueError(
                f"{name} is {members}, but sampler.num_rows is {sizes.num_rows}, so that no group ever fits; give "
                f"sampler.num_rows >= {members}, or a smaller group."
            )


def check_workers(config: Config) -> None:
    """Timeouts are numbers above 0, sizes and the number of workers whole numbers from 1 on."""
    for name, value in config.workers.items():
        if name.endswith("_seconds"):
            check_above(f"workers.{name}", value, 0)
        elif name != "rules":
            check_whole(f"workers.{name}", value, 1)


def check_trajectories(config: Config) -> None:
    """How much of the trajectories is logged can be told."""
    with _named("trajectories"):
        TrajectoryOptions(**config.trajectories)


def _whole_or_none(value: Any) -> bool:
    return value is None or is_whole(value)


def _number_or_none(value: Any) -> bool:
    return value is None or is_number(value)


@contextlib.contextmanager
def _named(section: str) -> Iterator[None]:
    """What is said of an argument, which begins with its name, is said of the key of ``section`` that gave it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{section}.{error}") from error


def check_checkpoint(config: Config) -> None:
    """Checkpoints are kept by counts that are counts; the best can be told only where steps are evaluated."""
    options = CheckpointOptions(**config.checkpoint)
    if options.keep_best and not config.evaluation.every_steps:
        raise ValueError(
            f"checkpoint.keep_best is {options.keep_best}, but evaluation.every_steps is 0, so no step but the first "
            "and the last is evaluated; set evaluation.every_steps, or checkpoint.keep_best=0."
        )
