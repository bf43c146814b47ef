"""Turns minibert/tokenizer/unicode-VERSION.txt into the header that unicode.c includes; part of every build.

    python csrc/wordpiece/unicode_tables.py minibert/tokenizer/unicode-15.0.0.txt unicode_tables.h

The table is read by its reader in the package, unicode.py beside it, so that C and Python can't differ in
that. What the C core takes for granted is asserted here: a Unicode that breaks it does not compile.
"""

import importlib.util
import sys
import textwrap
from pathlib import Path

PAGE = 128  # code points whose records lie together; unicode.h has the same number
N_CODES = 0x110000


def main(table: str, header: str) -> None:
    unicode = load_reader(Path(table).with_name("unicode.py"))
    assert unicode.TABLE.name == Path(table).name, f"{table} is not the table that unicode.py reads"
    data = unicode.data()
    flags = expand(data)
    check(unicode, data, flags)

    sequences = Sequences()
    records: dict[tuple[int, int, int, int], int] = {}
    pages: dict[tuple[int, ...], int] = {}
    page_of = []
    for begin in range(0, N_CODES, PAGE):
        page = []
        for code in range(begin, begin + PAGE):
            lower = sequences.place(data.lower.get(code))
            decomposition = sequences.place(data.decompositions.get(code))
            record = (flags[code], data.combining.get(code, 0), lower, decomposition)
            page.append(records.setdefault(record, len(records)))
        page_of.append(pages.setdefault(tuple(page), len(pages)))
    assert len(records) < 1 << 16 and len(sequences.codes) < 1 << 16 and len(pages) < 1 << 16

    pairs = sorted((ord(pair[0]), ord(pair[1]), ord(whole)) for pair, whole in data.compositions.items())
    text = f"/* Made by unicode_tables.py from {Path(table).name}. */\n"
    text += array("wp_char wp_chars", len(records), (f"{{{f}, {c}, {lo}, {d}}}" for f, c, lo, d in records))
    text += array("uint16_t wp_page_of", len(page_of), page_of)
    rows = ("{" + ", ".join(map(str, page)) + "}" for page in pages)
    text += array("uint16_t wp_pages", f"{len(pages)}][{PAGE}", rows)
    text += array("uint32_t wp_sequences", len(sequences.codes), sequences.codes, "static ")
    rows = (f"{{{first}, {second}, {whole}}}" for first, second, whole in pairs)
    text += array("wp_composition wp_compositions", len(pairs), rows, "static ")
    Path(header).write_text(text, encoding="utf-8")


class Sequences:
    """Strings of code points, one after the other, each behind its length; place 0 is for none."""

    def __init__(self):
        self.codes = [0]
        self.places: dict[str, int] = {}

    def place(self, text: str | None) -> int:
        if text is None:
            return 0
        if text not in self.places:
            self.places[text] = len(self.codes)
            self.codes += [len(text), *map(ord, text)]
        return self.places[text]


def array(name: str, length: int | str, items, storage: str = "") -> str:
    body = textwrap.fill(", ".join(map(str, items)), 110, initial_indent="    ", subsequent_indent="    ")
    return f"\n{storage}const {name}[{length}] = {{\n{body},\n}};\n"


def load_reader(path: Path):
    """The module at `path`, without the package around it: building must not need what minibert imports."""
    spec = importlib.util.spec_from_file_location("unicode_reader", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expand(data) -> list[int]:
    """Flags of every code point."""
    ends = [*data.starts[1:], N_CODES]
    return [
        kind
        for begin, end, kind in zip(data.starts, ends, data.flags, strict=True)
        for _ in range(begin, end)
    ]


def check(unicode, data, flags: list[int]) -> None:
    """What csrc/wordpiece relies on, of every code point and of what becomes of it."""
    assert len(flags) == N_CODES
    separate = unicode.SPACE | unicode.PUNCTUATION | unicode.IDEOGRAPH
    for code in {*data.lower, *data.decompositions, *data.combining}:
        character = chr(code)
        lower = data.lower.get(code, character)
        decomposed = "".join(map(unicode.decompose, lower))
        kept = [c for c in decomposed if not flags[ord(c)] & unicode.NONSPACING]
        n_bytes = len(character.encode())
        # At most one id for every byte of the text: whatever is done to it, it has no more characters.
        assert len(lower) <= n_bytes and len(kept) <= n_bytes, hex(code)
        composed = unicode.compose(unicode.decompose(character))
        assert len(composed) <= n_bytes and len(unicode.decompose(character)) <= n_bytes + 1, hex(code)
        # Words begin and end before lower-casing, which moves no border; decomposing makes no space.
        assert code not in data.lower or not any(flags[ord(c)] & separate for c in lower), hex(code)
        assert flags[code] & unicode.SPACE or not any(flags[ord(c)] & unicode.SPACE for c in decomposed)
        # Marks that change places stand in one word, and are kept or deleted wherever they come.
        if code in data.combining:
            assert not flags[code] & (separate | unicode.LOWERS | unicode.CONTROL), hex(code)
        # Lower-casing before decomposing (Google) or after it (Hugging Face in Rust) is one and the same.
        other = unicode.nfd("".join(map(unicode.lower_character, unicode.decompose(character))))
        other = [c for c in other if not flags[ord(c)] & unicode.NONSPACING]
        assert kept == other, hex(code)
        # The arrays that wp_lower and wp_decompose fill are long enough.
        assert len(lower) <= 3 and len(unicode.decompose(character)) <= 4, hex(code)
    # ASCII may stand next to anything that NFC changes, but a space or an ideograph takes no part in it.
    assert all(flags[code] & unicode.INERT for code in range(0x80))
    alone = unicode.SPACE | unicode.IDEOGRAPH
    assert not any(flags[ord(c)] & alone for pair in data.compositions for c in pair)


if __name__ == "__main__":
    main(*sys.argv[1:])
