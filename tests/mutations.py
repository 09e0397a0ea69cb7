"""Small wrong edits of the stages, each with the tests that have to notice it. See ``tests/mutate.py``."""

from typing import NamedTuple

METHODS = "tests/methods/"
FLOAT32, FLOAT64 = " and float32", " and float64"


class Mutation(NamedTuple):
    """``old`` stands in ``file`` exactly ``times`` times; the first is replaced by ``new``."""

    file: str
    old: str
    new: str
    tests: str
    """A test file under tests/methods, or another one by its path from the root."""
    chosen: str
    """Which of its tests: pytest's -k expression."""
    times: int = 1


def _in(file: str, tests: str, *edits: tuple) -> list[Mutation]:
    path = f"rlagents/{file}" if "." in file else f"rlagents/{file}.py"
    return [Mutation(path, old, new, tests, chosen, *times) for old, new, chosen, *times in edits]


_ESTIMATORS = "test_rewards_and_baselines.py"
MUTATIONS = [
    # statistics and maps
    *_in(
        "numerics",
        "tests/test_numerics.py",
        ("jnp.maximum(count - ddof, 0)", "jnp.maximum(count - 1 + ddof, 0)", "masked_statistics"),
        ("alike = variance <= jnp.square(relative_floor * scale)", "alike = variance <= 0", "rounding_residue"),
        ("jnp.where(inside, turn, 0), axis=-1)", "jnp.maximum(turn - 1, 0), axis=-1)", "turns_to_tokens_and_back"),
        (
            "return jnp.clip(promote(numerator) - promote(denominator), -bound, bound)",
            "return promote(numerator) - promote(denominator)",
            "log_ratio",
        ),
    ),
    # border
    *_in("methods/border", "test_traps.py", ("jnp.where(where, x, jnp.zeros((), x.dtype))", "x", "nan_behind")),
    *_in(
        "methods/border",
        "test_border.py",
        ("detach(getattr(shown, field))", "getattr(shown, field)", "every_fact and kl_penalty_k2"),
        ("mask = credit.mask & credit.valid[..., None]", "mask = credit.mask", "forgot_the_mask"),
    ),
    # filters
    *_in(
        "methods/filters",
        "test_filters.py",
        ("valid=credit.valid & ~out, ", "", "not muting"),
        ("muted = replace(credit, mask=credit.mask & ~out[..., None])", "muted = credit", "mut"),
        ("(place >= num_tokens)", "(place > num_tokens)", "beginnings"),
    ),
    *_in(
        "methods/predicates",
        "test_filters.py",
        ("return (calls > 0) & (successes == 0)", "return successes == 0", "failed_tools"),
        ("return jnp.any(rewards.turn_void, -1)", "return jnp.all(rewards.turn_void, -1)", "void_turns"),
        ("(rate <= low) | (rate >= high)", "(rate <= low) & (rate >= high)", "pass_rate"),
        ("finished < minimum", "finished <= minimum", "few_finished"),
        ("credit.valid & ~masks.truncated", "credit.valid", "few_finished"),
        ("~jnp.any(apart, -1, keepdims=True)", "~jnp.all(apart, -1, keepdims=True)", "uniform"),
    ),
    # rewards
    *_in(
        "methods/rewards",
        _ESTIMATORS,
        ("masks.kind == Kind.MODEL", "masks.kind != Kind.PAD", "overlong" + FLOAT32),
        ("max_tokens - buffer_tokens - length", "max_tokens - length", "overlong" + FLOAT32),
        ('fact_name) > 0\n        return', 'fact_name) >= 0\n        return', "format_gate" + FLOAT32),
        ("masked_sum(old - reference,", "masked_sum(reference - old,", "kl_in_reward" + FLOAT32),
        ("jnp.sum(rewards.turn_scores, axis=-1)", "jnp.max(rewards.turn_scores, axis=-1)", "turn_rewards" + FLOAT32),
    ),
    # estimators
    *_in(
        "methods/estimators",
        "test_oracles.py",
        ("axis=-1, ddof=ddof, relative", "axis=-1, ddof=1 - ddof, relative", "group_advantage" + FLOAT32),
        ("safe_divide(better, std + epsilon)", "safe_divide(better, std)", "group_advantage" + FLOAT32),
    ),
    *_in(
        "methods/estimators",
        "test_filters.py",
        ("valid = credit.valid", "valid = masks.valid", "leave_the_statistics"),
    ),
    *_in(
        "methods/baselines",
        _ESTIMATORS,
        ("safe_divide(count, count - 1)", "safe_divide(count - 1, count)",
         "test_estimators and leave_one_out" + FLOAT32),
        ("masks.condition[..., None, :]) & credit.valid[..., None, :]", "masks.condition[..., None, :])",
         "condition" + FLOAT32),
        ("better -= kl_coefficient", "better += kl_coefficient", "whitened" + FLOAT32),
        ("jnp.flip(jnp.cumsum(jnp.flip(jnp.where(credit.mask, old - reference, 0), -1), -1), -1)",
         "jnp.cumsum(jnp.where(credit.mask, old - reference, 0), -1)", "whitened" + FLOAT32),
        ("last = turns == masks.num_turns[..., None] - 1", "last = turns == masks.num_turns[..., None] - 2",
         "turn" + FLOAT32),
        ("jnp.where(ahead >= 0, discount", "jnp.where(ahead > 0, discount", "turn" + FLOAT32),
        ("masked_center(x, where, axis=axis), std + epsilon)", "masked_center(x, where, axis=axis), std - epsilon)",
         "turn" + FLOAT64),
    ),
    # reshapers
    *_in(
        "methods/calibration",
        "test_reshapers.py",
        ("return advantages * (1 - score)\n", "return advantages * score\n", "soften" + FLOAT32),
        ("(advantages < 0) & (masks.turn <", "(advantages > 0) & (masks.turn <", "soften" + FLOAT32),
        ("masks.turn < masks.num_turns[..., None] - 1", "masks.turn < masks.num_turns[..., None]", "soften" + FLOAT32),
        ("ratio * safe_divide(negative, positive)", "safe_divide(negative, ratio * positive)", "rebalance" + FLOAT32),
        ("(positive > 0) & (negative > 0)", "(positive > 0) | (negative > 0)", "of_one_sign"),
        ("(masks.turn == masks.num_turns[..., None] - 1)", "(masks.turn == 0)", "rebalance" + FLOAT32),
        ("axis=(-2, -1), keepdims=True)\n        negative", "axis=-1, keepdims=True)\n        negative",
         "rebalance" + FLOAT32),
    ),
    *_in(
        "methods/exploration",
        "test_reshapers.py",
        ("jnp.pad(counts[..., :-1] > 0, ((0, 0), (0, 0), (1, 0)))", "counts > 0", "bonus" + FLOAT32),
        ("ddof=0, keepdims=True)", "ddof=1, keepdims=True)", "bonus" + FLOAT32),
        ("entropy >= least", "entropy > least", "bonus" + FLOAT32),
        ("return advantages * (1 + bonus)", "return advantages * (1 - bonus)", "bonus" + FLOAT32),
        ("jnp.clip(bonus, -most, most)", "jnp.clip(bonus, 0, most)", "bounded" + FLOAT32),
        ("gate = credit.mask & which(rewards, masks) &", "gate = credit.mask &", "success" + FLOAT32),
    ),
    *_in(
        "methods/live_entropy",
        "test_live_entropy.py",
        ("credit.mask & credit.marks[_MARK] &", "credit.mask &", "test_live_bonus" + FLOAT32),
        ('fact("with_live_entropy_bonus", logprobs, "entropy")', "logprobs.old_entropy",
         "test_live_bonus" + FLOAT32),
    ),
    *_in(
        "methods/offpolicy",
        "test_reshapers.py",
        ("jnp.exp(log_ratio(old, rollout))", "jnp.exp(log_ratio(rollout, old))", "truncated and tokens" + FLOAT32),
        ("jnp.where(weight <= limit, weight, 0)", "jnp.minimum(weight, limit)", "masking"),
        ("masked_sum(old - rollout, mask", "masked_sum(rollout - old, mask", "truncated and sequences" + FLOAT32),
    ),
    # surrogates
    *_in(
        "methods/surrogates",
        "test_oracles.py",
        ("bounded = jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages",
         "bounded = jnp.clip(ratio, 1 - clip_high, 1 + clip_low) * advantages", "clipped_surrogate" + FLOAT32),
        ("-jnp.minimum(free, bounded), metrics", "-jnp.maximum(free, bounded), metrics", "clipped_surrogate" + FLOAT32),
    ),
    *_in(
        "methods/surrogates",
        "test_surrogates.py",
        ("return -advantages_of", "return advantages_of", "policy_gradient" + FLOAT32),
        ("jnp.where(advantages < 0, jnp.maximum(kept, most * advantages), kept)",
         "jnp.maximum(kept, most * advantages)", "dual_clip" + FLOAT32),
        ("detach(jnp.clip(ratio, 1 - clip_low, 1 + clip_high))", "jnp.clip(ratio, 1 - clip_low, 1 + clip_high)",
         "weighted" + FLOAT32),
        ("detach(ratio)", "ratio", "gradient_keeping" + FLOAT32),
    ),
    *_in(
        "methods/sequence_surrogates",
        "test_surrogates.py",
        ("credit.mask, axis=-1, keepdims=True)", "credit.mask, axis=(-2, -1), keepdims=True)", "sequence" + FLOAT32),
        ("detach(log_s) + (policy", "log_s + (policy", "by_token" + FLOAT32),
    ),
    # penalties and reductions
    *_in(
        "methods/penalties",
        "test_oracles.py",
        ("return jnp.expm1(-d) + d", "return jnp.expm1(d) - d", "k3" + FLOAT32),
    ),
    *_in(
        "methods/penalties",
        "test_penalties.py",
        ("lambda d: 0.5 * jnp.square(d)", "lambda d: jnp.square(d)", "k2" + FLOAT32),
        ("return -coefficient * fact(", "return coefficient * fact(", "regularizer" + FLOAT32),
        ("coefficient * (1 + step)", "coefficient * (1 - step)", "adaptive_coefficient" + FLOAT32),
    ),
    *_in(
        "methods/likelihood",
        "test_penalties.py",
        ("return advantages >= 0", "return advantages > 0", "test_likelihood_drop and token" + FLOAT32),
        ('fact(name, logprobs, "old") - logprobs.policy', 'logprobs.policy - fact(name, logprobs, "old")',
         "test_likelihood_drop and token" + FLOAT32),
        ("keepdims=True) > 0", "keepdims=True) < 0", "test_likelihood_drop and trajectory" + FLOAT32),
        ("masked_count(where, axis=None)", "masked_count(credit.mask, axis=None)", "test_likelihood_drop" + FLOAT32),
    ),
    *_in(
        "methods/reductions",
        "test_oracles.py",
        ("masked_count(lengths > 0, axis=None)", "masked_count(lengths >= 0, axis=None)", "reductions" + FLOAT32),
        ("length * sequences", "length", "reductions" + FLOAT32),
    ),
    # sentences
    *_in(
        "methods/recipes",
        "test_recipe_oracles.py",
        ("dual_clip_surrogate(0.2, 0.28, 3.0)", "dual_clip_surrogate(0.28, 0.2, 3.0)", "tao_rl" + FLOAT32, 2),
        ("high: float = 0.9, minimum", "high: float = 0.6, minimum", "simple_tir" + FLOAT32),
        ("ddof=1, epsilon=1e-6),\n            soften", "ddof=0, epsilon=1e-6),\n            soften",
         "calib_adv" + FLOAT32),
    ),
    # distances of the policy
    *_in(
        "types",
        "tests/test_learner_distances.py",
        ("Largest(jnp.maximum(self.value, other.value))", "Largest(self.value + other.value)", "largest_of_pieces"),
    ),
    *_in(
        "learner/slices",
        "tests/test_learner_distances.py",
        (", is_leaf=lambda x: isinstance(x, Largest))", ")", "largest_of_pieces"),
    ),
    *_in(
        "learner/distances",
        "tests/test_learner_distances.py",
        ("jnp.expm1(to_rollout) - to_rollout", "jnp.expm1(-to_rollout) + to_rollout", "those_of_numpy"),
        ("policy = jax.lax.stop_gradient(policy)", "pass", "mask_hides"),
    ),
]  # fmt: skip

FEW = (
    # ten of different kinds for every run of the suite: sign, ddof, mask, turn, stop-gradient, clip bounds, lambda, ...
    "alike = variance <= jnp.square(relative_floor * scale)",
    "return (calls > 0) & (successes == 0)",
    "masks.kind == Kind.MODEL",
    "axis=-1, ddof=ddof, relative",
    "last = turns == masks.num_turns[..., None] - 1",
    "ratio * safe_divide(negative, positive)",
    "gate = credit.mask & which(rewards, masks) &",
    "bounded = jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages",
    "detach(jnp.clip(ratio, 1 - clip_low, 1 + clip_high))",
    "return jnp.expm1(-d) + d",
)
