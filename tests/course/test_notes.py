"""What a teacher prepares with: minutes, the usual mistakes, a glossary, and the page that shows them."""

import re

import pytest
from course import notebooks
from teaching import COURSE, PAGE, renewed

from minibert.base.errors import InputError
from minibert.cli import main
from minibert.course.exercises import exercises
from minibert.course.notes import MINUTES, glossary, instructors_notes, plans, tables, terms


def test_the_page_for_teachers_has_the_minutes_of_now():
    page = PAGE.read_text("utf-8")
    assert "| 04 Attention |" in page
    assert renewed(page) == page, "python tests/support/teaching.py"


def test_the_page_of_the_course_says_what_is_written_in_every_chapter_and_for_how_long():
    page = COURSE.read_text("utf-8")
    assert renewed(page) == page, "python tests/support/teaching.py"
    for plan in plans():
        assert page.count(f"| [{plan.number} {plan.title}](../notebooks/{plan.name}.ipynb) | ") == 1
    (plan,) = plans(["04"])
    assert f"`score_variance`, `attention` | 5 | {plan.minutes} |" in page


def test_every_exercise_has_its_difficulty_and_minutes():
    every = [task for plan in plans() for task in plan.tasks]
    assert [task.number for task in every] == [one.number for path in notebooks() for one in exercises(path)]
    assert set(MINUTES) <= {task.number for task in every}
    assert all(task.minutes % 5 == 0 and 5 <= task.minutes <= 90 for task in every)
    by_level = {
        level: [one.minutes for one in every if one.difficulty == level] for level in ("easy", "core", "hard")
    }
    means = [sum(minutes) / len(minutes) for minutes in by_level.values()]
    assert means == sorted(means)


def test_a_chapter_takes_its_reading_and_its_exercises():
    (plan,) = plans(["04"])
    assert plan.title == "Attention"
    assert plan.minutes == plan.reading + 20 + 25 + 15 + 75 + 20
    assert f"| 04 Attention | {plan.reading} | 2 | 2 | 1 | {plan.minutes} |" in tables()
    with pytest.raises(InputError, match="'4' is not a chapter of the course; choose from 00, 01"):
        plans(["4"])


def test_notes_have_every_mistake_that_a_check_names(capsys):
    notes = instructors_notes()
    for path in notebooks():
        for exercise in exercises(path):
            for mistake in exercise.mistakes:
                assert f"- {mistake.sentence} (`{mistake.written}` instead of" in notes
    assert main("course notes 05 06".split()) == 0
    printed = capsys.readouterr().out
    assert re.findall("^## (.*)$", printed, re.M) == ["05 Gradients you can trust", "06 The hard backwards"]
    assert "`linear`, `linear_backward`; core, about 20 minutes." in printed


@pytest.mark.parametrize("word", ["notes", "glossary"])
def test_what_prints_markdown_refuses_json(word, capsys):
    assert main(["course", word, "--json"]) == 2
    assert capsys.readouterr().err == f"minibert: --json is not for course {word}; leave it out.\n"


def test_the_glossary_has_the_words_of_all_chapters_in_order(capsys):
    assert main(["course", "glossary"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert "\n".join(lines) in glossary()
    listed = [re.match(r"- \*\*(.+?)\*\* \((\d\d)\): .+", line).groups() for line in lines]
    assert sorted(listed) == sorted((one.term, one.chapter) for path in notebooks() for one in terms(path))
    assert [term.lower() for term, _ in listed] == sorted(term.lower() for term, _ in listed)
