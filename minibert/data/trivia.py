"""TriviaQA (Joshi et al. 2017) as paragraphs to train on before SQuAD.

The paper, footnote 12: "paragraphs from TriviaQA-Wiki formed of the first 400 tokens in documents, that
contain at least one of the provided possible answers". Where an answer stands is not annotated: it is looked
for, which is what TriviaQA calls distant supervision.
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

TOKENS = 400  # of a document, from its beginning
_TOKEN = re.compile(r"\w+|[^\w\s]")  # a word, or one mark of punctuation
_LETTER = re.compile(r"\w")
Documents = dict[str, tuple[str, Path]]  # by name: title and file
_PAGES = {"EntityPages": "wikipedia", "SearchResults": "web"}  # the folder of the documents of each


def read(path: str | Path, evidence: str | Path | None = None, tokens: int = TOKENS) -> list[Question]:
    """Return a question for every document whose first tokens hold one of its answers.

    The file is the official JSON, such as qa/wikipedia-train.json, or a conversion of it to the layout of
    SQuAD, whose paragraphs are cut and searched alike. `evidence` is the folder of the documents, or the one
    that holds wikipedia and web; by default evidence beside `path` or its folder, as TriviaQA is packed. A
    conversion needs none. A warning counts documents that are left out as they are missing.

    A token is a word or a mark of punctuation. An answer is any alias, found as whole words whatever the
    case; `answers` has each at its first place, in their order, the longest first where two begin together.
    The id is "QUESTION--DOCUMENT", as in TriviaQA's own conversion. Raise InputError when a file is of
    neither layout, has no answers (TriviaQA's test files), names a document outside of the folder, or none of
    its documents is there.
    """
    path = Path(path)
    if tokens < 1:
        raise InputError(f"tokens={tokens} leaves no paragraph; give 1 or more.")
    home = path.resolve().parent
    beside = home if (home / "evidence").is_dir() else home.parent
    folder = Path(evidence) if evidence else beside / "evidence"
    found, absent, present = list[Question](), list[Path](), 0
    for number, (key, item) in enumerate(array_items(path, ("Data", "data")), 1):
        where = f"{path}: item {number}"
        if key == "data":
            for question in article_questions(item, where):
                context = first_tokens([question.context], tokens)
                if answers := find_answers(context, [answer.text for answer in question.answers]):
                    found.append(question._replace(context=context, answers=answers, impossible=False))
        else:
            documents = _documents(item, folder, where)
            there = {name: page for name, page in documents.items() if isfile(page[1])}
            absent += [file for name, (_, file) in documents.items() if name not in there]
            present += len(there)
            found += _of_item(item, there, where, tokens)
    if absent and not present:
        none = f"none of its {len(absent):,} documents is there, such as {absent[0]}"
        raise InputError(f"{path}: {none}; unpack the evidence of TriviaQA and name its folder.")
    if absent:
        some = f"{len(absent):,} of {len(absent) + present:,} documents"
        warn(f"{path}: {some} are not there and are left out, the first is {absent[0]}.")
    if not found:
        raise InputError(f"{path} has no document that holds an answer in its first {tokens} tokens.")
    return found


def _documents(item: Any, evidence: Path, where: str) -> Documents:
    """Return the documents of an item."""
    if not isinstance(item, dict) or not _PAGES.keys() & item.keys():
        raise InputError(f"{where} has none of {', '.join(_PAGES)}; a file of TriviaQA is expected.")
    found = {}
    for key, part in _PAGES.items():
        folder = evidence / part if (evidence / part).is_dir() else evidence
        for page in _list(item, key):
            name = page.get("Filename") if isinstance(page, dict) else None
            if not isinstance(name, str) or not name:
                raise InputError(f"{where} has a page without 'Filename'; fetch the file again.")
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise InputError(f"{where} names the document {name!r} outside of {folder}; don't use it.")
            found[name] = (str(page.get("Title", "")), folder / name)
    return found


def _list(thing: Any, key: str) -> list[Any]:
    value = thing.get(key) if isinstance(thing, dict) else None
    return value if isinstance(value, list) else []


def _of_item(item: dict[str, Any], documents: Documents, where: str, tokens: int) -> Iterator[Question]:
    id, text = (field_of(item, key, str, where) for key in ("QuestionId", "Question"))
    if not isinstance(answer := item.get("Answer"), dict):
        raise InputError(f"{where} has no 'Answer'; the test files of TriviaQA can't be trained on.")
    names = [name for key in ("Aliases", "HumanAnswers", "NormalizedAliases") for name in _list(answer, key)]
    aliases = [name for name in (answer.get("Value"), *names) if isinstance(name, str)]
    for name, (title, file) in documents.items():
        context = first_tokens(decoded(byte_pieces(file), file), tokens)
        if answers := find_answers(context, aliases):
            yield Question(f"{id}--{name}", text, context, answers, False, title)


def first_tokens(pieces: Iterable[str], tokens: int) -> str:
    """Return the beginning of a text up to the end of token number `tokens`, reading no more than needed.

    Examples
    --------
    >>> first_tokens(["Well, then."], 3)
    'Well, then'
    """
    parts: list[str] = []
    count, in_word = 0, False  # of the text so far: its tokens, and whether it ends within a word
    for piece in filter(None, pieces):
        for token in _TOKEN.finditer(piece):
            goes_on = in_word and token.start() == 0 and _LETTER.match(piece)
            count += not goes_on
            if count > tokens:
                return "".join([*parts, piece[: token.start()]]).rstrip()
        parts.append(piece)
        in_word = _LETTER.match(piece[-1]) is not None
    return "".join(parts).rstrip()


def find_answers(context: str, aliases: Iterable[str]) -> tuple[Answer, ...]:
    """Return where each alias first stands in a text as whole words, whatever the case; () if none does."""
    lowered = context.lower()
    found = set()
    for alias in {alias.strip() for alias in aliases}:
        # The plain search is many times as fast, and most of a hundred aliases don't occur.
        if not alias or alias.lower() not in lowered:
            continue
        if match := re.search(rf"(?<!\w){re.escape(alias)}(?!\w)", context, re.IGNORECASE):
            found.add(Answer(match.group(), match.start()))
    return tuple(sorted(found, key=lambda answer: (answer.start, -len(answer.text))))
