"""GRPO on official BFCL v4 multi-turn tasks.

    python -m rlagents.train --config=experiments/rc_grpo/bfcl.py:smollm2-135m --workdir=DIR

``smollm2-135m``: SmolLM2-135M-Instruct, real weights and tokenizer from a registry package, on one machine without an
accelerator. A few steps that show the loop on real tasks and what each phase costs; no learning is claimed at this
size.
"""

from typing import Any

import jax
import optax
from ml_collections import ConfigDict, config_dict

from rlagents import learner
from rlagents.data.streams import shuffled
from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_tasks import official_tasks, task_number
from rlagents.experiment import Config, Experiment
from rlagents.facts import Task
from rlagents.methods import recipes
from rlagents.models import DecoderConfig
from rlagents.models.gguf import load_smollm2
from rlagents.models.vocabulary import MakeParams, with_special_tokens
from rlagents.rollouts.chat import Chat, training_template
from rlagents.rollouts.conditions import GOAL_LITERALS
from rlagents.rollouts.experts import complete
from rlagents.types import Params

MEANINGS = {
    "categories": ("", "Categories of BFCL multi-turn tasks."),
    "held_out_numbers": ("tasks", "Of each category, the last so many are held out."),
    "reward_tokens": (
        "",
        "`text`: reward goals are plain text, in pieces; `added`: each literal is a special token of its own.",
    ),
    "method.clip_low": ("", "The ratio counts down to 1 - clip_low."),
    "method.clip_high": ("", "The ratio counts up to 1 + clip_high."),
    "method.kl_coefficient": ("", "Weight of the penalty on the distance to the first policy (the paper's beta)."),
    "rl.learning_rate": ("", "Of AdamW."),
    "rl.max_grad_norm": ("", "Larger gradients are scaled down to it."),
}


def smollm2_135m() -> ConfigDict:
    limits = {"max_turns": 6, "max_turn_tokens": 48, "max_response_tokens": 639, "max_prompt_tokens": 2432}
    return ConfigDict(
        {
            "seed": 0,
            "compilation_cache": "../compilation_cache",
            "categories": ("base",),
            "held_out_numbers": 20,
            "reward_tokens": "text",
            "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
            "limits": dict(limits),
            "workers": {"num_workers": 1, "step_timeout_seconds": 10.0},
            "rule": {"temperature": 1.0},
            "sampler": {
                "num_groups": 2,
                "num_rows": 8,
                "decode_rows": 8,
                "max_member_tokens": 640,
                "extend_rows": 4,
                "extend_chunk_tokens": 64,
                "prefill_groups": 1,
                "block_steps": 16,
                # On a CPU the host works on the cores that decode: nothing is gained by sending blocks ahead.
                "blocks_in_flight": 1,
                "share_prefix": True,
                "few_query_attention": True,
            },
            "supervised": {"steps": 0},
            "rl": {
                "steps": 3,
                "prompts_per_step": 2,
                "group_size": 4,
                "prompts_per_micro_batch": 1,
                "members_per_micro_batch": config_dict.placeholder(object),
                "updates_per_batch": 1,
                "epochs": 1,
                "pack_micro_batches": True,
                "reuse_policy_as_old": True,
                "over_sample": 1.0,
                "max_draws": 1,
                "stop_early": True,
                "rollouts_ahead": 0,
                "wait_for_tools": False,
                "learning_rate": 1e-6,
                "max_grad_norm": 1.0,
            },
            "passes": {
                "loss_chunk_tokens": 256,
                "head_chunk_tokens": 256,
                "layer_chunk_tokens": 1536,
                "attention_chunk_logits": 2**20,
                "attention_parts": 4,
                "activation_gigabytes": 0.0,
            },
            "buckets": {
                "prefix_buckets": (1664, 2432),
                "member_buckets": (320, 640),
                "turn_buckets": (6,),
                "share_prefix": True,
            },
            # RC-GRPO, Table 10: clip 0.2, beta 0.1.
            "method": {"clip_low": 0.2, "clip_high": 0.2, "kl_coefficient": 0.1},
            "evaluation": {
                "num_tasks": 2,
                "samples_per_task": 4,
                "every_steps": 0,
                "limits": dict(limits),
            },
            "checkpoint": {"every_steps": 100, "keep_last": 2},
            # All of these as they are by default: --config.help lists them.
            "trajectories": {},
            "alarms": {},
            "logging": {},
            "watchdog": {},
        }
    )


VARIANTS = {"smollm2-135m": smollm2_135m}


def get_config(variant: str = "smollm2-135m") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant {variant!r}; there are {', '.join(VARIANTS)}.")
    return VARIANTS[variant]()


def build(config: Config) -> Experiment:
    decoder, make_params, tokenizer = policy(config.reward_tokens)
    environment = BfclEnvironment()
    tasks = [task for category in config.categories for task in official_tasks(category)]
    # Tasks with one number are variants of one another: both sides of the split would know them.
    held_out = [task for task in tasks if task_number(task) >= 200 - config.held_out_numbers]
    train = [task for task in tasks if task_number(task) < 200 - config.held_out_numbers]
    return Experiment(
        decoder=decoder,
        make_params=make_params,
        chat=Chat(tokenizer, training_template(tokenizer)),
        environment=environment,
        demonstrate=complete(environment.expert),
        train_stream=lambda position: shuffled(train, seed=config.seed, position=position),
        held_out=held_out,
        method=recipes.grpo(**config.method),
        supervised_optimizer=learner.make_optimizer(optax.constant_schedule(1e-5)),
        optimizer=learner.make_optimizer(
            optax.constant_schedule(config.rl.learning_rate), max_grad_norm=config.rl.max_grad_norm
        ),
        category=category_of,
    )


def policy(reward_tokens: str) -> tuple[DecoderConfig, MakeParams, Any]:
    """Decoder, weights and tokenizer; with a special token for each reward goal where they are ``added``."""
    if reward_tokens not in ("text", "added"):
        raise ValueError(f"reward_tokens is {reward_tokens!r}; give 'text' or 'added'.")
    decoder, params, tokenizer = load_smollm2()

    def make_params(key: jax.Array, shardings: Any) -> Params:
        return jax.device_put(params, shardings)

    if reward_tokens == "text":
        return decoder, make_params, tokenizer
    return with_special_tokens(decoder, make_params, tokenizer, GOAL_LITERALS)


def category_of(task: Task) -> str:
    return task.id.removeprefix("multi_turn_").rpartition("_")[0]
