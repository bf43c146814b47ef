"""Pages read strictly."""

from html.parser import HTMLParser

from paths import PACKAGE

VOID = {"img", "input", "meta", "path"}  # without an end tag here
SCRIPTS = PACKAGE / "reports" / "templates"
POINTER = (SCRIPTS / "pointer.js").read_text("utf-8").strip()
AXES = (SCRIPTS / "axes.js").read_text("utf-8").strip()


class Page(HTMLParser):
    """A document read strictly: every tag is closed where it was opened.

    Attributes
    ----------
    tags : (name, attributes) of all, in order.
    rows : the cells of every row of every table, as text.
    texts : of every element that is no container of others, by its tag.
    """

    def __init__(self, document):
        super().__init__(convert_charrefs=True)
        self.tags, self.rows, self.texts, self._open = [], [], [], []
        self.feed(document)
        self.close()
        assert not self._open, f"{self._open} is never closed"

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID, f"<{tag}/> is no end to a browser"
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open and self._open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, data):
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data
        if data.strip():
            self.texts.append((self._open[-1] if self._open else "", data.strip()))

    def handle_comment(self, data):
        raise AssertionError("a comment")

    def of(self, tag, **attributes):
        """The attributes of all such elements."""
        return [had for name, had in self.tags if name == tag and attributes.items() <= had.items()]

    def said(self, tag):
        return [text for name, text in self.texts if name == tag]


def require_own_script(found, *more):
    """The script that lets pictures answer to a pointer, with those of the page, and no other."""
    assert found.of("script") == [{}]
    [script] = found.said("script")
    assert script.split() == " ".join([POINTER, *more]).split()


def require_self_contained(document, *scripts):
    """No script but that of pictures and those of the page, no network, light and dark."""
    found = Page(document)
    require_own_script(found, *scripts)
    assert document.startswith("<!DOCTYPE html>\n")
    assert not {"link", "img", "iframe", "object"} & {name for name, _ in found.tags}
    for _, attributes in found.tags:
        assert not {"src", "href", "srcset", "xlink:href"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
    assert "http:" not in document and "https:" not in document
    assert "url(" not in document and "@import" not in document
    assert "prefers-color-scheme: dark" in document
