"""From a text to a run folder: options, plan, held-out figures, and what each part refuses."""

import dataclasses
import json
import math
import re
import shutil
import time
import warnings
from collections import Counter
from itertools import count
from types import SimpleNamespace

import google_folder
import numpy as np
import pytest
from one_text import fill_masks
from small_corpus import ANIMALS, PLACES, write_corpus

from minibert import cli
from minibert.ask.inference import Bert
from minibert.base.errors import InputError, InputWarning, RunError
from minibert.base.files import RUN_FILES
from minibert.core.batch import Batch, Sequence
from minibert.core.bert import pretraining_loss
from minibert.core.config import BertConfig
from minibert.core.step import MaskedAndNext
from minibert.data.instances import InstanceOptions
from minibert.hub import load_hf
from minibert.hub.checkpoint import checkpoints, latest, load_checkpoint
from minibert.model.ops import Ops
from minibert.model.params import Parameters, initialise
from minibert.pretraining import budget, evaluation, objective, run as pretraining
from minibert.pretraining.evaluation import entropy_of_counts, evaluation_batches, score, shuffle_contexts
from minibert.pretraining.objective import Pretraining, timetable_of
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.predict import evaluate, held_out_gaps
from minibert.pretraining.preparation import HELD_OUT_SEED, prepare_text
from minibert.pretraining.recipes import RECIPES, Stage, Timetable, parse_lengths
from minibert.pretraining.run import _warn_of_high_loss, pretrain, report_text
from minibert.tokenizer import Tokenizer
from minibert.training import loop
from minibert.training.runlog import NoLog, read_metrics

pytestmark = pytest.mark.usefixtures("few_passes")

MASK, SPECIAL = 4, (0, 1, 2, 3, 4)


def small_options(corpus, **more):
    """A run of a second."""
    given = dict(
        corpus=(str(corpus),), vocab_size=120, seq_length="8:0.5,16:0.5", batch_size=8, max_positions=16,
        steps=12, evaluations=3, held_out=0.2, learning_rate=5e-3,
    )  # fmt: skip
    if more.keys() & {"vocab", "model"}:
        del given["vocab_size"]  # which they bring
    return PretrainOptions(**given | more)


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """A run folder, finished, that has learnt something."""
    out = tmp_path_factory.mktemp("runs") / "small"
    # Of six seeds this one learns best, and to the same loss with every instruction set.
    pretrain(small_options(corpus, steps=400, batch_size=16, learning_rate=2e-3, seed=1), out, show=False)
    return out


def report_of(run):
    return json.loads((run / "report.json").read_text())


# the options


@pytest.mark.parametrize(
    "text, lengths",
    [
        ("128", [(128, 1.0)]),
        ("16:0.4,32:0.6", [(16, 0.4), (32, 0.6)]),
        ("128:0.9,512:0.1", [(128, 0.9), (512, 0.1)]),
    ],
)
def test_a_length_schedule_is_read(text, lengths):
    assert parse_lengths(text) == lengths


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "seq_length='' is not a schedule; give one length, or up to 100"),
        ("x", "is not a schedule"),
        ("16:1.5,32:-0.5", "is not a schedule"),
        ("16:0.4:1,32:0.6", "is not a schedule"),
        ("16:nan,32:0.5", "is not a schedule"),
        (",".join(["16:0.001"] * 1000), "is not a schedule"),
        ("4", "seq_length='4' is too short; give at least 5"),
        ("16:0.5,4:0.5", "seq_length='16:0.5,4:0.5' is too short"),
        ("16:0.4", "seq_length='16:0.4' has shares that sum to 0.4; they must sum to 1"),
        ("16:0.5,32:0.6", "sum to 1.1; they"),
        ("16:0.5,32:nan", "sum to nan; they"),
    ],
)
def test_a_length_schedule_that_makes_no_sense_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_lengths(text)


def test_stages_share_the_steps_and_keep_the_tokens_of_a_step():
    options = PretrainOptions(seq_length="16:0.4,32:0.6", batch_size=32).resolved()
    assert options.stages(100) == [Stage(16, 0, 40), Stage(32, 40, 100)]
    assert options.tokens_per_step == 1024
    assert options.stages(1) == [Stage(32, 0, 1)]


def test_the_last_stage_ends_the_run_though_the_shares_are_rounded():
    options = PretrainOptions(seq_length="16:0.3333333,32:0.3333333,64:0.3333333").resolved()
    assert options.stages(10_000_000)[-1] == Stage(64, 6_666_666, 10_000_000)


def test_short_first_stages_have_no_pairs_and_the_last_stage_has():
    options = PretrainOptions(seq_length="10:0.5,32:0.2,64:0.2,128:0.1").resolved()
    paired = {length: options.instance_options(length).pairs for length, _ in options.lengths}
    assert paired == {10: False, 32: False, 64: True, 128: True}
    assert PretrainOptions(seq_length="16").resolved().instance_options(16).pairs
    assert not dataclasses.replace(options, next_sentence=False).instance_options(64).pairs


def test_the_papers_schedule_is_one_case():
    options = PretrainOptions(size="base").resolved()
    assert options.stages(1_000_000) == [Stage(128, 0, 900_000), Stage(512, 900_000, 1_000_000)]
    assert options.tokens_per_step == 256 * 512
    assert (options.learning_rate, options.warmup * 1_000_000, options.dropout) == (1e-4, 10_000, 0.1)
    assert not options.bias_correction and options.google_decay and not options.unigram_bias


def test_masks_spans_and_optimizer_are_the_papers_by_default():
    options = PretrainOptions(size="base").resolved()
    made = options.instance_options(512)
    assert made == InstanceOptions(seq_length=512)
    assert (made.masked_lm_prob, made.mask_rates, made.whole_word_mask) == (0.15, (0.8, 0.1, 0.1), False)
    assert made.pairs and made.room == 509
    rule = options.update_rule
    assert (rule["kind"], rule["beta1"], rule["beta2"]) == ("adamw", 0.9, 0.999)
    assert (rule["weight_decay"], rule["clip_norm"], rule["eps"]) == (0.01, 1.0, 1e-6)
    config = options.model_config(30_522)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)
    assert (config.gelu_form, config.is_decoder) == ("erf", False)


@pytest.mark.parametrize("ablation", [{"next_sentence": False}, {"left_to_right": True}])
def test_an_ablation_changes_nothing_else_of_the_recipe(ablation):
    plain = PretrainOptions(size="base").resolved()
    assert PretrainOptions(size="base", **ablation).resolved() == dataclasses.replace(plain, **ablation)


@pytest.mark.parametrize("size", RECIPES)
def test_what_the_user_says_wins_over_the_recipe(size):
    options = PretrainOptions(size=size, dropout=0.3, batch_size=5, bias_correction=True, steps=3).resolved()
    assert (options.dropout, options.batch_size, options.bias_correction, options.minutes) == (
        0.3,
        5,
        True,
        None,
    )
    assert options.learning_rate == RECIPES[size].learning_rate


def test_a_corpus_of_one_name_is_that_name():
    assert PretrainOptions(corpus="a.txt") == PretrainOptions(corpus=("a.txt",))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vocab": "a", "vocab_size": 99}, "vocab_size=99 .* vocab='a' brings one"),
        ({"model": "a", "vocab_size": 99}, "vocab_size=99 .* model='a' brings one"),
        ({"model": "a", "unigram_bias": True}, "unigram_bias=True .* model='a' brings a trained"),
    ],
)
def test_what_a_vocabulary_or_trained_weights_bring_cannot_be_given(given, message):
    with pytest.raises(InputError, match=message):
        PretrainOptions(**given)
    assert PretrainOptions(model="a").resolved().unigram_bias is False


def test_options_survive_json(tmp_path):
    options = PretrainOptions(corpus=("a", "b"), mask_rates=(1, 0, 0), seed=4).resolved()
    options.save(tmp_path / "training.json")
    assert PretrainOptions.load(tmp_path / "training.json") == options


def test_options_that_are_paths_and_numbers_of_numpy_survive_json(tmp_path):
    options = PretrainOptions(
        vocab=tmp_path, model=tmp_path, steps=np.int64(4), learning_rate=np.float32(0.5)
    )
    options.save(tmp_path / "training.json")
    said = {"vocab": str(tmp_path), "model": str(tmp_path), "steps": 4, "learning_rate": 0.5}
    assert PretrainOptions.load(tmp_path / "training.json") == options == PretrainOptions(**said)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"size": "huge"}, "size='huge' is not a size of BERT"),
        ({"steps": 5, "minutes": 1.0}, "both given"),
        ({"steps": 0}, "steps=0"),
        ({"minutes": 0.0}, "minutes=0.0"),
        ({"minutes": math.inf}, "minutes=inf"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0"),
        ({"held_out": 1.0}, "held_out=1.0"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"keep": -1}, "keep=-1"),
        ({"steps": 5.0}, "steps=5.0 is not valid; give a whole number"),
        ({"seed": 1.5}, "seed=1.5 is not valid; give a whole number"),
    ],
)
def test_options_out_of_range_are_refused_by_name(wrong, message):
    with pytest.raises(InputError, match=message):
        PretrainOptions(**wrong)


@pytest.mark.slow
def test_a_dtype_left_to_the_machine_is_stored_and_gone_on_with(corpus, tmp_path, monkeypatch):
    out = tmp_path / "run"
    options = small_options(corpus, steps=2, dtype="auto", engine="numpy")
    pretrain(options, out, show=False)
    assert PretrainOptions.load(out / "training.json").dtype == "float32"
    monkeypatch.setattr("minibert.engines.registry.quickest_dtype", lambda name: "bfloat16")
    wished = PretrainOptions.resumed(out / "training.json", dtype="auto", steps=3)
    assert wished.dtype == "float32"
    pretrain(wished, out, resume=True, show=False)
    with pytest.raises(InputError, match="engine='numpy' does not compute in dtype='bfloat16'"):
        pretrain(options, tmp_path / "other", show=False)


def test_going_on_with_other_options_names_those_that_differ(tmp_path):
    path = tmp_path / "training.json"
    PretrainOptions(steps=10).resolved().save(path)
    differing = r"learning_rate=0.1 \(the run has 0.002\), seed=3 \(the run has 0\)"
    with pytest.raises(InputError, match=differing):
        PretrainOptions.resumed(path, seed=3, learning_rate=0.1)
    assert PretrainOptions.resumed(path, steps=20, keep=5, evaluations=1).steps == 20
    assert PretrainOptions.resumed(path, engine="jax", threads=3).engine == "jax"
    by_the_clock = PretrainOptions.resumed(path, minutes=2.0)
    assert (by_the_clock.steps, by_the_clock.minutes) == (None, 2.0)


def test_going_on_where_there_is_no_run_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="There is no run in"):
        PretrainOptions.resumed(tmp_path / "training.json")
    (tmp_path / "training.json").write_text("{]")
    with pytest.raises(InputError, match="training.json can't be read as JSON .*; name the folder of a run"):
        PretrainOptions.resumed(tmp_path / "training.json")


# held-out figures


def two_sequences():
    """[CLS] 5 6 7 [SEP] and [CLS] 8 [MASK] 10 11 [SEP], with three targets, one of them masked."""
    first = Sequence(np.array([2, 5, 6, 7, 3]), np.zeros(5, int), np.array([2]), np.array([6]), 0)
    second = Sequence(
        np.array([2, 8, 4, 10, 11, 3]), np.zeros(6, int), np.array([2, 4]), np.array([9, 20]), 1
    )
    return Batch.pack([first, second])


def test_entropy_is_that_of_the_targets_themselves():
    def entropy(targets):
        return entropy_of_counts(np.bincount(targets))

    assert entropy([3, 3, 3, 3]) == 0
    assert entropy(range(8)) == pytest.approx(math.log(8))
    assert entropy([1, 1, 1, 2]) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))


def test_only_targets_that_show_mask_are_scored():
    config = BertConfig.from_size("tiny", vocab_size=30, max_position_embeddings=8)
    params = initialise(config, 0, np.float64)
    found = score(Ops(), config, params.tree, [two_sequences()], MASK)
    assert (found.targets, found.sequences, found.tokens) == (1, 2, 11)
    assert found.unigram == 0  # a single target
    assert found.next_majority == 0.5  # one of each
    alone = Batch.pack([two_sequences_second()])
    expected = score(Ops(), config, params.tree, [alone], MASK).loss
    assert found.loss == pytest.approx(expected, rel=1e-12)
    assert found.perplexity == pytest.approx(math.exp(found.loss))
    json.dumps(dataclasses.replace(found, loss=1e9).to_dict(), allow_nan=False)
    loss, _ = pretraining_loss(Ops(), config, params.tree, two_sequences())
    assert found.accuracy == (loss.mlm_predicted[1] == 9)
    as_predicted = dataclasses.replace(two_sequences(), next_sentence_labels=loss.nsp_predicted)
    assert score(Ops(), config, params.tree, [as_predicted], MASK).next_accuracy == 1
    everything = score(Ops(), config, params.tree, [two_sequences()], None)
    assert everything.targets == 3
    assert everything.unigram == pytest.approx(math.log(3))


def two_sequences_second():
    return Sequence(np.array([2, 8, 4, 10, 11, 3]), np.zeros(6, int), np.array([2]), np.array([9]), 1)


def test_no_masked_target_is_bad_input():
    config = BertConfig.from_size("tiny", vocab_size=30, max_position_embeddings=8)
    batch = two_sequences()
    visible = dataclasses.replace(batch, input_ids=np.where(batch.input_ids == MASK, 9, batch.input_ids))
    with pytest.raises(InputError, match="too short for any"):
        score(Ops(), config, initialise(config, 0).tree, [visible], MASK)


def test_shuffling_moves_ordinary_tokens_within_their_sequence_and_nothing_else():
    rng = np.random.default_rng(0)
    sequences = []
    for n in (40, 7, 25):
        ids = rng.integers(5, 1000, n)
        ids[0], ids[n // 2], ids[-1] = 2, 3, 3
        masked = np.array([2, 5])
        ids[2] = MASK
        sequences.append(Sequence(ids, np.zeros(n, int), masked, np.array([7, 8])))
    batch = Batch.pack(sequences)
    (shuffled,) = shuffle_contexts([batch], SPECIAL)
    fixed = np.isin(batch.input_ids, SPECIAL)
    fixed[batch.masked_rows] = True
    assert (shuffled.input_ids[fixed] == batch.input_ids[fixed]).all()
    assert (shuffled.input_ids != batch.input_ids).sum() > 40
    for begin, end in zip(batch.cu_seqlens, batch.cu_seqlens[1:], strict=False):
        assert sorted(shuffled.input_ids[begin:end]) == sorted(batch.input_ids[begin:end])


@pytest.mark.slow
def test_a_small_text_is_masked_again_until_there_are_enough_targets(run):
    task = loaded_task(run)
    few, many = task.held_out_batches(16, 50), task.held_out_batches(16, 300)

    def count(batches):
        return sum(int((b.input_ids[b.masked_rows] == task.mask_id).sum()) for b in batches)

    assert 50 <= count(few) < 60 and 300 <= count(many) < 310
    made = InstanceOptions(seq_length=16)
    assert task.text.held_out(16).options == made  # standard, whatever the training masks


def loaded_task(run):
    options = PretrainOptions.load(run / "training.json")
    return Pretraining(options, prepare_text(options, run, False), Ops())


# what the options reach


@pytest.fixture(scope="module")
def unusual(run):
    """A task with options of which none is the default, on the text of a run."""
    options = PretrainOptions.load(run / "training.json")
    options = dataclasses.replace(
        options, seed=6, dropout=0.3, attention_dropout=0.2, hidden_act="gelu_new", learning_rate=0.5,
        warmup=0.2, google_decay=True, bias_correction=False, beta1=0.8, beta2=0.95, adam_eps=1e-3,
        weight_decay=0.07, clip_norm=2.5, whole_word_mask=True, mask_rates=(0.5, 0.3, 0.2),
        short_seq_prob=0.4, masked_lm_prob=0.25,
    )  # fmt: skip
    return Pretraining(options, prepare_text(options, run, False), Ops())


def test_options_reach_the_model_the_optimizer_and_the_learning_rate(unusual):
    state = unusual.start()
    config, optimizer = state.params.config, state.optimizer
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.3, 0.2)
    assert (config.hidden_act, config.is_decoder) == ("gelu_new", False)
    assert (optimizer.beta1, optimizer.beta2, optimizer.eps) == (0.8, 0.95, 1e-3)
    assert (optimizer.weight_decay, optimizer.clip_norm, optimizer.bias_correction) == (0.07, 2.5, False)
    np.testing.assert_array_equal(optimizer.ranges, state.params.decayed)
    rate = unusual.rate(Timetable.of(100))
    assert [rate(step) for step in (0, 10, 19, 20, 60)] == pytest.approx([0, 0.25, 0.475, 0.4, 0.2])
    np.testing.assert_array_equal(state.params["pooler.weight"], initialise(config, 6)["pooler.weight"])


def test_a_left_to_right_model_sees_nothing_of_what_comes(unusual):
    options = dataclasses.replace(unusual.options, left_to_right=True)
    assert options.model_config(100).is_decoder


def test_training_and_measuring_draw_from_their_own_documents_seeds_and_masks(unusual):
    training, held_out = unusual.text.training(unusual.options, 16), unusual.held_out(16)
    assert training.documents.tolist() == unusual.text.train_ids.tolist()
    assert held_out.documents.tolist() == unusual.text.held_out_ids.tolist()
    assert not set(training.documents) & set(held_out.documents)
    assert (training.seed, held_out.seed) == (6, HELD_OUT_SEED)
    assert training.options == InstanceOptions(
        seq_length=16, whole_word_mask=True, mask_rates=(0.5, 0.3, 0.2), short_seq_prob=0.4,
        masked_lm_prob=0.25,
    )  # fmt: skip


def test_figures_of_a_step_follow_from_seed_and_step(unusual):
    state = unusual.start()
    params, config = state.params, state.params.config
    batch, _ = next(unusual.batches(Timetable.of(1)))

    def figures(task, step):
        return task.objective(config).forward(Ops(), params.tree, batch, step)[0]

    drop = Ops().dropout(batch, 0.3, 0.2, 6, 5)
    loss, _ = pretraining_loss(Ops(), config, params.tree, batch, drop)
    found = figures(unusual, 5)
    assert found["loss"] == float(loss.loss) == pytest.approx(found["mlm_loss"] + found["nsp_loss"])
    assert found["mlm_accuracy"] == pytest.approx((loss.mlm_predicted == batch.masked_labels).mean())
    assert found["nsp_accuracy"] == pytest.approx((loss.nsp_predicted == batch.next_sentence_labels).mean())
    other_seed = Pretraining(dataclasses.replace(unusual.options, seed=7), unusual.text, Ops())
    assert len({found["loss"], figures(unusual, 4)["loss"], figures(other_seed, 5)["loss"]}) == 3


def test_options_reach_the_loop(run, tmp_path):
    task = loaded_task(run)
    options = dataclasses.replace(
        task.options, accumulate=3, checkpoint_seconds=7.0, checkpoint_steps=5, keep=9, evaluations=4
    )
    task, state = dataclasses.replace(task, options=options), task.start()
    state.plan["total_steps"] = 10
    planned = pretraining._PlannedRun(task, tmp_path, NoLog(), None, (0, 0.0))
    batches, loop = planned.ahead(state)
    assert (loop.total_steps, loop.folder, loop.accumulate) == (10, tmp_path / "checkpoints", 3)
    assert (loop.save_seconds, loop.save_steps, loop.max_checkpoints) == (7.0, 5, 9)
    assert loop.evaluate_steps == 3 and loop.evaluate is not None
    assert loop.rate(4) == task.rate(Timetable.of(10))(4)
    assert len(list(batches)) == 10


# a run


def test_a_run_folder_holds_what_it_says(run):
    names = {path.name for path in run.iterdir()}
    assert names >= {
        "training.json", "vocab.txt", "tokenizer_config.json", "shards", "checkpoints", "metrics.jsonl",
        "config.json", "model.safetensors", "report.json",
    }  # fmt: skip
    assert not [name for name in names if name.startswith(".") or name.endswith(".tmp")]
    assert Bert.from_pretrained(run).config.vocab_size == Tokenizer.from_pretrained(run).vocab_size


@pytest.mark.thorough
def test_the_headline_has_the_share_of_repeated_lines(tmp_path, capsys):
    lines = [f"the {animal} runs in the {place}." for animal in ANIMALS for place in PLACES.values()]
    for name, more in (("plain", []), ("repeated", lines[:1])):
        documents = ["\n".join([*lines[start::4], *more]) for start in range(4)]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents))
        pretrain(small_options(tmp_path / f"{name}.txt", steps=1, vocab_size=60), tmp_path / name)
        told = capsys.readouterr().err
        pattern = (
            r"held out \([^)]*\), [\d,]+ tokens" + r", at least \d+\.\d% in repeated lines" * bool(more) + ";"
        )
        assert re.search(pattern, told)


def test_a_run_learns_what_context_is_worth(run):
    figures = report_of(run)["held_out"]
    assert figures["targets"] > 300
    assert figures["nats_under_unigram"] == pytest.approx(figures["unigram"] - figures["loss"])
    assert figures["nats_under_unigram"] > 0.5
    assert figures["shuffled_loss"] > figures["loss"] + 0.1


def test_the_unigram_entropy_of_the_text_is_that_of_all_its_pieces(run):
    text = loaded_task(run).text
    documents = range(text.shards.n_documents)
    counts = Counter(piece for number in documents for piece in text.shards.document(number)[0])
    found = text.piece_counts()
    assert {piece: count for piece, count in enumerate(found.tolist()) if count} == counts
    shares = [count / counts.total() for count in counts.values()]
    expected = -sum(share * math.log(share) for share in shares)
    assert report_of(run)["held_out"]["text_unigram"] == pytest.approx(expected, rel=1e-12)


def test_the_report_reads_like_a_report(run):
    report = report_of(run)
    text = report_text(report)
    for figure in ("loss", "unigram", "text_unigram", "shuffled_loss"):
        assert f"{report['held_out'][figure]:.3f}" in text
    assert str(run) in text and "[MASK]" in text
    answers = [line.split()[-1] for line in text.splitlines() if re.match("Next-sentence| +always the", line)]
    assert answers == [f"{report['held_out'][name]:.1%}" for name in ("next_accuracy", "next_majority")]


def test_the_model_on_the_disk_is_the_one_of_the_last_checkpoint(run):
    _, params, _ = load_hf(run)
    np.testing.assert_array_equal(params.flat, latest(run / "checkpoints").params.flat)


def test_evaluating_a_run_gives_the_figures_of_its_report(run):
    measured = evaluate(run)
    figures = report_of(run)["held_out"]
    for name in ("loss", "shuffled_loss"):
        assert getattr(measured, name) == pytest.approx(figures[name], rel=1e-6)
    for name in ("unigram", "text_unigram", "targets"):
        assert getattr(measured, name) == figures[name]


def test_special_tokens_stay_in_place_where_contexts_are_shuffled(run, monkeypatch):
    seen = []

    def watched(ops, config, params, batches, mask_id):
        seen.append(list(batches))
        return score(ops, config, params, seen[-1], mask_id)

    monkeypatch.setattr(evaluation, "score", watched)
    evaluate(run, targets=50)
    for plain, shuffled in zip(*seen, strict=True):
        assert not np.array_equal(shuffled.input_ids, plain.input_ids)
        fixed = np.isin(plain.input_ids, SPECIAL)
        assert fixed.sum() > 2 * plain.S  # [CLS] and [SEP] of each, and [MASK]
        assert np.array_equal(shuffled.input_ids[fixed], plain.input_ids[fixed])
        assert np.array_equal(np.isin(shuffled.input_ids, SPECIAL), fixed)


def test_evaluating_on_another_corpus_uses_all_of_it(run, tmp_path):
    other = write_corpus(tmp_path / "other.txt", documents=4)
    plain = evaluate(run, (str(other),), targets=100)
    assert 100 <= plain.targets < 120
    with pytest.raises(InputError, match="other.txt|nothing"):
        evaluate(run, (str(tmp_path / "nothing.txt"),))


def test_a_run_without_next_sentences_is_evaluated_without_pairs(run, tmp_path):
    assert evaluate(run, targets=50).next_accuracy is not None
    options = dataclasses.replace(PretrainOptions.load(run / "training.json"), next_sentence=False)
    folder = shutil.copytree(run, tmp_path / "alone")
    options.save(folder / "training.json")
    assert evaluate(folder, targets=50).next_accuracy is None


@pytest.mark.parametrize("size", [{"documents": 1}, {"sentences": 1}], ids=["document", "sentences"])
def test_one_document_and_single_sentences_are_evaluated_without_pairs(run, tmp_path, size):
    other = write_corpus(tmp_path / "other.txt", **size)
    plain = evaluate(run, (str(other),), targets=50)
    assert plain.targets >= 50 and plain.next_accuracy is None


def test_gaps_are_words_of_three_letters_or_more_from_the_middle(run):
    gaps = list(held_out_gaps(loaded_task(run).text, 16))
    assert len(gaps) == len(loaded_task(run).text.held_out_ids)
    for text, word in gaps:  # the middle of "the cat runs in the house." is "in"
        assert text.count("[MASK]") == 1 and len(word) >= 3 and word.isalpha()


def test_the_first_sentence_of_a_document_can_be_the_one_with_the_gap(run):
    tokenizer = loaded_task(run).text.tokenizer
    ids = np.array(tokenizer.encode("the whale sleeps in the sea.", add_special_tokens=False))
    shards = SimpleNamespace(document=lambda number: (ids.copy(), np.array([len(ids)])))
    text = SimpleNamespace(tokenizer=tokenizer, held_out_ids=[0], shards=shards)
    ((gap, word),) = held_out_gaps(text, 16)
    assert gap.replace("[MASK]", word) == tokenizer.decode(ids)


def test_fill_mask_knows_a_place_when_one_is_missing(run):
    model = Bert.from_pretrained(run)
    (guesses,) = model.fill_mask("the whale sleeps in the [MASK].", top=3)
    assert {guess.token for guess in guesses} <= set(PLACES.values())
    assert [probability for _, probability in guesses] == sorted((p for _, p in guesses), reverse=True)
    assert 0 < sum(probability for _, probability in guesses) <= 1
    assert len(model.fill_mask("the [MASK] runs in the [MASK].")) == 2


def test_a_left_to_right_model_fills_a_gap_by_what_is_before_it(run):
    bert, tokenizer = Bert.from_pretrained(run), Tokenizer.from_pretrained(run)
    config = dataclasses.replace(bert.config, is_decoder=True)
    model = Bert(config, Parameters(config, bert.params.flat), bert.ops, tokenizer)
    (guesses,) = fill_masks(model, "the [MASK] sleeps.", top=5)
    after_the = model.masked_lm_logits(tokenizer("the"), [1])[0]
    best = np.argsort(-after_the, kind="stable")[:5]
    assert [guess.token for guess in guesses] == [tokenizer.vocab[piece] for piece in best]


def test_only_a_detected_layout_is_reported_and_once(corpus, tmp_path, capsys):
    auto = small_options(corpus)
    prepare_text(auto, tmp_path / "auto")
    told = capsys.readouterr().err
    assert re.search(
        r"^\d+ documents\. Read as one sentence a line, a blank line between documents", told, re.M
    )
    prepare_text(auto, tmp_path / "auto")  # which reads no text any more
    prepare_text(small_options(corpus, layout="sentences"), tmp_path / "asked")
    assert "Read as" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, message",
    [("no gap at all", r"has no \[MASK\]"), ("the " * 30 + "[MASK]", "more than the model's 16")],
)
def test_fill_mask_refuses_what_it_cannot_do(run, text, message):
    with pytest.raises(InputError, match=message):
        Bert.from_pretrained(run).fill_mask(text)


def test_a_vocabulary_larger_than_the_models_is_refused(run, tmp_path):
    model, vocab = Bert.from_pretrained(run), Tokenizer.from_pretrained(run).vocab
    with pytest.raises(InputError, match="use the vocabulary that it came with"):
        Bert(model.config, model.params, model.ops, Tokenizer([*vocab, "extra"]))
    fewer = Bert(model.config, model.params, model.ops, Tokenizer(vocab[:-3]))
    (guesses,) = fill_masks(fewer, "[MASK]", top=len(vocab))
    assert sorted(guess.token for guess in guesses) == sorted(vocab[:-3])
    assert sum(guess.probability for guess in guesses) == pytest.approx(1)
    longer = shutil.copytree(run, tmp_path / "longer")
    Tokenizer([*vocab, "extra"]).save_pretrained(longer)
    with pytest.raises(InputError, match="use the vocabulary that it came with"):
        evaluate(longer)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"targets": 0}, "targets=0"),
        ({"seq_length": 0}, "seq_length=0"),
        ({"seq_length": 17}, "seq_length=17 is longer than the model's 16 positions"),
    ],
)
def test_evaluating_refuses_numbers_that_make_no_sense(run, wrong, message):
    with pytest.raises(InputError, match=message):
        evaluate(run, **wrong)


def test_output_bias_begins_at_the_log_unigram_of_the_training_documents(run):
    task = loaded_task(run)
    bias = task.start().params["mlm.output_bias"]
    assert np.exp(bias.astype(float)).sum() == pytest.approx(1)
    counts = np.ones(len(bias))
    for number in task.text.train_ids:
        for token in task.text.shards.document(int(number))[0]:
            counts[token] += 1
    np.testing.assert_allclose(np.exp(bias), counts / counts.sum(), rtol=1e-5)


def test_a_model_at_the_log_unigram_begins_near_the_floor(run):
    task = loaded_task(run)
    found = task.score(task.start().params, task.held_out_batches(16, 500))
    assert abs(found.loss - found.unigram) < 0.4


def test_lengths_change_at_the_border_and_positions_begin_a_new_pass(run):
    task = loaded_task(run)
    made = list(task.batches(Timetable.of(10)))
    assert [position[0] for _, position in made] == [8] * 5 + [16] * 5
    assert made[5][1][1] > made[4][1][1] or made[4][1][2:] == [0, 0]
    assert all(np.diff(batch.cu_seqlens).max() <= length for batch, (length, *_) in made)
    sequences = [batch.S for batch, _ in made]
    assert sequences == [32] * 5 + [16] * 5  # the tokens of a step stay the same


def test_batches_go_on_from_any_position(run):
    task = loaded_task(run)
    made = list(task.batches(Timetable.of(10)))
    for step in range(1, 10):
        rest = list(task.batches(Timetable.of(10), step, made[step - 1][1]))
        assert len(rest) == 10 - step
        for (ours, position), (theirs, expected) in zip(rest, made[step:], strict=True):
            assert position == expected
            np.testing.assert_array_equal(ours.input_ids, theirs.input_ids)


# how long


def afforded(steps, seconds=100.0):
    return lambda *_: budget.Afforded(steps, seconds, {8: 1.0, 16: 1.0})


@pytest.mark.thorough
def test_minutes_are_turned_into_steps_and_the_run_is_that_run_of_steps(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "affordable_steps", afforded(12))
    monkeypatch.setattr(budget, "CORRECTIONS", ())
    pretrain(small_options(corpus, steps=None, minutes=1.0), tmp_path / "clock", show=False)
    pretrain(small_options(corpus), tmp_path / "count", show=False)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("clock", "count")]
    assert weights[0] == weights[1]
    state = latest(tmp_path / "clock" / "checkpoints").state
    assert state["plan"]["budget"] == {"steps": None, "minutes": 1.0}
    assert state["plan"]["total_steps"] == 12 and state["plan"]["timetable"] == [[0, 0], [12, 12]]
    monkeypatch.setattr(budget, "affordable_steps", lambda *_: pytest.fail("measured again"))
    resumed = PretrainOptions.resumed(tmp_path / "clock" / "training.json")
    assert pretrain(resumed, tmp_path / "clock", resume=True, show=False)["steps"] == 12


def test_what_is_left_of_a_schedule_ends_with_the_run():
    straight = Timetable.of(100)
    assert [straight.planned(step) for step in range(101)] == list(range(101))
    assert [straight.step_at(place) for place in range(101)] == list(range(101))
    twice = straight.rescheduled(end=180, from_step=20).rescheduled(end=140, from_step=100)
    assert (twice.total, twice.planned_total) == (140, 100)
    assert [twice.planned(step) for step in (0, 20, 60, 100, 120, 140)] == [0, 20, 40, 60, 80, 100]
    assert [twice.step_at(place) for place in (0, 20, 40, 60, 80, 100)] == [0, 20, 60, 100, 120, 140]


@pytest.mark.parametrize(("slower", "total"), [(0.5, 26), (1.0, 16), (1.05, 15), (2.0, 11), (100.0, 7)])
def test_at_a_review_the_rest_of_a_run_is_as_long_as_its_time(run, slower, total):
    task = loaded_task(run)  # half of the steps at length 8, half at 16
    state = task.start()
    state.plan = {"total_steps": 16, "until_seconds": 8 * 1.0 + 8 * 3.0, "per_step": [[8, 1.0], [16, 3.0]]}
    before = Timetable.of(16)
    assert budget.next_correction(state) == 3
    state.step, state.seconds = 6, 2 + 4 * 1.0 * slower
    if slower == 100.0:  # there is no time left
        assert state.seconds > state.plan["until_seconds"]
    else:  # what has passed is not counted again
        state.plan["until_seconds"] = state.seconds + 2 * 1.0 + 8 * 3.0
    budget.correct(task, state, (2, 2.0))
    after = timetable_of(state)
    assert after.total == state.plan["total_steps"] == total
    assert after.planned(6) == 6 and after.planned(after.total) == 16
    if slower == 0.5:
        assert task.stages(after) == [Stage(8, 0, 10), Stage(16, 10, 26)]
        assert task.rate(after)(6) == task.rate(before)(6) and task.rate(after)(26) == 0


@pytest.mark.slow
def test_a_run_that_was_reviewed_goes_on_exactly_from_a_checkpoint_between_reviews(
    corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(budget, "affordable_steps", afforded(12))

    looked = []

    def longer_at_first(task, state, since):
        looked.append(state.step)
        if state.step < 5:
            timetable = timetable_of(state)
            timetable = timetable.rescheduled(end=timetable.total + 3, from_step=state.step)
            budget._write_plan(state, timetable)

    monkeypatch.setattr(pretraining, "correct", longer_at_first)
    options = small_options(corpus, steps=None, minutes=1.0, checkpoint_steps=1, keep=99)
    report = pretrain(options, tmp_path / "whole", show=False)
    assert report["steps"] > 12 and report["stages"][1] > (6, 16)
    between = [step for step in range(1, report["steps"]) if step not in looked]
    assert between[0] < looked[0] < 5 < between[-1]
    for step in (between[0], between[-1]):
        again = tmp_path / f"again-{step}"
        shutil.copytree(tmp_path / "whole", again)
        for path in checkpoints(again / "checkpoints")[step + 1 :]:  # the first is of step 0
            path.unlink()
        resumed = PretrainOptions.resumed(again / "training.json")
        assert pretrain(resumed, again, resume=True, show=False)["steps"] == report["steps"]
        weights = [(folder / "model.safetensors").read_bytes() for folder in (tmp_path / "whole", again)]
        assert weights[0] == weights[1]


def positions(params):
    return params["embeddings.position"]


@pytest.fixture
def begun(monkeypatch):
    """How new positions began: how many were known, up to where, the rows before and after."""
    found = []

    def seen(params, known, length):
        before = positions(params).copy()
        copy_trained_positions(params, known, length)
        found.append((known, length, before, positions(params).copy()))

    copy_trained_positions = objective.copy_trained_positions
    monkeypatch.setattr(objective, "copy_trained_positions", seen)
    return found


@pytest.mark.thorough
def test_positions_that_no_sequence_has_reached_begin_as_those_before(corpus, tmp_path, begun):
    options = small_options(
        corpus, seq_length="8:0.4,20:0.3,8:0.1,24:0.2", max_positions=32, checkpoint_steps=1
    )
    pretrain(dataclasses.replace(options, steps=10, keep=0), tmp_path / "run", show=False)
    assert [one[:2] for one in begun] == [(8, 20), (20, 24)]
    for known, length, before, after in begun:
        np.testing.assert_array_equal(after[known:length], after[np.arange(known, length) % known])
        rest = [*range(known), *range(length, 32)]
        np.testing.assert_array_equal(after[rest], before[rest])
    at_the_border = load_checkpoint(tmp_path / "run" / "checkpoints" / "step-000000004.safetensors").params
    np.testing.assert_array_equal(positions(at_the_border), begun[0][2])  # a run that goes on from there, too


@pytest.mark.thorough
def test_positions_that_were_trained_are_kept_when_a_run_is_made_longer(corpus, tmp_path, begun):
    options = small_options(corpus, steps=12, checkpoint_steps=1, keep=0)
    pretrain(options, tmp_path / "run", show=False)
    assert [one[:2] for one in begun] == [(8, 16)]
    more = dataclasses.replace(options, steps=40)  # from step 12 to 20 sequences are short again
    pretrain(more, tmp_path / "run", resume=True, show=False)
    assert len(begun) == 1
    assert [length for _, length in report_of(tmp_path / "run")["stages"]] == [8, 16]


@pytest.mark.thorough
def test_positions_begin_too_when_a_run_is_made_shorter(corpus, tmp_path, begun):
    def stop(step, _):
        if step == 5:
            raise KeyboardInterrupt

    options = small_options(corpus, steps=24, checkpoint_steps=1, keep=0)
    with pytest.raises(KeyboardInterrupt):
        pretrain(options, tmp_path / "run", show=False, on_log=stop)
    assert not begun
    fewer = dataclasses.replace(options, steps=6)  # whose sequences are long from step 3 on
    pretrain(fewer, tmp_path / "run", resume=True, show=False)
    assert [one[:2] for one in begun] == [(8, 16)]
    assert load_hf(tmp_path / "run")[0].trained_length == 16


def test_an_encoder_whose_head_is_none_of_ours_can_be_trained_further(run, corpus, tmp_path):
    folder = shutil.copytree(run, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["BertForSequenceClassification"], "problem_type": "regression"}
    config |= {"id2label": {"0": "a", "1": "b", "2": "c"}}
    (folder / "config.json").write_text(json.dumps(config))
    options = small_options(corpus, model=str(folder), steps=1)
    assert pretrain(options, tmp_path / "on", show=False)["steps"] == 1


@pytest.mark.representatives(trained=8)
@pytest.mark.parametrize("trained, same", [(8, False), (16, True), (None, True)])
def test_new_positions_repeat_the_trained_ones(run, corpus, tmp_path, trained, same):
    folder = shutil.copytree(run, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("trained_length") == 16
    (folder / "config.json").write_text(json.dumps(config | ({"trained_length": trained} if trained else {})))
    options = small_options(corpus, model=str(folder), steps=1, learning_rate=1e-12)
    pretrain(options, tmp_path / "on", show=False)
    before, after = (positions(load_hf(one)[1]) for one in (folder, tmp_path / "on"))
    np.testing.assert_allclose(after[:8], before[:8], rtol=0, atol=1e-9)
    np.testing.assert_allclose(after[8:], before[8:] if same else before[:8], rtol=0, atol=1e-9)
    assert np.abs(before[8:] - before[:8]).min(axis=1).max() > 0


@pytest.mark.thorough
def test_a_run_on_a_machine_that_became_faster_uses_its_time(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "affordable_steps", afforded(12, seconds=2.0))
    # A step seemed to take a sixth of a second; the loop, which asks for the time twice, sees a hundredth.
    ticks = count()
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: next(ticks) / 200))
    report = pretrain(small_options(corpus, steps=None, minutes=1.0), tmp_path / "run", show=False)
    lengths = [line["tokens"] for line in read_metrics(tmp_path / "run") if "tokens" in line]
    assert report["steps"] > 24 and len(lengths) == report["steps"]
    assert 1.8 < report["training_seconds"] <= 2.1
    assert [length for _, length in report["stages"]] == [8, 16]


@pytest.mark.slow
def test_a_run_of_minutes_takes_about_as_long(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "FINISHING_SECONDS", 1.0)
    began = time.process_time()
    report = pretrain(small_options(corpus, steps=None, minutes=0.1), tmp_path / "run", show=False)
    assert report["steps"] >= 2
    assert time.process_time() - began < 12  # of 6, and not by the clock: others may be at work


def test_the_steps_that_fit_leave_time_for_the_looks_and_the_end(run, monkeypatch):
    task = loaded_task(run)
    task = dataclasses.replace(task, options=dataclasses.replace(task.options, steps=None, minutes=1.0))
    rates = {8: 0.1, 16: 0.3}  # seconds a step; half of the steps each
    monkeypatch.setattr(budget, "seconds_per_step", lambda task, state, length, *_: rates[length])
    monkeypatch.setattr(budget, "evaluation_seconds", lambda *_: (3.0, 1.0))
    monkeypatch.setattr(time, "monotonic", lambda: 1010.0)
    said = []
    found = budget.affordable_steps(task, None, 1000.0, said.append)
    left = budget.MARGIN * 50 - 1 - budget.FINISHING_SECONDS
    assert found == (int((left - 3) / 0.2), left, rates, 1.0)
    assert said[1].endswith("fit into 1 minute; 4 s of these are for measuring held-out text.")


def test_of_the_minutes_held_out_text_takes_no_more_than_its_share(run, monkeypatch):
    task = loaded_task(run)
    task = dataclasses.replace(task, options=dataclasses.replace(task.options, steps=None, minutes=1.5))
    monkeypatch.setattr(budget, "seconds_per_step", lambda *_: 1.41)
    monkeypatch.setattr(budget, "evaluation_seconds", lambda *_: (20.0, 48.0))
    monkeypatch.setattr(time, "monotonic", lambda: 1010.0)
    said = []
    found = budget.affordable_steps(task, None, 1000.0, said.append)
    assert found.held_out_share == pytest.approx(0.15 * 90 / 68)
    assert found.steps > 40  # where there were 7
    assert said[1].endswith("14 s of these are for measuring held-out text, on 20% of the usual targets.")


@pytest.mark.thorough
def test_a_run_with_few_minutes_measures_fewer_targets_and_goes_on_so(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "affordable_steps", lambda *_: afforded(12)()._replace(held_out_share=0.01))
    monkeypatch.setattr(budget, "CORRECTIONS", ())
    out = tmp_path / "run"
    report = pretrain(small_options(corpus, steps=None, minutes=1.0), out, show=False)
    assert 200 <= report["held_out"]["targets"] < 300  # of 20,000; a batch is read whole
    resumed = PretrainOptions.resumed(out / "training.json")
    again = pretrain(resumed, out, resume=True, show=False)
    assert again["held_out"] == report["held_out"]
    longer = PretrainOptions.resumed(out / "training.json", steps=14)
    assert pretrain(longer, out, resume=True, show=False)["held_out"]["targets"] > 300


def test_rehearsing_leaves_the_parameters_alone(run):
    task = loaded_task(run)
    state = task.start()
    before = state.params.flat.copy()
    assert budget.seconds_per_step(task, state, 16, 0.0, lambda text: None) > 0
    assert (state.params.flat == before).all() and state.optimizer.updates == 0


@pytest.mark.thorough
def test_a_finished_run_can_be_made_longer(corpus, tmp_path, capsys):
    out = tmp_path / "run"
    pretrain(small_options(corpus, steps=6), out, show=False)
    longer = PretrainOptions.resumed(out / "training.json", steps=9)
    assert pretrain(longer, out, resume=True, show=False)["steps"] == 9
    assert [line["step"] for line in read_metrics(out) if "loss" in line] == list(range(1, 10))
    shorter = PretrainOptions.resumed(out / "training.json", steps=4)
    with pytest.raises(InputError, match="steps=4 is less than the 9 steps"):
        pretrain(shorter, out, resume=True, show=False)
    as_it_was = PretrainOptions.resumed(out / "training.json")  # the refused length was not written down
    assert "All of these steps are done" not in capsys.readouterr().err
    assert pretrain(as_it_was, out, resume=True)["steps"] == 9
    assert "All of these steps are done" in capsys.readouterr().err


# variants


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"left_to_right": True},
        {"next_sentence": False},
        {"whole_word_mask": True, "mask_rates": (0.0, 0.0, 1.0)},
        {"dupe_factor": 2, "dropout": 0.1, "accumulate": 3},
        {"bias_correction": False, "google_decay": True, "unigram_bias": False, "dtype": "float64"},
    ],
)
def test_variants_of_the_paper_run_to_the_end(corpus, tmp_path, more):
    report = pretrain(small_options(corpus, steps=3, **more), tmp_path / "run", show=False)
    figures = report["held_out"]
    assert math.isfinite(figures["loss"])
    if more.get("left_to_right"):  # where no token of a context would move
        assert figures["shuffled_loss"] is None
        assert evaluate(tmp_path / "run", targets=50).shuffled_loss is None
        assert "Held-out loss on next words" in report_text(report) and "shuffled" not in report_text(report)
    else:
        assert math.isfinite(figures["shuffled_loss"]) and "[MASK] positions" in report_text(report)
    paired = more.get("next_sentence", True) and not more.get("left_to_right")
    assert (figures["next_accuracy"] is not None) == paired


def test_starting_from_a_trained_folder_takes_its_weights_shape_and_vocabulary(run, corpus, tmp_path):
    out = tmp_path / "further"
    options = small_options(
        corpus, model=str(run), learning_rate=1e-9, steps=2, seed=3, dropout=0.25, size="base"
    )
    report = pretrain(options, out, show=False)
    assert report["size"] == json.loads((run / "report.json").read_text())["size"] != "base"
    config = load_hf(out)[0]
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.25, 0.25)
    assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 16
    assert config.hidden_act == "gelu"  # its shape and arithmetic are those it was trained with
    assert (out / "vocab.txt").read_bytes() == (run / "vocab.txt").read_bytes()
    np.testing.assert_allclose(load_hf(out)[1].flat, load_hf(run)[1].flat, atol=1e-6)


@pytest.mark.thorough
def test_weights_to_start_from_are_changed_slowly_unless_a_size_says_otherwise(run, corpus, tmp_path):
    further = PretrainOptions(model="some-bert").resolved()
    assert (further.rate_from(), further.seq_length, further.dropout) == (2e-5, "128", 0.1)
    source = load_hf(run)[0]
    assert source.hidden_dropout_prob == 0 and further.rate_from(model=source) == 4e-4
    assert PretrainOptions(model="some-bert").resolved(source).dropout == 0
    assert PretrainOptions(model="some-bert", dropout=0.3).resolved(source).dropout == 0.3
    assert PretrainOptions(model="some-bert", size="tiny").resolved().learning_rate == 2e-3
    assert PretrainOptions().resolved() == PretrainOptions(size="tiny").resolved()
    options = PretrainOptions((str(corpus),), model=str(run), seq_length="16", batch_size=8, steps=3)
    out = tmp_path / "further"
    pretrain(options, out, show=False)
    assert PretrainOptions.load(out / "training.json").learning_rate == 4e-4
    changes = np.abs(load_hf(out)[1].flat - load_hf(run)[1].flat)
    assert 0 < changes.max() < 3 * 6e-4  # a step of Adam changes a number by about the rate
    longer = PretrainOptions.resumed(out / "training.json", steps=4)
    assert longer.size is None and pretrain(longer, out, resume=True, show=False)["steps"] == 4


@pytest.mark.thorough
def test_starting_from_a_tensorflow_checkpoint_is_the_same_as_from_safetensors(run, corpus, tmp_path):
    config, params, _ = load_hf(run)
    google_folder.write(tmp_path / "google", config, params)
    Tokenizer.from_pretrained(run).save_pretrained(tmp_path / "google")
    for source in (run, tmp_path / "google"):
        out = tmp_path / f"from {source.name}"
        pretrain(small_options(corpus, model=str(source), steps=2), out, show=False)
    one, other = (tmp_path / name / "model.safetensors" for name in (f"from {run.name}", "from google"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.thorough
def test_going_on_does_not_need_the_folder_that_the_weights_came_from(run, corpus, tmp_path):
    origin, out = tmp_path / "origin", tmp_path / "further"
    shutil.copytree(run, origin)
    pretrain(small_options(corpus, model=str(origin), steps=2), out, show=False)
    shutil.rmtree(origin)
    longer = PretrainOptions.resumed(out / "training.json", steps=3)
    assert pretrain(longer, out, resume=True, show=False)["steps"] == 3


def test_starting_from_a_folder_refuses_what_does_not_fit(run, corpus, tmp_path):
    with pytest.raises(InputError, match="longer than the 16 positions .* with extend_positions=32"):
        pretrain(small_options(corpus, model=str(run), seq_length="32"), tmp_path / "a", show=False)
    longer = [*Tokenizer.from_pretrained(run).vocab, "extra"]
    Tokenizer(longer).save_pretrained(tmp_path / "vocab")
    with pytest.raises(InputError, match="vocabulary that it came with"):
        options = small_options(corpus, model=str(run), vocab=str(tmp_path / "vocab"))
        pretrain(options, tmp_path / "b", show=False)
    for other in ({"hidden_act": "gelu_new"}, {"max_positions": 32}):
        with pytest.raises(InputError, match=f"{next(iter(other))}=.* which stays; leave it out"):
            pretrain(small_options(corpus, model=str(run), **other), tmp_path / "d", show=False)
    (tmp_path / "empty").mkdir()
    no_models = {corpus: "model=.* has no config.json", tmp_path / "empty": "model=.* has no config.json"}
    for no_model, told in (no_models | {tmp_path / "nowhere": "no folder '.*nowhere', and minibert"}).items():
        with pytest.raises(InputError, match=told):
            pretrain(small_options(corpus, model=str(no_model)), tmp_path / "c", show=False)


def test_further_positions_begin_as_copies_and_are_trained(run, corpus, tmp_path):
    more = {"model": str(run), "max_positions": 512, "seq_length": "32", "extend_positions": 40, "steps": 2}
    pretrain(small_options(corpus, **more), tmp_path / "a", show=False)
    config, params, _ = load_hf(tmp_path / "a")
    assert (config.P, config.trained_length) == (40, 32)
    fields = json.loads((tmp_path / "a" / "tokenizer_config.json").read_text())
    assert fields["model_max_length"] == 40
    before, rows = load_hf(run)[1]["embeddings.position"], params["embeddings.position"]
    change = np.abs(rows - np.concatenate([before, before, before[:8]])).max(1)
    assert (0 < change[:32]).all() and (change < 0.1).all() and (change[32:] < 1e-4).all()
    with pytest.raises(InputError, match="extend_positions=8 is less than the 16 positions"):
        pretrain(small_options(corpus, model=str(run), extend_positions=8), tmp_path / "b", show=False)
    with pytest.raises(InputError, match="extend_positions=40 is for a trained model"):
        pretrain(small_options(corpus, extend_positions=40), tmp_path / "c", show=False)


# what is refused, and what goes wrong


def test_a_folder_with_a_run_in_it_is_not_overwritten(run, corpus):
    before = (run / "training.json").read_bytes()
    with pytest.raises(InputError, match="already holds a run"):
        pretrain(small_options(corpus), run, show=False)
    assert (run / "training.json").read_bytes() == before


def test_a_folder_of_a_fine_tuning_or_a_model_is_told_as_such(run, corpus, tmp_path):
    (tmp_path / "finetune.json").write_text('{"task": "rte"}')
    with pytest.raises(InputError, match="' holds a run of minibert finetune; choose another `out`"):
        pretrain(small_options(corpus), tmp_path, show=False)
    (tmp_path / "finetune.json").unlink()
    shutil.copy(run / "model.safetensors", tmp_path)
    with pytest.raises(InputError, match="holds model.safetensors of something that is not a run"):
        pretrain(small_options(corpus), tmp_path, show=False)


def test_a_custom_vocabulary_in_the_folder_is_left_alone(run, corpus, tmp_path):
    Tokenizer.from_pretrained(run).save_pretrained(tmp_path / "mine")
    before = (tmp_path / "mine" / "vocab.txt").read_bytes()
    for vocab in (None, str(tmp_path / "mine")):
        with pytest.raises(InputError, match="holds tokenizer_config.json, vocab.txt, tokenizer.json of"):
            pretrain(small_options(corpus, vocab=vocab), tmp_path / "mine", show=False)
    assert (tmp_path / "mine" / "vocab.txt").read_bytes() == before
    assert not (tmp_path / "mine" / "training.json").exists()


@pytest.mark.parametrize("name", sorted({*RUN_FILES} - {"model.safetensors"}))
def test_what_the_run_would_write_or_remove_is_left_alone(corpus, tmp_path, name):
    out = tmp_path
    place = out / name if "." in name else out / name / "x"
    place.parent.mkdir(exist_ok=True)
    place.write_text('{"mine": 1}')
    with pytest.raises(InputError, match=f"holds {name} of something that is not a run; choose another"):
        pretrain(small_options(corpus), out, show=False)
    assert [path.name for path in out.iterdir()] == [name] and place.read_text() == '{"mine": 1}'


@pytest.mark.parametrize("text", ["{}", '{"seed": 1, "learning_rate": 1e-4, "steps": 9, "warmup": 0.1}'])
def test_a_training_json_of_another_program_begins_no_run(corpus, tmp_path, text):
    (tmp_path / "training.json").write_text(text)
    (tmp_path / "vocab.txt").write_text("mine")
    with pytest.raises(InputError, match="holds vocab.txt, training.json of something that is not a run"):
        pretrain(small_options(corpus), tmp_path, show=False)
    with pytest.raises(InputError, match="does not hold the options of a run .'corpus' is missing."):
        PretrainOptions.resumed(tmp_path / "training.json")
    assert (tmp_path / "vocab.txt").read_text() == "mine"


def test_the_file_of_config_is_not_written_over(corpus, tmp_path, capsys):
    (tmp_path / "training.json").write_text('{"size": "1-8-1", "steps": 1}')
    (tmp_path / "vocab.txt").write_text("mine")
    words = "pretrain", str(corpus), "--config", str(tmp_path / "training.json"), "--out", str(tmp_path)
    assert cli.main([*words, "--quiet"]) == 2
    assert "training.json would be overwritten by the run in --out" in capsys.readouterr().err
    assert (tmp_path / "training.json").read_text() == '{"size": "1-8-1", "steps": 1}'
    assert (tmp_path / "vocab.txt").read_text() == "mine"


def test_what_a_run_without_a_first_step_left_is_made_anew(run, corpus, tmp_path):
    Tokenizer([*Tokenizer.from_pretrained(run).vocab, "extra"]).save_pretrained(tmp_path)
    (tmp_path / "shards").mkdir()
    small_options(corpus, steps=1).save(tmp_path / "training.json")
    pretrain(small_options(corpus, steps=1, evaluations=0), tmp_path, show=False)
    assert Tokenizer.from_pretrained(tmp_path).vocab == Tokenizer.from_pretrained(run).vocab


def test_a_text_of_words_that_are_too_long_is_not_called_empty(tmp_path):
    (tmp_path / "text").write_text("a" * 300)
    with pytest.raises(InputError, match="no text, or only words of more than 200 characters, in .*text;"):
        pretrain(small_options(tmp_path / "text"), tmp_path / "run", show=False)


def test_a_file_in_place_of_the_run_folder_is_refused(corpus):
    with pytest.raises(InputError, match="is a file, not a folder; choose another `out`"):
        pretrain(small_options(corpus), corpus, show=False)


def test_going_on_with_other_options_is_refused_before_anything_happens(run, corpus):
    with pytest.raises(InputError, match="cannot be resumed with .*seed=9"):
        pretrain(small_options(corpus, steps=200, seed=9), run, resume=True, show=False)


@pytest.mark.parametrize(
    "text, message",
    [("", "empty|no text"), ("One sentence.\nAnd another one.\n", "1 document, and 4 are needed for next")],
)
def test_a_corpus_with_too_little_in_it_is_refused(tmp_path, text, message):
    (tmp_path / "text.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        pretrain(small_options(tmp_path / "text.txt", layout="sentences"), tmp_path / "run", show=False)
    assert not checkpoints(tmp_path / "run" / "checkpoints")


def test_a_cased_run_keeps_case(corpus, tmp_path):
    tokenizer = prepare_text(small_options(corpus, lower_case=False), tmp_path, False).tokenizer
    assert not tokenizer.lower_case and tokenizer.tokenize("The cat")[0] == "The"


@pytest.mark.representatives(keep_accents=False)
@pytest.mark.parametrize("keep_accents", [False, True])
def test_vowel_signs_are_stripped_with_a_sentence_or_kept(tmp_path, keep_accents):
    sentence = "यह एक छोटी सी किताब है और हम उसे पढ़ते हैं\n"
    (tmp_path / "text.txt").write_text("\n".join([2 * sentence] * 6), encoding="utf-8")
    options = small_options(tmp_path / "text.txt", layout="sentences", keep_accents=keep_accents)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tokenizer = prepare_text(options, tmp_path / "run", False).tokenizer
    told = ["19% of the characters of the text lose a mark" in str(one.message) for one in caught]
    assert sum(told) == (not keep_accents)
    expected = ["हैं", "THE".lower()] if keep_accents else ["ह", "the"]
    assert tokenizer.basic_tokenizer.tokenize("हैं THE") == expected
    again = Tokenizer.from_pretrained(tmp_path / "run")
    assert again.basic_tokenizer.strip_accents is not keep_accents and again.lower_case


@pytest.mark.parametrize("segmented", [False, True])
def test_chinese_words_are_whole_where_the_text_is_segmented(tmp_path, segmented):
    sentence = "我们 使用 自然 语言 处理 模型\n"
    (tmp_path / "text.txt").write_text("\n".join([2 * sentence] * 6), encoding="utf-8")
    chinese = {"segmented": segmented, "whole_word_mask": True, "vocab_size": 60}
    options = small_options(tmp_path / "text.txt", layout="sentences", **chinese)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        text = prepare_text(options, tmp_path / "run", False)
    told = [
        "100% of the pieces are ideographs, each of which is a word" in str(one.message) for one in caught
    ]
    assert sum(told) == (not segmented)
    words = ["使用", "语言"] if segmented else [*"使用语言"]
    assert text.tokenizer.basic_tokenizer.tokenize("使用 语言") == words
    heads = sum(not text.tokenizer.continuation[token] for token in text.shards.document(0)[0])
    assert heads == (12 if segmented else 24)


def test_a_cased_run_keeps_case_with_a_vocabulary_that_does_not_say_so(corpus, tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nThe\n", encoding="utf-8")
    options = small_options(corpus, vocab=str(vocab), lower_case=False)
    tokenizer = prepare_text(options, tmp_path / "run", False).tokenizer
    assert tokenizer.tokenize("The") == ["The"]
    assert Tokenizer.from_pretrained(tmp_path / "run").tokenize("The") == ["The"]


def test_going_on_without_a_checkpoint_does_not_train_over_the_model(corpus, tmp_path):
    out = tmp_path / "run"
    pretrain(small_options(corpus, steps=2), out, show=False)
    shutil.rmtree(out / "checkpoints")
    weights = (out / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="holds a model but no checkpoint to resume from"):
        pretrain(PretrainOptions.resumed(out / "training.json"), out, resume=True, show=False)
    assert (out / "model.safetensors").read_bytes() == weights


@pytest.mark.thorough
def test_a_finished_run_without_its_metrics_is_measured_and_has_its_page(corpus, tmp_path, monkeypatch):
    out = tmp_path / "run"
    pretrain(small_options(corpus, steps=2), out, show=False)
    (out / "metrics.jsonl").unlink()
    monkeypatch.setattr(Pretraining, "held_out_targets", lambda *_: 50)
    report = pretrain(PretrainOptions.resumed(out / "training.json"), out, resume=True, show=False)
    assert report["steps"] == 2 and report["page"] == report_of(out)["page"] == str(out / "report.html")
    assert 50 <= report["held_out"]["targets"] < 100


def test_what_was_trained_stays_when_measuring_it_fails(corpus, tmp_path, monkeypatch):
    def refuse(*_):
        raise InputError("nothing to measure")

    monkeypatch.setattr(pretraining, "_measured", refuse)
    with pytest.raises(InputError, match="nothing to measure"):
        pretrain(small_options(corpus, evaluations=1), tmp_path / "run", show=False)
    assert "The run has stopped" in (tmp_path / "run" / "report.html").read_text()
    assert latest(tmp_path / "run" / "checkpoints").state["step"] == 12


def test_a_sequence_longer_than_the_positions_makes_the_model_longer():
    options = PretrainOptions(seq_length="600").resolved()
    options.check_positions()
    assert options.max_positions == options.model_config(100).max_position_embeddings == 600
    assert PretrainOptions(seq_length="64").resolved().model_config(100).max_position_embeddings == 512


def test_positions_that_were_given_are_kept_to_whatever_their_number():
    with pytest.raises(InputError, match="max_positions=512 is less than the longest sequence, 600 tokens"):
        PretrainOptions(seq_length="600", max_positions=512).resolved().check_positions()


def test_the_usual_positions_of_a_stored_run_do_not_limit_a_longer_sequence(tmp_path):
    """Every run stores 512, which nobody may have chosen."""
    file = tmp_path / "training.json"
    file.write_text('{"max_positions": 512, "seq_length": "64"}')
    configured = PretrainOptions.configured(file, {"seq_length": "600"})
    assert PretrainOptions(**configured).resolved().max_positions == 600
    assert PretrainOptions.configured(file, {"max_positions": 512})["max_positions"] == 512
    file.write_text('{"max_positions": 128}')
    assert PretrainOptions.configured(file, {})["max_positions"] == 128


def test_a_resumed_run_has_the_positions_that_it_stored():
    stored = PretrainOptions(seq_length="600", max_positions=512).resolved()
    assert PretrainOptions(seq_length="600").decided_as(stored).max_positions == 512


@pytest.mark.parametrize("name", ["model", "vocab", "shards"])
def test_what_is_not_a_path_is_refused(name):
    with pytest.raises(InputError, match=f"^{name}=5 is not a path; give the name of a file or a folder"):
        PretrainOptions(**{name: 5})


@pytest.mark.parametrize(
    "given",
    [
        {"whole_word_mask": True},
        {"masked_lm_prob": 0.3},
        {"mask_rates": (1.0, 0.0, 0.0)},
        {"max_predictions_per_seq": 3},
    ],
)
def test_what_is_masked_can_not_be_chosen_where_every_word_is_predicted(corpus, given, tmp_path):
    (name,) = given
    why = "but left_to_right=True predicts every word; leave one of them out"
    with pytest.raises(InputError, match=f"^{name}=.* chooses what is masked, {why}"):
        pretrain(small_options(corpus, left_to_right=True, **given), tmp_path / "run", show=False)
    assert not (tmp_path / "run").exists()


def test_a_run_that_has_diverged_is_warned_of(corpus, tmp_path):
    with pytest.warns(
        InputWarning, match=r"nats is far above the \d\.\d of guessing .*: the run has diverged"
    ):
        pretrain(small_options(corpus, learning_rate=100.0, steps=8), tmp_path / "run", show=False)


@pytest.mark.parametrize(("training_loss", "why"), [(4.9, "diverged"), (0.04, "learnt its text by heart")])
def test_a_high_held_out_loss_is_put_down_to_what_the_training_loss_shows(training_loss, why):
    lines = [{"step": 1, "mlm_loss": 40.0}, *({"step": 2, "mlm_loss": training_loss} for _ in range(10))]
    lines.append({"step": 2, "held_out_loss": 12.5})
    with pytest.warns(InputWarning, match=rf"loss of 12\.5 nats is far above the 4\.7 .*: the run has {why}"):
        _warn_of_high_loss(12.5, 109, lines)


@pytest.mark.parametrize(
    "given", [{"seq_length": "32"}, {"seq_length": "16:0.5,32:0.5"}, {"steps": 9}, {"minutes": 1}]
)
def test_positions_that_are_fewer_than_the_longest_sequence_are_refused(given):
    message = "max_positions=16 is less than the longest sequence, 32 tokens; give at least 32, or shorter"
    with pytest.raises(InputError, match=message):
        PretrainOptions(max_positions=16, **given).resolved().check_positions()
    PretrainOptions(max_positions=32, **given).resolved().check_positions()
    PretrainOptions(max_positions=16, model="any", **given).resolved().check_positions()  # it has its own


def test_nan_in_training_is_a_failed_run_with_its_checkpoints_intact(corpus, tmp_path, monkeypatch):
    real = MaskedAndNext.forward

    def forward(self, ops, params, batch, step):
        metrics, saved = real(self, ops, params, batch, step)
        return metrics | {"loss": float("nan")} if step == 7 else metrics, saved

    monkeypatch.setattr(MaskedAndNext, "forward", forward)
    out = tmp_path / "run"
    with pytest.raises(RunError, match="The loss of step 8 is nan"):
        pretrain(small_options(corpus, checkpoint_steps=3), out, show=False)
    assert latest(out / "checkpoints").state["step"] == 6
    monkeypatch.undo()
    resumed = PretrainOptions.resumed(out / "training.json")
    assert pretrain(resumed, out, resume=True, show=False)["steps"] == 12


@pytest.mark.thorough
def test_a_damaged_last_checkpoint_is_passed_over_and_reported(corpus, tmp_path, capsys):
    whole, out = tmp_path / "whole", tmp_path / "run"
    for folder in (whole, out):
        pretrain(small_options(corpus, checkpoint_steps=5, keep=0), folder, show=False)
    *_, last = checkpoints(out / "checkpoints")
    last.write_bytes(last.read_bytes()[:1000])
    (out / "model.safetensors").unlink()
    pretrain(PretrainOptions.resumed(out / "training.json"), out, resume=True, show=False)
    assert "Passed over a checkpoint that can't be used" in capsys.readouterr().err
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_evaluation_batches_end_for_a_text_too_small_for_the_targets(run):
    text = loaded_task(run).text
    batches = list(evaluation_batches(text.held_out(16), text.tokenizer.mask_id, targets=10**9))
    assert 0 < sum(batch.S for batch in batches) < 10_000


def test_progress_without_a_terminal_is_lines(corpus, tmp_path, capsys):
    pretraining.pretrain(small_options(corpus, steps=2), tmp_path / "run")
    captured = capsys.readouterr()
    assert captured.out == ""
    losses = r"mlm loss \d\.\d{3} \(\d+%\)  nsp loss \d\.\d{3} \(\d+%\)"
    speed = r"[\d,]+ tokens/s  \d+ GFLOP/s  (\d+% of peak  )?rate \d\.\de-\d\d"
    assert re.search(rf"step 2/2  {losses}  {speed}  00:00 left\n", captured.err)
