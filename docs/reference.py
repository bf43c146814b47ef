"""The reference: a page for each thing that docs/api/ lists, and tables of names that lead to these pages.

The pages of docs/api/ keep the list, as directives of autodoc in fences. On the site each directive has a
page of its own, named after it; directives without an empty line between them share one. In the list, tables
take the place of the directives.
"""

import inspect
import re
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx import addnodes

FOLDER = "api"
MARK = "<!-- all names -->"  # in docs/api/index.md; a table of them takes its place
FENCE = re.compile(r"^```\{eval-rst\}\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"^\.\. auto\w+:: (\S+)", re.MULTILINE)
MODULE = re.compile(r"^\.\. currentmodule:: (\S+)", re.MULTILINE)
MOST_PARAMETERS = 12  # of a class with methods; more are folded, as the methods stand below them


class Entry(NamedTuple):
    """What has a page of its own: the names on it, with their modules, and their directives."""

    names: list[str]
    module: str  # which the directives take for granted
    directives: str

    def text(self) -> str:
        """Return the page, as reStructuredText."""
        *others, last = map(short, self.names)
        title = f"{', '.join(others)} and {last}" if others else last
        return f"{title}\n{'=' * len(title)}\n\n.. currentmodule:: {self.module}\n\n{self.directives}\n"


def short(name: str) -> str:
    """Return the last part of a name."""
    return name.rpartition(".")[2]


def fenced(text: str) -> list[list[Entry]]:
    """Return the entries of each fence of a page of docs/api/."""
    found, module = [], "minibert"
    for fence in FENCE.findall(text):
        found.append([])
        for block in fence.strip().split("\n\n"):
            if named := MODULE.search(block):
                module = named[1]
            names = [
                name if name.startswith("minibert.") else f"{module}.{name}"
                for name in DIRECTIVE.findall(block)
            ]
            if names:
                found[-1].append(Entry(names, module, block))
    return found


def listed(folder: Path) -> list[Entry]:
    """Return the entries of all pages in a folder."""
    pages = sorted(folder.glob("*.md"))
    return [entry for page in pages for fence in fenced(page.read_text("utf-8")) for entry in fence]


def table(names: list[str]) -> str:
    """Return a table of names, with the first sentence of each."""
    rows = [f"   {name}" for name in names]
    return "\n".join([".. autosummary::", "   :nosignatures:", "", *rows, ""])


def shown(entries: list[Entry]) -> list[str]:
    """Return the names of entries, of which a table shows the last part."""
    return [f"~{name}" for entry in entries for name in entry.names]


def is_list(page: str) -> bool:
    """Tell whether a page of the site is one of docs/api/, and not one that is made of them."""
    return page.startswith(f"{FOLDER}/") and not page.startswith(f"{FOLDER}/minibert.")


def put_pages(app: Any, config: Any) -> None:
    """Write the page of each entry where Sphinx looks for it, and remove those of entries that are gone."""
    folder = Path(app.srcdir) / FOLDER
    pages = {folder / f"{entry.names[0]}.rst": entry.text() for entry in listed(folder)}
    for path in set(folder.glob("minibert.*.rst")) - set(pages):
        path.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text("utf-8") != text:  # what stays as it is, is not built anew
            path.write_text(text, "utf-8")


def list_names(app: Any, page: str, content: list[str]) -> None:
    """Put tables in the place of directives, and the pages of their names below the list in the sidebar."""
    if not is_list(page):
        return
    fences = fenced(content[0])
    tables = iter([table(shown(fence)) for fence in fences])
    text = FENCE.sub(lambda fence: f"```{{eval-rst}}\n{next(tables)}```\n", content[0])
    if pages := [entry.names[0] for fence in fences for entry in fence]:
        text += "\n".join(["\n```{toctree}", ":hidden:", *pages, "```", ""])
    if MARK in text:
        names = shown(listed(Path(app.srcdir) / FOLDER))
        in_order = sorted(names, key=lambda name: (short(name).lower(), name))
        text = text.replace(MARK, f"```{{eval-rst}}\n{table(in_order)}```")
    content[0] = text


def keep_addresses(app: Any, doctree: nodes.document, page: str) -> None:
    """Let addresses such as api/models.html#minibert.Bert, where descriptions stood before, lead to rows."""
    if not is_list(page):
        return
    for row in doctree.findall(nodes.row):
        for reference in row.findall(nodes.reference):
            _, _, name = reference.get("refuri", "").partition("#minibert.")
            if name:
                row["ids"].append(f"minibert.{name}")


def methods(kind: type, options: Any) -> list[str]:
    """Return the methods and properties that the page of a class describes."""
    chosen = options.members if isinstance(options.members, list) else []
    bases = [base for base in kind.__mro__ if base is kind or options.inherited_members]
    own = [name for base in bases if base.__module__.startswith("minibert") for name in vars(base)]
    hidden = options.exclude_members or ()
    names = [name for name in dict.fromkeys(chosen or own) if name[0] != "_" and name not in hidden]
    return [name for name in names if is_described_method(inspect.getattr_static(kind, name))]


def is_described_method(value: Any) -> bool:
    """Tell whether a member of a class is a method or property with a docstring."""
    kinds = (property, cached_property, classmethod, staticmethod)
    return (inspect.isfunction(value) or isinstance(value, kinds)) and bool(inspect.getdoc(value))


def list_methods(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put a table of its methods below the description of a class."""
    if what == "class" and options.members:
        names = methods(obj, options)  # which autosummary looks for in this class first
        if len(names) > 1:
            lines += ["", ".. rubric:: Methods", "", *table(names).split("\n")]


def fold_parameters(app: Any, doctree: nodes.document) -> None:
    """Fold the parameters of a class that has many of them, with methods below."""
    for content in doctree.findall(addnodes.desc_content):
        if not any(isinstance(child, addnodes.desc) for child in content):
            continue  # a function, or a class without methods
        for fields in content:
            if not isinstance(fields, nodes.field_list):
                continue
            for name, body in fields:
                count = sum(len(child) for child in body if isinstance(child, nodes.definition_list))
                if name.astext() == "Parameters" and count > MOST_PARAMETERS:
                    summary = f"<details><summary>Show all {count}</summary>"
                    body.insert(0, nodes.raw("", summary, format="html"))
                    body.append(nodes.raw("", "</details>", format="html"))
