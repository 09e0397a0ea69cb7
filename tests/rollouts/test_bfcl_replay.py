"""All 800 official tasks through the rollout loop: sampler protocol, chat buffer, environment, group scoring."""

import pytest

from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.driver import StreamTask, rollout
from rlagents.rollouts.local_pool import LocalPool
from rlagents.rollouts.members import Limits
from rlagents.types import Kind
from tests.rollouts.fakes import FakeSampler
from tests.rollouts.tiny import CHATML, tokenizer

LIMITS = Limits(max_turns=200, max_turn_tokens=10_000, max_response_tokens=300_000, max_prompt_tokens=100_000)


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_truth_of_every_official_task_is_rewarded_at_the_end_of_the_loop(category):
    environment, chat = BfclEnvironment(), Chat(tokenizer(), CHATML)
    tasks = official_tasks(category)
    texts = [[text for turn in environment.expert(task) for text in turn] for task in tasks]
    sampler = FakeSampler(chat, lambda stream, member, turn: texts[stream][turn], num_rows=2, max_member_tokens=400_000)
    result = rollout(
        [StreamTask(index, task) for index, task in enumerate(tasks)],
        sampler=sampler,
        chat=chat,
        pool=LocalPool(environment),
        group_size=1,
        limits=LIMITS,
        run=0,
        step=0,
    )
    assert len(result.groups) == 200
    for (member,) in result.groups:
        assert (member.outcome.reward, member.outcome.named["official"]) == (1.0, 1.0), member.task_id
        assert not member.truncated
        said = chat.decode([token for token, kind in zip(member.token_ids, member.kinds) if kind == Kind.MODEL])
        assert said == "".join(f"{text}<|im_end|>" for text in texts[member.stream])
