"""Explain an answer by the words of the text: the gradient of its score times the input, word by word.

A score s is a function of the vectors that enter the model, x_i = word embedding of token i. To first order,
removing the token (x_i towards 0) changes s by -x_i · ds/dx_i, so x_i · ds/dx_i is what the token contributes
to the score (Simonyan et al. 2014; Shrikumar et al. 2017, "gradient × input"). The pieces of a word are
added up.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.base.foreign_names import explains_foreign_attributes
from minibert.core.head_kinds import KINDS, SEQUENCES, SIGMOIDS, SOFTMAX, SQUARES
from minibert.finetuning.models import Finetuned
from minibert.model import heads
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.reports.markup import rendered

CAVEAT = (
    "What a number does not mean: that the word caused the answer, or that the answer would change without "
    "it. It is the slope of the score at this text; where the score bends, the slope misleads. Take the word "
    "out and ask again to know."
)


class Word(NamedTuple):
    """A word of the text, as the model reads it, and what it contributes to the score of the answer."""

    word: str
    score: float  # negative if the word speaks against the answer


@explains_foreign_attributes
@dataclass(frozen=True)
class Explanation:
    """The contribution of each word to an answer; it prints as a list, and in a notebook as coloured text.

    Attributes
    ----------
    answer : str
        A class, or "value" if the model predicts a number.
    score : float
        Log-odds of the class, in nats, or the number.
    words : list of Word
        Each has a `word` and its `score`, in the order of the text; those of a second text follow.
    rest : float
        What [CLS] and [SEP] contribute.
    """

    answer: str
    score: float
    words: list[Word]
    rest: float

    def top(self, n: int = 5) -> list[Word]:
        """Return the words with the largest contributions in absolute value, the largest first.

        Parameters
        ----------
        n : int, default 5
            How many words.

        Returns
        -------
        list of Word
        """
        return sorted(self.words, key=lambda word: -abs(word.score))[:n]

    def __str__(self) -> str:
        width = max((len(word.word) for word in self.words), default=0)
        lines = [f"{self.answer}: {self.score:+.3f}"]
        lines += [f"  {word.word:<{width}} {word.score:+.3f}" for word in self.words]
        return "\n".join([*lines, CAVEAT])

    def _repr_html_(self) -> str:
        """Show the text with the words' contributions as colours, and the caveat."""
        largest = max((abs(word.score) for word in self.words), default=0.0) or 1.0
        words = [(word.word, word.score, word.score / largest) for word in self.words]
        return rendered(
            "explanation.html.j2", answer=self.answer, score=self.score, words=words, caveat=CAVEAT
        )


def explain(model: Finetuned, example: Any, answer: str | None = None) -> Explanation:
    """Compute what each word of a text contributes to the score of an answer.

    Parameters
    ----------
    model : Finetuned
        A model that predicts a class, several classes or a number for a text.
    example : TextExample
        A text or a pair; its label is not read.
    answer : str, optional
        The class to explain; None for the one with the highest score. For a number there is no choice.

    Returns
    -------
    Explanation

    Raises
    ------
    InputError
        When there is no such class, the model has another kind of head, or the text takes more than one
        window.
    """
    head = model.head
    config = model.config
    kind = KINDS[head.kind]
    if kind.reads != SEQUENCES or kind.loss not in (SOFTMAX, SIGMOIDS, SQUARES):
        raise InputError(f"A model for {model.task.name} has no score of a whole text; explain a classifier.")
    features = model.features([example])
    batch = TaskBatch.pack_features(features, head)
    if batch.S > 1:
        most = model.max_length
        raise InputError(
            f"The text takes {batch.S} windows; give a part of at most {most} tokens to explain."
        )
    ops = model.ops if model.ops.xp is np else Ops()  # a compiling engine would compile for every length
    params = model.params.tree
    logits, saved = heads.logits(ops, config, head, params, batch)
    scores = np.asarray(logits, np.float64)[0]
    number = _number_of(answer, model.labels, scores)
    score, d_scores = _log_odds(kind.loss, scores, number)
    grads = model.params.zeros_like()
    d_logits = np.asarray(d_scores[None], logits.dtype)
    tree = heads.logits_backward(ops, config, head, d_logits, saved, params, grads.tree)
    # A sequence has each position once, and the two embeddings are added: the gradient of the position's
    # vector is that of the token's.
    d_input = np.asarray(tree["embeddings"]["position"][: batch.T], np.float64)
    word_vectors = np.asarray(params["embeddings"]["word"][batch.input_ids], np.float64)
    contributions = (d_input * word_vectors).sum(axis=1)
    words, rest = _by_words(model.tokenizer, batch.input_ids.tolist(), contributions.tolist())
    name = "value" if kind.loss == SQUARES else str(model.labels[number])
    return Explanation(name, score, words, rest)


def _number_of(answer: str | None, labels: Any, scores: np.ndarray) -> int:
    """Return the index of the output to explain."""
    if answer is None:
        return int(scores.argmax())
    if answer not in labels:
        known = ", ".join(map(str, labels)) or "none"
        raise InputError(f"{answer=} is not a class of this model; choose one of {known}.", answer=answer)
    return list(labels).index(answer)


def _log_odds(loss: str, scores: np.ndarray, number: int) -> tuple[float, np.ndarray]:
    """Return the log-odds of a class against all others, or else the score itself, and its gradient.

    With a softmax the log-odds are z_c - log sum of e^(z_j) over the others j. Their gradient is 1 at c, and
    minus the softmax of the others elsewhere. The logit of a sigmoid is its log-odds.
    """
    gradient = np.zeros_like(scores)
    gradient[number] = 1.0
    if loss != SOFTMAX:
        return float(scores[number]), gradient
    others = np.delete(np.arange(len(scores)), number)
    largest = scores[others].max()
    powers = np.exp(scores[others] - largest)
    gradient[others] = -powers / powers.sum()
    return float(scores[number] - largest - np.log(powers.sum())), gradient


def _by_words(tokenizer: Any, ids: list[int], contributions: list[float]) -> tuple[list[Word], float]:
    """Add up the contributions of the pieces of each word, and those of the special tokens."""
    words: list[Word] = []
    rest = 0.0
    for piece, contribution in zip(ids, contributions, strict=True):
        if piece in (tokenizer.cls_id, tokenizer.sep_id):
            rest += contribution
        elif tokenizer.continuation[piece] and words:
            begun = words.pop()
            words.append(Word(begun.word + tokenizer.vocab[piece][2:], begun.score + contribution))
        else:
            words.append(Word(tokenizer.vocab[piece], contribution))
    return words, rest
