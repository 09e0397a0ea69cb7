"""Config sections that are a function's arguments: their values are refused at the start, not where they are used.

Each is checked by what takes it, and named in full: ``sampler.decode_rows``. Every function raises ValueError with one
line that names the key, what it is and what it should be, as those of ``config_checks`` do.
"""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh

from rlagents.alarms import make_watch
from rlagents.argument_checks import check_above, check_flag, check_whole, is_number, is_whole
from rlagents.checkpoints import CheckpointOptions
from rlagents.config_checks import check_size, check_split
from rlagents.config_sections import arguments_of_sections, value_of
from rlagents.experiment import Config
from rlagents.memory import device_memory
from rlagents.metrics.run_log import check_logging
from rlagents.model_passes import model_passes
from rlagents.models import DecoderConfig
from rlagents.models.decoder import empty_kv
from rlagents.problems import Problems
from rlagents.sampling import Sampler, SamplingRule
from rlagents.sampling.pipeline import check_blocks_in_flight
from rlagents.sampling.sizes import Sizes, sizes_of
from rlagents.sharding import prompt_shards
from rlagents.trajectory_log import TrajectoryOptions
from rlagents.watchdog import check_watchdog

_ANY_DECODER = DecoderConfig(
    vocab_size=2, embed_dim=2, mlp_dim=2, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=2, max_positions=2
)


def check_rule(config: Config, *, trains: bool) -> None:
    """The sampling rule is a lawful one; a run that learns by reinforcement samples from a distribution.

    The learner divides logits by the temperature, so 0, the most likely token, is for evaluation alone.
    """
    given, problems = config.rule, Problems()
    for name, fine, expected in (
        ("temperature", is_number, "a number >= 0"),
        ("top_k", _whole_or_none, "a whole number >= 1, or None to keep every token"),
        ("top_p", _number_or_none, "a number in (0, 1], or None to keep every token"),
    ):
        if name in given and not fine(given[name]):
            problems.note(f"rule.{name} is {given[name]!r}; give {expected}.")
    problems.refuse()
    with _named("rule"):
        rule = SamplingRule(**given)
    if trains and config.rl.steps and rule.temperature == 0:
        raise ValueError(
            "rule.temperature is 0, which takes the most likely token: there is nothing to learn from; give a number "
            "> 0 (only rlagents.evaluate takes 0)."
        )


def check_passes(config: Config) -> None:
    """A model, whichever it is, can be run as ``passes`` says."""
    problems = Problems()
    for name, value in _taken(config, "passes").items():
        problems.ask(_named("passes")(model_passes), _ANY_DECODER, 1.0, **{name: value})
    problems.refuse()


def check_sampler(config: Config, prompt_shards: int, *, trains: bool) -> None:
    """A sampler can be made as ``sampler`` says, its groups and rows can be split, and the groups to come fit it.

    What the section leaves out is as in the sampler's own signature.
    """
    taken = _taken(config, "sampler")
    bound = inspect.signature(Sampler).bind_partial(**taken, max_prefix_tokens=0)  # that of the limits
    bound.apply_defaults()
    values = bound.arguments
    problems = Problems()
    problems.ask(_named("sampler")(check_blocks_in_flight), values["blocks_in_flight"])
    for name in ("share_prefix", "few_query_attention"):
        problems.ask(check_flag, f"sampler.{name}", values[name])
    wanted = [field.name for field in dataclasses.fields(Sizes)]
    given = {name: values[name] for name in wanted if name in values}
    for name, size in given.items():
        if name != "max_prefix_tokens" and (name != "extend_rows" or size is not None):
            problems.ask(check_size, f"sampler.{name}", size)
    problems.refuse()
    if len(given) < len(wanted):
        return  # config_sections names what is missing
    with _named("sampler"):
        sizes = sizes_of(**given)
    for name in ("num_groups", "num_rows"):
        problems.ask(check_split, f"sampler.{name}", getattr(sizes, name), prompt_shards)
    if not values["share_prefix"]:
        names = ["evaluation.limits.max_prompt_tokens", *(["limits.max_prompt_tokens"] if trains else [])]
        whole = [name for name in names if is_whole(value_of(config, name))]
        if whole and value_of(config, name := max(whole, key=partial(value_of, config))) >= sizes.max_member_tokens:
            longest = value_of(config, name)
            problems.note(
                f"sampler.share_prefix is False, so that a member holds its whole prompt, of at most {longest} "
                f"tokens ({name}); sampler.max_member_tokens is {sizes.max_member_tokens} and leaves no room for a "
                f"turn. Give sampler.max_member_tokens > {longest}, best with room for the response too."
            )
    for name in ("evaluation.samples_per_task", *(["rl.group_size"] if trains and config.rl.steps else [])):
        members = value_of(config, name)
        if is_whole(members) and members > sizes.num_rows:
            problems.note(
                f"{name} is {members}, but sampler.num_rows is {sizes.num_rows}, so that no group ever fits; give "
                f"sampler.num_rows >= {members}, or a smaller group."
            )
    problems.refuse()


def check_sampler_memory(config: Config, decoder: DecoderConfig, mesh: Mesh, max_prefix_tokens: int) -> None:
    """The sampler's keys and values fit the memory that there is, with nothing else in it.

    ``layers x kv_heads x head_dim x 2`` numbers a token, for ``num_groups x max_prefix_tokens`` tokens of prefixes and
    ``num_rows x max_member_tokens`` of members; groups and rows are split over data x fsdp, heads over tensor where it
    divides them.
    """
    one = jax.eval_shape(lambda: empty_kv(decoder, 1, 1))
    a_token = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one))
    given = config.sampler
    prefix_tokens = max_prefix_tokens if given.get("share_prefix", True) else 0
    tokens = given.num_groups * prefix_tokens + given.num_rows * given.max_member_tokens
    tensor = mesh.shape["tensor"]
    parts = prompt_shards(mesh) * (tensor if decoder.num_kv_heads % tensor == 0 else 1)
    needed, (there, whose) = a_token * tokens // parts, device_memory()
    if needed > there:
        of_devices = f" for each of {len(jax.local_devices())} devices" if len(jax.local_devices()) > 1 else ""
        raise ValueError(
            f"sampler.num_rows is {given.num_rows}, of {given.max_member_tokens} tokens each, and sampler.num_groups "
            f"is {given.num_groups}, of {prefix_tokens}: their keys and values take {needed / 1e9:.1f} GB{of_devices}, "
            f"and {whose} has {there / 1e9:.1f} GB; give smaller numbers."
        )


def check_workers(config: Config) -> None:
    """Times are numbers above 0, sizes and the number of workers whole numbers from 1 on, retries from 0 on."""
    problems = Problems()
    for name, value in _taken(config, "workers").items():
        if name.endswith("_seconds"):
            problems.ask(check_above, f"workers.{name}", value, 0)
        elif name != "rules":
            problems.ask(check_whole, f"workers.{name}", value, 0 if name == "max_retries" else 1)
    problems.refuse()


def _taken(config: Config, section: str) -> dict[str, Any]:
    """What of a section is an argument; ``config_sections`` names what is not."""
    known = arguments_of_sections()[section]
    return {name: value for name, value in config[section].items() if name in known}


def check_watching(config: Config) -> None:
    """Alarms, logs and the watchdog can be made as their sections say."""
    problems = Problems()
    checks: dict[str, Callable[..., Any]] = {
        "alarms": make_watch,
        "logging": check_logging,
        "trajectories": TrajectoryOptions,
        "watchdog": check_watchdog,
    }
    for section, check in checks.items():
        for name, value in _taken(config, section).items():
            problems.ask(_named(section)(check), **{name: value})
    problems.refuse()


def _whole_or_none(value: Any) -> bool:
    return value is None or is_whole(value)


def _number_or_none(value: Any) -> bool:
    return value is None or is_number(value)


@contextlib.contextmanager
def _named(section: str) -> Iterator[None]:
    """What is said of an argument, which begins with its name, is said of the key of ``section`` that gave it."""
    try:
        yield
    except (ValueError, ModuleNotFoundError) as error:
        raise ValueError(f"{section}.{error}") from error


def check_checkpoint(config: Config) -> None:
    """Checkpoints are kept by counts that are counts; the best can be told only where steps are evaluated."""
    problems, given = Problems(), _taken(config, "checkpoint")
    for name, value in given.items():
        problems.ask(CheckpointOptions, **{"every_steps": 1, name: value})
    problems.refuse()
    if given.get("keep_best") and not config.evaluation.every_steps:
        raise ValueError(
            f"checkpoint.keep_best is {given['keep_best']}, but evaluation.every_steps is 0, so no step but the first "
            "and the last is evaluated; set evaluation.every_steps, or checkpoint.keep_best=0."
        )
