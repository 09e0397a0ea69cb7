"""Methods of ours and the options of TRL under which both define the same loss."""

from typing import Any

from rlagents.methods import (
    Method,
    chain,
    clipped_surrogate,
    constant,
    dual_clip_surrogate,
    entropy_regularizer,
    group_advantage,
    kl_penalty_k3,
    masked_sequence_weights,
    masked_token_weights,
    method,
    mute,
    predicates,
    recipes,
    sequence_mean,
    sequence_surrogate,
    token_mean,
    truncated_sequence_weights,
    truncated_token_weights,
    weighted_surrogate,
)

MEAN_OVER_ROWS = {"grpo", "dr_grpo", "luspo"}
"""Values of TRL's ``loss_type`` that average over rows, those without a trained token included: there definitions agree
where every row has one."""

ADVANTAGE = group_advantage(ddof=1, epsilon=1e-4)
"""TRL's ``scale_rewards="group"``: the sample std, and an epsilon that is written into its code."""

CLIP: dict[str, Any] = {"epsilon": 0.2, "epsilon_high": 0.28}
K3: dict[str, Any] = {"beta": 0.04, "use_bias_correction_kl": False}
"""Its KL as it is in GRPO's paper; by default TRL multiplies it by the ratio."""

_CLIPPED = clipped_surrogate(0.2, 0.28)


def _by_tokens(*stages) -> Method:
    return method(chain(*stages), token_mean())


def _weights(mode: str) -> dict[str, Any]:
    return {
        "loss_type": "dapo",
        **CLIP,
        **K3,
        "use_vllm": True,
        "vllm_importance_sampling_mode": mode,
        "vllm_importance_sampling_clip_max": 1.5,
    }


CASES: dict[str, tuple[Method, dict[str, Any]]] = {
    "grpo": (
        recipes.grpo(ddof=1, epsilon=1e-4, clip_high=0.28, kl_coefficient=0),
        {"loss_type": "grpo", **CLIP},
    ),
    "grpo, k3": (
        recipes.grpo(ddof=1, epsilon=1e-4, clip_high=0.28, kl_coefficient=0.04),
        {"loss_type": "grpo", **CLIP, **K3},
    ),
    "dr_grpo": (
        recipes.dr_grpo(max_tokens=9, clip_high=0.28),
        {"loss_type": "dr_grpo", **CLIP, "scale_rewards": "none", "max_completion_length": 9},
    ),
    "dapo": (_by_tokens(ADVANTAGE, _CLIPPED), {"loss_type": "dapo", **CLIP}),
    "bnpo, k3": (
        recipes.grpo(ddof=1, epsilon=1e-4, clip_high=0.28, kl_coefficient=0.04, reduction=token_mean()),
        {"loss_type": "bnpo", **CLIP, **K3},
    ),
    "cispo": (_by_tokens(ADVANTAGE, weighted_surrogate(1.0, 0.5)), {"loss_type": "cispo", "epsilon_high": 1.5}),
    "gspo": (
        method(chain(ADVANTAGE, sequence_surrogate(0.1, 0.15)), sequence_mean()),
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.1, "epsilon_high": 0.15},
    ),
    "gspo, k3": (
        method(chain(ADVANTAGE, sequence_surrogate(0.1, 0.15), kl_penalty_k3(0.04)), sequence_mean()),
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon": 0.1,
            "epsilon_high": 0.15,
            **K3,
        },
    ),
    "luspo": (
        method(chain(ADVANTAGE, sequence_surrogate(0.1, 0.15)), constant(1)),
        {"loss_type": "luspo", "importance_sampling_level": "sequence", "epsilon": 0.1, "epsilon_high": 0.15},
    ),
    "dapo, token_truncate, k3": (
        _by_tokens(ADVANTAGE, truncated_token_weights(1.5), _CLIPPED, kl_penalty_k3(0.04)),
        _weights("token_truncate"),
    ),
    "dapo, token_mask, k3": (
        _by_tokens(ADVANTAGE, masked_token_weights(1.5), _CLIPPED, kl_penalty_k3(0.04)),
        _weights("token_mask"),
    ),
    "dapo, sequence_truncate, k3": (
        _by_tokens(ADVANTAGE, truncated_sequence_weights(1.5), _CLIPPED, kl_penalty_k3(0.04)),
        _weights("sequence_truncate"),
    ),
    "dapo, sequence_mask, k3": (
        _by_tokens(ADVANTAGE, masked_sequence_weights(1.5), _CLIPPED, kl_penalty_k3(0.04)),
        _weights("sequence_mask"),
    ),
    "dapo, delta": (
        _by_tokens(ADVANTAGE, dual_clip_surrogate(0.2, 0.28, 1.5)),
        {"loss_type": "dapo", **CLIP, "delta": 1.5},
    ),
    "dapo, entropy_coef": (
        _by_tokens(ADVANTAGE, _CLIPPED, entropy_regularizer(0.01)),
        {"loss_type": "dapo", **CLIP, "entropy_coef": 0.01},
    ),
    "dapo, mask_truncated_completions": (
        _by_tokens(mute(predicates.truncated), ADVANTAGE, _CLIPPED),
        {"loss_type": "dapo", **CLIP, "mask_truncated_completions": True},
    ),
}
