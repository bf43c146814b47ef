"""Readers of SQuAD and TriviaQA: real counts and content, offsets, memory, broken and hostile files."""

import gzip
import itertools
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from real_data import FIXTURES, real_data

from minibert.base.errors import InputError
from minibert.data import json_items, squad, trivia
from minibert.data.json_items import array_items
from minibert.data.squad import Answer, Question, locate

LIGHTHOUSE = "The lighthouse was lit in 1841 by Ann Gray, its first keeper."


def write(folder, value, name="a.json"):
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def one_question(context=LIGHTHOUSE, **changes):
    item = {"id": "q", "question": "When?", "answers": [{"text": "1841", "answer_start": 26}], **changes}
    item = {key: value for key, value in item.items() if value is not None}
    return {"version": "1.1", "data": [{"title": "T", "paragraphs": [{"context": context, "qas": [item]}]}]}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name, questions, contexts, articles, impossible",
    [
        ("dev-v1.1.json", 10570, 2067, 48, 0),
        ("dev-v2.0.json", 11873, 1204, 35, 5945),
        ("train-subset-v1.1.json", 4000, 800, 800, 0),
        ("xquad/xquad.zh.json", 1190, 240, 48, 0),
        ("xquad/xquad.ar.json", 1190, 240, 48, 0),
        ("xquad/xquad.th.json", 1190, 240, 48, 0),
        ("xquad/xquad.en.json", 1190, 240, 48, 0),
    ],
)
@pytest.mark.filterwarnings("error")  # no answer is lost
def test_real_files_have_their_counts_and_answers_stand_where_they_say(
    name, questions, contexts, articles, impossible
):
    path = real_data(f"squad/{name}")
    found = squad.read(path)
    assert len(found) == questions
    assert len({(question.title, question.context) for question in found}) == contexts
    assert len({question.title for question in found}) == articles
    assert sum(question.impossible for question in found) == impossible
    for question in found:
        assert bool(question.answers) != question.impossible
        for text, start in question.answers:
            assert question.context[start : start + len(text)] == text and text
    written = json.loads(path.read_text(encoding="utf-8"))["data"]
    expected = [
        (item["id"], item["question"], paragraph["context"], [a["text"].strip() for a in item["answers"]])
        for article in written
        for paragraph in article["paragraphs"]
        for item in paragraph["qas"]
    ]
    assert [(q.id, q.question, q.context, [a.text for a in q.answers]) for q in found] == expected


@pytest.mark.thorough
def test_real_questions_first_last_and_impossible():
    found = squad.read(real_data("squad/dev-v2.0.json"))
    assert found[0].id == "5725b33f6a3fe71400b8952d" and found[0].title == "1973_oil_crisis"
    assert found[0].question == "When did the 1973 oil crisis begin?" and found[0].impossible is False
    assert [*dict.fromkeys(found[0].answers)] == [
        Answer("October 1973", 29), Answer("October", 29), Answer("1973", 4),
    ]  # fmt: skip
    assert found[-1].id == "5ad40d89604f3c001a4000d5"
    assert found[-1].impossible is True and found[-1].answers == ()
    assert found[5].question == "When did OPEC begin?" and found[5].impossible is True


def test_both_versions_of_our_own():
    train = squad.read(FIXTURES / "squad" / "train-v1.1.json")
    assert [(question.id, question.answers[0].text) for question in train] == [
        ("w1", "the moors"), ("w2", "31 miles"), ("w3", "Twelve"), ("l1", "Ann Gray"), ("l2", "1841"),
    ]  # fmt: skip
    assert train[0].context is train[1].context  # a paragraph is in memory once
    dev = squad.read(FIXTURES / "squad" / "dev-v2.0.json")
    assert dev == [
        Question(
            "d1", "When was the lighthouse lit?", LIGHTHOUSE, (Answer("1841", 26), Answer("in 1841", 23)),
            False, "Lighthouse",
        ),
        Question("d2", "Who put the lighthouse out?", LIGHTHOUSE, (), True, "Lighthouse"),
    ]  # fmt: skip


def test_a_test_set_without_answers_leaves_open_whether_there_is_one(tmp_path):
    assert squad.read(write(tmp_path, one_question(answers=None)))[0].impossible is None
    assert squad.read(write(tmp_path, one_question(answers=[])))[0].answers == ()
    empty = [{"text": "", "answer_start": -1}]
    assert squad.read(write(tmp_path, one_question(answers=empty, is_impossible=True)))[0].impossible is True


@pytest.mark.parametrize(
    "context, text, start, expected",
    [
        (LIGHTHOUSE, "1841", 26, ("1841", 26)),
        (LIGHTHOUSE, " 1841 ", 25, ("1841", 26)),  # white space belongs to no answer
        (LIGHTHOUSE, "1841", 27, ("1841", 26)),  # the same word: Google's rule finds it
        (LIGHTHOUSE, "1841 by", 24, ("1841 by", -1)),  # "in 1841" are the words it touches
        (LIGHTHOUSE, "1841", 4, ("1841", -1)),
        (LIGHTHOUSE, "1841", 99, ("1841", -1)),
        (LIGHTHOUSE, "1841", -1, ("1841", -1)),
        (LIGHTHOUSE, "keeper.", -7, ("keeper.", -1)),  # not from the end
        ("in the late  1990s (then)", "late 1990s", 7, ("late  1990s", 7)),
        ("aa ab-ab-ab", "ab", 7, ("ab", 6)),  # the nearest
        ("(1841)", "1841", 0, ("1841", 1)),
    ],
)
def test_answers_are_found_by_the_rule_of_the_released_code(context, text, start, expected):
    assert locate(context, text, start) == expected


@given(st.text("ab c\n", min_size=1, max_size=40), st.data())
def test_an_answer_that_stands_there_is_found_there(context, data):
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    text = context[start:end]
    if text.strip():
        found = locate(context, text, start)
        assert found.text == text.strip()
        assert context[found.start :].startswith(found.text) and start <= found.start < end


def found_by_google(context, text, start):
    """The check of run_squad.py, written again: whether the words at the offset hold the answer's."""
    words, word_of = [], []
    before = " "
    for character in context:
        if not character.isspace():
            if before.isspace():
                words.append("")
            words[-1] += character
        word_of.append(len(words) - 1)
        before = character
    touched = words[word_of[start] : word_of[start + len(text) - 1] + 1]
    return " ".join(text.split()) in " ".join(touched)


@given(st.text("ab \n", max_size=30), st.text("ab ", min_size=1, max_size=6), st.data())
def test_an_answer_counts_as_found_when_the_released_code_finds_it(context, text, data):
    context, text = f"a{context}{' a' * 9}", f"a{text}b"
    start = data.draw(st.integers(0, len(context) - len(text)))
    found = locate(context, text, start)
    assert (found.start >= 0) == found_by_google(context, text, start)
    if found.start >= 0:
        assert context.startswith(found.text, found.start) and found.text.split() == text.split()


def test_answers_in_the_wrong_place_are_marked_counted_and_kept(tmp_path):
    path = write(tmp_path, one_question(answers=[{"text": "1842", "answer_start": 26}]))
    with pytest.warns(UserWarning, match=r"1 of 1 questions have an answer that is not in the paragraph"):
        assert squad.read(path)[0].answers == (Answer("1842", -1),)


@pytest.mark.parametrize(
    "value, sentence",
    [
        ({"56be": "Denver", "56bf": "gold"}, r"has no array 'data', its keys are 56be, 56bf; check"),
        ({"data": {"title": "T"}}, r"has no array 'data', its keys are data"),
        ({"data": []}, "has no questions"),
        ({"data": [{"title": "T", "paragraphs": []}]}, "has no questions"),
        ({"data": ["T"]}, r"article 1: a JSON str, expected an object with 'title'"),
        ({"data": [{"id": 1, "context": "c"}]}, r"article 1: there is no 'paragraphs', the keys are id"),
        (one_question(id=[]), r"paragraph 1, question 1: 'id' is of type list, expected str"),
        (one_question(question=None), r"question 1: there is no 'question'"),
        (one_question(answers={"text": []}), r"'answers' is of type dict, expected list"),
        (one_question(answers=[{"text": "1841"}]), r"there is no 'answer_start', the keys are text"),
        (one_question(answers=[{"text": "a", "answer_start": "2"}]), "'answer_start' is of type str"),
        (one_question(is_impossible="no"), r"'is_impossible' is of type str, expected bool"),
        (one_question(context=" \n"), r"article 1, paragraph 1: the context is empty"),
        ('[{"title": 1}]', r"a.json begins with '\[', and an object of JSON is expected; check the name"),
        ('{"data": [{"title": "T", ]}', r"is not JSON or cut short: .* at character 2\d"),
        ('{"data": [', r"is not JSON or cut short: Expecting value at character 10"),
        ('{"data": [] ', r"a.json is broken: at character 12 '\}' is expected and its end was found"),
        ('{"data": []} x', r"at character 13 the end of the file is expected and 'x' was found"),
        ('{"data": 1 2}', r"at character 11 '\}' is expected and '2' was found"),
        ("{1: 2}", r"a key within quotation marks is expected"),
        ("", r"a.json is empty, and an object of JSON is expected"),
        ('{"data": [],}', r"is not JSON or cut short: .* at character 12"),
        ('{"data": [' + "[" * 100_000, "nested too deeply"),
        ('{"data": [' + "9" * 5000 + "]}", "is not JSON that can be read: .*digits"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_with_its_place(tmp_path, value, sentence):
    with pytest.raises(InputError, match=sentence):
        squad.read(write(tmp_path, value))


def test_a_file_cut_at_any_place_is_refused(tmp_path):
    whole = json.dumps(one_question())
    for end in range(len(whole)):
        with pytest.raises(InputError):
            squad.read(write(tmp_path, whole[:end]))
    assert len(squad.read(write(tmp_path, whole))) == 1


def test_two_questions_of_one_id_are_refused(tmp_path):
    value = one_question()
    value["data"] *= 2
    with pytest.raises(InputError, match="two questions have the id 'q'"):
        squad.read(write(tmp_path, value))


KEYS = st.text(max_size=5).filter(lambda key: key != "data")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(
    before=st.dictionaries(KEYS, JSON, max_size=3),
    items=st.lists(JSON, max_size=6),
    after=st.dictionaries(KEYS, JSON, max_size=3),
    size=st.integers(1, 40),
    indent=st.sampled_from([None, 0, 2]),
    ascii=st.booleans(),
)
def test_items_come_out_as_json_loads_reads_them_however_the_pieces_fall(
    tmp_path_factory, before, items, after, size, indent, ascii
):
    text = json.dumps({**before, "data": items, **after}, indent=indent, ensure_ascii=ascii)
    path = tmp_path_factory.mktemp("json") / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_items, "LOOKED_AHEAD", 1)
        pieces = (text[i : i + size] for i in range(0, len(text), size))
        patch.setattr(json_items, "decoded", lambda *_: pieces)
        assert list(array_items(path, ("data",))) == [("data", item) for item in items]


def test_streaming_needs_memory_for_an_article_and_not_for_the_file(tmp_path):
    article = json.dumps(one_question(context=LIGHTHOUSE + " Waves roll in." * 4000)["data"][0])
    with gzip.open(tmp_path / "a.json.gz", "wt") as file:
        file.write('{"version": 2.0, "data": [')
        file.write(",".join(article.replace('"q"', f'"q{i}"') for i in range(200)))
        file.write("]}")
    tracemalloc.start()
    count = sum(1 for _ in squad.stream(tmp_path / "a.json.gz"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200 and len(article) * 200 > 11e6
    assert peak < 20 * len(article)


# VmHWM and not getrusage: on Linux the latter counts the memory of the parent that started the process.
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
def test_reading_real_questions_stays_small():
    path = real_data("squad/dev-v1.1.json")
    program = (
        "import re, sys\nfrom minibert.data import squad\n"
        "def peak():\n"
        "    return int(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])\n"
        "before = peak()\n"
        "count = sum(1 for _ in squad.stream(sys.argv[1]))\n"
        "print(count, peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    count, grown = map(int, done.stdout.split())
    assert count == 10570 and grown < 15_000  # KiB; the file has 4.8 MB, and read at once takes 31,000


TRIVIA = FIXTURES / "triviaqa" / "qa" / "wikipedia-train.json"


def test_trivia_keeps_documents_that_hold_an_answer_and_finds_it_in_the_original_text():
    found = trivia.read(TRIVIA)
    assert [question.id for question in found] == ["tc_1--River_Willow.txt", "tc_2--River_Willow.txt"]
    bridge, mills = found
    assert bridge.title == "River Willow" and bridge.question.startswith("Which crossing")
    assert [answer.text for answer in bridge.answers] == ["the old bridge", "old bridge"]
    assert [answer.text for answer in mills.answers] == ["twelve"]  # not the 12 of 112 metres
    assert bridge.impossible is False
    for question in found:
        for text, start in question.answers:
            assert question.context[start : start + len(text)] == text


def test_trivia_reads_the_first_tokens_only():
    found = trivia.read(TRIVIA, tokens=50)
    assert [question.id for question in found] == ["tc_1--River_Willow.txt"]
    assert found[0].context.endswith("away the old bridge, which had stood for")
    with pytest.raises(InputError, match="no document that holds an answer in its first 5 tokens"):
        trivia.read(TRIVIA, tokens=5)
    with pytest.raises(InputError, match="tokens=0 leaves no paragraph"):
        trivia.read(TRIVIA, tokens=0)


def test_trivia_in_the_layout_of_squad_reads_alike():
    found = trivia.read(FIXTURES / "triviaqa" / "squad-like.json")
    assert [(question.id, question.answers) for question in found] == [
        ("tc_1--River_Willow.txt", (Answer("Old Bridge", 49),))
    ]


@given(st.text("ab.' \n", max_size=60), st.integers(1, 12), st.integers(1, 7))
def test_first_tokens_do_not_depend_on_the_pieces(text, tokens, size):
    pieces = ["", *(piece for i in range(0, len(text), size) for piece in (text[i : i + size], ""))]
    cut = trivia.first_tokens(pieces, tokens)
    assert cut == trivia.first_tokens([text], tokens)
    assert text.startswith(cut) and len(trivia._TOKEN.findall(cut)) <= tokens
    if cut != text.rstrip():
        assert len(trivia._TOKEN.findall(cut)) == tokens


def test_first_tokens_stop_reading():
    pieces = itertools.chain(["one two three "], (pytest.fail("read on") for _ in [0]))
    assert trivia.first_tokens(pieces, 2) == "one two"


def trivia_item(**changes):
    page = {"Filename": "A.txt", "Title": "A"}
    item = {"Question": "Who?", "QuestionId": "x_1", "Answer": {"Value": "Ann"}, "EntityPages": [page]}
    item |= changes
    return {"Data": [{key: value for key, value in item.items() if value is not None}]}


def test_trivia_reads_400_tokens_of_a_document_by_default(tmp_path):
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "A.txt").write_text("Ann, " + "word " * 500)
    [question] = trivia.read(write(tmp_path, trivia_item()))
    assert question.context == "Ann, " + " ".join(["word"] * 398)  # and a comma


def test_trivia_without_its_evidence_or_with_a_part_of_it(tmp_path):
    two = [{"Filename": "A.txt"}, {"Filename": "B.txt"}]
    path = write(tmp_path, trivia_item(EntityPages=two))
    with pytest.raises(InputError, match=r"none of its 2 documents is there, such as .*A.txt; unpack"):
        trivia.read(path)
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "B.txt").write_text("Here is ANN, at last.")
    with pytest.warns(UserWarning, match=r"1 of 2 documents are not there and are left out"):
        found = trivia.read(path)
    assert [(question.id, question.answers) for question in found] == [("x_1--B.txt", (Answer("ANN", 8),))]
    assert trivia.read(write(tmp_path, trivia_item(EntityPages=two[1:])), tmp_path / "evidence") == found


@pytest.mark.parametrize(
    "item, sentence",
    [
        (trivia_item(Answer=None), "there is no 'Answer'; the test files of TriviaQA can't be trained on"),
        (trivia_item(QuestionId=None), "there is no 'QuestionId', the keys are Question, Answer"),
        (trivia_item(EntityPages=None), "item 1: none of EntityPages, SearchResults is there"),
        (trivia_item(EntityPages=[{"Title": "A"}]), "a page has no 'Filename'"),
        (trivia_item(EntityPages=[{"Filename": "../../secret.txt"}]), r"'../../secret.txt' is outside of"),
        (trivia_item(EntityPages=[{"Filename": "/etc/passwd"}]), r"'/etc/passwd' is outside of"),
        ({"Data": [1]}, "item 1: none of EntityPages"),
        ({"questions": []}, "has no array 'Data' or 'data', its keys are questions"),
    ],
)
def test_trivia_that_is_wrong_is_refused(tmp_path, item, sentence):
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "A.txt").write_text("Ann.")
    with pytest.raises(InputError, match=sentence):
        trivia.read(write(tmp_path, item))
