"""What a person reads of a run: figures in percent, and nothing that was not measured."""

import csv

import pytest

from minibert.data.glue import TextExample
from minibert.reports.results import learnt_text, measured_text, metrics_text, report_text
from minibert.tasks import registry

REPORT = {
    "title": "CoLA",
    "metric": "matthews",
    "scores": {"matthews": 0.5},
    "interval": [0.4, 0.6],
    "examples": 40,
    "best_epoch": 1.0,
    "learning_rate": 5e-5,
    "seed": 0,
    "steps": 3,
    "tokens": 300,
    "training_seconds": 2.0,
    "seconds": 3.0,
    "folder": "runs/cola",
    "page": "runs/cola/report.html",
}


def test_a_run_too_short_to_be_timed_has_no_speed():
    assert "3 steps, 300 tokens, 150 tokens/s; 3.0 seconds for this command" in report_text(REPORT)
    text = report_text(REPORT | {"training_seconds": 0.0})
    assert "3 steps, 300 tokens; 3.0 seconds" in text and "tokens/s" not in text


def test_one_of_anything_is_not_many():
    text = report_text(REPORT | {"examples": 1, "steps": 1, "tokens": 1})
    assert "CoLA, 1 example\n" in text and "\n1 step, 1 token, " in text
    assert (learnt_text({"rte": 1}), learnt_text({"ner": 2}, "sentence")) == (
        "1 training example",
        "2 training sentences",
    )
    rare = {name: 1 for name in "abcdefg"}
    assert measured_text(REPORT | {"classes": rare}).endswith("'f' 1, and 1 more class")


def test_the_table_of_predictions_has_a_row_for_each_whatever_labels_and_ids_hold(tmp_path):
    said = [("1", "plain"), ("a\tb", "tab\tand\nline"), ('say "so"', "c\rr"), ("4", "it's, fine")]
    examples = [TextExample(id, "a\nfilm", None, None) for id, _ in said]
    predictions = [{"label": label} for _, label in said]
    [path] = registry.create("classify").write(tmp_path, "test", examples, predictions)
    with open(path, encoding="utf-8", newline="") as file:
        assert [*csv.reader(file, delimiter="\t")] == [
            ["id", "prediction", "text"],
            *([*row, "a\nfilm"] for row in said),
        ]
    assert path.read_text("utf-8").startswith('id\tprediction\ttext\n1\tplain\t"a\nfilm"\n')


def test_the_line_of_an_epoch_has_no_counts():
    scores = {"exact": 0.25, "f1": 0.5, "total": 40, "HasAns_exact": 0.125, "HasAns_f1": 0.2}
    assert metrics_text(scores) == "exact 25.00, f1 50.00, HasAns exact 12.50"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("sst2", "SST-2: is the film review good"),
        ("classify", "Your own table, classes of texts"),
        ("regress", "Your own table, numbers for texts"),
        ("qnli-dev", "QNLI, its dev file divided"),
        ("hellaswag-dev", "HellaSwag, its dev file divided"),
    ],
)
def test_titles_are_for_people_who_did_not_ask_for_help(name, title):
    assert registry.create(name).title == title
