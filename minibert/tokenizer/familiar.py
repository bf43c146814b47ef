"""A tokenizer's vocabulary under the names of `transformers`, so that programs need no change."""

from collections.abc import Callable, Iterable
from operator import index
from reprlib import repr as short
from typing import overload

from minibert.base.errors import InputError
from minibert.core.wordpiece import SPECIAL_TOKENS

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS


class FamiliarNames:
    """Names of `transformers.PreTrainedTokenizerBase` for what a `Tokenizer` offers under other names."""

    vocab: list[str]  # pieces by id
    ids: dict[str, int]
    special_tokens: tuple[str, ...]
    decode: Callable[..., str]

    pad_token, unk_token, cls_token, sep_token, mask_token = SPECIAL_TOKENS

    @property
    def pad_token_id(self) -> int:
        """The id of [PAD]."""
        return self.ids[PAD]

    @property
    def unk_token_id(self) -> int:
        """The id of [UNK]."""
        return self.ids[UNK]

    @property
    def cls_token_id(self) -> int:
        """The id of [CLS]."""
        return self.ids[CLS]

    @property
    def sep_token_id(self) -> int:
        """The id of [SEP]."""
        return self.ids[SEP]

    @property
    def mask_token_id(self) -> int:
        """The id of [MASK]."""
        return self.ids[MASK]

    @property
    def all_special_tokens(self) -> list[str]:
        """BERT's five special tokens, and the additional ones."""
        return list(self.special_tokens)

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of `all_special_tokens`."""
        return [self.ids[token] for token in self.special_tokens]

    def get_vocab(self) -> dict[str, int]:
        """Return the vocabulary as a dictionary from piece to id.

        Returns
        -------
        dict of str to int
            A copy. A piece that occurs twice has its last id.
        """
        return {piece: piece_id for piece, piece_id in self.ids.items() if piece}

    @overload
    def convert_tokens_to_ids(self, tokens: str) -> int: ...

    @overload
    def convert_tokens_to_ids(self, tokens: list[str] | tuple[str, ...]) -> list[int]: ...

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> int | list[int]:
        """Return the id of a piece, or of each of several; that of [UNK] for what is not a piece.

        Parameters
        ----------
        tokens : str or iterable of str
            Pieces as the vocabulary has them, such as "ship" or "##s"; no text is split here.

        Returns
        -------
        int or list of int

        Raises
        ------
        InputError
            When a piece is not a string.
        """
        if isinstance(tokens, str):
            return self.ids.get(tokens, self.unk_token_id)
        pieces = list(tokens) if isinstance(tokens, Iterable) else [tokens]
        if not_strings := [piece for piece in pieces if not isinstance(piece, str)]:
            raise InputError(f"tokens has {short(not_strings[0])}, which is not a piece; give strings.")
        return [self.ids.get(piece, self.unk_token_id) for piece in pieces]

    @overload
    def convert_ids_to_tokens(self, ids: int) -> str: ...

    @overload
    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]: ...

    def convert_ids_to_tokens(self, ids: int | Iterable[int]) -> str | list[str]:
        """Return the piece with an id, or with each of several.

        Parameters
        ----------
        ids : int or iterable of int
            Ids, counted from 0.

        Returns
        -------
        str or list of str

        Raises
        ------
        InputError
            When an id is not a whole number or lies outside the vocabulary.
        """
        if isinstance(ids, Iterable):
            return [self._piece(piece_id) for piece_id in ids]
        return self._piece(ids)

    def _piece(self, piece_id: int) -> str:
        """Return the piece with an id."""
        try:
            number = index(piece_id)
        except TypeError as error:
            raise InputError(f"ids has {short(piece_id)}, which is not an id; give whole numbers.") from error
        if not 0 <= number < len(self.vocab):
            problem = f"id {piece_id} is outside the vocabulary of {len(self.vocab)} pieces"
            raise InputError(f"{problem}; give one from 0 to {len(self.vocab) - 1}.", ids=piece_id)
        return self.vocab[number]

    def batch_decode(
        self,
        sequences: Iterable[Iterable[int]],
        *,
        skip_special_tokens: bool = False,
    ) -> list[str]:
        """Return the text of each of several sequences of ids, as `decode` does for one.

        Parameters
        ----------
        sequences : iterable of iterables of int
            Sequences of ids, such as the `input_ids` of a batch.
        skip_special_tokens : bool, default False
            Whether to leave out special tokens.

        Returns
        -------
        list of str
            The texts, with a space before punctuation, which `transformers` removes.

        Raises
        ------
        InputError
            When `sequences` is not a list of sequences of ids, or an id lies outside the vocabulary.
        """
        if isinstance(sequences, str) or not isinstance(sequences, Iterable):
            raise InputError(f"sequences={short(sequences)} is not a list of sequences; give lists of ids.")
        return [self.decode(ids, skip_special_tokens=skip_special_tokens) for ids in sequences]
