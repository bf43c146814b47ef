"""Animations of what the package computes: joins of WordPiece, two ways down a gradient, a neighbour head.

Each is a picture in SVG whose shapes change from frame to frame. `static/animation.js` plays it; without
JavaScript the last frame stays. It has no colours of its own for text, so it suits light and dark pages.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.base.terminal import counted
from minibert.core import wordpiece
from minibert.core.ops import AdamRule
from minibert.model.ops import Ops
from minibert.reports.markup import inert_json, rendered, shown
from minibert.reports.pictures import Frame, ticks
from minibert.tokenizer.encoding import whole_number

STATIC = Path(__file__).with_name("static")
BLUE, ORANGE = "#2f82c2", "#c4621a"  # both can be seen on white and on black
MONOSPACE = "ui-monospace, monospace"
FAINT, STRONG = 0.2, 0.65  # opacities of a piece, and of the one that was joined last
SHADE = 0.7  # exponent that lets small weights of attention be seen
ROWS = 5  # pairs in the table of joins
GRID = 31  # points along each side of the loss for its contour lines
# Contour lines, as shares of the way from the lowest point to the highest.
LEVELS = np.geomspace(0.002, 0.9, 10)
SIDES = {"left": -1, "right": 1}
RATES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
JOIN_SECONDS, STEP_SECONDS, MAP_SECONDS = 1.2, 0.15, 0.25  # for a frame of each animation

# Lengths, in about the pixels of a phone.
WIDTH = 360.0  # of every picture
EDGE = 4.0  # what is left free around a picture
FONT = 11.0  # size of a text
HALF_TEXT = 4.0  # from the middle of a line of text down to its baseline
ASCENT = 12.0  # from the top of a line of text down to its baseline

# Words whose letters are joined.
CELL = 10.0  # width of a letter in its box
LETTER_FONT = 12.0
BOX = 18.0  # height of a box
BOX_BASELINE = 13.0  # from the top of a box down to the baseline of its letters
CORNER = 3.0  # radius of the corners of a box
BETWEEN_BOXES = 1.5
COUNT_FONT = 9.0  # of how often a word occurs, such as ×3
TIMES, DIGIT = 8, 6  # widths of its × and of each digit
BETWEEN_WORDS = 8.0
BETWEEN_LINES = 26.0  # from the top of a line of words to the top of the next

# The table of pairs below the words.
ABOVE_TABLE, BELOW_TABLE = 22, 6
ROW = 18  # from a row to the next
PAIR = EDGE  # left end of this column
N, OF_LEFT, OF_RIGHT, GAIN = 128.0, 176.0, 228.0, WIDTH - EDGE  # right ends of these columns
HEADINGS = {N: "n", OF_LEFT: "c(left)", OF_RIGHT: "c(right)", GAIN: "gain (nats)"}
BARS = 236.0  # where the bars of the gains begin
BAR = 16.0  # height of a bar

# Plots.
STROKE = 1.5  # width of a line
DOT = 3.5  # radius of the dot at its end
BELOW_AXIS = 13  # from the horizontal axis down to the numbers at its ticks
BELOW_TICKS = 26  # from the same axis down to its name
BELOW_PLOT = 30  # from the same axis down to the end of the picture
BESIDE_AXIS = 5  # from the numbers of the vertical axis to this axis
ABOVE_PLOT = 7  # from the name of the vertical axis down to its upper end
PLANE_ROOM, PLOT_ROOM = 0.15, 0.05  # shares of the range of values that are left free at each of its ends

# The attention map, and what stands beside it.
SQUARE = 204.0  # side of the map
BETWEEN_CELLS = 1
SMALLER = 1.9  # so many times as high as a label below the map is its cell, at least
BESIDE_MAP = 12
NOTE, NOTE_LINE = 42, 15  # baseline of the first line of the note, and from a line to the next
KEY, KEY_LINE = 116, 24  # top of the first shade of the key, and from a shade to the next
KEY_SQUARE = 16.0  # side of a shade
KEY_TEXT = 22  # from the left side of a shade to its text

Loss = Callable[[np.ndarray], tuple[float, np.ndarray]]
Update = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


class Candidate(NamedTuple):
    """A pair that may be joined: how often it occurs, how often its parts do, and what joining it gains."""

    pair: tuple[str, str]
    n: int
    left: int
    right: int
    gain: float

    def numbers(self) -> dict[float, str]:
        """Return the numbers of the pair as text, by the right ends of their columns in the table."""
        counts = {N: self.n, OF_LEFT: self.left, OF_RIGHT: self.right}
        texts = {x: str(count) for x, count in counts.items()}
        return texts | {GAIN: _number(self.gain, 1)}


class Shape(NamedTuple):
    """An element of SVG; a list as the value of an attribute or as text has an item for each frame."""

    tag: str
    attributes: dict[str, Any]
    text: Any = ""

    def still(self, frame: int) -> dict[str, Any]:
        """Return what the template needs of one frame."""
        attributes = {
            name: _written(value[frame] if isinstance(value, list) else value)
            for name, value in self.attributes.items()
            if name != "count"
        }
        text = self.text[frame] if isinstance(self.text, list) else self.text
        return {"tag": self.tag, "attributes": attributes, "text": text, "moves": bool(self.changes())}

    def changes(self) -> dict[str, list[tuple[int, Any]]]:
        """Return the frames at which each attribute changes, with its new values."""
        moving = {**self.attributes, "text": self.text}
        return {name: _changes(values) for name, values in moving.items() if isinstance(values, list)}


class Animation(NamedTuple):
    """A picture that changes; a notebook displays it."""

    alt: str  # what is seen, in sentences
    captions: list[str]  # one for each frame
    height: float
    shapes: list[Shape]
    seconds: float  # for each frame

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        last = len(self.captions) - 1
        changes = [shape.changes() for shape in self.shapes]
        data = {
            "seconds": self.seconds,
            "captions": [shown(caption) for caption in self.captions],
            "shapes": [change for change in changes if change],
        }
        return rendered(
            "animation.html.j2",
            STATIC,
            alt=self.alt,
            accent=BLUE,
            width=_written(WIDTH),
            height=_written(self.height),
            shapes=[shape.still(last) for shape in self.shapes],
            last=last,
            caption=self.captions[-1],
            data=inert_json(data),
            script=(STATIC / "animation.js").read_text("utf-8"),
        )


class Place(NamedTuple):
    """A rectangle of the picture."""

    left: float
    top: float
    width: float
    height: float

    @property
    def end(self) -> float:
        """Where a picture ends whose last plot this is."""
        return self.top + self.height + BELOW_PLOT


PLANES = {"gradient descent": Place(34, 34, 148, 148), "Adam": Place(200, 34, 148, 148)}
LOSSES = Place(34, 246, 316, 90)
GAINS = Place(40, 258, 312, 80)
WEIGHTS = Place(40, 384, 312, 80)
SIDE_NAMES = {"left": 236, "right": 268}  # right ends of these words above WEIGHTS


class Panel(Frame):
    """A frame in which lines and axes are drawn."""

    def line(self, points: Any, **attributes: Any) -> Shape:
        """Draw a line.

        Parameters
        ----------
        points : (n,2) float
            Numbers on both axes.
        **attributes : str or float
            Attributes of SVG, with _ in place of -.

        Returns
        -------
        Shape
        """
        styles: dict[str, Any] = {"points": _places(self.places(points)), "fill": "none"}
        for name, value in attributes.items():
            styles[name.replace("_", "-")] = value
        return Shape("polyline", styles)

    def level(self, value: float) -> Shape:
        """Draw a broken line from one side to the other.

        Parameters
        ----------
        value : float
            Number on the vertical axis.

        Returns
        -------
        Shape
        """
        ends = [(x, value) for x in self.xs]
        return self.line(ends, stroke="currentColor", stroke_dasharray="2 3")

    def axes(self, x_name: str, y_name: str, labels: bool = True) -> list[Shape]:
        """Draw the two axes with their names and round numbers.

        Parameters
        ----------
        x_name, y_name : str
            Names of the axes.
        labels : bool, default True
            Whether the vertical axis has its numbers, too.

        Returns
        -------
        list of Shape
        """
        left, right, bottom = self.left, self.right, self.bottom
        corners = [(left, self.top), (left, bottom), (right, bottom)]
        style = {"points": _places(corners), "fill": "none", "stroke": "currentColor"}
        shapes = [Shape("polyline", style)]
        for tick in _inside(self.xs):
            label = _number(tick)
            shapes.append(_text(self.x(tick), bottom + BELOW_AXIS, label, "middle"))
        if labels:
            for tick in _inside(self.ys):
                label = _number(tick)
                shapes.append(_text(left - BESIDE_AXIS, self.y(tick) + HALF_TEXT, label, "end"))
        shapes.append(_text(right, bottom + BELOW_TICKS, x_name, "end"))
        shapes.append(_text(left, self.top - ABOVE_PLOT, y_name))
        return shapes

    def progress(self, points: np.ndarray, colour: str) -> list[Shape]:
        """Draw a line as far as it has come, and a dot where it is.

        Parameters
        ----------
        points : (frames,2) float
            Where the dot is in each frame.
        colour : str

        Returns
        -------
        list of Shape
        """
        counts = list(range(1, len(points) + 1))
        line = self.line(points, stroke=colour, stroke_width=STROKE, count=counts)
        xs, ys = self.places(points).T
        centre = {"cx": xs.tolist(), "cy": ys.tolist()}
        dot = Shape("circle", {**centre, "r": DOT, "fill": colour})
        return [line, dot]


def joins(text: str, most: int = 30) -> Animation:
    """Show how WordPiece learns from a text: at each join the words, and the counts that chose the pair.

    Parameters
    ----------
    text : str
        A short text, of a sentence or two.
    most : int, default 30
        Joins to show at most.

    Returns
    -------
    Animation
        A frame for the letters, and one for each join that `core.wordpiece.learn` makes.

    Raises
    ------
    InputError
        When there is nothing to join, as no pair of letters occurs twice, or `most` is less than 1.
    """
    whole_number("most", most, 1)
    words = Counter(wordpiece.split_words(text))
    pieces = wordpiece.learn(words, 10**9)[len(wordpiece.SPECIAL_TOKENS) :]
    learned = [piece for piece in pieces if len(piece.removeprefix("##")) > 1][:most]
    if not learned:
        raise InputError(f"{text=} has no pair of letters that occurs twice; give more text.", text=text)
    cut = {word: [word[0], *("##" + letter for letter in word[1:])] for word in words}
    states, chosen = [cut], []
    for piece in learned:
        candidates = _candidates(states[-1], words)
        best = next(row for row in candidates if _joined(row.pair) == piece)
        candidates.remove(best)  # equal gains may come in another order
        chosen.append([best, *candidates[: ROWS - 1]])
        pair = best.pair
        states.append({word: wordpiece.join(pieces, pair, piece) for word, pieces in states[-1].items()})
    captions = ["Every word as its letters; × tells how often it occurs. Below, the pairs that gain most."]
    for number, (best, *_) in enumerate(chosen, 1):
        left, right = best.pair
        captions.append(
            f"Join {number} of {len(learned)}: {left} and {right} become {_joined(best.pair)}. They stand "
            f"side by side {best.n} times, and joining them gains {_number(best.gain, 1)} nats."
        )
    shapes, bottom = _words(words, states, ["", *learned])
    shapes += _table(bottom + ABOVE_TABLE, chosen)
    height = bottom + ABOVE_TABLE + ROW * ROWS + BELOW_TABLE
    frames, becomes = "one frame", learned[0]
    if len(learned) > 1:
        frames = f"each of {len(learned)} frames"
        becomes = f"{learned[0]} in the first, {learned[-1]} in the last"
    alt = (
        f"The {counted(len(words), 'different word')} of a text in boxes, letter by letter at first, above a "
        f"table of pairs of neighbours. In {frames} the pair with the greatest gain is joined "
        f"wherever it stands: it becomes {becomes}."
    )
    return Animation(alt, captions, height, shapes, JOIN_SECONDS)


def descent(
    loss: Loss,
    start: Sequence[float],
    names: tuple[str, str],
    steps: int = 60,
    rates: Sequence[float] = RATES,
) -> Animation:
    """Show two ways down a loss of two parameters side by side: gradient descent and Adam.

    Parameters
    ----------
    loss : callable
        Takes the parameters, (2,), and returns the loss and its gradient, (2,).
    start : (2,) float
        Where both begin.
    names : (str, str)
        Names of the parameters.
    steps : int, default 60
        Steps of both.
    rates : sequence of float
        Learning rates to try. Each way is shown at the rate whose mean loss over all steps is lowest.

    Returns
    -------
    Animation
        A frame for the start, and one for each step.
    """
    best, paths, losses = {}, {}, {}
    for name, way in {"gradient descent": gradient_descent, "Adam": adam}.items():
        best[name], paths[name], losses[name] = _best_way(way, loss, start, steps, rates)
    captions = []
    for step in range(steps + 1):
        at = ", ".join(f"{_number(values[step], 3)} by {name}" for name, values in losses.items())
        captions.append(f"Step {step} of {steps}. Loss: {at}.")
    low = np.min([path.min(0) for path in paths.values()], 0)
    high = np.max([path.max(0) for path in paths.values()], 0)
    room = PLANE_ROOM * np.maximum(high - low, 1e-9)
    low, high = low - room, high + room
    lines = _contours(loss, low, high)
    shapes: list[Shape] = []
    for (name, place), colour in zip(PLANES.items(), (BLUE, ORANGE), strict=True):
        panel = Panel(*place, (low[0], high[0]), (low[1], high[1]))
        shapes += [panel.line(line, stroke="currentColor", stroke_opacity=0.4) for line in lines]
        shapes += panel.axes(names[0], names[1], labels=place.left < WIDTH / 2)
        shapes.append(_text(place.left, ASCENT, f"{name}, rate {best[name]:g}", fill=colour))
        shapes += panel.progress(paths[name], colour)
    all_losses = np.concatenate(list(losses.values()))
    room = PLOT_ROOM * max(float(np.ptp(all_losses)), 1e-9)
    panel = Panel(*LOSSES, (0.0, float(steps)), (all_losses.min() - room, all_losses.max() + room))
    shapes += panel.axes("step", "loss (nats)")
    for colour, values in zip((BLUE, ORANGE), losses.values(), strict=True):
        shapes += panel.progress(np.stack([np.arange(steps + 1), values], 1), colour)
    ends = " and ".join(f"{_number(values[-1], 3)} by {name}" for name, values in losses.items())
    alt = (
        f"Contour lines of a loss over {names[0]} and {names[1]}, drawn twice: on the left with the path of "
        "gradient descent, on the right with that of Adam, from the same place. Below, both losses over "
        f"{counted(steps, 'step')}, from {_number(losses['Adam'][0], 3)} to {ends}."
    )
    return Animation(alt, captions, LOSSES.end, shapes, STEP_SECONDS)


def neighbour_head(maps: Sequence[tuple[int, np.ndarray]], gains: np.ndarray) -> Animation:
    """Show where a head looks, at many steps of a training, beside what the model has gained by then.

    Parameters
    ----------
    maps : sequence of (int, (S,A,n,n) float)
        Steps of a training, counted from 1, with the attention weights of A heads on S windows of n tokens.
    gains : (steps,) float
        At each step by how many nats the loss is below that of the best constant guess.

    Returns
    -------
    Animation
        A frame for each of the maps. The head is the one that looks most at a neighbour in the end.
    """
    steps = np.array([step for step, _ in maps])
    of_heads = np.array([weights.mean(0) for _, weights in maps])  # (frames,A,n,n)
    head = int(np.max([on_neighbour(of_heads[-1], offset) for offset in SIDES.values()], 0).argmax())
    cells = of_heads[:, head]
    beside = {side: on_neighbour(cells, offset) for side, offset in SIDES.items()}
    at_maps = np.asarray(gains)[steps - 1]
    captions = []
    for frame, step in enumerate(steps):
        sides = ", ".join(f"{weights[frame]:.2f} on its {side} neighbour" for side, weights in beside.items())
        captions.append(
            f"Step {step}: a gain of {_number(at_maps[frame], 2)} nats. Mean weight of a token: {sides}."
        )
    n = cells.shape[-1]
    shapes = _heat_map(cells, f"Head {head + 1}")
    shapes += _plot_of_gains(steps, at_maps)
    shapes += _plot_of_weights(steps, beside, even=1 / n)
    ends = "; ".join(f"{side} from {means[0]:.2f} to {means[-1]:.2f}" for side, means in beside.items())
    alt = (
        f"The mean attention map of head {head + 1} on windows of {n} tokens, {counted(len(steps), 'time')} "
        f"from step {steps[0]} to step {steps[-1]}; the larger a weight, the fuller the colour of its cell. "
        f"The cells beside the main diagonal are the weights on neighbours. Their means change: {ends}; even "
        f"ones are {1 / n:.2f}. Below are two plots over the same steps, of the gain, which goes from "
        f"{_number(at_maps[0], 2)} to {_number(at_maps[-1], 2)} nats, and of the two means."
    )
    return Animation(alt, captions, WEIGHTS.end, shapes, MAP_SECONDS)


# maps (...,n,n) -> (...)
def on_neighbour(maps: np.ndarray, offset: int) -> np.ndarray:
    """Average the weights of token i on token i + offset.

    Parameters
    ----------
    maps : (...,n,n) float
        Attention weights: a row for each token that looks.
    offset : int
        -1 is the left neighbour, 1 the right one.

    Returns
    -------
    (...) float
    """
    return np.diagonal(maps, offset, -2, -1).mean(-1)


def follow(loss: Loss, start: Sequence[float], update: Update, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Take steps down a loss.

    Parameters
    ----------
    loss : callable
        Takes the parameters, (2,), and returns the loss and its gradient, (2,).
    start : (2,) float
    update : callable
        Takes parameters, gradient and the number of the step, from 1 on; returns new parameters.
    steps : int

    Returns
    -------
    path : (steps+1,2) float
    losses : (steps+1,) float
    """
    path, losses = [], []
    point = np.array(start, float)
    for step in range(1, steps + 2):
        value, gradient = loss(point)
        path.append(point)
        losses.append(value)
        point = update(point, gradient, step)
    return np.array(path), np.array(losses)


def gradient_descent(rate: float) -> Update:
    """Make the update of gradient descent.

    Parameters
    ----------
    rate : float
        Learning rate.

    Returns
    -------
    callable
        See `follow`.
    """
    return lambda point, gradient, step: point - rate * gradient


def adam(rate: float) -> Update:
    """Make the update of Adam without weight decay, with its two moments.

    Parameters
    ----------
    rate : float
        Learning rate.

    Returns
    -------
    callable
        See `follow`.
    """
    m, v = np.zeros(2), np.zeros(2)
    nothing_decays = np.empty((0, 2), np.int64)

    def update(point: np.ndarray, gradient: np.ndarray, step: int) -> np.ndarray:
        rule = AdamRule(rate, step, weight_decay=0.0)
        moved, _, _ = Ops().adamw(point.copy(), gradient, m, v, nothing_decays, rule)
        return moved

    return update


def _best_way(
    way: Callable[[float], Update],
    loss: Loss,
    start: Sequence[float],
    steps: int,
    rates: Sequence[float],
) -> tuple[float, np.ndarray, np.ndarray]:
    """Follow a way down a loss at all rates; return the best rate, with its path and losses."""
    with np.errstate(all="ignore"):  # at a rate that is too high a path may run away
        followed = {rate: follow(loss, start, way(rate), steps) for rate in rates}
    means = {rate: losses.mean() for rate, (_, losses) in followed.items()}
    best = min(rates, key=lambda rate: np.nan_to_num(means[rate], nan=np.inf))
    return best, *followed[best]


def _contours(loss: Loss, low: np.ndarray, high: np.ndarray) -> list[np.ndarray]:
    """Return lines (n,2) of equal loss within a rectangle, closer to each other near its lowest point."""
    from matplotlib.figure import Figure

    columns, rows = np.linspace(low, high, GRID).T
    heights = np.empty((GRID, GRID))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            heights[i, j], _ = loss(np.array([column, row]))
    levels = heights.min() + LEVELS * np.ptp(heights)
    axes = Figure().subplots()
    drawn = axes.contour(columns, rows, heights, levels=levels)
    lines = [line for level in drawn.allsegs for line in level]
    return [line for line in lines if len(line) > 1]


def _joined(pair: tuple[str, str]) -> str:
    """Return the piece that a pair becomes."""
    return pair[0] + pair[1].removeprefix("##")


def _candidates(cut: Mapping[str, list[str]], words: Mapping[str, int]) -> list[Candidate]:
    """Count the pairs of a text that may be joined; those that gain most come first."""
    counts: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for word, pieces in cut.items():
        for piece in pieces:
            counts[piece] += words[word]
        for pair in wordpiece.neighbours(pieces):
            pairs[pair] += words[word]
    rows = []
    for pair, n in pairs.items():
        if n > 1:
            gain = wordpiece.gain(pair, n, counts)
            rows.append(Candidate(pair, n, counts[pair[0]], counts[pair[1]], gain))
    return sorted(rows, key=lambda row: -row.gain)


def _words(
    words: Mapping[str, int], states: Sequence[Mapping[str, list[str]]], news: Sequence[str]
) -> tuple[list[Shape], float]:
    """Draw the words in lines, each piece as a box; return the shapes, and where the last line ends."""
    shapes = []
    left = top = EDGE
    for word, count in words.items():
        width = CELL * len(word) + TIMES + DIGIT * len(str(count))
        if left + width > WIDTH:
            left, top = EDGE, top + BETWEEN_LINES
        # The box of a letter is as wide as the piece that it begins; inside a piece it has no width.
        sizes, opacities = [], []
        for state, new in zip(states, news, strict=True):
            lengths = [0] * len(word)
            strengths = [FAINT] * len(word)
            at = 0
            for piece in state[word]:
                lengths[at] = len(piece.removeprefix("##"))
                strengths[at] = STRONG if piece == new else FAINT
                at += lengths[at]
            sizes.append(lengths)
            opacities.append(strengths)
        for at in range(len(word)):
            widths = [max(0.0, CELL * lengths[at] - BETWEEN_BOXES) for lengths in sizes]
            opacity = [strengths[at] for strengths in opacities]
            shapes.append(_box(left + CELL * at, top, widths, BOX, opacity, rx=CORNER))
        baseline = top + BOX_BASELINE
        for at, letter in enumerate(word):
            x = left + CELL * (at + 0.5) - BETWEEN_BOXES / 2
            shapes.append(_text(x, baseline, letter, "middle", family=MONOSPACE, size=LETTER_FONT))
        shapes.append(_text(left + CELL * len(word), baseline, f"×{count}", size=COUNT_FONT))
        left += width + BETWEEN_WORDS
    return shapes, top + BOX


def _table(top: float, chosen: Sequence[Sequence[Candidate]]) -> list[Shape]:
    """Write for each join the pairs with the greatest gains, the chosen one first; before it, the first's."""
    shapes = [_text(PAIR, top, "pair")]
    for x, heading in HEADINGS.items():
        shapes.append(_text(x, top, heading, "end"))
    frames = [chosen[0], *chosen]
    greatest = max(row.gain for rows in chosen for row in rows)
    for place in range(ROWS):
        rows = [rows[place] if place < len(rows) else None for rows in frames]
        y = top + ROW * (place + 1)
        opacity = FAINT if place else STRONG
        shapes += _table_row(y, rows, greatest, opacity)
    return shapes


def _table_row(y: float, rows: Sequence[Candidate | None], greatest: float, opacity: float) -> list[Shape]:
    """Write a row of the table in each frame, beside a bar of its gain; None where it is empty."""
    gains = [row.gain if row else 0.0 for row in rows]
    widths = [max(0.0, (GAIN - BARS) * gain / greatest) for gain in gains]
    bar = _box(BARS, y - ASCENT, widths, BAR, opacity)
    pairs = [" ".join(row.pair) if row else "" for row in rows]
    shapes = [bar, _text(PAIR, y, pairs, family=MONOSPACE)]
    numbers = [row.numbers() if row else {} for row in rows]
    for x in HEADINGS:
        texts = [by_column.get(x, "") for by_column in numbers]
        shapes.append(_text(x, y, texts, "end"))
    return shapes


def _heat_map(maps: np.ndarray, name: str) -> list[Shape]:
    """Draw maps (frames,n,n) as squares, with a key of their shades."""
    n = maps.shape[-1]
    size = SQUARE / n
    side = size - BETWEEN_CELLS
    left, top = GAINS.left, EDGE
    darkest = float(maps.max())
    opacity = (maps / darkest) ** SHADE
    shapes = []
    for row in range(n):
        for column in range(n):
            x, y = left + size * column, top + size * row
            shapes.append(_box(x, y, side, side, opacity[:, row, column].tolist()))
    names = ["CLS", *(str(i) for i in range(1, n - 1)), "SEP"]
    below = top + SQUARE + BELOW_AXIS
    for i, label in enumerate(names):
        middle = size * (i + 0.5)
        shapes.append(_text(left - BESIDE_AXIS, top + middle + HALF_TEXT, label, "end"))
        shapes.append(_text(left + middle, below, label, "middle", size=min(FONT, size / SMALLER)))
    right = left + SQUARE + BESIDE_MAP
    shapes.append(_text(right, top + ASCENT, name))
    for line, text in enumerate(("A row: the token", "that looks.", "A column: the one", "it looks at.")):
        shapes.append(_text(right, NOTE + NOTE_LINE * line, text))
    for line, (weight, what) in enumerate(((darkest, "largest"), (1 / n, "even"))):
        y = KEY + KEY_LINE * line
        shapes.append(_box(right, y, KEY_SQUARE, KEY_SQUARE, (weight / darkest) ** SHADE))
        shapes.append(_text(right + KEY_TEXT, y + ASCENT, f"{weight:.2f}, {what}"))
    return shapes


def _plot_of_gains(steps: np.ndarray, gains: np.ndarray) -> list[Shape]:
    """Plot a gain over steps, and where it would be 0."""
    last = float(max(steps[-1], 2))
    room = PLOT_ROOM * max(float(np.ptp(gains)), 0.01)
    low = min(0.0, gains.min()) - room
    high = max(0.0, gains.max()) + room
    panel = Panel(*GAINS, (1.0, last), (low, high))
    shapes = panel.axes("", "gain over the best constant guess (nats)")
    shapes.append(panel.level(0.0))
    points = np.stack([steps, gains], 1)
    return shapes + panel.progress(points, BLUE)


def _plot_of_weights(steps: np.ndarray, beside: Mapping[str, np.ndarray], even: float) -> list[Shape]:
    """Plot the mean weights on both neighbours over steps, and where even ones would be."""
    last = float(max(steps[-1], 2))
    highest = max(float(means.max()) for means in beside.values())
    top = (1 + 2 * PLOT_ROOM) * highest
    panel = Panel(*WEIGHTS, (1.0, last), (0.0, top))
    shapes = panel.axes("step", "mean weight on the neighbour:")
    shapes.append(panel.level(even))
    for (side, means), colour in zip(beside.items(), (BLUE, ORANGE), strict=True):
        points = np.stack([steps, means], 1)
        shapes += panel.progress(points, colour)
        baseline = WEIGHTS.top - ABOVE_PLOT
        shapes.append(_text(SIDE_NAMES[side], baseline, side, "end", colour))
    return shapes


def _box(x: float, y: float, width: Any, height: float, opacity: Any, **attributes: Any) -> Shape:
    """Draw a blue rectangle; its width and opacity are numbers, or lists with one for each frame."""
    place = {"x": x, "y": y, "width": width, "height": height}
    return Shape("rect", {**place, **attributes, "fill": BLUE, "fill-opacity": opacity})


def _text(
    x: float, y: float, text: Any, anchor: str = "start", fill: str = "", family: str = "", size: float = FONT
) -> Shape:
    """Write a text, or one for each frame."""
    attributes: dict[str, Any] = {"x": x, "y": y}
    if anchor != "start":
        attributes["text-anchor"] = anchor
    if fill:
        attributes["fill"] = fill
    if family:
        attributes["font-family"] = family
    if size != FONT:
        attributes["font-size"] = size
    return Shape("text", attributes, text)


def _changes(values: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return the values that differ from the one before, with their places."""
    changes = []
    for frame, value in enumerate(values):
        if not frame or value != values[frame - 1]:
            changes.append((frame, round(value, 2) if isinstance(value, float) else value))
    return changes


def _inside(ends: tuple[float, float]) -> list[float]:
    """Return round numbers between two ends, at most five of them."""
    between = [tick for tick in ticks(*ends) if ends[0] <= tick <= ends[1]]
    return between[:: -(-len(between) // 5)]


def _places(points: Any) -> str:
    """Write points as SVG has them."""
    return " ".join(f"{_written(float(x))},{_written(float(y))}" for x, y in points)


def _written(value: Any) -> str:
    """Write a number or text as the value of an attribute."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


def _number(value: float, digits: int | None = None) -> str:
    """Write a number for people; with `digits` None, as short as it is."""
    text = f"{value:g}" if digits is None else f"{value:.{digits}f}"
    return text.replace("-", "−")
