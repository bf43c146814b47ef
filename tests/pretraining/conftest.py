"""A small text, and held-out parts of it that are read a few times only."""

import pytest
from small_corpus import write_corpus

from minibert.pretraining import evaluation


@pytest.fixture(scope="module")
def few_passes():
    """The held-out part of so small a text is read a few times only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "PASSES", 6)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "animals.txt")
