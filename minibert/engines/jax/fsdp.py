"""A flat buffer spread over devices, as FSDP does: each has its piece of every layer.

The buffer is cut into units: the embeddings, each layer, and what stands on them. Each is padded to a
multiple of the number of devices D and cut into D pieces; row d of a spread buffer is device d's pieces.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from minibert.core.arrays import Params
from minibert.core.params import Entry, FlatParameters, leaf_of, unflatten
from minibert.engines.jax.rows import static

DATA = "data"  # the one axis of the mesh


class Unit(NamedTuple):
    """Neighbours in a buffer that are brought together at once."""

    begin: int
    size: int
    piece: int  # elements a device has of it
    entries: tuple[Entry, ...]
    layer: bool


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shard:
    """One device's piece of a unit; in place of an accumulator, nothing but its shape."""

    piece: Any
    entries: tuple[Entry, ...] = static()
    zeros: bool = static()

    def gather(self) -> Params:
        """Return the unit's tree; for an accumulator, zeros."""
        if self.zeros:
            return unflatten(self.entries, jnp.zeros(sum(e.size for e in self.entries), self.piece.dtype))
        return unflatten(self.entries, jax.lax.all_gather(self.piece, DATA, tiled=True))


class Layout(NamedTuple):
    """Where everything of a buffer is when it is spread."""

    units: tuple[Unit, ...]
    devices: int

    @classmethod
    def of(cls, params: FlatParameters, devices: int) -> "Layout":
        """Lay parameters out over so many devices."""
        groups: dict[str, list[Entry]] = {}
        for entry in params.table:
            path = entry.name.split(".")
            group = {"layers": ".".join(path[:2]), "embeddings": "embeddings"}.get(path[0], "")
            groups.setdefault(group, []).append(entry)
        units, begin = [], 0
        for group, entries in groups.items():
            size = sum(entry.size for entry in entries)
            units.append(Unit(begin, size, -(-size // devices), tuple(entries), group.startswith("layers")))
            begin += size
        return cls(tuple(units), devices)

    # flat (N,) -> (D,n)
    def spread(self, flat: np.ndarray) -> np.ndarray:
        """Return a buffer of the host as the devices have it."""
        rows = []
        for one in self.units:
            own = flat[one.begin : one.begin + one.size]
            rows.append(np.pad(own, (0, one.piece * self.devices - one.size)).reshape(self.devices, -1))
        return np.concatenate(rows, axis=1)

    # rows (D,n) -> (N,)
    def joined(self, rows: np.ndarray) -> np.ndarray:
        """Return what `spread` took."""
        borders = np.cumsum([one.piece for one in self.units])[:-1]
        pairs = zip(self.units, np.split(rows, borders, axis=1), strict=True)
        return np.concatenate([part.reshape(-1)[: one.size] for one, part in pairs])

    # local (n,)
    def tree(self, local: Any, zeros: bool = False) -> Params:
        """Nest a device's pieces as the model takes them: layers as shards, the rest brought together.

        With `zeros` these are accumulators that have nothing yet.
        """
        merged: Params = {}
        layers = []
        for one, end in zip(self.units, np.cumsum([one.piece for one in self.units]).tolist(), strict=True):
            piece = local[end - one.piece : end]
            if one.layer:
                layers.append(Shard(piece, _inside(one.entries), zeros))
            else:
                merged |= Shard(piece, one.entries, zeros).gather()
        return merged | ({"layers": layers} if layers else {})

    # -> (n,)
    def reduce_scatter(self, tree: Params) -> Any:
        """Return a device's pieces of the sum over all devices of a tree of gradients."""
        pieces, layers = [], iter(tree.get("layers", ()))
        for one in self.units:
            pieces.append(next(layers).piece if one.layer else _reduce_scatter(one, tree, one.entries))
        return jnp.concatenate(pieces)

    def reduce_scatter_layer(self, number: int, tree: Params) -> Shard:
        """Return the same of one layer."""
        one = [unit for unit in self.units if unit.layer][number]
        entries = _inside(one.entries)
        return Shard(_reduce_scatter(one, tree, entries), entries, zeros=False)

    # -> (n,) bool
    def decaying(self) -> Any:
        """Tell which of a device's elements have weight decay."""
        found = []
        for one in self.units:
            place = jax.lax.axis_index(DATA) * one.piece + jnp.arange(one.piece)
            decays, begin = jnp.zeros(one.piece, bool), 0
            for entry in one.entries:
                if entry.decays:
                    decays |= (place >= begin) & (place < begin + entry.size)
                begin += entry.size
            found.append(decays)
        return jnp.concatenate(found)


def _inside(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return entries of a layer by their names within it."""
    return tuple(Entry(e.name.split(".", 2)[2], e.shape, e.initial, e.decays) for e in entries)


# -> (piece,)
def _reduce_scatter(one: Unit, tree: Params, entries: tuple[Entry, ...]) -> Any:
    """Sum over devices, each getting its piece."""
    leaves = [leaf_of(tree, entry.name).reshape(-1) for entry in entries]
    pads = one.piece * jax.lax.axis_size(DATA) - one.size
    flat = jnp.concatenate([*leaves, jnp.zeros(pads, leaves[0].dtype)])
    return jax.lax.psum_scatter(flat, DATA, tiled=True)
