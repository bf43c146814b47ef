"""Vocabularies on disk: `vocab.txt` and `tokenizer_config.json`, and Hugging Face's `tokenizer.json`.

`vocab.txt` is Google's format: one piece a line, and the index of the line is the id. `tokenizer_config.json`
has the options. `tokenizer.json` has both, in the format of Hugging Face's `tokenizers`.
"""

import re
from contextlib import suppress
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

from minibert.base.errors import InputError
from minibert.base.files import atomic_json, atomic_text, nearest_folder, read_bytes
from minibert.base.json_files import fits, read_json, words
from minibert.base.model_names import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    locate,
    no_such_model,
)
from minibert.base.reading import not_utf8
from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer.added import AddedToken, is_found_by_cores

_ADDED = "added_tokens.json"
_SPECIAL = "special_tokens_map.json"

# Arguments of `Tokenizer`: name, name in tokenizer_config.json, name in tokenizer.json's normalizer, type.
_OPTIONS = (
    ("lower_case", "do_lower_case", "lowercase", bool),
    ("strip_accents", "strip_accents", "strip_accents", bool),
    ("tokenize_chinese_chars", "tokenize_chinese_chars", "handle_chinese_chars", bool),
    ("never_split", "never_split", None, list),
    ("max_input_chars_per_word", "max_input_chars_per_word", None, int),
    ("compat", "compat", None, str),
)
# Settings by which other tokenizers of `transformers` split words (MeCab, for Japanese); what minibert does.
_STEPS = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece", "do_basic_tokenize": True}


class Stored(NamedTuple):
    """The vocabulary and the options of a tokenizer, as read from a file or folder."""

    source: Path  # the file with the vocabulary
    vocab: list[str]
    options: dict[str, Any]  # arguments of `Tokenizer`


def read(path: Path) -> Stored:
    """Read a folder, that of `RUN@STEP`, or a vocabulary file: `vocab.txt` or `tokenizer.json`, by any name.

    In a folder, `vocab.txt` and `tokenizer_config.json` take precedence. What they don't say, namely added
    tokens and how text is normalised, comes from `tokenizer.json`; without `vocab.txt`, so does everything
    else. If there is neither JSON file, as in Google's folders, where only the name of the folder says it,
    the pieces decide whether text keeps its case. `added_tokens.json` is read, too.

    Parameters
    ----------
    path : Path
        The folder or file.

    Returns
    -------
    Stored
        Pieces and options, before `Tokenizer` checks them.

    Raises
    ------
    InputError
        When a file is missing, is not UTF-8 or JSON, or is not a BERT's WordPiece, or two files contradict
        each other.
    """
    path = locate(path).folder
    if not path.is_dir():
        return _read_file(path)
    text = path / VOCABULARY_FILE
    hugging_face = path / TOKENIZER_FILE
    config = read_json(path / TOKENIZER_CONFIG_FILE) if (path / TOKENIZER_CONFIG_FILE).exists() else {}
    options = _options_of_config(config, path / TOKENIZER_CONFIG_FILE)
    if not text.exists() and not hugging_face.exists():
        raise InputError(f"'{path}' has no vocab.txt; give a folder or file with a vocabulary.")
    if not text.exists():
        vocab, more = _read_tokenizer_json(hugging_face)
        return Stored(hugging_face, vocab, _merged(more, options))
    vocab = _read_vocab(text)
    if "compat" not in config and hugging_face.exists():
        # Not written by minibert, in whose folders both files say the same.
        whole, more = _read_tokenizer_json(hugging_face)
        if not _says_the_same(whole, vocab):
            raise InputError(f"{text} and {hugging_face.name} have different pieces; remove the wrong one.")
        more.pop("max_input_chars_per_word")  # with vocab.txt, Google's limit applies
        vocab = vocab + whole[len(vocab) :]
        options = _merged(more, options)
    elif added := _added_beside(path, config):
        ids = {piece: piece_id for piece_id, piece in enumerate(vocab)}
        more = _add_tokens(ids, added, path)
        vocab = vocab + _by_id(ids, path)[len(vocab) :]
        options = _merged(more, options)
    if not config and not hugging_face.exists():
        options["lower_case"] = not is_cased(vocab)
    return Stored(text, vocab, options)


def _read_file(path: Path) -> Stored:
    """Read a vocabulary file: a tokenizer.json if its name ends in ".json", otherwise one piece per line."""
    if not path.suffix and not path.exists():
        raise no_such_model(path)
    if path.suffix == ".json":
        vocab, options = _read_tokenizer_json(path)
        return Stored(path, vocab, options)
    return Stored(path, _read_vocab(path), {})


def _says_the_same(whole: list[str], vocab: list[str]) -> bool:
    """Return whether a tokenizer.json has the pieces of a vocab.txt.

    An id whose piece comes again further down has no entry there, nor has an id without a piece: "" at both.
    """
    last_id = {piece: piece_id for piece_id, piece in enumerate(vocab)}
    expected = [piece if last_id[piece] == piece_id else "" for piece_id, piece in enumerate(vocab)]
    return whole[: len(vocab)] == expected[: len(whole)] and not any(expected[len(whole) :])


def is_cased(vocab: list[str]) -> bool:
    """Return whether a vocabulary is for text that keeps its case.

    Parameters
    ----------
    vocab : list of str
        The pieces; those that begin with "[" do not count.

    Returns
    -------
    bool
        True if more than one piece in a hundred has a capital.

    Examples
    --------
    >>> is_cased(["[PAD]", "[UNK]", "the", "##s"]), is_cased(["[PAD]", "The", "the"])
    (False, True)
    """
    capital = [piece for piece in vocab if any(map(str.isupper, piece)) and not piece.startswith("[")]
    # The released Chinese vocabulary has two pieces with capitals although its text is lower-cased.
    return len(capital) > len(vocab) / 100


def _added_beside(path: Path, config: dict[str, Any]) -> list[dict[str, Any]]:
    """Read the tokens that `transformers`' tokenizers in Python have added to `vocab.txt`."""
    decoder = config.get("added_tokens_decoder")
    if decoder is not None:
        _of_kind(decoder, dict, f"{path / TOKENIZER_CONFIG_FILE}: added_tokens_decoder")
        tokens = []
        for key, token in decoder.items():
            _of_kind(token, dict, f"{path / TOKENIZER_CONFIG_FILE}: added token {key}")
            number = int(key) if re.fullmatch("[0-9]{1,18}", key) else key
            tokens.append(token | {"id": number})
        return tokens
    if not (path / _ADDED).exists():  # a separate file before version 4.34
        return []
    special = read_json(path / _SPECIAL) if (path / _SPECIAL).exists() else {}
    options = _options_of_config({**config, **special}, path / _SPECIAL)
    names = {*SPECIAL_TOKENS, *options.get("additional_special_tokens", ())}
    return [
        {"content": text, "id": number, "special": text in names, "normalized": text not in names}
        for text, number in read_json(path / _ADDED).items()
    ]


def _merged(options: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Merge options of tokenizer.json and the configuration, which wins; special tokens come from both."""
    special = [
        *options.get("additional_special_tokens", ()),
        *config.get("additional_special_tokens", ()),
    ]
    return {**options, **config, "additional_special_tokens": list(dict.fromkeys(special))}


def _read_vocab(path: Path) -> list[str]:
    """Read the pieces, one per line. Only "\\n" ends a line: the Chinese vocabulary has U+2028 as a piece.

    Every line is an id, as in Google's code and Hugging Face's: a blank line is an id without a piece, and
    the last line of a repeated piece counts. Blank lines at the end are ignored.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror}); give a vocabulary.") from error
    except UnicodeDecodeError as error:
        raise not_utf8(path, error, 0) from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _options_of_config(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """Read arguments of `Tokenizer` from a `tokenizer_config.json`, ours or Hugging Face's."""
    for name, ours in _STEPS.items():
        if config.get(name) not in (None, ours):
            raise InputError(
                f"{path} has {name}={short(config[name])}, but minibert has only {ours!r}, whose pieces are "
                "not those that the model was trained on; give another model, or remove the entry and split "
                "the words of the text yourself."
            )
    options = {}
    for argument, name, _, kind in _OPTIONS:
        value = config.get(name)
        if value is not None:
            options[argument] = _of_kind(value, kind, f"{path}: {name}")
    special: list[Any] = []
    # `transformers` uses the first name up to version 4, and the second from version 5 on.
    for name in ("additional_special_tokens", "extra_special_tokens"):
        value = config.get(name) or []
        if isinstance(value, dict):
            special += value.values()
        else:
            special += _of_kind(value, list, f"{path}: {name}")
    tokens = []
    for token in special:
        content = token.get("content") if isinstance(token, dict) else token
        tokens.append(_of_kind(content, str, f"{path}: an additional special token"))
    if tokens:
        options["additional_special_tokens"] = [token for token in tokens if token not in SPECIAL_TOKENS]
    split = config.get("split_special_tokens")
    if split is not None:
        options["split_special_tokens"] = _of_kind(split, bool, f"{path}: split_special_tokens")
    return options


def _read_tokenizer_json(path: Path) -> tuple[list[str], dict[str, Any]]:
    """Read pieces by id, and arguments of `Tokenizer`, from a `tokenizer.json` of a BERT."""
    content = read_json(path)
    if "model" not in content:
        advice = "give a vocab.txt, a tokenizer.json, or the folder with one of them."
        raise InputError(f"{path} is not a vocabulary; {advice}")
    model = _part(content, "model", path)
    kind = model.get("type", "WordPiece")  # files from before 2020 lack the type
    if kind != "WordPiece":
        raise InputError(f"{path} is a {kind} tokenizer; minibert reads WordPiece, the kind that BERT uses.")
    for name, expected in (("unk_token", "[UNK]"), ("continuing_subword_prefix", "##")):
        if model.get(name) != expected:
            raise InputError(f"{path} has {name}={model.get(name)!r}; a BERT's WordPiece has {expected!r}.")
    normalizer = _bert_normalizer(_part(content, "normalizer", path), path)
    if normalizer.get("clean_text") is False:
        raise InputError(f"{path} has clean_text=false; minibert always cleans text, as BERT does.")
    pre_tokenizer = _part(content, "pre_tokenizer", path)
    if pre_tokenizer.get("type") != "BertPreTokenizer":
        raise InputError(f"{path} splits by {pre_tokenizer.get('type')}; minibert reads BertPreTokenizer.")
    options = {}
    for argument, _, field, kind in _OPTIONS:
        if field and normalizer.get(field) is not None:
            options[argument] = _of_kind(normalizer[field], kind, f"{path}: normalizer {field}")
    limit = model.get("max_input_chars_per_word", 100)
    options["max_input_chars_per_word"] = _of_kind(limit, int, f"{path}: max_input_chars_per_word")
    ids = _of_kind(model.get("vocab"), dict, f"{path}: vocab")
    added = _of_kind(content.get("added_tokens", []), list, f"{path}: added_tokens")
    options |= _add_tokens(ids, added, path)
    return _by_id(ids, path), options


def _bert_normalizer(normalizer: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the fields of a BertNormalizer, including the effect of Lowercase steps before it.

    sentence-transformers writes a sequence of Lowercase and BertNormalizer for a model with `do_lower_case`.
    """
    steps = [normalizer]
    if normalizer.get("type") == "Sequence":
        steps = _of_kind(normalizer.get("normalizers"), list, f"{path}: normalizers")
    kinds = [step.get("type") if isinstance(step, dict) else None for step in steps]
    if kinds[-1:] != ["BertNormalizer"] or set(kinds[:-1]) - {"Lowercase"}:
        shown = " and ".join(map(str, kinds)) or "nothing"
        raise InputError(f"{path} normalises with {shown}; minibert reads BertNormalizer.")
    last: dict[str, Any] = steps[-1]
    if len(steps) == 1:
        return last
    strip_accents = last.get("strip_accents")
    if strip_accents is None:
        strip_accents = last.get("lowercase", True)  # by default it follows the switch of its own step
    return last | {"lowercase": True, "strip_accents": strip_accents}


def _add_tokens(ids: dict[str, int], added: list[Any], path: Path) -> dict[str, Any]:
    """Return added tokens as arguments of `Tokenizer`, without BERT's five.

    If all of them are plain special tokens, they become pieces of the vocabulary, as in folders that minibert
    writes.

    Parameters
    ----------
    ids : dict of str to int
        Ids of the pieces; tokens that become pieces are added to it.
    added : list of dict
        Content, id and flags of each token, as in `added_tokens` of a tokenizer.json.
    path : Path
        The file with the tokens, for errors.
    """
    tokens = {}
    for fields in added:
        token_id, token = _added_token(fields, path)
        tokens[token_id] = token
        if ids.get(token.content, token_id) != token_id:
            both_ids = f"as id {ids[token.content]} and {token_id}"
            raise InputError(f"{path} has {token.content!r} twice, {both_ids}; remove one.")
    plain = {token_id: token.content for token_id, token in tokens.items() if _is_plain(token)}
    if len(plain) == len(tokens):
        for token_id, text in plain.items():
            ids[text] = token_id
    pieces = {token_id: text for token_id, text in plain.items() if text in ids}
    others = {token_id: token for token_id, token in tokens.items() if token_id not in pieces}
    special = [text for text in pieces.values() if text not in SPECIAL_TOKENS]
    options: dict[str, Any] = {"additional_special_tokens": special}
    if others:
        options["added_tokens"] = others
    return options


def _added_token(fields: Any, path: Path) -> tuple[int, AddedToken]:
    """Return the id and flags of an added token in a tokenizer.json."""
    try:
        text = fields["content"]
        number = fields["id"]
        is_special = fields.get("special", False)
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"added token {fields!r} lacks content or id; restore it.", where=str(path)
        ) from error
    _of_kind(text, str, f"{path}: content of an added token")
    where = f"of the added token {text!r}"
    _of_kind(number, int, f"{path}: id {where}")
    flags = {"special": is_special, "normalized": fields.get("normalized", not is_special)}
    for name in ("single_word", "lstrip", "rstrip"):
        flags[name] = fields.get(name, False)
    for name, flag in flags.items():
        _of_kind(flag, bool, f"{path}: {name} {where}")
    return number, AddedToken(text, **flags)


def _is_plain(token: AddedToken) -> bool:
    """Return whether a token is a plain special token, like BERT's."""
    if not token.special or token.normalized or token.single_word:
        return False
    return is_found_by_cores(token.content)


def _by_id(ids: dict[str, int], path: Path) -> list[str]:
    """Return pieces by id, "" at unused ids, which come from a vocab.txt that has a piece twice."""
    if not all(fits(number, int) for number in ids.values()):
        raise InputError("an id in the vocabulary is not a number; restore the file.", where=str(path))
    if len(set(ids.values())) < len(ids):
        raise InputError(f"{path} gives one id to two pieces; restore the file.")
    size = max(ids.values(), default=-1) + 1
    if min(ids.values(), default=0) < 0 or size > 2 * len(ids):
        raise InputError(f"{path} leaves out most ids; expected about {len(ids)} from 0 on.")
    vocab = [""] * size
    for piece, number in ids.items():
        vocab[number] = piece
    return vocab


def _part(content: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    """Return a part of a tokenizer.json; raise InputError when it is not there."""
    part = content.get(name)
    if not isinstance(part, dict):
        raise InputError(f"{path} has no {name}; give a tokenizer.json of a BERT, or vocab.txt.")
    return part


def _of_kind(value: Any, kind: Any, where: str) -> Any:
    """Return a value; raise InputError when it is of another type."""
    if not fits(value, kind):
        raise InputError(f"{where} is {short(value)}; expected {words(kind)}.")
    return value


def write(
    folder: Path, pieces: list[str], vocab: list[str], options: dict[str, Any], model_max_length: int
) -> None:
    """Write the three files, so that there is never a vocabulary without its options.

    `tokenizer_config.json` is written last: if it exists, the folder is complete. If writing is interrupted
    before that, `tokenizer.json` with its options is there before `vocab.txt` is. After an error, files that
    did not exist before are removed.

    Parameters
    ----------
    folder : Path
        The folder for the files, created if need be.
    pieces : list of str
        The pieces that words are split into, by id.
    vocab : list of str
        The same with added tokens, by id.
    options : dict
        Every other argument of `Tokenizer`, except `core`.
    model_max_length : int
        The number of positions P of the model that goes with this vocabulary.

    Raises
    ------
    InputError
        When a piece contains a line end or can't be encoded as UTF-8, or `folder` is a file.
    RunError
        When the operating system refuses.
    """
    nearest_folder(folder, "another folder")
    for number, piece in enumerate(vocab):
        if "\n" in piece or piece.endswith("\r"):
            raise InputError(f"piece {number}, {piece!r}, has a line end; vocab.txt has one piece per line.")
        if not piece.isascii() and any("\ud800" <= character <= "\udfff" for character in piece):
            raise InputError(f"piece {number}, {piece!r}, can't be written as UTF-8; take it out.")
    config = _config_json(options, model_max_length)
    config_path = folder / TOKENIZER_CONFIG_FILE
    vocab_path = folder / VOCABULARY_FILE
    hugging_face = folder / TOKENIZER_FILE
    fresh = [path for path in (hugging_face, vocab_path, config_path) if not path.exists()]
    try:
        atomic_json(hugging_face, _tokenizer_json(pieces, vocab, options))
        atomic_text(vocab_path, "".join(f"{piece}\n" for piece in pieces))
        atomic_json(config_path, config)
    except Exception:
        for path in fresh:
            with suppress(OSError):
                path.unlink()
        raise


def _config_json(options: dict[str, Any], model_max_length: int) -> dict[str, Any]:
    """Make the contents of `tokenizer_config.json`, with Hugging Face's names and minibert's."""
    config: dict[str, Any] = {"tokenizer_class": "BertTokenizer"}
    for argument, name, _, _ in _OPTIONS:
        config[name] = options[argument]
    config["additional_special_tokens"] = options["additional_special_tokens"]
    config["model_max_length"] = model_max_length
    for token in SPECIAL_TOKENS:
        role = token.strip("[]").lower()  # as in "mask_token"
        config[f"{role}_token"] = token
    if options["split_special_tokens"]:
        config["split_special_tokens"] = True
    added = sorted(options["added_tokens"].items())
    if added:
        config["added_tokens_decoder"] = {str(number): token._asdict() for number, token in added}
    return config


def _tokenizer_json(pieces: list[str], vocab: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Make the contents of tokenizer.json, which can't express `never_split`."""
    ids = {piece: number for number, piece in enumerate(vocab)}
    matching = {piece: number for number, piece in enumerate(pieces) if piece}
    if len(matching) < len(pieces):
        # `tokenizers` numbers added tokens from the count of pieces on, so every id needs its piece.
        matching = {piece: number for piece, number in ids.items() if piece}
    added = {}
    for text in (*SPECIAL_TOKENS, *options["additional_special_tokens"]):
        added[ids[text]] = AddedToken(text, special=True, normalized=False)
    added |= options["added_tokens"]
    normalizer: dict[str, Any] = {"type": "BertNormalizer", "clean_text": True}
    for argument, _, name, _ in _OPTIONS:
        if name:
            normalizer[name] = options[argument]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, **_flags(token)} for number, token in sorted(added.items())],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _post_processor(ids),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": options["max_input_chars_per_word"],
            "vocab": matching,
        },
    }


def _flags(token: AddedToken) -> dict[str, Any]:
    """Return an added token in the format of tokenizer.json."""
    names = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return {name: getattr(token, name) for name in names}


def _post_processor(ids: dict[str, int]) -> dict[str, Any]:
    """Return the "post_processor" of tokenizer.json, which puts [CLS] and [SEP] around a text or a pair."""
    first = [_special("[CLS]", 0), {"Sequence": {"id": "A", "type_id": 0}}, _special("[SEP]", 0)]
    second = [{"Sequence": {"id": "B", "type_id": 1}}, _special("[SEP]", 1)]
    special_tokens = {}
    for token in ("[CLS]", "[SEP]"):
        special_tokens[token] = {"id": token, "ids": [ids[token]], "tokens": [token]}
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": first + second,
        "special_tokens": special_tokens,
    }


def _special(token: str, type_id: int) -> dict[str, Any]:
    """Return the entry of a special token in a template."""
    return {"SpecialToken": {"id": token, "type_id": type_id}}
