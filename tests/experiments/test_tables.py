"""The paper's tables agree with themselves: figures bear out claims, and titles say what is trained."""

import re

import pytest
from paths import ROOT

from minibert.data.instances import InstanceOptions
from minibert.experiments.scales import SCALES
from minibert.experiments.tables import BERT, MIXES, MODELS, SHARES, TABLES

every_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


@every_table
def test_claims_are_about_rows_and_columns_and_hold_for_the_papers_figures(table):
    rows, columns = {row.title: row for row in table.rows}, {column.name: column for column in table.columns}
    assert len(rows) == len(table.rows) and all(row.model in {BERT, *MODELS} for row in table.rows)
    for claim in table.orderings:
        better, worse = rows[claim.better], rows[claim.worse]
        figures = [row.paper.get(claim.column) for row in (better, worse)]
        if None not in figures:
            is_less = figures[0] < figures[1]
            assert is_less == columns[claim.column].held_out, claim  # a perplexity is better if it is lower
        if better.share != worse.share and better.model == worse.model:
            assert better.share > worse.share


def test_a_row_of_masks_has_the_mix_that_its_title_says():
    rows = {row.title: row.model for row in TABLES["table8"].rows}
    titles = {title: model for title, model in rows.items() if "%" in title}
    assert set(titles.values()) == set(MIXES)
    for title, model in titles.items():
        assert MIXES[model] == tuple(int(share) / 100 for share in re.findall(r"(\d+)%", title))
        assert InstanceOptions(mask_rates=MIXES[model]).mask_rates == MIXES[model]


def test_a_row_of_sizes_has_the_shape_that_its_title_says():
    for row in TABLES["table6"].rows[:-1]:
        shape = "-".join(re.findall(r"\d+", row.title))
        assert row.model == (BERT if shape == "12-768-12" else f"size-{shape}")
        assert row.model == BERT or MODELS[row.model] == {"shape": shape}


def test_a_point_of_the_figure_has_the_share_that_its_title_says():
    rows = TABLES["figure5"].rows[:-1]
    assert [row.share for row in rows] == [int(re.search(r"(\d+)%", row.title)[1]) / 100 for row in rows]
    assert [(row.model, row.share) for row in rows] == [
        (one, share) for one in (BERT, "ltr") for share in SHARES
    ]


def test_the_page_on_experiments_says_what_the_scales_are():
    page = (ROOT / "docs" / "experiments.md").read_text("utf-8")
    for name, scale in SCALES.items():
        [row] = re.findall(rf"^\| `{name}` \| (.*) \|$", page, re.MULTILINE)
        model, pretraining, finetuning, seeds = (cell.replace(",", "") for cell in row.split(" | "))
        layers, width, _ = scale.shapes["12-768-12"].split("-")
        assert model.startswith(f"{layers} layers of {width}") and int(seeds) == scale.seeds
        assert pretraining.startswith(f"{scale.pretraining['steps']} steps")
        every = scale.tasks[""]
        if "train_examples" in every:
            assert finetuning.startswith(f"{every['train_examples']} examples")
        if "dev_examples" in every:
            assert f" and {every['dev_examples']} of dev" in finetuning
        if "tokens" in pretraining:
            longest = scale.pretraining["seq_length"].rpartition(",")[2].partition(":")[0]
            assert pretraining.endswith(f"of {int(longest) * scale.pretraining['batch_size']} tokens")
        if "Table 6" in model:
            shapes = [shape.split("-")[:2] for shape in scale.shapes.values()]
            [smallest, *_, largest] = [" × ".join(shape) for shape in shapes]
            assert model.endswith(f"Table 6 from {smallest} to {largest}")
        if "epochs" in finetuning:
            assert f"{every['epochs']:g} epochs" in finetuning
