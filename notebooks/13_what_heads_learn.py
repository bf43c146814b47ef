# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 13 · What heads learn
#
# To run this notebook: `pip install '.[notebooks]'` from a checkout of minibert. It takes about two minutes, most of them
# in the first section.
#
# **The question.** Papers show pictures of attention and give names to heads. What does it take to say honestly that a
# head does something, that a vector contains something, or that a weight explains something?
#
# **After this chapter you can**
#
# * name a head by a measurement that another head could have failed;
# * make a head fall silent, and say with an interval what that costs;
# * test what a vector contains, and tell that from what the test itself has learnt by heart;
# * change attention weights without changing the prediction, and say what follows from that.
#
# It needs no exercises from other chapters. If you have written `attention` in chapter 04 and the blocks in chapter 07,
# it is your engine that is examined here.

# %%
# %matplotlib inline
import dataclasses
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from minibert import Tokenizer, course, hub
from minibert.core.batch import Batch, Sequence
from minibert.core.bert import attention_maps, hidden_states
from minibert.core.ops.blocks import layer_sites
from minibert.core.optim import AdamW, warmup_linear
from minibert.core.step import MaskedAndNext
from minibert.data.corpus import embedded_corpus, sentences
from minibert.engines import create, limited_threads
from minibert.model.params import Parameters, initialise
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain
from minibert.reports import viz
from minibert.tasks.metrics import bootstrap
from minibert.tokenizer import BasicTokenizer
from minibert.training.step import start

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
limits = limited_threads(1)  # several threads are slower with matrices this small
lesson = course.begin("13")

# %% [markdown]
# ## 1. A BERT to look into
#
# The next cell trains a small one with minibert's fast engine: three layers of four heads. If you have done chapter 10,
# you can look into your own instead: give `"my_bert", 8`, its folder and the length that it was trained on. Every fifth
# chapter of the books is kept aside, and everything below is measured on those.

# %%
GIVEN, n = None, 32  # or the path of a folder, and how many tokens its windows should have

# %%
documents = [[]]
for line in sentences([embedded_corpus()]):
    if line:
        documents[-1].append(line)
    else:
        documents.append([])
held_out = documents[2::5]

if GIVEN:
    folder = Path(GIVEN)
else:
    work = Path(tempfile.mkdtemp())
    folder = work / "small"
    reading = ["\n".join(one) for number, one in enumerate(documents) if number % 5 != 2]
    (work / "reading.txt").write_text("\n\n".join(reading), encoding="utf-8")
    options = PretrainOptions(
        corpus=str(work / "reading.txt"), layout="sentences", size="3-64-4", vocab_size=lesson.scale(2_048, 600),
        steps=lesson.scale(900, 30), seq_length=f"10:0.6,{n}:0.4", batch_size=lesson.scale(64, 16),
        learning_rate=4e-3, next_sentence=False, evaluations=0, threads=1,
    )  # fmt: skip
    pretrain(options, folder, show=False)

config, params, _ = hub.load(folder, np.float64)
tokenizer = Tokenizer.from_pretrained(folder)
untrained = initialise(config, 1, np.float64)
engine = lesson.engine()


def windows_of(some, at_most):
    """Cut documents into windows of n tokens; return their ids (S,n), and the number of each one's document (S,)."""
    found, numbers = [], []
    for number, document in enumerate(some):
        ids = [one for line in document for one in tokenizer.encode(line)[1:-1]]
        for begin in range(0, len(ids) - n + 3, n - 2)[:at_most]:
            found.append([tokenizer.cls_id, *ids[begin : begin + n - 2], tokenizer.sep_id])
            numbers.append(number)
    return np.array(found), np.array(numbers)


windows, document_of = windows_of(held_out[: lesson.scale(None, 20)], lesson.scale(4, 2))
print(
    f"{len(windows):,} windows of {n} tokens, from {len(set(document_of))} documents that were never trained on"
)


def batch_of(rows):
    return Batch.pack([Sequence(ids, 0 * ids) for ids in rows])


def maps_of(weights, rows):
    """Return the attention maps of every layer, a list of (S,A,n,n)."""
    batch = batch_of(rows)
    entering = hidden_states(engine, config, tuple(range(config.L)), weights.tree, batch)
    layers = zip(entering, weights.tree["layers"], strict=True)
    return [np.array(attention_maps(engine, config, x, layer, batch)) for x, layer in layers]


# %% [markdown]
# ## 2. From a picture to a number
#
# Here is what the heads of the last layer do with one sentence. Look for a pattern, and say to yourself what each head is
# good for.

# %%
some_ids = (tokenizer.encode(line) for document in held_out[20:] for line in document)
shown = np.array([next(ids for ids in some_ids if 12 <= len(ids) <= 16)])
words = [tokenizer.vocab[one] for one in shown[0]]
figure = viz.draw_attention(maps_of(params, shown)[-1][0], words, f"Layer {config.L}, one sentence")
course.show(
    figure,
    "Attention maps of the four heads of the last layer for one sentence. Some cells are dark, some heads have "
    "stripes beside the diagonal.",
)

# %% [markdown]
# You have found something, as you would have in a picture of noise. One sentence is not a sample, and no picture could
# ever refute "it looks at verbs". So we turn a pattern into a set of **pairs** $(i, j)$, token $i$ looking at token $j$,
# and ask how much of the attention falls on these pairs. The weights of a row sum to one, so a head that spreads them
# evenly over $n$ tokens puts $1/n$ on each pair. The **lift** of a head over even attention is
#
# $$ \mathrm{lift} = \frac{\sum_{(i, j)} p_{ij}}{\sum_{(i, j)} 1/n} . $$
#
# It is 1 for even attention, and for any head that does not prefer these pairs to others; it is $n$ at most. Over *all*
# pairs it is 1 for every head: $\sum_{ij} p_{ij} = n$, and even attention gives $n^2$ pairs $n^2 / n$, which is $n$ too.
#
# ### Exercise 13.1 (easy): the lift
#
# `maps` (S,A,n,n) has the weights of S windows and A heads, row i looking at column j; `pairs` (S,n,n) is True for the
# pairs that count. Return the lift of each head over all windows together.


# %%
# Exercise 13.1
def lift(maps, pairs):
    """Return for each head the weight on the pairs over what even attention would give them, (A,)."""
    ...


# %%
def lift_pair_by_pair(maps, pairs):
    """Add up weights, pair by pair."""
    S, A, size, _ = maps.shape
    found, even = np.zeros(A), 0.0
    for s in range(S):
        for i in range(size):
            for j in range(size):
                if pairs[s, i, j]:
                    found += maps[s, :, i, j]
                    even += 1 / size
    return found / even


def draw_pairs(rng):
    S, A, size = (int(one) for one in rng.permutation([3, 4, 6]))
    maps = rng.random((S, A, size, size)) ** 4
    pairs = rng.random((S, size, size)) < rng.uniform(0.1, 0.6)
    pairs[0, 0, 1] = True
    return maps / maps.sum(-1, keepdims=True), pairs


lesson.check(lift, draw=draw_pairs, same_as=lift_pair_by_pair, times=10)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Each pair is expected to have 1/n, so all of them together `pairs.sum() / n`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `np.einsum("saij,sij->a", maps, pairs)` adds up the weights of each head where `pairs` is True.
#
# </details>
# <details><summary>Solution 13.1</summary>
#
# ```python
# def lift(maps, pairs):
#     _, _, size, _ = maps.shape
#     found = np.einsum("saij,sij->a", maps, pairs)
#     even = pairs.sum() / size
#     return found / even
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `found / even` | `found / pairs.sum()` | That is the mean weight of a pair; the lift divides it by what even attention gives, 1/n. |
# | `found / even` | `(np.einsum("saij,sij->sa", maps, pairs) / (pairs.sum((1, 2))[:, None] / size)).mean(0)` | A mean of the windows' lifts gives a pair more weight in a window that has few; add over all windows first. |
# | `found / even` | `found - even` | The lift is a ratio, not a difference. |
# | `"saij,sij->a", maps` | `"saji,sij->a", maps` | Rows look and columns are looked at: i comes first. |
# | `pairs.sum() / size` | `pairs.size / size` | Only the pairs that count are expected to have 1/n each. |
# | `pairs.sum() / size` | `pairs.sum() / len(pairs)` | Even attention is spread over the n tokens, not over the windows. |
# | `found / even` | `found / even / len(maps[0])` | Every head has weights that sum to one, so there is nothing to divide by their number. |
#
# </details>

# %%
lift_of = lift if lesson.passed("13.1") else lift_pair_by_pair
some = maps_of(params, windows[:3])[0]
course.equal(
    "over all pairs the lift of every head is 1", lift_of(some, np.ones((3, n, n), bool)), np.ones(config.A)
)
guess = lesson.predict(f"How large is the largest lift on a neighbour, of {config.L * config.A} heads?", ...)

# %% [markdown]
# ### Exercise 13.2 (core): pairs of an induction head
#
# Suppose a text says *Queequeg smiled* and later again *Queequeg …*. What comes next may be *smiled*. To find it, a
# head has to look from here to the token **after** an earlier (or, in BERT, a later) copy of the piece before it.
# Elhage and others (2021) and Olsson and others (2022) found such heads in models that read from left to right, and
# call them **induction heads**. `ids` (S,n) are the pieces of S windows. Return the pairs $(i, j)$, $j \ne i$, in which
# the piece just before $j$ is the piece just before $i$: an array (S,n,n) that is True there. The first token of a window
# has nothing before it.


# %%
# Exercise 13.2
def induction_pairs(ids):
    """Return True where the piece before j is the piece before i, and j is not i: ids (S,n) -> (S,n,n)."""
    ...


# %%
def induction_by_dictionary(ids):
    """List for each piece the places behind it, and pair those up."""
    S, size = ids.shape
    pairs = np.zeros((S, size, size), bool)
    for s in range(S):
        behind = {}
        for place in range(1, size):
            behind.setdefault(int(ids[s, place - 1]), []).append(place)
        for places in behind.values():
            for i in places:
                for j in places:
                    pairs[s, i, j] = i != j
    return pairs


def draw_ids(rng):
    return (rng.integers(int(rng.integers(3, 6)), size=(int(rng.integers(2, 4)), int(rng.integers(6, 10)))),)


lesson.check(induction_pairs, draw=draw_ids, same_as=induction_by_dictionary, times=20)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `ids[:, :, None] == ids[:, None, :]` is True where i and j are the same piece. Here the pieces one place before are
# compared.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Begin with an array of False. Fill `pairs[:, 1:, 1:]` from `ids[:, :-1]`, and take the diagonal out with
# `~np.eye(n, dtype=bool)`.
#
# </details>
# <details><summary>Solution 13.2</summary>
#
# ```python
# def induction_pairs(ids):
#     S, size = ids.shape
#     pairs = np.zeros((S, size, size), bool)
#     pairs[:, 1:, 1:] = ids[:, :-1, None] == ids[:, None, :-1]
#     return pairs & ~np.eye(size, dtype=bool)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | ` & ~np.eye(size, dtype=bool)` | *nothing* | A token always has the same piece before it as itself: j = i does not count. |
# | `pairs[:, 1:, 1:] = ids[:, :-1, None] == ids[:, None, :-1]` | `pairs[:] = ids[:, :, None] == ids[:, None, :]` | Those are copies of the piece itself; an induction head looks behind a copy of the piece before. |
# | `pairs[:, 1:, 1:]` | `pairs[:, :-1, :-1]` | The pieces compared come before i and j, not after them. |
# | `ids[:, :-1, None] == ids[:, None, :-1]` | `ids[:, 1:, None] == ids[:, None, :-1]` | The piece before i is compared with the piece before j. |
# | `pairs & ~np.eye(size, dtype=bool)` | `np.tril(pairs & ~np.eye(size, dtype=bool))` | BERT reads both ways, so later copies count as well. |
# | `pairs & ~np.eye(size, dtype=bool)` | `pairs ^ np.eye(size, dtype=bool)` | The first token has nothing before it, so it makes no pair, not even with itself. |
# | `pairs[:, 1:, 1:] = ids[:, :-1, None] == ids[:, None, :-1]` | `pairs[:, :, 1:] = ids[:, :, None] == ids[:, None, :-1]` | The piece before i is compared with the piece before j, not the piece at i. |
# | `pairs[:, 1:, 1:] = ids[:, :-1, None] == ids[:, None, :-1]` | `before = np.roll(ids, 1, 1); pairs[:] = before[:, :, None] == before[:, None, :]` | `np.roll` puts the last piece before the first one; the first has nothing before it. |
#
# </details>

# %% [markdown]
# Now five patterns for every head, on windows it has never seen. An interval has to respect that windows of one
# document are alike. So **documents** are resampled, not windows: the bootstrap of earlier chapters, by document.


# %%
def interval(found, expected, numbers):
    """Return the 95% interval of sum(found) / sum(expected), by documents."""
    _, group = np.unique(numbers, return_inverse=True)
    above = np.bincount(group, weights=found)  # a sum for each document
    below = np.bincount(group, weights=expected)
    return bootstrap(lambda rows: above[rows].sum() / below[rows].sum(), len(above))


def neighbours(ids, offset):
    """Return the pairs in which j is offset places behind i."""
    S, size = ids.shape
    return np.broadcast_to(np.eye(size, k=offset, dtype=bool), (S, size, size))


def same_piece(ids):
    """Return the pairs of two different tokens that are the same piece."""
    return (ids[:, :, None] == ids[:, None, :]) & ~np.eye(ids.shape[1], dtype=bool)


induction = induction_pairs if lesson.passed("13.2") else induction_by_dictionary
PATTERNS = {
    "previous": lambda ids: neighbours(ids, -1), "next": lambda ids: neighbours(ids, 1),
    "itself": lambda ids: neighbours(ids, 0), "same piece": same_piece, "induction": induction,
}  # fmt: skip
rng = np.random.default_rng(13)
few = np.sort(rng.permutation(len(windows))[: lesson.scale(400, 24)])
pairs_of = {name: make(windows[few]) for name, make in PATTERNS.items()}


def lifts(weights):
    """Return the lift of every head, (L,A), for each pattern."""
    layers = maps_of(weights, windows[few])
    return {name: np.array([lift_of(maps, pairs) for maps in layers]) for name, pairs in pairs_of.items()}


trained_lifts, untrained_lifts = lifts(params), lifts(untrained)
guess.answer(
    float(max(trained_lifts["previous"].max(), trained_lifts["next"].max())),
    f"{n} would be a head that looks nowhere else.",
)

# %%
heads = [f"{layer + 1}.{head + 1}" for layer in range(config.L) for head in range(config.A)]
figure, axes = plt.subplots(1, 2, figsize=(8.5, 0.28 * len(heads) + 1.2), layout="constrained", sharey=True)
for ax, found, title in ((axes[0], trained_lifts, "trained"), (axes[1], untrained_lifts, "untrained")):
    table = np.stack([found[name].ravel() for name in PATTERNS], axis=1)
    ax.imshow(np.log2(np.maximum(table, 1 / n)), cmap="RdBu_r", vmin=-5, vmax=5, aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        dark = abs(np.log2(max(value, 1 / n))) > 3
        ax.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=8, color="w" if dark else "k")
    ax.set_xticks(range(len(PATTERNS)), PATTERNS, fontsize=8)
    ax.set_yticks(range(len(heads)), heads, fontsize=8)
    ax.set_title(title, fontsize=10)
    ax.spines[:].set_visible(False)
axes[0].set_ylabel("layer.head")
course.show(
    figure,
    "Two tables of lifts, one row a head and one column a pattern. In the trained model a few heads are deep red on a "
    "neighbour, and hardly any on the same piece or on induction pairs. In the untrained model every lift is about one.",
)

# %% [markdown]
# A head gets the name of a pattern if the whole interval of its lift is above 5. The bound is arbitrary, but it was
# written down before we looked, and a head can fail it.

# %%
BOUND = 5.0
named = {}
for layer, maps in enumerate(maps_of(params, windows[few])):
    for head in range(config.A):
        for name, pairs in pairs_of.items():
            found = (maps[:, head] * pairs).sum((1, 2))
            low, high = interval(found, pairs.sum((1, 2)) / n, document_of[few])
            if low > BOUND:
                named[layer, head] = name
                print(
                    f"head {layer + 1}.{head + 1} is a {name} head: lift {trained_lifts[name][layer, head]:.1f} [{low:.1f}, {high:.1f}]"
                )
counts = {name: sum(one == name for one in named.values()) for name in PATTERNS}
course.say("Heads with a name: " + ", ".join(f"{name} **{count}**" for name, count in counts.items()) + ".")

# %% [markdown]
# **Neighbour heads** are well known from larger BERTs (Clark et al. 2019 were among the first to report them), and chapter
# 08 showed why they come first: a gap's neighbours are worth the most. Induction is another matter.
#
# ## 3. A head that the text asks for
#
# Perhaps a small model can't grow an induction head. Or perhaps nothing in its text ever asked for one: windows this
# short have little room to say anything twice. The two explanations predict different things, so there is an experiment. Train
# the *same* model a little further on windows that say everything twice: `[CLS]` x `[SEP]` x `[SEP]`, with x of 3 to 12
# pieces. Since the length differs, "so many places to the left" does not find the copy. One has to look for what is
# next to it.
#
# If a head appears, perhaps it was the further steps that did it, and not the copies. So there is a **control**: another
# copy of the model gets as many steps on windows of the same form that say everything once, `[CLS]` x `[SEP]` y `[SEP]`,
# where y is some other piece of text. The lifts are measured on held-out text, said twice, which neither has seen.

# %%
guess = lesson.predict(
    "Will a head look just past the copy of its neighbour, with a lift above 5?", ..., choices=("yes", "no")
)


def two_parts(ids, length, is_copy, rng):
    """Return a sequence of two pieces of text, the second a copy or not, and never a gap in the same place of both."""
    first, second = (ids[begin : begin + length] for begin in rng.integers(len(ids) - length, size=2))
    second = first if is_copy else second
    whole = np.array([tokenizer.cls_id, *first, tokenizer.sep_id, *second, tokenizer.sep_id])
    gaps = rng.permutation(length)[: max(1, round(0.3 * length))]
    places = np.sort(1 + gaps + (length + 1) * rng.integers(2, size=len(gaps)))
    labels = whole[places].copy()
    whole[places] = tokenizer.mask_id
    return Sequence(whole, 0 * whole, places, labels)


longest = min(12, (n - 3) // 2)
running = []  # some documents as one row of pieces
for document in documents[::5][:80]:
    for line in document:
        running += tokenizer.encode(line)[1:-1]
running = np.array(running)
chosen = windows[few[::2]]
begin, end = chosen[:, :1], chosen[:, -1:]  # [CLS] and [SEP]
said = chosen[:, 1 : longest - 1]
exam = np.hstack([begin, said, end, said, end])
exam_pairs = induction(exam)
total = lesson.scale(300, 12)  # steps
further = dataclasses.replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def trained_further(is_copy):
    """Train a copy of the model; return the loss of each step, the lifts (L,A) by step, and the last attention maps."""
    rng, weights = np.random.default_rng(5), Parameters(further, params.flat.astype(np.float32))
    training = start(
        create("auto", threads=1),
        weights,
        AdamW(weights.flat, weights.decayed),
        MaskedAndNext(further, seed=0),
    )

    def exam_maps():
        return maps_of(Parameters(config, weights.flat.astype(np.float64)), exam)

    def exam_lifts():
        return np.array([lift_of(maps, exam_pairs) for maps in exam_maps()])

    losses, lifts = [], {0: exam_lifts()}
    for step in range(total):
        sizes = rng.integers(3, longest + 1, size=96)
        batch = Batch.pack([two_parts(running, int(size), is_copy, rng) for size in sizes])
        rate = warmup_linear(step, total, round(0.1 * total), 3e-3)
        losses.append(float(training.step((batch,), step, rate)["loss"]))
        if (step + 1) % (total // 6) == 0:
            lifts[step + 1] = exam_lifts()
    return np.array(losses), lifts, exam_maps()


SAID = {"said twice": trained_further(True), "said once": trained_further(False)}
best, ends = {}, {}
for name, (_, found, maps) in SAID.items():
    layer, head = np.unravel_index(found[total].argmax(), found[total].shape)
    best[name] = layer, head
    weight = (maps[layer][:, head] * exam_pairs).sum((1, 2))
    ends[name] = interval(weight, exam_pairs.sum((1, 2)) / exam.shape[1], document_of[few[::2]])
_, seen, _ = SAID["said twice"]
layer, head = best["said twice"]
guess.answer(
    "yes" if ends["said twice"][0] > BOUND else "no",
    f"head {layer + 1}.{head + 1} went from {seen[0][layer, head]:.1f} to {seen[total][layer, head]:.1f}.",
)

# %%
figure, panels = plt.subplots(1, 3, figsize=(10.5, 3.2), layout="constrained", width_ratios=(4, 3, 3))
for (name, (losses, found, _)), style, axes in zip(SAID.items(), ("C1-", "C0--"), panels[1:], strict=True):
    panels[0].plot(viz.smoothed(losses, 15), style, label=name)
    for place in np.ndindex(config.L, config.A):
        curve, is_best = [one[place] for one in found.values()], place == best[name]
        axes.plot(list(found), curve, color=style[:2] if is_best else "0.6", lw=2 if is_best else 0.8)
    axes.axhline(BOUND, color="k", lw=0.8, ls="--")
    axes.set(xlabel="step", title=f"Text {name}", ylim=(0, 1.1 * max(BOUND, seen[total].max())))
panels[0].set(xlabel="step", ylabel="loss (nats)", title="Copying is learnt", ylim=(0, None))
panels[0].legend(frameon=False, fontsize=8)
panels[1].set_ylabel("lift on induction pairs")
course.show(
    figure,
    "Left: the loss falls far on text that is said twice, and little on text that is said once. Middle: the lift of every "
    "head on the induction pairs of held-out text, after steps on text said twice; the best of them ends at "
    f"{seen[total].max():.1f}, beside a dashed bound at {BOUND:.0f}. Right: the same after as many steps on text said once; "
    f"the best of them ends at {SAID['said once'][1][total].max():.1f}.",
)
results = []
for name, (low, high) in ends.items():
    _, found, _ = SAID[name]
    results.append(f"**{found[total].max():.2f}** [{low:.2f}, {high:.2f}] with text {name}")
apart = ends["said twice"][0] > ends["said once"][1]
verdict = "it is the copies, and not the steps" if apart else "these two can't be told apart"
course.say(f"After {total} steps the largest lift of a head is {' and '.join(results)}: {verdict}.")

# %% [markdown]
# If the two differ, what was missing was neither a larger model nor more training. A head appears when the text pays
# for it, as chapter 08 saw with neighbours. That is the kind of evidence to ask for when somebody says that a model
# "can't" or "has to": the same model twice, as many steps, and a text that differs in one thing.
#
# ## 4. What a head is worth
#
# A head may look at a neighbour all the time and pass on nothing of use. To know what it does for the model we take it
# away, which is called an **ablation**. Attention blocks make it easy. The outputs of the A heads are side by side in $y
# = [y_1, \dots, y_A]$, and the output matrix has a block of rows $W_h$ for each, so
#
# $$ y W + b = b + \sum_h y_h W_h . $$
#
# A head without its rows is silent: it adds nothing. But silence is not what the layers above are used to. The fairer
# replacement is the head's *mean* output over many tokens, $\bar y_h$, whatever the sentence: a **mean ablation** puts
# $\bar y_h W_h$ into the bias.
#
# ### Exercise 13.3 (core): take a head away
#
# `weight` (A·D,H) and `bias` (H,) are the output matrix and bias of an attention block; `mean` (D,) is the output that
# head number `head`, counted from 0, is to have from now on. Return a new weight (A·D,H) and a new bias (H,).


# %%
# Exercise 13.3
def without_head(weight, bias, head, A, mean):
    """Return (weight, bias) with which this head says the same, `mean`, at every token."""
    ...


# %%
def by_blocks(weight, bias, head, A, mean):
    """Go through the heads, block by block."""
    blocks, new = np.split(weight, A), np.array(bias)
    for number, block in enumerate(blocks):
        if number == head:
            for d in range(len(block)):
                new = new + mean[d] * block[d]
    return np.concatenate(
        [0 * block if number == head else block for number, block in enumerate(blocks)]
    ), new


def draw_output(rng):
    A, D, H = (int(one) for one in rng.permutation([2, 3, 5]))
    weight, bias = rng.standard_normal((A * D, H)), rng.standard_normal(H)
    return weight, bias, int(rng.integers(A)), A, rng.standard_normal(D)


lesson.check(without_head, draw=draw_output, same_as=by_blocks, times=20)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A head has D = rows / A numbers. Those of head h are the rows from h·D up to (h + 1)·D.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The new bias is `bias + mean @ weight[rows]`, computed with the old rows. Copy the weight before you set the rows to
# zero.
#
# </details>
# <details><summary>Solution 13.3</summary>
#
# ```python
# def without_head(weight, bias, head, A, mean):
#     D = len(weight) // A
#     rows = slice(head * D, (head + 1) * D)
#     new_bias = bias + mean @ weight[rows]
#     new_weight = weight.copy()
#     new_weight[rows] = 0
#     return new_weight, new_bias
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `weight.copy()` | `weight` | The weight that was given is changed; the next ablation would begin with a head missing. |
# | `bias + mean @ weight[rows]` | `bias` | The head should go on saying its mean, which goes into the bias. |
# | `bias + mean @ weight[rows]` | `mean @ weight[rows]` | The bias that was there stays. |
# | `slice(head * D, (head + 1) * D)` | `slice(head * A, (head + 1) * A)` | A block has D rows, not A. |
# | `slice(head * D, (head + 1) * D)` | `slice(head, None, A)` | The numbers of a head are contiguous: they are a block, not every A-th row. |
# | `new_weight[rows] = 0` | `new_weight[:, rows] = 0` | A head's numbers are multiplied with rows of the matrix; columns are what comes out. |
# | `new_weight[rows] = 0` | `pass` | The head still speaks: its rows have to be zero. |
#
# </details>


# %%
take_away = without_head if lesson.passed("13.3") else by_blocks


def ablated(layer, head, mean):
    """Return a copy of the parameters in which this head says `mean`."""
    copy = Parameters(config, params.flat.copy())
    block = copy.tree["layers"][layer]["attention"]
    weight, bias = take_away(block["output_weight"], block["output_bias"], head, config.A, mean)
    block["output_weight"][...], block["output_bias"][...] = weight, bias
    return copy


class Listening(type(engine)):
    """The engine, which lets us hear what heads say, and change it."""

    change = None

    def attention(self, q, k, v, cu_seqlens, causal=False, drop=None, site=0):
        y, saved = super().attention(q, k, v, cu_seqlens, causal, drop, site)
        self.said[site] = y
        return (y if self.change is None else self.change(y, v, site)), saved


listening = Listening()
listening.said = {}
last = (config.L,)
(plain,) = hidden_states(listening, config, last, params.tree, batch_of(windows[few]))
means = [listening.said[layer_sites(layer)[0]].mean(0) for layer in range(config.L)]  # (A,D) each


def silenced(y, v, site):
    """Let head 2 of the first layer say its mean."""
    y = y.copy()
    if site == layer_sites(0)[0]:
        y[:, 1] = means[0][1]
    return y


listening.change = silenced
(by_change,) = hidden_states(listening, config, last, params.tree, batch_of(windows[few]))
listening.change = None
(by_rows,) = hidden_states(engine, config, last, ablated(0, 1, means[0][1]).tree, batch_of(windows[few]))
course.equal("a head changed in the engine, and rows of the matrix without it", by_change, by_rows, 1e-10)

# %% [markdown]
# We hide one piece of each held-out window, the same one for every head. What a head costs is the loss at this gap with the
# head taken away, minus the loss of the whole model. And what would a head drawn at random have cost? That needs no drawing.
# Its expected cost is the mean over all heads.

# %%
gaps = rng.integers(1, n - 1, size=len(windows))
answers = windows[np.arange(len(windows)), gaps]


def masked(rows, places):
    rows = rows.copy()
    rows[np.arange(len(rows)), places] = tokenizer.mask_id
    return rows


def log_chances(weights, rows, places, ops=engine):
    """Return the log-probabilities of all pieces at one place of each window, (S,V)."""
    (states,) = hidden_states(ops, config, last, weights.tree, batch_of(rows))
    at = np.arange(len(rows)) * rows.shape[1] + places
    logits, _ = ops.masked_lm_logits(
        states, at, weights.tree["mlm"], weights.tree["embeddings"]["word"], config
    )
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def gap_losses(weights):
    return -log_chances(weights, masked(windows, gaps), gaps)[np.arange(len(windows)), answers]


whole = gap_losses(params)
cost = np.array([
    [gap_losses(ablated(layer, head, means[layer][head])) - whole for head in range(config.A)]
    for layer in range(config.L)
])  # fmt: skip
random_head = cost.mean((0, 1))

# %%
flat = cost.reshape(-1, len(windows))
order = np.argsort(flat.mean(1))
ones = np.ones(len(windows))
figure, axes = plt.subplots(figsize=(7.5, 0.26 * len(heads) + 1.2), layout="constrained")
for height, number in enumerate(order):
    low, high = interval(flat[number], ones, document_of)
    name = named.get((number // config.A, number % config.A))
    colour = "C1" if name else "C0"
    axes.plot([low, high], [height, height], color=colour, lw=2)
    axes.plot(flat[number].mean(), height, "o", color=colour)
    if name:
        axes.annotate(name, (high, height), (6, -3), textcoords="offset points", fontsize=8, color=colour)
axes.axvline(random_head.mean(), color="k", lw=0.8, ls="--")
axes.annotate("a head at random", (random_head.mean(), 0), (4, -3), textcoords="offset points", fontsize=8)
axes.set_yticks(range(len(heads)), [heads[number] for number in order], fontsize=8)
axes.set(xlabel="loss that it costs (nats), with 95% intervals by documents", title="One head less")
course.show(
    figure,
    "For each head what its ablation costs in masked-LM loss, sorted, with intervals: most cost next to nothing, and "
    "the heads with a name cost the most; a dashed line is what a head drawn at random costs.",
)


# %%
def by_document(values):
    """Return the mean of each document."""
    return np.array([values[document_of == one].mean() for one in np.unique(document_of)])


with_a_name = [head for head, name in named.items() if name in ("previous", "next")]
if with_a_name:
    theirs = np.mean([cost[head] for head in with_a_name], axis=0)
    lesson.claim(
        "a neighbour head is worth more than a head at random",
        by_document(theirs),
        by_document(random_head),
        better="higher",
        unit="nats of loss, by document",
    )
else:
    print("No head is named after a neighbour in this model.")

# %% [markdown]
# Two warnings. A cost says what is lost when this head alone is missing *now*: two heads that do the same may each cost
# nothing, and both together a lot. And a model that had been trained without the head would have found another way. Look,
# too, at how many heads cost next to nothing. That was seen in large models as well (Michel et al. 2019, *Are Sixteen
# Heads Really Better than One?*).
#
# ## 5. What a vector contains
#
# The text is in lower case before the model reads it. Do its vectors still know which words were written with a capital?
# The usual test is a **probe**: a small classifier that reads a vector and guesses the property. Ours is softmax
# regression, trained by you. With $P = \operatorname{softmax}(XW)$, the rows of $Y$ one-hot labels, and a little decay,
#
# $$ L = -\frac1N \sum_i \ln P_{i, y_i} + \frac\lambda2 \sum W^2, \qquad
#    \frac{\partial L}{\partial W} = \frac1N X^\top (P - Y) + \lambda W . $$
#
# A probe that guesses well proves less than it seems to. *Elizabeth* always has a capital and *the* seldom; a probe may
# learn a list of words by heart from any vectors in which words can be told apart, trained or not. Hewitt and Liang (2019)
# measure that. In their **control task** each piece gets a label by a coin, once and for all, with the same shares as the
# real labels. Nothing in the language helps there; a list does. The **selectivity** of a probe is its accuracy on the task
# minus that on the control task.
#
# ### Exercise 13.4 (hard): a probe and its control
#
# `probe_gradient` returns $\partial L / \partial W$ (H,C), for `W` (H,C), the vectors `X` (N,H) and their `labels` (N,);
# `decay` is $\lambda$. Scores may be in the thousands. `control_labels` makes the labels of the control task: `shares`
# (C,) are those of the C classes, and `coins` (V,) has a number from 0 up to 1 for each piece. A piece has class 0 if its
# coin is below the first share, class 1 if it is not but is below the sum of the first two, and so on. Return the labels
# (N,) of the tokens `ids` (N,).


# %%
# Exercise 13.4
def probe_gradient(W, X, labels, decay):
    """Return the gradient of mean cross-entropy plus decay / 2 times the sum of squares: W (H,C), X (N,H) -> (H,C)."""
    ...


def control_labels(ids, shares, coins):
    """Return the class of each token's piece by its coin, (N,) whole numbers."""
    ...


# %%
def probe_loss(W, X, labels, decay):
    """Return what the probe minimises."""
    scores = X @ W
    scores = scores - scores.real.max(1, keepdims=True)
    chances = np.log(np.exp(scores).sum(1)) - scores[np.arange(len(X)), labels]
    return chances.mean() + decay / 2 * (W * W).sum()


def draw_probe(rng):
    N, H, C = (int(one) for one in rng.permutation([4, 5, 7]))
    X = rng.standard_normal((N, H))
    X[0] *= 2000  # whose scores are in the thousands
    return rng.standard_normal((H, C)), X, rng.integers(C, size=N), float(rng.uniform(0.1, 1))


def coin_by_coin(ids, shares, coins):
    """Go up the shares for each token."""
    labels = []
    for one in ids:
        label, below = 0, shares[0]
        while coins[one] >= below:
            label += 1
            below = below + shares[label]
        labels.append(label)
    return np.array(labels)


def draw_coins(rng):
    borders = np.sort(rng.permutation(np.arange(1, 8))[: rng.integers(1, 4)])
    V = int(rng.integers(5, 9))  # all in eighths, so that coins lie on borders, too
    return rng.integers(V, size=12), np.diff([0, *borders, 8]) / 8, rng.integers(8, size=V) / 8


def are_whole(labels, *_):
    """Refuse labels that only look like whole numbers."""
    kind = np.asarray(labels).dtype
    return None if kind.kind in "iu" else f"the labels are of the type {kind}; give whole numbers."


lesson.check(probe_gradient, draw=draw_probe, gradient_of=probe_loss)
lesson.check(control_labels, draw=draw_coins, same_as=coin_by_coin, law=are_whole, times=30)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# P − Y without making Y: take 1 from `p[np.arange(N), labels]`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `np.searchsorted(borders, coins, side="right")` counts how many borders are not above each coin. The borders are the sums
# of the first shares, `np.cumsum(shares)`. The piece of a token picks its label: index with `ids`.
#
# </details>
# <details><summary>Solution 13.4</summary>
#
# ```python
# def probe_gradient(W, X, labels, decay):
#     scores = X @ W
#     p = np.exp(scores - scores.max(1, keepdims=True))
#     p = p / p.sum(1, keepdims=True)
#     p[np.arange(len(X)), labels] -= 1
#     return X.T @ p / len(X) + decay * W
#
#
# def control_labels(ids, shares, coins):
#     borders = np.cumsum(shares)
#     return np.searchsorted(borders, coins, side="right")[ids]
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | ` / len(X) + decay * W` | ` / len(X)` | The decay has a gradient, too: λ W. |
# | `decay * W` | `decay / 2 * W` | The derivative of λ/2 W² is λ W. |
# | `X.T @ p / len(X)` | `X.T @ p` | The loss is a mean over N examples. |
# | `scores - scores.max(1, keepdims=True)` | `scores` | The exponential of a score in the thousands is infinite: take the largest away first. |
# | `labels] -= 1` | `labels] += 1` | The gradient is P − Y: one is taken away at the right class. |
# | `X.T @ p / len(X) + decay` | `-X.T @ p / len(X) + decay` | The gradient is P − Y, not Y − P: there is a minus in front of the logarithm. |
# | `p.sum(1, keepdims=True)` | `p.sum(0, keepdims=True)` | The probabilities of the classes of one example sum to one. |
# | `[ids]` | *nothing* | A label is asked for each token; it is that of its piece. |
# | `np.cumsum(shares)` | `shares` | The borders are sums of shares: class 1 begins where class 0 ends. |
# | `side="right"` | `side="left"` | A coin that lies exactly on a border belongs to the class above it. |
# | `decay * W` | `2 * decay * W` | The derivative of λ/2 W² is λ W. |
# | `np.searchsorted(borders, coins, side="right")[ids]` | `np.array([next((c for c, share in enumerate(shares) if coin < share), len(shares) - 1) for coin in coins])[ids]` | The borders are sums of shares: class 1 begins where class 0 ends. |
# | `[ids]` | `[np.arange(len(ids)) % len(coins)]` | The coin belongs to the piece, not to the place of the token. |
#
# </details>

# %% [markdown]
# Capitals at the beginning of a sentence are not a property of the word, so these words are left out. Of the rest we
# take equal numbers with and without a capital. Three things to beat or to be compared with: the coin (half), a
# **list**, which says of each piece what it was more often in the training part, and the same probe on the vectors of
# an *untrained* model.

# %%
words_of = BasicTokenizer().tokenize  # lower case, accents, punctuation: exercise 01.1


def labelled(document):
    """Yield for each sentence its ids, the places of the first pieces of its words, and whether each has a capital."""
    for line in document:
        ids, places, capitals = [tokenizer.cls_id], [], []
        for word in line.split():
            if len(ids) > 1 and word[0].isalpha():
                places.append(len(ids))
                capitals.append(word[0].isupper())
            ids += tokenizer.encode(" ".join(words_of(word)))[1:-1]
        if 8 <= len(ids) <= n - 2 and places:
            yield np.array([*ids, tokenizer.sep_id]), places, capitals


def examples(some, each):
    """Return sequences, and of `each` tokens with a capital and as many without: row, piece, label, document."""
    sequences, rows, found, begin = [], [], [], 0
    for number, document in enumerate(some):
        for ids, places, capitals in labelled(document):
            sequences.append(ids)
            for place, capital in zip(places, capitals, strict=True):
                found.append((begin + place, ids[place], int(capital), number))
            begin += len(ids)
    found = np.array(found)
    rows = [np.flatnonzero(found[:, 2] == kind) for kind in (0, 1)]
    each = min(each, *map(len, rows))
    chosen = np.sort(np.concatenate([rng.permutation(one)[:each] for one in rows]))
    return sequences, *found[chosen].T


half = len(held_out) // 2
size = lesson.scale(2_500, 60)
learn = examples(held_out[:half][: lesson.scale(90, 25)], size)
test = examples(held_out[half:][: lesson.scale(90, 25)], size)


def states_at(weights, part):
    """Return the states behind every layer at the chosen tokens, a list of (N,H)."""
    batch = Batch.pack([Sequence(ids, 0 * ids) for ids in part[0]])
    return [
        x[part[1]] for x in hidden_states(engine, config, tuple(range(config.L + 1)), weights.tree, batch)
    ]


gradient_of_probe = probe_gradient if lesson.passed("13.4") else None
if gradient_of_probe is None:

    def gradient_of_probe(W, X, labels, decay):
        scores = X @ W
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        return X.T @ (p - np.eye(W.shape[1])[labels]) / len(X) + decay * W


control_of = control_labels if lesson.passed("13.4") else coin_by_coin


def probe(X, labels, X_test):
    """Train a probe by steps of gradient descent with momentum; return its guesses on other vectors."""
    centre, spread = X.mean(0), X.std(0) + 1e-9

    def scaled(vectors):
        """Scale each column as those of X, and put a column of ones beside them, for the bias."""
        return np.c_[(vectors - centre) / spread, np.ones(len(vectors))]

    X, X_test = scaled(X), scaled(X_test)
    W = speed = np.zeros((X.shape[1], 2))
    for _ in range(lesson.scale(150, 10)):
        speed = 0.9 * speed - 0.1 * gradient_of_probe(W, X, labels, 1e-3)
        W = W + speed
    return (X_test @ W).argmax(1)


shares = np.bincount(learn[3], minlength=2) / len(learn[3])
coins = rng.random(config.V)
tasks = {
    "capital": (learn[3], test[3]),
    "control": (control_of(learn[2], shares, coins), control_of(test[2], shares, coins)),
}
right = {}
for who, weights in (("trained", params), ("untrained", untrained)):
    learn_states, test_states = states_at(weights, learn), states_at(weights, test)
    for layer in range(config.L + 1):
        for task, (labels, truth) in tasks.items():
            guesses = probe(learn_states[layer], labels, test_states[layer])
            right[who, layer, task] = guesses == truth
occurrences = np.bincount(learn[2], minlength=config.V)
with_capital = np.bincount(learn[2], weights=learn[3], minlength=config.V)
often = 2 * with_capital > occurrences  # what the list says of each piece
by_list = often[test[2]] == test[3]
print(f"{len(test[3]):,} tokens to test on; the list is right in {by_list.mean():.1%}")

# %%
figure, (left, right_side) = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained", sharex=True)
layers = np.arange(config.L + 1)
for who, colour, style in (("trained", "C0", "o-"), ("untrained", "C3", "s--")):
    for task, width in (("capital", 2), ("control", 0.9)):
        accuracy = [100 * right[who, layer, task].mean() for layer in layers]
        left.plot(
            layers, accuracy, style, color=colour, lw=width, ms=4 if width > 1 else 3, label=f"{who}, {task}"
        )
    gap = {layer: right[who, layer, "capital"] * 1.0 - right[who, layer, "control"] for layer in layers}
    ends = np.array([interval(one, np.ones(len(one)), test[4]) for one in gap.values()])
    middle = np.array([one.mean() for one in gap.values()])
    right_side.errorbar(
        layers, 100 * middle, 100 * abs(ends.T - middle), color=colour, fmt=style, capsize=3, label=who
    )
left.axhline(100 * by_list.mean(), color="k", lw=0.8, ls=":")
left.annotate("the list", (0, 100 * by_list.mean()), (0, 3), textcoords="offset points", fontsize=8)
left.set(xlabel="layer (0: what enters)", ylabel="right (%)", title="Task and control task", xticks=layers)
right_side.set(xlabel="layer", ylabel="points", title="Selectivity, with 95% intervals")
figure.legend(
    *left.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8, frameon=False
)
right_side.legend(fontsize=8, frameon=False)
course.show(
    figure,
    "Left: accuracy of probes by layer, for the capital and for the control task, on trained and untrained vectors, beside "
    "the dotted line of a list of pieces. Right: the selectivity of both models by layer with intervals.",
)

# %%
top = max(layers, key=lambda layer: right["trained", layer, "capital"].mean())


beyond = 1.0 * right["trained", top, "capital"] - by_list
low, high = interval(beyond, np.ones(len(beyond)), test[4])
verdict = "more than" if low > 0 else "less than" if high < 0 else "not clearly more than"
course.say(
    f"The best layer is {top}. Its vectors, with a straight line through them, know **{verdict}** the list: "
    f"{100 * beyond.mean():+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}], by documents."
)

# %% [markdown]
# Read the two pictures together. How far above the coin, which is right in half of the cases, is the probe on vectors that
# nobody has trained? It has something to go by: an untrained table has a different random vector for each piece, and that
# is enough for a list. Seen alone, its accuracy would have passed for knowledge. What training adds is the distance between
# the curves, and what *context* adds is the distance to the list. That distance is a little too large: the best layer was
# chosen by the very tokens that it was measured on.
#
# ## 6. Is attention an explanation?
#
# The head looks at *king*, so the model answers *throne* because of *king*. Is that so? Two papers had an argument about
# it: Jain and Wallace (2019), *Attention is not Explanation*, and Wiegreffe and Pinter (2019), *Attention is not not
# Explanation*. We take up two of their tests, on our own model.
#
# **Other weights, same prediction.** What leaves a head at token $i$ is $\sum_j p_j v_j$, D numbers, and it is all that
# the rest of the model ever sees of the weights. But there are $n$ weights. If $n > D + 1$ there are directions
# $\delta$ that change nothing:
#
# $$ \sum_j \delta_j v_j = 0 \quad\text{and}\quad \sum_j \delta_j = 0 , \qquad\text{so}\qquad
#    \sum_j (p_j + \delta_j)\, v_j = \sum_j p_j v_j . $$
#
# Write $\delta_j = p_j \epsilon_j$, in shares of the weights that there are. As long as no $\epsilon_j$ is below $-1$, no
# weight becomes negative. The conditions say that $\epsilon$ is orthogonal to the columns of the matrix $C$ with rows
# $p_j\,[v_j, 1]$. Any wish $w$ becomes such an $\epsilon$ if we take from it what the columns of $C$ can express (least
# squares), and stretch the rest until its smallest entry is $-1$.
#
# ### Exercise 13.5 (core): other weights
#
# `p` (n,) are the weights of a head at one token, `v` (n,D) the values, `wish` (n,) anything. Return the new weights,
# $p_j (1 + \epsilon_j)$.


# %%
# Exercise 13.5
def other_weights(p, v, wish):
    """Return other weights (n,) with the same output: what `wish` asks for, as far as no weight becomes negative."""
    ...


# %%
def by_basis(p, v, wish):
    """Take the columns away one after another, by Gram and Schmidt, twice for the sake of rounding."""
    rest, basis = np.array(wish), []
    for column in [*(p[:, None] * v).T, p]:
        for _ in range(2):
            for one in basis:
                column = column - (one @ column) * one
        basis.append(column / np.sqrt(column @ column))
    for _ in range(2):
        for one in basis:
            rest = rest - (one @ rest) * one
    return p * (1 + rest / -rest.min())


def draw_weights(rng):
    D = int(rng.integers(2, 5))
    size = D + int(rng.integers(3, 7))
    p = np.exp(rng.standard_normal(size))
    return p / p.sum(), rng.standard_normal((size, D)), rng.standard_normal(size)


def are_weights(answer, p, v, wish):
    """Look whether they are weights, and have the same output."""
    answer = np.asarray(answer)
    if answer.shape != p.shape:
        return f"the answer has the shape {answer.shape}; expected {p.shape}."
    if abs(answer.sum() - 1) > 1e-10:
        return f"the weights sum to {answer.sum():.6g}, not to 1."
    if answer.min() < -1e-12:
        return f"a weight is negative, {answer.min():.3g}."
    if np.abs(answer @ v - p @ v).max() > 1e-10:
        return "the output has changed."
    return None


lesson.check(other_weights, draw=draw_weights, same_as=by_basis, law=are_weights, times=20, tolerance=1e-9)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `C = p[:, None] * np.column_stack([v, np.ones(len(p))])` has the rows. What its columns can express of the wish is
# `C @ x` with the `x` of `np.linalg.lstsq(C, wish, rcond=None)`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The smallest entry of the rest is negative. Divided by minus itself it becomes −1, so the new weights are
# `p * (1 - rest / rest.min())`.
#
# </details>
# <details><summary>Solution 13.5</summary>
#
# ```python
# def other_weights(p, v, wish):
#     C = p[:, None] * np.column_stack([v, np.ones(len(p))])
#     x, *_ = np.linalg.lstsq(C, wish, rcond=None)
#     rest = wish - C @ x
#     return p * (1 - rest / rest.min())
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `np.column_stack([v, np.ones(len(p))])` | `v` | The weights have to sum to 1 still: there is a column of ones beside the values. |
# | `p[:, None] * np.column_stack` | `np.column_stack` | The conditions are on p ε, so the rows of C have the factor p. |
# | `wish - C @ x` | `C @ x` | That is the part that would change the output; the rest changes nothing. |
# | `p * (1 - rest / rest.min())` | `p + rest` | So a weight can become negative: ε is a share of the weight, stretched until the smallest is −1. |
# | `p * (1 - rest / rest.min())` | `p * (1 + rest / rest.max())` | Stretched by the largest entry, the smallest may lie below −1 and make a weight negative. |
# | `p * (1 - rest / rest.min())` | `p * (1 + rest)` | As far as possible means: until the smallest ε is −1. |
#
# </details>

# %% [markdown]
# Now on real gaps. In the last layer, every head at the gap gets other weights. We make the rudest wish there is: take
# everything from the token that the head looks at most. The prediction comes from an engine in which the weights have
# really been exchanged.

# %%
others = other_weights if lesson.passed("13.5") else by_basis
_, first_windows = np.unique(document_of, return_index=True)
by_doc = first_windows[: lesson.scale(150, 10)]  # one window of each document
rows, places = masked(windows[by_doc], gaps[by_doc]), gaps[by_doc]
final = maps_of(params, rows)[-1]
site = layer_sites(config.L - 1)[0]
can_change = n > config.D + 1
moved, toppled, example = [], [], None


def robbed(p, v):
    """Give every head (A,n) other weights: the wish is to take all from the token most looked at."""
    wishes = -1.0 * (p == p.max(-1, keepdims=True))
    return np.array([others(p[head], v[:, head], wishes[head]) for head in range(config.A)])


def exchange_at(place, p, found):
    """Make a change of the last layer's attention: at this place, other weights, which `found` collects."""

    def exchanged(y, v, at):
        if at != site:
            return y
        found.append(robbed(p, v))
        y = y.copy()
        y[place] = np.einsum("aj,jad->ad", found[0], v)
        return y

    return exchanged


for number, place in enumerate(places if can_change else []):
    p, found = final[number, :, place], []
    here = rows[number : number + 1], places[number : number + 1], listening
    before = log_chances(params, *here)
    listening.change = exchange_at(place, p, found)
    after = log_chances(params, *here)
    listening.change = None
    assert np.abs(after - before).max() < 1e-8
    (new,) = found
    moved.append(abs(new - p).sum(-1) / 2)
    toppled.append(new[np.arange(config.A), p.argmax(-1)] < 0.1 * p.max(-1))
    if example is None or moved[-1].max() > example[0]:
        example = moved[-1].max(), number, p, new, before, after
if can_change:
    moved, toppled = np.array(moved), np.array(toppled)
    *_, before, after = example
    course.equal("log-probabilities of all pieces, before and after", after, before, 1e-10)
    low, high = bootstrap(lambda some: moved[some].mean(), len(moved))
    course.say(
        f"On average **{moved.mean():.0%}** [{low:.0%}, {high:.0%}] of a head's weight lies elsewhere than before, and "
        f"in {toppled.mean():.0%} of the cases the token most looked at has lost nine tenths or more. No probability of "
        f"any piece has changed."
    )

# %%
if can_change:
    _, number, p, new, *_ = example
    head = int((abs(new - p).sum(-1)).argmax())
    figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
    axes.bar(np.arange(n) - 0.2, p[head], 0.4, label="the model's weights", color="C0")
    axes.bar(np.arange(n) + 0.2, new[head], 0.4, label="other weights, same prediction", color="C1")
    axes.set_xticks(
        range(n), [tokenizer.vocab[one] for one in rows[number]], rotation=90, fontsize=8, parse_math=False
    )
    axes.set(ylabel="weight", title=f"Head {config.L}.{head + 1} at a gap")
    axes.legend(fontsize=8, frameon=False)
    course.show(
        figure,
        "The attention weights of one head at a gap, as bars over the tokens, and beside them quite different ones from "
        "which the same prediction follows.",
    )

# %% [markdown]
# So a picture of weights is one of many that go with the same answer. Wiegreffe and Pinter object that the model did not
# compute those others, and that a *trained* model would have to reach them for all sentences at once. They are right: that
# weights could be different does not show that the model's own are of no use. So the second test asks whether they are.
#
# **Weights against effects.** Hide one more token, and see how the prediction at the gap moves. That is the effect of this
# token by **leave-one-out**, and it needs no look inside. Do the tokens with large weights have large effects? We compare
# two orders, so the measure is one of ranks. **Kendall's tau** goes through all pairs of tokens: +1 where both orders agree,
# −1 where they don't, 0 for a tie in either, and the mean over the pairs.
#
# ### Exercise 13.6 (core): Kendall's tau
#
# `x` (n,) and `y` (n,) are two numbers for each of n tokens. Return their tau, a number from −1 to 1.


# %%
# Exercise 13.6
def kendall_tau(x, y):
    """Return the mean over all pairs of +1 for agreement, -1 for disagreement, 0 for a tie: a number."""
    ...


# %%
def pair_by_pair(x, y):
    """Count the pairs."""
    total, pairs = 0, 0
    for i in range(len(x)):
        for j in range(i):
            pairs += 1
            if x[i] != x[j] and y[i] != y[j]:
                total += 1 if (x[i] > x[j]) == (y[i] > y[j]) else -1
    return total / pairs


def draw_orders(rng):
    size = int(rng.integers(4, 10))
    x = rng.integers(6, size=size).astype(float)
    return x, 0.5 * x + rng.integers(5, size=size)


lesson.check(kendall_tau, draw=draw_orders, same_as=pair_by_pair, times=30)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `np.sign(x[i] - x[j])` is +1, −1 or 0. For a pair the product of the two signs is what is asked.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `i, j = np.triu_indices(len(x), 1)` are the pairs, each of them once.
#
# </details>
# <details><summary>Solution 13.6</summary>
#
# ```python
# def kendall_tau(x, y):
#     i, j = np.triu_indices(len(x), 1)
#     return (np.sign(x[i] - x[j]) * np.sign(y[i] - y[j])).mean()
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `np.triu_indices(len(x), 1)` | `np.triu_indices(len(x))` | A token is not compared with itself: those are ties that thin the mean. |
# | `np.sign(x[i] - x[j]) * np.sign(y[i] - y[j])` | `(x[i] - x[j]) * (y[i] - y[j])` | Ranks alone count, not how far the numbers are apart. |
# | `.mean()` | `.sum()` | Tau is a mean over all pairs. |
# | `np.sign(x[i] - x[j]) * np.sign(y[i] - y[j])` | `np.sign(x[i] - x[j]) == np.sign(y[i] - y[j])` | That is the share of pairs that agree; disagreement counts −1. |
# | `np.sign(y[i] - y[j])` | `np.sign(y[j] - y[i])` | The sign is reversed: both differences have to be taken the same way round. |
# | `np.sign(x[i] - x[j]) * np.sign(y[i] - y[j])` | `np.where((x[i] - x[j]) * (y[i] - y[j]) > 0, 1, -1)` | A tie is neither agreement nor disagreement; it counts 0. |
# | `(np.sign(x[i] - x[j]) * np.sign(y[i] - y[j])).mean()` | `(np.sign(x[i] - x[j]) * np.sign(y[i] - y[j])).sum() / max(1, np.count_nonzero((x[i] - x[j]) * (y[i] - y[j])))` | The mean is over all pairs; those with a tie count, with 0. |
#
# </details>

# %% [markdown]
# The baseline knows nothing of the model: **nearness**. The closer a token is to the gap, the larger its effect, as anybody
# would guess. If attention tells more than that, its tau has to be higher, gap by gap.

# %%
guess = lesson.predict(
    "Which goes better with the effects?", ..., choices=("attention of the last layer", "nearness to the gap")
)
tau = kendall_tau if lesson.passed("13.6") else pair_by_pair
all_maps = maps_of(params, rows)
taus = {f"layer {layer + 1}, mean of heads": [] for layer in range(config.L)} | {
    "nearness": [],
    "untrained, last layer": [],
}
random_maps = maps_of(untrained, rows)[-1]
for number, place in enumerate(places):
    elsewhere = np.array([j for j in range(1, n - 1) if j != place])
    hidden = np.repeat(rows[number : number + 1], len(elsewhere) + 1, axis=0)
    hidden[np.arange(len(elsewhere)), elsewhere] = tokenizer.mask_id  # the last row stays as it is
    chances = np.exp(log_chances(params, hidden, np.full(len(hidden), place)))
    effects = abs(chances[:-1] - chances[-1]).sum(-1) / 2
    for layer, maps in enumerate(all_maps):
        taus[f"layer {layer + 1}, mean of heads"].append(
            tau(maps[number, :, place, elsewhere].mean(-1), effects)
        )
    taus["nearness"].append(tau(-abs(elsewhere - place), effects))
    taus["untrained, last layer"].append(tau(random_maps[number, :, place, elsewhere].mean(-1), effects))
taus = {name: np.array(values) for name, values in taus.items()}
last_name = f"layer {config.L}, mean of heads"
guess.answer(
    "attention of the last layer"
    if taus[last_name].mean() > taus["nearness"].mean()
    else "nearness to the gap",
    f"{taus[last_name].mean():.2f} and {taus['nearness'].mean():.2f}.",
)

# %%
figure, axes = plt.subplots(figsize=(7.5, 2.6), layout="constrained")
for height, values in enumerate(reversed(taus.values())):
    low, high = bootstrap(lambda some, values=values: values[some].mean(), len(values))
    axes.plot([low, high], [height, height], color="C0", lw=2)
    axes.plot(values.mean(), height, "o", color="C0")
axes.axvline(0, color="k", lw=0.8)
axes.set_yticks(range(len(taus)), reversed(list(taus)), fontsize=8)
axes.set(xlabel="Kendall's tau with leave-one-out effects, mean over gaps, 95% intervals by documents")
course.show(
    figure,
    "The mean tau between weights and leave-one-out effects with its interval, for the attention of each layer, for "
    "nearness to the gap, and for an untrained model.",
)

# %%
for name in list(taus)[: config.L]:
    difference = taus[name] - taus["nearness"]
    low, high = bootstrap(lambda some, one=difference: one[some].mean(), len(difference))
    says = (
        "tells more than nearness"
        if low > 0
        else "tells less than nearness"
        if high < 0
        else "can't be told from nearness"
    )
    print(f"{name:24}{difference.mean():+.2f} [{low:+.2f}, {high:+.2f}]: {says}")

# %% [markdown]
# What follows? Weights that have nothing to do with effects would sit at zero, as those of the untrained model do. A
# tau above zero says that weights and effects go together. It does not say that they go together *beyond* what the
# distance tells; for that read the differences. And whatever tau is, the first test remains valid: the weights are not
# the only ones that go with the answer. Attention is where you may look for a hypothesis; ablation and leave-one-out
# are how you test it.
#
# ## What we saw
#
# * A pattern is a set of pairs, and a lift says how much of a head's attention falls on it. Neighbour heads pass a bound
#   that was set beforehand; induction heads appear when the text rewards them.
# * What a head looks at and what it is worth are two questions. The second takes an ablation, an interval by documents,
#   and a random head to compare with.
# * A probe finds what a list could find. The control task and an untrained model show how much of its accuracy that is.
# * Where there are more tokens than numbers in a head, many weights give the very same prediction.
# * Whether weights go with effects can be measured, and has to be measured against nearness.
#
# ## Words
#
# - **lift**: how much of a head's weight lies on some pairs, over what even attention would give them.
# - **induction head**: a head that looks at what follows another copy of the piece before it.
# - **mean ablation**: replacing what a part of a model says with its mean.
# - **probe**: a small classifier that reads a property from the vectors of a model.
# - **control task**: a task with labels by coin for each piece, in which only a list helps.
# - **selectivity**: the accuracy of a probe on its task minus that on the control task.
# - **leave-one-out**: measuring the effect of a token by hiding it.
# - **Kendall's tau**: the mean agreement of two orders over all pairs.
#
# ## Where to go next
#
# * [Chapter 14](14_argument_and_scaling.ipynb) asks the same of whole trainings: which comparison shows what, and how many
#   runs it takes.
# * Put a published BERT into `GIVEN`, with windows of 64 or so, and read every picture again.
# * Rogers et al. 2020, *A Primer in BERTology*, is the map of this field; Voita et al. 2019, *Analyzing Multi-Head
#   Self-Attention*, prunes heads that have a name and heads that have none.
