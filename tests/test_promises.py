"""Every sentence of README and docs/ that promises something is in docs/promises.toml, with what holds it."""

import ast
import functools
import re
import shlex
from collections.abc import Iterator

import page_of_promises
import pytest
from page_of_promises import Promise, prose_of, text_of
from paths import ROOT

from minibert.cli.shared.parser import commands

PROMISES, EXCEPTIONS = page_of_promises.read()
# Where a sentence with a strong word is a promise, or has to say why it isn't one.
PAGES = [
    "README.md",
    "SECURITY.md",
    "docs/models/english.md",
    *(f"docs/{name}.md" for name in (
        "index", "getting-started", "fine-tuning", "python", "command-line", "asking", "tokenizer", "engines",
        "many-devices", "differences", "architecture", "teaching", "programs", "coming-from", "decisions",
        "scale",
    )),
    "minibert/__init__.py",
    "minibert/core/__init__.py",
    *(f"minibert {name} --help" for name in commands()),
]  # fmt: skip
STRONG = re.compile(
    r"\b(never|always|(?:same|equal|exact) (?:bytes?|bits?)|to the (?:byte|bit|piece)|bit (?:for|by) bit"
    r"|at most|no more than|no other|nothing|refused?|can't|cannot|exactly|every)\b",
    re.IGNORECASE,
)


def places(text: str, quotation: str) -> Iterator[range]:
    """Where a quotation stands in a text."""
    for found in re.finditer(re.escape(quotation), text):
        yield range(*found.span())


def unlisted(text: str, quotations: list[str]) -> list[str]:
    """The strong words of a text that no quotation holds, each with its surroundings."""
    listed = {place for quotation in quotations for stretch in places(text, quotation) for place in stretch}
    visible = re.sub(
        r"`[^`]*`|--[\w-]+", lambda code: "`" * len(code[0]), text
    )  # names of options are no words
    return [
        text[max(0, found.start() - 60) : found.end() + 60]
        for found in STRONG.finditer(visible)
        if found.start() not in listed
    ]


@functools.cache
def names_of_tests(file: str) -> set[str]:
    """The functions in a file of tests."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def exists(holder: str) -> bool:
    """Whether there is such a test, page, or command."""
    file, _, name = holder.partition("::")
    if name:
        return (ROOT / file).is_file() and name in names_of_tests(file)
    match shlex.split(holder):
        case ["make", target, *_]:
            return target in targets()
        case ["python", script, *_]:
            return (ROOT / script).is_file()
        case ["minibert", command, *_]:
            return (ROOT / "minibert" / "cli" / f"{command.replace('-', '_')}.py").is_file()
        case [page]:
            return page.startswith("docs/log/") and (ROOT / page).is_file()
    return False


@pytest.mark.parametrize("page", dict.fromkeys(promise.page for promise in PROMISES))
def test_each_promise_stands_in_its_page_word_for_word(page):
    said = [promise.says for promise in PROMISES if promise.page == page]
    assert [sentence for sentence in said if sentence not in text_of(page)] == []


def test_whatever_holds_a_promise_exists():
    holders = {holder for promise in PROMISES for holder in promise.held_by}
    assert len(holders) > 300
    assert sorted(holder for holder in holders if not exists(holder)) == []
    assert [promise.says for promise in PROMISES if not promise.held_by] == []


@pytest.mark.parametrize("page", PAGES)
def test_sentences_with_strong_words_are_promises_that_are_held_or_exceptions(page):
    promised = [promise.says for promise in PROMISES if promise.page == page]
    assert unlisted(prose_of(page), [*promised, *EXCEPTIONS.get(page, ())]) == []


def test_exceptions_stand_in_their_pages_and_are_needed():
    for page, reasons in EXCEPTIONS.items():
        promised = [promise.says for promise in PROMISES if promise.page == page]
        for sentence, reason in reasons.items():
            assert sentence in text_of(page) and reason, sentence
            assert unlisted(sentence, []), f"{sentence!r} has no strong word"
            assert unlisted(prose_of(page), [*promised, *(other for other in reasons if other != sentence)])


def commands_in(text: str) -> Iterator[str]:
    """The commands that a text names in backticks; a script of benchmarks/ may stand by its name alone."""
    for code in re.findall(r"`([^`]+)`", text):
        code = re.sub(r"^(?:benchmarks/)?(\w+\.py)\b", r"python benchmarks/\1", " ".join(code.split()))
        if re.match(r"(make|minibert|python) ", code):
            yield code


def test_what_is_proven_is_checked_by_commands_that_exist():
    for page, heading in (("docs/what-is-proven.md", "| claim | bound"), ("README.md", "| claim | bound")):
        text = (ROOT / page).read_text("utf-8")
        table = text[text.index(heading) :].partition("\n\n")[0]
        for row in table.splitlines()[2:]:
            named = list(commands_in(row.rstrip("| ").rpartition(" | ")[2]))
            assert named and [one for one in named if not exists(one)] == [], row


@pytest.mark.parametrize("page", ["docs/results.md", "docs/results-operations.md"])
def test_sections_with_tables_of_measurements_name_a_command_that_exists(page):
    text = (ROOT / page).read_text("utf-8")
    beginning, *sections = re.split(r"^(?=##+ )", text, flags=re.MULTILINE)
    measured = [section for section in sections if re.search(r"^\| ?---", section, re.MULTILINE)]
    general = any(exists(one) for one in commands_in(beginning)) and page != "docs/results.md"
    for section in measured:
        assert general or any(exists(one) for one in commands_in(section)), section.partition("\n")[0]


@pytest.mark.parametrize(
    "holder",
    ["tests/test_promises.py::test_no_such_test", "tests/no_such_file.py::test_it", "make nothing",
     "python benchmarks/nothing.py", "minibert nothing", "docs/log/nothing.md", "somebody said so"],
)  # fmt: skip
def test_a_holder_that_is_not_there_is_found(holder):
    assert not exists(holder)


def test_a_promise_that_nobody_listed_is_found():
    text = "It is never slow. Nothing is lost, and it can't `never` fail."
    assert unlisted(text, ["Nothing is lost", "and it can't"]) == [text]
    assert unlisted(text, ["never slow", "Nothing is", "can't"]) == []


def test_table_has_each_promise_and_what_holds_it():
    promises = [
        Promise("README.md", "a | b, `c`", ["make test", "tests/test_main.py::test_x"]),
        Promise("docs/index.md", "[d](e.md) costs $1", ["make site"]),
    ]
    assert page_of_promises.table(promises) == (
        "### README.md\n\n| it says | held by |\n|---|---|\n"
        "| a \\| b, `c` | `make test`<br>`test_main.py::test_x` |\n\n"
        "### docs/index.md\n\n| it says | held by |\n|---|---|\n"
        "| d costs \\$1 | `make site` |"
    )
