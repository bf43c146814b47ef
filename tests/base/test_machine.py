"""How many cores there are for a process: all, those it may run on, those its container has time for."""

import os

import pytest

from minibert.base import machine


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A folder that stands for the limits of Linux, on a machine of eight cores."""
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("10000 100000\n", 1),
        ("1600000 100000\n", 8),
        ("", 8),
        ("what is this\n", 8),
    ],
)
def test_a_container_of_today(groups, limit, expected):
    (groups / "cpu.max").write_text(limit)
    assert machine.cores() == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("250000", 3), ("0", 8)])
def test_a_container_of_the_first_kind(groups, quota, expected):
    (groups / "cpu").mkdir()
    (groups / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (groups / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.cores() == expected


def test_without_limits(groups):
    assert machine.cores() == 8


def test_a_system_that_does_not_say_where_a_process_may_run(groups, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.cores() == 1
