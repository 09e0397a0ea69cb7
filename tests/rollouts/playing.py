"""What the tests of the rollout loop share: a chat, limits, and a loop over a sampler that says what it is told."""

from rlagents.facts import Task
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.driver import StreamTask, rollout
from rlagents.rollouts.local_pool import LocalPool
from rlagents.rollouts.members import Limits
from tests.rollouts.fakes import FakeSampler
from tests.rollouts.tiny import CHATML, tokenizer
from tests.rollouts.worlds import CountingEnvironment

CHAT = Chat(tokenizer(), CHATML)
LIMITS = Limits(max_turns=8, max_turn_tokens=64, max_response_tokens=400, max_prompt_tokens=200)
ENVIRONMENT = CountingEnvironment()


def tasks(*payloads, first=10):
    return [StreamTask(first + n, Task(f"task {first + n}", payload)) for n, payload in enumerate(payloads)]


def play(*turns):
    """A script in which every member says these turns."""
    return lambda stream, member, turn: turns[turn]


def run(script, stream_tasks=None, *, limits=LIMITS, pool=None, sampler=None, group_size=2, **keywords):
    sampler = sampler or FakeSampler(CHAT, script)
    result = rollout(
        tasks({}) if stream_tasks is None else stream_tasks,
        sampler=sampler,
        chat=CHAT,
        pool=pool or LocalPool(ENVIRONMENT),
        group_size=group_size,
        limits=limits,
        run=1,
        step=2,
        **keywords,
    )
    assert not sampler.handles, "a group was left open"
    return result


def text_of(trajectory, *kinds):
    return CHAT.decode([token for token, kind in zip(trajectory.token_ids, trajectory.kinds) if kind in kinds])
