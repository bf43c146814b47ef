"""Parameters: one table name -> shape -> initial values, one flat buffer, named views of it.

The order of the table is the order in the buffer. Layers follow one another and are alike, so that all of
them together are one (L, size of a layer) view; an optimizer sweeps over the whole buffer at once.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from minibert.core.arrays import Array, Params
from minibert.core.config import BertConfig
from minibert.core.errors import InputError
from minibert.core.head_kinds import KINDS, SEQUENCES, HeadKind

Initial: TypeAlias = Callable[[np.random.Generator, tuple[int, ...], float], Any]


# -> (shape)
def normal(
    generator: np.random.Generator,
    shape: tuple[int, ...],
    spread: float,
) -> np.ndarray:
    """Draw from a normal distribution of standard deviation `spread`, cut off at two of them.

    Parameters
    ----------
    generator : source of the draws.
    shape : of the values.
    spread : standard deviation before the cut.

    Returns
    -------
    array of `shape`, float64, all within two times `spread`.
    """
    values = generator.standard_normal(shape)
    while (beyond := np.abs(values) > 2).any():
        values[beyond] = generator.standard_normal(int(beyond.sum()))
    return spread * values


def zeros(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> float:
    """Begin at 0, as biases do.

    Parameters
    ----------
    generator, shape, spread : as for `normal`; not used.
    """
    return 0.0


def ones(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> float:
    """Begin at 1, as the gamma of a LayerNorm does.

    Parameters
    ----------
    generator, shape, spread : as for `normal`; not used.
    """
    return 1.0


@dataclass(frozen=True)
class Entry:
    """One row of the table."""

    name: str  # path in the tree, joined by dots
    shape: tuple[int, ...]
    initial: Initial  # draws the values that training begins with
    decays: bool  # weight decay: on weights, not on LayerNorm and biases (as in BERT's released code)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return int(np.prod(self.shape))


class AnyHead(Protocol):
    """What the core asks of a head: its own `Head`, or one that has more to it."""

    @property
    def kind(self) -> str:
        """Return what the head is called in the table of kinds."""

    @property
    def outputs(self) -> int:
        """Return how many numbers it has for a sequence or a token."""

    @property
    def spec(self) -> HeadKind:
        """Return what all heads of this kind have in common."""

    @property
    def pooled(self) -> bool:
        """Return whether the head reads the pooled [CLS]."""


class Head(NamedTuple):
    """What stands on the encoder: the two heads of pre-training, or the one output layer of a task.

    Examples
    --------
    >>> Head("classify", 3).pooled, Head("span", 2).pooled
    (True, False)
    """

    kind: str  # one of `KINDS`
    outputs: int  # numbers for a sequence or a token; 0 with "pretraining"

    @property
    def spec(self) -> HeadKind:
        """Return what all heads of this kind have in common."""
        return KINDS[self.kind]

    @property
    def pooled(self) -> bool:
        """Return whether the head reads the pooled [CLS], and so has a pooler below it."""
        return self.spec.reads == SEQUENCES


PRETRAINING = Head("pretraining", 0)


def check_head(head: AnyHead, kinds: Mapping[str, HeadKind] = KINDS) -> None:
    """Check that there is such a head.

    Parameters
    ----------
    head : the head to check.
    kinds : the heads there are; the core's when left out.

    Raises
    ------
    InputError
        When its kind is not among `kinds`, or its kind has another number of outputs.
    """
    if head.kind not in kinds:
        raise InputError(f"head kind {head.kind!r} does not exist; use one of {', '.join(kinds)}.")
    fixed = kinds[head.kind].outputs
    if head.outputs != (max(1, head.outputs) if fixed is None else fixed):
        expected = "at least 1" if fixed is None else fixed
        raise InputError(f"A head of kind {head.kind!r} has {expected} outputs, not {head.outputs}.")


def weight(name: str, *shape: int) -> Entry:
    """Describe a matrix, or another tensor with weight decay.

    Parameters
    ----------
    name : path in the tree, joined by dots.
    *shape : its size along each axis, inputs first.
    """
    return Entry(name, shape, normal, True)


def bias(name: str, *shape: int) -> Entry:
    """Describe a bias.

    Parameters
    ----------
    name : path in the tree, joined by dots.
    *shape : its size along each axis.
    """
    return Entry(name, shape, zeros, False)


def norm(name: str, H: int) -> list[Entry]:
    """Describe the two parameters of a LayerNorm.

    Parameters
    ----------
    name : path of the LayerNorm; the two are `name.gamma` and `name.beta`.
    H : elements of each.
    """
    return [Entry(f"{name}.gamma", (H,), ones, False), Entry(f"{name}.beta", (H,), zeros, False)]


def parameter_table(config: BertConfig, head: AnyHead = PRETRAINING) -> list[Entry]:
    """List every parameter of encoder, pooler (if the head reads it) and head, in the order of the buffer.

    Weights are (inputs, outputs): a layer computes `x @ weight + bias`. The three projections of attention
    are one matrix. The decoder of the masked-LM head is `embeddings.word` itself (tied), plus a bias.

    Parameters
    ----------
    config : the shape of the encoder.
    head : what stands on it; the heads of pre-training when left out.
    """
    check_head(head)
    return encoder_table(config) + head_table(config, head)


def encoder_table(config: BertConfig) -> list[Entry]:
    """List the parameters of the embeddings and of the layers.

    Parameters
    ----------
    config : the shape of the encoder.
    """
    H, F = config.H, config.F
    table = [
        weight("embeddings.word", config.V, H),
        weight("embeddings.position", config.P, H),
        weight("embeddings.segment", config.type_vocab_size, H),
        *norm("embeddings", H),
    ]
    for i in range(config.L):
        attention, feed_forward = f"layers.{i}.attention", f"layers.{i}.feed_forward"
        table += [
            weight(f"{attention}.qkv_weight", H, 3 * H),
            bias(f"{attention}.qkv_bias", 3 * H),
            weight(f"{attention}.output_weight", H, H),
            bias(f"{attention}.output_bias", H),
            *norm(attention, H),
            weight(f"{feed_forward}.in_weight", H, F),
            bias(f"{feed_forward}.in_bias", F),
            weight(f"{feed_forward}.out_weight", F, H),
            bias(f"{feed_forward}.out_bias", H),
            *norm(feed_forward, H),
        ]
    return table


def head_table(config: BertConfig, head: AnyHead) -> list[Entry]:
    """List the parameters of the pooler, if the head reads it, and of the head.

    Parameters
    ----------
    config : the shape of the encoder.
    head : what stands on it.

    Returns
    -------
    list of entries; empty for a head without a pooler and without outputs.
    """
    H, V = config.H, config.V
    table = [weight("pooler.weight", H, H), bias("pooler.bias", H)] if head.pooled else []
    if head.kind == "pretraining":
        return [
            *table,
            weight("mlm.weight", H, H),
            bias("mlm.bias", H),
            *norm("mlm", H),
            bias("mlm.output_bias", V),
            weight("nsp.weight", H, 2),
            bias("nsp.bias", 2),
        ]
    if head.outputs:
        table += [weight("head.weight", H, head.outputs), bias("head.bias", head.outputs)]
    return table


def unflatten(table: Iterable[Entry], flat: Array) -> Params:
    """Return the nested tree of a flat buffer; leaves are views with NumPy, slices otherwise.

    Parameters
    ----------
    table : the entries, in the order of the buffer.
    flat : (N,) the buffer. Whatever lies beyond the table's last entry is left out.

    Returns
    -------
    tree : nested dictionaries and lists, as `nest` makes them.
    """
    named = {}
    begin = 0
    for entry in table:
        named[entry.name] = flat[begin : begin + entry.size].reshape(entry.shape)
        begin += entry.size
    return nest(named)


def leaf_of(tree: Any, path: str) -> Array:
    """Look up a leaf in what `nest` makes: `"layers.0.mlp.bias"` -> `tree["layers"][0]["mlp"]["bias"]`.

    Parameters
    ----------
    tree : nested dictionaries and lists.
    path : names of the steps, joined by dots; whole numbers are places in a list.
    """
    for step in path.split("."):
        tree = tree[int(step) if step.isdigit() else step]
    return tree


def nest(named: dict[str, Array]) -> Params:
    """Nest leaves by their paths: `{"layers.0.mlp.bias": b}` -> `{"layers": [{"mlp": {"bias": b}}]}`.

    Parameters
    ----------
    named : leaves by their paths. The entries of a list come in order, from 0.

    Returns
    -------
    tree : nested dictionaries and lists.
    """
    tree: Params = {}
    for path, leaf in named.items():
        *steps, last = path.split(".")
        place: Any = tree
        for name, following in pairwise([*steps, last]):
            if name.isdigit():  # an entry of the list that the step before made
                if int(name) == len(place):
                    place.append({})
                place = place[int(name)]
            else:
                place = place.setdefault(name, [] if following.isdigit() else {})
        place[last] = leaf
    return tree


class FlatParameters:
    """All parameters of a model (or their gradients, or any tree of that shape) in one flat buffer.

    Parameters
    ----------
    table : list of entries, in the order of the buffer.
    flat : (N,) the buffer, N being the sum of the table's sizes; it is not copied. None: zeros of `dtype`.
    dtype : of a new buffer; not used where `flat` is given.

    Raises
    ------
    ValueError
        When `flat` has another number of elements than the table.
    """

    config: Any  # its `initializer_range` is the standard deviation of normal initial values

    def __init__(self, table: list[Entry], flat: np.ndarray | None, dtype: Any) -> None:
        self.table = table
        ends = np.cumsum([entry.size for entry in table])
        self._places = {}  # where each entry begins
        for entry, end in zip(table, ends, strict=True):
            self._places[entry.name] = (int(end) - entry.size, entry)
        self.flat = np.zeros(self.count(), dtype) if flat is None else flat

    @property
    def flat(self) -> Array:
        """Return the buffer (N,); another may take its place, and `tree` is then made of that."""
        return self._flat

    @flat.setter
    def flat(self, flat: Array) -> None:
        """Put another buffer in the place of this one.

        Parameters
        ----------
        flat : (N,) the buffer; it is not copied.

        Raises
        ------
        ValueError
            When it has another number of elements than the table.
        """
        count = self.count()
        if flat.shape != (count,):
            raise ValueError(f"flat has shape {flat.shape}, but this configuration has {count:,} parameters.")
        self._flat = flat
        self.__dict__.pop("tree", None)

    @cached_property
    def tree(self) -> Params:
        """Return nested dictionaries of views, as the model takes them: `tree["layers"][0]["attention"]`."""
        return unflatten(self.table, self.flat)

    def make_read_only(self) -> None:
        """Let nobody write to the buffer any more, or to views of it that are taken from now on."""
        self.flat = self.flat.view()
        self.flat.flags.writeable = False

    def like(self, flat: Array) -> Self:
        """Put another buffer (N,) under the same names.

        Parameters
        ----------
        flat : (N,) the buffer; it is not copied.
        """
        other = copy.copy(self)
        other.flat = flat
        return other

    def __getstate__(self) -> dict[str, Any]:
        # A copied tree would hold copies of the views: arrays of its own, apart from the buffer.
        return {name: value for name, value in self.__dict__.items() if name != "tree"}

    @property
    def description(self) -> dict[str, Any]:
        """Return what a checkpoint says, in JSON, so that the same table can be made again."""
        return {"config": self.config.to_dict()}

    def __getitem__(self, name: str) -> np.ndarray:
        begin, entry = self._places[name]
        return self.flat[begin : begin + entry.size].reshape(entry.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Return names and views, in the order of the buffer."""
        return ((name, self[name]) for name in self)

    @property
    def decayed(self) -> np.ndarray:
        """Return the ranges [begin, end) that have weight decay: (K,2) int64, neighbours joined."""
        begins, ends, decays = self.tensors.T
        change = np.diff(decays, prepend=0, append=0)  # 1 where a range begins, -1 behind its last tensor
        return np.stack([begins[change[:-1] == 1], ends[change[1:] == -1]], axis=1)

    @property
    def tensors(self) -> np.ndarray:
        """Return begin, end and whether it has weight decay, of each tensor in order: (K,3) int64."""
        rows = [(begin, begin + entry.size, entry.decays) for begin, entry in self._places.values()]
        return np.array(rows, np.int64)

    @property
    def matrices(self) -> np.ndarray:
        """Return `tensors` with two columns more: (K,5) int64.

        A layer's weights have their rows there, and how many matrices lie side by side in them; everything
        else has 0 and 0.
        """

        def shape(name: str, rows: int, *columns: int) -> tuple[int, int]:
            if not (name.startswith("layers.") and columns):
                return 0, 0
            return rows, 3 if name.endswith("qkv_weight") else 1

        shapes = [shape(entry.name, *entry.shape) for entry in self.table]
        return np.hstack([self.tensors, shapes])

    def zeros_like(self) -> Self:
        """Return a tree of the same shape and dtype filled with zeros: gradients, moments."""
        return self.like(np.zeros_like(self.flat))

    def astype(self, dtype: Any) -> Self:
        """Return a copy in another precision.

        Parameters
        ----------
        dtype : of the copy.
        """
        return self.like(self.flat.astype(dtype))

    def count(self, *prefixes: str) -> int:
        """Count the parameters whose name begins with one of the prefixes; all of them without a prefix.

        Parameters
        ----------
        *prefixes : beginnings of names, such as "embeddings.".
        """
        return sum(entry.size for entry in self.table if entry.name.startswith(prefixes or ("",)))


class Parameters(FlatParameters):
    """All parameters of one BERT and of its head.

    Parameters
    ----------
    config : the shape of the encoder.
    flat, dtype : as for `FlatParameters`; zeros in float32 when left out.
    head : what stands on the encoder; the heads of pre-training when left out.
    """

    def __init__(
        self,
        config: BertConfig,
        flat: Array = None,
        dtype: Any = np.float32,
        head: AnyHead = PRETRAINING,
    ) -> None:
        self.config = config
        self.head = head
        super().__init__(self.table_of(config, head), flat, dtype)

    @staticmethod
    def table_of(config: BertConfig, head: AnyHead) -> list[Entry]:
        """List the parameters of a BERT with this head.

        Parameters
        ----------
        config : the shape of the encoder.
        head : what stands on it.
        """
        return parameter_table(config, head)

    @property
    def description(self) -> dict[str, Any]:
        """Return what a checkpoint says, in JSON: the configuration and the head."""
        return super().description | {"head": [self.head.kind, self.head.outputs]}

    def with_head(self, head: AnyHead, seed: int) -> tuple[Self, list[str]]:
        """Return the same encoder under another head, as a copy, and the names of the tensors that are new.

        The weights of a head that equals the present one are kept; what is new has the seed's initial values.

        Parameters
        ----------
        head : the head of the copy.
        seed : of the initial values of what is new.

        Returns
        -------
        parameters : the copy, in the same precision.
        fresh : names of the tensors that are new.
        """
        other = type(self)(self.config, dtype=self.flat.dtype, head=head)
        kept = {name for name in self if head == self.head or not name.startswith("head.")}
        for name in kept.intersection(other):
            other[name][...] = self[name]
        fresh = [name for name in other if name not in kept]
        reset(other, fresh, seed)
        return other, fresh

    def trained_from(self, frozen: int | None) -> int:
        """Return where the trained part of the buffer begins.

        Parameters
        ----------
        frozen : how many of the lowest layers are frozen, with the embeddings: these lie before that place.
            None: nothing is frozen.

        Raises
        ------
        InputError
            When the model has not so many layers.
        """
        if frozen is None:
            return 0
        if not 0 <= frozen <= self.config.L:
            advice = f"choose from 0, which freezes the embeddings alone, to {self.config.L}."
            raise InputError(f"frozen={frozen} is not a number of layers of this model; {advice}")
        layers = (f"layers.{i}." for i in range(frozen))
        return self.count("embeddings.", *layers)


def precision_for(arithmetic: str) -> np.dtype:
    """Return the dtype of parameters, gradients and moments when products are computed in `arithmetic`.

    Parameters
    ----------
    arithmetic : "float32", "float64" or "bfloat16", whose parameters are float32.

    Examples
    --------
    >>> precision_for("bfloat16")
    dtype('float32')
    """
    return np.dtype("float32" if arithmetic == "bfloat16" else arithmetic)


def initialise(
    config: BertConfig,
    seed: int,
    dtype: Any = "float32",
    head: AnyHead = PRETRAINING,
) -> Parameters:
    """Draw the paper's initial values: truncated normal weights, zero biases, LayerNorm's gamma 1, beta 0.

    Every tensor has a random generator of its own, so adding a layer or changing the head leaves all other
    tensors as they were. `config.initializer_range` is the standard deviation before truncation. The draws
    are the same for every dtype.

    Parameters
    ----------
    config : the shape of the encoder.
    seed : of all draws.
    dtype : of the parameters.
    head : what stands on the encoder; the heads of pre-training when left out.
    """
    parameters = Parameters(config, dtype=dtype, head=head)
    reset(parameters, parameters, seed)
    return parameters


def reset(parameters: FlatParameters, names: Iterable[str], seed: int) -> None:
    """Give the named parameters, in place, the values that `initialise` gives them.

    Parameters
    ----------
    parameters : changed in place.
    names : which of its tensors to draw anew.
    seed : of all draws.
    """
    wanted = set(names)
    for entry in parameters.table:
        if entry.name in wanted:
            generator = np.random.default_rng([seed, *entry.name.encode()])
            spread = parameters.config.initializer_range
            parameters[entry.name][...] = entry.initial(generator, entry.shape, spread)
