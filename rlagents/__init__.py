"""rlagents: group-relative reinforcement learning of language-model agents, in JAX.

Importing the package imports nothing heavy; take what you need from its modules:

    from rlagents.methods import recipes
    from rlagents.types import LogProbs, Masks, Rewards
"""

__version__ = "0.1.0"
