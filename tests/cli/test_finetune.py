"""`minibert finetune`, `predict`, `evaluate` and `classify`: flags, output, and whatever ends a run."""

import dataclasses
import io
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import PATIENCE, ROOT, ends_badly, notice, start, wait_for_step  # noqa: F401 (a fixture)
from small_tasks import reviews, write_model, write_rte, write_table

from minibert import cli
from minibert.cli.shared.flags import given_fields
from minibert.finetuning import run as finetuning
from minibert.finetuning.options import FinetuneOptions
from minibert.hub.checkpoint import checkpoints
from minibert.tasks import registry
from minibert.training.runlog import SPEEDS, read_metrics

QUICK = "--batch-size 16 --optimizer adamw --lr 5e-3 --engine numpy --epochs 6".split()
STEPS = 60


@pytest.fixture(scope="module")
def run(model, sst2, tmp_path_factory):
    """The folder of a finished run."""
    out = tmp_path_factory.mktemp("runs") / "sst2"
    assert cli.main([*words_of(model, sst2, out), "--quiet"]) == 0
    return out


def words_of(model, data, out, *more, task="sst2"):
    words = ["finetune", task, "--model", model, "--data", data, "--out", out, *QUICK, *more]
    return [str(word) for word in words]


def parse(*words):
    return cli.parse_arguments(["finetune", *words, "--out", "o"])


# what the flags mean


def test_every_option_has_a_flag():
    fields = {field.name for field in dataclasses.fields(FinetuneOptions)}
    assert fields - set(vars(parse())) == {
        *("bias_correction", "google_decay"),  # both are --optimizer
        "stratified",  # which runs that began before it are not
    }


def test_without_flags_the_recipe_decides_everything():
    assert given_fields(FinetuneOptions, parse()) == {}


def test_several_batch_sizes_and_epochs_are_the_grid_of_the_paper():
    line = "rte --data d --model m --batch-size 16,32 --lr 5e-5,3e-5,2e-5 --epochs 2,3,4 --restarts 3"
    given = given_fields(FinetuneOptions, parse(*line.split(), "--also", "mnli=e", "--also-examples", "7"))
    assert FinetuneOptions(**given) == FinetuneOptions(
        "rte", "d", "m", batch_size=(16, 32), learning_rates=(5e-5, 3e-5, 2e-5), epochs=(2, 3, 4), restarts=3,
        also=(("mnli", "e"),), also_examples=7,
    )  # fmt: skip


def test_flags_become_options():
    line = (
        "classify --data d --model m --lr 5e-5,2e-5 --restarts 5 --epochs 2.5 --batch-size 16 "
        "--column text=review --column label=2 --train-examples 80 --dev-examples 20 --split-dev 0.1 "
        "--max-length 64 --optimizer paper --dtype auto --save-every 7 --span-weight 1 --token-budget 999 "
        "--feature-based last --width 128 --max-steps 9"
    )
    assert FinetuneOptions(**given_fields(FinetuneOptions, parse(*line.split()))) == FinetuneOptions(
        task="classify",
        data="d",
        model="m",
        learning_rates=(5e-5, 2e-5),
        restarts=5,
        epochs=2.5,
        batch_size=16,
        columns=(("text", "review"), ("label", "2")),
        train_examples=80,
        dev_examples=20,
        split_dev=0.1,
        max_length=64,
        optimizer="adamw",
        bias_correction=False,
        google_decay=True,
        dtype="auto",
        checkpoint_steps=7,
        span_weight=1.0,
        token_budget=999,
        feature_based="last",
        width=128,
        max_steps=9,
    )


# what the commands do


def test_finetune_prints_its_report_and_tells_how_it_goes(model, sst2, tmp_path, capsys):
    out = tmp_path / "run"
    assert cli.main(words_of(model, sst2, out, "--lr", "5e-3")) == 0
    said = capsys.readouterr()
    assert "SST-2: is the film review good, 60 examples" in said.out
    assert "95% interval (Wilson): " in said.out and f"Run folder: {out}" in said.out
    assert "160 training examples, 60 in dev" in said.err
    assert "output layer with initial values" in said.err
    assert "6 epochs of 10 steps of 16: 60 steps, adamw at learning rate 0.005, seed 0." in said.err
    for epoch in range(1, 7):
        assert f"Epoch {epoch}: accuracy " in said.err
    assert "step 60/60" in said.err


def test_finetune_prints_one_json_object(model, sst2, tmp_path, capsys):
    out = tmp_path / "run"
    assert cli.main(words_of(model, sst2, out, "--max-steps", "2", "--json", "--quiet")) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == json.loads((out / "report.json").read_text()) and said.err == ""


def test_a_sweep_prints_a_table(model, sst2, tmp_path, capsys):
    words = words_of(model, sst2, tmp_path / "sweep", "--max-steps", "2", "--quiet")
    words[words.index("5e-3")] = "5e-3,1e-3"
    assert cli.main([*words, "--restarts", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("learning rate  seed"))
    assert [line.split()[0] for line in lines[header + 1 : header + 5]] == [
        "0.005",
        "0.005",
        "0.001",
        "0.001",
    ]


def test_evaluate_measures_a_fine_tuned_model_on_its_task(run, sst2, capsys):
    report = json.loads((run / "report.json").read_text())
    for words in ([], ["--data", str(sst2)]):
        assert cli.main(["evaluate", "--model", str(run), *words, "--engine", "numpy", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["scores"] == report["scores"]
    assert cli.main(["evaluate", "--model", str(run), "--engine", "numpy"]) == 0
    assert f"{100 * report['scores']['accuracy']:.2f}" in capsys.readouterr().out


def test_evaluate_averages_several_fine_tuned_models_and_no_others(run, model, sst2, tmp_path, capsys):
    cli.main([*words_of(model, sst2, tmp_path / "other", "--max-steps", "9"), "--quiet"])
    words = [word for folder in (run, tmp_path / "other") for word in ("--model", str(folder))]
    capsys.readouterr()
    assert cli.main(["evaluate", *words, "--engine", "numpy", "--json"]) == 0
    expected = finetuning.evaluate([run, tmp_path / "other"], engine="numpy")
    assert json.loads(capsys.readouterr().out)["scores"] == expected["scores"]
    assert cli.main(["evaluate", *words, "--model", str(model)]) == 2
    assert f"'{model}' is not fine-tuned, so it can't be averaged with others" in capsys.readouterr().err


def test_evaluate_may_be_quiet_and_compute_in_another_precision(run, monkeypatch):
    asked, evaluate = [], finetuning.evaluate

    def told(*words, **named):
        asked.append((named["dtype"], named["show"]))
        return evaluate(*words, **named)

    monkeypatch.setattr(finetuning, "evaluate", told)
    for words in ([], ["--quiet"], ["--json"], ["--dtype", "float64"]):
        assert cli.main(["evaluate", "--model", str(run), "--engine", "numpy", *words]) == 0
    assert asked == [("float32", True), ("float32", False), ("float32", False), ("float64", True)]


def test_predict_writes_files_and_prints_figures_where_there_are_labels(run, tmp_path, capsys):
    words = [
        "predict",
        "--model",
        str(run),
        "--model",
        str(run),
        "--out",
        str(tmp_path),
        "--engine",
        "numpy",
    ]
    assert cli.main([*words, "--split", "test", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "SST-2: is the film review good, 30 examples of test",
        str(tmp_path / "SST-2.tsv"),
        str(tmp_path / "sst2-test.jsonl"),
    ]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scores"] == json.loads((run / "report.json").read_text())["scores"]
    assert (tmp_path / "SST-2-dev.tsv").exists()


def test_classify_prints_every_class_the_likeliest_first(run, capsys):
    assert cli.main(["classify", "--model", str(run), "the film was very charming", "--engine", "numpy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[0].endswith("%  1") and lines[1].endswith("%  0")
    chances = [float(line.split("%")[0]) for line in lines]
    assert chances[0] > 60 and sum(chances) == pytest.approx(100, abs=0.02)


def test_features_are_not_written_over_the_text_that_is_read(model, tmp_path, capsys):
    text = tmp_path / "texts.jsonl"
    text.write_text("a film\n")
    said = ends_badly(capsys, 2, "features", "--model", str(model), "--file", str(text), "--out", str(text))
    assert "texts.jsonl is the file that is read; name another." in said and text.read_text() == "a film\n"


@pytest.mark.representatives(json_too=True)
@pytest.mark.parametrize("json_too", [False, True])
def test_what_an_encoding_has_no_room_for_is_written_as_json_has_it(model, tmp_path, json_too):
    rows = [(f"the film is {word}", label) for word in ("warm", "cold") for label in ("é", "€ 😀")]
    for split in ("train", "dev"):
        write_table(tmp_path / f"{split}.tsv", ("text", "label"), rows)
    out = tmp_path / "run"
    assert cli.main([*words_of(model, tmp_path, out, "--max-steps=1", "--quiet", task="classify")]) == 0
    process = start(
        *("classify", "--model", out, "the film", *["--json"] * json_too),
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "latin-1"},
        encoding="latin-1",
    )
    printed, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")
    if json_too:
        assert set(json.loads(printed)["probabilities"]) == {"é", "€ 😀"}
    else:
        assert {line.partition("%  ")[2] for line in printed.splitlines()} == {"é", r"\u20ac \ud83d\ude00"}


@pytest.mark.thorough
@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_half_a_character_is_written_as_json_has_it_in_the_locales_of_containers(model, tmp_path, locale):
    lines = [
        {"text": f"the film is {word}", "label": label} for word, label in (("warm", "a"), ("cold", "\ud800"))
    ]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "run"
    assert cli.main([*words_of(model, tmp_path, out, "--max-steps=1", "--quiet", task="classify")]) == 0
    env = {name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"}
    process = start(
        "classify", "--model", out, "the film", env={**env, "PYTHONPATH": str(ROOT), "LC_ALL": locale}
    )
    printed, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")
    assert {line.partition("%  ")[2] for line in printed.splitlines()} == {"a", r"\ud800"}


def test_classify_answers_each_line_of_the_standard_input(run, capsys, monkeypatch):
    text = b"the film was dull\na charming story\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    assert cli.main(["classify", "--model", str(run), "--engine", "numpy", "--json"]) == 0
    labels = [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()]
    assert labels == ["0", "1"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    assert cli.main(["classify", "--model", str(run), "--engine", "numpy"]) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["0", "1"]


@pytest.mark.representatives(stream=0)
@pytest.mark.parametrize(("stream", "words"), [(0, ()), (1, ("the film",))])
def test_a_stream_that_is_closed_is_an_empty_one(run, stream, words):
    process = start("classify", "--model", run, *words, preexec_fn=lambda: os.close(stream))
    assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == 0


def test_classify_warns_of_a_table_whose_lines_it_reads(run, capsys, tmp_path):
    for name in ("my films.csv", "films.txt"):
        (tmp_path / name).write_text("the film is warm\n")
    words = ["classify", "--model", str(run), "--engine", "numpy", "--file"]
    file = tmp_path / "my films.csv"
    assert cli.main([*words, str(file)]) == 0
    advice = f"for its columns use minibert predict --data '{file}'."
    assert f"films.csv' is read line by line, as texts; {advice}" in capsys.readouterr().err
    assert cli.main([*words, str(tmp_path / "films.txt")]) == 0
    assert capsys.readouterr().err == ""


def test_classify_passes_over_lines_that_are_wrong(run, capsys, monkeypatch):
    text = b"a charming story\n\nthe film\tit was warm\nthe film was dull\n"
    for flags, answers in (([], ["1", "", "", "0"]), (["--json"], ["1", None, None, "0"])):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
        assert cli.main(["classify", "--model", str(run), "--engine", "numpy", *flags]) == 1
        said = capsys.readouterr()
        lines = said.out.splitlines()
        if flags:
            assert [found and found["label"] for found in map(json.loads, lines)] == answers
        else:
            assert [line.split("\t")[0] for line in lines] == answers
        (line,) = said.err.splitlines()  # a blank line is not wrong
        assert line.startswith("minibert: line 3: The model in ") and "single texts" in line


@pytest.mark.parametrize(("task", "command"), [("ner", "tag"), ("squad1", "answer"), ("swag", "predict")])
def test_classify_names_the_command_that_a_model_is_for(tmp_path, capsys, monkeypatch, task, command):
    head = registry.create(task).head(("O", "B-PER", "I-PER") if task == "ner" else ())
    folder = write_model(tmp_path / "model", head)
    labels = ["O", "B-PER", "I-PER"] if task == "ner" else []
    (folder / "task.json").write_text(json.dumps({"task": task, "labels": labels, "max_length": 24}))
    for words in (["the film"], []):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"the film\n")))
        line = ends_badly(capsys, 2, "classify", "--model", str(folder), *words, "--engine", "numpy")
        assert f"was fine-tuned for {task}, " in line and line.endswith(f"use minibert {command}.\n")


def test_only_a_whole_argument_names_a_file(run, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a FILE.txt").write_text("the film")
    line = ends_badly(capsys, 2, "classify", "--model", str(run), "a FILE.txt")
    assert "a FILE.txt' is a file" in line
    assert "minibert classify --model MODEL --file 'a FILE.txt' for lines" in line
    for text in ("a FILE.txt is a film", "charming " * 2000, str(tmp_path)):
        assert cli.main(["classify", "--model", str(run), text, "--engine", "numpy"]) == 0


@pytest.mark.thorough
def test_classify_reads_pairs_and_numbers(model, tmp_path, capsys):
    rows = [(text, text, float(label)) for text, label in reviews(120, 8)]
    write_table(tmp_path / "data" / "train.tsv", ("text", "other", "score"), rows)
    write_table(tmp_path / "data" / "dev.tsv", ("text", "other", "score"), rows[:30])
    columns = ["--column", "second=other", "--column", "label=score", "--quiet", "--epochs", "12"]
    words = words_of(model, tmp_path / "data", tmp_path / "run", *columns, task="regress")
    assert cli.main(words) == 0
    assert "pearson" in capsys.readouterr().out
    values = []
    for text in ("a dull story", "a charming story"):
        assert cli.main(["classify", "--model", str(tmp_path / "run"), text, text, "--engine", "numpy"]) == 0
        values.append(float(capsys.readouterr().out))
    assert values[0] < 0.3 and values[1] > 0.7
    line = ends_badly(capsys, 2, "classify", "--model", str(tmp_path / "run"), "a story", "--engine", "numpy")
    assert "was fine-tuned for pairs of texts; give a second one" in line


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_column_that_is_named_twice_is_refused(run, sst2, tmp_path, capsys, command):
    words = ["--model", run, "--data", sst2, "--column", "text=other", "--column", "text=text"]
    words += ["--out", tmp_path / "out"] * (command == "predict")
    assert "--column names 'text' twice; name it once." in ends_badly(capsys, 2, command, *map(str, words))


# how a command ends


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("finetune --out {new}", "A new run needs TASK, --data;"),
        ("finetune rte --data {sst2} --model {model} --out {new}", "is not the train file of RTE"),
        ("finetune sst-2 --data {sst2} --model {model} --out {new}", "did you mean sst2"),
        (
            "finetune sst2 --data {sst2} --model {model} --out {new} --lr fast",
            "'fast' is not a learning rate",
        ),
        ("finetune sst2 --data {sst2} --model {model} --out {new} --lr 0", "--lr 0 is not valid"),
        ("finetune sst2 --data {sst2} --model {model} --out {new} --column text", "is not NAME=COLUMN"),
        ("finetune sst2 --data {sst2} --model {model} --out {new} --column text=a", "have their own"),
        ("finetune sst2 --data {sst2} --model {new} --out {new}", "{new}"),
        (
            "finetune classify --data {sst2} --model {model} --out {new} --column text=a --column text=label",
            "--column names 'text' twice",
        ),
        ("finetune ner --data d --model {model} --out {new} --width 9", "--width sets the size of the LSTMs"),
        (
            "finetune ner --data d --model {model} --out {new} --feature-based last --span-weight 1",
            "--span-weight has no effect with --feature-based",
        ),
        (
            "finetune ner --data d --model {model} --out {new} --feature-based last --freeze 1",
            "--freeze 1 has no effect with --feature-based last, which trains no part of the model itself",
        ),
        (
            "finetune sst2 --data {sst2} --model {model} --out {new} --engine jax --fsdp --freeze 1",
            "--freeze 1 can't be had with --fsdp, which leaves each device a piece of every tensor",
        ),
        (
            "finetune sst2 --data {sst2} --model {model} --out {new} --engine jax --fsdp --optimizer lamb",
            "--optimizer lamb can't be had with --fsdp",
        ),
        (
            "pretrain {sst2}/dev.tsv --out {new} --engine jax --fsdp --optimizer lamb",
            "--optimizer lamb can't be had with --fsdp",
        ),
        (
            "pretrain {sst2}/dev.tsv --out {new} --engine jax --fsdp --optimizer muon",
            "--optimizer muon can't be had with --fsdp",
        ),
        (
            "finetune sst2 --data {sst2} --model {model} --out {model}/vocab.txt/x",
            "vocab.txt' is a file, not a folder; choose another --out",
        ),
        (
            "finetune sst2 --data {new} --model {new} --out /proc/minibert/x",
            "/proc/minibert/x' can't be made",
        ),
        ("predict --model {run} --split dev --out {model}/vocab.txt", "vocab.txt' is a file, not a folder"),
        ("predict --model {new} --split dev --out {model}/vocab.txt/x", "vocab.txt' is a file, not a folder"),
        ("finetune --resume --out {new}", "There is no run in"),
        ("predict --model {model} --split dev --out {new}", "holds no fine-tuned model"),
        ("predict --model {run} --data {new} --out {new}", "There is no folder '{new}'"),
        ("predict --model {run} --task rte --out {new}", "has other answers than rte"),
        ("predict --model {run} --task nonsense --out {new}", "minibert: --task nonsense is not known"),
        (
            "evaluate --model {model} --data {sst2}",
            "is not fine-tuned; leave out --data.",
        ),
        ("evaluate --model {model} --dtype float64", "is not fine-tuned; leave out --dtype."),
        ("evaluate --model {model} --split test", "is not fine-tuned; leave out --split."),
        ("evaluate --model {model} --per-byte --targets 0", "has its own windows; leave out --targets."),
        ("evaluate --model {model} --per-byte --targets 7", "has its own windows; leave out --targets."),
        (
            "evaluate --model {run} --seq-length 8 --layout prose",
            "is fine-tuned; leave out --seq-length, --layout.",
        ),
        ("evaluate --model {run} --column a", "--column 'a' is not NAME=COLUMN, such as text=review."),
        ("evaluate --model {run} letters.txt", "is measured on its task and not on 'letters.txt'"),
        ("evaluate --model {run} --split test", "has no labels to score against"),
        (
            "classify --model {run} film story",
            "was fine-tuned for single texts, and two were given; put quotation marks around a text",
        ),
        ("classify --model {run} film story --pair", "was fine-tuned for single texts, and two were given;"),
        (
            "classify --model {run} film --pair",
            "--pair is for two TEXTs, and one was given; give the second as well",
        ),
        ("classify --model {new} film", "There is no folder '{new}'"),
        (
            "classify --model {run} {sst2}/dev.tsv",
            "'{sst2}/dev.tsv' is a file, but a text is expected; use minibert",
        ),
        (
            "classify --model {run} film {sst2}/dev.tsv",
            "predict --model MODEL --data {sst2}/dev.tsv --out DIR for",
        ),
        (
            "tag --model {run} film {sst2}/dev.tsv",
            "expected; name it with --file {sst2}/dev.tsv to tag its lines.",
        ),
        (
            "answer --model {run} {sst2}/dev.tsv --file x",
            "give the question itself, and --file {sst2}/dev.tsv to",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2_and_leaves_nothing(
    capsys, tmp_path, model, sst2, run, words, message
):
    new = str(tmp_path / "new")
    line = ends_badly(capsys, 2, *words.format(new=new, model=model, sst2=sst2, run=run).split())
    assert line.startswith("minibert")
    assert message.format(new=new, sst2=sst2) in line
    assert list(tmp_path.iterdir()) == []


def numeric_flags():
    """The flags of `minibert finetune` that take a number."""
    actions = parse().parser._actions
    return [action.option_strings[0] for action in actions if action.type in (int, float)]


@pytest.mark.parametrize("flag", numeric_flags())
def test_an_impossible_number_is_refused_with_its_flag(flag, capsys):
    line = ends_badly(capsys, 2, "finetune", "rte", "--data", "d", "--model", "m", "--out", "o", flag, "-1")
    assert line.startswith(f"minibert: {flag} -1") and "=" not in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("finetune rte --lr 0.1,0.1", "--lr 0.1,0.1 is not valid; give each value once, at least one."),
        ("finetune sst-2", "TASK 'sst-2' is not known; did you mean sst2?"),
        (
            "finetune rte --column text=review",
            "--column text=review is for custom tables (classify, multilabel, regress, tag, qa, similarity,",
        ),
        (
            "finetune tag --column word=1 --column x=y",
            "'word' in --column is not a column of tag; choose from words, tags, layout",
        ),
        (
            "finetune rte --feature-based last --freeze 1",
            "--freeze 1 has no effect with --feature-based last",
        ),
        (
            "finetune rte --feature-based last --bilstm",
            "--bilstm has no effect with --feature-based last",
        ),
        (
            "finetune rte --class-weights entailment=nan",
            "--class-weights entailment=nan is not valid; give balanced, or NAME=WEIGHT,... with finite",
        ),
        (
            "finetune stsb --class-weights balanced",
            "--class-weights balanced is for tasks that classify texts, which stsb does not; leave it out.",
        ),
        (
            "finetune rte --fsdp --engine numpy",
            "--fsdp is for --engine jax; leave it out, or choose that engine.",
        ),
        ("reproduce table5 --seeds 0", "--seeds 0 leaves nothing to train; give at least 1."),
    ],
)
def test_messages_name_what_was_typed(words, message, capsys):
    line = ends_badly(capsys, 2, *words.split(), "--data", "d", "--model", "m", "--out", "o")
    assert line.startswith(f"minibert: {message}")


def closed(name, real):
    """`real`, which opens or looks, for a user who may not do that to a file or folder of that name."""

    def method(path, *words, **named):
        if name in Path(str(path)).parts:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *words, **named)

    return method


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        (
            "SST-2",
            "finetune sst2 --data {sst2} --model {model} --out {new}",
            "{sst2}: permission denied",
        ),
        (
            "task.json",
            "predict --model {run} --out {new}",
            "task.json can't be read: Permission denied; check",
        ),
        (
            "finetune.json",
            "predict --model {run} --out {new}",
            "finetune.json can't be read: Permission denie",
        ),
        (
            "tokenizer_config.json",
            "predict --model {run} --out {new}",
            "tokenizer_config.json can't be read: Permission denied; check",
        ),
    ],
)
def test_unreadable_files_are_named(name, words, message, capsys, monkeypatch, tmp_path, model, sst2, run):
    monkeypatch.setattr(Path, "is_dir", closed("SST-2", Path.is_dir))
    monkeypatch.setattr("builtins.open", closed(name, open))
    given = {"new": tmp_path / "new", "model": model, "sst2": sst2, "run": run}
    line = ends_badly(capsys, 2, *words.format(**given).split())
    assert message.format(**given) in line
    assert list(tmp_path.iterdir()) == []


def timeless(folder):
    return [line | dict.fromkeys(("seconds", *SPEEDS), 0) for line in read_metrics(folder)]


def assert_same_run(out, other):
    for name in ("model.safetensors", "config.json", "task.json", "dev_predictions.json", "vocab.txt"):
        assert (out / name).read_bytes() == (other / name).read_bytes(), name
    assert timeless(out) == timeless(other)
    reports = [json.loads((folder / "report.json").read_text()) for folder in (out, other)]
    for name in ("scores", "interval", "mistakes", "best_epoch", "steps", "tokens"):
        assert reports[0][name] == reports[1][name], name


def finish(process):
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return output


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_a_run_ends_with_the_same_bytes(model, sst2, run, tmp_path):
    rng, out = random.Random(3), tmp_path / "killed"
    for target in sorted(rng.sample(range(1, STEPS - 15), 3)):
        begun = (out / "finetune.json").exists()
        words = ["finetune", "--resume", "--out", out] if begun else words_of(model, sst2, out)
        process = start(*words, "--save-every", 4)
        wait_for_step(process, out, target)
        time.sleep(rng.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert checkpoints(out / "checkpoints") and not (out / "model.safetensors").exists()
    finish(start("finetune", "--resume", "--out", out))
    assert_same_run(out, run)
    assert not list(out.rglob(".*.tmp"))


@pytest.mark.slow
def test_ctrl_c_saves_says_how_to_go_on_and_going_on_is_exact(model, sst2, run, tmp_path):
    out = tmp_path / "stopped"
    process = start(*words_of(model, sst2, out))
    wait_for_step(process, out, 7)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert output == "" and "Traceback" not in errors
    assert "a checkpoint is saved" in errors and f"minibert finetune --resume --out {out}\n" in errors
    finish(start("finetune", "--resume", "--out", out))
    assert_same_run(out, run)


def test_a_finished_run_resumed_prints_its_report_again(run, capsys):
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    assert cli.main(["finetune", "--resume", "--out", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((run / "report.json").read_text())
    assert before == {path.name: path.stat().st_mtime_ns for path in run.iterdir()}


def test_resume_refuses_other_options(run, capsys):
    words = ["--epochs", "9", "--optimizer", "paper", "--lr", "1"]
    line = ends_badly(capsys, 2, "finetune", "--resume", "--out", str(run), *words)
    assert "--epochs 9 (the run has 6), --lr 1 (the run has 0.005), " in line
    assert "--optimizer paper (the run has adamw); leave them out" in line


def test_a_model_of_pairs_goes_from_training_to_submission(model, tmp_path, capsys):
    data, out = write_rte(tmp_path / "RTE"), tmp_path / "run"
    assert cli.main(words_of(model, data, out, "--max-steps", "3", "--quiet", task="rte")) == 0
    assert cli.main(["predict", "--model", str(out), "--split", "test", "--out", str(tmp_path / "s")]) == 0
    rows = (tmp_path / "s" / "RTE.tsv").read_text().splitlines()
    assert rows[0] == "index\tprediction" and len(rows) == 41
    assert {row.split("\t")[1] for row in rows[1:]} <= {"entailment", "not_entailment"}
