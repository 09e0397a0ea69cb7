"""What every key of a config means, and in which unit: the one table behind ``--config.help``.

A config file may have keys of its own; it says what they mean in a dict ``MEANINGS`` of the same form.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Meaning(NamedTuple):
    """``unit`` is "" where a value is a name, a switch or a list of names."""

    unit: str
    text: str


def in_section(section: str, keys: Mapping[str, tuple[str, str]]) -> dict[str, Meaning]:
    """Meanings of ``section.key`` from ``key -> (unit, text)``; of ``key`` itself where ``section`` is ""."""
    return {f"{section}.{key}" if section else key: Meaning(*said) for key, said in keys.items()}


_LIMITS = {
    "max_turns": (
        "model turns",
        "A trajectory that is not over after them is truncated; the environment may allow less.",
    ),
    "max_turn_tokens": ("tokens", "Of one model turn; a turn that reaches them is not executed, and truncates."),
    "max_response_tokens": ("tokens", "All that follows the prompt, observations and forced tokens included."),
    "max_prompt_tokens": ("tokens", "A task whose opening is longer is skipped, counted and reported."),
}

_BUCKETS = {
    "prefix_buckets": ("tokens", "Lengths that a group's shared prefix is padded to; each is compiled for."),
    "member_buckets": ("tokens", "Lengths that a member's own tokens are padded to; each is compiled for."),
    "turn_buckets": ("model turns", "Numbers of turns that the facts of turns are padded to."),
    "share_prefix": ("", "Compute what the prompts of a group share once; off, every member has its whole prompt."),
}

MEANINGS: dict[str, Meaning] = {
    **in_section(
        "",
        {
            "seed": ("", "Whole number in [0, 2**32) that all randomness of the run follows from."),
            "compilation_cache": ("folder", "Keeps compiled programs; relative to the run's folder, '' keeps none."),
        },
    ),
    **in_section(
        "experiment",
        {
            "file": ("path", "Config file that builds the experiment; the program notes it, no config file has it."),
            "argument": ("", "What followed ':' in --config and went to get_config(); None for nothing."),
        },
    ),
    **in_section(
        "mesh",
        {
            "data": ("devices", "Parts that the prompts of a batch are split over, each with all weights."),
            "fsdp": (
                "devices",
                "Parts that prompts and weights are split over; weights are gathered as they are used.",
            ),
            "tensor": ("devices", "Parts that heads, MLP and vocabulary are split over."),
        },
    ),
    **in_section("limits", _LIMITS),
    **in_section("evaluation.limits", _LIMITS),
    **in_section(
        "workers",
        {
            "num_workers": ("processes", "Tool workers; each runs one request at a time."),
            "step_timeout_seconds": ("s", "Time for one step of an environment; beyond it the worker is replaced."),
            "call_timeout_seconds": ("s", "Time for any other call: opening, start, finish, score."),
            "worker_memory_bytes": ("bytes", "Memory of one worker and its children, a hard bound."),
            "max_reply_bytes": ("bytes", "An answer of a worker that is longer is a flood."),
            "max_retries": ("retries", "Of a call whose remote tool is away; after them the trajectory is lost."),
            "retry_seconds": ("s", "Wait before the first retry; each later one waits twice as long, up to a minute."),
        },
    ),
    **in_section(
        "rule",
        {
            "temperature": ("", "Divides logits when sampling; 0, the most likely token, is for evaluation alone."),
            "top_k": ("tokens", "Sample from the k most likely tokens only; None keeps all."),
            "top_p": ("probability", "Sample from the smallest set of tokens that reaches it; None keeps all."),
        },
    ),
    **in_section(
        "sampler",
        {
            "num_groups": ("groups", "Open at once; each holds one shared prefix."),
            "num_rows": ("members", "Open at once, those that wait for tools included."),
            "decode_rows": ("members", "Decoded at once."),
            "max_member_tokens": ("tokens", "Room for a member's own tokens: prompt tail, observations, model turns."),
            "extend_rows": ("members", "Fed with given tokens at once; None is up to 16."),
            "extend_chunk_tokens": ("tokens", "Given tokens fed to a member at once."),
            "prefill_groups": ("groups", "Prefixes computed at once."),
            "block_steps": ("tokens", "Decoded between two looks of the host."),
            "blocks_in_flight": ("blocks", "2 decodes on while the host reads the block before, 1 waits."),
            "few_query_attention": ("", "Decoding multiplies keys by queries, not queries by keys."),
            "share_prefix": (
                "",
                "Hold what the prompts of a group share once; off, every member holds its whole prompt.",
            ),
        },
    ),
    **in_section(
        "supervised",
        {
            "steps": ("steps", "Of the warm-up on demonstrations; 0 has none."),
            "traces": ("demonstrations", "Different ones that the warm-up learns from."),
            "prompts_per_step": ("demonstrations", "Learned from in one step."),
            "prompts_per_micro_batch": ("demonstrations", "Computed at once; divides prompts_per_step."),
            "batches_per_window": ("batches", "So many batches are sorted by length together, to pad less."),
        },
    ),
    **in_section("trace_buckets", _BUCKETS),
    **in_section(
        "rl",
        {
            "steps": ("steps", "Rollout batches that are learned from; 0 has no reinforced phase."),
            "prompts_per_step": ("groups", "In one rollout batch."),
            "group_size": ("members", "Trajectories sampled for each prompt."),
            "prompts_per_micro_batch": (
                "groups",
                "Whose gradient is computed at once; divides the prompts of an update.",
            ),
            "members_per_micro_batch": ("members", "Of a group at once, where a group is too large; None is all."),
            "updates_per_batch": ("updates", "Optimizer updates that share out the prompts of one rollout batch."),
            "epochs": ("epochs", "Times that a rollout batch is learned from."),
            "pack_micro_batches": ("", "Micro-batches of prompts of like length, each padded to its own bucket."),
            "over_sample": ("", "Tasks of a draw, as a multiple of prompts_per_step; >= 1."),
            "reuse_policy_as_old": ("", "A batch's first update takes old log-probabilities from its own pass."),
            "max_draws": ("draws", "At most so many, to find enough informative groups."),
            "stop_early": ("", "Groups that cannot be kept any more give their rows back at once."),
            "rollouts_ahead": (
                "batches",
                "1 samples the next batch while the update runs, with weights one version old.",
            ),
            "wait_for_tools": (
                "",
                "Decode only when all tools have answered: equal to the last bit whatever their time.",
            ),
        },
    ),
    **in_section(
        "passes",
        {
            "loss_chunk_tokens": ("tokens", "Whose loss is taken while their logits are there; 0 is all at once."),
            "head_chunk_tokens": ("tokens", "Whose logits exist at once; 0 is all."),
            "layer_chunk_tokens": ("tokens", "That pass a layer at once; 0 is all."),
            "attention_chunk_logits": ("logits", "Of attention that exist at once; 0 is all."),
            "attention_parts": ("parts", "Of a row's positions, each meeting the keys up to its own end; 0 is one."),
            "activation_gigabytes": ("GB", "What a device may keep of layers instead of computing it again."),
        },
    ),
    **in_section("buckets", _BUCKETS),
    **in_section(
        "evaluation",
        {
            "num_tasks": ("tasks", "The first so many held-out tasks."),
            "samples_per_task": ("trajectories", "Sampled of each."),
            "every_steps": ("steps", "Between two evaluations; 0 evaluates before and after RL alone."),
        },
    ),
    **in_section(
        "trajectories",
        {
            "every_steps": ("steps", "A step in so many is logged token by token, from the first on; 0 logs none."),
            "groups": ("groups", "Of a logged step, the first in stream order."),
            "max_megabytes": ("MB", "Of one file of trajectories; then the next is begun."),
        },
    ),
    **in_section(
        "checkpoint",
        {
            "every_steps": ("steps", "Between two checkpoints of either phase; the last step has one anyway."),
            "keep_last": ("checkpoints", "The newest so many are kept."),
            "keep_best": ("checkpoints", "Besides, the best so many of those whose step was evaluated."),
            "best_metric": ("", "What the best are chosen by: a name in evaluations.jsonl; higher is better."),
            "restore_from": (
                "folder",
                "Of a run, its checkpoints or one of them: begin with its weights; '' begins with the experiment's.",
            ),
        },
    ),
    **in_section(
        "alarms",
        {
            "stop": ("names", "Alarms that stop the run, with a last checkpoint and exit code 3; the others are told."),
            "max_policy_ratio": ("", "Of ratio_exploded: largest policy/old of a trained token."),
            "max_rollout_kl": ("nats", "Of kl_exploded: divergence a token of the policy from what sampled."),
            "max_gradient_norm": ("", "Of gradient_norm_exploded: norm before clipping."),
            "max_gradient_norm_growth": ("", "Of gradient_norm_exploded: multiple of the norm's running median."),
            "gradient_norm_floor": ("", "No norm below it is an explosion, whatever the median."),
            "min_entropy": ("nats", "Of entropy_collapsed: least mean entropy of trained tokens."),
            "max_garbled_turns": ("share", "Of format_collapsed: model turns that cannot be read, or were cut."),
            "max_lost_trajectories": ("share", "Of tool_faults: trajectories lost to faults of the infrastructure."),
            "equal_rewards_steps": ("steps", "Of rewards_all_equal: in a row, with equal rewards in every group."),
            "patience": ("steps", "In a row, that entropy, garbled turns and lost trajectories stay beyond a bound."),
        },
    ),
    **in_section(
        "logging",
        {
            "tensorboard": ("", "Write event files for TensorBoard into the run's folder tensorboard/."),
            "wandb": ("project", "Of Weights & Biases to log to; '' logs without it."),
            "max_megabytes": ("2**20 bytes", "Of a file of JSON lines, before the next is begun."),
        },
    ),
    **in_section(
        "watchdog",
        {
            "stalled_after_seconds": (
                "s",
                "Without a phase that begins or ends, after which the run says where it stands; 0 never.",
            ),
        },
    ),
}
