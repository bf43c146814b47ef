"""Hugging Face's side of the benchmarks of fine-tuning does minibert's work: same losses, same answers."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import finetune  # noqa: E402
from paths import ROOT  # noqa: E402
from peers import recipe_pytorch, squad_features, tuning  # noqa: E402
from peers.tune_minibert import Minibert  # noqa: E402
from tuning_files import write_data, write_model, write_vocabulary  # noqa: E402

from minibert.data.squad import Answer, Question  # noqa: E402
from minibert.finetuning.options import FinetuneOptions  # noqa: E402
from minibert.finetuning.preparation import prepare  # noqa: E402
from minibert.finetuning.run import finetune as of_minibert  # noqa: E402
from minibert.tasks import registry  # noqa: E402


@pytest.fixture
def epoch(request, tmp_path):
    """Twelve small steps of a task, without dropout."""
    task, folder = request.param
    data, tokenizer = write_data(tmp_path / "data"), write_vocabulary(tmp_path / "vocab")
    job = registry.create(task)
    examples = job.read(data / folder, "train")
    labels = job.labels(examples)
    tuning.store(tmp_path / "x.npz", list(job.features(examples, tokenizer, labels, 32, True)))
    return tuning.Epoch("tiny", job.head(labels), str(tmp_path / "x.npz"), finetune.FEW[job.kind], 0.0)


def losses(epoch, dtype="float32"):
    """Of three steps, by everyone; Trainer needs the package accelerate."""
    pytest.importorskip("accelerate")
    from peers.tune_pytorch import HuggingFace

    theirs = HuggingFace(epoch, 1, dtype)
    engine = "numpy" if dtype == "float32" else "cpp"
    ours = Minibert(epoch, 1, engine, dtype)
    return {"cpp": ours.advance(0, 3)["losses"], "Hugging Face": theirs.advance(0, 3)["losses"]}


@pytest.mark.parametrize(
    "epoch", [("mrpc", "glue"), ("squad1", "squad")], indirect=True, ids=lambda one: one[0]
)
def test_trainer_and_minibert_have_the_same_losses(epoch):
    found = losses(epoch)
    assert finetune.difference(found, finetune.TOLERANCES["float32"]) is None, found
    assert len(set(found["cpp"])) == 3


@pytest.mark.parametrize("epoch", [("squad1", "squad")], indirect=True, ids=["squad1"])
def test_trainer_s_loss_of_padded_spans_is_another(epoch):
    """Why steps of one example are compared: their softmax is over places that hold nothing, too."""
    complaint = finetune.difference(losses(epoch._replace(batch=4)), finetune.TOLERANCES["float32"])
    assert complaint is not None and complaint.startswith("the loss of step ")


@pytest.mark.parametrize("epoch", [("mrpc", "glue")], indirect=True, ids=["mrpc"])
def test_trainer_s_bfloat16_has_the_same_losses_up_to_rounding(epoch):
    pytest.importorskip("minibert.engines.cpp._kernels")
    found = losses(epoch, "bfloat16")
    assert finetune.difference(found, finetune.TOLERANCES["bfloat16"]) is None, found
    assert finetune.difference(found, 1e-7) is not None  # it is another precision, and not the same


@pytest.mark.parametrize("epoch", [("mrpc", "glue")], indirect=True, ids=["mrpc"])
def test_a_trainer_with_another_rate_is_found_out(epoch, monkeypatch):
    pytest.importorskip("accelerate")
    from peers import tune_pytorch

    monkeypatch.setattr(tune_pytorch, "RATE", 10 * tuning.RATE)
    complaint = finetune.difference(losses(epoch), finetune.TOLERANCES["float32"])
    assert complaint is not None and complaint.startswith("the loss of step ")


@pytest.fixture
def options(tmp_path):
    """A run of one of the small tasks, by name."""
    data, model = write_data(tmp_path / "data"), write_model(tmp_path / "model")
    folders = {"sst2": "glue", "rte": "glue", "ner": "ner", "squad1": "squad"}

    def make(task, **changes):
        given = {"batch_size": 4, "learning_rates": (1e-2,), "epochs": 12.0, "dropout": 0.0, "max_length": 48}
        return FinetuneOptions(
            optimizer="adamw",
            task=task,
            data=data / folders[task],
            model=model,
            threads=1,
            engine="numpy",
            **given | changes,
        ).resolved()

    return make


@pytest.mark.parametrize("task", ["sst2", "ner", "squad1"])
def test_both_sides_learn_what_can_be_learnt(options, task, tmp_path):
    more = {"ner": {"batch_size": 1, "epochs": 36.0}, "squad1": {"epochs": 24.0}}
    settings = options(task, **more.get(task, {}))
    theirs = recipe_pytorch.finetune(settings, lambda line: None)
    ours = of_minibert(settings, tmp_path / "run", show=False)
    metric = registry.create(task).metric
    assert theirs["scores"][metric] == ours["scores"][metric] == 1.0
    assert theirs["same_ids"] == 1.0 and theirs["steps"] == ours["steps"]
    predicted = json.loads((tmp_path / "run" / "dev_predictions.json").read_text())
    if task == "squad1":
        predicted = [{name: one[name] for name in ("id", "text")} for one in predicted]
        assert theirs["predictions"] == predicted
    elif task == "ner":
        assert theirs["predictions"] == predicted
    else:
        assert [one["label"] for one in theirs["predictions"]] == [one["label"] for one in predicted]


def test_a_run_of_hugging_face_that_was_stopped_goes_on_where_it_was(options, tmp_path, monkeypatch):
    settings, said = options("sst2", dropout=0.1, epochs=3.0), []
    straight = recipe_pytorch.finetune(settings, said.append)
    monkeypatch.setattr(recipe_pytorch, "KEPT_EVERY", 2)
    steps, one_step = [], recipe_pytorch.one_step

    def stopped(*args):
        if len(steps) == straight["steps"] - 2:
            raise KeyboardInterrupt
        steps.append(one_step(*args))

    monkeypatch.setattr(recipe_pytorch, "one_step", stopped)
    with pytest.raises(KeyboardInterrupt):
        recipe_pytorch.finetune(settings, said.append, (), tmp_path / "state.pt")
    monkeypatch.setattr(recipe_pytorch, "one_step", one_step)
    again = recipe_pytorch.finetune(settings, said.append, (), tmp_path / "state.pt")
    assert "goes on from step" in " ".join(said)
    assert {**again, "seconds": 0} == {**straight, "seconds": 0}


@pytest.mark.parametrize(("dtype", "apart"), [("float32", 2e-3), ("bfloat16", 4e-2)])
def test_the_loop_in_pytorch_follows_minibert_s_logits(options, dtype, apart):
    """The same weights under the same output layer: after an epoch, the same scores of dev."""
    settings = options("sst2", batch_size=8, learning_rates=(2e-3,), epochs=1.0, dtype=dtype)
    prepared = prepare(settings)
    way = recipe_pytorch.Sentences(settings, prepared)
    model = way.model()
    ours = trained(settings, prepared)
    optimizer, schedule = recipe_pytorch.optimizer_of(model.train(), settings, 6)
    order = recipe_pytorch.epoch_order(len(way.train), settings.seed, 0).tolist()
    for at in range(0, len(order), 8):
        chosen = [way.train[i] for i in order[at : at + 8]]
        recipe_pytorch.one_step(model, chosen, optimizer, schedule, settings)
    theirs = way.outputs(model.eval())
    np.testing.assert_allclose(np.array(theirs), np.array(ours), atol=apart)
    assert np.abs(np.array(theirs)).max() > 0.1


@pytest.mark.parametrize("task", ["sst2", "ner"])
def test_a_batch_in_parts_has_the_gradients_of_the_whole(options, task, monkeypatch):
    settings = options(task, batch_size=6, weight_decay=0.0)
    prepared = prepare(settings)
    way = recipe_pytorch.WAYS[prepared.data.head.kind](settings, prepared)
    batch, found = (way.train * 3)[:6], []
    for large in (4096, 20):
        monkeypatch.setattr(recipe_pytorch, "LARGE", large)
        assert (len(recipe_pytorch.of_like_length(batch)) == 1) == (large == 4096)
        model = way.model().eval()
        optimizer, schedule = recipe_pytorch.optimizer_of(model, settings, 6)
        recipe_pytorch.one_step(model, batch, optimizer, schedule, settings)
        found.append(
            [parameter.grad.numpy() for parameter in model.parameters() if parameter.grad is not None]
        )
    for whole, parts in zip(*found, strict=True):
        np.testing.assert_allclose(parts, whole, atol=1e-5 * np.abs(whole).max() + 1e-7)
    assert max(np.abs(whole).max() for whole in found[0]) > 1e-3


def trained(settings, prepared):
    """The logits of dev after minibert's epoch."""
    from minibert import engines
    from minibert.finetuning.whole_model import WholeRun
    from minibert.tasks import batches
    from minibert.training.step import start

    ops = engines.create("cpp" if settings.dtype == "bfloat16" else "numpy", 1, settings.dtype)
    run = WholeRun(settings, prepared, ops, Path("nowhere"))
    state = run.start()
    steps = start(ops, state.params, state.optimizer, run.objective(state.params))
    made = batches.training_batches(prepared.train, prepared.data.head, 8, settings.seed)
    for step, (batch, _) in enumerate(itertools.islice(made, 6)):
        steps.step(steps.prepare(batch, 1), step, run.rate(step))
    return batches.outputs(ops, state.params, prepared.dev, 4096)


def test_answers_are_where_their_tokens_are(tmp_path):
    write_vocabulary(tmp_path)
    tokenizer = transformers.BertTokenizerFast.from_pretrained(tmp_path)
    context = "The book is here . Anna lives in Paris and is very good ."
    question = Question("q", "Where is Anna ?", context, (Answer("in Paris", context.index("in P")),), False)
    [window] = squad_features.labelled(tokenizer, [question])
    words = tokenizer.convert_ids_to_tokens(window["input_ids"])
    assert words[window["start_positions"] : window["end_positions"] + 1] == ["in", "paris"]
    assert (
        words[0] == "[CLS]" and window["token_type_ids"][:6] == [0] * 6 and window["token_type_ids"][6] == 1
    )
    [asked] = squad_features.asked(tokenizer, [question])
    begin, end = asked["offsets"][window["start_positions"]][0], asked["offsets"][window["end_positions"]][1]
    assert context[begin:end] == "in Paris"
    assert (asked["offsets"][:6] == -1).all() and (asked["offsets"][-1] == -1).all()


def test_an_answer_outside_a_window_is_at_cls(tmp_path):
    write_vocabulary(tmp_path)
    tokenizer = transformers.BertTokenizerFast.from_pretrained(tmp_path)
    context = "the book is here . " * 40 + "anna lives in paris ."
    question = Question("q", "who ?", context, (Answer("paris", context.index("paris")),), False)
    windows = squad_features.labelled(tokenizer, [question], 150)
    assert len(windows) > 1 and {len(one["input_ids"]) for one in windows[:-1]} == {150}
    assert [(one["start_positions"], one["end_positions"]) for one in windows[:-1]] == [(0, 0)] * (
        len(windows) - 1
    )
    last = windows[-1]
    assert last["start_positions"] == last["end_positions"] == len(last["input_ids"]) - 3


def test_best_span_is_the_best_of_all_pairs():
    generator = np.random.default_rng(0)
    for _ in range(20):
        logits = generator.standard_normal((18, 2))
        offsets = np.stack([np.arange(18), np.arange(18) + 1], 1)
        offsets[:5] = -1
        score, span = recipe_pytorch.best_span(logits, offsets)
        every = {(i, j + 1): logits[i, 0] + logits[j, 1] for i in range(5, 18) for j in range(i, 18)}
        assert span == max(every, key=every.get) and score == pytest.approx(max(every.values()))
    logits[:] = 0
    logits[5, 0] = logits[17, 1] = 9.0
    assert recipe_pytorch.best_span(logits, offsets) == (18.0, (5, 18))
    wide = [np.repeat(one, 4, 0) for one in (logits, offsets)]  # 48 tokens from that start to that end
    assert recipe_pytorch.best_span(*wide) == (-np.inf, None)
    assert recipe_pytorch.best_span(logits, np.full((18, 2), -1)) == (-np.inf, None)


def test_padding_hides_what_is_not_there():
    one = {"input_ids": [5, 6, 7], "token_type_ids": [0, 0, 1], "labels": [-100, 2, -100]}
    two = {"input_ids": [8], "token_type_ids": [0], "labels": [-100]}
    found = recipe_pytorch.padded([one, two])
    assert found["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert found["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert found["labels"].tolist() == [[-100, 2, -100], [-100, -100, -100]]
    numbers = recipe_pytorch.padded([one | {"labels": 2.5}])["labels"]
    assert numbers.dtype == torch.float32 and numbers.tolist() == [2.5]


def run(script, *words, data):
    """What a benchmark prints with --quick --json on small files."""
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / script),
        "--quick",
        "--json",
        "--threads",
        "1",
        *words,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MINIBERT_DATA": str(data)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_quick_run_compares_scores(tmp_path):
    data, model = write_data(tmp_path / "data"), write_model(tmp_path / "model")
    words = [
        "--only",
        "rte",
        "ner",
        "squad1",
        "--seeds",
        "0",
        "--model",
        str(model),
        "--out",
        str(tmp_path / "out"),
    ]
    rows, said = run("finetune_scores.py", *words, data=data)
    assert [(row["task"], row["figure"]) for row in rows] == [
        ("rte", "accuracy"),
        ("ner", "f1"),
        ("squad1", "EM"),
        ("squad1", "F1"),
    ]
    assert all(len(row["minibert"]) == len(row["huggingface"]) == 1 and "verdict" in row for row in rows)
    assert "0 of 6 cells are there" in said
    again, said = run("finetune_scores.py", *words, data=data)
    assert again == rows and "6 of 6 cells are there, 0 to make" in said


def test_a_quick_run_measures_speed(tmp_path):
    pytest.importorskip("accelerate")
    pytest.importorskip("minibert.engines.cpp._kernels")
    data = write_data(tmp_path / "data")
    write_vocabulary(data / "vocab" / "bert-base-uncased")
    rows, _ = run("finetune.py", "--task", "mrpc", "--dtype", "float32", data=data)
    assert [(row["engine"], row["task"]) for row in rows] == [
        ("Hugging Face", "mrpc"),
        ("cpp", "mrpc"),
    ]
    for row in rows:
        assert row["quick"] and row["tokens_per_second"] > 0 and row["ratio"] > 0 and row["peak_rss_mb"] > 50
    assert rows[0]["ratio"] == 1.0 and rows[0]["tokens"] == rows[1]["tokens"]
