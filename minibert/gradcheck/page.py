"""The proof sheet as one file for any browser: errors and bounds, each beside the code it proves."""

import inspect
import math
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from minibert.core import bert
from minibert.gradcheck.sheet import Row
from minibert.model import bilstm
from minibert.model.ops import Ops
from minibert.model.params import Head
from minibert.reports.markup import rendered
from minibert.tasks import batches

WIDTH, LEFT, TOP, HIGH, GAP = 1000.0, 390.0, 44.0, 16.0, 34.0  # of a picture; HIGH is a row's
MOST_TICKS = 6  # of an axis
DISTRIBUTION, URL_NAME = "minibert-scratch", "Repository"  # the latter in [project.urls] of pyproject.toml


def proof_page(rows: Sequence[Row], engines: Iterable[Ops]) -> str:
    """Write rows of the proof sheet as one HTML document.

    Parameters
    ----------
    rows : sequence of Row
        Rows of `proof_sheet`.
    engines : iterable of Ops
        Those that were checked, each a section with the sources of what it runs.

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
        url=repository_url(),
        sections=sections,
        count=len(rows),
        failed=failed,
    )


def source_of(engine: Ops, label: str) -> tuple[str, int]:
    """Find the backward that an engine runs for a check; else the forward.

    Parameters
    ----------
    engine : Ops
    label : str
        Label of a `Case`: the operation, and what is particular about the case.

    Returns
    -------
    file : str
        From the package's folder on.
    line : int
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


def repository_url() -> str:
    """Read where the project's repository is from the installed package; "" where it does not say."""
    try:
        lines = metadata.metadata(DISTRIBUTION).get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    urls = dict(line.split(", ", 1) for line in lines)  # "Repository, https://..."
    return urls.get(URL_NAME, "").rstrip("/")


class _Axis(NamedTuple):
    """A log axis: powers of ten at its ends, where zero stands, and what is infinite or not a number."""

    left: float
    right: float
    low: int
    high: int

    def place(self, value: float) -> float:
        """Return where a value stands."""
        power: float = self.high  # of what is infinite or not a number
        if value == 0:
            power = self.low
        elif 0 < value < math.inf:
            power = math.log10(value)
        share = (power - self.low) / (self.high - self.low)
        return self.left + share * (self.right - self.left)

    def ticks(self) -> dict[str, float]:
        """Return where its labels stand."""
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
        What the template fills in, in units of the picture.
    """
    failed = dict.fromkeys(row.operation for row in rows if row.verdict != "ok")
    labels = dict.fromkeys(row.operation for row in rows)
    dtypes = dict.fromkeys(row.dtype for row in rows)
    heights = {label: TOP + HIGH * (number + 0.5) for number, label in enumerate(labels)}
    bottom = TOP + HIGH * len(labels)
    wide = (WIDTH - LEFT) / len(dtypes)
    paths: list[tuple[str, list[tuple[float, float]]]] = []
    texts = []
    for label, y in heights.items():
        words = f"FAIL {label}" if label in failed else label
        texts.append((LEFT - 16, y + 4, "end", words))
    dots: list[tuple[Any, ...]] = []
    for number, dtype in enumerate(dtypes):
        of_dtype = [row for row in rows if row.dtype == dtype]
        left = LEFT + number * wide
        right = LEFT + (number + 1) * wide - GAP
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
            radius = 3.5 if row.verdict == "ok" else 7
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
    half = 0.4 * HIGH
    paths = [("bound", [(bound, y - half), (bound, y + half)])]
    if row.verdict == "ok":
        return paths
    x = axis.place(row.error)
    left, right = x - 5, x + 5
    above, below = y - 5, y + 5
    paths.append(("fail", [(left, above), (right, below)]))
    paths.append(("fail", [(left, below), (right, above)]))
    return paths
