"""Rows of measurements as Markdown, for the terminal and for docs/results.md alike."""

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from tokenizer_jobs.tables import table, times

from minibert.base.errors import InputError
from peers.work import Work

Row = dict[str, Any]
PEERS = (
    "Hugging Face",
    "Hugging Face tuned",
    "PyTorch tuned",
    "PyTorch compiled",
    "PyTorch",
    "JAX",
    "ONNX Runtime",
)
PUBLISHED = "Hugging Face"  # the model as published; not among the fast ones
SHORT = {"float32": "fp32", "bfloat16": "bf16", "int8": "int8"}
DROPOUT = 0.1
DEVICE = (
    "MFU, the share of the device's own fastest matrix products; seconds until the first step; memory there"
)
LENGTHS = {
    "full": "every sequence full, no padding on any side",
    "phrases": "real lengths (those of SST-2's phrases): minibert computes no padding, the others pad",
}

STEP_LIMITS = """\
Not covered: other machines and vocabularies, more threads, making the batches. A step is forward, backward,
clipping and AdamW, with dropout 0.1 and 15% of the positions masked. Useful GFLOP/s count each matrix
product once, over real tokens and masked rows only, and in the last layer over the rows that a head reads
only; nothing that is recomputed counts. The share is of the rate of fused multiply-adds that this machine
reached in the same rounds, in the row's own dtype (peers in bf16: autocast with float32 weights). All peers
compute the whole last layer, cpp only the rows that are read; the peers could be written to do the same.
Hugging Face is `BertForPreTraining` as published, with fused AdamW. PyTorch tuned computes scores of masked
rows only, with scaled_dot_product_attention and fused AdamW. JAX is plain jax.numpy, jax.grad and one jit;
jax in lower case is minibert's engine. All keep freed memory, as minibert does. Before the timing, all
agreed with the NumPy reference on the loss, the gradient norm and the loss after an update, with the same
weights and batch and no dropout."""

INFERENCE_LIMITS = """\
Not covered: other machines, sizes and lengths, tokenising, many short requests at once. PyTorch is Hugging
Face's `BertModel` with scaled_dot_product_attention under inference_mode, in bf16 with weights in bf16. ONNX
Runtime uses its own fused operators for attention, LayerNorm and GELU. In int8, weights have 8 bits and
activations are quantised during the computation: cpp uses 8 bits and a scale for each token and each column,
and computes the rest in bfloat16; quantize_dynamic uses 7 bits in PyTorch and 8 in ONNX Runtime, one scale
for all activations, and float32 for the rest. Before the timing, all agreed with the NumPy reference on the
last hidden states and the pooled vectors; --json prints |x - right| / |right|, in int8 15% at most."""


class Rows:
    """Measurements of one kind, in the order in which they were made."""

    def __init__(self, rows: list[Row]):
        self.rows = rows

    def groups(self, *keys: str) -> Iterable[tuple[tuple, "Rows"]]:
        """The rows by the values of some keys, in the order of their first appearance."""
        found: dict[tuple, list[Row]] = {}
        for row in self.rows:
            found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
        return ((values, Rows(rows)) for values, rows in found.items())

    @property
    def works(self) -> list[Work]:
        """What was done, in the order of the rows."""
        return list(dict.fromkeys(map(work_of, self.rows)))

    def fastest(self, work: Work, dtype: str, wanted: Callable[[str], bool]) -> Row | None:
        """The fastest of some engines."""
        found = [r for r in self.rows if work_of(r) == work and r["dtype"] == dtype and wanted(r["engine"])]
        return max(found, key=lambda row: row["tokens_per_second"], default=None)


def work_of(row: Row) -> Work:
    return Work(row["size"], row["seq"], row["batch"], row["lengths"])


def made_on(rows: list[Row], turns: str = "rounds") -> str:
    """The machine that all rows are of, and how often each was measured.

    Raises
    ------
    InputError
        When they are of several machines.
    """
    machines = list(dict.fromkeys(row["machine"] for row in rows))
    if len(machines) > 1:
        raise InputError(f"The rows are of machines that can't be compared: {'; '.join(machines)}.")
    counts = sorted({len(row["seconds"]) for row in rows})
    return f"{machines[0]}; medians of {' or '.join(map(str, counts))} {turns}."


def tables(rows: list[Row], limits: str) -> str:
    """Everything that was measured: speed, ratios, memory, and what it does not show."""
    if not rows:
        return "Nothing was measured."
    parts = [made_on(rows)]
    if busy := max((row["busy"] or "" for row in rows), default=""):
        parts.append(f"No figure to quote: {busy}")
    if any(row["quick"] for row in rows):
        parts.append("Measured with --quick: small batches, few rounds; no figure to quote.")
    kept = rows[0]["kept_bytes"]  # in training a parameter, its gradient and two moments
    for (lengths, threads, attention), group in Rows(rows).groups("lengths", "threads", "attention_dropout"):
        head = f"{threads} thread{'s' * (threads > 1)}, {LENGTHS[lengths]}"
        if attention is not None and attention != DROPOUT:
            head += f", dropout on attention {attention:g}"
        parts.append(f"**Tokens/s (useful GFLOP/s, share of the peak)**, {head}:")
        parts.append(grid(group, speed, [*ratios(group)]))
        parts.append(f"**Peak memory, MB (beyond libraries and {kept} bytes a parameter)**, {head}:")
        parts.append(grid(group, memory, []))
        if any(row.get("matmul_gflops") for row in group.rows):
            parts.append(f"**{DEVICE}**, {head}:")
            parts.append(grid(Rows([row for row in group.rows if row.get("matmul_gflops")]), of_device, []))
    return "\n\n".join([*parts, limits])


def grid(group: Rows, cell: Callable[[Row], str], more: list[list[str]]) -> str:
    """A table with a line for each engine and dtype, a column for each work."""
    works, lines = group.works, []
    for (engine, dtype), own in group.groups("engine", "dtype"):
        cells = {work_of(row): cell(row) for row in own.rows}
        lines.append([f"{engine}, {SHORT[dtype]}", *(cells.get(work, "") for work in works)])
    return table("|".join(["", *(work.title for work in works)]), iter(lines + more))


def speed(row: Row) -> str:
    share = "" if row["peak_share"] is None else f", {row['peak_share']:.0%}"
    return f"{row['tokens_per_second']:,.0f} ({row['useful_gflops']:.0f}{share})"


def memory(row: Row) -> str:
    return f"{row['peak_rss_mb']:,.0f} ({beyond(row):,.0f})"


def of_device(row: Row) -> str:
    peak = row["device_peak_mb"]
    held = f", {peak:,.0f} MB" if peak else ""
    return (
        f"{row['mfu']:.0%} of {row['matmul_gflops'] / 1e3:,.3g} TFLOP/s, {row['compile_seconds']:.0f} s{held}"
    )


def beyond(row: Row) -> float:
    """MB beyond the libraries and the parameters with what belongs to them."""
    return row["peak_rss_mb"] - row["imported_rss_mb"] - row["kept_bytes"] * row["parameters"] / 1e6


def ratios(group: Rows) -> Iterable[list[str]]:
    """minibert's fastest engine against others of the same dtype."""
    for dtype in dict.fromkeys(row["dtype"] for row in group.rows):
        for title, wanted in (
            ("the fastest peer", lambda name: name in PEERS and name != PUBLISHED),
            (PUBLISHED, lambda name: name == PUBLISHED),
        ):
            cells = []
            for work in group.works:
                ours = group.fastest(work, dtype, lambda name: name not in PEERS)
                theirs = group.fastest(work, dtype, wanted)
                cells.append(_ratio(ours, theirs) if ours and theirs else "")
            if any(cells):
                yield [f"**minibert / {title}, {SHORT[dtype]}**", *cells]


def _ratio(ours: Row, theirs: Row) -> str:
    ratio = times(ours["tokens_per_second"] / theirs["tokens_per_second"])
    who = "" if theirs["engine"] == PUBLISHED else f" ({theirs['engine']})"
    return f"**{ratio}**{who}"


def of_one(
    runs: list[tuple[float, float]], first_run: float, facts: dict[str, Any], operations: int
) -> dict[str, Any]:
    """What more a line of --json has: of compiling, and of the device where it tells.

    `mfu` is the model FLOP utilisation: useful operations over those of the device's fastest matrix products
    in the same time.
    """
    seconds, rate = statistics.median(one for one, _ in runs), facts.get("matmul_gflops")
    return {
        "compile_seconds": first_run - seconds,
        "device": facts.get("device"),
        "device_peak_mb": facts.get("device_peak_mb"),
        "matmul_gflops": rate,
        "mfu": rate and operations / seconds / 1e9 / rate,
    }


def row(
    work: Work,
    engine: str,
    dtype: str,
    threads: int,
    runs: list[tuple[float, float]],
    operations: int,
    tokens: int,
    peak: float | None,
    **more: Any,
) -> Row:
    """One line of --json, from the seconds and busy cores of every round."""
    seconds = statistics.median(one for one, _ in runs)
    gflops = operations / seconds / 1e9
    return {
        "engine": engine,
        "dtype": dtype,
        **work._asdict(),
        "threads": threads,
        "tokens": tokens,
        "tokens_per_second": tokens / seconds,
        "useful_gflops": gflops,
        "peak_gflops": peak,
        "peak_share": peak and gflops / peak,
        "seconds": [one for one, _ in runs],
        "busy_cores": statistics.median(cores for _, cores in runs),
        **more,
    }
