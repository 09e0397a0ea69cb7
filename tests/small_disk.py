"""A checkpoint written to a disk of a few pages: ``python -m tests.small_disk DIRECTORY`` on a small tmpfs.

One whole checkpoint is written; then the disk is filled up to 0, 1, 2, ... pages, and another is tried. Prints a JSON
line for each number of pages: what was said, and what is there afterwards, before and after room is made.
"""

import json
import os
import sys
from pathlib import Path

from rlagents.checkpoints import CheckpointError, Checkpoints, RunRecord, folders
from tests.test_checkpoints import bits, new_state, step_and_shardings, target


def outcome(directory: Path, pages: int) -> dict[str, object]:
    """Of a checkpoint of step 2 with room for so many pages; there is one of step 1."""
    _, shardings = step_and_shardings()
    said = None
    filler = directory.parent / "filler"
    with filler.open("wb") as file:
        space = os.statvfs(directory)
        os.posix_fallocate(file.fileno(), 0, max(space.f_bfree - pages, 1) * space.f_bsize)
    try:
        with Checkpoints(directory) as checkpoints:
            checkpoints.save(2, new_state(shardings, 1), RunRecord({"prompts": 2}, pending={"groups": [[0.5]] * 500}))
            checkpoints.wait()
    except CheckpointError as error:
        said = str(error)
    finally:
        filler.unlink()
    names = sorted(path.name for path in directory.iterdir())
    with Checkpoints(directory) as checkpoints:
        step, damaged = checkpoints.newest()
        state, record = checkpoints.restore(target(shardings), step)
        right = bits(state) == bits(new_state(shardings, (step or 0) - 1)) and record.position == {"prompts": step}
        if step == 1:
            checkpoints.save(2, new_state(shardings, 1), RunRecord({"prompts": 2}))
        again = checkpoints.newest().step
    return {
        "pages": pages,
        "said": said,
        "names": names,
        "newest": step,
        "damaged": damaged,
        "right": right,
        "with room": again,
    }


def main(directory: Path) -> None:
    """Until a checkpoint fits."""
    _, shardings = step_and_shardings()
    with Checkpoints(directory) as checkpoints:
        checkpoints.save(1, new_state(shardings), RunRecord({"prompts": 1}))
    pages, found = 0, {"newest": 1}
    while found["newest"] == 1:
        found = outcome(directory, pages)
        print(json.dumps(found), flush=True)
        pages += 1
        if found["newest"] == 1:
            folders.delete(directory, 2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
