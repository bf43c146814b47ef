"""Vectors of folders of sentence-transformers equal those of `SentenceTransformer.encode`."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.base.modules.normalize import Normalize
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm
from sentence_transformers.sentence_transformer.modules.pooling import Pooling

import minibert
from minibert import Bert, BertConfig, InputError, Tokenizer, cli
from minibert.finetuning.frozen.features import Extractor
from minibert.model.params import initialise

LETTERS = [chr(97 + number) for number in range(26)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ":", *LETTERS, *(one.upper() for one in LETTERS), "é"]
TEXTS = ["a b c", "e", "b é [MASK] d", "Z y X", " ".join(LETTERS)]
CLOSE = {"rtol": 0, "atol": 2e-6}
POOLS = ["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A BERT that keeps capitals, in Hugging Face's format."""
    folder = tmp_path_factory.mktemp("plain") / "bert"
    config = BertConfig.from_size("1-32-2", vocab_size=len(VOCAB), max_position_embeddings=40)
    tokenizer = Tokenizer(VOCAB, lower_case=False)
    Bert(config, initialise(config, seed=0), tokenizer=tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture
def folder_of(plain, tmp_path):
    """Save some modules on the BERT as sentence-transformers does."""

    def make(*modules, length=20, **settings):
        torch.manual_seed(0)
        whole = SentenceTransformer(modules=[SentenceTransformer(str(plain), device="cpu")[0], *modules])
        whole.max_seq_length = length
        whole.save_pretrained(str(tmp_path / "st"))
        encoder = tmp_path / "st" / "sentence_bert_config.json"
        given = {name: settings.pop(name) for name in ("do_lower_case",) if name in settings}
        change(encoder, max_seq_length=length, **given)
        change(tmp_path / "st" / "config_sentence_transformers.json", **settings)
        return tmp_path / "st"

    return make


def change(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def require_equal(folder, texts=TEXTS):
    """Both ways to vectors of texts give the library's own."""
    right = SentenceTransformer(str(folder), device="cpu").encode(list(texts))
    model = Bert.from_pretrained(folder)
    np.testing.assert_allclose(model.encode(list(texts)).vectors(), right, **CLOSE)
    extractor = Extractor(model)
    found = [vector for _, vector in extractor.stream(texts)]
    np.testing.assert_allclose(found, right, **CLOSE)
    assert extractor.width == right.shape[1]
    return right


@pytest.mark.filterwarnings("ignore:.*max_seq_length")
@pytest.mark.parametrize("pool", [*POOLS, ["cls", "mean"], ["mean_sqrt_len_tokens", "max", "cls"]])
def test_every_pool_gives_the_library_s_vectors(folder_of, pool):
    require_equal(folder_of(Pooling(32, pool)), [text.replace(" [MASK]", "") for text in TEXTS])


@pytest.mark.filterwarnings("ignore:.*max_seq_length")
@pytest.mark.parametrize(
    "layers",
    [
        [Normalize()],
        [Dense(32, 8)],
        [Dense(32, 48, bias=False, activation_function=torch.nn.Identity()), Normalize()],
        [Dense(32, 16, activation_function=torch.nn.ReLU()), Dense(16, 8, activation_function=None)],
        [Dense(32, 8, use_residual=True), LayerNorm(8)],
        [Dense(32, 32, use_residual=True, activation_function=torch.nn.Sigmoid()), Dropout(0.5)],
        [LayerNorm(32), Dense(32, 4, activation_function=torch.nn.SiLU())],
    ],
    ids=lambda layers: "-".join(type(layer).__name__ for layer in layers),
)
def test_further_modules_give_the_library_s_vectors(folder_of, layers):
    require_equal(folder_of(Pooling(32, "mean"), *layers), TEXTS[:2])


def test_pickled_dense_layer_is_read(folder_of):
    folder = folder_of(Pooling(32, "mean"), Dense(32, 8))
    weights = load_file(folder / "2_Dense" / "model.safetensors")
    torch.save(weights, folder / "2_Dense" / "pytorch_model.bin")
    (folder / "2_Dense" / "model.safetensors").unlink()
    require_equal(folder, TEXTS[:2])


def test_longer_texts_are_cut_at_max_seq_length(folder_of):
    folder = folder_of(Pooling(32, "mean"), length=6)
    with pytest.warns(UserWarning, match="1 text has more than 6 tokens"):
        require_equal(folder, ["a b c", "a b c d e f g h i"])


def test_length_is_the_tokenizer_s_where_no_module_says_it(folder_of):
    folder = folder_of(Pooling(32, "mean"))
    path = folder / "sentence_bert_config.json"
    fields = json.loads(path.read_text())
    del fields["max_seq_length"]
    path.write_text(json.dumps(fields))
    change(folder / "tokenizer_config.json", model_max_length=7)
    with pytest.warns(UserWarning, match="1 text has more than 7 tokens"):
        require_equal(folder, ["a", "a b c d e f g h i"])


def test_text_is_lower_cased_before_a_cased_tokenizer(folder_of):
    folder = folder_of(Pooling(32, "mean"), do_lower_case=True)
    right = require_equal(folder, ["A B É", "a b é"])
    np.testing.assert_allclose(right[0], right[1], **CLOSE)


@pytest.mark.parametrize("pool", ["cls", "mean", "max", "weightedmean", "lasttoken"])
@pytest.mark.parametrize("counts", [True, False])
def test_default_prompt_stands_before_texts(folder_of, pool, counts):
    prompts = {"prompts": {"query": "q u: ", "document": "d: "}, "default_prompt_name": "query"}
    folder = folder_of(Pooling(32, pool, include_prompt=counts), **prompts)
    require_equal(folder, ["a b c", "e"])


def test_old_layout_with_the_bert_in_a_folder_is_read(folder_of):
    folder = folder_of(Pooling(32, "cls"), Dense(32, 8))
    for name in ("0_BERT", "0_Transformer"):
        old = folder.parent / name
        (old / name).mkdir(parents=True)
        for path in folder.iterdir():
            if path.is_dir():
                shutil.copytree(path, old / path.name)
            else:
                inner = path.name not in ("modules.json", "config_sentence_transformers.json")
                shutil.copy(path, (old / name if inner else old) / path.name)
        modules = json.loads((old / "modules.json").read_text())
        modules[0]["path"] = name
        (old / "modules.json").write_text(json.dumps(modules))
        (old / "config.json").write_text('{"__version__": "0.2.5"}')
        require_equal(old, TEXTS[:2])
        exported = old / "out"
        assert cli.main(["export", "--model", str(old), "--out", str(exported)]) == 0
        require_equal(exported, TEXTS[:2])


@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_our_own_export_gives_the_library_s_vectors(plain, tmp_path, pool):
    words = ["export", "--model", plain, "--out", tmp_path / "st", "--sentence-transformers", pool]
    assert cli.main([str(word) for word in words]) == 0
    right = require_equal(tmp_path / "st", TEXTS[:2])
    out = tmp_path / "v.npy"
    words = ["features", "--model", tmp_path / "st", "--out", out, "--quiet", *TEXTS[:2]]
    assert cli.main([str(word) for word in words]) == 0
    np.testing.assert_allclose(np.load(out), right, **CLOSE)


def test_exported_and_saved_folders_keep_all_modules(folder_of, tmp_path):
    folder = folder_of(Pooling(32, "max"), Dense(32, 8), Normalize())
    right = require_equal(folder, TEXTS[:2])
    assert cli.main(["export", "--model", str(folder), "--out", str(tmp_path / "out")]) == 0
    np.testing.assert_allclose(require_equal(tmp_path / "out", TEXTS[:2]), right, **CLOSE)
    minibert.load(folder).save_pretrained(tmp_path / "saved")
    np.testing.assert_allclose(require_equal(tmp_path / "saved", TEXTS[:2]), right, **CLOSE)


def test_pool_or_layers_that_are_asked_for_replace_the_modules(folder_of):
    model = Bert.from_pretrained(folder_of(Pooling(32, "cls"), Dense(32, 8)))
    encoded = model.encode(TEXTS[:2])
    assert encoded.vectors("mean").shape == (2, 32)
    assert Extractor(model, pool="mean").width == Extractor(model, layers=0).width == 32
    bare = Bert.from_pretrained(model._source)
    bare.modules = None
    np.testing.assert_array_equal(bare.encode(TEXTS[:2]).vectors(), encoded.vectors("mean"))
    np.testing.assert_array_equal(model.encode(TEXTS[:2])[1].vectors(), encoded.vectors()[1:])
    with pytest.raises(InputError, match="max_seq_length|positions"):
        bare.encode("a " * 60)


@pytest.mark.parametrize(
    ("place", "fields", "told"),
    [
        ("1_Pooling", {"pooling_mode": "median"}, "its module Pooling asks for the pool 'median'"),
        ("2_Dense", {"activation_function": "mine.Swish"}, "Dense has the activation 'mine.Swish'"),
        ("2_Dense", {"module_input_name": "token_embeddings"}, "has module_input_name='token_embeddings'"),
    ],
)
def test_what_is_not_done_is_said_when_loading(folder_of, place, fields, told):
    folder = folder_of(Pooling(32, "mean"), Dense(32, 8))
    change(folder / place / "config.json", **fields)
    with pytest.warns(UserWarning, match=told) as warned:
        model = Bert.from_pretrained(folder)
    assert "not those of SentenceTransformer.encode" in str(warned[0].message)
    assert model.encode(["a"]).vectors().shape == (1, 32)


def test_unknown_module_is_said_when_loading(folder_of):
    folder = folder_of(Pooling(32, "mean"), Normalize())
    modules = json.loads((folder / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.models.CNN"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.warns(UserWarning, match="its module CNN is not known here"):
        Bert.from_pretrained(folder)
