"""Hugging Face folders: what goes in and out, and how damaged or foreign ones are refused."""

import json
import re
import resource
import shutil
import tracemalloc

import numpy as np
import pytest
from agreement import stored_tensors
from hypothesis import given, settings, strategies as st
from marks import examples
from paths import GOLDEN as FOLDER
from safetensors.numpy import load_file, save_file

from minibert.base.errors import InputError, RunError
from minibert.core.config import BertConfig
from minibert.hub import load_hf, save_hf, to_hf
from minibert.model.params import Head, initialise

GOLDEN = FOLDER / "hf_tiny"  # written by transformers
CONFIG = BertConfig(7, 6, 2, 3, 5, max_position_embeddings=8)
PARAMS = initialise(CONFIG, seed=3)


def write_safetensors(path, tensors, header=None):
    """Tensors as name -> (type, shape, bytes), in the file format itself; a header of choice before them."""
    entries, data = {}, b""
    for name, (kind, shape, content) in tensors.items():
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    head = json.dumps(entries if header is None else header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)


def write_model(folder, change=lambda name, value: {name: ("F32", value)}, config=None):
    """A folder of `PARAMS`, in which `change` makes other tensors of each: (type, array) by name."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG.to_dict() | (config or {})))
    tensors = {}
    for name, value in to_hf(PARAMS).items():
        for new, (kind, array) in change(name, value).items():
            tensors[new] = (kind, array.shape, array.tobytes())
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def drop(*beginnings):
    """A `change` that leaves out some tensors."""
    return lambda name, value: {} if name.startswith(beginnings) else {name: ("F32", value)}


def add(**extra):
    """A `change` that puts more beside the word embedding; __ in a name stands for a dot."""
    more = {name.replace("__", "."): value for name, value in extra.items()}
    return lambda name, value: {name: ("F32", value)} | (more if "word_embeddings" in name else {})


def as_float(kind, convert):
    """A `change` of the stored type."""
    return lambda name, value: {name: (kind, convert(value))}


def test_a_folder_written_by_transformers_is_written_back_byte_for_byte(tmp_path):
    config, params, report = load_hf(GOLDEN)
    assert (config.V, config.H, config.L, config.A, config.F, config.P) == (99, 24, 2, 3, 37, 40)
    assert report == ((), (), ())
    save_hf(tmp_path, config, params)
    assert stored_tensors(tmp_path) == stored_tensors(GOLDEN)


def test_saved_configuration_says_what_transformers_reads(tmp_path):
    save_hf(tmp_path, CONFIG, PARAMS)
    fields, theirs = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path, GOLDEN))
    for name in ("architectures", "model_type", "pad_token_id", "tie_word_embeddings", "type_vocab_size"):
        assert fields[name] == theirs[name]
    assert fields.keys() <= theirs.keys()


def test_a_saved_model_comes_back_bit_for_bit(tmp_path):
    for name in ("once", "again"):
        save_hf(tmp_path / name, CONFIG, PARAMS)
    config, params, report = load_hf(tmp_path / "once")
    assert (config, report) == (CONFIG, ((), (), ()))
    assert params.flat.tobytes() == PARAMS.flat.tobytes()
    once, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("once", "again"))
    assert once == again


def test_linear_weights_are_turned_and_the_joint_projection_is_three(tmp_path):
    save_hf(tmp_path, CONFIG, PARAMS)
    tensors = load_file(tmp_path / "model.safetensors")
    attention = PARAMS.tree["layers"][1]["attention"]
    for number, part in enumerate(("query", "key", "value")):
        columns = slice(6 * number, 6 * (number + 1))
        theirs = f"bert.encoder.layer.1.attention.self.{part}"
        np.testing.assert_array_equal(tensors[f"{theirs}.weight"], attention["qkv_weight"][:, columns].T)
        np.testing.assert_array_equal(tensors[f"{theirs}.bias"], attention["qkv_bias"][columns])
    assert tensors["bert.encoder.layer.0.intermediate.dense.weight"].shape == (5, 6)
    assert tensors["cls.seq_relationship.weight"].shape == (2, 6)
    word = tensors["bert.embeddings.word_embeddings.weight"]
    np.testing.assert_array_equal(word, PARAMS["embeddings.word"])


def test_float64_parameters_are_saved_as_float32(tmp_path):
    save_hf(tmp_path, CONFIG, PARAMS.astype(np.float64))
    assert {one.dtype.name for one in load_file(tmp_path / "model.safetensors").values()} == {"float32"}
    _, params, _ = load_hf(tmp_path, np.float64)
    assert params.flat.dtype == np.float64
    np.testing.assert_array_equal(params.flat, PARAMS.flat)


@pytest.mark.parametrize(
    "respell",
    [
        lambda name: name.removeprefix("bert."),
        lambda name: name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"),
    ],
    ids=["no-prefix", "gamma-beta"],
)
def test_other_spellings_of_the_names_are_understood(respell, tmp_path):
    write_model(tmp_path, lambda name, value: {respell(name): ("F32", value)})
    _, params, report = load_hf(tmp_path)
    assert report == ((), (), ())
    np.testing.assert_array_equal(params.flat, PARAMS.flat)


def test_one_tensor_under_two_spellings_is_refused(tmp_path):
    write_model(tmp_path, add(embeddings__LayerNorm__gamma=("F32", np.ones(6, np.float32))))
    with pytest.raises(InputError, match=r"bert\.embeddings\.LayerNorm\.weight twice"):
        load_hf(tmp_path)


def upper_half(value):
    """float32 to bfloat16, rounded towards zero."""
    return (np.ascontiguousarray(value).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize(
    ("kind", "convert", "back"),
    [
        ("F16", lambda value: value.astype(np.float16), lambda half: half.astype(np.float32)),
        ("BF16", upper_half, lambda half: (half.astype(np.uint32) << 16).view(np.float32)),
        ("F64", lambda value: value.astype(np.float64), lambda double: double.astype(np.float32)),
    ],
)
def test_other_precisions_are_read_exactly(kind, convert, back, tmp_path):
    write_model(tmp_path, as_float(kind, convert))
    _, params, _ = load_hf(tmp_path)
    for name, value in to_hf(params).items():
        np.testing.assert_array_equal(value, back(convert(to_hf(PARAMS)[name])))


def test_tied_decoder_and_position_ids_beside_the_weights_are_no_news(tmp_path):
    decoder, positions = ("F32", PARAMS["embeddings.word"]), ("I64", np.arange(8)[None])
    write_model(tmp_path, add(cls__predictions__decoder__weight=decoder, embeddings__position_ids=positions))
    assert load_hf(tmp_path)[2] == ((), (), ())


def test_decoder_of_its_own_is_kept_apart_and_written_again(tmp_path):
    decoder = PARAMS["embeddings.word"] + 1
    write_model(tmp_path, add(cls__predictions__decoder__weight=("F32", decoder)))
    config, params, report = load_hf(tmp_path)
    np.testing.assert_array_equal(params.decoder, decoder)
    assert params.flat.tobytes() == PARAMS.flat.tobytes()
    assert report.missing and all(name.startswith("cls.predictions.") for name in report.missing)
    assert params.astype(np.float64).decoder is not None
    save_hf(tmp_path / "again", config, params, omit=report.missing)
    fields = json.loads((tmp_path / "again" / "config.json").read_text())
    assert fields["tie_word_embeddings"] is False and fields["architectures"] == ["BertForPreTraining"]
    np.testing.assert_array_equal(load_hf(tmp_path / "again")[1].decoder, decoder)
    _, tuned, report = load_hf(tmp_path, head=Head("classify", 2))
    assert tuned.decoder is None and "cls.predictions.decoder.weight" in report.unused


def test_decoder_of_another_shape_is_refused(tmp_path):
    write_model(tmp_path, add(cls__predictions__decoder__weight=("F32", PARAMS["embeddings.word"][1:])))
    with pytest.raises(InputError, match=r"decoder\.weight differs from bert\.embeddings.* in its shape"):
        load_hf(tmp_path)


def test_bias_of_the_decoder_counts_where_there_are_two(tmp_path):
    bias = np.arange(CONFIG.V, dtype=np.float32)
    write_model(tmp_path, add(cls__predictions__decoder__bias=("F32", bias)))
    np.testing.assert_array_equal(load_hf(tmp_path)[1]["mlm.output_bias"], bias)


def test_reading_weights_takes_little_more_memory_than_they_do(tmp_path):
    config = BertConfig(20_000, 64, 1, 4, 128, max_position_embeddings=16)
    params = initialise(config, seed=0)
    save_hf(tmp_path, config, params)
    load_hf(tmp_path)
    tracemalloc.start()
    try:
        _, again, _ = load_hf(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(again.flat, params.flat)
    assert peak < 1.2 * params.flat.nbytes


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_one_weight_that_is_no_number_is_refused_and_very_large_ones_are_read(tmp_path, odd):
    params = PARAMS.like(PARAMS.flat.copy())
    params["layers.1.attention.qkv_weight"][2, 5] = 1e30  # whose square is infinite
    save_hf(tmp_path, CONFIG, params)
    assert np.array_equal(load_hf(tmp_path)[1].flat, params.flat)
    params["layers.1.attention.qkv_weight"][2, 5] = odd
    save_hf(tmp_path, CONFIG, params)
    with pytest.raises(InputError, match="self.query.weight has values that are not finite"):
        load_hf(tmp_path)


def test_missing_heads_and_pooler_have_initial_values_and_are_reported(tmp_path):
    write_model(tmp_path, drop("cls.", "bert.pooler"))
    config, params, report = load_hf(tmp_path)
    assert report.missing == tuple(name for name in to_hf(PARAMS) if name.startswith(("cls.", "bert.pooler")))
    fresh = initialise(config, seed=0)
    for name, value in params.items():
        source = fresh if name.startswith(("pooler", "mlm", "nsp")) else PARAMS
        np.testing.assert_array_equal(value, source[name])


def test_tensors_without_a_place_are_reported(tmp_path):
    write_model(tmp_path, add(classifier__weight=("F32", np.zeros((3, 6), np.float32))))
    assert load_hf(tmp_path)[2].unused == ("classifier.weight",)


def test_layers_beyond_the_configuration_s_are_warned_of(tmp_path):
    write_model(tmp_path, config={"num_hidden_layers": 1})
    with pytest.warns(
        UserWarning, match=r"16 tensors of the encoder .* the first is bert\.encoder\.layer\.1"
    ):
        config, _, report = load_hf(tmp_path)
    assert config.L == 1 and len(report.unused) == 16


def test_missing_tensors_of_the_encoder_are_listed(tmp_path):
    write_model(tmp_path, drop("bert.encoder.layer.1.attention.self.key", "bert.embeddings.LayerNorm.bias"))
    with pytest.raises(InputError, match=r"lacks .*embeddings\.LayerNorm\.bias, .*1\.attention\.self\.key"):
        load_hf(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"vocab_size": 8}, r"word_embeddings\.weight has shape \(7, 6\), config\.json asks for \(8, 6\)"),
        ({"intermediate_size": 10**30}, "asks for"),
        ({"num_hidden_layers": 10**9}, "too few for num_hidden_layers=1000000000"),
        ({"num_hidden_layers": 3}, r"lacks .*layer\.2"),
        ({"model_type": "gpt2"}, "config.json: model_type='gpt2'"),
        ({"hidden_size": 7}, "config.json: hidden_size=7"),
        ({"hidden_act": ["gelu"]}, r"config.json: hidden_act=\['gelu'\] is not known"),
        ({"is_decoder": "false"}, "config.json: is_decoder='false' is neither true nor false"),
        ({"layer_norm_eps": np.inf}, "config.json: layer_norm_eps=inf is not a positive, finite number"),
        ({"initializer_range": np.inf}, "config.json: initializer_range=inf is not a positive, finite"),
    ],
)
def test_configuration_of_another_model_is_refused(config, message, tmp_path):
    write_model(tmp_path, config=config)
    with pytest.raises(InputError, match=message):
        load_hf(tmp_path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_weights_that_are_not_finite_are_refused(bad, tmp_path):
    def spoil(name, value):
        value = value.astype(np.float64)
        if name == "bert.encoder.layer.1.output.dense.bias":
            value[2] = bad
        return {name: ("F64", value)}

    write_model(tmp_path, spoil)
    with pytest.raises(InputError, match=r"layer\.1\.output\.dense\.bias has values that are not finite"):
        load_hf(tmp_path)


def test_weights_of_whole_numbers_are_named(tmp_path):
    name = "bert.embeddings.position_embeddings.weight"
    write_model(tmp_path, lambda n, v: {n: ("I32", v.astype("i4")) if n == name else ("F32", v)})
    with pytest.raises(InputError, match=f"holds {name} as I32, which is not read; save .* float32"):
        load_hf(tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"config\.json is missing; give the folder of a BERT"):
        load_hf(tmp_path / "nowhere")
    write_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="has no weights of a model; give one with model.safetensors"):
        load_hf(tmp_path)


@pytest.mark.parametrize("file, command", [("training.json", "pretrain"), ("finetune.json", "finetune")])
def test_a_run_without_a_model_is_recognised(tmp_path, file, command):
    run = tmp_path / "my run"
    run.mkdir()
    with pytest.raises(InputError, match="give the folder of a BERT"):
        load_hf(run)
    (run / file).write_text("{}")
    advice = f"the run there is not finished: minibert {command} --resume --out '{run}'"
    with pytest.raises(InputError, match=re.escape(advice)):
        load_hf(run)


def in_parts(folder):
    """The weights of a model in two files and their index, as `save_pretrained(max_shard_size=...)` does."""
    write_model(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in parts.items():
        save_file({name: tensors[name] for name in held}, folder / file)
    places = {name: file for file, held in parts.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return places


def test_weights_in_several_files_are_those_in_one(tmp_path):
    in_parts(tmp_path / "parts")
    _, params, report = load_hf(tmp_path / "parts")
    _, expected, expected_report = load_hf(write_model(tmp_path / "whole"))
    assert np.array_equal(params.flat, expected.flat) and report == expected_report


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "'weight_map' is missing, expected an object of strings; copy the model's folder again"),
        ({"weight_map": {"x": 1}}, "'weight_map' is {.*}, expected an object of strings"),
        ({"weight_map": {"x": "../model.safetensors"}}, "not one of its folder"),
        ({"weight_map": {"x": ""}}, "cannot be read"),
        ({"weight_map": {"x": "third.safetensors"}}, "third.safetensors cannot be read"),
        ({"weight_map": {"x": "model-00001-of-00002.safetensors"}}, "lacks x, which .*json says it has"),
    ],
)
def test_an_index_that_is_wrong_is_refused(index, message, tmp_path):
    places = in_parts(tmp_path)
    if "x" in index.get("weight_map", {}):
        index["weight_map"] |= places
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=message):
        load_hf(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"vocab_size": 7', "\udcff", "[" * 100_000])
def test_configuration_that_is_no_json_object_is_refused(text, tmp_path):
    write_model(tmp_path)
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=r"config\.json"):
        load_hf(tmp_path)


@pytest.mark.parametrize("kept", [0, 7, 8, 500, -1])
def test_truncated_weights_are_refused(kept, tmp_path):
    path = write_model(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match="damaged or not a safetensors file"):
        load_hf(tmp_path)


WHOLE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "header",
    [
        {"x": {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 2**64 - 1]}},
        {"x": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}},
        {"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}},
        {"x": WHOLE, "y": {"dtype": "F32", "shape": [0, 2**47, 2**47], "data_offsets": [0, 0]}},
        {"x": WHOLE, "y": {"dtype": "BF16", "shape": [0, 2**47, 2**47], "data_offsets": [0, 0]}},
        {"x": 1},
    ],
)
def test_header_that_lies_about_lengths_is_refused(header, tmp_path):
    write_model(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", {"x": ("F32", [1], bytes(4))}, header)
    with pytest.raises(InputError, match="damaged or not a safetensors file"):
        load_hf(tmp_path)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A folder whose weights may be overwritten."""
    return write_model(tmp_path_factory.mktemp("damaged"), as_float("BF16", upper_half))


PIECES = st.sampled_from([b"0", b"9", b"-", b"}", b"]", b",", b'"', b"F64", b"I8", b"bert.", b"\xff"])


@settings(max_examples=examples(300), deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), what=st.one_of(PIECES, st.binary(min_size=1, max_size=9)))
def test_a_damaged_header_raises_nothing_but_an_input_error(damaged, where, what):
    path = damaged / "model.safetensors"
    sound = path.read_bytes()
    at = int(where * (8 + int.from_bytes(sound[:8], "little")))
    try:
        path.write_bytes(sound[:at] + what + sound[at + len(what) :])
        load_hf(damaged)
    except InputError:
        pass
    finally:
        path.write_bytes(sound)


def test_full_disk_leaves_the_old_model_whole_and_no_part_of_the_new(tmp_path):
    save_hf(tmp_path, CONFIG, PARAMS)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(RunError, match=r"model\.safetensors could not be written"):
            save_hf(tmp_path, CONFIG, initialise(CONFIG, seed=4))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_saving_over_a_file_that_is_no_folder_is_an_error(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(RunError, match="taken"):
        save_hf(tmp_path / "taken", CONFIG, PARAMS)


def test_files_beside_the_model_are_left_alone(tmp_path):
    shutil.copy(GOLDEN / "config.json", tmp_path / "notes.json")
    save_hf(tmp_path, CONFIG, PARAMS)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["config.json", "model.safetensors", "notes.json"]
