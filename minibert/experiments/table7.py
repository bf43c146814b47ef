"""Table 7 of the paper: named entities by fine-tuning, and by LSTMs on six combinations of frozen layers.

Every cell is one training with one seed. Finished ones stand in `table7.json` and are not done again; nor is
one that diverged, which is marked there, as it would only diverge again.
"""

import dataclasses
import json
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

from minibert import engines
from minibert.errors import DivergedError, InputError, MissingFile
from minibert.files import atomic_text, sole_writer
from minibert.finetuning.feature_based import FeatureBasedRun, PreparedVectors, prepare
from minibert.finetuning.options import FEATURE_BASED, GENERAL, RECIPES, FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.frozen.activations import COMBINATIONS
from minibert.json_files import misfit, read_json
from minibert.reports.results import remove_spent
from minibert.tasks.stored import OPTIONS_FILE
from minibert.training.runlog import say

RESULTS, TABLE = "table7.json", "table7.txt"
FIELDS = {"settings": dict, "cells": dict[str, dict]}  # type: ignore[type-arg]
FINE_TUNED = "fine-tuned"
PAPER = {  # dev F1 of BERT BASE, cased, on all of CoNLL-2003
    FINE_TUNED: 96.4,
    "embeddings": 91.0,
    "second-to-last": 95.6,
    "last": 94.9,
    "sum-last-4": 95.9,
    "concat-last-4": 96.1,
    "sum-all": 95.5,
}
# What has no influence on the metrics.
FREE = ("engine", "threads", "checkpoint_seconds", "checkpoint_steps", "keep")


class Cell(NamedTuple):
    """One training."""

    row: str
    seed: int

    @property
    def name(self) -> str:
        """In the file of results, and of its folder."""
        return f"{self.row}-seed{self.seed}"


def table7(
    options: FinetuneOptions,
    out: str | Path,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    rows: Sequence[str] = tuple(PAPER),
    show: bool = True,
) -> dict[str, Any]:
    """Train what is not trained yet, and make the table.

    Parameters
    ----------
    options : task, data, model, width and the like, not resolved: the fine-tuned row and those of features
        have recipes of their own where nothing is said.
    out : folder for the trainings, and for the table as text and as JSON.
    seeds : a training of every row for each.
    rows : "fine-tuned", or the name of a combination of layers.
    show : tell the person watching how it goes.

    Returns
    -------
    What `table7.json` holds: `settings`, and in `cells` dev metrics of every training, or under `failed` what
    became of it; `table_text` makes it readable.

    Raises
    ------
    InputError
        When options, data or model can't be used, the folder holds a table with other settings, can't be
        written into, or another process makes a table there.
    """
    out = Path(out)
    for row in rows:
        if row not in PAPER:
            raise InputError(f"rows: there is no {row!r}; choose from {', '.join(PAPER)}.")
    with sole_writer(out):
        results = _begun(options, out)
        missing = [cell for cell in cells(rows, seeds) if cell.name not in results["cells"]]
        on_layers = {cell.row for cell in missing} - {FINE_TUNED}
        prepared = None  # whose layers are computed when the first of these rows comes
        for number, cell in enumerate(missing, start=1):
            one, folder = dataclasses.replace(options, seed=cell.seed), out / "runs" / cell.name
            try:
                if cell.row == FINE_TUNED:
                    report = finetune(one, folder, resume=(folder / OPTIONS_FILE).exists(), show=show)
                    metrics = _metrics(report["scores"], report["best_epoch"], report)
                else:
                    prepared = prepared or _prepared(options, out, on_layers, show)
                    one = dataclasses.replace(one, feature_based=cell.row)
                    metrics = _on_layers(one, prepared, folder, show)
                outcome = f"F1 {100 * metrics['f1']:.2f} on dev"
            except DivergedError as error:
                metrics, outcome = {"failed": str(error)}, f"given up. {error}"
                remove_spent(folder)
            results["cells"][cell.name] = metrics
            atomic_text(out / RESULTS, json.dumps(results, indent=2) + "\n")
            atomic_text(out / TABLE, table_text(results) + "\n")
            if show:
                say(f"{cell.name}: {outcome} ({number} of {len(missing)} done).")
        remove_spent(out)
        return results


def cells(rows: Iterable[str], seeds: Iterable[int]) -> list[Cell]:
    """List all trainings, all rows with one seed before the next seed."""
    rows = list(rows)
    return [Cell(row, seed) for seed in seeds for row in rows]


def _begun(options: FinetuneOptions, out: Path) -> dict[str, Any]:
    """Read the results so far, which have to be of the same settings."""
    given = json.loads(json.dumps(dataclasses.asdict(options)))
    settings = {name: value for name, value in given.items() if name not in FREE}
    path = out / RESULTS
    try:
        found = read_json(path, FIELDS, "remove it or choose another --out")
    except MissingFile:
        return {"settings": settings, "cells": {}}
    for name, cell in found["cells"].items():
        row, _, seed = name.rpartition("-seed")
        wrong = misfit(cell, {"failed": str} if "failed" in cell else {"f1": float})
        if wrong or row not in PAPER or not re.fullmatch("[0-9]{1,20}", seed):
            reason = wrong or "there is no such row and seed"
            raise InputError(f"{path}: of {short(name)} {reason}; remove it or choose another --out.")
    there = found["settings"]
    if there != settings:
        names = [name for name in settings | there if there.get(name) != settings.get(name)]
        raise InputError(
            f"{path} holds a table with other settings ({', '.join(names)}); choose another --out, or the "
            "same settings to go on with it."
        )
    return found


def _on_layers(
    options: FinetuneOptions, prepared: PreparedVectors, folder: Path, show: bool
) -> dict[str, Any]:
    """Train LSTMs and return their metrics; nothing else is kept but the record."""
    ops = prepared.model.ops
    run = FeatureBasedRun(engines.settled(options.resolved()), prepared, ops, folder, show=show)
    with engines.limited_threads(options.threads, ops):
        state, best = run.fit()
    remove_spent(folder)
    done = {"parameters": state.params.count(), "training_seconds": round(state.seconds, 1)}
    return _metrics(best["scores"], best["epoch"], done)


def _prepared(options: FinetuneOptions, out: Path, rows: Iterable[str], show: bool) -> PreparedVectors:
    """Prepare the data that all rows of features share."""
    # Which combination stands in the options does not matter here, only that they are of one.
    options = dataclasses.replace(options, feature_based=next(iter(COMBINATIONS)))
    options = engines.settled(options.resolved())
    ops, engine = engines.choose(options.engine, options.threads, options.dtype)
    if show:
        say(f"Engine {engine}.")
    return prepare(options, ops, out, show, sorted(rows))


def _metrics(scores: dict[str, float], epoch: float, report: dict[str, Any]) -> dict[str, Any]:
    found = {name: scores[name] for name in ("f1", "precision", "recall")} | {"epoch": epoch}
    return found | {name: report[name] for name in ("parameters", "training_seconds")}


def table_text(results: dict[str, Any]) -> str:
    """Write the table for a person, with what was done below it."""
    found: dict[str, dict[int, float | None]] = {}
    for name, cell in results["cells"].items():
        row, _, seed = name.rpartition("-seed")
        found.setdefault(row, {})[int(seed)] = None if "failed" in cell else 100 * cell["f1"]
    seeds = sorted({seed for row in found.values() for seed in row})
    titles = {FINE_TUNED: "Fine-tuning"} | {name: one.title for name, one in COMBINATIONS.items()}
    width = max(map(len, titles.values()))
    head = "  ".join([f"{'dev F1':<{width}}", "mean +- s.d.", *(f"seed {s}" for s in seeds), "paper"])
    lines = [head, "-" * len(head)]
    for row, paper in PAPER.items():
        if row not in found:
            continue
        values = [value for value in found[row].values() if value is not None]
        spread = f"+- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        mean = f"{statistics.mean(values):.2f} {spread}" if values else "-"
        texts = {seed: "failed" if one is None else f"{one:6.2f}" for seed, one in found[row].items()}
        shown = [texts.get(seed, " " * 6) for seed in seeds]
        lines.append("  ".join([f"{titles[row]:<{width}}", f"{mean:<12}", *shown, f"{paper:5.1f}"]))
    settings = results["settings"]
    learnt, recipes = settings["train_examples"], (RECIPES.get(settings["task"], GENERAL), FEATURE_BASED)
    tuned, frozen = (settings["epochs"] or recipe.epochs for recipe in recipes)
    lines += [
        "",
        f"{settings['task']} from {Path(settings['model']).name}, "
        f"{'all' if learnt is None else f'about {learnt:,}'} sentences of train; LSTMs of "
        f"{settings['width']} in each direction (the paper: 768).",
        f"Of {tuned:g} epochs of fine-tuning, {frozen:g} of LSTMs, the best on dev counts.",
        "The paper's column: BERT BASE, cased, all of CoNLL-2003.",
    ]
    failed = {name: cell["failed"] for name, cell in results["cells"].items() if "failed" in cell}
    return "\n".join(lines + [f"{name} has failed and is in no mean: {why}" for name, why in failed.items()])
