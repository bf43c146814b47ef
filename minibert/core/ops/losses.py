"""Losses by row. The weight of a row is simply the gradient that comes in from above it.

Each forward returns the loss of every row; the model sums them with weights 1 / (global count). So there
is no mean to undo for micro-batches or shards, and a batch with nothing to predict costs exactly zero.

Read next: `blocks`, where `masked_lm_head_backward` uses this. The row weights of pre-training come from
`bert.pretraining_loss_backward`.
"""

from collections import namedtuple

import numpy as np

from minibert.core.arrays import Array, Saved
from minibert.core.ops.attention import equal_length_groups
from minibert.core.ops.primitives import Primitives

CrossEntropySaved = namedtuple("CrossEntropySaved", "probabilities labels")
SigmoidSaved = namedtuple("SigmoidSaved", "slope labels")
SegmentsSaved = namedtuple("SegmentsSaved", "cu_seqlens groups")  # groups of (segments, CrossEntropySaved)
SquaredErrorSaved = namedtuple("SquaredErrorSaved", "difference")


class Losses(Primitives):
    """Cross-entropies and the squared error."""

    # logits (N,K)  labels (N,) -> (N,)
    def softmax_cross_entropy(self, logits: Array, labels: Array) -> tuple[Array, Saved]:
        """Return -log softmax(logits)[label] of every row, in nats.

        It is the loss of both pre-training tasks (Devlin et al. 2019, A.2) and of classifiers (section 4.1).

        Parameters
        ----------
        logits : (N,K).
        labels : (N,) the right class of each row, 0 to K-1.

        Returns
        -------
        nll : (N,) nats.
        saved : the probabilities (N,K) and the labels.
        """
        xp = self.xp
        shifted = logits - logits.real.max(-1, keepdims=True)
        exponentials = xp.exp(shifted)
        total = exponentials.sum(-1, keepdims=True)
        rows = np.arange(len(labels))
        nll = xp.log(total[:, 0]) - shifted[rows, labels]
        return nll, CrossEntropySaved(exponentials / total, labels)

    # d nll / d logits = softmax - one-hot(label)
    # dnll (N,) -> dlogits (N,K)
    def softmax_cross_entropy_backward(self, dnll: Array, saved: Saved) -> Array:
        """Return the gradient of `softmax_cross_entropy`.

        Parameters
        ----------
        dnll : (N,) gradient of the total loss with respect to each row's, which is the row's weight.
        saved : what `softmax_cross_entropy` kept.

        Returns
        -------
        dlogits : (N,K).
        """
        probabilities = saved.probabilities
        here = np.arange(probabilities.shape[-1]) == saved.labels[:, None]
        return self.xp.where(here, probabilities - 1, probabilities) * dnll[:, None]

    # scores (T,)  cu_seqlens (S+1,)  labels (S,) -> (S,)
    def segment_softmax_cross_entropy(
        self, scores: Array, cu_seqlens: np.ndarray, labels: Array
    ) -> tuple[Array, Saved]:
        """Return -log softmax within each segment at its label, such as the token where an answer ends.

        It is the loss of the start and of the end of a span (Devlin et al. 2019, section 4.2).

        Parameters
        ----------
        scores : (T,) a score for each row of the flat batch.
        cu_seqlens : (S+1,) where the segments begin; each has at least one row.
        labels : (S,) the right row of each segment, counted from its beginning.

        Returns
        -------
        nll : (S,) nats.
        saved : cu_seqlens, and for each group of equal-length segments what `softmax_cross_entropy` kept.
        """
        groups, _ = equal_length_groups(cu_seqlens)
        members = [np.searchsorted(cu_seqlens, rows[:, 0]) for rows in groups]  # the segments of each group
        parts = []
        kept = []
        for rows, segments in zip(groups, members, strict=True):
            nll, saved = self.softmax_cross_entropy(scores[rows], labels[segments])
            parts.append(nll)
            kept.append((segments, saved))
        back = np.argsort(np.concatenate(members))
        nll = self.xp.concatenate(parts)[back]
        return nll, SegmentsSaved(cu_seqlens, tuple(kept))

    # dnll (S,) -> dscores (T,)
    def segment_softmax_cross_entropy_backward(self, dnll: Array, saved: Saved) -> Array:
        """Return the gradient of `segment_softmax_cross_entropy`.

        Parameters
        ----------
        dnll : (S,) gradient of each segment's loss.
        saved : what `segment_softmax_cross_entropy` kept.

        Returns
        -------
        dscores : (T,).
        """
        _, back = equal_length_groups(saved.cu_seqlens)
        parts = []
        for segments, group in saved.groups:
            dscores = self.softmax_cross_entropy_backward(dnll[segments], group)
            parts.append(dscores.reshape(-1))
        return self.xp.concatenate(parts)[back]

    # logits labels (N,K) -> (N,)
    def sigmoid_cross_entropy(self, logits: Array, labels: Array) -> tuple[Array, Saved]:
        """Return for every row the mean over K classes, each of which applies or not, in nats.

        A label is 0 where its class does not apply, and costs -log(1 - s(logit)), s the logistic function.
        Otherwise it is the weight of -log s(logit): 1, or PyTorch's `pos_weight`.

        Parameters
        ----------
        logits : (N,K).
        labels : (N,K) 0, or the weight of the class that applies.

        Returns
        -------
        nll : (N,) nats.
        saved : the slope s(wrong) of each term, and the labels.
        """
        xp = self.xp
        wrong = xp.where(labels > 0, -logits, logits)  # costs log(1 + exp(wrong)), times the weight
        is_large = wrong.real > 0
        small = xp.exp(xp.where(is_large, -wrong, wrong))  # at most 1: nothing overflows
        nll = xp.log1p(small) + xp.where(is_large, wrong, 0)
        slope = xp.where(is_large, 1, small) / (1 + small)
        weights = xp.where(labels > 0, labels, 1)
        return (weights * nll).mean(-1), SigmoidSaved(slope, labels)

    # d log(1 + exp(x)) / dx = s(x)
    # dnll (N,) -> dlogits (N,K)
    def sigmoid_cross_entropy_backward(self, dnll: Array, saved: Saved) -> Array:
        """Return the gradient of `sigmoid_cross_entropy`.

        Parameters
        ----------
        dnll : (N,) gradient of each row's loss.
        saved : what `sigmoid_cross_entropy` kept.

        Returns
        -------
        dlogits : (N,K).
        """
        labels = saved.labels
        signs = self.xp.where(labels > 0, -labels, 1)  # d wrong / d logits, times the weight
        dmean = dnll / labels.shape[-1]
        return signs * saved.slope * dmean[:, None]

    # predictions targets (N,) -> (N,)
    def squared_error(self, predictions: Array, targets: Array) -> tuple[Array, Saved]:
        """Return (prediction - target)^2 of every row; with weights 1/N from above the sum is the mean.

        Parameters
        ----------
        predictions, targets : (N,).

        Returns
        -------
        loss : (N,).
        saved : the differences.
        """
        difference = predictions - targets
        return difference * difference, SquaredErrorSaved(difference)

    # dloss (N,) -> dpredictions (N,)
    def squared_error_backward(self, dloss: Array, saved: Saved) -> Array:
        """Return the gradient with respect to the predictions.

        Parameters
        ----------
        dloss : (N,) gradient of each row's loss.
        saved : what `squared_error` kept.

        Returns
        -------
        dpredictions : (N,).
        """
        return 2 * saved.difference * dloss
