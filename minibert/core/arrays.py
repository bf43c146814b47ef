"""Type aliases for the signatures of operations.

An operation runs on arrays of NumPy or JAX, and on complex arrays when its gradient is checked. `Array` is
any of these; type checkers treat it as `Any`. Functions that only handle NumPy arrays say `np.ndarray`;
those that users call also give the kind of element: `Floats`, `Integers` or a type of their own. Shapes are
in the comment above each function.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = Any  # an array of the engine's library; a scalar counts as an array without axes
Params: TypeAlias = dict[str, Any]  # nested: params["layers"][0]["attention"]["qkv_weight"]
Grads: TypeAlias = dict[str, Any]  # gradients, nested like Params; added to in place or replaced
Saved: TypeAlias = Any  # what a forward keeps for its backward: a named tuple, defined by the engine
Floats: TypeAlias = NDArray[np.floating[Any]]  # a NumPy array in the precision of the model
Integers: TypeAlias = NDArray[np.integer[Any]]
