"""Padding anywhere changes nothing: transformers with its masks is the judge, for every family."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlagents.models.huggingface import load_pretrained
from tests.models.test_huggingface import THEIRS, TOKENS, random_model, their_logits
from tests.models.tiny import full_logits, relative_error

LENGTHS = (13, 9)


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_ragged_rows_equal_their_masked_ones(name, side, tmp_path):
    model = random_model(THEIRS[name])
    model.save_pretrained(tmp_path)
    config, params = load_pretrained(tmp_path, dtype=jnp.float32)
    width = 16
    theirs, mask = np.full((2, width), 7), np.zeros((2, width), int)
    ours = np.full((2, width), 7)
    for row, length in enumerate(LENGTHS):
        start = width - length if side == "left" else 0
        theirs[row, start : start + length] = ours[row, :length] = TOKENS[row, :length]
        mask[row, start : start + length] = 1
    wanted, found = their_logits(model, theirs, mask), full_logits(config, params, ours)
    for row, length in enumerate(LENGTHS):
        start = width - length if side == "left" else 0
        assert relative_error(found[row, :length], wanted[row, start : start + length]) < 1e-5
