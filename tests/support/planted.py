"""Residuals of the reference with a field too many, so that only their type can say whose they are."""

from collections import namedtuple

import numpy as np

from minibert.core.ops import attention, blocks, losses, primitives
from minibert.model import recurrent


def plant(monkeypatch):
    """Let everything that the reference keeps have one more field."""
    for module in (attention, blocks, losses, primitives, recurrent):
        for name, kind in list(vars(module).items()):
            if name.endswith("Saved") and hasattr(kind, "_fields"):
                planted = namedtuple(name, [*kind._fields, "planted"], defaults=[np.zeros(3)])
                monkeypatch.setattr(module, name, planted)
