"""The engine numba: loops compiled when they are first run."""
