"""Read the user's own data: sentences, pairs, tagged words and questions from CSV, TSV and JSON Lines.

    .csv            comma-separated columns, quoted as in RFC 4180
    .tsv .tab .txt  tab-separated columns, quoted in the same way, or not at all if a quotation mark is bare
    .jsonl .json    one object per line, whose keys are the columns

Files are UTF-8 and may be compressed.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from reprlib import repr as short
from typing import Any

from minibert.base.errors import InputError, warn
from minibert.base.reading import byte_pieces, suffix_of
from minibert.base.terminal import counted
from minibert.data import ner
from minibert.data.glue import TextExample
from minibert.data.lines import (
    JSON_LINES,
    TABLES,
    delimiter_in,
    json_lines,
    number_in,
    other_delimiter,
    shown,
    table_rows,
)
from minibert.data.ner import TaggedSentence
from minibert.data.squad import Answer, Question, locate

DELIMITERS = TABLES | {".txt": "\t"}
SEPARATOR = "|"  # between several labels in a column
# Usual names, letters only, of the column that numbers the sentences of a table with one word per row.
_NAMES = "sentence sentenceid sentenceno sentencenr sentencenumber sentenceindex sentenceidx"
SENTENCE_COLUMNS = frozenset(f"{_NAMES} sentid sentidx sentno".split())


class MissingColumn(InputError):
    """Report a table without the column for a role; `header` says whether the first row has names."""

    def __init__(
        self,
        message: str,
        role: str,
        path: Path,
        header: bool | None = None,
        where: str = "",
    ) -> None:
        super().__init__(message, where=where)
        self.role = role
        self.path = path
        self.header = header


Column = str | int  # a name in the header, or a number from 1, also as a string "1"
Columns = Mapping[str, Column | None]  # by role; the roles are arguments of the readers
Records = Iterator[tuple[int, dict[str, Any]]]  # the line of each row, and its cells by role


def read_texts(
    path: str | Path,
    text: Column = "text",
    second: Column | None = None,
    label: Column | None = "label",
    *,
    id: Column | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    numeric: bool = False,
    several: bool = False,
) -> list[TextExample]:
    """Read sentences, or pairs of sentences, with their labels.

    Parameters
    ----------
    path : str or Path
        A table or JSON Lines, which may be compressed.
    text : str or int, default "text"
        The column of texts, by name or by number, from 1. In JSON Lines columns have names only.
    second : str or int, optional
        The column of second sentences; None for single sentences.
    label : str or int, default "label"
        The column of labels; None if they are unknown.
    id : str or int, optional
        The column of ids; None counts the rows from 0.
    delimiter : str, optional
        The character between columns; None takes that of the file's suffix or, where a column is given by
        name, of the header; see `lines.delimiter_in`. Columns may be quoted; see `lines.table_rows`.
    header : bool, optional
        Whether the first row names the columns; None means that it does if a column is given by name.
    numeric : bool, default False
        Whether labels are numbers.
    several : bool, default False
        Whether a text has any number of labels, possibly none: a list in JSON Lines, elsewhere names with |
        between them.

    Returns
    -------
    list of TextExample
        In the order of the file.

    Raises
    ------
    InputError
        When the file can't be read, has no rows, or a row has no text or no valid label; a `MissingColumn`
        when a column does not exist.
    """
    path = Path(path)
    columns = {"text": text, "second": second, "label": label, "id": id}
    examples = []
    as_list = several and suffix_of(path) in JSON_LINES and delimiter is None
    for _, where, row in _records(path, columns, delimiter, header, lists=as_list):
        first = _text(row["text"], where, text)
        other = None
        if second is not None:
            other = _text(row["second"], where, second)
        value: Any = None
        if label is not None and several:
            value = _several(row["label"], where, label, as_list)
        elif label is not None:
            value = _label(row["label"], where, label, numeric)
        examples.append(TextExample(row["id"], first, other, value))
    return examples


def line_of(example: TextExample, path: str | Path, **options: Any) -> int | None:
    """Find the line of an example from `read_texts` by reading the file again.

    Parameters
    ----------
    example : TextExample
        The example, which is identified by its id and its sentences.
    path : str or Path
        The file.
    **options
        The options of `read_texts` with which it was read.

    Returns
    -------
    int or None
        The line, from 1; None if the example is not in the file.
    """
    columns: dict[str, Column | None] = {
        "second": options.get("second"),
        "id": options.get("id"),
        "text": options.get("text", "text"),
        "label": options.get("label", "label"),
    }
    delimiter = options.get("delimiter")
    header = options.get("header")
    for line, _, row in _records(Path(path), columns, delimiter, header, lists=True):
        if (row["id"], row["text"], row["second"]) == example[:3]:
            return line
    return None


def read_tags(
    path: str | Path,
    words: Column | None = None,
    tags: Column | None = None,
    *,
    layout: str | None = None,
    sentence: Column | None = None,
    labelled: bool = True,
    delimiter: str | None = None,
    header: bool | None = None,
) -> list[TaggedSentence]:
    """Read words with a tag each, from one sentence per row, one word per row, or one word per line.

    Tags are strings as in the file, also where they are numbers of classes.

    Parameters
    ----------
    path : str or Path
        The file, which may be compressed.
    words, tags : str or int, optional
        The columns, by name or by number, from 1. By default "words" and "tags" in tables, and the first and
        the last column in files with one word per line.
    layout : {"sentences", "words"}, optional
        "sentences": each row of a table is a sentence and a document; one column has its words and another as
        many tags, separated by spaces, or as lists in JSON Lines. "words": each row or line is a word. If the
        suffix, the delimiter or the columns say that the file is a table, the column `sentence` or blank rows
        separate its sentences. Other files are read as by `ner.read`: tabs or spaces separate columns, a
        blank line separates sentences, and -DOCSTART- begins a document. None takes "sentences" for .csv,
        .tsv and JSON Lines, else "words".
    sentence : str or int, optional
        The column that numbers the sentences of a table with one word per row, which it implies: a sentence
        ends where the column changes, and goes on where it is empty. None takes a column with a usual name,
        such as "sentence_id" or "Sentence #", unless every row has another value in it.
    labelled : bool, default True
        Whether to read tags; False if there are none, or to ignore them.
    delimiter, header
        As for `read_texts`, in tables.

    Returns
    -------
    list of TaggedSentence
        In the order of the file.

    Raises
    ------
    InputError
        When a column is missing, a row has no word or not one tag per word, or nothing separates sentences.
    """
    path = Path(path)
    if layout not in (None, "sentences", "words"):
        raise InputError(f'layout={layout!r} is unknown; choose "sentences" or "words".')
    if layout is None:
        rowwise = suffix_of(path) in (".csv", ".tsv", ".tab", *JSON_LINES)
        layout = "sentences" if rowwise or delimiter else "words"
    if layout == "words" and not _is_table(path, (words, tags), sentence, delimiter):
        return _read_word_lines(path, words, tags, labelled)
    words = "words" if words is None else words
    tags = "tags" if tags is None else tags
    if not labelled:
        tags = None
    as_words = layout == "words" or sentence is not None
    if sentence is None:
        sentence = _sentence_column(path, delimiter, header, (words, tags), as_words)
    if as_words or sentence is not None:
        return _sentences_of_rows(path, words, tags, sentence, delimiter, header)
    return _sentence_a_row(path, words, tags, delimiter, header)


def _is_table(
    path: Path, columns: tuple[Column | None, ...], sentence: Column | None, delimiter: str | None
) -> bool:
    """Return whether a file with one word per line is a table, judging by suffix, delimiter and columns.

    A tab-separated file may be either; it is a table if a column is given by name.
    """
    if suffix_of(path) in (".csv", *JSON_LINES) or delimiter or sentence is not None:
        return True
    if suffix_of(path) not in DELIMITERS:
        return False
    return bool(_names(columns))


def _read_word_lines(
    path: Path, words: Column | None, tags: Column | None, labelled: bool
) -> list[TaggedSentence]:
    """Read a file with one word per line, as `ner.read` does; its columns have numbers only."""
    word_number = _number(1 if words is None else words)
    tag_number = _number(-1 if tags is None else tags)
    if word_number is None or tag_number is None:
        raise InputError(f"{path} has a word a line and no header; give its columns by number, from 1.")
    if not labelled:
        tag_number = None
    return ner.read(path, word_number, tag_number, entities=False)


def _sentence_a_row(
    path: Path, words: Column, tags: Column | None, delimiter: str | None, header: bool | None
) -> list[TaggedSentence]:
    """Read a table with one sentence per row."""
    sentences: list[TaggedSentence] = []
    has_lists = False
    for _, where, row in _records(path, {"words": words, "tags": tags}, delimiter, header, lists=True):
        words_in_row = _words(row["words"], where, words)
        if not words_in_row:
            raise InputError(f"the column {words!r} has no word; remove the row or fill it.", where=where)
        tags_in_row = None
        if tags is not None:
            tags_in_row = _words(row["tags"], where, tags, numbers=True)
            if len(tags_in_row) != len(words_in_row):
                both = f"{counted(len(words_in_row), 'word')} and {counted(len(tags_in_row), 'tag')}"
                raise InputError(f"{both}; give every word one tag.", where=where)
        sentences.append(TaggedSentence(words_in_row, tags_in_row, len(sentences)))
        has_lists |= isinstance(row["words"], list)
    if len(sentences) > 1 and not has_lists and all(len(sentence.words) == 1 for sentence in sentences):
        warn(
            f"{path}: all {len(sentences):,} sentences have one word. Where each row is a word of a "
            "sentence, name the column that numbers the sentences, "
            "such as columns={'sentence': 'sentence_id'}."
        )
    return sentences


def _sentence_column(
    path: Path, delimiter: str | None, header: bool | None, others: tuple[Column | None, ...], as_words: bool
) -> Column | None:
    """Find, by its usual names, the column that numbers the sentences of a table with one word per row.

    Unless the rows are known to be words (`as_words`), two things must hold: in some row the column is empty
    or the same as in the previous row (else each row is a sentence with its own number), and no row has more
    than one tag.
    """
    if header is False:
        return None
    words, tags = others
    usual = []
    for name in _header(path, delimiter, others):
        letters = re.sub("[^a-z]", "", name.lower())
        if letters in SENTENCE_COLUMNS and name not in (words, tags):
            usual.append(name)
    if len(usual) != 1:
        return None
    if as_words:
        return usual[0]
    before = None
    is_repeated = False
    for _, _, row in _records(path, {"sentence": usual[0], "tags": tags}, delimiter, header, lists=True):
        tag = row["tags"]
        if isinstance(tag, list | dict) or (tag is not None and len(tag.split()) > 1):
            return None
        number = row["sentence"]
        is_repeated |= number in (None, "", before)
        before = number
    return usual[0] if is_repeated else None


def _header(path: Path, delimiter: str | None, columns: Iterable[Column | None]) -> list[str]:
    """Return the names of the columns of a table: its first row, or the keys of its first object."""
    if suffix_of(path) in JSON_LINES and delimiter is None:
        _, keys = next(json_lines(path), (0, {}))
        return list(keys)
    table = table_rows(path, _delimiter(path, delimiter, columns))
    _, names = next(table, (0, []))
    return names


def _sentences_of_rows(
    path: Path,
    words: Column,
    tags: Column | None,
    sentence: Column | None,
    delimiter: str | None,
    header: bool | None,
) -> list[TaggedSentence]:
    """Read a table with one word per row; blank rows and the column `sentence` separate sentences."""
    columns = {"words": words, "tags": tags, "sentence": sentence}
    if suffix_of(path) in JSON_LINES and delimiter is None:
        records = _of_json(path, columns, lists=False)
    else:
        records = _of_table(path, columns, delimiter, header, blank=True)
    sentences: list[list[tuple[str, str | None]]] = [[]]  # words and tags of each sentence
    current = ""  # number of the current sentence
    has_blank = False
    first_line: dict[str, int] = {}  # line on which each number first occurs
    again: tuple[str, int] | None = None  # the first number that recurs after others, and its line
    for line, row in records:
        is_blank = all(cell is None for cell in row.values())
        number = (row["sentence"] or "").strip()
        is_next = bool(number) and number != current
        if (is_blank or is_next) and sentences[-1]:
            sentences.append([])
        if is_blank:
            has_blank = True
            continue
        if is_next:
            current = number
            if first_line.setdefault(number, line) != line and again is None:
                again = number, line
        sentences[-1].append(_word_and_tag(row, f"{path}, line {line}", words, tags))
    filled = [pairs for pairs in sentences if pairs]
    if not filled:
        raise InputError(f"{path} has no rows; check the file.")
    if sentence is None and not has_blank:
        advice = "name the column that numbers them, columns={'sentence': 'NAME'}, "
        advice += "or put a blank row between them"
        raise InputError(
            f"{path} has a word in each row, and nothing says where its sentences end; {advice}."
        )
    if again is not None:
        number, line = again
        warn(
            f"{path}, line {line}: the sentence {number!r} comes again after others, and is taken for "
            "another one; sort the rows where it is the same."
        )
    tagged = []
    for document, pairs in enumerate(filled):
        of_words = tuple(word for word, _ in pairs)
        of_tags = None
        if tags is not None:
            of_tags = tuple(str(tag) for _, tag in pairs)
        tagged.append(TaggedSentence(of_words, of_tags, document))
    return tagged


def _word_and_tag(
    row: dict[str, Any], where: str, words: Column, tags: Column | None
) -> tuple[str, str | None]:
    """Return the word in a row and its tag; None without a column of tags."""
    word = (row["words"] or "").strip()
    if not word:
        raise InputError(f"the column {words!r} has no word; remove the row or fill it.", where=where)
    if tags is None:
        return word, None
    tag = (row["tags"] or "").strip()
    if not tag:
        raise InputError(f"the column {tags!r} has no tag; give every word one.", where=where)
    return word, tag


def read_questions(
    path: str | Path,
    question: Column = "question",
    context: Column = "context",
    answer: Column | None = "answer",
    start: Column | None = None,
    *,
    id: Column | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
) -> list[Question]:
    """Read questions, each with its paragraph and its answer in it.

    Parameters
    ----------
    path : str or Path
        A table or JSON Lines, which may be compressed.
    question, context : str or int, default "question" and "context"
        The columns of questions and paragraphs, by name or by number, from 1.
    answer : str or int, default "answer"
        The column of answers; None if they are unknown. An empty cell (in JSON Lines also null or an empty
        list) means that the paragraph has no answer. In JSON Lines, a list has several answers, and an object
        has them as "text", with their "answer_start".
    start : str or int, optional
        The column with the number of characters before the answer; None, or an empty cell, takes its first
        occurrence.
    id : str or int, optional
        The column of ids; None counts the rows from 0.
    delimiter, header
        As for `read_texts`.

    Returns
    -------
    list of Question
        In the order of the file.

    Raises
    ------
    InputError
        When the file can't be read, has no rows, two rows with the same id, or an answer that is not at its
        position in the paragraph; a `MissingColumn` when a column does not exist.
    """
    path = Path(path)
    if start is not None and answer is None:
        raise InputError(f"start={start!r} needs the column of the answer; give answer=...")
    columns = {"question": question, "context": context, "answer": answer, "start": start, "id": id}
    questions: list[Question] = []
    first_line: dict[str, int] = {}  # line on which each id first occurs
    for line, where, row in _records(path, columns, delimiter, header, lists=True):
        name = row["id"]
        before = first_line.setdefault(name, line)
        if before != line:
            raise InputError(
                f"the id {name[:60]!r} is that of line {before}; give each its own.", where=where
            )
        question_text = _text(row["question"], where, question)
        paragraph = _text(row["context"], where, context)
        answers: list[Answer] = []
        impossible = None
        if answer is not None:
            answers = answers_in(row["answer"], row["start"], paragraph, where, answer)
            impossible = not answers
        questions.append(Question(name, question_text, paragraph, tuple(answers), impossible))
    return questions


def _records(
    path: Path, columns: Columns, delimiter: str | None, header: bool | None, lists: bool
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the line of every row, its position for errors, and its cells by role, None without a column.

    With `lists`, cells of JSON Lines may be lists and objects; otherwise all cells are strings.
    """
    if suffix_of(path) in JSON_LINES and delimiter is None:
        records = _of_json(path, columns, lists)
    else:
        records = _of_table(path, columns, delimiter, header)
    number = -1
    for number, (line, row) in enumerate(records):
        id = row.get("id")
        if id is None:
            id = number
        yield line, f"{path}, line {line}", row | {"id": str(id)}
    if number < 0:
        raise InputError(f"{path} has no rows; check the file.")


def _of_json(path: Path, columns: Columns, lists: bool) -> Records:
    _require_own_columns(path, columns)
    for number, (line, value) in enumerate(json_lines(path)):
        row = {}
        for role, column in columns.items():
            if column is not None and column not in value:
                message = f"there is no {column!r}, the keys are {shown(list(value))}."
                where = f"{path}, line {line}"
                if number:
                    raise InputError(message, where=where)
                raise MissingColumn(message, role, path, where=where)
            cell = None if column is None else value[column]
            as_it_is = cell is None or isinstance(cell, str) or (lists and isinstance(cell, list | dict))
            if as_it_is:
                row[role] = cell
                continue
            if not (isinstance(cell, int | float) and math.isfinite(cell)):
                raise InputError(
                    f"the column {column!r} is {short(cell)}, expected a text or a number; correct it.",
                    where=f"{path}, line {line}",
                )
            row[role] = json.dumps(cell, ensure_ascii=False)
        yield line, row


def _of_table(
    path: Path, columns: Columns, delimiter: str | None, header: bool | None, blank: bool = False
) -> Records:
    """Yield the cells of every row by role; with `blank`, also those of blank rows, as None."""
    if header is None:
        header = bool(_names(columns.values()))
    delimiter = _delimiter(path, delimiter, columns.values() if header else ())
    places: dict[str, int | None] | None = None  # indices of the columns by role, from 0
    width = 0
    for line, row in table_rows(path, delimiter, blank=blank):
        if blank and not any(cell.strip() for cell in row):
            if places is not None:
                yield line, dict.fromkeys(places)
            continue
        if places is None:
            width = len(row)
            places = {}
            for role, column in columns.items():
                places[role] = _place(role, column, path, row, header, delimiter)
            _require_own_columns(path, places)
            if header:
                continue
        if len(row) != width:
            raise InputError(
                f"{counted(len(row), 'column')} where the first row has {width}; "
                f"check the delimiter {delimiter!r}, and the quotation marks around cells that contain it.",
                where=f"{path}, line {line}",
            )
        yield line, {role: None if place is None else row[place] for role, place in places.items()}


def _require_own_columns(path: Path, columns: Columns) -> None:
    """Raise InputError when two roles have the same column."""
    role_of: dict[Column, str] = {}
    for role, column in columns.items():
        if column is None:
            continue
        other = role_of.setdefault(column, role)
        if other != role:
            raise InputError(f"{other} and {role} are the same column; give each its own.", where=str(path))


def _place(
    role: str, column: Column | None, path: Path, first: list[str], header: bool, delimiter: str
) -> int | None:
    """Return the index of a column, from 0, by its name in the header or its number; None for no column."""
    if column is None:
        return None
    name = str(column)
    if header and name in first:
        if first.count(name) > 1:
            raise InputError(f"{path} has several columns {column!r}; give the one that is meant by number.")
        return first.index(name)
    number = _number(column)
    if number is not None and 1 <= abs(number) <= len(first):
        return number - 1 if number > 0 else len(first) + number
    there = f"its header is {shown(first)}" if header else f"it has {counted(len(first), 'column')}"
    advice = (
        f"name the column of the {role}, such as columns={{{role!r}: 'NAME'}}, or give its number, from 1."
    )
    lacks = f"{path} has no column {column!r}, {there}"
    if len(first) == 1 and (other := other_delimiter(first[0], delimiter)):
        advice = f"its columns look separated by {other!r} and not {delimiter!r}: "
        advice += f"give columns={{'delimiter': {other!r}}}."
    raise MissingColumn(f"{lacks}; {advice}", role, path, header)


def _number(column: Column) -> int | None:
    """Return the number of a column; None for a column given by name."""
    with suppress(ValueError):
        return int(column)
    return None


def _names(columns: Iterable[Column | None]) -> list[str]:
    """Return the columns that are given by name rather than by number."""
    return [str(column) for column in columns if column is not None and _number(column) is None]


def _delimiter(path: Path, delimiter: str | None, columns: Iterable[Column | None]) -> str:
    """Return the delimiter of a table: the given one, or that of its suffix and header.

    The header is used only if columns are given by name.
    """
    if delimiter is None:
        delimiter = DELIMITERS.get(suffix_of(path))
        if delimiter and path.is_file() and (names := _names(columns)):  # a pipe can't be read twice
            return delimiter_in(path, delimiter, names)
    if delimiter is None:
        next(byte_pieces(path))  # raises an error that identifies a spreadsheet
        none = f"none of the suffixes {' '.join([*DELIMITERS, *JSON_LINES])}"
        raise InputError(f"{path.name} has {none}; give its delimiter (columns={{'delimiter': ','}}).")
    if delimiter == r"\t":  # as shells pass it
        delimiter = "\t"
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise InputError(f"delimiter={delimiter!r} can't separate columns; give one character, such as ';'.")
    return delimiter


def _text(cell: Any, where: str, column: Column) -> str:
    if not isinstance(cell, str) or not cell.strip():
        raise InputError(f"the column {column!r} has no text; remove the row or fill it.", where=where)
    return cell


def _label(cell: Any, where: str, column: Column, numeric: bool) -> str | float:
    if cell is None or not cell.strip():
        raise InputError(
            f"the column {column!r} is empty; label every row, or remove the column.", where=where
        )
    cell = cell.strip()
    if not numeric:
        return cell
    value = number_in(cell)
    if value is None:
        advice = "correct it, or learn classes with the task classify."
        raise InputError(f"the column {column!r} is {cell[:60]!r}, not a number; {advice}", where=where)
    return value


def _several(cell: Any, where: str, column: Column, as_list: bool) -> tuple[str, ...]:
    """Return the labels in a cell, in alphabetical order; () if there are none."""
    is_proper = isinstance(cell, list) == as_list
    if is_proper and not as_list:
        text = cell.strip()
        is_proper = text[:1] + text[-1:] != "[]"  # a list written as text
    if not is_proper:
        wanted = 'a list such as ["sport", "art"]' if as_list else f"names with {SEPARATOR} between them"
        raise InputError(f"the column {column!r} is {short(cell)}, expected {wanted}.", where=where)
    names = cell
    if not as_list:
        names = cell.split(SEPARATOR) if cell.strip() else []
    if not all(isinstance(name, str) and name.strip() and SEPARATOR not in name for name in names):
        raise InputError(
            f"the column {column!r} is {short(cell)}, which holds something that is not a name; "
            f"give names that are not empty and have no {SEPARATOR}.",
            where=where,
        )
    names = [name.strip() for name in names]
    if len(set(names)) < len(names):
        raise InputError(f"the column {column!r} is {short(cell)}; name each label once.", where=where)
    return tuple(sorted(names))


def _words(cell: Any, where: str, column: Column | None, numbers: bool = False) -> tuple[str, ...]:
    """Return the words in a cell, a text or a list; with `numbers`, a list may have integers."""
    if isinstance(cell, list):
        if numbers and all(type(word) is int for word in cell):
            return tuple(map(str, cell))
        if not all(isinstance(word, str) and word.strip() for word in cell):
            raise InputError(f"the list {column!r} holds something that is not a word.", where=where)
        return tuple(cell)
    if isinstance(cell, dict):
        raise InputError(f"the column {column!r} is an object; give a text or a list of words.", where=where)
    if re.match(r"""\s*\[['"]""", cell or ""):  # as pandas writes a list or an array
        raise InputError(
            f"the column {column!r} is a list written as text, {short(cell)}; write the table as "
            "JSON Lines, df.to_json(path, orient='records', lines=True), or blanks between.",
            where=where,
        )
    return tuple((cell or "").split())


def answers_in(cell: Any, start: Any, context: str, where: str, column: Column) -> list[Answer]:
    """Return the answers in a cell: one text, a list, or an object of texts and offsets.

    Parameters
    ----------
    cell : Any
        A text, a list of texts, an object with "text" and perhaps "answer_start", or None.
    start : Any
        The offset of the answer, or a list of offsets; None takes the first occurrence. For an object, its
        "answer_start" is used instead.
    context : str
        The paragraph.
    where : str
        The position in the file, with which errors begin.
    column : str or int
        The column as given by the caller, for errors.

    Returns
    -------
    list of Answer
        The answers, without empty ones.

    Raises
    ------
    InputError
        When the cell has another form, or an answer is not at its offset in the paragraph.
    """
    if isinstance(cell, dict):  # the layout of SQuAD at Hugging Face
        if "text" not in cell:
            keys = shown(list(cell))
            raise InputError(f"the object {column!r} has no 'text', its keys are {keys}.", where=where)
        start = cell.get("answer_start")
        cell = cell.get("text")
    texts = cell
    if not isinstance(cell, list):
        texts = [] if cell is None else [cell]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"the list {column!r} holds something that is not a text.", where=where)
    starts = start
    if not isinstance(start, list):
        starts = [start] * len(texts)
    if len(starts) != len(texts):
        both = f"{counted(len(texts), 'answer')} and {counted(len(starts), 'place')}"
        raise InputError(f"{both}; give each answer one.", where=where)
    answers = []
    for text, place in zip(texts, starts, strict=True):
        if text.strip():
            answers.append(_answer(text, place, context, where))
    return answers


def _answer(text: str, start: Any, context: str, where: str) -> Answer:
    if start is None or not str(start).strip():
        answer = Answer(text.strip(), context.find(text.strip()))
        place = "in its paragraph"
    else:
        number = _number(start) if isinstance(start, str | int) else None
        if number is None:
            raise InputError(f"the place {start!r} of the answer is not a number of characters.", where=where)
        answer = locate(context, text, number)
        place = f"at character {number} of its paragraph"
    if answer.start < 0:
        raise InputError(
            f"the answer {text[:60]!r} does not stand {place}; correct one of them.", where=where
        )
    return answer
