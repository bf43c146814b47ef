"""`minibert.verify` names each kind of damage in one line, and finds nothing wrong in what is whole."""

import hashlib
import json
import math
import os
import pickle
import shutil

import pytest
import small_entities
from command import ends_badly
from safetensors.numpy import load_file, save_file
from small_runs import change_json, change_lines, change_record, run_options
from small_tasks import small_options, write_model

import minibert
from minibert import cli, hub
from minibert.base import bundled_models
from minibert.base.bundled_models import listed_digests
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.hub.checkpoint import load_checkpoint
from minibert.model.params import Head
from minibert.pretraining import evaluation
from minibert.pretraining.run import pretrain
from minibert.verification import Finding, folders


def found(folder):
    """What is wrong with a folder, as (place, message)."""
    return [tuple(finding) for finding in minibert.verify(folder).findings]


def flip(path, place=-9):
    """Change a bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def set_weight(path, value):
    """Change one number of a model."""
    tensors = load_file(path)
    name = "bert.embeddings.word_embeddings.weight"
    tensors[name] = tensors[name].copy()
    tensors[name][0, 0] = value
    save_file(tensors, path, metadata={"format": "pt"})


def swap_pieces(path):
    stored = json.loads(path.read_text())
    pieces = stored["model"]["vocab"]
    pieces["the"], pieces["in"] = pieces["in"], pieces["the"]
    path.write_text(json.dumps(stored))


def renamed_mask(lines):
    return [line.replace("[MASK]", "[MUSK]") for line in lines]


def with_nan(lines):
    return [*lines[:-1], '{"step": 6, "held_out_loss": NaN}\n']


SYSTEM = f"{os.system.__module__}.system"
FIRST, LAST = (f"checkpoints/step-00000000{step}.safetensors" for step in (2, 6))
LOG = "metrics.jsonl"
# What is done to which file, and what the line about it has to say.
DAMAGE = {
    "a weight is not finite": ("model.safetensors", lambda at: set_weight(at, math.nan), "not finite"),
    "weights are cut short": ("model.safetensors", cut, "is damaged or not a safetensors file"),
    "weights of another run": (
        "model.safetensors",
        lambda at: set_weight(at, 0.5),
        "is not the model of the last checkpoint",
    ),
    "fewer layers": ("config.json", lambda at: change_json(at, num_hidden_layers=0), "num_hidden_layers"),
    "not JSON": ("config.json", cut, "can't be read as JSON"),
    "a piece is missing": (
        "vocab.txt",
        lambda at: change_lines(at, lambda lines: lines[:-1]),
        "has other pieces than tokenizer.json (89 and 90, and the model has 90)",
    ),
    "no [MASK]": ("vocab.txt", lambda at: change_lines(at, renamed_mask), "[MASK]"),
    "longer than the positions": (
        "tokenizer_config.json",
        lambda at: change_json(at, model_max_length=64),
        "is more than the 16 positions",
    ),
    "an unknown option": ("training.json", lambda at: change_json(at, colour="red"), "'colour'"),
    "a step is missing": (LOG, lambda at: change_lines(at, lambda x: x[:2] + x[3:]), "no line of step 3;"),
    "steps are missing": (
        LOG,
        lambda at: change_lines(at, lambda x: x[:1] + x[4:]),
        "no line of step 2 to 4;",
    ),
    "a step twice": (
        LOG,
        lambda at: change_lines(at, lambda x: x[:2] + x[1:]),
        "more than one line of step 2;",
    ),
    "an evaluation elsewhere": (
        LOG,
        lambda at: change_lines(at, lambda x: [x[0], x[-1], *x[1:-1]]),
        "than behind its step, 6;",
    ),
    "a loss is not a number": (LOG, lambda at: change_lines(at, with_nan), "not finite at step 6;"),
    "not a record": (LOG, lambda at: change_lines(at, lambda x: [*x[:3], "\0\n", *x[3:]]), "read in line 4;"),
    "the log ends early": (LOG, lambda at: change_lines(at, lambda x: x[:4]), "it ends at step 4,"),
    "the log is cut short": (
        LOG,
        lambda at: change_lines(at, lambda x: [*x[:-1], x[-1][:9]]),
        "no record can be read in line 7;",
    ),
    "a log of another run": (LOG, lambda at: change_record(at.parent, 4, tokens=7), "its checkpoint"),
    "the log is missing": (LOG, os.unlink, "There is no file 'metrics.jsonl'"),
    "a bit of a checkpoint": (FIRST, flip, "the checksum of v differs"),
    "a checkpoint is cut short": (FIRST, cut, "cannot be read as a checkpoint"),
    "no last checkpoint": (
        "checkpoints",
        lambda at: (at.parent / LAST).unlink(),
        "no checkpoint of the last",
    ),
    "token shards": ("shards", lambda at: flip(at / "tokens.bin", 0), "the checksum of tokens.bin differs"),
    "the report is cut short": ("report.json", cut, "can't be read as JSON"),
}


@pytest.mark.representatives(damage=[*DAMAGE][::4])
@pytest.mark.parametrize("damage", DAMAGE)
def test_each_damage_of_a_run_is_named_in_one_line(undigested, damage):
    name, spoil, expected = DAMAGE[damage]
    spoil(undigested / name)
    [(place, message)] = found(undigested)
    assert place == name
    assert expected in message
    assert message.endswith(".") and "; " in message and "\n" not in message
    assert str(undigested) not in message


def test_two_files_that_contradict_each_other_are_both_named(undigested):
    change_json(undigested / "config.json", intermediate_size=32)
    [(place, message)] = found(undigested)
    assert place == "model.safetensors" and "config.json asks for (32" in message
    change_json(undigested / "config.json", intermediate_size=64)
    swap_pieces(undigested / "tokenizer.json")
    [(place, message)] = found(undigested)
    assert place == "vocab.txt" and "has other pieces than tokenizer.json" in message


def test_a_vocabulary_that_lost_its_end_is_named_without_the_other_file(undigested):
    (undigested / "tokenizer.json").unlink()
    change_lines(undigested / "vocab.txt", lambda lines: lines[:-1])
    assert found(undigested) == [("vocab.txt", "has 89 pieces, and the model 90; restore it from a copy.")]


def test_lines_in_another_order_are_named(undigested):
    change_lines(undigested / LOG, lambda lines: [lines[1], lines[0], *lines[2:]])
    said = [message.partition(";")[0] for _, message in found(undigested)]
    assert said == ["there is no line of step 1", "the steps do not ascend at step 1"]


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"])
def test_the_report_has_digests_that_show_a_change_without_effect(copied, name):
    path = copied / name
    path.write_bytes(path.read_bytes() + b"\n")
    expected = "was changed: its digest is another than in report.json; restore it from a copy."
    assert found(copied) == [(name, expected)]
    path.unlink()
    assert (name, "is missing, and report.json has its digest; restore it from a copy.") in found(copied)


def test_digests_name_no_file_outside_of_the_folder(copied, tmp_path):
    (tmp_path / "secret").write_text("not to be read")
    change_json(copied / "report.json", crc32={"../secret": 1, str(tmp_path / "secret"): 2})
    said = found(copied)
    assert [place for place, _ in said] == ["report.json"] * 2
    assert all("which is not a file of the folder" in message for _, message in said)
    change_json(copied / "report.json", crc32={"config.json": "1"})
    assert found(copied) == [
        (
            "report.json",
            "report.json can't be read: 'crc32' is {'config.json': '1'}, expected an object of whole "
            "numbers; let resume=True write it again.",
        )
    ]


def test_options_that_are_missing_are_asked_for(copied):
    (copied / "training.json").unlink()
    assert [place for place, _ in found(copied)] == ["checkpoints", "metrics.jsonl"]


# What is whole


def assert_whole(folder, kind):
    verified = minibert.verify(folder)
    assert verified.findings == []
    assert verified.kind == kind
    return "\n".join(verified.checked)


def test_a_finished_run_is_whole(trained):
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    text = assert_whole(trained, "pre-training run")
    assert "vocabulary: 90 pieces" in text
    assert "run: finished, 4 checkpoints up to step 6; log up to step 6" in text
    assert "digests: 5 of 5 files as in report.json" in text
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


def test_a_run_that_was_killed_is_whole(copied):
    """Ahead of its last checkpoint, its log may end in the middle of a line."""
    for name in (LAST, "report.json"):
        (copied / name).unlink()
    change_lines(copied / LOG, lambda lines: [*lines[:5], lines[5][:30]])
    text = assert_whole(copied, "pre-training run")
    assert "run: unfinished, 3 checkpoints up to step 4; log up to step 5" in text
    change_lines(copied / LOG, lambda lines: lines[:3])
    assert [message.partition(";")[0] for _, message in found(copied)] == [
        "it ends at step 3, before the checkpoint of 4"
    ]


@pytest.mark.thorough
def test_a_run_that_goes_on_beyond_its_report_is_whole(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "PASSES", 1)
    out = tmp_path / "run"
    pretrain(run_options(corpus, steps=4), out, show=False)

    def stop(step, values):
        if step == 5:
            os.kill(os.getpid(), 2)

    with pytest.raises(KeyboardInterrupt):
        pretrain(run_options(corpus, steps=6), out, resume=True, show=False, on_log=stop)
    assert "run: unfinished, 4 checkpoints up to step 5" in assert_whole(out, "pre-training run")
    pretrain(run_options(corpus, steps=6), out, resume=True, show=False)
    assert "digests: 5 of 5" in assert_whole(out, "pre-training run")


def test_a_run_that_is_resumed_but_has_no_new_checkpoint_is_unfinished(copied):
    (copied / LAST).unlink()
    change_json(copied / "report.json", steps=4, crc32=None)
    fourth = load_checkpoint(copied / "checkpoints/step-000000004.safetensors").params
    hub.save_hf(copied, fourth.config, fourth)
    change_lines(copied / LOG, lambda lines: [*lines[:6], lines[5][:30]])  # the last is still being written
    text = assert_whole(copied, "pre-training run")
    assert "run: unfinished, 3 checkpoints up to step 4; log up to step 6" in text
    change_lines(copied / LOG, lambda lines: lines[:3])
    assert "it ends at step 3, and report.json is of step 4" in found(copied)[0][1]


@pytest.mark.thorough
def test_digests_depend_on_the_weights_alone(corpus, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "PASSES", 1)
    pretrain(run_options(corpus), tmp_path / "run", show=False)
    reports = [json.loads((folder / "report.json").read_text()) for folder in (trained, tmp_path / "run")]
    assert reports[0]["crc32"] == reports[1]["crc32"]


def test_a_fine_tuned_run_is_whole(run):
    text = assert_whole(run, "fine-tuning run")
    assert "task: sst2, 2 labels" in text and "digests: 8 of 8 files" in text


@pytest.mark.parametrize(
    ("name", "changed"), [("task.json", {"max_length": 16}), ("tokenizer_config.json", {"lower_case": False})]
)
def test_digests_show_that_a_fine_tuned_model_reads_otherwise(run, tmp_path, name, changed):
    folder = shutil.copytree(run, tmp_path / "run")
    change_json(folder / name, **changed)
    assert found(folder) == [
        (name, "was changed: its digest is another than in report.json; restore it from a copy.")
    ]


@pytest.mark.thorough
def test_a_sweep_is_whole_and_says_which_run_is_not(model, sst2, tmp_path):
    out = tmp_path / "sweep"
    finetune(
        small_options(model, sst2, max_steps=4, restarts=2, learning_rates=(1e-3, 2e-3)), out, show=False
    )
    assert "4 of 4 runs of the sweep are whole" in assert_whole(out, "sweep")
    flip(out / "lr0.001-seed1" / "model.safetensors")
    shutil.rmtree(out / "lr0.002-seed0")
    places = [place for place, _ in found(out)]
    assert places == ["lr0.001-seed1/model.safetensors", "lr0.002-seed0"]


@pytest.mark.thorough
def test_a_tagger_of_frozen_vectors_is_whole(tmp_path):
    data, model = (
        small_entities.write_data(tmp_path / "conll"),
        small_entities.write_model(tmp_path / "encoder"),
    )
    options = FinetuneOptions(
        task="ner", data=data, model=model, feature_based="last", width=4, epochs=1.0, batch_size=4,
        learning_rates=(1e-2,), engine="numpy", threads=1, max_length=16,
    ).resolved()  # fmt: skip
    finetune(options, tmp_path / "frozen", show=False)
    assert "task: ner, " in assert_whole(tmp_path / "frozen", "fine-tuning run")
    flip(tmp_path / "frozen" / "tagger.safetensors")
    assert found(tmp_path / "frozen")[-1][0] == "tagger.safetensors"


@pytest.mark.thorough
def test_a_fine_tuning_that_was_stopped_before_its_first_evaluation_is_whole(model, sst2, tmp_path):
    def stop(step, values):
        os.kill(os.getpid(), 2)

    with pytest.raises(KeyboardInterrupt):
        finetune(small_options(model, sst2), tmp_path / "run", show=False, on_log=stop)
    assert "checkpoint up to step" in assert_whole(tmp_path / "run", "fine-tuning run")


@pytest.mark.thorough
def test_a_fine_tuning_that_was_stopped_is_whole(model, sst2, tmp_path):
    out = tmp_path / "run"

    def stop(step, values):
        if step == 14:
            os.kill(os.getpid(), 2)

    with pytest.raises(KeyboardInterrupt):
        finetune(small_options(model, sst2), out, show=False, on_log=stop)
    assert "run: unfinished, 1 checkpoint up to step 14" in assert_whole(out, "fine-tuning run")
    flip(out / "best" / "model.safetensors")
    [(place, message)] = found(out)
    assert place == "best" and "best/model.safetensors is damaged: its checksum differs" in message


@pytest.mark.parametrize("of", ["trained", "run"])
def test_an_exported_folder_is_whole(request, of, tmp_path, capsys):
    source = request.getfixturevalue(of)
    assert cli.main(["export", "--model", str(source), "--out", str(tmp_path / "handed")]) == 0
    assert "pieces" in assert_whole(tmp_path / "handed", "model")


@pytest.mark.representatives(kind="classify")
@pytest.mark.parametrize("kind", ["classify", "span", "tag", "choice"])
def test_a_folder_of_transformers_is_whole(tmp_path, kind):
    outputs = {"span": 2, "choice": 1}.get(kind, 3)
    labels = ("a", "b", "c") if outputs == 3 else ()
    folder = write_model(tmp_path / "theirs", Head(kind, outputs), labels=labels)
    assert "task: " in assert_whole(folder, "model")


# Models


def test_labels_in_another_order_or_number_are_named(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    change_json(folder / "report.json", crc32=None)
    labels = json.loads((folder / "task.json").read_text())["labels"]
    change_json(folder / "task.json", labels=labels[::-1])
    [(place, message)] = found(folder)
    assert place == "task.json" and "the labels differ or have another order" in message
    change_json(folder / "task.json", labels=[*labels, "more"])
    assert found(folder)[0][0] == "task.json"
    change_json(folder / "task.json", labels=labels, max_length=200)
    [(place, message)] = found(folder)
    assert place == "task.json" and "sequences of 200 tokens, but the model has 24 positions" in message


def test_sums_of_a_packaged_model_are_compared(model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}" for p in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    assert f"digests: {len(sums)} of {len(sums)} files as in SHA256SUMS" in assert_whole(folder, "model")
    flip(folder / "tokenizer_config.json", -1)
    (folder / "SHA256SUMS").write_text("\n".join([*sums, f"{'0' * 64} *../x", f"{'0' * 64}  gone"]))
    said = dict(found(folder))
    assert "its digest is another than in SHA256SUMS" in said["tokenizer_config.json"]
    assert "is missing" in said["gone"]
    assert "names '../x'" in said["SHA256SUMS"]


def test_empty_lines_of_a_list_of_digests_are_skipped(model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    digest = hashlib.sha256((folder / "vocab.txt").read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"\n{digest}  vocab.txt\n \n\n")
    assert "digests: 1 of 1 file as in SHA256SUMS" in assert_whole(folder, "model")
    assert listed_digests(folder / "SHA256SUMS") == {"vocab.txt": digest}


def test_damage_of_the_model_in_the_package_is_a_finding(model, tmp_path, monkeypatch):
    folder = shutil.copytree(model, tmp_path / "pretrained" / "english")
    digest = hashlib.sha256((folder / "tokenizer_config.json").read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  tokenizer_config.json\n")
    monkeypatch.setattr(bundled_models, "FOLDER", folder.parent)
    monkeypatch.chdir(tmp_path)
    assert found("english") == []
    with (folder / "tokenizer_config.json").open("a") as file:
        file.write("\n")
    expected = "was changed: its digest is another than in SHA256SUMS; restore it from a copy."
    assert found("english") == [("tokenizer_config.json", expected)]
    (folder / "SHA256SUMS").unlink()
    [(place, message)] = found("english")
    assert place == "SHA256SUMS" and "There is no file 'SHA256SUMS'" in message


@pytest.mark.parametrize("place, message, expected", [
    ("config.json", "config.json is damaged.", "config.json is damaged."),
    ("config.json", "There is no file 'config.json'.", "There is no file 'config.json'."),
    ("config.json", "is not tokenizer_config.json.", "config.json: is not tokenizer_config.json."),
    ("1", "there is no line of step 16.", "1: there is no line of step 16."),
])  # fmt: skip
def test_a_finding_names_its_file_once(place, message, expected):
    assert str(Finding(place, message)) == expected


def test_the_vocabulary_of_another_model_is_named(model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    change_lines(folder / "vocab.txt", lambda lines: [*lines, "more\n"])
    [(place, message)] = found(folder)
    assert place == "vocab.txt" and "24 pieces, but the model was trained with 23" in message
    change_lines(folder / "vocab.txt", lambda lines: lines[:12])
    [(place, message)] = found(folder)
    assert place == "vocab.txt" and "12 pieces and the model 23; is it another model's?" in message


def test_a_pickled_model_with_a_foreign_name_is_named_and_not_called(model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Harmful(tmp_path / "called")))
    [(place, message)] = found(folder)
    assert place == "pytorch_model.bin" and f"imports {SYSTEM}, and may call it" in message
    assert not (tmp_path / "called").exists()


class Harmful:
    """Pickles as a call of `os.system`."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


# What is hostile


def test_nothing_outside_of_the_folder_is_read(copied, tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_text("not to be read")
    (copied / "vocab.txt").unlink()
    (copied / "vocab.txt").symlink_to(secret)
    (copied / "checkpoints" / "more").symlink_to(tmp_path, target_is_directory=True)
    said = found(copied)
    assert sorted(place for place, _ in said) == ["checkpoints/more", "vocab.txt"]
    assert all("is a link out of the folder, so nothing was read" in message for _, message in said)
    verified = minibert.verify(copied, replay=6)
    assert verified.checked == []


def test_a_link_within_the_folder_and_those_of_the_cache_are_followed(model, tmp_path):
    blobs, snapshot = tmp_path / "models--a--b/blobs", tmp_path / "models--a--b/snapshots/1"
    shutil.copytree(model, blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert_whole(snapshot, "model")


@pytest.mark.parametrize("folder, target", [
    ("snapshots/books", "secret"),
    ("models--a--b/snapshots/1", "secret"),
    ("models--a--b/snapshots/1", "models--a--b/refs/main"),
    ("models--a--b/others/1", "models--a--b/blobs/1"),
])  # fmt: skip
def test_of_the_cache_only_the_blobs_of_the_model_are_read(model, tmp_path, folder, target):
    """A folder that is merely called as in Hugging Face's cache has no right to what is beside it."""
    at = shutil.copytree(model, tmp_path / folder)
    (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / target).write_text("not to be read")
    (at / "more").symlink_to(tmp_path / target)
    [(place, message)] = found(at)
    assert place == "more" and "is a link out of the folder" in message


def test_a_checkpoint_that_the_run_removes_meanwhile_is_not_a_finding(copied, monkeypatch):
    (copied / LAST).unlink()
    (copied / "report.json").unlink()
    listed = folders.checkpoints(copied / "checkpoints")
    monkeypatch.setattr(folders, "checkpoints", lambda folder: listed)
    (copied / FIRST).unlink()
    assert "run: unfinished, 2 checkpoints up to step 4" in assert_whole(copied, "pre-training run")
    cut(listed[0])
    assert [place for place, _ in found(copied)] == [f"checkpoints/{listed[0].name}"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "metrics.jsonl", "report.json", "vocab.txt"]
)
def test_a_pipe_in_place_of_a_file_does_not_block(undigested, name):
    (undigested / name).unlink()
    os.mkfifo(undigested / name)
    assert name in [place for place, _ in found(undigested)]


def test_names_in_findings_are_printable(copied, capsys):
    change_json(copied / "report.json", crc32={"\x1b[31m\nx\u202e": 1})
    assert cli.main(["verify", str(copied)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(r"WRONG  \x1b[31m\nx\u202e: is missing")


def state_of(folder):
    """Contents and times of the files of a folder."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [(path, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).digest()) for path in paths]


def test_verify_changes_no_file(copied):
    before = state_of(copied)
    assert minibert.verify(copied, replay=5).findings == []
    flip(copied / FIRST)
    damaged = state_of(copied)
    assert len(minibert.verify(copied).findings) == 1
    assert state_of(copied) == damaged and [path for path, *_ in before] == [path for path, *_ in damaged]


# The command


def test_the_command_prints_what_python_returns(copied, capsys):
    assert cli.main(["verify", str(copied)]) == 0
    assert capsys.readouterr().out == f"{minibert.verify(copied)}\n"
    flip(copied / FIRST)
    assert cli.main(["verify", str(copied), "--json"]) == 1
    stored = json.loads(capsys.readouterr().out)
    assert stored == minibert.verify(copied).to_json()
    assert stored["whole"] is False and stored["kind"] == "pre-training run"
    assert [finding["place"] for finding in stored["findings"]] == [FIRST]


def test_a_folder_without_run_or_model_is_refused(tmp_path, capsys):
    assert "holds neither a run nor a model" in ends_badly(capsys, 2, "verify", str(tmp_path))
    assert "There is no folder" in ends_badly(capsys, 2, "verify", str(tmp_path / "nowhere"))
