"""The share of the machine that this process may use."""

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
    available = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, math.ceil(min(available, _quota())))


def _quota() -> float:
    """Read the processor time that the container has, in cores; inf where there is no limit."""
    new = CGROUPS / "cpu.max"
    old = [CGROUPS / "cpu" / "cpu.cfs_quota_us", CGROUPS / "cpu" / "cpu.cfs_period_us"]
    try:  # microseconds of processor time, and those in which they may be used
        limits = new.read_text().split() if new.exists() else [file.read_text() for file in old]
        quota, period = map(int, limits)
    except (OSError, ValueError):  # "max" is not a limit
        return math.inf
    if min(quota, period) <= 0:  # nor is -1
        return math.inf
    return quota / period
