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
# # 15 · What came after
#
# To run this notebook: `pip install '.[notebooks]'` from a checkout of minibert. It takes about two minutes, nearly
# all of that in one cell of section 7.
#
# **The question.** BERT dates from 2018. The encoders that are trained today are still stacks of attention and
# feed-forward blocks, and yet hardly a line of them is the same. Which of the changes matter, and how would one know?
#
# **After this chapter you can**
#
# * draw new masks for every pass, and fill sequences with whole sentences, as RoBERTa does;
# * rebuild the blocks of your own engine: LayerNorm in another place, positions as angles, a gate in the feed-forward
#   network;
# * write an optimizer that treats a matrix as a matrix;
# * say of each whether it helped, with an interval over seeds, and say so as well when you cannot tell.
#
# It needs no exercises from other chapters. What you have written of your engine is used, and what you write here
# changes nothing in it: the new blocks live in a class of their own.

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
from minibert.core.gradcheck.complex_step import complex_step
from minibert.core.ops import AdamRule
from minibert.core.optim import warmup_linear
from minibert.data.corpus import embedded_corpus, sentences
from minibert.engines import limited_threads
from minibert.model.ops import Ops
from minibert.model.params import initialise

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
limits = limited_threads(1)  # several threads are slower with matrices this small
lesson = course.begin("15")
engine = lesson.engine()

# %% [markdown]
# ## 1. A laboratory
#
# Each change gets a short run that differs from the run of plain BERT in nothing else: the same number of tokens, as
# many parameters in use, the same seeds. As in chapter 09, tokens are letters of the books. A window is eight letters,
# one of them hidden, and the model has two layers of hidden size 48. A twentieth of the text is set aside.

# %%
STEPS, S, N, SEEDS = lesson.scale(150, 3), lesson.scale(64, 8), 8, lesson.scale(5, 2)
PEAK = 3e-3
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MASK, SPACE, V = 2, 3, 30
lines = islice((line for line in sentences([embedded_corpus()]) if line), lesson.scale(30_000, 2_000))
text = re.sub("[^a-z]+", " ", " ".join(lines).lower())
letters = np.array([4 + LETTERS.find(one) if one != " " else SPACE for one in text], np.int32)
training, held_out = np.split(letters, [int(0.95 * len(letters))])
config = BertConfig.from_size("2-48-2", vocab_size=V, max_position_embeddings=N, hidden_act="gelu_new")


def windows(source, count, rng):
    """Draw windows of N letters from a text, (count,N)."""
    begins = rng.integers(len(source) - N, size=count)
    return source[begins[:, None] + np.arange(N)]


def loss_and_gradient(ops, config, params, grads, batch):
    """Put the gradient of one batch into `grads`, and return the loss."""
    ops.zero(grads.flat)
    loss, saved = bert.pretraining_loss(ops, config, params.tree, batch)
    bert.pretraining_loss_backward(ops, config, saved, params.tree, grads.tree)
    return float(loss.loss)


counts = np.bincount(training, minlength=V) + 1
frequencies = counts / counts.sum()
floor = -(frequencies * np.log(frequencies)).sum()
course.say(
    f"A run reads {STEPS * S * N:,} letters in {STEPS} steps. A model that looks at no context can't get below the "
    f"unigram floor, **{floor:.2f}** nats."
)

# %%
guess = lesson.predict(
    "Which of these gains most over plain BERT, in so short a run?",
    ...,
    choices=("pre-norm blocks", "rotary positions", "gated feed-forward", "Muon"),
)

# %% [markdown]
# ## 2. RoBERTa: the same model, fed better
#
# Liu et al. (2019) changed nothing in the model. They trained longer, on more text, with larger batches, and they
# changed two things about how the text is fed.
#
# **Dynamic masking.** BERT's authors drew the masks once, when the files were written, ten different ones for each
# sequence. In 40 passes over the text the model met each masked sequence four times. RoBERTa draws again whenever a
# sequence is read. With $c$ of $n$ places hidden at a time, a place has been hidden at least once after $k$ fresh draws
# with the probability
#
# $$ 1 - (1 - c/n)^k , $$
#
# and with a single draw that is repeated it stays at $c/n$ for ever.

# %% [markdown]
# ### Exercise 15.1 (easy): masks that change
#
# `ids` (S,n) are sequences, and `draws` (S,n) are random numbers, new ones for each pass. In each row hide the `count`
# places with the smallest draws, but never a piece whose number is below `first`: those are `[CLS]` and its like.
# Return three arrays: the ids with `mask` at these places (S,n), the places in ascending order (S,count), and the ids
# that were there (S,count).


# %%
# Exercise 15.1
def fresh_masks(ids, draws, count, mask, first):
    """Return hidden (S,n), places (S,count) and labels (S,count)."""
    ...


# %%
def draw_masking(rng):
    rows, n = int(rng.integers(3, 6)), int(rng.integers(7, 12))
    ids = rng.integers(5, 30, (rows, n))
    ids[:, 0], ids[:, -1], ids[0, 1] = 1, 4, 5
    draws = rng.uniform(0.2, 1, (rows, n))
    draws[:, [0, -1]], draws[0, 1] = 0.1, 0.15
    return ids, draws, int(rng.integers(2, 4)), 3, 5


def masks_row_by_row(ids, draws, count, mask, first):
    hidden, places, labels = ids.copy(), [], []
    for s, row in enumerate(ids.tolist()):
        allowed = [place for place, one in enumerate(row) if one >= first]
        chosen = sorted(sorted(allowed, key=lambda place, s=s: draws[s, place])[:count])
        places.append(chosen)
        labels.append([row[place] for place in chosen])
        for place in chosen:
            hidden[s, place] = mask
    return hidden, np.array(places), np.array(labels)


lesson.check(fresh_masks, draw=draw_masking, same_as=masks_row_by_row, times=8)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `np.argsort(draws, axis=1)` lists the places of each row from the smallest draw on. What must not be chosen gets an
# infinite draw before that.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `np.take_along_axis` and `np.put_along_axis` read and write one place after another in each row. Write into a copy.
#
# </details>
# <details><summary>Solution 15.1</summary>
#
# ```python
# def fresh_masks(ids, draws, count, mask, first):
#     draws = np.where(ids < first, np.inf, draws)
#     places = np.sort(np.argsort(draws, axis=1)[:, :count], axis=1)
#     labels = np.take_along_axis(ids, places, axis=1)
#     hidden = ids.copy()
#     np.put_along_axis(hidden, places, mask, axis=1)
#     return hidden, places, labels
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `np.where(ids < first, np.inf, draws)` | `draws` | Special pieces must never be hidden. |
# | `ids < first` | `ids <= first` | The number `first` itself is an ordinary piece. |
# | `[:, :count]` | `[:, -count:]` | The places with the smallest draws are asked for, not with the largest. |
# | `np.sort(np.argsort(draws, axis=1)[:, :count], axis=1)` | `np.argsort(draws, axis=1)[:, :count]` | The places have to ascend in each row. |
# | `labels = np.take_along_axis(ids, places, axis=1)` | `labels = np.take_along_axis(draws, places, axis=1)` | The labels are the ids that were there. |
# | `hidden = ids.copy()` | `hidden = ids` | The sequences are needed again in the next pass; write into a copy. |
#
# </details>

# %%
passes = np.arange(41)
figure, axes = plt.subplots(figsize=(6.6, 2.8), layout="constrained")
for share, style in ((0.15, "C0-"), (0.3, "C1--")):
    axes.plot(passes, 100 * (1 - (1 - share) ** passes), style, label=f"drawn anew, {share:.0%} at a time")
axes.plot(passes, 100 * (1 - 0.85 ** np.minimum(passes, 10)), "C2:", lw=2, label="ten draws, repeated (BERT)")
axes.set(
    xlabel="passes over the text", ylabel="places hidden once or more (%)", title="What masks can ask for"
)
axes.legend(frameon=False, fontsize=8)
course.show(
    figure,
    "The share of places that have been hidden at least once against the number of passes: drawn anew it tends to all of "
    "them, with ten repeated draws it stops rising after ten passes.",
)
hide = fresh_masks if lesson.passed("15.1") else masks_row_by_row
rng = np.random.default_rng(15)
table = np.zeros((lesson.scale(4000, 400), 5))
for number in range(len(table)):
    _, places, _ = hide(np.full((5, 8), 9), rng.random((5, 8)), 1, MASK, 0)
    table[number] = len(np.unique(places)) / 8
simulated, predicted = table.mean(), 1 - (1 - 1 / 8) ** 5
course.say(
    f"Five fresh draws of one place among eight have hidden {100 * simulated:.1f}% of the places, and the formula says "
    f"{100 * predicted:.1f}%."
)

# %% [markdown]
# **No next-sentence prediction.** RoBERTa's second change is to drop that task, and the pairs that it needs. Half of
# BERT's pairs are two pieces of text that have nothing to do with each other, so what is on the other side of `[SEP]`
# is no help in half of the cases. RoBERTa's sequences are full of text as it was written: whole sentences, one after
# another, across the ends of documents where there is room, with a separator there. The paper calls this
# FULL-SENTENCES.
#
# ### Exercise 15.2 (core): fill with whole sentences
#
# `documents` is a list of documents, each a list of sentences, each a list of ids. Return a list of sequences of at
# most `room` ids. Sentences are taken in order, and one that does not fit any more begins the next sequence. Where a
# document ends within a sequence, `sep` comes before the next sentence, and takes up room, too. No sentence is longer
# than `room`, none is empty, and no document is empty.


# %%
# Exercise 15.2
def full_sentences(documents, room, sep):
    """Return a list of sequences, lists of at most room ids."""
    ...


# %%
def draw_documents(rng):
    room = int(rng.integers(8, 13))
    documents = [
        [rng.integers(10, 99, size=int(rng.integers(1, 5))).tolist() for _ in range(int(rng.integers(1, 6)))]
        for _ in range(int(rng.integers(1, 6)))
    ]
    if rng.random() < 0.3:
        documents.append([list(range(room))])
    return ([] if rng.random() < 0.05 else documents), room, 7


def sentences_by_counting(documents, room, sep):
    """Decide by counts alone which sentences share a sequence, then join them."""
    every = [(number, one) for number, document in enumerate(documents) for one in document]
    sequences, begin = [], 0
    while begin < len(every):
        end, size = begin + 1, len(every[begin][1])
        while end < len(every):
            size += len(every[end][1]) + (every[end][0] != every[end - 1][0])
            if size > room:
                break
            end += 1
        sequence = list(every[begin][1])
        for before, after in zip(every[begin : end - 1], every[begin + 1 : end], strict=True):
            sequence += [sep] * (before[0] != after[0]) + after[1]
        sequences.append(sequence)
        begin = end
    return sequences


lesson.check(full_sentences, draw=draw_documents, same_as=sentences_by_counting, times=60)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Keep the sequence that is being filled in `current`. At the beginning of a document, what comes in between is `[sep]`,
# unless `current` is empty.
#
# </details>
# <details><summary>Hint 2</summary>
#
# If `current`, what comes in between, and the sentence have more than `room` ids together, put `current` away and begin
# with an empty one and nothing in between. Do not forget the last sequence.
#
# </details>
# <details><summary>Solution 15.2</summary>
#
# ```python
# def full_sentences(documents, room, sep):
#     sequences, current = [], []
#     for document in documents:
#         between = [sep] if current else []
#         for sentence in document:
#             if len(current + between + sentence) > room:
#                 sequences.append(current)
#                 current, between = [], []
#             current = current + between + sentence
#             between = []
#     return sequences + [current] if current else sequences
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `[sep] if current else []` | `[sep]` | A sequence does not begin with a separator. |
# | `[sep] if current else []` | `[]` | Where a document ends within a sequence, the separator comes before the next sentence. |
# | `len(current + between + sentence) > room` | `len(current + sentence) > room` | The separator takes up room as well. |
# | `> room` | `>= room` | A sequence may have exactly as many ids as there is room. |
# | `current, between = [], []` | `current = []` | A separator that no longer fits is dropped: the next sequence begins with the sentence. |
# | `sequences + [current] if current else sequences` | `sequences` | The last sequence is missing. |
# | `            between = []` | `            between = [sep]` | Within a document there is nothing between two sentences. |
# | `between = [sep] if current else []` | `sequences, current, between = sequences + [current] * bool(current), [], []` | A document goes on in the sequence of the one before, as long as there is room. |
#
# </details>

# %%
fill = full_sentences if lesson.passed("15.2") else sentences_by_counting
ROOM = 64
documents = [[]]
for line in islice(sentences([embedded_corpus()]), lesson.scale(20_000, 1_000)):
    if line:
        documents[-1].append(list(range(min(ROOM, len(line.split())))))  # words, as far as they fit
    else:
        documents.append([])
documents = [document for document in documents if document]
filled = fill(documents, ROOM, -1)
lengths = {
    "a sentence each": np.array([len(one) for document in documents for one in document]),
    "whole sentences, to the full": np.array([len(one) for one in filled]),
}
figure, axes = plt.subplots(figsize=(6.6, 2.6), layout="constrained")
for (name, values), style in zip(lengths.items(), ("C1--", "C0-"), strict=True):
    axes.plot(np.sort(values)[::-1], np.linspace(0, 100, len(values)), style, label=name)
axes.set(
    xlabel="words",
    ylabel="sequences at least so long (%)",
    title=f"Sequences of at most {ROOM} words of the books",
)
axes.legend(frameon=False, fontsize=8)
medians = [int(np.median(values)) for values in lengths.values()]
course.show(
    figure,
    "The share of sequences that are at least so long: single sentences are mostly short, with a median of "
    f"{medians[0]} words; sequences of whole sentences are longer, with a median of {medians[1]}.",
)
course.say(
    "Of the room, "
    + " and ".join(
        f"**{100 * values.mean() / ROOM:.0f}%** is used by {name}" for name, values in lengths.items()
    )
    + "."
)

# %% [markdown]
# ## 3. LayerNorm in front of the branch
#
# BERT's blocks are post-norm: $y = \mathrm{LN}(x + f(x))$. Nearly everything that was built since has $y = x +
# f(\mathrm{LN}(x))$, the **pre-norm** arrangement. The difference is what is left of the identity. The derivative of a
# pre-norm block is
#
# $$ \frac{\partial y}{\partial x} = I + J_f\, J_{LN} , $$
#
# and so there is a path from the last layer to the first on which nothing is multiplied: $x_L = x_0 + \sum_l f_l$. In
# the post-norm block $J_{LN}$ multiplies the sum, $J_{LN}(I + J_f)$, and is applied to the gradient in every layer.
# Xiong et al. (2020) show that this is what makes BERT need its warm-up.
#
# ### Exercise 15.3 (core): a block with the norm in front
#
# `x` is (T,H). What the branch is does not matter, so you get it as a function: `branch(x)` returns a result (T,H) and what
# its backward needs, and so does `norm(x)`. `branch_backward(dy, saved)` and `norm_backward(dy, saved)` return the gradient
# of x, (T,H), and look after the gradients of their parameters themselves. Save the pair (what the norm saved, what the
# branch saved).


# %%
# Exercise 15.3
def pre_norm(x, norm, branch):
    """Return x + branch(norm(x)) (T,H), and the pair of what norm and branch have saved."""
    ...


def pre_norm_backward(dy, saved, norm_backward, branch_backward):
    """Return dx (T,H)."""
    ...


# %%
def plain_norm(x, eps=0.1):
    """Normalise rows, without scale and shift."""
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + eps)


def gradient_of(f, x):
    """Return the gradient of a scalar function of x, one complex step for each element."""
    elements = np.eye(x.size).reshape(x.size, *x.shape)
    return np.array([complex_step(f, x, one) for one in elements]).reshape(x.shape)


def a_branch(W):
    """Make a branch tanh(x W), and its backward."""
    return lambda x: (np.tanh(x @ W), np.tanh(x @ W)), lambda dy, y: (dy * (1 - y * y)) @ W.T


def a_norm():
    """Make a norm that saves its input, and its backward, whose gradient is the complex step's."""

    def norm_backward(dy, x):
        return gradient_of(lambda one: (dy * plain_norm(one)).sum(), x)

    return lambda x: (plain_norm(x), x), norm_backward


def draw_block(rng):
    return rng.standard_normal((3, 5)), a_norm()[0], a_branch(rng.standard_normal((5, 5)))[0]


def draw_block_backward(rng):
    x, W = rng.standard_normal((3, 5)), rng.standard_normal((5, 5))
    saved = (x, np.tanh(plain_norm(x) @ W))
    draws_of_blocks[saved[1].tobytes()] = W
    return rng.standard_normal((3, 5)), saved, a_norm()[1], a_branch(W)[1]


draws_of_blocks = {}


def pre_norm_in_steps(x, norm, branch):
    result, kept = branch(norm(x)[0])
    return result + x, (norm(x)[1], kept)


def block_by_complex_step(dy, saved, norm_backward, branch_backward):
    W = draws_of_blocks[saved[1].tobytes()]
    return gradient_of(lambda x: (dy * (x + np.tanh(plain_norm(x) @ W))).sum(), saved[0])


lesson.check(pre_norm, draw=draw_block, same_as=pre_norm_in_steps)
lesson.check(pre_norm_backward, draw=draw_block_backward, same_as=block_by_complex_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The forward has three lines: the norm, the branch of what comes out of it, and the sum with x as it came.
#
# </details>
# <details><summary>Hint 2</summary>
#
# x is used twice, in the sum and in the norm, so two gradients add: dy itself, and what has gone back through the branch
# and then through the norm.
#
# </details>
# <details><summary>Solution 15.3</summary>
#
# ```python
# def pre_norm(x, norm, branch):
#     normal, saved_norm = norm(x)
#     out, saved_branch = branch(normal)
#     return x + out, (saved_norm, saved_branch)
#
#
# def pre_norm_backward(dy, saved, norm_backward, branch_backward):
#     saved_norm, saved_branch = saved
#     d_normal = branch_backward(dy, saved_branch)
#     return dy + norm_backward(d_normal, saved_norm)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `x + out` | `normal + out` | What goes around the branch is x as it came, not normalised. |
# | `branch(normal)` | `branch(x)` | The branch reads what comes out of the norm. |
# | `x + out` | `out` | The residual connection is missing. |
# | `(saved_norm, saved_branch)` | `(saved_branch, saved_norm)` | What the norm has saved comes first. |
# | `dy + norm_backward(d_normal, saved_norm)` | `norm_backward(d_normal, saved_norm)` | The gradient of the path around the branch is missing. |
# | `dy + norm_backward(d_normal, saved_norm)` | `dy + d_normal` | The gradient has to go back through the norm, too. |
# | `dy + norm_backward(d_normal, saved_norm)` | `norm_backward(dy + d_normal, saved_norm)` | The path around the branch goes around the norm as well. |
# | `return x + out, (saved_norm, saved_branch)` | `out, saved_branch = branch(x); out, saved_norm = norm(x + out); return out, (saved_norm, saved_branch)` | That is post-norm, as in BERT: here the norm stands in front of the branch. |
#
# </details>

# %%
rng = np.random.default_rng(3)
x, W = rng.standard_normal((1, 6)), rng.standard_normal((6, 6))


def jacobian(f, x):
    """Return dy_i / dx_j for a row x, a column for every direction."""
    return np.stack([complex_step(f, x, direction[None])[0] for direction in np.eye(x.shape[1])], axis=1)


J_branch = jacobian(lambda one: np.tanh(one @ W), plain_norm(x))
J_norm = jacobian(plain_norm, x)
block = jacobian(lambda one: one + np.tanh(plain_norm(one) @ W), x)
course.equal("the pre-norm block", block, np.eye(6) + J_branch @ J_norm)

# %% [markdown]
# Now the gradient that arrives at each layer. Take twelve untrained layers, arranged in one way and then in the other,
# with the same weights. They are drawn so large that a branch returns about as much as it gets, as it does after some
# training. How long is the gradient of the loss with respect to what enters each layer? The class below has the
# switches of the whole chapter. Where a switch is off it is your engine, unchanged.


# %%
def silu_plain(x):
    s = 0.5 + 0.5 * np.tanh(0.5 * x)
    return x * s, (x, s)


def silu_plain_backward(dy, saved):
    x, s = saved
    return dy * (s + x * s * (1 - s))


def gated_plain(x, act):
    G = x.shape[1] // 2
    opened, kept = act(x[:, :G])
    return opened * x[:, G:], (kept, opened, x[:, G:])


def gated_plain_backward(dy, saved, act_backward):
    dx = np.empty((len(dy), 2 * dy.shape[1]), dy.dtype)
    dx[:, : dy.shape[1]] = act_backward(dy * saved[2], saved[0])
    dx[:, dy.shape[1] :] = dy * saved[1]
    return dx


def turned(x, positions, base):
    """Rotate by multiplying complex numbers."""
    half = x.shape[2] // 2
    rates = np.exp(-math.log(base) * np.arange(half) / half)
    factors = np.exp(1j * positions[:, None] * rates)[:, None]
    real, imaginary = factors.real, factors.imag
    first, second = x[:, :, :half], x[:, :, half:]
    return np.concatenate([first * real - second * imaginary, first * imaginary + second * real], -1)


PARTS = {
    "pre_norm": pre_norm_in_steps,
    "pre_norm_backward": lambda dy, saved, norm_backward, branch_backward: (
        dy + norm_backward(branch_backward(dy, saved[1]), saved[0])
    ),
    "rotate": turned,
    "rotate_backward": lambda dy, positions, base: turned(dy, -positions, base),
    "gated": gated_plain,
    "gated_backward": gated_plain_backward,
    "silu": silu_plain,
    "silu_backward": silu_plain_backward,
}  # of the judge; yours replace them as they pass


class Modern(type(engine)):
    """Your engine with switches: LayerNorm in front, positions as angles, a gate in the feed-forward network."""

    def __init__(self, pre=False, angles=0.0, gate=None):
        super().__init__()
        self._pre, self._angles, self._gate = pre, angles, gate

    def attention(self, q, k, v, cu_seqlens, causal=False, drop=None, site=0):
        if self._angles:
            q, k = (
                PARTS["rotate"](one, _places(cu_seqlens), self._angles).astype(one.dtype) for one in (q, k)
            )
        return super().attention(q, k, v, cu_seqlens, causal, drop, site)

    def attention_backward(self, dy, saved):
        dq, dk, dv = super().attention_backward(dy, saved)
        if self._angles:
            places = _places(saved.cu_seqlens)
            dq, dk = (
                PARTS["rotate_backward"](one, places, self._angles).astype(one.dtype) for one in (dq, dk)
            )
        return dq, dk, dv

    def attention_block(self, x, params, cu_seqlens, config, drop, layer, rows=None):
        if not self._pre:
            return super().attention_block(x, params, cu_seqlens, config, drop, layer, rows)

        def norm(x):
            if layer == 0:  # the embeddings have just been normalised
                return x, None
            return self.layer_norm(x, params["gamma"], params["beta"], config.layer_norm_eps)

        def branch(x):
            qkv, saved_qkv = self.linear(x, params["qkv_weight"], params["qkv_bias"])
            q, k, v = qkv.reshape(len(x), 3, config.A, config.D).swapaxes(0, 1)
            context, saved_attention = self.attention(q, k, v, cu_seqlens, config.is_decoder)
            out, saved_out = self.linear(
                context.reshape(x.shape), params["output_weight"], params["output_bias"]
            )
            return out, (saved_qkv, saved_attention, saved_out)

        y, saved = PARTS["pre_norm"](x, norm, branch)
        saved_rows = None
        if rows is not None:
            y, saved_rows = self.take_rows(y, rows)
        return y, (saved, saved_rows)

    def attention_block_backward(self, dy, saved, params, grads):
        if not self._pre:
            return super().attention_block_backward(dy, saved, params, grads)
        saved, saved_rows = saved
        if saved_rows is not None:
            dy = self.take_rows_backward(dy, saved_rows)

        def norm_backward(dy, saved):
            return dy if saved is None else self._norm_backward(dy, saved, grads)[0]

        def branch_backward(dy, saved):
            saved_qkv, saved_attention, saved_out = saved
            d_context, _ = self._linear_backward(dy, saved_out, grads, "output_weight", "output_bias")
            d_parts = self.attention_backward(d_context.reshape(saved_attention.q.shape), saved_attention)
            d_qkv = np.concatenate([one.reshape(len(dy), -1) for one in d_parts], axis=1)
            return self._linear_backward(d_qkv, saved_qkv, grads, "qkv_weight", "qkv_bias")[0]

        return PARTS["pre_norm_backward"](dy, saved, norm_backward, branch_backward), grads

    def feed_forward_block(self, x, params, config, drop, layer):
        if not (self._pre or self._gate):
            return super().feed_forward_block(x, params, config, drop, layer)

        def norm(x):
            return self.layer_norm(x, params["gamma"], params["beta"], config.layer_norm_eps)

        def act(x):
            return PARTS["silu"](x) if self._gate == "silu" else self.gelu(x, config.gelu_form)

        def branch(x):
            inner, saved_inner = self.linear(x, params["in_weight"], params["in_bias"])
            inner, saved_act = PARTS["gated"](inner, act) if self._gate else act(inner)
            weight = params["out_weight"][: inner.shape[1]]  # with a gate half of the rows are not needed
            out, saved_out = self.linear(inner, weight, params["out_bias"])
            return out, (saved_inner, saved_act, saved_out)

        if self._pre:
            return PARTS["pre_norm"](x, norm, branch)
        out, saved_branch = branch(x)
        y, saved_norm = norm(x + out)
        return y, (saved_norm, saved_branch)

    def feed_forward_block_backward(self, dy, saved, params, grads, config):
        if not (self._pre or self._gate):
            return super().feed_forward_block_backward(dy, saved, params, grads, config)

        def norm_backward(dy, saved):
            return self._norm_backward(dy, saved, grads)[0]

        def act_backward(dy, saved):
            if self._gate == "silu":
                return PARTS["silu_backward"](dy, saved)
            return self.gelu_backward(dy, saved, config.gelu_form)

        def branch_backward(dy, saved):
            saved_inner, saved_act, saved_out = saved
            d_inner, d_weight, d_bias = self.linear_backward(dy, saved_out)
            grads["out_weight"][: len(d_weight)] += d_weight
            self.add_gradients(grads, out_bias=d_bias)
            if self._gate:
                d_inner = PARTS["gated_backward"](d_inner, saved_act, act_backward)
            else:
                d_inner = act_backward(d_inner, saved_act)
            return self._linear_backward(d_inner, saved_inner, grads, "in_weight", "in_bias")[0]

        if self._pre:
            return PARTS["pre_norm_backward"](dy, saved, norm_backward, branch_backward), grads
        d_sum = norm_backward(dy, saved[0])
        return d_sum + branch_backward(d_sum, saved[1]), grads

    def layers(self, layer, params, x):
        x, kept = super().layers(layer, params, x)
        if self._pre:  # one LayerNorm at the end: the one that the first layer does not need
            last = params[0]["attention"]
            x, saved = self.layer_norm(x, last["gamma"], last["beta"], 1e-12)
            kept = (*kept, saved)
        return x, kept

    def layers_backward(self, layer_backward, dy, saved, params, grads, first=0):
        if self._pre:
            *saved, saved_norm = saved
            dy, _ = self._norm_backward(dy, saved_norm, grads[0]["attention"])
        return super().layers_backward(layer_backward, dy, saved, params, grads, first)


def _places(cu_seqlens):
    """Return the place of each token in its sequence, (T,)."""
    return np.arange(cu_seqlens[-1]) - np.repeat(cu_seqlens[:-1], np.diff(cu_seqlens))


def use(number, *functions):
    """Put functions of the reader in the judge's place if the exercise has passed."""
    if lesson.passed(number):
        PARTS.update({one.__name__: one for one in functions})


use("15.3", pre_norm, pre_norm_backward)


# %%
def batch_of(ids, places, labels):
    """Pack rows of ids, with the places that are hidden and what stood there."""
    rows = zip(ids, places, labels, strict=True)
    return Batch.pack([Sequence(row, 0 * row, place, label) for row, place, label in rows])


def fresh_batch(source, count, rng):
    """Draw windows, each with one letter hidden."""
    ids = windows(source, count, rng)
    return batch_of(*hide(ids, rng.random(ids.shape), 1, MASK, 0))


class Listening(Modern):
    """Remembers how long the gradient is that arrives at each layer."""

    def layers_backward(self, layer_backward, dy, saved, params, grads, first=0):
        self._lengths = []

        def listening(dy, *rest):
            dx, grads = layer_backward(dy, *rest)
            self._lengths.append(float(np.linalg.norm(dx)))
            return dx, grads

        return super().layers_backward(listening, dy, saved, params, grads, first)


deep = replace(config, num_hidden_layers=12, initializer_range=config.H**-0.5)
deep_params = initialise(deep, 0, np.float64)
some = fresh_batch(training, 32, np.random.default_rng(4))
lengths_of = {}
for name, pre in (("LayerNorm behind the sum (BERT)", False), ("LayerNorm in front of the branch", True)):
    listening = Listening(pre=pre)
    loss_and_gradient(listening, deep, deep_params, deep_params.zeros_like(), some)
    lengths_of[name] = np.array(listening._lengths[::-1])
figure, axes = plt.subplots(figsize=(6.6, 2.9), layout="constrained")
for (name, values), style in zip(lengths_of.items(), ("C1^--", "C0o-"), strict=True):
    axes.semilogy(range(1, 13), values / values[-1], style, ms=5, label=name)
axes.set(xlabel="layer", ylabel="length, last layer = 1", title="The gradient on its way down twelve layers")
axes.legend(frameon=False, fontsize=8)
course.show(
    figure,
    "Length of the gradient that arrives at each of twelve untrained layers, relative to the last, for both arrangements.",
)
behind, in_front = (values / values[-1] for values in lengths_of.values())
course.say(
    f"With LayerNorm behind the sum the gradient is shortest in layer {behind.argmin() + 1}, **{behind.min():.2f}** times its "
    f"length at the top, and **{behind[0]:.2f}** times in layer 1. With LayerNorm in front it is never below "
    f"**{in_front.min():.2f}** times, and **{in_front[0]:.1f}** times in layer 1."
)

# %% [markdown]
# A path on which nothing is multiplied does not keep the gradient at one length. What goes around the branches arrives
# whole, and every branch adds a part of its own, so the gradient may grow on its way down; a LayerNorm behind the sum
# rescales it in every layer.
#
# Only a derivative can tell whether a gradient is right. For every variant of this chapter we shall do what chapter 07
# did for a whole BERT, but at once: along one random direction in the space of *all* parameters, compare what the
# backward says with the complex step of the loss.


# %%
def proven(name, ops, config=config):
    """Compare the gradient of the loss along a random direction with the complex step."""
    rng = np.random.default_rng(5)
    params = initialise(config, 1, np.float64)
    params.flat += 0.05 * rng.standard_normal(params.flat.shape)
    batch = fresh_batch(training, 6, rng)
    direction, grads = rng.standard_normal(params.flat.shape), params.zeros_like()
    loss_and_gradient(ops, config, params, grads, batch)

    def loss(flat):
        return bert.pretraining_loss(ops, config, params.like(flat).tree, batch)[0].loss

    exact = complex_step(loss, params.flat, direction)
    course.equal(f"the gradient of {name}", float(grads.flat @ direction), float(exact), 1e-10)


proven("plain BERT in your engine", Modern())
proven("BERT with LayerNorm in front", Modern(pre=True))

# %% [markdown]
# ## 4. Positions as angles
#
# BERT learns a vector for each position and adds it once, at the bottom. What attention needs is something else: how far
# two tokens are apart. **Rotary positions** (Su et al. 2021, known as RoPE) put the distance into the scores directly. Cut
# each query and each key into pairs of numbers, and rotate the pair $k$ of the token at position $i$ by the angle
# $i\,\omega_k$:
#
# $$ \begin{pmatrix} a' \\ b' \end{pmatrix} =
#    \begin{pmatrix} \cos i\omega_k & -\sin i\omega_k \\ \sin i\omega_k & \cos i\omega_k \end{pmatrix}
#    \begin{pmatrix} a \\ b \end{pmatrix}, \qquad \omega_k = \mathrm{base}^{-2k/D} . $$
#
# With $R_i$ for all these rotations together, a score becomes
#
# $$ (R_i q)\cdot(R_j k) = q^{\mathsf T} R_i^{\mathsf T} R_j\, k = q \cdot R_{j-i}\, k , $$
#
# and depends on the distance alone. No parameter is needed, and lengths do not change. The derivative of a rotation is
# the rotation itself, so its backward is the transpose, which turns back.
#
# ### Exercise 15.4 (core): rotate
#
# `x` is (T,A,D), `positions` (T,) whole numbers. The partner of column $k$ is column $k + D/2$, for $k < D/2$, as in
# most published models. Return x rotated; the backward gets the gradient of that and returns the gradient of x.


# %%
# Exercise 15.4
def rotate(x, positions, base):
    """Return x (T,A,D), each pair rotated by its position times its rate."""
    ...


def rotate_backward(dy, positions, base):
    """Return dx (T,A,D)."""
    ...


# %%
def draw_rotation(rng):
    T, A, D = 5, 3, 2 * int(rng.integers(3, 5))
    return rng.standard_normal((T, A, D)), rng.permutation(30)[:T], float(rng.uniform(5, 50))


def rotation_by_complex_step(dy, positions, base):
    return gradient_of(lambda x: (dy * turned(x, positions, base)).sum(), np.zeros_like(dy))


lesson.check(rotate, draw=draw_rotation, same_as=turned, times=4)
lesson.check(rotate_backward, draw=draw_rotation, same_as=rotation_by_complex_step, times=3)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The rates are `base ** (-np.arange(half) / half)` with `half = D // 2`. The angles are (T,1,D/2), one for each token and
# pair, the same for all heads.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Cut x into its left and its right half of columns and write down the two rows of the matrix. The transpose of a rotation
# is the rotation by the opposite angle.
#
# </details>
# <details><summary>Solution 15.4</summary>
#
# ```python
# def rotate(x, positions, base):
#     half = x.shape[2] // 2
#     rates = base ** (-np.arange(half) / half)
#     angles = (positions[:, None] * rates)[:, None]
#     cos, sin = np.cos(angles), np.sin(angles)
#     left, right = x[:, :, :half], x[:, :, half:]
#     return np.concatenate([left * cos - right * sin, left * sin + right * cos], axis=2)
#
#
# def rotate_backward(dy, positions, base):
#     return rotate(dy, -positions, base)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `left * cos - right * sin` | `left * cos + right * sin` | A rotation has one minus: the first row is cos, −sin. |
# | `left * cos - right * sin, left * sin + right * cos` | `left * cos + right * sin, right * cos - left * sin` | That turns the other way: the minus belongs in the first row of the matrix. |
# | `(-np.arange(half) / half)` | `(-np.arange(half) / (2 * half))` | The exponent is −2k/D, which is −k/half. |
# | `(-np.arange(half) / half)` | `(np.arange(half) / half)` | The rates fall from 1 on: the exponent is negative. |
# | `left, right = x[:, :, :half], x[:, :, half:]` | `left, right = x[:, :, ::2], x[:, :, 1::2]` | That pairs neighbours, as some models do; here the partner of column k is column k + D/2. |
# | `left, right = x[:, :, :half], x[:, :, half:]` | `left, right = x[:, :, ::2], x[:, :, 1::2]; return np.stack([left * cos - right * sin, left * sin + right * cos], 3).reshape(x.shape)` | That pairs neighbours, as some models do; here the partner of column k is column k + D/2. |
# | `rotate(dy, -positions, base)` | `rotate(dy, positions, base)` | The backward is the transpose, and turns back. |
# | `rotate(dy, -positions, base)` | `dy` | A rotation has a derivative: the gradient has to be turned, too. |
# | `positions[:, None] * rates` | `np.arange(len(positions))[:, None] * rates` | The positions are given; with several sequences in a batch they do not count through. |
#
# </details>

# %%
use("15.4", rotate, rotate_backward)
rng = np.random.default_rng(4)
q, k = rng.standard_normal((2, 1, 1, 24))


def at(x, position, base=100.0):
    """Return the row x, rotated for a position."""
    return PARTS["rotate"](x, np.array([position]), base)


course.equal("the same distance, the same score", (at(q, 9) * at(k, 4)).sum(), (at(q, 25) * at(k, 20)).sum())
course.equal("one rotation for the distance", (at(q, 9) * at(k, 4)).sum(), (q * at(k, 4 - 9)).sum())
course.equal("the length does not change", (at(q, 9) ** 2).sum(), (q**2).sum())
proven("BERT with positions as angles", Modern(angles=100.0))

# %%
distances = np.arange(0, 33)
figure, axes = plt.subplots(figsize=(6.6, 2.9), layout="constrained")
for base, style in ((10_000.0, "C2:"), (100.0, "C0-"), (10.0, "C1--")):
    ones = np.ones((1, 1, 24))
    scores = [(at(ones, one, base) * ones).sum() / 24 for one in distances]
    axes.plot(distances, scores, style, label=f"base {base:,.0f}")
axes.axhline(0, color="0.6", lw=0.8)
axes.set(
    xlabel="distance", ylabel="score of equal vectors", title="What a rotation makes of equal query and key"
)
axes.legend(frameon=False, fontsize=8)
course.show(
    figure,
    "The score of a query and an equal key against their distance, for three bases: it falls from one and then wavers, the "
    "sooner the smaller the base is.",
)

# %% [markdown]
# After a full turn a pair is where it began, and can't tell the distance from zero. The base sets how far that is for the
# slowest pair. Models for long texts raise it.
#
# ## 5. A gate in the feed-forward network
#
# BERT's feed-forward network is $\mathrm{gelu}(x W_1)\, W_2$. A **gated linear unit** (Dauphin et al. 2017; Shazeer 2020)
# has two products in front, and one of them opens or closes the other:
#
# $$ \bigl(\mathrm{act}(x W_g) \odot x W_v\bigr) W_2 . $$
#
# The sign $\odot$ means that the two are multiplied number by number. With GELU as `act` it is called GEGLU, and with
# $\mathrm{silu}(a) = a\,s(a)$, $s(a) = 1/(1 + e^{-a})$, SwiGLU. A product of two things that were computed from $x$ is what
# a plain layer can't do in one go. There are three matrices where there were two, so the width is made smaller: with
# $G = \tfrac23 F$ there are as many parameters, $3HG = 2HF$.
#
# For the backward write $u = \mathrm{act}(a)\, b$. Then $\mathrm da = \mathrm{act}'(a)\, b\, \mathrm du$ and $\mathrm db =
# \mathrm{act}(a)\, \mathrm du$. And $\mathrm{silu}'(a) = s + a\, s\,(1 - s)$, since $s' = s(1-s)$.
#
# ### Exercise 15.5 (core): SiLU and the gate
#
# `silu` gets an array of any shape, and returns the result and the pair (x, s) for its backward, arrays of this shape.
# `gated` gets both products side by side, x (T,2G), the gate on the left, and a function `act(x)`, which returns a result
# and what its backward needs. It returns act(left half) times the right half, (T,G), and saves the triple (what act saved,
# act(left half), the right half of x). `gated_backward` gets the gradient `dy` (T,G), this triple and
# `act_backward(dy, saved)`, and returns the gradient of x, (T,2G).


# %%
# Exercise 15.5
def silu(x):
    """Return x s(x), and the pair (x, s) of arrays like x."""
    ...


def silu_backward(dy, saved):
    """Return dx, of the shape of dy."""
    ...


def gated(x, act):
    """Return act(left) * right (T,G), and the triple of what act saved, act(left), and right."""
    ...


def gated_backward(dy, saved, act_backward):
    """Return dx (T,2G)."""
    ...


# %%
def draw_activation(rng):
    return (3 * rng.standard_normal((4, 3)),)


def draw_silu_backward(rng):
    return rng.standard_normal((4, 3)), silu_plain(3 * rng.standard_normal((4, 3)))[1]


def silu_by_complex_step(dy, saved):
    return gradient_of(lambda x: (dy * x / (1 + np.exp(-x))).sum(), saved[0])


def an_act(x):
    """Return a curve that no one would guess, and its slope."""
    return np.sin(x) + 0.3 * x, np.cos(x) + 0.3


def draw_gated(rng):
    return rng.standard_normal((3, 2 * int(rng.integers(2, 5)))), an_act


def draw_gated_backward(rng):
    x = rng.standard_normal((3, 2 * int(rng.integers(2, 5))))
    draws_of_gates[x[:, x.shape[1] // 2 :].tobytes()] = x
    return rng.standard_normal((3, x.shape[1] // 2)), gated_plain(x, an_act)[1], lambda dy, slope: dy * slope


draws_of_gates = {}


def gate_by_complex_step(dy, saved, act_backward):
    x, G = draws_of_gates[saved[2].tobytes()], dy.shape[1]
    return gradient_of(lambda one: (dy * an_act(one[:, :G])[0] * one[:, G:]).sum(), x)


lesson.check(silu, draw=draw_activation, same_as=silu_plain)
lesson.check(silu_backward, draw=draw_silu_backward, same_as=silu_by_complex_step)
lesson.check(gated, draw=draw_gated, same_as=gated_plain)
lesson.check(gated_backward, draw=draw_gated_backward, same_as=gate_by_complex_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `gate, value = np.split(x, 2, axis=1)` cuts x in the middle.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The gradient of the left half is `act_backward(dy * value, saved_act)`, that of the right half `dy * opened`. Lay them
# side by side in this order.
#
# </details>
# <details><summary>Solution 15.5</summary>
#
# ```python
# def silu(x):
#     s = 1 / (1 + np.exp(-x))
#     return x * s, (x, s)
#
#
# def silu_backward(dy, saved):
#     x, s = saved
#     return dy * (s + x * s * (1 - s))
#
#
# def gated(x, act):
#     gate, value = np.split(x, 2, axis=1)
#     opened, saved_act = act(gate)
#     return opened * value, (saved_act, opened, value)
#
#
# def gated_backward(dy, saved, act_backward):
#     saved_act, opened, value = saved
#     d_gate = act_backward(dy * value, saved_act)
#     return np.concatenate([d_gate, dy * opened], axis=1)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `dy * (s + x * s * (1 - s))` | `dy * s * (1 - s)` | That is the slope of s alone; silu is x times s, and a product has two terms. |
# | `dy * (s + x * s * (1 - s))` | `dy * s` | The slope of s is missing: s depends on x as well. |
# | `dy * (s + x * s * (1 - s))` | `dy * x * s * (1 - s)` | The product rule has two terms; s itself is missing. |
# | `gate, value = np.split(x, 2, axis=1)` | `value, gate = np.split(x, 2, axis=1)` | The gate is the left half. |
# | `opened * value, (saved_act` | `opened + value, (saved_act` | A gate multiplies. |
# | `act_backward(dy * value, saved_act)` | `act_backward(dy, saved_act)` | What the gate lets through is a factor of its gradient. |
# | `[d_gate, dy * opened]` | `[dy * opened, d_gate]` | The gradient of the gate is the left half. |
# | `x * s, (x, s)` | `s, (x, s)` | That is the logistic function; silu multiplies it by x. |
# | `dy * opened]` | `dy * value]` | The gradient of one factor is the other factor: here the opened gate. |
# | `dy * (s + x * s * (1 - s))` | `dy * (s + s * (1 - s))` | In the second term x multiplies the slope of s. |
#
# </details>

# %%
use("15.5", silu, silu_backward, gated, gated_backward)
GATE = replace(config, intermediate_size=2 * (2 * config.F // 3))  # both products side by side
H, F, G = config.H, config.F, GATE.F // 2
course.equal("as many parameters in use", 3 * H * G, 2 * H * F)
proven("BERT with GEGLU", Modern(gate="gelu"), GATE)
proven("BERT with SwiGLU", Modern(gate="silu"), GATE)

# %%
a, b = np.meshgrid(np.linspace(-3, 3, 121), np.linspace(-3, 3, 121))
figure, every = plt.subplots(1, 2, figsize=(7.4, 3.1), layout="constrained", sharey=True)
surfaces = {
    "GELU of a sum of both": Ops().gelu(a + b, "erf")[0],
    "GELU of a, times b": Ops().gelu(a, "erf")[0] * b,
}
for axes, (name, surface) in zip(every, surfaces.items(), strict=True):
    image = axes.contourf(a, b, surface, levels=np.linspace(-9, 9, 19), cmap="PuOr")
    axes.set(title=name, xlabel="a, the gate")
every[0].set_ylabel("b, the value")
figure.colorbar(image, ax=every)
course.show(
    figure,
    "Two surfaces over the gate a and the value b. The GELU of a sum has straight, parallel contours; GELU of a times b is "
    "flat where the gate is closed and a saddle where it is open.",
)

# %% [markdown]
# On the left only the sum of the two counts, so each can stand in for the other. On the right the gate decides whether the
# value matters at all: where $a$ is far below zero, the surface is flat whatever $b$ is, and where $a$ is large, it follows
# $b$.
#
# ## 6. Muon: a matrix is not a list
#
# Adam divides each number of a gradient by its own typical size, and does not know that the numbers form matrices. The
# gradient of a matrix is often dominated by a few directions: some singular values are large and the rest are tiny (the
# picture below has those of one gradient). Muon (Jordan et al. 2024) moves along the nearest orthogonal matrix instead. If
# the mean gradient is $U \Sigma V^{\mathsf T}$, it goes along $U V^{\mathsf T}$: all directions alike, the rare ones as far
# as the common ones. That is the idea; how near one gets to it we shall see.
#
# A singular value decomposition is slow. But an odd polynomial of a matrix acts on its singular values and leaves the
# singular vectors alone:
#
# $$ a X + b\,(X X^{\mathsf T}) X + c\,(X X^{\mathsf T})^2 X = U\,(a\Sigma + b\Sigma^3 + c\Sigma^5)\,V^{\mathsf T} . $$
#
# A **Newton–Schulz iteration** repeats one that drives every $\sigma$ in $(0, 1]$ towards 1. Muon takes $a = 3.4445$,
# $b = -4.775$, $c = 2.0315$, five times. They do not settle at 1; they get quickly into a band around it, and that turned
# out to be enough.

# %%
rng = np.random.default_rng(6)
U, sigma, Vt = np.linalg.svd(rng.standard_normal((4, 7)) / 9, full_matrices=False)
X = (U * sigma) @ Vt
square = X @ X.T
by_matrix = 3.4445 * X - 4.775 * square @ X + 2.0315 * square @ square @ X
by_values = 3.4445 * sigma - 4.775 * sigma**3 + 2.0315 * sigma**5
course.equal("a polynomial of a matrix", by_matrix, (U * by_values) @ Vt)

# %% [markdown]
# ### Exercise 15.6 (hard): Muon
#
# `orthogonal` divides a matrix x (M,N) by its Frobenius norm, the root of its sum of squares, and applies the polynomial
# above five times.
#
# `muon` updates the flat buffers `params`, `m` and `v` (N,) in place, like `adamw` of chapter 09, and returns the three.
# `tensors` has a row `[begin, end, decays, rows, matrices]` for each tensor: its numbers are those from `begin` up to `end`
# in each buffer. Where `matrices` is 0, call
# `self.adamw(params, grads, m, v, ranges, rule)` with the tensor's slices of the buffers. `ranges` has a row `[begin, end]`
# for each stretch of a slice that decays: one row for the whole slice if `decays` is 1, no row, (0,2), if it is 0.
# Otherwise the tensor has so many `rows`, and in each row lie the rows of `matrices` matrices side by side, as those of
# queries, keys and values do. Then, with $\beta$ = `rule.beta1` and $g$ the gradient times `rule.clip`:
#
# 1. $m \leftarrow \beta m + (1-\beta) g$, in place; $v$ stays as it is;
# 2. one step ahead: $n = \beta m + (1-\beta) g$. **Nesterov momentum** takes the gradient where the momentum is about to
#    lead; mixing the gradient into the new momentum a second time comes near that and needs no other gradient;
# 3. each matrix of $n$ is made orthogonal on its own and multiplied by $\sqrt{\max(\text{rows}, \text{columns})}$;
# 4. that, plus `rule.weight_decay` times the parameters, times `rule.lr`, is subtracted from the parameters.


# %%
# Exercise 15.6
def orthogonal(x):
    """Return x (M,N) with its singular values brought near 1."""
    ...


def muon(self, params, grads, m, v, tensors, rule):
    """Update params, m and v (N,) in place by one step of Muon or AdamW, and return the three."""
    ...


# %%
TENSORS = np.array(
    [[0, 12, 1, 3, 1], [12, 17, 0, 0, 0], [17, 41, 1, 4, 3], [41, 46, 1, 0, 0], [46, 54, 1, 4, 1]]
)
updated = []  # the arrays of the latest question: an answer that works in place returns the same ones


def draw_matrix(rng):
    return (rng.standard_normal((int(rng.integers(3, 6)), int(rng.integers(3, 6)))),)


def polynomial_of_singular_values(x):
    U, sigma, Vt = np.linalg.svd(x, full_matrices=False)
    sigma = sigma / np.sqrt((sigma * sigma).sum())
    for _ in range(5):
        sigma = 3.4445 * sigma - 4.775 * sigma**3 + 2.0315 * sigma**5
    return (U * sigma) @ Vt


def draw_update(rng):
    x, g, m = rng.standard_normal((3, 54))
    v = rng.uniform(0.2, 2, 54)
    updated.append((x, m, v))
    rule = AdamRule(
        lr=float(rng.uniform(0.05, 0.3)), step=int(rng.integers(2, 9)), beta1=float(rng.uniform(0.3, 0.8)),
        beta2=float(rng.uniform(0.4, 0.9)), weight_decay=float(rng.uniform(0.2, 0.6)),
        clip=float(rng.uniform(0.3, 0.9)),
    )  # fmt: skip
    return x, g, m, v, TENSORS, rule


def in_place(answer, *_):
    same = all(one is given for one, given in zip(answer, updated[-1], strict=True))
    return None if same else "the numbers are right, but in new arrays; change the given ones in place."


lesson.check(orthogonal, draw=draw_matrix, same_as=polynomial_of_singular_values, tolerance=1e-9)
lesson.check(muon, draw=draw_update, same_as=Ops().muon, law=in_place, tolerance=1e-9)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# One product `square = x @ x.T` serves both powers: the polynomial is `a * x + (b * square + c * square @ square) @ x`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `ahead.reshape(rows, matrices, -1)` has matrix number i in `[:, i]`. `np.stack(…, axis=1).ravel()` puts the results
# back. For `self.adamw`, the ranges that decay are `np.array([[0, len(params[s])]])[:decays]`.
#
# </details>
# <details><summary>Solution 15.6</summary>
#
# ```python
# def orthogonal(x):
#     x = x / np.linalg.norm(x)
#     for _ in range(5):
#         square = x @ x.T
#         x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
#     return x
#
#
# def muon(self, params, grads, m, v, tensors, rule):
#     for begin, end, decays, rows, matrices in tensors.tolist():
#         s = slice(begin, end)
#         if not matrices:
#             decayed = np.array([[0, len(params[s])]])[:decays]
#             self.adamw(params[s], grads[s], m[s], v[s], decayed, rule)
#             continue
#         fresh = (1 - rule.beta1) * rule.clip * grads[s]
#         m[s] = rule.beta1 * m[s] + fresh
#         ahead = (rule.beta1 * m[s] + fresh).reshape(rows, matrices, -1)
#         scale = math.sqrt(max(rows, ahead.shape[2]))
#         parts = [scale * orthogonal(ahead[:, i]) for i in range(matrices)]
#         direction = np.stack(parts, axis=1).ravel()
#         params[s] -= rule.lr * (direction + rule.weight_decay * params[s])
#     return params, m, v
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `x = x / np.linalg.norm(x)` | `pass` | Singular values above 1 grow without bound: divide by the norm first. |
# | `x = x / np.linalg.norm(x)` | `x = x / abs(x).max()` | The largest number is not a bound of the singular values; the Frobenius norm is one. |
# | `(-4.775 * square` | `(4.775 * square` | The middle term is subtracted. |
# | `ahead = (rule.beta1 * m[s] + fresh)` | `ahead = (m[s] + 0)` | Nesterov momentum goes a step ahead: the new momentum is mixed with the gradient once more. |
# | `orthogonal(ahead[:, i]) for i in range(matrices)` | `np.split(orthogonal(ahead.reshape(rows, -1)), matrices, axis=1)[i] for i in range(matrices)` | Matrices that lie side by side are made orthogonal one by one. |
# | `math.sqrt(max(rows, ahead.shape[2]))` | `1` | The direction is scaled by the root of the larger side, so that its numbers are about 1. |
# | `direction + rule.weight_decay * params[s]` | `direction` | Weight decay is missing. |
# | `[:decays]` | `[:]` | Biases and LayerNorm do not decay. |
# | `params[s] -= ` | `params = params.copy(); params[s] -= ` | `params = …` gives the name to another array; write into `params[s]`. |
# | `np.linalg.norm(x)` | `np.linalg.norm(x, 2)` | `np.linalg.norm(x, 2)` is the largest singular value; the Frobenius norm is asked for. |
# | `range(5)` | `range(4)` | The polynomial is applied five times. |
#
# </details>

# %%
make_orthogonal = orthogonal if lesson.passed("15.6") else polynomial_of_singular_values
params = initialise(config, 0, np.float64)
grads = params.zeros_like()
loss_and_gradient(engine, config, params, grads, fresh_batch(training, 64, np.random.default_rng(7)))
gradient = grads["layers.0.feed_forward.in_weight"]
before = np.linalg.svd(gradient, compute_uv=False)
after = np.linalg.svd(make_orthogonal(gradient), compute_uv=False)
figure, axes = plt.subplots(figsize=(6.6, 2.8), layout="constrained")
axes.semilogy(before / before[0], "C1--", label="of the gradient, largest = 1")
axes.semilogy(np.sort(after)[::-1], "C0-", label="after the iteration")
axes.set(
    ylim=(1e-8, 3),
    xlabel="number",
    ylabel="singular value",
    title="A gradient of the feed-forward network, before and after",
)
axes.legend(frameon=False, fontsize=8)
course.show(
    figure,
    "The singular values of a gradient fall over orders of magnitude; the iteration brings the largest ones near one and "
    "raises the others several hundredfold.",
)
tenth = len(before) // 10
shares = [100 * (np.sort(one)[-tenth:] ** 2).sum() / (one**2).sum() for one in (before, after)]
course.say(
    f"A tenth of the singular values carry **{shares[0]:.0f}%** of the squared length of this gradient, and **"
    f"{shares[1]:.0f}%** after the iteration. Five times the polynomial raises a small one {3.4445**5:.0f}-fold at most: "
    f"what is tiny beside the largest stays small."
)

# %% [markdown]
# ## 7. What each of them is worth, here
#
# Now the runs. Every run of a pair has the same seed, hence the same first weights and the same letters; what differs is
# the change alone. The loss is that of hidden letters in held-out windows. For each pair we take the difference, and
# the mean of the differences has a 95% interval by Student's $t$ with one degree of freedom less than there are seeds.
# If zero lies inside, these runs can't tell.
#
# * *masks*: for this pair there are only a few hundred windows to learn from, read over and over, with the same masks
#   each time or with fresh ones.
# * *next sentences*: each window is two halves. In half of the windows the second half comes from elsewhere, and the
#   model is asked which. Plain BERT, in this laboratory, reads windows as they were written.
# * *positions as angles*: the learnt positions are taken away.
# * *GEGLU, SwiGLU*: as many parameters are in use.
# * *everything*: LayerNorm in front, angles, GEGLU and Muon together.

# %%
few = windows(training, lesson.scale(256, 16), np.random.default_rng(8))
fixed_draws = np.random.default_rng(9).random(few.shape)
test_ids = windows(held_out, lesson.scale(3000, 100), np.random.default_rng(10))
test_batch = batch_of(*hide(test_ids, np.random.default_rng(11).random(test_ids.shape), 1, MASK, 0))


def few_windows(rng, fresh):
    """Draw some of the few windows, masked anew or as ever."""
    chosen = rng.integers(len(few), size=S)
    draws = rng.random((S, N))
    return batch_of(*hide(few[chosen], draws if fresh else fixed_draws[chosen], 1, MASK, 0))


def pairs_of_halves(rng):
    """Draw windows of two halves, and ask whether the second one follows."""
    ids, segments = windows(training, S, rng), np.repeat([0, 1], N // 2)
    other = rng.random(S) < 0.5
    ids[other, N // 2 :] = windows(training, S, rng)[other, N // 2 :]
    hidden, places, labels = hide(ids, rng.random(ids.shape), 1, MASK, 0)
    rows = zip(hidden, places, labels, other, strict=True)
    return Batch.pack([
        Sequence(row, segments.astype(np.int32), place, label, int(far)) for row, place, label, far in rows
    ])  # fmt: skip


def train(seed, ops=None, config=config, batch=None, optimizer="adamw", positions=True):
    """Train a fresh model, and return the loss of each hidden letter of the held-out windows."""
    ops = ops or Modern()
    batch = batch or (lambda rng: fresh_batch(training, S, rng))
    params = initialise(config, seed)
    grads, m, v = params.zeros_like(), np.zeros_like(params.flat), np.zeros_like(params.flat)
    rng = np.random.default_rng(seed)

    def seen(batch):
        return batch if positions else replace(batch, positions=0 * batch.positions)

    for step in range(1, STEPS + 1):
        loss_and_gradient(ops, config, params, grads, seen(batch(rng)))
        rate = warmup_linear(step, STEPS + 1, STEPS // 5, PEAK)
        rule = AdamRule(rate, step, clip=ops.clip_factor(ops.global_norm(grads.flat), 1.0))
        ranges = params.matrices if optimizer == "muon" else params.decayed
        getattr(ops, optimizer)(params.flat, grads.flat, m, v, ranges, rule)
    return bert.pretraining_loss(ops, config, params.tree, seen(test_batch))[0].mlm_nll.astype(np.float64)


engine = lesson.engine()  # Muon may be yours by now
if "muon" in lesson.mine:
    Modern.muon = lesson.mine["muon"]
ARMS = {  # what is changed: with it, and without it
    "masks anew, not repeated": (dict(batch=lambda rng: few_windows(rng, True)), "repeated masks"),
    "no next sentences": ({}, "next sentences"),
    "pre-norm": (dict(ops=Modern(pre=True)), "plain"),
    "rotary positions": (dict(ops=Modern(angles=100.0), positions=False), "plain"),
    "GEGLU": (dict(ops=Modern(gate="gelu"), config=GATE), "plain"),
    "SwiGLU": (dict(ops=Modern(gate="silu"), config=GATE), "plain"),
    "Muon": (dict(optimizer="muon"), "plain"),
    "everything": (
        dict(ops=Modern(pre=True, angles=100.0, gate="gelu"), config=GATE, optimizer="muon", positions=False),
        "plain",
    ),
}
BASES = {
    "plain": {},
    "repeated masks": dict(batch=lambda rng: few_windows(rng, False)),
    "next sentences": dict(batch=pairs_of_halves),
}
base_losses = {name: [train(seed, **choice) for seed in range(SEEDS)] for name, choice in BASES.items()}
arm_losses = {
    name: base_losses["plain"] if not choice else [train(seed, **choice) for seed in range(SEEDS)]
    for name, (choice, _) in ARMS.items()
}


# %%
def t_quantile(freedom, share=0.975):
    """Return a quantile of Student's t, by adding up its density."""
    t = np.linspace(0, 60, 600_001)
    density = (1 + t * t / freedom) ** (-(freedom + 1) / 2)
    return t[np.searchsorted(density.cumsum() / density.sum(), 2 * share - 1)]


def t_interval(values):
    """Return the mean of paired values, and the ends of its interval."""
    half = t_quantile(len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return values.mean(), values.mean() - half, values.mean() + half


def gain_of(name):
    """Return the mean gain over the seeds, its interval, and the gains themselves."""
    without, with_it = base_losses[ARMS[name][1]], arm_losses[name]
    gains = np.array([a.mean() - b.mean() for a, b in zip(without, with_it, strict=True)])
    return *t_interval(gains), gains


gains = {name: gain_of(name) for name in ARMS}
verdicts = {
    name: "helps" if low > 0 else "hurts" if high < 0 else "these runs can't tell"
    for name, (_, low, high, _) in gains.items()
}
print(f"{'change':28}{'without':>9}{'with':>8}{'gain':>9}   95% interval       {SEEDS} pairs of seeds")
for name, (mean, low, high, _) in gains.items():
    without = np.mean([one.mean() for one in base_losses[ARMS[name][1]]])
    print(
        f"{name:28}{without:9.3f}{without - mean:8.3f}{mean:+9.3f}   [{low:+.3f}, {high:+.3f}]   {verdicts[name]}"
    )
single = ("pre-norm", "rotary positions", "GEGLU", "Muon")
best = max(single, key=lambda name: gains[name][0])
labels_of_choices = dict(
    zip(single, ("pre-norm blocks", "rotary positions", "gated feed-forward", "Muon"), strict=True)
)
level = [name for name in single if name != best and t_interval(gains[best][3] - gains[name][3])[1] <= 0]
remark = f"the mean gain of {best} is {gains[best][0]:.3f} nats"
for name in level:
    remark += f", that of {name} {gains[name][0]:.3f}"
if level:
    remark += "; zero is in the interval of their difference, so these runs can't tell which is more"
guess.answer(" or ".join(labels_of_choices[name] for name in (best, *level)), f"{remark}.")

# %%
figure, axes = plt.subplots(figsize=(7.4, 3.4), layout="constrained")
for height, (mean, low, high, each) in enumerate(reversed(gains.values())):
    colour = "C0" if low > 0 else "C1" if high < 0 else "0.5"
    axes.plot([low, high], [height, height], color=colour, lw=2.5)
    axes.plot(mean, height, "o", color=colour, ms=7)
    axes.plot(each, np.full(len(each), height), "|", color=colour, ms=9, alpha=0.7)
axes.axvline(0, color="k", lw=0.8, ls="--")
axes.set_yticks(range(len(gains)), reversed(list(gains)))
axes.set(
    xlabel="gain in held-out loss (nats), with 95% intervals over seeds",
    title="Each change beside its own control",
)
course.show(
    figure,
    "For each change the gain in held-out loss with its interval over seeds and the single pairs; grey where zero lies "
    "inside the interval.",
)

# %% [markdown]
# Was there anything to gain? A run at the floor has learnt nothing but frequencies. Next to it, the letters of the run
# with everything, with an untrained model as the control.

# %%
unigram = -np.log(frequencies[test_batch.masked_labels])
untrained = bert.pretraining_loss(Modern(), config, initialise(config, 0).tree, test_batch)[0].mlm_nll
claim = lesson.claim(
    "the run with everything uses the letters around the gap",
    arm_losses["everything"][0],
    unigram,
    {"untrained": untrained.astype(np.float64)},
    unit="nats per hidden letter",
)
helped = [name for name in ARMS if verdicts[name] == "helps"]
open_ones = [name for name in ARMS if verdicts[name] == "these runs can't tell"]
course.say(
    f"Clear of zero: **{', '.join(helped) or 'none'}**. Not to be told from these runs: **{', '.join(open_ones) or 'none'}**."
)

# %% [markdown]
# Read this with care, in both directions. A run this short is spent mostly on the wait of chapter 08, and a change that
# shortens the wait looks like a miracle here and may look like nothing after a million steps. For positions as angles the
# most likely story is just that: a head that looks at a neighbour does not have to be discovered, for every score depends
# on the distance from the start. The masks have a few hundred windows to repeat themselves in, and a model that can learn
# them by heart; with a thousand times the text and ten masks for each, the authors of RoBERTa saw next to no difference.
# And a change that makes no clear difference here may be what makes 28 layers trainable at all, as is said of pre-norm:
# two layers can do without. What carries over is the method: one change, equal tokens, paired seeds, and an interval.
#
# ## 8. What ModernBERT took
#
# ModernBERT (Warner et al. 2024) is BERT's encoder as one would build it now. Side by side, with what this chapter has
# measured; the last column is computed from the runs above.

# %%
ROWS = (
    ("masks", "15%, drawn beforehand", "drawn anew (30% in ModernBERT)", "masks anew, not repeated"),
    ("second task", "next sentence", "none", "no next sentences"),
    ("LayerNorm", "behind the sum", "in front of the branch, and once at the end", "pre-norm"),
    (
        "positions",
        "learnt, added once, up to 512",
        "angles in every attention, up to 8,192",
        "rotary positions",
    ),
    ("feed-forward", "GELU", "GEGLU", "GEGLU"),
    ("optimizer", "Adam", "StableAdamW, a variant of AdamW; Muon came later", "Muon"),
    ("biases", "everywhere", "none but in the last output layer", ""),
    (
        "attention",
        "all tokens, every layer",
        "all tokens in every third layer, 128 neighbours in the others",
        "",
    ),
    ("padding", "up to the longest", "none, as in minibert", ""),
)
table = ["| | BERT, 2018 | ModernBERT, 2024 | here |", "|---|---|---|---|"]
for what, then, now, arm in ROWS:
    measured = "not measured"
    if arm:
        mean, low, high, _ = gains[arm]
        measured = f"{arm}: {mean:+.2f} nats [{low:+.2f}, {high:+.2f}], {verdicts[arm]}"
    table.append(f"| {what} | {then} | {now} | {measured} |")
course.say("\n".join(table))

# %% [markdown]
# ## What we saw
#
# * RoBERTa left the model alone and fed it better. Fresh masks ask about every place sooner or later.
# * With LayerNorm in front, x goes around all branches untouched, and so does the gradient on its way back.
# * A rotation of queries and keys makes a score depend on the distance, costs no parameter, and its backward turns back.
# * A gate is a product of two functions of the input. At two thirds of the width it costs the same.
# * Muon evens out the singular values of a step, by nothing but products.
# * None of these is a matter of belief: the gradient of each was proven, and its gain has an interval. Where zero was
#   inside, we said so.

# %%
lesson.keep()

# %% [markdown]
# ## Words
#
# - **dynamic masking**: drawing new hidden places whenever a sequence is read.
# - **pre-norm**: LayerNorm at the entrance of a branch, with the sum left as it is.
# - **rotary positions**: positions as rotations of queries and keys, so that scores depend on distances.
# - **Nesterov momentum**: momentum whose gradient is that of a step further on.
# - **gated linear unit**: a layer that multiplies two linear functions of its input, one of them through a curve.
# - **Newton–Schulz iteration**: repeating a polynomial of a matrix until its singular values are near 1.
#
# ## Where to go next
#
# * [Chapter 16](16_to_the_machines_limit.ipynb) asks how fast all of this could be on your machine.
# * Liu et al. 2019, *RoBERTa*, section 4; Xiong et al. 2020, *On Layer Normalization in the Transformer Architecture*; Su
#   et al. 2021, *RoFormer*; Shazeer 2020, *GLU Variants Improve Transformer*; Warner et al. 2024, *Smarter, Better,
#   Faster, Longer*.
# * `minibert/core/ops/updates.py` has Muon, and `minibert pretrain --optimizer muon` trains with it.
