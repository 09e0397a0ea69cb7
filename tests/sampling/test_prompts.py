"""The shared prefix is the longest common one, less its last token."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rlagents.sampling.prompts import split_prompts

prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=5)


@given(prompts)
def test_prefix_and_tails_make_up_the_prompts(prompts):
    prefix, tails = split_prompts(prompts)
    assert [prefix + tail for tail in tails] == prompts
    assert min(map(len, tails)) >= 1


@given(prompts)
def test_as_much_is_shared_as_can_be(prompts):
    prefix, tails = split_prompts(prompts)
    one_more, two_more = ({tuple(tail[:n]) for tail in tails} for n in (1, 2))
    assert len(two_more) > 1 or min(map(len, tails)) == 1
    assert len(one_more) == 1 or not prefix


@pytest.mark.parametrize(("prompts", "message"), [([], "at least one member"), ([[1], []], "member 1 is empty")])
def test_nothing_to_predict_from_is_refused(prompts, message):
    with pytest.raises(ValueError, match=message):
        split_prompts(prompts)
