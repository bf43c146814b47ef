"""Measure where the time of a run goes: by operation, with the arithmetic and the bytes of each.

`watch` wraps the public operations of an engine, and the kernels under them where there are any, and unwraps
them afterwards; an engine that is not watched pays nothing. Time is exclusive: each second is counted once,
in the innermost operation. Operations and bytes come from the shapes and dtypes of the arrays alone. The
first steps are kept call by call, as a timeline for a trace viewer.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from minibert.base.files import atomic_json
from minibert.base.terminal import aligned
from minibert.core.optim import KINDS
from minibert.engines.flops import attention_pairs

FORWARD, BACKWARD, UPDATE, OTHER = "forward", "backward", "update", "other"
# Backward when called by themselves; inside another operation they take its direction.
OF_BACKWARD = ("accumulate", "scatter_add")
# Not watched: the first two only call other operations, and a cast counts for the operation that needs it.
GLUE = ("layers", "layers_backward", "cast")
OUTSIDE, ITSELF = "outside (data, files, Python)", "this trace itself"
SMALL = 0.005  # rows with less than this share of the time are shown as one
SUMMED = ("calls", "seconds", "operations", "moved", "share")  # fields of that one row
STEPS_SHOWN = 5  # on the timeline

Arguments = dict[str, Any]


def _product(a: str, b: str) -> Callable[[Arguments], int]:
    """Make a function that counts the 2 M N K operations of a product of two arguments, (M,K) and (K,N)."""
    return lambda arguments: 2 * arguments[a].size * arguments[b].shape[-1]


def _attention(products: int) -> Callable[[Arguments], int]:
    """Make a function that counts the operations of attention, without padding.

    `products` is the number of matrix products as large as that of queries with keys: two forward and four
    backward.
    """

    def count(arguments: Arguments) -> int:
        lengths = np.diff(arguments["cu_seqlens"])
        _, A, D = arguments["q"].shape
        pairs = attention_pairs(lengths, arguments.get("causal", False))
        queries_begin = arguments.get("queries")
        if queries_begin is not None:
            # Only some of the tokens have queries; each of them sees its whole sequence.
            queries = np.diff(queries_begin)
            pairs = int((lengths.astype(np.int64) * queries).sum())
        return products * 2 * pairs * A * D

    return count


# How to count the operations that multiply matrices, from their arguments by name. The sum over a step is
# `flops.step_operations`, which leaves out Muon's own products. A backward that is given only dy and `saved`
# takes twice the operations of its forward.
OPERATIONS: dict[str, Callable[[Arguments], int]] = {
    "linear": _product("x", "weight"),
    "gemm": _product("a", "b"),
    "linear_gelu": _product("x", "weight"),
    "linear_softmax_cross_entropy": _product("x", "weight"),
    "linear_gelu_backward": _product("dy", "weight"),
    "attention": _attention(2),
    "attention_backward": _attention(4),
    "attention_probabilities": _attention(1),
}

# Arguments that a kernel both reads and writes: every other argument is only read or only written.
UPDATED = {
    "accumulate": ("total",),
    "scale_rows": ("x",),
    "softmax_cross_entropy": ("logits",),
    "linear_gelu_backward": ("u",),
    "orthogonalise": ("x",),
}
ADDED_TO = {"gemm": "out", "column_sums": "sums"}  # read as well if the argument `add` is true

# Tables of which only some rows are read, and the argument that holds the indices of those rows;
# `scatter_add` reads and writes them.
TABLES = {
    "embedding": {"table": "ids"},
    "take_rows": {"x": "rows"},
    "gather": {"table": "ids"},
    "embedding_layer_norm": {"word": "ids", "position": "positions", "segment": "segments"},
    "scatter_add": {"table": "ids", "total": "ids"},
}


@dataclass
class Row:
    """All calls of one operation in one direction, added up."""

    op: str
    direction: str = ""  # forward, backward or update, or "" for none of these
    calls: int = 0
    seconds: float = 0.0  # exclusive: without the operations that it called
    operations: int = 0  # floating-point operations of matrix products, without padding
    moved: int = 0  # bytes read and written, every array once
    share: float = 0.0  # of the time that was watched

    def rates(self) -> list[float]:
        """Return floating-point operations and bytes a second, both in units of 10^9."""
        seconds = max(1e-12, self.seconds)
        return [self.operations / seconds / 1e9, self.moved / seconds / 1e9]


@dataclass
class _Frame:
    """An operation that is running."""

    key: tuple[str, str]
    inside: float = 0.0  # seconds in operations that it called, and in tracing them
    leaf: bool = True  # whether it has called no other operation
    absorbs_callees: bool = False  # whether the operations that it calls count as part of it


class Trace:
    """The record of an engine's operations; made by `watch`."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], Row] = {}  # by operation and direction
        self._running: list[_Frame] = []  # the call stack, innermost operation last
        self._events: list[dict[str, Any]] = []
        self._step_began: float | None = None
        self.steps_shown = 0  # on the timeline
        self._forward: dict[int, int] = {}  # id of what a forward saved -> operations of that forward
        self._itself = 0.0  # seconds in this trace's own work
        self._began = perf_counter()
        self._ended: float | None = None

    @property
    def seconds(self) -> float:
        """Return how long the engine was watched, or has been watched so far."""
        return (self._ended or perf_counter()) - self._began

    def as_one(self, op: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give a function its own row, which includes every operation that it calls.

        Parameters
        ----------
        op : str
            The name of the row; it has no direction.
        function : callable
            What to watch.

        Returns
        -------
        callable
            A function with the same arguments and result.
        """
        return lambda *args, **kwargs: self._timed((op, ""), partial(function, *args, **kwargs), None)

    def rows(self) -> list[Row]:
        """List operations, the slowest first; the last two rows are this trace and all other time."""
        total = self.seconds
        rows = sorted(self._sums.values(), key=lambda row: -row.seconds)
        inside = sum(row.seconds for row in rows)
        rest = max(0.0, total - self._itself - inside)
        rows.append(Row(ITSELF, seconds=self._itself))
        rows.append(Row(OUTSIDE, seconds=rest))
        return [replace(row, share=row.seconds / total) for row in rows]

    def table(self, peak: float | None = None) -> str:
        """Write the rows as a table.

        Parameters
        ----------
        peak : float or None
            The peak rate of the machine in GFLOP/s; if given, a column shows the share that each row reaches.

        Returns
        -------
        str
            Lines of aligned columns. Rows with a share under `SMALL` are added up in one.
        """
        rows = self.rows()
        shown = [row for row in rows if row.calls == 0 or row.share >= SMALL]
        small = [row for row in rows if row not in shown]
        if small:
            sums = {name: sum(getattr(row, name) for row in small) for name in SUMMED}
            others = Row(f"{len(small)} others, each under {SMALL:.1%}", **sums)
            # Before the last two, which are not operations: `ITSELF` and `OUTSIDE`.
            shown.insert(len(shown) - 2, others)
        operations = sum(row.operations for row in rows)
        shown.append(Row("all", seconds=self.seconds, operations=operations, share=1.0))
        lines = [["op", "direction", "calls", "ms", "share", "GFLOP/s", "of peak", "GB/s"]]
        lines += [_cells(row, peak) for row in shown]
        if peak is None:
            column = lines[0].index("of peak")
            for line in lines:
                del line[column]
        return "\n".join(aligned(lines, left=2))

    def save(self, path: str | Path, **facts: Any) -> None:
        """Write the rows as JSON, together with any other facts.

        Parameters
        ----------
        path : str or Path
            The file, which is replaced if it exists.
        **facts : Any
            Values of JSON types, stored under these names at the top level of the file.
        """
        rows = []
        for row in self.rows():
            gflops, gigabytes = row.rates()
            rows.append(
                {
                    "op": row.op,
                    "direction": row.direction,
                    "calls": row.calls,
                    "milliseconds": round(1e3 * row.seconds, 3),
                    "share": round(row.share, 6),
                    "operations": row.operations,
                    "bytes": row.moved,
                    "gflops": round(gflops, 3),
                    "gigabytes_per_second": round(gigabytes, 3),
                }
            )
        atomic_json(path, facts | {"seconds": self.seconds, "rows": rows}, indent=1)

    def save_events(self, path: str | Path) -> None:
        """Write the calls of the first steps as Chrome trace events, for Perfetto and chrome://tracing.

        The file is a JSON array of complete events in the Trace Event Format; times are in microseconds since
        the watch began.

        Parameters
        ----------
        path : str or Path
            The file, which is replaced if it exists.
        """
        # A caller is recorded after what it called. Sorting is stable, so reversing puts the caller first
        # where both begin and end at the same time.
        latest_first = reversed(self._events)
        events = sorted(latest_first, key=lambda event: (event["ts"], -event["dur"]))
        atomic_json(path, events, indent=None)

    def _around(
        self,
        name: str,
        function: Callable[..., Any],
        names: Sequence[str],
        kernel: bool,
        saves: bool,
    ) -> Callable[..., Any]:
        """Wrap an operation so that its calls are recorded.

        `names` are those of its parameters. A `kernel` writes into its arguments; an operation that `saves`
        returns (y, saved).
        """

        def work(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> tuple[int, int]:
            given = dict(zip(names, args, strict=False)) | kwargs
            try:
                operations = self._operations(name, given, result)
                return operations, _moved(name, given, result, kernel, saves)
            except KeyError:
                # An argument has a name that the tables above do not list: the run goes on without counts.
                return 0, 0

        @wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            call = partial(function, *args, **kwargs)
            return self._timed(self._key(name), call, partial(work, args, kwargs))

        return watched

    def _timed(self, key: tuple[str, str], call: Callable[[], Any], work: Callable[..., Any] | None) -> Any:
        """Call a function, and add the time that it took to the row of `key`.

        `work` counts operations and bytes from the result. If it is None, the function absorbs the operations
        that it calls: they get no rows of their own.
        """
        # The time of one call, and who is charged for it:
        #     entered | prepare | began | call() | ended | count, record | leaving
        # The row gets began to ended, less `frame.inside`, which is the time of nested operations.
        # `_itself` gets the two other stretches; `caller.inside` gets all three.
        entered = perf_counter()
        caller = self._running[-1] if self._running else None
        if caller and caller.absorbs_callees:
            return call()
        frame = _Frame(key, absorbs_callees=work is None)
        self._running.append(frame)
        row = self._sums[key] = self._sums.get(key) or Row(*key)
        began = perf_counter()
        try:
            result = call()
        finally:
            ended = perf_counter()
            self._running.pop()
            row.seconds += ended - began - frame.inside
            # A kernel inside the operation of the same name is not a second call.
            row.calls += caller is None or caller.key != key
            if caller:
                caller.leaf = False
                caller.inside += ended - entered
        facts: dict[str, int] = {}
        if frame.leaf and work:
            operations, moved = work(result)
            row.operations += operations
            row.moved += moved
            facts = {"operations": operations, "bytes": moved}
        if self.steps_shown < STEPS_SHOWN:
            self._note(key[0], key[1] or OTHER, began, ended, facts)
            if caller is None and key[1]:
                self._note_step(key[0], began, ended)
        leaving = perf_counter()
        self._itself += (began - entered) + (leaving - ended)
        if caller:
            caller.inside += leaving - ended
        return result

    def _note(self, name: str, category: str, began: float, ended: float, facts: dict[str, int]) -> None:
        """Put a call, or a step, on the timeline, rounded to nanoseconds in a way that keeps calls nested."""
        begin = round(1e9 * (began - self._began))
        end = round(1e9 * (ended - self._began))
        self._events.append(
            {
                "name": name,
                "cat": category,
                "ph": "X",
                "ts": begin / 1000,
                "dur": (end - begin) / 1000,
                "pid": 1,
                "tid": 1,
                "args": facts,
            }
        )

    def _note_step(self, op: str, began: float, ended: float) -> None:
        """Start a step with its first operation, and end it with the update of the parameters."""
        if self._step_began is None:
            self._step_began = began
        if op in KINDS:
            self.steps_shown += 1
            self._note(f"step {self.steps_shown}", "step", self._step_began, ended, {})
            self._step_began = None

    def _key(self, name: str) -> tuple[str, str]:
        """Return the name and direction of the row that a call belongs to."""
        if name in KINDS or name == "global_norm":
            return name, UPDATE
        if name.endswith("_backward"):
            return name.removesuffix("_backward"), BACKWARD
        if self._running:
            _, direction = self._running[-1].key
            if direction:
                return name, direction
        return name, BACKWARD if name in OF_BACKWARD else FORWARD

    def _operations(self, name: str, given: Arguments, result: Any) -> int:
        """Count the floating-point operations of a call that called no other operation."""
        if "saved" in given:
            if name.removesuffix("_backward") not in OPERATIONS:
                return 0
            return 2 * self._forward.pop(id(given["saved"]), 0)
        if name not in OPERATIONS:
            return 0
        operations = OPERATIONS[name](given)
        if operations and isinstance(result, tuple):  # y, saved
            self._forward[id(result[1])] = operations
        return operations


@contextmanager
def watch(ops: Any) -> Iterator[Trace]:
    """Watch an engine's operations on one thread until the end of the block; no result changes by a bit.

    Parameters
    ----------
    ops : Ops
        The engine. Its operations are watched, and the kernels that the engine in C++ calls for them.

    Yields
    ------
    Trace
        The record so far; after the block, the finished record.

    Examples
    --------
    >>> from minibert.model.ops import Ops
    >>> ops, x = Ops(), np.ones((3, 2))
    >>> with watch(ops) as trace:
    ...     y, saved = ops.linear(x, np.ones((2, 5)), np.ones(5))
    >>> [(row.op, row.direction, row.calls, row.operations, row.moved) for row in trace.rows()][0]
    ('linear', 'forward', 1, 60, 288)
    """
    trace = Trace()
    kernels = vars(ops).get("_run")
    names = [name for name in dir(type(ops)) if not name.startswith("_") and name not in GLUE]
    operations = [name for name in names if callable(getattr(type(ops), name))]
    for name in operations:
        function = getattr(ops, name)
        arguments = list(inspect.signature(function).parameters)
        saves = f"{name}_backward" in names
        setattr(ops, name, trace._around(name, function, arguments, False, saves))
    if kernels is not None:
        functions = {name: getattr(kernels, name) for name in dir(kernels) if not name.startswith("_")}
        for name in kernels.arguments.keys() & functions.keys():
            arguments = kernels.arguments[name]
            functions[name] = trace._around(name, functions[name], arguments, True, False)
        ops._run = SimpleNamespace(**functions)
    try:
        yield trace
    finally:
        trace._ended = perf_counter()
        for name in operations:
            delattr(ops, name)
        if kernels is not None:
            ops._run = kernels


def _moved(name: str, given: Arguments, result: Any, kernel: bool, saves: bool) -> int:
    """Count the bytes of all arrays that a call reads and writes; of a table, only the rows that it uses."""
    tables = TABLES.get(name, {})
    total = 0
    for argument, value in given.items():
        if argument not in tables:
            total += sum(array.nbytes for array in _arrays(value))
            continue
        rows = given[tables[argument]].size
        taken = min(rows * value.nbytes // max(1, len(value)), value.nbytes)
        if name == "scatter_add":
            taken *= 2
        total += taken
    if kernel:
        return total + sum(given[argument].nbytes for argument in _written_too(name, given))
    if name == "scatter_add":  # it writes in place, so the result is an argument already counted
        return total
    y, saved = result if saves else (result, ())
    total += sum(array.nbytes for array in _arrays(y))
    counted = {id(array) for array in _arrays((y, *given.values()))}
    only_saved = [array for array in _arrays(saved) if id(array) not in counted]
    return total + sum(array.nbytes for array in only_saved)


def _written_too(name: str, given: Arguments) -> list[str]:
    """List the arguments that a kernel both reads and writes."""
    arguments = list(("params", "m", "v") if name in KINDS else UPDATED.get(name, ()))
    if given.get("add") and name in ADDED_TO:
        arguments.append(ADDED_TO[name])
    return arguments


def _arrays(value: Any) -> Iterator[Any]:
    """Yield the arrays in nested tuples and lists."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from _arrays(item)
    elif hasattr(value, "nbytes") and hasattr(value, "shape"):
        yield value


def _cells(row: Row, peak: float | None) -> list[str]:
    """Format a row as a line of the table; a cell without a value is empty."""
    gflops, gigabytes = row.rates()
    counts_products = bool(row.operations)
    return [
        row.op,
        row.direction,
        f"{row.calls:,}" if row.calls else "",
        f"{1e3 * row.seconds:,.1f}",
        f"{row.share:.1%}",
        f"{gflops:,.1f}" if counts_products else "",
        f"{gflops / peak:.0%}" if counts_products and peak else "",
        f"{gigabytes:,.1f}" if row.moved else "",
    ]
