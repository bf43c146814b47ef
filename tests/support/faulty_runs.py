"""Trainings of a second or two: healthy ones, and some with one fault each, for `minibert doctor`."""

import math
import random
from contextlib import suppress
from pathlib import Path
from unittest import mock

import small_tasks
from small_tasks import reviews, small_options, write_model, write_table

from minibert import hub
from minibert.finetuning.run import finetune
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer
from minibert.training import loop

TEXTS, PAIRS, WORDS = ("text", "label"), ("text", "second", "label"), ("words", "tags")
LETTERS = "bcdfghklmnprstvw"


class SlowingClock:
    """A clock to time the steps by: each reading is a moment later, and after some readings a long moment."""

    def __init__(self, readings: float = math.inf, times: float = 1.0) -> None:
        self.now, self.read, self.readings, self.times = 0.0, 0, readings, times

    def monotonic(self) -> float:
        self.read += 1
        self.now += 0.2 * (self.times if self.read > self.readings else 1)
        return self.now


# Texts


def words(count: int, rng: random.Random) -> list[str]:
    return ["".join(rng.choice(LETTERS) + rng.choice("aeiou") for _ in range(3)) for _ in range(count)]


def write_text(path: Path, seed: int, lines: int = 1400, follow: float = 0.75, kinds: int = 24) -> Path:
    """Sentences in which each word is mostly followed by one and the same other word."""
    rng = random.Random(seed)
    known = words(kinds, rng)
    after = dict(zip(known, rng.sample(known, len(known)), strict=True))
    documents = []
    for _ in range(lines // 8):
        sentences = []
        for _ in range(8):
            sentence = [rng.choice(known)]
            while len(sentence) < 14:
                sentence.append(after[sentence[-1]] if rng.random() < follow else rng.choice(known))
            sentences.append(" ".join(sentence))
        documents.append("\n".join(sentences))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(documents) + "\n")
    return path


def pretrained(folder: Path, seed: int, size: str, on_log=None, text=(), **more) -> Path:
    """A pre-training of some 200 steps; `text` changes how its text is made."""
    corpus = write_text(folder / "text.txt", seed, **dict(text))
    given = dict(
        corpus=str(corpus), layout="sentences", vocab_size=160, held_out=0.1, size=size, seed=seed,
        seq_length="10", batch_size=32, steps=200, learning_rate=5e-3, next_sentence=False,
        evaluations=4, engine="numpy",
    )  # fmt: skip
    if "vocab" in more:
        del given["vocab_size"]
    pretrain(PretrainOptions(**given | more), folder / "run", show=False, on_log=on_log)
    return folder / "run"


def small_model(folder: Path, seed: int, size: str) -> Path:
    """An untrained model that knows the words of reviews."""
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    shape = dict(zip(names, map(int, size.split("-")), strict=True))
    return write_model(folder / "model", seed=seed, **shape)


def tuned(
    folder: Path, seed: int, size: str, rows=reviews, task="classify", head=TEXTS, model=None, **more
) -> Path:
    """A fine-tuning of some 100 steps for a table; `rows` makes those of a split from a seed."""
    model = model or small_model(folder, seed, size)
    for split, count, offset in (("train", 200, 0), ("dev", 240, 1000)):
        write_table(folder / "data" / f"{split}.tsv", head, rows(count, seed + offset))
    options = small_options(model, folder / "data", task, seed=seed, **dict(epochs=8.0) | more)
    finetune(options, folder / "run", show=False)
    return folder / "run"


# Healthy runs


def prices(count: int, seed: int):
    rng = random.Random(seed)
    return [(text, (450 if label == "1" else 150) + rng.gauss(0, 20)) for text, label in reviews(count, seed)]


def tagged(count: int, seed: int):
    tags = dict.fromkeys(small_tasks.GOOD, "B-GOOD") | dict.fromkeys(small_tasks.BAD, "B-BAD")
    return [
        (text, " ".join(tags.get(word, "O") for word in text.split())) for text, _ in reviews(count, seed)
    ]


def pairs(count: int, seed: int):
    good, bad = ([text for text, label in reviews(4 * count, seed) if label == one] for one in "10")
    rows = []
    for side, name in ((good, "fine"), (bad, "poor")):
        rows += [(*side[2 * row : 2 * row + 2], name) for row in range(count // 2)]
    return rows


HEALTHY = {
    "pre-training": pretrained,
    "classes": tuned,
    "numbers": lambda folder, seed, size: tuned(folder, seed, size, prices, "regress"),
    "tags": lambda folder, seed, size: tuned(folder, seed, size, tagged, "tag", WORDS),
    "pairs": lambda folder, seed, size: tuned(folder, seed, size, pairs, head=PAIRS, epochs=10.0),
}

# Faults


def rate_too_high(folder: Path, seed: int, size: str) -> Path:
    return pretrained(folder, seed, size, learning_rate=1.0)


def rate_too_high_tuned(folder: Path, seed: int, size: str) -> Path:
    return tuned(folder, seed, size, learning_rates=0.5)


def rate_too_low(folder: Path, seed: int, size: str) -> Path:
    return pretrained(folder, seed, size, learning_rate=1e-5)


def rate_too_low_tuned(folder: Path, seed: int, size: str) -> Path:
    return tuned(folder, seed, size, learning_rates=1e-6)


def plateau(folder: Path, seed: int, size: str) -> Path:
    return pretrained(folder, seed, size, seq_length="64", batch_size=8, steps=80, learning_rate=2e-3)


def few_targets(folder: Path, seed: int, size: str) -> Path:
    return pretrained(folder, seed, size, mask_rates=(0.2, 0.8, 0.0), steps=80)


def shuffled_labels(folder: Path, seed: int, size: str) -> Path:
    def rows(count, seed):
        made = reviews(60 if count == 200 else count, seed)
        return [(text, label) for (text, _), (_, label) in zip(made, made[1:] + made[:1], strict=True)]

    return tuned(folder, seed, size, rows, epochs=30.0, dropout=0.0)


def dead_layer(folder: Path, seed: int, size: str) -> Path:
    model = small_model(folder, seed, size)
    config, params, _ = hub.load(model)
    params[f"layers.{config.L - 1}.feed_forward.in_bias"][...] = -1000
    hub.save_hf(model, config, params)
    return tuned(folder, seed, size, model=model)


def repeated_lines(folder: Path, seed: int, size: str) -> Path:
    write_text(folder / "once.txt", seed, lines=700)
    (folder / "twice.txt").write_text(2 * (folder / "once.txt").read_text())
    return pretrained(folder, seed, size, corpus=str(folder / "twice.txt"), steps=80)


def other_vocabulary(folder: Path, seed: int, size: str) -> Path:
    (folder / "vocab").mkdir(parents=True)
    pieces = [*SPECIAL_TOKENS, *"xyzqj", *words(60, random.Random(seed + 7))]
    Tokenizer(list(dict.fromkeys(pieces))).save_pretrained(folder / "vocab")
    return pretrained(folder, seed, size, vocab=str(folder / "vocab"), steps=80)


def overfitted(folder: Path, seed: int, size: str) -> Path:
    few = dict(lines=48, follow=0.6)
    return pretrained(folder, seed, size, text=few, steps=300, evaluations=12, dupe_factor=1, held_out=0.5)


def far_label(folder: Path, seed: int, size: str) -> Path:
    def rows(count, seed):
        made = prices(count, seed)
        if count == 200:
            made[7] = (made[7][0], 1e6)
        return made

    return tuned(folder, seed, size, rows, "regress")


def slower_machine(folder: Path, seed: int, size: str) -> Path:
    with mock.patch.object(loop, "time", SlowingClock(200, 3.0)):  # of some four readings a step
        return pretrained(folder, seed, size)


def small_batch(folder: Path, seed: int, size: str) -> Path:
    return pretrained(folder, seed, size, batch_size=1)


def stopped(folder: Path, seed: int, size: str) -> Path:
    def stop(step, values):
        if step == 120:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        pretrained(folder, seed, size, stop)
    return folder / "run"


FAULTS = {
    rate_too_high: "learning rate too high",
    rate_too_high_tuned: "learning rate too high",
    rate_too_low: "learning rate too low",
    rate_too_low_tuned: "learning rate too low",
    plateau: "still on the unigram plateau",
    few_targets: "too few targets",
    shuffled_labels: "learnt by heart",
    dead_layer: "dead layer",
    repeated_lines: "repeated lines",
    other_vocabulary: "vocabulary of another text",
    overfitted: "overfitting",
    far_label: "labels far apart",
    slower_machine: "the machine became slower",
    small_batch: "batches too small",
    stopped: "stopped before its end",
}
