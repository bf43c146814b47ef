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
# # 05 · Gradients you can trust
#
# To run this notebook: `pip install '.[notebooks]'` from a checkout of minibert. Nothing is downloaded.
#
# **The question.** Training BERT needs the derivative of one number, the loss, with respect to more than a hundred
# million others. You will write that calculation yourself, operation by operation. A wrong derivative does not crash
# the program. The model still trains, a little worse, and nobody notices. So before the first one is written: how will
# you *know* that a derivative is right, to the last digit, without trusting anybody's answer?
#
# **After this chapter you can**
#
# * measure a derivative exactly, by stepping into the complex plane, and say which functions that works for;
# * push derivatives back through a matrix product, a softmax with cross-entropy, and the curves tanh and GELU, one small
#   step after the other;
# * train a first small network with them, and say what its loss is worth;
# * write a judge that finds a wrong derivative among right ones;
# * look at where errors appear, and tell from that which line of a program is broken.
#
# The operations you write here join those of chapters 02 to 04 in your engine, and from here on the judge of this
# chapter checks them.

# %%
# %matplotlib inline
import math
from functools import partial

import matplotlib.pyplot as plt
import numpy as np

from minibert import Tokenizer, course
from minibert.core.ops.erf import erfc
from minibert.core.ops.primitives import GeluSaved, LinearSaved, TanhSaved
from minibert.course.routes import jacobian
from minibert.data.corpus import embedded_corpus, sentences
from minibert.engines import limited_threads
from minibert.model.ops import Ops
from minibert.tokenizer import BasicTokenizer, count_words, learn_vocab

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
lesson = course.begin("05")

# %% [markdown]
# ## 1. A derivative, measured
#
# A **gradient** is the list of all first derivatives of one number with respect to many others. Each entry says how
# much the number changes when that one input moves a little. To measure one we could move the input and look:
#
# $$ \frac{f(x+h) - f(x-h)}{2h} $$
#
# This is a **central difference**. How small should $h$ be? Commit to a guess before you go on: replace the
# three dots with one of the choices.

# %%
best_step = lesson.predict(
    "f(x) = exp(sin x) at x = 1. At which step h is the central difference most accurate, in float64?",
    ...,
    choices=(1e-2, 1e-5, 1e-8, 1e-12),
)

# %% [markdown]
# Two errors pull in opposite directions. Taylor's series gives the first:
#
# $$ f(x \pm h) = f(x) \pm h f'(x) + \tfrac{h^2}{2} f''(x) \pm \tfrac{h^3}{6} f'''(x) + \dots $$
#
# so the difference equals $f'(x) + \tfrac{h^2}{6} f'''(x) + \dots$: what we left out, the **truncation error**,
# shrinks with $h^2$. The second comes from the machine. Both values carry about sixteen digits, and the smaller $h$
# is, the more of those digits they share. The subtraction removes the shared digits and keeps the noise. This is
# **cancellation**, and after the division by $h$ it grows as $10^{-16}/h$.
#
# Now take the step along the imaginary axis. In the same series, $h$ becomes $ih$:
#
# $$ f(x + ih) = f(x) + i h f'(x) - \tfrac{h^2}{2} f''(x) - i\,\tfrac{h^3}{6} f'''(x) + \dots $$
#
# The value sits in the real part, the derivative in the imaginary part. Nothing has to be subtracted to separate
# them:
#
# $$ f'(x) = \frac{\operatorname{Im} f(x + ih)}{h} + O(h^2) $$
#
# This is the **complex step**. With no subtraction there is no cancellation, so $h$ can be $10^{-30}$, and what was
# left out is of size $10^{-60}$: zero, for any purpose. Let us compare the two, along with the one-sided
# forward difference.


# %%
def f(x):
    return np.exp(np.sin(x))


x = 1.0
exact = np.exp(np.sin(x)) * np.cos(x)
steps = np.logspace(-16, -0.3, 48)
forward = np.array([abs((f(x + h) - f(x)) / h - exact) for h in steps]) / exact
central = np.array([abs((f(x + h) - f(x - h)) / (2 * h) - exact) for h in steps]) / exact
imaginary = np.array([abs(f(x + 1j * h).imag / h - exact) for h in steps]) / exact

figure, axes = plt.subplots(figsize=(7, 3.6))
axes.loglog(steps, forward.clip(1e-17), "s--", ms=3, label="forward difference", color="C1")
axes.loglog(steps, central.clip(1e-17), "o-", ms=3, label="central difference", color="C0")
axes.loglog(steps, imaginary.clip(1e-17), "^:", ms=3, label="complex step", color="0.3")
axes.annotate("cancellation\n$\\sim 10^{-16}/h$", (3e-15, 1e-9), color="C0")
axes.annotate("truncation\n$\\sim h^2$", (1e-2, 1e-9), color="C0")
axes.set(xlabel="step $h$", ylabel="relative error", title="Three ways to measure one derivative")
axes.legend(loc="upper center", fontsize=8)
course.show(
    figure,
    "Relative error against step size. Forward and central differences fall and then rise again as the step shrinks; "
    "the complex step falls to rounding level and stays there for every smaller step.",
)

lowest = steps[central.argmin()]
best_step.answer(1e-5, f"the lowest point of the blue curve is near h = {lowest:.0e}.")
course.say(
    f"The best central difference is still off by **{central.min():.0e}**, and you only hit it by knowing where the "
    f"valley lies. The complex step at $h = 10^{{-16}}$ is off by **{imaginary[0]:.0e}**. At $10^{{-30}}$ it is off by "
    f"**{abs(f(x + 1e-30j).imag / 1e-30 - exact) / exact:.0e}**."
)

# %% [markdown]
# The left end of the grey curve lies at $10^{-17}$ because the picture draws zero there: a logarithmic axis has no
# place for it.
#
# Every "=" in this course that a computer can check is checked. First come the terms of the series: on the left what
# the machine finds with a step that is large on purpose, so that the terms show, and on the right what the formula
# promises.

# %%
cube = partial(np.polyval, [2.0, -1.0, 0.5, 3.0])  # 2x³ - x² + x/2 + 3, whose series ends
h = 0.25
value, first, second, third = cube(x), 6 * x**2 - 2 * x + 0.5, 12 * x - 2, 12.0
course.equal("real part:  f - h²/2 f''", cube(x + 1j * h).real, value - h**2 / 2 * second)
course.equal("imaginary part / h:  f' - h²/6 f'''", cube(x + 1j * h).imag / h, first - h**2 / 6 * third)
course.equal("and with h = 1e-30:  f'", cube(x + 1e-30j).imag / 1e-30, first)

# %% [markdown]
# For a function of an array we step along a direction $v$ of the same shape. The result is the **directional
# derivative**, the sum of every entry of the gradient times the entry of $v$ that belongs to it:
#
# $$ \frac{\operatorname{Im} f(x + ihv)}{h} = \sum_i \frac{\partial f}{\partial x_i}\, v_i = \langle \nabla f, v \rangle $$
#
# One evaluation of $f$ checks one number, $\langle \nabla f, v\rangle$. With a *random* $v$ every entry of the gradient
# takes part, and a wrong entry goes unseen only if errors cancel to the last digit.

# %% [markdown]
# ### Exercise 05.1 (easy): the complex step
#
# `f` takes an array like `x` and returns one number, and does so for complex arrays too. Return the derivative of `f`
# at `x` along `v`. To that number `f` adds a large constant: it does not change the derivative, but whoever subtracts
# two values of `f` is left with rounding.


# %%
# Exercise 05.1
def complex_derivative(f, x, v):
    """Return the derivative of f at x along v, one real number; x and v are real arrays of the same shape."""
    ...


# %%
lesson.check(complex_derivative)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The derivative is the imaginary part, divided by the step.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Python writes the imaginary unit as `1j`. Move `x` by `1j * h * v` with an `h` so small that its square is negligible.
#
# </details>
# <details><summary>Solution 05.1</summary>
#
# ```python
# def complex_derivative(f, x, v):
#     h = 1e-30
#     return f(x + 1j * h * v).imag / h
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `.imag` | `.real` | The real part is the value of f; the derivative is in the imaginary part. |
# | `.imag / h` | `.imag` | The imaginary part is h times the derivative: divide by h. |
# | `1j * h * v` | `1j * h` | The step goes along v, not equally along every axis. |
# | `h = 1e-30` | `h = 1e-3` | A step of 1e-3 leaves out terms of 1e-6. Nothing cancels here, so take 1e-30. |
# | `1j * h * v` | `h * v` | A real step leaves the imaginary part at zero. |
# | `f(x + 1j * h * v).imag / h` | `(f(x + 1e-3 * v) - f(x - 1e-3 * v)) / 2e-3` | A difference of two values of f keeps the rounding of both; the imaginary part has no difference in it. |
# | `f(x + 1j * h * v).imag / h` | `f(x + 1j * h * v / np.linalg.norm(v)).imag / h` | The derivative along v grows with v: v is not brought to length one. |
# | `1j * h * v` | `1j * h * v.ravel()[0]` | Each entry of x moves by its own entry of v. |
#
# </details>

# %% [markdown]
# ## 2. Where the complex step is blind
#
# The series above needs a function that has such a series in the complex plane. Such a function is called
# **holomorphic**: around every point it turns and stretches the plane, equally in all directions. Sums, products,
# quotients, exp, log, tanh, square roots away from zero, and whatever is put together from them are holomorphic. The
# absolute value is not. It forgets the imaginary part, and that is where our derivative lives.

# %%
side = np.linspace(-0.35, 0.35, 8)
grid = (1.0 + side[:, None]) + 1j * (0.6 + side[None, :])
figure, panels = plt.subplots(1, 3, figsize=(9, 3.1), layout="constrained")
images = {
    "$z$: a small grid": grid,
    "$z \\cdot z$: turned and stretched": grid * grid,
    "$|z|^2$: flat": abs(grid) ** 2,
}
for ax, (title, image) in zip(panels, images.items(), strict=True):
    for line in image:
        ax.plot(line.real, line.imag, "C0-", lw=1)
    for line in image.T:
        ax.plot(line.real, line.imag, "C1--", lw=1)
    ax.set(title=title, xlabel="real", ylabel="imaginary", xlim=(-1, 3.2), ylim=(-0.6, 3))
    ax.set_aspect("equal")
course.show(
    figure,
    "A square grid in the complex plane, its image under z times z, in which lines still cross at right angles, and its "
    "image under the squared absolute value, where everything has collapsed onto the real axis.",
)

# %% [markdown]
# On the real line $x \cdot x$ and $|x|^2$ are the same function. For a complex number only the first carries a
# derivative. NumPy uses the second in more places than you would expect:

# %%
point, along = np.array([0.5, -1.2, 2.0, 0.3]), np.array([1.0, 0.9, -0.7, 0.2])
moved = point + 1e-30j * along
centred = point - point.mean()
tempting = {
    "x.var()": (moved.var(), 2 / 4 * centred @ along),
    "np.linalg.norm(x)": (np.linalg.norm(moved), point @ along / np.linalg.norm(point)),
    "np.vdot(x, x)": (np.vdot(moved, moved), 2 * point @ along),
    "(x + abs(x)).sum() / 2": ((moved + abs(moved)).sum() / 2, (point > 0) @ along),
    "x @ x": (moved @ moved, 2 * point @ along),
}
print(f"{'expression':24} {'complex step':>12} {'the truth':>12}")
for name, (image, truth) in tempting.items():
    print(f"{name:24} {np.imag(image) / 1e-30:12.6f} {truth:12.6f}")

# %% [markdown]
# No error, no warning, just wrong derivatives, and a judge that would call a right gradient wrong. That is
# why every forward in minibert writes `x * x` and never `abs`. Where an operation must decide something
# (which value is the largest? is it positive?), it looks at `x.real` only. The decision is a constant between
# the places where it flips, so it has no derivative to lose.
#
# ### Exercise 05.2 (core): the same values, with derivatives
#
# Write three functions that agree with `np.var(x)`, `np.linalg.norm(x)` and `np.maximum(x, 0)` for real `x` and carry
# exact derivatives for complex `x`.


# %%
# Exercise 05.2
def variance(x):
    """Return the mean of the squared distances from the mean, of an array (n,)."""
    ...


def length(x):
    """Return the square root of the sum of the squares, of an array (n,)."""
    ...


def hinge(x):
    """Return x where it is positive and zero elsewhere, an array (n,); at 0 itself the derivative is 0."""
    ...


# %%
lesson.check(variance)
lesson.check(length)
lesson.check(hinge)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Square by multiplying: `c * c` keeps the imaginary part, `abs(c) ** 2` throws it away.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `np.where(condition, a, b)` picks between values. Base the condition on `x.real`.
#
# </details>
# <details><summary>Solution 05.2</summary>
#
# ```python
# def variance(x):
#     centred = x - x.mean()
#     return (centred * centred).mean()
#
#
# def length(x):
#     return np.sqrt((x * x).sum())
#
#
# def hinge(x):
#     return np.where(x.real > 0, x, 0)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `(centred * centred).mean()` | `(abs(centred) ** 2).mean()` | abs forgets the imaginary part, and so does NumPy's var; multiply the number by itself. |
# | `(centred * centred).mean()` | `(centred * centred).sum()` | The variance is a mean, not a sum. |
# | `(centred * centred).mean()` | `(centred * centred).sum() / (len(x) - 1)` | `np.var` divides by n; by n − 1 only if it is asked to, with `ddof=1`. |
# | `np.sqrt((x * x).sum())` | `np.linalg.norm(x)` | The imaginary part is lost: NumPy's norm and vdot take absolute values, and `.real` drops it. Multiply x by itself. |
# | `np.where(x.real > 0, x, 0)` | `(x + abs(x)) / 2` | abs forgets the imaginary part, so half of the derivative is lost. |
# | `np.where(x.real > 0, x, 0)` | `np.where(x.real > 0, x.real, 0)` | Decide by the real part, but return the whole number. |
# | `centred = x - x.mean()` | `centred = x` | The distances are those from the mean: take the mean away first. |
# | `np.sqrt((x * x).sum())` | `np.sqrt(x * x).sum()` | First the sum of the squares, then the root of the sum. |
# | `x.real > 0` | `x.real >= 0` | At 0 itself the derivative is to be 0, and `>=` or `np.maximum` keep one of 1 there: ask whether the real part is greater than 0. |
# | `np.where(x.real > 0, x, 0)` | `np.maximum(x.real, 0) + 1j * x.imag` | Where x is not positive the result is constant, so the imaginary part has to become 0 as well. |
# | `(centred * centred).mean()` | `x.mean() ** 2 - (x * x).mean()` | A variance is not negative: the mean of the squares, less the square of the mean, in this order. |
#
# </details>

# %% [markdown]
# ## 3. Forward, backward, and what is saved between them
#
# A network is a chain of operations, and the last one returns the loss $\mathcal{L}$. Take one link of the chain,
# $y = f(x)$. All that comes after it is some function of $y$. Suppose somebody has already worked out how the loss
# depends on $y$, and hands us
#
# $$ \mathtt{dy}_j = \frac{\partial \mathcal{L}}{\partial y_j}, \qquad\text{an array of the shape of } y. $$
#
# This is the **upstream gradient**. The chain rule turns it into the gradient of our own input:
#
# $$ \mathtt{dx}_i = \frac{\partial \mathcal{L}}{\partial x_i}
#    = \sum_j \frac{\partial \mathcal{L}}{\partial y_j}\,\frac{\partial y_j}{\partial x_i}
#    = \sum_j \mathtt{dy}_j \, J_{ji}, \qquad J_{ji} = \frac{\partial y_j}{\partial x_i}. $$
#
# $J$ is the **Jacobian**: all derivatives of all outputs with respect to all inputs, one row for each output. The
# calculation $\mathtt{dx} = J^\top \mathtt{dy}$ is the **backward pass** of the operation. Chaining backward passes
# from the loss down to the first layer is all that is meant by "backpropagation". We go from the loss downwards because
# then all we carry is one $\mathtt{dy}$ of the shape of one result. The other direction would carry a Jacobian.
#
# In code each operation is a pair. The forward returns its result and `saved`, a named tuple of the arrays that the
# backward will need. The backward takes `dy` and `saved`:
#
# ```python
# y, saved = ops.linear(x, weight, bias)
# dx, dweight, dbias = ops.linear_backward(dy, saved)
# ```
#
# Read `dx` as "the derivative of the loss with respect to x". It always has the shape of `x`. That alone
# answers many questions. The operations of this chapter save:

# %%
for saved in (LinearSaved, TanhSaved, GeluSaved):
    print(saved.__name__, saved._fields)

# %% [markdown]
# A network is a chain of such pairs. Forward runs along the top, from left to right, and each operation saves what its
# backward will need. Backward runs along the bottom, from right to left: it begins with 1, the derivative of the loss
# with respect to itself, and each operation turns the gradient of its output into that of its input.

# %%
figure, axes = plt.subplots(figsize=(10, 2.4), layout="constrained")
for place, (name, kept) in enumerate(
    (("linear", "x, W"), ("GELU", "h"), ("linear", "a, W"), ("cross-entropy", "p"))
):
    box = {"boxstyle": "round,pad=0.6", "fc": "#dbe7f3", "ec": "0.4"}
    axes.text(2 * place + 1, 0.5, name, ha="center", va="center", bbox=box)
    axes.text(
        2 * place + 1,
        -0.5,
        f"{name}\nbackward",
        ha="center",
        va="center",
        fontsize=8,
        bbox=box | {"fc": "#f6dfc9"},
    )
    axes.annotate(
        "", (2 * place + 1, -0.18), (2 * place + 1, 0.3), arrowprops={"arrowstyle": "->", "ls": ":"}
    )
    axes.text(2 * place + 1.07, 0.06, f"saved: {kept}", va="center", fontsize=8)
for place, (value, gradient) in enumerate(
    zip(("x", "h", "a", "z", "loss"), ("dx", "dh", "da", "dz", "1"), strict=True)
):
    for height, text, (begin, end) in ((0.5, value, (-0.4, 0.4)), (-0.5, gradient, (0.4, -0.4))):
        arrow = {"arrowstyle": "->", "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (2 * place + end, height), (2 * place + begin, height), arrowprops=arrow)
        axes.text(2 * place, height + 0.1, text, ha="center", fontsize=10)
axes.set(xlim=(-0.6, 8.6), ylim=(-0.9, 0.9))
axes.axis("off")
course.show(
    figure,
    "Four operations in a row: linear, GELU, linear, cross-entropy. Arrows above lead from x over h, a and z to the loss; "
    "below each operation its backward, and arrows from the right to the left: 1, dz, da, dh, dx. A dotted arrow leads "
    "from each operation to its backward, with what it saves.",
)

# %% [markdown]
# ### How large is a Jacobian?

# %%
jacobian_size = lesson.predict(
    "One linear layer of BERT-BASE maps 512 tokens from 768 to 3,072 numbers each. "
    "How much memory would its Jacobian with respect to x take, in float32?",
    ...,
    choices=("megabytes", "gigabytes", "terabytes"),
)

# %% [markdown]
# Take a linear layer that is small enough to draw: 3 tokens, from 4 numbers to 5. We measure the Jacobian one
# column at a time with the complex step, using no formula at all.

# %%
rng = np.random.default_rng(5)
T, K, N = 3, 4, 5
x, weight, bias, dy = (rng.standard_normal(shape) for shape in ((T, K), (K, N), (N,), (T, N)))

J = jacobian(lambda x: Ops().linear(x, weight, bias)[0], x)
J_weight = jacobian(lambda w: Ops().linear(x, w, bias)[0], weight)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
largest = max(abs(J).max(), abs(J_weight).max())
for ax, matrix, inputs, rows, columns in (
    (panels[0], J, "x", T, K),
    (panels[1], J_weight, "weight", K, N),
):
    picture = ax.imshow(matrix, cmap="cividis", vmin=-largest, vmax=largest, aspect="auto")
    ax.set(title=f"Jacobian with respect to {inputs}", xlabel=f"{rows} × {columns} entries of {inputs}")
    ax.set_xticks(np.arange(rows * columns + 1, step=columns) - 0.5, [""] * (rows + 1))
    ax.set_yticks(np.arange(T * N + 1, step=N) - 0.5, [""] * (T + 1))
panels[0].set_ylabel("3 × 5 entries of y")
figure.colorbar(picture, ax=panels, label="derivative")
course.show(
    figure,
    "Two Jacobians of a linear layer. With respect to x: three equal rectangles on the diagonal, one for each "
    "token, and zero elsewhere. With respect to the weight: in every rectangle a diagonal pattern with the "
    "numbers of x.",
)
terabytes = (512 * 3072) * (512 * 768) * 4 / 1e12
jacobian_size.answer(
    "terabytes", f"512·3072 rows times 512·768 columns of four bytes are {terabytes:.1f} TB."
)

# %% [markdown]
# The left picture shows the same rectangle three times, once for each token, and zeros everywhere else: tokens do not
# mix in a linear layer. The right picture repeats the numbers of one array, too. Which arrays are these, and which way
# round do they lie? A Jacobian is almost always this redundant, so a backward pass never builds it. It computes
# $J^\top \mathtt{dy}$ directly, and you will find out how.
#
# ### The linear layer
#
# $$ y_{tn} = \sum_k x_{tk} W_{kn} + b_n $$
#
# Do not look for a formula with matrices yet. Take a single number, and ask of it the only question there is: which
# outputs does it reach, and by what is it multiplied on the way? Each of these outputs has a gradient in `dy`, and what
# comes back to our number is the sum of gradient times multiplier.
#
# ### Exercise 05.3 (easy): one number at a time
#
# Here `x` is (T, K), `weight` (K, N), the bias (N,), and `dy` (T, N). Return the derivative of the loss with respect to
# `x[t, k]`, to `weight[k, n]`, and to the bias's entry `n`: three plain numbers.


# %%
# Exercise 05.3
def one_of_x(dy, weight, t, k):
    """Return the derivative of the loss with respect to x[t, k], a number."""
    ...


def one_of_weight(dy, x, k, n):
    """Return the derivative of the loss with respect to weight[k, n], a number."""
    ...


def one_of_bias(dy, n):
    """Return the derivative of the loss with respect to the bias's entry n, a number."""
    ...


# %%
lesson.check(one_of_x)
lesson.check(one_of_weight)
lesson.check(one_of_bias)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The number $x_{tk}$ appears in the formula of $y_{t1}, y_{t2}, \dots, y_{tN}$, and in no other row. In the formula of
# $y_{tn}$ it is multiplied by $W_{kn}$.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The number $W_{kn}$ appears in column $n$ of *every* row of $y$, each time with a different $x$. So does $b_n$, and
# there the multiplier is 1.
#
# </details>
# <details><summary>Solution 05.3</summary>
#
# ```python
# def one_of_x(dy, weight, t, k):
#     return (dy[t] * weight[k]).sum()
#
#
# def one_of_weight(dy, x, k, n):
#     return (x[:, k] * dy[:, n]).sum()
#
#
# def one_of_bias(dy, n):
#     return dy[:, n].sum()
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `(dy[t] * weight[k]).sum()` | `(dy[t] * weight[k]).mean()` | The number reaches N outputs, and what they send back adds up. |
# | `(dy[t] * weight[k]).sum()` | `dy[t].sum() * weight[k].sum()` | Each output has a multiplier of its own: multiply first, add afterwards. |
# | `(dy[t] * weight[k]).sum()` | `dy[t, 0] * weight[k, 0]` | The number reaches all outputs of its row, not the first one alone. |
# | `(dy[t] * weight[k]).sum()` | `(dy.sum(0) * weight[k]).sum()` | The number reaches its own row only: other tokens do not see it. |
# | `(x[:, k] * dy[:, n]).sum()` | `x[0, k] * dy[0, n]` | Every token uses the weight, not only the first. |
# | `(x[:, k] * dy[:, n]).sum()` | `(x[:, k] * dy[:, n]).mean()` | No mean over the tokens: each use sends back its own share. |
# | `dy[:, n].sum()` | `dy[:, n].mean()` | The bias is added to every row, and what the rows send back adds up. |
# | `dy[:, n].sum()` | `dy[n].sum()` | Entry n of the bias is added to column n, not to row n. |
# | `(dy[t] * weight[k]).sum()` | `dy[t, k % dy.shape[1]] * weight[k, k % dy.shape[1]]` | The number reaches every output of its row, not only the one with its own index. |
# | `(x[:, k] * dy[:, n]).sum()` | `(x[:, k] * dy.sum(1)).sum()` | The weight is in output n alone: the other columns of dy do not belong to it. |
# | `(x[:, k] * dy[:, n]).sum()` | `x[:, k].sum() * dy[:, n].sum()` | Each token has a multiplier of its own: multiply first, add afterwards. |
# | `dy[:, n].sum()` | `dy[n % len(dy)].sum()` | Entry n of the bias is added to column n, not to row n. |
# | `dy[:, n].sum()` | `dy[0, n]` | Every token uses the bias, not only the first. |
# | `dy[:, n].sum()` | `dy.sum()` | Entry n of the bias reaches column n alone, not all outputs. |
#
# </details>

# %% [markdown]
# ### Exercise 05.4 (core): all numbers at once
#
# You have three sums, one for each entry of `dx`, `dweight` and `dbias`. A sum over an index that two arrays share is a
# matrix product. Which product, and which of the two is transposed? Write both halves of the operation, without a loop.
# The forward keeps `LinearSaved(x, weight)`. They are methods of your engine, hence the `self`, which you do not need
# here.
#
# One rule holds for every operation from here on: if all its inputs are in single precision (float32), so are
# its results, for that is what training runs in. Two things break this rule easily: `np.sqrt` of a plain
# number, which gives one in double precision (`math.sqrt` does not), and `np.zeros` without a `dtype`. The
# judge checks this for operations, which are the functions with a `self`. A small function such as those of 05.8 is not
# held to the rule, but an operation that calls it is.


# %%
# Exercise 05.4
def linear(self, x, weight, bias):
    """Return x @ weight + bias (T,N), and LinearSaved(x, weight)."""
    ...


def linear_backward(self, dy, saved):
    """Return dx (T,K), dweight (K,N) and dbias (N,); saved has x and weight, dy is (T,N)."""
    ...


# %%
lesson.check(linear)
lesson.check(linear_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The forward is one line: a tuple of the result and `LinearSaved(x, weight)`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `dx` must be (T, K). Only one product of `dy` (T, N) and `weight` (K, N) has that shape.
#
# </details>
# <details><summary>Solution 05.4</summary>
#
# ```python
# def linear(self, x, weight, bias):
#     return x @ weight + bias, LinearSaved(x, weight)
#
#
# def linear_backward(self, dy, saved):
#     return dy @ saved.weight.T, saved.x.T @ dy, dy.sum(0)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `dy.sum(0)` | `dy.mean(0)` | The bias is added to every row, so its gradient is a sum over rows, not a mean. |
# | `dy.sum(0)` | `dy[0]` | Every row uses the bias, not only the first. |
# | `dy @ saved.weight.T` | `-dy @ saved.weight.T` | x enters with a plus sign, so dx has the sign of dy W^T. |
# | `saved.x.T @ dy` | `saved.x.T @ dy / len(dy)` | No mean over the tokens here: the weights of the loss are in dy already. |
# | `x @ weight + bias` | `x @ weight` | The bias is missing. |
# | `x @ weight + bias` | `x @ weight - bias` | The bias is added. |
# | `saved.x.T @ dy` | `(dy.T @ saved.x)` | The shape of dweight is that of the weight, (K, N), not its transpose. |
#
# </details>
# <details><summary>The derivation</summary>
#
# One entry $x_{tk}$ reaches the outputs of its own row, $y_{t1}, \dots, y_{tN}$, with weights $W_{k1}, \dots, W_{kN}$:
#
# $$ \mathtt{dx}_{tk} = \sum_n \mathtt{dy}_{tn} W_{kn} \quad\Longrightarrow\quad \mathtt{dx} = \mathtt{dy}\, W^\top $$
#
# One entry $W_{kn}$ is used by every token $t$, each time multiplied by $x_{tk}$, and reaches column $n$ of that row:
#
# $$ \mathtt{dW}_{kn} = \sum_t x_{tk}\, \mathtt{dy}_{tn} \quad\Longrightarrow\quad \mathtt{dW} = x^\top \mathtt{dy} $$
#
# and $b_n$ is added to every row, so $\mathtt{db}_n = \sum_t \mathtt{dy}_{tn}$. The rectangle of the left picture is
# $W^\top$, and the right picture is made of the numbers of $x$.
#
# </details>

# %% [markdown]
# The judge drew shapes you have not seen, took the complex step of the *forward*, and compared along random directions.
# That takes no formula for `dx`. A tiny error in one entry may stay below the tolerance of the sum, so it also compared
# each entry with minibert's own backward, which has to pass the same proof (`minibert gradcheck`). Here are the three
# equations of the derivation above, in numbers, on the left the measured Jacobian; and then minibert's own
# lines:

# %%
course.equal("dx:  J^T dy = dy W^T", (J.T @ dy.ravel()).reshape(T, K), dy @ weight.T)
course.equal("dW:  J^T dy = x^T dy", (J_weight.T @ dy.ravel()).reshape(K, N), x.T @ dy)
by_bias = jacobian(lambda b: Ops().linear(x, weight, b)[0], bias)
course.equal("db:  J^T dy = sum of dy over rows", by_bias.T @ dy.ravel(), dy.sum(0))

# %%
course.source(Ops.linear_backward)

# %% [markdown]
# ## 4. Softmax and cross-entropy
#
# The model gives each of $K$ answers a score $z_k$ (a *logit*). Softmax turns them into probabilities, and the loss of
# one row is minus the logarithm of the probability of the right answer $\ell$. For the way back we take one row apart
# into four small operations:
#
# $$ e_k = \exp(z_k), \qquad S = \sum_k e_k, \qquad p_k = \frac{e_k}{S}, \qquad \text{loss} = -\ln p_\ell . $$
#
# (That the largest score is subtracted first changes nothing here, for it changes no $p$.) Now walk back through them,
# one at a time, from the last to the first. At each step you are handed the gradient of what comes out of a small
# operation, and you return the gradient of what goes in. No step needs more than you learnt at school.
#
# ### Exercise 05.5 (easy): through the logarithm, and into the sum
#
# The first step goes from the loss to $p$: only one of the $K$ probabilities had any influence. `d_loss` is the gradient
# from above, a number. The second goes from $p$ to $S$: every one of the $K$ quotients was divided by it.


# %%
# Exercise 05.5
def through_log(d_loss, p, label):
    """Return the gradient of p (K,), where loss = -log(p[label])."""
    ...


def through_total(dp, e, total):
    """Return the derivative with respect to total, a number, where p = e / total; dp and e are (K,)."""
    ...


# %%
lesson.check(through_log)
lesson.check(through_total)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The gradient of `p` has K entries, and all but one of them are zero. The slope of $\ln p$ is $1/p$.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The slope of $e_k / S$ with respect to $S$ is $-e_k / S^2$. One number $S$ goes into $K$ quotients, so $K$ terms come
# back, each with its own `dp`.
#
# </details>
# <details><summary>Solution 05.5</summary>
#
# ```python
# def through_log(d_loss, p, label):
#     dp = np.zeros_like(p)
#     dp[label] = -d_loss / p[label]
#     return dp
#
#
# def through_total(dp, e, total):
#     return -(dp * e).sum() / (total * total)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `-d_loss / p[label]` | `d_loss / p[label]` | The loss is minus a logarithm: the sign is missing. |
# | `-d_loss / p[label]` | `-1 / p[label]` | What comes from above multiplies: d_loss is not always 1. |
# | `-d_loss / p[label]` | `-d_loss * np.log(p[label])` | That is the loss; its derivative is asked for, and the slope of ln p is 1/p. |
# | `dp[label] = -d_loss / p[label]` | `dp[:] = -d_loss / p` | Only the probability of the label is in the loss; the others get zero. |
# | `-(dp * e).sum() / (total * total)` | `(dp * e).sum() / (total * total)` | A larger total makes every quotient smaller: the sign is missing. |
# | `-(dp * e).sum() / (total * total)` | `-(dp * e).sum() / total` | The slope of 1/S is -1/S², with a square. |
# | `-(dp * e).sum() / (total * total)` | `-dp.sum() / (total * total)` | Each quotient has its own numerator e, which stays in its slope. |
# | `-(dp * e).sum() / (total * total)` | `(dp / total).sum()` | That is the way to e, the numerator; the total is in the denominator. |
# | `    return dp` | `    return d_loss * (p - (np.arange(len(p)) == label))` | p with one less at the label is the gradient of the scores, further down; here that of p itself is asked for. |
#
# </details>

# %% [markdown]
# ### Exercise 05.6 (core): used twice, and through the exponential
#
# Each $e_k$ is used in two places: in its own quotient $e_k / S$, and in the sum $S$. What is used twice gets two
# gradients, and they are added. `d_total` is what 05.5 found. The last step goes through $e_k = \exp(z_k)$; you have no
# $z$, and need none.


# %%
# Exercise 05.6
def through_quotient(dp, total, d_total):
    """Return the gradient of e (K,), which is in p = e / total and in total = e.sum()."""
    ...


def through_exp(de, e):
    """Return the gradient of z (K,), where e = exp(z)."""
    ...


# %%
lesson.check(through_quotient)
lesson.check(through_exp)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# As a numerator, $e_k$ gets `dp[k]` divided by S. As a term of the sum it gets `d_total`, multiplied by 1, and so does
# every other $e$.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The exponential is its own slope, so the slope at $z_k$ is a number that you have been given.
#
# </details>
# <details><summary>Solution 05.6</summary>
#
# ```python
# def through_quotient(dp, total, d_total):
#     return dp / total + d_total
#
#
# def through_exp(de, e):
#     return de * e
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `dp / total + d_total` | `dp / total` | The numbers e are in the total as well, and that use sends back d_total. |
# | `dp / total + d_total` | `dp + d_total` | The numerator is divided by the total, and so is its gradient. |
# | `dp / total + d_total` | `dp / total + d_total / len(dp)` | A sum hands its whole gradient to each of its terms; it is not divided among them. |
# | `dp / total + d_total` | `dp / total - d_total` | Two uses, two gradients, added; the minus sign is in d_total already. |
# | `de * e` | `de` | The chain rule multiplies by the slope of the exponential. |
# | `de * e` | `de * np.exp(e)` | What you are given is e, which is exp(z) already. |
# | `de * e` | `de / e` | That is the slope of the logarithm. |
# | `dp / total + d_total` | `dp / total * d_total` | Two uses, two gradients: they are added, not multiplied. |
# | `dp / total + d_total` | `-dp / (total * total) + d_total` | In its own quotient e is the numerator, whose slope is 1/S; -1/S² belongs to the denominator. |
# | `dp / total + d_total` | `(dp + d_total) / total` | d_total has been divided in 05.5 already; only dp is divided by the total. |
# | `de * e` | `de * np.log(e)` | The slope of the exponential is the exponential itself, e; its logarithm is z. |
#
# </details>

# %% [markdown]
# ### Exercise 05.7 (hard): the four steps in one
#
# Put the four lines together, with $1/p_\ell$, $S^2$ and all. Nearly everything cancels. What is left has no division,
# no exponential, and no sum, and it only needs `probabilities` and `labels`. Do it on paper; it takes five lines.
#
# It is worth the trouble, for the chain that you have is not safe. The judge draws scores so far apart that some
# probabilities are exactly zero, and there $1/p$ is infinite. The short formula does not mind.
#
# In minibert the losses of a batch are *not* averaged inside the operation. It returns one loss for each row, and each
# row's weight (such as one over the number of rows) comes back down as the upstream gradient `dnll`, (N,).
# `saved.probabilities` is (N, K) and `saved.labels` (N,), whole numbers. There may be no rows at all. Leave `saved` as
# it is; somebody else may want to read it.


# %%
# Exercise 05.7
def softmax_cross_entropy_backward(self, dnll, saved):
    """Return dlogits (N,K); dnll is (N,), saved has probabilities (N,K) and labels (N,)."""
    ...


# %%
lesson.check(softmax_cross_entropy_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write down `through_total` with the `dp` of `through_log` in it: only the label's term is left of the sum, and
# $e_\ell / p_\ell = S$. Then `de`, then `dz`, with $e_k / S = p_k$. Keep the entry of the label and the others apart.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `np.arange(K) == labels[:, None]` is a table (N, K), true at each row's label, and `dnll[:, None]` is a column that
# multiplies row by row.
#
# </details>
# <details><summary>Solution 05.7</summary>
#
# ```python
# def softmax_cross_entropy_backward(self, dnll, saved):
#     probabilities = saved.probabilities
#     here = np.arange(probabilities.shape[1]) == saved.labels[:, None]
#     return (probabilities - here) * dnll[:, None]
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `(probabilities - here)` | `(here - probabilities)` | The sign: the loss falls when the score of the label rises, so its gradient is p - 1, negative. |
# | `(probabilities - here)` | `probabilities` | The one at the label is missing. |
# | `* dnll[:, None]` | `* dnll.mean()` | Every row has a weight of its own, which comes from above. |
# | `* dnll[:, None]` | `* dnll[:, None] / len(dnll)` | No mean here: the weights in dnll already say how much a row counts. |
# | `(probabilities - here)` | `probabilities * (1 - here)` | At the label too there is a gradient: p - 1. |
# | `(probabilities - here) * dnll[:, None]` | `probabilities - here * dnll[:, None]` | The weight belongs to both terms, p and the one at the label. |
# | `here = np.arange(probabilities.shape[1]) == saved.labels[:, None]` | `here = np.isin(np.arange(probabilities.shape[1]), saved.labels)` | Each row subtracts a single one, at its own label, not at those of other rows. |
#
# </details>
# <details><summary>The derivation, twice</summary>
#
# With $\mathtt{dp}_\ell = -1/p_\ell$ and zero elsewhere, $\mathtt{dS} = e_\ell / (p_\ell S^2) = 1/S$. Then
# $\mathtt{de}_k = \mathtt{dp}_k / S + 1/S$, and $\mathtt{dz}_k = e_k\,\mathtt{de}_k = p_k\,\mathtt{dp}_k + p_k$. At the
# label that is $-1 + p_\ell$, elsewhere $p_k$:
#
# $$ \mathtt{dz}_k = p_k - \delta_{\ell k} , $$
#
# where $\delta_{\ell k}$ is 1 if $k = \ell$ and 0 otherwise.
#
# The second way takes softmax as a whole. With $S = \sum_j e^{z_j}$ the quotient rule gives
#
# $$ \frac{\partial p_j}{\partial z_k} = \frac{\delta_{jk} e^{z_j}}{S} - \frac{e^{z_j} e^{z_k}}{S^2}
#    = \delta_{jk}\, p_j - p_j p_k, \qquad J = \operatorname{diag}(p) - p\,p^\top . $$
#
# Raising one score raises its own probability and takes from all others, in proportion to what they have. Send
# $-1/p_\ell$ back through $J$:
#
# $$ \mathtt{dz}_k = \sum_j \mathtt{dp}_j J_{jk} = -\frac{1}{p_\ell}\left(\delta_{\ell k}\, p_\ell - p_\ell p_k\right)
#    = p_k - \delta_{\ell k} $$
#
# The $1/p_\ell$, which explodes when the model is very wrong, cancels against the $p_\ell$ of the Jacobian. That is why
# libraries offer the two as one operation. There is even a third way: $-\ln p_\ell = \ln S - z_\ell$, and the derivative
# of $\ln S$ is $p$.
#
# </details>

# %% [markdown]
# Here is the derivation above in numbers, and the Jacobian of softmax as a picture. Chapter 06 will need it
# again.


# %%
def softmax(z):
    e = np.exp(z - z.real.max())
    return e / e.sum()


z = np.array([2.0, 1.0, 0.4, -0.3, -1.0, 1.7])
p, right = softmax(z), 1
J = jacobian(softmax, z)
course.equal("J = diag(p) - p p^T", J, np.diag(p) - np.outer(p, p))
course.equal("every column of J sums to 0, for p always sums to 1", J.sum(0) + 1, np.ones(6))
course.equal("every row, too: adding a constant to all scores changes nothing", J.sum(1) + 1, np.ones(6))

figure, panels = plt.subplots(1, 2, figsize=(8.5, 3.2), layout="constrained", width_ratios=(1, 1.25))
panels[0].bar(range(6), p, color="C0")
panels[0].set(xlabel="answer", ylabel="probability", title="$p$")
picture = panels[1].imshow(J, cmap="cividis", vmin=-0.25, vmax=0.25)
for (j, k), entry in np.ndenumerate(J):
    panels[1].text(
        k, j, f"{entry:.2f}", ha="center", va="center", fontsize=7, color="w" if entry < 0.1 else "k"
    )
panels[1].set(
    xlabel="score that moves", ylabel="probability that responds", title="$\\partial p_j / \\partial z_k$"
)
figure.colorbar(picture, ax=panels[1])
course.show(
    figure,
    "Left, six probabilities. Right, the Jacobian of softmax: positive on the diagonal, negative elsewhere, largest "
    "where the probabilities are large.",
)

# %%
d_p = np.zeros(6)
d_p[right] = -1 / p[right]
one_hot = np.eye(6)[right]
course.equal("softmax, then -log:  J^T dp = p - onehot", J.T @ d_p, p - one_hot)
course.equal(
    "log S - z:  gradient = p - onehot",
    jacobian(lambda z: np.log(np.exp(z).sum()) - z[right], z)[0],
    p - one_hot,
)

figure, panels = plt.subplots(1, 3, figsize=(9, 2.9), layout="constrained", sharey=True)
for ax, (title, scores) in zip(
    panels,
    {"knows nothing": 0 * z, "sure, and wrong": 3 * z, "sure, and right": 3 * z + 12 * one_hot}.items(),
    strict=True,
):
    gradient = softmax(scores) - one_hot
    ax.bar(
        range(6),
        gradient,
        color=["C1" if k == right else "C0" for k in range(6)],
        hatch=["//" if k == right else "" for k in range(6)],
    )
    ax.axhline(0, color="0.3", lw=0.8)
    ax.set(title=f"{title}: loss {-np.log(softmax(scores)[right]):.2f}", xlabel="answer")
panels[0].set_ylabel("gradient of the score")
course.show(
    figure,
    "Gradients of six scores in three situations, the right answer hatched. Knowing nothing: minus five sixths at the "
    "right answer, one sixth elsewhere. Sure and wrong: minus one at the right answer, plus two thirds at the favourite. "
    "Sure and right: all zero.",
)

# %% [markdown]
# The hatched bar is the right answer. Training moves scores *against* the gradient, so the right answer is pushed up
# and the others are pushed down, in proportion to the probability they were wrongly given. The bars in each
# panel sum to zero. And no bar is ever larger than 1, however large the loss: one row can never send back more than
# its weight allows.
#
# ## 5. Two curves
#
# After a matrix product a network needs something that is not linear, or all layers would collapse into one.
# BERT uses two curves: GELU inside every layer, and tanh on top, over the token `[CLS]`. Both act on each
# number alone, so their Jacobians are diagonal, and a backward pass is a product: `dx = dy * slope`. So what we need is
# slopes, and a good choice of what to save for them.
#
# **tanh** is $\sinh / \cosh$. The backward will have kept the *result* $y = \tanh x$, and not $x$.
#
# **GELU** (Hendrycks & Gimpel 2016) multiplies each number by the probability that a standard normal number lies below
# it: $\operatorname{gelu}(x) = x\,\Phi(x)$, where
#
# $$ \Phi(x) = \frac{1}{\sqrt{2\pi}} \int_{-\infty}^{x} e^{-s^2/2}\, \mathrm{d}s = \tfrac12 \operatorname{erfc}(-x/\sqrt2) . $$
#
# ### Exercise 05.8 (easy): two slopes
#
# Return the slope of tanh where its value is `y`, and the slope of $\Phi$ at `x`. Arrays may have any shape.


# %%
# Exercise 05.8
def slope_of_tanh(y):
    """Return the slope of tanh at the places where tanh is y, an array like y."""
    ...


def slope_of_normal(x):
    """Return the slope of Phi at x, an array like x."""
    ...


# %%
lesson.check(slope_of_tanh)
lesson.check(slope_of_normal)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The quotient rule, with $\sinh' = \cosh$, $\cosh' = \sinh$. Divide by $\cosh^2$ term by term, and express what you get
# by $y$.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The slope of an integral with respect to its upper end is the integrand at that end. Do not forget the factor before
# it.
#
# </details>
# <details><summary>Solution 05.8</summary>
#
# ```python
# def slope_of_tanh(y):
#     return 1 - y * y
#
#
# def slope_of_normal(x):
#     return np.exp(x * x * -0.5) / math.sqrt(2 * math.pi)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `1 - y * y` | `1 - y` | The slope of tanh is 1 - y², with a square. |
# | `1 - y * y` | `1 + y * y` | The quotient rule has a difference: cosh² - sinh². |
# | `1 - y * y` | `1 - np.tanh(y) * np.tanh(y)` | What is given is y, which is tanh(x) already. |
# | `x * x * -0.5` | `x * x * 0.5` | The density falls: exp of minus x²/2. |
# | `x * x * -0.5` | `x * -0.5` | The exponent has the square of x. |
# | `math.sqrt(2 * math.pi)` | `math.sqrt(math.pi)` | The factor before the integral is 1/√(2π). |
# | `1 - y * y` | `y * (1 - y)` | That is the slope of the logistic function; that of tanh is 1 - y². |
# | `np.exp(x * x * -0.5) / math.sqrt(2 * math.pi)` | `-x * np.exp(x * x * -0.5) / math.sqrt(2 * math.pi)` | That is the slope of the density; the density itself is the slope of Φ. |
# | `x * x * -0.5` | `-x * x` | The exponent is -x²/2: the half is missing. |
# | `math.sqrt(2 * math.pi)` | `(2 * math.pi)` | The factor before the integral is one over the root of 2π, not over 2π. |
# | `np.exp(x * x * -0.5) / math.sqrt(2 * math.pi)` | `np.exp(x * x * -0.5)` | The factor 1/√(2π) before the integral stays. |
#
# </details>

# %% [markdown]
# There is a second form of GELU, found in later versions of the authors' code and in GPT-2. It replaces $\Phi$ with
#
# $$ c(x) = \tfrac12 + \tfrac12 \tanh u(x), \qquad u(x) = \sqrt{2/\pi}\,\left(x + 0.044715\,x^3\right). $$
#
# The backward will have kept $x$ and the factor beside it, $\Phi$ or $c$. So the slope of $c$ should be written with $c$
# itself, and no tanh should be computed twice.
#
# ### Exercise 05.9 (core): the slope of the other form
#
# First the slope of $u$ with respect to $x$. Then the slope of $c$ with respect to $x$, from `c` and from `du`, the slope
# of $u$: what is $\tanh u$, if you know $c$?


# %%
# Exercise 05.9
def slope_of_u(x):
    """Return the slope of u at x, an array like x."""
    ...


def slope_of_c(c, du):
    """Return the slope of c where c has these values and u has the slope du, arrays of one shape."""
    ...


# %%
lesson.check(slope_of_u)
lesson.check(slope_of_c)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The slope of $x^3$ is $3x^2$, and the root multiplies both terms.
#
# </details>
# <details><summary>Hint 2</summary>
#
# $\tanh u = 2c - 1$. Put that into $1 - \tanh^2 u$, and multiply out; $c$ and $1 - c$ are both factors of it. The ½
# before the tanh, and `du`, remain to be multiplied.
#
# </details>
# <details><summary>Solution 05.9</summary>
#
# ```python
# def slope_of_u(x):
#     return math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
#
#
# def slope_of_c(c, du):
#     return 2 * c * (1 - c) * du
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `(1 + 3 * 0.044715 * x * x)` | `(1 + 0.044715 * x * x)` | The derivative of x³ is 3x². |
# | `(1 + 3 * 0.044715 * x * x)` | `(x + 3 * 0.044715 * x * x)` | The derivative of x is 1. |
# | `math.sqrt(2 / math.pi) *` | `1.0 *` | The root multiplies all of u, and so all of its slope. |
# | `2 * c * (1 - c) * du` | `c * (1 - c) * du` | (1 - tanh²)/2 is 2 c (1 - c): a factor of two is missing. |
# | `2 * c * (1 - c) * du` | `2 * c * (1 - c)` | The chain rule: c depends on x through u, so the slope of u is a factor. |
# | `2 * c * (1 - c) * du` | `0.5 * (1 - c * c) * du` | tanh u is 2c - 1, and not c. |
# | `3 * 0.044715 * x * x` | `3 * 0.044715 * x` | The derivative of x³ is 3x²: x is squared. |
# | `3 * 0.044715 * x * x` | `3 * 0.044715 * x * x * x` | The derivative of x³ is 3x²: the power falls by one. |
# | `math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)` | `math.sqrt(2 / math.pi) + 3 * 0.044715 * x * x` | The root multiplies both terms of u, and so both terms of its slope. |
# | `math.sqrt(2 / math.pi)` | `math.sqrt(math.pi / 2)` | The root is that of 2/π, not of π/2. |
# | `2 * c * (1 - c) * du` | `0.5 * (1 - (2 * c + 1) * (2 * c + 1)) * du` | From c = ½ + ½ tanh u follows tanh u = 2c - 1, with a minus. |
# | `2 * c * (1 - c) * du` | `4 * c * (1 - c) * du` | tanh has a factor ½ in c: the slope of c is half of 1 - tanh². |
#
# </details>
# <details><summary>The derivation</summary>
#
# The quotient rule gives $\tanh' = (\cosh^2 - \sinh^2)/\cosh^2 = 1 - \tanh^2$. By the product rule
#
# $$ \operatorname{gelu}'(x) = \Phi(x) + x\,\Phi'(x), \qquad \Phi'(x) = \frac{1}{\sqrt{2\pi}}\, e^{-x^2/2} . $$
#
# For the other form, $c' = \tfrac12 (1 - \tanh^2 u)\, u'$. Now $\tanh u = 2c - 1$, so
# $1 - \tanh^2 u = 1 - (2c-1)^2 = 4c(1-c)$, and
#
# $$ c'(x) = 2\,c\,(1 - c)\,u'(x), \qquad u'(x) = \sqrt{2/\pi}\,\left(1 + 3 \cdot 0.044715\,x^2\right). $$
#
# </details>

# %% [markdown]
# ### Exercise 05.10 (core): tanh and GELU
#
# Now the operations. `form` is `"erf"` or `"tanh"`. Save `TanhSaved(y)` and `GeluSaved(x, cdf)`, where `cdf` is the
# factor beside x, $\Phi$ or $c$. Of gelu's slope you have both halves of the second term; what is the first?
#
# Python's `math.erf` refuses complex numbers, so minibert has an error function of its own, `erfc(np, x)`, which is
# holomorphic; its first argument is the array library. Your functions of 05.8 and 05.9 are yours to call.


# %%
# Exercise 05.10
def tanh(self, x):
    """Return tanh(x) and TanhSaved(y)."""
    ...


def tanh_backward(self, dy, saved):
    """Return dx; saved has y."""
    ...


def gelu(self, x, form):
    """Return x times cdf and GeluSaved(x, cdf); form "erf" or "tanh" says which cdf."""
    ...


def gelu_backward(self, dy, saved, form):
    """Return dx; saved has x and cdf."""
    ...


# %%
lesson.check(tanh)
lesson.check(tanh_backward)
lesson.check(gelu)
lesson.check(gelu_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# gelu(x) = x c(x) in both forms, so the slope is c + x c'. Only c' depends on the form.
#
# </details>
# <details><summary>Hint 2</summary>
#
# c' is what you wrote before: the slope of $\Phi$ for "erf", and 2 c (1 - c) u' for "tanh".
#
# </details>
# <details><summary>Solution 05.10</summary>
#
# ```python
# def tanh(self, x):
#     y = np.tanh(x)
#     return y, TanhSaved(y)
#
#
# def tanh_backward(self, dy, saved):
#     return dy * (1 - saved.y * saved.y)
#
#
# def gelu(self, x, form):
#     if form == "erf":
#         cdf = 0.5 * erfc(np, -x * math.sqrt(0.5))
#     else:
#         cdf = 0.5 + 0.5 * np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
#     return x * cdf, GeluSaved(x, cdf)
#
#
# def gelu_backward(self, dy, saved, form):
#     x, cdf = saved.x, saved.cdf
#     if form == "erf":
#         slope = np.exp(x * x * -0.5) / math.sqrt(2 * math.pi)
#     else:
#         slope = 2 * cdf * (1 - cdf) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
#     return dy * (cdf + x * slope)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `(1 - saved.y * saved.y)` | `(1 - saved.y)` | The slope of tanh is 1 - y², with a square. |
# | `(1 - saved.y * saved.y)` | `(1 - np.tanh(saved.y) * np.tanh(saved.y))` | What is saved is y, which is tanh(x) already. |
# | `-x * math.sqrt(0.5)` | `x * math.sqrt(0.5)` | Phi(x) is erfc(-x/√2)/2: the minus sign is missing. |
# | `erfc(np, -x * math.sqrt(0.5))` | `erfc(np, -x)` | The normal distribution function divides x by √2. |
# | `dy * (cdf + x * slope)` | `dy * cdf` | The product rule has a second term, x times the slope of the cdf. |
# | `dy * (cdf + x * slope)` | `dy * slope` | The product rule has two terms; Phi itself is missing. |
# | `x * x * -0.5` | `x * x * 0.5` | The density falls: exp of minus x²/2. |
# | `2 * cdf * (1 - cdf)` | `cdf * (1 - cdf)` | (1 - tanh²)/2 is 2 c (1 - c): a factor of two is missing. |
# | `(1 + 3 * 0.044715 * x * x)` | `(1 + 0.044715 * x * x)` | The derivative of x³ is 3x². |
# | `dy * (cdf + x * slope)` | `dy * (cdf + slope)` | In the second term of the product rule x multiplies the slope of the cdf. |
# | `dy * (cdf + x * slope)` | `dy * x * slope` | The product rule has two terms; Phi itself is missing. |
# | `-x * math.sqrt(0.5)` | `-x * math.sqrt(2)` | x is divided by √2, not multiplied by it. |
# | `2 * cdf * (1 - cdf) * math.sqrt` | `math.sqrt` | The chain rule: c depends on x through tanh, whose slope is a factor beside that of u. |
# | `dy * (cdf + x * slope)` | `dy * cdf + x * slope` | What comes from above multiplies both terms of the product rule. |
#
# </details>

# %% [markdown]
# Both sides of every step of the derivation above, in numbers:

# %%
x = np.linspace(-4, 4, 161)
i_step = x + 1e-30j
course.equal("tanh' = 1 - tanh²", np.tanh(i_step).imag / 1e-30, 1 - np.tanh(x) ** 2)

cdf = 0.5 * erfc(np, -x * math.sqrt(0.5))
density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
course.equal("Phi(x) = erfc(-x/√2) / 2", cdf, [0.5 * math.erfc(-one / math.sqrt(2)) for one in x])
course.equal("Phi' = exp(-x²/2) / √2π", 0.5 * erfc(np, -i_step * math.sqrt(0.5)).imag / 1e-30, density)

root, cubic = math.sqrt(2 / math.pi), 0.044715
u = root * (x + cubic * x**3)
c = 0.5 + 0.5 * np.tanh(u)
course.equal("1 - tanh² u = 4 c (1 - c)", 1 - np.tanh(u) ** 2, 4 * c * (1 - c))
c_step = 0.5 + 0.5 * np.tanh(root * (i_step + cubic * i_step**3))
course.equal("c' = 2 c (1 - c) u'", c_step.imag / 1e-30, 2 * c * (1 - c) * root * (1 + 3 * cubic * x * x))

# %% [markdown]
# A remark about the machine. Why $\tfrac12 \operatorname{erfc}(-x/\sqrt2)$ rather than
# $\tfrac12 (1 + \operatorname{erf}(x/\sqrt2))$? Far to the left erf is $-1$ plus something tiny, and
# $1 + \dots$ cancels, as in section 1:

# %%
print(f"{'x':>4} {'(1 + erf) / 2':>22} {'erfc / 2':>22}")
for one in (-2.0, -6.0, -8.0, -9.0):
    print(
        f"{one:4.0f} {0.5 * (1 + math.erf(one / math.sqrt(2))):22.15e} {0.5 * math.erfc(-one / math.sqrt(2)):22.15e}"
    )

# %%
figure, panels = plt.subplots(1, 3, figsize=(10, 3.1), layout="constrained")
panels[0].plot(x, np.maximum(x, 0), ":", color="0.4", label="max(x, 0)")
panels[0].plot(x, x * cdf, "C0-", label="GELU")
panels[0].plot(x, np.tanh(x), "C1--", label="tanh")
panels[0].set(title="the curves", xlabel="x", ylim=(-1.2, 3))
panels[0].legend(fontsize=8)
panels[1].plot(x, x > 0, ":", color="0.4")
panels[1].plot(x, cdf + x * density, "C0-", label="GELU")
panels[1].plot(x, 1 - np.tanh(x) ** 2, "C1--", label="tanh")
panels[1].set(title="their slopes", xlabel="x")
tanh_slope = c + x * 2 * c * (1 - c) * root * (1 + 3 * cubic * x * x)
panels[2].plot(x, 1e3 * (x * c - x * cdf), "C0-", label="value")
panels[2].plot(x, 1e3 * (tanh_slope - cdf - x * density), "C1--", label="slope")
panels[2].set(title="tanh form − exact form, × 1,000", xlabel="x")
panels[2].legend(fontsize=8)
course.show(
    figure,
    "Three panels. GELU follows max(x, 0) with a small dip below zero; tanh saturates. The slope of GELU rises from zero, "
    "dips below zero near minus one and a half and overshoots one; that of tanh is a bump. The two forms of GELU differ "
    "by less than one thousandth in value, and a little more in slope.",
)
worst_value, worst_slope = abs(x * c - x * cdf).max(), abs(tanh_slope - cdf - x * density).max()
course.say(
    f"The two forms differ by at most **{worst_value:.1e}** in value and **{worst_slope:.1e}** in slope. Mixing them, "
    "one form forward and the other backward, is an easy mistake to make. Remember it for section 7."
)

# %% [markdown]
# The slope of tanh goes to zero on both sides: a number that has saturated passes almost nothing back. GELU
# stays open on the right. Its slope is even slightly larger than 1 around $x = 1.5$, and negative around
# $-1.5$.

# %%
course.source(Ops.gelu_backward)

# %% [markdown]
# ## 6. A first loss of your own
#
# Linear, GELU, linear, cross-entropy: with the four backward passes of this chapter you can train something. Let us not
# wait for attention. Take the task that BERT is named for, guessing a hidden piece from what surrounds it, and make it as
# small as it can be: two pieces on the left, two on the right, no order to find out, no depth. The pieces are real, 512
# of them, learnt from the books in the package.
#
# A table of vectors for the pieces is a linear layer, too. Write each of the four neighbours as 512 zeros with a single
# one in it, side by side, and $x\,W$ picks the four rows of $W$ that belong to them and adds them up. So the whole model
# is what you have just written. Every tenth document is **held out**: training never sees it, and it is what we measure
# on.

# %%
documents = [[]]
for line in sentences([embedded_corpus()]):
    if line:
        documents[-1].append(line)
    else:
        documents.append([])
reading = [line for document in documents for line in document]
tokenizer = Tokenizer(learn_vocab(count_words(reading, BasicTokenizer()), 512))
V = tokenizer.vocab_size


def pieces_of(some):
    """Return all pieces of some documents in a row, as ids."""
    return np.concatenate([tokenizer(line).ids[1:-1] for one in some for line in one]).astype(int)


held_out = pieces_of(documents[9::10])
read = pieces_of([one for n, one in enumerate(documents) if n % 10 < 9 and n % 3 == 0])
places = np.random.default_rng(5).integers(2, len(held_out) - 2, lesson.scale(4_000, 200))
print(
    f"{len(read):,} pieces to learn from, {len(held_out):,} held out, {len(places):,} of them to be guessed"
)
for place in places[:3]:
    shown = [tokenizer.vocab[one] for one in held_out[place - 2 : place + 3]]
    print("  ", *shown[:2], "[ ? ]", *shown[3:], "     it was", shown[2])

# %% [markdown]
# Before we train, the opponents. A model that knows nothing but how frequent each piece is has the **unigram** loss.
# Much better, and still without any training, is a table of counts: which piece follows which. (Pairs that were seen
# rarely are mixed with the frequencies, as chapter 10 explains.)

# %%
hidden_pieces, on_the_left = held_out[places], held_out[places - 1]
frequencies = (np.bincount(read, minlength=V) + 1) / (len(read) + V)
following = np.bincount(read[:-1] * V + read[1:], minlength=V * V).reshape(V, V)
mixed = following[on_the_left, hidden_pieces] + 100 * frequencies[hidden_pieces]
by_table = -np.log(mixed / (following.sum(1)[on_the_left] + 100))
by_frequency = -np.log(frequencies[hidden_pieces])
beats = lesson.predict(
    "1,500 steps of 128 guesses each, about half a minute. Whom will your network beat?",
    ...,
    choices=("nobody", "the frequencies", "the table of left neighbours"),
)


# %%
def neighbours(text, places):
    """Return four neighbours of each place, as rows of zeros with four ones (n, 4V)."""
    x = np.zeros((len(places), 4 * V), np.float32)
    for slot, distance in enumerate((-2, -1, 1, 2)):
        x[np.arange(len(places)), slot * V + text[places + distance]] = 1
    return x


def guess(ops, params, x, labels):
    """Return the loss of each guess, and what the backward needs."""
    inner, saved_1 = ops.linear(x, params["W1"], params["b1"])
    inner, saved_gelu = ops.gelu(inner, "erf")
    logits, saved_2 = ops.linear(inner, params["W2"], params["b2"])
    nll, saved_loss = ops.softmax_cross_entropy(logits, labels)
    return nll, (saved_1, saved_gelu, saved_2, saved_loss)


def guess_backward(ops, saved):
    """Return the gradients of the mean loss."""
    saved_1, saved_gelu, saved_2, saved_loss = saved
    count = len(saved_loss.labels)
    dlogits = ops.softmax_cross_entropy_backward(np.full(count, 1 / count, np.float32), saved_loss)
    dinner, dW2, db2 = ops.linear_backward(dlogits, saved_2)
    dinner = ops.gelu_backward(dinner, saved_gelu, "erf")
    _, dW1, db1 = ops.linear_backward(dinner, saved_1)
    return {"W1": dW1, "b1": db1, "W2": dW2, "b2": db2}


ops, draws = lesson.engine(), np.random.default_rng(0)
shapes = {"W1": (4 * V, 64), "b1": (64,), "W2": (64, V), "b2": (V,)}
params = {name: (0.1 * draws.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
params["b2"] = np.log(frequencies).astype(np.float32)  # so that it begins with what is known already
untrained, curve, checked = params, [], {}
steps, shown = lesson.scale(1_500, 30), neighbours(held_out, places)
with limited_threads(1):  # several threads are slower with matrices this small
    for step in range(steps + 1):
        if step % (steps // 10) == 0:
            checked[step] = guess(ops, params, shown, hidden_pieces)[0].mean()
        at = draws.integers(2, len(read) - 2, 128)
        nll, saved = guess(ops, params, neighbours(read, at), read[at])
        found = guess_backward(ops, saved)
        rate = 5 * (1 - step / (steps + 1))
        params = {name: one - np.float32(rate) * found[name] for name, one in params.items()}
        curve.append(nll.mean())

# %%
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.plot(curve, color="C0", lw=0.4, alpha=0.5)
ax.plot(*zip(*checked.items(), strict=True), "o-", color="C3", ms=4, label="yours, held out")
for height, style, name in (
    (by_frequency.mean(), ":", "frequencies"),
    (by_table.mean(), "--", "table of left neighbours"),
):
    ax.axhline(height, color="0.4", ls=style, lw=1.2, label=name)
ax.set(xlabel="step", ylabel="loss (nats)", title="Your first loss: a hidden piece from its four neighbours")
ax.legend(fontsize=8)
course.show(
    figure,
    "Loss of the small network against the step, on the batches it learns from and on held-out text, with two horizontal "
    "lines: the frequencies of the pieces, and below it the table of left neighbours. The curve falls below both.",
)
trained = guess(ops, params, shown, hidden_pieces)[0]
shuffled = shown[np.random.default_rng(1).permutation(len(shown))]
verdict = lesson.claim(
    "it has learnt more than a table of left neighbours",
    trained,
    by_table,
    {
        "untrained": guess(ops, untrained, shown, hidden_pieces)[0],
        "neighbours of other places": guess(ops, params, shuffled, hidden_pieces)[0],
    },
    unit="nats",
)
beaten = "the table of left neighbours" if trained.mean() < by_table.mean() else "the frequencies"
beats.answer(beaten if trained.mean() < by_frequency.mean() else "nobody", f"{trained.mean():.2f} nats.")

# %% [markdown]
# The two lines below "ours" are experiments that must fail if the measurement is honest: the network before training, and
# the trained one when it is shown the neighbours of some other place. Everything that comes in the next five chapters
# (tables, LayerNorm, attention, better steps) is there to do better than these few lines.

# %% [markdown]
# ## 7. Parts that pass, and a whole that fails
#
# Time to put links together: two linear layers with GELU between them, and cross-entropy on top. The backward pass
# calls the backward of each operation in reverse order, and hands on what comes out. The engine below is
# yours as far as it goes; minibert's operations stand in for the rest.

# %%
ops = lesson.engine()
SHAPES = {"x": (7, 5), "W1": (5, 9), "b1": (9,), "W2": (9, 4), "b2": (4,)}
rng = np.random.default_rng(8)
arguments = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
labels, row_weights = rng.integers(4, size=7), rng.uniform(0.2, 1.8, size=7) / 7


def network(ops, x, W1, b1, W2, b2, labels=labels, row_weights=row_weights):
    """Return the weighted loss, and what the backward needs."""
    inner, saved_1 = ops.linear(x, W1, b1)
    inner, saved_gelu = ops.gelu(inner, "erf")
    logits, saved_2 = ops.linear(inner, W2, b2)
    nll, saved_loss = ops.softmax_cross_entropy(logits, labels)
    return (nll * row_weights).sum(), (saved_1, saved_gelu, saved_2, saved_loss, row_weights)


def network_backward(ops, saved):
    """Return the gradients of the loss with respect to x, W1, b1, W2, b2."""
    saved_1, saved_gelu, saved_2, saved_loss, row_weights = saved
    dlogits = ops.softmax_cross_entropy_backward(row_weights, saved_loss)
    dinner, dW2, db2 = ops.linear_backward(dlogits, saved_2)
    dinner = ops.gelu_backward(dinner, saved_gelu, "erf")
    dx, dW1, db1 = ops.linear_backward(dinner, saved_1)
    return dict(zip(SHAPES, (dx, dW1, db1, dW2, db2), strict=True))


loss, saved = network(ops, **arguments)
gradients = network_backward(ops, saved)


def measured(name, v):
    """Differentiate the loss along v, an array like the argument of that name, by the complex step."""
    moved = arguments | {name: arguments[name] + 1e-30j * v}
    return network(Ops(), **moved)[0].imag / 1e-30


for name, gradient in gradients.items():
    v = rng.standard_normal(gradient.shape)
    by_hand, truth = (gradient * v).sum(), measured(name, v)
    print(f"{name:3} by hand {by_hand:+.15f}   measured {truth:+.15f}")

# %% [markdown]
# They agree to fifteen digits. If the parts are right and the wiring is right, so is the whole.
#
# Now the reverse. Below are six ways to get one line wrong, each easy to write and easy to overlook.
#
# | | planted fault |
# |---|---|
# | A | the gradient of a bias is a mean over the tokens |
# | B | the forward of GELU is exact, but its backward uses the slope of the tanh form |
# | C | every row of the loss gets the mean of all row weights |
# | D | the backward of GELU forgets the term x Φ'(x) |
# | E | cross-entropy subtracts its one at the most likely answer, not at the label |
# | F | the gradient of a weight leaves out the last token |


# %%
class Planted(Ops):
    """An engine with one fault."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    def linear_backward(self, dy, saved):
        dx, dweight, dbias = super().linear_backward(dy, saved)
        if self.fault == "A":
            dbias = dbias / len(dy)
        if self.fault == "F":
            dweight = saved.x[:-1].T @ dy[:-1]
        return dx, dweight, dbias

    def gelu_backward(self, dy, saved, form):
        if self.fault == "D":
            return dy * saved.cdf
        return super().gelu_backward(dy, saved, "tanh" if self.fault == "B" else form)

    def softmax_cross_entropy_backward(self, dnll, saved):
        if self.fault == "C":
            dnll = np.full_like(dnll, dnll.mean())
        if self.fault == "E":
            saved = saved._replace(labels=saved.probabilities.argmax(-1))
        return super().softmax_cross_entropy_backward(dnll, saved)


def fingerprint(fault, directions=20):
    """Return for each argument the typical error of its gradient, relative to its size."""
    draws, errors = np.random.default_rng(0), []
    engine = Planted(fault)
    for name, gradient in network_backward(engine, network(engine, **arguments)[1]).items():
        for_this = []
        for _ in range(directions):
            v = draws.standard_normal(gradient.shape)
            size = np.linalg.norm(gradient) * np.linalg.norm(v)
            for_this.append(abs((gradient * v).sum() - measured(name, v)) / size)
        errors.append(np.sqrt(np.mean(np.square(for_this))))
    return np.array(errors)


def draw_fingerprints(faults, names, title, alt):
    """Draw one row of errors for each fault."""
    table = np.log10(np.array([fingerprint(fault) for fault in faults]).clip(1e-17))
    figure, ax = plt.subplots(figsize=(6.4, 0.9 + 0.42 * len(faults)), layout="constrained")
    picture = ax.imshow(table, cmap="cividis", vmin=-17, vmax=0, aspect="auto")
    for (row, column), entry in np.ndenumerate(table):
        ax.text(column, row, f"{entry:.0f}", ha="center", va="center", color="w" if entry < -8 else "k")
    ax.set_xticks(range(5), SHAPES)
    ax.set_yticks(range(len(faults)), names)
    ax.set_title(title)
    figure.colorbar(picture, ax=ax, label="log₁₀ of the error")
    course.show(figure, alt)


mystery = list(bytes([70, 66, 67]).decode())  # three of the letters, not in plain sight
draw_fingerprints(
    ["none", *mystery], ["no fault", "first", "second", "third"], "Error of each gradient, as a power of ten",
    "Errors of the gradients of x, W1, b1, W2 and b2. Without a fault all are about ten to the minus sixteen. The first "
    "fault spoils W1 and W2 only. The second spoils x, W1 and b1, slightly. The third spoils all five.",
)  # fmt: skip

# %% [markdown]
# A row of this picture is the **fingerprint** of a fault: which gradients it spoils, and how much. The three rows below
# "no fault" belong to three of the six, in no particular order. A fault in a gradient that is handed down (a `dx`)
# spoils everything that is computed after it on the way back. A fault in the gradient of a parameter spoils that
# parameter alone. Neither touches what was computed before. Which letters are they?

# %%
first = lesson.predict("The first fault?", ..., choices=("A", "B", "C", "D", "E", "F"))
second = lesson.predict("The second?", ..., choices=("A", "B", "C", "D", "E", "F"))
third = lesson.predict("The third?", ..., choices=("A", "B", "D", "F", "C or E"))

# %% [markdown]
# Take a moment before you run the next cell. For the second, look at how *large* the error is, too.

# %%
first.answer(mystery[0], "both weights are wrong, and nothing else.")
second.answer(
    mystery[1],
    f"only what lies below GELU is wrong, and by no more than {fingerprint('B').max():.0e}: a slope that is nearly right.",
)
third.answer("C or E", "everything is wrong, so it happened at the very top, where both of these are.")
draw_fingerprints(
    list("ABCDEF"), list("ABCDEF"), "All six",
    "Fingerprints of all six faults. A spoils the biases, B and D the arguments below GELU, B slightly and D grossly, "
    "C and E everything, F the weights.",
)  # fmt: skip

# %% [markdown]
# C and E spoil the same gradients, so the row alone cannot say which of them it is. To find out, you test the suspect
# operation alone, and that is how the judge works: it checks each operation by itself, after everything that this
# operation relies on has passed.
#
# ### Would training have told you?
#
# Train the same small network with each faulty engine: 200 examples, labels chosen by another random network, 400 steps
# against whatever the engine calls the gradient.

# %%
still_learn = lesson.predict(
    "Of the six faults, how many still bring the loss below half of where it started?",
    ...,
    choices=tuple(range(7)),
)


# %%
def train(fault, steps=400):
    """Return the loss at each step."""
    draws, engine = np.random.default_rng(4), Planted(fault)
    examples, weights = draws.standard_normal((200, 5)), draws.uniform(0.2, 1.8, 200) / 200
    teacher = {name: draws.standard_normal(SHAPES[name]) for name in ("W1", "b1", "W2", "b2")}
    inner = Ops().gelu(examples @ teacher["W1"] + teacher["b1"], "erf")[0]
    right = (inner @ teacher["W2"] + teacher["b2"]).argmax(-1)
    params, losses = {name: 0.3 * draws.standard_normal(one.shape) for name, one in teacher.items()}, []
    for _ in range(steps):
        loss, saved = network(engine, examples, **params, labels=right, row_weights=weights)
        found = network_backward(engine, saved)
        params = {name: one - 0.5 * found[name] for name, one in params.items()}
        losses.append(loss)
    return np.array(losses)


curves = {fault: train(fault) for fault in ["none", *"ABCDEF"]}
figure, ax = plt.subplots(figsize=(7, 3.4))
styles = ["-", "--", ":", "-.", "--", "-", ":"]
for number, (fault, curve) in enumerate(curves.items()):
    label = "no fault" if fault == "none" else fault
    ax.plot(curve, styles[number], lw=2.5 if fault == "none" else 1.3, color=f"C{number}", label=label)
ax.set(xlabel="step", ylabel="loss (nats)", yscale="log", title="Training with a wrong gradient")
ax.legend(fontsize=8, ncols=4)
course.show(
    figure,
    "Training loss against step for the right engine and six faulty ones. All curves but that of fault E fall, and "
    "several can't be told from the right one.",
)
half = sum(curve[-1] < curve[0] / 2 for curve in list(curves.values())[1:])
still_learn.answer(half, "a wrong gradient that points roughly downhill still goes downhill.")
apart = abs(curves["B"] / curves["none"] - 1).max()
course.say(
    f"After 400 steps the right engine is at **{curves['none'][-1]:.3f}** nats, and the faulty ones at "
    + ", ".join(f"{name} **{curve[-1]:.3f}**" for name, curve in curves.items() if name != "none")
    + f". The curve of B is always within {apart:.0e}, relative, of the right one."
)

# %% [markdown]
# ### Why exactness matters
#
# Would ordinary differences have found them, in float32, which is what training runs in? The picture shows the error
# that each checker measures for each fault, next to the one that it measures when nothing is wrong. That first group is
# the checker's noise: a tolerance has to lie above it. A fault is found only if its bar rises above the tolerance.


# %%
def seen_by(is_complex, fault, dtype, h):
    """Return the median error over directions, for one way to measure the derivative."""
    draws, errors = np.random.default_rng(1), []
    at = {name: one.astype(dtype) for name, one in arguments.items()}
    engine = Planted(fault)
    gradients = network_backward(engine, network(engine, **at)[1])
    for _ in range(31):
        v = {name: draws.standard_normal(one.shape).astype(dtype) for name, one in at.items()}
        if is_complex:
            truth = network(Ops(), **{n: at[n] + 1j * h * v[n] for n in at})[0].imag / h
        else:
            ahead = network(Ops(), **{n: at[n] + dtype(h) * v[n] for n in at})[0]
            behind = network(Ops(), **{n: at[n] - dtype(h) * v[n] for n in at})[0]
            truth = (float(dtype(ahead)) - float(dtype(behind))) / (2 * h)
        along = sum(float((gradients[n] * v[n]).sum()) for n in at)
        size = math.sqrt(
            sum(float((gradients[n] ** 2).sum()) for n in at) * sum(float((v[n] ** 2).sum()) for n in at)
        )
        errors.append(abs(along - truth) / size)
    return np.median(errors)


checkers = {
    "float32 differences, h = 0.001": (False, np.float32, 1e-3, "C1", "//"),
    "float64 differences, h = 0.00001": (False, np.float64, 1e-5, "C0", ""),
    "complex step": (True, np.float64, 1e-30, "0.6", ".."),
}
faults = ["none", *"ABCDEF"]
saw = {name: [seen_by(how[0], fault, how[1], how[2]) for fault in faults] for name, how in checkers.items()}
figure, ax = plt.subplots(figsize=(8.5, 3.6), layout="constrained")
for at, (name, (*_, colour, hatch)) in enumerate(checkers.items()):
    places = np.arange(len(faults)) + 0.27 * (at - 1)
    ax.bar(places, np.maximum(saw[name], 1e-17), 0.25, color=colour, hatch=hatch, label=name)
ax.axhline(1e-3, color="0.3", ls="--", lw=1)
ax.annotate("tolerance 0.001", (-0.5, 2e-3), fontsize=8)
ax.set(yscale="log", ylim=(1e-17, 1e3), ylabel="error seen", xlabel="planted fault")
ax.set_xticks(range(len(faults)), ["no fault", *"ABCDEF"])
ax.legend(fontsize=8, ncols=3, loc="upper center")
course.show(
    figure,
    "Bars show the error that three checkers see, with no fault and with each of six. Without a fault the "
    "complex step sees the least by far, differences in float64 some powers of ten more, and differences in float32 the "
    "most, not far below what they see with fault B. Fault B stays far below a tolerance of one thousandth.",
)
gaps = {name: min(errors[1:]) / max(errors[0], 1e-17) for name, errors in saw.items()}
course.say(
    f"The faintest fault is **{gaps['complex step']:.0e}** times the noise of the complex step, and only "
    f"**{gaps['float32 differences, h = 0.001']:.0f}** times that of float32 differences, in a network of "
    "two small layers. The noise grows with every layer and changes with $h$, so people choose a generous "
    "tolerance."
)

# %% [markdown]
# A relative tolerance of 0.001 is a common choice (it is the default of PyTorch's own checker, which adds an absolute
# 0.00001). Compare fault B with the true gradients, entry by entry, by that rule:

# %%
faulty = network_backward(Planted("B"), network(Planted("B"), **arguments)[1])
pairs = [(faulty[name].ravel(), gradients[name].ravel()) for name in SHAPES]
found, truth = (np.concatenate(one) for one in zip(*pairs, strict=True))
caught = int((abs(found - truth) > 1e-5 + 1e-3 * abs(truth)).sum())
course.say(
    f"**{caught} of {len(truth)}** entries break the rule: differences of every single entry would have found B. But with "
    f"a hundred million entries one can try only a few. Five, drawn at random, all pass with probability "
    f"**{math.prod((len(truth) - caught - n) / (len(truth) - n) for n in range(5)):.2f}**. "
    f"With a bound of $10^{{-12}}$ **{int((abs(found - truth) > 1e-12 * abs(truth).max()).sum())}** entries are wrong, "
    "all those below GELU, and a single random direction shows it."
)

# %% [markdown]
# Fault C holds one more warning. Had all row weights been equal, each would have equalled their mean, and C
# would have been invisible to *every* checker. The same goes for biases of zero, square matrices, a batch of
# one, or labels that never repeat. The more irregular its inputs, the better the check. Numbers with no
# accidental zeros, ones, ties or equal sizes are said to be in **general position**. The judge draws all of
# its arrays that way.
#
# ### Exercise 05.11 (hard): write the judge
#
# `f(*arguments)` returns one number, and takes complex arrays, too. `gradients` holds somebody's gradients,
# one for each argument. Return the list of the places (0, 1, …, ascending) where they are wrong. A gradient
# of the wrong shape is wrong, so is one that holds a NaN, and so is one that is off by one part in a million of its
# largest entry; a rounding error is not, so your tolerance has to be relative. Gradients may be as small as $10^{-6}$
# or as large as $10^{6}$, and one that is rightly zero everywhere is not wrong. The number itself is far larger than its
# changes, as in 05.1.


# %%
# Exercise 05.11
def wrong_gradients(f, arguments, gradients, rng):
    """Return the ascending list of places whose gradient is wrong; rng is there to draw directions from."""
    ...


# %%
lesson.check(wrong_gradients)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# For each place draw a random direction, move that one argument along it by an imaginary step, leave the others where
# they are, and compare the imaginary part over h with the sum of gradient times direction.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Compare the difference with 1e-12 times the size of the gradient, `np.linalg.norm(gradient)`. Count the
# gradient as right only if the difference is at most that (`not … <= …`): then zero compared with zero is
# right, and a gradient that is not a number is wrong. Look at the shape first.
#
# </details>
# <details><summary>Solution 05.11</summary>
#
# ```python
# def wrong_gradients(f, arguments, gradients, rng):
#     wrong = []
#     for place, (x, gradient) in enumerate(zip(arguments, gradients)):
#         if gradient.shape != x.shape:
#             wrong.append(place)
#             continue
#         v = rng.standard_normal(x.shape)
#         moved = [*arguments[:place], x + 1e-30j * v, *arguments[place + 1 :]]
#         exact = f(*moved).imag / 1e-30
#         if not abs((gradient * v).sum() - exact) <= 1e-12 * np.linalg.norm(gradient):
#             wrong.append(place)
#     return wrong
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `v = rng.standard_normal(x.shape)` | `v = np.ones(x.shape)` | Along the direction of all ones, errors that sum to zero are invisible; draw v at random. |
# | `1e-12 * np.linalg.norm(gradient)` | `1e-12` | Gradients come in all sizes: compare the error with that of the gradient. |
# | `1e-12 * np.linalg.norm(gradient)` | `1e-6` | Gradients come in all sizes: compare the error with that of the gradient. |
# | `1e-12 * np.linalg.norm(gradient)` | `1e-3 * np.linalg.norm(gradient)` | An error of one part in a million must be seen; rounding is a million times smaller still. |
# | `not abs((gradient * v).sum() - exact) <=` | `abs((gradient * v).sum() - exact) >` | A difference that is not a number is not greater than anything, and yet the gradient is wrong. |
# | `f(*moved).imag / 1e-30` | `(f(*arguments[:place], x + 1e-5 * v, *arguments[place + 1 :]) - f(*arguments[:place], x - 1e-5 * v, *arguments[place + 1 :])) / 2e-5` | A central difference loses the digits that matter, since the number is far larger than its changes; the complex step subtracts nothing. |
# | `<= 1e-12` | `< 1e-12` | A gradient that is rightly zero has size zero: zero is not smaller than zero, but equal to it. |
# | `<= 1e-12` | `<= 1e-2` | An error of one part in a million must be seen; rounding is a million times smaller still. |
# | `abs((gradient * v).sum() - exact)` | `((gradient * v).sum() - exact)` | An error may have either sign: take its absolute value. |
# | `1e-30j * v` | `1e-30j` | The derivative along v needs a step along v. |
# | `not abs((gradient * v).sum() - exact) <= 1e-12 * np.linalg.norm(gradient)` | `not np.isclose((gradient * v).sum(), exact)` | np.isclose allows an absolute 1e-8 and a relative 1e-5: both are more than the smallest errors here. |
# | `return wrong` | `return [place + 1 for place in wrong]` | Places are counted from 0. |
#
# </details>

# %% [markdown]
# Your judge on three of the planted faults, if you have written it:

# %%
if lesson.passed("05.11"):
    for fault in ["none", *mystery]:
        engine = Planted(fault)
        found = network_backward(engine, network(engine, **arguments)[1])
        wrong = wrong_gradients(
            lambda *values: network(Ops(), *values)[0], tuple(arguments.values()), tuple(found.values()), rng
        )
        print(f"fault {fault}: {', '.join(list(SHAPES)[place] for place in wrong) or 'nothing wrong'}")
else:
    print("05.11 is still open.")

# %% [markdown]
# ## 8. Your engine so far
#
# The proof sheet judges every operation again, with freshly drawn shapes and numbers. It has a row for each
# operation that one step of pre-training calls. `keep` writes yours to `mine.py`, and the next chapter reads
# it.

# %%
lesson.sheet()

# %%
lesson.keep()

# %% [markdown]
# ## What we saw
#
# * A central difference has a best step, and even there its accuracy is limited. The complex step subtracts nothing,
#   and is exact to rounding.
# * It needs holomorphic code: multiply, never `abs`; decide by `.real`.
# * A backward pass is $J^\top \mathtt{dy}$, computed without building $J$. The gradient of an array has its shape.
# * Softmax and cross-entropy together give $p - \text{onehot}$, which is bounded and needs no division.
# * The backward of a curve multiplies by its slope; both forms of GELU need only $x$ and the factor beside
#   it.
# * Linear, GELU and cross-entropy are enough to learn from real text: four neighbours tell more than a table of one.
# * A fault spoils what comes after it on the way back. Training hides small errors, and only an exact judge on
#   irregular inputs sees them.
#
# ## Words
#
# - **gradient**: all first derivatives of one number with respect to the entries of an array; it has the array's shape.
# - **central difference**: a derivative measured from the values a step before and a step after a point.
# - **truncation error**: what is left out when a series is cut off.
# - **cancellation**: the loss of digits when two nearly equal numbers are subtracted.
# - **complex step**: a derivative read off the imaginary part after an imaginary step.
# - **directional derivative**: how fast a function changes along a direction, the sum of gradient times direction.
# - **holomorphic**: having a derivative in the complex plane.
# - **upstream gradient**: the gradient of the loss with respect to an operation's result, which its backward pass is
#   given.
# - **Jacobian**: the table of the derivatives of all outputs with respect to all inputs.
# - **backward pass**: the calculation of the gradients of the inputs from the upstream gradient.
# - **fingerprint**: of a fault, which gradients it spoils, and how much.
# - **general position**: said of numbers without accidental zeros, ones, ties or equal sizes.
#
# ## Where to go next
#
# * [Chapter 06](06_the_hard_backwards.ipynb): the backward passes that people look up: normalising a row, attention,
#   and tables that are used twice.
# * `minibert gradcheck` prints this judge's verdict on every operation of every engine that you have installed.
# * Squire & Trapp, *Using complex variables to estimate derivatives of real functions* (1998): the complex step in
#   three pages.
# * Hendrycks & Gimpel, [*Gaussian error linear units*](https://arxiv.org/abs/1606.08415) (2016).
