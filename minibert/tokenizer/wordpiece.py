"""`Tokenizer`: text to WordPiece ids and back, by one of two cores with the same results.

The one to read is `GreedyCore` in greedy.py; the one for speed is in C, behind native.py. What is
made of their pieces, sequences for the model, is in encoding.py; files are in formats.py.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from operator import index
from pathlib import Path
from reprlib import repr as short
from typing import Any, overload

import numpy as np

from minibert.errors import InputError, naming, warn
from minibert.tokenizer import formats, native
from minibert.tokenizer.encoding import BatchEncoding, Encoding, Limit, TextEncoding, lay_out, whole_number
from minibert.tokenizer.greedy import GreedyCore
from minibert.tokenizer.normalize import MAX_CHARS, BasicTokenizer, is_punctuation
from minibert.tokenizer.simple import SPECIAL_TOKENS

CASED = {"lower_case": False, "strip_accents": False}  # of `Tokenizer`: --cased, whatever a folder says


class Tokenizer:
    """Text to WordPiece ids and back.

    Raise InputError when the vocabulary is empty, repeats a piece or lacks one of the five special tokens, an
    option is unknown, or the core is not installed.

    Parameters
    ----------
    vocab : the pieces; the place of a piece is its id.
    lower_case : lower-case and strip accents (the uncased models).
    strip_accents : overrides what `lower_case` says about accents.
    tokenize_chinese_chars : make a word of every CJK ideograph.
    never_split : words that are neither lower-cased nor split where they stand between two spaces; one that
        is no piece becomes [UNK].
    max_input_chars_per_word : a longer word becomes [UNK]; by default 200, in Hugging Face's two modes 100.
    compat : whose rules to follow: "google", the released code; "hf-slow", Hugging Face's tokenizer in
        Python; "hf-fast", theirs in Rust. See `BasicTokenizer`; "hf-fast" also truncates pairs as they do.
    additional_special_tokens : pieces that `special=True` keeps whole beside the five of BERT; of ASCII, each
        beginning with a punctuation mark.
    core : "c", "python", or "auto": C if its extension is there. They differ in speed only.

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
        core: str = "auto",
    ) -> None:
        self.vocab = _list_of_strings("vocab", vocab)
        self.vocab_size = len(self.vocab)
        self.ids = _number(self.vocab)
        self.special_ids = tuple(self.ids[token] for token in SPECIAL_TOKENS)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids
        self.mask_token, self.mask_token_id = SPECIAL_TOKENS[-1], self.mask_id  # as Hugging Face calls them
        self.continuation = np.array([piece.startswith("##") for piece in self.vocab])  # (V,) bool
        kept = _list_of_strings("never_split", never_split)
        self.basic_tokenizer = BasicTokenizer(
            lower_case, strip_accents, tokenize_chinese_chars, compat=compat, never_split=kept
        )
        self.lower_case, self.compat = self.basic_tokenizer.lower_case, compat
        limit = MAX_CHARS[compat] if max_input_chars_per_word is None else max_input_chars_per_word
        whole_number("max_input_chars_per_word", limit, 1)
        self.max_input_chars_per_word = int(limit)
        added = _list_of_strings("additional_special_tokens", additional_special_tokens)
        self.additional_special_tokens = tuple(added)
        for token in self.additional_special_tokens:
            if token not in self.ids:
                raise InputError(f"additional_special_tokens={token!r} is no piece; add it to vocab.")
            if not can_be_special(token):
                example = "give one of ASCII that begins with a punctuation mark, such as '[NEW]'."
                raise InputError(f"additional_special_tokens={token!r} can't be told from words; {example}")
        self.core = "c" if native.choose(core) else "python"
        self._requested_core = core
        # Where one special token begins another, the longer one is found.
        special = sorted((*SPECIAL_TOKENS, *self.additional_special_tokens), key=len, reverse=True)
        make_core: type[native.Core] | type[GreedyCore] = native.Core if self.core == "c" else GreedyCore
        ids, limit = [self.ids[token] for token in special], self.max_input_chars_per_word
        self._core = make_core(native.Pieces(self.vocab, self.basic_tokenizer, self.unk_id, ids, limit))

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        case = "lower-cased" if self.lower_case else "cased"
        return f"Tokenizer({self.vocab_size:,} pieces, {case})"

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Return the ids of the pieces of `text` alone; `special` keeps a written-out "[MASK]" whole."""
        if not isinstance(text, str):
            raise _no_string("text", text)
        return self._core.encode(text, special)

    def tokenize(self, text: str, *, special: bool = False) -> list[str]:
        """Return the pieces of `text`; see `encode`."""
        return [self.vocab[i] for i in self.encode(text, special=special)]

    @overload
    def __call__(
        self, text: str, pair: str | None = None, max_length: int | None = None, *,
        truncation: str = "longest_first", special: bool = False, add_special_tokens: bool = True,
    ) -> Encoding: ...  # fmt: skip

    @overload
    def __call__(
        self, text: list[str] | list[tuple[str, str]], pair: list[str] | None = None,
        max_length: int | None = None, *,
        truncation: str = "longest_first", special: bool = False, add_special_tokens: bool = True,
    ) -> BatchEncoding: ...  # fmt: skip

    def __call__(
        self,
        text: str | list[str] | list[tuple[str, str]],
        pair: str | list[str] | None = None,
        max_length: int | None = None,
        *,
        truncation: str = "longest_first",
        special: bool = False,
        add_special_tokens: bool = True,
    ) -> Encoding | BatchEncoding:
        """Encode one text or pair as an `Encoding`, a list of either as a `BatchEncoding`.

        Arguments are those of `encode_batch`. Where a special token is written out in a text that is to be
        read letter by letter, as without `special`, a warning says so.
        """
        whole = pair is None and max_length is None and truncation == "longest_first"
        if whole and add_special_tokens and type(text) is str:  # as fast as it goes
            if not special and "[" in text:
                self._warn_of_special_tokens([text])
            return TextEncoding(self._core.encode(text, special), self, text, special)
        alone = isinstance(text, str)
        texts: Any = [text] if alone else text
        pairs: Any = [pair] if isinstance(pair, str) else pair
        if not isinstance(text, str | Sequence) or isinstance(text, bytes):
            raise _no_string("text", text)
        if pair is None and isinstance(text, tuple) and [type(one) for one in text] == [str, str]:
            raise InputError("text is a tuple of two strings; give a list of texts, or the second as `pair`.")
        if not isinstance(pair, str | None if alone else str | Sequence | None) or isinstance(pair, bytes):
            raise _no_string("pair", pair)
        if pairs is None and texts and isinstance(texts[0], tuple):
            for number, one in enumerate(texts):
                if not isinstance(one, tuple) or len(one) != 2:
                    raise InputError(f"text[{number}]={short(one)} is no pair of texts; give tuples of two.")
            texts, pairs = zip(*texts, strict=True)
        if not special:
            self._warn_of_special_tokens([*texts, *(pairs or ())])
        batch = self.encode_batch(
            texts, pairs, max_length=max_length, truncation=truncation, offsets=True,
            special=special, add_special_tokens=add_special_tokens,
        )  # fmt: skip
        return batch[0] if alone else batch

    def _warn_of_special_tokens(self, texts: Iterable[Any]) -> None:
        """Warn of special tokens that are written out in texts where they are not kept whole."""
        known = (*SPECIAL_TOKENS, *self.additional_special_tokens)
        found = sorted({token for text in texts if isinstance(text, str) for token in known if token in text})
        if found:
            warn(f"{' and '.join(found)} in a text is read letter by letter; special=True keeps it whole.")

    def encode_batch(
        self,
        texts: Iterable[str | bytes],
        pairs: Iterable[str | bytes] | None = None,
        *,
        max_length: int | None = None,
        truncation: str = "longest_first",
        stride: int | None = None,
        offsets: bool = False,
        special: bool = False,
        add_special_tokens: bool = True,
        threads: int | None = None,
    ) -> BatchEncoding:
        """Encode many texts, or pairs of texts, end to end as the model reads them.

        Raise InputError when a text is neither string nor bytes, `texts` and `pairs` are not of equal number,
        an argument is not possible, or what must stay whole leaves no room.

        Parameters
        ----------
        texts : strings, or bytes of UTF-8: what is invalid in them is read as U+FFFD and counted.
        pairs : the second text of each.
        max_length : most ids of a sequence, [CLS] and [SEP] included.
        truncation : from which text of a pair pieces go, always from its end, when it is too long:
            "longest_first" the longer one, one by one, the second when both are equally long (as in Google's
            code); "only_first"; "only_second".
        stride : cut nothing away; make windows of at most `max_length`, each of which begins with the last
            `stride` pieces of the one before. With pairs, `truncation` says of which text; the other one is
            whole in every window.
        offsets : find also where pieces stand in the text, and the numbers of their words.
        special : keep special tokens that are written out in a text, such as "[MASK]", whole.
        add_special_tokens : put [CLS] and [SEP] around.
        threads : how many threads share the work; by default one for each core.
        """
        parts, kind = _texts("texts", texts)
        if pairs is not None:
            pairs, other = _texts("pairs", pairs)
            if len(pairs) != len(parts):
                raise InputError(f"{len(parts)} texts come with {len(pairs)} pairs; give one for each text.")
            if other is not kind:
                raise InputError(f"texts are {kind.__name__} and pairs {other.__name__}; give the same.")
            parts = list(chain.from_iterable(zip(parts, pairs, strict=True)))
        n_special = add_special_tokens * (2 + (pairs is not None))
        limit = Limit.of(max_length, truncation, stride, n_special, pairs is not None, self.compat)
        if threads is not None:
            whole_number("threads", threads, 1)
        first_id, last_id = (self.cls_id, self.sep_id) if add_special_tokens else (-1, -1)
        wanted = native.Wanted(offsets, special, first_id, last_id, 1 if pairs is None else 2)
        encoded = self._core.encode_texts(parts, wanted, threads)
        return lay_out(encoded, pairs is not None, add_special_tokens, limit, self.vocab)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Join pieces into readable text: "##" pieces to what stands before them, a space elsewhere.

        Raise InputError when an id is no whole number or lies outside the vocabulary.
        """
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise InputError(f"ids={short(ids)} is no list of ids; give whole numbers.")
        try:
            ids = [index(i) for i in ids]
        except TypeError as error:
            raise InputError(f"ids={short(ids)} is no list of ids ({error}); give whole numbers.") from error
        for i in ids:
            if not 0 <= i < self.vocab_size:
                outside = f"id {i} is outside the vocabulary of {self.vocab_size} pieces"
                raise InputError(f"{outside}; decode with the one that the ids were made with.")
        if skip_special_tokens:
            skipped = {*self.special_ids, *(self.ids[token] for token in self.additional_special_tokens)}
            ids = [i for i in ids if i not in skipped]
        return " ".join(self.vocab[i] for i in ids).replace(" ##", "")

    @classmethod
    def from_pretrained(cls, path: str | Path, **overrides: Any) -> "Tokenizer":
        """Read a folder with `vocab.txt` and, if present, `tokenizer_config.json`; or a vocabulary file.

        A Hugging Face `tokenizer.json` will do as well, in a folder or by itself; it gives its word limit and
        special tokens too. With `compat="hf-fast"` its ids are then those of `tokenizers`, in text of
        characters that Unicode 8.0, which that library follows, classifies as 15.0.0 does.

        Raise InputError when a file is missing, is not UTF-8 or JSON, or does not hold a BERT vocabulary.

        Parameters
        ----------
        path : the folder, `RUN@STEP` for that of a run, or the vocabulary file.
        overrides : arguments of `Tokenizer` that win over the folder's configuration. Without either, the
            pieces in a folder tell whether text is lower-cased; text for a vocabulary file is.
        """
        stored = formats.read(Path(path))
        if overrides.get("lower_case") is False and not formats.is_cased(stored.vocab):
            what = f"{stored.source} has hardly any piece with a capital, and text keeps its case"
            warn(f"{what}: words with capitals become [UNK]. Leave out --cased, or take a cased vocabulary.")
        with naming(str(stored.source)):
            return cls(stored.vocab, **{**stored.options, **overrides})

    def save_pretrained(self, folder: str | Path, model_max_length: int = 512) -> None:
        """Write `vocab.txt`, `tokenizer.json` and `tokenizer_config.json`.

        `transformers.AutoTokenizer` loads the folder, `tokenizers.Tokenizer.from_file` the second of them;
        both then do what `compat="hf-fast"` does here, but for `never_split`, which they have no word for.
        `model_max_length` is the number of positions of the model that goes with this vocabulary.
        """
        formats.write(Path(folder), self.vocab, self._options(), model_max_length)

    def _options(self) -> dict[str, Any]:
        """Return every argument of `Tokenizer` that goes with the vocabulary."""
        names = ("lower_case", "strip_accents", "tokenize_chinese_chars", "compat")
        options = {name: getattr(self.basic_tokenizer, name) for name in names}
        options |= {"never_split": list(self.basic_tokenizer.never_split)}
        options |= {"max_input_chars_per_word": self.max_input_chars_per_word}
        return options | {"additional_special_tokens": list(self.additional_special_tokens)}

    def __getstate__(self) -> dict[str, Any]:
        return {"vocab": self.vocab, **self._options(), "core": self._requested_core}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(vars(Tokenizer(**state)))


def _number(vocab: list[str]) -> dict[str, int]:
    """Return the ids of the pieces, after checking that the vocabulary can serve a BERT."""
    if not vocab:
        raise InputError("the vocabulary is empty; give one with a piece a line.")
    ids: dict[str, int] = {}
    for number, piece in enumerate(vocab):
        if piece in ids:
            raise InputError(f"vocab has {piece!r} twice, as id {ids[piece]} and {number}; remove one.")
        ids[piece] = number
    if missing := [token for token in SPECIAL_TOKENS if token not in ids]:
        raise InputError(f"the vocabulary lacks {' '.join(missing)}; BERT needs {' '.join(SPECIAL_TOKENS)}.")
    return ids


def _list_of_strings(name: str, values: Iterable[str]) -> list[str]:
    if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
        raise InputError(f"{name}={short(values)} is no list of strings; give one, in order.")
    values = list(values)
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(f"{name}[{number}]={short(value)} is not a string; give strings only.")
    return values


def can_be_special(token: str) -> bool:
    """Tell whether a token can be told from words around it: ASCII that begins with a punctuation mark."""
    return token != "" and token.isascii() and is_punctuation(token[0])


def _texts(name: str, texts: Iterable[str | bytes]) -> tuple[list[str | bytes], type]:
    """Return the texts as a list, and whether they are str or bytes; NoneType when there are none."""
    if isinstance(texts, (str, bytes)):
        raise InputError(f"{name}={short(texts)} is one text; give a list of them.")
    if not isinstance(texts, Iterable):
        raise InputError(f"{name}={short(texts)} is no list of texts; give strings or bytes.")
    if not (texts := texts if isinstance(texts, list) else list(texts)):
        return texts, type(None)
    kind = bytes if isinstance(texts[0], bytes) else str
    if not all(issubclass(found, kind) for found in set(map(type, texts))):
        number = next(i for i, text in enumerate(texts) if not isinstance(text, kind))
        what = f"{name}[{number}]={short(texts[number])} is {type(texts[number]).__name__}"
        raise InputError(f"{what}; give texts that are all str or all bytes.")
    return texts, kind


def _no_string(name: str, value: Any) -> InputError:
    hint = "encode_batch reads bytes" if isinstance(value, bytes) else "encode_batch takes a list of texts"
    return InputError(f"{name}={short(value)} is not a string; {hint}.")
