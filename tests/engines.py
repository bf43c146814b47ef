"""The engines that tests run over; one that is not built is skipped, which continuous integration forbids."""

import pytest

from minibert import backends
from minibert.errors import InputError


def _missing(name):
    try:
        backends.create(name)
    except InputError as error:
        return str(error)
    return None


# By name. Numbers of threads never change a result, so one is as good as another.
ENGINES = [
    pytest.param(name, marks=pytest.mark.skip(reason=reason)) if (reason := _missing(name)) else name
    for name in backends.ENGINES
]
