"""How much of the machine this process may use."""

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")  # where Linux shows a container its limits


def cores() -> int:
    """Count the cores that this process may use: the default number of threads.

    Respects taskset and batch systems, and the processor time that a container may use (`docker run --cpus`,
    a limit of Kubernetes), rounded up: more threads would only wait for their turn.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    available = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, math.ceil(min(available, _quota())))


def _quota() -> float:
    """Read the processor time that the container may use, in cores; inf if there is no limit."""
    new = CGROUPS / "cpu.max"
    old = [CGROUPS / "cpu" / "cpu.cfs_quota_us", CGROUPS / "cpu" / "cpu.cfs_period_us"]
    try:  # microseconds of processor time, and the period in microseconds that they are for
        limits = new.read_text().split() if new.exists() else [file.read_text() for file in old]
        quota, period = map(int, limits)
    except (OSError, ValueError):  # "max": no limit
        return math.inf
    if min(quota, period) <= 0:  # -1: no limit
        return math.inf
    return quota / period
