"""`help` of every public name: parameters, fields, what is returned, and errors."""

import inspect
import re

import pytest

import minibert
from minibert.ask.gaps import Guess
from minibert.ask.inference import Encoded
from minibert.experiments.comparison import Comparison
from minibert.finetuning.explaining import Explanation

PUBLIC = {name: getattr(minibert, name) for name in minibert.__all__ if name != "__version__"}
PUBLIC |= {kind.__name__: kind for kind in (Comparison, Encoded, Explanation, Guess)}


def missing_of(function, text):
    """What the help of a function or class does not say: names of parameters, or "Returns"."""
    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name not in ("self", "cls")]
    headings = re.findall(r"^ *\*{0,2}(\w[\w, *]*?) *(?: :.*)?$", text, re.MULTILINE)
    described = {name for heading in headings for name in re.split(r"[, *]+", heading)}
    missing = [name for name in names if name not in described]
    returns = None if inspect.isclass(function) else signature.return_annotation
    if names and returns not in (None, "None") and "Returns\n---" not in text and "Yields\n---" not in text:
        missing.append("Returns")
    return missing


def members(kind):
    """The public methods of a class, by their names."""
    found = {}
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        function = getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function):
            found[name] = function
    return found


@pytest.mark.parametrize("name", PUBLIC)
def test_help_describes_parameters_fields_and_what_is_returned(name):
    public = PUBLIC[name]
    if not (inspect.isclass(public) and issubclass(public, BaseException)):
        assert missing_of(public, inspect.getdoc(public)) == []
    if inspect.isclass(public) and not issubclass(public, BaseException | tuple):
        for method, function in members(public).items():
            assert missing_of(function, inspect.getdoc(getattr(public, method))) == [], method


def test_what_help_leaves_out_is_noticed():
    def whole(first: int, *, second: str = "") -> int:
        """Return a number.

        Parameters
        ----------
        first : int
        second : str, default ""

        Returns
        -------
        int
        """
        return first

    text = inspect.getdoc(whole)
    assert missing_of(whole, text) == []
    assert missing_of(whole, text.replace("first : int", "")) == ["first"]
    assert missing_of(whole, text.partition("Returns")[0]) == ["Returns"]
