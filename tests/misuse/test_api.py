"""Misuses of the Python API are answered as the snapshot says, which a person has read.

After a change of wording, `python tests/misuse/test_api.py` writes the snapshot anew.
"""

import contextlib
import importlib.util
import os
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).parent
SNAPSHOT = HERE / "api.txt"
sys.path.append(str(HERE.parent / "support"))

from small_tasks import reviews, write_model  # noqa: E402

import minibert  # noqa: E402


def misuses() -> dict[str, str]:
    """Lines of code by what is wrong with them, of the file beside this one."""
    spec = importlib.util.spec_from_file_location("misuses_of_the_api", HERE / "api.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MISUSES


def answer(code: str, names: dict) -> str:
    """The type and the sentence of the error that a line of code ends with."""
    try:
        eval(code, names)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def answers(folder: Path) -> str:
    """Every misuse with its answer, in a folder that stands as FOLDER."""
    model = write_model(folder / "model")
    texts, _ = zip(*reviews(12, 1), strict=True)
    few, labels = list(texts), ["x", "y"] * 6
    (folder / "empty").mkdir()
    run = folder / "run"
    names = {name: getattr(minibert, name) for name in minibert.__all__ if name[0] != "_"}
    names |= {"minibert": minibert, "MODEL": str(model), "EMPTY": str(folder / "empty"), "RUN": str(run)}
    names |= {"FEW": few, "XY": labels, "WORDS": [text.split() for text in few]}
    blocks = []
    with warnings.catch_warnings(action="ignore"), contextlib.chdir(folder):
        fitted = minibert.TextClassifier(model, engine="numpy", batch_size=16, max_steps=1, out=run)
        names["FITTED"] = fitted.fit(few, labels)
        for what, code in misuses().items():
            said = answer(code, names)
            for place in (os.path.realpath(folder), str(folder)):
                said = said.replace(place, "FOLDER")
            blocks.append(f"{what}\n    {code}\n    {said}\n")
    return "\n".join(blocks)


def test_misuses_of_the_api_are_answered_as_the_snapshot_says(tmp_path):
    assert len(misuses()) >= 40
    given = answers(tmp_path)
    assert "no error" not in given
    assert given == SNAPSHOT.read_text(encoding="utf-8"), (
        "read it; `python tests/misuse/test_api.py` renews it"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        SNAPSHOT.write_text(answers(Path(place)), encoding="utf-8")
