"""A flat buffer spread over devices, as in FSDP: each device has its piece of every layer.

The buffer is split into units: the embeddings, each layer, and everything after the layers. Each unit is
padded to a multiple of the number of devices D and split into D pieces; row d of a spread buffer has the
pieces of device d.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from minibert.core.arrays import Params
from minibert.core.params import Entry, FlatParameters, leaf_of, unflatten
from minibert.engines.jax.rows import static

DATA = "data"  # the one axis of the mesh


class Unit(NamedTuple):
    """Adjacent parameters in a buffer that are gathered together."""

    begin: int  # where it begins in the buffer
    size: int  # how many elements it has
    piece: int  # how many elements of it each device has, including padding
    entries: tuple[Entry, ...]
    layer: bool  # whether it is a layer


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shard:
    """One device's piece of a unit; or, in place of an accumulator of zeros, only its shape."""

    piece: Any
    entries: tuple[Entry, ...] = static()
    zeros: bool = static()

    def gather(self) -> Params:
        """Return the unit's tree, from the pieces of all devices; for an accumulator, zeros."""
        if self.zeros:
            size = sum(entry.size for entry in self.entries)
            whole = jnp.zeros(size, self.piece.dtype)
        else:
            whole = jax.lax.all_gather(self.piece, DATA, tiled=True)
        return unflatten(self.entries, whole)


class Layout(NamedTuple):
    """Where the parts of a buffer are when it is spread."""

    units: tuple[Unit, ...]
    devices: int

    @classmethod
    def of(cls, params: FlatParameters, devices: int) -> "Layout":
        """Spread parameters over devices.

        Parameters
        ----------
        params : FlatParameters
            The parameters, whose table determines the units; their values are not used.
        devices : int
            The number of devices.

        Returns
        -------
        Layout
            A layout whose units are the embeddings, each layer, and everything else.
        """
        groups: dict[str, list[Entry]] = {}
        for entry in params.table:
            top, *rest = entry.name.split(".")
            group = ""
            if top == "embeddings":
                group = top
            elif top == "layers":
                group = f"layers.{rest[0]}"
            groups.setdefault(group, []).append(entry)
        units = []
        begin = 0
        for group, entries in groups.items():
            size = sum(entry.size for entry in entries)
            piece = -(-size // devices)
            units.append(Unit(begin, size, piece, tuple(entries), group.startswith("layers")))
            begin += size
        return cls(tuple(units), devices)

    # flat (N,) -> (D,n)
    def spread(self, flat: np.ndarray) -> np.ndarray:
        """Convert a buffer of the host to the layout of the devices.

        Parameters
        ----------
        flat : (N,) array
            The buffer.

        Returns
        -------
        (D,n) array
            A row for each device: its pieces of all units, padded with zeros.
        """
        pieces = []
        for unit in self.units:
            elements = flat[unit.begin : unit.begin + unit.size]
            pads = unit.piece * self.devices - unit.size
            pieces.append(np.pad(elements, (0, pads)).reshape(self.devices, -1))
        return np.concatenate(pieces, axis=1)

    # rows (D,n) -> (N,)
    def joined(self, rows: np.ndarray) -> np.ndarray:
        """Undo `spread`.

        Parameters
        ----------
        rows : (D,n) array
            The result of `spread`.

        Returns
        -------
        (N,) array
            The buffer.
        """
        borders = np.cumsum([unit.piece for unit in self.units])[:-1]
        parts = np.split(rows, borders, axis=1)
        whole = []
        for unit, part in zip(self.units, parts, strict=True):
            whole.append(part.reshape(-1)[: unit.size])
        return np.concatenate(whole)

    # local (n,)
    def tree(self, local: Any, zeros: bool = False) -> Params:
        """Return a device's pieces as the tree that the model takes: layers as shards, the rest gathered.

        Parameters
        ----------
        local : (n,) array
            One device's row of a spread buffer.
        zeros : bool, default False
            Whether these are accumulators that are still zero, of which only the shapes are used.

        Returns
        -------
        dict
            The tree of the model, with a `Shard` in the place of each layer.
        """
        merged: Params = {}
        layers = []
        begin = 0
        for unit in self.units:
            piece = local[begin : begin + unit.piece]
            begin += unit.piece
            if unit.layer:
                layers.append(Shard(piece, _inside(unit.entries), zeros))
            else:
                merged |= Shard(piece, unit.entries, zeros).gather()
        if layers:
            merged["layers"] = layers
        return merged

    # -> (n,)
    def reduce_scatter(self, tree: Params) -> Any:
        """Return a device's pieces of the sum over all devices of a tree of gradients.

        Parameters
        ----------
        tree : dict
            One device's gradients; layers have been summed already, as `Shard` (`reduce_scatter_layer`).

        Returns
        -------
        (n,) array
            The pieces of all units.
        """
        pieces = []
        layers = iter(tree.get("layers", ()))
        for unit in self.units:
            if unit.layer:
                pieces.append(next(layers).piece)
            else:
                pieces.append(_reduce_scatter(unit, tree, unit.entries))
        return jnp.concatenate(pieces)

    def reduce_scatter_layer(self, number: int, tree: Params) -> Shard:
        """Return a device's piece of the sum over all devices of the gradients of one layer.

        Parameters
        ----------
        number : int
            The index of the layer, from 0.
        tree : dict
            One device's gradients of that layer.

        Returns
        -------
        Shard
            The piece.
        """
        units = [unit for unit in self.units if unit.layer]
        unit = units[number]
        entries = _inside(unit.entries)
        return Shard(_reduce_scatter(unit, tree, entries), entries, zeros=False)

    # -> (n,) bool
    def decaying(self) -> Any:
        """Mark which of a device's elements have weight decay."""
        pieces = []
        for unit in self.units:
            place = jax.lax.axis_index(DATA) * unit.piece + jnp.arange(unit.piece)
            decays = jnp.zeros(unit.piece, bool)
            begin = 0
            for entry in unit.entries:
                if entry.decays:
                    decays |= (place >= begin) & (place < begin + entry.size)
                begin += entry.size
            pieces.append(decays)
        return jnp.concatenate(pieces)


def _inside(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return the entries of a layer under their names within the layer."""
    inside = []
    for entry in entries:
        _, _, name = entry.name.split(".", 2)
        inside.append(replace(entry, name=name))
    return tuple(inside)


# -> (piece,)
def _reduce_scatter(unit: Unit, tree: Params, entries: tuple[Entry, ...]) -> Any:
    """Sum gradients over devices, each of which gets its piece of the sum."""
    leaves = [leaf_of(tree, entry.name) for entry in entries]
    devices = jax.lax.axis_size(DATA)
    n_pads = unit.piece * devices - unit.size
    pads = jnp.zeros(n_pads, leaves[0].dtype)
    rows = [leaf.reshape(-1) for leaf in leaves]
    flat = jnp.concatenate([*rows, pads])
    return jax.lax.psum_scatter(flat, DATA, tiled=True)
