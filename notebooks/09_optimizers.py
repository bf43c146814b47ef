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
# # 09 · Optimizers
#
# *This notebook needs* `pip install '.[notebooks]'` *from a checkout of minibert.*
#
# **The question.** Your gradients are exact now. They say in which direction to change each parameter. They do not say
# how far. A BERT that is moved too little learns nothing in the time you have; moved too much, it is ruined in twenty
# steps and never recovers. What decides how far each one moves?
#
# **What you will be able to do.** Write the whole update of BERT: the norm of the gradient and its limit, the learning
# rate of each step, and **Adam**, the optimizer of BERT, which divides a running mean of each gradient by its typical
# size. As an encore there is LAMB, made for large batches. You will derive why Adam needs no knowledge of the scale of
# a gradient, how far one of its steps can go at most, and what the authors' code does differently from the textbook. At
# the end you ruin a few models on purpose and save one of them.

# %%
# %matplotlib inline
import math
import re
from dataclasses import replace
from itertools import islice

import matplotlib.pyplot as plt
import numpy as np

from minibert import BertConfig, course
from minibert.core import bert
from minibert.core.batch import Batch, Sequence
from minibert.core.ops import AdamRule
from minibert.core.optim import warmup_linear
from minibert.data.corpus import embedded_corpus, sentences
from minibert.model.ops import Ops
from minibert.model.params import initialise
from minibert.reports.viz import smoothed

plt.rcParams |= {
    "figure.dpi": 80,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
}
lesson = course.begin("09")
reference = Ops()

# %% [markdown]
# ## 1. A laboratory
#
# We need a BERT that learns something in five seconds. So its tokens are letters, as in chapter 8, and its sequences
# are four letters of a book between `[CLS]` and `[SEP]`, one of them masked, always with `[MASK]`. The model
# has two layers of hidden size 48, with two heads each. A twentieth of the text is set aside.

# %%
STEPS = lesson.scale(300, 8)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CLS, SEP, MASK, SPACE, V, LENGTH = 0, 1, 2, 3, 30, 6
lines = islice((line for line in sentences([embedded_corpus()]) if line), lesson.scale(30_000, 2_000))
text = re.sub("[^a-z]+", " ", " ".join(lines).lower())
letters = np.array([4 + LETTERS.find(one) if one != " " else SPACE for one in text], np.int32)
training, held_out = np.split(letters, [int(0.95 * len(letters))])


def draw_batch(source, S, rng):
    """Draw S windows of four letters from a text, each with one letter masked."""
    ids = np.full((S, LENGTH), CLS, np.int32)
    ids[:, 1:-1] = source[rng.integers(len(source) - 4, size=S)[:, None] + np.arange(4)]
    ids[:, -1] = SEP
    places = rng.integers(1, LENGTH - 1, size=S)
    sequences = []
    for row, place in zip(ids, places, strict=True):
        label = row[place]
        row[place] = MASK
        sequences.append(Sequence(row, np.zeros(LENGTH, np.int32), np.array([place]), np.array([label])))
    return Batch.pack(sequences)


rng = np.random.default_rng(0)
batches = [draw_batch(training, 100, rng) for _ in range(STEPS)]
config = BertConfig.from_size("2-48-2", vocab_size=V, max_position_embeddings=8)


def loss_and_gradient(ops, params, grads, batch):
    """Put the gradient of one batch into `grads`, and return the loss."""
    ops.zero(grads.flat)
    loss, saved = bert.pretraining_loss(ops, config, params.tree, batch)
    bert.pretraining_loss_backward(ops, config, saved, params.tree, grads.tree)
    return float(loss.loss)


params = initialise(config, seed=0)
grads = params.zeros_like()
first_loss = loss_and_gradient(reference, params, grads, batches[0])
course.say(
    f"The model has **{len(params.flat):,}** parameters in {len(params.table)} tensors. Its first loss is "
    f"{first_loss:.2f} nats, and $\\ln V$ is {math.log(V):.2f}."
)

# %% [markdown]
# ## 2. One number for everybody
#
# The oldest recipe is **gradient descent**: go against the gradient, by a distance that is proportional to it,
#
# $$ x \leftarrow x - \eta\, g . $$
#
# The factor $\eta$ is the learning rate. It is one number for all the parameters of a BERT. That would be
# fine if all gradients were of about the same size. Take the root of the mean square of each tensor's gradient: by what
# factor do the largest and the smallest differ, in the model above?

# %%
guess_spread = lesson.predict(
    "Largest root mean square of a tensor's gradient, divided by the smallest?", ...
)


# %%
def root_mean_square(x):
    """Return the typical size of the numbers in an array."""
    return float(np.sqrt(np.mean(np.asarray(x, np.float64) ** 2)))


# Without next sentences their head, and the pooler below it, have no gradient at all.
sizes = {name: size for name, g in grads.items() if (size := root_mean_square(g)) > 0}
ordered = sorted(sizes, key=sizes.get)
spread = sizes[ordered[-1]] / sizes[ordered[0]]
guess_spread.answer(round(spread), f"{ordered[-1]} has the largest gradient and {ordered[0]} the smallest.")

# %%
figure, axes = plt.subplots(figsize=(7.2, 6.2))
matrices = {entry.name for entry in params.table if len(entry.shape) > 1}
for height, name in enumerate(ordered):
    marker = dict(color="C0", marker="o") if name in matrices else dict(color="C1", marker="^")
    axes.plot(sizes[name], height, ms=5, **marker)
axes.plot([], [], "C0o", label="matrices")
axes.plot([], [], "C1^", label="biases and LayerNorm")
axes.set_xscale("log")
axes.set_yticks(range(len(ordered)), ordered, fontsize=7)
axes.set(xlabel="root mean square of the gradient", title="The first gradient, tensor by tensor")
axes.legend(frameon=False)
course.show(
    figure,
    "Typical size of the first gradient of every tensor, on a log scale, sorted; they span orders of magnitude.",
)

# %% [markdown]
# Whatever $\eta$ you choose, it is too large for the tensors at the top or too small for those at the bottom. How large
# is too large? Suppose that along one direction the loss is a parabola, $f(x) = \tfrac c2 x^2$. Its gradient is $c\,x$,
# so
#
# $$ x_{t+1} = x_t - \eta\, c\, x_t = (1 - \eta c)\, x_t \quad\Rightarrow\quad x_t = (1 - \eta c)^t\, x_0 . $$
#
# This shrinks only while $|1 - \eta c| < 1$, that is $\eta < 2/c$. Beyond that every step lands farther away, on the
# opposite slope. With two directions of curvature $c_1 < c_2$ the rate must suit the steep one, and along the flat one
# progress is slow. The best compromise makes both equally slow: $1 - \eta c_1 = -(1 - \eta c_2)$, hence
# $\eta = 2/(c_1 + c_2)$, and every step multiplies the distance by
#
# $$ 1 - \eta c_1 = \frac{c_2 - c_1}{c_2 + c_1} = \frac{\kappa - 1}{\kappa + 1}, \qquad \kappa = c_2 / c_1 . $$

# %%
flat, steep, rate = 0.3, 11.0, 0.07
x = 1.7
for _ in range(9):
    x -= rate * steep * x
course.equal("nine steps on a parabola", x, (1 - rate * steep) ** 9 * 1.7)
best = 2 / (flat + steep)
course.equal("both directions alike", 1 - best * flat, -(1 - best * steep))
kappa = steep / flat
course.equal("factor of a step", 1 - best * flat, (kappa - 1) / (kappa + 1))
needed = math.log(1000) / -math.log((spread - 1) / (spread + 1))
course.say(
    f"Were curvatures as unequal as the gradients above, a factor of {spread:,.0f}, even the best rate would "
    f"need **{needed:,.0f}** steps to come a thousand times closer."
)


# %%
def path(update, steps=40, start=(-9.0, 1.2)):
    """Follow an update down the valley of two curvatures."""
    here, places = np.array(start), [np.array(start)]
    for step in range(1, steps + 1):
        here = update(here, np.array([flat, steep]) * here, step)
        places.append(here)
    return np.array(places)


def descent(rate):
    return lambda x, g, _: x - rate * g


def adam_path(rate):
    m, v = np.zeros(2), np.zeros(2)

    def update(x, g, step):
        here = x.copy()
        rule = AdamRule(rate, step, beta2=0.99, weight_decay=0.0)
        return reference.adamw(here, g, m, v, np.empty((0, 2), np.int64), rule)[0]

    return update


paths = {
    "gradient descent, $\\eta = 0.05$": descent(0.05),
    "gradient descent, $\\eta = 0.175$": descent(0.175),
    "gradient descent, $\\eta = 0.183 > 2/c_2$": descent(0.183),
    "Adam, $\\eta = 0.5$": adam_path(0.5),
}
figure, every = plt.subplots(2, 2, figsize=(8.6, 4.6), sharex=True, sharey=True)
grid = np.meshgrid(np.linspace(-10, 4, 100), np.linspace(-3, 3, 60))
height = 0.5 * (flat * grid[0] ** 2 + steep * grid[1] ** 2)
for axes, (name, update) in zip(every.flat, paths.items(), strict=True):
    axes.contour(*grid, height, levels=np.geomspace(0.1, 60, 9), cmap="cividis", linewidths=0.6)
    places = path(update)
    axes.plot(places[:, 0], places[:, 1], "o-", color="C1", ms=2.5, lw=0.9)
    axes.plot(0, 0, "k+", ms=9)
    axes.set_title(name, fontsize=9)
    axes.set(xlim=(-10, 4), ylim=(-3, 3))
figure.supxlabel("the flat direction")
figure.supylabel("the steep direction")
course.show(
    figure,
    "Four paths in a long valley: too slow, zigzagging, leaving the valley, and Adam, which moves along both "
    "directions at a similar speed.",
)

# %% [markdown]
# The first path is too timid for the flat direction. The second is nearly too bold for the steep one. The third has
# crossed the line and climbs out of the valley. The fourth, Adam, moves about as fast in either direction, although
# nobody told it the curvatures. That is the one BERT is trained with (appendix A.2 of the paper), and we now take it
# apart.
#
# That valley was made up. Here is a real one, of a linear layer with a single weight and a bias: from the length of a
# word it guesses whether a punctuation mark follows. A smaller bias can make up for a larger weight, so the valley runs
# diagonally. Several learning rates are tried for each of the two, and you see the one whose mean loss is lowest.

# %%
pages = islice(filter(None, sentences([embedded_corpus()])), 100)
found = re.findall("([a-z]+)([,.;:?!]?)", " ".join(pages).lower())[: lesson.scale(1000, 100)]
lengths = np.array([[len(word)] for word, _ in found], float)
followed = np.array([bool(mark) for _, mark in found], int)


def loss_of_marks(point):
    """Return the loss of a weight and a bias, and its gradient."""
    weight, bias = point
    logits, saved = reference.linear(lengths, np.array([[0, weight]]), np.array([0, bias]))
    nll, saved_loss = reference.softmax_cross_entropy(logits, followed)
    dlogits = reference.softmax_cross_entropy_backward(np.full(len(nll), 1 / len(nll)), saved_loss)
    _, dweight, dbias = reference.linear_backward(dlogits, saved)
    return nll.mean(), np.array([dweight[0, 1], dbias[1]])


course.animations.descent(loss_of_marks, start=(-0.6, 1.0), names=("weight", "bias"))

# %% [markdown]
# ## 3. Two running means
#
# Adam keeps two numbers for each parameter. The **first moment** $m$ is a running mean of the gradient, the
# **second moment** $v$ a running mean of its square:
#
# $$ m_t = \beta_1 m_{t-1} + (1 - \beta_1)\, g_t, \qquad v_t = \beta_2 v_{t-1} + (1 - \beta_2)\, g_t^2 . $$
#
# The paper has $\beta_1 = 0.9$ and $\beta_2 = 0.999$: $m$ remembers some ten steps and $v$ a thousand. Put
# each equation into the next, and you see what such a mean is made of:
#
# $$ m_t = (1 - \beta)\sum_{s=1}^{t} \beta^{\,t-s} g_s, \qquad (1 - \beta)\sum_{s=1}^{t} \beta^{\,t-s} = 1 - \beta^{\,t} . $$
#
# The weights of a mean should sum to 1. These sum to $1 - \beta^t$, because we began with $m_0 = 0$ and zero
# is not a gradient. Dividing by the sum mends that, and is called **bias correction**:
# $\hat m_t = m_t / (1 - \beta_1^t)$ and $\hat v_t = v_t / (1 - \beta_2^t)$.

# %%
rng = np.random.default_rng(9)
stream, beta = rng.standard_normal(7), 0.8
mean = 0.0
for one in stream:
    mean = beta * mean + (1 - beta) * one
weights = (1 - beta) * beta ** np.arange(6, -1, -1.0)
course.equal("the recursion and the sum", mean, weights @ stream)
course.equal("sum of the weights", weights.sum(), 1 - beta**7)

# %% [markdown]
# ### Exercise 09.1 (easy): a mean without bias
#
# `grads` has a row for each step, the oldest first. Return the running mean after the last step, with bias correction.


# %%
# Exercise 09.1
def corrected_mean(grads, beta):
    """Return the corrected running mean (N,) of grads (t,N)."""
    ...


# %%
def draw_stream(rng):
    """Draw a few gradients, and how much of the mean is kept."""
    return rng.standard_normal((int(rng.integers(2, 8)), 9)), float(rng.uniform(0.2, 0.95))


def weighted_mean(grads, beta):
    """Average the rows with the weights of the sum above."""
    return np.average(grads, axis=0, weights=beta ** np.arange(len(grads) - 1, -1, -1.0))


lesson.check(corrected_mean, draw=draw_stream, same_as=weighted_mean)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Begin with zeros, and go through the rows of `grads`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Correct once, after the loop. The running mean inside stays as it is.
#
# </details>
# <details><summary>Solution 09.1</summary>
#
# ```python
# def corrected_mean(grads, beta):
#     mean = 0
#     for gradient in grads:
#         mean = beta * mean + (1 - beta) * gradient
#     return mean / (1 - beta ** len(grads))
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | ` / (1 - beta ** len(grads))` | ` * 1` | The weights sum to 1 - beta^t; divide by it. |
# | `(1 - beta ** len(grads))` | `(1 - beta)` | The correction is 1 - beta^t, t being the number of steps so far; only for t = 1 is it 1 - beta. |
# | `beta * mean + (1 - beta) * gradient` | `(1 - beta) * mean + beta * gradient` | beta is the share that is kept, 1 - beta the share of the new gradient. |
# | `(1 - beta) * gradient` | `gradient` | The new gradient has weight 1 - beta. |
# | `in grads` | `in grads[::-1]` | The newest gradient counts most, and it is the last row. |
# | `beta ** len(grads)` | `beta ** (len(grads) - 1)` | Steps are counted from 1: after the first of them, divide by 1 - beta. |
#
# </details>

# %% [markdown]
# ## 4. How far a step goes
#
# Adam's step is $\eta\, \hat m / (\sqrt{\hat v} + \varepsilon)$. The tiny $\varepsilon = 10^{-6}$ keeps it from
# dividing by zero; forget it for a moment. Then multiplying all gradients by 1,000 changes nothing at all: numerator
# and denominator grow alike. And in the first step $\hat m = g$ and $\hat v = g^2$, so every parameter that has any
# gradient moves by exactly $\eta$, however large or small that gradient is; only the sign matters.

# %%
none = np.empty((0, 2), np.int64)


def adam_steps(gradients, **fields):
    """Return where Adam takes parameters from zero, after each row of gradients; no weight decay, rate 1."""
    x, m, v = np.zeros((3, gradients.shape[1]))
    places = []
    for step, g in enumerate(gradients, 1):
        rule = AdamRule(**{"lr": 1.0, "step": step, "eps": 0.0, "weight_decay": 0.0} | fields)
        x, m, v = reference.adamw(x, g.copy(), m, v, none, rule)
        places.append(x.copy())
    return np.array(places)


some = rng.standard_normal((12, 5))
course.equal("gradients a thousand times larger", adam_steps(some), adam_steps(1000 * some))
course.equal("the first step", adam_steps(some)[0], -np.sign(some[0]))

# %% [markdown]
# Later steps are mostly shorter. Where the gradient keeps its sign, $\hat m$ is near $\sqrt{\hat v}$ and the step
# near $\eta$. Where it fluctuates, the signs cancel in $m$ but not in $v$. So $\hat m / \sqrt{\hat v}$
# measures how much of a gradient is signal, and Adam takes small steps where it hears mostly noise.

# %%
ticks = np.arange(1, 401)
noise = rng.standard_normal(400)
streams = {"signal 1, noise 0.3": 1 + 0.3 * noise, "signal 0.1, noise 1": 0.1 + noise}
figure, every = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
for axes, (name, stream) in zip(every, streams.items(), strict=True):
    m = [(1 - 0.9) * 0.9 ** np.arange(t - 1, -1, -1.0) @ stream[:t] / (1 - 0.9**t) for t in ticks]
    v = [(1 - 0.999) * 0.999 ** np.arange(t - 1, -1, -1.0) @ stream[:t] ** 2 / (1 - 0.999**t) for t in ticks]
    axes.plot(ticks, stream, ".", color="0.75", ms=2.5, label="gradient")
    axes.plot(ticks, m, color="C0", label=r"$\hat m$")
    axes.plot(ticks, np.sqrt(v), "--", color="C1", label=r"$\sqrt{\hat v}$")
    mean_step = float(np.mean(np.abs(np.array(m) / np.sqrt(v))))
    axes.set(xlabel="step", title=f"{name}: mean step {mean_step:.2f} $\\eta$", ylim=(-3, 3))
every[0].legend(frameon=False, fontsize=8, loc="lower right")
course.show(
    figure,
    "Gradients of a parameter over 400 steps with the two running means; with much noise the first moment stays far below the root of the second.",
)

# %% [markdown]
# Can a step be longer than $\eta$? Yes: if a gradient has long been small and suddenly grows, $m$
# notices at once and $v$ late. But there is a limit. Leave the corrections out, number gradients backwards
# from the present, and let $a_k = (1-\beta_1)\beta_1^k$ and $b_k = (1-\beta_2)\beta_2^k$ be the weights. By
# the Cauchy–Schwarz inequality,
#
# $$ |m| = \Big|\sum_k \frac{a_k}{\sqrt{b_k}} \cdot \sqrt{b_k}\, g_k \Big|
#        \le \sqrt{\sum_k \frac{a_k^2}{b_k}}\; \sqrt{\sum_k b_k\, g_k^2}
#        = \sqrt{\sum_k \frac{a_k^2}{b_k}}\; \sqrt v . $$
#
# The sum on the right is geometric, with ratio $\beta_1^2/\beta_2$, which has to be below 1, so no step is
# longer than
#
# $$ \eta\, \frac{1 - \beta_1}{\sqrt{1 - \beta_2}} \cdot \frac{1}{\sqrt{1 - \beta_1^2/\beta_2}} , $$
#
# if there is no weight decay. Gradients with $g_k \propto a_k / b_k$ reach the bound. Let us feed Adam exactly those,
# without correction. With correction a step is shorter still, by the factor
# $\sqrt{1 - \beta_2^t} / (1 - \beta_1^t)$, which is below 1 for the paper's numbers.

# %%
beta1, beta2, long_ago = 0.9, 0.999, 400
k = np.arange(long_ago - 1, -1, -1.0)  # how many steps ago
a, b = (1 - beta1) * beta1**k, (1 - beta2) * beta2**k
longest = (1 - beta1) / math.sqrt(1 - beta2) / math.sqrt(1 - beta1**2 / beta2)
course.equal("the geometric sum", math.sqrt((a**2 / b).sum()), longest)
worst = adam_steps((a / b)[:, None], bias_correction=False)[:, 0]
course.equal("the longest step", worst[-2] - worst[-1], longest)
course.say(
    f"With the paper's numbers no parameter ever moves by more than **{longest:.2f} learning rates** in a step, weight decay aside."
)

# %% [markdown]
# ### The correction that BERT's code leaves out
#
# Google's released BERT uses $m$ and $v$ **without** dividing by $1 - \beta^t$. Both are then too small at
# the beginning, $m$ by a factor of 10 and $v$ by 1,000. Is its first step shorter than the textbook's, or
# longer?

# %%
guess_first = lesson.predict("First step without bias correction, in learning rates?", ...)

# %%
first = float(-adam_steps(np.ones((1, 1)), bias_correction=False)[0, 0])
course.equal("first step", first, (1 - beta1) / math.sqrt(1 - beta2))
guess_first.answer(
    first, "the root turns 0.001 into about 0.03, so the denominator is even smaller than the numerator."
)

# %%
ticks = np.arange(1, 10_001)
excess = (1 - beta1**ticks) / np.sqrt(1 - beta2**ticks)
ramp = np.array([warmup_linear(t, 1_000_000, 10_000, 1.0) for t in ticks])
figure, axes = plt.subplots(figsize=(7, 3.2))
axes.plot(ticks, excess, color="C1", label="without correction")
axes.plot(ticks, np.ones(len(ticks)), "--", color="C0", label="with correction")
axes.plot(ticks, excess * ramp, ":", color="k", label="without correction, under BERT's rising learning rate")
top = int(excess.argmax())
axes.annotate(
    f"{excess[top]:.1f} at step {ticks[top]}",
    (ticks[top], excess[top]),
    (8, 0),
    textcoords="offset points",
    fontsize=9,
)
axes.set(xscale="log", xlabel="step", ylabel="step length / peak rate", title="A gradient that never changes")
axes.legend(frameon=False, fontsize=8, loc="center right")
course.show(
    figure,
    "Length of Adam's step for a constant gradient: without bias correction it rises above six learning rates within a dozen steps; a rising learning rate hides that.",
)

# %% [markdown]
# The dotted line is why this does no harm in pre-training. BERT's learning rate rises from zero over its first 10,000
# steps, and by then the correction hardly matters. Fine-tune on a small data set, where that rise takes a few dozen
# steps or is left out, and the first steps are several times too long. Zhang et al. (2021) found this to be one cause
# of failed fine-tuning runs.
#
# ## 5. Weight decay, decoupled
#
# The paper names "L2 weight decay of 0.01". Two recipes share this name. One adds $\lambda x$ to the gradient; the
# other, which BERT uses, shrinks the parameter directly, alongside the step: **decoupled weight decay**. For gradient
# descent they are the same thing,
#
# $$ x - \eta\,(g + \lambda x) = (1 - \eta\lambda)\, x - \eta\, g . $$
#
# With Adam they are not. Whatever is added to the gradient is divided by $\sqrt{\hat v}$ with it, so a parameter with
# large gradients would hardly decay, and one with small gradients would decay far too fast.

# %%
x0, g0, decay = rng.standard_normal(6), rng.standard_normal(6), 0.3
course.equal(
    "both recipes, gradient descent", x0 - rate * (g0 + decay * x0), (1 - rate * decay) * x0 - rate * g0
)

scales = np.geomspace(1e-3, 1e2, 21)  # of the gradients of 21 parameters
left = {"added to the gradient": np.ones(21), "decoupled": np.ones(21)}
draws = rng.standard_normal((lesson.scale(2000, 50), 21)) * scales
everything = np.array([[0, 21]])
for recipe, x in left.items():
    m, v = np.zeros((2, 21))
    for step, g in enumerate(draws - draws.mean(0), 1):
        if recipe == "decoupled":
            reference.adamw(x, g, m, v, everything, AdamRule(1e-3, step, weight_decay=0.5))
        else:
            reference.adamw(x, g + 0.5 * x, m, v, none, AdamRule(1e-3, step))
figure, axes = plt.subplots(figsize=(7, 3.2))
for (recipe, x), style in zip(left.items(), ("C1^--", "C0o-"), strict=True):
    axes.plot(scales, x, style, ms=5, label=recipe)
axes.axhline((1 - 1e-3 * 0.5) ** len(draws), color="k", lw=0.8, ls=":", label=r"$(1 - \eta\lambda)^t$")
axes.set(
    xscale="log",
    xlabel="size of the parameter's gradient",
    ylabel="what is left of the parameter",
    title="Two recipes of weight decay under Adam",
)
axes.legend(frameon=False, fontsize=9)
course.show(
    figure,
    "What is left of parameters with gradients of different sizes: decoupled decay treats all nearly alike, decay added to the gradient leaves those with large gradients almost untouched.",
)

# %% [markdown]
# How much does decay shrink a parameter over BERT's whole training? Each step multiplies by $1 - \eta_t \lambda$, and
# with such small numbers the product is very nearly $\exp(-\lambda \sum_t \eta_t)$. The rate rises linearly to its peak
# and falls linearly to zero, so the sum is the area of a triangle, $\tfrac12 \cdot$ peak $\cdot$ steps. It does not
# depend on where the top of the triangle is.

# %%
rates = np.array([warmup_linear(step, 1000, 37, 2.5) for step in range(1000)])
course.equal("area under the schedule", rates.sum(), 0.5 * 2.5 * 1000)
area = 0.5 * 1e-4 * 1_000_000
course.say(
    f"The paper's peak is 0.0001, and it takes a million steps: the sum of its rates is {area:.0f}. A weight that had no "
    f"gradient at all would keep **{math.exp(-0.01 * area):.0%}** of its size to the end."
)

# %% [markdown]
# Biases and the two vectors of each LayerNorm do not decay. The paper does not say so; the authors' code does. minibert
# keeps all parameters in one flat buffer, and `params.decayed` lists the ranges of it that decay.

# %%
decaying = {entry.name.split(".")[-1] for entry in params.table if entry.decays}
print("decay:      ", ", ".join(sorted(decaying)))
print("don't decay:", ", ".join(sorted({entry.name.split(".")[-1] for entry in params.table} - decaying)))
print("the first ranges of the buffer that decay:", params.decayed[:3].tolist())

# %% [markdown]
# ### Exercise 09.2 (core): Adam with decoupled weight decay
#
# All buffers are flat, of length N. First scale the gradients by `rule.clip` (section 6 says why). Then update both
# moments, and subtract from the parameters `rule.lr` times
#
# $$ u = \frac{\hat m}{\sqrt{\hat v} + \varepsilon} + \lambda x , $$
#
# the last term only in the ranges [begin, end) that `decayed` lists. $\beta_1$, $\beta_2$, $\varepsilon$ and $\lambda$
# are `rule.beta1`, `rule.beta2`, `rule.eps` and `rule.weight_decay`; `rule.corrections` holds the two factors of bias
# correction, $1/(1-\beta_1^t)$ and $1/(1-\beta_2^t)$, or 1 and 1 where there is none. The parameters and both moments
# are **changed in place** (`m[...] = `, `x -= `) and returned: at the size of BERT nobody wants a second copy.

# %%
course.source(AdamRule.corrections.fget)


# %%
# Exercise 09.2
def adamw(self, params, grads, m, v, decayed, rule):
    """Update params, m and v (N,) in place by one step of Adam, and return the three."""
    ...


# %%
drawn = []  # the arrays of the latest question: an answer that works in place returns the same ones


def draw_rule(rng, number):
    """Draw the numbers of a step; every other one has no bias correction."""
    return AdamRule(
        lr=float(rng.uniform(0.05, 0.3)),
        step=int(rng.integers(2, 9)),
        beta1=float(rng.uniform(0.3, 0.8)),
        beta2=float(rng.uniform(0.4, 0.9)),
        eps=float(rng.uniform(0.1, 0.4)),
        weight_decay=float(rng.uniform(0.2, 0.6)),
        bias_correction=number % 2 == 0,
        clip=float(rng.uniform(0.3, 0.9)),
    )


def draw_update(rng):
    """Draw buffers in general position with no, one or two ranges that decay."""
    x, g, m = rng.standard_normal((3, 13))
    v, number = rng.uniform(0.2, 2, 13), len(drawn)
    decayed = np.array([[[1, 4], [6, 11]], [], [[0, 13]]][number % 3], np.int64).reshape(-1, 2)
    drawn.append((x, m, v))
    return x, g, m, v, decayed, draw_rule(rng, number)


def in_place(answer, *_):
    """Say if new arrays are returned."""
    same = all(one is given for one, given in zip(answer, drawn[-1], strict=True))
    return (
        None if same else "the numbers are right, but they are in new arrays; change the given ones in place."
    )


lesson.check(adamw, draw=draw_update, same_as=Ops().adamw, law=in_place, times=6)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Four steps: the scaled gradient, `m[...] = `, `v[...] = `, and the direction. Only then touch the parameters.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Add the decay to the direction in a loop over `decayed`: `for begin, end in decayed:`. It uses the
# parameters from before the step.
#
# </details>
# <details><summary>Solution 09.2</summary>
#
# ```python
# def adamw(self, params, grads, m, v, decayed, rule):
#     g = grads * rule.clip
#     m[...] = rule.beta1 * m + (1 - rule.beta1) * g
#     v[...] = rule.beta2 * v + (1 - rule.beta2) * (g * g)
#     m_scale, v_scale = rule.corrections
#     direction = m_scale * m / (np.sqrt(v_scale * v) + rule.eps)
#     for begin, end in decayed:
#         direction[begin:end] += rule.weight_decay * params[begin:end]
#     params -= rule.lr * direction
#     return params, m, v
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `grads * rule.clip` | `grads * 1` | The gradients have to be scaled by rule.clip first. |
# | `(np.sqrt(v_scale * v) + rule.eps)` | `np.sqrt(v_scale * v + rule.eps)` | eps is added outside the square root. |
# | `(1 - rule.beta2) * (g * g)` | `(1 - rule.beta2) * np.abs(g)` | The second moment is a mean of squares. |
# | `direction = m_scale * m / (np.sqrt(v_scale * v) + rule.eps)` | `direction = m / (np.sqrt(v) + rule.eps)` | The moments are not corrected for their start at zero. |
# | `m_scale * m / (np.sqrt(v_scale * v)` | `m_scale * m / (v_scale * np.sqrt(v)` | The correction of v belongs under the root. |
# | `direction[begin:end] += rule.weight_decay * params[begin:end]` | `grads[begin:end] += rule.weight_decay * params[begin:end]` | Decay never reaches the parameters: it is added to the gradients, which have been used already. |
# | `g = grads * rule.clip` | `g = grads * rule.clip; g[[i for a, b in decayed for i in range(a, b)]] += rule.weight_decay * params[[i for a, b in decayed for i in range(a, b)]]` | Decay was added to the gradient as well; decoupled means that it is not divided by the root of v. |
# | `params -= rule.lr * direction` | `params += rule.lr * direction` | Go against the gradient, not along it. |
# | `params -= rule.lr * direction` | `params = params - rule.lr * direction` | The numbers are right, but they are in a new array; change the given one. |
#
# </details>

# %%
course.source(Ops.adamw)

# %% [markdown]
# The function in minibert does the same in pieces of 65,536 numbers, so that what it computes on the way stays in the
# processor's cache.
#
# ## 6. A limit for the whole gradient
#
# Once in a while a batch has a gradient ten times longer than usual. For gradient descent that is a leap. For Adam the
# harm is quieter but lasts: the square of that gradient sits in $v$ for a thousand steps and makes all of them short.
# **Gradient clipping** sets a limit $c$: with the **global norm** $\|g\|$, the Euclidean length of all gradients of the
# model together, every gradient is multiplied by
#
# $$ \min(1,\; c / \|g\|) . $$
#
# It is one factor for all tensors. The direction stays what it was; only the length is limited. BERT's code has $c = 1$.

# %%
long = rng.standard_normal(31)
factor = reference.clip_factor(reference.global_norm(long), 1.0)
course.equal("length after clipping", np.linalg.norm(factor * long), 1.0)
course.equal(
    "direction after clipping", factor * long / np.linalg.norm(factor * long), long / np.linalg.norm(long)
)

# %% [markdown]
# ### Exercise 09.3 (easy): the norm and the limit
#
# `global_norm` gets the flat buffer of all gradients and returns one number. `clip_factor` returns the factor; a
# `clip_norm` of 0 means that there is no limit.


# %%
# Exercise 09.3
def global_norm(self, grads):
    """Return the Euclidean length of grads (N,), a number."""
    ...


def clip_factor(self, norm, clip_norm):
    """Return the factor that makes a gradient of length norm at most clip_norm long; clip_norm 0: no limit."""
    ...


# %%
def draw_gradients(rng):
    """Draw gradients, some of them short."""
    return (rng.standard_normal(int(rng.integers(3, 40))) * float(rng.choice([0.01, 1, 30])),)


asked = []


def draw_norm(rng):
    """Draw a norm above the limit, one below it, one without a limit, and a norm of zero."""
    norm, asked_before = float(rng.uniform(1.2, 9)), len(asked)
    asked.append(norm)
    limits = [0.4 * norm / 9, norm / 1.3, 1.7 * norm, 0.0, 0.0]
    return (0.0 if asked_before % 5 == 4 else norm), limits[asked_before % 5]


lesson.check(global_norm, draw=draw_gradients, same_as=Ops().global_norm)
lesson.check(clip_factor, draw=draw_norm, same_as=Ops().clip_factor, times=10)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The sum of squares is the dot product of the buffer with itself.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Two conditions have to hold before the factor is anything but 1: there is a limit, and the norm exceeds it. Python
# writes both in one comparison, `0 < a < b`.
#
# </details>
# <details><summary>Solution 09.3</summary>
#
# ```python
# def global_norm(self, grads):
#     return math.sqrt(grads @ grads)
#
#
# def clip_factor(self, norm, clip_norm):
#     return clip_norm / norm if 0 < clip_norm < norm else 1.0
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `math.sqrt(grads @ grads)` | `grads @ grads` | This is the square of the norm; take its root. |
# | `math.sqrt(grads @ grads)` | `math.sqrt(np.mean(grads * grads))` | The norm is the root of a sum, not of a mean. |
# | `math.sqrt(grads @ grads)` | `float(np.abs(grads).sum())` | This is the sum of absolute values; BERT clips by the Euclidean length. |
# | `clip_norm / norm if` | `norm / clip_norm if` | Upside down: the factor has to make a long gradient shorter. |
# | `0 < clip_norm < norm` | `clip_norm < norm` | A limit of 0 means no limit; this one would set all gradients to zero. |
# | `if 0 < clip_norm < norm else 1.0` | `if clip_norm > 0 and norm > 0 else 1.0` | A gradient shorter than the limit stays as it is; it is not stretched. |
#
# </details>

# %% [markdown]
# ## 7. The learning rate over time
#
# The paper's rate rises in a straight line from zero over the first 10,000 steps, the **warm-up**, and from there falls
# in a straight line to zero at step 1,000,000. Step number $s$, counted from 0, of $N$ steps with $w$ of warm-up has
#
# $$ \eta(s) = \begin{cases} \text{peak} \cdot s / w & s < w \\ \text{peak} \cdot (N - s)/(N - w) & s \ge w . \end{cases} $$
#
# This is how Hugging Face reads it. The authors' own code draws the second line from step 0, as
# $\text{peak} \cdot (N - s)/N$, and jumps down where it takes over, by $s/N$ of the peak at $s = w$: after a warm-up
# of 1% of the steps by 1% of the peak, after one of 30% by 30%. minibert's `warmup_linear` has both.

# %%
figure, axes = plt.subplots(figsize=(7, 2.8))
when = np.arange(101)
for warmup, colour in ((10, "C0"), (30, "C1")):
    for google, style in ((False, "-"), (True, "--")):
        heights = [warmup_linear(s, 100, warmup, 1.0, google) for s in when]
        label = f"{warmup}% warm-up, {'the authors' if google else 'Hugging Face'}"
        axes.plot(when, heights, style, color=colour, label=label)
axes.set(xlabel="step, % of all", ylabel="rate / peak", title="Two readings of the same sentence")
axes.legend(frameon=False, fontsize=8)
course.show(
    figure,
    "Learning rate over a run with 10% and 30% warm-up; the authors' code drops at the end of the warm-up, Hugging Face's does not.",
)

# %% [markdown]
# ### Exercise 09.4 (easy): the learning rate of a step
#
# Write $\eta(s)$. `warmup` may be 0, and is smaller than `total`; `step` goes from 0 to `total`.


# %%
# Exercise 09.4
def learning_rate(step, total, warmup, peak):
    """Return the rate of a step, counted from 0, a number."""
    ...


# %%
moments_in_time = []


def draw_step(rng):
    """Draw a step of the warm-up, its end, one after it, the last, and the first without a warm-up."""
    total, number = int(rng.integers(30, 60)), len(moments_in_time)
    moments_in_time.append(total)
    warmup = int(rng.integers(5, 20))
    step = [int(rng.integers(1, warmup)), warmup, int(rng.integers(warmup + 1, total)), total, 0, 0][
        number % 6
    ]
    return step, total, 0 if number % 6 == 5 else warmup, float(rng.uniform(0.1, 3))


def on_the_line(step, total, warmup, peak):
    """Read the rate off the polygon through its three corners."""
    corners = [0, warmup, total] if warmup else [0, total]
    return np.interp(step, corners, [0, peak, 0][-len(corners) :])


lesson.check(learning_rate, draw=draw_step, same_as=on_the_line, times=12)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Decide by `step < warmup`. With `warmup` 0 that is never true, so nothing is divided by zero.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The second line is at `peak` for `step = warmup` and at 0 for `step = total`.
#
# </details>
# <details><summary>Solution 09.4</summary>
#
# ```python
# def learning_rate(step, total, warmup, peak):
#     if step < warmup:
#         return peak * step / warmup
#     return peak * (total - step) / (total - warmup)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `/ (total - warmup)` | `/ total` | This is the authors' reading: it is below the peak where the warm-up ends. |
# | `peak * step / warmup` | `peak * (step + 1) / warmup` | Steps are counted from 0, and step 0 has the rate 0. |
# | `peak * step / warmup` | `peak * step / total` | The rise takes warmup steps, not all of them. |
# | `peak * (total - step) / (total - warmup)` | `peak * (step - warmup) / (total - warmup)` | This rises from 0; it should fall to 0. |
# | `peak * (total - step) / (total - warmup)` | `peak` | After the warm-up the rate falls; it does not stay at its peak. |
# | `(total - step) /` | `(total - step + warmup) /` | At the last step the rate should be zero. |
#
# </details>

# %% [markdown]
# ## 8. Ruined on purpose
#
# Now we have everything. `train` is a whole training run, with the choices of this chapter as arguments; it stops as
# soon as a number is no longer finite. It uses your engine and your learning rate, as far as you have written them.

# %%
ops = lesson.engine()
rate_of = learning_rate if lesson.passed("09.4") else warmup_linear


def train(kind, peak, warmup=0, limit=0.0, seed=0, correction=True):
    """Train a fresh model, and return it with its losses and the gradient norms."""
    params = initialise(config, seed)
    grads, m, v = params.zeros_like(), np.zeros_like(params.flat), np.zeros_like(params.flat)
    losses, norms = [], []
    for step, batch in enumerate(batches):
        with np.errstate(all="ignore"):
            losses.append(loss_and_gradient(ops, params, grads, batch))
            norms.append(float(ops.global_norm(grads.flat)))
            if not math.isfinite(losses[-1] + norms[-1]):
                break
            rate = rate_of(step + 1, STEPS + 1, warmup, peak)
            rule = AdamRule(
                rate, step + 1, bias_correction=correction, clip=ops.clip_factor(norms[-1], limit)
            )
            if kind == "descent":
                params.flat -= rate * rule.clip * grads.flat
            elif kind == "adam":
                ops.adamw(params.flat, grads.flat, m, v, params.decayed, rule)
            else:
                ops.lamb(params.flat, grads.flat, m, v, params.tensors, rule)
    return params, np.array(losses), np.array(norms)


counts = np.bincount(training, minlength=V) + 1  # each once more, so that none is impossible
frequencies = counts / counts.sum()
floor = -(frequencies * np.log(frequencies)).sum()
course.say(f"Without context no model can get below the unigram floor, **{floor:.2f}** nats here.")

# %% [markdown]
# ### Gradient descent
#
# First comes plain gradient descent at a rate of 1, with no limit, then at a rate of 3, three times as bold, but with
# the gradient's length limited to 0.3.

# %%
wild, wild_losses, wild_norms = train("descent", 1.0)
tamed, tamed_losses, tamed_norms = train("descent", 3.0, limit=0.3)
figure, (left_axes, right_axes) = plt.subplots(1, 2, figsize=(9.4, 3.2))
for axes, wild_ones, tamed_ones, what in (
    (left_axes, wild_losses, tamed_losses, "loss (nats)"),
    (right_axes, wild_norms, tamed_norms, "norm of the gradient"),
):
    axes.plot(wild_ones, color="C1", ls="--", label=r"$\eta = 1$, no limit")
    axes.plot(tamed_ones, color="C0", label=r"$\eta = 3$, limit 0.3")
    axes.set(yscale="log", xlabel="step", title=what)
right_axes.axhline(0.3, color="k", lw=0.8, ls=":")
left_axes.legend(frameon=False, fontsize=9)
course.show(
    figure,
    "Loss and gradient norm of gradient descent: without a limit both explode by many orders of magnitude, with one they stay small although the rate is three times as high.",
)
course.say(
    f"Without a limit the loss reaches **{np.nanmax(np.where(np.isfinite(wild_losses), wild_losses, np.nan)):.0e}** nats. "
    f"With one it ends at **{tamed_losses[-50:].mean():.2f}** (mean of the last fifty steps), and the floor is {floor:.2f}."
)

# %% [markdown]
# This kind of ruin is honest: numbers explode, and `minibert pretrain` stops with a message. A limit on the
# length of a step was enough, even at three times the rate. But a run that does not explode need not have learnt
# anything, as the floor shows.
#
# ### Adam
#
# Adam can't explode like that, since no step is longer than a few learning rates. Its ruin is silent. We train three
# models, from three seeds, at a peak of 0.006 without warm-up, and the same three with a third of the steps as warm-up.

# %%
PEAK, WARMUP = 6e-3, lesson.scale(100, 3)
SEEDS = range(lesson.scale(3, 1))
runs = {(warmup, seed): train("adam", PEAK, warmup, seed=seed) for warmup in (0, WARMUP) for seed in SEEDS}

# %%
figure, axes = plt.subplots(figsize=(7.4, 3.6))
for (warmup, seed), (_, losses, _) in runs.items():
    colour, style = ("C0", "-") if warmup else ("C1", "--")
    label = ("with warm-up" if warmup else "without warm-up") if seed == 0 else None
    axes.plot(smoothed(losses, 25), style, color=colour, lw=1.2, label=label)
axes.axhline(floor, color="k", lw=0.8, ls=":", label="unigram floor")
axes.set(
    ylim=(floor - 0.35, floor + 0.5),
    xlabel="step",
    ylabel="loss, smoothed (nats)",
    title=f"Adam, peak {PEAK}, three seeds each",
)
axes.legend(frameon=False)
course.show(
    figure,
    "Smoothed losses of six runs with Adam and the unigram floor; the runs with warm-up end lower than two of the three without.",
)
below = {
    warmup: sum(floor - runs[warmup, seed][1][-50:].mean() > 0.05 for seed in SEEDS) for warmup in (0, WARMUP)
}
course.say(
    f"Below the floor by more than 0.05 nats, at the end: **{below[0]} of {len(SEEDS)}** without warm-up, "
    f"**{below[WARMUP]} of {len(SEEDS)}** with it."
)

# %% [markdown]
# No curve explodes, and both kinds come down to the floor in no time. Runs that stay there may look as if
# they only needed patience, but for some there is no way out. Look at the vectors that leave the last layer,
# scaled to length 1, and take the squared length of their mean: it is 1 where all tokens of all sequences
# have the same direction, and small where they differ.


# %%
def sameness(params, number):
    """Return the squared length of the mean of unit vectors, after layer `number`."""
    (states,) = bert.hidden_states(reference, config, (number,), params.tree, batches[0])
    units = states / np.linalg.norm(states, axis=1, keepdims=True)
    return float((units.mean(0) ** 2).sum())


figure, axes = plt.subplots(figsize=(6.4, 3))
for (warmup, seed), (trained, _, _) in runs.items():
    colour, style = ("C0", "o-") if warmup else ("C1", "^--")
    label = ("with warm-up" if warmup else "without warm-up") if seed == 0 else None
    axes.plot(range(3), [sameness(trained, number) for number in range(3)], style, color=colour, label=label)
axes.set_xticks(range(3), ["embeddings", "layer 1", "layer 2"])
axes.set(ylabel="sameness of all vectors", ylim=(0, 1.03), title="1: every token has the same vector")
axes.legend(frameon=False)
course.show(
    figure,
    "Sameness of hidden vectors by layer, for runs with warm-up, where it is low, and without, where it reaches one in the runs that are stuck.",
)
dead = [sameness(runs[0, seed][0], 2) for seed in SEEDS]
alive = [sameness(runs[WARMUP, seed][0], 2) for seed in SEEDS]
course.say(
    "After the last layer the sameness is "
    + ", ".join(f"{one:.2f}" for one in dead)
    + " without warm-up and "
    + ", ".join(f"{one:.2f}" for one in alive)
    + " with it."
)

# %% [markdown]
# What has happened? The most likely story: in its first steps Adam moves every parameter by a whole learning rate. At
# the beginning the gradients of all tokens agree on one thing, because it helps most: fit the output to the frequencies
# of the letters. Large steps in that common direction give all tokens the same vector. Once they are alike, attention
# has nothing left to tell apart, and the gradient that could separate them is nearly zero: the model is stuck for good.
# With warm-up the frequencies are learnt in small steps, which leave the vectors different. That does not save every
# run, but it moves the border of ruin to a higher rate (single runs):

# %%
peaks = (1.5e-3, 3e-3, PEAK, 2 * PEAK)
figure, axes = plt.subplots(figsize=(6.4, 3))
for warmup, style, label in ((0, "C1^--", "without warm-up"), (WARMUP, "C0o-", "with warm-up")):
    found = [runs[warmup, 0] if peak == PEAK else train("adam", peak, warmup) for peak in peaks]
    ends = [losses[-50:].mean() for _, losses, _ in found]
    axes.semilogx(peaks, ends, style, label=label)
axes.axhline(floor, color="k", lw=0.8, ls=":", label="unigram floor")
axes.set_xticks(peaks, [f"{peak:g}" for peak in peaks])
axes.minorticks_off()
axes.set(xlabel="highest learning rate", ylabel="loss at the end", title="How high may the rate be?")
axes.legend(frameon=False)
course.show(
    figure,
    "The loss at the end of single runs against their highest rate: without warm-up it rises to the unigram floor at "
    "0.006, with warm-up it stays below the floor at all four rates, the highest of which is 0.012.",
)

# %% [markdown]
# Was anything learnt from context, then? We test on text that no run has read, with controls that can't have
# learnt it.

# %%
asked_about = draw_batch(held_out, lesson.scale(3000, 200), np.random.default_rng(1))
visible = np.flatnonzero(asked_about.input_ids >= SPACE)
ids = asked_about.input_ids.copy()
ids[visible] = np.random.default_rng(2).permutation(ids[visible])
elsewhere = replace(asked_about, input_ids=ids)  # every [MASK] where it was, among letters of other windows


def surprises(params, batch):
    """Return the loss at each masked position, in nats."""
    return bert.pretraining_loss(reference, config, params.tree, batch)[0].mlm_nll.astype(np.float64)


rescued = runs[WARMUP, 0][0]
learnt = lesson.claim(
    "the run with warm-up learnt to use the context",
    surprises(rescued, asked_about),
    -np.log(frequencies[asked_about.masked_labels]),
    controls={
        "untrained": surprises(initialise(config, 0), asked_about),
        "context of others": surprises(rescued, elsewhere),
    },
    unit="nats",
)
without = -np.log(frequencies[asked_about.masked_labels]) - surprises(runs[0, 0][0], asked_about)
course.say(f"The run without warm-up, on the same letters: a gain of **{without.mean():+.3f}** nats.")

# %% [markdown]
# ## 9. LAMB: a step as long as the tensor deserves
#
# With thousands of sequences in a batch there are few steps, and each has to go far. Adam moves every number by about
# $\eta$. That is little for a tensor whose entries are near 1 and a great deal for one whose entries are near 0.02. How
# large is a step, relative to the tensor it changes?
#
# LAMB (You et al. 2020) fixes just that ratio. With $u$ as in exercise 09.2 it moves each tensor $x$ by
#
# $$ x \leftarrow x - \eta\, \frac{\|x\|}{\|u\|}\, u \quad\Rightarrow\quad
#    \frac{\|\Delta x\|}{\|x\|} = \eta . $$
#
# The factor $\|x\| / \|u\|$ is the **trust ratio**, one for each tensor. Where one of the lengths is zero, the ratio is
# 1, as it always is for biases and LayerNorm, which do not decay either.

# %% [markdown]
# ### Exercise 09.5 (hard): LAMB
#
# `tensors` has a row `[begin, end, decays]` for each tensor in the buffers. Where `decays` is 0 there is neither weight
# decay nor a trust ratio, and the tensor takes Adam's step. Everything else is as in 09.2, and in place.


# %%
# Exercise 09.5
def lamb(self, params, grads, m, v, tensors, rule):
    """Update params, m and v (N,) in place by one step of LAMB, and return the three."""
    ...


# %%
TENSORS = np.array([[0, 3, 1], [3, 5, 0], [5, 9, 1], [9, 10, 1], [10, 16, 1], [16, 19, 0]])


def draw_tensors(rng):
    """Draw tensors: of usual length, all zero, short, without a gradient, and two that don't decay."""
    x, g, m = rng.standard_normal((3, 19))
    v, number = rng.uniform(0.2, 2, 19), len(drawn)
    x[5:9], g[9:10], m[9:10] = 0, 0, 0
    x[10:16] *= 0.05
    m[0:3], g[0:3] = 0.02 * m[0:3], 0.02 * g[0:3]
    rule = draw_rule(rng, number)
    drawn.append((x, m, v))
    return x, g, m, v, TENSORS, rule._replace(weight_decay=0.0) if number % 3 == 0 else rule


lesson.check(lamb, draw=draw_tensors, same_as=Ops().lamb, law=in_place, times=6)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The moments and Adam's direction are computed for the whole buffer at once, as in 09.2. Only then comes a loop over
# `tensors`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `x = params[begin:end]` is a view: `x -= ...` changes `params`. The length of the update includes its weight
# decay.
#
# </details>
# <details><summary>Solution 09.5</summary>
#
# ```python
# def lamb(self, params, grads, m, v, tensors, rule):
#     g = grads * rule.clip
#     m[...] = rule.beta1 * m + (1 - rule.beta1) * g
#     v[...] = rule.beta2 * v + (1 - rule.beta2) * (g * g)
#     m_scale, v_scale = rule.corrections
#     direction = m_scale * m / (np.sqrt(v_scale * v) + rule.eps)
#     for begin, end, decays in tensors:
#         x, update, trust = params[begin:end], direction[begin:end], 1.0
#         if decays:
#             update = update + rule.weight_decay * x
#             length, update_length = np.linalg.norm(x), np.linalg.norm(update)
#             if length > 0 and update_length > 0:
#                 trust = length / update_length
#         x -= rule.lr * trust * update
#     return params, m, v
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `trust = length / update_length` | `trust = update_length / length` | Upside down: a long update needs a small factor. |
# | `if length > 0 and update_length > 0` | `if update_length > 0` | A tensor that is all zero would stay zero for ever; its trust ratio is 1. |
# | `update = update + rule.weight_decay * x` | `update = update + 0` | Weight decay is part of the update, and of its length. |
# | `if decays:` | `if True:` | Biases and LayerNorm take Adam's step, without decay and without a trust ratio. |
# | `np.linalg.norm(update)` | `np.linalg.norm(direction)` | The update's length is that of this tensor alone. |
# | `np.linalg.norm(x), np.linalg.norm(update)` | `np.linalg.norm(x), np.linalg.norm(direction[begin:end])` | The length of the update is taken after weight decay is added to it. |
# | `x -= rule.lr * trust * update` | `x -= trust * update` | The learning rate is missing. |
#
# </details>

# %% [markdown]
# Here is one step of each optimizer from the model that warm-up rescued, and how far it moved every matrix, relative to
# its length. The moments come from forty gradients at this point, so that they are past their first step.

# %%
start = rescued.astype(np.float64)
grads64 = start.zeros_like()
m, v = np.zeros((2, len(start.flat)))
warm = batches[: lesson.scale(40, 4)]
for batch in warm:
    loss_and_gradient(reference, start, grads64, batch)
    m[:] = 0.9 * m + 0.1 * grads64.flat
    v[:] = 0.999 * v + 0.001 * grads64.flat**2
rule = AdamRule(1e-3, len(warm) + 1)
moved_by = {}
for name, update, ranges in (
    ("Adam", reference.adamw, start.decayed),
    ("LAMB", reference.lamb, start.tensors),
):
    after = start.like(start.flat.copy())
    update(after.flat, grads64.flat, m.copy(), v.copy(), ranges, rule)
    moved_by[name] = {
        one: np.linalg.norm(after[one] - start[one]) / np.linalg.norm(start[one])
        for one in start
        if one in matrices
    }
shown = [name for name in moved_by["LAMB"] if sizes.get(name)]
for name in shown:
    course.equal(f"LAMB moves {name} by the learning rate", moved_by["LAMB"][name], rule.lr)

# %%
figure, axes = plt.subplots(figsize=(7, 3.4))
for name, style in (("Adam", "C1^"), ("LAMB", "C0o")):
    axes.plot([100 * moved_by[name][one] for one in shown], range(len(shown)), style, ms=6, label=name)
axes.axvline(100 * rule.lr, color="k", lw=0.8, ls=":")
axes.set_yticks(range(len(shown)), shown, fontsize=8)
axes.set(
    xlim=(0, None),
    xlabel="length of the step, % of the length of the tensor",
    title=f"One step at a learning rate of {rule.lr}",
)
axes.legend(frameon=False)
course.show(
    figure,
    "Relative length of one step for every matrix: Adam's differ from tensor to tensor, LAMB's all equal the learning rate.",
)
adam_moves = [moved_by["Adam"][one] for one in shown]
course.say(
    f"Adam moved the matrices by {min(adam_moves):.1%} to {max(adam_moves):.1%} of their lengths, LAMB each "
    f"of them by {rule.lr:.1%}."
)

# %% [markdown]
# And here is a whole run with LAMB: with yours, if you have written 09.5.

# %%
ops = lesson.engine()
_, lamb_losses, _ = train("lamb", 0.01, WARMUP)
figure, axes = plt.subplots(figsize=(7.4, 3.4))
for losses, style, name in (
    (tamed_losses, "C2-.", "gradient descent, clipped"),
    (runs[0, 0][1], "C1--", "Adam, no warm-up"),
    (runs[WARMUP, 0][1], "C0-", "Adam, warm-up"),
    (lamb_losses, "k:", "LAMB, warm-up"),
):
    axes.plot(smoothed(losses, 25), style, label=name)
axes.axhline(floor, color="0.5", lw=0.8)
axes.annotate("unigram floor", (0, floor), (0, -11), textcoords="offset points", fontsize=8, color="0.4")
axes.set(
    ylim=(floor - 0.35, floor + 0.5),
    xlabel="step",
    ylabel="loss, smoothed (nats)",
    title="Everything in this chapter",
)
axes.legend(frameon=False, fontsize=9)
course.show(figure, "Smoothed losses of four ways to train the same model, beside the unigram floor.")
ends = {
    "clipped gradient descent": tamed_losses,
    "Adam with warm-up": runs[WARMUP, 0][1],
    "LAMB": lamb_losses,
}
course.say(
    "Over the last fifty steps: "
    + ", ".join(f"{name} {losses[-50:].mean():.2f}" for name, losses in ends.items())
    + " nats."
)

# %% [markdown]
# Don't read these curves as a race. Each optimizer had one rate, chosen by hand, and one model; another rate would
# reorder them. What they do show is that the choice of rate and warm-up can make or break the same model, and
# that the loss alone may not tell you.
#
# ## What we saw
#
# - One learning rate for raw gradients can't fit all tensors: gradient sizes differ by orders of magnitude from tensor
#   to tensor.
# - Adam divides each gradient by its own typical size. The scale cancels, and a step has a length that you can bound in
#   advance.
# - Without bias correction, as in the authors' code, early steps are several times too long. Warm-up hides it.
# - Weight decay belongs alongside the step, not in the gradient.
# - Ruin has two faces. Gradient descent explodes, and a limit on the norm prevents it. Adam collapses in silence, with a
#   loss at the unigram floor; warm-up or a lower rate can prevent that.
# - LAMB sets the relative length of each tensor's step.

# %%
lesson.keep()
lesson.sheet()

# %% [markdown]
# ## Words
#
# - **gradient descent**: moving parameters against the gradient, by a distance proportional to it.
# - **Adam**: the optimizer of BERT, which divides a running mean of each gradient by its typical size.
# - **first moment**: a running mean of a parameter's gradients, $m$.
# - **second moment**: a running mean of their squares, $v$.
# - **bias correction**: dividing a running mean by the sum of its weights, since it began at zero.
# - **decoupled weight decay**: shrinking parameters alongside the step of the optimizer, not through the
#   gradient.
# - **gradient clipping**: scaling a gradient that exceeds a limit down to that limit.
# - **global norm**: the Euclidean length of all gradients of a model together.
# - **warm-up**: the steps at the beginning in which the learning rate rises from zero.
# - **trust ratio**: in LAMB, the length of a tensor divided by the length of its update.
#
# ## Where to go next
#
# [Chapter 10](10_pretrain_yours.ipynb) puts your operations together and pre-trains with them.
# `minibert/core/ops/updates.py` has the arithmetic of this chapter, and `minibert/core/optim.py` what is kept from one
# step to the next. In the first of them you also find a newer optimizer, `muon` (Jordan et al. 2024). Adam and LAMB
# treat a matrix as a list of numbers. Muon treats it as a matrix: whatever the singular values of its gradient are, it
# sets them all to about 1 before it moves along it. How it does so with nothing but products of matrices is worth an
# evening; `minibert pretrain --optimizer muon` trains with it.
