"""The animations of the course in a browser: they play, stop, and follow the slider and the keys."""

import re

import numpy as np
import pytest

from minibert.course import animations

HOSTILE = '</script><script>document.title = "taken"</script> <img src=x onerror=alert(1)> </script>'
PAGE = """<!DOCTYPE html><meta charset="utf-8"><title>safe</title>
<style>:root { color-scheme: light dark }</style>"""
# Frames count, not seconds.
UNTIL = """(wanted) => new Promise((resolve, reject) => {
    const look = (left) => {
        if (Number(document.querySelector("input").value) === wanted) resolve();
        else if (left) requestAnimationFrame(() => look(left - 1));
        else reject(new Error("never shown"));
    };
    look(3000);
})"""


def hill(point):
    """A loss of two parameters, and its gradient."""
    return float(point @ point), 2 * point


def maps():
    """Attention maps of two heads at three steps."""
    rng = np.random.default_rng(0)
    weights = rng.random((3, 2, 2, 4, 4))
    return [(step, one / one.sum(-1, keepdims=True)) for step, one in zip((1, 3, 5), weights, strict=True)]


EVERY = {
    "joins": lambda: animations.joins("the other mother, the other brother"),
    "descent": lambda: animations.descent(hill, (1.0, -2.0), ("weight", "bias"), steps=5, rates=(0.1, 0.2)),
    "neighbour_head": lambda: animations.neighbour_head(maps(), np.linspace(0, 1, 5)),
}


@pytest.fixture(params=EVERY)
def animation(request):
    return EVERY[request.param]()


@pytest.fixture
def opened(open_page, tmp_path):
    """Open animations, one after the other on one page."""

    def opened(*shown, **options):
        path = tmp_path / "page.html"
        path.write_text(PAGE + "".join(one._repr_html_() for one in shown), "utf-8")
        return open_page(path, **options)

    return opened


def frame(page):
    return int(page.locator("input").input_value())


def caption(page):
    return page.locator(".caption").text_content()


def drawing(page):
    return page.locator("svg").inner_html()


def press(page, name):
    page.get_by_role("button", name=name).click()


def test_play_shows_every_frame_and_stops_at_the_last(opened, animation):
    page = opened(animation._replace(seconds=0.02))
    last, at_rest = len(animation.captions) - 1, drawing(page)
    assert frame(page) == last and caption(page) == animation.captions[-1]
    page.evaluate("""() => {
        window.seen = [];
        const box = document.querySelector(".caption");
        new MutationObserver(() => seen.push(box.textContent)).observe(box, { childList: true });
    }""")
    press(page, "Play")
    page.evaluate(UNTIL, last)
    assert page.evaluate("seen") == animation.captions
    assert drawing(page) == at_rest
    assert page.get_by_role("button", name="Play").is_visible()
    assert not page.errors and len(page.requests) == 1


def test_pause_keeps_the_frame(opened):
    animation = EVERY["joins"]()
    page = opened(animation._replace(seconds=60))
    before = drawing(page)
    press(page, "Play")
    assert frame(page) == 0 and drawing(page) != before
    press(page, "Pause")
    assert frame(page) == 0 and page.get_by_role("button", name="Play").is_visible()


def test_keys_and_slider_choose_a_frame(opened):
    animation = EVERY["joins"]()
    page = opened(animation)
    last = len(animation.captions) - 1
    for focused in ("input", "button"):
        page.locator(focused).focus()
        for key, expected in (
            ("Home", 0),
            ("ArrowRight", 1),
            ("ArrowLeft", 0),
            ("ArrowLeft", 0),
            ("End", last),
        ):
            page.keyboard.press(key)
            assert frame(page) == expected and caption(page) == animation.captions[expected]
    page.locator("input").fill("1")
    assert caption(page) == animation.captions[1] == page.locator("input").get_attribute("aria-valuetext")


def test_reduced_motion_plays_nothing_by_itself(opened):
    animation = EVERY["joins"]()
    page = opened(animation._replace(seconds=0.02), reduced_motion="reduce")
    press(page, "Next")
    assert frame(page) == 0
    page.evaluate("() => new Promise((resolve) => setTimeout(resolve, 100))")
    assert frame(page) == 0
    press(page, "Next")
    assert frame(page) == 1
    boxes = page.evaluate(
        "[...document.querySelectorAll('rect')].map((one) => getComputedStyle(one).transitionDuration)"
    )
    assert set(boxes) <= {"0s"}


def test_a_browser_without_scripts_shows_the_last_frame(opened, animation):
    still = opened(animation, java_script_enabled=False)
    assert still.locator("svg").is_visible() and still.locator(".controls").is_hidden()
    assert caption(still) == animation.captions[-1]

    # What the script draws of the last frame is what was there before.
    def written(page):
        return re.sub(
            r"(\d+\.\d+)",
            lambda found: f"{float(found[1]):.1f}",
            page.content().partition("<svg")[2].partition("</svg>")[0],
        )

    assert written(still) == written(opened(animation))


def test_it_fits_a_phone_and_has_the_colour_of_the_page(opened, animation):
    page = opened(animation, viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    inks = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ink = page.evaluate("getComputedStyle(document.body).color")
        texts = "[...document.querySelectorAll('svg text:not([fill])')]"
        fills = page.evaluate(f"{texts}.map((one) => getComputedStyle(one).fill)")
        assert len(fills) > 5 and set(fills) == {ink}
        inks.add(ink)
    assert len(inks) == 2
    # Nothing is drawn outside of the picture.
    outside = page.evaluate("""() => {
        const all = document.querySelector("svg").getBoundingClientRect();
        return [...document.querySelectorAll("svg > *")].filter((one) => {
            const box = one.getBoundingClientRect();
            const isInside = box.left >= all.left - 1 && box.right <= all.right + 1;
            return !isInside || box.top < all.top - 1 || box.bottom > all.bottom + 1;
        }).map((one) => one.outerHTML);
    }""")
    assert outside == []


def test_two_on_a_page_play_apart(opened):
    both = [EVERY[name]() for name in ("joins", "descent")]
    page = opened(*(one._replace(seconds=60) for one in both))
    page.get_by_role("button", name="Play").first.click()
    values = [page.locator("input").nth(i).input_value() for i in range(2)]
    assert values == ["0", str(len(both[1].captions) - 1)]
    assert not page.errors


def test_hostile_text_runs_nothing(opened):
    page = opened(animations.joins(HOSTILE))
    assert page.title() == "safe" and page.locator("img").count() == 0
    assert len(page.requests) == 1 and not page.errors
    page.locator("input").focus()
    page.keyboard.press("Home")
    assert caption(page).startswith("Every word as its letters")
    assert page.title() == "safe" and page.locator("script").count() == 2
