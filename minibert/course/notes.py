"""Write what a teacher needs to prepare: the time of each chapter, the common mistakes, and a glossary."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from minibert.base.errors import InputError
from minibert.base.files import read_bytes
from minibert.course.exercises import Exercise, cells, exercises, notebook_sources

# Minutes that an exercise takes, estimated by one person and not measured with a class. USUAL is for those
# that MINUTES does not list.
USUAL = {"easy": 15, "core": 30, "hard": 60}
MINUTES = {
    "01.2": 10, "01.3": 25, "01.4": 25,
    "02.2": 10, "02.3": 35, "02.4": 20, "02.5": 45,
    "03.1": 10, "03.2": 30, "03.4": 45, "03.5": 25,
    "04.1": 20, "04.2": 25, "04.4": 75, "04.5": 20,
    "05.2": 40, "05.4": 20, "05.6": 15, "05.7": 30, "05.9": 20, "05.11": 60,
    "06.2": 20, "06.3": 10, "06.6": 20, "06.7": 25, "06.8": 40, "06.9": 20, "06.10": 20, "06.12": 25,
    "06.13": 90, "06.14": 40,
    "07.1": 20, "07.2": 40, "07.3": 75, "07.4": 75, "07.6": 35,
    "08.1": 10, "08.4": 45, "08.5": 20,
    "09.3": 10, "09.4": 10, "09.5": 45,
    "10.2": 75, "10.4": 20,
    "12.2": 45, "12.3": 25, "12.4": 10, "12.6": 35,
}  # fmt: skip
LONGEST = 3  # exercises of a chapter whose functions stand for it in the overview
WORDS_A_MINUTE = 120  # reading speed for prose with formulas and pictures, including the time to run cells
_HEADING = re.compile(r"^# #+ Exercise (\d\d\.\d+) \((\w+)\): (.+)$", re.M)
_WORDS = re.compile(r"^#+ Words$(.*?)(?=^#+ |\Z)", re.M | re.S)
_TERM = re.compile(r"^- \*\*(.+?)\*\*: (.+)$", re.M)
_DETAILS = re.compile(r"<details>.*?</details>", re.S)


class Task(NamedTuple):
    """What a teacher needs to know about an exercise to plan a lesson."""

    number: str
    title: str
    difficulty: str  # easy, core or hard
    minutes: int  # an estimate
    exercise: Exercise


class Plan(NamedTuple):
    """What a teacher needs to know about a chapter to plan a lesson."""

    number: str
    title: str
    reading: int  # minutes, an estimate
    tasks: tuple[Task, ...]
    name: str  # of the notebook, without its suffix

    @property
    def minutes(self) -> int:
        """Return how many minutes the chapter takes with all exercises."""
        return self.reading + sum(task.minutes for task in self.tasks)

    @property
    def main_functions(self) -> list[str]:
        """Return the functions of the longest exercises, in the order of the chapter."""
        longest = sorted(self.tasks, key=lambda task: -task.minutes)[:LONGEST]
        return [name for task in self.tasks if task in longest for name in task.exercise.functions]


class Term(NamedTuple):
    """A technical term, with the explanation that a chapter gives."""

    term: str
    meaning: str
    chapter: str


def terms(path: Path) -> list[Term]:
    """List the terms that a chapter explains at its end.

    Parameters
    ----------
    path : Path
        The notebook's source.

    Returns
    -------
    list of Term
        Terms that share an explanation are listed separately.
    """
    prose = "\n".join(text for is_code, text in cells(path) if not is_code)
    entries = [entry for section in _WORDS.findall(prose) for entry in _TERM.findall(section)]
    return [Term(term, meaning, path.name[:2]) for names, meaning in entries for term in names.split(", ")]


def plans(numbers: Iterable[str] = ()) -> list[Plan]:
    """Estimate how long chapters take.

    Parameters
    ----------
    numbers : iterable of str, default ()
        Numbers of chapters, such as "05"; empty: all chapters.

    Returns
    -------
    list of Plan

    Raises
    ------
    InputError
        When the course has no chapter of one of the numbers.
    """
    paths = notebook_sources()
    wanted = list(numbers) or list(paths)
    for number in wanted:
        if number not in paths:
            raise InputError(f"{number!r} is not a chapter of the course; choose from {', '.join(paths)}.")
    return [_plan(paths[number]) for number in wanted]


def _plan(path: Path) -> Plan:
    """Make the plan of a chapter from its source."""
    all_cells = cells(path)
    title = all_cells[0].text.partition("\n")[0].lstrip("# ").partition("· ")[2]
    prose = "\n".join(text for is_code, text in all_cells if not is_code)
    words = len(_DETAILS.sub("", prose).split())
    source = read_bytes(path).decode("utf-8")
    headings = {number: (level, name) for number, level, name in _HEADING.findall(source)}
    tasks = []
    for exercise in exercises(path):
        number = exercise.number
        level, name = headings[number]
        minutes = MINUTES.get(number, USUAL[level])
        tasks.append(Task(number, name, level, minutes, exercise))
    reading = max(5, 5 * round(words / WORDS_A_MINUTE / 5))  # a multiple of five minutes
    return Plan(path.name[:2], title, reading, tuple(tasks), path.stem)


def instructors_notes(numbers: Iterable[str] = ()) -> str:
    """Write how long each exercise takes, and which mistakes people make in it.

    Parameters
    ----------
    numbers : iterable of str, default ()
        As for `plans`.

    Returns
    -------
    str
        Markdown.
    """
    lines = ["# Notes for instructors", ""]
    lines += ["Minutes are estimates. A check names these mistakes to whoever makes one of them.", ""]
    for plan in plans(numbers):
        lines += [f"## {plan.number} {plan.title}", ""]
        for task in plan.tasks:
            asked = ", ".join(f"`{name}`" for name in task.exercise.functions)
            lines += [f"### {task.number} {task.title}", ""]
            lines += [f"{asked}; {task.difficulty}, about {task.minutes} minutes.", ""]
            for mistake in task.exercise.mistakes:
                change = f"`{mistake.written}` instead of `{mistake.instead_of}`"
                lines.append(f"- {mistake.sentence} ({change})")
            lines.append("")
        if not plan.tasks:
            lines += ["No exercises.", ""]
    return "\n".join(lines).rstrip("\n")


def glossary() -> str:
    """Write the terms of all chapters with their meanings, in alphabetical order.

    Returns
    -------
    str
        Markdown.
    """
    entries = [entry for path in notebook_sources().values() for entry in terms(path)]
    lines = ["# Glossary", ""]
    for entry in sorted(entries, key=lambda entry: (entry.term.lower(), entry.chapter)):
        lines.append(f"- **{entry.term}** ({entry.chapter}): {entry.meaning}")
    return "\n".join(lines)


def overview(numbers: Iterable[str]) -> str:
    """Write a table of docs/course.md: what one writes in some chapters, and how long that takes.

    Parameters
    ----------
    numbers : iterable of str
        As for `plans`.

    Returns
    -------
    str
        Markdown.
    """
    lines = ["| chapter | what you write, above all | exercises | minutes |", "|---|---|--:|--:|"]
    for plan in plans(numbers):
        link = f"[{plan.number} {plan.title}](../notebooks/{plan.name}.ipynb)"
        written = ", ".join(f"`{name}`" for name in plan.main_functions) or "nothing yet: look around"
        lines.append(f"| {link} | {written} | {len(plan.tasks)} | {plan.minutes} |")
    return "\n".join(lines)


def tables() -> str:
    """Write the tables of docs/teaching.md: how long each chapter and each exercise takes.

    Returns
    -------
    str
        Markdown.
    """
    chapters = plans()
    lines = [
        "| chapter | reading | easy | core | hard | minutes with all exercises |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for plan in chapters:
        counts = [sum(task.difficulty == level for task in plan.tasks) for level in USUAL]
        numbers = " | ".join(str(count or "") for count in counts)
        lines.append(f"| {plan.number} {plan.title} | {plan.reading} | {numbers} | {plan.minutes} |")
    hours = sum(plan.minutes for plan in chapters) / 60
    lines += ["", f"About {hours:.0f} hours in all.", ""]
    lines += ["<details>", "<summary>Exercise by exercise</summary>", ""]
    lines += ["| exercise | what it asks for | difficulty | minutes |", "|---|---|---|--:|"]
    for plan in chapters:
        for task in plan.tasks:
            lines.append(f"| {task.number} | {task.title} | {task.difficulty} | {task.minutes} |")
    return "\n".join([*lines, "", "</details>"])
