"""Special tokens that are written in data: one piece in every task, counted in one warning."""

import numpy as np
import pytest

from minibert.data.choice import ChoiceExample
from minibert.data.glue import TextExample
from minibert.data.ner import TaggedSentence
from minibert.data.squad import Question
from minibert.tasks import registry
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

VOCAB = [*SPECIAL_TOKENS, "[DRUG]", "[", "]", "drug", "the", "helped", "sep", "mask"]
DRUG, THE, HELPED = 5, 9, 10
TEXT = "the [DRUG] helped [SEP]"
PIECES = [THE, DRUG, HELPED, 3]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(VOCAB, additional_special_tokens=["[DRUG]"])


EXAMPLES = {
    "sst2": TextExample("1", TEXT, None, "0"),
    "mrpc": TextExample("1", TEXT, "the", "0"),
    "similarity": TextExample("1", TEXT, "the", 0.5),
    "swag": ChoiceExample("1", TEXT, "the", ("helped", "the", "helped", "the"), 0),
    "ner": TaggedSentence(TEXT.split(), ["O"] * 4, 0),
    "squad1": Question("1", "the", TEXT, (("helped", 11),), False),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_written_special_tokens_are_whole_and_counted_once(name, tokenizer):
    task = registry.create(name, {})
    labels = ("0", "1") if name in ("sst2", "mrpc") else ("O",) if name == "ner" else ()
    with pytest.warns(UserWarning) as caught:
        features = list(task.features([EXAMPLES[name]], tokenizer, labels, 32, training=True))
    told = [str(one.message) for one in caught]
    assert len(told) == 1
    assert "The text has 1 special token written out: [SEP] (1)" in told[0]
    ids = np.asarray(features[0].sequences[0].input_ids).tolist()
    assert " ".join(map(str, PIECES)) in " ".join(map(str, ids))
