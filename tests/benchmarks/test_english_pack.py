"""The model in the package is a run in float16, without what was not trained, and with its digests."""

import json
import re
import subprocess

import english_facts
import english_pack
import numpy as np
import pytest
from small_corpus import write_corpus

import minibert
from minibert import hub
from minibert.base import bundled_models
from minibert.base.bundled_models import DIGESTS_FILE
from minibert.base.errors import InputError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of two steps without next sentences."""
    folder = tmp_path_factory.mktemp("run")
    corpus = write_corpus(folder / "text.txt")
    small = {"size": "1-8-2", "vocab_size": 60, "seq_length": "16", "batch_size": 2, "max_positions": 32}
    minibert.pretrain(corpus, steps=2, out=folder / "run", next_sentence=False, keep=0, show=False, **small)
    return folder / "run"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_packing_twice_writes_the_same_bytes_which_sha256sum_confirms(run, tmp_path):
    out = tmp_path / "english"
    english_pack.pack(run, out)
    first = contents(out)
    (out / "left over").touch()
    english_pack.pack(run, out)
    assert contents(out) == first
    command = ["sha256sum", "--check", "--strict", DIGESTS_FILE]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True, check=True)
    checked = {line.removesuffix(": OK") for line in done.stdout.splitlines()}
    assert checked == first.keys() - {DIGESTS_FILE}


def test_what_was_packed_is_the_run_rounded_to_float16_without_its_pooler(run, tmp_path, monkeypatch):
    english_pack.pack(run, tmp_path / "english")
    monkeypatch.setattr(bundled_models, "FOLDER", tmp_path)
    model = minibert.load("english")
    _, trained, _ = hub.load(run)
    packed = hub.to_hf(model.params)
    assert model.params.flat.dtype == np.float32
    untrained = {name for name in packed if "pooler" in name or "seq_relationship" in name}
    assert set(model.missing) == untrained and len(untrained) == 4
    for name, value in hub.to_hf(trained).items():
        if name not in untrained:
            np.testing.assert_array_equal(packed[name], value.astype(np.float16).astype(np.float32))


def test_facts_tell_what_the_run_recorded_and_what_rounding_changed(run, tmp_path, capsys):
    told = english_pack.pack(run, tmp_path / "english")
    assert english_facts.main([str(run), "--packed", str(tmp_path / "english")]) == 0
    text = capsys.readouterr().out
    report = json.loads((run / "report.json").read_text("utf-8"))
    assert f"| steps, tokens | 2, {report['tokens']:,} |" in text
    assert f"| held-out loss | {report['held_out']['loss']:.3f} nats" in text
    largest, share = told["largest change by rounding"], told["change by rounding, share of the norm"]
    assert f"by at most {largest} in float16, all weights together by {share} of their length." in text
    assert "nats per byte" not in text  # as no book was named


def test_facts_tell_runs_with_other_losses_apart(run):
    records = list(english_facts.records_of(run))
    [(told, digest)] = english_facts.beginning(records)
    assert told.endswith("first 2 steps")
    records[0]["loss"] = float(np.nextafter(records[0]["loss"], 0))
    assert list(english_facts.beginning(records)) != [(told, digest)]


@pytest.mark.filterwarnings("ignore:This model was pre-trained on sequences of up to 16")
def test_the_card_lists_what_the_packed_model_was_trained_on_before(run, tmp_path):
    english_pack.pack(run, tmp_path / "packed")
    more = {"model": tmp_path / "packed", "vocab": run, "steps": 3, "seq_length": "16", "batch_size": 2}
    corpus = write_corpus(tmp_path / "text.txt")
    minibert.pretrain(corpus, out=tmp_path / "more", show=False, **more)
    english_pack.pack(tmp_path / "more", tmp_path / "packed-again")
    card = (tmp_path / "packed-again" / "README.md").read_text("utf-8")
    tokens = json.loads((run / "report.json").read_text("utf-8"))["tokens"]
    assert f"- Before: 2 steps, {tokens:,} tokens, on single texts.\n" in card
    minibert.pretrain(
        corpus, out=tmp_path / "third", show=False, **(more | {"model": tmp_path / "packed-again"})
    )
    english_pack.pack(tmp_path / "third", tmp_path / "english")
    card = (tmp_path / "english" / "README.md").read_text("utf-8")
    assert card.count("\n- Before: ") == 2 and re.search("^- Before: 3 steps, .* on pairs.$", card, re.M)


def test_the_card_names_the_sources_of_the_text_and_how_to_use_the_model(run, tmp_path):
    english_pack.pack(run, tmp_path / "english")
    card = (tmp_path / "english" / "README.md").read_text("utf-8")
    assert "Wikipedia" in card and "https://creativecommons.org/licenses/by-sa/4.0/" in card
    assert 'minibert.load("english")' in card and str(run.parent) not in card
    assert "It has no licence of its own" not in card
    assert 'license: "apache-2.0"\n' in card and card.count("## Licence and attribution") == 1


def test_a_step_on_the_way_is_packed_with_its_weights(run, tmp_path):
    english_pack.pack(f"{run}@0", tmp_path / "english")
    _, params, _ = hub.load(f"{run}@0")
    _, packed, _ = hub.load(tmp_path / "english")
    expected = params["embeddings.word"].astype(np.float16)
    np.testing.assert_array_equal(packed["embeddings.word"], expected)
    assert "Its training was not finished" in (tmp_path / "english" / "README.md").read_text("utf-8")


def test_a_model_that_is_too_large_is_refused_and_the_old_one_stays(run, tmp_path, monkeypatch):
    out = tmp_path / "english"
    english_pack.pack(run, out)
    before = contents(out)
    monkeypatch.setattr(english_pack, "LARGEST", 1000)
    with pytest.raises(InputError, match=r"would have [\d,]+ bytes, more than 1,000"):
        english_pack.pack(run, out)
    assert contents(out) == before and list(tmp_path.iterdir()) == [out]
