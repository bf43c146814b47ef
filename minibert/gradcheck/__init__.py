"""Check every hand-written gradient of every engine against the complex step, and its rounding errors.

Read `sheet` first. The checker and most cases are in `core/gradcheck`; `operations` and `losses` add cases of
what only the product has.
"""
