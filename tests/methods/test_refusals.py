"""Orders that make no sense and arrays that do not fit are refused, with a message that says what to do."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from rlagents.methods import (
    MethodError,
    Role,
    Transform,
    chain,
    clipped_surrogate,
    constant,
    filter_stage,
    group_advantage,
    kl_penalty_k3,
    masked,
    method,
    named_chain,
    penalty,
    recipes,
    sequence_mean,
    token_mean,
)
from tests.methods import examples
from tests.methods.batches import make_batch

ESTIMATOR, SURROGATE = group_advantage(ddof=0, epsilon=1e-6), clipped_surrogate(0.2, 0.2)

WRONG = {
    "no estimator": ((SURROGATE,), r"no estimator.*[Pp]ut one, such as group_advantage.*chain\(clipped_surrogate\)"),
    "two estimators": ((ESTIMATOR, ESTIMATOR, SURROGATE), r"2 estimators.*group_advantage, group_advantage.*Keep one"),
    "no surrogate": ((ESTIMATOR, kl_penalty_k3(0.1)), r"no surrogate.*[Pp]ut one, such as.*clipped_surrogate"),
    "two surrogates": ((ESTIMATOR, SURROGATE, examples.plain_gradient()), r"2 surrogates.*plain_gradient.*Keep one"),
    "reshaper first": (
        (examples.soften_negative_turns(), ESTIMATOR, SURROGATE),
        r"'soften_negative_turns' stands before the estimator.*put 'soften_negative_turns' after 'group_advantage'",
    ),
    "filter last": (
        (ESTIMATOR, examples.drop_truncated(), SURROGATE),
        r"filter 'drop_truncated' stands after the estimator.*put 'drop_truncated' before 'group_advantage'",
    ),
    "reward shaper last": (
        (ESTIMATOR, SURROGATE, examples.format_bonus(0.5)),
        r"reward shaper 'format_bonus' stands after the estimator.*put 'format_bonus' before 'group_advantage'",
    ),
}


@pytest.mark.parametrize("how", WRONG)
def test_wrong_orders_are_refused_with_what_to_put_where(how):
    stages, message = WRONG[how]
    with pytest.raises(MethodError, match=message):
        method(chain(*stages), token_mean())


def test_the_right_order_is_taken():
    stages = (examples.drop_truncated(), examples.format_bonus(0.5), ESTIMATOR, examples.soften_negative_turns())
    assert method(chain(*stages, SURROGATE), token_mean()).transform.stages == (*stages, SURROGATE)


def test_reading_advantages_too_early_is_refused():
    def credit(credit, logprobs, rewards, masks):
        return examples.soften_negative_turns().credit((), credit, logprobs, rewards, masks)[::2]

    wrong = method(chain(filter_stage("peek", credit), ESTIMATOR, SURROGATE), token_mean())
    with pytest.raises(MethodError, match="'soften_negative_turns' reads advantages, but no estimator ran before"):
        wrong(*make_batch(0))


def test_a_single_update_is_told_how_to_get_its_old_log_probs():
    logprobs, rewards, masks = make_batch(0)
    with pytest.raises(MethodError, match=r"'clipped_surrogate' reads LogProbs.old, which is None.*on_policy"):
        recipes.grpo()(replace(logprobs, old=None), rewards, masks)


def test_a_fact_that_does_not_exist_cannot_be_needed():
    with pytest.raises(MethodError, match=r"needs \['values'\]; the facts there are: old, "):
        Transform("critic", Role.ESTIMATOR, needs=frozenset({"values"}))


def test_chain_of_something_else_is_refused():
    with pytest.raises(MethodError, match="call the stage's constructor first"):
        chain(group_advantage)


@pytest.mark.parametrize(
    ("reduction", "message"),
    [
        (None, r"the reduction is None; expected a function.*give token_mean\(\)"),
        (token_mean, r"constructor token_mean itself.*call it, token_mean\(\)"),
        (sequence_mean, r"constructor sequence_mean itself.*call it, sequence_mean\(\)"),
        (constant, r"constructor constant itself.*call it, constant\(length\)"),
    ],
)
def test_what_is_no_reduction_is_refused(reduction, message):
    with pytest.raises(MethodError, match=message):
        method(chain(ESTIMATOR, SURROGATE), reduction)


CREDIT_ANSWERS = {
    "nothing": (lambda credit: None, r"returned a NoneType; expected \(credit, metrics\)"),
    "no metrics": (lambda credit: credit, r"returned a Credit; expected \(credit, metrics\)"),
    "one part": (lambda credit: (credit,), r"returned a tuple of 1; expected \(credit, metrics\)"),
    "no credit": (lambda credit: (credit.rewards, {}), r"returned a \w+ as credit; expected a Credit"),
    "rewards of tokens": (
        lambda credit: (replace(credit, rewards=1.0 * credit.mask), {}),
        r"returned rewards of shape \(4, 3, 9\); expected \[p g\] = \(4, 3\)",
    ),
    "metrics in a list": (lambda credit: (credit, []), "returned metrics of type list; expected a dict"),
    "a bare metric": (lambda credit: (credit, {"n": 1.0}), "returned the metric 'n' of type float; expected a Mean"),
}
LOSS_ANSWERS = {
    "no metrics": (lambda term: term, r"returned a \w+; expected \(term, metrics\)"),
    "three parts": (lambda term: ((), term, {}), r"returned a tuple of 3; expected \(term, metrics\)"),
    "no array": (lambda term: (0.0, {}), r"returned term of a float; expected \[p g t\] = \(4, 3, 9\)"),
    "a summed term": (lambda term: (term.sum(), {}), r"returned term of shape \(\); expected \[p g t\]"),
    "a term a member": (lambda term: (term.sum(-1, keepdims=True), {}), r"returned term of shape \(4, 3, 1\)"),
    "a bare metric": (lambda term: (term, {"n": term.sum()}), "returned the metric 'n' of type .*expected a Mean"),
}
INSIDE = {
    "bare": (chain, "careless"),
    "named": (lambda stage: named_chain(("mine", stage)), "mine/careless"),
    "masked": (lambda stage: masked(stage, lambda masks: masks.valid), "careless"),
}


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("how", CREDIT_ANSWERS)
def test_a_credit_half_s_answer_is_checked(how, inside):
    answer, message = CREDIT_ANSWERS[how]
    wrap, _ = INSIDE[inside]
    stage = filter_stage("careless", lambda credit, logprobs, rewards, masks: answer(credit))
    with pytest.raises(MethodError, match=f"the credit half of stage '.*careless' {message}"):
        method(chain(wrap(stage), ESTIMATOR, SURROGATE), token_mean())(*make_batch(0))


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("how", LOSS_ANSWERS)
def test_a_loss_half_s_answer_is_checked(how, inside):
    answer, message = LOSS_ANSWERS[how]
    wrap, name = INSIDE[inside]
    stage = penalty("careless", lambda logprobs, credit, masks: answer(logprobs.policy))
    with pytest.raises(MethodError, match=f"the loss half of stage '{name}' {message}"):
        method(chain(wrap(stage), ESTIMATOR, SURROGATE), token_mean())(*make_batch(0))


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_valid_outcome_that_is_no_number_reaches_the_guard(bad):
    logprobs, rewards, masks = make_batch(0, invalid=0.0)
    outcome = jnp.asarray(rewards.outcome).at[1, 2].set(bad)
    grpo = recipes.grpo()

    def loss(policy, valid):
        facts = replace(logprobs, policy=policy)
        return grpo(facts, replace(rewards, outcome=outcome), replace(masks, valid=valid))[0]

    value, gradient = jax.value_and_grad(loss)(jnp.asarray(logprobs.policy), masks.valid)
    assert not jnp.isfinite(value)
    assert jnp.isnan(gradient[1]).any()
    assert jnp.isfinite(gradient[0]).all()
    # The same number of a member that is not valid changes nothing.
    valid = jnp.asarray(masks.valid).at[1, 2].set(False)
    value, gradient = jax.value_and_grad(loss)(jnp.asarray(logprobs.policy), valid)
    assert jnp.isfinite(value)
    assert jnp.isfinite(gradient).all()


def test_the_group_of_such_an_outcome_is_none_of_equal_rewards():
    logprobs, rewards, masks = make_batch(0, rewards="equal", invalid=0.0)
    outcome = jnp.asarray(rewards.outcome).at[1, 2].set(jnp.nan)
    grpo = recipes.grpo()
    credit, _, metrics = grpo.credit(grpo.init(), logprobs, replace(rewards, outcome=outcome), masks)
    assert metrics["zero_variance_groups"].value == 0.75
    for name in ("reward_mean", "reward_std", "advantage_spread", "outcome"):
        assert jnp.isnan(metrics[name].value), name
    assert credit.advantages is not None
    assert (credit.advantages[0] == 0).all()
    assert jnp.isnan(credit.advantages[1][credit.mask[1]]).all()


def cut(tree, **fields):
    return replace(tree, **{name: getattr(tree, name)[index] for name, index in fields.items()})


def test_arrays_of_other_shapes_are_refused_by_name():
    logprobs, rewards, masks = make_batch(0)
    grpo = recipes.grpo()
    wrong = {
        r"LogProbs.reference has shape \(4, 3, 8\).*\[p g t\] = \(4, 3, 9\)": (
            replace(logprobs, reference=logprobs.reference[..., 1:]),
            rewards,
            masks,
        ),
        r"Rewards.outcome has shape \(12,\).*\[p g\] = \(4, 3\)": (
            logprobs,
            replace(rewards, outcome=rewards.outcome.reshape(-1)),
            masks,
        ),
        r"Rewards.turn_void has shape \(4, 3, 2\).*\[p g s\] = \(4, 3, 3\)": (
            logprobs,
            replace(rewards, turn_void=rewards.turn_void[..., :2]),
            masks,
        ),
        r"Rewards.named\['format'\] has shape \(4, 2\)": (
            logprobs,
            replace(rewards, named={"format": rewards.named["format"][:, :2]}),
            masks,
        ),
        r"Masks.valid has dtype int32; expected bool": (
            logprobs,
            rewards,
            replace(masks, valid=masks.valid.astype("int32")),
        ),
        r"Masks.kind has shape \(12, 9\); expected \[p g t\]": (
            logprobs,
            rewards,
            replace(masks, kind=masks.kind.reshape(12, 9)),
        ),
    }
    for message, batch in wrong.items():
        with pytest.raises(MethodError, match=message):
            grpo(*batch)


def test_credit_of_other_rows_is_refused_by_the_loss_half():
    logprobs, rewards, masks = make_batch(0)
    grpo = recipes.grpo()
    credit, state, _ = grpo.credit(grpo.init(), logprobs, rewards, masks)
    part = replace(credit, mask=credit.mask[:2])
    with pytest.raises(MethodError, match=r"Credit.mask has shape \(2, 3, 9\)"):
        grpo.loss(state, logprobs, part, masks, grpo.measures(credit, masks))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: group_advantage(ddof=2, epsilon=0.0), "ddof=2"),
        (lambda: group_advantage(ddof=0, epsilon=-1.0), "epsilon=-1.0"),
        (lambda: clipped_surrogate(0.0, 0.2), "clip_low=0.0"),
        (lambda: clipped_surrogate(1.5, 0.2), "clip_low=1.5"),
        (lambda: clipped_surrogate(0.2, 0.0), "clip_high=0.0"),
        (lambda: group_advantage(ddof=0, epsilon=float("nan")), "epsilon=nan"),
        (lambda: kl_penalty_k3(-0.1), "coefficient=-0.1"),
        (lambda: kl_penalty_k3(float("nan")), "coefficient=nan"),
        (lambda: constant(0), "length=0"),
    ],
)
def test_constants_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_penalty_of_weight_zero_asks_for_nothing():
    assert recipes.grpo(kl_coefficient=0).needs == frozenset()
    assert recipes.grpo().needs == {"reference"}
    logprobs, rewards, masks = make_batch(0)
    loss, metrics = recipes.grpo(kl_coefficient=0)(replace(logprobs, reference=None), rewards, masks)
    assert jnp.isfinite(loss)
    assert "kl" not in metrics
