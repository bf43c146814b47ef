"""Engines by name (`registry`), and what the machine has for them (`hardware`)."""

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
    choose,
    choose_for,
    create,
    force_device,
    join,
    quickest_dtype,
    settled,
    together,
)

__all__ = ["DEVICES", "ENGINES", "TABLE", "blas_libraries", "choose", "choose_for", "create"]
__all__ += ["force_device", "instruction_sets", "join", "keep_freed_memory", "limited_threads", "peak"]
__all__ += ["quickest_dtype", "settled", "together"]
