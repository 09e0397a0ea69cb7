"""Checkpoints: the whole train state and where the run stood, written so that a broken write is no checkpoint."""

from rlagents.checkpoints.errors import CheckpointError
from rlagents.checkpoints.named import check_params_of, params_of
from rlagents.checkpoints.options import CheckpointOptions
from rlagents.checkpoints.record import RunRecord
from rlagents.checkpoints.store import Checkpoints

__all__ = ["CheckpointError", "CheckpointOptions", "Checkpoints", "RunRecord", "check_params_of", "params_of"]
