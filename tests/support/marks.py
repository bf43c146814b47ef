"""Which of a test's parameters are tried each time, and which wait for `make test-all`."""

import pytest


def seldom(values, *often):
    """Mark all parameters as slow, but for some."""
    return [one if one in often else pytest.param(*_several(one), marks=pytest.mark.slow) for one in values]


def _several(one):
    return one if isinstance(one, tuple) else (one,)
