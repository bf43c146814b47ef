"""What docs/conf.py does to formulas and pictures, where the libraries of `make docs` are installed."""

import base64
import hashlib
import importlib.util
import json
import logging
import os
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


LIST = """# Models

What there is.

```{eval-rst}
.. currentmodule:: minibert

.. autoclass:: Bert
   :members:
```

## Reading

```{eval-rst}
.. autofunction:: load
.. autoclass:: minibert.verification.Finding
   :members:

.. currentmodule:: minibert.base.errors

.. autoexception:: InputError
```
"""
LISTED = {
    "minibert.Bert": ["minibert.Bert"],
    "minibert.load": ["minibert.load", "minibert.verification.Finding"],
    "minibert.base.errors.InputError": ["minibert.base.errors.InputError"],
}


def app_of(folder):
    """What Sphinx gives to those that it calls, for pages in a folder."""
    return SimpleNamespace(srcdir=str(folder))


def test_directives_have_a_page_each_but_those_that_stand_together(conf, tmp_path):
    folder = tmp_path / "api"
    folder.mkdir()
    (folder / "models.md").write_text(LIST)
    (folder / "minibert.gone.rst").write_text("Gone\n")
    conf.reference.put_pages(app_of(tmp_path), None)
    pages = {path.stem: path for path in folder.glob("*.rst")}
    assert set(pages) == set(LISTED)
    before = "load and Finding\n================\n\n.. currentmodule:: minibert\n\n"
    assert pages["minibert.load"].read_text() == (
        f"{before}.. autofunction:: load\n.. autoclass:: minibert.verification.Finding\n   :members:\n"
    )
    assert ".. currentmodule:: minibert.base.errors\n" in pages["minibert.base.errors.InputError"].read_text()


def test_page_that_has_not_changed_is_not_written_again(conf, tmp_path):
    folder = tmp_path / "api"
    folder.mkdir()
    (folder / "models.md").write_text(LIST)
    conf.reference.put_pages(app_of(tmp_path), None)
    stamped = [(path, os.utime(path, (1, 1))) for path in folder.glob("*.rst")]
    conf.reference.put_pages(app_of(tmp_path), None)
    assert len(stamped) == 3 and all(path.stat().st_mtime == 1 for path, _ in stamped)


def test_tables_take_the_place_of_directives(conf, tmp_path):
    content = [LIST]
    conf.reference.list_names(app_of(tmp_path), "api/models", content)
    assert ":: Bert" not in content[0] and content[0].startswith(
        "# Models\n\nWhat there is.\n\n```{eval-rst}\n"
    )
    tables = re.findall(r"autosummary::\n   :nosignatures:\n\n((?:   \S+\n)+)```\n", content[0])
    assert [table.split() for table in tables] == [
        ["~minibert.Bert"],
        ["~minibert.load", "~minibert.verification.Finding", "~minibert.base.errors.InputError"],
    ]
    assert content[0].endswith("\n".join(["```{toctree}", ":hidden:", *LISTED, "```", ""]))
    content = [LIST]
    conf.reference.list_names(app_of(tmp_path), "python", content)
    assert content == [LIST]


def test_index_of_the_reference_has_each_listed_name_in_order(conf):
    index = (ROOT / "docs" / "api" / "index.md").read_text("utf-8")
    lists = [path.stem for path in (ROOT / "docs" / "api").glob("*.md") if path.stem != "index"]
    assert all(f"]({name}.md)" in index and f"\n{name}\n" in index for name in lists)
    content = [index]
    conf.reference.list_names(app_of(ROOT / "docs"), "api/index", content)
    names = re.findall(r"^   ~(\S+)$", content[0], re.MULTILINE)
    last = [name.rpartition(".")[2].lower() for name in names]
    assert len(names) > 70 and last == sorted(last) and "minibert.Bert" in names


def test_addresses_of_descriptions_lead_to_rows_of_the_list(conf):
    leading = nodes.reference("", "", refuri="minibert.Bert.html#minibert.Bert")
    row = nodes.row("", nodes.entry("", nodes.paragraph("", "", leading)))
    other = nodes.row("", nodes.entry("", nodes.paragraph("", "", nodes.reference(refuri="#a-heading"))))
    conf.reference.keep_addresses(None, nodes.table("", row, other), "api/models")
    assert row["ids"] == ["minibert.Bert"] and other["ids"] == []


def test_page_of_a_class_has_a_table_of_what_it_describes(conf):
    options = SimpleNamespace(members=True, inherited_members=None, exclude_members={"size"})
    assert conf.reference.methods(minibert.BertConfig, options)[:3] == ["from_size", "from_dict", "to_dict"]
    assert "size" not in conf.reference.methods(minibert.BertConfig, options)
    assert "score" in conf.reference.methods(minibert.MultilabelClassifier, options)
    assert "save" not in conf.reference.methods(minibert.MultilabelClassifier, options)
    options.inherited_members = {"object"}
    assert "save" in conf.reference.methods(minibert.MultilabelClassifier, options)
    options.members = ["predict", "score"]
    lines = ["Predict."]
    conf.reference.list_methods(None, "class", "minibert.X", minibert.MultilabelClassifier, options, lines)
    assert lines[0] == "Predict." and lines[-3:] == ["   predict", "   score", ""]


def test_picture_shows_what_the_model_attends_to_and_guesses(conf):
    model = minibert.load("english")
    drawn = conf.picture.draw(conf.picture.read(model, conf.FIRST_SENTENCE))
    encoded = model.encode([conf.FIRST_SENTENCE], attentions=True)
    masked = encoded.tokens.index("[MASK]")
    expected = np.stack([layer[0][:, masked] for layer in encoded.attentions])
    faintest = conf.picture.FAINTEST
    shades = np.array([float(shade) for shade in re.findall(r'fill-opacity="([\d.]+)"', drawn)])
    assert np.abs((shades - faintest) / (1 - faintest) - expected.ravel()).max() < 0.01
    assert re.findall(r'class="piece"[^>]*>([^<]+)<', drawn) == encoded.tokens
    guesses = re.findall(r'class="guess"[^>]*>([^<]+)<', drawn)
    [[best, *_]] = model.fill_mask(conf.FIRST_SENTENCE)
    assert len(guesses) == model.config.L and guesses[-1] == f"{best.token} {best.probability:.0%}"
    assert f"&quot;{best.token}&quot; ({best.probability:.0%}) after layer {model.config.L}" in drawn
    assert len(drawn) < 100_000


def test_landing_page_has_the_picture_of_the_model_and_other_pages_stay(conf):
    landing = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert landing.index("<!-- picture -->") < landing.index('<div class="calls">')
    content = [landing]
    conf.put_picture(None, "index", content)
    assert '```{raw} html\n<figure class="glance">\n<svg' in content[0]
    assert "<!-- picture -->" not in content[0]
    content = ["# Another page"]
    conf.put_picture(None, "another", content)
    assert content == ["# Another page"]


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
