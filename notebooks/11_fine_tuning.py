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
# # 11 · Fine-tuning: who wrote this sentence?
#
# Pre-training is the means. What people want are answers, and the claim of [Devlin et al.
# 2019](https://arxiv.org/abs/1810.04805) is that **one output layer** on top of BERT is enough for most of them
# (section 4). Here a small BERT first reads sixteen books for a minute; then it is asked who wrote a sentence, and we
# see what the reading was worth, beside a classifier that only counts words. Then comes a question that no counting of
# words can answer. To run it, `pip install '.[notebooks]'` from a checkout of minibert. Nothing is downloaded.

# %%
# %matplotlib inline
import json
import shutil
import string
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from minibert import Bert, Tokenizer
from minibert.core.batch import Feature, Sequence
from minibert.data.corpus import embedded_corpus, sentences
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import classify, finetune
from minibert.model import heads
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.model.params import Head, initialise
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain
from minibert.tasks.metrics import bootstrap, confusion, paired_bootstrap

plt.rcParams |= {"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False}
warnings.formatwarning = lambda message, *_, **__: f"{message}\n"  # the sentence alone
work = Path(tempfile.mkdtemp())

# %% [markdown]
# ## 1. A task
#
# The books of the package are in one file, one sentence per line, with an empty line between chapters;
# `minibert/corpora/README.md` lists the order of the books. A fifth of the **chapters** is kept apart as the
# development set, *dev* for short: had we drawn single sentences, the model could learn the names of one chapter by
# heart and be praised for it. The pre-training does not read these chapters either.

# %%
AUTHORS = [
    ("Austen", 129), ("Bible", 878), ("Blake", 11), ("Carroll", 12), ("Chesterton", 48), ("Edgeworth", 32),
    ("Melville", 122), ("Milton", 12), ("Shakespeare", 28), ("Whitman", 109),
]  # fmt: skip
chapter_of = np.repeat([name for name, _ in AUTHORS], [count for _, count in AUTHORS])
LEFT_OUT, MOST = {"Blake"}, 700  # sentences of one author to learn from; Blake has too few

(work / "authors").mkdir()
examples, reading, chapter = {"train": [], "dev": []}, [], 0
for line in sentences([embedded_corpus()]):
    if chapter % 5 != 2:
        reading.append(line or "")
    if not line:
        chapter += 1
    elif 6 <= len(line.split()) <= 30 and chapter_of[chapter] not in LEFT_OUT and "\t" not in line:
        examples["dev" if chapter % 5 == 2 else "train"].append((str(chapter_of[chapter]), line))

(work / "reading.txt").write_text("\n".join(reading), encoding="utf-8")
rng = np.random.default_rng(0)
for split, most in (("train", MOST), ("dev", 150)):
    chosen, count = [], Counter()
    for number in rng.permutation(len(examples[split])):
        author, sentence = examples[split][number]
        count[author] += 1
        if count[author] <= most:
            chosen.append(f"{author}\t{sentence}")
    table = "label\tsentence\n" + "\n".join(chosen) + "\n"
    (work / "authors" / f"{split}.tsv").write_text(table, encoding="utf-8")
    print(f"{split}: {len(chosen):,} sentences; for example\n    " + "\n    ".join(chosen[:3]))

# %% [markdown]
# ## 2. A minute of reading
#
# As in the tour, with sequences that grow to the length of a sentence. Counting steps instead of minutes gives every
# machine the same model; 2,000 of them, two million tokens, take a minute or two on a laptop.

# %%
options = PretrainOptions(
    corpus=str(work / "reading.txt"), layout="sentences", steps=2000, seq_length="10:0.3,32:0.7",
    next_sentence=False, evaluations=0, held_out=0.01,
)  # fmt: skip
pretrain(options, work / "pretrained", show=False)
tokenizer = Tokenizer.from_pretrained(work / "pretrained")
config = Bert.from_pretrained(work / "pretrained").config
print(f"{config.L} layers of {config.H}, {tokenizer.vocab_size:,} pieces")

# %% [markdown]
# ## 3. One output layer
#
# The pooled vector of `[CLS]`, $c = \tanh(h_{\text{[CLS]}} W + b)$, goes through one new linear layer with an output
# for each author, and the softmax of that is the answer. `minibert/core/heads.py` has it, forward and backward, in
# some 200 lines with the heads of the other tasks.
#
# The paper fine-tunes in four ways (its figure 4), and only the place where the new layer reads differs. One text or two
# texts with one label: it reads `[CLS]`. An answer inside a passage: two scores at each token, "the answer begins here"
# and "it ends here", each with a softmax over the tokens. A label for each word, such as a name: at the first piece of
# the word.

# %% mystnb={"image": {"alt": "Four inputs below a box called BERT. Arrows leave it at [CLS] for one text and for two texts, at every token of the passage for an answer, and at every word for labels."}}
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

# %% [markdown]
# Ours is the first kind, with one text. Before training the answer is no better than a guess: the loss is about
# $\ln 9$.

# %%
names = sorted(name for name, _ in AUTHORS if name not in LEFT_OUT)
head = Head("classify", len(names))
params, fresh = Bert.from_pretrained(work / "pretrained").params.with_head(head, seed=0)
encoding = tokenizer("Call me Ishmael.")
asked = Feature((Sequence(encoding.ids, encoding.token_type_ids, [], []),), label=names.index("Melville"))
batch = TaskBatch.pack_features([asked], head)
loss, saved = heads.loss(Ops(), config, head, params.tree, batch)
gradient = heads.loss_backward(Ops(), config, head, saved, params.tree, params.zeros_like().tree)
print("new in this model:", ", ".join(f"{name} {params[name].shape}" for name in fresh))
print(f"loss {loss.loss:.3f}, ln 9 = {np.log(9):.3f}; its gradient reaches the word embeddings: "
      f"{np.count_nonzero(gradient['embeddings']['word'].any(axis=1))} of {config.V:,} rows")  # fmt: skip

# %% [markdown]
# ## 4. What counting words is worth
#
# A score means nothing by itself. The strongest simple rival is **naive Bayes** on the bag of words: it counts how
# often each author uses each piece, and multiplies these probabilities as if pieces were drawn independently, in any
# order. It takes twenty lines and a tenth of a second. The brackets beside a score are its 95% interval, by the bootstrap
# of chapter 03.


# %%
def read(file):
    """Labels and sentences of a table."""
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    return [label for label, _ in rows], [sentence for _, sentence in rows]


def naive_bayes(folder, grams=1):
    """Labels that the counts of train.tsv give the sentences of dev.tsv; of pieces, or of pairs of neighbours."""

    def things(sentence):
        ids = tokenizer.encode(sentence, add_special_tokens=False)
        return ids if grams == 1 else list(zip(ids, ids[1:], strict=False))

    gold, learnt_from = read(folder / "train.tsv")
    prior, counts = Counter(gold), {label: Counter() for label in gold}
    for label, sentence in zip(gold, learnt_from, strict=True):
        counts[label].update(things(sentence))
    known = set().union(*counts.values())
    total = {label: sum(count.values()) + len(known) for label, count in counts.items()}

    def log_probability(label, sentence):
        seen = (one for one in things(sentence) if one in known)
        return np.log(prior[label]) + sum(np.log((counts[label][one] + 1) / total[label]) for one in seen)

    return [max(counts, key=lambda label: log_probability(label, one)) for one in read(folder / "dev.tsv")[1]]


right = {}  # of each task and model: which sentences of dev it has right


def interval(found):
    """Where the share of right answers would lie with other sentences of the same kind, in 95 of 100 cases."""
    return bootstrap(lambda rows: found[rows].mean(), len(found))


def show(task, model, answers):
    """Keep which answers are right and print their share, with its interval."""
    found = right[task, model] = np.array(answers) == np.array(read(work / task / "dev.tsv")[0])
    low, high = interval(found)
    print(f"{model:<28} {found.mean():6.1%}  [{low:.1%}, {high:.1%}]")


majority = Counter(read(work / "authors" / "train.tsv")[0]).most_common(1)[0][0]
show("authors", "always the most frequent", [majority] * len(read(work / "authors" / "dev.tsv")[0]))
show("authors", "naive Bayes on pieces", naive_bayes(work / "authors"))
show("authors", "naive Bayes on pairs", naive_bayes(work / "authors", grams=2))

# %% [markdown]
# ## 5. Fine-tuning, with and without having read
#
# All parameters are trained. An **epoch** is one pass through the training sentences; we make four, the most that the
# paper tries, in batches of 32. The rate is 0.0005, ten times the paper's highest, since this model is small. The
# *untrained* model has the same shape but has read nothing: it is trained from scratch. Another seed draws another
# output layer and another order of the sentences: whatever that changes is luck, and no difference smaller than that
# counts.

# %%
Bert(config, initialise(config, seed=1)).save_pretrained(work / "untrained")
tokenizer.save_pretrained(work / "untrained", config.P)


def tune(task, start, seed=0):
    """Fine-tune for a task from a model; what it answers is shown and kept."""
    options = FinetuneOptions(
        task="classify",
        data=work / task,
        model=work / start,
        columns={"text": "sentence", "label": "label"},
        learning_rates=5e-4,
        epochs=4,
        max_length=64,
        seed=seed,
    )
    out = work / f"{task}-{start}-{seed}"
    finetune(options, out, show=False)
    predictions = json.loads((out / "dev_predictions.json").read_text())
    show(task, f"BERT, {start}, seed {seed}", [one["label"] for one in predictions])
    return out


runs = {
    (start, seed): tune("authors", start, seed) for start in ("untrained", "pretrained") for seed in (0, 1)
}


# %%
def compare(task, one, other):
    """The difference of two models on the same sentences, and what it allows to be said."""
    a, b = right[task, one], right[task, other]
    low, high = paired_bootstrap(lambda rows: a[rows].mean(), lambda rows: b[rows].mean(), len(a))
    verdict = "ahead" if low > 0 else "behind" if high < 0 else "undecided"
    print(f"{one} − {other}: {a.mean() - b.mean():+.1%} [{low:+.1%}, {high:+.1%}]  {verdict}")


for seed in (0, 1):
    compare("authors", f"BERT, pretrained, seed {seed}", f"BERT, untrained, seed {seed}")
for seed in (0, 1):
    compare("authors", f"BERT, pretrained, seed {seed}", "naive Bayes on pieces")

# %% mystnb={"image": {"alt": "Share of right answers against the step. The two pretrained models rise to just below naive Bayes, the two untrained ones stay far below it, all far above a guess."}}
colours = {"pretrained": "C0", "untrained": "C1"}
figure, axes = plt.subplots(figsize=(7, 3.2))
for (start, seed), out in runs.items():
    rows = [json.loads(line) for line in (out / "metrics.jsonl").open()]
    measured = [(row["step"], row["dev_accuracy"]) for row in rows if "dev_accuracy" in row]
    axes.plot(*zip(*measured, strict=True), "o-", color=colours[start], label=start if seed == 0 else None)
bayes = right["authors", "naive Bayes on pieces"].mean()
axes.axhline(bayes, color="k", lw=0.8, ls=":", label="naive Bayes")
axes.axhline(1 / 9, color="k", lw=0.8, ls="--", label="a guess")
axes.set(xlabel="step", ylabel="right on dev", ylim=(0, 1), title="Who wrote it?")
axes.legend(frameon=False, loc="lower right")
# %% [markdown]
# Reading pays: the model that has read is far ahead of the one that has not. But **counting words does at least as
# well**. Who wrote a sentence can be told from its words, whatever their order; attention has little to add, and a
# minute of reading teaches the model no more about single words than nine columns of counts hold. Without the rival's
# line, the blue curve alone would have looked like understanding.
#
# What is reading worth when examples are few? That is what pre-training is made for: labels cost money, text does not.
# The same again with 20, 80 and 320 sentences of each author to learn from.

# %% mystnb={"image": {"alt": "Share of right answers against the number of sentences to learn from, on a logarithmic axis. The pretrained model begins at 36% with 20 sentences of each author and stays far above the untrained one, which begins at a guess; naive Bayes is a little above both throughout."}}
lines = (work / "authors" / "train.tsv").read_text(encoding="utf-8").splitlines()
sizes, shares = (20, 80, 320, MOST), {"naive Bayes": [], "pretrained": [], "untrained": []}
for most in sizes[:-1]:
    task, count, chosen = f"authors-{most}", Counter(), [lines[0]]
    for line in lines[1:]:
        count[line.split("\t")[0]] += 1
        if count[line.split("\t")[0]] <= most:
            chosen.append(line)
    (work / task).mkdir()
    (work / task / "train.tsv").write_text("\n".join(chosen) + "\n", encoding="utf-8")
    shutil.copy(work / "authors" / "dev.tsv", work / task)
    print(f"{most} of each author:")
    show(task, "naive Bayes on pieces", naive_bayes(work / task))
    for start in ("untrained", "pretrained"):
        tune(task, start)
for most in sizes:
    task = "authors" if most == MOST else f"authors-{most}"
    shares["naive Bayes"].append(right[task, "naive Bayes on pieces"].mean())
    for start in ("untrained", "pretrained"):
        shares[start].append(right[task, f"BERT, {start}, seed 0"].mean())
figure, axes = plt.subplots(figsize=(7, 3.2))
for (name, found), style in zip(shares.items(), ("k:", "C0o-", "C1o-"), strict=True):
    axes.semilogx(sizes, found, style, label=name)
axes.axhline(1 / 9, color="k", lw=0.8, ls="--", label="a guess")
axes.set_xticks(sizes, list(map(str, sizes)))
axes.minorticks_off()
axes.set(xlabel="sentences of each author to learn from, at most", ylabel="right on dev", ylim=(0, 1))
axes.set_title("What reading is worth when examples are few")
axes.legend(frameon=False, loc="upper left")
# %% [markdown]
# With 20 sentences of each author the model that has read is right as often as the other with 320. A minute of reading,
# which nobody has to label, is worth fifteen of sixteen labels here. That is the paper's argument in one picture. Naive
# Bayes, which has so much less to learn, remains the best of the three.
#
# ## 6. Who is taken for whom
#
# Rows are the authors, columns the answers. The Bible, Carroll and Milton are recognised in four sentences of five or
# more. Novelists are taken for each other, and not only those of one time: Edgeworth is taken for Austen more often than
# for herself, and also for Chesterton, who was born a century after her.

# %% mystnb={"image": {"alt": "A table of authors by answers. Most sentences lie on the diagonal, but Edgeworth is taken for Austen or Chesterton more often than for herself, and Chesterton and Melville are often taken for each other."}}
predictions = json.loads((runs["pretrained", 0] / "dev_predictions.json").read_text())
table = confusion(read(work / "authors" / "dev.tsv")[0], [one["label"] for one in predictions], names)
figure, axes = plt.subplots(figsize=(5.6, 4.8), layout="constrained")
shares = axes.imshow(table / table.sum(1, keepdims=True), cmap="Blues", vmin=0, vmax=1)
for (row, column), number in np.ndenumerate(table):
    axes.text(column, row, number, ha="center", va="center", fontsize=7, color="w" if number > 90 else "k")
axes.set_xticks(range(len(names)), names, rotation=60, ha="right")
axes.set_yticks(range(len(names)), names)
axes.set(xlabel="answer", ylabel="author", title="Sentences of each author, by answer")
figure.colorbar(shares, label="share of the author's sentences")

# %% [markdown]
# ## 7. Where the order of words is all there is
#
# Now every sentence is in the table twice, in lower case and without punctuation: once as it was written, once with its
# words shuffled. Which is which? Both have the same bag of words, so counting words must be right for exactly one of
# the two. Pairs of neighbours do carry something, as far as the same pair has been counted before.


# %%
def plain(line):
    """The words of a sentence without capitals and marks, which would give the beginning and the end away."""
    return [word for word in (one.strip(string.punctuation).lower() for one in line.split()) if word]


for split, most in (("train", 3000), ("dev", 500)):
    lines = [plain(line) for _, line in examples[split] if len(line.split()) <= 16]
    rows = []
    for number in rng.choice(len(lines), most, replace=False):
        rows.append("written\t" + " ".join(lines[number]))
        rows.append("shuffled\t" + " ".join(rng.permutation(lines[number])))
    (work / "order").mkdir(exist_ok=True)
    (work / "order" / f"{split}.tsv").write_text(
        "label\tsentence\n" + "\n".join(rows) + "\n", encoding="utf-8"
    )
print("\n".join(rows[:4]), "\n")

show("order", "naive Bayes on pieces", naive_bayes(work / "order"))
show("order", "naive Bayes on pairs", naive_bayes(work / "order", grams=2))
for start in ("untrained", "pretrained"):
    for seed in (0, 1):
        tune("order", start, seed)
for seed in (0, 1):
    compare("order", f"BERT, pretrained, seed {seed}", "naive Bayes on pairs")
    compare("order", f"BERT, pretrained, seed {seed}", f"BERT, untrained, seed {seed}")

# %% mystnb={"image": {"alt": "Right answers with intervals: naive Bayes on pieces at one half, the untrained models at 0.5 and 0.63, naive Bayes on pairs at 0.75, pretrained models at 0.88 and 0.85."}}
shown = [name for task, name in right if task == "order"]
figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
for height, name in enumerate(reversed(shown)):
    axes.plot(interval(right["order", name]), [height, height], color="C0", lw=2)
    axes.plot(right["order", name].mean(), height, "o", color="C0")
axes.axvline(0.5, color="k", lw=0.8, ls="--")
axes.set_yticks(range(len(shown)), reversed(shown))
axes.set(xlabel="right on dev, with 95% intervals", xlim=(0.4, 1), title="As written, or shuffled?")
# %% [markdown]
# Here is what a minute of reading was for. The words alone tell nothing, and six thousand examples are far too few
# to learn English from: the untrained model falls behind even a count of pairs. The model that has read knows which
# words follow which, and one output layer is enough to ask it.

# %% [markdown]
# ## 8. Ask it

# %%
lines = [
    "It is a truth universally acknowledged, that a single man must be in want of a wife.",
    "And the whale was in the sea, and the sea was in the whale.",
    "I celebrate the city, and the engines, and the bodies of the workmen.",
    "Off with his head! said the Queen.",
]
for line, found in zip(lines, classify(runs["pretrained", 0], lines), strict=True):
    best = sorted(found["probabilities"].items(), key=lambda item: -item[1])[:3]
    print(line, "\n   ", "  ".join(f"{name} {100 * chance:.0f}%" for name, chance in best))

# %% [markdown]
# ## Where to go from here
#
# * `report.html` in the folder of each run has the figures with an interval, the learning curve, and the ten worst
#   mistakes.
# * The same from the command line: `minibert finetune classify --data FOLDER --model RUN --out DIR`. `minibert
#   finetune --help` lists the paper's tasks; `--freeze 1` trains only what stands above the first layer.
# * `minibert answer`, `tag` and `features` are for questions, names, and vectors.
