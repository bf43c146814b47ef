"""The engines that tests run over; one that is not built is skipped, which continuous integration forbids."""

import os
import signal
import traceback
import warnings

import pytest

from minibert import engines
from minibert.base.errors import InputError


def missing(name):
    """What to say where an engine is not there."""
    try:
        engines.create(name)
    except InputError as error:
        return str(error)
    return None


def _marked(names):
    """Names, with a mark where the engine is missing."""
    return [
        pytest.param(name, marks=pytest.mark.skip(reason=reason)) if (reason := missing(name)) else name
        for name in names
    ]


def holds_in_a_fork(check):
    """Whether a forked child sees `check()` hold, within five minutes; without forks the test is skipped."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    with warnings.catch_warnings():  # Python's and JAX's own, of forks where other tests have left threads
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        child = os.fork()
    if not child:
        held = False
        try:
            signal.alarm(300)
            held = check()
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0 if held else 1)
    return os.waitpid(child, 0)[1] == 0


# By name. Numbers of threads never change a result, so one is as good as another.
EVERY = _marked(engines.ENGINES)
# Those that compute at once, on NumPy's own arrays. JAX compiles, which takes seconds for each thing that is
# called by itself, and writes to no array: what these tests ask of the others, engines/jax/test_ops.py
# asks of it.
ENGINES = _marked(name for name in engines.ENGINES if name != "jax")
