"""Which sections and keys a config has to have, and which it may have; ``config_checks`` looks at their values."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from rlagents import sharding
from rlagents.alarms import make_watch
from rlagents.checkpoints import CheckpointOptions
from rlagents.experiment import Config
from rlagents.metrics.run_log import check_logging
from rlagents.model_passes import model_passes
from rlagents.problems import Problems, near_match
from rlagents.rollouts.collate import collate
from rlagents.rollouts.members import Limits
from rlagents.rollouts.pool import ProcessPool
from rlagents.sampling import Sampler, SamplingRule
from rlagents.trajectory_log import TrajectoryOptions
from rlagents.watchdog import check_watchdog

_SECTIONS: dict[str, tuple[str, ...]] = {
    "mesh": (),
    "limits": (),
    "workers": (),
    "rule": (),
    "sampler": ("max_member_tokens",),
    "supervised": ("steps",),
    "rl": (
        "steps",
        "prompts_per_step",
        "group_size",
        "prompts_per_micro_batch",
        "members_per_micro_batch",
        "updates_per_batch",
        "epochs",
        "pack_micro_batches",
        "reuse_policy_as_old",
        "over_sample",
        "max_draws",
        "stop_early",
        "rollouts_ahead",
        "wait_for_tools",
    ),
    "passes": (),
    "buckets": ("prefix_buckets", "member_buckets", "turn_buckets", "share_prefix"),
    "evaluation": ("num_tasks", "samples_per_task", "every_steps", "limits"),
    "checkpoint": (),
    "trajectories": (),
    "alarms": (),
    "logging": (),
    "watchdog": (),
}
WARM_UP_SECTIONS: dict[str, tuple[str, ...]] = {
    "supervised": ("traces", "prompts_per_step", "prompts_per_micro_batch", "batches_per_window"),
    "trace_buckets": ("prefix_buckets", "member_buckets", "turn_buckets"),
}
"""What a run with a warm-up needs besides."""

# Sections that are the keyword arguments of a function, and the arguments that come from elsewhere.
_ARGUMENTS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "mesh": (sharding.make_mesh, ("devices",)),
    "limits": (Limits, ()),
    "evaluation.limits": (Limits, ()),
    "workers": (ProcessPool, ("environment",)),
    "rule": (SamplingRule, ()),
    "passes": (model_passes, ("decoder", "temperature", "members_per_micro_batch")),
    "sampler": (
        Sampler,
        (
            "config",
            "params",
            "decode_text",
            "stop_token_ids",
            "stop_strings",
            "max_prefix_tokens",
            "rule",
            "mesh",
            "largest_group",
            "version",
        ),
    ),
    "checkpoint": (CheckpointOptions, ()),
    "alarms": (make_watch, ()),
    "logging": (check_logging, ()),
    "watchdog": (check_watchdog, ()),
    "buckets": (collate, ("groups", "pad_prompts_to", "named")),
    "trace_buckets": (collate, ("groups", "pad_prompts_to", "named")),
    "trajectories": (TrajectoryOptions, ()),
}


def arguments_of_sections() -> dict[str, dict[str, inspect.Parameter]]:
    """Section -> its keys, where a section is the keyword arguments of a function, with their defaults and kinds."""
    return {
        section: {key: each for key, each in inspect.signature(function).parameters.items() if key not in given}
        for section, (function, given) in _ARGUMENTS.items()
    }


def check_sections(config: Config) -> None:
    """All sections and keys that the programs read are there; those handed on as arguments have no others.

    ``trace_buckets`` and what is read of ``supervised`` beside its steps are needed only where there is a warm-up.
    Raises ConfigError with one line a problem, which names the key and what to do.
    """
    problems = Problems()
    needed = ["seed", *_SECTIONS, "compilation_cache"]
    for name in needed:
        if name not in config:
            problems.note(
                f"the config has no {name}; training needs {', '.join(needed)}: add it in get_config()."
                f"{near_match(name, set(config) - set(needed))}"
            )
    _check_keys(config, {name: keys for name, keys in _SECTIONS.items() if name in config}, problems)
    warms_up = found(config, "supervised.steps")
    if warms_up:
        _check_keys(config, WARM_UP_SECTIONS, problems)
    for name, taken in arguments_of_sections().items():
        section = found(config, name)
        if isinstance(section, (ConfigDict, Mapping)) and (name in _SECTIONS or "." in name or warms_up):
            _check_arguments(name, section, taken, problems)
    problems.refuse()


def value_of(config: Config, name: str) -> Any:
    """What stands under a dotted name."""
    for key in name.split("."):
        config = config[key]
    return config


class _Absent:
    """Nothing stands there; false."""

    def __bool__(self) -> bool:
        return False


ABSENT = _Absent()
"""In place of a value where a key, or a section on the way to it, is not there."""


def found(config: Config, name: str) -> Any:
    """What stands under a dotted name, ``ABSENT`` where nothing does."""
    for key in name.split("."):
        if not isinstance(config, (ConfigDict, Mapping)) or key not in config:
            return ABSENT
        config = config[key]
    return config


def keys_of(config: Config, name: str) -> list[str]:
    """Keys of a section, in order; none where it is missing or no section."""
    section = found(config, name)
    return list(section) if isinstance(section, (ConfigDict, Mapping)) else []


def leaves(config: Config) -> dict[str, Any]:
    """``section.key -> value`` of all that is no section."""
    named: dict[str, Any] = {}
    for key in config:
        value = config[key]
        if isinstance(value, ConfigDict):
            named |= {f"{key}.{name}": leaf for name, leaf in leaves(value).items()}
        else:
            named[key] = value
    return named


def _check_keys(config: Config, sections: Mapping[str, Iterable[str]], problems: Problems) -> None:
    for section, keys in sections.items():
        if section not in config:
            problems.note(f"the config has no {section}, which the warm-up needs; add it, or set supervised.steps=0.")
            continue
        held = config[section]
        if not isinstance(held, (ConfigDict, Mapping)):
            problems.note(f"{section} is {held!r}; it has to be a section of the config, with keys of its own.")
            continue
        for key in keys:
            if key not in held:
                problems.note(
                    f"the config has no {section}.{key}; {section} needs {', '.join(keys)}: add it in get_config()."
                    f"{near_match(key, set(held) - set(keys))}"
                )


def _check_arguments(name: str, section: Any, taken: Mapping[str, inspect.Parameter], problems: Problems) -> None:
    """``section`` holds what is taken as arguments, and nothing else."""
    takes = f"{name} takes {', '.join(taken)}."
    for key, parameter in taken.items():
        if parameter.default is inspect.Parameter.empty and key not in section:
            problems.note(f"the config has no {name}.{key}; {takes}")
    for key in section:
        if key not in taken:
            problems.note(f"{name}.{key} is no known key; {takes}{near_match(key, taken)}")
