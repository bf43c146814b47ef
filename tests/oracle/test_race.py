"""Both runners of benchmarks/time_to_loss.py train the same model in the same way: without dropout, alike."""

import numpy as np
import pytest

pytest.importorskip("transformers")


from peers import race_pytorch
from peers.race import Course
from peers.race_minibert import Minibert
from small_corpus import write_corpus

from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import prepare_text


@pytest.fixture
def course(tmp_path):
    """Twelve steps, the first four without pairs."""
    options = PretrainOptions(
        corpus=(str(write_corpus(tmp_path / "animals.txt")),),
        vocab_size=80,
        seq_length="12:0.34,32:0.66",
        batch_size=4,
        dropout=0.0,
        steps=1,
    ).resolved()
    options.save(tmp_path / "training.json")
    prepare_text(options, tmp_path, show=False)
    return Course(str(tmp_path), steps=12, targets=60)


def test_hugging_face_and_minibert_learn_the_same(course):
    ours, theirs = Minibert(course, 1, "numpy", "float32"), race_pytorch.HuggingFace(course, 1, "float32")
    before = ours.held_out()
    np.testing.assert_array_equal(ours.targets(), theirs.targets())
    for step, close in ((0, 1e-5), (3, 1e-4), (12, 1e-3)):
        found, expected = theirs.advance(step), ours.advance(step)
        assert found["tokens"] == expected["tokens"]
        if step:
            assert found["training_loss"] == pytest.approx(expected["training_loss"], abs=close)
        np.testing.assert_allclose(theirs.held_out(), ours.held_out(), atol=close)
    assert abs(ours.held_out() - before).max() > 0.1


def test_a_runner_with_another_rate_is_found_out(course, monkeypatch):
    ours, theirs = Minibert(course, 1, "numpy", "float32"), race_pytorch.HuggingFace(course, 1, "float32")
    monkeypatch.setattr(theirs, "_rate", lambda step: 1.1 * ours._rate(step))
    ours.advance(12), theirs.advance(12)
    assert abs(theirs.held_out() - ours.held_out()).max() > 1e-2
