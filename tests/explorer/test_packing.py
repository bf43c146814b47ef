"""What a page holds: rounded weights, tables of Unicode, and data that no browser takes for anything else."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest

from minibert import Bert, hub
from minibert.base.errors import InputError
from minibert.core.config import BertConfig
from minibert.explorer import packing, page, show
from minibert.model.params import Head, initialise
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer, unicode

HOSTILE = ["</script><script>alert(1)</script>", "<!--", "\u202e", "\0", "__proto__", "&lt;", "'\"", "\u2028"]


def write(folder, vocab, head=None, labels=(), seed=0, **fields):
    """A tiny model with any vocabulary."""
    shape = {"vocab_size": len(vocab), "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(**shape | {"intermediate_size": 16, "max_position_embeddings": 16} | fields)
    hub.save_hf(folder, config, initialise(config, seed, **({"head": head} if head else {})), labels)
    Tokenizer(vocab).save_pretrained(folder, config.P)
    return folder


class Scripts(HTMLParser):
    """What a browser takes for scripts, and for text."""

    def __init__(self, text):
        super().__init__()
        self.found, self.types, self.tags = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "script":
            self.types.append(dict(attributes).get("type"))
            self.found.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1] == "script":
            self.found[-1] += data


@pytest.fixture
def model(tmp_path):
    return write(tmp_path / "model", [*SPECIAL_TOKENS, "a", "##b"])


@pytest.mark.parametrize("shape", [(7, 5), (1, 1), (5,)])
def test_float16_is_numpys(shape):
    tensor = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    packed = packing.packed_tensor(tensor, int8=False)
    assert packed["shape"] == list(shape) and packed["kind"] == "f16"
    assert np.array_equal(packing.unpacked(packed), tensor.astype(np.float16).astype(np.float32))


def test_int8_is_off_by_half_a_step_of_its_row_at_most():
    tensor = np.random.default_rng(0).normal(size=(9, 33)).astype(np.float32) * np.arange(9)[:, None]
    packed = packing.packed_tensor(tensor, int8=True)
    step = np.abs(tensor).max(1) / 127
    error = np.abs(packing.unpacked(packed) - tensor).max(1)
    assert packed["kind"] == "i8" and np.all(error <= 0.5001 * step) and error[1:].min() > 0
    assert np.array_equal(packing.unpacked(packed)[0], np.zeros(33))  # a row of zeros has no scale


def test_what_float16_can_not_hold_is_its_largest_number():
    tensor = np.array([[1e6, -1e6, 1.0]], np.float32)
    assert packing.unpacked(packing.packed_tensor(tensor, False)).tolist() == [[65504, -65504, 1]]


def test_the_size_is_known_before_anything_is_packed(model):
    one = packing.read_model(model)
    for int8 in (False, True):
        packed = packing.packed_checkpoint(one, int8)
        tensors = packed["tensors"].values()
        exact = sum(len(tensor["data"]) + len(tensor.get("scale", "")) for tensor in tensors)
        assert abs(packing.packed_size(one, int8) - exact) <= 8 * len(tensors)


def test_the_error_is_what_rounding_changed(model):
    one, errors = packing.read_model(model), []
    for int8 in (False, True):
        packed = packing.packed_checkpoint(one, int8)
        pairs = [(one.tensors[name], packing.unpacked(value)) for name, value in packed["tensors"].items()]
        exact, rounded = (np.concatenate([pair[i].ravel() for pair in pairs]) for i in (0, 1))
        errors.append(float(np.linalg.norm(rounded - exact) / np.linalg.norm(exact)))
        assert packed["error"] == pytest.approx(errors[-1], rel=1e-5)
    assert 0 < 10 * errors[0] < errors[1] < 0.01


@pytest.mark.thorough
def test_tables_tell_of_every_character_what_the_product_does():
    basic = Tokenizer(SPECIAL_TOKENS).basic_tokenizer
    tables = packing.packed_tokenizer(Tokenizer(SPECIAL_TOKENS))
    masks = {"deleted": basic.deleted, "space": unicode.SPACE, "punctuation": unicode.PUNCTUATION}
    masks |= {name: getattr(unicode, name.upper()) for name in ("nonspacing", "cased", "case_ignorable")}
    flags = np.array([unicode.flags(code) for code in range(0x110000)])
    for name, mask in masks.items():
        inside = np.searchsorted(np.cumsum(tables["classes"][name]), np.arange(0x110000), side="right") % 2
        assert np.array_equal(inside, flags & mask != 0)
    combining = {}
    for value, steps in tables["combining"].items():
        for first, end in np.cumsum(steps).reshape(-1, 2):
            combining |= dict.fromkeys(range(first, end), int(value))
    assert combining == unicode.data().combining


def test_hostile_vocabulary_labels_and_text_are_inert(tmp_path):
    vocab = [*SPECIAL_TOKENS, *HOSTILE]
    folder = write(tmp_path / "<b>&x", vocab, Head("classify", len(HOSTILE)), HOSTILE)
    plain = write(tmp_path / "plain", [*SPECIAL_TOKENS, *"abcdefgh"], Head("classify", 8), "abcdefgh")
    out = tmp_path / "page.html"
    pages = []
    for source, text in ((plain, "x"), (folder, " ".join(HOSTILE))):
        show(source, text=text).save(out)
        pages.append(out.read_text("utf-8"))
    expected, found = map(Scripts, pages)
    assert found.tags == expected.tags and found.types == expected.types
    number = found.types.index("application/json")
    assert [s for i, s in enumerate(found.found) if i != number] == [
        s for i, s in enumerate(expected.found) if i != number
    ]
    assert found.found[number].isascii() and not {*"<>&"} & {*found.found[number]}
    data = json.loads(found.found[number])
    assert data["vocabulary"] == vocab and data["text"] == [" ".join(HOSTILE), None]
    assert data["checkpoints"][0]["task"]["labels"] == HOSTILE


@pytest.mark.parametrize(
    ("losses", "mean"), [([5.0, 2.0, 4.0], 11 / 3), ([1.0, float("nan")], None), ([], None)]
)
def test_a_loss_is_the_mean_of_finite_ones_or_unknown(tmp_path, losses, mean):
    folder = write(tmp_path / "run", [*SPECIAL_TOKENS, "a"])
    lines = [json.dumps({"step": step, "loss": loss}) for step, loss in enumerate(losses, 1)]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    assert packing.read_model(folder).loss == (None if mean is None else pytest.approx(mean))
    show(folder).save(tmp_path / "page.html")
    scripts = Scripts((tmp_path / "page.html").read_text("utf-8"))
    assert "NaN" not in scripts.found[scripts.types.index("application/json")]


def test_embeddings_beyond_the_vocabulary_have_names_that_no_word_has(tmp_path):
    folder = write(tmp_path / "wide", [*SPECIAL_TOKENS, "a"], vocab_size=8)
    show(folder).save(tmp_path / "page.html")
    scripts = Scripts((tmp_path / "page.html").read_text("utf-8"))
    data = json.loads(scripts.found[scripts.types.index("application/json")])
    assert data["vocabulary"] == [*SPECIAL_TOKENS, "a", "[id 6]", "[id 7]"]


def test_only_what_was_trained_is_in_the_page(tmp_path, model):
    config, params, _ = hub.load(model)
    heads = [name for name in hub.to_hf(params) if name.startswith("cls.")]
    hub.save_hf(tmp_path / "bare", config, params, omit=heads)
    Tokenizer([*SPECIAL_TOKENS, "a", "##b"]).save_pretrained(tmp_path / "bare", 16)
    names = packing.read_model(tmp_path / "bare").tensors
    assert names and not [name for name in names if name.startswith("cls.")]


def test_a_decoder_of_its_own_is_not_in_the_page(model):
    """A page computes the decoder from the word embeddings, and would guess otherwise than the model."""
    with_head = Bert.from_pretrained(model, "numpy")
    assert [name for name in packing.read_model(with_head).tensors if name.startswith("cls.predictions.")]
    with_head.params.decoder = np.zeros_like(with_head.params["embeddings.word"])
    assert not [name for name in packing.read_model(with_head).tensors if name.startswith("cls.predictions.")]


@pytest.mark.parametrize(
    ("head", "what"),
    [(Head("tag", 2, lstm=True), "LSTMs"), (Head("classify", 2, pool="attention"), "windows of long texts")],
)
def test_heads_that_the_scripts_can_not_compute_are_refused(tmp_path, head, what):
    folder = write(tmp_path / "model", [*SPECIAL_TOKENS, "a"], head, "xy")
    with pytest.raises(InputError, match=f"{what}.*; show the model it was tuned from"):
        show(folder).save(tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_models_of_another_shape_or_vocabulary_are_shown_apart(tmp_path, model):
    larger = write(tmp_path / "larger", [*SPECIAL_TOKENS, "a", "##b"], num_hidden_layers=2)
    foreign = write(tmp_path / "foreign", [*SPECIAL_TOKENS, "b", "##b"])
    for other, what in ((larger, "size or head"), (foreign, "vocabulary")):
        message = f"{other.name} has another {what} than model; show them apart"
        with pytest.raises(InputError, match=message):
            show(model, other).save(tmp_path / "page.html")


def test_what_no_page_can_hold_is_refused_with_what_would_fit(tmp_path, model, monkeypatch):
    other = write(tmp_path / "other", [*SPECIAL_TOKENS, "a", "##b"], seed=1)
    half, whole = (packing.packed_size(packing.read_model(model), int8) for int8 in (True, False))
    cases = [
        ([model], whole - 1, "model would take .*; int8=True makes that"),
        ([model], half - 1, "no page can hold model, show a smaller model"),
        ([model, other], 2 * half - 1, "the models would take .*; name at most 1 of them"),
        ([model, other], half - 1, "no page can hold model"),
    ]
    for models, largest, message in cases:
        monkeypatch.setattr(page, "LARGEST", largest)
        with pytest.raises(InputError, match=message):
            show(*models).save(tmp_path / "page.html")
    monkeypatch.setattr(page, "LARGEST", whole)
    assert show(model).save(tmp_path / "page.html") == (tmp_path / "page.html").stat().st_size
