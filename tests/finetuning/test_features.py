"""Vectors of tokens and texts: their values, their order, their files, the command."""

import dataclasses
import io
import json
import os
import threading

import numpy as np
import pytest
from command import PATIENCE, ends_badly, environment, notice, start  # noqa: F401 (a fixture)
from small_entities import write_model
from text_vectors import vectors_of

from minibert import Bert, Tokenizer, cli, hub
from minibert.ask.inference import layer_numbers
from minibert.base.errors import InputError
from minibert.cli.shared.texts import text_lines
from minibert.finetuning.frozen import features as module
from minibert.finetuning.frozen.features import (
    Extractor,
    borders_file,
    write_features,
)
from minibert.model.params import Head, Parameters

TEXTS = [
    "anna lives in paris .",
    "",
    "the film is very good and the book is dull .",
    "rome",
    "anna lives in paris .",
    "who ? where ?",
    "the song was here and ben was here and cleo was here and dan was here .",
    "a poor play .",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder):
    return Bert.from_pretrained(folder, "numpy")


@pytest.fixture(scope="module")
def tokenizer(folder):
    return Tokenizer.from_pretrained(folder)


def assert_near(found, expected):
    assert np.asarray(found).shape == np.asarray(expected).shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("layers", [-1, "embeddings", "all", "-1,-2", [1, 0, 2]])
def test_vectors_are_the_hidden_states_of_each_text_alone(model, tokenizer, layers):
    numbers = layer_numbers(layers, model.config.L)
    found = {pool: vectors_of(model, TEXTS, layers, pool) for pool in ("none", "cls", "mean")}
    for number, text in enumerate(TEXTS):
        alone = model.encode(tokenizer(text))
        rows = np.concatenate([alone.hidden_states[layer] for layer in numbers], axis=1)
        assert_near(found["none"][number], rows)
        assert_near(found["cls"][number], rows[0])
        assert_near(found["mean"][number], rows.mean(0))


def test_the_pooled_vector_is_the_poolers_output(model, tokenizer):
    found = vectors_of(model, TEXTS, pool="pooled")
    assert_near(found, np.concatenate([model.encode(tokenizer(text)).pooled for text in TEXTS]))


def test_the_vector_is_the_largest_of_each_number_and_may_have_length_one(model, tokenizer):
    rows = [model.encode(tokenizer(text)).hidden_states[-1] for text in TEXTS]
    found = vectors_of(model, TEXTS, pool="max")
    assert_near(found, [one.max(0) for one in rows])
    unit = vectors_of(model, TEXTS, pool="max", normalize=True)
    assert_near(unit, found / np.linalg.norm(found, axis=1, keepdims=True))
    tokens = vectors_of(model, TEXTS, pool="none", normalize=True)
    assert_near(tokens[2], rows[2] / np.linalg.norm(rows[2], axis=1, keepdims=True))


def test_what_was_encoded_is_pooled_in_the_same_way(model, tokenizer):
    encoded = model.encode([tokenizer(text) for text in TEXTS])
    for pool in ("cls", "mean", "max", "pooled"):
        for normalize in (False, True):
            expected = vectors_of(model, TEXTS, pool=pool, normalize=normalize)
            assert_near(encoded.vectors(pool, normalize), expected)
    nothing = dataclasses.replace(encoded, hidden_states=[np.zeros_like(encoded.hidden_states[-1])])
    assert not nothing.vectors(normalize=True).any()
    bare = dataclasses.replace(encoded, pooled=None)
    for pool in ("pooled", "none"):
        with pytest.raises(InputError, match=f"pool='{pool}' is not possible; choose cls, mean, max"):
            bare.vectors(pool)


def test_a_pair_is_read_as_one_sequence_of_two_segments(model, tokenizer):
    pairs = [(one, other) for one, other in zip(TEXTS, reversed(TEXTS), strict=True) if one and other]
    expected = [model.encode(tokenizer(*pair)).vectors()[0] for pair in pairs]
    assert_near(vectors_of(model, pairs), expected)


def test_the_command_takes_pairs_and_makes_vectors_of_length_one(folder, tmp_path, capsys):
    pairs = [("anna lives in rome .", "who ?"), ("a poor play .", "rome")]
    (tmp_path / "pairs").write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
    words = ["features", "--model", str(folder), "--out", str(tmp_path / "v.npy"), "--pair", "--normalize"]
    expected = vectors_of(Bert.from_pretrained(folder), pairs, normalize=True)
    for given in (["--file", str(tmp_path / "pairs")], ["\t".join(pair) for pair in pairs]):
        assert cli.main([*words, *given, "--quiet"]) == 0
        assert_near(np.load(tmp_path / "v.npy"), expected)
    (tmp_path / "pairs").write_text("a\tb\nc\n")
    capsys.readouterr()
    line = ends_badly(capsys, 2, *words, "--file", str(tmp_path / "pairs"))
    assert "Text 2 has no tab; --pair needs one between two texts." in line


def test_left_to_right_pools_the_last_token_never_cls(model, tokenizer):
    config = dataclasses.replace(model.config, is_decoder=True)
    causal = Bert(config, Parameters(config, model.params.flat), model.ops, tokenizer)
    found = vectors_of(causal, TEXTS, pool="pooled")
    assert_near(found, np.concatenate([causal.encode(tokenizer(text)).pooled for text in TEXTS]))
    assert len(np.unique(found.round(5), axis=0)) == len(set(TEXTS))  # of [CLS] there would be one only
    with pytest.raises(InputError, match="pool='cls' is the same vector for every text"):
        vectors_of(causal, TEXTS, pool="cls")


def test_vectors_do_not_depend_on_batches_and_chunks(model, tokenizer, monkeypatch):
    whole = vectors_of(model, TEXTS, pool="none", layers="all")
    monkeypatch.setattr(module, "TOKEN_BUDGET", 5)
    monkeypatch.setattr(module, "CHUNK_TOKENS", 20)
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 3)
    parts = vectors_of(model, TEXTS, pool="none", layers="all")
    for one, other in zip(parts, whole, strict=True):
        assert_near(one, other)


def test_texts_are_read_a_few_at_a_time(model, tokenizer, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_TOKENS", 20)
    read = []

    def many():
        for number in range(1000):
            read.append(number)
            yield TEXTS[number % len(TEXTS)]

    stream = Extractor(model).stream(many())
    next(stream)
    assert len(read) == module.TEXTS_AT_ONCE


def test_a_text_too_long_loses_its_end_and_says_so(model, tokenizer, tmp_path):
    text = "anna lives in paris . the film is good"
    extractor = Extractor(model, pool="none", max_length=6)
    with pytest.warns(UserWarning, match="1 text has more than 6 tokens; the ends were cut"):
        report = write_features(extractor, [text, "rome"], tmp_path / "v.npy")
    assert report["cut"] == 1
    expected = model.encode(tokenizer("anna lives in paris")).hidden_states[-1]
    assert_near(np.load(tmp_path / "v.npy")[:6], expected)


def test_bytes_are_texts_as_well(model, tokenizer):
    assert_near(vectors_of(model, [text.encode() for text in TEXTS]), vectors_of(model, TEXTS))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"layers": "3"},
            "layers='3' is not possible; give a number from -3 to 2 .-1 is the last layer., several",
        ),
        ({"layers": "-1,2"}, "layers='-1,2' is not possible; give a number from -3"),
        ({"layers": "last"}, "layers='last' is not possible; give a number from -3"),
        (
            {"layers": []},
            r"layers=\[\] is not possible; give a number from -3 to 2 .-1 is the last layer., a list",
        ),
        ({"pool": "sum"}, "pool='sum' is unknown; choose one of cls, mean, max, pooled, none"),
        (
            {"texts": ["rome", ("rome", "paris")]},
            "Some texts are pairs and others are not; give a",
        ),
        ({"pool": "pooled", "layers": 1}, "pool='pooled' reads the last layer"),
        ({"max_length": 65}, "max_length=65 is not possible; give 2 .* to 64, the model's positions"),
    ],
)
def test_impossible_vectors_are_refused(model, tokenizer, arguments, message):
    with pytest.raises(InputError, match=message):
        vectors_of(model, **{"texts": TEXTS} | arguments)


# Files


def test_an_array_has_a_row_for_each_text(model, tokenizer, tmp_path):
    report = write_features(Extractor(model), iter(TEXTS), tmp_path / "v.npy")
    found = np.load(tmp_path / "v.npy")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, vectors_of(model, TEXTS))
    n_tokens = sum(len(tokenizer(text)) for text in TEXTS)
    assert report == {"texts": 8, "blank": 0, "tokens": n_tokens, "width": 32, "cut": 0}
    assert [path.name for path in tmp_path.iterdir()] == ["v.npy"]


def test_an_array_of_tokens_says_where_texts_begin(model, tokenizer, tmp_path):
    extractor = Extractor(model, "-1,-2", "none")
    write_features(extractor, TEXTS, tmp_path / "v.npy")
    rows, borders = np.load(tmp_path / "v.npy"), np.load(borders_file(tmp_path / "v.npy"))
    assert borders_file(tmp_path / "v.npy").name == "v.cu_seqlens.npy"
    assert borders.tolist() == np.cumsum([0, *(len(tokenizer(text)) for text in TEXTS)]).tolist()
    expected = np.concatenate(vectors_of(model, TEXTS, "-1,-2", "none"))
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("pool", ["mean", "none"])
def test_borders_of_older_rows_never_stand_beside_new_ones(model, tokenizer, tmp_path, monkeypatch, pool):
    out = tmp_path / "v.npy"
    write_features(Extractor(model, pool="none"), TEXTS, out)
    write, seen = module.write_atomically, []

    def watched(path, *rest):
        write(path, *rest)
        seen.append({file.name for file in tmp_path.iterdir()})

    monkeypatch.setattr(module, "write_atomically", watched)
    write_features(Extractor(model, pool=pool), TEXTS[:2], out)
    assert seen[0] == {"v.npy"}
    assert borders_file(out).exists() is (pool == "none")


def test_lines_of_json_hold_the_same_numbers(model, tokenizer, tmp_path):
    write_features(Extractor(model), TEXTS, tmp_path / "v.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text("utf-8").splitlines()]
    found = np.array([line["vector"] for line in lines], np.float32)
    np.testing.assert_array_equal(found, vectors_of(model, TEXTS))
    write_features(Extractor(model, pool="none"), ["rome !"], tmp_path / "t.jsonl")
    line = json.loads((tmp_path / "t.jsonl").read_text("utf-8"))
    assert line["tokens"] == ["[CLS]", "rome", "[UNK]", "[SEP]"]
    assert np.shape(line["vectors"]) == (4, 32)


def test_a_file_is_whole_or_not_there(model, tokenizer, tmp_path):
    def broken():
        yield from TEXTS
        raise InputError("the end is missing")

    with pytest.raises(InputError, match="the end is missing"):
        write_features(Extractor(model), broken(), tmp_path / "v.npy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize(("pool", "room"), [("mean", 256), ("none", 2048)])
def test_a_full_disk_is_no_finished_array(folder, tmp_path, pool, room):
    resource = pytest.importorskip("resource")
    text, out = tmp_path / "text.txt", tmp_path / "out" / "v.npy"
    text.write_text("rome\n" * 40)  # 40 x 32 x 4 bytes, or three times as many
    process = start(
        *("features", "--model", folder, "--file", text, "--out", out, "--pool", pool, "--quiet"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        env=environment() | {"PYTHONDONTWRITEBYTECODE": "1"},  # which would be cut as well, and kept
    )
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "v.npy could not be written" in errors, errors
    assert output == "" and not out.parent.exists()


def test_an_empty_text_file_makes_an_empty_array(model, tokenizer, tmp_path):
    write_features(Extractor(model, pool="none"), [], tmp_path / "v.npy")
    assert np.load(borders_file(tmp_path / "v.npy")).tolist() == [0]
    assert np.load(tmp_path / "v.npy").shape == (0, 32)
    write_features(Extractor(model), [], tmp_path / "mean.npy")
    assert np.load(tmp_path / "mean.npy").shape == (0, 32)


def test_vectors_are_those_of_the_encoder_whatever_stands_on_it(model, tokenizer, tmp_path):
    params, _ = model.params.with_head(Head("classify", 2), seed=0)
    hub.save_hf(tmp_path, model.config, params, ("bad", "good"))
    tokenizer.save_pretrained(tmp_path)
    encoder = Bert.from_pretrained(tmp_path, "numpy")
    np.testing.assert_array_equal(encoder.params["embeddings.word"], model.params["embeddings.word"])
    for pool in ("mean", "pooled"):
        np.testing.assert_array_equal(
            vectors_of(encoder, TEXTS, pool=pool), vectors_of(model, TEXTS, pool=pool)
        )


def test_a_model_without_a_pooler_has_no_pooled_vectors(folder, model, tmp_path, capsys):
    bare = Bert.from_pretrained(folder, "numpy")
    bare.missing = ("bert.pooler.dense.weight", "bert.pooler.dense.bias")
    with pytest.raises(InputError, match="pool='pooled' needs a pooler, which this model lacks; choose"):
        Extractor(bare, pool="pooled")
    np.testing.assert_array_equal(vectors_of(bare, TEXTS), vectors_of(model, TEXTS))
    bare.save_pretrained(tmp_path / "bare")
    words = ["features", "rome", "--model", tmp_path / "bare", "--out", tmp_path / "v.npy"]
    line = ends_badly(capsys, 2, *map(str, words), "--pool", "pooled")
    assert "--pool pooled needs a pooler, which this model lacks; choose another pool." in line


# The command


def test_command_writes_vectors_of_the_lines_of_a_file(folder, model, tokenizer, tmp_path, capsys):
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n", "utf-8")
    words = ["features", "--model", folder, "--file", tmp_path / "t.txt", "--out", tmp_path / "v.npy"]
    words += ["--layers", "-1,-2", "--pool", "cls", "--engine", "numpy"]
    assert cli.main([*map(str, words)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("8 lines (1 of them blank), ")
    assert "64 numbers in a vector" in said
    found, expected = np.load(tmp_path / "v.npy"), vectors_of(model, TEXTS, "-1,-2", "cls")
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(np.delete(found, 1, axis=0), np.delete(expected, 1, axis=0))


@pytest.mark.parametrize("pair", [False, True])
def test_a_blank_line_keeps_its_place_without_a_vector(folder, tmp_path, pair):
    line = "rome\twho ?" if pair else "rome"
    (tmp_path / "t.txt").write_text(f"\n{line}\n \n{line}\n\t\n", "utf-8")
    words = ["features", "--model", str(folder), "--file", str(tmp_path / "t.txt"), "--quiet"]
    words += ["--pair"] * pair
    assert cli.main([*words, "--out", str(tmp_path / "v.jsonl")]) == 0
    rows = [json.loads(row)["vector"] for row in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [row is None for row in rows] == [True, False, True, False, True] and rows[1] == rows[3]
    assert cli.main([*words, "--out", str(tmp_path / "v.npy"), "--pool", "none"]) == 0
    borders = np.load(borders_file(tmp_path / "v.npy"))
    assert (np.diff(borders) > 0).tolist() == [False, True, False, True, False]
    assert len(np.load(tmp_path / "v.npy")) == borders[-1]


def test_command_reads_the_standard_input(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"rome\r\noslo"), encoding="utf-8"))
    words = [
        "features",
        "--model",
        str(folder),
        "--out",
        str(tmp_path / "v.jsonl"),
        "--json",
        "--engine",
        "numpy",
    ]
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out)["texts"] == 2
    assert len((tmp_path / "v.jsonl").read_text("utf-8").splitlines()) == 2


@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbfrome\rparis\r\n\noslo", b"rome\n", b"rome\r", b"", b"\xef\xbb\xbf"]
)
def test_lines_are_the_same_from_a_file_and_from_the_standard_input(data, tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_bytes(data)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
    assert list(text_lines("-")) == list(text_lines(str(tmp_path / "t.txt")))


def test_lines_before_a_byte_that_is_not_utf8_are_read(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"rome\noslo\xff\n"), encoding="utf-8"))
    lines = text_lines("-")
    assert next(lines) == "rome"
    with pytest.raises(InputError, match="the standard input is not UTF-8: byte 0xff at offset 9 of the"):
        next(lines)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_can_be_named_as_the_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"rome\noslo\n"), daemon=True)
    writer.start()
    assert list(text_lines(str(tmp_path / "pipe"))) == ["rome", "oslo"]


def test_command_says_what_is_wrong(folder, tmp_path, capsys):
    def complaint(*words):
        return ends_badly(capsys, 2, "features", "--model", str(folder), *words, "--engine", "numpy")

    assert "give it the suffix .npy or .jsonl" in complaint("--out", "v.txt")
    there = str(tmp_path / "v.npy")
    assert "There is no file" in complaint("--out", there, "--file", str(tmp_path / "no.txt"))
    (tmp_path / "bad.txt").write_bytes(b"rome\n\xff\n")
    assert "not UTF-8" in complaint("--out", there, "--file", str(tmp_path / "bad.txt"))
    assert "--layers 9 is not possible" in complaint("--out", there, "--layers", "9")
    assert not (tmp_path / "v.npy").exists()
