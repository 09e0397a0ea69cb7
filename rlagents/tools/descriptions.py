"""What a tool is to the one who calls it: a name, a sentence and parameters in the order of its signature."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """One parameter. ``schema`` is its JSON schema (``type``, ``description``, ``items``, ...); empty says nothing."""

    name: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    required: bool = True


@dataclass(frozen=True)
class Tool:
    """One tool. Positional arguments of a call are bound to ``parameters`` in order."""

    name: str
    parameters: tuple[Parameter, ...] = ()
    description: str = ""
