"""`Bert`, the object a user holds: from a folder to hidden states, attention maps and predictions."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minibert import backends, bert
from minibert.batch import Batch, Sequence
from minibert.config import BertConfig
from minibert.errors import InputError
from minibert.hub import load, save_hf
from minibert.params import PRETRAINING, Parameters, precision_for


@dataclass(frozen=True)
class Encoded:
    """What a BERT makes of S sequences of T tokens in all, end to end as in a `Batch`."""

    hidden_states: list[np.ndarray]  # L+1 of (T,H): behind the embeddings, then behind each layer
    attentions: list[list[np.ndarray]] | None  # [layer][sequence] (A,n,n): row i is what token i attends to
    pooled: np.ndarray | None  # (S,H) tanh(W x + b) of each [CLS]; None without a pooler on the encoder
    cu_seqlens: np.ndarray  # (S+1,) sequence s is rows cu_seqlens[s]:cu_seqlens[s+1]

    def sequence(self, number: int) -> "Encoded":
        """One of the sequences by itself; its arrays are views."""
        S = len(self.cu_seqlens) - 1
        if not 0 <= number < S:
            raise InputError(f"number={number} is not one of the {S} sequences; count from 0.")
        begin, end = self.cu_seqlens[number : number + 2]
        return Encoded(
            hidden_states=[state[begin:end] for state in self.hidden_states],
            attentions=self.attentions and [[layer[number]] for layer in self.attentions],
            pooled=None if self.pooled is None else self.pooled[number : number + 1],
            cu_seqlens=np.array([0, end - begin], self.cu_seqlens.dtype),
        )


class Bert:
    """BERT with its two pre-training heads (Devlin et al. 2019, section 3), for using; nothing here trains.

    Wherever a method takes `inputs`, that is a `Batch`, or what a `Tokenizer` returns: one encoding, a list
    of them, or those of `encode_batch`. There is no dropout.

    A model can be copied and pickled. A copy shares the engine; an unpickled model has one of its own, which
    is made as the first one was: another process can compute with it.

    Parameters
    ----------
    config : the model's configuration.
    params : its parameters.
    ops : the engine; the fastest there is when left out.

    Attributes
    ----------
    config, params, ops : as given.
    missing : Hugging Face's names of what only has its initial value; `from_pretrained` says which.

    Raises
    ------
    InputError
        When the parameters belong to another configuration.

    Examples
    --------
    >>> from minibert.params import initialise
    >>> config = BertConfig.from_size("tiny", vocab_size=100)
    >>> model = Bert(config, initialise(config, seed=0))
    >>> encoded = model.encode(Batch.pack([Sequence([2, 7, 3], [0, 0, 0])]))
    >>> len(encoded.hidden_states), encoded.hidden_states[-1].shape
    (3, (3, 128))
    """

    def __init__(self, config: BertConfig, params: Parameters, ops: Any = None) -> None:
        if params.config != config:
            raise InputError("params belong to another configuration than config; give params.config.")
        self.config = config
        self.params = params
        self.ops = backends.create() if ops is None else ops
        self.missing: tuple[str, ...] = ()
        self._kept: Any = None  # the tree of parameters, and the same where the engine computes

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": None}  # a copy places its own parameters

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        backend: str = "auto",
        dtype: Any = "float32",
        threads: int | None = None,
    ) -> "Bert":
        """Load the folder of a run of minibert, or of a BERT in Hugging Face's or Google's format.

        A warning says which tensors of the pooler and the heads are not in the folder; these have their
        initial values, and what is computed from them means nothing until they are trained.

        Parameters
        ----------
        folder : has `config.json` and `model.safetensors` or `pytorch_model.bin`, or, for TensorFlow,
            `bert_config.json` and `bert_model.ckpt.*`.
        backend : the engine by name.
        dtype : in which to compute: "float32", "float64", or "bfloat16" for matrix products and activations
            with everything else in float32. What comes out is float32 or float64.
        threads : of the engine; one for each core when left out.

        Raises
        ------
        InputError
            When the folder does not hold a whole and sound BERT, or engine or dtype does not exist.
        """
        dtype = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        ops = backends.create(backend, threads, dtype)
        config, params, report = load(folder, precision_for(dtype), PRETRAINING)
        if report.missing:
            lacking = ", ".join(report.missing)
            warnings.warn(f"{folder} lacks {lacking}; train these before relying on them.", stacklevel=2)
        model = cls(config, params, ops)
        model.missing = report.missing
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` (float32), which `transformers` loads as well.

        What was missing where the model is from is left out, so that nobody takes it for trained. The
        vocabulary is the tokenizer's to write: `Tokenizer.save_pretrained`.
        """
        save_hf(folder, self.config, self.params, omit=self.missing)

    @property
    def n_parameters(self) -> int:
        """Number of parameters, heads included, the tied embedding counted once."""
        return self.params.flat.size

    def encode(self, inputs: Any, attentions: bool = False) -> Encoded:
        """Every hidden state and the pooled vectors.

        Parameters
        ----------
        inputs : a `Batch`, an encoding or a list of encodings.
        attentions : compute the attention maps as well.

        Raises
        ------
        InputError
            When the inputs are none of these, an id is outside the vocabulary or a sequence too long.
        """
        batch = self._batch(inputs)
        head = self.params.head
        states = self._states(batch, range(self.config.L + 1))
        maps = [
            [np.asarray(one) for one in bert.attention_maps(self.ops, self.config, state, layer, batch)]
            for state, layer in zip(states, self.params.tree["layers"] if attentions else (), strict=False)
        ]
        return Encoded(
            hidden_states=states,
            attentions=maps if attentions else None,
            pooled=np.asarray(self._pooled(states[-1], batch)) if head.pooled and not head.lstm else None,
            cu_seqlens=batch.cu_seqlens.copy(),
        )

    # -> for each number (T,H)
    def hidden_states(self, inputs: Any, numbers: Iterable[int]) -> list[np.ndarray]:
        """Some of the hidden states: 0 is behind the embeddings, n behind the n-th layer.

        Raises
        ------
        InputError
            When there is no such number, or as in `encode`.
        """
        wanted, L = _whole_numbers("numbers", list(numbers)).tolist(), self.config.L
        if not wanted or not 0 <= min(wanted) <= max(wanted) <= L:
            raise InputError(
                f"numbers={wanted} are not hidden states of this model; choose from 0 (embeddings) to {L}."
            )
        return self._states(self._batch(inputs), wanted)

    def _states(self, batch: Batch, numbers: Iterable[int]) -> list[np.ndarray]:
        static = (self.config, tuple(numbers))
        found = self.ops.call(bert.hidden_states, static, self._placed(), self.ops.prepare(batch))
        return [self.ops.restored(state, batch, "tokens") for state in found]

    def _placed(self) -> dict[str, Any]:
        """The parameters where the engine computes, placed anew when others have taken their place."""
        tree = self.params.tree
        if self._kept is None or self._kept[0] is not tree:
            self._kept = tree, self.ops.place(tree)
        return self._kept[1]

    # -> (len(rows), V)
    def masked_lm_logits(self, inputs: Any, rows: Any) -> np.ndarray:
        """Scores of every piece of the vocabulary at some tokens.

        Parameters
        ----------
        inputs : a `Batch`, an encoding or a list of encodings.
        rows : which tokens, counted through all sequences end to end.
        """
        batch = self._batch(inputs)
        rows = _whole_numbers("rows", rows)
        if len(rows) and not (0 <= rows.min() and rows.max() < batch.T):
            raise InputError(
                f"rows from {rows.min()} to {rows.max()} are not all among the {batch.T} tokens; "
                f"choose from 0 to {batch.T - 1}."
            )
        tree = self._pretrained("masked_lm_logits")
        logits, _ = self.ops.masked_lm_logits(
            self._last_hidden_state(batch), rows, tree["mlm"], tree["embeddings"]["word"], self.config
        )
        return np.asarray(logits)

    # -> (S,2)
    def next_sentence_logits(self, inputs: Any) -> np.ndarray:
        """Scores of IsNext (column 0) and NotNext (column 1) for each sequence."""
        batch = self._batch(inputs)
        nsp = self._pretrained("next_sentence_logits")["nsp"]
        pooled = self._pooled(self._last_hidden_state(batch), batch)
        return np.asarray(self.ops.linear(pooled, nsp["weight"], nsp["bias"])[0])

    def _pretrained(self, wanted: str) -> dict[str, Any]:
        """The tree of parameters, if the heads of pre-training are in it."""
        kind = self.params.head.kind
        if kind != "pretraining":
            raise InputError(
                f"{wanted}: this model was fine-tuned, it has a head of kind {kind!r} in place of those of "
                "pre-training; use the model that it was fine-tuned from."
            )
        return self.params.tree

    def _last_hidden_state(self, batch: Batch) -> Any:
        return self._states(batch, (self.config.L,))[0]

    def _pooled(self, last_hidden_state: Any, batch: Batch) -> Any:
        return self.ops.pooler(last_hidden_state, batch.first_rows, self.params.tree["pooler"])[0]

    def _batch(self, inputs: Any) -> Batch:
        """The inputs as a batch that fits the model."""
        batch = inputs if isinstance(inputs, Batch) else Batch.pack(_sequences(inputs))
        batch.validate(self.config)
        return batch


def _sequences(inputs: Any) -> list[Sequence]:
    if hasattr(inputs, "ids") and not hasattr(inputs, "cu_seqlens"):  # which a BatchEncoding has
        inputs = [inputs]
    encodings = list(inputs) if isinstance(inputs, Iterable) else [inputs]
    for encoding in encodings:
        if not hasattr(encoding, "ids") or not hasattr(encoding, "token_type_ids"):
            raise InputError(
                f"inputs: expected encodings, found {type(encoding).__name__}; "
                "give a Batch or what a Tokenizer returns, as in model.encode(tokenizer(text))."
            )
    return [_sequence(encoding) for encoding in encodings]


def _sequence(encoding: Any) -> Sequence:
    ids = _whole_numbers("ids", encoding.ids)
    token_type_ids = _whole_numbers("token_type_ids", encoding.token_type_ids)
    if len(ids) != len(token_type_ids):
        raise InputError(f"{len(ids)} ids come with {len(token_type_ids)} token_type_ids; give as many.")
    return Sequence(ids, token_type_ids)


def _whole_numbers(name: str, values: Any) -> np.ndarray:
    """(n,) int32, if that is what the values are."""
    given = np.asarray(values).reshape(-1)
    with np.errstate(invalid="ignore"):
        numbers = given.astype(np.int32) if given.dtype.kind in "iuf" else None
    if numbers is None or not np.array_equal(numbers, given):
        raise InputError(f"{name}={values!r} are not all whole numbers of at most 32 bits; check them.")
    return numbers
