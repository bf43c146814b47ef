"""Pictures in pages of runs answer to a mouse, a finger and arrow keys, as a browser has it."""

import re

import numpy as np
import pytest

from minibert.gradcheck.page import proof_page
from minibert.gradcheck.sheet import Row
from minibert.model.ops import Ops
from minibert.reports.markup import shown
from minibert.reports.page import Facts, page as report
from minibert.reports.results import metric_number
from minibert.reports.viz import smoothed

pytestmark = pytest.mark.slow

NAME = "f1<img src=x onerror=window.hacked=1>"  # of a metric
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_that_wcag_asks_for(scheme, path, open_page):
    page = open_page(path, color_scheme=scheme)
    page.keyboard.press("Tab")
    assert page.evaluate(FAINT) == []
    page.add_style_tag(content=".faint { color: #999 !important; background: #888 }")  # what it would find
    assert len(page.evaluate(FAINT)) >= 2
