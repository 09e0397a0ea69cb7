"""A trading account: symbols and prices to be looked up, orders known by numbers."""

import random
from typing import Any

from rlagents.environments.procedural.words import COMPANIES, SYMBOLS
from rlagents.environments.procedural.world import Domain, Request, World, tool

_SHARES = range(2, 10)
_MONEY = range(10, 100, 5)


def _initial_config(source: random.Random) -> dict[str, Any]:
    prices = source.sample(range(10, 100), len(SYMBOLS))
    first = source.randrange(10, 50)
    order = {"order_type": "Buy", "price": 20.0, "amount": 2, "status": "Open"}
    return {
        "orders": {first + at: {"id": first + at, **order, "symbol": SYMBOLS[at]} for at in range(2)},
        "account_info": {"account_id": 1, "balance": 9000, "binding_card": 1},
        "authenticated": True,
        "market_status": "Open",
        "order_counter": first + 2,
        "stocks": {symbol: {"price": price} for symbol, price in zip(SYMBOLS, prices)},
        "watch_list": source.sample(SYMBOLS, 2),
        "transaction_history": [],
        "random_seed": 1,
    }


def _company(world: World, symbols: list[str]) -> str:
    return world.pick([name for name, symbol in zip(COMPANIES, SYMBOLS) if symbol in symbols])


def _unwatched(world: World) -> list[str]:
    return [symbol for symbol in SYMBOLS if symbol not in world.state.watch_list]


def _watch(world: World) -> str:
    symbol = world.pick(_unwatched(world))
    world.call("add_to_watchlist", stock=symbol)
    return f"watch '{symbol}'"


def _unwatch(world: World) -> str:
    symbol = world.pick(world.state.watch_list)
    world.call("remove_stock_from_watchlist", symbol=symbol)
    return f"stop watching '{symbol}'"


def _fund(world: World) -> str:
    amount = world.pick(_MONEY)
    world.call("fund_account", amount=amount)
    return f"pay {amount} into the account"


def _withdraw(world: World) -> str:
    amount = world.pick(_MONEY)
    world.call("withdraw_funds", amount=amount)
    return f"take {amount} from the account"


def _cancel(world: World) -> str:
    number = world.pick([number for number, order in world.state.orders.items() if order["status"] == "Open"])
    world.call("cancel_order", order_id=number)
    return f"cancel order {number}"


def _price(world: World) -> str:
    symbol = world.pick(SYMBOLS)
    world.call("get_stock_info", symbol=symbol)
    return f"what is the price of '{symbol}'"


def _order(world: World, symbol: str, price: int) -> str:
    kind, shares = world.pick(("Buy", "Sell")), world.pick(_SHARES)
    placed = world.call("place_order", order_type=kind, symbol=symbol, price=price, amount=shares)
    world.memory["placed"] = placed["order_id"]
    return f"'{kind}' {shares} shares of"


def _order_at(world: World) -> str:
    symbol, price = world.pick(SYMBOLS), world.pick(_MONEY)
    return f"{_order(world, symbol, price)} '{symbol}' at {price}"


def _order_at_current_price(world: World) -> str:
    symbol = world.pick(SYMBOLS)
    price = world.call("get_stock_info", symbol=symbol)["price"]
    return f"{_order(world, symbol, price)} '{symbol}' at the current price"


def _watch_company(world: World) -> str:
    name = _company(world, _unwatched(world))
    world.call("add_to_watchlist", stock=world.call("get_symbol_by_name", name=name)["symbol"])
    return f"watch '{name}'"


def _unwatch_company(world: World) -> str:
    name = _company(world, world.state.watch_list)
    world.call("remove_stock_from_watchlist", symbol=world.call("get_symbol_by_name", name=name)["symbol"])
    return f"stop watching '{name}'"


def _order_company(world: World) -> str:
    name = world.pick(COMPANIES)
    symbol = world.call("get_symbol_by_name", name=name)["symbol"]
    price = world.call("get_stock_info", symbol=symbol)["price"]
    return f"{_order(world, symbol, price)} '{name}' at the current price"


def _cancel_placed(world: World) -> str:
    number = world.recall("placed")
    world.pick([number] if world.state.orders[number]["status"] == "Open" else [])
    world.call("cancel_order", order_id=number)
    return "cancel the order you placed last"


TRADING_DOMAIN = Domain(
    back_end="TradingBot",
    tools=(
        tool("add_to_watchlist", "stock"),
        tool("cancel_order", "order_id"),
        tool("fund_account", "amount"),
        tool("get_stock_info", "symbol"),
        tool("get_symbol_by_name", "name"),
        tool("place_order", "order_type", "symbol", "price", "amount"),
        tool("remove_stock_from_watchlist", "symbol"),
        tool("withdraw_funds", "amount"),
    ),
    initial_config=_initial_config,
    requests=(
        *map(Request, (_watch, _unwatch, _fund, _withdraw, _cancel, _price, _order_at)),
        Request(_cancel_placed, uses_output=True),
        *(Request(write, 2, True) for write in (_order_at_current_price, _watch_company, _unwatch_company)),
        Request(_order_company, calls=3, uses_output=True),
    ),
    shown={
        "get_stock_info": lambda result: result["price"],
        "get_symbol_by_name": lambda result: result["symbol"],
        "place_order": lambda result: result["order_id"],
    },
)
