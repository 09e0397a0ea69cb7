"""``--config.help`` names every key there is, with default, unit and meaning; a stored config can be run again."""

import json
import re

import pytest
from ml_collections import ConfigDict

from experiments.quickstart import procedural
from experiments.rc_grpo import bfcl
from experiments.rc_grpo import procedural as rc_grpo
from rlagents import command_line
from rlagents.config_defaults import complete, defaults
from rlagents.config_help import described, leaves
from rlagents.config_meanings import MEANINGS
from rlagents.config_sections import arguments_of_sections
from rlagents.stored_config import read_stored_config
from tests.test_train import CONFIG_FILE, ROOT

SHIPPED = {
    "experiments/quickstart/procedural.py": (procedural, None),
    **{f"experiments/rc_grpo/bfcl.py:{variant}": (bfcl, variant) for variant in bfcl.VARIANTS},
    **{f"experiments/rc_grpo/procedural.py:{variant}": (rc_grpo, variant) for variant in rc_grpo.VARIANTS},
}
NO_KEYS = {"workers.rules"}
"""An object, for programs in Python."""


def keys_of(module, argument):
    config = module.get_config() if argument is None else module.get_config(argument)
    complete(config)
    return set(leaves(config))


@pytest.fixture
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def parsed(file):
    return command_line._load(str(file))


def test_every_shipped_config_file_is_looked_at():
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "experiments").rglob("*.py")}
    with_config = {file for file in files if "def get_config" in (ROOT / file).read_text()}
    assert with_config == {name.partition(":")[0] for name in SHIPPED}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_key_of_a_shipped_config_has_a_meaning(name):
    module, argument = SHIPPED[name]
    assert keys_of(module, argument) - MEANINGS.keys() - module.MEANINGS.keys() == set()
    assert not module.MEANINGS.keys() & MEANINGS.keys()


def test_every_meaning_is_some_key_s():
    in_files = set().union(*(keys_of(module, argument) for module, argument in SHIPPED.values()))
    arguments = {f"{section}.{key}" for section, keys in arguments_of_sections().items() for key in keys} - NO_KEYS
    noted = {"experiment.file", "experiment.argument"}
    assert MEANINGS.keys() - in_files - arguments - noted == set()
    assert arguments - MEANINGS.keys() == set()
    for module, argument in SHIPPED.values():
        own = set().union(*(keys_of(other, each) for other, each in SHIPPED.values() if other is module))
        assert module.MEANINGS.keys() - own == set(), argument


def test_meanings_are_sentences_with_units():
    for key, (unit, text) in MEANINGS.items():
        assert re.match(r"[A-Z'0-9]|[a-z_]+: ", text), key  # an alarm's name begins what is said of its threshold
        assert text.endswith("."), key
        assert unit == unit.strip(), key


@pytest.mark.parametrize("option", command_line.HELP_OPTIONS)
def test_help_prints_every_key_with_default_unit_and_meaning_and_exits_with_0(option, at_the_root, capsys):
    with pytest.raises(SystemExit) as exited:
        command_line.parse_flags(["rlagents/train.py", f"--config={CONFIG_FILE}", option])
    assert exited.value.code == 0
    printed = capsys.readouterr().out
    config = parsed(CONFIG_FILE)
    shown = {match[1]: (match[2], match[3]) for match in re.finditer(r"^  (\S+) = (.*?)(?: \[(.*)\])?$", printed, re.M)}
    assert shown.keys() == leaves(config).keys()
    for key, value in leaves(config).items():
        unit, text = (MEANINGS | procedural.MEANINGS)[key]
        assert shown[key] == (repr(value), unit or None)
        assert text in " ".join(printed.split())
    # Also what the file leaves to its default.
    assert shown["workers.worker_memory_bytes"] == (str(8 << 30), "bytes")


def test_help_without_a_file_lists_what_programs_know(capsys):
    with pytest.raises(SystemExit) as exited:
        command_line.parse_flags(["rlagents/train.py", "--config.help"])
    assert exited.value.code == 0
    printed = capsys.readouterr().out
    assert all(re.search(rf"^  {re.escape(key)}( |$)", printed, re.M) for key in MEANINGS)


def test_a_key_without_a_meaning_is_listed_too():
    text = described(ConfigDict({"mine": 3}), {})
    assert "mine = 3" in text
    assert "its MEANINGS do not say" in text


def test_a_file_of_no_config_is_told_by_help(tmp_path, capsys):
    (tmp_path / "bad.py").write_text("def get_config(): return 3\n")
    for file in ("bad.py", "nowhere.py"):
        with pytest.raises(SystemExit) as exited:
            command_line.parse_flags(["rlagents/train.py", f"--config={tmp_path / file}", "--config.help"])
        assert exited.value.code == 2
        assert file in capsys.readouterr().err


def test_what_a_file_leaves_out_is_written_into_its_config_and_can_be_set(at_the_root):
    config = parsed(CONFIG_FILE)
    assert config.workers.worker_memory_bytes == defaults()["workers.worker_memory_bytes"]
    assert config.rule.top_k is None
    config.rule.top_k = 5
    assert "rules" not in config.workers
    assert config.experiment.to_dict() == {"file": CONFIG_FILE, "argument": None}


def test_what_a_file_says_is_not_written_over():
    config = ConfigDict({"workers": {"max_retries": 0, "retry_seconds": 9.0}})
    complete(config)
    assert (config.workers.max_retries, config.workers.retry_seconds) == (0, 9.0)
    assert config.workers.worker_memory_bytes == defaults()["workers.worker_memory_bytes"]


def test_a_stored_config_is_the_config_that_was_stored(at_the_root, tmp_path):
    config = parsed("experiments/rc_grpo/bfcl.py:smollm2-135m")
    assert config.experiment.argument == "smollm2-135m"
    config.rl.steps = 7
    stored = tmp_path / "config.json"
    stored.write_text(config.to_json())
    again = parsed(stored)
    assert json.loads(again.to_json()) == json.loads(config.to_json())
    assert again.rl.steps == 7
    assert again.buckets.prefix_buckets == (1664, 2432)
    assert again.is_locked
    again.rl.members_per_micro_batch = 2  # None takes any value, as it did


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"seed": 0', "is damaged"),
        ("[1]", "does not say which config file built it"),
        ('{"seed": 0}', "does not say which config file built it"),
        ('{"experiment": {"file": "gone.py"}}', "was built by gone.py, which is not there"),
        (None, "cannot be read"),
    ],
)
def test_a_stored_config_that_cannot_be_run_is_refused(text, said, tmp_path):
    file = tmp_path / "config.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_stored_config(file)


def test_a_config_may_not_have_the_key_that_programs_write(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from ml_collections import ConfigDict\ndef get_config(): return ConfigDict({'experiment': 1})\n")
    with pytest.raises(ValueError, match="has a key 'experiment'"):
        parsed(file)
