"""Write the proof sheet as one HTML file: errors and bounds, with links to the code that they prove."""

import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from minibert.core import bert
from minibert.gradcheck.sheet import Row
from minibert.model import bilstm
from minibert.model.ops import Ops
from minibert.model.params import Head
from minibert.reports.markup import rendered
from minibert.tasks import batches

# Sizes of the picture, in its own units.
WIDTH = 1000.0
LEFT = 390.0  # width of the labels
TOP = 44.0  # height of what is above the rows
ROW = 16.0  # height of a row
GAP = 34.0  # between two axes
MOST_TICKS = 6  # labels of an axis
RADIUS, FAILED_RADIUS = 3.5, 7  # radius of a dot
CROSS = 5  # half the size of the cross on a check that fails


def proof_page(rows: Sequence[Row], engines: Iterable[Ops]) -> str:
    """Write the proof sheet as one HTML document.

    Parameters
    ----------
    rows : sequence of Row
        Rows of `proof_sheet`.
    engines : iterable of Ops
        The engines that were checked. Each has a section, with links to the sources of what it runs.

    Returns
    -------
    str
    """
    sections = []
    for engine in engines:
        of_engine = [row for row in rows if row.engine == engine.name]
        lines: dict[str, dict[tuple[str, str], Row]] = {}
        for row in of_engine:
            lines.setdefault(row.operation, {})[row.dtype, row.size] = row
        section = {
            "engine": engine.name,
            "picture": picture(of_engine),
            "checks": dict.fromkeys((row.dtype, row.size) for row in of_engine),
            "table": [(label, source_of(engine, label), checks) for label, checks in lines.items()],
        }
        sections.append(section)
    failed = [f"{row.operation} of {row.engine}" for row in rows if row.verdict != "ok"]
    return rendered(
        "proof_sheet.html.j2",
        title="Proof sheet: every gradient and its error",
        sections=sections,
        count=len(rows),
        failed=failed,
    )


def source_of(engine: Ops, label: str) -> tuple[str, int]:
    """Find the source of the backward that an engine runs for a check, or of the forward if it has none.

    Parameters
    ----------
    engine : Ops
    label : str
        Label of a `Case`: the operation, and the variant of the case.

    Returns
    -------
    file : str
        Path that begins with the folder of the package.
    line : int
        Number of the first line.
    """
    operation, _, variant = label.partition(" ")
    if operation == "head_loss":
        function = batches.functions_of(Head(variant.split()[0], 0)).loss_backward
    elif operation == "tagger_loss":
        function = bilstm.loss_backward
    else:
        forward = getattr(engine, operation, None)
        backward = getattr(engine, f"{operation}_backward", None)
        function = backward or forward
        if forward is None:
            function = bert.pretraining_loss_backward
    function = inspect.unwrap(function)
    return f"{function.__module__.replace('.', '/')}.py", function.__code__.co_firstlineno


class _Axis(NamedTuple):
    """A logarithmic axis. Zero is drawn at its left end, infinity and NaN at its right end."""

    left: float
    right: float
    low: int  # power of ten at the left end
    high: int  # power of ten at the right end

    def place(self, value: float) -> float:
        """Return the coordinate of a value."""
        power: float = self.high  # infinity and NaN
        if value == 0:
            power = self.low
        elif 0 < value < math.inf:
            power = math.log10(value)
        share = (power - self.low) / (self.high - self.low)
        return self.left + share * (self.right - self.left)

    def ticks(self) -> dict[str, float]:
        """Return the coordinates of the labels."""
        step = (self.low - self.high) // MOST_TICKS
        labels = {"0": self.left}
        for power in range(self.high - 1, self.low, step):
            labels[f"1e{power}"] = self.place(10.0**power)
        return labels


def _axis(left: float, right: float, values: Sequence[float]) -> _Axis:
    """Return an axis that holds all values.

    Examples
    --------
    >>> _axis(0, 50, [0.0, 2e-4, 3e-2, float("nan")])[2:]
    (-5, 0)
    """
    finite = [value for value in values if 0 < value < math.inf]
    powers = [math.log10(value) for value in finite]
    low = math.floor(min(powers)) - 1
    high = math.ceil(max(powers)) + 1
    return _Axis(left, right, low, high)


def picture(rows: Sequence[Row]) -> dict[str, Any]:
    """Draw the checks of one engine: a line for each operation, an axis for each precision.

    Parameters
    ----------
    rows : sequence of Row
        At least one, with an error or a bound that is finite and not zero in each precision.

    Returns
    -------
    dict
        Values for the template; lengths and coordinates in units of the picture.
    """
    failed = dict.fromkeys(row.operation for row in rows if row.verdict != "ok")
    labels = dict.fromkeys(row.operation for row in rows)
    dtypes = dict.fromkeys(row.dtype for row in rows)
    heights = {label: TOP + ROW * (index + 0.5) for index, label in enumerate(labels)}
    bottom = TOP + ROW * len(labels)
    axis_width = (WIDTH - LEFT) / len(dtypes)
    paths: list[tuple[str, list[tuple[float, float]]]] = []
    texts = []
    for label, y in heights.items():
        words = f"FAIL {label}" if label in failed else label
        texts.append((LEFT - 16, y + 4, "end", words))
    dots: list[tuple[Any, ...]] = []
    for index, dtype in enumerate(dtypes):
        of_dtype = [row for row in rows if row.dtype == dtype]
        left = LEFT + index * axis_width
        right = LEFT + (index + 1) * axis_width - GAP
        values = []
        for row in of_dtype:
            values += [row.error, row.bound]
        axis = _axis(left, right, values)
        texts.append((left, 16, "start", dtype))
        for words, x in axis.ticks().items():
            texts.append((x, TOP - 8, "middle", words))
            texts.append((x, bottom + 16, "middle", words))
            paths.append(("rule", [(x, TOP), (x, bottom)]))
        for y in heights.values():
            paths.append(("rule", [(left, y), (right, y)]))
        for row in of_dtype:
            y = heights[row.operation]
            paths += _marks(row, axis, y)
            radius = RADIUS if row.verdict == "ok" else FAILED_RADIUS
            numbers = f"{row.error:.1e} of {row.bound:.1e}"
            words = f"{row.operation}, {dtype}, {row.size}: {numbers}, {row.verdict}"
            dots.append((row.verdict.lower(), axis.place(row.error), y, radius, words))
    beyond = f"beyond it: {', '.join(failed)}" if failed else "none is beyond it"
    return {
        "title": "Error and bound of every check",
        "label": f"Errors of {len(rows)} checks on a log axis, each beside its bound; {beyond}.",
        "width": WIDTH,
        "height": bottom + 24,
        "paths": paths,
        "texts": texts,
        "dots": dots,
    }


def _marks(row: Row, axis: _Axis, y: float) -> list[tuple[str, list[tuple[float, float]]]]:
    """Return the lines of one check: its bound, and a cross where it fails."""
    bound = axis.place(row.bound)
    half = 0.4 * ROW
    paths = [("bound", [(bound, y - half), (bound, y + half)])]
    if row.verdict == "ok":
        return paths
    x = axis.place(row.error)
    left, right = x - CROSS, x + CROSS
    above, below = y - CROSS, y + CROSS
    paths.append(("fail", [(left, above), (right, below)]))
    paths.append(("fail", [(left, below), (right, above)]))
    return paths
