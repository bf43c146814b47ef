"""A trained BERT that knows one segment only (type_vocab_size=1) is asked no pairs."""

import re

import pytest
from small_corpus import write_corpus

import minibert
from minibert import Bert, BertConfig, Tokenizer, cli
from minibert.model.params import initialise
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.predict import evaluate
from minibert.pretraining.preparation import learn_vocabulary

pytestmark = pytest.mark.usefixtures("few_passes")
ONE = "knows one segment only (type_vocab_size=1), and next-sentence prediction needs two; set "


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "one"
    tokenizer = learn_vocabulary([corpus], 120, show=False)
    config = BertConfig.from_size("1-32-2", vocab_size=tokenizer.vocab_size, type_vocab_size=1)
    Bert(config, initialise(config, seed=0), tokenizer=Tokenizer(tokenizer.vocab)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("engine", ["cpp", "numba", "numpy", "jax"])
def test_command_refuses_pairs_before_any_text_is_read(model, corpus, tmp_path, engine, monkeypatch, capsys):
    monkeypatch.setattr("minibert.pretraining.run.prepare_text", lambda *_, **__: pytest.fail("it was read"))
    words = ["pretrain", str(corpus), "--model", str(model), "--steps", "1", "--engine", engine, "--quiet"]
    assert cli.main([*words, "--out", str(tmp_path / "run")]) == 2
    assert f"{ONE}--no-nsp." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_python_names_the_argument(model, corpus, tmp_path):
    with pytest.raises(minibert.InputError, match=re.escape(f"{ONE}next_sentence=False.")):
        minibert.pretrain(corpus, model=str(model), steps=1, out=tmp_path / "run", show=False)
    assert not (tmp_path / "run").exists()


def test_single_spans_are_trained_further_and_evaluated(model, corpus, tmp_path):
    options = dict(model=str(model), steps=1, seq_length="16", next_sentence=False, engine="numpy")
    run = minibert.pretrain(corpus, **options, out=tmp_path / "run", show=False)
    assert run.report["held_out"]["next_accuracy"] is None
    assert PretrainOptions.load(tmp_path / "run" / "training.json").model == str(model)


def test_evaluation_on_a_text_has_no_pairs(model, tmp_path):
    text = write_corpus(tmp_path / "text.txt", documents=6)
    plain = evaluate(model, (str(text),), targets=100, engine="numpy", seq_length=16)
    assert plain.targets >= 100 and plain.next_accuracy is None


@pytest.mark.parametrize("engine", ["cpp", "numba", "numpy", "jax"])
def test_encoding_a_pair_says_that_single_texts_are_read(model, engine):
    with pytest.raises(minibert.InputError, match="knows one segment only, so give single texts, not pairs"):
        Bert.from_pretrained(model, engine).encode([("the cat", "the dog")])


def test_features_of_pairs_say_so_too(model, tmp_path, capsys):
    words = ["features", "--model", str(model), "--pair", "the cat\tthe dog", "--quiet"]
    assert cli.main([*words, "--out", str(tmp_path / "a.npy")]) == 2
    assert "knows one segment only, so give single texts, not pairs." in capsys.readouterr().err
    assert not (tmp_path / "a.npy").exists()


def test_explorer_takes_no_second_text(model):
    with pytest.raises(minibert.InputError, match="segment only .*text_pair='the dog' is a second; leave"):
        minibert.show(model, text="the cat", text_pair="the dog")
    assert minibert.show(model, text="the cat")


def test_classifier_of_pairs_is_refused(model):
    pairs = [(f"the cat {number}", "the dog") for number in range(40)]
    classifier = minibert.TextClassifier(str(model), epochs=1)
    with pytest.raises(minibert.InputError, match=r"two texts at a time.*type_vocab_size=1"):
        classifier.fit(pairs, ["a", "b"] * 20)
