"""What every operation computes, against slow formulas that were written down differently."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays

from minibert.core.gradcheck.cases import SIZES, config_of, random_batch
from minibert.core.ops.attention import equal_length_groups
from minibert.gradcheck.drawn import random_parameters
from minibert.model.ops import Ops

OPS = Ops()
LENGTHS = (1, 2, 7, 13, 7, 31)
lengths_of_a_batch = st.lists(st.integers(1, 9), min_size=1, max_size=7)
moderate = st.floats(-20, 20)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def borders(lengths):
    """cu_seqlens."""
    return np.cumsum([0, *lengths]).astype(np.int32)


def spans(lengths):
    """A slice for each sequence."""
    ends = borders(lengths).tolist()
    return [slice(begin, end) for begin, end in zip(ends, ends[1:], strict=False)]


def close(found, expected, tolerance=1e-13):
    """Everywhere within a tolerance of the largest value there is."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0) <= tolerance * max(1, np.abs(expected).max(initial=0))


# Row by row.


def test_linear_is_a_sum_of_products_and_a_bias():
    x, weight, bias = draw(3, 5), draw(5, 4), draw(4)
    y, _ = OPS.linear(x, weight, bias)
    close(y, [[bias[n] + sum(x[t, k] * weight[k, n] for k in range(5)) for n in range(4)] for t in range(3)])


def test_gelu_is_x_times_the_normal_distribution_function():
    x = np.linspace(-9, 9, 1001)
    y, _ = OPS.gelu(x, "erf")
    close(y, [one * statistics.NormalDist().cdf(one) for one in x])
    assert OPS.gelu(np.array([1.0]), "erf")[0][0] == pytest.approx(0.8413447460685429, rel=1e-15)


def test_tanh_form_of_gelu_is_the_published_formula_and_near_the_exact_one():
    x = np.linspace(-9, 9, 1001)
    y, _ = OPS.gelu(x, "tanh")
    close(y, [0.5 * t * (1 + math.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t**3))) for t in x])
    assert 1e-4 < np.abs(y - OPS.gelu(x, "erf")[0]).max() < 5e-4


@pytest.mark.parametrize("form", ["erf", "tanh"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gelu_is_zero_far_left_and_the_identity_far_right(form, dtype):
    x = np.array([-1e4, -50, 50, 1e4], dtype)
    y, saved = OPS.gelu(x, form)
    assert y.tolist() == [0, 0, 50, 1e4]
    assert OPS.gelu_backward(np.ones_like(x), saved, form).tolist() == [0, 0, 1, 1]


def test_layer_norm_rows_have_the_mean_and_spread_they_are_given():
    x, gamma, beta = 3 * draw(5, 24) + 7, draw(24, seed=1), draw(24, seed=2)
    y, _ = OPS.layer_norm(x, gamma, beta, 1e-12)
    for row, found in zip(x, y, strict=True):
        mean, spread = statistics.fmean(row), statistics.pstdev(row)
        close(found, [(one - mean) / spread * g + b for one, g, b in zip(row, gamma, beta, strict=True)])


def test_layer_norm_adds_eps_to_the_variance():
    x = np.array([[1.0, -1.0]])
    y, _ = OPS.layer_norm(x, np.ones(2), np.zeros(2), 3.0)
    assert y.tolist() == [[0.5, -0.5]]


def test_layer_norm_of_equal_numbers_is_beta_and_has_a_finite_gradient():
    y, saved = OPS.layer_norm(np.full((2, 8), 3.0), np.ones(8), draw(8), 1e-12)
    close(y, [draw(8)] * 2)
    assert all(np.isfinite(one).all() for one in OPS.layer_norm_backward(draw(2, 8), saved))


@given(st.floats(-100, 100), st.floats(0.01, 100))
def test_layer_norm_does_not_see_shift_and_scale_of_a_row(shift, scale):
    x, ones, zeros = draw(3, 24), np.ones(24), np.zeros(24)
    expected, _ = OPS.layer_norm(x, ones, zeros, 1e-30)
    close(OPS.layer_norm(scale * x + shift, ones, zeros, 1e-30)[0], expected, 1e-9)


def test_embedding_and_take_rows_are_rows_by_number():
    table, ids = draw(9, 4), np.array([3, 3, 0, 8])
    for y, _ in (OPS.embedding(ids, table), OPS.take_rows(table, ids)):
        assert y.tolist() == [table[i].tolist() for i in ids]


@given(st.lists(st.integers(0, 9), max_size=40), st.sampled_from(["float32", "float64", "complex128"]))
def test_scatter_add_adds_up_equal_ids(ids, dtype):
    ids, rows = np.array(ids, np.int32), draw(len(ids), 3).astype(dtype)
    expected = draw(10, 3, seed=1).astype(dtype)
    total = expected.copy()
    np.add.at(expected, ids, rows)
    found = OPS.scatter_add(total, ids, rows)
    close(found, expected, 1e-5 if dtype == "float32" else 1e-13)
    assert found is total


# Losses.


def test_cross_entropy_is_minus_the_logarithm_of_a_softmax():
    logits, labels = 5 * draw(6, 9), np.array([0, 8, 4, 4, 1, 7])
    nll, _ = OPS.softmax_cross_entropy(logits, labels)
    for row, label, found in zip(logits, labels, nll, strict=True):
        close(found, -math.log(math.exp(row[label]) / math.fsum(map(math.exp, row))))


def test_cross_entropy_of_no_preference_is_the_logarithm_of_the_choices():
    nll, _ = OPS.softmax_cross_entropy(np.zeros((2, 99)), np.array([0, 98]))
    close(nll, [math.log(99)] * 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cross_entropy_of_extreme_logits_is_exact(dtype):
    logits = np.array([[3e4, -3e4, 0], [-3e4, -3e4, -3e4], [3e4, 3e4, -3e4]], dtype)
    nll, saved = OPS.softmax_cross_entropy(logits, np.array([1, 0, 1]))
    close(nll, [6e4, math.log(3), math.log(2)], 1e-6)
    dlogits = OPS.softmax_cross_entropy_backward(np.ones(3, dtype), saved)
    close(dlogits, [[1, -1, 0], [-2 / 3, 1 / 3, 1 / 3], [0.5, -0.5, 0]], 1e-6)


@given(arrays.arrays(float, (3, 5), elements=moderate), moderate)
def test_cross_entropy_does_not_see_a_shift_of_all_logits(logits, shift):
    labels = np.array([0, 2, 4])
    close(OPS.softmax_cross_entropy(logits + shift, labels)[0], OPS.softmax_cross_entropy(logits, labels)[0])


@given(lengths_of_a_batch)
def test_segment_cross_entropy_is_a_cross_entropy_of_each_segment(lengths):
    scores, labels = 3 * draw(sum(lengths)), [n // 2 for n in lengths]
    nll, _ = OPS.segment_softmax_cross_entropy(scores, borders(lengths), np.array(labels))
    for s, label, found in zip(spans(lengths), labels, nll, strict=True):
        close(found, math.log(math.fsum(np.exp(scores[s]))) - scores[s][label])


def test_sigmoid_cross_entropy_is_the_mean_of_a_yes_or_no_for_each_class():
    logits, labels = np.array([[0.0, 2.0, -1.0], [-3.0, 0.5, 4.0]]), np.array([[1, 0, 1], [0, 2.5, 0]])
    p = 1 / (1 + np.exp(-logits))
    close(
        OPS.sigmoid_cross_entropy(logits, labels)[0],
        [
            -(math.log(p[0, 0]) + math.log(1 - p[0, 1]) + math.log(p[0, 2])) / 3,
            -(math.log(1 - p[1, 0]) + 2.5 * math.log(p[1, 1]) + math.log(1 - p[1, 2])) / 3,
        ],
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sigmoid_cross_entropy_of_large_logits_is_their_distance_from_being_right(dtype):
    logits = np.array([[1e4, -1e4], [1e4, -1e4]], dtype)
    nll, saved = OPS.sigmoid_cross_entropy(logits, np.array([[1, 0], [0, 1]], dtype))
    assert nll.tolist() == [0, 1e4]
    dlogits = OPS.sigmoid_cross_entropy_backward(np.ones(2, dtype), saved)
    assert dlogits.tolist() == [[0, 0], [0.5, -0.5]]
    assert nll.dtype == dlogits.dtype == dtype


def test_sigmoid_cross_entropy_has_its_slope_at_zero_as_well():
    labels, step = np.array([[2.5, 0.0]]), 1e-30
    _, saved = OPS.sigmoid_cross_entropy(np.zeros((1, 2)), labels)
    (slopes,) = OPS.sigmoid_cross_entropy_backward(np.ones(1), saved)
    close(slopes, [-2.5 / 4, 1 / 4])
    for number, slope in enumerate(slopes):
        moved = 1j * step * (np.arange(2) == number)[None]
        assert OPS.sigmoid_cross_entropy(moved, labels)[0].imag[0] / step == pytest.approx(slope)


def test_squared_error_is_squared_by_row():
    loss, _ = OPS.squared_error(np.array([1.0, 2.0, -1.0]), np.array([1.0, -1.0, 0.5]))
    assert loss.tolist() == [0, 9, 2.25]


# Attention.


def slow_attention(q, k, v, lengths, causal):
    """One query at a time."""
    y = np.zeros_like(v)
    for s in spans(lengths):
        for a in range(q.shape[1]):
            for i in range(s.start, s.stop):
                keys = range(s.start, i + 1 if causal else s.stop)
                weights = [math.exp(q[i, a].dot(k[j, a]) / math.sqrt(q.shape[2])) for j in keys]
                for j, weight in zip(keys, weights, strict=True):
                    y[i, a] += weight / math.fsum(weights) * v[j, a]
    return y


@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
def test_attention_is_a_softmax_over_the_keys_of_the_same_sequence(causal):
    q, k, v = draw(3, sum(LENGTHS), 3, 8)
    y, _ = OPS.attention(q, k, v, borders(LENGTHS), causal)
    close(y, slow_attention(q, k, v, LENGTHS, causal))


@settings(max_examples=25)
@given(lengths_of_a_batch, st.booleans())
def test_attention_of_a_packed_batch_is_that_of_each_sequence_alone(lengths, causal):
    q, k, v = draw(3, sum(lengths), 2, 4)
    y, _ = OPS.attention(q, k, v, borders(lengths), causal)
    for s, length in zip(spans(lengths), lengths, strict=True):
        close(y[s], OPS.attention(q[s], k[s], v[s], borders([length]), causal)[0])


def test_causal_attention_is_that_of_the_prefix_alone_whatever_comes_later():
    q, k, v = draw(3, 12, 2, 4)
    k[8:] *= 1e4  # what is hidden may score as high as it likes
    y, saved = OPS.attention(q, k, v, borders([12]), True)
    for n in range(1, 9):
        of_the_prefix, _ = OPS.attention(q[:n], k[:n], v[:n], borders([n]))
        close(y[n - 1], of_the_prefix[n - 1])
    dy = np.zeros_like(y)
    dy[:8] = 1
    for gradient in OPS.attention_backward(dy, saved):
        assert not gradient[8:].any()


def test_attention_does_not_see_the_order_of_keys():
    q, k, v = draw(3, 7, 2, 4)
    order = np.array([3, 0, 6, 1, 5, 2, 4])
    close(OPS.attention(q, k[order], v[order], borders([7]))[0], OPS.attention(q, k, v, borders([7]))[0])


def test_attention_to_one_token_is_its_value():
    q, k, v = draw(3, 4, 2, 4)
    assert np.array_equal(OPS.attention(q, k, v, borders([1] * 4))[0], v)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_with_extreme_scores_picks_one_key(dtype):
    q, k, v = (one.astype(dtype) for one in draw(3, 6, 2, 4))
    y, saved = OPS.attention(1e4 * q, k, v, borders([6]))
    best = np.einsum("iad,jad->iaj", q, k).argmax(-1)
    close(y, [[v[best[i, a], a] for a in range(2)] for i in range(6)], 1e-6)
    assert all(np.isfinite(one).all() for one in OPS.attention_backward(y, saved))


@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
def test_attention_maps_are_what_attention_weighs_values_with(causal):
    q, k, v = draw(3, sum(LENGTHS), 3, 8)
    maps = OPS.attention_probabilities(q, k, borders(LENGTHS), causal)
    y, _ = OPS.attention(q, k, v, borders(LENGTHS), causal)
    assert [one.shape for one in maps] == [(3, n, n) for n in LENGTHS]
    for s, one in zip(spans(LENGTHS), maps, strict=True):
        close(one.sum(-1), np.ones(one.shape[:2]))
        close(np.einsum("aij,jad->iad", one, v[s]), y[s])
        assert not causal or not np.triu(one, 1).any()


@given(lengths_of_a_batch)
def test_sequences_are_grouped_by_length_and_brought_back(lengths):
    groups, back = equal_length_groups(borders(lengths))
    assert sorted(len(rows) * rows.shape[1] for rows in groups) == sorted(
        n * lengths.count(n) for n in set(lengths)
    )
    assert np.concatenate([rows.ravel() for rows in groups])[back].tolist() == list(range(sum(lengths)))


# Over time and over layers.


def slow_lstm(x, w_in, w_state, bias):
    """One sequence, one time step after another."""
    H = w_state.shape[0]
    h, c, outputs = np.zeros(H), np.zeros(H), []
    for row in x:
        i, f, g, o = (row @ w_in + h @ w_state + bias).reshape(4, H)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_lstm_reads_each_sequence_by_itself_from_its_own_end(reverse):
    x, weights = draw(sum(LENGTHS), 6), (draw(6, 20), draw(5, 20), draw(20))
    y, _ = OPS.lstm(x, *weights, borders(LENGTHS), reverse)
    step = -1 if reverse else 1
    for s in spans(LENGTHS):
        close(y[s], slow_lstm(x[s][::step], *weights)[::step])


def test_lstm_gates_saturate_without_overflow():
    weights = 1e3 * draw(6, 20), draw(5, 20), draw(20)
    y, saved = OPS.lstm(draw(4, 6), *weights, borders([4]))
    gradients = OPS.lstm_backward(np.ones_like(y), saved)
    assert all(np.isfinite(one).all() for one in (y, *gradients))


def test_layer_mix_with_equal_weights_is_the_mean_and_with_unequal_ones_a_softmax():
    layers = draw(4, 5, 6)
    close(OPS.layer_mix(layers, np.full(4, 3.0))[0], layers.mean(0))
    weights = np.array([0.1, -2, 900, 898])
    close(OPS.layer_mix(layers, weights)[0], (layers[2] * math.e**2 + layers[3]) / (math.e**2 + 1))


# Blocks, retold for one sequence at a time.

SIZE = SIZES["ugly"]
CONFIG = config_of(SIZE)
PARAMS = random_parameters(CONFIG, np.random.default_rng(0)).tree
BATCH = random_batch(SIZE, SIZE.M, np.random.default_rng(1))


def norm(x, p):
    """LayerNorm by NumPy's own mean and variance."""
    spread = np.sqrt(x.var(1, keepdims=True) + CONFIG.layer_norm_eps)
    return (x - x.mean(1, keepdims=True)) / spread * p["gamma"] + p["beta"]


def gelu(x):
    return np.vectorize(lambda one: one / 2 * (1 + math.erf(one / math.sqrt(2))))(x) if x.size else x


def test_embedding_block_is_the_norm_of_three_embeddings():
    p = PARAMS["embeddings"]
    y, _ = OPS.embedding_block(BATCH, p, CONFIG, None)
    for s, length in zip(spans(SIZE.lengths), SIZE.lengths, strict=True):
        words, segments = p["word"][BATCH.input_ids[s]], p["segment"][BATCH.token_type_ids[s]]
        close(y[s], norm(words + segments + p["position"][:length], p))


@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
def test_attention_block_is_a_residual_around_projected_attention(causal):
    x, p = draw(BATCH.T, CONFIG.H), PARAMS["layers"][1]["attention"]
    config, (H, A, D) = config_of(SIZE, is_decoder=causal), (CONFIG.H, CONFIG.A, CONFIG.D)
    y, _ = OPS.attention_block(x, p, BATCH.cu_seqlens, config, None, 1)
    projected = []
    for part in range(3):  # queries, keys, values: a third of the columns each, head after head
        columns = slice(part * H, (part + 1) * H)
        one = x @ p["qkv_weight"][:, columns] + p["qkv_bias"][columns]
        projected.append(one.reshape(-1, A, D))
    mixed = slow_attention(*projected, SIZE.lengths, causal).reshape(-1, H)
    close(y, norm(x + mixed @ p["output_weight"] + p["output_bias"], p))


def test_feed_forward_block_is_a_residual_around_two_layers_with_gelu():
    x, p = draw(BATCH.T, CONFIG.H), PARAMS["layers"][0]["feed_forward"]
    y, _ = OPS.feed_forward_block(x, p, CONFIG, None, 0)
    inner = gelu(x @ p["in_weight"] + p["in_bias"])
    close(y, norm(x + inner @ p["out_weight"] + p["out_bias"], p))


def test_pooler_looks_at_the_first_token_of_each_sequence():
    x, p = draw(BATCH.T, CONFIG.H), PARAMS["pooler"]
    y, _ = OPS.pooler(x, BATCH.cu_seqlens[:-1], p)
    close(y, [np.tanh(x[s.start] @ p["weight"] + p["bias"]) for s in spans(SIZE.lengths)])


def test_masked_lm_head_scores_the_masked_rows_alone_with_the_tied_embedding():
    x, p, table = draw(BATCH.T, CONFIG.H), PARAMS["mlm"], PARAMS["embeddings"]["word"]
    rows, labels = BATCH.masked_rows, BATCH.masked_labels
    logits, _ = OPS.masked_lm_logits(x, rows, p, table, CONFIG)
    (nll, predicted), _ = OPS.masked_lm_head(x, rows, labels, p, table, CONFIG)
    expected = norm(gelu(x[rows] @ p["weight"] + p["bias"]), p) @ table.T + p["output_bias"]
    assert logits.shape == (BATCH.M, CONFIG.V)
    close(logits, expected)
    close(nll, np.log(np.exp(expected).sum(1)) - expected[range(BATCH.M), labels])
    assert predicted.tolist() == expected.argmax(1).tolist()


def test_layers_run_in_order_and_back_in_reverse():
    def layer(x, params, number):
        return x + [number], [(*params, number)]

    def back(dy, saved, params, grads):
        [pair] = saved
        return dy + [pair], grads + [params]

    y, saved = OPS.layers(layer, ["a", "b", "c"], [])
    assert y == [0, 1, 2]
    dx, grads = OPS.layers_backward(back, [], saved, ["a", "b", "c"], [[0], [1], [2]])
    assert dx == [("c", 2), ("b", 1), ("a", 0)]
    assert grads == [[0, "a"], [1, "b"], [2, "c"]]


WINDOWS = np.array([[0, 1, -1], [2, -1, -1]])


@pytest.mark.parametrize(
    ("how", "query", "expected"),
    [
        ("mean", None, [[2.0, -1.0], [5.0, -7.0]]),
        ("max", None, [[3.0, 2.0], [5.0, -7.0]]),
        # Scores are log 3 and 0, hence weights of 3/4 and 1/4.
        ("attention", [0.0, math.log(3) / 6], [[1.5, 0.5], [5.0, -7.0]]),
    ],
)
def test_windows_are_pooled_by_mean_max_or_attention(how, query, expected):
    x = np.array([[1.0, 2.0], [3.0, -4.0], [5.0, -7.0]])
    y, _ = Ops().pool_windows(x, WINDOWS, how, None if query is None else np.array(query))
    close(y, expected)


@pytest.mark.parametrize(("how", "query"), [("mean", None), ("max", None), ("attention", np.ones(2))])
def test_an_example_without_windows_is_zero_and_has_no_gradient(how, query):
    windows = np.array([[0, 1], [-1, -1]])
    y, saved = Ops().pool_windows(np.ones((3, 2)), windows, how, query)
    assert y.tolist() == [[1, 1], [0, 0]]
    dx, _ = Ops().pool_windows_backward(np.array([[0.0, 0.0], [1.0, 1.0]]), saved)
    assert not dx.any()


def test_the_gradient_of_a_maximum_goes_to_the_first_of_equal_elements():
    y, saved = Ops().pool_windows(np.ones((3, 1)), WINDOWS, "max")
    dx, dquery = Ops().pool_windows_backward(np.array([[2.0], [3.0]]), saved)
    assert dx.tolist() == [[2.0], [0.0], [3.0]] and dquery is None
