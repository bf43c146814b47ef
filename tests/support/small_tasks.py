"""A model of a few thousand weights and tasks that it can learn in a second, made anew wherever needed."""

import csv
import json
import random
from pathlib import Path

from minibert import hub
from minibert.core.config import BertConfig
from minibert.finetuning.options import FinetuneOptions
from minibert.model.params import PRETRAINING, Head, initialise
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

GOOD, BAD = ("charming", "funny", "warm"), ("dull", "cold", "loud")
OTHERS = ("the", "film", "is", "a", "journey", "and", "story", "was", "very", "it", "one", "of")
WORDS = (*GOOD, *BAD, *OTHERS)


def small_config(**more) -> BertConfig:
    """The shape of the model."""
    shape = dict(
        vocab_size=len(SPECIAL_TOKENS) + len(WORDS),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=32,
        max_position_embeddings=24,
    )
    return BertConfig(**shape | more)


def write_model(folder: Path, head: Head = PRETRAINING, seed: int = 0, labels=(), **more) -> Path:
    """A folder as Hugging Face has it, with a tokenizer that knows `WORDS`."""
    config = small_config(**more)
    hub.save_hf(folder, config, initialise(config, seed, head=head), labels)
    Tokenizer([*SPECIAL_TOKENS, *WORDS]).save_pretrained(folder, config.P)
    return folder


def reviews(count: int, seed: int) -> list[tuple[str, str]]:
    """(sentence, label): "1" where a good word is among words that tell nothing, "0" where a bad one is."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        good = rng.random() < 0.5
        words = rng.choices(OTHERS, k=rng.randint(2, 8))
        words.insert(rng.randrange(len(words) + 1), rng.choice(GOOD if good else BAD))
        found.append((" ".join(words), str(int(good))))
    return found


def write_table(path: Path, header: tuple[str, ...], rows) -> Path:
    """Columns between tabs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in [header, *rows]), encoding="utf-8")
    return path


def write_sst2(folder: Path, n_train: int = 160, n_dev: int = 60) -> Path:
    """SST-2's three files as they are distributed."""
    write_table(folder / "train.tsv", ("sentence", "label"), reviews(n_train, 1))
    write_table(folder / "dev.tsv", ("sentence", "label"), reviews(n_dev, 2))
    test = [(number, sentence) for number, (sentence, _) in enumerate(reviews(30, 3))]
    write_table(folder / "test.tsv", ("index", "sentence"), test)
    return folder


def write_rte(folder: Path, n: int = 40) -> Path:
    """RTE's files: the second sentence follows where it is as good as the first."""
    for split, seed in (("train", 4), ("dev", 5), ("test", 6)):
        pairs = zip(reviews(n, seed), reviews(n, seed + 100), strict=True)
        rows = [
            (number, one, other, "entailment" if label == its else "not_entailment")
            for number, ((one, label), (other, its)) in enumerate(pairs)
        ]
        header = ("index", "sentence1", "sentence2", "label")
        if split == "test":
            header, rows = header[:3], [row[:3] for row in rows]
        write_table(folder / f"{split}.tsv", header, rows)
    return folder


def several(count: int, seed: int) -> list[tuple[str, list[str]]]:
    """(sentence, labels): "praise" where a good word is in it, "blame" where a bad one is, rarely "long"."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        labels = [label for label, often in (("praise", 0.5), ("blame", 0.4)) if rng.random() < often]
        words = rng.choices(OTHERS, k=9 if rng.random() < 0.15 else rng.randint(2, 4))
        for label, among in (("praise", GOOD), ("blame", BAD)):
            if label in labels:
                words.insert(rng.randrange(len(words) + 1), rng.choice(among))
        found.append((" ".join(words), [*labels, *(["long"] if len(words) > 8 else [])]))
    return found


def write_several(folder: Path, n_train: int = 200, n_dev: int = 60) -> Path:
    """A table of one's own, with any number of labels for a text."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, n, seed in (("train", n_train, 1), ("dev", n_dev, 2), ("test", 30, 3)):
        rows = [json.dumps({"text": text, "label": labels}) for text, labels in several(n, seed)]
        (folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n")
    return folder


def small_options(model: Path, data: Path, task: str = "sst2", **more) -> FinetuneOptions:
    """A run of a second that learns such a task."""
    given = dict(task=task, data=data, model=model, engine="numpy", batch_size=16, epochs=6, dropout=0.1)
    return FinetuneOptions(**given | dict(optimizer="adamw", learning_rates=(5e-3,)) | more)


def report_in(folder: Path) -> dict:
    """What a run says of itself."""
    return json.loads((folder / "report.json").read_text())


def write_swag(folder, count=64):
    """The ending that goes on is the one with a good word."""
    header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source".split(",")
    header += [f"ending{n}" for n in range(4)] + ["label"]
    for split, seed in (("train", 1), ("val", 2)):
        with open(folder / f"{split}.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(header)
            for number, (good, _) in enumerate(reviews(count, seed)):
                endings, label = ["dull", "cold", "loud", "the"], number % 4
                endings[label] = GOOD[number % 3]
                table.writerow([number, "v", "f", "x", good[:8], "it was", "gold", *endings, label])
    return folder
