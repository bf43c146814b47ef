"""The engine jax: for accelerators, one of them or many."""
