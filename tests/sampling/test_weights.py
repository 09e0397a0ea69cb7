"""The sampler's weights are its own, and say which version they are."""

import jax
import numpy as np
import pytest

from rlagents.sampling import StreamKey, device
from tests.sampling.support import make_params, make_sampler


def fresh(seed: int):
    return jax.tree.map(lambda x: x + 0.0, make_params(seed=seed))


def test_a_donated_update_does_not_touch_the_sampler():
    expected = make_sampler().generate([[1, 2, 3]], 8, seed=0)
    params = fresh(0)
    sampler = make_sampler(params=params)
    update = jax.jit(lambda p: jax.tree.map(lambda x: x * 0.0, p), donate_argnums=0)
    update(params)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(params))
    assert sampler.generate([[1, 2, 3]], 8, seed=0) == expected


def test_host_arrays_may_change_afterwards():
    expected = make_sampler().generate([[1, 2, 3]], 8, seed=0)
    params = jax.tree.map(np.array, make_params())
    sampler = make_sampler(params=params)
    for leaf in jax.tree.leaves(params):
        leaf[...] = 0
    assert sampler.generate([[1, 2, 3]], 8, seed=0) == expected


def test_loading_changes_weights_and_version():
    sampler = make_sampler(version=3)
    assert sampler.version == 3
    old = sampler.generate([[1, 2, 3]], 8, seed=0)
    params = fresh(1)
    sampler.load(params, version=4)
    for leaf in jax.tree.leaves(params):
        leaf.delete()
    assert sampler.version == 4
    new = sampler.generate([[1, 2, 3]], 8, seed=0)
    assert new[0][0].token_ids != old[0][0].token_ids
    assert (old[0][0].weight_version, new[0][0].weight_version) == (3, 4)
    assert new == make_sampler(params=make_params(seed=1), version=4).generate([[1, 2, 3]], 8, seed=0)


def test_weights_do_not_change_under_open_groups():
    sampler = make_sampler()
    group = sampler.open_group([[1]], StreamKey(0, 0, 0, 0))
    with pytest.raises(RuntimeError, match="1 groups are open"):
        sampler.load(make_params(), 1)
    sampler.close_group(group)
    sampler.load(make_params(), 1)


def test_nothing_is_under_way_where_the_old_weights_are_dropped(monkeypatch):
    """A block that nobody reads any more would hold them, beside the new ones, until it ends."""
    sampler, ready, place = make_sampler(), [], device.tree_shardings
    state = sampler._device._state
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 3_000_000, lambda _, y: y + 1, x))
    sampler._device._state = jax.tree.map(lambda x: x + slow(0.0), state)

    def spy(*args):
        ready.append(sampler._device._params is None and sampler._device._state.own.key.is_ready())
        return place(*args)

    monkeypatch.setattr(device, "tree_shardings", spy)
    sampler.load(make_params(), 1)
    assert ready == [True]
