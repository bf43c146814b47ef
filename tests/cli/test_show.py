"""`minibert show`: what it prints and writes, and the sentences for what can't be shown."""

import json

import pytest
from small_corpus import write_corpus
from small_tasks import write_model

from minibert.cli import main
from minibert.model.params import Head


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "small")


def data_of(path):
    before, _, rest = path.read_text("utf-8").partition('<script type="application/json" id="data">')
    assert before.startswith("<!DOCTYPE html>")
    return json.loads(rest.partition("</script>")[0])


def test_a_page_has_the_model_and_the_text(folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["show", str(folder), "--text", "a [MASK]", "--text-pair", "b", "--out", str(out)]) == 0
    size = out.stat().st_size
    assert capsys.readouterr().out == f"{size / 1e6:.1f} MB: {out}\n"
    data = data_of(out)
    assert data["text"] == ["a [MASK]", "b"] and data["title"] == "small"
    [checkpoint] = data["checkpoints"]
    assert (checkpoint["name"], checkpoint["step"], checkpoint["loss"]) == ("small", None, None)
    assert {tensor["kind"] for tensor in checkpoint["tensors"].values()} == {"f16"}


def test_a_page_without_a_name_is_called_like_its_model(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["show", str(folder)]) == 0
    assert capsys.readouterr().out.endswith(" MB: small.html\n")
    assert data_of(tmp_path / "small.html")["title"] == "small"


def test_json_has_the_same_facts(folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["show", str(folder), "--int8", "--json", "--out", str(out)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == {"out": str(out), "bytes": out.stat().st_size, "models": [str(folder)]}
    assert {tensor["kind"] for tensor in data_of(out)["checkpoints"][0]["tensors"].values()} == {"f16", "i8"}


def test_checkpoints_of_a_run_have_their_steps_and_losses(tmp_path, capsys):
    corpus, run, out = write_corpus(tmp_path / "text.txt"), tmp_path / "run", tmp_path / "page.html"
    options = "--size 1-8-2 --steps 4 --save-every 2 --keep 0 --vocab-size 60 --seq-length 16 --quiet"
    assert main(["pretrain", str(corpus), "--out", str(run), *options.split(), "--batch-size", "4"]) == 0
    capsys.readouterr()
    assert main(["show", f"{run}@0", f"{run}@2", str(run), "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith("3 models, ")
    checkpoints = data_of(out)["checkpoints"]
    assert [(one["name"], one["step"]) for one in checkpoints] == [("run@0", 0), ("run@2", 2), ("run", None)]
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    losses = [line["loss"] for line in lines if "loss" in line]
    means = [None, sum(losses[:2]) / 2, sum(losses) / len(losses)]
    assert [one["loss"] for one in checkpoints] == [None, *map(pytest.approx, means[1:])]
    weights = [one["tensors"]["bert.encoder.layer.0.output.dense.weight"]["data"] for one in checkpoints]
    assert len({*weights}) >= 2


@pytest.mark.parametrize(
    ("head", "labels", "task"),
    [(Head("classify", 2), ("bad", "good"), "classify"), (Head("span", 2), (), "span")],
    ids=["classify", "span"],
)
def test_a_fine_tuned_model_has_its_task_and_an_example(tmp_path, head, labels, task):
    model = write_model(tmp_path / "tuned", head, labels=labels)
    assert main(["show", str(model), "--out", str(tmp_path / "page.html")]) == 0
    data = data_of(tmp_path / "page.html")
    assert data["checkpoints"][0]["task"] == {"kind": task, "labels": list(labels)}
    assert bool(data["text"][0]) and (data["text"][1] is not None) == (task == "span")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "--out", "x.html"], "There is no folder 'nowhere'"),
        (["{model}@7", "--out", "x.html"], "has no checkpoint of step '7'"),
        (["{model}", "--text-pair", "b", "--out", "x.html"], "--text-pair b is the second of two texts"),
        (["{model}", "--text", "{model}/vocab.txt", "--out", "x.html"], "is a file, but a text is expected"),
        (["{model}", "--out", "{model}"], "is a folder; give the name of a page in it"),
        (["{model}", "--out", "{model}/vocab.txt"], "is not the name of a page; give one that ends in .html"),
    ],
)
def test_what_can_not_be_shown_gets_a_sentence(folder, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["show", *(word.format(model=folder) for word in words)])
    except SystemExit as error:
        status = error.code
    assert status in (1, 2) and message in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()
