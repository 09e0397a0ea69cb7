"""The stateful back-ends of the BFCL multi-turn benchmark (package ``bfcl-eval``), one set of instances per trajectory.

The benchmark's own executor keeps instances for ever in a module's globals, keyed by model name and task, and runs
calls with ``eval``. Here instances are made directly and calls are dispatched by name, and three leaks are closed:

* ``long_context`` scenarios put entries of module-level dicts into an instance's state, where later calls change them:
  every trajectory gets a deep copy of a pristine instance;
* ``post_tweet`` has lists as defaults, which end up in the state and are extended there: mutable defaults are copied;
* arguments become part of the state: they are copied too, so that the record of a call stays what the model wrote.
"""

import copy
import functools
import importlib
import importlib.util
import inspect
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlagents.tools.descriptions import Parameter, Tool
from rlagents.tools.function_calls import ParsedCall, RefusedCall

BACK_END_FILES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""Class -> its module and its file of tool descriptions."""

_MODULES = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_SCHEMA_TYPES = {"dict": "object", "float": "number"}


@dataclass(frozen=True)
class Execution:
    """One call carried out. ``text`` is the result as the benchmark writes it."""

    text: str
    value: Any = None
    failed: bool = False
    """True if the tool raised, was refused, or answered with an error."""


def package_folder() -> Path:
    """Where ``bfcl_eval`` is installed.

    Raises ``ModuleNotFoundError`` with the commands that install it. Nothing is written beside the package, which may
    be read-only: some of its modules make folders under ``BFCL_PROJECT_ROOT`` when imported, so that is set first.
    """
    os.environ.setdefault("BFCL_PROJECT_ROOT", os.path.join(tempfile.gettempdir(), f"bfcl_eval-{os.getuid()}"))
    try:
        package = importlib.import_module("bfcl_eval")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "The BFCL environments need the package bfcl-eval, which is not installed. Install it without its pinned "
            "dependencies (it asks for numpy 1.26 and torch):\n"
            "    pip install --no-deps bfcl-eval==2026.3.23\n"
            "    pip install 'filelock>=3.20' mpmath==1.3.0"
        ) from error
    return Path(str(package.__file__)).parent


@functools.cache
def official_tools(classes: tuple[str, ...]) -> tuple[Tool, ...]:
    """Every documented tool of the classes, in the order of the benchmark's files; parameters in signature order."""
    return tuple(tool for name in classes for tool in _class_tools(name))


@functools.cache
def _class_tools(class_name: str) -> tuple[Tool, ...]:
    back_end = _class(class_name)
    path = package_folder() / "data" / "multi_turn_func_doc" / f"{BACK_END_FILES[class_name]}.json"
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(_tool(json.loads(line), back_end) for line in lines if line.strip())


def _tool(document: Mapping[str, Any], back_end: type) -> Tool:
    properties = document["parameters"]["properties"]
    required = document["parameters"]["required"]
    names = [name for name in inspect.signature(getattr(back_end, document["name"])).parameters if name != "self"]
    if set(names) != set(properties):
        raise ValueError(f"{document['name']}: documented parameters {sorted(properties)}, signature {names}.")
    parameters = tuple(Parameter(name, _schema(properties[name]), name in required) for name in names)
    # Every description starts with the sentence of its whole class, hundreds of tokens over a manual.
    description = document["description"].rpartition("Tool description: ")[2].strip()
    return Tool(document["name"], parameters, description)


def _schema(node: Mapping[str, Any]) -> dict[str, Any]:
    """The benchmark's schema dialect (``dict``, ``float``, the word "None" as a default) as JSON schema."""
    schema = {}
    for key, value in node.items():
        if key == "type":
            schema[key] = _SCHEMA_TYPES.get(value, value)
        elif key == "items":
            schema[key] = _schema(value)
        elif key == "properties":
            schema[key] = {name: _schema(item) for name, item in value.items()}
        else:
            schema[key] = value.strip() if key == "description" else value
    if schema.get("default") == "None":
        schema["default"] = None
    return schema


def _class(class_name: str) -> type:
    if class_name not in BACK_END_FILES:
        raise ValueError(f"unknown back-end {class_name!r}; known: {', '.join(BACK_END_FILES)}.")
    package_folder()
    return getattr(importlib.import_module(f"{_MODULES}.{BACK_END_FILES[class_name]}"), class_name)


class BackEnds:
    """The instances of one trajectory and the way to call them."""

    def __init__(self, instances: Mapping[str, Any], owners: Mapping[str, str]):
        self.instances = instances
        self._owners = owners

    @classmethod
    def load(
        cls, classes: Sequence[str], initial_config: Mapping[str, Any], tools: Sequence[Tool], long_context: bool
    ) -> "BackEnds":
        """New instances in the scenario's state. Only methods that ``tools`` names can be called."""
        instances = {}
        for name in classes:
            instance = _class(name)()
            if hasattr(instance, "_load_scenario"):
                instance._load_scenario(copy.deepcopy(initial_config.get(name, {})), long_context=long_context)
            # A copy of the copy: loading itself may have taken in module-level dicts.
            instances[name] = copy.deepcopy(instance) if long_context else instance
        # A method name that two classes share belongs to the later one, as in the benchmark.
        allowed = {tool.name for tool in tools}
        owners = {tool.name: name for name in classes for tool in _class_tools(name) if tool.name in allowed}
        return cls(instances, owners)

    def copy(self) -> "BackEnds":
        """Independent instances in the same state."""
        return BackEnds(copy.deepcopy(self.instances), self._owners)

    def execute(self, call: ParsedCall | RefusedCall) -> Execution:
        """Carry out one call. Whatever the tool does short of not returning, the answer is an :class:`Execution`."""
        if isinstance(call, RefusedCall):
            return Execution(f"Error during execution: {call.message}", failed=True)
        owner = self._owners.get(call.name)
        if owner is None:
            return Execution(f"Error during execution: name '{call.name}' is not defined", failed=True)
        method = getattr(self.instances[owner], call.name)
        try:
            value = method(**_own_arguments(type(self.instances[owner]), call))
            failed = isinstance(value, dict) and "error" in value
            return Execution(_official_text(value), value, failed)
        except Exception as error:
            return Execution(f"Error during execution: {error}", failed=True)


def _own_arguments(back_end: type, call: ParsedCall) -> dict[str, Any]:
    arguments = {name: _own(value) for name, value in call.arguments.items()}
    for name, default in _mutable_defaults(back_end, call.name).items():
        arguments.setdefault(name, copy.deepcopy(default))
    return arguments


def _own(value: Any) -> Any:
    return copy.deepcopy(value) if isinstance(value, (list, dict, tuple)) else value


@functools.cache
def _mutable_defaults(back_end: type, method: str) -> dict[str, Any]:
    parameters = inspect.signature(getattr(back_end, method)).parameters.values()
    return {item.name: item.default for item in parameters if isinstance(item.default, (list, dict, set))}


def _official_text(value: Any) -> str:
    """A result as the benchmark writes it: text as it is, a dict as JSON where it can be, anything else by ``str``."""
    if type(value) is str:
        return value
    if type(value) is dict:
        try:
            return json.dumps(value)
        except Exception:
            return str(value)
    return str(value)
