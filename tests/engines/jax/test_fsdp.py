"""A buffer spread over devices: nothing lost, summed once. `vmap` over a named axis stands in for devices."""

import numpy as np
import pytest

from minibert.core.gradcheck.cases import SIZES, config_of
from minibert.core.params import leaf_of, unflatten
from minibert.model.params import Parameters

jax = pytest.importorskip("jax")

from minibert.engines.jax.fsdp import DATA, Layout, Shard  # noqa: E402

DEVICES = 3  # of which no size is a multiple


@pytest.fixture
def parameters():
    parameters = Parameters(config_of(SIZES["ugly"]))
    parameters.flat[:] = np.random.default_rng(0).standard_normal(parameters.flat.size)
    return parameters


@pytest.fixture
def layout(parameters):
    return Layout.of(parameters, DEVICES)


def on_devices(function, *rows):
    """What each device makes of its row."""
    return jax.vmap(function, axis_name=DATA)(*rows)


def whole(tree):
    """A tree of all parameters, with layers in place of their shards."""
    layers = [one.gather() if isinstance(one, Shard) else one for one in tree["layers"]]
    return tree | {"layers": layers}


def test_a_buffer_is_spread_evenly_and_joined_again(parameters, layout):
    rows = layout.spread(parameters.flat)
    assert rows.shape[0] == DEVICES and rows.size - parameters.flat.size < DEVICES * len(layout.units)
    np.testing.assert_array_equal(layout.joined(rows), parameters.flat)


@pytest.mark.thorough
def test_every_device_brings_the_whole_model_together(parameters, layout):
    trees = on_devices(lambda row: whole(layout.tree(row)), layout.spread(parameters.flat))
    for entry in parameters.table:
        found, expected = leaf_of(trees, entry.name), leaf_of(parameters.tree, entry.name)
        np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape), entry.name)


@pytest.mark.thorough
def test_accumulators_have_the_shapes_of_the_model_and_nothing_in_them(parameters, layout):
    trees = on_devices(lambda row: whole(layout.tree(row, zeros=True)), layout.spread(parameters.flat))
    for entry in parameters.table:
        found = leaf_of(trees, entry.name)
        assert found.shape == (DEVICES, *entry.shape) and not found.any()


@pytest.mark.thorough
def test_gradients_of_all_devices_are_summed_and_each_keeps_its_piece(parameters, layout):
    gradients = np.random.default_rng(1).standard_normal((DEVICES, parameters.flat.size)).astype(np.float32)

    def reduced(flat):
        tree = unflatten(parameters.table, flat)
        layers = [layout.reduce_scatter_layer(number, layer) for number, layer in enumerate(tree["layers"])]
        return layout.reduce_scatter(tree | {"layers": layers})

    joined = layout.joined(np.asarray(on_devices(reduced, gradients)))
    np.testing.assert_allclose(joined, gradients.sum(0), rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_weight_decay_finds_its_elements_on_every_device(parameters, layout):
    rows = np.asarray(on_devices(lambda _: layout.decaying(), np.zeros((DEVICES, 1))))
    expected = np.concatenate([np.full(entry.size, entry.decays) for entry in parameters.table])
    np.testing.assert_array_equal(layout.joined(rows), expected)
    assert expected.any() and not expected.all()


@pytest.mark.thorough
def test_a_model_without_layers_is_spread_too():
    bare = Parameters(config_of(SIZES["ugly"]))
    bare.table = [entry for entry in bare.table if not entry.name.startswith("layers")]
    layout = Layout.of(bare, DEVICES)
    flat = np.arange(sum(entry.size for entry in bare.table), dtype=np.float32)
    trees = on_devices(lambda row: layout.tree(row), layout.spread(flat))
    assert "layers" not in trees
    np.testing.assert_array_equal(layout.joined(layout.spread(flat)), flat)
