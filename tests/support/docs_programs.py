"""The programs of docs/programs.md: for the test that runs them, and for those that check their types."""

import re
from pathlib import Path

from paths import ROOT

FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def programs() -> dict[str, tuple[str, str]]:
    """The program that each heading of the lowest level has, the first one "", and what it prints."""
    page = (ROOT / "docs" / "programs.md").read_text("utf-8")
    found = {}
    for section in re.split(r"^### ", "\n" + page, flags=re.MULTILINE):
        (language, program), (output_language, output) = FENCE.findall(section)
        assert (language, output_language) == ("python", "text")
        found[section.partition("\n")[0]] = program, output
    return found


def write_programs(folder: Path) -> list[str]:
    """Write each program to a file of its own, and return the names of the files in order."""
    names = []
    for number, (program, _) in enumerate(programs().values()):
        names.append(f"program_{number:02}.py")
        (folder / names[-1]).write_text(program, "utf-8")
    return names
