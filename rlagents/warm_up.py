"""The supervised phase: the policy learns from demonstrations before it is rewarded for anything."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from rlagents import learner
from rlagents.data.streams import shuffled
from rlagents.experiment import Experiment
from rlagents.facts import Task
from rlagents.learner.supervised import SupervisedStep
from rlagents.machinery import Machinery
from rlagents.rollouts.collate import collate
from rlagents.rollouts.experts import Demonstration, expert_trajectory
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
        self._written: list[tuple[Task, Demonstration, Trajectory] | None] = [None] * count

    def __len__(self) -> int:
        return len(self._written)

    def shown(self, index: int, step: int) -> Trajectory:
        """Trace ``index`` as it is demonstrated after ``step`` steps; written anew only where that is something else.

        Raises ValueError where the episode is over elsewhere than the demonstration says.
        """
        known, experiment = self._written[index], self._experiment
        task = self._stream[index] if known is None else known[0]
        demonstration = experiment.demonstrate(task, step)
        if known is not None and known[1] == demonstration:
            return known[2]
        trace = expert_trajectory(experiment.environment, experiment.chat, task, demonstration, stream=index)
        self._written[index] = task, demonstration, trace
        return trace


def trace_batches(machinery: Machinery, position: int) -> Iterator[Batch]:
    """Batches of traces on the devices, epoch after epoch in fresh orders, from batch number ``position`` on.

    Of every ``batches_per_window`` batches, traces of like length share one, and so a bucket: less padding. The batches
    of a window come in random order, and all show what is demonstrated when the window begins.
    """
    options = machinery.config.supervised
    traces = Traces(machinery.experiment, options.traces)
    windows = options.prompts_per_step * options.batches_per_window
    window, skipped = divmod(position, options.batches_per_window)
    order = shuffled(range(len(traces)), seed=machinery.config.seed, position=window * windows)
    while True:
        # Named by their place in the order: a window at the end of an epoch may hold one trace twice.
        begin = window * options.batches_per_window
        named = [dataclasses.replace(traces.shown(index, begin), stream=place) for place, index in order.take(windows)]
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
