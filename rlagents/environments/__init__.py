"""Worlds to act in: plain Python, no jax; importing them never loads it."""
