"""The tokenizer's benchmark does what it says, here on the embedded books."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("tokenizers")

from paths import ROOT
from tokenizer_jobs import encode, learn, texts
from tokenizer_jobs.tables import BEGIN, END, replace_between_marks

from minibert.base.errors import InputError
from minibert.tokenizer import native

pytestmark = pytest.mark.skipif(not native.available(), reason="the C core is not installed")


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    for name in ("WIKIPEDIA", "MULTILINGUAL", "VOCABULARIES"):
        monkeypatch.setattr(texts, name, tmp_path / "none")


def test_books_are_encoded_alike_before_they_are_timed(no_data):
    [case] = texts.cases()
    found = encode.batch(list(case), 0.2, 1, 1)
    assert (case.title, found["texts_left_out"], found["offsets_that_differ"]) == ("the embedded books", 0, 0)
    assert found["bytes"] >= 200_000 and found["ids"] > 40_000
    assert {len(seconds) for seconds in found["seconds"].values()} == {1}


def test_different_ids_stop_the_benchmark(no_data):
    [case] = texts.cases()
    ours = encode.Tokenizer(texts.vocab_of(case), core="c")
    theirs = encode.hugging_face([*ours.vocab[:5], "x", *ours.vocab[5:]], True)
    with pytest.raises(SystemExit, match="only 0 of 2 texts have the same ids"):
        encode.agreeing(ours, theirs, ["the white whale", "call me ishmael"])


def test_repeated_text_has_the_size_asked_for_and_new_words_only_where_asked(no_data, tmp_path):
    length = len(texts.english().encode()) + 2
    repeated = texts.write_repeated(tmp_path / "repeated", 2.5 * length / 1e6).read_bytes()
    assert repeated[:length] == repeated[length : 2 * length] and repeated.endswith(b"\n")
    assert 0 <= 2.5 * length - len(repeated) < 10_000
    shifted = texts.write_repeated(tmp_path / "shifted", 2 * length / 1e6, new_words=True).read_bytes()
    assert b" the " in shifted[:length] and b" uif " in shifted[length:] and b" the " not in shifted[length:]


def test_both_trainers_learn_as_many_pieces(no_data, tmp_path, monkeypatch):
    path = str(texts.write_repeated(tmp_path / "corpus", 0.5))
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    ours, theirs = learn.minibert(path, 2000, "frequency", 1), learn.hugging_face(path, 2000, 1)
    assert len(ours["vocab"]) == len(theirs["vocab"]) == 2000
    assert len(set(ours["vocab"]) & set(theirs["vocab"])) > 1900
    assert ours["peak"] > 1e7 and theirs["peak"] > 1e7


def test_tables_replace_what_stands_between_the_marks():
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replace_between_marks(page, "new") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    for broken in ("no marks", f"{END} {BEGIN}", BEGIN):
        with pytest.raises(InputError, match="results.md lacks the line"):
            replace_between_marks(broken, "new")
    assert BEGIN in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_whole_benchmark_runs_quickly_without_data(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / "tokenizer.py"), "--quick", "--json"]
    environment = {**os.environ, "MINIBERT_DATA": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.keys() == {"machine", "quick", "batches", "short", "learning", "large", "shards"}
    assert "no mixed scripts" in done.stderr and "MINIBERT_DATA" in done.stderr
