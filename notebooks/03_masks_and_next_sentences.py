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
# # 03 · Masks and next sentences
#
# **The question.** Nobody labelled the books that BERT learns from. So what is it asked, how is an answer judged, and
# which part of a good score needs no understanding at all?
#
# **Afterwards you will be able to**
#
# * derive the loss from one idea, surprise, and say which part of it no model can ever get rid of;
# * compute it so that no number overflows;
# * make the masks of the paper, and say what each of 80%, 10% and 10% does;
# * compute to the last digit what a model that only copies can gain;
# * say how well next sentences can be guessed by counting words.
#
# You will write the third operation of your engine.
#
# **What to install**: from a checkout of minibert, `pip install '.[notebooks]'`. Nothing is downloaded while this runs.

# %%
# %matplotlib inline
import tempfile
from itertools import islice
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from minibert import BertConfig, Tokenizer, course
from minibert.core import bert
from minibert.core.batch import Batch
from minibert.core.masks import replace_tokens
from minibert.core.ops.losses import CrossEntropySaved  # noqa: F401, for your answers
from minibert.data.corpus import embedded_corpus, sentences
from minibert.data.instances import InstanceOptions, Instances
from minibert.data.masking import choose_words
from minibert.data.shards.store import write_shards
from minibert.model.ops import Ops
from minibert.model.params import initialise
from minibert.tokenizer import BasicTokenizer, count_words, learn_vocab

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
lesson = course.begin("03")

# %% [markdown]
# Here are the books of the package as numbers, with the vocabulary of 8,192 pieces that you know. Each chapter is a
# document whose sentences are in order.

# %%
text = list(sentences([embedded_corpus()]))
tokenizer = Tokenizer(learn_vocab(count_words((line for line in text if line), BasicTokenizer()), 8_192))
folder = tempfile.TemporaryDirectory()
shards = write_shards(text, tokenizer, Path(folder.name) / "shards")
documents = np.arange(shards.n_documents)
V = tokenizer.vocab_size
counts = np.bincount(shards.tokens, minlength=V)
print(
    f"{shards.n_documents:,} documents, {len(shards.tokens):,} pieces, "
    f"{(counts > 0).sum():,} of them different"
)

# %% [markdown]
# ## 1. Surprise
#
# A model that has to guess a piece gives a probability to each piece of the vocabulary. Then the piece is
# revealed. How good was the guess? Only one number matters, the probability $q$ that the model gave to the
# right piece. Its **surprise** is $-\ln q$: zero if the model was certain of the piece, and larger without limit the
# closer $q$ is to zero. Surprises of independent events add up where their probabilities multiply, which is why there is
# a logarithm. With the natural one, the unit is called the *nat*. A *loss* is a number that training makes
# small, and BERT's losses are mean surprises.
#
# Let pieces occur with true probabilities $p_y$, and let the model say $q_y$. The mean surprise is the
# **cross-entropy**
#
# $$ H(p, q) = -\sum_y p_y \ln q_y . $$
#
# Write $q_y = p_y \cdot q_y / p_y$ and split the logarithm:
#
# $$ H(p, q) = \underbrace{-\sum_y p_y \ln p_y}_{H(p)} \; + \; \underbrace{\sum_y p_y \ln \frac{p_y}{q_y}}_{\mathrm{KL}(p \,\|\, q)} . $$
#
# The first part is the **entropy** of $p$. It is the uncertainty of the text itself, and does not depend on any model.
# The second part is the **Kullback–Leibler divergence**, the price of being wrong about $p$. It is never negative. As
# $\ln u \le u - 1$ for every $u > 0$,
#
# $$ -\mathrm{KL}(p\,\|\,q) = \sum_y p_y \ln \frac{q_y}{p_y} \le \sum_y p_y \Big(\frac{q_y}{p_y} - 1\Big)
#    = \sum_y q_y - \sum_y p_y = 0 , $$
#
# where all $p_y > 0$ (otherwise the sums leave some $y$ out, and the last = becomes ≤).
#
# As $\ln u = u - 1$ only at $u = 1$, only $q = p$ makes the divergence zero. So the loss has a floor, the entropy, and
# the one way to reach it is to be right about the probabilities. A guess that is too sure pays for it, and so does one
# that is too timid.

# %%
rng = np.random.default_rng(3)
p, q = rng.dirichlet(np.ones(7)), rng.dirichlet(np.ones(7))
cross = -(p * np.log(q)).sum()
course.equal("cross-entropy = entropy + KL", cross, -(p * np.log(p)).sum() + (p * np.log(p / q)).sum())
course.equal("the last step of the proof", (p * (q / p - 1)).sum() + 1, q.sum() - p.sum() + 1)

figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
guess = np.linspace(0.002, 0.998, 400)
for number, truth in enumerate((0.5, 0.8, 0.95)):
    surprise = -truth * np.log(guess) - (1 - truth) * np.log(1 - guess)
    entropy = -truth * np.log(truth) - (1 - truth) * np.log(1 - truth)
    axes.plot(
        guess,
        surprise,
        color=plt.cm.cividis(number / 2.5),
        ls=("-", "--", "-.")[number],
        label=f"heads with probability {truth:.0%}",
    )
    axes.plot(truth, entropy, "o", color=plt.cm.cividis(number / 2.5))
    axes.annotate(
        f"H = {entropy:.2f}", (truth, entropy), (0, -14), textcoords="offset points", ha="center", fontsize=9
    )
axes.set(
    xlabel="the model's probability of heads",
    ylabel="mean surprise (nats)",
    ylim=(0, 3),
    title="A coin: each curve has its floor where the guess is the truth",
)
axes.legend(frameon=False)
course.show(
    figure, "Cross-entropy of a coin against the guessed probability; each minimum is the entropy of the coin"
)

# %% [markdown]
# ### Exercise 03.1 (easy): three numbers
#
# `p` and `q` are arrays of probabilities of the same length. Return the entropy of `p`, the cross-entropy and
# the divergence, in nats. What never occurs costs nothing: where $p_y = 0$, the term is 0, even if $q_y = 0$
# as well.


# %%
# Exercise 03.1
def three_numbers(p, q):
    """Return the entropy of p, the cross-entropy of p and q, and the divergence KL(p || q), in nats."""
    ...


# %%
def two_distributions(rng):
    n = int(rng.integers(3, 9))
    p, q = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(n))
    nowhere = rng.integers(n)
    p[nowhere] = 0
    q[nowhere] = 0 if rng.random() < 0.5 else q[nowhere]
    return p / p.sum(), q / q.sum()


def term_by_term(p, q):
    entropy = cross = 0.0
    for one, other in zip(p.tolist(), q.tolist(), strict=True):
        if one > 0:
            entropy -= one * np.log(one)
            cross -= one * np.log(other)
    return entropy, cross, cross - entropy


lesson.check(three_numbers, draw=two_distributions, same_as=term_by_term, times=8)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Drop the places where `p` is zero before you take any logarithm; then nothing can go wrong.
#
# </details>
# <details><summary>Hint 2</summary>
#
# With `p, q = p[p > 0], q[p > 0]`, each of the three is one line, and the third is the difference of the others.
#
# </details>
# <details><summary>Solution 03.1</summary>
#
# ```python
# def three_numbers(p, q):
#     there = p > 0
#     p, q = p[there], q[there]
#     entropy = -(p * np.log(p)).sum()
#     cross = -(p * np.log(q)).sum()
#     return entropy, cross, cross - entropy
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `p[there], q[there]` | `p, q` | 0 times ln 0 is not a number for NumPy; leave out what never occurs. |
# | `(p * np.log(q))` | `(q * np.log(p))` | p says how often something occurs; q is what the surprise is measured with. |
# | `-(p * np.log(p)).sum()` | `(p * np.log(p)).sum()` | Entropy is positive: there is a minus in front of the sum. |
# | `np.log(p)` | `np.log2(p)` | That is the logarithm to the base 2, whose unit is the bit; nats take the natural one. |
# | `cross - entropy` | `entropy - cross` | The divergence is what the cross-entropy adds to the entropy. |
# | `cross - entropy` | `(q * np.log(q / p)).sum()` | This is KL(q \|\| p); the divergence is not symmetric. |
# | `-(p * np.log(p)).sum()` | `-(p * np.log(p)).mean()` | The terms already have their weights p; they are added, not averaged. |
#
# </details>

# %% [markdown]
# ### What a guess without any context costs
#
# Over $M$ pieces $y_1 \dots y_M$ of a real text the mean surprise is a cross-entropy again, with the frequencies $\hat p$
# of the text itself:
#
# $$ \frac1M \sum_{m} -\ln q(y_m) = \sum_y \frac{\text{count of } y}{M} \, (-\ln q_y) = H(\hat p, q). $$
#
# Take two models that never look at the surrounding words. One gives all of the $V$ pieces the same
# probability. Its loss is $\ln V$, whatever the text is. The other gives each piece its frequency. The
# frequencies of single pieces are called the **unigram** distribution, and among all models without context
# the one that uses them is best: its loss is the entropy $H(\hat p)$, the **unigram floor**.

# %%
floor_guess = lesson.predict(
    f"Equal chances for {V:,} pieces cost ln V = {np.log(V):.2f} nats. "
    "What does guessing by their frequencies cost?",
    ...,
    choices=("8.6", "6.3", "4.1", "2.2"),
)

# %%
frequency = counts / counts.sum()
occurring = counts > 0
unigram = -(frequency[occurring] * np.log(frequency[occurring])).sum()
sample = shards.tokens[:200_000:7].astype(int)
anything = rng.dirichlet(np.ones(V))
shares = np.bincount(sample, minlength=V) / len(sample)
course.equal(
    "mean surprise = cross-entropy", -np.log(anything[sample]).mean(), -(shares * np.log(anything)).sum()
)
floor_guess.answer(f"{unigram:.1f}", f"{unigram:.3f} nats. A handful of pieces makes up much of any text.")

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.5), layout="constrained", width_ratios=[1.3, 1])
ranked = np.argsort(-counts, kind="stable")
left.loglog(1 + np.arange(V), np.maximum(frequency[ranked], 1e-8), color="C0")
for rank in (0, 1, 10, 100, 1000, 7000):
    left.annotate(
        f"“{tokenizer.vocab[ranked[rank]]}”",
        (rank + 1, frequency[ranked[rank]]),
        (4, 6),
        textcoords="offset points",
        fontsize=9,
        parse_math=False,
    )
left.axhline(1 / V, color="k", ls="--", lw=1)
left.annotate("1 / V", (1, 1 / V), (2, 4), textcoords="offset points")
left.set(xlabel="rank", ylabel="share of the text", title="pieces by frequency", ylim=(1e-7, 0.2))
covered = np.cumsum(frequency[ranked])
right.semilogx(1 + np.arange(V), 100 * covered, color="C0")
half = int(np.searchsorted(covered, 0.5)) + 1
right.plot(half, 50, "o", color="C1")
right.annotate(f"{half} pieces are half of the text", (half, 50), (8, -14), textcoords="offset points")
right.set(xlabel="the most frequent pieces", ylabel="% of the text", title="how much of the text they are")
course.show(
    figure, "Frequencies of pieces fall like a power of the rank; few pieces make up half of the text"
)

# %% [markdown]
# Remember the floor. A model that has learnt nothing but frequencies is exactly there. What context teaches can show
# only below it. Every loss curve in this course will be drawn with it.

# %% [markdown]
# ## 2. From any numbers to surprise
#
# A network does not produce probabilities but $V$ arbitrary numbers $z_1 \dots z_V$, one for each piece: its
# **logits**. The **softmax** turns them into probabilities,
#
# $$ q_y = \frac{e^{z_y}}{\sum_k e^{z_k}} , $$
#
# which are all positive and sum to one. The loss of one guess is then
#
# $$ -\ln q_y = \ln \sum_k e^{z_k} - z_y . $$
#
# There is a trap: $e^{710}$ is too large for a 64-bit number, $e^{89}$ for a 32-bit one. But a constant $c$ added to all
# logits cancels,
#
# $$ \frac{e^{z_y + c}}{\sum_k e^{z_k + c}} = \frac{e^c\, e^{z_y}}{e^c \sum_k e^{z_k}} = q_y , $$
#
# so we may subtract the largest logit from all of them: then the largest exponent is 0, and nothing can overflow.

# %%
z, c = rng.standard_normal(9), 2.5
softmax = np.exp(z) / np.exp(z).sum()
course.equal("a constant cancels", np.exp(z + c) / np.exp(z + c).sum(), softmax)
course.equal("surprise of a logit", -np.log(softmax), np.log(np.exp(z).sum()) - z)


# %%
def losses_in_32_bits(scale):
    """Return the loss of one row computed in three ways in 32 bits, and in 64 bits with the shift."""
    z = (scale * np.linspace(1, -1, 50)).astype(np.float32)
    with np.errstate(all="ignore"):
        plain = np.log(np.exp(z).sum()) - z
        shifted = z - z.max()
        by_division = -np.log(np.exp(shifted) / np.exp(shifted).sum())
        good = np.log(np.exp(shifted).sum()) - shifted
    wide = z.astype(np.float64) - float(z.max())
    return (plain, by_division, good), np.log(np.exp(wide).sum()) - wide


scales = np.logspace(-1, 3, 60)
names = ("no shift", "shift, then the log of a quotient", "shift, then a difference")
errors = {name: [] for name in names}
for scale in scales:
    tried, right_one = losses_in_32_bits(scale)
    for name, found in zip(names, tried, strict=True):
        worst = np.abs(found - right_one).max() / right_one.max()
        errors[name].append(worst if np.isfinite(worst) else np.nan)
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
for name, mark in zip(names, ("^", "s", "o"), strict=True):
    axes.loglog(scales, errors[name], mark, ls="-", ms=3, label=name)
    bad = np.isnan(errors[name])
    if bad.any():
        first = scales[bad.argmax()]
        axes.axvline(first, color="k", lw=0.7, ls=":")
        axes.annotate(
            "infinite from here",
            (first, 3e-5),
            (-3, 0),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="center",
            fontsize=8,
        )
axes.set(xlabel="largest logit", ylabel="error, relative to the largest loss", ylim=(1e-9, 1e-2))
axes.legend(frameon=False, loc="upper left")
course.show(
    figure, "Relative error of the loss against the size of the logits: without care it becomes infinite"
)

# %% [markdown]
# Two of the three ways end in infinity: the first because $e^z$ overflows, the second because a small probability becomes
# exactly 0 before its logarithm is taken. The third way never takes the logarithm of anything below 1.
#
# ### Exercise 03.2 (core): softmax and cross-entropy
#
# The third operation of your engine. For N rows of K logits and N labels, return the surprise of each row at its label,
# (N,), without ever overflowing; and save `CrossEntropySaved(probabilities, labels)` with all (N,K) probabilities.
# There may be no rows at all. (If you take a maximum, take that of `logits.real`. Chapter 5 will send complex numbers
# through your function and explain why.)


# %%
# Exercise 03.2
def softmax_cross_entropy(self, logits, labels):
    """Return -log softmax(logits)[label] of every row, (N,), and CrossEntropySaved(probabilities, labels)."""
    ...


# %%
def large_logits(rng):
    N, K = int(rng.integers(3, 7)), int(rng.integers(7, 12))
    spread = rng.permutation([2, 800, *rng.choice([2, 800], size=N - 2)])[:, None]
    logits = spread * rng.standard_normal((N, K)) + rng.choice([-3_000, 3_000], size=(N, 1))
    return logits, rng.integers(K, size=N)


lesson.check(softmax_cross_entropy, draw=large_logits, same_as=Ops().softmax_cross_entropy)
if lesson.passed("03.2"):  # then smaller logits, no rows at all, and what is saved
    lesson.check(softmax_cross_entropy)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `logits.real.max(1, keepdims=True)` has shape (N,1) and can be subtracted from every row. From there on use the
# shifted logits only.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `shifted[np.arange(len(labels)), labels]` picks one number from each row. Write the loss as a difference: the
# logarithm of the sum of exponentials minus this number.
#
# </details>
# <details><summary>Solution 03.2</summary>
#
# ```python
# def softmax_cross_entropy(self, logits, labels):
#     shifted = logits - logits.real.max(1, keepdims=True)
#     exponentials = np.exp(shifted)
#     total = exponentials.sum(1)
#     rows = np.arange(len(labels))
#     nll = np.log(total) - shifted[rows, labels]
#     return nll, CrossEntropySaved(exponentials / total[:, None], labels)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `logits - logits.real.max(1, keepdims=True)` | `logits` | Without the shift the exponential overflows when logits are large. |
# | `logits.real.max(1, keepdims=True)` | `logits.real.max(initial=-np.inf)` | Each row has a largest logit of its own; in the others everything underflows to 0. |
# | `np.log(total) - shifted[rows, labels]` | `-np.log((exponentials / total[:, None])[rows, labels])` | A probability can underflow to 0 before its logarithm is taken; write a difference. |
# | `np.log(total) - shifted[rows, labels]` | `-shifted[rows, labels]` | The logarithm of the sum is missing: these are not yet probabilities. |
# | `np.log(total) - shifted[rows, labels]` | `shifted[rows, labels] - np.log(total)` | This is the log-probability; the surprise is its negative. |
# | `shifted[rows, labels]` | `logits[rows, labels]` | One term is shifted and the other is not. |
# | `exponentials.sum(1)` | `exponentials.mean(1)` | Probabilities sum to one if they are divided by the sum, not by the mean. |
# | `CrossEntropySaved(exponentials / total[:, None], labels)` | `CrossEntropySaved(exponentials, labels)` | The loss is right, but what is saved are not yet probabilities: divide by their sum. |
#
# </details>

# %%
course.source(Ops.softmax_cross_entropy)

# %% [markdown]
# ## 3. The masked language model
#
# Why hide anything? A model that reads from left to right can simply be asked for the next piece at every place, since
# it has not seen it yet. That is how GPT is trained, and it uses only what is on the left. We want both sides. But let every token
# look both ways, through two or more layers, and the question answers itself: the neighbours of a place have looked at
# it in layer 1, so in layer 2 it reads its own answer from them. ELMo's way out was to train one model in each
# direction and put their results side by side, so that no layer ever sees both. BERT's is to take the piece out of the
# input (section 3.1 and figure 3 of the paper). The price: only about 15% of the places teach anything in a step.
#
# Now the first question. Hide some pieces of a text and let the model guess them from both sides. This is a
# **masked language model**, and the hidden pieces are its **targets** (section 3.1 of the paper). The rules are these:
#
# * 15% of all places are targets, rounded, and at least one; never `[CLS]` or `[SEP]`;
# * at a target, the model sees the special token `[MASK]` in 80% of cases, the original piece in 10%, and a
#   random piece of the vocabulary in 10%;
# * the loss is the mean surprise at the targets. What the model says about all other places is not even computed.
#
# Here is the beginning of an example.

# %%
instances = Instances(shards, documents, tokenizer, InstanceOptions(seq_length=128), seed=3)


def first_sequences(instances, count):
    """Return the first instances of a stream."""
    return [sequence for sequence, _ in islice(instances.stream(), count)]


many = first_sequences(instances, lesson.scale(10_000, 1_000))


def original_of(sequence):
    """Return the ids of a sequence before anything was hidden."""
    ids = sequence.input_ids.copy()
    ids[sequence.masked_positions] = sequence.masked_labels
    return ids


def draw_masks(sequence, width=95, rows=5):
    """Draw what the model sees, with the hidden pieces above it."""
    seen, truth = sequence.input_ids, original_of(sequence)
    target = np.isin(np.arange(len(seen)), sequence.masked_positions)
    figure, axes = plt.subplots(figsize=(11, 0.72 * rows), layout="constrained")
    left = row = 0
    for place, number in enumerate(seen):
        piece = tokenizer.vocab[number]
        wide = max(len(piece), len(tokenizer.vocab[truth[place]]) if target[place] else 0) + 1
        if left + wide > width:
            left, row = 0, row + 1
        if row == rows:
            break
        kind = (
            0
            if not target[place]
            else 1
            if number == tokenizer.mask_id
            else 2
            if number == truth[place]
            else 3
        )
        colour = ("white", plt.cm.cividis(0.95), plt.cm.cividis(0.6), plt.cm.cividis(0.35))[kind]
        axes.add_patch(Rectangle((left, -row), wide - 0.3, 0.5, facecolor=colour, alpha=0.8))
        axes.text(
            left + wide / 2,
            0.25 - row,
            piece,
            ha="center",
            va="center",
            fontsize=8,
            family="monospace",
            color="w" if kind == 3 else "k",
            parse_math=False,
        )
        if target[place]:
            axes.text(
                left + wide / 2,
                0.68 - row,
                tokenizer.vocab[truth[place]],
                ha="center",
                va="center",
                fontsize=7.5,
                style="italic",
                parse_math=False,
            )
        left += wide
    for kind, name in enumerate(("[MASK]", "the same piece", "a random piece")):
        axes.add_patch(
            Rectangle(
                (18 * kind, -rows + 0.05),
                2,
                0.4,
                facecolor=plt.cm.cividis((0.95, 0.6, 0.35)[kind]),
                alpha=0.8,
            )
        )
        axes.text(18 * kind + 3, -rows + 0.25, name, va="center", fontsize=9)
    axes.set(xlim=(0, width), ylim=(-rows, 1))
    axes.set_axis_off()
    return figure


def kinds(sequence):
    """Return how many targets show [MASK], the same piece, and another piece."""
    seen, labels = sequence.input_ids[sequence.masked_positions], sequence.masked_labels
    return np.array(
        [
            (seen == tokenizer.mask_id).sum(),
            (seen == labels).sum(),
            ((seen != tokenizer.mask_id) & (seen != labels)).sum(),
        ]
    )


telling = max(many[:300], key=lambda one: (kinds(one).min(), -len(one.input_ids)))
course.show(
    draw_masks(telling),
    "A text as the model sees it: most targets are [MASK], some the same piece, some another one",
)

# %% [markdown]
# The pieces in italics are the answers; the model sees only the line below them. Do the shares come out as intended? We
# count them. Each target falls into one of three kinds at random, so among $M$ targets a share $\pi$ has a standard
# deviation of $\sqrt{\pi(1-\pi)/M}$.

# %%
found = sum(kinds(one) for one in many)
M = int(found.sum())
tokens = sum(len(one.input_ids) for one in many)
ordered = np.array([0.8, 0.1 + 0.1 / V, 0.1 - 0.1 / V])  # now and then the random piece is the right one
spread = np.sqrt(ordered * (1 - ordered) / M)
course.say(
    f"Among {M:,} targets, **{M / tokens:.2%}** of all tokens, the shares are "
    + ", ".join(
        f"{share:.2%} ({(share - one) / wide:+.1f} standard deviations)"
        for share, one, wide in zip(found / M, ordered, spread, strict=True)
    )
    + " for `[MASK]`, the same piece and a random one. The total is not quite 15%, because the number of "
    "targets of a sequence is rounded."
)
figure, axes = plt.subplots(figsize=(7.5, 2.5), layout="constrained")
difference = 100 * (found / M - ordered)
axes.errorbar(difference, range(3), xerr=100 * 2 * spread, fmt="o", capsize=4)
axes.axvline(0, color="k", lw=0.8)
axes.set(
    yticks=range(3),
    yticklabels=["[MASK], 80%", "same piece, 10%", "random piece, 10%"],
    ylim=(2.5, -0.5),
    xlabel="percentage points off, with two standard deviations",
)
course.show(
    figure,
    "Counted shares of the three kinds of targets are as intended, within two standard deviations",
)

# %% [markdown]
# ### Exercise 03.3 (core): hide the targets
#
# All randomness is drawn for you. `chosen` (n,) is Boolean, True where a place is a target, `draw` (n,) are numbers
# from 0 up to 1, and `random_ids` (n,) are random pieces. A target whose draw is below 0.8 becomes `mask_id`, one from
# 0.8 to below 0.9 stays as it is, and any other becomes its random piece. Return what the model sees, (n,), and the ids
# of the targets, in order.


# %%
# Exercise 03.3
def mask_tokens(ids, chosen, draw, random_ids, mask_id):
    """Return what the model sees (n,) and the labels, the original ids at the chosen places."""
    ...


# %%
def a_text_to_mask(rng):
    n = int(rng.integers(40, 70))
    draw = np.where(rng.random(n) < 0.2, rng.choice([0.0, 0.8, 0.9], size=n), rng.uniform(0.6, 1, size=n))
    return (
        rng.integers(10, 500, size=n),
        rng.random(n) < rng.choice([0.0, 0.4, 0.8]),
        draw,
        rng.integers(500, 999, size=n),
        4,
    )


def place_by_place(ids, chosen, draw, random_ids, mask_id):
    seen, labels = [], []
    for place, number in enumerate(ids.tolist()):
        if chosen[place]:
            labels.append(number)
            if draw[place] < 0.8:
                number = mask_id
            elif draw[place] >= 0.9:
                number = random_ids[place]
        seen.append(number)
    return np.array(seen), np.array(labels, int)


lesson.check(mask_tokens, draw=a_text_to_mask, same_as=place_by_place, times=8)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `np.where(condition, one, other)` decides for all places at once, and can stand inside another `np.where`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# First compute what every place would show if it were a target. Then one more `np.where` with `chosen` keeps it only for
# the targets.
#
# </details>
# <details><summary>Solution 03.3</summary>
#
# ```python
# def mask_tokens(ids, chosen, draw, random_ids, mask_id):
#     shown = np.where(draw < 0.8, mask_id, np.where(draw < 0.9, ids, random_ids))
#     return np.where(chosen, shown, ids), ids[chosen]
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `np.where(chosen, shown, ids)` | `shown` | Only targets may change; all other places show what is there. |
# | `ids[chosen]` | `shown[chosen]` | The label is the piece that was there, not the one that is shown instead. |
# | `ids[chosen]` | `ids` | Only the targets have labels. |
# | `ids, random_ids))` | `random_ids, ids))` | From 0.8 to 0.9 the piece stays; it is above 0.9 that it becomes a random one. |
# | `draw < 0.9` | `draw < 0.1` | One target in ten keeps its own piece: from 0.8 on the draw is never below 0.1; the second limit is 0.8 + 0.1. |
# | `np.where(draw < 0.9, ids, random_ids)` | `ids` | One target in ten becomes a random piece. |
# | `ids[chosen]` | `ids[chosen & (draw < 0.8)]` | Targets that do not show [MASK] are predicted as well. |
# | `ids[chosen]` | `ids[chosen & ((draw < 0.8) \| (draw >= 0.9))]` | Targets that keep their piece are predicted as well. |
#
# </details>

# %%
course.source(replace_tokens)

# %% [markdown]
# ## 4. What a copier gains
#
# Why not `[MASK]` at all targets? Because the model would then learn that only `[MASK]` matters, and in every
# later use of BERT there is none. Because of the other 20%, any piece might be a target, and might be wrong,
# so the model has to form a good idea of every place. But this has a side effect, and it misleads many who
# read their first loss curve: where the right answer is in plain sight, a model can copy it.
#
# Take a model that looks at nothing but the one place it has to guess. How low can its loss get? It knows the shares
# $m, s, r$ of `[MASK]`, same and random, and the frequencies $p$. If it sees `[MASK]`, the best it can do is $p$. If it
# sees a piece $x$, then either the place shows its own piece (probability $s\,p_x$) or a random one ($r/V$). Bayes'
# rule gives the probability that it is genuine:
#
# $$ k_x = \frac{s\,p_x}{s\,p_x + r/V} . $$
#
# With probability $k_x$ the piece is genuine, and the answer is $x$. Otherwise what is shown says nothing, and the answer
# is any piece, $x$ included, with its frequency. So the best guess is $q(y \mid x) = k_x\,[y = x] + (1 - k_x)\,p_y$,
# where $[y = x]$ is 1 if $y = x$, otherwise 0.

# %%
copier_guess = lesson.predict(
    f"The unigram floor is {unigram:.2f} nats. "
    "By how many nats does a perfect copier get below it, over all targets?",
    ...,
    choices=("0.06", "0.2", "0.6", "1.3"),
)

# %% [markdown]
# ### Exercise 03.4 (hard): the copier's loss
#
# Return the smallest mean loss, over all targets, of a model that sees only the place itself. `p` (V,) are the
# frequencies, `rates` the shares of `[MASK]`, same and random, which sum to one. Remember that a random piece is any of
# the V with equal probability, the right one included. Some `p` may be zero.


# %%
# Exercise 03.4
def copier_loss(p, rates):
    """Return the smallest mean surprise at the targets, in nats, when only the shown token is known."""
    ...


# %%
def frequencies_and_rates(rng):
    p = rng.dirichlet(np.ones(int(rng.integers(3, 9))))
    if rng.random() < 0.4:
        p[rng.integers(len(p))] = 0
    rates = rng.dirichlet([4, 2, 2]) if rng.random() < 0.7 else np.array([0.8, 0.1, 0.1])
    return p / p.sum(), tuple(rates.tolist())


def by_enumeration(p, rates):
    outcomes = {}  # what is shown -> what stood there -> probability
    for y, share in enumerate(p.tolist()):
        cases = [("[MASK]", rates[0] * share), (y, rates[1] * share)]
        cases += [(x, rates[2] * share / len(p)) for x in range(len(p))]
        for shown, probability in cases:
            told = outcomes.setdefault(shown, {})
            told[y] = told.get(y, 0) + probability
    total = 0.0
    for told in outcomes.values():
        seen = sum(told.values())
        total -= sum(one * np.log(one / seen) for one in told.values() if one > 0)
    return total


lesson.check(copier_loss, draw=frequencies_and_rates, same_as=by_enumeration, times=8)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write a table `joint` of V rows and V + 1 columns: the probability that piece y was there and x is shown, the first
# column for `[MASK]`. It is a sum of three tables, one for each rate.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The best guess after seeing x is column x of `joint`, divided by its sum. The loss is the mean of its surprise, weighted
# by `joint` itself. Take logarithms only where `joint` is positive.
#
# </details>
# <details><summary>Solution 03.4</summary>
#
# ```python
# def copier_loss(p, rates):
#     mask, same, random = rates
#     V = len(p)
#     in_sight = same * np.diag(p) + random / V * p[:, None]
#     joint = np.concatenate([mask * p[:, None], in_sight], axis=1)
#     guess = joint / joint.sum(0)
#     there = joint > 0
#     return -(joint[there] * np.log(guess[there])).sum()
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `random / V * p[:, None]` | `random / (V - 1) * p[:, None]` | A random piece is one of all V, the right one included. |
# | `random / V * p[:, None]` | `random * p[:, None] * p` | Random pieces are equally likely, not drawn by frequency. |
# | `mask * p[:, None]` | `p[:, None]` | [MASK] is shown only in its share of cases. |
# | `same * np.diag(p)` | `same * np.eye(V)` | A piece that is left in sight has to occur in the first place, with its frequency p. |
# | `same * np.diag(p) + ` | *nothing* | The targets that keep their own piece are missing: there is nothing to copy. |
# | `np.log(guess[there])` | `np.log(joint[there])` | This is the surprise of both together; the shown token is known, so divide by its probability. |
# | `-(joint[there] *` | `-(guess[there] *` | The surprise has to be weighted by how often each case occurs. |
# | `random / V * p[:, None]` | `random / (V - 1) * p[:, None] * (1 - np.eye(V))` | A random piece is one of all V, the right one included. |
# | `-(joint[there] * np.log(guess[there])).sum()` | `-mask * (p[p > 0] * np.log(p[p > 0])).sum()` | A piece that is shown may be a random one, so the targets that show a piece cost something, too. |
#
# </details>

# %% [markdown]
# For a vocabulary of 8,192 the table would have 67 million entries, but it can be summed by hand. Collect the
# terms of one shown piece $x$, which occurs with probability $a_x = s p_x + r/V$. All $y \ne x$ have the
# guess $(1-k_x)\,p_y$, and $x$ itself has $g_x = k_x + (1-k_x) p_x$. Hence
#
# $$ L = m H(p) - \sum_x a_x \Big[ g_x \ln g_x + (1-k_x) \sum_{y \ne x} p_y \ln\big((1-k_x)\, p_y\big) \Big] . $$
#
# The difference $H(p) - L$ has its own name: it is the **mutual information** of the answer and what is shown, how much
# one tells us about the other. It can also be written with the entropies of the two, and of both together: $I = H(y) +
# H(x) - H(x, y)$.


# %%
def plogp(x):
    """Return x ln x, which is 0 at 0."""
    return x * np.log(np.where(x > 0, x, 1))


def copier(p, mask, same, random):
    """Return the copier's loss for any vocabulary, one shown piece after another summed by hand."""
    a = same * p + random / len(p)
    k = same * p / np.where(a > 0, a, 1)
    g = k + (1 - k) * p
    others = (1 - k) * (plogp(p).sum() - plogp(p)) + plogp(1 - k) * (1 - p)
    return -mask * plogp(p).sum() - (a * (plogp(g) + others)).sum()


def entropy_of(table):
    """Return the entropy of a table of probabilities."""
    return -plogp(table).sum()


few = rng.dirichlet(np.ones(6))
course.equal("summed by hand = enumerated", copier(few, 0.8, 0.1, 0.1), by_enumeration(few, (0.8, 0.1, 0.1)))
table = np.concatenate([0.8 * few[:, None], 0.1 * np.diag(few) + 0.1 / 6 * few[:, None] * np.ones(6)], axis=1)
course.equal(
    "gain = mutual information",
    entropy_of(few) - copier(few, 0.8, 0.1, 0.1),
    entropy_of(few) + entropy_of(table.sum(0)) - entropy_of(table),
)
copied = copier(frequency, 0.8, 0.1, 0.1)
copier_guess.answer(
    f"{unigram - copied:.1f}", f"from {unigram:.3f} to {copied:.3f} nats, by looking at a single place."
)

# %%
a = 0.1 * frequency + 0.1 / V
genuine = 0.1 * frequency / a
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.6), layout="constrained")
left.semilogx(frequency[ranked][occurring[ranked]], genuine[ranked][occurring[ranked]], color="C0")
for rank in (0, 100, 1000, 7000):
    at = ranked[rank]
    left.annotate(
        f"“{tokenizer.vocab[at]}”",
        (frequency[at], genuine[at]),
        (-6, -13),
        textcoords="offset points",
        fontsize=9,
        parse_math=False,
    )
left.axvline(1 / V, color="k", ls=":", lw=1)
left.annotate("1 / V", (1 / V, 0.02), (4, 0), textcoords="offset points")
left.set(
    xlabel="frequency of the piece that is shown",
    ylabel="chance that it is genuine",
    title="a target that shows a piece: trust it?",
)
in_sight = np.linspace(0, 0.2, 41)
right.plot(100 * in_sight, [copier(frequency, 0.8, one, 0.2 - one) for one in in_sight], label="80% [MASK]")
right.plot(
    100 * in_sight,
    [copier(frequency, 1 - one, one, 0.0) for one in in_sight],
    "--",
    label="the rest [MASK], nothing random",
)
right.axhline(unigram, color="k", lw=0.8, ls=":")
right.annotate("unigram floor", (20, unigram), (0, 4), textcoords="offset points", ha="right")
right.plot(10, copied, "o", color="C1")
right.annotate("BERT", (10, copied), (6, 4), textcoords="offset points")
right.set(xlabel="% of targets left in sight", ylabel="the copier's loss (nats)", title="what copying gains")
right.legend(frameon=False, loc="lower left")
course.show(
    figure,
    "Frequent pieces in sight are nearly always genuine; the copier's loss falls with the share left in sight",
)

# %%
course.say(
    f"So a training loss of **{copied:.2f}** nats looks like progress, **{unigram - copied:.2f}** below the unigram floor, "
    "and may be no more than copying. That is why minibert measures at places that show `[MASK]`, and only there, in "
    "text that it holds out from training: a copier gains nothing there. Random pieces keep a copier from being "
    f"sure of what it sees, but that is worth only **{copied - copier(frequency, 0.9, 0.1, 0.0):.3f}** nats (the dashed "
    "line). The paper's reason is the one above: as any piece may be wrong, the model must form an idea of every place. "
    "Its Table 8 finds that fine-tuning hardly notices the difference."
)

# %% [markdown]
# ## 5. Whole words
#
# Pieces are hidden one by one, so it may happen that `##ed` of *unfolded* is a target while `unfold` is in full view. How
# much does the visible part give away? From counts of the first half of the books, two models guess those
# pieces of the second half that continue a word. One knows only how frequent such pieces are; the other also
# sees the piece before.

# %%
carries_on = tokenizer.continuation  # (V,) bool: pieces that begin with ##


def pairs_of(part):
    """Return the pieces that carry on a word, and those before them."""
    at = np.flatnonzero(carries_on[part[1:]])
    return part[:-1][at].astype(np.int64), part[1:][at].astype(np.int64)


middle = len(shards.tokens) // 2
before, piece = pairs_of(np.asarray(shards.tokens[:middle]))
alone = np.bincount(piece, minlength=V) + 0.5 * carries_on
alone = alone / alone.sum()
known, known_counts = np.unique(before * V + piece, return_counts=True)  # a number for each pair
before_counts = np.bincount(before, minlength=V)


def loss_knowing(before, piece, trust=5.0):
    """Return the surprise at each piece after the one before it; the frequencies count as much as `trust` pairs."""
    at = np.searchsorted(known, before * V + piece).clip(max=len(known) - 1)
    together = np.where(known[at] == before * V + piece, known_counts[at], 0)
    return -np.log((together + trust * alone[piece]) / (before_counts[before] + trust))


before, piece = pairs_of(np.asarray(shards.tokens[middle:]))
loss_alone, loss_given = -np.log(alone[piece]), loss_knowing(before, piece)
claim = lesson.claim(
    "the piece before tells how a word goes on",
    loss_given,
    loss_alone,
    controls={"knowing another piece": loss_knowing(rng.permutation(before), piece)},
    unit="nats",
)

# %% [markdown]
# Where does the interval come from? Another sample of text would have given another mean. We have only this one, but we
# can resample it: draw as many pieces from ours, with replacement, so that some come up twice and some not at all, and
# take the mean. Do that a thousand times and see how far the means spread. That is the **bootstrap** (Efron 1979); the
# interval holds the middle 95% of the means. It treats pieces as independent. Neighbours in a book are not, so the true
# interval is somewhat wider. And it says nothing about what another training run would give.

# %%
gain = loss_alone - loss_given
means = [gain[rng.integers(len(gain), size=len(gain))].mean() for _ in range(lesson.scale(1000, 20))]
figure, axes = plt.subplots(figsize=(6.4, 2.8))
axes.hist(means, 40, color="C0", alpha=0.6)
for end in np.percentile(means, [2.5, 97.5]):
    axes.axvline(end, color="k", lw=0.8, ls="--")
axes.set(xlabel="mean gain (nats)", ylabel="draws", title="A thousand means of pieces drawn again")
course.show(
    figure,
    "Histogram of the mean gain in a thousand samples drawn with replacement: a bell, with dashed lines at the ends of the "
    "interval that holds 95 of 100.",
)

# %% [markdown]
# What can be learnt from a target like `##ed` is spelling rather than meaning. In **whole-word masking**, which Google
# added to BERT in May 2019, seven months after the paper, all pieces of a word are targets or none is. How often does
# it matter?

# %%
whole = first_sequences(
    Instances(shards, documents, tokenizer, InstanceOptions(seq_length=128, whole_word_mask=True), seed=3),
    lesson.scale(3_000, 300),
)


def half_seen(sequences):
    """Return the share of targets in words of several pieces, and of those that have another piece in view."""
    targets = long = exposed = 0
    for one in sequences:
        word = np.cumsum(~carries_on[original_of(one)])
        size, hidden = np.bincount(word), np.bincount(word[one.masked_positions], minlength=word[-1] + 1)
        mine = word[one.masked_positions]
        targets += len(mine)
        long += (size[mine] > 1).sum()
        exposed += ((size[mine] > 1) & (hidden[mine] < size[mine])).sum()
    return long / targets, exposed / targets


by_piece, by_word = half_seen(many[: len(whole)]), half_seen(whole)
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 2.6), layout="constrained", width_ratios=[1.2, 1])
left.barh(
    [0, 1], [100 * by_piece[1], 100 * by_word[1]], color="C0", label="with another piece of the word in view"
)
left.barh(
    [0, 1],
    [100 * (by_piece[0] - by_piece[1]), 100 * (by_word[0] - by_word[1])],
    left=[100 * by_piece[1], 100 * by_word[1]],
    color="0.8",
    hatch="//",
    edgecolor="w",
    label="all of the word hidden",
)
left.set(
    yticks=[0, 1],
    yticklabels=["pieces", "whole words"],
    xlabel="% of targets that are part of a longer word",
    ylim=(1.6, -0.9),
)
left.legend(frameon=False, fontsize=8, loc="upper right")
right.barh([0, 1], [loss_alone.mean(), loss_given.mean()], color=["0.8", "C0"])
right.set(
    yticks=[0, 1],
    yticklabels=["by frequency", "knowing the piece before"],
    xlabel="nats to guess how a word goes on",
    ylim=(1.6, -0.6),
)
course.show(
    figure,
    "Masking single pieces often leaves another part of the word in view, masking whole words hardly ever",
)
course.say(
    f"**{by_piece[1]:.1%}** of the targets have another piece of their word in view when pieces are masked one by one, "
    f"and **{by_word[1]:.2%}** with whole words. (It is not quite zero, because a text may begin in the middle of a word.) "
    f"And the piece before is worth **{(loss_alone - loss_given).mean():.2f}** nats."
)

# %% [markdown]
# ### Exercise 03.5 (core): choose whole words
#
# Words come up in a random `order`; word `w` has `sizes[w]` pieces, and at most `limit` pieces may be
# targets. Take each word that still fits completely. One that does not fit is passed over, but a later one
# may still fit. Return for each *piece* whether it is a target, in the order of the text.


# %%
# Exercise 03.5
def choose_whole_words(sizes, order, limit):
    """Return which pieces are targets, (sum of sizes,) bool."""
    ...


# %%
def some_words(rng):
    sizes = rng.integers(1, 5, size=rng.integers(6, 15))
    return sizes, rng.permutation(len(sizes)), int(rng.integers(0, max(1, sizes.sum() * 2 // 3)))


def word_by_word(sizes, order, limit):
    taken = []
    for word in order.tolist():
        if sum(sizes[one] for one in [*taken, word]) <= limit:
            taken.append(word)
    return np.array([word in taken for word, size in enumerate(sizes.tolist()) for _ in range(size)])


lesson.check(choose_whole_words, draw=some_words, same_as=word_by_word, times=12)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Keep one number, how many pieces may still be chosen, and go through `order` once.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Note the choice for each word in a Boolean array. At the end `np.repeat(chosen, sizes)` says it once for each piece.
#
# </details>
# <details><summary>Solution 03.5</summary>
#
# ```python
# def choose_whole_words(sizes, order, limit):
#     chosen, left = np.zeros(len(sizes), bool), limit
#     for word in order:
#         if sizes[word] <= left:
#             chosen[word] = True
#             left -= sizes[word]
#     return np.repeat(chosen, sizes)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `sizes[word] <= left` | `sizes[word] < left` | A word that fits exactly is taken. |
# | `sizes[word] <= left` | `sizes[order[: list(order).index(word) + 1]].sum() <= limit` | A word that does not fit is passed over; it does not end the choice. |
# | `left -= sizes[word]` | `left -= 1` | The limit counts pieces, not words. |
# | `for word in order` | `for word in range(len(sizes))` | Words come up in the random order, not in that of the text. |
# | `np.repeat(chosen, sizes)` | `np.repeat(chosen[order], sizes[order])` | The answer is in the order of the text. |
# | `sizes[word] <= left` | `left > 0` | A word must fit completely, or more than `limit` pieces are chosen. |
# | `for word in order` | `for word in np.argsort(order)` | `order` lists words, the first to come up first; it does not say when each one comes up. |
# | `np.repeat(chosen, sizes)` | `np.repeat(np.isin(np.arange(len(sizes)), order[:limit]), sizes)` | The limit counts pieces, not words. |
#
# </details>

# %%
course.source(choose_words)

# %% [markdown]
# ## 6. Next sentences
#
# The second question is about pairs. In half of them text B follows text A in the book (`IsNext`), in the other half it
# comes from another document (`NotNext`), and from the vector of `[CLS]` the model has to tell which. This is
# **next-sentence prediction**. There are two classes, so a guess by tossing a coin costs $\ln 2$ nats.

# %%
labels = np.array([one.next_sentence_label for one in many])
for wanted, name in ((0, "IsNext"), (1, "NotNext")):
    one = next(one for one in many if one.next_sentence_label == wanted and 25 < len(one.input_ids) < 70)
    ids = original_of(one)
    first, second = ids[one.token_type_ids == 0][1:-1], ids[one.token_type_ids == 1][:-1]
    print(f"{name}\n  A: {tokenizer.decode(first)}\n  B: {tokenizer.decode(second)}\n")
share_not_next = labels.mean()
majority = -(share_not_next * np.log(share_not_next) + (1 - share_not_next) * np.log(1 - share_not_next))
course.say(
    f"Of {len(labels):,} pairs **{share_not_next:.1%}** are NotNext. It is a little over half, because a sentence that "
    f"fills the sequence or ends its document has no next one, and gets a random B. Always giving these "
    f"odds costs {majority:.4f} nats, and that, not ln 2, is the number to beat."
)

# %% [markdown]
# Is it a good question? A random B usually comes from another book, about other people and other things. One
# does not have to understand how sentences follow each other if it is enough to see that *whale* and
# *harpoon* occur in both. So let us try without any model: count how many of the rarer pieces of B occur in A
# as well.

# %%
count_guess = lesson.predict(
    "IsNext or NotNext, judged only by the number of rare pieces in common: how often is that right?",
    ...,
    choices=("about 50%", "about 60%", "about 70%", "about 90%"),
)


# %%
rare = np.ones(V, bool)
rare[ranked[:300]] = False  # not the 300 most frequent ones, nor special tokens
rare[[tokenizer.cls_id, tokenizer.sep_id]] = False
common, possible = [], []
for one in many:
    ids = original_of(one)
    a = set(ids[one.token_type_ids == 0].tolist())
    b = {number for number in ids[one.token_type_ids == 1].tolist() if rare[number]}
    common.append(len(a & b))
    possible.append(len(b))
common, possible = np.array(common).clip(max=6), np.array(possible)
half = len(many) // 2


def told_by_counting(common, labels):
    """Return each second-half pair's probability of NotNext, from what the first half shows for its count."""
    hits = np.bincount(common[:half], labels[:half], minlength=7) + 1
    return (hits / (np.bincount(common[:half], minlength=7) + 2))[common[half:]]


def surprise_of(probability, labels):
    """Return the surprise at each label when NotNext has this probability."""
    return -np.log(np.where(labels == 1, probability, 1 - probability))


p_not_next = told_by_counting(common, labels)
accuracy = ((p_not_next > 0.5) == (labels[half:] == 1)).mean()
odds = np.full(len(labels) - half, labels[half:].mean())  # the best constant guess, even knowing the answers
claim = lesson.claim(
    "pieces in common tell whether B follows A",
    surprise_of(p_not_next, labels[half:]),
    surprise_of(odds, labels[half:]),
    controls={
        "counts of other pairs": surprise_of(rng.permutation(p_not_next), labels[half:]),
        "labels of other pairs": surprise_of(p_not_next, rng.permutation(labels[half:])),
    },
    unit="nats",
)
count_guess.answer(
    f"about {10 * round(10 * accuracy)}%",
    f"{accuracy:.1%} of the pairs not used for counting, without reading a word.",
)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.4), layout="constrained")
for label, name, offset, colour in ((0, "IsNext", -0.2, "C0"), (1, "NotNext", 0.2, "C1")):
    heights = np.bincount(common[labels == label], minlength=7)
    left.bar(
        np.arange(7) + offset,
        heights,
        0.4,
        color=colour,
        label=name,
        hatch="" if label else "//",
        edgecolor="w",
    )
left.set(
    xlabel="rare pieces of B that are in A", ylabel="pairs", xticks=range(7), xticklabels=[*range(6), "6+"]
)
left.legend(frameon=False)
shares, sizes = np.bincount(common, labels, minlength=7), np.bincount(common, minlength=7)
share = shares / np.maximum(sizes, 1)
right.errorbar(range(7), share, 2 * np.sqrt(share * (1 - share) / np.maximum(sizes, 1)), fmt="o-", capsize=3)
right.axhline(share_not_next, color="k", ls="--", lw=1)
right.annotate("all pairs", (6, share_not_next), (0, 4), textcoords="offset points", ha="right")
right.set(
    xlabel="rare pieces of B that are in A",
    ylabel="share of NotNext",
    ylim=(0, 1),
    xticks=range(7),
    xticklabels=[*range(6), "6+"],
)
course.show(
    figure,
    "Pairs that follow each other share more rare pieces; the share of NotNext falls with every common piece",
)

# %% [markdown]
# Much of the answer lies in the topic. This is the best-known criticism of next-sentence prediction: later
# models (RoBERTa in 2019) left it out and lost nothing by it, or asked for the order of two neighbouring
# texts instead (ALBERT), where the topic does not help. In the paper, next-sentence prediction helps with
# tasks about pairs of sentences, and minibert trains with it by default, as BERT does.
#
# ## 7. The two losses together
#
# BERT's loss is the plain sum of the two means:
#
# $$ \frac1M \sum_{m} -\ln q(y_m) \; + \; \frac1S \sum_{s} -\ln q(\text{label}_s), $$
#
# over the $M$ targets of a batch and its $S$ sequences. Before training, all guesses are about equal, so we expect
# $\ln V + \ln 2$.

# %%
config = BertConfig.from_size("tiny", vocab_size=V)
params = initialise(config, seed=0).astype(np.float64)
batch = Batch.pack(many[:32])
engine = lesson.engine()
loss, _ = bert.pretraining_loss(engine, config, params.tree, batch)
mlm, nsp = float(loss.mlm_loss), float(loss.nsp_loss)
course.equal("the loss is the sum of two means", loss.loss, loss.mlm_nll.mean() + loss.nsp_nll.mean())
course.say(
    f"An untrained model with random weights: masked pieces **{mlm:.3f}** nats (ln V = {np.log(V):.3f}), next sentences "
    f"**{nsp:.3f}** nats (ln 2 = {np.log(2):.3f}). It begins {mlm - unigram:.2f} nats above the unigram floor; frequencies "
    "are the first thing that there is to learn."
)
figure, axes = plt.subplots(figsize=(9, 2.4), layout="constrained")
marks = {
    "equal chances, ln V": np.log(V),
    "untrained": mlm,
    "frequencies": unigram,
    "frequencies and copying": copied,
}
for height, value in enumerate(marks.values()):
    axes.barh(height, value, color=plt.cm.cividis(0.2 + 0.2 * height))
    axes.text(value + 0.06, height, f"{value:.2f}", va="center")
axes.set(
    yticks=range(4),
    yticklabels=marks,
    ylim=(3.6, -0.6),
    xlabel="masked-LM loss (nats), all targets",
    xlim=(0, 10),
)
course.show(
    figure, "Landmarks of the masked-LM loss: ln V, an untrained model, the unigram floor and the copier"
)

# %% [markdown]
# ## What we saw
#
# * The loss is a mean surprise. It is the entropy of the text plus the price of being wrong about its probabilities.
# * At places that show `[MASK]`, no model without context gets below the unigram floor.
# * Targets that are left in sight can be copied. We computed how much that gains, which is why minibert's measure
#   leaves them out.
# * Masking single pieces leaves parts of words in view; whole-word masking does not.
# * The topic alone often gives away whether B follows A.
#
# In each case the question was the same: how well can one do without any understanding? Only what goes beyond that was
# learnt from the context.
#
# What you take from this chapter is `mine.py`, with one more operation.

# %%
lesson.keep()
folder.cleanup()

# %% [markdown]
# ## Words
#
# - **surprise**: $-\ln q$, in nats, where $q$ is the probability that was given to what occurred.
# - **entropy**: the mean surprise of somebody who knows the true probabilities.
# - **cross-entropy**: the mean surprise of somebody who believes in other probabilities.
# - **Kullback–Leibler divergence**: the difference of the two, the price of being wrong.
# - **unigram**: the frequencies of single pieces, without context.
# - **unigram floor**: the entropy of these frequencies, the lowest loss without context.
# - **logits**: the numbers that a network produces before they are made probabilities.
# - **softmax**: turns logits into probabilities.
# - **masked language model**: a model that guesses hidden pieces from both sides.
# - **targets**: the places that are to be guessed.
# - **mutual information**: by how much knowing one thing lowers the mean surprise at another.
# - **whole-word masking**: hiding all pieces of a word or none.
# - **next-sentence prediction**: telling whether text B follows text A.
#
# ## Where to go next
#
# * [Chapter 04](04_attention.ipynb): how a token learns about the others.
# * `minibert/core/pairs.py` and `minibert/core/masks.py` make the questions, one text at a time;
#   `minibert/data/nsp_spans.py` and `minibert/data/masking.py` do so for millions of sequences.
# * Appendix A.1 of [Devlin et al. 2019](https://arxiv.org/abs/1810.04805) explains the 80%, 10% and 10%; table 8 varies
#   them.
