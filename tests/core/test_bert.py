"""The pre-training loss does not depend on how its sequences are laid out, batched or accumulated."""

import dataclasses

import numpy as np
import pytest

from minibert.core import bert
from minibert.core.batch import Batch
from minibert.core.gradcheck.cases import SIZES, Size, config_of, random_batch
from minibert.core.gradcheck.complex_step import distance
from minibert.gradcheck.drawn import random_parameters
from minibert.model.ops import Ops
from minibert.model.params import Parameters

SIZE = SIZES["ugly"]
RNG = np.random.default_rng(0)
THIRTY_TWO = random_batch(Size(tuple(RNG.integers(1, 20, 32)), *SIZE[1:]), 40, RNG)


@pytest.fixture(params=["both ways", "causal"])
def config(request):
    return config_of(SIZE, is_decoder=request.param == "causal")


@pytest.fixture
def params(config):
    return random_parameters(config, np.random.default_rng(1))


def ugly(M=SIZE.M, next_sentence=True):
    """A batch of ugly lengths."""
    return random_batch(SIZE, M, np.random.default_rng(2), next_sentence)


def run(config, params, *batches, ops=None, step=3, dropout=True, dtype=np.float64):
    """Losses of some micro-batches and the gradient of their sum, dropout on."""
    ops, params = ops or Ops(), params.astype(dtype)
    grads, results = params.zeros_like(), []
    for batch in batches:
        drop = ops.dropout(batch, 0.1, 0.2, seed=7, step=step) if dropout else None
        result, saved = bert.pretraining_loss(ops, config, params.tree, batch, drop)
        bert.pretraining_loss_backward(ops, config, saved, params.tree, grads.tree)
        results.append(result)
    return results, grads


def total(results):
    """The loss of all micro-batches together."""
    return sum(float(result.loss) for result in results)


def arranged(batch, order):
    """The same sequences in another order, each with its own number in the global batch."""
    parts = [batch.take(s, s + 1) for s in order]
    begins = np.cumsum([0, *(part.T for part in parts)]).astype(np.int32)
    joined = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in dataclasses.fields(Batch)
        if field.name not in ("cu_seqlens", "masked_rows")
    }
    rows = [part.masked_rows + begin for part, begin in zip(parts, begins, strict=False)]
    return Batch(**joined, cu_seqlens=begins, masked_rows=np.concatenate(rows))


def test_packed_batch_equals_each_sequence_alone(config, params):
    batch = ugly()
    (packed,), packed_grads = run(config, params, batch)
    alone, alone_grads = run(config, params, *batch.split(batch.S))
    for name in ("mlm_nll", "nsp_nll"):
        assert distance(np.concatenate([getattr(one, name) for one in alone]), getattr(packed, name)) <= 1e-12
    for name in ("mlm_predicted", "nsp_predicted"):
        assert np.array_equal(np.concatenate([getattr(one, name) for one in alone]), getattr(packed, name))
    assert total(alone) == pytest.approx(total([packed]), rel=1e-12)
    assert distance(alone_grads.flat, packed_grads.flat) <= 1e-12


def test_hidden_states_of_a_packed_batch_are_those_of_each_sequence_alone(config, params):
    batch = ugly()
    packed, _ = bert.encoder(Ops(), config, params.tree, batch, Ops().dropout(batch, 0.1, 0.2, 7, 3))
    for one, rows in zip(batch.split(batch.S), np.split(packed, batch.cu_seqlens[1:-1]), strict=True):
        alone, _ = bert.encoder(Ops(), config, params.tree, one, Ops().dropout(one, 0.1, 0.2, 7, 3))
        assert distance(alone, rows) <= 1e-12


@pytest.mark.parametrize("order", [(5, 4, 3, 2, 1, 0), (2, 0, 5, 1, 4, 3)])
def test_order_of_sequences_does_not_matter(config, params, order):
    batch = ugly()
    (here,), here_grads = run(config, params, batch)
    (there,), there_grads = run(config, params, arranged(batch, order))
    assert distance(there.nsp_nll, here.nsp_nll[list(order)]) <= 1e-12
    assert total([there]) == pytest.approx(total([here]), rel=1e-12)
    assert distance(there_grads.flat, here_grads.flat) <= 1e-12


@pytest.mark.parametrize("parts", [4, 5, 32])
def test_micro_batches_have_the_loss_and_the_gradient_of_the_whole_batch(config, params, parts):
    whole, whole_grads = run(config, params, THIRTY_TWO)
    micro, micro_grads = run(config, params, *THIRTY_TWO.split(parts))
    assert total(micro) == pytest.approx(total(whole), rel=1e-12)
    assert distance(micro_grads.flat, whole_grads.flat) <= 1e-12


def test_micro_batches_agree_in_single_precision_too(config, params):
    _, whole = run(config, params, THIRTY_TWO, dtype=np.float32)
    _, micro = run(config, params, *THIRTY_TWO.split(4), dtype=np.float32)
    assert distance(micro.flat, whole.flat) <= 1e-5


def test_accumulation_with_weights_of_each_micro_batch_would_be_noticed(config, params):
    def reweighted(part):
        return dataclasses.replace(part, masked_weights=np.full(part.M, 1 / max(1, part.M) / 4))

    _, whole = run(config, params, THIRTY_TWO)
    _, micro = run(config, params, *map(reweighted, THIRTY_TWO.split(4)))
    assert distance(micro.flat, whole.flat) > 1e-3


def test_accumulation_adds_to_what_is_there(config, params):
    _, once = run(config, params, ugly())
    _, twice = run(config, params, ugly(), ugly())
    assert distance(twice.flat, 2 * once.flat) <= 1e-15


def test_batch_without_a_masked_token_has_a_finite_loss_and_no_masked_lm_gradient(config, params):
    (result,), grads = run(config, params, ugly(M=0))
    assert result.mlm_loss == 0
    assert result.loss == result.nsp_loss > 0
    assert np.isfinite(grads.flat).all()
    assert not any(value.any() for name, value in grads.items() if name.startswith("mlm."))
    assert grads["pooler.weight"].any()


def test_batch_without_a_next_sentence_question_trains_no_pooler(config, params):
    (result,), grads = run(config, params, ugly(next_sentence=False))
    assert result.nsp_loss == 0
    assert result.loss == result.mlm_loss > 0
    assert not any(value.any() for name, value in grads.items() if name.startswith(("pooler.", "nsp.")))


def test_batch_that_asks_nothing_has_no_loss_and_no_gradient(config, params):
    (result,), grads = run(config, params, ugly(M=0, next_sentence=False))
    assert result.loss == 0
    assert not grads.flat.any()


def test_one_token_of_one_sequence_is_a_batch(config, params):
    batch = ugly(M=sum(SIZE.lengths)).take(0, 1)
    assert (batch.T, batch.S, batch.M) == (1, 1, 1)
    (result,), grads = run(config, params, batch)
    assert np.isfinite(result.loss)
    assert np.isfinite(grads.flat).all()
    assert grads["mlm.output_bias"].any()


def test_both_next_sentence_classes_have_a_loss_and_a_gradient(config, params):
    batch = ugly(M=0)
    for label in (0, 1):
        asked = batch.next_sentence_labels == label
        only = dataclasses.replace(batch, next_sentence_weights=asked / asked.sum())
        (result,), grads = run(config, params, only)
        assert result.nsp_loss == pytest.approx(result.nsp_nll[asked].mean())
        assert grads["nsp.bias"][label] < 0 < grads["nsp.bias"][1 - label]


def test_vocabulary_scores_exist_for_masked_rows_alone(config, params):
    class Watching(Ops):
        rows = ()

        def linear(self, x, weight, bias):
            if weight.shape[1] == config.V:
                self.rows += (len(x),)
            return super().linear(x, weight, bias)

    ops = Watching()
    run(config, params, ugly(), ops=ops)
    assert ops.rows == (SIZE.M,)


def test_word_embedding_learns_from_input_and_output(config, params):
    batch = ugly(M=1)
    _, grads = run(config, params, batch)
    unseen = np.setdiff1d(np.arange(config.V), batch.input_ids)
    assert grads["embeddings.word"][batch.input_ids].any(1).all()
    assert grads["embeddings.word"][unseen].any(1).all()  # every word competes for the masked position


def test_gradient_of_the_masked_labels_bias_is_softmax_minus_the_label(config, params):
    batch = ugly(M=1)
    _, grads = run(config, params, batch)
    [label], [weight] = batch.masked_labels, batch.masked_weights
    assert grads["mlm.output_bias"].sum() == pytest.approx(0, abs=1e-14)
    assert -weight < grads["mlm.output_bias"][label] < 0
    assert (np.delete(grads["mlm.output_bias"], label) > 0).all()


def states(config, ids):
    """Hidden states of one sequence of 31 tokens."""
    tree = random_parameters(config, np.random.default_rng(1)).tree
    batch = dataclasses.replace(ugly().take(5, 6), input_ids=ids)
    return bert.encoder(Ops(), config, tree, batch)[0]


def test_causal_model_never_sees_what_comes_later():
    config, ids = config_of(SIZE, is_decoder=True), np.arange(31)
    before, after = states(config, ids), states(config, np.where(ids < 20, ids, ids + 1))
    assert np.array_equal(before[:20], after[:20])
    assert (before[20:] != after[20:]).any(1).all()


def test_every_token_sees_every_other_both_ways():
    config, ids = config_of(SIZE), np.arange(31)
    before, after = states(config, ids), states(config, np.where(ids < 30, ids, ids + 1))
    assert (before != after).any(1).all()


def test_two_runs_give_the_same_bits(config, params):
    first, first_grads = run(config, params, *THIRTY_TWO.split(4), dtype=np.float32)
    second, second_grads = run(config, params, *THIRTY_TWO.split(4), dtype=np.float32)
    assert total(first) == total(second)
    assert first_grads.flat.tobytes() == second_grads.flat.tobytes()


def test_other_steps_drop_other_elements_and_none_at_all_without_dropout(config, params):
    for dropout, different in ((True, 3), (False, 1)):
        losses = {total(run(config, params, ugly(), step=step, dropout=dropout)[0]) for step in range(3)}
        assert len(losses) == different


def test_dropout_stands_behind_the_embeddings_the_probabilities_and_both_sublayers_of_every_layer():
    config, batch, dropped = config_of(SIZE), ugly(), {}

    class Watching(Ops):
        def dropout_mask(self, drop, site, columns, dtype):
            mask = super().dropout_mask(drop, site, columns, dtype)
            dropped[site] = (mask == 0).mean()
            return mask

        def _probability_mask(self, p, rows, drop, site):
            mask = super()._probability_mask(p, rows, drop, site)
            dropped[site] = dropped.get(site, 0) + (mask == 0).sum() / (config.A * (batch.lengths**2).sum())
            return mask

    tree = random_parameters(config, np.random.default_rng(1)).tree
    bert.encoder(Watching(), config, tree, batch, Ops().dropout(batch, 0.3, 0.2, 7, 3))
    sites = {0: 0.3}  # behind the embeddings
    for layer in range(config.L):  # probabilities, attention, feed-forward
        sites |= {3 * layer + 1: 0.2, 3 * layer + 2: 0.3, 3 * layer + 3: 0.3}
    assert dropped == pytest.approx(sites, abs=0.06)


def test_step_down_the_gradient_lowers_the_loss_by_as_much_as_the_gradient_says(config, params):
    (before,), grads = run(config, params, ugly())
    rate = 1e-7
    (after,), _ = run(config, Parameters(config, params.flat - rate * grads.flat), ugly())
    assert (before.loss - after.loss) / rate == pytest.approx(grads.flat @ grads.flat, rel=1e-3)
