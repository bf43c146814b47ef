"""A model in the package is known by its name; one that is missing or damaged gets a sentence."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import english_pack
import numpy as np
import pytest
from command import ends_badly
from small_corpus import write_corpus
from small_tasks import reviews, write_model, write_table

import minibert
from minibert import Bert, Tokenizer, cli, hub
from minibert.base import bundled_models
from minibert.base.bundled_models import DIGESTS_FILE
from minibert.base.errors import InputError, InputWarning, MissingFile
from minibert.base.model_names import locate, on_disk
from minibert.cli.shared.parser import build_parser, commands
from minibert.finetuning.options import FinetuneOptions
from minibert.pretraining.predict import evaluate_words

SMALL = "--size 1-8-2 --vocab-size 200 --seq-length 128 --batch-size 2 --no-nsp --engine numpy --quiet"


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """A stand-in for the model in the package; the working directory is an empty one."""
    folder = write_model(tmp_path / "pretrained" / "english")
    write_digests(folder)
    monkeypatch.setattr(bundled_models, "FOLDER", folder.parent)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


def write_digests(folder):
    files = sorted(path for path in folder.iterdir() if path.name != DIGESTS_FILE)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / DIGESTS_FILE).write_text("".join(lines))


def damage(folder):
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)


def test_everything_that_takes_a_model_takes_the_one_in_the_package(packed, tmp_path, capsys):
    expected = hub.load(packed)[1].flat
    assert on_disk("english") == packed and locate(Path("english")).folder == packed
    np.testing.assert_array_equal(minibert.load("english").params.flat, expected)
    np.testing.assert_array_equal(Bert.from_pretrained("english").params.flat, expected)
    np.testing.assert_array_equal(hub.load("english")[1].flat, expected)
    assert Tokenizer.from_pretrained("english").vocab == Tokenizer.from_pretrained(packed).vocab
    assert FinetuneOptions("sst2", "glue", "english").model == str(packed)
    corpus = str(write_corpus(tmp_path / "text.txt"))
    for words in (
        ["fill-mask", "a [MASK]", "--json"],
        ["score-text", "the film", "--json"],
        ["features", "the film", "--out", "vectors.npy", "--json"],
        ["evaluate", corpus, "--targets", "50", "--json"],
        ["evaluate", corpus, "--per-byte", "--json"],
    ):
        by_name, by_folder = (
            (cli.main([*words, "--model", name]), capsys.readouterr().out)
            for name in ("english", str(packed))
        )
        assert by_name == by_folder and by_name[0] == 0
    assert cli.main(["export", "--model", "english", "--out", "copy"]) == 0
    np.testing.assert_array_equal(hub.load("copy")[1].flat, expected)
    assert cli.main(["tokenize", "the film", "--vocab", "english"]) == 0


def test_a_text_classifier_is_fine_tuned_from_the_model_in_the_package(packed):
    texts, labels = ["the film is good", "the film is bad"] * 4, ["yes", "no"] * 4
    by_name = minibert.TextClassifier("english", epochs=1, engine="numpy").fit(texts, labels)
    by_folder = minibert.TextClassifier(str(packed), epochs=1, engine="numpy").fit(texts, labels)
    np.testing.assert_array_equal(by_name.predict_proba(texts), by_folder.predict_proba(texts))


def test_a_folder_of_that_name_goes_first_and_a_warning_says_so(packed, recwarn):
    write_model(Path("english"), seed=1)
    expected = hub.load(Path("english").absolute())[1].flat
    assert not np.array_equal(expected, hub.load(packed)[1].flat)
    with pytest.warns(InputWarning, match="'english' is read from the working directory, not the model of"):
        model = minibert.load("english")
    np.testing.assert_array_equal(model.params.flat, expected)
    recwarn.clear()
    np.testing.assert_array_equal(minibert.load("./english").params.flat, expected)
    assert list(recwarn) == []


def test_a_step_of_a_run_called_like_it_is_that_step(packed):
    step = Path("english/checkpoints/step-000000007.safetensors")
    step.parent.mkdir(parents=True)
    step.touch()
    assert locate("english@7") == (Path("english"), step)


def test_without_a_model_fill_mask_asks_the_one_in_the_package_and_says_so(packed, capsys):
    said = "minibert: the model is english, which is in the package; --model names another\n"
    assert cli.main(["fill-mask", "the [MASK]", "--json"]) == 0
    unnamed = capsys.readouterr()
    assert unnamed.err == said
    assert cli.main(["fill-mask", "the [MASK]", "--json", "--model", "english"]) == 0
    named = capsys.readouterr()
    assert named.out == unnamed.out and named.err == ""
    assert len(json.loads(named.out)["masks"][0]) == 5
    write_model(Path("english"), seed=1)  # which counts where it is named
    assert cli.main(["fill-mask", "the [MASK]", "--json"]) == 0
    assert capsys.readouterr() == unnamed


HEADED = {"answer", "classify", "predict", "tag"}  # they need the head of a task


def flag_for_a_model(command):
    subparsers = build_parser(command)._subparsers._group_actions[0]
    parser = subparsers.choices[command]
    flags = {flag: action for action in parser._actions for flag in action.option_strings}
    return flags.get("--model")


@pytest.mark.parametrize("command", sorted(commands()))
def test_only_commands_that_need_a_head_require_a_model(command):
    flag = flag_for_a_model(command)
    if flag is None or command in ("pretrain", "reproduce"):  # which make a new one
        return
    assert flag.required == (command in HEADED)
    assert ("english, the one in the package" in flag.help) == (command not in HEADED)


def test_without_a_model_every_such_command_takes_the_one_in_the_package(packed, tmp_path, capsys):
    corpus = str(write_corpus(tmp_path / "text.txt"))
    table = write_table(tmp_path / "table.tsv", ("text", "label"), reviews(20, 1))
    (tmp_path / "words.txt").write_text("whaleship\n")
    how = f"classify --data {table} --split-dev 0.5 --max-steps 1 --engine numpy --quiet --out".split()
    for words, flag in (
        (["score-text", "the film", "--json"], "--model"),
        (["features", "the film", "--out", "vectors.npy", "--json"], "--model"),
        (["evaluate", corpus, "--targets", "50", "--json"], "--model"),
        (["tokenize", "the film"], "--vocab"),
    ):
        unnamed, named = (
            (cli.main([*words, *more]), *capsys.readouterr()) for more in ([], [flag, "english"])
        )
        assert unnamed[:2] == named[:2] and unnamed[0] == 0
        assert unnamed[2].startswith("minibert: the model is english") and f" {flag} names" in unnamed[2]
        assert "the model is english" not in named[2]
    for words in (
        ["export", "--out", "copy"],
        ["extend", "--words", str(tmp_path / "words.txt"), "--out", "more"],
        ["finetune", *how, "run"],
    ):
        assert cli.main(words) == 0
        assert "minibert: the model is english" in capsys.readouterr().err
    assert FinetuneOptions.load(Path("run/finetune.json")).model == str(packed)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate"], "No model is named: give one with --model or, to measure english, a CORPUS."),
        (["score-text", "."], "'.' is a folder, but a text is expected; name a model with --model."),
        (["features", ".", "--out", "a.npy"], "'.' is a folder, but a text is expected; name a model with"),
        (["tokenize", "."], "'.' is a folder, but a text is expected; name a vocabulary with --vocab."),
    ],
)
def test_a_model_that_has_to_be_named_is_asked_for(words, message, packed, capsys):
    assert message in ends_badly(capsys, 2, *words)


def test_without_a_model_show_writes_the_page_of_the_one_in_the_package(packed, capsys):
    assert cli.main(["show"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "minibert: the model is english, which is in the package; MODEL names another\n"
    assert captured.out.endswith(" MB: english.html\n")
    assert Path("english.html").read_text("utf-8") == minibert.show(packed).html


@pytest.mark.parametrize("name", ["englsh", "English", "englisch"])
def test_a_name_that_is_nearly_the_one_in_the_package_is_asked_about(name, packed, capsys):
    question = "and minibert downloads nothing; did you mean english, a model in the package?"
    with pytest.raises(MissingFile) as caught:
        minibert.load(name)
    assert str(caught.value) == f"There is no folder {name!r}, {question}"
    assert question in ends_badly(capsys, 2, "fill-mask", "a [MASK]", "--model", name)


def test_a_new_model_is_compared_with_the_one_in_the_package_on_its_held_out_words(packed, capsys):
    corpus = str(write_corpus(Path("text.txt")))
    train = ["pretrain", corpus, "--out", "run", "--steps", "2", *SMALL.split()]
    assert cli.main(train) == 0
    assert "held-out words" not in capsys.readouterr().out  # the stand-in does not know them
    english_pack.pack("run", packed)
    bundled_models._check_digests.cache_clear()
    assert cli.main(["pretrain", "--out", "run", "--resume", "--quiet"]) == 0
    found = re.search(
        r"^Loss on (\d+) held-out words: ([\d.]+) nats per byte; that of english, the BERT in the package: "
        r"([\d.]+)\.$",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    last = Path(corpus).read_text("utf-8").split("\n\n")[-1]  # the one that is held out
    Path("last.txt").write_text(last, "utf-8")
    held_out = evaluate_words("run", ("last.txt",), layout="sentences")
    assert int(found[1]) == held_out.words > 10
    assert abs(float(found[2]) - held_out.nats_per_byte) < 0.001
    assert abs(float(found[3]) - held_out.nats_per_byte) < 0.01  # rounded to float16


def test_a_damaged_file_is_refused_by_its_digest(packed, capsys):
    damage(packed)
    for use in (minibert.load, hub.load, Tokenizer.from_pretrained):
        with pytest.raises(InputError) as caught:
            use("english")
        assert str(caught.value) == (
            f"{packed / 'model.safetensors'}, part of a model in the package, is damaged: its SHA-256 is not "
            "the recorded one; install minibert again."
        )
    assert "its SHA-256 is not the recorded one" in ends_badly(capsys, 2, "fill-mask", "a [MASK]")


@pytest.mark.parametrize("file", ["vocab.txt", DIGESTS_FILE])
def test_a_model_in_the_package_that_lacks_a_file_is_refused(file, packed):
    (packed / file).unlink()
    with pytest.raises(InputError, match=f"{file}, part of a model in the package, .*: it is missing;"):
        minibert.load("english")


def test_an_installation_without_the_model_says_how_to_get_it(packed, capsys, monkeypatch):
    shutil.rmtree(packed)
    monkeypatch.setenv("HF_HUB_CACHE", "no cache")
    told = (
        "This installation of minibert lacks its model 'english'; install it from a checkout with "
        "minibert/pretrained/english, which make english trains and writes."
    )
    with pytest.raises(MissingFile) as caught:
        minibert.load("english")
    assert str(caught.value) == told
    assert told in ends_badly(capsys, 2, "fill-mask", "a [MASK]")
    assert told in ends_badly(capsys, 2, "show")
    with pytest.raises(MissingFile) as caught:
        minibert.TextClassifier("english").fit(["a", "b"] * 10, [0, 1] * 10)
    assert str(caught.value) == told
    assert not list(Path().iterdir())
