"""Words to pieces, and the `Tokenizer` object: what it gives, and what is said about bad input."""

import json
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st
from paths import GOLDEN as FOLDER

from minibert.base.errors import InputError
from minibert.tokenizer import SPECIAL_TOKENS, BasicTokenizer, Tokenizer, greedy, native
from minibert.tokenizer.added import AddedToken
from minibert.tokenizer.wordpiece import text_rules

GOLDEN = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
PIECES = ["un", "want", "##want", "##ed", "wa", "##ing", "low", "lowest", "##er", ",", "!", "中"]
ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
# Text in which words repeat, grow accents, controls, separators and punctuation.
DENSE_TEXT = st.text(
    "abcAEéİΣς\u0301\u0345\u1fef\u037e中\uf900\x00\x0b\x1c\x85\ufffd\u200b \t\n\xa0\u2028,.'^$`-_"
)


@pytest.fixture(
    params=["python", pytest.param("c", marks=pytest.mark.skipif(not native.available(), reason="no C core"))]
)
def core(request):
    return request.param


@pytest.fixture
def tokenizer(core):
    return Tokenizer([*SPECIAL_TOKENS, *PIECES], core=core)


# Pieces


def test_the_longest_piece_wins(tokenizer):
    assert tokenizer.tokenize("unwanted") == ["un", "##want", "##ed"]
    assert tokenizer.tokenize("lowest") == ["lowest"]
    assert tokenizer.tokenize("lower, WANT!") == ["low", "##er", ",", "want", "!"]


def test_greedy_matching_never_takes_a_step_back(core):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "ab", "##bc"], core=core)
    assert tokenizer.tokenize("abc") == ["[UNK]"]  # "a ##bc" would do, but "ab" came first


def test_a_word_with_one_unknown_part_is_one_unknown(tokenizer):
    assert tokenizer.tokenize("unwantedX unwanted中x") == ["[UNK]", "un", "##want", "##ed", "中", "[UNK]"]


def test_pieces_without_letters_are_never_found(core):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "", "##", "a", "#", "##a"], core=core)
    assert tokenizer.tokenize("aa ## b") == ["a", "##a", "#", "#", "[UNK]"]


@pytest.mark.parametrize("compat, limit", [("google", 200), ("hf-slow", 100), ("hf-fast", 100)])
def test_a_word_longer_than_its_limit_is_unknown(core, compat, limit):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "##a", "b"], compat=compat, core=core)
    assert tokenizer.max_input_chars_per_word == limit
    assert tokenizer.tokenize("a" * limit) == ["a"] + ["##a"] * (limit - 1)
    assert tokenizer.tokenize("a" * (limit + 1) + " b") == ["[UNK]", "b"]
    short = Tokenizer(tokenizer.vocab, max_input_chars_per_word=3, compat=compat, core=core)
    assert short.tokenize("aaaa aaa áaa") == ["[UNK]", *["a", "##a", "##a"] * 2]


def test_words_of_a_million_letters_and_long_lines_take_linear_time(core):
    n = 1_000_000 if core == "c" else 100_000
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "##a", "."], max_input_chars_per_word=n, core=core)
    assert tokenizer.encode("a" * n) == [2, 5] + [6] * (n - 1) + [3]
    assert tokenizer.encode("a" * (n + 1)) == [2, 1, 3]
    assert tokenizer.encode("." * n) == [2] + [7] * n + [3]


def test_a_sigma_after_a_kept_ideograph_begins_its_word(core):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "中", "σ", "ς"], never_split=["中"], core=core)
    assert tokenizer.tokenize("a中Σ") == ["a", "中", "σ"]


@pytest.mark.parametrize("compat", ["google", "hf-slow", "hf-fast"])
def test_a_word_that_is_never_split_is_its_own_piece_or_unknown(core, compat):
    vocab = [*SPECIAL_TOKENS, "a", "b", "##b", "##c", ".", "Ab", "A.b", "中"]
    tokenizer = Tokenizer(vocab, never_split=["Ab", "A.b", "bc", "中"], compat=compat, core=core)
    assert tokenizer.tokenize("Ab A.b bc 中") == ["Ab", "A.b", "[UNK]", "中"]
    assert tokenizer.tokenize("A\u200bb中Ab") == ["Ab", "中", "Ab"]  # spaces come after the cleaning
    assert tokenizer.tokenize("BC Ab. ab") == ["b", "##c", "a", "##b", ".", "a", "##b"]


def test_empty_text_has_no_pieces(tokenizer):
    assert tokenizer.tokenize("") == tokenizer.tokenize(" \n\u200b") == []
    assert tokenizer.encode("") == [2, 3]


def test_encode_adds_special_tokens_by_default(tokenizer):
    low = tokenizer.ids["low"]
    assert tokenizer.encode("low") == [2, low, 3] == tokenizer("low").ids.tolist()
    assert tokenizer.encode("low", add_special_tokens=False) == [low]


def test_special_tokens_in_text_stay_whole(tokenizer):
    assert tokenizer.tokenize("want[MASK]![SEP]") == ["want", "[MASK]", "!", "[SEP]"]
    assert tokenizer.tokenize("want [mask]")[1:] == ["[UNK]"] * 3
    assert tokenizer.tokenize("want[MASK]!", special=False) == ["want", "[UNK]", "[UNK]", "[UNK]", "!"]


def test_splitting_special_tokens_is_a_choice_of_the_tokenizer(core):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "[", "]", "mask"], split_special_tokens=True, core=core)
    letters = ["[", "mask", "]"]
    assert tokenizer.tokenize("[MASK]") == tokenizer("[MASK]").tokens[1:-1] == letters
    assert tokenizer.encode_batch(["[MASK]"], offsets=True)[0].tokens[1:-1] == letters
    assert tokenizer.tokenize("[MASK]", special=True) == ["[MASK]"]
    assert pickle.loads(pickle.dumps(tokenizer)).tokenize("[MASK]") == letters


def test_of_a_piece_that_comes_twice_the_last_id_counts(core):
    vocab = [*SPECIAL_TOKENS, "$", "the", "sea", "", "##s", "$", "", "##s", "[X]", "[X]"]
    tokenizer = Tokenizer(vocab, additional_special_tokens=["[X]"], never_split=["$"], core=core)
    assert tokenizer.encode("the seas $1 $ [X]", add_special_tokens=False) == [6, 7, 12, 10, 1, 10, 14]
    assert tokenizer.decode([5, 10]) == "$ $"
    assert (tokenizer.vocab, tokenizer.ids["$"], len(tokenizer)) == (vocab, 10, 15)
    assert tokenizer.unmatched == [5, 8, 9, 11, 13]


def test_of_two_special_tokens_the_longer_one_is_found(core):
    vocab = [*SPECIAL_TOKENS, "[A", "[A]", "<x>", "a", "]"]
    tokenizer = Tokenizer(vocab, additional_special_tokens=["[A", "[A]", "<x>"], core=core)
    assert tokenizer.tokenize("[A]a[Aa<x>", special=True) == ["[A]", "a", "[A", "a", "<x>"]
    assert tokenizer.tokenize("[A]a", special=False) == ["[UNK]", "a", "]", "a"]
    ids = tokenizer.encode("a <x> [SEP] a")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a a"


@given(ANY_TEXT | DENSE_TEXT)
def test_pieces_spell_their_word_or_are_unknown(text):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *"abcei,.'-", "##a", "##b", "##bc", "##e", "ab", "中"])
    expected = iter(BasicTokenizer().tokenize(text))
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
    class Tiny(greedy._ChunkMemo):
        LIMIT, LONGEST = 3, 4

    vocab = [*SPECIAL_TOKENS, "a", "##a", "ab", "b", ","]
    forgetful = Tokenizer(vocab, core="python")._core
    forgetful._chunk_ids = Tiny(forgetful._encode_chunk)
    for chunk in chunks:
        assert forgetful.encode(chunk, False) == forgetful._encode_chunk(chunk)
        assert len(forgetful._chunk_ids) <= 3


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_pieces_of_many_scripts_are_as_recorded(case, core):
    tokenizer = Tokenizer(GOLDEN["vocab"], lower_case=case == "uncased", core=core)
    for record in GOLDEN["texts"]:
        assert " ".join(tokenizer.tokenize(record["text"], special=False)) == record[case], record["text"]


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


def test_a_pickled_tokenizer_gives_the_same_ids_with_the_same_options(core):
    options = {
        "lower_case": False,
        "strip_accents": True,
        "tokenize_chinese_chars": False,
        "never_split": ("a.b",),
        "max_input_chars_per_word": 4,
        "compat": "hf-slow",
        "additional_special_tokens": ("!",),
        "added_tokens": {},
        "split_special_tokens": False,
    }
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *PIECES, "a.b"], core=core, **options)
    back = pickle.loads(pickle.dumps(tokenizer))
    assert back.core == core
    assert {**back._options(), "never_split": ("a.b",), "additional_special_tokens": ("!",)} == options
    text = "low!er a.b 中 中中 WANT"
    assert back.encode(text, special=True) == tokenizer.encode(text, special=True)
    assert back.vocab == tokenizer.vocab


def test_the_engine_is_c_where_it_is_built():
    assert Tokenizer(SPECIAL_TOKENS).core == ("c" if native.available() else "python")


def test_without_the_extension_python_does_the_work_and_c_is_refused(monkeypatch):
    monkeypatch.setattr(native, "load", lambda: None)
    monkeypatch.setattr(native, "available", lambda: False)
    assert Tokenizer([*SPECIAL_TOKENS, "a"]).encode("a") == [2, 5, 3]
    assert Tokenizer([*SPECIAL_TOKENS, "a"]).core == "python"
    with pytest.raises(InputError, match="core='c' needs the C core .* install a C compiler"):
        Tokenizer(SPECIAL_TOKENS, core="c")


# Bad input


@pytest.mark.parametrize(
    "vocab, sentence",
    [
        ([], "the vocabulary is empty; give one with one piece per line"),
        (["[PAD]", "[UNK]", "[SEP]", "a"], r"\[CLS\], \[MASK\] are missing"),
        ([*SPECIAL_TOKENS, 7], r"vocab\[5\]=7 is not a string"),
        ("a/b", "^Tokenizer.'a/b'. does not read a folder; use minibert.Tokenizer.from_pretrained"),
        ({"[PAD]": 0}, "vocab=.* is not a list of strings; give one, in order"),
        (set(SPECIAL_TOKENS), "vocab=.* is not a list of strings; give one, in order"),
    ],
)
def test_a_vocabulary_that_cannot_serve_is_refused(vocab, sentence):
    with pytest.raises(InputError, match=sentence):
        Tokenizer(vocab)


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"compat": "bert"}, "compat='bert' is unknown; choose one of google, hf-slow, hf-fast"),
        ({"core": "rust"}, "core='rust' is unknown; choose auto, c or python"),
        ({"never_split": "a"}, "never_split='a' is not a list of strings"),
        ({"never_split": [None]}, r"never_split\[0\]=None is not a string"),
        ({"max_input_chars_per_word": 0}, "max_input_chars_per_word=0 is not possible; .* at least 1"),
        ({"additional_special_tokens": ["[B]"]}, r"additional_special_tokens='\[B\]' is not a piece"),
        ({"additional_special_tokens": [""]}, "additional_special_tokens='' is empty"),
        ({"additional_special_tokens": [" "]}, "additional_special_tokens=' ' is empty"),
        ({"added_tokens": {5: AddedToken("b")}}, "id 5 is that of 'a' of the vocabulary and the added token"),
        ({"added_tokens": {99: AddedToken("b")}}, "added token 'b' has id 99; expected one after the 7"),
        ({"additional_special_tokens": {"[B]"}}, "additional_special_tokens=.* is not a list .* in order"),
    ],
)
def test_options_that_cannot_be_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        Tokenizer([*SPECIAL_TOKENS, "a", ""], **options)


def test_ids_outside_the_vocabulary_are_refused(tokenizer):
    for outside in (-1, tokenizer.vocab_size):
        with pytest.raises(InputError, match=f"id {outside} is outside the vocabulary"):
            tokenizer.decode([2, outside])


@pytest.mark.parametrize("ids", ["ab", b"ab", 5, [1.7], ["a"], np.array(5), np.zeros((2, 2), np.int32)])
def test_what_is_no_list_of_ids_is_refused(tokenizer, ids):
    with pytest.raises(InputError, match="(?s)ids=.* is not a list of ids.*; give whole numbers"):
        tokenizer.decode(ids)


def test_a_length_without_room_for_special_tokens_is_refused(tokenizer):
    assert tokenizer("low", max_length=2).tokens == ["[CLS]", "[SEP]"]
    with pytest.raises(InputError, match="max_length=2 has no room"):
        tokenizer("low", "low", max_length=2)


@pytest.mark.parametrize(
    "texts, message",
    [
        ((b"a",), "text=b'a' is not a string; encode_batch reads bytes"),
        ((None,), "text=None is not a string"),
        (("a", 3), "pair=3 is not a string"),
    ],
)
def test_what_is_no_string_is_refused(tokenizer, texts, message):
    with pytest.raises(InputError, match=message):
        tokenizer(*texts)
    if len(texts) == 1:
        for method in (tokenizer.encode, tokenizer.tokenize):
            with pytest.raises(InputError, match=message):
                method(*texts)


@pytest.mark.parametrize(
    "texts, message",
    [
        (["a", 3], "Text 1 is 3, of type int; give texts that are all str"),
        ([("a", "b"), "c"], r"text\[1\]='c' is not a pair of texts; give tuples of two"),
        ([("a", "b", "c")], r"text\[0\]=.* is not a pair of texts"),
        (("a", "b"), "text is a tuple of two strings; give a list of texts, or the second as `pair`"),
    ],
)
def test_a_list_that_is_not_of_texts_or_of_pairs_is_refused(tokenizer, texts, message):
    with pytest.raises(InputError, match=message):
        tokenizer(texts)


@pytest.mark.parametrize("pair", [5, np.array(["b"]), iter(["b"]), b"b"], ids=lambda one: type(one).__name__)
def test_what_is_no_list_of_second_texts_is_refused(tokenizer, pair):
    with pytest.raises(InputError, match="^pair"):
        tokenizer(["a"], pair)


def test_a_list_of_texts_or_pairs_is_encoded_as_a_batch(tokenizer):
    batch = tokenizer(["low", "lower low"])
    assert [encoding.ids.tolist() for encoding in batch] == [
        tokenizer(text).ids.tolist() for text in ("low", "lower low")
    ]
    pairs = tokenizer([("low", "lower"), ("low low", "low")])
    assert pairs[1].ids.tolist() == tokenizer("low low", "low").ids.tolist()
    assert pairs.ids.tolist() == tokenizer(["low", "low low"], ["lower", "low"]).ids.tolist()
    again = pickle.loads(pickle.dumps(batch))
    for one in (batch, again):  # a row for each, filled up with [PAD], as models that pad want it
        for row, mask, encoding in zip(one.input_ids, one.attention_mask, batch, strict=True):
            n = len(encoding)
            assert row[:n].tolist() == encoding.input_ids.tolist() == encoding.ids.tolist()
            assert set(row[n:].tolist()) <= {tokenizer.pad_id}
            assert mask.tolist() == n * [1] + (len(mask) - n) * [0]
            assert encoding.attention_mask.tolist() == n * [1]


def test_a_tokenizer_says_what_it_is(tokenizer):
    assert len(tokenizer) == tokenizer.vocab_size
    assert (tokenizer.mask_token, tokenizer.mask_token_id) == ("[MASK]", tokenizer.ids["[MASK]"])
    assert repr(tokenizer) == f"Tokenizer({len(tokenizer)} pieces, lower-cased)"


def test_a_special_token_in_a_text_is_one_in_a_call_too(tokenizer):
    with warnings.catch_warnings(action="error"):
        for texts in ("low [MASK]", ["low", "[MASK] low"]):
            assert tokenizer.mask_id in tokenizer(texts).ids
            assert tokenizer.mask_id not in tokenizer(texts, special=False).ids


# Added tokens


@pytest.mark.parametrize(
    "text, pieces",
    [
        ("lowOWEr", ["low", "OWE", "[UNK]"]),
        ("Ówe low", ["OWE", "low"]),
        ("owe\u0301owe", ["OWE", "OWE"]),
        ("«X» «x»low", ["[UNK]", "[UNK]", "[UNK]", "«x»", "low"]),
        ("lowly low-ly", ["low", "##ly", "low", "[UNK]", "ly"]),
        ("[MASK]ly [MASK]", ["[MASK]", "ly", "[MASK]"]),
        ("aNEW  YORKb", ["[UNK]", "[UNK]"]),
        ("aNEW\tYORKb", ["[UNK]", "new york", "[UNK]"]),
    ],
)
def test_added_tokens_are_found_before_words(core, text, pieces):
    added = {
        9: AddedToken("OWE"),
        10: AddedToken("«x»", special=True, normalized=False),
        11: AddedToken("ly", single_word=True),
        12: AddedToken("new york"),
    }
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "low", "##er", "!", "##ly"], added_tokens=added, core=core)
    assert tokenizer.tokenize(text) == pieces
    found = tokenizer.encode_batch([text, "", text], offsets=True)
    for one in (found[0], found[2], tokenizer.encode_batch([text.encode()], offsets=True)[0]):
        assert one.tokens == ["[CLS]", *pieces, "[SEP]"]
        assert one.offsets.tolist() == tokenizer(text).offsets.tolist()
    assert found[1].tokens == ["[CLS]", "[SEP]"]
    begins, ends = found[0].offsets[1:-1].T
    assert (begins[1:] >= ends[:-1]).all() and (begins < ends).all() and ends[-1] == len(text)
    assert set(np.diff(found[0].word_ids[1:-1], prepend=-1).tolist()) <= {0, 1}


def test_added_tokens_that_are_special_can_be_split(core):
    added = {6: AddedToken("<é>", special=True, normalized=False), 7: AddedToken("x")}
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "é"], strip_accents=False, added_tokens=added, core=core)
    assert tokenizer.tokenize("<é>x") == ["<é>", "x"]
    assert tokenizer.tokenize("<é>x", special=False) == ["[UNK]", "é", "[UNK]", "x"]
    assert tokenizer.decode([6, 7, 5], skip_special_tokens=True) == "x é"
    back = pickle.loads(pickle.dumps(tokenizer))
    assert (back.vocab, back.tokenize("x<é>")) == (tokenizer.vocab, ["x", "<é>"])


def test_an_argument_of_transformers_is_told_before_the_folder_is_read():
    with pytest.raises(TypeError) as raised:
        Tokenizer.from_pretrained("nowhere", core="python", do_lower_case=False)
    call = "Tokenizer.from_pretrained()"
    assert str(raised.value) == f"{call} has no argument 'do_lower_case'; did you mean lower_case?"


@pytest.mark.parametrize(
    ("switch", "expected"),
    [
        ("cased", {"lower_case": False, "strip_accents": False}),
        ("keep_accents", {"strip_accents": False}),
        ("segmented", {"tokenize_chinese_chars": False}),
    ],
)
def test_each_switch_for_splitting_text_gives_its_arguments(switch, expected):
    assert text_rules() == {}
    assert text_rules(**{switch: True}) == expected
