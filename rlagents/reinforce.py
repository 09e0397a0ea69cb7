"""The reinforced phase: rollout, credit, update, again and again."""

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jax

from rlagents import learner, models, sharding
from rlagents.alarms import AlarmError, make_watch
from rlagents.checkpoints import CheckpointError, CheckpointOptions, Checkpoints, RunRecord
from rlagents.durable import sync_file
from rlagents.first_weights import REINFORCED, new_record, resumed
from rlagents.interruption import Interrupted, Interruption
from rlagents.machinery import Machinery, abstract_params
from rlagents.metrics import JsonLines, each_metrics
from rlagents.metrics.run_log import RunLog
from rlagents.progress import progress
from rlagents.rollouts.ahead import RolloutsAhead
from rlagents.rollouts.driver import Rollout
from rlagents.rollouts.members import TurnSampler
from rlagents.rollouts.stored import from_document, to_document
from rlagents.sampling import SamplingRule
from rlagents.step_log import Line, StepLog, rollout_values, skipped_lines
from rlagents.timing import PhaseTimer
from rlagents.trajectory_log import TrajectoryLog, TrajectoryOptions, held_out_lines
from rlagents.types import Params


def reinforce(
    machinery: Machinery,
    workdir: Path,
    before_rl: Callable[[], Params],
    timer: PhaseTimer,
    interruption: Interruption,
) -> None:
    """Rollout, credit, update, again and again from ``before_rl()``; evaluates before, in between and after.

    A run that goes on after a checkpoint asks for the weights before RL only where the method compares with them.
    Raises CheckpointError as :func:`rlagents.first_weights.resumed` does, and Interrupted, with all saved.

    ``seconds/update`` of a step runs from its first pass to the published weights, which is the one time that the host
    waits for the devices; what they computed beside the weights is read a step later. Raises AlarmError, with a
    checkpoint behind it, once an alarm is raised that ``alarms.stop`` names.
    """
    config, experiment, options = machinery.config, machinery.experiment, machinery.config.rl
    method, optimizer = experiment.method, experiment.optimizer
    axes, key = models.logical_axes(experiment.decoder), jax.random.key(config.seed)
    shapes = abstract_params(experiment.decoder)
    shardings = learner.state_shardings(shapes, optimizer, method.init(), axes, machinery.mesh)
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
        saving = CheckpointOptions(**config.checkpoint)
        checkpoints = stack.enter_context(Checkpoints(workdir / REINFORCED, **saving.retention()))
        before = resumed(checkpoints, config, workdir / "metrics.jsonl")
        first, position, pending = 0 if before is None else before.step, 0, None
        if first >= options.steps:
            print(f"{workdir} is finished: all {options.steps} steps are done, nothing is left to do.", flush=True)
            return
        compares = "reference" in method.needs
        params = before_rl() if before is None or compares else None
        reference = learner.own_copy(params, machinery.param_shardings) if compares else None
        if before is None:
            state = learner.create_state(params, optimizer, method.init(), key, shardings)
        del params  # state and reference have buffers of their own
        if before is not None:
            abstract = learner.abstract_state(shapes, optimizer, method.init(), shardings)
            state, stored = checkpoints.restore(abstract, first)
            position = stored.position["prompts"]
            pending = _pending(stored, checkpoints)
            timer.resume(stored.run["elapsed_seconds"])
            print(f"weights: the run's own checkpoint; going on after step {first}", flush=True)
        written = stack.enter_context(RunLog(workdir, config.to_dict(), first_step=first, **config.logging))
        watch = make_watch(**config.alarms)
        watch.replay(each_metrics(workdir / "metrics.jsonl"))
        bar = stack.enter_context(contextlib.closing(progress(options.steps, sys.stdout, first_step=first)))
        stream, sampler = experiment.train_stream(position), machinery.make_sampler(state.params, version=first)
        log = StepLog(written, watch, bar.tell)
        logged = TrajectoryOptions(**config.trajectories)

        def lines(name: str, first_step: int) -> JsonLines:
            return stack.enter_context(JsonLines(workdir / name, first_step=first_step, max_bytes=logged.max_bytes))

        held_out = lines("held_out.jsonl", first + bool(first))
        trajectories = TrajectoryLog(
            lines("trajectories.jsonl", first),
            experiment.chat.decode,
            learn.scores,
            logged,
            prompt_shards=sharding.prompt_shards(machinery.mesh),
        )

        def roll_out(sampler: TurnSampler, step: int) -> Rollout:
            return machinery.roll_out(sampler, stream, step)

        ahead = stack.enter_context(contextlib.closing(RolloutsAhead(roll_out, sampler, pending=pending)))

        def evaluate(step: int) -> dict[str, float]:
            start = time.perf_counter()
            with timer.phase("evaluation"):
                evaluation = machinery.evaluate(sampler)
            values, seconds = evaluation.values(), time.perf_counter() - start
            saving.check_metric(values)
            # Also here: no line of metrics comes after the last evaluation.
            times = {"seconds": seconds, "seconds_since_start": timer.elapsed_seconds}
            written.evaluation(step, values | times)
            held_out_lines(held_out, step, evaluation.groups)
            print(f"held-out success after {step} steps: {evaluation}", flush=True)
            return values

        def save(step: int, evaluated: Mapping[str, float]) -> None:
            with timer.phase("checkpoint"):
                logs = ("metrics", "evaluations", "alarms", "trajectories", "held_out")
                for name in (f"{name}.jsonl" for name in logs):
                    sync_file(workdir / name)  # a power cut takes no line that a checkpoint has behind it
                pending = None if ahead.pending is None else to_document(ahead.pending)
                position, seconds = {"prompts": stream.position}, timer.elapsed_seconds
                record = new_record(config, position, seconds, pending=pending, metrics=evaluated)
                checkpoints.save(step, state, record)

        if first == 0:
            evaluate(0)
        for step in range(first, options.steps):
            start, done, last = time.perf_counter(), step + 1, step + 1 == options.steps
            with timer.phase("rollout"):
                sampled = ahead.take(step)
            for line in skipped_lines(step, sampled.skipped):
                bar.tell(line)
            if options.rollouts_ahead and not last:
                ahead.begin(done)
            with timer.phase("collate"):
                batch = machinery.collate(sampled.groups, num_prompts=options.prompts_per_step)
                on_device, placed = learn.place(batch)
            with timer.phase("update"), ahead.learner_turn():
                trajectories.before(step, sampled.groups, batch, state.params)
                facts = learn.prepare(state.params, reference, on_device)
                state, credit, credited = learn.credit(state, on_device, facts)
                reports = []
                for update in learn.schedule:
                    state, report = learn.step(state, on_device, facts, credit, update)
                    reports.append(report)
                trajectories.after(credit, state.params)
            with timer.phase("rollout"):
                ahead.wait()  # it ends with the weights that it began with
            with timer.phase("update"):
                sampler.load(state.params, done)
            with timer.phase("log"):
                values = rollout_values(sampled, batch, version=step) | placed
                values |= experiment.step_values(sampled.groups)
            seconds = time.perf_counter() - start
            pace = values["tokens_sampled"] / seconds
            values |= {"seconds": seconds, "tokens_per_second": pace} | timer.take()
            if ahead.pending is not None:
                values["seconds/rollout_ahead"] = ahead.seconds
            log.put(Line(step, values, reports, credited))
            bar.show(step, reward=values["reward"], tokens_per_second=pace, alarms=watch.on)
            evaluates = last or (config.evaluation.every_steps and done % config.evaluation.every_steps == 0)
            stops = interruption.requested(config.supervised.steps + done)
            saves = last or stops or done % saving.every_steps == 0
            if evaluates or saves or log.stopped:
                log.flush()  # what an evaluation or a checkpoint has behind it is written down
                trajectories.flush()
            evaluated = evaluate(done) if evaluates else {}
            if saves or log.stopped:
                save(done, evaluated)
            checkpoints.check()
            if log.stopped:
                checkpoints.wait()
                raise AlarmError(f"{log.stopped}; alarms.stop names it, and a checkpoint of step {done} is written")
            if stops and not last:
                checkpoints.wait()
                raise Interrupted(f"stopped after step {done} of {options.steps}, and saved")
        print(f"what each phase cost, compilation included:\n{timer.table()}", flush=True)


def _pending(record: RunRecord, checkpoints: Checkpoints) -> Rollout | None:
    """The rollout that was sampled ahead, if any. Raises CheckpointError for one that is damaged."""
    if record.pending is None:
        return None
    try:
        return from_document(record.pending)
    except ValueError as error:
        raise CheckpointError(f"a checkpoint in {checkpoints.directory} cannot be gone on from: {error}") from error
