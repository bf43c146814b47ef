"""What this process may use of the machine that it runs on."""

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")  # where Linux shows a container its limits


def cores() -> int:
    """Count the cores that this process may use, the default number of threads.

    No more than taskset or a batch system lets it run on, nor than the processor time that its container is
    given (`docker run --cpus`, a limit of Kubernetes), rounded up: further threads would wait for that time.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    found = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, math.ceil(min(found, _quota())))


def _quota() -> float:
    """Read the processor time that the container has, in cores; inf where there is no limit."""
    new, old = CGROUPS / "cpu.max", [CGROUPS / "cpu" / f"cpu.cfs_{name}_us" for name in ("quota", "period")]
    try:  # microseconds of processor time, and those in which they may be used
        limits = new.read_text().split() if new.exists() else [file.read_text() for file in old]
        quota, period = map(int, limits)
    except (OSError, ValueError):  # "max" is no limit
        return math.inf
    return quota / period if min(quota, period) > 0 else math.inf  # nor is -1
