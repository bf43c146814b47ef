"""What the pages promise, what holds each promise, and the table of both on the site."""

import ast
import contextlib
import functools
import io
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "promises.toml"
FENCE = re.compile(r"^( *)(```|~~~).*?^ *\2", re.MULTILINE | re.DOTALL)
MARK = "<!-- promises -->"  # in docs/reliability.md; the table takes its place on the site


class Promise(NamedTuple):
    """A sentence of a page, word for word, and what holds it: tests by their ids, commands and logs."""

    page: str
    says: str
    held_by: list[str]


def read(path: Path = FILE) -> tuple[list[Promise], Mapping[str, Mapping[str, str]]]:
    """Return the promises, and for each page the sentences that merely sound like one, with the reason."""
    stored = tomllib.loads(path.read_text("utf-8"))
    promises = [
        Promise(page, says, held_by)
        for page, sentences in stored["promises"].items()
        for says, held_by in sentences.items()
    ]
    return promises, stored["exceptions"]


@functools.cache
def text_of(page: str) -> str:
    """Return a page, the docstring of a module or the help of a command, each white space as one blank."""
    return " ".join(_source(page).split())


@functools.cache
def prose_of(page: str) -> str:
    """Return the same without what is fenced."""
    return " ".join(FENCE.sub(" ", _source(page)).split())


def _source(page: str) -> str:
    if page.startswith("minibert "):
        from minibert import cli

        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            cli.main(page.split()[1:])
        return shown.getvalue()
    text = (ROOT / page).read_text("utf-8")
    if page.endswith(".py"):
        return ast.get_docstring(ast.parse(text)) or ""
    return text


def table(promises: list[Promise]) -> str:
    """Return the promises as Markdown, a table for each page."""
    return "\n\n".join(_tables(promises))


def _tables(promises: list[Promise]) -> Iterator[str]:
    for page in dict.fromkeys(promise.page for promise in promises):
        rows = [f"| {_cell(one.says)} | {_held(one.held_by)} |" for one in promises if one.page == page]
        yield f"### {page}\n\n" + "\n".join(["| it says | held by |", "|---|---|", *rows])


def _cell(says: str) -> str:
    """Return a quotation for a cell of a table: without its links, which lead from its own page."""
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", says)
    return re.sub(r"([|$<#])", r"\\\1", text)


def _held(held_by: list[str]) -> str:
    return "<br>".join(f"`{name.removeprefix('tests/')}`" for name in held_by)
