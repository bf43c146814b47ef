"""Texts that are read one by one: what is learnt from pairs, how they are scored, what is refused."""

import csv
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from small_tasks import GOOD, reviews, small_config, small_options, write_model, write_table

from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.core.batch import Feature, Sequence
from minibert.core.gradcheck.complex_step import complex_step
from minibert.data.glue import TextExample
from minibert.finetuning.models import Finetuned
from minibert.finetuning.preparation import prepare
from minibert.finetuning.run import classify, evaluate, finetune, predict
from minibert.finetuning.running import Run
from minibert.finetuning.whole_model import WholeRun
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.model.params import Head, initialise
from minibert.reports.results import measured_text
from minibert.tasks import registry, similarity_losses
from minibert.tasks.similarity import _ranked, _word_vectors
from minibert.tokenizer import Tokenizer

HEADER = ("text", "second", "label")


def pairs(count, seed):
    """(first, second, 1 where both are good or both bad, else 0)."""
    both = zip(reviews(count, seed), reviews(count, seed + 50), strict=True)
    return [(one, other, float(label == its)) for (one, label), (other, its) in both]


def write_pairs(folder, scored=True, train=240, dev=60):
    """Tables of one's own: pairs with scores, or pairs that belong together, as they say nearly the same."""
    for split, count, seed in (("train", train, 1), ("dev", dev, 2)):
        rows = pairs(count, seed)
        if not scored:
            rows = [(one, f"the {one} film") for one, _, _ in rows]
        write_table(folder / f"{split}.tsv", HEADER[: len(rows[0])], rows)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="module")
def scored(model, tmp_path_factory):
    """A finished run that has learnt scores."""
    folder = tmp_path_factory.mktemp("scored")
    data = write_pairs(folder / "data")
    finetune(small_options(model, data, "similarity", epochs=12), folder / "run", show=False)
    return folder / "run"


@pytest.fixture(scope="module")
def together(model, tmp_path_factory):
    """A finished run that has learnt what belongs together."""
    folder = tmp_path_factory.mktemp("together")
    options = small_options(model, write_pairs(folder / "data", scored=False), "similar-pairs", epochs=2)
    finetune(options, folder / "run", show=False)
    return folder / "run"


# the losses


def batch_of(labels, kind):
    """Pairs of random sequences with these labels."""
    rng = np.random.default_rng(0)
    draw = [rng.integers(22, size=n) for n in rng.integers(2, 9, 2 * len(labels))]
    both = [Sequence(ids, np.zeros(len(ids), int)) for ids in draw]
    features = [Feature(tuple(both[2 * n : 2 * n + 2]), label) for n, label in enumerate(labels)]
    return TaskBatch.pack_features(features, Head(kind, 0))


def small(kind):
    """A configuration and parameters far from their initial values."""
    config = small_config()
    params = initialise(config, 0, np.float64, Head(kind, 0))
    params.flat += np.random.default_rng(0).normal(0, 0.1, params.flat.shape)
    return config, params


def test_the_vector_of_a_text_is_the_mean_of_its_tokens_at_length_one():
    config, params = small("cosine")
    batch = batch_of([0.1, 0.9, 0.5], "cosine")
    found = similarity_losses.scores_of(Ops(), config, params.head, params.tree, batch)
    states = Bert(config, params, Ops()).encode(batch).hidden_states[-1]
    for number, vector in enumerate(found):
        mean = states[batch.cu_seqlens[number] : batch.cu_seqlens[number + 1]].mean(0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), rtol=0, atol=1e-14)


def test_the_loss_of_scores_is_the_squared_error_of_cosines():
    config, params = small("cosine")
    batch = batch_of([0.1, 0.9, -0.5], "cosine")
    y = similarity_losses.scores_of(Ops(), config, params.head, params.tree, batch)
    result, _ = similarity_losses.loss(Ops(), config, params.head, params.tree, batch)
    cosines = [one @ other for one, other in zip(y[::2], y[1::2], strict=True)]
    expected = np.mean([(c - s) ** 2 for c, s in zip(cosines, (0.1, 0.9, -0.5), strict=True)])
    assert result.loss == pytest.approx(expected, abs=1e-14)


def test_texts_that_are_the_same_are_no_wrong_answers():
    config, params = small("contrastive")
    # The first texts of pairs 0 and 1 are the same, the second ones of 0 and 3.
    batch = batch_of([(0, 1), (0, 2), (3, 4), (5, 1)], "contrastive")
    y = similarity_losses.scores_of(Ops(), config, params.head, params.tree, batch)
    result, _ = similarity_losses.loss(Ops(), config, params.head, params.tree, batch)
    compared = [[0, 2], [1, 2, 3], [0, 1, 2, 3], [1, 2, 3]]
    for number, others in enumerate(compared):
        scores = 20 * y[1::2] @ y[2 * number]
        expected = np.log(np.exp(scores[others]).sum()) - scores[number]
        assert result.nll[number] == pytest.approx(expected, abs=1e-12)
    assert result.loss == pytest.approx(result.nll.mean(), abs=1e-14)


def test_the_gradient_leaves_out_texts_that_are_the_same():
    config, params = small("contrastive")
    batch = batch_of([(0, 1), (0, 2), (3, 4), (5, 1)], "contrastive")
    v = np.random.default_rng(1).standard_normal(params.flat.shape)

    def along(t):
        moved = params.like(params.flat + t * v)
        return similarity_losses.loss(Ops(), config, params.head, moved.tree, batch)[0].loss

    _, saved = similarity_losses.loss(Ops(), config, params.head, params.tree, batch)
    grads = params.zeros_like()
    similarity_losses.loss_backward(Ops(), config, params.head, saved, params.tree, grads.tree)
    assert grads.flat @ v == pytest.approx(float(complex_step(along, 0.0, 1.0)), rel=1e-12)


def test_features_are_two_sequences_and_equal_texts_have_equal_numbers(model):
    task, tokenizer = registry.create("similar-pairs"), Tokenizer.from_pretrained(model)
    examples = [TextExample(str(n), *texts, 1.0) for n, texts in enumerate([("a", "the film"), ("it", "a")])]
    one, other = task.features(examples, tokenizer, (), 8, True)
    assert [len(sequence.input_ids) for sequence in one.sequences] == [3, 4]
    assert one.sequences[1].input_ids[0] == tokenizer.vocab.index("[CLS]")
    assert not one.sequences[1].token_type_ids.any()
    assert (one.label, other.label) == ((0, 1), (2, 0))


# how they are scored


def test_a_rank_counts_each_text_once_and_equal_cosines_as_half():
    texts = [("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")]
    examples = [TextExample(str(n), *pair, 1.0) for n, pair in enumerate(texts)]
    scores = {"a": [0.5, 0.9, 0.7], "b": [0.2, 0.2, 0.3], "c": [0.1, 0.2, 0.9]}  # with x, y and z
    found = list(_ranked(examples, lambda number: np.array(scores[texts[number][0]])))
    # Of "a" the other right text is left out; to "b" y is as close as x.
    assert found[0] == {"rank": 2, "closest": "z"}
    assert found[1] == {"rank": 1, "closest": "y"}
    assert found[2] == {"rank": 2.5, "closest": "z"}
    assert found[3] == {"rank": 1, "closest": "z"}
    task = registry.create("similar-pairs")
    assert task.score(examples, found) == {"accuracy": 0.5, "mrr": pytest.approx((0.5 + 1 + 0.4 + 1) / 4)}
    assert task.statistic(examples, found)(np.array([1, 1, 2])) == pytest.approx(2 / 3)
    assert [one.example for one in task.mistakes(examples, found)] == [2, 0]


def test_a_tie_is_a_mistake_that_names_the_rival():
    examples = [TextExample("0", "a", "x", 1.0), TextExample("1", "b", "y", 1.0)]
    cosines = [[0.7, 0.7], [0.2, 0.5]]  # with x and y
    predictions = list(_ranked(examples, lambda number: np.array(cosines[number])))
    assert predictions == [{"rank": 1.5, "closest": "y"}, {"rank": 1, "closest": "y"}]
    (mistake,) = registry.create("similar-pairs").mistakes(examples, predictions)
    assert (mistake.text, mistake.expected, mistake.found, mistake.severity) == ("a", "x", "y", 1.5)


def test_words_that_two_texts_share_are_what_a_model_is_compared_with():
    rows = [("red fox", "red fox", 1.0), ("red fox", "blue fox", 0.5), ("red fox", "old hen", 0.0)]
    examples = [TextExample(str(n), *row) for n, row in enumerate(rows)]
    [(name, scores)] = registry.create("similarity").baselines(examples).items()
    assert name == "TF-IDF of words" and scores["spearman"] == pytest.approx(1)
    apart = [TextExample("0", "red fox", "old fox", 1.0), TextExample("1", "hen", "fox", 1.0)]
    [scores] = registry.create("similar-pairs").baselines(apart).values()
    # "hen" shares no word with either second text, and "fox" alone is closer to "red fox" than "old fox".
    assert scores == {"accuracy": 0.0, "mrr": pytest.approx((1 / 2 + 1 / 1.5) / 2)}


def test_rarer_words_weigh_more_and_single_letters_nothing():
    examples = [TextExample("0", "red fox, red", "A fox", 1.0), TextExample("1", "old Hen", "", 1.0)]
    (both, hens), (fox, nothing) = _word_vectors(examples)
    red, fox_weight = 2 * (1 + math.log(5 / 2)), 1 + math.log(5 / 3)  # four texts: in one of them, in two
    length = math.hypot(red, fox_weight)
    assert both == pytest.approx({"red": red / length, "fox": fox_weight / length})
    assert fox == pytest.approx({"fox": 1.0}) and nothing == {}
    assert hens == pytest.approx({"old": math.sqrt(0.5), "hen": math.sqrt(0.5)})


def test_scores_of_sts_b_become_cosines(tmp_path):
    header = "index genre filename year old_index source1 source2 sentence1 sentence2 score".split()
    rows = [[n, *"gfyoss", "a film", "the film", score] for n, score in enumerate(("0.0", "2.5", "5.0"))]
    write_table(tmp_path / "dev.tsv", header, rows)
    task = registry.create("stsb-similarity")
    examples = task.read(tmp_path, "dev")
    assert [example.label for example in examples] == [0, 0.5, 1]
    assert task.head(()) == Head("cosine", 0)


# a run


@pytest.mark.thorough
def test_a_model_learns_scores_and_answers_with_a_cosine(scored):
    report = json.loads((scored / "report.json").read_text())
    assert report["scores"]["spearman"] > 0.6
    assert report["baselines"].keys() == {"TF-IDF of words", "before training"}
    assert report["scores"]["spearman"] > 0.3 + max(one["spearman"] for one in report["baselines"].values())
    assert "before training: spearman" in (scored / "report.html").read_text()
    good = f"it was {GOOD[0]}"
    [same, other] = classify(scored, [(good, f"very {GOOD[1]}"), (good, "dull")])
    assert same.keys() == {"value"} and 1 >= same["value"] > other["value"] >= -1
    measured = evaluate(scored)
    assert measured["scores"] == pytest.approx(report["scores"], abs=1e-6)
    assert "  TF-IDF of words: spearman" in measured_text(measured)


def test_a_model_learns_what_belongs_together(together):
    report = json.loads((together / "report.json").read_text())
    assert report["scores"].keys() == {"accuracy", "mrr"}
    assert report["scores"]["mrr"] > report["baselines"]["before training"]["mrr"]
    predictions = json.loads((together / "dev_predictions.json").read_text())
    assert predictions[0].keys() == {"value", "rank", "closest"}
    assert classify(together, [("a film", "the film")])[0].keys() == {"value"}
    assert evaluate(together)["scores"] == report["scores"]


def test_a_model_of_pairs_is_asked_for_scores_too(together, tmp_path):
    data = write_pairs(tmp_path / "data")
    found = evaluate(together, data, task="similarity")
    assert found["scores"].keys() == {"spearman", "pearson"}


@pytest.mark.thorough
def test_a_run_that_was_cut_off_ends_with_the_same_bytes(model, tmp_path, monkeypatch):
    data = write_pairs(tmp_path / "data", scored=False)
    options = small_options(model, data, "similar-pairs", epochs=1, checkpoint_steps=4)
    finetune(options, tmp_path / "whole", show=False)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "evaluate", lambda self, state: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finetune(options, tmp_path / "cut", show=False)
    report = finetune(options, tmp_path / "cut", resume=True, show=False)
    one, other = (tmp_path / name / "model.safetensors" for name in ("whole", "cut"))
    assert one.read_bytes() == other.read_bytes()
    before = json.loads((tmp_path / "whole" / "report.json").read_text())["baselines"]
    assert report["baselines"] == before


def test_predictions_are_written_beside_their_texts(scored, tmp_path):
    report = predict(scored, None, "dev", tmp_path / "out")
    table, lines = report["files"]
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    first = json.loads(open(lines).readline())
    assert rows[0]["text"] == first["text"] and rows[0]["second"] == first["second"]
    assert float(rows[0]["prediction"]) == first["value"]


def test_the_folder_is_an_encoder_with_the_files_of_sentence_transformers(scored, tmp_path):
    modules = json.loads((scored / "modules.json").read_text())
    assert [one["path"] for one in modules] == ["", "1_Pooling"]
    pooling = json.loads((scored / "1_Pooling" / "config.json").read_text())
    assert pooling["word_embedding_dimension"] == 24 and pooling["pooling_mode_mean_tokens"]
    config = json.loads((scored / "config.json").read_text())
    assert config["architectures"] == ["BertModel"] and "id2label" not in config
    assert Finetuned.from_pretrained(scored).head == Head("cosine", 0)
    options = small_options(scored, write_pairs(tmp_path / "data"), "similarity", max_steps=1)
    report = finetune(options, tmp_path / "run", show=False)  # goes on from it
    assert report["fresh"] == [] and report["baselines"]["before training"]["spearman"] > 0.6


# what is refused


def refused(*given, **options):
    """The sentence of a fine-tuning that can't begin."""
    with pytest.raises(InputError) as caught:
        given[0](*given[1:], **options)
    return str(caught.value)


def test_a_table_without_second_texts_is_refused(model, tmp_path):
    write_table(tmp_path / "train.tsv", ("text", "label"), [("a", 1), ("b", 0)])
    said = refused(prepare, small_options(model, tmp_path, "similarity"))
    assert "train.tsv has no column 'second', its header is text, label" in said
    write_table(tmp_path / "train.tsv", HEADER, [("a", "b", 1), ("b", "", 0)])
    said = refused(prepare, small_options(model, tmp_path, "similarity"))
    assert "train.tsv, line 3: the column 'second' has no text; remove the row or fill it." in said


@pytest.mark.parametrize("wrong", ["nan", "inf", "alike"])
def test_a_score_that_is_not_a_number_is_refused(model, tmp_path, wrong):
    write_table(tmp_path / "train.tsv", HEADER, [("a", "b", 1), ("b", "c", wrong)])
    said = refused(prepare, small_options(model, tmp_path, "similarity"))
    assert f"train.tsv, line 3: the column 'label' is {wrong!r}, not a number; correct it" in said


def test_the_highest_and_the_lowest_cosine_are_scores(model, tmp_path):
    rows = [("a", "b", 1), ("b", "c", -1), ("c", "d", 0.5), ("d", "a", -0.5)]
    write_table(tmp_path / "train.tsv", HEADER, rows)
    write_table(tmp_path / "dev.tsv", HEADER, rows)
    prepared = prepare(small_options(model, tmp_path, "similarity"))
    assert [one.label for one in prepared.data.dev_examples] == [label for *_, label in rows]


@pytest.mark.parametrize("score", [1.5, -1.5])
def test_a_score_beyond_both_is_refused(model, tmp_path, score):
    write_table(tmp_path / "train.tsv", HEADER, [("a", "b", score)])
    said = refused(prepare, small_options(model, tmp_path, "similarity"))
    assert f"train.tsv, line 2: the label {score:g} is not a cosine, from -1 to 1" in said


def test_a_score_that_is_not_a_cosine_is_refused(model, tmp_path):
    write_table(tmp_path / "train.tsv", HEADER, [("a", "b", 1), ("b", "c", 4.5)])
    said = refused(prepare, small_options(model, tmp_path, "similarity"))
    assert said == (
        f"{tmp_path}/train.tsv, line 3: the label 4.5 is not a cosine, from -1 to 1; "
        "divide all labels by the highest possible one."
    )


def test_pairs_without_scores_are_sent_to_their_own_task(model, tmp_path):
    data = write_pairs(tmp_path, scored=False)
    said = refused(prepare, small_options(model, data, "similarity"))
    assert "has no column 'label'" in said
    assert said.endswith("For pairs without a score there is the task similar-pairs.")
    said = refused(registry.create, "similar-pairs", {"label": "x"})
    assert said.startswith(
        "'label' in `columns` is not a column of similar-pairs; choose from text, second, id"
    )


def test_a_single_pair_is_refused(model, tmp_path):
    data = write_pairs(tmp_path / "pairs", scored=False, train=1)
    options = small_options(model, data, "similar-pairs")
    said = refused(finetune, options, tmp_path / "out", show=False)
    assert said == f"'{data}' has one training pair, and no other to compare it with; give more."
    data = write_pairs(tmp_path / "scored", dev=1)
    said = refused(finetune, small_options(model, data, "similarity"), tmp_path / "out", show=False)
    assert said == f"{data}: dev has one example, and a correlation needs two; give more."
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 1}, "batch_size=1 leaves a pair no other to be compared with; give 2 or more."),
        (
            {"accumulate": 2},
            "accumulate=2 would split the pairs of a batch, each contrasted with all others; give 1.",
        ),
    ],
)
def test_a_batch_of_pairs_is_neither_one_nor_parted(model, tmp_path, options, message):
    data = write_pairs(tmp_path / "data", scored=False)
    given = small_options(model, data, "similar-pairs", **options)
    assert refused(finetune, given, tmp_path / "out", show=False) == message
    assert not (tmp_path / "out" / "finetune.json").exists()


def test_devices_do_not_part_a_batch_of_pairs(model, tmp_path):
    options = small_options(
        model, write_pairs(tmp_path, scored=False), "similar-pairs", engine="jax", devices=2
    )
    spread = SimpleNamespace(runtime=SimpleNamespace(mesh="two devices"))
    said = refused(WholeRun.prepare, options, spread, tmp_path, False)
    assert said == "devices=2 would split the pairs of a batch, each contrasted with all others; give 1."


def test_vectors_of_two_models_are_not_averaged(scored):
    said = refused(evaluate, [scored, scored])
    assert said == "similarity compares vectors, which can't be averaged over models; give one model."


def test_a_single_text_has_no_cosine(scored):
    assert "was fine-tuned for pairs of texts; give a second one" in refused(classify, scored, ["a film"])
