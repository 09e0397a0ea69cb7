"""After warm-up nothing compiles, whatever the lengths, as long as they fall into buckets seen before."""

import contextlib
import random

import jax

from rlagents.sampling import StreamKey
from tests.sampling.support import KEYS, Script, check_member, make_sampler, play


@contextlib.contextmanager
def compilations():
    """Names of the programs compiled meanwhile."""
    found = []

    def listen(event: str, _: float, **details: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(details.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def script(rng: random.Random, index: int) -> Script:
    """Anything that fits: 1 to 4 members, 0 to 16 shared tokens, turns and replies of any length."""

    def some(low: int, high: int) -> list[int]:
        return [rng.randrange(29) for _ in range(rng.randint(low, high))]

    shared = some(0, 16)
    prompts = [shared + some(1, 4) for _ in range(rng.randint(1, 4))]
    replies = [some(0, 7) for _ in range(rng.randint(0, 2))]
    return Script(prompts, StreamKey(0, 0, 0, index), replies, rng.randint(1, 4))


def test_nothing_compiles_after_warm_up():
    sampler = make_sampler(num_groups=3, num_rows=8, decode_rows=3, block_steps=3, largest_group=4)
    with compilations() as warm_up:
        play(sampler, [Script([[1, 2, 3, 4, 5, 6]], KEYS, [[1, 2, 3]])])
        jax.jit(lambda: 0)()
    assert warm_up, "compilations are seen"
    rng = random.Random(0)
    scripts = [script(rng, index) for index in range(12)]
    with compilations() as later:
        played = play(sampler, scripts)
    assert later == []
    assert all(check_member(member) for members in played for member in members)
