"""Every metric that a run writes: its name, unit and meaning. The table of this folder's README is printed from here.

    python -m rlagents.metrics.names

A name in angle brackets stands for any text. A stage of a method inside ``named_chain`` has its part's name before its
own: ``inner/clip_fraction``.
"""

import re
from typing import NamedTuple


class MetricName(NamedTuple):
    """What is said of one name, or of all names of a form."""

    name: str
    unit: str
    meaning: str


def describes(entry: MetricName, name: str, before: str = "") -> bool:
    """Whether ``name`` is of the form of ``entry``, after what the regular expression ``before`` matches."""
    return re.fullmatch(before + re.sub(r"<\w+>", ".+", re.escape(entry.name)), name) is not None


STEP = (
    MetricName("reward", "", "mean over valid trajectories of the batch that is learned from"),
    MetricName("uniform_groups", "share", "of groups (of two valid members at least) all of whose rewards are equal"),
    MetricName("garbled_turns", "share", "of model turns with neither a readable call nor an answer, or cut"),
    MetricName("turns", "model turns", "mean over valid trajectories"),
    MetricName("tokens_sampled", "tokens", "MODEL tokens of the batch"),
    MetricName("tokens_per_second", "tokens/s", "`tokens_sampled` over `seconds`"),
    MetricName("padding_fraction", "share", "of positions of the padded batch that hold no token"),
    MetricName("padding_fraction_packed", "share", "of positions that packed micro-batches computed for no token"),
    MetricName("tasks_skipped", "tasks", "left out: opening lost, or prompt longer than the budget"),
    MetricName("seconds", "s", "of the step, from its rollout to its published weights, log included"),
    MetricName("seconds/<phase>", "s", "in a phase since the line before, evaluations and checkpoints included"),
    MetricName("loss", "", "mean over the step's updates"),
    MetricName("gradient_norm", "", "global norm before clipping, mean over updates"),
    MetricName("learning_rate", "", "of the last update"),
    MetricName("updates_applied", "updates", "that moved the weights"),
    MetricName("updates_empty", "updates", "that no token carried weight in"),
    MetricName("updates_skipped_total", "updates", "since the start: empty, or not finite"),
    MetricName("tokens_trained", "tokens", "in the loss, over all updates"),
    MetricName("tokens_model", "tokens", "MODEL tokens of valid trajectories, over all updates"),
    MetricName("tokens_total", "tokens", "prefixes once and members' own, over all updates"),
    MetricName("entropy", "nats", "of the policy, mean over trained tokens"),
    MetricName("policy_ratio_max", "", "largest policy/old of any trained token; 1 in a batch's first update"),
    MetricName("rollout_kl", "nats", "k3 estimate a token of the policy's divergence from what sampled"),
    MetricName("rollout_gap", "nats", "mean distance of the policy's log-probability to the sampler's"),
    MetricName("outcome", "", "mean reward of valid members, as the environment said it"),
    MetricName("members_kept", "share", "of valid members that filters left"),
    MetricName("tokens_kept", "share", "of trainable tokens that filters left"),
)
"""A line of ``metrics.jsonl``."""

ROLLOUT = (
    MetricName("rollout/versions_behind", "batches", "age of the weights that sampled, mean over tokens"),
    MetricName("rollout/draws", "draws", "of tasks until enough groups were informative"),
    MetricName("rollout/groups_sampled", "groups", "that were finished"),
    MetricName("rollout/groups_kept", "groups", "that are learned from"),
    MetricName("rollout/groups_stopped", "groups", "that could not be kept any more and were given up"),
    MetricName("rollout/uninformative/<predicate>", "groups", "that a filter of the method would empty"),
    MetricName("rollout/trajectories", "trajectories", "of finished groups"),
    MetricName("rollout/trajectories_truncated", "trajectories", "ended by a budget or the limit of turns"),
    MetricName("rollout/trajectories_lost", "trajectories", "lost to a fault of the infrastructure, never scored"),
    MetricName("rollout/openings_lost", "tasks", "skipped, since no worker could open them"),
    MetricName("rollout/prompts_too_long", "tasks", "skipped, since the opening is longer than the budget"),
    MetricName("rollout/model_turns", "model turns", "sampled"),
    MetricName("rollout/turns_cut", "model turns", "that reached a budget and were not executed"),
    MetricName("rollout/turn_limit_reached", "trajectories", "not over after the last turn they may have"),
    MetricName("rollout/observations_dropped", "observations", "that left no room for another turn"),
    MetricName("rollout/tool_raised", "steps", "answered with an error: the environment raised"),
    MetricName("rollout/tool_timed_out", "steps", "answered with an error: no answer in time"),
    MetricName("rollout/tool_died", "steps", "answered with an error: the worker died"),
    MetricName("rollout/tool_flooded", "steps", "answered with an error: too long an answer"),
    MetricName("rollout/tool_out_of_memory", "steps", "answered with an error: the worker had no memory left"),
    MetricName("rollout/tool_malformed", "steps", "answered with an error: no observation"),
    MetricName("rollout/calls_retried", "calls", "of a remote tool that failed for a time, asked again"),
    MetricName("rollout/workers_leaked", "processes", "tool workers replaced since they held too much"),
    MetricName("rollout/servers_restarted", "processes", "that fork tool workers, started again"),
    MetricName("rollout/workers_replaced", "processes", "tool workers started in place of lost ones"),
    MetricName("rollout/episodes_rebuilt", "episodes", "played again in another worker"),
)
"""Counts of a step's rollout; 0 where a line does not have them."""

STAGES = (
    MetricName("reward_mean", "", "of shaped rewards, mean over valid members"),
    MetricName("reward_std", "", "within a group, mean over groups"),
    MetricName("zero_variance_groups", "share", "of groups whose shaped rewards are all equal"),
    MetricName("zero_variance_conditions", "share", "of members whose rewards under one condition are all equal"),
    MetricName("advantage_spread", "", "largest less smallest advantage of a group, mean over groups"),
    MetricName("turn_return", "", "mean over turns of the return that they are credited with"),
    MetricName("dropped/<predicate>", "share", "of valid members left out of loss and statistics"),
    MetricName("muted/<predicate>", "share", "of valid members left out of the loss"),
    MetricName("overlong_penalty", "", "mean over valid members"),
    MetricName("well_formed", "share", "of valid members that earn their reward"),
    MetricName("turn_reward", "", "sum of turn scores, mean over valid members"),
    MetricName("kl_in_reward", "nats", "sum of log(old/reference), mean over valid members"),
    MetricName("softened", "", "mean score over tokens whose negative advantage it softens"),
    MetricName("answer_balance", "", "factor on the advantages of answers, mean over groups"),
    MetricName("answers_of_one_sign", "share", "of groups with nothing to balance"),
    MetricName("bonus_tokens", "share", "of trained tokens with an entropy bonus"),
    MetricName("live_bonus_tokens", "share", "of trained tokens with a differentiated entropy bonus"),
    MetricName("rollout_weight", "", "importance weight of old against the sampler, mean over trained tokens"),
    MetricName("rollout_weights_limited", "share", "of trained tokens whose weight is beyond the limit"),
    MetricName("ratio", "", "policy/old, mean over trained tokens"),
    MetricName("sequence_ratio", "", "geometric mean of a trajectory's ratios, mean over trajectories"),
    MetricName("clip_fraction", "share", "of trained tokens where a bound of the surrogate binds"),
    MetricName("kl", "nats", "the penalty's estimate of the divergence from the reference, mean over trained tokens"),
    MetricName("kl_coefficient", "", "of an adaptive penalty"),
    MetricName("likelihood_drop", "nats", "fall of the likelihood, mean over tokens that should not have fallen"),
)
"""What the stages of a method report, in ``metrics.jsonl``."""

CONDITIONS = (
    MetricName(
        "reward_low", "", "mean over members asked for a low reward; the share of successes where rewards are 0 and 1"
    ),
    MetricName("reward_high", "", "mean over members asked for a high reward"),
    MetricName("reward_gap", "", "`reward_high` less `reward_low`"),
    MetricName("mixed_groups", "groups", "with two members or more of each condition"),
    MetricName("mixed_variance", "", "of rewards within these, mean over them"),
    MetricName("mixed_variance_bound", "", "p (1 - p) gap^2 of these, unbiased: RC-GRPO, Proposition 4.3"),
    MetricName("identical_groups", "share", "of groups of one condition whose members are all one trajectory"),
    MetricName("peaked_groups", "groups", "of one condition, of which Proposition 4.2 says something"),
    MetricName("peaked_identical", "share", "of these, whose members are all one trajectory"),
    MetricName("peaked_identical_bound", "probability", "that they are, at least: Proposition 4.2, mean over them"),
)
"""What :func:`rlagents.conditioning.conditioning` says of a step, in ``metrics.jsonl``; missing where of nothing."""

ALARMS = (
    MetricName("alarms", "alarms", "that are on"),
    MetricName("alarms/<alarm>", "", "1 while the alarm is on, 0 else"),
)
"""In ``metrics.jsonl``."""

EVALUATION = (
    MetricName("success", "", "mean reward over held-out tasks of the mean over their samples"),
    MetricName("success/<category>", "", "the same over the tasks of a category"),
    MetricName("success_low", "", "lower end of the 95% interval (Wilson) of `success`, where rewards are in [0, 1]"),
    MetricName("success_high", "", "its upper end"),
    MetricName("success_low/<category>", "", "the same over the tasks of a category"),
    MetricName("success_high/<category>", "", "its upper end"),
    MetricName("named/<fact>", "", "what the environment says beside the reward, mean over tasks"),
    MetricName("tasks", "tasks", "counted"),
    MetricName("samples_per_task", "trajectories", "of each"),
    MetricName("tasks_skipped", "tasks", "left out"),
    MetricName("seconds", "s", "of the evaluation"),
    MetricName("seconds_since_start", "s", "of all processes of the run, what was done again counted once"),
)
"""A line of ``evaluations.jsonl``."""

_WARM_UP_OWN = (
    MetricName("loss", "nats", "negative log-likelihood, mean over demonstrated tokens"),
    MetricName("seconds", "s", "since the line before, or the start: compilation and checkpoints included"),
)

WARM_UP = _WARM_UP_OWN + tuple(
    entry
    for entry in STEP
    if entry.name in ("gradient_norm", "learning_rate", "entropy") or entry.name.startswith(("updates_", "tok"))
    if entry.name not in ("tokens_sampled", "tokens_per_second")
)
"""A line of ``warm_up.jsonl``, whose updates are one a step."""

_FILES = {
    "metrics.jsonl": ((STEP, ""), (ROLLOUT, ""), (STAGES, r"(.+/)?"), (CONDITIONS, ""), (ALARMS, "")),
    "evaluations.jsonl": ((EVALUATION, ""),),
    "warm_up.jsonl": ((WARM_UP, ""),),
}


def unknown(file: str, names: set[str]) -> list[str]:
    """Return those of ``names``, of the lines of ``file``, that no entry describes. ``step`` is no metric."""
    forms = [(entry, before) for entries, before in _FILES[file] for entry in entries]
    return sorted(name for name in names - {"step"} if not any(describes(entry, name, to) for entry, to in forms))


def table() -> str:
    """Return all entries in markdown, a part after the other."""
    parts = (
        ("`metrics.jsonl`, a line a step", STEP + ALARMS),
        ("the same, of the rollout (0 where it is missing)", ROLLOUT),
        ("the same, of the method's stages", STAGES),
        ("the same, of rewards that are asked for", CONDITIONS),
        ("`evaluations.jsonl`, a line an evaluation", EVALUATION),
        ("`warm_up.jsonl`, a line a step: of `metrics.jsonl` what learning reports, and", _WARM_UP_OWN),
    )
    lines = ["| metric | unit | meaning |", "| --- | --- | --- |"]
    for title, entries in parts:
        lines.append(f"| **{title}** | | |")
        lines += [f"| `{entry.name}` | {entry.unit} | {entry.meaning} |" for entry in entries]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
