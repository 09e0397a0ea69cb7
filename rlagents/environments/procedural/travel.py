"""Travel bookings: budgets, balances and fares behind an access token that the user gives."""

import random
from typing import Any

from rlagents.environments.procedural.words import AIRPORT_CITIES, CARDS, CURRENCIES, DAYS, FARES, MESSAGES, TOKENS
from rlagents.environments.procedural.world import Domain, Request, World, tool

# Cities in the order of the back-end's fare table: it has a fare from each to every later one.
_FARE_ORDER = ("Stonebrook", "Maplecrest", "Silverpine", "Shadowridge", "Oakendale", "Willowbend")
_FARE_ORDER += ("Autumnville", "Pinehaven", "Greenfield")
_BUDGETS = range(20, 100)


def _initial_config(source: random.Random) -> dict[str, Any]:
    cards = source.sample(CARDS, 2)
    bookings = map(str, source.sample(range(10, 100), 2))
    booking = {"travel_date": DAYS[0], "travel_from": "SBK", "travel_to": "MPC", "travel_class": "economy"}
    booking |= {"card_id": cards[0], "transaction_id": "1"}
    return {
        "random_seed": 1,
        "credit_card_list": {card: {"balance": source.choice(_BUDGETS)} for card in cards},
        "booking_record": {number: booking | {"travel_cost": source.choice(_BUDGETS)} for number in bookings},
        "access_token": source.choice(TOKENS),
        "token_expires_in": 2,
    }


def _booking(world: World) -> str:
    return world.pick(list(world.state.booking_record))


def _budget(world: World) -> str:
    token, amount = world.state.access_token, world.pick(_BUDGETS)
    world.call("set_budget_limit", access_token=token, budget_limit=amount)
    return f"with token '{token}' set the budget to {amount}"


def _cancel(world: World) -> str:
    token, number = world.state.access_token, _booking(world)
    world.call("cancel_booking", access_token=token, booking_id=number)
    return f"with token '{token}' cancel booking '{number}'"


def _balance(world: World) -> str:
    token, card = world.state.access_token, world.pick(list(world.state.credit_card_list))
    world.call("get_credit_card_balance", access_token=token, card_id=card)
    return f"with token '{token}' show the balance of card '{card}'"


def _support(world: World) -> str:
    number, text = _booking(world), world.pick(MESSAGES)
    world.call("contact_customer_support", booking_id=number, message=text)
    return f"tell support '{text}' about booking '{number}'"


def _exchange(world: World) -> str:
    currency, amount = world.pick(CURRENCIES[1:]), world.pick(range(2, 10))
    world.call("compute_exchange_rate", base_currency="USD", target_currency=currency, value=amount)
    return f"change {amount} 'USD' to '{currency}'"


def _airport(world: World) -> str:
    city = world.pick(AIRPORT_CITIES)
    world.call("get_nearest_airport_by_city", location=city)
    return f"which airport is near '{city}'"


def _budget_of_balance(world: World) -> str:
    token, card = world.state.access_token, world.pick(list(world.state.credit_card_list))
    balance = world.call("get_credit_card_balance", access_token=token, card_id=card)["card_balance"]
    world.call("set_budget_limit", access_token=token, budget_limit=balance)
    return f"with token '{token}' set the budget to the balance of card '{card}'"


def _budget_of_booking(world: World) -> str:
    token, number = world.state.access_token, _booking(world)
    cost = world.call("retrieve_invoice", access_token=token, booking_id=number)["invoice"]["travel_cost"]
    world.call("set_budget_limit", access_token=token, budget_limit=cost)
    return f"with token '{token}' set the budget to the cost of booking '{number}'"


def _fare(world: World) -> str:
    first, second = sorted(world.random.sample(range(len(_FARE_ORDER)), 2))
    cities = _FARE_ORDER[first], _FARE_ORDER[second]
    day, fare = world.pick(DAYS), world.pick(FARES)
    start, end = (world.call("get_nearest_airport_by_city", location=city)["nearest_airport"] for city in cities)
    found = world.call("get_flight_cost", travel_from=start, travel_to=end, travel_date=day, travel_class=fare)
    world.memory["fare"] = found["travel_cost_list"][0]
    return f"what is the '{fare}' fare from '{cities[0]}' to '{cities[1]}' on '{day}'"


def _budget_of_fare(world: World) -> str:
    token = world.state.access_token
    world.call("set_budget_limit", access_token=token, budget_limit=world.recall("fare"))
    return f"with token '{token}' set the budget to that fare"


TRAVEL_DOMAIN = Domain(
    back_end="TravelAPI",
    tools=(
        tool("cancel_booking", "access_token", "booking_id"),
        tool("compute_exchange_rate", "base_currency", "target_currency", "value"),
        tool("contact_customer_support", "booking_id", "message"),
        tool("get_credit_card_balance", "access_token", "card_id"),
        tool("get_flight_cost", "travel_from", "travel_to", "travel_date", "travel_class"),
        tool("get_nearest_airport_by_city", "location"),
        tool("retrieve_invoice", "access_token", "booking_id"),
        tool("set_budget_limit", "access_token", "budget_limit"),
    ),
    initial_config=_initial_config,
    requests=(
        *map(Request, (_budget, _cancel, _balance, _support, _exchange, _airport)),
        Request(_budget_of_fare, uses_output=True),
        *(Request(write, 2, True) for write in (_budget_of_balance, _budget_of_booking)),
        Request(_fare, calls=3, uses_output=True),
    ),
    shown={
        "compute_exchange_rate": lambda result: result["exchanged_value"],
        "get_credit_card_balance": lambda result: result["card_balance"],
        "get_flight_cost": lambda result: result["travel_cost_list"][0],
        "get_nearest_airport_by_city": lambda result: result["nearest_airport"],
        "retrieve_invoice": lambda result: result["invoice"]["travel_cost"],
    },
)
