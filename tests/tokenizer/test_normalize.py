"""Which words a text has, in the three modes, and where their characters come from."""

import json
import pickle
import random
import time
import unicodedata

import numpy as np
import pytest
from hypothesis import given, strategies as st
from marks import seldom
from paths import GOLDEN as FOLDER

from minibert.base.errors import InputError
from minibert.tokenizer import unicode
from minibert.tokenizer.normalize import COMPAT, BasicTokenizer, Word, split_at_whitespace

GOLDEN = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
# Text in which words repeat, grow accents, controls, separators and punctuation, and marks change places.
DENSE_TEXT = st.text(
    "abcAEéİΣς\u0301\u0323\u0345\u1fef\u037e中\uf900\x00\x0b\x1c\x85\ufffd\u200b \t\n\xa0\u2028,.'^$`-_"
    "\ue000\u0378\ud800\U0002b820\uac00\u1100\u1161\u11a8\u302e\U0001d165\U0001d15e\u034f\u0344"
)
ANY_TEXT = st.text(st.characters(exclude_categories=())) | DENSE_TEXT  # lone surrogates too
RULES = st.fixed_dictionaries(
    {
        "lower_case": st.booleans(),
        "strip_accents": st.none() | st.booleans(),
        "tokenize_chinese_chars": st.booleans(),
        "compat": st.sampled_from(COMPAT),
        "never_split": st.sampled_from([(), ("a", "Aé", "^", "中", "\u0301", "'a.")]),
    }
)


def words(text, **options):
    return BasicTokenizer(**options).tokenize(text)


# Words of Google's code


def test_lower_casing_strips_accents_and_splits_punctuation():
    assert words(" \tHeLLo!how  \n Are yoU?  ") == ["hello", "!", "how", "are", "you", "?"]
    assert words("H\u00e9llo, Ünï") == ["hello", ",", "uni"]
    assert words("İstanbul") == ["istanbul"]


def test_cased_words_keep_case_and_accents_even_decomposed_ones():
    assert words("HeLLo He\u0301llo Héllo", lower_case=False) == ["HeLLo", "He\u0301llo", "Héllo"]


def test_accents_can_be_kept_or_stripped_whatever_the_case():
    assert words("HÉ", strip_accents=False) == ["hé"]
    assert words("HÉ", lower_case=False, strip_accents=True) == ["HE"]


def test_a_final_sigma_is_lower_cased_as_python_does():
    assert words("ΟΔΟΣ ΣΑΣ.") == ["οδος", "σας", "."]


def test_chinese_characters_stand_alone_but_japanese_and_korean_words_do_not():
    assert words("ah\u535a\u63a8zz") == ["ah", "\u535a", "\u63a8", "zz"]
    assert words("ah\u535a\u63a8zz", tokenize_chinese_chars=False) == ["ah\u535a\u63a8zz"]
    assert words("ひらがなカタカナ 한국", strip_accents=False) == ["ひらがなカタカナ", "한국"]


def test_ideograph_blocks_end_where_google_ends_them():
    firsts = (0x4E00, 0x3400, 0x20000, 0x2A700, 0xF900, 0x2F800)
    lasts = (0x9FFF, 0x4DBF, 0x2A6DF, 0x2CEAF, 0xFAFF, 0x2FA1F)
    alone = [words(f"a{chr(code)}", strip_accents=False)[1:] == [chr(code)] for code in firsts + lasts]
    beyond = [*(code - 1 for code in firsts), *(code + 1 for code in lasts)]
    joined = [words(f"a{chr(code)}", strip_accents=False) == [f"a{chr(code)}"] for code in beyond]
    assert alone == joined == [True] * 12


def test_every_ascii_symbol_is_punctuation():
    marks = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    assert [c for c in map(chr, range(128)) if len(words(f"a{c}b")) == 3] == sorted(marks)
    assert words("a^b$c`d~e_f") == ["a", "^", "b", "$", "c", "`", "d", "~", "e", "_", "f"]


def test_unicode_punctuation_splits_but_other_symbols_do_not():
    assert words("a—b…c«d»e¿f") == ["a", "—", "b", "…", "c", "«", "d", "»", "e", "¿", "f"]
    assert words("a€b ×2 10°") == ["a€b", "×2", "10°"]
    assert words("a≠b") == ["a", "=", "b"]  # an equals sign with a stroke through it
    assert words("a≠b", strip_accents=False) == ["a≠b"]


def test_control_and_format_characters_vanish_and_join_what_they_stood_between():
    assert words("a\x00b\x07c\x0bd\x0ce\x1cf\x85g\x7fh\u200bi\u00adj\ufeffk\ufffdl") == ["abcdefghijkl"]
    assert words("\u200fab\u202ecd\u2066\u2069") == ["abcd"]  # right-to-left marks


def test_tab_line_ends_spaces_and_separators_split():
    assert words("a\tb\nc\rd\xa0e\u2003f\u3000g\u2028h\u2029i") == list("abcdefghi")


def test_marks_alone_leave_no_word():
    assert words("\u0301 \u0301\u0302 a") == ["a"]


def test_a_text_of_nothing_has_no_words():
    for mode in COMPAT:
        assert words("", compat=mode) == words(" \n\u200b\x00", compat=mode) == []
        assert BasicTokenizer(compat=mode).align(" \u200b") == []


def google_words(text, lower):
    """The published order of steps, one word and one character at a time."""
    cleaned = ""
    for c in text:
        flags = unicode.flags(ord(c))
        if flags & unicode.SPACE:
            cleaned += " "
        elif not flags & unicode.CONTROL:
            cleaned += f" {c} " if flags & unicode.IDEOGRAPH else c
    split = []
    for word in cleaned.split():
        if lower:
            word = unicode.nfd("".join(unicode.lower_at(word, at) for at in range(len(word))))
            word = "".join(c for c in word if not unicode.flags(ord(c)) & unicode.NONSPACING)
        split.append("".join(f" {c} " if unicode.flags(ord(c)) & unicode.PUNCTUATION else c for c in word))
    return " ".join(split).split()


@given(ANY_TEXT, st.booleans())
def test_whole_text_at_once_equals_word_by_word(text, lower):
    assert words(text, lower_case=lower) == google_words(text, lower)


@given(DENSE_TEXT, RULES)
def test_chunks_between_spaces_tokenize_independently(text, rules):
    chunks = split_at_whitespace(text)
    assert [word for chunk in chunks for word in words(chunk, **rules)] == words(text, **rules)


@pytest.mark.thorough
def test_chunks_end_where_words_do():
    for code in range(0x110000):
        flags = unicode.flags(code)
        expected = ["ab"] if flags & unicode.CONTROL else ["a", "b"] if flags & unicode.SPACE else None
        found = split_at_whitespace(f"a{chr(code)}b")
        assert (found == ["a", "b"]) == (expected == ["a", "b"]), hex(code)


@pytest.mark.thorough
@pytest.mark.no_cover
@pytest.mark.parametrize("mode", seldom(["google", "hf-slow"], "google"))
@pytest.mark.parametrize("case", seldom(["uncased", "cased"], "uncased"))
def test_each_character_is_dropped_joined_or_split_as_recorded(case, mode):
    tokenizer = BasicTokenizer(lower_case=case == "uncased", compat=mode)
    different = []
    for first, last, *behaviours in GOLDEN["characters"]:
        expected = behaviours[case == "cased"]
        for code in range(first, last + 1):
            split = tokenizer.tokenize(f"a{chr(code)}b")
            found = "vanishes" if split == ["ab"] else ["joins", "splits", "alone"][len(split) - 1]
            different += [hex(code)] if found != expected else []
    # The record is Hugging Face's: U+1FEF is composed to a backquote before it is looked at.
    assert different == (["0x1fef"] if (case, mode) == ("cased", "google") else [])


# How the modes differ


def test_private_unassigned_and_surrogate_characters_are_deleted_by_hugging_face_only():
    text = "a\ue000b \u0378 \ud800 c\U0010fffd"
    assert words(text) == ["a\ue000b", "\u0378", "\ud800", "c\U0010fffd"]
    assert words(text, compat="hf-slow") == ["ab", "c"]
    assert words(text, compat="hf-fast") == ["ab", "\u0378", "\ud800", "c"]


def test_hf_slow_composes_before_it_splits():
    text = "He\u0301llo \uf900 a\u1fefb \u1112\u1161\u11ab q\u0307\u0323 \u0958"
    assert words(text, lower_case=False, compat="hf-slow") == [
        *["Héllo", "\u8c48", "a", "`", "b", "한", "q\u0323\u0307", "\u0915\u093c"]
    ]
    for mode in ("google", "hf-fast"):
        assert words(text, lower_case=False, compat=mode) == text.split()
    assert words("a\u2126\u1fef") == ["aω", "`"]  # where accents go, all come to the same


def test_hf_fast_lower_cases_every_sigma_alike():
    assert words("ΟΔΟΣ ΣΑΣ.", compat="hf-fast") == ["οδοσ", "σασ", "."]
    assert words("ΟΔΟΣ ΣΑΣ.", compat="hf-slow") == ["οδος", "σας", "."]


def test_hf_fast_leaves_256_ideographs_unsplit():
    text = "a\U0002b81db a\U0002b820b a\U0002b91fb a\U0002b920b"
    assert words(text, compat="hf-slow") == words(text)
    assert [len(words(part)) for part in text.split()] == [3, 3, 3, 3]
    assert [len(words(part, compat="hf-fast")) for part in text.split()] == [3, 1, 1, 3]


@pytest.mark.parametrize("mode", COMPAT)
def test_words_in_never_split_stay_as_they_are_between_spaces(mode):
    kept = ["[MASK]", "O'Neill", "Été", "中"]
    text = "[MASK] [mask] O'Neill (O'Neill) Été\u200b été\tx中y"
    assert words(text, never_split=kept, compat=mode) == [
        *["[MASK]", "[", "mask", "]", "O'Neill", "(", "o", "'", "neill", ")", "Été", "ete", "x", "中", "y"]
    ]


def test_never_split_is_compared_after_composition_in_hf_slow():
    assert words("E\u0301te\u0301", never_split=["Été"]) == ["ete"]
    assert words("E\u0301te\u0301", never_split=["Été"], compat="hf-slow") == ["Été"]


def test_arguments_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="compat='fast' is unknown; choose one of google, hf-slow, hf-fast"):
        BasicTokenizer(compat="fast")
    for wrong in ("[MASK]", [1], [None]):
        with pytest.raises(InputError, match="never_split=.* is not a list of words"):
            BasicTokenizer(never_split=wrong)
    with pytest.raises(InputError, match="never_split has an empty string"):
        BasicTokenizer(never_split=["a", ""])
    assert BasicTokenizer(never_split=iter(["a", "b"])).never_split == ("a", "b")


@pytest.mark.parametrize("name", ["lower_case", "strip_accents", "tokenize_chinese_chars"])
def test_a_switch_is_true_or_false(name):
    for wrong in ("no", 1, [], *(() if name == "strip_accents" else (None,))):
        with pytest.raises(InputError, match=f"{name}=.* is neither True nor False"):
            BasicTokenizer(**{name: wrong})
    assert getattr(BasicTokenizer(**{name: np.bool_(False)}), name) is False


@given(DENSE_TEXT, RULES)
def test_a_pickled_tokenizer_makes_the_same_words(text, rules):
    tokenizer = BasicTokenizer(**rules)
    expected = tokenizer.tokenize(text)
    assert pickle.loads(pickle.dumps(tokenizer)).tokenize(text) == expected


# Where characters come from


@given(ANY_TEXT, RULES)
def test_aligned_words_are_the_words_and_their_sources_go_from_left_to_right(text, rules):
    aligned = BasicTokenizer(**rules).align(text)
    assert [word.text for word in aligned] == words(text, **rules)
    assert all(len(word.text) == len(word.begins) == len(word.ends) > 0 for word in aligned)
    spans = [span for word in aligned for span in zip(word.begins, word.ends, strict=True)]
    assert all(0 <= begin < end <= len(text) for begin, end in spans)
    assert [begin for begin, _ in spans] == sorted(begin for begin, _ in spans)
    assert [end for _, end in spans] == sorted(end for _, end in spans)


def brute_force_sources(text, rules):
    """For each character of all words in a row: the shortest span of `text` that the text may be cut at.

    It may be cut where the parts have the words of the whole. The form of a sigma does not count.
    """

    def characters(part):
        return "".join(words(part, **rules)).replace("ς", "σ")

    heads = [characters(text[:at]) for at in range(len(text) + 1)]
    cuts = [at for at, head in enumerate(heads) if head + characters(text[at:]) == heads[-1]]
    return [
        (
            max(cut for cut in cuts if len(heads[cut]) <= number),
            min(cut for cut in cuts if len(heads[cut]) > number),
        )
        for number in range(len(heads[-1]))
    ]


# Two marks that change places in any order; more than two may share more than they must, see below.
CUTTABLE = st.lists(
    st.sampled_from(
        list("aAéİΣς中,^ \x00\u200b\ufffd\u1fef\u037e\u0344\uac01\u1100\u1161\u11a8\ue000\uf900\u0301\u0345")
        + ["\u0958", "a\u302e", "a\u302e\u0301\U0001d165", "\U0001d15e", "\u034f"]
    ),
    max_size=7,
).map("".join)


@given(CUTTABLE, st.booleans(), st.none() | st.booleans(), st.sampled_from(["google", "hf-fast"]))
def test_the_source_of_a_character_is_the_shortest_span_that_can_be_cut_out(text, lower, strip, mode):
    rules = {"lower_case": lower, "strip_accents": strip, "compat": mode}
    aligned = BasicTokenizer(**rules).align(text)
    spans = [span for word in aligned for span in zip(word.begins, word.ends, strict=True)]
    assert spans == brute_force_sources(text, rules)


@given(CUTTABLE, st.booleans(), st.none() | st.booleans())
def test_in_hf_slow_it_is_that_span_unless_composition_changed_the_text_there(text, lower, strip):
    rules = {"lower_case": lower, "strip_accents": strip, "compat": "hf-slow"}
    aligned = BasicTokenizer(**rules).align(text)
    spans = [span for word in aligned for span in zip(word.begins, word.ends, strict=True)]
    deleted = unicode.CONTROL | unicode.PRIVATE | unicode.UNASSIGNED | unicode.SURROGATE
    kept = "".join(character for character in text if not unicode.flags(ord(character)) & deleted)
    settled = unicode.nfc(kept) == kept
    for (begin, end), (shortest_begin, shortest_end) in zip(
        spans, brute_force_sources(text, rules), strict=True
    ):
        assert begin <= shortest_begin and shortest_end <= end
        assert not settled or (begin, end) == (shortest_begin, shortest_end)


def test_sources_of_expansions_deletions_and_hangul():
    assert BasicTokenizer().align("\u00adÉ\u200bt\u00e9!") == [
        Word("ete", [1, 3, 4], [2, 4, 5]),
        Word("!", [5], [6]),
    ]
    assert BasicTokenizer().align("x각") == [Word("x\u1100\u1161\u11a8", [0, 1, 1, 1], [1, 2, 2, 2])]
    assert BasicTokenizer(strip_accents=False).align("İ") == [Word("i\u0307", [0, 0], [1, 1])]
    assert BasicTokenizer().align("a\u0301\u0302b") == [Word("ab", [0, 3], [1, 4])]  # marks are nobody's


def test_marks_that_change_places_share_their_source():
    tokenizer = BasicTokenizer()
    # U+302E (class 224) and U+1D165 (class 216) are no accents: they stay, in canonical order.
    assert tokenizer.align("a\u302e\u0301\U0001d165b") == [
        Word("a\U0001d165\u302eb", [0, 1, 1, 4], [1, 4, 4, 5])
    ]
    assert tokenizer.align("a\U0001d165\u0301\u302eb") == [
        Word("a\U0001d165\u302eb", [0, 1, 3, 4], [1, 2, 4, 5])
    ]
    assert tokenizer.align("\u302e\u034f\U0001d165")[0].begins == [0, 2]  # nothing moves across U+034F


def test_what_is_composed_together_has_one_source():
    tokenizer = BasicTokenizer(lower_case=False, compat="hf-slow")
    assert tokenizer.align("xe\u0301y") == [Word("xéy", [0, 1, 3], [1, 3, 4])]
    assert tokenizer.align("q\u0307\u0323 \u0307\u0323") == [
        Word("q\u0323\u0307", [0, 0, 0], [3, 3, 3]),
        Word("\u0323\u0307", [4, 4], [6, 6]),  # the space is not theirs
    ]
    assert tokenizer.align("q\u0323\u0307") == [Word("q\u0323\u0307", [0, 1, 2], [1, 2, 3])]
    assert tokenizer.align("\u1100\u1161\u11a8") == [Word("각", [0], [3])]
    assert tokenizer.align("e\u200b\u0301") == [Word("é", [0], [3])]  # what was deleted in between


def test_accents_that_go_leave_no_trace_of_composition_in_the_sources():
    assert BasicTokenizer(compat="hf-slow").align("e\u0301x") == [Word("ex", [0, 2], [1, 3])]


def test_a_kept_word_has_its_characters_as_sources():
    aligned = BasicTokenizer(never_split=["Éa"]).align(" É\u200ba É")
    assert aligned == [Word("Éa", [1, 3], [2, 4], kept=True), Word("e", [5], [6])]


# Length


@pytest.mark.slow
@pytest.mark.parametrize("mode", COMPAT)
def test_long_texts_without_a_space_take_no_quadratic_time(mode):
    generator = random.Random(1)
    n = 30_000
    texts = [
        "a" * n,
        "'" * n,
        "é" * n,
        "中" * n,
        "Σ" * n,
        "aΣ" + "'" * n,
        "a" + "\u0301" * n,
        "a" + "".join(generator.choices("\u0301\u0323\u302e\U0001d165", k=n)),
        "\u1100\u1161\u11a8" * (n // 3),
        "\u200b" * n,
    ]
    tokenizer = BasicTokenizer(compat=mode, never_split=["[MASK]"])
    began = time.process_time()
    for text in texts:
        assert [word.text for word in tokenizer.align(text)] == tokenizer.tokenize(text)
    assert time.process_time() - began < 30


def test_unicode_of_the_running_python_has_no_say(monkeypatch):
    def forbidden(*_):
        raise AssertionError("unicodedata was asked")

    with monkeypatch.context() as patch:  # pytest itself asks when it shows the result
        for name in ("category", "normalize", "combining"):
            patch.setattr(unicodedata, name, forbidden)
        found = words("É\u0301ΣΣ 中 q\u0307\u0323", compat="hf-slow")
    assert found == ["eσς", "中", "q"]
