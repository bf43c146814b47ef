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
# # Who wrote this sentence?
#
# Pre-training is the means. What people want are answers, and the claim of
# [Devlin et al. 2019](https://arxiv.org/abs/1810.04805) is that **one output layer** on top of BERT is enough for
# most of them (section 4). Here a small BERT first reads sixteen books for a minute; then it is asked who wrote a
# sentence, and we watch how much the reading was worth. Nothing is downloaded.

# %%
# %matplotlib inline
import json
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from minibert import Bert, Tokenizer, heads
from minibert.batch import Feature, Sequence, TaskBatch
from minibert.data.corpus import embedded_corpus, sentences
from minibert.finetune import classify, finetune
from minibert.finetuning.options import FinetuneOptions
from minibert.metrics import confusion
from minibert.ops import Ops
from minibert.params import Head, initialise
from minibert.pretrain import pretrain
from minibert.pretraining.options import PretrainOptions

plt.rcParams |= {"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False}
work = Path(tempfile.mkdtemp())

# %% [markdown]
# ## 1. A task
#
# The books of the package stand in one file, a sentence a line, an empty line between chapters. Whose chapters come
# in which order, `minibert/corpora/README.md` says. A fifth of the **chapters** is kept apart: had we drawn single
# sentences, the model could learn the names of one chapter by heart and be praised for it.

# %%
AUTHORS = [
    ("Austen", 129), ("Bible", 878), ("Blake", 11), ("Carroll", 12), ("Chesterton", 48), ("Edgeworth", 32),
    ("Melville", 122), ("Milton", 12), ("Shakespeare", 28), ("Whitman", 109),
]  # fmt: skip
chapter_of = np.repeat([name for name, _ in AUTHORS], [count for _, count in AUTHORS])
LEFT_OUT, MOST = {"Blake"}, 700  # sentences of one author to learn from; Blake has too few

examples, chapter = {"train": [], "dev": []}, 0
for line in sentences([embedded_corpus()]):
    if not line:
        chapter += 1
    elif 6 <= len(line.split()) <= 30 and chapter_of[chapter] not in LEFT_OUT and "\t" not in line:
        examples["dev" if chapter % 5 == 2 else "train"].append((str(chapter_of[chapter]), line))

rng = np.random.default_rng(0)
for split, most in (("train", MOST), ("dev", 150)):
    chosen, count = [], Counter()
    for number in rng.permutation(len(examples[split])):
        author, sentence = examples[split][number]
        count[author] += 1
        if count[author] <= most:
            chosen.append(f"{author}\t{sentence}")
    (work / f"{split}.tsv").write_text("author\tsentence\n" + "\n".join(chosen) + "\n", encoding="utf-8")
    print(f"{split}: {len(chosen):,} sentences; for example\n    " + "\n    ".join(chosen[:3]))

# %% [markdown]
# ## 2. A minute of reading
#
# As in the tour, with sequences that grow to the length of a sentence.

# %%
options = PretrainOptions(
    minutes=1.0, seq_length="10:0.3,32:0.7", next_sentence=False, evaluations=0, held_out=0.01
)
pretrain(options, work / "pretrained", show=False)
tokenizer = Tokenizer.from_pretrained(work / "pretrained")
config = Bert.from_pretrained(work / "pretrained").config
print(f"{config.L} layers of {config.H}, {tokenizer.vocab_size:,} pieces")

# %% [markdown]
# ## 3. One output layer
#
# The pooled vector of `[CLS]`, $c = \tanh(W h_{\text{[CLS]}} + b)$, is multiplied by one new matrix, a column
# for each author, and the softmax of that is the answer. `minibert/heads.py` has it, forward and backward, in some
# 200 lines with the heads of the other tasks. Before training the answer is no better than a guess: the loss is
# about $\ln 9$.

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
# ## 4. Fine-tuning, with and without having read
#
# All parameters are trained, with the paper's recipe but for a higher rate, since the model is small. The second
# model has the same shape and never read anything.

# %%
Bert(config, initialise(config, seed=1)).save_pretrained(work / "unread")
tokenizer.save_pretrained(work / "unread", config.P)

reports = {}
for start in ("pretrained", "unread"):
    options = FinetuneOptions(
        task="classify",
        data=work,
        model=work / start,
        columns={"text": "sentence", "label": "author"},
        learning_rates=5e-4,
        epochs=4,
        max_length=64,
    )
    reports[start] = finetune(options, work / f"authors-{start}", show=False)
    print(f"{start:>10}: {reports[start]['scores']['accuracy']:.1%} of the sentences")

# %%
figure, axes = plt.subplots(figsize=(7, 3.2))
for start, colour in (("pretrained", "C0"), ("unread", "C1")):
    rows = [json.loads(line) for line in (work / f"authors-{start}" / "metrics.jsonl").open()]
    measured = [(row["step"], row["dev_accuracy"]) for row in rows if "dev_accuracy" in row]
    axes.plot(*zip(*measured, strict=True), "o-", color=colour, label=start)
axes.axhline(1 / 9, color="k", lw=0.8, ls="--", label="a guess")
axes.set(xlabel="step", ylabel="right on dev", ylim=(0, 1), title="Who wrote it?")
axes.legend(frameon=False);

# %% [markdown]
# ## 5. Who is taken for whom
#
# Rows are the authors, columns the answers. The verse of Milton and of Whitman, the Bible's *begats*: style is found
# quickly. Novelists of one time are harder to tell apart.

# %%
predictions = json.loads((work / "authors-pretrained" / "dev_predictions.json").read_text())
rows = (work / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
gold, answers = [row.split("\t")[0] for row in rows], [one["label"] for one in predictions]
table = confusion(gold, answers, names)
figure, axes = plt.subplots(figsize=(5.6, 4.8), layout="constrained")
shares = axes.imshow(table / table.sum(1, keepdims=True), cmap="Blues", vmin=0, vmax=1)
for (row, column), number in np.ndenumerate(table):
    axes.text(column, row, number, ha="center", va="center", fontsize=7, color="w" if number > 90 else "k")
axes.set_xticks(range(len(names)), names, rotation=60, ha="right")
axes.set_yticks(range(len(names)), names)
axes.set(xlabel="answer", ylabel="author", title="Sentences of each author, by answer")
figure.colorbar(shares, label="share of the author's sentences");

# %% [markdown]
# ## 6. Ask it

# %%
lines = [
    "It is a truth universally acknowledged, that a single man must be in want of a wife.",
    "And the whale was in the sea, and the sea was in the whale.",
    "I celebrate the city, and the engines, and the bodies of the workmen.",
    "Off with his head! said the Queen.",
]
for line, found in zip(lines, classify(work / "authors-pretrained", lines), strict=True):
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
