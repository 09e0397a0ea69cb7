"""What ``build(config)`` has to return for a run to get through, as far as its first tasks show it.

Every function raises ValueError with one line that names what is wrong; see ``config_checks`` for the numbers.
"""

import math
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from rlagents.experiment import Config, Experiment
from rlagents.facts import Task
from rlagents.methods import specimen
from rlagents.methods.base import Role
from rlagents.problems import near_match
from rlagents.rollouts.collate import collate
from rlagents.rollouts.conditions import MemberMessages, Place, same_for_all
from rlagents.rollouts.conversation import Conversation
from rlagents.rollouts.episodes import ENVIRONMENT_ERRORS
from rlagents.sampling.keys import Domain, StreamKey


def check_tasks(config: Config, experiment: Experiment, *, trains: bool) -> None:
    """There is a first task to train on, and as many held-out ones as the evaluation takes."""
    last = config.evaluation.num_tasks - 1
    try:
        experiment.held_out[0]
    except (ValueError, LookupError, RuntimeError) as error:
        raise ValueError(f"held_out of build(config) has no first task ({error}); give it at least one.") from error
    try:
        experiment.held_out[last]
    except (ValueError, LookupError, RuntimeError) as error:
        raise ValueError(
            f"evaluation.num_tasks is {last + 1}, but held_out of build(config) has no task {last} ({error}); take "
            "fewer."
        ) from error
    if trains and (config.rl.steps or config.supervised.steps):
        streams = {"train_stream": lambda: experiment.train_stream(0)}
        if config.supervised.steps and experiment.supervised_stream is not None:
            streams["supervised_stream"] = experiment.demonstrated_tasks
        for name, stream in streams.items():
            try:
                stream()[0]
            except (ValueError, LookupError, RuntimeError) as error:
                raise ValueError(
                    f"{name} of build(config) has no first task ({error}); give it at least one."
                ) from error


def check_best_metric(config: Config, experiment: Experiment) -> None:
    """What the best checkpoints are chosen by is what an evaluation gives; which facts there are, only it shows."""
    wanted = config.checkpoint.get("best_metric", "success")
    if not config.checkpoint.get("keep_best") or wanted.startswith("named/"):
        return
    known = ["success", "tasks", "samples_per_task", "tasks_skipped"]
    if wanted.startswith("success/"):
        tasks = (experiment.held_out[index] for index in range(config.evaluation.num_tasks))
        known += sorted({f"success/{experiment.category(task)}" for task in tasks})
    if wanted not in known:
        raise ValueError(
            f"checkpoint.best_metric is {wanted!r}, which an evaluation does not give; it gives {', '.join(known)}, "
            f"success/CATEGORY and named/FACT.{near_match(wanted, known)}"
        )


def check_learning_rates(config: Config, experiment: Experiment) -> None:
    """Both optimizers have a rate that is a number and not negative, at the first, last and some updates between."""
    # Without steps there are no further keys.
    of_rl = config.rl.steps and config.rl.steps * config.rl.epochs * config.rl.updates_per_batch
    for name, optimizer, updates in (
        ("supervised_optimizer", experiment.supervised_optimizer, config.supervised.steps),
        ("optimizer", experiment.optimizer, of_rl),
    ):
        for update in np.unique(np.linspace(0, updates - 1, 9, dtype=int)) if updates else ():
            rate = float(np.asarray(optimizer.learning_rate(int(update))))
            if not 0 <= rate < math.inf:
                raise ValueError(
                    f"{name} of build(config) has the learning rate {rate:g} at update {update}; give a schedule of "
                    "numbers >= 0."
                )


def check_off_policy(config: Config, experiment: Experiment) -> None:
    """Where rollouts are sampled ahead, a stage of the method makes up for the older weights that sampled them.

    Such a stage compares with ``rollout``, the log-probs that the sampler recorded: a reshaper that needs ``old`` and
    ``rollout``, as those of ``methods.offpolicy`` do, or a surrogate that needs ``rollout``. A surrogate's ratio to
    ``old`` is none: ``old`` is of the weights that learn.
    """
    if not config.rl.rollouts_ahead:
        return
    method = experiment.method
    for stage in method.transform.stages:
        if stage.role is Role.RESHAPER and stage.needs >= {"old", "rollout"}:
            return
        if stage.role is Role.SURROGATE and "rollout" in stage.needs:
            return
    raise ValueError(
        "rl.rollouts_ahead is 1, so tokens are sampled with weights one version behind those that learn from them, but "
        f"no stage of the method ({', '.join(method.stage_names)}) makes up for it; add truncated_token_weights(2.0), "
        "or another stage of rlagents.methods.offpolicy, after the estimator, or set rl.rollouts_ahead=0."
    )


def check_group_size(config: Config, experiment: Experiment) -> None:
    """Groups of one teach something: not by a method that only compares the members of a group.

    Asked of what the method makes of two prompts, of which one member succeeds and the other fails. A method that wants
    facts which only its environment knows is taken at its word.
    """
    if config.rl.group_size > 1:
        return
    method = experiment.method
    try:
        logprobs, rewards, masks = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), specimen.batch())
        credit, _, _ = method.credit(method.init(), logprobs, rewards, masks)
    except (ValueError, KeyError, TypeError):
        return
    if not bool(jnp.any(credit.mask & credit.valid[..., None] & (credit.advantages != 0))):
        raise ValueError(
            f"rl.group_size is {config.rl.group_size}, and the method ({', '.join(method.stage_names)}) compares the "
            "members of a group: every advantage would be 0, and nothing learned; give rl.group_size >= 2."
        )


def check_demonstrations(config: Config, experiment: Experiment) -> None:
    """The first demonstration can be played, and fits the buckets of the warm-up; more of them, only it will show.

    A first task whose environment fails is left to the warm-up.
    """
    task = experiment.demonstrated_tasks()[0]
    try:
        trace = experiment.played(task, experiment.demonstrate(task, 0), stream=0)
    except ValueError as error:
        raise ValueError(f"demonstrate of build(config): {error}") from error
    except ENVIRONMENT_ERRORS:
        return
    try:
        collate([[trace]], pad_prompts_to=1, **config.trace_buckets)
    except (ValueError, MemoryError) as error:
        raise ValueError(f"trace_buckets: of the demonstration of task {task.id!r}, {error}") from error


def check_prompts(config: Config, experiment: Experiment, *, trains: bool) -> None:
    """Of the tasks of an evaluation, and of those of the first step, at least one has a prompt within its budget.

    Those that have not are skipped and counted; where all are, there is nothing to do. A task whose opening the
    environment cannot give is no reason to refuse.
    """
    held_out = (experiment.held_out[index] for index in range(config.evaluation.num_tasks))
    limit, size = config.evaluation.limits.max_prompt_tokens, config.evaluation.samples_per_task
    place = Place(StreamKey(Domain.EVALUATION, config.seed, step=0, stream=0), 0, size)
    said, messages = "evaluation.limits.max_prompt_tokens", experiment.evaluation_messages
    _check_one_fits(said, limit, experiment, held_out, messages, place)
    if trains and config.rl.steps:
        first = (task for _, task in experiment.train_stream(0).take(config.rl.prompts_per_step))
        place = Place(StreamKey(Domain.TRAIN, config.seed, step=0, stream=0), 0, config.rl.group_size)
        limit = config.limits.max_prompt_tokens
        _check_one_fits("limits.max_prompt_tokens", limit, experiment, first, experiment.member_messages, place)


def _check_one_fits(
    name: str, limit: int, experiment: Experiment, tasks: Iterable[Task], messages: MemberMessages, place: Place
) -> None:
    lengths = []
    for task in tasks:
        try:
            opening = experiment.environment.opening(task)
        except ENVIRONMENT_ERRORS:
            return
        shown, _ = messages(task, opening, place)
        length = Conversation(experiment.chat, shown, opening.tools).prompt_length
        if length <= limit:
            return
        lengths.append(length)
    raise ValueError(
        f"{name} is {limit}, and none of the first {len(lengths)} prompts fits: the shortest has {min(lengths)} "
        "tokens; give more."
    )


def check_member_messages(config: Config, experiment: Experiment, *, trains: bool) -> None:
    """What members are shown can be made for the first task: it has the message to append to, groups are large enough.

    A first task whose opening the environment cannot give is left to the rollout, which skips it.
    """
    held_out, seed = experiment.held_out[0], config.seed
    key = StreamKey(Domain.EVALUATION, seed, step=0, stream=0)
    size = config.evaluation.samples_per_task
    _check_messages("evaluation_messages", experiment.evaluation_messages, experiment, held_out, key, size)
    if trains and config.rl.steps:
        first = experiment.train_stream(0)[0]
        key = StreamKey(Domain.TRAIN, seed, step=0, stream=0)
        size = config.rl.group_size
        _check_messages("member_messages", experiment.member_messages, experiment, first, key, size)


def _check_messages(
    name: str, messages: MemberMessages, experiment: Experiment, task: Task, key: StreamKey, group_size: int
) -> None:
    if messages is same_for_all:
        return
    try:
        opening = experiment.environment.opening(task)
    except ENVIRONMENT_ERRORS:
        return
    for member in range(group_size):
        try:
            messages(task, opening, Place(key, member, group_size))
        except ValueError as error:
            raise ValueError(f"{name} of build(config): {error}") from error
