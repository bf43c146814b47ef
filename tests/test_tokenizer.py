"""What WordPiece does to text, as in Google's `tokenization.py`, and what is said about bad input."""

import doctest
import json
import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from minibert.errors import InputError, RunError
from minibert.tokenizer import SPECIAL_TOKENS, BasicTokenizer, Tokenizer, learner, normalize, wordpiece
from minibert.tokenizer.normalize import is_ideograph, is_punctuation, split_at_whitespace

GOLDEN = json.loads((Path(__file__).parent / "golden" / "tokenizer.json").read_text(encoding="utf-8"))
PIECES = ["un", "want", "##want", "##ed", "wa", "##ing", "low", "lowest", "##er", ",", "!", "中"]
ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
# Text in which words repeat, grow accents, controls, separators and punctuation.
DENSE_TEXT = st.text(
    "abcAEéİΣς\u0301\u0345\u1fef\u037e中\uf900\x00\x0b\x1c\x85\ufffd\u200b \t\n\xa0\u2028,.'^$`-_"
)


@pytest.fixture
def tokenizer():
    return Tokenizer([*SPECIAL_TOKENS, *PIECES])


def words(text, **options):
    return BasicTokenizer(**options).tokenize(text)


@pytest.mark.parametrize("module", [normalize, wordpiece, learner])
def test_the_examples_in_docstrings_are_true(module):
    results = doctest.testmod(module)
    assert results.attempted > 0 and results.failed == 0


# Words


def test_lower_casing_strips_accents_and_splits_punctuation():
    assert words(" \tHeLLo!how  \n Are yoU?  ") == ["hello", "!", "how", "are", "you", "?"]
    assert words("H\u00e9llo, Ünï") == ["hello", ",", "uni"]
    assert words("İstanbul") == ["istanbul"]


def test_cased_words_keep_case_and_accents_even_decomposed_ones():
    assert words("HeLLo He\u0301llo Héllo", lower_case=False) == ["HeLLo", "He\u0301llo", "Héllo"]


def test_accents_can_be_kept_or_stripped_whatever_the_case():
    assert words("HÉ", strip_accents=False) == ["hé"]
    assert words("HÉ", lower_case=False, strip_accents=True) == ["HE"]


def test_final_sigma_is_lower_cased_as_python_does():
    assert words("ΟΔΟΣ ΣΑΣ.") == ["οδος", "σας", "."]


def test_chinese_characters_stand_alone_but_japanese_and_korean_words_do_not():
    assert words("ah\u535a\u63a8zz") == ["ah", "\u535a", "\u63a8", "zz"]
    assert words("ah\u535a\u63a8zz", chinese_characters=False) == ["ah\u535a\u63a8zz"]
    assert words("ひらがなカタカナ 한국", strip_accents=False) == ["ひらがなカタカナ", "한국"]


def test_ideograph_blocks_end_where_google_ends_them():
    inside = [
        0x4E00,
        0x9FFF,
        0x3400,
        0x4DBF,
        0x20000,
        0x2A6DF,
        0x2A700,
        0x2CEAF,
        0xF900,
        0xFAFF,
        0x2F800,
        0x2FA1F,
    ]
    outside = [
        0x33FF,
        0x4DC0,
        0x4DFF,
        0xA000,
        0x1FFFF,
        0x2A6E0,
        0x2A6FF,
        0x2CEB0,
        0xF8FF,
        0xFB00,
        0x2F7FF,
        0x2FA20,
    ]
    assert [is_ideograph(chr(code)) for code in inside + outside] == [True] * 12 + [False] * 12


def test_every_ascii_symbol_is_punctuation():
    marks = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    assert [c for c in map(chr, range(128)) if is_punctuation(c)] == sorted(marks)
    assert words("a^b$c`d~e_f") == ["a", "^", "b", "$", "c", "`", "d", "~", "e", "_", "f"]


def test_unicode_punctuation_splits_but_other_symbols_do_not():
    assert words("a—b…c«d»e¿f") == ["a", "—", "b", "…", "c", "«", "d", "»", "e", "¿", "f"]
    assert words("a€b ×2 10°") == ["a€b", "×2", "10°"]


def test_control_and_format_characters_vanish_and_join_what_they_stood_between():
    assert words("a\x00b\x07c\x0bd\x0ce\x1cf\x85g\x7fh\u200bi\u00adj\ufeffk\ufffdl") == ["abcdefghijkl"]


def test_tab_line_ends_spaces_and_separators_split():
    assert words("a\tb\nc\rd\xa0e\u2003f\u3000g\u2028h\u2029i") == list("abcdefghi")


def test_private_unassigned_and_surrogate_characters_stay():
    assert words("a\ue000b \u0378 \ud800") == ["a\ue000b", "\u0378", "\ud800"]


def test_marks_alone_leave_no_word():
    assert words("\u0301 \u0301\u0302 a") == ["a"]


def google_words(text, lower):
    """The published order of steps, one word and one character at a time."""
    cleaned = ""
    for c in text:
        category = unicodedata.category(c)
        if c in "\t\n\r" or category == "Zs":
            cleaned += " "
        elif c not in "\0\ufffd" and category not in ("Cc", "Cf"):
            cleaned += f" {c} " if is_ideograph(c) else c
    split = []
    for word in cleaned.split():
        if lower:
            word = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in word if unicodedata.category(c) != "Mn")
        split.append("".join(f" {c} " if is_punctuation(c) else c for c in word))
    return " ".join(split).split()


@given(ANY_TEXT | DENSE_TEXT, st.booleans())
def test_whole_text_at_once_equals_word_by_word(text, lower):
    assert words(text, lower_case=lower) == google_words(text, lower)


@given(DENSE_TEXT)
def test_chunks_between_spaces_tokenize_independently(text):
    assert [word for chunk in split_at_whitespace(text) for word in words(chunk)] == words(text)


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_each_character_is_dropped_joined_or_split_as_recorded(case):
    wrong = []
    for first, last, *behaviours in GOLDEN["characters"]:
        expected = behaviours[case == "cased"]
        for code in range(first, last + 1):
            split = words(f"a{chr(code)}b", lower_case=case == "uncased")
            found = "vanishes" if split == ["ab"] else ["joins", "splits", "alone"][len(split) - 1]
            # Hugging Face composes U+1FEF to a backquote before it looks for punctuation, Google does not.
            if found != expected and code != 0x1FEF:
                wrong.append((hex(code), expected, found))
    # Unicode refiles a handful of characters from version to version.
    assert len(wrong) <= (0 if unicodedata.unidata_version == GOLDEN["unicode"] else 40), wrong


# Pieces


def test_the_longest_piece_wins(tokenizer):
    assert tokenizer.tokenize("unwanted") == ["un", "##want", "##ed"]
    assert tokenizer.tokenize("lowest") == ["lowest"]
    assert tokenizer.tokenize("lower, WANT!") == ["low", "##er", ",", "want", "!"]


def test_greedy_matching_never_takes_a_step_back():
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "ab", "##bc"])
    assert tokenizer.tokenize("abc") == ["[UNK]"]  # "a ##bc" would do, but "ab" came first


def test_a_word_with_one_unknown_part_is_one_unknown(tokenizer):
    assert tokenizer.tokenize("unwantedX unwanted中x") == ["[UNK]", "un", "##want", "##ed", "中", "[UNK]"]


def test_a_word_of_201_characters_is_unknown():
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "##a"])
    assert tokenizer.tokenize("a" * 200) == ["a"] + ["##a"] * 199
    assert tokenizer.tokenize("a" * 201) == ["[UNK]"]
    assert Tokenizer(tokenizer.vocab, max_input_chars_per_word=3).tokenize("aaaa aaa")[0] == "[UNK]"


def test_empty_text_has_no_pieces(tokenizer):
    assert tokenizer.encode("") == tokenizer.encode(" \n\u200b") == []


def test_special_tokens_in_text_are_split_unless_asked_for(tokenizer):
    assert tokenizer.tokenize("want[MASK]!") == ["want", "[UNK]", "[UNK]", "[UNK]", "!"]
    assert tokenizer.tokenize("want[MASK]![SEP]", special=True) == ["want", "[MASK]", "!", "[SEP]"]
    assert tokenizer.tokenize("want [mask]", special=True)[1:] == ["[UNK]"] * 3


@given(ANY_TEXT | DENSE_TEXT)
def test_pieces_spell_their_word_or_are_unknown(text):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *"abcei,.'-", "##a", "##b", "##bc", "##e", "ab", "中"])
    expected = iter(words(text))
    spelled = None
    for piece in [*tokenizer.tokenize(text), None]:
        if piece is not None and piece.startswith("##"):
            spelled += piece[2:]
            continue
        if spelled is not None:
            assert spelled in (next(expected), "[UNK]")
        spelled = piece
    assert next(expected, None) is None


@given(st.lists(st.text("ab,", max_size=5), max_size=20))
def test_remembered_chunks_give_the_same_ids_when_the_memory_is_tiny(chunks):
    class Tiny(wordpiece._ChunkMemo):
        LIMIT, LONGEST = 3, 4

    forgetful, fresh = (Tokenizer([*SPECIAL_TOKENS, "a", "##a", "ab", "b", ","]) for _ in range(2))
    forgetful._chunk_ids = Tiny(forgetful._encode_chunk)
    for chunk in chunks:
        assert forgetful.encode(chunk) == fresh._encode_chunk(chunk)
        assert len(forgetful._chunk_ids) <= 3


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_pieces_of_many_scripts_are_as_recorded(case):
    tokenizer = Tokenizer(GOLDEN["vocab"], lower_case=case == "uncased")
    for record in GOLDEN["texts"]:
        assert " ".join(tokenizer.tokenize(record["text"])) == record[case], record["text"]


# Model input


def test_one_text_and_a_pair_get_their_special_tokens_and_segments(tokenizer):
    one = tokenizer("Lowest")
    assert one.tokens == ["[CLS]", "lowest", "[SEP]"]
    assert one.ids.dtype == np.int32 and one.token_type_ids.dtype == np.int32
    pair = tokenizer("lower", "want!")
    assert pair.tokens == ["[CLS]", "low", "##er", "[SEP]", "want", "!", "[SEP]"]
    assert pair.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert pair.ids.tolist() == [tokenizer.ids[token] for token in pair.tokens]
    assert tokenizer("", "").tokens == ["[CLS]", "[SEP]", "[SEP]"]


@given(st.integers(0, 12), st.none() | st.integers(0, 12), st.integers(3, 30))
def test_truncation_pops_from_the_longer_text(n_first, n_second, max_length):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "b"])
    first, second = ["a"] * n_first, None if n_second is None else ["b"] * n_second
    encoding = tokenizer(" ".join(first), None if second is None else " ".join(second), max_length=max_length)
    while len(first) + len(second or []) > max_length - (2 if second is None else 3):
        (first if second is None or len(first) > len(second) else second).pop()
    assert (encoding.tokens.count("a"), encoding.tokens.count("b")) == (len(first), len(second or []))
    assert len(encoding.ids) == len(encoding.token_type_ids) == len(encoding.tokens) <= max_length


def test_decode_joins_pieces_and_can_leave_out_special_tokens(tokenizer):
    ids = tokenizer("unwanted lower").ids
    assert tokenizer.decode(ids) == "[CLS] unwanted lower [SEP]"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "unwanted lower"
    assert tokenizer.decode([]) == ""


def test_the_attributes_that_the_data_pipeline_reads(tokenizer):
    assert tokenizer.vocab_size == len(tokenizer.vocab) == 5 + len(PIECES)
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    named = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    assert named == tokenizer.special_ids
    continuing = np.array(tokenizer.vocab)[tokenizer.continuation]
    assert continuing.tolist() == ["##want", "##ed", "##ing", "##er"]


def test_a_pickled_tokenizer_gives_the_same_ids(tokenizer):
    tokenizer.encode("unwanted lower")
    assert pickle.loads(pickle.dumps(tokenizer)).encode("lower unwanted") == tokenizer.encode(
        "lower unwanted"
    )


# Files


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lower_case": False},
        {"strip_accents": False, "chinese_characters": False, "max_input_chars_per_word": 7},
    ],
)
def test_a_saved_tokenizer_comes_back_with_its_options(tmp_path, options):
    saved = Tokenizer([*SPECIAL_TOKENS, *PIECES, "é", "É", "a", "##b"], **options)
    saved.save_pretrained(tmp_path / "run")
    loaded = Tokenizer.from_pretrained(tmp_path / "run")
    text = "É é abbbbbbbbb 中 ab a中 unwanted"
    assert loaded.vocab == saved.vocab
    assert loaded.tokenize(text) == saved.tokenize(text)
    assert Tokenizer.from_pretrained(tmp_path / "run", lower_case=True).lower_case


@pytest.mark.parametrize("end, mark", [("\n", ""), ("\r\n", ""), ("\r\n", "\ufeff")])
def test_vocabulary_files_from_any_system_are_read(tmp_path, end, mark):
    vocab = [*SPECIAL_TOKENS, "low", "\u2028", "\x85", "##er"]  # only a line feed ends a line
    (tmp_path / "vocab.txt").write_bytes((mark + end.join(vocab) + end).encode())
    assert Tokenizer.from_pretrained(tmp_path).vocab == vocab
    assert Tokenizer.from_pretrained(tmp_path / "vocab.txt").vocab == vocab


def test_a_folder_with_only_tokenizer_json_is_read(tmp_path):
    ids = {piece: i for i, piece in enumerate([*SPECIAL_TOKENS, "low"])}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece", "vocab": ids}}))
    assert Tokenizer.from_pretrained(tmp_path).vocab == [*SPECIAL_TOKENS, "low"]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {**ids, "er": 9}}}))
    with pytest.raises(InputError, match="leaves out or repeats an id"):
        Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": [["a", -1.5]]}}')
    with pytest.raises(InputError, match="no WordPiece vocabulary"):
        Tokenizer.from_pretrained(tmp_path)


# Bad input


@pytest.mark.parametrize(
    "vocab, sentence",
    [
        ([], "the vocabulary is empty"),
        ([*SPECIAL_TOKENS, "a", "b", "a"], "has 'a' twice, as id 5 and 7"),
        (["[PAD]", "[UNK]", "[SEP]", "a"], r"lacks \[CLS\] \[MASK\]"),
    ],
)
def test_a_vocabulary_that_cannot_serve_is_refused(tmp_path, vocab, sentence):
    with pytest.raises(InputError, match=sentence):
        Tokenizer(vocab)
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocab))
    with pytest.raises(InputError, match=f"vocab.txt: .*{sentence}"):
        Tokenizer.from_pretrained(tmp_path)


def test_missing_and_unreadable_files_are_named(tmp_path):
    with pytest.raises(InputError, match="has no vocab.txt"):
        Tokenizer.from_pretrained(tmp_path)
    with pytest.raises(InputError, match="nowhere.txt can't be read"):
        Tokenizer.from_pretrained(tmp_path / "nowhere.txt")
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(InputError, match="vocab.txt is not UTF-8 at byte 6"):
        Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL_TOKENS))
    for broken in ("{", "[]"):
        (tmp_path / "tokenizer_config.json").write_text(broken)
        with pytest.raises(InputError, match="tokenizer_config.json"):
            Tokenizer.from_pretrained(tmp_path)


def test_ids_outside_the_vocabulary_are_refused(tokenizer):
    for outside in (-1, tokenizer.vocab_size):
        with pytest.raises(InputError, match=f"id {outside} is outside the vocabulary"):
            tokenizer.decode([2, outside])


def test_a_length_without_room_for_special_tokens_is_refused(tokenizer):
    assert tokenizer("low", max_length=2).tokens == ["[CLS]", "[SEP]"]
    with pytest.raises(InputError, match="max_length=2 has no room"):
        tokenizer("low", "low", max_length=2)


def test_a_piece_with_a_line_end_is_not_saved(tmp_path):
    with pytest.raises(InputError, match="holds a line end"):
        Tokenizer([*SPECIAL_TOKENS, "a\nb"]).save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_is_not_left_without_its_options_when_the_disk_is_full(tmp_path, monkeypatch):
    real = wordpiece.atomic_text

    def full(path, text):
        if path.name == "tokenizer_config.json":
            raise RunError("no space left")
        real(path, text)

    monkeypatch.setattr(wordpiece, "atomic_text", full)
    with pytest.raises(RunError, match="no space left"):
        Tokenizer([*SPECIAL_TOKENS, "a"], lower_case=False).save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "texts, message", [((["a", "b"],), "text=.'a', 'b'. is not"), (("a", 3), "pair=3 is")]
)
def test_what_is_no_string_is_refused(texts, message):
    with pytest.raises(InputError, match=message):
        Tokenizer([*SPECIAL_TOKENS, "a"])(*texts)
