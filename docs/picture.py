"""The picture on the landing page: what the heads of a model attend to from [MASK], and its guesses.

The build of the site draws it of the model itself, as SVG within the page, in the colours of the theme.
"""

import html
from typing import Any, NamedTuple

import numpy as np

from minibert.tasks.task import softmax

MARK = "<!-- picture -->"  # in docs/index.md; the picture takes its place
CHARACTER, SPACE = 6.9, 10.0  # of a column, whose width is that of its piece
TOP, ROW, BELOW = 26, 6, 28  # height of the pieces, of a head and of a guess
FAINTEST = 0.06  # a cell without attention is still seen


class Reading(NamedTuple):
    """What a model makes of one text with a [MASK]."""

    pieces: list[str]
    masked: int
    attention: np.ndarray  # (L, A, n): from [MASK] to each piece
    guesses: list[tuple[str, float]]  # after each layer: the likeliest piece and its probability


def read(model: Any, text: str) -> Reading:
    """Run a model on a text."""
    encoded = model.encode([text], attentions=True)
    masked = encoded.tokens.index("[MASK]")
    attention = np.stack([layer[0][:, masked] for layer in encoded.attentions])
    guesses = [guess_from(model, states, masked) for states in encoded.hidden_states[1:]]
    return Reading(encoded.tokens, masked, attention, guesses)


def guess_from(model: Any, states: np.ndarray, row: int) -> tuple[str, float]:
    """Return what the masked-LM head guesses from the states behind a layer, as if it were the last."""
    tree = model.params.tree
    words = tree["embeddings"]["word"]
    logits, _ = model.ops.masked_lm_logits(states, np.array([row]), tree["mlm"], words, model.config)
    probabilities = softmax(logits[0])
    best = int(probabilities.argmax())
    [piece] = model.tokenizer.convert_ids_to_tokens([best])
    return piece, float(probabilities[best])


def figure(reading: Reading) -> str:
    """Return the picture and what it shows, as HTML of the landing page."""
    layers, heads, _ = reading.attention.shape
    return f"""<figure class="glance">
{draw(reading)}
<figcaption><a href="models/english.html">The BERT in the package</a> reads a sentence. In each of its
{layers} layers, the {heads} rows are its heads, and blue is what a head attends to from [MASK]; below
stands the best guess so far.</figcaption>
</figure>"""


def draw(reading: Reading) -> str:
    """Return the picture as SVG: pieces in columns, a row for each head, a guess below each layer."""
    answers = [f"{piece} {probability:.0%}" for piece, probability in reading.guesses]
    longest = [len(piece) for piece in reading.pieces]
    longest[reading.masked] = max(map(len, ["[MASK]", *answers]))
    widths = np.array(longest) * CHARACTER + SPACE
    edges = np.concatenate([[0], widths.cumsum()])
    heads = reading.attention.shape[1]
    step = heads * ROW + BELOW
    width, height = edges[-1], TOP + len(answers) * step
    left, right = edges[reading.masked : reading.masked + 2]
    parts = [
        f'<svg viewBox="0 0 {width:.0f} {height}" role="img" aria-label="{html.escape(told(reading))}">',
        f'<rect class="masked" x="{left:.1f}" width="{right - left:.1f}" height="{height}" rx="4"/>',
    ]
    middles = (edges[:-1] + edges[1:]) / 2
    for piece, middle in zip(reading.pieces, middles, strict=True):
        parts.append(label(piece, middle, 17, "piece"))
    for layer, answer in enumerate(answers):
        top = TOP + layer * step
        for head, weights in enumerate(reading.attention[layer]):
            parts += cells(weights, edges, top + head * ROW)
        baseline = top + heads * ROW + 17
        parts.append(f'<text class="layer" x="0" y="{baseline}">after layer {layer + 1}</text>')
        parts.append(label(answer, middles[reading.masked], baseline, "guess"))
    return "\n".join([*parts, "</svg>"])


def label(text: str, middle: float, baseline: float, kind: str) -> str:
    """Return a line of text, centred."""
    return f'<text class="{kind}" x="{middle:.1f}" y="{baseline}">{html.escape(text)}</text>'


def cells(weights: np.ndarray, edges: np.ndarray, top: float) -> list[str]:
    """Return the row of a head: the darker a cell, the more the head attends to the piece above."""
    return [
        f'<rect class="cell" x="{left + 1:.1f}" y="{top}" width="{right - left - 2:.1f}" height="{ROW - 1}"'
        f' fill-opacity="{FAINTEST + (1 - FAINTEST) * weight:.2f}"/>'
        for weight, left, right in zip(weights, edges[:-1], edges[1:], strict=True)
    ]


def told(reading: Reading) -> str:
    """Return the picture in words, for those who do not see it."""
    layers, heads, _ = reading.attention.shape
    guesses = [
        f'"{piece}" ({probability:.0%}) after layer {layer}'
        for layer, (piece, probability) in enumerate(reading.guesses, 1)
    ]
    return (
        f"A BERT of {layers} layers with {heads} heads reads {' '.join(reading.pieces)}. A map shows "
        f"how much each head attends to each piece from [MASK]. The best guess is {', '.join(guesses)}."
    )
