"""The table: every stage and every recipe, one line each. All laws are tried on every line."""

from rlagents.methods import (
    Method,
    Role,
    chain,
    clipped_surrogate,
    constant,
    group_advantage,
    kl_penalty_k3,
    masked,
    method,
    named_chain,
    recipes,
    sequence_mean,
    token_mean,
)
from tests.methods import examples

STAGES = {
    # of the library
    "group_advantage, population": group_advantage(ddof=0, epsilon=1e-6),
    "group_advantage, sample": group_advantage(ddof=1, epsilon=1e-4),
    "clipped_surrogate": clipped_surrogate(0.2, 0.2),
    "clipped_surrogate, clip-higher": clipped_surrogate(0.2, 0.28),
    "kl_penalty_k3": kl_penalty_k3(0.1),
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
}


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
SURROGATES = {name: stage for name, stage in STAGES.items() if Role.SURROGATE in {s.role for s in chain(stage).stages}}
REDUCTIONS = {"token_mean": token_mean(), "sequence_mean": sequence_mean(), "constant": constant(7)}
