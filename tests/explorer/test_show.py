"""`minibert.show`: what it takes, and what a notebook has of it."""

import html

import pytest
from small_corpus import write_corpus
from small_tasks import reviews, write_model

import minibert
from minibert import Bert
from minibert.base.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("show") / "small")


def test_a_folder_and_the_model_from_it_give_the_same_page(folder, tmp_path):
    page = minibert.show(folder, text="the film")
    of_model = minibert.show(Bert.from_pretrained(folder), text="the film")
    assert of_model.html.replace(">Bert<", ">small<").replace('"Bert"', '"small"') == page.html
    assert repr(page) == f"Explorer('small', {len(page.html) / 1e6:.1f} MB)"
    assert page.save(tmp_path / "page.html") == (tmp_path / "page.html").stat().st_size
    assert (tmp_path / "page.html").read_text("utf-8") == page.html


def test_a_run_is_shown_with_its_checkpoints(tmp_path):
    corpus, out = str(write_corpus(tmp_path / "text.txt")), tmp_path / "run"
    small = {"vocab_size": 60, "size": "1-8-2", "seq_length": "16", "batch_size": 4, "show": False}
    run = minibert.pretrain(corpus, steps=4, checkpoint_steps=2, keep=0, out=out, **small)
    page = minibert.show(f"{out}@2", run)
    assert page.title == "run" and '"name":"run@2"' in page.html and '"step":null' in page.html


def test_an_estimator_and_the_folder_that_it_saves_give_the_same_page(folder, tmp_path):
    texts, labels = zip(*reviews(40, 1), strict=True)
    classifier = minibert.TextClassifier(folder, engine="numpy", max_steps=2)
    with pytest.raises(InputError, match="This TextClassifier is not fitted yet"):
        minibert.show(classifier)
    classifier.fit(texts, labels).save(tmp_path / "kept")
    page, of_folder = minibert.show(classifier), minibert.show(tmp_path / "kept")
    assert page.title == "TextClassifier" and '["0","1"]' in page.html
    assert page.html.replace("TextClassifier", "kept") == of_folder.html
    classifier = minibert.TextClassifier(folder, engine="numpy", max_steps=2, long="windows", max_length=8)
    message = "This TextClassifier has a head that joins the windows of long texts, which a page can't"
    with pytest.raises(InputError, match=message):
        minibert.show(classifier.fit(texts, labels))


def test_a_notebook_has_it_in_a_frame_where_only_its_own_scripts_run(folder, browser):
    page = minibert.show(folder, text="the film was [MASK]")
    shown = page._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" title="Explorer of small"')
    assert html.unescape(shown.partition('srcdoc="')[2].partition('"')[0]) == page.html
    context = browser.new_context(offline=True)
    tab, errors = context.new_page(), []
    tab.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.set_content(f"<body>{shown}")
    frame = tab.frame_locator("iframe")
    frame.locator("#guess-rows tr").nth(2).wait_for()  # the embeddings and two layers
    assert frame.locator("#piece-list .piece").all_text_contents()[3:5] == ["was", "[MASK]"]
    assert not errors
    context.close()


def test_what_can_not_be_shown_gets_a_sentence(folder):
    with pytest.raises(InputError, match="There is no model to show; give a folder, a Run, a Bert or an est"):
        minibert.show()
    with pytest.raises(InputError, match="text_pair='b' is the second of two texts|second of two texts"):
        minibert.show(folder, text_pair="b")
    model = Bert.from_pretrained(folder)
    with pytest.raises(InputError, match="vocabulary"):
        minibert.show(Bert(model.config, model.params))
