"""Training instances of BERT from token shards, made on the fly: spans, next-sentence pairs, masks.

Section 3.1 and appendix A.2 of the paper; where it is silent, Google's create_pretraining_data.py. Instances
are functions of (seed, epoch, document, number in the document) alone: to go on, a run needs a position only.
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
from minibert.data.layout import Block, lay_out
from minibert.data.masking import POSITION_BITS, choose_positions, choose_words, visible_tokens
from minibert.data.nsp_spans import Borders, Spans, contiguous_spans, span_pairs
from minibert.data.shards.store import TokenShards
from minibert.tokenizer import Tokenizer
from minibert.tokenizer.written import is_control

SHORTEST = 5  # [CLS] a [SEP] b [SEP]
LONGEST = (1 << POSITION_BITS) - 1
UNCUT = 128  # sequences of this length and more take sentences whole
BLOCK_TOKENS = 1 << 18  # documents that are made into instances, and shuffled, together

CONTENT, DOCUMENT_ORDER, BLOCK_ORDER = range(3)  # what a key is for: the first number that goes into it


@dataclass(frozen=True)
class InstanceOptions:
    """How instances are made.

    Google's way of pairing sentences is made for sequences of 128 tokens and more. In shorter ones a sentence
    often fills the sequence and then always gets a random B: 70% are NotNext at 32 tokens, 90% at 16. There,
    sentences longer than half a sequence count as several, so that half of the pairs are in order. Raise
    InputError when a value is out of range.
    """

    seq_length: int = 128  # most tokens of a sequence, [CLS] and [SEP] included
    # Share of instances whose spans are gathered to a random shorter length. (Google's code draws this once
    # for a document; here every instance draws.)
    short_seq_prob: float = 0.1
    masked_lm_prob: float = 0.15  # share of positions to predict, at least 1; the base counts [CLS], [SEP]
    # Most positions to predict; None: masked_lm_prob of seq_length, rounded up (20 at 128, 77 at 512).
    max_predictions_per_seq: int | None = None
    mask_rates: tuple[float, float, float] = (0.8, 0.1, 0.1)  # of [MASK], the same token, a random one there
    whole_word_mask: bool = False  # predict all pieces of a word or none
    next_sentence: bool = True  # pairs of spans, with the question whether B follows A; else contiguous spans
    left_to_right: bool = False  # predict every next token of contiguous spans; no masks, no next sentences
    # 0 draws new instances in each epoch; n makes n copies and reads copy `epoch mod n` (Google's static
    # masks, n = 10). The order of instances is drawn anew either way.
    dupe_factor: int = 0

    def __post_init__(self) -> None:
        self._check("seq_length", SHORTEST <= self.seq_length <= LONGEST, f"from {SHORTEST} to {LONGEST:,}")
        self._check("short_seq_prob", 0 <= self.short_seq_prob <= 1, "from 0 to 1")
        self._check("masked_lm_prob", 0 < self.masked_lm_prob <= 1, "above 0 and at most 1")
        most = self.max_predictions_per_seq
        self._check("max_predictions_per_seq", most is None or most >= 1, "1 or more")
        rates = self.mask_rates
        are_shares = len(rates) == 3 and min(rates) >= 0 and abs(sum(rates) - 1) < 1e-6
        self._check("mask_rates", are_shares, "three shares (MASK, SAME, RND) that sum to 1")
        self._check("dupe_factor", self.dupe_factor >= 0, "0 (new masks in each epoch) or more")

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
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
        """The number of tokens above which a sentence is split; None: never."""
        if self.pairs and self.seq_length < UNCUT:
            return self.room // 2
        return None

    @property
    def most_predictions(self) -> int:
        """`max_predictions_per_seq`, or what None stands for."""
        if self.max_predictions_per_seq:
            return self.max_predictions_per_seq
        expected = self.masked_lm_prob * self.seq_length
        return math.ceil(expected - 1e-9)  # 0.07 * 100 is a little over 7


class Position(NamedTuple):
    """The position of a stream of instances: its next instance."""

    epoch: int
    block: int
    offset: int


BEGINNING = Position(0, 0, 0)


@dataclass(frozen=True, eq=False)
class DrawnBlock:
    """The n remaining instances of a block: drawn, but not yet made from tokens."""

    spans: np.ndarray  # (N,5) int64, the fields of Spans, in the order of the text
    keys: np.ndarray  # (N,) uint64, the random key of each
    order: np.ndarray  # (n,) the numbers of those to come, from 0 to N - 1, in the order in which they come
    ends: list[Position]  # (n,) the position after each of these

    def __len__(self) -> int:
        return len(self.order)


@dataclass(eq=False)
class Instances:
    """Sequences made from some documents of token shards.

    An epoch permutes the documents, cuts them into blocks of about 262,144 tokens, and shuffles the instances
    of each block. To resume at a position only one block has to be made again. Raise InputError for no
    document, or, with next sentences, only one, or none with two sentences; for a tokenizer of other shards.
    """

    shards: TokenShards  # the text
    documents: np.ndarray  # (n,) numbers of those to use; random next spans come from them as well
    tokenizer: Tokenizer  # of the shards
    options: InstanceOptions = InstanceOptions()
    seed: int = 0  # of every draw

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
            Where to begin: that of the first instance.

        Yields
        ------
        Sequence
            An instance, whose arrays are read-only views of its block.
        Position
            Where to go on after it.

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
            As of `stream`.

        Yields
        ------
        Sequence
            As of `stream`.
        Position
            Where to go on after it.
        Spans
            Of the sequence.

        Raises
        ------
        InputError
            When this text has no such position.
        """
        for block in self.drawn_blocks(position):
            all_of_them = np.ones(len(block), bool)
            for (sequence, spans), after in zip(self.make(block, all_of_them), block.ends, strict=True):
                yield sequence, after, spans

    def drawn_blocks(self, position: Position = BEGINNING) -> Iterator[DrawnBlock]:
        """Yield the blocks from `position` on, without end: their instances' positions and order.

        No token is read for it; `make` does that, for the instances that are wanted.

        Parameters
        ----------
        position : Position, default BEGINNING
            That of the first instance.

        Yields
        ------
        DrawnBlock
            Of the first block, what comes from `position` on.

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
            Which instances are made, in the order in which they come.

        Yields
        ------
        Sequence
            A wanted instance, in that order; its arrays are read-only views.
        Spans
            Where it lies among the tokens of the shards.
        """
        wanted = drawn.order[is_wanted]
        if not len(wanted):
            return
        in_text_order = np.sort(wanted)  # as the tokens lie in the shards
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
        block_of_document = last_tokens // BLOCK_TOKENS  # that of its last token
        begins = np.flatnonzero(np.diff(block_of_document)) + 1
        return np.split(self.documents[order], begins)

    # documents (d,) -> (N,5) int64, the fields of Spans; (N,) uint64
    def _draw_spans(self, epoch: int, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of a block's instances, by document, and the random key of each."""
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
        # A share of all positions, [CLS] and [SEP] counted, rounded (half to even) as in the released code.
        lengths = np.diff(block.begins)
        count = np.maximum(1, np.rint(lengths * options.masked_lm_prob)).astype(np.int64)
        count = np.minimum(count, options.most_predictions)

        candidates = self._candidates(block)
        rows = block.rows[candidates]
        sequence = block.sequence[candidates]
        position = rows - block.begins[sequence]
        if options.whole_word_mask:  # the first piece of a span begins a word, though its head may be cut off
            continues = self.tokenizer.continuation[block.input_ids[rows]]
            head = block.opening[candidates] | ~continues
            is_chosen = choose_words(keys, sequence, position, head, count)
        else:
            is_chosen = choose_positions(keys, sequence, position, count)

        visible = visible_tokens(
            block.input_ids[rows[is_chosen]],
            keys[sequence[is_chosen]],
            position[is_chosen],
            options.mask_rates,
            self.tokenizer.mask_id,
            self.tokenizer.vocab_size,
        )
        block.predict(candidates[is_chosen], visible)

    # -> (c,) ascending
    def _candidates(self, block: Block) -> np.ndarray:
        """Return the numbers of the rows of text that may be predicted: no special token written in the text.

        Where a sequence has nothing else, all of its rows may be.
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

    So several processes share a batch: together they make what one process would, the same byte for byte, and
    none reads the tokens of another.

    Parameters
    ----------
    instances : Instances
        All of them.
    position : Position
        Where the first batch begins.
    count : int
        Sequences of a batch.
    first, last : int
        The slots of a batch that are made are `first` to `last - 1`.

    Yields
    ------
    Sequence or None
        An instance; None in a slot that is not made.
    Position
        Where to go on after it.

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
        for here, after in zip(is_made.tolist(), block.ends, strict=True):
            sequence = None
            if here:
                sequence, _ = next(made)
            yield sequence, after
        passed += len(block)


def _positions_after(epoch: int, block: int, offset: int, size: int, is_last: bool) -> Iterator[Position]:
    """Yield the position after each instance of a block of `size` instances, from number `offset` on."""
    for following in range(offset + 1, size):
        yield Position(epoch, block, following)
    yield Position(epoch + 1, 0, 0) if is_last else Position(epoch, block + 1, 0)


def share_in_pairs(shards: TokenShards, documents: np.ndarray | None = None) -> float:
    """Compute the share of a text that lies in documents of two sentences or more.

    Whatever follows a document of one sentence comes from elsewhere: where most are such, as with tickets and
    short messages, next sentences are hardly ever next.

    Parameters
    ----------
    shards : TokenShards
        The text.
    documents : (n,) int64, optional
        Numbers of the documents that count; all of them when left out.

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
    """Divide documents into training documents and held-out ones, always alike, whatever the seed of the run.

    The held-out ones lie evenly over the corpus (each 20th by default), so that every book has its share.

    Parameters
    ----------
    n_documents : int
        How many there are.
    held_out : float, default 0.05
        The share to be measured on, above 0 and below 1. At least one document is held out and one is not.
    next_sentence : bool, default True
        Whether random next sentences come from other documents: then at least two are on either side.

    Returns
    -------
    (n,) int64
        Numbers of the training documents, ascending.
    (m,) int64
        Numbers of those that are held out, ascending.

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
    why = ""
    if next_sentence:
        why = ", as next sentences are also drawn from other documents"
    instead = ""
    if next_sentence and n_documents > 1:
        instead = ", or set next_sentence=False"
    return InputError(
        f"The text is {counted(n_documents, 'document')}, which is too few: "
        f"{least} to train on and {least} to hold out are needed{why}; "
        "give more text (each text of a list, row of a table or line of JSON is one document), in plain text "
        "with blank lines between documents or layout='documents' where each line is a document, "
        f"layout='continuous' to have it cut into documents{instead}.",
        next_sentence=False,
    )
