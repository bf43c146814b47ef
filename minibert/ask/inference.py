"""`Bert`, the object a user holds: from a folder to hidden states, attention maps and predictions."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from reprlib import repr as short
from typing import Any, Self

import numpy as np

from minibert import engines
from minibert.ask.encoded_inputs import is_encoded, sequence_of, sequences_of
from minibert.ask.gaps import BATCH_TOKENS, fill_texts
from minibert.base.errors import InputError, warn
from minibert.base.files import write_atomically
from minibert.base.model_names import folder_of
from minibert.base.terminal import some_of
from minibert.core import bert
from minibert.core.arrays import Array, Params
from minibert.core.batch import Batch, Sequence, whole_numbers
from minibert.core.config import BertConfig
from minibert.core.params import precision_for
from minibert.engines.runtime import runtime_of
from minibert.hub import fields_in, kind_in_config, load, save_hf
from minibert.hub.names import MASKED_LM
from minibert.hub.sentence_transformers import SentenceModules, module_files, read_modules
from minibert.hub.vocabularies import check_vocabulary, read_tokenizer
from minibert.model.params import PRETRAINING, Parameters
from minibert.tokenizer import Tokenizer

FINETUNED = ("task.json", "tagger.json", "finetune.json")  # beside a fine-tuned model, finished or not
RUN = "training.json"  # in the folder of a pre-training


def lay_out(ops: Any, params: Parameters, int8: bool = False) -> None:
    """Make parameters read-only, and have an engine lay out their matrices, the layers' as `int8` or not."""
    if int8 and not (ops.has_int8 and params.flat.dtype == np.float32):
        needed = "int8=True needs the engine cpp, weights in float32 and the instruction set avx512_bf16"
        raise InputError(f"{needed}; leave it out with {ops.name} in {params.flat.dtype} on this processor.")
    params.make_read_only()
    for name, weight in params.items():
        if weight.ndim == 2 and not name.startswith("embeddings."):
            ops.keep(weight, int8 and name.startswith("layers."))
    if params.head.kind == "pretraining":
        ops.keep((params["embeddings.word"] if params.decoder is None else params.decoder).T)  # the decoder


# x (n,H) -> (n,H)
def unit_rows(x: np.ndarray) -> np.ndarray:
    """Divide each row by its length, or by 1e-12 where that is more."""
    lengths = np.sqrt(np.sum(x * x, axis=-1, keepdims=True, dtype=np.float64))
    return (x / np.maximum(lengths, 1e-12)).astype(x.dtype)


@dataclass(frozen=True)
class Encoded:
    """What a BERT makes of S sequences of T tokens in all, end to end as in a `Batch`."""

    hidden_states: list[np.ndarray]  # of each layer asked for (T,H); of all: the embeddings, then L layers
    attentions: list[list[np.ndarray]] | None  # [layer][sequence] (A,n,n): row i is what token i attends to
    pooled: np.ndarray | None  # (S,H) tanh(W x + b), x of each [CLS] or, left to right, of the last token
    # that has seen all others; None without a trained pooler on the encoder
    cu_seqlens: np.ndarray  # (S+1,) sequence s is rows cu_seqlens[s]:cu_seqlens[s+1]
    tokens: list[str] | None = None  # the T pieces, where the model has a vocabulary
    modules: SentenceModules | None = None  # what makes the vectors, in a folder of sentence-transformers
    prompt_tokens: int = 0  # at the beginning of each sequence, of the prompt that such a folder has

    def __repr__(self) -> str:
        parts = [f"{len(self.hidden_states)} × {self.hidden_states[0].shape}"]
        if self.pooled is not None:
            parts.append(f"pooled {self.pooled.shape}")
        if self.attentions:
            heads = len(self.attentions[0][0])
            parts.append(f"attentions of {len(self.attentions)} layers with {heads} heads")
        return f"Encoded({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Show the lengths of all vectors, and the attention maps where they were asked for."""
        from minibert.ask.encoded import encoded_html

        return encoded_html(self)

    # -> (S,H)
    def vectors(self, pool: str | None = None, normalize: bool = False) -> np.ndarray:
        """Return one vector for each sequence, made of the last of `hidden_states`.

        Parameters
        ----------
        pool : str, optional; "cls", the first token; "mean" or "max" over all tokens, [CLS] and [SEP]
            included; "pooled", the pooler's output. Left out, the vectors are those of
            `SentenceTransformer.encode` where the model is from a folder of sentence-transformers, and the
            mean otherwise.
        normalize : bool, default False; make each of length 1, so that a product of two is their cosine.

        Returns
        -------
        array (S,H), or of the width that such a folder's modules give, float32 or float64.

        Raises
        ------
        InputError
            When there is no such pool, or no trained pooler to read.
        """
        last, begins = self.hidden_states[-1], self.cu_seqlens[:-1]
        if pool is None and self.modules is not None:
            vectors = self.modules.vectors(last, self.cu_seqlens, self.prompt_tokens)
            return unit_rows(vectors) if normalize else vectors
        pool = "mean" if pool is None else pool
        if pool == "cls":
            vectors = last[begins]
        elif pool == "mean":
            total = np.add.reduceat(last, begins, axis=0, dtype=np.float64)
            vectors = (total / np.diff(self.cu_seqlens)[:, None]).astype(last.dtype)
        elif pool == "max":
            vectors = np.maximum.reduceat(last, begins, axis=0)
        elif pool == "pooled" and self.pooled is not None:
            vectors = self.pooled
        else:
            text = "$pool is not possible; choose cls, mean, max, or pooled of a model with a trained pooler."
            raise InputError(text, pool=pool)
        return unit_rows(vectors) if normalize else vectors

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Raise InputError: an array of what was encoded could be several, and one is to be chosen."""
        what = "An Encoded is not an array, as it holds several"
        choices = "vectors() has one vector for each sequence, hidden_states[-1] one for each token"
        raise InputError(f"{what}; choose one: {choices}.")

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1  # sequences

    def __getitem__(self, number: int) -> "Encoded":
        """Return one of the sequences by itself, from the end where negative; its arrays are views."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"There is no sequence {number}, there are {len(self)}.")  # where iteration ends
        number %= len(self)
        begin, end = self.cu_seqlens[number : number + 2]
        return Encoded(
            hidden_states=[state[begin:end] for state in self.hidden_states],
            attentions=self.attentions and [[layer[number]] for layer in self.attentions],
            pooled=None if self.pooled is None else self.pooled[number : number + 1],
            cu_seqlens=np.array([0, end - begin], self.cu_seqlens.dtype),
            tokens=self.tokens and self.tokens[begin:end],
            modules=self.modules,
            prompt_tokens=self.prompt_tokens,
        )


class Bert:
    """BERT with its two pre-training heads (Devlin et al. 2019, section 3), to ask; nothing here trains.

    Wherever a method takes `inputs`, that is a text, a pair of texts as a tuple, or a list of either; what a
    `Tokenizer` returns, or one of `transformers`: a mapping with `input_ids` and, where rows are padded,
    `attention_mask`; or a `Batch`. Special tokens that are written out in a text, such as "[MASK]", are
    read as such. There is no dropout.

    It has no `predict`: `fill_mask` guesses words and `encode` gives vectors; classes, tags and
    answers are what `TextClassifier` and the other estimators learn to predict from such a model.

    A model can be copied and pickled. A copy shares the engine; an unpickled model has one of its own, which
    is made as the first one was: another process can compute with it. Raise InputError when the parameters
    belong to another configuration, or the vocabulary is larger than the model's.

    Parameters
    ----------
    config, params : the model's configuration, and its parameters.
    ops : the engine; the fastest there is when left out.
    tokenizer : its vocabulary, for texts as inputs; a model from a folder has the one there, if there is one.

    Attributes
    ----------
    missing : Hugging Face's names of what only has its initial value; `from_pretrained` says which.
    modules : how a folder of sentence-transformers has texts read, and what makes vectors of them; None for
        other folders, and settable to None, for vectors that are the mean of the last hidden states.

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
        self, config: BertConfig, params: Parameters, ops: Any = None, tokenizer: Tokenizer | None = None
    ) -> None:
        if params.config != config:
            raise InputError("params belong to another configuration than config; give params.config.")
        if tokenizer is not None:
            check_vocabulary(config, tokenizer)
        self.config = config
        self.params = params
        self.ops = engines.create() if ops is None else ops
        self._tokenizer, self._folder = tokenizer, ""  # where a tokenizer that is None is read from
        self.missing: tuple[str, ...] = ()
        self.modules: SentenceModules | None = None
        self._source = ""  # the folder of the modules
        self._kept: Any = None  # the tree of parameters, and the same where the engine computes

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": None}  # a copy places its own parameters

    def __repr__(self) -> str:
        size = f"{self.config.L} layers of {self.config.H}, {self.n_parameters / 1e6:.1f}M parameters"
        return f"Bert({size}, {self.ops.name})"

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, engine: str = "auto", *, dtype: Any = "float32", threads: int | None = None
    ) -> "Bert":
        """Load the folder of a run of minibert, or of a BERT in Hugging Face's or Google's format.

        Tensors of the pooler and the heads that are not in the folder have their initial values and are
        listed in `missing`. What is computed from them means nothing until they are trained: `pooled` is
        None without its pooler, and methods that read such a head warn. What a folder of
        sentence-transformers says of texts and vectors is read, and a warning says what of it is not done.
        Raise InputError when the folder does not hold a whole and sound BERT, or engine or dtype does not
        exist.

        Parameters
        ----------
        folder : has `config.json` and `model.safetensors` or `pytorch_model.bin`, or, for TensorFlow,
            `bert_config.json` and `bert_model.ckpt.*`; or `RUN@STEP`, a checkpoint that a run has kept.
        engine : the engine by name.
        dtype : in which to compute: "float32", "float64", "bfloat16" for matrix products and activations with
            everything else in float32, or "auto" for the faster. What comes out is float32 or float64.
        threads : of the engine; one for each core when left out.
        """
        if not (dtype is None or isinstance(dtype, str)):
            with suppress(TypeError, ValueError):  # which is no type of NumPy's; `create` refuses it
                dtype = np.dtype(dtype).name
        dtype = engines.quickest_dtype(engine) if dtype == "auto" else dtype
        ops = engines.create(engine, threads, dtype)
        config, params, report = load(folder, precision_for(dtype), PRETRAINING)
        model = cls(config, params, ops)
        model._folder = str(folder_of(folder))
        model.missing = report.missing
        if params.decoder is not None:  # with which it guesses
            model.missing = tuple(name for name in report.missing if not name.startswith(MASKED_LM))
        _warn_of_unknown_head(folder, report.unused)
        model.modules, model._source = read_modules(folder, config), str(folder)
        if model.modules is not None and (lacking := model.modules.not_done):
            advice = "vectors are not those of SentenceTransformer.encode"
            warn(f"{folder} is a folder of sentence-transformers, and {'; '.join(lacking)}: {advice}.")
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` (float32), which `transformers` loads as well.

        What was missing where the model is from is left out, so that nobody takes it for trained. The
        vocabulary is written too, if the model has one. Raise InputError where the folder holds a run or a
        fine-tuned model, whose other files would stay and fit no longer.
        """
        require_no_other(folder, (*FINETUNED, RUN))
        save_hf(folder, self.config, self.params, omit=self.missing)
        if self._tokenizer or self._folder:
            try:
                self.tokenizer.save_pretrained(folder, self.config.P)
            except InputError as error:
                warn(f"No vocabulary is written: {error}")
        if self.modules is not None:
            for name, data in module_files(self._source).items():
                write_atomically(Path(folder) / name, partial(_write, data=data))

    def optimize_for_inference(self, int8: bool = False) -> Self:
        """Make short texts fast, and the parameters read-only; return the model.

        The engine `cpp` lays every matrix out once as its products read it, where it would do so for each
        text: with few tokens that is most of the work. Results have the same bits. Matrices are in memory a
        second time: in float32 as large again, in bfloat16 half, with `int8` a quarter. Other engines gain
        nothing by it, and their results may differ by a rounding. To train, load the model again; a copy
        (`copy.deepcopy`, pickle) is as a model was before.

        `int8` quantizes the layers, not the heads: weights once, with a scale for each column, activations on
        the way, with a scale for each token. Hidden states change by a few percent. Raise InputError, and
        change nothing, where the engine or the processor can't.

        Examples
        --------
        >>> model = minibert.load("runs/books").optimize_for_inference()  # doctest: +SKIP
        """
        lay_out(self.ops, self.params, int8)
        return self

    @property
    def tokenizer(self) -> Tokenizer:
        """Its vocabulary, given or in its folder; raise InputError where it has none, or one too large."""
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

    def encode(self, inputs: Any, attentions: bool = False, layers: Any = None) -> Encoded:
        """Return hidden states and the pooled vectors.

        Raise InputError when the inputs are none of these, an id is outside the vocabulary or a sequence too
        long, or there is no such layer.

        Parameters
        ----------
        inputs : texts, encodings or a `Batch`, as above; any number of them.
        attentions : compute the attention maps as well.
        layers : which hidden states to keep: numbers, 0 for the embeddings and -1 for the last, or "all" for
            1 to L; None for every one: 4 (L+1) H bytes a token in float32, 40 KB for BERT base.
        """
        (batch, prompt_tokens), config, head = self._read(inputs), self.config, self.params.head
        kept = list(range(config.L + 1) if layers is None else layer_numbers(layers, config.L))
        needed = range(config.L + 1) if attentions else {*kept, config.L}
        states = dict(zip(sorted(needed), self._states(batch, sorted(needed)), strict=True))
        maps = [
            [np.asarray(one) for one in bert.attention_maps(self.ops, config, states[number], layer, batch)]
            for number, layer in enumerate(self.params.tree["layers"] if attentions else ())
        ]
        has_pooler = head.pooled and not head.lstm and not self._untrained("pooler")
        rows = batch.last_rows if config.is_decoder else batch.first_rows  # as in `heads`
        return Encoded(
            hidden_states=[states[number] for number in kept],
            attentions=maps if attentions else None,
            pooled=np.asarray(self._pooled(states[config.L], rows)) if has_pooler else None,
            cu_seqlens=batch.cu_seqlens.copy(),
            tokens=_pieces(self._tokenizer.vocab, batch.input_ids.tolist()) if self._tokenizer else None,
            modules=self.modules if kept[-1] == config.L else None,  # which are made for the last layer
            prompt_tokens=prompt_tokens,
        )

    # -> for each number (T,H)
    def hidden_states(self, inputs: Any, layers: str | int | Iterable[int]) -> list[np.ndarray]:
        """Return some hidden states, chosen as for `encode`; raise as it does."""
        return self._states(self._batch(inputs), layer_numbers(layers, self.config.L))

    # -> for each number (T,H)
    def _states(self, batch: Batch, numbers: Iterable[int]) -> list[np.ndarray]:
        """Return hidden states of a batch, some thousand tokens at a time."""
        runtime, static = runtime_of(self.ops), (self.config, tuple(numbers))
        whole: list[np.ndarray] = []
        for part, rows in _parts(batch):
            found = runtime.call(self.ops, bert.hidden_states, static, self._placed(), runtime.prepare(part))
            states = [runtime.in_order(state, part, "tokens") for state in found]
            if part.T == batch.T:
                return states
            whole = whole or [np.empty((batch.T, self.config.H), state.dtype) for state in states]
            for one, state in zip(whole, states, strict=True):
                one[rows] = state
        return whole

    def _placed(self) -> Params:
        """Return the parameters where the engine computes, placed anew when others have taken their place."""
        tree = self.params.tree
        if self._kept is None or self._kept[0] is not tree:
            self._kept = tree, runtime_of(self.ops).to_device(tree)
        return self._kept[1]

    # -> (len(rows), V)
    def masked_lm_logits(self, inputs: Any, rows: Any) -> np.ndarray:
        """Return scores of every piece of the vocabulary at `rows`, tokens counted through all sequences.

        Raise InputError when a row is none of the tokens, or the model has no heads of pre-training; warn
        where they were not trained.
        """
        batch = self._batch(inputs)
        rows = whole_numbers("rows", np.ravel(rows))
        if len(rows) and not (0 <= rows.min() and rows.max() < batch.T):
            what = f"rows from {rows.min()} to {rows.max()} are not all among the {batch.T} tokens"
            raise InputError(f"{what}; choose from 0 to {batch.T - 1}.")
        tree = self._pretrained("masked_lm_logits", "cls.predictions")
        last, word = self._states(batch, (self.config.L,))[0], tree["embeddings"]["word"]
        if self.params.decoder is not None:
            word = self.params.decoder
        logits, _ = self.ops.masked_lm_logits(last, rows, tree["mlm"], word, self.config)
        return np.asarray(logits)

    def fill_mask(
        self, text: str | list[str], top: int = 5, *, targets: Iterable[str] | None = None, pieces: int = 1
    ) -> list[Any]:
        """Guess what stands at each [MASK] of a text, or of each of a list; see `gaps.fill_texts`.

        Return for each [MASK] its guesses, the likeliest first, as pairs of a word and its probability; for a
        list of texts a list of these.

        Examples
        --------
        >>> model.fill_mask("Paris is the [MASK] of France.")  # doctest: +SKIP
        [[Guess(token='capital', probability=0.97), ...]]
        """
        is_one = isinstance(text, str) or not isinstance(text, Iterable)
        texts: list[Any] = [text] if is_one else list(text)
        found: list[Any] = fill_texts(self, texts, top, targets=targets, pieces=pieces)
        return found[0] if is_one else found

    # -> (S,2)
    def next_sentence_logits(self, inputs: Any) -> np.ndarray:
        """Return scores of IsNext (column 0) and NotNext (1); raise and warn as `masked_lm_logits` does."""
        batch = self._batch(inputs)
        nsp = self._pretrained("next_sentence_logits", "cls.seq_relationship", "pooler")["nsp"]
        pooled = self._pooled(self._states(batch, (self.config.L,))[0], batch.first_rows)
        return np.asarray(self.ops.linear(pooled, nsp["weight"], nsp["bias"])[0])

    def _pretrained(self, wanted: str, *read: str) -> Params:
        """Return the parameters if they have the heads of pre-training; warn where what is read is new."""
        kind = self.params.head.kind
        if kind != "pretraining":
            what = f"it has a head of kind {kind!r} in place of those of pre-training"
            advice = "use the model that it was fine-tuned from."
            raise InputError(f"{wanted}: this model was fine-tuned, {what}; {advice}")
        if lacking := ", ".join(name for part in read for name in self._untrained(part)):
            warn(f"{wanted}: the model came without {lacking}; train these before relying on what they give.")
        return self.params.tree

    def _untrained(self, part: str) -> list[str]:
        """Return names of the tensors of a part that only have their initial values."""
        return [name for name in self.missing if part in name]

    def _pooled(self, last_hidden_state: Array, rows: Array) -> Array:
        return self.ops.pooler(last_hidden_state, rows, self.params.tree["pooler"])[0]

    def _batch(self, inputs: Any) -> Batch:
        """Pack the inputs as a batch that fits the model."""
        return self._read(inputs)[0]

    def _read(self, inputs: Any) -> tuple[Batch, int]:
        """Pack the inputs as a batch that fits the model; say how many tokens of each are a prompt's."""
        inputs = list(inputs) if isinstance(inputs, Iterator) else inputs
        prompt_tokens = 0
        if texts := _texts(inputs):
            inputs, prompt_tokens = self._encodings(texts)
        batch = inputs if isinstance(inputs, Batch) else Batch.pack(list(_sequences(inputs)))
        batch.validate(self.config)
        return batch, prompt_tokens

    def _encodings(self, texts: list[Any]) -> tuple[Any, int]:
        """Tokenize texts or pairs, as a folder of sentence-transformers asks for where there is one.

        Texts that are too long are cut where such a folder says how long they may be, with a warning, and
        refused otherwise. Return the encodings, and how many tokens of each are the prompt's.
        """
        if self.modules is None:
            encoded, P = self.tokenizer(texts), self.config.P
            lengths = np.diff(encoded.cu_seqlens)
            if lengths.max() > P:
                first = int(np.argmax(lengths > P))
                long = f"Text {first:,}, {short(texts[first])}, has {lengths[first]:,} tokens"
                cut = f"shorten it, or give model.tokenizer(texts, max_length={P}) in place of texts."
                raise InputError(f"{long} with [CLS] and [SEP], and the model {P} positions; {cut}")
            return encoded, 0
        prompted = [with_prompt(self.modules.prompt, text) for text in texts]
        most = self.modules.max_length
        encoded = self.tokenizer(prompted, max_length=most)
        if many := int((encoded.n_cut > 0).sum()):
            have = "has" if many == 1 else "have"
            were = f"{many:,} of {len(texts):,} texts {have} more than the {most} tokens"
            warn(f"{were} that the model's folder reads, as its max_seq_length says; the ends were cut.")
        return encoded, prompt_tokens_of(self.tokenizer, self.modules)


def with_prompt(prompt: str, text: Any) -> Any:
    """Put a prompt before a text, or before the first of a pair.

    Parameters
    ----------
    prompt : str, "" for none.
    text : a text, or a pair as a tuple.

    Returns
    -------
    The text or pair with it.
    """
    if not prompt:
        return text
    return (prompt + text[0], *text[1:]) if isinstance(text, tuple) else prompt + text


def prompt_tokens_of(tokenizer: Tokenizer, modules: SentenceModules) -> int:
    """Count the tokens that a prompt takes at the beginning of a sequence, [CLS] included; 0 without one.

    Parameters
    ----------
    tokenizer : of the model.
    modules : which have the prompt.

    Returns
    -------
    int, at most what a sequence has room for.
    """
    if not modules.prompt:
        return 0
    length = len(tokenizer(modules.prompt).ids)
    return min(length, modules.max_length) - 1  # [SEP] is not the prompt's


def _warn_of_unknown_head(folder: str | Path, unused: Iterable[str]) -> None:
    """Warn where a model has a head of somebody's own class, which stays behind."""
    lost = [name for name in unused if not name.startswith("bert.")]
    if lost and kind_in_config(folder) is None and fields_in(folder).get("architectures"):
        names = ", ".join(map(str, fields_in(folder)["architectures"]))
        what = f"{folder} is a {names}, whose head ({some_of(lost)}) is not known here"
        warn(f"{what}: only its BERT is loaded, and what the head answers can't be asked.")


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def layer_numbers(layers: str | int | Iterable[int], count: int) -> tuple[int, ...]:
    """Return numbers of hidden states, from 0 for the embeddings to `count`.

    Examples
    --------
    >>> layer_numbers("-1,-2", 12), layer_numbers("embeddings", 12), layer_numbers("all", 3)
    ((12, 11), (0,), (1, 2, 3))
    """
    if isinstance(layers, str):
        named = {"embeddings": "0", "all": ",".join(map(str, range(1, count + 1)))}
        given = named.get(layers, layers).split(",")
        found = [int(one) for one in given if one.strip().removeprefix("-").isdecimal()]
        found = found if len(found) == len(given) else []
    else:
        listed = list(layers) if isinstance(layers, Iterable) else [layers]
        found = whole_numbers("layers", listed).tolist()
    numbers = tuple(number + count + 1 if number < 0 else number for number in found)
    if not numbers or len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(count + 1)):
        numbered = f"0 (the embeddings) to {count} or from -1 back to {-count - 1} with commas between"
        advice = f"give different numbers from {numbered}, all, or embeddings."
        raise InputError(f"$layers are not hidden states of this model; {advice}", layers=layers)
    return numbers


def require_no_other(folder: str | Path, names: Iterable[str]) -> None:
    """Raise InputError when a folder to save a model in holds one of the files of another model or a run."""
    if held := [name for name in names if (Path(folder) / name).exists()]:
        whose = "a pre-training run" if held[0] == RUN else "a fine-tuned model"
        raise InputError(
            f"{folder} holds {held[0]} of {whose}, which this would spoil; choose another folder."
        )


def _parts(batch: Batch) -> Iterator[tuple[Batch, slice]]:
    """Yield examples of up to `BATCH_TOKENS` in all, or a longer one alone, with their rows of the whole."""
    ends, first = np.append(batch.begins, batch.T), 0
    while first < batch.E:
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + BATCH_TOKENS, side="right")) - 1)
        yield batch.take(first, last), slice(int(ends[first]), int(ends[last]))
        first = last


def _texts(inputs: Any) -> list[Any]:
    """Return the texts or pairs that are given, as a list; empty where something else is."""
    is_pair = isinstance(inputs, tuple) and len(inputs) == 2
    if isinstance(inputs, str) or (is_pair and all(isinstance(one, str) for one in inputs)):
        return [inputs]
    if hasattr(inputs, "ids") or is_encoded(inputs):
        return []
    if isinstance(inputs, Mapping) or hasattr(inputs, "columns") or hasattr(inputs, "column_names"):
        raise InputError("inputs is a table; give one of its columns, such as table['text'].")
    if isinstance(inputs, set | frozenset):
        raise InputError("inputs is a set, which has no order; give a list.")
    listed = list(inputs) if isinstance(inputs, Iterable) else []
    return listed if listed and isinstance(listed[0], str | tuple) else []


def _pieces(vocab: list[str], ids: list[int]) -> list[str]:
    """Return the pieces of some ids; a model may have more embeddings than there are pieces."""
    return [vocab[number] if number < len(vocab) else f"[id {number}]" for number in ids]


def _sequences(inputs: Any) -> Iterator[Sequence]:
    """Yield the sequences of what a tokenizer has returned, ours or another one."""
    has_ids = hasattr(inputs, "ids") and not hasattr(
        inputs, "cu_seqlens"
    )  # which many encodings together have
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
