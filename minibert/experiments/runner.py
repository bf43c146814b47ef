"""Run the cells that are not done yet, and append their results to one file.

A folder of experiments holds `text/` (vocabulary and shards), `models/` (what was pre-trained),
`submission/` (answers to GLUE's test sets, zipped for each seed), `results.jsonl` (a line for each cell),
`times.jsonl` (their seconds), and the tables as `tables.txt` and `index.html`.
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
    remove_unfinished,
    sole_writer,
    write_folder_atomically,
)
from minibert.base.json_files import parse_json, read_json
from minibert.base.machine import cores
from minibert.base.terminal import some_of
from minibert.experiments import smoke_tasks
from minibert.experiments.cells import ASKED, SUBMISSION, Cell, Plan, Result
from minibert.experiments.scales import MADE
from minibert.experiments.tables import Table
from minibert.experiments.verdicts import Outcomes, require_scipy
from minibert.tasks import submissions
from minibert.training.runlog import LogMessage, info_if, logger

RESULTS, TIMES = "results.jsonl", "times.jsonl"
SHARE = {"pre-training": 0.3, "fine-tuning": 0.15}  # of the peak, until times are known
CELL_SECONDS = 2.0  # of a cell whatever its work, until times are known
USUAL_GFLOPS = 50.0  # of a machine whose peak is not known
LONG = 60.0  # seconds of a cell after which it shows its progress


def reproduce(
    plan: Plan,
    tables: Sequence[Table],
    seeds: Sequence[int],
    *,
    minutes: float | None = None,
    show: bool = True,
    write: Callable[["Results"], object] = lambda results: None,
) -> "Results":
    """Run what is missing of some tables, and return the results; see `page.write` for what is made of them.

    Ctrl-C loses nothing but the steps since the last checkpoint of a cell: the same call continues.

    Parameters
    ----------
    plan : Plan
        Scale, data, text and folder.
    tables : sequence of Table
        Those of `TABLES`, or others made like them.
    seeds : sequence of int
        A training of every cell for each.
    minutes : float, default None
        The longest that this may take: InputError, before anything is trained, where more would be needed.
    show : bool, default True
        Log how it goes.
    write : callable
        Called with the results at the end, after Ctrl-C as well, before another process may write there.

    Returns
    -------
    Results
        Of all cells, those that were there before among them.

    Raises
    ------
    InputError
        When SciPy is not installed, files are missing or damaged, the given model does not fit, the folder
        holds results of other settings or something else, `minutes` are too few, or another process writes
        there.
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
            remove_unfinished(plan.out / MADE)
            write_folder_atomically(plan.out / MADE, smoke_tasks.make)
        try:
            for number, cell in enumerate(missing, start=1):
                result, seconds = _run(cell, results, show)
                results.add(cell, result, seconds)
                outcome = _outcome(result)
                rest = _duration(results.estimate(missing[number:]))
                times = f"({seconds:.0f} s; about {rest} left)"
                info(f"{number} of {len(missing)}  {cell.name}: {outcome} {times}")
        finally:
            write(results)
        for folder in sorted((plan.out / SUBMISSION).glob("seed*")):
            submissions.pack(folder, sorted(folder.glob("*.tsv")))
        return results


def _check_folder(out: Path) -> None:
    """Check that a folder is empty, or from an earlier call, which writes ASKED or MADE first."""
    held = sorted(path.name for path in out.glob("[!.]*"))
    begun = (out / MADE).is_dir()
    if not begun and (out / ASKED).exists():
        begun = "vocab_size" in read_json(out / ASKED)
    if (held and not begun) or {"training.json", "finetune.json"}.intersection(held):
        raise InputError(f"'{out}' holds {some_of(held)} of something else; choose another `out`.")


def _run(cell: Cell, results: "Results", show: bool) -> tuple[Result, float]:
    """Run a cell; return its result and its seconds, including those of earlier calls."""
    line = results.lines.get(cell.needs, {"result": {}})
    needed = line["result"]
    if "failed" in needed:
        return {"failed": f"{cell.needs} was given up: {needed['failed']}"}, 0.0
    began = time.monotonic()
    try:
        result = cell.run(show and results.estimate([cell]) > LONG)
    except DivergedError as error:
        result = {"failed": str(error)}
    here = time.monotonic() - began
    return result, max(here, result.pop("seconds", 0.0))


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

    `lines` are the results and `times` their seconds, each as its file has it; a damaged line is reported
    and left out.

    Parameters
    ----------
    out : Path
        Folder of the experiments.
    cells : sequence of Cell
        In the order in which their lines are to stand; results of others come before.
    """

    def __init__(self, out: Path, cells: Sequence[Cell]) -> None:
        self.out = out
        self.order = [cell.name for cell in cells]
        self.lines = _read_lines(out / RESULTS, "its cell is run again")
        self.times = _read_lines(out / TIMES, "how long its cell took is not known any more")

    def require_same(self, cells: Sequence[Cell]) -> None:
        """Refuse results of other settings.

        Parameters
        ----------
        cells : sequence of Cell
            What is to be run, or has been.

        Raises
        ------
        InputError
            Where there is a result of one of these cells with other settings.
        """
        for cell in cells:
            if cell.name in self and self.lines[cell.name]["settings"] != digest(cell.settings()):
                held = f"{cell.name} of other settings (scale, text, data or model)"
                advice = "choose another `out`, or the same settings to continue with it."
                raise InputError(f"{self.out / RESULTS} holds {held}; {advice}")

    def __getitem__(self, cell: str) -> Result:
        """Return the result of a cell; raise KeyError if it has none yet."""
        result: Result = self.lines[cell]["result"]
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
            That it took, in all sittings.
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

        def place(name: str) -> int:
            return self.order.index(name) if name in self.order else -1

        text = ""
        for name in sorted(lines, key=place):
            line = lines[name] | {"crc32": digest(lines[name])}
            text += json.dumps(line) + "\n"
        atomic_text(self.out / file, text)

    def estimate(self, cells: Iterable[Cell]) -> float:
        """Estimate how long some cells will take, from other cells or from the machine's peak rate.

        Parameters
        ----------
        cells : iterable of Cell
            Those that are still to be run.

        Returns
        -------
        float
            Seconds.
        """
        seconds = 0.0
        for cell in cells:
            known = [line for line in self.times.values() if line["kind"] == cell.kind and line["seconds"]]
            spent = sum(line["seconds"] for line in known)
            work = sum(line["work"] for line in known)
            fixed = min([CELL_SECONDS, *(line["seconds"] for line in known)])
            seconds += fixed  # reading, measuring and writing, whatever the work
            if work:
                seconds += cell.work * max(0.0, spent - fixed * len(known)) / work
            elif cell.work:
                seconds += cell.work / (SHARE[cell.kind] * self._peak)
        return seconds

    @cached_property
    def _peak(self) -> float:
        """Floating-point operations a second."""
        return 1e9 * (engines.peak(cores(), "float32") or USUAL_GFLOPS)


def digest(value: Any) -> int:
    """Return a checksum of a value of JSON.

    Parameters
    ----------
    value : Any
        The order of the keys of dictionaries does not matter.

    Returns
    -------
    int
        CRC-32.
    """
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def _read_lines(path: Path, damage: str) -> dict[str, dict[str, Any]]:
    """Read the lines of a file by their cells, none if it is missing; report damaged lines."""
    lines: dict[str, dict[str, Any]] = {}
    text = ""
    if path.exists():
        text = read_bytes(path).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), start=1):
        fields = _checked(line)
        if fields:
            lines[fields["cell"]] = fields
        else:
            logger.warning(f"{path}, line {number} is damaged: {line[:60]!r}; {damage}.")
    return lines


def _checked(text: str) -> dict[str, Any] | None:
    """Return the contents of a line; None if it is damaged."""
    with suppress(ValueError):
        fields = parse_json(text)
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
