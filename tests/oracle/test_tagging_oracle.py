"""Where tags stand among pieces, against Hugging Face's tokenizer with words that are given."""

import numpy as np
import pytest
from real_data import real_data

from minibert import Tokenizer
from minibert.tasks.tagging import Tagging

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-cased"])
def test_pieces_and_rows_of_real_sentences_agree(name):
    vocabulary = real_data(f"vocab/{name}")
    cased = name.endswith("-cased")
    case = {"lower_case": False, "strip_accents": False} if cased else {}
    tokenizer = Tokenizer.from_pretrained(vocabulary / "vocab.txt", **case)
    theirs = transformers.BertTokenizerFast(str(vocabulary / "vocab.txt"), do_lower_case=not cased)
    task = Tagging("ner-sentences", by_document=False)
    examples = task.read(real_data("ner"), "dev")
    found = list(task.features(examples, tokenizer, task.labels(examples), 512, training=False))
    expected = theirs([list(one.words) for one in examples], is_split_into_words=True)
    assert len(found) == len(examples)
    for number, feature in enumerate(found):
        assert feature.sequences[0].input_ids.tolist() == expected["input_ids"][number]
        words = np.array([-1 if word is None else word for word in expected.word_ids(number)])
        firsts = [int(np.flatnonzero(words == word)[0]) for word in range(len(examples[number].words))]
        assert feature.rows.tolist() == firsts
