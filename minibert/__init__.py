"""minibert: BERT from scratch (Devlin et al. 2019), with a core small enough to read from end to end.

What a user imports stands in `_MODULES`, and is loaded when first asked for: `import minibert` itself loads
nothing, so that `minibert --help` and a script that only wants the tokenizer start at once.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # editors and type checkers read this; Python does not
    from minibert.api.encoder import TextEncoder as TextEncoder
    from minibert.api.exporting import export as export
    from minibert.api.loading import load as load
    from minibert.api.runs import Run as Run, finetune as finetune, pretrain as pretrain
    from minibert.api.texts import (
        MultilabelClassifier as MultilabelClassifier,
        TextClassifier as TextClassifier,
        TextRegressor as TextRegressor,
    )
    from minibert.api.words import QuestionAnswerer as QuestionAnswerer, TokenTagger as TokenTagger
    from minibert.ask.inference import Bert as Bert
    from minibert.base.errors import (
        InputError as InputError,
        RunError as RunError,
        StopTraining as StopTraining,
    )
    from minibert.core.batch import Batch as Batch
    from minibert.core.config import BertConfig as BertConfig
    from minibert.experiments.comparison import compare as compare
    from minibert.explorer import show as show
    from minibert.tokenizer import Tokenizer as Tokenizer
    from minibert.verification import verify as verify

__version__ = "0.2.0.dev0"

# Every public name, and the module that it is loaded from. A new one is also imported above, for editors.
_MODULES = {
    "Batch": "minibert.core.batch",
    "Bert": "minibert.ask.inference",
    "BertConfig": "minibert.core.config",
    "InputError": "minibert.base.errors",
    "MultilabelClassifier": "minibert.api.texts",
    "QuestionAnswerer": "minibert.api.words",
    "Run": "minibert.api.runs",
    "RunError": "minibert.base.errors",
    "StopTraining": "minibert.base.errors",
    "TextClassifier": "minibert.api.texts",
    "TextEncoder": "minibert.api.encoder",
    "TextRegressor": "minibert.api.texts",
    "TokenTagger": "minibert.api.words",
    "Tokenizer": "minibert.tokenizer",
    "compare": "minibert.experiments.comparison",
    "export": "minibert.api.exporting",
    "finetune": "minibert.api.runs",
    "load": "minibert.api.loading",
    "pretrain": "minibert.api.runs",
    "show": "minibert.explorer",
    "verify": "minibert.verification",
}
__all__ = sorted([*_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for (PEP 562)."""
    if name not in _MODULES:
        from minibert.base.errors import did_you_mean
        from minibert.base.foreign_names import name_advice

        if advice := name_advice(name):
            raise AttributeError(f"module 'minibert' has no attribute {name!r}; {advice}")
        offer = f"it offers {', '.join(__all__)}; {did_you_mean(name, __all__)}".rstrip("; ")
        raise AttributeError(f"module 'minibert' has no attribute {name!r}; {offer}")
    from importlib import import_module

    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value  # from now on Python sees it without this function
    return value


def __dir__() -> list[str]:
    """List the public names, also those that have not been loaded."""
    return sorted({*globals(), *__all__})
