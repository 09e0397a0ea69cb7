"""The numbers of ``bfcl.py``: what each model and each stage asks for.

RC-GRPO (arXiv 2602.03025), Tables 10 to 12: stage 1 at a rate of 1e-5 and batches of 16, SFT 2 epochs of 720 rows, RCTP
5 epochs of 1,440; stage 2 at a rate of 1e-6, G = 5, clip 0.2, beta 0.1, 400 steps, a batch of 256 prompts for RC-GRPO
and 64 for GRPO. Temperature, lengths and mesh are not stated, and ours.
"""

from collections.abc import Callable

from ml_collections import ConfigDict, config_dict

from rlagents.experiment import Config


def smollm2_135m() -> Config:
    limits = {"max_turns": 6, "max_turn_tokens": 48, "max_response_tokens": 639, "max_prompt_tokens": 2432}
    return ConfigDict(
        {
            "seed": 0,
            "compilation_cache": "../compilation_cache",
            "weights": "",
            "data": "",
            "split_seed": 0,
            "categories": ("base",),
            "asking": "separate",
            "reward_tokens": "text",
            "goal_share": 0.5,
            "conditioned": False,
            "evaluation_goal": "none",
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
            "supervised": {
                "steps": 0,
                "traces": 64,
                "prompts_per_step": 4,
                "prompts_per_micro_batch": 1,
                "batches_per_window": 4,
                "learning_rate": 1e-5,
            },
            "trace_buckets": {
                "prefix_buckets": (1664, 2432),
                "member_buckets": (320, 640),
                "turn_buckets": (8, 16, 32, 64),
                "share_prefix": True,
            },
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


def on_pods() -> Config:
    """A model of 7 to 8 billion weights on 64 chips, weights and state over all of them."""
    config = smollm2_135m()
    limits = {"max_turns": 64, "max_turn_tokens": 512, "max_response_tokens": 8191, "max_prompt_tokens": 12_288}
    buckets = {
        "prefix_buckets": (4096, 8192, 12_288),
        "member_buckets": (1024, 2048, 4096, 8192),
        "turn_buckets": (16, 64),
    }
    config.update(
        {
            "categories": ("base", "miss_func", "miss_param", "long_context"),
            "asking": "merged",
            "mesh": {"data": 1, "fsdp": 16, "tensor": 4},
            "limits": limits,
            "workers": {"num_workers": 16},
            "buckets": buckets,
            "trace_buckets": buckets,
            "evaluation": {"num_tasks": 80, "samples_per_task": 1, "every_steps": 20, "limits": limits},
        }
    )
    config.sampler.update(
        {
            "num_groups": 64,
            "num_rows": 320,
            "decode_rows": 320,
            "max_member_tokens": 8192,
            "extend_rows": 64,
            "extend_chunk_tokens": 512,
            "prefill_groups": 16,
            "block_steps": 32,
            "blocks_in_flight": 2,
        }
    )
    config.rl.update(
        {
            "steps": 400,
            "prompts_per_step": 64,
            "group_size": 5,
            "prompts_per_micro_batch": 16,
            "members_per_micro_batch": 1,
            # Every process would have to know all lengths.
            "pack_micro_batches": False,
        }
    )
    config.supervised.update({"traces": 720, "prompts_per_step": 16, "prompts_per_micro_batch": 16})
    config.passes.update({"loss_chunk_tokens": 4096, "head_chunk_tokens": 4096, "layer_chunk_tokens": 0})
    config.checkpoint.update({"every_steps": 20, "keep_last": 2, "keep_best": 1})
    return config


MODELS: dict[str, Callable[[], Config]] = {
    "smollm2-135m": smollm2_135m,
    "qwen2.5-7b-instruct": on_pods,
    "llama-3.1-8b-instruct": on_pods,
}


def sft(config: Config, *, on_one_machine: bool) -> None:
    """Experts alone, with no goal: 2 epochs of 720 rows, in batches of 16."""
    config.supervised.steps = 3 if on_one_machine else 2 * 720 // 16
    config.rl.steps = 0
    _as_fine_tuned(config)


def rctp(config: Config, *, on_one_machine: bool) -> None:
    """Experts and failures, each with its goal: 5 epochs of 1,440 rows, in batches of 16."""
    config.supervised.steps = 3 if on_one_machine else 5 * 1440 // 16
    config.supervised.traces *= 2
    config.rl.steps = 0
    config.evaluation_goal = "high"
    config.conditioned = True
    _as_fine_tuned(config)


def grpo(config: Config, *, on_one_machine: bool) -> None:
    """Members of a group are asked for nothing."""
    del on_one_machine
    del config["trace_buckets"]
    config.supervised = ConfigDict({"steps": 0})


def rc_grpo(config: Config, *, on_one_machine: bool) -> None:
    """Each member is asked for a reward, drawn for it alone."""
    grpo(config, on_one_machine=on_one_machine)
    config.conditioned = True
    config.evaluation_goal = "high"
    if not on_one_machine:
        config.rl.prompts_per_step = 256


def _as_fine_tuned(config: Config) -> None:
    """All evaluations of stage 1 are of its end; nothing but the checkpoints is chosen by them."""
    config.checkpoint.keep_best = 0
    config.evaluation.every_steps = 0


STAGES: dict[str, Callable[..., None]] = {"grpo": grpo, "rc_grpo": rc_grpo, "sft": sft, "rctp": rctp}
