"""New pieces in a trained BERT: what is old stays to the bit, what is new begins where it should."""

import dataclasses
import json
import re

import numpy as np
import pytest
from command import ends_badly
from engines import ENGINES
from small_corpus import write_corpus
from small_tasks import write_model

from minibert import Bert, Tokenizer, cli, hub
from minibert.base.errors import InputError
from minibert.core.config import BertConfig
from minibert.data.shards import store
from minibert.model.params import Head, Parameters, initialise
from minibert.pretraining import predict, whole_words
from minibert.pretraining.extension import extend, report_text
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.predict import evaluate_words
from minibert.pretraining.run import pretrain
from minibert.tokenizer import SPECIAL_TOKENS
from minibert.tokenizer.extending import learn_pieces

LETTERS = "abcdefghilnoprstuwy"
VOCAB = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", "the", "##og", "ca", "in"]
TEXT = "The cat sleeps in the house. A dog runs, and the catalogue is a thing of a kind."


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small BERT with rows of padding behind its vocabulary."""
    folder = tmp_path_factory.mktemp("models") / "small"
    config = BertConfig(len(VOCAB) + 2, 16, 2, 2, 24, max_position_embeddings=64, trained_length=40)
    params = initialise(config, 3)
    params.flat[:] += np.random.default_rng(0).normal(0, 0.1, params.flat.shape)
    hub.save_hf(folder, config, params)
    Tokenizer(VOCAB).save_pretrained(folder, config.P)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "text.txt", documents=12)


def words_in(tmp_path, *words):
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return path


@pytest.mark.representatives(engine="numpy")
@pytest.mark.parametrize("engine", ENGINES)
def test_old_texts_have_the_same_ids_hidden_states_and_logits_of_old_pieces(engine, model, tmp_path):
    extend(model, tmp_path / "out", words=words_in(tmp_path, "house", "", " dog "), show=False)
    before, after = Tokenizer.from_pretrained(model), Tokenizer.from_pretrained(tmp_path / "out")
    assert after.vocab == [*VOCAB, "house", "dog"]
    assert after.tokenize("the house") == ["the", "house"] and len(before.tokenize("the house")) == 6
    old_text = TEXT.replace("house", "hut").replace("dog", "pig")
    assert before.encode(old_text) == after.encode(old_text)
    small, large = (Bert.from_pretrained(one, engine, threads=1) for one in (model, tmp_path / "out"))
    assert large.config.trained_length == 40 and large.missing == ()
    encodings = [one(old_text) for one in (before, after)]
    states = [one.encode(of).hidden_states for one, of in zip((small, large), encodings, strict=True)]
    for one, other in zip(*states, strict=True):
        np.testing.assert_array_equal(one, other)
    rows = np.arange(len(encodings[0].ids))
    logits = [one.masked_lm_logits(encodings[0], rows)[:, : len(VOCAB)] for one in (small, large)]
    np.testing.assert_allclose(*logits, rtol=0, atol=1e-5)


def test_a_new_word_begins_as_the_mean_of_its_pieces(model, tmp_path):
    extend(model, tmp_path / "out", words=words_in(tmp_path, "cats", "ß"), show=False)
    tokenizer = Tokenizer.from_pretrained(model)
    old, new = hub.load(model)[1], hub.load(tmp_path / "out")[1]
    replaced = {"cats": tokenizer.encode("cats", add_special_tokens=False), "ß": [tokenizer.unk_id]}
    assert [tokenizer.vocab[i] for i in replaced["cats"]] == ["ca", "##t", "##s"]
    assert new.config.V == len(VOCAB) + 2  # the padding has become pieces
    for number, ids in enumerate(replaced.values(), start=len(VOCAB)):
        mean = old["embeddings.word"][ids].astype(np.float64).mean(0)
        np.testing.assert_allclose(new["embeddings.word"][number], mean, rtol=1e-6)
        assert new["mlm.output_bias"][number] == old["mlm.output_bias"][ids].min()
    for name, value in old.items():
        kept = len(VOCAB) if name in ("embeddings.word", "mlm.output_bias") else len(value)
        np.testing.assert_array_equal(new[name][:kept], value[:kept])


def test_a_learned_piece_begins_with_its_own_frequency(model, corpus, tmp_path):
    report = extend(model, tmp_path / "out", learn_from=[corpus], n=6, show=False)
    before, after = Tokenizer.from_pretrained(model), Tokenizer.from_pretrained(tmp_path / "out")
    assert after.vocab[: len(VOCAB)] == VOCAB and after.vocab[len(VOCAB) :] == report["pieces"]
    assert len(report["pieces"]) == 6 and report["measured"]["words"] > 0
    pieces, unknown = report["measured"]["pieces_per_word"], report["measured"]["unknown_words"]
    assert pieces[1] < pieces[0] and unknown == [0, 0]
    # Lines that were held out are not counted: count the others again, by the rule of `count_files`.
    from minibert.tokenizer import count_files

    words = count_files([corpus], before.basic_tokenizer, held_out=50).words
    counts = [np.zeros(one.vocab_size) for one in (before, after)]
    for word, times in words.items():
        for tokenizer, count in zip((before, after), counts, strict=True):
            np.add.at(count, tokenizer.encode(word, add_special_tokens=False), times)
    old, new = (hub.load(one)[1]["mlm.output_bias"] for one in (model, tmp_path / "out"))
    [first] = learn_pieces(before, words, 1)
    assert first.piece == report["pieces"][0] and len(first.replaces) == 2
    rest = np.mean(old[first.replaces] - np.log(1 + counts[0][first.replaces]))
    assert new[len(VOCAB)] == pytest.approx(np.log(1 + counts[1][len(VOCAB)]) + rest, rel=1e-5)


def test_the_report_shows_words_that_begin_with_a_new_one(model, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join([TEXT] * 8))
    command = ["extend", "--model", str(model), "--words", str(words_in(tmp_path, "cat", "ß"))]
    command += ["--measure-on", str(text), "--engine", "numpy", "--quiet", "--out"]
    assert cli.main([*command, str(tmp_path / "out")]) == 0
    output = capsys.readouterr().out
    assert "2 pieces added, 50 in all: cat ß\n1 of them was [UNK], and begins" in output
    assert re.search(r"catalogue \(8\): ca ##t ##a ##l ##og ##u ##e -> cat ##a ##l ##og", output)
    assert re.search(r"loss of whole words, nats per byte +\d\.\d{4}", output)
    stored = json.loads((tmp_path / "out" / "extension.json").read_text())
    assert report_text(stored) + "\n" == output
    assert cli.main([*command, str(tmp_path / "other"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == stored
    after = evaluate_words(tmp_path / "out", (str(text),), engine="numpy").nats_per_byte
    assert stored["measured"]["nats_per_byte"][1] == after
    measure = ["evaluate", "--model", str(tmp_path / "out"), str(text), "--per-byte", "--engine", "numpy"]
    assert cli.main(measure) == 0
    assert capsys.readouterr().out.startswith(f"Loss of whole words  {after:.4f} nats per byte (")
    assert cli.main([*measure, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nats_per_byte"] == after


def test_nothing_is_measured_per_byte_that_fills_no_gaps(model, corpus, tmp_path, capsys):
    tuned = write_model(tmp_path / "tuned", Head("classify", 2))
    (tuned / "task.json").touch()
    error = ends_badly(capsys, 2, "evaluate", "--model", str(tuned), "--per-byte")
    assert "tuned' is fine-tuned; leave out --per-byte." in error
    config, params, _ = hub.load(model)
    causal = dataclasses.replace(config, is_decoder=True)
    hub.save_hf(tmp_path / "causal", causal, Parameters(causal, params.flat))
    Tokenizer(VOCAB).save_pretrained(tmp_path / "causal")
    with pytest.raises(InputError, match="A left-to-right model can't fill a"):
        evaluate_words(tmp_path / "causal", (str(corpus),), engine="numpy")
    (tmp_path / "text.txt").write_text("Ω Ω Ω\n\nΩ Ω")
    with pytest.raises(InputError, match=r"The text has no words to guess, other than \[UNK\]; give more."):
        evaluate_words(model, (str(tmp_path / "text.txt"),), engine="numpy")


@pytest.mark.thorough
def test_a_model_with_new_pieces_trains_further(corpus, tmp_path):
    small = dict(layout="sentences", seq_length="16", batch_size=2, evaluations=0, engine="numpy")
    run, further = tmp_path / "run", tmp_path / "further"
    options = PretrainOptions(
        (str(corpus),), size="1-8-2", vocab_size=50, max_positions=40, steps=2, keep=0,
        checkpoint_steps=1, **small,
    )  # fmt: skip
    pretrain(options, run, show=False)
    report = extend(
        f"{run}@1",
        tmp_path / "out",
        learn_from=[corpus],
        n=5,
        measure_on=[corpus],
        engine="numpy",
        show=False,
    )
    assert report["vocab_size"] == 55 and len(report["measured"]["nats_per_byte"]) == 2
    np.testing.assert_array_equal(
        hub.load(tmp_path / "out")[1]["pooler.weight"], hub.load(f"{run}@1")[1]["pooler.weight"]
    )
    pretrain(
        PretrainOptions((str(corpus),), model=str(tmp_path / "out"), steps=1, **small), further, show=False
    )
    assert Tokenizer.from_pretrained(further).vocab[-5:] == report["pieces"]
    assert Bert.from_pretrained(further, "numpy").config.V == 55


def test_an_encoder_without_a_head_is_extended_and_not_measured(model, corpus, tmp_path):
    config, params, _ = hub.load(model)
    heads = [name for name in hub.to_hf(params) if name.startswith("cls.")]
    hub.save_hf(tmp_path / "bare", config, params, omit=heads)
    Tokenizer(VOCAB).save_pretrained(tmp_path / "bare")
    report = extend(
        tmp_path / "bare",
        tmp_path / "out",
        learn_from=[corpus],
        n=3,
        measure_on=[corpus],
        engine="numpy",
        show=False,
    )
    assert "nats_per_byte" not in report["measured"]
    assert set(hub.load(tmp_path / "out")[2].missing) == set(heads)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        (
            "two words",
            "'two words' is not a word as the tokenizer reads text, where it becomes 'two', 'words'",
        ),
        ("covid-19", "where it becomes 'covid', '-', '19'"),
        (
            "[NEW]",
            "becomes '[', 'new', ']'; give one word per line, without spaces or punctuation; --special-token",
        ),
        ("##ology", "where it becomes '#', '#', 'ology'"),
        ("\u200d", "where it vanishes"),
        ("a" * 201, "a word of over 200 characters is [UNK]; give one word per line"),
        ("a-b\ndog\nc d", "becomes 'a', '-', 'b'; {folder}/words.txt, line 4: 'c d' is not a word"),
    ],
)
def test_what_can_be_no_new_piece_is_refused_with_its_line(word, told, model, tmp_path, capsys):
    words = ["--words", str(words_in(tmp_path, "cats", word))]
    error = ends_badly(capsys, 2, "extend", "--model", str(model), "--out", str(tmp_path / "out"), *words)
    assert "words.txt, line" in error and told.format(folder=tmp_path) in error
    assert not (tmp_path / "out").exists()


def test_known_words_are_left_out_and_counted(model, tmp_path, capsys):
    words = words_in(tmp_path, "the", "COVID", "The", "dog", "thé", "Dog", "dog", "[MASK]")
    with pytest.warns(UserWarning) as caught:
        report = extend(model, tmp_path / "out", words=words, show=False)
    assert report["pieces"] == ["covid", "dog"]
    assert report["known"] == ["the", "The", "thé", "[MASK]"]
    told = [str(one.message) for one in caught]
    known = f"4 words of {words} left out, as the vocabulary has them already: the, The"
    assert any(known in one for one in told)
    assert any(f"2 words of {words} left out as repeated." in one for one in told)


def test_only_known_words_are_refused(model, tmp_path, capsys):
    words = ["--words", str(words_in(tmp_path, "the", "in"))]
    error = ends_badly(capsys, 2, "extend", "--model", str(model), "--out", str(tmp_path / "out"), *words)
    assert "The vocabulary has 'the', 'in' already, and no other word is given; give new ones." in error


@pytest.mark.parametrize("token", ["[DRUG]", "«Ort»", "Ärzte", "x y"])
def test_a_special_token_is_one_piece_everywhere(token, model, tmp_path):
    words = words_in(tmp_path, "house")
    report = extend(model, tmp_path / "out", words=words, special_tokens=[token], show=False)
    assert (report["pieces"], report["special_tokens"]) == ([token, "house"], [token])
    before, after = Tokenizer.from_pretrained(model), Tokenizer.from_pretrained(tmp_path / "out")
    assert after.vocab == [*VOCAB, token, "house"]
    assert after.tokenize(f"the {token}house") == ["the", token, "house"]
    old, new = hub.load(model)[1], hub.load(tmp_path / "out")[1]
    replaced = before.encode(token, add_special_tokens=False)
    mean = old["embeddings.word"][replaced].astype(np.float64).mean(0)
    np.testing.assert_allclose(new["embeddings.word"][len(VOCAB)], mean, rtol=1e-6)


def test_a_word_that_is_given_as_a_special_token_too_is_one_piece(model, tmp_path):
    words = words_in(tmp_path, "dog", "Dog", "Ort", "house")
    with pytest.warns(UserWarning, match="3 words of .* left out, as the vocabulary has them already: dog"):
        report = extend(model, tmp_path / "out", words=words, special_tokens=["dog", "Ort"], show=False)
    assert report["pieces"] == ["dog", "Ort", "house"]
    assert report["known"] == ["dog", "Dog", "Ort"]
    assert Tokenizer.from_pretrained(tmp_path / "out").vocab == [*VOCAB, "dog", "Ort", "house"]
    with pytest.warns(UserWarning, match="1 word of .* left out"):
        report = extend(
            model, tmp_path / "one", words=words_in(tmp_path, "dog"), special_tokens=["dog"], show=False
        )
    assert report["pieces"] == report["known"] == ["dog"]


def test_what_is_learned_is_not_given_as_a_special_token_too(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("Dog house\n" * 60)  # not "dog", which the special token takes
    report = extend(model, tmp_path / "out", learn_from=[text], n=3, special_tokens=["dog"], show=False)
    vocab = Tokenizer.from_pretrained(tmp_path / "out").vocab
    assert report["pieces"][0] == "dog" and len(set(vocab)) == len(vocab) == len(VOCAB) + 4


def test_a_piece_becomes_a_special_token_without_a_new_id(model, tmp_path):
    report = extend(model, tmp_path / "out", special_tokens=["the", "[A]", "[A]"], show=False)
    after = Tokenizer.from_pretrained(tmp_path / "out")
    assert (report["pieces"], after.vocab) == (["[A]"], [*VOCAB, "[A]"])
    assert after.additional_special_tokens == ("the", "[A]")
    again = extend(tmp_path / "out", tmp_path / "more", special_tokens=["[B]"], show=False)
    assert again["special_tokens"] == ["the", "[A]", "[B]"]


@pytest.mark.parametrize("token", ["", " ", " [A]", "[A\n]"])
def test_what_can_be_no_special_token_is_refused(token, model, tmp_path):
    with pytest.raises(InputError, match="can't be a special token; give a string without white space"):
        extend(model, tmp_path / "out", special_tokens=[token], show=False)


def test_what_can_not_be_extended_is_refused(model, corpus, tmp_path, capsys):
    def told(*words, of=model, out="out"):
        where = ("--model", str(of), "--out", str(tmp_path / out))
        return ends_badly(capsys, 2, "extend", *where, *map(str, words))

    learn = ("--learn-from", corpus)
    assert "--n 0 asks for no piece; give at least 1." in told(*learn, "--n", 0)
    words = ("--words", words_in(tmp_path, "cats"))
    no_text = "--n 5 says how many pieces to learn, and there is no text to learn them from; leave it out."
    assert no_text in told(*words, "--n", 5)
    assert "No new pieces are given" in told()
    empty = "There is no word to add; give a file with one word per line."
    assert empty in told("--words", words_in(tmp_path))
    assert "words.txt'; check its name." in told("--words", tmp_path / "no" / "words.txt")
    assert "no folder" in told(*learn, of=tmp_path / "nowhere")
    tuned = write_model(tmp_path / "tuned", Head("classify", 2))
    assert "tuned' was fine-tuned and has no masked-LM head, from which new" in told(*learn, of=tuned)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert "full' exists and is not empty; choose another --out." in told(*learn, out="full")
    (tmp_path / "a.txt").write_text("a a a in the ca")
    assert "no two pieces side by side in a word twice; give more" in told("--learn-from", tmp_path / "a.txt")
    assert "No new pieces are given" in told()
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="No new pieces are given"):
        extend(model, tmp_path / "out")


def test_characters_that_cannot_follow_a_new_piece_are_warned_of(tmp_path):
    vocab = [*SPECIAL_TOKENS, "c", "a", "##at", "##a", "cab"]
    config = BertConfig(len(vocab), 8, 1, 2, 16, max_position_embeddings=16)
    hub.save_hf(tmp_path / "model", config, initialise(config, 0))
    Tokenizer(vocab).save_pretrained(tmp_path / "model")
    with pytest.warns(UserWarning, match="2 characters, such as 'b', have no ## piece of their own: words"):
        extend(tmp_path / "model", tmp_path / "out", words=words_in(tmp_path, "ca"), show=False)


def test_whole_words_are_measured_alike_by_vocabularies_that_cut_them_differently(tmp_path, monkeypatch):
    """A model that gives every piece the same probability: k pieces of a word cost k log V."""
    config = BertConfig(len(VOCAB), 8, 1, 2, 16, max_position_embeddings=200)
    params = initialise(config, 0)
    params["mlm.output_bias"][:] = params["embeddings.word"][:] = 0
    hub.save_hf(tmp_path / "flat", config, params)
    Tokenizer(VOCAB).save_pretrained(tmp_path / "flat")
    text = tmp_path / "text.txt"
    text.write_text("\n".join(["house dog house dog house dog house dog"] * 40))
    extend(tmp_path / "flat", tmp_path / "out", words=words_in(tmp_path, "house", "dog"), show=False)
    long, short = (evaluate_words(tmp_path / one, (str(text),), engine="numpy") for one in ("flat", "out"))
    assert (long.words, long.bytes) == (short.words, short.bytes) and long.words == 50  # 5 of each 32
    assert long.pieces > short.pieces == short.words
    for found, V in ((long, len(VOCAB)), (short, len(VOCAB) + 2)):
        assert found.nats_per_byte == pytest.approx(found.pieces * np.log(V) / found.bytes, rel=1e-5)
    # Nor where a document is longer than shards keep whole, which divide it at some number of pieces.
    text.write_text(
        "\n".join(" ".join(words) for words in np.random.default_rng(0).choice(["house", "dog"], (99, 8)))
    )
    monkeypatch.setattr(store, "LONGEST_DOCUMENT", 500)
    monkeypatch.setattr(predict, "DOCUMENT", 100)
    long, short = (
        evaluate_words(tmp_path / one, (str(text),), layout="sentences", engine="numpy")
        for one in ("flat", "out")
    )
    assert (long.words, long.bytes) == (short.words, short.bytes) and long.words > 100


@pytest.mark.parametrize(("count", "guessed"), [(1, 1), (3, 1), (13, 2)])
def test_a_share_of_whole_words_is_guessed_and_one_of_a_short_text(tmp_path, count, guessed):
    config = BertConfig(len(VOCAB), 8, 1, 2, 16, max_position_embeddings=200)
    hub.save_hf(tmp_path / "model", config, initialise(config, 0))
    Tokenizer(VOCAB).save_pretrained(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text(" ".join(["house"] * count))
    assert evaluate_words(tmp_path / "model", (str(text),), engine="numpy").words == guessed


@pytest.mark.parametrize("before", [0, 3])
def test_whole_words_that_fit_are_masked_and_unknown_ones_only_read(before):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "ab", "##c", "d", "##é", "##f"])
    words = [["ab", "##c"], ["d"], ["[UNK]"], ["d", "##é", "##f"]]
    ids = [7] * before + [tokenizer.ids[piece] for word in words for piece in word]
    borders, drawn = before + np.array([0, 2, 3, 4, 7]), np.array([0, 2, 3])
    cls, sep, mask, unk = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.unk_id
    for room, seen, rows, sizes in (
        (7, [cls, mask, mask, 7, unk, mask, mask, mask, sep], [1, 2, 5, 6, 7], [3, 4]),
        (6, [cls, mask, mask, 7, unk, sep], [1, 2], [3]),  # the last word would need one more
    ):
        guessed = []
        found = whole_words._masked(tokenizer, np.array(ids), borders, drawn, room, guessed)
        assert found.input_ids.tolist() == seen and guessed == sizes
        assert found.masked_positions.tolist() == rows
        assert found.masked_labels.tolist() == [ids[before + row - 1] for row in rows]
