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
# # A tour of minibert
#
# From a sentence to word pieces, from pieces to vectors and attention, from a loss to a gradient that we check,
# and from there to a BERT that we train ourselves in under two minutes. The checks run on the NumPy reference; the
# model and its training use the fastest engine that is installed. Nothing is downloaded.
# Section numbers are those of [Devlin et al. 2019](https://arxiv.org/abs/1810.04805).

# %%
# %matplotlib inline
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from minibert import Bert, BertConfig, Tokenizer, viz
from minibert.data.corpus import embedded_corpus, sentences
from minibert.gradcheck.sheet import complex_step
from minibert.model import bert
from minibert.model.batch import Batch, Sequence
from minibert.model.params import Parameters, initialise
from minibert.ops import Ops
from minibert.tokenizer import BasicTokenizer, count_words, learn_vocab

plt.rcParams |= {"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False}
warnings.formatwarning = lambda message, *_, **__: f"{message}\n"  # the sentence alone

# %% [markdown]
# ## 1. A vocabulary of word pieces
#
# BERT reads neither letters nor words but **pieces**. We learn 8,192 of them from the books that come with the
# package. Frequent words stay whole; rare ones fall apart into a head and `##` continuations. This vocabulary serves
# to the end of the tour.

# %%
text = (line for line in sentences([embedded_corpus()]) if line)
tokenizer = Tokenizer(learn_vocab(count_words(text, BasicTokenizer()), 8_192))
sentence = "The whale swallowed Jonah, and Captain Ahab was unforgiving."
print(tokenizer.tokenize(sentence))
viz.draw_pieces(tokenizer, sentence);

# %% [markdown]
# ## 2. What the model sees: three numbers for every piece
#
# A piece becomes the sum of three vectors: its own, that of its position, and that of its segment (A or B).
# `[CLS]` opens every input and `[SEP]` closes a segment (section 3, figure 2 of the paper).

# %%
pair = tokenizer("Call me Ishmael.", "Some years ago I went to sea.")
print(f"{'position':>8} {'id':>5} {'segment':>8}  piece")
rows = zip(pair.ids, pair.token_type_ids, pair.tokens, strict=True)
for position, (number, segment, piece) in enumerate(rows):
    print(f"{position:8} {number:5} {'AB'[segment]:>8}  {piece}")

# %% [markdown]
# ## 3. Vectors and attention
#
# A model with random weights already has all the machinery: L layers of attention and feed-forward, each wrapped
# in a residual connection and a LayerNorm. Row *i* of an attention map says where token *i* looks, white for 0, dark
# blue for 1. Untrained, every token looks everywhere alike: with $n$ tokens all probabilities are about $1/n$.

# %%
config = BertConfig.from_size("tiny", vocab_size=tokenizer.vocab_size)
model = Bert(config, initialise(config, seed=0))
seen = model.encode([pair], attentions=True)
print(f"{model.n_parameters:,} parameters; {len(seen.hidden_states)} hidden states {seen.hidden_states[-1].shape}")
viz.draw_attention(seen.attentions[0][0], pair.tokens, "Layer 1, before any training", darkest=1.0);

# %% [markdown]
# ## 4. The question it is asked
#
# Some pieces are hidden behind `[MASK]` and the model guesses them (section 3.1). The loss is the mean of
# $-\log p(\text{hidden piece})$. A model that knows nothing gives each of the $V$ pieces the same chance, so its
# loss is $\ln V$.

# %%
hidden_at = np.array([2, 7, 10])
masked_ids = pair.ids.copy()
masked_ids[hidden_at] = tokenizer.mask_id
sequence = Sequence(masked_ids, pair.token_type_ids, hidden_at, pair.ids[hidden_at], next_sentence_label=0)
batch = Batch.pack([sequence])

ops = Ops()  # the reference: every operation, forward and backward, in NumPy
loss, saved = bert.pretraining_loss(ops, config, model.params.tree, batch)
print(" ".join(tokenizer.vocab[i] for i in masked_ids))
print(f"masked-LM loss {loss.mlm_loss:.3f} nats; ln V = {np.log(config.V):.3f}")
print(f"next-sentence loss {loss.nsp_loss:.3f} nats; ln 2 = {np.log(2):.3f}")

# %% [markdown]
# ## 5. A gradient, checked
#
# minibert has no automatic differentiation: every backward pass is written by hand. Are they right? For a function
# that is analytic we can step into the complex plane:
#
# $$ f(x + i h v) = f(x) + i h \, \nabla f \cdot v + O(h^2) \quad\Rightarrow\quad
#    \nabla f \cdot v = \operatorname{Im} f(x + i h v) / h $$
#
# Nothing is subtracted, so nothing cancels, and $h$ can be as small as $10^{-30}$: what is left out is of the size of
# $h^2 = 10^{-60}$, far below the last digit. Ordinary differences have to choose between truncation, which grows as
# $h^2$, and rounding, which grows as $1/h$: their error falls and then rises again in the picture. It shows errors as
# parts of $|\nabla f|\,|v|$, the largest derivative that a direction of this length could have.

# %%
params = model.params.astype(np.float64)
gradient = params.zeros_like()
_, saved = bert.pretraining_loss(ops, config, params.tree, batch)
bert.pretraining_loss_backward(ops, config, saved, params.tree, gradient.tree)


def loss_at(flat):
    return bert.pretraining_loss(ops, config, Parameters(config, flat).tree, batch)[0].loss


direction = np.random.default_rng(0).standard_normal(params.flat.shape)
by_hand = gradient.flat @ direction
size = np.linalg.norm(gradient.flat) * np.linalg.norm(direction)
steps = np.logspace(-14, -1, 14)
differences = [
    (loss_at(params.flat + h * direction) - loss_at(params.flat - h * direction)) / (2 * h) for h in steps
]
exact = complex_step(loss_at, params.flat, direction)
print(f"by hand {by_hand:+.15f}\ncomplex {exact:+.15f}")

# %%
figure, axes = plt.subplots(figsize=(7, 3.2))
axes.loglog(steps, np.abs(np.array(differences) - by_hand) / size, "o-", label="central differences")
axes.axhline(max(abs(exact - by_hand) / size, 1e-18), color="C1", label="complex step, $h = 10^{-30}$")
axes.set(xlabel="step $h$", ylabel="error / $|\\nabla f|\\,|v|$", title="Backward of the whole pre-training loss, by hand")
axes.legend();

# %% [markdown]
# `minibert gradcheck` does this for every operation and prints the proof sheet.
#
# ## 6. Under two minutes of training
#
# The same code, the vocabulary from above, real books, masks drawn anew all the time. `minutes=1.75` covers
# everything: writing the text as numbers, training, measuring. That is too short for next sentences and long texts, so
# the sequences have 10 pieces: what is slow to learn is where to look, and in a short sequence the neighbours are soon
# found.

# %%
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.predict import fill_mask
from minibert.pretraining.run import metrics_text, pretrain

folder = Path(tempfile.mkdtemp())
run = folder / "tour"
tokenizer.save_pretrained(folder / "vocabulary")
options = PretrainOptions(
    vocab=folder / "vocabulary", minutes=1.75, seq_length="10", batch_size=100, next_sentence=False, evaluations=5
)
report = pretrain(options, run)
print(metrics_text(report["held_out"]))

# %% [markdown]
# The dashed line is the **unigram floor**: the best that anyone can do who looks at no context at all. Whatever is
# below it was learnt from the words around.
#
# Why does the curve begin near the floor, and not at $\ln V = 9.0$ as in section 4? Because training began with a
# better guess than equal chances: the output bias starts at the logarithm of how often each piece occurs in the text.
# That costs nothing to know, and it spares the model the first hundred steps. The blue curve is the loss of the
# training batches, where one target in ten is left in sight and can be copied; the red dots are measured on documents
# held out from training, and only where `[MASK]` stands.

# %%
viz.draw_run(run);

# %% [markdown]
# ## 7. What has it learnt?
#
# Not much in so short a time, but it is English. Give it eight minutes (`make pretrain`) and it knows more.

# %%
clozes = ["And he said unto [MASK], Go.", "She was very [MASK] to see him.", "in the [MASK] of the sea"]
figure, axes = plt.subplots(1, 3, figsize=(11, 2.6), layout="constrained")
for ax, cloze in zip(axes, clozes, strict=True):
    pieces, probabilities = zip(*reversed(fill_mask(run, cloze, top=6)[0]), strict=True)
    ax.barh(pieces, probabilities)
    ax.locator_params(axis="x", nbins=4)
    ax.set(title=cloze, xlabel="probability")

# %% [markdown]
# And attention has taken sides: the pieces and the colours are those of the picture above. Heads that look at the word
# before or after are the first to appear, where the curve leaves the floor (and only among the first ten positions: it
# has seen no others).

# %%
seen = Bert.from_pretrained(run).encode([pair], attentions=True)
viz.draw_attention(seen.attentions[0][0], pair.tokens, "Layer 1, after a minute", darkest=1.0);

# %% [markdown]
# ## Where to go from here
#
# * The folder of a run is a Hugging Face folder: `transformers.AutoModelForPreTraining.from_pretrained(run)` loads it.
# * `minibert/ops/` has the mathematics, forward directly above backward; `minibert/model/bert.py` puts it together in
#   200 lines.
# * `minibert pretrain --help` lists what else can be varied: sizes, masking rates, whole words, left-to-right.
