"""What a pickle would import is listed, whatever its protocol and however it is hidden; nothing is called."""

import collections
import io
import os
import pickle
import struct
import zipfile

import pytest
from command import ends_badly
from paths import GOLDEN

import minibert
from minibert import cli
from minibert.base.errors import InputError
from minibert.hub.pytorch import listing
from minibert.hub.pytorch.listing import COMPUTED, list_names
from minibert.hub.pytorch.pickled import MAGIC

SYSTEM = f"{os.system.__module__}.system"
TENSORS = ("collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch.FloatStorage")


class Harmful:
    """Pickles as a call of `os.system` that would leave a mark."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def archived(path, data, **how):
    """A file in the newer layout."""
    with zipfile.ZipFile(path, "w", **how) as archive:
        archive.writestr("model/data.pkl", data)
    return path


def written(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_call_is_listed_in_every_protocol_and_not_made(tmp_path, protocol):
    value = {"weight": [1.5, Harmful(tmp_path / "called")], "of": collections.OrderedDict()}
    data = pickle.dumps(value, protocol)
    plain = list_names(written(tmp_path / "model.bin", data))
    assert SYSTEM in plain.foreign and plain.unread == ""
    assert list_names(archived(tmp_path / "model.pt", data)) == plain
    assert not (tmp_path / "called").exists()
    assert plain.names == tuple(dict.fromkeys(imported(data)))


def imported(data):
    """The names that Python's own unpickler asks for, in order."""
    names = []

    class Asked(pickle.Unpickler):
        def find_class(self, module, name):
            names.append(f"{module}.{name}")
            return collections.OrderedDict if name == "OrderedDict" else lambda *arguments: None

    Asked(io.BytesIO(data)).load()
    return names


@pytest.mark.parametrize("file", ["hf_tiny.bin", "hf_tiny_older.bin"])
def test_files_of_pytorch_import_what_tensors_need(file):
    assert list_names(GOLDEN / file) == (TENSORS, "")
    assert list_names(GOLDEN / file).foreign == ()


HIDDEN = {
    "by reference": b"\x80\4\x8c\5posix\x94\x8c\6system\x940h\0h\1\x93.",
    "by duplicate": b"\x80\4\x8c\5posix2\x8c\6system\x93.",
    "in an instance": b"(Vx\niposix\nsystem\n.",
    "before an error": b"cposix\nsystem\n(Vx\ntR\xff",
    "without an end": b"cposix\nsystem\n",
    "below a mark": b"(K\1K\2K\3l0\x8c\5posix\x8c\6system\x93.",
    "in a second pickle": b"N.cposix\nsystem\n.",
}


@pytest.mark.parametrize("how", HIDDEN)
def test_hidden_names_are_listed(tmp_path, how):
    data = HIDDEN[how]
    names = list_names(written(tmp_path / "x.pkl", data)).foreign
    assert names == ("posix.system",)


def test_a_computed_name_and_numbers_of_a_registry_are_foreign(tmp_path):
    data = b"\x80\4cbuiltins\nstr\n)R\x8c\6system\x93."
    assert list_names(written(tmp_path / "x.pkl", data)).foreign == ("builtins.str", COMPUTED)
    data = b"\x80\2\x82\7."
    assert list_names(written(tmp_path / "x.pkl", data)).foreign == ("number 7 of copyreg's registry",)


def test_numbers_behind_a_pickle_are_not_taken_for_names(tmp_path):
    data = 5 * pickle.dumps([1, 2]) + b"cposix\nsystem\n\xff\xff"
    assert list_names(written(tmp_path / "x.pkl", data)) == ((), "")


@pytest.mark.parametrize("n_before", range(5))
def test_an_incomplete_pickle_among_the_five_that_pytorch_reads_is_listed(tmp_path, n_before):
    first = f"\x80\x02L{MAGIC}L\n.".encode("latin-1")
    assert pickle.loads(first) == MAGIC  # as torch.load sees it, though the bytes are not those of torch.save
    data = n_before * first + b"cposix\nsystem\n(Vx\ntR\xff"
    found = list_names(written(tmp_path / "x.bin", data))
    assert found.names == ("posix.system",) and "unknown" in found.unread


@pytest.mark.parametrize("data", [b"", b"\0\1", b"\xff"])
def test_what_is_not_a_pickle_is_refused(tmp_path, data):
    with pytest.raises(InputError, match="x.pkl is not a pickle"):
        list_names(written(tmp_path / "x.pkl", data))
    with pytest.raises(InputError, match="x.pt is not a pickle"):
        list_names(archived(tmp_path / "x.pt", b""))


def test_a_file_that_merely_begins_like_a_pickle_is_not_one(tmp_path):
    for data in (b"(\1\0\0\0\0\0\0{}", b"0\xff"):
        with pytest.raises(InputError, match="x.bin is not a pickle .*name its folder if it is part of a"):
            list_names(written(tmp_path / "x.bin", data))
    assert list_names(written(tmp_path / "x.bin", pickle.dumps({"a": 1}))) == ((), "")


# Archives that are damaged

METHODS = [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


@pytest.mark.parametrize("method", METHODS)
def test_a_damaged_compressed_pickle_is_a_finding_after_the_names_before_it(tmp_path, method):
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        archive.writestr("1/data.pkl", b"cposix\nsystem\n.")
        archive.writestr("2/data.pkl", pickle.dumps(list(range(1000))), compress_type=method)
        start = archive.getinfo("2/data.pkl").header_offset + 30 + len("2/data.pkl")
    data = bytearray((tmp_path / "x.pt").read_bytes())
    data[start : start + 60] = 60 * b"\xff"
    found = list_names(written(tmp_path / "x.pt", data))
    assert found.names == ("posix.system",) and found.unread
    assert len(minibert.verify(tmp_path / "x.pt").findings) == 2


# What is endless


def test_an_archive_that_unfolds_to_any_size_is_read_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "LARGEST", 1 << 16)
    data = b"cposix\nsystem\n" + b"N0" * (1 << 20) + b"."
    path = archived(tmp_path / "x.pt", data, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 14
    assert list_names(path) == (("posix.system",), "it has more than 0 MiB")


def test_endless_instructions_and_pickles_are_read_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "MOST_INSTRUCTIONS", 1000)
    data = b"cposix\nsystem\n" + b"N0" * 1000 + b"."
    assert list_names(written(tmp_path / "x.bin", data)) == (
        ("posix.system",), "it has more than 1,000 instructions",
    )  # fmt: skip
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        for number in range(40):
            archive.writestr(f"{number}/data.pkl", b"N.")
    assert list_names(tmp_path / "x.pt").unread == "it has 40 pickles"


@pytest.mark.parametrize("opcode, size", [(b"\x8d", "<Q"), (b"\x8e", "<Q"), (b"X", "<I"), (b"\x8b", "<i")])
def test_a_length_in_the_file_is_not_believed(tmp_path, opcode, size):
    most = {"<Q": 1 << 62, "<I": (1 << 32) - 1, "<i": (1 << 31) - 1}[size]
    data = b"\x80\4cposix\nsystem\n" + opcode + struct.pack(size, most) + b"x"
    found = list_names(written(tmp_path / "x.bin", data))
    assert found.names == ("posix.system",) and found.unread


# The command


def test_the_command_lists_names_and_ends_with_one_where_they_are_foreign(tmp_path, capsys):
    assert cli.main(["verify", str(GOLDEN / "hf_tiny.bin")]) == 0
    assert capsys.readouterr().out == (
        f"OK     hf_tiny.bin: imports {', '.join(TENSORS)}, which stored tensors need\n"
    )
    path = written(tmp_path / "x.ckpt", pickle.dumps(Harmful(tmp_path / "called")))
    assert cli.main(["verify", str(path)]) == 1
    assert capsys.readouterr().out == (
        f"WRONG  x.ckpt: imports {SYSTEM}, and may call it, which stored tensors do not need; don't load it "
        "unless you trust its author.\n"
    )
    path = written(tmp_path / "x.ckpt", b"cposix\nsystem\n")
    assert [str(finding) for finding in minibert.verify(path).findings][1:] == [
        "x.ckpt: can't be listed to its end (pickle exhausted before seeing STOP); get it again."
    ]


def test_a_pickle_without_names_is_said_to_import_nothing(tmp_path, capsys):
    path = written(tmp_path / "x.pkl", pickle.dumps({"a": [1, 2.5, None]}))
    assert cli.main(["verify", str(path)]) == 0
    assert capsys.readouterr().out == "OK     x.pkl: imports nothing\n"
    for data in (pickle.dumps({"a": 1}) + b"\xff", pickle.dumps(Harmful(tmp_path / "called"))):
        verified = minibert.verify(written(tmp_path / "x.pkl", data))
        assert verified.checked == [] and len(verified.findings) == 1


def test_weights_that_are_not_a_pickle_are_refused_with_the_advice_to_name_the_folder(model, capsys):
    said = ends_badly(capsys, 2, "verify", str(model / "model.safetensors"))
    assert "model.safetensors is not a pickle (" in said
    assert said.endswith("; copy it again, or name its folder if it is part of a model.\n")
