"""The whole GRPO loss, written straight from its definition in float64; shares nothing with the other oracles."""

import numpy as np

MODEL = 2


def grpo(
    policy, old, reference, outcome, kind, valid, *, ddof, epsilon, clip_low, clip_high, kl_coefficient, floor, bound
):
    """``mean_i mean_t [-min(r A, clip(r) A) + beta k3]`` over trajectories with a MODEL token, and its gradient."""
    p, g, t = kind.shape
    trajectories = []
    for i in range(p):
        group = np.array([float(outcome[i, j]) for j in range(g) if valid[i, j]])
        for j in range(g):
            tokens = [k for k in range(t) if kind[i, j, k] == MODEL]
            if not valid[i, j] or not tokens:
                continue
            std = group.std(ddof=ddof) if len(group) > ddof else 0.0
            alike = std <= floor * np.abs(group).max()
            advantage = 0.0 if alike else (float(outcome[i, j]) - group.mean()) / (std + epsilon)
            trajectories.append((i, j, tokens, advantage))

    loss, gradient = 0.0, np.zeros(kind.shape)
    for i, j, tokens, advantage in trajectories:
        weight = 1.0 / len(trajectories) / len(tokens)
        for k in tokens:
            now, before, anchor = (float(x[i, j, k]) for x in (policy, old, reference))
            ratio = np.exp(np.clip(now - before, -bound, bound))
            bounded = np.clip(ratio, 1 - clip_low, 1 + clip_high)
            d = np.clip(anchor - now, -bound, bound)
            loss += weight * (-min(ratio * advantage, bounded * advantage) + kl_coefficient * (np.exp(d) - 1 - d))
            free = ratio * advantage <= bounded * advantage
            if free and abs(now - before) < bound:
                gradient[i, j, k] -= weight * ratio * advantage
            if abs(anchor - now) < bound:
                gradient[i, j, k] += weight * kl_coefficient * (1 - np.exp(d))
    return loss, gradient
