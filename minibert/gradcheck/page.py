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
    """Write rows of `proof_sheet`, with the sources of what these engines run, as one HTML document."""
    sections = []
    for engine in engines:
        own = [row for row in rows if row.engine == engine.name]
        lines: dict[str, dict[tuple[str, str], Row]] = {}
        for row in own:
            lines.setdefault(row.operation, {})[row.dtype, row.size] = row
        table = [(label, source_of(engine, label), found) for label, found in lines.items()]
        checks = dict.fromkeys((row.dtype, row.size) for row in own)
        sections.append({"engine": engine.name, "picture": picture(own), "checks": checks, "table": table})
    failed = [f"{row.operation} of {row.engine}" for row in rows if row.verdict != "ok"]
    facts: dict[str, Any] = {"title": "Proof sheet: every gradient and its error", "url": repository_url()}
    return rendered("proof_sheet.html.j2", sections=sections, count=len(rows), failed=failed, **facts)


def source_of(engine: Ops, label: str) -> tuple[str, int]:
    """Find file and line of the backward that an engine runs for a check; else of the forward."""
    operation, _, variant = label.partition(" ")
    if operation == "head_loss":
        function = batches.functions_of(Head(variant.split()[0], 0)).loss_backward
    elif operation == "tagger_loss":
        function = bilstm.loss_backward
    else:
        backward, forward = (getattr(engine, operation + end, None) for end in ("_backward", ""))
        function = bert.pretraining_loss_backward if forward is None else backward or forward
    function = inspect.unwrap(function)
    return f"{function.__module__.replace('.', '/')}.py", function.__code__.co_firstlineno


def repository_url() -> str:
    """Read where the project's repository is from the installed package; "" where it does not say."""
    try:
        found = metadata.metadata(DISTRIBUTION).get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    return dict(one.split(", ", 1) for one in found).get(URL_NAME, "").rstrip("/")


class _Axis(NamedTuple):
    """A log axis: powers of ten at its ends, where zero stands, and what is infinite or not a number."""

    left: float
    right: float
    low: int
    high: int

    def place(self, value: float) -> float:
        """Return where a value stands."""
        power = math.log10(value) if 0 < value < math.inf else self.high if value else self.low
        return self.left + (power - self.low) / (self.high - self.low) * (self.right - self.left)

    def ticks(self) -> dict[str, float]:
        """Return where its labels stand."""
        powers = range(self.high - 1, self.low, (self.low - self.high) // MOST_TICKS)
        return {"0": self.left} | {f"1e{power}": self.place(10.0**power) for power in powers}


def _axis(left: float, right: float, values: Sequence[float]) -> _Axis:
    """Return an axis that holds all values.

    Examples
    --------
    >>> _axis(0, 50, [0.0, 2e-4, 3e-2, float("nan")])[2:]
    (-5, 0)
    """
    powers = [math.log10(value) for value in values if 0 < value < math.inf]
    return _Axis(left, right, math.floor(min(powers)) - 1, math.ceil(max(powers)) + 1)


def picture(rows: Sequence[Row]) -> dict[str, Any]:
    """Draw the checks of one engine: a line for each operation, an axis for each precision."""
    failed = dict.fromkeys(row.operation for row in rows if row.verdict != "ok")
    labels, dtypes = (dict.fromkeys(getattr(row, name) for row in rows) for name in ("operation", "dtype"))
    heights = {label: TOP + HIGH * (number + 0.5) for number, label in enumerate(labels)}
    bottom, wide = TOP + HIGH * len(labels), (WIDTH - LEFT) / len(dtypes)
    paths: list[tuple[str, list[tuple[float, float]]]] = []
    texts = [(LEFT - 16, y + 4, "end", "FAIL " * (one in failed) + one) for one, y in heights.items()]
    dots: list[tuple[Any, ...]] = []
    for number, dtype in enumerate(dtypes):
        own = [row for row in rows if row.dtype == dtype]
        left, right = LEFT + number * wide, LEFT + (number + 1) * wide - GAP
        axis = _axis(left, right, [value for row in own for value in (row.error, row.bound)])
        texts.append((left, 16, "start", dtype))
        for words, x in axis.ticks().items():
            texts += [(x, TOP - 8, "middle", words), (x, bottom + 16, "middle", words)]
            paths.append(("rule", [(x, TOP), (x, bottom)]))
        paths += [("rule", [(left, y), (right, y)]) for y in heights.values()]
        for row in own:
            x, y, bound = axis.place(row.error), heights[row.operation], axis.place(row.bound)
            words = f"{row.operation}, {dtype}, {row.size}: {row.error:.1e} of {row.bound:.1e}, {row.verdict}"
            paths.append(("bound", [(bound, y - 0.4 * HIGH), (bound, y + 0.4 * HIGH)]))
            if row.verdict != "ok":
                paths += [("fail", [(x - 5, y - 5 * down), (x + 5, y + 5 * down)]) for down in (1, -1)]
            dots.append((row.verdict.lower(), x, y, 3.5 if row.verdict == "ok" else 7, words))
    beyond = f"beyond it: {', '.join(failed)}" if failed else "none is beyond it"
    label = f"Errors of {len(rows)} checks on a log axis, each beside its bound; {beyond}."
    frame = {"title": "Error and bound of every check", "label": label, "width": WIDTH, "height": bottom + 24}
    return frame | {"paths": paths, "texts": texts, "dots": dots}
