"""Name what goes in and out of operations, for signatures.

An operation runs over NumPy, over JAX, and over complex numbers when its gradient is checked, so an array of
one is as good as an array of another: `Array` is any of them, and a type checker takes it as it comes. What
only NumPy makes says `np.ndarray`, and to users also of what: `Floats`, `Integers` or a type of its own.
Shapes stand in the comment above each function.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = Any  # of the engine's array library; a scalar counts as an array without axes
Params: TypeAlias = dict[str, Any]  # nested: params["layers"][0]["attention"]["qkv_weight"]
Grads: TypeAlias = dict[str, Any]  # gradients of the same shape as Params, added to in place or replaced
Saved: TypeAlias = Any  # kept by a forward for its backward: a named tuple, each engine with its own fields
Floats: TypeAlias = NDArray[np.floating[Any]]  # NumPy's, in the precision of the model
Integers: TypeAlias = NDArray[np.integer[Any]]
