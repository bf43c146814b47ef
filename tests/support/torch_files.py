"""Files as `torch.save` writes them, around a pickle of choice, written without PyTorch."""

import pickle
import zipfile

import numpy as np


class Named:
    """Pickles as a name that need not exist."""

    def __init__(self, module, name):
        self.place = f"c{module}\n{name}\n".encode()


class Called:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments


class Outside:
    """Pickles as a reference to a storage."""

    def __init__(self, identity):
        self.identity = identity


def written(value):
    """A pickle of protocol 2 without memo, instruction by instruction: nothing has to exist for it."""
    match value:
        case Named():
            return value.place
        case Called():
            return written(value.function) + written(value.arguments) + b"R"
        case Outside():
            return written(value.identity) + b"Q"
        case tuple():
            return b"(" + b"".join(map(written, value)) + b"t"
        case list():
            return b"]" + b"".join(written(one) + b"a" for one in value)
        case dict():
            return b"}(" + b"".join(written(part) for item in value.items() for part in item) + b"u"
        case _:
            return pickle.dumps(value, protocol=2)[2:-1]


def ended(value):
    """A whole pickle."""
    return b"\x80\2" + written(value) + b"."


REBUILD = Named("torch._utils", "_rebuild_tensor_v2")
NO_HOOKS = Called(Named("collections", "OrderedDict"))


def storage(key="0", count=6, kind="FloatStorage", module="torch", **changes):
    """A reference as torch.save writes it."""
    parts = {"what": "storage", "kind": Named(module, kind), "key": key, "device": "cpu", "count": count}
    return Outside(tuple((parts | changes).values()))


def tensor(place=None, offset=0, shape=(2, 3), strides=(3, 1)):
    """A tensor as torch.save writes it."""
    return Called(REBUILD, storage() if place is None else place, offset, shape, strides, False, NO_HOOKS)


def archive(path, content, storages=None, compression=zipfile.ZIP_STORED, extra=None):
    """A file in today's layout, around a pickle of choice."""
    members = {"data.pkl": content, "version": b"3\n"} | (extra or {})
    for key, values in (storages or {"0": np.arange(6, dtype="f4")}).items():
        members[f"data/{key}"] = values.tobytes()
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(f"archive/{name}", data)
    return path


def older(path, content, storages=None):
    """A file in the older layout: five pickles, and the storages end to end."""
    storages = storages or {"0": np.arange(6, dtype="f4")}
    system = {
        "protocol_version": 1001,
        "little_endian": True,
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    pickles = (0x1950A86A20F9469CFC6C, 1001, system)
    data = b"".join(map(ended, pickles)) + content + ended(list(storages))
    for values in storages.values():
        data += len(values).to_bytes(8, "little") + values.tobytes()
    path.write_bytes(data)
    return path
