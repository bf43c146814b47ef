"""A run keeps to its folder: no link leads it out, and it says so when the folder is taken from under it."""

import os
import shutil

import pytest
from command import ends_badly
from small_tasks import reviews, small_options

from minibert.base import files
from minibert.base.errors import InputError, RunError
from minibert.finetuning.feature_based import ACTIVATIONS
from minibert.finetuning.run import finetune
from minibert.finetuning.running import BEST, CHECKPOINTS
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain
from minibert.reports.results import SPENT
from minibert.training.runlog import METRICS, RunLog, read_metrics


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Documents of a few sentences."""
    path = tmp_path_factory.mktemp("text") / "text"
    documents = ("\n".join(text for text, _ in reviews(6, seed)) for seed in range(8))
    path.write_text("\n\n".join(documents))
    return path


@pytest.fixture(params=["pretrain", "finetune"])
def start(request, text, model, sst2):
    """A run in a folder, of five steps with a checkpoint after every second."""

    def pretrained(out):
        options = PretrainOptions(
            corpus=(str(text),), layout="sentences", model=str(model), seq_length="8", batch_size=2,
            held_out=0.2, steps=5, checkpoint_steps=2, evaluations=0, engine="numpy",
        )  # fmt: skip
        pretrain(options, out, show=False)

    def finetuned(out):
        finetune(small_options(model, sst2, max_steps=5, checkpoint_steps=2), out, show=False)

    return pretrained if request.param == "pretrain" else finetuned


def after_step(monkeypatch, number, act):
    """Let something happen between two steps of a run."""
    real = RunLog.step

    def step(self, done, *rest, **more):
        real(self, done, *rest, **more)
        if done == number:
            act()

    monkeypatch.setattr(RunLog, "step", step)


def test_all_that_a_run_fills_or_removes_is_known():
    assert {CHECKPOINTS, BEST, ACTIVATIONS, METRICS, "shards", "tensorboard", *SPENT} == set(
        files.FILLED_PIECEMEAL
    )


@pytest.mark.parametrize("name", files.FILLED_PIECEMEAL)
def test_a_run_writes_nothing_where_a_link_leads_out_of_its_folder(start, tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "step-000000001.safetensors").write_text("of another run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(InputError, match=f"run.{name} is a link to .*elsewhere|already holds|holds {name}"):
        start(tmp_path / "run")
    assert os.listdir(elsewhere) == ["step-000000001.safetensors"] and os.listdir(tmp_path / "run") == [name]


def test_a_resumed_run_writes_nothing_where_a_link_leads_out_of_its_folder(text, model, tmp_path):
    options = PretrainOptions(corpus=(str(text),), model=str(model), seq_length="8", steps=5, engine="numpy")
    (tmp_path / "run").mkdir()
    options.resolved().save(tmp_path / "run" / "training.json")
    (tmp_path / "run" / CHECKPOINTS).symlink_to(tmp_path)
    with pytest.raises(InputError, match=f"{CHECKPOINTS} is a link to"):
        pretrain(options, tmp_path / "run", resume=True, show=False)
    assert sorted(os.listdir(tmp_path)) == ["run"]


def test_a_run_of_a_sweep_writes_nothing_where_a_link_leads_out(model, sst2, tmp_path):
    options = small_options(model, sst2, learning_rates=(1e-3, 2e-3))
    second = tmp_path / "sweep" / [*options.runs()][1]
    second.mkdir(parents=True)
    (second / "checkpoints").symlink_to(tmp_path)
    with pytest.raises(InputError, match="checkpoints is a link to"):
        finetune(options, tmp_path / "sweep", show=False)
    assert os.listdir(tmp_path / "sweep") == [second.name]


def test_a_folder_that_is_a_link_itself_is_as_good_as_any(start, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk", target_is_directory=True)
    start(tmp_path / "run")
    assert (tmp_path / "disk" / "model.safetensors").exists() and (tmp_path / "run").is_symlink()


@pytest.mark.representatives(taken="removed", step=5)
@pytest.mark.parametrize("taken", ["removed", "moved", "replaced"])
@pytest.mark.parametrize("step", [1, 5])
def test_a_run_whose_folder_is_taken_from_under_it_ends_with_an_error(
    start, tmp_path, monkeypatch, taken, step
):
    out = tmp_path / "run"

    def take():
        out.rename(tmp_path / "aside")
        if taken == "removed":
            shutil.rmtree(tmp_path / "aside")
        if taken == "replaced":
            shutil.copytree(tmp_path / "aside", out)

    after_step(monkeypatch, step, take)
    with pytest.raises(RunError, match="run.*was removed, moved or replaced while a run was writing into it"):
        start(out)
    if taken == "removed":
        assert not (out / "checkpoints").exists()


def test_a_folder_that_is_removed_when_the_steps_are_done_is_missed_too(start, tmp_path, monkeypatch):
    real = RunLog.__exit__

    def leave(self, *why):
        real(self, *why)
        (tmp_path / "run").rename(tmp_path / "aside")

    monkeypatch.setattr(RunLog, "__exit__", leave)
    with pytest.raises(RunError, match="was removed, moved or replaced while a run was writing into it"):
        start(tmp_path / "run")


def test_a_run_whose_shards_vanish_saves_and_says_so(text, model, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    words = [
        "pretrain", str(text), "--layout=sentences", f"--model={model}", f"--out={out}", "--quiet",
        "--seq-length=8", "--batch-size=2", "--held-out=0.2", "--steps=5", "--save-every=2",
    ]  # fmt: skip
    after_step(monkeypatch, 3, lambda: shutil.rmtree(out / "shards"))
    error = ends_badly(capsys, 1, *words)
    assert f"'{out / 'shards'}' was removed or moved while the run was reading its token shards" in error
    assert "Step 4 and its model are saved" in error
    assert (out / "checkpoints" / "step-000000004.safetensors").exists()


def test_metrics_are_on_the_disk_before_the_checkpoint_that_goes_on_from_them(start, tmp_path, monkeypatch):
    """In the order of the calls: at each checkpoint, every line so far has been flushed."""
    metrics, safe, real_fsync, real_replace = tmp_path / "run" / METRICS, 0, os.fsync, os.replace
    lines_at = {}

    def fsync(handle):
        nonlocal safe
        if metrics.exists() and os.path.samestat(os.fstat(handle), metrics.stat()):
            safe = len(read_metrics(metrics.parent))
        real_fsync(handle)

    def replace(old, new):
        if "checkpoints" in str(new):
            lines_at[os.path.basename(new)] = safe
        real_replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    start(tmp_path / "run")
    assert lines_at["step-000000002.safetensors"] == 2 and lines_at["step-000000004.safetensors"] == 4
    assert lines_at["step-000000005.safetensors"] == safe == len(read_metrics(metrics.parent))
