"""The files for sentence-transformers; `tests/oracle/test_export_oracle.py` loads such folders with it."""

import json
from reprlib import repr as short

import numpy as np
import pytest

from minibert.base.errors import InputError
from minibert.core.config import BertConfig
from minibert.hub import save_hf
from minibert.hub.sentence_transformers import Normalize, module_files, read_modules, write_modules
from minibert.model.params import initialise

CONFIG = BertConfig(7, 6, 2, 3, 5, max_position_embeddings=8)


@pytest.fixture
def folder(tmp_path):
    save_hf(tmp_path, CONFIG, initialise(CONFIG, 1))
    return tmp_path


def test_the_mean_of_all_tokens_is_asked_for(folder):
    write_modules(folder, 8)
    modules = json.loads((folder / "modules.json").read_text())
    assert [one["type"].split(".")[-1] for one in modules] == ["Transformer", "Pooling"]
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert pooling == {
        "word_embedding_dimension": 6,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
    }
    assert json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"] == 8


def test_the_vector_of_cls_can_be_asked_for(folder):
    write_modules(folder, 4, "cls")
    assert json.loads((folder / "1_Pooling" / "config.json").read_text())["pooling_mode_cls_token"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((8, "pooled"), "pool='pooled' is not sentence-transformers'; choose cls or mean."),
        ((9,), "length=9 is not possible; give 2 to the model's 8 positions."),
    ],
)
def test_what_it_has_no_module_for_is_refused_and_nothing_written(folder, words, told):
    before = sorted(folder.iterdir())
    with pytest.raises(InputError) as error:
        write_modules(folder, *words)
    assert str(error.value) == told and sorted(folder.iterdir()) == before


@pytest.mark.parametrize("path", ["../secret", "/etc", "1_Pooling/../../secret", "long" * 2_000])
def test_a_module_outside_of_the_folder_is_refused(folder, path):
    write_modules(folder, 8)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = path
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=f"names the folder {short(path)}, which is not one of its own"):
        read_modules(folder, CONFIG)
    with pytest.raises(InputError, match="is not one of its own"):
        module_files(folder)


def test_vectors_are_divided_by_their_length_and_zero_stays_zero():
    with np.errstate(all="raise"):
        assert Normalize()(np.array([[3.0, -4.0], [0.0, 0.0]])).tolist() == [[0.6, -0.8], [0.0, 0.0]]


@pytest.mark.parametrize("length", [float("nan"), 1, "8", None])
def test_a_length_that_is_not_one_leaves_all_positions(folder, length):
    write_modules(folder, 4)
    assert read_modules(folder, CONFIG).max_length == 4
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
    assert read_modules(folder, CONFIG).max_length == 8
