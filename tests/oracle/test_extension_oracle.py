"""A BERT with new pieces as transformers has it: the same ids, the same logits."""

import numpy as np
import pytest

from minibert import Bert, Tokenizer, hub
from minibert.core.config import BertConfig
from minibert.model.params import initialise
from minibert.pretraining.extension import extend
from minibert.tokenizer import BasicTokenizer, count_words, learn_vocab

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

DOCUMENTS = (
    "The cardiologist reads the cardiogram; cardiology is the study of the heart.",
    "A catalogue of cats, café tables and naïve cardiologists. Uncatalogued: 42 hearts!",
    "catcatcat Heartless studies, re-read. 心 hearthstone",
)


@pytest.mark.parametrize("source", ["words", "learn_from"])
def test_transformers_cuts_text_and_fills_gaps_as_minibert_does(source, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(DOCUMENTS * 20), encoding="utf-8")
    tokenizer = Tokenizer(learn_vocab(count_words(DOCUMENTS, BasicTokenizer()), 80))
    config = BertConfig(tokenizer.vocab_size, 24, 2, 3, 48, max_position_embeddings=128)
    params = initialise(config, 0)
    params.flat[:] += np.random.default_rng(1).normal(0, 0.1, params.flat.shape)
    hub.save_hf(tmp_path / "model", config, params)
    tokenizer.save_pretrained(tmp_path / "model", config.P)
    if source == "words":
        (tmp_path / "words.txt").write_text("cats\nuncatalogued\nhearths\n")
        extend(tmp_path / "model", tmp_path / "out", words=tmp_path / "words.txt", show=False)
    else:
        extend(tmp_path / "model", tmp_path / "out", learn_from=[text], n=25, show=False)
    ours = Tokenizer.from_pretrained(tmp_path / "out", compat="hf-fast")
    theirs = transformers.BertTokenizer(str(tmp_path / "out" / "vocab.txt"))
    whole = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    model = Bert.from_pretrained(tmp_path / "out", "numpy", dtype="float64")
    other = transformers.BertForMaskedLM.from_pretrained(tmp_path / "out", dtype=torch.float64).eval()
    for document in DOCUMENTS:
        encoded = ours(document)
        ids = encoded.ids.tolist()
        assert ids == theirs(document)["input_ids"] == whole(document)["input_ids"]
        with torch.no_grad():
            expected = other(torch.tensor([ids])).logits[0].numpy()
        logits = model.masked_lm_logits(encoded, np.arange(len(ids)))
        assert logits.shape == expected.shape == (len(ids), ours.vocab_size)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-10)
    assert any(i >= tokenizer.vocab_size for document in DOCUMENTS for i in ours(document).ids)
