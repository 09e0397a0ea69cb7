"""All that is refused before a run starts, in two looks: at the config alone, and at what ``build(config)`` made of it.

The first look builds and allocates nothing, so weights that take minutes to load are not loaded for a config that is
refused. Each look tells all that it finds at once.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from jax.sharding import Mesh

from rlagents import config_checks, config_sections, experiment_checks, section_checks, sharding
from rlagents.environments.base import Environment
from rlagents.experiment import Config, Experiment
from rlagents.problems import Problems
from rlagents.rollouts.members import Limits


@dataclass(frozen=True)
class Checked:
    """What the checks made on their way.

    Attributes:
      mesh: as ``config.mesh`` says.
      limits, evaluation_limits: as the config and the environment allow them.
    """

    mesh: Mesh
    limits: Limits
    evaluation_limits: Limits


def check_config(config: Config, *, trains: bool) -> Mesh:
    """Look at the config alone; the mesh that it asks for.

    ``trains`` is False for a program that only evaluates: what training alone needs is then not checked. Raises
    ConfigError with all that was found.
    """
    problems = Problems()
    for check in (config_sections.check_sections, config_checks.check_counts, section_checks.check_passes):
        problems.ask(check, config)
    problems.ask(section_checks.check_rule, config, trains=trains)
    for check in (section_checks.check_workers, section_checks.check_checkpoint, section_checks.check_watching):
        problems.ask(check, config)
    mesh = None if problems.about("mesh") else problems.ask(lambda: sharding.make_mesh(**config.mesh))
    shards = 1 if mesh is None else sharding.prompt_shards(mesh)
    problems.ask(section_checks.check_sampler, config, shards, trains=trains)
    if trains:
        problems.ask(config_checks.check_division, config, shards)
        if config_sections.found(config, "supervised.steps"):
            problems.ask(config_checks.check_trace_buckets, config)
        if config_sections.found(config, "rl.steps") and not problems.about("limits", "sampler"):
            problems.ask(_check_buckets_but_turns, config)
    for name, value in config_sections.leaves(config).items():
        if not problems.about(name):
            problems.ask(config_checks.check_representable, name, value)
    problems.refuse()
    assert mesh is not None
    return mesh


def check_experiment(config: Config, experiment: Experiment, *, trains: bool) -> Checked:
    """Look at the config, and then at it and the experiment together.

    Raises ConfigError with all that was found.
    """
    mesh, problems = check_config(config, trains=trains), Problems()
    limits = problems.ask(limits_within, "limits", config.limits, experiment.environment)
    evaluation = problems.ask(limits_within, "evaluation.limits", config.evaluation.limits, experiment.environment)
    decoder = experiment.decoder
    sizes = {
        "heads": decoder.num_heads,
        "kv_heads": decoder.num_kv_heads,
        "embed": decoder.embed_dim,
        "mlp": decoder.mlp_dim,
        "vocab": decoder.vocab_rows,
    }
    problems.ask(sharding.check_sizes, sizes, mesh)
    longest = max(config.limits.max_prompt_tokens, config.evaluation.limits.max_prompt_tokens)
    problems.ask(section_checks.check_sampler_memory, config, decoder, mesh, longest)
    if trains and config.rl.steps:
        if limits is not None:
            problems.ask(config_checks.check_buckets, config, limits)
        problems.ask(experiment_checks.check_off_policy, config, experiment)
        problems.ask(experiment_checks.check_group_size, config, experiment)
    if trains:
        problems.ask(experiment_checks.check_learning_rates, config, experiment)
    problems.ask(experiment_checks.check_tasks, config, experiment, trains=trains)
    problems.ask(experiment_checks.check_best_metric, config, experiment)
    if not problems.lines:
        if trains and config.supervised.steps:
            problems.ask(experiment_checks.check_demonstrations, config, experiment)
        problems.ask(experiment_checks.check_member_messages, config, experiment, trains=trains)
    if not problems.lines:
        problems.ask(experiment_checks.check_prompts, config, experiment, trains=trains)
    problems.refuse()
    assert limits is not None
    assert evaluation is not None
    return Checked(mesh, limits, evaluation)


def limits_within(name: str, section: Mapping[str, int], environment: Environment) -> Limits:
    """Limits as a section says, with no more turns than the environment takes. Raises ValueError that names it."""
    try:
        limits = Limits(**section)
        return dataclasses.replace(limits, max_turns=min(limits.max_turns, environment.max_turns))
    except (ValueError, TypeError) as error:  # TypeError: a value that is no number
        raise ValueError(f"{name}: {error}") from error


def _check_buckets_but_turns(config: Config) -> None:
    """The environment may take fewer turns than the config allows, so that a bucket for fewer will do."""
    config_checks.check_buckets(config, dataclasses.replace(Limits(**config.limits), max_turns=1))
