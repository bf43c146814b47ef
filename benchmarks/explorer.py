"""The explorer in Chromium: the size of a page, what a keystroke takes, and frames while a pointer moves.

    python benchmarks/explorer.py [--model FOLDER] [--int8] [--pieces 32] [--size 12-192-12] [--quick]
        [--json]

Two pages are opened from files with the network off: that of a model, `make pretrain`'s or the one given, and
that of a random model of `--size`. A keystroke is timed from the event to the frame that shows what came of
it, drawn; of the text's words another one changes each time, without a pause and after one of half a second,
when the whole page has been laid out again. While the pointer moves over the matrix of a
head, one place for each frame, what passes between frames is noted: 30 a second are 33 ms. The random model
has a text of 128 pieces, the most that a page takes.
"""

import argparse
import json
import platform
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from peers.bench import ended
from playwright.sync_api import Browser, Page, sync_playwright

from minibert import BertConfig, Tokenizer, hub
from minibert.base.errors import InputError
from minibert.base.machine import cores
from minibert.explorer import show
from minibert.model.params import initialise
from minibert.tokenizer import SPECIAL_TOKENS

MODEL = "runs/books"
LONGEST = 128  # pieces of a page
ROUNDS, QUICK_ROUNDS = 40, 8
FRAMES, QUICK_FRAMES = 120, 20

# The page's own tools; each resolves to milliseconds. A message comes after the frame was drawn.
DRAWN = """
const drawn = () => new Promise((resolve) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
}));
const box = document.getElementById("text-a");
const type = async (text) => {
    box.value = text;
    const began = performance.now();
    box.dispatchEvent(new Event("input"));
    await drawn();
    return performance.now() - began;
};
"""
TYPE = (
    "async ({text, words, rounds}) => {"
    + DRAWN
    + """
    await type(text);
    const times = [];
    const paused = [];
    for (let i = 0; i < 1.25 * rounds; i++) {
        if (i >= rounds) await new Promise((resolve) => setTimeout(resolve, 500));
        (i < rounds ? times : paused).push(await type(`${text} ${words[i % words.length]}`));
    }
    return {times, paused, pieces: explorer.scene.n};
}"""
)
HOVER = (
    "async ({text, frames}) => {"
    + DRAWN
    + """
    await type(text);
    const matrix = document.getElementById("matrix");
    const {left, top, width, height} = matrix.querySelector("canvas").getBoundingClientRect();
    const times = [];
    let before = null;
    for (let i = 0; i <= frames; i++) {
        const now = await new Promise(requestAnimationFrame);
        if (before !== null) times.push(now - before);
        before = now;
        const clientX = left + width * (0.2 + 0.7 * (i % 17) / 17);
        const clientY = top + height * (0.2 + 0.7 * (i % 23) / 23);
        matrix.dispatchEvent(new PointerEvent("pointermove", {clientX, clientY, bubbles: true}));
    }
    return {times, pieces: explorer.scene.n};
}"""
)


def random_model(folder: Path, size: str) -> Path:
    """A model that has learnt nothing, whose vocabulary is w0, w1, ..."""
    words = [f"w{number}" for number in range(8192 - len(SPECIAL_TOKENS))]
    config = BertConfig.from_size(size, vocab_size=8192, max_position_embeddings=LONGEST)
    hub.save_hf(folder, config, initialise(config, 0))
    Tokenizer([*SPECIAL_TOKENS, *words]).save_pretrained(folder, config.P)
    return folder


def opened(browser: Browser, path: Path) -> Page:
    """Open a page, offline."""
    page = browser.new_context(offline=True, viewport={"width": 1280, "height": 900}).new_page()
    page.goto(path.resolve().as_uri())
    return page


def measure(
    page: Page, path: Path, words: list[str], pieces: int, rounds: int, frames: int
) -> dict[str, Any]:
    """Size, milliseconds of a keystroke and between frames, medians and the slowest tenth of each."""
    text = " ".join((words * LONGEST)[: pieces - 3])  # and one word more, [CLS], [SEP]
    typed = page.evaluate(TYPE, {"text": text, "words": words, "rounds": rounds})
    hovered = page.evaluate(HOVER, {"text": text, "frames": frames})
    return {
        "MB": round(path.stat().st_size / 1e6, 2),
        "pieces": typed["pieces"],
        "keystroke, ms": _summary(typed["times"]),
        "after a pause, ms": _summary(typed["paused"]),
        "between frames, ms": _summary(hovered["times"]),
    }


def _summary(times: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(times), 1),
        "slowest tenth": round(statistics.quantiles(times, n=10)[-1], 1),
    }


def main() -> int:
    """Measure, and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=MODEL, help=f"folder of a run or a BERT (default: {MODEL})")
    parser.add_argument("--int8", action="store_true", help="its weights in 8 bits")
    parser.add_argument("--pieces", type=int, default=32, help="of the text that the model is shown")
    parser.add_argument("--size", default="12-192-12", help="of the random model")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    if not 4 <= given.pieces <= LONGEST:
        parser.error(f"--pieces {given.pieces} is not a number from 4 to {LONGEST}.")
    if not (chromium := shutil.which("chromium")):
        raise InputError("There is no chromium on the PATH; install it.")
    times = (QUICK_ROUNDS, QUICK_FRAMES) if given.quick else (ROUNDS, FRAMES)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        found = {}
        models = [
            (given.model, given.int8, ["the", "of", "and", "to", "in"], given.pieces),
            (
                random_model(Path(folder) / f"random {given.size}", given.size),
                False,
                ["w1", "w2", "w3"],
                LONGEST,
            ),
        ]
        for model, int8, words, pieces in models:
            path = Path(folder) / "page.html"
            show(model, int8=int8).save(path)
            found[Path(model).name] = measure(opened(browser, path), path, words, pieces, *times)
        version = browser.version
        browser.close()
    if given.json:
        print(json.dumps(found))
        return 0
    print(f"{platform.machine()}, {cores()} cores, Chromium {version}; medians (slowest tenth).")
    for name, figures in found.items():
        size, count, *measured = figures.values()
        key, later, frame = (f"{one['median']:.1f} ({one['slowest tenth']:.1f}) ms" for one in measured)
        keys = f"{count} pieces: a keystroke {key}, after a pause {later}"
        print(f"{name}: {size:.1f} MB; {keys}, a frame {frame}")
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
