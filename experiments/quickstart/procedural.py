"""Quickstart: a decoder of 0.2 million weights learns tool calling from scratch on a CPU.

    bash launch/quickstart.sh [DIR] [--seed N]

A supervised warm-up on demonstrations of generated multi-turn tasks, then GRPO on fresh ones. The first demonstrators
are experts; the last ones make no wrong call either, but are hasty: of the user turns that need several calls they
often end one call too early. Imitation takes the habit over; GRPO, which sees only whether a task was solved, takes it
off. Both train on levels 1 and 2; success is measured on held-out tasks of levels 1 to 3, as the mean over samples at
temperature 1.
"""

import jax
import optax
import optax.contrib
from ml_collections import ConfigDict, config_dict
from optax.contrib import MuonDimensionNumbers as Dimensions

from rlagents import learner, models
from rlagents.data.streams import endless
from rlagents.data.tokenizers import COMPACT_CHAT_TEMPLATE, word_tokenizer
from rlagents.environments.bfcl_procedural import HELD_OUT, TRAIN, ProceduralTasks, corpus, procedural_environment
from rlagents.environments.procedural.domains import DOMAINS, domain_numbers
from rlagents.experiment import Config, Experiment
from rlagents.facts import Task
from rlagents.machinery import random_params
from rlagents.methods import recipes
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.experts import complete, first_then, hasty
from rlagents.types import Params

LIMITS = {"max_turns": 14, "max_turn_tokens": 24, "max_prompt_tokens": 112}

MEANINGS = {
    "back_ends": ("", "BFCL back-ends that tasks are generated over."),
    "train_levels": ("", "Levels of the tasks trained on: numbers of user turns."),
    "held_out_levels": ("", "Levels of the tasks held out, evenly."),
    "model.embed_dim": ("", "Width of the residual stream."),
    "model.mlp_dim": ("", "Width of the MLP."),
    "model.num_layers": ("layers", "Of the decoder."),
    "model.num_heads": ("heads", "Of queries."),
    "model.num_kv_heads": ("heads", "Of keys and values."),
    "model.head_dim": ("", "Width of a head."),
    "model.qk_norm": ("", "Normalise queries and keys."),
    "model.embedding_scale": ("", "Multiplies embeddings where they enter the residual stream."),
    "model.query_scale": ("", "Multiplies attention logits."),
    "method.kl_coefficient": ("", "Weight of the penalty on the distance to the policy before RL; 0 has none."),
    "supervised.complete_steps": ("steps", "Whose demonstrators are experts; those of later steps are hasty."),
    "supervised.hasty_share": ("probability", "That a hasty demonstrator ends a user turn one call too early."),
    "supervised.learning_rate": ("", "Highest, of Muon, for matrices."),
    "supervised.adam_learning_rate": ("", "Highest, of Adam, for all else."),
    "supervised.final_fraction": ("", "Share of the highest learning rate that is left at the end."),
    "supervised.warm_up_updates": ("updates", "Over which the learning rate rises."),
    "supervised.b2": ("", "Decay of Adam's second moment."),
    "rl.learning_rate": ("", "Highest, of AdamW."),
    "rl.final_fraction": ("", "Share of the highest learning rate that is left at the end."),
    "rl.warm_up_updates": ("updates", "Over which the learning rate rises."),
}


def get_config() -> ConfigDict:
    return ConfigDict(
        {
            "seed": 0,
            "compilation_cache": "../compilation_cache",
            "back_ends": tuple(domain.back_end for domain in DOMAINS),
            "train_levels": (1, 2),
            "held_out_levels": (1, 2, 3),
            "model": {
                "embed_dim": 64,
                "mlp_dim": 192,
                "num_layers": 3,
                "num_heads": 2,
                "num_kv_heads": 2,
                "head_dim": 32,
                "qk_norm": True,
                # Tokens enter the residual stream at unit size, and attention begins nearly flat: copying is learned
                # in half the steps.
                "embedding_scale": 8.0,
                "query_scale": 0.09,
            },
            "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
            "limits": LIMITS | {"max_response_tokens": 127},
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
                "block_steps": 16,
                # On a CPU the host works on the cores that decode: nothing is gained by sending blocks ahead.
                "blocks_in_flight": 1,
                "share_prefix": True,
                "few_query_attention": True,
            },
            "supervised": {
                "steps": 600,
                "complete_steps": 504,
                "traces": 8000,
                "hasty_share": 0.6,
                "prompts_per_step": 24,
                "prompts_per_micro_batch": 24,
                "batches_per_window": 8,
                "learning_rate": 1e-2,
                "adam_learning_rate": 2e-2,
                "final_fraction": 0.1,
                "warm_up_updates": 20,
                "b2": 0.98,
            },
            "trace_buckets": {"prefix_buckets": (112,), "member_buckets": (56, 128), "turn_buckets": (14,)},
            "rl": {
                "steps": 36,
                "prompts_per_step": 16,
                "group_size": 8,
                "prompts_per_micro_batch": 16,
                "updates_per_batch": 1,
                "epochs": 1,
                # Member buckets of 40, 80 and 128 spare a third of the positions; 36 steps do not repay compiling.
                "pack_micro_batches": False,
                "reuse_policy_as_old": True,
                "members_per_micro_batch": config_dict.placeholder(object),  # int would refuse None on the command line
                "over_sample": 1.0,
                "max_draws": 1,
                "stop_early": True,
                "rollouts_ahead": 0,
                "wait_for_tools": True,
                "learning_rate": 4e-4,
                "final_fraction": 0.1,
                "warm_up_updates": 5,
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
                "prefix_buckets": (112,),
                "member_buckets": (128,),
                "turn_buckets": (14,),
                "share_prefix": True,
            },
            "method": {"kl_coefficient": 0.0},
            "evaluation": {
                "num_tasks": 216,
                "samples_per_task": 2,
                "every_steps": 0,
                "limits": {
                    "max_turns": 14,
                    "max_turn_tokens": 24,
                    "max_response_tokens": 255,
                    "max_prompt_tokens": 112,
                },
            },
            "checkpoint": {"every_steps": 100, "keep_last": 2},
            # All of these as they are by default: --config.help lists them.
            "trajectories": {},
            "alarms": {},
            "logging": {},
            "watchdog": {},
        }
    )


def build(config: Config) -> Experiment:
    environment = procedural_environment()
    # The tokenizer belongs to the family, not to the run: its seed is fixed.
    tokenizer = word_tokenizer(corpus(400, seed=0), max_words=1000)
    domains = domain_numbers(config.back_ends)
    decoder = models.DecoderConfig(vocab_size=len(tokenizer), **config.model)
    return Experiment(
        decoder=decoder,
        make_params=random_params(decoder),
        chat=Chat(tokenizer, COMPACT_CHAT_TEMPLATE),
        environment=environment,
        demonstrate=first_then(
            complete(environment.expert),
            hasty(environment.expert, config.supervised.hasty_share),
            first_steps=config.supervised.complete_steps,
        ),
        train_stream=lambda position: endless(
            ProceduralTasks(TRAIN, levels=config.train_levels, seed=config.seed, domains=domains), position=position
        ),
        held_out=ProceduralTasks(HELD_OUT, levels=config.held_out_levels, seed=0, domains=domains),
        method=recipes.grpo(**config.method),
        supervised_optimizer=supervised_optimizer(**config.supervised),
        optimizer=optimizer(**config.rl),
        category=level_of,
    )


def optimizer(
    *, steps: int, learning_rate: float, final_fraction: float, warm_up_updates: int, **_
) -> learner.Optimizer:
    """AdamW whose rate falls by a cosine: the noise of small batches averages out towards the end."""
    decay = optax.cosine_decay_schedule(learning_rate, max(steps, 1), alpha=final_fraction)
    return learner.make_optimizer(learner.warm_up(decay, warm_up_updates))


def supervised_optimizer(
    *,
    steps: int,
    learning_rate: float,
    adam_learning_rate: float,
    final_fraction: float,
    warm_up_updates: int,
    b2: float,
    **_,
) -> learner.Optimizer:
    """Muon (Jordan et al., 2024) for matrices, Adam for the rest: copying is learned in fewer traces than with Adam."""

    def schedule(rate: float) -> optax.Schedule:
        decay = optax.cosine_decay_schedule(rate, max(steps, 1), alpha=final_fraction)  # 0 steps: no warm-up
        return learner.warm_up(decay, warm_up_updates)

    muon = optax.contrib.muon(
        schedule(learning_rate),
        adam_learning_rate=schedule(adam_learning_rate),
        adam_b2=b2,
        muon_weight_dimension_numbers=matrices,
    )
    return learner.from_optax(optax.chain(optax.clip_by_global_norm(1.0), muon), schedule(learning_rate))


def matrices(params: Params) -> Params:
    """Which axes of each weight are a matrix's rows and columns; layers, and what is no matrix, are left out."""
    fan_out_of_heads, plain = Dimensions(1, (2, 3)), Dimensions(1, 2)
    attention = {"query": fan_out_of_heads, "key": fan_out_of_heads, "value": fan_out_of_heads}
    known = {
        **{f"layers/attention/{name}": dimensions for name, dimensions in attention.items()},
        "layers/attention/output": Dimensions((1, 2), 3),
        **{f"layers/mlp/{name}": plain for name in ("gate", "up", "down")},
    }
    return jax.tree_util.tree_map_with_path(
        lambda path, _: known.get(jax.tree_util.keystr(path, simple=True, separator="/")), params
    )


def level_of(task: Task) -> str:
    return f"level {task.id.split('-')[-2]}"
