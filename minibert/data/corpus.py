"""Read text in any of several layouts as one stream of sentences, with a mark between documents.

Next-sentence prediction and long spans need documents whose sentences are in order (section 3.1 and
appendix A.2 of the paper). Files are read in pieces, so memory doesn't grow with a file, nor with a line.
"""

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, groupby, pairwise
from pathlib import Path
from reprlib import repr as short
from typing import NoReturn

from minibert.base.errors import InputError
from minibert.base.model_names import VOCABULARY_FILE
from minibert.base.reading import PACKED, decoded
from minibert.base.terminal import counted, some_of
from minibert.data.documents import DOCUMENTS, format_of, text_of

LAYOUTS = {
    "auto": "recognised from the text of each file",
    "sentences": "one sentence a line, a blank line between documents",
    "paragraphs": "one paragraph a line, a blank line between documents",
    "prose": "paragraphs over several lines, two blank lines between documents",
    "wikitext": "one paragraph a line, documents under titles such as = Title =",
    "documents": "one document a line",
    "continuous": "one text without borders, which is cut into documents of 32 sentences",
}
FOLDER_SUFFIXES = (".txt", *(f".txt{packed}" for packed in PACKED))

LINE_CHARACTERS = 1 << 16  # a longer line or paragraph is processed in parts of this size
SENTENCE_CHARACTERS = 1 << 12  # a longer "sentence" is cut: no sentence of the embedded books comes near it
SNIFFED_CHARACTERS = 1 << 16  # the beginning from which "auto" recognises the layout
WIDEST_PAGE = 120  # characters in the longest line of hard-wrapped prose
CONTINUOUS_SENTENCES = 32  # in each document that a continuous text is cut into; 512 tokens or more
HEADING_CHARACTERS = 400  # shorter prose before a gap is a heading, and stays with what follows

# Where a sentence may end: its marks, closing quotes, then a space (none is written after 。！？), but not
# before a word in lower case, another mark or the end. `stop` matches a single full stop. Of several
# marks in a row only the first is tried, since the pattern runs over the whole row from there. The pattern
# begins with a class of characters, not with alternatives: `re` is then five times as fast.
_END = re.compile(
    r"""[.!?…؟۔।։።။។。！？](?<![.!?…؟۔।։።။។]{2})(?<![。！？]{2})
    (?>(?<=[。！？])[。！？]*[”’」』）]*\s* | (?<=\.)(?P<stop>)\s+ | [.!?…؟۔।։።။។]*+["'”’»)\]_*]*+\s+)
    (?!["'“‘«(\[_*\-—]{0,7}+[a-z.!?…؟۔।։።။។。！？] | \Z)""",
    re.VERBOSE,
)
_MARKS = tuple(".!?…؟۔।։።။។。！？")
_CLOSING = "\"'”’»)]_*」』）"
_OPENING = "\"'“‘«([_*-—"
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr st messrs mme mlle rev hon capt col gen lieut lt sergt prof sr jr esq no nos vol viz vs "
    "etc i.e e.g cf fig pp jan feb aug sept oct nov dec".split()
)
_WORD = re.compile(r"\w")
_TITLE = re.compile(r"= [^=]+ =")  # of a WikiText document; titles of sections have two or more =
_NUMERAL = re.compile(r"(?:[IVXLCDM]+|\d+)\.\s*")  # "XII. The Fairy Tale": a number before its title


def find_files(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Find the text files that names of files, folders and globs refer to.

    Parameters
    ----------
    paths : str, Path or iterable of them
        A file stands for itself, whatever its suffix; a folder for every .txt under it, compressed too, and
        in capitals, but no hidden one and no vocab.txt, links to folders followed; any other name is a glob
        (`**` goes down into folders).

    Returns
    -------
    list of Path
        In the order of `paths`, sorted within a folder or glob, each once: a link is the file that it leads
        to, under the name that comes first.

    Raises
    ------
    InputError
        When a name matches no file or is a pipe, a folder can't be read, or nothing is named.
    """
    names = [paths] if isinstance(paths, str | Path) else list(paths)
    if not names or "" in names:
        raise InputError("The name of the corpus is empty; give a text file, a folder or a glob.")
    first: dict[str, Path] = {}  # by the file that a path leads to
    for name in names:
        for path in _files_of(Path(name)):
            first.setdefault(os.path.realpath(path), path)
    return list(first.values())


def _files_of(path: Path) -> list[Path]:
    try:
        is_file = path.is_file()
    except OSError as error:  # too long, for one
        raise InputError(
            f"{short(str(path))} is not the name of a file ({error.strerror}); "
            "in Python, texts in memory are given as a list, each of them a document."
        ) from error
    if is_file:
        return [path]
    if path.is_dir():
        files = [file for file in _under(path) if file.name.lower().endswith(FOLDER_SUFFIXES)]
        if files:
            return sorted(files)
        raise InputError(f"The folder '{path}' holds no {', '.join(FOLDER_SUFFIXES)}; name its files.")
    if path.exists():
        raise InputError(f"{path} is a pipe or a device, and a corpus is read more than once; name a file.")
    matches = map(Path, glob.glob(str(path), recursive=True))
    files = sorted(match for match in matches if match.is_file())
    if files:
        return files
    raise InputError(
        f"There is no file or folder '{path}', and nothing matches it; check the name of the corpus."
    )


def _under(folder: Path) -> Iterator[Path]:
    """Yield the files under a folder, following links, without hidden files, vocabularies or repeats."""
    seen = {os.path.realpath(folder)}
    for place, folders, names in os.walk(folder, onerror=_unreadable, followlinks=True):
        inside: dict[str, str] = {}  # names of the folders in this one, by their real paths
        for name in sorted(folders):
            if name[0] != ".":
                inside[os.path.realpath(os.path.join(place, name))] = name
        folders[:] = [name for real, name in inside.items() if real not in seen]  # visited next
        seen.update(inside)
        for name in names:
            file = Path(place, name)
            # The text may be next to a run folder, which has a vocabulary.
            if name[0] != "." and name != VOCABULARY_FILE and file.is_file():
                yield file


def _unreadable(error: OSError) -> NoReturn:
    advice = "change its permissions, or name files one by one."
    raise InputError(f"{error.filename} can't be read ({error.strerror}); {advice}") from error


def embedded_corpus() -> Path:
    """Return the path of the public-domain books in the package, layout "sentences" (corpora/README.md)."""
    return Path(__file__).resolve().parent.parent / "corpora" / "books.txt.xz"


class SentenceStream:
    """Every sentence of a corpus in order, with None between documents, as often as it is iterated over.

    Raise InputError at once for an unknown layout or a path that matches nothing; while iterating for a file
    that is damaged or not UTF-8, or, as `EmptyCorpusError`, a corpus without any text.

    Parameters
    ----------
    paths : str, Path or iterable of them
        What `find_files` takes.
    layout : str, default "auto"
        How the files are written; "auto" recognises it from the first 64 Ki characters of each file.

        - "sentences": one sentence a line, a blank line between documents (the format of Google's release).
        - "paragraphs": one paragraph a line, a blank line between documents.
        - "prose": paragraphs over several lines, a blank line between them, two or more between documents.
          Less than 400 characters before such a gap are a heading, and go with what follows.
        - "wikitext": one paragraph a line; a line `= Title =` between blank lines begins a document, other
          blank lines mean nothing (the format of WikiText-2 and WikiText-103; Merity et al. 2016).
        - "documents": one document a line, however long; blank lines mean nothing.
        - "continuous": one text, a single novel perhaps, or sentences a line with nothing between them. Its
          lines are read as "auto" would, borders of documents in it mean nothing, and a document ends after
          each 32 sentences.

        The end of a file always ends its document. JSON lines, tables and dumps of Wikipedia
        (`documents.text_of`) tell themselves where documents end; their lines are paragraphs, or with
        "sentences" sentences. Paragraphs, prose and documents a line are cut by `split_sentences`, and
        sentences of more than 4,096 characters at a space.

        "auto": when most lines that another line follows stop in the middle of a sentence, and none is longer
        than 120 characters, it is prose; else a title between blank lines makes it wikitext; else lines of
        one and a half sentences or more on average are paragraphs; else sentences.
    column : str, default "text"
        Key of JSON lines, or column of tables, that has the text.

    Attributes
    ----------
    bytes_read, bytes_total : int
        How far it is, in bytes on the disk (compressed or not).
    files : list of Path
        What is read.
    layout : str
        As it was given.
    layouts_read : Counter of str
        Layouts of the files read so far, as "auto" recognised them, with the number of files of each.
    """

    def __init__(self, paths: str | Path | Iterable[str | Path], layout: str = "auto", column: str = "text"):
        if layout not in LAYOUTS:
            raise InputError(f"layout={layout!r} is unknown; choose from {', '.join(LAYOUTS)}.")
        self.files = find_files(paths)
        self.layout = layout
        self.column = column
        self.bytes_total = sum(file.stat().st_size for file in self.files)
        self.bytes_read = 0
        self.layouts_read: Counter[str] = Counter()

    def __iter__(self) -> Iterator[str | None]:
        anything = between = False
        self.layouts_read.clear()
        finished = self.bytes_read = 0
        for file in self.files:
            for sentence in chain(self._of_file(file, finished), [None]):
                if sentence is not None:
                    if between:
                        yield None
                    anything = True
                    yield sentence
                between = anything and sentence is None
            finished += file.stat().st_size
            self.bytes_read = finished
        if not anything:
            raise empty_corpus(self.files)

    def _of_file(self, file: Path, finished: int) -> Iterator[str | None]:
        def progress(position: int) -> None:
            self.bytes_read = finished + position

        pieces = decoded(text_of(file, progress=progress, column=self.column, warns=True), file)
        layout = self.layout
        if form := format_of(file):  # the format says where documents end
            self.layouts_read[form] += 1
            layout = "sentences" if layout == "sentences" else "paragraphs"
        elif layout in ("auto", "continuous"):
            head = ""
            while len(head) < SNIFFED_CHARACTERS and (piece := next(pieces, None)) is not None:
                head += piece
            layout = sniff(head)
            pieces = chain([head], pieces)
            if head.strip() and self.layout == "auto":
                self.layouts_read[layout] += 1
        if layout == "documents":
            return _read_documents(pieces)
        stream = _READERS[layout](_lines(pieces))
        if self.layout == "continuous":
            return _cut_documents(stream)
        return stream


sentences = SentenceStream


class EmptyCorpusError(InputError):
    """Report that there is no text in a corpus."""


def empty_corpus(files: list[Path], what: str = "text") -> EmptyCorpusError:
    """Return the error for files without any text.

    Parameters
    ----------
    files : list of Path
        What was read; the first few are named.
    what : str, default "text"
        What was looked for.

    Returns
    -------
    EmptyCorpusError
        To be raised.
    """
    names = some_of(list(map(str, files)), 3)
    return EmptyCorpusError(f"The corpus is empty: no {what} in {names}; give files with text in them.")


def sniff(head: str) -> str:
    """Recognise the layout of a file from its beginning; the rule is in the docstring of `SentenceStream`.

    Parameters
    ----------
    head : str
        The first characters of the file, or all of them.

    Returns
    -------
    str
        "prose", "wikitext", "paragraphs" or "sentences".
    """
    whole, _, _ = head.rpartition("\n")  # the last line may be cut
    lines = [" ".join(line.split()) for line in (whole or head).split("\n")]
    followed = [line for line, after in pairwise(lines) if line and after]
    open_ended = sum(not line.rstrip(_CLOSING).endswith(_MARKS) for line in followed)
    if open_ended > len(followed) / 2 and max(map(len, lines)) <= WIDEST_PAGE:
        return "prose"
    before = ["", *lines[:-1]]
    after = [*lines[1:], ""]
    if any(map(_is_title, before, lines, after)):
        return "wikitext"
    written = [line for line in lines if line]
    parts = sum(len(split_sentences(line)) for line in written)
    if written and parts >= 1.5 * len(written):
        return "paragraphs"
    return "sentences"


def _is_title(before: str, line: str, after: str) -> bool:
    """Return whether a line begins a document of WikiText; within a paragraph it would be a formula."""
    return not before and not after and bool(_TITLE.fullmatch(line))


def layouts_text(files_by_layout: Mapping[str, int]) -> str:
    """Return a sentence about the layouts that "auto" recognised in a `SentenceStream` that was read.

    Parameters
    ----------
    files_by_layout : mapping from str to int
        The attribute `layouts_read`.

    Returns
    -------
    str
        With the number of files of each where there are several.
    """
    descriptions = LAYOUTS | DOCUMENTS
    ways = []
    for layout, count in Counter(files_by_layout).most_common():
        way = f"{descriptions[layout]} ({layout})"
        if len(files_by_layout) > 1:
            way = f"{counted(count, 'file')} with {way}"
        ways.append(way)
    return f"Read as {'; '.join(ways)}; to read it otherwise, choose a layout."


def split_sentences(text: str) -> list[str]:
    """Cut running text into sentences.

    A sentence ends at . ! ? … (or their Arabic, Urdu, Indic, Armenian, Ethiopic, Burmese, Khmer and CJK
    sisters) with any closing quotes, unless the next word begins in lower case, or the full stop belongs to a
    title ("Mr."), an initial ("J. Smith") or a number that stands alone ("XII."). Rules of thumb for English
    print; where they fail, a span is a little longer or shorter, which pre-training doesn't mind.

    Parameters
    ----------
    text : str
        A paragraph.

    Returns
    -------
    list of str
        Without the white space around sentences, and without empty ones.

    Examples
    --------
    >>> split_sentences('"Is it far?" asked Mr. Bennet. She said: "No." They went.')
    ['"Is it far?" asked Mr. Bennet.', 'She said: "No."', 'They went.']
    """
    sentences = []
    begin = 0  # where the sentence begins
    wordless = 0  # there is no word in it up to here
    for match in _END.finditer(text):
        mark, end = match.span()
        if mark == begin or not text[mark - 1].isalnum():  # else there is a word directly before the mark
            word = _WORD.search(text, wordless, mark)
            if not word:
                wordless = mark
                continue
            wordless = word.start()
        if _is_border(text, begin, mark, end, match.lastgroup == "stop"):
            sentences.append(text[begin:end].strip())
            begin = wordless = end
    if rest := text[begin:].strip():
        sentences.append(rest)
    return sentences


def _is_border(text: str, begin: int, mark: int, end: int, lone_stop: bool) -> bool:
    """Decide whether a match of `_END` from `mark` to `end` ends the sentence that starts at `begin`."""
    if not "0" <= text[end] <= "Z":
        following = text[end : end + 8].lstrip(_OPENING)
        if following[:1].islower():
            return False
    if not lone_stop:
        return True
    before = text[max(begin, mark - 16) : mark]
    _, space, word = before.rpartition(" ")
    word = word.lstrip(_OPENING)
    is_initial = len(word) == 1 and word.isupper() and word != "I"
    if is_initial or word.lower() in _ABBREVIATIONS:
        return False
    return bool(space) or not _NUMERAL.fullmatch(text, begin, end)


def _cut(sentence: str) -> Iterator[str]:
    """Yield a sentence whole, or in parts of at most SENTENCE_CHARACTERS, cut at spaces if possible."""
    while len(sentence) > SENTENCE_CHARACTERS:
        space = sentence.rfind(" ", SENTENCE_CHARACTERS // 2, SENTENCE_CHARACTERS)
        end = space if space > 0 else SENTENCE_CHARACTERS
        yield sentence[:end]
        sentence = sentence[end:].lstrip()
    if sentence:
        yield sentence


def _split_and_cut(text: str) -> Iterator[str]:
    sentences = split_sentences(text)
    if len(text) > SENTENCE_CHARACTERS:
        return chain.from_iterable(map(_cut, sentences))
    return iter(sentences)


def _line_by_line(lines: Iterator[str], parts: Callable[[str], Iterator[str]]) -> Iterator[str | None]:
    for line in lines:
        yield from parts(line) if line else [None]


def _read_wikitext(lines: Iterator[str]) -> Iterator[str | None]:
    before = line = ""
    for after in chain(lines, [""]):
        if _is_title(before, line, after):
            yield None
        yield from _split_and_cut(line)
        before, line = line, after


def _read_prose(lines: Iterator[str]) -> Iterator[str | None]:
    written = 0  # characters in the document so far
    for is_blank, group in groupby(lines, lambda line: not line):
        if is_blank:
            if sum(1 for _ in group) >= 2 and written >= HEADING_CHARACTERS:
                yield None
                written = 0
            continue
        paragraph: list[str] = []
        waiting = 0  # characters in it
        for line in group:
            paragraph.append(line)
            waiting += len(line) + 1
            written += len(line) + 1
            if waiting > LINE_CHARACTERS:
                *done, last = _split_and_cut(" ".join(paragraph))
                yield from done
                paragraph = [last]
                waiting = len(last)
        yield from _split_and_cut(" ".join(paragraph))


def _read_documents(pieces: Iterable[str]) -> Iterator[str | None]:
    for part, is_end in _line_parts(pieces):
        yield from _split_and_cut(part)
        if is_end:
            yield None


def _cut_documents(stream: Iterator[str | None]) -> Iterator[str | None]:
    """Yield sentences with a border after every 32, instead of the borders between their documents."""
    sentences = (sentence for sentence in stream if sentence is not None)
    for number, sentence in enumerate(sentences):
        if number and number % CONTINUOUS_SENTENCES == 0:
            yield None
        yield sentence


_READERS: dict[str, Callable[[Iterator[str]], Iterator[str | None]]] = {
    "sentences": partial(_line_by_line, parts=_cut),
    "paragraphs": partial(_line_by_line, parts=_split_and_cut),
    "prose": _read_prose,
    "wikitext": _read_wikitext,
}


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield lines with single spaces for white space; lines of over LINE_CHARACTERS come in parts."""
    return (part for part, _ in _line_parts(pieces))


def _line_parts(pieces: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield the same parts of lines as `_lines`, each with whether its line ends there."""
    rest = ""
    for piece in pieces:
        whole, line_end, rest = (rest + piece).rpartition("\n")
        if line_end:
            for line in whole.split("\n"):
                yield " ".join(line.split()), True
        while len(rest) > LINE_CHARACTERS:
            space = rest.rfind(" ", LINE_CHARACTERS // 2, LINE_CHARACTERS)
            end = space if space > 0 else LINE_CHARACTERS
            part = " ".join(rest[:end].split())
            if part:  # an empty one would look like a blank line
                yield part, False
            rest = rest[end:]
    if rest.strip():
        yield " ".join(rest.split()), True
