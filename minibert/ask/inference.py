"""`Bert`: load a model from a folder and compute hidden states, attention maps and predictions."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from reprlib import repr as short
from typing import Any, NoReturn, Self, overload

import numpy as np
from numpy.typing import NDArray

from minibert import engines
from minibert.ask.encoded_inputs import is_encoded, sequence_of, sequences_of
from minibert.ask.gaps import BATCH_TOKENS, Guesses, fill_texts
from minibert.base.errors import InputError, warn
from minibert.base.files import write_atomically
from minibert.base.foreign_names import (
    attribute_advice,
    explains_folder,
    explains_foreign_arguments,
    explains_foreign_attributes,
)
from minibert.base.model_names import folder_of, on_disk
from minibert.base.options import PRETRAINING_FILE
from minibert.base.paths import path_of
from minibert.base.terminal import some_of
from minibert.base.texts import refuse_empty
from minibert.core import bert
from minibert.core.arrays import Array, Floats, Params
from minibert.core.batch import Batch, Sequence, whole_numbers
from minibert.core.config import BertConfig
from minibert.engines.runtime import runtime_of
from minibert.hub import fields_in, kind_in_config, load, save_hf
from minibert.hub.names import MASKED_LM
from minibert.hub.sentence_transformers import SentenceModules, module_files, read_modules
from minibert.hub.vocabularies import check_vocabulary, read_tokenizer
from minibert.model.params import PRETRAINING, Parameters, precision_for
from minibert.model.pools import OF_STATES, POOLS
from minibert.tokenizer import Tokenizer

FINETUNED = ("task.json", "tagger.json", "finetune.json")  # files of a fine-tuning run, finished or not


def lay_out(ops: Any, params: Parameters, int8: bool = False) -> None:
    """Make parameters read-only, and let the engine store their matrices in its own layout.

    Embeddings are left as they are, except for the decoder, which is laid out transposed, (H,V).

    Parameters
    ----------
    ops : Ops
        The engine, which keeps a copy of each matrix in the layout that its matrix product reads.
    params : Parameters
        All parameters of the model.
    int8 : bool, default False
        Quantise the matrices of the layers, but not those of the heads.

    Raises
    ------
    InputError
        When `int8` is True and the engine, the type of the weights or the processor does not support it.
    """
    if int8 and not (ops.has_int8 and params.flat.dtype == np.float32):
        needed = "int8=True needs the engine cpp, weights in float32 and the instruction set avx512_bf16"
        raise InputError(f"{needed}; leave it out with {ops.name} in {params.flat.dtype} on this processor.")
    params.make_read_only()
    for name, weight in params.items():
        is_embedding = name.startswith("embeddings.")
        is_layer = name.startswith("layers.")
        if weight.ndim == 2 and not is_embedding:
            ops.prepack(weight, int8 and is_layer)
    if params.head.kind == "pretraining":
        decoder = params["embeddings.word"] if params.decoder is None else params.decoder
        ops.prepack(decoder.T)


# x (n,H) -> (n,H)
def unit_rows(x: Floats) -> Floats:
    """Divide each row by its length, or by 1e-12 if that is larger.

    Parameters
    ----------
    x : array (n,H), float

    Returns
    -------
    array (n,H) of the type of `x`; the lengths are computed in float64.
    """
    lengths = np.sqrt(np.sum(x * x, axis=-1, keepdims=True, dtype=np.float64))
    return (x / np.maximum(lengths, 1e-12)).astype(x.dtype)


@explains_foreign_attributes
@dataclass(frozen=True)
class Encoded:
    """The result of `Bert.encode`: vectors of S sequences with T tokens in all, packed as in a `Batch`.

    Attributes
    ----------
    hidden_states : list of (T,H) arrays
        One for each requested layer; by default the embeddings and all L layers.
    attentions : list of lists of (A,n,n) arrays, or None
        By layer and sequence: row i is what token i attends to.
    pooled : (S,H) or None
        tanh(W x + b), where x is the vector of [CLS] or, in a left-to-right model, of the last token, which
        has seen all others; None if the model has no trained pooler.
    cu_seqlens : (S+1,) int32
        Sequence s is rows cu_seqlens[s]:cu_seqlens[s+1].
    tokens : list of str, or None
        The T pieces; None if the model has no vocabulary.
    modules : SentenceModules or None
        How a model of sentence-transformers makes vectors of texts.
    prompt_tokens : int
        Number of tokens of such a model's prompt, at the beginning of each sequence.
    """

    hidden_states: list[Floats]
    attentions: list[list[Floats]] | None
    pooled: Floats | None
    cu_seqlens: NDArray[np.int32]
    tokens: list[str] | None = None
    modules: SentenceModules | None = None
    prompt_tokens: int = 0

    def __repr__(self) -> str:
        states = self.hidden_states
        parts = [f"{len(states)} × {states[0].shape}"]
        if self.pooled is not None:
            parts.append(f"pooled {self.pooled.shape}")
        if self.attentions:
            heads = len(self.attentions[0][0])
            parts.append(f"attentions of {len(self.attentions)} layers with {heads} heads")
        return f"Encoded({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Show how far vectors have turned from layer to layer, and the attention maps if there are any."""
        from minibert.ask.encoded import encoded_html

        return encoded_html(self)

    # -> (S,H)
    @explains_foreign_arguments
    def vectors(self, pool: str | None = None, normalize: bool = False) -> Floats:
        """Return one vector for each sequence, made from the last of `hidden_states`.

        Parameters
        ----------
        pool : str, optional
            "cls" for the first token; "mean" or "max" over all tokens, including [CLS] and [SEP]; "pooled"
            for the output of the pooler. By default, the vectors are those of `SentenceTransformer.encode` if
            the model comes from a folder of sentence-transformers, and the mean otherwise.
        normalize : bool, default False
            Scale each vector to length 1, so that the dot product of two is their cosine.

        Returns
        -------
        array (S,H), float32 or float64; a folder of sentence-transformers may give another width.

        Raises
        ------
        InputError
            When the pool is unknown, or is "pooled" and the model has no trained pooler.
        """
        last = self.hidden_states[-1]
        if pool is None and self.modules is not None:
            vectors = self.modules.vectors(last, self.cu_seqlens, self.prompt_tokens)
        else:
            vectors = self._pooled_by("mean" if pool is None else pool)
        if normalize:
            vectors = unit_rows(vectors)
        return vectors

    # -> (S,H)
    def _pooled_by(self, pool: str) -> Floats:
        """Return one vector for each sequence, given the name of a pool."""
        if pool == "pooled" and self.pooled is not None:
            return self.pooled
        entry = POOLS.get(pool)
        if entry is not None and entry.vectors is not None:
            return entry.vectors(self.hidden_states[-1], self.cu_seqlens)
        names = ", ".join(OF_STATES)
        text = f"{pool=} is not possible; choose {names}, or pooled for a model with a trained pooler."
        raise InputError(text, pool=pool)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Raise InputError, since an `Encoded` holds several arrays."""
        what = "An Encoded is not an array, as it holds several"
        choices = "vectors() has one vector for each sequence, hidden_states[-1] one for each token"
        raise InputError(f"{what}; choose one: {choices}.")

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.cu_seqlens) - 1

    def __getitem__(self, index: int) -> "Encoded":
        """Return one of the sequences, counted from the end if negative; its arrays are views."""
        if isinstance(index, str):
            advice = attribute_advice(Encoded, index) or "use an attribute, such as hidden_states[-1]."
            raise InputError(f"An Encoded has no {index!r}; {advice}")
        if not -len(self) <= index < len(self):  # this also ends an iteration
            raise IndexError(f"There is no sequence {index}, there are {len(self)}.")
        index %= len(self)
        begin, end = self.cu_seqlens[index : index + 2]
        attentions = self.attentions
        if attentions:
            attentions = [[layer[index]] for layer in attentions]
        pooled = self.pooled
        if pooled is not None:
            pooled = pooled[index : index + 1]
        return Encoded(
            hidden_states=[state[begin:end] for state in self.hidden_states],
            attentions=attentions,
            pooled=pooled,
            cu_seqlens=np.array([0, end - begin], self.cu_seqlens.dtype),
            tokens=self.tokens and self.tokens[begin:end],
            modules=self.modules,
            prompt_tokens=self.prompt_tokens,
        )


@explains_foreign_attributes
class Bert:
    """BERT with its two pre-training heads (Devlin et al. 2019, section 3), for inference.

    Where a method takes `inputs`, these can be a text, a pair of texts as a tuple, or a list of either; the
    output of a `Tokenizer`; the output of a tokenizer of `transformers`, which is a mapping with `input_ids`
    and, if rows are padded, `attention_mask`; or a `Batch`. Special tokens that are written out in a text,
    such as "[MASK]", are read as special tokens. Dropout is never applied.

    There is no method `predict`: `fill_mask` predicts words, and `encode` computes vectors. `TextClassifier`
    and the other estimators start from such a model and learn to predict classes, tags or answers.

    A model can be copied and pickled. A copy shares the engine. An unpickled model makes a new engine of the
    same kind, so that another process can compute with it.

    Parameters
    ----------
    config : BertConfig
        The sizes of the model.
    params : Parameters
        The weights of the model, with the same configuration.
    ops : Ops, optional
        The engine; None: the fastest one available.
    tokenizer : Tokenizer, optional
        The vocabulary of the model, needed if inputs are texts. A model that is loaded from a folder uses the
        vocabulary in that folder.

    Attributes
    ----------
    missing : tuple of str
        Hugging Face's names of the tensors that only have their initial values; see `from_pretrained`.
    modules : SentenceModules or None
        How a model of sentence-transformers reads texts and makes vectors of them; None for other models. Set
        it to None to get the mean of the last hidden states instead.

    Raises
    ------
    InputError
        When the parameters belong to another configuration, or the vocabulary is larger than the model's.

    Examples
    --------
    >>> from minibert.model.params import initialise
    >>> config = BertConfig.from_size("tiny", vocab_size=100)
    >>> model = Bert(config, initialise(config, seed=0))
    >>> encoded = model.encode(Batch.pack([Sequence([2, 7, 3], [0, 0, 0])]))
    >>> encoded
    Encoded(3 × (3, 128), pooled (1, 128))
    """

    # The tree of parameters, and the same on the engine's device.
    _placed: Any = None

    @explains_folder("minibert.load")
    def __init__(
        self,
        config: BertConfig,
        params: Parameters,
        ops: Any = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        if params.config != config:
            raise InputError("params belong to another configuration than config; give params.config.")
        if tokenizer is not None:
            check_vocabulary(config, tokenizer)
        self.config = config
        self.params = params
        self.ops = engines.create() if ops is None else ops
        self._tokenizer = tokenizer
        self._folder = ""  # the folder to read a tokenizer from when it is first needed
        self.missing: tuple[str, ...] = ()
        self.modules: SentenceModules | None = None
        self._source = ""  # the folder of the modules

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_placed": None}  # a copy places its own parameters

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise TypeError, as a reminder for users of PyTorch."""
        raise TypeError(
            "A Bert can't be called; use encode(texts) for vectors, or fill_mask(text) for words."
        )

    def __repr__(self) -> str:
        millions = self.n_parameters / 1e6
        size = f"{self.config.L} layers of {self.config.H}, {millions:.1f}M parameters"
        return f"Bert({size}, {self.ops.name})"

    @classmethod
    @explains_foreign_arguments
    def from_pretrained(
        cls,
        folder: str | Path,
        engine: str = "auto",
        *,
        dtype: Any = "float32",
        threads: int | None = None,
    ) -> "Bert":
        """Load the folder of a run of minibert, or of a BERT in Hugging Face's or Google's format.

        Tensors of the pooler and the heads that are not in the folder have their initial values and are
        listed in `missing`. Results that depend on them mean nothing until they are trained: `pooled` is
        None, and methods that use such a head warn. The settings of a folder of sentence-transformers for
        texts and vectors are applied, and a warning names those that are not supported.

        Parameters
        ----------
        folder : str or path
            A folder with `config.json` and `model.safetensors` or `pytorch_model.bin`, or for TensorFlow with
            `bert_config.json` and `bert_model.ckpt.*`; or "english", the model in the package; or the name of
            a model on the Hub that is in Hugging Face's cache; or `RUN@STEP`, a checkpoint that a run has
            kept.
        engine : str, default "auto"
            The name of the engine.
        dtype : str or NumPy dtype, default "float32"
            The precision of the computation: "float32"; "float64"; "bfloat16", which is used for matrix
            products and activations, and float32 for everything else; or "auto" for the faster of float32
            and bfloat16. Results are float32 or float64.
        threads : int, optional
            Number of threads of the engine; None: one for each core.

        Returns
        -------
        Bert
            The model. If the folder has a vocabulary, it is read when it is first needed.

        Raises
        ------
        InputError
            When the folder does not hold a complete, undamaged BERT, or the engine or dtype does not exist.
        """
        if not (dtype is None or isinstance(dtype, str)):
            with suppress(TypeError, ValueError):  # not a NumPy dtype: `create` refuses it
                dtype = np.dtype(dtype).name
        if dtype == "auto":
            dtype = engines.quickest_dtype(engine)
        ops = engines.create(engine, threads, dtype)
        folder = on_disk(folder)
        config, params, report = load(folder, precision_for(dtype), PRETRAINING)
        model = cls(config, params, ops)
        model._folder = str(folder_of(folder))
        model.missing = report.missing
        if params.decoder is not None:  # the folder has a masked-LM decoder of its own
            model.missing = tuple(name for name in report.missing if not name.startswith(MASKED_LM))
        _warn_of_unknown_head(folder, report.unused)
        model.modules = read_modules(folder, config)
        model._source = str(folder)
        if model.modules is not None and (unsupported := model.modules.not_done):
            effect = "vectors are not those of SentenceTransformer.encode"
            warn(f"'{folder}' is a folder of sentence-transformers, and {'; '.join(unsupported)}: {effect}.")
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` (float32), which `transformers` loads as well.

        Tensors that are listed in `missing` are left out, so that nobody takes them for trained. If the model
        has a vocabulary, it is written as well, or a warning says why it can't be read. The modules of a
        folder of sentence-transformers are copied.

        Parameters
        ----------
        folder : str or path
            The folder to write to, created if need be.

        Raises
        ------
        InputError
            When the folder holds a run or a fine-tuned model, since its other files would no longer match.
        RunError
            When a file can't be written.
        """
        folder = path_of(folder)
        require_no_other(folder, (*FINETUNED, PRETRAINING_FILE))
        save_hf(folder, self.config, self.params, omit=self.missing)
        if self._tokenizer or self._folder:
            try:
                self.tokenizer.save_pretrained(folder, self.config.P)
            except InputError as error:
                warn(f"No vocabulary is written: {error}", **error.arguments)
        if self.modules is None:
            return
        for name, data in module_files(self._source).items():
            write = partial(_write, data=data)
            write_atomically(folder / name, write)

    def optimize_for_inference(self, int8: bool = False) -> Self:
        """Prepare the model for fast inference on short texts; its parameters become read-only.

        The engine `cpp` rearranges every matrix for its matrix product. Without this call, it does so for
        each text, which is most of the work if there are few tokens. Results have the same bits. The
        rearranged matrices need additional memory: as much as the parameters in float32, half of that in
        bfloat16, a quarter with `int8`. Other engines gain nothing, and their results may differ by rounding.
        To train, load the model again; a copy (`copy.deepcopy`, pickle) is not affected.

        Parameters
        ----------
        int8 : bool, default False
            Quantise the layers, but not the heads: the weights once, with a scale for each column, and the
            activations as they are computed, with a scale for each token. Hidden states change by a few
            percent.

        Returns
        -------
        Bert
            The model itself.

        Raises
        ------
        InputError
            When the engine or the processor does not support `int8`; the model is then unchanged.

        Examples
        --------
        >>> model = minibert.load("runs/books").optimize_for_inference()  # doctest: +SKIP
        """
        lay_out(self.ops, self.params, int8)
        return self

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, read from the model's folder when it is first needed.

        Raises
        ------
        InputError
            When the model has no vocabulary, or one that is larger than its embedding.
        """
        if self._tokenizer is None:
            if not self._folder:
                advice = "give it one, Bert(..., tokenizer=...), or give encodings instead of texts."
                raise InputError(f"This model was made without a vocabulary; {advice}")
            lower_case = self.modules is not None and self.modules.lower_case
            self._tokenizer = read_tokenizer(self._folder, self.config, lower_case)
        return self._tokenizer

    @property
    def n_parameters(self) -> int:
        """Number of parameters, including the heads; the tied embedding is counted once."""
        return self.params.flat.size

    @explains_foreign_arguments
    def encode(self, inputs: Any, attentions: bool = False, layers: Any = None) -> Encoded:
        """Return hidden states and the pooled vectors.

        Parameters
        ----------
        inputs : texts, encodings or a `Batch`
            Any number of sequences, as described for the class.
        attentions : bool, default False
            Whether to compute the attention maps as well.
        layers : int, iterable of int or str, optional
            Which hidden states to keep: 0 for the embeddings, 1 to L for the layers, -1 for the last layer,
            or "all" for 1 to L. None keeps all of them, which takes 4 (L+1) H bytes for each token in
            float32, or 40 KB for BERT base.

        Returns
        -------
        Encoded
            The vectors of S sequences with T tokens in all.

        Raises
        ------
        InputError
            When the inputs are none of these, a text is empty, an id is not in the vocabulary, a sequence is
            too long, there is no such layer, or `attentions` is not a bool.
        """
        if not isinstance(attentions, bool | np.bool_):
            what = f"attentions={short(attentions)} is not True or False"
            raise InputError(f"{what}; give a pair of texts as a tuple, encode(('a', 'b')).")
        L = self.config.L
        batch, prompt_tokens = self._read(inputs)
        kept = list(range(L + 1))
        if layers is not None:
            kept = list(layer_numbers(layers, L))
        needed = sorted(range(L + 1) if attentions else {*kept, L})
        states = dict(zip(needed, self._states(batch, needed), strict=True))
        maps = self._attention_maps(batch, states) if attentions else None
        pooled = None
        head = self.params.head
        if head.pooled and not head.lstm and not self._untrained("pooler"):
            rows = batch.last_rows if self.config.is_decoder else batch.first_rows  # as in `core/heads.py`
            pooled = np.asarray(self._pooled(states[L], rows))
        tokens = None
        if self._tokenizer:
            tokens = _pieces(self._tokenizer.vocab, batch.input_ids.tolist())
        return Encoded(
            hidden_states=[states[layer] for layer in kept],
            attentions=maps,
            pooled=pooled,
            cu_seqlens=batch.cu_seqlens.copy(),
            tokens=tokens,
            modules=self.modules if kept[-1] == L else None,  # they are meant for the last layer
            prompt_tokens=prompt_tokens,
        )

    # states[i] (T,H) -> [layer][sequence] (A,n,n)
    def _attention_maps(self, batch: Batch, states: Mapping[int, Floats]) -> list[list[Floats]]:
        """Return the attention maps of each layer, recomputed from its input."""
        maps = []
        for index, params in enumerate(self.params.tree["layers"]):
            layer_maps = bert.attention_maps(self.ops, self.config, states[index], params, batch)
            maps.append([np.asarray(sequence_maps) for sequence_maps in layer_maps])
        return maps

    # -> len(layers) × (T,H)
    def hidden_states(self, inputs: Any, layers: str | int | Iterable[int]) -> list[Floats]:
        """Return some hidden states, without the other results of `encode`.

        Parameters
        ----------
        inputs : texts, encodings or a `Batch`
            The sequences, as described for the class.
        layers : int, iterable of int or str
            Which hidden states: 0 for the embeddings, 1 to L for the layers, -1 for the last layer, or "all"
            for 1 to L.

        Returns
        -------
        list of array (T,H), in the order of `layers`.

        Raises
        ------
        InputError
            When the inputs are none of these, as for `encode`, or there is no such layer.
        """
        return self._states(self._batch(inputs), layer_numbers(layers, self.config.L))

    # -> len(layers) × (T,H)
    def _states(self, batch: Batch, layers: Iterable[int]) -> list[Floats]:
        """Return hidden states of a batch, computed a few thousand tokens at a time."""
        runtime = runtime_of(self.ops)
        static = (self.config, tuple(layers))
        whole: list[Floats] = []
        for part, rows in _parts(batch):
            prepared = runtime.prepare(part)
            params = self._params_on_device()
            on_device = runtime.call(self.ops, bert.hidden_states, static, params, prepared)
            states = [runtime.in_order(state, part, "tokens") for state in on_device]
            if part.T == batch.T:
                return states
            if not whole:
                shape = (batch.T, self.config.H)
                whole = [np.empty(shape, state.dtype) for state in states]
            for array, state in zip(whole, states, strict=True):
                array[rows] = state
        return whole

    def _params_on_device(self) -> Params:
        """Return the parameters on the engine's device; copy them there first if they were replaced."""
        tree = self.params.tree
        if self._placed is None or self._placed[0] is not tree:
            on_device = runtime_of(self.ops).to_device(tree)
            self._placed = tree, on_device
        return self._placed[1]

    # -> (len(rows), V)
    def masked_lm_logits(self, inputs: Any, rows: Any) -> Floats:
        """Return the logits of every piece of the vocabulary at some tokens; warn if the head is untrained.

        Parameters
        ----------
        inputs : texts, encodings or a `Batch`
            The sequences, as described for the class.
        rows : int or array (M,) of int
            The indices of tokens, counted from 0 through all sequences.

        Returns
        -------
        array (M,V), the logits before the softmax (section 3.1, Task 1).

        Raises
        ------
        InputError
            When there is no such row, or the model has no pre-training heads.
        """
        batch = self._batch(inputs)
        rows = whole_numbers("rows", np.ravel(rows))
        if len(rows) and not (0 <= rows.min() and rows.max() < batch.T):
            what = f"rows from {rows.min()} to {rows.max()} are not all among the {batch.T} tokens"
            raise InputError(f"{what}; choose from 0 to {batch.T - 1}.")
        tree = self._pretrained("masked_lm_logits", "cls.predictions")
        last = self._last_states(batch)
        decoder = self.params.decoder
        if decoder is None:  # tied to the embedding
            decoder = tree["embeddings"]["word"]
        logits, _ = self.ops.masked_lm_logits(last, rows, tree["mlm"], decoder, self.config)
        return np.asarray(logits)

    # -> (T,H)
    def _last_states(self, batch: Batch) -> Floats:
        [last] = self._states(batch, (self.config.L,))
        return last

    @overload
    def fill_mask(
        self, text: str, top: int = 5, *, targets: Iterable[str] | None = None, pieces: int = 1
    ) -> list[Guesses]: ...
    @overload
    def fill_mask(
        self, text: list[str], top: int = 5, *, targets: Iterable[str] | None = None, pieces: int = 1
    ) -> list[list[Guesses]]: ...
    @explains_foreign_arguments
    def fill_mask(
        self,
        text: str | list[str],
        top: int = 5,
        *,
        targets: Iterable[str] | None = None,
        pieces: int = 1,
    ) -> list[Guesses] | list[list[Guesses]]:
        """Predict the word at each [MASK] of a text, or of several texts; see `gaps.fill_texts`.

        Parameters
        ----------
        text : str or list of str
            A text, or several, with [MASK] in the place of each missing word.
        top : int, default 5
            Number of guesses for each [MASK].
        targets : iterable of str, optional
            The words to compare, all of which are returned. None: the whole vocabulary.
        pieces : int, default 1
            Most pieces of a guess.

        Returns
        -------
        list of list of Guess
            For each [MASK], its guesses as pairs of a word and a probability, the likeliest first. For a list
            of texts, a list of these.

        Raises
        ------
        InputError
            When a text has no [MASK] or is too long, a target is not in the vocabulary, or the model has no
            vocabulary or no trained masked-LM head.

        Examples
        --------
        >>> model.fill_mask("Paris is the [MASK] of France.")  # doctest: +SKIP
        [[Guess(token='capital', probability=0.97), ...]]
        """
        is_single = isinstance(text, str) or not isinstance(text, Iterable)
        texts: list[Any] = [text] if is_single else list(text)
        guesses = fill_texts(self, texts, top, targets=targets, pieces=pieces)
        return guesses[0] if is_single else guesses

    # -> (S,2)
    def next_sentence_logits(self, inputs: Any) -> Floats:
        """Return the logits of IsNext and NotNext; warn if the head is untrained.

        Parameters
        ----------
        inputs : texts, encodings or a `Batch`
            Pairs of texts, in the forms described for the class.

        Returns
        -------
        array (S,2), the logits of IsNext (column 0) and NotNext (column 1) (section 3.1, Task 2).

        Raises
        ------
        InputError
            When the inputs can't be encoded, or the model has no pre-training heads.
        """
        batch = self._batch(inputs)
        tree = self._pretrained("next_sentence_logits", "cls.seq_relationship", "pooler")
        last = self._last_states(batch)
        pooled = self._pooled(last, batch.first_rows)
        head = tree["nsp"]
        logits, _ = self.ops.linear(pooled, head["weight"], head["bias"])
        return np.asarray(logits)

    def _pretrained(self, method: str, *parts: str) -> Params:
        """Return the parameters if they have pre-training heads; warn if a part that is read is untrained."""
        kind = self.params.head.kind
        if kind != "pretraining":
            what = f"it has a head of kind {kind!r} in place of those of pre-training"
            advice = "use the model that it was fine-tuned from."
            raise InputError(f"{method}: this model was fine-tuned, {what}; {advice}")
        untrained = [name for part in parts for name in self._untrained(part)]
        if untrained:
            names = ", ".join(untrained)
            warn(f"{method}: the model came without {names}; train these before relying on what they give.")
        return self.params.tree

    def _untrained(self, part: str) -> list[str]:
        """Return the names of the untrained tensors in a part of the model."""
        return [name for name in self.missing if part in name]

    def _pooled(self, last_hidden_state: Array, rows: Array) -> Array:
        return self.ops.pooler(last_hidden_state, rows, self.params.tree["pooler"])[0]

    def _batch(self, inputs: Any) -> Batch:
        """Pack the inputs into a batch that fits the model."""
        return self._read(inputs)[0]

    def _read(self, inputs: Any) -> tuple[Batch, int]:
        """Pack the inputs into a batch that fits the model; also return each sequence's prompt tokens."""
        if isinstance(inputs, Iterator):
            inputs = list(inputs)
        prompt_tokens = 0
        texts = _texts(inputs)
        refuse_empty(*texts)
        if texts:
            inputs, prompt_tokens = self._encodings(texts)
        if isinstance(inputs, Batch):
            batch = inputs
        else:
            sequences = list(_sequences(inputs))
            if not sequences:
                what = f"inputs={short(inputs)} is empty"
                raise InputError(f"{what}; give at least one text or sequence.", inputs=inputs)
            batch = Batch.pack(sequences)
        batch.validate(self.config)
        return batch, prompt_tokens

    def _encodings(self, texts: list[Any]) -> tuple[Any, int]:
        """Tokenize texts or pairs; return the encodings, and the number of prompt tokens in each.

        A model of sentence-transformers may have a prompt and a maximum length: longer texts are cut, with a
        warning. For other models, texts that are too long are refused. Special tokens that are written out in
        a text are read as single pieces, even if the tokenizer has `split_special_tokens`.
        """
        if self.modules is None:
            encoded = self.tokenizer(texts, special=True)
            P = self.config.P
            lengths = np.diff(encoded.cu_seqlens)
            if lengths.max() > P:
                first = int(np.argmax(lengths > P))
                what = f"Text {first:,}, {short(texts[first])}, has {lengths[first]:,} tokens"
                advice = f"shorten it, or give model.tokenizer(texts, max_length={P}) in place of texts."
                raise InputError(f"{what} with [CLS] and [SEP], and the model {P} positions; {advice}")
            return encoded, 0
        prompted = [with_prompt(self.modules.prompt, text) for text in texts]
        max_length = self.modules.max_length
        encoded = self.tokenizer(prompted, max_length=max_length, special=True)
        n_cut = int((encoded.n_cut > 0).sum())
        warn_of_cut_texts(n_cut, f"{max_length} tokens, the max_seq_length of the model's folder")
        return encoded, prompt_tokens_of(self.tokenizer, self.modules, special=True)


def warn_of_cut_texts(n_cut: int, limit: str) -> None:
    """Warn if texts were cut because they are too long.

    Parameters
    ----------
    n_cut : int
        Number of texts that were cut; 0 for no warning.
    limit : str
        The limit that they exceed, such as "128 tokens".
    """
    if n_cut:
        texts = "1 text has" if n_cut == 1 else f"{n_cut:,} texts have"
        warn(f"{texts} more than {limit}; the ends were cut.")


def with_prompt(prompt: str, text: Any) -> Any:
    """Put a prompt before a text, or before the first text of a pair.

    Parameters
    ----------
    prompt : str
        The prompt; "" changes nothing.
    text : str or tuple
        A text, or a pair as a tuple.

    Returns
    -------
    str or tuple
        The text or pair with the prompt.
    """
    if not prompt:
        return text
    if isinstance(text, tuple):
        first, *others = text
        return (prompt + first, *others)
    return prompt + text


def prompt_tokens_of(
    tokenizer: Tokenizer,
    modules: SentenceModules,
    special: bool | None = None,
) -> int:
    """Count the tokens that a prompt takes at the beginning of a sequence, including [CLS].

    Parameters
    ----------
    tokenizer : Tokenizer
        The tokenizer of the model.
    modules : SentenceModules
        The modules of the model, which have the prompt.
    special : bool, optional
        How special tokens in a text are read; see `Tokenizer.encode_batch`.

    Returns
    -------
    int
        0 if there is no prompt; at most the number of tokens that a sequence can have.
    """
    if not modules.prompt:
        return 0
    length = len(tokenizer(modules.prompt, special=special).ids)
    return min(length, modules.max_length) - 1  # [SEP] does not belong to the prompt


def _warn_of_unknown_head(folder: str | Path, unused: Iterable[str]) -> None:
    """Warn if the folder has a head of an unsupported class, which is then not loaded."""
    unused_in_head = [name for name in unused if not name.startswith("bert.")]
    if not unused_in_head or kind_in_config(folder) is not None:
        return
    architectures = fields_in(folder).get("architectures")
    if architectures:
        names = ", ".join(map(str, architectures))
        what = f"'{folder}' is a {names}, whose head ({some_of(unused_in_head)}) is not supported"
        warn(f"{what}: only its BERT is loaded, without what the head predicts.")


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def layer_numbers(layers: str | int | Iterable[int], count: int) -> tuple[int, ...]:
    """Return the indices of hidden states, from 0 for the embeddings to `count` for the last layer.

    Parameters
    ----------
    layers : str, int or iterable of int
        "embeddings", "all" (1 to `count`), or one or more indices, which a string separates by commas. A
        negative index counts from the end, with -1 for the last layer.
    count : int
        The number of layers of the model, L.

    Returns
    -------
    tuple of int
        The indices, in the given order.

    Raises
    ------
    InputError
        When there is no index, one occurs twice, or there is no such hidden state.

    Examples
    --------
    >>> layer_numbers("-1,-2", 12), layer_numbers("embeddings", 12), layer_numbers("all", 3)
    ((12, 11), (0,), (1, 2, 3))
    """
    if isinstance(layers, str):
        given = _parsed_layers(layers, count)
    else:
        given = list(layers) if isinstance(layers, Iterable) else [layers]
        given = whole_numbers("layers", given).tolist()
    indices = tuple(index + count + 1 if index < 0 else index for index in given)
    distinct = set(indices)
    if not indices or len(distinct) < len(indices) or not distinct <= set(range(count + 1)):
        several = "several separated by commas" if isinstance(layers, str) else "a list of different ones"
        numbers = f"give a number from {-count - 1} to {count} (-1 is the last layer), {several}"
        advice = f"{numbers}, 'all' or 'embeddings'."
        raise InputError(f"{layers=} is not possible; {advice}", layers=layers)
    return indices


def _parsed_layers(layers: str, count: int) -> list[int]:
    """Read the indices in a string; return [] if a part of it is not a number."""
    if layers == "embeddings":
        return [0]
    if layers == "all":
        return list(range(1, count + 1))
    indices = []
    for part in layers.split(","):
        if not part.strip().removeprefix("-").isdecimal():
            return []
        indices.append(int(part))
    return indices


def require_no_other(folder: str | Path, names: Iterable[str]) -> None:
    """Check that a folder to save a model in does not hold another model or a run.

    Parameters
    ----------
    folder : str or path
        The folder, which need not exist.
    names : iterable of str
        The names of files that the folder must not have.

    Raises
    ------
    InputError
        When it has one of them; the message names the first.
    """
    present = [name for name in names if (Path(folder) / name).exists()]
    if present:
        owner = "a pre-training run" if present[0] == PRETRAINING_FILE else "a fine-tuned model"
        what = f"'{folder}' holds {present[0]} of {owner}, which this would spoil"
        raise InputError(f"{what}; choose another folder.")


def _parts(batch: Batch) -> Iterator[tuple[Batch, slice]]:
    """Yield parts of a batch, of up to `BATCH_TOKENS` or one longer example, each with its rows."""
    ends = np.append(batch.begins, batch.T).tolist()
    first = 0
    while first < batch.E:
        limit = ends[first] + BATCH_TOKENS
        last = first + 1
        while last < batch.E and ends[last + 1] <= limit:
            last += 1
        rows = slice(ends[first], ends[last])
        yield batch.take(first, last), rows
        first = last


def _texts(inputs: Any) -> list[Any]:
    """Return texts or pairs as a list; [] if the inputs are something else."""
    is_pair = isinstance(inputs, tuple) and len(inputs) == 2
    is_pair = is_pair and all(isinstance(text, str) for text in inputs)
    if isinstance(inputs, str) or is_pair:
        return [inputs]
    if hasattr(inputs, "ids") or is_encoded(inputs):
        return []
    if isinstance(inputs, Mapping) or hasattr(inputs, "columns") or hasattr(inputs, "column_names"):
        raise InputError("inputs is a table; give one of its columns, such as table['text'].")
    if isinstance(inputs, set | frozenset):
        raise InputError("inputs is a set, which has no order; give a list.")
    if not isinstance(inputs, Iterable):
        return []
    items = list(inputs)
    return items if items and isinstance(items[0], str | tuple) else []


def _pieces(vocab: list[str], ids: list[int]) -> list[str]:
    """Return the pieces of some ids; an id above those of the vocabulary has no piece and is shown itself."""
    return [vocab[piece_id] if piece_id < len(vocab) else f"[id {piece_id}]" for piece_id in ids]


def _sequences(inputs: Any) -> Iterator[Sequence]:
    """Yield the sequences in the output of a tokenizer, minibert's or another library's."""
    is_batch = hasattr(inputs, "cu_seqlens")  # a BatchEncoding, which also has `ids`
    has_ids = hasattr(inputs, "ids") and not is_batch
    is_single = has_ids or is_encoded(inputs) or not isinstance(inputs, Iterable)
    encodings = [inputs] if is_single else inputs
    for encoding in encodings:
        if hasattr(encoding, "ids") and hasattr(encoding, "token_type_ids"):
            yield Sequence(np.atleast_1d(encoding.ids), np.atleast_1d(encoding.token_type_ids))
        elif hasattr(encoding, "ids") and hasattr(encoding, "type_ids"):  # from the library `tokenizers`
            yield sequence_of(encoding)
        elif is_encoded(encoding):
            yield from sequences_of(encoding)
        else:
            what = f"expected texts or encodings, found {type(encoding).__name__}"
            advice = "give strings, pairs of strings, a Batch, or the output of a tokenizer, with input_ids."
            raise InputError(f"inputs: {what}; {advice}")
