"""The tokenizer against Hugging Face's two, over the released vocabularies and texts in many languages.

Both differ from Google's code. The comparisons set the word limit to 200 and otherwise keep to texts on which
the originals mean the same; the tests named `..._differ_...` pin down where they do not:

- word limit: 100 characters instead of 200;
- the Python one deletes private, unassigned and surrogate characters, and composes to NFC after cleaning:
  that changes cased words written with separate accents, compatibility ideographs, U+1FEF (to a backquote);
- the one in Rust deletes private characters, knows an older Unicode (newer marks and punctuation are letters
  to it), leaves 256 ideographs (U+2B820-2B91F) unsplit and lower-cases a final sigma to a medial one;
- its decoder also pulls punctuation to the word before it; here pieces are only joined.
"""

import lzma
import os
import random
import unicodedata
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
legacy_module = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")

from minibert.tokenizer import BasicTokenizer, Tokenizer, count_words, learn_vocab  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
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


class Legacy:
    """Hugging Face's Python tokenizer with Google's word limit."""

    def __init__(self, vocab, lower_case):
        self.basic = legacy_module.BasicTokenizer(do_lower_case=lower_case)
        self.wordpiece = legacy_module.WordpieceTokenizer(set(vocab), "[UNK]", max_input_chars_per_word=200)

    def tokenize(self, text):
        return [piece for word in self.basic.tokenize(text) for piece in self.wordpiece.tokenize(word)]


class Fast:
    """Hugging Face's Rust tokenizer with Google's word limit."""

    def __init__(self, vocab, lower_case, limit=200):
        ids = {piece: i for i, piece in enumerate(vocab)}
        model = tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=limit)
        self.tokenizer = tokenizers.Tokenizer(model)
        self.tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower_case)
        self.tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()

    def words(self, text):
        normalised = self.tokenizer.normalizer.normalize_str(text)
        return [word for word, _ in self.tokenizer.pre_tokenizer.pre_tokenize_str(normalised)]

    def tokenize(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).tokens


def lines_of(path, limit=10**6):
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        return file.read(limit).split("\n")


def sample_texts():
    for path in sorted((DATA / "text" / "multilingual" / "udhr2").glob("*.txt")):
        yield from lines_of(path)
    for name in ("enwiki.txt.xz", "multilingual/zhwiki_sample.txt.xz", "wikitext2.valid.raw.xz"):
        yield from lines_of(DATA / "text" / name, 300_000)
    yield from lines_of(DATA / "text" / "books" / "carroll-alice.txt")


def deleted_by_legacy(text):
    return any(unicodedata.category(c) in ("Cn", "Co", "Cs") for c in text)


@needs_data
@pytest.mark.parametrize("name, lower_case", VOCABULARIES.items())
def test_same_pieces_as_hugging_face_in_all_languages(name, lower_case):
    ours = Tokenizer.from_pretrained(DATA / "vocab" / name, lower_case=lower_case)
    legacy, fast = (oracle(ours.vocab, lower_case) for oracle in (Legacy, Fast))
    n_pieces = 0
    for text in sample_texts():
        text = unicodedata.normalize("NFC", text)
        pieces = ours.tokenize(text)
        assert pieces == fast.tokenize(text)
        if not deleted_by_legacy(text):
            assert pieces == legacy.tokenize(text)
            n_pieces += len(pieces)
    assert n_pieces > 500_000


@needs_data
@pytest.mark.parametrize("lower_case", [True, False])
def test_same_words_as_hugging_face_in_all_languages(lower_case):
    ours, legacy = BasicTokenizer(lower_case), legacy_module.BasicTokenizer(do_lower_case=lower_case)
    fast = Fast(["[UNK]"], lower_case)
    differ_from_fast = []
    for text in sample_texts():
        text = unicodedata.normalize("NFC", text)
        if not deleted_by_legacy(text):
            assert ours.tokenize(text) == legacy.tokenize(text)
        differ_from_fast += [text] if ours.tokenize(text) != fast.words(text) else []
    assert all("\u03a3" in text for text in differ_from_fast), differ_from_fast  # a capital sigma


@pytest.mark.parametrize("lower_case", [True, False])
def test_same_words_as_hugging_face_on_random_text(lower_case):
    ours, legacy = BasicTokenizer(lower_case), legacy_module.BasicTokenizer(do_lower_case=lower_case)
    fast = Fast(["[UNK]"], lower_case)
    alphabet = [c for c in map(chr, range(0x30000)) if not deleted_by_legacy(c)]
    if not lower_case:  # those that NFC leaves as they are
        alphabet = [c for c in alphabet if unicodedata.is_normalized("NFC", f"a{c}b{c}")]
    old = [c for c in alphabet if filed_as_in_old_unicode(c)]
    generator = random.Random(1)
    for n in range(60_000):
        characters = generator.choices(alphabet if n % 2 else old, k=generator.randrange(12))
        characters += generator.choices("abÀİ .,\t\u200b中", k=generator.randrange(12))
        text = "".join(generator.sample(characters, len(characters)))
        assert ours.tokenize(text) == legacy.tokenize(text), ascii(text)
        if n % 2 == 0:
            assert ours.tokenize(text) == fast.words(text), ascii(text)


def filed_as_in_old_unicode(character):
    """Whether Unicode 3.2, which Python carries, has the character in its present category."""
    old = unicodedata.ucd_3_2_0.category(character)
    return old == unicodedata.category(character) and character != "\u03a3"


# Where they differ, and that these are the only characters on which they do


def test_hugging_face_stops_at_words_of_100_characters():
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a"]
    assert len(Tokenizer(vocab).tokenize("a" * 200)) == 200
    assert Tokenizer(vocab, max_input_chars_per_word=100).tokenize("a" * 101) == ["[UNK]"]
    assert Fast(vocab, True, limit=100).tokenize("a" * 101) == ["[UNK]"]
    assert legacy_module.WordpieceTokenizer(vocab, "[UNK]").tokenize("a" * 101) == ["[UNK]"]


def test_legacy_differs_on_deleted_characters_and_composition_only():
    for lower_case in (True, False):
        ours, legacy = BasicTokenizer(lower_case), legacy_module.BasicTokenizer(do_lower_case=lower_case)
        for character in map(chr, range(0x110000)):
            text = f"a{character}b"
            composed = (
                not lower_case and not unicodedata.is_normalized("NFC", text) and not character.isspace()
            )
            differs = deleted_by_legacy(character) or composed
            assert (ours.tokenize(text) != legacy.tokenize(text)) == differs, ascii(text)


def test_fast_differs_on_private_and_newer_characters_and_some_ideographs_only():
    for lower_case in (True, False):
        ours, fast = BasicTokenizer(lower_case), Fast(["[UNK]"], lower_case)
        for character in map(chr, [*range(0xD800), *range(0xE000, 0x110000)]):
            category = unicodedata.category(character)
            if ours.tokenize(f"a{character}b") != fast.words(f"a{character}b"):
                late = 0x2B820 <= ord(character) <= 0x2B91F
                newer = unicodedata.ucd_3_2_0.category(character) != category
                assert category in ("Cn", "Co") or late or newer, ascii(character)


def test_fast_differs_on_a_final_sigma():
    assert BasicTokenizer().tokenize("ΟΔΟΣ") == legacy_module.BasicTokenizer().tokenize("ΟΔΟΣ") == ["οδος"]
    assert Fast(["[UNK]"], True).words("ΟΔΟΣ") == ["οδοσ"]


# A folder of ours in their hands, and the learner beside theirs


@pytest.mark.parametrize("lower_case", [True, False])
def test_auto_tokenizer_loads_a_saved_folder_and_agrees(tmp_path, lower_case):
    text = "Low, LOWER naïve lowest!  The lower\u00a0the newest; 中文 low-est"
    words = count_words([text] * 3, BasicTokenizer(lower_case))
    ours = Tokenizer(learn_vocab(words, 60), lower_case=lower_case)
    ours.save_pretrained(tmp_path, model_max_length=128)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.model_max_length == 128
    assert (theirs.pad_token_id, theirs.mask_token_id) == (ours.pad_id, ours.mask_id)
    for pair in (None, "newest [MASK] the naïve [SEP]low"):
        expected = theirs(text, pair)
        found = ours(text, pair, special=True)
        assert found.ids.tolist() == expected["input_ids"]
        assert found.token_type_ids.tolist() == expected["token_type_ids"]
        assert found.tokens == expected.tokens()


def test_a_folder_that_hugging_face_saved_comes_back(tmp_path):
    ours = Tokenizer(learn_vocab({"low": 5, "Lower": 3}, 20), lower_case=False)
    ours.save_pretrained(tmp_path / "ours")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    back = Tokenizer.from_pretrained(tmp_path / "theirs")
    assert back.vocab == ours.vocab
    assert not back.lower_case


@needs_data
def test_frequency_learns_nearly_what_hugging_face_learns():
    lines = lines_of(DATA / "text" / "books" / "carroll-alice.txt")
    ours = learn_vocab(count_words(lines, BasicTokenizer()), 1000, objective="frequency")
    theirs = Fast(["[UNK]"], True).tokenizer
    special = ours[:5]
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=1000, special_tokens=special, show_progress=False
    )
    theirs.train_from_iterator(lines, trainer)
    assert len(set(ours) & set(theirs.get_vocab())) >= 940  # they break ties otherwise
