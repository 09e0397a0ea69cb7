"""The algebra of methods: ``(logprobs, rewards, masks) -> loss``, composed of small stages.

``base`` the stage and its roles; ``compose`` chain, identity, named_chain, masked; ``border`` the one detach;
``method`` the whole; ``reductions`` measures over tokens; ``estimators``, ``surrogates``, ``penalties`` the stages;
``recipes`` the methods of the field, a sentence each.
"""

from rlagents.methods import predicates
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
from rlagents.methods.compose import Chain, chain, identity, masked, named_chain
from rlagents.methods.estimators import group_advantage
from rlagents.methods.filters import drop, mute, mute_turn_beginnings
from rlagents.methods.method import Measures, Method, method
from rlagents.methods.penalties import kl_penalty_k3
from rlagents.methods.reductions import Reduction, constant, sequence_mean, token_mean
from rlagents.methods.rewards import format_gate, kl_in_reward, named_reward, overlong_penalty, turn_rewards
from rlagents.methods.surrogates import clipped_surrogate

__all__ = [
    "Chain",
    "Measures",
    "Method",
    "MethodError",
    "Reduction",
    "Role",
    "Transform",
    "advantages_of",
    "centered_advantage",
    "chain",
    "clipped_surrogate",
    "condition_advantage",
    "constant",
    "drop",
    "estimator",
    "fact",
    "filter_stage",
    "format_gate",
    "group_advantage",
    "group_baseline_whitened_advantage",
    "identity",
    "kl_in_reward",
    "kl_penalty_k3",
    "leave_one_out_advantage",
    "masked",
    "method",
    "mute",
    "mute_turn_beginnings",
    "named_chain",
    "named_reward",
    "on_policy",
    "overlong_penalty",
    "penalty",
    "predicates",
    "reshaper",
    "reward_stage",
    "sequence_mean",
    "surrogate",
    "token_mean",
    "turn_return_advantage",
    "turn_rewards",
    "whitened_advantage",
]
