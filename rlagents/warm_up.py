"""The supervised phase: the policy learns from demonstrations before it is rewarded for anything."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from rlagents import learner
from rlagents.data.streams import shuffled
from rlagents.experiment import Experiment
from rlagents.learner.supervised import SupervisedStep
from rlagents.machinery import Machinery
from rlagents.rollouts.collate import collate
from rlagents.rollouts.experts import expert_trajectory
from rlagents.rollouts.trajectory import Trajectory
from rlagents.sharding import shard_batch
from rlagents.types import Batch


class Traces:
    """Demonstrations in the first ``count`` training tasks, each written when it is first asked for."""

    def __init__(self, experiment: Experiment, count: int):
        if count < 1:
            raise ValueError(f"supervised.traces is {count}; a warm-up needs at least one trace.")
        self._experiment = experiment
        self._stream = experiment.train_stream(0)
        self._written: list[Trajectory | None] = [None] * count

    def __len__(self) -> int:
        return len(self._written)

    def __getitem__(self, index: int) -> Trajectory:
        """Trace ``index``. Raises ValueError where the episode is over elsewhere than the demonstration says."""
        trace = self._written[index]
        if trace is None:
            task, environment = self._stream[index], self._experiment.environment
            trace = expert_trajectory(
                environment, self._experiment.chat, task, self._experiment.demonstrate(task), stream=index
            )
            self._written[index] = trace
        return trace


def trace_batches(machinery: Machinery, position: int) -> Iterator[Batch]:
    """Batches of traces on the devices, epoch after epoch in fresh orders, from batch number ``position`` on.

    Of every ``batches_per_window`` batches, traces of like length share one, and so a bucket: less padding. The batches
    of a window come in random order.
    """
    options = machinery.config.supervised
    traces = Traces(machinery.experiment, options.traces)
    windows = options.prompts_per_step * options.batches_per_window
    window, skipped = divmod(position, options.batches_per_window)
    order = shuffled(range(len(traces)), seed=machinery.config.seed, position=window * windows)
    while True:
        # Named by their place in the order: a window at the end of an epoch may hold one trace twice.
        named = [dataclasses.replace(traces[index], stream=place) for place, index in order.take(windows)]
        taken = sorted(named, key=lambda trace: len(trace.token_ids))
        batches = np.random.default_rng([machinery.config.seed, window]).permutation(options.batches_per_window)
        for number in batches[skipped:]:
            first = int(number) * options.prompts_per_step
            batch = collate(
                [[trace] for trace in taken[first : first + options.prompts_per_step]],
                pad_prompts_to=options.prompts_per_step,
                **machinery.config.trace_buckets,
            )
            yield shard_batch(batch, machinery.mesh)
        window, skipped = window + 1, 0


def make_step(machinery: Machinery, optimizer: learner.Optimizer, shardings: learner.TrainState) -> SupervisedStep:
    """The supervised step at temperature 1."""
    return learner.make_supervised_step(
        machinery.passes(1.0),
        optimizer,
        shardings,
        prompts_per_micro_batch=machinery.config.supervised.prompts_per_micro_batch,
    )
