"""Vocabularies on disk: `vocab.txt` and `tokenizer_config.json`, and Hugging Face's `tokenizer.json`.

`vocab.txt` is Google's: one piece a line, the place of a line is the id of its piece. `tokenizer_config.json`
holds the options. `tokenizer.json` holds both, in the words of Hugging Face's `tokenizers`.
"""

import re
from contextlib import suppress
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

from minibert.base.errors import InputError
from minibert.base.files import atomic_json, atomic_text, nearest_folder, read_bytes
from minibert.base.json_files import fits, read_json, words
from minibert.base.model_names import locate, no_such_model
from minibert.base.reading import not_utf8
from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer.added import AddedToken, is_found_by_cores

_CONFIG, _ADDED, _SPECIAL = "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"

# Our arguments; their names in tokenizer_config.json, in the normalizer of tokenizer.json; their types.
_OPTIONS = (
    ("lower_case", "do_lower_case", "lowercase", bool),
    ("strip_accents", "strip_accents", "strip_accents", bool),
    ("tokenize_chinese_chars", "tokenize_chinese_chars", "handle_chinese_chars", bool),
    ("never_split", "never_split", None, list),
    ("max_input_chars_per_word", "max_input_chars_per_word", None, int),
    ("compat", "compat", None, str),
)
# How other tokenizers of `transformers` part words, MeCab for Japanese, and what minibert does.
_STEPS = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece", "do_basic_tokenize": True}


class Stored(NamedTuple):
    """What a file or folder says about a tokenizer."""

    source: Path  # the file that the vocabulary is from
    vocab: list[str]
    options: dict[str, Any]  # arguments of `Tokenizer`


def read(path: Path) -> Stored:
    """Read a folder, that of `RUN@STEP`, or a vocabulary file: `vocab.txt` or `tokenizer.json`, by any name.

    In a folder, `vocab.txt` and `tokenizer_config.json` count. What they leave open, a `tokenizer.json`
    beside them decides: pieces that were added to the vocabulary, and how text is normalised. Without
    `vocab.txt` it gives everything. Where neither of the two is there, as in Google's folders, which tell it
    by their names alone, the pieces tell whether text keeps its case. `added_tokens.json` is read, too. Raise
    InputError when a file is missing, is not UTF-8 or JSON, does not hold a BERT's WordPiece, or two
    contradict.
    """
    if not (path := locate(path).folder).is_dir():
        if not path.suffix and not path.exists():
            raise no_such_model(path)
        if path.suffix == ".json":
            return Stored(path, *_read_tokenizer_json(path))
        return Stored(path, _read_vocab(path), {})
    config = read_json(path / _CONFIG) if (path / _CONFIG).exists() else {}
    options = _options_of_config(config, path / _CONFIG)
    text, hugging_face = path / "vocab.txt", path / "tokenizer.json"
    if not text.exists() and not hugging_face.exists():
        raise InputError(f"{path} has no vocab.txt; give a folder or file with a vocabulary.")
    if not text.exists():
        vocab, found = _read_tokenizer_json(hugging_face)
        return Stored(hugging_face, vocab, _merged(found, options))
    vocab = _read_vocab(text)
    if "compat" not in config and hugging_face.exists():  # not a folder of ours, whose files say the same
        whole, found = _read_tokenizer_json(hugging_face)
        if not _says_the_same(whole, vocab):
            raise InputError(f"{text} and {hugging_face.name} have different pieces; remove the wrong one.")
        found.pop("max_input_chars_per_word")  # vocab.txt has no limit but Google's
        vocab, options = vocab + whole[len(vocab) :], _merged(found, options)
    elif added := _added_beside(path, config):
        ids = {piece: number for number, piece in enumerate(vocab)}
        found = _add_tokens(ids, added, path)
        vocab, options = vocab + _by_id(ids, path)[len(vocab) :], _merged(found, options)
    if not config and not hugging_face.exists():
        options["lower_case"] = not is_cased(vocab)
    return Stored(text, vocab, options)


def _says_the_same(whole: list[str], vocab: list[str]) -> bool:
    """Tell whether a tokenizer.json has the pieces of a vocab.txt.

    It has no line for a piece that comes again further down, nor for none: "" at such an id.
    """
    last = {piece: number for number, piece in enumerate(vocab)}
    expected = [piece if last[piece] == number else "" for number, piece in enumerate(vocab)]
    return whole[: len(vocab)] == expected[: len(whole)] and not any(expected[len(whole) :])


def is_cased(vocab: list[str]) -> bool:
    """Tell whether a vocabulary is one of text that keeps its case.

    Examples
    --------
    >>> is_cased(["[PAD]", "[UNK]", "the", "##s"]), is_cased(["[PAD]", "The", "the"])
    (False, True)
    """
    capital = [piece for piece in vocab if any(map(str.isupper, piece)) and not piece.startswith("[")]
    return len(capital) > len(vocab) / 100  # the released Chinese one, lower-cased, has two all the same


def _added_beside(path: Path, config: dict[str, Any]) -> list[dict[str, Any]]:
    """Read what tokenizers of `transformers` written in Python have added to `vocab.txt`."""
    if (decoder := config.get("added_tokens_decoder")) is not None:
        _of_kind(decoder, dict, f"{path / _CONFIG}: added_tokens_decoder")
        ids = {number: int(number) if re.fullmatch("[0-9]{1,18}", number) else number for number in decoder}
        where = f"{path / _CONFIG}: added token"
        return [_of_kind(one, dict, f"{where} {n}") | {"id": ids[n]} for n, one in decoder.items()]
    if not (path / _ADDED).exists():  # in files of its own before version 4.34
        return []
    special = read_json(path / _SPECIAL) if (path / _SPECIAL).exists() else {}
    names = _options_of_config({**config, **special}, path / _SPECIAL).get("additional_special_tokens", ())
    names = {*SPECIAL_TOKENS, *names}
    added = read_json(path / _ADDED).items()
    flags = ({"special": text in names, "normalized": text not in names} for text, _ in added)
    return [{"content": text, "id": number} | one for (text, number), one in zip(added, flags, strict=True)]


def _merged(found: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Merge options of tokenizer.json and of the configuration, which wins; special tokens of both."""
    special = [*found.get("additional_special_tokens", ()), *config.get("additional_special_tokens", ())]
    return {**found, **config, "additional_special_tokens": list(dict.fromkeys(special))}


def _read_vocab(path: Path) -> list[str]:
    """Read the pieces, one a line that "\\n" ends: the Chinese vocabulary has U+2028 as a piece.

    A line is an id, as in Google's code and Hugging Face's: a blank one has no piece, and of a piece that
    comes twice the last line counts. Blank lines at the end are none.
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
                f"{path} has {name}={short(config[name])}, and minibert does {ours!r} only, whose pieces "
                "are not those that the model has learnt; give another model, or part words and remove it."
            )
    options = {}
    for argument, name, _, kind in _OPTIONS:
        if (value := config.get(name)) is not None:
            options[argument] = _of_kind(value, kind, f"{path}: {name}")
    special: list[Any] = []
    for name in ("additional_special_tokens", "extra_special_tokens"):  # until version 4, and from 5 on
        value = config.get(name) or []
        special += value.values() if isinstance(value, dict) else _of_kind(value, list, f"{path}: {name}")
    where = f"{path}: an additional special token"
    special = [_of_kind(one.get("content") if isinstance(one, dict) else one, str, where) for one in special]
    if special:
        options["additional_special_tokens"] = [token for token in special if token not in SPECIAL_TOKENS]
    if (split := config.get("split_special_tokens")) is not None:
        options["split_special_tokens"] = _of_kind(split, bool, f"{path}: split_special_tokens")
    return options


def _read_tokenizer_json(path: Path) -> tuple[list[str], dict[str, Any]]:
    """Read pieces by id, and arguments of `Tokenizer`, from a `tokenizer.json` of a BERT."""
    content = read_json(path)
    model = _part(content, "model", path)
    kind = model.get("type", "WordPiece")  # files of before 2020 don't say it
    if kind != "WordPiece":
        raise InputError(f"{path} is a {kind} tokenizer; minibert reads WordPiece, the kind that BERT uses.")
    for name, expected in (("unk_token", "[UNK]"), ("continuing_subword_prefix", "##")):
        if model.get(name) != expected:
            raise InputError(f"{path} has {name}={model.get(name)!r}; a BERT's WordPiece has {expected!r}.")
    if (normalizer := _part(content, "normalizer", path)).get("type") != "BertNormalizer":
        raise InputError(f"{path} normalises with {normalizer.get('type')}; minibert reads BertNormalizer.")
    if normalizer.get("clean_text") is False:
        raise InputError(f"{path} has clean_text=false; minibert always cleans text, as BERT does.")
    if (pre_tokenizer := _part(content, "pre_tokenizer", path)).get("type") != "BertPreTokenizer":
        raise InputError(f"{path} splits by {pre_tokenizer.get('type')}; minibert reads BertPreTokenizer.")
    options = {
        argument: _of_kind(normalizer[name], kind, f"{path}: normalizer {name}")
        for argument, _, name, kind in _OPTIONS
        if name and normalizer.get(name) is not None
    }
    limit = model.get("max_input_chars_per_word", 100)
    options["max_input_chars_per_word"] = _of_kind(limit, int, f"{path}: max_input_chars_per_word")
    ids = _of_kind(model.get("vocab"), dict, f"{path}: vocab")
    added = _of_kind(content.get("added_tokens", []), list, f"{path}: added_tokens")
    options |= _add_tokens(ids, added, path)
    return _by_id(ids, path), options


def _add_tokens(ids: dict[str, int], added: list[Any], path: Path) -> dict[str, Any]:
    """Return added tokens as arguments of `Tokenizer`, BERT's five left out.

    Where all of them are special ones that need nothing else, they become pieces of the vocabulary, as in the
    folders that we write.

    Parameters
    ----------
    ids : ids of the pieces; those that become pieces are put in.
    added : content, id and flags of each, as in `added_tokens` of a tokenizer.json.
    path : where they stand, for errors.
    """
    tokens = {}
    for one in added:
        try:
            text, number, is_special = one["content"], one["id"], one.get("special", False)
        except (TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{path}: added token {one!r} lacks content or id; restore it.") from error
        _of_kind(text, str, f"{path}: content of an added token")
        where = f"of the added token {text!r}"
        _of_kind(number, int, f"{path}: id {where}")
        flags = {"special": is_special, "normalized": one.get("normalized", not is_special)}
        flags |= {name: one.get(name, False) for name in ("single_word", "lstrip", "rstrip")}
        flags = {name: _of_kind(flag, bool, f"{path}: {name} {where}") for name, flag in flags.items()}
        tokens[number] = AddedToken(text, **flags)
        if ids.get(text, number) != number:
            raise InputError(f"{path} has {text!r} twice, as id {ids[text]} and {number}; remove one.")
    plain = {
        number: token.content
        for number, token in tokens.items()
        if token.special and not (token.normalized or token.single_word) and is_found_by_cores(token.content)
    }
    if len(plain) == len(tokens):
        ids |= {text: number for number, text in plain.items()}
    pieces = {number: text for number, text in plain.items() if text in ids}
    special = [text for text in pieces.values() if text not in SPECIAL_TOKENS]
    others = {number: token for number, token in tokens.items() if number not in pieces}
    return {"additional_special_tokens": special} | ({"added_tokens": others} if others else {})


def _by_id(ids: dict[str, int], path: Path) -> list[str]:
    """Return pieces by their ids, "" where there is none: of a vocab.txt that has another piece twice."""
    if not all(fits(number, int) for number in ids.values()):
        raise InputError(f"{path}: an id in the vocabulary is no number; restore the file.")
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
    if not isinstance(part := content.get(name), dict):
        raise InputError(f"{path} has no {name}; give a tokenizer.json of a BERT, or vocab.txt.")
    return part


def _of_kind(value: Any, kind: Any, where: str) -> Any:
    if not fits(value, kind):
        raise InputError(f"{where} is {short(value)}; expected {words(kind)}.")
    return value


def write(
    folder: Path, pieces: list[str], vocab: list[str], options: dict[str, Any], model_max_length: int
) -> None:
    """Write the three files, so that there is never a vocabulary without its options.

    `pieces` are those that words are cut into, `vocab` has added tokens besides, both by id.

    `tokenizer_config.json` comes last: where it stands, the folder is complete. Should the work be cut off
    before, the options that `tokenizer.json` knows are there already when `vocab.txt` appears.
    `model_max_length` is the number of positions of the model that goes with this vocabulary. Raise
    InputError when a piece holds a line end or is no UTF-8, or `folder` is a file; RunError when the
    operating system refuses; files that were not there before are removed.
    """
    nearest_folder(folder, "another folder")
    for number, piece in enumerate(vocab):
        if "\n" in piece or piece.endswith("\r"):
            raise InputError(f"piece {number}, {piece!r}, holds a line end; vocab.txt has a piece a line.")
        if not piece.isascii() and any("\ud800" <= character <= "\udfff" for character in piece):
            raise InputError(f"piece {number}, {piece!r}, can't be written as UTF-8; take it out.")
    config = {"tokenizer_class": "BertTokenizer"} | {name: options[own] for own, name, _, _ in _OPTIONS}
    config |= {"additional_special_tokens": options["additional_special_tokens"]}
    config |= {"model_max_length": model_max_length}
    config |= {f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS}
    if options["split_special_tokens"]:
        config |= {"split_special_tokens": True}
    if added := options["added_tokens"]:
        config |= {"added_tokens_decoder": {str(i): token._asdict() for i, token in sorted(added.items())}}
    paths = [folder / name for name in ("tokenizer.json", "vocab.txt", _CONFIG)]
    fresh = [path for path in paths if not path.exists()]
    try:
        atomic_json(paths[0], _tokenizer_json(pieces, vocab, options))
        atomic_text(paths[1], "".join(f"{piece}\n" for piece in pieces))
        atomic_json(paths[2], config)
    except Exception:
        for path in fresh:
            with suppress(OSError):
                path.unlink()
        raise


def _tokenizer_json(pieces: list[str], vocab: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Make what `tokenizers.Tokenizer.from_file` reads; it has no word for `never_split`."""
    ids = {piece: number for number, piece in enumerate(vocab)}
    matching = {piece: number for number, piece in enumerate(pieces) if piece}
    if len(matching) < len(pieces):  # added tokens get the number of pieces as their first id there
        matching = {piece: number for piece, number in ids.items() if piece}
    special = (*SPECIAL_TOKENS, *options["additional_special_tokens"])
    added = {ids[one]: AddedToken(one, special=True, normalized=False) for one in special}
    added |= options["added_tokens"]
    first = [_special("[CLS]", 0), {"Sequence": {"id": "A", "type_id": 0}}, _special("[SEP]", 0)]
    second = [{"Sequence": {"id": "B", "type_id": 1}}, _special("[SEP]", 1)]
    around = {one: {"id": one, "ids": [ids[one]], "tokens": [one]} for one in ("[CLS]", "[SEP]")}
    template = {"single": first, "pair": first + second, "special_tokens": around}
    how = {name: options[argument] for argument, _, name, _ in _OPTIONS if name}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **_flags(token)} for i, token in sorted(added.items())],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, **how},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", **template},
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
    """Return an added token as it stands in a tokenizer.json."""
    names = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return {name: getattr(token, name) for name in names}


def _special(token: str, type_id: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": type_id}}
