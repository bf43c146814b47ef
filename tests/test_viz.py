"""The picture of a run: its labels can be read."""

import json
from itertools import combinations

import pytest

from minibert import viz


def run_folder(path, stages, steps=12_000):
    """A run with these stages, as (first step, sequence length)."""
    report = {
        "held_out": {"loss": 3.7, "unigram": 6.1},
        "steps": steps,
        "tokens": 2_000 * steps,
        "size": "tiny",
        "stages": stages,
    }
    lines = [{"step": step, "mlm_loss": 6 - 2 * step / steps} for step in range(0, steps, 100)]
    (path / "report.json").write_text(json.dumps(report))
    (path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.mark.parametrize(
    "stages",
    [
        [(0, 128)],
        [(0, 10), (720, 16), (1_200, 32), (3_600, 64)],
        [(0, 10), (100, 16), (200, 32), (300, 64), (11_900, 512)],
    ],
)
def test_lengths_of_short_stages_stand_below_each_other(tmp_path, stages):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figure = viz.draw_run(run_folder(tmp_path, stages), Figure((8, 4.8)))
    figure.canvas.draw()
    labels = [text for text in figure.axes[0].texts if text.get_text().startswith("length")]
    boxes = [text.get_window_extent() for text in labels]
    assert len(boxes) == len(stages)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    tops = {round(box.y1) for box in boxes}
    assert len(tops) == {1: 1, 4: 3, 5: 4}[len(stages)]  # no lower than need be
