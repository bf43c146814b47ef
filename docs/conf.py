"""The site that `make docs` builds, offline: Markdown, API pages, and the course.

With the tag `solved` the chapters are those that `make book` has run with the official answers; without it,
as in `make site`, they are the notebooks with their stored outputs, in which the exercises are open.
"""

import hashlib
import html
import json
import re
import sys
from binascii import a2b_base64
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml

import minibert

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "support")]

import book  # noqa: E402
import picture  # noqa: E402
import reference  # noqa: E402

project = "minibert"
copyright = "the authors of minibert, Apache-2.0"
version = release = minibert.__version__
extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_copybutton"]
exclude_patterns = ["_build", "examples"]

autodoc_preserve_defaults = True  # as they are written, not a path of this machine
nb_execution_mode = "off"  # `make notebooks` runs them
nb_render_markdown_format = "myst"  # what `course.say` says has tables and formulas
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc's sections say them
toc_object_entries_show_parents = "hide"  # "encode", not "Bert.encode", in the contents of a page
numpydoc_show_class_members = False
default_role = "code"

html_theme = "furo"
html_title = "minibert"
html_static_path = ["_static"]
html_favicon = html_logo = "_static/mark.svg"
html_css_files = ["minibert.css"]
html_math_renderer = "mathml"
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_theme_options = {"navigation_with_keys": True}
highlight_language = "text"  # of a fence that names no language
# Every colour of code has a contrast of at least 4.5 to its background (WCAG 2, AA).
pygments_style, pygments_dark_style = "a11y-light", "a11y-dark"


BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"  # with what is between them, up to three deep
# What LaTeX, Jupyter and GitHub know and docutils does not, and what it knows instead.
SPELLINGS = [
    (r"\\dots(?![a-zA-Z])", r"\\ldots"),
    (r"\\([bB]igg?)(?![a-zA-Z])", r"\\\1l.\\\1r"),
    (r"(\\[dt]?frac)(\d)(\d)", r"\1{\2}{\3}"),
    (
        rf"(\\underbrace{BRACES})_({BRACES})",
        r"\\underset\2{\1}",
    ),  # the name is below the brace, not beside it
]
# Where "x log x" wants a space that docutils does not write: before the name; behind it, but for a bracket.
AROUND_FUNCTIONS = [
    r"(</m(?:i|n|sub|sup|subsup|frac)>|>\)</mo>)(?=\s*<mi[^>]*>[^<]*</mi>\s*<mo>&ApplyFunction;)",
    r"(<mo>&ApplyFunction;</mo>)(?!\s*(?:<mrow>\s*)?<mo[^>]*>[(\[])",
]

# A letter with an accent and an index: docutils sets the index below the letter.
ACCENTED = re.compile(
    r"<munderover>\s*(<mi>[^<]*</mi>)\s*(<m[in]>[^<]*</m[in]>)\s*(<mo[^>]*>[^<]</mo>)\s*</munderover>"
)

EXPLORER = "_static/english.html"  # from the landing page
DESCRIPTION = 160  # characters, of which search engines show no more
QUESTION = "The question. "  # how chapters begin
FIRST_SENTENCE = "She was born in New [MASK] City."  # the first of those that the landing page names


def formula(writer: Any, node: nodes.Element) -> None:
    """Write MathML, which browsers set by themselves."""
    text = node.astext()
    for known, instead in SPELLINGS:
        text = re.sub(known, instead, text)
    try:
        written = tex2mathml(text, as_block=isinstance(node, nodes.math_block))
    except MathError as wrong:
        raise RuntimeError(f"{node.source}: {wrong} It stands in {text!r}.") from wrong
    written = ACCENTED.sub(r'<msub><mover accent="true">\1\3</mover>\2</msub>', written)
    for place in AROUND_FUNCTIONS:
        written = re.sub(place, r'\1<mspace width="0.1667em"></mspace>', written)
    written = written.replace("<mo maxsize=", '<mo form="prefix" stretchy="true" maxsize=')  # "|", too, grows
    written = re.sub(r"<mo>([⟨⟩‖∥])</mo>", r'<mo stretchy="false">\1</mo>', written)
    written = re.sub(r"<mo([^>]*)>([|‖∥])</mo>", r'<mo\1 lspace="0" rspace="0">\2</mo>', written)  # as in TeX
    behind = node.parent[node.parent.index(node) + 1 :]
    if isinstance(node, nodes.math_block):
        written = f'<div class="formula">{written}</div>'  # which scrolls by itself
    elif re.match(r"[^\s\w]", "".join(each.astext() for each in behind[:1])):
        written += "&#8288;"  # no line begins with the full stop behind a formula
    writer.body.append(written)
    raise nodes.SkipNode


def find_notebooks_here(app: Any, page: str, content: list[str]) -> None:
    """Lead links to the notebooks, which are right in the repository, to their copies."""
    content[0] = re.sub(r"\]\(\.\./notebooks/(\w+\.ipynb)\)", r"](notebooks/\1)", content[0])


def find_pages_of_the_repository(app: Any, page: str, content: list[str]) -> None:
    """Let links to Markdown outside of docs/, such as README.md, lead to the file: it is no page here."""
    folder = (HERE / page).parent

    def lead(found: re.Match[str]) -> str:
        path = (folder / found[1]).resolve()
        inside = HERE.resolve() in path.parents
        return found[0] if inside or not path.is_file() else f"](path:{found[1]})"

    content[0] = re.sub(r"\]\((?!\w+:)([^()\s#]+\.md)(?:#[\w-]*)?\)", lead, content[0])


COMMAND = re.compile(
    r"(?:minibert|make|pip|python3?|hf|mkdir|\.)\s|[#\s]|$"
)  # how a line of a shell's begins


def colour_commands(app: Any, doctree: nodes.document) -> None:
    """Highlight blocks of commands as a shell's, so that their comments stand back."""
    for node in doctree.findall(nodes.literal_block):
        lines = node.astext().split("\n")
        if (
            node.get("language") == highlight_language
            and all(map(COMMAND.match, lines))
            and lines[0][:1].strip()
        ):
            node["language"] = "bash"


def describe_pictures(app: Any, doctree: nodes.document) -> None:
    """Give pictures of notebooks the alternative text that their outputs carry; myst_nb leaves it behind."""
    source = Path(app.env.doc2path(app.env.docname))
    if source.suffix != ".ipynb":
        return
    texts = {}
    for cell in json.loads(source.read_text("utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            if picture := output.get("data", {}).get("image/png"):
                name = hashlib.sha256(a2b_base64("".join(picture))).hexdigest()  # as myst_nb names its file
                texts[name] = output["metadata"].get("image/png", {}).get("alt")
    for node in doctree.findall(nodes.image):
        if text := texts.get(Path(node["uri"]).stem):
            node["alt"] = text
        elif not node.get("alt"):
            raise ValueError(f"{source.name} has a picture without alternative text; show it by course.show.")


def describe_page(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give a page the description that search engines show: the question of a chapter, or its first words."""
    if doctree is None:
        return
    found = doctree.findall(
        lambda node: isinstance(node, nodes.paragraph) and node.parent.tagname == "section"
    )
    paragraphs = [" ".join(node.astext().split()) for node in found]
    questions = [text.removeprefix(QUESTION) for text in paragraphs if text.startswith(QUESTION)]
    text = next(iter(questions + paragraphs), "")
    if len(text) > DESCRIPTION:
        text = f"{text[:DESCRIPTION].rpartition(' ')[0]} …"
    context["metatags"] += f'<meta name="description" content="{html.escape(text)}">\n'


def give_captions_a_level(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Say which level the headings of the sidebar have, which the theme calls headings without one."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def say_lines(app: Any, page: str, content: list[str]) -> None:
    """Add to the page on equations the line in which the code of each stands today."""
    if page == "equations":
        import equations  # in tests/support

        content[0] = equations.page(lines=True)


def list_promises(app: Any, page: str, content: list[str]) -> None:
    """Put into the page on reliability what docs/promises.toml has, as tables."""
    if page == "reliability":
        import page_of_promises  # in tests/support

        promises, _ = page_of_promises.read()
        content[0] = content[0].replace(page_of_promises.MARK, page_of_promises.table(promises))


def describe_below(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put a description behind "name : " on the line below, where numpydoc looks for it.

    Where there is one below already, what stands behind the name is its type.
    """
    section, found = "", []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if following.strip() and set(following.strip()) == {"-"}:
            section = line.strip()
        entry = re.match(r"(\w[\w, *]*) : (.*)", line)
        is_described = following.startswith(" ")
        if entry and not is_described and section in ("Parameters", "Attributes", "Returns", "Yields"):
            found += [entry[1], f"    {entry[2]}"]
        else:
            found.append(line)
    lines[:] = found


def require_nothing_fetched(app: Any, exception: Exception | None) -> None:
    """Raise where a page loads a script, a style or a picture from elsewhere."""
    if exception or app.builder.format != "html":
        return
    fetched = re.compile(r'<(?:script|img|iframe|source)[^>]*\bsrc="https?:|<link[^>]*\bhref="https?:')
    pages = [page for page in Path(app.outdir).rglob("*.html") if fetched.search(page.read_text("utf-8"))]
    if pages:
        raise RuntimeError(
            f"Pages that load something from elsewhere: {', '.join(page.name for page in pages)}."
        )


def put_explorer(app: Any, exception: Exception | None) -> None:
    """Write the page that the landing page embeds: the explorer of the model in the package."""
    if exception or app.builder.format != "html":
        return
    if f'src="{EXPLORER}"' in (Path(app.outdir) / "index.html").read_text("utf-8"):
        minibert.show("english", text=FIRST_SENTENCE).save(Path(app.outdir) / EXPLORER)


def put_picture(app: Any, page: str, content: list[str]) -> None:
    """Draw what the model in the package makes of a sentence, where the landing page has a mark for it."""
    if picture.MARK in content[0]:
        drawn = picture.figure(picture.read(minibert.load("english"), FIRST_SENTENCE))
        content[0] = content[0].replace(picture.MARK, f"```{{raw}} html\n{drawn}\n```")


def put_notebooks(app: Any, config: Any) -> None:
    """Put the notebooks where Sphinx looks: with the tag `solved`, chapters of the book for the open ones."""
    folder = Path(app.srcdir) / "notebooks"
    folder.mkdir(exist_ok=True)
    for notebook in (HERE.parent / "notebooks").glob("*.ipynb"):
        text = book.page(notebook.name, "solved" in app.tags, Path(config.book_folder))
        (folder / notebook.name).write_text(text, "utf-8")


def setup(app: Any) -> None:
    """Register what is done to the notebooks, to links, to pictures, to code and to formulas."""
    app.add_config_value("book_folder", str(book.BOOK), "env")
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("config-inited", put_notebooks)
    app.connect("config-inited", reference.put_pages)
    app.connect("source-read", find_notebooks_here)
    app.connect("source-read", find_pages_of_the_repository)
    app.connect("source-read", say_lines)
    app.connect("source-read", list_promises)
    app.connect("source-read", reference.list_names)
    app.connect("source-read", put_picture)
    app.connect("doctree-read", describe_pictures)
    app.connect("html-page-context", describe_page)
    app.connect("html-page-context", give_captions_a_level, priority=900)  # after the theme
    app.connect("doctree-read", colour_commands)
    app.connect("autodoc-process-docstring", describe_below, priority=400)  # numpydoc's is 500
    app.connect("autodoc-process-docstring", reference.list_methods, priority=600)
    app.connect("doctree-read", reference.fold_parameters)
    app.connect("doctree-resolved", reference.keep_addresses)
    app.connect("build-finished", put_explorer)
    app.connect("build-finished", require_nothing_fetched)
