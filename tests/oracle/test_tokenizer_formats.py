"""Our files in Hugging Face's hands and theirs in ours, and what both make of texts, pairs and windows.

`tokenizers` reads the tokenizer.json of a saved folder and gives the same ids, offsets, word numbers and
masks as `compat="hf-fast"` does; it truncates pairs and makes windows in the same way.
"""

import json
import os
import random
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from paths import ROOT  # noqa: E402

from minibert.base.errors import InputError  # noqa: E402
from minibert.tokenizer import SPECIAL_TOKENS, BasicTokenizer, Tokenizer, count_words, learn_vocab  # noqa: E402
from minibert.tokenizer.added import AddedToken  # noqa: E402

truncate_sequences = pytest.importorskip("transformers.tokenization_python").PythonBackend.truncate_sequences

DATA = Path(os.environ.get("MINIBERT_DATA", ROOT.parent / "shared" / "data"))
needs_data = pytest.mark.skipif(
    not (DATA / "vocab").is_dir(), reason=f"no vocabularies in {DATA}; set MINIBERT_DATA"
)
VOCABULARIES = {
    "bert-base-uncased": True,
    "bert-base-cased": False,
    "bert-base-multilingual-cased": False,
    "bert-base-chinese": True,
}
TEXTS = [
    "",
    " ",
    "Hello wörld, naïve İstanbul 한국어 ΟΔΟΣ 中文x [MASK] a[SEP]b",
    "  tabs\tand\n\x00 nul \u200b e\u0301 Åé",
    "ﬁ ½ ǅ ß İİ x\u0301\u0323y ậ ồ [UNK]",
    "unaffable" * 9 + " " + "a" * 101 + " " + "a" * 100,
]


def saved_and_loaded(tokenizer, folder):
    """A tokenizer of ours in Hugging Face's `tokenizers`."""
    tokenizer.save_pretrained(folder)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def rows_of_ours(encoding):
    return (
        encoding.tokens,
        encoding.ids.tolist(),
        encoding.token_type_ids.tolist(),
        [tuple(span) for span in encoding.offsets.tolist()],
        [None if word < 0 else word for word in encoding.word_ids.tolist()],
        encoding.special_tokens_mask.astype(int).tolist(),
    )


def rows_of_theirs(encoding):
    return (
        encoding.tokens,
        encoding.ids,
        encoding.type_ids,
        encoding.offsets,
        encoding.word_ids,
        encoding.special_tokens_mask,
    )


def sample_texts():
    for path in sorted((DATA / "text" / "multilingual" / "udhr2").glob("*.txt")):
        yield from path.read_text(encoding="utf-8", errors="replace").split("\n")[:12]


# tokenizer.json


@needs_data
@pytest.mark.parametrize("name, lower_case", VOCABULARIES.items())
def test_a_released_vocabulary_saved_by_us_is_the_same_in_their_hands(tmp_path, name, lower_case):
    ours = Tokenizer.from_pretrained(DATA / "vocab" / name, lower_case=lower_case, compat="hf-fast")
    theirs = saved_and_loaded(ours, tmp_path)
    texts = [*TEXTS, *sample_texts()]
    found = ours.encode_batch(texts, special=True, offsets=True)
    n = 0
    for text, mine, expected in zip(texts, found, theirs.encode_batch(texts), strict=True):
        assert rows_of_ours(mine) == rows_of_theirs(expected), text
        n += len(mine)
    assert n > 50_000


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lower_case": False},
        {"strip_accents": False},
        {"lower_case": False, "strip_accents": True},
        {"tokenize_chinese_chars": False},
        {"max_input_chars_per_word": 5},
    ],
)
def test_every_option_arrives(tmp_path, options):
    vocab = [*SPECIAL_TOKENS, *"abeéÉ中文,", "##a", "##b", "##é", "##文", "É", "<x>", "[NEW]"]
    vocab = list(dict.fromkeys(vocab))
    ours = Tokenizer(vocab, compat="hf-fast", additional_special_tokens=["<x>", "[NEW]"], **options)
    theirs = saved_and_loaded(ours, tmp_path)
    for text in ("É é bé ab中文b, a<x>b[NEW]", "aaaaa aaaaaa", "A B [CLS] e\u0301"):
        assert rows_of_ours(ours(text, special=True)) == rows_of_theirs(theirs.encode(text)), text
        assert ours.decode(ours(text).ids) == theirs.decode(ours(text).ids, skip_special_tokens=False)


@needs_data
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [None, True, False])
def test_lowercase_before_their_normalizer_is_read(tmp_path, lowercase, strip_accents):
    file = DATA / "vocab" / "bert-base-uncased" / "tokenizer.json"
    theirs = tokenizers.Tokenizer.from_file(str(file))
    bert = tokenizers.normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    theirs.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Lowercase(), bert])
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_pretrained(tmp_path / "tokenizer.json", compat="hf-fast")
    generator = random.Random(0)
    for text in [*TEXTS, "ÉCOLE İstanbul STRASSE ẞ ΣΑΣ", *random_texts(generator, 200)]:
        assert rows_of_ours(ours(text, special=True)) == rows_of_theirs(theirs.encode(text)), text


@pytest.mark.parametrize("before", ["NFC", "Strip"])
def test_other_normalizers_before_theirs_are_refused(tmp_path, before):
    Tokenizer([*SPECIAL_TOKENS, "a"]).save_pretrained(tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    first = getattr(tokenizers.normalizers, before)()
    theirs.normalizer = tokenizers.normalizers.Sequence([first, theirs.normalizer])
    theirs.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=f"normalises with {before} and BertNormalizer"):
        Tokenizer.from_pretrained(tmp_path / "tokenizer.json")


@needs_data
def test_their_tokenizer_json_is_read_with_its_limit(tmp_path):
    file = DATA / "vocab" / "bert-base-uncased" / "tokenizer.json"
    ours, theirs = (
        Tokenizer.from_pretrained(file, compat="hf-fast"),
        tokenizers.Tokenizer.from_file(str(file)),
    )
    for text in TEXTS:
        assert rows_of_ours(ours(text, special=True)) == rows_of_theirs(theirs.encode(text)), text


def test_special_tokens_that_they_added_are_read(tmp_path):
    Tokenizer([*SPECIAL_TOKENS, "low", "##er"]).save_pretrained(tmp_path / "ours")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    theirs.add_special_tokens({"additional_special_tokens": ["[NEW]"]})
    theirs.save_pretrained(tmp_path / "theirs")
    back = Tokenizer.from_pretrained(tmp_path / "theirs")
    assert back.vocab == [*SPECIAL_TOKENS, "low", "##er", "[NEW]"]
    text = "lower[NEW] low"
    assert back(text, special=True).ids.tolist() == theirs(text)["input_ids"] == [2, 5, 6, 7, 5, 3]


ADDED = [
    "owe",
    "NéW",
    "new york",
    "中",
    transformers.AddedToken("Low", normalized=False),
    transformers.AddedToken("west", single_word=True),
    transformers.AddedToken("ST", single_word=True, normalized=False),
    transformers.AddedToken("<e>", lstrip=True, rstrip=True),
]
SPECIAL = ["«Ort»", "[DRUG]", "mark", transformers.AddedToken("<ö>", special=True, normalized=True)]


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("core", ["c", "python"])
def test_texts_with_tokens_that_they_added_become_the_same(tmp_path, lower_case, core):
    vocab = [*SPECIAL_TOKENS, *"abelnorstwxyz中国<>é«»", "low", "##er", "new", "##s", "##t", "[", "]"]
    Tokenizer(vocab, lower_case=lower_case, compat="hf-fast").save_pretrained(tmp_path / "ours")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    theirs.add_tokens(ADDED)
    theirs.add_tokens(SPECIAL, special_tokens=True)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = Tokenizer.from_pretrained(tmp_path / "theirs", core=core, compat="hf-fast")
    assert len(ours) == len(theirs) == len(vocab) + len(ADDED) + len(SPECIAL) - 1  # one is a piece already
    ours.save_pretrained(tmp_path / "again")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    generator = random.Random(7)
    strings = [str(token) for token in (*ADDED, *SPECIAL)]
    others = [*"abéÉ中国<>., \t\x00", "e\u0301", " ", "low", "[SEP]", "[mask]"]
    letters = [*strings, *map(str.upper, strings), *others]
    n_added = 0
    for _ in range(2000):
        text = "".join(generator.choices(letters, k=generator.randrange(9)))
        expected = theirs(text)["input_ids"]
        assert ours(text).ids.tolist() == expected == again(text)["input_ids"], text
        batch = ours.encode_batch(["low"], [text + "."], offsets=True)
        assert batch.ids.tolist() == theirs("low", text + ".")["input_ids"], text
        n_added += sum(number >= len(vocab) for number in expected)
    assert n_added > 2000


def test_a_vocabulary_with_a_piece_twice_is_read_as_theirs(tmp_path):
    lines = [*SPECIAL_TOKENS, "$", "the", "", "sea", "##s", "$", "rose", "##s", "the"]
    (tmp_path / "vocab.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.from_pretrained(tmp_path)
    ours.save_pretrained(tmp_path / "saved")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in ("the seas $ rose", "$the seassss", ""):
        assert ours(text).ids.tolist() == theirs(text)["input_ids"] == again(text)["input_ids"]
    added = {len(lines): AddedToken("X-ray")}
    longer = Tokenizer(ours.vocab, added_tokens=added)
    longer.save_pretrained(tmp_path / "longer")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "longer")
    assert longer("the x-ray $").ids.tolist() == theirs("the x-ray $")["input_ids"] == [2, 13, 14, 10, 3]


def test_encode_and_a_batch_by_name_are_theirs(both, tmp_path):
    ours, _ = both
    ours.save_pretrained(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = ["w1 wx", "[MASK]", ""]
    assert [ours.encode(text) for text in texts] == [theirs.encode(text) for text in texts]
    bare = {"add_special_tokens": False}
    assert [ours.encode(text, **bare) for text in texts] == [theirs.encode(text, **bare) for text in texts]
    expected = theirs(texts, texts[::-1], padding=True)
    found = ours(texts, texts[::-1])
    assert {name: found[name].tolist() for name in found.keys()} == {**expected}  # noqa: SIM118


# Pairs, truncation, windows


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    ours = Tokenizer([*SPECIAL_TOKENS, *(f"w{i}" for i in range(30)), "w", "##x"], compat="hf-fast")
    return ours, saved_and_loaded(ours, tmp_path_factory.mktemp("both"))


def random_texts(generator, n):
    return [
        " ".join(generator.choices(["w1", "w2", "W3", "wx", "w7"], k=generator.randrange(14)))
        for _ in range(n)
    ]


@pytest.mark.parametrize(
    "truncation, pairs",
    [
        ("longest_first", False),
        ("only_first", False),
        ("longest_first", True),
        ("only_first", True),
        ("only_second", True),
    ],
)
@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_truncation_and_windows_are_theirs(both, truncation, pairs, add_special_tokens):
    ours, theirs = both
    generator, compared = random.Random(5), 0
    for _ in range(300):
        first, second = random_texts(generator, 3), random_texts(generator, 3)
        max_length, stride = generator.randrange(4, 20), generator.choice([None, 0, 1, 2, 5])
        if pairs and truncation == "longest_first":
            stride = None  # they window both texts at once
        try:
            found = ours.encode_batch(
                first,
                second if pairs else None,
                max_length=max_length,
                truncation=truncation,
                stride=stride,
                offsets=True,
                add_special_tokens=add_special_tokens,
            )
        except InputError:
            continue
        texts = list(zip(first, second, strict=True)) if pairs else first
        try:
            theirs.enable_truncation(max_length, stride=stride or 0, strategy=truncation)
            expected = theirs.encode_batch(texts, add_special_tokens=add_special_tokens)
        except Exception as error:  # their stride has to fit beside [CLS] and [SEP] even where there are none
            assert "tokenizer stride" in str(error)
            assert not add_special_tokens
            continue
        rows = [
            (source, rows_of_theirs(part))
            for source, encoding in enumerate(expected)
            for part in ([encoding] if stride is None else [encoding, *encoding.overflowing])
        ]
        assert [(s, rows_of_ours(e)) for s, e in zip(found.source, found, strict=True)] == rows
        compared += len(rows)
    theirs.no_truncation()
    assert compared > 300


@pytest.mark.parametrize("truncation", ["only_first", "only_second"])
@pytest.mark.parametrize("n_special", [0, 3])
def test_a_pair_is_refused_where_no_text_would_be_left(both, truncation, n_special):
    ours, theirs = both
    refused = 0
    for n_first, n_second, room in product(range(6), range(6), range(1, 11)):
        pair = " ".join(["w1"] * n_first), " ".join(["w2"] * n_second)
        theirs.enable_truncation(room + n_special, strategy=truncation)
        try:
            expected = theirs.encode(*pair, add_special_tokens=n_special > 0).ids
        except Exception as error:
            assert "too short" in str(error)
            with pytest.raises(InputError, match="pair 0 does not fit max_length"):
                encoded(ours, pair, room + n_special, truncation, n_special > 0)
            refused += 1
        else:
            assert encoded(ours, pair, room + n_special, truncation, n_special > 0) == expected
    theirs.no_truncation()
    assert refused == 85


def encoded(tokenizer, pair, max_length, truncation, add_special_tokens):
    first, second = pair
    batch = tokenizer.encode_batch(
        [first],
        [second],
        max_length=max_length,
        truncation=truncation,
        add_special_tokens=add_special_tokens,
    )
    return batch[0].ids.tolist()


@pytest.mark.parametrize("compat", ["google", "hf-slow"])
def test_the_longer_text_is_cut_as_by_their_tokenizer_in_python(compat):
    ours = Tokenizer([*SPECIAL_TOKENS, "a", "b"], compat=compat)
    theirs = SimpleNamespace(truncation_side="right")
    for n_first, n_second, room in product(range(7), range(7), range(9)):
        texts = ["a"] * n_first, ["b"] * n_second
        first, second, _ = truncate_sequences(theirs, *texts, n_first + n_second - room, "longest_first")
        found = ours(*map(" ".join, texts), max_length=room, add_special_tokens=False)
        assert found.tokens == first + second, (n_first, n_second, room)


def test_pairs_have_their_segments_offsets_and_word_numbers(both):
    ours, theirs = both
    for pair in (("w1 wx", "w2"), ("", "w3"), ("[SEP] w1", "[MASK]")):
        assert rows_of_ours(ours(*pair, special=True)) == rows_of_theirs(theirs.encode(*pair))


# transformers


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("compat", ["google", "hf-fast"])
def test_auto_tokenizer_loads_a_saved_folder_and_agrees(tmp_path, lower_case, compat):
    text = "Low, LOWER naïve lowest!  The lower\u00a0the newest; 中文 low-est"
    words = count_words([text] * 3, BasicTokenizer(lower_case))
    ours = Tokenizer(learn_vocab(words, 60), lower_case=lower_case, compat=compat, never_split=["low-est"])
    ours.save_pretrained(tmp_path, model_max_length=128)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.model_max_length == 128
    assert (theirs.pad_token_id, theirs.mask_token_id) == (ours.pad_id, ours.mask_id)
    ours = Tokenizer.from_pretrained(tmp_path, never_split=[])  # which theirs does not know
    for pair in (None, "newest [MASK] the naïve [SEP]low"):
        expected = theirs(text, pair, return_offsets_mapping=True)
        found = ours(text, pair, special=True)
        assert found.ids.tolist() == expected["input_ids"]
        assert found.token_type_ids.tolist() == expected["token_type_ids"]
        assert found.tokens == expected.tokens()
        assert [tuple(span) for span in found.offsets.tolist()] == expected["offset_mapping"]


def test_a_folder_that_hugging_face_saved_comes_back(tmp_path):
    ours = Tokenizer(
        learn_vocab({"low": 5, "Lower": 3}, 20), lower_case=False, compat="hf-slow", never_split=["L."]
    )
    ours.save_pretrained(tmp_path / "ours")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    assert not (tmp_path / "theirs" / "vocab.txt").exists()  # tokenizer.json and the configuration say it all
    back = Tokenizer.from_pretrained(tmp_path / "theirs")
    assert (back.vocab, back._options()) == (ours.vocab, ours._options())


def test_our_tokenizer_json_is_written_as_they_write_it(tmp_path):
    theirs = saved_and_loaded(Tokenizer([*SPECIAL_TOKENS, "low"], lower_case=False), tmp_path)
    ours = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert json.loads(theirs.to_str()) == ours
