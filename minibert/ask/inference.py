"""`Bert`, the object a user holds: from a folder to hidden states, attention maps and predictions."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from reprlib import repr as short
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from minibert import engines
from minibert.ask.encoded_inputs import is_encoded, sequence_of, sequences_of
from minibert.ask.gaps import BATCH_TOKENS, Guesses, fill_texts
from minibert.base.errors import InputError, warn
from minibert.base.files import write_atomically
from minibert.base.foreign_names import answers_foreign_arguments
from minibert.base.model_names import folder_of, on_disk
from minibert.base.paths import path_of
from minibert.base.terminal import some_of
from minibert.base.texts import refuse_empty
from minibert.core import bert
from minibert.core.arrays import Array, Floats, Params
from minibert.core.batch import Batch, Sequence, whole_numbers
from minibert.core.config import BertConfig
from minibert.core.params import precision_for
from minibert.engines.runtime import runtime_of
from minibert.hub import fields_in, kind_in_config, load, save_hf
from minibert.hub.names import MASKED_LM
from minibert.hub.sentence_transformers import SentenceModules, module_files, read_modules
from minibert.hub.vocabularies import check_vocabulary, read_tokenizer
from minibert.model.params import PRETRAINING, Parameters
from minibert.model.pools import OF_STATES, POOLS
from minibert.tokenizer import Tokenizer

FINETUNED = ("task.json", "tagger.json", "finetune.json")  # beside a fine-tuned model, finished or not
RUN = "training.json"  # in the folder of a pre-training
# What comes back is called in transformers, and is here.
NAMES_HERE = {"last_hidden_state": "hidden_states[-1]", "pooler_output": "pooled"}


def lay_out(ops: Any, params: Parameters, int8: bool = False) -> None:
    """Make parameters read-only, and have an engine lay out their matrices.

    The embeddings stay as they are, but for the one that decodes: it is laid out transposed, (H,V).

    Parameters
    ----------
    ops : Ops
        The engine, which keeps each matrix as its products read it.
    params : Parameters
        All parameters of the model.
    int8 : bool, default False
        Quantize the matrices of the layers, not those of the heads.

    Raises
    ------
    InputError
        When `int8` is asked for and the engine, the type of the weights or the processor can't do it.
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
    """Divide each row by its length, or by 1e-12 where that is more.

    Parameters
    ----------
    x : array (n,H), float

    Returns
    -------
    array (n,H) of the type of `x`. The lengths are summed in float64.
    """
    lengths = np.sqrt(np.sum(x * x, axis=-1, keepdims=True, dtype=np.float64))
    return (x / np.maximum(lengths, 1e-12)).astype(x.dtype)


@dataclass(frozen=True)
class Encoded:
    """A BERT's vectors for S sequences of T tokens in all, end to end as in a `Batch`."""

    hidden_states: list[Floats]  # of each layer asked for (T,H); of all: the embeddings, then L layers
    attentions: list[list[Floats]] | None  # [layer][sequence] (A,n,n): row i is what token i attends to
    pooled: Floats | None  # (S,H) tanh(W x + b), x of each [CLS] or, left to right, of the last token
    # that has seen all others; None without a trained pooler on the encoder
    cu_seqlens: NDArray[np.int32]  # (S+1,) sequence s is rows cu_seqlens[s]:cu_seqlens[s+1]
    tokens: list[str] | None = None  # the T pieces, where the model has a vocabulary
    modules: SentenceModules | None = None  # what makes the vectors, in a folder of sentence-transformers
    prompt_tokens: int = 0  # at the beginning of each sequence, of the prompt that such a folder has

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
        """Show the lengths of all vectors, and the attention maps if there are any."""
        from minibert.ask.encoded import encoded_html

        return encoded_html(self)

    # -> (S,H)
    @answers_foreign_arguments
    def vectors(self, pool: str | None = None, normalize: bool = False) -> Floats:
        """Return one vector for each sequence, made of the last of `hidden_states`.

        Parameters
        ----------
        pool : str, optional
            "cls", the first token; "mean" or "max" over all tokens, [CLS] and [SEP] included; "pooled", the
            pooler's output. Left out, the vectors are those of `SentenceTransformer.encode` where the model
            is from a folder of sentence-transformers, and the mean otherwise.
        normalize : bool, default False
            Make each of length 1, so that a product of two is their cosine.

        Returns
        -------
        array (S,H), or of the width that such a folder's modules give, float32 or float64.

        Raises
        ------
        InputError
            When there is no such pool, or no trained pooler to read.
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
        """Make one vector of each sequence by the name of a pool."""
        if pool == "pooled" and self.pooled is not None:
            return self.pooled
        row = POOLS.get(pool)
        if row is not None and row.vectors is not None:
            return row.vectors(self.hidden_states[-1], self.cu_seqlens)
        names = ", ".join(OF_STATES)
        text = f"{pool=} is not possible; choose {names}, or pooled of a model with a trained pooler."
        raise InputError(text, pool=pool)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Raise InputError, since several arrays could be meant."""
        what = "An Encoded is not an array, as it holds several"
        choices = "vectors() has one vector for each sequence, hidden_states[-1] one for each token"
        raise InputError(f"{what}; choose one: {choices}.")

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1  # sequences

    def __getitem__(self, number: int) -> "Encoded":
        """Return one of the sequences, counted from the end if negative; its arrays are views."""
        if isinstance(number, str):
            instead = NAMES_HERE.get(number, "an attribute, such as hidden_states[-1]")
            raise InputError(f"An Encoded has no {number!r}; use {instead}.")
        if not -len(self) <= number < len(self):
            raise IndexError(f"There is no sequence {number}, there are {len(self)}.")  # where iteration ends
        number %= len(self)
        begin, end = self.cu_seqlens[number : number + 2]
        attentions = self.attentions
        if attentions:
            attentions = [[layer[number]] for layer in attentions]
        pooled = self.pooled
        if pooled is not None:
            pooled = pooled[number : number + 1]
        return Encoded(
            hidden_states=[state[begin:end] for state in self.hidden_states],
            attentions=attentions,
            pooled=pooled,
            cu_seqlens=np.array([0, end - begin], self.cu_seqlens.dtype),
            tokens=self.tokens and self.tokens[begin:end],
            modules=self.modules,
            prompt_tokens=self.prompt_tokens,
        )


class Bert:
    """BERT with its two pre-training heads (Devlin et al. 2019, section 3), for inference.

    Wherever a method takes `inputs`, that is a text, a pair of texts as a tuple, or a list of either; what a
    `Tokenizer` returns, or one of `transformers`: a mapping with `input_ids` and, where rows are padded,
    `attention_mask`; or a `Batch`. Special tokens that are written out in a text, such as "[MASK]", are
    read as such. There is no dropout.

    It has no `predict`: `fill_mask` guesses words and `encode` gives vectors; classes, tags and
    answers are what `TextClassifier` and the other estimators learn to predict from such a model.

    A model can be copied and pickled. A copy shares the engine; an unpickled model has one of its own, which
    is made as the first one was: another process can compute with it.

    Parameters
    ----------
    config : BertConfig
        Its sizes; see `BertConfig`.
    params : Parameters
        Its weights, of the same configuration.
    ops : Ops, optional
        The engine; the fastest there is when left out.
    tokenizer : Tokenizer, optional
        Its vocabulary, for texts as inputs; a model from a folder has the one there, if there is one.

    Attributes
    ----------
    missing : tuple of str
        Hugging Face's names of what only has its initial value; `from_pretrained` says which.
    modules : SentenceModules or None
        How a folder of sentence-transformers has texts read, and what makes vectors of them; None for other
        folders, and settable to None, for vectors that are the mean of the last hidden states.

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
        self._folder = ""  # where a tokenizer that is None is read from
        self.missing: tuple[str, ...] = ()
        self.modules: SentenceModules | None = None
        self._source = ""  # the folder of the modules
        self._kept: Any = None  # the tree of parameters, and the same where the engine computes

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": None}  # a copy places its own parameters

    def __repr__(self) -> str:
        millions = self.n_parameters / 1e6
        size = f"{self.config.L} layers of {self.config.H}, {millions:.1f}M parameters"
        return f"Bert({size}, {self.ops.name})"

    @classmethod
    @answers_foreign_arguments
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
        listed in `missing`. What is computed from them means nothing until they are trained: `pooled` is
        None without its pooler, and methods that read such a head warn. What a folder of
        sentence-transformers says of texts and vectors is read, and a warning says what of it is not done.

        Parameters
        ----------
        folder : str or path
            Has `config.json` and `model.safetensors` or `pytorch_model.bin`, or, for TensorFlow,
            `bert_config.json` and `bert_model.ckpt.*`; or "english", the model in the package; or a name on
            the Hub, of a model that Hugging Face's cache has; or `RUN@STEP`, a checkpoint that a run kept.
        engine : str, default "auto"
            The engine by name.
        dtype : str or a type of NumPy's, default "float32"
            In which to compute: "float32", "float64", "bfloat16" for matrix products and activations with
            everything else in float32, or "auto" for the faster. What comes out is float32 or float64.
        threads : int, optional
            Number of threads of the engine; one for each core when left out.

        Returns
        -------
        Bert
            With its vocabulary, read when first needed, where the folder has one.

        Raises
        ------
        InputError
            When the folder does not hold a whole and sound BERT, or engine or dtype does not exist.
        """
        if not (dtype is None or isinstance(dtype, str)):
            with suppress(TypeError, ValueError):  # which is not a type of NumPy's; `create` refuses it
                dtype = np.dtype(dtype).name
        if dtype == "auto":
            dtype = engines.quickest_dtype(engine)
        ops = engines.create(engine, threads, dtype)
        folder = on_disk(folder)
        config, params, report = load(folder, precision_for(dtype), PRETRAINING)
        model = cls(config, params, ops)
        model._folder = str(folder_of(folder))
        model.missing = report.missing
        if params.decoder is not None:  # with which it guesses
            model.missing = tuple(name for name in report.missing if not name.startswith(MASKED_LM))
        _warn_of_unknown_head(folder, report.unused)
        model.modules = read_modules(folder, config)
        model._source = str(folder)
        if model.modules is not None and (lacking := model.modules.not_done):
            advice = "vectors are not those of SentenceTransformer.encode"
            warn(f"'{folder}' is a folder of sentence-transformers, and {'; '.join(lacking)}: {advice}.")
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` (float32), which `transformers` loads as well.

        What was missing where the model is from is left out, so that nobody takes it for trained. The
        vocabulary is written too, if the model has one; a warning says where it can't be read. The modules of
        a folder of sentence-transformers are copied.

        Parameters
        ----------
        folder : str or path
            Where to write; made if it is not there.

        Raises
        ------
        InputError
            When the folder holds a run or a fine-tuned model, whose other files would stay and fit no longer.
        RunError
            When a file can't be written.
        """
        folder = path_of(folder)
        require_no_other(folder, (*FINETUNED, RUN))
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
        """Prepare fast inference on short texts, with read-only parameters; return the model.

        The engine `cpp` lays every matrix out once as its products read it, where it would do so for each
        text: with few tokens that is most of the work. Results have the same bits. Matrices are in memory a
        second time: in float32 as large again, in bfloat16 half, with `int8` a quarter. Other engines gain
        nothing by it, and their results may differ by a rounding. To train, load the model again; a copy
        (`copy.deepcopy`, pickle) is as a model was before.

        Parameters
        ----------
        int8 : bool, default False
            Quantize the layers, not the heads: weights once, with a scale for each column, activations on the
            way, with a scale for each token. Hidden states change by a few percent.

        Returns
        -------
        Bert
            The model itself.

        Raises
        ------
        InputError
            When the engine or the processor has no `int8`; nothing is changed then.

        Examples
        --------
        >>> model = minibert.load("runs/books").optimize_for_inference()  # doctest: +SKIP
        """
        lay_out(self.ops, self.params, int8)
        return self

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, given or read from the model's folder when first needed.

        Raises
        ------
        InputError
            When the model has none, or one that is larger than its embedding.
        """
        if self._tokenizer is None:
            if not self._folder:
                advice = "give it one, Bert(..., tokenizer=...), or encodings in place of texts."
                raise InputError(f"This model was made without a vocabulary; {advice}")
            lower_case = self.modules is not None and self.modules.lower_case
            self._tokenizer = read_tokenizer(self._folder, self.config, lower_case)
        return self._tokenizer

    @property
    def n_parameters(self) -> int:
        """Number of parameters, heads included, the tied embedding counted once."""
        return self.params.flat.size

    @answers_foreign_arguments
    def encode(self, inputs: Any, attentions: bool = False, layers: Any = None) -> Encoded:
        """Return hidden states and the pooled vectors.

        Parameters
        ----------
        inputs : texts, encodings or a `Batch`
            As the class describes them; any number of sequences.
        attentions : bool, default False
            Compute the attention maps as well.
        layers : int, iterable of int or str, optional
            Which hidden states to keep: numbers, 0 for the embeddings and -1 for the last, or "all" for 1 to
            L; None for every one: 4 (L+1) H bytes a token in float32, 40 KB for BERT base.

        Returns
        -------
        Encoded
            Of S sequences with T tokens in all.

        Raises
        ------
        InputError
            When the inputs are none of these or a text is empty, an id is outside the vocabulary or a
            sequence too long, there is no such layer, or `attentions` is not a bool.
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
            rows = batch.last_rows if self.config.is_decoder else batch.first_rows  # as in `heads`
            pooled = np.asarray(self._pooled(states[L], rows))
        tokens = None
        if self._tokenizer:
            tokens = _pieces(self._tokenizer.vocab, batch.input_ids.tolist())
        return Encoded(
            hidden_states=[states[number] for number in kept],
            attentions=maps,
            pooled=pooled,
            cu_seqlens=batch.cu_seqlens.copy(),
            tokens=tokens,
            modules=self.modules if kept[-1] == L else None,  # which are made for the last layer
            prompt_tokens=prompt_tokens,
        )

    # states[number] (T,H) -> [layer][sequence] (A,n,n)
    def _attention_maps(self, batch: Batch, states: Mapping[int, Floats]) -> list[list[Floats]]:
        """Return the attention maps of each layer, recomputed from its input."""
        maps = []
        for number, layer in enumerate(self.params.tree["layers"]):
            of_layer = bert.attention_maps(self.ops, self.config, states[number], layer, batch)
            maps.append([np.asarray(sequence) for sequence in of_layer])
        return maps

    # -> for each number (T,H)
    def hidden_states(self, inputs: Any, layers: str | int | Iterable[int]) -> list[Floats]:
        """Return some hidden states, chosen and checked as by `encode`.

        Parameters
        ----------
        inputs : texts, encodings or a `Batch`
            As the class describes them.
        layers : int, iterable of int or str
            Which: numbers, 0 for the embeddings and -1 for the last, or "all" for 1 to L.

        Returns
        -------
        list of array (T,H), one for each number, in the order of `layers`.
        """
        return self._states(self._batch(inputs), layer_numbers(layers, self.config.L))

    # -> for each number (T,H)
    def _states(self, batch: Batch, numbers: Iterable[int]) -> list[Floats]:
        """Return hidden states of a batch, some thousand tokens at a time."""
        runtime = runtime_of(self.ops)
        static = (self.config, tuple(numbers))
        whole: list[Floats] = []
        for part, rows in _parts(batch):
            prepared = runtime.prepare(part)
            params = self._placed()
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

    def _placed(self) -> Params:
        """Return the parameters where the engine computes; place them again after they were replaced."""
        tree = self.params.tree
        if self._kept is None or self._kept[0] is not tree:
            on_device = runtime_of(self.ops).to_device(tree)
            self._kept = tree, on_device
        return self._kept[1]

    # -> (len(rows), V)
    def masked_lm_logits(self, inputs: Any, rows: Any) -> Floats:
        """Return scores of every piece of the vocabulary at some tokens; warn where the head is untrained.

        Parameters
        ----------
        inputs : texts, encodings or a `Batch`
            As the class describes them.
        rows : int or array (M,) of int
            Which tokens, counted from 0 through all sequences.

        Returns
        -------
        array (M,V), the logits before the softmax (section 3.1, Task 1).

        Raises
        ------
        InputError
            When a row is none of the tokens, or the model has no heads of pre-training.
        """
        batch = self._batch(inputs)
        rows = whole_numbers("rows", np.ravel(rows))
        if len(rows) and not (0 <= rows.min() and rows.max() < batch.T):
            what = f"rows from {rows.min()} to {rows.max()} are not all among the {batch.T} tokens"
            raise InputError(f"{what}; choose from 0 to {batch.T - 1}.")
        tree = self._pretrained("masked_lm_logits", "cls.predictions")
        last = self._last_states(batch)
        decoder = self.params.decoder
        if decoder is None:  # it is tied
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
    @answers_foreign_arguments
    def fill_mask(
        self,
        text: str | list[str],
        top: int = 5,
        *,
        targets: Iterable[str] | None = None,
        pieces: int = 1,
    ) -> list[Guesses] | list[list[Guesses]]:
        """Guess what stands at each [MASK] of a text, or of each of a list; see `gaps.fill_texts`.

        Parameters
        ----------
        text : str or list of str
            With [MASK] written out wherever a word is wanted.
        top : int, default 5
            How many guesses for each.
        targets : iterable of str, optional
            Words that are asked about: the guesses are these, all of them. None: the whole vocabulary.
        pieces : int, default 1
            Most pieces of a guess.

        Returns
        -------
        list of list of Guess
            For each [MASK] its guesses, the likeliest first, as pairs of a word and its probability; for a
            list of texts a list of these.

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
        """Return scores of IsNext and NotNext; raise and warn as `masked_lm_logits` does.

        Parameters
        ----------
        inputs : texts, encodings or a `Batch`
            As the class describes them; each a pair.

        Returns
        -------
        array (S,2), the logits of IsNext (column 0) and NotNext (1) (section 3.1, Task 2).
        """
        batch = self._batch(inputs)
        tree = self._pretrained("next_sentence_logits", "cls.seq_relationship", "pooler")
        last = self._last_states(batch)
        pooled = self._pooled(last, batch.first_rows)
        head = tree["nsp"]
        logits, _ = self.ops.linear(pooled, head["weight"], head["bias"])
        return np.asarray(logits)

    def _pretrained(self, wanted: str, *read: str) -> Params:
        """Return the parameters if they have pre-training heads; warn if the needed one is untrained."""
        kind = self.params.head.kind
        if kind != "pretraining":
            what = f"it has a head of kind {kind!r} in place of those of pre-training"
            advice = "use the model that it was fine-tuned from."
            raise InputError(f"{wanted}: this model was fine-tuned, {what}; {advice}")
        lacking = [name for part in read for name in self._untrained(part)]
        if lacking:
            names = ", ".join(lacking)
            warn(f"{wanted}: the model came without {names}; train these before relying on what they give.")
        return self.params.tree

    def _untrained(self, part: str) -> list[str]:
        """Return the names of a part's untrained tensors."""
        return [name for name in self.missing if part in name]

    def _pooled(self, last_hidden_state: Array, rows: Array) -> Array:
        return self.ops.pooler(last_hidden_state, rows, self.params.tree["pooler"])[0]

    def _batch(self, inputs: Any) -> Batch:
        """Pack the inputs as a batch that fits the model."""
        return self._read(inputs)[0]

    def _read(self, inputs: Any) -> tuple[Batch, int]:
        """Pack the inputs as a batch that fits the model; also return the number of prompt tokens of each."""
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
            batch = Batch.pack(list(_sequences(inputs)))
        batch.validate(self.config)
        return batch, prompt_tokens

    def _encodings(self, texts: list[Any]) -> tuple[Any, int]:
        """Tokenize texts or pairs, as the model's folder of sentence-transformers asks for, if it is one.

        Texts that are too long are cut where such a folder says how long they may be, with a warning, and
        refused otherwise. What is asked is in the model's own markup: special tokens written out are one
        piece, also where data is read letter by letter, as the tokenizer's `split_special_tokens` says.
        Return the encodings, and how many tokens of each are the prompt's.
        """
        if self.modules is None:
            encoded = self.tokenizer(texts, special=True)
            P = self.config.P
            lengths = np.diff(encoded.cu_seqlens)
            if lengths.max() > P:
                first = int(np.argmax(lengths > P))
                long = f"Text {first:,}, {short(texts[first])}, has {lengths[first]:,} tokens"
                cut = f"shorten it, or give model.tokenizer(texts, max_length={P}) in place of texts."
                raise InputError(f"{long} with [CLS] and [SEP], and the model {P} positions; {cut}")
            return encoded, 0
        prompted = [with_prompt(self.modules.prompt, text) for text in texts]
        max_length = self.modules.max_length
        encoded = self.tokenizer(prompted, max_length=max_length, special=True)
        n_cut = int((encoded.n_cut > 0).sum())
        warn_of_cut_texts(n_cut, f"{max_length} tokens, the max_seq_length of the model's folder")
        return encoded, prompt_tokens_of(self.tokenizer, self.modules, special=True)


def warn_of_cut_texts(n_cut: int, limit: str) -> None:
    """Warn of texts that have lost their ends, if there are any.

    Parameters
    ----------
    n_cut : int
        How many.
    limit : str
        What they are longer than, such as "128 tokens".
    """
    if n_cut:
        texts = "1 text has" if n_cut == 1 else f"{n_cut:,} texts have"
        warn(f"{texts} more than {limit}; the ends were cut.")


def with_prompt(prompt: str, text: Any) -> Any:
    """Put a prompt before a text, or before the first of a pair.

    Parameters
    ----------
    prompt : str
        "" for none.
    text : str or tuple
        A text, or a pair as a tuple.

    Returns
    -------
    str or tuple
        The text or pair with it.
    """
    if not prompt:
        return text
    return (prompt + text[0], *text[1:]) if isinstance(text, tuple) else prompt + text


def prompt_tokens_of(
    tokenizer: Tokenizer,
    modules: SentenceModules,
    special: bool | None = None,
) -> int:
    """Count the tokens that a prompt takes at the beginning of a sequence, [CLS] included.

    Parameters
    ----------
    tokenizer : Tokenizer
        Tokenizer of the model.
    modules : SentenceModules
        Which have the prompt.
    special : bool, optional
        How the texts are read, as for `Tokenizer.encode_batch`.

    Returns
    -------
    int
        At most what a sequence has room for; 0 without a prompt.
    """
    if not modules.prompt:
        return 0
    length = len(tokenizer(modules.prompt, special=special).ids)
    return min(length, modules.max_length) - 1  # [SEP] is not the prompt's


def _warn_of_unknown_head(folder: str | Path, unused: Iterable[str]) -> None:
    """Warn of a head of an unknown class, which is not loaded."""
    of_head = [name for name in unused if not name.startswith("bert.")]
    if not of_head or kind_in_config(folder) is not None:
        return
    architectures = fields_in(folder).get("architectures")
    if architectures:
        names = ", ".join(map(str, architectures))
        what = f"'{folder}' is a {names}, whose head ({some_of(of_head)}) is not known here"
        warn(f"{what}: only its BERT is loaded, and what the head answers can't be asked.")


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def layer_numbers(layers: str | int | Iterable[int], count: int) -> tuple[int, ...]:
    """Return numbers of hidden states, from 0 for the embeddings to `count`.

    Parameters
    ----------
    layers : str, int or iterable of int
        "embeddings", "all" (1 to `count`), or numbers: in a string with commas between. A negative one counts
        from the end, -1 for the last.
    count : int
        The layers of the model, L.

    Returns
    -------
    tuple of int
        In the order that was given.

    Raises
    ------
    InputError
        When there is no number, one occurs twice, or there is no such hidden state.

    Examples
    --------
    >>> layer_numbers("-1,-2", 12), layer_numbers("embeddings", 12), layer_numbers("all", 3)
    ((12, 11), (0,), (1, 2, 3))
    """
    if isinstance(layers, str):
        given = _parsed_layers(layers, count)
    else:
        listed = list(layers) if isinstance(layers, Iterable) else [layers]
        given = whole_numbers("layers", listed).tolist()
    numbers = tuple(number + count + 1 if number < 0 else number for number in given)
    distinct = set(numbers)
    if not numbers or len(distinct) < len(numbers) or not distinct <= set(range(count + 1)):
        numbered = f"0 (the embeddings) to {count} or from -1 back to {-count - 1} with commas between"
        advice = f"give different numbers from {numbered}, all, or embeddings."
        raise InputError(f"{layers=} are not hidden states of this model; {advice}", layers=layers)
    return numbers


def _parsed_layers(layers: str, count: int) -> list[int]:
    """Read the numbers in a string; none where a part of it is not a number."""
    if layers == "embeddings":
        return [0]
    if layers == "all":
        return list(range(1, count + 1))
    numbers = []
    for part in layers.split(","):
        if not part.strip().removeprefix("-").isdecimal():
            return []
        numbers.append(int(part))
    return numbers


def require_no_other(folder: str | Path, names: Iterable[str]) -> None:
    """Check that a folder to save a model in holds none of the files of another model or a run.

    Parameters
    ----------
    folder : str or path
        There yet or not.
    names : iterable of str
        The files that it must not have.

    Raises
    ------
    InputError
        When it has one of them; the message names the first.
    """
    held = [name for name in names if (Path(folder) / name).exists()]
    if held:
        whose = "a pre-training run" if held[0] == RUN else "a fine-tuned model"
        raise InputError(
            f"'{folder}' holds {held[0]} of {whose}, which this would spoil; choose another folder."
        )


def _parts(batch: Batch) -> Iterator[tuple[Batch, slice]]:
    """Yield examples of up to `BATCH_TOKENS` in all, or a longer one alone, with their rows of the whole."""
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
    """Return the given texts or pairs as a list; empty if something else is given."""
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
    listed = list(inputs)
    return listed if listed and isinstance(listed[0], str | tuple) else []


def _pieces(vocab: list[str], ids: list[int]) -> list[str]:
    """Return the pieces of some ids; a model may have more embeddings than the vocabulary has pieces."""
    return [vocab[number] if number < len(vocab) else f"[id {number}]" for number in ids]


def _sequences(inputs: Any) -> Iterator[Sequence]:
    """Yield the sequences in the output of a tokenizer, minibert's or another library's."""
    is_many = hasattr(inputs, "cu_seqlens")  # encodings of several texts together
    has_ids = hasattr(inputs, "ids") and not is_many
    is_single = has_ids or is_encoded(inputs) or not isinstance(inputs, Iterable)
    for encoding in [inputs] if is_single else inputs:
        if hasattr(encoding, "ids") and hasattr(encoding, "token_type_ids"):
            yield Sequence(np.atleast_1d(encoding.ids), np.atleast_1d(encoding.token_type_ids))
        elif hasattr(encoding, "ids") and hasattr(encoding, "type_ids"):  # of the library `tokenizers`
            yield sequence_of(encoding)
        elif is_encoded(encoding):
            yield from sequences_of(encoding)
        else:
            what = f"expected texts or encodings, found {type(encoding).__name__}"
            advice = "give strings, pairs of strings, a Batch or what a tokenizer returns, with input_ids."
            raise InputError(f"inputs: {what}; {advice}")
