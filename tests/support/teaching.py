"""Write how long chapters and exercises take into docs/teaching.md: `python tests/support/teaching.py`."""

import re
from pathlib import Path

from minibert.course.notes import tables

PAGE = Path(__file__).parents[2] / "docs" / "teaching.md"
MARKED = re.compile(r"(?<=<!-- times: begin -->\n).*?(?=<!-- times: end -->)", re.S)


def renewed(page: str) -> str:
    """The page with the table as it is now."""
    return MARKED.sub(lambda _: f"{tables()}\n", page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")
