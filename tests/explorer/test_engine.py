"""The explorer's scripts in a browser: pieces as Python makes them, hidden states and logits as NumPy."""

import json
import math
import random
from functools import cache
from itertools import accumulate

import numpy as np
import pytest
from paths import TESTS

from minibert import hub
from minibert.ask.inference import Bert
from minibert.core import bert
from minibert.core.batch import Batch, Feature, Sequence
from minibert.core.config import BertConfig
from minibert.core.gradcheck.complex_step import complex_step
from minibert.explorer import packing, show
from minibert.gradcheck.drawn import random_parameters
from minibert.model import heads
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.model.params import PRETRAINING, Head
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer
from minibert.tokenizer.added import AddedToken

GOLDEN = json.loads((TESTS / "golden" / "tokenizer.json").read_text("utf-8"))
TEXTS = [
    *(record["text"] for record in GOLDEN["texts"]),
    "The quick brown fox doesn't jump over the lazy dog; it's [MASK]-ed, $9.99!",
    "漢字假名交じり文、日本語もある。𠀀𫠠 丽",
    "สวัสดีชาวโลก น้ำใจ ก็ได้",
    "السلام عليكم ورحمة الله وبركاته، كَيْفَ حالُك؟",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏿 e\u0301\u0327 q\u0307\u0323",
    "ΟΔΥΣΣΕΥΣ Σ ΑΣ.Β ΑΣ' Σ'Α İstanbul ǅ ﬁ Å Ω",
    "[MASK][CLS] x[SEP]y [mask] [MASK",
    "한국어 \u1112\u1161\u11ab 각\u11a8",
    "a\ud800b \udc00",
    "w" * 201 + " " + "v" * 100_000,
    "",
]
# Where characters are dense that a tokenizer treats in a way of its own.
POOLS = (
    "aAzZ09 .,-'[]#$^`~\t\n\r\x00\x0b\x1c\x7f\x85\xa0\xad",
    "ΣσςΑα'’.:İıſKÅßẞǅ",
    [*map(chr, range(0x300, 0x370)), *"eaoq"],
    [*map(chr, range(0x590, 0x700))],
    [*map(chr, range(0xE00, 0xE80))],
    [*map(chr, range(0xAC00, 0xAC40)), *map(chr, range(0x1100, 0x1200))],
    "一丁丂\u3400\U00020000\U0002b820\U0002b81f\U0002f800\uf900豈カがか\u3099",
    "👩👍🏽\u200d\ufe0f🇫🇷\u200b\u202e\ufeff\ufffd\u2028\u3000\ue000\U000f0000\U0001f9ff",
    [*map(chr, range(0xD7F0, 0xD900))],
    "a\u302e\u302f\U0001d157\U0001d165\U0001d166\U0001d16d\U0001d172",  # marks that stay, and change places
)
KINDS = {
    "uncased": {},
    "cased": {"lower_case": False},
    "accents kept": {"strip_accents": False, "tokenize_chinese_chars": False},
    "accents stripped of cased words": {"lower_case": False, "strip_accents": True},
    "hf-slow, cased": {"lower_case": False, "compat": "hf-slow"},
    "hf-slow": {"compat": "hf-slow", "never_split": ["Hello", "e\u0301"]},
    "hf-fast": {"compat": "hf-fast", "additional_special_tokens": ["[MASK][CLS]"]},
    "short words": {"max_input_chars_per_word": 5, "never_split": ["Zz", "zZ."]},
}
ENCODE = """(given) => {
  const { data, pairs } = given;
  for (const name of ["normalize", "toLowerCase", "toUpperCase", "localeCompare", "toLocaleLowerCase"]) {
    String.prototype[name] = () => { throw new Error(`the browser's own ${name}`); };
  }
  const tokenizer = new Tokenizer(data);
  return pairs.map(([a, b, limit]) => tokenizer.encode(a, b, limit ?? Infinity));
}"""
FORWARD = """([sequences, number]) => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const bert = new Bert(data.checkpoints[number]);
  const plain = (array) => array && Array.from(array);
  return sequences.map(([ids, types, switches]) => {
    const off = {};
    for (const [name, keys] of Object.entries(switches || {})) off[name] = new Set(keys);
    const { n, hidden, layers } = bert.forward(ids, types, off);
    const last = hidden[hidden.length - 1];
    const answer = bert.answer(last);
    return {
      n,
      hidden: hidden.map(plain),
      layers: layers.map((layer) =>
        Object.fromEntries(Object.entries(layer).map(([name, array]) => [name, plain(array)]))),
      lens: bert.lens(hidden, n - 1)?.map(plain) ?? null,
      next: plain(bert.next(last)),
      answer: answer && { kind: answer.kind, logits: plain(answer.logits) },
      nearest: bert.nearest(bert.row(last, 0), 5),
    };
  });
}"""

# Of each sequence, with what is off and the position watched, the number that is shown and its gradient.
GRADIENT = """(sequences) => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const bert = new Bert(data.checkpoints[0]);
  const explorer = { data, counts: { backwards: 0 }, backward: Explorer.prototype.backward };
  return sequences.map(([ids, types, watched, switches]) => {
    const off = {};
    for (const [name, keys] of Object.entries(switches)) off[name] = new Set(keys);
    const run = bert.forward(ids, types, off);
    const { config, task } = bert;
    const encoding = { spans: ids.map((_, i) => [i, i + 1]) };
    const text = { ids, types, watched, encoding, n: ids.length, pieces: ids.map(String) };
    const s = { bert, run, config, task, ...text };
    const { value, dlogits } = derivative(s, outcome(explorer, s, run));
    const dx = explorer.backward(bert, run, dlogits, task ? null : watched);
    const { products, norms } = gradientOf(explorer, s);
    return Object.fromEntries(Object.entries({ sum: run.sum, dx, products, norms })
      .map(([name, array]) => [name, Array.from(array)]).concat([["value", value]]));
  });
}"""


@cache
def random_texts(count, seed=15):
    """Texts of characters that matter, some with any of Unicode."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        characters = [*rng.choice(POOLS), *rng.choice(POOLS)]
        if rng.random() < 0.3:
            characters += [chr(rng.randrange(0x110000)) for _ in range(10)]
        text = "".join(rng.choice(characters) for _ in range(rng.randrange(1, 30)))
        texts.append(text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))
    return texts


@cache
def vocabulary():
    """Pieces of many of the words of all texts, and by no means of all."""
    rng = random.Random(1)
    basic = [Tokenizer(GOLDEN["vocab"], **KINDS[kind]).basic_tokenizer for kind in ("uncased", "cased")]
    pieces = {}
    texts = [text[:300] for text in TEXTS + random_texts(1000)]
    for word in dict.fromkeys(word for text in texts for one in basic for word in one.tokenize(text)):
        begin, end = sorted(rng.choices(range(len(word) + 1), k=2))
        inner = [word[begin:end], word[end:], *word]
        pieces |= dict.fromkeys([word[:begin], *word, *(f"##{part}" for part in inner)])
    kept = (piece for piece in pieces if piece not in ("", "##") and rng.random() < 0.9)
    return list(dict.fromkeys([*SPECIAL_TOKENS, "[MASK][CLS]", *GOLDEN["vocab"], *kept]))


@pytest.fixture(scope="module")
def random_model(tmp_path_factory):
    """Write a model of random weights in general position, with a vocabulary, and return its folder."""

    def made(head=PRETRAINING, labels=(), seed=3, **fields):
        folder = tmp_path_factory.mktemp("models") / "random"
        shape = {"vocab_size": 53, "hidden_size": 21, "num_hidden_layers": 3, "num_attention_heads": 3}
        config = BertConfig(**shape | {"intermediate_size": 37, "max_position_embeddings": 40} | fields)
        parameters = random_parameters(config, np.random.default_rng(seed), head).astype(np.float32)
        hub.save_hf(folder, config, parameters, labels)
        words = [chr(code) for code in range(33, 33 + config.V - len(SPECIAL_TOKENS))]
        Tokenizer([*SPECIAL_TOKENS, *words]).save_pretrained(folder, config.P)
        return folder

    return made


@pytest.fixture(scope="module")
def shown(random_model, open_page, tmp_path_factory):
    """Make a page of such models, and return it in a browser with the weights that it has rounded."""

    def made(folders, **options):
        out = tmp_path_factory.mktemp("pages") / "page.html"
        show(*folders, **options).save(out)
        page = open_page(out)
        each = zip(folders, data_of(page)["checkpoints"], strict=True)
        return page, [rounded(folder, one) for folder, one in each]

    return made


def answer(page, function, given):
    """Call a function of JavaScript; JSON both ways keeps half a pair of surrogates, and is quick."""
    script = f"(given) => JSON.stringify(({function})(JSON.parse(given)))"
    return json.loads(page.evaluate(script, json.dumps(given)))


def data_of(page):
    return json.loads(page.locator("#data").text_content())


def rounded(folder, checkpoint):
    """The model in a folder with weights as the page has them, in float32."""
    config, params, _ = hub.load(folder)
    views = hub.to_hf(params)
    assert checkpoint["tensors"].keys() == views.keys()
    for name, view in views.items():
        view[...] = packing.unpacked(checkpoint["tensors"][name])
    return Bert(config, params, Ops())


def sequences(config, rng, lengths=(1, 2, 7, 32)):
    """Ids and types of some sequences, most of them pairs."""
    found = []
    for n in lengths:
        ids = rng.integers(0, config.V, n).tolist()
        found.append((ids, [int(i >= (n + 1) // 2) for i in range(n)]))
    return found


def assert_close(found, expected, share=1e-4):
    """The largest difference is at most a share of the largest number."""
    expected = np.asarray(expected)
    found = np.array(found, np.float64).reshape(expected.shape)
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()


def as_utf16(text, span):
    """A span of code points, in units of UTF-16."""
    units = [0, *accumulate(1 + (ord(character) > 0xFFFF) for character in text)]
    return [units[span[0]], units[span[1]]]


@pytest.fixture(scope="module")
def any_page(shown, random_model):
    return shown([random_model()])[0]


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_pieces_are_those_of_python(any_page, options):
    texts = [*TEXTS, *random_texts(1000)]
    tokenizer = Tokenizer(vocabulary(), **options)
    data = {"vocabulary": tokenizer.vocab, "tokenizer": packing.packed_tokenizer(tokenizer)}
    pairs = [(text, None, None) for text in texts]
    found = answer(any_page, ENCODE, {"data": data, "pairs": pairs})
    n_unknown = 0
    for text, one in zip(texts, found, strict=True):
        expected = tokenizer.encode_batch([text], offsets=True)[0]
        assert one["ids"] == expected.ids.tolist(), ascii(text)
        assert one["pieces"] == [tokenizer.vocab[i] for i in one["ids"]]
        spans = [as_utf16(text, span) for span in expected.offsets.tolist()]
        assert one["spans"] == [None, *spans[1:-1], None], ascii(text)
        words = [number for number, word in enumerate(one["words"]) for _ in word["pieces"]]
        assert words == expected.word_ids.tolist()[1:-1]
        assert one["cut"] == 0
        n_unknown += one["ids"].count(tokenizer.unk_id)
    total = sum(len(one["ids"]) for one in found)
    assert 0.005 * total < n_unknown < 0.5 * total  # both branches were taken


@pytest.mark.parametrize("split", [False, True])
def test_pieces_of_odd_vocabularies_are_those_of_python(any_page, split):
    """Pieces that come twice, ids without one, and added tokens that no word is cut into."""
    vocab = [*SPECIAL_TOKENS, "$", "the", "", "sea", "##s", "$", "a", "##s", "[", "]", "mask"]
    tokens = AddedToken("xx"), AddedToken("thes"), AddedToken("«Ö»", special=True)
    added = {len(vocab) + n: token._replace(normalized=False) for n, token in enumerate(tokens)}
    tokenizer = Tokenizer(vocab, added_tokens=added, split_special_tokens=split)
    data = {"vocabulary": tokenizer.vocab, "tokenizer": packing.packed_tokenizer(tokenizer)}
    texts = ["the $ seas", "thes Thes axxa", "«Ö»a [MASK]", "", "seaXX $$"]
    found = answer(any_page, ENCODE, {"data": data, "pairs": [(text, None, None) for text in texts]})
    assert [one["ids"] for one in found] == [tokenizer(text).ids.tolist() for text in texts]


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_pieces_are_those_of_hugging_face_on_recorded_texts(any_page, case):
    tokenizer = Tokenizer(GOLDEN["vocab"], lower_case=case == "uncased")
    data = {"vocabulary": tokenizer.vocab, "tokenizer": packing.packed_tokenizer(tokenizer)}
    # To what was recorded, special tokens that are written out are letters.
    texts = [record for record in GOLDEN["texts"] if "[" not in record["text"]]
    pairs = [(record["text"], None, None) for record in texts]
    found = answer(any_page, ENCODE, {"data": data, "pairs": pairs})
    assert [" ".join(one["pieces"][1:-1]) for one in found] == [record[case] for record in texts]


@pytest.mark.parametrize("compat", ["google", "hf-fast"])
def test_pairs_are_cut_as_in_python(any_page, compat):
    tokenizer = Tokenizer(GOLDEN["vocab"], compat=compat)
    data = {"vocabulary": tokenizer.vocab, "tokenizer": packing.packed_tokenizer(tokenizer)}
    a, b, c = TEXTS[0], TEXTS[1], "one two"
    limits = [*range(3, 24), 60, 512]
    pairs = [(x, y, limit) for x, y in [(a, b), (b, a), (a, c), (c, b), (a, None)] for limit in limits]
    found = answer(any_page, ENCODE, {"data": data, "pairs": pairs})
    for (x, y, limit), one in zip(pairs, found, strict=True):
        expected = tokenizer.encode_batch([x], None if y is None else [y], max_length=limit)
        assert one["ids"] == expected[0].ids.tolist()
        assert one["types"] == expected[0].token_type_ids.tolist()
        assert one["cut"] == expected.n_cut[0]


def test_a_word_tells_what_was_looked_up(any_page):
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "un", "##aff", "##able"])
    data = {"vocabulary": tokenizer.vocab, "tokenizer": packing.packed_tokenizer(tokenizer)}
    given = {"data": data, "pairs": [("Unaffable!", None, None)]}
    word, mark = answer(any_page, ENCODE, given)[0]["words"]
    found = [(word["text"][one["begin"] : one["end"]], one["found"]) for one in word["tried"]]
    # No piece has more than six letters.
    expected = "unaffa unaff unaf una un affabl affab affa aff able".split()
    assert found == [(text, text in ("un", "aff", "able")) for text in expected]
    assert (word["begin"], word["end"], word["side"], word["pieces"]) == (0, 9, 0, [1, 2, 3])
    assert (mark["text"], mark["pieces"], [one["found"] for one in mark["tried"]]) == ("!", [4], [False])


MODELS = {
    "float16": {},
    "int8": {"int8": True},
    "GELU by tanh": {"hidden_act": "gelu_new"},
    "left to right": {"is_decoder": True},
    "one head": {"num_attention_heads": 1, "layer_norm_eps": 0.1},
    "a head for each column": {"num_attention_heads": 21, "num_hidden_layers": 1, "vocab_size": 54},
}


@pytest.mark.parametrize("fields", MODELS.values(), ids=MODELS)
def test_hidden_states_and_logits_are_those_of_numpy(shown, random_model, fields):
    fields = dict(fields)
    int8 = fields.pop("int8", False)
    page, [model] = shown([random_model(**fields)], int8=int8)
    config, given = model.config, sequences(model.config, np.random.default_rng(5))
    for (ids, types), found in zip(given, answer(page, FORWARD, [given, 0]), strict=True):
        batch = Batch.pack([Sequence(np.array(ids), np.array(types))])
        expected = model.encode(batch, attentions=True)
        n = found["n"]
        assert n == len(ids)
        for mine, theirs in zip(found["hidden"], expected.hidden_states, strict=True):
            assert_close(mine, theirs)
        for number, layer in enumerate(found["layers"]):
            assert_close(layer["probabilities"], expected.attentions[number][0])
            assert_close(projections(layer, n, config), qkv(model, number, expected.hidden_states[number]))
        for number, (mine, state) in enumerate(zip(found["lens"], expected.hidden_states, strict=True)):
            tree = model.params.tree
            theirs, _ = Ops().masked_lm_logits(
                state, np.array([n - 1]), tree["mlm"], tree["embeddings"]["word"], config
            )
            assert_close(mine, theirs[0]), number
        assert_close(found["lens"][-1], model.masked_lm_logits(batch, [n - 1])[0])
        assert_close(found["next"], model.next_sentence_logits(batch)[0])
        assert found["answer"] is None
    assert page.errors == []


def projections(layer, n, config):
    return np.array([layer[part] for part in "qkv"]).reshape(3, n, config.H)


# x (n,H) -> (3,n,H)
def qkv(model, number, x):
    attention = model.params.tree["layers"][number]["attention"]
    y = x @ attention["qkv_weight"] + attention["qkv_bias"]
    return y.reshape(len(x), 3, -1).swapaxes(0, 1)


def test_scores_are_products_of_queries_and_keys_over_the_root_of_their_length(shown, random_model):
    page, [model] = shown([random_model()])
    [(ids, types)] = sequences(model.config, np.random.default_rng(6), [9])
    [found] = answer(page, FORWARD, [[(ids, types)], 0])
    for number, layer in enumerate(found["layers"]):
        q, k, _ = qkv(model, number, np.array(found["hidden"][number], np.float32).reshape(9, 21))
        heads_of = [part.reshape(9, 3, 7).swapaxes(0, 1) for part in (q, k)]
        assert_close(layer["scores"], heads_of[0] @ heads_of[1].swapaxes(1, 2) / math.sqrt(7))


HEADS = {
    "classify": (Head("classify", 3), "abc"),
    "multilabel": (Head("multilabel", 4), "abcd"),
    "regress": (Head("regress", 1), ()),
    "choice": (Head("choice", 1), ()),
    "span": (Head("span", 2), ()),
    "tag": (Head("tag", 5), "abcde"),
}


@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "left to right"])
@pytest.mark.parametrize(("head", "labels"), HEADS.values(), ids=HEADS)
def test_answers_of_fine_tuned_models_are_those_of_numpy(shown, random_model, head, labels, causal):
    page, [model] = shown([random_model(head, labels, is_decoder=causal)])
    task = data_of(page)["checkpoints"][0]["task"]
    assert task == {"kind": head.kind, "labels": list(labels)}
    given = sequences(model.config, np.random.default_rng(5))
    for (ids, types), found in zip(given, answer(page, FORWARD, [given, 0]), strict=True):
        rows = np.arange(len(ids)) if head.kind == "tag" else None
        feature = Feature([Sequence(np.array(ids), np.array(types))], None, rows)
        batch = TaskBatch.pack_features([feature], head)
        expected = heads.scores_of(Ops(), model.config, head, model.params.tree, batch)
        assert found["answer"]["kind"] == head.kind
        assert_close(found["answer"]["logits"], expected)
        assert found["lens"] is None and found["next"] is None


@pytest.mark.parametrize(
    ("head", "omitted"),
    [
        (PRETRAINING, "bert.pooler.dense.bias"),
        (PRETRAINING, "cls.predictions.transform.dense.weight"),
        (Head("classify", 3), "bert.pooler.dense.weight"),
        (Head("span", 2), "qa_outputs.bias"),
    ],
    ids=["pooler", "masked LM", "pooler of classes", "span"],
)
def test_a_head_of_which_a_part_is_lost_says_nothing(open_page, random_model, tmp_path, head, omitted):
    whole = random_model(head)
    config, params, _ = hub.load(whole)
    hub.save_hf(tmp_path, config, params, omit=[omitted])
    Tokenizer.from_pretrained(whole).save_pretrained(tmp_path, config.P)
    show(tmp_path).save(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    [found] = answer(page, FORWARD, [sequences(config, np.random.default_rng(4), [5]), 0])
    assert (found["next"] is None, found["answer"]) == (head != PRETRAINING or "pooler" in omitted, None)
    assert (found["lens"] is None) == (head != PRETRAINING or "predictions" in omitted)


def test_a_head_switched_off_adds_nothing(shown, random_model):
    folder = random_model()
    page, [model] = shown([folder])
    [(ids, types)] = sequences(model.config, np.random.default_rng(7), [8])
    batch = Batch.pack([Sequence(np.array(ids), np.array(types))])
    whole, cut = answer(page, FORWARD, [[(ids, types), (ids, types, {"heads": ["1.2"]})], 0])
    model.params.tree["layers"][1]["attention"]["output_weight"][14:21] = 0  # rows of head 2 of 3
    expected = model.encode(batch).hidden_states
    for mine, theirs in zip(cut["hidden"], expected, strict=True):
        assert_close(mine, theirs)
    assert whole["hidden"][1] == cut["hidden"][1] and whole["hidden"][2] != cut["hidden"][2]
    for part in ("q", "k", "v", "scores", "probabilities"):  # what the head would have done is to be seen
        assert whole["layers"][1][part] == cut["layers"][1][part]


def test_a_layer_switched_off_hands_on_what_it_gets(shown, random_model):
    page, [model] = shown([random_model()])
    [(ids, types)] = sequences(model.config, np.random.default_rng(7), [8])
    [found] = answer(page, FORWARD, [[(ids, types, {"layers": [1]})], 0])
    batch = Batch.pack([Sequence(np.array(ids), np.array(types))])
    del model.params.tree["layers"][1]
    config = BertConfig(**{**vars(model.config), "num_hidden_layers": 2})
    expected = bert.hidden_states(Ops(), config, (0, 1, 2), model.params.tree, batch)
    assert found["hidden"][2] == found["hidden"][1]
    for mine, theirs in zip([found["hidden"][i] for i in (0, 1, 3)], expected, strict=True):
        assert_close(mine, theirs)


def test_a_word_switched_off_is_seen_by_nobody(shown, random_model):
    page, [model] = shown([random_model()])
    [(ids, types)] = sequences(model.config, np.random.default_rng(7), [8])
    others = [*ids[:3], (ids[3] + 1) % model.config.V, *ids[4:]]
    off = {"words": [3]}
    whole, one, other = answer(page, FORWARD, [[(ids, types), (ids, types, off), (others, types, off)], 0])
    for number in range(4):
        rows = [np.delete(np.reshape(found["hidden"][number], (8, 21)), 3, 0) for found in (one, other)]
        assert np.array_equal(*rows)
    p, q = (np.reshape(found["layers"][0]["probabilities"], (3, 8, 8)) for found in (whole, one))
    without = np.where(np.arange(8) == 3, 0, p)
    assert_close(q, without / without.sum(2, keepdims=True))
    [none] = answer(page, FORWARD, [[(ids, types, {"words": list(range(8))})], 0])
    assert set(none["layers"][0]["probabilities"]) == {0}  # and not NaN


def gradients(page, model, given, off, references):
    """What the page has of some sequences, each with the reference."""
    asked = [(ids, types, min(3, len(ids) - 1), off) for ids, types in given]
    for (ids, types, row, _), found in zip(asked, answer(page, GRADIENT, asked), strict=True):
        yield found, references(model.params, ids, types, row, np.flatnonzero(types), off)


def assert_gradients(page, model, off, references, lengths=(2, 7, 32)):
    given = sequences(model.config, np.random.default_rng(5), lengths)
    for found, reference in gradients(page, model, given, off, references):
        value, expected = reference.value_and_gradient()
        assert found["value"] == pytest.approx(value, rel=1e-4, abs=1e-4)
        assert np.abs(expected).max() > 1e-6
        assert_close(found["dx"], expected)
        assert_close(found["products"], (expected * reference.words()).sum(1))
        assert_close(found["norms"], np.linalg.norm(expected, axis=1))
    assert page.errors == []


@pytest.mark.parametrize("fields", MODELS.values(), ids=MODELS)
def test_gradients_of_guesses_are_those_of_numpy(shown, random_model, references, fields):
    fields = dict(fields)
    int8 = fields.pop("int8", False)
    page, [model] = shown([random_model(**fields)], int8=int8)
    L, A = model.config.L, model.config.A
    head, layer, word = {"heads": [f"{L - 1}.{A - 1}"]}, {"layers": [0] if L > 1 else []}, {"words": [1]}
    for off in ({}, head, layer, word, head | layer | word):
        assert_gradients(page, model, off, references)


@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "left to right"])
@pytest.mark.parametrize(("head", "labels"), HEADS.values(), ids=HEADS)
def test_gradients_of_answers_are_those_of_numpy(shown, random_model, references, head, labels, causal):
    page, [model] = shown([random_model(head, labels, is_decoder=causal)])
    for off in ({}, {"heads": ["1.2", "2.0"], "layers": [0], "words": [1]}):
        assert_gradients(page, model, off, references)


def test_a_gradient_is_the_derivative_by_the_complex_step(shown, random_model, references):
    page, [model] = shown([random_model()])
    off, rng = {"heads": ["0.1"], "layers": [1], "words": [2]}, np.random.default_rng(9)
    [(found, reference)] = gradients(page, model, sequences(model.config, rng, [9]), off, references)
    positions, along = reference.tree["embeddings"]["position"], rng.standard_normal((9, 21))

    def moved(step):
        reference.tree["embeddings"]["position"] = positions[:9] + step * along
        return reference.value_and_gradient()[0]

    dx = np.reshape(found["dx"], (9, 21))
    size = np.linalg.norm(dx) * np.linalg.norm(along)
    assert (dx * along).sum() == pytest.approx(complex_step(moved, 0.0, 1.0), abs=1e-5 * size)


def test_a_gradient_is_orthogonal_to_the_sum_whose_length_is_lost(shown, random_model, references):
    page, [model] = shown([random_model()])
    given = sequences(model.config, np.random.default_rng(5), [7])
    [(found, _)] = gradients(page, model, given, {}, references)
    dx, x = (np.reshape(found[name], (7, 21)) for name in ("dx", "sum"))
    size = np.linalg.norm(dx, axis=1) * np.linalg.norm(x, axis=1)
    # LayerNorm takes out length and mean: hence gradient × input has the word embedding as the input.
    assert np.all(np.abs((dx * x).sum(1)) < 1e-6 * size) and np.all(np.abs(dx.sum(1)) < 1e-6 * size)
    assert np.all(np.abs(found["products"]) > 1e-3 * size)


def test_the_slopes_of_gelu_are_those_of_numpy(any_page):
    points = np.linspace(-9, 9, 3001)
    for form, name in (("erf", "geluErfSlope"), ("tanh", "geluTanhSlope")):
        _, saved = Ops().gelu(points, form)
        found = any_page.evaluate(f"(points) => points.map({name})", points.tolist())
        assert np.allclose(found, Ops().gelu_backward(np.ones(3001), saved, form), atol=1e-9)


def test_the_nearest_pieces_have_the_largest_cosines(shown, random_model):
    page, [model] = shown([random_model()])
    [(ids, types)] = sequences(model.config, np.random.default_rng(8), [5])
    [found] = answer(page, FORWARD, [[(ids, types)], 0])
    words, vector = model.params.tree["embeddings"]["word"], np.array(found["hidden"][-1][:21])
    cosines = words @ vector / np.linalg.norm(words, axis=1) / np.linalg.norm(vector)
    order = np.argsort(-cosines)[:5]
    assert [one["id"] for one in found["nearest"]] == order.tolist()
    assert_close([one["cosine"] for one in found["nearest"]], cosines[order])


def test_every_checkpoint_computes_with_its_own_weights(shown, random_model):
    page, models = shown([random_model(seed=1), random_model(seed=2)])
    given = sequences(models[0].config, np.random.default_rng(5), [6])
    batch = Batch.pack([Sequence(np.array(ids), np.array(types)) for ids, types in given])
    for number, model in enumerate(models):
        [found] = answer(page, FORWARD, [given, number])
        assert_close(found["hidden"][-1], model.encode(batch).hidden_states[-1])


def test_gelu_has_the_error_function_to_float32(any_page):
    points = np.linspace(-9, 9, 3001)
    exact = [0.5 * x * math.erfc(-x * math.sqrt(0.5)) for x in points]
    found = any_page.evaluate("(points) => points.map(geluErf)", points.tolist())
    # In the tail exp multiplies what x^2 is wrong by.
    assert np.all(np.abs(np.array(found) - exact) <= 1e-7 * np.abs(exact))


def test_every_float16_is_decoded(any_page):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    found = np.array(any_page.evaluate("() => Array.from(HALVES)"), np.float64)
    finite = np.isfinite(halves)
    assert np.array_equal(found[finite], halves[finite])
    assert np.array_equal(np.signbit(found[finite]), np.signbit(halves[finite]))
