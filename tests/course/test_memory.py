"""The simulated cache: what it counts, against counts worked out by hand."""

import numpy as np
import pytest

from minibert.course.memory import Memory


def test_each_line_is_fetched_once_when_read_in_order():
    memory = Memory(lines=2)
    x = memory.traced(np.arange(20.0))
    assert [x[i] for i in range(20)] == list(range(20))
    assert (memory.fetched, x.reads, x.writes) == (3, 20, 0)  # of eight, eight and four numbers
    assert x.fetches.tolist() == [1, 1, 1]


def test_columns_fetch_a_line_for_every_number():
    memory = Memory(lines=4)
    x = memory.traced(np.ones((5, 8)))
    for j in range(8):
        for i in range(5):
            x[i, j] += 1
    assert memory.fetched == 40
    assert (x.reads, x.writes) == (40, 40)
    assert x.fetched_where().tolist() == [[8] * 8] * 5
    assert np.array_equal(np.asarray(x), np.full((5, 8), 2.0))


def test_the_least_recently_used_line_makes_room():
    memory = Memory(lines=2)
    x = memory.traced(np.zeros((3, 8)))
    seen = []
    for row in (0, 1, 0, 2, 0, 1):  # 2 takes the place of 1
        before = memory.fetched
        _ = x[row, 0]
        seen.append(memory.fetched - before)
    assert seen == [1, 1, 0, 1, 0, 1]


def test_two_arrays_share_the_cache_and_no_line():
    memory = Memory(lines=1)
    x, y = memory.traced(np.zeros(2)), memory.traced(np.zeros(2))
    for i in (0, 1):
        y[i] = x[i]
    assert memory.fetched == 4


def test_float32_has_sixteen_numbers_on_a_line():
    memory = Memory()
    x = memory.traced(np.zeros(32, np.float32))
    for i in range(32):
        x[i] = i
    assert memory.fetched == 2


def test_an_array_made_of_it_reads_every_number_once():
    memory = Memory(lines=1)
    x = memory.traced(np.arange(24.0).reshape(2, 12))
    assert np.sum(x) == 276
    assert (x.reads, memory.fetched) == (24, 3)


def test_contents_of_a_copy_are_taken_over():
    x, y = (Memory(lines=1).traced(np.zeros((2, 8))) for _ in range(2))
    for i in (0, 1, 0):
        y[i, 1] += 5
    x.restore(y.contents())
    assert x.values.tolist() == y.values.tolist()
    assert (x.reads, x.writes, x.fetches.tolist(), x.memory.fetched) == (3, 3, [2, 1], 3)


def test_contents_that_do_not_fit_are_refused():
    x = Memory().traced(np.zeros(4))
    for wrong in (
        Memory().traced(np.zeros(5)).contents(),
        Memory().traced(np.zeros((1, 4))).contents(),
        x.contents()._replace(reads=0.5),
        x.contents()._replace(fetched="0"),
    ):
        with pytest.raises(ValueError):
            x.restore(wrong)


@pytest.mark.parametrize("index", [slice(0, 2), (0, 1), -1, 4, 1.0])
def test_only_one_number_inside_can_be_asked_for(index):
    x = Memory().traced(np.zeros(4))
    with pytest.raises(IndexError):
        x[index]
