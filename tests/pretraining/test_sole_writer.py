"""One process at a time writes into a run folder, and none leaves a trace of having asked."""

import os
import signal
import subprocess
import sys

import pytest

from minibert.base import files
from minibert.base.errors import InputError
from minibert.base.files import sole_writer
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain

fcntl = pytest.importorskip("fcntl", reason="this system has no locks of this kind")
HOLDER = """
import sys
from minibert.base.files import sole_writer
with sole_writer(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that writes into tmp_path / "run"."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_run_in_the_same_folder_is_refused(holder, tmp_path, resume):
    sentence = "Another process is writing into .*run'; wait for it, or choose another `out`"
    with pytest.raises(InputError, match=sentence):
        pretrain(PretrainOptions(steps=1), tmp_path / "run", resume=resume, show=False)
    options = FinetuneOptions(task="rte", data="nowhere", model="nowhere")
    with pytest.raises(InputError, match=sentence):
        finetune(options, tmp_path / "run", resume=resume, show=False)
    assert not list((tmp_path / "run").iterdir())


def test_the_folder_is_free_when_its_process_has_ended_however_that_was(holder, tmp_path):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with sole_writer(tmp_path / "run"):
        pass


def test_what_is_put_into_the_folder_stays_and_an_empty_one_goes(tmp_path):
    with sole_writer(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not list(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError), sole_writer(tmp_path / "a" / "b"):
        (tmp_path / "a" / "c").touch()
        raise ZeroDivisionError
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["c"]
    (tmp_path / "mine").mkdir()
    with sole_writer(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine").is_dir()  # it was there before


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(InputError, match="file' is a file, not a folder; choose another `out`"),
        sole_writer(tmp_path / "file"),
    ):
        pass


def test_asking_whether_a_folder_is_in_use_refuses_no_writer(tmp_path, monkeypatch):
    asking = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)  # as `is_in_use` of another process does for a moment
    waits = []
    monkeypatch.setattr(files.time, "sleep", lambda seconds: waits.append(seconds) or os.close(asking))
    with sole_writer(tmp_path):
        assert waits == [files.LOCKED_SECONDS] and files.is_in_use(tmp_path)


def test_a_drive_without_locks_keeps_nobody_out(tmp_path, monkeypatch):
    def refuses(handle, how):
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    with sole_writer(tmp_path), sole_writer(tmp_path):
        (tmp_path / "written").touch()
    assert (tmp_path / "written").exists()
