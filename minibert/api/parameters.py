"""Parameters in scikit-learn's sense: get, set and show the fields of a dataclass by name."""

import os
from dataclasses import MISSING, fields
from typing import Any, Self

from minibert.base.errors import InputError, did_you_mean
from minibert.base.foreign_names import advice_for


class Parameterised:
    """The base class of a dataclass whose fields are parameters in scikit-learn's sense."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool, default True
            Part of scikit-learn's protocol; ignored, since no parameter has parameters.

        Returns
        -------
        dict
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def set_params(self, **parameters: Any) -> Self:
        """Set some parameters; they take effect with the next call of a method.

        Parameters
        ----------
        **parameters
            The new values, by name.

        Returns
        -------
        object
            The object itself.

        Raises
        ------
        InputError
            When there is no parameter of a name.
        """
        names = self.get_params().keys()
        for name in parameters.keys() - names:
            advice = advice_for(name, names) or did_you_mean(name, names, f"there are {', '.join(names)}.")
            raise InputError(f"{type(self).__name__} has no parameter {name!r}; {advice}")
        vars(self).update(parameters)
        return self

    def __repr__(self) -> str:
        """Show the parameters that differ from their defaults."""
        parts = []
        positional_first = sorted(fields(self), key=lambda field: bool(field.kw_only))  # type: ignore[arg-type]
        for field in positional_first:
            value = getattr(self, field.name)
            value = os.fspath(value) if isinstance(value, os.PathLike) else value
            if field.default is MISSING:  # a required parameter is shown by position, without its name
                parts.append(repr(value))
            elif repr(value) != repr(field.default):
                parts.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"
