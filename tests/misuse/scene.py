"""The small files that misuses are tried on: models, two runs, official files, tables whole and broken."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

from small_corpus import write_corpus
from small_tasks import small_options, write_model, write_rte, write_sst2, write_swag

from minibert import cli
from minibert.finetuning.run import finetune

PRETRAIN = "--steps 2 --vocab-size 200 --seq-length 16 --batch-size 8 --evaluations 1 --engine numpy"
TABLES = {
    "reviews.csv": "text,label\nthe film is funny,good\nthe story was dull,bad\nit is warm,good\ncold,bad\n",
    "no_label.csv": "text,rating\nthe film is funny,good\nthe story was dull,bad\n",
    "short_row.csv": "text,label\nthe film is funny,good\nthe story was dull\n",
    "one_class.csv": "text,label\nthe film is funny,good\nit is warm,good\nwarm,good\ncharming,good\n",
    "empty.csv": "",
    "scores.csv": "text,label\nthe film is funny,4.5\nthe story was dull,low\n",
    "broken.jsonl": '{"text": "the film is funny", "label": "good"}\n{"text": "dull", "label": \n',
    "words.txt": "the\tO\nfilm\tO\n\nis\n",
    "predictions.csv": "id,prediction\n",
    "texts.txt": "the film is funny\n\nthe story was dull\n",
    "films/train.csv": "text,label\nthe film is funny,good\nthe story was dull,bad\n",
    "films/dev.csv": "text,label\nthe film is funny,great\nthe story was dull,bad\n",
    "one_file/train.csv": "text,label\nthe film is funny,good\nthe story was dull,bad\n",
    "unlabelled/train.csv": "text,label\nthe film is funny,good\nthe story was dull,bad\n",
    "unlabelled/dev.csv": "text\nthe film is funny\nthe story was dull\n",
    "archive.zip": "PK\x03\x04",
    "archive.csv": "PK\x03\x04",
    "one_document.txt": "It was a film. It was funny.\nThe story was dull.\n",
    "gold.json": '{"version": "1.1", "data": []}',
    "answers.json": "[1, 2]",
    "settings.json": '{"batch_size": 8, "learning_rate": 0.1}',
}


def write(folder: Path) -> None:
    """Write all of them.

    Parameters
    ----------
    folder : Path
        An empty one.
    """
    model = write_model(folder / "model")
    write_sst2(folder / "SST-2", 24, 12)
    write_rte(folder / "RTE", 8)
    (folder / "swag").mkdir()
    write_swag(folder / "swag", 8)
    for name, text in TABLES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    finetune(small_options(model, folder / "SST-2", epochs=1), folder / "tuned", show=False)
    write_corpus(folder / "corpus.txt")
    words = ["pretrain", str(folder / "corpus.txt"), "--out", str(folder / "pretrained"), "--quiet"]
    with redirect_stdout(io.StringIO()):
        assert cli.main([*words, *PRETRAIN.split()]) == 0
    broken = write_model(folder / "other_shape")
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"hidden_size": 25}))
    gpt = folder / "gpt"
    gpt.mkdir()
    (gpt / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_embd": 8}))
    bare = write_model(folder / "no_vocabulary")
    for path in bare.glob("*vocab*"):
        path.unlink()
    for path in bare.glob("tokenizer*"):
        path.unlink()
