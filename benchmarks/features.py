"""Questions of SQuAD to features, minibert and Hugging Face side by side, in one run on this machine.

    python benchmarks/features.py [--quick] [--rounds N] [--json]

Speed, on one core: minibert's windows with every feature taken out; what Hugging Face's example does with its
fast tokenizer; and the older steps of Google's code, word by word in Python, which Hugging Face's
`squad_convert_examples_to_features` followed up to its removal. Both of theirs are written down here, without
what they do beside (caches on disk, progress bars, padding). All take turns, and figures are medians; that
pieces and answers are the same is seen first.

Memory: a file of as many questions and paragraphs as the training set of SQuAD 1.1 has, read and made into
windows in a process of its own.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from peers import squad_features

from minibert.base.errors import InputError, RunError
from minibert.data import squad
from minibert.tasks.windows import Windows
from minibert.tokenizer import Tokenizer, native

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("MINIBERT_DATA", ROOT.parent / "shared" / "data"))
QUESTIONS = DATA / "squad" / "dev-v1.1.json"
VOCABULARY = DATA / "vocab" / "bert-base-uncased"
MAX_LENGTH, STRIDE, MAX_QUESTION = 384, 128, 64
TRAINING_SET = 87_599  # questions of SQuAD 1.1

# Questions of the first two ways and of the third, rounds, questions in memory.
FULL = {"questions": None, "by words": 1000, "rounds": 3, "memory": TRAINING_SET}
QUICK = {"questions": 1000, "by words": 100, "rounds": 1, "memory": 5000}

Features = dict[str, list[Any]]


def of_minibert(questions: list[squad.Question], tokenizer: Tokenizer) -> Features:
    """Windows, and each of their features taken out."""
    made = list(Windows(questions, tokenizer, MAX_LENGTH, stride=STRIDE, training=True))
    return {
        "input_ids": [feature.sequences[0].input_ids for feature in made],
        "positions": [feature.label for feature in made],
    }


def of_example(questions: list[squad.Question], tokenizer: Any) -> Features:
    """The steps of Hugging Face's example for training, with its fast tokenizer."""
    made = squad_features.labelled(tokenizer, questions, MAX_LENGTH)
    return {
        "input_ids": [window["input_ids"] for window in made],
        "positions": [(window["start_positions"], window["end_positions"]) for window in made],
    }


def by_words(questions: list[squad.Question], tokenizer: Any) -> Features:
    """The steps of Google's code: words first, then pieces, windows, and which has most context."""
    found: Features = {"input_ids": [], "positions": []}
    for question in questions:
        words, word_of = [], []
        apart = True
        for character in question.context:
            if character in " \t\r\n\u202f":
                apart = True
            elif apart:
                words.append(character)
                apart = False
            else:
                words[-1] += character
            word_of.append(len(words) - 1)
        answer = question.answers[0]
        pieces, first_piece = [], []
        for word in words:
            first_piece.append(len(pieces))
            pieces += tokenizer.tokenize(word)
        first = first_piece[word_of[answer.start]]
        behind = word_of[answer.start + len(answer.text) - 1] + 1
        last = (first_piece[behind] if behind < len(words) else len(pieces)) - 1
        first, last = closest(pieces, first, last, " ".join(tokenizer.tokenize(answer.text)))

        asked = tokenizer.tokenize(question.question)[:MAX_QUESTION]
        room = MAX_LENGTH - 3 - len(asked)
        windows, start = [], 0
        while start < len(pieces):
            length = min(room, len(pieces) - start)
            windows.append((start, length))
            if start + length == len(pieces):
                break
            start += min(length, STRIDE)
        for own, (start, length) in enumerate(windows):
            most = {}
            for row in range(length):
                most[len(asked) + 2 + row] = most_context(windows, start + row) == own
            tokens = ["[CLS]", *asked, "[SEP]", *pieces[start : start + length], "[SEP]"]
            held = start <= first and last < start + length
            move = len(asked) + 2 - start
            found["input_ids"].append(tokenizer.convert_tokens_to_ids(tokens))
            found["positions"].append((first + move, last + move) if held else (0, 0))
    return found


def closest(pieces: list[str], first: int, last: int, wanted: str) -> tuple[int, int]:
    """The pieces within some words that read like the answer; all of them where none do."""
    for start in range(first, last + 1):
        for end in range(last, start - 1, -1):
            if " ".join(pieces[start : end + 1]) == wanted:
                return start, end
    return first, last


def most_context(windows: list[tuple[int, int]], token: int) -> int | None:
    best, highest = None, None
    for number, (start, length) in enumerate(windows):
        end = start + length - 1
        if start <= token <= end:
            score = min(token - start, end - token) + 0.01 * length
            if highest is None or score > highest:
                best, highest = number, score
    return best


def job_speed(questions: int | None, words: int, rounds: int) -> dict[str, Any]:
    """Seconds of each way for some questions."""
    import transformers

    if hasattr(os, "sched_setaffinity"):  # one core for every pool of threads there is
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    asked = squad.read(QUESTIONS)[:questions]
    ours = Tokenizer.from_pretrained(VOCABULARY, compat="hf-fast", core="c")
    theirs = transformers.BertTokenizer.from_pretrained(str(VOCABULARY), do_lower_case=True)
    ways = {
        "minibert": (of_minibert, asked, ours),
        "hf example": (of_example, asked, theirs),
        "by words": (by_words, asked[:words], theirs),
    }
    compared = agreement(asked[:: max(1, len(asked) // words)], ours, theirs)
    made = {way: make(some, tokenizer) for way, (make, some, tokenizer) in ways.items()}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (make, some, tokenizer) in ways.items():
            began = time.perf_counter()
            make(some, tokenizer)
            seconds[way].append(time.perf_counter() - began)
    return {
        "questions": {way: len(some) for way, (_, some, _) in ways.items()},
        "features": {way: len(features["input_ids"]) for way, features in made.items()},
        "tokens": {way: sum(map(len, features["input_ids"])) for way, features in made.items()},
        "agreement": compared,
        "seconds": seconds,
    }


def agreement(questions: list[squad.Question], ours: Any, theirs: Any) -> dict[str, int]:
    """How many questions have the same pieces in their first windows, and the same answer, in all three ways.

    Further windows begin elsewhere in the example, which counts its stride from their ends.
    """
    found = {"questions": len(questions), "pieces": 0, "answers": 0}
    for question in questions:
        own, *others = (
            make([question], tokenizer)
            for make, tokenizer in ((of_minibert, ours), (of_example, theirs), (by_words, theirs))
        )
        if all(own["input_ids"][0].tolist() == other["input_ids"][0] for other in others):
            found["pieces"] += 1
            found["answers"] += all(own["positions"][0] == other["positions"][0] for other in others)
    if found["pieces"] < 0.99 * len(questions):
        raise RunError(f"only {found['pieces']} of {len(questions)} questions have the same pieces.")
    return found


def job_memory(questions: int) -> dict[str, Any]:
    """Megabytes beyond the imports of a file of so many questions, read and made into windows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train-v1.1.json"
        size = subprocess.run(
            [sys.executable, __file__, "--task", "write"],
            input=json.dumps({"path": str(path), "questions": questions}),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        ours = Tokenizer.from_pretrained(VOCABULARY, core="c")
        ours.encode_batch(["warm"], offsets=True)
        before, began = peak_megabytes(), time.perf_counter()
        asked = squad.read(path)
        took = time.perf_counter() - began
        read = peak_megabytes()
        made = Windows(asked, ours, MAX_LENGTH, stride=STRIDE, training=True)
        return {
            **json.loads(size.stdout),
            "questions": len(asked),
            "windows": len(made),
            "tokens": int(made.lengths.sum()),
            "read_mb": read - before,
            "peak_mb": peak_megabytes() - before,
            "read_seconds": took,
            "windows_seconds": time.perf_counter() - began - took,
        }


def job_write(path: str, questions: int) -> dict[str, int]:
    """A file of so many questions: the real ones over and over, each time about other paragraphs."""
    articles = json.loads(QUESTIONS.read_text(encoding="utf-8"))["data"]
    left, copy, n_paragraphs, found = questions, 0, 0, []
    while left:
        for article in articles:
            paragraphs = []
            for paragraph in article["paragraphs"]:
                asked = [{**one, "id": f"{one['id']}-{copy}"} for one in paragraph["qas"][:left]]
                left -= len(asked)
                n_paragraphs += bool(asked)
                if asked:
                    paragraphs.append({"context": f"{paragraph['context']} ({copy})", "qas": asked})
            found.append({"title": article["title"], "paragraphs": paragraphs})
        copy += 1
    Path(path).write_text(json.dumps({"version": "1.1", "data": found}), encoding="utf-8")
    return {"paragraphs": n_paragraphs, "file_mb": round(Path(path).stat().st_size / 1e6, 1)}


def peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


JOBS = {"speed": job_speed, "memory": job_memory, "write": job_write}


def run_job(job: str, **arguments: Any) -> dict[str, Any]:
    """What a job returns, done in a Python of its own with one thread in every library."""
    names = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    done = subprocess.run(
        [sys.executable, __file__, "--task", job],
        input=json.dumps(arguments),
        env={**os.environ, **dict.fromkeys(names, "1"), "TOKENIZERS_PARALLELISM": "false"},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise RunError(f"the job {job} ended with status {done.returncode}; its message is above.")
    return json.loads(done.stdout.splitlines()[-1])


def text(found: dict[str, Any]) -> str:
    """Everything that was measured, as Markdown."""
    speed, memory = found["speed"], found["memory"]
    rates = {
        way: speed["questions"][way] / statistics.median(seconds) for way, seconds in speed["seconds"].items()
    }
    titles = {
        "minibert": "minibert",
        "hf example": "Hugging Face's example, fast tokenizer",
        "by words": "word by word, as Google's code",
    }
    rows = ["| SQuAD to features, one core | questions | features | questions/s | minibert's ratio |"]
    rows.append("|---|--:|--:|--:|--:|")
    for way, title in titles.items():
        ratio = "" if way == "minibert" else f"{rates['minibert'] / rates[way]:.1f}×"
        counts = f"{speed['questions'][way]:,} | {speed['features'][way]:,}"
        rows.append(f"| {title} | {counts} | {rates[way]:,.0f} | {ratio} |")
    same = speed["agreement"]
    quick = "Measured with --quick: no figure to quote.\n\n" if found["quick"] else ""
    return f"""{found["machine"]}; medians of {found["rounds"]}.

{quick}{chr(10).join(rows)}

Of {same["questions"]:,} questions {same["pieces"]:,} have the same pieces in the first window of all three, \
and {same["answers"]:,} the same answer there.

{memory["questions"]:,} questions about {memory["paragraphs"]:,} paragraphs ({memory["file_mb"]:.0f} MB of \
JSON) take {memory["peak_mb"]:,.0f} MB beyond the imports, {memory["read_mb"]:,.0f} MB of it to read them; \
reading takes {memory["read_seconds"]:.1f} s, their {memory["windows"]:,} windows \
{memory["windows_seconds"]:.1f} s."""


def machine() -> str:
    """What the figures were measured on."""
    model = platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("tokenizers", "transformers"))
    return f"{model}, Python {platform.python_version()}, {versions}"


def run(options: argparse.Namespace) -> None:
    native.choose("c")
    for path in (QUESTIONS, VOCABULARY):
        if not path.exists():
            raise InputError(f"{path} is not there; name the folder of the data: MINIBERT_DATA=...")
    size = QUICK if options.quick else FULL
    rounds = size["rounds"] if options.rounds is None else options.rounds
    if rounds < 1:
        raise InputError(f"--rounds {rounds} measures nothing; give 1 or more.")
    found = {
        "machine": machine(),
        "quick": options.quick,
        "rounds": rounds,
        "speed": run_job("speed", questions=size["questions"], words=size["by words"], rounds=rounds),
        "memory": run_job("memory", questions=size["memory"]),
    }
    print(json.dumps(found, indent=1) if options.json else text(found))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few questions, one round: does it work at all?")
    parser.add_argument("--rounds", type=int, help="of every way (default: 3)")
    parser.add_argument("--json", action="store_true", help="print everything that was measured as JSON")
    parser.add_argument("--task", choices=JOBS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.task:
        print(json.dumps(JOBS[options.task](**json.load(sys.stdin))))
        return 0
    try:
        run(options)
    except (InputError, RunError) as error:
        print(f"minibert: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
