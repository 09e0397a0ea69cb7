"""RC-GRPO on official BFCL v4 multi-turn tasks: both of its stages, for three models.

    python -m experiments.rc_grpo.collect --output=DATA --asking=separate
    python -m rlagents.train --config=experiments/rc_grpo/bfcl.py:smollm2-135m,rctp --workdir=runs/rctp \
        --config.data=DATA
    python -m rlagents.train --config=experiments/rc_grpo/bfcl.py:smollm2-135m,rc_grpo --workdir=runs/rc_grpo \
        --config.checkpoint.restore_from=runs/rctp

Models: ``smollm2-135m``, real weights and tokenizer from a registry package, on one machine without an accelerator: a
few steps that show the loop on real tasks and what each phase costs; no learning is claimed at this size.
``qwen2.5-7b-instruct`` and ``llama-3.1-8b-instruct``, at the paper's numbers, on 64 chips, from ``--config.weights``.
Stages: ``sft`` and ``rctp`` (stage 1, on ``--config.data``), ``grpo`` (the default) and ``rc_grpo`` (stage 2, from a
run of stage 1 or from the model itself; the reference is what it begins with).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from transformers import AutoTokenizer

from experiments.rc_grpo.bfcl_sizes import MODELS, STAGES
from rlagents import learner
from rlagents.conditioning import conditioning
from rlagents.data.demonstrations import read_demonstrations
from rlagents.data.streams import shuffled
from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_split import official_category, split_by_number
from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks
from rlagents.environments.bfcl_turns import MergedTurns, SeparateTurns
from rlagents.experiment import Config, Experiment
from rlagents.facts import Task
from rlagents.methods import recipes
from rlagents.models import DecoderConfig
from rlagents.models.gguf import load_smollm2
from rlagents.models.huggingface import load_config, load_pretrained
from rlagents.models.vocabulary import MakeParams, with_special_tokens
from rlagents.recorded import Recorded, demonstrated
from rlagents.rollouts.chat import Chat, training_template
from rlagents.rollouts.conditions import (
    GOAL_LITERALS,
    HIGH,
    LOW,
    bernoulli,
    fixed,
    goal_messages,
    reward_goal,
    same_for_all,
    unconditioned,
)
from rlagents.rollouts.experts import complete
from rlagents.types import Params

MEANINGS = {
    "model": ("", "What the numbers are meant for."),
    "weights": ("", "Folder of the model in the format of transformers; '' for SmolLM2 from its package."),
    "data": ("", "Folder of the datasets that stage 1 learns from: `python -m experiments.rc_grpo.collect`."),
    "split_seed": ("", "Of the numbers that are held out; that of `collect`."),
    "categories": ("", "Categories of BFCL multi-turn tasks."),
    "asking": ("", "`separate`: the benchmark's user turns; `merged`: all in one message, ended by done()."),
    "reward_tokens": (
        "",
        "`text`: reward goals are plain text, in pieces; `added`: each literal is a special token of its own.",
    ),
    "goal_share": ("probability", "That a member is asked for the high reward (the paper's p)."),
    "conditioned": ("", "Members, or demonstrations, are shown a reward goal."),
    "evaluation_goal": ("", "What is asked for in evaluations: `high`, `low` or `none`."),
    "supervised.learning_rate": ("", "Of AdamW, in stage 1."),
    "method.clip_low": ("", "The ratio counts down to 1 - clip_low."),
    "method.clip_high": ("", "The ratio counts up to 1 + clip_high."),
    "method.kl_coefficient": ("", "Weight of the penalty on the distance to the first policy (the paper's beta)."),
    "rl.learning_rate": ("", "Of AdamW."),
    "rl.max_grad_norm": ("", "Larger gradients are scaled down to it."),
}

SMALL = "smollm2-135m"
VARIANTS = tuple(f"{model},{stage}" for model in MODELS for stage in STAGES)
ASKING = {"separate": SeparateTurns, "merged": MergedTurns}
EVALUATION_GOALS = {"none": same_for_all, "low": reward_goal(fixed(LOW)), "high": reward_goal(fixed(HIGH))}


def get_config(variant: str = SMALL) -> Config:
    model, _, stage = variant.partition(",")
    stage = stage or "grpo"
    if model not in MODELS or stage not in STAGES:
        raise ValueError(
            f"unknown variant {variant!r}; there are {', '.join(MODELS)}, each with a stage after a comma: "
            f"{', '.join(STAGES)}."
        )
    config = MODELS[model]()
    config.model = model
    STAGES[stage](config, on_one_machine=model == SMALL)
    return config


def build(config: Config) -> Experiment:
    for key, known in (
        ("asking", ASKING),
        ("evaluation_goal", EVALUATION_GOALS),
        ("reward_tokens", ("text", "added")),
    ):
        if config[key] not in known:
            raise ValueError(f"{key} is {config[key]!r}; give one of {', '.join(known)}.")
    if config.model != SMALL and not config.weights:
        raise ValueError(f"weights is ''; give the folder of {config.model} in the format of transformers.")
    environment = BfclEnvironment(turns=ASKING[config.asking]())
    train, held_out = tasks_of(config.categories, config.split_seed)
    decoder, make_params, tokenizer = policy(config.weights, config.reward_tokens)
    chat = Chat(tokenizer, training_template(tokenizer))
    shown = goal_messages() if config.conditioned else unconditioned
    recorded = demonstrations(config, environment, train, chat, shown) if config.supervised.steps else None
    return Experiment(
        decoder=decoder,
        make_params=make_params,
        chat=chat,
        environment=environment,
        demonstrate=complete(environment.expert) if recorded is None else demonstrated,
        demonstrated_messages=shown,
        supervised_stream=None if recorded is None else recorded.stream,
        train_stream=lambda position: shuffled(train, seed=config.seed, position=position),
        held_out=held_out,
        method=recipes.grpo(**config.method),  # of both: what RC-GRPO does otherwise is the sampling
        supervised_optimizer=learner.make_optimizer(
            optax.constant_schedule(config.supervised.learning_rate if config.supervised.steps else 0.0)
        ),
        optimizer=learner.make_optimizer(
            optax.constant_schedule(config.rl.learning_rate), max_grad_norm=config.rl.max_grad_norm
        ),
        category=official_category,
        member_messages=reward_goal(bernoulli(config.goal_share)) if config.conditioned else same_for_all,
        evaluation_messages=EVALUATION_GOALS[config.evaluation_goal],
        step_values=conditioning(),
    )


def tasks_of(categories: Sequence[str], split_seed: int) -> tuple[list[Task], list[Task]]:
    """Train and held-out tasks of some categories; split with all of them, so that runs of some share no number."""
    split = split_by_number([task for name in CATEGORIES for task in official_tasks(name)], seed=split_seed)
    unknown = sorted(set(categories) - set(CATEGORIES))
    if unknown or not categories:
        raise ValueError(f"categories are {tuple(categories)}; give some of {', '.join(CATEGORIES)}.")
    train, held_out = ([task for task in side if official_category(task) in categories] for side in split[:2])
    return train, held_out


def policy(weights: str, reward_tokens: str) -> tuple[DecoderConfig, MakeParams, Any]:
    """Decoder, weights and tokenizer; with a special token for each reward goal where they are ``added``."""
    if weights:
        if not (Path(weights) / "config.json").is_file():
            raise ValueError(f"weights is {weights!r}, which has no config.json; give a folder of transformers.")
        decoder, tokenizer = load_config(weights, dtype=jnp.bfloat16), AutoTokenizer.from_pretrained(weights)

        def make_params(key: jax.Array, shardings: Any) -> Params:
            del key
            return load_pretrained(weights, dtype=jnp.bfloat16, shardings=shardings)[1]

    else:
        decoder, params, tokenizer = load_smollm2()

        def make_params(key: jax.Array, shardings: Any) -> Params:
            del key
            return jax.device_put(params, shardings)

    if reward_tokens == "text":
        return decoder, make_params, tokenizer
    return with_special_tokens(decoder, make_params, tokenizer, GOAL_LITERALS)


def demonstrations(
    config: Config, environment: BfclEnvironment, tasks: Sequence[Task], chat: Chat, shown: Any
) -> Recorded:
    """What stage 1 learns from: of the training tasks, what the longest buckets of the warm-up hold."""
    if not config.data:
        raise ValueError("data is ''; give the folder that `python -m experiments.rc_grpo.collect` has written.")
    by_id = {task.id: task for task in tasks}
    rows = read_demonstrations(config.data, "rctp" if config.conditioned else "sft", "train")
    ours = [row for row in rows if row.category in config.categories]
    recorded = Recorded(ours, by_id, environment).fitting(
        chat,
        shown,
        max_prompt_tokens=max(config.trace_buckets.prefix_buckets) + 1,
        max_response_tokens=max(config.trace_buckets.member_buckets) - 1,
    )
    print(f"stage 1 learns from {len(recorded)} of {len(ours)} demonstrations: others are too long", flush=True)
    return recorded
