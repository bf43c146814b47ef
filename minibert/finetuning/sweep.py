"""Several runs of fine-tuning: every setting with every seed; the best on dev is copied to the top folder."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minibert.base.errors import DivergedError, MissingFile, RunError
from minibert.base.files import atomic_json, require_intact, write_atomically
from minibert.base.json_files import read_json
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.running import Run, run_once, write_sweep_page
from minibert.reports.results import REPORT, RUN, SETTING, finished_report, remove_spent, settings
from minibert.tasks.stored import OPTIONS_FILE
from minibert.training.runlog import METRICS, info_if

FAILED = "failed.json"  # note in the folder of a run that has diverged
# Fields of each run's report that the report of the sweep repeats.
KEPT = (*SETTING, "seed", "scores", "best_epoch", "folder", "training_seconds", "failed")


def sweep(
    options: FinetuneOptions,
    run: Callable[[FinetuneOptions, Path], Run],
    out: Path,
    show: bool,
    began: float,
) -> dict[str, Any]:
    """Do every run in its own folder, skip finished ones, and copy the best to the top.

    If a run diverges, this is noted in its folder, and the others go on.

    Parameters
    ----------
    options : FinetuneOptions
        Options with several values, or several restarts.
    run : callable
        Makes a run from the options of a single run and its folder.
    out : Path
        Folder of the sweep.
    show : bool
        Whether to log how it goes.
    began : float
        `time.monotonic()` when the sweep began.

    Returns
    -------
    dict
        The report of the best run, with `runs`: a few metrics of each, or under `failed` why it has none.

    Raises
    ------
    RunError
        When every run has diverged.
    InputError
        When a run finished with other data than there are now, or the model of the best run was altered after
        that run had finished.
    """
    if not (out / OPTIONS_FILE).exists():
        options.save(out / OPTIONS_FILE)
    info = info_if(show)
    runs = options.runs()
    reports = []
    findings = {}  # of the runs that are trained now, by the names of their folders
    for number, (name, run_options) in enumerate(runs.items(), start=1):
        this_run = run(run_options, out / name)
        report, before = _done_before(this_run)
        info(f"Run {number} of {len(runs)}, {name}{before}.")
        if report is None:
            try:
                report, findings[name] = run_once(this_run, time.monotonic())
            except DivergedError as error:
                report = _given_up(this_run, error)
                info(f"Given up: {error}")
        varied = {name: getattr(run_options, name) for name in options.varied}
        reports.append(report | varied)
    finished = [report for report in reports if "failed" not in report]
    if not finished:
        advice = f"try lower learning rates in another folder. The first: {reports[0]['failed']}"
        raise RunError(f"All {len(runs)} runs of the sweep in '{out}' have diverged; {advice}")
    best = max(finished, key=lambda report: report["scores"][report["metric"]])
    folder = Path(best["folder"])
    require_intact(folder, best.get("crc32", {}))
    _link_files(folder, out)
    kept = [{name: report[name] for name in KEPT if name in report} for report in reports]
    report = best | {
        "runs": kept,
        "settings": settings(kept, best["metric"]),
        "seconds": round(time.monotonic() - began, 1),
        "folder": str(out),
        "page": str(out / Path(best["page"]).name),
    }
    best_run = run(runs[folder.name], folder)
    write_sweep_page(best_run, report, Path(report["page"]), findings.get(folder.name))
    atomic_json(out / REPORT, report)
    remove_spent(out)
    return report


def _done_before(run: Run) -> tuple[dict[str, Any] | None, str]:
    """Return the report of a run that needs no training any more, and how it ended; None for any other."""
    report = finished_report(run.folder)
    if report is not None:
        run.require_same_data(report.get("data_crc32"))
        return report, ": finished before"
    report = _failure(run.folder)
    return report, ": failed before" if report else ""


def _given_up(run: Run, error: DivergedError) -> dict[str, Any]:
    """Note in its folder that a run has diverged, and return the note."""
    options = run.options
    report = {"learning_rate": options.learning_rate, "seed": options.seed, "folder": str(run.folder)}
    report["failed"] = str(error)
    atomic_json(run.folder / FAILED, report)
    remove_spent(run.folder)  # if it were resumed, it would diverge again
    return report


def _failure(folder: Path) -> dict[str, Any] | None:
    """Return the note about a run that has diverged; None for any other run."""
    try:
        report = read_json(folder / FAILED, RUN | {"failed": str}, "remove it, and the run is done again")
    except MissingFile:
        return None
    return report | {"folder": str(folder)}


def _link_files(folder: Path, out: Path) -> None:
    """Link the files of a run into the folder of a sweep, which has options and records of its own."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name not in (OPTIONS_FILE, REPORT, METRICS):
            _link(path, out / path.name)


def _link(source: Path, target: Path) -> None:
    """Link a file under another name; copy it if the file system has no links."""

    def make(temporary: Path) -> None:
        temporary.unlink()
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)

    write_atomically(target, make)
