"""Methods of the field, one sentence each. Leave a stage out of the sentence to ablate it.

Defaults are the papers' constants, cited in each docstring; where a paper gives none, it says so.
"""

from collections.abc import Callable

from rlagents.methods import exploration, predicates
from rlagents.methods.base import Transform
from rlagents.methods.baselines import (
    centered_advantage,
    group_baseline_whitened_advantage,
    leave_one_out_advantage,
    turn_return_advantage,
    whitened_advantage,
)
from rlagents.methods.calibration import Softening, proportionally, rebalance_answers, soften_negative_turns
from rlagents.methods.compose import chain
from rlagents.methods.estimators import group_advantage
from rlagents.methods.exploration import entropy_bonus
from rlagents.methods.filters import drop, mute
from rlagents.methods.likelihood import likelihood_drop_penalty_by_turn
from rlagents.methods.method import Method, method
from rlagents.methods.penalties import kl_penalty_k3
from rlagents.methods.predicates import Predicate
from rlagents.methods.reductions import Reduction, constant, sequence_mean, token_mean
from rlagents.methods.rewards import kl_in_reward, overlong_penalty
from rlagents.methods.sequence_surrogates import sequence_surrogate
from rlagents.methods.surrogates import (
    clipped_surrogate,
    dual_clip_surrogate,
    gradient_keeping_surrogate,
    policy_gradient,
    weighted_surrogate,
)

_SEQUENCE_MEAN = sequence_mean()


def grpo(
    *,
    ddof: int = 0,
    epsilon: float = 1e-6,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    kl_coefficient: float = 0.04,
    reduction: Reduction = _SEQUENCE_MEAN,
) -> Method:
    """Group relative policy optimization (DeepSeekMath, arXiv 2402.03300).

    Rewards in standard deviations of their group, PPO's clip, k3 against the reference, mean over trajectories of
    means over tokens (eq. 3, 4). ``kl_coefficient`` 0.04: its section 4.2. Clip 0.2: PPO, arXiv 1707.06347, section
    6.1 (the paper gives none). ``ddof`` and ``epsilon``: the paper writes ``std`` and no more; here population std, and
    an epsilon far below any reward. Needs ``reference`` unless ``kl_coefficient`` is 0.
    """
    return method(
        chain(
            group_advantage(ddof=ddof, epsilon=epsilon),
            clipped_surrogate(clip_low, clip_high),
            kl_penalty_k3(kl_coefficient),
        ),
        reduction,
    )


def dr_grpo(*, max_tokens: int = 3000, clip_low: float = 0.2, clip_high: float = 0.2) -> Method:
    """GRPO done right (arXiv 2503.20783): rewards less their group's mean, and a constant in place of lengths.

    ``max_tokens`` 3000: its response budget, section 3.3. No KL.
    """
    return method(chain(centered_advantage(), clipped_surrogate(clip_low, clip_high)), constant(max_tokens))


def rloo(*, kl_coefficient: float = 0.03) -> Method:
    """REINFORCE leave-one-out (Ahmadian et al., arXiv 2402.14740): whole trajectories, no clip, KL in the reward.

    Sums over tokens, mean over trajectories. ``kl_coefficient`` 0.03: one of its settings. Needs ``old`` and
    ``reference``.
    """
    return method(chain(kl_in_reward(kl_coefficient), leave_one_out_advantage(), policy_gradient()), constant(1))


def reinforce_plus_plus(*, kl_coefficient: float = 0.01, clip_low: float = 0.2, clip_high: float = 0.2) -> Method:
    """REINFORCE++ (arXiv 2501.03262): token returns with KL, whitened over the batch, PPO's clip, mean over tokens.

    ``kl_coefficient`` 0.01: its experiments. Needs ``old`` and ``reference`` unless that is 0.
    """
    estimate = whitened_advantage(kl_coefficient=kl_coefficient, epsilon=1e-8)
    return method(chain(estimate, clipped_surrogate(clip_low, clip_high)), token_mean())


def reinforce_plus_plus_baseline(*, clip_low: float = 0.2, clip_high: float = 0.2) -> Method:
    """REINFORCE++-baseline (arXiv 2501.03262): the group's mean off the reward, then whitened over the batch."""
    estimate = group_baseline_whitened_advantage(epsilon=1e-8)
    return method(chain(estimate, clipped_surrogate(clip_low, clip_high)), token_mean())


def dapo(
    *, max_tokens: int = 20_480, buffer_tokens: int = 4096, clip_low: float = 0.2, clip_high: float = 0.28
) -> Method:
    """DAPO (arXiv 2503.14476): no uniform groups, soft overlong punishment, clip-higher, mean over tokens, no KL.

    Clips 0.2 and 0.28, lengths 20480 and 4096: its section 4.1. (Overlong filtering, which the paper tries before the
    soft punishment, is ``mute(predicates.truncated)``.) Drawing anew until no group is uniform is the sampling
    side's, with the predicate of the first stage.
    """
    return method(
        chain(
            drop(predicates.uniform_groups),
            overlong_penalty(max_tokens, buffer_tokens),
            group_advantage(ddof=0, epsilon=1e-6),
            clipped_surrogate(clip_low, clip_high),
        ),
        token_mean(),
    )


def gspo(
    *, clip_low: float = 3e-4, clip_high: float = 4e-4, form: Callable[[float, float], Transform] = sequence_surrogate
) -> Method:
    """Group sequence policy optimization (arXiv 2507.18071): one clipped ratio a trajectory; section 5.1's clips.

    ``form`` is ``sequence_surrogate_by_token`` where reshapers give the tokens of a trajectory different advantages.
    """
    return method(chain(group_advantage(ddof=0, epsilon=1e-6), form(clip_low, clip_high)), sequence_mean())


def cispo(*, clip_high: float, clip_low: float = 1.0) -> Method:
    """CISPO (MiniMax-M1, arXiv 2506.13585): clipped weights on REINFORCE, mean over tokens, no KL.

    The paper tunes the upper bound and does not state it, so there is no default; ``clip_low`` 1 is no lower bound.
    """
    return method(chain(group_advantage(ddof=0, epsilon=1e-6), weighted_surrogate(clip_low, clip_high)), token_mean())


def rc_grpo(*, clip: float = 0.2, kl_coefficient: float = 0.1) -> Method:
    """RC-GRPO (arXiv 2602.03025): GRPO over groups whose members were sampled under different reward tokens.

    The method's novelty is in the sampling; here population std over the mixed group (eq. 6), clip 0.2 and KL 0.1
    (Table 10). Unknown, and here as in GRPO: k3, the mean over trajectories, epsilon 1e-6. Needs ``reference``.
    """
    return grpo(ddof=0, epsilon=1e-6, clip_low=clip, clip_high=clip, kl_coefficient=kl_coefficient)


def calib_adv(*, ratio: float = 1.0, clip: float = 0.2, spare: Softening = proportionally) -> Method:
    """CalibAdv (arXiv 2604.18235): spare good turns of bad trajectories, balance praise and blame of answers.

    Sample std with epsilon 1e-6, clip 0.2, mean over tokens, no KL (its released configuration); lambda 1.0. Its third
    part, a think prefix that is forced and so never trained, is the sampling side's. Turn scores come from silver
    documents. ``spare``: the released code has other choices in :mod:`rlagents.methods.calibration`.
    """
    return method(
        chain(
            group_advantage(ddof=1, epsilon=1e-6),
            soften_negative_turns(spare),
            rebalance_answers(ratio),
            clipped_surrogate(clip, clip),
        ),
        token_mean(),
    )


def tao_rl(
    *,
    coefficient: float = 0.01,
    top_fraction: float = 0.2,
    leave_out: Callable[[Predicate], Transform] = mute,
    which: exploration.Which = exploration.after_successful_call,
    against: exploration.Against = exploration.over_trajectory,
) -> Method:
    """TAO-RL (arXiv 2606.03762): no failed tools, no void turns, and more weight on doubt after a successful call.

    Coefficient 0.01, sample std, clips 0.2 and 0.28, dual clip 3, mean over tokens (its released configuration). The
    paper's entropy gate is inferred: the top 20%. Failed trajectories are muted, as in the code: they count in the
    statistics; ``drop`` is the other choice. The released code has ``which=after_any_call``, ``against=over_batch``, no
    gate (``top_fraction=1``) and lets gradient through the entropy
    (:func:`rlagents.methods.live_entropy.with_live_entropy_bonus`). Needs ``old_entropy``.
    """
    return method(
        chain(
            mute(predicates.void_turns),
            leave_out(predicates.failed_tools),
            drop(predicates.pass_rate_outside(0.0, 1.0)),
            group_advantage(ddof=1, epsilon=1e-6),
            entropy_bonus(coefficient, which=which, against=against, top_fraction=top_fraction),
            dual_clip_surrogate(0.2, 0.28, 3.0),
        ),
        token_mean(),
    )


def simple_tir(*, low: float = 0.1, high: float = 0.9, minimum_finished: int = 4) -> Method:
    """SimpleTIR (arXiv 2509.02479): no trajectory with a void turn, groups of middling difficulty, dual clip.

    Its released configuration: pass rates between 0.1 and 0.9, at least 4 finished members, clips 0.2 and 0.28, dual
    clip 3, mean over tokens, no KL.
    """
    return method(
        chain(
            mute(predicates.void_turns),
            drop(predicates.few_finished(minimum_finished)),
            drop(predicates.pass_rate_outside(low, high)),
            group_advantage(ddof=1, epsilon=1e-6),
            dual_clip_surrogate(0.2, 0.28, 3.0),
        ),
        token_mean(),
    )


def lld(
    *,
    coefficient: float = 0.1,
    clip: float = 0.2,
    preserve: Callable[[float], Transform] = likelihood_drop_penalty_by_turn,
) -> Method:
    """GRPO that lets nothing right become less likely (LLDS, arXiv 2512.04220), turn by turn.

    A fall is one since the batch was sampled: with a single update a rollout batch there is none, and this is GRPO.

    ``coefficient`` 0.1: CalibAdv's baseline (arXiv 2604.18235). ``preserve``: gated by turn in the paper's better form,
    by trajectory in its other (``likelihood_drop_penalty_by_trajectory``), by token in CalibAdv's code
    (``likelihood_drop_penalty``, there with ``worth=positive``).
    """
    return method(
        chain(group_advantage(ddof=0, epsilon=1e-6), clipped_surrogate(clip, clip), preserve(coefficient)),
        token_mean(),
    )


def step_search(*, discount: float = 1.0, clip: float = 0.2, kl_coefficient: float = 0.001) -> Method:
    """StepSearch's step rewards (arXiv 2505.15107) without its critic: returns of turns, PPO's clip, KL 0.001.

    The paper trains with PPO and generalised advantages; here turns are compared within their group, and the KL is k3
    in the loss.
    """
    return method(
        chain(
            turn_return_advantage(discount=discount, ddof=0, epsilon=1e-6),
            clipped_surrogate(clip, clip),
            kl_penalty_k3(kl_coefficient),
        ),
        token_mean(),
    )


def aepo(*, coefficient: float = 0.01, clip_low: float = 0.2, clip_high: float = 0.28) -> Method:
    """AEPO's loss (arXiv 2510.14545): entropy in the advantage of every token, and a clip that keeps the gradient.

    Its coefficient is unknown; 0.01 and the clips are those of TAO-RL's released code. Needs ``old_entropy``.
    """
    return method(
        chain(
            group_advantage(ddof=1, epsilon=1e-6),
            entropy_bonus(coefficient, which=exploration.everywhere, against=exploration.over_batch),
            gradient_keeping_surrogate(clip_low, clip_high),
        ),
        token_mean(),
    )
