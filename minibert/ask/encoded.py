"""Show encoded texts in a notebook: how far the vector of each token has turned, and all attention maps."""

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from minibert.reports.markup import rendered

MOST_SEQUENCES = 3  # shown at most
MOST_TOKENS = 40  # of each sequence, shown at most
DARKEST = np.array([31, 95, 153])  # red, green and blue of the value 1; the value 0 is white
LINE = 205  # grey level of the lines between maps
SMALLEST_LENGTH = 1e-12  # avoids a division by zero


def encoded_html(encoded: Any) -> str:
    """Return tables and pictures of an `Encoded`, in HTML without scripts.

    The tables show, for each token, the cosine between its vector in each hidden state and its vector in the
    first. Only the first `MOST_TOKENS` tokens of the first `MOST_SEQUENCES` sequences are shown.

    Parameters
    ----------
    encoded : Encoded
        The result of `Bert.encode`, with or without attention maps.

    Returns
    -------
    str
        A fragment of HTML, from the template `encoded.html.j2`.
    """
    n_sequences = len(encoded.cu_seqlens) - 1
    tokens = encoded.tokens or range(int(encoded.cu_seqlens[-1]))
    ends = encoded.cu_seqlens[: MOST_SEQUENCES + 1].tolist()
    shown = []
    for index, (begin, end) in enumerate(zip(ends, ends[1:], strict=False)):
        cosines = _cosines_with_first([state[begin:end] for state in encoded.hidden_states])
        rows = list(zip(tokens[begin:end], cosines[:MOST_TOKENS].tolist(), strict=False))
        n_more = max(0, end - begin - MOST_TOKENS)
        maps = [layer[index] for layer in encoded.attentions or ()]
        url = None
        size = None
        if maps:
            url = _data_url(_tiled(maps))
            size = (len(maps), len(maps[0]))
        shown.append({"rows": rows, "more": n_more, "maps": url, "size": size})
    return rendered(
        "encoded.html.j2",
        what=repr(encoded),
        shown=shown,
        left_out=n_sequences - len(shown),
        n_states=len(encoded.hidden_states),
    )


# states, each (n,H) -> (n,len(states))
def _cosines_with_first(states: Sequence[np.ndarray]) -> np.ndarray:
    """Return the cosine of each token's vector with its first state."""
    units = []
    for state in states:
        lengths = np.linalg.norm(state, axis=1, keepdims=True)
        units.append(state / np.maximum(lengths, SMALLEST_LENGTH))
    first = units[0]
    cosines = [(first * unit).sum(axis=1) for unit in units]
    return np.stack(cosines, axis=1)


# maps L × (A,n,n) -> (L(n+1),A(n+1))
def _tiled(maps: Sequence[np.ndarray]) -> np.ndarray:
    """Arrange all maps in one picture, with a row for each layer and lines between the maps."""
    line_below_and_right = ((0, 0), (0, 1), (0, 1))
    rows = []
    for layer in maps:
        framed = np.pad(np.sqrt(layer), line_below_and_right, constant_values=np.nan)
        heads = list(framed)
        rows.append(np.concatenate(heads, axis=1))
    return np.concatenate(rows)


# values (h,w) from 0 to 1, or NaN for a line
def _data_url(values: np.ndarray) -> str:
    """Return a picture of the values, as a data URL of a PNG."""
    h, w = values.shape
    colours = np.rint(255 + (DARKEST - 255) * values[..., None])
    pixels = np.nan_to_num(colours, nan=LINE).astype(np.uint8)
    filters = np.zeros((h, 1), np.uint8)  # each line begins with its filter; 0 is none
    lines = np.hstack([filters, pixels.reshape(h, -1)])
    image = b"\x89PNG\r\n\x1a\n"
    image += _png_chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0))  # 8 bits, RGB
    image += _png_chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
    image += _png_chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(image).decode("ascii")


def _png_chunk(name: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG: length, name, data and checksum."""
    body = name + data
    length = struct.pack(">I", len(data))
    checksum = struct.pack(">I", zlib.crc32(body))
    return length + body + checksum
