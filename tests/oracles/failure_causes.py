"""The cause of a failure, written as one story a turn: attempts are (name, arguments), arguments None if refused."""


def covers(attempt, wanted):
    if attempt[1] is None or attempt[0] != wanted[0]:
        return False
    return all(key in attempt[1] and attempt[1][key] == value for key, value in wanted[1].items())


def cause(turns, garbled, truth, finished, state):
    """``turns`` and ``truth``: lists of attempts and of wanted calls, turn by turn; R_action by existence."""
    if not finished:
        return "cut_short"
    made = [attempt for turn in turns for attempt in turn]
    every_wanted = [wanted for turn in truth for wanted in turn]
    for number, wanted_calls in enumerate(truth):
        before = None
        for wanted in wanted_calls:
            if not any(covers(attempt, wanted) for attempt in made):
                return in_its_place(turns[number], garbled[number], before, wanted, every_wanted)
            before = wanted
    return None if state else "spoiled_state"


def in_its_place(turn, garbled, before, wanted, every_wanted):
    counted_from = 0
    if before is not None:
        for place, attempt in enumerate(turn):
            if covers(attempt, before):
                counted_from = place + 1
                break
    another = False
    for place, attempt in enumerate(turn):
        if any(covers(attempt, one) for one in every_wanted):
            continue
        if attempt[0] == wanted[0]:
            return "wrong_arguments"
        another = another or place >= counted_from
    if another:
        return "wrong_tool"
    return "garbled" if garbled else "premature_end"
