"""The official metric of every downstream task, and confidence intervals for them.

Most metrics compare two sequences; `label_f1` is for examples to which several classes apply. `squad` scores
answers to questions and `entities` tagged sentences, by the rules of the official scripts. `interval` and
`paired_interval` compute confidence intervals for any of them. Nothing here knows files or models.
"""

from minibert.tasks.metrics import entities, squad
from minibert.tasks.metrics.intervals import bootstrap, interval, paired_bootstrap, paired_interval, wilson
from minibert.tasks.metrics.scores import (
    METRICS,
    Metric,
    accuracy,
    confusion,
    f1,
    label_f1,
    macro_f1,
    mae,
    matthews,
    pearson,
    r2,
    rmse,
    spearman,
)

__all__ = ["METRICS", "Metric"]
__all__ += ["accuracy", "bootstrap", "confusion", "entities", "f1", "interval", "label_f1", "paired_interval"]
__all__ += ["wilson"]
__all__ += ["macro_f1", "mae", "matthews", "paired_bootstrap", "pearson", "r2", "rmse", "spearman", "squad"]
