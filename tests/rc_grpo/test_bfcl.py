"""The experiment on official tasks: variants that all checks of a config know, one split, both stages' sampling."""

import functools

import pytest

from experiments.rc_grpo import bfcl
from rlagents import imitation_rows
from rlagents.config_defaults import complete
from rlagents.config_sections import check_sections
from rlagents.data.demonstrations import write_demonstrations
from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_split import official_category
from rlagents.environments.bfcl_tasks import task_number
from rlagents.facts import Opening, Task
from rlagents.rollouts.conditions import GOAL_LITERALS, HIGH, LOW, Place
from rlagents.sampling.keys import Domain, StreamKey

KEYS = [StreamKey(Domain.TRAIN, 0, step=0, stream=stream) for stream in range(20)]
PLACES = [Place(key, member, 5) for key in KEYS for member in range(5)]
OPENING = Opening([{"role": "user", "content": "List the files."}])


@pytest.fixture(autouse=True)
def _read_once(monkeypatch):
    monkeypatch.setattr(bfcl, "load_smollm2", functools.cache(bfcl.load_smollm2))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Both datasets, of a few tasks."""
    folder, environment = tmp_path_factory.mktemp("data"), BfclEnvironment()
    tasks = bfcl.tasks_of(("base",), 0)[0][:6]
    experts = imitation_rows.expert_rows(environment, tasks, official_category)
    failures = imitation_rows.scripted_rows(environment, tasks, official_category, seed=0)
    write_demonstrations(folder, "rctp", {"train": imitation_rows.rctp_rows(experts, failures, seed=0)})
    write_demonstrations(folder, "sft", {"train": imitation_rows.sft_rows(experts, seed=0)})
    return str(folder)


def config_of(variant, **changes):
    config = bfcl.get_config(variant)
    complete(config)
    config.update(changes)
    return config


@pytest.mark.parametrize("variant", bfcl.VARIANTS)
def test_every_variant_is_a_config(variant):
    config = config_of(variant)
    check_sections(config)
    model, stage = variant.split(",")
    assert bool(config.supervised.steps) == (stage in ("sft", "rctp")) != bool(config.rl.steps)
    assert config.conditioned == (stage in ("rctp", "rc_grpo"))
    if model != "smollm2-135m":
        wanted = {"sft": (90, 0), "rctp": (450, 0), "grpo": (0, 64), "rc_grpo": (0, 256)}[stage]  # Tables 10 to 12
        assert (config.supervised.steps, config.rl.steps and config.rl.prompts_per_step) == wanted
        assert (config.method.kl_coefficient, config.method.clip_high, config.rl.learning_rate) == (0.1, 0.2, 1e-6)


def test_runs_of_some_categories_share_no_number_with_what_others_hold_out():
    train, held_out = bfcl.tasks_of(("base",), 0)
    _, of_all = bfcl.tasks_of(("base", "miss_func", "miss_param", "long_context"), 0)
    assert not {task_number(task) for task in train} & {task_number(task) for task in of_all}
    assert (len(train), len(held_out), len(of_all)) == (180, 20, 80)
    assert [task.id for task in held_out] == [task.id for task in of_all if official_category(task) == "base"]


@pytest.mark.parametrize(("stage", "conditions"), [("sft", {-1}), ("rctp", {LOW, HIGH})])
def test_stage_1_learns_from_what_was_collected(stage, conditions, data):
    experiment = bfcl.build(config_of(f"smollm2-135m,{stage}", data=data))
    stream, shown = experiment.demonstrated_tasks(), []
    for index in range(12):
        trace = experiment.played(stream[index], experiment.demonstrate(stream[index], 0), stream=index)
        (user,) = [message["content"] for message in trace.messages if message["role"] == "user"][:1]
        assert [literal in user for literal in GOAL_LITERALS] == [trace.condition == LOW, trace.condition == HIGH]
        assert trace.outcome.reward == float(trace.condition != LOW)
        shown.append(trace.condition)
    assert set(shown) == conditions


@pytest.mark.parametrize(("stage", "conditions"), [("grpo", {-1}), ("rc_grpo", {LOW, HIGH})])
def test_stage_2_asks_for_what_it_says(stage, conditions):
    experiment = bfcl.build(config_of(f"smollm2-135m,{stage}"))
    assert {experiment.member_messages(Task("0"), OPENING, place)[1] for place in PLACES} == conditions
    for goal, condition in (("none", -1), ("low", LOW), ("high", HIGH)):
        asked = bfcl.build(config_of(f"smollm2-135m,{stage}", evaluation_goal=goal)).evaluation_messages
        assert asked(Task("0"), OPENING, PLACES[0])[1] == condition


@pytest.mark.parametrize(
    ("variant", "changes", "said"),
    [
        ("smollm2-135m,rctp", {}, "data is ''; give the folder that"),
        ("smollm2-135m,grpo", {"asking": "both"}, "asking is 'both'; give one of separate, merged"),
        ("smollm2-135m,grpo", {"evaluation_goal": "best"}, "evaluation_goal is 'best'; give one of none, low, high"),
        ("smollm2-135m,grpo", {"categories": ("bass",)}, r"categories are \('bass',\); give some of base,"),
        ("qwen2.5-7b-instruct,rctp", {}, "weights is ''; give the folder of qwen2.5-7b-instruct"),
        ("llama-3.1-8b-instruct,grpo", {"weights": "/nowhere"}, "weights is '/nowhere', which has no config.json"),
    ],
)
def test_what_does_not_go_together_is_refused(variant, changes, said):
    with pytest.raises(ValueError, match=said):
        bfcl.build(config_of(variant, **changes))
