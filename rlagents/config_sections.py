"""Which sections and keys a config has to have, and which it may have; ``config_checks`` looks at their values."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from rlagents import sharding
from rlagents.checkpoints import CheckpointOptions
from rlagents.experiment import Config
from rlagents.model_passes import model_passes
from rlagents.rollouts.collate import collate
from rlagents.rollouts.members import Limits
from rlagents.rollouts.pool import ProcessPool
from rlagents.sampling import Sampler, SamplingRule
from rlagents.trajectory_log import TrajectoryOptions

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
    "buckets": (collate, ("groups", "pad_prompts_to", "named")),
    "trace_buckets": (collate, ("groups", "pad_prompts_to", "named")),
    "trajectories": (TrajectoryOptions, ()),
}


def check_sections(config: Config) -> None:
    """All sections and keys that the programs read are there; those handed on as arguments have no others.

    ``trace_buckets`` and what is read of ``supervised`` beside its steps are needed only where there is a warm-up.
    Raises ValueError with one line that names the key and what to do.
    """
    needed = ["seed", *_SECTIONS, "compilation_cache"]
    for name in needed:
        if name not in config:
            raise ValueError(f"the config has no {name}; training needs {', '.join(needed)}: add it in get_config().")
    _check_keys(config, _SECTIONS)
    if config.supervised.steps:
        _check_keys(config, WARM_UP_SECTIONS)
    for name, (function, given) in _ARGUMENTS.items():
        if name in _SECTIONS or "." in name or config.supervised.steps:
            _check_arguments(name, value_of(config, name), function, given)


def value_of(config: Config, name: str) -> Any:
    """What stands under a dotted name."""
    for key in name.split("."):
        config = config[key]
    return config


def _check_keys(config: Config, sections: Mapping[str, Iterable[str]]) -> None:
    for section, keys in sections.items():
        if section not in config:
            raise ValueError(
                f"the config has no {section}, which the warm-up needs; add it, or set supervised.steps=0."
            )
        found = config[section]
        if not isinstance(found, (ConfigDict, Mapping)):
            raise ValueError(f"{section} is {found!r}; it has to be a section of the config, with keys of its own.")
        missing = [key for key in keys if key not in found]
        if missing:
            raise ValueError(
                f"the config has no {section}.{missing[0]}; {section} needs {', '.join(keys)}: add it in get_config()."
            )


def _check_arguments(name: str, section: Any, function: Callable[..., Any], given: Iterable[str]) -> None:
    """``section`` holds what ``function`` takes besides the ``given`` arguments."""
    taken = {key: p.default for key, p in inspect.signature(function).parameters.items() if key not in given}
    missing = [key for key, default in taken.items() if default is inspect.Parameter.empty and key not in section]
    unknown = [key for key in section if key not in taken]
    if missing or unknown:
        problem = f"the config has no {name}.{missing[0]}" if missing else f"{name}.{unknown[0]} is no known key"
        raise ValueError(f"{problem}; {name} takes {', '.join(taken)}.")
