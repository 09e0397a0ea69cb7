"""The smallest run that does all that a run does: a decoder of 9,000 weights in ``tests.smallest_world``."""

import contextlib
import dataclasses
import functools
from unittest import mock

import jax
import optax
from ml_collections import ConfigDict, config_dict

from rlagents import learner, models, sharding, train
from rlagents.data.streams import endless
from rlagents.data.tokenizers import word_tokenizer
from rlagents.experiment import Config, Experiment
from rlagents.facts import Task
from rlagents.machinery import assemble, random_params
from rlagents.methods import centered_advantage, chain, clipped_surrogate, method, token_mean
from rlagents.rollouts.chat import Chat
from rlagents.timing import PhaseTimer
from rlagents.workdir import claim_workdir
from tests.smallest_world import Parity

LIMITS = {"max_turns": 2, "max_turn_tokens": 8, "max_response_tokens": 31, "max_prompt_tokens": 16}


class Numbers:
    def __getitem__(self, index: int) -> Task:
        return Task(str(index))


def get_config() -> ConfigDict:
    return ConfigDict(
        {
            "seed": 0,
            "compilation_cache": "",
            "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
            "limits": dict(LIMITS),
            "workers": {"num_workers": 1},
            "rule": {"temperature": 1.0},
            "sampler": {
                "num_groups": 2,
                "num_rows": 8,
                "decode_rows": 8,
                "max_member_tokens": 32,
                "extend_rows": 8,
                "extend_chunk_tokens": 8,
                "prefill_groups": 2,
                "block_steps": 8,
                "blocks_in_flight": 1,
            },
            "supervised": {"steps": 0},
            "rl": {
                "steps": 5,
                "prompts_per_step": 2,
                "group_size": 4,
                "prompts_per_micro_batch": 2,
                "members_per_micro_batch": config_dict.placeholder(object),
                "updates_per_batch": 1,
                "epochs": 2,
                "pack_micro_batches": False,
                "reuse_policy_as_old": True,
                "over_sample": 1.0,
                "max_draws": 1,
                "stop_early": False,
                "rollouts_ahead": 0,
                "wait_for_tools": True,
                "learning_rate": 1e-3,
            },
            "passes": {},
            "buckets": {"prefix_buckets": (16,), "member_buckets": (32,), "turn_buckets": (2,), "share_prefix": True},
            "evaluation": {"num_tasks": 2, "samples_per_task": 1, "every_steps": 0, "limits": dict(LIMITS)},
            "checkpoint": {"every_steps": 1000, "keep_last": 1},
            "alarms": {},
            "logging": {},
            "trajectories": {},
            "watchdog": {},
        }
    )


def build(config: Config) -> Experiment:
    tokenizer = word_tokenizer((), max_words=0)
    decoder = models.DecoderConfig(
        vocab_size=len(tokenizer), embed_dim=16, mlp_dim=32, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=8
    )
    optimizer = learner.from_optax(
        optax.adam(config.rl.learning_rate), optax.constant_schedule(config.rl.learning_rate)
    )
    return Experiment(
        decoder=decoder,
        make_params=random_params(decoder),
        chat=Chat(tokenizer, tokenizer.chat_template),
        environment=Parity(),
        demonstrate=lambda task, step: [],
        train_stream=lambda position: endless(Numbers(), position=position),
        held_out=Numbers(),
        method=method(chain(centered_advantage(), clipped_surrogate(0.2, 0.2)), token_mean()),
        supervised_optimizer=optimizer,
        optimizer=optimizer,
        category=lambda task: "all",
    )


@contextlib.contextmanager
def machinery_of(config, **changes):
    """On one device, however many the tests run on."""
    one = functools.partial(sharding.make_mesh, devices=jax.devices()[:1])
    with mock.patch.object(sharding, "make_mesh", one):
        machinery = assemble(config, dataclasses.replace(build(config), **changes))
    try:
        yield machinery
    finally:
        machinery.close()


def run(config, workdir, **changes):
    """Train; ``changes`` are of the experiment."""
    claim_workdir(workdir, config)
    with machinery_of(config, **changes) as machinery:
        train.train(machinery, workdir, PhaseTimer())
