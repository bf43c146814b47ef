"""Files and folders that appear whole or not at all: where they may stand, and what a failure leaves."""

import os

import pytest

from minibert import files
from minibert.errors import InputError, RunError
from minibert.files import remove_unfinished, write_atomically, write_folder_atomically


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


def test_only_what_killed_processes_left_of_this_very_folder_is_removed(tmp_path):
    names = [".a[b].k1ll3d_x.tmp", ".a[b].v2.k1ll3d_x.tmp", ".ab.k1ll3d_x.tmp", ".a[b].mine.tmp", "a[b]"]
    for name in names:
        (tmp_path / name).mkdir()
    remove_unfinished(tmp_path / "a[b]")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


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
