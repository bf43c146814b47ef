"""`minibert export --onnx`: onnxruntime gives minibert's numbers."""

import json

import numpy as np
import onnxruntime
import pytest

from minibert import Bert, Tokenizer, cli, hub
from minibert.core.config import BertConfig
from minibert.data.choice import ChoiceExample
from minibert.data.glue import TextExample
from minibert.data.ner import TaggedSentence
from minibert.data.squad import Question
from minibert.finetuning.models import Finetuned
from minibert.hub import onnx
from minibert.model.params import PRETRAINING, Head, initialise
from minibert.tasks.stored import TaskFile

LETTERS = [chr(97 + number) for number in range(26)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
CONFIG = BertConfig.from_size("2-32-2", vocab_size=len(VOCAB), max_position_embeddings=24)
TEXTS = ["a b c", "z", "q w e r t y u i o p"]
CLOSE = {"rtol": 0, "atol": 1e-5}


def exported(tmp_path, head, task=None, labels=(), omit=(), *flags):
    params = initialise(CONFIG, 1, head=head)
    params.flat[:] *= 5
    hub.save_hf(tmp_path / "model", CONFIG, params, labels, omit=omit)
    Tokenizer(VOCAB).save_pretrained(tmp_path / "model", CONFIG.P)
    if task:
        TaskFile(task, tuple(labels), 24).save(tmp_path / "model")
    words = ["export", "--model", tmp_path / "model", "--out", tmp_path / "out", "--onnx", *flags]
    assert cli.main([str(word) for word in words]) == 0
    return tmp_path / "out"


def run(folder, texts, pairs=None):
    """What onnxruntime makes of texts, padded to rectangles."""
    encoded = Tokenizer.from_pretrained(folder).encode_batch(texts, pairs)
    length = max(map(len, encoded))
    asked = {name: np.zeros((len(encoded), length), np.int64) for name in onnx.INPUTS}
    for row, one in enumerate(encoded):
        asked["input_ids"][row, : len(one)] = one.ids
        asked["token_type_ids"][row, : len(one)] = one.token_type_ids
        asked["attention_mask"][row, : len(one)] = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, asked), strict=True)), list(map(len, encoded))


@pytest.mark.parametrize(
    ("head", "task", "labels"),
    [
        (Head("classify", 3), "classify", ("a", "b", "c")),
        (Head("multilabel", 3), "multilabel", ("a", "b", "c")),
        (Head("regress", 1), "regress", ()),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_logits_of_texts_are_minibert_s(tmp_path, head, task, labels):
    folder = exported(tmp_path, head, task, labels)
    model = Finetuned.from_pretrained(folder)
    ours = model.outputs(model.features([TextExample("0", text, None, None) for text in TEXTS]))
    np.testing.assert_allclose(run(folder, TEXTS)[0]["logits"], ours, **CLOSE)


def test_hidden_states_and_guesses_are_minibert_s(tmp_path):
    folder = exported(tmp_path, PRETRAINING)
    model = Bert.from_pretrained(folder)
    found, lengths = run(folder, TEXTS)
    rows = np.concatenate([one[:n] for one, n in zip(found["prediction_logits"], lengths, strict=True)])
    np.testing.assert_allclose(rows, model.masked_lm_logits(TEXTS, range(sum(lengths))), rtol=1e-5, atol=1e-5)
    next_logits = model.next_sentence_logits(TEXTS)
    np.testing.assert_allclose(found["seq_relationship_logits"], next_logits, **CLOSE)


@pytest.mark.parametrize("pooled", [True, False])
def test_bare_encoder_gives_hidden_states(tmp_path, pooled):
    params = initialise(CONFIG, 1)
    lost = ("cls.",) if pooled else ("cls.", "bert.pooler")
    omit = [name for name in hub.to_hf(params) if name.startswith(lost)]
    folder = exported(tmp_path, PRETRAINING, omit=omit)
    encoded = Bert.from_pretrained(folder).encode(TEXTS)
    found, lengths = run(folder, TEXTS)
    rows = np.concatenate([one[:n] for one, n in zip(found["last_hidden_state"], lengths, strict=True)])
    np.testing.assert_allclose(rows, encoded.hidden_states[-1], **CLOSE)
    assert ("pooler_output" in found) == pooled
    if pooled:
        np.testing.assert_allclose(found["pooler_output"], encoded.pooled, **CLOSE)


def test_tags_and_spans_are_minibert_s(tmp_path):
    folder = exported(tmp_path / "tag", Head("tag", 3), "tag", ("O", "B-X", "I-X"))
    model = Finetuned.from_pretrained(folder)
    sentences = [TaggedSentence(tuple(text.split()), None, number) for number, text in enumerate(TEXTS)]
    found, lengths = run(folder, TEXTS)
    words = np.concatenate([one[1 : n - 1] for one, n in zip(found["logits"], lengths, strict=True)])
    np.testing.assert_allclose(words, np.concatenate(model.outputs(model.features(sentences))), **CLOSE)
    folder = exported(tmp_path / "span", Head("span", 2), "qa")
    model = Finetuned.from_pretrained(folder)
    (ours,) = model.outputs(model.features([Question("0", "a b", "c d e", (), None)]))
    found, _ = run(folder, ["a b"], ["c d e"])
    theirs = np.stack([found["start_logits"][0], found["end_logits"][0]], 1)
    np.testing.assert_allclose(theirs, ours, **CLOSE)


def test_choices_are_minibert_s(tmp_path):
    folder = exported(tmp_path, Head("choice", 1), "copa")
    model = Finetuned.from_pretrained(folder)
    (ours,) = model.outputs(model.features([ChoiceExample("0", "a b", "", ("c", "d e f", "z"), None)]))
    encoded = model.tokenizer.encode_batch(["a b"] * 3, ["c", "d e f", "z"])
    length = max(map(len, encoded))
    asked = {name: np.zeros((1, 3, length), np.int64) for name in onnx.INPUTS}
    for row, one in enumerate(encoded):
        asked["input_ids"][0, row, : len(one)] = one.ids
        asked["token_type_ids"][0, row, : len(one)] = one.token_type_ids
        asked["attention_mask"][0, row, : len(one)] = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, asked)[0][0], ours, **CLOSE)


def test_report_says_how_far_the_two_differ(tmp_path, capsys):
    exported(tmp_path, Head("classify", 2), "classify", ("a", "b"), (), "--json")
    facts = json.loads(capsys.readouterr().out)
    assert any("model.onnx differs from transformers by" in note for note in facts["notes"])
    assert facts["written"]["model.onnx"] > 1000


def test_missing_library_is_named_with_the_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(onnx, "find_spec", lambda _: None)
    hub.save_hf(tmp_path / "model", CONFIG, initialise(CONFIG, 1))
    words = ["export", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--onnx"]
    assert cli.main(words) == 2
    assert "pip install '.[onnx]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_model_that_computes_something_else_is_refused(tmp_path, monkeypatch):
    hub.save_hf(tmp_path, CONFIG, initialise(CONFIG, 1))
    monkeypatch.setattr(onnx, "_difference", lambda *_: 2e-5)
    with pytest.raises(RuntimeError, match="differ by 2e-05"):
        onnx.write_onnx(tmp_path)


def test_heads_that_transformers_lacks_are_refused(tmp_path, capsys):
    params = initialise(CONFIG, 1, head=Head("classify", 2, lstm=True))
    hub.save_hf(tmp_path / "model", CONFIG, params, ("a", "b"))
    words = ["export", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--onnx"]
    assert cli.main(words) == 2
    assert "which transformers does not know" in capsys.readouterr().err
