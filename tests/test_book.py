"""The course as a book: chapters with their answers, on pages and on paper, with the libraries of docs."""

import importlib.util
import re
import shutil
import subprocess
import sys

import pytest
from paths import ROOT

from minibert.course.exercises import exercises, notebook_source

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("furo")
QUICK = ["03"]  # chapters that run in a minute


def loaded(name):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def book():
    return loaded("book")


def texts(notebook, kind):
    return [cell.source for cell in notebook.cells if cell.metadata.get(kind)]


@pytest.mark.parametrize("number", [f"{number:02}" for number in range(17)])
def test_each_exercise_has_its_official_answer_below_its_stub(book, number):
    cells = book.solved(number).cells
    expected = exercises(notebook_source(number))
    answers = [place for place, cell in enumerate(cells) if "answer" in cell.metadata]
    assert [cells[place].metadata["answer"] for place in answers] == [one.number for one in expected]
    for place, one in zip(answers, expected, strict=True):
        assert cells[place - 1].source == one.stub
        assert cells[place].source.partition("\n")[2].strip() == one.solution.strip()
        assert cells[place + 1].source == one.check


def test_pages_have_task_hints_answer_result_and_mistakes_in_order(book):
    first = exercises(notebook_source("03"))[0]
    cells = book.presented(book.solved("03")).cells
    stub = next(place for place, cell in enumerate(cells) if cell.source == first.stub)
    hints, answer, check, mistakes = cells[stub + 1 : stub + 5]
    assert re.findall("<summary>(.*?)</summary>", hints.source) == ["Hint 1", "Hint 2"]
    assert answer.metadata.mystnb["code_prompt_show"] == "Show the answer"
    assert first.solution.strip() in answer.source and check.source == first.check
    assert re.findall("<summary>(.*?)</summary>", mistakes.source) == ["Common mistakes"]
    assert all(one.sentence.replace("|", r"\|") in mistakes.source for one in first.mistakes)
    assert not [cell for cell in cells if cell.cell_type == "markdown" and "```python\ndef " in cell.source]


def test_derivations_below_a_solution_stay(book):
    cells = book.presented(book.solved("05")).cells
    assert sum("<summary>The derivation" in cell.source for cell in cells) == 3


def test_questions_do_not_speak_of_running_a_cell(book):
    notebook = book.solved("03")
    guess = next(cell for cell in notebook.cells if "lesson.predict" in cell.source)
    guess.outputs = [nbformat.v4.new_output("stream", text=f"How many?\n{book.NO_GUESS}\n")]
    book.presented(notebook)
    assert book.printed(guess) == "How many?\nGuess before you read on.\n"
    assert guess.metadata.tags == ["hide-input", "question"]


@pytest.mark.parametrize(
    "line", ["· 03.1 three_numbers: still to be written", "✗ 03.1 three_numbers: off by 2"]
)
def test_chapter_that_is_not_solved_makes_no_book(book, line):
    notebook = book.solved("03")
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text=f"1,381 documents\n{line}\n")]
    with pytest.raises(RuntimeError, match=re.escape(line)):
        book.require_solved(notebook, "03")


def test_chapter_is_run_again_when_one_before_it_has_changed(book, monkeypatch, tmp_path):
    """With sources and runs of our own: each leaves a file, which those after it find."""
    sources = {number: tmp_path / f"{number}_chapter.py" for number in ("01", "02", "03")}
    for path in sources.values():
        path.write_text("before")
    found = {}

    def run(number, folder):
        found[number] = sorted(path.name for path in folder.iterdir())
        (folder / f"left-by-{number}").touch()
        return nbformat.v4.new_notebook()

    monkeypatch.setattr(book, "notebook_source", sources.get)
    monkeypatch.setattr(book, "run", run)
    into = tmp_path / "book"
    assert book.make(list(sources), into) == ["01", "02", "03"]
    assert found == {"01": [], "02": ["left-by-01"], "03": ["left-by-01", "left-by-02"]}
    assert book.make(list(sources), into) == []
    sources["02"].write_text("after")
    assert book.make(list(sources), into) == ["02", "03"]
    assert found["02"] == ["left-by-01"]


def test_chapters_of_an_earlier_package_are_named_and_kept(book, monkeypatch, tmp_path, capsys):
    source, package = tmp_path / "01_chapter.py", tmp_path / "package"
    source.write_text("the same")
    package.mkdir()
    (package / "ops.py").write_text("before")
    monkeypatch.setattr(book, "PACKAGE", package)
    monkeypatch.setattr(book, "notebook_source", lambda number: source)
    monkeypatch.setattr(book, "run", lambda number, folder: nbformat.v4.new_notebook())
    into = tmp_path / "book"
    assert book.make(["01"], into) == ["01"]
    assert book.make(["01"], into) == [] and "has changed" not in capsys.readouterr().out
    (package / "ops.py").write_text("after")
    assert book.make(["01"], into) == []
    said = capsys.readouterr().out
    assert "the package has changed since these chapters were run: 01\n" in said
    assert f"remove {into} to run them all again" in said


def test_site_says_whether_its_exercises_are_open(book, tmp_path):
    name = notebook_source("03").with_suffix(".ipynb").name
    nbformat.write(book.solved("03"), tmp_path / name)
    first = {
        is_solved: nbformat.reads(book.page(name, is_solved, tmp_path), as_version=4).cells[0].source
        for is_solved in (False, True)
    }
    assert book.OPEN_NOTE in first[False] and book.SOLVED_NOTE in first[True]
    assert (
        book.OPEN_NOTE
        in nbformat.reads(book.page(name, True, tmp_path / "none"), as_version=4).cells[0].source
    )


def test_what_a_cell_prints_and_shows_keeps_its_order(book, tmp_path):
    """In one block what was printed in a row, but not what came after a picture or a sentence."""
    notebook = book.solved("03")
    new = nbformat.v4.new_output
    shown = new("display_data", {"text/markdown": "Ten batches. The first:"})
    cell = next(cell for cell in notebook.cells if cell.cell_type == "code")
    texts = [new("stream", name="stdout", text=f"{number}\n") for number in (1, 2, 3, 4)]
    cell.outputs = [*texts[:2], shown, *texts[2:]]
    name = notebook_source("03").with_suffix(".ipynb").name
    nbformat.write(notebook, tmp_path / name)
    page = nbformat.reads(book.page(name, True, tmp_path), as_version=4)
    outputs = next(cell for cell in page.cells if cell.cell_type == "code").outputs
    assert [output.get("text", "shown") for output in outputs] == ["1\n2\n", "shown", "3\n4\n"]


def chapters(count):
    """Pages of a site as they are on paper, by number."""
    pytest.importorskip("pypdf")
    printed = loaded("printed")
    text = """
        <article><section id="a"><h1>{} · Of &lt;b&gt;</h1>
        <p id="b"><a href="02_x.html#b">there</a> <a href="#a">here</a> <a href="../results.html">away</a></p>
        <div class="tag_hide-input picture"><details><summary>Show</summary>drawing</details></div>
        <div class="tag_hide-input tag_answer"><details><summary>Show</summary>x = 1</details></div>
        </section></article>"""
    pages = {f"{number:02}": text.format(f"{number:02}") for number in range(count)}
    return printed, {number: printed.chapter(number, text) for number, text in pages.items()}


def test_printed_contents_list_every_chapter_with_its_page():
    printed, articles = chapters(17)
    text = printed.whole(articles, {number: 3 + 2 * int(number) for number in articles})
    entries = re.findall(r'<li><a href="#chapter-(\d\d)">(.*?)</a><span>(\d+)</span></li>', text)
    assert entries == [(f"{n:02}", f"{n:02} · Of &lt;b&gt;", str(3 + 2 * n)) for n in range(17)]
    assert "17 chapters, with every exercise solved" in text


def test_title_claims_nothing_of_a_book_with_open_exercises():
    printed, articles = chapters(2)
    articles["01"].find("p").string = "· 01.1 normalise: still to be written"
    assert "2 chapters</p>" in printed.whole(articles, {})


def test_paper_has_answers_unfolded_links_within_the_book_and_no_code_of_pictures():
    _, articles = chapters(3)
    article = articles["01"]
    assert [each["id"] for each in article.find_all(id=True)] == ["chapter-01-a", "chapter-01-b"]
    links = [link.get("href") for link in article.find_all("a")]
    assert links == ["#chapter-02-b", "#chapter-01-a", None]
    assert "drawing" not in article.get_text()
    answer = article.find("details")
    assert answer.has_attr("open") and answer.get_text() == "The answerx = 1"


def test_paper_has_no_interactive_page_and_fits_code_to_its_pages():
    pytest.importorskip("pypdf")
    printed = loaded("printed")
    blocks = "\n".join(["x = 1"] * 5), "\n".join(["x = 1"] * 50), "x" * 115, "x" * 150
    code = "".join(f"<pre>{block}\n</pre>" for block in blocks)
    article = printed.chapter("01", f"<article><h1>A</h1><iframe srcdoc='b'></iframe>{code}</article>")
    assert not article.find("iframe") and "stands here on the site" in article.get_text()
    classes = [block["class"] for block in article.find_all("pre")]
    assert classes == [["whole"], [], ["whole", "wide"], ["whole"]]


def test_paper_divides_no_stub_and_no_answer():
    pytest.importorskip("pypdf")
    printed = loaded("printed")
    stub = ["# Exercise 05.10", *["def tanh(self, x):", "    ..."] * 10]
    assert printed.classes_of(stub) == ["whole"]
    assert printed.classes_of(stub[1:]) == []
    assert printed.classes_of(["# Exercise 05.10: the answer", *["x"] * 90]) == []


def test_paper_says_that_an_animation_stands_still():
    pytest.importorskip("pypdf")
    printed = loaded("printed")
    parts = "<button>Play</button><p class='caption'>Step 60 of 60.</p>"
    figure = f"<figure class='minibert-animation'>{parts}</figure>"
    article = printed.chapter("08", f"<article><h1>A</h1>{figure}</article>")
    assert article.find("figure").get_text() == f"Step 60 of 60.{printed.LAST_FRAME}"


@pytest.mark.slow
def test_pages_of_the_pdf_are_those_of_its_contents(tmp_path):
    playwright = pytest.importorskip("playwright")
    assert playwright
    if not shutil.which("chromium"):
        pytest.skip("no chromium on the PATH (Debian, Ubuntu: apt install chromium)")
    printed, articles = chapters(3)
    long = "A heading with so many words that one line can't hold them all, and the last are on another"
    heading = printed.BeautifulSoup(f"<h2>{long}</h2>", "html.parser")
    articles["02"].append(heading)
    (tmp_path / "notebooks").mkdir()
    for number, article in articles.items():
        (tmp_path / "notebooks" / f"{number}_chapter.html").write_text(str(article), "utf-8")
    (tmp_path / "_static").mkdir()
    shutil.copy(ROOT / "docs" / "_static" / "book.css", tmp_path / "_static")
    # In a process of its own: tests of the explorer may have started a browser in this one.
    script = ROOT / "docs" / "printed.py"
    subprocess.run([sys.executable, script, "--site", tmp_path], check=True)
    reader = printed.PdfReader(tmp_path / printed.book.PDF)
    assert [page.extract_text().split("\n")[0] for page in reader.pages[2:]] == [
        "00 · Of <b>",
        "01 · Of <b>",
        "02 · Of <b>",
    ]
    assert [entry.title for entry in reader.outline[-1]] == [long]
    contents = reader.pages[1].extract_text()
    assert re.findall(r"(\d\d) · Of <b>\s*(\d)", contents) == [("00", "3"), ("01", "4"), ("02", "5")]


@pytest.mark.slow
def test_book_of_quick_chapters_is_solved_and_a_page_shows_it(book, tmp_path):
    """Runs them as `make book` does, and builds their pages."""
    assert book.make(QUICK, tmp_path / "book") == QUICK
    source = tmp_path / "pages"
    source.mkdir()
    names = [notebook_source(number).stem for number in QUICK]
    (source / "index.md").write_text(
        "\n".join(["# Book", "```{toctree}", *(f"notebooks/{n}" for n in names), "```"])
    )
    others = ",".join(f"notebooks/{number}_*" for number in book.CHAPTERS if number not in QUICK)
    options = ["-t", "solved", "-D", f"book_folder={tmp_path / 'book'}", "-D", f"exclude_patterns={others}"]
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-c", ROOT / "docs", *options]
    subprocess.run([*command, source, tmp_path / "site"], check=True, capture_output=True)
    for number, name in zip(QUICK, names, strict=True):
        notebook = nbformat.read(tmp_path / "book" / f"{name}.ipynb", as_version=4)
        asked = [function for one in exercises(notebook_source(number)) for function in one.functions]
        lines = "".join(map(book.printed, notebook.cells))
        assert all(re.search(rf"^✓ {number}\.\d+ {function}: ", lines, re.M) for function in asked)
        page = (tmp_path / "site" / "notebooks" / f"{name}.html").read_text("utf-8")
        assert page.count("Show the answer") == len(exercises(notebook_source(number)))
        assert "still to be written" not in page and book.NO_GUESS not in page
