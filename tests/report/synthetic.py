"""Folders of runs that never ran: metrics, alarms and trajectories with the look of real ones, and hostile texts."""

import json
import math

import numpy as np

from rlagents.metrics import JsonLines
from rlagents.trajectory_lines import group_line

HOSTILE_TOOL = "</script><script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
HOSTILE_TURN = "<script>document.title = 'owned'</script><b>bold?</b>"
MANUAL = "You can call tools. " + " ".join(f"tool_{n}(a, b): does the thing number {n}." for n in range(80))
WORDS = ("the", "file", "name", "is", "set", "to", "report", "done", "value", "next", "list", "move", "call", "add")
CONFIG = {
    "seed": 0,
    "rl": {"steps": 40, "learning_rate": 4e-4, "group_size": 4},
    "method": {"clip_low": 0.2, "kl_coefficient": 0.0},
    "mesh": {"data": 1},
}


def metrics_row(step, level, draw):
    share = 1 - math.exp(-step / 15)
    return {
        "step": step,
        "reward": min(1.0, 0.2 + level * share + 0.05 * draw.standard_normal()),
        "loss": 0.1 * float(draw.standard_normal()),
        "gradient_norm": "nan" if step == 7 else float(draw.gamma(2.0)),
        "learning_rate": 4e-4 * (1 - step / 80),
        "entropy": 1.2 - 0.5 * share,
        "clip_fraction": float(draw.uniform(0, 0.1)),
        "reward_std": float(draw.uniform(0.1, 0.4)),
        "softened": float(draw.uniform()),
        "dropped/uniform_groups": float(draw.uniform(0, 0.3)),
        "dropped/failed_tools": float(draw.uniform(0, 0.1)),
        "tokens_sampled": int(draw.integers(8000, 12000)),
        "turns": float(draw.uniform(2, 5)),
        "rollout/turns_cut": int(draw.integers(0, 5)),
        "tokens_per_second": float(draw.uniform(900, 1100)),
        "seconds": 7.0,
        "seconds/rollout": float(draw.uniform(3, 4)),
        "seconds/update": float(draw.uniform(2, 3)),
        "seconds/log": 0.1,
    }


def conditioned_row(step, draw):
    """What RC-GRPO's steps say besides, and not all of them."""
    low, high = float(draw.uniform(0, 0.3)), float(draw.uniform(0.5, 0.9))
    bound = 0.25 * (high - low) ** 2
    row = {"reward_low": low, "reward_high": high, "reward_gap": high - low, "advantage_spread": 2.0}
    row |= {"zero_variance_groups": 0.3, "identical_groups": 0.2, "peaked_groups": step % 3, "mixed_groups": 4}
    row |= {"mixed_variance": bound + float(draw.normal(0.02, 0.02)), "mixed_variance_bound": bound}
    return row | ({"peaked_identical": 0.8, "peaked_identical_bound": 0.6} if step % 3 else {})


def member_and_tokens(number, draw, *, turns=3, tokens_a_turn=20, good=None, hostile=False):
    good = bool(draw.random() < 0.5) if good is None else good
    messages, pieces, kinds, turn_of = [{"role": "system", "content": MANUAL}], [], [], []
    messages.append({"role": "user", "content": "Please move the report and tell me its size."})
    for turn in range(turns):
        said = [" " + WORDS[index] for index in draw.integers(0, len(WORDS), tokens_a_turn - 1)]
        if turn == 0:
            said[-4:] = [HOSTILE_TURN, "\n", "", "\N{PARTY POPPER}"] if hostile else ["[", "mv", "('a')", "]"]
        pieces += [*said, "<|end|>"]
        kinds += [2] * tokens_a_turn
        turn_of += [turn] * tokens_a_turn
        messages.append({"role": "assistant", "content": "".join(said)})
        if turn + 1 < turns:
            answer = HOSTILE_TOOL if hostile else f"ok {int(draw.integers(100))}"
            messages.append({"role": "tool", "content": answer})
            pieces += ["<|tool|>", answer, "<|end|>", "<|assistant|>"]
            kinds += [3] * 4
            turn_of += [-1] * 4
    length, kinds = len(pieces), np.array(kinds)
    model = kinds == 2
    advantage = np.where(model, (1.0 if good else -0.7) + 0.4 * np.array(turn_of) * (not good), 0)
    mask = model & (np.array(turn_of) != 1) if number == 2 else model
    tokens = {
        "pieces": pieces,
        "id": draw.integers(0, 50_000, length),
        "kind": kinds,
        "turn": turn_of,
        "mask": mask,
        "log_prob": np.where(model, -draw.gamma(0.5, size=length), 0),
        "entropy": np.where(model, draw.gamma(0.8, size=length), 0),
        "ratio": np.where(model, np.exp(0.02 * draw.standard_normal(length)), 1),
        "advantage": np.where(mask, advantage, 0),
    }
    summary = {
        "task": "",
        "stream": 0,
        "member": number,
        "condition": -1,
        "reward": float(good),
        "named": {"official": float(good)},
        "turn_scores": [0.5] * turns,
        "tool_calls": [1] * (turns - 1) + [0],
        "tool_successes": [int(good)] * (turns - 1) + [0],
        "void": [False] * turns,
        "stop_reasons": ["stop_token"] * turns,
        "weight_versions": [4] * turns,
        "truncated": not good and number == 1,
        "lost": None,
        "tokens": {"prompt": 300, "model": int(model.sum()), "tool": int((kinds == 3).sum()), "forced": 0},
        "messages": messages,
    }
    return summary, tokens


def group(step, stream, task, draw, *, members=4, held_out=False, **options):
    made = [member_and_tokens(number, draw, **options) for number in range(members)]
    summaries = [summary | {"task": task, "stream": stream} for summary, _ in made]
    return group_line(step, summaries, None if held_out else [tokens for _, tokens in made])


def write_run(
    folder,
    *,
    seed=0,
    level=0.6,
    steps=40,
    groups=1,
    changes=None,
    alarms=True,
    hostile=True,
    conditioned=False,
    **options,
):
    """A folder as a run leaves it: ``groups`` logged a step, the first member of the first hostile."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    config = json.loads(json.dumps(CONFIG)) | {"seed": seed}
    for name, value in (changes or {}).items():
        section, _, key = name.rpartition(".")
        (config[section] if section else config)[key] = value
    (folder / "config.json").write_text(json.dumps(config))
    with JsonLines(folder / "metrics.jsonl") as lines:
        for step in range(steps):
            lines.write(metrics_row(step, level, draw) | (conditioned_row(step, draw) if conditioned else {}))
    with JsonLines(folder / "warm_up.jsonl") as lines:
        for step in range(20):
            lines.write({"step": step, "loss": 3.0 * math.exp(-step / 8), "seconds": 0.5})
    with JsonLines(folder / "trajectories.jsonl") as lines:
        for step in range(steps):
            for number in range(groups):
                first = step == number == 0
                task = f"trading-1-{(step * groups + number) % 50}"
                stream = step * groups + number
                lines.write(group(step, stream, task, draw, hostile=first and hostile, **options))
    with JsonLines(folder / "evaluations.jsonl") as lines, JsonLines(folder / "held_out.jsonl") as conversations:
        for step in (0, steps // 2, steps):
            since = 10.0 + 8.0 * step + 20.0 * (step > 0)
            values = {"success": level * step / steps, "success/level 1": 0.9, "tasks": 4, "tasks_skipped": 0}
            values |= {"success_low": 0.7 * values["success"], "success_high": min(1.0, 1.3 * values["success"] + 0.1)}
            lines.write({"step": step, **values, "seconds": 12.0, "seconds_since_start": since + 30.0})
            for task in range(4):
                conversations.write(group(step, task, f"held-out-{task}", draw, members=2, held_out=True))
    if alarms:
        with JsonLines(folder / "alarms.jsonl") as lines:
            message = "the policy is nearly deterministic; raise the entropy bonus or lower the learning rate"
            lines.write({"step": 9, "alarm": "entropy_collapsed", "value": 0.04, "threshold": 0.05, "message": message})
    return folder


def main():
    """Three seeds, and one run of another config, under a folder."""
    import sys
    from pathlib import Path

    root = Path(sys.argv[1])
    for seed in range(3):
        write_run(root / f"grpo-seed{seed}", seed=seed, alarms=seed == 0)
    write_run(root / "wide", seed=0, level=0.75, changes={"method.clip_low": 0.3}, alarms=False)
    write_run(root / "asked", seed=0, changes={"method.goals": 0.5}, alarms=False, conditioned=True)


if __name__ == "__main__":
    main()
