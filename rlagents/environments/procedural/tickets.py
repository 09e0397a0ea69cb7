"""Support tickets, known by numbers that the system gives out."""

import random
from typing import Any

from rlagents.environments.procedural.words import ISSUES, PEOPLE, RESOLUTIONS
from rlagents.environments.procedural.world import Domain, Request, World, tool

_PRIORITIES = range(1, 6)


def _initial_config(source: random.Random) -> dict[str, Any]:
    user, other = source.sample(PEOPLE, 2)
    numbers = sorted(source.sample(range(1, 40), 3))
    owners = [other, other, other]
    owners[source.randrange(3)] = user
    queue = [
        {"id": number, "title": title, "description": "", "status": "Open", "priority": priority, "created_by": owner}
        for number, title, priority, owner in zip(
            numbers, source.sample(ISSUES, 3), source.choices(_PRIORITIES, k=3), owners
        )
    ]
    return {"ticket_queue": queue, "ticket_counter": source.randrange(40, 90), "current_user": user}


def _open_numbers(world: World) -> list[int]:
    return [ticket["id"] for ticket in world.state.ticket_queue if ticket["status"] == "Open"]


def _numbers(world: World) -> list[int]:
    return [ticket["id"] for ticket in world.state.ticket_queue]


def _create(world: World) -> str:
    title, priority = world.pick(ISSUES), world.pick(_PRIORITIES)
    world.memory["opened"] = world.call("create_ticket", title=title, priority=priority)["id"]
    return f"open a ticket '{title}' with priority {priority}"


def _close(world: World) -> str:
    number = world.pick(_open_numbers(world))
    world.call("close_ticket", ticket_id=number)
    return f"close ticket {number}"


def _resolve(world: World) -> str:
    number, how = world.pick(_open_numbers(world)), world.pick(RESOLUTIONS)
    world.call("resolve_ticket", ticket_id=number, resolution=how)
    return f"resolve ticket {number} as '{how}'"


def _raise_priority(world: World) -> str:
    number, priority = world.pick(_numbers(world)), world.pick(_PRIORITIES)
    world.call("edit_ticket", ticket_id=number, updates={"priority": priority})
    return f"set the priority of ticket {number} to {priority}"


def _read(world: World) -> str:
    number = world.pick(_numbers(world))
    world.call("get_ticket", ticket_id=number)
    return f"what is ticket {number} about"


def _create_and_close(world: World) -> str:
    text = _create(world)
    world.call("close_ticket", ticket_id=world.recall("opened"))
    return f"{text} and close it"


def _create_and_resolve(world: World) -> str:
    text, how = _create(world), world.pick(RESOLUTIONS)
    world.call("resolve_ticket", ticket_id=world.recall("opened"), resolution=how)
    return f"{text} and resolve it as '{how}'"


def _create_like(world: World) -> str:
    number, priority = world.pick(_numbers(world)), world.pick(_PRIORITIES)
    title = world.call("get_ticket", ticket_id=number)["title"]
    world.memory["opened"] = world.call("create_ticket", title=title, priority=priority)["id"]
    return f"open a ticket like ticket {number} with priority {priority}"


def _close_own(world: World) -> str:
    user = world.state.current_user
    own = [ticket for ticket in world.state.ticket_queue if ticket["created_by"] == user and ticket["status"] == "Open"]
    world.pick(own if len(own) == 1 else [])
    found = world.call("get_user_tickets", status="Open")
    world.call("close_ticket", ticket_id=found[0]["id"])
    return "find my open ticket and close it"


def _close_opened(world: World) -> str:
    number = world.recall("opened")
    world.pick([number] if number in _open_numbers(world) else [])
    world.call("close_ticket", ticket_id=number)
    return "close the ticket you opened last"


def _resolve_opened(world: World) -> str:
    number, how = world.recall("opened"), world.pick(RESOLUTIONS)
    world.pick([number] if number in _open_numbers(world) else [])
    world.call("resolve_ticket", ticket_id=number, resolution=how)
    return f"resolve the ticket you opened last as '{how}'"


TICKETS_DOMAIN = Domain(
    back_end="TicketAPI",
    tools=(
        tool("close_ticket", "ticket_id"),
        tool("create_ticket", "title", "priority"),
        tool("edit_ticket", "ticket_id", "updates"),
        tool("get_ticket", "ticket_id"),
        tool("get_user_tickets", "status"),
        tool("resolve_ticket", "ticket_id", "resolution"),
    ),
    initial_config=_initial_config,
    requests=(
        *map(Request, (_create, _close, _resolve, _raise_priority, _read)),
        *(Request(write, 1, True) for write in (_close_opened, _resolve_opened)),
        *(Request(write, 2, True) for write in (_create_and_close, _create_and_resolve, _create_like, _close_own)),
    ),
    shown={
        "create_ticket": lambda result: result["id"],
        "get_ticket": lambda result: result["title"],
        "get_user_tickets": lambda result: [ticket["id"] for ticket in result],
    },
)
