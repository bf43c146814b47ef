"""Write how long chapters and exercises take into two pages of docs: `python tests/support/teaching.py`."""

import re
from pathlib import Path

from minibert.course.notes import overview, tables

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "teaching.md"
COURSE = DOCS / "course.md"
MARKED = re.compile(r"(?<=<!-- times: begin -->\n).*?(?=<!-- times: end -->)", re.S)
CHAPTERS = re.compile(r"(<!-- chapters ([\d ]+): begin -->\n).*?(?=<!-- chapters: end -->)", re.S)


def renewed(page: str) -> str:
    """The page with its tables as they are now."""
    page = MARKED.sub(lambda _: f"{tables()}\n", page)
    return CHAPTERS.sub(lambda found: f"{found[1]}{overview(found[2].split())}\n", page)


if __name__ == "__main__":
    for path in (PAGE, COURSE):
        path.write_text(renewed(path.read_text("utf-8")), "utf-8")
