"""The tests notice wrong formulas: ten of the edits of tests/mutations.py here, all of them with --full."""

import pytest

from tests.effort import draws
from tests.mutate import ROOT, MutationError, edited, killed, main
from tests.mutations import FEW, MUTATIONS

SOME = [mutation for mutation in MUTATIONS if draws(1) > 1 or mutation.old in FEW]


@pytest.mark.parametrize("mutation", SOME, ids=lambda m: f"{m.file.rpartition('/')[2][:-3]}: {m.new}")
def test_a_wrong_edit_is_noticed(mutation):
    assert killed(mutation)


def test_the_list_is_what_it_says():
    assert len(MUTATIONS) >= 40
    assert {mutation.old for mutation in MUTATIONS} >= set(FEW)
    assert len(FEW) == 10
    for mutation in MUTATIONS:
        before = (ROOT / mutation.file).read_text(encoding="utf-8")
        assert edited(before, mutation) != before
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
