"""Trajectories as compressed pages of an HTML file, and the index that says which group is on which page.

A page of texts holds the messages and facts of some groups, each text once; a page of tokens what is known of every
token of fewer groups. A browser opens a page when it is asked for a trajectory on it, and all pages of texts only to
search them.
"""

import base64
import gzip
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlagents.report.reading import FILES_OF_GROUPS, Run
from rlagents.trajectory_lines import opening_and_said, unpacked

_TEXT_PAGE_BYTES, _TOKEN_PAGE_BYTES = 1 << 20, 1 << 20
"""Of a page before compression, beyond which the next is begun."""

_FACTS = ("condition", "named", "turn_scores", "tool_calls", "tool_successes", "void", "stop_reasons")
_FACTS += ("weight_versions", "truncated", "lost", "tokens")


class Pages:
    """Add groups in order, then ``finish``.

    Attributes:
      index: columns, one entry a group: where it is, and what a table of groups shows of it.
      tasks: names of all tasks; the index has their numbers.
      texts, tokens: the pages, each base64 of a gzipped JSON document.
      size: bytes of all finished pages.
    """

    def __init__(self):
        names = ("run", "phase", "step", "stream", "task", "text_page", "text_place", "token_page", "token_place")
        names += ("rewards", "mean", "std", "lengths", "turns", "lost", "truncated")
        self.index: dict[str, list[Any]] = {name: [] for name in names}
        self.tasks: list[str] = []
        self.texts: list[str] = []
        self.tokens: list[str] = []
        self.size = 0
        self._numbers: dict[str, int] = {}
        self._text_page, self._token_page = _TextPage(), _TokenPage()

    def add(self, run: int, phase: str, line: Mapping[str, Any]) -> None:
        """Add the group of a line (``trajectory_lines.group_line``).

        Raises ValueError, and adds nothing, for a line that is no such group's.
        """
        try:
            row = self._row(run, phase, line)
            opening, said = opening_and_said(line)
            members = [_facts(member, messages) for member, messages in zip(line["members"], said)]
            group = {"opening": _messages(opening), "members": members}
            columns = [_columns(member) for member in line["members"]] if "columns" in line["members"][0] else None
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"no line of a group of trajectories: {type(error).__name__}: {error}") from error
        row["text_page"], row["text_place"] = len(self.texts), self._text_page.add(group)
        row["token_page"], row["token_place"] = -1, -1
        if columns is not None:
            row["token_page"], row["token_place"] = len(self.tokens), self._token_page.add(columns)
        for name, column in self.index.items():
            column.append(row[name])
        if self._text_page.size > _TEXT_PAGE_BYTES:
            self._end_texts()
        if self._token_page.size > _TOKEN_PAGE_BYTES:
            self._end_tokens()

    def finish(self) -> None:
        """End the pages that are still open."""
        if self._text_page.size:
            self._end_texts()
        if self._token_page.size:
            self._end_tokens()

    def _row(self, run: int, phase: str, line: Mapping[str, Any]) -> dict[str, Any]:
        members, task = line["members"], str(line["task"])
        rewards = [_number(member["reward"]) for member in members]
        scored = [reward for reward in rewards if reward is not None]
        row = {"run": run, "phase": phase, "step": int(line["step"]), "stream": int(line["stream"]), "rewards": rewards}
        row["lengths"] = [int(member["tokens"]["model"]) for member in members]
        row["turns"] = _short(statistics.fmean(len(member["stop_reasons"]) for member in members))
        row["lost"] = sum(member["lost"] is not None for member in members)
        row["truncated"] = sum(bool(member["truncated"]) for member in members)
        row["mean"] = _short(statistics.mean(scored)) if scored else None
        row["std"] = _short(statistics.pstdev(scored)) if scored else None
        if task not in self._numbers:
            self._numbers[task] = len(self.tasks)
            self.tasks.append(task)
        row["task"] = self._numbers[task]
        return row

    def _end_texts(self) -> None:
        self._text_page = self._end(self._text_page, self.texts)

    def _end_tokens(self) -> None:
        self._token_page = self._end(self._token_page, self.tokens)

    def _end(self, page: Any, pages: list[str]) -> Any:
        packed = _compressed(page.document())
        pages.append(packed)
        self.size += len(packed)
        return type(page)()


class _TextPage:
    """Groups whose messages name their texts by number."""

    def __init__(self):
        self.size, self._texts, self._groups = 0, {}, []

    def add(self, group: dict[str, Any]) -> int:
        for messages in (group["opening"], *(member["messages"] for member in group["members"])):
            for message in messages:
                message["content"] = self._number_of(message["content"])
                self.size += 20
        self.size += 300 * len(group["members"])
        self._groups.append(group)
        return len(self._groups) - 1

    def document(self) -> Any:
        return {"texts": list(self._texts), "groups": self._groups}

    def _number_of(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts)
            self.size += len(text)
        return self._texts[text]


class _TokenPage:
    """Pieces and columns of every member of groups."""

    def __init__(self):
        self.size, self._groups = 0, []

    def add(self, members: list[dict[str, Any]]) -> int:
        for member in members:
            self.size += sum(len(piece) + 3 for piece in member["pieces"])
            self.size += sum(map(len, member["columns"].values()))
        self._groups.append(members)
        return len(self._groups) - 1

    def document(self) -> Any:
        return self._groups


def _messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": str(message["role"]), "content": str(message["content"])} for message in messages]


def _facts(member: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: member[name] for name in _FACTS} | {"messages": _messages(messages)}


def _columns(member: Mapping[str, Any]) -> dict[str, Any]:
    unpacked(member)  # refuses what is damaged
    return {"pieces": list(map(str, member["pieces"])), "columns": dict(member["columns"])}


def _number(value: Any) -> float | None:
    """Of a lost trajectory there is none; "nan" is none to compute with."""
    return None if value is None or isinstance(value, str) else _short(value)


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _compressed(document: Any) -> str:
    """ASCII throughout: a lone surrogate is no UTF-8."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), 6, mtime=0)).decode("ascii")


def kept(total: int, share: float) -> Sequence[bool]:
    """Which of ``total`` groups are kept, evenly spread, where only a ``share`` of them may be."""
    return [int((number + 1) * share) > int(number * share) for number in range(total)]


def fitting_pages(runs: Sequence[Run], max_bytes: int) -> tuple[Pages, dict[int, list[str]]]:
    """All groups of ``runs`` in pages, or as many, evenly spread, as take at most ``max_bytes``.

    Also returns, by number of the run, the file of each line that holds no group.
    """
    share = 1.0
    while True:
        pages, damaged, whole = _of_share(runs, share, 2 * max_bytes)
        if whole and pages.size <= max_bytes:
            return pages, damaged
        # Sizes go with the number of groups, nearly.
        reached = (
            max_bytes / pages.size * len(pages.index["run"]) / max(1, sum(sum(run.counts.values()) for run in runs))
        )
        share = min(0.97 * reached, 0.9 * share) if len(pages.index["run"]) > 1 else 0.0


def _of_share(runs: Sequence[Run], share: float, enough: int) -> tuple[Pages, dict[int, list[str]], bool]:
    """Pages of a share of the groups, ended at ``enough`` bytes; whether that was all of the share."""
    pages, damaged = Pages(), {}
    for number, run in enumerate(runs):
        for phase, file in FILES_OF_GROUPS.items():
            for line, wanted in zip(run.groups(phase), kept(run.counts[phase], share)):
                if pages.size > enough:
                    pages.finish()
                    return pages, damaged, False
                if wanted:
                    try:
                        pages.add(number, phase, line)
                    except ValueError:
                        damaged.setdefault(number, []).append(file)
    pages.finish()
    return pages, damaged, True
