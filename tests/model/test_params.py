"""What the kinds of head add to the encoder, and which of them answer for whole texts."""

import pytest

from minibert.core.config import BertConfig
from minibert.core.params import encoder_table
from minibert.model.head_kinds import KINDS, OF_CLASSES, OF_TEXTS
from minibert.model.params import Head, parameter_table

CONFIG = BertConfig(10, 4, 1, 2, 8)
POOLER = {"pooler.weight": (4, 4), "pooler.bias": (4,)}


def own(head):
    """The tensors of a head with their shapes."""
    encoder = {entry.name for entry in encoder_table(CONFIG)}
    return {entry.name: entry.shape for entry in parameter_table(CONFIG, head) if entry.name not in encoder}


def output(outputs):
    """Of the last layer."""
    return {"head.weight": (4, outputs), "head.bias": (outputs,)}


@pytest.mark.parametrize(
    ("head", "tensors"),
    [
        (Head("classify", 3), POOLER | output(3)),
        (Head("multilabel", 3), POOLER | output(3)),
        (Head("regress", 1), POOLER | output(1)),
        (Head("choice", 1), POOLER | output(1)),
        (Head("span", 2), output(2)),
        (Head("tag", 9), output(9)),
        (Head("cosine", 0), {}),
        (Head("contrastive", 0), {}),
        (Head("classify", 3, pool="mean"), POOLER | output(3)),
        (Head("classify", 3, pool="max"), POOLER | output(3)),
        (Head("classify", 3, pool="attention"), POOLER | output(3) | {"head.query": (4,)}),
    ],
)
def test_a_head_adds_these_tensors_to_the_encoder(head, tensors):
    assert own(head) == tensors


def test_the_kinds_of_whole_texts_are_those_of_sequence_classification():
    others = {"pretraining", "span", "choice", "tag", "cosine", "contrastive"}
    assert set(KINDS) == others | {*OF_TEXTS}
    assert OF_TEXTS == ("classify", "multilabel", "regress")
    assert OF_CLASSES == ("classify", "multilabel")
