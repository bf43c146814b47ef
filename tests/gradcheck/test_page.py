"""The proof sheet as a page: each check with its error, its bound and its source, and a fault that shows."""

import inspect
import math
from pathlib import Path

import pytest
from engines import ENGINES
from html_page import Page, require_own_script
from paths import ROOT

from minibert import cli, engines
from minibert.core.gradcheck.cases import SIZES
from minibert.gradcheck import page
from minibert.gradcheck.page import proof_page, source_of
from minibert.gradcheck.sheet import Row, cases, proof_sheet
from minibert.model.ops import Ops

SOME = ("linear", "tanh", "take_rows", "head_loss")


@pytest.fixture(scope="module")
def rows():
    """Of some operations; made when a test asks for them, as it takes seconds."""
    return proof_sheet([Ops()], {"ugly": SIZES["ugly"]}, operations=SOME)


class Faulty(Ops):
    name = "faulty"

    def tanh_backward(self, dy, saved):
        return 2 * super().tanh_backward(dy, saved)

    def linear_backward(self, dy, saved):
        dx, dweight, dbias = super().linear_backward(dy, saved)
        return dx, dweight, math.nan * dbias


@pytest.mark.thorough
def test_page_needs_no_network_and_has_its_own_script_alone(rows):
    document = proof_page(rows, [Ops()])
    found = Page(document)
    assert document.startswith("<!DOCTYPE html>\n")
    require_own_script(found)
    assert not {"link", "img", "iframe", "object"} & {name for name, _ in found.tags}
    assert not any({"src", "srcset"} & attributes.keys() for _, attributes in found.tags)
    assert "url(" not in document and "@import" not in document and "prefers-color-scheme: dark" in document


@pytest.mark.thorough
def test_every_check_is_in_the_table_and_the_picture(rows):
    found = Page(proof_page(rows, [Ops()]))
    head, *lines = found.rows
    assert head[:2] == ["operation", "backward"]
    cells = {(line[0], check): cell for line in lines for check, cell in zip(head[2:], line[2:], strict=True)}
    assert cells == {
        (row.operation, f"{row.dtype}, {row.size}"): f"{row.error:.1e} ≤ {row.bound:.1e}" for row in rows
    }
    assert (
        len(found.of("circle", **{"class": "ok"})) == len(rows) == len(found.of("path", **{"class": "bound"}))
    )
    assert found.said("b") == [f"✓ {len(rows)} checks, every one within its bound"]
    [picture] = found.of("svg")
    assert picture["role"] == "img" and "none is beyond it" in picture["aria-label"]


def test_planted_fault_is_red_and_crossed_and_named():
    rows = proof_sheet([Faulty()], {"ugly": SIZES["ugly"]}, operations=("linear", "tanh", "gelu"))
    failed = [row for row in rows if row.verdict == "FAIL"]
    assert {row.operation for row in failed} == {"linear", "tanh"}
    found = Page(proof_page(rows, [Faulty()]))
    count = len(failed)
    assert found.said("b")[0] == f"✗ {count} of {len(rows)} checks FAIL"
    assert "linear of faulty, tanh of faulty" in found.said("p")
    assert len(found.of("circle", **{"class": "fail"})) == count
    assert len(found.of("path", **{"class": "fail"})) == 2 * count  # the two strokes of a cross
    assert {"FAIL linear", "FAIL tanh", "gelu erf"} <= {*found.said("text")}
    assert sum(cell.startswith("✗ FAIL") for line in found.rows for cell in line) == count
    assert found.of("svg")[0]["aria-label"].endswith("beyond it: linear, tanh.")


def test_dots_stand_in_the_order_of_their_errors_within_the_picture():
    errors = [0.0, 1e-18, 1e-16, 3e-13, 1e-12, 2.0, math.inf, math.nan]
    rows = [Row("tanh", "numpy", "float64", str(n), error, 1e-12, "ok") for n, error in enumerate(errors)]
    drawn = page.picture(rows)
    places = [x for _, x, *_ in drawn["dots"]]
    assert places == sorted(places) and places[0] == page.LEFT and places[-1] <= page.WIDTH
    assert places[-2] == places[-1] > places[-3]
    [bound] = {points[0][0] for kind, points in drawn["paths"] if kind == "bound"}
    assert bound == pytest.approx(places[4])
    decade = (places[2] - places[1]) / 2
    assert places[4] - places[2] == pytest.approx(4 * decade)  # a log axis


@pytest.mark.parametrize("name", ENGINES)
def test_every_operation_names_the_line_where_its_backward_begins(name):
    engine = engines.create(name)
    for case in cases(SIZES["ugly"]):
        file, number = source_of(engine, case.label)
        line = (ROOT / file).read_text("utf-8").splitlines()[number - 1].strip()
        operation = {"head_loss": "loss", "tagger_loss": "loss"}.get(case.operation, case.operation)
        end = "" if operation == "dropout_mask" else "_backward"
        assert line.startswith((f"def {operation}{end}(", "@")), (case.label, file, number)
    assert source_of(engine, "head_loss cosine dropout")[0] == "minibert/tasks/similarity_losses.py"
    file, number = source_of(Faulty(), "tanh")
    assert (Path(file).name, number) == (Path(__file__).name, inspect.getsourcelines(Faulty.tanh_backward)[1])


def test_gradcheck_writes_a_page_of_several_engines(tmp_path, capsys):
    path = tmp_path / "new" / "proof.html"
    words = "--engine numpy --engine numba --engine numpy --operation tanh --dtype float64 --html".split()
    assert cli.main(["gradcheck", *words, str(path)]) == 0
    said = capsys.readouterr()
    assert "4 checks, every one within its bound" in said.out and str(path) in said.err
    assert Page(path.read_text("utf-8")).said("h2") == ["Engine numpy", "Engine numba"]
    assert [one.name for one in path.parent.iterdir()] == ["proof.html"]
