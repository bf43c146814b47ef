"""JSON lines and dumps of Wikipedia as a corpus, and what `preparation.watched` says of repeated lines."""

import bz2
import html
import json
import sys
import tracemalloc
import warnings

import pandas
import pytest
from paths import TESTS

from minibert import cli
from minibert.base.errors import InputError
from minibert.data import tables, wikipedia
from minibert.data.corpus import find_files, sentences
from minibert.data.documents import format_of, text_of
from minibert.pretraining.preparation import count_corpus, watched
from minibert.tokenizer import BasicTokenizer

FIXTURES = TESTS / "fixtures" / "corpora"


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# JSON lines


def test_each_line_of_json_is_a_document_and_its_lines_are_paragraphs(tmp_path):
    rows = [
        {"text": "He came. She went.\n\nThey\r\rmet."},
        {"text": None, "id": 1},
        {"text": "Next \ud800one."},
    ]
    for name in ("a.jsonl", "a.ndjson", "train.00-of-01.json"):
        stream = sentences(write(tmp_path / name, *rows))
        assert list(stream) == ["He came.", "She went.", "They", "met.", None, "Next ?one."]
        assert stream.layouts_read == {"jsonl": 1} and stream.bytes_read == stream.bytes_total
    assert list(sentences(tmp_path / "a.jsonl", "sentences"))[0] == "He came. She went."
    (tmp_path / "b.jsonl.bz2").write_bytes(bz2.compress((tmp_path / "a.jsonl").read_bytes()))
    assert list(sentences(tmp_path / "b.jsonl.bz2")) == list(sentences(tmp_path / "a.jsonl"))


def test_a_vocabulary_counts_the_texts_and_not_the_json(tmp_path):
    rows = [{"body": f"one two{' three' * number}", "text": "other"} for number in range(3000)]
    file = write(tmp_path / "a.jsonl", *rows)
    counted = count_corpus([file], BasicTokenizer(), show=False, column="body", strict=True)
    assert dict(counted.words) == {"one": 3000, "two": 3000, "three": 3000 * 2999 // 2}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"txt": "a", "id": 1},
            "line 2: there is no column 'text', only txt, id; did you mean column='txt'?",
        ),
        (
            {"body": "a"},
            "line 2: there is no column 'text', only body; name the one that has the text with `column`.",
        ),
        ({"text": ["a"]}, "line 2: 'text' is ['a'], expected a text or null."),
    ],
)
def test_a_line_without_a_text_says_what_it_has(row, said, tmp_path):
    file = write(tmp_path / "a.jsonl", {"text": "a"}, row)
    with pytest.raises(InputError) as caught:
        list(sentences(file))
    assert str(caught.value) == f"{file}, {said}"


def test_a_line_that_is_not_json_is_refused_with_its_number(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\nplain text\n')
    with pytest.raises(InputError, match=r"a\.jsonl, line 2: not JSON \(.*\); each line has to be"):
        list(sentences(tmp_path / "a.jsonl"))


def test_a_folder_gives_no_json_and_no_dump_but_a_glob_does(tmp_path):
    for name in ("a.txt", "b.jsonl", "c.xml.bz2", "d.txt.zst", "e.txt.bz2"):
        (tmp_path / name).touch()
    assert [file.name for file in find_files(tmp_path)] == ["a.txt", "d.txt.zst", "e.txt.bz2"]
    assert find_files(tmp_path / "*.jsonl") == [tmp_path / "b.jsonl"]


def test_every_command_finds_the_text_in_its_column(tmp_path, capsys):
    rows = [{"body": f"The cat sees {number} dogs. A dog runs.", "text": 1} for number in range(60)]
    file = str(write(tmp_path / "news.jsonl", *rows))
    vocab, shards, run = (str(tmp_path / name) for name in ("vocab", "shards", "run"))
    body = ["--column", "body"]
    assert cli.main(["vocab", file, *body, "--out", vocab, "--vocab-size", "60", "--quiet"]) == 0
    assert cli.main(["data", file, *body, "--vocab", vocab, "--out", shards, "--quiet"]) == 0
    said = capsys.readouterr().out
    assert (
        "60 documents, 120 sentences" in said and "Read as a document on each line, in JSON (jsonl)" in said
    )
    assert cli.main(["data", file, "--column", "txt", "--vocab", vocab, "--out", shards]) == 2
    made = "was made with the layout auto --column body instead of auto --column txt"
    assert made in capsys.readouterr().err
    model = [
        "--size",
        "1-16-1",
        "--vocab-size",
        "60",
        "--seq-length",
        "16",
        "--batch-size",
        "4",
        "--steps",
        "1",
    ]
    assert cli.main(["pretrain", file, *body, "--out", run, "--engine", "numpy", "--quiet", *model]) == 0
    assert json.loads((tmp_path / "run" / "training.json").read_text())["column"] == "body"
    assert cli.main(["evaluate", "--model", run, file, *body, "--targets", "9", "--engine", "numpy"]) == 0


# Wikipedia


@pytest.fixture(autouse=True)
def needs_parser():
    pytest.importorskip("mwparserfromhell")


def dump(path, *texts):
    """A dump of pages "0", "1", ... with these texts."""
    pages = (
        f"<page><title>{number}</title><ns>0</ns><revision><text>{text}</text></revision></page>\n"
        for number, text in enumerate(texts)
    )
    path.write_text(f"<mediawiki>{''.join(pages)}</mediawiki>", encoding="utf-8")
    return path


def test_a_dump_gives_the_passages_of_its_articles_and_nothing_else(tmp_path):
    expected = (FIXTURES / "wiki.txt").read_text(encoding="utf-8")
    data = (FIXTURES / "wiki.xml").read_bytes()
    (tmp_path / "wiki.xml-p1p20.bz2").write_bytes(bz2.compress(data[:999]) + bz2.compress(data[999:]))
    for file in (FIXTURES / "wiki.xml", tmp_path / "wiki.xml-p1p20.bz2"):
        stream = sentences(file)
        assert "".join(f"{sentence or ''}\n" for sentence in stream) == expected
        assert stream.layouts_read == {"wikipedia": 1} and stream.bytes_read == file.stat().st_size
        words = count_corpus([file], BasicTokenizer(), show=False).words
        assert sum(words.values()) == len(BasicTokenizer().tokenize(expected))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Before.\n<h2>History</h2>\nAfter.", ["Before.", "After."]),
        ("Before. <H3 id='x'>Early ''days''</H3> After.", ["Before.", "After."]),
        ("Before.\n<li>One.</li>\n<li>Two.</li>\nAfter.", ["Before.", "After."]),
        ("Before. <div><li>One\nand more.</li></div> After.", ["Before.", "After."]),
        ("Before.\n<li>One.\n<li>Two.\n\nAfter.", ["Before.", "After."]),
        ("Before.\n<dt>Term<dd>Meaning\n<DD>Another</DD>\n\nAfter.", ["Before.", "After."]),
        ("About <hiero>x</hiero>2<sub>4</sub> <b>words</b>.", ["About 24 words."]),
    ],
)
def test_headings_and_items_in_html_are_no_passages(text, expected, tmp_path):
    file = dump(tmp_path / "a.xml", html.escape(text))
    assert [sentence for sentence in sentences(file, "sentences") if sentence] == expected


HOSTILE = {
    "unclosed": "{{a|" * 20_000,
    "mismatched": "{{a|[[b|}}]]" * 4_000,
    "attributes": "&lt;a b=" * 20_000,
    "comments": "&lt;!--" * 20_000,
    "braces": "{{" * 10_000,
    "long": "a " * wikipedia.LONGEST,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_bad_article_is_left_out_and_warned_of(kind, tmp_path):
    file = dump(tmp_path / "a.xml", "One.", HOSTILE[kind], "Two.", HOSTILE["braces"])
    with pytest.warns(
        UserWarning, match=r"a\.xml: left out 2 articles that could not be parsed, first '1' \("
    ):
        assert list(sentences(file)) == ["One.", None, "Two."]


def test_whatever_the_parser_raises_ends_no_run(tmp_path, monkeypatch):
    def fails(code, hidden):
        if "bad" in str(code):
            raise RecursionError("too deep")
        return [str(code)]

    monkeypatch.setattr(wikipedia, "passages", fails)
    with pytest.warns(
        UserWarning, match=r"left out 1 article that could not be parsed, first '1' \(too deep\)"
    ):
        assert list(sentences(dump(tmp_path / "a.xml", "One.", "bad", "Two."))) == ["One.", None, "Two."]


def test_deep_nesting_that_is_closed_is_parsed(tmp_path):
    text = "{{a|" * 5_000 + "}}" * 5_000 + "\n\nA passage."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(sentences(dump(tmp_path / "a.xml", text))) == ["A passage."]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<mediawiki><page>", "is damaged or no XML: no element found"),
        ("plain text", "is damaged or no XML: syntax error"),
        ("<html><page/></html>", "is XML, but no dump of a Wikipedia"),
        ('<!DOCTYPE m [<!ENTITY a "aaaa">]><mediawiki>&a;</mediawiki>', "is XML, but no dump of a Wikipedia"),
        ("<mediawiki>" + "<a>" * 99, "is XML, but no dump of a Wikipedia"),
        pytest.param(
            '<mediawiki><page a="' + "a" * (1 << 25),
            "is XML, but no dump of a Wikipedia",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_other_xml_is_refused(text, said, tmp_path):
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(InputError, match=f"a.xml {said}"):
        list(sentences(tmp_path / "a.xml"))


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_dump(tmp_path):
    def peak(pages):
        file = dump(tmp_path / f"{pages}.xml", *["A passage of some words. " * 2000] * pages)
        tracemalloc.start()
        assert sum(map(len, text_of(file))) > 49_000 * pages
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(1)  # what is made once
    assert peak(64) < 2 * peak(8)


def test_without_the_parser_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mwparserfromhell", None)
    with pytest.raises(InputError, match=r"a\.xml needs mwparserfromhell to be read; pip install mwparserf"):
        list(sentences(dump(tmp_path / "a.xml", "One.")))


def test_the_suffix_tells_the_format(tmp_path):
    names = {"a.jsonl.gz": "jsonl", "a.XML.zst": "wikipedia", "a.xml-p1p2.bz2": "wikipedia", "a.txt.xz": ""}
    names |= {"a.csv": "table", "a.TSV.gz": "table", "a.tab": "table"}
    assert {name: format_of(tmp_path / name) for name in names} == names


def test_numbered_column_reads_a_table_without_header(tmp_path):
    (tmp_path / "a.csv").write_text('1,"One, two."\n2,Three.\n')
    assert list(sentences(tmp_path / "a.csv", column="2")) == ["One, two.", None, "Three."]


@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_table_with_another_delimiter_is_read_by_its_header(tmp_path, sign):
    (tmp_path / "a.csv").write_text(f'id{sign}body\n1{sign}"One, two."\n2{sign}Three.\n')
    assert list(sentences(tmp_path / "a.csv", column="body")) == ["One, two.", None, "Three."]
    with pytest.raises(InputError, match="no column 'text', only id, body; name the one"):
        list(sentences(tmp_path / "a.csv"))


def test_a_paragraph_a_line_stays_one_document_in_a_cell(tmp_path):
    (tmp_path / "a.csv").write_text('text\n"He came. She went.\n\nThey left."\nAll is well.\n')
    stream = sentences(tmp_path / "a.csv")
    assert list(stream) == ["He came.", "She went.", "They left.", None, "All is well."]
    assert stream.layouts_read == {"table": 1} and stream.bytes_read == stream.bytes_total


def test_unquoted_commas_are_refused_by_their_line(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,One.\n2,Well, no.\n")
    with pytest.raises(InputError, match=r"a\.csv, line 3: 3 columns where the first row has 2; put texts"):
        list(sentences(tmp_path / "a.csv"))


TEXTS_OF_CELLS = [
    ["first line.\nsecond line.", "All is well."],  # a cell with a line end
    ['He said "no".', '"No," he said.', "", "One\ttab."],
    ['"Quoted" at the beginning.', 'Two lines\nand "marks".', "Plain."],
    ['""', '"', "a\r\nb"],
]


@pytest.mark.parametrize("columns", [["text"], ["id", "text"], ["text", "label"]])
@pytest.mark.parametrize("texts", TEXTS_OF_CELLS)
def test_a_table_gives_the_same_texts_as_csv_and_tsv_and_to_fine_tuning(tmp_path, texts, columns):
    table = pandas.DataFrame({"text": texts, "id": range(len(texts)), "label": "x"})[columns]
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    table.to_csv(tmp_path / "b.csv", index=False, sep=";")
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    expected = list(sentences(tmp_path / "a.jsonl"))
    for name in ("a.csv", "a.tsv", "b.csv"):
        assert list(sentences(tmp_path / name)) == expected
        filled = table[table.text.str.strip() != ""]
        separator = "\t" if name == "a.tsv" else ";" if name == "b.csv" else ","
        filled.to_csv(tmp_path / name, index=False, sep=separator)
        found = [one.first for one in tables.read_texts(tmp_path / name, label=None)]
        assert [one.replace("\r\n", "\n") for one in found] == [
            text.replace("\r\n", "\n") for text in texts if text
        ]


def test_bare_quotation_marks_between_tabs_are_text(tmp_path):
    (tmp_path / "a.tsv").write_text('id\ttext\n1\t"No," he said.\n2\tShe "left".\n')
    assert list(sentences(tmp_path / "a.tsv")) == ['"No," he said.', None, 'She "left".']


@pytest.mark.thorough
@pytest.mark.parametrize("cell", ["A passage of some words.", '"A ""passage"" of\nsome words."'])
def test_memory_does_not_grow_with_the_table(tmp_path, cell):
    def peak(rows):
        file = tmp_path / f"{rows}.tsv"
        file.write_text("id\ttext\n" + f"1\t{cell}\n" * rows)
        tracemalloc.start()
        assert sum(map(len, text_of(file))) > 20 * rows
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(1)
    assert peak(80_000) < 2 * peak(10_000)


def test_progress_of_a_table_ends_at_its_size(tmp_path):
    (tmp_path / "a.tsv").write_text('text\n"first line.\nsecond line."\n')
    heard = []
    list(text_of(tmp_path / "a.tsv", progress=heard.append))
    assert heard == sorted(heard) and heard[-1] == (tmp_path / "a.tsv").stat().st_size


def test_a_header_in_quotation_marks_shows_its_delimiter(tmp_path):
    (tmp_path / "a.csv").write_text('"id";"text"\n"1";"One, two."\n')
    assert list(sentences(tmp_path / "a.csv")) == ["One, two."]
    (tmp_path / "b.csv").write_text('"a;text"\n"One; two."\n')
    assert list(sentences(tmp_path / "b.csv", column="a;text")) == ["One; two."]


def test_vocabulary_of_a_table_has_no_commas_of_its_own(tmp_path):
    rows = "".join(f"{number},good,the cat came\n" for number in range(20))
    (tmp_path / "a.csv").write_text("id,label,text\n" + rows)
    words = count_corpus([tmp_path / "a.csv"], BasicTokenizer(), show=False).words
    assert dict(words) == {"the": 20, "cat": 20, "came": 20}


# Repeated lines


def told(tmp_path, lines):
    (tmp_path / "a.txt").write_text("\n".join(lines))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert list(watched(sentences(tmp_path / "a.txt", "sentences"), "reading", show=False)) == lines
    return [str(one.message) for one in caught]


def test_many_repeated_lines_are_warned_of_with_an_example(tmp_path):
    lines = [f"line {number:05}" for number in range(2000)]
    assert told(tmp_path, lines) == []
    assert told(tmp_path, [*lines, *lines[:80]]) == []  # 4%
    assert told(tmp_path, [*lines, *["line 00007"] * 200, *lines[:50]]) == [
        "At least 11% of the text is repeated lines, one of them 202 times: 'line 00007'. "
        "Remove them: they teach nothing new."
    ]
    assert told(tmp_path, ["line 00007"] * 1000) == []
    assert told(tmp_path, ["line 00007"] * 1001) != []


def test_the_share_of_repeated_lines_is_handed_on_however_small_it_is(tmp_path):
    (tmp_path / "a.txt").write_text(
        "\n".join([*(f"line {number:05}" for number in range(499)), "line 00007"])
    )
    shares = []
    list(watched(sentences(tmp_path / "a.txt", "sentences"), "reading", False, shares.append))
    assert shares == [pytest.approx(1 / 500)]


def test_lines_beyond_those_that_are_kept_cost_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("minibert.pretraining.preparation.DIFFERENT_LINES", 1000)
    lines = [f"line {number:05}" for number in range(3000)]
    (said,) = told(tmp_path, lines * 2)
    assert said.startswith("At least 16% of the text")  # a third of one half
