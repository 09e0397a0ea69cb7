"""Methods of the field, one sentence each. Leave a stage out of the sentence to ablate it."""

from rlagents.methods.compose import chain
from rlagents.methods.estimators import group_advantage
from rlagents.methods.method import Method, method
from rlagents.methods.penalties import kl_penalty_k3
from rlagents.methods.reductions import Reduction, sequence_mean
from rlagents.methods.surrogates import clipped_surrogate

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
