"""Whole recipes that read one reward a trajectory, from their papers, in float64; gradients by complex steps.

Each takes a namespace of arrays and returns the loss, its gradient ``[p g t]`` by ``policy``, the advantages
``[p g t]`` and the sum of the magnitudes of the loss's terms. The gradient is that of the loss as written: at
``x + ih`` with ``h = 1e-30`` its imaginary part is ``h`` times the slope, exact to the last digits, and ``.real`` is
the papers' stop-gradient.
"""

import numpy as np

MODEL = 2
STEP = 1e-30
BOUND, FLOOR = 20.0, 1e-6
"""Of no paper: log-ratios are clamped (nats); a std below this share of the largest value is rounding residue."""


def grpo(batch, *, kl_coefficient=0.04):
    """arXiv 2402.03300, eq. 3 and 4: ``mean_i mean_t [-min(r A, clip(r) A) + beta k3]``."""
    advantages = {(i, j): a for i, j, a in _standardised(_groups(batch))}
    return _summed(batch, advantages, _sequence_mean, _clipped(0.2, 0.2, kl_coefficient))


def rc_grpo(batch):
    """arXiv 2602.03025, eq. 6, 8, 9: GRPO over the mixed group, with KL 0.1."""
    return grpo(batch, kl_coefficient=0.1)


def dr_grpo(batch, *, max_tokens=3000):
    """arXiv 2503.20783: ``A = R - mean``; sums over tokens, divided by a constant."""
    advantages = {(i, j): reward - _mean(group) for i, group in _groups(batch) for j, reward in group.items()}
    return _summed(batch, advantages, lambda lengths, own: len(lengths) * max_tokens, _clipped(0.2, 0.2))


def rloo(batch):
    """arXiv 2402.14740: ``-A sum_t log pi``, ``A`` the KL-shaped reward less the mean of the others'."""
    advantages = {}
    for i, group in _groups(batch):
        shaped = {}
        for j, reward in group.items():
            distance = sum(float(batch.old[i, j, k] - batch.reference[i, j, k]) for k in _tokens(batch, i, j))
            shaped[j] = reward - 0.03 * distance
        for j in group:
            others = {m: reward for m, reward in shaped.items() if m != j}
            advantages[i, j] = shaped[j] - _mean(others) if others else 0.0
    return _summed(batch, advantages, lambda lengths, own: len(lengths), _each(lambda facts, now, a: -a * now))


def reinforce_plus_plus(batch):
    """arXiv 2501.03262: returns of ``R`` at the last token and ``-beta (old - reference)`` at each, whitened."""
    returns = {}
    for i, group in _groups(batch):
        for j, reward in group.items():
            ahead = reward
            for k in reversed(_tokens(batch, i, j)):
                ahead -= 0.01 * float(batch.old[i, j, k] - batch.reference[i, j, k])
                returns[i, j, k] = ahead
    return _summed(batch, _whitened(returns), _token_mean, _clipped(0.2, 0.2))


def reinforce_plus_plus_baseline(batch):
    """arXiv 2501.03262: the group's mean off the reward, whitened over the tokens of the batch."""
    better = {}
    for i, group in _groups(batch):
        for j, reward in group.items():
            for k in _tokens(batch, i, j):
                better[i, j, k] = reward - _mean(group)
    return _summed(batch, _whitened(better), _token_mean, _clipped(0.2, 0.2))


def dapo(batch, *, max_tokens=20_480, buffer_tokens=4096):
    """arXiv 2503.14476, eq. 8 and 13: groups that are neither all right nor all wrong; length off the reward."""
    groups = []
    for i, group in _groups(batch):
        if len(set(group.values())) < 2:
            continue
        for j in group:
            length = len(_tokens(batch, i, j))
            if length > max_tokens:
                group[j] -= 1
            elif length > max_tokens - buffer_tokens:
                group[j] += (max_tokens - buffer_tokens - length) / buffer_tokens
        groups.append((i, group))
    advantages = {(i, j): a for i, j, a in _standardised(groups)}
    return _summed(batch, advantages, _token_mean, _clipped(0.2, 0.28))


def gspo(batch):
    """arXiv 2507.18071, eq. 5 to 7: ``mean_i -min(s A, clip(s) A)``, ``s`` the geometric mean of the tokens' ratios."""
    advantages = {(i, j): a for i, j, a in _standardised(_groups(batch))}

    def terms(facts, now, a):
        s = np.exp(sum(_log_ratio(*token) for token in zip(facts, now)) / len(now))
        return [-_less(s * a[0], _clamp(s, 1 - 3e-4, 1 + 4e-4) * a[0])]

    return _summed(batch, advantages, lambda lengths, own: len(lengths), terms)


def cispo(batch, *, clip_high):
    """arXiv 2506.13585, eq. 4: ``-sg(min(r, 1 + clip_high)) A log pi``, mean over tokens."""
    advantages = {(i, j): a for i, j, a in _standardised(_groups(batch))}

    def term(facts, now, a):
        return -min(np.exp(_log_ratio(facts, now)).real, 1 + clip_high) * a * now

    return _summed(batch, advantages, _token_mean, _each(term))


def _summed(batch, advantages, denominator, terms):
    """``sum terms / denominator`` over the trajectories in ``advantages`` (by member or by token).

    ``terms(facts, now, a)`` are those of one trajectory, given lists of its tokens' facts (old, reference), log-probs
    and advantages.
    """
    kept = sorted({at[:2] for at in advantages if _tokens(batch, *at[:2])})
    lengths = [len(_tokens(batch, i, j)) for i, j in kept]
    given, gradient, loss, mass = np.zeros(batch.kind.shape), np.zeros(batch.kind.shape), 0.0, 0.0
    for i, j in kept:
        tokens = _tokens(batch, i, j)
        weight = 1 / denominator(lengths, len(tokens))
        facts = [(batch.old[i, j, k], batch.reference[i, j, k]) for k in tokens]
        a = [advantages[i, j] if (i, j) in advantages else advantages[i, j, k] for k in tokens]
        now = [complex(batch.policy[i, j, k]) for k in tokens]
        for n, k in enumerate(tokens):
            moved = [x + 1j * STEP if m == n else x for m, x in enumerate(now)]
            gradient[i, j, k] = weight * sum(terms(facts, moved, a)).imag / STEP
            given[i, j, k] = a[n]
        values = terms(facts, now, a)
        loss += weight * sum(values).real
        mass += weight * sum(abs(value) for value in values)
    return loss, gradient, given, mass


def _each(term):
    """Terms that know their own token only."""
    return lambda *trajectory: [term(*token) for token in zip(*trajectory)]


def _token_mean(lengths, own):
    return sum(lengths)


def _sequence_mean(lengths, own):
    return len(lengths) * own


def _groups(batch):
    """``(i, {j: reward})`` over valid members."""
    p, g = batch.valid.shape
    return [(i, {j: float(batch.outcome[i, j]) for j in range(g) if batch.valid[i, j]}) for i in range(p)]


def _tokens(batch, i, j):
    return [k for k in range(batch.kind.shape[2]) if batch.kind[i, j, k] == MODEL]


def _mean(group):
    return sum(group.values()) / len(group)


def _std(group):
    """Population std; 0 where it is rounding residue."""
    if not group:
        return 0.0
    std = (sum((value - _mean(group)) ** 2 for value in group.values()) / len(group)) ** 0.5
    return std if std > FLOOR * max(abs(value) for value in group.values()) else 0.0


def _standardised(groups):
    for i, group in groups:
        std = _std(group)
        for j, reward in group.items():
            yield i, j, (reward - _mean(group)) / (std + 1e-6) if std else 0.0


def _whitened(values):
    std = _std(values)
    return {at: (value - _mean(values)) / (std + 1e-8) if std else 0.0 for at, value in values.items()}


def _less(x, y):
    return x if x.real <= y.real else y


def _clamp(x, low, high):
    return low if x.real < low else high if x.real > high else x


def _log_ratio(facts, now):
    return _clamp(now - facts[0], -BOUND, BOUND)


def _clipped(low, high, kl_coefficient=0.0):
    """PPO's terms, and k3 against the reference."""

    def term(facts, now, a):
        r = np.exp(_log_ratio(facts, now))
        d = _clamp(facts[1] - now, -BOUND, BOUND)
        return -_less(r * a, _clamp(r, 1 - low, 1 + high) * a) + kl_coefficient * (np.exp(d) - d - 1)

    return _each(term)
