"""What docs/conf.py does to formulas and pictures, where the libraries of `make docs` are installed."""

import base64
import hashlib
import importlib.util
import json
import logging
import re
from types import SimpleNamespace

import english_pack
import numpy as np
import pytest
from paths import ROOT
from small_tasks import write_model

import minibert
from minibert.base import bundled_models

pytest.importorskip("furo")
nodes = pytest.importorskip("docutils.nodes")


@pytest.fixture(scope="module")
def conf():
    spec = importlib.util.spec_from_file_location("conf", ROOT / "docs" / "conf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(conf, text, behind="", kind=nodes.math):
    node = kind("", text)
    nodes.paragraph("", "", node, nodes.Text(behind))
    writer = SimpleNamespace(body=[])
    with pytest.raises(nodes.SkipNode):
        conf.formula(writer, node)
    return re.sub(r"\s*\n\s*", "", writer.body[0])


def test_function_names_keep_a_space_but_to_brackets(conf):
    assert written(conf, r"x\log x").count("<mspace") == 2
    assert written(conf, r"\log x").count("<mspace") == 1
    assert "<mspace" not in written(conf, r"\log(x)")


def test_index_of_an_accented_letter_is_beside_it_and_limits_of_a_sum_are_not(conf):
    accented = re.sub(r"\s+", "", written(conf, r"\hat m_t"))
    assert '<msub><moveraccent="true"><mi>m</mi>' in accented and "<mi>t</mi></msub>" in accented
    assert "msub" not in written(conf, r"\sum_{i}^{n} x", kind=nodes.math_block)


def test_punctuation_stays_with_the_formula(conf):
    assert written(conf, "x", ".").endswith("&#8288;")
    assert written(conf, "x", " is").endswith("</math>")


def test_captions_of_the_sidebar_have_a_level(conf):
    context = {"furo_navigation_tree": '<p class="caption" role="heading">Use</p>'}
    conf.give_captions_a_level(None, "index", "page.html", context, None)
    assert context["furo_navigation_tree"] == '<p class="caption" role="heading" aria-level="2">Use</p>'


def test_formula_that_cannot_be_set_is_named(conf):
    with pytest.raises(RuntimeError, match=r"unheard.*It stands in"):
        conf.formula(SimpleNamespace(body=[]), nodes.math("", r"\unheard"))


@pytest.mark.parametrize(
    ("page", "link", "same"),
    [
        ("results", "../README.md", "path:../README.md"),
        ("results", "../README.md#speed", "path:../README.md"),
        ("log/index", "../../CHANGELOG.md", "path:../../CHANGELOG.md"),
        ("log/index", "../results.md#encoding", "../results.md#encoding"),
        ("index", "results.md", "results.md"),
        ("index", "../nowhere.md", "../nowhere.md"),  # which Sphinx complains of
        ("index", "https://a.example/README.md", "https://a.example/README.md"),
    ],
)
def test_markdown_outside_the_site_is_linked_as_a_file(conf, page, link, same):
    content = [f"See [it]({link})."]
    conf.find_pages_of_the_repository(None, page, content)
    assert content == [f"See [it]({same})."]


@pytest.mark.parametrize("alt", ["a whale", None])
def test_pictures_have_the_text_of_their_outputs(conf, tmp_path, alt):
    picture, notebook = b"not quite a picture", tmp_path / "a.ipynb"
    data = {"image/png": base64.b64encode(picture).decode()}
    metadata = {"image/png": {"alt": alt}} if alt else {}
    notebook.write_text(json.dumps({"cells": [{"outputs": [{"data": data, "metadata": metadata}]}]}))
    app = SimpleNamespace(env=SimpleNamespace(docname="a", doc2path=lambda name: notebook))
    image = nodes.image(uri=f"_build/{hashlib.sha256(picture).hexdigest()}.png")
    tree = nodes.section("", image)
    if alt:
        conf.describe_pictures(app, tree)
        assert image["alt"] == "a whale"
    else:
        with pytest.raises(ValueError, match="without alternative text"):
            conf.describe_pictures(app, tree)


def test_types_of_docstrings_stay_types_and_short_descriptions_stand_below(conf):
    lines = [
        "Join.",
        "",
        "Parameters",
        "----------",
        "first : (N,) float32",
        "    What comes first.",
        "second : the rest.",
    ]
    conf.describe_below(None, "function", "join", None, None, lines)
    assert lines[4:] == ["first : (N,) float32", "    What comes first.", "second", "    the rest."]


def test_page_of_the_api_begins_with_a_table_of_its_names(conf):
    page = """# Models

What there is.

## Reading

```{eval-rst}
.. currentmodule:: minibert

.. autoclass:: Bert
   :members:

.. autofunction:: minibert.api.load

.. currentmodule:: minibert.base.errors

.. autoexception:: InputError
```
"""
    content = [page]
    conf.list_names(None, "api/models", content)
    introduction, table, rest = content[0].partition("```{eval-rst}\n.. autosummary::\n   :nosignatures:\n\n")
    assert table and introduction == "# Models\n\nWhat there is.\n\n"
    names, end, rest = rest.partition("```\n\n")
    assert names.split() == ["~minibert.Bert", "~minibert.api.load", "~minibert.base.errors.InputError"]
    assert page == introduction + rest
    content = [page]
    conf.list_names(None, "python", content)
    assert content == [page]


def test_landing_page_embeds_an_explorer_that_is_written_beside_it(conf, tmp_path, monkeypatch):
    landing = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert f'<iframe class="explorer" src="{conf.EXPLORER}"' in landing
    assert f"*{conf.FIRST_SENTENCE}*" in landing
    monkeypatch.setattr(bundled_models, "FOLDER", tmp_path)
    folder = write_model(tmp_path / "english")
    (folder / bundled_models.DIGESTS_FILE).write_text(english_pack.digests_of(folder))
    app = SimpleNamespace(outdir=str(tmp_path / "html"), builder=SimpleNamespace(format="html"))
    (tmp_path / "html" / "_static").mkdir(parents=True)
    index = tmp_path / "html" / "index.html"
    index.write_text("a page of another site")
    conf.put_explorer(app, None)
    assert not (tmp_path / "html" / conf.EXPLORER).exists()
    index.write_text(landing)
    conf.put_explorer(app, None)
    expected = minibert.show("english", text=conf.FIRST_SENTENCE).html
    assert (tmp_path / "html" / conf.EXPLORER).read_text("utf-8") == expected


def described(conf, *texts):
    """The description of a page with those paragraphs, below each other."""
    section = nodes.section("", nodes.title("", "A page"), *(nodes.paragraph("", text) for text in texts))
    context = {"metatags": ""}
    conf.describe_page(None, "page", "page.html", context, nodes.section("", section))
    return context["metatags"]


def test_pages_are_described_by_their_first_words_and_chapters_by_their_question(conf):
    first = 'Quotes " and <b>\nare text.'
    assert described(conf, first, "More.") == (
        '<meta name="description" content="Quotes &quot; and &lt;b&gt; are text.">\n'
    )
    assert 'content="Why?"' in described(conf, "To run it, install.", "The question. Why?", "Later.")
    assert f'content="{"long " * 31}long …"' in described(conf, "long " * 50)
    context = {"metatags": ""}
    conf.describe_page(None, "search", "search.html", context, None)
    assert context == {"metatags": ""}


def test_commands_are_highlighted_as_a_shells_and_what_they_print_is_not(conf):
    texts = [
        "pip install .           # here\nminibert info",
        "minibert pretrain \\\n  --steps 2\n\n# then\nminibert fill-mask 'a'",
        "minibert fill-mask 'a'\nthe 7%",
        "  the 7%",
    ]
    tree = nodes.section("", *(nodes.literal_block(text, text, language="text") for text in texts))
    python = nodes.literal_block("make = 1", "make = 1", language="python")
    tree += python
    conf.colour_commands(None, tree)
    assert [node["language"] for node in tree] == ["bash", "bash", "text", "text", "python"]


def luminance(colour):
    """Relative luminance of "rrggbb", by WCAG 2."""
    shares = np.array([int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return linear @ (0.2126, 0.7152, 0.0722)


@pytest.mark.parametrize("theme", ["pygments_style", "pygments_dark_style"])
def test_code_can_be_read_on_its_background(conf, theme, monkeypatch):
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)  # the styles' package configures the root
    style = pytest.importorskip("pygments.styles").get_style_by_name(getattr(conf, theme))
    ground = luminance(style.background_color.removeprefix("#"))
    for token, look in style:
        low, high = sorted((luminance(look["color"] or "000000"), ground))
        assert not look["color"] or (high + 0.05) / (low + 0.05) >= 4.5, token
