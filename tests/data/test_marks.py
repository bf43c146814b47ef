"""A sentence where a tokenizer strips marks of a considerable share of a text, and none elsewhere."""

import pytest

from minibert.data import marks
from minibert.data.marks import MarkCounts
from minibert.tokenizer import BasicTokenizer

HINDI = "यह एक छोटी सी किताब है और हम उसे पढ़ते हैं"
THAI = "ผู้หญิงกำลังอ่านหนังสือเล่มนี้ที่บ้าน"
VIETNAMESE = "Tiếng Việt là ngôn ngữ của người Việt"
JAPANESE = "がっこうでべんきょうをします"


@pytest.mark.representatives(text=HINDI)
@pytest.mark.parametrize(
    ("text", "share", "example"),
    [
        (HINDI, 19, "'है' is read as 'ह'"),
        (THAI, 35, "is read as 'ผหญงกำลงอานหนง'"),
        (VIETNAMESE, 30, "'Tiếng' is read as 'tieng'"),
        (JAPANESE, 21, "is read as 'かっこうてへんきょうをします'"),
    ],
)
def test_stripped_marks_are_warned_of(text, share, example):
    counts = MarkCounts(BasicTokenizer())
    counts.add(text)
    counts.add("")
    with pytest.warns(UserWarning, match=f"{share}% of the characters of the text lose a mark") as caught:
        counts.warn()
    assert example in str(caught[0].message)
    assert "keep_accents=True leaves marks where they are" in str(caught[0].message)


@pytest.mark.parametrize(
    "text", ["Où est l'été de cette année, demande la fille", "ASCII", "中文 한국어", ""]
)
def test_few_marks_are_not_worth_a_sentence(text, recwarn):
    counts = MarkCounts(BasicTokenizer())
    counts.add(f"{text} and a sentence of many letters behind it, in which there is no accent")
    counts.warn()
    assert not recwarn


@pytest.mark.parametrize("rules", [{"lower_case": False}, {"strip_accents": False}])
def test_kept_marks_are_not_warned_of(rules, recwarn):
    counts = MarkCounts(BasicTokenizer(**rules))
    counts.add(HINDI)
    counts.warn()
    assert not recwarn


@pytest.mark.parametrize(("plain", "warns"), [(1 << 24, True), ((1 << 24) + 1, False)])
def test_marks_are_counted_until_sixteen_mebi_characters_are_read(plain, warns, recwarn, monkeypatch):
    monkeypatch.setattr(marks, "MANY_MARKED", 0.0)
    counts = MarkCounts(BasicTokenizer())
    counts.add("a" * plain)
    counts.add("é")
    counts.warn()
    assert len(recwarn) == warns
