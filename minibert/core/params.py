"""Parameters: one table name -> shape -> initial values, one flat buffer, named views of it.

The order of the table is the order in the buffer. Layers follow one another and are alike, so that all of
them together are one (L, size of a layer) view; an optimizer sweeps over the whole buffer at once.
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from minibert.base.errors import InputError
from minibert.core.arrays import Array, Params
from minibert.core.config import BertConfig
from minibert.core.head_kinds import KINDS, POOLS, SEQUENCES


@dataclass(frozen=True)
class Entry:
    """One row of the table."""

    name: str  # path in the tree, joined by dots
    shape: tuple[int, ...]
    initial: str  # "normal" (truncated), "zeros", "ones", and for LSTMs "uniform" and "forget"
    decays: bool  # weight decay: on weights, not on LayerNorm and biases (as in BERT's released code)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))


class Head(NamedTuple):
    """What stands on the encoder: the two heads of pre-training, or the one output layer of a task.

    Examples
    --------
    >>> Head("classify", 3).pooled, Head("span", 2).pooled
    (True, False)
    """

    kind: str  # one of `KINDS`
    outputs: int  # numbers for a sequence or a token; 0 with "pretraining"
    lstm: bool = False  # two bidirectional LSTMs between encoder and head: "+ BiLSTM" of the paper's Table 5
    pool: str = ""  # one of `POOLS`, where an example is several windows; "": it is one sequence

    @property
    def pooled(self) -> bool:
        """Whether the head reads the pooled [CLS], and so has a pooler below it."""
        return KINDS[self.kind].reads == SEQUENCES


PRETRAINING = Head("pretraining", 0)


def check_head(head: Head) -> None:
    """Raise InputError when there is no such head."""
    if head.kind not in KINDS:
        raise InputError(f"head kind {head.kind!r} does not exist; use one of {', '.join(KINDS)}.")
    fixed = KINDS[head.kind].outputs
    if head.outputs != (max(1, head.outputs) if fixed is None else fixed):
        expected = "at least 1" if fixed is None else fixed
        raise InputError(f"A head of kind {head.kind!r} has {expected} outputs, not {head.outputs}.")
    if head.lstm and head.kind == "pretraining":
        raise InputError("Pre-training has no LSTM between encoder and heads; leave lstm=True to a task.")
    if head.pool and (head.pool not in POOLS or head.kind not in ("classify", "regress", "multilabel")):
        raise InputError(f"A head of kind {head.kind!r} has no pool={head.pool!r}; leave it out.")


def parameter_table(config: BertConfig, head: Head = PRETRAINING) -> list[Entry]:
    """List every parameter of encoder, pooler (if the head reads it) and head, in the order of the buffer.

    Weights are (inputs, outputs): a layer computes `x @ weight + bias`. The three projections of attention
    are one matrix. The decoder of the masked-LM head is `embeddings.word` itself (tied), plus a bias.
    LSTMs on the encoder give H numbers as well, half of them in each direction.
    """
    check_head(head)
    H, F, V = config.H, config.F, config.V
    if head.lstm and H % 2:
        raise InputError(f"hidden_size={H} is odd; an LSTM needs an even one, half for each direction.")

    def weight(name: str, *shape: int) -> Entry:
        return Entry(name, shape, "normal", True)

    def bias(name: str, *shape: int) -> Entry:
        return Entry(name, shape, "zeros", False)

    def norm(name: str) -> list[Entry]:
        return [Entry(f"{name}.gamma", (H,), "ones", False), Entry(f"{name}.beta", (H,), "zeros", False)]

    table = [
        weight("embeddings.word", V, H),
        weight("embeddings.position", config.P, H),
        weight("embeddings.segment", config.type_vocab_size, H),
        *norm("embeddings"),
    ]
    for i in range(config.L):
        attention, feed_forward = f"layers.{i}.attention", f"layers.{i}.feed_forward"
        table += [
            weight(f"{attention}.qkv_weight", H, 3 * H),
            bias(f"{attention}.qkv_bias", 3 * H),
            weight(f"{attention}.output_weight", H, H),
            bias(f"{attention}.output_bias", H),
            *norm(attention),
            weight(f"{feed_forward}.in_weight", H, F),
            bias(f"{feed_forward}.in_bias", F),
            weight(f"{feed_forward}.out_weight", F, H),
            bias(f"{feed_forward}.out_bias", H),
            *norm(feed_forward),
        ]
    if head.lstm:
        table += lstm_table(H, H // 2)
    if head.pooled:
        table += [weight("pooler.weight", H, H), bias("pooler.bias", H)]
    query = [weight("head.query", H)] if head.pool == "attention" else []
    if head.kind != "pretraining":
        output = [weight("head.weight", H, head.outputs), bias("head.bias", head.outputs)]
        return table + output * (head.outputs > 0) + query
    return [
        *table,
        weight("mlm.weight", H, H),
        bias("mlm.bias", H),
        *norm("mlm"),
        bias("mlm.output_bias", V),
        weight("nsp.weight", H, 2),
        bias("nsp.bias", 2),
    ]


def lstm_table(inputs: int, width: int, depth: int = 2) -> list[Entry]:
    """List bidirectional LSTMs, `depth` of them one upon another, each with `width` outputs a direction."""
    table = []
    for i in range(depth):
        for direction in ("left_to_right", "right_to_left"):
            path = f"lstm.{i}.{direction}"
            table += [
                Entry(f"{path}.w_in", (inputs, 4 * width), "uniform", True),
                Entry(f"{path}.w_state", (width, 4 * width), "uniform", True),
                Entry(f"{path}.bias", (4 * width,), "forget", False),
            ]
        inputs = 2 * width
    return table


def unflatten(table: Iterable[Entry], flat: Array) -> Params:
    """Return the nested tree of a flat buffer; leaves are views with NumPy, slices otherwise.
    Whatever lies beyond the table's last entry is left out."""
    named, begin = {}, 0
    for entry in table:
        named[entry.name] = flat[begin : begin + entry.size].reshape(entry.shape)
        begin += entry.size
    return nest(named)


def leaf_of(tree: Any, path: str) -> Array:
    """Look up a leaf in what `nest` makes: `"layers.0.mlp.bias"` -> `tree["layers"][0]["mlp"]["bias"]`."""
    for step in path.split("."):
        tree = tree[int(step) if step.isdigit() else step]
    return tree


def nest(named: dict[str, Array]) -> Params:
    """Nest leaves by their paths: `{"layers.0.mlp.bias": b}` -> `{"layers": [{"mlp": {"bias": b}}]}`."""
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

    The buffer `flat` is (N,), N being the sum of the table's sizes; zeros of `dtype` when left out.
    """

    config: Any  # its `initializer_range` is the standard deviation of normal initial values

    def __init__(self, table: list[Entry], flat: np.ndarray | None, dtype: Any) -> None:
        self.table = table
        ends = np.cumsum([entry.size for entry in table])
        self._places = {one.name: (int(end) - one.size, one) for one, end in zip(table, ends, strict=True)}
        self.flat = np.zeros(self.count(), dtype) if flat is None else flat

    @property
    def flat(self) -> Array:
        """(N,) the buffer; another may take its place, and `tree` is then made of that."""
        return self._flat

    @flat.setter
    def flat(self, flat: Array) -> None:
        count = self.count()
        if flat.shape != (count,):
            raise ValueError(f"flat has shape {flat.shape}, but this configuration has {count:,} parameters.")
        self._flat = flat
        self.__dict__.pop("tree", None)

    @cached_property
    def tree(self) -> Params:
        """Nested dictionaries of views, as the model takes them: `tree["layers"][0]["attention"]`."""
        return unflatten(self.table, self.flat)

    def make_read_only(self) -> None:
        """Let nobody write to the buffer any more, or to views of it that are taken from now on."""
        self.flat = self.flat.view()
        self.flat.flags.writeable = False

    def like(self, flat: Array) -> Self:
        """Put another buffer (N,) under the same names."""
        other = copy.copy(self)
        other.flat = flat
        return other

    def __getstate__(self) -> dict[str, Any]:
        # A copied tree would hold copies of the views: arrays of its own, apart from the buffer.
        return {name: value for name, value in self.__dict__.items() if name != "tree"}

    @property
    def description(self) -> dict[str, Any]:
        """What a checkpoint says, in JSON, so that the same table can be made again."""
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
        """(K,2) int64: the ranges [begin, end) of the buffer that have weight decay, neighbours joined."""
        begins, ends, decays = self.tensors.T
        change = np.diff(decays, prepend=0, append=0)  # 1 where a range begins, -1 behind its last tensor
        return np.stack([begins[change[:-1] == 1], ends[change[1:] == -1]], axis=1)

    @property
    def tensors(self) -> np.ndarray:
        """(K,3) int64: begin, end and whether it has weight decay, of all tensors in the buffer in order."""
        rows = [(begin, begin + entry.size, entry.decays) for begin, entry in self._places.values()]
        return np.array(rows, np.int64)

    @property
    def matrices(self) -> np.ndarray:
        """(K,5) int64: `tensors`, and of a layer's weights their rows and how many matrices lie abreast."""

        def shape(name: str, rows: int, *columns: int) -> tuple[int, int]:
            weights = name.startswith("layers.") and columns
            return (rows, 3 if name.endswith("qkv_weight") else 1) if weights else (0, 0)

        return np.hstack([self.tensors, [shape(entry.name, *entry.shape) for entry in self.table]])

    def zeros_like(self) -> Self:
        """Return a tree of the same shape and dtype filled with zeros: gradients, moments."""
        return self.like(np.zeros_like(self.flat))

    def astype(self, dtype: Any) -> Self:
        """Return a copy in another precision."""
        return self.like(self.flat.astype(dtype))

    def count(self, *prefixes: str) -> int:
        """Count the parameters whose name begins with one of the prefixes; all of them without a prefix."""
        return sum(entry.size for entry in self.table if entry.name.startswith(prefixes or ("",)))


class Parameters(FlatParameters):
    """All parameters of one BERT and of its head; `flat` and `dtype` are as for `FlatParameters`.

    Attributes
    ----------
    decoder : array (V,H), the decoder of a masked-LM head that is not the word embeddings; None, as in BERT:
        it is. Only a loaded model has one. It lies outside the buffer, and nothing trains it.
    """

    decoder: np.ndarray | None = None

    def __init__(
        self, config: BertConfig, flat: Array = None, dtype: Any = np.float32, head: Head = PRETRAINING
    ) -> None:
        self.config, self.head = config, head
        super().__init__(parameter_table(config, head), flat, dtype)

    @property
    def description(self) -> dict[str, Any]:
        return super().description | {"head": list(self.head)[: None if self.head.pool else 3]}

    def with_head(self, head: Head, seed: int) -> tuple["Parameters", list[str]]:
        """Return the same encoder under another head, as a copy, and the names of the tensors that are new.

        The weights of a head that equals the present one are kept; what is new has the seed's initial values.
        """
        other = Parameters(self.config, dtype=self.flat.dtype, head=head)
        kept = {name for name in self if head == self.head or not name.startswith("head.")}
        for name in kept.intersection(other):
            other[name][...] = self[name]
        fresh = [name for name in other if name not in kept]
        reset(other, fresh, seed)
        return other, fresh

    def trained_from(self, frozen: int | None) -> int:
        """Return where the trained part of the buffer begins.

        The embeddings and the `frozen` lowest layers lie before it; None: nothing is frozen.
        """
        if frozen is None:
            return 0
        if not 0 <= frozen <= self.config.L:
            advice = f"choose from 0, which freezes the embeddings alone, to {self.config.L}."
            raise InputError(f"frozen={frozen} is not a number of layers of this model; {advice}")
        return self.count("embeddings.", *(f"layers.{i}." for i in range(frozen)))


def precision_for(arithmetic: str) -> np.dtype:
    """Return the dtype of parameters, gradients and moments when products are computed in `arithmetic`.

    Examples
    --------
    >>> precision_for("bfloat16")
    dtype('float32')
    """
    return np.dtype("float32" if arithmetic == "bfloat16" else arithmetic)


def initialise(config: BertConfig, seed: int, dtype: Any = "float32", head: Head = PRETRAINING) -> Parameters:
    """Draw the paper's initial values: truncated normal weights, zero biases, LayerNorm's gamma 1, beta 0.

    Every tensor has a random generator of its own, so adding a layer or changing the head leaves all other
    tensors as they were. `config.initializer_range` is the standard deviation before truncation. The draws
    are the same for every dtype.
    """
    parameters = Parameters(config, dtype=dtype, head=head)
    reset(parameters, parameters, seed)
    return parameters


def reset(parameters: FlatParameters, names: Iterable[str], seed: int) -> None:
    """Give the named parameters, in place, the values that `initialise` gives them."""
    wanted = set(names)
    for entry in parameters.table:
        if entry.name in wanted:
            generator = np.random.default_rng([seed, *entry.name.encode()])
            parameters[entry.name][...] = _initial(entry, parameters.config.initializer_range, generator)


def _initial(entry: Entry, spread: float, generator: np.random.Generator) -> Array:
    """Draw values to begin with.

    Weights of an LSTM are uniform in +-1/sqrt(outputs), as PyTorch's are. Its biases are zero, but those of
    the forget gates one: to begin with, a cell remembers (Gers et al. 2000; Jozefowicz et al. 2015).
    """
    gate = entry.shape[-1] // 4  # the columns of each of an LSTM's gates: input, forget, candidate, output
    if entry.initial == "normal":
        return spread * _truncated_normal(generator, entry.shape)
    if entry.initial == "uniform":
        return generator.uniform(-1, 1, entry.shape) / gate**0.5
    if entry.initial == "forget":
        return np.arange(4 * gate) // gate == 1
    return 1 if entry.initial == "ones" else 0


def _truncated_normal(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw standard normal values, anew whatever falls beyond two standard deviations."""
    values = generator.standard_normal(shape)
    while (beyond := np.abs(values) > 2).any():
        values[beyond] = generator.standard_normal(int(beyond.sum()))
    return values
