"""A folder belongs to one run; what differs is named and nothing is overwritten."""

import json

import pytest
from ml_collections import ConfigDict

from rlagents.workdir import claim_workdir, differing_keys

CONFIG = {"seed": 0, "rl": {"steps": 3, "buckets": (1, 2)}}


def test_the_same_config_may_come_back(tmp_path):
    claim_workdir(tmp_path / "run", ConfigDict(CONFIG))
    claim_workdir(tmp_path / "run", ConfigDict(CONFIG))
    assert json.loads((tmp_path / "run" / "config.json").read_text())["rl"]["steps"] == 3


def test_another_config_is_refused_with_the_keys_that_differ(tmp_path):
    claim_workdir(tmp_path / "run", ConfigDict(CONFIG))
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(ValueError, match=r"rl\.steps is 4, was 3"):
        claim_workdir(tmp_path / "run", ConfigDict({"seed": 0, "rl": {"steps": 4, "buckets": (1, 2)}}))
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_a_folder_of_something_else_is_refused_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="is not empty"):
        claim_workdir(tmp_path, ConfigDict(CONFIG))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_keys_on_one_side_alone_differ_too():
    assert differing_keys({"a": {"b": 1}}, {"a": {"c": None}}) == ["a.b is absent, was 1", "a.c is None, was absent"]
