"""Training for similarity against sentence-transformers, PyTorch and scikit-learn, live and in float64."""

import agreement
import numpy as np
import pytest
from small_tasks import small_options, write_model, write_table

from minibert.core.batch import Feature, Sequence
from minibert.core.gradcheck.complex_step import worst
from minibert.core.optim import AdamW, warmup_linear
from minibert.data.glue import TextExample
from minibert.finetuning.run import classify, finetune
from minibert.hub import to_hf
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.model.params import Head, initialise
from minibert.tasks import registry, similarity_losses
from minibert.tasks.metrics import spearman
from minibert.tasks.similarity import _ranked, _word_vectors

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")
sklearn_text = pytest.importorskip("sklearn.feature_extraction.text")
import hugging_face  # noqa: E402
from objectives import update_once  # noqa: E402
from sentence_transformers.sentence_transformer import evaluation, losses  # noqa: E402

HEADS = {"cosine": Head("cosine", 0), "contrastive": Head("contrastive", 0)}
THEIRS = {"cosine": losses.CosineSimilarityLoss, "contrastive": losses.MultipleNegativesRankingLoss}
CLOSE = 1e-9
UPDATES = 20
PAIRS = [("a warm film", "the warm story"), ("it was dull", "a cold journey"), ("a film", "very funny")]


def model(head, seed=1):
    """Random weights of ours, far from their initial values, biases and LayerNorms included."""
    config = agreement.config()
    params = initialise(config, seed, np.float64, head)
    params.flat += np.random.default_rng(seed).normal(0, 0.15, params.flat.shape)
    return config, params


def batch(head, seed=2, count=8):
    """Random pairs; scores are multiples of 1/8, as sentence-transformers rounds them to float32."""
    rng = np.random.default_rng(seed)
    features = []
    for number in range(count):
        both = [rng.integers(1, 99, size) for size in rng.integers(2, 20, 2)]  # 0 is [PAD] for Hugging Face
        label = rng.integers(9) / 8 if head.kind == "cosine" else (2 * number, 2 * number + 1)
        features.append(Feature(tuple(Sequence(ids, np.zeros(len(ids), int)) for ids in both), label))
    return TaskBatch.pack_features(features, head)


def their_model(config, params):
    """A `BertModel` with our weights, which does without its pooler."""
    found = transformers.BertModel._from_config(
        transformers.BertConfig(**config.to_dict()),
        attn_implementation="eager",
        dtype=torch.float64,
        add_pooling_layer=False,
    )
    found.load_state_dict({name: torch.tensor(value) for name, value in named(params).items()})
    return found.eval()


def named(params):
    """Our parameters, or gradients, by their names in a bare encoder."""
    return {name.removeprefix("bert."): value for name, value in to_hf(params).items()}


def their_loss(bert, one, kind):
    """sentence-transformers' loss of our batch on its own mean pooling of Hugging Face's hidden states."""
    inputs, _, _, _ = hugging_face.padded(one)
    pooling = sentence_transformers.sentence_transformer.modules.Pooling(bert.config.hidden_size)
    found = {"token_embeddings": bert(**inputs).last_hidden_state, "attention_mask": inputs["attention_mask"]}
    vectors = pooling(found)["sentence_embedding"]
    labels = torch.tensor(one.labels)
    return THEIRS[kind](model=None).compute_loss_from_embeddings([vectors[::2], vectors[1::2]], labels)


@pytest.mark.parametrize("kind", HEADS)
def test_loss_and_every_gradient_equal_sentence_transformers(kind):
    config, params = model(HEADS[kind])
    one, grads = batch(HEADS[kind]), params.zeros_like()
    result, saved = similarity_losses.loss(Ops(), config, params.head, params.tree, one)
    similarity_losses.loss_backward(Ops(), config, params.head, saved, params.tree, grads.tree)
    bert = their_model(config, params)
    expected = their_loss(bert, one, kind)
    expected.backward()
    assert agreement.relative_error(result.loss, expected.item()) < CLOSE
    gradients = {name: weight.grad.numpy() for name, weight in bert.named_parameters()}
    errors = agreement.gradient_errors(named(grads), gradients)
    assert worst(errors.values()) < CLOSE, errors


@pytest.mark.parametrize("kind", HEADS)
def test_losses_over_twenty_updates_equal_sentence_transformers_with_torch(kind):
    config, params = model(HEADS[kind])
    bert = their_model(config, params)
    optimizer = AdamW(params.flat, params.decayed, weight_decay=0.01, clip_norm=1.0, eps=1e-6)
    plain = [weight for weight in bert.parameters() if weight.ndim < 2]
    matrices = [weight for weight in bert.parameters() if weight.ndim > 1]
    theirs = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0}], eps=1e-6
    )
    for step in range(UPDATES):
        one, grads = batch(HEADS[kind], seed=step), params.zeros_like()
        result, saved = similarity_losses.loss(Ops(), config, params.head, params.tree, one)
        similarity_losses.loss_backward(Ops(), config, params.head, saved, params.tree, grads.tree)
        rate = warmup_linear(step, UPDATES, 2, 1e-4)
        update_once(optimizer, Ops(), params.flat, grads.flat, rate)
        theirs.zero_grad()
        expected = their_loss(bert, one, kind)
        expected.backward()
        norm = torch.nn.utils.get_total_norm([weight.grad for weight in bert.parameters()])
        for weight in bert.parameters():
            weight.grad /= max(1.0, norm.item())
        for group in theirs.param_groups:
            group["lr"] = rate
        theirs.step()
        assert agreement.relative_error(result.loss, expected.item()) < CLOSE, step
    state = {name: weight.detach().numpy() for name, weight in bert.named_parameters()}
    errors = {name: agreement.relative_error(value, state[name]) for name, value in named(params).items()}
    assert worst(errors.values()) < 1e-8, errors


def test_words_are_weighted_as_scikit_learn_does():
    examples = [TextExample(str(n), *pair, 1.0) for n, pair in enumerate(PAIRS)]
    texts = [text for pair in PAIRS for text in pair]
    theirs = sklearn_text.TfidfVectorizer().fit(texts)
    words = theirs.get_feature_names_out()
    for ours, side in zip(_word_vectors(examples), (0, 1), strict=True):
        expected = theirs.transform([pair[side] for pair in PAIRS]).toarray()
        found = [[vector.get(word, 0.0) for word in words] for vector in ours]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_ranks_equal_sentence_transformers_information_retrieval():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((12, 12))
    examples = [TextExample(str(n), f"q{n}", f"d{n}", 1.0) for n in range(12)]
    ranks = [one["rank"] for one in _ranked(examples, lambda number: scores[number].copy())]
    found = registry.create("similar-pairs").score(examples, [{"rank": rank} for rank in ranks])
    places = (-scores).argsort(1).argsort(1).diagonal() + 1
    assert found == {"accuracy": (places == 1).mean(), "mrr": pytest.approx((1 / places).mean())}


def test_the_run_folder_is_one_of_sentence_transformers_and_of_transformers(tmp_path):
    data, start = tmp_path / "data", write_model(tmp_path / "model")
    for split in ("train", "dev"):
        rows = [(*pair, score) for pair, score in zip(PAIRS, (1, 0.5, 0), strict=True)]
        write_table(data / f"{split}.tsv", ("text", "second", "label"), rows)
    options = small_options(start, data, "similarity", max_steps=2, max_length=16)
    finetune(options, tmp_path / "run", show=False)
    ours = [one["value"] for one in classify(tmp_path / "run", PAIRS)]
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "run"), device="cpu")
    assert theirs.max_seq_length == 16
    assert [type(part).__name__ for part in theirs] == ["Transformer", "Pooling"]
    vectors = [theirs.encode([pair[side] for pair in PAIRS]) for side in (0, 1)]
    cosines = theirs.similarity_pairwise(*vectors).numpy()
    np.testing.assert_allclose(ours, cosines, rtol=0, atol=1e-6)
    evaluator = evaluation.EmbeddingSimilarityEvaluator(
        *([pair[side] for pair in PAIRS] for side in (0, 1)), scores=[1, 0.5, 0]
    )
    scored = evaluator(theirs)
    [found] = [value for name, value in scored.items() if name.endswith("spearman_cosine")]
    assert spearman([1, 0.5, 0], ours) == pytest.approx(found, abs=1e-9)
    bert, loading = transformers.BertModel.from_pretrained(tmp_path / "run", output_loading_info=True)
    assert type(bert) is transformers.BertModel
    assert set(loading["missing_keys"]) == {"pooler.dense.weight", "pooler.dense.bias"}
    assert not loading["unexpected_keys"]
