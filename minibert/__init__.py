"""minibert: BERT from scratch (Devlin et al. 2019), with a core small enough to read from end to end.

What a user imports stands in `_PUBLIC`, and is loaded when first asked for: `import minibert` itself loads
nothing, so that `minibert --help` and a script that only wants the tokenizer start at once.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what an editor is to know
    from minibert.api.loading import load as load
    from minibert.api.runs import Run as Run, finetune as finetune, pretrain as pretrain
    from minibert.api.texts import (
        MultilabelClassifier as MultilabelClassifier,
        TextClassifier as TextClassifier,
        TextRegressor as TextRegressor,
    )
    from minibert.api.words import QuestionAnswerer as QuestionAnswerer, TokenTagger as TokenTagger
    from minibert.ask.inference import Bert as Bert
    from minibert.base.errors import InputError as InputError, RunError as RunError
    from minibert.core.batch import Batch as Batch
    from minibert.core.config import BertConfig as BertConfig
    from minibert.explorer import show as show
    from minibert.tokenizer import Tokenizer as Tokenizer

__version__ = "0.2.0.dev0"

_PUBLIC = {
    "base.errors": "InputError RunError",
    "api.loading": "load",
    "api.texts": "MultilabelClassifier TextClassifier TextRegressor",
    "api.words": "QuestionAnswerer TokenTagger",
    "explorer": "show",
    "ask.inference": "Bert",
    "core.batch": "Batch",
    "core.config": "BertConfig",
    "api.runs": "Run finetune pretrain",
    "tokenizer": "Tokenizer",
}
# Public name -> the module that defines it.
_HOME = {name: f"minibert.{module}" for module, names in _PUBLIC.items() for name in names.split()}
__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        from minibert.base.errors import did_you_mean

        offer = f"it offers {', '.join(__all__)}; {did_you_mean(name, __all__)}".rstrip("; ")
        raise AttributeError(f"module 'minibert' has no attribute {name!r}; {offer}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
