"""The sampler's device side: its own copy of the weights, the state, and the three calls with host arguments."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from rlagents.models.blockwise import xla
from rlagents.models.config import DecoderConfig
from rlagents.models.modules import logical_axes
from rlagents.sampling.attention import few_queries
from rlagents.sampling.decode import Sampled, decode_block, extend_rows, nothing_sampled, prefill_prefixes
from rlagents.sampling.rows import Table
from rlagents.sampling.rule import SamplingRule
from rlagents.sampling.sizes import Sizes
from rlagents.sampling.state import Rows, Window, empty_state
from rlagents.sharding import activations_over, kv_sharding, prompt_shards, replicated, tree_shardings
from rlagents.types import Params


class Block(NamedTuple):
    """What a row sampled in one block."""

    token_ids: list[int]
    log_probs: list[float]
    at_stop_token: bool
    """The last token is a stop token."""


class BlockInFlight:
    """A block that was sent to the device. What it sampled is on its way to the host as soon as it is there."""

    def __init__(self, sampled: Sampled, place: Mapping[int, int]):
        self.sampled, self.place = sampled, place
        for array in sampled:
            array.copy_to_host_async()

    def read(self) -> dict[int, Block]:
        """Wait for it: what each row sampled."""
        sampled, blocks = jax.device_get(self.sampled), {}
        for number, column in self.place.items():
            mine = slice(0, int(sampled.count[column])), column
            blocks[number] = Block(
                sampled.token[mine].tolist(), sampled.log_prob[mine].tolist(), bool(sampled.stopped[column])
            )
        return blocks


class Device:
    """Weights, state and calls; none of them waits. Buffers of the state are taken over by each call."""

    def __init__(
        self,
        config: DecoderConfig,
        mesh: Mesh,
        sizes: Sizes,
        rule: SamplingRule,
        stop_ids: Sequence[int],
        *,
        few_query_attention: bool,
    ):
        self.sizes = sizes
        self._config = config
        self._mesh = mesh
        sharding = kv_sharding(mesh, config.num_kv_heads)
        self._prefill = partial(prefill_prefixes, config, sharding=sharding)
        self._extend = partial(extend_rows, config, sharding=sharding)
        self._decode = partial(
            decode_block,
            config,
            rule=rule,
            steps=sizes.block_steps,
            backend=few_queries if few_query_attention else xla,
            sharding=sharding,
        )
        self._stop_ids = np.array(sorted(stop_ids), np.int32)
        self._nothing = jax.device_put(nothing_sampled(sizes.block_steps, sizes.decode_rows), replicated(mesh))
        self._params: Params = None
        self._state = empty_state(
            config,
            mesh,
            num_groups=sizes.num_groups,
            max_prefix_tokens=max(sizes.max_prefix_tokens, 1),
            num_rows=sizes.num_rows,
            max_member_tokens=sizes.max_member_tokens,
        )
        # Largest group so far, not largest open group: the shapes of the decode step must not go back and forth.
        self._group_size = 1

    def load(self, params: Params) -> None:
        """Copy weights: buffers of their own, whatever becomes of the originals."""
        # Ready, unless a block that nobody reads any more is under way: it holds the old weights until it ends.
        self._state.own.key.block_until_ready()
        self._params = None  # frees the old ones first
        shardings = tree_shardings(logical_axes(self._config), params, self._mesh)
        # Placing may alias what is in place already, NumPy arrays too; copying never does.
        self._params = jax.tree.map(lambda x, sharding: jnp.copy(jax.device_put(x, sharding)), params, shardings)
        jax.block_until_ready(self._params)

    def expect_group(self, group_size: int) -> None:
        """Groups of this size will come."""
        self._group_size = max(self._group_size, group_size)

    def prefill(self, prefixes: Mapping[int, Sequence[int]]) -> None:
        """Compute prefixes into their slots."""
        width = self.sizes.prefill_groups
        pending = [(slot, prefix) for slot, prefix in prefixes.items() if prefix]
        while pending:
            now, pending = pending[:width], pending[width:]
            slots = np.full(width, self.sizes.num_groups, np.int32)
            lengths = np.zeros(width, np.int32)
            tokens = np.zeros((width, self.sizes.prefill_tokens(max(len(prefix) for _, prefix in now))), np.int32)
            for place, (slot, prefix) in enumerate(now):
                slots[place], lengths[place] = slot, len(prefix)
                tokens[place, : len(prefix)] = prefix
            with self._split(width):
                self._state = self._prefill(self._params, self._state, *self._put(slots, tokens, lengths))

    def extend(self, table: Table, numbers: Sequence[int]) -> None:
        """Feed up to ``extend_chunk_tokens`` un-fed tokens, never the last one, to at most ``extend_rows`` rows."""
        width, chunk = self.sizes.extend_rows, self.sizes.extend_chunk_tokens
        rows, place = self._rows(table, numbers, width)
        tokens, counts = np.zeros((width, chunk), np.int32), np.zeros(width, np.int32)
        for number in numbers:
            row = table.opened(number)
            fed = row.feed(min(chunk, len(row.unfed) - 1))
            tokens[place[number], : len(fed)] = fed
            counts[place[number]] = len(fed)
        window = self._window(table, {number: table.opened(number).length for number in numbers})
        arguments = self._put(tokens, counts)
        with self._split(width):
            self._state = self._extend(
                self._params, self._state, rows, *arguments, group_size=self._group_size, window=window
            )

    def decode(
        self,
        table: Table,
        remaining: Mapping[int, int],
        before: BlockInFlight | None = None,
        carried: Collection[int] = (),
    ) -> BlockInFlight:
        """Decode one block: up to ``remaining[row]`` tokens a row.

        ``carried`` rows go on from the end of ``before``, a block whose tokens neither ``table`` nor ``remaining`` know
        of yet: there, ``remaining`` is what they may sample in both.
        """
        width = self.sizes.decode_rows
        rows, place = self._rows(table, list(remaining), width)
        last, budget, material = np.zeros(width, np.int32), np.zeros(width, np.int32), np.zeros((width, 5), np.uint32)
        places, ends = np.full(width, width, np.int32), {}
        for number, count in remaining.items():
            row = table.opened(number)
            (last[place[number]],) = row.unfed
            budget[place[number]] = count
            material[place[number]] = row.material
            if before is not None and number in carried:
                places[place[number]] = before.place[number]
            ends[number] = row.length + min(count, self.sizes.block_steps * (1 + (number in carried)))
        sampled = self._nothing if before is None else before.sampled
        *arguments, places, stop_ids = self._put(last, budget, material, places, self._stop_ids)
        window = self._window(table, ends)
        with self._split(width):
            self._state, sampled = self._decode(
                self._params,
                self._state,
                rows,
                *arguments,
                sampled,
                places,
                stop_ids,
                group_size=self._group_size,
                window=window,
            )
        return BlockInFlight(sampled, {number: place[number] for number in remaining})

    def _rows(self, table: Table, chosen: Sequence[int], width: int) -> tuple[Rows, dict[int, int]]:
        """Arguments about the chosen rows and the place each takes; unchosen rows fill the call up."""
        everyone = range(self.sizes.num_rows)
        if width < self.sizes.num_rows:
            taken = set(chosen)
            filler = (number for number in everyone if number not in taken)
            index = [*chosen, *(next(filler) for _ in range(width - len(chosen)))]
        else:
            index = list(everyone)
        held = [table.rows[number] for number in index]
        length = [row.length if row else 0 for row in held]
        group = [row.slot if row else self.sizes.num_groups for row in held]
        prefix_length = [len(prefix) for prefix in table.prefixes]
        columns = (np.array(column, np.int32) for column in (index, length, group, prefix_length))
        return Rows(*self._put(*columns)), {number: place for place, number in enumerate(index)}

    def _window(self, table: Table, ends: Mapping[int, int]) -> Window:
        """What must be read for rows that end up with so many own tokens in KV."""
        prefix_tokens = max(len(table.prefixes[table.opened(number).slot]) for number in ends)
        return self.sizes.window(prefix_tokens, max(ends.values()))

    def _split(self, rows: int) -> AbstractContextManager:
        """Split the activations of a call as the state is split, where its rows divide."""
        if rows % prompt_shards(self._mesh):
            return nullcontext()
        return activations_over(self._mesh)

    def _put(self, *arguments: np.ndarray) -> tuple:
        return jax.device_put(arguments, replicated(self._mesh))
