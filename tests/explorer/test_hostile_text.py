"""Hostile texts, labels, columns and names in every page, as a browser sees them, and on the terminal."""

import json
import re
import shutil
import string

import pytest
from hostile import NAME, RUNS, TEXTS, controls
from small_tasks import small_config

import minibert
from minibert import cli, hub
from minibert.course import animations
from minibert.course.showing import Sheet, Verdict
from minibert.experiments.comparison import compare
from minibert.explorer import show
from minibert.finetuning.explaining import Explanation, Word
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.gradcheck.page import proof_page
from minibert.gradcheck.sheet import Row
from minibert.model.ops import Ops
from minibert.model.params import initialise
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

pytestmark = pytest.mark.slow

TEXT, LABEL = f'{NAME}"text', f"{NAME}'label"  # names of columns
SHORT = ('"><svg onload=hacked++>', "'><a onblur=hacked++>")  # of runs, which a legend shows whole
FEW = {"engine": "numpy", "threads": 1}
# What no page here has, and attributes that act.
ACTING = r"""() => [
    ...document.querySelectorAll("iframe, object, embed, base, form, link, textarea:not([id])"),
    ...document.querySelectorAll("img:not([src^='data:image/png;base64,'])"),
    ...document.querySelectorAll("meta[http-equiv]:not([http-equiv=Content-Security-Policy])"),
    ...document.querySelectorAll("a[href]:not([href^='#'])"),
    ...[...document.querySelectorAll("*")].filter((one) => [...one.attributes].some(
        ({name, value}) => name.startsWith("on") || name !== "title" && /^\s*javascript:/i.test(value))),
].map((one) => one.outerHTML.slice(0, 200))"""
REORDERING = re.compile("[\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """A folder of a hostile name, with a model of hostile pieces, a fine-tuning and a pre-training."""
    at = tmp_path_factory.mktemp("hostile") / NAME
    pieces = [*SPECIAL_TOKENS, *string.ascii_lowercase, *string.punctuation, *TEXTS[:12], "\u202e", "\u2028"]
    config = small_config(vocab_size=len(pieces), max_position_embeddings=96)
    hub.save_hf(at / "model", config, initialise(config, 0))
    Tokenizer(pieces).save_pretrained(at / "model", config.P)
    write_data(at / "data")
    columns = (("text", TEXT), ("label", LABEL))
    options = FinetuneOptions("classify", at / "data", at / "model", columns=columns, max_steps=3, **FEW)
    finetune(options.resolved(), at / "tuned", show=False)
    for name in ("again", *SHORT):
        shutil.copytree(at / "tuned", at / name)
    corpus = at / f"{NAME}.txt"
    corpus.write_text("\n\n".join(f"{one}\n{two}" for one in WRITTEN for two in WRITTEN), "utf-8")
    options = PretrainOptions(
        corpus=(str(corpus),), vocab=str(at / "model"), seq_length="16", batch_size=2, max_positions=16,
        steps=2, held_out=0.2, size="1-16-1", layout="documents", **FEW,
    )  # fmt: skip
    pretrain(options, at / "pretrained", show=False)
    return at


WRITTEN = [text.encode("utf-8", "replace").decode() for text in TEXTS]  # half of a pair can't be written


def write_data(folder):
    folder.mkdir(parents=True)
    rows = [{TEXT: f"{one} {other}", LABEL: one} for one in TEXTS for other in TEXTS[:3]]
    for split in ("train", "dev"):
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def opened(open_page, html, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(html, "utf-8")
    return open_page(path)


def require_inert(page, frames=0):
    """Nothing of the data has become an element, an attribute, a script or a request."""
    page.wait_for_load_state()
    assert page.evaluate("window.hacked") is None
    acting = page.evaluate(ACTING)
    assert len(acting) == frames and all(one.startswith('<iframe sandbox="') for one in acting), acting
    assert all(url.startswith(("file:", "about:", "data:", "blob:")) for url in page.requests), page.requests
    assert page.errors == []
    assert not REORDERING.search(page.locator("body").inner_text())


def explanation():
    return Explanation(TEXTS[0], 1.0, [Word(text, 0.5) for text in TEXTS], 0.0)


def proof():
    engine = Ops()
    engine.name = TEXTS[3]
    return proof_page([Row(TEXTS[0], engine.name, TEXTS[1], TEXTS[2], 1e-9, 1e-8, TEXTS[4])], [engine])


def sheet():
    return Sheet([Verdict(text, text, "failed", text) for text in TEXTS])._repr_html_()


# Of each page: what makes it in that folder, and how many frames it has.
PAGES = {
    "report of a fine-tuning": (lambda at: (at / "tuned/report.html").read_text("utf-8"), 0),
    "report of a pre-training": (lambda at: (at / "pretrained/report.html").read_text("utf-8"), 0),
    "run in a notebook": (lambda at: minibert.Run.open(at / "tuned")._repr_html_(), 1),
    "comparison": (lambda at: compare([at / "tuned", at / "again"])._page(), 0),
    "comparison in a notebook": (lambda at: compare([at / "tuned", at / "again"])._repr_html_(), 1),
    "comparison by hostile names": (lambda at: compare([at / name for name in SHORT])._page(), 0),
    "explorer": (lambda at: show(at / "tuned", text=WRITTEN[8]).html, 0),
    "explorer in a notebook": (lambda at: show(at / "tuned", text=WRITTEN[8])._repr_html_(), 1),
    "explanation": (lambda at: explanation()._repr_html_(), 0),
    "attention": (lambda at: encoded(at)._repr_html_(), 0),
    "proof sheet": (lambda at: proof(), 0),
    "course: animation": (lambda at: animations.joins(" ".join(WRITTEN))._repr_html_(), 0),
    "course: sheet": (lambda at: sheet(), 0),
}


def encoded(at):
    return minibert.Bert.from_pretrained(at / "model", "numpy").encode(WRITTEN[:4], attentions=True)


@pytest.mark.parametrize("name", PAGES)
def test_hostile_text_is_text_on_every_page(name, at, open_page, tmp_path):
    make, frames = PAGES[name]
    page = opened(open_page, make(at), tmp_path)
    require_inert(page, frames)
    for frame in page.frames[1:]:
        assert frame.evaluate("typeof window.hacked") == "undefined"


def commands(at):
    """Of each command its words."""
    tuned, pretrained, model = (str(at / name) for name in ("tuned", "pretrained", "model"))
    data, never = str(at / "data"), str(at / "never")
    yield "doctor", tuned
    yield "doctor", pretrained
    yield "verify", tuned
    yield "verify", pretrained
    yield "verify", model
    yield "info", "--json"
    yield "compare", tuned, str(at / "again")
    yield "show", tuned, "--out", str(at / "shown.html"), "--text", TEXTS[0]
    yield "export", "--model", tuned, "--out", str(at / "exported")
    yield "evaluate", "--model", tuned, "--data", data
    yield "predict", "--model", tuned, "--data", data, "--out", str(at / "predicted")
    yield "finetune", "--resume", "--out", tuned
    yield "pretrain", "--resume", "--out", pretrained
    for text in WRITTEN[:-1]:
        yield "classify", "--model", tuned, text
    yield "classify", "--model", tuned, "--file", str(at / f"{NAME}.txt")
    yield "tokenize", "--vocab", model, *WRITTEN[:14]
    yield "fill-mask", "--model", pretrained, f"{WRITTEN[0]} [MASK] {WRITTEN[13]}"
    yield "vocab", "--corpus", str(at / f"{NAME}.txt"), "--out", str(at / "vocabulary"), "--size", "60"
    yield "data", str(at / f"{NAME}.txt"), "--vocab", model, "--out", str(at / "shards")
    yield "score-text", "--model", pretrained, WRITTEN[13]
    yield "features", "--model", model, "--out", str(at / "vectors.npy"), WRITTEN[13]
    for wrong in TEXTS:  # names that nothing has
        yield "show", wrong
        yield "classify", "--model", wrong, wrong
        yield "pretrain", "--corpus", wrong, "--out", never, "--engine", wrong
        yield "finetune", wrong, "--data", data, "--model", model, "--out", never
        yield "finetune", "classify", "--data", data, "--model", model, "--out", never, "--column", wrong


def test_no_command_prints_a_character_that_commands_a_terminal(at, capsys):
    for words in commands(at):
        try:
            status = cli.main(list(words))
        except SystemExit as end:
            status = end.code
        said, complained = capsys.readouterr()
        assert controls(said + complained) == [], words
        assert status in (0, 1, 2) and said + complained, words


def test_a_model_card_has_hostile_names_as_text(at, open_page, tmp_path):
    markdown_it = pytest.importorskip("markdown_it")
    out = at / f"{NAME} card"
    assert cli.main(["export", "--model", str(at / "tuned"), "--out", str(out)]) == 0
    _, fields, text = (out / "README.md").read_text("utf-8").split("---\n", 2)
    assert controls(fields + text) == []
    page = opened(open_page, markdown_it.MarkdownIt("commonmark").render(text), tmp_path)
    require_inert(page)
    assert RUNS in page.locator("h1").text_content()
