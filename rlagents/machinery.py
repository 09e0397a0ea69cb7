"""From a config and an experiment to what both programs run on: mesh, weights, sampler, tool workers, passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh

from rlagents import models, sharding
from rlagents.evaluation import Evaluation, evaluate
from rlagents.experiment import Config, Experiment
from rlagents.facts import Task
from rlagents.learner import Passes, member_slices, whole_groups
from rlagents.rollouts.driver import Rollout, StreamTask, rollout
from rlagents.rollouts.members import Limits
from rlagents.rollouts.pool import Pool, ProcessPool
from rlagents.sampling import Sampler, SamplingRule
from rlagents.types import Params


def random_params(decoder: models.DecoderConfig) -> Callable[[jax.Array, Any], Params]:
    """``make_params`` of an experiment that starts from random weights, each created in its sharding."""
    return lambda key, shardings: jax.jit(partial(models.init_params, decoder), out_shardings=shardings)(key)


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

    def make_params(self) -> Params:
        """First weights of the run: pretrained or drawn from the config's seed."""
        return self.experiment.make_params(jax.random.key(self.config.seed), self.param_shardings)

    def make_sampler(self, params: Params) -> Sampler:
        """A sampler with a copy of ``params``, shaped by ``config.sampler`` and ``config.rule``."""
        chat = self.experiment.chat
        return Sampler(
            self.experiment.decoder,
            params,
            decode_text=chat.decode_text,
            stop_token_ids=sorted(chat.stop_token_ids),
            stop_strings=tuple(self.experiment.environment.stop_strings),
            max_prefix_tokens=max(self.limits.max_prompt_tokens, self.evaluation_limits.max_prompt_tokens),
            rule=SamplingRule(**self.config.rule),
            mesh=self.mesh,
            largest_group=max(self.config.rl.group_size, self.config.evaluation.samples_per_task),
            **self.config.sampler,
        )

    def passes(self, temperature: float, members_per_micro_batch: int | None = None) -> Passes:
        """The model as the learner sees it, at the temperature that was sampled with: whole groups, or slices."""
        decoder, remat_policy = self.experiment.decoder, self.experiment.remat_policy
        if members_per_micro_batch is None:
            return whole_groups(
                lambda params, batch: models.token_log_probs(
                    decoder, params, batch, temperature, remat_policy=remat_policy
                )
            )
        return member_slices(
            partial(models.prefix_kv, decoder, remat_policy=remat_policy),
            lambda params, kv, batch: models.member_log_probs(
                decoder, params, kv, batch, temperature, remat_policy=remat_policy
            ),
            members=members_per_micro_batch,
        )

    def forced_prefix(self) -> Sequence[int]:
        """Tokens that every model turn is made to begin with."""
        return self.experiment.chat.encode(self.experiment.forced_prefix)

    def roll_out(self, sampler: Sampler, tasks: Sequence[tuple[int, Task]], step: int) -> Rollout:
        """Groups for one step of training. Raises ValueError if not a single task could be sampled."""
        sampled = rollout(
            [StreamTask(*task) for task in tasks],
            sampler=sampler,
            chat=self.experiment.chat,
            pool=self.pool,
            group_size=self.config.rl.group_size,
            limits=self.limits,
            run=self.config.seed,
            step=step,
            member_messages=self.experiment.member_messages,
            forced_prefix=self.forced_prefix(),
        )
        if not sampled.groups:
            raise ValueError(
                f"all {len(tasks)} tasks of step {step} were skipped; the first: {sampled.skipped[0].reason}"
            )
        return sampled

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
            member_messages=self.experiment.member_messages,
            forced_prefix=self.forced_prefix(),
        )

    def close(self) -> None:
        """End the tool workers."""
        self.pool.close()


def assemble(config: Config, experiment: Experiment) -> Machinery:
    """Check that mesh and model fit each other, and start the tool workers.

    Raises ValueError for a mesh that the devices or the model do not fit.
    """
    mesh = sharding.make_mesh(**config.mesh)
    decoder = experiment.decoder
    sharding.check_sizes(
        {
            "heads": decoder.num_heads,
            "kv_heads": decoder.num_kv_heads,
            "embed": decoder.embed_dim,
            "mlp": decoder.mlp_dim,
            "vocab": decoder.vocab_size,
        },
        mesh,
    )
    return Machinery(
        config=config,
        experiment=experiment,
        mesh=mesh,
        param_shardings=sharding.tree_shardings(models.logical_axes(decoder), abstract_params(decoder), mesh),
        limits=Limits(**config.limits),
        evaluation_limits=Limits(**config.evaluation.limits),
        pool=ProcessPool(experiment.environment, **config.workers),
    )
