"""Values and tables as HTML, in which whatever comes from data is text and nothing else."""

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# What no HTML may hold: control characters, halves of surrogate pairs, non-characters.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def plain(value: Any) -> str:
    """A value as text that means nothing to HTML, between tags and within quotes alike.

    Examples
    --------
    >>> plain('<b> & "c"')
    '&lt;b&gt; &amp; &quot;c&quot;'
    >>> plain(0.91666), plain(11873), plain((5e-05, "x"))
    ('0.9167', '11,873', '5e-05, x')
    """
    return html.escape(FORBIDDEN.sub("\ufffd", _words(value)))


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    if isinstance(value, float | np.floating):
        return _number(float(value))
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, Sequence):
        return ", ".join(map(_words, value)) or "–"
    return str(value)


def _number(value: float) -> str:
    """Four places, or as many digits as a very small one needs."""
    if not math.isfinite(value):
        return str(value)
    if value.is_integer() and abs(value) > 1:
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) >= 0.001 or value == 0 else f"{value:.4g}"


def table(kind: str, rows: Sequence[str], head: str = "") -> str:
    """Rows in a table that scrolls by itself where it is wider than the page."""
    attribute = f' class="{kind}"' if kind else ""
    head = f"<thead>{head}</thead>\n" if head else ""
    return (
        f'<div class="wide"><table{attribute}>\n{head}<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )
