"""Labels that a model has never learnt count as mistakes, from Python and from the command line alike."""

import json

import numpy as np
import pytest
from small_tasks import reviews, small_options, write_model, write_several, write_sst2, write_table

import minibert
from minibert import cli
from minibert.base.errors import InputError
from minibert.finetuning.run import evaluate, finetune


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unseen")
    for split, count, seed in (("train", 60, 1), ("dev", 20, 2)):
        write_table(folder / "data" / f"{split}.tsv", ("text", "label"), reviews(count, seed))
    options = small_options(write_model(folder / "model"), folder / "data", "classify", epochs=1)
    finetune(options, folder / "run", show=False)
    return folder / "run"


def test_an_unseen_class_is_a_mistake_everywhere(run, tmp_path, capsys):
    rows = [*reviews(9, 3), ("the film is a story", "odd")]
    table = write_table(tmp_path / "new.tsv", ("text", "label"), rows)
    told = r"1 of 10 examples .* that the model does not know: 'odd' \(1\); the first is .*new.tsv, line 11"
    with pytest.warns(UserWarning, match=told):
        found = evaluate(run, table, engine="numpy")
    classifier = minibert.load(run, engine="numpy")
    texts, labels = zip(*rows, strict=True)
    with pytest.warns(
        UserWarning, match=r"1 of 10 examples have a label that the model does not know: 'odd' \(1\)"
    ):
        ours = classifier.evaluate(list(texts), list(labels))
    assert ours["scores"] == found["scores"] and ours["interval"] == found["interval"]
    assert found["scores"]["accuracy"] == pytest.approx(
        np.mean(classifier.predict(list(texts)) == np.array(labels))
    )
    assert cli.main(["evaluate", "--model", str(run), "--data", str(table), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == found["scores"]


@pytest.mark.thorough
def test_an_unseen_label_of_several_is_a_mistake(tmp_path):
    options = small_options(
        write_model(tmp_path / "model"), write_several(tmp_path / "d"), "multilabel", epochs=1
    )
    finetune(options, tmp_path / "run", show=False)
    rows = [{"text": "the film is dull", "label": ["blame", "odd"]}, {"text": "a story", "label": []}]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.warns(UserWarning, match="1 of 2 examples have a label that the model does not know: 'odd'"):
        found = evaluate(tmp_path / "run", tmp_path / "new.jsonl", engine="numpy")
    assert found["scores"]["odd (F1)"] == 0.0 and found["scores"]["exact_match"] <= 0.5
    classifier = minibert.load(tmp_path / "run", engine="numpy")
    with pytest.warns(UserWarning, match="the model does not know: 'odd'"):
        ours = classifier.evaluate([row["text"] for row in rows], [row["label"] for row in rows])
    assert ours["scores"] == found["scores"]


def test_a_table_without_labels_is_of_no_split(run, tmp_path, capsys):
    table = write_table(tmp_path / "new.tsv", ("text",), [(text,) for text, _ in reviews(3, 3)])
    arguments = [
        "predict",
        "--model",
        str(run),
        "--data",
        str(table),
        "--out",
        str(tmp_path / "out"),
        "--quiet",
    ]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert ", 3 examples of new.tsv\n" in said and "dev\n" not in said.splitlines()[0]
    assert cli.main(["predict", "--model", str(run), "--out", str(tmp_path / "dev"), "--quiet"]) == 0
    assert ", 20 examples of dev\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("task", "place"),
    [
        ("rte", "gluebenchmark.com/tasks"),
        ("squad1", "rajpurkar.github.io/SQuAD-explorer"),
        ("ner", "conll2003"),
        ("swag", "rowanzellers.com/swag"),
        ("snli", "nlp.stanford.edu/projects/snli"),
        ("triviaqa", "nlp.cs.washington.edu/triviaqa"),
    ],
)
def test_errors_say_where_official_files_are(task, place, run, tmp_path, capsys):
    there = tmp_path / "empty"
    there.mkdir()
    for folder in (tmp_path / "nowhere", there):
        arguments = [
            "--data",
            str(folder),
            "--model",
            str(run.parent / "model"),
            "--out",
            str(tmp_path / "x"),
        ]
        assert cli.main(["finetune", task, *arguments]) == cli.BAD_INPUT
        assert "get them from https://" in (error := capsys.readouterr().err) and place in error


def test_official_tables_keep_their_words(run, tmp_path):
    assert write_sst2(tmp_path, 4, 2)  # official files name their labels themselves: others are refused
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nthe film\todd\n")
    options = small_options(run.parent / "model", tmp_path, "sst2", epochs=1)
    with pytest.raises(InputError, match="the label of SST-2 is one of 0, 1, not 'odd'"):
        finetune(options, tmp_path / "run", show=False)
