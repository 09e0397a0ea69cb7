"""Hand-made tasks of a few calls."""

from rlagents.environments.bfcl_tasks import Scenario
from rlagents.facts import Task
from rlagents.tools.function_calls import ParsedCall

FILES = {
    "root": {
        "home": {
            "type": "directory",
            "contents": {
                "notes": {"type": "file", "content": "blue"},
                "docs": {"type": "directory", "contents": {}},
            },
        }
    }
}


def call(name: str, **arguments: object) -> ParsedCall:
    return ParsedCall(name, arguments)


def file_task(truth: tuple[tuple[ParsedCall, ...], ...] = ((call("mkdir", dir_name="a"),), (call("ls"),))) -> Task:
    turns = tuple(f"request {turn}" for turn in range(len(truth)))
    return Task("files", {"scenario": Scenario(("GorillaFileSystem",), {"GorillaFileSystem": FILES}, turns, truth)})
