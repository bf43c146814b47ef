"""Small runs in a folder under the rules of Windows (`windows_rules`); prints what has ended well."""

import sys
from pathlib import Path

import windows_rules

windows_rules.hold()

import small_runs  # noqa: E402 (as everything below, it is imported on that "Windows")
import small_tasks  # noqa: E402

import minibert  # noqa: E402
from minibert.base.errors import InputError  # noqa: E402
from minibert.base.files import write_folder_atomically  # noqa: E402
from minibert.course.grading import grade  # noqa: E402
from minibert.finetuning.run import finetune  # noqa: E402
from minibert.pretraining.run import pretrain  # noqa: E402


def main(folder: Path) -> None:
    """Do them all, each into a folder that is there and empty."""
    for name in ("made", "run", "tuned"):
        (folder / name).mkdir()
    write_folder_atomically(folder / "made", lambda place: (place / "file").touch())
    print("folder")
    corpus = folder / "book.txt"
    corpus.write_text("\n\n".join(f"It was day {n}. The sea was calm. No ship came." for n in range(60)))
    pretrain(small_runs.run_options(corpus), folder / "run", show=False)
    print("pretrain")
    pretrain(small_runs.run_options(corpus, steps=8), folder / "run", resume=True, show=False)
    print("resume")
    model = small_tasks.write_model(folder / "model")
    options = small_tasks.small_options(model, small_tasks.write_sst2(folder / "data"), epochs=2)
    finetune(options, folder / "tuned", show=False)
    print("finetune")
    texts, labels = zip(*small_tasks.reviews(40, 1), strict=True)
    minibert.TextClassifier(model, engine="numpy", epochs=1).fit(texts, labels).predict(texts)
    print("fit")
    try:
        grade(folder, seed=0)
    except InputError as error:
        assert "which Windows lacks" in str(error)
        print("grade")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
