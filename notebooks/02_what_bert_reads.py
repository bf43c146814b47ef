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
# # 02 · What BERT reads
#
# **The question.** The last chapter cut text into pieces and gave every piece a number. BERT computes with vectors.
# What exactly goes into the model, and what of the text is lost on the way?
#
# **Afterwards you will be able to**
#
# * lay out a sentence, or a pair of sentences, the way BERT expects them;
# * say what each of BERT's three input tables holds, and why their vectors can simply be added;
# * prove that without one of these tables BERT could not tell "the dog saw the cat" from "the cat saw the dog";
# * put many texts of different lengths together without wasting any work.
#
# You will write the first two operations of your own engine.
#
# **What to install**: from a checkout of minibert, `pip install '.[notebooks]'`. Nothing is downloaded while this runs.

# %%
# %matplotlib inline
import math
from itertools import permutations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from minibert import BertConfig, Tokenizer, course
from minibert.core import bert
from minibert.core.batch import Batch, Sequence
from minibert.core.ops.blocks import EMBEDDING_SITE, EmbeddingBlockSaved  # noqa: F401, for your answers
from minibert.core.ops.primitives import EmbeddingSaved  # noqa: F401, for your answers
from minibert.data.corpus import embedded_corpus, sentences
from minibert.model.ops import Ops
from minibert.model.params import Parameters, initialise
from minibert.tokenizer import BasicTokenizer, count_words, learn_vocab

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
lesson = course.begin("02")

# %% [markdown]
# First, a guess. Put yours in place of the three dots; the answer comes at the end of this chapter.

# %%
share_guess = lesson.predict(
    "BERT-BASE has 109,482,240 numbers to learn. What share of them belongs to its input?",
    ...,
    choices=("under 1%", "about 5%", "about 20%", "over 50%"),
)

# %% [markdown]
# ## 1. Three numbers for every token
#
# BERT reads one text, or a pair of texts: a question and a paragraph, a sentence and the one after it. The pieces of
# the first text are called A, those of the second B, and the model sees
#
# `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.
#
# **Special tokens** such as `[CLS]` and `[SEP]` are entries of the vocabulary that spell no piece of text. `[SEP]`
# closes a text. `[CLS]` comes before everything; it means nothing by itself, and that is the point: it is a free place
# where the model can gather what it has to say about the whole input. From here on a **token** is one place in such a
# sequence, whether it holds a piece of the text or a special token.
#
# Every token comes with three whole numbers (section 3 of [the paper](https://arxiv.org/abs/1810.04805), figure 2):
#
# * its *id*, the number of the piece in the vocabulary;
# * its **segment**, 0 for the first text with its `[CLS]` and `[SEP]`, 1 for the second with its `[SEP]`;
# * its *position*, which counts 0, 1, 2, … from `[CLS]` to the end.

# %%
text = [line for line in sentences([embedded_corpus()]) if line]
tokenizer = Tokenizer(learn_vocab(count_words(text, BasicTokenizer()), 8_192))
pair = tokenizer("Call me Ishmael.", "Some years ago I went to sea.")
table = np.stack([pair.ids, pair.token_type_ids, np.arange(len(pair))])

figure, axes = plt.subplots(figsize=(11, 2.3), layout="constrained")
colours = {
    "id": plt.cm.cividis(table[0] / tokenizer.vocab_size),
    "segment": plt.cm.cividis(0.25 + 0.6 * table[1]),
}
colours["position"] = plt.cm.cividis(table[2] / len(pair))
for height, (name, row) in enumerate(zip(colours, table, strict=True)):
    for place, number in enumerate(row):
        axes.add_patch(Rectangle((place, -height), 0.96, 0.9, facecolor=colours[name][place]))
        dark = colours[name][place][:3].mean() < 0.5
        axes.text(
            place + 0.48, 0.43 - height, f"{number}", ha="center", va="center", color="w" if dark else "k"
        )
    axes.text(-0.2, 0.43 - height, name, ha="right", va="center")
for place, piece in enumerate(pair.tokens):
    axes.text(place + 0.48, 1.05, piece, ha="center", va="bottom", family="monospace")
axes.set(xlim=(-1.4, len(pair)), ylim=(-2.1, 1.6))
axes.set_axis_off()
course.show(
    figure, "Three rows of numbers under the pieces of a pair of sentences: ids, segments 0 and 1, positions"
)

# %% [markdown]
# Ids jump about; segments change once; positions climb and never start again at B. A full stop appears twice with the
# same id, and only the other two rows tell the two apart.
#
# ### Exercise 02.1 (easy): lay out a pair
#
# `a` and `b` are lists of ids; `b` may be `None`. Return three arrays of the same length: ids, segments,
# positions.


# %%
# Exercise 02.1
def pair_input(a, b, cls_id, sep_id):
    """Return ids, segments and positions of [CLS] a [SEP] b [SEP], or of [CLS] a [SEP] when b is None."""
    ...


# %%
def two_texts(rng):
    a, b = rng.integers(10, 99, size=rng.integers(1, 7)), rng.integers(10, 99, size=rng.integers(1, 9))
    return (
        a.tolist(),
        b.tolist() if rng.random() < 0.7 else None,
        int(rng.integers(0, 5)),
        int(rng.integers(5, 10)),
    )


def token_by_token(a, b, cls_id, sep_id):
    rows = [(cls_id, 0)]
    for segment, part in enumerate([a] if b is None else [a, b]):
        rows += [(number, segment) for number in [*part, sep_id]]
    return *np.array(rows).T, np.array([place for place, _ in enumerate(rows)])


lesson.check(pair_input, draw=two_texts, same_as=token_by_token, times=12)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Build two plain lists first: everything of segment 0, then everything of segment 1, which may be empty. Each `[SEP]`
# belongs to the text that it closes.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The segments are a zero for each entry of the first list, then a one for each of the second. The positions
# do not depend on the segments: they are `np.arange` of the whole length.
#
# </details>
# <details><summary>Solution 02.1</summary>
#
# ```python
# def pair_input(a, b, cls_id, sep_id):
#     first = [cls_id, *a, sep_id]
#     second = [] if b is None else [*b, sep_id]
#     ids = np.array(first + second)
#     segments = np.array([0] * len(first) + [1] * len(second))
#     return ids, segments, np.arange(len(ids))
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `[cls_id, *a, sep_id]` | `[*a, sep_id]` | The sequence does not begin with [CLS]. |
# | `[cls_id, *a, sep_id]` | `[cls_id, *a]` | The first text is not closed by [SEP]. |
# | `[*b, sep_id]` | `[*b]` | The second text is not closed by [SEP]. |
# | `[*b, sep_id]` | `[cls_id, *b, sep_id]` | There is only one [CLS], in front of everything. |
# | `[1] * len(second)` | `[0] * len(second)` | The second text is segment 1. |
# | `[0] * len(first) + [1] * len(second)` | `[0] * (len(first) - 1) + [1] * (len(second) + 1)` | The first [SEP] closes the first text and belongs to segment 0. |
# | `np.arange(len(ids))` | `np.arange(1, len(ids) + 1)` | Positions begin at 0, where [CLS] is. |
# | `np.arange(len(ids))` | `np.concatenate([np.arange(len(first)), np.arange(len(second))])` | Positions run through the whole sequence; they do not start again at B. |
#
# </details>

# %% [markdown]
# ## 2. A row for a number
#
# An id is a name, not a quantity: piece 300 is not three times piece 100. So the model must not compute with
# ids. It keeps a table $E$ with $V$ rows, one for each piece of the vocabulary, and $H$ columns, and replaces
# each id with its row. Such a row is an **embedding**, and $H$, the number of columns, is called the **hidden
# size**. The numbers in the table are **parameters**: they start out random and are learnt.
#
# On paper the look-up is often written as a product. Let the **one-hot** vector of id $i$ be the vector of length $V$
# with 1 at place $i$ and 0 elsewhere, and stack those of all $T$ tokens as the rows of a matrix $X$. Then
#
# $$ (XE)_{th} = \sum_{v} X_{tv} E_{vh} = E_{i_t\,h}, $$
#
# since all terms but one are zero. The product and the look-up are the same thing, and the picture shows why.

# %%
rng = np.random.default_rng(2)
ids, small = np.array([4, 1, 6, 1]), rng.standard_normal((7, 5))
one_hot = (np.arange(7) == ids[:, None]).astype(float)  # (T,V)
course.equal("one-hot product = look-up", one_hot @ small, small[ids])

figure, panels = plt.subplots(1, 5, figsize=(10, 3.4), width_ratios=[7, 0.7, 5, 0.7, 5], layout="constrained")
for ax, values, title in (
    (panels[0], one_hot, "X  (T,V)"),
    (panels[2], small, "E  (V,H)"),
    (panels[4], one_hot @ small, "X E  (T,H)"),
):
    ax.imshow(values, cmap="cividis", vmin=0 if ax is panels[0] else -2, vmax=1 if ax is panels[0] else 2)
    ax.set(
        title=title, xticks=[], yticks=range(len(values)), yticklabels=ids if len(values) == 4 else range(7)
    )
    ax.spines[:].set_visible(False)
    for (row, column), value in np.ndenumerate(values):
        shown = f"{value:.0f}" if ax is panels[0] else f"{value:.1f}"
        ax.text(column, row, shown, ha="center", va="center", fontsize=8, color="k" if value > 0.3 else "w")
for ax, sign in ((panels[1], "×"), (panels[3], "=")):
    ax.text(0.5, 0.5, sign, fontsize=20, ha="center", va="center")
    ax.set_axis_off()
for ax, row in ((panels[2], 1), (panels[4], 1), (panels[4], 3)):
    ax.add_patch(Rectangle((-0.45, row - 0.45), 4.9, 0.9, fill=False, edgecolor="C1", lw=2.5))
course.show(
    figure, "A one-hot matrix times a table picks rows of the table; row 1 is outlined and appears twice"
)

# %%
V, H = 8_192, 128
course.say(
    f"The product costs $V \\cdot H$ = **{V * H:,}** multiplications for each token of a small model, nearly all of them "
    f"by zero. The look-up copies **{H}** numbers and multiplies nothing. Nobody computes the product, but it is good for "
    "thinking: whatever holds for products of matrices holds for look-ups."
)

# %% [markdown]
# ### Exercise 02.2 (easy): the look-up
#
# Your first operation. An engine is a Python class with a method for each operation of BERT. minibert has
# several, which compute the same results in different ways, and in this course you write one more. So the
# operation has a `self`, which you do not need here. Return the rows (T,H) **and** what has to be remembered
# for later, when the table learns: which rows were read. minibert's own type for this is
# `EmbeddingSaved(ids)`; using it lets your operation and minibert's work together.


# %%
# Exercise 02.2
def embedding(self, ids, table):
    """Return the rows of table (V,H) that ids (T,) name, as (T,H), and EmbeddingSaved(ids)."""
    ...


# %%
lesson.check(embedding)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# NumPy takes a whole array of row numbers as an index, in any order and with repetitions.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Return a pair: `table[...]`, then a comma, then what is saved.
#
# </details>
# <details><summary>Solution 02.2</summary>
#
# ```python
# def embedding(self, ids, table):
#     return table[ids], EmbeddingSaved(ids)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `table[ids]` | `table[ids - 1]` | Ids count from 0, and so do the rows. |
# | `table[ids]` | `table[np.sort(ids)]` | The rows have to stay in the order of the text. |
# | `table[ids]` | `table[: len(ids)]` | These are the first rows of the table, whatever the ids are. |
# | `table[ids]` | `table[np.unique(ids)]` | An id that occurs twice needs its row twice. |
# | `table[ids]` | `table[ids] * table.shape[1] ** 0.5` | The original Transformer scales its embeddings by the root of H; BERT does not. |
# | `EmbeddingSaved(ids)` | `EmbeddingSaved(table)` | The result is right, but what has to be saved are the ids: which rows were read. |
#
# </details>

# %% [markdown]
# The original, in `minibert/core/ops/primitives.py`:

# %%
course.source(Ops.embedding)

# %% [markdown]
# ## 3. Three tables, one sum
#
# There are three numbers for each token, so there are three tables: $V$ rows for pieces, $P$ rows for positions (512 in
# the paper) and 2 rows for segments. The input vector of a token is the **sum** of its three rows:
#
# $$ x_t = E^{\text{word}}_{i_t} + E^{\text{position}}_{t} + E^{\text{segment}}_{s_t}. $$
#
# Here is figure 2 of the paper, drawn from a live model. Each column shows the first 12 numbers of a vector,
# before any training.

# %%
config = BertConfig.from_size("tiny", vocab_size=tokenizer.vocab_size)
params = initialise(config, seed=0).astype(np.float64)
tables = params.tree["embeddings"]
parts = {
    "word": tables["word"][pair.ids],
    "position": tables["position"][np.arange(len(pair))],
    "segment": tables["segment"][pair.token_type_ids],
}
summed = sum(parts.values())

figure, panels = plt.subplots(4, 1, figsize=(10.5, 5.6), layout="constrained")
largest = np.abs(summed[:, :12]).max()
for ax, (name, values), sign in zip(
    panels, [*parts.items(), ("sum", summed)], ["", "+", "+", "="], strict=True
):
    ax.imshow(values[:, :12].T, cmap="cividis", vmin=-largest, vmax=largest, aspect="auto")
    ax.set(xticks=[], yticks=[], ylabel=name)
    ax.text(-0.06, 0.5, sign, transform=ax.transAxes, fontsize=18, ha="center", va="center")
    ax.vlines(np.arange(len(pair) - 1) + 0.5, -0.5, 11.5, color="w", lw=3)
panels[0].xaxis.tick_top()
panels[0].set_xticks(range(len(pair)), pair.tokens, family="monospace")
panels[0].tick_params(length=0)
course.show(figure, "Figure 2 of the paper: word, position and segment vectors of each token, and their sum")

# %% [markdown]
# In the first row of the picture the two full stops have the same column. In the second row all columns differ, and the
# third has only two patterns. In the sum no two columns are alike.
#
# ### Why add them instead of putting them side by side?
#
# Laying the three vectors end to end seems tidier: nothing gets mixed. But sooner or later a network
# multiplies a vector by a matrix, and then the tidiness is gone. Suppose that it did so at once (BERT has a
# step in between, section 5, so this is an argument, not a proof). Split such a matrix $W$, with $3H$ rows,
# into three parts of $H$ rows:
#
# $$ [\,w \;\; p \;\; s\,]\begin{bmatrix} W_1 \\ W_2 \\ W_3 \end{bmatrix} = wW_1 + pW_2 + sW_3 . $$
#
# The right side is a sum of three looked-up vectors again, from tables that were multiplied once and for all:
# $E^{\text{word}}W_1$ and so on. Learning those tables directly gives the same family of functions with a third of the
# width.

# %%
word, position, segment = parts.values()
W = [rng.standard_normal((config.H, config.H)) for _ in range(3)]
side_by_side = np.concatenate([word, position, segment], axis=1) @ np.concatenate(W)
course.equal("side by side = sum", side_by_side, word @ W[0] + position @ W[1] + segment @ W[2])
folded = [tables["word"] @ W[0], tables["position"] @ W[1], tables["segment"] @ W[2]]
lookups = (pair.ids, np.arange(len(pair)), pair.token_type_ids)
course.equal(
    "sum = three folded tables", side_by_side, sum(one[at] for one, at in zip(folded, lookups, strict=True))
)

# %% [markdown]
# ## 4. Can a sum be taken apart again?
#
# The sum of 3 and 4 is 7, and nobody who sees only the 7 can tell that it came from a 3 and a 4. Are our three vectors
# lost in their sum, too? Take random tables with $V = 8{,}192$ pieces, 128 positions and 2 segments: over two million
# possible combinations. Given a sum, look for the piece whose vector is nearest to it, and likewise for position and
# segment.

# %%
width_guess = lesson.predict(
    "How many numbers must a vector have for all three to be recovered from 19 sums in 20?",
    ...,
    choices=(8, 64, 512, 4096),
)


# %%
def recovered(H, draws, rng):
    """Return the share of sums from which all three rows are found, and from which the piece is."""
    sizes = (8_192, 128, 2)
    random_tables = [rng.standard_normal((rows, H)) for rows in sizes]
    chosen = [rng.integers(rows, size=draws) for rows in sizes]
    x = sum(one[at] for one, at in zip(random_tables, chosen, strict=True))
    # |x - e|^2 = |x|^2 - 2 x.e + |e|^2, and |x|^2 is the same for all rows e
    nearest = [(x @ one.T - (one * one).sum(1) / 2).argmax(1) for one in random_tables]
    right = [found == at for found, at in zip(nearest, chosen, strict=True)]
    return np.all(right, 0).mean(), right[0].mean()


widths = [4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 128, 192, 256]
draws = lesson.scale(1_000, 100)
share, share_of_pieces = np.array([recovered(H, draws, np.random.default_rng(H)) for H in widths]).T


# %% [markdown]
# Why should it work at all? Two random vectors in many dimensions are almost at right angles, so each of the three
# vectors disturbs the search for the others only a little. We can put numbers on this. All coordinates are independent
# with mean 0 and variance 1, so $|x|^2 \approx 3H$, and the right piece lies at a squared distance of about $2H$, the
# squared length of the other two vectors together. A wrong piece $u$ has nothing to do with $x$. Let $a$ be one
# coordinate of $x$, and $b$ the same coordinate of $u$. Hold $a$ fixed. The first four moments of $b$ are 0, 1, 0 and 3,
# and so
#
# $$ \mathbb{E}\,(a-b)^2 = a^2 + 1, \qquad \operatorname{Var}\,(a-b)^2 = 4a^2 + 2 .$$
#
# As $a^2$ averages 3, the squared distance of a wrong piece averages $4H$ over $H$ coordinates, with standard deviation
# $\sqrt{14H}$. The gap of $2H$ grows faster than the spread: it is $\sqrt{2H/7}$ standard deviations wide, and none of
# the 8,191 wrong distances may fall that far below average. The dashed line assumes that their distances are normally
# distributed. It errs on the safe side: a sum of squares strays less far below its mean than a normally distributed
# number would.

# %%
# The two moments, both sides: expectations over b by Gauss-Hermite quadrature, exact for polynomials.
nodes, weights = np.polynomial.hermite_e.hermegauss(9)
weights = weights / weights.sum()
a = np.linspace(-2, 2, 5)[:, None]
distance = (a - nodes) ** 2
course.equal("mean of (a - b)²", distance @ weights, a[:, 0] ** 2 + 1)
course.equal("variance of (a - b)²", distance**2 @ weights - (distance @ weights) ** 2, 4 * a[:, 0] ** 2 + 2)


def predicted(H, rng, V=8_192, n=4_000):
    """Return the share of pieces that the normal approximation expects to be found."""
    word, others = rng.standard_normal((n, H)), math.sqrt(2) * rng.standard_normal((n, H))
    x2, own = ((word + others) ** 2).sum(1), (others**2).sum(1)
    z = (H + x2 - own) / np.sqrt(2 * H + 4 * x2)
    above = 1 - 0.5 * np.array([math.erfc(one / math.sqrt(2)) for one in z])
    return (above ** (V - 1)).mean()


expected = [predicted(H, np.random.default_rng(0)) for H in widths]
enough = next((H for H, one in zip(widths, share, strict=True) if one >= 0.95), widths[-1])
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
axes.plot(widths, share, "o-", label="piece, position and segment all found")
axes.plot(widths, share_of_pieces, "^:", label="the piece found")
axes.plot(widths, expected, "k--", lw=1, label="the piece, expected")
axes.axhline(0.95, color="0.6", lw=0.8)
axes.set(xscale="log", xlabel="hidden size H", ylabel="share of sums", xticks=[4, 8, 16, 32, 64, 128, 256])
axes.set_xticklabels([4, 8, 16, 32, 64, 128, 256])
axes.minorticks_off()
axes.legend(frameon=False)
course.show(
    figure, "Share of sums taken apart correctly, against the hidden size: near 0 below 16, near 1 above 80"
)
width_guess.answer(
    min((8, 64, 512, 4096), key=lambda one: abs(math.log(one / enough))),
    f"that is nearest. The first width in the picture to reach 95% is {enough}. "
    "BERT-BASE has 768, and room to spare.",
)

# %% [markdown]
# So a vector has a lot of room. BERT has no need to search like this, and learnt tables are not random ones. But the
# experiment shows that adding three vectors need not lose anything, provided they have enough numbers.

# %% [markdown]
# ## 5. The same scale for every token
#
# Two more steps turn the sum into what the model reads. **LayerNorm** (Ba et al. 2016) shifts and scales each
# vector on its own so that its $H$ numbers have mean 0 and variance 1, then stretches and shifts each column
# by two learnt vectors $\gamma$ and $\beta$:
#
# $$ \operatorname{LN}(x) = \gamma \odot \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} + \beta,
#    \qquad \mu = \frac1H \sum_h x_h, \quad \sigma^2 = \frac1H \sum_h (x_h - \mu)^2 . $$
#
# The $\odot$ multiplies number by number, and $\varepsilon$ is tiny: it guards against a division by zero. Afterwards a
# vector $n = (x-\mu)/\sqrt{\sigma^2+\varepsilon}$ has mean zero and squared length $H\sigma^2/(\sigma^2+\varepsilon)$,
# and it no longer shows whether $x$ was shifted or, apart from $\varepsilon$, scaled. Chapter 6 takes LayerNorm apart.

# %%
ops, eps = Ops(), config.layer_norm_eps
normal, _ = ops.layer_norm(summed, np.ones(config.H), np.zeros(config.H), eps)
variance = summed.var(-1)
course.equal("the mean is zero", normal - normal.mean(-1, keepdims=True), normal)
course.equal("squared length", (normal**2).sum(-1), config.H * variance / (variance + eps))
shifted, _ = ops.layer_norm(3.0 * summed + 0.5, np.ones(config.H), np.zeros(config.H), 9 * eps)
course.equal("shift and scale are forgotten", shifted, normal)
course.say(
    f"Before LayerNorm our vectors have lengths from {np.linalg.norm(summed, axis=1).min():.3f} to "
    f"{np.linalg.norm(summed, axis=1).max():.3f}; afterwards all of them have length "
    f"$\\sqrt H$ = {math.sqrt(config.H):.3f}, apart from $\\varepsilon$."
)

# %% [markdown]
# The second step is for training only. **Dropout** sets a tenth of all numbers to zero, drawn afresh at each step, and
# scales the others up to make up for it; the model learns not to rely on any single number. The random bits come from
# minibert, so that every engine draws the same ones. A model drops numbers in many places, and no two of them should
# drop the same ones, so each place has a number of its own, called its site. The site of the input is
# `EMBEDDING_SITE`.
#
# ### Exercise 02.3 (core): the embedding block
#
# Put it together: $\text{dropout}(\text{LayerNorm}(\text{word} + \text{position} + \text{segment}))$.
#
# A **batch** is what the model processes in one go: the tokens of one text or of many.
#
# * `batch.input_ids`, `batch.positions` and `batch.token_type_ids` are the three numbers of each of T tokens;
# * `params` has the tables `"word"`, `"position"`, `"segment"` and the vectors `"gamma"` and `"beta"`;
# * `self.embedding(ids, table)`, `self.layer_norm(x, gamma, beta, eps)` and `self._dropout(x, drop, EMBEDDING_SITE)`
#   each return a result and something saved; $\varepsilon$ is `config.layer_norm_eps`, and `drop` is what the dropout
#   mask is drawn from, None where nothing is dropped;
# * return the result (T,H) and `EmbeddingBlockSaved(word, position, segment, norm, dropout)` with the five saved things.


# %%
# Exercise 02.3
def embedding_block(self, batch, params, config, drop):
    """Return dropout(LayerNorm(word + position + segment)) and an EmbeddingBlockSaved of all that was saved."""
    ...


# %%
lesson.check(embedding_block)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Three calls of `self.embedding`, each with two results. Add the first results, keep the second ones.
#
# </details>
# <details><summary>Hint 2</summary>
#
# LayerNorm takes the sum, dropout takes what LayerNorm gives. Where `drop` is None, `self._dropout` returns its input
# unchanged, so you need no `if`.
#
# </details>
# <details><summary>Solution 02.3</summary>
#
# ```python
# def embedding_block(self, batch, params, config, drop):
#     word, saved_word = self.embedding(batch.input_ids, params["word"])
#     position, saved_position = self.embedding(batch.positions, params["position"])
#     segment, saved_segment = self.embedding(batch.token_type_ids, params["segment"])
#     total = word + position + segment
#     x, saved_norm = self.layer_norm(total, params["gamma"], params["beta"], config.layer_norm_eps)
#     y, saved_dropout = self._dropout(x, drop, EMBEDDING_SITE)
#     return y, EmbeddingBlockSaved(saved_word, saved_position, saved_segment, saved_norm, saved_dropout)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `word + position + segment` | `word + position` | The segment is missing from the sum: the model could not tell A from B. |
# | `word + position + segment` | `word + segment` | The position is missing from the sum: the model could not tell one order from another. |
# | `batch.positions, params` | `np.arange(len(batch.input_ids)) % len(params["position"]), params` | Positions begin at 0 in every sequence; `batch.positions` has them. |
# | `params["gamma"], params["beta"]` | `params["beta"], params["gamma"]` | gamma stretches and beta shifts; here they changed places. |
# | `config.layer_norm_eps` | `1e-2` | The eps of LayerNorm is the configuration's. |
# | `self._dropout(x, drop, EMBEDDING_SITE)` | `(x, None)` | Dropout is missing; it comes after LayerNorm. |
# | `self._dropout(x, drop, EMBEDDING_SITE)` | `self._dropout(total, drop, EMBEDDING_SITE)` | Dropout takes what LayerNorm gives, not the sum. |
#
# </details>

# %%
course.source(Ops.embedding_block)

# %% [markdown]
# ## 6. Why order needs positions
#
# Does BERT need the position table at all? What happens to the input next is the subject of the following chapters. One
# fact about it is enough here: apart from their vectors, **all tokens are treated alike**. The model computes a new
# vector for each token from its own vector and from sums over all tokens, and a sum does not care about order. In
# formulas, if $\Pi$ is a matrix that reorders rows, every step $f$ of this computation obeys
#
# $$ f(\Pi X) = \Pi f(X), $$
#
# and is called **permutation-equivariant**. If the input of a token does not depend on its position, neither does
# anything that follows. Let us shuffle a sentence and look at what the model makes of `[CLS]`.

# %%
orders_guess = lesson.predict(
    "'the dog saw the cat' has 60 different orders. "
    "Without positions, how many different results does [CLS] give?",
    ...,
    choices=(1, 2, 30, 60),
)

# %%
words = tokenizer("the dog saw the cat").ids[1:-1].tolist()
orders = sorted(set(permutations(words)))
as_batch = Batch.pack(
    [
        Sequence(np.array([tokenizer.cls_id, *order, tokenizer.sep_id]), np.zeros(len(order) + 2, np.int32))
        for order in orders
    ]
)
without = Parameters(config, params.flat.copy())
without.tree["embeddings"]["position"][:] = 0
results = {}
for name, some in (("with positions", params), ("without positions", without)):
    states = bert.hidden_states(ops, config, (config.L,), some.tree, as_batch)[-1]
    results[name] = states[as_batch.first_rows]  # (60,H), the vector of [CLS]
distinct = {name: len(np.unique(found.round(9), axis=0)) for name, found in results.items()}
assert len(orders) == 60
course.equal(
    "[CLS] without positions",
    results["without positions"],
    np.repeat(results["without positions"][:1], 60, 0),
)
orders_guess.answer(
    distinct["without positions"],
    f"to the model every order is the same bag of words. With positions there are {distinct['with positions']}.",
)

# %% [markdown]
# The vectors have 128 numbers. The picture shows them along the two directions in which these 60 differ most; each dot is
# one order of the words.

# %%
spread = results["with positions"] - results["with positions"].mean(0)
_, lengths_of_axes, axes_of_spread = np.linalg.svd(spread)
figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained", sharex=True, sharey=True)
first_the = np.array([order.index(words[0]) for order in orders])
for ax, (name, found) in zip(panels, results.items(), strict=True):
    flat = (found - found.mean(0)) @ axes_of_spread[:2].T
    dots = ax.scatter(*flat.T, c=first_the, cmap="viridis", s=30, edgecolor="k", linewidth=0.4)
    ax.set(title=f"{name}: {distinct[name]} different", xlabel="first direction")
panels[0].set_ylabel("second direction")
figure.colorbar(dots, ax=panels, label="place of the first 'the'", ticks=range(4))
course.show(
    figure, "The vector of [CLS] for 60 orders of a sentence: 60 dots with positions, a single dot without"
)

# %% [markdown]
# The dog and the cat have changed places, and the model cannot tell. The same holds for every other token: its vector
# moves along with it and stays the same. The table of positions is the only thing that turns a bag of words into a
# sequence.
#
# ### Learnt, or computed?
#
# The original Transformer (Vaswani et al. 2017) did not learn its position table. It computed it, from sines and
# cosines whose wavelengths grow from $2\pi$ to $10{,}000 \cdot 2\pi$. With $\omega_j = 10000^{-2j/H}$, the columns $2j$
# and $2j+1$ of row $p$ are
#
# $$ \sin(\omega_j p), \qquad \cos(\omega_j p) . $$
#
# The reason was that a step from $p$ to $p + k$ turns each such pair by the angle $\omega_j k$, wherever it starts:
#
# $$ \begin{bmatrix} \sin \omega(p+k) \\ \cos \omega(p+k) \end{bmatrix} =
#    \begin{bmatrix} \cos \omega k & \sin \omega k \\ -\sin \omega k & \cos \omega k \end{bmatrix}
#    \begin{bmatrix} \sin \omega p \\ \cos \omega p \end{bmatrix}. $$
#
# Hence the scalar product of two rows depends on their distance alone: it is $\sum_j \cos(\omega_j k)$.

# %%
P, width = 96, 32
omega = 10_000.0 ** (-2 * np.arange(width // 2) / width)
angles = np.arange(P)[:, None] * omega
sinusoids = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(P, width)

k = 17
pairs = sinusoids.reshape(P, -1, 2)  # (P,H/2,2)
turn = np.array(
    [[np.cos(omega * k), np.sin(omega * k)], [-np.sin(omega * k), np.cos(omega * k)]]
)  # (2,2,H/2)
turned = np.einsum("abj,pjb->pja", turn, pairs[: P - k])
course.equal("a step is a turn", turned, pairs[k:])
distances = np.abs(np.arange(P)[:, None] - np.arange(P))
course.equal("scalar products", sinusoids @ sinusoids.T, np.cos(distances[..., None] * omega).sum(-1))

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.4), layout="constrained", width_ratios=[1.3, 1])
shown = left.imshow(sinusoids.T, cmap="cividis", aspect="auto", interpolation="nearest")
left.set(xlabel="position", ylabel="column", title="computed positions")
figure.colorbar(shown, ax=left)
start = tables["position"][:P, :width]
size = np.linalg.norm(start, axis=1)
right.plot(sinusoids @ sinusoids[40] / (width / 2), label="computed")
right.plot(start @ start[40] / (size * size[40]), "--", label="BERT's, at the random start", lw=1)
right.set(xlabel="position", ylabel="cosine with position 40", title="what is near position 40?")
right.set_ylim(top=1.35)
right.legend(frameon=False, loc="upper right")
course.show(
    figure, "Sinusoidal positions as stripes, and their cosine with position 40, which falls with distance"
)

# %% [markdown]
# The computed table says from the start which positions are close to each other. BERT's table says nothing at
# first: all positions are about equally far from all others, and training has to find out that 40 is next
# to 41. In BERTs that have been trained, neighbours do look alike (Wang and Chen 2020). The price is that a
# row which was never trained means nothing, so BERT can't read beyond its last position. The gain is that
# nobody had to decide how position should matter.

# %% [markdown]
# ## 7. Many texts, no padding
#
# Texts differ in length, and a computer likes rectangles. The usual way out is **padding**: fill up every row
# of a batch to the length of the longest with a special token `[PAD]`, compute with it, and ignore the
# result. How much of the work is thrown away?

# %%
padding_guess = lesson.predict(
    "32 random sentences from our books in one rectangle, cut at 128 tokens: what share of it is [PAD]?",
    ...,
    choices=("about 10%", "about 30%", "about 50%", "about 70%"),
)

# %%
encoded = tokenizer.encode_batch(text, max_length=128)
lengths = np.diff(encoded.cu_seqlens)


# lengths (N,) -> padding of the rectangles of `size` rows, and pairs of tokens in them per pair needed
def waste(lengths, size):
    rows = lengths[: len(lengths) // size * size].reshape(-1, size)
    longest = rows.max(1)
    padding = 1 - rows.sum() / (longest * size).sum()
    return padding, (longest**2 * size).sum() / (rows.astype(float) ** 2).sum()


sizes = 2 ** np.arange(9)
order = np.random.default_rng(1).permutation(len(lengths))
padding, pairs_factor = np.array([waste(lengths[order], size) for size in sizes]).T
padding_of_32, factor_of_32 = padding[5], pairs_factor[5]
padding_guess.answer(
    "about 70%" if 0.6 < padding_of_32 < 0.8 else f"{padding_of_32:.0%}",
    f"{padding_of_32:.1%}, as one long sentence makes 31 others long.",
)

sample = np.sort(order[:32])
grid = np.arange(lengths[sample].max()) < lengths[sample][:, None]
figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(11.5, 3.4), layout="constrained", width_ratios=[1.2, 1, 1]
)
left.imshow(grid, cmap="cividis", aspect="auto", interpolation="nearest")
left.set(
    title=f"one batch of 32: {1 - grid.mean():.0%} is [PAD] (dark)", xlabel="position", ylabel="sentence"
)
middle.hist(lengths, bins=np.arange(2, 131, 4), color="C0")
middle.set(title="tokens per sentence", xlabel="length", ylabel="sentences")
right.plot(sizes, 1 / (1 - padding), "o-", label="tokens")
right.plot(sizes, pairs_factor, "^--", label="pairs of tokens")
right.set(
    xscale="log",
    xlabel="sentences in a batch",
    title="ratio of computed to needed",
    xticks=[1, 4, 16, 64, 256],
)
right.set_xticklabels([1, 4, 16, 64, 256])
right.minorticks_off()
right.legend(frameon=False)
course.show(
    figure,
    "A padded batch is mostly padding; histogram of sentence lengths; padding grows with the batch size",
)

# %%
course.say(
    f"Most sentences are short (half of them have at most {np.median(lengths):.0f} tokens), but in a batch of 32 the "
    f"longest one sets the width, and **{padding_of_32:.0%}** of the rectangle is padding. Where the model "
    "compares every token with every other, it is worse: "
    f"**{factor_of_32:.1f} times** the pairs that are needed."
)

# %% [markdown]
# minibert never pads. It lays the sequences end to end in one row of $T$ tokens, a **packed batch**, and keeps the list
# of places where sequences begin, closed by $T$ itself: `cu_seqlens`, for "cumulative sequence lengths". Sequence $s$
# is `ids[cu_seqlens[s]:cu_seqlens[s+1]]`. Most of a BERT treats each token by itself and need not even know where a
# sequence ends.
#
# ### Exercise 02.4 (core): pack
#
# `sequences` is a list of arrays of ids, each with at least one. Return the T ids end to end, the T positions, and
# `cu_seqlens` with one entry more than there are sequences. No loop over tokens, please: a batch has thousands.


# %%
# Exercise 02.4
def pack(sequences):
    """Return ids (T,), positions (T,) and cu_seqlens (S+1,) of sequences laid end to end."""
    ...


# %%
def some_sequences(rng):
    return ([rng.integers(99, size=n) for n in rng.integers(1, 7, size=rng.integers(1, 6))],)


def one_after_another(sequences):
    ids, positions, cu_seqlens = [], [], [0]
    for one in sequences:
        for place, number in enumerate(one):
            ids.append(number)
            positions.append(place)
        cu_seqlens.append(len(ids))
    return np.array(ids), np.array(positions), np.array(cu_seqlens)


lesson.check(pack, draw=some_sequences, same_as=one_after_another, times=8)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `np.cumsum` of the lengths says where sequences end. Where does the first one begin?
#
# </details>
# <details><summary>Hint 2</summary>
#
# A position is the row number minus that of the row where its own sequence begins.
# `np.repeat(begins, lengths)` gives each token the beginning of its sequence.
#
# </details>
# <details><summary>Solution 02.4</summary>
#
# ```python
# def pack(sequences):
#     lengths = np.array([len(one) for one in sequences])
#     cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
#     ids = np.concatenate(sequences)
#     positions = np.arange(len(ids)) - np.repeat(cu_seqlens[:-1], lengths)
#     return ids, positions, cu_seqlens
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `return ids, positions, cu_seqlens` | `return ids, positions, cu_seqlens[1:]` | The first sequence begins at 0, and that belongs in the list as well. |
# | `return ids, positions, cu_seqlens` | `return ids, positions, cu_seqlens[:-1]` | The list is closed by T, so that the last sequence has an end. |
# | `return ids, positions, cu_seqlens` | `return ids, positions, np.concatenate([[0], lengths])` | These are lengths; they have to be added up. |
# | `np.arange(len(ids)) - np.repeat(cu_seqlens[:-1], lengths)` | `np.arange(len(ids))` | Positions run on through the batch; each sequence has to begin at 0 again. |
# | `cu_seqlens[:-1], lengths` | `cu_seqlens[1:], lengths` | Positions are counted from the end of the sequence, not from its beginning. |
# | `np.arange(len(ids)) -` | `1 + np.arange(len(ids)) -` | Positions begin at 0. |
#
# </details>

# %% [markdown]
# Is a packed batch the same as each sequence alone? It should be, up to rounding. We send five sentences through a
# model with random weights, together and one by one.

# %%
five = [encoded[int(n)] for n in order[:5]]
together = Batch.pack([Sequence(one.ids, one.token_type_ids) for one in five])
packed = bert.hidden_states(ops, config, (config.L,), params.tree, together)[-1]
alone = [
    bert.hidden_states(
        ops, config, (config.L,), params.tree, Batch.pack([Sequence(one.ids, one.token_type_ids)])
    )[-1]
    for one in five
]
course.equal("packed = alone", packed, np.concatenate(alone))
if lesson.passed("02.4"):
    own = pack([one.ids for one in five])
    for name, found, expected in zip(
        ("ids", "positions", "cu_seqlens"),
        own,
        (together.input_ids, together.positions, together.cu_seqlens),
        strict=True,
    ):
        course.equal(f"your {name} = minibert's", found, expected)

# %% [markdown]
# ### Where tokens are compared
#
# Only where tokens look at each other does the model have to know which belong together. A token may look at tokens of
# its own sequence and no others. In a picture of all $T \times T$ pairs that leaves squares along the diagonal.

# %%
owner = np.repeat(np.arange(together.S), together.lengths)
allowed = np.where(owner[:, None] == owner, owner[:, None] + 1.0, np.nan)
widest = int(together.lengths.max())
figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 4), layout="constrained")
left.imshow(allowed, cmap="viridis", interpolation="nearest")
left.set(title=f"packed: {(together.lengths**2).sum():,} pairs", xlabel="token", ylabel="token")
padded = np.full((together.S * widest, together.S * widest), np.nan)
for number, length in enumerate(together.lengths):
    square = slice(number * widest, (number + 1) * widest)
    padded[square, square] = 0
    padded[number * widest : number * widest + length, number * widest : number * widest + length] = (
        number + 1
    )
right.imshow(np.where(padded > 0, padded, np.nan), cmap="viridis", interpolation="nearest")
right.imshow(np.where(padded == 0, 1.0, np.nan), cmap="Greys", vmin=0, vmax=3, interpolation="nearest")
right.set(title=f"padded: {together.S * widest**2:,} pairs", xlabel="token, with padding")
course.show(
    figure,
    "Pairs of tokens that are compared: squares on the diagonal; with padding the squares are mostly grey",
)

# %% [markdown]
# Squares of different sizes do not make a rectangle either. But squares of the *same* size do: minibert
# gathers all sequences of one length and processes them in one go. This is the harder half of doing without
# padding, and it is left to you.
#
# ### Exercise 02.5 (hard): sequences of equal length
#
# Given `cu_seqlens` (S+1,), return two things:
#
# * `groups`, a list with one array for each length that occurs, shortest first. The array has a row for each sequence of
#   that length, in the order of the batch, and the row holds the token numbers of the sequence;
# * `back` (T,), the index that puts the rows of all groups, one group after the other, back into the order of the batch:
#   if `y` are rows in the order of the groups, `y[back]` are the same rows in the order of the batch.
#
# For `cu_seqlens = [0, 2, 3, 5]` the groups are `[[2]]` and `[[0, 1], [3, 4]]`, and `back` is `[1, 2, 0, 3, 4]`.


# %%
# Exercise 02.5
def groups_of_equal_length(cu_seqlens):
    """Return a list of (sequences, length) arrays of token numbers, and the order (T,) that leads back."""
    ...


# %%
def some_borders(rng):
    n = int(rng.integers(2, 5))
    lengths = rng.permutation([n, 1, n, n + 2, *rng.integers(1, 7, size=rng.integers(0, 4))])
    return (np.concatenate([[0], np.cumsum(lengths)]),)


def by_sorting_sequences(cu_seqlens):
    sequences = [
        list(range(a, b)) for a, b in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True)
    ]
    ordered = sorted(sequences, key=len)  # stable: equal lengths stay in order
    places = {row: place for place, row in enumerate(row for one in ordered for row in one)}
    found = [
        np.array([one for one in ordered if len(one) == n]) for n in sorted({len(one) for one in ordered})
    ]
    return found, np.array([places[row] for row in range(len(places))])


lesson.check(groups_of_equal_length, draw=some_borders, same_as=by_sorting_sequences, times=8)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# For one length `n`: which sequences have it (`lengths == n`), and where do they begin? A column of beginnings plus the
# row `0 … n-1` is the whole array.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Put the token numbers of all groups into one long array. It says which token is at each place; you want the
# place of each token. The inverse of a permutation is its `np.argsort`.
#
# </details>
# <details><summary>Solution 02.5</summary>
#
# ```python
# def groups_of_equal_length(cu_seqlens):
#     begins, lengths = cu_seqlens[:-1], np.diff(cu_seqlens)
#     groups = [begins[lengths == n][:, None] + np.arange(n) for n in np.unique(lengths)]
#     back = np.argsort(np.concatenate([rows.ravel() for rows in groups]))
#     return groups, back
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `np.unique(lengths)` | `lengths` | A length that occurs twice must make one group, not two. |
# | `cu_seqlens[:-1], np.diff` | `cu_seqlens[1:], np.diff` | A sequence begins at cu_seqlens[s]; cu_seqlens[s+1] is the first row after it. |
# | `np.argsort(np.concatenate([rows.ravel() for rows in groups]))` | `np.concatenate([rows.ravel() for rows in groups])` | This is the way from the batch to the groups; the way back is its inverse. |
# | `rows.ravel()` | `rows.T.ravel()` | The rows of a group follow each other sequence by sequence. |
# | `np.unique(lengths)]` | `np.unique(lengths)[::-1]]` | The shortest sequences come first. |
# | `np.arange(n)` | `np.arange(n - 1, -1, -1)` | The tokens of a sequence stay in the order of the text. |
#
# </details>

# %%
from minibert.core.ops.attention import equal_length_groups

course.source(equal_length_groups)

# %% [markdown]
# Padding and packing compute the same numbers; they differ in what they waste. Sorting texts by length before they are
# padded helps as well, and many libraries do it, but training wants its batches in random order.
#
# ## 8. What the tables weigh
#
# Now back to your first guess.

# %%
base = BertConfig()
counts = {
    "word": base.V * base.H,
    "position": base.P * base.H,
    "segment": base.type_vocab_size * base.H,
    "LayerNorm": 2 * base.H,
}
everything = 109_482_240  # chapter 7 counts them
input_share = sum(counts.values()) / everything
share_guess.answer(
    "about 20%" if 0.15 < input_share < 0.25 else f"{input_share:.1%}",
    f"{sum(counts.values()):,} of {everything:,}, that is {input_share:.1%}, almost all of it for words.",
)

figure, axes = plt.subplots(figsize=(10, 1.9), layout="constrained")
left = 0
for number, (name, count) in enumerate(
    [
        ("word", counts["word"]),
        ("position", counts["position"]),
        ("all the rest of BERT-BASE", everything - sum(counts.values())),
    ]
):
    axes.barh(0, count / 1e6, left=left / 1e6, color=plt.cm.cividis(0.1 + 0.4 * number), edgecolor="w")
    if name != "position":
        axes.text(
            (left + count / 2) / 1e6,
            0,
            f"{name}\n{count:,}",
            ha="center",
            va="center",
            color="k" if number > 1 else "w",
        )
    else:
        axes.annotate(
            f"position {count:,}",
            ((left + count / 2) / 1e6, 0.4),
            (0, 8),
            textcoords="offset points",
            ha="center",
        )
    left += count
axes.set(yticks=[], xlabel="million parameters", xlim=(0, everything / 1e6), ylim=(-0.45, 0.8))
axes.spines["left"].set_visible(False)
course.show(
    figure,
    "The word table is about a fifth of BERT-BASE; the position table is a thin line; the segments cannot be seen",
)

# %% [markdown]
# The segment table with its 1,536 numbers is too thin to be drawn at all.
#
# ## What we saw
#
# * A token is three numbers: id, position, segment. Each is replaced by a row of a table, and the rows are added.
# * A sum of looked-up vectors is as good as putting them side by side and multiplying by a matrix, and if the vectors
#   have enough numbers, it can be taken apart again.
# * Without the position table a BERT sees a bag of words. We counted: 60 orders, one result.
# * Laid end to end, texts of any length make one batch in which every token is a real one. The results are the same.
#
# What is lost? Whatever the pieces do not spell: where the spaces were, accents and capital letters in an
# uncased model, characters without a piece. And everything beyond the last position.
#
# What you take from this chapter is `mine.py`, with those of your operations that have passed.

# %%
engine = lesson.engine()
course.equal(
    "your engine's input = minibert's",
    engine.embedding_block(together, tables, config, None)[0],
    ops.embedding_block(together, tables, config, None)[0],
)
lesson.keep()

# %% [markdown]
# ## Words
#
# - **special tokens**: entries of the vocabulary that spell no piece of text, such as `[CLS]`, `[SEP]` and `[PAD]`.
# - **token**: one place of a sequence that the model reads, a piece or a special token.
# - **segment**: which of the two texts of a pair a token belongs to, 0 or 1.
# - **embedding**: the vector that a table holds for a number.
# - **hidden size**: how many numbers such a vector has, $H$.
# - **parameters**: the numbers of a model that are learnt.
# - **one-hot**: a vector that is 1 at one place and 0 elsewhere.
# - **LayerNorm**: brings each vector to mean 0 and variance 1, then stretches and shifts it by learnt amounts.
# - **dropout**: in training, sets a random share of numbers to zero and scales up the others.
# - **batch**: the tokens of one or many texts that the model processes in one go.
# - **permutation-equivariant**: reordering the input reorders the output and changes nothing else.
# - **padding**: filling texts up to one length with `[PAD]`.
# - **packed batch**: sequences laid end to end without padding, with `cu_seqlens` to say where each begins.
#
# ## Where to go next
#
# * [Chapter 03](03_masks_and_next_sentences.ipynb), *Masks and next sentences*: what BERT is asked about the input that
#   you can build now.
# * `minibert/core/batch.py` is the packed batch of the library, with weights and labels next to the ids.
# * Section 3.5 of [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762) has the sinusoids; figure 2 of
#   [Devlin et al. 2019](https://arxiv.org/abs/1810.04805) the three tables.
