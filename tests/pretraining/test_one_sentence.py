"""Documents of one sentence: tickets, short messages, rows of a table."""

import dataclasses
import json
import warnings

import pytest
from small_corpus import write_corpus

from minibert.base.errors import InputError
from minibert.data.shards.joined import open_shards
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.predict import evaluate
from minibert.pretraining.preparation import prepare_text
from minibert.pretraining.run import pretrain
from minibert.training.runlog import read_metrics

pytestmark = pytest.mark.usefixtures("few_passes")
WARNING = (
    "Next-sentence prediction is not trained: (no document has|only .* is in documents of) two sentences"
)


def small_options(corpus, **more):
    given = dict(
        corpus=(str(corpus),), vocab_size=120, seq_length="16", batch_size=4, max_positions=16, steps=3,
        evaluations=1, held_out=0.2, engine="numpy", dropout=0.0,
    )  # fmt: skip
    return PretrainOptions(**given | more)


def write_tickets(path, pairs=0, documents=100):
    """Write documents of one sentence, except the first `pairs` of them, which have two."""
    tickets = [f"The printer number {number} is broken." for number in range(documents)]
    for number in range(pairs):
        tickets[number] += "\nPlease help."
    path.write_text("\n\n".join(tickets), encoding="utf-8")
    return path


@pytest.mark.representatives(pairs=5)
@pytest.mark.parametrize("pairs", [0, 5])
def test_next_sentences_are_off_without_pairs(tmp_path, pairs):
    text = write_tickets(tmp_path / "tickets.txt", pairs)
    with pytest.warns(UserWarning, match=WARNING):
        report = pretrain(small_options(text), tmp_path / "run", show=False)
    assert report["held_out"]["next_accuracy"] is None
    assert not PretrainOptions.load(tmp_path / "run" / "training.json").next_sentence
    assert all("nsp_loss" not in line for line in read_metrics(tmp_path / "run"))


def test_pairs_in_held_out_documents_alone_are_named_as_the_reason(tmp_path):
    tickets = [f"The printer number {number} is broken." for number in range(10)]
    for number in (4, 9):  # held out
        tickets[number] = "\n".join(f"Line {line} of a long letter about printers." for line in range(20))
    (tmp_path / "tickets.txt").write_text("\n\n".join(tickets), encoding="utf-8")
    with pytest.warns(UserWarning) as caught:
        text = prepare_text(small_options(tmp_path / "tickets.txt"), tmp_path / "run", show=False)
    assert text.held_out_ids.tolist() == [4, 9] and not text.next_sentence
    assert [str(warning.message) for warning in caught] == [
        "Next-sentence prediction is not trained: no training document has two sentences, as those that have "
        "are held out; shuffle the documents, or change `held_out`."
    ]


@pytest.mark.parametrize(
    ("name", "row", "advice"),
    [
        ("a.csv", "{}", "where the rows follow one another, the layout continuous joins"),
        ("a.jsonl", '{{"text": "{}"}}', "where the rows follow one another, the layout continuous joins"),
        ("a.txt", "{}\n", "need blank lines only between documents, or the layout continuous"),
    ],
)
def test_advice_is_for_the_kind_of_file(tmp_path, name, row, advice):
    rows = [row.format(f"The printer number {number} is broken.") for number in range(100)]
    header = ["text"] if name == "a.csv" else []
    (tmp_path / name).write_text("\n".join([*header, *rows]))
    with pytest.warns(UserWarning, match=advice):
        prepare_text(small_options(tmp_path / name), tmp_path / "run", show=False)


def test_switched_off_pairs_equal_no_nsp(tmp_path):
    text = write_tickets(tmp_path / "tickets.txt")
    with pytest.warns(UserWarning, match=WARNING):
        pretrain(small_options(text), tmp_path / "auto", show=False)
    with warnings.catch_warnings(action="error"):
        pretrain(small_options(text, next_sentence=False), tmp_path / "given", show=False)
    for name in ("model.safetensors", "training.json"):
        assert (tmp_path / "auto" / name).read_bytes() == (tmp_path / "given" / name).read_bytes()


def test_next_sentences_stay_where_a_third_of_the_text_has_pairs(tmp_path):
    text = write_tickets(tmp_path / "tickets.txt", pairs=35)
    with warnings.catch_warnings(action="error"):
        found = prepare_text(small_options(text), tmp_path / "run", show=False)
    assert found.next_sentence


def test_few_long_documents_outweigh_many_short_ones(tmp_path):
    books = write_corpus(tmp_path / "books.txt", documents=8, sentences=40).read_text()
    tickets = write_tickets(tmp_path / "tickets.txt").read_text()
    (tmp_path / "both.txt").write_text(f"{books}\n\n{tickets}")
    with warnings.catch_warnings(action="error"):
        found = prepare_text(small_options(tmp_path / "both.txt"), tmp_path / "run", show=False)
    assert found.next_sentence


def test_held_out_documents_that_are_trained_on_are_named(tmp_path):
    books = write_corpus(tmp_path / "books.txt", documents=10, sentences=40)
    copy = tmp_path / "copy.txt"
    copy.write_text(f"Another document.\n\n{books.read_text()}", encoding="utf-8")
    options = small_options(books, held_out=0.2, next_sentence=False)
    with warnings.catch_warnings(action="error"):
        prepare_text(options, tmp_path / "once", show=False)
    both = dataclasses.replace(options, corpus=(str(books), str(copy)))
    expected = (
        r"^50% of the held-out text is in documents that are trained on as well "
        r"\(2 of 4 held-out documents\), so that the held-out loss is lower than on new text; "
        "give every document of the corpus once[.]$"
    )
    with pytest.warns(UserWarning, match=expected):
        text = prepare_text(both, tmp_path / "twice", show=False)
    assert text.shards.n_documents == 21 and text.held_out_ids.tolist() == [4, 9, 14, 20]
    with warnings.catch_warnings(action="error"):  # a resumed run was told when it began
        prepare_text(both, tmp_path / "twice", show=False, has_begun=True)


@pytest.mark.thorough
def test_switched_off_run_resumes_with_the_same_options(tmp_path):
    text = write_tickets(tmp_path / "tickets.txt")
    options = small_options(text, steps=4, checkpoint_steps=2)
    with pytest.warns(UserWarning, match=WARNING):
        pretrain(options, tmp_path / "run", show=False)
    with warnings.catch_warnings(action="error"):
        longer = dataclasses.replace(options, steps=6)
        assert pretrain(longer, tmp_path / "run", resume=True, show=False)["steps"] == 6


@pytest.mark.thorough
def test_run_with_checkpoints_keeps_its_next_sentences(tmp_path):
    text = write_tickets(tmp_path / "tickets.txt", pairs=5)
    options = small_options(text, steps=2)
    with pytest.MonkeyPatch.context() as patch:  # as runs of before have begun
        patch.setattr("minibert.pretraining.preparation.LEAST_IN_PAIRS", 0.0)
        pretrain(options, tmp_path / "run", show=False)
    with warnings.catch_warnings(action="error"):
        pretrain(dataclasses.replace(options, steps=4), tmp_path / "run", resume=True, show=False)
    assert PretrainOptions.load(tmp_path / "run" / "training.json").next_sentence
    assert all("nsp_loss" in line for line in read_metrics(tmp_path / "run") if "loss" in line)


def test_held_out_single_sentences_are_measured_without_pairs(corpus, tmp_path):
    documents = corpus.read_text().split("\n\n")[:20]
    for number in range(4, len(documents), 5):  # every fifth document is held out
        documents[number] = documents[number].split("\n")[0]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    report = pretrain(small_options(tmp_path / "text.txt"), tmp_path / "run", show=False)
    assert report["held_out"]["next_accuracy"] is None
    assert "nsp_loss" in read_metrics(tmp_path / "run")[0]
    assert evaluate(tmp_path / "run", engine="numpy").loss == report["held_out"]["loss"]


@pytest.mark.parametrize(
    "name, text",
    [
        ("a.csv", 'id,body\n1,"The printer, it broke."\n2,"He said ""no""."\n3,All is well.\n4,Done.\n'),
        ("a.TSV", 'id\tbody\n1\tThe printer, it broke.\n2\t"He said ""no""."\n3\tAll is well.\n4\tDone.\n'),
        ("a.jsonl", "".join(json.dumps({"id": 1, "body": text}) + "\n" for text in
                            ("The printer, it broke.", 'He said "no".', "All is well.", "Done."))),
    ],
)  # fmt: skip
def test_table_is_read_by_its_column(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=r"no column 'text', only id, body; name the one .* `column`"):
        prepare_text(small_options(tmp_path / name), tmp_path / "refused", show=False)
    options = small_options(tmp_path / name, column="body", next_sentence=False)
    found = prepare_text(options, tmp_path / "run", show=False)
    shards = open_shards(tmp_path / "run" / "shards", found.tokenizer)
    texts = [found.tokenizer.decode(shards.document(number)[0]) for number in range(4)]
    assert texts == ["the printer , it broke .", 'he said " no " .', "all is well .", "done ."]
