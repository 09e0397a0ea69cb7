"""A car: switches and settings, and a route whose zip codes and distances come from tools."""

import random
from typing import Any

from rlagents.environments.procedural.words import CITIES, CLIMATES, DOORS
from rlagents.environments.procedural.world import Domain, Request, World, tool

_ROUTES = (
    ("Rivermist", "Stonebrook"),
    ("Maplecrest", "Silverpine"),
    ("Oakendale", "Willowbend"),
    ("Silverpine", "Oakendale"),
)
"""The city pairs whose distance the back-end knows."""


def _initial_config(source: random.Random) -> dict[str, Any]:
    return {"random_seed": 1, "fuelLevel": source.randrange(5, 25)}


def _fill(world: World) -> str:
    amount = world.pick(range(2, 13))
    world.call("fillFuelTank", fuelAmount=amount)
    return f"add {amount} gallons of fuel"


def _headlights(world: World) -> str:
    mode = world.pick(("on", "off"))
    world.call("setHeadlights", mode=mode)
    return f"turn the headlights '{mode}'"


def _lock(world: World) -> str:
    door = world.pick(DOORS)
    world.call("lockDoors", unlock=False, door=[door])
    return f"lock the '{door}' door"


def _unlock(world: World) -> str:
    door = world.pick(DOORS)
    world.call("lockDoors", unlock=True, door=[door])
    return f"unlock the '{door}' door"


def _climate(world: World) -> str:
    degrees, mode = world.pick(range(16, 29)), world.pick(CLIMATES)
    world.call("adjustClimateControl", temperature=degrees, mode=mode)
    return f"set the air to {degrees} degrees in mode '{mode}'"


def _brake(world: World) -> str:
    mode = world.pick(("engage", "release"))
    world.call("activateParkingBrake", mode=mode)
    return f"'{mode}' the parking brake"


def _navigate(world: World) -> str:
    city = world.pick(CITIES)
    world.call("set_navigation", destination=city)
    return f"drive to '{city}'"


def _navigate_by_zip_code(world: World) -> str:
    city = world.pick(CITIES)
    code = world.call("get_zipcode_based_on_city", city=city)["zipcode"]
    world.call("set_navigation", destination=code)
    return f"drive to the zip code of '{city}'"


def _double_fuel(world: World) -> str:
    world.pick([world.state.fuelLevel] if world.state.fuelLevel <= 25 else [])
    level = world.call("displayCarStatus", option="fuel")["fuelLevel"]
    world.call("fillFuelTank", fuelAmount=level)
    return "add as much fuel as there is"


def _distance(world: World) -> str:
    cities = world.random.sample(world.pick(_ROUTES), 2)
    codes = [world.call("get_zipcode_based_on_city", city=city)["zipcode"] for city in cities]
    found = world.call("estimate_distance", cityA=codes[0], cityB=codes[1])
    world.memory["distance"] = found["distance"]
    return f"how far is it from '{cities[0]}' to '{cities[1]}'"


def _feasible(world: World) -> str:
    world.call("estimate_drive_feasibility_by_mileage", distance=world.recall("distance"))
    return "can the car go that far"


VEHICLE_DOMAIN = Domain(
    back_end="VehicleControlAPI",
    tools=(
        tool("activateParkingBrake", "mode"),
        tool("adjustClimateControl", "temperature", "mode"),
        tool("displayCarStatus", "option"),
        tool("estimate_distance", "cityA", "cityB"),
        tool("estimate_drive_feasibility_by_mileage", "distance"),
        tool("fillFuelTank", "fuelAmount"),
        tool("get_zipcode_based_on_city", "city"),
        tool("lockDoors", "unlock", "door"),
        tool("setHeadlights", "mode"),
        tool("set_navigation", "destination"),
    ),
    initial_config=_initial_config,
    requests=(
        *map(Request, (_fill, _headlights, _lock, _unlock, _climate, _brake, _navigate)),
        Request(_feasible, uses_output=True),
        *(Request(write, 2, True) for write in (_navigate_by_zip_code, _double_fuel)),
        Request(_distance, calls=3, uses_output=True),
    ),
    shown={
        "displayCarStatus": lambda result: result["fuelLevel"],
        "estimate_distance": lambda result: result["distance"],
        "estimate_drive_feasibility_by_mileage": lambda result: result["canDrive"],
        "get_zipcode_based_on_city": lambda result: result["zipcode"],
    },
)
