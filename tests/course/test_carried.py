"""What comes back from the process of an answer is data: it arrives as it was, or is refused."""

import json

import numpy as np
import pytest

from minibert.core.batch import Sequence
from minibert.course.carried import Opaque, leaves_of, made_again, packed, restore, unpacked
from minibert.course.memory import Memory

SHARED = np.arange(3.0)


def carried(value, given=()):
    return unpacked(packed(value, list(given)), list(given), again=None)


@pytest.mark.parametrize(
    "value",
    [
        None, True, -3, 0.1, float("inf"), 1 + 2j, "é", b"\x00\xff", ...,
        [1, (2.5, "x")], {"a": [1], 2: None}, {1, 2}, frozenset({"a"}), {(1, 2): 3}, np.float32(0.1),
    ],
    ids=repr,
)  # fmt: skip
def test_values_arrive_as_they_were(value):
    again = carried(value)
    assert again == value and type(again) is type(value)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i4", "u2", "?", "U3"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_arrays_arrive_to_the_bit(dtype, shape):
    array = np.ones(shape, dtype)
    again = carried([array])[0]
    assert again.dtype == array.dtype and again.shape == shape and (again == array).all()


def test_an_array_that_counts_is_a_leaf_whose_counts_and_numbers_arrive():
    memory, before = Memory(lines=1), Memory(lines=1).traced(np.zeros((2, 8)))
    x = memory.traced(np.zeros((2, 8)))
    for i in (0, 1, 0):
        x[i, 3] += 2
    restore((before,), carried((x,)))
    assert before.values.tolist() == x.values.tolist() and before.fetches.tolist() == [2, 1]
    assert (before.reads, before.writes, before.memory.fetched) == (3, 3, 3)
    assert carried([x, object()], given=[x])[0] is x
    assert carried([x, object()])[1].leaf == 1


def test_what_the_reader_has_already_is_its_own_and_named_tuples_keep_their_class():
    again = carried({"x": SHARED, "s": Sequence([1, 2], [0, 0])}, given=[SHARED])
    assert again["x"] is SHARED
    assert isinstance(again["s"], Sequence) and again["s"].input_ids == [1, 2]


def test_what_can_not_be_carried_is_made_again_by_the_call_that_made_it():
    kept = [1, object(), object()]
    arrived = unpacked(packed(kept, []), [], again="the call")
    assert arrived[0] == 1 and isinstance(arrived[1], Opaque) and type(arrived[1]).__name__ == "object"
    repeated = made_again(arrived, {"the call": kept}.__getitem__)
    assert repeated[1] is kept[1] and repeated[2] is kept[2]
    nested = made_again({"a": (arrived[2], 5)}, {"the call": kept}.__getitem__)
    assert nested == {"a": (kept[2], 5)}
    assert list(leaves_of({"a": [1, (2, 3)]})) == [1, 2, 3]


def test_arguments_get_the_contents_that_they_have_after_the_call():
    weight = np.zeros(2)
    original = {"w": weight, "old": 1, "list": [1, 2], "pair": (np.zeros(1), {})}
    restore(original, {"w": np.ones(2), "new": 2, "list": [3], "pair": (np.ones(1), {"x": 1})})
    assert original["w"] is weight and weight.tolist() == [1, 1]
    assert "old" not in original and original["new"] == 2 and original["list"] == [3]
    assert original["pair"][0].tolist() == [1] and original["pair"][1] == {"x": 1}


def written(tree, data=b""):
    head = json.dumps(tree).encode()
    return len(head).to_bytes(8, "little") + head + data


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff" * 8, written({"a": ["f8", [2], 16, True]}, b"short"),
        written({"a": ["O", [1], 8, True]}, b"8" * 8),
        written({"a": ["f8", [1 << 40], 8, True]}, b"8" * 8), written({"b": -1}), written({"p": 7}),
        written({"n": ["os", "system", ["true"]]}), written({"n": ["minibert.core.batch", "Batch", []]}),
        written({"n": ["nowhere", "x", []]}), written({"s": ["list", []]}), written({"x": 1}),
        written({"f": "zero"}),
        written({"d": [[{"l": []}, 1]]}), written({"a": 1, "b": 2}), b"\x02" + b"\x00" * 7 + b"{]",
    ],
)  # fmt: skip
def test_what_no_packing_writes_is_refused(data):
    with pytest.raises(ValueError):
        unpacked(data, [], None)
