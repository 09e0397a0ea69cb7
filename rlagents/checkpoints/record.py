"""What continues beside the arrays: the data position, the config, facts about the run, a rollout sampled ahead."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlagents.durable import write_durably

_RECORD, _PENDING = "record.json", "pending.json"


@dataclass(frozen=True)
class RunRecord:
    """What continues beside the arrays. All values are JSON."""

    position: Mapping[str, Any]
    """Where the data streams stand, e.g. ``{"prompts": 128}``: their own positions, never derived from step counts."""
    config: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the run: name, seed, code version."""
    pending: Mapping[str, Any] | None = None
    """The rollout that the next step learns from, where it was sampled ahead: ``rollouts.stored.to_document``."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the evaluation at this very step, if there was one; what the best are chosen by."""


def write_record(folder: Path, record: RunRecord) -> None:
    """Write ``record.json``, and ``pending.json`` where there is a rollout. Raises durable.WriteError."""
    if record.pending is not None:
        write_durably(folder / _PENDING, json.dumps(record.pending).encode())
    document = {
        "position": dict(record.position),
        "config": dict(record.config),
        "run": dict(record.run),
        "metrics": dict(record.metrics),
    }
    write_durably(folder / _RECORD, json.dumps(document, indent=2).encode())


def read_record(folder: Path) -> RunRecord:
    """Read what ``write_record`` wrote. Raises OSError, ValueError or TypeError where that is not what is there."""
    pending = folder / _PENDING
    return RunRecord(
        **json.loads((folder / _RECORD).read_bytes()),
        pending=json.loads(pending.read_bytes()) if pending.exists() else None,
    )


def read_metrics(folder: Path) -> Mapping[str, float]:
    """The metrics alone; none where they cannot be read: such a checkpoint is never among the best."""
    try:
        return json.loads((folder / _RECORD).read_bytes())["metrics"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
