"""What every way of doing it is given: a model and a batch."""

from typing import NamedTuple

import numpy as np

from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.model.params import initialise

CLS, SEP, MASK = 101, 102, 103  # as in the published English vocabulary
MASKED = 0.15
SPREAD = 0.03  # added to the initial weights: with those alone any model's loss is log V, right or wrong
IGNORED = -100  # the label of a place that Hugging Face's loss leaves out

# The 64 quantiles (0.5/64, 1.5/64, ...) of the lengths of SST-2's 67,349 training phrases, in pieces of the
# published uncased vocabulary, [CLS] and [SEP] included. Mean 13.3.
PHRASES = (
    *(3, 3, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 9, 9, 9, 9, 10, 10),
    *(10, 11, 11, 11, 12, 12, 13, 13, 14, 14, 14, 15, 16, 16, 17, 17, 18, 19, 20, 20, 21, 22, 23, 24),
    *(26, 27, 29, 30, 33, 35, 39, 46),
)


class Work(NamedTuple):
    """A size and a batch."""

    size: str
    seq: int  # the longest sequence
    batch: int  # sequences
    lengths: str = "full"  # or "phrases": lengths as they are in SST-2, none above `seq`

    @property
    def title(self) -> str:
        return f"{self.size}, {self.batch} × {'phrases' if self.lengths == 'phrases' else self.seq}"

    def config(self, dropout: float, attention_dropout: float | None = None) -> BertConfig:
        """The published shape, vocabulary of 30,522, with this dropout; on attention's probabilities as well,
        if that is not given."""
        on_attention = dropout if attention_dropout is None else attention_dropout
        return BertConfig.from_size(
            self.size, hidden_dropout_prob=dropout, attention_probs_dropout_prob=on_attention
        )

    def sequence_lengths(self) -> np.ndarray:
        """(S,) tokens of each sequence."""
        if self.lengths == "full":
            return np.full(self.batch, self.seq)
        middles = (2 * np.arange(self.batch) + 1) * len(PHRASES) // (2 * self.batch)
        return np.random.default_rng(0).permutation(np.minimum(np.array(PHRASES)[middles], self.seq))

    def make_batch(self, config: BertConfig) -> Batch:
        """Sequences of two segments with 15% of their tokens masked; frequent pieces come often."""
        generator = np.random.default_rng(1)
        lengths = self.sequence_lengths()
        return Batch.pack([_sequence(int(n), i, config, generator) for i, n in enumerate(lengths)])


def _sequence(n: int, number: int, config: BertConfig, generator: np.random.Generator) -> Sequence:
    # 1/rank, as words are; 0 is [PAD], whose embedding does not learn in Hugging Face's BERT.
    ids = np.exp(generator.random(n) * np.log(config.V)).astype(np.int32).clip(1, config.V - 1)
    ids[0], ids[-1] = CLS % config.V, SEP % config.V
    masked = np.sort(generator.choice(np.arange(1, n), max(1, round(MASKED * n)), replace=False))
    labels = ids[masked].copy()
    ids[masked] = MASK % config.V
    return Sequence(ids, np.arange(n) >= n // 2, masked, labels, number % 2)


def weights(config: BertConfig) -> np.ndarray:
    """(N,) float32 parameters in general position, biases and LayerNorms included."""
    flat = initialise(config, seed=1).flat
    flat += np.random.default_rng(2).standard_normal(len(flat), np.float32) * np.float32(SPREAD)
    return flat


class Rectangle(NamedTuple):
    """A flat batch as padded rows (S,n), which is how others take it."""

    input_ids: np.ndarray  # (S,n) int64, 0 where there is nothing
    token_type_ids: np.ndarray  # (S,n) int64
    real: np.ndarray  # (S,n) bool, which places hold tokens
    masked: np.ndarray  # (M,) int64, the masked among the S n places
    masked_labels: np.ndarray  # (M,) int64
    labels: np.ndarray  # (S,n) int64, IGNORED where nothing is to be predicted
    next_sentence_labels: np.ndarray  # (S,) int64

    @classmethod
    def of(cls, batch: Batch) -> "Rectangle":
        """Every sequence padded to the longest."""
        lengths = np.diff(batch.cu_seqlens)
        real = np.arange(lengths.max()) < lengths[:, None]
        ids, segments = np.zeros(real.shape, np.int64), np.zeros(real.shape, np.int64)
        ids[real], segments[real] = batch.input_ids, batch.token_type_ids
        masked = np.flatnonzero(real)[batch.masked_rows]
        labels = np.full(real.size, IGNORED)
        labels[masked] = batch.masked_labels
        return cls(
            ids,
            segments,
            real,
            masked,
            batch.masked_labels.astype(np.int64),
            labels.reshape(real.shape),
            batch.next_sentence_labels.astype(np.int64),
        )

    @property
    def has_padding(self) -> bool:
        return not self.real.all()
