"""Each mode of the tokenizer against its original: Google's code, and Hugging Face's two tokenizers.

Every text gives the same words and pieces, with the released vocabularies and both engines, as far as it
keeps to characters that are filed alike in both Unicode versions. Ours is 15.0.0; Google's code and
`transformers` ask the running Python; `tokenizers` has tables of Unicode 8.0. All that may differ:

- characters that are not assigned in one of the two versions;
- for `tokenizers`, also the six of REFILED, which were filed elsewhere up to 8.0;
- `transformers` looks for `never_split` again after lower-casing and after splitting at punctuation;
- `tokenizers` takes no lone surrogates at all, and knows no `never_split`.

How the modes differ from each other is tested with values in tests/tokenizer/test_normalize.py.
"""

import functools
import importlib.util
import lzma
import os
import random
import sys
import types
import unicodedata
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")

from paths import ROOT  # noqa: E402

from minibert.tokenizer import BasicTokenizer, Tokenizer, count_words, learn_vocab, native, unicode  # noqa: E402

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
CORES = ["python", "c"] if native.available() else ["python"]

# Assigned in Unicode 9.0 to 15.0 (or still free, where that makes a range longer), from its DerivedAge.txt.
NEWER_THAN_8 = """
0560 0588 05EF 061D 07FD-07FF 0860-089F 08B5-08E2 09FC-09FE 0A76 0AFA-0AFF 0B55 0C04 0C3C 0C5D 0C77 0C80
0C84 0CDD 0CF3-0D00 0D04 0D3B-0D3C 0D4F-0D56 0D58-0D5E 0D76-0D78 0D81 0E86 0E89 0E8C 0E8E-0E93 0E98 0EA0
0EA8-0EA9 0EAC 0EBA 0ECE 170D 1715-171F 180F 1878 1ABF-1ACE 1B4C 1B7D-1B7E 1C80-1CBF 1CF7 1CFA 1DF6-1DFB
20BF-20C0 23FB-23FF 2B97 2BBA-2BBC 2BC9 2BD2-2BEB 2BF0-2BFF 2C2F 2C5F 2E43-2E5D 312E-312F 31BB-31BF 32FF
4DB6-4DBF 9FD6-9FFF A7AE-A7AF A7B8-A7F6 A82C A8C5 A8FE-A8FF AB66-AB6B FBC2 FD40-FD4F FDCF FDFE-FDFF
1018D-1018E 1019C 1032D-1032F 104B0-104FB 10570-105BC 10780-107BA 10A34-10A35 10A48 10D00-10D39
10E80-10FF6 11070-11075 110C2-110CD 11144-11147 111CE-111CF 1123E-11241 1133B 11400-11461 11660-1166C
116B8-116B9 1171A 11740-1183B 11900-11ABF 11B00-11FFF 12F90-12FF2 1342F-13455 16A70-16AC9 16E40-16E9A
16F45-16F4F 16F7F-16F87 16FE0-1AFFE 1B002-1B2FB 1CF00-1CFC3 1D1E9-1D1EA 1D2C0-1D2F3 1D372-1D378
1DF00-1E7FE 1E900-1ED3D 1F10D-1F10F 1F12F 1F16C-1F16F 1F19B-1F1AD 1F23B 1F260-1F265 1F57A 1F5A4
1F6D1-1F6DF 1F6F4-1F6FC 1F774-1F77F 1F7D5-1F7F0 1F8B0-1F90F 1F919-1F97F 1F985-1F9BF 1F9C1-1FBF9
2A6D7-2A6DF 2B735-2B739 2CEB0-2EBE0 30000-323AF
"""

# Filed elsewhere up to 8.0. Punctuation, which 12.0 and 11.0 made a symbol and a mark; then a mark that is an
# accent no more since 14.0, and letters that are accents since 9.0, 9.0 and 11.0.
REFILED_PUNCTUATION = {0x166D, 0x111C9}
REFILED = REFILED_PUNCTUATION | {0x1734, 0x1885, 0x1886, 0xA9BD}


# The originals


class Google:
    """`tokenization.py` as released, from the package bert-tensorflow."""

    def __init__(self, vocab=("[UNK]",), lower_case=True):
        self.basic = google_module().BasicTokenizer(do_lower_case=lower_case)
        self.wordpiece = google_module().WordpieceTokenizer(set(vocab))

    def words(self, text):
        return self.basic.tokenize(text)

    def pieces(self, text):
        return [piece for word in self.words(text) for piece in self.wordpiece.tokenize(word)]


@functools.cache
def google_module():
    """The file alone, with stand-ins for what it imports and does not use here."""
    package = importlib.util.find_spec("bert")
    file = Path(package.submodule_search_locations[0] if package else "nowhere") / "tokenization.py"
    if not file.exists():
        pytest.skip("Google's tokenization.py is not installed: pip install --no-deps bert-tensorflow==1.0.4")
    stand_ins = {name: types.ModuleType(name) for name in ("absl", "six", "tensorflow", "tensorflow.compat")}
    stand_ins["tensorflow.compat.v1"] = types.ModuleType("tensorflow.compat.v1")
    stand_ins["tensorflow.compat"].v1 = stand_ins["tensorflow.compat.v1"]
    stand_ins["six"].PY2, stand_ins["six"].PY3 = False, True
    flags = types.SimpleNamespace(preserve_unused_tokens=False)
    stand_ins["absl"].flags = types.SimpleNamespace(FLAGS=flags, DEFINE_bool=lambda *_: None)
    spec = importlib.util.spec_from_file_location("google_tokenization", file)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for name, stand_in in stand_ins.items():
            patch.setitem(sys.modules, name, stand_in)
        spec.loader.exec_module(module)
    return module


class Slow:
    """Hugging Face's tokenizer in Python."""

    def __init__(self, vocab=("[UNK]",), lower_case=True, **options):
        self.basic = legacy.BasicTokenizer(do_lower_case=lower_case, **options)
        self.wordpiece = legacy.WordpieceTokenizer(set(vocab), "[UNK]")

    def words(self, text):
        return self.basic.tokenize(text)

    def pieces(self, text):
        return [piece for word in self.words(text) for piece in self.wordpiece.tokenize(word)]


class Fast:
    """Hugging Face's tokenizer in Rust."""

    def __init__(self, vocab=("[UNK]",), lower_case=True, **options):
        ids = {piece: i for i, piece in enumerate(vocab)}
        self.tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
        self.tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower_case, **options)
        self.tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()

    def words(self, text):
        normalised = self.tokenizer.normalizer.normalize_str(text)
        return [word for word, _ in self.tokenizer.pre_tokenizer.pre_tokenize_str(normalised)]

    def pieces(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).tokens


ORIGINALS = {"google": Google, "hf-slow": Slow, "hf-fast": Fast}


@functools.cache
def newer_than_8():
    spans = (entry.split("-") for entry in NEWER_THAN_8.split())
    return {code for span in spans for code in range(int(span[0], 16), int(span[-1], 16) + 1)}


@functools.cache
def filed_alike(mode, character):
    """Whether the original of `mode` may be asked about a character."""
    assigned = not unicode.flags(ord(character)) & unicode.UNASSIGNED
    if mode == "hf-fast":
        return (
            assigned
            and ord(character) not in newer_than_8()
            and ord(character) not in REFILED
            and not 0xD800 <= ord(character) < 0xE000
        )
    return assigned == (unicodedata.category(character) != "Cn")


def comparable(mode, text):
    return all(filed_alike(mode, character) for character in set(text))


# Texts


def lines_of(path, limit=10**6):
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        return file.read(limit).split("\n")


@functools.cache
def sample_texts():
    texts = []
    for path in sorted((DATA / "text" / "multilingual" / "udhr2").glob("*.txt")):
        texts += lines_of(path)
    for name in ("enwiki.txt.xz", "multilingual/zhwiki_sample.txt.xz", "wikitext2.valid.raw.xz"):
        texts += lines_of(DATA / "text" / name, 300_000)
    return texts + lines_of(DATA / "text" / "books" / "carroll-alice.txt")


def random_texts(mode, n):
    """Any characters, and in half of the texts mostly those on which a step may go wrong."""
    generator = random.Random(1)
    any_character = [c for c in map(chr, range(0x110000)) if filed_alike(mode, c)]
    marks = [c for c in any_character if unicode.combining_class(c)]
    moving = [c for c in any_character if not unicode.flags(ord(c)) & unicode.INERT]
    awkward = [
        *"abÀİΣς .,'`\t\u200b\u00a0\x00\x85\ufffd中\uac00\u1100\u1161\u11a8\u0345\u1fef\u302e\U0001d165"
    ]
    awkward = [c for c in awkward if filed_alike(mode, c)]
    for n_text in range(n):
        pools = (any_character, awkward) if n_text % 2 else (awkward, awkward, marks, moving)
        yield "".join(generator.choice(generator.choice(pools)) for _ in range(generator.randrange(14)))


# Each mode and its original


@functools.cache
def pieces_of_the_original(mode, name):
    vocab = Tokenizer.from_pretrained(DATA / "vocab" / name).vocab
    original = ORIGINALS[mode](vocab, VOCABULARIES[name])
    return [original.pieces(text) if comparable(mode, text) else None for text in sample_texts()]


@needs_data
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.parametrize("mode", ORIGINALS)
def test_pieces_are_those_of_the_original_in_all_languages(mode, name, core):
    ours = Tokenizer.from_pretrained(
        DATA / "vocab" / name, lower_case=VOCABULARIES[name], compat=mode, core=core
    )
    # The core in Python is slow: with each of four vocabularies it reads another quarter of the texts.
    first, each = (0, 1) if core == "c" else (list(VOCABULARIES).index(name), len(VOCABULARIES))
    n_pieces, n_left_out = 0, 0
    pairs = list(zip(sample_texts(), pieces_of_the_original(mode, name), strict=True))
    for text, expected in pairs[first::each]:
        if expected is None:
            n_left_out += 1
            continue
        assert ours.tokenize(text) == expected, text
        n_pieces += len(expected)
    assert n_pieces > 500_000 / each and n_left_out < 100


@needs_data
@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("mode", ORIGINALS)
def test_words_are_those_of_the_original_in_all_languages(mode, lower_case):
    ours, original = BasicTokenizer(lower_case, compat=mode), ORIGINALS[mode](lower_case=lower_case)
    for text in sample_texts():
        if comparable(mode, text):
            assert ours.tokenize(text) == original.words(text)


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("mode", ORIGINALS)
def test_words_are_those_of_the_original_on_random_text(mode, lower_case):
    ours, original = BasicTokenizer(lower_case, compat=mode), ORIGINALS[mode](lower_case=lower_case)
    for text in random_texts(mode, 60_000):
        assert ours.tokenize(text) == original.words(text), ascii(text)


@pytest.mark.parametrize("mode", ["hf-slow", "hf-fast"])
@pytest.mark.parametrize("chinese", [True, False])
@pytest.mark.parametrize("lower_case, strip_accents", [(True, False), (False, True)])
def test_options_mean_what_they_mean_in_the_original(mode, lower_case, strip_accents, chinese):
    ours = BasicTokenizer(lower_case, strip_accents, chinese, compat=mode)
    name = "tokenize_chinese_chars" if mode == "hf-slow" else "handle_chinese_chars"
    options = {"strip_accents": strip_accents, name: chinese}
    original = ORIGINALS[mode](lower_case=lower_case, **options)
    for text in random_texts(mode, 20_000):
        assert ours.tokenize(text) == original.words(text), ascii(text)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("mode", ORIGINALS)
def test_pieces_are_those_of_the_original_on_random_text(mode, core):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = "abàiσς.,'`中가\u1100\u1161\u11a8\u302e\U0001d165\u0301\u0323"
    vocab = [*special, *alphabet, *(f"##{c}" for c in alphabet), "ab", "##σa", "##\u1161\u11a8"]
    for lower_case in (True, False):
        ours = Tokenizer(vocab, lower_case, compat=mode, core=core)
        original = ORIGINALS[mode](vocab, lower_case)
        for text in random_texts(mode, 20_000):
            assert ours.tokenize(text) == original.pieces(text), ascii(text)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("mode", ORIGINALS)
def test_a_word_of_as_many_characters_as_the_original_takes_is_the_last(mode, core):
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a"]
    ours, original = Tokenizer(vocab, compat=mode, core=core), ORIGINALS[mode](vocab)
    limit = 200 if mode == "google" else 100
    for n in (limit, limit + 1):
        text = f"{'á' * n} a"
        assert ours.tokenize(text) == original.pieces(text)
        assert ours.tokenize(text)[0] == ("a" if n == limit else "[UNK]")


# Every character, and which ones differ


def differing(mode, lower_case):
    ours, original = BasicTokenizer(lower_case, compat=mode), ORIGINALS[mode](lower_case=lower_case)
    codes = [*range(0xD800), *range(0xE000, 0x110000)]
    if mode != "hf-fast":
        codes += range(0xD800, 0xE000)
    texts = ((code, f"a{chr(code)}b") for code in codes)
    return {code for code, text in texts if ours.tokenize(text) != original.words(text)}


@pytest.mark.parametrize("lower_case", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("mode", ["google", "hf-slow"])
def test_no_character_differs_that_the_running_python_files_alike(mode, lower_case):
    assert {hex(code) for code in differing(mode, lower_case) if filed_alike(mode, chr(code))} == set()


@pytest.mark.parametrize("lower_case", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_just_these_characters_differ_from_the_tokenizer_in_rust(lower_case):
    found = differing("hf-fast", lower_case)
    unassigned = {code for code in found if unicode.flags(code) & unicode.UNASSIGNED}
    assert lower_case or not unassigned  # its lower case is newer than 15.0
    matters = unicode.PUNCTUATION | unicode.CONTROL | (unicode.NONSPACING if lower_case else 0)
    newer = {code for code in newer_than_8() if unicode.flags(code) & matters}
    if lower_case:
        newer.add(0x11938)  # decomposes since 13.0, into two vowel signs
    assert found - unassigned == newer | (REFILED if lower_case else REFILED_PUNCTUATION)


# never_split, as transformers has it


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("lower_case", [True, False])
def test_never_split_is_that_of_transformers(lower_case, core):
    kept = ["[MASK]", "O'Neill", "Ab-É", "中", "(A)"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab = [*special, "O'Neill", "中", *"(abneil)o-[]'", *(f"##{c}" for c in "abeilnmsk"), "##é", "##É"]
    ours = Tokenizer(vocab, lower_case, never_split=kept, compat="hf-slow", core=core)
    original = legacy.BasicTokenizer(do_lower_case=lower_case, never_split=kept)
    wordpiece = legacy.WordpieceTokenizer(set(vocab), "[UNK]")
    generator = random.Random(1)
    for _ in range(20_000):
        text = "".join(generator.choices([*kept, " ", " ", "\t", "E\u0301", "Ab-", "a", "'", "\u200b"], k=6))
        words = original.tokenize(text)
        assert ours.basic_tokenizer.tokenize(text) == words, ascii(text)
        pieces = [
            [word if word in vocab else "[UNK]"] if word in kept else wordpiece.tokenize(word)
            for word in words
        ]
        found = ours.tokenize(text, special=False)  # a word of never_split is whole between spaces only
        assert found == [piece for word in pieces for piece in word], ascii(text)


def test_transformers_looks_for_never_split_twice_more():
    kept = ["e-mail", "Mr"]
    original = legacy.BasicTokenizer(do_lower_case=True, never_split=kept)
    assert original.tokenize("E-Mail e-mail.") == ["e-mail", "e", "-", "mail", "."]
    ours = BasicTokenizer(never_split=kept, compat="hf-slow")
    assert ours.tokenize("E-Mail e-mail.") == ["e", "-", "mail", "e", "-", "mail", "."]


@needs_data
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name, lower_case", VOCABULARIES.items())
def test_special_tokens_in_text_are_those_of_the_whole_tokenizer_in_python(name, lower_case, core):
    folder = DATA / "vocab" / name
    ours = Tokenizer.from_pretrained(folder, lower_case=lower_case, compat="hf-slow", core=core)
    file = folder if folder.is_file() else folder / "vocab.txt"
    original = legacy.BertTokenizerLegacy(str(file), do_lower_case=lower_case)
    for text in ("[CLS] Élan [MASK][SEP]x[UNK]y", "a[MASK]b [mask] [PAD].", "中[SEP]文 [MASK", "[[MASK]]"):
        assert ours.tokenize(text) == original.tokenize(text)
        expected = original.convert_tokens_to_ids(original.tokenize(text))
        assert ours.encode(text, add_special_tokens=False) == expected


# The learner beside theirs


@needs_data
def test_frequency_learns_nearly_what_hugging_face_learns():
    lines = lines_of(DATA / "text" / "books" / "carroll-alice.txt")
    ours = learn_vocab(count_words(lines, BasicTokenizer()), 1000, objective="frequency")
    theirs = Fast().tokenizer
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=1000, special_tokens=ours[:5], show_progress=False
    )
    theirs.train_from_iterator(lines, trainer)
    assert len(set(ours) & set(theirs.get_vocab())) >= 940  # they break ties otherwise
