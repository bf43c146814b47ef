"""The gradient checker can fail: subtly wrong backwards, every one of which turns it red.

Each fault is one operation overridden, as an engine would; the decorator names the rows that must fail.
"""

import re

import numpy as np
import pytest
from command import ROOT

from minibert.core.gradcheck.cases import SIZES
from minibert.core.ops.attention import equal_length_groups
from minibert.core.ops.primitives import LinearSaved
from minibert.gradcheck.sheet import cases, check, proof_sheet
from minibert.model.ops import Ops

UGLY = {"ugly": SIZES["ugly"]}
CASES = cases(SIZES["ugly"])
FAULTS = []


def seen_in(*operations):
    """Register a planted fault together with the operations whose check has to find it."""

    def register(engine):
        FAULTS.append(pytest.param(engine, operations, id=engine.__name__))
        return engine

    return register


def is_caught(engine, operation):
    """Tell whether a row of the operation is red; the first one will do."""
    of_it = [case for case in CASES if case.operation == operation]
    return any(row.verdict == "FAIL" for case in of_it for row in check([engine], case, "float64", "ugly"))


@pytest.mark.parametrize(("engine", "operations"), FAULTS)
def test_planted_fault_is_caught(engine, operations):
    assert {one for one in operations if is_caught(engine(), one)} == set(operations)


@pytest.mark.thorough
def test_the_sane_engine_has_none_of_the_documented_faults():
    for page in (ROOT / "README.md", ROOT / "docs" / "what-is-proven.md"):
        said = re.search(r"(\d+) planted faults .* (\d+) of (\d+)", page.read_text(encoding="utf-8"))
        assert {int(number) for number in said.groups()} == {len(FAULTS)}
    assert {row.verdict for row in proof_sheet([Ops()], UGLY, ["float64"])} == {"ok"}


@seen_in("linear", "attention_block", "feed_forward_block", "masked_lm_head", "pooler")
class BiasGradientForgotten(Ops):
    def linear_backward(self, dy, saved):
        dx, dweight, dbias = super().linear_backward(dy, saved)
        return dx, dweight, 0 * dbias


@seen_in("linear")
class BiasGradientIsAMean(Ops):
    def linear_backward(self, dy, saved):
        dx, dweight, _ = super().linear_backward(dy, saved)
        return dx, dweight, dy.mean(0)


@seen_in("attention_block", "pooler", "masked_lm_head")
class WeightNotTransposed(Ops):
    def linear_backward(self, dy, saved):
        dx, dweight, dbias = super().linear_backward(dy, saved)
        weight = saved.weight
        square = weight.shape[0] == weight.shape[1]  # elsewhere the shapes would not fit
        return dy @ weight if square else dx, dweight, dbias


@seen_in("attention_block", "pooler", "masked_lm_head")
class WeightGradientTransposed(Ops):
    def linear_backward(self, dy, saved):
        dx, dweight, dbias = super().linear_backward(dy, saved)
        return dx, dweight.T.copy() if len(dweight) == len(dweight.T) else dweight, dbias


@seen_in("linear")
class BackwardInSinglePrecision(Ops):
    def linear_backward(self, dy, saved):
        narrow = LinearSaved(*(one.astype(np.float32) for one in saved))
        return super().linear_backward(dy.astype(np.float32), narrow)


@seen_in("gelu", "feed_forward_block")
class TanhFormWithErfDerivative(Ops):
    def gelu_backward(self, dy, saved, form):
        return super().gelu_backward(dy, saved, "erf")


@seen_in("gelu", "feed_forward_block", "masked_lm_head")
class ErfFormWithTanhDerivative(Ops):
    def gelu_backward(self, dy, saved, form):
        return super().gelu_backward(dy, saved, "tanh")


@seen_in("gelu")
class GeluSlopeForgotten(Ops):
    def gelu_backward(self, dy, saved, form):
        return dy * saved.cdf


@seen_in("tanh", "pooler")
class TanhDerivativeNotSquared(Ops):
    def tanh_backward(self, dy, saved):
        return dy * (1 - saved.y)


class _LayerNorm(Ops):
    """LayerNorm's backward with parts that can be left out."""

    def layer_norm_backward(self, dy, saved):
        normal = saved.x_hat
        g = self.scaled(dy, saved.gamma)
        dx = saved.rstd * (g - self.mean_term(g) - self.variance_term(g, normal))
        return dx, self.dgamma(dy, normal), dy.sum(0)

    def scaled(self, dy, gamma):
        return dy * gamma

    def mean_term(self, g):
        return g.mean(-1, keepdims=True)

    def variance_term(self, g, normal):
        return normal * (g * normal).mean(-1, keepdims=True)

    def dgamma(self, dy, normal):
        return (dy * normal).sum(0)


@seen_in("layer_norm", "embedding_block", "attention_block", "feed_forward_block")
class MeanTermForgotten(_LayerNorm):
    def mean_term(self, g):
        return 0


@seen_in("layer_norm", "embedding_block", "attention_block", "feed_forward_block")
class VarianceTermForgotten(_LayerNorm):
    def variance_term(self, g, normal):
        return 0


@seen_in("layer_norm")
class MeanOverTokensInsteadOfColumns(_LayerNorm):
    def mean_term(self, g):
        return g.mean(0)


@seen_in("layer_norm")
class GammaForgotten(_LayerNorm):
    def scaled(self, dy, gamma):
        return dy


@seen_in("layer_norm")
class GammaGradientNotNormalised(_LayerNorm):
    def dgamma(self, dy, normal):
        return dy.sum(0)


@seen_in("layer_norm")
class EpsilonForgottenInBackward(_LayerNorm):
    def layer_norm_backward(self, dy, saved):
        spread = np.sqrt((saved.x_hat * saved.x_hat).mean(-1, keepdims=True))  # one but for eps
        without = saved._replace(x_hat=saved.x_hat / spread, rstd=saved.rstd / spread)
        return super().layer_norm_backward(dy, without)


class _Attention(Ops):
    """Attention's backward with parts that can be changed, one sequence and head at a time."""

    def attention_backward(self, dy, saved):
        q, k, v = saved.q, saved.k, saved.v
        groups, _ = equal_length_groups(saved.cu_seqlens)
        dq, dk, dv = (np.zeros_like(one) for one in (q, k, v))
        for group, kept in zip(groups, saved.groups, strict=True):
            for n, rows in enumerate(group):
                for a in range(q.shape[1]):
                    m = np.ones(kept.p.shape[2:]) if kept.mask is None else kept.mask[n, a]
                    one = dy[rows, a], q[rows, a], k[rows, a], v[rows, a], kept.p[n, a], m
                    dq[rows, a], dk[rows, a], dv[rows, a] = self.one_head(*one)
        return dq, dk, dv

    def one_head(self, dy, q, k, v, p, m):
        ds = self.d_scores(p, self.d_probabilities(dy, v, m)) / np.sqrt(q.shape[1])
        return ds @ k, ds.T @ q, self.d_values(p, m, dy)

    def d_probabilities(self, dy, v, m):
        return (dy @ v.T) * m

    def d_scores(self, p, dp):
        return p * (dp - (dp * p).sum(-1, keepdims=True))

    def d_values(self, p, m, dy):
        return (p * m).T @ dy


def test_the_attention_that_faults_are_planted_in_is_sane_without_them():
    rows = proof_sheet([_Attention()], UGLY, ["float64"], ["attention", "attention_block"])
    assert {row.verdict for row in rows} == {"ok"}


@seen_in("attention", "attention_block", "pretraining_loss")
class ScaleForgotten(_Attention):
    def one_head(self, dy, q, k, v, p, m):
        dq, dk, dv = super().one_head(dy, q, k, v, p, m)
        return dq * np.sqrt(q.shape[1]), dk * np.sqrt(q.shape[1]), dv


@seen_in("attention")
class ScaleForgottenForKeysOnly(_Attention):
    def one_head(self, dy, q, k, v, p, m):
        dq, dk, dv = super().one_head(dy, q, k, v, p, m)
        return dq, dk * np.sqrt(q.shape[1]), dv


@seen_in("attention")
class QueriesAndKeysExchanged(_Attention):
    def one_head(self, dy, q, k, v, p, m):
        dq, dk, dv = super().one_head(dy, q, k, v, p, m)
        return dk, dq, dv


@seen_in("attention")
class SoftmaxHasNoCrossTerms(_Attention):
    def d_scores(self, p, dp):
        return p * dp


@seen_in("attention")
class SoftmaxSummedOverQueries(_Attention):
    def d_scores(self, p, dp):
        return p * (dp - (dp * p).sum(0))


@seen_in("attention")
class AttentionDropoutForgottenForProbabilities(_Attention):
    def d_probabilities(self, dy, v, m):
        return dy @ v.T


@seen_in("attention")
class AttentionDropoutForgottenForValues(_Attention):
    def d_values(self, p, m, dy):
        return p.T @ dy


@seen_in("attention")
class AttentionDropoutDrawnAgainFromOtherBits(_Attention):
    def d_values(self, p, m, dy):
        return (p * m[::-1]).T @ dy


@seen_in("attention", "attention_block", "pretraining_loss")
class CausalMaskForgottenInBackward(Ops):
    def attention_backward(self, dy, saved):
        groups, _ = equal_length_groups(saved.cu_seqlens)
        seen = [
            kept._replace(p=self._probabilities(saved.q, saved.k, rows, False))
            for rows, kept in zip(groups, saved.groups, strict=True)
        ]
        return super().attention_backward(dy, saved._replace(groups=seen))


@seen_in("attention", "attention_block", "pretraining_loss")
class RowsLeftInTheOrderOfTheirLengths(Ops):
    def attention_backward(self, dy, saved):
        dq, dk, dv = super().attention_backward(dy, saved)
        _, back = equal_length_groups(saved.cu_seqlens)
        return dq, dk, dv[np.argsort(back)]


@seen_in("attention", "attention_block", "pretraining_loss")
class AttentionAcrossSequences(Ops):
    def attention(self, q, k, v, cu_seqlens, causal=False, drop=None, site=0):
        return super().attention(q, k, v, cu_seqlens[[0, -1]], causal, drop, site)


@seen_in("embedding", "embedding_block", "pretraining_loss")
class EqualIdsOverwriteOneAnother(Ops):
    def embedding_backward(self, dy, saved, dtable):
        dtable[saved.ids] += dy
        return dtable


@seen_in("embedding", "embedding_block")
class TableGradientOverwritten(Ops):
    def embedding_backward(self, dy, saved, dtable):
        dtable[...] = super().embedding_backward(dy, saved, np.zeros_like(dtable))
        return dtable


@seen_in("take_rows")
class RowTakenTwiceCountedOnce(Ops):
    def take_rows_backward(self, dy, saved):
        dx = np.zeros_like(saved.x)
        dx[saved.rows] = dy
        return dx


@seen_in("softmax_cross_entropy", "segment_softmax_cross_entropy", "masked_lm_head", "tagger_loss")
class LabelForgotten(Ops):
    def softmax_cross_entropy_backward(self, dnll, saved):
        return saved.probabilities * dnll[:, None]


@seen_in("softmax_cross_entropy", "masked_lm_head", "pretraining_loss", "tagger_loss")
class EveryRowWeighsTheSame(Ops):
    def softmax_cross_entropy_backward(self, dnll, saved):
        return super().softmax_cross_entropy_backward(np.full_like(dnll, 1 / max(1, len(dnll))), saved)


@seen_in("pretraining_loss")
class NextSentenceIgnoresClassZero(Ops):
    def softmax_cross_entropy_backward(self, dnll, saved):
        dlogits = super().softmax_cross_entropy_backward(dnll, saved)
        return dlogits * (saved.labels != 0)[:, None] if dlogits.shape[1] == 2 else dlogits


@seen_in("segment_softmax_cross_entropy", "head_loss")
class SegmentsFromTheLastToTheFirst(Ops):
    def segment_softmax_cross_entropy_backward(self, dnll, saved):
        return super().segment_softmax_cross_entropy_backward(dnll, saved)[::-1]


@seen_in("squared_error", "head_loss")
class HalfTheSquaredError(Ops):
    def squared_error_backward(self, dloss, saved):
        return super().squared_error_backward(dloss, saved) / 2


@seen_in("sigmoid_cross_entropy", "head_loss")
class ClassesAddUpInPlaceOfTheirMean(Ops):
    def sigmoid_cross_entropy_backward(self, dnll, saved):
        return super().sigmoid_cross_entropy_backward(dnll, saved) * saved.labels.shape[1]


@seen_in("sigmoid_cross_entropy", "head_loss")
class WeightOfAClassForgotten(Ops):
    def sigmoid_cross_entropy_backward(self, dnll, saved):
        plain = saved._replace(labels=np.minimum(saved.labels, 1))
        return super().sigmoid_cross_entropy_backward(dnll, plain)


@seen_in("layer_norm", "embedding_block")
class StatisticsTreatedAsConstants(_LayerNorm):
    def mean_term(self, g):
        return 0

    def variance_term(self, g, normal):
        return 0


@seen_in("attention", "attention_block")
class ValuesTreatedAsQueries(_Attention):
    def one_head(self, dy, q, k, v, p, m):
        return super().one_head(dy, v, k, q, p, m)


@seen_in("dropout_mask", "feed_forward_block", "embedding_block")
class SurvivorsNotScaledUp(Ops):
    def dropout_mask(self, drop, site, columns, dtype):
        return (super().dropout_mask(drop, site, columns, dtype) > 0).astype(dtype)


@seen_in("masked_lm_head", "pretraining_loss")
class FirstRowsInsteadOfTheMaskedOnes(Ops):
    def masked_lm_head(self, x, rows, labels, params, table, config):
        return super().masked_lm_head(x, np.arange(len(rows)), labels, params, table, config)


@seen_in("masked_lm_head", "pretraining_loss")
class DecoderBiasForgotten(Ops):
    def masked_lm_head_backward(self, dnll, saved, params, grads, dtable, config):
        bias = grads["output_bias"].copy()
        dx, grads, dtable = super().masked_lm_head_backward(dnll, saved, params, grads, dtable, config)
        return dx, grads | {"output_bias": bias}, dtable


class _Lstm(Ops):
    """What an LSTM saves of all time steps, changed before its backward sees it."""

    def lstm_backward(self, dy, saved):
        names = ("gates", "cells", "tanhs", "outputs")
        changed = self.changed(saved.gates.copy(), saved.cells, saved.tanhs, saved.outputs)
        return super().lstm_backward(dy, saved._replace(**dict(zip(names, changed, strict=True))))


@seen_in("lstm", "bilstm_block", "tagger_loss")
class ForgetGateForgotten(_Lstm):
    def changed(self, gates, cells, tanhs, outputs):
        width = outputs.shape[1]
        gates[:, width : 2 * width] = 1
        return gates, cells, tanhs, outputs


@seen_in("lstm")
class CellForgotten(_Lstm):
    def changed(self, gates, cells, tanhs, outputs):
        return gates, 0 * cells, tanhs, outputs


@seen_in("lstm")
class StateOfAnotherSequence(_Lstm):
    def changed(self, gates, cells, tanhs, outputs):
        return gates, cells, tanhs, np.roll(outputs, 1, axis=0)


@seen_in("lstm", "bilstm_block", "tagger_loss")
class TimeRunsForwardInBackward(Ops):
    def lstm_backward(self, dy, saved):
        return super().lstm_backward(dy, saved._replace(reverse=0 * saved.reverse))


@seen_in("bilstm_block", "tagger_loss", "head_loss")
class OneDirectionForgotten(Ops):
    def lstm_backward(self, dy, saved):
        dx, *grads = super().lstm_backward(dy, saved)
        return dx * (not saved.reverse), *grads


@seen_in("bilstm_block")
class DirectionsExchanged(Ops):
    def bilstm_block_backward(self, dy, saved, params, grads, frozen=False):
        dy = np.roll(dy, dy.shape[1] // 2, axis=1)
        return super().bilstm_block_backward(dy, saved, params, grads, frozen)


@seen_in("layer_mix", "tagger_loss")
class SharesTreatedAsWeights(Ops):
    def layer_mix_backward(self, dy, saved, frozen=False):
        return saved.shares[:, None, None] * dy, (saved.layers * dy).sum((1, 2))


@seen_in("dropout_mask", "embedding_block", "feed_forward_block")
class DropoutDrawnAfresh(Ops):
    """Backward without its mask: what a generator with a state would give."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def dropout_mask(self, drop, site, columns, dtype):
        self.calls += 1
        return super().dropout_mask(drop, site + self.calls, columns, dtype)


@seen_in("embedding_block", "attention_block", "feed_forward_block", "bilstm_block", "pretraining_loss")
class DropoutMaskNotAppliedInBackward(Ops):
    def _dropout_backward(self, dy, saved):
        return dy


@seen_in("embedding_block", "pretraining_loss")
class SegmentGradientForgotten(Ops):
    def embedding_block_backward(self, dy, saved, params, grads):
        segment = grads["segment"].copy()
        return super().embedding_block_backward(dy, saved, params, grads) | {"segment": segment}


@seen_in("attention_block", "pretraining_loss")
class ResidualForgotten(Ops):
    def attention_block_backward(self, dy, saved, params, grads):
        dx, grads = super().attention_block_backward(dy, saved, params, grads)
        past, _, _ = self.layer_norm_backward(dy, saved.norm)
        return dx - (past if saved.rows is None else self.take_rows_backward(past, saved.rows)), grads


@seen_in("feed_forward_block", "layers")
class ResidualBeforeTheNorm(Ops):
    def feed_forward_block_backward(self, dy, saved, params, grads, config):
        dx, grads = super().feed_forward_block_backward(dy, saved, params, grads, config)
        past_the_sublayer, _, _ = self.layer_norm_backward(dy, saved.norm)
        return dx - past_the_sublayer + dy, grads


@seen_in("layers", "pretraining_loss")
class LayersExchanged(Ops):
    def layers_backward(self, block_backward, dy, saved, params, grads, first=0):
        dx, grads = super().layers_backward(block_backward, dy, saved, params, grads, first)
        return dx, grads[::-1]


@seen_in("pooler", "pretraining_loss", "head_loss")
class PoolerGradientAtTheWrongRow(Ops):
    def pooler_backward(self, dy, saved, params, grads):
        dx, grads = super().pooler_backward(dy, saved, params, grads)
        return np.roll(dx, 1, axis=0), grads


@seen_in("masked_lm_head", "pretraining_loss")
class TiedEmbeddingCountedOnce(Ops):
    def masked_lm_head_backward(self, dnll, saved, params, grads, dtable, config):
        lost = np.zeros_like(dtable)
        dx, grads, _ = super().masked_lm_head_backward(dnll, saved, params, grads, lost, config)
        return dx, grads, dtable


@seen_in("masked_lm_head", "pretraining_loss")
class MaskedWeightsMultipliedTwice(Ops):
    def masked_lm_head_backward(self, dnll, saved, params, grads, dtable, config):
        return super().masked_lm_head_backward(dnll * dnll, saved, params, grads, dtable, config)


@seen_in(
    "attention_block", "feed_forward_block", "embedding_block", "masked_lm_head", "pooler", "bilstm_block"
)
class AccumulatorsOverwritten(Ops):
    def accumulate(self, total, extra):
        total[...] = extra
        return total


@seen_in("pool_windows")
class MeanOverThePadsToo(Ops):
    def pool_windows_backward(self, dy, saved):
        return super().pool_windows_backward(dy, saved._replace(weights=0 * saved.weights + 0.5))


@seen_in("pool_windows")
class GradientOfTheMaximumToAll(Ops):
    def pool_windows_backward(self, dy, saved):
        everywhere = saved.weights.shape[-1] > 1
        return super().pool_windows_backward(
            dy, saved._replace(weights=saved.weights | everywhere) if everywhere else saved
        )


@seen_in("pool_windows")
class AttentionAsIfItsWeightsWereGiven(Ops):
    def pool_windows_backward(self, dy, saved):
        dx, dquery = super().pool_windows_backward(dy, saved._replace(query=None))
        return dx, None if saved.query is None else super().pool_windows_backward(dy, saved)[1]


@seen_in("pool_windows")
class QueryGradientForgotten(Ops):
    def pool_windows_backward(self, dy, saved):
        dx, dquery = super().pool_windows_backward(dy, saved)
        return dx, None if dquery is None else 0 * dquery
