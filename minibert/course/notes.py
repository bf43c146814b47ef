"""What a teacher prepares with: how long chapters take, the usual mistakes of each exercise, a glossary."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from minibert.base.errors import InputError
from minibert.base.files import read_bytes
from minibert.course.exercises import Exercise, cells, exercises, notebook_folder

# Minutes of each exercise: estimates of one person, measured with no class. The others are as hard ones go.
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
WORDS_A_MINUTE = 120  # of prose with formulas and pictures, the cells run and looked at
_HEADING = re.compile(r"^# #+ Exercise (\d\d\.\d+) \((\w+)\): (.+)$", re.M)
_WORDS = re.compile(r"^#+ Words$(.*?)(?=^#+ |\Z)", re.M | re.S)
_TERM = re.compile(r"^- \*\*(.+?)\*\*: (.+)$", re.M)
_DETAILS = re.compile(r"<details>.*?</details>", re.S)


class Task(NamedTuple):
    """An exercise as a teacher plans with it."""

    number: str
    title: str
    difficulty: str  # easy, core or hard
    minutes: int  # an estimate
    exercise: Exercise


class Plan(NamedTuple):
    """A chapter as a teacher plans with it."""

    number: str
    title: str
    reading: int  # minutes, an estimate
    tasks: tuple[Task, ...]

    @property
    def minutes(self) -> int:
        """Return how long it takes with all exercises."""
        return self.reading + sum(one.minutes for one in self.tasks)


class Term(NamedTuple):
    """A word of the course, as the chapter that explains it does."""

    term: str
    meaning: str
    chapter: str


def terms(path: Path) -> list[Term]:
    """List the words that a chapter explains at its end.

    Parameters
    ----------
    path : Path
        Of its source.

    Returns
    -------
    list of Term
        Of several words with one explanation, each.
    """
    text = "\n".join(text for is_code, text in cells(path) if not is_code)
    lines = [found for part in _WORDS.findall(text) for found in _TERM.findall(part)]
    return [Term(term, meaning, path.name[:2]) for every, meaning in lines for term in every.split(", ")]


def plans(numbers: Iterable[str] = ()) -> list[Plan]:
    """Say how long chapters take.

    Parameters
    ----------
    numbers : iterable of str, default ()
        Of chapters, such as "05"; none: all.

    Returns
    -------
    list of Plan

    Raises
    ------
    InputError
        When the course has no chapter of such a number.
    """
    paths = {path.name[:2]: path for path in sorted(notebook_folder().glob("[0-9][0-9]_*.py"))}
    wanted = list(numbers) or list(paths)
    for number in wanted:
        if number not in paths:
            raise InputError(f"{number!r} is not a chapter of the course; choose from {', '.join(paths)}.")
    return [_plan(paths[number]) for number in wanted]


def _plan(path: Path) -> Plan:
    """Read the plan of a chapter from its source."""
    every = cells(path)
    heading, _, _ = every[0].text.partition("\n")
    _, _, title = heading.lstrip("# ").partition("· ")
    prose = "\n".join(text for is_code, text in every if not is_code)
    without_details = _DETAILS.sub("", prose)
    minutes = len(without_details.split()) / WORDS_A_MINUTE
    rounded = max(5, 5 * round(minutes / 5))
    source = read_bytes(path).decode("utf-8")
    headings = {}
    for number, level, name in _HEADING.findall(source):
        headings[number] = level, name
    tasks = []
    for exercise in exercises(path):
        number = exercise.number
        level, name = headings[number]
        task_minutes = MINUTES.get(number, USUAL[level])
        tasks.append(Task(number, name, level, task_minutes, exercise))
    return Plan(path.name[:2], title, rounded, tuple(tasks))


def instructors_notes(numbers: Iterable[str] = ()) -> str:
    """Write for each exercise how long it takes, and the mistakes that people make there.

    Parameters
    ----------
    numbers : iterable of str, default ()
        As of `plans`.

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
            for one in task.exercise.mistakes:
                lines.append(f"- {one.sentence} (`{one.written}` instead of `{one.instead_of}`)")
            lines.append("")
        if not plan.tasks:
            lines += ["No exercises.", ""]
    return "\n".join(lines).rstrip("\n")


def glossary() -> str:
    """Write the words of all chapters with what they mean, in the order of the alphabet.

    Returns
    -------
    str
        Markdown.
    """
    found = [one for path in sorted(notebook_folder().glob("[0-9][0-9]_*.py")) for one in terms(path)]
    lines = ["# Glossary", ""]
    for one in sorted(found, key=lambda one: (one.term.lower(), one.chapter)):
        lines.append(f"- **{one.term}** ({one.chapter}): {one.meaning}")
    return "\n".join(lines)


def tables() -> str:
    """Write how long each chapter and each exercise takes, as docs/teaching.md shows it.

    Returns
    -------
    str
        Markdown.
    """
    every = plans()
    lines = [
        "| chapter | reading | easy | core | hard | minutes with all exercises |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for plan in every:
        counts = [sum(task.difficulty == level for task in plan.tasks) for level in USUAL]
        numbers = " | ".join(str(count or "") for count in counts)
        lines.append(f"| {plan.number} {plan.title} | {plan.reading} | {numbers} | {plan.minutes} |")
    hours = sum(plan.minutes for plan in every) / 60
    lines += ["", f"All together about {hours:.0f} hours.", ""]
    lines += ["<details>", "<summary>Exercise by exercise</summary>", ""]
    lines += ["| exercise | what it asks for | difficulty | minutes |", "|---|---|---|--:|"]
    for plan in every:
        for task in plan.tasks:
            lines.append(f"| {task.number} | {task.title} | {task.difficulty} | {task.minutes} |")
    return "\n".join([*lines, "", "</details>"])
