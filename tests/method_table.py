"""The README's table of methods, made from the recipes themselves and from what their judges measure.

    python -m tests.method_table

prints it. A test holds names, sentences and sources in the README to what is printed; the differences are measured.
"""

from rlagents.methods import Method
from tests.methods.table import RECIPES

OUTCOME = "reward"
ABOUT = {
    # recipe: (source, what the environment has to say, TRL's loss that judges it too)
    "grpo": ("DeepSeekMath, 2402.03300", OUTCOME, "grpo, k3"),
    "dr_grpo": ("2503.20783", OUTCOME, "dr_grpo"),
    "rloo": ("2402.14740", OUTCOME, None),
    "reinforce_plus_plus": ("2501.03262", OUTCOME, None),
    "reinforce_plus_plus_baseline": ("2501.03262", OUTCOME, None),
    "dapo": ("2503.14476", OUTCOME, "dapo"),
    "gspo": ("2507.18071", OUTCOME, "gspo"),
    "cispo": ("MiniMax-M1, 2506.13585", OUTCOME, "cispo"),
    "rc_grpo": ("2602.03025", "reward; members asked for a reward (`rollouts.conditions`)", "grpo, k3"),
    "calib_adv": ("2604.18235", "reward, turn scores (`environments.silver_documents`)", None),
    "tao_rl": ("2606.03762", "reward in {0, 1}; calls, successes and void turns", None),
    "simple_tir": ("2509.02479", "reward in {0, 1}; void turns", None),
    "lld": ("LLDS, 2512.04220", OUTCOME, None),
    "step_search": ("2505.15107", "reward, turn scores (`environments.search_gains`)", None),
    "aepo": ("2510.14545", OUTCOME, None),
}


def sentence(method: Method) -> str:
    """The stages in order, and the reduction."""
    reduction = method.reduction.__qualname__.split(".")[0]
    return " · ".join(f"`{name}`" for name in (*method.stage_names, reduction))


def facts_to_compute(method: Method) -> str:
    """What the learner computes for it before the update."""
    return ", ".join(f"`{fact}`" for fact in sorted(method.needs)) or "-"


def rows() -> dict[str, list[str]]:
    """All cells but those of the judges, by recipe."""
    return {
        name: [f"`{name}`", sentence(RECIPES[name]), source, says, facts_to_compute(RECIPES[name])]
        for name, (source, says, _) in ABOUT.items()
    }


def main() -> None:
    """Measure and print."""
    from tests.judges import trl_judge
    from tests.methods.test_recipe_oracles import largest_differences

    oracles, judged = largest_differences(), trl_judge.largest_differences(range(48))
    print("| recipe | sentence | source | the environment says | facts | largest difference |")
    print("|---|---|---|---|---|---|")
    for name, cells in rows().items():
        case = ABOUT[name][2]
        trl = f", TRL {judged[case]:.1e}" if case else ""
        print(f"| {' | '.join(cells)} | oracle {oracles[name]:.1e}{trl} |")


if __name__ == "__main__":
    main()
