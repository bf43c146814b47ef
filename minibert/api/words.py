"""`TokenTagger` tags words, and `QuestionAnswerer` finds answers in a paragraph."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from minibert import engines
from minibert.api.base import Estimator
from minibert.api.calls import explains_arguments, explains_unknown_arguments
from minibert.api.inputs import class_names, is_missing, listed, target_rows, text_pairs, word_rows
from minibert.base.errors import InputError
from minibert.base.options import option
from minibert.base.terminal import counted
from minibert.base.texts import refuse_empty
from minibert.data.ner import TaggedSentence
from minibert.data.squad import Question
from minibert.data.tables import answers_in
from minibert.finetuning.options import SpanArguments
from minibert.reports.contents import AnsweredQuestion, TaggedText
from minibert.tasks.words import tag_texts


@explains_arguments
@dataclass(eq=False, repr=False)
class TokenTagger(Estimator):
    """Predict a tag for every word, such as named entities or parts of speech.

    Each row of X is a list of words, and each row of y a list of as many tags. `predict` returns tags as
    strings. If the tags of y are integers, they become the names of classes that a column of `datasets`, such
    as `ner_tags`, stores for them; without such names, they become strings of digits.
    """

    words: str = option("words", "column of the words in a table, a list in each row")
    tags: str = option("tags", "column of the tags, one for each word")

    TASK: ClassVar[str] = "tag"

    def _examples(self, X: Any, y: Any = None, labelled: bool = False) -> list[TaggedSentence]:
        rows = word_rows(X, self.words)
        if not labelled:
            return [TaggedSentence(tuple(words), None, index) for index, words in enumerate(rows)]
        all_tags = target_rows(X, y, self.tags, len(rows), "tags")
        names = []
        if y is None or isinstance(y, str):
            names = class_names(X, y if isinstance(y, str) else self.tags)
        sentences = []
        for index, (words, tags) in enumerate(zip(rows, all_tags, strict=True)):
            if names and _are_indices_below(len(names), tags):
                tags = [names[tag] for tag in tags]
            if not isinstance(tags, list) or any(map(is_missing, tags)):
                raise InputError(f"Row {index:,} of y is {tags!r}; give a list of tags, one for each word.")
            if len(words) != len(tags):
                counts = f"{counted(len(words), 'word')} and {counted(len(tags), 'tag')}"
                raise InputError(f"Row {index:,} has {counts}; give every word one.")
            tags_as_strings = tuple(map(str, tags))
            if not all(map(str.strip, tags_as_strings)):
                what = f"Row {index:,} of y is {tags!r}, which has an empty tag"
                raise InputError(f"{what}; give every word one.")
            sentences.append(TaggedSentence(tuple(words), tags_as_strings, index))
        return sentences

    def _row(self, example: TaggedSentence) -> dict[str, Any]:
        return {"words": list(example.words), "tags": list(example.tags or ())}

    @explains_unknown_arguments
    def predict(self, X: Any) -> list[list[str]]:
        """Return the tags of each row, one for each of its words.

        Parameters
        ----------
        X : list of lists of words, or table
            As for `fit`.

        Returns
        -------
        list of list of str

        Raises
        ------
        InputError
            When nothing is fitted yet, or a row can't be used; the message names the row.
        """
        return [list(tags) for tags in self._predictions(self._examples(X))]

    @explains_unknown_arguments
    def tag(self, texts: Iterable[str]) -> list[TaggedText]:
        """Tag the words of plain texts, and list the entities with their positions.

        Parameters
        ----------
        texts : iterable of str
            The texts. The model's tokenizer splits them into words.

        Returns
        -------
        list of TaggedText
            For each text, its `words` with `tag`, `begin` and `end` (in characters), and its `entities`.

        Raises
        ------
        InputError
            When `texts` is a single string, or a text is empty or not a string.

        Examples
        --------
        >>> tagger.tag(["Call me Ishmael."])[0]["entities"]  # doctest: +SKIP
        [{'type': 'PER', 'text': 'Ishmael', 'begin': 8, 'end': 15}]
        """
        model = self.model_
        rows = listed(texts, "texts")
        for index, text in enumerate(rows):
            if not isinstance(text, str):
                raise InputError(f"Row {index:,} of texts is {text!r}; give a string.")
        refuse_empty(*rows)
        with engines.limited_threads(self.threads, model.ops):
            return cast(list[TaggedText], list(tag_texts(model, rows)))


def _are_indices_below(count: int, tags: Any) -> bool:
    """Return whether tags are a list of indices below `count`."""
    return isinstance(tags, list) and all(type(tag) is int and 0 <= tag < count for tag in tags)


@explains_arguments
@dataclass(eq=False, repr=False)
class QuestionAnswerer(Estimator, SpanArguments):
    """Find the answer to a question as a span of a paragraph.

    Each row of X is a pair of a question and a paragraph of any length. Each row of y is the answer: a
    string; "" or None if the paragraph has no answer; a list of several right answers; or an object with
    "text" and "answer_start", as in SQuAD.
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
        for index, ((question, paragraph), cell) in enumerate(zip(rows, cells, strict=True)):
            if paragraph is None:
                raise InputError(f"Row {index:,} of X is one text; give pairs of question and paragraph.")
            answers: list[Any] = []
            impossible = None
            if labelled:
                cell = None if is_missing(cell) else cell
                answers = answers_in(cell, None, paragraph, f"Row {index:,} of y", "answer")
                impossible = not answers
            questions.append(Question(str(index), question, paragraph, tuple(answers), impossible))
        return questions

    def _row(self, example: Question) -> dict[str, Any]:
        answer = None
        if example.answers:
            texts = [answer.text for answer in example.answers]
            starts = [answer.start for answer in example.answers]
            answer = {"text": texts, "answer_start": starts}
        return {"question": example.question, "context": example.context, "answer": answer}

    @explains_unknown_arguments
    def predict(self, X: Any) -> list[str]:
        """Return the answer to each question, as it is written in the paragraph.

        Parameters
        ----------
        X : list of pairs, or table
            As for `fit`.

        Returns
        -------
        list of str
            "" if the model finds no answer.

        Raises
        ------
        InputError
            When nothing is fitted yet, or a row can't be used; the message names the row.
        """
        return [prediction["text"] for prediction in self._predictions(self._examples(X))]

    @explains_unknown_arguments
    def predict_spans(self, X: Any) -> list[AnsweredQuestion]:
        """Return the answer to each question with its position and probability, and the next best answers.

        Parameters
        ----------
        X : list of pairs, or table
            As for `fit`.

        Returns
        -------
        list of AnsweredQuestion
            `text` is the answer that `predict` returns, `context[begin:end]`. `n_best` has the likeliest
            spans with their logits and probabilities. If questions may have no answer, `null_odds` is how
            much higher "no answer" scores than the best span.

        Raises
        ------
        InputError
            When nothing is fitted yet, or a row can't be used; the message names the row.
        """
        answers = []
        for prediction in self._predictions(self._examples(X)):
            fields = {name: value for name, value in prediction.items() if name != "id"}
            answers.append(cast(AnsweredQuestion, fields))
        return answers
