"""Vocabularies on disk: what is written is read again, what others wrote is read rightly or refused."""

import json
from pathlib import Path

import pytest

from minibert.base import files
from minibert.base.errors import InputError, RunError
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer
from minibert.tokenizer.added import AddedToken

VOCAB = [*SPECIAL_TOKENS, "low", "##er", "é", "É", "a", "##b", "##é", "中", "<x>"]
NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}


def hugging_face(vocab=VOCAB, added=(), **changes):
    """A tokenizer.json as Hugging Face writes it; `changes` replace parts of it, None removes them."""
    content = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": token, "special": True} for i, token in [*enumerate(SPECIAL_TOKENS), *added]
        ],
        "normalizer": NORMALIZER,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": model(vocab),
        **changes,
    }
    return {name: part for name, part in content.items() if part is not None}


def model(vocab=VOCAB, **changes):
    content = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {piece: i for i, piece in enumerate(vocab)},
        **changes,
    }
    return {name: part for name, part in content.items() if part is not None}


def store(folder, content, name="tokenizer.json"):
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


# Our own


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lower_case": False},
        {"strip_accents": False, "tokenize_chinese_chars": False, "max_input_chars_per_word": 7},
        {"compat": "hf-slow", "never_split": ["é中", "low."]},
        {
            "compat": "hf-fast",
            "lower_case": False,
            "strip_accents": True,
            "additional_special_tokens": ["<x>"],
        },
    ],
)
def test_a_saved_tokenizer_comes_back_with_its_options(tmp_path, options):
    saved = Tokenizer(VOCAB, **options)
    saved.save_pretrained(tmp_path / "run")
    loaded = Tokenizer.from_pretrained(tmp_path / "run")
    assert loaded.vocab == saved.vocab
    assert loaded._options() == saved._options()
    text = "É é abbbbbbbbb 中 ab a中 low. é中 <x>" + "a" * 150
    assert loaded.encode(text, special=True) == saved.encode(text, special=True)
    assert Tokenizer.from_pretrained(tmp_path / "run", lower_case=True).lower_case
    assert Tokenizer.from_pretrained(tmp_path / "run", compat="google").compat == "google"


def test_without_vocab_txt_our_tokenizer_json_says_nearly_the_same(tmp_path):
    saved = Tokenizer(VOCAB, False, strip_accents=True, additional_special_tokens=["<x>"])
    saved.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        loaded = Tokenizer.from_pretrained(path)
        assert loaded.vocab == saved.vocab
        assert loaded._options() == saved._options()  # compat and never_split aside, which it can't say


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    file = tmp_path / "vocabulary"
    file.write_text("mine")
    for folder in (file, file / "deeper"):
        with pytest.raises(InputError, match="vocabulary' is a file, not a folder; choose another folder"):
            Tokenizer(VOCAB).save_pretrained(folder)
    assert file.read_text() == "mine"


def test_the_files_say_what_they_should(tmp_path):
    Tokenizer(VOCAB, never_split=["a b"]).save_pretrained(tmp_path, model_max_length=128)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["tokenizer_class"] == "BertTokenizer"
    assert (config["model_max_length"], config["max_input_chars_per_word"]) == (128, 200)
    assert (config["do_lower_case"], config["strip_accents"]) == (True, True)
    assert (config["compat"], config["never_split"]) == ("google", ["a b"])
    assert [config[f"{name}_token"] for name in ("pad", "unk", "cls", "sep", "mask")] == list(SPECIAL_TOKENS)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert list(content["model"]["vocab"].values()) == list(range(len(VOCAB)))
    assert [token["content"] for token in content["added_tokens"]] == list(SPECIAL_TOKENS)
    assert (tmp_path / "vocab.txt").read_bytes() == "".join(f"{piece}\n" for piece in VOCAB).encode()


@pytest.fixture
def stop_at(monkeypatch):
    """Lets the writing of a file of some name fail."""
    real = files.write_atomically

    def stop_at(name, error):
        def write(path, fill):
            if path.name == name:
                raise error
            real(path, fill)

        monkeypatch.setattr(files, "write_atomically", write)

    return stop_at


@pytest.mark.parametrize("file", ["tokenizer.json", "vocab.txt", "tokenizer_config.json"])
def test_a_vocabulary_is_not_left_without_its_options_when_the_disk_is_full(tmp_path, stop_at, file):
    stop_at(file, RunError("no space left"))
    with pytest.raises(RunError, match="no space left"):
        Tokenizer([*SPECIAL_TOKENS, "a"], lower_case=False).save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["vocab.txt", "tokenizer_config.json"])
def test_cut_off_at_any_file_a_saved_folder_is_read_with_its_case(tmp_path, stop_at, file):
    stop_at(file, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        Tokenizer(VOCAB, lower_case=False).save_pretrained(tmp_path)
    assert not (tmp_path / "tokenizer_config.json").exists()  # which marks a whole folder
    assert not Tokenizer.from_pretrained(tmp_path).lower_case


@pytest.mark.parametrize(
    "piece, sentence", [("a\nb", "has a line end"), ("a\r", "line end"), ("\ud800", "UTF-8")]
)
def test_a_piece_that_vocab_txt_cannot_hold_is_not_saved(tmp_path, piece, sentence):
    with pytest.raises(InputError, match=f"piece 5, .*{sentence}"):
        Tokenizer([*SPECIAL_TOKENS, piece]).save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


# Vocabulary files


@pytest.mark.parametrize("end, mark", [("\n", ""), ("\r\n", ""), ("\r\n", "\ufeff")])
def test_vocabulary_files_from_any_system_are_read(tmp_path, end, mark):
    vocab = [*SPECIAL_TOKENS, "low", "\u2028", "\x85", "##er"]  # only a line feed ends a line
    (tmp_path / "vocab.txt").write_bytes((mark + end.join(vocab) + end).encode())
    assert Tokenizer.from_pretrained(tmp_path).vocab == vocab
    assert Tokenizer.from_pretrained(str(tmp_path / "vocab.txt")).vocab == vocab
    (tmp_path / "words").write_bytes(end.join(vocab).encode())  # no line end behind the last piece
    assert Tokenizer.from_pretrained(tmp_path / "words").vocab == vocab


def test_a_vocabulary_that_cannot_serve_is_named(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[CLS]\n[SEP]\n[MASK]\n")
    with pytest.raises(InputError, match=r"vocab.txt: this is not a vocabulary of BERT: \[UNK\] is missing"):
        Tokenizer.from_pretrained(tmp_path)


def test_a_line_is_an_id_whatever_stands_in_it(tmp_path):
    """Google's code and Hugging Face's read such files: of equal pieces the last line counts."""
    lines = [*SPECIAL_TOKENS, "$", "the", "", "sea", "$", "", "rose", "", ""]
    (tmp_path / "vocab.txt").write_text("\n".join(lines) + "\n")
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    assert tokenizer.encode("the $ sea rose") == [2, 6, 9, 8, 11, 3]
    assert tokenizer.vocab == lines[:12]  # blank lines at the end are no ids
    tokenizer.save_pretrained(tmp_path / "saved")
    again = Tokenizer.from_pretrained(tmp_path / "saved")
    assert (again.vocab, again.ids) == (tokenizer.vocab, tokenizer.ids)
    (tmp_path / "saved" / "vocab.txt").unlink()
    from_json = Tokenizer.from_pretrained(tmp_path / "saved")
    assert from_json.encode("the $ sea rose") == [2, 6, 9, 8, 11, 3]
    assert (from_json.vocab[5], len(from_json)) == ("", 12)


def test_vocab_txt_with_a_piece_twice_agrees_with_its_tokenizer_json(tmp_path):
    vocab = [*VOCAB, "low", "", "zz"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    ids = {piece: number for number, piece in enumerate(vocab) if piece}
    store(tmp_path, hugging_face(model={**model(), "vocab": ids}))
    assert Tokenizer.from_pretrained(tmp_path).vocab == vocab
    store(tmp_path, hugging_face(model={**model(), "vocab": ids | {"low": VOCAB.index("low"), "xx": 14}}))
    with pytest.raises(InputError, match="vocab.txt and tokenizer.json have different pieces"):
        Tokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "files",
    [
        {"added_tokens.json": {"word": 14}, "tokenizer_config.json": {"do_lower_case": True}},
        {"tokenizer_config.json": {"added_tokens_decoder": {"14": {"content": "word"}}}},
        {"tokenizer.json": hugging_face() | {"added_tokens": [{"content": "word", "id": 14}]}},
    ],
)
def test_added_tokens_that_are_not_special_are_read_and_saved(tmp_path, files):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB), encoding="utf-8")
    for name, content in files.items():
        store(tmp_path, content, name)
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    assert tokenizer.added_tokens == {14: AddedToken("word")}
    assert tokenizer.tokenize("lowWORDlow") == ["low", "word", "low"]
    tokenizer.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1] == VOCAB
    again = Tokenizer.from_pretrained(tmp_path / "saved")
    assert (again.vocab, again._options()) == (tokenizer.vocab, tokenizer._options())
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / "saved" / name).unlink()
    assert Tokenizer.from_pretrained(tmp_path / "saved").tokenize("lowWORDlow") == ["low", "word", "low"]


def test_a_folder_can_split_special_tokens(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB), encoding="utf-8")
    store(tmp_path, {"split_special_tokens": True}, "tokenizer_config.json")
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    assert "[MASK]" not in tokenizer.tokenize("[MASK]")
    tokenizer.save_pretrained(tmp_path / "saved")
    assert Tokenizer.from_pretrained(tmp_path / "saved").split_special_tokens


def test_missing_and_unreadable_files_are_named(tmp_path):
    with pytest.raises(InputError, match="has no vocab.txt"):
        Tokenizer.from_pretrained(tmp_path)
    with pytest.raises(InputError, match="nowhere.txt can't be read"):
        Tokenizer.from_pretrained(tmp_path / "nowhere.txt")
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(InputError, match="vocab.txt is not UTF-8: byte 0xff at offset 6"):
        Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL_TOKENS))
    for broken in ("{", "[]", "[" * 100_000):
        (tmp_path / "tokenizer_config.json").write_text(broken)
        with pytest.raises(InputError, match="tokenizer_config.json"):
            Tokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "config, sentence",
    [
        ({"do_lower_case": "no"}, "tokenizer_config.json: do_lower_case is 'no'; expected true or false"),
        ({"word_tokenizer_type": "mecab"}, "has word_tokenizer_type='mecab', but minibert has only 'basic'"),
        ({"do_basic_tokenize": False}, "has do_basic_tokenize=False, but minibert has only True"),
        ({"max_input_chars_per_word": True}, "max_input_chars_per_word is True; expected a whole number"),
        ({"never_split": "a"}, "never_split is 'a'; expected a list"),
        ({"never_split": [1]}, r"never_split\[0\]=1 is not a string"),
        ({"compat": "mine"}, "compat='mine' is unknown"),
        ({"additional_special_tokens": [["a"]]}, r"tokenizer_config.json: an additional special .* \['a'\];"),
        ({"extra_special_tokens": {"a": [1]}}, r"an additional special token is \[1\]; expected a string"),
        ({"additional_special_tokens": ["[NEW]"]}, r"additional_special_tokens='\[NEW\]' is not a piece"),
    ],
)
def test_a_configuration_that_cannot_be_is_named(tmp_path, config, sentence):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB), encoding="utf-8")
    store(tmp_path, config, "tokenizer_config.json")
    with pytest.raises(InputError, match=sentence):
        Tokenizer.from_pretrained(tmp_path)


# Hugging Face's


def test_a_folder_with_only_tokenizer_json_is_read(tmp_path):
    store(
        tmp_path, hugging_face(normalizer={**NORMALIZER, "lowercase": False, "handle_chinese_chars": False})
    )
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    assert tokenizer.vocab == VOCAB
    assert (tokenizer.lower_case, tokenizer.basic_tokenizer.strip_accents) == (False, False)
    assert not tokenizer.basic_tokenizer.tokenize_chinese_chars
    assert (tokenizer.max_input_chars_per_word, tokenizer.compat) == (100, "google")
    assert Tokenizer.from_pretrained(tmp_path, lower_case=True).tokenize("LOW") == ["low"]


def test_the_configuration_wins_over_tokenizer_json(tmp_path):
    store(tmp_path, hugging_face())
    store(tmp_path, {"do_lower_case": False, "strip_accents": True}, "tokenizer_config.json")
    basic = Tokenizer.from_pretrained(tmp_path).basic_tokenizer
    assert (basic.lower_case, basic.strip_accents, basic.tokenize_chinese_chars) == (False, True, True)


def test_added_special_tokens_are_pieces_that_stay_whole(tmp_path):
    content = hugging_face(added=[(len(VOCAB), "[NEW]"), (VOCAB.index("<x>"), "<x>")])
    store(tmp_path, content)
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    assert tokenizer.vocab == [*VOCAB, "[NEW]"]
    assert tokenizer.additional_special_tokens == ("[NEW]", "<x>")
    assert tokenizer.tokenize("low[NEW]<x>", special=True) == ["low", "[NEW]", "<x>"]
    for written in (
        {"additional_special_tokens": ["[NEW]", "[MASK]"]},
        {"extra_special_tokens": {"new": {"content": "[NEW]"}}},
    ):
        store(tmp_path, written, "tokenizer_config.json")
        assert Tokenizer.from_pretrained(tmp_path).additional_special_tokens == ("[NEW]", "<x>")


def test_beside_vocab_txt_tokenizer_json_gives_what_is_left_open(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB), encoding="utf-8")
    added = [(len(VOCAB), "[NEW]")]
    store(tmp_path, hugging_face(added=added, normalizer={**NORMALIZER, "lowercase": False}))
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    assert (tokenizer.vocab, tokenizer.lower_case) == ([*VOCAB, "[NEW]"], False)
    assert tokenizer.max_input_chars_per_word == 200  # vocab.txt is Google's
    store(tmp_path, hugging_face(vocab=[*SPECIAL_TOKENS, "other"]))
    with pytest.raises(InputError, match="vocab.txt and tokenizer.json have different pieces"):
        Tokenizer.from_pretrained(tmp_path)


def test_files_of_before_2020_that_do_not_name_their_model_are_read(tmp_path):
    store(tmp_path, hugging_face(model=model(type=None)))
    assert Tokenizer.from_pretrained(tmp_path / "tokenizer.json").vocab == VOCAB


IDS = {piece: i for i, piece in enumerate(VOCAB)}


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config.json": {"added_tokens_decoder": {"14": {"content": "[NEW]", "special": True}}}},
        {
            "added_tokens.json": {"[NEW]": 14},
            "special_tokens_map.json": {"additional_special_tokens": ["[NEW]"]},
            "tokenizer_config.json": {"additional_special_tokens": None},
        },
        {
            "added_tokens.json": {"[NEW]": 14},
            "tokenizer_config.json": {"additional_special_tokens": ["[NEW]"]},
        },
    ],
)
def test_tokens_added_to_vocab_txt_without_a_tokenizer_json_are_pieces(files, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB), encoding="utf-8")
    for name, content in files.items():
        store(tmp_path, content, name)
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    assert (tokenizer.vocab, tokenizer.additional_special_tokens) == ([*VOCAB, "[NEW]"], ("[NEW]",))
    assert tokenizer.tokenize("low[NEW]", special=True) == ["low", "[NEW]"]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"added_tokens.json": {"word": 99}}, "added token 'word' has id 99; expected one after the 14"),
        ({"added_tokens.json": {"[NEW]": "14"}}, "id of the added token .* is '14'; expected a whole number"),
        ({"tokenizer_config.json": {"added_tokens_decoder": []}}, "added_tokens_decoder is .*; expected an"),
        (
            {"tokenizer_config.json": {"added_tokens_decoder": {"x": {"content": "[A]", "special": True}}}},
            "id of the added token .* is 'x'; expected a whole number",
        ),
    ],
)
def test_tokens_added_to_vocab_txt_that_can_t_be_read_are_refused(files, sentence, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB), encoding="utf-8")
    for name, content in files.items():
        store(tmp_path, content, name)
    with pytest.raises(InputError, match=sentence):
        Tokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(("piece", "lower"), [("The", False), ("the", True), ("[The]", True)])
def test_in_a_folder_that_says_nothing_the_pieces_tell_the_case(piece, lower, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, piece]), encoding="utf-8")
    assert Tokenizer.from_pretrained(tmp_path).lower_case is lower
    assert Tokenizer.from_pretrained(tmp_path / "vocab.txt").lower_case
    assert Tokenizer.from_pretrained(tmp_path, lower_case=True).lower_case
    store(tmp_path, {"do_lower_case": True}, "tokenizer_config.json")
    assert Tokenizer.from_pretrained(tmp_path).lower_case


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"model": []}, "tokenizer.json has no model; give a tokenizer.json of a BERT, or vocab.txt"),
        ({"model": model(type="BPE")}, "is a BPE tokenizer; minibert reads WordPiece"),
        ({"model": model(unk_token=None)}, r"has unk_token=None; a BERT's WordPiece has '\[UNK\]'"),
        ({"model": model(unk_token="<unk>")}, "has unk_token='<unk>'"),
        ({"model": model(continuing_subword_prefix="@@")}, "continuing_subword_prefix='@@'; .* has '##'"),
        ({"model": {**model(), "vocab": None}}, "vocab is None; expected an object"),
        ({"model": {**model(), "vocab": [["a", -1.5]]}}, "vocab is .*; expected an object"),
        (
            {"model": {**model(), "vocab": {**IDS, "er": 99}}},
            "leaves out most ids; expected about 15 from 0 on",
        ),
        (
            {"model": {**model(), "vocab": {**IDS, "er": 0}}},
            "gives one id to two pieces",
        ),
        (
            {"model": {**model(), "vocab": {**IDS, "er": "x"}}},
            "an id in the vocabulary is not a number",
        ),
        ({"model": model(max_input_chars_per_word="x")}, "max_input_chars_per_word is 'x'; expected a whole"),
        ({"normalizer": None}, "has no normalizer"),
        ({"normalizer": {"type": "NFC"}}, "normalises with NFC; minibert reads BertNormalizer"),
        ({"normalizer": {**NORMALIZER, "clean_text": False}}, "has clean_text=false"),
        ({"normalizer": {**NORMALIZER, "lowercase": 1}}, "normalizer lowercase is 1; expected true or false"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "splits by Whitespace"),
        (
            {"added_tokens": [{"content": "x", "id": 1, "special": False}]},
            r"id 1 is that of '\[UNK\]' of the vocabulary and the added token 'x'",
        ),
        (
            {"added_tokens": [{"content": "[UNK]", "id": 7, "special": True}]},
            r"has '\[UNK\]' twice, as id 1 and 7",
        ),
        ({"added_tokens": [{"content": ["x"], "id": 1, "special": True}]}, r"token is \['x'\]; expected"),
        ({"added_tokens": [{"content": "x", "id": "1", "special": True}]}, "token 'x' is '1'; expected a"),
        ({"added_tokens": ["x"]}, "added token 'x' lacks content or id"),
        (
            {"added_tokens": [{"content": "<x>", "id": 13, "special": True, "single_word": "no"}]},
            "single_word of the added token '<x>' is 'no'; expected true or false",
        ),
    ],
)
def test_what_is_no_wordpiece_of_a_bert_is_refused(tmp_path, changes, sentence):
    store(tmp_path, hugging_face(**changes))
    with pytest.raises(InputError, match=sentence):
        Tokenizer.from_pretrained(tmp_path)


def test_a_json_file_of_something_else_is_not_a_vocabulary(tmp_path):
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    with pytest.raises(InputError, match="config.json is not a vocabulary; give a vocab.txt, a token"):
        Tokenizer.from_pretrained(tmp_path / "config.json")


def test_a_tokenizer_json_that_is_no_json_is_named(tmp_path):
    Path(tmp_path / "tokenizer.json").write_bytes(b"\xff{")
    with pytest.raises(InputError, match="tokenizer.json can't be read as JSON"):
        Tokenizer.from_pretrained(tmp_path)
