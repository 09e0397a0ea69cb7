"""Items made ahead of time, in a thread, while the device works on those before."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_END = object()


def prefetched(items: Iterator[T], ahead: int = 2) -> Generator[T, None, None]:
    """Yield ``items`` in their order, ``ahead`` of them being made before they are asked for.

    What making an item raises, comes out in its place. Whoever stops early closes the iterator: the thread ends after
    the item it is at. Raises ValueError, when the first item is asked for, if ``ahead`` is less than 1.
    """
    if ahead < 1:
        raise ValueError(f"ahead is {ahead}; at least one item has to be made ahead.")
    # One thread: an iterator must not be entered twice at a time, and its order is kept.
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
    try:
        waiting = deque(pool.submit(next, items, _END) for _ in range(ahead))
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(pool.submit(next, items, _END))
            yield item  # type: ignore[misc]
    finally:
        pool.shutdown(cancel_futures=True)
