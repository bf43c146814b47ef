"""Folders without `task.json`, as transformers writes them: which task they answer, with which labels."""

import json
import math

import pytest

from minibert import InputError, Tokenizer, hub
from minibert.core.config import BertConfig
from minibert.data.glue import TextExample
from minibert.finetuning.foreign import is_foreign, read_foreign, task_for
from minibert.finetuning.models import Finetuned
from minibert.finetuning.predicting import predict_examples
from minibert.model.params import Head, initialise
from minibert.tasks import registry

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
CONFIG = BertConfig.from_size("1-8-2", vocab_size=len(VOCAB), max_position_embeddings=16)
LABELS = ("not_entailment", "entailment")  # those of RTE, in the other order


@pytest.fixture
def folder(tmp_path):
    """A model whose logits are 0 and 1 for every text, in minibert's own export."""
    params = initialise(CONFIG, 1, head=Head("classify", 2))
    params["head.weight"][:] = 0
    params["head.bias"][:] = 0, 1
    hub.save_hf(tmp_path / "model", CONFIG, params, LABELS)
    Tokenizer(VOCAB).save_pretrained(tmp_path / "model", CONFIG.P)
    return tmp_path / "model"


def test_a_task_with_the_same_labels_is_answered_in_the_model_s_order(folder):
    assert is_foreign(folder) and not (folder / "task.json").exists()
    task = registry.create("rte")
    assert task.labels(()) == LABELS[::-1]
    model = Finetuned.from_pretrained(folder, "numpy", task=task)
    assert (model.task, model.labels, model.max_length) == (task, LABELS, 16)
    (prediction,) = predict_examples([model], [TextExample("0", "a b", "c", None)])
    assert prediction["label"] == "entailment"
    probabilities = {"not_entailment": 1 / (1 + math.e), "entailment": math.e / (1 + math.e)}
    assert prediction["probabilities"] == pytest.approx(probabilities, abs=1e-6)


def test_a_column_second_is_read_from_tables_that_have_one(folder, tmp_path):
    tables = {"pairs": {"text": "a", "second": "b"}, "texts": {"text": "a"}}
    for name, row in tables.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row | {"label": "entailment"}) + "\n")
    model = read_foreign(folder)
    own, given = task_for(model, None), registry.create("classify")
    assert not given.second_is_optional
    assert task_for(model, given) is given
    for task in (own, given):
        assert task.name == "classify" and task.second_is_optional
        (pair,) = task.read(tmp_path / "pairs.jsonl", "dev")
        (text,) = task.read(tmp_path / "texts.jsonl", "dev")
        assert (pair.first, pair.second, text.first, text.second) == ("a", "b", "a", None)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("stsb", "has a head for classify, which has other answers than stsb; choose another model"),
        (
            "mrpc",
            "names its labels not_entailment, entailment, and mrpc has 0, 1; if they mean these, rename",
        ),
    ],
)
def test_a_task_with_other_answers_is_refused(folder, task, message):
    with pytest.raises(InputError, match=message):
        task_for(read_foreign(folder), registry.create(task))


@pytest.mark.parametrize(("stated", "expected"), [(8, 8), (float("nan"), 16), (1, 16), ("8", 16)])
def test_a_stated_length_that_is_not_one_leaves_all_positions(folder, stated, expected):
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": stated}))
    assert read_foreign(folder).stored.max_length == expected
