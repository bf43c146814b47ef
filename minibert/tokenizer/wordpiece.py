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

from minibert.base.errors import InputError, naming, warn
from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer import formats, native
from minibert.tokenizer.added import AddedToken, AddedTokensCore, is_found_by_cores
from minibert.tokenizer.encoding import BatchEncoding, Encoding, Limit, TextEncoding, lay_out, whole_number
from minibert.tokenizer.greedy import GreedyCore
from minibert.tokenizer.normalize import MAX_CHARS, BasicTokenizer, is_punctuation

CASED = {"lower_case": False, "strip_accents": False}  # of `Tokenizer`: --cased, whatever a folder says


def text_rules(cased: bool = False, keep_accents: bool = False, segmented: bool = False) -> dict[str, Any]:
    """Return arguments of `Tokenizer` that count for more than what a folder says.

    Parameters
    ----------
    cased : keep case and accents.
    keep_accents : keep accents, and the vowel signs and tone marks that are stripped with them; lower-case.
    segmented : words are what stands between spaces, in Chinese too: ideographs are letters like others.
    """
    rules: dict[str, Any] = dict(CASED) if cased else {}
    if keep_accents:
        rules["strip_accents"] = False
    if segmented:
        rules["tokenize_chinese_chars"] = False
    return rules


class Tokenizer:
    """Text to WordPiece ids and back.

    Special tokens that are written out in a text, such as "[MASK]" or one of the model's own, are one piece
    each, as in Hugging Face's tokenizers, wherever a text becomes pieces. `split_special_tokens` reads them
    letter by letter, as Google's code does.

    Raise InputError when the vocabulary is empty or lacks one of the five special tokens, an option is
    unknown, or the core is not installed.

    Parameters
    ----------
    vocab : the pieces; the place of a piece is its id. Of a piece that comes twice the last place counts, and
        "" is an id without a piece: both as in Google's code and Hugging Face's.
    lower_case : lower-case and strip accents (the uncased models).
    strip_accents : overrides what `lower_case` says about accents.
    tokenize_chinese_chars : make a word of every CJK ideograph.
    never_split : words that are neither lower-cased nor split where they stand between two spaces; one that
        is no piece becomes [UNK].
    max_input_chars_per_word : a longer word becomes [UNK]; by default 200, in Hugging Face's two modes 100.
    compat : whose rules to follow: "google", the released code; "hf-slow", Hugging Face's tokenizer in
        Python; "hf-fast", theirs in Rust. See `BasicTokenizer`; "hf-fast" also truncates pairs as they do.
    additional_special_tokens : pieces that are special beside the five of BERT: whole wherever they stand in
        a text, in their own case.
    added_tokens : further strings that are one piece wherever they stand in a text, by id, as in Hugging
        Face's `added_tokens_decoder`. One whose id is a piece of `vocab` has to be that piece; with any other
        id, the string is no piece that words are cut into.
    split_special_tokens : read special tokens that are written out in a text letter by letter.
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
            if not token or token.isspace():
                raise InputError(f"additional_special_tokens={token!r} is empty; give one such as '[NEW]'.")
            if token not in self.ids:
                raise InputError(f"additional_special_tokens={token!r} is no piece; add it to vocab.")
        self.special_tokens = (*SPECIAL_TOKENS, *self.additional_special_tokens)
        self.core = "c" if native.choose(core) else "python"
        self._requested_core = core
        self._core = self._make_core()

    def _make_core(self) -> native.Core | GreedyCore | AddedTokensCore:
        """Make what cuts words; it finds special tokens itself, if all are of the kind that cores find."""
        # Where one special token begins another, the longer one is found.
        special = sorted(self.special_tokens, key=len, reverse=True)
        ids = [self.ids[token] for token in special]
        make_core: type[native.Core] | type[GreedyCore] = native.Core if self.core == "c" else GreedyCore
        pieces = _that_match(self._pieces, self.vocab_size)
        if not self.added_tokens and all(map(is_found_by_cores, special)):
            rules = self.basic_tokenizer, self.unk_id, ids, self.max_input_chars_per_word
            return make_core(native.Pieces(pieces, *rules))
        rules = self.basic_tokenizer, self.unk_id, [], self.max_input_chars_per_word
        found = {self.ids[token]: AddedToken(token, special=True, normalized=False) for token in special}
        core = make_core(native.Pieces(pieces, *rules))
        return AddedTokensCore(core, found | self.added_tokens, self.basic_tokenizer)

    @property
    def unmatched(self) -> list[int]:
        """Ids that words are never cut into: of added tokens, of no piece, of one that has another id too."""
        matching = _that_match(self._pieces, self.vocab_size)
        return [number for number, piece in enumerate(matching) if not piece]

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        case = "lower-cased" if self.lower_case else "cased"
        return f"Tokenizer({self.vocab_size:,} pieces, {case})"

    def encode(
        self, text: str, *, add_special_tokens: bool = True, special: bool | None = None
    ) -> list[int]:
        """Return the ids of a text as a list, [CLS] and [SEP] around them, as in Hugging Face's tokenizers.

        Raise InputError when `text` is not a string.

        Parameters
        ----------
        text : one text.
        add_special_tokens : put [CLS] and [SEP] around; without, the ids of the pieces of the text alone.
        special : as for `encode_batch`.
        """
        if not isinstance(text, str):
            raise _no_string("text", text)
        ids = self._core.encode(text, self._keeps_special(special))
        return [self.cls_id, *ids, self.sep_id] if add_special_tokens else ids

    def tokenize(self, text: str, *, special: bool | None = None) -> list[str]:
        """Return the pieces of `text` alone; `special` is as for `encode_batch`."""
        return [self.vocab[i] for i in self.encode(text, add_special_tokens=False, special=special)]

    def _keeps_special(self, special: bool | None) -> bool:
        """Tell whether special tokens written out in a text are kept whole."""
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

        Arguments are those of `encode_batch`.
        """
        whole = pair is None and max_length is None and truncation == "longest_first"
        if whole and add_special_tokens and type(text) is str:  # as fast as it goes
            special = self._keeps_special(special)
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
        batch = self.encode_batch(
            texts, pairs, max_length=max_length, truncation=truncation, offsets=True,
            special=special, add_special_tokens=add_special_tokens,
        )  # fmt: skip
        return batch[0] if alone else batch

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
        special : False reads special tokens that are written out in a text, such as "[MASK]", letter by
            letter; True keeps them whole. None: as the tokenizer's `split_special_tokens` says.
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
        period = 1 if pairs is None else 2
        wanted = native.Wanted(offsets, self._keeps_special(special), first_id, last_id, period)
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
            skipped = {self.ids[token] for token in self.special_tokens}
            skipped |= {number for number, token in self.added_tokens.items() if token.special}
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
        formats.write(Path(folder), self._pieces, self.vocab, self._options(), model_max_length)

    def _options(self) -> dict[str, Any]:
        """Return every argument of `Tokenizer` that goes with the vocabulary."""
        names = ("lower_case", "strip_accents", "tokenize_chinese_chars", "compat")
        options = {name: getattr(self.basic_tokenizer, name) for name in names}
        options |= {"never_split": list(self.basic_tokenizer.never_split)}
        options |= {"max_input_chars_per_word": self.max_input_chars_per_word}
        options |= {"additional_special_tokens": list(self.additional_special_tokens)}
        options |= {"added_tokens": self.added_tokens}
        return options | {"split_special_tokens": self.split_special_tokens}

    def __getstate__(self) -> dict[str, Any]:
        return {"vocab": self._pieces, **self._options(), "core": self._requested_core}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(vars(Tokenizer(**state)))


def _number(vocab: list[str]) -> dict[str, int]:
    """Return the ids of the pieces, after checking that the vocabulary can serve a BERT."""
    if not vocab:
        raise InputError("the vocabulary is empty; give one with a piece a line.")
    ids = {piece: number for number, piece in enumerate(vocab)}  # the last of equal ones
    if missing := [token for token in SPECIAL_TOKENS if token not in ids]:
        raise InputError(f"the vocabulary lacks {' '.join(missing)}; BERT needs {' '.join(SPECIAL_TOKENS)}.")
    return ids


def _that_match(pieces: list[str], n: int) -> list[str]:
    """Return the pieces that words are matched against, by id: "", which matches nothing, at all other ids.

    Of a piece that comes twice, the last one stays; ids from the number of pieces up to `n` have none.
    """
    last = {piece: number for number, piece in enumerate(pieces)}
    matching = [piece if last[piece] == number else "" for number, piece in enumerate(pieces)]
    return matching + [""] * (n - len(pieces))


def _with_added(pieces: list[str], added: Mapping[int, AddedToken]) -> list[str]:
    """Return pieces and added tokens by id, "" where there is neither; raise InputError where they differ."""
    vocab = list(pieces)
    for number, token in sorted(added.items()):
        if not 0 <= number <= 2 * len(vocab):
            expected = f"expected one behind the {len(vocab):,} of the vocabulary"
            raise InputError(f"the added token {token.content!r} has id {number}; {expected}.")
        vocab += [""] * (number + 1 - len(vocab))
        if vocab[number] not in ("", token.content):
            both = f"{vocab[number]!r} of the vocabulary and the added token {token.content!r}"
            raise InputError(f"id {number} is that of {both}; correct the files.")
        vocab[number] = token.content
    return vocab


def _list_of_strings(name: str, values: Iterable[str]) -> list[str]:
    if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
        raise InputError(f"{name}={short(values)} is no list of strings; give one, in order.")
    values = list(values)
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(f"{name}[{number}]={short(value)} is not a string; give strings only.")
    return values


def can_be_special(token: str) -> bool:
    """Tell whether a token can be told from words around it: it begins with a punctuation mark."""
    return token != "" and is_punctuation(token[0])


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
