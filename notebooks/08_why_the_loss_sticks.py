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
# # 08 · Why the loss sticks
#
# *This notebook needs* `pip install '.[notebooks]'` *from a checkout of minibert.*
#
# **The question.** You start to pre-train. For a few minutes the loss falls nicely. Then it stops, at 6 or 7 nats, and
# stays there for an hour. Nothing crashes. Is the code wrong? Is the text too small, are the steps too short? People
# who pre-train a BERT ask this again and again, and the usual answer is "train longer". You deserve a better one.
#
# **What you will be able to do.** Say in advance where a loss begins and where it will stick, prove why it sticks
# there, predict for how long, and get a stuck run moving again; and tell a model that has learnt something from one
# that only looks as if it had.

# %%
# %matplotlib inline
import math
import re

import matplotlib.pyplot as plt
import numpy as np

from minibert import BertConfig, Tokenizer, course
from minibert.core import bert
from minibert.core.batch import Batch
from minibert.core.ops import AdamRule
from minibert.data.corpus import embedded_corpus, sentences
from minibert.model.ops import Ops
from minibert.model.params import initialise
from minibert.pretraining.evaluation import shuffle_contexts
from minibert.pretraining.recipes import SCHEDULES
from minibert.reports import viz
from minibert.reports.viz import smoothed
from minibert.tokenizer import BasicTokenizer, count_words, learn_vocab

plt.rcParams |= {
    "figure.dpi": 80,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
}
lesson = course.begin("08")

# %% [markdown]
# ## 1. A laboratory
#
# A run that sticks for an hour is a poor thing to experiment with, so we build one that sticks for ten seconds. The
# text is that of the embedded books, but the tokens are **letters**: 26 of them, the space, and `[CLS]`, `[SEP]` and
# `[MASK]`. The model is a whole BERT with one layer, hidden size 32 and two heads. In a window of $n$ tokens,
# `[CLS]` and `[SEP]` included, letters are replaced with `[MASK]`: 15% of $n$, rounded, and at least one.
#
# Everything that follows was first seen with 8,192 word pieces, where a step has many times as many operations
# (`docs/log/2026-11-20-plateau.md`).

# %%
CLS, SEP, MASK, V = 0, 1, 2, 30
lines = [line for line in sentences([embedded_corpus()]) if line][: lesson.scale(30_000, 3_000)]
text = re.sub("[^a-z]+", " ", " ".join(lines).lower())
letters = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
letters = np.where(letters == ord(" "), 3, letters - ord("a") + 4).astype(np.int32)
names = ["[CLS]", "[SEP]", "[MASK]", "␣", *"abcdefghijklmnopqrstuvwxyz"]
training, held_out = np.split(letters, [int(0.95 * len(letters))])
counts = np.bincount(training, minlength=V) + 1  # each once more, so that none is impossible


def draw_batch(source, n, targets, rng):
    """Draw windows of n tokens from anywhere in a text, with about this many masked letters altogether."""
    masked = max(1, round(0.15 * n))
    S = max(1, targets // masked)
    begins = rng.integers(len(source) - n, size=S)
    windows = np.full((S, n), CLS, np.int32)
    windows[:, 1:-1] = source[begins[:, None] + np.arange(n - 2)]
    windows[:, -1] = SEP
    places = 1 + np.sort(rng.random((S, n - 2)).argsort(1)[:, :masked], 1)
    rows = (places + n * np.arange(S)[:, None]).ravel().astype(np.int32)
    ids = windows.ravel()
    labels, ids[rows] = ids[rows].copy(), MASK
    return Batch(
        input_ids=ids,
        token_type_ids=np.zeros(S * n, np.int32),
        positions=np.tile(np.arange(n, dtype=np.int32), S),
        cu_seqlens=np.arange(0, S * n + 1, n, dtype=np.int32),
        sequence_index=np.arange(S, dtype=np.uint32),
        masked_rows=rows,
        masked_labels=labels,
        masked_weights=np.full(len(rows), 1 / len(rows)),
        next_sentence_labels=np.full(S, -1, np.int32),
        next_sentence_weights=np.zeros(S),
    )


print(f"{len(letters):,} letters; one window of 16:")
print(" ".join(names[i] for i in draw_batch(training, 16, 2, np.random.default_rng(3)).input_ids))

# %% [markdown]
# ## 2. Where a loss begins
#
# At the very start the hidden states (the vectors that leave the layers) say nothing, so the model makes the same guess
# at every masked position: the softmax of its output bias $b$. Let letter $i$ make up the share $f_i$ of the text, and
# let $g = \operatorname{softmax}(b)$. By chapter 3, such a **constant guess** costs
#
# $$ L(b) = -\sum_i f_i \ln g_i = H(f) + \mathrm{KL}(f \,\|\, g) . $$
#
# Two cases matter. With $b = 0$ all guesses are equal, $g_i = 1/V$, and the loss is exactly $\ln V$ whatever the text.
# And there is a $b$ for which the second term is zero. Then the loss is the entropy of the letters, and no constant guess
# is better.

# %%
shares = counts / counts.sum()
entropy = -(shares * np.log(shares)).sum()
repeated = np.repeat(np.arange(V), np.arange(1, V + 1))  # a text in which token i occurs i + 1 times
some = np.arange(1, V + 1) / len(repeated)
nll, _ = Ops().softmax_cross_entropy(np.zeros((len(repeated), V)), repeated)
course.equal("loss of equal guesses, ln V", nll.mean(), math.log(V))
bias = np.random.default_rng(8).standard_normal(V)
guess_of = np.exp(bias) / np.exp(bias).sum()
nll, _ = Ops().softmax_cross_entropy(np.tile(bias, (len(repeated), 1)), repeated)
course.equal(
    "loss of any bias, entropy + KL",
    nll.mean(),
    -(some * np.log(some)).sum() + (some * np.log(some / guess_of)).sum(),
)
course.say(f"For our letters $\\ln V$ is **{math.log(V):.2f}** nats and the entropy **{entropy:.2f}**.")

# %% [markdown]
# ### Exercise 08.1 (easy): the loss of a constant guess
#
# Given how often each token occurs and an output bias, return the mean loss in nats. Some tokens may never occur, and
# the bias may be large.


# %%
# Exercise 08.1
def constant_guess_loss(counts, bias):
    """Return the mean of -log softmax(bias)[token] over a text in which token i occurs counts[i] times."""
    ...


# %%
def draw_counts(rng):
    """Draw counts, one of them zero, and a bias that is large everywhere."""
    size = int(rng.integers(4, 9))
    return rng.permutation([0, *rng.integers(1, 20, size)]), 800 + 3 * rng.standard_normal(size + 1)


def token_by_token(counts, bias):
    """Go through such a text, token after token."""
    tokens = np.repeat(np.arange(len(counts)), counts)
    nll, _ = Ops().softmax_cross_entropy(np.tile(bias, (len(tokens), 1)), tokens)
    return nll.mean()


lesson.check(constant_guess_loss, draw=draw_counts, same_as=token_by_token)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The logarithm of a softmax is the bias minus one number: the logarithm of the sum of exponentials.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Subtract the largest bias first; a softmax does not notice. Then weight each logarithm by its count.
#
# </details>
# <details><summary>Solution 08.1</summary>
#
# ```python
# def constant_guess_loss(counts, bias):
#     shifted = bias - bias.max()
#     log_guess = shifted - np.log(np.exp(shifted).sum())
#     return -(counts * log_guess).sum() / counts.sum()
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `/ counts.sum()` | `/ len(counts)` | The mean is over the tokens of the text, and there are `counts.sum()` of them. |
# | `-(counts * log_guess).sum() / counts.sum()` | `-log_guess.mean()` | That weights all kinds of tokens alike; frequent ones must count for more. |
# | `-(counts * log_guess)` | `(counts * log_guess)` | The sign: a loss is minus the logarithm of a probability. |
# | `shifted - np.log(np.exp(shifted).sum())` | `shifted` | The bias is not yet the logarithm of a probability; the sum of the exponentials is missing. |
# | `np.log(np.exp(shifted).sum())` | `np.log(np.exp(shifted).mean())` | The exponentials are summed in a softmax, not averaged. |
# | `np.log(np.exp(shifted).sum())` | `np.exp(shifted).sum()` | The logarithm of the sum is subtracted, not the sum itself. |
#
# </details>

# %% [markdown]
# ### Exercise 08.2 (easy): the best constant guess
#
# Return the output bias that makes this loss as small as possible, as logarithms of probabilities that sum to 1. The
# check does not know the formula. It checks whether the loss gets smaller in any direction.


# %%
# Exercise 08.2
def best_bias(counts):
    """Return the bias (V,) of the best constant guess, for counts that are all positive; exp(bias) sums to 1."""
    ...


# %%
def nothing_is_better(bias, counts):
    """Check that the derivative of the loss is zero in each direction, by the complex step."""
    if np.shape(bias) != np.shape(counts):
        return f"The answer has the shape {np.shape(bias)}; expected {np.shape(counts)}."
    if not abs(np.exp(bias).sum() - 1) < 1e-12:
        return "The exponentials of the bias do not sum to 1."
    for one in np.eye(len(counts)):
        moved = bias + 1e-30j * one
        slope = (counts * (np.log(np.exp(moved).sum()) - moved)).sum().imag / 1e-30 / counts.sum()
        if not abs(slope) < 1e-12:
            return "The loss can still be made smaller by another bias."
    return None


lesson.check(best_bias, draw=lambda rng: (rng.integers(1, 50, rng.integers(3, 9)),), law=nothing_is_better)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The loss is the entropy plus something that is never negative. When is that zero?
#
# </details>
# <details><summary>Hint 2</summary>
#
# The softmax of the bias has to be equal to the shares of the tokens. What is the inverse of the exponential?
#
# </details>
# <details><summary>Solution 08.2</summary>
#
# ```python
# def best_bias(counts):
#     return np.log(counts / counts.sum())
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `np.log(counts / counts.sum())` | `counts / counts.sum()` | These are the probabilities; the bias is their logarithm. |
# | `np.log(counts / counts.sum())` | `np.full(len(counts), -np.log(len(counts)))` | Equal chances are the guess of a zero bias; they ignore how often each token occurs. |
# | `np.log(` | `-np.log(` | The sign is reversed: rare tokens would get the largest bias. |
# | `counts / counts.sum()` | `counts` | The softmax is right, but the exponentials do not sum to 1: divide by the number of tokens. |
# | `np.log(` | `np.log2(` | A softmax undoes the natural logarithm, not the one to base 2. |
# | `counts / counts.sum()` | `(counts + 1) / (counts + 1).sum()` | One more of each token gives rare ones a little too much; here all counts are positive anyway. |
#
# </details>

# %% [markdown]
# The best bias is $b_i = \ln f_i$, the logarithms of the shares, or **log-shares** for short. From here on we use yours,
# if it has passed.

# %%
nll, _ = Ops().softmax_cross_entropy(np.tile(np.log(some), (len(repeated), 1)), repeated)
course.equal("loss of the log-shares, entropy", nll.mean(), -(some * np.log(some)).sum())
unigram = best_bias(counts) if lesson.passed("08.2") else np.log(shares)

# %% [markdown]
# Now to the training loop. You know all of it but two lines: `clip_factor` limits the length of the gradient, and the
# **optimizer** turns it into a step. Chapter 9 takes both apart. The **learning rate** is how far a step goes.
#
# The loop hardly ever reads the same window twice, so the loss of a batch, measured before its step, is as honest as
# one on held-out text. We keep the **gain**: by how much the loss is below that of the best constant guess on the same
# letters. A gain of zero means that the context was useless.

# %%
ops = Ops()  # minibert's own, so that your curves and these agree
TARGETS = 72  # letters to guess in a step


def configure(n):
    """Shape a BERT for windows of up to n letters.

    BERT-BASE starts from weights of spread 0.02 at 768 inputs, so sums have a spread of 0.02 x sqrt(768) = 0.55.
    With 32 inputs that takes 0.1.
    """
    return BertConfig(
        vocab_size=V,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=n,
        initializer_range=0.1,
    )


def train(plan, rate=3e-3, unigram_bias=True, seed=0, watch=None):
    """Train through stages (length, steps); return configuration, parameters, and loss and gain of each step."""
    config = configure(max(n for n, _ in plan))
    params = initialise(config, seed)
    if unigram_bias:
        params["mlm.output_bias"][...] = unigram
    grads, m, v = params.zeros_like(), np.zeros_like(params.flat), np.zeros_like(params.flat)
    rng, losses, gains = np.random.default_rng([seed, 1]), [], []
    for step, n in enumerate((n for n, steps in plan for _ in range(steps)), 1):
        batch = draw_batch(training, n, TARGETS, rng)
        if watch and step % 10 == 1:
            watch(step, config, params)
        loss, saved = bert.pretraining_loss(ops, config, params.tree, batch)
        losses.append(float(loss.mlm_loss))
        gains.append(float(-unigram[batch.masked_labels].mean() - loss.mlm_loss))
        ops.zero(grads.flat)
        bert.pretraining_loss_backward(ops, config, saved, params.tree, grads.tree)
        clip = ops.clip_factor(ops.global_norm(grads.flat), 1.0)
        ops.adamw(
            params.flat, grads.flat, m, v, params.decayed, AdamRule(rate * min(1, step / 30), step, clip=clip)
        )
    return config, params, np.array(losses), np.array(gains)


# %%
guess = lesson.predict(
    "How much of the first drop of the loss, from ln V, is due to the context (in percent)?", ...
)

# %%
LONG, STEPS = 32, lesson.scale(600, 40)
config, stuck, stuck_losses, stuck_gains = train([(LONG, STEPS)])
*_, zero_losses, zero_gains = train([(LONG, lesson.scale(200, 40))], unigram_bias=False)
figure, axes = plt.subplots(figsize=(7.5, 3.4))
axes.plot(smoothed(zero_losses, 7), "C1--", label="output bias 0")
axes.plot(smoothed(stuck_losses[: len(zero_losses)], 7), "C0-", label="output bias = log-shares")
for height, label in ((math.log(V), "$\\ln V$"), (entropy, "entropy of the letters")):
    axes.axhline(height, color="grey", lw=0.8, ls=":")
    axes.annotate(
        label, (len(zero_losses), height), (0, -11), textcoords="offset points", ha="right", fontsize=9
    )
axes.set(xlabel="step", ylabel="loss (nats)", title="Two starts, one plateau", ylim=(2.6, None))
axes.legend(frameon=False)
course.show(
    figure,
    "Loss against step for two runs. With a zero bias it begins near ln V and falls within some fifty steps to the "
    "entropy of the letters. With the log-shares as bias it begins near the entropy and stays there.",
)
before, after = zero_losses[:5].mean(), zero_losses[-50:].mean()
context = max(0.0, smoothed(zero_gains, 50)[-25])
guess.answer(
    round(100 * context / (before - after)), "the model has only learnt how often each letter occurs."
)

# %% [markdown]
# (Both begin a little above their line. Random weights add some noise to the guess, and noise costs.)
#
# That is the first lesson. The steep fall at the start of so many loss curves is not a sign of understanding.
# All of it could be had by counting. A run that begins with the log-shares as its output bias skips it and
# sits at the entropy from the start, which the other run reaches only later.
#
# And there it sits. The level stretch is the **plateau**, and its height is the entropy of the masked tokens.
# For word pieces, too, you can compute it from counts before you train.

# %%
figure, axes = plt.subplots(figsize=(7.5, 3))
axes.plot(stuck_losses, color="C0", lw=0.4, alpha=0.4)
axes.plot(smoothed(stuck_losses, 25), color="C0", label=f"windows of {LONG}")
axes.axhline(entropy, color="C1", ls="--", label="entropy of the letters")
axes.set(xlabel="step", ylabel="loss (nats)", title="Nothing happens")
axes.legend(frameon=False)
course.show(
    figure,
    "Loss of the run with windows of 32 letters over all its steps: the smoothed curve stays on the dashed line of the "
    "entropy of the letters from beginning to end.",
)
course.say(
    f"Over the last {STEPS // 3} of {STEPS} steps the mean gain is **{stuck_gains[-STEPS // 3 :].mean():+.3f}** nats."
)

# %%
words = count_words(lines, BasicTokenizer())
pieces = Tokenizer(learn_vocab(words, lesson.scale(8192, 1024)))
occurs = np.zeros(pieces.vocab_size)
for word, count in words.items():
    np.add.at(occurs, pieces.encode(word), count)
of_pieces = occurs[occurs > 0] / occurs.sum()
course.say(
    f"With {pieces.vocab_size:,} word pieces from the same books $\\ln V$ is **{math.log(pieces.vocab_size):.2f}** nats, "
    f"and the plateau is at **{-(of_pieces * np.log(of_pieces)).sum():.2f}**."
)

# %% [markdown]
# If your own loss is stuck at this height, you now know where you are. Why does it not move on?
#
# ## 3. One in n
#
# Letters depend on their neighbours. After "q" comes "u". To use that, a masked position has to do two things: *look*
# at the token next to it, and *draw a conclusion* from what it sees there. At the start it can do neither. The scores
# are near zero, so its attention weights are all near $1/n$, and what arrives is the mean of all values in the window:
#
# $$ p_j = \frac1n, \qquad y = \frac1n \sum_j v_j, \qquad \frac{\partial y}{\partial v_j} = \frac1n . $$
#
# So the neighbour is one voice among $n$, and the gradient that could teach what to conclude carries a factor $1/n$.
# The gradient that could teach where to look is worse off. Let $g$ be the gradient of the loss with respect to $y$. By
# the Jacobian of the softmax, $\operatorname{diag}(p) - p\,p^{\mathsf T}$ (chapter 5), the gradient of score $j$ is, for
# even weights,
#
# $$ \frac{\partial L}{\partial s_j} = \frac1n \, (v_j - \bar v) \cdot g , $$
#
# where $\bar v$ is the mean value. There is the factor $1/n$ again. And there is another factor, how well the
# neighbour's value agrees with what would lower the loss. As long as the model has drawn no conclusions, values are
# random vectors and that agreement is an accident: over many examples, it averages out.
#
# So each of the two waits for the other. Looking is not rewarded before there are conclusions. Conclusions are slow
# because the looking is spread over $n$ tokens.

# %%
rng = np.random.default_rng(5)


def mix(scores, values, g):
    """Return g . y for y = softmax(scores) values; holomorphic."""
    e = np.exp(scores)
    return ((e / e.sum()) @ values) @ g


for n in (7, 19):
    values, g, even = rng.standard_normal((n, 3)), rng.standard_normal(3), np.zeros(n)
    step = np.zeros((n, 3))
    step[2] = g  # along g, so that the derivative is |g|^2 times the share of token 2
    along_value = mix(even, values + 1e-30j * step, g).imag / 1e-30
    course.equal(f"n = {n}: share of one value, 1/n", along_value / (g @ g), 1 / n)
    along_scores = [mix(even + 1e-30j * one, values, g).imag / 1e-30 for one in np.eye(n)]
    course.equal(f"n = {n}: gradient of the scores", along_scores, (values - values.mean(0)) @ g / n)

# %% [markdown]
# ### Exercise 08.3 (core): the pull on the scores
#
# The formula above is for even weights. Derive the one for arbitrary weights, and write it as code. One query has n
# scores; `values` is (n, E), and `g` is the gradient with respect to the output $y$.


# %%
# Exercise 08.3
def pull_on_scores(scores, values, g):
    """Return the gradient (n,) of g . (softmax(scores) @ values) with respect to the scores."""
    ...


# %%
def draw_query(rng):
    """Draw scores, values and the gradient of the output."""
    n, E = (int(size) for size in rng.permutation([4, 6])[:2])
    return rng.standard_normal(n), rng.standard_normal((n, E)), rng.standard_normal(E)


lesson.check(pull_on_scores, draw=draw_query, gradient_of=mix, wrt=(0,))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Compute the weights p and the output y first. In the formula for even weights, what was $1/n$, and what was $\bar v$?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `values - y` subtracts the output from every row. A product with `g` turns each row into one number.
#
# </details>
# <details><summary>Solution 08.3</summary>
#
# ```python
# def pull_on_scores(scores, values, g):
#     p = np.exp(scores) / np.exp(scores).sum()
#     y = p @ values
#     return p * ((values - y) @ g)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `(values - y) @ g` | `values @ g` | The output y is not subtracted: raising all scores alike changes nothing, so the gradients sum to zero. |
# | `(values - y) @ g` | `(values - values.mean(0)) @ g` | The plain mean is right for even weights only; in general it is the output y. |
# | `p * ((values - y) @ g)` | `(values - y) @ g` | The weight p of the token itself is missing in front. |
# | `p * ((values - y) @ g)` | `p * (1 - p) * (values @ g)` | That is the slope of each weight along its own score; the other weights change as well. |
# | `p * (` | `-p * (` | The sign is reversed. |
# | `p * ((values - y) @ g)` | `p * ((values - y) @ g) / len(p)` | The factor 1/n is the weight p itself when all are even; it does not appear twice. |
#
# </details>

# %% [markdown]
# Does the real, untrained model behave like this? Change the letter to the left of a masked one, and see how much of
# the change in that letter's value arrives at the masked position.

# %%
lengths = [6, 8, 12, 16, 24, 32, 48, 64]
arrives = []
for n in lengths:
    config_n = configure(n)
    params = initialise(config_n, 0, np.float64)
    batch = draw_batch(training, n, 200, np.random.default_rng(n))
    rows = batch.masked_rows[batch.positions[batch.masked_rows] > 1]  # with a letter on their left
    rows = rows[batch.input_ids[rows - 1] != MASK]
    rows = rows[np.unique(rows // n, return_index=True)[1]]  # one of each window, so that one letter changes
    attention = params.tree["layers"][0]["attention"]

    def context(ids, n=n, config_n=config_n, params=params, batch=batch, attention=attention):
        """Return what attention brings to every token, and the values that it mixes."""
        x, _ = ops.embedding_block(
            Batch(**(vars(batch) | {"input_ids": ids})), params.tree["embeddings"], config_n, None
        )
        qkv, _ = ops.linear(x, attention["qkv_weight"], attention["qkv_bias"])
        q, k, v = qkv.reshape(batch.T, 3, config_n.A, config_n.D).swapaxes(0, 1)
        return ops.attention(q, k, v, batch.cu_seqlens)[0], v

    other = batch.input_ids.copy()
    other[rows - 1] = 4 + (other[rows - 1] - 3) % 26
    (y0, v0), (y1, v1) = context(batch.input_ids), context(other)
    arrives.append(
        np.median(
            np.linalg.norm((y1 - y0)[rows], axis=(1, 2)) / np.linalg.norm((v1 - v0)[rows - 1], axis=(1, 2))
        )
    )
figure, axes = plt.subplots(figsize=(6, 3.2))
axes.loglog(lengths, arrives, "o", color="C1", label="measured in the untrained model")
axes.loglog(lengths, 1 / np.array(lengths), "C0-", label="$1/n$")
axes.set(xlabel="tokens in the window, $n$", ylabel="share that arrives", title="A neighbour is one of n")
axes.legend(frameon=False)
course.show(
    figure,
    "The share of a change in the neighbour's value that arrives at a masked position, against the length of the window, "
    "on logarithmic scales: the points lie along the line 1/n.",
)

# %% [markdown]
# ## 4. A model of two numbers
#
# Strip the problem to its bare bones. There is one neighbour that reveals the answer, and $n - 1$ other tokens that
# reveal nothing. The model has two numbers. One is $a$, how strong a conclusion it draws from what arrives. The other
# is $b$, by how much the neighbour's score is above the others. The output is $a$ times the weight of the
# neighbour, and the loss is that of a guess between two letters:
#
# $$ p(b) = \frac{e^b}{e^b + n - 1}, \qquad L(a, b) = \ln\bigl(1 + e^{-a\,p(b)}\bigr) . $$
#
# Both begin at zero. Then $p = 1/n$ and the loss is $\ln 2$, the entropy of two equally likely letters.

# %%
guess = lesson.predict(
    "In this model of two numbers: with twice as many tokens, how long is the plateau?",
    ...,
    choices=["as long as before", "twice as long", "four times as long"],
)

# %% [markdown]
# ### Exercise 08.4 (hard): the gradient of two numbers
#
# Find both derivatives with the chain rule, and write them as code. Three numbers go in, and two come out.


# %%
# Exercise 08.4
def two_number_gradient(a, b, n):
    """Return dL/da and dL/db of L = log(1 + exp(-a p)), p = exp(b) / (exp(b) + n - 1)."""
    ...


# %%
def two_number_loss(a, b, n):
    """Return the loss; holomorphic."""
    return np.log(1 + np.exp(-a * (np.exp(b) / (np.exp(b) + n - 1))))


lesson.check(
    two_number_gradient,
    draw=lambda rng: (rng.normal() + 2, rng.normal(), int(rng.integers(3, 12))),
    gradient_of=two_number_loss,
    wrt=(0, 1),
)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Work from the outside in: the derivative of $\ln(1 + e^{-x})$ is $-1/(1 + e^{x})$, with $x = a\,p$. Then ask
# how $x$ depends on each of the two.
#
# </details>
# <details><summary>Hint 2</summary>
#
# $p(b)$ is one weight of a softmax, and $b$ is its score. You know that slope from chapter 4.
#
# </details>
# <details><summary>Solution 08.4</summary>
#
# ```python
# def two_number_gradient(a, b, n):
#     p = np.exp(b) / (np.exp(b) + n - 1)
#     outer = -1 / (1 + np.exp(a * p))
#     return outer * p, outer * a * p * (1 - p)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `outer = -1 /` | `outer = 1 /` | The sign: the loss falls when the conclusion gets stronger. |
# | `np.exp(a * p))` | `np.exp(-a * p))` | The outer derivative is minus the logistic function of minus a p, not of a p. |
# | `outer * a * p * (1 - p)` | `outer * p * (1 - p)` | The factor a is missing: looking is worth only as much as the conclusion drawn from it. |
# | `outer * a * p * (1 - p)` | `outer * a * p` | The slope of the softmax is p (1 - p); its second factor is missing. |
# | `np.exp(b) + n - 1` | `np.exp(b) + n` | Besides the neighbour there are n - 1 other tokens, not n. |
# | `outer * p, outer` | `outer * a, outer` | The derivative of a p with respect to a is p. |
#
# </details>

# %% [markdown]
# With $\sigma(x) = 1/(1 + e^{-x})$ the two derivatives are
#
# $$ \frac{\partial L}{\partial a} = -\sigma(-a p)\, p, \qquad
#    \frac{\partial L}{\partial b} = -\sigma(-a p)\, a\, p\,(1 - p) . $$
#
# At the start $\sigma = \frac12$, so $a$ grows at the rate $\frac1{2n}$. But $b$ does not move at all, for its gradient
# has the factor $a = 0$. It only begins to move when $a$ has grown.
#
# How long does it take? Let $t$ count the steps times the learning rate, and let the steps be small. Divide the two
# gradients. The awkward parts cancel:
#
# $$ \frac{db}{da} = \frac{\partial L/\partial b}{\partial L/\partial a} = a\,(1 - p) . $$
#
# While the neighbour's weight is small, $1 - p \approx 1$, and so $b = a^2/2$: looking grows as the square of concluding.
# Put this into the rate of $a$, with $\sigma \approx \frac12$ and $p \approx e^b / n$:
#
# $$ \frac{da}{dt} = \frac{e^{a^2/2}}{2n} \qquad\Rightarrow\qquad
#    t = 2n \int_0^\infty e^{-a^2/2}\, da = 2n \sqrt{\frac\pi2} = n \sqrt{2\pi} . $$
#
# The integral is finite, so on this path $a$ would become infinite at that time: this is the moment of the fall, and
# in this approximation it is proportional to the length. The constant $\sqrt{2\pi}$ is that of the bell curve.

# %%
course.equal("loss at the start, ln 2", two_number_loss(0.0, 0.0, 16), math.log(2))
h = 1e-30
a0, b0, n0 = 1.3, 0.4, 9
p0 = math.exp(b0) / (math.exp(b0) + n0 - 1)
sigma = 1 / (1 + math.exp(a0 * p0))
course.equal("gradient along a", two_number_loss(a0 + 1j * h, b0, n0).imag / h, -sigma * p0)
course.equal("gradient along b", two_number_loss(a0, b0 + 1j * h, n0).imag / h, -sigma * a0 * p0 * (1 - p0))
course.equal(
    "ratio of the gradients",
    two_number_loss(a0, b0 + 1j * h, n0).imag / two_number_loss(a0 + 1j * h, b0, n0).imag,
    a0 * (1 - p0),
)
fine = np.linspace(0, 40, 4001)
bell = np.exp(-(fine**2) / 2)
course.equal("half the bell curve", (bell.sum() - bell[0] / 2) * fine[1], math.sqrt(math.pi / 2))
course.equal("time of the fall", 2 * n0 * (bell.sum() - bell[0] / 2) * fine[1], n0 * math.sqrt(2 * math.pi))


def by_formula(a, b, n):
    """Return both derivatives, as given above."""
    p = math.exp(b) / (math.exp(b) + n - 1)
    outer = -1 / (1 + math.exp(a * p))
    return outer * p, outer * a * p * (1 - p)


gradient_of_two = two_number_gradient if lesson.passed("08.4") else by_formula


def descend(n, rate=0.1, until=0.05):
    """Go down the gradient from (0, 0); return losses and weights of the neighbour, step by step."""
    a = b = 0.0
    losses, weights = [], []
    while not losses or losses[-1] > until:
        p = math.exp(b) / (math.exp(b) + n - 1)
        losses.append(math.log1p(math.exp(-a * p)))
        weights.append(p)
        da, db = gradient_of_two(a, b, n)
        a, b = a - rate * da, b - rate * db
    return np.array(losses), np.array(weights)


figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.2))
escapes, toy_lengths = [], [4, 8, 16, 32, 64, 128]
for number, n in enumerate(toy_lengths):
    losses, weights = descend(n)
    escapes.append(int((losses < math.log(2) / 2).argmax()))
    if n in (8, 16, 32):
        colour, style = plt.cm.viridis(number / 4), {8: "-", 16: "--", 32: ":"}[n]
        left.plot(losses, color=colour, ls=style, label=f"n = {n}")
        middle.plot(weights, color=colour, ls=style)
for ax, label in ((left, "loss"), (middle, "weight of the neighbour")):
    ax.set(xlabel="step", ylabel=label, xlim=(0, 1100))
left.legend(frameon=False)
right.loglog(toy_lengths, escapes, "o", color="C1", label="steps until the loss is halved")
line = np.array(toy_lengths) * math.sqrt(2 * math.pi) / 0.1
right.loglog(toy_lengths, line, "C0-", label="$n \\sqrt{2 \\pi}$ / rate")
right.set(xlabel="n", title="proportional to n")
right.legend(frameon=False, fontsize=8)
left.set_title("Two numbers have a plateau, too")
course.show(
    figure,
    "The model of two numbers. Left: its loss for 8, 16 and 32 tokens stays level at first and then falls, later for more "
    "tokens. Middle: the weight of the neighbour rises at the same moments. Right: the steps until the loss is halved "
    "against n, along the predicted line.",
)

# %%
guess.answer("twice as long", "two numbers wait in proportion to n. Section 5 asks the real model.")

# %% [markdown]
# Two numbers are enough for a plateau, a sudden fall, and a head that appears at that very moment. The points lie a
# little above the line, because the fall itself takes some steps, too. None of it is a bug.
#
# ## 5. Escape against length
#
# Now the real model. We train it on windows of different lengths, all with the same number of letters to
# guess per step. The **escape** is the step at which the gain, smoothed over 30 steps, passes 0.05 nats and
# does not come back.


# %%
def escape(gains):
    """Return the step of the escape, or None."""
    curve = smoothed(gains, 30)
    low = np.flatnonzero(curve < 0.05)
    return None if low[-1] >= len(curve) - 15 else int(low[-1] + 1)


maps, watched = [], draw_batch(held_out, 12, 120, np.random.default_rng(12))


def watch(step, config, params):
    """Remember the attention weights on some held-out windows of 12."""
    x, _ = ops.embedding_block(watched, params.tree["embeddings"], config, None)
    maps.append((step, np.array(bert.attention_maps(ops, config, x, params.tree["layers"][0], watched))))


plans = {6: 250, 8: 300, 12: 400, 16: 500, 24: 1000}
gains, escaped = {}, {}
for n, steps in plans.items():
    plan = [(n, lesson.scale(steps, 40))]
    gains[n] = train(plan, watch=watch if n == 12 else None)[-1]
    escaped[n] = [escape(gains[n])]
    if n <= 16:  # and once more, from other weights and with other windows
        escaped[n].append(escape(train(plan, seed=1)[-1]))
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.5))
styles = ("-", "--", "-.", ":", (0, (5, 1)))
for number, (n, one) in enumerate(gains.items()):
    colour = plt.cm.viridis(number / 5)
    left.plot(smoothed(one, 30), color=colour, ls=styles[number], label=f"n = {n}")
left.plot(smoothed(stuck_gains, 30), color="grey", label=f"n = {LONG}")
left.axhline(0, color="grey", lw=0.7)
left.set(xlabel="step", ylabel="gain (nats)", title="Short windows leave first")
left.legend(frameon=False, fontsize=8)
known = [(n, step) for n, steps in escaped.items() for step in steps if step]
if known:
    right.loglog(*zip(*known, strict=True), "o", color="C1", label="measured")
    shortest = np.mean([step for n, step in known if n == known[0][0]])
    for power, style in ((1, "C0-"), (2, "C0:")):
        line = shortest * (np.array([6, 24]) / known[0][0]) ** power
        right.plot([6, 24], line, style, label="$\\propto n$" if power == 1 else "$\\propto n^2$")
never = [(n, lesson.scale(plans[n], 40)) for n, steps in escaped.items() for step in steps if not step]
if never:
    right.plot(*zip(*never, strict=True), "^", color="C1", mfc="none", label="not within this many steps")
right.legend(frameon=False, fontsize=8)
right.set(xlabel="tokens in the window, $n$", ylabel="step of the escape", title="The plateau grows with n")
right.set_xticks(list(plans), [str(n) for n in plans])
right.minorticks_off()
course.show(
    figure,
    "Left: the gain against the step for windows of 6 to 32 letters; the shorter the window, the sooner the curve leaves "
    "zero, and that of 32 stays there. Right: the step of the escape grows with the length, between the lines of n "
    "and of n squared.",
)

# %%
steps_of = {n: ", ".join(str(step or "not reached") for step in steps) for n, steps in escaped.items()}
course.say(
    "Steps of the escape: " + "; ".join(f"n = {n}: **{steps}**" for n, steps in steps_of.items()) + "."
)

# %% [markdown]
# Longer windows wait longer, and chance has its say: two runs with equal windows can differ by a factor of two or more.
# The model of two numbers promised a straight line, but it knew no noise. A real gradient is a mean over a few letters,
# and a mean over $K$ letters still has noise of size $1/\sqrt K$. To see a signal of size $1/n$ above this noise, $K
# \approx n^2$ letters are needed, if the noise of one letter does not depend on $n$. Part of it does shrink with $n$, and the real
# runs lie roughly between the two lines.
#
# ## 6. The neighbour head appears
#
# If the theory is right, something must happen *inside* the model at the escape: some head must begin to look at a
# neighbour. That is easy to measure. In an $n \times n$ attention map, the weights from each token to the
# one on its left form the diagonal beside the main one.
#
# ### Exercise 08.5 (core): how much a head looks at its neighbours
#
# For S windows and A heads, row i and column j of `maps` hold the weight of token i on token j.


# %%
# Exercise 08.5
def neighbour_weight(maps, offset):
    """Return for each head the mean weight of token i on token i + offset: maps (S,A,n,n) -> (A,).

    The mean is over all windows and all tokens that have such a neighbour; offset -1 is the left one.
    """
    ...


# %%
def draw_maps(rng):
    """Draw attention maps, all sizes different, and an offset that is not zero."""
    S, A, n = 2, 3, int(rng.integers(4, 7))
    return rng.random((S, A, n, n)), int(rng.choice([-2, -1, 1, 2]))


def one_by_one(maps, offset):
    """Go through all windows, heads and tokens."""
    S, A, n, _ = maps.shape
    having = [i for i in range(n) if 0 <= i + offset < n]
    return np.array(
        [np.mean([maps[s, a, i, i + offset] for s in range(S) for i in having]) for a in range(A)]
    )


lesson.check(neighbour_weight, draw=draw_maps, same_as=one_by_one, times=8)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `np.diagonal` takes an offset and two axes. The entries i, i + offset are the diagonal above the main one when the
# offset is positive.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `np.diagonal(maps, offset, 2, 3)` has the shape (S, A, number of tokens that have such a neighbour).
#
# </details>
# <details><summary>Solution 08.5</summary>
#
# ```python
# def neighbour_weight(maps, offset):
#     return np.diagonal(maps, offset, 2, 3).mean((0, 2))
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `maps, offset, 2, 3` | `maps, -offset, 2, 3` | That is the other side: rows are queries, columns keys, so token i + offset is a column further on. |
# | `.mean((0, 2))` | `.mean(0).sum(-1) / maps.shape[-1]` | Tokens at the edge have no such neighbour; the mean is over those that have one. |
# | `.mean((0, 2))` | `.sum((0, 2))` | A mean is asked for, not a sum. |
# | `np.diagonal(maps, offset, 2, 3)` | `np.diagonal(maps, 0, 2, 3)` | The main diagonal is each token's weight on itself. |
# | `np.diagonal(maps, offset, 2, 3).mean((0, 2))` | `np.diagonal(maps, offset, 2, 3)[0].mean(-1)` | The mean goes over all windows, not only the first. |
# | `.mean((0, 2))` | `.max((0, 2))` | The largest weight says little about the others; the mean is asked for. |
#
# </details>

# %%
at = np.array([step for step, _ in maps])
sides = {"left": -1, "right": 1}
weight_of = neighbour_weight if lesson.passed("08.5") else one_by_one
weights = {side: np.array([weight_of(one, offset) for _, one in maps]) for side, offset in sides.items()}
curves = {(head, side): weights[side][:, head] for head in range(2) for side in sides}
figure, (upper, lower) = plt.subplots(2, 1, figsize=(7.5, 5), sharex=True)
upper.plot(smoothed(gains[12], 30), "C0")
upper.set(ylabel="gain (nats)", title="windows of 12")
for (head, side), curve in curves.items():
    lower.plot(
        at, curve, color=f"C{head}", ls={"left": "-", "right": "--"}[side], label=f"head {head + 1}, {side}"
    )
lower.axhline(1 / 12, color="grey", lw=0.8, ls=":")
lower.annotate("1/12", (at[-1], 1 / 12), (0, 3), textcoords="offset points", ha="right", fontsize=8)
lower.set(xlabel="step", ylabel="weight on the neighbour")
lower.legend(frameon=False, fontsize=8)
for ax in (upper, lower):
    if escaped[12][0]:
        ax.axvline(escaped[12][0], color="grey", lw=0.8)
course.show(
    figure,
    "Two panels over the same steps, for windows of 12. Above, the gain stays at zero and then rises. Below, the weights "
    "of both heads on the left and right neighbour stay at one twelfth and rise at the same steps.",
)

# %%
first, last = maps[0][1].mean(0), maps[-1][1].mean(0)
figure = viz.draw_attention(
    np.concatenate([first, last]),
    ["CLS", *map(str, range(1, 11)), "SEP"],
    darkest=max(0.3, float(last.max())),
)
for axes, title in zip(
    figure.axes, ("head 1, step 1", "head 2, step 1", "head 1, last step", "head 2, last step"), strict=True
):
    axes.set_title(title, fontsize=10)
course.show(
    figure,
    "Mean attention maps of both heads on windows of 12, before and after training. Before, all cells are alike. After, "
    "the cells beside the main diagonal are the darkest.",
)

# %% [markdown]
# Between the first map and the last one lies the whole training. Here it is for one head, with both curves.

# %%
course.animations.neighbour_head(maps, smoothed(gains[12], 30))

# %% [markdown]
# The loss and the heads move together. A loss curve alone would never have told you that, but the maps do:
# while a run is on its plateau, print the weights on the neighbours. If they creep up, wait. If they stay at
# $1/n$, act.
#
# ## 7. A rescue
#
# What should one do with windows of 32? Many would try a higher learning rate. The theory says something else: let the
# heads appear where $n$ is small, then lengthen the windows. Once a head looks at its neighbour, $1/n$ no longer
# matters. We give the rescue as many steps as the stuck run had.

# %%
guess = lesson.predict(
    "Which of the two leaves the plateau?",
    ...,
    choices=["three times the rate", "short windows first", "both", "neither"],
)

# %%
shares_of = ((6, 0.2), (8, 0.1), (12, 0.15), (16, 0.15), (LONG, 0.4))
plan = [(n, round(share * STEPS)) for n, share in shares_of]
config, rescued, _, rescued_gains = train(plan)
*_, faster_gains = train([(LONG, STEPS)], rate=1e-2)
again = {
    "short windows first": train(plan, seed=1)[-1],
    "three times the rate": train([(LONG, STEPS)], rate=1e-2, seed=1)[-1],
}
figure, axes = plt.subplots(figsize=(8, 3.6))
axes.plot(smoothed(stuck_gains, 30), color="grey", label=f"windows of {LONG}")
axes.plot(smoothed(faster_gains, 30), "C1--", label=f"windows of {LONG}, three times the rate")
begin = 0
for n, steps in plan:
    axes.axvline(begin, color="grey", lw=0.5)
    axes.annotate(
        f"n = {n}",
        (begin, 1.0),
        (3, -10),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=8,
    )
    stage = rescued_gains[begin : begin + steps]
    axes.plot(
        np.arange(begin, begin + len(stage)),
        smoothed(stage, 30),
        "C0-",
        label=None if begin else "short windows first",
    )
    begin += steps
axes.axhline(0, color="black", lw=0.6)
axes.set(xlabel="step", ylabel="gain (nats)")
axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, 0.93))
course.show(
    figure,
    "The gain of three equally long runs. With windows of 32 it stays at zero, at both learning rates. With "
    "windows of 6, 8, 12, 16 and then 32 it leaves zero in the first stage, drops at each change of length and rises again, and "
    "ends high above.",
)
ends = {
    "short windows first": rescued_gains[-40:].mean(),
    "three times the rate": faster_gains[-40:].mean(),
}
left_it = [name for name, gain in ends.items() if gain > 0.05]
course.say(
    "From another seed the same runs end with gains of "
    + " and ".join(f"**{gains[-40:].mean():.2f}** ({name})" for name, gains in again.items())
    + " nats."
)
guess.answer(
    "both" if len(left_it) == 2 else left_it[0] if left_it else "neither",
    "see the gains at the end of the curves.",
)

# %% [markdown]
# The drops at the borders are real. A longer window has positions that the model has never seen, and it has
# to learn that they are like the others. But it does not fall back to the plateau. In minibert's own
# pre-training, new positions begin as copies of trained ones, and the jump is smaller.
#
# The paper does something similar for a different reason: it trains on 128 tokens for nine tenths of the
# steps and on 512 for the rest, because long sequences are expensive. minibert's own recipes do it for the
# reason of this chapter.

# %%
course.say(
    f"A short run of minibert has these lengths, with their shares of the steps: `{SCHEDULES[0].lengths}`."
)

# %% [markdown]
# ### Has it learnt anything?
#
# A curve can mislead, so we finish with a proper claim. On held-out text, in windows of 32, the rescued model must beat
# the strongest trivial baseline, the best constant guess, by more than chance. And what cannot have learnt to use the
# context must not beat it: an untrained model, and the rescued one when the letters around the gaps are shuffled.

# %%
exam = draw_batch(held_out, LONG, lesson.scale(4000, 200), np.random.default_rng(2018))
(shuffled,) = shuffle_contexts([exam], [CLS, SEP, MASK])


def nll_of(params, batch):
    """Return the loss at each masked letter."""
    return bert.pretraining_loss(ops, config, params.tree, batch)[0].mlm_nll


untrained = initialise(config, 0)
untrained["mlm.output_bias"][...] = unigram
baseline = -unigram[exam.masked_labels]
controls = {"untrained": nll_of(untrained, exam), "shuffled context": nll_of(rescued, shuffled)}
lesson.claim(
    "the rescued run learnt to use the context", nll_of(rescued, exam), baseline, controls, unit="nats"
)
course.say(
    f"The stuck run, on the same letters: a gain of **{(baseline - nll_of(stuck, exam)).mean():+.3f}** nats."
)

# %% [markdown]
# ## 8. When your own loss sticks
#
# | what you see | what it means | what to do |
# |---|---|---|
# | starts far above $\ln V$ | the initial weights or the logits are too large, or labels are wrong | check the spread of the logits before the first step |
# | stays at $\ln V$ | no gradient arrives, not even at the output bias | check the update: is the rate zero, are the parameters the ones that are used? |
# | falls to the entropy of the tokens, then sits | the plateau of this chapter | print the weights on the neighbours; begin with short sequences |
# | falls far below the entropy within a few steps | the answer is visible in the input | check the masking and the labels |
# | sits at the entropy even with 8 tokens | looking or concluding is broken, or the rate has killed the heads | lower the rate; check the backward pass of attention (chapter 6) |
# | is not a number | an overflow | chapter 9 |
#
# You can compute both heights, $\ln V$ and the entropy, before you start. Draw both in every picture of a loss curve.
#
# ## What we saw
#
# * A loss begins at $\ln V$, or at the entropy of the tokens if the output bias knows their shares. The fall from one to
#   the other is counting, not reading.
# * The plateau is the best that anyone can do without context. At this height the model is not broken. It is
#   waiting.
# * With even attention a neighbour has weight $1/n$. What to conclude is learnt through a factor $1/n$, and
#   where to look is learnt only after that. Two numbers show the same plateau.
# * The wait for the escape grows with the length of the window: nearly in proportion in the model of two numbers, and at
#   least that fast in a real one. At the escape a neighbour head appears.
# * Train on short windows first: with the same number of steps, the model learns to read.

# %%
np.savez(
    "rescue.npz",
    weights=rescued.flat,
    rescued=rescued_gains,
    stuck=stuck_gains,
    **{f"length_{n}": one for n, one in gains.items()},
)
print("rescue.npz holds the rescued weights and the gains of all runs.")
lesson.sheet()

# %% [markdown]
# ## Words
#
# - **constant guess**: the same probabilities at every position, whatever the context.
# - **log-shares**: the logarithms of the tokens' shares; as an output bias, the best constant guess.
# - **optimizer**: the rule that turns a gradient into a change of the parameters.
# - **learning rate**: the factor that says how far a step goes.
# - **gain**: by how much a loss is below that of the best constant guess on the same tokens.
# - **plateau**: the level stretch of a loss curve at the entropy of the tokens.
# - **escape**: the step at which the gain leaves zero for good.
#
# ## Where to go next
#
# * [Chapter 09](09_optimizers.ipynb) opens the one line that we took on trust, the optimizer.
# * The experiments with word pieces behind this chapter are in the project's log, *Leaving the unigram plateau*.
# * Hoffmann et al. 2024, *Eureka-Moments in Transformers*, study the same kind of plateau in other tasks.
