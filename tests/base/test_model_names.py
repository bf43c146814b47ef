"""A checkpoint of a run is a model by the name RUN@STEP, and a name that is no folder says what to do."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from command import ends_badly
from small_corpus import write_corpus
from small_tasks import small_options

import minibert
from minibert import Bert, Tokenizer, cli, hub, load
from minibert.base.errors import InputError
from minibert.base.model_names import folder_of, hub_cache, locate, on_disk
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.hub.checkpoint import load_checkpoint
from minibert.model.params import Head
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.predict import evaluate
from minibert.pretraining.run import pretrain


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """A run of four steps that has kept all of its checkpoints."""
    options = PretrainOptions(
        corpus=(str(corpus),), size="1-8-2", vocab_size=60, seq_length="16", batch_size=2, steps=4,
        evaluations=0, checkpoint_steps=1, keep=0, engine="numpy", max_positions=32, learning_rate=0.02,
    )  # fmt: skip
    out = tmp_path_factory.mktemp("runs") / "books"
    pretrain(options, out, show=False)
    return out


def test_a_checkpoint_is_the_model_of_its_step(run):
    for step in (2, 4):
        stored = load_checkpoint(run / "checkpoints" / f"step-{step:09d}.safetensors")
        _, params, report = hub.load(f"{run}@{step}")
        np.testing.assert_array_equal(params.flat, stored.params.flat)
        assert report.missing == report.unused == ()
    last, second = Bert.from_pretrained(run, "numpy"), Bert.from_pretrained(f"{run}@2", "numpy")
    np.testing.assert_array_equal(last.params.flat, hub.load(f"{run}@4")[1].flat)
    assert not np.array_equal(last.params.flat, second.params.flat)
    assert Tokenizer.from_pretrained(f"{run}@2").vocab == Tokenizer.from_pretrained(run).vocab
    loaded = load(f"{run}@2", engine="numpy")
    np.testing.assert_array_equal(loaded.encode("The cat.").pooled, second.encode("The cat.").pooled)


def test_a_checkpoint_takes_another_head(run):
    _, params, report = hub.load(f"{run}@2", head=Head("classify", 3))
    assert params.head == Head("classify", 3) and report.missing == ("classifier.weight", "classifier.bias")
    np.testing.assert_array_equal(params["embeddings.word"], hub.load(f"{run}@2")[1]["embeddings.word"])


def test_everything_that_takes_a_model_takes_a_step_of_a_run(run, corpus, sst2, tmp_path, capsys):
    step = f"{run}@2"
    shutil.copytree(run, tmp_path / "second")
    second = tmp_path / "second"
    hub.save_hf(second, *hub.load(step)[:2])  # the same run, had it ended there
    assert evaluate(step, targets=50, engine="numpy") == evaluate(second, targets=50, engine="numpy")
    fill = ["fill-mask", "The [MASK] sleeps.", "--engine", "numpy", "--json", "--model"]
    answers = [cli.main([*fill, name]) or capsys.readouterr().out for name in (step, str(second), str(run))]
    assert answers[0] == answers[1] != answers[2]
    assert cli.main(["export", "--model", step, "--out", str(tmp_path / "converted")]) == 0
    np.testing.assert_array_equal(hub.load(tmp_path / "converted")[1].flat, hub.load(step)[1].flat)
    assert Tokenizer.from_pretrained(tmp_path / "converted").vocab[0] == "[PAD]"
    finetune(small_options(step, sst2, max_steps=1, max_length=16), tmp_path / "tuned", show=False)
    assert json.loads((tmp_path / "tuned" / "finetune.json").read_text())["model"] == step
    further = PretrainOptions(
        corpus=(str(corpus),), model=step, seq_length="8", batch_size=2, steps=1, evaluations=0,
        engine="numpy", learning_rate=1e-9,
    )  # fmt: skip
    pretrain(further, tmp_path / "further", show=False)
    start = hub.load(step)[1].flat
    np.testing.assert_allclose(hub.load(tmp_path / "further")[1].flat, start, rtol=0, atol=1e-6)


def test_a_step_that_was_not_kept_is_refused_with_the_steps_there_are(run, capsys, tmp_path):
    (run / "checkpoints" / ".step-000000007.safetensors.a1b2c3d4.tmp").touch()  # one on its way
    told = f"'{run}' has no checkpoint of step '7'; choose from 0, 1, 2, 3, 4 (minibert pretrain --keep 0"
    error = ends_badly(capsys, 2, "fill-mask", "a [MASK]", "--model", f"{run}@7")
    assert told in error
    for use in (hub.load, Tokenizer.from_pretrained, evaluate, Bert.from_pretrained):
        with pytest.raises(InputError) as caught:
            use(f"{run}@7")
        assert told in str(caught.value)
    with pytest.raises(InputError, match="has no checkpoint of step 'last'; choose from 0, 1, 2"):
        locate(f"{run}@last")
    (tmp_path / "tuned").mkdir()
    with pytest.raises(
        InputError, match="has no checkpoint of step '3', nor any other; name '.*tuned' itself"
    ):
        locate(f"{tmp_path / 'tuned'}@3")
    many = tmp_path / "many" / "checkpoints"
    many.mkdir(parents=True)
    for step in range(10, 200, 10):
        (many / f"step-{step:09d}.safetensors").touch()
    with pytest.raises(InputError, match="from 10, 20, 30, 40, 50, 60, …, 140, 150, 160, 170, 180, 190 "):
        locate(f"{many.parent}@7")


def test_a_folder_whose_name_has_an_at_is_that_folder(run, tmp_path):
    named = tmp_path / "books@2"
    shutil.copytree(run, tmp_path / "books")
    shutil.copytree(run, named)
    assert locate(named) == (named, None) and folder_of(named) == named
    np.testing.assert_array_equal(hub.load(named)[1].flat, hub.load(run)[1].flat)
    np.testing.assert_array_equal(hub.load(f"{named}@3")[1].flat, hub.load(f"{run}@3")[1].flat)


def test_a_step_whose_checkpoint_is_damaged_is_refused(run, tmp_path):
    shutil.copytree(run, tmp_path / "old")
    os.truncate(tmp_path / "old" / "checkpoints" / "step-000000002.safetensors", 1000)
    with pytest.raises(InputError, match=r"step-000000002.safetensors cannot be read as a checkpoint"):
        hub.load(f"{tmp_path / 'old'}@2")


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased"])
def test_a_name_of_the_hub_is_answered_with_how_to_fetch_it(name, tmp_path, monkeypatch, capsys, corpus):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no cache"))
    fetch = f"download it into Hugging Face's cache first: hf download {name}."
    told = (
        f"There is no folder {name!r}, and minibert downloads nothing; if it is a model on the Hugging Face"
    )
    for words in (
        ["fill-mask", "a [MASK]", "--model", name],
        ["evaluate", str(corpus), "--model", name],
        ["export", "--model", name, "--out", "out"],
        ["pretrain", str(corpus), "--model", name, "--steps", "1", "--out", "out", "--quiet"],
        ["tokenize", "a text", "--vocab", name],
    ):
        error = ends_badly(capsys, 2, *words)
        assert told in error and fetch in error
    assert os.listdir(tmp_path) == []


def test_a_path_that_leads_nowhere_is_no_name_of_the_hub(tmp_path, monkeypatch):
    (tmp_path / "a-file").touch()
    monkeypatch.chdir(tmp_path)
    advice = "; give the folder of a run"
    nowhere = f"nowhere', and minibert downloads nothing{advice}"
    for use in (hub.load, Tokenizer.from_pretrained):
        for name in (tmp_path.parent / "nowhere", "a/b/nowhere"):
            with pytest.raises(InputError, match=nowhere):
                use(name)
    with pytest.raises(InputError, match=f"'a-file' is a file{advice}"):
        hub.load("a-file")


def cached(cache, name, source, commit="a" * 40, reference="main"):
    """Lay a folder out as huggingface_hub keeps what it has downloaded."""
    model = cache / f"models--{name.replace('/', '--')}"
    snapshot = model / "snapshots" / commit
    shutil.copytree(source, snapshot)
    (model / "refs").mkdir()
    (model / "refs" / reference).write_text(commit)
    return snapshot


@pytest.mark.parametrize("name", ["tiny-bert", "someone/tiny.bert_2"])
def test_a_name_of_the_hub_means_the_model_in_the_cache(name, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    snapshot = cached(tmp_path / "cache", name, run)
    assert on_disk(name) == snapshot and folder_of(name) == snapshot
    expected = hub.load(run)[1].flat
    np.testing.assert_array_equal(minibert.load(name).params.flat, expected)
    np.testing.assert_array_equal(minibert.Bert.from_pretrained(name).params.flat, expected)
    assert Tokenizer.from_pretrained(name).vocab == Tokenizer.from_pretrained(run).vocab
    assert FinetuneOptions("sst2", "glue", name).model == str(snapshot)
    assert cli.main(["fill-mask", "a [MASK]", "--model", name]) == 0
    shutil.copytree(run, tmp_path / name)  # a folder of that name goes first
    assert on_disk(name) == Path(name)


@pytest.mark.parametrize(
    "variables, place",
    [
        ({"HF_HUB_CACHE": "a", "HF_HOME": "b"}, "a"),
        ({"HUGGINGFACE_HUB_CACHE": "a", "HF_HOME": "b"}, "a"),
        ({"HF_HOME": "b", "XDG_CACHE_HOME": "c"}, "b/hub"),
        ({"XDG_CACHE_HOME": "c"}, "c/huggingface/hub"),
        ({}, "home/.cache/huggingface/hub"),
    ],
)
def test_the_cache_is_where_the_tools_of_hugging_face_keep_it(variables, place, tmp_path, monkeypatch):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    assert hub_cache() == tmp_path / place


@pytest.mark.parametrize("commit", ["../../outside", "", "main", "b" * 40])
def test_a_reference_that_names_no_snapshot_is_as_good_as_none(commit, run, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    cached(tmp_path / "cache", "tiny-bert", run)
    shutil.copytree(run, tmp_path / "cache" / "outside")
    (tmp_path / "cache" / "models--tiny-bert" / "refs" / "main").write_text(commit)
    assert on_disk("tiny-bert") == Path("tiny-bert")
    with pytest.raises(InputError, match="There is no folder 'tiny-bert', and minibert downloads nothing"):
        minibert.load("tiny-bert")
