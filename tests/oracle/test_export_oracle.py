"""What `minibert export` writes has minibert's numbers in pipelines, sentence-transformers and ONNX."""

import csv
import json
import random

import english_pack
import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from huggingface_hub import ModelCard
from one_text import fill_masks

from minibert import Bert, cli
from minibert.finetuning.frozen.features import Extractor
from minibert.finetuning.run import classify

TEXTS = ["the whale was good", "a poor captain, and a very bad ship", "of the sea"]
QUICK = (
    "--size tiny --steps 20 --vocab-size 600 --seq-length 32 --batch-size 8 --evaluations 1 --quiet --json"
)
CLOSE = {"rtol": 0, "atol": 2e-6}  # float32 on both sides


def command(*words):
    assert cli.main([str(word) for word in words]) == 0


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """A pre-training run, and the folder that is handed on."""
    folder = tmp_path_factory.mktemp("books")
    command("pretrain", "--out", folder / "run", "--threads", 1, *QUICK.split())
    command("export", "--model", folder / "run", "--out", folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def reviews(books, tmp_path_factory):
    """The same of a model for two classes."""
    folder, draw = tmp_path_factory.mktemp("reviews"), random.Random(3)
    for name, count in (("train", 96), ("dev", 32)):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["text", "label"])
            for _ in range(count):
                label, who = draw.choice(["good", "bad"]), draw.choice(["ship", "whale", "captain"])
                rows.writerow([f"the {who} was {label}", label])
    command("finetune", "classify", "--data", folder, "--model", books, "--out", folder / "run", "--quiet")
    command("export", "--model", folder / "run", "--out", folder / "out")
    return folder / "out"


def test_the_pipeline_fill_mask_guesses_what_minibert_does(books):
    theirs = transformers.pipeline("fill-mask", str(books), top_k=8)
    model = Bert.from_pretrained(books)
    for text in ("the heaven and the [MASK].", "[MASK] swam round the ship"):
        (ours,) = fill_masks(model, text, 8)
        found = theirs(text)
        assert [one["token_str"].replace(" ", "") for one in found] == [piece for piece, _ in ours]
        np.testing.assert_allclose([one["score"] for one in found], [chance for _, chance in ours], **CLOSE)


def test_the_pipeline_fill_mask_guesses_what_a_packed_run_does(books, tmp_path):
    english_pack.pack(books.parent / "run", tmp_path / "english")
    theirs = transformers.pipeline("fill-mask", str(tmp_path / "english"), top_k=8, dtype=torch.float32)
    (ours,) = fill_masks(Bert.from_pretrained(tmp_path / "english"), "the heaven and the [MASK].", 8)
    found = theirs("the heaven and the [MASK].")
    assert [one["token_str"].replace(" ", "") for one in found] == [piece for piece, _ in ours]
    np.testing.assert_allclose([one["score"] for one in found], [chance for _, chance in ours], **CLOSE)


def test_the_pipeline_text_classification_has_minibert_s_probabilities(reviews):
    theirs = transformers.pipeline("text-classification", str(reviews), top_k=None)
    for text, ours in zip(TEXTS, classify(reviews, TEXTS), strict=True):
        found = {one["label"]: one["score"] for one in theirs([text])[0]}
        assert found.keys() == ours["probabilities"].keys() == {"good", "bad"}
        np.testing.assert_allclose(
            [found[name] for name in found], [*map(ours["probabilities"].get, found)], **CLOSE
        )


@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_sentence_transformers_makes_minibert_s_vectors(books, tmp_path, pool):
    from sentence_transformers import SentenceTransformer

    command("export", "--model", books, "--out", tmp_path / "out", "--sentence-transformers", pool)
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    ours = Extractor(Bert.from_pretrained(tmp_path / "out"), pool=pool, max_length=32)
    texts = [*TEXTS, "a long " * 40]
    assert theirs.max_seq_length == 32  # what it was trained on
    np.testing.assert_allclose(theirs.encode(texts), [vector for _, vector in ours.stream(texts)], **CLOSE)
    assert ours.cut == 1


@pytest.mark.filterwarnings("ignore")
def test_pytorch_s_export_to_onnx_has_minibert_s_logits(reviews, tmp_path):
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
        reviews, attn_implementation="eager"
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(reviews)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    axes = {name: {0: "texts", 1: "tokens"} for name in names}
    with torch.no_grad():
        torch.onnx.export(
            theirs,
            tuple(inputs[name] for name in names),
            tmp_path / "model.onnx",
            input_names=names,
            output_names=["logits"],
            dynamic_axes=axes,
            dynamo=False,
        )
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for text, ours in zip(TEXTS, classify(reviews, TEXTS), strict=True):
        asked = tokenizer([text], return_tensors="np")
        (logits,) = session.run(None, {name: asked[name].astype(np.int64) for name in names})
        chances = np.exp(logits[0]) / np.exp(logits[0]).sum()
        labels = [theirs.config.id2label[number] for number in range(2)]
        np.testing.assert_allclose(chances, [ours["probabilities"][name] for name in labels], **CLOSE)


@pytest.mark.parametrize("kind", ["books", "reviews"])
def test_the_card_is_one_for_the_hub(kind, request):
    folder = request.getfixturevalue(kind)
    data = ModelCard.load(folder / "README.md").data
    assert data.library_name == "transformers" and "minibert" in data.tags
    assert data.pipeline_tag == {"books": "fill-mask", "reviews": "text-classification"}[kind]
    found = {one.metric_type: one.metric_value for one in data.eval_results}
    report = json.loads((folder.parent / "run" / "report.json").read_text())
    expected = report["scores"] if kind == "reviews" else report["held_out"]
    assert found["accuracy"] == expected["accuracy"]
