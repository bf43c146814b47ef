"""`TextEncoder`: a scikit-learn transformer that makes a vector of each text."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice, starmap
from reprlib import repr as short
from typing import Any, ClassVar, Self

import numpy as np

from minibert import engines
from minibert.api.calls import explains_arguments, explains_unknown_arguments
from minibert.api.inputs import text_pairs
from minibert.api.parameters import Parameterised
from minibert.ask.inference import Bert, warn_of_cut_texts
from minibert.base.errors import InputError
from minibert.base.foreign_names import ExplainsNames, explains_foreign_attributes
from minibert.base.model_names import on_disk
from minibert.base.options import option
from minibert.base.texts import refuse_empty
from minibert.finetuning.frozen.features import TEXTS_AT_ONCE, Extractor, Texts
from minibert.training.runlog import Progress

OUTPUTS = ("default", "pandas", "polars")
LOADING = ("model", "engine", "threads", "dtype")  # a change of these loads the model again


@explains_foreign_attributes
@explains_arguments
@dataclass(eq=False, repr=False)
class TextEncoder(Parameterised, metaclass=ExplainsNames):
    """Turn texts, or pairs of texts, into vectors with a trained BERT, which is not changed.

    It fits into a scikit-learn pipeline like any other transformer. `fit` has nothing to learn: it only loads
    the model, as `transform` does too. Texts are read in chunks and sorted by length within a chunk, so that
    little memory is needed apart from the vectors themselves, however many texts there are.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression  # doctest: +SKIP
    >>> from sklearn.pipeline import make_pipeline  # doctest: +SKIP
    >>> encoder = TextEncoder("runs/books", normalize=True)
    >>> encoder
    TextEncoder('runs/books', normalize=True)
    >>> make_pipeline(encoder, LogisticRegression()).fit(texts, labels)  # doctest: +SKIP
    """

    model: str | os.PathLike[str] | Bert = field(
        metadata={
            "help": "a run folder, a BERT from Hugging Face or sentence-transformers, or a fine-tuned model; "
            "or a loaded Bert, which keeps its engine and precision"
        }
    )
    _: KW_ONLY
    text: str = option("text", "column of the texts in a table")
    second: str | None = option(None, "column of the second texts, for pairs", default="")
    layers: int | str | Sequence[int] = option(
        -1, "which hidden states to concatenate: 0 is the output of the embeddings, -1 the last layer"
    )
    pool: str | None = option(
        None,
        "how the vectors of a text's tokens become one: cls, mean, max or pooled",
        default="what a folder of sentence-transformers does with the last layer, and the mean otherwise",
    )
    normalize: bool = option(
        False, "scale each vector to length 1, so that the dot product of two is their cosine"
    )
    max_length: int | None = option(
        None,
        "most tokens of a text, [CLS] and [SEP] included; longer texts are cut at the end, with a warning",
        default="as many as the model reads",
    )
    engine: str = option("auto", "the engine: auto, cpp, numba, numpy or jax")
    threads: int | None = option(None, "number of threads", default="one for each core")
    dtype: str = option("float32", "precision of the computation; see `Bert.from_pretrained`")
    verbose: bool = option(False, "show a progress bar with the rate and the time left")

    _output: ClassVar[str] = "default"  # set by `set_output` for a single encoder

    @explains_unknown_arguments
    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Load the model and check the parameters against it; nothing is learnt.

        Parameters
        ----------
        X, y
            Ignored, as in every transformer that learns nothing.

        Returns
        -------
        TextEncoder
            The encoder itself.

        Raises
        ------
        InputError
            When the model can't be loaded, or a parameter does not fit it.
        """
        self._extractor()
        return self

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what `transform` returns, as in scikit-learn's transformers.

        Parameters
        ----------
        transform : str, optional
            "default" for an array; "pandas" or "polars" for a table whose columns are named by
            `get_feature_names_out`. None changes nothing.

        Returns
        -------
        TextEncoder
            The encoder itself.

        Raises
        ------
        InputError
            When `transform` is none of these.
        """
        if transform is None:
            return self
        if transform not in OUTPUTS:
            expected = f"give one of {', '.join(OUTPUTS)}"
            raise InputError(f"{transform=} is not possible; {expected}.", transform=transform)
        vars(self)["_output"] = transform
        return self

    # -> (n, width)
    @explains_unknown_arguments
    def transform(self, X: Any) -> Any:
        """Return a vector for each text.

        Parameters
        ----------
        X : list, array, column or table
            The texts, or pairs of texts as tuples. Of a table, the columns `text` and `second` are read.

        Returns
        -------
        array (n, width) float32, or float64 with dtype="float64"
            Row i is the vector of text i. The width is that of the model times the number of `layers`. After
            `set_output`, it may be a table.

        Raises
        ------
        InputError
            When a row is not a text; the message names the row.
        """
        pairs = text_pairs(X, self.text, self.second)
        is_single = pairs[0][1] is None
        texts: list[Any] = [first for first, _ in pairs] if is_single else pairs
        extractor = self._extractor()
        vectors = np.empty((len(texts), extractor.width), extractor.model.params.flat.dtype)
        with (
            engines.limited_threads(self.threads, extractor.model.ops),
            Progress(len(texts), "texts", self.verbose) as progress,
        ):
            for index, (_, vector) in enumerate(extractor.stream(texts)):
                vectors[index] = vector
                progress.add(1)
        warn_of_cut_texts(extractor.cut, f"{extractor.max_length} tokens")
        if self._output == "default":
            return vectors
        names = list(self.get_feature_names_out())
        if self._output == "polars":
            import polars

            return polars.DataFrame(vectors, schema=names)
        import pandas

        return pandas.DataFrame(vectors, columns=names, index=getattr(X, "index", None))

    @explains_unknown_arguments
    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Load the model and return a vector for each text; see `transform`.

        Parameters
        ----------
        X : list, array, column or table
            As for `transform`.
        y
            Ignored.

        Returns
        -------
        array (n, width)

        Raises
        ------
        InputError
            When a row is not a text; the message names the row.
        """
        return self.transform(X)

    def stream(self, texts: Iterable[Texts]) -> Iterator[np.ndarray]:
        """Yield the vector of each text; read further texts only when their vectors are asked for.

        Parameters
        ----------
        texts : iterable
            Strings, or pairs as tuples: a file, a generator, or more than fits into memory.

        Yields
        ------
        array (width,)

        Raises
        ------
        InputError
            When `texts` is a single string, or a text is empty.
        """
        if isinstance(texts, str | bytes):
            advice = f"give an iterable of texts, such as a list or open({short(texts)})."
            raise InputError(f"texts={short(texts)} is one string; {advice}", texts=texts)
        extractor = self._extractor()
        checked_texts = starmap(_with_words, enumerate(texts))
        vectors = (vector for _, vector in extractor.stream(checked_texts))
        with Progress(None, "texts", self.verbose) as progress:
            while True:
                # Limit the threads while vectors are computed, but not while the caller works with them.
                with engines.limited_threads(self.threads, extractor.model.ops):
                    chunk = list(islice(vectors, TEXTS_AT_ONCE))
                if not chunk:
                    break
                progress.add(len(chunk))
                yield from chunk
        warn_of_cut_texts(extractor.cut, f"{extractor.max_length} tokens")

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns that `transform` returns: textencoder0, textencoder1 and so on.

        Parameters
        ----------
        input_features
            Ignored.

        Returns
        -------
        array (width,) of str, dtype object
        """
        prefix = type(self).__name__.lower()
        names = [f"{prefix}{index}" for index in range(self._extractor().width)]
        return np.array(names, dtype=object)

    def _extractor(self) -> Extractor:
        """Return an extractor with the current parameters; load the model only if these have changed."""
        parameters = tuple(getattr(self, name) for name in LOADING)
        model: Any
        loaded_with, model = getattr(self, "_loaded", (None, None))
        if loaded_with != parameters:
            model = self.model
            if not isinstance(model, Bert):
                folder = on_disk(model, "model")
                model = Bert.from_pretrained(folder, self.engine, threads=self.threads, dtype=self.dtype)
            self._loaded = parameters, model
        return Extractor(model, self.layers, self._pool(), self.max_length, self.normalize)

    def _pool(self) -> str | None:
        """Return the pool; raise InputError for "none", which does not make one vector of a text."""
        if self.pool == "none":
            raise InputError(
                "pool='none' keeps every token, and an encoder makes one vector of a text; choose cls, mean, "
                "max or pooled, or get the hidden states from Bert.encode.",
                pool=self.pool,
            )
        return self.pool

    # scikit-learn's protocol

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        utils = sys.modules["sklearn.utils"]  # only scikit-learn calls this, so it is imported
        return utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(preserves_dtype=[]),
            input_tags=utils.InputTags(one_d_array=True, two_d_array=False, string=True),
            requires_fit=False,
        )


def _with_words(index: int, text: Texts) -> Texts:
    """Return a text, or a pair of texts; raise InputError when one is empty."""
    refuse_empty(text, first=index)
    return text
