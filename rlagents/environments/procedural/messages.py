"""Messages between people: names the user says, identities the tools know."""

import random
from typing import Any

from rlagents.environments.procedural.words import MESSAGES, PEOPLE
from rlagents.environments.procedural.world import Domain, Request, World, tool


def _initial_config(source: random.Random) -> dict[str, Any]:
    people = source.sample(PEOPLE, 4)
    numbers = source.sample(range(1, 50), 4)
    identities = [f"USR{number:03d}" for number in numbers]
    texts = source.sample(MESSAGES, 2)
    return {
        "generated_ids": set(),
        "user_count": source.randrange(50, 90),
        "user_map": dict(zip(people, identities)),
        "inbox": [{identities[0]: texts[0]}, {identities[1]: texts[1]}],
        "message_count": 2,
        "current_user": identities[3],
    }


def _receivers(world: World) -> list[str]:
    return [identity for message in world.state.inbox for identity in message]


def _identity(world: World) -> str:
    return world.pick(list(world.state.user_map.values()))


def _send_to_identity(world: World) -> str:
    identity, text = _identity(world), world.pick(MESSAGES)
    world.call("send_message", receiver_id=identity, message=text)
    return f"send '{text}' to '{identity}'"


def _unsend_to_identity(world: World) -> str:
    identity = world.pick(_receivers(world))
    world.call("delete_message", receiver_id=identity)
    return f"delete the last message to '{identity}'"


def _add(world: World) -> str:
    name = world.pick_new(PEOPLE, world.state.user_map)
    world.memory["added"] = world.call("add_contact", user_name=name)["user_id"]
    return f"add '{name}' to the contacts"


def _log_in(world: World) -> str:
    identity = world.pick_new(list(world.state.user_map.values()), [world.state.current_user])
    world.call("message_login", user_id=identity)
    return f"log in as '{identity}'"


def _look_up(world: World) -> str:
    name = world.pick(list(world.state.user_map))
    world.call("get_user_id", user=name)
    return f"what is the id of '{name}'"


def _send(world: World) -> str:
    name, text = world.pick(list(world.state.user_map)), world.pick(MESSAGES)
    identity = world.call("get_user_id", user=name)["user_id"]
    world.call("send_message", receiver_id=identity, message=text)
    return f"send '{text}' to '{name}'"


def _unsend(world: World) -> str:
    receivers = _receivers(world)
    name = world.pick([name for name, identity in world.state.user_map.items() if identity in receivers])
    identity = world.call("get_user_id", user=name)["user_id"]
    world.call("delete_message", receiver_id=identity)
    return f"delete the last message to '{name}'"


def _log_in_by_name(world: World) -> str:
    name = world.pick([n for n, identity in world.state.user_map.items() if identity != world.state.current_user])
    identity = world.call("get_user_id", user=name)["user_id"]
    world.call("message_login", user_id=identity)
    return f"log in as '{name}'"


def _welcome(world: World) -> str:
    name, text = world.pick_new(PEOPLE, world.state.user_map), world.pick(MESSAGES)
    identity = world.call("add_contact", user_name=name)["user_id"]
    world.memory["added"] = identity
    world.call("send_message", receiver_id=identity, message=text)
    return f"add '{name}' to the contacts and send them '{text}'"


def _unsend_text(world: World) -> str:
    texts = [text for message in world.state.inbox for text in message.values()]
    receivers = _receivers(world)
    clear = [text for text, to in zip(texts, receivers) if texts.count(text) == 1 and receivers.count(to) == 1]
    text = world.pick(clear)
    found = world.call("search_messages", keyword=text)["results"]
    world.call("delete_message", receiver_id=found[0]["receiver_id"])
    return f"delete the message that says '{text}'"


def _send_to_added(world: World) -> str:
    identity, text = world.recall("added"), world.pick(MESSAGES)
    world.call("send_message", receiver_id=identity, message=text)
    return f"send '{text}' to the contact you added last"


MESSAGES_DOMAIN = Domain(
    back_end="MessageAPI",
    tools=(
        tool("add_contact", "user_name"),
        tool("delete_message", "receiver_id"),
        tool("get_user_id", "user"),
        tool("message_login", "user_id"),
        tool("search_messages", "keyword"),
        tool("send_message", "receiver_id", "message"),
    ),
    initial_config=_initial_config,
    requests=(
        *map(Request, (_send_to_identity, _unsend_to_identity, _add, _log_in, _look_up)),
        Request(_send_to_added, uses_output=True),
        *(Request(write, 2, True) for write in (_send, _unsend, _log_in_by_name, _welcome, _unsend_text)),
    ),
    shown={
        "add_contact": lambda result: result["user_id"],
        "get_user_id": lambda result: result["user_id"],
        "message_login": lambda result: result["login_status"],
        "search_messages": lambda result: [found["receiver_id"] for found in result["results"]],
    },
)
