"""The tables of what the model in the package is worth are made of the cells that are there."""

import json
import shutil

import english_tables
import pytest
from small_tasks import write_rte

import minibert


@pytest.fixture
def options(model, tmp_path, monkeypatch):
    """Of a small model, RTE of a few lines, and a book."""
    write_rte(tmp_path / "data" / "glue" / "RTE")
    (tmp_path / "book.txt").write_text("the film is good and the music is fine .\n" * 40)
    monkeypatch.setattr(english_tables, "DATA", tmp_path / "data")
    monkeypatch.setattr(english_tables, "WIKITEXT", tmp_path / "nowhere")
    words = ["--models", str(model), "--only", "rte", "--seeds", "3", "--quick", "--threads", "1"]
    words += ["--book", str(tmp_path / "book.txt"), "--out", str(tmp_path / "cells")]
    return english_tables.parser().parse_args(words)


def test_every_model_is_measured_once_and_the_untrained_one_has_its_shape(options, model, tmp_path, capsys):
    assert english_tables.run(options) == 0
    cells = {path.name: path.read_bytes() for path in (tmp_path / "cells").glob("*.json")}
    assert cells.keys() == {
        "book-untrained.json",
        "book-small.json",
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


def test_tables_have_means_and_deviations_in_points(options, tmp_path):
    options.seeds, options.quick, options.models = [0, 1], False, ["english", "runs/books"]
    scores = {"untrained": (0.5, 0.5), "english": (0.7, 0.8), "books": (0.6, 0.6)}
    common = {"metric": "accuracy", "majority": 0.527, "bag_of_words": 0.55}
    (tmp_path / "cells").mkdir()
    for label, of_seeds in scores.items():
        for seed, score in enumerate(of_seeds):
            cell = common | {"score": score, "interval": [score - 0.1, score + 0.2]}
            (tmp_path / "cells" / f"rte-{label}-{seed}.json").write_text(json.dumps(cell))
    (tmp_path / "cells" / "book-english.json").write_text('{"nats_per_byte": 0.91234, "words": 9}')
    assert english_tables.Tables(options).text().split("\n\n") == [
        "Mean ± standard deviation of 2 seeds.",
        "|  | always the same | bag of words | untrained | english | books | 95% interval of english |\n"
        "|---|---:|---:|---:|---:|---:|---:|\n"
        "| RTE, accuracy | 52.7 | 55.0 | 50.0 ± 0.0 | 75.0 ± 7.1 | 60.0 ± 0.0 | 65.0 to 95.0 |",
        "| nats per byte | untrained | english | books |\n"
        "|---|---:|---:|---:|\n"
        "| wikitext2 |  |  |  |\n"
        "| book |  | 0.9123 |  |",
    ]


def test_cells_of_other_options_are_not_taken_for_finished(options, tmp_path, capsys):
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "options.json").write_text(
        '{"quick": false, "epochs": null, "train_examples": null}'
    )
    assert english_tables.ended(lambda: english_tables.run(options)) == 2
    assert "has cells of a run with other options; choose another --out." in capsys.readouterr().err


def test_two_models_of_one_name_are_refused(options, capsys):
    options.models = ["runs/a/small", "runs/b/small"]
    assert english_tables.ended(lambda: english_tables.run(options)) == 2
    assert "Two of untrained, small, small have one name; rename a folder." in capsys.readouterr().err
