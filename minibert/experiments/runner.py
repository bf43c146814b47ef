"""Run the cells that are not done yet, and add their results to one file.

A folder of experiments contains

    text/                       vocabulary and shards
    models/                     pre-trained models
    submission/                 answers to GLUE's test sets, zipped for each seed
    results.jsonl               the result of each cell, one a line
    times.jsonl                 the seconds that each cell took, one a line
    tables.txt, index.html      the tables
"""

import json
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from minibert import engines
from minibert.base.errors import DivergedError, InputError
from minibert.base.files import (
    atomic_text,
    read_bytes,
    sole_writer,
    write_folder_atomically,
)
from minibert.base.json_files import parse_json, read_json
from minibert.base.machine import cores
from minibert.base.options import STORED
from minibert.base.terminal import some_of
from minibert.experiments import smoke_tasks
from minibert.experiments.cells import ASKED, SUBMISSION, Cell, Plan, Result
from minibert.experiments.scales import MADE
from minibert.experiments.tables import Table
from minibert.experiments.verdicts import Outcomes, require_scipy
from minibert.tasks import submissions
from minibert.training.runlog import LogMessage, info_if, logger

RESULTS, TIMES = "results.jsonl", "times.jsonl"
SHARE = {"pre-training": 0.3, "fine-tuning": 0.15}  # share of the peak rate that is assumed at first
CELL_SECONDS = 2.0  # seconds of overhead for every cell that are assumed at first
USUAL_GFLOPS = 50.0  # rate that is assumed for a machine whose peak is unknown
LONG = 60.0  # seconds; a cell that is expected to take longer shows its progress


def reproduce(
    plan: Plan,
    tables: Sequence[Table],
    seeds: Sequence[int],
    *,
    minutes: float | None = None,
    show: bool = True,
    write: Callable[["Results"], object] = lambda results: None,
) -> "Results":
    """Run the missing cells of some tables, and return all results; `page.write` makes tables of them.

    Ctrl-C loses only the steps since the last checkpoint of a cell: call it again to continue.

    Parameters
    ----------
    plan : Plan
        Scale, data, text and folder.
    tables : sequence of Table
        Tables of `TABLES`, or others of the same form.
    seeds : sequence of int
        Every cell is trained once with each.
    minutes : float, default None
        The longest that this may take. If more is expected, InputError is raised before anything is trained.
    show : bool, default True
        Log the progress.
    write : callable
        Called with the results at the end, even after Ctrl-C, while no other process may write to the folder.

    Returns
    -------
    Results
        The results of all cells, including those of earlier calls.

    Raises
    ------
    InputError
        When SciPy is not installed, files are missing or damaged, the given model does not fit, the folder
        contains results of other settings or something else, `minutes` are too few, or another process is
        writing to the folder.
    """
    require_scipy()
    with sole_writer(plan.out):
        _check_folder(plan.out)
        info = info_if(show)
        _log_sources(plan, tables, info)
        cells = plan.cells(tables, seeds)
        results = Results(plan.out, cells)
        missing = [cell for cell in cells if cell.name not in results]
        seconds_left = results.estimate(missing)
        needed = _duration(seconds_left)
        info(f"{len(missing)} of {len(cells)} cells are to be run: about {needed}.")
        if minutes is not None and seconds_left > 60 * minutes:
            names = ", ".join(table.name for table in tables)
            few = f"{minutes=} is too little for {names} at the scale {plan.scale.name}"
            advice = "give more, fewer tables or seeds, or a smaller scale."
            raise InputError(f"{few}, which would need about {needed}; {advice}", minutes=minutes)
        if not all(plan.brings(row.model) for table in tables for row in table.rows):
            plan.prepare_text(show)
        results.require_same(cells)
        if not (plan.out / MADE).exists():
            write_folder_atomically(plan.out / MADE, smoke_tasks.make)
        try:
            for done, cell in enumerate(missing, start=1):
                result, seconds = _run(cell, results, show)
                results.add(cell, result, seconds)
                outcome = _outcome(result)
                rest = _duration(results.estimate(missing[done:]))
                times = f"({seconds:.0f} s; about {rest} left)"
                info(f"{done} of {len(missing)}  {cell.name}: {outcome} {times}")
        finally:
            write(results)
        for folder in sorted((plan.out / SUBMISSION).glob("seed*")):
            submissions.pack(folder, sorted(folder.glob("*.tsv")))
        return results


def _check_folder(out: Path) -> None:
    """Check that a folder is empty or stems from an earlier call, which writes ASKED or MADE first."""
    names = sorted(path.name for path in out.glob("[!.]*"))
    begun = (out / MADE).is_dir()
    if not begun and (out / ASKED).exists():
        begun = "vocab_size" in read_json(out / ASKED)
    if (names and not begun) or STORED.keys() & names:
        raise InputError(f"'{out}' holds {some_of(names)} of something else; choose another `out`.")


def _run(cell: Cell, results: "Results", show: bool) -> tuple[Result, float]:
    """Run a cell; return its result and the seconds that it took, including those of interrupted calls."""
    needed = results.get(cell.needs)
    if "failed" in needed:
        return {"failed": f"{cell.needs} was given up: {needed['failed']}"}, 0.0
    began = time.monotonic()
    try:
        result = cell.run(show and results.estimate([cell]) > LONG)
    except DivergedError as error:
        result = {"failed": str(error)}
    elapsed = time.monotonic() - began
    return result, max(elapsed, result.pop("seconds", 0.0))


def _log_sources(plan: Plan, tables: Iterable[Table], info: LogMessage) -> None:
    """Say which task replaces a column's task and why, and which columns are left out."""
    sentences: dict[tuple[str, str], None] = {}  # an ordered set
    for table in tables:
        for column in table.columns:
            text = plan.left_out(table).get(column.name, plan.title(column))
            sentences[column.task, text] = None
    for task, text in sentences:
        if ", in place of" in text or "left out" in text:
            info(f"{task.upper()}: {text.rstrip('.')}.")


class Results:
    """The results so far, by the names of cells.

    `lines` holds the lines of `results.jsonl`, `times` those of `times.jsonl`; a damaged line is reported and
    left out.

    Parameters
    ----------
    out : Path
        Folder of the experiments.
    cells : sequence of Cell
        Cells in the order in which to write their lines; the lines of all other cells precede these.
    """

    def __init__(self, out: Path, cells: Sequence[Cell]) -> None:
        self.out = out
        self.order = [cell.name for cell in cells]
        self.lines = _read_lines(out / RESULTS, "its cell is run again")
        self.times = _read_lines(out / TIMES, "how long its cell took is not known any more")

    def require_same(self, cells: Sequence[Cell]) -> None:
        """Check that stored results have the settings of the cells.

        Parameters
        ----------
        cells : sequence of Cell
            Cells that are to be run, or have been.

        Raises
        ------
        InputError
            When a result of one of these cells has other settings.
        """
        for cell in cells:
            if cell.name in self and self.lines[cell.name]["settings"] != digest(cell.settings()):
                held = f"{cell.name} of other settings (scale, text, data or model)"
                advice = "choose another `out`, or the same settings to continue with it."
                raise InputError(f"{self.out / RESULTS} holds {held}; {advice}")

    def get(self, cell: str) -> Result:
        """Return the result of a cell.

        Parameters
        ----------
        cell : str
            Name of the cell.

        Returns
        -------
        dict
            Empty if it has none yet.
        """
        result: Result = self.lines[cell]["result"] if cell in self else {}
        return result

    def __contains__(self, cell: str) -> bool:
        return cell in self.lines

    def add(self, cell: Cell, result: Result, seconds: float) -> None:
        """Store a result and how long it took, in memory and in both files.

        Parameters
        ----------
        cell : Cell
        result : dict
            What `Cell.run` has returned.
        seconds : float
            Time that it took, including interrupted calls.
        """
        self.times[cell.name] = {
            "cell": cell.name,
            "kind": cell.kind,
            "work": cell.work,
            "seconds": round(seconds, 1),
            "cores": cores(),
        }
        self.lines[cell.name] = {
            "cell": cell.name,
            "settings": digest(cell.settings()),
            "result": result,
        }
        self._write(TIMES, self.times)
        self._write(RESULTS, self.lines)

    def _write(self, file: str, lines: dict[str, dict[str, Any]]) -> None:
        """Write a file of lines in the order of the cells, each with its checksum."""

        def position(name: str) -> int:
            return self.order.index(name) if name in self.order else -1

        text = ""
        for name in sorted(lines, key=position):
            line = lines[name] | {"crc32": digest(lines[name])}
            text += json.dumps(line) + "\n"
        atomic_text(self.out / file, text)

    def estimate(self, cells: Iterable[Cell]) -> float:
        """Estimate how long some cells will take, from the times of others or the machine's peak rate.

        Parameters
        ----------
        cells : iterable of Cell
            Cells that have yet to be run.

        Returns
        -------
        float
            Seconds.
        """
        seconds = 0.0
        for cell in cells:
            similar = [line for line in self.times.values() if line["kind"] == cell.kind and line["seconds"]]
            spent = sum(line["seconds"] for line in similar)
            work = sum(line["work"] for line in similar)
            overhead = min([CELL_SECONDS, *(line["seconds"] for line in similar)])
            seconds += overhead  # reading, measuring and writing take the same time whatever the work
            if work:
                seconds += cell.work * max(0.0, spent - overhead * len(similar)) / work
            elif cell.work:
                seconds += cell.work / (SHARE[cell.kind] * self._peak)
        return seconds

    @cached_property
    def _peak(self) -> float:
        """The machine's peak rate in floating-point operations per second."""
        return 1e9 * (engines.peak(cores(), "float32") or USUAL_GFLOPS)


def digest(value: Any) -> int:
    """Return a checksum of a value that can be written as JSON.

    Parameters
    ----------
    value : Any
        The order of keys in dictionaries does not matter.

    Returns
    -------
    int
        CRC-32.
    """
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def _read_lines(path: Path, damage: str) -> dict[str, dict[str, Any]]:
    """Read the lines of a file by cell, none if it is missing; report damaged lines."""
    lines: dict[str, dict[str, Any]] = {}
    text = ""
    if path.exists():
        text = read_bytes(path).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), start=1):
        fields = _intact_fields(line)
        if fields:
            lines[fields["cell"]] = fields
        else:
            logger.warning(f"{path}, line {number} is damaged: {line[:60]!r}; {damage}.")
    return lines


def _intact_fields(line: str) -> dict[str, Any] | None:
    """Return the fields of a line whose checksum is right; None if it is damaged."""
    with suppress(ValueError):
        fields = parse_json(line)
        if isinstance(fields, dict) and fields.pop("crc32", None) == digest(fields):
            return fields
    return None


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:,.0f} minutes"


def _outcome(result: Result) -> str:
    if "failed" in result:
        return f"given up. {result['failed']}"
    if "dev" in result:
        score = 100 * Outcomes.from_json(result["dev"]).score()
        if "baseline" in result:
            return f"{score:.1f} on dev by {result['baseline']}"
        return f"{score:.1f} on dev"
    if "loss" in result:
        return f"held-out loss {result['loss']:.3f}"
    return "done"
