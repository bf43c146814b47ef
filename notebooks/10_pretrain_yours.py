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
# # 10 · Pre-train yours
#
# To run this notebook: `pip install '.[notebooks]'` from a checkout of minibert. Nothing is downloaded. It
# takes one or two minutes, most of that in one cell.
#
# **The question.** Nine chapters ago a BERT was something other people trained. Can you pre-train one on an engine
# whose every formula, forward and backward, is yours? And how would you convince someone who doubts that it learnt
# anything?
#
# **After this chapter you can**
#
# * write a training step, read the loop around it, and prove the loop equal to the library's, to the last bit;
# * cut a batch into parts without changing its gradient;
# * draw the reference lines that give a learning curve meaning;
# * claim that a model has learnt, with an interval and with controls that must fail.

# %%
# %matplotlib inline
import json
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from minibert import Bert, Tokenizer, course
from minibert.core.batch import Batch
from minibert.core.bert import pretraining_loss, pretraining_loss_backward
from minibert.core.config import BertConfig
from minibert.core.ops import AdamRule
from minibert.core.optim import warmup_linear
from minibert.course.finale import learn_pieces, masked_and_packed
from minibert.course.routes import counted_losses, library_step
from minibert.data.corpus import embedded_corpus, sentences
from minibert.data.instances import InstanceOptions, Instances, split_documents
from minibert.data.shards.store import write_shards
from minibert.engines import limited_threads
from minibert.engines.trace import watch
from minibert.hub import save_hf
from minibert.model.ops import Ops
from minibert.model.params import Parameters, initialise
from minibert.pretraining.evaluation import (
    evaluation_batches,
    per_position,
    scored_positions,
    shuffle_contexts,
)
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import Text
from minibert.pretraining.run import pretrain
from minibert.reports import viz
from minibert.tokenizer import BasicTokenizer, count_words, learn_vocab

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
lesson = course.begin("10")
limits = limited_threads(1)  # several threads are slower here, and add in a different order

# %% [markdown]
# ## 1. What is yours
#
# Here is the proof sheet of your engine, judged once more on fresh shapes. It lists everything that a step of
# pre-training needs.

# %%
lesson.sheet()

# %% [markdown]
# Two engines come out of it. The first takes minibert's operation wherever yours is open, so that this chapter runs to
# its end in any case. The second has no such safety net: it is **sealed**, which means that any operation
# that is neither yours nor on the printed list of **plumbing** raises an error. Plumbing is whatever contains
# none of BERT's mathematics: type conversion, adding into an accumulator, walking over a list of layers, the
# bits of dropout.

# %%
engine, sealed = lesson.engine(), lesson.sealed()

# %% [markdown]
# An engine is not a run. Around it there is a vocabulary, there are masks, a batch, a rate and a step, and you wrote
# these as well. What has passed is in `mine.py`, next to the engine, and goes into the last run. Wherever something is
# open, minibert's own stands in, and here you see which. (The step is exercise 10.2, further down.)

# %%
count_pairs, gain_of = lesson.tool("count_pairs"), lesson.tool("gain")
mask_tokens, pack = lesson.tool("mask_tokens"), lesson.tool("pack")
rate_of = lesson.tool("learning_rate") or warmup_linear

# %% [markdown]
# ## 2. A corpus, and what can be known without reading it
#
# Here is the way from text to numbers, chapters 01 to 03, in twenty lines. (Your own two functions are plain Python. To
# save time, they learn the pieces from the most frequent words alone, and before each join the gain is computed for the
# most frequent pairs only.) **For a corpus of your own**, put the path of a text file, or of a folder of them, in place
# of `embedded_corpus()`: plain text, blank lines between documents. A few megabytes are plenty. Documents at regular
# intervals are **held out**: training never sees them, and everything measured below is measured on them.

# %%
corpus = embedded_corpus()
folder = Path(tempfile.mkdtemp())
length = 8  # short, as chapter 08 advises a short run: there are few places to look, so they are soon found

counts = count_words((line for line in sentences(corpus) if line), BasicTokenizer())
if count_pairs and gain_of:
    common = dict(Counter(counts).most_common(lesson.scale(3_000, 500)))
    vocab, by = learn_pieces(common, 2_048, count_pairs, gain_of), "your count of pairs and your gain"
else:
    vocab, by = learn_vocab(counts, 2_048), "minibert's own count and gain"
tokenizer = Tokenizer(vocab)
print(f"{len(vocab):,} pieces, learnt with {by}; the longest: {', '.join(sorted(vocab, key=len)[-5:])}")
tokenizer.save_pretrained(folder / "vocabulary")
shards = write_shards(sentences(corpus), tokenizer, folder / "shards")
text = Text(tokenizer, shards, *split_documents(shards.n_documents, next_sentence=False))
masking = InstanceOptions(seq_length=length, next_sentence=False)


def batches(size=128):
    """Yield batches of freshly masked sequences without end, as the library makes them."""
    stream = Instances(shards, text.train_ids, tokenizer, masking).stream()
    while True:
        yield Batch.pack([sequence for sequence, _ in islice(stream, size)])


held_out = list(evaluation_batches(text.held_out(length, False), tokenizer.mask_id, lesson.scale(6_000, 300)))
course.say(
    f"{shards.n_documents:,} documents of {shards.n_tokens:,} tokens; {len(text.held_out_ids):,} documents are held "
    f"out. The first batch looks like this:"
)
first = next(batches())
for row in first.input_ids[: 3 * length].reshape(3, length):
    print(" ".join(f"{tokenizer.vocab[i]:>9}" for i in row))

# %% [markdown]
# Before any training we lay **floors**: losses that can be reached without understanding. A curve that has no floors
# drawn under it says nothing.
#
# * Equal chances for all pieces: $\ln V$.
# * The right frequencies, but no look at the context: the entropy of the pieces, the unigram floor. Nothing that
#   ignores the context can get below it.
# * One neighbour. Count which piece follows which, and guess from the piece on the left alone.
#
# The third needs care. Most pairs of pieces never occur in any corpus, and a guess of probability zero costs an
# infinite loss. So the counts of pairs are mixed with the frequencies of single pieces:
#
# $$ p(v \mid u) = \frac{c(u,v) + \lambda\, p(v)}{c(u) + \lambda}, \qquad p(v) = \frac{c(v) + 1}{N + V} $$
#
# where $c(u,v)$ counts how often $v$ follows $u$, $c(u)$ how often $u$ has a follower, $c(v)$ how often $v$ occurs at
# all, and $N$ is the number of all pieces. After a frequent $u$ the pairs decide, after a rare one the frequencies. It
# takes a line of algebra to see that $p(\cdot \mid u)$ sums to one for every $u$, and here it is checked with numbers:

# %%
toy = np.array([2, 0, 1, 1, 0, 2, 1, 0, 0, 2])  # a text of ten pieces, of which there are three kinds
pairs = np.zeros((3, 3))  # c(u, v)
for u, v in zip(toy[:-1], toy[1:], strict=True):
    pairs[u, v] += 1
single = (np.bincount(toy, minlength=3) + 1) / (len(toy) + 3)  # p(v)
strength = 5.0  # lambda
mixed = (pairs + strength * single) / (pairs.sum(1, keepdims=True) + strength)  # p(v | u)
course.equal("probabilities after each piece sum to one", mixed.sum(1), np.ones(3))
guess = lesson.predict(
    "How many nats under the unigram floor is the floor of one neighbour, on the held-out text?", ...
)

# %% [markdown]
# ### Exercise 10.1 (core): the floor of one neighbour
# `ids` (N,) is the training text, whole numbers below V; the pairs to count are neighbours in it. `left` (n,) and
# `target` (n,) are the pairs that are asked about, and `strength` is $\lambda$. Return $-\ln p(v \mid u)$ for each of
# them, with $u$ from `left` and $v$ from `target`, an array (n,).


# %%
# Exercise 10.1
def neighbour_losses(ids, left, target, V, strength):
    """Return -ln p(target | left) for each pair, (n,); strength is lambda."""
    ...


# %%
lesson.check(neighbour_losses)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `np.bincount(ids, minlength=V)` counts pieces. The same function counts pairs, if each pair is made into one
# number: `u * V + v`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `pairs = np.bincount(ids[:-1] * V + ids[1:], minlength=V * V).reshape(V, V)` is $c(u,v)$, and `pairs.sum(1)` is $c(u)$.
#
# </details>
# <details><summary>Solution 10.1</summary>
#
# ```python
# def neighbour_losses(ids, left, target, V, strength):
#     single = (np.bincount(ids, minlength=V) + 1) / (len(ids) + V)
#     pairs = np.bincount(ids[:-1] * V + ids[1:], minlength=V * V).reshape(V, V)
#     mixed = pairs[left, target] + strength * single[target]
#     return -np.log(mixed / (pairs.sum(1)[left] + strength))
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `pairs[left, target]` | `pairs[target, left]` | The pair is (left, target): what is on the left comes first. |
# | `pairs.sum(1)[left]` | `pairs.sum(0)[left]` | c(u) counts how often u is on the left of something, not on the right. |
# | `strength * single[target]` | `strength / V` | The counts are mixed with the frequencies of pieces, not with equal chances. |
# | `(np.bincount(ids, minlength=V) + 1) / (len(ids) + V)` | `np.bincount(ids, minlength=V) / len(ids)` | A piece that the text lacks would have probability 0, and an infinite loss: count every piece once more. |
# | `(len(ids) + V)` | `len(ids)` | Each of V pieces was counted once more, so the sum is N + V. |
# | `-np.log(mixed` | `np.log(mixed` | A loss is minus the logarithm. |
# | `/ (pairs.sum(1)[left] + strength)` | `/ pairs.sum(1)[left]` | Without lambda in the denominator the probabilities do not sum to one. |
# | `ids[:-1] * V + ids[1:]` | `ids[1:] * V + ids[:-1]` | The pair is (left, target): what is on the left comes first. |
# | `pairs.sum(1)[left]` | `np.bincount(ids, minlength=V)[left]` | c(u) counts how often u has a follower; the last piece of the text has none. |
# | `.reshape(V, V)` | `.reshape(V, V).clip(max=1)` | A pair that occurs twice counts twice; `pairs[…] += 1` counts it once. |
#
# </details>

# %%
learnt_from = text.train_ids[: lesson.scale(len(text.train_ids), 60)]
train_ids = np.concatenate([shards.document(int(number))[0] for number in learnt_from]).astype(np.int64)
V = tokenizer.vocab_size


def targets_of(batch):
    """Return the rows of a batch that show [MASK]: the ones that are measured."""
    return batch.masked_rows[scored_positions(batch.input_ids[batch.masked_rows], tokenizer.mask_id)]


def original(batch):
    """Return the pieces of a batch before masking."""
    ids = batch.input_ids.astype(np.int64)
    ids[batch.masked_rows] = batch.masked_labels
    return ids


targets = np.concatenate([original(one)[targets_of(one)] for one in held_out])
lefts = np.concatenate([original(one)[targets_of(one) - 1] for one in held_out])
rights = np.concatenate([original(one)[targets_of(one) + 1] for one in held_out])
own_frequencies = np.bincount(targets, minlength=V) / len(targets)
unigram = -np.log(own_frequencies[targets])  # one value for each target; its mean is their entropy
neighbour = neighbour_losses if lesson.passed("10.1") else counted_losses
left_floor = neighbour(train_ids, lefts, targets, V, 100.0)
right_floor = neighbour(train_ids[::-1], rights, targets, V, 100.0)
floors = {
    "equal chances, $\\ln V$": np.log(V),
    "unigram floor": unigram.mean(),
    "left neighbour": left_floor.mean(),
    "right neighbour": right_floor.mean(),
}
gain = unigram.mean() - left_floor.mean()
guess.answer(float(gain), "a single neighbour, looked up in a table of counts, is worth that much.")
course.say("; ".join(f"{name}: {value:.3f} nats" for name, value in floors.items()) + ".")

# %% [markdown]
# We have been hard on ourselves: the unigram floor uses the frequencies of *exactly these* held-out targets, which
# nobody could know. The neighbour tables have no such advantage. There is one gap in eight tokens, so the model sees
# the neighbour too, and the one on the other side.

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.2))
edges = np.linspace(0, 14, 57)
for name, values, style in (("unigram", unigram, "-"), ("left neighbour", left_floor, "--")):
    axes.hist(values, edges, histtype="step", ls=style, lw=1.5, label=f"{name}, mean {values.mean():.2f}")
axes.set(title="Loss of each held-out target", xlabel="nats", ylabel="targets")
axes.legend(fontsize=8)
course.show(
    figure,
    "Histograms of the loss of held-out targets under the unigram frequencies and under a table of left "
    "neighbours, which has more targets at low losses.",
)

# %% [markdown]
# ## 3. One step
#
# A training step turns parameters and moments into new ones: loss, backward, norm, clip, update. You wrote the last
# three in chapter 09. We ask for the step as a *pure* function: it leaves its arguments alone and returns new arrays.
# That costs a copy, and makes it easy to check.
#
# ### Exercise 10.2 (hard): the step
# `flat`, `m` and `v` (N,) are buffers of all N parameters and their two moments. `Parameters(config, buffer).tree` gives
# a buffer its names; `params.decayed` are the ranges with weight decay, as `ops.adamw(flat, grads, m, v, decayed, rule)`
# wants them. The rule is `AdamRule(lr=rate, step=number, clip=…)`, with gradients clipped to a norm of at most 1. Return
# three new buffers (N,) and the loss, a number.
#
# `pretraining_loss(ops, config, params.tree, batch)` returns the loss and what is saved; `.loss` of the first is the
# number. `pretraining_loss_backward(ops, config, saved, params.tree, grads.tree)` adds the gradient into `grads =
# params.zeros_like()`. `ops.global_norm` and `ops.clip_factor` are those of 09.3.


# %%
# Exercise 10.2
def train_step(ops, config, flat, m, v, batch, number, rate):
    """Return flat, m, v after update `number` (from 1) at this learning rate, and the loss before it (a float)."""
    ...


# %%
lesson.check(train_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `adamw` changes what it is given, and your step must not. Which three buffers have to be copied before you call it? The
# parameters of the forward pass are `Parameters(config, …)` of one of these copies.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `clip = ops.clip_factor(ops.global_norm(grads.flat), 1.0)` goes into the rule; the gradient itself stays as it is.
#
# </details>
# <details><summary>Solution 10.2</summary>
#
# ```python
# def train_step(ops, config, flat, m, v, batch, number, rate):
#     params = Parameters(config, flat.copy())
#     grads = params.zeros_like()
#     loss, saved = pretraining_loss(ops, config, params.tree, batch)
#     pretraining_loss_backward(ops, config, saved, params.tree, grads.tree)
#     clip = ops.clip_factor(ops.global_norm(grads.flat), 1.0)
#     rule = AdamRule(lr=rate, step=number, clip=clip)
#     flat, m, v = ops.adamw(params.flat, grads.flat, m.copy(), v.copy(), params.decayed, rule)
#     return flat, m, v, float(loss.loss)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `step=number, clip=clip` | `step=number` | The gradient is not clipped: the rule has to know the factor. |
# | `step=number` | `step=number + 1` | Updates count from 1, and number is that count already; the correction of the moments depends on it. |
# | `Parameters(config, flat.copy())` | `Parameters(config, flat)` | The update works in place, so what was given changes. Copy it first. |
# | `params.decayed, rule` | `params.decayed[:0], rule` | Weights decay; the ranges that do are params.decayed. |
# | `m.copy(), v.copy()` | `0 * m, v.copy()` | The moments continue from where they were. |
# | `float(loss.loss)` | `float(loss.mlm_loss)` | The loss has two parts, masked pieces and next sentence. |
# | `ops.global_norm(grads.flat), 1.0)` | `ops.global_norm(grads.flat), 0.5)` | The limit of the norm is 1. |
#
# </details>

# %% [markdown]
# ## 4. A batch in parts
#
# A batch that does not fit into memory is cut into **micro-batches**: forward and backward for one part after another,
# gradients summed, then a single update. The sum must be the gradient of the whole batch, and there is a trap. The loss
# of a batch is the mean over its $M$ masked pieces. Parts have different numbers of them, $M_i$, so the mean of the
# parts' means is *not* the mean of the whole:
#
# $$ \frac1M \sum_{m} \ell_m = \sum_i \frac{M_i}{M} \Bigl( \frac{1}{M_i} \sum_{m \in i} \ell_m \Bigr)
#    \ne \frac1k \sum_{i=1}^{k} \Bigl( \frac{1}{M_i} \sum_{m \in i} \ell_m \Bigr) $$
#
# ### Exercise 10.3 (easy): the gradient of the whole
# `gradients` is a list of $k$ arrays of one shape, the gradients of $k$ parts: each is that of the mean over the part's
# own masked pieces. `counts` is a list of $k$ whole numbers, how many masked pieces each part has. Return the gradient of
# the mean over all masked pieces, an array of the same shape. A part without any has a gradient of zeros; if no part has
# any, return zeros.


# %%
# Exercise 10.3
def combined(gradients, counts):
    """Return the gradient of the whole batch, an array like each of `gradients`."""
    ...


# %%
lesson.check(combined)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Multiplied by its count, a part's gradient is that of its *sum*. Sums add.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `sum(g * n for g, n in zip(gradients, counts))` divided by the sum of the counts, or by 1 if that is 0.
#
# </details>
# <details><summary>Solution 10.3</summary>
#
# ```python
# def combined(gradients, counts):
#     total = sum(gradient * count for gradient, count in zip(gradients, counts, strict=True))
#     return total / max(1, sum(counts))
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `/ max(1, sum(counts))` | `/ len(counts)` | The sum runs over all masked pieces, so it is divided by their number, not by that of the parts. |
# | `gradient * count for` | `gradient for` | A part with more masked pieces has more weight: give each its count. |
# | `max(1, sum(counts))` | `max(counts)` | Divide by the number of all masked pieces. |
# | `max(1, sum(counts))` | `sum(counts)` | Without any masked piece this divides by zero. |
# | `total / max(1, sum(counts))` | `total` | This is the gradient of the sum; that of the mean is asked for. |
#
# </details>

# %% [markdown]
# minibert escapes the trap by never taking a mean: each masked piece carries the weight $1/M$ of the *whole* batch into
# whichever part it falls, so that losses and gradients of the parts simply add up. Here are both routes on the first
# batch:

# %%
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
config = BertConfig.from_size("2-64-4", vocab_size=V, max_position_embeddings=32, **NO_DROPOUT)


def new_parameters(dtype=np.float32):
    """Return the paper's initial values, with the pieces' log-frequencies as the output bias (chapter 08)."""
    params = initialise(config, 0, dtype)
    params["mlm.output_bias"][...] = text.log_unigram()
    return params


def loss_and_gradient(ops, params, batch):
    grads = params.zeros_like()
    loss, saved = pretraining_loss(ops, config, params.tree, batch)
    pretraining_loss_backward(ops, config, saved, params.tree, grads.tree)
    return float(loss.loss), grads.flat


exact = new_parameters(np.float64)
_, whole = loss_and_gradient(engine, exact, first)
summed = sum(loss_and_gradient(engine, exact, part)[1] for part in first.split(3))
course.equal("three parts, weights of the whole batch", summed, whole)

# %% [markdown]
# ## 5. The loop, in 20 lines
#
# Here is all of pre-training. The schedule is that of chapter 09: up in a straight line, then down to zero.
# As in the library, the first step has rate 0 and moves nothing.


# %%
def pretrain_mine(ops, params, stream, total, peak=3e-3, look=None):
    """Train in place for `total` updates, and return the loss of each; `look(step)` is called now and then."""
    grads, losses = params.zeros_like(), []
    m, v = np.zeros_like(params.flat), np.zeros_like(params.flat)
    for step in range(total):
        if look and step % max(1, total // 12) == 0:
            look(step)
        batch = next(stream)
        grads.flat[...] = 0
        loss, saved = pretraining_loss(ops, config, params.tree, batch)
        pretraining_loss_backward(ops, config, saved, params.tree, grads.tree)
        clip = ops.clip_factor(ops.global_norm(grads.flat), 1.0)
        rate = warmup_linear(step, total, round(0.1 * total), peak)
        rule = AdamRule(lr=rate, step=step + 1, clip=clip)
        flat, m, v = ops.adamw(params.flat, grads.flat, m, v, params.decayed, rule)
        params.flat[...] = flat
        losses.append(float(loss.loss))
    if look:
        look(total)
    return np.array(losses)


# %% [markdown]
# Is that really what the library does, with its checkpoints, prefetching threads and run folders? `pretrain` gets the
# same options, and the same engine, NumPy's. We run twenty steps of both, from the same initial weights, on the same
# batches. Before you look: how far apart will the losses be after twenty steps in single precision?

# %%
guess = lesson.predict(
    "The largest difference among 20 losses?", ..., choices=["exactly 0", "about 1e-7", "about 1e-3"]
)
options = PretrainOptions(
    corpus=() if corpus == embedded_corpus() else str(corpus),
    vocab=str(folder / "vocabulary"), size="2-64-4", max_positions=32, seq_length=str(length), batch_size=128,
    next_sentence=False, dropout=0.0, learning_rate=3e-3, warmup=0.1, steps=20, evaluations=0,
)  # fmt: skip
pretrain(options, folder / "library", show=False, ops=Ops())
lines = (folder / "library" / "metrics.jsonl").read_text().splitlines()
metrics = [json.loads(line) for line in lines]
library_losses = np.array([one["loss"] for one in metrics if "loss" in one])
loop_losses = pretrain_mine(Ops(), new_parameters(), batches(), 20)
difference = np.abs(library_losses - loop_losses).max()
guess.answer(
    "exactly 0" if difference == 0 else f"{difference:.0e}",
    "the same operations in the same order give the same bits.",
)

# %% [markdown]
# Now the other half of the proof: the loop stays, the engine changes. In double precision, twenty losses of your engine
# next to twenty of the reference. If all operations are yours, it is the sealed engine that runs here, and nothing but
# plumbing can have helped.

# %%
try:
    loss_and_gradient(sealed, exact, first)
    sealed.adamw(exact.flat.copy(), whole, 0 * whole, 0 * whole, exact.decayed, AdamRule(lr=1e-3, step=1))
    sealed.clip_factor(sealed.global_norm(whole), 1.0)
    mine, whose = sealed, "your sealed engine"
except NotImplementedError as error:
    print(f"The sealed engine refuses: {error}")
    mine, whose = engine, "your engine with minibert's stand-ins"
ours = pretrain_mine(mine, new_parameters(np.float64), batches(), 20)
reference = pretrain_mine(Ops(), new_parameters(np.float64), batches(), 20)
course.equal(f"20 losses of {whose} and of the reference", ours, reference, tolerance=1e-10)

# %% [markdown]
# And the step that you wrote in exercise 10.2, called twenty times?

# %%
if lesson.passed("10.2"):
    flat, stream, losses = new_parameters(np.float64).flat, batches(), []
    m, v = 0 * flat, 0 * flat
    for step in range(20):
        rate = warmup_linear(step, 20, 2, 3e-3)
        flat, m, v, loss = train_step(mine, config, flat, m, v, next(stream), step + 1, rate)
        losses.append(loss)
    course.equal("20 losses of your step and of the loop", losses, ours, tolerance=1e-10)
else:
    print("Exercise 10.2 is open; with it, this cell trains by your step.")

# %% [markdown]
# What does one step of yours consist of? `watch` wraps the operations of any engine and times them.

# %%
def is_yours(row):
    """Tell whether an operation of the trace is one that you wrote."""
    function = f"{row.op}_backward" if row.direction == "backward" else row.op
    return function in lesson.mine or row.op in lesson.mine


params = new_parameters()
with watch(mine) as seen:
    pretrain_mine(mine, params, batches(), 3)
calls = [row for row in seen.rows() if row.calls]
calls = sorted(calls, key=lambda row: row.seconds)[-14:]
owned = [is_yours(row) for row in calls]
figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
bars = axes.barh(
    [f"{row.op} {row.direction}" for row in calls],
    [1e3 * row.seconds / 3 for row in calls],
    color=["C0" if one else "0.75" for one in owned],
    hatch=["" if one else "//" for one in owned],
    edgecolor="white",
)
axes.bar_label(bars, [f" {row.calls // 3} call{'s' * (row.calls > 3)}" for row in calls], fontsize=8)
axes.set(
    xlabel="milliseconds per step",
    title="Where the time of a step goes: plain bars are yours, hatched minibert's",
)
course.show(
    figure,
    "Horizontal bars of the time that the fourteen slowest operations take in one training step, with the number of "
    "calls beside each; plain where the operation is the reader's own.",
)

# %% [markdown]
# ## 6. Pre-train
#
# The paper's pre-training as a whole, and yours next to it:
#
# | | BERT-BASE, in the paper | yours |
# |---|---|---|
# | text | BooksCorpus and Wikipedia, 3.3 billion words | sixteen books |
# | pieces | 30,522 | 2,048 |
# | layers × H, heads | 12 × 768, 12 | 2 × 64, 4 |
# | a step | some 128,000 tokens; nine tenths of the steps in sequences of 128, the rest of 512 | 128 of 8 |
# | steps | 1,000,000 (about 40 times through the text) | 1,200 |
# | peak rate, warm-up | 0.0001, 1% | 0.003, 10% |
# | next sentences | yes | not here, for two texts do not fit into eight tokens; in section 9, yes |
#
# Everything that you wrote is in it: the pieces, what a target shows, how a batch is laid out, the rate, the step, and the
# engine below them. minibert still finds the text's sequences and chooses their targets, and it stands in for what is
# open: the lines that section 1 has printed say so, and so does the line that the next cell prints.
#
# This is the cell that takes its time. The model has two layers and 64 numbers for each piece, and each step reads 128
# sequences of eight pieces. On the way, the loss on the held-out text is measured a dozen times. Commit to a guess
# first.

# %%
guess = lesson.predict(
    "Where will it end?",
    ...,
    choices=["above the unigram floor", "between unigram and neighbour", "under the neighbour floor"],
)


def target_losses(params, shown=held_out, ops=mine):
    """Return the loss of every held-out target."""
    found = []
    for batch in shown:
        (nll, _), _ = per_position(ops, config, params.tree, batch)
        found.append(nll[scored_positions(batch.input_ids[batch.masked_rows], tokenizer.mask_id)])
    return np.concatenate(found).astype(np.float64)


def yours(stream):
    """Hide the targets of batches and lay them out by your own functions."""
    rng = np.random.default_rng(10)
    for batch in stream:
        yield masked_and_packed(batch, tokenizer.mask_id, V, rng, mask_tokens, pack)


step_of = lesson.tool("train_step") or library_step
untrained, params = new_parameters(), new_parameters()
stream = yours(batches())
total = lesson.scale(1_200, 24)
flat = params.flat.copy()
m, v = 0 * flat, 0 * flat
losses = []  # of each step, on its batch
looks = {}  # the mean loss on the held-out text, by step
began = time.perf_counter()
for step in range(total):
    if step % (total // 12) == 0:
        looks[step] = target_losses(params).mean()
    rate = rate_of(step, total, round(0.1 * total), 3e-3)
    flat, m, v, loss = step_of(mine, config, flat, m, v, next(stream), step + 1, rate)
    params.flat[...] = flat
    losses.append(loss)
losses = np.array(losses)
end = looks[total] = target_losses(params).mean()
seconds = time.perf_counter() - began
speed = total * 128 * length / seconds
gap = abs(unigram.mean() - end)
side = "under" if end < unigram.mean() else "over"
course.say(
    f"{total:,} steps of {whose} in {seconds:.0f} seconds, {speed:,.0f} tokens per second. The held-out loss is {end:.3f} "
    f"nats, **{gap:.3f} nats {side} the unigram floor** of {unigram.mean():.3f}."
)
best = min(left_floor.mean(), right_floor.mean())
if end > unigram.mean():
    outcome = "above the unigram floor"
elif end > best:
    outcome = "between unigram and neighbour"
else:
    outcome = "under the neighbour floor"
guess.answer(outcome, f"{end:.2f} nats.")

# %%
figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
axes.plot(np.arange(1, len(losses) + 1), losses, color="C0", lw=0.4, alpha=0.5)
axes.plot(
    np.arange(1, len(losses) + 1),
    viz.smoothed(losses, max(1, len(losses) // 25)),
    color="C0",
    label="training, smoothed",
)
axes.plot(*zip(*looks.items(), strict=True), "o", color="C3", label="held out, [MASK] only")
styles = (":", "--", "-.", (0, (6, 2, 1, 2, 1, 2)))
for (name, value), style in zip(floors.items(), styles, strict=True):
    axes.axhline(value, color="0.3", lw=1, ls=style)
    at, side = (0, "left") if name == "left neighbour" else (len(losses), "right")  # two lie close together
    axes.annotate(name, (at, value), (0, 3), textcoords="offset points", ha=side, fontsize=8)
axes.set(
    xlabel="step",
    ylabel="masked-LM loss (nats)",
    ylim=(min(end, best) - 0.4, np.log(V) + 0.3),
    title="Your BERT, and what can be had without one",
)
axes.legend(loc="upper left", fontsize=8)
course.show(
    figure,
    "Training loss of every step with its smoothed curve, and a dozen held-out losses, against horizontal lines for "
    "equal chances, the unigram floor and the floors of one neighbour. The curve rests on a plateau near the unigram "
    "floor and then falls below it.",
)

# %% [markdown]
# The training curve lies lower than the dots, and that is not a sign of overfitting. One training target in
# five is left in sight or replaced at random, and those in sight are easily copied; the dots count `[MASK]`
# alone.
#
# ## 7. The claim
#
# "It learnt to use the context." To believe this you should ask for three things: a baseline that is the best anyone
# can do *without* it, an interval, and **negative controls**, experiments that must fail if the measurement is honest.
# We use three. Untrained weights. The trained model with *shuffled labels*: each target is exchanged for that
# of another place. And with *shuffled context*: it reads the same pieces in a different order.
#
# ### Exercise 10.4 (core): shuffle the context
# `ids` (T,) is a batch of sequences laid end to end; sequence $s$ is `ids[cu_seqlens[s]:cu_seqlens[s + 1]]`. Where
# `movable` is True, pieces change places at random *within their sequence*. Everything else stays where it is. `rng` is
# a NumPy generator. Return a new array.


# %%
# Exercise 10.4
def shuffle_context(ids, cu_seqlens, movable, rng):
    """Return ids (T,) in which the movable pieces of each sequence are in random order."""
    ...


# %%
lesson.check(shuffle_context)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# For each sequence, the places that may move are `places = begin + np.flatnonzero(movable[begin:end])`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `result[places] = ids[rng.permutation(places)]` puts the pieces of these places back in another order. Begin with
# `result = ids.copy()`.
#
# </details>
# <details><summary>Solution 10.4</summary>
#
# ```python
# def shuffle_context(ids, cu_seqlens, movable, rng):
#     result = ids.copy()
#     for begin, end in zip(cu_seqlens[:-1], cu_seqlens[1:], strict=True):
#         places = begin + np.flatnonzero(movable[begin:end])
#         result[places] = ids[rng.permutation(places)]
#     return result
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `result = ids.copy()` | `result = ids` | The array that was given is changed, and pieces that were overwritten are lost. |
# | `begin + np.flatnonzero(movable[begin:end])` | `begin + np.arange(end - begin)` | Pieces move that should stay in their places. |
# | `begin + np.flatnonzero(movable[begin:end])` | `np.flatnonzero(movable[begin:end])` | Places within a sequence are counted from its beginning: add `begin`. |
# | `begin + np.flatnonzero(movable[begin:end])` | `np.flatnonzero(movable)` | Pieces must not leave their own sequence. |
# | `rng.permutation(places)` | `rng.choice(places, len(places))` | Drawing with replacement duplicates some pieces and loses others. |
# | `rng.permutation(places)` | `places[::-1]` | Reversing is not shuffling: it always gives the same order. |
#
# </details>


# %%
def shuffled_batches():
    """Yield the held-out batches with shuffled contexts: [MASK] and special pieces stay."""
    if not lesson.passed("10.4"):
        yield from shuffle_contexts(held_out, tokenizer.special_ids)
        return
    rng = np.random.default_rng(10)
    for batch in held_out:
        movable = ~np.isin(batch.input_ids, list(tokenizer.special_ids))
        movable[batch.masked_rows] = False
        yield batch_with(batch, shuffle_context(batch.input_ids, batch.cu_seqlens, movable, rng))


def batch_with(batch, input_ids):
    return type(batch)(**(vars(batch) | {"input_ids": input_ids}))


def with_other_labels(batch, rng):
    """Exchange the labels of the measured places among themselves."""
    here = scored_positions(batch.input_ids[batch.masked_rows], tokenizer.mask_id)
    labels = batch.masked_labels.copy()
    labels[here] = rng.permutation(labels[here])
    return type(batch)(**(vars(batch) | {"masked_labels": labels}))


rng = np.random.default_rng(0)
controls = {
    "untrained weights": target_losses(untrained),
    "shuffled context": target_losses(params, shuffled_batches()),
    "shuffled labels": target_losses(params, [with_other_labels(one, rng) for one in held_out]),
}
trained = target_losses(params)
verdict = lesson.claim("learnt to use the context", trained, unigram, controls, unit="nats")
# %% [markdown]
# Each line compares target by target with the unigram floor. The claim holds if our whole interval is on the better
# side and no control's is. The control with shuffled labels is the harshest: a model that has learnt to be *sure* pays
# dearly when the right answer sits elsewhere.
#
# Where does the gain come from? We break the same numbers down in two ways: by how often a piece occurs in
# the training text, and by where the gap is in its sequence.

# %%
occurrences = np.bincount(train_ids, minlength=V)[targets]
borders = np.quantile(occurrences, np.linspace(0, 1, 6)).astype(int)  # of five classes of equal size
frequency = np.searchsorted(borders[1:-1], occurrences, side="right")  # the class of each target, 0 to 4
frequency_names = [f"{borders[n]:,}–\n{borders[n + 1]:,}" for n in range(5)]
position = np.concatenate([one.positions[targets_of(one)] for one in held_out])
position_names = [str(n) for n in range(1, length - 1)]
curves = (("unigram floor", unigram, "s--"), ("left neighbour", left_floor, "^:"), ("yours", trained, "o-"))


def draw_means(ax, group, names, label):
    """Draw the mean loss of each group of targets, by each of the three curves."""
    every = range(len(names))
    for name, values, style in curves:
        means = [values[group == n].mean() if (group == n).any() else np.nan for n in every]
        ax.plot(every, means, style, label=name)
    ax.set(xlabel=label, ylabel="mean loss (nats)")
    ax.set_xticks(list(every), names, fontsize=8)


figure, axes = plt.subplots(1, 2, figsize=(11, 3.3), layout="constrained")
draw_means(axes[0], frequency, frequency_names, "occurrences in the training text")
draw_means(axes[1], position - 1, position_names, "position of the gap")
axes[0].legend(fontsize=8)
course.show(
    figure,
    "Mean loss of the unigram floor, the left neighbour and the reader's model: left by frequency class of the target, "
    "falling towards frequent pieces; right by position of the gap in its sequence.",
)

# %% [markdown]
# The picture on the right shows what kind of knowledge this is. The table of left neighbours does badly at
# the first position, where only `[CLS]` is on the left, and is equally good everywhere else. Your model is
# worst at *both* ends and better in between. It uses what is on either side, and at an end one side is
# missing. That is the B in BERT, for bidirectional, seen in a measurement.
#
# The picture on the left is a warning. How much does the rarest fifth of the targets gain on the unigram floor, compared
# with the others? A small model has seen little of them in a short run. And is your curve below that of the left
# neighbours, a table that sees one piece and nothing else? Better floors make for more modest claims.
#
# ## 8. What it learnt
#
# A model this small, trained so briefly, knows little beyond a gap's neighbours, and it shows: where these say enough,
# it guesses the right kind of word (*unto him*, *in the king of*), elsewhere not even that.

# %%
model = Bert(config, params, tokenizer=tokenizer)
clozes = (
    "and he said unto [MASK],",
    "she was very [MASK] to see",
    "in the [MASK] of the",
    "I do not [MASK] it.",
)
figure, axes = plt.subplots(1, 4, figsize=(12, 2.5), layout="constrained")
for ax, cloze in zip(axes, clozes, strict=True):
    pieces, probabilities = zip(*reversed(model.fill_mask(cloze, 6)[0]), strict=True)
    ax.barh(range(6), probabilities)
    ax.set_yticks(range(6), pieces, parse_math=False)
    ax.set_title(cloze, fontsize=9)
course.show(
    figure,
    "Bars: the six likeliest pieces that the trained model puts into the gaps of four short sentences.",
)

# %%
sentence = tokenizer("he said unto the king")
for title, own in (("before training", untrained), ("after training", params)):
    seen = Bert(config, own).encode([sentence], attentions=True)
    figure = viz.draw_attention(seen.attentions[0][0], sentence.tokens, f"Layer 1, {title}", darkest=1.0)
    course.show(
        figure, f"Attention maps of the four heads of layer 1, {title}: which piece each piece looks at."
    )

# %% [markdown]
# Before training every row is nearly uniform. Afterwards at least one head shows a dark line beside the
# diagonal: it looks at the piece before, or the one after. That is the neighbour head of chapter 08, here grown on
# gradients of your own.
#
# Chapter 04 began with a word that has the same vector in every sentence. Does it still? *will* is a noun in the first
# two of these and a verb in the others, and always the third token, so that what enters the model is the same.

# %%
uses = ("the will of god", "a will of his", "he will see him", "they will go to")
states = [Bert(config, params).encode([tokenizer(one)]).hidden_states for one in uses]
for layer in range(config.L + 1):
    unit = np.array([one[layer][2] / np.linalg.norm(one[layer][2]) for one in states], float)
    cosine = unit @ unit.T
    print(
        f"layer {layer}: same use {(cosine[0, 1] + cosine[2, 3]) / 2:.2f}, other use {cosine[:2, 2:].mean():.2f}"
    )

# %% [markdown]
# It enters as one vector: at layer 0 both cosines are 1. Where the cosine of the other use has fallen below that of the
# same use, the model tells the noun from the verb by what stands around it. Four sentences illustrate that and don't
# prove it; a proof would need what section 7 asked for, many sentences, an interval and a control.
#
# The word table has changed as well. Here are the vectors of some pieces, drawn along the two directions in which they
# spread most.

# %%
words = "he she they we i you him her them us me said came went saw one two three four five day night king god lord".split()
known = [word for word in words if word in tokenizer.vocab]
rows = [tokenizer.vocab.index(word) for word in known]
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for ax, own, title in ((axes[0], untrained, "before training"), (axes[1], params, "after training")):
    table = own["embeddings.word"][rows].astype(np.float64)
    table -= table.mean(0)
    _, _, directions = np.linalg.svd(table, full_matrices=False)
    plane = table @ directions[:2].T
    ax.plot(*plane.T, ".", color="0.7")
    for word, at in zip(known, plane, strict=True):
        ax.annotate(word, at, (3, 2), textcoords="offset points", fontsize=9)
    ax.set(title=f"The word table, {title}", xticks=[], yticks=[])
course.show(
    figure,
    "Some words in the plane of the word table's two main axes: scattered without order before training; after it, "
    "pronouns, object forms and verbs lie in groups of their own.",
)

# %% [markdown]
# ## 9. Ten minutes more, if you like
#
# A minute or two is little, and eight tokens are few. If you have ten minutes, put `MINUTES = 10` below and run this section
# once more. A model of twice the width then reads longer and longer sequences: ten tokens at first, sixteen from a quarter
# of the time on, and 32 for the second half and a little more (chapter 08 says why short ones come first). The longest hold
# two texts, and so the second task of the paper is trained as well: does the second follow the first? From there on the
# training loss is the sum of two, and its curve jumps up. The whole run is yours in the sense of section 6.

# %%
MINUTES = 0  # or 10
STAGES = {10: 0.25, 16: 0.45, 32: 1.0}  # tokens of a sequence, and the share of the run at which that ends
long_config = BertConfig.from_size("2-128-4", vocab_size=V, max_position_embeddings=32, **NO_DROPOUT)


def longer_batches(tokens_each):
    """Yield batches of some 400 tokens; the longest sequences are pairs of texts."""
    masking = InstanceOptions(seq_length=tokens_each, next_sentence=tokens_each == 32)
    stream = Instances(shards, text.train_ids, tokenizer, masking).stream()
    while True:
        yield Batch.pack([sequence for sequence, _ in islice(stream, 400 // tokens_each)])


def train_longer(minutes):
    """Return the parameters after so many minutes, and the loss of each step."""
    params = initialise(long_config, 0, np.float32)
    params["mlm.output_bias"][...] = text.log_unigram()
    streams = {tokens_each: yours(longer_batches(tokens_each)) for tokens_each in STAGES}
    flat = params.flat
    m, v = 0 * flat, 0 * flat
    losses = []
    done = 0.0  # the share of the time that has passed
    began = time.perf_counter()
    while done < 1:
        tokens_each = next(tokens for tokens, until in STAGES.items() if done < until)
        rate = rate_of(round(1_000 * done), 1_000, 50, 2e-3)
        batch = next(streams[tokens_each])
        flat, m, v, loss = step_of(mine, long_config, flat, m, v, batch, len(losses) + 1, rate)
        losses.append(loss)
        done = (time.perf_counter() - began) / (60 * minutes)
    return Parameters(long_config, flat), losses


def judge_longer(params, batches):
    """Return the loss of each target that shows [MASK], and for each pair whether its question is answered rightly."""
    losses, answers = [], []
    for batch in batches:
        (nll, _), _ = per_position(mine, long_config, params.tree, batch)
        losses.append(nll[scored_positions(batch.input_ids[batch.masked_rows], tokenizer.mask_id)])
        found, _ = pretraining_loss(mine, long_config, params.tree, batch)
        answers.append(found.nsp_predicted == batch.next_sentence_labels)
    return np.concatenate(losses).astype(np.float64), np.concatenate(answers).astype(np.float64)


# %% [markdown]
# It is measured as before, but on held-out pairs of 32 tokens. The baseline is the better one of the two tables of
# neighbours. For next sentences it is the more frequent answer, given every time.

# %%
if MINUTES or lesson.scale(False, True):
    longer, long_losses = train_longer(MINUTES or 0.02)
    pairs = text.held_out(32, True)
    pairs = list(evaluation_batches(pairs, tokenizer.mask_id, lesson.scale(20_000, 300)))
    hidden = np.concatenate([original(one)[targets_of(one)] for one in pairs])
    before = np.concatenate([original(one)[targets_of(one) - 1] for one in pairs])
    behind = np.concatenate([original(one)[targets_of(one) + 1] for one in pairs])
    left_table = neighbour(train_ids, before, hidden, V, 100.0)
    right_table = neighbour(train_ids[::-1], behind, hidden, V, 100.0)
    table = min(left_table, right_table, key=np.mean)
    long_trained, right_answers = judge_longer(longer, pairs)
    without_order, _ = judge_longer(longer, shuffle_contexts(pairs, tokenizer.special_ids))
    passes = lesson.claim(
        "passes the table of neighbours",
        long_trained,
        table,
        {"shuffled context": without_order},
        unit="nats",
    )
    asked = np.concatenate([one.next_sentence_labels for one in pairs])
    majority = (asked == np.bincount(asked).argmax()).astype(float)
    lesson.claim("tells which text comes next", right_answers, majority, better="higher", unit="share right")
    said = f"The run took {len(long_losses):,} steps."
    if not passes.holds:
        said += " For this model that was too few: a slow or busy machine takes more minutes."
    course.say(said)
    figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
    axes.plot(
        viz.smoothed(np.array(long_losses), max(1, len(long_losses) // 50)), label="training, both tasks"
    )
    axes.axhline(table.mean(), color="0.3", ls="--", lw=1, label="better table of neighbours")
    axes.axhline(long_trained.mean(), color="C3", lw=1, label="yours, held out")
    axes.set(xlabel="step", ylabel="loss (nats)", title="The longer run")
    axes.legend(fontsize=8)
    course.show(
        figure,
        "Smoothed training loss of the longer run against the step, with horizontal lines for the better table of "
        "neighbours and for the loss on held-out text.",
    )
    long_folder = Path("my_longer_bert")
    long_folder.mkdir(exist_ok=True)
    save_hf(long_folder, long_config, longer)
    tokenizer.save_pretrained(long_folder, model_max_length=long_config.P)
else:
    print("MINUTES is 0: this section is left out, and the chapter goes on with the short run.")

# %% [markdown]
# ## 10. Take it with you
#
# What you take from the course is a folder. It holds your weights, the configuration and the vocabulary, in the form
# that Hugging Face's `transformers` reads; `Bert.from_pretrained` reads it, too, and computes from it what your engine
# computed.

# %%
mine_folder = Path("my_bert")
mine_folder.mkdir(exist_ok=True)
save_hf(mine_folder, config, params)
tokenizer.save_pretrained(mine_folder, model_max_length=config.P)
again = Bert.from_pretrained(mine_folder, "numpy")
back = target_losses(again.params, held_out[:2], Ops())
course.equal(
    "losses after writing and reading, minibert's engine", back, trained[: len(back)], tolerance=1e-4
)
for path in sorted(mine_folder.iterdir()):
    print(f"{path.name}, {path.stat().st_size / 1e3:,.0f} kB")

# %% [markdown]
# ## 11. What we saw
#
# * The last run was made of your own pieces, masks, batches, rate, step and engine, as far as you have written them.
# * Pre-training is 20 lines around an engine. Written out, they give the library's losses to the last bit.
# * Your engine and the reference agree on twenty losses to ten digits. It was your derivatives that
#   trained the model.
# * A mean over a batch is not the mean of its parts' means. With the weights of the whole batch, the parts add up.
# * A curve means something only next to its floors, and a claim only next to its controls.
#
# ## Words
#
# - **sealed**: of an engine, running only your operations and plumbing.
# - **plumbing**: operations without any of BERT's mathematics, which stay minibert's.
# - **held out**: of documents, never seen in training and used only to measure.
# - **floors**: losses that can be reached without the skill that is claimed.
# - **micro-batches**: parts of a batch whose gradients are summed before one update.
# - **negative controls**: experiments that must fail if a measurement is honest.
#
# ## Where to go next
#
# Take the same engine further: `minibert.pretrain("my.txt", minutes=30, ops=mine)` trains with it, with checkpoints and
# a report. Then use minibert's fast engines on your corpus for an hour, `minibert pretrain my.txt --minutes 60`, and
# fine-tune the result as in [chapter 11](11_fine_tuning.ipynb). Or give your engine somebody else's weights:
# [chapter 12](12_somebody_elses_bert.ipynb) opens a published BERT by hand. And if you found a shorter proof or a sharper
# check on the way, the project would like to see it.
#
# Or look inside what you have trained: [chapter 13](13_what_heads_learn.ipynb) names its heads by measurement, and takes
# the folder `my_bert`. [Chapter 14](14_argument_and_scaling.ipynb) asks how many runs an argument takes.
