"""Your own CSV, TSV and JSON Lines: what is written comes back, columns by name or number, bad input."""

import csv
import gzip
import io
import json
import lzma
import re
import zipfile

import pytest
from hypothesis import assume, given, strategies as st
from real_data import real_data

from minibert.base.errors import InputError
from minibert.base.reading import LONGEST_LINE
from minibert.data import glue, tables
from minibert.data.corpus import sentences
from minibert.data.glue import TextExample
from minibert.data.lines import numbered_lines
from minibert.data.ner import TaggedSentence
from minibert.data.squad import Answer, Question
from minibert.tokenizer import BasicTokenizer
from minibert.tokenizer.counting import count_files

TEXT = st.text(max_size=12).filter(str.strip)  # an empty text is refused
ROWS = st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=5)


def write(folder, text, name="a.csv"):
    (folder / name).write_bytes(text.encode())
    return folder / name


@given(
    rows=ROWS, delimiter=st.sampled_from(",;|"), quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
)
def test_what_is_written_as_csv_comes_back(tmp_path_factory, rows, delimiter, quoting):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, quoting=quoting).writerows([("a", "b", "c"), *rows])
    path = write(tmp_path_factory.mktemp("csv"), out.getvalue())
    found = tables.read_texts(path, "a", "b", "c", delimiter=delimiter)
    assert [(one.first, one.second, one.label) for one in found] == [(a, b, c.strip()) for a, b, c in rows]


@given(rows=ROWS)
def test_what_is_written_as_tsv_comes_back(tmp_path_factory, rows):
    # A quotation mark at its beginning may say that a column is quoted.
    rows = [["x" * text.startswith('"') + " ".join(text.split()) for text in row] for row in rows]
    text = "".join("\t".join(row) + "\n" for row in [["a", "b", "c"], *rows])
    found = tables.read_texts(write(tmp_path_factory.mktemp("tsv"), text, "a.tsv"), "a", "b", "c")
    assert [[one.first, one.second, one.label] for one in found] == rows


@given(rows=ROWS, ascii=st.booleans())
def test_what_is_written_as_json_lines_comes_back(tmp_path_factory, rows, ascii):
    text = "".join(json.dumps({"a": a, "b": b, "c": c}, ensure_ascii=ascii) + "\n" for a, b, c in rows)
    found = tables.read_texts(write(tmp_path_factory.mktemp("json"), text, "a.jsonl"), "a", "b", "c")
    assert [(one.first, one.second, one.label) for one in found] == [(a, b, c.strip()) for a, b, c in rows]


@given(
    st.lists(st.text("ab\u2028\x0b\x85é", max_size=5), min_size=1),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_lines_are_counted_whatever_ends_them(tmp_path_factory, lines, newline, last):
    path = write(tmp_path_factory.mktemp("lines"), newline.join(lines) + newline * last)
    expected = lines if last or lines[-1] else lines[:-1]
    assert list(numbered_lines(path)) == list(enumerate(expected, 1))


def test_a_line_end_cut_by_the_border_of_two_pieces_is_one(tmp_path):
    path = write(tmp_path, "a" * 65_535 + "\r\nb\r\n")
    assert [(number, len(text)) for number, text in numbered_lines(path)] == [(1, 65_535), (2, 1)]


def test_a_file_without_line_ends_is_refused_before_it_fills_the_memory(tmp_path):
    path = tmp_path / "a.tsv.xz"
    path.write_bytes(lzma.compress(b"a\n" + b"\0" * (LONGEST_LINE + (1 << 20))))
    with pytest.raises(
        InputError, match=r"line 2: the line has more than 16 MiB; a file of lines is expected"
    ):
        list(numbered_lines(path))


def test_columns_by_name_and_by_number(tmp_path):
    path = write(tmp_path, 'stars,review\n5,"Good, truly ""good""."\n1,"Two\nlines."\n')
    named = tables.read_texts(path, "review", label="stars")
    assert named == [
        TextExample("0", 'Good, truly "good".', None, "5"),
        TextExample("1", "Two\nlines.", None, "1"),
    ]
    assert tables.read_texts(path, 2, label="1", header=True) == named
    assert tables.read_texts(path, 2, label=1, header=False)[0].first == "review"
    assert tables.read_texts(path, "review", label=1) == named
    assert tables.read_texts(path, "review", label=-2, numeric=True)[0].label == 5.0
    assert tables.read_texts(path, "review", label=None)[1] == TextExample("1", "Two\nlines.", None, None)
    assert tables.read_texts(path, 2, label=1)[0] == TextExample("0", "review", None, "stars")
    assert [one.id for one in tables.read_texts(path, "review", label=None, id="stars")] == ["5", "1"]


def test_delimiters_follow_the_suffix_or_the_argument(tmp_path):
    tabbed = 'text\tlabel\n"Good, he said\t1\n'
    expected = [TextExample("0", '"Good, he said', None, "1")]
    assert tables.read_texts(write(tmp_path, tabbed, "a.tsv")) == expected
    assert tables.read_texts(write(tmp_path, tabbed, "a.TXT")) == expected
    assert tables.read_texts(write(tmp_path, tabbed, "a.data"), delimiter=r"\t") == expected
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(tabbed.encode("utf-8-sig")))
    assert tables.read_texts(tmp_path / "b.tsv.gz") == expected
    assert tables.read_texts(write(tmp_path, 'text;label\r\n"a;b";0\r\n'), delimiter=";")[0].first == "a;b"


@pytest.mark.parametrize("name, sign", [("a.csv", ";"), ("a.csv", "\t"), ("a.csv", "|"), ("a.tsv", ",")])
def test_a_delimiter_is_detected_from_the_header(tmp_path, name, sign):
    path = write(tmp_path, f'text{sign}label\n"a{sign}b"{sign}1\n', name)
    assert tables.read_texts(path) == [TextExample("0", f"a{sign}b", None, "1")]
    assert tables.read_texts(path, "text", label=2) == tables.read_texts(path)
    tagged = write(tmp_path, f"sentence_id{sign}words{sign}tags\n0{sign}a{sign}O\n0{sign}b{sign}O\n", name)
    assert tables.read_tags(tagged) == [TaggedSentence(("a", "b"), ("O", "O"), 0)]


def test_json_lines_have_numbers_truths_and_text(tmp_path):
    path = write(tmp_path, '{"text": "a\\nb", "label": 1}\n\n{"text": "c", "label": true}\n', "a.jsonl")
    assert [(one.first, one.label) for one in tables.read_texts(path)] == [("a\nb", "1"), ("c", "true")]
    assert (
        tables.read_texts(write(tmp_path, '{"text": "a", "label": -2.5}', "a.json"), numeric=True)[0].label
        == -2.5
    )


@pytest.mark.parametrize(
    "name, text, options, sentence",
    [
        ("a.csv", "review,label\na,1\n", {}, r"its header is review, label; name the column of the text"),
        ("a.csv", "a,1\n", {"text": 1, "label": 3}, r"no column 3, it has 2 columns"),
        ("a.csv", "a,1\n", {"text": 0, "label": 2}, r"no column 0"),
        ("a.csv", "review;label\na;1\n", {}, r"its header is review, label; name the column of the text"),
        ("a.csv", "a;1\n", {"text": 1, "label": 2}, r"by ';' and not ',': give columns=\{'delimiter': ';'"),
        ("a.csv", "a\t1\n", {"text": 1, "label": 2}, r"by '\\t' and not ',': give columns=\{'delim"),
        ("a.csv", "text;label\na;1\n", {"delimiter": ","}, r"by ';' and not ',': give columns=\{'delim"),
        ("a.csv", "text,label\na\n", {}, "line 2: 1 column where the first row has 2; check the"),
        ("a.csv", "a,1\n", {"text": 1, "label": -2}, r"text and label are the same column"),
        ("a.jsonl", '{"a": "b"}\n', {"text": "a", "label": "a"}, r"text and label are the same column"),
        ("a.csv", "text,text\na,1\n", {"label": None}, r"several columns 'text'; give the one that is meant"),
        ("a.csv", "text,label\na,b,1\n", {}, "line 2: 3 columns where the first row has 2; check the"),
        ("a.csv", 'text,label\na,1\n"b,1\n', {}, r"line 3: unexpected end of data; a column that holds"),
        ("a.csv", 'text,label\n"a"b,1\n', {}, r"line 2: ',' expected after '\"'"),
        ("a.csv", "text,label\n \t,1\n", {}, r"line 2: the column 'text' has no text"),
        ("a.csv", "text,label\na,1\nb,\n", {}, r"line 3: the column 'label' is empty; label every row"),
        ("a.csv", "text,label\na,x\n", {"numeric": True}, "line 2: .* is 'x', not a number; correct it, or"),
        ("a.csv", "text,label\na,inf\n", {"numeric": True}, r"line 2.* is 'inf', not a number"),
        ("a.csv", "text,label\n", {}, r"has no rows"),
        ("a.csv", "", {}, r"has no rows"),
        ("a.xls", "text,label\n", {}, r"of the suffixes .csv .tsv .tab .txt .*columns=\{'delimiter': ','"),
        ("a.csv", "text,label\na,1\n", {"delimiter": "||"}, r"delimiter='\|\|' can't separate columns"),
        ("a.jsonl", '{"text": "a"}\n', {}, r"line 1: there is no 'label', the keys are text"),
        ("a.jsonl", '{"text": null, "label": 1}\n', {}, r"line 1: the column 'text' has no text"),
        ("a.jsonl", '{"text": "a", "label": null}\n', {}, r"line 1: the column 'label' is empty"),
        ("a.jsonl", "text,label\na,1\n", {}, r"line 1: not JSON"),
        ("a.json", '[\n{"text": "a"}]\n', {}, r"a.json is one JSON array; write each object on a line"),
        ("a.json", '[{"text": "a"}, {"text": "b"}]', {}, r"a.json is one JSON array; write each object"),
        ("a.json", '[{"text": "a"},\n{"text": "b"}]\n', {}, r"a.json is one JSON array; write"),
        ("a.json", '{"text": "a", "label": "b"}\n[\n', {}, r"line 2: not JSON"),
    ],
)  # fmt: skip
def test_a_table_that_is_wrong_is_refused_with_its_line(tmp_path, name, text, options, sentence):
    with pytest.raises(InputError, match=sentence):
        tables.read_texts(write(tmp_path, text, name), **options)


def spreadsheet(path):
    """A file as Excel makes them: a ZIP archive of XML."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/worksheets/sheet1.xml", "<worksheet/>")
    return path


@pytest.mark.parametrize("name", ["a.xlsx", "a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_a_spreadsheet_is_named_as_what_it_is_whatever_it_is_called(tmp_path, name):
    path = spreadsheet(tmp_path / name)
    with pytest.raises(
        InputError, match=rf"{name} is a ZIP archive, as spreadsheets \(.xlsx.* unpack it, or save"
    ):
        tables.read_texts(path)
    with pytest.raises(InputError, match=rf"{name} is a ZIP archive, as spreadsheets"):
        list(sentences(path))
    with pytest.raises(InputError, match=rf"{name} is a ZIP archive, as spreadsheets"):
        count_files([path], BasicTokenizer())


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "a spreadsheet or document of an old Office"),
        (b"%PDF-1.7\n", "a PDF"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (gzip.compress(b"text,label\n", mtime=0), r"compressed by gzip; let its name end in \.gz"),
        (lzma.compress(b"text,label\n"), r"compressed by xz; let its name end in \.xz"),
        ("text,label\n".encode("utf-16"), "UTF-16; convert it"),
    ],
)
def test_other_files_than_text_are_named_as_what_they_are(tmp_path, head, what):
    (tmp_path / "a.csv").write_bytes(head)
    with pytest.raises(InputError, match=f"a.csv is {what}"):
        tables.read_texts(tmp_path / "a.csv")


def test_text_that_is_not_utf_8_is_refused_with_its_line(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"text,label\na,1\nr\xe9sum\xe9,1\n")
    with pytest.raises(InputError, match=r"a.csv, line 3 is not UTF-8: byte 0xe9"):
        tables.read_texts(tmp_path / "a.csv")


def test_tags_in_every_layout(tmp_path):
    expected = [
        TaggedSentence(("Dogs", "bark"), ("NNS", "VBP"), 0),
        TaggedSentence(("Rain",), ("NN",), 1),
    ]
    rowwise = 'words,tags\nDogs  bark,NNS VBP\n"Rain",NN\n'
    assert tables.read_tags(write(tmp_path, rowwise)) == expected
    lists = '{"words": ["Dogs", "bark"], "tags": "NNS VBP"}\n{"words": "Rain", "tags": ["NN"]}\n'
    assert tables.read_tags(write(tmp_path, lists, "a.jsonl")) == expected
    assert tables.read_tags(write(tmp_path, lists, "a.jsonl"), labelled=False) == [
        sentence._replace(tags=None) for sentence in expected
    ]
    wordwise = "Dogs x NNS\nbark x VBP\n\n-DOCSTART- x x\n\nRain x NN\n"
    assert tables.read_tags(write(tmp_path, wordwise, "a.conll")) == expected
    assert tables.read_tags(write(tmp_path, wordwise, "a.tsv"), 1, "3", layout="words") == expected
    assert tables.read_tags(write(tmp_path, wordwise, "a.txt"), labelled=False)[1].tags is None
    turned = "NNS VBP|Dogs bark\nNN|Rain\n"
    assert tables.read_tags(write(tmp_path, turned, "a.txt"), 2, 1, delimiter="|") == expected


def test_the_real_sample_of_tagged_sentences():
    found = tables.read_tags(real_data("samples/conll/sample.json"), tags="ner")
    assert found[1] == TaggedSentence(("CHICAGO", "AT", "ATLANTA"), ("B-ORG", "O", "B-LOC"), 1)
    assert len(found) == 10


@pytest.mark.parametrize(
    "name, text, options, sentence",
    [
        ("a.csv", "words,tags\na b,X\n", {}, r"line 2: 2 words and 1 tag; give every word one tag"),
        ("a.csv", "words,tags\n,\n", {}, r"line 2: the column 'words' has no word"),
        ("a.conll", "a X\n", {"words": "word"}, r"a word a line and no header; give its columns by number"),
        ("a.csv", "", {"layout": "rows"}, r'layout=\'rows\' is unknown; choose "sentences" or "words"'),
        ("a.jsonl", '{"words": ["a", 1], "tags": "X Y"}', {}, "line 1: the list 'words' holds"),
        ("a.jsonl", '{"words": {"a": 1}, "tags": "X"}', {}, "line 1: the column 'words' is an object; give"),
        ("a.jsonl", '{"words": null, "tags": "X"}', {}, r"line 1: the column 'words' has no word"),
    ],
)  # fmt: skip
def test_tags_that_are_wrong_are_refused_with_their_line(tmp_path, name, text, options, sentence):
    with pytest.raises(InputError, match=sentence):
        tables.read_tags(write(tmp_path, text, name), **options)


def test_questions_with_and_without_answers(tmp_path):
    path = write(
        tmp_path, "question,context,answer,at\nWhen?,May 1 or May 2,May,9\nWho?,Ann.,,\nWhat?,a b, b ,\n"
    )
    assert tables.read_questions(path, start="at") == [
        Question("0", "When?", "May 1 or May 2", (Answer("May", 9),), False),
        Question("1", "Who?", "Ann.", (), True),
        Question("2", "What?", "a b", (Answer("b", 2),), False),
    ]
    assert tables.read_questions(path)[0].answers == (Answer("May", 0),)
    assert tables.read_questions(path, answer=None)[1] == Question("1", "Who?", "Ann.", (), None)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_places_of_answers_count_line_ends_as_they_stand_in_a_quoted_column(tmp_path, end):
    context = end.join("abcde") + " to be or not to be or not to be"
    start = context.rindex("to be")
    rows = f'question,context,answer,start{end}Be?,"{context}",to be,{start}{end}'
    (question,) = tables.read_questions(write(tmp_path, rows), start="start")
    assert question.context == context and question.answers == (Answer("to be", start),)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("label", "NaN", "nan"),
        ("label", "-Infinity", "-inf"),
        ("text", '["a"]', r"\['a'\]"),
        ("label", "{}", "{}"),
    ],
)
def test_json_lines_with_what_is_neither_text_nor_number_are_refused(tmp_path, name, value, shown):
    first = '{"text": "a", "label": 1.5, "more": NaN}'
    second = '{"text": "a", "label": "b"}'.replace({"text": '"a"', "label": '"b"'}[name], value)
    path = tmp_path / "own.jsonl"
    path.write_text(f"{first}\n{second}\n")
    with pytest.raises(
        InputError, match=f"line 2: the column '{name}' is {shown}, expected a text or a number"
    ):
        tables.read_texts(path)


def test_questions_of_json_lines_have_several_answers(tmp_path):
    lines = [
        {"id": "q", "question": "When?", "context": "May 1, May", "answer": ["May 1", "May"], "at": [0, 7]},
        {"id": 7, "question": "When?", "context": "May", "answer": None, "at": None},
        {
            "id": 8,
            "question": "When?",
            "context": "May",
            "answer": {"text": ["May"], "answer_start": [0]},
            "at": 0,
        },
        {"id": 9, "question": "When?", "context": "May", "answer": ["", "May"], "at": [-1, 0]},
    ]
    path = write(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), "a.jsonl")
    found = tables.read_questions(path, start="at", id="id")
    assert [question.id for question in found] == ["q", "7", "8", "9"]
    assert [question.answers for question in found] == [
        (Answer("May 1", 0), Answer("May", 7)), (), (Answer("May", 0),), (Answer("May", 0),),
    ]  # fmt: skip
    assert [question.impossible for question in found] == [False, True, False, False]


@pytest.mark.parametrize(
    "name, text, options, sentence",
    [
        ("a.csv", "a,b,c\nq,ctx,x\n", {"question": 1, "context": 2, "answer": 3},
         r"line 1: the answer 'c' does not stand in its paragraph; correct"),
        ("a.csv", "question,context,answer,at\nq,one,one,x\n", {"start": "at"}, "line 2: the place 'x'"),
        ("a.csv", "question,context,answer,at\nq,one two,two,0\n", {"start": "at"},
         r"line 2: the answer 'two' does not stand at character 0 of its paragraph"),
        ("a.csv", "question,context,answer\n ,c,\n", {}, r"line 2: the column 'question' has no text"),
        ("a.csv", "question,context,answer\nq,,\n", {}, r"line 2: the column 'context' has no text"),
        ("a.csv", "question,context,answer\nq,c,c\n", {"answer": None, "start": 1}, "start=1 needs"),
        ("a.jsonl", '{"question": "q", "context": "c", "answer": [1]}', {}, "something that is not a text"),
        ("a.jsonl", '{"question": "q", "context": "c", "answer": ["c"], "at": [0, 1]}', {"start": "at"},
         r"line 1: 1 answer and 2 places"),
        ("a.jsonl", '{"question": "q", "context": "c", "answer": {"value": "c"}}', {},
         "line 1: the object 'answer' has no 'text', its keys are value"),
        ("a.csv", "id,question,context,answer\n7,q,c,c\n8,q,c,c\n7,q,d,d\n", {"id": "id"},
         "line 4: the id '7' is that of line 2; give each its own"),
    ],
)  # fmt: skip
def test_questions_that_are_wrong_are_refused_with_their_line(tmp_path, name, text, options, sentence):
    with pytest.raises(InputError, match=sentence):
        tables.read_questions(write(tmp_path, text, name), **options)


# Tables between tabs as programs write them


@given(rows=ROWS, quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_what_is_quoted_between_tabs_comes_back(tmp_path_factory, rows, quoting):
    out = io.StringIO()
    csv.writer(out, delimiter="\t", quoting=quoting).writerows([("a", "b", "c"), *rows])
    # If cells are cut so that every line still has three parts, the file can be read in two ways.
    tabs = {line.count("\t") for line in re.split("[\r\n]+", out.getvalue()) if line}
    assume(tabs != {2} or not any(sign in cell for row in rows for cell in row for sign in "\t\r\n"))
    path = write(tmp_path_factory.mktemp("tsv"), out.getvalue(), "a.tsv")
    found = tables.read_texts(path, "a", "b", "c")
    assert [(one.first, one.second, one.label) for one in found] == [(a, b, c.strip()) for a, b, c in rows]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"a ""b"" c"\t1\n', ['a "b" c']),
        ('"a\tb"\t1\n"c\nd"\t1\n', ["a\tb", "c\nd"]),
        ('"a"\t1\nb "c" d\t1\n', ["a", 'b "c" d']),  # within a column it is text
        ('"a" b\t1\n', ['"a" b']),  # bare: nothing is quoted
        ('"a\t1\nb"\t1\n', ['"a', 'b"']),  # two lines of two columns, and not one with a tab in it
    ],
)
def test_quotation_marks_between_tabs(tmp_path, text, found):
    path = write(tmp_path, "text\tlabel\n" + text, "a.tsv")
    assert [one.first for one in tables.read_texts(path)] == found
    assert [one.first for one in tables.read_texts(path, delimiter="\t")] == found


def test_quoted_columns_beside_a_bare_mark_are_named(tmp_path):
    path = write(tmp_path, 'text\tlabel\n"a ""b"""\t1\n"c" d\t1\n', "a.tsv")
    with pytest.warns(
        UserWarning, match="a.tsv: a column of line 3 begins with .* around 1 other column are taken as text"
    ):
        found = tables.read_texts(path)
    assert [one.first for one in found] == ['"a ""b"""', '"c" d']


def test_official_files_have_no_quoting(tmp_path):
    path = write(tmp_path, 'sentence\tlabel\n"a ""film"" "\t1\n', "dev.tsv")
    assert glue.read_file("sst2", path)[0].first == '"a ""film"" "'


def test_cells_of_any_length_are_read(tmp_path):
    limit = csv.field_size_limit()
    path = write(tmp_path, 'text,label\n"' + "a" * 200_000 + '",1\n')
    assert len(tables.read_texts(path)[0].first) == 200_000
    assert csv.field_size_limit() == limit  # of the whole process


# Tables with a word in each row

A_WORD_A_ROW = [
    ("a.csv", "sentence_id,words,tags\n0,Anna,B-PER\n0,left,O\n1,Rome,B-LOC\n", {}),
    ("a.csv", "Sentence #,words,tags\nSentence: 1,Anna,B-PER\n,left,O\nSentence: 2,Rome,B-LOC\n", {}),
    ("a.csv", "n,words,tags\n7,Anna,B-PER\n7,left,O\n8,Rome,B-LOC\n", {"sentence": "n"}),
    ("a.csv", "words,tags\nAnna,B-PER\nleft,O\n,\nRome,B-LOC\n", {"layout": "words"}),
    ("a.csv", "words,tags\nAnna,B-PER\nleft,O\n\nRome,B-LOC\n", {"layout": "words"}),
    ("a.tsv", "sentence_id\twords\ttags\n0\tAnna\tB-PER\n0\tleft\tO\n1\tRome\tB-LOC\n", {}),
    ("a.csv", "1,Anna,B-PER\n1,left,O\n2,Rome,B-LOC\n", {"sentence": 1, "words": 2, "tags": 3}),
    (
        "a.jsonl",
        '{"sentence_id": 0, "words": "Anna", "tags": "B-PER"}\n'
        '{"sentence_id": 0, "words": "left", "tags": "O"}\n'
        '{"sentence_id": 1, "words": "Rome", "tags": "B-LOC"}\n',
        {},
    ),
]


@pytest.mark.parametrize(("name", "text", "options"), A_WORD_A_ROW)
def test_words_of_rows_become_sentences(tmp_path, name, text, options):
    found = tables.read_tags(write(tmp_path, text, name), **options)
    first = TaggedSentence(("Anna", "left"), ("B-PER", "O"), 0)
    assert found == [first, TaggedSentence(("Rome",), ("B-LOC",), 1)]
    without = tables.read_tags(tmp_path / name, **options, labelled=False)
    assert without == [one._replace(tags=None) for one in found]


def test_a_sentence_a_row_with_a_number_stays_one(tmp_path):
    path = write(tmp_path, "sentence_id,words,tags\n0,Anna left,B-PER O\n1,Rome,B-LOC\n")
    assert [one.words for one in tables.read_tags(path)] == [("Anna", "left"), ("Rome",)]
    path = write(tmp_path, "sentence_id,words,tags\n0,Anna,B-PER\n1,Rome,B-LOC\n")
    with pytest.warns(UserWarning, match="all 2 sentences have one word"):
        assert len(tables.read_tags(path)) == 2


def test_sentences_that_nothing_tells_apart_are_refused(tmp_path):
    path = write(tmp_path, "words,tags\nAnna,B-PER\nleft,O\n")
    with pytest.raises(InputError, match="nothing says where its sentences end; name the column"):
        tables.read_tags(path, layout="words")
    with pytest.warns(
        UserWarning, match="all 2 sentences have one word.*name the column that numbers the sentences"
    ):
        tables.read_tags(path)
    path = write(tmp_path, "sentence_id,words,tags\n0,a,O\n0,b,O\n1,c,O\n0,d,O\n")
    with pytest.warns(UserWarning, match="line 5: the sentence '0' comes again after others"):
        assert [one.words for one in tables.read_tags(path)] == [("a", "b"), ("c",), ("d",)]
    with pytest.raises(InputError, match="line 3: the column 'words' has no word"):
        tables.read_tags(write(tmp_path, "sentence_id,words,tags\n0,a,O\n0,,O\n"))
    with pytest.raises(InputError, match="line 3: the column 'tags' has no tag"):
        tables.read_tags(write(tmp_path, "sentence_id,words,tags\n0,a,O\n0,b,\n"))


def test_tags_may_be_numbers_of_classes(tmp_path):
    path = write(tmp_path, '{"words": ["EU", "rejects"], "ner_tags": [3, 0]}\n', "a.jsonl")
    assert tables.read_tags(path, tags="ner_tags") == [TaggedSentence(("EU", "rejects"), ("3", "0"), 0)]
    for words, tags, named in (("[1, 2]", "[3, 0]", "words"), ('["a", "b"]', '[3, "O"]', "ner_tags")):
        path = write(tmp_path, f'{{"words": {words}, "ner_tags": {tags}}}\n', "a.jsonl")
        with pytest.raises(InputError, match=f"the list '{named}' holds something that is not a word"):
            tables.read_tags(path, tags="ner_tags")


def test_a_list_written_as_text_is_named(tmp_path):
    path = write(tmp_path, "words,tags\n\"['EU', 'rejects']\",\"['B-ORG', 'O']\"\n")
    with pytest.raises(InputError, match=r"line 2: the column 'words' is a list written as text.*to_json"):
        tables.read_tags(path)


def test_the_line_of_an_example_is_found_by_its_id_and_both_texts(tmp_path):
    path = write(tmp_path, "text,other,label\na,b,x\na,c,y\nd,b,x\n")
    options = {"second": "other"}
    examples = tables.read_texts(path, **options)
    assert [tables.line_of(one, path, **options) for one in examples] == [2, 3, 4]
    assert tables.line_of(examples[0]._replace(second="d"), path, **options) is None


@pytest.mark.parametrize(("first", "header"), [("text,mark", True), ("a,1", False)])
def test_a_missing_column_is_known_by_its_role(tmp_path, first, header):
    path = tmp_path / "a.csv"
    path.write_text(f"{first}\nb,2\n")
    with pytest.raises(tables.MissingColumn) as error:
        tables.read_texts(path, "text" if header else 1, label="label" if header else 3, header=header)
    assert (error.value.role, error.value.path) == ("label", path)
