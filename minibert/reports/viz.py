"""Draw attention and word pieces with matplotlib, which is imported when a figure is drawn.

Without matplotlib, the functions that draw raise ImportError.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

INK, PALE, BLUE, RED = "#333333", "#9ab8d8", "#1f5f99", "#c0392b"
PIECE_COLOURS = ("#dbe7f3", "#f6e3c5", "#dcefd9", "#f3d9e1", "#e4def2")
ROW_CHARACTERS = 60  # width of a row of pieces, in characters
Piece = tuple[str, int, int, int, int]  # text, id, index of its word, left edge, width


# values (n,) -> (n,)
def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """Average over a centred window that shrinks at both ends; an even window reaches further back.

    The mean of a window that contains a value that is not finite is NaN.

    Parameters
    ----------
    values : (n,) float
    window : int
        Number of values to average, at least 1.

    Returns
    -------
    (n,) float

    Examples
    --------
    >>> smoothed(np.array([0.0, 3.0, 6.0]), 3).tolist()
    [1.5, 3.0, 4.5]
    """
    finite = np.isfinite(values)
    filled = np.where(finite, values, 0.0)
    # For each position, the sum of the values before it, and how many of them are not finite.
    sums = np.concatenate([[0.0], np.cumsum(filled)])
    gaps = np.concatenate([[0], np.cumsum(~finite)])
    positions = np.arange(len(values))
    low = np.maximum(positions - window // 2, 0)
    high = np.minimum(positions + (window + 1) // 2, len(values))
    means = (sums[high] - sums[low]) / (high - low)
    has_gap = gaps[high] > gaps[low]
    return np.where(has_gap, np.nan, means)


# maps (A,n,n)
def draw_attention(
    maps: np.ndarray, tokens: Sequence[str], title: str = "", darkest: float | None = None
) -> Any:
    """Draw the attention of every head of one layer for one sequence of n tokens.

    Parameters
    ----------
    maps : (A,n,n) float
        Row i contains the attention that token i pays to every token.
    tokens : sequence of str
        The n word pieces.
    title : str
        Title of the figure.
    darkest : float, default None
        The probability that gets the darkest colour; use the same in figures that are to be compared. None:
        the largest in these maps.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib import pyplot

    A, n, _ = maps.shape
    if darkest is None:
        darkest = max(float(maps.max()), 1e-9)
    figure = pyplot.figure(figsize=(1.2 + 2.6 * A, 3.4), layout="constrained")
    for head, axes in enumerate(figure.subplots(1, A, squeeze=False)[0]):
        axes.imshow(maps[head], cmap="Blues", vmin=0, vmax=darkest)
        axes.set_title(f"head {head + 1}", fontsize=9)
        names = tokens if head == 0 else [""] * n
        axes.set_xticks(range(n), tokens, rotation=90, fontsize=7, parse_math=False)
        axes.set_yticks(range(n), names, fontsize=7, parse_math=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    figure.suptitle(title, fontsize=11, parse_math=False)  # a dollar sign in a text is not math
    return figure


def draw_pieces(tokenizer: Any, text: str) -> Any:
    """Draw the word pieces that a `Tokenizer` splits a text into, each with its id, one colour per word.

    Parameters
    ----------
    tokenizer : Tokenizer
    text : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib import pyplot
    from matplotlib.patches import Rectangle

    ids = tokenizer.encode(text, add_special_tokens=False)
    rows = _rows_of_pieces(ids, tokenizer.vocab)
    figure = pyplot.figure(figsize=(9, 0.75 * len(rows)), layout="constrained")
    axes = figure.subplots()
    centred: Any = {"ha": "center", "va": "center", "parse_math": False}
    for height, row in enumerate(rows):
        for piece, token_id, word, left, width in row:
            colour = PIECE_COLOURS[word % len(PIECE_COLOURS)]
            box = Rectangle((left, -height), width, 0.9, facecolor=colour, edgecolor="white")
            axes.add_patch(box)
            middle = left + width / 2
            axes.text(middle, 0.62 - height, piece, family="monospace", **centred)
            axes.text(middle, 0.2 - height, token_id, fontsize=7, color=INK, **centred)
    axes.set(xlim=(0, ROW_CHARACTERS + 4), ylim=(-len(rows) + 1, 1))
    axes.set_axis_off()
    return figure


def _rows_of_pieces(ids: Sequence[int], vocab: Sequence[str]) -> list[list[Piece]]:
    """Break the pieces of a text into rows, between words."""
    rows: list[list[Piece]] = [[]]
    left, word = 0, -1
    for token_id in ids:
        piece = vocab[token_id]
        if not piece.startswith("##"):
            word += 1
            if left > ROW_CHARACTERS - 10:
                rows.append([])
                left = 0
        width = max(len(piece), 3) + 1
        rows[-1].append((piece, token_id, word, left, width))
        left += width
    return rows
