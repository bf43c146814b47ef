"""TriviaQA (Joshi et al. 2017) as paragraphs to train on before SQuAD.

The paper, footnote 12: "paragraphs from TriviaQA-Wiki formed of the first 400 tokens in documents, that
contain at least one of the provided possible answers". The positions of answers are not annotated: the
answers are searched for, which TriviaQA calls distant supervision.
"""

import re
from collections.abc import Iterable, Iterator
from os.path import isfile
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError, warn
from minibert.base.reading import byte_pieces, decoded
from minibert.data.json_items import array_items
from minibert.data.lines import field_of
from minibert.data.squad import Answer, Question, article_questions

TOKENS = 400  # from the beginning of a document
_TOKEN = re.compile(r"\w+|[^\w\s]")  # a word, or one mark of punctuation
_LETTER = re.compile(r"\w")
Documents = dict[str, tuple[str, Path]]  # by name: title and file
_PAGES = {"EntityPages": "wikipedia", "SearchResults": "web"}  # the folder of the documents for each key


def read(path: str | Path, evidence: str | Path | None = None, tokens: int = TOKENS) -> list[Question]:
    """Return a question for every document whose first tokens contain one of its answers.

    A token is a word or a punctuation mark. An answer is any alias that occurs as whole words, ignoring case;
    `answers` has the first occurrence of each, in the order of their positions, the longest first where two
    begin together. The id is "QUESTION--DOCUMENT", as in TriviaQA's own conversion. A warning counts
    documents that are missing and left out.

    Parameters
    ----------
    path : str or Path
        The official JSON, such as qa/wikipedia-train.json, or a conversion to the layout of SQuAD, whose
        paragraphs are cut and searched in the same way.
    evidence : str or Path, optional
        The folder of the documents, or its parent with the folders wikipedia and web; by default the folder
        evidence next to `path` or next to its folder, as in TriviaQA's archive. A conversion needs none.
    tokens : int, default 400
        How many tokens of a document to use, from its beginning.

    Returns
    -------
    list of Question
        In the order of the file.

    Raises
    ------
    InputError
        When a file has neither layout, has no answers (as TriviaQA's test files), or names a document outside
        the folder; when none of its documents exists, or none contains an answer.
    """
    path = Path(path)
    if tokens < 1:
        raise InputError(f"tokens={tokens} leaves no paragraph; give 1 or more.")
    folder = Path(evidence) if evidence else _evidence_beside(path)
    questions: list[Question] = []
    absent: list[Path] = []
    present = 0
    for number, (key, item) in enumerate(array_items(path, ("Data", "data")), 1):
        where = f"{path}: item {number}"
        if key == "data":
            questions += _of_article(item, where, tokens)
            continue
        documents: Documents = {}  # those that exist
        for name, (title, file) in _documents(item, folder, where).items():
            if isfile(file):
                documents[name] = title, file
            else:
                absent.append(file)
        present += len(documents)
        questions += _of_item(item, documents, where, tokens)
    if absent and not present:
        raise InputError(
            f"none of its {len(absent):,} documents is there, such as {absent[0]}; "
            "unpack the evidence of TriviaQA and name its folder.",
            where=str(path),
        )
    if absent:
        warn(
            f"{path}: {len(absent):,} of {len(absent) + present:,} documents are not there and are left out, "
            f"the first is {absent[0]}."
        )
    if not questions:
        raise InputError(f"{path} has no document that holds an answer in its first {tokens} tokens.")
    return questions


def _evidence_beside(path: Path) -> Path:
    """Return the folder of the documents of a file, next to the file or next to its folder."""
    home = path.resolve().parent
    if (home / "evidence").is_dir():
        return home / "evidence"
    return home.parent / "evidence"


def _of_article(article: Any, where: str, tokens: int) -> Iterator[Question]:
    """Yield the questions of an article in SQuAD's layout that have an answer in their first tokens."""
    for question in article_questions(article, where):
        context = first_tokens([question.context], tokens)
        aliases = [answer.text for answer in question.answers]
        if answers := find_answers(context, aliases):
            yield question._replace(context=context, answers=answers, impossible=False)


def _documents(item: Any, evidence: Path, where: str) -> Documents:
    """Return the documents of an item."""
    if not isinstance(item, dict) or not _PAGES.keys() & item.keys():
        raise InputError(f"none of {', '.join(_PAGES)} is there; expected a file of TriviaQA.", where=where)
    documents: Documents = {}
    for key, part in _PAGES.items():
        folder = evidence
        if (evidence / part).is_dir():
            folder = evidence / part
        for page in _list(item, key):
            name = page.get("Filename") if isinstance(page, dict) else None
            if not isinstance(name, str) or not name:
                raise InputError("a page has no 'Filename'; fetch the file again.", where=where)
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise InputError(
                    f"the document {name!r} is outside of '{folder}'; don't use this file.", where=where
                )
            title = str(page.get("Title", ""))
            documents[name] = title, folder / name
    return documents


def _list(item: dict[str, Any], key: str) -> list[Any]:
    """Return a list in an object; an empty one if it is missing."""
    value = item.get(key)
    return value if isinstance(value, list) else []


def _of_item(item: dict[str, Any], documents: Documents, where: str, tokens: int) -> Iterator[Question]:
    """Yield a question of TriviaQA for each of its documents whose first tokens contain an answer."""
    id = field_of(item, "QuestionId", str, where)
    text = field_of(item, "Question", str, where)
    answer = item.get("Answer")
    if not isinstance(answer, dict):
        raise InputError("there is no 'Answer'; the test files of TriviaQA can't be trained on.", where=where)
    names = [answer.get("Value")]
    for key in ("Aliases", "HumanAnswers", "NormalizedAliases"):
        names += _list(answer, key)
    aliases = [name for name in names if isinstance(name, str)]
    for name, (title, file) in documents.items():
        text_of_file = decoded(byte_pieces(file), file)
        context = first_tokens(text_of_file, tokens)
        if answers := find_answers(context, aliases):
            yield Question(f"{id}--{name}", text, context, answers, False, title)


def first_tokens(pieces: Iterable[str], tokens: int) -> str:
    """Return the first `tokens` tokens of a text, reading no more of it than needed.

    Parameters
    ----------
    pieces : iterable of str
        The text, which may be cut anywhere.
    tokens : int
        How many words and punctuation marks.

    Returns
    -------
    str
        The beginning of the text, without white space at its end; all of it if it has fewer tokens.

    Examples
    --------
    >>> first_tokens(["Well, then."], 3)
    'Well, then'
    """
    parts: list[str] = []
    count = 0  # tokens of the text so far
    in_word = False  # whether the text so far ends within a word
    for piece in filter(None, pieces):
        for token in _TOKEN.finditer(piece):
            goes_on = in_word and token.start() == 0 and _LETTER.match(piece)
            if not goes_on:
                count += 1
            if count > tokens:
                parts.append(piece[: token.start()])
                return "".join(parts).rstrip()
        parts.append(piece)
        in_word = _LETTER.match(piece[-1]) is not None
    return "".join(parts).rstrip()


def find_answers(context: str, aliases: Iterable[str]) -> tuple[Answer, ...]:
    """Return the first occurrence of each alias in a text, as whole words, ignoring case.

    Parameters
    ----------
    context : str
        The text.
    aliases : iterable of str
        Names of the answer; white space around them is ignored.

    Returns
    -------
    tuple of Answer
        As written in the text, in the order of their positions, the longest first where two begin together;
        () if none occurs.
    """
    lowered = context.lower()
    answers = set()
    for alias in {alias.strip() for alias in aliases}:
        # A plain search is many times faster, and most of a hundred aliases don't occur.
        if not alias or alias.lower() not in lowered:
            continue
        if match := re.search(rf"(?<!\w){re.escape(alias)}(?!\w)", context, re.IGNORECASE):
            answers.add(Answer(match.group(), match.start()))
    in_order = sorted(answers, key=lambda answer: (answer.start, -len(answer.text)))
    return tuple(in_order)
