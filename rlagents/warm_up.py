"""The supervised phase: the policy learns from demonstrations before it is rewarded for anything."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from rlagents import learner, models
from rlagents.checkpoints import CheckpointOptions, Checkpoints
from rlagents.data.prefetch import prefetched
from rlagents.data.streams import shuffled
from rlagents.experiment import Experiment
from rlagents.facts import Task
from rlagents.first_weights import WARM_UP, first_weights, new_record, resumed
from rlagents.interruption import Interrupted, Interruption
from rlagents.learner.supervised import SupervisedStep
from rlagents.machinery import Machinery, abstract_params
from rlagents.metrics import MetricsWriter
from rlagents.rollouts.collate import collate
from rlagents.rollouts.experts import Demonstration
from rlagents.rollouts.trajectory import Trajectory
from rlagents.sharding import shard_batch
from rlagents.timing import OneStepLate, PhaseTimer
from rlagents.types import Batch, Params


class Traces:
    """Demonstrations in the first ``count`` tasks of the warm-up, each written when it is first asked for."""

    def __init__(self, experiment: Experiment, count: int):
        if count < 1:
            raise ValueError(f"supervised.traces is {count}; a warm-up needs at least one trace.")
        self._experiment = experiment
        self._stream = experiment.demonstrated_tasks()
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
        trace = experiment.played(task, demonstration, stream=index)
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


def warm_up(machinery: Machinery, workdir: Path, timer: PhaseTimer, interruption: Interruption) -> Params:
    """Maximum likelihood on demonstrations; returns the weights. Goes on from, and ends with, a checkpoint.

    Raises CheckpointError as :func:`rlagents.first_weights.resumed` does, and Interrupted, with all saved.
    """
    config, experiment, since = machinery.config, machinery.experiment, time.perf_counter()
    steps = config.supervised.steps
    if steps == 0:
        return first_weights(machinery, workdir)
    axes, optimizer = models.logical_axes(experiment.decoder), experiment.supervised_optimizer
    shapes = abstract_params(experiment.decoder)
    shardings = learner.state_shardings(shapes, optimizer, (), axes, machinery.mesh)
    options = CheckpointOptions(**config.checkpoint)
    with Checkpoints(workdir / WARM_UP, keep_last=options.keep_last) as checkpoints:
        before = resumed(checkpoints, config, workdir / "warm_up.jsonl")
        first = 0 if before is None else before.step
        if before is None:
            params = first_weights(machinery, workdir)
            state = learner.create_state(params, optimizer, (), jax.random.key(config.seed), shardings)
        else:
            state, _ = checkpoints.restore(learner.abstract_state(shapes, optimizer, (), shardings), first)
            timer.resume(before.record.run["elapsed_seconds"])
        if first == steps:
            return state.params
        step_once = make_step(machinery, optimizer, shardings)
        batches = contextlib.closing(prefetched(trace_batches(machinery, first)))
        late = OneStepLate[tuple[int, learner.StepReport]]()
        with MetricsWriter(workdir / "warm_up.jsonl", first_step=first) as writer, batches as ready:

            def write(item: tuple[int, learner.StepReport] | None) -> None:
                nonlocal since
                if item is not None:
                    step, report = item
                    learner.check_finite(report)
                    values = learner.report_values(report)  # waits for the devices: what they did is in the seconds
                    before, since = since, time.perf_counter()
                    writer.write(step, values | {"seconds": since - before})
                    if (step + 1) % 25 == 0 or step + 1 == steps:
                        print(f"warm-up {step + 1}/{steps}  loss {values['loss']:.3f}", flush=True)

            for step, batch in zip(range(first, steps), ready):
                state, report = step_once(state, batch.sequences, batch.masks)
                write(late.put((step, report)))
                timer.beat()
                done, last = step + 1, step + 1 == steps
                stops = interruption.requested(done)
                if stops or last or done % options.every_steps == 0:
                    write(late.last())  # what a checkpoint has behind it is written down
                    checkpoints.save(done, state, new_record(config, {"batches": done}, timer.elapsed_seconds))
                if stops:
                    checkpoints.wait()
                    raise Interrupted(f"stopped after step {done} of {steps} of the warm-up, and saved")
    return state.params
