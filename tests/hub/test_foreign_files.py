"""Files that are not what they seem: pointers of Git-LFS, and configurations of other architectures."""

import json

import google_folder
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from minibert import Bert, InputError, Tokenizer, cli, hub
from minibert.base.reading import byte_pieces
from minibert.core.config import BertConfig
from minibert.hub import save_hf
from minibert.hub.checkpoint import load_checkpoint
from minibert.model.params import initialise

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
CONFIG = BertConfig(len(VOCAB), 6, 2, 3, 5, max_position_embeddings=8)
POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 440473133\n"
)


@pytest.fixture
def folder(tmp_path):
    save_hf(tmp_path / "model", CONFIG, initialise(CONFIG, 1))
    Tokenizer(VOCAB).save_pretrained(tmp_path / "model", 8)
    return tmp_path / "model"


def require_pointer(path, read):
    path.write_text(POINTER)
    with pytest.raises(InputError) as error:
        read()
    told = str(error.value)
    assert f"{path} is a Git-LFS pointer in place of the file of 440,473,133 bytes" in told
    assert "git lfs pull" in told and "damaged" not in told and "check the file" not in told


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "config.json"])
def test_pointer_in_place_of_a_model_s_file_is_named(folder, name):
    if name != "config.json":
        (folder / "model.safetensors").unlink()
    require_pointer(folder / name, lambda: hub.load(folder))


def test_pointer_in_place_of_a_part_or_index_is_named(folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": dict.fromkeys(tensors, "model-00001-of-00001.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    require_pointer(folder / "model-00001-of-00001.safetensors", lambda: hub.load(folder))
    require_pointer(folder / "model.safetensors.index.json", lambda: hub.load(folder))


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_pointer_in_place_of_tensorflow_s_file_is_named(tmp_path, ending):
    google_folder.write(tmp_path, CONFIG, initialise(CONFIG, 1))
    require_pointer(tmp_path / f"bert_model.ckpt.{ending}", lambda: hub.load(tmp_path))


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json"])
def test_pointer_in_place_of_a_vocabulary_is_named(folder, name):
    if name == "tokenizer.json":
        (folder / "vocab.txt").unlink(missing_ok=True)
    require_pointer(folder / name, lambda: Tokenizer.from_pretrained(folder))


def test_pointer_in_place_of_a_text_or_checkpoint_is_named(tmp_path):
    require_pointer(tmp_path / "corpus.txt", lambda: list(byte_pieces(tmp_path / "corpus.txt")))
    require_pointer(tmp_path / "corpus.txt.gz", lambda: list(byte_pieces(tmp_path / "corpus.txt.gz")))
    path = tmp_path / "step-1.safetensors"
    require_pointer(path, lambda: load_checkpoint(path))


def test_command_says_how_to_fetch_what_a_pointer_stands_for(folder, capsys):
    (folder / "model.safetensors").write_text(POINTER)
    assert cli.main(["export", "--model", str(folder), "--out", str(folder.parent / "out")]) == 2
    assert "is a Git-LFS pointer" in capsys.readouterr().err


def change(folder, **fields):
    """Alter a configuration; None takes a field out."""
    path = folder / "config.json"
    both = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in both.items() if value is not None}))


@pytest.mark.parametrize(
    "name",
    [
        "RobertaModel",
        "RobertaForMaskedLM",
        "XLMRobertaForSequenceClassification",
        "CamembertForMaskedLM",
        "DistilBertForMaskedLM",
        "AlbertModel",
        "ElectraForPreTraining",
        "XLNetLMHeadModel",
        "TFRobertaModel",
        "BertGenerationEncoder",
        "MegatronBertModel",
    ],
)
def test_other_architecture_without_model_type_is_refused(folder, name):
    change(folder, model_type=None, architectures=[name])
    with pytest.raises(InputError, match=f"architectures=.'{name}'. without a model_type are not a BERT's"):
        hub.load(folder)


def test_a_bert_of_a_custom_class_is_refused_with_what_its_file_lacks(folder):
    change(folder, model_type=None, architectures=["MyModel"])
    with pytest.raises(InputError, match=r'; if it is one, add "model_type": "bert" to config\.json\.$'):
        hub.load(folder)
    change(folder, model_type="bert")
    assert hub.load(folder)[0].H == CONFIG.H


@pytest.mark.parametrize(
    "names", [None, [], ["BertModel"], ["TFBertForMaskedLM"], ["BertForTokenClassification"]]
)
def test_bert_without_model_type_is_read(folder, names):
    change(folder, model_type=None, architectures=names)
    assert hub.load(folder)[0].H == CONFIG.H


def test_the_head_of_a_custom_class_is_named_when_loading(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["linear.weight"] = np.ones((3, CONFIG.H), np.float32)
    save_file(tensors, folder / "model.safetensors")
    change(folder, architectures=["HF_ColBERT"])
    with pytest.warns(UserWarning, match=r"is a HF_ColBERT, whose head \(linear.weight\) is not supported"):
        model = Bert.from_pretrained(folder)
    assert model.encode("a b").vectors().shape == (1, CONFIG.H)
