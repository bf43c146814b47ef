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
# # 00 · A tour of BERT
#
# **The question.** How does one get from a sentence to a trained language model, and how would you know that each step
# is right?
#
# BERT is a model that reads a text and guesses the words that are hidden in it. This chapter goes all the way to one: a
# sentence becomes pieces, pieces become vectors, vectors look at each other, a guess is scored, the score becomes a
# gradient, and many gradients become a small BERT that we train here, in less than a minute. The chapters after this
# one go back over each of these steps, slowly, and there you write every operation yourself. You need to know Python
# with NumPy, derivatives, and products of matrices; the rest is explained where it comes up. Section numbers in
# parentheses are those of the paper, [Devlin et al. 2019](https://arxiv.org/abs/1810.04805).
#
# **When you have read it, you will be able to** say what each part of BERT is for, read the pictures that the later
# chapters use, and judge whether a model has learnt something or has only counted words.
#
# **To run it**, install minibert from a checkout with `pip install '.[notebooks]'`. Nothing is downloaded: the text is
# sixteen old books that come with the package. There are no exercises in this chapter. There are four questions: put
# your guess in place of the three dots before you run the cell. A wrong guess costs nothing, and an answer that
# surprises you is easier to remember.

# %%
# %matplotlib inline
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from minibert import Bert, BertConfig, Tokenizer, course, show
from minibert.core import bert
from minibert.core.batch import Batch, Sequence
from minibert.core.gradcheck.complex_step import complex_step
from minibert.data.corpus import embedded_corpus, sentences
from minibert.model.ops import Ops
from minibert.model.params import Parameters, initialise
from minibert.reports import viz
from minibert.tokenizer import BasicTokenizer, count_words, learn_vocab

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
lesson = course.begin("00")

# %% [markdown]
# ## 1. A sentence becomes pieces
#
# BERT reads neither letters nor words. Its unit is the **piece**: a string from a fixed list, the
# **vocabulary**. A frequent word is a piece by itself. A rare one is put together from several, and every
# piece that does not begin a word is marked with `##`. So a few thousand strings can spell any word whose
# letters are among them.
#
# We learn 8,192 pieces from the books. One sentence will be our example all through the tour:
#
# > The unforgiving whale swallowed Jonah.

# %%
guess = lesson.predict("How many pieces does the word 'unforgiving' become?", ...)

# %%
text = (line for line in sentences([embedded_corpus()]) if line)
tokenizer = Tokenizer(learn_vocab(count_words(text, BasicTokenizer()), 8_192))
sentence = "The unforgiving whale swallowed Jonah."
pieces = tokenizer.tokenize("unforgiving")
guess.answer(len(pieces), f"{' '.join(pieces)}.")
course.show(
    viz.draw_pieces(tokenizer, sentence),
    "The sentence as a row of coloured boxes, one colour per word: "
    f"{' '.join(tokenizer.tokenize(sentence))}; under each piece is its number in the vocabulary.",
)

# %% [markdown]
# Each colour is a word, each box is a piece, and the small number under it is the piece's **id**: its place
# in the vocabulary. The model sees these ids and nothing else. *Whale* is frequent enough in these
# books to be one piece (one of the books is *Moby-Dick*). Why does *unforgiving* not fall apart into
# *un-forgiv-ing*? Because the vocabulary knows no grammar. Chapter 1 shows how its pieces are chosen instead.
#
# ## 2. Pieces become vectors
#
# Two special pieces frame the input: `[CLS]` opens it and `[SEP]` closes it. (The names stand for *classification* and
# *separator*.) BERT may also be given two texts at once, say a question and a passage; then another `[SEP]` separates
# them, and every piece belongs to a **segment**, A or B (section 3 and figure 2 of the paper). Here is our sentence,
# and a second one after it:

# %%
single = tokenizer(sentence)
pair = tokenizer(sentence, "He was saved.")
rows = zip(pair.ids, pair.token_type_ids, pair.tokens, strict=True)
print(f"{'position':>8} {'id':>5} {'segment':>8}  piece")
for position, (number, segment, piece) in enumerate(rows):
    print(f"{position:8} {number:5} {'AB'[segment]:>8}  {piece}")

# %% [markdown]
# Each piece comes with three numbers, and for each of them there is a table of vectors: the first has a row for every
# id, the second for every position, the third for every segment. For each piece, what enters the network is the **sum of
# three vectors**, one row of each table. Every number in the tables is a **parameter**: it starts out random and is
# learnt. The picture shows our sentence in a small, untrained model. Its vectors have 128 elements, of which you see 48.

# %%
config = BertConfig.from_size("tiny", vocab_size=tokenizer.vocab_size)
model = Bert(config, initialise(config, seed=0))
tables = model.params.tree["embeddings"]
n = len(single.ids)
parts = {
    "piece": tables["word"][single.ids],
    "position": tables["position"][:n],
    "segment": tables["segment"][single.token_type_ids],
}
parts["their sum"] = sum(parts.values())
figure, axes = plt.subplots(1, 4, figsize=(11, 2.6), sharey=True, layout="constrained")
for ax, (name, vectors) in zip(axes, parts.items(), strict=True):
    image = ax.imshow(vectors[:, :48], cmap="cividis", vmin=-0.06, vmax=0.06, aspect="auto")
    ax.set(title=name, xticks=[], xlabel="element of the vector")
axes[0].set_yticks(range(n), single.tokens, fontsize=8)
figure.colorbar(image, ax=axes, label="value")
course.show(
    figure,
    "Four heat maps with a row for each piece. Every row of the piece and position maps is different, all rows of "
    "the segment map are equal, and the fourth map is the sum of the three.",
)

# %% [markdown]
# Every row of the third map is the same, because all our pieces are in segment A. Without the second map, the sum for a
# piece would be the same at every position, and the model could not tell *the whale swallowed Jonah* from *Jonah
# swallowed the whale*. Chapter 2 proves that.
#
# ## 3. Vectors look at each other
#
# The vectors then pass through layers. A layer has two halves. In the first, **attention**, each piece gathers information
# from the others: it gives every piece of the sequence a probability, and takes the average of what they offer, weighted
# by these probabilities. Each layer does that several times side by side, and each of these parallel attentions is
# called a **head**. In the second half each vector is transformed on its own. Our model has
# 2 layers with 2 heads each; BERT-BASE has 12 with 12.
#
# In the picture, row *i* says where piece *i* looks. White is probability 0 and the darkest blue is probability 1. The
# picture after training, further down, uses the same colours.

# %%
seen = model.encode([single], attentions=True)
before = seen.attentions[0][0]  # (A, n, n): layer 1, our only sequence
course.show(
    viz.draw_attention(before, single.tokens, "Layer 1, before any training", darkest=1.0),
    "Two maps, ten by ten, of the attention of the two heads in layer 1. All cells have the same pale colour.",
)
course.say(
    f"The model has {model.n_parameters:,} parameters, none of them trained. With {n} pieces, probabilities that know nothing "
    f"should all be about 1/{n}. Here they lie between {before.min():.3f} and {before.max():.3f}."
)

# %% [markdown]
# ## 4. A guess is scored
#
# How do you teach a model to read without telling it anything about the text? Hide a piece behind `[MASK]` and ask
# which one it was (section 3.1). No one has to label anything; the text is its own answer key.
#
# How does a vector become a guess? The vector that leaves the last layer at the `[MASK]` is compared with the vector of
# every piece in the vocabulary: one scalar product each, 8,192 scores. A function called softmax (chapter 3) turns them
# into 8,192 probabilities that sum to 1.
#
# If the model gave the hidden piece the probability $p$, it pays $-\log p$. That is its **loss** on this piece: 0 if it
# was certain and right, and the larger, the more it is surprised. We use the natural logarithm, whose unit is called a
# **nat**. There is another question, for two texts at once: did the second one really follow the first, or does it come
# from somewhere else? It is scored in the same way.

# %%
guess = lesson.predict("An untrained model guesses one of 8,192 pieces. What does it pay, in nats?", ...)

# %%
hidden_at = np.array([5, 7])  # whale, jonah
masked_ids = pair.ids.copy()
masked_ids[hidden_at] = tokenizer.mask_id
sequence = Sequence(masked_ids, pair.token_type_ids, hidden_at, pair.ids[hidden_at], next_sentence_label=0)
batch = Batch.pack([sequence])

ops = Ops()  # the reference: every operation, forward and backward, in NumPy
loss, saved = bert.pretraining_loss(ops, config, model.params.tree, batch)
print(" ".join(tokenizer.vocab[i] for i in masked_ids))
guess.answer(float(loss.mlm_loss), "close to the logarithm of 8,192, whatever is hidden.")

# %% [markdown]
# A model that knows nothing gives each of $V$ pieces the probability $1/V$ and pays $-\log(1/V) = \ln V$. The
# other question has two possible answers, so there it pays $\ln 2 \approx 0.693$.

# %%
course.say(
    f"""| question | this model pays | knowing nothing costs |
|---|---|---|
| which piece is hidden? | {loss.mlm_loss:.3f} nats | $\\ln {config.V}$ = {np.log(config.V):.3f} |
| does the second text follow? | {loss.nsp_loss:.3f} nats | $\\ln 2$ = {np.log(2):.3f} |"""
)

# %% [markdown]
# The small differences come from the random numbers that the parameters start with.
#
# ## 5. The score becomes a gradient, and the gradient is checked
#
# Training changes every parameter a little, in the direction in which the loss falls. For that we need the **gradient**
# $\nabla f$: the derivatives of the loss $f$ with respect to all parameters $x$. minibert has no automatic
# differentiation. The **backward pass**, which computes the gradient, is written by hand for every operation, and in
# this course you will write it, too. How do you find out whether it is right?
#
# The obvious way, the **central difference**, is to take a step $h$ along some direction $v$, forwards and backwards,
# and to look at the difference. By Taylor's formula
#
# $$ \frac{f(x + hv) - f(x - hv)}{2h} = \nabla f \cdot v + \frac{h^2}{6} f''' + \dots $$
#
# where $f'''$ is the third derivative along $v$. The term with $h^2$ is an error, so $h$ should be small. But the two
# values of $f$ are then almost equal, their difference consists of rounding errors, and dividing by $h$ magnifies
# them. The way out is the **complex step**, a step into the complex plane. For an $f$ made of formulas that also work
# for complex numbers,
#
# $$ f(x + ihv) = f + ih\,\nabla f\cdot v - \frac{h^2}{2} f'' - \frac{i h^3}{6} f''' + \dots
#    \quad\Rightarrow\quad
#    \frac{\operatorname{Im} f(x + i h v)}{h} = \nabla f \cdot v - \frac{h^2}{6} f''' + \dots $$
#
# The $h^2$ term is the same, only with the other sign. What has changed is that nothing is subtracted. The real part
# keeps $f$, the imaginary part keeps the derivative, and no digits cancel. So $h$ can be so tiny that the $h^2$ term
# vanishes for all practical purposes. We take $h = 2^{-100} \approx 10^{-30}$; then $h^2$ is $10^{-60}$.

# %%
guess = lesson.predict(
    "Numbers have 16 digits. With the best h, how small is the central difference's error, relative to |∇f|?",
    ...,
    choices=("1e-8", "1e-12", "1e-16"),
)

# %%
params = model.params.astype(np.float64)
gradient = params.zeros_like()
_, saved = bert.pretraining_loss(ops, config, params.tree, batch)
bert.pretraining_loss_backward(ops, config, saved, params.tree, gradient.tree)


def loss_at(flat):
    return bert.pretraining_loss(ops, config, Parameters(config, flat).tree, batch)[0].loss


direction = np.random.default_rng(0).standard_normal(params.flat.shape)
direction /= np.linalg.norm(direction)
by_hand = gradient.flat @ direction
by_complex_step = complex_step(loss_at, params.flat, direction)

steps = np.logspace(-13, 0, 14)
central = [
    (loss_at(params.flat + h * direction) - loss_at(params.flat - h * direction)) / (2 * h) for h in steps
]
into_the_plane = [np.imag(loss_at(params.flat + 1j * h * direction)) / h for h in steps]
size = np.linalg.norm(gradient.flat)
central_error = np.abs(np.array(central) - by_hand) / size
plane_error = np.abs(np.array(into_the_plane) - by_hand) / size
best = central_error.min()
guess.answer(
    min(("1e-8", "1e-12", "1e-16"), key=lambda name: abs(np.log(float(name) / best))),
    f"the smallest error in the picture below is {best:.0e}.",
)
course.say(
    f"""| the derivative of the loss along one random direction in {params.flat.size:,} dimensions | |
|---|---|
| by the backward pass, written by hand | {by_hand:+.15f} |
| by the complex step with $h = 2^{{-100}}$ | {by_complex_step:+.15f} |"""
)

# %%
third = abs(into_the_plane[-2] - by_hand) * 6 / steps[-2] ** 2  # f''', from the h² term of a large step
figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
axes.loglog(steps, central_error, "o-", color="C0", label="central difference")
axes.loglog(steps, np.maximum(plane_error, 1e-18), "s-", color="C1", label="complex step")
axes.loglog(steps, steps**2 / 6 * third / size, "k:", label="the $h^2$ term: $h^2 |f'''| / 6$")
axes.loglog(
    steps,
    np.finfo(float).eps * float(loss_at(params.flat)) / steps / size,
    "k--",
    label="rounding of $f$, over $h$",
)
axes.axhline(
    max(abs(by_complex_step - by_hand) / size, 1e-18),
    color="C1",
    linewidth=0.8,
    label="complex step, $h = 2^{-100}$",
)
axes.set(xlabel="step $h$", ylabel=r"error / $|\nabla f|$", ylim=(1e-18, 1e2), xlim=(1e-13, 1))
axes.legend(frameon=False, fontsize=8, loc="upper center", ncol=2)
course.show(
    figure,
    "Error against step size on logarithmic axes. The error of central differences falls with h squared, turns near "
    "h = 1e-4 and rises again; that of the complex step falls with the same slope and stays below 1e-17.",
)

# %% [markdown]
# From the right, both curves come down along the dotted line, which is the $h^2$ term. Then central
# differences meet the dashed line and climb back up: rounding, divided by $h$. The complex step meets no such
# line: its error falls to the last digit and stays there even at $2^{-100}$. (The errors are divided
# by $|\nabla f|$, the largest slope that any direction has.)
#
# So a single random direction shows whether more than a million derivatives are right: a mistake in any of
# them would change the result, except by a coincidence of probability zero. `minibert gradcheck` does this for
# every operation, and in this course it judges what you write. Chapters 5 and 6 are about it.
#
# ## 6. Many gradients become a model
#
# Now we train: the same code, the vocabulary from section 1, real books, and new masks at every step. BERT-BASE trained
# for four days on 16 TPU chips. We have half a minute on a laptop, so everything is small. The sequences have ten
# pieces, like our sentence, and the question whether one text follows the other is left out.

# %%
guess = lesson.predict(
    "Guessing from how often each piece occurs costs about 6.3 nats. "
    "Half a minute of training brings the loss to ...?",
    ...,
    choices=("still 6 or more", "5 to 6", "less than 5"),
)

# %%
from minibert.pretraining import evaluation
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import prepare_text
from minibert.pretraining.run import pretrain

folder = Path(tempfile.mkdtemp())
run = folder / "tour"
tokenizer.save_pretrained(folder / "vocabulary")
options = PretrainOptions(
    vocab=folder / "vocabulary",
    steps=lesson.scale(1_000, 60),
    seq_length="10",
    batch_size=100,  # sequences in a step
    next_sentence=False,
    evaluations=8,  # looks at the held-out text on the way
)
report = pretrain(options, run, show=False)
held_out = report["held_out"]
reached = "still 6 or more" if held_out["loss"] >= 6 else "5 to 6" if held_out["loss"] >= 5 else "less than 5"
guess.answer(
    reached,
    f"{held_out['loss']:.2f} on {held_out['targets']:,} hidden pieces of text that was not trained on.",
)

# %% [markdown]
# ### How to read the curve
#
# * The **blue curve** is the loss in training, smoothed; the pale line behind it shows every single step, which reads a
#   **batch** of 100 sequences. It counts all pieces that were to be guessed. One in ten of them is left in sight, so that
#   it can be copied (section 3.1 of the paper says why, and so does chapter 3). That is why the blue curve crosses the
#   dashed line so early: it flatters the model.
# * The **red dots** are the honest numbers. Each is measured on a small sample of **held-out** text: documents that are
#   never used for training. Only pieces that are really hidden behind `[MASK]` count. The **red diamond** at the end
#   is the same, on a larger sample.
# * The **dashed line** is the **unigram floor**: what it costs to guess from the frequencies of the pieces
#   alone, always giving the same answer, whatever the surrounding words. Where a red dot lies below
#   this line, the model has learnt something from context. (The picture calls its height the *unigram
#   entropy*. Chapter 3 shows that this entropy is the least that such a guess can cost.)
# * The line of text above the picture says how much was read. A **token** is a piece at one place in a text,
#   so a text of a million tokens may have only 8,192 different pieces. *Length 10* is the number of tokens in
#   a sequence.
#
# The curve does not begin at $\ln V$, but close to the floor. That is a head start: a number is added to the score of each
# piece, its *bias*, and these biases began as the logarithms of the frequencies. Frequencies are cheap to count, and so
# the model need not spend its first steps on learning them.

# %%
from minibert.training.runlog import read_metrics

metrics = read_metrics(run)  # a line for every step, and one for every look at the held-out text
steps, losses = np.array([(line["step"], line["mlm_loss"]) for line in metrics if "mlm_loss" in line]).T
looks = np.array([(line["step"], line["held_out_loss"]) for line in metrics if "held_out_loss" in line]).T

figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
axes.plot(steps, losses, color=viz.PALE, lw=0.5)
smooth = viz.smoothed(losses, len(losses) // 40)
axes.plot(steps, smooth, color=viz.BLUE, lw=1.8, label="training, all targets, smoothed")
axes.plot(*looks, "o", color=viz.RED, ms=4, label="held out, [MASK] only, a small sample")
last = f"held out, at the end: {held_out['loss']:.2f}"
axes.plot(steps[-1], held_out["loss"], "D", color=viz.RED, ms=7, label=last)
floor = f"unigram entropy: {held_out['unigram']:.2f}"
axes.axhline(held_out["unigram"], color=viz.INK, ls="--", lw=1, label=floor)
axes.set_title(f"{report['tokens'] / 1e6:.2f}M tokens, length {report['trained_length']}", loc="left")
axes.set(xlabel="step", ylabel="masked-LM loss (nats)", ylim=(smooth.min() - 0.2, smooth.max() + 0.2))
axes.legend(frameon=False, fontsize=8, loc="lower left")
axes.spines[["top", "right"]].set_visible(False)
course.show(
    figure,
    "The loss against the step. The red held-out dots begin above the dashed unigram floor, cross it after about two "
    "fifths of the steps and go on falling; the blue curve of training lies below them all the way.",
)

# %% [markdown]
# At first the red dots hardly move. Then they fall through the floor. That is not an accident:
# before a head looks anywhere in particular, there is hardly any gradient to tell it where to look. Chapter 8 explains
# this wait, and how to shorten it.
#
# ## 7. Has it learnt, and what?
#
# "The loss went down" is a weak argument. A stronger one needs something to compare with. So we ask for the loss of
# each hidden piece, once with the words around it as they are and once with these words in random order, and we ask an
# untrained model as well. Our claim holds if our model beats the guess from frequencies, and neither of the other two
# does.

# %%
trained = Bert.from_pretrained(run)
prepared = prepare_text(options, run, show=False)
batches = list(
    evaluation.evaluation_batches(prepared.held_out(10, next_sentence=False), tokenizer.mask_id, 3_000)
)


def losses(weights, of):
    """Return -log p of every piece that is hidden behind [MASK]."""
    found = []
    for one in of:
        result, _ = bert.pretraining_loss(ops, config, weights.tree, one)
        found.append(result.mlm_nll[one.input_ids[one.masked_rows] == tokenizer.mask_id])
    return np.concatenate(found)


hidden = np.concatenate(
    [one.masked_labels[one.input_ids[one.masked_rows] == tokenizer.mask_id] for one in batches]
)
shuffled = list(evaluation.shuffle_contexts(batches, tokenizer.special_ids))
claim = lesson.claim(
    "learnt to use the words around a gap",
    losses(trained.params, batches),
    -prepared.log_unigram()[hidden],
    controls={
        "untrained": losses(model.params, batches),
        "shuffled context": losses(trained.params, shuffled),
    },
    unit="nats per hidden piece",
)

# %% [markdown]
# *Baseline* is the guess from the frequencies in the training text. (The floor in the picture lies a little lower. It is
# stricter: it may know the frequencies among the hidden pieces themselves.) The interval comes from resampling the
# pieces. With its context shuffled, our model does worse than a guess that ignores the context: it has learnt to
# trust the order of words, and here that trust is misplaced.
#
# What does it know? After half a minute, little. Is *unto* followed by a person, and does *in the … of* want a noun? Look
# at how long the bars are, too: where all of them are short, it has no idea.

# %%
clozes = ["And he said unto [MASK], Go.", "She was very [MASK] to see him.", "in the [MASK] of the sea"]
figure, axes = plt.subplots(1, 3, figsize=(11, 2.6), layout="constrained")
shown = []
for ax, cloze in zip(axes, clozes, strict=True):
    guesses, probabilities = zip(*reversed(trained.fill_mask(cloze, top=6)[0]), strict=True)
    ax.barh(guesses, probabilities)
    ax.locator_params(axis="x", nbins=4)
    ax.set(title=cloze, xlabel="probability")
    shown.append(f"{cloze} {', '.join(reversed(guesses))}")
course.show(figure, f"Bar charts of the six likeliest pieces for three gaps. {'; '.join(shown)}.")

# %% [markdown]
# Attention has changed, too. This is the picture of section 3 again, with the same pieces and the same colours.

# %%
after = trained.encode([single], attentions=True).attentions[0][0]
course.show(
    viz.draw_attention(after, single.tokens, "Layer 1, after half a minute", darkest=1.0),
    "The two attention maps of layer 1 after training. Most rows have one dark cell, just beside the diagonal: to the "
    "right of it in one head, to the left in the other.",
)

# %% [markdown]
# One sentence is an anecdote. The last picture averages over many held-out sequences, and asks only how far to the
# left or right each head looks.

# %%
REACH = 4
in_a_row = [
    Sequence(ids, np.zeros_like(ids))
    for one in batches
    for ids in np.split(one.input_ids, one.cu_seqlens[1:-1])
]
full = Batch.pack([one for one in in_a_row if len(one.input_ids) == 10][:400])


def profile(which):
    """Average the probability that each head of layer 1 gives to the piece at each distance: (A, 2 * REACH + 1)."""
    maps = np.array(which.encode(full, attentions=True).attentions[0])  # (S, A, n, n)
    return np.array([np.diagonal(maps, d, 2, 3).mean((0, 2)) for d in range(-REACH, REACH + 1)]).T


profiles = {"before": profile(model), "after": profile(trained)}
figure, axes = plt.subplots(1, config.A, figsize=(9, 2.8), sharey=True, layout="constrained")
for head, ax in enumerate(axes):
    ax.plot(range(-REACH, REACH + 1), profiles["before"][head], "s--", color="C1", label="untrained")
    ax.plot(range(-REACH, REACH + 1), profiles["after"][head], "o-", color="C0", label="trained")
    ax.set(title=f"layer 1, head {head + 1}", xlabel="distance (negative: to the left)")
axes[0].set_ylabel("mean probability")
axes[0].legend(frameon=False)
course.show(
    figure,
    "Mean attention by distance for both heads of layer 1: flat at a tenth before training; afterwards each head has "
    "one high peak, beside the piece itself.",
)
peaks = profiles["after"].argmax(1) - REACH
course.say(
    " ".join(
        f"Head {head + 1} gives {profiles['after'][head].max():.0%} of its attention to the piece "
        f"{abs(d)} {'place' if abs(d) == 1 else 'places'} to the {'left' if d < 0 else 'right'}."
        if d
        else f"Head {head + 1} looks mostly at the piece itself."
        for head, d in enumerate(peaks)
    )
)

# %% [markdown]
# Nobody asked for heads that look at a neighbour. They emerged because a neighbour helps to guess a hidden piece.
#
# ## 8. Look for yourself
#
# Everything you have read about is in the frame below: the vocabulary, the trained weights, and a tokenizer
# and a forward pass in JavaScript, which compute in your browser as you type. Change the sentence and see how
# it is cut into pieces. Click a piece to hide it, and see what the model guesses after each layer. Move the
# pointer over the attention maps. Switch off a head that looks at a neighbour, and see what becomes of the
# guess.

# %%
show(run, text=f"{sentence} {clozes[0]}", int8=True)

# %% [markdown]
# The weights in the page are rounded to 8 bits, and the page says how much that changed them. `minibert show`
# writes such a page for any model to a file.
#
# ## What we saw
#
# * Text becomes ids of pieces, ids become sums of three vectors, and attention mixes them.
# * A hidden piece is guessed, the guess costs $-\log p$, and knowing nothing costs $\ln V$.
# * A backward pass can be checked to the last digit, because a complex step subtracts nothing; both kinds of
#   step leave out a term of size $h^2$, but only with the complex one can $h$ be so small that this term
#   vanishes.
# * A claim to have learnt something needs a baseline, and controls that fail.
#
# ## Words
#
# - **piece**: a string of the vocabulary; `##` marks one that does not begin a word.
# - **vocabulary**: the fixed list of all pieces of a model.
# - **id**: the place of a piece in the vocabulary.
# - **segment**: which of the two texts of an input, A or B, a piece belongs to.
# - **parameter**: a number in the model that is learnt.
# - **attention**: the step in which each piece averages what all pieces offer, with weights of its own.
# - **head**: one of the parallel attentions in a layer.
# - **loss**: what a guess costs, $-\log p$ of the right answer; of a model, the mean over all guesses.
# - **nat**: the unit of the loss when the logarithm is the natural one.
# - **gradient**: the derivatives of the loss with respect to all parameters.
# - **backward pass**: the computation of the gradient from the loss back to the parameters.
# - **complex step**: a derivative from a tiny imaginary step, exact to rounding.
# - **token**: a piece at one place in a text.
# - **held-out**: of text, kept out of training and used only to measure.
# - **unigram floor**: the lowest loss of a guess that looks at no context.
#
# ## Where to go next
#
# In the next chapters you build all this yourself. What you write becomes part of an engine of your own, called `Mine`;
# each operation that passes its check is kept in a file `mine.py`, and chapter 10 pre-trains a BERT with it.
#
# | | chapter | what you will have afterwards |
# |---|---|---|
# | [01](01_word_pieces.ipynb) | Word pieces | a vocabulary that you learnt and understand |
# | [02](02_what_bert_reads.ipynb) | What BERT reads | the sum of three tables, without padding |
# | [03](03_masks_and_next_sentences.ipynb) | Masks and next sentences | the two questions, and what they cost |
# | [04](04_attention.ipynb) | Attention | the forward pass of a head, on paper and in code |
# | [05](05_gradients_you_can_trust.ipynb) | Gradients you can trust | the complex step, and your first backward passes |
# | [06](06_the_hard_backwards.ipynb) | The hard backwards | LayerNorm, attention, tied tables |
# | [07](07_a_whole_bert.ipynb) | A whole BERT | 109,482,240 parameters, counted and assembled |
# | [08](08_why_the_loss_sticks.ipynb) | Why the loss sticks | the wait of section 6, explained and cured |
# | [09](09_optimizers.ipynb) | Optimizers | Adam, and what it needs besides |
# | [10](10_pretrain_yours.ipynb) | Pre-train yours | a BERT trained with nothing but your own operations |
# | [12](12_somebody_elses_bert.ipynb) | Somebody else's BERT | a published BERT, opened by hand, in your engine |
# | [13](13_what_heads_learn.ipynb) | What heads learn | heads with a name, a probe with its control, weights that explain or don't |
# | [14](14_argument_and_scaling.ipynb) | The paper's argument, and scaling | which run shows what, and a prediction made before its run |
# | [15](15_what_came_after.ipynb) | What came after | your engine with what a BERT of today has, measured |
# | [16](16_to_the_machines_limit.ipynb) | To the machine's limit | ten loops that use memory well, FlashAttention the last |
#
# If you would rather use a trained model than build one, go on with [chapter 11](11_fine_tuning.ipynb), on fine-tuning.
