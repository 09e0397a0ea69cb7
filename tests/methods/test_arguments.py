"""Every number that a stage is given is checked where it is given, by name."""

import functools

import pytest

from rlagents.methods import (
    adaptive_kl_penalty,
    calibration,
    clipped_surrogate,
    condition_advantage,
    constant,
    dual_clip_surrogate,
    entropy_bonus,
    entropy_regularizer,
    exploration,
    format_gate,
    gradient_keeping_surrogate,
    group_advantage,
    group_baseline_whitened_advantage,
    kl_in_reward,
    kl_penalty_k1,
    kl_penalty_k2,
    kl_penalty_k3,
    likelihood_drop_penalty,
    likelihood_drop_penalty_by_trajectory,
    likelihood_drop_penalty_by_turn,
    masked_sequence_weights,
    masked_token_weights,
    mute_turn_beginnings,
    named_reward,
    overlong_penalty,
    predicates,
    rebalance_answers,
    sequence_surrogate,
    sequence_surrogate_by_token,
    truncated_sequence_weights,
    truncated_token_weights,
    turn_return_advantage,
    turn_rewards,
    weighted_surrogate,
    whitened_advantage,
    with_live_entropy_bonus,
)

BONUS = {"coefficient": 0.1, "top_fraction": 0.5}
CLIP = {"clip_low": 0.2, "clip_high": 0.3}
STATISTICS = {"ddof": 1, "epsilon": 0.1}
GIVEN = {
    group_advantage: STATISTICS | {"relative_floor": 1e-6},
    condition_advantage: STATISTICS,
    turn_return_advantage: STATISTICS | {"discount": 0.9},
    whitened_advantage: {"kl_coefficient": 0.1, "epsilon": 0.1},
    group_baseline_whitened_advantage: {"epsilon": 0.1},
    overlong_penalty: {"max_tokens": 8, "buffer_tokens": 4},
    functools.partial(format_gate, "format"): {"otherwise": 0.0},
    functools.partial(named_reward, "format"): {"weight": 0.5},
    turn_rewards: {"weight": 0.5},
    kl_in_reward: {"coefficient": 0.1},
    mute_turn_beginnings: {"num_tokens": 1},
    predicates.pass_rate_outside: {"low": 0.1, "high": 0.9},
    predicates.few_finished: {"minimum": 2},
    rebalance_answers: {"ratio": 1.0},
    calibration.wholly_from: {"score_threshold": 0.3},
    functools.partial(entropy_bonus, which=exploration.everywhere): BONUS,
    functools.partial(with_live_entropy_bonus, clipped_surrogate(0.2, 0.2), which=exploration.everywhere): BONUS,
    exploration.added_up_to: {"share": 0.5},
    truncated_token_weights: {"limit": 2.0},
    masked_token_weights: {"limit": 2.0},
    truncated_sequence_weights: {"limit": 2.0},
    masked_sequence_weights: {"limit": 2.0},
    clipped_surrogate: CLIP,
    dual_clip_surrogate: CLIP | {"most": 3.0},
    weighted_surrogate: CLIP,
    gradient_keeping_surrogate: CLIP,
    sequence_surrogate: CLIP,
    sequence_surrogate_by_token: CLIP,
    kl_penalty_k1: {"coefficient": 0.1},
    kl_penalty_k2: {"coefficient": 0.1},
    kl_penalty_k3: {"coefficient": 0.1},
    entropy_regularizer: {"coefficient": 0.1},
    adaptive_kl_penalty: {"initial": 0.1, "target": 0.1, "horizon": 10.0},
    likelihood_drop_penalty: {"coefficient": 0.1},
    likelihood_drop_penalty_by_turn: {"coefficient": 0.1},
    likelihood_drop_penalty_by_trajectory: {"coefficient": 0.1},
    constant: {"length": 7},
}
CASES = [(make, name) for make, given in GIVEN.items() for name in given]


def stage_name(make):
    return getattr(make, "func", make).__name__


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf"), "0.1", None, True, [0.1]], ids=str)
@pytest.mark.parametrize(("make", "name"), CASES, ids=lambda x: x if isinstance(x, str) else stage_name(x))
def test_what_is_no_finite_number_is_refused_by_name(make, name, wrong):
    make(**GIVEN[make])
    with pytest.raises(ValueError, match=rf"^{stage_name(make)}\(.*{name}=.*\): expected "):
        make(**GIVEN[make] | {name: wrong})
