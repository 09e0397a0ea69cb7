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
from rlagents.methods.border import on_policy
from rlagents.methods.compose import Chain, chain, identity, masked, named_chain
from rlagents.methods.estimators import group_advantage
from rlagents.methods.filters import drop, mute, mute_turn_beginnings
from rlagents.methods.method import Measures, Method, method
from rlagents.methods.penalties import kl_penalty_k3
from rlagents.methods.reductions import Reduction, constant, sequence_mean, token_mean
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
    "chain",
    "clipped_surrogate",
    "constant",
    "drop",
    "estimator",
    "fact",
    "filter_stage",
    "group_advantage",
    "identity",
    "kl_penalty_k3",
    "masked",
    "method",
    "mute",
    "mute_turn_beginnings",
    "named_chain",
    "on_policy",
    "penalty",
    "predicates",
    "reshaper",
    "reward_stage",
    "sequence_mean",
    "surrogate",
    "token_mean",
]
