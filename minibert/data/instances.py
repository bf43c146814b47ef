"""Make training instances of BERT from token shards on the fly: spans, next-sentence pairs, masks.

This follows section 3.1 and appendix A.2 of the paper and, where they are silent, Google's
create_pretraining_data.py. An instance is a function of (seed, epoch, document, index in the document) alone,
so a run needs only a position to resume.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.base.terminal import counted
from minibert.core.batch import Sequence
from minibert.core.draws import draw, key, permutation
from minibert.core.masks import POSITION_BITS, replace_tokens
from minibert.data.layout import Block, lay_out
from minibert.data.masking import choose_positions, choose_words
from minibert.data.nsp_spans import Borders, Spans, contiguous_spans, span_pairs
from minibert.data.shards.store import TokenShards
from minibert.tokenizer import Tokenizer
from minibert.tokenizer.written import is_control

SHORTEST = 5  # [CLS] a [SEP] b [SEP]
LONGEST = (1 << POSITION_BITS) - 1
UNCUT = 128  # in sequences of this length or more, sentences stay whole
BLOCK_TOKENS = 1 << 18  # the documents of a block are made into instances, and shuffled, together

CONTENT, DOCUMENT_ORDER, BLOCK_ORDER = range(3)  # the purpose of a key: the first number that goes into it


@dataclass(frozen=True)
class InstanceOptions:
    """Options of how instances are made.

    Google's way of pairing sentences is meant for sequences of 128 tokens and more. In shorter ones a
    sentence often fills the sequence and then always gets a random B: 70% are NotNext at 32 tokens, 90% at
    16. In these, sentences longer than half a sequence count as several, so that half of the pairs are in
    order. Raise InputError when a value is out of range.
    """

    seq_length: int = 128  # most tokens of a sequence, [CLS] and [SEP] included
    # Share of instances whose spans are gathered to a random shorter length. (Google's code draws once for a
    # document, this code once for an instance.)
    short_seq_prob: float = 0.1
    masked_lm_prob: float = 0.15  # share of all positions, with [CLS] and [SEP], to predict; at least 1 is
    # Most positions to predict; None: masked_lm_prob of seq_length, rounded up (20 at 128, 77 at 512).
    max_predictions_per_seq: int | None = None
    mask_rates: tuple[float, float, float] = (0.8, 0.1, 0.1)  # shares of [MASK], the same and a random token
    whole_word_mask: bool = False  # predict all pieces of a word or none
    next_sentence: bool = True  # pairs of spans, labelled with whether B follows A; else contiguous spans
    left_to_right: bool = False  # predict every next token of contiguous spans; no masks, no next sentences
    # 0 draws new instances in each epoch; n makes n copies and reads copy `epoch mod n` (Google's static
    # masks, n = 10). Either way, every epoch has a new order of instances.
    dupe_factor: int = 0

    def __post_init__(self) -> None:
        self._check(
            "seq_length", SHORTEST <= self.seq_length <= LONGEST, f"a length from {SHORTEST} to {LONGEST:,}"
        )
        self._check("short_seq_prob", 0 <= self.short_seq_prob <= 1, "a share from 0 to 1")
        self._check("masked_lm_prob", 0 < self.masked_lm_prob <= 1, "a share above 0 and at most 1")
        most = self.max_predictions_per_seq
        self._check("max_predictions_per_seq", most is None or most >= 1, "1 or more")
        rates = self.mask_rates
        are_shares = len(rates) == 3 and min(rates) >= 0 and abs(sum(rates) - 1) < 1e-6
        self._check("mask_rates", are_shares, "three shares (MASK, SAME, RND) that sum to 1")
        self._check("dupe_factor", self.dupe_factor >= 0, "0 (new masks in each epoch) or more")

    def _check(self, name: str, is_valid: bool, expected: str) -> None:
        if not is_valid:
            value = getattr(self, name)
            raise InputError(f"{name}={value!r} is not possible; give {expected}.", **{name: value})

    @property
    def pairs(self) -> bool:
        """Whether a sequence has two segments."""
        return self.next_sentence and not self.left_to_right

    @property
    def room(self) -> int:
        """The number of text tokens in a sequence, without [CLS] and [SEP]."""
        special = 3 if self.pairs else 2
        return self.seq_length - special

    @property
    def longest_sentence(self) -> int | None:
        """The most tokens of a sentence before it is split; None: it never is."""
        if self.pairs and self.seq_length < UNCUT:
            return self.room // 2
        return None

    @property
    def most_predictions(self) -> int:
        """The most positions to predict: `max_predictions_per_seq`, or the value that None stands for."""
        if self.max_predictions_per_seq:
            return self.max_predictions_per_seq
        expected = self.masked_lm_prob * self.seq_length
        return math.ceil(expected - 1e-9)  # in floating point, 0.07 * 100 is a little over 7


class Position(NamedTuple):
    """A position in the stream of instances, given by the next instance."""

    epoch: int
    block: int
    offset: int


BEGINNING = Position(0, 0, 0)


@dataclass(frozen=True, eq=False)
class DrawnBlock:
    """The n remaining instances of a block of N: drawn, but not yet made from tokens."""

    spans: np.ndarray  # (N,5) int64, the fields of Spans, in the order of the text
    keys: np.ndarray  # (N,) uint64, the random key of each
    order: np.ndarray  # (n,) indices of the remaining instances, 0 to N - 1, in the order they are yielded
    ends: list[Position]  # (n,) the position after each of these

    def __len__(self) -> int:
        return len(self.order)


@dataclass(eq=False)
class Instances:
    """Sequences made from some documents of token shards.

    An epoch permutes the documents, cuts them into blocks of about 262,144 tokens, and shuffles the instances
    of each block. To resume at a position, only one block has to be made again. Raise InputError if there is
    no document, or the tokenizer is not the one of the shards; with next sentences also if there is only one
    document, or none with two sentences.
    """

    shards: TokenShards  # the text
    documents: np.ndarray  # (n,) indices of the documents to use; random next spans come from them as well
    tokenizer: Tokenizer  # the tokenizer of the shards
    options: InstanceOptions = InstanceOptions()
    seed: int = 0  # the seed of every draw

    def __post_init__(self) -> None:
        self.documents = np.asarray(self.documents, np.int64)
        self.shards.check_vocabulary(self.tokenizer)
        if not len(self.documents):
            raise InputError("documents=[] gives no instance; choose at least one document.")
        lowest = self.documents.min()
        highest = self.documents.max()
        if lowest < 0 or highest >= self.shards.n_documents:
            raise InputError(
                f"documents={lowest}…{highest} are not all there; "
                f"shards hold 0 to {self.shards.n_documents - 1}."
            )
        if self.options.pairs and len(self.documents) == 1:
            raise InputError(
                "One document alone has no other to take a random next sentence from; "
                "give more documents (blank lines divide them) or set next_sentence=False.",
                next_sentence=False,
            )
        if self.options.pairs and self.shards.sentence_counts[self.documents].max() < 2:
            raise InputError(
                "No document has two sentences; give longer documents (one sentence a line, blank lines only "
                "between documents) or set next_sentence=False.",
                next_sentence=False,
            )
        self._lengths = self.shards.document_lengths[self.documents]
        self._choices = self.documents.tolist()
        self._borders = Borders(self.shards, self.options.longest_sentence)

    def stream(self, position: Position = BEGINNING) -> Iterator[tuple[Sequence, Position]]:
        """Yield instances without end from `position` on, each with the position after it.

        Parameters
        ----------
        position : Position, default BEGINNING
            Position of the first instance.

        Yields
        ------
        Sequence
            An instance; its arrays are read-only views of its block.
        Position
            The position after it, from which to continue.

        Raises
        ------
        InputError
            When this text has no such position.
        """
        for sequence, after, _ in self.located(position):
            yield sequence, after

    def located(self, position: Position = BEGINNING) -> Iterator[tuple[Sequence, Position, Spans]]:
        """Yield what `stream` yields, each with the positions of its spans in the shards.

        Parameters
        ----------
        position : Position, default BEGINNING
            As for `stream`.

        Yields
        ------
        Sequence, Position
            As from `stream`.
        Spans
            The spans of the sequence.

        Raises
        ------
        InputError
            When this text has no such position.
        """
        for block in self.drawn_blocks(position):
            made = self.make(block, is_wanted=np.ones(len(block), bool))
            for instance, after in zip(made, block.ends, strict=True):
                sequence, spans = instance
                yield sequence, after, spans

    def drawn_blocks(self, position: Position = BEGINNING) -> Iterator[DrawnBlock]:
        """Yield the blocks from `position` on, without end: spans and order of their instances.

        No token is read; `make` does that, for the instances that are wanted.

        Parameters
        ----------
        position : Position, default BEGINNING
            Position of the first instance.

        Yields
        ------
        DrawnBlock
            A block; the first has only the instances from `position` on.

        Raises
        ------
        InputError
            When this text has no such position.
        """
        epoch, first_block, offset = position
        while True:
            blocks = self._blocks(epoch)
            self._check_within(position, first_block, len(blocks), "blocks")
            for number in range(first_block, len(blocks)):
                spans, keys = self._draw_spans(epoch, blocks[number])
                order = permutation(np.arange(len(spans)), key(BLOCK_ORDER, self.seed, epoch, number))
                self._check_within(position, offset, len(order), "instances")
                ends = _positions_after(epoch, number, offset, len(order), number + 1 == len(blocks))
                yield DrawnBlock(spans, keys, order[offset:], list(ends))
                offset = 0
            epoch += 1
            first_block = 0

    # is_wanted (n,) bool
    def make(self, drawn: DrawnBlock, is_wanted: np.ndarray) -> Iterator[tuple[Sequence, Spans]]:
        """Make some instances of a block; the tokens of the others are not read.

        An instance is the same, byte for byte, whichever others are made with it.

        Parameters
        ----------
        drawn : DrawnBlock
            As `drawn_blocks` yields it.
        is_wanted : (n,) bool
            Which of the n instances to make, in the order of `drawn.order`.

        Yields
        ------
        Sequence
            The wanted instances in the same order; their arrays are read-only views.
        Spans
            The spans of the sequence in the shards.
        """
        wanted = drawn.order[is_wanted]
        if not len(wanted):
            return
        in_text_order = np.sort(wanted)  # the order of the tokens in the shards
        spans = drawn.spans[in_text_order]
        block = self._make_block(spans, drawn.keys[in_text_order])
        places = spans.tolist()
        for row in np.searchsorted(in_text_order, wanted).tolist():
            yield block.sequence_at(row), Spans(*places[row])

    def _check_within(self, position: Position, place: int, count: int, what: str) -> None:
        if not 0 <= place < count:
            raise InputError(
                f"position={tuple(position)} does not exist: there are {count} {what}; "
                "go on with the text, the options and the seed it comes from."
            )

    def _blocks(self, epoch: int) -> list[np.ndarray]:
        """Return the documents of each block of an epoch."""
        epoch_key = key(DOCUMENT_ORDER, self.seed, epoch)
        order = permutation(self.documents, epoch_key)
        last_tokens = np.cumsum(self._lengths[order]) - 1
        block_of_document = last_tokens // BLOCK_TOKENS  # a document belongs to the block of its last token
        begins = np.flatnonzero(np.diff(block_of_document)) + 1
        return np.split(self.documents[order], begins)

    # documents (d,) -> (N,5) int64, the fields of Spans; (N,) uint64
    def _draw_spans(self, epoch: int, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the spans of a block's instances, document by document, and the random key of each."""
        options = self.options
        copy = epoch
        if options.dupe_factor:
            copy = epoch % options.dupe_factor
        spans: list[Spans] = []
        keys: list[np.ndarray] = []
        for document in documents.tolist():
            document_key = key(CONTENT, self.seed, copy, document)
            of_document = list(self._spans(document, Random(document_key)))
            spans += of_document
            repeated = np.full(len(of_document), document_key, np.uint64)
            keys.append(draw(repeated, np.arange(len(of_document))))
        return np.array(spans, np.int64), np.concatenate(keys)

    # spans (N,5)  keys (N,)
    def _make_block(self, spans: np.ndarray, keys: np.ndarray) -> Block:
        block = lay_out(self.shards, spans, self.options.pairs, self.tokenizer)
        if self.options.left_to_right:
            block.predict_next_tokens()
        else:
            self._mask(block, keys)
        block.freeze()
        return block

    def _mask(self, block: Block, keys: np.ndarray) -> None:
        """Choose the tokens to predict in each sequence of a block, and mask them."""
        options = self.options
        # A share of all positions, including [CLS] and [SEP], rounded half to even as in the released code.
        lengths = np.diff(block.begins)
        count = np.maximum(1, np.rint(lengths * options.masked_lm_prob)).astype(np.int64)
        count = np.minimum(count, options.most_predictions)

        candidates = self._candidates(block)
        rows = block.rows[candidates]
        sequence = block.sequence[candidates]
        position = rows - block.begins[sequence]
        if options.whole_word_mask:  # the first piece of a span counts as a head, even if its word was cut
            continues = self.tokenizer.continuation[block.input_ids[rows]]
            head = block.opening[candidates] | ~continues
            is_chosen = choose_words(keys, sequence, position, head, count)
        else:
            is_chosen = choose_positions(keys, sequence, position, count)

        visible = replace_tokens(
            keys[sequence[is_chosen]],
            block.input_ids[rows[is_chosen]],
            position[is_chosen],
            self.tokenizer.mask_id,
            self.tokenizer.vocab_size,
            options.mask_rates,
        )
        block.predict(candidates[is_chosen], visible)

    # -> (c,) ascending
    def _candidates(self, block: Block) -> np.ndarray:
        """Return the indices of the rows of text that may be predicted.

        Special tokens that are written in the text are left out, unless a sequence has nothing else.
        """
        is_text = ~is_control(self.tokenizer, block.input_ids[block.rows])
        if not is_text.all():
            has_text = np.bincount(block.sequence[is_text], minlength=len(block.next_labels)) > 0
            is_text |= ~has_text[block.sequence]
        return np.flatnonzero(is_text)

    def _spans(self, document: int, rng: Random) -> Iterator[Spans]:
        room = self.options.room
        short = self.options.short_seq_prob
        if self.options.pairs:
            return span_pairs(document, self._choices, self._borders, room, short, rng)
        begin, ends = self._borders(document)
        return contiguous_spans(begin, ends[-1], room, short, rng)


def stream_slots(
    instances: Instances, position: Position, count: int, first: int, last: int
) -> Iterator[tuple[Sequence | None, Position]]:
    """Yield the stream of instances, but make only some slots of every batch.

    Several processes share a batch in this way: together they make what one process would, byte for byte, and
    none reads the tokens of another.

    Parameters
    ----------
    instances : Instances
        The instances of all processes.
    position : Position
        Where the first batch begins.
    count : int
        Number of sequences in a batch.
    first, last : int
        Slots `first` to `last - 1` of each batch are made.

    Yields
    ------
    Sequence or None
        An instance; None in a slot that is not made.
    Position
        The position after it.

    Raises
    ------
    InputError
        When a batch does not have these slots, or the text no such position.
    """
    if not 0 <= first < last <= count:
        raise InputError(
            f"first={first}, last={last} are not slots of a batch of {counted(count, 'sequence')}; "
            "give 0 <= first < last <= count."
        )
    passed = 0  # instances since `position`
    for block in instances.drawn_blocks(position):
        slots = (passed + np.arange(len(block))) % count
        is_made = (first <= slots) & (slots < last)
        made = instances.make(block, is_made)
        for is_mine, after in zip(is_made.tolist(), block.ends, strict=True):
            sequence = None
            if is_mine:
                sequence, _ = next(made)
            yield sequence, after
        passed += len(block)


def _positions_after(epoch: int, block: int, offset: int, size: int, is_last: bool) -> Iterator[Position]:
    """Yield the position after each instance of a block of `size` instances, from index `offset` on."""
    for following in range(offset + 1, size):
        yield Position(epoch, block, following)
    yield Position(epoch + 1, 0, 0) if is_last else Position(epoch, block + 1, 0)


def share_in_pairs(shards: TokenShards, documents: np.ndarray | None = None) -> float:
    """Compute the share of a text that lies in documents of two sentences or more.

    A document of one sentence, such as a ticket or a short message, always gets a random next sentence. If
    most documents are like that, there is hardly anything to learn.

    Parameters
    ----------
    shards : TokenShards
        The text.
    documents : (n,) int64, optional
        Indices of the documents that count; all of them by default.

    Returns
    -------
    float
        A share of the tokens, from 0 to 1.
    """
    counts = shards.sentence_counts
    lengths = shards.document_lengths
    if documents is not None:
        counts = counts[documents]
        lengths = lengths[documents]
    return float(lengths[counts >= 2].sum() / lengths.sum())


def split_documents(
    n_documents: int, held_out: float = 0.05, next_sentence: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Divide documents into training and held-out documents, the same way whatever the seed of the run.

    The held-out ones are spread evenly over the corpus (each 20th by default), so that every book has its
    share.

    Parameters
    ----------
    n_documents : int
        Number of documents.
    held_out : float, default 0.05
        The share to hold out, above 0 and below 1. At least one document is held out and one is not.
    next_sentence : bool, default True
        Whether random next sentences come from other documents: then each side has at least two.

    Returns
    -------
    (n,) int64
        Indices of the training documents, ascending.
    (m,) int64
        Indices of the held-out documents, ascending.

    Raises
    ------
    InputError
        When there are too few documents, or the share is out of range.
    """
    if not 0 < held_out < 1:
        raise InputError(f"{held_out=} is not possible; give a share above 0 and below 1.", held_out=held_out)
    least = 2 if next_sentence else 1
    if n_documents < 2 * least:
        raise _too_few_documents(n_documents, least, next_sentence)
    count = max(least, round(n_documents * held_out))
    count = min(count, n_documents - least)
    held = (np.arange(count) + 1) * n_documents // count - 1  # the last of each of `count` equal runs
    return np.setdiff1d(np.arange(n_documents), held), held


def _too_few_documents(n_documents: int, least: int, next_sentence: bool) -> InputError:
    needed = f"{2 * least} are needed"
    if next_sentence:
        needed += " for next sentences"
    needed += f": {least} to train on and {least} to hold out"
    advice = (
        "give more documents (in plain text, blank lines separate them), or choose layout='documents' (each "
        "line is one) or layout='continuous' (the text is cut into documents)"
    )
    if next_sentence and n_documents > 1:
        advice += ", or set next_sentence=False"
    what = f"The text is {counted(n_documents, 'document')}"
    return InputError(f"{what}, and {needed}; {advice}.", next_sentence=False)
