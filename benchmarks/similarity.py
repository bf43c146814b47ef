"""Similarity learnt from STS-B, minibert's dev scores beside sentence-transformers': same pairs and recipe.

    python benchmarks/similarity.py --data GLUE --model FOLDER [--train 5749] [--dev 1500] [--seed 0]
        [--threads 1] [--engine auto] [--json]

Both sides begin with the same weights, learn the cosine of means of last hidden states by the squared error
(CosineSimilarityLoss), for one epoch of the same pairs in the same order, in batches of 16, with AdamW at
2e-5, a tenth of the steps to warm up, gradients clipped at length 1 and dropout of 0.1, whose draws differ.
sentence-transformers' model and loss are its own, the loop around them is plain PyTorch. The interval
is that of the difference in Spearman's correlation over dev pairs drawn anew (bootstrap), the same ones for
both; what another seed would give is not in it.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from minibert.core.optim import warmup_linear
from minibert.finetuning.examples import read_examples
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.tasks import metrics, registry
from minibert.tasks.batches import drawn

TASK = "stsb-similarity"


def main() -> None:
    """Train on both sides, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("data", "model"):
        parser.add_argument(f"--{name}", required=True)
    for name, default in (("train", 5749), ("dev", 1500), ("seed", 0), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    options = FinetuneOptions(
        TASK,
        given.data,
        given.model,
        train_examples=given.train,
        dev_examples=given.dev,
        epochs=1.0,
        seed=given.seed,
        threads=given.threads,
        engine=given.engine,
    ).resolved()
    report = measured(options)
    print(json.dumps(report, indent=2) if given.json else text_of(report))


def measured(options: FinetuneOptions) -> dict[str, Any]:
    """Scores of both sides, of what needs no training, and the interval of the difference."""
    ours, baselines, seconds = of_minibert(options)
    theirs, their_seconds = of_sentence_transformers(options)
    task = registry.create(TASK)
    _, examples = read_examples(task, options)
    sides = {"minibert": ours, "sentence-transformers": theirs}
    predictions = [[{"value": float(value)} for value in values] for values in sides.values()]
    statistics = [task.statistic(examples, one) for one in predictions]
    scores = {n: task.score(examples, one) for n, one in zip(sides, predictions, strict=True)}
    return {
        "model": Path(options.model).name,
        "train": options.train_examples,
        "dev": len(examples),
        "seed": options.seed,
        "scores": baselines | scores,
        "difference": list(metrics.paired_bootstrap(*statistics, len(examples))),
        "seconds": {"minibert": seconds, "sentence-transformers": their_seconds},
    }


# -> (n,) cosines
def of_minibert(options: FinetuneOptions) -> tuple[np.ndarray, dict[str, Any], float]:
    """Cosines of dev after training, baselines by name, seconds of training."""
    with tempfile.TemporaryDirectory() as folder:
        report = finetune(options, Path(folder) / "run", show=False)
        found = json.loads((Path(folder) / "run" / "dev_predictions.json").read_text())
    cosines = np.array([one["value"] for one in found])
    return cosines, report["baselines"], report["training_seconds"]


# -> (n,) cosines
def of_sentence_transformers(options: FinetuneOptions) -> tuple[np.ndarray, float]:
    """Cosines of dev after training, seconds of training."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses, modules

    torch.set_num_threads(options.threads or 1)
    torch.manual_seed(options.seed)
    positions = json.loads((Path(options.model) / "config.json").read_text())["max_position_embeddings"]
    word = modules.Transformer(options.model, max_seq_length=min(registry.create(TASK).max_length, positions))
    model = SentenceTransformer(modules=[word, modules.Pooling(word.get_embedding_dimension())], device="cpu")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):  # whatever the model was pre-trained with
            module.p = options.dropout
    loss = losses.CosineSimilarityLoss(model)
    train, dev = read_examples(registry.create(TASK), options)
    plain = [weight for weight in model.parameters() if weight.ndim < 2]
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    groups = [
        {"params": matrices, "weight_decay": options.weight_decay},
        {"params": plain, "weight_decay": 0},
    ]
    optimizer = torch.optim.AdamW(groups, eps=options.adam_eps)
    size = options.batch_size or 1
    total = -(-len(train) // size)
    batches = drawn(len(train), size, options.seed)
    given = []  # minibert's pairs are pieces, too, before its seconds begin
    for _ in range(total):
        chosen = [train[number] for number in next(batches)[0]]
        features = [model.preprocess([getattr(e, side) for e in chosen]) for side in ("first", "second")]
        given.append((features, torch.tensor([e.label for e in chosen])))
    model.train()
    began = time.monotonic()
    for step, (features, labels) in enumerate(given):
        loss(features, labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = warmup_linear(step, total, round(total * options.warmup), options.learning_rate)
        optimizer.step()
        optimizer.zero_grad()
    seconds = time.monotonic() - began
    model.eval()
    sides = [model.encode([getattr(e, side) for e in dev]) for side in ("first", "second")]
    return model.similarity_pairwise(*sides).numpy(), seconds


def text_of(report: dict[str, Any]) -> str:
    """As a table of Markdown, with what was measured above it."""
    low, high = (100 * end for end in report["difference"])
    rows = [
        f"| {name} | {100 * scores['spearman']:.2f} | {100 * scores['pearson']:.2f} |"
        for name, scores in report["scores"].items()
    ]
    seconds = ", ".join(f"{name} {value:.0f} s" for name, value in report["seconds"].items())
    return "\n".join(
        [
            f"{report['model']}: {report['train']:,} pairs of STS-B, one epoch, seed "
            f"{report['seed']}; {report['dev']:,} pairs of dev. Training: {seconds}.",
            "",
            "| | Spearman | Pearson |",
            "|---|---|---|",
            *rows,
            "",
            "minibert less sentence-transformers, Spearman, 95% of bootstrap samples: "
            f"{low:+.2f} to {high:+.2f}.",
        ]
    )


if __name__ == "__main__":
    main()
