"""Run the cells that are not done yet, and keep their results in one file that grows.

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
from minibert.experiments.verdicts import Outcomes
from minibert.tasks import submissions
from minibert.training.runlog import say

RESULTS, TIMES = "results.jsonl", "times.jsonl"
SHARE = {"pre-training": 0.3, "fine-tuning": 0.15}  # of the peak, until times are known
CELL_SECONDS, USUAL_GFLOPS = 2.0, 50.0
LONG = 60.0  # seconds of a cell from which on it tells how it goes


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

    Ctrl-C loses nothing but the steps since the last checkpoint of a cell: the same call goes on. Raise
    InputError when files are missing or damaged, the given model does not fit, the folder holds results of
    other settings or something else, or another process writes there.

    Parameters
    ----------
    plan : scale, data, text and folder.
    tables : those of `TABLES`, or others made like them.
    seeds : a training of every cell for each.
    minutes : raise InputError, before anything is trained, where more time would be needed.
    show : tell the person watching how it goes.
    write : called with the results at the end, after Ctrl-C as well, before another process may write there.
    """
    with sole_writer(plan.out):
        _check_folder(plan.out)
        tell = say if show else lambda text: None
        _tell_sources(plan, tables, tell)
        cells = plan.cells(tables, seeds)
        results = Results(plan.out, cells)
        missing = [cell for cell in cells if cell.name not in results]
        needed = _duration(left := results.estimate(missing))
        tell(f"{len(missing)} of {len(cells)} cells are to be run: about {needed}.")
        if minutes is not None and left > 60 * minutes:
            few = f"too little for {', '.join(one.name for one in tables)} at the scale {plan.scale.name}"
            advice = "give more, fewer tables or seeds, or a smaller scale."
            raise InputError(f"$minutes is {few}: about {needed} would be needed; {advice}", minutes=minutes)
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
                done = f"{_outcome(result)} ({seconds:.0f} s; about"
                rest = _duration(results.estimate(missing[number:]))
                tell(f"{number} of {len(missing)}  {cell.name}: {done} {rest} left)")
        finally:
            write(results)
        for folder in sorted((plan.out / SUBMISSION).glob("seed*")):
            submissions.pack(folder, sorted(folder.glob("*.tsv")))
        return results


def _check_folder(out: Path) -> None:
    """See that a folder is empty or of an earlier call, which leaves ASKED or MADE before all else."""
    held = sorted(path.name for path in out.glob("[!.]*"))
    begun = (out / MADE).is_dir() or ((out / ASKED).exists() and "vocab_size" in read_json(out / ASKED))
    if (held and not begun) or {"training.json", "finetune.json"}.intersection(held):
        raise InputError(f"{out} holds {some_of(held)} of something else; choose another --out.")


def _run(cell: Cell, results: "Results", show: bool) -> tuple[Result, float]:
    """Run a cell; return its result and its seconds, those of earlier sittings too."""
    if "failed" in (before := results.lines.get(cell.needs, {"result": {}})["result"]):
        return {"failed": f"{cell.needs} was given up: {before['failed']}"}, 0.0
    began = time.monotonic()
    try:
        result = cell.run(show and results.estimate([cell]) > LONG)
    except DivergedError as error:
        result = {"failed": str(error)}
    return result, max(time.monotonic() - began, result.pop("seconds", 0.0))


def _tell_sources(plan: Plan, tables: Iterable[Table], tell: Callable[[str], None]) -> None:
    """Say what stands in for a column's task and why, and what is left out."""
    columns = ((one, plan.left_out(table)) for table in tables for one in table.columns)
    said = ((one.task, why.get(one.name, plan.title(one))) for one, why in columns)
    for role, text in dict.fromkeys(said):
        if ", in place of" in text or "left out" in text:
            tell(f"{role.upper()}: {text.rstrip('.')}.")


class Results:
    """What was found so far, by the names of cells."""

    def __init__(self, out: Path, cells: Sequence[Cell]) -> None:
        self.out, self.order = out, [cell.name for cell in cells]
        self.lines: dict[str, dict[str, Any]] = {}
        self.times: dict[str, dict[str, Any]] = {}
        again = {RESULTS: "its cell is run again", TIMES: "how long its cell took is not known any more"}
        for name, lines in ((RESULTS, self.lines), (TIMES, self.times)):
            kept = read_bytes(out / name).decode("utf-8", "replace") if (out / name).exists() else ""
            for number, text in enumerate(kept.splitlines(), start=1):
                if found := _checked(text):
                    lines[found["cell"]] = found
                else:
                    say(f"{out / name}, line {number} is damaged: {text[:60]!r}; {again[name]}.")

    def require_same(self, cells: Sequence[Cell]) -> None:
        """Raise InputError where there is a result of one of these cells with other settings."""
        for cell in cells:
            if cell.name in self and self.lines[cell.name]["settings"] != digest(cell.settings()):
                held = f"{cell.name} of other settings (scale, text, data or model)"
                advice = "choose another --out, or the same settings to go on with it."
                raise InputError(f"{self.out / RESULTS} holds {held}; {advice}")

    def __getitem__(self, cell: str) -> Result:
        """Return the result of a cell; KeyError where it has none yet."""
        result: Result = self.lines[cell]["result"]
        return result

    def __contains__(self, cell: str) -> bool:
        return cell in self.lines

    def add(self, cell: Cell, result: Result, seconds: float) -> None:
        """Keep a result, and how long it took."""
        facts = {"kind": cell.kind, "work": cell.work, "seconds": round(seconds, 1), "cores": cores()}
        self.times[cell.name] = {"cell": cell.name, **facts}
        self.lines[cell.name] = {"cell": cell.name, "settings": digest(cell.settings()), "result": result}
        for file, lines in ((TIMES, self.times), (RESULTS, self.lines)):
            names = sorted(lines, key=lambda name: self.order.index(name) if name in self.order else -1)
            summed = (lines[name] | {"crc32": digest(lines[name])} for name in names)
            atomic_text(self.out / file, "".join(json.dumps(line) + "\n" for line in summed))

    def estimate(self, cells: Iterable[Cell]) -> float:
        """Return how many seconds some cells will take: as others did, else by the peak of the machine."""
        seconds = 0.0
        for cell in cells:
            known = [one for one in self.times.values() if one["kind"] == cell.kind and one["seconds"]]
            spent, work = (sum(one[name] for one in known) for name in ("seconds", "work"))
            fixed = min([CELL_SECONDS, *(one["seconds"] for one in known)])
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
    """Return a checksum of what JSON can say."""
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def _checked(text: str) -> dict[str, Any] | None:
    """Return what a line says; None where it is damaged."""
    with suppress(ValueError):
        found = parse_json(text)
        if isinstance(found, dict) and found.pop("crc32", None) == digest(found):
            return found
    return None


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:,.0f} minutes"


def _outcome(result: Result) -> str:
    if "failed" in result:
        return f"given up. {result['failed']}"
    if "dev" in result:
        score = 100 * Outcomes.from_json(result["dev"]).score()
        return f"{score:.1f} on dev" + (f" by {result['baseline']}" if "baseline" in result else "")
    return f"held-out loss {result['loss']:.3f}" if "loss" in result else "done"
