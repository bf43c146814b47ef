"""Corpus readers: every layout, every kind of file, bounded memory, and sentences for bad input."""

import bz2
import gzip
import itertools
import lzma
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from real_data import real_data

from minibert.base.errors import InputError
from minibert.data import corpus
from minibert.data.corpus import (
    SENTENCE_CHARACTERS,
    embedded_corpus,
    find_files,
    layouts_text,
    sentences,
    sniff,
    split_sentences,
)
from minibert.tokenizer import BasicTokenizer
from minibert.tokenizer.counting import count_files

PROSE = """CHAPTER I


Mr. Bennet was so odd a mixture of quick parts, that the
experience of three-and-twenty years had been insufficient.
His wife's mind was less difficult to develop.

"Is it far?" asked she. "No!" cried he;
"it is not. Come, J. Smith, e.g. by coach."
The business of her life was to get her daughters married; its solace was visiting and
news, and that was all there was, as every one in the village knew, and said aloud to
every other one who would listen, on the road, by the church, in the shop and at the inn.


CHAPTER II


He was among the earliest.
"""


def write(path, text, newline="\n"):
    path.write_bytes(text.replace("\n", newline).encode())
    return path


def test_sentences_layout_gives_lines_and_one_none_between_documents(tmp_path):
    file = write(tmp_path / "a.txt", "\n\n one  two \nthree.\n\n\n\nfour\n \nfive\n\n")
    assert list(sentences(file, "sentences")) == ["one two", "three.", None, "four", None, "five"]


def test_paragraphs_layout_splits_each_line_and_keeps_the_document_together(tmp_path):
    file = write(tmp_path / "a.txt", "He came. She went.\nThey met.\n\nNext one.\n")
    assert list(sentences(file, "paragraphs")) == ["He came.", "She went.", "They met.", None, "Next one."]


def test_prose_layout_unwraps_lines_and_keeps_a_heading_with_its_chapter(tmp_path):
    found = list(sentences(write(tmp_path / "a.txt", PROSE), "prose"))
    assert found[0] == "CHAPTER I"
    assert found[1].startswith("Mr. Bennet was so odd a mixture of quick parts, that the experience of")
    assert found[2] == "His wife's mind was less difficult to develop."
    assert '"Is it far?" asked she.' in found
    assert '"No!" cried he; "it is not.' in found
    assert 'Come, J. Smith, e.g. by coach."' in found
    assert found[-3:] == [None, "CHAPTER II", "He was among the earliest."]


WIKITEXT = """
 = Homarus gammarus =

 Homarus gammarus is a lobster . It is blue .
 It lives in the Atlantic , where
 = 1 @.@ 5 =
 holds .

 = = Description = =

 It is a large crustacean . It has claws .
 Its colour is blue .
 Its mass is high .


 = Frank Headlam =

 Frank Headlam was a commander . He was born in Launceston .
"""


def test_documents_of_wikitext_begin_at_titles_and_not_at_blank_lines(tmp_path):
    assert sniff(WIKITEXT) == "wikitext"
    assert list(sentences(write(tmp_path / "wiki.txt", WIKITEXT))) == [
        "= Homarus gammarus =",
        "Homarus gammarus is a lobster .",
        "It is blue .",
        "It lives in the Atlantic , where",
        "= 1 @.@ 5 =",
        "holds .",
        "= = Description = =",
        "It is a large crustacean .",
        "It has claws .",
        "Its colour is blue .",
        "Its mass is high .",
        None,
        "= Frank Headlam =",
        "Frank Headlam was a commander .",
        "He was born in Launceston .",
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "layout", "documents"),
    [
        ("wikitext2.train.raw.xz", "wikitext", 600),  # as its makers count them
        ("wikitext2.valid.raw.xz", "wikitext", 60),
        ("wikitext2.test.raw.xz", "wikitext", 60),
        ("enwiki.txt.xz", "paragraphs", 22_848),
        ("more_books.txt.xz", "prose", 1_353),
    ],
)
def test_auto_finds_the_documents_of_real_texts(file, layout, documents):
    stream = sentences(real_data(f"text/{file}"))
    assert 1 + sum(sentence is None for sentence in stream) == documents
    assert stream.layouts_read == {layout: 1}


def test_documents_layout_makes_each_line_a_document(tmp_path):
    text = "He came. She went.\nAll is well.\n\n\nMr. Bennet left. Done.\n"
    (tmp_path / "a.txt").write_text(text)
    documents = ["He came.", "She went.", None, "All is well.", None, "Mr. Bennet left.", "Done."]
    assert list(sentences(tmp_path / "a.txt", "documents")) == documents


def test_documents_layout_keeps_a_line_of_many_pieces_whole(tmp_path):
    line = "The cat sat on the mat. " * 20_000  # 480,000 characters
    (tmp_path / "a.txt").write_text(f"{line}\n{line}\nShort.")
    found = list(sentences(tmp_path / "a.txt", "documents"))
    assert found.count(None) == 2 and found[-2:] == [None, "Short."]
    assert found.index(None) >= 20_000


@pytest.mark.parametrize("between", [" ", "\n", "\n\n", "\n\n\n"])
def test_continuous_layout_cuts_one_text_into_documents(tmp_path, between):
    lines = [f"This is sentence number {number}." for number in range(80)]
    (tmp_path / "a.txt").write_text(between.join(lines))
    stream = sentences(tmp_path / "a.txt", "continuous")
    assert list(stream) == [*lines[:32], None, *lines[32:64], None, *lines[64:]]
    assert not stream.layouts_read  # it was asked for


def test_continuous_layout_unwraps_prose_and_ends_at_the_end_of_a_file(tmp_path):
    (tmp_path / "a.txt").write_text(PROSE)
    (tmp_path / "b.txt").write_text("One.\nTwo.\n")
    found = list(sentences([tmp_path / "a.txt", tmp_path / "b.txt"], "continuous"))
    prose = [one for one in sentences(tmp_path / "a.txt", "prose") if one is not None]
    assert found == [*prose, None, "One.", "Two."]


def test_what_auto_found_is_a_sentence_with_the_layout_of_most_files_first(tmp_path):
    write(tmp_path / "a.txt", PROSE)
    for name in "bc":
        write(tmp_path / f"{name}.txt", "He came. She went.\nThey met. She went.\n")
    write(tmp_path / "empty.txt", "\n\n")
    stream = sentences(tmp_path)
    for _ in range(2):  # however often it is read
        assert [*stream] and stream.layouts_read == {"paragraphs": 2, "prose": 1}
    assert layouts_text(stream.layouts_read) == (
        "Read as 2 files with one paragraph a line, a blank line between documents "
        "(paragraphs); 1 file with paragraphs over several lines, two blank lines between documents (prose); "
        "to read it otherwise, choose a layout."
    )
    named = sentences(tmp_path, "prose")
    assert [*named] and not named.layouts_read


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_of_every_system_read_alike(tmp_path, newline):
    assert list(sentences(write(tmp_path / "a.txt", PROSE, newline), "prose")) == list(
        sentences(write(tmp_path / "b.txt", PROSE), "prose")
    )


def test_files_border_documents_and_empty_ones_leave_no_trace(tmp_path):
    write(tmp_path / "1.txt", "one.\n")
    write(tmp_path / "2.txt", "\n\n")
    write(tmp_path / "3.txt", "\ufefftwo.")
    assert list(sentences(tmp_path, "sentences")) == ["one.", None, "two."]


def test_compressed_files_read_like_plain_ones(tmp_path):
    plain = write(tmp_path / "a.txt", PROSE)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(PROSE.encode()))
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(PROSE.encode()))
    (tmp_path / "a.txt.bz2").write_bytes(bz2.compress(PROSE.encode()))
    for packed in ("a.txt.gz", "a.txt.xz", "a.txt.bz2"):
        assert list(sentences(tmp_path / packed)) == list(sentences(plain))


def test_folders_globs_and_names_are_found_in_order_and_once(tmp_path):
    for name in ("b.txt", "a.txt.gz", "sub/c.txt.xz", ".hidden/d.txt", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [str(file.relative_to(tmp_path)) for file in find_files(tmp_path)]
    assert names == ["a.txt.gz", "b.txt", "sub/c.txt.xz"]
    assert find_files([tmp_path / "b.txt", tmp_path / "*.txt"]) == [tmp_path / "b.txt"]
    assert find_files(tmp_path / "notes.md") == [tmp_path / "notes.md"]
    assert find_files(str(tmp_path / "**" / "*.xz")) == [tmp_path / "sub/c.txt.xz"]


def test_the_vocabulary_of_a_run_beside_the_text_is_no_text(tmp_path):
    (tmp_path / "runs" / "books").mkdir(parents=True)
    for name in ("a.txt", "runs/books/vocab.txt"):
        write(tmp_path / name, "one.\n")
    assert find_files(tmp_path) == [tmp_path / "a.txt"]
    assert find_files(tmp_path / "runs/books/vocab.txt") == [tmp_path / "runs/books/vocab.txt"]


def test_a_linked_folder_is_read_and_a_circle_of_links_ends(tmp_path):
    corpus, elsewhere = tmp_path / "corpus", tmp_path / "elsewhere"
    for folder in (corpus / "sub", elsewhere):
        folder.mkdir(parents=True)
    write(corpus / "a.txt", "one.\n")
    write(elsewhere / "b.txt", "two.\n")
    (corpus / "link").symlink_to(elsewhere, target_is_directory=True)
    (corpus / "sub" / "up").symlink_to(corpus, target_is_directory=True)
    (elsewhere / "back").symlink_to(corpus / "sub", target_is_directory=True)
    assert find_files(corpus) == [corpus / "a.txt", corpus / "link" / "b.txt"]


def test_a_file_and_a_link_to_it_are_read_once(tmp_path):
    write(tmp_path / "a.txt", "one.\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    assert find_files([tmp_path / "link.txt", tmp_path / "a.txt"]) == [tmp_path / "link.txt"]
    assert find_files(tmp_path) == [tmp_path / "a.txt"]


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path, monkeypatch):
    (tmp_path / "closed").mkdir()
    write(tmp_path / "a.txt", "one.\n")
    scandir = os.scandir

    def refuses(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuses)
    with pytest.raises(InputError, match=r"closed can't be read \(Permission denied\); change its"):
        find_files(tmp_path)


def test_endings_in_capitals_are_those_of_small_letters(tmp_path):
    write(tmp_path / "A.TXT", "one.\n")
    (tmp_path / "B.TXT.GZ").write_bytes(gzip.compress(b"two.\n"))
    (tmp_path / "C.txt.XZ").write_bytes(lzma.compress(b"three.\n"))
    assert list(sentences(tmp_path, "sentences")) == ["one.", None, "two.", None, "three."]
    counted = count_files(find_files(tmp_path), BasicTokenizer())
    assert set(counted.words) == {"one", "two", "three", "."}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_by_what_it_is(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe is a pipe or a device, and a corpus is read more than once"):
        find_files(tmp_path / "pipe")


def test_auto_tells_the_three_layouts_apart():
    assert sniff(PROSE) == "prose"
    assert sniff("He came. She went. They met.\nOne more. And more.\n\nNext one. Last one.\n") == "paragraphs"
    assert sniff("He came.\nShe went.\n\nThey met.\nChapter\nOne more.\n") == "sentences"
    assert sniff("") == "sentences"


def test_auto_reads_the_embedded_books_as_sentences():
    first = list(itertools.islice(sentences(embedded_corpus()), 3))
    assert first[:2] == ["VOLUME I", "CHAPTER I"]
    assert first[2].startswith("Emma Woodhouse, handsome, clever, and rich,")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("A b. C d.", ["A b.", "C d."]),
        ("It is 3.5 metres. Yes", ["It is 3.5 metres.", "Yes"]),
        ("XII. The Fairy Tale. So it began.", ["XII. The Fairy Tale.", "So it began."]),
        ("He and I. Then we left.", ["He and I.", "Then we left."]),
        ('She said, "Go." "I will."', ['She said, "Go."', '"I will."']),
        ("Wait... what? No.", ["Wait... what?", "No."]),
        ("他来了。她走了！好", ["他来了。", "她走了！", "好"]),
        ("यह है। वह है।", ["यह है।", "वह है।"]),
        ("یہ ہے۔ وہ ہے۔", ["یہ ہے۔", "وہ ہے۔"]),
        ("Նա եկավ։ Նա գնաց։", ["Նա եկավ։", "Նա գնաց։"]),
        ("እሱ መጣ። እሷ ሄደች።", ["እሱ መጣ።", "እሷ ሄደች።"]),
        ("သူလာသည်။ သူသွားသည်။", ["သူလာသည်။", "သူသွားသည်။"]),
        ("គាត់មក។ គាត់ទៅ។", ["គាត់មក។", "គាត់ទៅ។"]),
        ("No end", ["No end"]),
        ("Stars . . . and night. Day.", ["Stars . . . and night.", "Day."]),
        ("Fini. être ou non. Être.", ["Fini. être ou non.", "Être."]),
        ('He left. "élan." Yes.', ['He left. "élan."', "Yes."]),
        ("1. 2. Three. ... Four. 5", ["1. 2.", "Three. ...", "Four.", "5"]),
        ("", []),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text, expected):
    assert split_sentences(text) == expected


@pytest.mark.parametrize("text", ["「. ", ".) 「 ", "Mr. "], ids=["quotes", "brackets", "titles"])
def test_text_without_a_single_border_is_split_in_linear_time(text):
    began = time.process_time()
    assert split_sentences(text * 100_000) == [(text * 100_000).strip()]
    assert time.process_time() - began < 5  # 0.05; when every full stop looked back to the beginning: minutes


@given(st.text(alphabet="aB.!?…。！ \n\"')”」(1", max_size=60))
def test_marks_in_a_row_need_only_the_first_one_tried(text):
    of_each = re.sub(r"\(\?<!\[[^]]*\]\{2\}\)", "", corpus._END.pattern)
    assert of_each.count("(?<!") == 0 < corpus._END.pattern.count("(?<!")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "_END", re.compile(of_each, re.VERBOSE))
        expected = split_sentences(text)
    assert split_sentences(text) == expected


@given(st.text(alphabet="aB.!? \"'。Mr", max_size=200))
def test_splitting_loses_nothing_but_spaces(text):
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@given(
    st.lists(st.text(alphabet="abc=. ", max_size=30), max_size=20),
    st.sampled_from(["sentences", "paragraphs", "prose", "wikitext", "auto"]),
)
def test_every_layout_keeps_every_character_and_puts_none_only_between(tmp_path_factory, lines, layout):
    text = "\n".join(lines)
    file = write(tmp_path_factory.mktemp("corpus") / "a.txt", text)
    if not text.strip():
        with pytest.raises(InputError, match="empty"):
            list(sentences(file, layout))
        return
    found = list(sentences(file, layout))
    assert "".join("".join(found_one.split()) for found_one in found if found_one) == "".join(text.split())
    assert found[0] is not None and found[-1] is not None
    assert all(a is not None or b is not None for a, b in zip(found, found[1:], strict=False))


def test_not_utf8_names_the_file_and_the_offset(tmp_path):
    file = tmp_path / "latin.txt"
    file.write_bytes(b"a" * 65_535 + "é".encode() + b"caf\xe9 noir\n")
    with pytest.raises(InputError, match=r"latin\.txt is not UTF-8: byte 0xe9 at offset 65,540 "):
        list(sentences(file))


def test_a_character_cut_by_the_end_of_the_file_is_not_utf8(tmp_path):
    file = tmp_path / "cut.txt"
    file.write_bytes(b"caf\xc3")
    with pytest.raises(InputError, match="byte 0xc3 at offset 3 "):
        list(sentences(file))


@pytest.mark.parametrize("suffix, pack", [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_damaged_compressed_files_say_so(tmp_path, suffix, pack):
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(pack(PROSE.encode() * 50)[:-20])
    with pytest.raises(InputError, match="damaged or cut short"):
        list(sentences(file))
    file.write_bytes(b"this was never compressed, whatever its name says")
    with pytest.raises(InputError, match="damaged or cut short"):
        list(sentences(file))


@pytest.mark.parametrize(
    "paths, words",
    [
        ([], "The name of the corpus is empty; give"),
        ("nowhere.txt", "There is no file or folder '.*nowhere.txt'"),
        ("*.nothing", "nothing matches it"),
    ],
)
def test_nothing_to_read_says_so(paths, words):
    with pytest.raises(InputError, match=words):
        sentences(paths)


def test_a_folder_without_texts_says_so(tmp_path):
    with pytest.raises(InputError, match="holds no .txt"):
        find_files(tmp_path)


def test_an_unknown_layout_lists_the_known_ones():
    with pytest.raises(InputError, match="layout='verse' is unknown; choose from auto, sentences, para"):
        sentences(embedded_corpus(), "verse")


def test_progress_runs_from_nothing_to_all_bytes(tmp_path):
    write(tmp_path / "1.txt", PROSE)
    (tmp_path / "2.txt.gz").write_bytes(gzip.compress(PROSE.encode() * 100))
    stream = sentences(tmp_path)
    seen = [stream.bytes_read for _ in stream]
    assert seen == sorted(seen)
    assert stream.bytes_read == stream.bytes_total == sum(file.stat().st_size for file in tmp_path.iterdir())


def test_overlong_sentences_are_cut_at_spaces_in_every_layout(tmp_path):
    text = "word " * 50_000
    file = write(tmp_path / "a.txt", text)
    for layout in ("sentences", "paragraphs", "prose"):
        found = list(sentences(file, layout))
        assert None not in found
        assert max(map(len, found)) <= SENTENCE_CHARACTERS
        assert " ".join(found).split() == text.split()


# VmHWM and not getrusage: on Linux the latter counts the memory of the parent that started the process.
READ_A_LINE = r"""
import re, sys
from minibert.data.corpus import sentences
for layout in ("sentences", "paragraphs", "prose"):
    for sentence in sentences(sys.argv[1], layout):
        pass
print(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1])
"""


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
def test_a_line_of_many_megabytes_is_read_in_bounded_pieces(tmp_path):
    def peak(size):
        with open(tmp_path / "line.txt", "wb") as file:
            for _ in range(size):
                file.write(b"lorem ipsum, " * 80_000)
        command = [sys.executable, "-c", READ_A_LINE, str(tmp_path / "line.txt")]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(run.stdout) / 1000  # MB

    assert peak(16) - peak(1) < 8  # 0; read as one line: 30


@pytest.mark.thorough
def test_the_embedded_books_are_what_their_note_says():
    found = list(sentences(embedded_corpus(), "sentences"))
    documents = found.count(None) + 1
    words = sum(len(sentence.split()) for sentence in found if sentence)
    assert (documents, words) == (1_381, 2_039_646)
    assert embedded_corpus().stat().st_size < 3_600_000
    note = embedded_corpus().with_name("README.md").read_text()
    assert "1,381 documents" in note and "2.04 million words" in note
    text = "\n".join(sentence for sentence in found if sentence)
    assert "In the beginning God created the heaven and the earth.\n" in text
    assert "Call me Ishmael.\n" in text
    for trace in ("Gutenberg", "1:1 ", "\x1a"):
        assert trace.lower() not in text.lower(), trace


def test_a_first_word_of_one_letter_is_a_word_before_its_full_stop():
    assert split_sentences("a . B is next.") == ["a .", "B is next."]
    assert split_sentences("- . B is first.") == ["- . B is first."]
