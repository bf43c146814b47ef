"""`TextEncoder`: a vector for each text, as a transformer of scikit-learn."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice, starmap
from reprlib import repr as short
from typing import Any, ClassVar, Self

import numpy as np

from minibert import engines
from minibert.api.calls import documented
from minibert.api.inputs import text_pairs
from minibert.api.parameters import Parameterised
from minibert.ask.inference import Bert, warn_of_cut_texts
from minibert.base.errors import InputError
from minibert.base.model_names import on_disk
from minibert.base.options import option
from minibert.base.texts import refuse_empty
from minibert.finetuning.frozen.features import TEXTS_AT_ONCE, Extractor, Texts
from minibert.training.runlog import Progress

OUTPUTS = ("default", "pandas", "polars")
LOADING = ("model", "engine", "threads", "dtype")  # the parameters that a loaded model depends on


@documented
@dataclass(eq=False, repr=False)
class TextEncoder(Parameterised):
    """Turn texts, or pairs of texts, into vectors by a trained BERT, which stays as it is.

    It goes into a pipeline of scikit-learn like any transformer. `fit` has nothing to learn: it only loads
    the model, which `transform` does as well. Texts are read a chunk at a time and sorted by length within
    it, so beside the vectors themselves little memory is needed, however many texts there are.

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
            "help": "a run folder, a BERT of Hugging Face's or sentence-transformers', a fine-tuned model; "
            "or a Bert that is loaded already, whose engine and precision count then"
        }
    )
    _: KW_ONLY
    text: str = option("text", "column of the texts in a table")
    second: str | None = option(None, "column of the second texts, where there are pairs", default="")
    layers: int | str | Sequence[int] = option(
        -1, "which hidden states, side by side: 0 is what leaves the embeddings, -1 the last layer"
    )
    pool: str | None = option(
        None,
        "what stands for a text: cls, mean, max or pooled",
        default="what a folder of sentence-transformers makes of the last layer, and the mean otherwise",
    )
    normalize: bool = option(False, "make each vector of length 1, so that a product of two is their cosine")
    max_length: int | None = option(
        None,
        "most tokens of a text, [CLS] and [SEP] included; longer texts lose their end, and a warning counts "
        "them",
        default="as many as the model reads",
    )
    engine: str = option("auto", "what computes: auto, cpp, numba, numpy or jax")
    threads: int | None = option(None, "number of threads", default="one for each core")
    dtype: str = option("float32", "in which to compute; see `Bert.from_pretrained`")
    verbose: bool = option(False, "show a bar with the rate and the time left")

    _output: ClassVar[str] = "default"  # of `transform`; an encoder may have another

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Load the model, and check the parameters against it; nothing is learnt.

        Parameters
        ----------
        X, y
            Ignored, as in every transformer that learns nothing.

        Returns
        -------
        TextEncoder
            Itself.

        Raises
        ------
        InputError
            When the model can't be loaded, or a parameter does not fit it.
        """
        self._extractor()
        return self

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what `transform` returns, as in transformers of scikit-learn.

        Parameters
        ----------
        transform : str, optional
            "default", an array; "pandas" or "polars", a table whose columns `get_feature_names_out` names.
            None: leave it as it is.

        Returns
        -------
        TextEncoder
            Itself.

        Raises
        ------
        InputError
            When it is another word.
        """
        if transform is not None and transform not in OUTPUTS:
            expected = f"give one of {', '.join(OUTPUTS)}"
            raise InputError(f"{transform=} is not possible; {expected}.", transform=transform)
        if transform is not None:
            vars(self)["_output"] = transform
        return self

    # -> (n, width)
    def transform(self, X: Any) -> Any:
        """Return a vector for each text.

        Parameters
        ----------
        X : list, array, column or table
            The texts, or pairs of them as tuples; a table has them in the columns `text` and `second`.

        Returns
        -------
        array (n, width) float32, or float64 with dtype="float64"
            Row i is the vector of text i. The width is that of the model, for each of `layers`. After
            `set_output` it may be a table.

        Raises
        ------
        InputError
            When a row is not a text; the message names the row.
        """
        pairs = text_pairs(X, self.text, self.second)
        are_single = pairs[0][1] is None
        texts: list[Any] = [first for first, _ in pairs] if are_single else pairs
        extractor = self._extractor()
        vectors = np.empty((len(texts), extractor.width), extractor.model.params.flat.dtype)
        with (
            engines.limited_threads(self.threads, extractor.model.ops),
            Progress(len(texts), "texts", self.verbose) as progress,
        ):
            for number, (_, vector) in enumerate(extractor.stream(texts)):
                vectors[number] = vector
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
        """
        return self.transform(X)

    def stream(self, texts: Iterable[Texts]) -> Iterator[np.ndarray]:
        """Yield the vector of each text, reading on only as they are asked for.

        Parameters
        ----------
        texts : iterable
            Strings, or pairs as tuples: a file, a generator, more than fits into memory.

        Yields
        ------
        array (width,)

        Raises
        ------
        InputError
            When it is one string, or a text is empty.
        """
        if isinstance(texts, str | bytes):
            advice = f"give an iterable of texts, such as a list or open({short(texts)})."
            raise InputError(f"texts={short(texts)} is one string; {advice}", texts=texts)
        extractor = self._extractor()
        vectors = (vector for _, vector in extractor.stream(starmap(_with_words, enumerate(texts))))
        with Progress(None, "texts", self.verbose) as progress:
            while True:
                # Threads are limited while vectors are computed, not while the caller works with them.
                with engines.limited_threads(self.threads, extractor.model.ops):
                    group = list(islice(vectors, TEXTS_AT_ONCE))
                if not group:
                    break
                progress.add(len(group))
                yield from group
        warn_of_cut_texts(extractor.cut, f"{extractor.max_length} tokens")

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Name the columns of what `transform` returns: textencoder0, textencoder1, …

        Parameters
        ----------
        input_features
            Ignored.

        Returns
        -------
        array (width,) of str, dtype object
        """
        prefix = type(self).__name__.lower()
        names = [f"{prefix}{number}" for number in range(self._extractor().width)]
        return np.array(names, dtype=object)

    def _extractor(self) -> Extractor:
        """Return what computes the vectors by the parameters of now; the model is loaded once."""
        wanted = tuple(getattr(self, name) for name in LOADING)
        if getattr(self, "_loaded", (None, None))[0] != wanted:
            model = self.model
            if not isinstance(model, Bert):
                folder = on_disk(model, "model")
                model = Bert.from_pretrained(folder, self.engine, threads=self.threads, dtype=self.dtype)
            self._loaded = wanted, model
        model = self._loaded[1]
        return Extractor(model, self.layers, self._pool(), self.max_length, self.normalize)

    def _pool(self) -> str | None:
        """Return the pool; "none" is not one that makes a vector of a text."""
        if self.pool == "none":
            raise InputError(
                "pool='none' keeps every token, and an encoder makes one vector of a text; choose cls, mean, "
                "max or pooled, or ask Bert.encode for the hidden states.",
                pool=self.pool,
            )
        return self.pool

    # scikit-learn's protocol

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        utils = sys.modules["sklearn.utils"]  # which has been imported by whoever asks for this
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
