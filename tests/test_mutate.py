"""The tests notice wrong code: ten of the edits of tests/mutations.py here, all of all lists with --full."""

import pytest

from tests.browser import browser_path
from tests.effort import draws
from tests.mutate import ALL, ROOT, MutationError, edited, killed, main
from tests.mutations import FEW, MUTATIONS, Mutation
from tests.mutations_of_models import MUTATIONS_OF_MODELS
from tests.mutations_of_runs import MUTATIONS_OF_RUNS

SOME = [mutation for mutation in ALL if draws(1) > 1 or mutation.old in FEW]


@pytest.mark.parametrize("mutation", SOME, ids=lambda m: f"{m.file.rpartition('/')[2][:-3]}: {m.new}")
def test_a_wrong_edit_is_noticed(mutation):
    if mutation.file.endswith(".js") and browser_path() is None:
        pytest.skip("there is no browser that could notice it")
    assert killed(mutation)


def test_the_lists_are_what_they_say():
    assert len(MUTATIONS) >= 40
    assert len(MUTATIONS_OF_RUNS) >= 40
    assert len(MUTATIONS_OF_MODELS) >= 20
    assert {mutation.old for mutation in MUTATIONS} >= set(FEW)
    assert len(FEW) == 10
    for mutation in ALL:
        before = (ROOT / mutation.file).read_text(encoding="utf-8")
        assert edited(before, mutation) != before
        if mutation.file.endswith(".py"):
            compile(edited(before, mutation), mutation.file, "exec")


def test_an_edit_that_changes_nothing_survives_and_one_that_is_none_is_an_error(capsys):
    harmless = MUTATIONS[0]._replace(new=MUTATIONS[0].old + " ")
    assert not killed(harmless._replace(chosen="log_ratio"))
    with pytest.raises(MutationError, match="0 times; expected 1"):
        killed(harmless._replace(old="nothing of the kind"))
    with pytest.raises(MutationError, match="ended with code 5"):
        killed(harmless._replace(chosen="no_such_test"))
    with pytest.raises(MutationError, match=r"does not run: .*NameError"):
        killed(harmless._replace(new="nobody(count)", chosen="masked_statistics"))
    assert main(["no such word"]) == 2
    assert "no edit has all of the words" in capsys.readouterr().out


def test_an_edit_whose_tests_are_skipped_is_an_error(tmp_path, monkeypatch):
    """Where there is no browser, nothing is said of what only a browser notices."""
    test = "import pytest\ndef test_one():\n    pytest.skip('no browser')\n"
    for name, text in {"rlagents/one.py": "ONE = 1\n", "tests/test_one.py": test, "experiments/two.py": ""}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr("tests.mutate.ROOT", tmp_path)
    with pytest.raises(MutationError, match=r"(?s)were skipped:.*no browser"):
        killed(Mutation("rlagents/one.py", "1", "2", "tests/test_one.py", "one"))
