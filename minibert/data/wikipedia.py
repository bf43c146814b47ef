"""Read the text passages of Wikipedia, "ignoring lists, tables, and headers" (section 3.1 of the paper).

A dump is read by expat in pieces, in memory for one page; mwparserfromhell finds the markup of its articles.
"""

import re
from collections.abc import Callable, Iterator
from html import unescape
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.parsers import expat

from minibert.base.errors import InputError, warn
from minibert.base.reading import LONGEST_LINE, byte_pieces
from minibert.base.terminal import counted

LONGEST = 1 << 22  # characters of an article: twice what Wikipedia allows in bytes
# For each bracket that is never closed, mwparserfromhell reads to the end; an article has up to three.
MOST_WORK = 10_000_000  # unclosed brackets times characters; takes about a second
BREAKS = frozenset("table h1 h2 h3 h4 h5 h6".split())  # these tags are dropped, too, and end a paragraph
DROPPED = BREAKS | frozenset(
    "ref references math chem ce gallery timeline score syntaxhighlight source pre ul ol dl imagemap "
    "hiero graph mapframe maplink templatestyles templatedata section inputbox categorytree style".split()
)
LIST = "\0"  # marks a line that belongs to a list, or is indented
_BRACKET = re.compile(r"</?(?:br|hr|li|wbr|d[dt]|t[rdh])\b[^<>]*>|[{}\[\]]|<!--|-->|</?[a-z]|/>", re.I)
_OPENS = {"}": "{", "]": "[", "--": "<", "</": "<", "/>": "<"}
_NO_ARTICLE = re.compile(
    r"\A\s*#redirect|\{\{(?:dab\b|hndis|geodis|begriffskl|homonym|desambig|[^{}|]*disambig(?!\w* needed))",
    re.I,
)
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+){0,2}|simple")  # the prefix of a link to another Wikipedia
_LEFT = re.compile(r"\{[{|]|[|}]\}|\[\[|\]\]")  # markup that is broken
_STYLE = re.compile(r"''+|__[A-Z]+__|\([\s,;]*\)|(?<=\()[\s,;]+")  # and leftovers of templates in parentheses


def articles(file: Path, progress: Callable[[int], None] | None = None, warns: bool = False) -> Iterator[str]:
    """Yield the passages of each article, one per line; with `warns`, warn of articles that can't be parsed.

    Redirects, disambiguations and pages that are not in namespace 0 are none.

    Parameters
    ----------
    file : Path
        A dump in XML, which may be compressed.
    progress : callable, optional
        Hears how many bytes of the file on the disk have been read.
    warns : bool, default False
        Whether to warn.

    Yields
    ------
    str
        The passages of an article; "" where it has none.

    Raises
    ------
    InputError
        When mwparserfromhell is not installed, or the file can't be read or is not a dump.
    """
    try:
        from mwparserfromhell import parse
    except ImportError as error:
        message = f"{file} needs mwparserfromhell to be read; pip install mwparserfromhell."
        raise InputError(message) from error
    hidden = {"file", "image", "category"}  # a link with one of these before its colon
    broken = 0
    first = ""  # the first article that can't be parsed
    for page in _pages(file, hidden, progress):
        if not _is_article(page):
            continue
        text = page.get("text", "")
        try:
            if len(text) > LONGEST or _unclosed(text) * len(text) > MOST_WORK:
                raise ValueError("too long, or too many brackets that nothing closes")
            yield "\n".join(passages(parse(text, skip_style_tags=True), hidden))
        except Exception as error:  # a parser may raise anything for one article among millions
            broken += 1
            first = first or f"{page.get('title', '')!r} ({error or type(error).__name__})"
    if broken and warns:
        warn(f"{file}: left out {counted(broken, 'article')} that could not be parsed, first {first}.")


def _is_article(page: dict[str, str]) -> bool:
    """Return whether a page is an article of wikitext in namespace 0, not a redirect or disambiguation."""
    if page.get("ns", "0") != "0" or page.get("model", "wikitext") != "wikitext":
        return False
    if "redirect" in page or "(disambiguation)" in page.get("title", ""):
        return False
    return not _NO_ARTICLE.search(page.get("text", ""))


def _pages(file: Path, hidden: set[str], progress: Any) -> Iterator[dict[str, str]]:
    """Yield each page; add to `hidden` the names of the namespaces of files and categories."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.buffer_size = 1 << 14
    page: dict[str, str] = {}
    inside: list[str] = []
    parts: list[str] = []
    done: list[dict[str, str]] = []

    def refuse(*_: Any) -> None:
        raise InputError(f"{file} is XML, but no dump of a Wikipedia; give that, or plain text.")

    def start(name: str, attributes: dict[str, str]) -> None:
        if name == "namespace" and attributes.get("key") in ("6", "14"):  # files and categories
            name = "hidden"
        inside.append(name)
        parts.clear()
        if inside[0] != "mediawiki" or len(inside) > 16:
            refuse()

    def text(data: str) -> None:
        if len(parts) <= LONGEST >> 12:  # of 8 to 16 KiB each
            parts.append(data)

    def end(_: str) -> None:
        name = inside.pop()
        if name == "hidden":
            hidden.add("".join(parts).lower())
        elif name == "page":
            done.append(page.copy())
            page.clear()
        elif name in ("title", "ns", "redirect", "model", "text"):
            page[name] = "".join(parts)

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = refuse  # which defines entities
    given = 0
    for data in byte_pieces(file, progress=progress):
        try:
            parser.Parse(data, not data)
        except expat.ExpatError as error:
            raise InputError(f"{file} is damaged or no XML: {error}; fetch it again.") from error
        given += len(data)
        if given - parser.CurrentByteIndex > LONGEST_LINE:  # of one tag, which expat keeps whole
            refuse()
        yield from done
        done.clear()


def _unclosed(text: str) -> int:
    """Count brackets and tags without their counterpart."""
    waiting = [""]  # open brackets; "" at the bottom, so that there always is a last one
    lost = 0  # closing brackets without an opening one
    for bracket in _BRACKET.findall(text):
        if bracket[0] == "<" and bracket[-1] == ">":  # a complete <br>, which needs no end tag
            continue
        opens = _OPENS.get(bracket[:2])
        if opens is None:
            waiting.append(bracket[0])
        elif waiting[-1] == opens:
            waiting.pop()
        else:
            lost += 1
    return lost + len(waiting) - 1


def passages(code: Any, hidden: set[str]) -> list[str]:
    """Return the paragraphs of a page of wikitext.

    Parameters
    ----------
    code : mwparserfromhell.wikicode.Wikicode
        As mwparserfromhell parsed the page.
    hidden : set of str
        What files and categories are called, in lower case: links to them are not text.

    Returns
    -------
    list of str
        Those that have a letter, and no markup that is broken.
    """
    lines = _flat(code, hidden).split("\n")
    texts = []
    for is_text, group in groupby(lines, lambda line: bool(line.strip()) and LIST not in line):
        if not is_text:
            continue
        paragraph = unescape(" ".join(group))
        paragraph = _STYLE.sub("", paragraph)
        if any(map(str.isalpha, paragraph)) and not _LEFT.search(paragraph):
            texts.append(" ".join(paragraph.split()))
    return texts


def _flat(code: Any, hidden: set[str]) -> str:
    """Return the running text that a reader of the page sees."""
    if not code:
        return ""
    return "".join(_seen(node, type(node).__name__, hidden) for node in code.nodes)


def _seen(node: Any, kind: str, hidden: set[str]) -> str:
    if kind in ("Text", "HTMLEntity"):
        return str(node)
    if kind == "ExternalLink":
        return _flat(node.title, hidden)
    if kind == "Wikilink":
        place, colon, _ = str(node.title).strip().partition(":")
        if colon and (place.strip().lower() in hidden or _LANGUAGE.fullmatch(place)):
            return ""
        return _flat(node.text or node.title, hidden).removeprefix(":")
    if kind == "Heading":
        return "\n\n"
    if kind != "Tag":  # a template, its argument, or a comment
        return ""
    name = str(node.tag).strip().lower()
    if name in DROPPED:
        return "\n\n" if name in BREAKS else ""
    if node.wiki_markup and node.wiki_markup[0] in "*#:;":
        return LIST
    if name in ("li", "dt", "dd"):  # one that nothing closes takes the rest of its line
        return f"\n{LIST}" if node.self_closing else f"\n{LIST}\n"
    if name == "br":
        return " "
    return _flat(node.contents, hidden)
