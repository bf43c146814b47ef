"""Pack a pre-training run as the model in the package: float16, its card, and the digests of its files.

    python benchmarks/english_pack.py RUN [--out minibert/pretrained/english]

What the run did not train is left out: without next sentences, the pooler and their head. The same run gives
the same bytes; a folder that is there is replaced. A model above 8 MB is refused.
"""

import argparse
import hashlib
import math
import re
import shutil
import sys
from pathlib import Path

import numpy as np

from minibert import hub
from minibert.base.bundled_models import DEFAULT, DIGESTS_FILE, FOLDER
from minibert.base.errors import InputError
from minibert.base.files import write_folder_atomically
from minibert.base.json_files import read_json
from minibert.base.model_names import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, VOCABULARY_FILE, folder_of
from minibert.reports.card import CARD, LIMITS, Exported, model_card

DTYPE = "float16"
LARGEST = 8_000_000  # bytes
UNTRAINED = ("bert.pooler.", "cls.seq_relationship.")  # without next sentences
TEXT = """\
- Text: paragraphs of articles of the English Wikipedia up to about 2021, by
  [its authors](https://en.wikipedia.org), under CC BY-SA (3.0 then,
  [4.0](https://creativecommons.org/licenses/by-sa/4.0/) today); books in the public domain, among them the 16
  that come with minibert. Left out are texts of the tasks that the model is measured on, copies, and one
  book; `benchmarks/english.py` of the project has the rules.
- Packed in float16 by `benchmarks/english_pack.py`."""
USE = """\
## Use

```python
import minibert
minibert.load("english").fill_mask("She was born in New [MASK] City.")
```

```
minibert fill-mask "She was born in New [MASK] City."
```

transformers loads this folder as it is.

"""
LICENCE = """\

## Licence and attribution

The articles are by the authors of Wikipedia, under CC BY-SA; the books are in the public domain. What is
ours in the weights is under Apache-2.0, like the code of minibert. Attribution: "english, a model of
minibert, trained on text of the English Wikipedia by its authors (https://en.wikipedia.org, CC BY-SA) and on
books in the public domain".
"""
LIBRARY = 'library_name: "transformers"\n'
DATASET = '"dataset": {"type": "held-out", "name": "documents of the same text"}'


def main() -> None:
    """Pack, and print what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", help="a run folder, or RUN@STEP")
    parser.add_argument("--out", type=Path, default=FOLDER / DEFAULT)
    given = parser.parse_args()
    try:
        for name, value in pack(given.run, given.out).items():
            print(f"{value:>17}  {name}")
    except InputError as error:
        sys.exit(f"english_pack.py: {error}")


def pack(run: str | Path, out: Path) -> dict[str, str]:
    """Write the folder of the model.

    Parameters
    ----------
    run : str or Path
        Folder of a finished pre-training, or `RUN@STEP`.
    out : Path
        Where to write; what is there is replaced.

    Returns
    -------
    dict of str to str
        What there is to tell: how much rounding changed, and the bytes of each file.

    Raises
    ------
    InputError
        When the run is not finished, or the model is too large.
    """
    config, params, _ = hub.load(run)
    folder_of_run = folder_of(run)
    tensors = hub.to_hf(params)
    untrained = untrained_in(folder_of_run)
    omit = [name for name in tensors if name.startswith(untrained)]
    packed = [value for name, value in tensors.items() if name not in omit]
    is_step = Path(run) != folder_of_run
    parameters = sum(value.size for value in packed)
    card = card_of(folder_of_run, Exported(DEFAULT, config, parameters, "pretraining", is_step=is_step))

    def fill(folder: Path) -> None:
        hub.save_hf(folder, config, params, dtype=DTYPE, omit=omit)
        for name in (VOCABULARY_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE):
            shutil.copyfile(folder_of_run / name, folder / name)
        (folder / CARD).write_text(card, "utf-8")
        (folder / DIGESTS_FILE).write_text(digests_of(folder), "utf-8")
        size = sum(sizes_of(folder).values())
        if size > LARGEST:
            raise InputError(
                f"The model would have {size:,} bytes, more than {LARGEST:,}; train a smaller one."
            )
        shutil.rmtree(out, ignore_errors=True)  # now that nothing can fail

    write_folder_atomically(out, fill)
    report = {"largest change by rounding": f"{largest_change(packed):.1e}"}
    report["change by rounding, share of the norm"] = f"{relative_change(packed):.1e}"
    return report | {f"{out / name}": f"{size:,} bytes" for name, size in sizes_of(out).items()}


def untrained_in(run: Path) -> tuple[str, ...]:
    """Return how the names of tensors begin that a run did not train."""
    options = read_json(run / "training.json", {"next_sentence": bool})
    return () if options["next_sentence"] else UNTRAINED


def card_of(run: Path, about: Exported) -> str:
    """Return the card of the run, with the sources of its text, its licence, and its use by its name."""
    card = model_card(run, about)
    card = replaced(r"^- Text: [^\n]*$", TEXT, card)
    card = replaced(r"^## Use\n.*?(?=^## )", USE, card)
    card = replaced("that it and the model before it learnt from", "that it learnt from", card)
    card = re.sub(
        "^- Begun from the weights of `([^`]*)`.$", lambda found: before(run, found[1]), card, flags=re.M
    )
    card = re.sub(r'"dataset": {[^}]*}', DATASET, card)
    card = replaced(f"^{LIBRARY}", f'{LIBRARY}license: "apache-2.0"\n', card)
    return replaced(f"^- {re.escape(LIMITS[-1])}\n", "", card) + LICENCE


def before(run: Path, name: str) -> str:
    """Return the lines about the run, or the packed model, of that name beside it, with which it began."""
    begun = run.parent / name
    if (begun / "report.json").exists():
        report = read_json(begun / "report.json", {"steps": int, "tokens": int})
        texts = "single texts" if untrained_in(begun) else "pairs"
        return f"- Before: {report['steps']:,} steps, {report['tokens']:,} tokens, on {texts}."
    card = (begun / CARD).read_text("utf-8")
    earlier = re.findall("^- Before: .*$", card, flags=re.M)
    [last] = re.findall("^- ([0-9,]+ steps, [0-9,]+ tokens), ", card, flags=re.M)
    texts = "pairs" if "does one span follow another" in card else "single texts"
    return "\n".join([*earlier, f"- Before: {last}, on {texts}."])


def replaced(pattern: str, text: str, card: str) -> str:
    """Return a card with another text in place of what a pattern finds, which it has to find."""
    card, count = re.subn(pattern, lambda _: text, card, flags=re.MULTILINE | re.DOTALL)
    assert count == 1, pattern
    return card


def digests_of(folder: Path) -> str:
    """Return a line for each file of a folder, as `sha256sum` prints it."""
    lines = []
    for name in sizes_of(folder):
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        lines.append(f"{digest}  {name}\n")
    return "".join(lines)


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the bytes of each file of a folder."""
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def largest_change(tensors: list[np.ndarray]) -> float:
    """Return by how much rounding to float16 changes a weight at most."""
    return max(float(np.abs(rounded(one) - one).max()) for one in tensors)


def relative_change(tensors: list[np.ndarray]) -> float:
    """Return the length of the change by rounding, as a share of that of the weights."""
    change = sum(float(np.square(rounded(one) - one).sum()) for one in tensors)
    return math.sqrt(change / sum(float(np.square(one).sum()) for one in tensors))


def rounded(tensor: np.ndarray) -> np.ndarray:
    """Return a tensor as float16 holds it."""
    return tensor.astype(np.float16).astype(np.float32)


if __name__ == "__main__":
    main()
