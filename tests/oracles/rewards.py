"""Reward shapers, member by member in float64."""

MODEL = 2


def overlong_penalty(kinds, max_tokens, buffer_tokens):
    """Of one member, from the kinds of its tokens."""
    length = sum(kind == MODEL for kind in kinds)
    if length <= max_tokens - buffer_tokens:
        return 0.0
    if length > max_tokens:
        return -1.0
    return ((max_tokens - buffer_tokens) - length) / buffer_tokens


def turn_sum(scores, num_turns):
    """What the turns of one member earned."""
    return sum(float(scores[s]) for s in range(num_turns))


def distance(old, reference, mask):
    """k1 of one member, summed over its trained tokens."""
    return sum(float(o) - float(r) for o, r, m in zip(old, reference, mask) if m)
