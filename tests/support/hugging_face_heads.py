"""Hugging Face's fine-tuning models as oracles: our weights and our batches in, its numbers laid out as ours.

Everything in float64, without dropout, with attention as plain matrix products, as in `hugging_face.py`.
"""

import hugging_face
import numpy as np
import torch
import transformers

from minibert.model.batch import TaskBatch
from minibert.model.params import Parameters

KINDS = {
    "classify": transformers.BertForSequenceClassification,
    "multilabel": transformers.BertForSequenceClassification,
    "regress": transformers.BertForSequenceClassification,
    "choice": transformers.BertForMultipleChoice,
    "span": transformers.BertForQuestionAnswering,
    "tag": transformers.BertForTokenClassification,
}
OUTER = {
    "embeddings.word": "embeddings.word_embeddings.weight",
    "embeddings.position": "embeddings.position_embeddings.weight",
    "embeddings.segment": "embeddings.token_type_embeddings.weight",
    "embeddings.gamma": "embeddings.LayerNorm.weight",
    "embeddings.beta": "embeddings.LayerNorm.bias",
    "pooler.weight": "pooler.dense.weight",
    "pooler.bias": "pooler.dense.bias",
}
LAYER = {
    "attention.output_weight": "attention.output.dense.weight",
    "attention.output_bias": "attention.output.dense.bias",
    "attention.gamma": "attention.output.LayerNorm.weight",
    "attention.beta": "attention.output.LayerNorm.bias",
    "feed_forward.in_weight": "intermediate.dense.weight",
    "feed_forward.in_bias": "intermediate.dense.bias",
    "feed_forward.out_weight": "output.dense.weight",
    "feed_forward.out_bias": "output.dense.bias",
    "feed_forward.gamma": "output.LayerNorm.weight",
    "feed_forward.beta": "output.LayerNorm.bias",
}


def named(params: Parameters) -> dict[str, np.ndarray]:
    """Views of our parameters (or gradients) by Hugging Face's names, turned to its layout."""
    found = {}
    for name, value in params.items():
        first, *rest = name.split(".")
        turned = value.T if name.endswith("weight") else value
        if first == "head":
            layer = "qa_outputs" if params.head.kind == "span" else "classifier"
            found[f"{layer}.{rest[0]}"] = turned
        elif first != "layers":
            found[f"bert.{OUTER[name]}"] = turned
        elif rest[-1].startswith("qkv_"):
            path, last = f"bert.encoder.layer.{rest[0]}.attention.self", rest[-1].removeprefix("qkv_")
            parts = np.split(turned, 3)
            for part, one in zip(("query", "key", "value"), parts, strict=True):
                found[f"{path}.{part}.{last}"] = one
        else:
            found[f"bert.encoder.layer.{rest[0]}.{LAYER['.'.join(rest[1:])]}"] = turned
    return found


def take_over(params: Parameters, state: dict[str, torch.Tensor]) -> None:
    """Fill our parameters, in place, with those of a state of theirs that it has; the others stay."""
    for name, view in named(params).items():
        if name in state:
            view[...] = state[name].numpy()


def model(params: Parameters) -> transformers.PreTrainedModel:
    """The model of Hugging Face's for this head, with our weights."""
    values = params.config.to_dict() | {"num_labels": params.head.outputs}
    problems = {"regress": "regression", "multilabel": "multi_label_classification"}
    if params.head.kind in problems:
        values["problem_type"] = problems[params.head.kind]
    theirs = KINDS[params.head.kind]._from_config(
        transformers.BertConfig(**values), attn_implementation="eager", dtype=torch.float64
    )
    theirs.load_state_dict({name: torch.tensor(value) for name, value in named(params).items()})
    return theirs.eval()


def forward(
    theirs: transformers.PreTrainedModel, batch: TaskBatch, kind: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Their own loss, and their logits laid out as ours."""
    if kind == "span":
        return _spans(theirs, batch)
    inputs, _, real, _ = hugging_face.padded(batch)
    labels = torch.tensor(batch.labels)
    if kind == "choice":
        inputs = {name: one.reshape(-1, batch.choices, one.shape[1]) for name, one in inputs.items()}
        out = theirs(**inputs, labels=labels.long())
        return out.loss, out.logits.reshape(-1, 1)
    if kind == "tag":
        rows = np.flatnonzero(real)[batch.label_rows]  # among the places of the rectangle
        places = torch.full((real.size,), hugging_face.IGNORED)
        places[rows] = labels.long()
        out = theirs(**inputs, labels=places.reshape(real.shape))
        return out.loss, out.logits.reshape(real.size, -1)[rows]
    out = theirs(**inputs, labels=labels.long() if kind == "classify" else labels)
    return out.loss, out.logits


def _spans(theirs: transformers.PreTrainedModel, batch: TaskBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequence by sequence: in one rectangle, their softmax counts the padding among the tokens."""
    losses, logits = [], []
    for part in batch.split(batch.E):
        inputs, *_ = hugging_face.padded(part)
        starts, ends = torch.tensor(part.labels).long().T
        out = theirs(**inputs, start_positions=starts, end_positions=ends)
        losses.append(out.loss / batch.E)
        logits.append(torch.stack([out.start_logits[0], out.end_logits[0]], dim=1))
    return sum(losses), torch.cat(logits)


def loss_and_gradients(
    theirs: transformers.PreTrainedModel, batch: TaskBatch, kind: str
) -> tuple[float, np.ndarray, dict[str, np.ndarray]]:
    """Loss, logits, and by torch autograd every gradient."""
    theirs.zero_grad()
    loss, logits = forward(theirs, batch, kind)
    loss.backward()
    grads = {name: parameter.grad.numpy() for name, parameter in theirs.named_parameters()}
    return loss.item(), logits.detach().numpy(), grads


def logits_of_training(
    theirs: transformers.PreTrainedModel, batches: list[TaskBatch], kind: str, *, peak: float, warmup: int
) -> tuple[list[np.ndarray], list[float]]:
    """Logits and loss before each update by `torch.optim.AdamW` under Hugging Face's linear schedule.

    Clipped by hand: theirs adds 1e-6 to the norm.
    """
    groups: dict[float, list] = {0.01: [], 0.0: []}  # weight decay: not on LayerNorms and biases
    for name, parameter in theirs.named_parameters():
        groups[0.0 if "LayerNorm" in name or name.endswith("bias") else 0.01].append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": members, "weight_decay": decay} for decay, members in groups.items()], lr=peak, eps=1e-6
    )
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, len(batches))
    found, losses = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss, logits = forward(theirs, batch, kind)
        loss.backward()
        norm = float(sum((p.grad * p.grad).sum() for p in theirs.parameters())) ** 0.5
        for parameter in theirs.parameters():
            parameter.grad *= min(1.0, 1.0 / norm)
        optimizer.step()
        schedule.step()
        found.append(logits.detach().numpy())
        losses.append(loss.item())
    return found, losses
