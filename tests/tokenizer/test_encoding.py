"""What a batch of texts becomes: sequences, cuts, windows, places in the text; and that cores agree."""

import pickle
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from marks import examples, seldom

from minibert.base.errors import InputError
from minibert.tokenizer import COMPAT, SPECIAL_TOKENS, TRUNCATION, Tokenizer, encoding, native

needs_c = pytest.mark.skipif(not native.available(), reason="the C core is not built")
CORES = ["python", pytest.param("c", marks=needs_c)]
WORDS = [f"w{number}" for number in range(40)]  # each of them one piece
LETTERS = [
    *"abceiy,.'-中韓",
    "##a",
    "##b",
    "##bc",
    "##e",
    "ab",
    "##σ",
    "##ς",
    "σ",
    "ο",
    "##\u1100",
    "\u1100",
    "[a",
    "[ab",
    "$",
]
ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
# Text in which words repeat, grow accents, controls, separators and punctuation.
DENSE_TEXT = st.text(
    "abcABeEéİΣσςο\u0301\u0345\u1fef\u037e中韓가\uf900\U0002b820\ue000\u0378\ud800\x00\x0b\x1c\x85\ufffd\u200b"
    " \t\n\xa0\u2028,.'^$`-_[]MASK"
)
TEXT = ANY_TEXT | DENSE_TEXT
RULES = st.fixed_dictionaries(
    {
        "lower_case": st.booleans(),
        "strip_accents": st.none() | st.booleans(),
        "tokenize_chinese_chars": st.booleans(),
        "compat": st.sampled_from(COMPAT),
        "never_split": st.sampled_from([(), ("ab", "a-b", "AB", "中", "Σ", "[MASK]")]),
        "max_input_chars_per_word": st.none() | st.integers(1, 4),
        "additional_special_tokens": st.sampled_from([(), ("[a", "[ab", "$"), ("##bc",)]),
    }
)


@pytest.fixture(params=CORES)
def core(request):
    return request.param


@pytest.fixture
def numbered(core):
    return Tokenizer([*SPECIAL_TOKENS, *WORDS], core=core)


def listed(batch):
    """Everything in a batch, as lists."""
    return {
        "ids": batch.ids.tolist(),
        "cu_seqlens": batch.cu_seqlens.tolist(),
        "token_type_ids": batch.token_type_ids.tolist(),
        "offsets": batch.offsets.tolist(),
        "word_ids": batch.word_ids.tolist(),
        "special_tokens_mask": batch.special_tokens_mask.tolist(),
        "source": batch.source.tolist(),
        "n_cut": batch.n_cut.tolist(),
        "n_invalid": batch.n_invalid,
    }


# Sequences


def test_texts_lie_end_to_end_with_their_special_tokens(numbered):
    batch = numbered.encode_batch(["w1 w2", "", "w3"], offsets=True)
    assert [sequence.tokens for sequence in batch] == [
        ["[CLS]", "w1", "w2", "[SEP]"],
        ["[CLS]", "[SEP]"],
        ["[CLS]", "w3", "[SEP]"],
    ]
    assert batch.cu_seqlens.tolist() == [0, 4, 6, 9]
    assert batch.source.tolist() == [0, 1, 2]
    assert batch.word_ids.tolist() == [-1, 0, 1, -1, -1, -1, -1, 0, -1]
    assert batch.offsets.tolist() == [[0, 0], [0, 2], [3, 5], *[[0, 0]] * 4, [0, 2], [0, 0]]
    assert batch.special_tokens_mask.tolist() == [True, False, False, True, True, True, True, False, True]
    assert not batch.token_type_ids.any()


def test_pairs_are_two_segments_with_offsets_into_their_own_texts(numbered):
    batch = numbered.encode_batch(["w1", "w2 w3"], ["w4 w5", ""], offsets=True)
    assert [sequence.tokens for sequence in batch] == [
        ["[CLS]", "w1", "[SEP]", "w4", "w5", "[SEP]"],
        ["[CLS]", "w2", "w3", "[SEP]", "[SEP]"],
    ]
    assert batch.token_type_ids.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1]
    assert batch[0].offsets.tolist() == [[0, 0], [0, 2], [0, 0], [0, 2], [3, 5], [0, 0]]
    assert batch[1].word_ids.tolist() == [-1, 0, 1, -1, -1]
    assert batch[-1].special_tokens_mask.tolist() == [True, False, False, True, True]


def test_arrays_have_the_types_of_a_model_batch(numbered):
    batch = numbered.encode_batch(["w1"], ["w2"], offsets=True)
    for name in ("ids", "cu_seqlens", "token_type_ids", "offsets", "word_ids"):
        assert getattr(batch, name).dtype == getattr(batch[0], name, batch.ids).dtype == np.int32, name
    assert batch.special_tokens_mask.dtype == batch[0].special_tokens_mask.dtype == bool


def test_without_special_tokens_there_are_only_pieces(numbered):
    batch = numbered.encode_batch(["w1 w2", ""], ["w3", "w4"], add_special_tokens=False)
    assert [sequence.tokens for sequence in batch] == [["w1", "w2", "w3"], ["w4"]]
    assert batch.token_type_ids.tolist() == [0, 0, 1, 1]
    assert not batch.special_tokens_mask.any()
    assert numbered("w1 w2", "w3", add_special_tokens=False).token_type_ids.tolist() == [0, 0, 1]


def test_no_texts_are_no_sequences(numbered):
    for pairs in (None, []):
        batch = numbered.encode_batch([], pairs, max_length=5, offsets=True)
        assert len(batch) == len(list(batch)) == len(batch.ids) == 0
        assert batch.cu_seqlens.tolist() == [0] and batch.offsets.shape == (0, 2)


def test_any_iterable_of_texts_will_do(numbered):
    batch = numbered.encode_batch((f"w{i}" for i in range(3)), pairs=("w7", "w8", "w9"))
    assert batch.ids.tolist() == numbered.encode_batch(["w0", "w1", "w2"], ["w7", "w8", "w9"]).ids.tolist()


def test_a_sequence_is_counted_from_either_end_and_nowhere_else(numbered):
    batch = numbered.encode_batch(["w1", "w2"])
    assert batch[-2].tokens == batch[0].tokens == ["[CLS]", "w1", "[SEP]"]
    for number in (2, -3):
        with pytest.raises(IndexError, match=f"number={number} is not one of the 2 sequences"):
            batch[number]


# Cuts and windows


def popped(first, second, room, truncation, odd_to_longer):
    """What is left of two lists when one item after the other is popped until they fit."""
    first, second = list(first), list(second)
    first_keeps_odd = not odd_to_longer or len(first) > len(second)
    while len(first) + len(second) > room:
        if truncation == "longest_first":
            tie = len(first) == len(second) and not first_keeps_odd
            (first if len(first) > len(second) or tie else second).pop()
        else:
            (first if truncation == "only_first" else second).pop()
    return first, second


def windows(words, size, stride):
    """Slices of at most `size` words, each beginning with `stride` words of the one before."""
    begin, found = 0, [words[:size]]
    while begin + size < len(words):
        begin += size - stride
        found.append(words[begin : begin + size])
    return found


def by_hand(first, second, max_length, truncation, stride, wrapped, odd_to_longer):
    """The sequences of one text or pair as tokens and segments, in plain Python; None where nothing fits."""
    room = max_length - wrapped * (2 if second is None else 3)
    target = (second if truncation == "only_second" else first) or []
    total = len(first) + len(second or [])
    if truncation != "longest_first" and total - len(target) > room and total > room:
        return None
    kept_first, kept_second = popped(first, second or [], room, truncation, odd_to_longer)
    kept = kept_second if truncation == "only_second" else kept_first
    if truncation != "longest_first" and target and not kept and room:
        return None
    versions = [(kept_first, kept_second)]
    if stride is not None:
        if len(kept) < len(target) and len(kept) <= stride:
            return None
        parts = windows(target, len(kept), stride) if len(kept) < len(target) else [target]
        versions = [(first, p) if truncation == "only_second" else (p, kept_second) for p in parts]
    cls, sep = (["[CLS]"], ["[SEP]"]) if wrapped else ([], [])
    made = []
    for a, b in versions:
        tokens, n_first = cls + a + sep, len(cls + a + sep)
        if second is not None:
            tokens += b + sep
        made.append((tokens, [0] * n_first + [1] * (len(tokens) - n_first)))
    return made


SOME_WORDS = st.lists(st.sampled_from(WORDS), max_size=14)


@given(
    st.lists(st.tuples(SOME_WORDS, SOME_WORDS), min_size=1, max_size=5),
    st.booleans(),
    st.integers(3, 24),
    st.sampled_from(TRUNCATION),
    st.none() | st.integers(0, 5),
    st.booleans(),
    st.sampled_from(["google", "hf-fast"]),
)
def test_cuts_and_windows_are_those_made_by_hand(
    texts, pairs, max_length, truncation, stride, wrapped, compat
):
    if (truncation == "only_second" and not pairs) or (truncation == "longest_first" and pairs):
        stride = None
    truncation = "only_first" if truncation == "only_second" and not pairs else truncation
    if stride is not None and stride >= max_length - wrapped * (3 if pairs else 2):
        stride = None
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *WORDS], compat=compat)
    expected = [
        by_hand(
            first, second if pairs else None, max_length, truncation, stride, wrapped, compat == "hf-fast"
        )
        for first, second in texts
    ]

    def encode():
        return tokenizer.encode_batch(
            [" ".join(first) for first, _ in texts],
            [" ".join(second) for _, second in texts] if pairs else None,
            max_length=max_length,
            truncation=truncation,
            stride=stride,
            offsets=True,
            add_special_tokens=wrapped,
        )

    if None in expected:
        with pytest.raises(
            InputError, match=f"pair {expected.index(None)} does not fit max_length={max_length}"
        ):
            encode()
        return
    batch = encode()
    sequences = list(batch)
    assert [(s.tokens, s.token_type_ids.tolist()) for s in sequences] == list(chain.from_iterable(expected))
    assert batch.source.tolist() == [i for i, made in enumerate(expected) for _ in made]
    assert batch.token_type_ids.tolist() == [i for s in sequences for i in s.token_type_ids.tolist()]
    assert batch.special_tokens_mask.tolist() == [
        i for s in sequences for i in s.special_tokens_mask.tolist()
    ]
    whole = [len(first) + (len(second) if pairs else 0) for first, second in texts]
    kept = [int((~sequence.special_tokens_mask).sum()) for sequence in sequences]
    assert batch.n_cut.tolist() == [
        0 if stride is not None else whole[source] - n for source, n in zip(batch.source, kept, strict=True)
    ]
    for sequence, source in zip(sequences, batch.source, strict=True):
        rows = zip(
            sequence.tokens,
            sequence.token_type_ids,
            sequence.offsets.tolist(),
            sequence.word_ids.tolist(),
            sequence.special_tokens_mask.tolist(),
            strict=True,
        )
        for token, segment, (begin, end), word, special in rows:
            assert special == (token in SPECIAL_TOKENS) == (word == -1)
            words = texts[source][segment]
            assert " ".join(words)[begin:end] == ("" if special else token)
            assert special or words[word] == token


def test_the_odd_piece_stays_with_the_text_of_the_mode():
    first, second = "w1 w2 w3 w4", "w5 w6 w7 w8 w9"
    vocab = [*SPECIAL_TOKENS, *WORDS]
    google = Tokenizer(vocab)(first, second, 8)
    assert google.tokens == ["[CLS]", "w1", "w2", "w3", "[SEP]", "w5", "w6", "[SEP]"]
    fast = Tokenizer(vocab, compat="hf-fast")(first, second, 8)
    assert fast.tokens == ["[CLS]", "w1", "w2", "[SEP]", "w5", "w6", "w7", "[SEP]"]


def test_texts_that_fit_are_not_copied(numbered):
    batch = numbered.encode_batch(["w1 w2"] * 3, max_length=4, stride=1)
    assert batch.source.tolist() == [0, 1, 2]
    fitting = encoding.lay_out(
        native.Encoded(batch.ids, np.array([0, 4, 8, 12]), None, 0),
        False,
        True,
        encoding.Limit(4),
        numbered.vocab,
    )
    assert fitting.ids is batch.ids


# One encoding


@given(TEXT, st.none() | TEXT, st.none() | st.integers(3, 9), st.booleans(), st.booleans())
def test_one_encoding_is_the_batch_of_its_text(text, pair, max_length, special, wrapped):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *LETTERS])
    options = {"max_length": max_length, "special": special, "add_special_tokens": wrapped}
    one = tokenizer(text, pair, **options)
    batch = tokenizer.encode_batch([text], None if pair is None else [pair], offsets=True, **options)
    for name in ("ids", "token_type_ids", "offsets", "word_ids", "special_tokens_mask"):
        np.testing.assert_array_equal(getattr(one, name), getattr(batch, name), err_msg=name)
        np.testing.assert_array_equal(getattr(one, name), getattr(batch[0], name), err_msg=name)
    assert one.tokens == batch[0].tokens == [tokenizer.vocab[i] for i in one.ids]


@given(TEXT)
def test_a_batch_has_the_pieces_that_encode_gives(text):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *LETTERS])
    for special in (False, True):
        batch = tokenizer.encode_batch([text, "ab", text], special=special, add_special_tokens=False)
        alone = tokenizer.encode(text, special=special, add_special_tokens=False)
        assert batch[2].ids.tolist() == batch[0].ids.tolist() == alone


def test_a_pickled_encoding_is_whole_and_small(numbered):
    for kind in (numbered("w1 w2", "w3"), numbered("w1 w2 w3 w4", "w5", 6), numbered.encode_batch(["w1"])[0]):
        data = pickle.dumps(kind)
        assert len(data) < 2000  # no vocabulary in it
        back = pickle.loads(data)
        assert back.tokens == kind.tokens and back.ids.tolist() == kind.ids.tolist()
        assert back.token_type_ids.tolist() == kind.token_type_ids.tolist()
    assert pickle.loads(pickle.dumps(numbered("w1 w2"))).offsets.tolist() == [[0, 0], [0, 2], [3, 5], [0, 0]]


def test_a_pickled_batch_is_whole(numbered):
    batch = numbered.encode_batch(["w1 w2 w3", "w4"], ["w5", "w6"], max_length=6, offsets=True)
    back = pickle.loads(pickle.dumps(batch))
    assert listed(back) == listed(batch)
    assert back[0].tokens == batch[0].tokens == ["[CLS]", "w1", "w2", "[SEP]", "w5", "[SEP]"]


def test_encodings_show_themselves(numbered):
    assert repr(numbered("w1", "w2")) == "Encoding([CLS] w1 [SEP] w2 [SEP])"
    assert len(numbered("w1", "w2")) == 5
    assert repr(numbered.encode_batch(["w1", "w2"])) == "BatchEncoding(2 sequences, 6 ids)"


@pytest.mark.parametrize("pairs", [None, ["w3", "w4 w5"]])
def test_encodings_are_read_by_hugging_face_names(numbered, pairs):
    batch = numbered(["w1 w2", "w3"], pairs)
    assert batch["input_ids"].tolist() == batch.input_ids.tolist() == np.array(batch).tolist()
    assert batch["attention_mask"].tolist() == batch.attention_mask.tolist()
    rows = batch["token_type_ids"]
    assert rows.shape == batch["input_ids"].shape
    for row, one in zip(rows, batch, strict=True):
        assert row.tolist() == one["token_type_ids"].tolist() + [0] * (len(row) - len(one))
        assert one["input_ids"].tolist() == one.ids.tolist() == np.array(one).tolist()
    assert list(dict(batch)) == list(dict(batch[0])) == ["input_ids", "token_type_ids", "attention_mask"]
    for one in (batch, batch[0], numbered("w1")):
        with pytest.raises(InputError, match="'labels' is not what a tokenizer returns; ask for input_ids"):
            one["labels"]


@pytest.mark.parametrize("pairs", [None, ["w3", "w4 w5"]])
def test_encodings_are_gone_through_as_a_mapping(numbered, pairs):
    batch = numbered(["w1 w2", "w3"], pairs)
    names = ["input_ids", "token_type_ids", "attention_mask"]
    for one in (batch, batch[0], numbered("w1")):
        found = {name: values.tolist() for name, values in one.items()}
        assert list(found) == list(one.keys()) == names
        assert [found[name] for name in names] == [one[name].tolist() for name in names]
        assert [values.tolist() for values in one.values()] == [*found.values()]
        assert one.get("input_ids").tolist() == one["input_ids"].tolist()
        assert one.get("labels") is None and one.get("labels", 3) == 3
        assert all(name in one for name in names) and "labels" not in one and 0 not in one


def test_a_slice_of_a_batch_is_a_list_of_its_sequences(numbered):
    batch = numbered(["w1", "w2 w3", "w4"])
    for part in (slice(0, 1), slice(1, None), slice(None, None, -1), slice(5, 9)):
        expected = [one.tokens for one in list(batch)[part]]
        assert [one.tokens for one in batch[part]] == expected
    assert batch[np.int64(1)].tokens == batch[1].tokens
    told = "is not the number of a sequence; give a whole number, a slice, or one of input_ids, token"
    for number in (1.0, None, (0, 1)):
        with pytest.raises(InputError, match=told):
            batch[number]
    with pytest.raises(InputError, match=r"slice\(0, 1, None\) is not what a tokenizer returns; ask"):
        batch[0][0:1]


# Places in the text


def test_offsets_point_at_what_a_piece_was_made_of(core):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "naive", "i", "##stan", ",", "中", "ab", "##c"], core=core)
    text = "  NA\u0308I\u0308VE,\u200b İstan中x a\u0301b\x00c 中"
    found = tokenizer(text)
    spans = [text[begin:end] for begin, end in found.offsets[1:-1].tolist()]
    assert found.tokens[1:-1] == ["naive", ",", "i", "##stan", "中", "[UNK]", "ab", "##c", "中"]
    assert spans == ["NA\u0308I\u0308VE", ",", "İ", "stan", "中", "x", "a\u0301b", "c", "中"]
    assert found.word_ids[1:-1].tolist() == [0, 1, 2, 2, 3, 4, 5, 5, 6]


def test_offsets_of_special_tokens_in_the_text_are_their_own(core):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "b"], core=core)
    found = tokenizer("a [MASK]b[SEP]", special=True)
    assert found.tokens == ["[CLS]", "a", "[MASK]", "b", "[SEP]", "[SEP]"]
    assert found.offsets.tolist() == [[0, 0], [0, 1], [2, 8], [8, 9], [9, 14], [0, 0]]
    assert found.word_ids.tolist() == [-1, 0, 1, 2, 3, -1]
    assert found.special_tokens_mask.tolist() == [True, *[False] * 4, True]


def test_offsets_count_code_points_not_bytes(core):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a"], core=core)
    assert tokenizer("\U0001f600 é ü a").offsets[-2].tolist() == [6, 7]


@given(st.text("abcABC ,.-", max_size=30))
def test_offsets_spell_their_pieces(text):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *"abc,.-", *(f"##{letter}" for letter in "abc"), "ab", "##bc"])
    found = tokenizer.encode_batch([text], offsets=True, add_special_tokens=False)[0]
    spelled = [text[begin:end].lower() for begin, end in found.offsets.tolist()]
    assert spelled == [token.removeprefix("##") for token in found.tokens]


@given(RULES, TEXT)
def test_offsets_and_word_numbers_never_step_back(rules, text):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *LETTERS], **rules)
    found = tokenizer.encode_batch([text], offsets=True, special=True, add_special_tokens=False)
    begins, ends = found.offsets.T
    assert (np.diff(begins) >= 0).all() and (np.diff(ends) >= 0).all()
    assert (begins < ends).all() and (ends <= len(text)).all()
    assert set(np.diff(found.word_ids, prepend=-1).tolist()) <= {0, 1}


# Engines


@needs_c
@settings(max_examples=examples(300))
@given(RULES, st.lists(TEXT, max_size=4), st.booleans(), st.booleans())
def test_both_engines_give_the_same(rules, texts, special, wrapped):
    c, python = (Tokenizer([*SPECIAL_TOKENS, *LETTERS], core=name, **rules) for name in ("c", "python"))
    options = {"special": special, "offsets": True, "add_special_tokens": wrapped}
    assert listed(c.encode_batch(texts, **options)) == listed(python.encode_batch(texts, **options))
    assert [c.encode(text, special=special) for text in texts] == [
        python.encode(text, special=special) for text in texts
    ]


@needs_c
@given(
    RULES, st.lists(st.binary() | TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")), max_size=4)
)
def test_both_engines_read_the_same_bytes(rules, texts):
    c, python = (Tokenizer([*SPECIAL_TOKENS, *LETTERS], core=name, **rules) for name in ("c", "python"))
    assert listed(c.encode_batch(texts, offsets=True)) == listed(python.encode_batch(texts, offsets=True))


@pytest.mark.thorough
@needs_c
@pytest.mark.parametrize("threads", seldom([1, 2, 3, None], 2))
def test_threads_change_nothing(threads):
    c, python = (Tokenizer([*SPECIAL_TOKENS, *WORDS], core=name) for name in ("c", "python"))
    texts = [" ".join(WORDS[: i % 40]) for i in range(3000)]
    options = {"max_length": 20, "truncation": "only_first", "stride": 3, "offsets": True}
    found = c.encode_batch(texts, ["w1 w2"] * 3000, threads=threads, **options)
    assert listed(found) == listed(python.encode_batch(texts, ["w1 w2"] * 3000, **options))


def test_invalid_bytes_are_replaced_and_counted(core):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a", "b", "##b", "é"], strip_accents=False, core=core)
    batch = tokenizer.encode_batch(
        [b"a\xffb \xc3", "é".encode(), b"\xed\xa0\x80", "\ufffd".encode()], offsets=True
    )
    assert [sequence.tokens[1:-1] for sequence in batch] == [["a", "##b"], ["é"], [], []]
    assert batch.n_invalid == 5  # one, one, and a surrogate in three bytes
    assert batch[0].offsets.tolist() == [[0, 0], [0, 1], [2, 3], [0, 0]]
    assert tokenizer.encode_batch(["\ud800 a"]).n_invalid == 0  # a character, if not one that is UTF-8


@pytest.mark.parametrize("compat", COMPAT)
def test_invalid_bytes_in_words_that_are_not_split_count_too(core, compat):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "a-b"], never_split=["a-b"], compat=compat, core=core)
    batch = tokenizer.encode_batch([b" a\xff-\xc3b\xfe a-b"], offsets=True, add_special_tokens=False)
    assert batch[0].tokens == ["a-b", "a-b"]
    assert batch.offsets.tolist() == [[1, 6], [8, 11]]
    assert batch.n_invalid == 3


# What is refused


@pytest.mark.parametrize(
    "texts, options, sentence",
    [
        ("w1", {}, "texts='w1' is one text; give a list"),
        (b"w1", {}, "texts=b'w1' is one text"),
        (7, {}, "texts=7 is not a list of texts"),
        (["w1", None], {}, "Text 1 is None, of type NoneType; give texts that are all str or all bytes"),
        ([["w1"]], {}, r"Text 0 is \['w1'\], of type list"),
        (["w1", b"w1"], {}, "Text 1 is b'w1', of type bytes"),
        (["w1"], {"pairs": "w1"}, "pairs='w1' is one text"),
        (["w1"], {"pairs": [None]}, "Second text 0 is None, of type NoneType"),
        (["w1"], {"pairs": [b"w1"]}, "texts are str and pairs bytes; give the same"),
        (["w1"], {"pairs": []}, "1 texts come with 0 pairs"),
        (["w1"], {"max_length": 1}, "max_length=1 has no room for special tokens; give at least 2"),
        (["w1"], {"max_length": 2, "pairs": ["w1"]}, "max_length=2 has no room .* at least 3"),
        (["w1"], {"max_length": -1, "add_special_tokens": False}, "max_length=-1 is not possible"),
        (["w1"], {"max_length": 7.5}, "max_length=7.5 is not possible; give a whole number"),
        (["w1"], {"truncation": "first"}, "truncation='first' is unknown; choose one of longest_first, only"),
        (["w1"], {"truncation": "only_second"}, "truncation='only_second' needs pairs"),
        (["w1"], {"stride": 1}, "stride=1 makes windows of an unknown length; .*such as max_length=128"),
        (["w1"], {"stride": -1, "max_length": 9}, "stride=-1 is not possible"),
        (
            ["w1"],
            {"stride": 7, "max_length": 9},
            "stride=7 is not less than the 7 pieces that a window has room for",
        ),
        (["w1"], {"stride": 1, "max_length": 9, "pairs": ["w1"]}, "stride=1 makes windows of one text"),
        (["w1"], {"threads": 0}, "threads=0 is not possible; give a whole number, at least 1"),
        (["w1"], {"threads": True}, "threads=True is not possible"),
        (
            ["", "w1 w2 w3"],
            {"pairs": ["", "w1 w2"], "max_length": 5, "truncation": "only_second"},
            "pair 1 does not fit max_length=5: .*only_second' the other text keeps all its 3 pieces",
        ),
        (
            ["w1 w2 w3"],
            {"pairs": ["w1 w2"], "max_length": 5, "truncation": "only_first"},
            "pair 0 does not fit max_length=5: .*only_first' the other text keeps all its 2 .* leaves 0",
        ),
    ],
)
def test_impossible_encodings_are_refused(numbered, texts, options, sentence):
    with pytest.raises(InputError, match=sentence):
        numbered.encode_batch(texts, **options)


def test_places_that_were_not_asked_for_are_not_made_up(numbered):
    batch = numbered.encode_batch(["w1"])
    for kind in (batch, batch[0]):
        for name in ("offsets", "word_ids"):
            with pytest.raises(InputError, match="not asked for; call encode_batch.*offsets=True"):
                getattr(kind, name)


def test_more_pieces_than_32_bits_count_are_refused():
    with pytest.raises(InputError, match="2,147,483,648 pieces, more than 32 bits count"):
        found = native.Encoded(np.zeros(0, np.int32), np.array([0, 2**31]), None, 0)
        encoding.lay_out(found, False, False, None, [])


@pytest.mark.parametrize("aligned", [False, True])
def test_joined_slices_are_the_whole(aligned):
    lengths = [[2, 0], [3], [], [1, 4]]
    parts, number = [], 0
    for of_part in lengths:
        ids = np.arange(number, number + sum(of_part), dtype=np.int32)
        number += len(ids)
        alignment = (np.stack([ids, ids + 1], 1), ids + 7) if aligned else None
        parts.append(native.Encoded(ids, np.cumsum([0, *of_part]), alignment, len(of_part)))
    joined = native._join_slices(parts)
    assert joined.ids.tolist() == list(range(10)) and joined.n_invalid == 5
    assert joined.bounds.tolist() == np.cumsum([0, *chain.from_iterable(lengths)]).tolist()
    if aligned:
        offsets, words = joined.alignment
        assert (offsets == np.stack([joined.ids, joined.ids + 1], 1)).all() and (
            words == joined.ids + 7
        ).all()
    else:
        assert joined.alignment is None


@pytest.mark.parametrize("period", [1, 2, 3])
@pytest.mark.parametrize(("small", "slices"), [(1 << 16, 1), (120, 2), (20, 8)])
def test_slices_are_whole_periods_of_about_the_same_length(period, small, slices, monkeypatch):
    monkeypatch.setattr(native, "_SMALL_SLICE", small)
    texts = ["abcde"] * 48
    found = list(native._slices(texts, period, threads=2))
    assert [*chain(*found)] == texts and len(found) == slices
    assert all(len(part) % period == 0 for part in found)
    assert max(map(len, found)) <= 48 / slices + 2 * period
    assert list(native._slices([], period, threads=2)) == []
