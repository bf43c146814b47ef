"""Numbers far from zero: transformers predicts what minibert does, from a run and from what is exported."""

import numpy as np
import pytest
from small_tasks import reviews, small_options, write_model, write_table

from minibert import cli
from minibert.finetuning.run import classify, finetune

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def test_transformers_predicts_the_same_numbers(tmp_path):
    model = write_model(tmp_path / "model")
    for split, seed in (("train", 1), ("dev", 2)):
        rows = [(text, 150_000 + 300_000 * int(label)) for text, label in reviews(120, seed)]
        write_table(tmp_path / "data" / f"{split}.tsv", ("text", "label"), rows)
    options = small_options(model, tmp_path / "data", "regress", epochs=8, dropout=0.0)
    finetune(options, tmp_path / "run", show=False)
    texts = [text for text, _ in reviews(20, 3)]
    ours = [one["value"] for one in classify(tmp_path / "run", texts, engine="numpy")]
    assert np.ptp(ours) > 10_000 and 200_000 < np.mean(ours) < 400_000
    arguments = ["export", "--model", str(tmp_path / "run"), "--out", str(tmp_path / "exported")]
    assert cli.main(arguments) == 0
    for folder in (tmp_path / "run", tmp_path / "exported"):
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        with torch.no_grad():
            inputs = tokenizer(texts, return_tensors="pt", padding=True)
            found = theirs(**inputs).logits[:, 0].numpy()
        assert found == pytest.approx(ours, rel=1e-6)
