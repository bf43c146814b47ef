"""Fine-tuning from folders of others: more positions than they have, pools that it does not train."""

import json

import numpy as np
import pytest

from minibert import InputError, TextClassifier, Tokenizer, hub
from minibert.core.config import BertConfig
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.hub.sentence_transformers import write_modules
from minibert.model.params import initialise

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(97 + number) for number in range(26))]
CONFIG = BertConfig.from_size("1-8-2", vocab_size=len(VOCAB), max_position_embeddings=8)
LONG = "a b c d e f g h i j k l m"  # 15 tokens


@pytest.fixture
def model(tmp_path):
    hub.save_hf(tmp_path / "model", CONFIG, initialise(CONFIG, 1))
    Tokenizer(VOCAB).save_pretrained(tmp_path / "model", CONFIG.P)
    return tmp_path / "model"


def test_further_positions_let_longer_texts_be_learnt_from(model, tmp_path):
    texts, labels = [LONG, LONG.replace("a", "z")] * 10, ["x", "y"] * 10
    more = {"engine": "numpy", "epochs": 1, "max_length": 16}
    with pytest.raises(InputError, match="max_length=16 is longer than the 8 positions .*extend_positions"):
        TextClassifier(model, **more).fit(texts, labels)
    with pytest.raises(InputError, match="extend_positions=4 is less than the 8 positions"):
        TextClassifier(model, extend_positions=4, **more).fit(texts, labels)
    classifier = TextClassifier(model, extend_positions=20, out=tmp_path / "run", **more).fit(texts, labels)
    assert classifier.predict([LONG]).shape == (1,)
    config, params, _ = hub.load(tmp_path / "run")
    assert config.P == 20
    before, rows = hub.load(model)[1]["embeddings.position"], params["embeddings.position"]
    np.testing.assert_allclose(rows, np.concatenate([before, before, before[:4]]), rtol=0, atol=0.01)
    fields = json.loads((tmp_path / "run" / "tokenizer_config.json").read_text())
    assert fields["model_max_length"] == 20


def test_frozen_models_take_no_further_positions(model):
    with pytest.raises(InputError, match="extend_positions=20 has no effect with feature_based"):
        FinetuneOptions("ner", "data", str(model), feature_based="last", extend_positions=20)


@pytest.mark.thorough
@pytest.mark.parametrize(("pool", "warns"), [("cls", True), ("mean", False)])
def test_pool_that_is_not_trained_is_named(model, tmp_path, pool, warns, recwarn):
    write_modules(model, 8, pool)
    rows = [{"text": "a b", "second": "c", "label": 0.5}, {"text": "d", "second": "e", "label": 0.1}] * 8
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = FinetuneOptions("similarity", str(tmp_path), str(model), engine="numpy", max_steps=1)
    finetune(options, tmp_path / "run", show=False)
    told = [str(one.message) for one in recwarn if "makes its vectors by" in str(one.message)]
    assert len(told) == warns
