"""The file without a browser: what it holds, what it refuses, and that no text in it is markup."""

import base64
import gzip
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlagents.metrics import JsonLines
from rlagents.metrics.names import ALARMS, CONDITIONS, EVALUATION, ROLLOUT, STAGES, STEP
from rlagents.report import configs
from rlagents.report.curves import CONDITIONING, MOST_POINTS, bin_width, curves, evaluation_curves, meanings, panels
from rlagents.report.pages import Pages
from rlagents.report.reading import read_run
from rlagents.trajectory_lines import group_line
from tests.report.reading import report
from tests.report.synthetic import HOSTILE_TOOL, HOSTILE_TURN, group, member_and_tokens, write_run

TITLES = {"Reward and success", "Learning", CONDITIONING, "Alarms", "Rollout", "Cost"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    folders = [write_run(root / f"seed{seed}", seed=seed, steps=12) for seed in range(2)]
    return [*folders, write_run(root / "other", steps=12, changes={"method.clip_low": 0.3}, alarms=False)]


@pytest.fixture(scope="module")
def document(runs):
    return report(*runs)


def test_the_file_asks_nobody_for_anything(document):
    """No address in it, one style, one program, and a policy that lets nothing else run or load."""
    for tag, attributes in document.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {"src", "action", "data", "style"} & attributes.keys()
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    (policy,) = [attributes["content"] for tag, attributes in document.tags if "http-equiv" in attributes]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg", "", document.scripts["program"])
    programs = [attributes for tag, attributes in document.tags if tag == "script" and "type" not in attributes]
    assert programs == [{}]


def test_no_source_makes_markup_of_data(document):
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser"):
        assert way not in document.scripts["program"]


def test_texts_are_data_and_come_back_as_they_were(document):
    index = document.index
    groups = index["groups"]
    (first,) = [
        number
        for number, (run, phase, step) in enumerate(zip(groups["run"], groups["phase"], groups["step"]))
        if (run, phase, step) == (0, "training", 0)
    ]
    page = document.page(f"text-{groups['text_page'][first]}")
    members = page["groups"][groups["text_place"][first]]["members"]
    said = [page["texts"][message["content"]] for message in members[0]["messages"]]
    assert HOSTILE_TURN in said[0]
    assert said[1] == HOSTILE_TOOL
    tokens = document.page(f"tokens-{groups['token_page'][first]}")[groups["token_place"][first]][0]
    assert HOSTILE_TURN in tokens["pieces"]
    assert np.frombuffer(base64.b64decode(tokens["columns"]["advantage"]), "<f2").size == len(tokens["pieces"])


def test_a_task_named_like_markup_does_not_end_its_element(tmp_path):
    folder = write_run(tmp_path / "run", steps=2)
    with JsonLines(folder / "trajectories.jsonl", first_step=2) as lines:
        lines.write(group(2, 9, HOSTILE_TOOL, np.random.default_rng(0)))
    found = report(folder)
    assert HOSTILE_TOOL in found.index["tasks"]
    assert not [tag for tag, _ in found.tags if tag == "img"]
    # A browser takes more for the end of an element than the parser of these tests does: no "<" is left at all.
    data = [name for name in found.scripts if name != "program"]
    assert {"index", "text-0", "tokens-0"} <= set(data)
    assert not [name for name in data if set("<>&") & set(found.scripts[name])]


def test_the_index_says_what_was_there(document, runs):
    index = document.index
    assert [run["name"] for run in index["runs"]] == ["seed0", "seed1", "other"]
    assert index["sets"] == [
        {"label": "method.clip_low 0.2", "runs": [0, 1]},
        {"label": "method.clip_low 0.3", "runs": [2]},
    ]
    assert index["different"] == ["method.clip_low", "seed"]
    assert [run["steps"] for run in index["runs"]] == [12] * 3
    assert [len(run["alarms"]) for run in index["runs"]] == [1, 1, 0]
    # 12 steps and 3 evaluations of 4 tasks, of each run.
    assert len(index["groups"]["step"]) == index["groups_in_all"] == 3 * (12 + 3 * 4)
    curve = index["runs"][0]["curves"]
    assert curve["reward"]["x"] == list(range(12))
    assert curve["gradient_norm"]["y"][7] is None
    assert curve["success"]["x"] == [0, 6, 12]
    assert curve["warm-up/loss"]["x"] == list(range(20))
    row = read_run(runs[0], "a").metrics[3]
    assert curve["reward"]["y"][3] == float(f"{row['reward']:.6g}")


def test_every_curve_has_a_panel_and_stages_have_their_own(document):
    index = document.index
    names = {name for run in index["runs"] for name in run["curves"]}
    shown = [name for panel in index["panels"] for name in panel["names"]]
    assert sorted(shown) == sorted(names)
    titles = {panel["title"]: panel["names"] for panel in index["panels"]}
    assert titles["dropped"] == ["dropped/failed_tools", "dropped/uniform_groups"]
    assert titles["Method"] == ["clip_fraction", "reward_std", "softened"]
    assert {"seconds", "seconds/rollout", "seconds/update", "tokens_per_second"} <= set(titles["Cost"])


def test_statistics_of_groups_are_those_of_their_members(document):
    groups = document.index["groups"]
    for rewards, mean, std in zip(groups["rewards"], groups["mean"], groups["std"], strict=True):
        assert mean == pytest.approx(np.mean(rewards), abs=1e-5)
        assert std == pytest.approx(np.std(rewards), abs=1e-5)


def test_a_lost_member_has_no_score_and_weighs_nothing():
    line, pages = group(0, 0, "t", np.random.default_rng(0)), Pages()
    rewards = [member["reward"] for member in line["members"]]
    line["members"][1].update(reward=None, lost="its worker died")
    line["members"][2].update(reward="nan")
    pages.add(0, "training", line)
    found = {name: column[0] for name, column in pages.index.items()}
    assert found["rewards"] == [rewards[0], None, None, rewards[3]]
    assert (found["mean"], found["lost"]) == (pytest.approx((rewards[0] + rewards[3]) / 2), 1)


def test_a_text_is_kept_once_and_comes_back_wherever_it_stood():
    pages, draw = Pages(), np.random.default_rng(0)
    lines = [group(step, step, "t", draw) for step in range(3)]
    for line in lines:
        pages.add(0, "training", line)
    pages.finish()
    page = json.loads(gzip.decompress(base64.b64decode(pages.texts[0])))
    assert len(set(page["texts"])) == len(page["texts"])
    for line, shown in zip(lines, page["groups"], strict=True):
        for wrote, stands in [(line, shown), *zip(line["members"], shown["members"], strict=True)]:
            name = "opening" if wrote is line else "messages"
            assert [page["texts"][message["content"]] for message in stands[name]] == [
                message["content"] for message in wrote[name]
            ]


def _as_older_versions_wrote(line):
    """Until all members differed, everything was the opening's, what they had written alike included."""
    whole = [[*line["opening"], *member["messages"]] for member in line["members"]]
    alike = 0
    while all(len(messages) > alike and messages[alike] == whole[0][alike] for messages in whole):
        alike += 1
    members = [{**member, "messages": messages[alike:]} for member, messages in zip(line["members"], whole)]
    return {**line, "opening": whole[0][:alike], "members": members}


@given(
    st.integers(0, 2),
    st.lists(st.lists(st.sampled_from("ab"), max_size=3), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_turns_that_all_members_wrote_alike_are_each_ones_own_also_in_logs_of_older_versions(
    examples, turns, ended, goals
):
    """Examples of a conversation in the opening stay there; observations go with the turn that they answer; what one
    member alone was told is its own."""
    opening = [{"role": "system", "content": "manual"}]
    opening += [{"role": role, "content": "example"} for _ in range(examples) for role in ("user", "assistant")]
    tasks = [{"role": "user", "content": f"task {number * goals}"} for number in range(len(turns))]
    shared = len(opening) + (len({task["content"] for task in tasks}) == 1)
    member, _ = member_and_tokens(0, np.random.default_rng(0))
    members = []
    for number, said in enumerate(turns):
        messages = [*opening, tasks[number]]
        for text in said:
            messages += [{"role": "assistant", "content": text}, {"role": "tool", "content": f"saw {text}"}]
        if ended and said:
            messages.pop()
        of_turns = dict.fromkeys(
            ("turn_scores", "tool_calls", "tool_successes", "void", "stop_reasons"), [0] * len(said)
        )
        members.append({**member, **of_turns, "member": number, "messages": messages})
    line = group_line(0, members)
    for logged in (line, _as_older_versions_wrote(line)):
        pages = Pages()
        pages.add(0, "training", logged)
        pages.finish()
        page = json.loads(gzip.decompress(base64.b64decode(pages.texts[0])))
        texts = [(m["role"], page["texts"][m["content"]]) for m in page["groups"][0]["opening"]]
        assert texts == [(m["role"], m["content"]) for m in members[0]["messages"][:shared]]
        for shown, wrote in zip(page["groups"][0]["members"], members, strict=True):
            said = [(m["role"], page["texts"][m["content"]]) for m in shown["messages"]]
            assert said == [(m["role"], m["content"]) for m in wrote["messages"][shared:]]


def test_a_long_run_is_thinned_and_says_so():
    rows = [{"step": step, "x": step if step != 5 else "nan"} for step in range(4 * MOST_POINTS)]
    width = bin_width(len(rows))
    curve = curves(rows, width)["x"]
    assert width == 4
    assert len(curve["x"]) == MOST_POINTS
    assert (curve["y"][0], curve["low"][0], curve["high"][0]) == (1.5, 0, 3)
    assert curve["y"][1] == pytest.approx((4 + 6 + 7) / 3, abs=1e-4)
    assert curve["x"][:3] == [0, 4, 8]
    assert [bin_width(steps) for steps in (0, MOST_POINTS, MOST_POINTS + 1)] == [1, 1, 2]
    assert curves(rows[5:6], 1)["x"] == {"x": [5], "y": [None]}


def test_every_known_metric_has_its_panel_and_its_meaning():
    """Those of stages are the method's own."""
    parts = (STEP, ROLLOUT, CONDITIONS, ALARMS, EVALUATION)
    of_all = [entry.name.replace("<", "").replace(">", "") for part in parts for entry in part]
    of_all.remove("seconds_since_start")
    of_stages = [f"inner/{entry.name}" for entry in STAGES] + ["kl"]
    found = [panel for panel in panels(of_all) if panel["title"] in TITLES]
    known = {name for panel in found for name in [*panel["names"], *panel["bounds"].values()]}
    assert known == set(of_all)
    assert [panel["title"] for panel in panels(of_stages)] == ["Method", "inner"]
    assert meanings([*of_all, *of_stages, "new"]).keys() == {*of_all, *of_stages}
    assert meanings(["seconds/update"])["seconds/update"].startswith("s, in a phase")


def test_a_run_that_asks_for_rewards_has_a_panel_of_what_that_did():
    names = ["entropy", "kl", "reward_std", "mixed_variance", "mixed_variance_bound", "peaked_identical", "reward_gap"]
    found = {panel["title"]: panel for panel in panels(names)}
    assert found[CONDITIONING] == {
        "title": CONDITIONING,
        "names": ["reward_gap", "reward_std", "entropy", "peaked_identical", "mixed_variance"],
        "bounds": {"mixed_variance": "mixed_variance_bound"},
    }
    assert found["Learning"]["names"] == ["entropy"]
    assert found["Method"]["names"] == ["kl", "reward_std"]
    assert [panel["title"] for panel in panels(["entropy", "kl", "reward_std"])] == ["Learning", "Method"]


def test_the_interval_of_a_success_is_the_band_of_its_curve():
    rows = [
        {"step": step, "success": 0.5, "success_low": 0.4, "success_high": step / 9}
        | {"success/b": 1.0, "success_low/b": 0.75, "success_high/b": 1.0}
        for step in (6, 9)
    ]
    found = evaluation_curves(rows)
    assert found == {
        "success": {"x": [6, 9], "y": [0.5, 0.5], "low": [0.4, 0.4], "high": [0.666667, 1.0]},
        "success/b": {"x": [6, 9], "y": [1.0, 1.0], "low": [0.75, 0.75], "high": [1.0, 1.0]},
    }
    # An evaluation without one: they are curves of their own, and none is drawn where it was not.
    found = evaluation_curves([*rows, {"step": 12, "success": 0.5}])
    assert "low" not in found["success"]
    assert found["success_low"]["x"] == [6, 9]


def test_runs_without_a_config_stand_alone():
    assert configs.sets([{}, {}, {"seed": "1", "a": "2"}, {"seed": "2", "a": "2"}]) == [[0], [1], [2, 3]]
    assert configs.leaves({"a": {"b": [1], "c": {}}}) == {"a.b": "[1]", "a.c": "{}"}


def test_the_seed_is_the_last_that_differs_and_tells_no_set_from_another():
    of_runs = [{"a": value, "b": "0", "seed": value, "z": value} for value in "12"]
    different = configs.differing(of_runs)
    assert different == ["a", "z", "seed"]
    assert configs.label(of_runs[1], different, "two") == "a 2, z 2"
    assert configs.label(of_runs[1], ["seed"], "two") == "two"


def test_prefixes_of_metrics_are_panels():
    found = {panel["title"]: panel["names"] for panel in panels(["a/x", "seconds", "secondsish", "kl", "rollout/x"])}
    assert found == {"Method": ["kl", "secondsish"], "a": ["a/x"], "Rollout": ["rollout/x"], "Cost": ["seconds"]}
