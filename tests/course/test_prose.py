"""The pages of the course as text: its words, the form of its exercises, its numbers and links."""

import ast
import re

import pytest
from course import notebooks

from minibert.course.exercises import cells, exercises
from minibert.course.notes import terms

PATHS = notebooks()
AFTER_THE_TOUR = [path for path in PATHS if path.name >= "01"]
# Terms that are everyday words as well, and the chapters before theirs that mean the everyday word.
EVERYDAY = {"value": ["01"], "gain": ["01", "02", "03"], "bag of words": ["02"]}
CHAPTERS = set(range(17))
SPOKEN = {"say", "predict", "answer", "claim", "show", "Guess"}  # calls whose strings the reader sees
WORDS = re.compile(r"^#+ Words$(.*?)(?=^#+ |\Z)", re.M | re.S)
MEASURED = re.compile(
    r"(?<![\w.])\d[\d,]*\.\d+\s*(?:nats?|seconds?|s|ms|minutes?|%|times|[KMG]i?B|steps?)(?!\w)", re.I
)
# Results in words, or in whole percent, that a sentence compares with.
SPELT_OUT = re.compile(
    r"(?:hundredths|tenths|few) of a nats?|\babout a nat\b|\b(?:more|less|fewer) than \d+%|"
    r"\bten to the minus \w+|\b(?:a few|one or two|two or three) percent\b",
    re.I,
)
# Decimals that were not measured: the paper has them, or a definition.
GIVEN = {"1.5%", "0.1%", "13.5%", "0.05 nats"}


def prose(text):
    """What is left of a markdown cell without code, formulas, comments and the targets of links."""
    for pattern in (
        r"^```.*?^```$", r"`[^`\n]*`", r"\$\$.*?\$\$", r"\$[^$]*\$", r"\]\([^)]*\)", r"<[^>\n]*>", r"https?://\S+"
    ):  # fmt: skip
        text = re.sub(pattern, " ", text, flags=re.M | re.S)
    return text


def spoken(code):
    """The strings of a code cell that its reader sees as sentences."""
    found = []
    for node in ast.walk(ast.parse(re.sub(r"^%.*$", "", code, flags=re.M))):
        name = getattr(getattr(node, "func", None), "attr", "")
        if isinstance(node, ast.Call) and name in SPOKEN:
            strings = (
                one for argument in node.args for one in ast.walk(argument) if isinstance(one, ast.Constant)
            )
            found += [one.value for one in strings if isinstance(one.value, str)]
    return prose("\n".join(found))


def pages(path):
    """What a notebook says, cell by cell; its title and the list of its words at the end are left out."""
    for is_code, text in cells(path):
        yield spoken(text) if is_code else prose(WORDS.sub("", re.sub(r"\A# .*", "", text)))


def words(path):
    """The terms that a notebook lists; of several in one line, each."""
    return [one.term for one in terms(path)]


def occurrences(term):
    """A pattern of the term as a word, in the plural too; what is written small may begin a sentence."""
    first = f"[{term[0].lower()}{term[0].upper()}]" if term[0].islower() else re.escape(term[0])
    rest = r"\s+".join(map(re.escape, term[1:].split(" ")))
    return re.compile(rf"(?<![\w-]){first}{rest}(?:s|es)?(?![\w-])")


def too_early(paths):
    """Every term that is used in a cell before the one where it stands in bold, or that never does."""
    found = []
    every = [(path, number, page) for path in paths for number, page in enumerate(pages(path))]
    for path in paths:
        for term in words(path):
            pattern = occurrences(term)
            bold = re.compile(rf"\*\*[^*]*?{pattern.pattern}[^*]*?\*\*")
            for where, number, page in every:
                if bold.search(page):
                    break
                used = pattern.search(page)
                if used and where.name[:2] not in EVERYDAY.get(term, ()):
                    beside = " ".join(page[max(0, used.start() - 40) : used.end() + 30].split())
                    found.append(f"{term} ({path.name[:2]}) in cell {number} of {where.name}: …{beside}…")
                    break
            else:
                found.append(f"{term} ({path.name[:2]}) stands in bold nowhere")
    return found


def test_a_word_is_explained_before_it_is_used():
    assert too_early(AFTER_THE_TOUR) == []


def test_a_word_that_is_used_too_early_is_found(tmp_path):
    page = "# %% [markdown]\n# The widgets come first.\n\n# %% [markdown]\n# A **widget** is a thing.\n"
    listed = "\n# %% [markdown]\n# ## Words\n#\n# - **widget**: a thing.\n# - **gadget**: another.\n"
    path = tmp_path / "01_early.py"
    path.write_text(page + listed)
    early, nowhere = too_early([path])
    assert early.startswith("widget (01) in cell 0")
    assert nowhere == "gadget (01) stands in bold nowhere"
    path.write_text(page.replace("widgets come", "things come") + listed)
    assert too_early([path]) == ["gadget (01) stands in bold nowhere"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_exercises_have_the_form_that_readers_know(path):
    text = path.read_text("utf-8")
    for count, one in enumerate(exercises(path), 1):
        assert one.number == f"{path.name[:2]}.{count}"
        assert re.search(rf"^# #+ Exercise {one.number} \((easy|core|hard)\): \S", text, re.M), one.number
        folded = text.split(f"# Exercise {one.number}\n")[1].split(
            f"<summary>Solution {one.number}</summary>"
        )
        hints = re.findall(r"<summary>Hint (\d)</summary>\n#\n(.*?)\n#\n# </details>", folded[0], re.S)
        assert [number for number, _ in hints] == ["1", "2"] and all(len(hint) > 20 for _, hint in hints)
        assert one.functions and one.functions == functions_of(one.solution), one.number
        assert sorted(one.functions) == sorted(set(re.findall(r"lesson\.check\(\s*(\w+)", one.check))), (
            one.number
        )
        solved = folded[1].split("</details>")[0]
        rows = re.findall(r"^# \|(?!---| instead of)", solved, re.M)
        assert len(one.mistakes) == len(rows) >= 5, one.number
        for mistake in one.mistakes:
            assert mistake.instead_of in one.solution, (one.number, mistake.instead_of)
            assert re.search(r"[.!?]$", mistake.sentence), (one.number, mistake.sentence)
            assert one.mistaken(mistake) != one.solution
            ast.parse(one.mistaken(mistake))


def functions_of(code):
    """The functions that code defines, as an exercise asks for them."""
    return [node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("path", AFTER_THE_TOUR, ids=lambda path: path.stem)
def test_a_chapter_has_its_parts(path):
    every = cells(path)
    text = "\n".join(text for is_code, text in every if not is_code)
    number = path.name[:2]
    assert re.match(rf"# (Chapter )?0?{int(number)}\b", every[0][1])
    assert f'course.begin("{number}")' in path.read_text("utf-8")
    assert ".[notebooks]" in every[0][1]
    for heading in ("What we saw", "Words", "Where to go next"):
        assert re.search(rf"^#+ .*{heading}", text, re.M), heading
    assert 3 <= len(exercises(path)) <= 15
    assert len(words(path)) >= 3


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_links_and_chapters_lead_somewhere(path):
    text = "\n".join(text for is_code, text in cells(path) if not is_code)
    for target in re.findall(r"\]\((?!https?://|#)([^)\s]+)\)", text):
        assert (path.parent / target.split("#")[0]).exists(), target
    for place in re.findall(r"`((?:minibert|docs|tests|benchmarks|csrc|notebooks)/[\w./-]*)`", text):
        assert (path.parents[1] / place).exists(), place
    named = re.findall(r"\b(?:chapters?|notebooks?) (\d+)", prose(text), re.I)
    assert {int(one) for one in named} <= CHAPTERS
    asked = {one.number for other in PATHS for one in exercises(other)}
    assert set(re.findall(r"\b[Ee]xercises? (\d\d\.\d+)", text)) <= asked


@pytest.mark.parametrize("path", AFTER_THE_TOUR, ids=lambda path: path.stem)
def test_measured_numbers_are_rendered_not_typed(path):
    said = "\n".join(prose(text) for is_code, text in cells(path) if not is_code)
    assert [one for one in MEASURED.findall(said) if one not in GIVEN] == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_measured_numbers_are_not_spelt_out(path):
    said = "\n".join(spoken(text) if is_code else prose(text) for is_code, text in cells(path))
    assert SPELT_OUT.findall(said) == []


@pytest.mark.parametrize("path", AFTER_THE_TOUR, ids=lambda path: path.stem)
def test_every_picture_has_an_alternative_text(path):
    """No figure is shown without one: `course.show` is the only way out, and it says something."""
    code = "\n".join(text for is_code, text in cells(path) if is_code)
    tree = ast.parse(re.sub(r"^%.*$", "", code, flags=re.M))
    shown = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "course.show"
    ]  # fmt: skip
    assert len(shown) >= 4
    for node in [one for one in shown if not isinstance(one.args[-1], ast.Name)]:
        alt = [one.value for one in ast.walk(node.args[-1]) if isinstance(one, ast.Constant)]
        assert sum(len(one) for one in alt if isinstance(one, str)) >= 20, ast.unparse(node)
    assert "plt.show(" not in code
    assert not re.search(r";\s*$", code, re.M)


def test_measured_numbers_are_found():
    assert MEASURED.findall("a loss of 4.31 nats after 12.5 s, at 3.2% of all") == [
        "4.31 nats",
        "12.5 s",
        "3.2%",
    ]
    assert SPELT_OUT.findall("No guess has more than 2%, the others gain about a nat each.") == [
        "more than 2%",
        "about a nat",
    ]
    assert MEASURED.findall("ln 2 is 0.693, section 3.1, a rate of 0.001, and 15% of all") == []
