"""The procedural environment with a reward that even a random policy gets now and then. Imports no jax."""

from collections.abc import Sequence

from rlagents.environments.bfcl import BfclEnvironment
from rlagents.facts import Outcome, Task, Transcript


class RewardedByLength(BfclEnvironment):
    """Rewards an even number of characters."""

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        written = [sum(len(message["content"]) for message in transcript.messages) for transcript in transcripts]
        return [Outcome(float(count % 2 == 0)) for count in written]
