"""The model card: what it says of each kind of run, and what it keeps to itself."""

import json
import re
from pathlib import Path

import pytest

from minibert.base.errors import InputError
from minibert.core.config import BertConfig
from minibert.model.head_kinds import KINDS
from minibert.reports.card import PURPOSES, Exported, is_minibert_card, model_card

CONFIG = BertConfig(7, 6, 2, 3, 5, max_position_embeddings=8)
HELD_OUT = {
    "loss": 3.5,
    "targets": 20015,
    "unigram": 6.25,
    "text_unigram": 6.5,
    "shuffled_loss": 5.5,
    "perplexity": 33.1,
    "accuracy": 0.369,
    "next_accuracy": 0.91,
    "next_majority": 0.52,
}
LENGTH = {"steps": 1200, "tokens": 64000, "training_seconds": 462.0}
TUNED = LENGTH | {
    "title": "SST-2: is the film review good",
    "metric": "accuracy",
    "page": "report.html",
    "folder": "runs/x",
    "examples": 872,
    "seed": 4,
    "learning_rate": 5e-5,
    "best_epoch": 2,
    "seconds": 70.0,
    "scores": {"accuracy": 0.91},
    "interval": [0.89, 0.93],
}


def pretrained(folder, **options):
    base = {"corpus": [], "learning_rate": 1e-3, "batch_size": 64}
    (folder / "training.json").write_text(json.dumps(base | {"next_sentence": True} | options))
    report = LENGTH | {"held_out": HELD_OUT, "trained_length": 128}
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def tuned(folder, **report):
    (folder / "finetune.json").write_text(json.dumps({"model": "/somewhere/mine/books"}))
    (folder / "report.json").write_text(json.dumps(TUNED | report))
    return folder


def header(card):
    """The fields above the card, each as JSON in a line of YAML."""
    lines = card.split("---\n")[1].splitlines()
    return {name: json.loads(value) for name, value in (line.split(": ", 1) for line in lines)}


def test_a_pre_training_card_sets_its_loss_in_proportion(tmp_path):
    card = model_card(pretrained(tmp_path), Exported("books-bert", CONFIG, 1_500_000, "pretraining"))
    assert "Text: 16 English books in the public domain" in card
    assert "1,200 steps, 64,000 tokens, 7.7 minutes" in card and "1.5M parameters" in card
    for row in (
        "loss, nats | 3.500",
        "without context | 6.250",
        "shuffled | 5.500",
        "frequent answer | 52.0%",
    ):
        assert f"{row} |" in card
    assert 'pipeline("fill-mask", "books-bert")' in card and "minibert fill-mask --model books-bert" in card
    assert "It has seen no sequence of more than 128 tokens." in card
    found = header(card)
    assert (found["pipeline_tag"], found["library_name"]) == ("fill-mask", "transformers")
    metrics = found["model-index"][0]["results"][0]["metrics"]
    assert metrics == [{"type": "perplexity", "value": 33.1}, {"type": "accuracy", "value": 0.369}]


def test_the_card_of_a_fine_tuned_model_has_interval_and_majority(tmp_path):
    run = tuned(
        tmp_path,
        baselines={"before training": {"accuracy": 0.25}},
        interval=[0.45, 0.6],
        scores={"accuracy": 0.5},
        macro_f1=0.4,
        majority={"label": "a|b", "scores": {"accuracy": 0.5}, "macro_f1": 0.33},
    )
    card = model_card(run, Exported("x", CONFIG, 1_500_000, "classify", ("a|b", "`c`")))
    assert "Task: SST-2: is the film review good." in card and "the weights of `books`" in card
    assert r"|  | model | always 'a\|b' |" in card and "| accuracy | 50.00 | 50.00 |" in card
    assert "On 872 examples of dev. accuracy, 95% of bootstrap samples: 45.00 to" in card
    assert "before training: accuracy 25.00." in card
    assert "45.00 to 60.00" in card and "Not better than always answering" in card
    assert "Its outputs are `a|b`, `'c'`." in card
    assert header(card)["pipeline_tag"] == "text-classification"


def test_a_card_has_the_last_part_of_a_path_only(tmp_path, monkeypatch):
    home = tmp_path / "home" / "jdoe"
    monkeypatch.setenv("HOME", str(home))
    run = pretrained(tmp_path, corpus=[str(home), str(home / "letters")], model=str(home / "runs" / "first"))
    card = model_card(run, Exported("x", CONFIG, 1_500_000, "pretraining"))
    assert "Text: a folder, `letters`." in card and "weights of `first`" in card
    assert (
        "In this training, it has seen no sequence of more than 128 tokens." in card
    )  # before, perhaps longer
    assert "jdoe" not in card and str(tmp_path) not in card


def test_a_run_that_is_not_finished_has_no_figures(tmp_path):
    for make, file in ((pretrained, "training.json"), (tuned, "finetune.json")):
        (make(tmp_path) / "report.json").unlink()
        card = model_card(tmp_path, Exported("x", CONFIG, 1_500_000, "pretraining"))
        assert "Its training was not finished" in card and "## Results" not in card
        (tmp_path / file).unlink()
    step = Exported("x", CONFIG, 9, "pretraining", is_step=True)
    assert "## Results" not in model_card(pretrained(tmp_path), step)
    (tmp_path / "training.json").unlink()
    assert "What it learnt from is not known" in model_card(
        tmp_path, Exported("x", CONFIG, 1_500_000, "none")
    )


def test_every_head_that_is_stored_has_a_purpose():
    encoders = {"cosine", "contrastive"}  # of which the encoder is all that is left
    assert {*KINDS} - encoders <= {*PURPOSES}


@pytest.mark.parametrize(
    ("about", "told", "library"),
    [
        (
            Exported("x", CONFIG, 1_500_000, "span"),
            "minibert answer --model x",
            "transformers",
        ),
        (
            Exported("x", CONFIG, 1_500_000, "choice"),
            "minibert predict --data DIR --out answers --model x",
            "transformers",
        ),
        (Exported("x", CONFIG, 1_500_000, "tag", for_transformers=False), "minibert tag --model x", None),
        (
            Exported("x", CONFIG, 1_500_000, "none", pool="mean"),
            'SentenceTransformer("x")',
            "sentence-transformers",
        ),
    ],
)
def test_how_to_use_it_goes_by_its_head(tmp_path, about, told, library):
    card = model_card(Path(tmp_path), about)
    assert told in card and header(card).get("library_name") == library
    assert "{name}" not in card and not re.search(r"\n\n\n", card)


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress", "none"])
def test_a_model_of_pairs_is_asked_about_two_texts(tmp_path, kind):
    card = model_card(tmp_path, Exported("x", CONFIG, 9, kind, pair=True))
    if kind == "none":  # whatever it was trained on: a vector is that of a text
        assert 'minibert features --out vectors.npy --model x "a text"\n' in card
    else:
        assert 'minibert classify --model x "a text" "another text"\n' in card
        wanted = 'pipeline("text-classification", "x")({"text": "a text", "text_pair": "another text"})'
        assert wanted in card


def test_a_run_whose_report_has_less_has_a_card_too(tmp_path):
    run = pretrained(tmp_path, model="/old/weights")
    report = json.loads((run / "report.json").read_text())
    for name in ("text_unigram", "next_accuracy", "next_majority"):
        del report["held_out"][name]
    (run / "report.json").write_text(json.dumps(report))
    card = model_card(run, Exported("x", CONFIG, 9, "pretraining"))
    assert "Begun from the weights of `weights`." in card and "loss, nats | 3.500 |" in card
    assert "whole text" not in card and "next-sentence" not in card


@pytest.mark.parametrize("field", [{"held_out": {}}, {"steps": "many"}])
def test_a_damaged_report_is_named(tmp_path, field):
    run = pretrained(tmp_path)
    report = json.loads((run / "report.json").read_text()) | field
    (run / "report.json").write_text(json.dumps(report))
    with pytest.raises(InputError, match=re.escape(f"{run / 'report.json'}")):
        model_card(run, Exported("x", CONFIG, 1_500_000, "pretraining"))


def test_a_card_cut_off_among_its_fields_is_not_one_of_ours():
    card = '---\ntags: ["bert", "minibert"]\npipeline_tag: "fill-mask"\n---\n\n# A model\n'
    assert is_minibert_card(card)
    assert not is_minibert_card(card[:40]) and not is_minibert_card("---\nlicense: mit\n" + card[4:])
