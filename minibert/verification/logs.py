"""Check the log of a run, `metrics.jsonl`: a line for every step, in order, up to the last checkpoint."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from minibert.base.json_files import fits, parse_json
from minibert.base.reading import byte_pieces, whole_lines
from minibert.base.terminal import counted, some_of
from minibert.training.runlog import METRICS
from minibert.verification.findings import Verification

RESTORE = "restore the file from a copy, as curves and comparisons are drawn from it"


def check_log(found: Verification, kept: Mapping[int, int], end: int | None) -> int:
    """Check the log of a run.

    Parameters
    ----------
    found : Verification
        Of the folder of the run; receives what is wrong.
    kept : mapping of int to int
        The tokens that the run had read, by step, as its checkpoints have them.
    end : int or None
        The step of the run's report; None where there is none, or a checkpoint is ahead of it. A log that is
        ahead of it is that of a run that goes on.

    Returns
    -------
    int
        The last step in the log.
    """
    wrong: dict[str, list[str]] = defaultdict(list)  # places, by what is wrong with them
    tokens: dict[int, float] = {}  # by step
    last = 0
    for number, line in _lines(found.folder / METRICS):
        values = _parsed(line)
        if values is None:
            goes_on = end is None or last > end
            is_cut = goes_on and not line.endswith(b"\n")  # by a crash, or still being written
            if not is_cut:
                wrong["no record can be read in line {}"].append(f"{number:,}")
            continue
        step = int(values["step"])
        if not all(map(math.isfinite, values.values())):
            wrong["there are numbers that are not finite at step {}"].append(f"{step:,}")
        if "learning_rate" not in values:  # an evaluation, after the step that it belongs to
            if step != last:
                wrong["there is an evaluation in another place than behind its step, {}"].append(f"{step:,}")
            continue
        if step in tokens:
            wrong["there is more than one line of step {}"].append(f"{step:,}")
        elif step <= last:
            wrong["the steps do not ascend at step {}"].append(f"{step:,}")
        elif step > last + 1:
            missing = f"{last + 1:,}" if step == last + 2 else f"{last + 1:,} to {step - 1:,}"
            wrong["there is no line of step {}"].append(missing)
        tokens[step] = values.get("tokens", math.nan)
        last = max(last, step)
    for what, places in wrong.items():
        found.wrong(METRICS, f"{what.format(some_of(places))}; {RESTORE}.")
    _compare(found, tokens, last, kept, end)
    return last


def _compare(
    found: Verification, tokens: Mapping[int, float], last: int, kept: Mapping[int, int], end: int | None
) -> None:
    """Compare the log with the checkpoints, none of which is ahead of it, and with the report."""
    newest = max(kept, default=0)
    if end is not None and last < end:
        found.wrong(METRICS, f"it ends at step {last:,}, and report.json is of step {end:,}; {RESTORE}.")
    elif newest > last:
        found.wrong(METRICS, f"it ends at step {last:,}, before the checkpoint of {newest:,}; {RESTORE}.")
    for step, count in kept.items():
        logged = tokens.get(step, math.nan)
        if not math.isnan(logged) and logged != count:
            both = f"{counted(logged, 'token')} up to step {step:,}, its checkpoint {count:,}"
            found.wrong(METRICS, f"it counts {both}; one of them is another run's, so {RESTORE}.")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers."""
    number = 0
    for block in whole_lines(byte_pieces(path, streams=False), path, returns=False):
        for line in block.splitlines(keepends=True):
            number += 1
            yield number, line


def _parsed(line: bytes) -> dict[str, float] | None:
    """Return the record in a line; None if it isn't one."""
    try:
        values = parse_json(line.decode("utf-8"))
    except ValueError:
        return None
    if not (fits(values, dict[str, float]) and fits(values, {"step": int})):
        return None
    record: dict[str, float] = values
    return record
