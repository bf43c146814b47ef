"""Writes erf.json: the complementary error function at complex points, correct to the last bit.

Run `python tests/golden/make_erf.py` with mpmath and SciPy installed. mpmath computes with 50 digits; SciPy's
own complex erfc has to agree.
"""

import json
from pathlib import Path

import mpmath
from scipy import special

# The tiny imaginary part is a complex step: what a gradient check puts in.
REAL = (-4.0, -2.5, -1.25, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0, 1.75, 3.0, 5.0, 8.0)
IMAGINARY = (0.0, 2.0**-100, 0.1, 0.75, -1.5, 3.0)


def main():
    """Write the table beside this script."""
    mpmath.mp.dps = 50
    rows = []
    for x in REAL:
        for y in IMAGINARY:
            exact = mpmath.erfc(mpmath.mpc(x, y))
            value = complex(float(exact.real), float(exact.imag))
            assert abs(special.erfc(complex(x, y)) - value) <= 1e-13 * abs(value)
            rows.append([x, y, value.real, value.imag])
    text = "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"
    (Path(__file__).parent / "erf.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
