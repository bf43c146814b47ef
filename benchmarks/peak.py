"""The highest rates of this machine: fused multiply-adds from registers, and copies of memory.

    python benchmarks/peak.py [--quick] [--json]

No program is faster than this; shares in the other benchmarks are shares of it. Everything is measured by
turns, `peers/rates.cpp` by one thread and by all, and figures are medians.
"""

import argparse
import json
import statistics
import sys
from functools import partial

from peers import machine
from peers.report import SHORT
from tokenizer_jobs.tables import table

from minibert.base.errors import RunError
from minibert.base.machine import cores

ROUNDS = {False: (9, 200.0), True: (3, 50.0)}  # quick -> rounds, milliseconds of each measurement
COPIES = (("in the second-level cache", 200_000), ("in the third", 4_000_000), ("in memory", 256_000_000))
LIMITS = """\
GFLOP/s count a multiply-add as two operations. GB/s count what is read and what is written; each thread
copies between two arrays of its own, of 0.2, 4 and 256 MB. Where caches are smaller, the words do not fit."""


def measure(quick: bool) -> list[dict]:
    """A row for every vector unit and every kind of copy, with one thread and with all."""
    rounds, milliseconds = ROUNDS[quick]
    rows, calls = [], []
    for threads in sorted({1, cores()}):
        for dtype, name in machine.units():
            what = f"multiply-adds, {name}"
            rows.append({"what": what, "dtype": dtype, "threads": threads, "unit": "GFLOP/s"})
            calls.append(partial(machine.multiply_adds, dtype, name, threads, milliseconds))
        for where, n_bytes in COPIES:
            rows.append({"what": f"copying {where}", "dtype": None, "threads": threads, "unit": "GB/s"})
            calls.append(partial(machine.copying, n_bytes, threads, milliseconds))
    found = [[] for _ in calls]
    for _ in range(rounds):
        for values, call in zip(found, calls, strict=True):
            values.append(call())
    return [
        row | {"rate": statistics.median(values), "rates": values, "machine": machine.description()}
        for row, values in zip(rows, found, strict=True)
    ]


def text(rows: list[dict]) -> str:
    """The rows as Markdown, threads side by side."""
    counts = list(dict.fromkeys(row["threads"] for row in rows))
    lines: dict[str, list[str]] = {}
    for row in rows:
        title = row["what"] + (f", {SHORT[row['dtype']]}" if row["dtype"] else "")
        lines.setdefault(title, [title]).append(f"{row['rate']:.0f} {row['unit']}")
    head = "|".join(["", *(f"{n} thread{'s' * (n > 1)}" for n in counts)])
    parts = [f"{rows[0]['machine']}; medians.", table(head, iter(lines.values())), LIMITS]
    return "\n\n".join(parts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few and short rounds")
    parser.add_argument("--json", action="store_true", help="print a list of rows")
    options = parser.parse_args(arguments)
    if busy := machine.what_disturbs():
        print(f"minibert: {busy}", file=sys.stderr)
    try:
        rows = measure(options.quick)
    except RunError as error:
        print(f"minibert: {error}", file=sys.stderr)
        return 1
    print(json.dumps(rows, indent=1) if options.json else text(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
