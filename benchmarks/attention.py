"""Attention alone on a GPU: the JAX engine's kernels beside PyTorch's, and other cuts of the fused one.

    python benchmarks/attention.py [--case 256x128x12x64 32x512x16x64] [--dtype bfloat16]
        [--dropout 0.1 0] [--sweep] [--rounds 5] [--json FILE]

A case is rows × tokens × heads × size of a head. "pallas" is minibert's fused kernel, whose dropout is that
of the reference bit for bit; "plain" is what XLA makes of the formulas. First, what everyone computes for two
rows is compared with the reference in float64: errors are of all numbers together, |x - right| / |right|, the
worst of y, dq, dk and dv. Then everyone takes turns. Useful operations are 4 n^2 D for each row and head
forward, 10 n^2 D backward. With --sweep, other cuts of the fused kernel into blocks are timed too.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from peers.bench import VARIABLES, ended, say
from peers.children import Child, NoJob, Unavailable, each
from tokenizer_jobs.tables import table

from minibert.base.errors import InputError
from minibert.base.machine import cores
from minibert.core.ops import dropout_bits
from minibert.model.ops import Ops

ENGINES = {"minibert": "attention_jax:Kernels", "PyTorch": "attention_pytorch:PyTorch"}
OPERATIONS = {"forward": 4, "backward": 10}  # times n^2 D
SITE, ROWS = 5, 2  # that are compared
# Largest error: of bfloat16, and of float32, where PyTorch and XLA may multiply in tf32.
TOLERANCES = {"bfloat16": 2e-2, "float32": 1e-3}


def case(text: str) -> tuple[int, ...]:
    """Rows, tokens, heads and the size of a head."""
    try:
        found = tuple(map(int, text.split("x")))
    except ValueError:
        found = ()
    if len(found) != 4 or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 256x128x12x64.")
    return found


def arrays(sizes: tuple[int, ...]) -> np.ndarray:
    """q k v dy (4,R,n,A,D), standard normal."""
    return np.random.default_rng(0).standard_normal((4, *sizes), np.float32)


# -> y dq dk dv (ROWS,n,A,D)
def expected(sizes: tuple[int, ...], given: np.ndarray, rate: float) -> list[np.ndarray]:
    """What the reference makes of the first rows, in float64."""
    n = sizes[1]
    rows = min(ROWS, sizes[0])
    q, k, v, dy = given[:, :rows].reshape(4, rows * n, *sizes[2:]).astype(np.float64)
    keys = row_keys(rows, n).reshape(rows * n, 2)
    drop = dropout_bits.Dropout(0.0, rate, keys) if rate else None
    y, saved = Ops().attention(q, k, v, np.arange(rows + 1) * n, False, drop, SITE)
    found = y, *Ops().attention_backward(dy, saved)
    return [one.reshape(rows, *sizes[1:]) for one in found]


# -> (R,n,2)
def row_keys(rows: int, n: int) -> np.ndarray:
    sequence, position = np.divmod(np.arange(rows * n), n)
    return dropout_bits.row_keys(np, 3, 4, sequence, position).reshape(rows, n, 2)


def error(found: list[np.ndarray], right: list[np.ndarray]) -> float:
    """The worst of y, dq, dk and dv."""
    return max(
        float(np.linalg.norm(one - other) / np.linalg.norm(other))
        for one, other in zip(found, right, strict=True)
    )


def measure(
    children: dict[str, Child], options: argparse.Namespace, dtype: str, lines: list[dict[str, Any]]
) -> None:
    """Add a line for each kernel, in every case and dropout of a dtype; Unavailable when a process failed."""
    for sizes in options.case:
        given = arrays(sizes)
        for rate in options.dropout:
            title = "x".join(map(str, sizes)) + f", {dtype}, dropout {rate:g}"
            say(title)
            keys = dropout_bits.fold(np, row_keys(*sizes[:2]), *dropout_bits.words(np, SITE))
            asked = (dtype, given, keys, rate, options.sweep)
            ready = each(lambda child, asked=asked: child.ask("prepare", *asked), children, True)
            right = expected(sizes, rounded(given, dtype), rate)
            known = []
            for name, kernels in ready.items():
                if isinstance(kernels, Unavailable):
                    raise kernels
                # PyTorch draws dropout of its own.
                own = right if rate == 0 or name == "minibert" else None
                known += compared(name, children[name], kernels, min(ROWS, sizes[0]), own, dtype)
            lines += [line | {"case": title} for line in timed(children, known, sizes, options.rounds)]


def compared(
    name: str, child: Child, kernels: list[str], rows: int, right: list[np.ndarray] | None, dtype: str
) -> list[dict[str, Any]]:
    """A line for each kernel whose results can't be compared, or are right."""
    lines = []
    for kernel in kernels:
        found = child.ask("results", kernel, rows)
        if isinstance(found, str):
            say(f"{kernel} is left out: {found}")
            continue
        off = None if right is None else error(found, right)
        if off is not None and not off <= TOLERANCES[dtype]:
            say(f"{kernel} is left out: its error is {off:.1e}")
            continue
        lines.append({"engine": name, "kernel": kernel, "error": off})
    return lines


def timed(
    children: dict[str, Child], lines: list[dict[str, Any]], sizes: tuple[int, ...], rounds: int
) -> list[dict[str, Any]]:
    """The lines with the median seconds of rounds of everyone, and useful TFLOP/s."""
    found = [[children[line["engine"]].ask("times", line["kernel"]) for line in lines] for _ in range(rounds)]
    R, n, A, D = sizes
    for line, *times in zip(lines, *found, strict=True):
        for way in times[0]:
            line[way] = statistics.median(one[way] for one in times)
            line[f"{way}_tflops"] = OPERATIONS[way] * R * A * n * n * D / line[way] / 1e12
    return lines


def rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers as the dtype has them, to the nearest."""
    if dtype == "float32":
        return x
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def shown(lines: list[dict[str, Any]]) -> str:
    """A table for each case."""
    parts = []
    for title in dict.fromkeys(line["case"] for line in lines):
        own = [line for line in lines if line["case"] == title]
        own.sort(key=lambda line: line.get("forward", 0) + line.get("backward", 0))
        rows = [
            [
                line["kernel"],
                *(speed(line, way) for way in OPERATIONS),
                "" if line["error"] is None else f"{line['error']:.1e}",
            ]
            for line in own
        ]
        parts.append(f"**{title}**: ms (TFLOP/s)\n\n" + table("|forward|backward|error", iter(rows)))
    return "\n\n".join(parts)


def speed(line: dict[str, Any], way: str) -> str:
    return f"{line[way] * 1e3:.3f} ({line[f'{way}_tflops']:.0f})" if way in line else ""


def main(options: argparse.Namespace) -> int:
    """Measure and print."""
    children: dict[str, Child] = {}
    lines: list[dict[str, Any]] = []
    status = 0
    try:
        begun = each(
            lambda factory: Child(factory, NoJob(), cores(), {}, VARIABLES[options.device]),
            {name: ENGINES[name] for name in options.engine},
            True,
        )
        for name, child in begun.items():
            if isinstance(child, Unavailable):
                say(f"{name} is left out: {child}")
            else:
                children[name] = child
        if not children:
            raise InputError("nobody is left to measure.")
        for name, child in children.items():
            say(f"{name}: {child.ask('device')}")
        for dtype in options.dtype:
            measure(children, options, dtype, lines)
    except Unavailable as error:
        say(f"{error}; what follows was measured before.")
        status = 1
    finally:
        for child in children.values():
            child.close()
    if options.json:
        Path(options.json).write_text(json.dumps(lines, indent=1))
    print(shown(lines))
    return status


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    base, large = (256, 128, 12, 64), (32, 512, 16, 64)
    found.add_argument("--case", nargs="+", type=case, default=[base, large], metavar="RxNxAxD")
    found.add_argument("--dtype", nargs="+", choices=tuple(TOLERANCES), default=["bfloat16"])
    found.add_argument("--dropout", nargs="+", type=float, default=[0.1, 0.0], metavar="RATE")
    found.add_argument("--engine", nargs="+", choices=tuple(ENGINES), default=list(ENGINES))
    found.add_argument("--sweep", action="store_true", help="other cuts of the fused kernel too")
    found.add_argument("--rounds", type=int, default=5, metavar="N", help="how often everyone has a turn")
    found.add_argument("--device", choices=tuple(VARIABLES), default="gpu", help="cpu: does it work at all?")
    found.add_argument("--json", metavar="FILE", help="write the figures there")
    return found


if __name__ == "__main__":
    sys.exit(ended(lambda: main(parser().parse_args())))
