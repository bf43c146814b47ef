"""`report.html`: what came of a fine-tuning, as one file that any browser shows, without network or scripts.

Pictures, in `pictures.py`, and tables are written by hand, so that a report needs no library. Whatever comes
from data goes through `plain` of `markup.py`, behind which no markup is left alive.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minibert import metrics
from minibert.files import atomic_text
from minibert.finetuning.markup import plain, table
from minibert.finetuning.pictures import picture
from minibert.finetuning.results import (
    figure_name,
    figure_number,
    figure_rows,
    is_share,
    majority_remark,
)

REPORT_FILE = "report.html"
WORST = 10  # mistakes that are shown
MOST_CLASSES = 40  # a row each in the confusion matrix; rarer ones share one
AT_ONCE = 600  # characters of a mistake that are seen without unfolding it

STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --faint: #767676; --line: #ddd;
  --loss: #1f5f99; --metric: #c0392b; --right: 31,95,153; --wrong: 192,57,43 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #15181c; --faint: #999; --line: #383e46;
    --loss: #6fb1e8; --metric: #ff8a7a }
}
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem }
p.faint, .faint { color: var(--faint) }
.headline { font-size: 1.1rem } .headline b { font-size: 2.6rem; margin-right: .3rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .7rem .2rem 0; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top }
th { font-weight: 600 } td.number, th.number { text-align: right }
.heat th, .heat td { padding: .25rem .45rem; text-align: right; border: 1px solid var(--line) }
.heat thead th { vertical-align: bottom } .heat thead th span { writing-mode: vertical-rl }
.heat .right { background: rgba(var(--right), var(--share)) }
.heat .wrong { background: rgba(var(--wrong), var(--share)) } .heat .strong { color: #fff }
svg { width: 100%; height: auto; display: block } svg text { fill: var(--faint); font-size: 12px }
svg .rule { stroke: var(--line); stroke-width: 1 }
svg path { fill: none; stroke-width: 2; stroke-linejoin: round }
svg .loss { stroke: var(--loss) } svg .raw { stroke-width: 1; opacity: .35 }
svg .metric { stroke: var(--metric) } svg circle { fill: var(--metric) }
svg .band { fill: var(--metric); opacity: .13 }
svg .line { stroke: var(--faint); stroke-width: 1.5; stroke-dasharray: 6 4 }
.text { white-space: pre-wrap; overflow-wrap: anywhere } summary { cursor: pointer }
"""


@dataclass(frozen=True)
class Facts:
    """What a report tells.

    Attributes
    ----------
    title : a line for people, such as the task's.
    task : as the command line has it.
    metric : the key of `scores` that the model was chosen by.
    scores : every official figure.
    model : what was started from.
    interval : low and high end of the bootstrap's 95% interval of the metric; None where there is none.
    macro_f1, majority : as `compared_with_majority` of `results.py` has them; None where outputs are no
        classes of texts.
    learnt : how many examples of each class were learnt from.
    options : what was chosen for the training, name to value.
    labels : classes in the order in which they are shown, if they come; () where outputs are not classes.
    classes : expected and found class of every example (or word); None where outputs are not classes.
    curve : in the order of time, {"step": n, "loss": x} for the loss of a step and {"step": n, "metric": x}
        for the metric on dev after it; a row may have both.
    mistakes : every wrong prediction, the worst first: objects with `text`, `expected` and `found`.
    seconds : that training took.
    note : a sentence that belongs to the figures, such as how much of the texts was cut.
    """

    title: str
    task: str
    metric: str
    scores: Mapping[str, float]
    model: str = ""
    interval: tuple[float, float] | None = None
    macro_f1: float | None = None
    majority: Mapping[str, Any] | None = None
    learnt: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    labels: Sequence[str] = ()
    classes: tuple[Sequence[str], Sequence[str]] | None = None
    curve: Sequence[Mapping[str, float]] = ()
    mistakes: Sequence[Any] = ()
    seconds: float | None = None
    note: str = ""


def write_report(folder: str | Path, facts: Facts) -> Path:
    """Write `report.html` into a folder, whole or not at all.

    Parameters
    ----------
    folder : is made if it does not exist.
    facts : what the report tells; what is empty there is left out of it.

    Returns
    -------
    The path of the file.
    """
    path = Path(folder) / REPORT_FILE
    atomic_text(path, page(facts))
    return path


def page(facts: Facts) -> str:
    """The report as one HTML document."""
    parts = [
        *_headline(facts),
        *_section("All figures", _figures(facts)),
        *_section("Learning curve", _curves(facts)),
        *_section("Confusion matrix", _confusion(facts)),
        *_section("Mistakes", _mistakes(facts.mistakes)),
        *_section("Options", _pairs({name: _short(value) for name, value in facts.options.items()})),
    ]
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{plain(facts.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    )
    return "\n".join([head, *parts, "</body>\n</html>\n"])


def _section(title: str, content: str) -> list[str]:
    return [f"<h2>{title}</h2>", content] if content else []


def _headline(facts: Facts) -> list[str]:
    found = facts.scores.get(facts.metric)
    told = None if found is None else figure_number(facts.metric, found)
    interval = ""
    if facts.interval is not None:
        low, high = (figure_number(facts.metric, end) for end in facts.interval)
        interval = f' <span class="faint">95% of bootstrap samples lie from {low} to {high}</span>'
    remark = majority_remark(facts.metric, facts.majority, facts.interval)
    about = [f"task {plain(facts.task)}"]
    if facts.model:
        about.append(f"started from {plain(facts.model)}")
    if facts.seconds is not None:
        about.append(f"trained for {_duration(facts.seconds)}")
    return [
        f"<h1>{plain(facts.title)}</h1>",
        f'<p class="faint">{"; ".join(about)}</p>',
        f'<p class="headline"><b>{plain(told)}</b> {plain(figure_name(facts.metric))}{interval}</p>',
        *([f"<p>{plain(facts.note)}</p>"] if facts.note else []),
        *([f"<p>{plain(remark)}</p>"] if remark else []),
    ]


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def _short(value: Any) -> Any:
    """An option as it was given: 0.1 rather than 0.1000, 12345 than 12,345, text=review for a column."""
    if isinstance(value, tuple):
        return tuple("=".join(one) if isinstance(one, tuple) else _short(one) for one in value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if type(value) is int else value


def _pairs(values: Mapping[str, Any]) -> str:
    rows = [
        f'<tr><th scope="row">{plain(name)}</th><td>{plain(value)}</td></tr>'
        for name, value in values.items()
    ]
    return table("", rows) if rows else ""


def _figures(facts: Facts) -> str:
    """Every figure; of classes beside that of the majority."""
    rows = figure_rows(facts.scores, facts.macro_f1, facts.majority)
    if facts.majority is None:
        return _pairs(dict(rows))
    head, *rows = [[plain(cell) for cell in row] for row in rows]
    tags = [
        f'<tr><th scope="row">{name}</th>'
        + "".join(f'<td class="number">{one}</td>' for one in numbers)
        + "</tr>"
        for name, *numbers in rows
    ]
    return table("", tags, "<tr>" + "".join(f'<th class="number">{one}</th>' for one in head) + "</tr>")


def _curves(facts: Facts) -> str:
    """The loss and the metric over steps, one above the other with the same steps."""
    last = max((row["step"] for row in facts.curve), default=0)
    pictures = []
    metric, percent = figure_name(facts.metric), 100.0 if is_share(facts.metric) else 1.0
    number, band, line = partial(figure_number, facts.metric), None, None
    if facts.interval is not None and np.isfinite(facts.interval).all():
        band = *facts.interval, "95% of bootstrap samples of the best epoch"
    if facts.majority is not None:
        same = facts.majority["scores"][facts.metric]
        line = same, f"always {facts.majority['label']!r}: {number(same)}"
    for name, title, scale, told, beside in (
        ("loss", "training loss", 1.0, plain, (None, None)),
        ("metric", f"{metric} on dev", percent, number, (band, line)),
    ):
        points = np.array([(row["step"], row[name]) for row in facts.curve if name in row], float)
        if len(points) and (points := points[np.isfinite(points).all(1)]).size:
            pictures.append(picture(name, title, points, last, scale, told, *beside))
    return "\n".join(pictures)


def _confusion(facts: Facts) -> str:
    """How often each class was found for each, and what that is in precision, recall and F1."""
    if facts.classes is None or not len(facts.classes[0]):
        return ""
    names, counts = _counted(*facts.classes, facts.labels, facts.learnt)
    each = _per_class(names, counts, facts.learnt)
    names, counts = _most_frequent(names, counts)
    shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
    heads = "".join(f'<th scope="col"><span>{plain(name)}</span></th>' for name in names)
    rows = []
    for i, name in enumerate(names):
        cells = "".join(_cell(int(counts[i, j]), float(shares[i, j]), i == j) for j in range(len(names)))
        rows.append(f'<tr><th scope="row">{plain(name)}</th>{cells}</tr>')
    note = (
        '<p class="faint">A row for each class expected, a column for each class found; the darker, the '
        "larger the share of the row.</p>"
    )
    return "\n".join([note, table("heat", rows, f"<tr><th></th>{heads}</tr>"), "<h2>Each class</h2>", each])


def _cell(count: int, share: float, right: bool) -> str:
    tone = share if right else math.sqrt(share)  # a few mistakes are to be seen, too
    kind = ("right" if right else "wrong") + (" strong" if tone > 0.5 else "")
    return f'<td class="{kind}" style="--share:{tone:.3f}">{count:,}</td>'


# -> (K,K)
def _counted(
    expected: Sequence[str], found: Sequence[str], labels: Sequence[str], learnt: Iterable[str] = ()
) -> tuple[list[str], np.ndarray]:
    """The classes that come, those not among `labels` behind them, and how often each was found for each."""
    there = {*expected, *found, *learnt}
    names = [*(label for label in labels if label in there), *sorted(there - {*labels})]
    number = {name: at for at, name in enumerate(names)}
    numbers = ([number[name] for name in side] for side in (expected, found))
    return names, metrics.confusion(*numbers, range(len(names)))


# counts (K,K)
def _per_class(names: Sequence[str], counts: np.ndarray, learnt: Mapping[str, int]) -> str:
    rows = []
    for i, name in enumerate(names):
        expected, found, right = int(counts[i].sum()), int(counts[:, i].sum()), int(counts[i, i])
        figures = {
            "precision": right / found if found else None,
            "recall": right / expected if expected else None,
            "F1": 2 * right / (expected + found) if expected + found else None,
        }
        shown = [
            value if value is None else figure_number(figure, value) for figure, value in figures.items()
        ]
        if learnt:
            shown.append(learnt.get(name, 0))
        cells = "".join(f'<td class="number">{plain(one)}</td>' for one in (*shown, expected, found))
        rows.append(f'<tr><th scope="row">{plain(name)}</th>{cells}</tr>')
    titles = ("precision", "recall", "F1", *["learnt from"] * bool(learnt), "expected", "found")
    heads = "".join(f'<th scope="col" class="number">{title}</th>' for title in titles)
    return table("", rows, f'<tr><th scope="col">class</th>{heads}</tr>')


# counts (K,K) -> at most MOST_CLASSES + 1 of both
def _most_frequent(names: list[str], counts: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The classes that come most often, in the order they had; the others as one."""
    rest = len(names) - MOST_CLASSES
    if rest <= 1:
        return names, counts
    often = np.argsort(-(counts.sum(0) + counts.sum(1)), kind="stable")
    kept = sorted(often[:MOST_CLASSES])
    place = np.full(len(names), MOST_CLASSES)
    place[kept] = np.arange(MOST_CLASSES)
    joined = np.zeros((MOST_CLASSES + 1, MOST_CLASSES + 1), counts.dtype)
    np.add.at(joined, (place[:, None], place[None, :]), counts)
    return [*(names[at] for at in kept), f"{rest:,} rarer classes"], joined


def _mistakes(mistakes: Sequence[Any]) -> str:
    """The worst of them, each with what was expected and what was found."""
    shown = list(mistakes[:WORST])
    if not shown:
        return "<p>There is none.</p>"
    rows = [
        f"<tr><td>{_text(one.text)}</td><td>{_text(one.expected)}</td><td>{_text(one.found)}</td></tr>"
        for one in shown
    ]
    head = '<tr><th scope="col">asked</th><th scope="col">expected</th><th scope="col">found</th></tr>'
    count = f"The worst {len(shown)} of {len(mistakes):,}." if len(mistakes) > len(shown) else ""
    return (f'<p class="faint">{count}</p>\n' if count else "") + table("", rows, head)


def _text(text: str) -> str:
    """A text as it is, lines and spaces included; a long one unfolds."""
    if len(text) <= AT_ONCE:
        return f'<div class="text" dir="auto">{plain(text)}</div>'
    return (
        f'<details class="text" dir="auto"><summary>{plain(text[:AT_ONCE])}…</summary>{plain(text)}</details>'
    )
