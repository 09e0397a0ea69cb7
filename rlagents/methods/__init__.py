"""The algebra of methods: ``(logprobs, rewards, masks) -> loss``, composed of small stages.

``base`` the stage and its roles; ``compose`` chain, identity, named_chain, masked; ``border`` the one detach;
``method`` the whole; ``reductions`` measures over tokens. The stages: ``filters`` (with ``predicates``), ``rewards``,
``estimators`` and ``baselines``, ``calibration``, ``exploration`` (and ``live_entropy``), ``offpolicy``, ``surrogates``
and ``sequence_surrogates``, ``penalties`` and ``likelihood``. ``recipes``: the methods of the field, a sentence each.
``specimen``: what a stage makes of one tiny batch.
"""

from rlagents.methods import calibration, exploration, predicates, specimen
from rlagents.methods.base import (
    MethodError,
    Role,
    Transform,
    advantages_of,
    estimator,
    fact,
    filter_stage,
    penalty,
    reshaper,
    reward_stage,
    surrogate,
)
from rlagents.methods.baselines import (
    centered_advantage,
    condition_advantage,
    group_baseline_whitened_advantage,
    leave_one_out_advantage,
    turn_return_advantage,
    whitened_advantage,
)
from rlagents.methods.border import on_policy
from rlagents.methods.calibration import rebalance_answers, soften_negative_turns
from rlagents.methods.compose import Chain, chain, identity, masked, named_chain
from rlagents.methods.estimators import group_advantage
from rlagents.methods.exploration import entropy_bonus
from rlagents.methods.filters import drop, mute, mute_turn_beginnings
from rlagents.methods.likelihood import (
    likelihood_drop_penalty,
    likelihood_drop_penalty_by_trajectory,
    likelihood_drop_penalty_by_turn,
)
from rlagents.methods.live_entropy import with_live_entropy_bonus
from rlagents.methods.method import Measures, Method, method
from rlagents.methods.offpolicy import (
    masked_sequence_weights,
    masked_token_weights,
    truncated_sequence_weights,
    truncated_token_weights,
)
from rlagents.methods.penalties import (
    adaptive_kl_penalty,
    entropy_regularizer,
    kl_penalty_k1,
    kl_penalty_k2,
    kl_penalty_k3,
)
from rlagents.methods.reductions import Reduction, constant, sequence_mean, token_mean
from rlagents.methods.rewards import format_gate, kl_in_reward, named_reward, overlong_penalty, turn_rewards
from rlagents.methods.sequence_surrogates import sequence_surrogate, sequence_surrogate_by_token
from rlagents.methods.surrogates import (
    clipped_surrogate,
    dual_clip_surrogate,
    gradient_keeping_surrogate,
    policy_gradient,
    weighted_surrogate,
)

from rlagents.methods import recipes  # isort: skip  (made of all the above)

__all__ = [
    "Chain",
    "Measures",
    "Method",
    "MethodError",
    "Reduction",
    "Role",
    "Transform",
    "adaptive_kl_penalty",
    "advantages_of",
    "calibration",
    "centered_advantage",
    "chain",
    "clipped_surrogate",
    "condition_advantage",
    "constant",
    "drop",
    "dual_clip_surrogate",
    "entropy_bonus",
    "entropy_regularizer",
    "estimator",
    "exploration",
    "fact",
    "filter_stage",
    "format_gate",
    "gradient_keeping_surrogate",
    "group_advantage",
    "group_baseline_whitened_advantage",
    "identity",
    "kl_in_reward",
    "kl_penalty_k1",
    "kl_penalty_k2",
    "kl_penalty_k3",
    "leave_one_out_advantage",
    "likelihood_drop_penalty",
    "likelihood_drop_penalty_by_trajectory",
    "likelihood_drop_penalty_by_turn",
    "masked",
    "masked_sequence_weights",
    "masked_token_weights",
    "method",
    "mute",
    "mute_turn_beginnings",
    "named_chain",
    "named_reward",
    "on_policy",
    "overlong_penalty",
    "penalty",
    "policy_gradient",
    "predicates",
    "rebalance_answers",
    "recipes",
    "reshaper",
    "reward_stage",
    "sequence_mean",
    "sequence_surrogate",
    "sequence_surrogate_by_token",
    "soften_negative_turns",
    "specimen",
    "surrogate",
    "token_mean",
    "truncated_sequence_weights",
    "truncated_token_weights",
    "turn_return_advantage",
    "turn_rewards",
    "weighted_surrogate",
    "whitened_advantage",
    "with_live_entropy_bonus",
]
