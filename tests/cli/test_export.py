"""`minibert export`: a folder to hand on, what it says, and how it ends when it cannot."""

import dataclasses
import json
import shlex
import shutil
from pathlib import Path

import bundle_writer
import google_folder
import numpy as np
import pytest
from agreement import stored_tensors
from command import ends_badly, notice  # noqa: F401 (a fixture)
from paths import GOLDEN

from minibert import cli, hub
from minibert.core.config import BertConfig
from minibert.finetuning.run import classify
from minibert.hub import onnx
from minibert.hub.tensorflow.bundle import Bundle
from minibert.model.params import Head, initialise
from minibert.tasks.stored import TaskFile
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

CONFIG = BertConfig(7, 6, 2, 3, 5, max_position_embeddings=8)
PARAMS = initialise(CONFIG, seed=3)


def words_of(model, out, *more):
    return [str(word) for word in ("export", "--model", model, "--out", out, *more)]


def export(*words):
    assert cli.main(words_of(*words)) == 0


@pytest.fixture
def model(tmp_path):
    """A folder of minibert's with a cased vocabulary."""
    hub.save_hf(tmp_path / "model", CONFIG, PARAMS)
    Tokenizer([*SPECIAL_TOKENS, "A", "b"], lower_case=False).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def google(tmp_path):
    """A folder as Google's archives unpack: no word on the case of the vocabulary."""
    folder = tmp_path / "uncased_L-2_H-6_A-3"
    google_folder.write(folder, CONFIG, PARAMS)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in (*SPECIAL_TOKENS, "a", "b")))
    return folder


def test_a_left_to_right_classifier_is_not_handed_on_as_one_of_transformers(tmp_path, capsys, monkeypatch):
    for causal in (False, True):
        config = dataclasses.replace(CONFIG, is_decoder=causal)
        folder, out = tmp_path / f"model-{causal}", tmp_path / f"out-{causal}"
        hub.save_hf(folder, config, initialise(config, 3, head=Head("classify", 2)), ("bad", "good"))
        Tokenizer([*SPECIAL_TOKENS, "a", "b"]).save_pretrained(folder)
        TaskFile("classify", ("bad", "good"), 8).save(folder)
        export(folder, out, "--json")
        told = [note for note in json.loads(capsys.readouterr().out)["notes"] if "only minibert" in note]
        assert len(told) == causal
        use = (out / "README.md").read_text("utf-8").partition("## Use")[2]
        assert ("transformers" in use) == (not causal)
        (text,) = classify(out, ["a b"])
        assert text["label"] in ("bad", "good")
    told = ends_badly(capsys, 2, *words_of(folder, tmp_path / "again", "--sentence-transformers", "cls"))
    assert "left to right [CLS] sees only itself" in told and not (tmp_path / "again").exists()
    monkeypatch.setattr("minibert.api.exporting.require_libraries", lambda: None)  # PyTorch may be missing
    told = ends_badly(capsys, 2, *words_of(folder, tmp_path / "again", "--onnx"))
    assert "reads its last token, LSTMs or windows, which transformers does not know" in told


def test_a_pickle_becomes_safetensors(tmp_path, capsys):
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(GOLDEN / "hf_tiny.bin", source / "pytorch_model.bin")
    shutil.copy(GOLDEN / "hf_tiny" / "config.json", source)
    export(source, tmp_path / "out")
    assert stored_tensors(tmp_path / "out") == stored_tensors(GOLDEN / "hf_tiny")
    assert "source has no vocabulary" in capsys.readouterr().out


def test_missing_and_unused_tensors_are_listed_and_not_written(tmp_path, capsys):
    names = [name for name in hub.to_hf(PARAMS) if name.startswith("cls.")]
    google_folder.write(tmp_path / "x", CONFIG, PARAMS, omit=names)
    prefix = tmp_path / "x" / "bert_model.ckpt"
    found = Bundle(prefix)
    tensors = {name: found.read(name) for name in found.entries}
    slots = {f"{name}/adam_{moment}": value for name, value in tensors.items() for moment in "mv"}
    bundle_writer.write(prefix, tensors | slots | {"global_step": np.array(9)})
    export(prefix, tmp_path / "out")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (f"read     {prefix}: layers 2, hidden size 6, heads 3, vocabulary 7; head: none")
    assert lines[1] == "missing  the heads of pre-training, left out"
    assert lines[2].startswith("unused   bert/embeddings/LayerNorm/beta/adam_m, ")
    assert lines[2].endswith(f" and {2 * len(tensors) + 1 - 8} more")
    assert lines[3].startswith("note     ")
    assert lines[5] == f"written  {tmp_path / 'out' / 'config.json'}  0.0 MB"
    stored, _ = stored_tensors(tmp_path / "out")
    assert not any(name.startswith("cls.") for name in stored)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == ["BertModel"]


def test_nothing_missing_is_said_too(model, tmp_path, capsys):
    export(model, tmp_path / "out")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["missing  nothing", "unused   nothing"]


def test_names_in_files_cannot_steer_the_terminal(tmp_path, capsys):
    hub.save_hf(tmp_path / "model", CONFIG, initialise(CONFIG, 1, head=Head("classify", 2)), ("\x1b[2J", "b"))
    export(tmp_path / "model", tmp_path / "out")
    output = capsys.readouterr().out
    assert r"classify (\x1b[2J, b)" in output and "\x1b" not in output
    error = ends_badly(capsys, 2, *words_of(tmp_path / "\x1b[2J", tmp_path / "new"))
    assert r"\x1b[2J', and minibert downloads nothing" in error


def test_json_has_the_same_facts(model, tmp_path, capsys):
    export(model, tmp_path / "out", "--json", "--dtype", "bfloat16")
    facts = json.loads(capsys.readouterr().out)
    assert facts["missing"] == facts["unused"] == facts["notes"] == []
    assert facts["head"] == "pretraining"
    assert facts["source"] == str(model / "model.safetensors")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert facts["written"] == sizes
    assert sizes["model.safetensors"] < (model / "model.safetensors").stat().st_size


def test_a_fine_tuned_model_keeps_its_head_and_labels(tmp_path, capsys):
    params = initialise(CONFIG, 1, head=Head("classify", 3))
    hub.save_hf(tmp_path / "one", CONFIG, params, ("no", "perhaps", "yes"))
    export(tmp_path / "one", tmp_path / "two")
    assert "head: classify (no, perhaps, yes)" in capsys.readouterr().out
    google_folder.write(tmp_path / "google", CONFIG, params, ("no", "perhaps", "yes"))
    export(tmp_path / "google", tmp_path / "three")
    for name in ("two", "three"):
        assert hub.load_labels(tmp_path / name) == ("no", "perhaps", "yes")
        assert stored_tensors(tmp_path / name) == stored_tensors(tmp_path / "one")


def test_missing_tensors_of_a_head_are_named(tmp_path, capsys):
    hub.save_hf(tmp_path / "x", CONFIG, PARAMS, omit=["cls.seq_relationship.bias", "bert.pooler.dense.bias"])
    export(tmp_path / "x", tmp_path / "out")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("head: pretraining")
    assert lines[1].startswith("missing  ") and "cls.seq_relationship.bias" in lines[1]


def test_a_fine_tuned_model_goes_on_answering(tmp_path, capsys):
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    hub.save_hf(one, CONFIG, initialise(CONFIG, 1, head=Head("classify", 2)), ("no", "yes"))
    Tokenizer([*SPECIAL_TOKENS, "a", "b"]).save_pretrained(one)
    TaskFile("classify", ("no", "yes"), 8).save(one)
    said = classify(one, [("a b", None)], engine="numpy")
    export(one, two)
    export(two, three)
    for folder in (two, three):
        assert classify(folder, [("a b", None)], engine="numpy") == said
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("stored", "texts"),
    [
        (TaskFile("classify", ("no", "yes"), 8), '"a text"'),
        (TaskFile("classify", ("no", "yes"), 8, {"second": "b"}), '"a text" "another text"'),
        (TaskFile("qqp", ("0", "1"), 8), '"a text" "another text"'),
    ],
)
def test_the_command_of_the_card_asks_about_as_many_texts_as_the_model_reads(tmp_path, stored, texts):
    hub.save_hf(tmp_path / "x", CONFIG, initialise(CONFIG, 1, head=Head("classify", 2)), stored.labels)
    Tokenizer([*SPECIAL_TOKENS, "a", "b"]).save_pretrained(tmp_path / "x")
    stored.save(tmp_path / "x")
    export(tmp_path / "x", tmp_path / "out")
    command = f"minibert classify --model out {texts}\n"
    assert command in (tmp_path / "out/README.md").read_text()
    words = shlex.split(command)[1:]
    words[2] = str(tmp_path / "out")
    assert cli.main([*words, "--engine", "numpy"]) == 0


def test_the_tagger_on_a_frozen_model_goes_along(model, tmp_path):
    for name in ("tagger.json", "tagger.safetensors"):
        (model / name).write_bytes(name.encode())
    export(model, tmp_path / "out")
    for name in ("tagger.json", "tagger.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == name.encode()
    card = (tmp_path / "out" / "README.md").read_text()  # transformers would load the BERT without it
    assert "minibert tag --model out" in card and "transformers" not in card


@pytest.mark.parametrize(("pieces", "lower"), [(("a", "##b"), True), (("a", "##B"), False)])
def test_the_case_of_google_s_vocabularies_follows_their_letters(pieces, lower, google, tmp_path, capsys):
    (google / "vocab.txt").write_text("".join(f"{piece}\n" for piece in (*SPECIAL_TOKENS, *pieces)))
    export(google, tmp_path / "out")
    assert Tokenizer.from_pretrained(tmp_path / "out").basic_tokenizer.lower_case is lower
    said = "no capital letters: text is lower-cased" if lower else "capital letters: text keeps its case"
    assert said in capsys.readouterr().out


def test_a_google_folder_can_be_used_as_it_is(google):
    from minibert import Bert

    model = Bert.from_pretrained(google)
    encoded = model.encode(Tokenizer.from_pretrained(google)("a b"))
    assert encoded.pooled.shape == (1, 6)
    assert model.params.flat.tobytes() == PARAMS.flat.tobytes()


def test_nothing_in_what_a_run_leaves_names_the_machine(tmp_path, monkeypatch, capsys):
    home = tmp_path / "home" / "jdoe"
    monkeypatch.setenv("HOME", str(home))
    texts, run, out = home / "letters", home / "runs" / "mine", tmp_path / "out"
    texts.mkdir(parents=True)
    lines = "".join(
        f"The {n} letters came to number {n} by night.\n{chr(10) * (n % 9 == 0)}" for n in range(300)
    )
    (texts / "a.txt").write_text(lines)
    words = "--steps 2 --vocab-size 90 --seq-length 16 --batch-size 4 --evaluations 0 --engine numpy --quiet"
    assert cli.main(["pretrain", str(texts), "--out", str(run), *words.split()]) == 0
    fields = json.loads((run / "tokenizer_config.json").read_text())
    origins = {"name_or_path": str(run), "special_tokens_map_file": str(home / "x.json")}
    (run / "tokenizer_config.json").write_text(json.dumps(fields | origins))
    capsys.readouterr()
    export(run, out, "--sentence-transformers", "mean", "--json")
    written = json.loads(capsys.readouterr().out)["written"]
    assert "checkpoints" in {path.name for path in run.iterdir()}
    assert sorted(written) == [
        "1_Pooling/config.json",
        "README.md",
        "config.json",
        "config_sentence_transformers.json",
        "model.safetensors",
        "modules.json",
        "sentence_bert_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    for name in written:
        data = (out / name).read_bytes()
        assert not [word for word in (str(tmp_path), "jdoe", "/home") if word.encode() in data], name
    assert json.loads((out / "tokenizer_config.json").read_text()) == fields
    assert "Text: `letters`." in (out / "README.md").read_text()


def test_a_card_that_came_with_a_model_goes_along(model, tmp_path):
    (model / "README.md").write_text("# Theirs\n")
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (model / "1_Pooling").mkdir()
    (model / "modules.json").write_text(json.dumps(modules))
    (model / "1_Pooling" / "config.json").write_text('{"name": "theirs"}')
    export(model, tmp_path / "out")
    for name in ("README.md", "modules.json", "1_Pooling/config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (model / name).read_bytes()


def test_a_taken_destination_is_left_alone(model, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").touch()
    error = ends_badly(capsys, 2, *words_of(model, tmp_path / "out"))
    assert "exists and is not empty; choose another" in error
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes"]
    error = ends_badly(capsys, 2, *words_of(model, model / "vocab.txt"))
    assert "exists and is not empty" in error


@pytest.mark.parametrize(
    ("missing", "named"),
    [("onnxruntime", "onnxruntime"), ("onnx onnxruntime", "onnx"), ("onnx torch", "torch")],
)
def test_what_onnx_lacks_is_named_in_the_order_of_use(missing, named, model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name in missing.split() else "there")
    line = ends_badly(capsys, 2, *words_of(model, tmp_path / "out", "--onnx"))
    assert f"ONNX needs {named}, which is not installed; pip install '.[onnx]' brings it" in line
    assert not (tmp_path / "out").exists()


def test_an_empty_destination_is_filled(model, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    export(model, tmp_path / "out")
    assert stored_tensors(tmp_path / "out") == stored_tensors(model)


def test_the_folder_one_is_in_can_be_filled(model, tmp_path, monkeypatch, capsys):
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    export("../model", ".")
    assert stored_tensors(Path()) == stored_tensors(model)
    assert "written  config.json" in capsys.readouterr().out


def test_bad_sources_leave_nothing_behind(model, tmp_path, capsys):
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    error = ends_badly(capsys, 2, *words_of(model, tmp_path / "out"))
    assert "damaged or not a safetensors file" in error
    error = ends_badly(capsys, 2, *words_of(tmp_path / "nowhere", tmp_path / "out"))
    assert "nowhere', and minibert downloads nothing; give the folder of a run" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_a_vocabulary_that_cannot_be_read_is_named_and_not_the_destination(
    model, tmp_path, monkeypatch, capsys
):
    real = open

    def closed(file, *rest, **more):
        if str(file).startswith(str(model / "vocab.txt")):
            raise PermissionError(13, "Permission denied", str(file))
        return real(file, *rest, **more)

    monkeypatch.setattr("builtins.open", closed)
    monkeypatch.setattr("io.open", closed)
    error = ends_badly(capsys, 2, *words_of(model, tmp_path / "new" / "out"))
    assert f"{model / 'vocab.txt'} can't be read: Permission denied; check the file." in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_what_float16_cannot_hold_leaves_nothing_behind(tmp_path, capsys):
    params = initialise(CONFIG, 1)
    params["mlm.bias"][0] = 1e5
    hub.save_hf(tmp_path / "model", CONFIG, params)
    words = words_of(tmp_path / "model", tmp_path / "out", "--dtype", "float16")
    assert "beyond the range of float16" in ends_badly(capsys, 2, *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_evaluating_an_encoder_without_text_is_one_line(tmp_path, capsys):
    names = [name for name in hub.to_hf(PARAMS) if name.startswith("cls.")]
    hub.save_hf(tmp_path / "bare", CONFIG, PARAMS, omit=names)
    line = ends_badly(capsys, 2, "evaluate", "--model", str(tmp_path / "bare"), "--engine", "numpy")
    assert line.endswith("bare' holds no held-out documents; name a corpus to evaluate on.\n")
