"""Pre-training from one document, or from one document a line, without blank lines."""

import pytest
from small_corpus import write_corpus

from minibert import cli
from minibert.base.errors import InputError
from minibert.data.shards.joined import open_shards
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import prepare_text

pytestmark = pytest.mark.usefixtures("few_passes")


def small_options(corpus, **more):
    return PretrainOptions(corpus=str(corpus), vocab_size=120, seq_length="16", steps=2, **more)


@pytest.fixture
def novel(tmp_path):
    """One document of 288 sentences."""
    text = write_corpus(tmp_path / "novel.txt").read_text()
    (tmp_path / "novel.txt").write_text("\n".join(filter(None, text.split("\n"))))
    return tmp_path / "novel.txt"


@pytest.mark.parametrize("next_sentence", [True, False])
def test_one_document_is_refused_with_both_layouts_named(novel, tmp_path, next_sentence):
    with pytest.raises(InputError, match="layout='documents' .* or layout='continuous' .the text is cut"):
        prepare_text(small_options(novel, next_sentence=next_sentence), tmp_path / "run", show=False)


def test_command_names_the_layouts_as_flags(novel, tmp_path, capsys):
    words = ["pretrain", str(novel), "--vocab-size", "120", "--steps", "1", "--out", str(tmp_path / "run")]
    assert cli.main([*words, "--quiet"]) == 2
    said = capsys.readouterr().err
    assert (
        "--layout documents (each line is one) or --layout continuous (the text is cut into documents)"
        in said
    )
    assert not (tmp_path / "run").exists()


def test_one_document_is_learnt_from_when_it_is_continuous(novel, tmp_path):
    text = prepare_text(small_options(novel, layout="continuous"), tmp_path / "run", show=False)
    counts = open_shards(tmp_path / "run" / "shards", text.tokenizer).sentence_counts
    assert counts.tolist() == [32] * 9 and text.next_sentence


def test_a_document_a_line_is_learnt_from(tmp_path):
    documents = write_corpus(tmp_path / "a.txt").read_text().split("\n\n")
    (tmp_path / "lines.txt").write_text("\n".join(one.replace("\n", " ") for one in documents))
    text = prepare_text(small_options(tmp_path / "lines.txt", layout="documents"), tmp_path / "run", False)
    counts = open_shards(tmp_path / "run" / "shards", text.tokenizer).sentence_counts
    assert counts.tolist() == [12] * 24 and text.next_sentence
