"""How many examples a property test draws: ``launch/test.sh --full`` sets ``RLAGENTS_TEST_EFFORT``, a factor."""

import os

_EFFORT = int(os.environ.get("RLAGENTS_TEST_EFFORT", "1"))


def draws(count: int) -> int:
    """``count`` in a usual run of the suite."""
    return count * _EFFORT
