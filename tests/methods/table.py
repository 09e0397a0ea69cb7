"""The table: every stage and every recipe, one line each. All laws are tried on every line."""

from rlagents.methods import (
    Method,
    Role,
    adaptive_kl_penalty,
    calibration,
    centered_advantage,
    chain,
    clipped_surrogate,
    condition_advantage,
    constant,
    drop,
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
    leave_one_out_advantage,
    likelihood_drop_penalty,
    likelihood_drop_penalty_by_trajectory,
    likelihood_drop_penalty_by_turn,
    masked,
    masked_sequence_weights,
    masked_token_weights,
    method,
    mute,
    mute_turn_beginnings,
    named_chain,
    named_reward,
    overlong_penalty,
    policy_gradient,
    predicates,
    rebalance_answers,
    recipes,
    sequence_mean,
    sequence_surrogate,
    sequence_surrogate_by_token,
    soften_negative_turns,
    token_mean,
    truncated_sequence_weights,
    truncated_token_weights,
    turn_return_advantage,
    turn_rewards,
    weighted_surrogate,
    whitened_advantage,
    with_live_entropy_bonus,
)
from tests.methods import examples

STAGES = {
    # of the library
    "group_advantage, population": group_advantage(ddof=0, epsilon=1e-6),
    "group_advantage, sample": group_advantage(ddof=1, epsilon=1e-4),
    "clipped_surrogate": clipped_surrogate(0.2, 0.2),
    "clipped_surrogate, clip-higher": clipped_surrogate(0.2, 0.28),
    "kl_penalty_k3": kl_penalty_k3(0.1),
    "drop": drop(predicates.failed_tools),
    "mute": mute(predicates.void_turns),
    "drop, by group": drop(predicates.pass_rate_outside(0.2, 0.8)),
    "mute_turn_beginnings": mute_turn_beginnings(1),
    "overlong_penalty": overlong_penalty(6, 4),
    "format_gate": format_gate("format"),
    "named_reward": named_reward("format", 0.5),
    "turn_rewards": turn_rewards(0.5),
    "kl_in_reward": kl_in_reward(0.1),
    "centered_advantage": centered_advantage(),
    "leave_one_out_advantage": leave_one_out_advantage(),
    "condition_advantage": condition_advantage(ddof=0, epsilon=1e-6),
    "whitened_advantage": whitened_advantage(kl_coefficient=0.1, epsilon=1e-8),
    "group_baseline_whitened_advantage": group_baseline_whitened_advantage(epsilon=1e-8),
    "turn_return_advantage": turn_return_advantage(discount=0.9, ddof=0, epsilon=1e-6),
    "soften_negative_turns": soften_negative_turns(),
    "soften_negative_turns, towards the best": soften_negative_turns(calibration.towards_the_best),
    "rebalance_answers": rebalance_answers(1.0),
    "entropy_bonus": entropy_bonus(0.1, which=exploration.after_successful_call, top_fraction=0.5),
    "entropy_bonus, of the batch": entropy_bonus(
        0.1, which=exploration.everywhere, against=exploration.over_batch, enters=exploration.added_up_to(0.5)
    ),
    "truncated_token_weights": truncated_token_weights(2.0),
    "masked_token_weights": masked_token_weights(2.0),
    "truncated_sequence_weights": truncated_sequence_weights(2.0),
    "masked_sequence_weights": masked_sequence_weights(2.0),
    "policy_gradient": policy_gradient(),
    "dual_clip_surrogate": dual_clip_surrogate(0.2, 0.28, 3.0),
    "weighted_surrogate": weighted_surrogate(0.2, 0.28),
    "gradient_keeping_surrogate": gradient_keeping_surrogate(0.2, 0.28),
    "sequence_surrogate": sequence_surrogate(0.2, 0.28),
    "sequence_surrogate_by_token": sequence_surrogate_by_token(0.2, 0.28),
    "with_live_entropy_bonus": with_live_entropy_bonus(
        clipped_surrogate(0.2, 0.28), 0.1, which=exploration.after_any_call, top_fraction=0.5
    ),
    "kl_penalty_k1": kl_penalty_k1(0.1),
    "kl_penalty_k2": kl_penalty_k2(0.1),
    "entropy_regularizer": entropy_regularizer(0.1),
    "adaptive_kl_penalty": adaptive_kl_penalty(0.1, target=0.1, horizon=10.0),
    "likelihood_drop_penalty": likelihood_drop_penalty(0.1),
    "likelihood_drop_penalty_by_turn": likelihood_drop_penalty_by_turn(0.1),
    "likelihood_drop_penalty_by_trajectory": likelihood_drop_penalty_by_trajectory(0.1),
    "masked by member": masked(kl_penalty_k3(0.1), lambda masks: masks.condition == 1),
    "masked by token": masked(examples.soften_negative_turns(), lambda masks: masks.turn == 0),
    "masked measure": masked(examples.entropy_penalty(0.1), lambda masks: masks.condition == 1),
    "named": named_chain(("first", examples.soften_negative_turns()), ("then", examples.soften_negative_turns())),
    # of every role
    "filter of members": examples.drop_truncated(),
    "filter of tokens": examples.mute_void_turns(),
    "reward shaper": examples.format_bonus(0.5),
    "reshaper": examples.soften_negative_turns(),
    "reshaper with facts": examples.importance_weights(2.0),
    "reshaper with old entropy": examples.old_entropy_bonus(0.1),
    "surrogate without ratio": examples.plain_gradient(),
    "penalty with own measure": examples.entropy_penalty(0.1),
    "penalty with memory": examples.adaptive_penalty(0.1, target=0.5),
}

RECIPES = {
    "grpo": recipes.grpo(),
    "grpo without kl, token mean": recipes.grpo(kl_coefficient=0, reduction=token_mean()),
    "dr_grpo": recipes.dr_grpo(),
    "rloo": recipes.rloo(),
    "reinforce_plus_plus": recipes.reinforce_plus_plus(),
    "reinforce_plus_plus_baseline": recipes.reinforce_plus_plus_baseline(),
    "dapo": recipes.dapo(max_tokens=6, buffer_tokens=4),
    "gspo": recipes.gspo(),
    "cispo": recipes.cispo(clip_high=0.28),
    "rc_grpo": recipes.rc_grpo(),
    "calib_adv": recipes.calib_adv(),
    "tao_rl": recipes.tao_rl(),
    "simple_tir": recipes.simple_tir(),
    "simple_tir, two finished": recipes.simple_tir(minimum_finished=2),
    "lld": recipes.lld(),
    "step_search": recipes.step_search(),
    "aepo": recipes.aepo(),
    "across papers": method(
        chain(
            mute(predicates.void_turns),
            mute(predicates.failed_tools),
            drop(predicates.pass_rate_outside(0.0, 1.0)),
            condition_advantage(ddof=0, epsilon=1e-6),
            soften_negative_turns(),
            rebalance_answers(1.0),
            entropy_bonus(0.01, which=exploration.after_successful_call, top_fraction=0.2),
            dual_clip_surrogate(0.2, 0.28, 3.0),
            kl_penalty_k3(0.1),
        ),
        token_mean(),
    ),
}

BATCH_GLOBAL = {
    "whitened_advantage",
    "group_baseline_whitened_advantage",
    "entropy_bonus, of the batch",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "aepo",
}
"""Lines whose credit compares prompts with each other: not separable along p, and devices talk."""


def complete(*parts) -> Method:
    """A method of the given stages: an estimator and a surrogate are put where they miss."""
    stages = list(chain(*parts).stages)
    roles = {stage.role for stage in stages}
    if Role.ESTIMATOR not in roles:
        before = [stage for stage in stages if stage.role < Role.ESTIMATOR]
        after = [stage for stage in stages if stage.role > Role.ESTIMATOR]
        stages = [*before, group_advantage(ddof=0, epsilon=1e-6), *after]
    if Role.SURROGATE not in roles:
        stages.append(clipped_surrogate(0.2, 0.2))
    return method(chain(*stages), sequence_mean())


METHODS = {name: complete(stage) for name, stage in STAGES.items()} | RECIPES
SURROGATES = {
    name: stage
    for name, stage in STAGES.items()
    if Role.SURROGATE in {s.role for s in chain(stage).stages} and name != "with_live_entropy_bonus"
}
"""Lines whose gradient at ``policy == old`` is ``-measure * advantage``; a live bonus changes the advantage."""
REDUCTIONS = {"token_mean": token_mean(), "sequence_mean": sequence_mean(), "constant": constant(7)}
