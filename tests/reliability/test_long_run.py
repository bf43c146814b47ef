"""A training run keeps nothing of a step: what all containers hold is counted, and not bytes."""

from itertools import pairwise

from long_run import SIZES, held, prefetch_filled
from small_corpus import write_corpus

import minibert

STEPS = (40, 70, 100)  # at which it is counted
FEW = 15  # what grows by an element a step grows by 30 from one of them to the next


def growth(*counts):
    """Return by how much what was there every time grew each time, at most."""
    always = set.intersection(*(set(one) for one in counts))
    return max(min(after[key] - before[key] for before, after in pairwise(counts)) for key in always)


def test_nothing_gets_an_element_at_each_step_of_a_training(tmp_path):
    counts = {}

    def note(step, values):
        if step in STEPS:
            counts[step] = held()

    corpus = write_corpus(tmp_path / "animals.txt")
    more = {"steps": 110, "evaluations": 0, "held_out": 0.1, "engine": "numpy", "on_log": note}
    minibert.pretrain(str(corpus), out=tmp_path / "run", show=False, **more, **SIZES)
    assert growth(*counts.values()) < FEW


def test_a_list_that_gets_one_shared_object_at_each_step_is_noticed():
    kept = [None]
    counts = []
    for _ in STEPS:
        counts.append(held())
        kept.extend([None] * 30)
    assert growth(*counts) == 30


def test_the_thread_that_reads_ahead_gives_the_same_items_after_filling():
    assert list(prefetch_filled(range(9), 2)) == list(range(9))
