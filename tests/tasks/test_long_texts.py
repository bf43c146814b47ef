"""Texts longer than a model reads, in overlapping windows: laid out, learnt from, kept, refused."""

import json
import warnings

import google_folder
import numpy as np
import pytest
from small_tasks import BAD, GOOD, OTHERS, small_config, small_options, write_model, write_swag, write_table

import minibert
from minibert import cli, hub
from minibert.base.errors import InputError
from minibert.core.batch import Feature, Sequence
from minibert.core.config import BertConfig
from minibert.core.optim import AdamW
from minibert.data.glue import TextExample
from minibert.finetuning.models import Finetuned, TaskFile
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.predicting import check_ensemble
from minibert.finetuning.preparation import prepare
from minibert.finetuning.run import classify, evaluate, finetune, predict
from minibert.hub.checkpoint import load_checkpoint, save_checkpoint
from minibert.model.batch import TaskBatch
from minibert.model.params import Head, initialise
from minibert.tasks import registry
from minibert.tasks.long_texts import LongTexts
from minibert.tasks.task import Mistake
from minibert.tokenizer import Tokenizer

LENGTH = 12  # room for 10 pieces
LONG = LongTexts("mean", 2, 8)


@pytest.fixture
def tokenizer(model):
    return Tokenizer.from_pretrained(model)


def words(tokenizer, one):
    """What a sequence shows, as text."""
    return tokenizer.decode(one.input_ids)


def long_reviews(folder, count=60):
    """Reviews of up to 30 words whose one word that tells something stands anywhere: ends must not be cut."""
    rng = np.random.default_rng(1)
    for split in ("train", "dev", "test"):
        rows = []
        for number in range(count):
            shown = [OTHERS[i] for i in rng.integers(len(OTHERS), size=rng.integers(3, 30))]
            shown.insert(int(rng.integers(len(shown) + 1)), (BAD, GOOD)[number % 2][number % 3])
            rows.append((" ".join(shown), ("bad", "good")[number % 2]))
        write_table(folder / f"{split}.tsv", ("text", "label"), rows)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return long_reviews(tmp_path_factory.mktemp("long"))


def options(model, data, **more):
    given = {"max_length": LENGTH, "long": "windows", "stride": 2, "epochs": 1} | more
    return small_options(model, data, "classify", **given)


@pytest.fixture(scope="module")
def trained(run, data, tmp_path_factory):
    """A run that pools by attention, from a model that knows good words already; and its report."""
    out = tmp_path_factory.mktemp("runs") / "attention"
    return out, finetune(options(run, data, pool="attention", epochs=8), out, show=False)


# Layout.


def test_windows_overlap_and_hold_all_of_a_text(tokenizer):
    text = " ".join(OTHERS * 2)  # 24 pieces
    shown = LONG.sequences(tokenizer(text), LENGTH)
    pieces = text.split()
    expected = [pieces[:10], pieces[8:18], pieces[16:24]]
    assert [words(tokenizer, one).split()[1:-1] for one in shown] == expected
    assert all(
        words(tokenizer, one).split()[:: len(one.input_ids) - 1] == ["[CLS]", "[SEP]"] for one in shown
    )
    assert [one.cut for one in shown] == [0, 0, 0]


@pytest.mark.parametrize(("count", "windows"), [(10, 1), (11, 2), (18, 2), (19, 3), (26, 3), (27, 4)])
def test_a_window_is_added_for_the_first_piece_too_many(tokenizer, count, windows):
    found = LONG.sequences(tokenizer(" ".join(["film"] * count)), LENGTH)
    assert len(found) == windows and not found[-1].cut


def test_behind_the_last_window_the_text_is_cut_and_counted(tokenizer):
    found = LONG._replace(most_windows=2).sequences(tokenizer(" ".join(OTHERS * 2)), LENGTH)
    assert [one.cut for one in found] == [0, 24 - 18]


def test_of_a_pair_the_longer_text_is_windowed_beside_the_whole_shorter_one(tokenizer):
    short, text = "the film is", " ".join(OTHERS)
    found = LONG.sequences(tokenizer(short, text), LENGTH)  # room for 6 of the 12 pieces
    parts = [words(tokenizer, one).split(" [SEP]") for one in found]
    assert {one[0] for one in parts} == {"[CLS] the film is"}
    assert [one[1].split() for one in parts] == [list(OTHERS[:6]), list(OTHERS[4:10]), list(OTHERS[8:])]
    turned = LONG.sequences(tokenizer(text, short), LENGTH)
    assert [words(tokenizer, one).split(" [SEP]")[0].split()[1:] for one in turned] == [
        one[1].split() for one in parts
    ]
    assert all(words(tokenizer, one).endswith("[SEP] the film is [SEP]") for one in turned)
    assert [one.token_type_ids.tolist() for one in turned[:1]] == [[0] * 8 + [1] * 4]


def test_the_shorter_text_of_a_pair_keeps_half_of_a_window_at_most(tokenizer):
    first, second = "the film is a story and it", " ".join(OTHERS)  # 7 pieces of at most 4, and 12
    found = LONG.sequences(tokenizer(first, second), LENGTH)
    assert {words(tokenizer, one).split(" [SEP]")[0] for one in found} == {"[CLS] the film is a"}
    assert max(len(one.input_ids) for one in found) == LENGTH
    assert sum(one.cut for one in found) == 3


def test_short_texts_are_read_as_without_windows(model, data):
    plain = prepare(options(model, data, max_length=24, long="cut", stride=None))
    windowed = prepare(options(model, data, max_length=24))
    pairs = [(a, b) for a, b in zip(plain.train, windowed.train, strict=True) if not a.sequences[0].cut]
    assert len(pairs) > 20
    for one, other in pairs:
        [own], [same] = one.sequences, other.sequences
        assert np.array_equal(own.input_ids, same.input_ids) and one.label == other.label


def feature(*lengths, label=0):
    sequences = tuple(Sequence(np.arange(2, 2 + n), np.zeros(n, int)) for n in lengths)
    return Feature(sequences, label)


def test_a_batch_has_the_windows_it_needs_without_padding():
    head = Head("classify", 2, pool="mean")
    batch = TaskBatch.pack_features([feature(3), feature(4, 2, 5, label=1), feature(2, 2)], head)
    batch.validate(BertConfig(vocab_size=50, hidden_size=8, num_attention_heads=2))
    assert (batch.E, batch.S, batch.T) == (3, 6, 18)
    assert batch.windows.tolist() == [[0, -1, -1], [1, 2, 3], [4, 5, -1]]
    part = batch.take(1, 3)
    assert part.windows.tolist() == [[0, 1, 2], [3, 4, -1]]
    assert (part.labels.tolist(), part.sequence_index.tolist()) == ([1, 0], [1, 2, 3, 4, 5])


# Runs.


def test_what_stands_behind_the_first_window_is_learnt_from(trained):
    assert trained[1]["scores"]["accuracy"] > 0.9


def test_a_loaded_model_windows_as_it_was_trained(trained, data, tmp_path):
    out, report = trained
    long = json.loads((out / "task.json").read_text())["long"]
    assert long == {"pool": "attention", "stride": 2, "most_windows": 8}
    model = Finetuned.from_pretrained(out, "numpy")
    assert model.task.long == LONG._replace(pool="attention") and model.params["head.query"].any()
    assert evaluate(out, data, engine="numpy")["scores"] == report["scores"]
    predicted = predict(out, data, "test", tmp_path, engine="numpy")
    assert predicted["scores"]["accuracy"] > 0.9
    texts = ["the film " * 12 + "is dull", "the film " * 12 + "is warm"]
    assert [one["label"] for one in classify(out, texts, engine="numpy")] == ["bad", "good"]


@pytest.mark.parametrize("pool", ["", "mean", "attention"])
def test_a_checkpoint_keeps_the_pooling(tmp_path, pool):
    head = Head("classify", 2, pool=pool)
    params = initialise(small_config(), 0, head=head)
    assert params.description["head"] == ["classify", 2, False, *([pool] if pool else [])]
    save_checkpoint(tmp_path / "one.safetensors", params, AdamW(params.flat, params.decayed), {"step": 0})
    loaded = load_checkpoint(tmp_path / "one.safetensors").params
    assert loaded.head == head and np.array_equal(loaded.flat, params.flat)


def test_fine_tuning_further_keeps_the_query_and_another_pooling_does_not(trained, model, data):
    head, labels = Head("classify", 2, pool="attention"), ("bad", "good")
    stored = hub.load(trained[0], head=head)
    assert stored[1].head == head and not stored[2].missing
    assert hub.load(trained[0])[1].head == head
    fresh = hub.load(model, head=head)[2].missing
    assert "classifier.query" in fresh and labels == tuple(trained[1]["labels"])


def test_the_query_is_read_from_tensorflow_s_format(trained, tmp_path):
    config, params, _ = hub.load(trained[0])
    google_folder.write(tmp_path, config, params)
    again = hub.load(tmp_path)[1]
    assert again.head == params.head and np.array_equal(again["head.query"], params["head.query"])


@pytest.mark.representatives(pool="max")
@pytest.mark.parametrize("pool", ["mean", "max"])
def test_pooling_without_weights_leaves_the_tensors_of_a_classifier(model, data, tmp_path, pool):
    finetune(options(model, data, pool=pool, max_steps=1), tmp_path / "run", show=False)
    finetune(options(model, data, max_steps=1, long="cut", stride=None), tmp_path / "cut", show=False)
    windowed, plain = (hub.load(tmp_path / one)[1] for one in ("run", "cut"))
    assert list(windowed) == list(plain) and windowed.head == Head("classify", 2)
    assert "long" not in json.loads((tmp_path / "cut" / "task.json").read_text())
    assert Finetuned.from_pretrained(tmp_path / "run", "numpy").head.pool == pool


@pytest.mark.thorough
def test_the_run_is_the_same_after_a_stop(model, data, tmp_path):
    asked = options(model, data, pool="attention", max_steps=4, checkpoint_steps=2, keep=0)
    finetune(asked, tmp_path / "whole", show=False)
    finetune(asked, tmp_path / "again", show=False)
    weights = [(tmp_path / one / "model.safetensors").read_bytes() for one in ("whole", "again")]
    assert weights[0] == weights[1]


@pytest.mark.thorough
def test_micro_batches_change_no_more_than_rounding(model, data, tmp_path):
    for parts in (1, 3):
        asked = options(model, data, max_steps=3, accumulate=parts, dtype="float64")
        finetune(asked, tmp_path / str(parts), show=False)
    one, three = (hub.load(tmp_path / name, np.float64)[1].flat for name in ("1", "3"))
    assert np.abs(one - three).max() < 1e-6


def test_an_estimator_windows_after_saving_and_loading_too(run, tmp_path):
    fast = {"engine": "numpy", "batch_size": 16, "epochs": 4, "learning_rates": 5e-3}
    windows = {"max_length": LENGTH, "long": "windows", "pool": "max"}
    texts = [f"{'the film ' * 12}is {word}" for word in (*GOOD, *BAD)] * 6
    fitted = minibert.TextClassifier(run, **fast, **windows).fit(texts, ([1] * 3 + [0] * 3) * 6)
    assert fitted.score(texts, ([1] * 3 + [0] * 3) * 6) > 0.9  # though the first window is the same for all
    fitted.save(tmp_path / "kept")
    loaded = minibert.load(tmp_path / "kept", engine="numpy")
    assert (loaded.long, loaded.pool) == ("windows", "max")
    assert np.array_equal(loaded.predict_proba(texts), fitted.predict_proba(texts))


# What is told.


def test_texts_of_too_many_windows_are_warned_of(model, data, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepared = prepare(options(model, data, most_windows=2))
    [text] = [str(one.message) for one in caught if "lose their ends" in str(one.message)]
    assert "do not fit into 2 windows of 12 tokens and lose their ends" in text
    assert text.endswith("When fine-tuning, most_windows=4 would read more.")
    assert prepared.truncated["train"]["cut"] > 0


def test_a_single_text_of_too_many_windows_is_warned_of(model, data, tmp_path):
    with pytest.warns(UserWarning, match="lose their ends"):
        finetune(options(model, data, most_windows=2, max_steps=1), tmp_path / "run", show=False)
    with pytest.warns(
        UserWarning, match=r"The text does not fit into 2 windows of 12 tokens; .* last 12 tok"
    ):
        classify(tmp_path / "run", ["film " * 30], engine="numpy")


def test_mistakes_are_marked_where_the_last_window_ends(tokenizer):
    task = registry.create("classify", {}, LONG._replace(most_windows=2))
    example = TextExample("0", "film " * 20, None, "a")
    shown = task.as_read(Mistake(example.first, "a", "b", 1.0), example, tokenizer, LENGTH).text
    assert shown.split(" [the model")[0] == ("film " * 18).strip() and "2 more tokens" in shown


# What is refused.


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pool": "max"}, r"pool='max' is for windows.*ask for windows with long='windows', or leave it out"),
        ({"stride": 3}, "stride=3 is for windows"),
        ({"most_windows": 3}, "most_windows=3 is for windows"),
        (
            {"long": "windows", "most_windows": 0},
            "most_windows=0 is not valid; give a whole number of at leas",
        ),
        ({"long": "windows", "pool": "sum"}, "pool='sum' is not valid; give one of mean, max, attention"),
        ({"long": "windows", "stride": -1}, "stride=-1 is not valid; give a whole number, 0 or more"),
        ({"long": "halves"}, "long='halves' is not valid; give one of cut, windows"),
        ({"long": "windows", "feature_based": "last"}, "long='windows' is for tasks with one answer"),
    ],
)
def test_options_that_fit_nothing_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        FinetuneOptions("classify", "data", "model", **given)


def test_a_stride_as_long_as_the_room_is_refused(model, data):
    with pytest.raises(
        InputError, match=r"stride=10 is not less than the 10 pieces that a window has room for"
    ):
        prepare(options(model, data, stride=10))
    assert prepare(options(model, data, stride=9)).data.task.long.stride == 9
    assert prepare(options(model, data, stride=None)).data.task.long.stride == 2  # a quarter


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ("ner", "has its own windows"),
        ("squad1", "has its own windows"),
        ("swag", "reads each choice"),
        ("similarity", "compares vectors of"),
    ],
)
def test_tasks_without_a_text_of_any_length_are_refused(task, why, model, tmp_path):
    write_swag(tmp_path)
    with pytest.raises(InputError, match=rf"long='windows' is for tasks .* but {task} {why}"):
        prepare(FinetuneOptions(task, tmp_path, model, long="windows"))


def test_the_command_line_says_it_in_its_own_words(model, data, tmp_path, capsys):
    asked = ["finetune", "classify", f"--data={data}", f"--model={model}", f"--out={tmp_path / 'run'}"]
    assert cli.main([*asked, "--pool", "max"]) == 2
    said = capsys.readouterr().err
    assert "--pool max is for windows" in said and "ask for windows with --long windows" in said
    assert not (tmp_path / "run").exists()


def test_a_task_file_with_other_windows_is_refused(trained, tmp_path):
    fields = json.loads((trained[0] / "task.json").read_text())
    for wrong in ({"pool": "sum"}, {"pool": "mean", "stride": 99, "most_windows": 2}, {"other": 3}):
        (tmp_path / "task.json").write_text(json.dumps(fields | {"long": wrong}))
        with pytest.raises(InputError, match=r"'long' is .*, expected pool, stride and most_windows"):
            TaskFile.load(tmp_path)


def test_models_of_other_windows_are_not_averaged(trained, tmp_path):
    model = Finetuned.from_pretrained(trained[0], "numpy")
    other = Finetuned.from_pretrained(trained[0], "numpy")
    check_ensemble([model, other])
    other.task.long = LONG
    with pytest.raises(InputError, match="they differ in their windows of long texts"):
        check_ensemble([model, other])


def test_only_heads_of_one_answer_pool():
    with pytest.raises(InputError, match=r"A head of kind 'tag' has no pool='mean'; leave it out"):
        write_model("nowhere", Head("tag", 3, pool="mean"))
