"""Print the chapters of the built site as one PDF, by Chromium: docs/_build/html/minibert-course.pdf.

The contents have page numbers, which are known only after printing: it is printed twice.
"""

import argparse
import html
import logging
import re
import sys
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from pypdf import PdfReader

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import book  # noqa: E402

import minibert  # noqa: E402
from minibert.course.lesson import OPEN  # noqa: E402

SITE = HERE / "_build" / "html"
FOLDED = "tag_hide-input"  # the class of a cell whose code is folded
KEPT = "tag_answer"  # of one whose code is printed all the same
WHOLE = 16  # lines of code or output that are not divided between two pages, at most
TASK, TASK_WHOLE = "# Exercise ", 45  # how a stub and an answer begin, and lines that are not divided there
FITS, FITS_SMALL = 108, 120  # characters of a line of code, and of one that is printed smaller
LAST_FRAME = " This is its last frame; on the site and in the notebook it moves."
FRAME = "<p class='frame'>A page to try things on stands here on the site and in the notebook.</p>"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>BERT from scratch: the course</title>
<link rel="stylesheet" href="_static/pygments.css">
<link rel="stylesheet" href="_static/book.css">
</head>
<body data-theme="light">
<section class="title">
<h1>BERT from scratch</h1>
<p>A course in {count} chapters{solved}</p>
<p class="version">minibert {version}</p>
</section>
<nav>
<h2>Contents</h2>
<ol>
{contents}
</ol>
<p>Hints and answers stand below each exercise: cover the page. The code of long pictures, and that which
judges answers, is left out here; the notebooks have it.</p>
</nav>
{chapters}
</body>
</html>
"""
FOOTER = """<div style="width:100%;font-size:8px;text-align:center"><span class="pageNumber"></span></div>"""


def chapter(number: str, text: str) -> Any:
    """Return the article of a chapter's page, fit for paper and for one page with others.

    Parameters
    ----------
    number : str
        Number of the chapter, such as "05", which all names of places get.
    text : str
        HTML of the page.

    Returns
    -------
    bs4.Tag
        Links lead to places in the same book, or out of it; other pages of the site are not linked.
    """
    article = BeautifulSoup(text, "html.parser").find("article")
    for each in article.select("a.headerlink, button, script, .admonition.note"):
        each.decompose()
    for each in article.find_all(id=True):
        each["id"] = f"chapter-{number}-{each['id']}"
    article["id"] = f"chapter-{number}"
    for link in article.find_all("a", href=True):
        led = place(number, link["href"])
        if led:
            link["href"] = led
        else:
            del link["href"]
    for image in article.find_all("img"):
        image["src"] = image["src"].removeprefix("../")
        image.attrs.pop("loading", None)
    for frame in article.find_all("iframe"):
        frame.replace_with(BeautifulSoup(FRAME, "html.parser"))
    for caption in article.select(".minibert-animation .caption"):
        caption.append(LAST_FRAME)
    for block in article.find_all("pre"):
        block["class"] = classes_of(block.get_text().rstrip("\n").split("\n"))
    for details in article.find_all("details"):
        cell = details.find_parent(class_=FOLDED)
        if cell and KEPT not in cell["class"]:
            details.decompose()
            continue
        details["open"] = ""
        if cell:
            details.find("summary").string = "The answer"
    return article


def classes_of(lines: list[str]) -> list[str]:
    """Return how a block of code or output is laid out, as classes of book.css.

    Parameters
    ----------
    lines : list of str

    Returns
    -------
    list of str
        With "whole" if it is not divided between pages, with "wide" if it is printed smaller.
    """
    classes = []
    if len(lines) <= (TASK_WHOLE if lines[0].startswith(TASK) else WHOLE):
        classes.append("whole")
    if FITS < max(map(len, lines)) <= FITS_SMALL:
        classes.append("wide")
    return classes


def place(number: str, link: str) -> str:
    """Return where a link leads to in the book; "" if nowhere.

    Parameters
    ----------
    number : str
        Number of the chapter with the link.
    link : str
        As the site has it.

    Returns
    -------
    str
    """
    if link.startswith(("http:", "https:")):
        return link
    if link.startswith("#"):
        return f"#chapter-{number}-{link[1:]}"
    found = re.fullmatch(r"(\d\d)_\w+\.html(?:#(.+))?", link)
    if not found:
        return ""
    return f"#chapter-{found[1]}" + (f"-{found[2]}" if found[2] else "")


def whole(articles: dict[str, Any], pages: dict[str, int]) -> str:
    """Return the book as one page of HTML.

    Parameters
    ----------
    articles : dict of bs4.Tag
        Chapters by number.
    pages : dict of int
        The page on which each begins, by number; one that is missing is printed as 0.

    Returns
    -------
    str
    """
    contents = []
    for number, article in articles.items():
        title = html.escape(" ".join(article.find("h1").get_text().split()))
        entry = f'<a href="#chapter-{number}">{title}</a><span>{pages.get(number, 0)}</span>'
        contents.append(f"<li>{entry}</li>")
    is_open = any(OPEN in article.get_text() for article in articles.values())
    return PAGE.format(
        count=len(articles),
        solved="" if is_open else ", with every exercise solved",
        version=minibert.__version__,
        contents="\n".join(contents),
        chapters="\n".join(map(str, articles.values())),
    )


def begins(pdf: Path, numbers: list[str]) -> dict[str, int]:
    """Return on which page of a PDF each chapter begins, counted from 1.

    Parameters
    ----------
    pdf : Path
    numbers : list of str
        Numbers of the chapters.

    Returns
    -------
    dict of int
    """
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # its warnings are of no use here
    reader = PdfReader(pdf)
    places = reader.named_destinations
    found = {number: places.get(f"/chapter-{number}") or places[f"chapter-{number}"] for number in numbers}
    return {number: reader.get_destination_page_number(place) + 1 for number, place in found.items()}


def print_book(site: Path = SITE) -> Path:
    """Print the chapters that a site has.

    Parameters
    ----------
    site : Path
        The folder of the built site.

    Returns
    -------
    Path
        The PDF, in the same folder.

    Raises
    ------
    FileNotFoundError
        When there is no Chromium.
    """
    from playwright.sync_api import sync_playwright

    program = book.printer()
    if not program:
        raise FileNotFoundError(book.NO_PRINTER)
    pages = sorted((site / "notebooks").glob("[0-9][0-9]_*.html"))
    articles = {path.name[:2]: chapter(path.name[:2], path.read_text("utf-8")) for path in pages}
    page, pdf = site / "book.html", site / book.PDF
    numbers: dict[str, int] = {}
    with sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        for _ in range(2):
            page.write_text(whole(articles, numbers), "utf-8")
            tab = browser.new_page()
            tab.set_default_timeout(0)  # a whole book takes its time on a slow machine
            tab.goto(page.as_uri())
            tab.pdf(
                path=pdf,
                prefer_css_page_size=True,
                print_background=True,
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=FOOTER,
                outline=True,
                tagged=True,
            )
            tab.close()
            numbers = begins(pdf, list(articles))
        browser.close()
    page.unlink()
    return pdf


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the course, as the site has it, as one PDF.")
    parser.add_argument("--site", type=Path, default=SITE, help="folder of the built site (docs/_build/html)")
    given = parser.parse_args()
    try:
        made = print_book(given.site.resolve())
    except FileNotFoundError as missing:
        sys.exit(f"minibert: {missing}")
    print(f"minibert: printed {len(PdfReader(made).pages)} pages: {made}")
