"""The views of the explorer, in a browser: what they show, beside NumPy's; what is drawn anew, and when."""

import re

import numpy as np
import pytest
from small_tasks import WORDS, small_config

from minibert import Bert, hub
from minibert.explorer import show
from minibert.model.params import PRETRAINING, Head, initialise
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

PAIR = ("was it dull", "the film is charming and funny")
TEXT = "the charming film was [MASK] and unfunny"
PIECES = (*SPECIAL_TOKENS, *WORDS, "un", "##funny", "##s")
CLOSE = 2e-4  # four decimals are shown


def write_model(folder, head=PRETRAINING, seed=0, labels=(), pieces=PIECES, **more):
    """A random model with weights large enough for attention to be uneven, and as float16 has them."""
    config = small_config(vocab_size=len(pieces), max_position_embeddings=40, initializer_range=0.3, **more)
    params = initialise(config, seed, head=head)
    params.flat[...] = params.flat.astype(np.float16)
    hub.save_hf(folder, config, params, labels)
    Tokenizer([*pieces]).save_pretrained(folder, config.P)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("explorer") / "small")


@pytest.fixture(scope="module")
def path(folder):
    path = folder.parent / "small.html"
    show(folder, text=TEXT).save(path)
    return path


@pytest.fixture
def page(open_page, path):
    page = drawn(open_page(path))
    yield page
    assert not page.errors
    page.context.close()


@pytest.fixture(scope="module")
def model(folder):
    return Bert.from_pretrained(folder, "numpy")


# Playwright's own waiting evaluates strings, which the page's policy forbids. Frames count, not seconds.
WAIT = """() => new Promise((resolve, reject) => {
    const look = (left) => {
        if (window.explorer && explorer.scene && explorer.frame === null && UNTIL) resolve();
        else if (left) requestAnimationFrame(() => look(left - 1));
        else reject(new Error("never drawn"));
    };
    look(3000);
})"""
TRIED = "explorer.scene.effects && explorer.scene.effects.done === explorer.scene.effects.total"


def drawn(page, until="true"):
    """Wait until a page has drawn what its state is, and until something of it holds."""
    page.evaluate(WAIT.replace("UNTIL", until))
    return page


def try_switches(page):
    """Have each switch tried alone, and wait for the last."""
    page.get_by_role("button", name="Try each switch alone").click()
    drawn(page, TRIED)


def counts(page):
    return page.evaluate("({...explorer.counts})")


def forwards(page):
    return counts(page)["forwards"]


def number(text):
    """The number that a cell shows; of a share the fraction."""
    text = text.replace("−", "-")
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def texts(page, selector):
    return page.locator(selector).all_text_contents()


def column(page, rows, place):
    """A column of a table, as numbers."""
    return np.array([number(text) for text in texts(page, f"{rows} > tr > :nth-child({place})") if text])


def choose(page, layer, head):
    page.select_option("#layer", index=layer)
    page.select_option("#head", index=head)
    drawn(page)


def point_at_cell(page, query, key):
    """Move the pointer to a place of the matrix."""
    canvas = page.locator("#matrix canvas")
    n = page.evaluate("explorer.scene.n")
    left = page.evaluate("gridOf(byId('matrix'), explorer.scene.n).gutter")
    cell = (canvas.bounding_box()["width"] - left) / n
    # Once the page, which scrolls smoothly, stands still.
    canvas.hover(position={"x": left + (key + 0.5) * cell, "y": left + (query + 0.5) * cell})
    drawn(page)


# -> scores probabilities (A,n,n) of a layer, as the NumPy model has them
def attention_of(model, text, layer):
    """Compute q·k/√D by itself; the model only tells probabilities."""
    config = model.config
    encoded = model.encode(text, attentions=True)
    one = model.params.tree["layers"][layer]["attention"]
    qkv = encoded.hidden_states[layer] @ one["qkv_weight"] + one["qkv_bias"]
    q, k, _ = qkv.reshape(-1, 3, config.A, config.D).transpose(1, 2, 0, 3)
    return q @ k.swapaxes(1, 2) / np.sqrt(config.D), encoded.attentions[layer][0]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# -> (L+1,V) probabilities at a row, after every layer
def lens(model, text, row):
    tree = model.params.tree
    states = model.encode(text).hidden_states
    each = [
        model.ops.masked_lm_logits(x, [row], tree["mlm"], tree["embeddings"]["word"], model.config)[0]
        for x in states
    ]
    return softmax(np.concatenate(each))


def test_a_page_opens_from_a_file_without_errors_or_requests(page, path):
    try_switches(page)
    page.fill("#text-b", "it was dull")
    drawn(page)
    assert page.requests == [path.as_uri()]
    assert page.locator("#trouble").is_hidden()


def test_pieces_have_their_ids_and_offsets(page, model):
    ids = model.tokenizer(TEXT, special=True).input_ids
    assert texts(page, "#piece-list .piece") == [model.tokenizer.vocab[one] for one in ids]
    assert texts(page, "#piece-list .id") == [str(one) for one in ids]
    spans = texts(page, "#piece-list .span")
    assert spans[0] == spans[-1] == "–"
    assert spans[1] == "0–3" and spans[5] == "22–28" and spans[-3:-1] == ["33–35", "35–40"]


def test_a_word_shows_the_substrings_tried(page):
    word = page.locator("#word-list li").last
    assert word.locator("del").all_text_contents() == ["unfunny", "unfunn", "unfun", "unfu", "unf"]
    assert word.locator("ins").all_text_contents() == ["un", "##funny"]
    page.fill("#text-a", "uno")
    drawn(page)
    word = page.locator("#word-list li").last
    assert word.text_content().split() == ["uno", "uno", "un", "##o", "[UNK]"]


def test_typing_computes_once_an_event_and_redraws(page):
    before, guesses = counts(page), texts(page, "#guess-rows td")
    page.focus("#text-a")
    page.keyboard.press("Control+End")
    for letter in " was":
        page.keyboard.press(letter if letter != " " else "Space")
        drawn(page)
    # A space makes no other pieces, "w" and "wa" are [UNK] both.
    assert forwards(page) - before["forwards"] == 2
    assert texts(page, "#piece-list .piece")[-2] == "was"
    assert texts(page, "#guess-rows td") != guesses


def test_events_of_one_frame_are_computed_together(page):
    before = forwards(page)
    page.evaluate("""() => {
        const box = byId("text-a");
        for (const text of ["the film", "the film is", "the film is dull"]) {
            box.value = text;
            box.dispatchEvent(new Event("input"));
        }
    }""")
    drawn(page)
    assert forwards(page) == before + 1
    assert texts(page, "#piece-list .piece") == ["[CLS]", "the", "film", "is", "dull", "[SEP]"]


# How far below the top of the page things are; of a table that scrolls, its box
PLACES = """() => {
    const topOf = (one) => Math.round(one.getBoundingClientRect().top + scrollY);
    const things = document.querySelectorAll("h2, h3, figure, table:not(.origin), .box-origin, #readout");
    return [...things].map(topOf);
}"""


def test_typing_moves_nothing(page):
    before = page.evaluate(PLACES)
    for text in ["", "a", "the film was " * 12, "unfunny"]:
        page.fill("#text-a", text)
        drawn(page)
        assert page.evaluate(PLACES) == before


def test_positions_stay_with_their_pieces_while_others_are_typed(page):
    page.locator("#piece-list button").nth(3).click()
    page.locator("#switch-words button").nth(7).click()
    drawn(page)
    page.fill("#text-a", "it is " + TEXT)
    drawn(page)
    pieces = texts(page, "#piece-list .piece")
    assert pieces[4:7] == ["charming", "[MASK]", "was"]
    assert page.locator("#switch-words button[aria-checked=false] bdi").all_text_contents() == ["un"]
    assert page.locator("#watched").input_value() == "5"


def test_a_click_hides_a_piece_and_brings_it_back(page, model):
    button = page.locator("#piece-list button").nth(3)
    button.click()
    drawn(page)
    assert button.get_attribute("aria-pressed") == "true"
    hidden = TEXT.replace("film", "[MASK]")
    expected = lens(model, hidden, 3)
    film = model.tokenizer.vocab.index("film")
    assert np.allclose(column(page, "#guess-rows", 7), expected[:, film], atol=1e-3)
    assert page.locator("#original").text_content() == "film"
    button.click()
    drawn(page)
    assert button.get_attribute("aria-pressed") == "false"
    assert texts(page, "#piece-list .piece")[3] == "film"


def test_a_piece_is_hidden_by_keyboard(page):
    page.locator("#piece-list button").first.focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    drawn(page)
    assert texts(page, "#piece-list .piece")[2] == "[MASK]"


def test_guesses_are_those_of_numpy_after_every_layer(page, model):
    expected = lens(model, TEXT, 5)
    rows = page.locator("#guess-rows tr")
    assert rows.count() == model.config.L + 1
    for layer, chances in enumerate(expected):
        best = np.argsort(-chances, kind="stable")[:5]
        cells = rows.nth(layer).locator("td")
        assert cells.locator(".piece").all_text_contents()[:5] == [model.tokenizer.vocab[one] for one in best]
        shown = [number(text) for text in cells.locator(".chance").all_text_contents()[:5]]
        assert np.allclose(shown, chances[best], atol=6e-4)


def test_the_guess_is_told_below_the_text_or_how_to_ask_for_one(page, model):
    said = page.locator("#said")
    chances = lens(model, TEXT, 5)[-1]
    best = np.argsort(-chances, kind="stable")[:3]
    title, guesses = said.text_content().split(": ")
    pieces, shares = zip(*re.findall(r"(\S+) ([\d.]+%)", guesses), strict=True)
    assert title == "Guess at 5 [MASK]"
    assert list(pieces) == [model.tokenizer.vocab[one] for one in best]
    assert np.allclose([number(share) for share in shares], chances[best], atol=6e-4)
    page.fill("#text-a", "the film was dull")
    drawn(page)
    assert said.text_content().startswith("Write [MASK] in the text, or click a piece")
    page.locator("#piece-list button").nth(2).click()
    drawn(page)
    assert said.text_content().startswith("Guess at 2 [MASK]: ")


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("head", [0, 1, 2])
def test_pointing_at_the_matrix_tells_the_query_the_key_and_numpys_numbers(page, model, layer, head):
    scores, probabilities = attention_of(model, TEXT, layer)
    choose(page, layer, head)
    before = forwards(page)
    pieces = texts(page, "#piece-list .piece")
    for query, key in [(0, 3), (3, 0), (7, 8), (9, 1), (5, 5)]:
        point_at_cell(page, query, key)
        assert page.locator("#at-query").text_content() == f"{query} {pieces[query]}"
        assert page.locator("#at-key").text_content() == f"{key} {pieces[key]}"
        shown = number(page.locator("#at-score").text_content())
        assert shown == pytest.approx(scores[head, query, key], abs=CLOSE)
        shown = number(page.locator("#at-probability").text_content())
        assert shown == pytest.approx(probabilities[head, query, key], abs=CLOSE)
    assert forwards(page) == before


# The colours are a scale: the more probable, the less bright.
BRIGHTNESS = """([box, left, top, cell, n]) => {
    const canvas = byId(box).querySelector("canvas");
    const ratio = canvas.width / canvas.clientWidth;
    const context = canvas.getContext("2d");
    const at = (i) => Math.floor(ratio * (i + 0.5) * cell);
    const pixel = (x, y) => context.getImageData(x + ratio * left, y + ratio * top, 1, 1).data;
    return Array.from({length: n * n}, (_, i) => {
        const [r, g, b] = pixel(at(i % n), at(Math.floor(i / n)));
        return r + g + b;
    });
}"""


def assert_pictures(page, place, probabilities):
    """That a picture's cells get darker as the probabilities rise, row by row."""
    n = len(probabilities)
    brightness = np.array(page.evaluate(BRIGHTNESS, [*place, n]), float).reshape(n, n)
    order = np.argsort(probabilities.ravel())
    assert np.ptp(brightness) > 100
    assert np.diff(brightness.ravel()[order]).max() <= 2  # rounding of the three colours


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("head", [0, 1, 2])
def test_the_matrix_pictures_the_chosen_head_queries_in_rows(page, model, layer, head):
    _, probabilities = attention_of(model, TEXT, layer)
    choose(page, layer, head)
    gutter, cell = page.evaluate("Object.values(gridOf(byId('matrix'), explorer.scene.n)).slice(1)")
    assert_pictures(page, ["matrix", gutter, gutter, cell], probabilities[head])


def test_the_map_of_heads_has_layers_in_rows_and_heads_in_columns(page, model):
    side = page.evaluate("thumbnail(byId('heads'), explorer.scene.config)")
    for layer in range(model.config.L):
        _, probabilities = attention_of(model, TEXT, layer)
        for head in range(model.config.A):
            place = ["heads", head * side + 2, layer * side + 2, (side - 4) / len(probabilities[0])]
            assert_pictures(page, place, probabilities[head])


def test_a_click_on_the_map_of_heads_and_arrow_keys_choose_a_head(page, model):
    side = page.evaluate("thumbnail(byId('heads'), explorer.scene.config)")
    page.locator("#heads").click(position={"x": 2.5 * side, "y": 0.5 * side})
    drawn(page)
    assert page.locator("#matrix-caption").text_content().startswith("Layer 1, head 3:")
    for key in ("ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    drawn(page)
    assert page.locator("#matrix-caption").text_content().startswith("Layer 2, head 2:")
    assert page.locator("#layer").input_value() == "1" and page.locator("#head").input_value() == "1"
    scores, _ = attention_of(model, TEXT, 1)
    assert number(page.locator("#at-score").text_content()) == pytest.approx(scores[1, 5, 5], abs=CLOSE)


def test_arrow_keys_walk_over_the_matrix(page, model):
    scores, _ = attention_of(model, TEXT, 0)
    page.focus("#matrix")
    for key in ("ArrowDown", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    drawn(page)
    assert page.locator("#at-query").text_content() == "7 un"
    assert page.locator("#at-key").text_content() == "4 was"
    assert number(page.locator("#at-score").text_content()) == pytest.approx(scores[0, 7, 4], abs=CLOSE)
    page.keyboard.press("Home")
    drawn(page)
    assert page.locator("#at-key").text_content() == "0 [CLS]"


def test_the_probabilities_of_a_query_come_from_its_scores(page, model):
    scores, probabilities = attention_of(model, TEXT, 1)
    choose(page, 1, 2)
    page.locator("#queries li").nth(3).hover()
    drawn(page)
    assert page.locator("#queries .chosen").text_content() == "3 film"
    assert np.allclose(column(page, "#origin-rows", 2), scores[2, 3], atol=CLOSE)
    powers = np.exp(scores[2, 3] - scores[2, 3].max())
    assert np.allclose(column(page, "#origin-rows", 3), powers, atol=CLOSE)
    assert number(page.locator("#exp-sum").text_content()[4:]) == pytest.approx(powers.sum(), abs=CLOSE)
    assert np.allclose(column(page, "#origin-rows", 4), probabilities[2, 3], atol=CLOSE)


def test_query_times_key_sums_to_the_score(page, model):
    scores, _ = attention_of(model, TEXT, 1)
    choose(page, 1, 2)
    page.evaluate("explorer.change({ query: 3, key: 2 })")
    drawn(page)
    told = re.fullmatch(
        r"3 film and 2 \S+: the (\d+) products sum to (\S+); divided by √\1, the score: (\S+)\.",
        page.locator("#product-sum").text_content(),
    )
    width, total, score = (number(text) for text in told.groups())
    assert width == model.config.D
    assert total / np.sqrt(width) == pytest.approx(score, abs=CLOSE)
    assert score == pytest.approx(scores[2, 3, 2], abs=CLOSE)


# Another query, then scrolled to the end: the probabilities that the table shows, before a timer can run
LOOKED = """(query) => {
    const box = document.querySelector(".box-origin");
    const shown = () => [...byId("origin-rows").rows].map((row) => row.cells[3].textContent);
    explorer.change({ query });
    explorer.refresh();
    const top = shown();
    box.scrollTop = box.scrollHeight;
    box.dispatchEvent(new Event("scroll"));
    explorer.refresh();
    return [top, shown()];
}"""

# Keys one after the other, each revealed: the probability in its row of the table, and that beside the matrix
REVEALED = """(pairs) => {
    const box = document.querySelector(".box-origin");
    return pairs.map(([query, key]) => {
        explorer.change({ query, key });
        explorer.refresh();
        box.dispatchEvent(new Event("scroll"));
        explorer.refresh();
        return [byId("origin-rows").rows[key].cells[3].textContent, byId("at-probability").textContent];
    });
}"""


def test_rows_are_written_once_seen_or_after_a_pause(page, model):
    text = "the charming film was [MASK] and dull " * 5
    page.fill("#text-a", text)
    drawn(page)
    _, probabilities = attention_of(model, text, 1)
    choose(page, 1, 2)
    drawn(page, "byId('origin-rows').rows[17].cells[3].textContent")
    seen = [[number(one) for one in shown] for shown in page.evaluate(LOOKED, 20)]
    expected = probabilities[2, 20]
    assert len(expected) == 37
    right = [np.isclose(one, expected, atol=CLOSE) for one in seen]
    assert right[0][:13].all() and not right[0][15:].all()
    assert right[1][-11:].all() and not right[1][15:-15].all()
    drawn(page, f"byId('origin-rows').rows[17].cells[3].textContent === '{100 * expected[17]:.2f}%'")
    assert np.allclose(column(page, "#origin-rows", 4), expected, atol=CLOSE)


def test_the_row_of_the_chosen_key_is_never_stale(page):
    page.fill("#text-a", "the charming film was [MASK] and dull " * 5)
    drawn(page)
    told = page.evaluate(REVEALED, [[2, 36], [2, 3], [9, 36], [9, 3], [9, 35], [4, 20]])
    assert all(row == beside for row, beside in told) and len({row for row, _ in told}) > 3


def test_a_table_pulled_beyond_its_top_is_drawn_all_the_same(page):
    """As Safari lets one do."""
    script = """() => {
        const box = document.querySelector(".box-origin");
        Object.defineProperty(box, "scrollTop", { get: () => -20 });
        box.dispatchEvent(new Event("scroll"));
        explorer.refresh();
        return byId("trouble").hidden;
    }"""
    assert page.evaluate(script)


@pytest.mark.parametrize("query", [2, 7])
def test_lines_lead_from_the_query_to_its_keys_as_wide_as_probable(page, model, query):
    _, probabilities = attention_of(model, TEXT, 1)
    choose(page, 1, 1)
    page.locator("#queries li").nth(query).hover()
    page.locator("#keys li").nth(4).hover()
    drawn(page)
    # Of the two ends of the lines, how many rows of pixels are covered about each piece.
    covered = np.array(
        page.evaluate("""() => [4, -5].map((x) => {
            const canvas = document.querySelectorAll("#lines canvas")[1];
            const {width, height} = canvas;
            const pixels = canvas.getContext("2d").getImageData((x + width) % width, 0, 1, height).data;
            const rows = Array.from({length: height}, (_, y) => pixels[4 * y + 3] / 255);
            const n = explorer.scene.n;
            return Array.from({length: n}, (_, i) => {
                return rows.slice(i * height / n, (i + 1) * height / n).reduce((a, b) => a + b);
            });
        })""")
    )
    expected = 8 * probabilities[1, query]
    expected[4] = max(expected[4], 1.5)
    expected[expected < 8 * 0.002] = 0
    assert np.flatnonzero(covered[0]).tolist() == [query]
    assert np.allclose(covered[1], expected, atol=0.5)
    assert np.ptp(expected) > 2


def test_the_mixture_is_that_of_the_values(page, model):
    _, probabilities = attention_of(model, TEXT, 0)
    choose(page, 0, 1)
    point_at_cell(page, 4, 2)
    one, config = model.params.tree["layers"][0]["attention"], model.config
    x = model.encode(TEXT).hidden_states[0]
    v = (x @ one["qkv_weight"] + one["qkv_bias"]).reshape(-1, 3, config.A, config.D)[:, 2, 1]
    mixture = probabilities[1, 4] @ v
    parts = probabilities[1, 4][:, None] * v
    most = max(abs(parts).max(), abs(mixture).max())
    assert number(page.locator("#strongest").text_content()) == pytest.approx(most, abs=CLOSE)
    # Blue minus red: the sign, and the size.
    shown = page.evaluate("""() => {
        const canvas = byId("mixture").firstChild;
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, 1).data;
        return Array.from({length: canvas.width}, (_, i) => pixels[4 * i + 2] - pixels[4 * i]);
    }""")
    assert np.array_equal(np.sign(shown), np.sign(mixture))


def test_hovering_redraws_the_numbers_and_no_picture(page):
    point_at_cell(page, 1, 1)
    pictures = "[...document.querySelectorAll('#heads canvas, #matrix canvas, #states canvas')]"
    page.evaluate(f"{pictures}.forEach((one) => one.getContext('2d').clearRect(0, 0, 9999, 9999))")
    before = counts(page)
    point_at_cell(page, 1, 6)
    same_query = counts(page)
    point_at_cell(page, 2, 6)
    after = counts(page)
    # Another key: the readout, the list of keys, the line of the key, query times key, its row below.
    assert same_query["redraws"] - before["redraws"] == 5
    # Another query: the readout, the list of queries, its lines, their box, query times key, the table below;
    # of the walk the piece that it shows, and its step.
    assert after["redraws"] - same_query["redraws"] == 8
    assert after["forwards"] == before["forwards"]
    blank = "(one) => one.getContext('2d').getImageData(0, 0, one.width, one.height).data.every((x) => !x)"
    assert page.evaluate(f"{pictures}.every({blank})")


# x (n,H) -> (n,H)
def layer_norm(x, tree, eps):
    return (
        tree["gamma"] * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
        + tree["beta"]
    )


# Of each step of the walk the rows: name -> values
def walk_of(model, text, layer, head, row):
    """Compute a layer from what goes into it, step by step, as the equations of the walk have it."""
    config, tree = model.config, model.params.tree["layers"][layer]
    attention, feed_forward = tree["attention"], tree["feed_forward"]
    encoded = model.encode(text, attentions=True)
    x, columns = encoded.hidden_states[layer], slice(head * config.D, (head + 1) * config.D)
    q, k, v = np.split(x @ attention["qkv_weight"] + attention["qkv_bias"], 3, 1)
    scores, p = (each[:, row] for each in attention_of(model, text, layer))
    y = np.concatenate([p[h] @ v.reshape(-1, config.A, config.D)[:, h] for h in range(config.A)])
    parts = [
        y[h * config.D :][: config.D] @ attention["output_weight"][h * config.D :][: config.D]
        for h in range(config.A)
    ]
    z = sum(parts) + attention["output_bias"]
    a = layer_norm(x[row] + z, attention, config.layer_norm_eps)
    g, _ = model.ops.gelu(a @ feed_forward["in_weight"] + feed_forward["in_bias"], config.gelu_form)
    f = g @ feed_forward["out_weight"] + feed_forward["out_bias"]
    pieces = [
        f"{i} {model.tokenizer.vocab[one]}"
        for i, one in enumerate(model.tokenizer(text, special=True).input_ids)
    ]
    units = np.argsort(-abs(g), kind="stable")[:6]
    added = {f"unit {unit}": g[unit] * feed_forward["out_weight"][unit] for unit in units}
    bias = feed_forward["out_bias"]
    return (
        [
            inputs_of(model, text, row) if layer == 0 else {"x": x[row]},
            {"q": q[row, columns], "k": k[row, columns], "v": v[row, columns]},
            {piece: q[row, columns] * other for piece, other in zip(pieces, k[:, columns], strict=True)},
            dict.fromkeys(pieces),
            dict(zip(pieces, p[head][:, None] * v[:, columns], strict=True)) | {"y": y[columns]},
            {f"head {h + 1}": part for h, part in enumerate(parts)}
            | {"bias": attention["output_bias"], "z": z},
            {"x": x[row], "z": z, "x + z": x[row] + z, "a": a},
            added | {"all others": f - sum(added.values()) - bias, "bias": bias, "f": f},
            {"a": a, "f": f, "a + f": a + f, "h": encoded.hidden_states[layer + 1][row]},
        ],
        scores[head],
        p[head],
        g[units],
    )


def inputs_of(model, text, row):
    encoded, tree = model.tokenizer(text, special=True), model.params.tree["embeddings"]
    parts = {"word": tree["word"][encoded.input_ids[row]], "position": tree["position"][row]}
    parts["segment"] = tree["segment"][encoded.token_type_ids[row]]
    return parts | {"sum": sum(parts.values()), "x": model.encode(text).hidden_states[0][row]}


SEEN_STEP = """() => [
    explorer.scene.step,
    WALK[explorer.scene.step].rows(explorer.scene).map(({ name, values }) => [name, values && [...values]]),
]"""


@pytest.mark.parametrize(("layer", "head", "row"), [(0, 0, 5), (0, 2, 3), (1, 1, 5), (1, 2, 0)])
def test_the_steps_of_the_walk_are_those_of_numpy(page, model, layer, head, row):
    before = forwards(page)
    page.select_option("#walk-layer", index=layer)
    page.select_option("#walk-head", index=head)
    page.select_option("#walk-piece", index=row)
    drawn(page)
    steps, scores, p, activations = walk_of(model, TEXT, layer, head, row)
    for number_of_step, expected in enumerate(steps):
        step, rows = page.evaluate(SEEN_STEP)
        assert step == number_of_step
        assert [name for name, _ in rows] == [*expected] == texts(page, "#walk-rows th")
        for name, values in rows:
            assert values is None or np.allclose(values, expected[name], atol=1e-4), (step, name)
        numbers = texts(page, "#walk-rows .number")
        kind = page.locator("#walk-unit").text_content()
        if kind == "length":
            shown = [np.linalg.norm(values) for values in expected.values()]
        elif kind == "mean ± deviation":
            shown = [float(np.mean(values)) for values in expected.values()]
            spread = [number(text.split(" ± ")[1]) for text in numbers]
            assert np.allclose(spread, [np.std(values) for values in expected.values()], atol=1e-3)
        else:
            shown = {"score": scores, "activation": activations}.get(kind, p)
        figures = [number(text.split(" ± ")[0]) for text in numbers if text]
        assert np.allclose(figures, shown, atol=1e-3)
        if step < 8:
            page.get_by_role("button", name="Next", exact=True).click()
            drawn(page)
    assert forwards(page) == before


def place_in_walk(page):
    drawn(page)
    shown = page.locator("#walk-texts > :visible h3").all_text_contents()
    return (
        page.locator("#walk-layer").input_value(),
        page.locator("#walk-track [aria-current]").text_content(),
        *shown,
    )


def test_the_walk_goes_on_and_back_by_buttons_and_keys_through_all_layers(page):
    back, following = (page.get_by_role("button", name=name, exact=True) for name in ("Back", "Next"))
    assert place_in_walk(page) == ("0", "x", "What comes in")
    assert back.get_attribute("aria-disabled") == "true"
    back.click(force=True)
    assert place_in_walk(page) == ("0", "x", "What comes in")
    following.click()
    assert place_in_walk(page) == ("0", "q, k, v", "Query, key and value")
    page.get_by_role("button", name="output", exact=True).click()
    assert place_in_walk(page) == ("0", "output", "What goes out")
    page.keyboard.press("ArrowRight")
    assert place_in_walk(page) == ("1", "x", "What comes in")
    assert page.evaluate("document.activeElement.textContent") == "x"
    page.keyboard.press("ArrowLeft")
    assert place_in_walk(page) == ("0", "output", "What goes out")
    page.keyboard.press("End")
    assert place_in_walk(page) == ("1", "output", "What goes out")
    assert following.get_attribute("aria-disabled") == "true"


@pytest.mark.parametrize("width", [390, 1280])
def test_sections_keep_their_heights_over_the_steps_of_the_walk(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    # Sections out of sight have their old heights until the page is at rest.
    drawn(page, f"explorer.scene.width === {width} && document.body.className === ''")
    heights = "[...document.querySelectorAll('main > section')].map((one) => one.offsetHeight)"
    before = page.evaluate(heights)
    for _ in range(9):
        page.get_by_role("button", name="Next", exact=True).click()
        drawn(page)
        assert page.evaluate(heights) == before
        assert page.locator(".box-walk").evaluate("(box) => box.scrollWidth - box.clientWidth") <= 0


def test_the_walk_says_what_is_switched_off(page):
    note = page.locator("#walk [data-fact=off]")
    assert note.text_content() == ""
    page.locator("#switch-heads").get_by_role("switch", name="layer 1, head 1", exact=True).click()
    drawn(page)
    assert note.text_content() == "This head is switched off, so that nothing of it is added."
    page.get_by_role("button", name="output projection").click()
    drawn(page)
    assert column(page, "#walk-rows", 3)[0] == 0
    page.locator("#switch-heads").get_by_role("switch", name="layer 1", exact=True).click()
    drawn(page)
    assert note.text_content() == "This layer is switched off, so that nothing of it is added."
    page.get_by_role("button", name="output", exact=True).click()
    drawn(page)
    assert texts(page, "#walk-rows th") == ["h"]


# The picture of a part of the flow: of each pixel its blue less its red
THUMBNAIL = """([row, place]) => {
    const canvas = byId("flow-rows").children[row].querySelectorAll("a")[place].querySelector("canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return [canvas.height, Array.from({length: data.length / 4}, (_, i) => data[4 * i + 2] - data[4 * i])];
}"""


def test_the_flow_pictures_the_numbers_of_every_part(page, model):
    n = page.evaluate("explorer.scene.n")
    inputs = [inputs_of(model, TEXT, row) for row in range(n)]
    parts = [
        (1, i, [each[name] for each in inputs]) for i, name in enumerate(["word", "position", "segment", "x"])
    ]
    for layer in range(model.config.L):
        steps = [walk_of(model, TEXT, layer, 0, row)[0] for row in range(n)]
        parts += [
            (2 + layer, place, [each[step][name] for each in steps])
            for place, step, name in [(1, 6, "a"), (3, 8, "h")]
        ]
    for row, place, expected in parts:
        height, shown = page.evaluate(THUMBNAIL, [row, place])
        expected = np.array(expected)
        assert (height, len(shown)) == (n, expected.size)
        clear = np.abs(expected.ravel()) > 0.1 * np.abs(expected).max()
        assert np.array_equal(np.sign(shown)[clear], np.sign(expected.ravel())[clear]), (row, place)
    best = [chances.argmax() for chances in lens(model, TEXT, 5)]
    notes = texts(page, "#flow-rows .note bdi")
    assert [note.split()[0] for note in notes] == [model.tokenizer.vocab[one] for one in best]


def test_parts_of_the_flow_lead_to_their_sections(page):
    flow = page.locator("#flow-rows")
    flow.get_by_role("link", name="Layer 2: attention").locator("canvas").nth(2).click()
    drawn(page)
    assert page.url.endswith("#attention")
    assert page.locator("#matrix-caption").text_content().startswith("Layer 2, head 3:")
    flow.get_by_role("link", name="Layer 1: feed-forward").click()
    assert place_in_walk(page) == ("0", "feed-forward", "Feed-forward")
    assert page.url.endswith("#walk")
    page.evaluate("explorer.change({ query: 2 })")
    flow.get_by_role("link", name="Layer 2: add & norm").first.focus()
    assert flow.locator("[tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    assert place_in_walk(page) == ("1", "add & norm", "Add and normalize")
    assert page.locator("#walk-piece").input_value() == "5"
    flow.get_by_role("link", name="Layer 2: feed-forward").focus()
    for key in ("ArrowRight", "Enter"):
        page.keyboard.press(key)
    drawn(page)
    assert page.url.endswith("#hidden")
    assert page.locator("#nearest-title").text_content() == "Nearest to 5 [MASK] after layer 2"


def without_head(folder, layer, head):
    """The model with the output weights of one head at zero, which is what switching it off means."""
    model = Bert.from_pretrained(folder, "numpy")
    D = model.config.D
    weight = model.params.tree["layers"][layer]["attention"]["output_weight"]
    weight[head * D : (head + 1) * D] = 0
    return model


def test_a_head_switched_off_changes_the_guess_as_in_numpy(page, folder, model):
    before = forwards(page)
    switch = page.locator("#switch-heads").get_by_role("switch", name="layer 2, head 3", exact=True)
    switch.click()
    drawn(page)
    assert forwards(page) == before + 1
    assert switch.get_attribute("aria-checked") == "false"
    whole = lens(model, TEXT, 5)[-1]
    without = lens(without_head(folder, 1, 2), TEXT, 5)[-1]
    names = [model.tokenizer.vocab.index(name) for name in texts(page, "#effect-rows th")]
    assert names == np.argsort(-np.maximum(whole, without), kind="stable")[:6].tolist()
    assert np.allclose(column(page, "#effect-rows", 2), whole[names], atol=6e-4)
    assert np.allclose(column(page, "#effect-rows", 3), without[names], atol=6e-4)
    assert np.allclose(column(page, "#effect-rows", 4) / 100, (without - whole)[names], atol=6e-4)
    page.get_by_role("button", name="Switch all on").click()
    drawn(page)
    assert switch.get_attribute("aria-checked") == "true"
    assert texts(page, "#effect-rows td:nth-child(3)") == [""] * 6
    assert forwards(page) == before + 1


def test_a_word_switched_off_is_a_key_of_nobody(page):
    page.locator("#switch-words button").nth(2).click()
    drawn(page)
    point_at_cell(page, 4, 2)
    assert page.locator("#at-score").text_content() == "removed"
    assert page.locator("#at-probability").text_content() == "0.00%"
    assert column(page, "#origin-rows", 4).sum() == pytest.approx(1, abs=1e-3)


def test_the_map_tries_each_switch_alone(page, folder, model):
    before = forwards(page)
    try_switches(page)
    n, L, A = page.evaluate("explorer.scene.n"), model.config.L, model.config.A
    assert forwards(page) == before + L + L * A + n
    whole = lens(model, TEXT, 5)[-1]
    best = whole.argmax()
    for layer in range(L):
        for head in range(A):
            change = lens(without_head(folder, layer, head), TEXT, 5)[-1][best] - whole[best]
            text = page.locator("#switch-heads button").nth(layer * (A + 1) + head + 1).text_content()
            assert number(text.removeprefix(str(head + 1)) or "0") == pytest.approx(
                100 * change, abs=0.051 if abs(change) < 0.09 else 0.51
            )
    assert f"“{model.tokenizer.vocab[best]}”" in page.locator("#map-legend").text_content()
    page.fill("#text-a", "the film")
    drawn(page)
    assert set(texts(page, "#switch-heads .change")) == {"on"}


# -> the value as the page writes it; (n) gradient × word embedding, (n) norms of the gradient
def gradient_figures(references, folder, text, row=0, off=None):
    _, params, _ = hub.load(folder)
    encoded = Tokenizer.from_pretrained(folder)(*([text] if isinstance(text, str) else text), special=True)
    ids, types = np.array(encoded.input_ids), np.array(encoded.token_type_ids)
    open_rows = np.flatnonzero(types)[:-1]  # all but the last [SEP]
    reference = references(params, ids, types, row, open_rows, off)
    value, gradient = reference.value_and_gradient()
    written = f"{value:.3f}".replace("-", "−")
    return written, (gradient * reference.words()).sum(1), np.linalg.norm(gradient, axis=1)


def assert_gradient(page, expected):
    """That numbers, colours and titles of all pieces are those expected."""
    value, products, norms = expected
    assert page.locator("#gradient-name").text_content().endswith(f", {value}")
    numbers = np.array([number(text) for text in texts(page, "#gradient-words .change")])
    close = 0.006 * np.abs(products).max()  # three digits of the largest are shown
    assert np.allclose(numbers, products, atol=close)
    blue_less_red = page.evaluate("""() => [...byId("gradient-words").children].map((one) => {
        const [r, g, b] = one.style.background.match(/\\d+/g).map(Number);
        return b - r;
    })""")
    seen = np.abs(products) > 0.02 * np.abs(products).max()
    assert seen.sum() > 3
    assert np.array_equal(np.sign(blue_less_red)[seen], np.sign(products)[seen])
    titles = page.evaluate("[...byId('gradient-words').children].map((one) => one.title)")
    assert np.allclose([number(title.split("norm ")[1]) for title in titles], norms, atol=0.006 * norms.max())
    most = number(page.locator("#gradient-most").text_content())
    assert most == pytest.approx(np.abs(products).max(), abs=close)


def test_the_gradient_of_a_guess_is_numpys_and_changes_with_text_and_switches(page, folder, references):
    assert texts(page, "#gradient-words bdi") == texts(page, "#piece-list .piece")
    assert page.locator("#gradient-name").text_content().startswith("Guess at 5 [MASK]: log-probability of “")
    assert_gradient(page, gradient_figures(references, folder, TEXT, 5))
    page.locator("#switch-heads").get_by_role("switch", name="layer 2, head 3", exact=True).click()
    page.locator("#switch-words button").nth(2).click()
    drawn(page)
    off = {"heads": ["1.2"], "words": [2]}
    assert_gradient(page, gradient_figures(references, folder, TEXT, 5, off))
    page.locator("#switch-heads").get_by_role("switch", name="layer 1", exact=True).click()
    drawn(page)
    assert_gradient(page, gradient_figures(references, folder, TEXT, 5, off | {"layers": [0]}))
    page.get_by_role("button", name="Switch all on").click()
    page.fill("#text-a", "a very [MASK] journey was it")
    drawn(page)
    assert_gradient(page, gradient_figures(references, folder, "a very [MASK] journey was it", 3))
    page.select_option("#watched", index=5)
    drawn(page)
    assert_gradient(page, gradient_figures(references, folder, "a very [MASK] journey was it", 5))


def test_numbers_of_a_piece_are_shown_by_pointer_and_keyboard(page, folder, references):
    _, products, norms = gradient_figures(references, folder, TEXT, 5)
    pieces = texts(page, "#piece-list .piece")

    def assert_told(i):
        drawn(page)
        assert page.locator("#gradient-piece").text_content() == f"{i} {pieces[i]}"
        shown = number(page.locator("#gradient-product").text_content())
        assert shown == pytest.approx(products[i], abs=0.006 * np.abs(products).max())
        shown = number(page.locator("#gradient-norm").text_content())
        assert shown == pytest.approx(norms[i], abs=0.006 * norms.max())
        selected = page.locator("#gradient-words [aria-selected=true]")
        assert selected.get_attribute("title").startswith(f"{i} {pieces[i]}; gradient × embedding ")

    before = counts(page)
    assert_told(5)
    page.locator("#gradient-words button").nth(7).hover()
    assert_told(7)
    page.mouse.move(0, 0)
    assert page.locator("#gradient-words [tabindex='0']").count() == 1
    page.locator("#gradient-words [tabindex='0']").focus()
    for key, place in [("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)]:
        page.keyboard.press(key)
        assert_told(place)
    after = counts(page)
    assert (after["forwards"], after["backwards"]) == (before["forwards"], before["backwards"])


def test_a_keystroke_takes_one_backward_pass_and_pointing_none(page):
    before = counts(page)["backwards"]
    assert before == 1
    page.focus("#text-a")
    page.keyboard.press("Control+End")
    for letter in " was":  # [UNK] with "w", the same with "wa", another piece with "was"
        page.keyboard.press(letter if letter != " " else "Space")
        drawn(page)
    assert counts(page)["backwards"] == before + 2
    page.select_option("#watched", index=2)
    drawn(page)
    assert counts(page)["backwards"] == before + 3
    page.select_option("#watched", index=5)  # whose gradient is known
    point_at_cell(page, 1, 6)
    choose(page, 1, 2)
    page.emulate_media(color_scheme="dark")
    drawn(page, "explorer.scene.dark")
    assert counts(page)["backwards"] == before + 3
    page.locator("#switch-words button").nth(2).click()
    drawn(page)
    assert counts(page)["backwards"] == before + 4
    page.get_by_role("button", name="Switch all on").click()
    try_switches(page)
    assert counts(page)["backwards"] == before + 4


# Text after text, each drawn, and what the page then says of the gradient, before a timer can run
TYPED = """(texts) => {
    for (const text of texts) {
        byId("text-a").value = text;
        byId("text-a").dispatchEvent(new Event("input"));
        explorer.refresh();
    }
    const changes = [...document.querySelectorAll("#gradient-words .change")].map((one) => one.textContent);
    return [explorer.counts.backwards, byId("gradient-name").textContent, ...new Set(changes)];
}"""


def test_a_larger_model_has_its_gradient_once_typing_pauses(open_page, tmp_path, references):
    shape = {"hidden_size": 240, "intermediate_size": 900}
    folder = write_model(tmp_path / "larger", **shape)
    show(folder, text="the film").save(tmp_path / "larger.html")
    page = drawn(open_page(tmp_path / "larger.html"))
    assert counts(page)["backwards"] == 1  # a short text, and the gradient is there at once
    longer = [f"the [MASK] was {word} " + "the film was dull and cold " * 5 for word in ("dull", "a", "cold")]
    assert page.evaluate(TYPED, longer) == [1, "Computed as soon as you pause", "–"]
    drawn(page, "explorer.counts.backwards === 2")
    assert_gradient(page, gradient_figures(references, folder, longer[-1], 2))
    page.evaluate(TYPED, longer[:1])
    page.evaluate(TYPED, ["the film"])
    drawn(page)
    assert page.evaluate("new Promise((done) => setTimeout(() => done(explorer.counts.backwards), 500))") == 3


# What is laid out in and out of sight, and the heights of sections, after a change that no pause follows
LEFT_OUT = """async (query) => {
    explorer.settled = () => {};
    explorer.change({ query });
    for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
    const isLaidOut = (id) => byId(id).checkVisibility({ contentVisibilityAuto: true });
    const heights = [...document.querySelectorAll("main > section")].map((one) => one.offsetHeight);
    return [isLaidOut("piece-list"), isLaidOut("nearest-title"), heights];
}"""


def test_sections_out_of_sight_are_left_out_while_something_changes(page):
    page.evaluate("scrollTo(0, 0)")
    drawn(page, "document.body.className === ''")
    *whole, heights = page.evaluate(LEFT_OUT, page.evaluate("explorer.state.query"))
    assert whole == [True, True]  # nothing has changed
    assert page.evaluate(LEFT_OUT, 2) == [True, False, heights]
    page.evaluate("rested(() => document.body.classList.remove('busy'))()")
    drawn(page, "document.body.className === ''")
    assert page.evaluate(LEFT_OUT, 2) == [True, True, heights]


def test_hidden_states_show_norms_and_the_nearest_pieces(page, model):
    states = model.encode(TEXT).hidden_states
    word = model.params.tree["embeddings"]["word"]
    page.get_by_label("the norms of all pieces").check()
    drawn(page)
    box = page.locator("#states canvas").bounding_box()
    cell, row = box["width"] / len(states[0]), box["height"] / len(states)
    page.locator("#states").click(position={"x": 6.5 * cell, "y": 1.5 * row})
    drawn(page)
    assert page.locator("#states-at").text_content().startswith("after layer 1, norm of 6 and: ")
    shown = page.locator("#states-at").text_content().split(": ")[1].split(";")[0]
    assert number(shown) == pytest.approx(np.linalg.norm(states[1][6]), abs=CLOSE)
    cosines = word @ states[1][6] / np.linalg.norm(word, axis=1) / np.linalg.norm(states[1][6])
    best = np.argsort(-cosines, kind="stable")[:8]
    assert texts(page, "#nearest-rows th") == [model.tokenizer.vocab[one] for one in best]
    assert np.allclose(column(page, "#nearest-rows", 2), cosines[best], atol=1e-3)
    page.locator("#states canvas").hover(position={"x": 2.5 * cell, "y": 2.5 * row})
    shown = page.locator("#states-at").text_content()
    assert shown.startswith(f"after layer 2, norm of 2 charming: {np.linalg.norm(states[2][2]):.4f};")
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    drawn(page)
    assert page.locator("#nearest-title").text_content() == "Nearest to 7 un after layer 2"


def test_the_next_sentence_is_asked_of_a_pair(page, model):
    assert page.locator("#answer-body").text_content() == "Write a text B to ask."
    page.fill("#text-b", "it was dull")
    drawn(page)
    expected = softmax(model.next_sentence_logits((TEXT, "it was dull")))[0]
    assert np.allclose(column(page, "#answer-body tbody", 2), expected, atol=6e-4)


def tuned(tmp_path, kind, outputs, labels):
    """The encoder and the output layer of a fine-tuned model, and its page, which begins with a pair."""
    folder = write_model(tmp_path / kind, Head(kind, outputs), labels=labels)
    path = tmp_path / f"{kind}.html"
    show(folder, text=PAIR[0], text_pair=PAIR[1]).save(path)
    _, params, _ = hub.load(folder)
    encoder = Bert(params.config, params, tokenizer=Tokenizer.from_pretrained(folder))
    return encoder, params.tree["head"], path


def test_classes_have_bars(open_page, tmp_path):
    model, head, path = tuned(tmp_path, "classify", 3, ("bad", "fair", "good"))
    page = drawn(open_page(path))
    pooled = model.encode(PAIR).pooled
    expected = softmax(pooled @ head["weight"] + head["bias"])[0]
    assert texts(page, "#answer-body th") == ["bad", "fair", "good"]
    assert np.allclose(column(page, "#answer-body tbody", 2), expected, atol=6e-4)
    assert page.locator("#guess-rows").is_hidden() and page.locator("#no-guesses").is_visible()
    assert page.locator("#effect-title").text_content() == "Answer"
    best = ("bad", "fair", "good")[expected.argmax()]
    assert page.locator("#said").text_content().startswith(f"Answer: {best} {expected.max():.1%}, ")
    page.locator("#switch-words button").nth(2).click()
    drawn(page)
    assert len(column(page, "#effect-rows", 3)) == 3


def test_a_span_is_marked_in_the_text(open_page, tmp_path):
    model, head, path = tuned(tmp_path, "span", 2, ())
    page = drawn(open_page(path))
    states = model.encode(PAIR).hidden_states[-1]
    begins, ends = softmax((states @ head["weight"] + head["bias"]).T)
    chances = np.triu(np.outer(begins, ends)[5:11, 5:11])
    first, last = np.unravel_index(chances.argmax(), chances.shape)
    marked = " ".join(PAIR[1].split()[first : last + 1])
    assert texts(page, "#answer-body mark") == [marked]
    assert page.locator("#answer-body .marked").text_content() == PAIR[1]


def test_tags_are_written_in_the_text(open_page, tmp_path):
    labels = ("O", "B-PER", "I-PER", "B-LOC")
    model, head, path = tuned(tmp_path, "tag", 4, labels)
    page = drawn(open_page(path))
    states = model.encode(PAIR).hidden_states[-1]
    found = (states @ head["weight"] + head["bias"]).argmax(1)
    words = "was it dull the film is charming and funny".split()
    rows = [1, 2, 3, *range(5, 11)]
    expected = [(word, labels[found[row]]) for word, row in zip(words, rows, strict=True) if found[row]]
    shown = [text.split() for text in texts(page, "#answer-body mark")]
    assert len({label for _, label in expected}) > 1
    assert [(word, label) for word, label, _ in shown] == expected


@pytest.mark.parametrize(("kind", "labels"), [("multilabel", ("warm", "loud")), ("regress", ("score",))])
def test_labels_and_numbers_are_answers(open_page, tmp_path, kind, labels):
    model, head, path = tuned(tmp_path, kind, len(labels), labels)
    page = drawn(open_page(path))
    pooled = model.encode(PAIR).pooled
    logits = (pooled @ head["weight"] + head["bias"])[0]
    if kind == "regress":
        shown = number(page.locator("#answer-body .value").text_content())
        assert shown == pytest.approx(logits[0], abs=1e-3)
    else:
        assert texts(page, "#answer-body th") == ["warm", "loud"]
        assert np.allclose(column(page, "#answer-body tbody", 2), 1 / (1 + np.exp(-logits)), atol=6e-4)


def test_the_slider_shows_the_weights_of_each_checkpoint(open_page, tmp_path):
    folders = [write_model(tmp_path / f"step{seed}", seed=seed) for seed in (1, 2)]
    show(*folders, text=TEXT).save(tmp_path / "steps.html")
    page = drawn(open_page(tmp_path / "steps.html"))
    assert page.locator("#checkpoint-at").text_content().startswith("step2")
    before = forwards(page)
    page.focus("#checkpoint")
    page.keyboard.press("ArrowLeft")
    drawn(page)
    assert page.locator("#checkpoint-at").text_content().startswith("step1")
    assert forwards(page) == before + 1
    model = Bert.from_pretrained(folders[0], "numpy")
    chances = lens(model, TEXT, 5)[-1]
    cell = page.locator("#guess-rows tr").last.locator("td").first
    assert cell.locator(".piece").text_content() == model.tokenizer.vocab[chances.argmax()]
    assert number(cell.locator(".chance").text_content()) == pytest.approx(chances.max(), abs=0.02)  # int8
    _, probabilities = attention_of(model, TEXT, 0)
    shown = number(page.locator("#at-probability").text_content())
    assert shown == pytest.approx(probabilities[0, 5, 5], abs=0.02)


KINDS = [
    ("classify", ("bad", "fair", "good"), "Answer: log-probability of “"),
    ("multilabel", ("warm", "loud"), "Answer: log-probability of “"),
    ("regress", ("score",), "Answer: value, "),
    ("tag", ("O", "B-PER", "I-PER", "B-LOC"), "Tag of 1 was: log-probability of “"),
    ("span", ("start", "end"), "Answer: log-probability that it goes from “"),
]


@pytest.mark.parametrize(("kind", "labels", "begin"), KINDS, ids=[kind for kind, *_ in KINDS])
def test_the_gradient_of_an_answer_is_numpys(open_page, tmp_path, references, kind, labels, begin):
    *_, path = tuned(tmp_path, kind, len(labels), () if kind == "span" else labels)
    page = drawn(open_page(path))
    assert page.locator("#gradient-name").text_content().startswith(begin)
    assert_gradient(page, gradient_figures(references, tmp_path / kind, PAIR, 1))
    page.select_option("#watched", index=7)
    drawn(page)
    assert counts(page)["backwards"] == (2 if kind == "tag" else 1)  # of the text, or of the piece watched
    assert_gradient(page, gradient_figures(references, tmp_path / kind, PAIR, 7))
    assert not page.errors


def test_where_nothing_is_said_there_is_no_gradient(open_page, tmp_path):
    *_, path = tuned(tmp_path, "span", 2, ())
    page = drawn(open_page(path))
    before = page.evaluate(PLACES)
    page.fill("#text-b", "")
    drawn(page)
    assert page.locator("#gradient-name").text_content() == "Write the text that has the answer as text B."
    assert page.locator("#gradient-product").text_content() == ""
    assert page.evaluate(PLACES) == before and counts(page)["backwards"] == 1
    config, params, _ = hub.load(write_model(tmp_path / "whole"))
    hub.save_hf(tmp_path / "none", config, params, omit=["cls.predictions.bias"])
    Tokenizer([*PIECES]).save_pretrained(tmp_path / "none", config.P)
    show(tmp_path / "none", text=TEXT).save(tmp_path / "none.html")
    page = drawn(open_page(tmp_path / "none.html"))
    assert page.locator("#no-gradient").is_visible() and page.locator("#gradient-words").is_hidden()
    assert counts(page)["backwards"] == 0 and not page.errors


EVIL = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


def test_hostile_texts_pieces_and_labels_are_inert(open_page, tmp_path):
    pieces = (*PIECES, "<", ">", "/", "=", "'", "1", "##1", "\u202edlrow", "<img/onerror=hacked>")
    folder = write_model(tmp_path / "<b>evil", Head("classify", 2), 0, (EVIL, "\u202eright to left"), pieces)
    pair = "\x07 \u202e \u2066 a" + "x" * 100_000
    show(folder, text=EVIL, text_pair=pair).save(tmp_path / "evil.html")
    page = drawn(open_page(tmp_path / "evil.html"))
    for text in (EVIL, "x" * 100_000, "\x00\u202e\ud83d film", "\r\n\t"):
        page.evaluate(
            """(text) => {
            byId("text-a").value = text;
            byId("text-a").dispatchEvent(new Event("input"));
        }""",
            text,
        )
        drawn(page)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, script[src], b:has-text('evil')").count() == 0
    assert page.locator("h1").text_content() == "<b>evil"
    first, second = texts(page, "#answer-body th")
    assert EVIL.startswith(first.removesuffix("…")) and second.startswith("⟨U+202E⟩right")
    assert not page.errors


def test_a_long_text_is_cut_and_the_page_says_so(page):
    page.fill("#text-a", "the film was dull " * 30)
    drawn(page)
    assert page.locator("#piece-list button").count() == 40
    assert page.locator("#cut").text_content() == "The page shows the first 40 pieces; 82 more are left out."


def test_dark_and_light_are_drawn_in_their_own_colours(page):
    pixel = "[...byId('matrix').firstChild.getContext('2d').getImageData(300, 300, 1, 1).data]"
    before, light = forwards(page), page.evaluate(pixel)
    page.emulate_media(color_scheme="dark")
    drawn(page, "explorer.scene.dark")
    assert sum(page.evaluate(pixel)) < sum(light)
    assert forwards(page) == before


# rgb (N,3) -> (N)
def luminance(rgb):
    """Relative luminance, by WCAG 2."""
    shares = np.array(rgb) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return linear @ (0.2126, 0.7152, 0.0722)


def test_text_on_every_colour_can_be_read(page):
    pairs = page.evaluate("""() => [true, false].flatMap((dark) => {
        const { amount, sign } = paletteOf(dark);
        const places = Array.from({length: 256}, (_, i) => i / 255);
        return [amount, sign].flatMap((table) => places.map((place) => cssColour(table, place)));
    })""")
    colours = luminance([[int(part) for part in re.findall(r"\d+", pair["colour"])] for pair in pairs])
    texts_on = np.array([{"#000": 0.0, "#fff": 1.0}[pair["text"]] for pair in pairs])
    contrast = (np.maximum(colours, texts_on) + 0.05) / (np.minimum(colours, texts_on) + 0.05)
    assert contrast.min() >= 4.5


def test_a_browser_without_canvas_or_scripts_gets_a_notice(browser, path):
    context = browser.new_context(offline=True)
    context.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    page = context.new_page()
    page.goto(path.as_uri())
    assert "it lacks typed arrays or canvas" in page.locator("#trouble").text_content()
    assert page.locator("#trouble").is_visible()
    context.close()
    context = browser.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert "JavaScript" in page.locator("noscript .trouble").text_content()
    context.close()


def test_a_narrow_window_shows_everything_without_scrolling_sideways(page):
    page.set_viewport_size({"width": 390, "height": 800})
    drawn(page, "explorer.scene.width === 390")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    side = page.locator("#matrix canvas").bounding_box()
    assert side["x"] >= 0 and side["x"] + side["width"] <= 390


def test_a_phone_sees_the_guess_first_and_whole_tables(page):
    page.set_viewport_size({"width": 390, "height": 844})
    drawn(page, "explorer.scene.width === 390")
    last = page.locator("#said .share").last.bounding_box()
    assert last["y"] + last["height"] <= 844
    overhang = "(box) => box.scrollWidth - box.clientWidth"
    assert page.locator(".wide:has(.guesses)").evaluate(overhang) <= 0
    assert page.locator(".box-origin").evaluate(overhang) <= 0


def test_links_to_views_stay_in_sight_and_name_the_one_that_is_read(page):
    page.evaluate("document.getElementById('attention').scrollIntoView({ behavior: 'instant' })")
    page.locator("nav a[href='#attention'][aria-current]").wait_for()
    assert page.locator("nav a[aria-current]").count() == 1
    assert page.locator("nav").bounding_box()["y"] == 0


def test_a_click_tries_a_sentence(page):
    button = page.locator("#examples button").first
    page.locator("#piece-list button").nth(3).click()
    button.click()
    drawn(page)
    assert page.locator("#text-a").input_value() == button.text_content()
    assert page.locator("#piece-list button[aria-pressed=true]").count() == 0


def test_everything_to_use_and_to_see_has_a_name(page):
    unnamed = page.evaluate("""() => {
        const all = document.querySelectorAll("input, select, textarea, button, [tabindex], .canvas");
        const named = (one) => one.getAttribute("aria-label") || one.labels?.length || one.textContent.trim();
        return [...all].filter((one) => !named(one)).map((one) => one.outerHTML.slice(0, 80));
    }""")
    assert unnamed == []
