"""`TokenTagger` and `QuestionAnswerer`: tags for words, and answers in a paragraph."""

from dataclasses import dataclass
from typing import Any, ClassVar

from minibert.api.base import Estimator, documented
from minibert.api.inputs import class_names, is_missing, target_rows, text_pairs, word_rows
from minibert.base.errors import InputError
from minibert.data.ner import TaggedSentence
from minibert.data.squad import Question
from minibert.data.tables import answers_in


@documented
@dataclass(eq=False, repr=False)
class TokenTagger(Estimator):
    """Predict a tag for every word: names of persons and places, parts of speech.

    Rows of X are lists of words, rows of y lists of as many tags, which `predict` returns as strings. Tags
    may be numbers of classes: those of a column of `datasets` that knows the names of its classes, such as
    `ner_tags`, become these names, any others strings of their digits.
    """

    words: str = "words"
    tags: str = "tags"

    TASK: ClassVar[str] = "tag"

    def _examples(self, X: Any, y: Any = None, labelled: bool = False) -> list[TaggedSentence]:
        rows = word_rows(X, self.words)
        if not labelled:
            return [TaggedSentence(tuple(words), None, number) for number, words in enumerate(rows)]
        wanted = target_rows(X, y, self.tags, len(rows), "tags")
        names = (
            class_names(X, y if isinstance(y, str) else self.tags) if y is None or isinstance(y, str) else []
        )
        found = []
        for number, (words, tags) in enumerate(zip(rows, wanted, strict=True)):
            if (
                names
                and isinstance(tags, list)
                and all(type(tag) is int and 0 <= tag < len(names) for tag in tags)
            ):
                tags = [names[tag] for tag in tags]
            if not isinstance(tags, list) or any(map(is_missing, tags)):
                raise InputError(f"Row {number:,} of y is {tags!r}; give a list of tags, one for each word.")
            if (n := len(words)) != (m := len(tags)):
                raise InputError(f"Row {number:,} has {n} words and {m} tags; give every word one.")
            found.append(TaggedSentence(tuple(words), tuple(map(str, tags)), number))
        return found

    def _row(self, example: TaggedSentence) -> dict[str, Any]:
        return {"words": list(example.words), "tags": list(example.tags or ())}

    def predict(self, X: Any) -> list[list[str]]:
        """Return the tags of each row, one for each of its words."""
        return [list(tags) for tags in self._predictions(self._examples(X))]


@documented
@dataclass(eq=False, repr=False)
class QuestionAnswerer(Estimator):
    """Find the answer to a question, as it stands in a paragraph.

    Rows of X are pairs of a question and a paragraph, of any length. Rows of y are the answers: a string, ""
    or None where the paragraph has none, a list of several right ones, or an object with "text" and
    "answer_start" as in SQuAD.
    """

    question: str = "question"
    context: str = "context"
    answer: str = "answer"
    span_weight: float = 0.5

    TASK: ClassVar[str] = "qa"

    def _examples(self, X: Any, y: Any = None, labelled: bool = False) -> list[Question]:
        rows = text_pairs(X, self.question, self.context, "question", "context")
        found = []
        wanted = target_rows(X, y, self.answer, len(rows), "answer") if labelled else [None] * len(rows)
        for number, ((asked, paragraph), cell) in enumerate(zip(rows, wanted, strict=True)):
            if paragraph is None:
                raise InputError(f"Row {number:,} of X is one text; give pairs of question and paragraph.")
            cell = None if is_missing(cell) else cell
            answers = answers_in(cell, None, paragraph, f"Row {number:,} of y", "answer") if labelled else []
            impossible = not answers if labelled else None
            found.append(Question(str(number), asked, paragraph, tuple(answers), impossible))
        return found

    def _row(self, example: Question) -> dict[str, Any]:
        starts = [one.start for one in example.answers]
        answer = {"text": [one.text for one in example.answers], "answer_start": starts} if starts else None
        return {"question": example.question, "context": example.context, "answer": answer}

    def predict(self, X: Any) -> list[str]:
        """Return the answer to each question, "" where the model finds none."""
        return [one["text"] for one in self._predictions(self._examples(X))]
