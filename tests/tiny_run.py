"""A run of seconds, for the command line: ``--config=tests/tiny_run.py:VARIANT``; a reward by length of what was said.

An epoch of the stream is two steps, unless groups are over-sampled: steps 2 and 4 of 5 end with one.
"""

import dataclasses

from experiments.quickstart import procedural
from rlagents.data.streams import shuffled
from rlagents.methods import (
    adaptive_kl_penalty,
    chain,
    clipped_surrogate,
    group_advantage,
    method,
    predicates,
    token_mean,
    truncated_token_weights,
)
from rlagents.rollouts.informative import informative
from tests.rewarding import RewardedByLength

STEPS = 5
TASKS = 8
ESTIMATE, CLIP = group_advantage(ddof=0, epsilon=1e-6), clipped_surrogate(0.2, 0.2)
VARIANTS = {
    "one epoch": ({}, {}),
    "several epochs": ({"epochs": 3, "updates_per_batch": 2, "prompts_per_micro_batch": 2}, {}),
    "dynamic sampling": (
        {"over_sample": 1.5, "max_draws": 2},
        {"informative": informative(predicates.uniform_groups)},
    ),
    "adaptive KL": (
        {},
        {"method": method(chain(ESTIMATE, CLIP, adaptive_kl_penalty(1.0, target=0.001, horizon=10.0)), token_mean())},
    ),
    "rollouts ahead": (
        {"rollouts_ahead": 1},
        {"method": method(chain(ESTIMATE, truncated_token_weights(2.0), CLIP), token_mean())},
    ),
}


def get_config(variant="one epoch"):
    config = procedural.get_config()
    config.train_levels = config.held_out_levels = (1,)
    config.model.update(
        {"embed_dim": 16, "mlp_dim": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8}
    )
    for limits in (config.limits, config.evaluation.limits):
        limits.update({"max_turns": 3, "max_turn_tokens": 6, "max_response_tokens": 31})
    config.sampler.update({"num_groups": 6, "num_rows": 24, "decode_rows": 12, "max_member_tokens": 32})
    config.sampler.update({"extend_rows": 12, "prefill_groups": 6, "block_steps": 4})
    config.supervised.update({"steps": 3, "complete_steps": 2, "traces": 8, "batches_per_window": 2})
    config.supervised.update({"prompts_per_step": 4, "prompts_per_micro_batch": 4})
    config.trace_buckets.member_buckets = (64,)
    config.rl.update({"steps": STEPS, "prompts_per_step": 4, "group_size": 4, "prompts_per_micro_batch": 4})
    config.rl.update({"learning_rate": 3e-3, "warm_up_updates": 1})
    config.buckets.member_buckets = (32,)
    config.evaluation.update({"num_tasks": 4, "samples_per_task": 1, "every_steps": 2})
    config.checkpoint.update({"every_steps": 1, "keep_last": 2})
    config.rl.update(VARIANTS[variant][0])
    if variant != "one epoch":
        config.supervised.steps = 0  # one warm-up is enough to be killed
    config.variant = variant
    return config


def build(config):
    experiment = procedural.build(config)
    settings = {f.name: getattr(experiment.environment, f.name) for f in dataclasses.fields(experiment.environment)}
    tasks = [experiment.train_stream(0)[index] for index in range(TASKS)]
    return dataclasses.replace(
        experiment,
        environment=RewardedByLength(**settings),
        train_stream=lambda position: shuffled(tasks, seed=config.seed, position=position),
        **VARIANTS[config.variant][1],
    )
