"""Fill in templates of pages; all data is escaped."""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.terminal import counted

TEMPLATES = Path(__file__).with_name("templates")
# Not allowed in HTML: control characters, halves of surrogate pairs, non-characters.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
# Characters that reorder the text around them, to the end of the paragraph.
REORDERING = re.compile("[\u202a-\u202e\u2066-\u2069]")


def rendered(template: str, folder: Path = TEMPLATES, **values: Any) -> str:
    """Fill in a template; every value that is not Markup goes through `shown`, and is escaped.

    Parameters
    ----------
    template : str
        Name of the template's file.
    folder : Path
        Folder of the templates; by default `minibert/reports/templates`.
    **values
        Values of all names that the template uses.

    Returns
    -------
    str
        The page.
    """
    return _environment(folder).get_template(template).render(values)


@cache
def _environment(folder: Path) -> Any:
    """Return the Jinja environment of a folder of templates."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else shown(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # Points of curves have more decimals than other places, as axes.js enlarges their differences.
    environment.filters |= {"place": "{:.1f}".format, "point": "{:.3f}".format}
    environment.filters |= {"figure": "{:.1e}".format, "counted": counted}
    environment.filters["sha256"] = _sha256
    return environment


def _sha256(script: str) -> str:
    """Return the digest by which a page allows its own script and no other."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def framed(page: str, title: str) -> str:
    """Put a page into an HTML frame that keeps it apart, to show it in a notebook.

    Its scripts run, and see nothing of the notebook.

    Parameters
    ----------
    page : str
        A whole HTML document.
    title : str
        Title of the frame, for screen readers.

    Returns
    -------
    str
        HTML.
    """
    title = html.escape(title)
    source = html.escape(page)
    style = "width: 100%; height: 40rem; box-sizing: border-box; border: 1px solid #8888"
    return f'<iframe sandbox="allow-scripts" title="{title}" style="{style}" srcdoc="{source}"></iframe>'


def inert_json(value: Any) -> str:
    """Write JSON in ASCII without < > &, so that no text in it can end the script element around it.

    Parameters
    ----------
    value : Any
        A value that can be written as JSON; its numbers have to be finite.

    Returns
    -------
    str

    Examples
    --------
    >>> print(inert_json("</script> \\u202e"))
    "\\u003c/script\\u003e \\u202e"
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shown(value: Any) -> str:
    """Write a value for people, without characters that HTML forbids or that reorder the text around them.

    Parameters
    ----------
    value : Any
        Numbers get thousands separators and about four decimals, sequences become a list, None a dash.

    Returns
    -------
    str
        The text, not yet escaped.

    Examples
    --------
    >>> shown(0.91666), shown(11873), shown((5e-05, "x")), shown("a\\0")
    ('0.9167', '11,873', '5e-05, x', 'a\ufffd')
    >>> shown(True), shown(False), shown(None)
    ('yes', 'no', '–')
    >>> print(shown("a\u202e"))
    a\\u202e
    """
    text = FORBIDDEN.sub("\ufffd", _words(value))
    return REORDERING.sub(lambda found: ascii(found[0])[1:-1], text)


def _words(value: Any) -> str:
    """Write a value for people, including its control characters."""
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
    """Format a number with four decimals; a very small one with four significant digits."""
    if not math.isfinite(value):
        return str(value)
    if value.is_integer() and abs(value) > 1:
        return f"{value:,.0f}"
    if abs(value) >= 0.001 or value == 0:
        return f"{value:.4f}"
    return f"{value:.4g}"
