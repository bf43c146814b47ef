"""The parameters of an object as scikit-learn reads and sets them: those of a dataclass, by name."""

import os
from dataclasses import MISSING, fields
from typing import Any, Self

from minibert.base.errors import InputError, did_you_mean
from minibert.base.foreign_names import advice_for


class Parameterised:
    """A dataclass whose fields are parameters in the sense of scikit-learn."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool, default True
            Of scikit-learn's protocol; it has no meaning here.

        Returns
        -------
        dict
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def set_params(self, **parameters: Any) -> Self:
        """Set some parameters, for the next call.

        Parameters
        ----------
        **parameters
            By name.

        Returns
        -------
        object
            Itself.

        Raises
        ------
        InputError
            When there is none of that name.
        """
        known = self.get_params().keys()
        for name in parameters.keys() - known:
            advice = advice_for(name, known) or did_you_mean(name, known, f"there are {', '.join(known)}.")
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
            if field.default is MISSING:  # the first, by position
                parts.append(repr(value))
            elif repr(value) != repr(field.default):
                parts.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"
