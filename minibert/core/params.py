"""Parameters: a table of names, shapes and initial values, one flat buffer, and named views of it.

The order of the table is the order in the buffer. The layers are alike and follow one another, so together
they are one (L, size of a layer) view; an optimizer sweeps over the whole buffer at once.
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
    """Draw from a normal distribution of standard deviation `spread`, truncated at two standard deviations.

    Parameters
    ----------
    generator : source of the draws.
    shape : shape of the values.
    spread : standard deviation before truncation.

    Returns
    -------
    array of `shape`, float64, all within two times `spread`.
    """
    values = generator.standard_normal(shape)
    while (beyond := np.abs(values) > 2).any():
        values[beyond] = generator.standard_normal(int(beyond.sum()))
    return spread * values


def zeros(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> float:
    """Return 0, the initial value of biases.

    Parameters
    ----------
    generator, shape, spread : ignored; every function of initial values is called with them.
    """
    return 0.0


def ones(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> float:
    """Return 1, the initial value of the gamma of a LayerNorm.

    Parameters
    ----------
    generator, shape, spread : ignored; every function of initial values is called with them.
    """
    return 1.0


@dataclass(frozen=True)
class Entry:
    """One row of the table: a parameter tensor.

    Attributes
    ----------
    name : path in the tree, its steps joined by dots, such as "layers.0.attention.qkv_weight".
    shape : size along each axis.
    initial : function of a generator, the shape and a standard deviation that draws the initial values.
    decays : whether it has weight decay: weights do, LayerNorm and biases do not, as in BERT's released code.
    matrices : how many matrices stand side by side in a weight of a layer, for Muon; 0 in everything else.
    """

    name: str
    shape: tuple[int, ...]
    initial: Initial
    decays: bool
    matrices: int = 0

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return int(np.prod(self.shape))


class AnyHead(Protocol):
    """What the core needs of a head: a `PlainHead`, or one with further fields."""

    @property
    def kind(self) -> str:
        """Return the name of the head in the table of kinds."""

    @property
    def outputs(self) -> int:
        """Return the number of outputs for each sequence or token."""

    @property
    def spec(self) -> HeadKind:
        """Return what all heads of this kind have in common."""

    @property
    def pooled(self) -> bool:
        """Return whether the head reads the pooled [CLS]."""


class PlainHead(NamedTuple):
    """What is on top of the encoder: the two heads of pre-training, or the one output layer of a task.

    Nothing is between the two but a pooler. `model.params.Head` also has LSTMs, or pools windows.

    Attributes
    ----------
    kind : name of the head in the table `KINDS`, such as "classify" or "span".
    outputs : how many outputs for each sequence or token; 0 for "pretraining".

    Examples
    --------
    >>> PlainHead("classify", 3).pooled, PlainHead("span", 2).pooled
    (True, False)
    """

    kind: str
    outputs: int

    @property
    def spec(self) -> HeadKind:
        """Return what all heads of this kind have in common."""
        return KINDS[self.kind]

    @property
    def pooled(self) -> bool:
        """Return whether the head reads the pooled [CLS], and so needs a pooler."""
        return self.spec.reads == SEQUENCES


PRETRAINING = PlainHead("pretraining", 0)


def check_head(head: AnyHead, kinds: Mapping[str, HeadKind] = KINDS) -> None:
    """Check that a head exists and has a possible number of outputs.

    Parameters
    ----------
    head : the head to check.
    kinds : the kinds of heads that exist; the core's by default.

    Raises
    ------
    InputError
        When its kind is not in `kinds`, or does not have that number of outputs.
    """
    if head.kind not in kinds:
        raise InputError(f"head kind {head.kind!r} does not exist; use one of {', '.join(kinds)}.")
    fixed = kinds[head.kind].outputs
    if head.outputs != (max(1, head.outputs) if fixed is None else fixed):
        expected = "at least 1" if fixed is None else fixed
        raise InputError(f"A head of kind {head.kind!r} has {expected} outputs, not {head.outputs}.")


def weight(name: str, *shape: int, matrices: int = 0) -> Entry:
    """Describe a matrix, or another tensor with weight decay.

    Parameters
    ----------
    name : path in the tree, its steps joined by dots.
    *shape : size along each axis, inputs first.
    matrices : how many matrices side by side Muon updates; 0 leaves the tensor to AdamW.

    Returns
    -------
    Entry, of a tensor with normal initial values and weight decay.
    """
    return Entry(name, shape, normal, True, matrices)


def bias(name: str, *shape: int) -> Entry:
    """Describe a bias.

    Parameters
    ----------
    name : path in the tree, its steps joined by dots.
    *shape : size along each axis.

    Returns
    -------
    Entry, of a tensor that begins as zeros and has no weight decay.
    """
    return Entry(name, shape, zeros, False)


def norm(name: str, H: int) -> list[Entry]:
    """Describe the two parameters of a LayerNorm.

    Parameters
    ----------
    name : path of the LayerNorm, whose parameters are `name.gamma` and `name.beta`.
    H : number of elements of each.
    """
    return [Entry(f"{name}.gamma", (H,), ones, False), Entry(f"{name}.beta", (H,), zeros, False)]


def parameter_table(config: BertConfig, head: AnyHead = PRETRAINING) -> list[Entry]:
    """List every parameter of encoder, pooler (if the head reads it) and head, in the order of the buffer.

    Weights are (inputs, outputs): a layer computes `x @ weight + bias`. The three projections of attention
    are one matrix. The decoder of the masked-LM head is `embeddings.word` itself (tied), plus a bias.

    Parameters
    ----------
    config : the shape of the encoder.
    head : the head on top; the heads of pre-training by default.
    """
    check_head(head)
    return encoder_table(config) + head_table(config, head)


def encoder_table(config: BertConfig) -> list[Entry]:
    """List the parameters of the embeddings and of the layers.

    Parameters
    ----------
    config : the shape of the encoder.

    Returns
    -------
    list of `Entry`, in the order of the buffer.
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
            weight(f"{attention}.qkv_weight", H, 3 * H, matrices=3),
            bias(f"{attention}.qkv_bias", 3 * H),
            weight(f"{attention}.output_weight", H, H, matrices=1),
            bias(f"{attention}.output_bias", H),
            *norm(attention, H),
            weight(f"{feed_forward}.in_weight", H, F, matrices=1),
            bias(f"{feed_forward}.in_bias", F),
            weight(f"{feed_forward}.out_weight", F, H, matrices=1),
            bias(f"{feed_forward}.out_bias", H),
            *norm(feed_forward, H),
        ]
    return table


def head_table(config: BertConfig, head: AnyHead) -> list[Entry]:
    """List the parameters of the pooler, if the head reads it, and of the head.

    Parameters
    ----------
    config : the shape of the encoder.
    head : the head on top.

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
    flat : (N,) the buffer. Elements after the table's last entry are ignored.

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
    """Look up a leaf of a nested tree: `"layers.0.mlp.bias"` -> `tree["layers"][0]["mlp"]["bias"]`.

    Parameters
    ----------
    tree : nested dictionaries and lists.
    path : names of the steps, joined by dots; integers are indices of a list.
    """
    for step in path.split("."):
        tree = tree[int(step) if step.isdigit() else step]
    return tree


def nest(named: dict[str, Array]) -> Params:
    """Nest leaves by their paths: `{"layers.0.mlp.bias": b}` -> `{"layers": [{"mlp": {"bias": b}}]}`.

    Parameters
    ----------
    named : leaves by path. The entries of a list come in order, from 0.

    Returns
    -------
    tree : nested dictionaries and lists.
    """
    tree: Params = {}
    for path, leaf in named.items():
        *steps, last = path.split(".")
        place: Any = tree
        for name, following in pairwise([*steps, last]):
            if name.isdigit():  # an entry of the list that the previous step made
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
    flat : (N,) the buffer, with N the sum of the table's sizes; it is not copied. None: zeros of `dtype`.
    dtype : dtype of a new buffer; ignored where `flat` is given.

    Raises
    ------
    ValueError
        When `flat` and the table differ in their number of elements.
    """

    config: Any  # its `initializer_range` is the standard deviation of normal initial values

    def __init__(self, table: list[Entry], flat: np.ndarray | None, dtype: Any) -> None:
        self.table = table
        self._places = {}  # where each entry begins
        begin = 0
        for entry in table:
            self._places[entry.name] = (begin, entry)
            begin += entry.size
        self.flat = np.zeros(begin, dtype) if flat is None else flat

    @property
    def flat(self) -> Array:
        """Return the buffer (N,). Assigning another buffer also renews `tree`."""
        return self._flat

    @flat.setter
    def flat(self, flat: Array) -> None:
        """Replace the buffer.

        Parameters
        ----------
        flat : (N,) the buffer; it is not copied.

        Raises
        ------
        ValueError
            When the buffer and the table differ in their number of elements.
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
        """Make the buffer read-only, and with it all views that are taken from now on."""
        self.flat = self.flat.view()
        self.flat.flags.writeable = False

    def like(self, flat: Array) -> Self:
        """Return a copy with the same names on another buffer (N,).

        Parameters
        ----------
        flat : (N,) the buffer; it is not copied.

        Returns
        -------
        FlatParameters, or the subclass that this is.

        Raises
        ------
        ValueError
            When the buffer and the table differ in their number of elements.
        """
        other = copy.copy(self)
        other.flat = flat
        return other

    def __getstate__(self) -> dict[str, Any]:
        # Pickled or deep-copied, the views of the tree would become separate arrays, apart from the buffer.
        return {name: value for name, value in self.__dict__.items() if name != "tree"}

    @property
    def description(self) -> dict[str, Any]:
        """Return what a checkpoint stores, as JSON, so that the same table can be rebuilt."""
        return {"config": self.config.to_dict()}

    def __getitem__(self, name: str) -> np.ndarray:
        begin, entry = self._places[name]
        return self.flat[begin : begin + entry.size].reshape(entry.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Return names and views, in the order of the buffer.

        Returns
        -------
        iterator of (name, array of the tensor's shape).
        """
        return ((name, self[name]) for name in self)

    @property
    def decayed(self) -> np.ndarray:
        """Return the ranges [begin, end) that have weight decay: (K,2) int64, with adjacent ranges merged."""
        begins, ends, decays = self.tensors.T
        change = np.diff(decays, prepend=0, append=0)  # 1 where a range begins, -1 after its last tensor
        return np.stack([begins[change[:-1] == 1], ends[change[1:] == -1]], axis=1)

    @property
    def tensors(self) -> np.ndarray:
        """Return a row (begin, end, has weight decay) for each tensor, in order: (K,3) int64."""
        rows = [(begin, begin + entry.size, entry.decays) for begin, entry in self._places.values()]
        return np.array(rows, np.int64)

    @property
    def matrices(self) -> np.ndarray:
        """Return `tensors` with two more columns: (K,5) int64.

        For the weights of a layer they are the number of rows, and the number of matrices side by side in the
        tensor; for everything else, 0 and 0.
        """
        shapes = [(entry.shape[0] if entry.matrices else 0, entry.matrices) for entry in self.table]
        return np.hstack([self.tensors, shapes])

    def zeros_like(self) -> Self:
        """Return parameters of the same names, shapes and dtype, all of them zero: gradients, moments.

        Returns
        -------
        FlatParameters, or the subclass that this is, with a buffer of its own.
        """
        return self.like(np.zeros_like(self.flat))

    def astype(self, dtype: Any) -> Self:
        """Return a copy in another precision.

        Parameters
        ----------
        dtype : dtype of the copy.

        Returns
        -------
        FlatParameters, or the subclass that this is; always a copy.
        """
        return self.like(self.flat.astype(dtype))

    def count(self, *prefixes: str) -> int:
        """Count the parameters whose names begin with one of the prefixes; without prefixes, count all.

        Parameters
        ----------
        *prefixes : first parts of names, such as "embeddings.".

        Returns
        -------
        int, the number of elements of these tensors.
        """
        return sum(entry.size for entry in self.table if entry.name.startswith(prefixes or ("",)))


class Parameters(FlatParameters):
    """All parameters of one BERT and of its head.

    Parameters
    ----------
    config : the shape of the encoder.
    flat, dtype : as for `FlatParameters`; zeros in float32 by default.
    head : the head on top of the encoder; the heads of pre-training by default.
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
        head : the head on top.
        """
        return parameter_table(config, head)

    @property
    def description(self) -> dict[str, Any]:
        """Return what a checkpoint stores, as JSON: the configuration and the head."""
        return super().description | {"head": [self.head.kind, self.head.outputs]}

    def with_head(self, head: AnyHead, seed: int) -> tuple[Self, list[str]]:
        """Return a copy of the encoder with another head, and the names of the new tensors.

        A head equal to the present one keeps its weights; new tensors get the initial values of `seed`.

        Parameters
        ----------
        head : the head of the copy.
        seed : seed of the initial values of the new tensors.

        Returns
        -------
        parameters : the copy, in the same precision.
        fresh : names of the new tensors.
        """
        other = type(self)(self.config, dtype=self.flat.dtype, head=head)
        kept = {name for name in self if head == self.head or not name.startswith("head.")}
        for name in kept.intersection(other):
            other[name][...] = self[name]
        fresh = [name for name in other if name not in kept]
        reset(other, fresh, seed)
        return other, fresh

    def trained_from(self, frozen: int | None) -> int:
        """Return the index in the buffer at which the trained part begins.

        Parameters
        ----------
        frozen : how many of the lowest layers are frozen, along with the embeddings. None: nothing is frozen.

        Raises
        ------
        InputError
            When the model does not have that many layers.
        """
        if frozen is None:
            return 0
        if not 0 <= frozen <= self.config.L:
            advice = f"choose from 0, which freezes the embeddings alone, to {self.config.L}."
            raise InputError(f"frozen={frozen} is not a number of layers of this model; {advice}")
        layers = (f"layers.{i}." for i in range(frozen))
        return self.count("embeddings.", *layers)


def initialise(
    config: BertConfig,
    seed: int,
    dtype: Any = "float32",
    head: AnyHead = PRETRAINING,
) -> Parameters:
    """Draw the paper's initial values: truncated normal weights, zero biases, LayerNorm's gamma 1, beta 0.

    Every tensor has its own random generator, so adding a layer or changing the head leaves all other
    tensors unchanged. `config.initializer_range` is the standard deviation before truncation. The draws
    are the same for every dtype.

    Parameters
    ----------
    config : the shape of the encoder.
    seed : seed of all draws.
    dtype : dtype of the parameters.
    head : the head on top of the encoder; the heads of pre-training by default.
    """
    parameters = Parameters(config, dtype=dtype, head=head)
    reset(parameters, parameters, seed)
    return parameters


def reset(parameters: FlatParameters, names: Iterable[str], seed: int) -> None:
    """Set the named parameters, in place, to the values that `initialise` draws for them.

    Parameters
    ----------
    parameters : changed in place.
    names : names of the tensors to draw again.
    seed : seed of all draws.
    """
    wanted = set(names)
    for entry in parameters.table:
        if entry.name in wanted:
            generator = np.random.default_rng([seed, *entry.name.encode()])
            spread = parameters.config.initializer_range
            parameters[entry.name][...] = entry.initial(generator, entry.shape, spread)
