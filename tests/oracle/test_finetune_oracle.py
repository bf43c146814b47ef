"""The folder that a fine-tuning leaves behind, in the hands of Hugging Face."""

import numpy as np
import pytest
from small_tasks import write_model, write_rte, write_several, write_sst2

from minibert import hub
from minibert.core.batch import Feature, Sequence
from minibert.finetuning.models import Finetuned
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.predicting import predict_examples
from minibert.finetuning.run import finetune
from minibert.model import heads
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.model.params import Head

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CLOSE = 1e-5  # probabilities in float32


def trained(tmp_path, task, data):
    model = write_model(tmp_path / "model")
    options = FinetuneOptions(task, data, model, learning_rates=3e-3, batch_size=16, epochs=2, engine="numpy")
    finetune(options, tmp_path / "run", show=False)
    return tmp_path / "run"


@pytest.mark.parametrize(("task", "write"), [("sst2", write_sst2), ("rte", write_rte)])
def test_transformers_answers_as_the_run_folder_does(tmp_path, task, write):
    run = trained(tmp_path, task, write(tmp_path / "data"))
    model = Finetuned.from_pretrained(run, "numpy")
    examples = model.task.read(tmp_path / "data", "dev")[:20]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(run).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    assert type(theirs).__name__ == "BertForSequenceClassification"
    for example, found in zip(examples, predict_examples([model], examples), strict=True):
        encoded = tokenizer(*filter(None, (example.first, example.second)), return_tensors="pt")
        with torch.no_grad():
            chances = theirs(**encoded).logits.softmax(-1)[0].numpy()
        labels = [theirs.config.id2label[number] for number in range(len(chances))]
        assert labels == list(found["probabilities"])
        np.testing.assert_allclose(list(found["probabilities"].values()), chances, rtol=0, atol=CLOSE)


def test_transformers_finds_the_labels_that_the_run_folder_does(tmp_path):
    run = trained(tmp_path, "multilabel", write_several(tmp_path / "data"))
    model = Finetuned.from_pretrained(run, "numpy")
    examples = model.task.read(tmp_path / "data", "dev")[:20]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(run).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    assert theirs.config.problem_type == "multi_label_classification"
    for example, found in zip(examples, predict_examples([model], examples), strict=True):
        with torch.no_grad():
            chances = theirs(**tokenizer(example.first, return_tensors="pt")).logits.sigmoid()[0].numpy()
        assert list(theirs.config.label2id) == list(found["probabilities"])
        np.testing.assert_allclose(list(found["probabilities"].values()), chances, rtol=0, atol=CLOSE)


def test_a_model_of_several_labels_of_transformers_is_read(tmp_path):
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        num_labels=3, problem_type="multi_label_classification",
    )  # fmt: skip
    theirs = transformers.BertForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    config, params, report = hub.load(tmp_path)
    assert (params.head, report.missing) == (Head("multilabel", 3), ())
    batch = TaskBatch.pack_features([Feature((Sequence([3, 7, 5], [0, 0, 1]),), None, None)], params.head)
    with torch.no_grad():
        inputs = torch.tensor([[3, 7, 5]]), None, torch.tensor([[0, 0, 1]])
        expected = theirs(*inputs).logits.numpy()
    found = heads.scores_of(Ops(), config, params.head, params.tree, batch)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_a_model_of_transformers_is_gone_on_with_head_and_all(tmp_path):
    run = trained(tmp_path, "sst2", write_sst2(tmp_path / "data"))
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(run)
    theirs.save_pretrained(tmp_path / "theirs")
    transformers.AutoTokenizer.from_pretrained(run).save_pretrained(tmp_path / "theirs")
    for name, source in (("ours", run), ("theirs", tmp_path / "theirs")):
        options = FinetuneOptions(
            "rte", write_rte(tmp_path / "RTE"), source, learning_rates=1e-3, max_steps=3, engine="numpy"
        )
        finetune(options, tmp_path / f"from-{name}", show=False)
    one, other = (
        (tmp_path / f"from-{name}" / "model.safetensors").read_bytes() for name in ("ours", "theirs")
    )
    assert one == other
