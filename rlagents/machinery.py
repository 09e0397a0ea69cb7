"""From a config and an experiment to what both programs run on: mesh, weights, sampler, tool workers, passes."""

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh

from rlagents import models, sharding
from rlagents.all_checks import check_experiment
from rlagents.data.streams import PromptStream
from rlagents.environments.base import Environment
from rlagents.evaluation import Evaluation, evaluate
from rlagents.experiment import MODULE_PREFIX, Config, Experiment
from rlagents.facts import Task
from rlagents.learner import Passes
from rlagents.model_passes import model_passes
from rlagents.problems import ConfigError
from rlagents.rollouts.collate import collate
from rlagents.rollouts.driver import Rollout, rollout
from rlagents.rollouts.dynamic_sampling import draw_size, sample_informative
from rlagents.rollouts.members import Limits, TurnSampler
from rlagents.rollouts.pool import Pool, ProcessPool
from rlagents.rollouts.trajectory import Trajectory
from rlagents.sampling import Sampler, SamplingRule
from rlagents.types import Batch, Params


@dataclass(frozen=True)
class RandomParams:
    """``make_params`` of an experiment that starts from scratch; see :func:`random_params`."""

    decoder: models.DecoderConfig

    def __call__(self, key: jax.Array, shardings: Any) -> Params:
        """Draw the weights from ``key``."""
        return jax.jit(partial(models.init_params, self.decoder), out_shardings=shardings)(key)


def random_params(decoder: models.DecoderConfig) -> Callable[[jax.Array, Any], Params]:
    """``make_params`` of an experiment that starts from random weights, each created in its sharding."""
    return RandomParams(decoder)


def abstract_params(decoder: models.DecoderConfig) -> Params:
    """Shapes and dtypes of a decoder's weights; nothing is allocated."""
    return jax.eval_shape(partial(models.init_params, decoder), jax.random.key(0))


@dataclass(frozen=True)
class Machinery:
    """Shared by training and evaluation. Make it with :func:`assemble`; ``close`` ends the tool workers."""

    config: Config
    experiment: Experiment
    mesh: Mesh
    param_shardings: Any
    limits: Limits
    evaluation_limits: Limits
    pool: Pool

    @property
    def max_prefix_tokens(self) -> int:
        """Room for a shared prefix in the sampler, for training and evaluation alike."""
        return max(self.limits.max_prompt_tokens, self.evaluation_limits.max_prompt_tokens)

    def make_params(self) -> Params:
        """First weights of the run: pretrained or drawn from the config's seed.

        Raises ConfigError where they are missing, damaged or another model's.
        """
        try:
            return self.experiment.make_params(jax.random.key(self.config.seed), self.param_shardings)
        except (ValueError, FileNotFoundError) as error:
            raise ConfigError([f"make_params of build(config): {error}"]) from error

    def make_sampler(self, params: Params, version: int = 0) -> Sampler:
        """A sampler with a copy of ``params``, shaped by ``config.sampler`` and ``config.rule``."""
        chat = self.experiment.chat
        return Sampler(
            self.experiment.decoder,
            params,
            decode_text=chat.decode_text,
            stop_token_ids=sorted(chat.stop_token_ids),
            stop_strings=tuple(self.experiment.environment.stop_strings),
            max_prefix_tokens=self.max_prefix_tokens,
            rule=SamplingRule(**self.config.rule),
            mesh=self.mesh,
            largest_group=max(self.config.rl.group_size, self.config.evaluation.samples_per_task),
            version=version,
            **self.config.sampler,
        )

    def passes(self, temperature: float, members_per_micro_batch: int | None = None) -> Passes:
        """The model as the learner sees it, at the temperature that was sampled with; run as ``config.passes`` says."""
        return model_passes(
            self.experiment.decoder,
            temperature,
            members_per_micro_batch=members_per_micro_batch,
            **self.config.passes,
        )

    def forced_prefix(self) -> Sequence[int]:
        """Tokens that every model turn is made to begin with."""
        return self.experiment.chat.encode(self.experiment.forced_prefix)

    def roll_out(self, sampler: TurnSampler, stream: PromptStream[Task], step: int) -> Rollout:
        """Groups for one step of training, of the next tasks of ``stream``.

        Raises ValueError if not a single task could be sampled.
        """
        options = self.config.rl
        roll_out = partial(
            rollout,
            sampler=sampler,
            chat=self.experiment.chat,
            pool=self.pool,
            group_size=options.group_size,
            limits=self.limits,
            run=self.config.seed,
            step=step,
            member_messages=self.experiment.member_messages,
            forced_prefix=self.forced_prefix(),
            wait_for_tools=self.config.rl.wait_for_tools,
        )
        return sample_informative(
            stream.take,
            roll_out,
            prompts_per_step=options.prompts_per_step,
            informative=self.experiment.informative,
            collate=partial(self.collate, num_prompts=draw_size(options.prompts_per_step, options.over_sample)),
            over_sample=options.over_sample,
            max_draws=options.max_draws,
            stop_early=options.stop_early,
        )

    def collate(self, groups: Sequence[Sequence[Trajectory]], *, num_prompts: int) -> Batch:
        """Groups of training tasks as a batch of ``num_prompts`` rows, in the config's buckets."""
        named = self.experiment.named
        return collate(groups, pad_prompts_to=num_prompts, named=named, **self.config.buckets)

    def held_out_tasks(self) -> list[Task]:
        """The first ``config.evaluation.num_tasks`` held-out tasks."""
        return [self.experiment.held_out[index] for index in range(self.config.evaluation.num_tasks)]

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Success on the held-out tasks with the sampler's weights."""
        return evaluate(
            self.held_out_tasks(),
            sampler=sampler,
            chat=self.experiment.chat,
            pool=self.pool,
            samples_per_task=self.config.evaluation.samples_per_task,
            limits=self.evaluation_limits,
            run=self.config.seed,
            category=self.experiment.category,
            member_messages=self.experiment.evaluation_messages,
            forced_prefix=self.forced_prefix(),
            wait_for_tools=self.config.rl.wait_for_tools,
        )

    def close(self) -> None:
        """End the tool workers."""
        self.pool.close()


def assemble(config: Config, experiment: Experiment, *, trains: bool = True) -> Machinery:
    """Check that config, mesh, model and environment fit each other, and start the tool workers.

    A trajectory has as many turns as its limits and the environment both allow. ``trains`` is False for a program that
    only evaluates: what training alone needs is then not checked.

    Raises ConfigError for a config or experiment that no run would get through, a mesh that the devices or the model
    do not fit among them (see ``all_checks``), and ValueError for an environment that tool workers cannot load.
    """
    checked, decoder = check_experiment(config, experiment, trains=trains), experiment.decoder
    return Machinery(
        config=config,
        experiment=experiment,
        mesh=checked.mesh,
        param_shardings=sharding.tree_shardings(models.logical_axes(decoder), abstract_params(decoder), checked.mesh),
        limits=checked.limits,
        evaluation_limits=checked.evaluation_limits,
        # Last: what is refused leaves no process behind.
        pool=_tool_workers(experiment.environment, config.workers),
    )


def _tool_workers(environment: Environment, options: Mapping[str, Any]) -> Pool:
    """Processes that hold the environment. Raises ValueError, in a line, where it cannot get there."""
    kind = type(environment)
    if kind.__module__.startswith(MODULE_PREFIX):
        raise ValueError(
            f"the environment's class {kind.__name__} is defined in the config file "
            f"{sys.modules[kind.__module__].__file__}, which tool workers cannot import; move the class to an "
            "importable module that does not import jax, and import it from there."
        )
    try:
        pickle.dumps(environment)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"the environment {kind.__name__} cannot be pickled for the tool workers ({error}); what it holds has to "
            "be data, and functions and classes of importable modules."
        ) from error
    try:
        return ProcessPool(environment, **options)
    except RuntimeError as error:
        # The worker's traceback: its first line says what could not be done, its last line why.
        first, *others = str(error).strip().splitlines()
        raise ValueError(" ".join([first, *others[-1:]])) from error
