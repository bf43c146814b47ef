"""Write the tables of docs/coming-from.md: what options, arguments and attributes elsewhere are called here.

python docs/foreign_names.py          # writes them between the marks of the page
"""

from collections.abc import Iterator
from pathlib import Path

from minibert.base.foreign_names import FOREIGN_ARGUMENTS, FOREIGN_ATTRIBUTES, FOREIGN_NAMES

PAGE = Path(__file__).with_name("coming-from.md")
BEGIN, END = "<!-- table: {} -->\n", "<!-- end -->"


def grouped(rows: dict[str, object]) -> Iterator[tuple[str, object]]:
    """Yield names that mean the same, as code with commas between, and what they mean."""
    by_meaning: dict[object, list[str]] = {}
    for name, meaning in rows.items():
        by_meaning.setdefault(meaning, []).append(f"`{name}`")
    for meaning, names in by_meaning.items():
        yield ", ".join(names), meaning


def options() -> str:
    """Return the table of options."""
    lines = ["| there | here | note |", "|---|---|---|"]
    for names, foreign in grouped(FOREIGN_NAMES):
        value = f'="{foreign.value}"' if foreign.value else ""
        ours = ", ".join(f"`{name}{value}`" for name in foreign.ours)
        lines.append(f"| {names} | {ours} | {foreign.note} |")
    return "\n".join(lines) + "\n"


def arguments() -> str:
    """Return the table of arguments of functions and methods."""
    lines = ["| call | argument there | here |", "|---|---|---|"]
    for function, remedies in FOREIGN_ARGUMENTS.items():
        for names, remedy in grouped(remedies):
            lines.append(f"| `{function}` | {names} | {as_statement(remedy)} |")
    return "\n".join(lines) + "\n"


def attributes() -> str:
    """Return the table of attributes and methods of objects."""
    lines = ["| object | attribute there | here |", "|---|---|---|"]
    for kind, remedies in FOREIGN_ATTRIBUTES.items():
        for names, remedy in grouped(remedies):
            lines.append(f"| `{kind}` | {names} | {remedy} |")
    return "\n".join(lines) + "\n"


def as_statement(remedy: str) -> str:
    """Return what an error asks as a statement."""
    if remedy.startswith("Did you mean "):
        return f"`{remedy.removeprefix('Did you mean ').rstrip('?')}`"
    return remedy


def filled(page: str) -> str:
    """Return a page with its tables as they should be."""
    tables = {"options": options(), "arguments": arguments(), "attributes": attributes()}
    for name, table in tables.items():
        before, mark, rest = page.partition(BEGIN.format(name))
        _, end, after = rest.partition(END)
        page = before + mark + table + end + after
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")
