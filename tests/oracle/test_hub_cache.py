"""The cache of Hugging Face's tools is read as they read it."""

import subprocess
import sys

import huggingface_hub
import pytest
from huggingface_hub import constants, snapshot_download

from minibert.base.model_names import hub_cache, on_disk


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["tiny-bert", "some-one/tiny.bert_2"])
def test_a_snapshot_is_found_where_they_find_it(name, cache):
    commit = "0123456789abcdef0123456789abcdef01234567"
    model = cache / huggingface_hub.file_download.repo_folder_name(repo_id=name, repo_type="model")
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(commit)
    snapshot = model / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    theirs = snapshot_download(name, local_files_only=True, cache_dir=str(cache))
    assert str(on_disk(name)) == theirs


@pytest.mark.parametrize(
    "variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"]
)
def test_the_cache_lies_where_they_keep_it(variable, tmp_path, monkeypatch):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    program = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    theirs = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert str(hub_cache()) == theirs.stdout.strip()
