"""Your own data: CSV, TSV and JSON Lines for sentences, pairs, tagged words and questions.

    .csv            columns between commas, quotation marks as in RFC 4180
    .tsv .tab .txt  columns between tabs, quoted likewise or, where a quotation mark stands bare, not at all
    .jsonl .json    an object a line, whose keys are the columns

Each may be compressed besides, and is UTF-8.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from reprlib import repr as short
from typing import Any

from minibert.base.errors import InputError, warn
from minibert.base.reading import byte_pieces, suffix_of
from minibert.base.terminal import counted
from minibert.data import ner
from minibert.data.glue import TextExample
from minibert.data.lines import JSON_LINES, json_lines, number_in, shown, table_rows
from minibert.data.ner import TaggedSentence
from minibert.data.squad import Answer, Question, locate

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
SEPARATOR = "|"  # of several labels in a column
# What columns are called, letters only, that number the sentences of tables with a word in each row.
_NAMES = "sentence sentenceid sentenceno sentencenr sentencenumber sentenceindex sentenceidx"
SENTENCE_COLUMNS = frozenset(f"{_NAMES} sentid sentidx sentno".split())


class MissingColumn(InputError):
    """A table has no column for a role, an argument of its reader; `header`: whether row 1 has names."""

    def __init__(self, message: str, role: str, path: Path, header: bool | None = None) -> None:
        super().__init__(message)
        self.role, self.path, self.header = role, path, header


Column = str | int  # a name in the header, or a number from 1 (which may be written "1")
Columns = Mapping[str, Column | None]  # by role, an argument of a reader
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
    """Return sentences, or pairs of them, with what they are.

    Parameters
    ----------
    text, second, label : columns by name or by number, from 1; `second` None for single sentences, `label`
        None where it is not known. In JSON Lines columns have names only.
    id : the column of ids; None counts the rows from 0.
    delimiter : one character between columns; None goes by the suffix of the file. Columns may be quoted, see
        `lines.table_rows`.
    header : whether the first row names the columns; None means that it does when a column is given by name.
    numeric : labels are numbers, and are read as such.
    several : any number of labels, none included: in JSON Lines a list, elsewhere names with | between them.
    """
    path = Path(path)
    columns = {"text": text, "second": second, "label": label, "id": id}
    found = []
    as_list = several and suffix_of(path) in JSON_LINES and delimiter is None
    for _, where, row in _records(path, columns, delimiter, header, lists=as_list):
        first = _text(row["text"], where, text)
        other = None if second is None else _text(row["second"], where, second)
        value: Any = None
        if label is not None:
            cell = row["label"]
            value = _several(cell, where, label, as_list) if several else _label(cell, where, label, numeric)
        found.append(TextExample(row["id"], first, other, value))
    return found


def line_of(example: TextExample, path: str | Path, **options: Any) -> int | None:
    """Return the line of an example that `read_texts` read with these options; reads the file once more."""
    columns = {name: options.get(name) for name in ("second", "id")}
    columns |= {name: options.get(name, name) for name in ("text", "label")}
    for line, _, row in _records(Path(path), columns, options.get("delimiter"), options.get("header"), True):
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
    """Return words with a tag each: a sentence a row, a word a row, or a word a line.

    Tags are as they stand in the file; numbers of classes are their digits.

    Parameters
    ----------
    words, tags : columns by name or by number, from 1. By default "words" and "tags" in tables, the first and
        the last where a line is a word.
    layout : "sentences", a row of a table and a document for each: its words in one column and its tags in
        another, as many, between spaces, or as lists in JSON Lines. "words", a row or a line for each word. A
        table that is named by its suffix, its delimiter or its columns has rows, and its sentences are told
        by the column `sentence` or by blank rows. In other files, as in `ner.read`, columns stand between
        tabs or spaces, a blank line between sentences, and -DOCSTART- before documents. None takes
        "sentences" for .csv, .tsv and JSON Lines, else "words".
    sentence : the column that numbers the sentences of a table with a word in each row, which the layout then
        is: a sentence ends where the column changes, and goes on where it is empty. None takes the column
        with a usual name, such as "sentence_id" or "Sentence #", where rows do not all differ in it.
    labelled : False when there are no tags, or they are to be passed over.
    delimiter, header : as in `read_texts`, for tables.

    Raises
    ------
    InputError
        When a column is missing, a row has no word or not a tag for each, or nothing tells where sentences
        end.
    """
    path = Path(path)
    if layout not in (None, "sentences", "words"):
        raise InputError(f'layout={layout!r} is unknown; choose "sentences" or "words".')
    if layout is None:
        rowwise = suffix_of(path) in (".csv", ".tsv", ".tab", *JSON_LINES)
        layout = "sentences" if rowwise or delimiter else "words"
    is_table = suffix_of(path) in (".csv", *JSON_LINES) or bool(delimiter) or sentence is not None
    if layout == "words" and not is_table:  # one may be between tabs, too, with columns by name
        given = [column for column in (words, tags) if column is not None]
        is_table = suffix_of(path) in DELIMITERS and any(_number(column) is None for column in given)
    if layout == "words" and not is_table:
        at, tags_at = _number(1 if words is None else words), _number(-1 if tags is None else tags)
        if at is None or tags_at is None:
            raise InputError(f"{path} has a word a line and no header; give its columns by number, from 1.")
        return ner.read(path, at, tags_at if labelled else None, entities=False)
    words = "words" if words is None else words
    tags = ("tags" if tags is None else tags) if labelled else None
    as_words = layout == "words" or sentence is not None
    if sentence is None:
        sentence = _sentence_column(path, delimiter, header, (words, tags), as_words)
    if as_words or sentence is not None:
        return _sentences_of_rows(path, words, tags, sentence, delimiter, header)
    found: list[TaggedSentence] = []
    lists = 0
    for _, where, row in _records(path, {"words": words, "tags": tags}, delimiter, header, lists=True):
        if not (in_row := _words(row["words"], where, words)):
            raise InputError(f"{where}: the column {words!r} has no word; remove the row or fill it.")
        tags_in_row = _words(row["tags"], where, tags, numbers=True) if labelled else None
        if tags_in_row is not None and len(tags_in_row) != len(in_row):
            both = f"{counted(len(in_row), 'word')} and {counted(len(tags_in_row), 'tag')}"
            raise InputError(f"{where} has {both}; give every word one.")
        found.append(TaggedSentence(in_row, tags_in_row, len(found)))
        lists += isinstance(row["words"], list)
    if len(found) > 1 and not lists and all(len(one.words) == 1 for one in found):
        what = f"{path}: all {len(found):,} sentences have one word"
        advice = "name the column that numbers the sentences, such as --column sentence=sentence_id"
        warn(f"{what}. Where each row is a word of a sentence, {advice}.")
    return found


def _sentence_column(
    path: Path, delimiter: str | None, header: bool | None, others: tuple[Column | None, ...], as_words: bool
) -> Column | None:
    """Return the column that numbers the sentences of a table with a word in each row, if one is named so.

    Unless the rows are known to be words (`as_words`), it has to be empty, or that of the row before, in some
    row: else each row is a sentence with a number of its own. Every row has at most one tag, then.
    """
    if header is False:
        return None
    words, tags = others
    names = _header(path, delimiter)
    called = [name for name in names if re.sub("[^a-z]", "", name.lower()) in SENTENCE_COLUMNS]
    usual = [name for name in called if name not in (words, tags)]
    if len(usual) != 1 or as_words:
        return usual[0] if len(usual) == 1 else None
    before, is_repeated = None, False
    for _, _, row in _records(path, {"sentence": usual[0], "tags": tags}, delimiter, header, lists=True):
        number, tag = row["sentence"], row["tags"]
        if isinstance(tag, list | dict) or (tag is not None and len(tag.split()) > 1):
            return None
        is_repeated |= number in (None, "", before)
        before = number
    return usual[0] if is_repeated else None


def _header(path: Path, delimiter: str | None) -> list[str]:
    """Return the names of the columns of a table: its first row, or the keys of its first object."""
    if suffix_of(path) in JSON_LINES and delimiter is None:
        return list(next(json_lines(path), (0, {}))[1])
    return next(iter(table_rows(path, _delimiter(path, delimiter))), (0, []))[1]


def _sentences_of_rows(
    path: Path,
    words: Column,
    tags: Column | None,
    sentence: Column | None,
    delimiter: str | None,
    header: bool | None,
) -> list[TaggedSentence]:
    """Read a table with a word in each row; blank rows and the column `sentence` part sentences."""
    columns = {"words": words, "tags": tags, "sentence": sentence}
    if suffix_of(path) in JSON_LINES and delimiter is None:
        records = _of_json(path, columns, lists=False)
    else:
        records = _of_table(path, columns, _delimiter(path, delimiter), header, blank=True)
    rows_of: list[list[tuple[str, str | None]]] = [[]]  # of each sentence
    current, has_blank = "", False
    seen: dict[str, int] = {}  # lines on which numbers of sentences come first
    again: tuple[str, int] | None = None  # one that comes again, and its line
    for line, row in records:
        where, is_blank = f"{path}, line {line}", all(cell is None for cell in row.values())
        number = (row["sentence"] or "").strip()
        if is_blank or (number and number != current):
            rows_of += [[]] if rows_of[-1] else []
            has_blank |= is_blank
        if is_blank:
            continue
        if number and number != current:
            current = number
            if seen.setdefault(number, line) != line and again is None:
                again = number, line
        word, tag = (row["words"] or "").strip(), row["tags"]
        if not word:
            raise InputError(f"{where}: the column {words!r} has no word; remove the row or fill it.")
        if tags is not None and not (tag or "").strip():
            raise InputError(f"{where}: the column {tags!r} has no tag; give every word one.")
        rows_of[-1].append((word, None if tags is None else str(tag).strip()))
    if not (filled := list(filter(None, rows_of))):
        raise InputError(f"{path} has no rows; check the file.")
    if sentence is None and not has_blank:
        advice = "name the column that numbers them, --column sentence=NAME, or put a blank row between them"
        raise InputError(
            f"{path} has a word in each row, and nothing tells where its sentences end; {advice}."
        )
    if again is not None:
        what = f"{path}, line {again[1]}: the sentence {again[0]!r} comes again after others"
        warn(f"{what}, and is taken for another one; sort the rows where it is the same.")
    found = []
    for number, one in enumerate(filled):
        given = None if tags is None else tuple(str(tag) for _, tag in one)
        found.append(TaggedSentence(tuple(word for word, _ in one), given, number))
    return found


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
    question, context, answer : columns by name or by number, from 1. An empty answer (in JSON Lines also null
        or an empty list) says that the paragraph has none; in JSON Lines a list has several, and an object
        has them as "text" beside their "answer_start". `answer` None where it is not known.
    start : the column of the number of characters before the answer; None, or an empty one, takes the first
        place where it stands.
    id : the column of ids; None counts the rows from 0.
    delimiter, header : as in `read_texts`.
    """
    path = Path(path)
    if start is not None and answer is None:
        raise InputError(f"start={start!r} needs the column of the answer; give answer=...")
    columns = {"question": question, "context": context, "answer": answer, "start": start, "id": id}
    found: list[Question] = []
    lines: dict[str, int] = {}
    for line, where, row in _records(path, columns, delimiter, header, lists=True):
        name = row["id"]
        if (before := lines.setdefault(name, line)) != line:
            raise InputError(f"{where}: the id {name[:60]!r} is that of line {before}; give each its own.")
        asked, paragraph = _text(row["question"], where, question), _text(row["context"], where, context)
        answers = [] if answer is None else answers_in(row["answer"], row["start"], paragraph, where, answer)
        impossible = None if answer is None else not answers
        found.append(Question(name, asked, paragraph, tuple(answers), impossible))
    return found


def _records(
    path: Path, columns: Columns, delimiter: str | None, header: bool | None, lists: bool
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield of every row the line, how errors name it, and wanted columns by role, None without a column.

    With `lists` those of JSON Lines may be lists and objects, else all are strings.
    """
    if suffix_of(path) in JSON_LINES and delimiter is None:
        records = _of_json(path, columns, lists)
    else:
        records = _of_table(path, columns, _delimiter(path, delimiter), header)
    number = -1
    for number, (line, row) in enumerate(records):
        id = row.get("id")
        yield line, f"{path}, line {line}", row | {"id": str(number if id is None else id)}
    if number < 0:
        raise InputError(f"{path} has no rows; check the file.")


def _of_json(path: Path, columns: Columns, lists: bool) -> Records:
    _require_own_columns(path, columns)
    for number, (line, value) in enumerate(json_lines(path)):
        row = {}
        for role, column in columns.items():
            if column is not None and column not in value:
                message = f"{path}, line {line} has no {column!r}, its keys are {shown(list(value))}."
                raise InputError(message) if number else MissingColumn(message, role, path)
            cell = None if column is None else value[column]
            as_it_is = cell is None or isinstance(cell, str) or (lists and isinstance(cell, list | dict))
            if not as_it_is and not (isinstance(cell, int | float) and math.isfinite(cell)):
                what = f"the column {column!r} is {short(cell)}, expected a text or a number"
                raise InputError(f"{path}, line {line}: {what}; correct it.")
            row[role] = cell if as_it_is else json.dumps(cell, ensure_ascii=False)
        yield line, row


def _of_table(
    path: Path, columns: Columns, delimiter: str, header: bool | None, blank: bool = False
) -> Records:
    """Yield the cells of every row by role; with `blank` also of rows without any, as None."""
    if header is None:
        header = any(column is not None and _number(column) is None for column in columns.values())
    places = None
    width = 0
    for line, row in table_rows(path, delimiter, blank=blank):
        if blank and not any(cell.strip() for cell in row):
            if places is not None:
                yield line, dict.fromkeys(places)
            continue
        if places is None:
            width, where = len(row), (path, row, header, delimiter)
            places = {role: _place(role, column, *where) for role, column in columns.items()}
            _require_own_columns(path, places)
            if header:
                continue
        if len(row) != width:
            both = f"{counted(len(row), 'column')} and the first row has {width}"
            advice = f"check the delimiter {delimiter!r}, and the quotation marks of columns that hold one."
            raise InputError(f"{path}, line {line} has {both}; {advice}")
        yield line, {role: None if place is None else row[place] for role, place in places.items()}


def _require_own_columns(path: Path, columns: Columns) -> None:
    """Raise InputError when one column would be two things."""
    of: dict[Column, str] = {}
    for role, column in columns.items():
        if column is not None and of.setdefault(column, role) != role:
            raise InputError(f"{path}: {of[column]} and {role} are one column; give each its own.")


def _place(
    role: str, column: Column | None, path: Path, first: list[str], header: bool, delimiter: str
) -> int | None:
    if column is None:
        return None
    if header and str(column) in first:
        if first.count(str(column)) > 1:
            raise InputError(f"{path} has several columns {column!r}; give the one that is meant by number.")
        return first.index(str(column))
    number = _number(column)
    if number is not None and 1 <= abs(number) <= len(first):
        return number - 1 if number > 0 else len(first) + number
    there = f"its header is {shown(first)}" if header else f"it has {counted(len(first), 'column')}"
    advice = "name a column or give its number, from 1."
    others = [sign for sign in ",;\t|" if sign != delimiter]
    if len(first) == 1 and (other := max(others, key=first[0].count)) in first[0]:
        wrong = f"its columns look parted by {other!r} and not {delimiter!r}"
        advice = f"{wrong}: give --column delimiter={other!r}."
    raise MissingColumn(f"{path} has no column {column!r}, {there}; {advice}", role, path, header)


def _number(column: Column) -> int | None:
    """Return the number that a column is given by; None for a name."""
    with suppress(ValueError):
        return int(column)
    return None


def _delimiter(path: Path, delimiter: str | None) -> str:
    delimiter = DELIMITERS.get(suffix_of(path)) if delimiter is None else delimiter
    if delimiter is None:
        next(byte_pieces(path))  # names a spreadsheet as what it is
        none = f"none of the suffixes {' '.join([*DELIMITERS, *JSON_LINES])}"
        raise InputError(f"{path.name} has {none}; give its delimiter (--column delimiter=,).")
    delimiter = "\t" if delimiter == r"\t" else delimiter  # as a shell hands it on
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise InputError(f"delimiter={delimiter!r} can't part columns; give one character, such as ';'.")
    return delimiter


def _text(cell: Any, where: str, column: Column) -> str:
    if not isinstance(cell, str) or not cell.strip():
        raise InputError(f"{where}: the column {column!r} has no text; remove the row or fill it.")
    return cell


def _label(cell: Any, where: str, column: Column, numeric: bool) -> str | float:
    if cell is None or not cell.strip():
        raise InputError(f"{where}: the column {column!r} is empty; label every row, or remove the column.")
    cell = cell.strip()
    if not numeric:
        return cell
    if (value := number_in(cell)) is None:
        raise InputError(f"{where}: the column {column!r} is {cell[:60]!r}, expected a number.")
    return value


def _several(cell: Any, where: str, column: Column, as_list: bool) -> tuple[str, ...]:
    if as_list != isinstance(cell, list) or (not as_list and cell.strip()[:1] + cell.strip()[-1:] == "[]"):
        wanted = 'a list such as ["sport", "art"]' if as_list else f"names with {SEPARATOR} between them"
        raise InputError(f"{where}: the column {column!r} is {short(cell)}, expected {wanted}.")
    names = cell if as_list else cell.split(SEPARATOR) if cell.strip() else []
    if not all(isinstance(name, str) and name.strip() and SEPARATOR not in name for name in names):
        what = f"the column {column!r} is {short(cell)}, which holds something that is no name"
        raise InputError(f"{where}: {what}; give names that are not empty and have no {SEPARATOR}.")
    names = [name.strip() for name in names]
    if len(set(names)) < len(names):
        raise InputError(f"{where}: the column {column!r} is {short(cell)}; name each label once.")
    return tuple(sorted(names))


def _words(cell: Any, where: str, column: Column | None, numbers: bool = False) -> tuple[str, ...]:
    """Return the words in a cell, a text or a list; with `numbers` a list may be of whole ones."""
    if isinstance(cell, list):
        if numbers and all(type(word) is int for word in cell):
            return tuple(map(str, cell))
        if not all(isinstance(word, str) and word.strip() for word in cell):
            raise InputError(f"{where}: the list {column!r} holds something that is no word.")
        return tuple(cell)
    if isinstance(cell, dict):
        raise InputError(f"{where}: the column {column!r} is an object; give a text or a list of words.")
    if re.match(r"""\s*\[['"]""", cell or ""):  # as pandas writes a list or an array
        advice = (
            "write the table as JSON Lines, df.to_json(path, orient='records', lines=True), or blanks between"
        )
        raise InputError(
            f"{where}: the column {column!r} is a list written as text, {short(cell)}; {advice}."
        )
    return tuple((cell or "").split())


def answers_in(cell: Any, start: Any, context: str, where: str, column: Column) -> list[Answer]:
    """Return the answers that a cell holds: one, a list, or an object of texts and places; none if empty."""
    if isinstance(cell, dict):  # the layout of Hugging Face's copies of SQuAD
        if "text" not in cell:
            keys = shown(list(cell))
            raise InputError(f"{where}: the object {column!r} has no 'text', its keys are {keys}.")
        cell, start = cell.get("text"), cell.get("answer_start")
    texts = cell if isinstance(cell, list) else [] if cell is None else [cell]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where}: the list {column!r} holds something that is no text.")
    starts = start if isinstance(start, list) else [start] * len(texts)
    if len(starts) != len(texts):
        both = f"{counted(len(texts), 'answer')} and {counted(len(starts), 'place')}"
        raise InputError(f"{where} has {both}; give each answer one.")
    pairs = zip(texts, starts, strict=True)
    return [_answer(text, place, context, where) for text, place in pairs if text.strip()]


def _answer(text: str, start: Any, context: str, where: str) -> Answer:
    if start is None or not str(start).strip():
        found = Answer(text.strip(), context.find(text.strip()))
        place = "in its paragraph"
    else:
        number = _number(start) if isinstance(start, str | int) else None
        if number is None:
            raise InputError(f"{where}: the place {start!r} of the answer is not a number of characters.")
        found = locate(context, text, number)
        place = f"at character {number} of its paragraph"
    if found.start < 0:
        raise InputError(f"{where}: the answer {text[:60]!r} does not stand {place}; correct one of them.")
    return found
