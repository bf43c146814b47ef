"""Pre-training steps in PyTorch: Hugging Face's model as published, and a BERT tuned for speed."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
import transformers

from minibert import engines
from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from minibert.hub import to_hf
from minibert.model.params import Parameters
from peers.schedule import BETAS, CLIP_NORM, EPS, RATE, WEIGHT_DECAY, TrainingStep
from peers.work import IGNORED, Rectangle

Named = dict[str, torch.nn.Parameter]


class OnTheWay(NamedTuple):
    """Loss and norm of a step, copied from a GPU behind it: who reads them waits for no later step."""

    figures: torch.Tensor
    copied: torch.cuda.Event

    def read(self) -> TrainingStep:
        self.copied.synchronize()
        return TrainingStep(*self.figures.tolist())


def _step(loss: torch.Tensor, norm: torch.Tensor) -> TrainingStep | OnTheWay:
    figures = torch.stack([loss.detach(), norm])
    if figures.device.type == "cpu":
        return TrainingStep(*figures.tolist())
    here, copied = torch.empty(2, dtype=figures.dtype, pin_memory=True), torch.cuda.Event()
    here.copy_(figures, non_blocking=True)
    copied.record()
    return OnTheWay(here, copied)


class PyTorchStep:
    """Forward, backward, clipping and fused AdamW around a loss that subclasses have.

    Parameters
    ----------
    decayed, others : parameters with and without weight decay.
    dtype : bfloat16 is autocast: float32 weights, matrix products in bfloat16.
    device : "cpu" or "cuda", where the parameters are.
    """

    def __init__(self, decayed: list, others: list, threads: int, dtype: str, device: str) -> None:
        engines.keep_freed_memory()
        torch.set_num_threads(threads)
        self._dtype, self._device = dtype, device
        self._parameters = [*decayed, *others]
        groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPS, fused=True)

    def loss(self) -> torch.Tensor:
        raise NotImplementedError

    def set_rate(self, rate: float) -> None:
        """The learning rate of the steps to come."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def run(self) -> TrainingStep | OnTheWay:
        self._optimizer.zero_grad(set_to_none=True)
        with precision(self._dtype, self._device):
            loss = self.loss()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, CLIP_NORM)
        self._optimizer.step()
        return _step(loss, norm)

    def facts(self) -> dict[str, Any]:
        """Of a GPU: what it is, how fast it multiplies at best, what it had in use at most."""
        if self._device == "cpu":
            return {}
        peak = torch.cuda.max_memory_allocated()
        return {
            "device": torch.cuda.get_device_name(),
            "device_peak_mb": peak / 1e6,
            "matmul_gflops": matmul_rate(getattr(torch, self._dtype)),
        }


def precision(dtype: str, device: str = "cpu") -> AbstractContextManager:
    return torch.autocast(device, dtype=torch.bfloat16) if dtype == "bfloat16" else nullcontext()


def matmul_rate(dtype: torch.dtype, side: int = 8192, times: int = 20) -> float:
    """GFLOP/s of large square products on a GPU."""
    a, b = (torch.randn(side, side, device="cuda", dtype=dtype) for _ in range(2))
    quickest = float("inf")
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(times):
            a @ b
        end.record()
        torch.cuda.synchronize()
        quickest = min(quickest, begin.elapsed_time(end) / 1e3 / times)
    return 2 * side**3 / quickest / 1e9


class HuggingFace(PyTorchStep):
    """`BertForPreTraining` as it is: vocabulary scores for every position, sequences padded."""

    def __init__(
        self,
        config: BertConfig,
        batch: Batch,
        flat: np.ndarray,
        threads: int,
        dtype: str,
        device: str = "cpu",
    ) -> None:
        transformers.utils.logging.disable_progress_bar()
        self.model = transformers.BertForPreTraining(transformers.BertConfig(**config.to_dict()))
        load_weights(self.model, config, flat)
        self.model.train().to(device)
        split: dict[bool, list] = {True: [], False: []}
        for name, parameter in self.model.named_parameters():
            split["LayerNorm" not in name and not name.endswith("bias")].append(parameter)
        self._padded = Rectangle.of(batch)
        self._inputs = {name: value.to(device) for name, value in padded_inputs(self._padded).items()}
        super().__init__(split[True], split[False], threads, dtype, device)

    def loss(self) -> torch.Tensor:
        if "next_sentence_label" in self._inputs:
            return self.model(**self._inputs).loss
        # What BertForMaskedLM computes; BertForPreTraining has no loss without next sentences. Their weights
        # get gradients of zero, not none: the optimizer counts the step for them, as minibert's does.
        inputs = {name: value for name, value in self._inputs.items() if name != "labels"}
        found = self.model(**inputs)
        scores, labels = found.prediction_logits.flatten(0, 1), self._inputs["labels"].flatten()
        return F.cross_entropy(scores, labels, ignore_index=IGNORED) + 0 * found.seq_relationship_logits.sum()

    def run_on(self, inputs: dict[str, torch.Tensor], rate: float) -> TrainingStep | OnTheWay:
        """A step on another batch, at this learning rate."""
        self._inputs = inputs
        self.set_rate(rate)
        return self.run()


class HuggingFaceTuned(HuggingFace):
    """Their BERT with what speeds it up: compiled, vocabulary scores of masked rows only.

    Attention is scaled_dot_product_attention, which is what their model takes by itself.
    """

    def __init__(self, *arguments: Any, compiled: bool = True, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._masked = torch.from_numpy(self._padded.masked).to(self._device)
        self._labels = torch.from_numpy(self._padded.masked_labels).to(self._device)
        if not self._padded.has_padding:
            self._inputs["attention_mask"] = None
        self._chosen = torch.compile(self._masked_loss, fullgraph=True) if compiled else self._masked_loss

    def loss(self) -> torch.Tensor:
        return self._chosen(self._inputs, self._masked, self._labels)

    def _masked_loss(self, inputs: dict, masked: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        found = self.model.bert(
            inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            token_type_ids=inputs["token_type_ids"],
        )
        rows = found.last_hidden_state.flatten(0, 1).index_select(0, masked)
        scores = self.model.cls.predictions(rows).float()
        asked = self.model.cls.seq_relationship(found.pooler_output).float()
        return F.cross_entropy(scores, labels) + F.cross_entropy(asked, inputs["next_sentence_label"])


def padded_inputs(padded: Rectangle) -> dict[str, torch.Tensor]:
    """A batch as Hugging Face's model takes it; one without pairs has no label of them."""
    inputs = {
        "input_ids": torch.from_numpy(padded.input_ids),
        "token_type_ids": torch.from_numpy(padded.token_type_ids),
        "attention_mask": torch.from_numpy(padded.real.astype(np.int64)),
        "labels": torch.from_numpy(padded.labels),
        "next_sentence_label": torch.from_numpy(padded.next_sentence_labels),
    }
    if (padded.next_sentence_labels < 0).all():
        del inputs["next_sentence_label"]
    return inputs


def load_weights(model: torch.nn.Module, config: BertConfig, flat: np.ndarray) -> None:
    """Give a model of Hugging Face's our parameters."""
    named = {name: torch.tensor(value) for name, value in to_hf(Parameters(config, flat)).items()}
    missing, _ = model.load_state_dict(named, strict=False)
    lost = [name for name in missing if not name.startswith("cls.predictions.decoder.")]  # tied
    assert not lost, lost


class Shape(NamedTuple):
    """What the loss reads of a configuration, as numbers that a compiler of graphs can follow."""

    L: int
    H: int
    A: int
    D: int
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float
    layer_norm_eps: float

    @classmethod
    def of(cls, config: BertConfig) -> "Shape":
        """From minibert's configuration, whose properties such a compiler stops at."""
        return cls(*(getattr(config, name) for name in cls._fields))


class Tuned(PyTorchStep):
    """A plain BERT with what speeds one up in PyTorch.

    One projection for query, key and value; scaled_dot_product_attention; vocabulary scores for masked rows
    only; fused AdamW; freed memory kept, as minibert keeps it, which saves an eighth of the time of mini;
    optionally compiled. Sequences are padded.
    """

    def __init__(
        self,
        config: BertConfig,
        batch: Batch,
        flat: np.ndarray,
        threads: int,
        dtype: str,
        compiled: bool = False,
        device: str = "cpu",
    ) -> None:
        parameters = Parameters(config, flat)
        self._shape = Shape.of(config)
        self._named: Named = {}
        split: dict[bool, list] = {True: [], False: []}
        for entry in parameters.table:
            value = parameters[entry.name]
            turned = value.T if entry.name.endswith("weight") else value  # linear: (outputs, inputs)
            made = torch.tensor(np.ascontiguousarray(turned), device=device)
            self._named[entry.name] = torch.nn.Parameter(made)
            split[entry.decays].append(self._named[entry.name])
        padded = Rectangle.of(batch)
        self._batch = {name: torch.from_numpy(value).to(device) for name, value in padded._asdict().items()}
        # A query sees every real key of its sequence.
        self._mask = self._batch["real"][:, None, None, :] if padded.has_padding else None
        # A graph that breaks would run mostly uncompiled, without a word.
        self._loss = torch.compile(pretraining_loss, fullgraph=True) if compiled else pretraining_loss
        super().__init__(split[True], split[False], threads, dtype, device)

    def loss(self) -> torch.Tensor:
        return self._loss(self._shape, self._named, self._batch, self._mask)


def layer_norm(x: torch.Tensor, p: Named, name: str, config: Shape) -> torch.Tensor:
    return F.layer_norm(x, (config.H,), p[f"{name}.gamma"], p[f"{name}.beta"], config.layer_norm_eps)


def pretraining_loss(config: Shape, p: Named, batch: dict, mask: torch.Tensor | None) -> torch.Tensor:
    """Masked words and next sentences of a padded batch."""
    rate, attention_rate = config.hidden_dropout_prob, config.attention_probs_dropout_prob
    S, n = batch["input_ids"].shape
    x = F.embedding(batch["input_ids"], p["embeddings.word"]) + p["embeddings.position"][:n]
    x = x + F.embedding(batch["token_type_ids"], p["embeddings.segment"])
    x = F.dropout(layer_norm(x, p, "embeddings", config), rate)
    for i in range(config.L):
        at, ff = f"layers.{i}.attention", f"layers.{i}.feed_forward"
        qkv = F.linear(x, p[f"{at}.qkv_weight"], p[f"{at}.qkv_bias"])
        q, k, v = qkv.view(S, n, 3, config.A, config.D).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=attention_rate)
        out = out.transpose(1, 2).reshape(S, n, config.H)
        out = F.linear(out, p[f"{at}.output_weight"], p[f"{at}.output_bias"])
        x = layer_norm(x + F.dropout(out, rate), p, at, config)
        out = F.gelu(F.linear(x, p[f"{ff}.in_weight"], p[f"{ff}.in_bias"]))
        out = F.linear(out, p[f"{ff}.out_weight"], p[f"{ff}.out_bias"])
        x = layer_norm(x + F.dropout(out, rate), p, ff, config)
    pooled = torch.tanh(F.linear(x[:, 0], p["pooler.weight"], p["pooler.bias"]))
    scores = F.linear(pooled, p["nsp.weight"], p["nsp.bias"])
    nsp = F.cross_entropy(scores.float(), batch["next_sentence_labels"])
    rows = x.reshape(S * n, config.H).index_select(0, batch["masked"])
    rows = layer_norm(F.gelu(F.linear(rows, p["mlm.weight"], p["mlm.bias"])), p, "mlm", config)
    logits = F.linear(rows, p["embeddings.word"], p["mlm.output_bias"])
    return F.cross_entropy(logits.float(), batch["masked_labels"]) + nsp
