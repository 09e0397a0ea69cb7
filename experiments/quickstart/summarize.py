"""What a quickstart run came to: ``summary.json``, ``learning_curve.png``, and one conversation on the terminal.

python -m experiments.quickstart.summarize DIR
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from rlagents.metrics import read_lines, read_metrics
from rlagents.trajectory_lines import trajectories


def summarize(directory: Path) -> dict[str, float]:
    evaluations = {int(row["step"]): row for row in read_metrics(directory / "evaluations.jsonl")}
    steps = read_metrics(directory / "metrics.jsonl")
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    last = max(evaluations)
    summary = {
        "success_before": evaluations[0]["success"],
        "success_after": evaluations[last]["success"],
        "seconds": evaluations[last]["seconds_since_start"],
        "steps": len(steps),
        "seed": config["seed"],
    }
    (directory / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    draw(directory / "learning_curve.png", steps, evaluations, config)
    show_conversation(directory / "held_out.jsonl", last)
    for name in evaluations[0]:
        if name.startswith("success/"):
            before, after = evaluations[0][name], evaluations[last][name]
            print(f"{name.removeprefix('success/')}: {before:.1%} -> {after:.1%}")
    tasks, samples = int(evaluations[0]["tasks"]), int(evaluations[0]["samples_per_task"])
    print(
        f"held-out success (mean of {samples} samples at temperature 1 on each of {tasks} tasks): "
        f"{summary['success_before']:.1%} before GRPO, {summary['success_after']:.1%} after, "
        f"{summary['seconds']:.0f} s of training in all"
    )
    print(f"wrote {directory / 'summary.json'} and {directory / 'learning_curve.png'}")
    return summary


def draw(
    path: Path, steps: list[dict[str, float]], evaluations: dict[int, dict[str, float]], config: dict[str, Any]
) -> None:
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(
        [row["step"] + 1 for row in steps],
        [row["reward"] for row in steps],
        color="#9db8d9",
        label=f"training tasks of {_levels(config['train_levels'])}",
    )
    held_out = sorted(evaluations.items())
    axes.plot(
        [step for step, _ in held_out],
        [row["success"] for _, row in held_out],
        color="#1f4e8c",
        marker="o",
        label=f"held-out tasks of {_levels(config['held_out_levels'])}",
    )
    axes.set(xlabel="GRPO step", ylabel="mean reward (share of tasks solved)", ylim=(0, 1), title="Quickstart")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _levels(levels: list[int]) -> str:
    return f"level{'s' if len(levels) > 1 else ''} {', '.join(map(str, levels))}"


def show_conversation(path: Path, step: int) -> None:
    """The longest solved conversation after ``step`` steps, or simply the longest one."""
    lines = [line for line in read_lines(path) if line["step"] == step]
    conversations = [conversation for line in lines for conversation in trajectories(line)]
    solved = [conversation for conversation in conversations if conversation["reward"] == 1.0]
    chosen = max(solved or conversations, key=lambda conversation: len(conversation["messages"]))
    print(f"\none held-out conversation ({chosen['task']}, reward {chosen['reward']}):\n")
    for message in chosen["messages"]:
        print(f"  {message['role']:>9}: " + message["content"].replace("\n", "\n" + " " * 13))
    print()


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "evaluations.jsonl").exists():
        sys.exit("usage: python -m experiments.quickstart.summarize DIR, where DIR is the folder of a finished run")
    summarize(Path(sys.argv[1]))
