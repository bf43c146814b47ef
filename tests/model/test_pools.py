"""Vectors of texts that are made of the vectors of their tokens."""

import numpy as np
import pytest

from minibert.model.pools import POOLS

LENGTHS = (1, 5, 2)
OF_ONE_TEXT = {
    "cls": lambda tokens: tokens[0],
    "mean": lambda tokens: tokens.mean(0, dtype=np.float64).astype(tokens.dtype),
    "max": lambda tokens: tokens.max(0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name, pool in POOLS.items() if pool.vectors])
def test_a_pool_of_several_texts_is_that_of_each_alone(name, dtype):
    tokens = np.random.default_rng(0).standard_normal((sum(LENGTHS), 3)).astype(dtype)
    cu_seqlens = np.cumsum([0, *LENGTHS])
    vectors = POOLS[name].vectors(tokens, cu_seqlens)
    expected = [OF_ONE_TEXT[name](text) for text in np.split(tokens, cu_seqlens[1:-1])]
    assert vectors.dtype == dtype
    np.testing.assert_allclose(vectors, expected, rtol=8 * np.finfo(dtype).eps)
