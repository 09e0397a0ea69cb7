"""A file system: create, write, move, copy, delete; contents and listings that later calls need."""

import random
from typing import Any

from rlagents.environments.procedural.words import CONTENTS, FILES, FOLDERS
from rlagents.environments.procedural.world import Domain, Request, World, tool


def _initial_config(source: random.Random) -> dict[str, Any]:
    files = source.sample(FILES, 5)
    folders = source.sample(FOLDERS, 2)
    texts = source.sample(CONTENTS, 5)
    contents: dict[str, Any] = {name: {"type": "file", "content": text} for name, text in zip(files[:3], texts)}
    for folder, name, text in zip(folders, files[3:], texts[3:]):
        inside = {name: {"type": "file", "content": text}}
        contents[folder] = {"type": "directory", "contents": inside}
    return {"root": {"root": {"type": "directory", "contents": contents}}}


def _files(world: World) -> list[str]:
    return [name for name in world.state._current_dir.contents if name in FILES]


def _folders(world: World) -> list[str]:
    return [name for name in world.state._current_dir.contents if name in FOLDERS]


def _new_file(world: World) -> str:
    return world.pick_new(FILES, _files(world))


def _new_folder(world: World) -> str:
    return world.pick_new(FOLDERS, _folders(world))


def _create_file(world: World) -> str:
    name = _new_file(world)
    world.call("touch", file_name=name)
    return f"create a file '{name}'"


def _create_folder(world: World) -> str:
    name = _new_folder(world)
    world.call("mkdir", dir_name=name)
    return f"make a folder '{name}'"


def _delete(world: World) -> str:
    name = world.pick(_files(world))
    world.call("rm", file_name=name)
    return f"delete '{name}'"


def _move(world: World) -> str:
    name, folder = world.pick(_files(world)), world.pick(_folders(world))
    world.call("mv", source=name, destination=folder)
    return f"move '{name}' into '{folder}'"


def _rename(world: World) -> str:
    name, new = world.pick(_files(world)), _new_file(world)
    world.call("mv", source=name, destination=new)
    return f"rename '{name}' to '{new}'"


def _copy(world: World) -> str:
    name, folder = world.pick(_files(world)), world.pick(_folders(world))
    world.call("cp", source=name, destination=folder)
    return f"copy '{name}' into '{folder}'"


def _write(world: World) -> str:
    name, text = world.pick(_files(world)), world.pick(CONTENTS)
    world.call("echo", content=text, file_name=name)
    return f"write '{text}' into '{name}'"


def _texts(world: World) -> list[str]:
    return [name for name in _files(world) if world.state._current_dir.contents[name].content]


def _see(world: World, name: str) -> str:
    world.memory["text"] = world.call("cat", file_name=name)["file_content"]
    return world.memory["text"]


def _read(world: World) -> str:
    name = world.pick(_texts(world))
    _see(world, name)
    return f"show '{name}'"


def _copy_text(world: World) -> str:
    name = world.pick(_texts(world))
    other = world.pick_new(_files(world), [name])
    world.call("echo", content=_see(world, name), file_name=other)
    return f"write the text of '{name}' into '{other}'"


def _write_seen(world: World) -> str:
    text, name = world.recall("text"), world.pick(_files(world))
    world.call("echo", content=text, file_name=name)
    return f"write the text you saw last into '{name}'"


def _enter_and_list(world: World) -> tuple[str, str]:
    """Into a folder that holds one file: the folder and, from its listing, the file."""
    folders = world.state._current_dir.contents
    folder = world.pick([name for name in _folders(world) if len(folders[name].contents) == 1])
    world.call("cd", folder=folder)
    return folder, world.call("ls")["current_directory_content"][0]


def _empty_folder(world: World) -> str:
    folder, name = _enter_and_list(world)
    world.call("rm", file_name=name)
    return f"go into '{folder}' and delete the only file there"


def _rename_only(world: World) -> str:
    folder, name = _enter_and_list(world)
    new = world.pick_new(FILES, [name])
    world.call("mv", source=name, destination=new)
    return f"go into '{folder}' and rename the only file there to '{new}'"


FILES_DOMAIN = Domain(
    back_end="GorillaFileSystem",
    tools=(
        tool("cat", "file_name"),
        tool("cd", "folder"),
        tool("cp", "source", "destination"),
        tool("echo", "content", "file_name"),
        tool("ls"),
        tool("mkdir", "dir_name"),
        tool("mv", "source", "destination"),
        tool("rm", "file_name"),
        tool("touch", "file_name"),
    ),
    initial_config=_initial_config,
    requests=(
        *map(Request, (_create_file, _create_folder, _delete, _move, _rename, _copy, _write, _read)),
        Request(_write_seen, uses_output=True),
        Request(_copy_text, calls=2, uses_output=True),
        Request(_empty_folder, calls=3, uses_output=True),
        Request(_rename_only, calls=3, uses_output=True),
    ),
    shown={
        "cat": lambda result: result["file_content"],
        "ls": lambda result: result["current_directory_content"],
    },
)
