"""Train a policy: a supervised warm-up on demonstrations, then group-relative RL on its own rollouts.

    python -m rlagents.train --config=FILE.py[:argument] --workdir=DIR [--config.key=value ...]

Writes into DIR: ``config.json``, ``warm_up.jsonl`` and ``metrics.jsonl`` (a line a step), ``evaluations.jsonl``,
``conversations/`` (one group a step), ``warm_up/`` and ``checkpoints/``. Started again with the same config, it goes on
after the newest checkpoint; with another config, it refuses.
"""

import contextlib
import functools
import sys
import time
from pathlib import Path

import jax
import numpy as np
from absl import app, flags, logging

from rlagents import learner, models
from rlagents.checkpoints import CheckpointError, Checkpoints, RunRecord
from rlagents.command_line import parse_flags, read_options
from rlagents.data.prefetch import prefetched
from rlagents.machinery import Machinery, assemble
from rlagents.metrics import MetricsWriter
from rlagents.progress import progress
from rlagents.rollouts.collate import padding_fraction
from rlagents.rollouts.driver import Rollout
from rlagents.timing import OneStepLate, PhaseTimer
from rlagents.types import Batch, Kind, Metrics, Params
from rlagents.warm_up import make_step, trace_batches
from rlagents.workdir import claim_workdir, write_conversations

_START = time.perf_counter()


def main(argv: list[str]) -> None:
    """Read the command line, train, end the tool workers. Exits 2 for what the user has to mend."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments {argv[1:]}; options begin with --")
    with contextlib.ExitStack() as stack:
        try:
            config, experiment, workdir = read_options()
            machinery = stack.enter_context(contextlib.closing(assemble(config, experiment)))
            # Last, so that what is refused leaves no folder behind.
            claim_workdir(workdir, config)
        except (ValueError, FileNotFoundError, ModuleNotFoundError) as error:
            print(f"rlagents.train: {error}", file=sys.stderr)
            sys.exit(2)
        try:
            train(machinery, workdir, PhaseTimer(_START))
        except CheckpointError as error:
            print(f"rlagents.train: {error}", file=sys.stderr)
            sys.exit(2)


def train(machinery: Machinery, workdir: Path, timer: PhaseTimer) -> None:
    """Both phases, each from where it stood."""
    with timer.phase("warm-up"):
        params = warm_up(machinery, workdir, timer)
    timer.take()  # No step of the reinforced phase has this on its account.
    reinforce(machinery, workdir, params, timer)


def warm_up(machinery: Machinery, workdir: Path, timer: PhaseTimer) -> Params:
    """Maximum likelihood on demonstrations; returns the weights. Goes on from, and ends with, a checkpoint."""
    config, experiment = machinery.config, machinery.experiment
    params, steps = machinery.make_params(), config.supervised.steps
    if steps == 0:
        return params
    axes, optimizer = models.logical_axes(experiment.decoder), experiment.supervised_optimizer
    shardings = learner.state_shardings(params, optimizer, (), axes, machinery.mesh)
    state = learner.create_state(params, optimizer, (), jax.random.key(config.seed), shardings)
    with Checkpoints(workdir / "warm_up", keep_last=1) as checkpoints:
        first = checkpoints.latest_step() or 0
        if first:
            state, stored = checkpoints.restore(learner.abstract_state(params, optimizer, (), shardings))
            timer.resume(stored.run["elapsed_seconds"])
        if first == steps:
            return state.params
        step_once = make_step(machinery, optimizer, shardings)
        batches = contextlib.closing(prefetched(trace_batches(machinery, first)))
        late = OneStepLate[tuple[int, learner.StepReport]]()
        with MetricsWriter(workdir / "warm_up.jsonl", first_step=first) as writer, batches as ready:

            def write(item: tuple[int, learner.StepReport] | None) -> None:
                if item is not None:
                    step, report = item
                    learner.check_finite(report)
                    values = learner.report_values(report)
                    writer.write(step, values)
                    if (step + 1) % 25 == 0 or step + 1 == steps:
                        print(f"warm-up {step + 1}/{steps}  loss {values['loss']:.3f}", flush=True)

            for step, batch in zip(range(first, steps), ready):
                state, report = step_once(state, batch.sequences, batch.masks)
                write(late.put((step, report)))
                if (step + 1) % config.checkpoint.every_steps == 0 or step + 1 == steps:
                    write(late.last())  # what a checkpoint has behind it is written down
                    run = {"elapsed_seconds": timer.elapsed_seconds}
                    checkpoints.save(step + 1, state, RunRecord(position={"batches": step + 1}, run=run))
    return state.params


def reinforce(machinery: Machinery, workdir: Path, params: Params, timer: PhaseTimer) -> None:
    """Rollout, credit, update, again and again from ``params``; evaluates before, in between and after."""
    config, experiment, options = machinery.config, machinery.experiment, machinery.config.rl
    method, optimizer = experiment.method, experiment.optimizer
    axes, key = models.logical_axes(experiment.decoder), jax.random.key(config.seed)
    shardings = learner.state_shardings(params, optimizer, method.init(), axes, machinery.mesh)
    state = learner.create_state(params, optimizer, method.init(), key, shardings)
    reference = learner.own_copy(params, machinery.param_shardings) if "reference" in method.needs else None
    make_learner = learner.make_learner
    if options.pack_micro_batches:
        lengths = {name: config.buckets[name] for name in ("prefix_buckets", "member_buckets")}
        make_learner = functools.partial(learner.make_packed_learner, **lengths)
    learn = make_learner(
        method,
        machinery.passes(config.rule.temperature, options.members_per_micro_batch),
        optimizer,
        shardings,
        prompts_per_micro_batch=options.prompts_per_micro_batch,
        updates_per_batch=options.updates_per_batch,
        epochs=options.epochs,
    )
    with contextlib.ExitStack() as stack:
        checkpoints = stack.enter_context(Checkpoints(workdir / "checkpoints", keep_last=config.checkpoint.keep_last))
        first, position = checkpoints.latest_step() or 0, 0
        if first >= options.steps:
            print(f"{workdir} is finished: all {options.steps} steps are done, nothing is left to do.", flush=True)
            return
        if first:
            state, stored = checkpoints.restore(learner.abstract_state(params, optimizer, method.init(), shardings))
            position = stored.position["prompts"]
            timer.resume(stored.run["elapsed_seconds"])
            print(f"going on after step {first}", flush=True)
        metrics = stack.enter_context(MetricsWriter(workdir / "metrics.jsonl", first_step=first))
        evaluations = stack.enter_context(MetricsWriter(workdir / "evaluations.jsonl", first_step=first + bool(first)))
        bar = stack.enter_context(contextlib.closing(progress(options.steps, sys.stdout, first_step=first)))
        stream, sampler = experiment.train_stream(position), machinery.make_sampler(state.params)

        def evaluate(step: int) -> None:
            with timer.phase("evaluation"):
                evaluation = machinery.evaluate(sampler)
            evaluations.write(step, evaluation.values() | {"seconds_since_start": timer.elapsed_seconds})
            write_conversations(workdir / "conversations" / f"held-out-{step:06d}.jsonl", evaluation.groups)
            print(f"held-out success after {step} steps: {evaluation}", flush=True)

        if first == 0:
            evaluate(0)
        for step in range(first, options.steps):
            start = time.perf_counter()
            with timer.phase("rollout"):
                sampled = machinery.roll_out(sampler, stream, step)
            with timer.phase("collate"):
                batch = machinery.collate(sampled.groups, num_prompts=options.prompts_per_step)
                on_device, placed = learn.place(batch)
            with timer.phase("prepare"):
                facts = jax.block_until_ready(learn.prepare(state.params, reference, on_device))
            with timer.phase("update"):
                state, credit, credited = learn.credit(state, on_device, facts)
                reports = []
                for update in learn.schedule:
                    state, report = learn.step(state, on_device, facts, credit, update)
                    learner.check_finite(report)
                    reports.append(report)
            with timer.phase("publish"):
                sampler.load(state.params, step + 1)
            with timer.phase("log"):
                write_conversations(workdir / "conversations" / f"step-{step:06d}.jsonl", sampled.groups[:1])
                values = (
                    rollout_values(sampled, batch) | placed | learner.report_values(*reports) | mean_values(credited)
                )
            seconds = time.perf_counter() - start
            pace = values["tokens_sampled"] / seconds
            metrics.write(step, values | {"seconds": seconds, "tokens_per_second": pace} | timer.take())
            bar.show(step, reward=values["reward"], tokens_per_second=pace)
            done, last = step + 1, step + 1 == options.steps
            if last or (config.evaluation.every_steps and done % config.evaluation.every_steps == 0):
                evaluate(done)
            if last or done % config.checkpoint.every_steps == 0:
                with timer.phase("checkpoint"):
                    run = {"elapsed_seconds": timer.elapsed_seconds}
                    record = RunRecord({"prompts": stream.position}, config=config.to_dict(), run=run)
                    checkpoints.save(done, state, record)
        print(f"what each phase cost, compilation included:\n{timer.table()}", flush=True)


def rollout_values(sampled: Rollout, batch: Batch) -> dict[str, float]:
    """What the rollout was like: reward and facts over valid members, lengths, counts of events."""
    members = [member for group in sampled.groups for member in group if member.valid]
    rewards = [member.outcome.reward for member in members if member.outcome is not None]
    sampled_tokens = int(np.sum(batch.masks.kind == Kind.MODEL))
    return {
        "reward": float(np.mean(rewards)) if rewards else 0.0,
        "turns": float(np.mean([member.num_turns for member in members])) if members else 0.0,
        "tokens_sampled": sampled_tokens,
        "padding_fraction": padding_fraction(batch),
        "tasks_skipped": len(sampled.skipped),
        **{f"rollout/{name}": count for name, count in sampled.counts.items()},
    }


def mean_values(means: Metrics) -> dict[str, float]:
    """Metrics as plain numbers."""
    return {name: float(mean.value) for name, mean in jax.device_get(means).items()}


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main, flags_parser=parse_flags)
