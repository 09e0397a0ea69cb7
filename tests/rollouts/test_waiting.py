"""With ``wait_for_tools`` the sampler is asked for the same things in the same order, whoever answers first."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.rollouts.local_pool import LocalPool
from tests.effort import draws
from tests.rollouts.fakes import FakeSampler, SlowPool
from tests.rollouts.playing import CHAT, ENVIRONMENT, run, tasks


def script(stream, member, turn):
    return f"add {stream + member + turn}" if turn < (stream + 2 * member) % 4 else "done"


def calls(pool, **options):
    """What the sampler was asked for, in order, and the rollout."""
    sampler, stream = FakeSampler(CHAT, script, num_groups=3, num_rows=6, stops=True), tasks(*[{}] * 5)
    asked, step = [], sampler.step

    def told():
        asked.append(len(sampler.requests))
        return step()

    sampler.step = told
    result = run(None, stream, sampler=sampler, pool=pool, **options)
    return (asked, sampler.requests, [keys for keys, _ in sampler.opened]), result


@given(seed=st.integers(0, 10_000), needed=st.none() | st.integers(10, 14))
@settings(max_examples=draws(15), deadline=None)
def test_nothing_depends_on_time(seed, needed):
    """Which requests, before which step of the sampler; also where groups are stopped early."""

    def last_needed(groups):
        return needed if needed in groups else None

    at_once, expected = calls(LocalPool(ENVIRONMENT), wait_for_tools=True, last_needed=last_needed)
    late, found = calls(SlowPool(ENVIRONMENT, seed), wait_for_tools=True, last_needed=last_needed)
    assert late == at_once
    assert found == expected


def test_without_it_the_order_depends_on_who_is_ready_first():
    """So the test above can see it."""
    found = {str(calls(SlowPool(ENVIRONMENT, seed))[0]) for seed in range(5)}
    assert len(found) > 1
