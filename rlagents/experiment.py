"""What a config file says: numbers in ``get_config()``, objects in ``build(config)``.

    python -m rlagents.train --config=experiments/quickstart/procedural.py --workdir=DIR

``get_config(argument)`` returns an ``ml_collections.ConfigDict`` whose keys can be set on the command line;
``build(config)`` returns an :class:`Experiment`, the objects made from them. A new method, environment or model is a
few lines of Python in a config file, never a name that the library has to know.
"""

import importlib.util
import inspect
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from rlagents.data.streams import PromptStream, TaskSet
from rlagents.environments.base import Environment
from rlagents.facts import Task
from rlagents.learner import Optimizer
from rlagents.methods.method import Method
from rlagents.models import DecoderConfig
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conditions import ConditionMessages, MemberMessages, same_for_all, unconditioned
from rlagents.rollouts.experts import Demonstration, Demonstrator, expert_trajectory
from rlagents.rollouts.informative import Informative, anything
from rlagents.rollouts.trajectory import Trajectory
from rlagents.types import Params

MODULE_PREFIX = "rlagents_experiment_"
"""Begins the name under which a config file is imported: nobody else can import it by that name."""

THINK_PREFIX = "<think>"
"""``forced_prefix`` of CalibAdv (arXiv 2604.18235): the tag opens every model turn, the one after the prompt and those
after observations, and as nobody sampled it, it bears no advantage and no loss."""

Config = Any
"""An ``ml_collections.ConfigDict``; its leaves have no static types."""


StepValues = Callable[[Sequence[Sequence[Trajectory]]], Mapping[str, float]]
"""Groups that a step learns from -> metrics for its line, beside those that every run has; host-side, no gradient."""


def no_step_values(groups: Sequence[Sequence[Trajectory]]) -> Mapping[str, float]:
    """Return no further metrics."""
    del groups
    return {}


@dataclass(frozen=True)
class Experiment:
    """All that is not a number.

    Attributes:
      decoder: shape of the policy.
      make_params: ``(key, shardings) -> weights``; each leaf is created, or read, where it will live.
      chat: tokenizer and append-only template.
      environment: what the policy acts in; picklable.
      demonstrate: task, step of the supervised warm-up -> what an assistant says in it.
      train_stream: position -> stream of training tasks from there on.
      supervised_stream: the same of the warm-up's tasks; None for those of ``train_stream``.
      held_out: tasks of the evaluation, in its order.
      method: what turns rollouts into a loss.
      supervised_optimizer, optimizer: of the warm-up and of the reinforced phase.
      category: task -> name under which the evaluation reports it besides the whole.
      named: facts of the outcome that go along with every batch.
      member_messages: what differs between the members of a group in training.
      evaluation_messages: the same in evaluation.
      demonstrated_messages: how the condition of a demonstration is shown in the warm-up.
      informative: which groups are worth training on, as far as ``rl.over_sample`` and ``rl.max_draws`` find them.
      step_values: further metrics of each step's groups, such as :func:`rlagents.conditioning.conditioning`.
      forced_prefix: text that every model turn is made to begin with, in training and evaluation; see ``THINK_PREFIX``.
    """

    decoder: DecoderConfig
    make_params: Callable[[jax.Array, Any], Params]
    chat: Chat
    environment: Environment
    demonstrate: Demonstrator
    train_stream: Callable[[int], PromptStream[Task]]
    held_out: TaskSet[Task]
    method: Method
    supervised_optimizer: Optimizer
    optimizer: Optimizer
    category: Callable[[Task], str]
    named: Sequence[str] = ()
    member_messages: MemberMessages = same_for_all
    evaluation_messages: MemberMessages = same_for_all
    demonstrated_messages: ConditionMessages = unconditioned
    supervised_stream: Callable[[int], PromptStream[Task]] | None = None
    informative: Informative = anything
    step_values: StepValues = no_step_values
    forced_prefix: str = ""

    def demonstrated_tasks(self) -> PromptStream[Task]:
        """Return the tasks of the warm-up, from the first one on."""
        return (self.supervised_stream or self.train_stream)(0)

    def played(self, task: Task, demonstration: Demonstration, *, stream: int) -> Trajectory:
        """Play a demonstration, shown with its condition, as trajectory ``stream``.

        Raises ValueError as :func:`rlagents.rollouts.experts.expert_trajectory` does.
        """
        return expert_trajectory(
            self.environment, self.chat, task, demonstration, stream=stream, shown=self.demonstrated_messages
        )


def load_module(path: str | Path) -> ModuleType:
    """The config file at ``path`` as a module that nobody else can import.

    Raises ``ValueError`` for what is no Python file; whatever the file raises passes through.
    """
    path = Path(path).resolve()
    name = f"{MODULE_PREFIX}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file; --config takes experiments/NAME.py[:argument].")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_experiment(path: str | Path, config: Config) -> Experiment:
    """Run ``build(config)`` of the config file at ``path``.

    Raises ``ValueError`` if the file has no ``build`` of one argument, if ``build`` asks for a key that the config does
    not have, or if it returns something else than an experiment; whatever else ``build`` raises passes through.
    """
    path = Path(path).resolve()
    module = load_module(path)
    if not hasattr(module, "build"):
        raise ValueError(f"{path} has no build(config); add one that returns an rlagents.experiment.Experiment.")
    try:
        inspect.signature(module.build).bind(config)
    except TypeError as error:
        raise ValueError(f"build of {path} takes one argument, the config ({error}).") from error
    try:
        built = module.build(config)
    except (AttributeError, KeyError) as error:
        if not _raised_by_config(error):
            raise
        # ml_collections wraps a KeyError, whose text is a repr and may suggest another name in a second line.
        said = str(error.args[0].args[0] if isinstance(error.args[0], KeyError) else error.args[0])
        raise ValueError(
            f"build(config) of {path} asks for {said.splitlines()[0]}, which the config does not have; add it in "
            f"get_config(), which now has {', '.join(config)}."
        ) from error
    if not isinstance(built, Experiment):
        raise ValueError(
            f"build(config) of {path} returned {reprlib.repr(built)}; expected an rlagents.experiment.Experiment."
        )
    return built


def _raised_by_config(error: BaseException) -> bool:
    """Whether a ConfigDict raised it, and no other object that ``build`` asked for something."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_globals["__name__"].startswith("ml_collections.")
