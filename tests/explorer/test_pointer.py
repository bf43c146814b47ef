"""Pictures in pages of runs answer to a mouse, a finger and arrow keys, as a browser has it."""

import re
from pathlib import Path

import numpy as np
import pytest

from minibert.experiments.comparison import ComparedRun, Comparison
from minibert.gradcheck.page import proof_page
from minibert.gradcheck.sheet import Row
from minibert.model.ops import Ops
from minibert.pretraining.options import PretrainOptions
from minibert.reports.markup import shown
from minibert.reports.page import Facts, page as report
from minibert.reports.results import metric_number
from minibert.reports.viz import smoothed

pytestmark = pytest.mark.slow

NAME = "f1<img src=x onerror=window.hacked=1>"  # of a metric
HOSTILE = '"><svg onload=hacked++>'  # of a folder
LOSSES = 0.9 - 0.001 * np.arange(1, 101) + 0.05 * np.sin(np.arange(1, 101))
SCORES = {20: 0.5, 60: 0.625, 100: 0.75}
# The elements whose own text has less contrast to what is behind it than WCAG 2 asks for.
FAINT = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((one, i) => a * one + (1 - a) * below[i]);
  const ground = (one) => channels(getComputedStyle(one).backgroundColor);
  const behind = (one) => one ? over(ground(one), behind(one.parentElement)) : ground(document.body);
  const linear = (one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
  const weights = [0.2126, 0.7152, 0.0722];
  const light = (rgb) => rgb.reduce((sum, one, i) => sum + weights[i] * linear(one / 255), 0.05);
  return [...document.body.querySelectorAll(":not(script)")].filter((one) => one.checkVisibility() &&
      [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim())).filter((one) => {
    const below = behind(one), style = getComputedStyle(one);
    const ink = over(channels(one instanceof SVGElement ? style.fill : style.color), below);
    const [low, high] = [light(ink), light(below)].sort((a, b) => a - b);
    return high / low < 4.5;
  }).map((one) => one.outerHTML.slice(0, 100));
}"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The page of a fine-tuning with two pictures: of 100 losses, and of three scores of a hostile name."""
    told = {"title": "A task", "task": "a", "metric": NAME, "scores": {NAME: 0.75}, "interval": (0.7, 0.8)}
    curve = [{"step": step, "loss": loss} for step, loss in enumerate(LOSSES.tolist(), start=1)]
    curve += [{"step": step, f"dev_{NAME}": score} for step, score in SCORES.items()]
    classes = ["a", "b", "b", "c"] * 5, ["a", "b", "c", "b"] * 5
    path = tmp_path_factory.mktemp("pointer") / "report.html"
    path.write_text(report(Facts(told, "small", curve=curve, classes=classes, labels="abc")), "utf-8")
    return path


def told_at(step):
    """What the first picture says of a step."""
    means = smoothed(LOSSES, 5)
    loss, mean = (shown(float(values[step - 1])) for values in (LOSSES, means))
    return f"step {step}\ntraining loss: {loss}\ntraining loss, smoothed: {mean}"


def place(page, picture, step):
    """Where on the screen a step of 100 is."""
    box = page.locator("svg[role=img]").nth(picture).bounding_box()
    return box["x"] + (64 + step / 100 * (720 - 64 - 12)) / 720 * box["width"], box["y"] + 0.5 * box["height"]


def readout(page, picture=0):
    return page.locator(".readout").nth(picture).inner_text()


def test_a_mouse_and_arrow_keys_tell_the_recorded_values(path, open_page):
    page = open_page(path, viewport={"width": 1280, "height": 1600})
    assert readout(page) == ""
    page.mouse.move(*place(page, 0, 37))
    assert readout(page) == told_at(37)
    page.mouse.move(0, 0)
    assert readout(page) == ""
    picture = page.locator("svg[role=img]").first
    page.keyboard.press("Tab")
    assert readout(page) == told_at(37)  # where it was
    assert (
        picture.evaluate("one => one === document.activeElement && getComputedStyle(one).outlineStyle")
        == "solid"
    )
    for key, step in (
        ("ArrowLeft", 36), ("End", 100), ("ArrowRight", 100), ("PageDown", 90), ("Home", 1), ("ArrowUp", 2),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert readout(page) == told_at(step), key
    page.keyboard.press("Escape")
    assert readout(page) == "" and page.locator(".marks > *").count() == 0
    assert page.errors == []


def test_a_finger_tells_the_values_until_it_moves_on(path, open_page):
    page = open_page(path, viewport={"width": 390, "height": 844}, has_touch=True)
    page.locator("svg[role=img]").first.scroll_into_view_if_needed()
    for step in (3, 64, 100):
        page.touchscreen.tap(*place(page, 0, step))
        told = readout(page)
        assert (
            told == told_at(int(re.match(r"step (\d+)", told)[1])) and abs(int(told.split()[1]) - step) <= 1
        )
        box = page.locator(".readout").first.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.locator("svg[role=img]").nth(1).scroll_into_view_if_needed()
    page.touchscreen.tap(*place(page, 1, 60))
    assert readout(page) == "" and readout(page, 1)
    assert page.evaluate("document.documentElement.scrollWidth") == 390 and page.errors == []


def test_of_two_values_at_one_step_the_last_is_told(open_page, tmp_path):
    told = {"title": "A task", "task": "a", "metric": "f1", "scores": {"f1": 0.75}, "interval": (0.7, 0.8)}
    curve = [{"step": step, "dev_f1": score} for step, score in ((1, 0.5), (6, 0.625), (6, 0.75))]
    path = tmp_path / "report.html"
    path.write_text(report(Facts(told, "small", curve=curve)), "utf-8")
    page = open_page(path)
    page.keyboard.press("Tab")
    assert readout(page) == f"step 6\nf1 on dev: {metric_number('f1', 0.75)}" and page.errors == []


def test_hostile_names_are_text_under_a_pointer(path, open_page):
    page = open_page(path, viewport={"width": 1280, "height": 1600})
    for step, score in SCORES.items():
        page.mouse.move(*place(page, 1, step))
        assert readout(page, 1) == f"step {step}\n{NAME} on dev: {metric_number(NAME, score)}"
    assert page.locator("img").count() == 0
    assert page.evaluate("window.hacked") is None and page.errors == []


def test_no_script_runs_but_that_of_the_page(path, open_page, tmp_path):
    spoiled = tmp_path / "spoiled.html"
    spoiled.write_text(
        path.read_text("utf-8").replace("<h1>", "<script>window.hacked = 1</script><h1>"), "utf-8"
    )
    page = open_page(spoiled)
    assert page.evaluate("window.hacked") is None
    assert len(page.errors) == 1 and "Content Security Policy" in page.errors[0]
    page.keyboard.press("Tab")
    assert readout(page) == told_at(100)


def test_without_scripts_curves_and_their_tables_are_there(path, open_page):
    page = open_page(path, java_script_enabled=False)
    assert page.get_by_role("img", name="training loss over steps").is_visible()
    page.get_by_text("Table: training loss").click()
    row = page.get_by_role("row", name="training loss").inner_text().split("\t")
    ends = [f"{shown(float(LOSSES[at]))} (step {at + 1})" for at in (0, LOSSES.argmin(), LOSSES.argmax(), 99)]
    assert row == ["training loss", *ends]
    assert page.errors == []


def test_dots_of_the_proof_sheet_tell_their_check(open_page, tmp_path):
    names = {"float64": "tanh", "float32": "linear"}
    rows = [Row(name, "numpy", dtype, "ugly", 1e-9, 1e-8, "ok") for dtype, name in names.items()]
    path = tmp_path / "proof.html"
    path.write_text(proof_page(rows, [Ops()]), "utf-8")
    page = open_page(path, viewport={"width": 1280, "height": 900})
    dot = page.locator("circle.ok").first.bounding_box()
    page.mouse.move(dot["x"] + 8, dot["y"] + 8)
    told = [f"{name}, {dtype}, ugly: 1.0e-09 of 1.0e-08, ok" for dtype, name in names.items()]
    assert readout(page) == told[0]
    page.mouse.move(dot["x"] + 100, dot["y"] + 8)
    assert readout(page) == ""
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert readout(page) == told[1]
    for key, name in (("ArrowUp", 0), ("ArrowDown", 1), ("PageUp", 0), ("PageDown", 1)):
        page.keyboard.press(key)
        assert readout(page) == told[name], key
    assert page.errors == []


def test_a_phone_sees_dots_of_the_proof_sheet_at_once(open_page, tmp_path):
    rows = [Row("linear", "numpy", dtype, "ugly", 1e-9, 1e-8, "ok") for dtype in ("float64", "float32")]
    path = tmp_path / "proof.html"
    path.write_text(proof_page(rows, [Ops()]), "utf-8")
    page = open_page(path, viewport={"width": 390, "height": 844})
    dot = page.locator("circle.ok").first.bounding_box()
    assert 0 <= dot["x"] and dot["x"] + dot["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_tables_that_scroll_can_be_reached_by_keyboard(open_page, tmp_path):
    rows = [Row("linear", "numpy", "float64", size, 1e-9, 1e-8, "ok") for size in ("ugly", "aligned")]
    path = tmp_path / "proof.html"
    path.write_text(proof_page(rows, [Ops()]), "utf-8")
    page = open_page(path, viewport={"width": 390, "height": 844})
    reached = """() => [...document.querySelectorAll(".wide")].map(
        (box) => (box.scrollWidth > box.clientWidth) === (box.tabIndex === 0))"""
    assert page.evaluate(reached) == [True, True]
    assert page.evaluate("document.querySelector('.wide[role=group]') !== null")
    assert page.locator("main h1").count() == 1


# runs of a comparison, each with a box


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The page of three runs in the order of their lengths, of which the first has a hostile name."""
    folders, lengths = (f"runs/{HOSTILE}", "runs/b", "runs/c"), (20, 40, 60)
    runs = []
    for letter, folder, length in zip("ABC", folders, lengths, strict=True):
        lines = [{"step": step, "mlm_loss": 6 - 0.01 * step} for step in range(1, length + 1)]
        lines += [{"step": step, "held_out_loss": 5.0} for step in range(10, length + 1, 10)]
        runs.append(ComparedRun(letter, Path(folder), PretrainOptions(steps=length), lines, None))
    return Comparison(runs, "step").write(tmp_path_factory.mktemp("compared") / "page.html")


def counts(page):
    """How many lines and dots of each run can be seen, in each picture."""
    seen = """(picture) => [0, 1, 2].map((run) => [...picture.querySelectorAll(`.run${run}`)].filter(
        (one) => one.checkVisibility() && one.getBoundingClientRect().width).length)"""
    return [page.locator("svg[role=img]").nth(number).evaluate(seen) for number in range(2)]


ALL_SEEN = [[1, 1, 1], [3, 5, 7]]  # training loss; held-out loss, with a dot for each evaluation


def test_a_run_whose_box_is_cleared_is_in_no_picture_and_not_told(compared, open_page):
    page = open_page(compared, viewport={"width": 1280, "height": 1600})
    pictures = (
        "[...document.querySelectorAll('svg[role=img] :is(path, circle, text)')].map((one) => one.outerHTML)"
    )
    assert counts(page) == ALL_SEEN
    before = page.evaluate(pictures)
    box = page.get_by_role("checkbox", name="C c")
    box.focus()
    page.keyboard.press("Space")
    assert counts(page) == [[1, 1, 0], [3, 5, 0]]
    page.keyboard.press("Tab")  # to the first picture
    assert readout(page) == "step 40\nB b, smoothed: 5.605"
    page.keyboard.press("End")
    page.keyboard.press("PageUp")
    assert readout(page).startswith("step 40\n")  # no step that only the hidden run has
    page.locator("label").first.click()
    assert counts(page) == [[0, 1, 0], [0, 5, 0]]
    assert page.evaluate(pictures) != before
    box.press("Space")
    page.locator("label").first.click()
    assert counts(page) == ALL_SEEN
    page.keyboard.press("Escape")
    assert page.evaluate(pictures) == before
    page.keyboard.press("Tab")
    assert page.errors == []


def test_without_any_run_nothing_is_told(compared, open_page):
    page = open_page(compared, viewport={"width": 1280, "height": 1600})
    for box in page.get_by_role("checkbox").all():
        box.uncheck()
    assert counts(page) == [[0, 0, 0], [0, 0, 0]]
    page.keyboard.press("Tab")
    for key in ("ArrowLeft", "End", "PageDown"):
        page.keyboard.press(key)
    page.mouse.move(*place(page, 0, 50))
    assert readout(page) == "" and page.errors == []
    page.get_by_role("checkbox", name="B b").check()
    page.mouse.move(*place(page, 0, 51))
    assert readout(page).startswith("step 20\nB b")  # 51 hundredths of an axis of 40 steps
    assert page.errors == []


# What is drawn in a picture: the numbers at both axes, with their places, and the points of visible curves.
DRAWN = """(picture) => {
  const numbers = (kind) => [...picture.querySelectorAll(`.${kind} > g`)].map(
    (one) => `${one.textContent.trim()} ${one.getAttribute("transform")}`);
  const curves = [...picture.querySelectorAll("path[data-name], circle")];
  const points = curves.filter((one) => one.checkVisibility()).map(
    (one) => one.getAttribute("d") || `${one.getAttribute("cx")} ${one.getAttribute("cy")}`);
  return [numbers("heights"), numbers("places"), points.join(" ").match(/[\\d.]+/g).map(Number)];
}"""
# Losses of three runs: the first is far above the others, goes on for longer, and its last value is tiny.
LENGTHS = {"A": 300, "B": 150, "C": 7}
RUNS = {letter: np.arange(1, length + 1) for letter, length in LENGTHS.items()}
RISES = {
    "A": 90 - 0.299 * RUNS["A"], "B": 3 + np.sin(RUNS["B"]) / 10, "C": np.full(LENGTHS["C"], 2.5),
}  # fmt: skip


def comparison_of(letters, path):
    """Write the page of some of the runs, whose curves keep their places among all."""
    runs = []
    for letter, place in zip(letters, "ABC", strict=False):
        lines = [{"step": int(s), "mlm_loss": v} for s, v in zip(RUNS[letter], RISES[letter], strict=True)]
        lines += [{"step": int(s), "held_out_loss": 2 * RISES[letter][s - 1]} for s in RUNS[letter][4::40]]
        runs.append(ComparedRun(place, Path(letter), PretrainOptions(steps=LENGTHS[letter]), lines, None))
    return Comparison(runs, "step").write(path)


@pytest.mark.parametrize("letters", ["BC", "AC", "C"])
def test_axes_fit_the_runs_that_are_shown_as_on_a_page_of_these(letters, open_page, tmp_path):
    page = open_page(comparison_of("ABC", tmp_path / "all.html"))
    boxes = page.get_by_role("checkbox")
    boxes.nth(1).uncheck()
    boxes.nth(1).check()
    for number, letter in enumerate("ABC"):
        boxes.nth(number).set_checked(letter in letters)
    alone = open_page(comparison_of(letters, tmp_path / "alone.html"))
    for number in range(2):
        *axes, points = page.locator("svg[role=img]").nth(number).evaluate(DRAWN)
        *expected_axes, expected = alone.locator("svg[role=img]").nth(number).evaluate(DRAWN)
        assert axes == expected_axes
        np.testing.assert_allclose(points, expected, atol=0.2)
    assert page.errors == alone.errors == []


def test_runs_are_hidden_without_scripts(compared, open_page):
    page = open_page(compared, java_script_enabled=False)
    dots = page.locator("circle.run1")
    assert dots.first.is_visible() and dots.count() == 4
    page.get_by_role("checkbox", name="B b").uncheck()
    assert not any(dot.is_visible() for dot in dots.all())
    assert page.locator("circle.run2").first.is_visible()
    page.get_by_role("checkbox", name="B b").check()
    assert dots.first.is_visible()


def test_hostile_names_of_runs_are_text_in_the_legend(compared, open_page):
    page = open_page(compared, viewport={"width": 1280, "height": 1600})
    label = page.locator("label").first
    assert label.inner_text().strip() == f"A {HOSTILE}"
    assert label.get_attribute("title") == f"runs/{HOSTILE}"
    page.mouse.move(*place(page, 0, 10))
    assert f"A {HOSTILE}, smoothed: " in readout(page) or f"A {HOSTILE}: " in readout(page)
    assert page.locator("svg[onload]").count() == 0
    assert page.evaluate("window.hacked") is None and page.errors == []


@pytest.mark.parametrize("width", [390, 1280])
def test_a_comparison_fits_its_window(width, compared, open_page):
    page = open_page(compared, viewport={"width": width, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_of_runs_have_contrast(scheme, compared, open_page):
    page = open_page(compared, color_scheme=scheme)
    page.get_by_role("checkbox", name="B b").uncheck()
    assert page.evaluate(FAINT) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_that_wcag_asks_for(scheme, path, open_page):
    page = open_page(path, color_scheme=scheme)
    page.keyboard.press("Tab")
    assert page.evaluate(FAINT) == []
    page.add_style_tag(content=".faint { color: #999 !important; background: #888 }")  # what it would find
    assert len(page.evaluate(FAINT)) >= 2
