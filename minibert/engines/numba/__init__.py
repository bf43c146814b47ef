"""The engine numba: loops compiled when they are first run.

Read `ops` first, then the loops that it calls: `rows`, which go row by row, and `products`.
"""
