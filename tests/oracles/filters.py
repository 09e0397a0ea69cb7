"""Filters, member by member and token by token."""

import numpy as np

MODEL = 2


def failed_tools(calls, successes):
    p, g, _ = calls.shape
    return np.array([[sum(calls[i, j]) > 0 and sum(successes[i, j]) == 0 for j in range(g)] for i in range(p)])


def void_turns(void):
    p, g, _ = void.shape
    return np.array([[any(void[i, j]) for j in range(g)] for i in range(p)])


def uniform_groups(rewards, valid):
    out = np.zeros(valid.shape, bool)
    for i in range(valid.shape[0]):
        seen = [float(r) for r, v in zip(rewards[i], valid[i]) if v]
        mean = sum(seen) / len(seen) if seen else 0.0
        largest = max((abs(r) for r in seen), default=0.0)
        out[i] = all(abs(r - mean) <= 1e-6 * largest for r in seen)
    return out


def pass_rate_outside(rewards, valid, low, high):
    out = np.zeros(valid.shape, bool)
    for i in range(valid.shape[0]):
        seen = [float(r) for r, v in zip(rewards[i], valid[i]) if v]
        rate = sum(seen) / len(seen) if seen else 0.0
        out[i] = not low < rate < high
    return out


def few_finished(truncated, valid, minimum):
    out = np.zeros(valid.shape, bool)
    for i in range(valid.shape[0]):
        out[i] = sum(v and not t for v, t in zip(valid[i], truncated[i])) < minimum
    return out


def turn_beginnings(kind, turn, num_tokens):
    """True for the first sampled tokens of every turn."""
    p, g, t = kind.shape
    out = np.zeros(kind.shape, bool)
    for i in range(p):
        for j in range(g):
            seen = {}
            for k in range(t):
                if kind[i, j, k] == MODEL:
                    out[i, j, k] = seen.get(turn[i, j, k], 0) < num_tokens
                    seen[turn[i, j, k]] = seen.get(turn[i, j, k], 0) + 1
    return out
