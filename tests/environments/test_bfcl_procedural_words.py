"""The language of generated tasks: few words, short messages, and nothing a model writes brings others in."""

import re

import pytest

from rlagents.environments.bfcl_backends import Execution
from rlagents.environments.bfcl_procedural import (
    HELD_OUT,
    LEVELS,
    TRAIN,
    ProceduralTasks,
    Split,
    corpus,
    expert_messages,
    procedural_environment,
)
from rlagents.environments.bfcl_tasks import scenario_of
from rlagents.environments.procedural.domains import DOMAINS
from rlagents.environments.procedural.results import compact_result
from rlagents.environments.procedural.words import TOKEN_PATTERN
from rlagents.facts import Task
from rlagents.tools.function_calls import ParsedCall
from tests.tools.adversarial import BOMBS, INJECTIONS, random_texts

ENVIRONMENT = procedural_environment()


def tokens(text: str) -> list[str]:
    return re.findall(TOKEN_PATTERN, text)


def take(split: Split, level: int, count: int, seed: int = 0) -> list[Task]:
    tasks = ProceduralTasks(split, (level,), seed)
    return [tasks[index] for index in range(count)]


def test_the_words_are_few_and_closed():
    texts = corpus(400, seed=0)
    vocabulary = {token for text in texts for token in tokens(text)}
    assert all("".join(tokens(text)) == text for text in texts)
    assert len(vocabulary) <= 500
    for level in LEVELS:
        for task in take(HELD_OUT, level, 150):
            for message in expert_messages(ENVIRONMENT, task):
                assert set(tokens(message["content"])) <= vocabulary, message


def test_conversations_are_short():
    for level in LEVELS:
        for task in take(TRAIN, level, 100):
            messages = expert_messages(ENVIRONMENT, task)
            assert sum(len(tokens(message["content"])) for message in messages[:2]) <= 128
            limits = {"assistant": 22, "tool": 10, "user": 64}
            for message in messages[1:]:
                assert len(tokens(message["content"])) <= limits[message["role"]], message


def test_whatever_a_model_writes_the_answers_stay_in_the_vocabulary():
    vocabulary = {token for text in corpus(400, seed=0) for token in tokens(text)}
    extra = [
        "[echo(content='zzz qqq', file_name='{file}'), cat(file_name='{file}'), touch(file_name='zzz'), ls()]",
        "[add(a=123456789, b=1), add(a=0.1, b=0.2), multiply(a=1e300, b=1e300), add(a='zzz', b='q'), add([1], [2])]",
        "[add_contact(user_name='zzz'), get_user_id(user='zzz'), search_messages(keyword=''), message_login(1)]",
        "[create_ticket(title='zzz', priority=3), get_ticket(ticket_id=90), get_user_tickets(status='zzz')]",
        "[get_symbol_by_name(name='zzz'), get_stock_info(symbol='zzz'), displayCarStatus(option='doors')]",
        "[get_zipcode_based_on_city(city='zzz'), get_nearest_airport_by_city(location='zzz')]",
    ]
    texts = [*INJECTIONS, *BOMBS, *random_texts(300, seed=3), *extra]
    for domain in range(len(DOMAINS)):
        task = ProceduralTasks(TRAIN, (4,), 0, (domain,))[0]
        episode = ENVIRONMENT.start(task)
        files = scenario_of(task).initial_config.get("GorillaFileSystem", {"root": {"root": {"contents": ["x"]}}})
        for text in texts:
            observation = episode.step(text.replace("{file}", next(iter(files["root"]["root"]["contents"]))))
            for message in observation.messages:
                assert set(tokens(message["content"])) <= vocabulary, (text[:80], message)
            if observation.done:
                episode = ENVIRONMENT.start(task)


@pytest.mark.parametrize(
    ("call", "value", "text"),
    [
        ("cat", {"file_content": "blue"}, "'blue'"),
        ("cat", {"file_content": "zzz"}, "none"),
        ("cat", {}, "none"),
        ("cat", None, "none"),
        ("ls", {"current_directory_content": ["notes", "zzz", "docs"]}, "['notes', none, 'docs']"),
        ("mkdir", None, "ok"),
        ("add", {"result": float("nan")}, "none"),
        ("add", {"result": 10**30}, "none"),
        ("add", {"result": 1 / 3}, "0.33"),
        ("add", {"result": -4}, "-4"),
        ("get_user_id", {"user_id": "USR014"}, "'USR014'"),
    ],
)
def test_results_are_one_value(call, value, text):
    assert compact_result(ParsedCall(call), Execution("", value)) == text
    assert compact_result(ParsedCall(call), Execution("", value, failed=True)) == "error"
