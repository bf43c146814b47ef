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
# # 11 · Fine-tuning: what is one more layer worth?
#
# To run this notebook: `pip install '.[notebooks]'` from a checkout of minibert. Nothing is downloaded. It takes about
# two minutes, half of that in the first section.
#
# **The question.** [Devlin et al. 2019](https://arxiv.org/abs/1810.04805) claim that *one output layer* on top of BERT is
# enough for most tasks (section 4). Is it? And when such a model scores well, how would you know that it was not the
# words alone?
#
# **After this chapter you can**
#
# * write the three output layers of the paper, for a label, for a tag at each word and for an answer in a passage, with
#   their gradients;
# * write the loop that fine-tunes a whole BERT under any of them;
# * build the floor that a model has to beat, and say with an interval whether it does;
# * find out which of three good-looking reports can't be believed.
#
# It needs no exercises from other chapters. What you have solved there runs here, as part of your engine.

# %%
# %matplotlib inline
import math
import re
import string
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from minibert import Bert, TextClassifier, Tokenizer, course
from minibert.core import heads
from minibert.core.batch import Feature, Sequence, TaskBatch
from minibert.core.bert import encoder, encoder_backward
from minibert.core.config import BertConfig
from minibert.core.gradcheck.complex_step import complex_step
from minibert.core.ops import AdamRule  # noqa: F401, for your answers
from minibert.core.optim import AdamW, warmup_linear
from minibert.data.corpus import embedded_corpus, sentences
from minibert.engines import limited_threads
from minibert.finetuning.whole_model import HeadObjective
from minibert.model.ops import Ops
from minibert.model.params import Head, Parameters, initialise
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain
from minibert.tasks.bag_of_words import NaiveBayes
from minibert.tasks.metrics import bootstrap, paired_bootstrap
from minibert.tasks.metrics.entities import conlleval
from minibert.training.step import start

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
limits = limited_threads(1)  # several threads are slower with matrices this small
lesson = course.begin("11")

# %% [markdown]
# ## 1. A BERT, and text that it has not read
#
# If chapter 10 has left a folder `my_bert` next to this notebook, that is the BERT that we teach. Otherwise minibert's
# fast engine reads the books of the package for less than a minute and leaves one of the same form: two layers of 64
# numbers, and 32 positions.
#
# A fifth of the **chapters** is kept apart as the **development set**, *dev* for short. Had we kept single sentences
# apart, a model could learn the names of one chapter by heart and be praised for it. The BERT that is trained here has
# not read them either; `my_bert` has read most of them, as text without any label.

# %%
documents = [[]]
for line in sentences([embedded_corpus()]):
    if line:
        documents[-1].append(line)
    else:
        documents.append([])
SPLITS = {
    "train": [one for number, one in enumerate(documents) if number % 5 != 2],
    "dev": documents[2::5],
}
LONGEST = 32  # tokens of an input, [CLS] and [SEP] included

folder = Path("my_bert")
if not (folder / "config.json").exists():
    work = Path(tempfile.mkdtemp())
    folder = work / "bert"
    (work / "reading.txt").write_text("\n\n".join(map("\n".join, SPLITS["train"])), encoding="utf-8")
    options = PretrainOptions(
        corpus=str(work / "reading.txt"), layout="sentences", size="2-64-2", vocab_size=lesson.scale(2_048, 600),
        steps=lesson.scale(1_000, 20), seq_length="10:0.7,32:0.3", batch_size=100, max_positions=LONGEST,
        next_sentence=False, evaluations=0,
    )  # fmt: skip
    pretrain(options, folder, show=False)
tokenizer, bert = Tokenizer.from_pretrained(folder), Bert.from_pretrained(folder, "numpy")
config = bert.config
engine = lesson.engine()
print(f"{folder.name}: {config.L} layers of {config.H}, {tokenizer.vocab_size:,} pieces")

# %% [markdown]
# ## 2. A question about two texts
#
# A sentence of a book, in lower case and without punctuation, is cut in the middle. A and B are its halves, in this order
# or exchanged. **Which half comes first?** A coin decides about each sentence, so that a guess is right in half of
# all cases. Nobody had to label anything: the books know the answer.


# %%
def plain(line):
    """Return the words of a sentence without capitals, and without marks at their ends."""
    words = [word.strip(string.punctuation).lower() for word in line.split()]
    return [word for word in words if word]


def halves(split, most, seed):
    """Return ((text, text), 1 if they are in order, else 0) for sentences drawn from a split."""
    rng = np.random.default_rng(seed)
    lines = [plain(line) for document in SPLITS[split] for line in document]
    lines = [words for words in lines if 8 <= len(words) <= 18]
    found = []
    for number in rng.permutation(len(lines)):
        words = lines[number]
        middle = len(words) // 2
        first, second = " ".join(words[:middle]), " ".join(words[middle:])
        label = int(rng.integers(2))
        pair = (first, second) if label else (second, first)
        if len(tokenizer(*pair).ids) <= LONGEST:
            found.append((pair, label))
        if len(found) == most:
            break
    return found


train = halves("train", lesson.scale(4_000, 160), 0)
dev = halves("dev", lesson.scale(1_500, 80), 1)
gold = np.array([label for _, label in dev])
print(f"{len(train):,} pairs to learn from, {len(dev):,} to measure on; for example:")
for (first, second), label in dev[:4]:
    print(f"  {first} | {second}: {'in order' if label else 'exchanged'}")

# %%
guess = lesson.predict(
    "Which will be right most often?", ..., choices=("counts of all words", "counts of four words", "BERT")
)

# %% [markdown]
# ## 3. The floor
#
# A score means nothing by itself. The strongest simple rival of a model of text is **naive Bayes** on a **bag of words**:
# the pieces of a text without their order. It counts how often each label goes with each piece, and multiplies the
# probabilities as if pieces were drawn independently. For a label $y$ and a bag $w_1, \dots, w_n$
#
# $$ \ln p(y) + \sum_i \ln p(w_i \mid y), \qquad p(w \mid y) = \frac{c(w, y) + 1}{\sum_{v} c(v, y) + V} , $$
#
# where $c(w, y)$ counts $w$ in all bags with the label $y$, and $V$ is the number of different things in all training
# bags together. The one in the numerator keeps a single new pairing from making everything impossible; with it, the
# probabilities over the $V$ things still sum to one:

# %%
toy = np.array([3.0, 0.0, 2.0, 1.0])
course.equal("probabilities of things sum to one", ((toy + 1) / (toy.sum() + len(toy))).sum(), 1.0)

# %% [markdown]
# ### Exercise 11.1 (core): naive Bayes
#
# `bags` is a list of bags, each a list of things such as pieces; `labels` is a list with the label of each bag; `asked`
# is another list of bags. For every bag in `asked` and every label, in the order of `sorted(set(labels))`, compute
# $\ln p(y) + \sum_i \ln p(w_i \mid y)$, where $p(y)$ is the share of the label $y$ among `labels`, and return the array
# (bags asked, labels). A thing that occurs several times in a bag counts as many times. A thing that occurs in none of
# `bags` says nothing, so leave it out.


# %%
# Exercise 11.1
def naive_bayes(bags, labels, asked):
    """Return ln p(label) + the sum of ln p(thing | label), an array (asked, labels)."""
    ...


# %%
def bayes_by_fractions(bags, labels, asked):
    """Multiply exact fractions, counted anew for each factor, and take the logarithm at the end."""
    different = {thing for bag in bags for thing in bag}
    result = []
    for bag in asked:
        row = []
        for label in sorted(set(labels)):
            with_label = [
                thing for one, its in zip(bags, labels, strict=True) if its == label for thing in one
            ]
            product = Fraction(sum(its == label for its in labels), len(labels))
            for thing in bag:
                if thing in different:
                    product *= Fraction(with_label.count(thing) + 1, len(with_label) + len(different))
            row.append(math.log(product.numerator) - math.log(product.denominator))
        result.append(row)
    return np.array(result)


def draw_bags(rng):
    words = ["the", "sea", "king", "she", "of", ("of", "the")]
    labels = [str(one) for one in rng.choice(["b", "a", "c"], 9)] + ["a", "b", "b"]

    def bag(known, least):
        return [known[number] for number in rng.integers(len(known), size=rng.integers(least, 7))]

    return [bag(words[:-1], 1) for _ in labels], labels, [bag([*words, "whale"], 0) for _ in range(4)]


lesson.check(naive_bayes, draw=draw_bags, same_as=bayes_by_fractions, times=20)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A `Counter` for each label, and `counts[label].update(bag)`. `sum(counts[label].values())` is how many things it has
# seen.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `known = set().union(*counts.values())` are the things of all labels together, and $V$ is `len(known)`, the same for
# every label. A `Counter` gives 0 for what it has not seen.
#
# </details>
# <details><summary>Solution 11.1</summary>
#
# ```python
# def naive_bayes(bags, labels, asked):
#     names = sorted(set(labels))
#     counts = {name: Counter() for name in names}
#     for bag, label in zip(bags, labels):
#         counts[label].update(bag)
#     known = set().union(*counts.values())
#     columns = []
#     for name in names:
#         total = sum(counts[name].values()) + len(known)
#         prior = math.log(labels.count(name) / len(labels))
#         p = {thing: math.log((counts[name][thing] + 1) / total) for thing in known}
#         columns.append([prior + sum(p[thing] for thing in bag if thing in known) for bag in asked])
#     return np.array(columns).T
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `(counts[name][thing] + 1) / total` | `max(counts[name][thing], 1e-9) / total` | Each count is one larger than what was counted. |
# | `+ len(known)` | `+ len(counts[name])` | V counts the things of all labels together, not those of this label. |
# | `+ len(known)` | *nothing* | Without V in the denominator the probabilities sum to more than one. |
# | `sum(counts[name].values())` | `len(counts[name])` | The denominator has all occurrences, not the different things. |
# | `prior + sum(` | `sum(` | The label itself has a probability, which is the first term. |
# | `for thing in bag if` | `for thing in set(bag) if` | What occurs twice in a bag counts twice. |
# | `np.array(columns).T` | `np.array(columns)` | A row for each bag is asked for, and a column for each label. |
# | `sum(p[thing] for thing in bag if thing in known)` | `sum(math.log((counts[name][thing] + 1) / total) for thing in bag)` | A thing that occurs in none of the bags says nothing, and is left out. |
# | `sorted(set(labels))` | `list(dict.fromkeys(labels))` | The columns follow the sorted labels, not the order in which they come up. |
# | `+ len(known)` | `+ 1` | The denominator grows by V, one for each different thing; with 1 alone the probabilities sum to more than one. |
# | `labels.count(name) / len(labels)` | `sum(counts[name].values()) / sum(map(len, bags))` | p(y) is the share of the bags with the label, not of the things in them. |
# | `np.array(columns).T` | `np.array(columns).T - np.log(np.exp(np.array(columns).T).sum(1, keepdims=True))` | This is normalised over the labels; the formula asked for is not. |
#
# </details>

# %% [markdown]
# Which bag? We try two. *All words by side*: each piece with a mark saying whether it is in A or in B. *Four words*: only
# the first and the last piece of both, each with its place. Both are counts, and neither reads a sentence.


# %%
def all_by_side(pair):
    """Return the pieces of both texts, each with its side."""
    first, second = pair
    return [("A", piece) for piece in pieces_of(first)] + [("B", piece) for piece in pieces_of(second)]


def four_ends(pair):
    """Return the first and the last piece of both texts, each with its place."""
    first, second = map(pieces_of, pair)
    ends = (first[0], first[-1], second[0], second[-1])
    return list(zip("abcd", ends, strict=True))


def pieces_of(text):
    return tokenizer.encode(text, add_special_tokens=False)


def bayes_of_minibert(bags, labels, asked):
    """Ask the naive Bayes whose score stands beside a model's in every report of `minibert finetune`."""
    return NaiveBayes(bags, labels, len(set(labels))).log_probabilities(asked)


bayes = naive_bayes if lesson.passed("11.1") else bayes_of_minibert
right = {"a coin": np.random.default_rng(7).integers(2, size=len(dev)) == gold}
labels = [label for _, label in train]
for name, bag_of in (("all words by side", all_by_side), ("four words", four_ends)):
    scores = bayes([bag_of(pair) for pair, _ in train], labels, [bag_of(pair) for pair, _ in dev])
    right[name] = scores.argmax(1) == gold
for name, found in right.items():
    print(f"{name:20} {found.mean():.1%} right")

# %% [markdown]
# ## 4. One output layer
#
# Now BERT. After its last layer it has a vector of $H$ numbers for each token. The paper fine-tunes in four ways (its
# figure 4), and only the place where the new layer reads differs.

# %%
figure, panels = plt.subplots(1, 4, figsize=(11, 2.1), layout="constrained")
ways = {
    "two texts, one label": ("[CLS] A A [SEP] B B [SEP]", (0,)),
    "one text, one label": ("[CLS] A A A [SEP]", (0,)),
    "an answer in a passage": ("[CLS] Q Q [SEP] P P P [SEP]", (4, 5, 6)),
    "a label for each word": ("[CLS] A A A [SEP]", (1, 2, 3)),
}
for ax, (title, (line, places)) in zip(panels, ways.items(), strict=True):
    tokens = line.split()
    ax.barh(0.85, len(tokens), left=-0.5, height=0.7, color="C0", alpha=0.25)
    ax.text((len(tokens) - 1) / 2, 0.85, "BERT", ha="center", va="center")
    for place, token in enumerate(tokens):
        ax.text(place, 0, token, ha="center", va="center", fontsize=7, family="monospace")
    for place in places:
        ax.annotate("", (place, 1.8), (place, 1.25), arrowprops={"arrowstyle": "->", "color": "C1"})
    ax.set(xlim=(-0.8, len(tokens) - 0.2), ylim=(-0.4, 2))
    ax.set_title(title, fontsize=9)
    ax.set_axis_off()
course.show(
    figure,
    "Four inputs below a box called BERT. Arrows leave it at [CLS] for one text and for two texts, at every token of the "
    "passage for an answer, and at every word for labels.",
)

# %% [markdown]
# Ours is the first. `[CLS]` stands for the whole input. Its vector goes through the **pooler**, $c = \tanh(h W_p + b_p)$,
# and the new layer makes of $c$ a logit for each of $K$ labels: $z = cW + b$. With $p = \operatorname{softmax}(z)$ the
# loss of an input is $-\ln p_y$, and its derivative is the probability that the model gave minus the right one, which is
# 1 for the right label and 0 for the others:
#
# $$ \frac{\partial (-\ln p_y)}{\partial z_k} = \frac{\partial}{\partial z_k} \Bigl( \ln \sum_j e^{z_j} - z_y \Bigr)
#    = p_k - [k = y] . $$
#
# From there on it is a linear layer as in chapter 05, and $\partial L / \partial c$ is what goes back into the encoder.
#
# ### Exercise 11.2 (core): the output layer and its gradient
#
# `pooled` (S,H) are the vectors $c$ of S inputs, `labels` (S,) the right labels, whole numbers. The loss is the **mean**
# over the inputs. Logits may be large: let nothing overflow.


# %%
# Exercise 11.2
def label_loss(pooled, weight, bias, labels):
    """Return loss, dpooled (S,H), dweight (H,K) and dbias (K,)."""
    ...


# %%
def mean_surprise(pooled, weight, bias, labels):
    """Return the mean of ln sum exp(z) - z_y, input by input."""
    total = 0
    for c, label in zip(pooled, labels, strict=True):
        z = [(c * weight[:, k]).sum() + bias[k] for k in range(len(bias))]
        top = max(one.real for one in z)
        total = total + top + np.log(sum(np.exp(one - top) for one in z)) - z[label]
    return total / len(labels)


def by_complex_steps(f, arguments, wrt):
    """Return f, and its derivative with respect to each number of some arguments (chapter 05)."""
    gradients = []
    for place in wrt:
        gradient = np.zeros(arguments[place].shape)
        for where in np.ndindex(gradient.shape):
            moved = arguments[place].astype(complex)
            moved[where] += 1e-30j
            gradient[where] = f(*arguments[:place], moved, *arguments[place + 1 :]).imag / 1e-30
        gradients.append(gradient)
    return float(np.real(f(*arguments))), *gradients


def label_loss_by_steps(pooled, weight, bias, labels):
    return by_complex_steps(mean_surprise, (pooled, weight, bias, labels), (0, 1, 2))


def draw_pooled(rng):
    S, H, K = (int(one) for one in rng.permutation([3, 4, 5]))
    pooled, weight, bias = rng.standard_normal((S, H)), rng.standard_normal((H, K)), rng.standard_normal(K)
    labels = rng.integers(K, size=S)
    if rng.random() < 0.5:  # logits in the thousands, and one label, which is surely wrong for the first input:
        weight = 1000 * weight  # if all were right, the gradients would be too close to zero to be compared
        labels[:] = (pooled[0] @ weight).argmin()
    return pooled, weight, bias, labels


lesson.check(label_loss, draw=draw_pooled, same_as=label_loss_by_steps, times=24)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Subtract the largest logit of each row first; the softmax stays what it is. Then `p = e / e.sum(1, keepdims=True)`, and
# the loss is the mean of `np.log(e.sum(1)) - z[np.arange(S), labels]`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `p[np.arange(S), labels] -= 1` makes $p$ into the derivative of each input's loss. Divide by S. The three gradients are
# `dlogits @ weight.T`, `pooled.T @ dlogits` and `dlogits.sum(0)`.
#
# </details>
# <details><summary>Solution 11.2</summary>
#
# ```python
# def label_loss(pooled, weight, bias, labels):
#     logits = pooled @ weight + bias
#     z = logits - logits.max(1, keepdims=True)
#     e = np.exp(z)
#     p = e / e.sum(1, keepdims=True)
#     here = np.arange(len(labels)), labels
#     loss = (np.log(e.sum(1)) - z[here]).mean()
#     p[here] -= 1
#     dlogits = p / len(labels)
#     return loss, dlogits @ weight.T, pooled.T @ dlogits, dlogits.sum(0)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `dlogits = p / len(labels)` | `dlogits = p` | The loss is a mean, so each input has a share of 1/S in the gradient. |
# | `- z[here]).mean()` | `- z[here]).sum()` | The loss is the mean over the inputs. |
# | `    p[here] -= 1` | `    p[here] += 1` | The derivative is p minus one at the right label. |
# | `logits.max(1, keepdims=True)` | `0` | Large logits overflow: subtract the largest of each row. |
# | `dlogits.sum(0)` | `dlogits.mean(0)` | The bias is added in every row, so its gradient is the sum over the rows. |
# | `dlogits @ weight.T` | `dlogits @ weight.T * (1 - pooled**2)` | The tanh belongs to the pooler, which has a backward of its own. |
# | `e / e.sum(1, keepdims=True)` | `e / e.sum(0, keepdims=True)` | The softmax runs over the labels of one input. |
# | `logits.max(1, keepdims=True)` | `logits.max()` | Subtract the largest logit of each input: below the largest of all inputs, whole rows of exponentials are 0. |
# | `dlogits = p / len(labels)` | `dlogits = p / p.shape[1]` | The mean is over the S inputs, not over the K labels. |
# | `dlogits = p / len(labels)` | `dlogits = -p / len(labels)` | The derivative is p minus one at the right label; here the sign is turned. |
# | `pooled @ weight + bias` | `pooled @ weight` | The bias is missing. |
# | `(np.log(e.sum(1)) - z[here]).mean()` | `(z[here] - np.log(e.sum(1))).mean()` | The loss is minus a logarithm: the sign is missing. |
# | `(np.log(e.sum(1)) - z[here]).mean()` | `-np.log(e[here] / e.sum(1) + 1e-9).mean()` | A small number under the logarithm changes the loss; ln of the sum minus the logit needs none. |
#
# </details>

# %% [markdown]
# A loop that trains wants to know two things of a task: its loss, and the gradient of the hidden states. We call that the
# *output* of a task. Here is that of our pairs. Everything below it is the same for every task.


# %%
def label_output(ops, x, batch, params, grads):
    """Return the loss at [CLS] and its gradient of the hidden states x (T,H); add those of pooler and head."""
    pooled, saved = ops.pooler(x, batch.first_rows, params["pooler"])
    head = params["head"]
    loss, dpooled, dweight, dbias = label_loss(pooled, head["weight"], head["bias"], batch.labels)
    dx, _ = ops.pooler_backward(dpooled, saved, params["pooler"], grads["pooler"])
    ops.add_gradients(grads["head"], weight=dweight, bias=dbias)
    return loss, dx


def library_output(ops, x, batch, params, grads):
    """Do what label_output does, by minibert's operations alone."""
    pooled, saved = ops.pooler(x, batch.first_rows, params["pooler"])
    logits, saved_linear = ops.linear(pooled, params["head"]["weight"], params["head"]["bias"])
    nll, saved_loss = ops.softmax_cross_entropy(logits, batch.labels)
    dlogits = ops.softmax_cross_entropy_backward(batch.label_weights, saved_loss)
    dpooled, weight, bias = ops.linear_backward(dlogits, saved_linear)
    dx, _ = ops.pooler_backward(dpooled, saved, params["pooler"], grads["pooler"])
    ops.add_gradients(grads["head"], weight=weight, bias=bias)
    return (batch.label_weights * nll).sum(), dx


def pair_feature(pair, label):
    """Return [CLS] A [SEP] B [SEP] with its label."""
    encoding = tokenizer(*pair)
    return Feature((Sequence(np.array(encoding.ids), np.array(encoding.token_type_ids)),), label)


head = Head("classify", 2)
params, fresh = bert.params.with_head(head, seed=0)
batch = TaskBatch.pack_features([pair_feature(*one) for one in train[:8]], head)
grads = params.zeros_like()
x, saved = encoder(engine, config, params.tree, batch)
output = label_output if lesson.passed("11.2") else library_output
loss, dx = output(engine, x, batch, params.tree, grads.tree)
encoder_backward(engine, config, dx, saved, params.tree, grads.tree)
print("new in this model:", ", ".join(f"{name} {params[name].shape}" for name in fresh))
print(f"loss before training {loss:.3f}, ln 2 = {math.log(2):.3f}")
print(f"hidden states with a gradient: {(dx != 0).any(1).sum()} of {batch.T}, the [CLS] of {batch.S} pairs")
reached = (grads["embeddings.word"] != 0).any(1).sum()
print(
    f"rows of the word table with one: {reached}; different pieces in these pairs: {len(set(batch.input_ids))}"
)

# %% [markdown]
# The new layer reads one token in each input, so only that one gets a gradient at the top. On the way down it spreads to
# every token that was attended to: at the bottom, every piece of these pairs has its share.
#
# ## 5. Your loop
#
# **Fine-tuning** trains everything: the new layer *and* the encoder below it. There is nothing in it that pre-training
# did not have, but it is short, so it needs two kinds of care. The gradient is clipped. And the learning rate follows a
# schedule: with $N$ updates in all and the first tenth of them, rounded up, as warm-up, $w = \lceil N / 10 \rceil$,
#
# $$ \eta_t = \eta \, \min\Bigl( \frac{t}{w},\; \frac{N - t}{N - w} \Bigr), \qquad t = 0, \dots, N - 1 . $$
#
# ### Exercise 11.3 (hard): fine-tune
#
# `flat` is the buffer of all parameters of encoder and head; `Parameters(config, flat, head=head)` gives it its names.
# Leave it alone and work on a copy. Make one update for each of `batches`, in order:
#
# 1. begin with new gradients, `params.zeros_like()`;
# 2. `encoder(ops, config, params.tree, batch)` is the forward pass, which returns `x` and what is saved;
# 3. `output(ops, x, batch, params.tree, grads.tree)` returns the loss and `dx`, and adds the gradients of what is on top
#    of the encoder;
# 4. `encoder_backward(ops, config, dx, saved, params.tree, grads.tree)` adds all others;
# 5. the update is that of chapter 10: `rule = AdamRule(lr=rate, step=number, clip=factor)`, then
#    `ops.adamw(params.flat, grads.flat, m, v, params.decayed, rule)`, which returns the three buffers.
#
# Here `rate` is $\eta_t$ with $\eta$ = `peak`, `number` is $t + 1$, `factor` is the one that limits the norm of
# `grads.flat` to 1, $\min(1, 1/\|g\|)$, and the moments `m` and `v` are zeros before the first update. Return the new
# buffer, of the shape of `flat`, and an array (updates,) of the losses, each computed before its update.


# %%
# Exercise 11.3
def fine_tune(ops, config, head, flat, batches, output, peak):
    """Return parameters and losses: after one update for each batch, and before each of them (updates,)."""
    ...


# %%
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def small_task(rng):
    """Return the arguments of a short run, for a model of a few hundred parameters."""
    form = BertConfig.from_size("1-6-2", vocab_size=17, max_position_embeddings=9, **NO_DROPOUT)
    head = Head("classify", 3)
    flat = 0.5 * rng.standard_normal(Parameters(form, head=head).count())
    batches = []
    for _ in range(int(rng.choice([10, 11, 11]))):
        features = []
        for _ in range(2):
            n = int(rng.integers(3, 9))
            sequence = Sequence(rng.integers(17, size=n), np.arange(n) * 2 // n)
            features.append(Feature((sequence,), int(rng.integers(3))))
        batches.append(TaskBatch.pack_features(features, head))
    return Ops(), form, head, flat, batches, library_output, float(10 ** rng.uniform(-2.5, -1))


def library_run(ops, config, head, flat, batches, output, peak):
    """Fine-tune with what `minibert finetune` is made of: its objective, its steps, its schedule."""
    params = Parameters(config, flat.copy(), head=head)
    steps = start(ops, params, AdamW(params.flat, params.decayed), HeadObjective(config, head, 0, 0.5, None))
    total, losses = len(batches), []
    for number, batch in enumerate(batches):
        rate = warmup_linear(number, total, -(-total // 10), peak)
        losses.append(steps.step((batch,), number, rate)["loss"])
    return params.flat, np.array(losses)


lesson.check(fine_tune, draw=small_task, same_as=library_run, times=5, tolerance=1e-9)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Before the loop: the copy, `grads = params.zeros_like()`, and two buffers of zeros `m` and `v`. In each round set
# `grads.flat[...] = 0`, for everything is *added* into it.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `ops.clip_factor(ops.global_norm(grads.flat), 1.0)` is the factor. The first returned buffer has to go where the names
# point: `params.flat[...] = …`. The losses are numbers: `float(loss)`.
#
# </details>
# <details><summary>Solution 11.3</summary>
#
# ```python
# def fine_tune(ops, config, head, flat, batches, output, peak):
#     params = Parameters(config, flat.copy(), head=head)
#     grads, losses = params.zeros_like(), []
#     m, v = np.zeros_like(flat), np.zeros_like(flat)
#     total = len(batches)
#     warmup = math.ceil(total / 10)
#     for step, batch in enumerate(batches):
#         grads.flat[...] = 0
#         x, saved = encoder(ops, config, params.tree, batch)
#         loss, dx = output(ops, x, batch, params.tree, grads.tree)
#         encoder_backward(ops, config, dx, saved, params.tree, grads.tree)
#         rate = peak * min(step / warmup, (total - step) / (total - warmup))
#         clip = ops.clip_factor(ops.global_norm(grads.flat), 1.0)
#         rule = AdamRule(lr=rate, step=step + 1, clip=clip)
#         new, m, v = ops.adamw(params.flat, grads.flat, m, v, params.decayed, rule)
#         params.flat[...] = new
#         losses.append(float(loss))
#     return params.flat, np.array(losses)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `        grads.flat[...] = 0` | `        pass` | Gradients are added up, so those of the batches before are still in there. |
# | `        encoder_backward(ops, config, dx, saved, params.tree, grads.tree)` | `        pass` | The encoder gets no gradient: only what stands on it is trained. |
# | `m, v = np.zeros_like(flat), np.zeros_like(flat)` | `m, v = np.zeros_like(flat), np.ones_like(flat)` | Both moments begin at zero; the correction counts on it. |
# | `step=step + 1` | `step=step + 2` | Updates count from 1; the correction of the moments depends on it. |
# | `, clip=clip` | *nothing* | The gradient is not clipped: the rule has to know the factor. |
# | `peak * min(step / warmup, (total - step) / (total - warmup))` | `peak` | The rate follows a schedule, up to its peak and down to zero. |
# | `(total - step) / (total - warmup)` | `(total - step) / total` | After the warm-up the rate falls from its peak: the decay is counted from there. |
# | `math.ceil(total / 10)` | `math.ceil(total / 5)` | The warm-up takes a tenth of the updates. |
# | `math.ceil(total / 10)` | `total // 10` | The warm-up is rounded up: eleven updates have two of them, not one. |
# | `min(step / warmup, (total - step) / (total - warmup))` | `(total - step) / (total - warmup)` | The warm-up is missing: the rate begins at zero. |
# | `min(step / warmup, (total - step) / (total - warmup))` | `min((step + 1) / warmup, (total - step - 1) / (total - warmup))` | In the schedule t counts from 0: the first update has the rate 0. |
# | `min(step / warmup` | `max(step / warmup` | The rate is the smaller of the two: it rises first, and then falls. |
# | `        grads.flat[...] = 0` | `        grads.flat[...] = 0; m, v = np.zeros_like(flat), np.zeros_like(flat)` | The moments are running means: they are kept from update to update. |
# | `clip = ops.clip_factor(ops.global_norm(grads.flat), 1.0)` | `clip = 1 / ops.global_norm(grads.flat)` | A gradient that is shorter than 1 stays as it is: the factor is at most 1. |
# | `clip = ops.clip_factor(ops.global_norm(grads.flat), 1.0)` | `clip = ops.global_norm(grads.flat)` | The factor is one over the norm, not the norm itself. |
# | `losses.append(float(loss))` | `losses.append(float(output(ops, encoder(ops, config, params.tree, batch)[0], batch, params.tree, params.zeros_like().tree)[0]))` | The loss before each update is asked for, not the one after it. |
#
# </details>


# %%
def batches_of(features, head, epochs, seed):
    """Cut the features into batches of 32, in a new order for each epoch, one pass through all of them."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(epochs):
        order = rng.permutation(len(features))
        for begin in range(0, len(order) - 31, 32):
            found.append(TaskBatch.pack_features([features[one] for one in order[begin : begin + 32]], head))
    return found


def tune(head, start_from, batches, output, peak, number):
    """Fine-tune by your loop and your loss, if both are solved; otherwise minibert's own run stands in."""
    params, _ = start_from.with_head(head, seed=0)
    is_yours = lesson.passed("11.3") and lesson.passed(number)
    run = fine_tune if is_yours else library_run
    whose = "your loop" if is_yours else f"minibert's run (11.3 and {number} are not both solved)"
    flat, losses = run(engine, config, head, params.flat, batches, output, peak)
    before, after = losses[:9].mean(), losses[-9:].mean()
    print(f"{whose}: {len(losses)} updates, training loss from {before:.2f} to {after:.2f}")
    return flat, losses


def scores_of(flat, head, features):
    """Return the scores of a fine-tuned model, one array for each feature."""
    tree, found = Parameters(config, flat, head=head).tree, []
    for begin in range(0, len(features), 100):
        batch = TaskBatch.pack_features(features[begin : begin + 100], head)
        scores = heads.scores_of(engine, config, head, tree, batch)
        found += heads.split_outputs(scores, head, batch)
    return found


# %% [markdown]
# Three **epochs**, passes through the training pairs, in batches of 32, with a peak rate that suits a model this
# small. We do it twice: from the BERT that has read the books, and from one of the same form with untrained weights.

# %%
starts = {
    "BERT": bert.params,
    "untrained BERT": initialise(config, 1),
}
pair_features = [pair_feature(*one) for one in train]
dev_features = [pair_feature(*one) for one in dev]
curves = {}
for name, from_where in starts.items():
    batches = batches_of(pair_features, head, 3, seed=0)
    flat, curves[name] = tune(head, from_where, batches, label_output, 2e-3, "11.2")
    right[name] = np.array([one.argmax() for one in scores_of(flat, head, dev_features)]) == gold
    print(f"{name:20} {right[name].mean():.1%} right")

# %%
figure, axes = plt.subplots(figsize=(7.5, 3), layout="constrained")
for name, losses in curves.items():
    width = max(1, len(losses) // 20)
    smooth = np.convolve(losses, np.ones(width) / width, "valid")
    axes.plot(np.arange(len(smooth)) + width, smooth, label=name)
axes.axhline(math.log(2), color="0.4", ls="--", lw=0.8)
axes.set(xlabel="update", ylabel="training loss (nats)", title="Fine-tuning by your loop; dashed: a coin")
axes.legend(frameon=False)
course.show(
    figure,
    "Training loss against the update, smoothed, for the BERT that has read and for the untrained one, beside a dashed "
    "line for a coin.",
)

# %% [markdown]
# Never read success from this picture. It shows how well a model knows the pairs that it was shown, and the lower line is
# not always that of the better model. What it knows of other pairs is the next question.
#
# ## 6. Is it better? An interval
#
# Two models answer the same pairs. On other pairs, the difference of their scores would be different. The **bootstrap**
# of chapter 03 resamples the dev set from itself, with replacement, a thousand times. The one thing to get right is to
# be **paired**: each drawn set is given to *both* models. A pair that is hard is hard for both, and that part of the
# chance cancels in the difference.
#
# ### Exercise 11.4 (core): the interval of a difference
#
# `ours` and `theirs` (n,) say of each example whether a model was right, or what it scored. `rows` (R,n) are R drawn sets,
# the numbers of the examples in each. Return the lower and the upper end of the interval that holds the middle 95% of the
# R differences, by `np.quantile`, as numbers.


# %%
# Exercise 11.4
def paired_interval(ours, theirs, rows):
    """Return low and high, the ends of the interval of the mean of ours minus the mean of theirs."""
    ...


# %%
def interval_by_sorting(ours, theirs, rows):
    """Sort the differences, set by set, and go to both places between them."""
    gaps = [float(one) - float(other) for one, other in zip(ours, theirs, strict=True)]
    found = sorted(sum(gaps[one] for one in row) / len(row) for row in rows.tolist())

    def at(share):
        place = share * (len(found) - 1)
        below = math.floor(place)
        above = min(below + 1, len(found) - 1)
        return found[below] + (place - below) * (found[above] - found[below])

    return at(0.025), at(0.975)


def draw_scores(rng):
    n, R = int(rng.integers(20, 30)), int(rng.integers(150, 200))
    ours, theirs = rng.random(n), rng.random(n)
    if rng.random() < 0.3:
        ours, theirs = ours < 0.8, theirs < 0.6
    return ours, theirs, rng.integers(n, size=(R, n))


lesson.check(paired_interval, draw=draw_scores, same_as=interval_by_sorting, times=6)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `ours[rows]` has the shape of `rows`: a row for each drawn set. Its mean over axis 1 is R scores.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The middle 95% leave out one part in forty at either end: `np.quantile(differences, (0.025, 0.975))`.
#
# </details>
# <details><summary>Solution 11.4</summary>
#
# ```python
# def paired_interval(ours, theirs, rows):
#     differences = ours[rows].mean(1) - theirs[rows].mean(1)
#     low, high = np.quantile(differences, (0.025, 0.975))
#     return low, high
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `theirs[rows].mean(1)` | `theirs.mean()` | The other model has to be measured on the same drawn set, not on the whole. |
# | `theirs[rows].mean(1)` | `theirs[rows[::-1]].mean(1)` | Both models need the same drawn set: this compares different ones. |
# | `(0.025, 0.975)` | `(0.05, 0.95)` | This holds the middle 90%. |
# | `(0.025, 0.975)` | `(0.0, 1.0)` | The smallest and the largest depend on how often you draw; one part in forty is left out at either end. |
# | `ours[rows].mean(1) - theirs[rows].mean(1)` | `theirs[rows].mean(1) - ours[rows].mean(1)` | It is ours minus theirs. |
# | `.mean(1) - theirs[rows].mean(1)` | `.mean(0) - theirs[rows].mean(0)` | The mean runs over the examples of one set, axis 1. |
# | `low, high = np.quantile(differences, (0.025, 0.975))` | `one, other = [np.quantile(scores[rows].mean(1), (0.025, 0.975)) for scores in (ours, theirs)]; low, high = one[0] - other[1], one[1] - other[0]` | The interval is that of the differences: two intervals of their own lose what pairing gains. |
# | `low, high = np.quantile(differences, (0.025, 0.975))` | `low, high = np.quantile(ours[rows].mean(1), (0.025, 0.975)) - np.quantile(theirs[rows].mean(1), (0.025, 0.975))` | The interval is that of the differences: two intervals of their own lose what pairing gains. |
# | `ours[rows].mean(1) - theirs[rows].mean(1)` | `ours[rows].sum(1) - theirs[rows].sum(1)` | The difference of the means is asked for, not that of the sums. |
# | `low, high = np.quantile(differences, (0.025, 0.975))` | `low, high = differences.mean() - 1.96 * differences.std(), differences.mean() + 1.96 * differences.std()` | That supposes a normal distribution; the quantiles of the differences themselves are asked for. |
#
# </details>

# %%
interval_of = paired_interval if lesson.passed("11.4") else interval_by_sorting


def compare(one, other, found):
    """Print the difference of two models with its interval, and return a word for it."""
    a, b = found[one], found[other]
    rows = np.random.default_rng(0).integers(len(a), size=(1_000, len(a)))
    low, high = (100 * one for one in interval_of(a, b, rows))
    verdict = "ahead of" if low > 0 else "behind" if high < 0 else "not told apart from"
    gap = 100 * (a.mean() - b.mean())
    print(f"{one} − {other}: {gap:+.1f} points [{low:+.1f}, {high:+.1f}]")
    return verdict


verdicts = {other: compare("BERT", other, right) for other in right if other != "BERT"}
best = max(("all words by side", "four words", "BERT"), key=lambda name: right[name].mean())
guess.answer(
    {"all words by side": "counts of all words", "four words": "counts of four words"}.get(best, best)
)

# %%
figure, axes = plt.subplots(figsize=(7.5, 2.5), layout="constrained")
for height, found in enumerate(reversed(right.values())):
    low, high = bootstrap(lambda rows, one=found: one[rows].mean(), len(found))
    axes.plot([100 * low, 100 * high], [height, height], color="C0", lw=2)
    axes.plot(100 * found.mean(), height, "o", color="C0")
axes.axvline(50, color="0.4", lw=0.8, ls="--")
axes.set_yticks(range(len(right)), reversed(list(right)))
axes.set(xlabel="right on dev (%), with 95% intervals; dashed: chance", title="Which half comes first?")
course.show(
    figure,
    "The share of right answers with intervals: a coin, naive Bayes on all words by side, naive Bayes on four words, the "
    "fine-tuned BERT and the untrained one.",
)

# %%
course.say(
    f"With the *bag of all words* as the floor, BERT is **{verdicts['all words by side']}** it. With *four words*, it is "
    f"**{verdicts['four words']}** it. And what was reading worth? Fine-tuned alike, BERT is "
    f"**{verdicts['untrained BERT']}** the untrained one."
)

# %% [markdown]
# Had we stopped at the first floor, this section could have ended with a claim of understanding. The second floor costs
# three more lines and asks a better question: how much of the task is in the words at both ends and at the cut? Whoever
# reports only the weaker of two floors has chosen the result. So state what the task shows. It shows that beginnings and
# ends of English sentences differ, that much of this can be counted, and how much of it a model this small finds. It does
# not show that anything understands a sentence. Nor is the last verdict one on pre-training at large: this BERT has read
# for less than a minute, and labels cost nothing here, so there was nothing to save.
#
# Is pairing worth the care? Here is the width of the interval when both models get the same drawn set, and when each gets
# one of its own:

# %%
rng = np.random.default_rng(3)
a, b = right["BERT"], right["all words by side"]
rows, others = rng.integers(len(a), size=(2, 1_000, len(a)))
paired = np.quantile(a[rows].mean(1) - b[rows].mean(1), (0.025, 0.975))
unpaired = np.quantile(a[rows].mean(1) - b[others].mean(1), (0.025, 0.975))
print(f"paired {100 * np.diff(paired)[0]:.1f} points wide, unpaired {100 * np.diff(unpaired)[0]:.1f}")

# %% [markdown]
# ## 7. A tag for each word
#
# The second task: find the **names**. We take sentences and write everything in lower case. Where a word had a capital
# in the middle of the sentence it is, by this rule, part of a name, and the model has to find it again. A word is tagged
# B where a name begins, I where it goes on, O outside. The rule is a rule and not a truth: it also takes *LORD*, *French*
# and *Sabbath* for names, and a name at the beginning of a sentence is not asked for. Half of the sentences have a name.

# %%
TAGS = "OBI"


def with_next(tags, is_name):
    """Return the tags of a sentence with that of its next word, which is part of a name or not."""
    if not is_name:
        return tags + "O"
    return tags + ("I" if tags.endswith(("B", "I")) else "B")


def tags_by_capitals(words, bare):
    """Return the tags of a sentence: words as they were written, and without the marks at their ends."""
    tags = "O"  # the first word has a capital in any case
    for before, word in zip(words, bare[1:], strict=False):
        has_capital = word[0].isupper() and word not in ("I", "O") and "'" not in word
        is_inside = before[-1].isalnum()  # no full stop or other mark stands in front of it
        tags = with_next(tags, has_capital and is_inside)
    return tags


def tagged(split, most, seed):
    """Return (words in lower case, tags) of sentences without quotation marks, drawn from a split."""
    rng, found = np.random.default_rng(seed), []
    lines = [line for document in SPLITS[split] for line in document]
    lines = [line for line in lines if 6 <= len(line.split()) <= 18 and '"' not in line]
    for number in rng.permutation(len(lines)):
        words = lines[number].split()
        bare = [word.strip(string.punctuation) for word in words]
        if not all(bare) or lines[number].isupper() or not lines[number].endswith("."):
            continue  # a heading, or a line of verse that begins with a capital in any case
        tags = tags_by_capitals(words, bare)
        others = sum("B" not in tags for _, tags in found)
        if "B" not in tags and 2 * others >= most:
            continue
        if sum(len(pieces_of(word)) for word in bare) <= LONGEST - 4:
            found.append(([word.lower() for word in bare], tags))
        if len(found) == most:
            break
    return found


names_train = tagged("train", lesson.scale(2_000, 160), 2)
names_dev = tagged("dev", lesson.scale(1_000, 80), 3)
count = Counter("".join(tags for _, tags in names_dev))
print(
    f"{len(names_train):,} sentences to learn from; of {count.total():,} words in dev, {count['B']:,} begin a name."
)
with_a_name = [one for one in names_dev if "B" in one[1]]
for words, tags in with_a_name[:4]:
    marked = [word if tag == "O" else f"{word}/{tag}" for word, tag in zip(words, tags, strict=True)]
    print("  " + " ".join(marked))

# %% [markdown]
# BERT reads pieces, and a word is one or several. The paper (section 5.3) asks for the tag at the **first piece** of each
# word. The other pieces have no label, and neither have `[CLS]` and `[SEP]`: they are attended to, but they take no part
# in the loss, and their logits get no gradient.
#
# ### Exercise 11.5 (core): first pieces
#
# `pieces` has for each word the list of its ids, `tags` for each word a number. `first_piece_labels` returns the labels
# (T,) of the whole sequence, `[CLS]` and `[SEP]` included, with −1 where there is none. `tag_loss` gets the logits (T,K)
# of all tokens and such labels (T,). Its loss is the mean of $-\ln p_y$ over the tokens **that have a label**; return it
# and its gradient with respect to all logits, (T,K).


# %%
# Exercise 11.5
def first_piece_labels(pieces, tags):
    """Return the label of each token of [CLS] pieces [SEP], an array (T,) of whole numbers; -1 for none."""
    ...


def tag_loss(logits, labels):
    """Return loss and dlogits (T,K): the mean loss of the tokens with a label, and its gradient."""
    ...


# %%
def labels_by_places(pieces, tags):
    """Fill an array of -1 at the places where words begin."""
    labels = np.full(2 + sum(map(len, pieces)), -1)
    for number, tag in enumerate(tags):
        labels[1 + sum(map(len, pieces[:number]))] = tag
    return labels


def are_whole(labels, *_):
    """Refuse labels that only look like whole numbers."""
    return None if labels.dtype.kind in "iu" else f"the labels are {labels.dtype}; expected whole numbers."


def mean_at_labels(logits, labels):
    """Return the mean loss, token by token."""
    found = []
    for row, label in zip(logits, labels, strict=True):
        if label >= 0:
            top = row.real.max()
            found.append(top + np.log(np.exp(row - top).sum()) - row[label])
    return sum(found) / len(found)


def tag_loss_by_steps(logits, labels):
    return by_complex_steps(mean_at_labels, (logits, labels), (0,))


def draw_words(rng):
    pieces = [[int(one) for one in rng.integers(5, 99, size=rng.choice([1, 1, 2, 4]))] for _ in range(6)]
    return pieces, [int(one) for one in rng.integers(3, size=6)]


def draw_tag_logits(rng):
    T, K = int(rng.integers(7, 10)), int(rng.integers(3, 6))
    labels = np.where(rng.random(T) < 0.5, rng.integers(K, size=T), -1)
    labels[rng.permutation(T)[:3]] = [0, -1, K - 1]
    logits = rng.standard_normal((T, K))
    if rng.random() < 0.5:  # in the thousands, and surely wrong at the first label
        logits *= 1000
        row = np.flatnonzero(labels >= 0)[0]
        logits[row, labels[row]] = logits[row].min() - 1
    return logits, labels


lesson.check(first_piece_labels, draw=draw_words, same_as=labels_by_places, law=are_whole, times=10)
lesson.check(tag_loss, draw=draw_tag_logits, same_as=tag_loss_by_steps, times=24)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# For each word: its tag, and then −1 for each further piece, `[tag] + [-1] * (len(word) - 1)`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `rows = np.flatnonzero(labels >= 0)` are the tokens that count. On `logits[rows]` it is exercise 11.2 without the linear
# layer; put the result back into zeros of the shape of `logits`.
#
# </details>
# <details><summary>Solution 11.5</summary>
#
# ```python
# def first_piece_labels(pieces, tags):
#     labels = [-1]
#     for word, tag in zip(pieces, tags):
#         labels += [tag] + [-1] * (len(word) - 1)
#     return np.array(labels + [-1])
#
#
# def tag_loss(logits, labels):
#     rows = np.flatnonzero(labels >= 0)
#     z = logits[rows] - logits[rows].max(1, keepdims=True)
#     e = np.exp(z)
#     here = np.arange(len(rows)), labels[rows]
#     loss = (np.log(e.sum(1)) - z[here]).mean()
#     p = e / e.sum(1, keepdims=True)
#     p[here] -= 1
#     dlogits = np.zeros_like(logits)
#     dlogits[rows] = p / len(rows)
#     return loss, dlogits
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `[tag] + [-1] * (len(word) - 1)` | `[tag] * len(word)` | Only the first piece of a word has a label; here a long word counts several times. |
# | `[tag] + [-1] * (len(word) - 1)` | `[-1] * (len(word) - 1) + [tag]` | The label belongs to the first piece, not to the last. |
# | `labels = [-1]` | `labels = []` | The sequence begins with `[CLS]`, which has no label. |
# | `np.flatnonzero(labels >= 0)` | `np.flatnonzero(labels > 0)` | Zero is a tag as well; only what is negative has none. |
# | `np.flatnonzero(labels >= 0)` | `np.arange(len(labels))` | Tokens without a label take part; −1 then counts as the last tag. |
# | `p / len(rows)` | `p / len(labels)` | The mean runs over the tokens with a label, not over all of them. |
# | `p / len(rows)` | `p` | The loss is a mean, so each token has a share of one over their number. |
# | `[tag] + [-1] * (len(word) - 1)` | `[tag] + [0] * (len(word) - 1)` | 0 is a tag as well; a piece without a label has −1. |
# | `z = logits[rows] - logits[rows].max(1, keepdims=True)` | `z = logits[rows]` | Large logits overflow: subtract the largest of each row. |
# | `return loss, dlogits` | `return loss, dlogits[rows]` | The gradient has a row for every token, zeros where there is no label. |
# | `    loss = (np.log(e.sum(1)) - z[here]).mean()` | `    loss = (np.log(e.sum(1)) - z[here]).sum() / len(labels)` | The mean runs over the tokens with a label, not over all of them. |
# | `np.array(labels + [-1])` | `np.array(labels)` | The sequence ends with `[SEP]`, which has no label either. |
#
# </details>

# %%
labels_of = first_piece_labels if lesson.passed("11.5") else labels_by_places


def tag_output(ops, x, batch, params, grads):
    """Return the loss at the first pieces and its gradient of the hidden states; add those of the head."""
    labels = np.full(batch.T, -1)
    labels[batch.label_rows] = batch.labels
    logits, saved = ops.linear(x, params["head"]["weight"], params["head"]["bias"])
    loss, dlogits = tag_loss(logits, labels)
    dx, dweight, dbias = ops.linear_backward(dlogits, saved)
    ops.add_gradients(grads["head"], weight=dweight, bias=dbias)
    return loss, dx


def tag_feature(words, tags):
    pieces = [pieces_of(word) for word in words]
    labels = labels_of(pieces, [TAGS.index(tag) for tag in tags])
    rows = np.flatnonzero(labels >= 0)
    ids = np.array([tokenizer.cls_id, *(one for word in pieces for one in word), tokenizer.sep_id])
    return Feature((Sequence(ids, 0 * ids),), labels[rows], rows)


tag_head = Head("tag", len(TAGS))
batches = batches_of([tag_feature(*one) for one in names_train], tag_head, 4, seed=0)
flat, losses = tune(tag_head, bert.params, batches, tag_output, 3e-3, "11.5")
scores = scores_of(flat, tag_head, [tag_feature(*one) for one in names_dev])
said = {"BERT": ["".join(TAGS[one] for one in sentence.argmax(1)) for sentence in scores]}
said["nothing"] = ["O" * len(tags) for _, tags in names_dev]


def by_table(examples, asked):
    """Tag each word as a name if it was one in most of its occurrences; a new word is none."""
    counts = Counter()
    for words, tags in examples:
        for word, tag in zip(words, tags, strict=True):
            counts[word] += 1 if tag in "BI" else -1
    found = []
    for words, _ in asked:
        tags = ""
        for word in words:
            tags = with_next(tags, counts[word] > 0)
        found.append(tags)
    return found


said["a table"] = by_table(names_train, names_dev)
names_gold = [tags for _, tags in names_dev]
same = {name: "".join(one) for name, one in said.items()}
for name, tags in same.items():
    share = np.mean([one == other for one, other in zip(tags, "".join(names_gold), strict=True)])
    print(f"{name:10} {share:.1%} of the words tagged rightly")

# %% [markdown]
# All three look splendid. One of them has never named anything.
#
# ## 8. Three reports, and one that can't be believed
#
# Most words are outside. Whoever answers O everywhere is right about all of these, so **accuracy** on such **imbalanced**
# tags says little. What counts is whether whole names are found. An **entity** is a run of words: a B with the I's after
# it; an I that follows an O begins one as well. It is found only if its first *and* its last word are right. If the text
# has $g$ entities, and a model marks $f$, of which $c$ are right, then **precision** is $c / f$, **recall** is $c / g$,
# and **F1** is their harmonic mean:
#
# $$ F_1 = \frac{2}{f/c + g/c} = \frac{2c}{f + g} . $$
#
# An F1 of single *words* rewards half a name and counts a long one several times. And there is a mistake that no metric
# shows: **leakage**. If the sentences of dev, or nearly the same ones, are in the training set, a table of words scores
# well.
#
# ### Exercise 11.6 (hard): which one?
#
# `entity_f1` gets the gold tags and those of a model, a string such as "OBIO" for each sentence; `entities(tags)` below
# gives the set of the entities of a sentence. Return F1, and 0 where there is nothing to find and nothing found.
#
# `flawed` gets three reports. Each is a dictionary: "train" and "dev" are lists of sentences, "gold" and "guess" the
# tags of dev, and "score" is what is claimed to be the entity F1, rounded to three digits. **One** of the three is
# flawed. Either the training set leaks: more than a tenth of the dev sentences are in it, comparing letters only and
# ignoring case. Or the score is not the entity F1. Return the number of the report, 0 to 2, and "leak" or "metric".


# %%
def entities(tags):
    """Return the entities of a sentence, each as (first word, behind the last)."""
    return {found.span() for found in re.finditer("BI*|I+", tags)}


# %%
# Exercise 11.6
def entity_f1(gold, guess):
    """Return the F1 of whole entities, from 0 to 1."""
    ...


def flawed(reports):
    """Return (number of the flawed report, "leak" or "metric")."""
    ...


# %%
def f1_by_lists(gold, guess):
    """Walk through the tags of both with a finger each, and compare lists of names."""

    def listed(sentences):
        found = []
        for number, tags in enumerate(sentences):
            for place, tag in enumerate(tags):
                if tag == "B" or (tag == "I" and (place == 0 or tags[place - 1] == "O")):
                    found.append([number, place])
                elif tag == "I":
                    found[-1].append(place)
        return found

    there, found = listed(gold), listed(guess)
    both = sum(one in there for one in found)
    return 2 * both / (len(there) + len(found)) if there or found else 0.0


def letters(sentence):
    return re.sub("[^a-z]", "", sentence.lower())


def inspected(reports):
    """Ask of each report whether it leaks, then whether its score is the right one."""
    for number, report in enumerate(reports):
        known = set(map(letters, report["train"]))
        if sum(letters(one) in known for one in report["dev"]) / len(report["dev"]) > 0.1:
            return number, "leak"
    wrong = [abs(one["score"] - f1_by_lists(one["gold"], one["guess"])) for one in reports]
    return int(np.argmax(wrong)), "metric"


def accuracy_of(gold, guess):
    return float(np.mean([a == b for a, b in zip("".join(gold), "".join(guess), strict=True)]))


def word_f1(gold, guess):
    """Return F1 of the single words that are part of a name."""
    pairs = list(zip("".join(gold), "".join(guess), strict=True))
    both = sum(a != "O" and a == b for a, b in pairs)
    return 2 * both / max(1, sum(a != "O" for a, _ in pairs) + sum(b != "O" for _, b in pairs))


def draw_tags(rng):
    """Return gold tags and guesses that are often right, sometimes short by a word."""
    letters, gold, guess = np.array(list("OOOBI")), [], []
    for n in rng.integers(4, 8, size=20):
        tags, others = letters[rng.integers(5, size=(2, n))]
        gold.append("".join(tags))
        guess.append("".join(np.where(rng.random(n) < 0.8, tags, others)))
    return gold, guess


def draw_f1(rng):
    gold, guess = draw_tags(rng)
    few = int(rng.choice([1, 2, 20]))
    empty = rng.integers(4)  # neither side, the guess, the gold tags, or both
    if empty % 2:
        guess = ["O" * len(tags) for tags in guess]
    if empty > 1:
        gold = ["O" * len(tags) for tags in gold]
    return gold[:few], guess[:few]


def draw_reports(rng):
    words = "the king of Tyre sent a letter to Hiram and said no ship shall sail before spring".split()

    def line():
        return " ".join(rng.permutation(words)[:9])

    reports, leaks = [], rng.random() < 0.5
    bad = int(rng.integers(3))
    for number in range(3):
        gold, guess = draw_tags(rng)
        dev, train = [line() for _ in gold], [line() for _ in range(int(rng.integers(12, 60)))]
        copies = 3 if leaks and number == bad else int(rng.integers(3))  # of twenty; two are a tenth
        if copies == 3 and rng.random() < 0.5:
            gold, guess, dev = gold + gold[:9], guess + guess[:9], dev + [line() for _ in range(9)]
        for copied in dev[:copies]:
            changed = [copied.upper(), copied + "!", copied.lower(), f'"{copied}, 1611"', copied]
            train.insert(int(rng.integers(len(train))), changed[int(rng.integers(5))])
        order = rng.permutation(len(dev))
        gold, guess, dev = ([one[place] for place in order] for one in (gold, guess, dev))
        score = round(f1_by_lists(gold, guess), 3)
        if number == bad and not leaks:
            others = [accuracy_of(gold, guess), word_f1(gold, guess), score + 0.002]
            score = next(round(one, 3) for one in rng.permutation(others) if round(one, 3) != score)
        reports.append({"train": train, "dev": dev, "gold": gold, "guess": guess, "score": float(score)})
    return (reports,)


lesson.check(entity_f1, draw=draw_f1, same_as=f1_by_lists, times=20)
lesson.check(flawed, draw=draw_reports, same_as=inspected, times=30)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# For a sentence, `entities(tags) & entities(ours)` are the entities that are right. Add up the three counts over all
# sentences before you divide; `max(1, …)` keeps from dividing by zero.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Reduce a sentence to its letters, `"".join(one for one in sentence.lower() if one.isalpha())`, make a set of those of
# the training set, and count how many of dev are in it. "More than a tenth" is `10 * count > len(dev)`. Compare
# `round(…, 3)` with the score.
#
# </details>
# <details><summary>Solution 11.6</summary>
#
# ```python
# def entity_f1(gold, guess):
#     right = there = found = 0
#     for tags, ours in zip(gold, guess):
#         right += len(entities(tags) & entities(ours))
#         there += len(entities(tags))
#         found += len(entities(ours))
#     return 2 * right / max(1, there + found)
#
#
# def flawed(reports):
#     def bare(sentence):
#         return "".join(one for one in sentence.lower() if one.isalpha())
#
#     for number, report in enumerate(reports):
#         known = {bare(sentence) for sentence in report["train"]}
#         count = sum(bare(sentence) in known for sentence in report["dev"])
#         if 10 * count > len(report["dev"]):
#             return number, "leak"
#     wrong = [round(entity_f1(one["gold"], one["guess"]), 3) != one["score"] for one in reports]
#     return int(np.argmax(wrong)), "metric"
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `len(entities(tags) & entities(ours))` | `len(entities(tags) \| entities(ours))` | Right are the entities that are in both sets, not in either. |
# | `2 * right / max(1, there + found)` | `right / max(1, there)` | This is recall alone: who names everything gets all of it. |
# | `2 * right / max(1, there + found)` | `right / max(1, found)` | This is precision alone: who names only one sure thing gets all of it. |
# | `2 * right / max(1, there + found)` | `right / max(1, there + found)` | F1 is the harmonic mean of both shares: twice what is right over the sum. |
# | `sentence.lower() if one.isalpha()` | `sentence if one.isalpha()` | A copy in capitals is a copy. |
# | `sentence.lower() if one.isalpha()` | `sentence.lower()` | A copy with another punctuation mark is a copy. |
# | `10 * count > len(report["dev"])` | `count > 0` | A short sentence may occur twice in any library; more than a tenth is asked for. |
# | `10 * count > len(report["dev"])` | `count == len(report["dev"])` | A part of dev is enough to spoil the score. |
# | `2 * right / max(1, there + found)` | `sum(a == b for tags, ours in zip(gold, guess) for a, b in zip(tags, ours)) / max(1, sum(map(len, gold)))` | That is the share of right tags; most of them are O, and an entity is right as a whole or not at all. |
# | `2 * right / max(1, there + found)` | `2 * len(set().union(*map(entities, gold)) & set().union(*map(entities, guess))) / max(1, len(set().union(*map(entities, gold))) + len(set().union(*map(entities, guess))))` | Entities of different sentences are different, even if they lie at the same places. |
# | `2 * right / max(1, there + found)` | `sum(2 * len(entities(a) & entities(b)) / max(1, len(entities(a)) + len(entities(b))) for a, b in zip(gold, guess)) / max(1, len(gold))` | F1 is computed once, from the counts of all sentences; it is not a mean over sentences. |
# | `2 * right / max(1, there + found)` | `2 * len(entities(''.join(gold)) & entities(''.join(guess))) / max(1, len(entities(''.join(gold))) + len(entities(''.join(guess))))` | Sentences are read one by one: joined, a name at the end of one runs on into the next. |
# | `return 2 * right / max(1, there + found)` | `return 2 * right / (there + found) if there + found else 1.0` | Where nothing is there and nothing found, 0 is asked for. |
# | `10 * count > len(report["dev"])` | `10 * count >= len(report["dev"])` | A tenth is not yet more than a tenth. |
# | `10 * count > len(report["dev"])` | `10 * count > len(report["train"])` | The share is that of the dev sentences, not of the training sentences. |
# | `return number, "leak"` | `return number + 1, "leak"` | Reports are numbered from 0. |
#
# </details>

# %% [markdown]
# Now ours. The same table of words, reported in four ways: by accuracy, by the F1 of single words, by entity F1 after it
# has also been given a third of dev to learn from, and by entity F1. Only the last is what the table is worth.

# %%
f1 = entity_f1 if lesson.passed("11.6") else f1_by_lists
leaky = by_table(names_train + names_dev[::3] * 3, names_dev)
reported = {
    "accuracy": accuracy_of(names_gold, said["a table"]),
    "F1 of single words": word_f1(names_gold, said["a table"]),
    "entity F1, with a leak": f1(names_gold, leaky),
    "entity F1": f1(names_gold, said["a table"]),
}
figure, axes = plt.subplots(figsize=(7.5, 2.2), layout="constrained")
bars = axes.barh(list(reported), [100 * one for one in reported.values()], color=["C1", "C1", "C1", "C0"])
axes.bar_label(bars, [f" {100 * one:.1f}" for one in reported.values()])
axes.invert_yaxis()
axes.set(xlabel="score (%)", title="One table of words, reported in four ways", xlim=(0, 110))
course.show(
    figure,
    "Bars of one table of words by four measures: accuracy, the F1 of single words, entity F1 with a leak, entity F1.",
)

# %%
official = conlleval(
    [[tag if tag == "O" else f"{tag}-NAME" for tag in tags] for tags in names_gold],
    [[tag if tag == "O" else f"{tag}-NAME" for tag in tags] for tags in said["a table"]],
)
course.equal("entity F1, and the official script's rule", reported["entity F1"], official["f1"] / 100)

# %%
train_lines = [" ".join(words) for words, _ in names_train]
dev_lines = [" ".join(words) for words, _ in names_dev]


def report_of(learnt_from, guess):
    """Return a report in the form of exercise 11.6."""
    score = round(f1(names_gold, guess), 3)
    return {"train": learnt_from, "dev": dev_lines, "gold": names_gold, "guess": guess, "score": score}


reports = [
    report_of(train_lines, said["a table"]),
    report_of(train_lines, said["BERT"]),
    report_of(train_lines + [line.upper() for line in dev_lines[::3]], leaky),
]
which, why = (flawed if lesson.passed("11.6") else inspected)(reports)
print(f"of three reports, number {which} can't be believed: {why}")

# %% [markdown]
# With the right yardstick, is BERT better than the table? And on the names that the table can't have? A name is *new*
# if one of its words is in no training sentence. F1 is not a mean over sentences: of each drawn set the three counts
# have to be added up again.

# %%
seen = {word for words, _ in names_train for word in words}


def has_new_name(words, tags):
    """Tell whether a name of the sentence has a word that is in no training sentence."""
    in_names = [word for word, tag in zip(words, tags, strict=True) if tag != "O"]
    return any(word not in seen for word in in_names)


with_new = np.array([has_new_name(words, tags) for words, tags in names_dev])


def counts_of(guess):
    """Return for each sentence how many entities are right, there, and found."""
    both = [(entities(tags), entities(ours)) for tags, ours in zip(names_gold, guess, strict=True)]
    return np.array([(len(one & other), len(one), len(other)) for one, other in both])


def f1_on(counts):
    """Return the F1 of drawn sentences, as a function of their numbers."""

    def score(rows):
        right, there, found = counts[rows].sum(0)
        return 2 * right / max(1, there + found)

    return score


words_for = {}
for what, where in {
    "all sentences": np.arange(len(names_dev)),
    "those with a new name": np.flatnonzero(with_new),
    "the others": np.flatnonzero(~with_new),
}.items():
    ours, theirs = (f1_on(counts_of(said[name])[where]) for name in ("BERT", "a table"))
    low, high = paired_bootstrap(ours, theirs, len(where))
    every = np.arange(len(where))
    words_for[what] = "ahead" if low > 0 else "behind" if high < 0 else "undecided"
    print(f"{what:22} ({len(where):4}): BERT {100 * ours(every):.1f}, table {100 * theirs(every):.1f}, "
          f"difference [{100 * low:+.1f}, {100 * high:+.1f}]")  # fmt: skip
course.say(
    f"On all sentences BERT is **{words_for['all sentences']}**; on those with a new name "
    f"**{words_for['those with a new name']}**, on the others **{words_for['the others']}**."
)

# %% [markdown]
# The table knows a name only if it has met it. BERT reads what is around it, *said unto …*, *the land of …*, and the
# pieces of the word itself. That is what one can hope to gain from it, and it shows only where it is looked for.
#
# ## 9. An answer in a passage
#
# The third output layer is that of **SQuAD**, a data set of questions about passages, in which the answer is a **span**
# of the passage. Each token gets two scores, $s_t$ for "it begins here" and $e_t$ for "it ends here", and each of the two
# has a softmax *over the tokens of the input*. With the right places $a$ and $b$
#
# $$ L = -\tfrac12 \ln p^{s}_{a} - \tfrac12 \ln p^{e}_{b}, \qquad
#    p^{s}_t = \frac{e^{s_t}}{\sum_{u < n} e^{s_u}}, \qquad
#    \frac{\partial L}{\partial s_t} = \tfrac12 \bigl( p^{s}_t - [t = a] \bigr) . $$
#
# The sum runs over the $n$ tokens of the input. Where inputs of different lengths lie in one array, shorter ones are
# filled up with **padding**, and what is there must have no part: no probability, and no gradient.
#
# ### Exercise 11.7 (hard): the span's gradient
#
# `scores` (S,n,2) of S inputs; input $i$ has `lengths[i]` tokens, and after them comes padding, with any numbers in it.
# `answers` (S,2) are the right places of beginning and end. The loss is the mean of $L$ over the inputs. Return its
# gradient with respect to `scores`, exactly 0 at padding.


# %%
# Exercise 11.7
def span_gradient(scores, lengths, answers):
    """Return dscores (S,n,2) of the mean over S inputs of half the loss of the beginning and half that of the end."""
    ...


# %%
def span_loss(scores, lengths, answers):
    """Return the mean loss, input by input and without any padding."""
    total = 0
    for one, n, places in zip(scores, lengths, answers, strict=True):
        for end in range(2):
            column = one[:n, end]
            top = column.real.max()
            total = total + top + np.log(np.exp(column - top).sum()) - column[places[end]]
    return total / (2 * len(lengths))


def span_gradient_by_steps(scores, lengths, answers):
    _, gradient = by_complex_steps(span_loss, (scores, lengths, answers), (0,))
    return gradient


def padding_has_none(answer, scores, lengths, answers):
    padding = np.arange(scores.shape[1]) >= lengths[:, None]
    return None if not np.any(answer[padding]) else "padding has a gradient; it takes no part in the loss."


def draw_spans(rng):
    S, n = int(rng.integers(2, 5)), int(rng.integers(6, 9))
    lengths = rng.integers(1, n + 1, size=S)
    lengths[0] = n
    answers = np.sort(rng.integers(lengths[:, None], size=(S, 2)))
    scores = rng.standard_normal((S, n, 2)) * (1000.0 if rng.random() < 0.5 else 1.0)
    padding = np.arange(n) >= lengths[:, None]
    scores[padding] = rng.choice([0.0, 9.0, 1e5])  # whatever was there
    return scores, lengths, answers


lesson.check(span_gradient, draw=draw_spans, same_as=span_gradient_by_steps, law=padding_has_none, times=24)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `inside = np.arange(n) < lengths[:, None]` has the shape (S,n). Where it is False, put `-np.inf`: the exponential of that
# is 0, and so is the probability.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The softmax runs over axis 1, the tokens, for both ends at once. Subtract 1 at `p[np.arange(S), answers[:, end], end]`
# for `end` 0 and 1, and divide by `2 * S`.
#
# </details>
# <details><summary>Solution 11.7</summary>
#
# ```python
# def span_gradient(scores, lengths, answers):
#     S, n, _ = scores.shape
#     inside = np.arange(n) < lengths[:, None]
#     z = np.where(inside[:, :, None], scores, -np.inf)
#     e = np.exp(z - z.max(1, keepdims=True))
#     p = e / e.sum(1, keepdims=True)
#     for end in range(2):
#         p[np.arange(S), answers[:, end], end] -= 1
#     return p / (2 * S)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `np.where(inside[:, :, None], scores, -np.inf)` | `scores` | Padding takes part in the softmax. |
# | `np.where(inside[:, :, None], scores, -np.inf)` | `np.where(inside[:, :, None], scores, 0)` | A score of 0 is a score, with a probability; padding needs minus infinity. |
# | `np.arange(n) < lengths[:, None]` | `np.arange(n) <= lengths[:, None]` | Places count from 0, so the last token is at n − 1. |
# | `/ (2 * S)` | `/ S` | The loss is half that of the beginning and half that of the end. |
# | `/ (2 * S)` | `/ 2` | The loss is the mean over the inputs. |
# | `answers[:, end], end]` | `answers[:, 0], end]` | The end has a place of its own. |
# | `e / e.sum(1, keepdims=True)` | `e / e.sum(2, keepdims=True)` | The softmax runs over the tokens, not over beginning and end. |
# | `answers[:, end], end]` | `answers[:, 1 - end], end]` | Beginning and end are swapped. |
# | `e / e.sum(1, keepdims=True)` | `np.exp(z - z.max((1, 2), keepdims=True)) / np.exp(z - z.max((1, 2), keepdims=True)).sum((1, 2), keepdims=True)` | Beginning and end have a softmax each. |
# | `e / e.sum(1, keepdims=True)` | `e / np.exp(scores - z.max(1, keepdims=True)).sum(1, keepdims=True)` | Padding takes part in the softmax; it has to be left out of the sum. |
# | `z - z.max(1, keepdims=True)` | `z` | Large scores overflow: subtract the largest of each column first. |
# | `/ (2 * S)` | `/ (2 * lengths[:, None, None])` | The mean runs over the inputs, not over the tokens of each. |
# | `answers[:, end], end]` | `np.maximum(0, answers[:, end] - end), end]` | The right place of the end is the last token of the answer itself, not the one before it. |
# | `e / e.sum(1, keepdims=True)` | `e / e.sum(0, keepdims=True)` | The softmax runs over the tokens of one input, not over the inputs. |
# | `e / e.sum(1, keepdims=True)` | `e / np.stack([np.exp(scores[:, :one] - z[i].max(0)).sum((0, 1)) for i, one in enumerate(lengths)])[:, None]` | Each input has a softmax of its own; here the sum runs over the tokens of all inputs. |
#
# </details>

# %% [markdown]
# The proof, once more in the open: along a random direction $v$ the derivative of the loss by the complex step, and the
# gradient times $v$.

# %%
gradient_of_spans = span_gradient if lesson.passed("11.7") else span_gradient_by_steps
scores, lengths, answers = draw_spans(np.random.default_rng(5))
v = np.random.default_rng(6).standard_normal(scores.shape)
exact = complex_step(lambda at: span_loss(at, lengths, answers), scores, v)
course.equal("the derivative along v", (gradient_of_spans(scores, lengths, answers) * v).sum(), exact)

# %% [markdown]
# A question needs an answer that is marked. The rule of section 7 marks one: of sentences with exactly one name we ask
# *who or where?*, always in these words, and the span is the name. As question answering this is poor, since the question
# carries no information, and the task is the same as finding the name. But the layer, its loss and its gradient are those
# of SQuAD. The table of words gets a fair chance: BERT has to point somewhere, so the table has to, too, and it may guess
# that a word which it has never seen is the name.


# %%
def span_feature(words, tags):
    """Return [CLS] who or where [SEP] sentence [SEP], and where the first and the last piece of the name are."""
    question = pieces_of("who or where")
    (begin, end) = next(iter(entities(tags)))
    before = len(question) + 2
    pieces = [pieces_of(word) for word in words]
    first, last = (before + sum(map(len, pieces[:one])) for one in (begin, end))
    ids = [
        tokenizer.cls_id,
        *question,
        tokenizer.sep_id,
        *(one for word in pieces for one in word),
        tokenizer.sep_id,
    ]
    kinds = np.arange(len(ids)) >= before
    return Feature((Sequence(np.array(ids), kinds.astype(int)),), (first, last - 1))


def one_name(examples):
    """Keep the sentences with exactly one name that fit with their question."""
    kept = [one for one in examples if len(entities(one[1])) == 1]
    return [one for one in kept if len(span_feature(*one).sequences[0].input_ids) <= LONGEST]


def span_output(ops, x, batch, params, grads):
    """Return the loss of both ends and its gradient of the hidden states; add those of the head."""
    flat, saved = ops.linear(x, params["head"]["weight"], params["head"]["bias"])
    inside = np.arange(batch.lengths.max()) < batch.lengths[:, None]
    scores = np.zeros((*inside.shape, 2))
    scores[inside] = flat
    dscores = span_gradient(scores, batch.lengths, batch.labels)[inside].astype(x.dtype)
    dx, dweight, dbias = ops.linear_backward(dscores, saved)
    ops.add_gradients(grads["head"], weight=dweight, bias=dbias)
    return span_loss(scores, batch.lengths, batch.labels), dx


def by_likeliest(examples, asked):
    """Find the one name: the word with the largest share as a name, and neighbours that were one in most cases."""
    as_name, count = Counter(), Counter()
    for words, tags in examples:
        count.update(words)
        as_name.update(word for word, tag in zip(words, tags, strict=True) if tag in "BI")
    found = []
    for words, _ in asked:
        share = [(as_name[word] + 0.1) / (count[word] + 1) for word in words]  # a new word has a tenth
        begin = int(np.argmax(share))
        end = begin + 1
        while end < len(words) and share[end] > 0.5:
            end += 1
        while begin > 0 and share[begin - 1] > 0.5:
            begin -= 1
        found.append((begin, end))
    return found


more = tagged("train", lesson.scale(4_000, 600), 4)
span_train, span_dev = one_name(more), one_name(names_dev)
span_head = Head("span", 2)
batches = batches_of([span_feature(*one) for one in span_train], span_head, 3, seed=0)
flat, losses = tune(span_head, bert.params, batches, span_output, 3e-3, "11.7")
dev_spans = [span_feature(*one) for one in span_dev]
found = []
for feature, scores in zip(dev_spans, scores_of(flat, span_head, dev_spans), strict=True):
    both = scores[:, :1] + scores[:, 1]  # (n,n): every beginning, a row, with every end, a column
    is_span = np.tri(len(both)).T > 0  # where the end does not lie before the beginning
    place = int(np.argmax(np.where(is_span, both, -np.inf)))
    begin, end = divmod(place, len(both))
    found.append((begin, end) == feature.label)
exact_match = {"BERT": np.array(found)}
likeliest = by_likeliest(span_train, span_dev)
exact_match["a table"] = np.array(
    [entities(one[1]) == {two} for one, two in zip(span_dev, likeliest, strict=True)]
)
print(
    f"{len(span_train):,} sentences to learn from, {len(span_dev):,} to measure on; exactly the right span:"
)
for name, one in exact_match.items():
    print(f"  {name:8} {one.mean():.1%}")
word = compare("BERT", "a table", exact_match)
course.say(f"With an interval: BERT is **{word}** the table of words.")

# %% [markdown]
# **Exact match**, the share of spans with both ends right, is half of SQuAD's metric; the other half is an F1 of words,
# which is kinder to a span that is nearly right. Section 8 says why one should report both.
#
# ## 10. The same in three lines
#
# All of this is in minibert. Here are the halves again, by its classifier on its fastest engine, from the same BERT. It
# draws another output layer and another order of the pairs. So how far its score is from yours also tells how much of a
# score is luck.

# %%
classifier = TextClassifier(
    str(folder), epochs=3, optimizer="adamw", learning_rates=2e-3, batch_size=32, max_length=LONGEST
)
classifier.fit([pair for pair, _ in train], [label for _, label in train])
right["TextClassifier"] = classifier.predict([pair for pair, _ in dev]) == gold

# %%
print(f"TextClassifier {right['TextClassifier'].mean():.1%}, your loop {right['BERT'].mean():.1%}")
word = compare("TextClassifier", "BERT", right)
again = compare("TextClassifier", "four words", right)
course.say(f"minibert's classifier is **{word}** your loop, and **{again}** the floor of four words.")

# %% [markdown]
# The interval answers for other *pairs*, not for another seed. Before you believe in a gain of a point or two, train
# several times; for BERT-LARGE the paper did so on the small sets of GLUE, and kept what was best on dev.
#
# ## What we saw
#
# * One output layer on `[CLS]`, at first pieces, or over all tokens: three losses, one derivative, $p - [k = y]$.
# * A loop of twenty lines fine-tunes a whole BERT under any of them, with a schedule and clipping.
# * Which floor is chosen decides what a score seems to prove. We drew two, and reported the stronger one.
# * The paired interval was the narrower one: what is hard for one model tends to be hard for the other.
# * A score can be right in every digit and still mislead: by counting words outside, by counting half names, by a leak.
# * Counts are hard to beat where they know the answer. A gain has to be looked for where they can't: on words never seen.
#
# ## Words
#
# - **development set**: examples kept from training, used to measure and to choose.
# - **naive Bayes**: a classifier that multiplies the probabilities of single things as if they were independent.
# - **imbalanced**: of labels, one of which is far more frequent than the others.
# - **entity**: a run of words that is one name.
# - **recall**: the share of what is there that was found.
# - **leakage**: parts of the development set, perhaps slightly changed, in the training set.
# - **exact match**: the share of spans with both ends right.
#
# ## Where to go next
#
# * [Chapter 12](12_somebody_elses_bert.ipynb) opens a published BERT by hand. Put its folder in place of `my_bert` in
#   section 1 and see which of the floors still hold.
# * `minibert/core/heads.py` has all output layers of the paper, forward and backward, in one file.
# * `minibert finetune classify --data FOLDER --model RUN --out DIR` does it from the command line, with a report of
#   intervals, floors and the worst mistakes; `minibert finetune --help` lists the tasks.
# * [Gururangan et al. 2018](https://arxiv.org/abs/1803.02324) found a published task whose answers can be guessed from half
#   of the input. It reads like section 6.
