"""`pytorch_model.bin`: PyTorch's own files read, and hostile, lying and damaged ones refused."""

import builtins
import collections
import contextlib
import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from agreement import stored_tensors
from hypothesis import given, settings, strategies as st
from marks import examples
from paths import GOLDEN
from torch_files import NO_HOOKS, REBUILD, Called, Named, Outside, archive, ended, storage, tensor

from minibert import hub
from minibert.base.errors import InputError
from minibert.hub.pytorch import pickled
from minibert.hub.pytorch.pickled import read_pickled
from minibert.hub.pytorch.unpickling import Hostile, Machine

OURS = GOLDEN / "hf_tiny"  # the model whose weights the two files hold, written by transformers
PICKLED = ("hf_tiny.bin", "hf_tiny_older.bin")  # written by torch.save, in both layouts
KINDS = {"FloatStorage": "f4", "HalfStorage": "f2", "DoubleStorage": "f8", "LongStorage": "i8"}


# What is read


@pytest.mark.parametrize("name", PICKLED)
def test_files_of_torch_have_the_tensors_of_the_same_model_in_safetensors(name):
    tensors, _ = read_pickled(GOLDEN / name)
    found = {key: (one.dtype, one.shape, one.tobytes()) for key, one in tensors.items()}
    expected, _ = stored_tensors(OURS)
    decoder = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    assert found.keys() - expected.keys() == decoder
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("name", PICKLED)
def test_a_folder_with_a_pickle_is_loaded_and_written_as_safetensors(name, tmp_path):
    (tmp_path / "config.json").write_bytes((OURS / "config.json").read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes((GOLDEN / name).read_bytes())
    config, params, report = hub.load(tmp_path)
    assert report == ((), (), ())
    hub.save_hf(tmp_path / "out", config, params)
    assert stored_tensors(tmp_path / "out") == stored_tensors(OURS)


@pytest.mark.parametrize("layers", [1, 99])
def test_weights_that_are_no_floating_point_numbers_are_named_with_their_type(layers, tmp_path):
    fields = json.loads((OURS / "config.json").read_text()) | {"num_hidden_layers": layers}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    name = "bert.embeddings.word_embeddings.weight"
    whole = {f"bert.extra.{number}": tensor(storage("0", 6, "CharStorage")) for number in range(layers)}
    content = {name: tensor(storage("0", 6, "CharStorage")), **whole}
    archive(tmp_path / "pytorch_model.bin", ended(content), {"0": np.zeros(6, "i1")})
    with pytest.raises(InputError, match=f"holds {name} as int8, which is not read; save .* in float32"):
        hub.load(tmp_path)


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read(protocol):
    tuples = [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]
    value = {"a": [1, -(2**40), 2.5, None, True, False, "ä", *tuples, {}, [[]]]}
    value["again"] = value["a"]
    assert Machine().run(io.BytesIO(pickle.dumps(value, protocol))) == value
    ordered = collections.OrderedDict(x=1, y=collections.OrderedDict())
    assert Machine().run(io.BytesIO(pickle.dumps(ordered, protocol))) == {"x": 1, "y": {}}


def test_every_kind_of_number_is_read_and_whole_ones_are_left_out(tmp_path):
    values = {kind: np.arange(-2, 4).astype(dtype) for kind, dtype in KINDS.items()}
    content = {kind: tensor(storage(kind, 6, kind), 1, (5,), (1,)) for kind in KINDS}
    content["epoch"] = 3
    content["brain"] = tensor(storage("b", 2, "BFloat16Storage", "torch.cuda"), 0, (2,), (1,))
    storages = {**values, "b": np.array([0x3F80, 0xC000], "u2")}
    found, others = read_pickled(archive(tmp_path / "x.bin", ended(content), storages))
    assert found.keys() == {"FloatStorage", "HalfStorage", "DoubleStorage", "brain"}
    assert others == {kind: np.dtype(KINDS[kind]).name for kind in KINDS.keys() - found.keys()}
    for kind in found.keys() - {"brain"}:
        assert found[kind].dtype == KINDS[kind]
        np.testing.assert_array_equal(found[kind], values[kind][1:])
    np.testing.assert_array_equal(found["brain"], np.array([1, -2], np.float32))


def test_views_of_a_storage_are_taken_with_offset_and_strides(tmp_path):
    content = {
        "turned": tensor(offset=0, shape=(3, 2), strides=(1, 3)),
        "column": tensor(offset=2, shape=(2,), strides=(3,)),
        "scalar": tensor(offset=5, shape=(), strides=()),
        "nothing": tensor(offset=6, shape=(0, 9), strides=(9, 1)),
        "parameter": Called(Named("torch._utils", "_rebuild_parameter"), tensor(), True, NO_HOOKS),
    }
    found, _ = read_pickled(archive(tmp_path / "x.bin", ended(content)))
    assert {name: one.tolist() for name, one in found.items()} == {
        "turned": [[0, 3], [1, 4], [2, 5]],
        "column": [2, 5],
        "scalar": 5,
        "nothing": [],
        "parameter": [[0, 1, 2], [3, 4, 5]],
    }


def test_tensors_may_share_a_storage_but_not_stand_for_many_times_its_numbers(tmp_path):
    names = [f"bert.{number}" for number in range(pickled.MOST_VIEWS)]
    found, _ = read_pickled(archive(tmp_path / "x.bin", ended({name: tensor() for name in names})))
    assert list(found) == names
    many = ended({name: tensor() for name in [*names, "bert.one_more"]})
    with pytest.raises(InputError, match=r"its tensors are views of 120 bytes in storages of 24\); copy"):
        read_pickled(archive(tmp_path / "x.bin", many))


# What is hostile


class Reduced:
    """Pickled by Python itself as a call of whatever it is given."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


CALLS = {
    "os-system": (os.system, ("touch {witness}",)),
    "eval": (eval, ("open({witness!r}, 'w')",)),
    "exec": (exec, ("open({witness!r}, 'w')",)),
    "import": (builtins.__import__, ("os",)),
    "getattr": (getattr, ("x", "upper")),
    "open": (open, ("{witness}", "w")),
    "bytearray": (bytearray, (10**12,)),
    "loads": (pickle.loads, (b"cos\nsystem\n(S'touch {witness}'\ntR.",)),
}


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("call", CALLS)
def test_a_pickle_that_calls_something_is_refused_and_nothing_is_run(call, protocol, tmp_path):
    witness = tmp_path / "witness"
    function, arguments = CALLS[call]
    arguments = tuple(one.format(witness=str(witness)) if isinstance(one, str) else one for one in arguments)
    content = pickle.dumps({"a": Reduced(function, arguments)}, protocol)
    with pytest.raises(InputError, match="asks for .*may be hostile; nothing of it was run"):
        read_pickled(archive(tmp_path / "x.bin", content))
    (tmp_path / "y.bin").write_bytes(content)
    with pytest.raises(InputError, match="nothing of it was run"):
        read_pickled(tmp_path / "y.bin")
    assert not witness.exists()


def test_an_instruction_that_tensors_do_not_need_is_named_where_the_stack_is_short_of_objects(tmp_path):
    witness = tmp_path / "witness"
    text = f"touch {witness}".encode()
    # POP, which takes the mark when Python unpickles it.
    content = b"\x80\x02(0cposix\nsystem\nX" + len(text).to_bytes(4, "little") + text + b"\x85R."
    with pytest.raises(InputError, match="has the instruction POP, .*may be hostile"):
        read_pickled(archive(tmp_path / "x.bin", content))
    assert not witness.exists()


def test_reading_imports_nothing_that_the_file_names(tmp_path, monkeypatch):
    monkeypatch.setattr(builtins, "__import__", lambda *_: pytest.fail("something was imported"))
    found = Machine().run(io.BytesIO(ended({"a": tensor()})))
    assert found["a"].shape == (2, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Named("torch", "load"), r"asks for 'torch\.load'"),
        (Named("torch._utils", "_import_dotted_name"), "asks for"),
        (Named("collections", "OrderedDict.__class__"), "asks for"),
        (Named("x" * 10_000, "y"), r"asks for 'xxx.{0,40}\.\.\..{0,40}y'"),
        (Called(NO_HOOKS), "calls something that is not a function"),
        (Called(storage()), "calls something that is not a function"),
        (Called(Named("torch", "FloatStorage"), 10**12), "calls the function for a storage"),
        (Called(Named("collections", "OrderedDict"), 3), "calls the function for a dictionary"),
        (Called(Named("collections", "OrderedDict"), (("a", 1),)), "calls the function for a dictionary"),
        (Called(REBUILD), "calls the function for a tensor"),
        (Called(REBUILD, *[1] * 5), "calls the function for a tensor"),
        (Called(Named("torch._utils", "_rebuild_parameter"), 1, True, NO_HOOKS), "function for a parameter"),
        (Outside(("module", Named("torch", "FloatStorage"), "0", "cpu", 6)), "not a storage"),
        (Outside("0"), "not a storage"),
    ],
)
def test_what_tensors_do_not_need_is_refused_by_name(content, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_pickled(archive(tmp_path / "x.bin", ended({"a": content})))


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\2N}b.",  # attributes of what is no dictionary
        b"\x80\2N}s.",
        b"\x80\2]}b.",
        b"(ios\nsystem\n.",  # INST
        b"(cos\nsystem\no.",
        b"\x80\2ccollections\nOrderedDict\n)\x81.",  # NEWOBJ
        b"\x80\2\x82\1.",  # EXT1
        b"Psomething\n.",
        b"\x80\2N2.",  # DUP
        b"\x80\4\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",  # BINBYTES8 of 2^63 bytes
        b"\x80\5\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
    ],
)
def test_instructions_without_a_purpose_here_are_refused(content):
    with pytest.raises((Hostile, ValueError)):
        Machine().run(io.BytesIO(content))


@pytest.mark.parametrize(
    "content", [b".", b"(.", b"t.", b"(\x85.", b"](a.", b"N(q\0h\0.", b"\x80\4(\x94h\0."]
)
def test_a_mark_or_an_empty_stack_is_not_an_object(content):
    with pytest.raises(ValueError, match="it takes more objects than there are"):
        Machine().run(io.BytesIO(content))


# What lies


@pytest.mark.parametrize(
    "content",
    [
        tensor(shape=(2, 4), strides=(3, 1)),
        tensor(offset=1),
        tensor(offset=2**47, shape=(1,), strides=(1,)),
        tensor(offset=7, shape=(0,), strides=(1,)),
        tensor(offset=-1),
        tensor(shape=(2, 3), strides=(-3, 1)),
        tensor(shape=(-2, -3)),
        tensor(shape=(2, 3), strides=(3,)),
        tensor(shape=(2**20, 2**20), strides=(0, 0)),  # one number, said to be many
        tensor(shape=(2**63, 2**63), strides=(2**63, 1)),
        tensor(shape=(1,) * 9, strides=(1,) * 9),
        tensor(shape=[2, 3]),
        tensor(shape=(2.0, 3)),
        tensor(shape=(True, 3)),
        tensor(place=5),
        tensor(storage(count=7)),
        tensor(storage(count=2**40), shape=(2**30,), strides=(1,)),
        tensor(storage(key="../data.pkl")),
        tensor(storage(key=0)),
        tensor(storage(kind="DoubleStorage")),
        tensor(storage(device="cpu", view=("v", 0, 6))),
    ],
)
def test_tensors_that_reach_beyond_their_storage_are_refused(content, tmp_path):
    with pytest.raises(InputError, match="is damaged or no dictionary of tensors"):
        read_pickled(archive(tmp_path / "x.bin", ended({"a": content})))


@pytest.mark.parametrize(
    "content", [tensor(), [tensor()], {}, {"model": {"a": tensor()}}, {1: tensor()}, None]
)
def test_what_is_no_dictionary_of_tensors_is_refused(content, tmp_path):
    with pytest.raises(InputError, match="no dictionary of tensors"):
        read_pickled(archive(tmp_path / "x.bin", ended(content)))


def test_a_reason_is_short_however_much_it_quotes(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"F" + b"x" * 100_000 + b"\n.")
    with pytest.raises(InputError, match="could not convert string to float") as caught:
        read_pickled(tmp_path / "x.bin")
    assert len(str(caught.value)) < len(str(tmp_path)) + 400


def test_one_storage_described_in_two_ways_is_refused(tmp_path):
    content = {"a": tensor(), "b": tensor(storage(kind="LongStorage"))}
    with pytest.raises(InputError, match="storage '0' is described in two ways"):
        read_pickled(archive(tmp_path / "x.bin", ended(content)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": zipfile.ZIP_DEFLATED}, "is compressed"),
        ({"extra": {"byteorder": b"big"}}, "not little-endian"),
        ({"extra": {"x/data.pkl": b""}}, "2 members data.pkl"),
        ({"storages": {"1": np.zeros(6, "f4")}}, "no item named"),
        ({"storages": {"0": np.zeros(5, "f4")}}, "20 bytes in place of 24"),
    ],
)
def test_archives_unlike_those_of_torch_are_refused(options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_pickled(archive(tmp_path / "x.bin", ended({"a": tensor()}), **options))


def test_a_member_with_a_wrong_check_sum_is_refused(tmp_path):
    path = archive(tmp_path / "x.bin", ended({"a": tensor()}))
    data = bytearray(path.read_bytes())
    data[data.index(np.arange(6, dtype="f4").tobytes()) + 4] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="Bad CRC-32"):
        read_pickled(path)


@pytest.mark.parametrize("beginning", [5, 30])
def test_a_member_that_begins_too_near_the_end_is_refused(beginning, tmp_path):
    path = archive(tmp_path / "x.bin", ended({"a": tensor()}))
    data = bytearray(path.read_bytes())
    for at in (i for i in range(len(data)) if data[i : i + 4] == b"PK\1\2"):
        data[at + 42 : at + 46] = struct.pack("<I", len(data) - beginning)
    path.write_bytes(data)
    with pytest.raises(InputError, match="is damaged or no dictionary of tensors"):
        read_pickled(path)


def older(content, keys=("0",), counts=(6,), system=None, magic=pickled.MAGIC):
    """A file in the older layout."""
    system = {"little_endian": True} if system is None else system
    parts = [magic, pickled.PROTOCOL, system, content, list(keys)]
    storages = b"".join(struct.pack("<q", count) + np.arange(6, dtype="f4").tobytes() for count in counts)
    return b"".join(map(ended, parts)) + storages


def test_the_older_layout_as_written_here_is_read(tmp_path):
    (tmp_path / "x.bin").write_bytes(older({"a": tensor()}))
    assert read_pickled(tmp_path / "x.bin")[0]["a"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"magic": 1}, "does not begin as"),
        ({"system": {"little_endian": False}}, "not little-endian"),
        ({"system": 3}, "not little-endian"),
        ({"keys": ()}, "lists other storages"),
        ({"keys": ("0", "1"), "counts": (6, 6)}, "lists other storages"),
        ({"keys": (7,)}, "does not list its storages"),
        ({"counts": (5,)}, "the expected 6 numbers"),
        ({"counts": ()}, "the expected 6 numbers"),
    ],
)
def test_lies_of_the_older_layout_are_refused(options, message, tmp_path):
    (tmp_path / "x.bin").write_bytes(older({"a": tensor()}, **options))
    with pytest.raises(InputError, match=message):
        read_pickled(tmp_path / "x.bin")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for path in (tmp_path / "nowhere.bin", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_pickled(path)


# What is damaged


@pytest.mark.parametrize("name", PICKLED)
@pytest.mark.parametrize("kept", [0, 3, 4, 100, 10_000, -1])
def test_truncated_files_are_refused(name, kept, tmp_path):
    (tmp_path / "x.bin").write_bytes((GOLDEN / name).read_bytes()[:kept])
    with pytest.raises(InputError, match="is damaged or no dictionary of tensors"):
        read_pickled(tmp_path / "x.bin")


@pytest.fixture(scope="module", params=["today", "older"])
def small(request, tmp_path_factory):
    """A file whose pickle is most of it, so that damage hits that; it may be overwritten."""
    path = tmp_path_factory.mktemp("damaged") / "x.bin"
    content = {"a": tensor(), "b": tensor(offset=3, shape=(3,), strides=(1,)), "c": {"d": [1, 2.5, "e"]}}
    if request.param == "today":
        return archive(path, ended(content))
    path.write_bytes(older(content))
    return path


@settings(max_examples=examples(300))
@given(where=st.floats(0, 1, exclude_max=True), what=st.binary(max_size=9), cut=st.booleans())
def test_damage_anywhere_raises_nothing_but_an_input_error(small, where, what, cut):
    sound = small.read_bytes()
    at = int(where * len(sound))
    try:
        small.write_bytes(sound[:at] + what + (b"" if cut else sound[at + len(what) :]))
        read_pickled(small)
    except InputError:
        pass
    finally:
        small.write_bytes(sound)


@settings(max_examples=examples(500))
@given(data=st.data())
def test_a_damaged_pickle_raises_nothing_but_expected_errors(data):
    content = bytearray(ended({"a": tensor(), "b": {"c": [1, 2.5, "e"]}}))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Hostile, ValueError, LookupError, OverflowError):
        Machine().run(io.BytesIO(bytes(content)))


@pytest.mark.parametrize("member", ["data.pkl", "data/0"])
def test_a_stored_member_that_claims_gibibytes_allocates_none_of_them(member, tmp_path):
    path = archive(tmp_path / "x.bin", ended({"a": tensor()}))
    data = bytearray(path.read_bytes())
    at = data.rindex(f"archive/{member}".encode()) - 46  # where the archive's directory describes it
    assert data[at : at + 4] == b"PK\1\2"
    data[at + 20 : at + 24] = struct.pack("<I", 2**30)
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=f"{member} has two lengths, [0-9]+ and {2**30}"):
            read_pickled(path)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


HUGE = tensor(storage("0", 2**40), shape=(1,), strides=(1,))
MUCH = {
    "memo": b"\x80\2Nr\xff\xff\xff\xff0.",
    "text": b"\x80\4\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "frame": b"\x80\4\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "nested": b"\x80\2" + b"(" * 50_000 + b"t" * 50_000 + b".",
    "lists": b"\x80\2" + b"]" * 100_000 + b".",
    "deep": b"\x80\2]" + b"q\0h\0a" * 30_000 + b".",
    "digits": b"I" + b"9" * 500_000 + b"\n.",
    "long-pickle": b"\x80\2" + b"N" * (pickled.PICKLE_LIMIT + 9) + b".",
    "storages": ended({"a": HUGE}),
}


@pytest.mark.representatives(case=["text", "nested"])
@pytest.mark.parametrize("case", MUCH)
def test_small_files_that_would_unfold_to_much_are_refused_in_little_memory(case, tmp_path):
    path = archive(tmp_path / "x.bin", MUCH[case])
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            read_pickled(path)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
