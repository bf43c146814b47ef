"""A small run, made once, and copies of it to be damaged."""

import shutil

import pytest
from small_corpus import write_corpus
from small_runs import change_json, run_options

from minibert.pretraining import evaluation
from minibert.pretraining.run import pretrain


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "animals.txt", 12, 6)


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory):
    """A finished pre-training run, to be read only."""
    out = tmp_path_factory.mktemp("runs") / "books"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "PASSES", 1)
        pretrain(run_options(corpus), out, show=False)
    return out


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of that run."""
    return shutil.copytree(trained, tmp_path / "books")


@pytest.fixture
def undigested(copied):
    """A copy without digests in its report."""
    change_json(copied / "report.json", crc32=None)
    return copied
