"""What users give as a path, at the doors of Python and of the command line."""

import os
from pathlib import Path

import pytest
from small_tasks import reviews, small_options, write_model, write_sst2

import minibert
from minibert import InputError
from minibert.api.runs import run_folder
from minibert.base.files import page_path
from minibert.base.paths import path_of
from minibert.cli.shared.parser import parse_arguments
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return a home folder with a model, in an empty working folder."""
    home = tmp_path / "home"
    (tmp_path / "work").mkdir()
    write_model(home / "model")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.chdir(tmp_path / "work")
    return home


def test_tilde_is_the_home_folder_in_what_is_read_and_written(home):
    write_sst2(home / "SST-2", 24, 12)
    finetune(small_options(Path("~/model"), Path("~/SST-2"), epochs=1), "~/run", show=False)
    model = minibert.load("~/run", "numpy")
    model.save("~/saved")
    minibert.Bert.from_pretrained("~/model", "numpy").save_pretrained("~/bert")
    minibert.Tokenizer.from_pretrained("~/model").save_pretrained("~/vocabulary")
    assert minibert.Run.open("~/run").folder == home / "run"
    assert len(minibert.TextEncoder("~/bert", engine="numpy").transform(["the film"])) == 1
    texts, labels = zip(*reviews(12, 0), strict=True)
    minibert.TextClassifier("~/model", out="~/fitted", epochs=1, engine="numpy").fit(texts, labels)
    written = {"SST-2", "bert", "fitted", "model", "run", "saved", "vocabulary"}
    assert {path.name for path in home.iterdir()} == written
    assert not list(Path().iterdir())


def test_options_keep_paths_with_the_home_folder_in_place_of_tilde(home):
    options = FinetuneOptions("mnli", "~/glue", "~/model", also={"snli": "~/snli"})
    assert (options.data, options.model) == (str(home / "glue"), str(home / "model"))
    assert dict(options.also) == {"snli": str(home / "snli")}
    options = PretrainOptions(["~/books", "a.txt"], vocab="~/vocab.txt", steps=1)
    assert options.corpus == (str(home / "books"), "a.txt")
    assert options.vocab == str(home / "vocab.txt")
    assert run_folder("~/run", False, []) == home / "run"
    assert page_path("~/page.html") == home / "page.html"


def test_command_line_expands_tilde_behind_an_equals_sign(home):
    words = ["predict", "--model=~/model", "--out=~/answers", "--data=~/films.csv"]
    arguments = parse_arguments(words)
    given = [*arguments.model, arguments.out, arguments.data]
    assert given == [str(home / name) for name in ("model", "answers", "films.csv")]


def test_tilde_within_a_name_and_of_nobody_stays():
    assert path_of("a~b/~c") == Path("a~b/~c")
    assert path_of("~nobody-of-this-name/x") == Path("~nobody-of-this-name/x")
    assert path_of(Path("runs/books")) == Path("runs/books")


@pytest.mark.parametrize(
    ("name", "call"),
    {
        "folder=None": lambda: minibert.load(None),
        "folder=3": lambda: minibert.load(3),
        "path=None": lambda: minibert.Tokenizer.from_pretrained(None),
        "run=3": lambda: minibert.compare([3, 4]),
        "model=None": lambda: minibert.TextEncoder(None).transform(["a"]),
        "folder=7": lambda: minibert.Run.open(7),
        "out=3": lambda: run_folder(3, False, []),
    }.items(),
)
def test_what_is_not_a_path_is_named_with_its_argument(name, call):
    with pytest.raises(InputError) as raised:
        call()
    assert str(raised.value) == f"{name} is not a path; give the name of a file or a folder."
    assert not os.path.exists("None")


@pytest.mark.parametrize(
    ("name", "call"),
    {
        "data": lambda: FinetuneOptions("sst2", "", "model"),
        "model": lambda: FinetuneOptions("sst2", "SST-2", ""),
        "also": lambda: FinetuneOptions("mnli", "MNLI", "model", also={"snli": ""}),
        "corpus": lambda: PretrainOptions(["a.txt", ""]),
        "vocab": lambda: PretrainOptions(vocab=""),
        "shards": lambda: PretrainOptions(shards=""),
        "out": lambda: pretrain(PretrainOptions(), ""),
        "folder": lambda: minibert.load(""),
        "path": lambda: minibert.Tokenizer.from_pretrained(""),
    }.items(),
)
def test_an_empty_string_is_not_the_working_directory(name, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"^{name}='' names no file or folder; give one") as raised:
        call()
    assert raised.value.arguments == {name: ""}
    assert not list(tmp_path.iterdir())


def test_saving_refuses_what_is_not_a_path(home):
    model = minibert.Bert.from_pretrained(home / "model", "numpy")
    with pytest.raises(InputError, match="^folder=None is not a path; give the name of a file or a folder"):
        model.save_pretrained(None)


def test_a_name_that_no_system_takes_is_refused_by_its_argument():
    for given in ("x" * 5_000, Path("y" * 300)):
        with pytest.raises(
            InputError, match=r"^out='[xy]+\.\.\.[xy]+' is longer than the name of a f"
        ) as told:
            path_of(given, "out")
        assert told.value.arguments == {"out": given}
    assert path_of("x" * 200) == Path("x" * 200) and path_of("a\0b") == Path("a\0b")
