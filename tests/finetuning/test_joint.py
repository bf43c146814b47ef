"""Joint training: several tasks learnt as one, with the answers of the first."""

import dataclasses
import json
import shutil

import pytest
from paths import ROOT
from small_tasks import report_in, reviews, small_options, write_table

from minibert.base.errors import InputError
from minibert.data import squad, trivia
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import read_labelled
from minibert.finetuning.run import evaluate, finetune
from minibert.reports.results import report_text
from minibert.tasks import registry

FIXTURES = ROOT / "tests" / "fixtures" / "tasks"


def read(task, data, also, **more):
    """The training examples of a run, and its `TaskData`."""
    options = FinetuneOptions(task, data, "m", also=also, **more)
    return read_labelled(registry.create(task), options)


@pytest.fixture(scope="module")
def snli(tmp_path_factory):
    """A small SNLI, which is divided as `stand_ins` has it: the file test.txt is what is learnt from."""
    folder = tmp_path_factory.mktemp("data") / "snli"
    pairs = list(zip(reviews(60, 11), reviews(60, 12), strict=True))
    rows = [(one, other, "0" if a == b else "12"[n % 2]) for n, ((one, a), (other, b)) in enumerate(pairs)]
    for name in ("test.txt", "dev.txt"):
        write_table(folder / name, rows[0], rows[1:])
    return folder


# what is learnt from


def test_of_mnli_what_does_not_follow_is_not_entailed_for_rte(rte):
    alone, _ = read("rte", rte, ())
    train, data = read("rte", rte, {"mnli": FIXTURES / "MNLI"})
    assert train[: len(alone)] == alone
    more = train[len(alone) :]
    assert [one.label for one in more] == [
        "entailment",
        "not_entailment",  # neutral
        "not_entailment",  # contradiction
        "not_entailment",  # contradiction
        "entailment",
        "not_entailment",  # neutral
    ]
    assert more[0][1:3] == ("The baker opened her shop.", "The shop was open.")
    assert data.labels == ("entailment", "not_entailment")
    assert data.train_tasks == {"rte": 40, "mnli": 6}


def test_scores_of_sick_are_brought_to_the_scale_of_sts_b(tmp_path):
    for split in ("train", "dev"):
        header = "index genre filename year old_index source1 source2 sentence1 sentence2 score".split()
        own = [(str(n), "g", "f", "2012", "1", "s", "s", "a film", "the film", f"{n}.0") for n in range(6)]
        write_table(tmp_path / "STS-B" / f"{split}.tsv", header, own)
    header = "pair_ID sentence_A sentence_B relatedness_score entailment_judgment".split()
    pairs = [(str(n), "a play", "the play", str(score), "NEUTRAL") for n, score in enumerate((1, 3, 5.0))]
    for split in ("train", "trial"):
        write_table(tmp_path / "sick" / f"SICK_{split}.txt", header, pairs)
    train, _ = read("stsb", tmp_path, {"sick-score": tmp_path / "sick"})
    assert [one.label for one in train] == [0, 1, 2, 3, 4, 5, 0, 2.5, 5]
    train, _ = read("sick-score", tmp_path / "sick", {"stsb": tmp_path})
    assert [one.label for one in train[3:]] == pytest.approx([1, 1.8, 2.6, 3.4, 4.2, 5])


def test_squad_is_learnt_with_triviaqa(tmp_path):
    for split in ("train", "dev"):
        shutil.copy(FIXTURES / "squad" / "train-v1.1.json", tmp_path / f"{split}-v1.1.json")
    path = FIXTURES / "triviaqa" / "qa" / "wikipedia-train.json"
    train, data = read("squad1", tmp_path, {"triviaqa": FIXTURES / "triviaqa"})
    own, theirs = squad.read(tmp_path / "train-v1.1.json"), trivia.read(path)
    assert train == own + theirs and data.train_tasks == {"squad1": len(own), "triviaqa": len(theirs)}
    assert data.dev_examples == own


def test_examples_of_other_tasks_are_drawn_without_those_of_the_first(rte, snli):
    train, data = read("rte", rte, {"snli": snli, "mnli": FIXTURES / "MNLI"}, also_examples=5)
    assert data.train_tasks == {"rte": 40, "snli": 5, "mnli": 5}
    every, _ = read("rte", rte, {"snli": snli})
    assert set(train[40:45]) < set(every[40:]) and len(every) == 100
    assert read("rte", rte, {"snli": snli}, train_examples=7)[1].train_tasks == {"rte": 7, "snli": 60}


def test_documents_of_two_files_stay_apart(tmp_path):
    for name, word in (("a", "Ham"), ("b", "Rain")):
        for split in ("train", "testa"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"eng.{split}").write_text(f"{word} NNP I-NP I-LOC\n\n{word} NN I-NP O\n")
    train, _ = read("ner", tmp_path / "a", {"ner": tmp_path / "b"})
    assert [(one.words[0], one.document) for one in train] == [
        ("Ham", 0),
        ("Ham", 0),
        ("Rain", 2),
        ("Rain", 2),
    ]


@pytest.mark.parametrize(
    ("task", "other", "message"),
    [
        (
            "rte",
            "sst2",
            "also={'sst2': .* rte can be trained together only with .*; name one of mnli, mnli-mm, rte",
        ),
        ("rte", "mnlii", "also={'mnlii': "),
        (
            "mnli",
            "rte",
            "mnli can be trained together only with .* name one of mnli, mnli-mm, ax, snli, sick.",
        ),
        ("cola", "mrpc", "only with .*; there is none but itself, so name cola again or leave it out."),
        ("stsb-similarity", "similar-pairs", "also={'similar-pairs': "),  # which has no scores
    ],
)
def test_tasks_with_other_answers_are_refused(rte, task, other, message, monkeypatch):
    monkeypatch.setattr("minibert.finetuning.preparation.read_examples", lambda *_: ([1], [1]))
    with pytest.raises(InputError, match=message):
        read(task, rte, {other: rte})


# a run


def test_a_joint_run_measures_its_own_task_and_tells_the_shares(model, rte, snli, tmp_path, capsys):
    options = small_options(model, rte, "rte", epochs=1, also={"snli": snli}, also_examples=50)
    report = finetune(options, tmp_path, show=True)
    shares = "90 training examples (40 of rte, 50 of snli)"
    assert f"{shares}, 40 in dev" in capsys.readouterr().err
    assert report["train_tasks"] == {"rte": 40, "snli": 50} and report["train_examples"] == 90
    assert report["examples"] == 40 and report["steps"] == 6  # of 16 examples
    assert sum(report["train_classes"].values()) == 90
    assert f"\n{shares}.\n" in report_text(report)
    page = (tmp_path / "report.html").read_text()
    assert f"{shares}." in page and "snli=snli" in page and str(snli) not in page
    assert FinetuneOptions.load(tmp_path / "finetune.json") == dataclasses.replace(options.resolved())
    assert evaluate([tmp_path], engine="numpy")["scores"] == report["scores"]


@pytest.mark.thorough
def test_a_joint_run_goes_on_to_the_same_bytes_with_the_same_data_alone(model, rte, snli, tmp_path):
    copy = shutil.copytree(snli, tmp_path / "snli")
    options = small_options(model, rte, "rte", epochs=1, also={"snli": copy}, checkpoint_steps=2)
    whole = finetune(options, tmp_path / "whole", show=False)

    def stop(step, _):
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune(options, tmp_path / "run", show=False, on_log=stop)
    lines = (copy / "test.txt").read_text().splitlines(keepends=True)
    (copy / "test.txt").write_text("".join([*lines[1:], lines[0]]))
    with pytest.raises(InputError, match="is not what the run in .* began with"):
        finetune(options, tmp_path / "run", resume=True, show=False)
    (copy / "test.txt").write_text("".join(lines))
    report = finetune(options, tmp_path / "run", resume=True, show=False)
    assert report["crc32"] == whole["crc32"] and report["train_tasks"] == {"rte": 40, "snli": 60}
    assert json.loads((tmp_path / "run" / "finetune.json").read_text())["also"] == [["snli", str(copy)]]
    assert report_in(tmp_path / "run")["steps"] == 7
