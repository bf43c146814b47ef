"""Fine-tuning with Hugging Face's `Trainer` as it is published: the model for the task, padded batches."""

import tempfile
import time
from typing import Any

import torch
import transformers
from torch.utils.data import DataLoader

from minibert import engines
from minibert.hub import to_hf
from minibert.model.params import Parameters
from peers.tuning import CLIP_NORM, EPS, RATE, WEIGHT_DECAY, Epoch, Tuner

MODELS = {"classify": "BertForSequenceClassification", "span": "BertForQuestionAnswering"}


def model_of(params: Parameters) -> torch.nn.Module:
    """Hugging Face's model for the task with our parameters."""
    config = transformers.BertConfig(**params.config.to_dict(), num_labels=params.head.outputs)
    made = getattr(transformers, MODELS[params.head.kind])(config)
    state = {name: torch.tensor(value) for name, value in to_hf(params).items()}
    missing, unexpected = made.load_state_dict(state, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return made


class Clock(transformers.TrainerCallback):
    """The seconds from the first batch to the end of the last step."""

    seconds = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.perf_counter()

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        self.seconds = time.perf_counter() - self._began


class StepTrainer(transformers.Trainer):
    """A `Trainer` that is told which examples make each step, and remembers the losses."""

    steps: list[list[int]] = []

    def get_train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_dataset, batch_sampler=self.steps, collate_fn=self.data_collator)

    def training_step(self, *given: Any, **more: Any) -> torch.Tensor:
        loss = super().training_step(*given, **more)
        self.losses.append(loss.item())
        return loss


class HuggingFace(Tuner):
    """`Trainer` with dynamic padding; bfloat16 is its `bf16=True`, which is autocast."""

    def __init__(self, epoch: Epoch, threads: int, dtype: str) -> None:
        super().__init__(epoch)
        engines.keep_freed_memory()
        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        self._folder = tempfile.TemporaryDirectory()
        arguments = transformers.TrainingArguments(
            output_dir=self._folder.name,
            use_cpu=True,
            bf16=dtype == "bfloat16",
            per_device_train_batch_size=epoch.batch,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            weight_decay=WEIGHT_DECAY,
            adam_epsilon=EPS,
            max_grad_norm=CLIP_NORM,
            max_steps=1,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        self._clock = Clock()
        self._trainer = StepTrainer(
            model=model_of(epoch.parameters()),
            args=arguments,
            train_dataset=[as_dictionary(feature) for feature in self.features],
            data_collator=pad,
            callbacks=[self._clock],
        )
        self._trainer.remove_callback(transformers.PrinterCallback)

    def train(self, steps: list[list[int]]) -> list[float]:
        trainer = self._trainer
        trainer.steps, trainer.losses = steps, []
        trainer.args.max_steps = len(steps)
        trainer.train()
        return trainer.losses

    def advance(self, first: int, last: int) -> dict[str, Any]:
        """Without what `train()` does before its first step and after its last."""
        return super().advance(first, last) | {"seconds": self._clock.seconds}


def as_dictionary(feature: Any) -> dict[str, Any]:
    """An example as Hugging Face's tokenizers and preprocessing leave it."""
    [sequence] = feature.sequences
    found = {
        "input_ids": sequence.input_ids.tolist(),
        "token_type_ids": sequence.token_type_ids.tolist(),
    }
    if isinstance(feature.label, list | tuple):
        return found | dict(zip(("start_positions", "end_positions"), feature.label, strict=True))
    return found | {"labels": feature.label}


def pad(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """What `DataCollatorWithPadding` makes of them: every sequence as long as the longest, and a mask."""
    longest = max(len(one["input_ids"]) for one in examples)
    found = {
        name: torch.tensor([one[name] + [0] * (longest - len(one[name])) for one in examples])
        for name in ("input_ids", "token_type_ids")
    }
    lengths = [len(one["input_ids"]) for one in examples]
    found["attention_mask"] = torch.tensor([[1] * n + [0] * (longest - n) for n in lengths])
    for name in examples[0].keys() - found.keys():
        found[name] = torch.tensor([one[name] for one in examples])
    return found
