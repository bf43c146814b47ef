"""Writes minibert/tokenizer/unicode-VERSION.txt, all that minibert knows of Unicode, from the official files.

    python csrc/wordpiece/make_unicode.py FOLDER

FOLDER is the Unicode Character Database of one version, https://www.unicode.org/Public/15.0.0/ucd/. The table
is committed, so this is run once for a version; the C core and its Python twin read what it wrote.
"""

import sys
import textwrap
from collections import defaultdict
from pathlib import Path

FILES = (
    "UnicodeData SpecialCasing DerivedCoreProperties CompositionExclusions DerivedNormalizationProps".split()
)
N_CODES = 0x110000

HEAD = """\
# What minibert knows of Unicode {version}: the facts that decide where words begin and end, and no others.
# Written by csrc/wordpiece/make_unicode.py from the Unicode Character Database, {version}:
# {files}.
#
# After "@ NAME" stand code points, in hexadecimal: one, a range FIRST-LAST, or every other one FIRST-LAST/2.
#   Flag NUMBER                      what has the flag of this number, as unicode.h and unicode.py name them;
#                                    follows from General_Category, Cased, Case_Ignorable, what Google's code
#                                    lists, and the sections below
#   Combining_Class CODES=CLASS      Canonical_Combining_Class where it is not 0, in decimal
#   Lowercase CODES=FIRST+...        full lower-casing without context or language; the images of a range go
#                                    up with it
#   Decomposition CODE=FIRST+...     full canonical decomposition; Hangul has a formula
#   Composition CODE=FIRST+SECOND    what two characters are put together to; Hangul has a formula
"""

# Ideographs that Google's code sets between spaces; Hangul, Hiragana and Katakana are written as words.
IDEOGRAPHS = (
    range(0x4E00, 0xA000),
    range(0x3400, 0x4DC0),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820),
    range(0x2B820, 0x2CEB0),
    range(0xF900, 0xFB00),
    range(0x2F800, 0x2FA20),
)
LATE_IDEOGRAPHS = range(0x2B820, 0x2B920)
SYLLABLES, VOWELS, TRAILING = range(0xAC00, 0xD7A4), range(0x1161, 0x1176), range(0x11A8, 0x11C3)  # of Hangul

LICENCE = """\
COPYRIGHT AND PERMISSION NOTICE

Copyright © 1991-2022 Unicode, Inc. All rights reserved. Distributed under the Terms of Use in
https://www.unicode.org/copyright.html.

Permission is hereby granted, free of charge, to any person obtaining a copy of the Unicode data files and
any associated documentation (the "Data Files") or Unicode software and any associated documentation (the
"Software") to deal in the Data Files or Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, and/or sell copies of the Data Files or Software,
and to permit persons to whom the Data Files or Software are furnished to do so, provided that either (a)
this copyright and permission notice appear with all copies of the Data Files or Software, or (b) this
copyright and permission notice appear in associated Documentation.

THE DATA FILES AND SOFTWARE ARE PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED,
INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT OF THIRD PARTY RIGHTS. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR HOLDERS INCLUDED IN THIS
NOTICE BE LIABLE FOR ANY CLAIM, OR ANY SPECIAL INDIRECT OR CONSEQUENTIAL DAMAGES, OR ANY DAMAGES WHATSOEVER
RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS
ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THE DATA FILES OR SOFTWARE.

Except as contained in this notice, the name of a copyright holder shall not be used in advertising or
otherwise to promote the sale, use or other dealings in these Data Files or Software without prior written
authorization of the copyright holder.
"""


def main(folder: str) -> None:
    version, text = make_table(Path(folder))
    target = Path(__file__).resolve().parents[2] / "minibert" / "tokenizer" / f"unicode-{version}.txt"
    target.write_text(text, encoding="utf-8", newline="\n")


def make_table(folder: Path) -> tuple[str, str]:
    """The version of the files in `folder`, and the table made of them."""
    rows = {name: read(folder / f"{name}.txt") for name in FILES}
    version = (folder / "DerivedCoreProperties.txt").read_text(encoding="utf-8").split("\n")[0]
    version = version.removeprefix("# DerivedCoreProperties-").removesuffix(".txt")
    categories, combining, lower, decompositions = read_unicode_data(rows["UnicodeData"])
    for code, mapping, _, _, condition, *_ in rows["SpecialCasing"]:
        if not condition and codes_of(mapping) != [int(code, 16)]:
            lower[int(code, 16)] = codes_of(mapping)
    exclusions = {int(row[0], 16) for row in rows["CompositionExclusions"]}
    check_exclusions(rows["DerivedNormalizationProps"], decompositions, combining, exclusions)

    properties = {
        name: {code for row in rows["DerivedCoreProperties"] if row[1] == name for code in span_of(row[0])}
        for name in ("Cased", "Case_Ignorable")
    }
    return version, table_of(version, categories, properties, combining, lower, decompositions, exclusions)


def table_of(version, categories, properties, combining, lower, steps, exclusions) -> str:
    """The table made of the facts; `steps` are decompositions by one step."""
    decompositions = {code: decomposed([code], steps) for code in steps}
    compositions = {
        code: to
        for code, to in steps.items()
        if code not in exclusions and len(to) == 2 and code not in combining and to[0] not in combining
    }
    of_category = defaultdict(set)
    for code, category in enumerate(categories):
        of_category["P" if category[0] == "P" else category].add(code)
    ends = {0x09, 0x0A, 0x0D}
    composing = {to[1] for to in compositions.values()} | {*VOWELS, *TRAILING}
    starters = {
        code
        for code in range(N_CODES)
        if not {code, decompositions.get(code, [code])[0]} & (combining.keys() | composing)
    }
    flagged = (
        of_category["Cc"] - ends | of_category["Cf"] | {0xFFFD},
        ends | of_category["Zs"] | of_category["Zl"] | of_category["Zp"],
        of_category["P"] | {code for code in range(0x21, 0x7F) if not chr(code).isalnum()},
        of_category["Mn"],
        {code for block in IDEOGRAPHS for code in block},
        LATE_IDEOGRAPHS,
        of_category["Co"],
        of_category["Cn"],
        of_category["Cs"],
        properties["Cased"],
        properties["Case_Ignorable"],
        starters,
        starters - (decompositions.keys() - compositions.keys()),
        lower,
        decompositions.keys() | {*SYLLABLES},
    )
    sections = {f"Flag {1 << bit}": ranges(sorted(codes)) for bit, codes in enumerate(flagged)}
    sections["Combining_Class"] = combining_ranges(combining)
    sections["Lowercase"] = lower_ranges(lower)
    for name, all_of_them in {"Decomposition": decompositions, "Composition": compositions}.items():
        sections[name] = [f"{code:04X}={join(to)}" for code, to in sorted(all_of_them.items())]

    licence = textwrap.indent(LICENCE, "# ").replace("\n\n", "\n#\n")
    text = HEAD.format(version=version, files=" ".join(FILES)) + f"#\n{licence}"
    for name, items in sections.items():
        text += f"\n@ {name}\n" + textwrap.fill(" ".join(items), 110, break_on_hyphens=False) + "\n"
    return text


def decomposed(codes: list[int], steps: dict[int, list[int]]) -> list[int]:
    """Code points decomposed as far as it goes."""
    return [last for code in codes for last in (decomposed(steps[code], steps) if code in steps else [code])]


def read(path: Path) -> list[list[str]]:
    """Fields of every line of a file of the database, without comments."""
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").split("\n"))
    return [[field.strip() for field in line.split(";")] for line in lines if line]


def read_unicode_data(rows):
    """Category of every code point; those that have them: combining class, lower case, decomposition."""
    categories = ["Cn"] * N_CODES
    combining, lower, decompositions = {}, {}, {}
    first = None
    for code, name, category, combining_class, _, decomposition, *others in rows:
        last = int(code, 16)
        if name.endswith(", First>"):
            first = last
            continue
        for number in range(last if first is None else first, last + 1):
            categories[number] = category
        first = None
        if combining_class != "0":
            combining[last] = int(combining_class)
        if others[7]:
            lower[last] = [int(others[7], 16)]
        if decomposition and not decomposition.startswith("<"):
            decompositions[last] = codes_of(decomposition)
    return categories, combining, lower, decompositions


def check_exclusions(rows, decompositions, combining, exclusions) -> None:
    """`table_of` derives Full_Composition_Exclusion and NFC_Quick_Check; that must give the official ones."""
    official = defaultdict(set)
    for span, name, *value in rows:
        official[name, *value].update(span_of(span))
    full = exclusions | {
        code for code, to in decompositions.items() if len(to) == 1 or code in combining or to[0] in combining
    }
    assert full == official["Full_Composition_Exclusion",] == official["NFC_QC", "N"]
    seconds = {to[1] for code, to in decompositions.items() if code not in full}
    assert seconds | {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)} == official["NFC_QC", "M"]


def ranges(codes) -> list[str]:
    runs: list[list[int]] = []
    for code in codes:
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return [span(first, last) for first, last in runs]


def combining_ranges(combining: dict[int, int]) -> list[str]:
    by_class = defaultdict(list)
    for code, combining_class in sorted(combining.items()):
        by_class[combining_class].append(code)
    return [f"{run}={number}" for number, codes in sorted(by_class.items()) for run in ranges(codes)]


def lower_ranges(lower: dict[int, list[int]]) -> list[str]:
    runs: list[list] = []  # first, last, step or None, image of first
    for code, to in sorted(lower.items()):
        if runs and len(to) == len(runs[-1][3]) == 1:
            first, last, step, image = runs[-1]
            new_step = code - last
            if new_step in (1, 2) and step in (None, new_step) and to[0] - code == image[0] - first:
                runs[-1][1:3] = code, new_step
                continue
        runs.append([code, code, None, to])
    return [f"{span(first, last)}{'/2' if step == 2 else ''}={join(to)}" for first, last, step, to in runs]


def span(first: int, last: int) -> str:
    return f"{first:04X}" if first == last else f"{first:04X}-{last:04X}"


def span_of(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first, 16), int(last or first, 16) + 1)


def codes_of(text: str) -> list[int]:
    return [int(code, 16) for code in text.split()]


def join(codes) -> str:
    return "+".join(f"{code:04X}" for code in codes)


if __name__ == "__main__":
    main(*sys.argv[1:])
