"""Problems of a config, collected, so that a person gets all of them at once and not one a start."""

import difflib
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_CONSEQUENCES = (TypeError, KeyError, AttributeError, IndexError, ArithmeticError)
"""What a check may raise whose keys are missing, or hold what another check has already refused."""


class ConfigError(ValueError):
    """All that is wrong, as far as it can be seen together; its text has a line a problem.

    Attributes:
      lines: the problems, each one line.
    """

    def __init__(self, lines: Iterable[str]):
        self.lines = tuple(lines)
        listed = "".join(f"\n  - {line}" for line in self.lines)
        super().__init__(self.lines[0] if len(self.lines) == 1 else f"{len(self.lines)} problems:{listed}")


class Problems:
    """Runs checks one after the other and keeps what they refuse.

    Attributes:
      lines: problems so far, in the order in which they were found, each once.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, *lines: str) -> None:
        """Keep problems."""
        self.lines += [line for line in dict.fromkeys(lines) if line not in self.lines]

    def ask(self, check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Run a check that raises ValueError for what it refuses; returns what it returns, None where it refused.

        Once there are problems, a check that fails otherwise has met one of them again, and is left out.
        """
        try:
            return check(*args, **kwargs)
        except ConfigError as error:
            self.note(*error.lines)
        except ValueError as error:
            self.note(str(error))
        except _CONSEQUENCES:
            if not self.lines:
                raise
        return None

    def about(self, *names: str) -> bool:
        """Whether a problem so far is about one of these keys, or about a key of one of these sections.

        A problem begins with the key that it is about.
        """
        return any(line.startswith((f"{name} ", f"{name}.", f"{name}:")) for line in self.lines for name in names)

    def refuse(self) -> None:
        """Raise :class:`ConfigError` if there are any."""
        if self.lines:
            raise ConfigError(self.lines)


def near_match(name: str, known: Iterable[str]) -> str:
    """``" Did you mean rl.steps?"`` for a name that resembles a known one; "" for one that resembles none."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {found[0]}?" if found else ""
