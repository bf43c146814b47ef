"""The engine jax: for accelerators, one of them or many.

Read `ops` first: the reference itself over `jax.numpy`. `rows` pads batches to static shapes, `training`
compiles a whole step, and `runtime` puts both on devices.
"""
