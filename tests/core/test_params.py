"""Parameters: published counts, the paper's initial values, one buffer seen through names."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest

from minibert.base.errors import InputError
from minibert.core.config import SIZES, BertConfig
from minibert.core.params import nest, normal, reset, unflatten
from minibert.model.params import Head, Parameters, initialise, parameter_table

CONFIG = BertConfig(
    vocab_size=199,
    hidden_size=24,
    num_hidden_layers=12,
    num_attention_heads=3,
    intermediate_size=37,
    max_position_embeddings=40,
)
LARGE_ENOUGH = BertConfig.from_size("tiny", vocab_size=2_000)


@pytest.fixture(scope="module")
def parameters():
    return initialise(CONFIG, seed=1)


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("base", 109_482_240),
        ("large", 335_141_888),
        ("tiny", 4_385_920),
        ("mini", 11_170_560),
        ("small", 28_763_648),
        ("medium", 41_373_184),
    ],
)
def test_encoder_and_pooler_have_the_published_number_of_parameters(size, count):
    table = parameter_table(BertConfig.from_size(size, vocab_size=30_522))
    assert sum(entry.size for entry in table if not entry.name.startswith(("mlm.", "nsp."))) == count


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ("base", (12, 768, 12, 3072)),
        ("large", (24, 1024, 16, 4096)),
        ("3-768-12", (3, 768, 12, 3072)),  # and the other rows of Table 6
        ("6-768-3", (6, 768, 3, 3072)),
        ("6-768-12", (6, 768, 12, 3072)),
        ("12-1024-16", (12, 1024, 16, 4096)),
    ],
)
def test_sizes_have_the_layers_width_heads_and_feed_forward_of_the_paper(size, shape):
    config = BertConfig.from_size(size)
    assert (config.L, config.H, config.A, config.F) == shape
    assert (config.P, config.type_vocab_size, config.V) == (512, 2, 30_522)


@pytest.mark.parametrize("size", SIZES)
def test_heads_of_pre_training_add_the_published_parameters(size):
    config = BertConfig.from_size(size, vocab_size=30_522)
    H = config.H
    heads = [entry for entry in parameter_table(config) if entry.name.startswith(("mlm.", "nsp."))]
    assert sum(entry.size for entry in heads) == (H * H + H) + 2 * H + 30_522 + (2 * H + 2)


def test_count_adds_up_what_begins_with_a_prefix(parameters):
    assert parameters.count() == len(parameters.flat)
    assert parameters.count("nsp.") == 2 * 24 + 2
    assert parameters.count("mlm.", "nsp.") == parameters.count("mlm.") + parameters.count("nsp.")


def test_initial_weights_are_a_normal_distribution_without_its_tails():
    params = initialise(LARGE_ENOUGH, seed=0)
    for entry in parameter_table(LARGE_ENOUGH):
        if entry.initial is normal and entry.size > 10_000:
            values = params[entry.name] / 0.02
            assert 1.99 < np.abs(values).max() <= 2 * (1 + 1e-6)
            # Cut off at two, the standard deviation is 0.8796; bounds are four standard errors.
            assert abs(values.mean()) < 4 * 0.88 / np.sqrt(entry.size)
            assert abs(values.std() - 0.8796) < 4 * 0.88 / np.sqrt(2 * entry.size)


def test_initializer_range_scales_the_weights():
    wide = initialise(BertConfig.from_size("tiny", vocab_size=99, initializer_range=0.5), seed=0)
    narrow = initialise(BertConfig.from_size("tiny", vocab_size=99), seed=0)
    assert np.allclose(wide["pooler.weight"], 25 * narrow["pooler.weight"])


def test_biases_begin_at_zero_and_scales_at_one(parameters):
    for name, value in parameters.items():
        last = name.split(".")[-1]
        if last == "gamma":
            assert (value == 1).all()
        elif "bias" in last or last == "beta":
            assert not value.any()
        else:
            assert value.all()


def test_same_seed_same_values_in_every_precision(parameters):
    double = initialise(CONFIG, seed=1, dtype=np.float64)
    assert np.array_equal(initialise(CONFIG, seed=1).flat, parameters.flat)
    assert np.array_equal(double.flat.astype(np.float32), parameters.flat)
    assert not np.array_equal(initialise(CONFIG, seed=2).flat, parameters.flat)


def test_no_two_tensors_begin_alike(parameters):
    drawn = [parameters[entry.name].ravel()[:20] for entry in parameters.table if entry.initial is normal]
    assert not any(np.array_equal(one, other) for one, other in itertools.combinations(drawn, 2))


def test_one_more_layer_leaves_the_other_tensors_as_they_were(parameters):
    shallow = initialise(BertConfig(**(vars(CONFIG) | {"num_hidden_layers": 11})), seed=1)
    assert all(np.array_equal(value, parameters[name]) for name, value in shallow.items())


def test_reset_gives_the_named_parameters_their_initial_values_and_leaves_the_others(parameters):
    changed = initialise(CONFIG, seed=1)
    changed.flat[:] = 5
    reset(changed, ["pooler.weight", "pooler.bias", "mlm.gamma"], seed=1)
    for name, value in changed.items():
        expected = parameters[name] if name in ("pooler.weight", "pooler.bias", "mlm.gamma") else 5
        assert (value == expected).all()


def test_every_view_is_the_buffer_itself():
    params = Parameters(CONFIG)
    params.tree["layers"][11]["feed_forward"]["out_bias"][:] = 3
    params["layers.11.feed_forward.out_bias"][0] = 4
    assert sorted(params.flat[params.flat != 0]) == [3] * 23 + [4]
    params.flat[:] = 7
    assert all((value == 7).all() for _, value in params.items())


def test_names_follow_one_another_without_a_gap(parameters):
    assert np.array_equal(np.concatenate([value.ravel() for _, value in parameters.items()]), parameters.flat)
    assert list(parameters) == [entry.name for entry in parameter_table(CONFIG)]


def test_layers_are_alike_and_contiguous_so_that_stacking_them_is_a_view(parameters):
    first = parameters["layers.0.attention.qkv_weight"]
    begin = (first.__array_interface__["data"][0] - parameters.flat.__array_interface__["data"][0]) // 4
    size = parameters.count("layers.0.")
    stacked = parameters.flat[begin : begin + 12 * size].reshape(12, size)
    assert np.shares_memory(stacked, parameters.flat)
    for i, row in enumerate(stacked):
        layer = [value.ravel() for name, value in parameters.items() if name.startswith(f"layers.{i}.")]
        assert np.array_equal(np.concatenate(layer), row)


def test_weights_decay_and_norms_and_biases_do_not(parameters):
    decays = np.zeros(len(parameters.flat), bool)
    for begin, end in parameters.decayed:
        decays[begin:end] = True
    for name, view in Parameters(CONFIG, decays).items():
        last = name.split(".")[-1]
        assert (view == (last in ("word", "position", "segment") or last.endswith("weight"))).all(), name


def test_decayed_ranges_are_in_order_and_never_touch(parameters):
    borders = parameters.decayed.ravel()
    assert parameters.decayed.dtype == np.int64
    assert (np.diff(borders) > 0).all()


def test_zeros_like_and_astype_are_parameters_of_their_own(parameters):
    before = parameters.flat.copy()
    zeros, double = parameters.zeros_like(), parameters.astype(np.float64)
    assert (zeros.flat.dtype, double.flat.dtype) == (np.float32, np.float64)
    assert not zeros.flat.any()
    assert np.array_equal(double.flat, before)
    zeros.flat += 1
    double.flat += 1
    parameters.astype(np.float32).flat[:] = 1  # a copy even where nothing is to be converted
    assert np.array_equal(parameters.flat, before)


def test_buffer_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"flat has shape \(3,\), but this configuration has .* parameters"):
        Parameters(CONFIG, np.zeros(3))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_the_tree_of_a_copy_shows_the_buffer_of_the_copy(copied):
    params = Parameters(CONFIG)
    assert not params.tree["nsp"]["bias"].any()
    other = copied(params)
    other.flat[:] = 7
    assert (other.tree["nsp"]["bias"] == 7).all()
    assert (params.flat == 7).all() == (copied is copy.copy)


def test_another_buffer_takes_the_place_of_the_first_in_the_tree_too():
    params = Parameters(CONFIG)
    assert not params.tree["nsp"]["bias"].any()
    params.flat = params.flat + 7
    assert (params.tree["nsp"]["bias"] == 7).all()
    with pytest.raises(ValueError, match=r"flat has shape \(3,\)"):
        params.flat = np.zeros(3)


def test_names_nest_into_a_tree_with_lists_for_numbers():
    assert nest({"a.b": 1, "layers.0.x": 2, "layers.1.x": 3, "c": 4}) == {
        "a": {"b": 1},
        "layers": [{"x": 2}, {"x": 3}],
        "c": 4,
    }
    tree = unflatten(parameter_table(CONFIG), np.zeros(Parameters(CONFIG).flat.shape))
    assert len(tree["layers"]) == 12
    assert tree["mlm"]["output_bias"].shape == (199,)


# Heads of fine-tuning.


@pytest.mark.parametrize("kind", ["classify", "multilabel", "tag", "span", "regress", "choice"])
def test_a_head_is_one_linear_layer_behind_any_pooler(kind):
    outputs = {"classify": 3, "tag": 9, "span": 2}.get(kind, 1)
    params = Parameters(CONFIG, head=Head(kind, outputs))
    assert list(params)[-2:] == ["head.weight", "head.bias"]
    assert params["head.weight"].shape == (24, outputs)
    assert params.tree["head"]["bias"].shape == (outputs,)
    assert ("pooler" in params.tree) == (kind not in ("span", "tag"))
    assert not any(name.startswith(("mlm.", "nsp.", "lstm.")) for name in params)


@pytest.mark.parametrize(
    "field",
    [
        {"is_decoder": "false"},
        {"is_decoder": 0},
        {"is_decoder": None},
        {"layer_norm_eps": math.inf},
        {"layer_norm_eps": math.nan},
        {"layer_norm_eps": 10**400},
        {"initializer_range": math.inf},
    ],
    ids=repr,
)
def test_a_field_that_is_no_truth_value_or_not_finite_is_refused(field):
    told = "(neither true nor false|not a positive, finite)"
    with pytest.raises(InputError, match=f"{next(iter(field))}=.* is {told}"):
        BertConfig.from_dict(field)


def test_numbers_of_numpy_are_numbers():
    config = BertConfig.from_size("tiny", vocab_size=np.int64(99), hidden_dropout_prob=np.float32(0.5))
    assert config == BertConfig.from_size("tiny", vocab_size=99, hidden_dropout_prob=0.5)
    assert type(config.vocab_size) is int and type(config.hidden_dropout_prob) is float
    with pytest.raises(InputError, match=r"vocab_size=99.5 is not a positive whole number"):
        BertConfig(vocab_size=np.float64(99.5))


def test_lstms_on_the_encoder_keep_its_size():
    params = Parameters(CONFIG, head=Head("span", 2, lstm=True))
    shapes = {name: value.shape for name, value in params.items() if name.startswith("lstm.1.right_to_left")}
    assert list(shapes.values()) == [(24, 48), (12, 48), (48,)]
    with pytest.raises(InputError, match="hidden_size=25 is odd; an LSTM needs an even one"):
        odd = BertConfig(**(vars(CONFIG) | {"hidden_size": 25, "num_attention_heads": 5}))
        Parameters(odd, head=Head("span", 2, lstm=True))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (Head("rank", 2), "head kind 'rank' does not exist; use one of pretraining, classify"),
        (Head("span", 3), "kind 'span' has 2 outputs, not 3"),
        (Head("choice", 4), "kind 'choice' has 1 outputs, not 4"),
        (Head("classify", 0), "kind 'classify' has at least 1 outputs, not 0"),
        (Head("pretraining", 0, lstm=True), "Pre-training has no LSTM"),
    ],
)
def test_a_head_that_there_is_not_is_refused(head, message):
    with pytest.raises(InputError, match=message):
        Parameters(CONFIG, head=head)


def test_another_head_leaves_the_encoder_and_begins_with_values_of_its_own(parameters):
    classify, fresh = parameters.with_head(Head("classify", 3), seed=5)
    assert fresh == ["head.weight", "head.bias"]
    for name, value in classify.items():
        expected = parameters[name] if name not in fresh else initialise(CONFIG, 5, head=classify.head)[name]
        assert np.array_equal(value, expected), name
    assert not np.shares_memory(classify.flat, parameters.flat)

    again, fresh = classify.with_head(Head("classify", 3), seed=6)
    assert fresh == [] and np.array_equal(again.flat, classify.flat)
    for other in (Head("classify", 2), Head("tag", 3), Head("classify", 3, lstm=True)):
        found, fresh = classify.with_head(other, seed=6)
        assert {"head.weight", "head.bias"} <= set(fresh)
        assert np.array_equal(
            found["layers.11.feed_forward.in_weight"], parameters["layers.11.feed_forward.in_weight"]
        )
    span, _ = classify.with_head(Head("span", 2), seed=6)
    _, fresh = span.with_head(Head("classify", 3), seed=6)
    assert fresh == ["pooler.weight", "pooler.bias", "head.weight", "head.bias"]


def test_what_is_frozen_is_the_beginning_of_the_buffer(parameters):
    assert parameters.trained_from(None) == 0
    names = np.repeat(list(parameters), [entry.size for entry in parameters.table])
    for frozen in (0, 1, 12):
        begin = parameters.trained_from(frozen)
        below = ("embeddings.", *(f"layers.{i}." for i in range(frozen)))
        assert all(name.startswith(below) for name in set(names[:begin]))
        assert not any(name.startswith(below) for name in set(names[begin:]))
    for frozen in (-1, 13):
        with pytest.raises(InputError, match=f"frozen={frozen} is not a number of layers .* to 12"):
            parameters.trained_from(frozen)
