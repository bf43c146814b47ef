"""What is said of characters, beside the running Python's `unicodedata` and the official files.

A Python with another version of Unicode knows other characters; those are compared that both know. From 14.0
to 15.1 (Python 3.11 to 3.13) none of them was filed anew; later ones may file a few elsewhere.
MINIBERT_UCD names a folder with the official files, https://www.unicode.org/Public/15.0.0/ucd/.
"""

import importlib.util
import os
import random
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from paths import ROOT

from minibert.tokenizer import unicode

SCRIPTS = ROOT / "csrc" / "wordpiece"
SAME_VERSION = unicodedata.unidata_version == unicode.UNICODE_VERSION
UCD = Path(os.environ.get("MINIBERT_UCD", "nowhere"))

MAY_DIFFER = 0 if unicodedata.unidata_version in ("14.0.0", "15.0.0", "15.1.0") else 40
CODES = range(0x110000)
CATEGORY_FLAGS = {
    "Mn": unicode.NONSPACING,
    "Co": unicode.PRIVATE,
    "Cn": unicode.UNASSIGNED,
    "Cs": unicode.SURROGATE,
    "Cc": unicode.CONTROL,
    "Cf": unicode.CONTROL,
    "Zs": unicode.SPACE,
    "Zl": unicode.SPACE,
    "Zp": unicode.SPACE,
}
BY_CATEGORY = sum(set(CATEGORY_FLAGS.values())) | unicode.PUNCTUATION

MARKS = "\u0300\u0301\u0308\u0323\u0327\u0338\u0345\u093c\u302e\U0001d165\u034f\u0344"
COMPOSING = "aeoAqαΑωᾳ中\uac00\uac01\u1100\u1161\u11a8\u09c7\u09be\u1025\u102e\u212b\uf900\u0958\ufb2c\u1fef"
GREEK = "ΑΒΣΣΣςσαβ'’.:·\u0301\u00ad\u02b0\u0345 -1\u200b\U0001d400"


def known_to_both():
    """Code points that are assigned in both versions; all of them if the versions are the same."""
    return [
        code
        for code in CODES
        if SAME_VERSION
        or (unicode.flags(code) & unicode.UNASSIGNED == 0 and unicodedata.category(chr(code)) != "Cn")
    ]


def texts_with(alphabet):
    """Texts of characters that both know, mostly those of `alphabet`."""
    known = st.characters(exclude_categories=("Cn",)).filter(
        lambda c: not unicode.flags(ord(c)) & unicode.UNASSIGNED
    )
    return st.text(alphabet) | st.text(st.sampled_from(alphabet) | known)


def lower(text, **options):
    """A whole text in lower case."""
    return "".join(unicode.lower_at(text, at, **options) for at in range(len(text)))


def from_the_running_python(character):
    """The flags that follow from the general category."""
    category = unicodedata.category(character)
    flags = CATEGORY_FLAGS.get(category, 0)
    if character in "\t\n\r":
        flags = unicode.SPACE
    if character == "\ufffd":
        flags = unicode.CONTROL
    if category.startswith("P") or character in "$+<=>^`|~":
        flags |= unicode.PUNCTUATION
    return flags


@pytest.mark.thorough
def test_classes_of_characters_are_those_of_unicode():
    refiled = [
        hex(code)
        for code in known_to_both()
        if unicode.flags(code) & BY_CATEGORY != from_the_running_python(chr(code))
    ]
    assert len(refiled) <= MAY_DIFFER, refiled


@pytest.mark.thorough
def test_every_character_has_the_lower_case_of_unicode():
    different = [
        hex(code)
        for code in known_to_both()
        if lower(chr(code)) != chr(code).lower()
        or (unicode.flags(code) & unicode.LOWERS > 0) != (chr(code).lower() != chr(code))
    ]
    assert len(different) <= MAY_DIFFER, different


@pytest.mark.thorough
def test_every_character_decomposes_and_composes_as_unicode_says():
    """Stable from version to version: no Python may differ on what both know."""
    for code in known_to_both():
        character = chr(code)
        decomposed = unicodedata.normalize("NFD", character)
        assert unicode.nfd(character) == unicode.decompose(character) == decomposed, hex(code)
        assert unicode.nfc(character) == unicodedata.normalize("NFC", character), hex(code)
        assert unicode.combining_class(character) == unicodedata.combining(character), hex(code)
        assert (unicode.flags(code) & unicode.DECOMPOSES > 0) == (decomposed != character), hex(code)


@pytest.mark.thorough
def test_cased_and_ignorable_characters_decide_where_a_sigma_is_final():
    wrong = []
    for code in known_to_both():
        behind_letter, behind_stop = (f"{before}{chr(code)}Σ".lower()[-1] == "ς" for before in "x.")
        flags = unicode.flags(code)
        if flags & unicode.CASE_IGNORABLE:
            wrong += [] if (behind_letter, behind_stop) == (True, False) else [hex(code)]
        else:
            wrong += [] if behind_letter == behind_stop == bool(flags & unicode.CASED) else [hex(code)]
    assert len(wrong) <= MAY_DIFFER, wrong


@given(texts_with(MARKS + COMPOSING))
def test_normal_forms_of_text_are_those_of_unicode(text):
    assert unicode.nfd(text) == unicodedata.normalize("NFD", text)
    assert unicode.nfc(text) == unicodedata.normalize("NFC", text)


@given(st.text(GREEK))
def test_greek_is_lower_cased_as_python_does(text):
    assert lower(text) == text.lower()
    assert lower(text, final_sigma=False).replace("ς", "σ") == text.lower().replace("ς", "σ")


def test_a_capital_sigma_is_final_behind_a_letter_and_before_none():
    assert lower("ΟΔΟΣ ΣΑΣ'. Σ ΑΣ1 Α.ΣΑ") == "οδος σας'. σ ας1 α.σα"
    assert lower("ΟΔΟΣ", final_sigma=False) == "οδοσ"
    assert lower("İΣ") == "i\u0307ς"


@pytest.mark.parametrize(
    "text, composed, decomposed",
    [
        ("\u212b\u2126\u1fef", "\u00c5\u03a9`", "A\u030a\u03a9`"),  # singletons
        ("한글", "한글", "\u1112\u1161\u11ab\u1100\u1173\u11af"),
        (
            "\uac00\u11a7\uac01\u11a8",
            "\uac00\u11a7\uac01\u11a8",
            "\u1100\u1161\u11a7\u1100\u1161\u11a8\u11a8",
        ),
        ("q\u0307\u0323", "q\u0323\u0307", "q\u0323\u0307"),  # put in order
        ("s\u0307\u0323", "\u1e69", "s\u0323\u0307"),
        ("a\u0304\u0301", "\u0101\u0301", "a\u0304\u0301"),
        ("a\u0301\u0304", "\u00e1\u0304", "a\u0301\u0304"),  # what is as high is in the way
        ("a\u034f\u0301", "a\u034f\u0301", "a\u034f\u0301"),  # and so is what is no mark of a class
        (
            "\u0958\ufb2c\u2adc",
            "\u0915\u093c\u05e9\u05bc\u05c1\u2add\u0338",
            "\u0915\u093c\u05e9\u05bc\u05c1\u2add\u0338",
        ),
        ("\u0344", "\u0308\u0301", "\u0308\u0301"),
        ("\u09c7\u09be", "\u09cb", "\u09c7\u09be"),  # two starters
        ("\ud800\u0301", "\ud800\u0301", "\ud800\u0301"),
    ],
)
def test_normal_forms_of_awkward_text(text, composed, decomposed):
    assert unicode.nfc(text) == composed
    assert unicode.nfd(text) == decomposed
    assert unicode.nfc(decomposed) == composed and unicode.nfd(composed) == decomposed


@given(texts_with(MARKS + COMPOSING))
def test_text_may_be_cut_before_every_segment_start_without_changing_its_composition(text):
    cuts = [i for i, c in enumerate(text) if unicode.flags(ord(c)) & unicode.SEGMENT_START]
    for cut in cuts:
        assert unicode.nfc(text[:cut]) + unicode.nfc(text[cut:]) == unicode.nfc(text)
    assert [begin for begin, _ in unicode.segments(text)] == sorted({0, *cuts} if text else ())
    for character in text:
        assert not unicode.flags(ord(character)) & unicode.INERT or unicode.nfc(character) == character


@pytest.mark.slow
def test_long_rows_of_marks_or_sigmas_take_no_quadratic_time():
    generator = random.Random(1)
    marks = "".join(generator.choices(MARKS, k=200_000))
    began = time.process_time()
    for text in (marks, "a" + marks, "\u0301\u0323" * 100_000, "\u1100" * 200_000):
        unicode.nfc(unicode.nfd(text))
    for text in ("Σ" * 200_000, "aΣ" + "'" * 200_000, "'" * 200_000 + "Σ", "Σ'" * 100_000):
        lower(text)
    assert time.process_time() - began < 20


# The committed table and the C header made from it


def load(script):
    spec = importlib.util.spec_from_file_location(script, SCRIPTS / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(
    not UCD.is_dir(), reason="MINIBERT_UCD names no folder with the Unicode Character Database"
)
def test_the_committed_table_is_made_from_the_official_files():
    version, table = load("make_unicode").make_table(UCD)
    assert version == unicode.UNICODE_VERSION
    assert table == unicode.TABLE.read_text(encoding="utf-8")


@pytest.mark.skipif(
    not (UCD / "NormalizationTest.txt").exists(),
    reason="MINIBERT_UCD names no folder with NormalizationTest.txt",
)
def test_the_official_test_of_normal_forms_passes():
    n_lines = 0
    for line in (UCD / "NormalizationTest.txt").read_text(encoding="utf-8").split("\n"):
        fields = line.split("#")[0].split(";")
        if len(fields) < 5:
            continue
        forms = ["".join(chr(int(code, 16)) for code in field.split()) for field in fields[:5]]
        assert {unicode.nfc(text) for text in forms[:3]} == {forms[1]}, line
        assert {unicode.nfd(text) for text in forms[:3]} == {forms[2]}, line
        assert {unicode.nfc(text) for text in forms[3:]} == {forms[3]}, line
        assert {unicode.nfd(text) for text in forms[3:]} == {forms[4]}, line
        n_lines += 1
    assert n_lines > 18_000


@pytest.mark.thorough
def test_the_c_header_is_made_without_the_package(tmp_path):
    header = tmp_path / "unicode_tables.h"
    command = [sys.executable, "-I", "-S", SCRIPTS / "unicode_tables.py", unicode.TABLE, header]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert "const wp_char wp_chars[" in header.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "section, entry",
    [
        ("Flag 4", "0300"),  # a mark that is punctuation would change places across words
        ("Flag 2", "00E9"),  # a letter that lower-casing makes a space
        ("Lowercase", "0031=0061+0062"),  # more characters than bytes
    ],
)
def test_no_header_is_made_of_a_table_that_breaks_what_the_core_relies_on(tmp_path, section, entry):
    table = unicode.TABLE.read_text(encoding="utf-8").replace(f"@ {section}\n", f"@ {section}\n{entry} ", 1)
    copy = tmp_path / unicode.TABLE.name
    copy.write_text(table, encoding="utf-8")
    (tmp_path / "unicode.py").write_bytes(Path(unicode.__file__).read_bytes())
    with pytest.raises(AssertionError):
        load("unicode_tables").main(str(copy), str(tmp_path / "unicode_tables.h"))
    assert not (tmp_path / "unicode_tables.h").exists()
