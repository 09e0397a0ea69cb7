"""Which runs are one experiment with several seeds, and in which keys the others differ."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def leaves(config: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Every key by its dotted name, with its value as JSON; an empty section is a value."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= leaves(value, f"{path}{key}.")
        else:
            found[path + str(key)] = json.dumps(value, sort_keys=True)
    return found


def sets(configs: Sequence[Mapping[str, str]]) -> list[list[int]]:
    """Numbers of the runs (leaves of their configs) that differ in nothing but ``seed``, in order; a run without a
    config stands alone."""
    found: dict[Any, list[int]] = {}
    for number, config in enumerate(configs):
        alike = tuple(sorted((key, value) for key, value in config.items() if key != "seed")) or number
        found.setdefault(alike, []).append(number)
    return list(found.values())


def differing(configs: Sequence[Mapping[str, str]]) -> list[str]:
    """Names of the keys that are not alike in all runs, ``seed`` last."""
    names = sorted({key for config in configs for key in config})
    different = [name for name in names if len({config.get(name) for config in configs}) > 1]
    return sorted(different, key=lambda name: (name == "seed", name))


def label(config: Mapping[str, str], different: Sequence[str], otherwise: str) -> str:
    """What tells a set of runs from the others: ``rl.epochs 2, method.clip_low 0.1``."""
    parts = [f"{name} {config[name]}" for name in different if name != "seed" and name in config]
    return ", ".join(parts[:3]) + (", ..." if len(parts) > 3 else "") if parts else otherwise
