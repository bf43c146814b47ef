"""Hugging Face's `BertForPreTraining` in PyTorch as a runner: the model as published, padded batches."""

import numpy as np
import torch
import torch.nn.functional as F

from minibert.core.batch import Batch
from peers.race import Course, Runner
from peers.train_pytorch import HuggingFace as Step, padded_inputs
from peers.work import Rectangle


class HuggingFace(Runner):
    """The step of `train_pytorch` with another batch and learning rate each time."""

    def __init__(self, course: Course, threads: int, dtype: str) -> None:
        super().__init__(course, course.task())
        params = self.task.start().params
        self._made = Step(params.config, self._looks[0], params.flat, threads, dtype)

    def ready(self, batch: Batch) -> dict[str, torch.Tensor]:
        return padded_inputs(Rectangle.of(batch))

    def train(self, ready: dict[str, torch.Tensor], rate: float) -> float:
        return self._made.run_on(ready, rate).read().loss

    @torch.no_grad()
    def look(self, batch: Batch) -> np.ndarray:
        model, padded = self._made.model.eval(), Rectangle.of(batch)
        inputs = padded_inputs(padded)
        hidden = model.bert(
            inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            token_type_ids=inputs["token_type_ids"],
        ).last_hidden_state
        rows = hidden.reshape(-1, hidden.shape[-1])[torch.from_numpy(padded.masked)]
        logits = model.cls.predictions(rows)
        model.train()
        return F.cross_entropy(logits, torch.from_numpy(padded.masked_labels), reduction="none").numpy()
