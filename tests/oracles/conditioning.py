"""The two sides of Propositions 4.2 and 4.3 of RC-GRPO, group by group, in float64."""

import numpy as np

# A member is (condition, reward, tokens of the trajectory, log-probability of all that was sampled in it).


def population_variance(rewards):
    mean = sum(rewards) / len(rewards)
    return sum((reward - mean) ** 2 for reward in rewards) / len(rewards)


def sample_variance(rewards):
    mean = sum(rewards) / len(rewards)
    return sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)


def restored(group, low, high):
    """(variance within the group, p (1 - p) eps^2 with p and an unbiased eps^2 of the group); None without both."""
    ours = [(condition, reward) for condition, reward, _, _ in group if condition in (low, high)]
    of_low = [reward for condition, reward in ours if condition == low]
    of_high = [reward for condition, reward in ours if condition == high]
    if len(of_low) < 2 or len(of_high) < 2:
        return None
    gap = sum(of_high) / len(of_high) - sum(of_low) / len(of_low)
    squared = gap**2 - sample_variance(of_high) / len(of_high) - sample_variance(of_low) / len(of_low)
    p = len(of_high) / len(ours)
    return population_variance([reward for _, reward in ours]), p * (1 - p) * squared


def collapse(group, solved):
    """(1 if all members are one trajectory, else 0; the bound on how probable that is); None for mixed conditions."""
    if len(group) < 2 or len({condition for condition, _, _, _ in group}) > 1:
        return None
    alike = all(tokens == group[0][2] for _, _, tokens, _ in group)
    bounds = [np.exp(len(group) * log_prob) for _, reward, _, log_prob in group if reward >= solved]
    return float(alike), max(bounds, default=0.0)


def mean(values):
    return sum(values) / len(values) if values else np.nan


def conditioning(groups, low=0, high=1, solved=1.0, reportable=0.05):
    members = [member for group in groups for member in group]
    variances = [found for group in groups if (found := restored(group, low, high)) is not None]
    collapses = [found for group in groups if group and (found := collapse(group, solved)) is not None]
    reported = [found for found in collapses if found[1] >= reportable]
    of_low = [reward for condition, reward, _, _ in members if condition == low]
    of_high = [reward for condition, reward, _, _ in members if condition == high]
    found = {
        "reward_low": mean(of_low),
        "reward_high": mean(of_high),
        "reward_gap": mean(of_high) - mean(of_low),
        "mixed_groups": len(variances),
        "mixed_variance": mean([variance for variance, _ in variances]),
        "mixed_variance_bound": mean([bound for _, bound in variances]),
        "identical_groups": mean([alike for alike, _ in collapses]),
        "peaked_groups": len(reported),
        "peaked_identical": mean([alike for alike, _ in reported]),
        "peaked_identical_bound": mean([bound for _, bound in reported]),
    }
    return {name: value for name, value in found.items() if not np.isnan(value)}  # a mean of nothing is left out
