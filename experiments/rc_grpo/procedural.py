"""RC-GRPO in small: both of its stages on generated multi-turn tasks, a decoder of 0.2 million weights on a CPU.

    python -m rlagents.train --config=experiments/rc_grpo/procedural.py:base --workdir=DIR/base
    python -m rlagents.train --config=experiments/rc_grpo/procedural.py:rctp --workdir=DIR/rctp \\
        --config.checkpoint.restore_from=DIR/base/warm_up
    python -m rlagents.train --config=experiments/rc_grpo/procedural.py:rc-grpo --workdir=DIR/rctp+rc-grpo \\
        --config.checkpoint.restore_from=DIR/rctp/warm_up

``experiments.rc_grpo.grid`` runs all cells of the paper's table over seeds. Variants: ``base``, a warm-up on the format
alone; ``sft`` and ``rctp``, stage 1, from it; ``grpo`` and ``rc-grpo``, stage 2, from either, which is their reference.
"""

import random

from ml_collections import ConfigDict

from experiments.quickstart import procedural as quickstart
from experiments.rc_grpo.failures import WithFailures, both, failing
from rlagents import models
from rlagents.conditioning import conditioning
from rlagents.data.streams import endless
from rlagents.data.tokenizers import COMPACT_CHAT_TEMPLATE, word_tokenizer
from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_procedural import HELD_OUT, ProceduralTasks, Split, corpus, procedural_environment
from rlagents.environments.bfcl_tasks import scenario_of
from rlagents.environments.procedural.domains import domain_numbers
from rlagents.experiment import Config, Experiment
from rlagents.facts import Task
from rlagents.machinery import random_params
from rlagents.methods import recipes
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conditions import (
    GOAL_LITERALS,
    GOAL_TEMPLATE,
    HIGH,
    bernoulli,
    fixed,
    goal_messages,
    reward_goal,
    same_for_all,
    stratified,
    unconditioned,
)
from rlagents.rollouts.experts import Expert, complete

FORMAT, TRAIN = Split("format", 0, 15), Split("train", 15, 75)
"""Parts of what is not held out: of the base's warm-up, and of both stages."""

_MOST_OTHERS = 1_000_000

MEANINGS = {
    **{
        key: meaning
        for key, meaning in quickstart.MEANINGS.items()
        if key not in ("supervised.complete_steps", "supervised.hasty_share", "method.kl_coefficient")
    },
    "method.clip": ("", "The ratio counts from 1 - clip to 1 + clip."),
    "method.kl_coefficient": ("", "Weight of the penalty on the distance to the model of stage 1 (the paper's beta)."),
    "demonstrations": ("", "What the warm-up shows: format, experts, or experts_and_failures."),
    "demonstrated_tasks": ("tasks", "Of stage 1; stage 2 takes those that follow."),
    "goals.draw": ("", "How the goals of a group's members are drawn: nobody, independently, or exactly."),
    "goals.high_probability": ("probability", "That a member is asked for a high reward, drawn independently."),
    "goals.high_members": ("members", "Of each group that are asked for a high reward, drawn exactly."),
}


def common() -> Config:
    """What all variants share: the quickstart's decoder, tasks and optimizers, the paper's G, beta and clip."""
    config: Config = quickstart.get_config()
    config.held_out_levels = config.train_levels
    # The goal is part of the prompt, and of the members' own tokens: eight of them.
    for limits in (config.limits, config.evaluation.limits):
        limits.max_prompt_tokens = 128
    config.buckets.update({"prefix_buckets": (128,), "member_buckets": (144,)})
    config.trace_buckets.prefix_buckets = (128,)
    del config.supervised["complete_steps"], config.supervised["hasty_share"]
    config.update({"demonstrations": "experts", "demonstrated_tasks": 1000})
    config.goals = ConfigDict({"draw": "nobody", "high_probability": 0.5, "high_members": 2})
    config.supervised.update({"steps": 0, "traces": config.demonstrated_tasks})
    config.rl.update({"steps": 0, "group_size": 5, "prompts_per_step": 32, "prompts_per_micro_batch": 32})
    config.sampler.update({"num_rows": 160, "decode_rows": 160})
    config.method = ConfigDict({"clip": 0.2, "kl_coefficient": 0.1})
    config.evaluation.update({"num_tasks": 200, "samples_per_task": 1})
    config.checkpoint.update({"every_steps": 20, "keep_last": 1})
    return config


def base() -> Config:
    config = common()
    config.demonstrations = "format"
    config.supervised.update({"steps": 100, "traces": 2000})
    return config


def sft() -> Config:
    """14 epochs over few experts: peaked, right about what it knows by heart, often wrong elsewhere."""
    config = common()
    config.supervised.steps = 600
    return config


def rctp() -> Config:
    """As many epochs over the same experts, and a failure beside each."""
    config = common()
    config.demonstrations = "experts_and_failures"
    config.supervised.update({"steps": 1200, "traces": 2 * config.demonstrated_tasks})
    return config


def grpo() -> Config:
    config = common()
    config.rl.steps = 150
    return config


def rc_grpo() -> Config:
    config = grpo()
    config.goals.draw = "independently"
    return config


VARIANTS = {"base": base, "sft": sft, "rctp": rctp, "grpo": grpo, "rc-grpo": rc_grpo}


def get_config(variant: str = "rc-grpo") -> Config:
    return _known("variant", variant, VARIANTS)()


def build(config: Config) -> Experiment:
    environment = procedural_environment()
    # The tokenizer belongs to the family, not to the run: its seed is fixed. The goals' words are among the most
    # frequent ones, so each is a token of its own.
    goals = [GOAL_TEMPLATE.replace("{}", literal) for literal in GOAL_LITERALS] * 1000
    tokenizer = word_tokenizer([*goals, *corpus(400, seed=0)], max_words=1000)
    decoder = models.DecoderConfig(vocab_size=len(tokenizer), **config.model)

    def tasks_of(split: Split, seed: int = config.seed) -> ProceduralTasks:
        domains = domain_numbers(config.back_ends)
        return ProceduralTasks(split, levels=config.train_levels, seed=seed, domains=domains)

    tasks, demonstrate, shown = _known(
        "demonstrations",
        config.demonstrations,
        {
            "format": (tasks_of(FORMAT), complete(aimless(environment)), unconditioned),
            "experts": (tasks_of(TRAIN), complete(environment.expert), unconditioned),
            "experts_and_failures": (
                WithFailures(tasks_of(TRAIN)),
                both(environment, failing(environment)),
                goal_messages(),
            ),
        },
    )
    member_messages, evaluation_messages = _known(
        "goals.draw",
        config.goals.draw,
        {
            "nobody": (same_for_all, same_for_all),
            "independently": (reward_goal(bernoulli(config.goals.high_probability)), reward_goal(fixed(HIGH))),
            "exactly": (reward_goal(stratified(config.goals.high_members)), reward_goal(fixed(HIGH))),
        },
    )
    return Experiment(
        decoder=decoder,
        make_params=random_params(decoder),
        chat=Chat(tokenizer, COMPACT_CHAT_TEMPLATE),
        environment=environment,
        demonstrate=demonstrate,
        demonstrated_messages=shown,
        supervised_stream=lambda position: endless(tasks, position=position),
        train_stream=lambda position: endless(After(tasks_of(TRAIN), config.demonstrated_tasks), position=position),
        held_out=ProceduralTasks(
            HELD_OUT, levels=config.held_out_levels, seed=0, domains=domain_numbers(config.back_ends)
        ),
        method=recipes.rc_grpo(**config.method),
        supervised_optimizer=quickstart.supervised_optimizer(**config.supervised),
        optimizer=quickstart.optimizer(**config.rl),
        category=quickstart.level_of,
        member_messages=member_messages,
        evaluation_messages=evaluation_messages,
        step_values=conditioning(),
    )


class After:
    """The tasks of a set from one on, numbered from 0."""

    def __init__(self, tasks: ProceduralTasks, first: int):
        self._tasks, self._first = tasks, first

    def __getitem__(self, index: int) -> Task:
        if index < 0:
            raise IndexError(f"tasks are counted from 0; there is no task {index}.")
        return self._tasks[self._first + index]


def aimless(environment: BfclEnvironment) -> Expert:
    """Return an expert in the format alone: what would solve another task of the same back-end and number of turns.

    Calls are well written, turns are ended, and nothing has to do with what the user says. Which other task follows
    from the task's id.
    """

    def texts(task: Task) -> list[list[str]]:
        scenario = scenario_of(task)
        others = ProceduralTasks(FORMAT, (len(scenario.user_turns),), 0, domain_numbers(scenario.classes))
        return environment.expert(others[random.Random(f"aimless-{task.id}").randrange(_MOST_OTHERS)])

    return texts


def _known(name, value, known):
    if value not in known:
        raise ValueError(f"{name} is {value!r}; give one of {', '.join(known)}.")
    return known[value]
