"""Fine-tuning with Hugging Face's models and tokenizers in a plain PyTorch loop, from the options of a run.

What is as in `minibert finetune`: the examples, the batches and their order, the optimizer's numbers and the
schedule, dropout's rate, the weights of the new output layer, the precision (bfloat16 by PyTorch's autocast),
and that the epoch that is best on dev counts. A batch of long sequences is computed in parts, neighbours in
length together: the same gradients with less padding. What is Hugging Face's own: the ids of sentences and
windows of paragraphs, the model, its loss, dropout's draws, and how an answer is chosen. Where it cuts
another number of windows, as of SQuAD, their order is another too. Windows of tagged documents are
minibert's: Hugging Face has none.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from minibert.finetuning.examples import read_examples
from minibert.finetuning.models import start_from
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import Prepared, prepare
from minibert.tasks.batches import epoch_order
from minibert.tasks.task import Task
from peers import squad_features

IGNORED = -100  # the label of a token that has none
LARGE = 4096  # places, with the padding, of what is computed at once
KEPT_EVERY = 25  # steps, where the state of a run is kept
N_BEST, LONGEST = 20, 30  # starts and ends that are combined; tokens of an answer
Features = list[dict[str, Any]]


def finetune(
    options: FinetuneOptions,
    told: Callable[[str], Any],
    test: Sequence[Any] = (),
    kept: Path | None = None,
) -> dict[str, Any]:
    """Train, look at dev after every epoch, and keep what the best epoch predicts.

    Parameters
    ----------
    options : resolved, of a single run.
    told : is given a line after every epoch.
    test : examples of texts that the best epoch is asked about besides.
    kept : a file for the state of the run, every 25 steps; a run whose file is there goes on from it.

    Returns
    -------
    predictions : for every example of dev, as the task has them.
    test : the same for every example of `test`.
    scores, epoch, steps, seconds : of the training, without the looks.
    same_ids : share of the sequences to learn from whose ids are minibert's, too; 0 where there are not as
        many of them.
    """
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)  # moments that die out would be slow on Intel's processors
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(options.seed)
    prepared = prepare(options)
    way = WAYS[prepared.data.head.kind](options, prepared)
    model = way.model()
    an_epoch = -(-len(way.train) // options.batch_size)
    total = max(1, round(options.epochs * an_epoch))
    optimizer, schedule = optimizer_of(model, options, total)
    best: dict[str, Any] = {}
    steps, seconds = 0, 0.0
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    if kept is not None and kept.exists():
        state = torch.load(kept, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        torch.set_rng_state(state["random"])
        best, steps, seconds = state["best"], state["steps"], state["seconds"]
        told(f"goes on from step {steps} of {total}")
    while steps < total:
        began = time.perf_counter()
        epoch, done = divmod(steps, an_epoch)
        order = epoch_order(len(way.train), options.seed, epoch).tolist()
        model.train()
        for at in range(done * options.batch_size, len(order), options.batch_size):
            if steps == total:
                break
            if kept is not None and steps % KEPT_EVERY == 0:
                state = {name: part.state_dict() for name, part in parts.items()}
                state |= {"random": torch.get_rng_state(), "best": best, "steps": steps}
                torch.save(state | {"seconds": seconds + time.perf_counter() - began}, f"{kept}.new")
                Path(f"{kept}.new").replace(kept)
            chosen = [way.train[i] for i in order[at : at + options.batch_size]]
            one_step(model, chosen, optimizer, schedule, options)
            steps += 1
        seconds += time.perf_counter() - began
        epoch += 1
        predictions = way.predict(model.eval())
        scores = way.task.score(way.dev_examples, predictions)
        told(f"epoch {epoch}: {way.task.metric} {100 * scores[way.task.metric]:.2f} on dev")
        if not best or scores[way.task.metric] > best["scores"][way.task.metric]:
            best = {"scores": scores, "predictions": predictions, "epoch": epoch}
            best["test"] = way.predict_others(model, test) if test else []
    return best | {"steps": steps, "seconds": seconds, "same_ids": way.same_ids}


def optimizer_of(model: torch.nn.Module, options: FinetuneOptions, total: int) -> tuple[Any, Any]:
    """AdamW with weight decay on matrices only, and the linear schedule with warm-up."""
    groups: dict[float, list] = {options.weight_decay: [], 0.0: []}
    for name, parameter in model.named_parameters():
        decays = "LayerNorm" not in name and not name.endswith("bias")
        groups[options.weight_decay if decays else 0.0].append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": members, "weight_decay": decay} for decay, members in groups.items()],
        lr=options.learning_rate,
        betas=(options.beta1, options.beta2),
        eps=options.adam_eps,
        fused=True,
    )
    warmup = round(total * options.warmup)
    return optimizer, transformers.get_linear_schedule_with_warmup(optimizer, warmup, total)


def one_step(
    model: torch.nn.Module, batch: Features, optimizer: Any, schedule: Any, options: FinetuneOptions
) -> None:
    optimizer.zero_grad(set_to_none=True)
    whole = "start_positions" in batch[0]  # their softmax over places counts padding, too
    numbers = [range(len(batch))] if whole else of_like_length(batch)
    parts = [padded([batch[i] for i in part]) for part in numbers]
    counts = [1 if whole else int((part["labels"] != IGNORED).sum()) for part in parts]
    for part, count in zip(parts, counts, strict=True):
        with products_in(options.dtype):
            loss = model(**part).loss
        (loss * (count / sum(counts))).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip_norm)
    optimizer.step()
    schedule.step()


def products_in(dtype: str) -> torch.autocast:
    """Where the model's products are of that precision."""
    return torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16")


def of_like_length(features: Features) -> list[list[int]]:
    """Numbers of the sequences in parts of at most LARGE places, the longest first."""
    order = sorted(range(len(features)), key=lambda i: -len(features[i]["input_ids"]))
    parts = []
    while order:
        count = max(1, LARGE // len(features[order[0]]["input_ids"]))
        parts.append(order[:count])
        order = order[count:]
    return parts


def padded(features: Features) -> dict[str, torch.Tensor]:
    """Every sequence as long as the longest, and a mask."""
    lengths = [len(one["input_ids"]) for one in features]
    longest = max(lengths)

    def rectangle(rows: Sequence[Sequence[int]], filler: int) -> torch.Tensor:
        return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])

    found = {name: rectangle([one[name] for one in features], 0) for name in ("input_ids", "token_type_ids")}
    found["attention_mask"] = rectangle([[1] * n for n in lengths], 0)
    for name in features[0].keys() & {"labels", "start_positions", "end_positions"}:
        values = [one[name] for one in features]
        made = rectangle(values, IGNORED) if isinstance(values[0], list) else torch.tensor(values)
        found[name] = made.float() if made.is_floating_point() else made.long()
    return found


class Way:
    """How a kind of task is done with Hugging Face; subclasses fill in what is particular to it.

    Attributes
    ----------
    task, dev_examples : what is to be predicted.
    train, dev : what the model is given.
    same_ids : share of the sequences to learn from whose ids are minibert's, too; 0 where there are not as
        many of them.
    """

    auto: str  # name of the class that makes the model
    layer = "classifier"  # name of its output layer
    task: Task
    train: Features
    dev: Features

    def __init__(self, options: FinetuneOptions, prepared: Prepared) -> None:
        self.options, self.prepared = options, prepared
        self.task, self.dev_examples = prepared.data.task, prepared.data.dev_examples
        self.tokenizer = transformers.BertTokenizerFast.from_pretrained(options.model)
        self.make_features(read_examples(self.task, options)[0])
        ours = [feature.sequences[0].input_ids.tolist() for feature in self.prepared.train]
        theirs = [one["input_ids"] for one in self.train]
        same = sum(map(list.__eq__, ours, theirs)) if len(ours) == len(theirs) else 0
        self.same_ids = same / len(theirs)

    def make_features(self, examples: list[Any]) -> None:
        """Set `train` and `dev`."""
        raise NotImplementedError

    def model(self) -> torch.nn.Module:
        """The pre-trained model under a new output layer, with the weights that minibert's begins with."""
        o, data = self.options, self.prepared.data
        made = getattr(transformers, self.auto).from_pretrained(
            o.model,
            num_labels=data.head.outputs,
            hidden_dropout_prob=o.dropout,
            attention_probs_dropout_prob=o.dropout,
            dtype=torch.float32,
        )
        ours, _ = start_from(o, data.head, data.labels)
        layer = getattr(made, self.layer)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(ours["head.weight"].T))
            layer.bias.copy_(torch.from_numpy(ours["head.bias"]))
        # Its scores stay float32, as minibert's do: to eight bits, many spans would be equally good.
        layer.forward = torch.autocast("cpu", enabled=False)(lambda x, exact=layer.forward: exact(x.float()))
        return made

    def predict_others(self, model: torch.nn.Module, examples: Sequence[Any]) -> list[Any]:
        """A prediction for each of other texts than those of dev."""
        dev, self.dev = self.dev, self.encoded(examples)
        found = self.task.predict(examples, (), self.outputs(model), self.prepared.data.labels, {})
        self.dev = dev
        return found

    # -> one array for each of `dev`
    @torch.inference_mode()
    def outputs(self, model: torch.nn.Module) -> list[np.ndarray]:
        """The logits, neighbours in length together; those of tokens without the padding."""
        found: list[Any] = [None] * len(self.dev)
        for chosen in of_like_length(self.dev):
            with products_in(self.options.dtype):
                said = model(**padded([self.dev[i] for i in chosen]))
            for row, i in enumerate(chosen):
                found[i] = self.output(said, row, len(self.dev[i]["input_ids"]))
        return found

    def output(self, said: Any, row: int, length: int) -> np.ndarray:
        """The logits of one sequence."""
        return said.logits[row].numpy()

    def predict(self, model: torch.nn.Module) -> list[Any]:
        """A prediction for each example of dev."""
        prepared = self.prepared
        data = prepared.data
        return self.task.predict(self.dev_examples, prepared.dev, self.outputs(model), data.labels, {})


class Sentences(Way):
    """A class or a number for a sentence or a pair."""

    auto = "AutoModelForSequenceClassification"

    def make_features(self, examples: list[Any]) -> None:
        self.train, self.dev = self.encoded(examples), self.encoded(self.dev_examples)
        for own, feature in zip(self.train, self.prepared.train, strict=True):
            own["labels"] = feature.label

    def encoded(self, examples: list[Any]) -> Features:
        """Their tokenizer's ids."""
        second = [example.second for example in examples]
        made = self.tokenizer(
            [example.first for example in examples],
            None if second[0] is None else second,
            truncation=True,
            max_length=self.prepared.max_length,
        )
        return [
            {"input_ids": ids, "token_type_ids": types}
            for ids, types in zip(made["input_ids"], made["token_type_ids"], strict=True)
        ]


class Tags(Way):
    """A tag for every word; sequences are minibert's windows over documents."""

    auto = "AutoModelForTokenClassification"

    def make_features(self, examples: list[Any]) -> None:
        self.train = [self.encoded(feature, True) for feature in self.prepared.train]
        self.dev = [self.encoded(feature, False) for feature in self.prepared.dev]

    def encoded(self, feature: Any, training: bool) -> dict[str, Any]:
        """A window as they take it, tags at the first pieces of words."""
        ids = feature.sequences[0].input_ids.tolist()
        found = {"input_ids": ids, "token_type_ids": [0] * len(ids)}
        if training:
            labels = np.full(len(ids), IGNORED)
            labels[feature.rows] = feature.label
            found["labels"] = labels.tolist()
        return found

    def predict(self, model: torch.nn.Module) -> list[Any]:
        prepared = self.prepared
        data = prepared.data
        rows = [feature.rows for feature in prepared.dev]
        outputs = [scores[own] for scores, own in zip(self.outputs(model), rows, strict=True)]
        return self.task.predict(self.dev_examples, prepared.dev, outputs, data.labels, {})


class Answers(Way):
    """Where the answer stands, as in run_qa."""

    auto, layer = "AutoModelForQuestionAnswering", "qa_outputs"

    def make_features(self, examples: list[Any]) -> None:
        length = self.prepared.max_length
        self.train = squad_features.labelled(self.tokenizer, examples, length)
        self.dev = squad_features.asked(self.tokenizer, self.dev_examples, length)

    def output(self, said: Any, row: int, length: int) -> np.ndarray:
        both = torch.stack([said.start_logits[row, :length], said.end_logits[row, :length]], 1)
        return both.numpy()

    def predict(self, model: torch.nn.Module) -> list[Any]:
        best = [(-np.inf, "")] * len(self.dev_examples)
        for window, logits in zip(self.dev, self.outputs(model), strict=True):
            number = window["question"]
            score, span = best_span(logits, window["offsets"])
            if span is not None and score > best[number][0]:
                best[number] = score, self.dev_examples[number].context[slice(*span)]
        return [
            {"id": question.id, "text": text}
            for question, (_, text) in zip(self.dev_examples, best, strict=True)
        ]


# logits (n,2)  offsets (n,2)
def best_span(logits: np.ndarray, offsets: np.ndarray) -> tuple[float, tuple[int, int] | None]:
    """The score and the characters of the best pair of one of the best starts with one of the best ends."""
    starts, ends = (np.argsort(-logits[:, side], kind="stable")[:N_BEST] for side in (0, 1))
    first, last = (one.ravel() for one in np.meshgrid(starts, ends, indexing="ij"))
    allowed = (offsets[first, 0] >= 0) & (offsets[last, 0] >= 0) & (first <= last) & (last - first < LONGEST)
    if not allowed.any():
        return -np.inf, None
    scores = np.where(allowed, logits[first, 0] + logits[last, 1], -np.inf)
    best = int(scores.argmax())
    return float(scores[best]), (int(offsets[first[best], 0]), int(offsets[last[best], 1]))


WAYS = {"classify": Sentences, "regress": Sentences, "tag": Tags, "span": Answers}
