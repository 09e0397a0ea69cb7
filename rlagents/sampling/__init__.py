"""Sampling of model turns, many members at once, from a decoder with KV of prefixes and members."""

from rlagents.sampling.keys import Domain, StreamKey
from rlagents.sampling.rows import GroupHandle
from rlagents.sampling.rule import SamplingRule
from rlagents.sampling.sampler import Sampler
from rlagents.sampling.turns import StopReason, Turn

__all__ = ["Domain", "GroupHandle", "Sampler", "SamplingRule", "StopReason", "StreamKey", "Turn"]
