"""How good predictions are: the official metric of every downstream task, and how sure one can be of it.

Most compare two sequences, `label_f1` classes of which several apply; `squad` scores answers to questions and
`entities` tagged sentences by the rules of the official scripts; `bootstrap` and `paired_bootstrap` put an
interval around any of them. Nothing here knows a file or a model.
"""

from minibert.metrics import entities, squad
from minibert.metrics.intervals import bootstrap, paired_bootstrap
from minibert.metrics.scores import accuracy, confusion, f1, label_f1, macro_f1, matthews, pearson, spearman

__all__ = ["accuracy", "bootstrap", "confusion", "entities", "f1", "label_f1"]
__all__ += ["macro_f1", "matthews", "paired_bootstrap", "pearson", "spearman", "squad"]
