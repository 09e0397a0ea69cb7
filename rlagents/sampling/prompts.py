"""From the members' prompts to one shared prefix and what each member holds of its own."""

from collections.abc import Sequence


def split_prompts(prompts: Sequence[Sequence[int]], *, share: bool = True) -> tuple[list[int], list[list[int]]]:
    """Split off the longest common prefix, less its last token.

    ``prefix ++ tails[i] == prompts[i]``, and every tail holds at least one token: the one to predict from. Where
    ``share`` is False, the prefix is empty.

    Raises:
      ValueError: no prompt at all, or an empty one.
    """
    if not prompts:
        raise ValueError("a group needs at least one member; got no prompts")
    for member, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"the prompt of member {member} is empty; a model turn needs a token to predict from")
    common = 0
    # Of the sorted prompts the first and the last differ earliest.
    for first, last in zip(min(map(list, prompts)), max(map(list, prompts)), strict=False):
        if first != last:
            break
        common += 1
    shared = max(common - 1, 0) if share else 0
    return list(prompts[0][:shared]), [list(prompt[shared:]) for prompt in prompts]


def check_ids(token_ids: Sequence[int], what: str, vocab_size: int) -> None:
    """Raise ValueError for an id outside the vocabulary."""
    for token in token_ids:
        if not 0 <= token < vocab_size:
            raise ValueError(f"{what}: token id {token} is outside the vocabulary [0, {vocab_size})")
