"""The tables of what the model in the package is worth are made of the cells that are there."""

import json
import shutil
from dataclasses import replace

import english_tables
import pytest
from small_tasks import write_rte

import minibert
from minibert import Tokenizer, hub


@pytest.fixture
def options(model, tmp_path, monkeypatch):
    """Of a small model, RTE of a few lines, and a book."""
    write_rte(tmp_path / "data" / "glue" / "RTE")
    (tmp_path / "book.txt").write_text("the film is good and the music is fine .\n" * 40)
    monkeypatch.setattr(english_tables, "DATA", tmp_path / "data")
    monkeypatch.setattr(english_tables, "WIKITEXT", tmp_path / "nowhere")
    words = ["--models", str(model), "--only", "rte", "--seeds", "3", "--quick", "--threads", "1"]
    words += ["--methods", "rule", "naive-bayes", "untrained", "small", "--dtype", "float32"]
    words += ["--book", str(tmp_path / "book.txt"), "--out", str(tmp_path / "cells")]
    return english_tables.parser().parse_args(words)


def write_cell(folder, name, **values):
    (folder / "cells").mkdir(exist_ok=True)
    (folder / "cells" / f"{name}.json").write_text(json.dumps(values))


def test_every_model_is_measured_once_and_the_untrained_one_has_its_shape(options, model, tmp_path, capsys):
    assert english_tables.run(options) == 0
    cells = {path.name: path.read_bytes() for path in (tmp_path / "cells").glob("*.json")}
    assert cells.keys() == {
        "book-untrained.json",
        "book-small.json",
        "rte-rule.json",
        "rte-naive-bayes.json",
        "rte-untrained-3.json",
        "rte-small-3.json",
        "options.json",
    }
    assert minibert.load(tmp_path / "cells" / "untrained").config == minibert.load(model).config
    shutil.rmtree(tmp_path / "data" / "glue")  # from which nothing is read again
    first = capsys.readouterr().out
    assert english_tables.run(options) == 0
    assert capsys.readouterr().out == first
    assert {path.name: path.read_bytes() for path in (tmp_path / "cells").glob("*.json")} == cells


def test_table_has_means_and_deviations_in_points(options, tmp_path):
    options.seeds, options.quick, options.models = [0, 1], False, ["english", "runs/books"]
    for name, score in {"rule": 0.527, "naive-bayes": 0.55, "tf-idf": 0.6}.items():
        write_cell(tmp_path, f"rte-{name}", metric="accuracy", score=score, interval=[0.5, 0.7])
    scores = {"untrained": [0.5, 0.5], "english": [0.7, 0.8], "books": [0.6, 0.6], "minilm": [0.75]}
    for label, of_seeds in scores.items():
        for seed, score in enumerate(of_seeds):
            interval = [score - 0.1, score + 0.2]
            write_cell(tmp_path, f"rte-{label}-{seed}", metric="accuracy", score=score, interval=interval)
    write_cell(tmp_path, "book-english", nats_per_byte=0.91234, words=9)
    head = "|  | simple rule | naive Bayes | TF-IDF | untrained | english | books | MiniLM"
    row = "| RTE, accuracy | 52.7 | 55.0 | 60.0 | 50.0 ± 0.0 | **75.0 ± 7.1** | 60.0 ± 0.0 | **75.0**"
    assert english_tables.Tables(options).text().split("\n\n") == [
        "Mean ± standard deviation of 2 seeds; without ±, one measurement. Fine-tuned in float32.",
        f"{head} | 95% interval of english |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        f"{row} | 65.0 to 95.0 |",
        "| nats per byte | untrained | english | books |\n"
        "|---|---:|---:|---:|\n"
        "| WikiText-2 test |  |  |  |\n"
        "| book |  | 0.912 |  |",
    ]


def test_score_is_bold_only_above_the_best_method_without_a_model():
    cells = [{"score": 0.7, "interval": [0.65, 0.75]}, {"score": 0.8, "interval": [0.75, 0.85]}]
    assert english_tables.shown_score(cells, 0.69) == "**75.0 ± 7.1**"
    assert english_tables.shown_score(cells, 0.71) == "75.0 ± 7.1"


def test_no_model_reads_more_than_it_was_trained_on(options, model, tmp_path):
    config, params, _ = hub.load(model)
    hub.save_hf(tmp_path / "short", replace(config, trained_length=9), params)
    Tokenizer.from_pretrained(model).save_pretrained(tmp_path / "short", config.P)
    tables = english_tables.Tables(options)
    lengths = [tables.settings("rte", str(folder)).max_length for folder in (tmp_path / "short", model)]
    assert lengths == [9, min(128, config.P)]
    options.max_length = 8
    assert tables.settings("rte", str(model)).max_length == 8


def test_cells_of_other_options_are_not_taken_for_finished(options, tmp_path, capsys):
    others = {"epochs": None, "train_examples": None, "max_length": None, "dtype": "bfloat16"}
    write_cell(tmp_path, "options", quick=True, **others)
    assert english_tables.ended(lambda: english_tables.run(options)) == 2
    assert "has cells of a run with other options; choose another --out." in capsys.readouterr().err


def test_unknown_method_is_refused(options, capsys):
    options.methods = ["bayes"]
    assert english_tables.ended(lambda: english_tables.run(options)) == 2
    assert "--methods bayes is none of rule, naive-bayes, tf-idf, untrained, small" in capsys.readouterr().err


def test_two_models_of_one_name_are_refused(options, capsys):
    options.models = ["runs/a/small", "runs/b/small"]
    assert english_tables.ended(lambda: english_tables.run(options)) == 2
    assert "Two of untrained, small, small, minilm have one name; rename a folder." in capsys.readouterr().err
