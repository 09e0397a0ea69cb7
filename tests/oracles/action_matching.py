"""R_action by trying everything: calls are (name, arguments)."""


def covers(call, wanted):
    return call[0] == wanted[0] and all(key in call[1] and call[1][key] == value for key, value in wanted[1].items())


def each_exists(calls, wanted_calls):
    return all(any(covers(call, wanted) for call in calls) for wanted in wanted_calls)


def one_to_one(calls, wanted_calls):
    """Every way of giving the first wanted call one of its own, and then the others of what is left."""
    if not wanted_calls:
        return True
    first, *others = wanted_calls
    return any(
        covers(call, first) and one_to_one(calls[:made] + calls[made + 1 :], others) for made, call in enumerate(calls)
    )
