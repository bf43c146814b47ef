"""What the BERT in the package is worth: tasks after fine-tuning, and nats per byte, beside simpler methods.

    python benchmarks/english_tables.py [--models english runs/books] [--only sst2 mrpc ...] [--seeds 0 1 2]
        [--epochs N] [--train-examples N] [--book FILE] [--threads N] [--out FOLDER] [--table] [--quick]

Each model, and the first of them with its initial values, is fine-tuned for each task by the recipe of
minibert, and the epoch that is best on dev counts. Beside them stand the
most frequent answer, or the mean, and a bag of words (naive Bayes). Nats per byte are those of whole words,
on WikiText-2's test and on a book. Each measurement is a cell, and each finished cell a file in --out: what
was stopped goes on where it was, and --table prints what there is, as Markdown. The interval is that of the
first model over dev examples, the mean of its seeds'; what other seeds would have given is not in it.
"""

import argparse
import lzma
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers.bench import ended, say
from tokenizer_jobs.texts import DATA

from minibert import Tokenizer, hub
from minibert.base.errors import InputError
from minibert.base.files import atomic_json
from minibert.base.json_files import read_json
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.model.params import initialise
from minibert.pretraining.predict import evaluate_words

TASKS = {  # with the folder of their files
    "sst2": ("SST-2", "glue"),
    "mrpc": ("MRPC", "glue"),
    "rte": ("RTE", "glue"),
    "cola": ("CoLA", "glue"),
    "stsb": ("STS-B", "glue"),
    "snli": ("SNLI", "pairs"),
    "qnli-dev": ("QNLI (its dev file divided)", "glue"),
    "ner": ("CoNLL-2003", "ner"),
}
# The recipe reads two windows of 512 tokens in a step, and `english` has seen texts of up to 128.
CHANGED: dict[str, dict[str, Any]] = {"ner": {"max_length": 128, "batch_size": 8}}
UNTRAINED = "untrained"
WIKITEXT = DATA / "text" / "wikitext2.test.raw.xz"
BOOK = Path("runs/english/text/frankenstein.txt")
QUICK = {"train_examples": 24, "dev_examples": 16, "epochs": 1.0, "max_length": 24}
QUICK_CHARACTERS = 5000
Cell = dict[str, Any]


class Tables:
    """The cells of one call, and the folder where they are kept."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out = Path(options.out)
        self.models = [UNTRAINED, *options.models]

    def run(self) -> None:
        """Measure what is left to measure."""
        for model in self.models:
            for name, path in self.texts().items():
                self.cell(f"{name}-{label_of(model)}", lambda model=model, path=path: self.nats(model, path))
        for seed in self.options.seeds:
            for task in self.options.only:
                for model in self.models:
                    name = f"{task}-{label_of(model)}-{seed}"
                    self.cell(name, lambda task=task, model=model, seed=seed: self.tune(task, model, seed))

    def require_same_options(self) -> None:
        """Keep what changes the figures beside the cells; refuse cells that were made with something else."""
        o = self.options
        now = {"quick": o.quick, "epochs": o.epochs, "train_examples": o.train_examples}
        path = self.out / "options.json"
        if path.exists() and read_json(path) != now:
            raise InputError(f"{self.out} has cells of a run with other options; choose another --out.")
        atomic_json(path, now)

    def cell(self, name: str, make: Callable[[], Cell]) -> None:
        """Make a cell, unless it is there."""
        path = self.out / f"{name}.json"
        if not path.exists():
            say(name)
            atomic_json(path, make())

    def tune(self, task: str, model: str, seed: int) -> Cell:
        """Fine-tune a model for a task; return what its report says."""
        o = self.options
        _, folder = TASKS[task]
        changes = QUICK if o.quick else {"epochs": o.epochs, "train_examples": o.train_examples}
        changes = CHANGED.get(task, {}) | changes
        settings = FinetuneOptions(
            task, str(DATA / folder), self.place(model), seed=seed, threads=o.threads, **changes
        )
        with tempfile.TemporaryDirectory() as folder:
            report = finetune(settings, Path(folder) / "run", show=False)
        metric = report["metric"]
        cell = {"metric": metric, "score": report["scores"][metric], "interval": list(report["interval"])}
        for kind in ("majority", "constant", "bag_of_words"):
            if kind in report:
                cell[kind] = report[kind]["scores"][metric]
        return cell | {name: report[name] for name in ("train_examples", "examples", "best_epoch")}

    def nats(self, model: str, path: Path) -> Cell:
        """Return the loss of whole words of a text."""
        with tempfile.TemporaryDirectory() as folder:
            if self.options.quick:
                path = beginning(path, Path(folder))
            loss = evaluate_words(self.place(model), (str(path),), threads=self.options.threads)
        return {"nats_per_byte": loss.nats_per_byte, "words": loss.words}

    def place(self, model: str) -> str:
        """Return the name or folder of a model; the untrained one is written when it is asked for first."""
        if model != UNTRAINED:
            return model
        folder = self.out / UNTRAINED
        if not (folder / "vocab.txt").exists():
            first = self.options.models[0]
            config, _, _ = hub.load(first)
            hub.save_hf(folder, config, initialise(config, seed=0))
            Tokenizer.from_pretrained(first).save_pretrained(folder, config.P)
        return str(folder)

    def texts(self) -> dict[str, Path]:
        """Return the texts to measure nats per byte on, of those that are there."""
        texts = {"wikitext2": WIKITEXT, "book": Path(self.options.book)}
        return {name: path for name, path in texts.items() if path.exists()}

    def found(self, name: str) -> Cell | None:
        """Return a finished cell; None where there is none."""
        path = self.out / f"{name}.json"
        return read_json(path) if path.exists() else None

    def text(self) -> str:
        """Return both tables."""
        labels = [label_of(model) for model in self.models]
        _, first, *_ = labels
        tasks = [("", "always the same", "bag of words", *labels, f"95% interval of {first}")]
        for task in self.options.only:
            cells = {label: self.seeds_of(task, label) for label in labels}
            if cells[first]:
                tasks.append(row_of(task, cells, first))
        losses = [("nats per byte", *labels)]
        for name in ("wikitext2", "book"):
            values = [self.found(f"{name}-{label}") for label in labels]
            losses.append((name, *(f"{cell['nats_per_byte']:.4f}" if cell else "" for cell in values)))
        about = f"Mean ± standard deviation of {len(self.options.seeds)} seeds."
        if self.options.quick:
            about = "Run with --quick: no figure to quote."
        return "\n\n".join([about, markdown(tasks), markdown(losses)])

    def seeds_of(self, task: str, label: str) -> list[Cell]:
        """Return the finished cells of a model for a task."""
        cells = [self.found(f"{task}-{label}-{seed}") for seed in self.options.seeds]
        return [cell for cell in cells if cell]


def row_of(task: str, cells: dict[str, list[Cell]], first: str) -> tuple[str, ...]:
    """Return the row of a task, in points; `cells` are those of each model, by seed."""
    title, _ = TASKS[task]
    cell = cells[first][0]
    simple = [cell.get("majority", cell.get("constant")), cell.get("bag_of_words")]
    shown = ["" if score is None else f"{100 * score:.1f}" for score in simple]
    for of_model in cells.values():
        scores = [100 * cell["score"] for cell in of_model]
        mean = f"{statistics.mean(scores):.1f}" if scores else ""
        if len(scores) > 1:
            mean += f" ± {statistics.stdev(scores):.1f}"
        shown.append(mean)
    low, high = (100 * statistics.mean(cell["interval"][end] for cell in cells[first]) for end in (0, 1))
    return (f"{title}, {cell['metric']}", *shown, f"{low:.1f} to {high:.1f}")


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
    found.add_argument("--only", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    found.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    found.add_argument("--epochs", type=float)
    found.add_argument("--train-examples", type=int)
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
    labels = [label_of(model) for model in options.models]
    if len({UNTRAINED, *labels}) <= len(labels):
        raise InputError(f"Two of {', '.join([UNTRAINED, *labels])} have one name; rename a folder.")
    tables = Tables(options)
    if not options.table:
        tables.require_same_options()
        tables.run()
    print(tables.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
