"""Writes dropout.json: bits of the dropout hash for some places, from a second, scalar description of it.

    python tests/golden/make_dropout.py

Every engine, in whatever language, has to drop exactly these elements.
"""

import json
from pathlib import Path

WORD = 0xFFFFFFFF
GOLDEN = 0x9E3779B9
STREAMS = (0x243F6A88, 0x85A308D3)


def mix(x, between=0):
    """One 32-bit word to another; `between` is folded in after the first multiplication."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D & WORD) ^ between
    x = (x ^ (x >> 15)) * 0x846CA68B & WORD
    return x ^ (x >> 16)


def fold(key, word):
    """The key that also depends on one more word."""
    return tuple(mix((mix(half ^ word) + GOLDEN) & WORD) for half in key)


def row_key(seed, step, sequence, position):
    """The key of one token at one step."""
    key = STREAMS
    for word in (seed, step, sequence, position):
        key = fold(key, (word ^ (word >> 32)) & WORD)
    return key


def kept(key, column, rate):
    """Whether one column survives: even columns take the low half of a hash, odd columns the high half."""
    counter = (column // 2) * GOLDEN & WORD
    hashed = mix((key[0] + counter) & WORD, between=key[1])
    draw = hashed >> 16 if column % 2 else hashed & 0xFFFF
    return draw >= round(rate * 65536)


def bits(key, columns, rate):
    """Columns as a string of 1 (kept) and 0 (dropped)."""
    return "".join(str(int(kept(key, column, rate))) for column in range(columns))


PLACES = [  # seed, step, sequence, position
    (0, 0, 0, 0),
    (0, 1, 0, 0),
    (1, 0, 0, 0),
    (0, 0, 1, 0),
    (0, 0, 0, 1),
    (42, 1_000_000, 255, 511),
    (2**32 + 7, 999, 2**31, 100),
    (2**64 - 1, 2**31, 2**32 - 1, 3),
]


def main():
    """Write the table beside this script."""
    table = {
        "mix": [[x, mix(x)] for x in (0, 1, 2, 0x80000000, WORD, 123456789)],
        "row_key": [[*place, list(row_key(*place))] for place in PLACES],
        "dropout_mask": [
            [*place, site, rate, bits(fold(row_key(*place), site), columns, rate)]
            for place in PLACES
            for site, rate, columns in ((0, 0.1, 65), (3, 0.5, 33), (36, 0.9, 32))
        ],
        "attention": [
            [*place, site, head, rate, bits(fold(fold(row_key(*place), site), head), columns, rate)]
            for place in PLACES[:6]
            for site, head, rate, columns in ((1, 0, 0.1, 40), (34, 11, 0.5, 7))
        ],
    }
    parts = [f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in table.items()]
    text = "{" + ",\n".join(parts) + "}\n"
    (Path(__file__).parent / "dropout.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
