"""A masked LM whose decoder is not its word embeddings guesses as transformers does."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from small_corpus import write_corpus

import minibert
from minibert import Bert, InputError, Tokenizer, cli
from minibert.ask.scoring import score_texts
from minibert.pretraining.predict import evaluate

LETTERS = [chr(97 + number) for number in range(26)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
TEXT = "a b [MASK] d"
CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(params=["BertForMaskedLM", "BertForPreTraining"])
def saved(request, tmp_path):
    """The folder of such a model, and the model."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(VOCAB), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, tie_word_embeddings=False, initializer_range=0.3,
    )  # fmt: skip
    model = getattr(transformers, request.param)(config).eval()
    model.cls.predictions.bias.data.normal_()
    model.cls.predictions.decoder.bias.data.normal_()
    model.save_pretrained(tmp_path / "model")
    Tokenizer(VOCAB).save_pretrained(tmp_path / "model", 512)
    return tmp_path / "model", model


def scores(model, folder, text):
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt"))[0][0].numpy()


@pytest.mark.parametrize("says", [True, False])
def test_scores_and_guesses_are_those_of_transformers(saved, says):
    folder, theirs = saved
    fields = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": says}
    (folder / "config.json").write_text(json.dumps(fields))
    model = Bert.from_pretrained(folder)
    right = scores(theirs, folder, TEXT)
    np.testing.assert_allclose(model.masked_lm_logits(TEXT, range(6)), right, **CLOSE)
    chances = np.exp(right[3]) / np.exp(right[3]).sum()
    ((best, *_),) = model.fill_mask(TEXT)
    assert best.token == VOCAB[int(chances.argmax())]
    assert best.probability == pytest.approx(chances.max(), abs=1e-5)
    with torch.no_grad():
        inputs = transformers.AutoTokenizer.from_pretrained(str(folder))(TEXT, return_tensors="pt")
        hidden = theirs.bert(**inputs).last_hidden_state[0].numpy()
    np.testing.assert_allclose(model.encode(TEXT).hidden_states[-1], hidden, **CLOSE)
    (score,) = score_texts(model, ["a"])
    logits = scores(theirs, folder, "[MASK]")[1]
    expected = logits[VOCAB.index("a")] - np.log(np.exp(logits).sum())
    assert score.log_probabilities[0] == pytest.approx(expected, abs=1e-4)


def test_saved_and_exported_folders_guess_alike(saved, tmp_path):
    folder, theirs = saved
    right = scores(theirs, folder, TEXT)
    minibert.load(folder).save_pretrained(tmp_path / "saved")
    assert cli.main(["export", "--model", str(folder), "--out", str(tmp_path / "exported")]) == 0
    for name in ("saved", "exported"):
        model = Bert.from_pretrained(tmp_path / name)
        np.testing.assert_allclose(model.masked_lm_logits(TEXT, range(6)), right, **CLOSE)
        again = type(theirs).from_pretrained(tmp_path / name).eval()
        np.testing.assert_allclose(scores(again, folder, TEXT), right, **CLOSE)


def test_fast_layout_guesses_alike(saved):
    folder, _ = saved
    model = Bert.from_pretrained(folder)
    before = model.masked_lm_logits(TEXT, range(6))
    np.testing.assert_array_equal(model.optimize_for_inference().masked_lm_logits(TEXT, range(6)), before)


def test_losses_are_not_measured_with_another_decoder(saved, tmp_path):
    (tmp_path / "text.txt").write_text("a b c d\n\ne f g\n" * 20)
    with pytest.raises(InputError, match="has a decoder that is not its word embeddings"):
        evaluate(saved[0], (str(tmp_path / "text.txt"),))


def test_training_begins_with_a_tied_decoder_and_says_so(saved, tmp_path):
    write_corpus(tmp_path / "text.txt")
    with pytest.warns(UserWarning, match="a masked-LM head whose decoder is not its word embeddings"):
        minibert.pretrain(
            str(tmp_path / "text.txt"), out=tmp_path / "run", model=str(saved[0]), steps=1, seq_length="16",
            batch_size=4, evaluations=0, show=False,
        )  # fmt: skip
    assert "cls.predictions.decoder.weight" not in load_file(tmp_path / "run" / "model.safetensors")
