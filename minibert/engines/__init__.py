"""Engines by name (`registry`), and what the machine has for them (`hardware`).

An engine is a subclass of the `Ops` in `model/ops.py`, and has its own folder. Read `registry` first, then
the `ops` of one engine; `runtime` is how a training uses it, and `trace` measures where its time goes.
"""

from minibert.engines.hardware import (
    blas_libraries,
    instruction_sets,
    keep_freed_memory,
    limited_threads,
    peak,
)
from minibert.engines.registry import (
    DEVICES,
    ENGINES,
    TABLE,
    abort_peers_on_error,
    choose,
    choose_for,
    create,
    force_device,
    join,
    quickest_dtype,
    resolve_auto,
)

__all__ = [
    "DEVICES",
    "ENGINES",
    "TABLE",
    "abort_peers_on_error",
    "blas_libraries",
    "choose",
    "choose_for",
    "create",
    "force_device",
    "instruction_sets",
    "join",
    "keep_freed_memory",
    "limited_threads",
    "peak",
    "quickest_dtype",
    "resolve_auto",
]
