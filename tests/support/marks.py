"""Which of a test's parameters are tried each time, and which wait for `make test-all`."""

import pytest
from hypothesis import settings


def seldom(values, *often):
    """Mark all parameters as slow, but for some."""
    plain = [_plain(one) for one in values]
    assert all(one in plain for one in often), f"{often} are not all among the parameters"
    return [one if _plain(one) in often else _slow(one) for one in values]


def _plain(one):
    """What stands in a parameter that is marked already, as one of a missing engine is."""
    return one.values[0] if hasattr(one, "marks") else one


def _slow(one):
    values, marks = (one.values, one.marks) if hasattr(one, "marks") else (one, ())
    return pytest.param(
        *(values if isinstance(values, tuple) else (values,)), marks=[*marks, pytest.mark.slow]
    )


def examples(count):
    """How many examples Hypothesis makes: `count`, and in `make test` as many fewer as of other tests."""
    return max(1, count * settings.default.max_examples // 100)
