"""The tables of the experiments for people: figures, verdicts, and nothing of the data that acts."""

import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from html_page import POINTER

from minibert.data.glue import TASKS
from minibert.experiments import page
from minibert.experiments.cells import Plan
from minibert.experiments.judged import Judged, judge
from minibert.experiments.plots import drawn
from minibert.experiments.runner import Results
from minibert.experiments.scales import SCALES
from minibert.experiments.tables import TABLES, Row
from minibert.experiments.verdicts import Estimate, Judge, Outcomes, Verdict
from minibert.reports.markup import TEMPLATES

HOSTILE = "<script>alert(1)</script> | & \"'\x1b[31m"
ANSWERS = ("yes", "no", "undecided", "at the floor")
INF = math.inf


def estimate(row, place, held_out):
    """One seed for the last row, a missing result now and then, intervals for the rest."""
    value = 9.5 - 0.4 * row if held_out else 0.45 + 0.03 * row + 0.01 * place
    half = (0.31 if held_out else 0.013) * (1 + row % 3)
    return Estimate(value, value - half, value + half, (value - half / 2, value + half / 2))


def judged_of(name):
    table = TABLES[name]
    found = Judged(
        table, list(table.columns), {}, {}, {}, [], {"ltr+bilstm/names/seed1": "It diverged."}, (0, 1)
    )
    for place, column in enumerate(table.columns):
        held_out = column.held_out
        found.titles[column.name] = f"{column.name} (made from the books)"
        if not held_out:
            found.baselines[column.name] = "always 'O'", 0.42
        for row, one in enumerate(table.rows):
            if (row, place) != (1, 1):  # no result
                found.estimates[one.title, column.name] = estimate(row, place, held_out)
    one = Estimate(0.612, -INF, INF, (0.612,))
    found.estimates[table.rows[-1].title, table.columns[-1].name] = one
    for place, ordering in enumerate(table.orderings):
        found.verdicts.append((ordering, Verdict(ANSWERS[place % 4], 0.0712, 0.051, 0.09, 0.033)))
    ordering = found.verdicts[-1][0]
    found.verdicts[-1] = ordering, Verdict("undecided", -0.01, -INF, INF, INF)
    return found


@pytest.fixture
def plan(tmp_path):
    return Plan(tmp_path, SCALES["smoke"])


def results_of(plan, seconds=90.0):
    found = Results(plan.out, [])
    trained = {"parameters": 1234567, "tokens": 10240, "steps": 40, "loss": 6.5}
    dev = {"baseline": "always 'O'", "dev": {"kind": "mean", "values": "0110"}}
    for cell, kind, result in (
        ("bert/seed0", "pre-training", trained),
        ("ltr/seed0", "pre-training", {"failed": "It diverged."}),
        ("baseline/pair", "baseline", dev),
    ):
        found.lines[cell] = {"cell": cell, "settings": 1, "result": result}
        found.times[cell] = {"cell": cell, "kind": kind, "work": 1.0, "seconds": seconds, "cores": 2}
    return found


class Read(HTMLParser):
    """Tags, text and where pages lead."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words += data


def test_the_table_of_a_terminal():
    lines = page.table_text(judged_of("table5")).splitlines()
    assert max(map(len, lines)) <= 110
    bert = next(at for at, line in enumerate(lines) if line.startswith("BERT "))
    assert lines[bert].split()[1:5] == ["45.0", "±1.3", "46.0", "±1.3"]
    assert lines[bert + 1].split() == ["(84.4)", "(88.4)", "(86.7)", "(92.7)", "(88.5)"]
    assert lines[bert + 2].split()[2:6] == ["48.0", "±2.6", "-", "50.0"]  # no result
    untrained = next(line for line in lines if line.startswith("Untrained"))
    assert untrained.split()[-1] == "61.2"  # of one seed
    assert next(line for line in lines if line.startswith("Trivial")).split()[2:] == ["42.0"] * 6
    text = "\n".join(lines)
    assert "BERT > No NSP on MNLI-m (paper 84.4 > 83.9): yes, +7.1 [5.1, 9.0]" in text
    assert "Given up: ltr+bilstm/names/seed1. It diverged." in text
    assert "mnli: mnli" not in text and "MNLI-m (acc): mnli (made from the books)" in text


COLUMNS = ("mnli", "mnli-mm", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
TABLE_1 = {  # of Devlin et al. 2018 (v1), and the average that is printed there
    "Pre-OpenAI SOTA": ([80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7], 74.0),
    "BiLSTM+ELMo+Attn": ([76.4, 76.1, 64.8, 79.9, 90.4, 36.0, 73.3, 84.9, 56.8], 71.0),
    "OpenAI GPT": ([82.1, 81.4, 70.3, 88.1, 91.3, 45.4, 80.0, 82.3, 56.0], 75.2),
    "BERT BASE": ([84.6, 83.4, 71.2, 90.1, 93.5, 52.1, 85.8, 88.9, 66.4], 79.6),
    "BERT LARGE": ([86.7, 85.9, 72.1, 91.1, 94.9, 60.5, 86.5, 89.3, 70.1], 81.9),
}


@pytest.mark.parametrize("system", TABLE_1)
def test_the_average_of_table_1_is_that_of_its_nine_columns(system):
    numbers, average = TABLE_1[system]
    figures = {(system, name): x / 100 for name, x in zip(COLUMNS, numbers, strict=True)}
    estimates = {place: Estimate(x, x, x, (x,)) for place, x in figures.items()}
    table = TABLES["table1"]._replace(rows=(Row(system, "bert"),))
    found = Judged(table, [], {}, estimates, {}, [], {}, (0,))
    assert found.average() == f"Average of {', '.join(COLUMNS)}: {system} {average}"


def test_the_average_is_without_wnli_and_of_rows_that_have_all_columns():
    counted = TASKS.keys() - {"wnli", "ax", "mnli-mm"}
    assert {column.name for column in TABLES["table1"].columns} == counted
    names, found = judged_of("table1").average().split(": ")
    assert names == "Average of mnli, qqp, qnli, sst2, cola, stsb, mrpc, rte"
    assert found == "BERT 48.5, trivial baseline 42.0"  # Untrained lacks a result
    assert [name for name, table in TABLES.items() if table.averaged] == ["table1"]


def test_perplexities_are_no_percentages():
    text = page.table_text(judged_of("table6"))
    assert "9.50 ±0.31" in text and "(5.84)" in text
    assert "3 × 768, 12 heads on LM (paper 4.68 < 5.84, ours in nats): yes, +0.071 [0.051, 0.090]" in text


def test_equal_numbers_of_the_paper_are_called_equal():
    ordering = TABLES["table5"].orderings[0]._replace(worse="BERT")
    found = judged_of("table5")._replace(verdicts=[(ordering, Verdict("no", -0.1, -0.2, -0.05, 0.1))])
    assert "BERT > BERT on MNLI-m (paper 84.4 = 84.4): no, -10.0 [-20.0, -5.0]" in page.table_text(found)


def test_the_page_says_all(plan):
    path = page.write(plan.out, plan, results_of(plan), [judged_of(name) for name in TABLES])
    read = Read(path.read_text())
    facts = (
        "1,234,567",
        "10,240",
        "12-768-12",
        "made from the books",
        "always 'O'",
        "no result",
        "It diverged.",
    )
    for words in (*ANSWERS, *facts, "minibert reproduce table1 table5", "not the end of a shorter run"):
        assert words in read.words
    given = [verdict.answer for name in TABLES for _, verdict in judged_of(name).verdicts]
    for answer in ANSWERS:
        assert given.count(answer) == read.attributes.count(("class", f"verdict {answer}")) > 0
    sentence = "BERT > No NSP on MNLI-m (paper 84.4 > 83.9): yes, +7.1 [5.1, 9.0] (next sentences help"
    assert sentence in read.words  # with its answer once
    shown = sum(len(table.columns) for table in TABLES.values())
    assert read.tags.count("svg") == shown == read.attributes.count(("role", "img"))
    assert read.tags.count("script") == 1 and POINTER in read.words
    assert not {"link", "img", "iframe"} & set(read.tags)
    assert not [value for name, value in read.attributes if name in ("src", "href")]
    assert not re.search(r"\b(nan|inf)\b", path.read_text())


def test_the_same_results_make_the_same_bytes(plan):
    found = [judged_of("table5"), judged_of("figure5")]
    texts = []
    for seconds in (90.0, 90.0, 1800.0):
        path = page.write(plan.out, plan, results_of(plan, seconds), found)
        texts.append((path.read_bytes(), (plan.out / "tables.txt").read_bytes()))
    assert texts[0] == texts[1]
    assert texts[0][0] != texts[2][0] and texts[0][1] == texts[2][1]  # times are on the page alone


def test_hostile_names_are_text(plan):
    found = judged_of("table5")
    table = found.table._replace(
        title=HOSTILE, note=HOSTILE, rows=(found.table.rows[0]._replace(title=HOSTILE),)
    )
    columns = [one._replace(title=HOSTILE) for one in found.columns]
    estimates = {(HOSTILE, one.name): estimate(0, 0, False) for one in columns}
    titles, baselines = {one.name: HOSTILE for one in columns}, {one.name: (HOSTILE, 0.3) for one in columns}
    found = Judged(table, columns, titles, estimates, baselines, [], {HOSTILE: HOSTILE}, (0,))
    text = page.write(plan.out, plan, results_of(plan), [found]).read_text()
    assert Read(text).tags.count("script") == 1 and "\x1b" not in text
    assert "alert(1)" in Read(text).words
    assert "\x1b" not in Path(plan.out, "tables.txt").read_text()


def test_a_table_without_results(plan):
    found = Judged(TABLES["table8"], list(TABLES["table8"].columns), {}, {}, {}, [], {}, (0,))
    assert "Trivial baseline" in page.table_text(found)
    assert "<svg" not in page.write(plan.out, plan, Results(plan.out, []), [found]).read_text()


def test_what_was_left_out_is_on_page_and_in_text(plan):
    ordering = TABLES["table5"].orderings[1]
    found = judged_of("table5")
    found.verdicts.clear()
    columns = [one for one in found.columns if one.name != "qnli"]
    why = "no files of its own, left out"
    found = found._replace(columns=columns, left_out={"QNLI (acc)": why}, not_run=[(ordering, why)])
    read = Read(page.write(plan.out, plan, results_of(plan), [found]).read_text())
    for text in (read.words, page.table_text(found)):
        assert f"BERT > No NSP on QNLI (paper 88.4 > 84.9): not run, {why}" in text
        assert f"QNLI (acc): {why}" in text
    assert read.attributes.count(("class", "verdict not run")) == 1


def test_the_same_trainings_are_judged_alike_in_every_table(plan):
    results, rng = Results(plan.out, []), np.random.default_rng(0)
    column = next(one for one in TABLES["table5"].columns if one.name == "mnli")
    for model in ("bert", "no-nsp", "ltr"):
        for seed in range(2):
            values = (rng.random(400) < 0.6 + 0.1 * rng.random()).astype(int)
            dev = {"dev": {"kind": "mean", "values": "".join(map(str, values))}}
            name = plan.finetuning_name(Row("", model), column, seed)
            results.lines[name] = {"cell": name, "settings": 1, "result": dev}
    five, six = (judge(plan, TABLES[name], results, range(2)) for name in ("table5", "figure5"))
    ends = six.estimates["MLM, 100% of the steps", "mnli"], six.estimates["LTR, 100% of the steps", "mnli"]
    assert ends == (five.estimates["BERT", "mnli"], five.estimates["LTR & No NSP", "mnli"])
    alone = {
        name: {n: Outcomes.from_json(results.lines[f"{name}/pair/seed{n}"]["result"]["dev"]) for n in (0, 1)}
        for name in ("bert", "ltr")
    }
    assert Judge(alone).estimate("bert") != ends[0]  # which no-nsp has a part in


def test_the_paper_is_named_where_it_has_a_figure(plan):
    for name, expected in (("table8", True), ("figure5", False)):
        found = judged_of(name)
        text = page.write(plan.out, plan, results_of(plan), [found]).read_text()
        assert ("(the paper's)" in text) == ("(the paper's)" in page.table_text(found)) == expected


def test_figure_5_has_an_untrained_bert_as_a_level_line():
    found = judged_of("figure5")
    picture = drawn(found, found.columns[0])
    [points] = [points for kind, points in picture["paths"] if kind == "curve2"]
    assert len(points) == 2 and points[0][1] == points[1][1] and points[0][0] < points[1][0]
    assert [text for *_, text in picture["texts"]].count("Untrained") == 1


@pytest.mark.parametrize(("unigram", "is_far"), [(870.0, True), (11.0, False), (2.0, False)])
def test_a_baseline_far_away_does_not_squeeze_what_was_found(unigram, is_far):
    found = judged_of("table6")
    [column] = [one for one in found.columns if one.held_out]
    found.baselines[column.name] = "unigram", unigram
    picture = drawn(found, column)
    across = [x for kind, x, *_ in picture["dots"] if kind == "ours"]
    assert max(across) - min(across) > 100
    [text] = [text for *_, text in picture["texts"] if text.startswith("unigram")]
    assert text == f"unigram: {unigram:.2f}" + " (off the scale)" * is_far


def test_a_single_point_has_an_axis_whose_numbers_differ():
    found = judged_of("table8")
    [column] = [one for one in found.columns if one.name == "ner"]
    for row in found.table.rows[1:]:
        found.estimates.pop((row.title, column.name), None)
    kept = found.estimates[found.table.rows[0].title, column.name]
    kept = kept._replace(value=0.768, seeds=[0.768], low=math.nan, high=math.nan)
    found.estimates[found.table.rows[0].title, column.name] = kept
    found.baselines.pop(column.name, None)
    picture = drawn(found, column)
    numbers = [text for _, _, anchor, text in picture["texts"] if anchor == "middle"]
    assert len(set(numbers)) == len(numbers) > 2
    assert float(numbers[0]) < 76.8 < float(numbers[-1])


def test_pages_share_the_head_and_style_of_the_others(plan):
    text = page.write(plan.out, plan, results_of(plan), [judged_of("table5")]).read_text()
    assert text.startswith("<!DOCTYPE html>") and text.count("<style>") == text.count("<h1>") == 1
    for name in ("experiments.html.j2", "proof_sheet.html.j2"):
        source = (TEMPLATES / name).read_text()
        assert source.startswith('{% extends "page.html.j2" %}') and "<head>" not in source
