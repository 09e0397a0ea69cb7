"""One turn for each of many prompts: the simplest use of a sampler, and an example of its event loop."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlagents.sampling.keys import StreamKey
from rlagents.sampling.rows import GroupHandle
from rlagents.sampling.turns import Turn

if TYPE_CHECKING:
    from rlagents.sampling.sampler import Sampler


def generate(
    sampler: "Sampler", prompts: Sequence[Sequence[int]], max_new_tokens: int, *, keys: StreamKey, members: int
) -> list[list[Turn]]:
    """``result[i][j]`` is the turn of member ``j`` for prompt ``i``, drawn with ``keys`` at ``stream + i``.

    Prompts beyond the free slots wait; a slot whose group is finished takes the next.
    """
    waiting = deque(enumerate(prompts))
    handles: dict[int, GroupHandle] = {}
    whose: dict[int, tuple[int, int]] = {}
    results: dict[tuple[int, int], Turn] = {}
    try:
        while waiting or handles:
            # Where nothing is open, opening must work or say why not.
            while waiting and (not handles or sampler.can_open(members)):
                index, prompt = waiting.popleft()
                handle = sampler.open_group([prompt] * members, keys._replace(stream=keys.stream + index))
                handles[index] = handle
                for member, row in enumerate(handle.rows):
                    whose[row] = index, member
                    sampler.request(row, max_new_tokens)
            for turn in sampler.step():
                results[whose.pop(turn.row)] = turn
            unfinished = {index for index, _ in whose.values()}
            for index in [index for index in handles if index not in unfinished]:
                sampler.close_group(handles.pop(index))
    finally:
        for handle in handles.values():
            sampler.close_group(handle)
    return [[results[index, member] for member in range(members)] for index in range(len(prompts))]
