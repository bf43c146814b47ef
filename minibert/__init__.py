"""minibert: BERT from scratch (Devlin et al. 2019), with a core small enough to read from end to end.

What a user imports stands in `_HOME`, and is loaded when first asked for: `import minibert` itself loads
nothing, so that `minibert --help` and a script that only wants the tokenizer start at once.
"""

from typing import Any

__version__ = "0.1.0"

# Public name -> the module that defines it.
_HOME = {
    "Bert": "minibert.model",
    "Batch": "minibert.batch",
    "BertConfig": "minibert.config",
    "InputError": "minibert.errors",
    "RunError": "minibert.errors",
    "Tokenizer": "minibert.tokenizer",
}
__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'minibert' has no attribute {name!r}; it offers {', '.join(__all__)}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
