"""What the style sheet of the documentation site makes of its theme, in a browser."""

import inspect
import shutil

import pytest
from paths import ROOT

import minibert

build = pytest.importorskip("sphinx.cmd.build")
pytest.importorskip("furo")

SETTINGS = f"""
html_theme = "furo"
html_static_path = [{str(ROOT / "docs" / "_static")!r}]
html_css_files = ["minibert.css"]
"""
SECTIONS = "\n\n".join(f"Section {number}\n---------\n\n{'Words. ' * 500}" for number in range(1, 5))
SIDES = """() => [".sidebar-drawer", "article", ".toc-drawer"].map((selector) => {
    const { left, right } = document.querySelector(selector).getBoundingClientRect();
    return [left, right];
})"""


@pytest.fixture(scope="module")
def page(open_page, tmp_path_factory):
    """A page of four sections."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "conf.py").write_text(SETTINGS)
    (folder / "index.rst").write_text(f"A page\n======\n\n{SECTIONS}\n")
    assert build.main(["-q", str(folder), str(folder / "html")]) == 0
    return open_page(folder / "html" / "index.html")


@pytest.mark.parametrize("width", [1200, 1280, 1312, 1330, 1440])
def test_contents_of_a_page_stand_beside_its_text(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    (_, sidebar), (left, right), (contents, end) = page.evaluate(SIDES)
    assert sidebar <= left < right <= contents < end <= width
    assert right - left >= 600
    assert page.locator(".toc-content-icon").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_section_that_is_read_is_marked_in_the_contents(page):
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate("document.getElementById('section-3').scrollIntoView({ behavior: 'instant' })")
    page.locator(".toc-tree li.scroll-current", has_text="Section 3").wait_for()
    assert page.locator(".toc-tree li.scroll-current > a").last.text_content() == "Section 3"


def test_contents_wait_behind_a_button_in_a_narrow_window(page):
    page.set_viewport_size({"width": 1100, "height": 800})
    assert page.evaluate(SIDES)[2][0] >= 1100
    assert page.locator(".toc-content-icon").is_visible()


DESCRIPTION = """() => {
    const text = document.getElementById("minibert.TextClassifier").nextElementSibling.querySelector("p");
    text.parentElement.previousElementSibling.scrollIntoView({ behavior: "instant" });
    return [text.textContent, text.getBoundingClientRect().bottom];
}"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The folder of the pages of the API that has the estimators, as the site has them."""
    pytest.importorskip("myst_nb")
    pytest.importorskip("numpydoc")
    folder = tmp_path_factory.mktemp("reference")
    (folder / "api").mkdir()
    shutil.copy(ROOT / "docs" / "api" / "models.md", folder / "api")
    (folder / "index.md").write_text("# Pages\n\n```{toctree}\napi/models\n```\n")
    options = [
        "-q",
        "-c",
        str(ROOT / "docs"),
        "-D",
        "exclude_patterns=notebooks",
        "-D",
        "suppress_warnings=myst",
    ]
    assert build.main([*options, str(folder), str(folder / "html")]) == 0
    return folder / "html" / "api"


@pytest.fixture(scope="module")
def names(open_page, reference):
    """The page that lists the estimators."""
    return open_page(reference / "models.html")


@pytest.fixture(scope="module")
def classifier(open_page, reference):
    """The page of an estimator."""
    return open_page(reference / "minibert.TextClassifier.html")


@pytest.mark.parametrize("width", [390, 1280])
def test_purpose_of_an_estimator_is_on_the_screen_of_its_signature(classifier, width):
    classifier.set_viewport_size({"width": width, "height": 900})
    text, bottom = classifier.evaluate(DESCRIPTION)
    assert text == "Predict a class for a text or a pair of texts."
    assert 0 < bottom < 900


@pytest.mark.parametrize("width", [390, 1280])
def test_names_in_a_list_of_the_api_are_whole_and_lead_to_their_pages(names, width):
    names.set_viewport_size({"width": width, "height": 900})
    shown = names.locator("table.autosummary td:first-child .pre")
    assert "MultilabelClassifier" in shown.all_text_contents()
    assert set(shown.evaluate_all("found => found.map(name => name.getClientRects().length)")) == {1}
    links = names.locator("table.autosummary td:first-child a").count()
    assert links == shown.count() > 20
    row = names.locator("tr[id='minibert.TextClassifier'] a")  # the address of its description before
    assert row.get_attribute("href") == "minibert.TextClassifier.html#minibert.TextClassifier"


def test_page_of_a_class_names_its_methods_in_a_table_and_at_the_side(classifier):
    classifier.set_viewport_size({"width": 1280, "height": 800})
    listed = classifier.locator("table.autosummary td:first-child a").all_text_contents()
    assert {"fit", "predict", "predict_proba", "explain", "save"} <= set(listed)
    beside = classifier.locator(".toc-tree a .pre").all_text_contents()
    assert sorted(name.removesuffix("()") for name in beside) == sorted(["TextClassifier", *listed])
    described = classifier.locator("dl.py.method > dt, dl.py.property > dt").count()
    assert len(listed) == described


def test_many_parameters_of_a_class_unfold(classifier):
    parameters = classifier.locator("dl.class > dd > dl.field-list > dd > details dt strong")
    names = inspect.signature(minibert.TextClassifier).parameters
    assert set(parameters.all_text_contents()) == set(names)
    assert not any(name.is_visible() for name in parameters.all()[:3])
    classifier.get_by_text(f"Show all {len(names)}").click()
    assert parameters.first.is_visible() and parameters.last.is_visible()
    classifier.reload()


def test_no_page_of_the_api_is_longer_than_twelve_screens(names, reference):
    names.set_viewport_size({"width": 1280, "height": 800})
    pages = sorted(reference.glob("*.html"))
    heights = {}
    for page in pages:
        names.goto(page.as_uri())
        heights[page.stem] = names.evaluate("document.documentElement.scrollHeight")
    assert len(heights) > 20 and max(heights.values()) < 12 * 800, heights
