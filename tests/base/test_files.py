"""Files and folders that appear whole or not at all: where they may stand, and what a failure leaves."""

import ast
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from paths import PACKAGE, ROOT

from minibert.base import files
from minibert.base.errors import InputError, RunError
from minibert.base.files import (
    remove_leftovers,
    remove_unfinished,
    require_inside,
    write_atomically,
    write_folder_atomically,
)


def fill(folder):
    """Two files, the one that says that all is there last."""
    (folder / "data").write_text("data")
    (folder / "manifest").write_text("all of it")


def assert_filled(folder):
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "data": "data",
        "manifest": "all of it",
    }


@pytest.fixture
def empty(tmp_path):
    """An empty folder."""
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_the_folder_one_works_in_is_filled_and_not_replaced(empty, monkeypatch):
    monkeypatch.chdir(empty)
    number = empty.stat().st_ino
    write_folder_atomically(".", fill)
    assert_filled(empty)
    assert empty.stat().st_ino == number  # a shell that stands there sees the files


def test_a_link_to_a_folder_is_followed_and_stays(empty, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(empty, target_is_directory=True)
    write_folder_atomically(link, fill)
    assert_filled(empty)
    assert link.is_symlink()


@pytest.mark.parametrize("reason", ["mounted", "the parent is closed"])
def test_a_folder_that_cannot_be_replaced_is_filled(empty, monkeypatch, reason):
    if reason == "mounted":
        monkeypatch.setattr(files.os.path, "ismount", lambda path: path == empty)
    else:
        monkeypatch.setattr(files.os, "access", lambda path, mode: path != empty.parent)
    moved, replace = [], os.replace

    def watched(old, new):
        assert old.parent.parent == empty, "another drive"
        moved.append(new.name)
        replace(old, new)

    monkeypatch.setattr(files.os, "replace", watched)
    write_folder_atomically(empty, fill)
    assert_filled(empty)
    assert sorted(moved) == ["data", "manifest"]


def test_an_empty_folder_that_windows_does_not_replace_is_filled(empty, monkeypatch):
    replace = os.replace

    def windows_replace(old, new):
        if os.path.isdir(new):
            raise PermissionError(13, "Access is denied", str(old))
        replace(old, new)

    monkeypatch.setattr(files.os, "replace", windows_replace)
    write_folder_atomically(empty, fill)
    assert_filled(empty)
    assert [path.name for path in empty.parent.iterdir()] == ["empty"]


def names_newline(call):
    """Whether a call that opens or writes a file of text says what a line ends with."""
    return any(keyword.arg == "newline" for keyword in call.keywords)


def writes_text(call):
    """Whether a call opens a file to write text, or is Path.write_text."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "write_text":
        return True
    is_open = isinstance(call.func, ast.Name) and call.func.id == "open" and len(call.args) > 1
    mode = ast.unparse(call.args[1]) if is_open else ""
    return bool(set(mode) & set("wax")) and "b" not in mode


def test_text_has_the_same_line_ends_on_every_system():
    sources = {file: ast.parse(file.read_text("utf-8")) for file in PACKAGE.rglob("*.py")}
    calls = [
        (file.name, node)
        for file, tree in sources.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and writes_text(node)
    ]
    assert len(calls) > 5
    assert not [f"{name}:{call.lineno}" for name, call in calls if not names_newline(call)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the rules read /proc")
def test_runs_keep_to_the_rules_of_windows(tmp_path):
    script = ROOT / "tests" / "support" / "windows_runs.py"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script, tmp_path], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["folder", "pretrain", "resume", "finetune", "fit", "grade"]


def test_only_what_killed_processes_left_of_this_very_folder_is_removed(tmp_path):
    names = [".a[b].k1ll3d_x.tmp", ".a[b].v2.k1ll3d_x.tmp", ".ab.k1ll3d_x.tmp", ".a[b].mine.tmp", "a[b]"]
    for name in names:
        (tmp_path / name).mkdir()
    remove_unfinished(tmp_path / "a[b]")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_a_folder_made_again_removes_what_its_killed_maker_left(tmp_path):
    left = tmp_path / ".new.k1ll3d_x.tmp"
    left.mkdir()
    (left / "data").write_text("da")
    write_folder_atomically(tmp_path / "new", fill)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_what_is_being_filled_is_not_removed_as_unfinished(tmp_path):
    pytest.importorskip("fcntl", reason="this system has no locks of this kind")

    def fill_meanwhile(folder):
        remove_unfinished(tmp_path / "new")
        fill(folder)

    write_folder_atomically(tmp_path / "new", fill_meanwhile)
    assert_filled(tmp_path / "new")


@pytest.mark.parametrize("error", [InputError("bad text"), OSError(28, "No space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("write", [write_atomically, write_folder_atomically])
def test_what_fails_leaves_no_folder_that_it_made(write, error, tmp_path):
    def fail(_):
        raise error

    (tmp_path / "mine").mkdir()
    with pytest.raises(RunError if isinstance(error, OSError) else type(error)):
        write(tmp_path / "mine" / "new" / "newer" / "name", fail)
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]
    assert not list((tmp_path / "mine").iterdir())


def test_leftovers_of_killed_processes_go_and_what_only_resembles_them_stays(tmp_path):
    left = [".model.safetensors.k1ll3d_x.tmp", ".shards.k1ll3d_x.tmp"]
    mine = [".notes.tmp", ".tmp", ".tmp1234567", ".hidden", "step.tmp"]
    for name in (left[0], *mine):
        (tmp_path / name).touch()
    (tmp_path / left[1] / "full").mkdir(parents=True)
    remove_leftovers(tmp_path, tmp_path / "missing")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(mine)


@pytest.mark.parametrize("metadata", [{"minibert": '{"é": "\\\n\x01\x7f\u2028/"}'}, {"format": "pt"}])
def test_safetensors_are_the_bytes_that_the_library_writes(tmp_path, metadata):
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    tensors = {
        "b": rng.standard_normal((3, 5)).astype(np.float32),
        "a": rng.standard_normal(7),
        "ä.weight": rng.standard_normal((2, 0, 3)).astype(np.float16),
        "A": np.full((), 2.5, np.float32),
        "other end": rng.standard_normal(4).astype(">f4"),
    }
    save_file(tensors, tmp_path / "theirs", metadata)
    files.atomic_tensors(tmp_path / "ours", tensors, metadata)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_tensors_are_written_into_one_known_temporary_file(tmp_path, monkeypatch):
    seen, replace = [], os.replace

    def watched(old, new):
        seen.extend(path.name for path in tmp_path.iterdir())
        replace(old, new)

    monkeypatch.setattr(files.os, "replace", watched)
    written = []
    monkeypatch.setattr(files.os, "fsync", lambda handle: written.extend(os.listdir(tmp_path)))
    files.atomic_tensors(tmp_path / "a", {"b": np.zeros(5, np.float32)}, {})
    assert len(seen) == 1 and re.fullmatch(r"\.a\.[a-z0-9_]{8}\.tmp", seen[0]) and written[0] == seen[0]


@pytest.mark.parametrize("name", files.FILLED_PIECEMEAL)
def test_only_a_link_out_of_a_run_is_refused(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run", target_is_directory=True)
    require_inside(tmp_path / "link")
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(InputError, match=f"link.{name} is a link to '.*elsewhere', outside the run's folder"):
        require_inside(tmp_path / "link")
    (tmp_path / "run" / name).unlink()
    (tmp_path / "run" / name).symlink_to("../nowhere")
    with pytest.raises(InputError, match=f"run.{name} is a link to '.*nowhere', outside"):
        require_inside(tmp_path / "run")


@pytest.mark.thorough
@pytest.mark.parametrize("make", ["file", "folder"])
def test_a_signal_after_any_call_leaves_nothing_or_all_of_it(tmp_path, make):
    """What handles a signal runs between two calls, so that Ctrl-C may raise after each of them."""
    place = tmp_path / "new" / "deep" / "result"
    ended = []
    for moment in range(10_000):
        left = moment

        def stop_there(_frame, event, _value):
            nonlocal left
            left -= event in ("call", "c_return")
            if left < 0:
                raise KeyboardInterrupt

        sys.setprofile(stop_there)
        try:
            if make == "file":
                write_atomically(place, lambda temporary: temporary.write_text("all of it"))
            else:
                write_folder_atomically(place, fill)
            sys.setprofile(None)
            break
        except KeyboardInterrupt as stopped:
            sys.setprofile(None)
            found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
            ended.append(bool(found))
            del stopped
        if ended[-1]:
            assert found[:3] == ["new", "new/deep", "new/deep/result"]
            assert found[3:] == (
                [] if make == "file" else ["new/deep/result/data", "new/deep/result/manifest"]
            )
            shutil.rmtree(tmp_path / "new")
    assert ended.count(False) > 50 and ended == sorted(ended)  # nothing at first, then all
