"""Compile the loops of the engine numba in advance.

Compiles the loops of the engine numba and keeps the machine code, so that the
first step of a run does not wait for it. Says which loop, in which precision,
and how long it took; what was compiled before is only read. Machine code is
kept where Numba's NUMBA_CACHE_DIR says, or beside the package's own files or,
where these can't be written to, in the user's cache folder.

examples:
  minibert warmup
  minibert warmup --dtype float32 --json
"""

import argparse
import functools
from typing import Any

from minibert.cli.shared.flags import add_json
from minibert.terminal import emit, json_text


def add(parser: Any) -> None:
    """Add the flags of the command."""
    parser.add_argument("--dtype", choices=("float32", "float64"), help="only this precision (default: both)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compile, and say so loop by loop."""
    from minibert import engines

    engines.create("numba")  # or the sentence that says what is missing
    from minibert.engines.numba.jit import KERNELS, PRECISIONS, folder

    dtypes = [dtype for dtype in PRECISIONS if arguments.dtype in (None, dtype.name)]
    wanted = [(one, dtype) for dtype in dtypes for one in KERNELS]
    show: Any = (lambda *text, **how: None) if arguments.json else functools.partial(emit, flush=True)
    done = []
    for number, (one, dtype) in enumerate(wanted, start=1):
        show(f"{number:>2}/{len(wanted)}  {one.name:<31}{dtype.name}", end="  ")
        done.append(one.prepare(dtype))
        show(f"{'read' if done[-1].cached else 'compiled':<8} {done[-1].seconds:6.2f} s")
    seconds, compiled = sum(one.seconds for one in done), sum(not one.cached for one in done)
    where = f"kept in {folder()}" if folder() else "kept nowhere"
    show(f"{compiled} compiled, {len(done) - compiled} read in {seconds:.1f} s, {where}")
    if arguments.json:
        loops = [one._asdict() | {"dtype": one.dtype.name} for one in done]
        emit(json_text({"loops": loops, "seconds": seconds, "folder": folder()}))
    return 0
