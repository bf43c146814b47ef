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
# # 06 · The hard backwards
#
# To run this notebook: `pip install '.[notebooks]'` from a checkout of minibert. Nothing is downloaded.
#
# **The question.** You can differentiate a matrix product or a curve on the back of an envelope. But BERT also looks
# rows up in a table, uses that table twice, adds a layer's input to its output, drops numbers at random, divides a row
# by a spread that depends on every entry of the row, and lets every token look at every other. These are the backward
# passes that people copy. Can you *derive* them, so that you never have to look one up again?
#
# **After this chapter you can**
#
# * turn any "copy" in a forward pass into an "add" in the backward pass, and see why repeated words need care;
# * show with a measurement what a shortcut round a layer does for a gradient;
# * walk back through LayerNorm line by line, put the walk into one formula, and draw it as two geometric steps;
# * go back through attention, step by step, and say what has to be kept for it and what does not.
#
# The judge is the one of chapter 05: the complex step of the forward pass.

# %%
# %matplotlib inline
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np

from minibert import course
from minibert.core.ops.attention import equal_length_groups
from minibert.core.ops.primitives import LayerNormSaved, TakeRowsSaved
from minibert.course.routes import jacobian
from minibert.data.corpus import embedded_corpus, sentences
from minibert.model.ops import Ops

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
lesson = course.begin("06")


def derivative(function, x, v):
    """Differentiate an array-valued function at x along v, by the complex step."""
    return function(x + 1e-30j * v).imag / 1e-30


# %% [markdown]
# ## 1. Copies come back as sums
#
# Start with the easiest operation that people get wrong. BERT's masked positions are rows of a big array: take rows 4,
# 1 and then 4 again of `x`, and continue with those. In NumPy that is `x[[4, 1, 4]]`. Three rows of `dy` come back. To
# which rows of `x` do they belong, and what does row 4 get, which was taken twice? And row 0, which was not taken?
#
# ### Exercise 06.1 (easy): the gradient of one row
#
# `rows` (M,) lists the rows that were taken, in any order, repeated or not, and `dy` (M, H) is the gradient of what was
# taken. Return the gradient of row `t` of `x`.


# %%
# Exercise 06.1
def gradient_of_row(dy, rows, t):
    """Return the gradient (H,) of row t of x, where y = x[rows]; dy is (M,H)."""
    ...


# %%
lesson.check(gradient_of_row)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A copy is a function that multiplies by 1. If a row was copied to two places, a change of it changes both.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `rows == t` is true at the copies of row t, and picks their rows of `dy`. A sum over no rows is zero, and that is right.
#
# </details>
# <details><summary>Solution 06.1</summary>
#
# ```python
# def gradient_of_row(dy, rows, t):
#     return dy[rows == t].sum(0)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `dy[rows == t].sum(0)` | `dy[rows == t].mean(0)` | What the copies send back is added: no mean. |
# | `dy[rows == t].sum(0)` | `dy[rows == t][-1]` | Every copy sends something back, not only the last; and there may be none. |
# | `dy[rows == t].sum(0)` | `dy[rows[t % len(rows)]]` | The numbers in rows name rows of x; the rows of dy are those of y. |
# | `dy[rows == t].sum(0)` | `dy[rows != t].sum(0)` | These are the copies of all other rows. |
# | `dy[rows == t].sum(0)` | `dy.sum(0)` | Only copies of this row depend on it. |
# | `dy[rows == t].sum(0)` | `-dy[rows == t].sum(0)` | A copy has the sign of its original. |
# | `dy[rows == t].sum(0)` | `dy[rows == t].sum(0) / max(1, (rows == t).sum())` | What the copies send back is added: no mean. |
# | `dy[rows == t].sum(0)` | `(dy[rows == t][-1] if t in rows else 0 * dy[0])` | Every copy sends something back, not only the last. |
# | `dy[rows == t].sum(0)` | `dy[t % len(dy)]` | The numbers in rows name rows of x; the rows of dy are those of y. |
# | `dy[rows == t].sum(0)` | `dy[rows[t % len(rows)] % len(dy)]` | The numbers in rows name rows of x; the rows of dy are those of y. |
# | `dy[rows == t].sum(0)` | `(dy[rows == t][0] if t in rows else 0 * dy[0])` | Every copy sends something back, not only the first. |
#
# </details>
# <details><summary>The derivation</summary>
#
# As a formula, taking rows is a product with a matrix $S$ of zeros and ones, one row for each row taken:
#
# $$ y = S\,x, \qquad S_{mt} = 1 \text{ if row } m \text{ of } y \text{ is a copy of row } t \text{ of } x. $$
#
# That is linear, so chapter 05 has already answered: $\mathtt{dx} = S^\top \mathtt{dy}$. Row $t$ of `dx` is
# the *sum* of the rows of `dy` at its copies, and zero if it has none.
#
# </details>

# %% [markdown]
# To take rows is to **gather**; to add rows back where they came from is to **scatter**. As a picture:

# %%
rng = np.random.default_rng(6)
rows = np.array([4, 1, 4])
x, dy = rng.standard_normal((6, 3)), rng.standard_normal((3, 3))
S = (rows[:, None] == np.arange(6)) * 1.0
course.equal("x[rows] = S x", x[rows], S @ x)
J = jacobian(lambda x: x[rows], x)
course.equal("J^T dy = S^T dy", (J.T @ dy.ravel()).reshape(6, 3), S.T @ dy)

figure, panels = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained", width_ratios=(6, 3, 3))
panels[0].imshow(S, cmap="cividis")
panels[0].set(title="$S$: which row is copied", xlabel="row of x", ylabel="row of y", yticks=range(3))
for ax, matrix, title in ((panels[1], dy, "dy"), (panels[2], S.T @ dy, "dx = $S^T$ dy")):
    picture = ax.imshow(matrix, cmap="cividis", vmin=-2.5, vmax=2.5, aspect="auto")
    ax.set(title=title, xticks=[], yticks=range(len(matrix)))
figure.colorbar(picture, ax=panels[2])
course.show(
    figure,
    "A three by six selection matrix with ones at columns 4, 1 and 4; the gradient dy with three rows; and dx with six "
    "rows, of which row 1 is the second of dy, row 4 the sum of the first and the third, and the rest is zero.",
)
print("What the operations of this chapter save:", TakeRowsSaved._fields, LayerNormSaved._fields)

# %% [markdown]
# ### Exercise 06.2 (core): take rows, and put them back
#
# Now for all rows at once, and without the matrix $S$, which would be enormous. `x` is (T, H), `rows` (M,) whole numbers.
# The forward keeps `TakeRowsSaved(rows, x)`; the backward needs only x's shape and dtype. There is one line of NumPy that
# everybody writes first. The judge will tell you what it does.


# %%
# Exercise 06.2
def take_rows(self, x, rows):
    """Return the rows of x (T,H) that rows (M,) lists, as (M,H), and TakeRowsSaved(rows, x)."""
    ...


def take_rows_backward(self, dy, saved):
    """Return dx (T,H), of the dtype of x; dy is (M,H), saved has rows and x."""
    ...


# %%
lesson.check(take_rows)
lesson.check(take_rows_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The forward is just indexing. The backward begins with zeros: `np.zeros_like(saved.x)`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# A row that was taken twice has to receive two rows of dy: `np.add.at(total, where, what)`.
#
# </details>
# <details><summary>Solution 06.2</summary>
#
# ```python
# def take_rows(self, x, rows):
#     return x[rows], TakeRowsSaved(rows, x)
#
#
# def take_rows_backward(self, dy, saved):
#     dx = np.zeros_like(saved.x)
#     np.add.at(dx, saved.rows, dy)
#     return dx
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `np.add.at(dx, saved.rows, dy)` | `dx[saved.rows] += dy` | With `+=` a row that was taken twice keeps only one of its gradients. |
# | `np.add.at(dx, saved.rows, dy)` | `np.subtract.at(dx, saved.rows, dy)` | The rows of dy are added, with their own sign. |
# | `dx = np.zeros_like(saved.x)` | `dx = saved.x.copy()` | A gradient begins at zero, not at x. |
# | `dx = np.zeros_like(saved.x)` | `dx = np.ones_like(saved.x)` | Rows that were not taken have gradient zero. |
# | `return x[rows], TakeRowsSaved(rows, x)` | `return x[np.unique(rows)], TakeRowsSaved(rows, x)` | Rows are returned in the order asked for, and as often as asked for. |
# | `    return dx` | `    return (dx / np.bincount(saved.rows, minlength=len(dx)).clip(1)[:, None]).astype(dx.dtype)` | What the copies of a row send back is added: no mean. |
# | `return x[rows], TakeRowsSaved(rows, x)` | `return x[np.sort(rows)], TakeRowsSaved(rows, x)` | Rows are returned in the order asked for. |
#
# </details>

# %% [markdown]
# The trap is in NumPy. `dx[rows] += dy` looks right. It reads row 4 twice, adds to each copy, and writes row 4 twice;
# the second write wins and one gradient is lost. `np.add.at(dx, rows, dy)` adds every row.

# %%
with_plus, with_add_at = np.zeros((6, 3)), np.zeros((6, 3))
with_plus[rows] += dy
np.add.at(with_add_at, rows, dy)
print("lost by +=   :", np.round(S.T @ dy - with_plus, 3)[4], "(row 4)")
print("lost by add.at:", np.round(S.T @ dy - with_add_at, 3)[4])

# %% [markdown]
# ## 2. A table whose rows are words
#
# The word embedding is a table $E$ of $V$ rows, and a text of $T$ pieces gathers $T$ of them. Its gradient has the
# shape of the table: for BERT-BASE 30,522 rows. How many of them are not zero after one batch? We count real words (the
# books that come with the package) instead of pieces; it makes no difference to the point.

# %%
touched = lesson.predict(
    "A batch has 4,096 consecutive words of a book. How many different rows of the table get a gradient?", ...
)

# %%
words = []
for line in sentences([embedded_corpus()]):
    words += (line or "").lower().split()
    if len(words) >= 4096:
        break
words = np.array(words[:4096])
names, counts = np.unique(words, return_counts=True)
order = np.argsort(-counts)
touched.answer(
    len(names),
    f"“{names[order[0]]}” alone occurs {counts[order[0]]} times, and its gradient is a sum of as many rows.",
)

figure, ax = plt.subplots(figsize=(7, 3.2))
ax.loglog(np.arange(1, len(names) + 1), counts[order], "o", ms=3)
for place in (0, 1, 3, 9, 30, 100):
    ax.annotate(
        names[order[place]], (place + 1, counts[order[place]]), (3, 4), textcoords="offset points", fontsize=8
    )
ax.set(
    xlabel="words of this batch, the most frequent first",
    ylabel="rows of dy added up",
    title="One batch, the word table's gradient",
)
course.show(
    figure,
    "Number of times each word occurs in a batch of 4,096, by rank, on logarithmic axes: a nearly straight fall from "
    "the most frequent word with more than a hundred occurrences to hundreds of words that occur once.",
)
once = (counts == 1).sum()
course.say(
    f"**{once}** of the {len(names)} rows receive a single gradient. With `+=` instead of a true sum, "
    f"**{(4096 - len(names)) / 4096:.0%}** of all rows of `dy` would be lost, mostly those of the commonest words."
)

# %% [markdown]
# `embedding_backward` differs from `take_rows_backward` in one way. It is handed the table's gradient so far, an
# **accumulator**, and adds to it. There is a reason: a parameter may be used in several places (section 3) and over
# several smaller batches, and a contribution of 30,522 × 768 that is mostly zeros should not be made from scratch
# each time. An accumulator is *consumed*: you may change it, and you return it.
#
# ### Exercise 06.3 (easy): the gradient of a table
#
# `dtable` (V, H) already holds something.


# %%
# Exercise 06.3
def embedding_backward(self, dy, saved, dtable):
    """Add dy (T,H) to the rows saved.ids (T,) of dtable (V,H), and return dtable."""
    ...


# %%
lesson.check(embedding_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The same scatter as in 06.2, but into an array that is given.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `np.add.at` changes its first argument and returns nothing. Return the table yourself.
#
# </details>
# <details><summary>Solution 06.3</summary>
#
# ```python
# def embedding_backward(self, dy, saved, dtable):
#     np.add.at(dtable, saved.ids, dy)
#     return dtable
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `np.add.at(dtable, saved.ids, dy)` | `dtable[saved.ids] += dy` | With `+=` a word that occurs twice keeps only one of its gradients. |
# | `np.add.at(dtable, saved.ids, dy)` | `dtable[saved.ids] = dy` | The gradient is added to what is there, not put in its place. |
# | `np.add.at(dtable, saved.ids, dy)` | `dtable = np.zeros_like(dtable); np.add.at(dtable, saved.ids, dy)` | The accumulator already holds gradients; do not start over. |
# | `np.add.at(dtable, saved.ids, dy)` | `np.add.at(dtable, saved.ids, -dy)` | The rows of dy are added, with their own sign. |
# | `np.add.at(dtable, saved.ids, dy)` | `np.add.at(dtable, saved.ids, dy / max(len(dy), 1))` | No mean over the words: the weights of the loss are in dy already. |
#
# </details>

# %% [markdown]
# `np.add.at` is correct and slow. minibert sorts the ids, so that equal ones lie together, and sums each run
# of equal ids in one sweep:

# %%
course.source(Ops.scatter_add)

# %% [markdown]
# ## 3. What is used twice gets two gradients
#
# BERT uses its word table twice: at the bottom, where pieces become vectors, and at the top, where vectors are compared
# with every row of the table to score every piece. This is a **tied embedding**. Call the copy at the bottom $E_1$ and
# the one at the top $E_2$. A change of $E$ changes both, so by the chain rule for two arguments
#
# $$ \mathcal{L}(E) = \ell(E_1, E_2)\big|_{E_1 = E_2 = E} \quad\Longrightarrow\quad
#    \frac{\partial \mathcal{L}}{\partial E} = \frac{\partial \ell}{\partial E_1} + \frac{\partial \ell}{\partial E_2}. $$
#
# The two parts look very different. Here is the smallest model that has both: look words up, bend them with tanh, score
# all words against the same table.

# %%
V, H = 14, 6
table = 0.7 * rng.standard_normal((V, H))
ids, labels = np.array([3, 8, 3, 11, 5]), np.array([8, 3, 0, 5, 3])
ops = Ops()


def tied_loss(bottom, top):
    """Return the sum of the losses, with the table's two uses as two arguments."""
    hidden = np.tanh(bottom[ids])
    return ops.softmax_cross_entropy(hidden @ top.T, labels)[0].sum()


hidden = np.tanh(table[ids])
_, saved = ops.softmax_cross_entropy(hidden @ table.T, labels)
dlogits = ops.softmax_cross_entropy_backward(np.ones(5), saved)
from_top = dlogits.T @ hidden
from_bottom = np.zeros_like(table)
np.add.at(from_bottom, ids, (dlogits @ table) * (1 - hidden * hidden))

measured = jacobian(lambda E: np.asarray(tied_loss(E, E)), table).reshape(V, H)
course.equal("gradient of the tied table = bottom + top", from_bottom + from_top, measured)
figure, panels = plt.subplots(1, 3, figsize=(8.5, 3.6), layout="constrained", sharey=True)
parts = {"from the bottom": from_bottom, "from the top": from_top, "their sum": from_bottom + from_top}
largest = max(abs(part).max() for part in parts.values())
for ax, (title, part) in zip(panels, parts.items(), strict=True):
    picture = ax.imshow(part, cmap="cividis", vmin=-largest, vmax=largest, aspect="auto")
    ax.set(title=title, xlabel="dimension", xticks=range(H), yticks=range(V))
panels[0].set_ylabel("word of the table")
figure.colorbar(picture, ax=panels)
course.show(
    figure,
    "Three heat maps of a gradient with 14 rows. From the bottom only the rows of the four words that occur are nonzero; from the top all are; the sum has both.",
)
lost = np.linalg.norm(from_bottom) / np.linalg.norm(measured)
course.say(
    f"From below, only words that occur; from above, every word of the vocabulary, because every word was compared. "
    f"Leave one part out and the gradient is off by **{lost:.0%}** (the bottom) or "
    f"**{np.linalg.norm(from_top) / np.linalg.norm(measured):.0%}** (the top) of its size."
)

# %% [markdown]
# ### The residual connection
#
# The same rule, one level up. Each half of a BERT layer computes $y = x + f(x)$: the input takes a shortcut round $f$
# and is added back. This is a **residual connection**. The input is used twice, so its gradient is a sum of two:
#
# $$ \mathtt{dx} = \mathtt{dy} + J_f^\top\, \mathtt{dy}. $$
#
# (In BERT a LayerNorm follows, which section 5 is about.) The first term is `dy` itself, untouched. Without the
# shortcut a gradient must pass through every $J_f^\top$ on its way down, and while weights are small each of them
# shrinks it. Let us measure it: 24 layers, $f$ a linear layer followed by tanh, weights drawn small, as they are before
# training.

# %%
shrinks = lesson.predict(
    "24 layers of tanh(x W), with and without the shortcut. At the lowest layer, how many times larger is the gradient "
    "with it?",
    ...,
    choices=("about 10 times", "about 1,000 times", "more than a million times"),
)

# %%
depth, width = 24, 64
weights = [0.5 * rng.standard_normal((width, width)) / np.sqrt(width) for _ in range(depth)]
start, d_top = rng.standard_normal((16, width)), rng.standard_normal((16, width))


def gradient_norms(shortcut):
    """Return the norm of the gradient below each layer, the lowest last."""
    x, kept = start, []
    for weight in weights:
        y, saved = ops.tanh(x @ weight)
        kept.append(saved)
        x = x + y if shortcut else y
    dy, norms = d_top, [np.linalg.norm(d_top)]
    for weight, saved in zip(reversed(weights), reversed(kept), strict=True):
        dx = ops.tanh_backward(dy, saved) @ weight.T
        dy = dy + dx if shortcut else dx
        norms.append(np.linalg.norm(dy))
    return np.array(norms)


with_shortcut, without = gradient_norms(True), gradient_norms(False)
figure, ax = plt.subplots(figsize=(7, 3.1))
ax.semilogy(range(depth, -1, -1), with_shortcut, "o-", ms=4, label="$x + f(x)$")
ax.semilogy(range(depth, -1, -1), without, "s--", ms=4, color="C1", label="$f(x)$ alone")
ax.set(
    xlabel="layer (24 is the top, where the gradient starts)",
    ylabel="norm of the gradient",
    title="The way down through 24 layers",
)
ax.legend()
course.show(
    figure,
    "Norm of the gradient by layer. With the shortcut it stays within a small factor from the top to the bottom; without "
    "it, it falls by a constant factor at every layer, many powers of ten in all.",
)
ratio = with_shortcut[-1] / without[-1]
shrinks.answer("more than a million times", f"at the bottom the ratio is {ratio:.1e}.")

# %% [markdown]
# ## 4. Dropout: the same bits again
#
# Dropout (chapter 02) multiplies each number by 0 with probability $\rho$ and by $1/(1-\rho)$ otherwise. Given the
# multipliers $m$, it is the simplest operation of all: $y = m\,x$, so $\mathtt{dx} = m\,\mathtt{dy}$. The only thing to
# get right is that $m$ must be *the same* on the way back. You can store it. Or you can make sure that the same
# question always gets the same answer: in minibert every bit is a function of (seed, step, place in the network,
# sequence, position, column), and of nothing else. Draw it again, and it is the same.

# %%
places = SimpleNamespace(token_sequences=np.repeat([0, 1], 10), positions=np.tile(np.arange(10), 2))
rate, columns = 0.25, 40


def multipliers(step):
    drop = ops.dropout(places, rate, rate, seed=1, step=step)
    return ops.dropout_mask(drop, 2, columns, np.float64)


figure, panels = plt.subplots(1, 3, figsize=(9.5, 2.9), layout="constrained")
for ax, (title, mask) in zip(
    panels[:2], {"step 7": multipliers(7), "step 8": multipliers(8)}.items(), strict=True
):
    ax.imshow(mask, cmap="cividis", vmin=0, vmax=1.4, aspect="auto")
    ax.set(title=f"dropped (dark) at {title}", xlabel="column", ylabel="token")
running = np.cumsum([multipliers(step)[:, :4] for step in range(lesson.scale(400, 100))], axis=0)
running = running / np.arange(1, len(running) + 1)[:, None, None]
panels[2].plot(running.reshape(len(running), -1)[:, :30], color="C0", lw=0.4)
panels[2].axhline(1, color="0.2", lw=1)
panels[2].set(title="mean multiplier of 30 places", xlabel="steps averaged", ylim=(0.6, 1.4))
course.show(
    figure,
    "Two masks of 20 tokens by 40 columns, a quarter of them dropped, quite different at steps 7 and 8. Right, the mean "
    "multiplier of thirty places settles at one as more steps are averaged.",
)
course.equal("step 7, drawn again", multipliers(7), multipliers(7))
course.equal(
    "the expectation of a multiplier is 1:  (1 - rho) / (1 - rho)", (1 - rate) * multipliers(7).max(), 1.0
)

# %% [markdown]
# This also makes dropout *checkable*. The judge runs the forward again, at a point moved by an imaginary
# step. If dropout rolled new dice each time, the function would be a different one, and there would be
# nothing to compare.
#
# ## 5. LayerNorm, line by line
#
# LayerNorm takes each row $x$ of $H$ numbers, removes the mean, divides by the spread, then scales and shifts each
# column:
#
# $$ \mu = \tfrac1H \sum_i x_i, \quad c = x - \mu, \quad r = \frac{1}{\sqrt{\tfrac1H \sum_i c_i^2 + \varepsilon}}, \quad
#    n = r\,c, \quad y = \gamma\, n + \beta. $$
#
# ($\varepsilon$ is tiny. It prevents a division by zero where all numbers of a row are equal.) Its backward is the one
# that people look up, because $\mu$ and $r$ each depend on *every* $x_i$. You will not look it up. You will walk back
# through four lines, as in chapter 05, and put the walk into one formula at the end.
#
# ### Exercise 06.4 (easy): the forward pass, in four lines
#
# Take a single row, and write one function for each of $c$, the variance, $r$ and $y$. Remember chapter 05: no `abs`, no
# `var`. The judge sends complex numbers through them, for the way back begins here.


# %%
# Exercise 06.4
def centre(x):
    """Return x (H,) without its mean."""
    ...


def variance_of(c):
    """Return the variance of a row c (H,) whose mean is removed already, a number."""
    ...


def one_over_spread(variance, eps):
    """Return r, one over the square root of variance and eps together."""
    ...


def scaled(c, rstd, gamma, beta):
    """Return y (H,) from c (H,), the number rstd, which is r, and gamma and beta (H,)."""
    ...


# %%
lesson.check(centre)
lesson.check(variance_of)
lesson.check(one_over_spread)
lesson.check(scaled)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The variance is the mean of the squares of c: divide by H. Square by multiplying.
#
# </details>
# <details><summary>Hint 2</summary>
#
# eps goes under the root, with the variance. The row n is `c * rstd`.
#
# </details>
# <details><summary>Solution 06.4</summary>
#
# ```python
# def centre(x):
#     return x - x.mean()
#
#
# def variance_of(c):
#     return (c * c).mean()
#
#
# def one_over_spread(variance, eps):
#     return 1 / np.sqrt(variance + eps)
#
#
# def scaled(c, rstd, gamma, beta):
#     return c * rstd * gamma + beta
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `x - x.mean()` | `x - x.sum()` | The mean is taken away, not the sum. |
# | `x - x.mean()` | `x.mean() - x` | The sign: each number minus the mean. |
# | `(c * c).mean()` | `(c * c).sum() / (len(c) - 1)` | LayerNorm divides by H, not by H - 1. |
# | `(c * c).mean()` | `(abs(c) ** 2).mean()` | abs forgets the imaginary part, and with it the derivative. |
# | `np.sqrt(variance + eps)` | `(np.sqrt(variance) + eps)` | eps belongs under the root. |
# | `1 / np.sqrt(variance + eps)` | `np.sqrt(variance + eps)` | That is the spread; one over it is asked for. |
# | `c * rstd * gamma + beta` | `c / rstd * gamma + beta` | rstd is one over the spread already, so it multiplies. |
# | `c * rstd * gamma + beta` | `c * rstd * gamma` | beta is missing. |
# | `x - x.mean()` | `x - x.real.mean()` | The mean of the real parts forgets the imaginary part, and with it the derivative of the mean. |
# | `x - x.mean()` | `(x - x.mean()) / np.sqrt(((x - x.mean()) * (x - x.mean())).mean())` | Only the mean goes here; dividing by the spread comes two lines later. |
# | `(c * c).mean()` | `c.var()` | NumPy's var takes absolute values, which forget the imaginary part, and with it the derivative. |
# | `(c * c).mean()` | `c.mean() * c.mean()` | The mean of the squares, not the square of the mean. |
# | `c * rstd * gamma + beta` | `(c * gamma).sum() * rstd + beta` | gamma multiplies entry by entry; nothing is added up. |
# | `c * rstd * gamma + beta` | `c * rstd * (1 + gamma) + beta` | gamma is the factor itself, without a one added. |
# | `np.sqrt(variance + eps)` | `np.sqrt(variance)` | eps is missing. |
# | `1 / np.sqrt(variance + eps)` | `1 / np.sqrt(variance) + eps` | eps belongs under the root. |
# | `np.sqrt(variance + eps)` | `(variance + eps)` | The spread is the root of the variance and eps. |
#
# </details>

# %% [markdown]
# ### Exercise 06.5 (easy): back through scale and shift
#
# Now back, from the last line to the first. $y = \gamma\,n + \beta$, for all T rows at once: `dy` and `n` are (T, H),
# gamma and beta (H,). Return the gradient of `n`, that of gamma and that of beta.


# %%
# Exercise 06.5
def d_normalised(dy, gamma):
    """Return the gradient of n (T,H)."""
    ...


def d_gamma(dy, n):
    """Return the gradient of gamma (H,)."""
    ...


def d_beta(dy):
    """Return the gradient of beta (H,)."""
    ...


# %%
lesson.check(d_normalised)
lesson.check(d_gamma)
lesson.check(d_beta)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The shape of a gradient is that of the array. gamma has H entries, and dy has T rows: what happened to the T?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Each entry of gamma is used by every row, multiplied by that row's n. Each entry of beta is used by every row as it is.
#
# </details>
# <details><summary>Solution 06.5</summary>
#
# ```python
# def d_normalised(dy, gamma):
#     return dy * gamma
#
#
# def d_gamma(dy, n):
#     return (dy * n).sum(0)
#
#
# def d_beta(dy):
#     return dy.sum(0)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `dy * gamma` | `dy` | n was multiplied by gamma, and so is what comes back. |
# | `dy * gamma` | `dy / gamma` | The way back multiplies by the slope, gamma; it does not undo the forward. |
# | `(dy * n).sum(0)` | `dy.sum(0)` | gamma was multiplied by n, and so is what comes back. |
# | `(dy * n).sum(0)` | `(dy * n).mean(0)` | Every row uses gamma, so its gradient is a sum over rows. |
# | `dy.sum(0)` | `dy.mean(0)` | Every row uses beta, so its gradient is a sum over rows. |
# | `dy.sum(0)` | `dy[0]` | Every row uses beta, not only the first. |
# | `(dy * n).sum(0)` | `dy.sum(0) * n.sum(0)` | Each row has a multiplier of its own: multiply first, add afterwards. |
# | `(dy * n).sum(0)` | `n.sum(0)` | The chain rule multiplies by what comes from above, dy. |
# | `dy * gamma` | `dy * gamma.sum()` | Each column has its own gamma. |
#
# </details>

# %% [markdown]
# ### Exercise 06.6 (core): back through the spread
#
# Again a single row. $n = r\,c$ has two inputs. Start with $r$, a single number which multiplied all $H$ entries of
# $c$, and then go on, through $r = (\text{variance} + \varepsilon)^{-1/2}$, to the variance. You are given `rstd`, which
# is $r$, and neither the variance nor $\varepsilon$. In the second function `d_rstd` is a number, the result of the
# first.


# %%
# Exercise 06.6
def d_rstd(dn, c):
    """Return the derivative with respect to r, a number, where n = r c; dn and c are (H,)."""
    ...


def d_variance(d_rstd, rstd):
    """Return the derivative with respect to the variance, a number; d_rstd and rstd are numbers."""
    ...


# %%
lesson.check(d_rstd)
lesson.check(d_variance)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# One number that goes into H products gets H terms back. The slope of $v^{-1/2}$ is $-\tfrac12 v^{-3/2}$.
#
# </details>
# <details><summary>Hint 2</summary>
#
# If $r = v^{-1/2}$, which power of $r$ is $v^{-3/2}$?
#
# </details>
# <details><summary>Solution 06.6</summary>
#
# ```python
# def d_rstd(dn, c):
#     return (dn * c).sum()
#
#
# def d_variance(d_rstd, rstd):
#     return -0.5 * d_rstd * rstd**3
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `(dn * c).sum()` | `(dn * c).mean()` | The number r multiplies H numbers, and what they send back adds up. |
# | `(dn * c).sum()` | `dn.sum()` | r was multiplied by c, and so is what comes back. |
# | `-0.5 * d_rstd * rstd**3` | `0.5 * d_rstd * rstd**3` | A larger variance makes r smaller: the sign is missing. |
# | `-0.5 * d_rstd * rstd**3` | `-0.5 * rstd**3` | The chain rule multiplies by what comes from above, d_rstd. |
# | `-0.5 * d_rstd * rstd**3` | `-0.5 * d_rstd * rstd` | The slope of v^(-1/2) is -v^(-3/2)/2, and that is r to the third power. |
# | `-0.5 * d_rstd * rstd**3` | `-0.5 * d_rstd / rstd**3` | r is one over the spread: v^(-3/2) is r³, not one over it. |
# | `-0.5 * d_rstd * rstd**3` | `-d_rstd * rstd**3` | The exponent -1/2 comes down as a factor. |
# | `(dn * c).sum()` | `dn.sum() * c.sum()` | Each entry has a multiplier of its own: multiply first, add afterwards. |
# | `(dn * c).sum()` | `c.sum()` | The chain rule multiplies by what comes from above, dn. |
# | `rstd**3` | `rstd**2` | The slope of v^(-1/2) is -v^(-3/2)/2, and that is r to the third power. |
# | `-0.5 * d_rstd * rstd**3` | `-0.5 * d_rstd * rstd**-1.5` | The exponent -3/2 is that of the variance; r is one over its root, so it is r³. |
#
# </details>

# %% [markdown]
# ### Exercise 06.7 (core): back through the mean
#
# $c$ is used twice: in $n = r\,c$, and in the variance, the mean of $c^2$. And $x$ is used twice in $c = x - \mu$: as
# itself, and, with all its neighbours, in the mean.


# %%
# Exercise 06.7
def d_centred(dn, c, rstd, d_variance):
    """Return the gradient of c (H,), which is in n = rstd * c and in the variance (c * c).mean()."""
    ...


def d_input(dc):
    """Return the gradient of x (H,), where c = x - x.mean()."""
    ...


# %%
lesson.check(d_centred)
lesson.check(d_input)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The slope of the mean of $c^2$ with respect to one entry $c_i$ is $2 c_i / H$.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The mean $\mu$ is taken off every entry, so it gets minus the sum of dc. It hands one H-th of that to every entry of x.
#
# </details>
# <details><summary>Solution 06.7</summary>
#
# ```python
# def d_centred(dn, c, rstd, d_variance):
#     return dn * rstd + d_variance * 2 * c / len(c)
#
#
# def d_input(dc):
#     return dc - dc.mean()
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `dn * rstd + d_variance * 2 * c / len(c)` | `dn * rstd` | c is in the variance as well, and that use sends something back. |
# | `dn * rstd + d_variance * 2 * c / len(c)` | `dn + d_variance * 2 * c / len(c)` | c was multiplied by r, and so is what comes back of n. |
# | `d_variance * 2 * c / len(c)` | `d_variance * c / len(c)` | The slope of a square is twice the number. |
# | `d_variance * 2 * c / len(c)` | `d_variance * 2 * c` | The variance is a mean, so each entry has one H-th of the influence. |
# | `d_variance * 2 * c / len(c)` | `d_variance * 2 / len(c)` | The slope of c² is 2c, not 2. |
# | `dc - dc.mean()` | `dc` | x is in the mean as well, and that use sends something back. |
# | `dc - dc.mean()` | `dc - dc.sum()` | Each entry of x makes one H-th of the mean. |
# | `dc - dc.mean()` | `dc + dc.mean()` | The mean was taken away: the sign is a minus. |
# | `d_variance * 2 * c / len(c)` | `d_variance * 2 * c.mean()` | Each entry sends back its own 2c/H; their mean is zero. |
# | `dn * rstd + d_variance * 2 * c / len(c)` | `c * rstd + d_variance * 2 * c / len(c)` | What comes back through n = r c is dn times r, not c times r. |
# | `dn * rstd + d_variance * 2 * c / len(c)` | `dn * rstd - d_variance * 2 * c / len(c)` | Two uses, two gradients, added; the minus sign is in d_variance already. |
# | `dc - dc.mean()` | `dc - dc / len(dc)` | x is in the mean of every entry, so all of dc comes back through it, not its own entry alone. |
# | `dc - dc.mean()` | `dc - 1 / len(dc)` | What comes back through the mean is the mean of dc, not one over H alone. |
#
# </details>

# %% [markdown]
# ### Exercise 06.8 (hard): LayerNorm, forward and backward
#
# You have walked all the way. Now put `d_rstd`, `d_variance`, `d_centred` and `d_input` into one line, on paper. With
# $n = r\,c$ in place of $c$, nearly all powers of $r$ go away, and the mean of $n$ is zero. What is left has two means in
# it, one factor $r$, and neither the variance nor $\varepsilon$, which is why they need not be saved.
#
# `x` is (T, H); each row is normalised on its own. Keep `LayerNormSaved(x_hat, rstd, gamma)`, where
# `x_hat` (T, H) is $n$ and `rstd` (T, 1) is $r$, by PyTorch's names.


# %%
# Exercise 06.8
def layer_norm(self, x, gamma, beta, eps):
    """Return gamma n + beta (T,H) and LayerNormSaved(x_hat, rstd, gamma); gamma and beta are (H,)."""
    ...


def layer_norm_backward(self, dy, saved):
    """Return dx (T,H), dgamma (H,) and dbeta (H,); saved has x_hat, rstd and gamma."""
    ...


# %%
lesson.check(layer_norm)
lesson.check(layer_norm_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `mean(1, keepdims=True)` gives one mean for each row, in a shape that can be subtracted from the row. It is for the
# means of a row only; the sums in dgamma and dbeta run over the rows.
#
# </details>
# <details><summary>Hint 2</summary>
#
# With $g$ for the gradient of $n$: $\mathtt{d\_rstd} = \sum g\,c = \sum g\,n / r$, so the second term of dc is
# $-r^3 \tfrac{1}{H} \sum (g\,n / r)\, c = -r\, n \operatorname{mean}(g\,n)$. What does removing the mean do to it?
#
# </details>
# <details><summary>Solution 06.8</summary>
#
# ```python
# def layer_norm(self, x, gamma, beta, eps):
#     centred = x - x.mean(1, keepdims=True)
#     rstd = 1 / np.sqrt((centred * centred).mean(1, keepdims=True) + eps)
#     x_hat = centred * rstd
#     return x_hat * gamma + beta, LayerNormSaved(x_hat, rstd, gamma)
#
#
# def layer_norm_backward(self, dy, saved):
#     x_hat = saved.x_hat
#     g = dy * saved.gamma
#     dx = saved.rstd * (g - g.mean(1, keepdims=True) - x_hat * (g * x_hat).mean(1, keepdims=True))
#     return dx, (dy * x_hat).sum(0), dy.sum(0)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `g - g.mean(1, keepdims=True) - x_hat` | `g - x_hat` | The mean of g is missing: the gradient of the mean that was subtracted. |
# | `- x_hat * (g * x_hat).mean(1, keepdims=True)` | `- 0` | The part of g along n is missing: the gradient of the spread. |
# | `g = dy * saved.gamma` | `g = dy` | gamma is missing: the gradient of n is dy times gamma. |
# | `saved.rstd * (g` | `(g` | The factor r, one over the spread, is missing. |
# | `(dy * x_hat).sum(0)` | `(g * x_hat).sum(0)` | gamma multiplies n, so its gradient is dy times n, without gamma. |
# | `(dy * x_hat).sum(0)` | `(dy * x_hat).mean(0)` | Every row uses gamma, so its gradient is a sum over rows. |
# | `(centred * centred).mean(1, keepdims=True)` | `(centred * centred).sum(1, keepdims=True) / (x.shape[1] - 1)` | LayerNorm divides by H, not by H - 1. |
# | `x - x.mean(1, keepdims=True)` | `x - x.mean(0, keepdims=True)` | Each row is normalised on its own: means are taken along the row, axis 1. |
# | `centred = x - x.mean(1, keepdims=True)` | `centred = x - x.mean(0); rstd = 1 / np.sqrt((centred * centred).mean(0, keepdims=True) + eps); return centred * rstd * gamma + beta, LayerNormSaved(centred * rstd, rstd, gamma)` | Each row is normalised on its own: means are taken along the row, axis 1. |
# | `g - g.mean(1, keepdims=True) - x_hat * (g * x_hat).mean(1, keepdims=True)` | `g - g.mean(0, keepdims=True) - x_hat * (g * x_hat).mean(0, keepdims=True)` | Each row was normalised on its own: the means of g are taken along the row, axis 1. |
# | `x_hat * gamma + beta` | `x_hat * gamma` | beta is missing. |
# | `x_hat * (g * x_hat).mean(1, keepdims=True)` | `x_hat * (g * x_hat).sum(1, keepdims=True)` | The variance is a mean, so each entry has one H-th of the influence: a mean, not a sum. |
# | `np.sqrt((centred * centred).mean(1, keepdims=True) + eps)` | `(np.sqrt((centred * centred).mean(1, keepdims=True)) + eps)` | eps belongs under the root. |
# | `dx, (dy * x_hat).sum(0), dy.sum(0)` | `dx, (dy * x_hat).sum(0), g.sum(0)` | beta is added after gamma has multiplied, so its gradient is dy, without gamma. |
# | `x - x.mean(1, keepdims=True)` | `x - x.mean()` | Each row has a mean of its own; this one is of all rows together. |
#
# </details>
# <details><summary>The derivation, and what it looks like</summary>
#
# In your own lines, with $g = \mathtt{dn}$: $\mathtt{dr} = g \cdot c$, $\mathtt{dv} = -\tfrac12 r^3\, (g \cdot c)$, and
# $\mathtt{dc} = r\,g + \tfrac2H\, \mathtt{dv}\, c = r\,\bigl(g - \tfrac1H\, n\,(n \cdot g)\bigr)$, for $c = n/r$. Removing
# the mean of it gives the formula below.
#
# There is a second way, by geometry. **The mean.** $c = P x$ with $P = I - \tfrac1H \mathbf{1}\mathbf{1}^\top$. A matrix
# with $P^2 = P$ and $P^\top = P$ is a **projection**: it removes a component, here the one along
# $\mathbf{1} = (1, \dots, 1)$, and leaves the rest alone. Since $P^\top = P$, the way back removes the same component:
# $\mathtt{dx} = P\,\mathtt{dc}$, which is "subtract the mean of dc".
#
# **The length.** $n = r c$ is a product, and $r = (c \cdot c / H + \varepsilon)^{-1/2}$. Let $c$ change by
# $\delta c$:
#
# $$ \delta r = -\tfrac12\, r^3 \cdot \tfrac2H\, c \cdot \delta c = -\tfrac{r^3}{H}\, c\cdot\delta c,
#    \qquad \delta n = r\,\delta c + c\,\delta r = r \left(\delta c - \tfrac1H\, n\,(n \cdot \delta c)\right). $$
#
# The matrix is $r\,(I - \tfrac1H n n^\top)$. It is symmetric again, so the way back has the same form: $\mathtt{dc} =
# r\,(g - n\,\tfrac1H (n \cdot g))$. If $\varepsilon = 0$ then $n \cdot n = H$, and apart from the factor $r$ it is a
# projection, too: it removes the component along $n$.
#
# **Together.** The mean of $n$ is zero, so the mean of $\mathtt{dc}$ is just $r$ times the mean of $g$:
#
# $$ \boxed{\ \mathtt{dx} = r\,\bigl(g - \operatorname{mean}(g) - n\,\operatorname{mean}(g\,n)\bigr)\ } $$
#
# </details>

# %% [markdown]
# Here are both sides of each equation of the derivation above. It also has a second way to the formula, by
# geometry: the backward of LayerNorm is two **projections**, matrices that remove a component and leave everything else
# as it is.

# %%
H, eps = 7, 0.3  # an eps that is large on purpose, so that forgetting it shows
x, dc, g = rng.uniform(-1, 2, (3, H))
P = np.eye(H) - np.ones((H, H)) / H
c = x - x.mean()
r = 1 / np.sqrt((c * c).mean() + eps)
n = r * c


def spread(c):
    return 1 / np.sqrt((c * c).mean(keepdims=True) + eps)


def normalised(x):
    c = x - x.mean()
    return c * spread(c)


course.equal("c = P x", c, P @ x)
course.equal("P² = P", P @ P, P)
course.equal("δr = -r³/H c·δc", derivative(spread, c, dc)[0], -(r**3) / H * (c @ dc))
course.equal(
    "δn = r (δc - n (n·δc)/H)", derivative(lambda c: c * spread(c), c, dc), r * (dc - n * (n @ dc) / H)
)
course.equal("J = r (I - n n^T/H) P", jacobian(normalised, x), r * (np.eye(H) - np.outer(n, n) / H) @ P)
course.equal("n·n = H (1 - eps r²), which is H without eps", n @ n, H * (1 - eps * r**2))
course.equal(
    "dx: J^T g = r (g - mean g - n mean(g n))",
    jacobian(normalised, x).T @ g,
    r * (g - g.mean() - n * (g * n).mean()),
)

# %% [markdown]
# For three numbers ($H = 3$, $\varepsilon = 0$) this can be drawn. The forward pass first drops $x$ onto the plane
# perpendicular to $(1,1,1)$, then moves it to the circle of radius $\sqrt3$ in that plane. Before $\gamma$ and $\beta$,
# nothing else can come out of LayerNorm: $\mu$ and the length are forgotten. So a change of $x$ along $(1,1,1)$, or
# towards the centre, changes nothing, and the gradient can't have a component in either direction. What remains is
# *tangent to the circle*.

# %%
axis_1, axis_2 = np.array([1, -1, 0]) / np.sqrt(2), np.array([1, 1, -2]) / np.sqrt(6)
flat = np.stack([axis_1, axis_2])  # coordinates in the plane
figure, ax = plt.subplots(figsize=(5.6, 5.2))
angles = np.linspace(0, 2 * np.pi, 200)
ax.plot(np.sqrt(3) * np.cos(angles), np.sqrt(3) * np.sin(angles), color="0.7", lw=1)
draws = np.random.default_rng(17)
for number, (radius, angle) in enumerate(((2.9, 40), (1.0, 180), (2.6, 80), (0.8, -60), (1.1, 35))):
    turn = 2 * np.pi * (number + 0.35) / 5
    point = flat.T @ (radius * np.array([np.cos(turn), np.sin(turn)])) + draws.standard_normal()
    centred = point - point.mean()
    rstd = 1 / np.sqrt((centred * centred).mean())
    x_hat = centred * rstd
    towards = turn + np.deg2rad(angle)
    pull = 0.8 * flat.T @ np.array([np.cos(towards), np.sin(towards)]) + draws.standard_normal()
    back = (pull - pull.mean() - x_hat * (pull * x_hat).mean()) * rstd
    a, b = flat @ centred, flat @ x_hat
    ax.plot(*np.stack([a, b]).T, ":", color="0.5", lw=1)
    ax.plot(*a, "o", color="0.4", ms=5, label="x, mean removed" if not number else None)
    ax.plot(*b, "D", color="k", ms=5, label="n" if not number else None)
    ax.quiver(
        *b,
        *(flat @ pull),
        color="C1",
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.005,
        label="g, in the plane" if not number else None,
    )
    ax.quiver(
        *a,
        *(flat @ back),
        color="C0",
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.009,
        label="dx" if not number else None,
    )
ax.set(
    xlim=(-3.6, 3.6),
    ylim=(-3.4, 3.4),
    title="LayerNorm of three numbers, seen along (1, 1, 1)",
    xlabel="(1, −1, 0)",
    ylabel="(1, 1, −2)",
)
ax.set_aspect("equal")
ax.legend(fontsize=8, loc="lower right")
course.show(
    figure,
    "The plane perpendicular to (1,1,1) with the circle of radius root three. Five points are moved along rays to the "
    "circle. At the circle an orange arrow g points anywhere; at the original point the blue arrow dx is always tangent, "
    "perpendicular to the ray, shorter for points far outside and longer for points inside. Where g points along the ray "
    "there is no blue arrow.",
)

# %% [markdown]
# The $g$ at the top points straight along its ray, and nothing of it comes back. Look at the lengths of the blue
# arrows, too. A point far out has a long way to its circle, $r$ is small, and so is its gradient. With $\varepsilon =
# 0$ LayerNorm gives the same result for $x$ and $10x$, but the gradient at $10x$ is ten times smaller. The same can be
# read off the Jacobian's singular values (by how much it stretches in each of $H$ perpendicular directions): two of
# them are zero, all the others are $r$.

# %%
H = 24
x = rng.standard_normal(H)
eps = 0.0
stretch = {
    scale: np.linalg.svd(jacobian(normalised, scale * x), compute_uv=False) for scale in (0.5, 1.0, 4.0)
}
figure, ax = plt.subplots(figsize=(7, 2.8))
for (scale, values), marker in zip(stretch.items(), "s^o", strict=True):
    ax.plot(np.arange(1, H + 1), values, marker, ms=5, label=f"{scale:g} x", fillstyle="none")
ax.set(
    xlabel="singular value, the largest first",
    ylabel="stretch",
    title=f"LayerNorm of {H} numbers: {H - 2} directions pass, two are gone",
)
ax.set(ylim=(-0.1, 3.3))
ax.legend(loc="upper left", ncols=3)
course.show(
    figure,
    "Singular values of the Jacobian of LayerNorm with 24 numbers: 22 are equal and two are zero. For half of x they are "
    "twice as large, for four times x a quarter as large.",
)
course.equal("all but two are r", stretch[1.0][:-2], np.full(H - 2, 1 / x.std()))
course.equal("the last two are 0", 1 + stretch[1.0][-2:], np.ones(2))

# %%
course.source(Ops.layer_norm_backward)

# %% [markdown]
# Why two passes over the row, first for the mean and then for the distances from it, when
# $\operatorname{mean}(x^2) - \operatorname{mean}(x)^2$ gives the variance in one? It is cancellation again.
# Here is a row whose numbers lie far from zero, in float32:

# %%
row = rng.standard_normal(768)
print(f"{'offset':>8} {'one pass':>14} {'two passes':>14} {'truth':>14}")
for offset in (0.0, 100.0, 10_000.0):
    single = (row + offset).astype(np.float32)
    exact = single.astype(np.float64).var()
    one_pass = (single * single).mean() - single.mean() * single.mean()
    two_passes = ((single - single.mean()) ** 2).mean()
    print(f"{offset:8,.0f} {one_pass:14.6f} {two_passes:14.6f} {exact:14.6f}")

# %% [markdown]
# ## 6. Attention
#
# Take one head and one sequence of $n$ tokens, with $Q$, $K$, $V$ of shape $(n, D)$ and dropout multipliers $m$:
#
# $$ S = \frac{Q K^\top}{\sqrt D}, \qquad P = \operatorname{softmax}(S) \text{ by rows}, \qquad Y = (P \odot m)\, V, $$
#
# where $\odot$ multiplies entry by entry. There are three lines, and you will walk back through them in three
# exercises. There is nothing new in any of them: two matrix products, a product entry by entry, and a softmax.
#
# ### Exercise 06.9 (core): back through the values
#
# $Y = (P \odot m)\, V$. Return the gradient of `v` (n, D), and that of `p` (n, n). `p` are the probabilities before
# dropout, `m` its multipliers, many of them zero.


# %%
# Exercise 06.9
def d_values(dy, p, m):
    """Return the gradient of v (n,D), where y = (p * m) @ v."""
    ...


def d_probabilities(dy, v, m):
    """Return the gradient of p (n,n), where y = (p * m) @ v."""
    ...


# %%
lesson.check(d_values)
lesson.check(d_probabilities)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# For a moment call the product A = p * m. In y = A v, the array v is where the weight of a linear layer is, and A where
# its x does. You have both gradients from 05.4.
#
# </details>
# <details><summary>Hint 2</summary>
#
# From A to p it is one more step: each entry was multiplied by its m.
#
# </details>
# <details><summary>Solution 06.9</summary>
#
# ```python
# def d_values(dy, p, m):
#     return (p * m).T @ dy
#
#
# def d_probabilities(dy, v, m):
#     return (dy @ v.T) * m
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `(p * m).T @ dy` | `p.T @ dy` | The values were mixed with dropped probabilities: p times m. |
# | `(p * m).T @ dy` | `(p * m) @ dy` | Row j of dv collects from all queries that looked at token j: that is column j of the map. |
# | `(p * m).T @ dy` | `(p * m).T @ dy / len(dy)` | No mean over the queries: each of them sends back its own share. |
# | `(dy @ v.T) * m` | `dy @ v.T` | A dropped probability has no influence, so it needs the multipliers, too. |
# | `(dy @ v.T) * m` | `(v @ dy.T) * m` | Row i of dp belongs to query i, so dy comes first. |
# | `(dy @ v.T) * m` | `(dy @ v.T) * (m > 0)` | What was kept was made larger as well, by m. |
# | `(p * m).T @ dy` | `m.T @ dy` | The values were mixed with probabilities: p times m. |
# | `(p * m).T @ dy` | `(p * m * m).T @ dy` | The multipliers m are used once on the way up, and once on the way back. |
# | `(p * m).T @ dy` | `(p.T * m) @ dy` | p and m were multiplied entry by entry, so they are transposed together. |
# | `(dy @ v.T) * m` | `(dy @ v.T) @ m` | m multiplied entry by entry; on the way back it does the same, without a matrix product. |
# | `(dy @ v.T) * m` | `(dy @ v.T) / np.where(m > 0, m, 1)` | The way back multiplies by m; it does not undo the forward. |
#
# </details>

# %% [markdown]
# ### Exercise 06.10 (core): back through the softmax
#
# $P$ is a softmax of $S$ in each row. From `dp` and `p`, both (n, n), return the gradient of the scores. Chapter 05 has
# the Jacobian of softmax for one row, $\operatorname{diag}(p) - p\,p^\top$. Multiply it by a row of `dp` without
# building it: what is left is a sum and two products.


# %%
# Exercise 06.10
def d_scores(dp, p):
    """Return the gradient of the scores (n,n), where each row of p is the softmax of a row of scores."""
    ...


# %%
lesson.check(d_scores)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# $(\operatorname{diag}(p) - p\,p^\top)\,\mathtt{dp} = p \odot \mathtt{dp} - p\,(p \cdot \mathtt{dp})$. The dot product is
# one number for each row.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `(p * dp).sum(1, keepdims=True)` holds these numbers as a column, so that it can be subtracted from every row of dp.
#
# </details>
# <details><summary>Solution 06.10</summary>
#
# ```python
# def d_scores(dp, p):
#     return p * (dp - (p * dp).sum(1, keepdims=True))
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `p * (dp - (p * dp).sum(1, keepdims=True))` | `p * dp` | The second term of softmax's Jacobian is missing: the row's mean of dp, weighted by p. |
# | `p * (dp - (p * dp).sum(1, keepdims=True))` | `p * (1 - p) * dp` | That is the diagonal of the Jacobian alone: a score moves every probability of its row. |
# | `(p * dp).sum(1, keepdims=True)` | `dp.mean(1, keepdims=True)` | The mean that is subtracted is weighted by p. |
# | `(p * dp).sum(1, keepdims=True)` | `(p * dp).sum(0, keepdims=True)` | Softmax runs along each row, over the keys. |
# | `(p * dp).sum(1, keepdims=True)` | `(p * dp).sum()` | Each row is a softmax of its own, with a sum of its own. |
# | `p * (dp - (p * dp).sum(1, keepdims=True))` | `dp - (p * dp).sum(1, keepdims=True)` | Every entry of the Jacobian has a factor p. |
# | `p * (dp - (p * dp).sum(1, keepdims=True))` | `p * (dp + (p * dp).sum(1, keepdims=True))` | The second term of the Jacobian has a minus sign. |
# | `(p * dp).sum(1, keepdims=True)` | `(p * dp).mean(1, keepdims=True)` | The entries p sum to one, so the weighted mean of dp is a sum, not divided by n again. |
# | `(p * dp).sum(1, keepdims=True)` | `dp.sum(1, keepdims=True)` | The sum that is subtracted is weighted by p. |
# | `p * (dp - (p * dp).sum(1, keepdims=True))` | `p * dp - (p * dp).sum(1, keepdims=True)` | The second term has a factor p of its own in front: p times the sum. |
# | `(p * dp).sum(1, keepdims=True)` | `(p * dp).sum(1)` | Without keepdims the sums lie along the columns: row i needs the sum of row i. |
# | `p * (dp - (p * dp).sum(1, keepdims=True))` | `p - dp` | p minus something is softmax together with cross-entropy; here dp comes from above and goes through the Jacobian. |
#
# </details>

# %% [markdown]
# ### Exercise 06.11 (easy): back to queries and keys
#
# $S = Q K^\top / \sqrt D$ is a matrix product of two *inputs*, so both get a gradient. `ds` is (n, n), `q` and `k` are
# (n, D).


# %%
# Exercise 06.11
def d_queries_and_keys(ds, q, k):
    """Return dq and dk, each (n,D), where the scores are q k^T / sqrt(D)."""
    ...


# %%
lesson.check(d_queries_and_keys)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Score (i, j) is the product of query i and key j. Query i takes part in row i of the scores, key j in column j.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Both gradients are divided by √D, and D is `q.shape[1]`. Only one order of `ds` and `k` gives (n, D).
#
# </details>
# <details><summary>Solution 06.11</summary>
#
# ```python
# def d_queries_and_keys(ds, q, k):
#     root = np.sqrt(q.shape[1])
#     return ds @ k / root, ds.T @ q / root
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `ds @ k / root` | `ds @ k` | The scores were divided by √D, and so are the gradients of q and k. |
# | `ds.T @ q / root` | `ds.T @ q` | The scores were divided by √D, and so is the gradient of k. |
# | `ds.T @ q / root` | `ds @ q / root` | Row j of dk collects column j of dS: transpose it. |
# | `ds @ k / root` | `ds @ q / root` | The query was multiplied by the keys, and so is what it gets back. |
# | `np.sqrt(q.shape[1])` | `q.shape[1]` | The scores are divided by the root of D, not by D. |
# | `np.sqrt(q.shape[1])` | `np.sqrt(len(q))` | D is the length of a query; `len(q)` counts the tokens. |
#
# </details>


# %%
def softmax_rows(S):
    e = np.exp(S - S.real.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# %% [markdown]
# ### Exercise 06.12 (core): one head
#
# Now all of it, from queries, keys and values. `q`, `k`, `v` and `dy` are (n, D), `m` (n, n). Return the three gradients of
# the sum of `dy * y`. You are given no probabilities: compute everything you need yourself, and walk back. Your functions
# of 06.9 to 06.11 are yours to call, and `softmax_rows` is, too.


# %%
# Exercise 06.12
def head_gradients(q, k, v, m, dy):
    """Return dq, dk and dv, each (n,D), of sum(dy * ((softmax(q k^T / sqrt(D)) * m) @ v))."""
    ...


# %%
lesson.check(head_gradients)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Begin with the forward as far as P. Then go through your four steps in their order: values, probabilities, scores,
# queries and keys.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Softmax works along each row, and so do its sums: `.sum(1, keepdims=True)`. `softmax_rows` above is yours to use.
#
# </details>
# <details><summary>Solution 06.12</summary>
#
# ```python
# def head_gradients(q, k, v, m, dy):
#     root = np.sqrt(q.shape[1])
#     p = softmax_rows(q @ k.T / root)
#     dv = (p * m).T @ dy
#     dp = (dy @ v.T) * m
#     ds = p * (dp - (p * dp).sum(1, keepdims=True))
#     return ds @ k / root, ds.T @ q / root, dv
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `dv = (p * m).T @ dy` | `dv = p.T @ dy` | The values were mixed with dropped probabilities: p times m. |
# | `dp = (dy @ v.T) * m` | `dp = dy @ v.T` | A dropped probability has no influence, so dp needs the multipliers, too. |
# | `ds = p * (dp - (p * dp).sum(1, keepdims=True))` | `ds = p * dp` | The second term of softmax's Jacobian is missing: the row's mean of dp, weighted by p. |
# | `(p * dp).sum(1, keepdims=True)` | `dp.mean(1, keepdims=True)` | The mean that is subtracted is weighted by p. |
# | `(p * dp).sum(1, keepdims=True)` | `(p * dp).sum(0, keepdims=True)` | Softmax runs along each row, over the keys. |
# | `ds @ k / root` | `ds @ k` | The scores were divided by √D, and so are the gradients of q and k. |
# | `ds.T @ q / root` | `ds @ q / root` | Row j of dk collects column j of dS: transpose it. |
# | `q @ k.T / root` | `q @ k.T` | The scores are divided by √D before the softmax. |
# | `q @ k.T / root` | `q @ k.T / root * m` | Dropout multiplies the probabilities, after the softmax, not the scores. |
# | `ds = p * (dp - (p * dp).sum(1, keepdims=True))` | `ds = dp` | Between probabilities and scores lies the softmax: go back through it as well. |
# | `ds = p * (dp - (p * dp).sum(1, keepdims=True))` | `ds = p * m * (dp - (p * m * dp).sum(1, keepdims=True))` | Softmax gave p, before dropout: its Jacobian has p without m. |
# | `dp = (dy @ v.T) * m` | `dp = dy @ v.T; dv = p.T @ dy` | Dropout is left out: p was multiplied by m on the way up, and both gradients have m in them. |
# | `return ds @ k / root, ds.T @ q / root, dv` | `return dv, ds @ k / root, ds.T @ q / root` | The order asked for is dq, dk, dv. |
#
# </details>
# <details><summary>The derivation</summary>
#
# 1. $Y = (P \odot m) V$ is a matrix product: $\mathtt{dV} = (P \odot m)^\top \mathtt{dY}$, and the gradient of the left
#    factor is $\mathtt{dY}\,V^\top$.
# 2. Through the multipliers: $\mathtt{dP} = (\mathtt{dY}\,V^\top) \odot m$.
# 3. Through softmax. Chapter 05 found $J = \operatorname{diag}(p) - p p^\top$ for one row, so $\mathtt{ds} = J^\top
#    \mathtt{dp} = p \odot \mathtt{dp} - p\,(p \cdot \mathtt{dp}) = p \odot (\mathtt{dp} - p \cdot \mathtt{dp})$. In
#    each row subtract from dp its mean, weighted by p, and multiply by p.
# 4. $S = Q K^\top / \sqrt D$ is a matrix product of two *inputs*, so both get a gradient:
#    $\mathtt{dQ} = \mathtt{dS}\,K / \sqrt D$ and $\mathtt{dK} = \mathtt{dS}^\top Q / \sqrt D$.
#
# </details>

# %% [markdown]
# In numbers, and then in a picture:

# %%
n, D = 6, 4
Q, K, V, dY = rng.standard_normal((4, n, D))
m = (rng.random((n, n)) > 0.3) / 0.7


def pulled(Q, K, V):
    """Return the sum of dY times the result: a scalar whose gradients are dQ, dK and dV."""
    return np.asarray((dY * ((softmax_rows(Q @ K.T / np.sqrt(D)) * m) @ V)).sum())


S = Q @ K.T / np.sqrt(D)
P = softmax_rows(S)
dP = (dY @ V.T) * m
dS = P * (dP - (P * dP).sum(-1, keepdims=True))
Y = (P * m) @ V
course.equal("dV = (P m)^T dY", jacobian(lambda V: pulled(Q, K, V), V).reshape(n, D), (P * m).T @ dY)
course.equal(
    "dP = (dY V^T) m", jacobian(lambda P: np.asarray((dY * ((P * m) @ V)).sum()), P).reshape(n, n), dP
)
course.equal(
    "dS = P (dP - rowsum(P dP))",
    jacobian(lambda S: np.asarray((dY * ((softmax_rows(S) * m) @ V)).sum()), S).reshape(n, n),
    dS,
)
course.equal("dQ = dS K / √D", jacobian(lambda Q: pulled(Q, K, V), Q).reshape(n, D), dS @ K / np.sqrt(D))
course.equal("dK = dS^T Q / √D", jacobian(lambda K: pulled(Q, K, V), K).reshape(n, D), dS.T @ Q / np.sqrt(D))
course.equal("rows of dS sum to 0", 1 + dS.sum(-1), np.ones(n))
course.equal("rowsum(P dP) = rowsum(dY Y), even with dropout", (P * dP).sum(-1), (dY * Y).sum(-1))

figure, panels = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained")
for ax, (title, matrix, colours, low, high) in zip(
    panels,
    [
        ("$P$", P, "viridis", 0, 1),
        ("$m$", m, "viridis", 0, 1.5),
        ("dP", dP, "cividis", -5, 5),
        ("dS", dS, "cividis", -1.2, 1.2),
    ],
    strict=True,
):
    picture = ax.imshow(matrix, cmap=colours, vmin=low, vmax=high)
    ax.set(title=title, xlabel="key", xticks=range(n), yticks=range(n))
    figure.colorbar(picture, ax=ax, shrink=0.8)
panels[0].set_ylabel("query")
course.show(
    figure,
    "Four six by six maps: attention probabilities P, dropout multipliers m, dP, which is zero where m is, and dS, which "
    "is large only where P is and has both signs in every row.",
)

# %% [markdown]
# These lines hold two lessons. Every row of dS sums to zero, because adding a constant to all scores of a
# query changes nothing. And a score whose probability is nearly zero gets almost no gradient, since dS
# carries a factor P. Nor does one whose probability is nearly one, as the row sums to zero: a head that is
# sure of itself learns slowly. A key that causal attention hides has $p = 0$ exactly, so its dS is zero with
# no special case.
#
# The last equation looks like a curiosity, but it saves a great deal of memory. On the way back through the softmax
# (exercise 06.10) each row needs the number $p \cdot \mathtt{dp}$. It equals $\mathtt{dy} \cdot y$, which needs neither P nor dP. Fast implementations
# (FlashAttention, Dao et al. 2022) use it to go back through attention one tile of the map at a time, without ever
# holding an $n \times n$ array. The proof is one line: $\sum_j p_j\,\mathtt{dp}_j = \sum_j p_j m_j\,(\mathtt{dy} \cdot
# v_j) = \mathtt{dy} \cdot \sum_j p_j m_j v_j = \mathtt{dy} \cdot y$.
#
# What would holding such arrays cost? In BERT-BASE one layer keeps, for each sequence, 12 maps of
# $n \times n$, besides queries, keys and values of $n \times 768$ each:

# %%
lengths = np.array([64, 128, 256, 512, 1024, 2048])
maps, inputs = 12 * lengths**2 * 4 / 2**20, 3 * lengths * 768 * 4 / 2**20
figure, ax = plt.subplots(figsize=(6.5, 3))
ax.loglog(lengths, maps, "o-", label="probabilities, 12 n²")
ax.loglog(lengths, inputs, "s--", color="C1", label="q, k and v, 3 · 768 n")
ax.set(
    xlabel="length n",
    ylabel="MiB per layer and sequence",
    title="Kept for the way back, BERT-BASE in float32",
)
ax.set_xticks(lengths, lengths)
ax.minorticks_off()
ax.legend()
course.show(
    figure,
    "Memory kept by one attention layer against sequence length. Probabilities grow with the square of the length, "
    "queries, keys and values with the length itself; the lines cross near length 192.",
)
course.say(
    f"The lines cross at $n = 3 \\cdot 768 / 12 = {3 * 768 // 12}$. At 512 tokens the maps take "
    f"**{maps[3]:.0f} MiB** per layer and sequence. Twelve layers and a batch of eight make "
    f"**{maps[3] * 12 * 8 / 1024:.1f} GiB**."
)

# %% [markdown]
# ### Exercise 06.13 (hard): attention in a batch
#
# Now the real operation, for many sequences and heads at once. `dy` and `saved.q`, `saved.k`, `saved.v` are
# (T, A, D): all tokens of all sequences, one after another, in A heads.
# `equal_length_groups(saved.cu_seqlens)` returns `groups` and something you do not need. Each of the groups
# is an array of row numbers, (sequences, length), for sequences of the same length. So `saved.q[rows]` is
# (sequences, length, A, D), and `.swapaxes(1, 2)` makes it (sequences, A, length, D): matrices in the last
# two dimensions, as many heads side by side as you like. `saved.groups` holds for each group, in the same
# order, a pair with `p` and `mask`, (sequences, A, length, length). The mask is `None` if nothing was
# dropped.
#
# Every token is in exactly one group, so you may fill arrays with `dq[rows] = …`.

# %%
three_sequences = np.array([0, 2, 5, 7])  # of 2, 3 and 2 tokens
groups, _ = equal_length_groups(three_sequences)
for rows in groups:
    print(f"{len(rows)} of length {rows.shape[1]}: rows", rows.tolist())


# %%
# Exercise 06.13
def attention_backward(self, dy, saved):
    """Return dq, dk and dv, each (T,A,D); saved has q, k, v, cu_seqlens and groups."""
    ...


# %%
lesson.check(attention_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Loop with `for rows, kept in zip(groups, saved.groups)`. The body is 06.12, but p is given, and `.T` becomes
# `.swapaxes(2, 3)`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Replace a mask of None with 1, and there is no special case. At the end turn (sequences, A, length, D) back
# into (sequences, length, A, D) before you assign.
#
# </details>
# <details><summary>Solution 06.13</summary>
#
# ```python
# def attention_backward(self, dy, saved):
#     groups, _ = equal_length_groups(saved.cu_seqlens)
#     root = dy.shape[-1] ** 0.5
#     dq, dk, dv = np.empty_like(dy), np.empty_like(dy), np.empty_like(dy)
#     for rows, kept in zip(groups, saved.groups):
#         q, k, v, d_out = (one[rows].swapaxes(1, 2) for one in (saved.q, saved.k, saved.v, dy))
#         p, m = kept.p, 1 if kept.mask is None else kept.mask
#         dp = (d_out @ v.swapaxes(2, 3)) * m
#         ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / root
#         dq[rows] = (ds @ k).swapaxes(1, 2)
#         dk[rows] = (ds.swapaxes(2, 3) @ q).swapaxes(1, 2)
#         dv[rows] = ((p * m).swapaxes(2, 3) @ d_out).swapaxes(1, 2)
#     return dq, dk, dv
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `((p * m).swapaxes(2, 3) @ d_out)` | `(p.swapaxes(2, 3) @ d_out)` | The values were mixed with dropped probabilities: p times m. |
# | `(d_out @ v.swapaxes(2, 3)) * m` | `d_out @ v.swapaxes(2, 3)` | A dropped probability has no influence, so dp needs the multipliers, too. |
# | `(dp - (p * dp).sum(-1, keepdims=True)) / root` | `dp / root` | The second term of softmax's Jacobian is missing: the row's mean of dp, weighted by p. |
# | `keepdims=True)) / root` | `keepdims=True))` | The scores were divided by √D, and so are the gradients of q and k. |
# | `root = dy.shape[-1] ** 0.5` | `root = dy.shape[-2] ** 0.5` | √D is the root of the size of a head, the last dimension; A is the number of heads. |
# | `(ds.swapaxes(2, 3) @ q)` | `(ds @ q)` | Row j of dk collects column j of dS: transpose it. |
# | `p, m = kept.p, 1 if kept.mask is None else kept.mask` | `p, m = kept.p, 1` | Dropout is left out: where there is a mask, p was multiplied by it, and both gradients have it in them. |
# | `(ds.swapaxes(2, 3) @ q)` | `(ds.swapaxes(2, 3) * root @ q)` | The scores were divided by √D, and so is the gradient of k. |
#
# </details>

# %%
course.source(Ops.attention_backward)

# %% [markdown]
# ## 7. The whole embedding block
#
# A group of operations with parameters of its own is a **block**. The first block is below all layers, and
# chapter 02 built its forward: three tables, LayerNorm, dropout.
#
# $$ y = m \odot \operatorname{LayerNorm}(E[\text{ids}] + E_{\text{pos}}[\text{positions}] + E_{\text{seg}}[\text{segments}]) $$
#
# Its backward puts together what you have: multiply by the mask; go back through LayerNorm; then the same dx goes to all
# three tables, since a sum hands its gradient to each of its terms. There is no gradient for an input,
# because the inputs are whole numbers. The gradients of the parameters go into a dictionary of accumulators,
# and you return a dictionary with the same keys, each with what you found *added*.

# %%
course.source(Ops.embedding_block)

# %% [markdown]
# ### Exercise 06.14 (core): the embedding block, backwards
#
# `saved` has `word`, `position` and `segment` (each what `embedding` saved), `norm` (what `layer_norm` saved), and
# `dropout`, which is None or has a `mask`. Call your own operations through `self`. `self.accumulate(total, extra)`
# adds to an accumulator and returns it. You will not need `params`.


# %%
# Exercise 06.14
def embedding_block_backward(self, dy, saved, params, grads):
    """Return grads, a dictionary with word, position, segment, gamma and beta, each with its gradient added."""
    ...


# %%
lesson.check(embedding_block_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Three steps: the mask, if there is one; `self.layer_norm_backward(dy, saved.norm)`; `self.embedding_backward` three
# times.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `self.embedding_backward(dx, saved.word, grads["word"])` adds to the accumulator and returns it. gamma and beta need
# `self.accumulate`.
#
# </details>
# <details><summary>Solution 06.14</summary>
#
# ```python
# def embedding_block_backward(self, dy, saved, params, grads):
#     if saved.dropout is not None:
#         dy = dy * saved.dropout.mask
#     dx, dgamma, dbeta = self.layer_norm_backward(dy, saved.norm)
#     return {
#         "word": self.embedding_backward(dx, saved.word, grads["word"]),
#         "position": self.embedding_backward(dx, saved.position, grads["position"]),
#         "segment": self.embedding_backward(dx, saved.segment, grads["segment"]),
#         "gamma": self.accumulate(grads["gamma"], dgamma),
#         "beta": self.accumulate(grads["beta"], dbeta),
#     }
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `dy = dy * saved.dropout.mask` | `pass` | What dropout multiplied on the way up has to be multiplied again on the way down. |
# | `self.accumulate(grads["gamma"], dgamma)` | `dgamma` | The accumulator is replaced instead of added to. |
# | `self.embedding_backward(dx, saved.position, grads["position"])` | `self.embedding_backward(dx, saved.segment, grads["position"])` | Each table is indexed by its own numbers: positions by `saved.position`. |
# | `self.embedding_backward(dx, saved.word, grads["word"])` | `self.embedding_backward(dy, saved.word, grads["word"])` | The tables are below LayerNorm: they get dx, not dy. |
# | `self.embedding_backward(dx, saved.segment, grads["segment"])` | `self.embedding_backward(dx / 3, saved.segment, grads["segment"])` | A sum hands its whole gradient to each term; it is not divided among them. |
#
# </details>

# %% [markdown]
# ## 8. Your engine so far

# %%
lesson.sheet()

# %%
lesson.keep()

# %% [markdown]
# ## What we saw
#
# * A copy comes back as a sum. Rows that repeat need a true sum, which `+=` does not give.
# * What is used twice gets the sum of two gradients: a tied table, and the input of a residual connection.
# * The shortcut hands dy down untouched (in BERT a LayerNorm then acts on the sum); without it a gradient shrinks at
#   every layer while weights are small.
# * Dropout's backward multiplies by the same numbers, and numbers that are a function of their place can be drawn again.
# * LayerNorm forgets a row's mean and its length, so its backward removes these two directions and divides by the spread.
# * Attention backwards is two matrix products, a mask, softmax's Jacobian, and two more matrix products.
#
# ## Words
#
# - **gather**: to read from an array the rows that a list of numbers names.
# - **scatter**: to add rows into an array at the places that a list of numbers names; the reverse of a
#   gather.
# - **accumulator**: a running sum of gradients, which a backward pass adds to and returns.
# - **tied embedding**: one word table that turns words into vectors and scores vectors against all words.
# - **residual connection**: a shortcut that adds the input of a sublayer to its output.
# - **block**: a group of operations with parameters of its own, such as the embeddings.
# - **projection**: a matrix that removes the component along some direction, and leaves everything else as it is.
#
# ## Where to go next
#
# * [Chapter 07](07_a_whole_bert.ipynb) puts all operations together into a BERT with forward and backward, and finds a
#   fault by looking at its gradients.
# * Ba et al., [*Layer normalization*](https://arxiv.org/abs/1607.06450) (2016).
# * Dao et al., [*FlashAttention*](https://arxiv.org/abs/2205.14135) (2022), appendix B: this chapter's attention
#   backward, tile by tile.
# * He et al., [*Deep residual learning*](https://arxiv.org/abs/1512.03385) (2015), where the shortcut comes from.
