"""A browser for the explorer's pages, opened from files with the network off; gradients to compare with."""

import shutil

import numpy as np
import pytest

from minibert.core import bert
from minibert.core.batch import Batch, Feature, Sequence
from minibert.core.config import BertConfig
from minibert.model import heads
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops


@pytest.fixture(scope="session")
def browser():
    """Chromium, from the distribution's packages."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on the PATH (Debian, Ubuntu: apt install chromium)")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def open_page(browser):
    """Open a file as `open_page(path)`, offline; `page.errors` and `page.requests` list what goes wrong."""
    contexts = []

    def opened(path, **options):
        contexts.append(browser.new_context(offline=True, **options))
        contexts[-1].set_default_timeout(120_000)  # milliseconds; a busy machine is no failure
        page = contexts[-1].new_page()
        page.errors, page.requests = [], []
        page.on("console", lambda line: page.errors.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(path.resolve().as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


class Removing(Ops):
    """The reference with some keys removed: the probabilities of the others sum to one again."""

    def __init__(self, removed):
        super().__init__()
        self.removed = removed

    def _probabilities(self, q, k, rows, causal):
        p = super()._probabilities(q, k, rows, causal)
        p[..., self.removed] = 0
        return p / p.sum(-1, keepdims=True)


class Reference:
    """What a model says of one sequence, in float64, and its gradient by the backward pass of NumPy.

    `off` has the switches as the page has them; `row` is the position watched, and `open_rows` are those that
    an answer may have.
    """

    def __init__(self, params, ids, types, row=0, open_rows=(), off=None):
        layers, switched, words = ((off or {}).get(name, ()) for name in ("layers", "heads", "words"))
        self.head, params = params.head, params.astype(np.float64)
        self.tree, self.grads = params.tree, params.zeros_like().tree
        D = params.config.D
        for layer, head in (map(int, one.split(".")) for one in switched):
            self.tree["layers"][layer]["attention"]["output_weight"][head * D : (head + 1) * D] = 0
        for tree in (self.tree, self.grads):
            tree["layers"] = [one for number, one in enumerate(tree["layers"]) if number not in layers]
        self.config = BertConfig(**{**vars(params.config), "num_hidden_layers": len(self.tree["layers"])})
        self.ops = Removing([word for word in words if word < len(ids)])
        self.row, self.open_rows = row, open_rows
        self.sequence = Sequence(np.array(ids), np.array(types))

    # -> (n,H)
    def words(self):
        return self.tree["embeddings"]["word"][self.sequence.input_ids]

    # -> the number, complex where the position embeddings are, and the gradient (n,H)
    def value_and_gradient(self):
        if self.head.kind == "pretraining":
            value, grads = self._masked_lm()
        else:
            value, grads = self._task()
        # No two pieces have the same position: that table has the gradient of the sum.
        return value, grads["embeddings"]["position"][: len(self.sequence.input_ids)]

    def _masked_lm(self):
        ops, config, tree, grads = self.ops, self.config, self.tree, self.grads
        x, encoder = bert.encoder(ops, config, tree, Batch.pack([self.sequence]))
        rows, words = np.array([self.row]), tree["embeddings"]["word"]
        logits, _ = ops.masked_lm_logits(x, rows, tree["mlm"], words, config)
        best = logits.real.argmax(-1)
        (nll, _), saved = ops.masked_lm_head(x, rows, best, tree["mlm"], words, config)
        if np.iscomplexobj(nll):
            return -nll[0], grads
        more = tree["mlm"], grads["mlm"], np.zeros_like(words), config
        dx, *_ = ops.masked_lm_head_backward(-np.ones(1), saved, *more)
        return -nll[0], bert.encoder_backward(ops, config, dx, encoder, tree, grads)

    def _task(self):
        kind = self.head.kind
        rows = np.array([self.row]) if kind == "tag" else None
        ask = (self.ops, self.config, self.head)
        scores, saved = heads.logits(*ask, self.tree, self._batch(None, rows))
        if kind in ("regress", "choice"):
            return scores[0, 0], heads.logits_backward(*ask, np.ones((1, 1)), saved, self.tree, self.grads)
        if kind == "multilabel":
            best = np.eye(self.head.outputs)[[scores[0].argmax()]]
            chance = 1 / (1 + np.exp(-(scores * best).sum()))
            dscores = best * (1 - chance)
            return np.log(chance), heads.logits_backward(*ask, dscores, saved, self.tree, self.grads)
        label = self._span(scores) if kind == "span" else scores[0].argmax()
        batch = self._batch([label] if kind == "tag" else label, rows)
        found, saved = heads.loss(*ask, self.tree, batch, span_weight=1)
        grads = heads.loss_backward(*ask, saved, self.tree, self.grads)
        return -found.loss, {"embeddings": {"position": -grads["embeddings"]["position"]}}

    def _batch(self, label, rows):
        return TaskBatch.pack_features([Feature([self.sequence], label, rows)], self.head)

    # scores (n,2) -> first and last position of the likeliest answer
    def _span(self, scores):
        pairs = [(i, j) for i in self.open_rows for j in self.open_rows if i <= j < i + 30]
        return max(pairs, key=lambda pair: scores[pair[0], 0] + scores[pair[1], 1])


@pytest.fixture(scope="session")
def references():
    """Gradients by NumPy, for tests of several files."""
    return Reference
