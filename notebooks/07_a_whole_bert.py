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
# # 07 · A whole BERT
#
# To run this notebook: `pip install '.[notebooks]'` from a checkout of minibert. Nothing is downloaded.
#
# **The question.** You have a drawer full of operations, each with its backward. How do they become a BERT, where do
# its 109,482,240 parameters sit, and when one of its many gradients is wrong, how do you find out which line did
# it?
#
# **After this chapter you can**
#
# * write each block of BERT, forward and backward, from operations of your own;
# * count the parameters of any BERT on the back of an envelope, and say which of them do the work;
# * prove the gradient of the whole pre-training loss, tensor by tensor;
# * read from a list of right and wrong gradients where the fault is.
#
# It needs the operations of chapters 02 to 06. Where one of yours is still open, minibert's stands in.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np

from minibert import course
from minibert.core import bert
from minibert.core.config import BertConfig
from minibert.core.gradcheck.cases import Size, config_of, random_batch, random_parameters
from minibert.core.gradcheck.complex_step import complex_step
from minibert.core.ops.blocks import (
    AttentionBlockSaved,
    FeedForwardBlockSaved,
    MaskedLmHeadSaved,
    MaskedLmLogitsSaved,
    PoolerSaved,
    layer_sites,
)
from minibert.engines.flops import layer_operations, step_operations
from minibert.model.ops import Ops
from minibert.model.params import Parameters, initialise

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
lesson = course.begin("07")

# %% [markdown]
# ## 1. The floor plan
#
# BERT is a stack. A row of vectors, one for each token, enters at the bottom and keeps its shape all the way up. On its
# way it passes through a few blocks, groups of operations that belong together. Section 3 of the paper gives their
# sizes and leaves the rest to Vaswani et al. (2017). Some blocks near the top appear only in the authors' code. There is
# no need to draw the plan from memory: an engine is an object, so we let a real one run and write down which block is
# called with what.

# %%
size = Size((5, 9, 2), H=12, A=3, F=29, V=41, M=6)  # a toy: 16 tokens in three sequences
rng = np.random.default_rng(7)
config, batch = config_of(size), random_batch(size, size.M, rng)
params = random_parameters(config, rng)  # float64, every value in general position

BLOCKS = ("embedding_block", "attention_block", "feed_forward_block", "pooler", "masked_lm_head")


class Recording(Ops):
    """The reference, which notes the shape that every block returns."""

    def __init__(self):
        super().__init__()
        self.seen = []


def recording(name):
    def method(self, *args, **kwargs):
        result, saved = getattr(Ops, name)(self, *args, **kwargs)
        self.seen.append((name, (result[0] if name == "masked_lm_head" else result).shape))
        return result, saved

    return method


for name in BLOCKS:
    setattr(Recording, name, recording(name))

recorder = Recording()
loss, saved = bert.pretraining_loss(recorder, config, params.tree, batch)
for name, shape in recorder.seen:
    print(f"{name:20} -> {shape}")

# %% [markdown]
# Two things in this list deserve a second look.
#
# The last layer returns fewer rows than went in. Nobody reads the others: what is on top of the stack, two **output
# heads** (no relatives of the attention heads), looks at the `[CLS]` of each sequence and at the masked pieces, and at
# nothing else. Every token still offers itself as key and value, so the numbers that remain are exactly those of a full
# computation, at a lower cost.
#
# And the stack forks at the top. One branch, the **masked-LM head**, scores the whole vocabulary at every masked piece.
# The other begins with the **pooler**, a linear layer with tanh on the vector of `[CLS]`; two scores on top of it say
# whether the second segment follows the first.
#
# In this chapter layers are numbered from 0, as in the names of the parameters (`layers.0.…`). The pictures of chapters
# 00, 09 and 10 call the first one layer 1.

# %%
LABELS = {
    "embedding_block": "embeddings",
    "attention_block": "attention block",
    "feed_forward_block": "feed-forward block",
    "pooler": "pooler, then 2 classes",
    "masked_lm_head": "masked-LM head, V scores",
}
figure, axes = plt.subplots(figsize=(8, 5.4))
trunk = [one for one in recorder.seen if one[0] not in ("pooler", "masked_lm_head")]
for height, (name, shape) in enumerate(trunk):
    colour = {"a": "C0", "f": "C1"}.get(name[0], "0.45")
    axes.barh(height, 3.0, left=-1.5, height=0.62, color=colour, alpha=0.25, edgecolor=colour)
    axes.text(0, height, LABELS[name], ha="center", va="center")
    axes.text(1.65, height, f"rows × H = {shape[0]} × {shape[1]}", va="center", fontsize=9)
    axes.annotate("", (0, height + 0.69), (0, height + 0.31), arrowprops={"arrowstyle": "->"})
top = len(trunk)
for left, name in ((-3.2, "masked_lm_head"), (0.2, "pooler")):
    axes.barh(top, 3.0, left=left, height=0.62, color="C2", alpha=0.25, edgecolor="C2", hatch="//", lw=0.8)
    axes.text(left + 1.5, top, LABELS[name], ha="center", va="center", backgroundcolor="white", fontsize=9)
axes.plot([-4.2, -4.2], [0, top], color="C3", lw=1.5, ls="--")
axes.annotate("", (-3.2, top), (-4.2, top), arrowprops={"arrowstyle": "->", "color": "C3", "ls": "--"})
axes.plot([-4.2, -1.5], [0, 0], color="C3", lw=1.5, ls="--")
axes.text(-4.35, top / 2, "the same table of pieces", rotation=90, ha="right", va="center", color="C3")
axes.text(-2.9, 1.5, "layer 0", ha="center", va="center")
axes.text(-2.9, 3.5, "layer 1", ha="center", va="center")
axes.set(xlim=(-4.9, 5), ylim=(-0.5, top + 0.5))
axes.set_axis_off()
course.show(
    figure,
    "The stack of a two-layer BERT from bottom to top: embeddings, then attention and feed-forward blocks "
    "twice, with 16 rows each but fewer in the last layer; at the top it forks into a masked-LM head and a "
    "pooler; a dashed line joins the table of pieces at the bottom with the masked-LM head.",
)

# %% [markdown]
# ## 2. A block's backward is its forward, read from the end
#
# Every layer block does the same three things: a branch $f$, an addition, a LayerNorm.
#
# $$ y = \mathrm{LN}\bigl(x + f(x)\bigr) $$
#
# The LayerNorm comes *after* the sum. That arrangement is called **post-norm**, and it is the paper's; many later
# models normalise inside the branch instead. Here is a whole layer, drawn by its data flow:

# %%
figure, axes = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
steps = (
    ("attention, all heads", "C0"), ("add, then LayerNorm", "0.45"),
    ("feed-forward, H → F → H", "C1"), ("add, then LayerNorm", "0.45"),
)  # fmt: skip
for height, (name, colour) in enumerate(steps):
    axes.barh(height, 3, left=-1.5, height=0.55, color=colour, alpha=0.25, edgecolor=colour)
    axes.text(0, height, name, ha="center", va="center")
for height in range(-1, len(steps)):
    axes.annotate("", (0, height + 0.72), (0, height + 0.28), arrowprops={"arrowstyle": "->"})
for begin in (0, 2):  # a shortcut leaves below a branch and ends at the sum above it
    axes.plot([0, 2.1, 2.1], [begin - 0.5, begin - 0.5, begin + 1], color="C3", lw=1.5)
    axes.annotate("", (1.5, begin + 1), (2.1, begin + 1), arrowprops={"arrowstyle": "->", "color": "C3"})
    axes.text(2.2, begin + 0.25, "x, unchanged", color="C3", rotation=90, va="center")
axes.set(xlim=(-2, 2.8), ylim=(-1, 4))
axes.set_axis_off()
course.show(
    figure,
    "One layer from bottom to top: attention, a sum with LayerNorm, feed-forward, a sum with LayerNorm. A red line "
    "leads round each of the two branches to the sum above it.",
)

# %% [markdown]
# To go back through a block, call the sum $s$ and write the derivatives as
# matrices. With $J_{LN}$ and $J_f$ the matrices of derivatives of the two functions (row by row for the feed-forward
# block; for attention read $x$ as the $TH$ numbers of all tokens together),
#
# $$ \frac{\partial y}{\partial x} = J_{LN}(s)\,\bigl(I + J_f(x)\bigr) . $$
#
# The $I$ is the residual path, and it is the whole point: what has come down to the sum $s$ reaches $x$ unchanged on
# one path and changed on the other, and **the two add up**. In code, that is one `+`, which is easy to forget. Let us
# see both sides of the formula, each measured with the complex step of chapter 05: the block on the left, the product
# on the right.

# %%
ops, one = Ops(), params.tree["layers"][0]["feed_forward"]
x_row = rng.standard_normal((1, config.H))


def branch(x):
    inner, _ = ops.linear(x, one["in_weight"], one["in_bias"])
    inner, _ = ops.gelu(inner, config.gelu_form)
    return ops.linear(inner, one["out_weight"], one["out_bias"])[0]


def norm(x):
    return ops.layer_norm(x, one["gamma"], one["beta"], config.layer_norm_eps)[0]


def jacobian(f, x):
    """Return dy_i / dx_j for a row x, a column for every direction."""
    return np.stack([complex_step(f, x, direction[None])[0] for direction in np.eye(x.shape[1])], axis=1)


J_block = jacobian(lambda x: ops.feed_forward_block(x, one, config, None, 0)[0], x_row)
J_branch, J_norm = jacobian(branch, x_row), jacobian(norm, x_row + branch(x_row))
identity = np.eye(config.H)
course.equal("block = LayerNorm after (identity + branch)", J_block, J_norm @ (identity + J_branch))

# %%
figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained")
shown = (
    ("$J_f$, the branch", J_branch),
    ("$I + J_f$", identity + J_branch),
    ("$J_{LN}$", J_norm),
    ("the block", J_block),
)
for ax, (title, matrix) in zip(axes, shown, strict=True):
    limit = np.abs(matrix).max()
    image = ax.imshow(matrix, cmap="PuOr", vmin=-limit, vmax=limit)
    ax.set(title=title, xticks=[], yticks=[], xlabel="$x_j$")
    figure.colorbar(image, ax=ax, shrink=0.75)
axes[0].set_ylabel("$y_i$")
course.show(
    figure,
    "Four 12 by 12 matrices of derivatives: the branch alone, the branch plus the identity with a clear diagonal, "
    "LayerNorm, and the product of the last two, which is the whole block.",
)

# %% [markdown]
# The rule for all that follows: **go through the lines of the forward from the last to the first, and replace
# each operation with its backward.** Where a value was used twice, its gradients add. Where an array of
# parameters was used, its gradient is added to an accumulator, so that several calls, or several parts of a
# batch, can share it. You will not need a new derivative in this chapter. What you need is the right order.
#
# Two small helpers of minibert's do the bookkeeping, and you may use them. Both call *your* backward and add the
# gradients of the parameters to `grads` under the right names:

# %%
course.source(Ops._linear_backward)
print()
course.source(Ops._norm_backward)

# %% [markdown]
# Dropout has two helpers as well. `self._dropout(x, drop, site)` returns the result and what to save (None if nothing
# is dropped), and `self._dropout_backward(dy, saved)` goes back. `site` is a number that says which dropout of the
# network this is: `layer_sites(layer)` returns the three of a layer, for the attention probabilities, the output of
# the attention block, and the output of the feed-forward block.
#
# `self.xp` is the array library of an engine. In yours it is NumPy, so `np.concatenate` does as well.
#
# What your blocks save are named tuples of minibert's, so that your half of a block works with minibert's other half.
# Their parts are what each operation inside has saved, under its name:

# %%
for kind in (PoolerSaved, FeedForwardBlockSaved, AttentionBlockSaved, MaskedLmLogitsSaved, MaskedLmHeadSaved):
    print(f"{kind.__name__}({', '.join(kind._fields)})")
print("dropout sites of layer 1:", layer_sites(1))

# %% [markdown]
# ### Exercise 07.1 (easy): the pooler
# Forward: take the rows `first_rows`, then a linear layer with `params["weight"]` and `params["bias"]`, then
# tanh. Save `PoolerSaved(rows, linear, tanh)`, whose three parts are what the three operations saved.
# Backward: return dx, with as many rows as x had, and the accumulators with the gradients added.


# %%
# Exercise 07.1
def pooler(self, x, first_rows, params):
    """Return tanh of the linear layer at the first rows, (S,H), and PoolerSaved(rows, linear, tanh)."""
    ...


def pooler_backward(self, dy, saved, params, grads):
    """Return dx (T,H) and grads, with those of "weight" and "bias" added."""
    ...


# %%
lesson.check(pooler)
lesson.check(pooler_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Every operation returns two things. `first, saved_rows = self.take_rows(x, first_rows)` is the first line.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Backward has three lines: tanh, then the linear layer with
# `self._linear_backward(dy, saved.linear, grads, "weight", "bias")`, then the rows are put back where they
# came from.
#
# </details>
# <details><summary>Solution 07.1</summary>
#
# ```python
# def pooler(self, x, first_rows, params):
#     first, saved_rows = self.take_rows(x, first_rows)
#     y, saved_linear = self.linear(first, params["weight"], params["bias"])
#     y, saved_tanh = self.tanh(y)
#     return y, PoolerSaved(saved_rows, saved_linear, saved_tanh)
#
#
# def pooler_backward(self, dy, saved, params, grads):
#     d_linear = self.tanh_backward(dy, saved.tanh)
#     d_first, grads = self._linear_backward(d_linear, saved.linear, grads, "weight", "bias")
#     return self.take_rows_backward(d_first, saved.rows), grads
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `d_linear = self.tanh_backward(dy, saved.tanh)` | `d_linear = dy` | The gradient has to go back through tanh first: it is the last operation of the forward. |
# | `self.take_rows_backward(d_first, saved.rows)` | `d_first` | dx has a row for every token, zeros where the pooler took nothing. |
# | `self.take_rows(x, first_rows)` | `self.take_rows(x, first_rows + 1)` | The pooler reads `[CLS]`, the first token of each sequence, not the one after it. |
# | `y, saved_tanh = self.tanh(y)` | `_, saved_tanh = self.tanh(y)` | The result is what comes out of tanh, not what went in. |
# | `params["weight"], params["bias"]` | `params["weight"].T, params["bias"]` | Weights are (inputs, outputs): the linear layer needs no transpose. |
# | `saved.linear, grads, "weight", "bias")` | `saved.linear, dict(grads, weight=0 * grads["weight"]), "weight", "bias")` | An accumulator is added to; what was in it stays. |
# | `self.tanh_backward(dy, saved.tanh)` | `dy * (1 - np.tanh(saved.tanh.y) ** 2)` | What tanh saved is y, which is tanh(x) already. |
# | `params["weight"], params["bias"]` | `params["weight"], 0 * params["bias"]` | The bias is missing. |
# | `self.take_rows(x, first_rows)` | `self.take_rows(x, np.minimum(np.asarray(first_rows) + 1, len(x) - 1))` | The pooler reads `[CLS]`, the first token of each sequence, not the one after it. |
#
# </details>

# %% [markdown]
# ### Exercise 07.2 (core): the feed-forward block
# $y = \mathrm{LN}\bigl(x + \mathrm{dropout}(\mathrm{gelu}(x W_1 + b_1)\, W_2 + b_2)\bigr)$. The parameters are "in_weight",
# "in_bias", "out_weight", "out_bias", "gamma" and "beta"; `config.gelu_form` and `config.layer_norm_eps` say which
# GELU and which eps. Save `FeedForwardBlockSaved(inner, gelu, output, dropout, norm)`, one part for each
# operation. The backward gets `config` as well, because the backward of GELU asks for its form.


# %%
# Exercise 07.2
def feed_forward_block(self, x, params, config, drop, layer):
    """Return LN(x + dropout(gelu(x W1 + b1) W2 + b2)), and FeedForwardBlockSaved(inner, gelu, output, dropout, norm)."""
    ...


def feed_forward_block_backward(self, dy, saved, params, grads, config):
    """Return dx (T,H) and grads, with those of six parameters added."""
    ...


# %%
lesson.check(feed_forward_block)
lesson.check(feed_forward_block_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The forward is six lines, one for each operation and one for the addition, which can go inside the last. The
# backward is the same six lines from the end. `self._norm_backward(dy, saved.norm, grads)` is the first.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The sum $s = x + f(x)$ has a gradient; call it `d_sum`. It goes down both paths: through the branch it becomes `dx`,
# and the residual path hands it on as it is. The backward returns `d_sum + dx`.
#
# </details>
# <details><summary>Solution 07.2</summary>
#
# ```python
# def feed_forward_block(self, x, params, config, drop, layer):
#     _, _, site = layer_sites(layer)
#     inner, saved_inner = self.linear(x, params["in_weight"], params["in_bias"])
#     inner, saved_gelu = self.gelu(inner, config.gelu_form)
#     out, saved_out = self.linear(inner, params["out_weight"], params["out_bias"])
#     out, saved_drop = self._dropout(out, drop, site)
#     y, saved_norm = self.layer_norm(x + out, params["gamma"], params["beta"], config.layer_norm_eps)
#     return y, FeedForwardBlockSaved(saved_inner, saved_gelu, saved_out, saved_drop, saved_norm)
#
#
# def feed_forward_block_backward(self, dy, saved, params, grads, config):
#     d_sum, grads = self._norm_backward(dy, saved.norm, grads)
#     d_out = self._dropout_backward(d_sum, saved.dropout)
#     d_inner, grads = self._linear_backward(d_out, saved.output, grads, "out_weight", "out_bias")
#     d_inner = self.gelu_backward(d_inner, saved.gelu, config.gelu_form)
#     dx, grads = self._linear_backward(d_inner, saved.inner, grads, "in_weight", "in_bias")
#     return d_sum + dx, grads
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `return d_sum + dx, grads` | `return dx, grads` | x is used twice, in the branch and in the sum. The gradient of the residual path is missing. |
# | `return d_sum + dx, grads` | `return dy + dx, grads` | The residual path begins below the LayerNorm: what goes down it is the gradient of the sum, not dy. |
# | `return d_sum + dx, grads` | `return d_out + dx, grads` | Dropout is in the branch alone; the residual path does not go through its mask. |
# | `d_inner = self.gelu_backward(d_inner, saved.gelu, config.gelu_form)` | `pass` | The gradient has to go back through GELU, too. |
# | `saved.gelu, config.gelu_form` | `saved.gelu, "erf"` | config says which of the two forms of GELU is meant. |
# | `d_out = self._dropout_backward(d_sum, saved.dropout)` | `d_out = d_sum` | Dropout multiplies by the same mask on the way back. |
# | `_, _, site = layer_sites(layer)` | `_, site, _ = layer_sites(layer)` | That is the site of the attention output: the wrong random bits. |
# | `self.layer_norm(x + out,` | `self.layer_norm(out,` | The residual connection is missing: LayerNorm reads the sum of x and the branch. |
# | `x + out, params["gamma"], params["beta"]` | `x + out, params["beta"], params["gamma"]` | gamma multiplies and beta is added; here they are swapped. |
# | `inner, saved_inner = self.linear(x, params["in_weight"], params["in_bias"])` | `normed, saved_norm = self.layer_norm(x, params["gamma"], params["beta"], config.layer_norm_eps); inner, saved_inner = self.linear(normed, params["in_weight"], params["in_bias"]); inner, saved_gelu = self.gelu(inner, config.gelu_form); out, saved_out = self.linear(inner, params["out_weight"], params["out_bias"]); out, saved_drop = self._dropout(out, drop, site); return x + out, FeedForwardBlockSaved(saved_inner, saved_gelu, saved_out, saved_drop, saved_norm)` | LayerNorm comes after the sum, as in the paper, and not before the branch. |
# | `config.layer_norm_eps` | `1e-5` | config says what eps is. |
# | `out, saved_drop = self._dropout(out, drop, site)` | `out, saved_drop = self._dropout(x + out, drop, site); x = 0` | Dropout is in the branch alone; x is added after it. |
# | `out, saved_drop = self._dropout(out, drop, site)` | `saved_drop = None` | Dropout is missing: it comes between the second linear layer and the sum. |
# | `self.gelu(inner, config.gelu_form)` | `self.gelu(inner, "erf")` | config says which of the two forms of GELU is meant. |
#
# </details>

# %% [markdown]
# ## 3. The attention block
#
# The frame is the same, but the branch is different: project every token to a query, a key and a value, attend, project
# back. There are three projections, and they read the same rows, so nothing keeps us from doing them as one. Put the
# three matrices side by side, and one product gives all three results side by side:
#
# $$ x\,[\,W_Q \mid W_K \mid W_V\,] = [\,xW_Q \mid xW_K \mid xW_V\,] $$

# %%
weight = params["layers.0.attention.qkv_weight"]  # (H, 3H)
x = rng.standard_normal((batch.T, config.H))
course.equal(
    "one product, or three side by side",
    x @ weight,
    np.concatenate([x @ part for part in np.split(weight, 3, axis=1)], axis=1),
)
qkv = (x @ weight).reshape(batch.T, 3, config.A, config.D)
course.equal(
    "the second head's keys", qkv[:, 1, 1], x @ weight[:, config.H + config.D : config.H + 2 * config.D]
)

# %% [markdown]
# So rows of $3H$ numbers become $(T, 3, A, D)$: first query, key or value, then the head, then the place within the
# head. On the way back the three gradients are laid side by side again, in the same order.
#
# The argument `rows` is what made the last layer cheaper above. If given, only those rows of attention's output (the
# context) go on, and only those rows of $x$ enter the sum. On the way back, both gradients, that of the context and
# that of the residual path, are put back among zeros before they go on.
#
# ### Exercise 07.3 (hard): the attention block
# The parameters are "qkv_weight", "qkv_bias", "output_weight", "output_bias", "gamma", "beta". Call
# `self.attention(q, k, v, cu_seqlens, config.is_decoder, drop, site)`, where `is_decoder` is True for causal attention.
# Attention always gets the whole `drop`, for it sees all tokens. The dropout after it sees only the rows asked for: if
# `rows` is given and `drop` is not None, it gets `drop.at(rows)`. Save
# `AttentionBlockSaved(qkv, attention, rows, output, dropout, norm)`, where `rows` is what `take_rows` saved
# when it took them from the context, or None.


# %%
# Exercise 07.3
def attention_block(self, x, params, cu_seqlens, config, drop, layer, rows=None):
    """Return LN(x + dropout(output(attention))), all rows or those asked for, and AttentionBlockSaved(...)."""
    ...


def attention_block_backward(self, dy, saved, params, grads):
    """Return dx (T,H), even where dy has fewer rows, and grads with six gradients added."""
    ...


# %%
lesson.check(attention_block)
lesson.check(attention_block_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `q, k, v = qkv.reshape(T, 3, config.A, config.D).swapaxes(0, 1)` cuts the projections apart, each (T, A, D). The
# context comes back as (T, A, D), and `context.reshape(T, H)` lays the heads side by side.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Where rows were taken, two gradients have too few rows on the way back: `d_context`, from the output projection, and
# `d_sum`, on the residual path. Both go through `self.take_rows_backward(…, saved.rows)`. Attention's backward wants
# (T, A, D), the shape of the queries it saved, `saved.attention.q.shape`. After it,
# `self.xp.concatenate([d.reshape(T, H) for d in (dq, dk, dv)], axis=1)` is the gradient of the projections.
#
# </details>
# <details><summary>Solution 07.3</summary>
#
# ```python
# def attention_block(self, x, params, cu_seqlens, config, drop, layer, rows=None):
#     probability_site, output_site, _ = layer_sites(layer)
#     T, H = x.shape
#     qkv, saved_qkv = self.linear(x, params["qkv_weight"], params["qkv_bias"])
#     q, k, v = qkv.reshape(T, 3, config.A, config.D).swapaxes(0, 1)
#     context, saved_attention = self.attention(q, k, v, cu_seqlens, config.is_decoder, drop, probability_site)
#     context, saved_rows = context.reshape(T, H), None
#     if rows is not None:
#         context, saved_rows = self.take_rows(context, rows)
#         x, _ = self.take_rows(x, rows)
#         drop = None if drop is None else drop.at(rows)
#     out, saved_out = self.linear(context, params["output_weight"], params["output_bias"])
#     out, saved_drop = self._dropout(out, drop, output_site)
#     y, saved_norm = self.layer_norm(x + out, params["gamma"], params["beta"], config.layer_norm_eps)
#     return y, AttentionBlockSaved(saved_qkv, saved_attention, saved_rows, saved_out, saved_drop, saved_norm)
#
#
# def attention_block_backward(self, dy, saved, params, grads):
#     d_sum, grads = self._norm_backward(dy, saved.norm, grads)
#     d_out = self._dropout_backward(d_sum, saved.dropout)
#     d_context, grads = self._linear_backward(d_out, saved.output, grads, "output_weight", "output_bias")
#     if saved.rows is not None:
#         d_context = self.take_rows_backward(d_context, saved.rows)
#         d_sum = self.take_rows_backward(d_sum, saved.rows)
#     T, H = d_context.shape
#     dq, dk, dv = self.attention_backward(d_context.reshape(saved.attention.q.shape), saved.attention)
#     d_qkv = self.xp.concatenate([d.reshape(T, H) for d in (dq, dk, dv)], axis=1)
#     dx, grads = self._linear_backward(d_qkv, saved.qkv, grads, "qkv_weight", "qkv_bias")
#     return d_sum + dx, grads
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `return d_sum + dx, grads` | `return dx, grads` | x is used twice, in the branch and in the sum. The gradient of the residual path is missing. |
# | `for d in (dq, dk, dv)` | `for d in (dk, dq, dv)` | The order of queries, keys and values is that of the forward; here two are swapped. |
# | `.reshape(T, 3, config.A, config.D).swapaxes(0, 1)` | `.reshape(T, config.A, 3, config.D).swapaxes(1, 2).swapaxes(0, 1)` | The matrix has all queries first, then all keys, then all values; not a query, a key and a value head by head. |
# | `return d_sum + dx, grads` | `return d_out + dx, grads` | Dropout is in the branch alone; the residual path does not go through its mask. |
# | `drop = None if drop is None else drop.at(rows)` | `drop = None if drop is None else drop.at(rows[::-1])` | Dropout's bits belong to tokens: a row keeps its own, wherever it ends up. |
# | `config.is_decoder, drop, probability_site` | `False, drop, probability_site` | config.is_decoder says whether a token may see those after it. |
# | `drop, probability_site)` | `drop, output_site)` | Each of a layer's three dropouts has a site of its own; the probabilities have the first. |
# | `self.layer_norm(x + out,` | `self.layer_norm(out,` | The residual connection is missing: LayerNorm reads the sum of x and the branch. |
# | `self.attention(q, k, v,` | `self.attention(q, v, k,` | Keys and values are swapped: the second third of the product is the keys. |
# | `probability_site, output_site, _ =` | `output_site, probability_site, _ =` | The sites are swapped: the first of a layer is that of the probabilities, the second that of the output. |
# | `probability_site, output_site, _ =` | `probability_site, _, output_site =` | The third site of a layer belongs to the feed-forward block; the attention output has the second. |
# | `x, _ = self.take_rows(x, rows)` | `x = x[: len(rows)]` | The residual path needs the rows of x that were asked for, not the first ones. |
# | `d_sum = self.take_rows_backward(d_sum, saved.rows)` | `d_sum = np.concatenate([d_sum, np.zeros((len(d_context) - len(d_sum), d_sum.shape[1]), d_sum.dtype)])` | The gradient of each row goes back to the place that the row was taken from, not to the beginning. |
# | `d_out = self._dropout_backward(d_sum, saved.dropout)` | `d_out = d_sum` | Dropout multiplies by the same mask on the way back. |
# | `self.xp.concatenate([d.reshape(T, H) for d in (dq, dk, dv)], axis=1)` | `np.stack([dq, dk, dv], axis=2).reshape(T, 3 * H)` | The matrix has all queries first, then all keys, then all values; so have the gradients side by side. |
# | `return d_sum + dx, grads` | `return d_sum + d_sum + dx, grads` | The residual path is counted twice. |
#
# </details>

# %% [markdown]
# ## 4. The masked-LM head and a table that is used twice
#
# Above the last layer, each masked piece's vector goes through a linear layer, GELU and LayerNorm, and is then compared
# with *the table of pieces itself*: the score of piece $v$ is the inner product with row $v$ of the word table, plus a
# bias. This is the tied embedding of chapter 06. It saves $VH$ parameters, and it makes the word table
# the one tensor of BERT with two gradients:
#
# $$ \frac{\partial \mathcal{L}}{\partial E} =
#    \underbrace{\sum_m \delta_m\, h_m^{\mathsf T}}_{\text{as the output layer}} +
#    \underbrace{\sum_t e_{\mathrm{id}(t)}\, \mathrm{d}x_t^{\mathsf T}}_{\text{as the input}},
#    \qquad \delta_m = w_m \bigl(\mathrm{softmax}(z_m) - e_{\mathrm{label}(m)}\bigr) $$
#
# where $e_v$ has a one at $v$ and zeros elsewhere, $h_m$ is the vector that leaves the head's LayerNorm at masked piece
# $m$, $z_m = E\,h_m + b$ are its $V$ scores, $w_m$ is its weight in the loss, and $\mathrm dx_t$ is the gradient that
# reaches the sum of the three embeddings at token $t$. All vectors here are columns.

# %%
guess = lesson.predict(
    "A batch of 16 tokens over a vocabulary of 41: how many rows of the word table get a gradient that is not zero?",
    ...,
)


# %%
def gradients(engine, params=params, batch=batch, config=config):
    """Return the gradients of the pre-training loss, computed by an engine's forward and backward."""
    grads = params.zeros_like()
    _, saved = bert.pretraining_loss(engine, config, params.tree, batch)
    bert.pretraining_loss_backward(engine, config, saved, params.tree, grads.tree)
    return grads


class OutputOnly(Ops):
    """The reference, but nothing comes back into the word table from the embeddings."""

    def embedding_backward(self, dy, saved, dtable):
        return dtable


whole, as_output = gradients(Ops())["embeddings.word"], gradients(OutputOnly())["embeddings.word"]
as_input = whole - as_output
used = np.unique(batch.input_ids)
guess.answer(
    int((np.abs(whole).sum(1) > 0).sum()), "all of them, because the output layer scores every piece."
)
course.equal(
    "unused rows have the gradient of the output alone",
    np.delete(whole, used, 0),
    np.delete(as_output, used, 0),
)

# %% [markdown]
# The two sums could hardly be more different. The second touches only pieces that occur in the batch. The first touches
# *every* row: each piece that was not the answer is pushed away a little, in proportion to the probability it was
# given.

# %%
figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
order = np.argsort(-np.bincount(batch.input_ids, minlength=config.V), kind="stable")
for part, marker, label in ((as_output, "o", "as the output layer"), (as_input, "x", "as the input")):
    length = np.linalg.norm(part, axis=1)[order]
    axes.semilogy(np.flatnonzero(length), length[length > 0], marker, label=label)
axes.set(
    xlabel="piece, those of the batch first",
    ylabel="length of its gradient",
    title="One table, two gradients",
)
axes.axvline(len(used) - 0.5, color="0.5", ls=":")
axes.legend()
course.show(
    figure,
    "Lengths of the gradient of every row of the word table: circles, from the output layer, for all 41 pieces; "
    "crosses, from the input, only for those left of a dotted line, which occur in the batch.",
)

# %% [markdown]
# ### Exercise 07.4 (hard): the masked-LM head
# Three functions. `masked_lm_logits` takes `rows` of x, then a linear layer ("weight", "bias"), GELU,
# LayerNorm ("gamma", "beta"), and the scores against `table` (V,H) with "output_bias"; it saves
# `MaskedLmLogitsSaved(rows, linear, gelu, norm, decoder)`, `decoder` being what `self.linear` saves when it
# scores with `table.T`. `masked_lm_head` turns scores into losses with `self.softmax_cross_entropy` and saves
# `MaskedLmHeadSaved(logits, loss)`: `logits` is what `masked_lm_logits` saved, and `loss` what the cross-entropy saved. Its
# backward adds the gradient of the table to `dtable` with
# `self.accumulate(dtable, …)`, which returns the accumulator.


# %%
# Exercise 07.4
def masked_lm_logits(self, x, rows, params, table, config):
    """Return scores (M,V) at some rows, and MaskedLmLogitsSaved(rows, linear, gelu, norm, decoder)."""
    ...


def masked_lm_head(self, x, rows, labels, params, table, config):
    """Return (losses (M,), highest scoring piece (M,)), and MaskedLmHeadSaved(logits, loss)."""
    ...


def masked_lm_head_backward(self, dnll, saved, params, grads, dtable, config):
    """Return dx (T,H), grads with five gradients added, and dtable (V,H) with the table's own added."""
    ...


# %%
def draw_scores(rng):
    T, H, V, M = 7, 6, 13, 4
    shapes = {"weight": (H, H), "bias": (H,), "gamma": (H,), "beta": (H,), "output_bias": (V,)}
    own = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    form = rng.choice(["gelu", "gelu_new"])
    return (
        rng.standard_normal((T, H)), rng.permutation(T)[:M], own, rng.standard_normal((V, H)),
        BertConfig.from_size("1-6-2", vocab_size=V, hidden_act=str(form), layer_norm_eps=0.1),
    )  # fmt: skip


def scores_hold(answer, x, rows, params, table, config):
    """Compute the scores of every row and piece one by one."""
    ops, (scores, saved) = Ops(), answer
    if not isinstance(saved, MaskedLmLogitsSaved):
        return f"it saves a {type(saved).__name__}; expected MaskedLmLogitsSaved."
    if missing := [name for name, one in zip(saved._fields, saved, strict=True) if one is None]:
        return f"nothing is saved for {', '.join(missing)}."
    if np.shape(scores) != (len(rows), len(table)):
        return f"the scores have the shape {np.shape(scores)}; expected (M,V) = {(len(rows), len(table))}."
    for m, row in enumerate(rows):
        h, _ = ops.gelu(x[[row]] @ params["weight"] + params["bias"], config.gelu_form)
        h, _ = ops.layer_norm(h, params["gamma"], params["beta"], config.layer_norm_eps)
        for v, entry in enumerate(table):
            right = h[0] @ entry + params["output_bias"][v]
            if not abs(scores[m, v] - right) <= 1e-12 * (1 + abs(right)):
                return (
                    f"the score of piece {v} at hidden place {m} is {scores[m, v]:.7g}; expected {right:.7g}."
                )
    return None


lesson.check(masked_lm_logits, draw=draw_scores, law=scores_hold)
lesson.check(masked_lm_head)
lesson.check(masked_lm_head_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The scores are one more linear layer: its weight is `table.T`, its bias `params["output_bias"]`. The index of the
# highest score is `logits.real.argmax(-1)`; `.real`, because the judge sends complex numbers through.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `self.linear_backward(dlogits, saved.logits.decoder)` returns three gradients. The second is that of `table.T`, so
# its transpose is added to `dtable`. The third is added to `grads["output_bias"]`:
# `grads = grads | {"output_bias": self.accumulate(grads["output_bias"], dbias)}`.
#
# </details>
# <details><summary>Solution 07.4</summary>
#
# ```python
# def masked_lm_logits(self, x, rows, params, table, config):
#     x, saved_rows = self.take_rows(x, rows)
#     x, saved_linear = self.linear(x, params["weight"], params["bias"])
#     x, saved_gelu = self.gelu(x, config.gelu_form)
#     x, saved_norm = self.layer_norm(x, params["gamma"], params["beta"], config.layer_norm_eps)
#     logits, saved_decoder = self.linear(x, table.T, params["output_bias"])
#     return logits, MaskedLmLogitsSaved(saved_rows, saved_linear, saved_gelu, saved_norm, saved_decoder)
#
#
# def masked_lm_head(self, x, rows, labels, params, table, config):
#     logits, saved_logits = self.masked_lm_logits(x, rows, params, table, config)
#     nll, saved_loss = self.softmax_cross_entropy(logits, labels)
#     return (nll, logits.real.argmax(-1)), MaskedLmHeadSaved(saved_logits, saved_loss)
#
#
# def masked_lm_head_backward(self, dnll, saved, params, grads, dtable, config):
#     dlogits = self.softmax_cross_entropy_backward(dnll, saved.loss)
#     dx, d_transposed, dbias = self.linear_backward(dlogits, saved.logits.decoder)
#     dtable = self.accumulate(dtable, d_transposed.T)
#     grads = grads | {"output_bias": self.accumulate(grads["output_bias"], dbias)}
#     dx, grads = self._norm_backward(dx, saved.logits.norm, grads)
#     dx = self.gelu_backward(dx, saved.logits.gelu, config.gelu_form)
#     dx, grads = self._linear_backward(dx, saved.logits.linear, grads, "weight", "bias")
#     return self.take_rows_backward(dx, saved.logits.rows), grads, dtable
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `dtable = self.accumulate(dtable, d_transposed.T)` | `dtable = self.accumulate(0 * dtable, d_transposed.T)` | The table's accumulator already holds the gradient of its other use; add to it. |
# | `dtable = self.accumulate(dtable, d_transposed.T)` | `pass` | The table gets a gradient as the output layer, too: it is used twice. |
# | `{"output_bias": self.accumulate(grads["output_bias"], dbias)}` | `{"output_bias": grads["output_bias"]}` | The output bias is a parameter, and its gradient is missing. |
# | `dx = self.gelu_backward(dx, saved.logits.gelu, config.gelu_form)` | `pass` | The gradient has to go back through GELU between LayerNorm and the linear layer. |
# | `self.take_rows_backward(dx, saved.logits.rows), grads` | `dx, grads` | dx has a row for every token, zeros where nothing was hidden. |
# | `self.linear(x, table.T, params["output_bias"])` | `self.linear(x, table.T, 0 * params["output_bias"])` | The scores have a bias for every piece. |
# | `logits.real.argmax(-1)` | `logits.real.argmax(0)` | The prediction is the piece with the highest score in each row, along the vocabulary. |
# | `x, saved_rows = self.take_rows(x, rows)` | `x, saved_rows = self.take_rows(x, np.arange(len(rows)))` | The head reads the rows that were asked for, not the first ones. |
# | `x, saved_norm = self.layer_norm(x, params["gamma"]` | `_, saved_norm = self.layer_norm(x, params["gamma"]` | What goes on to the scores is what comes out of LayerNorm. |
# | `x, saved_gelu = self.gelu(x, config.gelu_form)` | `x, saved_norm = self.layer_norm(x, params["gamma"], params["beta"], config.layer_norm_eps); x, saved_gelu = self.gelu(x, config.gelu_form); logits, saved_decoder = self.linear(x, table.T, params["output_bias"]); return logits, MaskedLmLogitsSaved(saved_rows, saved_linear, saved_gelu, saved_norm, saved_decoder)` | GELU comes first, then LayerNorm. |
# | `self.gelu(x, config.gelu_form)` | `self.gelu(x, "erf")` | config says which of the two forms of GELU is meant. |
# | `logits.real.argmax(-1)` | `logits.real.max(-1)` | The number of the piece is asked for, not its score. |
# | `logits.real.argmax(-1)` | `np.asarray(labels)` | The prediction is the model's own, the piece with the highest score; it does not know the label. |
# | `logits.real.argmax(-1)` | `logits.real.argmin(-1)` | The piece with the highest score is predicted, not the one with the lowest. |
# | `dx, grads = self._norm_backward(dx, saved.logits.norm, grads)` | `_, grads = self._norm_backward(dx, saved.logits.norm, grads)` | The gradient has to go back through LayerNorm: what goes on is its dx. |
#
# </details>

# %% [markdown]
# ## 5. The whole loss, proved tensor by tensor
#
# With the blocks written, the model fits on a page. This is the code that ran above; you know every word of it now.

# %%
course.source(bert.pretraining_loss_backward)

# %% [markdown]
# Now the judge of chapter 05 looks at all of it at once, with your engine. For each tensor of parameters it draws a
# random direction, steps into the complex plane along it, and compares the derivative with your gradient. The
# loss is that of three sequences with both questions, masked pieces and next sentence.

# %%
engine = lesson.engine()


def exact_slopes(params=params, batch=batch, config=config, seed=0):
    """Return a random direction for every tensor, and the derivative of the loss along it."""
    rng, found = np.random.default_rng(seed), {}
    for name, value in params.items():
        v = rng.standard_normal(value.shape)

        def loss_at(moved, name=name):
            other = params.astype(np.complex128)
            other[name][...] = moved
            return bert.pretraining_loss(Ops(), config, other.tree, batch)[0].loss

        found[name] = v, complex_step(loss_at, value, v)
    return found


slopes = exact_slopes()


def tensor_errors(engine):
    """Return for each tensor how far its gradient is from the complex step, relative, in forward order."""
    grads, found = gradients(engine), {}
    for name, (v, exact) in slopes.items():
        size = np.linalg.norm(grads[name]) * np.linalg.norm(v)
        found[name] = abs(float((grads[name] * v).sum()) - exact) / max(size, abs(exact))
    return found


errors = tensor_errors(engine)
course.say(
    f"The loss of this batch is {loss.loss:.4f} nats. The model has {len(errors)} tensors of parameters, and "
    f"the largest error among their gradients is {max(errors.values()):.0e}."
)

# %%
figure, axes = plt.subplots(figsize=(11, 3), layout="constrained")
axes.semilogy(range(len(errors)), np.maximum(list(errors.values()), 1e-18), "o", ms=5)
axes.axhline(1e-10, color="C1", ls="--", label="allowed for sixty operations in a row")
axes.set(
    ylabel="relative error",
    ylim=(1e-19, 1e-8),
    title="Every tensor of BERT, hand-written gradient against complex step",
)
axes.set_xticks(range(len(errors)), list(errors), rotation=90, fontsize=6)
axes.legend(loc="upper right")
course.show(
    figure,
    "Relative error of the gradient of each tensor on a log scale: all points lie between 1e-19 and 1e-13, far below "
    "the dashed bound at 1e-10.",
)

# %% [markdown]
# ## 6. Counting to 109,482,240
#
# The paper says "110M parameters" for BERT-BASE and "340M" for BERT-LARGE. With what you have written, you can do
# better than two digits. Embeddings are three tables and a LayerNorm. A layer has its matrices, $3H^2$ for the
# projections, $H^2$ for the output, $2 \cdot 4H^2$ for the feed-forward block if $F = 4H$, and then the small change:
# biases and LayerNorms. The pooler has $H^2 + H$.
#
# $$ N = \underbrace{(V + P + 2)H + 2H}_{\text{embeddings}}
#      + L\,\underbrace{(12H^2 + 13H)}_{\text{a layer}}
#      + \underbrace{H^2 + H}_{\text{pooler}} $$

# %%
guess = lesson.predict(
    "Which of these holds the most parameters in BERT-BASE?", ...,
    choices=["embeddings", "attention blocks", "feed-forward blocks"],
)  # fmt: skip

# %% [markdown]
# ### Exercise 07.5 (easy): count them
# Write the count for any sizes, with $F$ free instead of $4H$. Embeddings, layers and pooler, without the two heads of
# pre-training: that is what the published numbers mean.


# %%
# Exercise 07.5
def count_parameters(L, H, F, V, P):
    """Return the number of parameters of embeddings, L layers and pooler, as a whole number."""
    ...


# %%
def draw_sizes(rng):
    A, D = (int(n) for n in rng.integers(2, 9, size=2))
    return tuple(int(n) for n in (rng.integers(1, 9), A * D, *rng.integers(11, 999, size=3)))


def counted(L, H, F, V, P):
    """Build the table of parameters, and sum it."""
    shape = {"num_hidden_layers": L, "hidden_size": H, "num_attention_heads": 1, "intermediate_size": F}
    config = BertConfig(vocab_size=V, max_position_embeddings=P, **shape)
    return Parameters(config, dtype=np.uint8).count("embeddings.", "layers.", "pooler.")


def is_whole(count, *_):
    """Refuse a count that only looks like a whole number."""
    if isinstance(count, int | np.integer):
        return None
    return f"the count is {count!r}, of the type {type(count).__name__}; give whole numbers."


lesson.check(count_parameters, draw=draw_sizes, same_as=counted, law=is_whole)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A linear layer from $a$ to $b$ numbers has $ab + b$ parameters, a LayerNorm has $2H$. Write down the four
# linear layers and two LayerNorms of a layer one by one.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Layer: $(3H^2 + 3H) + (H^2 + H) + (HF + F) + (FH + H) + 4H$.
#
# </details>
# <details><summary>Solution 07.5</summary>
#
# ```python
# def count_parameters(L, H, F, V, P):
#     embeddings = (V + P + 2) * H + 2 * H
#     attention = (3 * H * H + 3 * H) + (H * H + H) + 2 * H
#     feed_forward = (H * F + F) + (F * H + H) + 2 * H
#     return embeddings + L * (attention + feed_forward) + H * H + H
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `(V + P + 2) * H + 2 * H` | `(V + P + 2) * H` | The embeddings lack 2H: a third table, with a row for each of the two segments, or the LayerNorm at their end, gamma and beta. |
# | `(V + P + 2) * H + 2 * H` | `(V + P) * H` | The embeddings lack 4H: a third table, with a row for each of the two segments, and the LayerNorm at their end. |
# | `(3 * H * H + 3 * H)` | `(3 * H * H)` | The projections to queries, keys and values have biases. |
# | `(H * F + F)` | `(H * F + H)` | A bias is as wide as what the layer puts out: the inner one has F numbers. |
# | `(F * H + H) + 2 * H` | `(F * H + H)` | Each block ends with a LayerNorm of its own. |
# | `L * (attention + feed_forward)` | `L * attention + feed_forward` | Every layer has both blocks. |
# | `(attention + feed_forward) + H * H + H` | `(attention + feed_forward)` | The pooler is a linear layer of its own. |
# | `(H * F + F) + (F * H + H)` | `(H * 4 * H + 4 * H) + (4 * H * H + H)` | F is free: it need not be 4H. |
#
# </details>

# %%
sizes = {name: BertConfig.from_size(name) for name in ("tiny", "mini", "small", "medium", "base", "large")}
tables = {name: Parameters(one, dtype=np.uint8) for name, one in sizes.items()}
PARTS = {
    "embeddings": lambda name: name.startswith("embeddings."),
    "attention blocks": lambda name: ".attention." in name,
    "feed-forward blocks": lambda name: ".feed_forward." in name,
    "pooler": lambda name: name.startswith("pooler."),
}
parts = {
    size: {
        part: sum(entry.size for entry in table.table if belongs(entry.name))
        for part, belongs in PARTS.items()
    }
    for size, table in tables.items()
}
for size in ("base", "large"):
    c = sizes[size]
    N = (c.V + c.P + 2) * c.H + 2 * c.H + c.L * (12 * c.H**2 + 13 * c.H) + c.H**2 + c.H
    course.equal(f"the formula and the table of {size}, {N:,}", N, sum(parts[size].values()))
course.equal("BERT-BASE", sum(parts["base"].values()), 109_482_240)
course.equal("BERT-LARGE", sum(parts["large"].values()), 335_141_888)
guess.answer(
    max(parts["base"], key=parts["base"].get),
    f"{parts['base']['feed-forward blocks'] / sum(parts['base'].values()):.0%} of them all, twice as much as attention.",
)
heads = tables["base"].count("mlm.", "nsp.")
course.say(
    f"Pre-training adds {heads:,} in its two heads, {heads / tables['base'].count():.1%} of the whole. Were "
    f"the output layer not tied to the word table, it would add another {sizes['base'].V * sizes['base'].H:,}."
)

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 3.4), layout="constrained")
begin = np.zeros(len(sizes))
for part, hatch in zip(PARTS, ("", "//", "..", "xx"), strict=True):
    share = np.array([parts[size][part] / sum(parts[size].values()) for size in sizes])
    axes[0].bar(list(sizes), share, bottom=begin, hatch=hatch, edgecolor="white", label=part)
    begin += share
axes[0].set(title="Where the parameters are", ylabel="share")
axes[0].legend(fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.1), handlelength=1)
for size, marker in zip(sizes, "os^vDP", strict=True):
    c = sizes[size]
    lengths = np.array([128])
    layers = 3 * c.L * layer_operations(c, lengths)
    whole = step_operations(c, lengths, np.array([20]))
    axes[1].loglog(sum(parts[size].values()), whole, marker, color="C0", ms=8)
    axes[1].annotate(
        size, (sum(parts[size].values()), whole), (6, -9), textcoords="offset points", fontsize=8
    )
grid = np.logspace(6.4, 8.7, 20)
axes[1].loglog(grid, 6 * 128 * grid, "--", color="0.5", label="6 operations × parameters × tokens")
axes[1].set(title="Operations of one training step, 128 tokens", xlabel="parameters", ylabel="operations")
axes[1].legend(fontsize=8)
course.show(
    figure,
    "Left: shares of embeddings, attention blocks, feed-forward blocks and pooler in six sizes of BERT; embeddings "
    "make up most of the tiny one and a tenth of the large one. Right: operations of a training step against "
    "parameters, near a dashed line of six operations for each parameter and token, below it for the small "
    "sizes.",
)

# %% [markdown]
# Two rules of thumb follow. In the tiny size nearly everything is table: there, the vocabulary is the model.
# And a training step costs about six operations for each parameter and token: a multiplication and an
# addition forward, and twice that backward, because each product needs two products to go back, one for each
# factor. The small models fall below the line, since looking up a row is free.
#
# ## 7. What the residual path is for
#
# What would happen without the $I$ in $I + J_f$? Build the same network, with the same initial weights, but let every
# block return $\mathrm{LN}(f(x))$. Watch what happens to *different* tokens of a text on their way up: we take the
# cosine between the vectors of two tokens, averaged over all pairs of a sequence. At 0 they point in unrelated
# directions; at 1 they are the same vector, and no head on top can tell them apart.


# %%
class NoResidual(Ops):
    """The reference without residual connections: LN(f(x)) in place of LN(x + f(x))."""

    def attention_block(self, x, params, cu_seqlens, config, drop, layer, rows=None):
        (T, H), eps = x.shape, config.layer_norm_eps
        qkv, _ = self.linear(x, params["qkv_weight"], params["qkv_bias"])
        q, k, v = qkv.reshape(T, 3, config.A, config.D).swapaxes(0, 1)
        context, _ = self.attention(q, k, v, cu_seqlens)
        out, _ = self.linear(context.reshape(T, H), params["output_weight"], params["output_bias"])
        return self.layer_norm(out, params["gamma"], params["beta"], eps)

    def feed_forward_block(self, x, params, config, drop, layer):
        inner, _ = self.linear(x, params["in_weight"], params["in_bias"])
        out, _ = self.linear(self.gelu(inner, config.gelu_form)[0], params["out_weight"], params["out_bias"])
        return self.layer_norm(out, params["gamma"], params["beta"], config.layer_norm_eps)


many = random_batch(Size((24,) * 6, H=96, A=4, F=384, V=300, M=30), 30, np.random.default_rng(3))


def deep_bert(spread):
    """Return twelve narrow, untrained layers whose weights have this standard deviation."""
    config = BertConfig.from_size(
        "12-96-4", vocab_size=300, max_position_embeddings=32, initializer_range=spread
    )
    return config, initialise(config, seed=1, dtype=np.float64)


def likeness(engine, config, initial):
    """Return the mean cosine between tokens of a sequence, after the embeddings and every layer."""
    found = []
    for state in bert.hidden_states(engine, config, tuple(range(config.L + 1)), initial.tree, many):
        unit = state / np.linalg.norm(state, axis=1, keepdims=True)
        pairs = np.einsum("sih,sjh->sij", *2 * [unit.reshape(6, 24, -1)])
        found.append(pairs[:, ~np.eye(24, dtype=bool)].mean())
    return np.array(found)


def layer_gradients(config, initial):
    """Return the length of the gradient of a whole layer, for every layer."""
    grads = gradients(Ops(), initial, many, config)
    named = [[one for name, one in grads.items() if f"layers.{n}." in name] for n in range(config.L)]
    return np.array([np.sqrt(sum(float((one * one).sum()) for one in layer)) for layer in named])


guess = lesson.predict(
    "Without residual paths, after how many of 12 layers is the mean cosine above 0.95?", ...
)
AS_BASE = 0.02 * (768 / 96) ** 0.5  # at this width, products come out as large as in BERT-BASE with its 0.02
SPREADS = {"weights as in BERT-BASE": AS_BASE, "weights four times as large": 4 * AS_BASE}
alike = {
    (label, kind): likeness(engine, *deep_bert(spread))
    for label, spread in SPREADS.items()
    for kind, engine in (("with", Ops()), ("without", NoResidual()))
}
with_paths, without = (alike["weights as in BERT-BASE", kind] for kind in ("with", "without"))
guess.answer(int(np.argmax(without > 0.95)), f"with them it is {with_paths[-1]:.2f} after all twelve.")

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 3.3), layout="constrained")
for (label, kind), values in alike.items():
    style = ("o" if "as in" in label else "^") + ("-" if kind == "with" else "--")
    axes[0].plot(
        values, style, color="C0" if kind == "with" else "C1", ms=5, label=f"{kind} residual paths, {label}"
    )
axes[0].set(
    title="How alike the tokens of a text become", xlabel="layer", ylabel="mean cosine", ylim=(0, 1.05)
)
axes[0].legend(fontsize=7)
lengths = {label: layer_gradients(*deep_bert(spread)) for label, spread in SPREADS.items()}
for (label, values), style in zip(lengths.items(), ("o-", "^-"), strict=True):
    axes[1].plot(values / values[-1], style, color="C0", ms=5, label=label)
axes[1].set(
    title="Gradients, with residual paths", xlabel="layer", ylabel="length, last layer = 1", ylim=(0, None)
)
axes[1].legend(fontsize=8)
course.show(
    figure,
    "Left: mean cosine between tokens against layer. Without residual paths it is near one after a single layer. With "
    "them and weights as in BERT-BASE it stays low through twelve layers; with weights four times as large it climbs "
    "to one after a few. Right: lengths of each layer's gradient, level for BERT-BASE's weights, and up to twice as "
    "long at the bottom as at the top for large ones.",
)

# %% [markdown]
# Attention averages. A network that can do nothing else averages everything away, and the text is gone before
# a head on top can read it. The residual path is what lets a token stay itself.
#
# But look at the triangles: with weights four times as large, the path alone does not save the tokens.
# LayerNorm gives every block an input of one fixed length, so $x$ and $f(x)$ compete, and if $f$ is large,
# $x$ loses. Only while the branches are small is a block close to doing nothing, so that text and gradient
# pass almost unchanged through a stack of them. That is what small initial weights are
# good for (BERT's spread of 0.02 is in the authors' code; the paper does not mention it).
#
# ## 8. A fault, found from its gradients
#
# Someone has changed one line of a backward pass, and the whole gradient is wrong. Which line was it? You could check
# all operations one by one. But the errors of all tensors already say where to look, for a reason that section 2
# gave: **a gradient travels down**. What lies above the fault was computed before the fault was reached, and is
# right. What lies below has been computed from a wrong gradient, and is wrong. And a fault in the gradient of a
# parameter alone, not in the dx that is handed down, spoils that tensor and no other.
#
# Here are eight faults, each with its fingerprint, the row of tensors whose gradients it spoils.


# %%
def faulty(name, fault, call=None):
    """Return an engine whose backward `name` goes wrong, in every call or in one of them, counted from 1."""
    count = [0]

    def method(self, dy, saved, *rest):
        count[0] += 1
        right = getattr(Ops, name)(self, dy, saved, *rest)
        return fault(self, right, dy, saved, *rest) if call in (None, count[0]) else right

    return type("Faulty", (Ops,), {name: method})()


def no_residual(self, right, dy, saved, params, grads, *rest):
    d_sum, _, _ = self.layer_norm_backward(dy, saved.norm)
    return right[0] - d_sum, right[1]


def no_mean(self, right, dy, saved):
    return right[0] + saved.rstd * (dy * saved.gamma).mean(-1, keepdims=True), *right[1:]


# Backward begins at the top: call 1 is layer 1, call 2 layer 0. GELU is called in the masked-LM head first, so that
# layer 0 is its call 3.
FAULTS = {
    "feed-forward of layer 1: residual path forgotten": ("feed_forward_block_backward", no_residual, 1),
    "attention of layer 1: dq and dk exchanged": ("attention_backward", lambda _, r, *__: (r[1], r[0], r[2]), 1),
    "GELU of layer 0: x Φ′ forgotten": ("gelu_backward", lambda _, r, dy, saved, form: dy * saved.cdf, 3),
    "attention of layer 0: residual path forgotten": ("attention_block_backward", no_residual, 2),
    "LayerNorm: the mean of g forgotten": ("layer_norm_backward", no_mean),
    "linear: the bias gets a mean": ("linear_backward", lambda _, r, dy, saved: (*r[:2], dy.mean(0))),
    "head: nothing added to the table": (
        "masked_lm_head_backward", lambda _, r, *__: (*r[:2], np.zeros_like(r[2])),
    ),
    "tanh of the pooler: slope forgotten": ("tanh_backward", lambda _, r, dy, saved: dy),
}  # fmt: skip
fingerprints = {what: tensor_errors(faulty(*fault)) for what, fault in FAULTS.items()}

# %%
names, wrong = (
    list(slopes),
    np.array([[one > 1e-10 for one in errors.values()] for errors in fingerprints.values()]),
)
logs = np.log10(np.maximum([list(errors.values()) for errors in fingerprints.values()], 1e-16))
figure, axes = plt.subplots(figsize=(11, 4.2), layout="constrained")
image = axes.imshow(logs, cmap="cividis", vmin=-16, vmax=0, aspect="auto")
for row, column in zip(*np.nonzero(wrong), strict=True):
    axes.text(column, row, "×", ha="center", va="center", fontsize=8)
axes.set_xticks(range(len(names)), names, rotation=90, fontsize=6)
axes.set_yticks(range(len(FAULTS)), FAULTS, fontsize=8)
axes.set_title("Fingerprints: × marks a wrong gradient. Left is the bottom of the stack, right the top")
figure.colorbar(image, ax=axes, label="log10 of the error", shrink=0.8)
course.show(
    figure,
    "A matrix with a row for each of eight planted faults and a column for each tensor in forward order. Faults in a "
    "gradient that is handed down mark all tensors below them (in row five, LayerNorm, all but the other branch); faults in the gradient of a "
    "parameter mark single columns.",
)

# %% [markdown]
# Read the first row backwards, from its right-hand end. The heads are correct. The whole feed-forward block of layer 1
# is correct. The attention of layer 1, just below it, is wrong, and so is all the rest. So the dx that left the
# feed-forward block was wrong although the block's own parameters were not: the fault sits at the very end of that
# block's backward, and the last line there is the sum of two paths. In the second row the output projection of
# attention is correct and the projection to queries, keys and values is wrong. Between these two there is
# just one operation, and it is the culprit.
#
# The sixth row shows the other kind: a comb. Only biases are wrong, and no error is handed down. The seventh is a
# single tensor. And the last one marks the pooler's own weights, then everything below the fork, but not the
# masked-LM head, which is on the other branch.
#
# ### Exercise 07.6 (core): a detective
# Turn this reading into code. You are given the errors of the tensors, a dictionary in forward order, and a bound.
# Return three things: the name of the *highest* wrong tensor (the last in the order), the name of the tensor just above
# it (None if there is none), and whether the fault travels, that is, whether *every* tensor below the highest wrong one
# is wrong as well (True if there is none below). If nothing is wrong, return (None, None, False). An error that is not
# a number (NaN) counts as wrong.


# %%
# Exercise 07.6
def locate(errors, bound):
    """Return (highest wrong tensor, the tensor above it, whether all below are wrong, too)."""
    ...


# %%
def draw_errors(rng):
    names = [f"tensor {n}" for n in rng.permutation(int(rng.integers(5, 9)))]
    bound, right = 10.0 ** -rng.integers(8, 12), rng.random(len(names)) < 0.4
    if rng.random() < 0.5:
        right = np.arange(len(names)) >= rng.integers(len(names) + 1)  # a fault that travels, or none at all
    values = np.where(
        right,
        bound * rng.choice([0.0, 1e-3, 1.0], len(names)),
        rng.choice([2 * bound, 0.3, np.nan], len(names)),
    )
    return dict(zip(names, values.tolist(), strict=True)), float(bound)


def by_rows(errors, bound):
    """Read the same from an array of right and wrong."""
    names, right = list(errors), np.array(list(errors.values())) <= bound
    if right.all():
        return None, None, False
    at = int(np.flatnonzero(~right)[-1])
    return names[at], (names + [None])[at + 1], not right[:at].any()


lesson.check(locate, draw=draw_errors, same_as=by_rows, times=150)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# NaN is neither greater nor smaller than the bound: both comparisons are False. So ask whether an error is
# within the bound, and call everything else wrong.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Collect the places of the wrong ones: `wrong = [n for n, error in enumerate(errors.values()) if not error <= bound]`.
# A fault travels if there are as many wrong ones as places up to the highest.
#
# </details>
# <details><summary>Solution 07.6</summary>
#
# ```python
# def locate(errors, bound):
#     names = [*errors, None]
#     wrong = [n for n, error in enumerate(errors.values()) if not error <= bound]
#     if not wrong:
#         return None, None, False
#     highest = wrong[-1]
#     return names[highest], names[highest + 1], len(wrong) == highest + 1
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `if not error <= bound` | `if error > bound` | An error that is not a number is not greater than the bound, and yet it is wrong. |
# | `wrong[-1]` | `wrong[0]` | The fault is at the highest wrong tensor, the last in forward order; all below inherit it. |
# | `names[highest], names[highest + 1],` | `names[wrong[0]], names[wrong[0] + 1],` | The fault is at the highest wrong tensor, the last in forward order; all below inherit it. |
# | `names[highest], names[highest + 1], len(wrong) == highest + 1` | `names[wrong[0]], names[wrong[0] + 1], wrong[0] == 0` | The fault is at the highest wrong tensor, the last in forward order; all below inherit it. |
# | `len(wrong) == highest + 1` | `wrong[0] == 0` | Every tensor below has to be wrong, not the lowest alone. |
# | `len(wrong) == highest + 1` | `all(wrong[:highest])` | `wrong` holds places, and place 0 counts as False: ask whether every place below is in it. |
# | `names[highest + 1]` | `names[highest - 1]` | The tensor above is the next in forward order. |
# | `len(wrong) == highest + 1` | `len(wrong) > 1` | A fault travels only if every tensor below is wrong; a comb of biases does not. |
# | `error <= bound` | `error < bound` | An error of exactly the bound is within it. |
# | `return None, None, False` | `return None, None, True` | Where nothing is wrong, nothing travels. |
# | `len(wrong) == highest + 1` | `all(n in wrong for n in range(len(errors))[: highest - 1])` | Every tensor below counts, also the one just below: a slice ends before its last number. |
# | `highest = wrong[-1]` | `highest = max(range(len(errors)), key=lambda n: errors[names[n]]); return names[highest], names[highest + 1], all(n in wrong for n in range(highest))` | Highest means the last in forward order, not the largest error. |
#
# </details>

# %% [markdown]
# Here is your detective at work. The cell draws one of the faults without saying which, and prints what
# `locate` reads from its fingerprint. Name the fault before you look at the last line. Run it again for
# another.

# %%
mystery = list(FAULTS)[int(np.random.default_rng().integers(len(FAULTS)))]
if lesson.passed("07.6"):
    errors = tensor_errors(faulty(*FAULTS[mystery]))
    highest, above, travels = locate(errors, 1e-10)
    right = f"the next, {above}, is right" if above else "it is the last in the list"
    print(f"The highest wrong tensor is {highest}; {right}.")
    if highest == next(iter(errors)):
        print("Nothing lies below it: look at what is added to its own gradient.")
    elif travels:
        print("Everything below is wrong: look at what is handed down.")
    else:
        print("Some below are right. A comb of wrong ones points at gradients of parameters;")
        print("a whole branch that is right lies on the other side of a fork.")
    print(f"\n{'It was':>60}: {mystery}")
else:
    print("Exercise 07.6 is open; with it, this cell reads a fingerprint for you.")

# %% [markdown]
# This is how to look for a wrong gradient in any network, yours or someone else's: check tensor by tensor, find the
# border, and read the two or three lines of code at the border. That takes minutes, and staring at a loss
# curve might never have shown it.
#
# ## 9. What we saw
#
# * A block is a branch, a sum and a LayerNorm, and its backward is its forward, read from the end. You needed
#   no new derivative, only the right order and one `+`.
# * The word table is used twice and has two gradients: one reaches every piece, the other only the pieces of the batch.
# * The count of parameters is a formula with $12H^2$ in it, and it comes to 109,482,240 and 335,141,888 exactly.
# * Residual paths keep tokens apart, as long as the branches beside them are small. That is what small initial weights
#   are good for.
# * Gradients travel down, so the border between right and wrong ones points at a fault.
#
# Your engine now has everything that a loss and its gradient need:

# %%
lesson.keep()
lesson.sheet()

# %% [markdown]
# ## Words
#
# - **masked-LM head**: the part that scores the whole vocabulary at each masked piece.
# - **output head**: what turns the last vectors into the answer to one question; no relative of an attention head.
# - **pooler**: a linear layer with tanh on the vector of `[CLS]`, read by the next-sentence question.
# - **post-norm**: LayerNorm after the sum of input and branch, as in the paper.
#
# ## Where to go next
#
# [Chapter 08](08_why_the_loss_sticks.ipynb) lets this BERT train and watches the loss get stuck, as happens in many
# first runs.
# `minibert/core/ops/blocks.py` holds minibert's own blocks, and `minibert gradcheck` runs this chapter's judge
# over all of them.
