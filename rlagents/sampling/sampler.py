"""The sampler: many members in flight, model turns and given tokens in any order, one fixed set of shapes.

    sampler = Sampler(config, params, decode_text=..., stop_token_ids=..., num_groups=16, num_rows=128, ...)
    group = sampler.open_group(prompts, StreamKey(Domain.TRAIN, run, step, stream))
    for row in group.rows:
        sampler.request(row, max_new_tokens=256)
    while unfinished:
        for turn in sampler.step():            # prefills, given tokens, one block of decoding
            ...                                # run the tool; meanwhile other rows go on
            sampler.append(turn.row, observation)
            sampler.request(turn.row, max_new_tokens=256)
    sampler.close_group(group)

History is never computed again: a turn continues from the KV of the turns before it.
"""

from collections.abc import Sequence

from jax.sharding import Mesh

from rlagents.models.config import DecoderConfig
from rlagents.sampling.device import Device
from rlagents.sampling.generate import generate
from rlagents.sampling.keys import Domain, StreamKey
from rlagents.sampling.pipeline import Pipeline, check_blocks_in_flight
from rlagents.sampling.progress import Ending, Progress
from rlagents.sampling.prompts import check_ids
from rlagents.sampling.rows import GroupHandle, Table
from rlagents.sampling.rule import SamplingRule
from rlagents.sampling.sizes import sizes_of
from rlagents.sampling.stops import DecodeText
from rlagents.sampling.turns import StopReason, Turn
from rlagents.sharding import single_device_mesh
from rlagents.types import Params


class Sampler:
    """Samples model turns of many members at once.

    Args:
      config: of the decoder.
      params: its weights; copied.
      decode_text: token ids to text, for stop strings and ``Turn.text``.
      stop_token_ids: ids that end a turn.
      stop_strings: texts that end a turn, searched in the turn's own text.
      num_groups: groups open at once; each holds one prefix slot.
      num_rows: members open at once.
      decode_rows: members decoded at once; may be fewer than ``num_rows``, since those that wait for tools need none.
      max_prefix_tokens: room for a group's shared prefix.
      max_member_tokens: room for a member's own tokens: its part of the prompt, observations and model turns.
      extend_rows: rows that given tokens are fed to at once; None means up to 16.
      extend_chunk_tokens: given tokens that are fed to a row at once.
      prefill_groups: prefixes computed at once.
      largest_group: members of the largest group that will come; a larger one is taken too, and compiles anew.
      block_steps: tokens decoded between two looks of the host.
      blocks_in_flight: 2 sends the next block before the host looks at the one under way, 1 afterwards; the tokens are
        the same (:mod:`rlagents.sampling.pipeline`).
      share_prefix: False gives every member its whole prompt, as does ``max_prefix_tokens`` 0; the tokens are the same.
      few_query_attention: attention of decode steps with the keys on the left of the product
        (:mod:`rlagents.sampling.attention`); False computes it as everywhere else.
      rule: temperature and truncation.
      mesh: devices to spread over (``rlagents.sharding``); None is the first local one. Slots and rows must divide
        over ``data x fsdp``.
      version: of ``params``.

    Raises:
      ValueError: sizes that are no whole numbers from 1 on, more rows decoded than there are, another number of blocks
        in flight than 1 and 2, a stop id outside the vocabulary, an empty stop string.
    """

    def __init__(
        self,
        config: DecoderConfig,
        params: Params,
        *,
        decode_text: DecodeText,
        stop_token_ids: Sequence[int],
        stop_strings: Sequence[str] = (),
        num_groups: int,
        num_rows: int,
        decode_rows: int,
        max_prefix_tokens: int,
        max_member_tokens: int,
        extend_rows: int | None = None,
        extend_chunk_tokens: int = 64,
        prefill_groups: int = 1,
        largest_group: int = 1,
        block_steps: int = 16,
        blocks_in_flight: int = 2,
        share_prefix: bool = True,
        few_query_attention: bool = True,
        rule: SamplingRule = SamplingRule(),  # noqa: B008 (frozen)
        mesh: Mesh | None = None,
        version: int = 0,
    ):
        self._vocab_size = config.vocab_size
        check_ids(stop_token_ids, "stop_token_ids", config.vocab_size)
        if "" in stop_strings:
            raise ValueError("a stop string is empty, which every text holds; remove it")
        check_blocks_in_flight(blocks_in_flight)
        max_prefix_tokens = max_prefix_tokens if share_prefix else 0
        sizes = sizes_of(
            num_groups=num_groups,
            num_rows=num_rows,
            decode_rows=decode_rows,
            extend_rows=extend_rows,
            prefill_groups=prefill_groups,
            max_prefix_tokens=max_prefix_tokens,
            max_member_tokens=max_member_tokens,
            extend_chunk_tokens=extend_chunk_tokens,
            block_steps=block_steps,
        )
        self._decode_text = decode_text
        self._stop_strings = tuple(stop_strings)
        self._table = Table(
            num_groups=num_groups,
            num_rows=num_rows,
            max_prefix_tokens=max_prefix_tokens,
            max_member_tokens=max_member_tokens,
        )
        self._device = Device(
            config,
            single_device_mesh() if mesh is None else mesh,
            sizes,
            rule,
            sorted(set(stop_token_ids)),
            few_query_attention=few_query_attention,
        )
        self._device.expect_group(largest_group)
        self._unfilled: dict[int, list[int]] = {}  # slot -> prefix that has no KV yet
        self._pipeline = Pipeline(self._device, self._table, blocks_in_flight)
        self._calls = 0
        self.load(params, version)

    @property
    def version(self) -> int:
        """Of the weights in use."""
        return self._version

    def load(self, params: Params, version: int) -> None:
        """Copy new weights; ``params`` may be donated or deleted afterwards.

        Raises RuntimeError while groups are open: their KV belongs to the old weights.
        """
        if len(self._table):
            raise RuntimeError(f"{len(self._table)} groups are open, with KV of the old weights; close them first")
        self._device.load(params)
        self._version = version

    def can_open(self, group_size: int) -> bool:
        """Whether a slot and ``group_size`` rows are free."""
        return self._table.can_open(group_size)

    def open_group(self, prompts: Sequence[Sequence[int]], keys: StreamKey) -> GroupHandle:
        """Open a group with one prompt (token ids) a member; computes nothing yet.

        Raises:
          ValueError: no member or too many, an empty prompt, an id outside the vocabulary, a shared prefix longer than
            ``max_prefix_tokens``, a member's own part that leaves no room in ``max_member_tokens``, key material
            outside ``[0, 2**32)``.
          RuntimeError: no room now (see ``can_open``).
        """
        keys = StreamKey(*keys)
        for name, part in keys._asdict().items():
            if not 0 <= part < 2**32:
                raise ValueError(f"key material {name}={part} is outside [0, 2**32)")
        for member, prompt in enumerate(prompts):
            check_ids(prompt, f"the prompt of member {member}", self._vocab_size)
        handle = self._table.open([[int(token) for token in prompt] for prompt in prompts], keys)
        self._device.expect_group(len(handle.rows))
        self._unfilled[handle.slot] = self._table.prefixes[handle.slot]
        return handle

    def close_group(self, handle: GroupHandle) -> None:
        """Free the group's slot and rows; turns in progress are dropped. Raises RuntimeError if it is not open."""
        self._table.close(handle)
        self._unfilled.pop(handle.slot, None)
        self._pipeline.remove(handle.rows)

    def room(self, row: int) -> int:
        """How many more tokens the member may hold."""
        return self._table.max_member_tokens - self._table.opened(row).total

    def append(self, row: int, token_ids: Sequence[int]) -> None:
        """Add given tokens (an observation, forced tokens) to a member; fed before its next turn.

        Raises:
          ValueError: more tokens than the member has ``room`` for (nothing is added), an id outside the vocabulary.
          RuntimeError: the row is closed or busy with a turn.
        """
        held = self._table.idle(row)
        check_ids(token_ids, f"the tokens for row {row}", self._vocab_size)
        if len(token_ids) > self.room(row):
            raise ValueError(
                f"{len(token_ids)} tokens for row {row}, which has room for {self.room(row)} (max_member_tokens "
                f"{self._table.max_member_tokens}); ask room first, and end the member or append less"
            )
        held.unfed += [int(token) for token in token_ids]

    def request(self, row: int, max_new_tokens: int) -> None:
        """Ask for a model turn of up to ``max_new_tokens`` tokens, fewer where the member's room ends before.

        A member without any room gets an empty turn (``StopReason.BUDGET``) from the next ``step``.

        Raises ValueError for ``max_new_tokens`` below 1, RuntimeError if the row is closed or busy with a turn.
        """
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {max_new_tokens}; give a whole number >= 1")
        held, room = self._table.idle(row), self.room(row)
        at_limit = StopReason.LENGTH if max_new_tokens < room else StopReason.BUDGET
        held.turn = Progress(min(max_new_tokens, room), at_limit, self._decode_text, self._stop_strings)
        self._pipeline.add(row, held.turn)

    def step(self) -> list[Turn]:
        """One round of device work: prefixes, given tokens, one block of decoding. Returns the turns that ended.

        Turns asked for first are decoded first. With nothing asked for, it returns an empty list at once.
        """
        if len(self._pipeline):
            self._device.prefill(self._unfilled)
            self._unfilled.clear()
            self._feed_given_tokens()
        without_room = [number for number, turn in self._pipeline if not turn.remaining]
        return [self._end(number, Ending(0, StopReason.BUDGET, "")) for number in without_room] + self._decode()

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, *, seed: int | None = None, members: int = 1
    ) -> list[list[Turn]]:
        """One turn of ``members`` members for each prompt: ``result[prompt][member]``.

        The same seed gives the same turns; without one, each call of this sampler draws anew.

        Raises RuntimeError while groups are open, ValueError for whatever ``open_group`` and ``request`` refuse.
        """
        if len(self._table):
            raise RuntimeError(f"{len(self._table)} groups are open, whose turns would be lost; close them first")
        if seed is None:
            keys = StreamKey(Domain.GENERATE_COUNTED, 0, self._calls, 0)
            self._calls += 1
        else:
            keys = StreamKey(Domain.GENERATE_SEEDED, seed, 0, 0)
        return generate(self, prompts, max_new_tokens, keys=keys, members=members)

    def _feed_given_tokens(self) -> None:
        """All but the last un-fed token of every row that waits for a turn."""
        while behind := [number for number, _ in self._pipeline if len(self._table.opened(number).unfed) > 1]:
            self._device.extend(self._table, behind[: self._device.sizes.extend_rows])

    def _decode(self) -> list[Turn]:
        turns, in_progress = [], dict(self._pipeline)
        for number, block in self._pipeline.next_block().items():
            self._table.opened(number).sampled(block.token_ids)
            in_progress[number].add(block.token_ids, block.log_probs)
            ending = in_progress[number].ending(block.at_stop_token)
            if ending is not None:
                turns.append(self._end(number, ending))
        return turns

    def _end(self, number: int, ending: Ending) -> Turn:
        row = self._table.opened(number)
        turn, row.turn = row.turn, None
        assert turn is not None
        self._pipeline.remove([number])
        token_ids, log_probs = turn.token_ids[: ending.kept], turn.log_probs[: ending.kept]
        if ending.kept < len(turn.token_ids):
            row.go_back(len(turn.token_ids) - ending.kept, token_ids[-1])
        return Turn(number, token_ids, log_probs, ending.reason, ending.text, self._version)
