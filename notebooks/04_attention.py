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
# # 04 · Attention
#
# *This notebook needs* `pip install '.[notebooks]'` *from a checkout of minibert.*
#
# **The question.** So far every token has been a vector on its own. "Bank" has the same vector beside a river
# as beside a loan. How can a token take in what surrounds it, at any distance, without knowing beforehand
# where to look?
#
# **What you will be able to do.** You will compute attention for three tokens on paper, say why the scores are divided
# by $\sqrt D$, cut a matrix into several parts without mixing up the tokens, and count what attention costs. At the end
# your own `attention` is part of your engine and agrees with minibert's to twelve digits.

# %%
# %matplotlib inline
import itertools
import math
import time

import matplotlib.pyplot as plt
import numpy as np

from minibert import BertConfig, course
from minibert.core.batch import Batch, Sequence
from minibert.core.bert import encoder_layer
from minibert.core.ops.attention import AttentionSaved, GroupSaved, equal_length_groups  # noqa: F401  for exercise 04.4
from minibert.model.ops import Ops
from minibert.model.params import initialise
from minibert.reports import viz

plt.rcParams |= {
    "figure.dpi": 80,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
}
lesson = course.begin("04")

# %% [markdown]
# ## 1. Three tokens on paper
#
# Each token brings three vectors. Its **query** says what it is looking for. Its **key** says what it can be
# found by. Its **value** says what it hands over when it is found. All three are computed from the vector $x_i$ that
# the token has at this point, its **hidden state**: $q_i = x_i W_Q + b_Q$, $k_i = x_i W_K + b_K$, $v_i = x_i W_V +
# b_V$, with matrices and biases that the model learns.
#
# The **score** of a query and a key is their dot product, divided by $\sqrt D$, where $D$ is how many numbers
# each of them has. (Section 3 is about this root.) A softmax turns the scores of one query into **attention
# weights**: positive numbers that sum to 1. The output for that query is the mean of all values under these
# weights:
#
# $$ s_{ij} = \frac{q_i \cdot k_j}{\sqrt D}, \qquad p_{ij} = \frac{e^{s_{ij}}}{\sum_l e^{s_{il}}}, \qquad
#    y_i = \sum_j p_{ij} v_j . $$
#
# This is **scaled dot-product attention** (Vaswani et al. 2017, section 3.2.1). When queries, keys and values come from
# the same sentence, as in BERT, it is called **self-attention**.
#
# Take three tokens and $D = 2$, with keys $(1, 0)$, $(0, 1)$ and $(1, 1)$. Let the third query be
# $\sqrt 2\,(\ln 2, \ln 3)$. Its scores are
#
# $$ s_{31} = \ln 2, \qquad s_{32} = \ln 3, \qquad s_{33} = \ln 2 + \ln 3 = \ln 6 . $$
#
# The exponentials are 2, 3 and 6. They sum to 11, so the attention weights are $\frac2{11}$, $\frac3{11}$ and
# $\frac6{11}$. With the values $(11, 0)$, $(0, 11)$ and $(11, 11)$ the output is $(2 + 6,\; 3 + 6) = (8, 9)$.

# %%
q = math.sqrt(2) * np.log([[4.0, 1.0], [1.0, 8.0], [2.0, 3.0]])
k = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
v = np.array([[11.0, 0.0], [0.0, 11.0], [11.0, 11.0]])

scores = q @ k.T / math.sqrt(2)
p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
course.equal("attention weights of the third token", p[2], np.array([2, 3, 6]) / 11)
course.equal("its output", p[2] @ v, [8, 9])

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
for n in range(3):
    left.annotate("", k[n], (0, 0), arrowprops={"arrowstyle": "->", "color": "C0", "lw": 2})
    left.annotate("", q[n], (0, 0), arrowprops={"arrowstyle": "->", "color": "C1", "lw": 2, "ls": "--"})
    left.text(*(k[n] + [0.06, -0.14]), f"$k_{n + 1}$", color="C0")
    left.text(*(q[n] + [0.06, 0.05]), f"$q_{n + 1}$", color="C1")
left.set(xlim=(-0.2, 2.4), ylim=(-0.3, 3.3), title="keys (solid) and queries (dashed)")
y = p @ v
right.fill(*v.T, color="C0", alpha=0.12)
right.plot(*v.T, "s", color="C0", ms=8)
right.plot(*y.T, "o", color="C1", ms=8)
for n, (value, output) in enumerate(zip(v, y, strict=True), 1):
    right.annotate(f"$v_{n}$", value, (6, 6), textcoords="offset points", color="C0")
    right.annotate(f"$y_{n}$", output, (6, 6), textcoords="offset points", color="C1")
right.set(xlim=(-1, 13), ylim=(-1, 13), title="every output lies between the values")
course.show(
    figure,
    "Left: three keys and three queries as arrows from the origin. Right: the three values are the corners of a "
    "triangle, and the three outputs lie inside it, each nearest to the values whose keys fit its query.",
)

# %% [markdown]
# The picture on the right shows what kind of operation this is. Weights that are positive and sum to 1 make a mean, and
# a mean of points lies between them. Attention invents nothing. It chooses among what the tokens hand over, and the
# choice can be soft.
#
# How soft? Multiply all scores by a number $\beta$. At $\beta = 0$ all weights are equal and the output is the plain
# mean. As $\beta$ grows, the largest score takes everything, and attention becomes a look-up in a table.

# %%
one_query, beta = np.array([0.9, 0.7, 0.1, -0.3, -0.8]), np.linspace(0, 12, 121)
weights = np.exp(beta[:, None] * one_query)
weights /= weights.sum(-1, keepdims=True)
figure, axes = plt.subplots(figsize=(7, 3.2))
for n, score in enumerate(one_query):
    axes.plot(
        beta,
        weights[:, n],
        color=plt.cm.viridis(n / 5),
        ls=("-", "--", "-.", ":", (0, (1, 4)))[n],
        label=f"score {score}",
    )
axes.axhline(1 / 5, color="grey", lw=0.7)
axes.set(
    xlabel="$\\beta$, the factor on all scores", ylabel="attention weight", title="From a mean to a look-up"
)
axes.legend(frameon=False, fontsize=8)
course.show(
    figure,
    "Five attention weights against the factor on the scores. All begin at one fifth; with a growing factor "
    "the weight of the largest score rises towards one, that of the second rises a little and then falls, "
    "and the others go to zero.",
)

# %% [markdown]
# The ratio of two weights depends on the difference of their scores alone: $p_{ij} / p_{il} = e^{s_{ij} - s_{il}}$. So
# the same number may be subtracted from all scores of a query. As in chapter 3, subtract the largest one before you take
# exponentials.

# %%
large = scores + 800  # the exponential of these is infinite
shifted = np.exp(large - large.max(-1, keepdims=True))
course.equal("ratio of two weights", p[2, 0] / p[2, 1], np.exp(scores[2, 0] - scores[2, 1]))
course.equal("scores larger by 800, the largest subtracted", shifted / shifted.sum(-1, keepdims=True), p)

# %% [markdown]
# ### Exercise 04.1 (easy): attention of one sentence, with one set of weights
#
# There are n queries, m keys and m values. n and m may differ, and values need not be as long as keys. Return
# the (n, E) outputs. Scores may be in the thousands.


# %%
# Exercise 04.1
def attend(q, k, v):
    """Return softmax(q k^T / sqrt(D)) v for q (n,D), k (m,D), v (m,E)."""
    ...


# %%
def draw_qkv(rng):
    """Draw what is never square; the last query has scores in the thousands, the first values are unit vectors."""
    n, m, D, E = rng.permutation([3, 4, 5, 7])
    q = rng.standard_normal((n, D))
    q[-1] *= 3000
    return q, rng.standard_normal((m, D)), np.concatenate([np.eye(m), rng.standard_normal((m, E))], axis=1)


def is_attention(y, q, k, v):
    """Unit vectors as values hand the weights over: look whether they are what a softmax of the scores is."""
    if np.shape(y) != (len(q), v.shape[1]):
        return f"The answer has the shape {np.shape(y)}; expected {(len(q), v.shape[1])}."
    weights, mixed = np.split(np.asarray(y), [len(k)], axis=1)
    if not np.isfinite(weights).all():
        return (
            "Some outputs are not numbers: the exponentials are too large. Subtract the largest score first."
        )
    if np.abs(weights.sum(1) - 1).max() > 1e-12:
        return "The weights of a query do not sum to 1."
    for one, p in zip(q, weights, strict=True):
        seen = np.flatnonzero(p > 1e-250)
        found = np.log(p[seen][:, None] / p[seen])
        expected = (k[seen][:, None] - k[seen]) @ one / math.sqrt(k.shape[1])
        if np.abs(found - expected).max() > 1e-9 * (1 + np.abs(k @ one).max()):
            return "The ratio of two weights of a query is not the exponential of the difference of their scores."
        behind = (np.delete(k, seen, 0) - k[p.argmax()]) @ one / math.sqrt(k.shape[1])
        if len(behind) and behind.max() > -500:
            return "A key has no weight although its score is not far behind the largest."
    if np.abs(mixed - weights @ v[:, len(k) :]).max() > 1e-12:
        return "The output is not the mean of the values under the weights."
    return None


lesson.check(attend, draw=draw_qkv, law=is_attention)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# All scores at once are one matrix product of shape (n, m). Which of the two factors has to be transposed?
#
# </details>
# <details><summary>Hint 2</summary>
#
# A query is a row of the scores. So the largest score and the sum are taken along the last axis, and
# `keepdims=True` lets them be subtracted from, or divided into, each row.
#
# </details>
# <details><summary>Solution 04.1</summary>
#
# ```python
# def attend(q, k, v):
#     scores = q @ k.T / math.sqrt(q.shape[-1])
#     p = np.exp(scores - scores.max(1, keepdims=True))
#     p = p / p.sum(1, keepdims=True)
#     return p @ v
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `p.sum(1, keepdims=True)` | `p.sum(0, keepdims=True)` | The softmax runs over the keys of one query, which is the last axis, not over the queries. |
# | `math.sqrt(q.shape[-1])` | `q.shape[-1]` | The scores are divided by the root of D, not by D. |
# | `math.sqrt(q.shape[-1])` | `math.sqrt(len(q))` | The root is that of D, the length of a query; `len(q)` counts the queries. |
# | `q @ k.T / math.sqrt(q.shape[-1])` | `q @ k.T` | The scores are not divided by the root of D. |
# | `scores - scores.max(1, keepdims=True)` | `scores` | Without subtracting the largest score first, the exponential of a score in the thousands is infinite. |
# | `np.exp(scores - scores.max(1, keepdims=True))` | `1.0 * (scores == scores.max(1, keepdims=True))` | All weight goes to the largest score: a softmax gives each key some. |
# | `scores - scores.max(1, keepdims=True)` | `scores.max(1, keepdims=True) - scores` | The sign is reversed: now the smallest score has the largest weight. |
#
# </details>

# %% [markdown]
# ## 2. Attention does not know the order
#
# Nothing in the formula mentions the position of a token, and one line checks what chapter 2 said of all of BERT: put
# the tokens in another order, and the same outputs come out in that order. It takes the position vectors to tell "dog
# bites man" from "man bites dog".

# %%
rng = np.random.default_rng(4)
ops, whole = Ops(), np.array([0, 5])  # one sentence of five tokens
five = [rng.standard_normal((5, 1, 3)) for _ in range(3)]
order = rng.permutation(5)
outputs, _ = ops.attention(*five, whole)
permuted, _ = ops.attention(*(x[order] for x in five), whole)
course.equal("attention of permuted tokens, permuted attention", permuted, outputs[order])

# %% [markdown]
# ## 3. Why $\sqrt D$?
#
# Let the numbers in queries and keys be independent, with mean 0 and variance 1, which keeps the calculation simple (at
# BERT's own start their variance is about a quarter; the growth with $D$ is the same). Without the root, a score is a
# sum of $D$ products. Before you read on, commit to a guess.

# %%
guess = lesson.predict(
    "Without the root, how large is a typical score (its standard deviation) for D = 64?", ...
)

# %% [markdown]
# For two independent numbers with means $\mu_q, \mu_k$ and variances $\sigma_q^2, \sigma_k^2$, the mean of the product
# is $\mu_q \mu_k$, and the mean of its square is the product of the two mean squares:
#
# $$ \operatorname{Var}(q_d k_d) = E[q_d^2]\,E[k_d^2] - \mu_q^2 \mu_k^2
#    = (\sigma_q^2 + \mu_q^2)(\sigma_k^2 + \mu_k^2) - \mu_q^2 \mu_k^2 . $$
#
# Variances of independent numbers add up, so $D$ products have $D$ times the variance of one. With mean 0 and variance
# 1 that is $D$, and the standard deviation is $\sqrt D$. Divide by it, and scores have variance 1 however long the
# vectors are.
#
# We can check this without drawing a single random number. Let each number be $\mu + \sigma$ or $\mu - \sigma$, each
# with probability ½. Then a sum of three products has $4^3$ equally likely outcomes, and we can list them all.


# %%
def listed_variance(D, q_mean, q_var, k_mean, k_var):
    """Compute the variance of a score without the root, from the list of all its equally likely outcomes."""
    q_values = (q_mean - math.sqrt(q_var), q_mean + math.sqrt(q_var))
    k_values = (k_mean - math.sqrt(k_var), k_mean + math.sqrt(k_var))
    products = [a * b for a in q_values for b in k_values]
    return float(np.var([math.fsum(some) for some in itertools.product(products, repeat=D)]))


course.equal("variance of a sum of three products", listed_variance(3, 0, 1, 0, 1), 3.0)
course.equal("one product, with means", listed_variance(1, 0.5, 2, -1, 3), (2 + 0.25) * (3 + 1) - 0.25 * 1)
guess.answer(math.sqrt(64), "the standard deviation grows as the root of D.")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
dimensions, deviations = [4, 16, 64, 256, 1024], []
for D in dimensions:
    drawn = (rng.standard_normal((4000, D)) * rng.standard_normal((4000, D))).sum(1)
    deviations.append(drawn.std())
    if D in (4, 64, 256):
        style = {4: "-", 64: "--", 256: ":"}[D]
        left.hist(
            drawn,
            np.linspace(-50, 50, 81),
            histtype="step",
            ls=style,
            lw=1.6,
            color=plt.cm.viridis({4: 0.0, 64: 0.45, 256: 0.8}[D]),
            label=f"D = {D}",
        )
left.set(
    xlabel="score without the root", ylabel="count in 4,000 draws", title="Longer vectors, larger scores"
)
left.legend(frameon=False)
right.loglog(dimensions, deviations, "o", color="C1", label="measured")
right.loglog(dimensions, np.sqrt(dimensions), color="C0", label="$\\sqrt{D}$")
right.set(xlabel="D", ylabel="standard deviation", title="as the root of D")
right.legend(frameon=False)
course.show(
    figure,
    "Left: histograms of unscaled scores for D of 4, 64 and 256, wider with every step. Right: their standard deviation "
    "against D, on logarithmic scales, lies on the line of the root of D.",
)

# %% [markdown]
# ### Exercise 04.2 (core): the variance of a score
#
# In a trained model the means are not zero. Return the variance of an unscaled score $q \cdot k$ of $D$ independent
# products. Write it without a difference, which loses digits where two numbers are nearly equal: expand the formula
# above.


# %%
# Exercise 04.2
def score_variance(D, q_mean, q_var, k_mean, k_var):
    """Return the variance of a sum of D products of independent numbers with these means and variances."""
    ...


# %%
def draw_moments(rng):
    """Draw a D that can still be listed, and means and variances in general position."""
    (q_mean, k_mean), (q_var, k_var) = rng.uniform(0.5, 2, 2) * rng.choice([-1, 1], 2), rng.uniform(0.5, 3, 2)
    return int(rng.integers(2, 6)), q_mean, q_var, k_mean, k_var


lesson.check(score_variance, draw=draw_moments, same_as=listed_variance)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Multiply the two brackets out. One of the four terms goes away.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Three terms are left: both vary; only q varies, and k stays at its mean; only k varies.
#
# </details>
# <details><summary>Solution 04.2</summary>
#
# ```python
# def score_variance(D, q_mean, q_var, k_mean, k_var):
#     return D * (q_var * k_var + q_var * k_mean**2 + k_var * q_mean**2)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `D * (` | `(` | That is the variance of one product; D of them are added. |
# | `D * (` | `D**2 * (` | Variances of independent terms add up; the factor is D, not its square. |
# | `D * (` | `D**0.5 * (` | The root belongs to the standard deviation; the variance grows as D itself. |
# | `q_var * k_var + q_var * k_mean**2` | `q_var * k_mean**2` | The term in which both vary is missing. |
# | `k_mean**2` | `k_mean` | A mean enters the variance as its square. |
# | `q_var * k_mean**2 + k_var * q_mean**2` | `q_var * q_mean**2 + k_var * k_mean**2` | What varies in q is multiplied by the mean of k, and the other way round. |
#
# </details>

# %% [markdown]
# ### What large scores would spoil
#
# Large scores turn attention into a look-up, as you saw above. That may be fine in a trained model. At the start it is
# not, because the choice is then random, and hard to take back. How much a weight changes when its score changes is the
# slope
#
# $$ \frac{\partial p_j}{\partial s_j} = p_j (1 - p_j) , $$
#
# which is zero at $p_j = 0$ and at $p_j = 1$. A softmax whose weights are all near 0 or 1 is **saturated**:
# training gets hardly any signal through it. The next cell checks the slope with a tiny imaginary step, as in
# the tour. Then we draw what happens to 16 random keys.


# %%
def softmax(s):
    """Return the softmax over the last axis."""
    e = np.exp(s - s.real.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# %%
s, h = rng.standard_normal(5), 1e-30
slopes = [softmax(s + 1j * h * one)[n].imag / h for n, one in enumerate(np.eye(5))]
course.equal("slope of each weight along its score", slopes, softmax(s) * (1 - softmax(s)))

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
for label, style, power in (("$q \\cdot k$", "C1s--", 0.0), ("$q \\cdot k / \\sqrt{D}$", "C0o-", 0.5)):
    largest, slope = [], []
    for D in dimensions:
        drawn = np.einsum("nd,nkd->nk", rng.standard_normal((300, D)), rng.standard_normal((300, 16, D)))
        p = softmax(drawn / D**power)
        largest.append(p.max(-1).mean())
        slope.append((p * (1 - p)).sum(-1).mean())
    left.semilogx(dimensions, largest, style, label=label)
    right.loglog(dimensions, slope, style, label=label)
left.set(
    xlabel="D", ylabel="largest of 16 weights, mean", ylim=(0, 1), title="Without the root one key takes all"
)
right.set(xlabel="D", ylabel="sum of slopes, mean", title="and little signal gets through")
right.legend(frameon=False)
course.show(
    figure,
    "Left: the largest of 16 attention weights against D; without the root it rises towards one, with the root it stays "
    "level. Right: the sum of the slopes falls with D without the root, and stays level with it.",
)
unscaled = (
    softmax(np.einsum("nd,nkd->nk", rng.standard_normal((300, 64)), rng.standard_normal((300, 16, 64))))
    .max(-1)
    .mean()
)
course.say(
    f"At BERT's D = 64, without the root, the largest of 16 random weights is **{unscaled:.2f}** on average."
)

# %% [markdown]
# ## 4. Heads
#
# One set of weights gives one mean. A token that wants to know the word on its left *and* the word on its right could
# give each of them weight ½, but then it cannot tell which was which: with equal weights, a mean has no order. (Does
# the position inside the vectors help? Not if it is only added: $\tfrac12 (w_1 + p_1 + w_2 + p_2)$ is the same when the
# two words change places.) So BERT computes attention several times side by side. Each of these computations is a
# **head**, with queries, keys and values of its own, and all heads together are **multi-head attention**.
#
# Heads need no more multiplications or parameters than one set of weights, only more memory (section 6). The hidden
# size $H$ is divided among $A$ heads of $D = H/A$ columns each. BERT-BASE has $H = 768$, $A = 12$ and $D = 64$. Written
# out, with $Q_a$, $K_a$, $V_a$ the $D$ columns of head $a$:
#
# $$ \text{head}_a = \operatorname{softmax}\Bigl(\frac{Q_a K_a^\top}{\sqrt D}\Bigr) V_a, \qquad
#    \operatorname{attention}(x) = [\,\text{head}_1 \mid \dots \mid \text{head}_A\,]\; W_O + b_O . $$
#
# In shapes: x (T,H) → q, k, v (T,H) each → cut into heads (T,A,D) → attention in every head (T,A,D) → side by side
# (T,H) → times $W_O$ (T,H). Without this fourth matrix what head 1 found could be added to columns 1 to $D$ of its token
# alone; $W_O$ lets every column draw on all heads.
#
# We can build two such heads by hand. Let the key of a token be the unit vector of its position. A head whose
# query points at the previous position looks left; one whose query points at the next looks right. A factor
# of 40 makes the choice sharp. What a head does is best seen in its **attention map**: row $i$ holds the
# attention weights of token $i$.

# %%
words = ["the", "whale", "rams", "the", "ship"]
n = len(words)
position = np.eye(n)
sharp = 40.0
left_query = sharp * position[np.maximum(np.arange(n) - 1, 0)]
right_query = sharp * position[np.minimum(np.arange(n) + 1, n - 1)]
queries = np.stack([left_query, right_query, (left_query + right_query) / 2], axis=1)  # (n, 3 heads, D)
keys = np.stack([position] * 3, axis=1)
(maps,) = ops.attention_probabilities(queries, keys, np.array([0, n]))
figure = viz.draw_attention(maps, words, darkest=1.0)
for axes, title in zip(figure.axes, ("look left", "look right", "one head that wants both"), strict=True):
    axes.set_title(title, fontsize=10)
course.show(
    figure,
    "Three attention maps of the sentence the whale rams the ship. In the first every token looks at the one before it, "
    "in the second at the one after it, in the third at both, half each.",
)

# %% [markdown]
# Now let "whale" and the second "the" change places around "rams". The two heads see the difference. The
# single head does not: the halves of the two neighbours add up to the same vector, whichever side each is on.

# %%
vectors = {word: rng.standard_normal(n) for word in words}


def around_rams(order, heads):
    """Return what the token "rams" gets from some of the heads."""
    values = np.stack([[vectors[word]] * 3 for word in order])
    y, _ = ops.attention(queries, keys, values, np.array([0, n]))
    return y[2, heads]


swapped = ["the", "the", "rams", "whale", "ship"]
course.equal("one head, both orders", around_rams(words, [2]), around_rams(swapped, [2]))
difference = np.abs(around_rams(words, [0, 1]) - around_rams(swapped, [0, 1])).max()
course.say(f"With two heads the outputs differ by up to **{difference:.1f}**.")

# %% [markdown]
# ### Exercise 04.3 (easy): cut into heads, and put together again
#
# $x W_Q + b_Q$ is (T, H): one row for each token, and in each row the $D$ columns of head 1, then
# those of head 2, and so on. Cut them into (A, T, D), and write the way back.


# %%
# Exercise 04.3
def split_heads(x, A):
    """Return x (T,H) as (A,T,D), head by head."""
    ...


def merge_heads(y):
    """Return y (A,T,D) as (T,H): for each token the columns of head 1, then those of head 2, ..."""
    ...


# %%
def draw_flat(rng):
    """Draw (T,H) and a number of heads, all sizes different."""
    T, A, D = (int(size) for size in rng.permutation([2, 3, 5]))
    return rng.standard_normal((T, A * D)), A


def draw_headed(rng):
    """Draw (A,T,D), all sizes different."""
    return (rng.standard_normal(rng.permutation([2, 3, 5])),)


lesson.check(split_heads, draw=draw_flat, same_as=lambda x, A: np.stack(np.split(x, A, axis=1)))
lesson.check(merge_heads, draw=draw_headed, same_as=lambda y: np.concatenate(list(y), axis=1))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `reshape` never moves a number in memory. It can cut the last axis of (T, H) in two, (T, A, D), but it can't bring the
# heads to the front. What can?
#
# </details>
# <details><summary>Hint 2</summary>
#
# The way back undoes the two steps in the opposite order: first exchange the axes, then join the last two.
#
# </details>
# <details><summary>Solution 04.3</summary>
#
# ```python
# def split_heads(x, A):
#     T, H = x.shape
#     return x.reshape(T, A, H // A).swapaxes(0, 1)
#
#
# def merge_heads(y):
#     A, T, D = y.shape
#     return y.swapaxes(0, 1).reshape(T, A * D)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `x.reshape(T, A, H // A).swapaxes(0, 1)` | `x.reshape(A, T, H // A)` | A reshape alone fills the heads with whole rows of tokens: the first head gets all columns of the first tokens. |
# | `x.reshape(T, A, H // A).swapaxes(0, 1)` | `x.reshape(T, H // A, A).transpose(2, 0, 1)` | A head owns D columns that stand side by side, not every A-th column. |
# | `x.reshape(T, A, H // A).swapaxes(0, 1)` | `x.reshape(T, A, H // A)` | The heads have to come first: exchange the first two axes. |
# | `y.swapaxes(0, 1).reshape(T, A * D)` | `y.reshape(T, A * D)` | The heads still come first in memory, so this joins different tokens: exchange the axes before joining. |
# | `y.swapaxes(0, 1).reshape(T, A * D)` | `y.transpose(1, 2, 0).reshape(T, A * D)` | The columns of a head belong side by side; here the heads take turns. |
# | `y.swapaxes(0, 1).reshape(T, A * D)` | `y.sum(0)` | Heads are put side by side, not added. |
#
# </details>

# %% [markdown]
# One mistake in this exercise, a reshape alone, is worth a picture, for it raises no error and the shapes are right.
# Each cell below says which token a number comes from; the shade says which head it belongs to.

# %%
T, A, D = 4, 2, 3
token, owner = np.repeat(np.arange(T)[:, None], A * D, 1), np.repeat(np.arange(A * D)[None] // D, T, 0)
right_way = [x.reshape(T, A, D).swapaxes(0, 1) for x in (token, owner)]
wrong_way = [x.reshape(A, T, D) for x in (token, owner)]
figure, axes = plt.subplots(1, 5, figsize=(11, 2.4), width_ratios=[2, 1, 1, 1, 1])
panels = [("(T, H)", token, owner)]
panels += [(f"right: head {a + 1}", right_way[0][a], right_way[1][a]) for a in range(A)]
panels += [(f"reshape alone: head {a + 1}", wrong_way[0][a], wrong_way[1][a]) for a in range(A)]
for ax, (title, tokens, owners) in zip(axes, panels, strict=True):
    ax.imshow(owners, cmap="cividis", vmin=-0.5, vmax=1.3)
    for row, column in np.ndindex(tokens.shape):
        colour = "black" if owners[row, column] else "white"
        ax.text(column, row, tokens[row, column] + 1, ha="center", va="center", color=colour)
    ax.set(title=title, xticks=[], yticks=[])
    ax.title.set_fontsize(9)
course.show(
    figure,
    "A table of four tokens and six columns, the first three of head one, the others of head two. Cut correctly, each "
    "head has its own three columns of all four tokens. With a reshape alone, head one has all "
    "columns of tokens one and two, and head two those of tokens three and four.",
)

# %% [markdown]
# ## 5. Many sentences in one batch
#
# A batch holds the tokens of all sentences one after another, and `cu_seqlens` says where each begins (chapter 2). A
# token must attend only to its own sentence. Other programs pad all sentences to one length and add a large negative
# number to the scores of what must not be seen. minibert does neither. It groups sentences of equal length
# and keeps each sentence's product apart, so what must not be seen is never computed.
#
# Both ways compute the same function. Here is the masking alone, on the flat batch: all scores at once, with $-\infty$
# wherever two tokens belong to different sentences.

# %%
cu_seqlens = np.array([0, 3, 8, 10, 15])  # sentences of 3, 5, 2 and 5 tokens
T, A, D = 15, 2, 4
q, k, v = (rng.standard_normal((T, A, D)) for _ in range(3))
sentence = np.searchsorted(cu_seqlens, np.arange(T), side="right")
together = sentence[:, None] == sentence
scores = np.einsum("iad,jad->aij", q, k) / math.sqrt(D)
big_map = softmax(np.where(together, scores, -np.inf))
in_one = np.einsum("aij,jad->iad", big_map, v)
course.equal("one masked square, sentence by sentence", in_one, ops.attention(q, k, v, cu_seqlens)[0])

# %% [markdown]
# A model that writes text from left to right must not look ahead. In **causal** attention a token sees itself
# and what comes before it. BERT itself reads in both directions, and that is the point of the paper. Its
# left-to-right ablation, and every GPT, is causal.

# %%
causal_map = softmax(np.where(together & (np.arange(T)[:, None] >= np.arange(T)), scores, -np.inf))
figure, axes = plt.subplots(1, 2, figsize=(8, 3.9))
for ax, one, title in zip(axes, (big_map, causal_map), ("both directions", "causal"), strict=True):
    ax.imshow(np.where(one[0] > 0, one[0], np.nan), cmap="viridis", vmin=0, vmax=1)
    ax.set(title=title, xlabel="key", ylabel="query", xticks=cu_seqlens[:-1], yticks=cu_seqlens[:-1])
    ax.set_facecolor("#e8e8e8")
course.show(
    figure,
    "Two attention maps of a batch of four sentences. In both directions: four full squares along the diagonal, of 3, 5, "
    "2 and 5 tokens. Causal: only their lower triangles. All else is grey: it is never computed.",
)
computed, full = int(together.sum()), T * T
course.say(
    f"Of the {full} pairs of the square, **{computed}** are inside a sentence; the others need no work."
)

# %% [markdown]
# One more thing happens to the weights while a model trains: dropout (chapter 2) sets some of them to zero at random
# and makes the others larger, so that the expected value stays the same. The weights of a token then no longer sum to
# exactly 1. The zeros are drawn for you: `self._probability_mask(p, rows, drop, site)` returns what to multiply by, or
# `None` when there is no dropout. Chapter 6 has the details.
#
# ### Exercise 04.4 (hard): the operation `attention`
#
# Now put it together: all heads, all sentences, causal or not, with dropout.
#
# * `q`, `k`, `v` are (T, A, D), and so is the result.
# * `groups, back = equal_length_groups(cu_seqlens)` helps: each group is an array `rows`, (sentences, n),
#   with the row numbers of sentences of one length. Flatten each group's result to (sentences · n, A, D) and
#   concatenate them to (T, A, D); `[back]` then restores the batch's order.
# * `softmax`, as defined in section 3, works along the last axis of an array of any shape.
# * `self._probability_mask(p, rows, drop, site)` takes weights of shape (sentences, A, n, n).
# * Save `AttentionSaved(q, k, v, cu_seqlens, kept)`, where `kept` is a tuple of one `GroupSaved(p, mask)` for each group:
#   the weights before dropout and what they were multiplied by. With that, minibert can train through your
#   operation until you write what training needs in chapter 6.
#
# Take the root with `math.sqrt`. It gives a plain number, while `np.sqrt` gives one in double precision, which turns a
# whole array in single precision into double precision.
#
# A loop over sentences instead of groups also passes, if you save a record of your own in place of
# `AttentionSaved`.


# %%
# Exercise 04.4
def attention(self, q, k, v, cu_seqlens, causal=False, drop=None, site=0):
    """Return softmax(q k^T / sqrt(D)) v in each sentence and head, (T,A,D), and AttentionSaved."""
    ...


# %%
lesson.check(attention)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `q[rows]` is (sentences, n, A, D). Exchange two axes to get (sentences, A, n, D); then `@` multiplies the last two
# axes and does the same for every sentence and every head. Exchange them back before you join the outputs of all groups.
#
# </details>
# <details><summary>Hint 2</summary>
#
# For causal attention put `-np.inf` where the key comes after the query: `np.tril(np.ones((n, n), bool))` is True where
# it may look. After the softmax these weights are exactly zero.
#
# </details>
# <details><summary>Solution 04.4</summary>
#
# ```python
# def attention(self, q, k, v, cu_seqlens, causal=False, drop=None, site=0):
#     groups, back = equal_length_groups(cu_seqlens)
#     outputs, kept = [], []
#     for rows in groups:
#         queries, keys, values = (x[rows].swapaxes(1, 2) for x in (q, k, v))
#         scores = queries @ keys.swapaxes(2, 3) / math.sqrt(q.shape[-1])
#         if causal:
#             n = rows.shape[1]
#             scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
#         p = softmax(scores)
#         mask = self._probability_mask(p, rows, drop, site)
#         y = (p if mask is None else p * mask) @ values
#         outputs.append(y.swapaxes(1, 2).reshape(rows.size, *q.shape[1:]))
#         kept.append(GroupSaved(p, mask))
#     return np.concatenate(outputs)[back], AttentionSaved(q, k, v, cu_seqlens, tuple(kept))
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `queries @ keys.swapaxes(2, 3) / math.sqrt(q.shape[-1])` | `queries @ keys.swapaxes(2, 3)` | The scores are not divided by the root of D. |
# | `math.sqrt(q.shape[-1])` | `math.sqrt(q.shape[1] * q.shape[-1])` | D is the size of one head, not the width of all of them. |
# | `queries @ keys.swapaxes(2, 3)` | `keys @ queries.swapaxes(2, 3)` | The scores are transposed: rows have to be queries, columns keys. |
# | `np.tril` | `np.triu` | Causal attention looks ahead instead of back: the lower triangle may be seen. |
# | `scores, -np.inf)` | `scores, 0)` | A score of 0 still has a weight; what must not be seen needs a score of −∞. |
# | `softmax(scores)` | `softmax(scores.swapaxes(2, 3)).swapaxes(2, 3)` | The weights of a query sum to one, along the last axis; here those of a key do. |
# | `(p if mask is None else p * mask) @ values` | `p @ values` | Dropout is drawn but not applied to the weights. |
# | `GroupSaved(p, mask)` | `GroupSaved(p, None)` | The output is right, but training can do nothing with what is saved when the multipliers of dropout are missing. |
# | `GroupSaved(p, mask)` | `GroupSaved(p if mask is None else p * mask, mask)` | The output is right, but the weights are saved after dropout; the backward of softmax needs those before it. |
#
# </details>

# %% [markdown]
# And this is the real thing, in two parts. The first does what yours does. In the second, what must
# not be seen is hidden with `where`, never by adding minus infinity, so that no infinite number ever occurs.

# %%
course.source(Ops.attention)
print()
course.source(Ops._probabilities)

# %%
engine = lesson.engine()
course.equal("the engine, one masked square", engine.attention(q, k, v, cu_seqlens)[0], in_one)

# %% [markdown]
# ## 6. What it costs
#
# Every token looks at every other one, so the cost of attention grows with the *square* of the length.
# Everything else in a layer treats tokens one by one. That growth is what the remedies for "quadratic
# attention" are meant to cure. But what share of BERT's cost is it?

# %%
guess = lesson.predict(
    "At how many tokens do the scores and means of BERT-BASE cost as much as the rest of its layer?",
    ...,
    choices=[128, 512, 4608, 30522],
)

# %% [markdown]
# We count multiplications. A product of matrices (a, b) and (b, c) takes $abc$ of them. Besides attention, a layer has
# four matrices of $H \times H$ (queries, keys, values and the output) and a **feed-forward network**, one matrix from
# $H$ to $F$ and one back. Chapter 7 builds it; here only its shape counts.
#
# ### Exercise 04.5 (core): count the multiplications of a layer
#
# Given the lengths of the sentences in a batch, return two whole numbers: the multiplications of the scores and of the
# means over values, then those of the four square matrices and the feed-forward network. Division, exponentials and
# additions do not count. The judge has no formula. It runs minibert's own layer with arrays that count their
# multiplications.


# %%
# Exercise 04.5
def multiplications(lengths, H, F):
    """Return (multiplications of scores and means, of everything else) in one layer, forward."""
    ...


# %%
class Counting(np.ndarray):
    """An array that adds up the multiplications of every matrix product that it takes part in."""

    total = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        plain = [x.view(np.ndarray) if isinstance(x, Counting) else x for x in inputs]
        if ufunc is np.matmul:
            Counting.total += math.prod(
                np.broadcast_shapes(plain[0].shape[:-2], plain[1].shape[:-2])
            ) * math.prod((*plain[0].shape[-2:], plain[1].shape[-1]))
        result = getattr(ufunc, method)(*plain, **options)
        if out is not None:
            out[0].view(np.ndarray)[...] = result
            return out[0]
        return np.asarray(result).view(Counting)


def counted(lengths, H, F):
    """Count by running a layer of minibert."""
    config = BertConfig(
        vocab_size=9, hidden_size=H, num_hidden_layers=1, num_attention_heads=2, intermediate_size=F,
        max_position_embeddings=max(lengths),
    )  # fmt: skip
    params = initialise(config, 0, np.float64)
    params = params.like(params.flat.view(Counting))
    batch = Batch.pack([Sequence(np.zeros(n, int), np.zeros(n, int)) for n in lengths])
    x = np.ones((batch.T, H)).view(Counting)
    Counting.total = 0
    Ops().attention(*(x.reshape(-1, 2, H // 2),) * 3, batch.cu_seqlens)
    of_attention, Counting.total = Counting.total, 0
    encoder_layer(Ops(), config, x, params.tree["layers"][0], batch, None, 0)
    return of_attention, Counting.total - of_attention


def draw_layer(rng):
    """Draw at least two sentences, one of them long enough to differ from its square."""
    return (
        [int(rng.integers(3, 9)), *map(int, rng.integers(1, 9, rng.integers(1, 4)))],
        2 * int(rng.integers(2, 5)),
        int(rng.integers(5, 30)),
    )


lesson.check(multiplications, draw=draw_layer, same_as=counted)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Take one sentence of n tokens and one head. The scores are (n, D) times (D, n), the means (n, n) times (n, D). How much
# is that for all A heads together?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Only sums over the sentences are needed: that of n, and that of n².
#
# </details>
# <details><summary>Solution 04.5</summary>
#
# ```python
# def multiplications(lengths, H, F):
#     tokens = sum(lengths)
#     pairs = sum(n * n for n in lengths)
#     return 2 * pairs * H, tokens * (4 * H * H + 2 * H * F)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `2 * pairs * H` | `pairs * H` | That is half of it: the scores are one product, the means over values are another. |
# | `sum(n * n for n in lengths)` | `tokens * tokens` | Tokens attend within their own sentence, so the squares of the lengths add up, not the square of the sum. |
# | `4 * H * H` | `3 * H * H` | There are four square matrices: queries, keys, values, and the output. |
# | `2 * H * F` | `H * F` | The feed-forward network has two matrices, from H to F and back. |
# | `2 * H * F` | `2 * F * F` | The two matrices of the feed-forward network are H by F and F by H. |
# | `sum(n * n for n in lengths)` | `tokens` | Every token looks at all tokens of its sentence: n² pairs for a sentence of n. |
#
# </details>

# %% [markdown]
# For one sentence of $n$ tokens the two are $2 n^2 H$ and $n (4 H^2 + 2 H F)$. They are equal at
#
# $$ n = 2 H + F , $$
#
# which with $F = 4H$ is $6H$.

# %%
H, F = 768, 3072
break_even = 2 * H + F
course.equal(
    "both costs at the break-even length", 2 * break_even**2 * H, break_even * (4 * H * H + 2 * H * F)
)
guess.answer(break_even, "six times the hidden size. BERT never reads more than 512 tokens.")
share = 2 * 512 * 512 * H / (2 * 512 * 512 * H + 512 * (4 * H * H + 2 * H * F))
course.say(f"At 512 tokens scores and means take **{100 * share:.0f}%** of the layer's multiplications.")

# %%
lengths = np.array([64, 128, 256, 512, 1024])
seconds = []
for n in lengths:
    one = rng.standard_normal((3, n, 4, 32)).astype(np.float32)
    best = math.inf
    for _ in range(4):
        began = time.perf_counter()
        ops.attention(*one, np.array([0, n]))
        best = min(best, time.perf_counter() - began)
    seconds.append(best)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4))
n = np.logspace(1.5, 4.3, 50)
left.loglog(n, n * (4 * H * H + 2 * H * F), "C0-", label="square matrices and feed-forward")
left.loglog(n, 2 * n * n * H, "C1--", label="scores and means")
left.axvline(512, color="grey", lw=0.8)
left.axvline(break_even, color="grey", lw=0.8, ls=":")
left.set(xlabel="tokens in a sentence", ylabel="multiplications", title="A layer of BERT-BASE")
left.legend(frameon=False, fontsize=8)
right.loglog(lengths, np.array(seconds) * 1e3, "o", color="C1", label="measured")
right.loglog(
    lengths, seconds[-1] * 1e3 * (lengths / lengths[-1]) ** 2.0, color="C0", ls=":", label="$\\propto n^2$"
)
right.set(xlabel="tokens in a sentence", ylabel="milliseconds", title="attention alone, on this machine")
right.legend(frameon=False, fontsize=8)
course.show(
    figure,
    "Left: multiplications of a BERT-BASE layer against the length of a sentence. Scores and means are far below the "
    "rest at 512 tokens and meet it at 4608. Right: the measured time of attention alone against the length, close to a "
    "line of slope two.",
)

# %% [markdown]
# There is a second price: memory. The weights of every sentence and head are $n \times n$ numbers, and training has to
# keep them. At 128 tokens attention takes little of BERT's time, but its maps are the part of the memory that grows
# fastest. This is why FlashAttention, which never stores the whole map, was written.
#
# ## 7. Three heads made by hand
#
# What can a head do? Nothing in this chapter has learnt anything yet, but a head is only three matrices, and we may
# write some down. The layer below has three heads, and we want them to attend to the token before, to the token after,
# and to the same word wherever it occurs in the sentence.
#
# For neighbours, the vectors have to say where they are. Give position $i$ the cosines and sines of $i$ times the rates
# $w_k = \pi k / (m+1)$, $k = 1, \dots, m$:
#
# $$ p_i = (\cos w_1 i, \dots, \cos w_m i,\ \sin w_1 i, \dots, \sin w_m i), \qquad
#    p_i \cdot p_j = \sum_k \cos w_k (i - j) . $$
#
# The sum is $m$ where $i = j$. At every other distance up to $2m + 1$ the cosines cancel and leave 0 (odd distances) or
# $-1$ (even ones). So if token $j$ has the key $p_j$ and token $i$ the query $p_{i-1}$, the largest score is that of
# the token before. And a matrix takes $p_i$ to $p_{i-1}$: each pair $(\cos w_k i, \sin w_k i)$ is turned by the angle
# $-w_k$.

# %%
from minibert import Bert, Tokenizer, show
from minibert.tokenizer import SPECIAL_TOKENS

tokenizer = Tokenizer([*SPECIAL_TOKENS, *"the a whale sea captain saw swallowed loved and but , .".split()])
made = BertConfig.from_size("1-96-3", vocab_size=tokenizer.vocab_size, max_position_embeddings=32)
D, H = made.D, made.H
rates = np.pi * np.arange(1, D // 2 + 1) / (D // 2 + 1)


def waves(place):
    """Return the vector of each place: cosines, then sines."""
    angles = np.asarray(place)[..., None] * rates
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)


def turned(by):
    """Return the matrix that makes the vector of place i + by of the vector of place i."""
    cos, sin = np.diag(np.cos(by * rates)), np.diag(np.sin(by * rates))
    return np.block([[cos, sin], [-sin, cos]])


products, distances = waves(np.arange(10)) @ waves(0), np.arange(10)[:, None]
course.equal("products as sums of cosines", products, np.cos(distances * rates).sum(1))
course.equal("what they are at distances 0, 1, 2", products[:3], [D // 2, 0, -1])
course.equal("one place on", waves(7) @ turned(1), waves(8))
course.equal("one place back", waves(7) @ turned(-1), waves(6))

# %% [markdown]
# The first $D$ elements of every vector hold its place and nothing else; the others are the word's own, plus
# or minus one at random, so that different words have nearly nothing in common. All keys are multiplied by
# three, which makes the softmax sharp.

# %%
params = initialise(made, seed=0)
tables, attention = params.tree["embeddings"], params.tree["layers"][0]["attention"]
tables["segment"][...] = tables["position"][...] = 0
tables["position"][:, :D] = waves(np.arange(made.P))
tables["word"][:, :D] = 0
tables["word"][:, D:] = np.random.default_rng(0).choice([-1.0, 1.0], (made.V, H - D))

attention["qkv_weight"][...] = attention["qkv_bias"][...] = 0
query, key, value = np.split(attention["qkv_weight"], 3, axis=1)  # views: (H, H) each, a head every D columns
query[:D, :D], key[:D, :D] = turned(-1), 3 * np.eye(D)
query[:D, D : 2 * D], key[:D, D : 2 * D] = turned(1), 3 * np.eye(D)
query[D : 2 * D, 2 * D :], key[D : 2 * D, 2 * D :] = np.eye(D), 3 * np.eye(D)
value[...] = np.eye(H)

by_hand = Bert(made, params, tokenizer=tokenizer)
by_hand.missing = ("bert.pooler", "cls.predictions", "cls.seq_relationship")  # nobody trained these
sentence = "the whale saw the sea and the sea saw the whale"
encoded = by_hand.encode(sentence, attentions=True)
maps = encoded.attentions[0][0]
course.show(
    viz.draw_attention(maps, encoded.tokens, "Three heads made by hand", darkest=1.0),
    "Three attention maps. In the first the diagonal below the main one is dark, in the second that above it; in the "
    "third each word attends to itself and to where it occurs again.",
)
assert np.diagonal(maps[0], -1).min() > 0.9 and np.diagonal(maps[1], 1).min() > 0.9

# %% [markdown]
# Chapter 8 shows that heads like the first two appear by themselves in training, and why little is learnt
# before they do. Here is the whole model on a page, to play with. It runs in your browser, and
# `minibert show` makes such a page for any model that you train. Go down to *Attention*, change the sentence,
# and move the pointer over the matrix. Below it you see where the weights of a query come from: scores,
# exponentials, weights, mixture.

# %%
show(by_hand, text=sentence)

# %% [markdown]
# Two things to try. Repeat a word, and watch how the third head divides its weight. And look at `[CLS]` in the first
# head: there is no token before it, no score stands out, and the softmax has to put its weight somewhere all the same.
#
# ## What we saw
#
# * Attention is a weighted mean of values. The weights are a softmax of dot products, so outputs lie between values.
# * The variance of a dot product of length $D$ is $D$. The root makes the size of scores independent of $D$.
# * Attention does not know the order of tokens; positions have to be in the vectors.
# * A head is one mean. To attend to two neighbours equally, and still tell them apart, takes two heads.
# * Tokens attend within their sentence. Masking one large square and multiplying many small ones give the same result.
# * Attention is quadratic in the length, and still a small part of BERT's arithmetic at the lengths that it reads.
#
# Row $i$ of an untrained map is nearly even, about $1/n$ everywhere. Chapter 8 shows what follows from this for
# training, and it matters a lot.

# %%
lesson.keep()
lesson.sheet()

# %% [markdown]
# ## Words
#
# - **query, key, value**: the three vectors of a token: what it looks for, what it can be found by, what it hands over.
# - **score**: the dot product of a query and a key, divided by the root of their length.
# - **attention weights**: the softmax of a query's scores; positive, summing to 1.
# - **scaled dot-product attention**: the mean of the values under the attention weights.
# - **self-attention**: attention in which queries, keys and values come from the same sentence.
# - **saturated**: of a softmax, with all weights near 0 or 1, where its slope is near zero.
# - **head**: one of several attentions side by side, with columns of its own.
# - **multi-head attention**: all heads of a layer together.
# - **attention map**: the attention weights of a sentence as a square; row i is what token i attends to.
# - **causal**: of attention, seeing only the token itself and what comes before it.
# - **feed-forward network**: the part of a layer that treats each token by itself, from H numbers to F and back.
#
# ## Where to go next
#
# * [Chapter 05](05_gradients_you_can_trust.ipynb) turns round: it goes backwards through a model, and proves every step.
# * `minibert/core/ops/attention.py` has forward and backward on one page.
# * Vaswani et al. 2017, *Attention Is All You Need*, section 3.2.
