"""`TokenTagger` and `QuestionAnswerer`: tags for words, and answers in a paragraph."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from minibert import engines
from minibert.api.base import Estimator
from minibert.api.calls import documented
from minibert.api.inputs import class_names, is_missing, listed, target_rows, text_pairs, word_rows
from minibert.base.errors import InputError
from minibert.base.options import option
from minibert.base.texts import refuse_empty
from minibert.data.ner import TaggedSentence
from minibert.data.squad import Question
from minibert.data.tables import answers_in
from minibert.finetuning.options import SpanArguments
from minibert.reports.contents import AnsweredQuestion, TaggedText
from minibert.tasks.words import tag_texts


@documented
@dataclass(eq=False, repr=False)
class TokenTagger(Estimator):
    """Predict a tag for every word: names of persons and places, parts of speech.

    Rows of X are lists of words, rows of y lists of as many tags, which `predict` returns as strings. Tags
    may be numbers of classes: those of a column of `datasets` that knows the names of its classes, such as
    `ner_tags`, become these names, any others strings of their digits.
    """

    words: str = option("words", "column of the words in a table, a list in each row")
    tags: str = option("tags", "column of the tags, one for each word")

    TASK: ClassVar[str] = "tag"

    def _examples(self, X: Any, y: Any = None, labelled: bool = False) -> list[TaggedSentence]:
        rows = word_rows(X, self.words)
        if not labelled:
            return [TaggedSentence(tuple(words), None, number) for number, words in enumerate(rows)]
        all_tags = target_rows(X, y, self.tags, len(rows), "tags")
        names = []
        if y is None or isinstance(y, str):
            names = class_names(X, y if isinstance(y, str) else self.tags)
        sentences = []
        for number, (words, tags) in enumerate(zip(rows, all_tags, strict=True)):
            if names and _are_numbers_below(len(names), tags):
                tags = [names[tag] for tag in tags]
            if not isinstance(tags, list) or any(map(is_missing, tags)):
                raise InputError(f"Row {number:,} of y is {tags!r}; give a list of tags, one for each word.")
            if len(words) != len(tags):
                counts = f"{len(words)} words and {len(tags)} tags"
                raise InputError(f"Row {number:,} has {counts}; give every word one.")
            named = tuple(map(str, tags))
            if not all(map(str.strip, named)):
                raise InputError(
                    f"Row {number:,} of y is {tags!r}, which has an empty tag; give every word one."
                )
            sentences.append(TaggedSentence(tuple(words), named, number))
        return sentences

    def _row(self, example: TaggedSentence) -> dict[str, Any]:
        return {"words": list(example.words), "tags": list(example.tags or ())}

    def predict(self, X: Any) -> list[list[str]]:
        """Return the tags of each row, one for each of its words.

        Parameters
        ----------
        X : list of lists of words, or table
            As for `fit`.

        Returns
        -------
        list of list of str
        """
        return [list(tags) for tags in self._predictions(self._examples(X))]

    def tag(self, texts: Iterable[str]) -> list[TaggedText]:
        """Tag the words of texts as they are written, and list the entities with their places.

        Parameters
        ----------
        texts : iterable of str
            Strings, which are divided into words as the model's tokenizer does.

        Returns
        -------
        list of TaggedText
            Of each text its `words` with `tag`, `begin` and `end` (characters), and its `entities`.

        Raises
        ------
        InputError
            When it is one string, or a text is empty or not a string.

        Examples
        --------
        >>> tagger.tag(["Call me Ishmael."])[0]["entities"]  # doctest: +SKIP
        [{'type': 'PER', 'text': 'Ishmael', 'begin': 8, 'end': 15}]
        """
        model = self.model_
        rows = listed(texts, "texts")
        for number, text in enumerate(rows):
            if not isinstance(text, str):
                raise InputError(f"Row {number:,} of texts is {text!r}; give a string.")
        refuse_empty(*rows)
        with engines.limited_threads(self.threads, model.ops):
            return cast(list[TaggedText], list(tag_texts(model, rows)))


def _are_numbers_below(count: int, tags: Any) -> bool:
    """Tell whether tags are a list of numbers of so many classes."""
    return isinstance(tags, list) and all(type(tag) is int and 0 <= tag < count for tag in tags)


@documented
@dataclass(eq=False, repr=False)
class QuestionAnswerer(Estimator, SpanArguments):
    """Find the answer to a question, as it stands in a paragraph.

    Rows of X are pairs of a question and a paragraph, of any length. Rows of y are the answers: a string, ""
    or None where the paragraph has none, a list of several right ones, or an object with "text" and
    "answer_start" as in SQuAD.
    """

    question: str = option("question", "column of the questions in a table")
    context: str = option("context", "column of the paragraphs")
    answer: str = option("answer", "column of the answers")

    TASK: ClassVar[str] = "qa"

    def _examples(self, X: Any, y: Any = None, labelled: bool = False) -> list[Question]:
        rows = text_pairs(X, self.question, self.context, "question", "context")
        cells: list[Any] = [None] * len(rows)
        if labelled:
            cells = target_rows(X, y, self.answer, len(rows), "answer")
        questions = []
        for number, ((asked, paragraph), cell) in enumerate(zip(rows, cells, strict=True)):
            if paragraph is None:
                raise InputError(f"Row {number:,} of X is one text; give pairs of question and paragraph.")
            answers: list[Any] = []
            impossible = None
            if labelled:
                cell = None if is_missing(cell) else cell
                answers = answers_in(cell, None, paragraph, f"Row {number:,} of y", "answer")
                impossible = not answers
            questions.append(Question(str(number), asked, paragraph, tuple(answers), impossible))
        return questions

    def _row(self, example: Question) -> dict[str, Any]:
        answer = None
        if example.answers:
            texts = [answer.text for answer in example.answers]
            starts = [answer.start for answer in example.answers]
            answer = {"text": texts, "answer_start": starts}
        return {"question": example.question, "context": example.context, "answer": answer}

    def predict(self, X: Any) -> list[str]:
        """Return the answer to each question, as it stands in the paragraph.

        Parameters
        ----------
        X : list of pairs, or table
            As for `fit`.

        Returns
        -------
        list of str
            "" where the model finds none.
        """
        return [prediction["text"] for prediction in self._predictions(self._examples(X))]

    def predict_spans(self, X: Any) -> list[AnsweredQuestion]:
        """Return the answer to each question with its place and probability, and the next best ones.

        Parameters
        ----------
        X : list of pairs, or table
            As for `fit`.

        Returns
        -------
        list of AnsweredQuestion
            `text` is the answer that `predict` returns, `context[begin:end]`; `n_best` are the likeliest
            spans with their logits and probabilities. Where a question may have no answer, `null_odds` is how
            much better no answer scores than the best span.
        """
        answers = []
        for prediction in self._predictions(self._examples(X)):
            fields = {name: value for name, value in prediction.items() if name != "id"}
            answers.append(cast(AnsweredQuestion, fields))
        return answers
