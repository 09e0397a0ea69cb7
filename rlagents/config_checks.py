"""What a config has to be for a run to get through: all that can be seen before the first step is refused here.

Every function raises ValueError with one line that names the key, what it is and what it should be. A mistake that is
found only when the first batch is collated, or after the warm-up, costs the time until then.
"""

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

from rlagents.argument_checks import check_flag, check_whole, is_number, is_whole
from rlagents.config_sections import ABSENT, WARM_UP_SECTIONS, found, keys_of, value_of
from rlagents.data.streams import MAX_SEED
from rlagents.experiment import Config
from rlagents.problems import Problems
from rlagents.rollouts.members import Limits

_CACHE_WANTED = "give a folder, relative to the workdir or absolute, or '' to keep no compiled programs."
_MOST_COUNTED = 2**31 - 1
"""Steps and updates are counted in 32 bits, and no shape is larger."""

_MOST_OVER_SAMPLE = 100
"""Beyond it a number is a slip: a draw is one batch, and ``rl.max_draws`` draws again."""


def check_counts(config: Config) -> None:
    """Counts are whole numbers in their ranges, and the seed is in ``[0, 2**32)``, as random keys need it.

    Of keys that are not there ``config_sections`` tells.
    """
    problems = Problems()
    for check, names in _value_checks(config).items():
        for name in names:
            value = found(config, name)
            if value is not ABSENT:
                problems.ask(check, name, value)
    problems.refuse()


def check_representable(name: str, value: Any) -> None:
    """No key is NaN, whatever it is for (a stored config would not even be equal to itself), or beyond 64 bits."""
    for each in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(each, float) and math.isnan(each):
            raise ValueError(f"{name} is {value!r}; give a number.")
        if is_whole(each) and abs(each) >= 2**63:
            raise ValueError(f"{name} is {value!r}; give a whole number below 2**63.")


def _value_checks(config: Config) -> dict[Callable[[str, Any], None], Iterable[str]]:
    """Which keys each check is for."""
    positive = ["rl.group_size", "rl.prompts_per_step", "rl.prompts_per_micro_batch", "rl.epochs", "rl.max_draws"]
    positive += ["rl.updates_per_batch", "evaluation.samples_per_task", "evaluation.num_tasks"]
    positive += [f"{name}.{key}" for name in ("mesh", "limits", "evaluation.limits") for key in keys_of(config, name)]
    if found(config, "supervised.steps"):
        positive += [f"supervised.{name}" for name in WARM_UP_SECTIONS["supervised"]]
    return {
        _check_seed: ["seed"],
        _check_from_0: ["rl.steps", "supervised.steps", "evaluation.every_steps"],
        check_size: positive,
        _check_1_or_none: ["rl.members_per_micro_batch"],
        _check_rollouts_ahead: ["rl.rollouts_ahead"],
        _check_pack_micro_batches: ["rl.pack_micro_batches"],
        _check_over_sample: ["rl.over_sample"],
        check_flag: ["rl.stop_early", "rl.reuse_policy_as_old", "rl.wait_for_tools", "buckets.share_prefix"],
    }


def _check_seed(name: str, value: Any) -> None:
    if not is_whole(value) or not 0 <= value < MAX_SEED:
        raise ValueError(f"{name} is {value!r}; give a whole number in [0, 2**32).")


def _check_from_0(name: str, value: Any) -> None:
    check_whole(name, value, 0)
    _check_counted(name, value)


def check_size(name: str, value: Any) -> None:
    """It is a whole number from 1 on, and no more than counts and shapes have room for."""
    check_whole(name, value, 1)
    _check_counted(name, value)


def _check_1_or_none(name: str, value: Any) -> None:
    if value is not None:
        check_size(name, value)


def _check_counted(name: str, value: int) -> None:
    """It is no more than counts and shapes have room for."""
    if value > _MOST_COUNTED:
        raise ValueError(f"{name} is {value}; give a whole number below 2**31.")


def _check_rollouts_ahead(name: str, value: Any) -> None:
    if not is_whole(value) or value not in (0, 1):
        raise ValueError(
            f"{name} is {value!r}; give 0 (every batch is sampled with the weights that learn from it) or 1 (it is "
            "sampled while the update before it runs, with weights one version behind)."
        )


def _check_pack_micro_batches(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(
            f"{name} is {value!r}; give True (micro-batches of prompts of like length, each padded to its own bucket) "
            "or False (all padded as the batch is)."
        )


def _check_over_sample(name: str, value: Any) -> None:
    if not is_number(value) or not 1 <= value <= _MOST_OVER_SAMPLE:
        raise ValueError(
            f"{name} is {value!r}; give a number >= 1 (1.0 draws no more than is trained on) and <= "
            f"{_MOST_OVER_SAMPLE}."
        )


def check_compilation_cache(config: Config, workdir: Path) -> None:
    """``compilation_cache`` is empty, or the name of a folder that is there or can be made."""
    folder = config.compilation_cache
    if not isinstance(folder, str):
        raise ValueError(f"compilation_cache is {folder!r}; {_CACHE_WANTED}")
    if not folder:
        return
    path = (workdir / folder).resolve()
    there = next(part for part in (path, *path.parents) if part.exists())
    if not there.is_dir():
        raise ValueError(f"compilation_cache is {folder!r}, but {there} is no folder; {_CACHE_WANTED}")
    if there != path and not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"compilation_cache is {folder!r}, but nothing can be made in {there}; {_CACHE_WANTED}")


def check_division(config: Config, prompt_shards: int) -> None:
    """Batches can be cut as the learner cuts them, with prompts split over ``prompt_shards`` parts of the mesh.

    Of ``prompts_per_step`` prompts each update takes ``prompts_per_step / updates_per_batch``, in micro-batches of
    ``prompts_per_micro_batch``, each split over the mesh; of each group ``members_per_micro_batch`` at a time.
    They are packed by length in one process only: each knows no lengths but those of its own prompts.
    """
    problems = Problems()
    for check in (_check_processes, _check_members):
        problems.ask(check, config.rl)
    problems.ask(_check_updates, config.rl, prompt_shards)
    if config.supervised.steps:
        supervised = config.supervised
        whole = supervised.prompts_per_step
        problems.ask(_check_micro_batch, "supervised", supervised, "supervised.prompts_per_step", whole, prompt_shards)
    problems.refuse()


def check_trace_buckets(config: Config) -> None:
    """The warm-up's buckets are lengths; ``experiment_checks`` looks whether a demonstration fits them."""
    problems = Problems()
    if "share_prefix" in config.trace_buckets:
        problems.ask(check_flag, "trace_buckets.share_prefix", config.trace_buckets.share_prefix)
    for axis in ("prefix", "member", "turn"):
        problems.ask(_largest, config, f"trace_buckets.{axis}_buckets")
    problems.refuse()


def check_buckets(config: Config, limits: Limits) -> None:
    """The longest trajectory that ``limits`` allow fits the largest buckets.

    ``prefix = prompt - 1 <= max_prompt_tokens - 1``: the prompt's last token is each member's own;
    ``member = 1 + response <= 1 + max_response_tokens``, and never more than ``sampler.max_member_tokens``;
    ``turns <= max_turns``. (Members whose messages differ hold more of the prompt; only their rollout shows how much.)
    With ``buckets.share_prefix=False`` the prefix, too, is each member's own.
    """
    member = min(limits.max_response_tokens + 1, config.sampler.max_member_tokens)
    of_member = "limits.max_response_tokens + 1, or sampler.max_member_tokens if that is less"
    prefix, of_prefix = limits.max_prompt_tokens - 1, "limits.max_prompt_tokens - 1"
    if not config.buckets.share_prefix:
        member, of_member, prefix = member + prefix, f"{of_member}, and {of_prefix}", 0
    problems = Problems()
    for name, longest, limit in (
        ("prefix", prefix, of_prefix),
        ("member", member, of_member),
        ("turn", limits.max_turns, "limits.max_turns"),
    ):
        largest = problems.ask(_largest, config, f"buckets.{name}_buckets")
        if largest is not None and longest > largest:
            problems.note(
                f"the largest of buckets.{name}_buckets is {largest}, but a rollout may need {longest} ({limit}); "
                "give a larger bucket or a smaller limit."
            )
    problems.refuse()


def check_split(name: str, size: int, prompt_shards: int) -> None:
    """``size`` of them can be split over ``prompt_shards`` parts of the mesh."""
    if size % prompt_shards:
        raise ValueError(
            f"{name} is {size}, which cannot be split over {prompt_shards} parts of the mesh (mesh.data x mesh.fsdp); "
            f"give a multiple of {prompt_shards}."
        )


def _check_processes(options: Any) -> None:
    if options.pack_micro_batches and jax.process_count() > 1:
        raise ValueError(
            f"rl.pack_micro_batches is True, but {jax.process_count()} processes train, which would have to agree on "
            "one plan; set rl.pack_micro_batches=False."
        )


def _check_members(options: Any) -> None:
    if options.members_per_micro_batch is not None:
        _check_divides(
            "rl.members_per_micro_batch", options.members_per_micro_batch, "rl.group_size", options.group_size
        )


def _check_updates(options: Any, prompt_shards: int) -> None:
    _check_divides("rl.updates_per_batch", options.updates_per_batch, "rl.prompts_per_step", options.prompts_per_step)
    whole = options.prompts_per_step // options.updates_per_batch
    _check_micro_batch("rl", options, "the prompts of an update", whole, prompt_shards)
    updates = options.steps * options.epochs * options.updates_per_batch
    if options.steps <= _MOST_COUNTED < updates:
        raise ValueError(
            f"rl.steps is {options.steps}, each of rl.epochs x rl.updates_per_batch = "
            f"{options.epochs * options.updates_per_batch} updates: {updates} updates; give fewer, below 2**31."
        )


def _check_divides(name: str, part: int, whole_name: str, whole: int) -> None:
    if whole > 0 and whole % part:  # of a whole below 1 it is said that it is none
        raise ValueError(f"{name} is {part}, which does not divide {whole_name}, {whole}; give a divisor of {whole}.")


def _check_micro_batch(section: str, options: Any, whole_name: str, whole: int, prompt_shards: int) -> None:
    name, size = f"{section}.prompts_per_micro_batch", options.prompts_per_micro_batch
    _check_divides(name, size, whole_name, whole)
    check_split(name, size, prompt_shards)


def _largest(config: Config, name: str) -> int:
    buckets = value_of(config, name)
    if (
        not isinstance(buckets, (tuple, list))
        or not buckets
        or not all(is_whole(size) and size > 0 for size in buckets)
    ):
        raise ValueError(f"{name} is {buckets!r}; give at least one length, each a whole number >= 1.")
    if max(buckets) > _MOST_COUNTED:
        raise ValueError(f"{name} is {buckets!r}; give lengths below 2**31.")
    return max(buckets)
