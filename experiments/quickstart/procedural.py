"""Quickstart: a decoder of about a million weights learns tool calling from scratch on a CPU.

    bash launch/quickstart.sh [DIR] [--seed N]

A supervised warm-up on expert traces of generated multi-turn tasks (levels 1 to 3), stopped early, then GRPO on fresh
tasks. Success is measured on held-out tasks, as the mean over samples at temperature 1.
"""

import optax
from ml_collections import ConfigDict, config_dict

from rlagents import learner, models
from rlagents.data.streams import endless
from rlagents.data.tokenizers import COMPACT_CHAT_TEMPLATE, word_tokenizer
from rlagents.environments.bfcl_procedural import HELD_OUT, TRAIN, ProceduralTasks, corpus, procedural_environment
from rlagents.experiment import Config, Experiment
from rlagents.facts import Task
from rlagents.machinery import random_params
from rlagents.methods import recipes
from rlagents.rollouts.chat import Chat


def get_config() -> ConfigDict:
    return ConfigDict(
        {
            "seed": 0,
            "levels": (1, 2, 3),
            "model": {
                "embed_dim": 128,
                "mlp_dim": 384,
                "num_layers": 3,
                "num_heads": 4,
                "num_kv_heads": 4,
                "head_dim": 32,
                "qk_norm": True,
            },
            "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
            "limits": {"max_turns": 14, "max_turn_tokens": 24, "max_response_tokens": 255, "max_prompt_tokens": 112},
            "workers": {"num_workers": 1, "step_timeout_seconds": 5.0},
            "rule": {"temperature": 1.0},
            "sampler": {
                "num_groups": 32,
                "num_rows": 128,
                "decode_rows": 128,
                "max_member_tokens": 256,
                "extend_rows": 64,
                "extend_chunk_tokens": 16,
                "prefill_groups": 16,
                "block_steps": 8,
            },
            "supervised": {
                "steps": 400,
                "traces": 6000,
                "prompts_per_step": 16,
                "prompts_per_micro_batch": 16,
                "batches_per_window": 8,
                "learning_rate": 3e-3,
                "warm_up_updates": 30,
                "b2": 0.98,
            },
            "trace_buckets": {"prefix_buckets": (112,), "member_buckets": (64, 128, 192, 304), "turn_buckets": (14,)},
            "rl": {
                "steps": 60,
                "prompts_per_step": 16,
                "group_size": 8,
                "prompts_per_micro_batch": 16,
                "updates_per_batch": 1,
                "epochs": 1,
                "members_per_micro_batch": config_dict.placeholder(int),
                "learning_rate": 3e-4,
                "warm_up_updates": 5,
            },
            "buckets": {"prefix_buckets": (112,), "member_buckets": (256,), "turn_buckets": (14,)},
            "method": {"kl_coefficient": 0.0},
            "evaluation": {"num_tasks": 240, "samples_per_task": 4, "every_steps": 0},
            "checkpoint": {"every_steps": 100, "keep_last": 1},
        }
    )


def build(config: Config) -> Experiment:
    environment = procedural_environment()
    # The tokenizer belongs to the family, not to the run: its seed is fixed.
    tokenizer = word_tokenizer(corpus(400, seed=0), max_words=1000)
    decoder = models.DecoderConfig(vocab_size=len(tokenizer), **config.model)
    return Experiment(
        decoder=decoder,
        make_params=random_params(decoder),
        chat=Chat(tokenizer, COMPACT_CHAT_TEMPLATE),
        environment=environment,
        expert=lambda task: [text for turn in environment.expert(task) for text in turn],
        train_stream=lambda position: endless(
            ProceduralTasks(TRAIN, levels=config.levels, seed=config.seed), position=position
        ),
        held_out=ProceduralTasks(HELD_OUT, levels=config.levels, seed=0),
        method=recipes.grpo(**config.method),
        supervised_optimizer=learner.make_optimizer(
            learner.warm_up(
                optax.cosine_decay_schedule(config.supervised.learning_rate, config.supervised.steps, alpha=0.1),
                config.supervised.warm_up_updates,
            ),
            b2=config.supervised.b2,
        ),
        optimizer=learner.make_optimizer(
            learner.warm_up(optax.constant_schedule(config.rl.learning_rate), config.rl.warm_up_updates)
        ),
        category=level_of,
    )


def level_of(task: Task) -> str:
    return f"level {task.id.split('-')[-2]}"
