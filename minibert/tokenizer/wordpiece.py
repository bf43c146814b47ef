"""`Tokenizer`: text to WordPiece ids and back, by one of two cores with the same results.

`GreedyCore` in greedy.py is the readable core; the fast one is in C, behind native.py. encoding.py makes
sequences for the model from their pieces; formats.py reads and writes files.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from operator import index
from pathlib import Path
from reprlib import repr as short
from typing import Any, overload

import numpy as np

from minibert.base.errors import InputError, did_you_mean, naming, warn
from minibert.base.foreign_names import (
    ExplainsNames,
    explains_folder,
    explains_foreign_arguments,
    explains_foreign_attributes,
    refuse_unknown,
)
from minibert.base.paths import path_of
from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer import formats, native
from minibert.tokenizer.added import AddedToken, AddedTokensCore, is_found_by_cores
from minibert.tokenizer.encoding import BatchEncoding, Encoding, Limit, TextEncoding, lay_out, whole_number
from minibert.tokenizer.familiar import FamiliarNames
from minibert.tokenizer.greedy import GreedyCore
from minibert.tokenizer.normalize import MAX_CHARS, BasicTokenizer, is_punctuation

# Arguments of `Tokenizer` for --cased, whatever a folder says.
CASED = {"lower_case": False, "strip_accents": False}


def text_rules(cased: bool = False, keep_accents: bool = False, segmented: bool = False) -> dict[str, Any]:
    """Return arguments of `Tokenizer` that override those of a folder.

    Parameters
    ----------
    cased : bool, default False
        Keep case and accents.
    keep_accents : bool, default False
        Keep accents, and the vowel signs and tone marks that are stripped with them; case is left alone.
    segmented : bool, default False
        Split words only at spaces, in Chinese too: ideographs are letters like others.

    Returns
    -------
    dict
        Arguments for `Tokenizer.from_pretrained(path, **rules)`; {} if every switch is off.
    """
    rules: dict[str, Any] = {}
    if cased:
        rules |= CASED
    if keep_accents:
        rules["strip_accents"] = False
    if segmented:
        rules["tokenize_chinese_chars"] = False
    return rules


@explains_foreign_attributes
class Tokenizer(FamiliarNames, metaclass=ExplainsNames):
    """Turn text into WordPiece ids and back.

    Special tokens that are written out in a text, such as "[MASK]" or one of the model's own, are always one
    piece each, as in Hugging Face's tokenizers. With `split_special_tokens` they are read letter by letter,
    as in Google's code.

    Parameters
    ----------
    vocab : iterable of str
        The pieces; the index of a piece is its id. A piece that occurs twice has its last index, and "" is an
        id without a piece: both as in Google's code and Hugging Face's.
    lower_case : bool, default True
        Lower-case and strip accents (the uncased models).
    strip_accents : bool or None
        Overrides what `lower_case` says about accents; by default the same.
    tokenize_chinese_chars : bool, default True
        Make a word of every CJK ideograph.
    never_split : iterable of str
        Words that are neither lower-cased nor split where they have spaces around them; one that is not a
        piece becomes [UNK]. By default none.
    max_input_chars_per_word : int or None
        The most characters of a word; a longer one becomes [UNK]. By default 200, in Hugging Face's two modes
        100.
    compat : {"google", "hf-slow", "hf-fast"}, default "google"
        Whose rules to follow: "google", the released code; "hf-slow", Hugging Face's tokenizer in Python;
        "hf-fast", theirs in Rust. See `BasicTokenizer`; "hf-fast" also truncates pairs as theirs does.
    additional_special_tokens : iterable of str
        Pieces that are special in addition to BERT's five: one piece wherever they occur in a text, in
        exactly this case. By default none.
    added_tokens : mapping of int to AddedToken, or None
        Further strings, by id, that are one piece wherever they occur in a text, as in Hugging Face's
        `added_tokens_decoder`. If `vocab` has a piece with that id, the string must be that piece; otherwise
        words are not split into it.
    split_special_tokens : bool, default False
        Whether to read special tokens that are written out in a text letter by letter.
    core : {"auto", "c", "python"}, default "auto"
        Which core splits words; "auto" is C if its extension is built. They differ only in speed.

    Attributes
    ----------
    vocab : list of str
        The V pieces and added tokens, by id; "" if an id has neither.
    vocab_size : int
        V.
    ids : dict of str to int
        The id of each piece; for equal pieces the last.
    special_ids : tuple of int
        Ids of [PAD] [UNK] [CLS] [SEP] [MASK], also as `pad_id`, `unk_id`, `cls_id`, `sep_id`, `mask_id`.
    mask_token, mask_token_id, cls_token, cls_token_id, … : str and int
        "[MASK]" and its id, and so on, as `transformers` calls them.
    continuation : (V,) bool
        True where a piece continues a word ("##").
    special_tokens : tuple of str
        BERT's five and the additional ones.
    basic_tokenizer : BasicTokenizer
        The rules by which text is split into words.
    core : {"c", "python"}
        Which core splits words.

    Raises
    ------
    InputError
        When the vocabulary is empty or lacks one of the five special tokens, an option is unknown, or the
        core is not installed.

    Examples
    --------
    >>> tokenizer = Tokenizer([*SPECIAL_TOKENS, "un", "##aff", "##able", "!"])
    >>> tokenizer.tokenize("Unaffable!")
    ['un', '##aff', '##able', '!']
    >>> tokenizer("unaffable").ids
    array([2, 5, 6, 7, 3], dtype=int32)
    >>> tokenizer(["unaffable", "!"])
    BatchEncoding(2 sequences, 8 ids)
    >>> tokenizer, len(tokenizer), tokenizer.mask_token_id
    (Tokenizer(9 pieces, lower-cased), 9, 4)
    """

    @explains_folder("minibert.Tokenizer.from_pretrained")
    def __init__(
        self,
        vocab: Iterable[str],
        lower_case: bool = True,
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        never_split: Iterable[str] = (),
        max_input_chars_per_word: int | None = None,
        compat: str = "google",
        additional_special_tokens: Iterable[str] = (),
        added_tokens: Mapping[int, AddedToken] | None = None,
        split_special_tokens: bool = False,
        core: str = "auto",
    ) -> None:
        self._pieces = _list_of_strings("vocab", vocab)  # that words are cut into, by id
        self.added_tokens = dict(added_tokens or {})
        self.vocab = _with_added(self._pieces, self.added_tokens)
        self.vocab_size = len(self.vocab)
        self.ids = _number(self.vocab)
        self.split_special_tokens = split_special_tokens
        self.special_ids = tuple(self.ids[token] for token in SPECIAL_TOKENS)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids
        self.continuation = np.array([piece.startswith("##") for piece in self.vocab])  # (V,) bool
        self.basic_tokenizer = BasicTokenizer(
            lower_case,
            strip_accents,
            tokenize_chinese_chars,
            compat=compat,
            never_split=_list_of_strings("never_split", never_split),
        )
        self.lower_case = self.basic_tokenizer.lower_case
        self.compat = compat
        limit = MAX_CHARS[compat] if max_input_chars_per_word is None else max_input_chars_per_word
        whole_number("max_input_chars_per_word", limit, 1)
        self.max_input_chars_per_word = int(limit)
        additional = _list_of_strings("additional_special_tokens", additional_special_tokens)
        self.additional_special_tokens = tuple(additional)
        self._require_pieces(self.additional_special_tokens)
        self.special_tokens = (*SPECIAL_TOKENS, *self.additional_special_tokens)
        self.core = "c" if native.choose(core) else "python"
        self._requested_core = core
        self._core = self._make_core()

    def _require_pieces(self, special_tokens: tuple[str, ...]) -> None:
        """Raise InputError when one of the additional special tokens is empty, or is not a piece."""
        for token in special_tokens:
            if not token or token.isspace():
                raise InputError(f"additional_special_tokens={token!r} is empty; give one such as '[NEW]'.")
            if token not in self.ids:
                raise InputError(f"additional_special_tokens={token!r} is not a piece; add it to vocab.")

    def _make_core(self) -> native.Core | GreedyCore | AddedTokensCore:
        """Make the core that splits words; it finds special tokens itself, if it can find all of them."""
        make_core: type[native.Core] | type[GreedyCore] = native.Core if self.core == "c" else GreedyCore
        pieces = _that_match(self._pieces, self.vocab_size)
        # If one special token begins with another, the longer one must match.
        special = sorted(self.special_tokens, key=len, reverse=True)
        core_finds_all = not self.added_tokens and all(map(is_found_by_cores, special))
        special_ids = [self.ids[token] for token in special] if core_finds_all else []
        core = make_core(
            native.Pieces(
                pieces, self.basic_tokenizer, self.unk_id, special_ids, self.max_input_chars_per_word
            )
        )
        if core_finds_all:
            return core
        tokens = {}
        for token in special:
            tokens[self.ids[token]] = AddedToken(token, special=True, normalized=False)
        tokens |= self.added_tokens
        return AddedTokensCore(core, tokens, self.basic_tokenizer)

    @property
    def unmatched(self) -> list[int]:
        """Return ids that no word is split into: added tokens, ids without a piece, and repeated pieces."""
        matching = _that_match(self._pieces, self.vocab_size)
        return [piece_id for piece_id, piece in enumerate(matching) if not piece]

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        case = "lower-cased" if self.lower_case else "cased"
        return f"Tokenizer({self.vocab_size:,} pieces, {case})"

    @explains_foreign_arguments
    def encode(self, text: str, *, add_special_tokens: bool = True, special: bool | None = None) -> list[int]:
        """Return the ids of a text as a list, [CLS] and [SEP] around them, as in Hugging Face's tokenizers.

        Parameters
        ----------
        text : str
            One text.
        add_special_tokens : bool, default True
            Whether to put [CLS] and [SEP] around the ids of the text.
        special : bool or None
            As for `encode_batch`.

        Returns
        -------
        list of int
            All ids of the text, however long it is.

        Raises
        ------
        InputError
            When `text` is not a string.
        """
        if not isinstance(text, str):
            raise _no_string("text", text)
        ids = self._core.encode(text, self._keeps_special(special))
        if add_special_tokens:
            return [self.cls_id, *ids, self.sep_id]
        return ids

    def tokenize(self, text: str, *, special: bool | None = None) -> list[str]:
        """Return the pieces of a text, without [CLS] and [SEP] around them.

        Parameters
        ----------
        text : str
            One text.
        special : bool or None
            As for `encode_batch`.

        Returns
        -------
        list of str
            The pieces, with "##" before those that continue a word.

        Raises
        ------
        InputError
            When `text` is not a string.
        """
        ids = self.encode(text, add_special_tokens=False, special=special)
        return [self.vocab[piece_id] for piece_id in ids]

    def _keeps_special(self, special: bool | None) -> bool:
        """Return whether special tokens written out in a text are kept whole."""
        return not self.split_special_tokens if special is None else special

    @overload
    def __call__(
        self, text: str, pair: str | None = None, max_length: int | None = None, *,
        truncation: str = "longest_first", special: bool | None = None, add_special_tokens: bool = True,
    ) -> Encoding: ...  # fmt: skip

    @overload
    def __call__(
        self, text: list[str] | list[tuple[str, str]], pair: list[str] | None = None,
        max_length: int | None = None, *,
        truncation: str = "longest_first", special: bool | None = None, add_special_tokens: bool = True,
    ) -> BatchEncoding: ...  # fmt: skip

    @explains_foreign_arguments
    def __call__(
        self,
        text: str | list[str] | list[tuple[str, str]],
        pair: str | list[str] | None = None,
        max_length: int | None = None,
        *,
        truncation: str = "longest_first",
        special: bool | None = None,
        add_special_tokens: bool = True,
    ) -> Encoding | BatchEncoding:
        """Encode one text or pair as an `Encoding`, a list of either as a `BatchEncoding`.

        Parameters
        ----------
        text : str, list of str, or list of tuples of two str
            One text, several, or several pairs. Bytes are for `encode_batch`.
        pair : str, list of str, or None
            The second text, or the second of each.
        max_length, truncation, special, add_special_tokens
            As for `encode_batch`.

        Returns
        -------
        Encoding or BatchEncoding
            With offsets.

        Raises
        ------
        InputError
            As from `encode_batch`, and when `text` and `pair` do not go together.
        """
        is_whole = pair is None and max_length is None and truncation == "longest_first"
        if is_whole and add_special_tokens and type(text) is str:
            # The fast path for a single text: offsets and arrays are made only when they are asked for.
            special = self._keeps_special(special)
            return TextEncoding(self._core.encode(text, special), self, text, special)
        is_single = isinstance(text, str)
        if not isinstance(text, str | Sequence) or isinstance(text, bytes):
            raise _no_string("text", text)
        if pair is None and isinstance(text, tuple) and [type(part) for part in text] == [str, str]:
            raise InputError("text is a tuple of two strings; give a list of texts, or the second as `pair`.")
        expected = str | None if is_single else str | Sequence | None
        if not isinstance(pair, expected) or isinstance(pair, bytes):
            raise _no_string("pair", pair)
        texts: Any = [text] if is_single else text
        pairs: Any = [pair] if isinstance(pair, str) else pair
        if pairs is None and texts and isinstance(texts[0], tuple):
            texts, pairs = _unzip_pairs(texts)
        batch = self.encode_batch(
            texts,
            pairs,
            max_length=max_length,
            truncation=truncation,
            offsets=True,
            special=special,
            add_special_tokens=add_special_tokens,
        )
        return batch[0] if is_single else batch

    def encode_batch(
        self,
        texts: Iterable[str | bytes],
        pairs: Iterable[str | bytes] | None = None,
        *,
        max_length: int | None = None,
        truncation: str = "longest_first",
        stride: int | None = None,
        offsets: bool = False,
        special: bool | None = None,
        add_special_tokens: bool = True,
        threads: int | None = None,
    ) -> BatchEncoding:
        """Encode many texts, or pairs of texts, end to end as the model reads them.

        Parameters
        ----------
        texts : iterable of str or of bytes
            Strings, or bytes in UTF-8, in which invalid stretches are read as U+FFFD and counted.
        pairs : iterable of str or of bytes, or None
            The second text of each, of the same type.
        max_length : int or None
            The most ids of a sequence, including [CLS] and [SEP]; by default nothing is cut.
        truncation : {"longest_first", "only_first", "only_second"}, default "longest_first"
            Which text of a pair loses pieces, always at its end, if the pair is too long. With
            "longest_first" it is the longer one, piece by piece; the second if both are equally long (as in
            Google's code).
        stride : int or None
            If given, cut nothing, but make windows of at most `max_length` ids, each of which begins with the
            last `stride` pieces of the one before. With pairs, `truncation` says which text the windows move
            along; the other one is whole in every window.
        offsets : bool, default False
            Whether to find the spans of pieces in the text, and the indices of their words, too.
        special : bool or None
            Whether special tokens that are written out in a text, such as "[MASK]", are kept whole (True) or
            read letter by letter (False). None, the default, leaves it to the tokenizer's
            `split_special_tokens`.
        add_special_tokens : bool, default True
            Whether to put [CLS] and [SEP] around each text or pair.
        threads : int or None
            How many threads share the work; by default one for each core. The Python core uses one.

        Returns
        -------
        BatchEncoding
            In the order of the texts; the windows of one text follow one another.

        Raises
        ------
        InputError
            When a text is neither string nor bytes, `texts` and `pairs` differ in length, an argument is out
            of range, or a text that must stay whole leaves no room.
        """
        parts, kind = _texts("texts", texts)
        has_pairs = pairs is not None
        if pairs is not None:
            pairs, pairs_kind = _texts("pairs", pairs)
            if len(pairs) != len(parts):
                raise InputError(f"{len(parts)} texts come with {len(pairs)} pairs; give one for each text.")
            if pairs_kind is not kind:
                names = f"texts are {kind.__name__} and pairs {pairs_kind.__name__}"
                raise InputError(f"{names}; give the same.")
            parts = list(chain.from_iterable(zip(parts, pairs, strict=True)))
        n_special = 0
        if add_special_tokens:
            n_special = 3 if has_pairs else 2
        limit = Limit.of(max_length, truncation, stride, n_special, has_pairs, self.compat)
        if threads is not None:
            whole_number("threads", threads, 1)
        wanted = native.Wanted(
            offsets,
            self._keeps_special(special),
            first_id=self.cls_id if add_special_tokens else -1,
            last_id=self.sep_id if add_special_tokens else -1,
            period=2 if has_pairs else 1,
        )
        encoded = self._core.encode_texts(parts, wanted, threads)
        return lay_out(encoded, has_pairs, add_special_tokens, limit, self.vocab)

    @explains_foreign_arguments
    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Join pieces into readable text: "##" pieces to the piece before them, others with a space.

        Parameters
        ----------
        ids : iterable of int
            Ids of one sequence.
        skip_special_tokens : bool, default False
            Leave out special tokens: BERT's, additional ones, and added ones that are marked as special.

        Returns
        -------
        str
            The text as far as pieces preserve it, without the original case, accents and spaces.

        Raises
        ------
        InputError
            When an id is not a whole number or lies outside the vocabulary.
        """
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise InputError(f"ids={short(ids)} is not a list of ids; give whole numbers.")
        try:
            numbers = [index(number) for number in ids]
        except TypeError as error:
            what = f"ids={short(ids)} is not a list of ids ({error})"
            raise InputError(f"{what}; give whole numbers.") from error
        for number in numbers:
            if not 0 <= number < self.vocab_size:
                outside = f"id {number} is outside the vocabulary of {self.vocab_size} pieces"
                raise InputError(f"{outside}; decode with the one that the ids were made with.")
        if skip_special_tokens:
            skipped = {self.ids[token] for token in self.special_tokens}
            skipped |= {number for number, token in self.added_tokens.items() if token.special}
            numbers = [number for number in numbers if number not in skipped]
        return " ".join(self.vocab[number] for number in numbers).replace(" ##", "")

    @classmethod
    @explains_foreign_arguments
    def from_pretrained(cls, path: str | Path, **overrides: Any) -> "Tokenizer":
        """Read a folder with `vocab.txt` and, if present, `tokenizer_config.json`; or a vocabulary file.

        A Hugging Face `tokenizer.json` works as well, in a folder or by itself; its word limit and special
        tokens are used too. With `compat="hf-fast"`, ids are those of `tokenizers` for text whose characters
        are classified alike by Unicode 8.0, which that library follows, and 15.0.0.

        Parameters
        ----------
        path : str or Path
            The folder, `RUN@STEP` for that of a run, or the vocabulary file.
        **overrides
            Arguments of `Tokenizer` that take precedence over the folder's configuration. Without either, the
            pieces decide for a folder whether text is lower-cased; for a vocabulary file it is.

        Returns
        -------
        Tokenizer
            The tokenizer. A warning says if `lower_case=False` meets a vocabulary of lower-cased text.

        Raises
        ------
        InputError
            When a file is missing, is not UTF-8 or JSON, or does not contain a BERT vocabulary.
        """
        known = [name for name in inspect.signature(cls).parameters if name != "vocab"]
        name = f"{cls.__name__}.from_pretrained"
        refuse_unknown(overrides, known, name, lambda given: did_you_mean(given, known, "leave it out."))
        stored = formats.read(path_of(path, "path"))
        if overrides.get("lower_case") is False and not formats.is_cased(stored.vocab):
            what = f"{stored.source} has hardly any piece with a capital, and text keeps its case"
            warn(f"{what}: words with capitals become [UNK]. Leave out lower_case=False, or take another.")
        with naming(str(stored.source)):
            return cls(stored.vocab, **{**stored.options, **overrides})

    def save_pretrained(self, folder: str | Path, model_max_length: int = 512) -> None:
        """Write `vocab.txt`, `tokenizer.json` and `tokenizer_config.json`.

        `transformers.AutoTokenizer` loads the folder, and `tokenizers.Tokenizer.from_file` loads
        `tokenizer.json`. Both then do what `compat="hf-fast"` does here, except for `never_split`, which they
        do not have.

        Parameters
        ----------
        folder : str or Path
            The folder for the files, created if need be.
        model_max_length : int, default 512
            The number of positions P of the model with this vocabulary.

        Raises
        ------
        InputError
            When `folder` is not a path.
        """
        formats.write(path_of(folder), self._pieces, self.vocab, self._options(), model_max_length)

    def _options(self) -> dict[str, Any]:
        """Return every argument of `Tokenizer` other than the vocabulary."""
        return {
            "lower_case": self.basic_tokenizer.lower_case,
            "strip_accents": self.basic_tokenizer.strip_accents,
            "tokenize_chinese_chars": self.basic_tokenizer.tokenize_chinese_chars,
            "compat": self.basic_tokenizer.compat,
            "never_split": list(self.basic_tokenizer.never_split),
            "max_input_chars_per_word": self.max_input_chars_per_word,
            "additional_special_tokens": list(self.additional_special_tokens),
            "added_tokens": self.added_tokens,
            "split_special_tokens": self.split_special_tokens,
        }

    def __getstate__(self) -> dict[str, Any]:
        return {"vocab": self._pieces, **self._options(), "core": self._requested_core}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(vars(Tokenizer(**state)))


def _number(vocab: list[str]) -> dict[str, int]:
    """Return the ids of the pieces, after checking that the vocabulary has what BERT needs."""
    if not vocab:
        raise InputError("the vocabulary is empty; give one with one piece per line.")
    ids = {piece: number for number, piece in enumerate(vocab)}  # the last of equal ones
    missing = [token for token in SPECIAL_TOKENS if token not in ids]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        lacking = f"{', '.join(missing)} {verb} missing"
        advice = "give one that has them, such as the vocab.txt of a BERT."
        raise InputError(f"this is not a vocabulary of BERT: {lacking}; {advice}")
    return ids


def _that_match(pieces: list[str], n: int) -> list[str]:
    """Return the pieces that words are matched against, by id: "", which matches nothing, at all other ids.

    A piece that comes twice stays only at its last id; ids from `len(pieces)` up to `n` have none.
    """
    last_id = {piece: piece_id for piece_id, piece in enumerate(pieces)}
    matching = [piece if last_id[piece] == piece_id else "" for piece_id, piece in enumerate(pieces)]
    return matching + [""] * (n - len(pieces))


def _with_added(pieces: list[str], added: Mapping[int, AddedToken]) -> list[str]:
    """Return pieces and added tokens by id, "" where there is neither; raise InputError where they differ."""
    vocab = list(pieces)
    for number, token in sorted(added.items()):
        if not 0 <= number <= 2 * len(vocab):
            expected = f"expected one after the {len(vocab):,} of the vocabulary"
            raise InputError(f"the added token {token.content!r} has id {number}; {expected}.")
        vocab += [""] * (number + 1 - len(vocab))
        if vocab[number] not in ("", token.content):
            both = f"{vocab[number]!r} of the vocabulary and the added token {token.content!r}"
            raise InputError(f"id {number} is that of {both}; correct the files.")
        vocab[number] = token.content
    return vocab


def _list_of_strings(name: str, values: Iterable[str]) -> list[str]:
    if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
        raise InputError(f"{name}={short(values)} is not a list of strings; give one, in order.")
    values = list(values)
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(f"{name}[{number}]={short(value)} is not a string; give strings only.")
    return values


def can_be_special(token: str) -> bool:
    """Return whether a token can be recognised next to words, because it begins with a punctuation mark.

    Parameters
    ----------
    token : str
        A string that is to become a special token, such as "[NEW]".

    Returns
    -------
    bool
        False for "", and for a string that begins with a letter, a digit or a space.
    """
    return token != "" and is_punctuation(token[0])


def _texts(name: str, texts: Iterable[str | bytes]) -> tuple[list[str | bytes], type]:
    """Return the texts as a list, and whether they are str or bytes; NoneType when there are none."""
    if isinstance(texts, (str, bytes)):
        raise InputError(f"{name}={short(texts)} is one text; give a list of them.")
    if not isinstance(texts, Iterable):
        raise InputError(f"{name}={short(texts)} is not a list of texts; give strings or bytes.")
    texts = texts if isinstance(texts, list) else list(texts)
    if not texts:
        return texts, type(None)
    kind = bytes if isinstance(texts[0], bytes) else str
    kinds = set(map(type, texts))
    if not all(issubclass(text_kind, kind) for text_kind in kinds):
        number = next(i for i, text in enumerate(texts) if not isinstance(text, kind))
        noun = "Text" if name == "texts" else "Second text"
        what = f"{noun} {number:,} is {short(texts[number])}, of type {type(texts[number]).__name__}"
        raise InputError(f"{what}; give texts that are all str or all bytes.")
    return texts, kind


def _unzip_pairs(pairs: Sequence[Any]) -> tuple[Any, Any]:
    """Return the first texts of pairs and the second ones; raise InputError when one is not a pair."""
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InputError(f"text[{number}]={short(pair)} is not a pair of texts; give tuples of two.")
    firsts, seconds = zip(*pairs, strict=True)
    return firsts, seconds


def _no_string(name: str, value: Any) -> InputError:
    hint = "give a text"
    if isinstance(value, Iterable):
        hint = "encode_batch takes a list of texts"
    if isinstance(value, bytes):
        hint = "encode_batch reads bytes"
    return InputError(f"{name}={short(value)} is not a string; {hint}.")
