"""Write one self-contained HTML file about one run or several.

    python -m rlagents.report DIR... [--output FILE] [--max_megabytes N]

Each DIR is the folder of a run, finished or not. The file (DIR/report.html of the first DIR by default) opens in a
browser without a network. Runs whose configs differ in nothing but ``seed`` are drawn as one, with a band.
"""

import argparse
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rlagents.report.document import check_output, write_report
from rlagents.report.reading import NoRunError, check_run, read_run


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 0, or 2 for what the user has to mend, said in a line on stderr."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as ended:  # argparse has said why
        return int(ended.code or 0)
    output = options.output or options.folders[0] / "report.html"
    try:
        if not 0 < options.max_megabytes < math.inf:
            raise ValueError(f"--max_megabytes is {options.max_megabytes:g}; give a number > 0")
        names = _names(options.folders)
        for folder in options.folders:
            check_run(folder)
        check_output(output)
        runs = [read_run(folder, name) for folder, name in zip(options.folders, names)]
        written = write_report(output, runs, max_bytes=int(options.max_megabytes * 1e6))
    except (NoRunError, ValueError, OSError) as error:
        _print(f"rlagents.report: {error}", sys.stderr)
        return 2
    _print(f"wrote {output} ({output.stat().st_size / 1e6:.1f} MB): {written}")
    return 0


def _print(text: str, stream: TextIO | None = None) -> None:
    """Names of folders may have characters that a terminal does not."""
    stream = stream or sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rlagents.report", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folders", metavar="DIR", nargs="+", type=Path, help="the folder of a run")
    parser.add_argument("--output", metavar="FILE", type=Path, help="default: report.html in the first DIR")
    parser.add_argument(
        "--max_megabytes",
        metavar="N",
        type=float,
        default=100.0,
        help="of trajectories (10^6 bytes, default 100); of more, groups evenly spread over steps are kept",
    )
    return parser


def _names(folders: Sequence[Path]) -> list[str]:
    """As much of each folder's path, from its end, as tells it from the others."""
    paths = [Path(os.path.realpath(folder)) for folder in folders]  # resolve() fails where links go in circles
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise ValueError("the same DIR is given twice; give each once")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
