"""Hugging Face's BERT as an oracle: our weights and our batches in, its numbers laid out as ours.

Everything in float64, without dropout, with attention as plain matrix products ("eager"): the other
implementations of attention change the order of summation, and some cannot be asked for the maps.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from minibert.ask.inference import Encoded
from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from minibert.hub import to_hf
from minibert.model.params import Parameters

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
IGNORED = -100  # the label of a position that Hugging Face is not to predict


class Padded(NamedTuple):
    """A flat batch as Hugging Face takes it."""

    inputs: dict[str, torch.Tensor]  # input_ids token_type_ids attention_mask (S,n)
    labels: dict[str, torch.Tensor]  # labels (S,n), next_sentence_label (S,)
    real: np.ndarray  # (S,n) bool: which places hold tokens
    masked: np.ndarray  # (M,) the masked rows among the S n places


def model(config: BertConfig, params: Parameters) -> transformers.BertForPreTraining:
    """A `BertForPreTraining` with our weights."""
    theirs = transformers.BertForPreTraining._from_config(
        transformers.BertConfig(**config.to_dict()), attn_implementation="eager", dtype=torch.float64
    )
    state = {name: torch.tensor(value) for name, value in to_hf(params).items()}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert set(missing) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    assert not unexpected
    return theirs.eval()


def padded(batch: Batch) -> Padded:
    """The sequences as rows of one rectangle, and a mask that hides the padding."""
    lengths = np.diff(batch.cu_seqlens)
    real = np.arange(lengths.max()) < lengths[:, None]
    masked = np.flatnonzero(real)[batch.masked_rows]

    def lay_out(values: Any) -> torch.Tensor:
        rectangle = np.zeros(real.shape, np.int64)
        rectangle[real] = values
        return torch.tensor(rectangle)

    labels = np.full(real.size, IGNORED)
    labels[masked] = batch.masked_labels
    return Padded(
        inputs={
            "input_ids": lay_out(batch.input_ids),
            "token_type_ids": lay_out(batch.token_type_ids),
            "attention_mask": lay_out(1),
        },
        labels={
            "labels": torch.tensor(labels.reshape(real.shape)),
            "next_sentence_label": torch.tensor(batch.next_sentence_labels.astype(np.int64)),
        },
        real=real,
        masked=masked,
    )


def encode(theirs: transformers.BertModel, batch: Batch) -> Encoded:
    """Hidden states, attention maps and pooled vectors, without the padding."""
    inputs, _, real, _ = padded(batch)
    with torch.no_grad():
        out = theirs(**inputs, output_hidden_states=True, output_attentions=True)
    lengths = np.diff(batch.cu_seqlens)
    return Encoded(
        hidden_states=[state.numpy()[real] for state in out.hidden_states],
        attentions=[
            [one[:, :n, :n].numpy() for one, n in zip(maps, lengths, strict=True)] for maps in out.attentions
        ],
        pooled=out.pooler_output.numpy(),
        cu_seqlens=batch.cu_seqlens,
    )


def pooled_at(theirs: transformers.BertModel, last_hidden_state: Any, rows: Any) -> Any:
    """Their pooler on the last hidden states (T,H) of some rows, in place of the [CLS] that it reads."""
    with torch.no_grad():
        return theirs.pooler(torch.tensor(last_hidden_state[rows])[:, None]).numpy()


def logits(theirs: transformers.BertForPreTraining, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Of the masked-LM head (M,V), at the masked rows, and of the next-sentence head (S,2)."""
    inputs, _, real, masked = padded(batch)
    with torch.no_grad():
        out = theirs(**inputs)
    return out.prediction_logits.reshape(real.size, -1).numpy()[masked], out.seq_relationship_logits.numpy()


def loss_and_gradients(
    theirs: transformers.BertForPreTraining, batch: Batch
) -> tuple[float, dict[str, np.ndarray]]:
    """Hugging Face's own loss and, by torch autograd, its gradients; tied tensors once."""
    theirs.zero_grad()
    loss = _loss(theirs, batch)
    loss.backward()
    return loss.item(), {name: parameter.grad.numpy() for name, parameter in theirs.named_parameters()}


def _loss(theirs: transformers.BertForPreTraining, batch: Batch) -> torch.Tensor:
    inputs, labels, *_ = padded(batch)
    return theirs(**inputs, **labels).loss


def losses(
    theirs: transformers.BertForPreTraining, batches: list[Batch], *, peak: float, warmup: int
) -> list[float]:
    """The loss before each update by `torch.optim.AdamW` under Hugging Face's linear schedule.

    Clipped by hand: theirs adds 1e-6 to the norm.
    """
    groups = {0.01: [], 0.0: []}  # weight decay: not on LayerNorms and biases
    for name, parameter in theirs.named_parameters():
        groups[0.0 if "LayerNorm" in name or name.endswith("bias") else 0.01].append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": members, "weight_decay": decay} for decay, members in groups.items()], lr=peak, eps=1e-6
    )
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, len(batches))
    found = []
    for batch in batches:
        optimizer.zero_grad()
        loss = _loss(theirs, batch)
        loss.backward()
        norm = float(sum((p.grad * p.grad).sum() for p in theirs.parameters())) ** 0.5
        for parameter in theirs.parameters():
            parameter.grad *= min(1.0, 1.0 / norm)
        optimizer.step()
        schedule.step()
        found.append(loss.item())
    return found
