"""Pictures. matplotlib is imported when one is drawn; without it these functions raise ImportError."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minibert.errors import InputError
from minibert.json_files import read_json
from minibert.training.runlog import read_metrics

INK, PALE, BLUE, RED = "#333333", "#9ab8d8", "#1f5f99", "#c0392b"
PIECE_COLOURS = ("#dbe7f3", "#f6e3c5", "#dcefd9", "#f3d9e1", "#e4def2")
ROW_CHARACTERS = 60  # of pieces in a row
REPORTED = {  # of a report of pre-training
    "held_out": {"loss": float, "unigram": float},
    "stages": list[tuple[int, int]],
    "steps": int,
    "tokens": int,
    "size": str,
}
STAGE_WIDTH = 56.0  # points that "length 512" takes, with some room


# values (n,) -> (n,)
def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """Average over a centred window that shrinks at both ends; an even one reaches further back than ahead.

    Where a window holds a value that is not finite, the mean is not a number.

    Examples
    --------
    >>> smoothed(np.array([0.0, 3.0, 6.0]), 3).tolist()
    [1.5, 3.0, 4.5]
    """
    finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    gaps = np.concatenate([[0], np.cumsum(~finite)])
    at = np.arange(len(values))
    low, high = np.maximum(at - window // 2, 0), np.minimum(at + (window + 1) // 2, len(values))
    return np.where(gaps[high] > gaps[low], np.nan, (sums[high] - sums[low]) / (high - low))


def draw_run(run: str | Path, figure: Any = None) -> Any:
    """Draw the loss curve of a finished pre-training run.

    Drawn are the masked-LM loss of training, or left to right that of the next words, the looks at the
    held-out text on the way, the last held-out loss, and the unigram entropy of its targets, which a model
    without context stays above.

    Parameters
    ----------
    run : a run folder with `metrics.jsonl` and `report.json`.
    figure : to draw on; a new one of pyplot's when left out.

    Returns
    -------
    The matplotlib figure.
    """
    path, again = Path(run) / "report.json", "go on with the run by --resume"
    report = read_json(path, REPORTED, again)
    metrics = read_metrics(run)
    held_out, last = report["held_out"], report["steps"]
    if not math.isfinite(held_out["loss"] + held_out["unigram"]):
        raise InputError(f"{path} has a held-out loss that is not finite, which no axis shows; {again}.")
    axes = (figure or _new_figure(8, 4.8)).subplots()
    begins = [begin for begin, _ in report["stages"]]
    curve = _draw_training(axes, [line for line in metrics if "mlm_loss" in line], begins)
    left_to_right = report.get("left_to_right")
    if looks := [(line["step"], line["held_out_loss"]) for line in metrics if "held_out_loss" in line]:
        label = f"held out{'' if left_to_right else ', [MASK] only'}, a small sample"
        axes.plot(*zip(*looks, strict=True), "o", color=RED, ms=4, label=label)
    label = f"held out, at the end: {held_out['loss']:.2f}"
    axes.plot(last, held_out["loss"], "D", color=RED, markersize=7, label=label)
    floor = held_out["unigram"]
    axes.axhline(floor, color=INK, linestyle="--", linewidth=1)
    text = f"unigram entropy {floor:.2f}: the lowest loss of a guess without context"
    axes.annotate(text, (last, floor), (0, 4), textcoords="offset points", ha="right", color=INK, fontsize=8)
    shown = curve[np.isfinite(curve)]
    low, high = min([*shown, held_out["loss"]]), max([*shown, floor])
    height = (high - low) or 1.0
    axes.set_ylim(low - 0.1 * height, high + 0.2 * height)
    axes.set_xlim(0, last * 1.01)
    _mark_stages(axes, report["stages"])
    axes.set_title(f"BERT-{report['size']}, {report['tokens'] / 1e6:.2f}M tokens", loc="left")
    axes.set(xlabel="step", ylabel=f"{'next-word' if left_to_right else 'masked-LM'} loss (nats)")
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    axes.spines[["top", "right"]].set_visible(False)
    return axes.figure


def _draw_training(axes: Any, metrics: Sequence[dict[str, float]], begins: Sequence[int]) -> np.ndarray:
    """Draw every step, faintly, and the curve, smoothed within each stage, which is returned."""
    steps = np.array([line["step"] for line in metrics])
    losses = np.array([line["mlm_loss"] for line in metrics])
    axes.plot(steps, losses, color=PALE, linewidth=0.5, alpha=0.4)
    borders, window = np.searchsorted(steps, begins[1:], side="right"), max(1, len(losses) // 40)
    curves = [smoothed(part, window) for part in np.split(losses, borders)]
    for number, (at, curve) in enumerate(zip(np.split(steps, borders), curves, strict=True)):
        label = None if number else "training, all targets, smoothed"
        axes.plot(at, curve, color=BLUE, linewidth=1.8, label=label)
    return np.concatenate(curves)


def _mark_stages(axes: Any, stages: Sequence[tuple[int, int]]) -> None:
    """Draw a thin line where each stage begins, its length beside it, lower where another stands."""
    low, high = axes.get_xlim()
    width = axes.get_window_extent().width * 72 / axes.figure.dpi  # in points
    ends: list[float] = []  # of the last label of each line
    for begin, length in stages:
        if begin:
            axes.axvline(begin, color=INK, linewidth=0.6, alpha=0.5)
        at = (begin - low) / (high - low) * width
        line = next((number for number, end in enumerate(ends) if end <= at), len(ends))
        ends[line : line + 1] = [at + STAGE_WIDTH]
        axes.annotate(
            f"length {length}", (begin, 1), (4, -10 - 11 * line), xycoords=("data", "axes fraction"),
            textcoords="offset points", color=INK, fontsize=8,
        )  # fmt: skip


# maps (A,n,n)
def draw_attention(
    maps: np.ndarray, tokens: Sequence[str], title: str = "", darkest: float | None = None
) -> Any:
    """Draw the attention of every head of one layer for one sequence.

    Parameters
    ----------
    maps : (A,n,n) row i is what token i attends to.
    tokens : the n pieces.
    title : above all of them.
    darkest : the probability of the darkest colour, the same for pictures that are to be compared; the
        largest of these maps when left out.
    """
    A, n, _ = maps.shape
    darkest = max(float(maps.max()), 1e-9) if darkest is None else darkest
    figure = _new_figure(1.2 + 2.6 * A, 3.4)
    for number, axes in enumerate(figure.subplots(1, A, squeeze=False)[0]):
        axes.imshow(maps[number], cmap="Blues", vmin=0, vmax=darkest)
        axes.set_title(f"head {number + 1}", fontsize=9)
        axes.set_xticks(range(n), tokens, rotation=90, fontsize=7, parse_math=False)
        axes.set_yticks(range(n), tokens if number == 0 else [""] * n, fontsize=7, parse_math=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    figure.suptitle(title, fontsize=11, parse_math=False)  # dollars in a text are dollars
    return figure


def draw_pieces(tokenizer: Any, text: str) -> Any:
    """Draw any text as the pieces that a `Tokenizer` cuts it into, one colour a word, each with its id."""
    from matplotlib.patches import Rectangle

    rows = _rows_of_pieces(tokenizer.encode(text), tokenizer.vocab)
    figure = _new_figure(9, 0.75 * len(rows))
    axes = figure.subplots()
    centred: Any = {"ha": "center", "va": "center", "parse_math": False}
    for height, row in enumerate(rows):
        for piece, number, word, left, width in row:
            colour = PIECE_COLOURS[word % len(PIECE_COLOURS)]
            axes.add_patch(Rectangle((left, -height), width, 0.9, facecolor=colour, edgecolor="white"))
            axes.text(left + width / 2, 0.62 - height, piece, family="monospace", **centred)
            axes.text(left + width / 2, 0.2 - height, number, fontsize=7, color=INK, **centred)
    axes.set(xlim=(0, ROW_CHARACTERS + 4), ylim=(-len(rows) + 1, 1))
    axes.set_axis_off()
    return figure


def _rows_of_pieces(ids: Sequence[int], vocab: Sequence[str]) -> list[list[tuple[str, int, int, int, int]]]:
    """Break (piece, id, number of its word, left edge, width) of every piece into rows between words."""
    rows: list[list[tuple[str, int, int, int, int]]] = [[]]
    left, word = 0, -1
    for number in ids:
        piece = vocab[number]
        if not piece.startswith("##"):
            word += 1
            if left > ROW_CHARACTERS - 10:
                rows.append([])
                left = 0
        width = max(len(piece), 3) + 1
        rows[-1].append((piece, number, word, left, width))
        left += width
    return rows


def _new_figure(width: float, height: float) -> Any:
    from matplotlib import pyplot

    return pyplot.figure(figsize=(width, height), layout="constrained")
