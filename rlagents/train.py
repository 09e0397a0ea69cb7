"""Train a policy: a supervised warm-up on demonstrations, then group-relative RL on its own rollouts.

    python -m rlagents.train --config=FILE.py[:argument] --workdir=DIR [--config.key=value ...]

Writes into DIR: ``config.json``, ``warm_up.jsonl`` and ``metrics.jsonl`` (a line a step), ``evaluations.jsonl``,
``conversations/`` (one group a step), ``warm_up/`` and ``checkpoints/``. Started again with the same config, it goes on
after the newest checkpoint; with another config, it refuses. Compiled programs are kept in ``compilation_cache`` (a
folder, relative to DIR; empty for none), so that the next run of the same shapes starts at once.
"""

import contextlib
import functools
import sys
import time
from pathlib import Path

import jax
from absl import app, flags, logging

from rlagents import learner, models
from rlagents.checkpoints import CheckpointError, Checkpoints, RunRecord
from rlagents.command_line import parse_flags, read_options
from rlagents.compilation import Compilations, compilers_memory_returned, described, planned_programs, programs_kept_by
from rlagents.data.prefetch import prefetched
from rlagents.machinery import Machinery, assemble
from rlagents.metrics import MetricsWriter
from rlagents.problems import ConfigError
from rlagents.progress import progress
from rlagents.rollouts.ahead import RolloutsAhead
from rlagents.rollouts.driver import Rollout
from rlagents.rollouts.faults import NothingSampledError
from rlagents.rollouts.members import TurnSampler
from rlagents.rollouts.stored import from_document, to_document
from rlagents.sampling import SamplingRule
from rlagents.step_log import Line, StepLog, rollout_values
from rlagents.timing import OneStepLate, PhaseTimer
from rlagents.types import Params
from rlagents.warm_up import make_step, trace_batches
from rlagents.workdir import claim_workdir, write_conversations

_START = time.perf_counter()


def main(argv: list[str]) -> None:
    """Read the command line, train, end the tool workers. Exits 2 for what the user has to mend."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments {argv[1:]}; options begin with --")
    with compilers_memory_returned(), contextlib.ExitStack() as stack:
        try:
            config, experiment, workdir = read_options()
            machinery = stack.enter_context(contextlib.closing(assemble(config, experiment)))
            # Last, so that what is refused leaves no folder behind.
            claim_workdir(workdir, config)
            stack.enter_context(programs_kept_by(config, workdir))
        except (ValueError, FileNotFoundError, ModuleNotFoundError) as error:
            print(f"rlagents.train: {error}", file=sys.stderr)
            sys.exit(2)
        try:
            train(machinery, workdir, PhaseTimer(_START))
        except (CheckpointError, ConfigError, NothingSampledError) as error:
            print(f"rlagents.train: {error}", file=sys.stderr)
            sys.exit(2)


def train(machinery: Machinery, workdir: Path, timer: PhaseTimer) -> None:
    """Both phases, each from where it stood; says what there is to compile, and in the end what was."""
    planned = planned_programs(machinery.config, max_prefix_tokens=machinery.max_prefix_tokens)
    print(described(planned), flush=True)
    with Compilations() as compiled:
        with timer.phase("warm-up"):
            params = warm_up(machinery, workdir, timer)
        timer.take()  # No step of the reinforced phase has this on its account.
        reinforce(machinery, workdir, params, timer)
    print(compiled, flush=True)


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
    """Rollout, credit, update, again and again from ``params``; evaluates before, in between and after.

    ``seconds/update`` of a step runs from its first pass to the published weights, which is the one time that the host
    waits for the devices; what they computed beside the weights is read a step later.
    """
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
        machinery.passes(SamplingRule(**config.rule).recorded_temperature, options.members_per_micro_batch),
        optimizer,
        shardings,
        prompts_per_micro_batch=options.prompts_per_micro_batch,
        updates_per_batch=options.updates_per_batch,
        epochs=options.epochs,
        reuse_policy_as_old=options.reuse_policy_as_old,
    )
    with contextlib.ExitStack() as stack:
        checkpoints = stack.enter_context(Checkpoints(workdir / "checkpoints", keep_last=config.checkpoint.keep_last))
        first, position, pending = checkpoints.latest_step() or 0, 0, None
        if first >= options.steps:
            print(f"{workdir} is finished: all {options.steps} steps are done, nothing is left to do.", flush=True)
            return
        if first:
            state, stored = checkpoints.restore(learner.abstract_state(params, optimizer, method.init(), shardings))
            position = stored.position["prompts"]
            pending = None if stored.pending is None else from_document(stored.pending)
            timer.resume(stored.run["elapsed_seconds"])
            print(f"going on after step {first}", flush=True)
        metrics = stack.enter_context(MetricsWriter(workdir / "metrics.jsonl", first_step=first))
        evaluations = stack.enter_context(MetricsWriter(workdir / "evaluations.jsonl", first_step=first + bool(first)))
        bar = stack.enter_context(contextlib.closing(progress(options.steps, sys.stdout, first_step=first)))
        stream, sampler = experiment.train_stream(position), machinery.make_sampler(state.params, version=first)
        log = StepLog(metrics)

        def roll_out(sampler: TurnSampler, step: int) -> Rollout:
            return machinery.roll_out(sampler, stream, step)

        ahead = stack.enter_context(contextlib.closing(RolloutsAhead(roll_out, sampler, pending=pending)))

        def evaluate(step: int) -> None:
            with timer.phase("evaluation"):
                evaluation = machinery.evaluate(sampler)
            evaluations.write(step, evaluation.values() | {"seconds_since_start": timer.elapsed_seconds})
            write_conversations(workdir / "conversations" / f"held-out-{step:06d}.jsonl", evaluation.groups)
            print(f"held-out success after {step} steps: {evaluation}", flush=True)

        def save(step: int) -> None:
            with timer.phase("checkpoint"):
                record = RunRecord(
                    {"prompts": stream.position},
                    config=config.to_dict(),
                    run={"elapsed_seconds": timer.elapsed_seconds},
                    pending=None if ahead.pending is None else to_document(ahead.pending),
                )
                checkpoints.save(step, state, record)

        if first == 0:
            evaluate(0)
        for step in range(first, options.steps):
            start, done, last = time.perf_counter(), step + 1, step + 1 == options.steps
            with timer.phase("rollout"):
                sampled = ahead.take(step)
            if options.rollouts_ahead and not last:
                ahead.begin(done)
            with timer.phase("collate"):
                batch = machinery.collate(sampled.groups, num_prompts=options.prompts_per_step)
                on_device, placed = learn.place(batch)
            with timer.phase("update"), ahead.learner_turn():
                facts = learn.prepare(state.params, reference, on_device)
                state, credit, credited = learn.credit(state, on_device, facts)
                reports = []
                for update in learn.schedule:
                    state, report = learn.step(state, on_device, facts, credit, update)
                    reports.append(report)
            with timer.phase("rollout"):
                ahead.wait()  # it ends with the weights that it began with
            with timer.phase("update"):
                sampler.load(state.params, done)
            with timer.phase("log"):
                write_conversations(workdir / "conversations" / f"step-{step:06d}.jsonl", sampled.groups[:1])
                values = rollout_values(sampled, batch, version=step) | placed
            seconds = time.perf_counter() - start
            pace = values["tokens_sampled"] / seconds
            values |= {"seconds": seconds, "tokens_per_second": pace} | timer.take()
            if ahead.pending is not None:
                values["seconds/rollout_ahead"] = ahead.seconds
            log.put(Line(step, values, reports, credited))
            bar.show(step, reward=values["reward"], tokens_per_second=pace)
            evaluates = last or (config.evaluation.every_steps and done % config.evaluation.every_steps == 0)
            saves = last or done % config.checkpoint.every_steps == 0
            if evaluates or saves:
                log.flush()  # what an evaluation or a checkpoint has behind it is written down
            if evaluates:
                evaluate(done)
            if saves:
                save(done)
        print(f"what each phase cost, compilation included:\n{timer.table()}", flush=True)


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main, flags_parser=parse_flags)
