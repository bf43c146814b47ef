"""`Bert`: equal to a recorded Hugging Face BERT in float64, and clear about what it can't take."""

import copy
import io
import pickle
import subprocess
import sys
import warnings
from collections import UserDict
from types import SimpleNamespace

import agreement
import numpy as np
import pytest
import small_tasks
from agreement import relative_error
from engines import EVERY
from marks import seldom
from paths import GOLDEN, ROOT
from safetensors.numpy import load_file, save_file

from minibert import load
from minibert.ask import inference
from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.core.batch import Batch, Feature, Sequence
from minibert.core.config import BertConfig
from minibert.core.gradcheck.complex_step import worst
from minibert.engines.runtime import HOST
from minibert.hub import to_hf
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.model.params import Head, Parameters, initialise
from minibert.tasks.batches import batch_outputs
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

N_STEPS = 50


@pytest.fixture(scope="module")
def recorded():
    """What transformers and torch computed, in float64."""
    with np.load(GOLDEN / "hf_tiny.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def batches(recorded):
    """The batches they computed it from."""
    found = []
    while (prefix := f"batch{len(found)}.") + "input_ids" in recorded:
        fields = {name: value for name, value in recorded.items() if name.startswith(prefix)}
        found.append(Batch(**{name.removeprefix(prefix): value for name, value in fields.items()}))
    return found


@pytest.fixture(scope="module")
def gradients(recorded):
    """What autograd gave for the first batch, by Hugging Face's names."""
    beginning = "gradient."
    return {name.removeprefix(beginning): one for name, one in recorded.items() if name.startswith(beginning)}


@pytest.fixture(scope="module")
def model():
    """The model they computed it with."""
    return Bert.from_pretrained(GOLDEN / "hf_tiny", dtype=np.float64)


def encoding(*ids, second=0):
    """Like a tokenizer's, the last `second` ids in the second segment."""
    return SimpleNamespace(ids=list(ids), token_type_ids=[0] * (len(ids) - second) + [1] * second)


def test_hidden_states_attention_maps_and_pooled_equal_the_recorded_ones(model, batches, recorded):
    encoded = model.encode(batches[0], attentions=True)
    longest = int(np.diff(batches[0].cu_seqlens).argmax())
    maps = np.stack([layer[longest] for layer in encoded.attentions])
    assert relative_error(maps, recorded["longest_attention"]) < agreement.STATES
    assert relative_error(encoded.pooled, recorded["pooled"]) < agreement.STATES
    for ours, theirs in zip(encoded.hidden_states, recorded["hidden_states"], strict=True):
        assert relative_error(ours, theirs) < agreement.STATES


def test_logits_of_both_heads_equal_the_recorded_ones(model, batches, recorded):
    mlm = model.masked_lm_logits(batches[0], batches[0].masked_rows)
    assert relative_error(mlm, recorded["mlm_logits"]) < agreement.STATES
    assert relative_error(model.next_sentence_logits(batches[0]), recorded["nsp_logits"]) < agreement.STATES


def test_loss_and_every_gradient_equal_the_recorded_ones(model, batches, recorded, gradients):
    loss, grads = agreement.loss_and_gradients(model.params, batches[0])
    assert relative_error(loss, recorded["loss"]) < agreement.STATES
    errors = agreement.gradient_errors(to_hf(grads), gradients)
    assert worst(errors.values()) < agreement.GRADIENTS, errors


def test_fifty_updates_have_the_recorded_losses(model, batches, recorded):
    repeated = [batches[step % len(batches)] for step in range(N_STEPS)]
    ours = agreement.losses(model.params, repeated, **agreement.SCHEDULE)
    assert len(recorded["losses"]) == N_STEPS
    assert np.abs(ours / recorded["losses"] - 1).max() < agreement.STEPS


@pytest.mark.parametrize(("size", "encoder"), [("base", 109_482_240), ("large", 335_141_888)])
def test_published_sizes_have_the_published_number_of_parameters(size, encoder):
    config = BertConfig.from_size(size)
    assert Parameters(config).count("embeddings", "layers", "pooler") == encoder


def test_n_parameters_counts_the_tied_embedding_once(model, gradients):
    assert model.n_parameters == sum(one.size for one in gradients.values())


def test_a_model_that_is_asked_drops_nothing_out():
    states = []
    for rate in (0.0, 0.5):
        config = agreement.config(hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
        model = Bert(config, initialise(config, seed=0))
        states.append(model.encode([encoding(2, 7, 9, 3)]).hidden_states)
    np.testing.assert_array_equal(*states)


def test_encode_takes_the_output_of_the_tokenizer():
    config = agreement.config()
    model, tokenizer = Bert(config, agreement.parameters(config)), Tokenizer([*SPECIAL_TOKENS, *"abc"])
    batch = tokenizer.encode_batch(["a b", "c"], ["b", "a c"])
    together, listed = model.encode(batch), model.encode([tokenizer("a b", "b"), tokenizer("c", "a c")])
    np.testing.assert_array_equal(together.cu_seqlens, [0, 6, 12])
    np.testing.assert_array_equal(together.pooled, listed.pooled)


@pytest.mark.parametrize("causal", [False, True])
def test_sequence_in_a_packed_batch_equals_the_sequence_alone(causal):
    config = agreement.config(is_decoder=causal)
    model = Bert(config, agreement.parameters(config))
    texts = [encoding(2, 7, 9, 3), encoding(2), encoding(2, 8, 3, 5, 6, 3, second=3), encoding(2, 9, 5, 3)]
    together = model.encode(texts, attentions=True)
    for number, text in enumerate(texts):
        part, alone = together[number], model.encode(text, attentions=True)
        np.testing.assert_array_equal(part.cu_seqlens, [0, len(text.ids)])
        assert relative_error(part.pooled, alone.pooled) < 1e-12
        for ours, theirs in zip(part.hidden_states, alone.hidden_states, strict=True):
            assert relative_error(ours, theirs) < 1e-12
        for ours, theirs in zip(part.attentions, alone.attentions, strict=True):
            assert relative_error(ours[0], theirs[0]) < 1e-12


def test_a_causal_model_attends_to_nothing_ahead():
    config = agreement.config(is_decoder=True)
    encoded = Bert(config, agreement.parameters(config)).encode(encoding(2, 7, 9, 4, 3), attentions=True)
    for [probabilities] in encoded.attentions:
        assert not np.triu(probabilities, 1).any()
        np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-14)


def test_attention_maps_are_computed_only_on_request(model):
    encoded = model.encode(encoding(2, 7, 3))
    assert encoded.attentions is None and encoded[0].attentions is None


def test_results_can_be_changed_without_affecting_the_model(model):
    text = encoding(2, 7, 3)
    before = model.encode(text, attentions=True)
    for array in (*before.hidden_states, before.pooled, before.cu_seqlens, before.attentions[0][0]):
        array[...] = 0
    after = model.encode(text)
    assert after.hidden_states[0].any() and after.pooled.any() and after.cu_seqlens.any()


def test_saved_model_encodes_alike(model, batches, tmp_path):
    model.save_pretrained(tmp_path)
    again = Bert.from_pretrained(tmp_path, engine="numpy", dtype=np.float64)
    np.testing.assert_array_equal(again.encode(batches[0]).pooled, model.encode(batches[0]).pooled)


@pytest.mark.parametrize("name", ["task.json", "tagger.json", "finetune.json"])
def test_save_refuses_to_overwrite_a_fine_tuned_model(model, tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match=f"holds {name} of a fine-tuned model, .*; choose another folder"):
        model.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def without(folder, *parts):
    """A saved model that lacks the tensors of some parts; returns the file of weights."""
    config = agreement.config()
    Bert(config, initialise(config, seed=0)).save_pretrained(folder)
    path = folder / "model.safetensors"
    save_file({name: one for name, one in load_file(path).items() if not name.startswith(parts)}, path)
    return path


def test_using_a_missing_head_gives_a_warning(tmp_path):
    path = without(tmp_path, "cls.")
    for folder in (tmp_path, tmp_path / "copy"):  # what is not there is not saved as if it were trained
        with warnings.catch_warnings(action="error"):
            model = Bert.from_pretrained(folder)
            assert model.encode(encoding(2, 7, 3)).pooled.shape == (1, 24)
        with pytest.warns(UserWarning, match=r"logits: .* without .*cls\.predictions\.bias; train these"):
            model.masked_lm_logits(encoding(2, 7, 3), [1])
        with pytest.warns(UserWarning, match=r"logits: .* without cls\.seq_relationship\.weight, [^,]*; "):
            model.next_sentence_logits(encoding(2, 7, 3))
        model.save_pretrained(tmp_path / "copy")
    assert load_file(tmp_path / "copy" / "model.safetensors").keys() == load_file(path).keys()


def test_pooled_is_none_without_a_stored_pooler(tmp_path):
    without(tmp_path, "bert.pooler")
    assert Bert.from_pretrained(tmp_path).encode(encoding(2, 7, 3)).pooled is None


def test_left_to_right_pooled_vector_is_what_a_classifier_reads():
    config = agreement.config(is_decoder=True)
    params = initialise(config, seed=0, head=Head("classify", 3))
    texts = [encoding(2, 7, 9, 3), encoding(2, 8, 3)]
    pooled = Bert(config, params).encode(texts).pooled
    features = [Feature((Sequence(np.array(t.ids), np.array(t.token_type_ids)),), 0) for t in texts]
    batch = TaskBatch.pack_features(features, params.head)
    scores = batch_outputs(Ops(), config, params.head, params.tree, batch)
    expected = pooled @ params["head.weight"] + params["head.bias"]
    assert relative_error(np.stack(scores), expected) < 1e-5
    assert np.abs(pooled[0] - pooled[1]).max() > 1e-3  # [CLS] alone would be the same for both


def test_encode_computes_many_texts_in_batches(monkeypatch):
    config = agreement.config()
    model = Bert(config, agreement.parameters(config))
    draw = np.random.default_rng(0)
    texts = [encoding(2, *draw.integers(5, 99, draw.integers(1, 30)).tolist(), 3) for _ in range(40)]
    together = model.encode(texts, attentions=True)
    seen, call = [], HOST.call

    def counted(ops, function, static, params, batch):
        seen.append(batch.T)
        return call(ops, function, static, params, batch)

    monkeypatch.setattr("minibert.ask.inference.BATCH_TOKENS", 64)
    monkeypatch.setattr(HOST, "call", counted)
    apart = model.encode(texts, attentions=True)
    assert max(seen) <= 64 and sum(seen) == together.cu_seqlens[-1]
    for ours, theirs in zip(apart.hidden_states, together.hidden_states, strict=True):
        assert relative_error(ours, theirs) < 1e-12
    assert relative_error(apart.pooled, together.pooled) < 1e-12
    assert relative_error(apart.attentions[1][39], together.attentions[1][39]) < 1e-12
    last = model.encode(texts, layers=[config.L])
    assert len(last.hidden_states) == 1
    assert relative_error(last.hidden_states[0], together.hidden_states[-1]) < 1e-12
    for layers in ([-1], -1, "-1", np.array([config.L])):
        (same,) = model.encode(texts, layers=layers).hidden_states
        assert (same == last.hidden_states[0]).all()
    assert len(model.encode(texts, layers="all").hidden_states) == config.L
    with pytest.raises(
        InputError, match=r"layers=\[9\] is not possible; give a number from -3 to 2 .*, a list"
    ):
        model.encode(texts, layers=[9])


def test_masked_lm_rows_count_through_all_sequences(model):
    texts = [encoding(2, 7, 3), encoding(2, 8, 9, 3)]
    assert model.masked_lm_logits(texts, [5]).shape == (1, 99)
    alone = model.masked_lm_logits(texts[1], [2])
    assert relative_error(model.masked_lm_logits(texts, [5]), alone) < 1e-12
    assert model.masked_lm_logits(texts, []).shape == (0, 99)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("some text", "has no vocab.txt; give a folder or file with a vocabulary"),
        (7, "inputs: expected texts or encodings, found int; give strings, pairs of strings, a Batch"),
        ([[2, 7, 3]], "expected texts or encodings, found list"),
        ([], r"^inputs=\[\] is empty; give at least one text or sequence"),
        (encoding(), "is empty"),
        (encoding(2, 99, 3), r"input_ids\[1\]=99 is outside 0\.\.98"),
        (encoding(2, -1, 3), "is outside"),
        (encoding(2, 2**32 + 3), "input_ids has 4294967299, which is not an integer of at most 32 bits"),
        (encoding(2, 7.5), "input_ids has 7.5, which is not an integer"),
        (encoding(2, None), "input_ids has None, which is not an integer"),
        (encoding(*range(1, 42)), "41 tokens is longer than the model's 40 positions"),
        (SimpleNamespace(ids=[2, 3], token_type_ids=[0]), "Sequence 0 has 2 input_ids and 1 token_type_ids"),
        (SimpleNamespace(ids=[2, 3], token_type_ids=[0, 2]), r"token_type_ids\[1\]=2 is outside"),
        (Batch.pack([Sequence([2, 99], [0, 0], [], [])]), r"input_ids\[1\]=99"),
    ],
)
def test_unsuitable_inputs_are_refused_with_a_sentence(inputs, message, model):
    for use in (model.encode, model.next_sentence_logits, lambda given: model.masked_lm_logits(given, [0])):
        with pytest.raises(InputError, match=message):
            use(inputs)


@pytest.mark.parametrize("rows", [[3], [-1], [0, 10**6], [0.5]])
def test_rows_outside_the_batch_are_refused(rows, model):
    with pytest.raises(InputError, match="rows"):
        model.masked_lm_logits(encoding(2, 7, 3), rows)


@pytest.mark.parametrize("layers", [[], [-4], [1, 3], [1, 1], "", "1,x", "--1"])
def test_nonexistent_hidden_states_are_refused(layers, model):
    with pytest.raises(InputError, match=r"layers=.* is not possible; give a number from -3 to 2"):
        model.hidden_states(encoding(2, 7, 3), layers)
    with pytest.raises(InputError, match=r"layers has 1\.5, which is not an integer"):
        model.hidden_states(encoding(2, 7, 3), [1.5])


def test_hidden_states_takes_the_inputs_of_encode(model):
    (found,) = model.hidden_states(encoding(2, 7, 3), [1])
    np.testing.assert_array_equal(found, model.encode(encoding(2, 7, 3)).hidden_states[1])
    with pytest.raises(InputError, match=r"input_ids\[1\]=-1 is outside"):
        model.hidden_states(encoding(2, -1, 3), [1])


def test_deep_copy_has_its_own_parameters(model):
    before = model.encode(encoding(2, 7, 3)).pooled
    other = copy.deepcopy(model)
    other.params["pooler.weight"][...] = 0
    other.params["embeddings.beta"][...] = 5
    changed = other.encode(encoding(2, 7, 3))
    np.testing.assert_allclose(changed.pooled, [np.tanh(other.params["pooler.bias"])])
    assert changed.hidden_states[0].mean() > 4
    np.testing.assert_array_equal(model.encode(encoding(2, 7, 3)).pooled, before)


@pytest.mark.parametrize("name", seldom(EVERY, "numpy", "cpp"))
def test_a_pickled_model_computes_the_same_vectors_in_another_process(name):
    model = Bert.from_pretrained(GOLDEN / "hf_tiny", name, threads=2)
    batch = Batch.pack([Sequence([2, 7, 3], [0, 0, 0], [], []), Sequence([2, 9, 8, 3], [0, 0, 0, 0], [], [])])
    here = model.encode(batch)
    script = """
import pickle, sys
import numpy as np
model, batch = pickle.load(sys.stdin.buffer)
found = model.encode(batch)
np.savez(sys.stdout.buffer, *found.hidden_states, pooled=found.pooled, name=model.ops.name)
"""
    sent = pickle.dumps((model, batch))
    found = np.load(io.BytesIO(subprocess.check_output([sys.executable, "-c", script], input=sent)))
    assert str(found["name"]) == name
    np.testing.assert_array_equal(found["pooled"], here.pooled)
    for number, state in enumerate(here.hidden_states):
        np.testing.assert_array_equal(found[f"arr_{number}"], state)


@pytest.mark.parametrize("name", EVERY)
def test_unpickled_models_share_an_engine_of_the_same_kind(name):
    model = Bert.from_pretrained(GOLDEN / "hf_tiny", name, threads=3)
    both = pickle.loads(pickle.dumps([model, Bert(model.config, model.params, model.ops)]))
    assert both[0].ops is both[1].ops is not model.ops
    assert type(both[0].ops) is type(model.ops)
    assert getattr(both[0].ops, "_details", "") == getattr(model.ops, "_details", "")


def test_a_pickle_of_an_older_version_computes(model):
    state = Bert(model.config, model.params, model.ops).__getstate__()
    del state["_placed"]
    older = Bert.__new__(Bert)
    vars(older).update(pickle.loads(pickle.dumps(state)))
    again, expected = (one.encode(encoding(2, 7, 3)).hidden_states[-1] for one in (older, model))
    np.testing.assert_array_equal(again, expected)


def test_replaced_parameters_take_effect(model):
    changed = Bert(model.config, model.params, model.ops)
    states = changed.encode(encoding(2, 7, 3)).hidden_states
    changed.params = model.params.like(model.params.flat * 2)
    again = changed.encode(encoding(2, 7, 3)).hidden_states
    assert relative_error(again[0], 2 * states[0]) < 1e-9  # LayerNorm's gamma and beta are doubled


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("texts", [1, 40])
def test_prepacked_matrices_give_the_same_bits(dtype, texts):
    """And are those that are read: where they lay before there is something else by then."""
    pytest.importorskip("minibert.engines.cpp._kernels", reason="the kernels in C++ are not built")
    model = Bert.from_pretrained(GOLDEN / "hf_tiny", "cpp", dtype=dtype, threads=2)
    batch = Batch.pack([Sequence([2, 7 + i % 5, 9, 3], [0, 0, 1, 1]) for i in range(texts)])
    rows = [1, 4 * texts - 1]
    states, pooled = (before := model.encode(batch)).hidden_states, before.pooled
    logits, own = model.masked_lm_logits(batch, rows), model.params.flat
    assert model.optimize_for_inference() is model
    for name, (begin, entry) in model.params._places.items():
        if len(entry.shape) == 2 and not name.startswith("embeddings."):
            own[begin : begin + entry.size] = 0
    after = model.encode(batch)
    for one, other in zip(states, after.hidden_states, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(pooled, after.pooled)
    np.testing.assert_array_equal(logits, model.masked_lm_logits(batch, rows))


@pytest.mark.parametrize("name", seldom(EVERY, "numpy", "cpp"))
def test_only_an_optimised_model_has_read_only_parameters(name):
    model = Bert.from_pretrained(GOLDEN / "hf_tiny", name)
    before = model.encode(encoding(2, 7, 3)).pooled
    after = model.optimize_for_inference().encode(encoding(2, 7, 3)).pooled
    np.testing.assert_allclose(after, before, rtol=1e-4)  # Numba leaves read-only arrays to NumPy
    layer = model.params.tree["layers"][0]["attention"]
    for weight in (model.params.flat, model.params["pooler.weight"], layer["qkv_weight"]):
        with pytest.raises(ValueError, match="read-only"):
            weight[...] = 0
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other.params["pooler.weight"][...] = 0
        expected = [np.tanh(other.params["pooler.bias"])]
        np.testing.assert_allclose(other.encode(encoding(2, 7, 3)).pooled, expected, rtol=1e-5)


def test_encoded_is_a_sequence_of_sequences(model):
    encoded = model.encode([encoding(2, 3), encoding(2, 7, 3)])
    assert len(encoded) == 2 and [len(one.hidden_states[-1]) for one in encoded] == [2, 3]
    assert (encoded[-1].hidden_states[-1] == encoded.hidden_states[-1][2:]).all()
    for number in (2, -3):
        with pytest.raises(IndexError, match=f"There is no sequence {number}, there are 2"):
            encoded[number]


def test_parameters_of_another_configuration_are_refused():
    config = agreement.config()
    with pytest.raises(InputError, match="another configuration"):
        Bert(agreement.config(layer_norm_eps=1e-5), initialise(config, seed=0))


@pytest.mark.parametrize("dtype", [np.int32, np.float16])
def test_unsupported_dtype_is_refused(dtype):
    with pytest.raises(InputError, match=f"dtype='{np.dtype(dtype)}' is not one to compute in"):
        Bert.from_pretrained("nowhere", dtype=dtype)


@pytest.mark.parametrize("dtype", [None, 32, "float23"])
def test_invalid_dtype_is_refused_and_valid_ones_are_listed(dtype):
    for read in (load, Bert.from_pretrained):
        with pytest.raises(InputError, match=f"dtype={dtype!r} is not one to compute in; use float32, bfl"):
            read(GOLDEN / "hf_tiny", dtype=dtype)


def test_unknown_engine_is_refused_before_anything_is_read():
    with pytest.raises(InputError, match="engine='abacus'"):
        Bert.from_pretrained("nowhere", engine="abacus")


def test_import_loads_nothing_heavy():
    script = (
        "import sys, minibert.ask.inference as _\n"
        "print({'jax', 'numba', 'torch', 'matplotlib'} & {*sys.modules})"
    )
    root = ROOT
    assert subprocess.check_output([sys.executable, "-c", script], cwd=root, text=True).strip() == "set()"


@pytest.mark.parametrize(
    ("head", "pools"),
    [(Head("classify", 3), True), (Head("tag", 5), False), (Head("classify", 3, lstm=True), False)],
)
def test_a_fine_tuned_model_encodes_and_has_no_scores_of_pre_training(head, pools):
    config = agreement.config()
    pretrained = initialise(config, seed=0)
    before = Bert(config, pretrained).encode(encoding(2, 7, 3))
    model = Bert(config, pretrained.with_head(head, seed=0)[0])
    found = model.encode(encoding(2, 7, 3))
    assert np.array_equal(found.hidden_states[-1], before.hidden_states[-1])
    assert np.array_equal(found.pooled, before.pooled) if pools else found.pooled is None
    assert (found[0].pooled is not None) == pools
    asked = encoding(2, 3)
    for call in (lambda: model.masked_lm_logits(asked, [0]), lambda: model.next_sentence_logits(asked)):
        with pytest.raises(
            InputError, match=f"was fine-tuned, it has a head of kind .{head.kind}.* in place"
        ):
            call()


def test_fill_mask_and_encode_read_texts_with_the_vocabulary_of_the_folder(tmp_path):
    folder = small_tasks.write_model(tmp_path / "m")
    model = Bert.from_pretrained(folder, "numpy")
    text = "the film is [MASK] and [MASK]"
    guesses = model.fill_mask(text, top=3)
    assert [len(one) for one in guesses] == [3, 3] and guesses[0][0].probability >= guesses[0][1].probability
    assert model.fill_mask([text, "a [MASK]"], top=3)[0] == guesses
    (asked,) = model.fill_mask("a [MASK]", targets=["film", "dull"])
    assert {guess.token for guess in asked} == {"film", "dull"}
    with pytest.raises(InputError, match="has no .MASK.; write .MASK. where a word is to be guessed"):
        model.fill_mask("no gap")
    assert repr(model.encode(["the film", "a"])) == "Encoded(3 × (7, 24), pooled (2, 24))"
    assert repr(model.encode([("the film", "a story")])) == "Encoded(3 × (7, 24), pooled (1, 24))"
    assert repr(model) == "Bert(2 layers of 24, 0.0M parameters, numpy)"
    assert model.tokenizer.vocab[0] == "[PAD]"
    for same in (tuple(np.array(["the film", "a story"])), iter([("the film", "a story")])):
        assert np.array_equal(model.encode(same).pooled, model.encode([("the film", "a story")]).pooled)
    assert model.fill_mask(iter([text]), top=3, targets=iter(["film"]))[0][0][0].token == "film"
    with pytest.raises(InputError, match="targets='film' is one string; give a list of words"):
        model.fill_mask(text, targets="film")
    with pytest.raises(InputError, match="text=None is not a string"):
        model.fill_mask(None)
    with pytest.raises(InputError, match=r"targets=\[3\]: 3 is not a string; give words"):
        model.fill_mask(text, targets=[3])
    with pytest.raises(InputError, match="inputs is a set, which has no order; give a list"):
        model.encode({"the film", "a"})
    for table in ({"text": ["the film"]}, SimpleNamespace(columns=["text"])):
        with pytest.raises(InputError, match="inputs is a table; give one of its columns, such as table"):
            model.encode(table)
    advice = r"shorten it, or give model.tokenizer\(texts, max_length=24\) in place of texts"
    with pytest.raises(InputError, match=f"Text 1, .*, has 82 tokens .* the model 24 positions; {advice}"):
        model.encode(["a", "a " * 80])
    model.save_pretrained(tmp_path / "copy")
    again = Bert.from_pretrained(tmp_path / "copy", "numpy")
    assert np.array_equal(again.encode("the film").pooled, model.encode("the film").pooled)
    with pytest.raises(InputError, match="was made without a vocabulary; give it one, Bert"):
        Bert(model.config, model.params, model.ops).encode("the film")


def test_large_batch_of_windows_is_divided_between_examples(monkeypatch):
    monkeypatch.setattr(inference, "BATCH_TOKENS", 6)
    one = [Sequence(np.arange(2, n + 2, dtype=np.int32), np.zeros(n, np.int32)) for n in (3, 4, 2, 5)]
    features = [Feature((one[0],)), Feature((one[1], one[2])), Feature((one[3],))]
    batch = TaskBatch.pack_features(features, Head("classify", 2, pool="mean"))
    parts = list(inference._parts(batch))
    assert [(rows.start, rows.stop) for _, rows in parts] == [(0, 3), (3, 9), (9, 14)]
    for part, rows in parts:
        np.testing.assert_array_equal(part.input_ids, batch.input_ids[rows])


def vectors(model, inputs):
    return model.encode(inputs).vectors()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model with a vocabulary, and what its tokenizer makes of two texts of different lengths."""
    folder = small_tasks.write_model(tmp_path_factory.mktemp("small") / "m")
    model = Bert.from_pretrained(folder, "numpy")
    texts = [("the film", "a story"), "a dull story"]
    rows = [model.tokenizer(*(one if isinstance(one, tuple) else (one,))) for one in texts]
    return model, texts, [row.ids.tolist() for row in rows], [row.token_type_ids.tolist() for row in rows]


def padded(rows, before=False):
    width = max(map(len, rows))
    return [[0] * (width - len(row)) + row if before else row + [0] * (width - len(row)) for row in rows]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("make", [list, np.array, lambda rows: list(map(np.array, rows))])
@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_padded_mapping_of_ids_encodes_as_its_texts(small, kind, make, before):
    model, texts, ids, types = small
    mask = padded([[1] * len(row) for row in ids], before)
    given = {
        "input_ids": padded(ids, before),
        "attention_mask": mask,
        "token_type_ids": padded(types, before),
    }
    inputs = kind({name: make(rows) for name, rows in given.items()})
    expected = [model.encode([text]) for text in texts]
    found = model.encode(inputs)
    assert len(found) == 2
    for one, alone in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.hidden_states[-1], alone.hidden_states[-1], atol=1e-6)
    np.testing.assert_allclose(
        found.vectors(), np.concatenate([one.vectors() for one in expected]), atol=1e-6
    )


def test_unpadded_ids_need_no_mask(small):
    model, texts, ids, types = small
    expected = vectors(model, texts[1])
    for inputs in (
        {"input_ids": ids[1]},
        {"input_ids": [ids[1]], "labels": [1]},
        {"input_ids": np.array(ids[1]), "attention_mask": None},
        Columns(input_ids=[ids[1]]),
        [{"input_ids": ids[1], "attention_mask": [1] * len(ids[1])}],
    ):
        assert np.array_equal(vectors(model, inputs), expected)
    assert np.array_equal(
        vectors(model, {"input_ids": ids, "token_type_ids": types}),
        vectors(model, [{"input_ids": i, "token_type_ids": t} for i, t in zip(ids, types, strict=True)]),
    )


class Columns:
    """A table as `datasets` has it."""

    def __init__(self, **columns):
        self.column_names, self._columns = list(columns), columns

    def __getitem__(self, name):
        return self._columns[name]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"input_ids": [[2, 7], [2]], "attention_mask": [[1, 1]]},
            "attention_mask has 1 rows and input_ids 2",
        ),
        ({"input_ids": [[2, 7]], "attention_mask": [[1]]}, "attention_mask of sequence 0 has 1 numbers and"),
        (
            {"input_ids": [[2, 7]], "token_type_ids": [[0, 0, 0]]},
            "token_type_ids of sequence 0 has 3 numbers",
        ),
        ({"input_ids": [[2, 7]], "attention_mask": [[1, 2]]}, "values other than 0 and 1"),
        ({"input_ids": [[2, 7, 3]], "attention_mask": [[1, 0, 1]]}, "leaves out tokens between others"),
        ({"input_ids": [[2, 7]], "attention_mask": [[0, 0]]}, "leaves out every token"),
        ({"input_ids": [[[2, 7]]]}, "give a row of numbers for each sequence"),
        ({"input_ids": np.zeros((1, 2, 3), int)}, "give a row of numbers for each sequence"),
        ({"input_ids": 3}, "give a row of numbers for each sequence"),
        ({"input_ids": [["a"]]}, "input_ids has 'a', which is not an integer"),
        ({"input_ids": []}, "is empty; give at least one text or sequence"),
        ({"input_ids": [[2, 7]], "position_ids": [[0, 1]]}, "position_ids is not supported; leave it out"),
        ({"input_ids": [[2, 99]]}, r"input_ids\[1\]=99 is outside"),
    ],
)
def test_unsuitable_mapping_of_ids_is_refused(inputs, message, model):
    with pytest.raises(InputError, match=message):
        model.encode(inputs)


def test_padding_without_a_mask_gives_a_warning(small):
    model, _, ids, _ = small
    with pytest.warns(
        UserWarning, match=r"sequence 1 ends in id 0, which is \[PAD\], and there is no attention"
    ):
        found = model.encode({"input_ids": padded(ids)})
    assert np.diff(found.cu_seqlens).tolist() == [len(ids[0])] * 2


def test_making_an_array_of_encoded_is_refused(model):
    encoded = model.encode([encoding(2, 3), encoding(2, 7, 3)])
    for make in (np.array, np.asarray, lambda one: np.stack(list(one)), np.mean):
        with pytest.raises(InputError, match=r"choose one: vectors\(\) has one vector for each sequence"):
            make(encoded)
