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
# * push derivatives back through a matrix product, a softmax with cross-entropy, and the curves tanh and GELU;
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

from minibert import course
from minibert.core.ops.erf import erfc
from minibert.core.ops.primitives import GeluSaved, LinearSaved, TanhSaved
from minibert.model.ops import Ops

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
def growth(a, constant, x):
    return np.exp(a * x).sum() + constant


def draw_growth(rng):
    shape = tuple(rng.integers(1, 5, size=rng.integers(1, 3)))
    a, v = rng.uniform(0.5, 2, size=(2, *shape))
    return partial(growth, a, 10 ** rng.uniform(7, 9)), rng.standard_normal(shape), v


lesson.check(
    complex_derivative,
    draw=draw_growth,
    same_as=lambda f, x, v: float((f.args[0] * np.exp(f.args[0] * x) * v).sum()),
)

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
H_STEP = 1e-7  # large enough to see in print, and its square is 1e-14


def draw_moved(rng):
    x, v = rng.standard_normal((2, rng.integers(1, 9))) * rng.uniform(0.5, 3)
    x[rng.random(len(x)) < 0.2] += 2.0
    return (x + 1j * H_STEP * v,)


def draw_with_zero(rng):
    (moved,) = draw_moved(rng)
    return (np.concatenate([moved, 1j * H_STEP * np.ones(1)]),)


def value_and_slope(value, derivative):
    """Make a law: the real part is value(x), and the imaginary part carries derivative(x, v)."""

    def law(answer, moved):
        x, v = moved.real, moved.imag / H_STEP
        if np.shape(answer) != np.shape(value(x)):
            return f"the answer has the shape {np.shape(answer)}; expected {np.shape(value(x))}."
        if not np.allclose(np.real(answer), value(x), rtol=1e-11, atol=1e-12):
            return "for real numbers it is not the same function as NumPy's."
        scale = 1 + np.linalg.norm(v) * (1 + np.linalg.norm(x))
        if not np.all(abs(np.imag(answer) / H_STEP - derivative(x, v)) <= 1e-8 * scale):
            return "the values are right, and the derivative in the imaginary part is lost or wrong."
        return None

    return law


lesson.check(
    variance,
    draw=draw_moved,
    law=value_and_slope(np.var, lambda x, v: 2 * np.mean((x - x.mean()) * v)),
    times=8,
)
lesson.check(
    length,
    draw=draw_moved,
    law=value_and_slope(np.linalg.norm, lambda x, v: x @ v / np.linalg.norm(x)),
    times=8,
)
lesson.check(
    hinge,
    draw=draw_with_zero,
    law=value_and_slope(lambda x: np.maximum(x, 0), lambda x, v: (x > 0) * v),
    times=8,
)

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
# | `np.sqrt((x * x).sum())` | `np.linalg.norm(x)` | NumPy's norm takes absolute values. |
# | `np.where(x.real > 0, x, 0)` | `(x + abs(x)) / 2` | abs forgets the imaginary part, so half of the derivative is lost. |
# | `np.where(x.real > 0, x, 0)` | `np.where(x.real > 0, x.real, 0)` | Decide by the real part, but return the whole number. |
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


def jacobian(function, x):
    """Measure every derivative of every output: one complex step for each input."""
    columns = []
    for one in np.eye(x.size):
        columns.append(function(x + 1e-30j * one.reshape(x.shape)).imag.ravel() / 1e-30)
    return np.array(columns).T


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
# mix in a linear layer. The rectangle is $W^\top$. The right picture repeats the numbers of $x$. A Jacobian is almost
# always this redundant, so a backward pass never builds it. It computes $J^\top \mathtt{dy}$ directly.
#
# ### The linear layer
#
# $$ y_{tn} = \sum_k x_{tk} W_{kn} + b_n $$
#
# One entry $x_{tk}$ reaches the outputs of its own row, $y_{t1}, \dots, y_{tN}$, with weights $W_{k1}, \dots, W_{kN}$:
#
# $$ \mathtt{dx}_{tk} = \sum_n \mathtt{dy}_{tn} W_{kn} \quad\Longrightarrow\quad \mathtt{dx} = \mathtt{dy}\, W^\top $$
#
# One entry $W_{kn}$ is used by every token $t$, each time multiplied by $x_{tk}$, and reaches column $n$ of that row:
#
# $$ \mathtt{dW}_{kn} = \sum_t x_{tk}\, \mathtt{dy}_{tn} \quad\Longrightarrow\quad \mathtt{dW} = x^\top \mathtt{dy} $$
#
# and $b_n$ is added to every row, so $\mathtt{db}_n = \sum_t \mathtt{dy}_{tn}$. Three equations, three checks. On the
# left is the measured Jacobian, on the right the formula:

# %%
course.equal("dx:  J^T dy = dy W^T", (J.T @ dy.ravel()).reshape(T, K), dy @ weight.T)
course.equal("dW:  J^T dy = x^T dy", (J_weight.T @ dy.ravel()).reshape(K, N), x.T @ dy)
by_bias = jacobian(lambda b: Ops().linear(x, weight, b)[0], bias)
course.equal("db:  J^T dy = sum of dy over rows", by_bias.T @ dy.ravel(), dy.sum(0))

# %% [markdown]
# ### Exercise 05.3 (core): a linear layer, there and back
#
# Write both halves. `x` is (T, K), `weight` (K, N), `bias` (N,). The forward keeps `LinearSaved(x, weight)`. They are
# methods of your engine, hence the `self`, which you do not need here.
#
# One rule holds for every operation from here on: if all its inputs are in single precision (float32), so are
# its results, for that is what training runs in. Two things break this rule easily: `np.sqrt` of a plain
# number, which gives one in double precision (`math.sqrt` does not), and `np.zeros` without a `dtype`. The
# judge checks.


# %%
# Exercise 05.3
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
# <details><summary>Solution 05.3</summary>
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

# %% [markdown]
# The judge drew shapes you have not seen, took the complex step of the *forward*, and compared along random directions.
# That takes no formula for `dx`. A tiny error in one entry may stay below the tolerance of the sum, so it also compared
# each entry with minibert's own backward, which has to pass the same proof (`minibert gradcheck`). This is it:

# %%
course.source(Ops.linear_backward)

# %% [markdown]
# ## 4. Softmax and cross-entropy
#
# The model gives each of $K$ answers a score $z_k$ (a *logit*). Softmax turns them into probabilities,
# $p_k = e^{z_k} / \sum_j e^{z_j}$, and the loss of one row is $-\ln p_\ell$, where $\ell$ is the right answer. What
# comes back?
#
# First softmax alone. With $S = \sum_j e^{z_j}$ the quotient rule gives
#
# $$ \frac{\partial p_j}{\partial z_k} = \frac{\delta_{jk} e^{z_j}}{S} - \frac{e^{z_j} e^{z_k}}{S^2}
#    = \delta_{jk}\, p_j - p_j p_k, \qquad J = \operatorname{diag}(p) - p\,p^\top , $$
#
# where $\delta_{jk}$ is 1 if $j = k$ and 0 otherwise. Raising one score raises its own probability and takes from all
# others, in proportion to what they have.


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

# %% [markdown]
# Now the loss on top. The gradient of $-\ln p_\ell$ with respect to $p$ is $-1/p_\ell$ at $\ell$ and zero elsewhere.
# Send it back through $J$:
#
# $$ \mathtt{dz}_k = \sum_j \mathtt{dp}_j J_{jk} = -\frac{1}{p_\ell}\left(\delta_{\ell k}\, p_\ell - p_\ell p_k\right)
#    = p_k - \delta_{\ell k} $$
#
# The $1/p_\ell$, which explodes when the model is very wrong, cancels against the $p_\ell$ of the Jacobian. That is why
# libraries offer the two as one operation. If they were kept apart, a probability that underflows to zero would give
# infinity times zero. There is a second way to see it: $-\ln p_\ell = \ln S - z_\ell$, and the derivative of $\ln S$ is
# $p$.

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
# In minibert the losses of a batch are *not* averaged inside the operation. It returns one loss for each row, and each
# row's weight (such as one over the number of rows) comes back down as the upstream gradient `dnll`.
#
# ### Exercise 05.4 (core): cross-entropy, backwards
#
# `dnll` is (N,): one upstream number for each row. `saved.probabilities` is (N, K) and `saved.labels` (N,), whole
# numbers. There may be no rows at all. Leave `saved` as it is; somebody else may want to read it.


# %%
# Exercise 05.4
def softmax_cross_entropy_backward(self, dnll, saved):
    """Return dlogits (N,K); dnll is (N,), saved has probabilities (N,K) and labels (N,)."""
    ...


# %%
lesson.check(softmax_cross_entropy_backward)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Row by row it is p minus a one at the label, times that row's `dnll`. `dnll[:, None]` turns it into a column.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `np.arange(K) == labels[:, None]` is a table (N, K), true at each row's label.
#
# </details>
# <details><summary>Solution 05.4</summary>
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
#
# </details>

# %% [markdown]
# ## 5. Two curves
#
# After a matrix product a network needs something that is not linear, or all layers would collapse into one.
# BERT uses two curves: GELU inside every layer, and tanh on top, over the token `[CLS]`. Both act on each
# number alone, so their Jacobians are diagonal, and a backward pass is a product: `dx = dy * slope`.
#
# **tanh.** $\tanh = \sinh / \cosh$, and the quotient rule gives
# $\tanh' = (\cosh^2 - \sinh^2)/\cosh^2 = 1 - \tanh^2$. The result $y$ is all the backward needs: save $y$, not $x$.
#
# **GELU** (Hendrycks & Gimpel 2016) multiplies each number by the probability that a standard normal number lies below
# it: $\operatorname{gelu}(x) = x\,\Phi(x)$. The product rule:
#
# $$ \operatorname{gelu}'(x) = \Phi(x) + x\,\Phi'(x), \qquad \Phi'(x) = \frac{1}{\sqrt{2\pi}}\, e^{-x^2/2} $$
#
# There is a second form, found in later versions of the authors' code and in GPT-2. It replaces $\Phi$ with
#
# $$ c(x) = \tfrac12 + \tfrac12 \tanh u(x), \qquad u(x) = \sqrt{2/\pi}\,\left(x + 0.044715\,x^3\right). $$
#
# Its slope: $c' = \tfrac12 (1 - \tanh^2 u)\, u'$. Now $\tanh u = 2c - 1$, so
# $1 - \tanh^2 u = 1 - (2c-1)^2 = 4c(1-c)$, and
#
# $$ c'(x) = 2\,c\,(1 - c)\,u'(x), \qquad u'(x) = \sqrt{2/\pi}\,\left(1 + 3 \cdot 0.044715\,x^2\right). $$
#
# So in both forms the backward needs $x$ and the factor ($\Phi$ or $c$), and no tanh is computed twice. Here
# are both sides of every step:

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
# Two remarks about the machine. Python's `math.erf` refuses complex numbers, so minibert has an error function of its
# own, `erfc(np, x)`, which is holomorphic. And why $\tfrac12 \operatorname{erfc}(-x/\sqrt2)$ rather than
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
    "one form forward and the other backward, is an easy mistake to make. Remember it for section 6."
)

# %% [markdown]
# The slope of tanh goes to zero on both sides: a number that has saturated passes almost nothing back. GELU
# stays open on the right. Its slope is even slightly larger than 1 around $x = 1.5$, and negative around
# $-1.5$.
#
# ### Exercise 05.5 (core): tanh and GELU
#
# `form` is `"erf"` or `"tanh"`. Save `TanhSaved(y)` and `GeluSaved(x, cdf)`, where `cdf` is the factor beside x, $\Phi$
# or $c$. Arrays may have any shape. `erfc(np, x)` is there for you; its first argument is the array library.


# %%
# Exercise 05.5
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
# The formulas for c' are in the derivation: the normal density for "erf", 2 c (1 - c) u' for "tanh". The cell
# that checks them has them in NumPy.
#
# </details>
# <details><summary>Solution 05.5</summary>
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
#
# </details>

# %%
course.source(Ops.gelu_backward)

# %% [markdown]
# ## 6. Parts that pass, and a whole that fails
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
# that each checker measures for each fault, beside the one that it measures when nothing is wrong. That first group is
# the checker's noise: a tolerance has to lie above it. A fault is found only if its bar rises above the
# tolerance.


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
    "complex step sees ten to the minus seventeen, differences in float64 ten to the minus eleven, and "
    "differences in float32 ten to the minus six, one tenth of what they see with fault B. Fault B "
    "stays far below a tolerance of one thousandth.",
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
# ### Exercise 05.6 (hard): write the judge
#
# `f(*arguments)` returns one number, and takes complex arrays, too. `gradients` holds somebody's gradients,
# one for each argument. Return the list of the places (0, 1, …, ascending) where they are wrong. A gradient
# of the wrong shape is wrong, so is one that holds a NaN, and so is one that is off by one part in a million of its
# largest entry; a rounding error is not, so your tolerance has to be relative. Gradients may be as small as $10^{-6}$
# or as large as $10^{6}$, and one that is rightly zero everywhere is not wrong. The number itself is far larger than its
# changes, as in 05.1.


# %%
# Exercise 05.6
def wrong_gradients(f, arguments, gradients, rng):
    """Return the ascending list of places whose gradient is wrong; rng is there to draw directions from."""
    ...


# %%
def layer_loss(u, scale, x, weight, bias, unused):
    y = np.tanh(x @ weight + bias)
    return scale * ((u * y * y).sum() + 1e10) + 0 * unused.sum()  # a difference would see the constant's rounding


def elementwise(f, arguments):
    """Measure every entry of every gradient, one at a time."""
    for place, x in enumerate(arguments):
        yield jacobian(
            lambda x, at=place: np.asarray(f(*arguments[:at], x, *arguments[at + 1 :])), x
        ).reshape(x.shape)


def draw_suspects(rng):
    T, K, N = rng.permutation(np.arange(2, 7))[:3]
    arguments = tuple(rng.standard_normal(shape) for shape in ((T, K), (K, N), (N,), (int(K) + 1,)))
    f = partial(layer_loss, rng.standard_normal((T, N)), 10.0 ** rng.integers(-6, 7))
    gradients = [np.array(one) for one in elementwise(f, arguments)]
    for place in np.flatnonzero(rng.random(3) < 0.5):
        one = gradients[place]
        kind, size = rng.integers(4), abs(one).max()
        at = tuple(rng.integers(n) for n in one.shape)
        if kind == 0:
            one[at] += rng.choice([1e-5 * size, np.nan])  # a single entry
        elif kind == 1:
            one *= -1
        elif kind == 2 and one.ndim == 2:
            gradients[place] = one.T
        else:  # an error that sums to zero
            one.flat[0] += 1e-3 * size
            one.flat[-1] -= 1e-3 * size
    return f, arguments, tuple(gradients), np.random.default_rng(rng.integers(2**32))


def by_entries(f, arguments, gradients, rng):
    exact = list(elementwise(f, arguments))
    pairs = enumerate(zip(exact, gradients, strict=True))
    return [n for n, (a, b) in pairs if a.shape != b.shape or not abs(a - b).max() <= 1e-9 * abs(a).max()]


lesson.check(wrong_gradients, draw=draw_suspects, same_as=by_entries, times=40)

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
# <details><summary>Solution 05.6</summary>
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
# | `<= 1e-12` | `< 1e-12` | A gradient that is rightly zero has size zero: zero is not smaller than zero, but equal to it. |
# | `<= 1e-12` | `<= 1e-2` | An error of one part in a million must be seen; rounding is a million times smaller still. |
# | `abs((gradient * v).sum() - exact)` | `((gradient * v).sum() - exact)` | An error may have either sign: take its absolute value. |
# | `1e-30j * v` | `1e-30j` | The derivative along v needs a step along v. |
#
# </details>

# %% [markdown]
# Your judge on three of the planted faults, if you have written it:

# %%
if lesson.passed("05.6"):
    for fault in ["none", *mystery]:
        engine = Planted(fault)
        found = network_backward(engine, network(engine, **arguments)[1])
        wrong = wrong_gradients(
            lambda *values: network(Ops(), *values)[0], tuple(arguments.values()), tuple(found.values()), rng
        )
        print(f"fault {fault}: {', '.join(list(SHAPES)[place] for place in wrong) or 'nothing wrong'}")
else:
    print("05.6 is still open.")

# %% [markdown]
# ## 7. Your engine so far
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
