"""Rows of `benchmarks/ops.py` as Markdown, for the terminal and for docs/results-operations.md alike."""

from typing import Any

from tokenizer_jobs.tables import table, times

from peers.report import SHORT, Rows, made_on

Row = dict[str, Any]
ENGINES = ("cpp", "numba", "numpy", "PyTorch")  # columns
COMPARED = ("cpp", "PyTorch")
LIMITS = """\
Not covered: other machines and sizes, how operations overlap in a step, what fusing them saves
(`benchmarks/step.py` shows that). GFLOP/s count each multiply-add of the mathematics as two operations. GB/s
count every argument and every result once, in bf16 with two bytes per element, although minibert keeps the
sums on the residual path in float32. Its weights are float32 too, and are rounded again in every product.
Shares are of the rate of multiply-adds from registers, or of the speed of copying as many bytes, in the same
rounds. The times include dropout; PyTorch draws its own, and has a fused kernel only for attention without
dropout. The C++ kernels and NumPy's products write into preallocated arrays; the others allocate their
results, and keep freed memory. Before the timing, all results agreed with those of the reference in
float64."""
UNITS = {"GFLOP/s": ("useful_gflops", "peak_share"), "GB/s": ("gigabytes_per_second", "copy_share")}
WHAT = {"GFLOP/s": "share of the peak", "GB/s": "share of a copy"}


def unit(row: Row) -> str:
    """What its speed is counted in."""
    return next(name for name, (speed, _) in UNITS.items() if row[speed] is not None)


def speed(row: Row) -> float:
    """In that unit."""
    return row[UNITS[unit(row)][0]]


def figure(row: Row) -> str:
    """Speed, and its share of what is possible."""
    share = row[UNITS[unit(row)][1]]
    return f"{speed(row):.3g}" + (f" ({share:.0%})" if share is not None else "")


def tables(rows: list[Row]) -> str:
    """Everything that was measured."""
    if not rows:
        return "Nothing was measured."
    parts = [made_on(rows)]
    if busy := max((row["busy"] or "" for row in rows), default=""):
        parts.append(f"No figure to quote: {busy}")
    if any(row["quick"] for row in rows):
        parts.append("Measured with --quick: small arrays, few rounds; no figure to quote.")
    for (dtype, threads), group in Rows(rows).groups("dtype", "threads"):
        for name, what in WHAT.items():
            if own := [row for row in group.rows if unit(row) == name]:
                parts.append(f"**{name} ({what})**, {SHORT[dtype]}, {threads} thread{'s' * (threads > 1)}:")
                parts.append(grid(own))
    return "\n\n".join([*parts, LIMITS])


def grid(rows: list[Row]) -> str:
    """A line for each operation, a column for each engine, and cpp against PyTorch."""
    engines = sorted({row["engine"] for row in rows}, key=ENGINES.index)
    compared = set(COMPARED) <= set(engines)
    lines = []
    for (title,), group in Rows(rows).groups("title"):
        by = {row["engine"]: row for row in group.rows}
        line = [title, *(figure(by[name]) if name in by else "" for name in engines)]
        if compared:
            there = set(COMPARED) <= set(by)
            ours, theirs = (speed(by[name]) if there else 0 for name in COMPARED)
            line.append(f"**{times(ours / theirs)}**" if there else "")
        lines.append(line)
    return table("|".join(["", *engines, *([" / ".join(COMPARED)] if compared else [])]), iter(lines))
