"""Whole recipes for agents, which read turns, tools and entropies, from their papers, in float64.

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


def calib_adv(batch):
    """arXiv 2604.18235: intermediate turns softened, answers rebalanced with lambda 1, clip 0.2, mean over tokens."""
    advantages = {}
    for i, members in _members(batch):
        scaled = _standardised({j: float(batch.outcome[i, j]) for j in members}, 1)
        answers = []
        for j in members:
            for k in _tokens(batch, i, j):
                a, turn = scaled[j], batch.turn[i, j, k]
                if turn == batch.num_turns[i, j] - 1:
                    answers.append((j, k))
                elif a < 0:
                    a *= 1 - float(batch.turn_scores[i, j, turn])
                advantages[i, j, k] = a
        praise = sum(max(advantages[i, j, k], 0.0) for j, k in answers)
        blame = sum(max(-advantages[i, j, k], 0.0) for j, k in answers)
        for j, k in answers:
            if praise == 0 or blame == 0:
                advantages[i, j, k] = 0.0
            elif advantages[i, j, k] > 0:
                advantages[i, j, k] *= blame / praise
    return _summed(batch, advantages, lambda *at: _ppo(*at, 0.2, 0.2))


def tao_rl(batch, *, opened_by=None, least_finished=4):
    """arXiv 2606.03762: ``A (1 + 0.01 g z)`` on O_valid, clips 0.2 and 0.28, dual clip 3, mean over tokens.

    ``z``: entropy against its trajectory. ``g``: the turn follows one that ``opened_by [p g s]`` counts in (calls, as
    released), and the entropy is at or above the trajectory's 0.8 quantile. ``least_finished``: SimpleTIR's filter.
    """
    opened_by = batch.turn_tool_calls if opened_by is None else opened_by
    advantages = {}
    for i, members in _members(batch):
        rewards = {j: float(batch.outcome[i, j]) for j in members}
        finished = sum(not batch.truncated[i, j] for j in members)
        if not members or finished < least_finished or not 0 < sum(rewards.values()) / len(rewards) < 1:
            continue
        scaled = _standardised(rewards, 1)
        for j in members:
            turns = range(batch.num_turns[i, j])
            calls = sum(batch.turn_tool_calls[i, j, s] for s in turns)
            worked = sum(batch.turn_tool_successes[i, j, s] for s in turns)
            if any(batch.turn_void[i, j, s] for s in turns) or (calls > 0 and worked == 0):
                continue
            entropy = {k: float(batch.old_entropy[i, j, k]) for k in _tokens(batch, i, j)}
            doubt = _standardised(entropy, 0, 1e-8)
            n = len(entropy)
            # The 0.8 quantile lies at 0.8 (n - 1); as many values are at or above it, in whole numbers:
            quantile = sorted(entropy.values())[n - (n + 4) // 5]
            for k in entropy:
                s = batch.turn[i, j, k]
                gate = s > 0 and opened_by[i, j, s - 1] > 0 and entropy[k] >= quantile
                advantages[i, j, k] = scaled[j] * (1 + 0.01 * gate * doubt[k])
    return _summed(batch, advantages, lambda *at: _dual(*at, 0.2, 0.28, 3.0))


def simple_tir(batch):
    """arXiv 2509.02479: no void trajectories in the loss, pass rates 0.1 to 0.9, 4 finished members, dual clip 3."""
    advantages = {}
    for i, members in _members(batch):
        rewards = {j: float(batch.outcome[i, j]) for j in members}
        finished = sum(not batch.truncated[i, j] for j in members)
        if finished < 4 or not 0.1 < sum(rewards.values()) / len(rewards) < 0.9:
            continue
        scaled = _standardised(rewards, 1)
        for j in members:
            if not any(batch.turn_void[i, j, s] for s in range(batch.num_turns[i, j])):
                advantages |= {(i, j, k): scaled[j] for k in _tokens(batch, i, j)}
    return _summed(batch, advantages, lambda *at: _dual(*at, 0.2, 0.28, 3.0))


def lld(batch):
    """GRPO, and 0.1 times the mean fall of likelihood over tokens of no negative advantage, in turns that fell.

    arXiv 2512.04220; a turn falls where the falls and rises of its tokens of no negative advantage sum to a fall.
    """
    advantages = {}
    for i, members in _members(batch):
        scaled = _standardised({j: float(batch.outcome[i, j]) for j in members}, 0)
        advantages |= {(i, j, k): scaled[j] for j in members for k in _tokens(batch, i, j)}
    preserved = [at for at, a in advantages.items() if a >= 0]
    turn_falls = {}
    for i, j, k in preserved:
        turn = (i, j, batch.turn[i, j, k])
        turn_falls[turn] = turn_falls.get(turn, 0.0) + float(batch.old[i, j, k]) - float(batch.policy[i, j, k])

    def penalty(facts, now, a):
        fall, (i, j, k) = facts[0] - now, facts[2]
        falls = a >= 0 and fall.real > 0 and turn_falls[i, j, batch.turn[i, j, k]] > 0
        return 0.1 * fall / len(preserved) if falls else 0.0

    return _summed(batch, advantages, lambda *at: _ppo(*at, 0.2, 0.2), penalty)


def step_search(batch):
    """Step rewards of arXiv 2505.15107, returns of turns (discount 1) against the group's, clip 0.2, k3 at 0.001."""
    advantages = {}
    for i, members in _members(batch):
        returns = {}
        for j in members:
            ahead = float(batch.outcome[i, j])
            for s in reversed(range(batch.num_turns[i, j])):
                ahead += float(batch.turn_scores[i, j, s])
                returns[j, s] = ahead
        scaled = _standardised(returns, 0)
        advantages |= {(i, j, k): scaled[j, batch.turn[i, j, k]] for j in members for k in _tokens(batch, i, j)}
    return _summed(batch, advantages, lambda *at: _ppo(*at, 0.2, 0.2) + 0.001 * _k3(*at))


def aepo(batch):
    """arXiv 2510.14545: ``A (1 + 0.01 z)``, ``z`` over the batch; above the clip ``(1 + high) r / sg(r)``."""
    advantages, entropy = {}, {}
    for i, members in _members(batch):
        scaled = _standardised({j: float(batch.outcome[i, j]) for j in members}, 1)
        for j in members:
            for k in _tokens(batch, i, j):
                advantages[i, j, k], entropy[i, j, k] = scaled[j], float(batch.old_entropy[i, j, k])
    doubt = _standardised(entropy, 0, 1e-8)
    advantages = {at: a * (1 + 0.01 * doubt[at]) for at, a in advantages.items()}

    def term(facts, now, a):
        r = _ratio(facts, now)
        bounded = 1.28 * r / r.real if r.real > 1.28 else _clamp(r, 0.8, 1.28)
        return -_less(r * a, bounded * a)

    return _summed(batch, advantages, term)


def _summed(batch, advantages, term, penalty=lambda *at: 0.0):
    """Mean of ``term`` over the tokens in ``advantages`` plus the sum of ``penalty``; each knows its own token only."""
    given, gradient, loss, mass = np.zeros(batch.kind.shape), np.zeros(batch.kind.shape), 0.0, 0.0
    for at, a in advantages.items():
        facts = (batch.old[at], batch.reference[at], at)
        values = [
            part(facts, complex(batch.policy[at], STEP), a) / share
            for part, share in ((term, len(advantages)), (penalty, 1))
        ]
        given[at] = a
        loss += sum(values).real
        mass += sum(abs(value.real) for value in values)
        gradient[at] = sum(values).imag / STEP
    return loss, gradient, given, mass


def _members(batch):
    p, g = batch.valid.shape
    return [(i, [j for j in range(g) if batch.valid[i, j]]) for i in range(p)]


def _tokens(batch, i, j):
    return [k for k in range(batch.kind.shape[2]) if batch.kind[i, j, k] == MODEL]


def _standardised(values, ddof, epsilon=1e-6):
    """``(x - mean) / (std + epsilon)``; 0 where the std is rounding residue."""
    if len(values) <= ddof:
        return dict.fromkeys(values, 0.0)
    mean = sum(values.values()) / len(values)
    std = (sum((x - mean) ** 2 for x in values.values()) / (len(values) - ddof)) ** 0.5
    alike = std <= FLOOR * max(abs(x) for x in values.values())
    return {at: 0.0 if alike else (x - mean) / (std + epsilon) for at, x in values.items()}


def _less(x, y):
    return x if x.real <= y.real else y


def _clamp(x, low, high):
    return low if x.real < low else high if x.real > high else x


def _ratio(facts, now):
    return np.exp(_clamp(now - facts[0], -BOUND, BOUND))


def _ppo(facts, now, a, low, high):
    r = _ratio(facts, now)
    return -_less(r * a, _clamp(r, 1 - low, 1 + high) * a)


def _dual(facts, now, a, low, high, most):
    value = _ppo(facts, now, a, low, high)
    return _less(value, complex(-most * a)) if a < 0 else value


def _k3(facts, now, a):
    d = _clamp(facts[1] - now, -BOUND, BOUND)
    return np.exp(d) - d - 1
