"""Notebooks and the sources they are made from."""

import jupytext
import pytest
from paths import ROOT

SOURCES = sorted((ROOT / "notebooks").glob("*.py"))


def cells(path):
    """Kind and text of every cell."""
    return [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]


def test_there_are_notebooks():
    assert SOURCES


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_notebook_is_made_from_its_source(source):
    assert cells(source.with_suffix(".ipynb")) == cells(source)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_notebook_shows_what_its_cells_put_out(source):
    code = [cell for cell in jupytext.read(source.with_suffix(".ipynb")).cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    pictures = [output for cell in code for output in cell.outputs if "image/png" in output.get("data", {})]
    assert pictures
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
