"""What the paper claims, asked of the numbers of a grid: holds, does not hold, or cannot be told from so few seeds."""

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from experiments.rc_grpo.over_seeds import OverSeeds, over_seeds
from experiments.rc_grpo.results import (
    Result,
    below_collapse_bound,
    below_variance_bound,
    below_variance_bound_of_step,
)

Results = Mapping[str, Sequence[Result]]
"""Cell -> its finished runs."""

MIN_PEAKED = 0.6
"""Share of groups without variance from which on a model of stage 1 is called peaked."""


class Verdict(Enum):
    """Of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "cannot be told"


class Claim(NamedTuple):
    """A claim, what became of it, and the numbers that say so."""

    text: str
    verdict: Verdict
    evidence: str


def greater(difference: OverSeeds, than: float = 0.0) -> Verdict:
    """Whether a mean over seeds is above a number: by its 95% interval, open where that holds the number, or of one
    seed."""
    if math.isnan(difference.half_width):
        return Verdict.OPEN
    return Verdict.HOLDS if difference.low > than else Verdict.FAILS if difference.high <= than else Verdict.OPEN


def not_greater(difference: OverSeeds) -> Verdict:
    """Whether a mean over seeds is not above 0: it fails where the 95% interval is above 0, and holds where its lower
    bound is not, be it that nothing can be told apart."""
    if math.isnan(difference.half_width):
        return Verdict.OPEN
    return Verdict.FAILS if difference.low > 0 else Verdict.HOLDS


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Fails where one fails, is open where one is."""
    return next((bad for bad in (Verdict.FAILS, Verdict.OPEN) if bad in verdicts), Verdict.HOLDS)


def differences(one: Mapping[int, float], other: Mapping[int, float]) -> OverSeeds | None:
    """``one - other`` seed by seed, over the seeds that both have; None without any."""
    pairs = [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]
    return over_seeds(pairs) if pairs else None


def claims(results: Results, asked: Mapping[str, str]) -> list[Claim]:
    """All claims that there are runs for; ``asked`` is the goal that each cell is evaluated with."""

    def success(cell: str) -> dict[int, float]:
        return {result.seed: result.success(asked[cell]) for result in results.get(cell, ())}

    def start(cell: str, metric: str) -> dict[int, float]:
        found = {result.seed: result.at_start(metric) for result in results.get(cell, ())}
        return {seed: value for seed, value in found.items() if value is not None}

    found = [
        _peaked(start("sft+grpo", "zero_variance_groups")),
        _restored(start("sft+grpo", "zero_variance_groups"), start("rctp+rc-grpo", "zero_variance_groups")),
        _compared(
            "RCTP is needed: SFT + RC-GRPO is no better than SFT + GRPO",
            [("", not_greater, success("sft+rc-grpo"), success("sft+grpo"))],
        ),
        _compared(
            "RCTP is needed: RCTP + RC-GRPO is better than SFT + RC-GRPO",
            [("", greater, success("rctp+rc-grpo"), success("sft+rc-grpo"))],
        ),
        _compared(
            "RCTP + RC-GRPO is best",
            [
                (f"over {cell}: ", greater, success("rctp+rc-grpo"), success(cell))
                for cell in ("sft+grpo", "sft+rc-grpo", "rctp+grpo")
            ],
        ),
        _entropy(results.get("rctp+rc-grpo", ())),
        *_propositions(results),
    ]
    return [claim for claim in found if claim is not None]


def _peaked(shares: Mapping[int, float]) -> Claim | None:
    if not shares:
        return None
    share = over_seeds(list(shares.values()))
    verdict = Verdict.HOLDS if share.mean >= MIN_PEAKED else Verdict.FAILS
    text = f"SFT is peaked: of the groups at the start of GRPO, {MIN_PEAKED:.0%} or more have no variance"
    return Claim(text, verdict, f"share {share}")


def _restored(peaked: Mapping[int, float], conditioned: Mapping[int, float]) -> Claim | None:
    fewer = differences(peaked, conditioned)
    if fewer is None:
        return None
    text = "conditioning restores variance: fewer groups without it at the start of RCTP + RC-GRPO than of SFT + GRPO"
    shares = (over_seeds(list(values.values())) for values in (peaked, conditioned))
    return Claim(text, greater(fewer), "share {} and {}; ".format(*shares) + f"difference {fewer}")


def _compared(text: str, pairs: Sequence[tuple]) -> Claim | None:
    verdicts, evidence = [], []
    for name, judge, one, other in pairs:
        difference = differences(one, other)
        if difference is None:
            return None
        verdicts.append(judge(difference))
        evidence.append(f"{name}difference {difference}")
    return Claim(text, all_of(verdicts), "; ".join(evidence))


def _entropy(runs: Sequence[Result]) -> Claim | None:
    found = [value for run in runs if (value := run.entropy_with_reward) is not None]
    if not found:
        return None
    correlation = over_seeds(found)
    opposite = OverSeeds(-correlation.mean, correlation.half_width, correlation.seeds)
    text = "entropy falls as reward rises: their correlation over the steps of RCTP + RC-GRPO is negative"
    return Claim(text, greater(opposite), f"Pearson's {correlation}")


def _propositions(results: Results) -> list[Claim]:
    runs = [run.steps for cell in results.values() for run in cell if run.steps]
    ours = [run.steps for run in results.get("rctp+rc-grpo", ())]
    asked = [
        ("Proposition 4.2: groups of one condition collapse as often as the bound", runs, below_collapse_bound),
        ("Proposition 4.3, group by group", runs, below_variance_bound),
        (
            "Proposition 4.3, with the gap of the whole step, RCTP + RC-GRPO",
            ours,
            lambda steps: below_variance_bound_of_step(steps, members=5),
        ),
    ]
    found = []
    for text, of_runs, count in asked:
        below, compared = (sum(column) for column in zip(*map(count, of_runs))) if of_runs else (0, 0)
        if compared:
            verdict = Verdict.FAILS if below else Verdict.HOLDS
            found.append(Claim(text, verdict, f"{below} of {compared} steps below the bound beyond sampling error"))
    return found
