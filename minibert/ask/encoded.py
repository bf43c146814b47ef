"""What a notebook shows of encoded texts: how far each token's vector has moved, and all attention maps."""

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from minibert.reports.markup import rendered

MOST_SEQUENCES, MOST_TOKENS = 3, 40  # that are shown
DARKEST, LINE = np.array([31, 95, 153]), 205  # red, green and blue of the value 1; 0 is white


def encoded_html(encoded: Any) -> str:
    """Return tables and pictures of an `Encoded`, in HTML without scripts."""
    tokens = encoded.tokens or range(int(encoded.cu_seqlens[-1]))
    ends = encoded.cu_seqlens[: MOST_SEQUENCES + 1].tolist()
    shown = []
    for number, (begin, end) in enumerate(zip(ends, ends[1:], strict=False)):
        states = [x[begin:end] for x in encoded.hidden_states]
        states = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in states]
        cosines = np.stack([(states[0] * x).sum(axis=1) for x in states], axis=1)
        maps = [layer[number] for layer in encoded.attentions or ()]
        rows = list(zip(tokens[begin:end], cosines[:MOST_TOKENS].tolist(), strict=False))
        url, size = (_data_url(_tiled(maps)), (len(maps), len(maps[0]))) if maps else (None, None)
        shown.append({"rows": rows, "more": max(0, end - begin - MOST_TOKENS), "maps": url, "size": size})
    left_out, n_states = len(encoded.cu_seqlens) - 1 - len(shown), len(encoded.hidden_states)
    return rendered("encoded.html.j2", what=repr(encoded), shown=shown, left_out=left_out, n_states=n_states)


# maps L × (A,n,n) -> (L(n+1),A(n+1))
def _tiled(maps: Sequence[np.ndarray]) -> np.ndarray:
    """Lay all maps out, a row for each layer, with a line between them."""
    framed = [np.pad(np.sqrt(layer), ((0, 0), (0, 1), (0, 1)), constant_values=np.nan) for layer in maps]
    return np.concatenate([np.concatenate(list(layer), axis=1) for layer in framed])


# values (h,w) from 0 to 1, or not a number where a line is
def _data_url(values: np.ndarray) -> str:
    """Return a PNG as an address that holds it whole."""
    h, w = values.shape
    pixels = np.nan_to_num(np.rint(255 + (DARKEST - 255) * values[..., None]), nan=LINE).astype(np.uint8)
    filters = np.zeros((h, 1), np.uint8)  # none, for each line
    lines = np.hstack([filters, pixels.reshape(h, -1)])
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)),  # 8 bits for each of three colours
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    sums = ((name + data, zlib.crc32(name + data)) for name, data in chunks)
    body = b"".join(struct.pack(">I", len(one) - 4) + one + struct.pack(">I", crc) for one, crc in sums)
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")
