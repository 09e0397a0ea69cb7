"""Playing conversations through the environment, and the benchmark's own checker as the judge of the same calls."""

from collections.abc import Sequence

from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_backends import package_folder
from rlagents.environments.bfcl_tasks import scenario_of
from rlagents.facts import Outcome, Task, Transcript
from rlagents.tools.call_formats import render_call
from rlagents.tools.function_calls import ParsedCall

Turns = Sequence[Sequence[ParsedCall]]


def official_check(task: Task, turns: Turns) -> bool:
    """The benchmark's verdict on calls, one per step. Only literals rendered by ``repr`` reach its ``eval``."""
    package_folder()
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    scenario = scenario_of(task)
    entry = {
        "id": task.id,
        "initial_config": scenario.initial_config,
        "involved_classes": list(scenario.classes),
    }
    steps = [[[render_call(call)] for call in turn] for turn in turns]
    truth = [[render_call(call) for call in turn] for turn in scenario.truth]
    before = set(vars(multi_turn_utils))
    try:
        return multi_turn_checker(steps, truth, entry, "unused", "judge")["valid"]
    finally:
        # It keeps every instance it makes in its module's globals, under the task's name.
        for name in set(vars(multi_turn_utils)) - before:
            delattr(multi_turn_utils, name)


def play_texts(environment: BfclEnvironment, task: Task, texts: Sequence[str]) -> Outcome:
    """One trajectory of these assistant texts."""
    episode = environment.start(task)
    for text in texts:
        if episode.step(text).done:
            break
    return environment.score(task, [Transcript([], [], False, episode.finish())])[0]


def play_calls(environment: BfclEnvironment, task: Task, turns: Turns) -> Outcome:
    """One trajectory of these calls, one per assistant turn, and closing words after each user turn."""
    texts = []
    for turn in turns:
        texts.extend(environment.format.render([call]) for call in turn)
        texts.append("Done.")
    return play_texts(environment, task, texts)


def play_expert(environment: BfclEnvironment, task: Task) -> Outcome:
    """The expert's trajectory."""
    return play_texts(environment, task, [text for turn in environment.expert(task) for text in turn])
