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
# # 16 · To the machine's limit
#
# To run this notebook: `pip install '.[notebooks]'` from a checkout of minibert. It takes about a minute, most of it for
# compiling.
#
# **The question.** Your engine is right. How fast could it be? Not faster than NumPy, not faster than last week: how fast
# *could* it be, on the machine in front of you? There is an answer, and it has two numbers: how many products the
# processor can form in a second, and how many bytes the memory can deliver.
#
# **How this chapter works.** Ten short puzzles. You write plain loops in Python, one number at a time, and **Numba**
# compiles them to machine code. Your loops are judged on small arrays that watch themselves: they count every number
# that is read or written and every piece of memory that had to be fetched. These counts are the same on every machine.
# Times are shown, too, but they decide nothing.
#
# **After this chapter you can**
#
# * measure the limits of your machine, and say which of them holds for a given operation;
# * order loops so that memory is read once, and cut them into blocks where that alone does not help;
# * compute LayerNorm's moments in one pass, and say when that loses digits;
# * add in parallel so that the bits do not depend on how many threads there are;
# * explain FlashAttention, because you have written it.

# %%
# %matplotlib inline
import importlib.util
import math
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib.pyplot as plt
import numba
import numpy as np

import minibert
from minibert import course
from minibert.course.memory import LINE, Memory, Traced
from minibert.engines import limited_threads
from minibert.model.ops import Ops

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
limits = limited_threads(1)
lesson = course.begin("16")
# Numba may join a product and a sum in one instruction; everything else is computed as it is written.
compiled = lesson.scale(numba.njit(fastmath={"contract"}, nogil=True), lambda loop: loop)
rng = np.random.default_rng(16)

# %% [markdown]
# ## 1. Two limits
#
# A kernel, that is a loop that does one thing to arrays, needs products and sums, and it needs numbers to form them from.
# The processor can do so many operations in a second, its **peak**; the memory delivers so many bytes in a second, its
# **bandwidth**. Which of them is the limit depends on the kernel's **arithmetic intensity**, its operations for each byte
# that it moves:
#
# $$ \text{operations per second} \;\le\; \min\Bigl(\text{peak},\;
#    \text{bandwidth} \cdot \frac{\text{operations}}{\text{bytes}}\Bigr) . $$
#
# Drawn over the intensity this looks like the roof of a house, and is called the **roofline** (Williams et al. 2009).
#
# To measure the bandwidth we need a kernel that does next to nothing with many numbers. The usual one is the triad,
# $z_i = x_i + a\,y_i$. For the peak we take a product of two square matrices: $2n^3$ operations with $3n^2$ numbers.
#
# ### Exercise 16.1 (easy): the triad and the roof
#
# `triad` fills `out` with $x_i + a\,y_i$, for arrays of one axis, and returns `out`. `roof` is about a kernel that does
# `operations` operations and moves `moved` bytes, on a machine with this peak and this bandwidth: return the most operations
# per second that it can reach.


# %%
# Exercise 16.1
def triad(x, y, a, out):
    """Fill out (n,) with x + a y and return it."""
    ...


def roof(peak, bandwidth, operations, moved):
    """Return the most operations per second, a number."""
    ...


# %%
asked = []  # the arrays of the latest question, which count


def traced(lines, *arrays):
    """Put arrays into a new memory of so many lines, and remember them."""
    memory = Memory(lines)
    asked[:] = [memory.traced(array) for array in arrays]
    return asked


def counts_of(answer, right, **most):
    """Compare the numbers in a traced result with the right ones, then the counts with what is enough."""
    if not isinstance(answer, Traced):
        return "return out, the array that was given."
    found = answer.values
    if not np.allclose(found, right, rtol=1e-11, atol=1e-13):
        worst = np.unravel_index(np.nan_to_num(np.abs(found - right), nan=np.inf).argmax(), found.shape)
        place = ", ".join(str(int(one)) for one in worst)
        told = f"out[{place}] is {found[worst]:.6g}; expected {right[worst]:.6g}."
        if found[worst] == 7:  # each draw fills out with sevens
            told += " That is what was in it before: nothing has been written there."
        return told
    return too_much(**most)


ORDINALS = ("first", "second", "third", "fourth")


def too_much(**most):
    """Say which count is larger than it has to be: reads and writes of each array in turn, and lines."""
    for name, bound in most.items():
        if name == "lines":
            found, what = asked[0].memory.fetched, "cache lines are fetched"
        else:
            kind, place = name.split("_")
            found = getattr(asked[int(place)], kind)
            what = f"numbers of the {ORDINALS[int(place)]} argument are {'read' if kind == 'reads' else 'written'}"
        if found > bound:
            return f"the numbers are right, but {found} {what}; {bound} are enough.{again(name)}"
    return None


def again(name):
    """If lines are fetched too often, say of which argument."""
    if name != "lines":
        return ""
    times = [one.fetches.sum() / len(one.fetches) for one in asked]
    place = int(np.argmax(times))
    often, lines = int(asked[place].fetches.sum()), len(asked[place].fetches)
    return f" The {ORDINALS[place]} argument has {lines} lines, and they are fetched {often} times."


def draw_triad(rng):
    n = int(rng.integers(9, 30))
    x, y, out = traced(8, *rng.standard_normal((2, n)), np.full(n, 7.0))
    return x, y, float(rng.uniform(2, 3)), out


def triad_holds(answer, x, y, a, out):
    n = len(x)
    return counts_of(answer, x.values + a * y.values, reads_0=n, reads_1=n, reads_2=0, writes_2=n)


def draw_roof(rng):
    peak, bandwidth = (float(one) for one in rng.uniform(1, 100, 2))
    moved = float(rng.uniform(2, 9))
    ridge = peak / bandwidth
    return peak, bandwidth, moved * ridge * float(rng.choice([0.3, 0.8, 1.3, 4])), moved


def roof_by_time(peak, bandwidth, operations, moved):
    """Take the longer of two times."""
    return operations / max(operations / peak, moved / bandwidth)


lesson.check(triad, draw=draw_triad, law=triad_holds)
lesson.check(roof, draw=draw_roof, same_as=roof_by_time, times=12)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `for i in range(len(x)):` and one line inside. Nothing else: arrays here can be asked for one number at a time.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The roof is a minimum of two numbers, both in operations per second. Bytes per second times operations per byte are
# operations per second.
#
# </details>
# <details><summary>Solution 16.1</summary>
#
# ```python
# def triad(x, y, a, out):
#     for i in range(len(x)):
#         out[i] = x[i] + a * y[i]
#     return out
#
#
# def roof(peak, bandwidth, operations, moved):
#     return min(peak, bandwidth * operations / moved)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `min(peak,` | `max(peak,` | A kernel has to respect both limits: the lower one holds. |
# | `bandwidth * operations / moved` | `bandwidth * moved / operations` | The intensity is operations for each byte, not bytes for each operation. |
# | `min(peak, bandwidth * operations / moved)` | `operations / (operations / peak + moved / bandwidth)` | A processor computes while the memory delivers: the longer of the two times holds, not their sum. |
# | `bandwidth * operations / moved` | `operations / moved` | The intensity has to be multiplied by the bandwidth to be a speed. |
# | `x[i] + a * y[i]` | `a * x[i] + y[i]` | The factor belongs to y. |
# | `out[i] = x[i] + a * y[i]` | `out[i] += x[i] + a * y[i]` | What is in out is to be overwritten, and not even read. |
#
# </details>


# %%
def best_seconds(run, least=0.05):
    """Return the time of the fastest of some runs: others who use the machine only make it slower."""
    run()
    times, end = [], time.perf_counter() + lesson.scale(least, 0)
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def triad_plain(x, y, a, out):
    for i in range(len(x)):
        out[i] = x[i] + a * y[i]
    return out


def machine_code(number, yours, judges, *arguments):
    """Compile your loop if the exercise has passed and Numba can compile it, else the judge's."""
    if lesson.passed(number):
        try:
            run = compiled(yours)
            run(*arguments)
            return run
        except numba.errors.NumbaError as error:
            print(f"Numba can't compile your {yours.__name__}: {str(error).splitlines()[0]}")
    return compiled(judges)


some = np.ones(3)
my_triad = machine_code("16.1", triad, triad_plain, some, some, 1.0, some.copy())
my_roof = roof if lesson.passed("16.1") else roof_by_time
sizes = lesson.scale([2**k for k in range(11, 23)], [64, 128])  # numbers in each of three arrays


def bytes_a_second(n):
    """Go through three arrays of n numbers in chunks, and take the median: a chunk that was interrupted is slow."""
    x, y, out = rng.standard_normal(n), rng.standard_normal(n), np.empty(n)
    chunk, seconds = min(n, 65_536), []
    parts = [slice(begin, begin + chunk) for begin in range(0, n, chunk)]
    pieces = [(x[part], y[part], 1.5, out[part]) for part in parts]
    for _ in range(lesson.scale(max(3, 1_000_000 // n), 1)):
        for piece in pieces:
            begin = time.perf_counter()
            my_triad(*piece)
            seconds.append(time.perf_counter() - begin)
    return 3 * 8 * chunk / np.median(seconds)


rates = [bytes_a_second(n) for n in sizes]
bandwidth = rates[-1]
n = lesson.scale(256, 16)
a, b = rng.standard_normal((2, n, n))
peak = 2 * n**3 / best_seconds(lambda: a @ b, 0.3)
course.say(
    f"One core of this machine, double precision: **{peak / 1e9:.1f} billion** operations a second, and **"
    f"{bandwidth / 1e9:.1f} billion** bytes a second from the main memory. A kernel needs "
    f"{peak / bandwidth:.1f} operations for each byte to keep the processor busy."
)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.2), layout="constrained")
left.semilogx(np.array(sizes) * 24 / 1024, np.array(rates) / 1e9, "o-", ms=4)
left.set(
    xlabel="three arrays together (KiB)",
    ylabel="GB/s",
    title="The triad: where the numbers come from",
    ylim=(0, None),
)
intensity = np.logspace(-2, 3, 100)
right.loglog(intensity, [my_roof(peak, bandwidth, one, 1) / 1e9 for one in intensity], "k-")
for name, operations, moved in (
    ("triad", 2, 24), ("column sums", 1, 8), ("LayerNorm", 8, 16), ("product, n = 256", 2 * 256, 24),
):  # fmt: skip
    where = operations / moved
    right.loglog(where, my_roof(peak, bandwidth, operations, moved) / 1e9, "o", label=name)
right.set(
    xlabel="operations for each byte", ylabel="billion operations a second", title="The roof of this machine"
)
right.legend(frameon=False, fontsize=8)
course.show(
    figure,
    "Left: bytes a second of the triad against the size of its arrays, falling in steps where they outgrow a cache. Right: "
    "the roofline with four kernels under it; the product alone is under its flat part.",
)

# %% [markdown]
# The steps on the left are the caches. Memory is fetched in pieces of 64 bytes, each a **cache line**: eight numbers of
# double precision. What was used lately is kept in a small, fast memory on the chip. Whoever needs one number of a line
# gets seven more for nothing, provided that they are wanted soon.
#
# ## 2. Rows before columns
#
# NumPy lays the rows of a matrix one after another. So the next number in a row is on the same line, and the next number
# in a column is on another.

# %%
guess = lesson.predict(
    "Adding up a large matrix column by column instead of row by row: how many times as many lines are fetched?",
    ...,
    choices=(1, 2, 8, 64),
)

# %% [markdown]
# ### Exercise 16.2 (easy): sums of columns
#
# Fill `out` (K,) with the sum of each column of `x` (n,K), and return it. The cache of the judge has eight lines, and `x`
# has more rows than that.


# %%
# Exercise 16.2
def column_sums(x, out):
    """Fill out (K,) with the sums of the columns of x (n,K) and return it."""
    ...


# %%
def draw_columns(rng):
    n, K = int(rng.integers(12, 20)), 8 * int(rng.integers(2, 4))
    x, out = traced(8, rng.standard_normal((n, K)), np.full(K, 7.0))
    return x, out


def columns_hold(answer, x, out):
    lines = x.size // 8 + len(out) // 8
    return counts_of(answer, x.values.sum(0), reads_0=x.size, lines=lines)


lesson.check(column_sums, draw=draw_columns, law=columns_hold)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The sums of all columns can grow together. Set `out` to zero first.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Let the outer loop go over rows and the inner one over columns.
#
# </details>
# <details><summary>Solution 16.2</summary>
#
# ```python
# def column_sums(x, out):
#     n, K = x.shape
#     for j in range(K):
#         out[j] = 0
#     for i in range(n):
#         for j in range(K):
#             out[j] += x[i, j]
#     return out
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `out[j] += x[i, j]` | `out[j] += sum(x[k, j] for k in range(n)) / n` | Each number is to be read once, row by row. |
# | `out[j] = 0` | `pass` | Sums begin at zero, whatever was in out. |
# | `out[j] += x[i, j]` | `out[j] = x[i, j]` | A sum adds up; this keeps the last row. |
# | `out[j] = 0` | `out[j] = x[0, j]` | The first row is added twice. |
# | `for i in range(n):` | `for i in range(1, n):` | The first row is missing. |
# | `out[j] += x[i, j]` | `out[j] += x[i, j] / n` | That is a mean. |
#
# </details>


# %%
def by_rows(x, out):
    for j in range(x.shape[1]):
        out[j] = 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j] += x[i, j]
    return out


def by_columns(x, out):
    for j in range(x.shape[1]):
        out[j] = 0
        for i in range(x.shape[0]):
            out[j] += x[i, j]
    return out


fetched = {}
for name, loop in {"by rows": by_rows, "by columns": by_columns}.items():
    memory = Memory(8)
    x = memory.traced(np.ones((16, 32)))
    loop(x, memory.traced(np.zeros(32)))
    fetched[name] = x.fetches.sum()

figure, every = plt.subplots(1, 2, figsize=(9.4, 2.7), layout="constrained", sharey=True)
for axes, name in zip(every, fetched, strict=True):
    memory, steps = Memory(4), list(np.ndindex(6, 16))
    x, has_fetched = memory.traced(np.ones((6, 16))), np.zeros((6, 16))
    if name == "by columns":
        steps.sort(key=lambda place: place[::-1])
    for number, place in enumerate(steps):
        before = memory.fetched
        _ = x[tuple(map(int, place))]
        has_fetched[place] = memory.fetched > before
        axes.text(
            place[1],
            place[0],
            number,
            ha="center",
            va="center",
            fontsize=6.5,
            color="w" if has_fetched[place] else "k",
        )
    axes.imshow(has_fetched, cmap="Blues", vmin=-0.25, vmax=1.2, aspect="auto")
    axes.axvline(7.5, color="k", lw=1.5)
    axes.set(
        title=f"{name}: {int(has_fetched.sum())} of {has_fetched.size} reads fetch a line", xlabel="column"
    )
every[0].set_ylabel("row")
course.show(
    figure,
    "Two matrices of 6 rows and 16 columns, two cache lines to a row, each number marked with when it is read and dark "
    "where its line had to be fetched, with room for four lines. By rows the first of eight is dark, by columns all are.",
)
ratio = int(fetched["by columns"] // fetched["by rows"])
course.equal("lines, by columns and by rows", fetched["by columns"], LINE // 8 * fetched["by rows"])
guess.answer(ratio, "a line has eight numbers, and by columns each of them fetches it anew.")

# %% [markdown]
# ## 3. One pass instead of two
#
# The feed-forward network adds a bias and applies GELU. With NumPy these are two operations: the first writes an array,
# and the second reads it back. In one loop the sum never leaves the processor, and half of the traffic is saved. This is
# called **fusing** kernels.
#
# ### Exercise 16.3 (easy): bias and GELU in one pass
#
# Fill `out` (T,F) with the exact GELU of `x + bias`: $\tfrac12 y\,(1 + \mathrm{erf}(y / \sqrt 2))$, with `math.erf` and
# `math.sqrt`. Each number of x is read once, each of `out` written once and never read.


# %%
# Exercise 16.3
def bias_gelu(x, bias, out):
    """Fill out (T,F) with gelu(x + bias) and return it."""
    ...


# %%
def draw_bias(rng):
    T, F = int(rng.integers(3, 6)), 8 * int(rng.integers(1, 3))
    return tuple(traced(16, rng.standard_normal((T, F)), rng.standard_normal(F), np.full((T, F), 7.0)))


def bias_holds(answer, x, bias, out):
    right = Ops().gelu(x.values + bias.values, "erf")[0]
    lines = (2 * x.size + len(bias)) // 8
    return counts_of(answer, right, reads_0=x.size, reads_2=0, writes_2=x.size, lines=lines)


lesson.check(bias_gelu, draw=draw_bias, law=bias_holds)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Inside the two loops put the sum into a variable: `y = x[i, j] + bias[j]`. A variable is not memory.
#
# </details>
# <details><summary>Hint 2</summary>
#
# There is one assignment to `out`, and it is the last line inside.
#
# </details>
# <details><summary>Solution 16.3</summary>
#
# ```python
# def bias_gelu(x, bias, out):
#     T, F = x.shape
#     for i in range(T):
#         for j in range(F):
#             y = x[i, j] + bias[j]
#             out[i, j] = y * (1 + math.erf(y / math.sqrt(2))) / 2
#     return out
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `y = x[i, j] + bias[j]` | `out[i, j] = x[i, j] + bias[j]; y = out[i, j]` | The sum is written to memory and read back; keep it in a variable. |
# | `out[i, j] = y * (` | `out[i, j] = (x[i, j] + bias[j]) * (` | Each number of x is to be read once; keep the sum in a variable. |
# | `y = x[i, j] + bias[j]` | `y = x[i, j]` | The bias is missing. |
# | `y / math.sqrt(2)` | `y` | The error function has its argument divided by the root of two. |
# | `math.erf(y / math.sqrt(2))` | `math.erf(x[i, j] / math.sqrt(2))` | The bias is added inside the error function as well. |
# | `math.erf(y / math.sqrt(2))` | `math.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3))` | That is the form with tanh; the exact one is asked for. |
# | `(1 + math.erf` | `(math.erf` | The distribution function is (1 + erf) / 2. |
# | `out[i, j] = y * (` | `out[i, j] = (` | GELU is y times the distribution function. |
# | `y * (1 + math.erf(y / math.sqrt(2))) / 2` | `(y - bias[j]) * (1 + math.erf((y - bias[j]) / math.sqrt(2))) / 2 + bias[j]` | The bias is added before GELU, not after it. |
#
# </details>

# %% [markdown]
# ## 4. Blocks
#
# To transpose a matrix is to read rows and write columns, or the other way round. Whichever loop is outside, one of the
# two goes across the lines. The way out is to work on a **block**, a square of so few rows and columns that all lines it
# touches stay in the cache, and to finish it before the next one.
#
# ### Exercise 16.4 (core): transpose by blocks
#
# Fill `out` (K,n) with the transpose of `x` (n,K), in squares of `block` rows and columns. At the edges the squares are
# smaller. The judge's cache has 20 lines; it counts them where `block` is 8 and divides both sides. In other questions
# `block` divides neither.


# %%
# Exercise 16.4
def transpose(x, out, block):
    """Fill out (K,n) with the transpose of x (n,K) and return it."""
    ...


# %%
sides = []


def draw_transpose(rng):
    sides.append(None)
    n, K = (8 * int(one) for one in rng.integers(3, 6, 2))
    block = 8
    if len(sides) % 2:
        n, K, block = int(rng.integers(9, 20)), int(rng.integers(9, 20)), int(rng.integers(3, 8))
    x, out = traced(20, rng.standard_normal((n, K)), np.full((K, n), 7.0))
    return x, out, block


def transpose_holds(answer, x, out, block):
    most = {"reads_0": x.size, "writes_1": x.size, "reads_1": 0}
    if block == 8:
        most["lines"] = 2 * x.size // 8
    return counts_of(answer, x.values.T, **most)


lesson.check(transpose, draw=draw_transpose, law=transpose_holds, times=6)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Four loops: `for top in range(0, n, block)` and `for left in range(0, K, block)` go over squares, two more over what is
# inside.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Inside a square the row goes from `top` to `min(top + block, n)`.
#
# </details>
# <details><summary>Solution 16.4</summary>
#
# ```python
# def transpose(x, out, block):
#     n, K = x.shape
#     for top in range(0, n, block):
#         for left in range(0, K, block):
#             for i in range(top, min(top + block, n)):
#                 for j in range(left, min(left + block, K)):
#                     out[j, i] = x[i, j]
#     return out
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `range(0, K, block)` | `range(0, K, K)` | The next square of a stripe begins block columns further on; this stops after the first one. |
# | `range(left, min(left + block, K))` | `range(left, K)` | The square ends after block columns. |
# | `n, K = x.shape` | `n, K = x.shape; block = max(n, K)` | Without squares the lines of out are fetched again and again: the cache does not hold a whole column of them. |
# | `min(top + block, n)` | `top + block` | At the edge the square is smaller: there are no more rows than n. |
# | `range(0, n, block)` | `range(0, n - block + 1, block)` | What is left over at the edge has to be transposed as well. |
# | `out[j, i] = x[i, j]` | `if i < n // block * block and j < K // block * block: out[j, i] = x[i, j]` | What is left over at the edge has to be transposed as well. |
# | `out[j, i] = x[i, j]` | `out[i, j] = x[i, j]` | That is a copy. |
#
# </details>


# %%
def transpose_plain(x, out, block):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j, i] = x[i, j]
    return out


def transpose_blocked(x, out, block):
    for top in range(0, x.shape[0], block):
        for left in range(0, x.shape[1], block):
            for i in range(top, min(top + block, x.shape[0])):
                for j in range(left, min(left + block, x.shape[1])):
                    out[j, i] = x[i, j]
    return out


blocks = (1, 2, 4, 6, 8, 12, 16, 24, 32)
figure, axes = plt.subplots(figsize=(6.6, 2.9), layout="constrained")
for lines, style in ((20, "C0o-"), (72, "C1^--")):
    totals = []
    for block in blocks:
        memory = Memory(lines)
        transpose_blocked(memory.traced(np.ones((32, 32))), memory.traced(np.zeros((32, 32))), block)
        totals.append(memory.fetched)
    axes.plot(blocks, totals, style, ms=5, label=f"a cache of {lines} lines")
axes.axhline(2 * 32 * 32 // 8, color="k", lw=0.8, ls=":", label="every line once")
axes.set(
    xlabel="rows and columns of a block",
    ylabel="lines fetched",
    title="A matrix of 32 rows is transposed",
    ylim=(0, None),
)
axes.legend(frameon=False, fontsize=8)
course.show(
    figure,
    "Lines fetched by a transpose against the size of its blocks, for a small and a larger cache: few where a block has as "
    "many columns as a line has numbers, and many once a block no longer fits into the cache.",
)

# %% [markdown]
# A product of matrices has more to gain. It does $2MKN$ operations with $MK + KN + MN$ numbers, so each number is
# wanted many times. If it is fetched again each time, the product lies under the slope of the roof; if blocks are kept
# in the cache while they are needed, it gets to the flat part.
#
# ### Exercise 16.5 (hard): a product by blocks
#
# Fill `out` (M,N) with `a` (M,K) times `b` (K,N). Take a square of `block` rows and columns of b, go over *all* rows of a
# with it, and only then take the next. The innermost loop should run along a row of b and a row of `out`. The sides need
# not be multiples of `block`. The judge's cache has 16 lines.


# %%
# Exercise 16.5
def product(a, b, out, block):
    """Fill out (M,N) with a (M,K) @ b (K,N) and return it."""
    ...


# %%
sides = []


def draw_product(rng):
    sides.append(None)
    M, K, N, block = 8, 24, 24, 8
    if len(sides) % 2:
        M, K, N = (int(one) for one in rng.choice([4, 5, 7, 8], 3))  # none a multiple of 3
        block = 3
    return (
        *traced(16, rng.standard_normal((M, K)), rng.standard_normal((K, N)), np.full((M, N), 7.0)),
        block,
    )


def product_holds(answer, a, b, out, block):
    most = {}
    if block == 8:
        (M, K), N = a.shape, b.shape[1]
        squares = K * N // 64
        most["lines"] = b.size // 8 + squares * (M + M) + M * N // 8
    return counts_of(answer, a.values @ b.values, **most)


lesson.check(product, draw=draw_product, law=product_holds, times=4)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Set `out` to zero. Then there are five loops: `top` over rows of b and `left` over columns of b, in steps of `block`;
# then i, k, j.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The innermost line is `out[i, j] += a[i, k] * b[k, j]`, for j from `left` to `min(left + block, N)`.
#
# </details>
# <details><summary>Solution 16.5</summary>
#
# ```python
# def product(a, b, out, block):
#     K, N = b.shape
#     M = len(a)
#     for i in range(M):
#         for j in range(N):
#             out[i, j] = 0
#     for top in range(0, K, block):
#         for left in range(0, N, block):
#             for i in range(M):
#                 for k in range(top, min(top + block, K)):
#                     for j in range(left, min(left + block, N)):
#                         out[i, j] += a[i, k] * b[k, j]
#     return out
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `for top in range(0, K, block)` | `for top in range(0, K, K)` | The next square of b begins block rows further down; this stops after the first ones. |
# | `for left in range(0, N, block)` | `for left in range(0, N, N)` | The next square of b begins block columns further on; this stops after the first ones. |
# | `out[i, j] += a[i, k] * b[k, j]` | `out[i, j] = a[i, k] * b[k, j]` | The products over k add up. |
# | `min(top + block, K)` | `top + block` | At the edge the block is smaller. |
# | `out[i, j] += a[i, k] * b[k, j]` | `out[i, j] += a[i, k] * b[j, k]` | That multiplies by the transpose of b. |
# | `out[i, j] += a[i, k] * b[k, j]` | `if k < K // block * block and j < N // block * block: out[i, j] += a[i, k] * b[k, j]` | What is left over at the edge belongs to the product as well. |
# | `out[i, j] = 0` | `pass` | Sums begin at zero, whatever was in out. |
# | `out[i, j] += a[i, k] * b[k, j]` | `out[i, j] = a[i, k] * b[k, j] + (out[i, j] if k > top else 0)` | The squares of b below each other add up as well: out is emptied once, not for each of them. |
#
# </details>

# %% [markdown]
# ## 5. LayerNorm in one pass
#
# LayerNorm needs the mean and the variance of a row. By their definitions that takes two passes, for the variance needs
# the mean. The well-known way to do it in one is to add up $x$ and $x^2$, since
#
# $$ \frac1n \sum_i (x_i - \mu)^2 = \frac1n \sum_i x_i^2 - \mu^2 . $$
#
# The equation is true and the recipe is dangerous. If the mean is large compared with the deviations, both terms on the
# right are large and nearly equal, and the digits that matter cancel. Welford (1962) found one pass that does not. He
# keeps the mean so far and the sum of squares about it. With $d = x_i - \mu_{i-1}$ for the next number,
#
# $$ \mu_i = \mu_{i-1} + \frac{d}{i}, \qquad S_i = S_{i-1} + d\,(x_i - \mu_i) . $$

# %%
row, seen = rng.standard_normal(9), 6
old, new = row[: seen - 1].mean(), row[:seen].mean()
d = row[seen - 1] - old
S_old, S_new = ((row[: seen - 1] - old) ** 2).sum(), ((row[:seen] - new) ** 2).sum()
course.equal("the mean", new, old + d / seen)
course.equal("the sum of squares", S_new, S_old + d * (row[seen - 1] - new))
course.equal("the other way round", ((row - row.mean()) ** 2).mean(), (row**2).mean() - row.mean() ** 2)

# %% [markdown]
# ### Exercise 16.6 (core): Welford's pass
#
# Return the mean and the variance (divided by n) of `row` (n,), two numbers, reading each number of the row once. The
# judge's numbers have a mean of a hundred thousand and deviations of about 1.


# %%
# Exercise 16.6
def moments(row):
    """Return the mean and the variance of row (n,), two numbers."""
    ...


# %%
def draw_row(rng):
    (row,) = traced(8, rng.uniform(0.5e5, 1.5e5) + rng.standard_normal(int(rng.integers(10, 30))))
    return (row,)


def moments_hold(answer, row):
    exact = math.fsum(row.values.tolist()) / len(row)
    squares = math.fsum(float(one - exact) ** 2 for one in row.values) / len(row)
    if not (isinstance(answer, tuple) and len(answer) == 2 and all(np.ndim(one) == 0 for one in answer)):
        return "return two numbers, the mean and the variance."
    mean, variance = answer
    if not abs(mean - exact) <= 1e-12 * abs(exact):
        return f"the mean is {mean:.9g}; expected {exact:.9g}."
    if not abs(variance - squares) <= 3e-9 * squares:
        told = f"the variance is {variance:.9g}; expected {squares:.9g}."
        if abs(variance - squares) <= 1e-3 * squares:
            told += " It is nearly right: digits are lost, as where two large numbers are subtracted."
        return told
    return too_much(reads_0=len(row))


lesson.check(moments, draw=draw_row, law=moments_hold, times=8, tolerance=3e-9)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `mean` and `squares` begin at 0. Read the number into a variable first.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `d` has the mean from before, the last factor the mean from after. For number `i`, counted from 0, so far there are
# `i + 1`.
#
# </details>
# <details><summary>Solution 16.6</summary>
#
# ```python
# def moments(row):
#     mean = squares = 0
#     for i in range(len(row)):
#         x = row[i]
#         d = x - mean
#         mean = mean + d / (i + 1)
#         squares = squares + d * (x - mean)
#     return mean, squares / len(row)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `squares = squares + d * (x - mean)` | `squares = squares + d * d` | One of the two factors is taken from the mean after, not both from the mean before. |
# | `d * (x - mean)` | `(x - mean) * (x - mean)` | One of the two factors is taken from the mean before, not both from the mean after. |
# | `d / (i + 1)` | `d / max(i, 1)` | Counted from 0, number i is one of i + 1 numbers. |
# | `d / (i + 1)` | `d / len(row)` | The mean so far is a mean of i + 1 numbers. |
# | `squares / len(row)` | `squares / (len(row) - 1)` | LayerNorm's variance is divided by n. |
# | `squares / len(row)` | `squares` | The sum of squares is n times the variance. |
# | `d = x - mean` | `d = row[i] - mean` | Each number is to be read once; keep it in a variable. |
# | `mean = mean + d / (i + 1)` | `mean = mean - d / (i + 1)` | The mean moves towards the new number. |
#
# </details>


# %%
def welford(row):
    mean = squares = row.dtype.type(0)
    for i, x in enumerate(row):
        d = x - mean
        mean = mean + d / row.dtype.type(i + 1)
        squares = squares + d * (x - mean)
    return squares / row.dtype.type(len(row))


def two_sums(row):
    total = squares = row.dtype.type(0)
    for x in row:
        total, squares = total + x, squares + x * x
    mean = total / row.dtype.type(len(row))
    return squares / row.dtype.type(len(row)) - mean * mean


levels = np.logspace(-1, 6, lesson.scale(15, 3))
noise = rng.standard_normal((lesson.scale(20, 2), 128))
methods = {"two sums": two_sums, "Welford": welford, "two passes": np.var}
errors = {name: [] for name in methods}
for level in levels:
    rows = (level + noise).astype(np.float32)
    right = rows.astype(np.float64).var(1)
    for name, method in methods.items():
        found = np.array([float(method(row)) for row in rows])
        errors[name].append(np.median(np.abs(found - right) / right))
figure, axes = plt.subplots(figsize=(6.6, 3), layout="constrained")
for (name, values), style in zip(errors.items(), ("C1^--", "C0o-", "C2s:"), strict=True):
    axes.loglog(levels, np.maximum(values, 1e-8), style, ms=4, label=name)
axes.axhline(1, color="k", lw=0.8)
axes.set(
    xlabel="mean, in deviations",
    ylabel="relative error of the variance",
    title="Single precision, rows of 128",
)
axes.legend(frameon=False, fontsize=8)
course.show(
    figure,
    "Relative error of the variance in single precision against the mean in units of the deviation: that of two sums grows "
    "with the square and passes one, that of Welford and of two passes grows far more slowly.",
)
bad = next((level for level, error in zip(levels, errors["two sums"], strict=True) if error > 0.01), math.inf)
course.say(f"With two sums the error passes one percent at a mean of about **{bad:,.0f}** deviations.")

# %% [markdown]
# Whether a model ever gets there depends on its activations. minibert takes no chances: it reads a row twice, which costs
# little while the row is in the cache.
#
# ## 6. The same bits on any number of threads
#
# Sums of floating-point numbers depend on their order. If four threads add up a quarter each, the result may differ in
# its last bits from that of three threads, and training makes such a difference larger with every step. Nothing is wrong
# with either model, but nobody can repeat a run on another machine any more. The remedy: cut by the *data*
# alone. The parts have a fixed length, whoever adds them up, and the sums of the parts are added in their order.
#
# ### Exercise 16.7 (core): a sum with fixed parts
#
# Return the sum of `x` (n,) in parts of `part` numbers, of which the last may be shorter. Thread t of `threads` takes the
# parts t, t + threads, t + 2 threads and so on; here the threads work one after another. Begin with an array of zeros, one
# for each part, and add up each part in its place, from its first number to its last. At the end add up the sums of the
# parts, again from first to last. The judge compares bits.


# %%
# Exercise 16.7
def shared_sum(x, part, threads):
    """Return the sum of x (n,), a number whose bits do not depend on threads."""
    ...


# %%
def draw_sum(rng):
    n = int(rng.integers(20, 60))
    (x,) = traced(8, rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 3, n))
    return x, int(rng.integers(3, 8)), int(rng.integers(1, 6))


def sum_holds(answer, x, part, threads):
    total = 0.0
    for begin in range(0, len(x), part):
        inner = 0.0
        for one in x.values[begin : begin + part].tolist():
            inner += one
        total += inner
    if np.ndim(answer) or not isinstance(answer, float | np.floating):
        return "return a number."
    if float(answer) != total:
        told = f"the sum is {float(answer)!r}; by parts and in their order it is {total!r}."
        if math.isclose(answer, total, rel_tol=1e-11):
            told += " It is right but for rounding: the numbers have been added in another order."
        return told
    return too_much(reads_0=len(x))


lesson.check(shared_sum, draw=draw_sum, law=sum_holds, times=20)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The parts begin at `range(0, n, part)`, and there are as many as that has members.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `for p in range(thread, parts, threads)` are the parts of a thread. Part p goes from `p * part` to `p * part + part`, or to
# n where that is less.
#
# </details>
# <details><summary>Solution 16.7</summary>
#
# ```python
# def shared_sum(x, part, threads):
#     begins = range(0, len(x), part)
#     sums = np.zeros(len(begins))
#     for thread in range(threads):
#         for p in range(thread, len(sums), threads):
#             for i in range(begins[p], min(begins[p] + part, len(x))):
#                 sums[p] += x[i]
#     total = 0.0
#     for p in range(len(sums)):
#         total += sums[p]
#     return total
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `for p in range(len(sums)):` | `for p in [q for t in range(threads) for q in range(t, len(sums), threads)]:` | The sums are added thread by thread: another number of threads, other bits. |
# | `range(0, len(x), part)` | `range(0, len(x) - part + 1, part)` | The last part, which is shorter, is missing. |
# | `sums[p] += x[i]` | `sums[thread] += x[i]` | A sum for each thread depends on how many threads there are. |
# | `min(begins[p] + part, len(x))` | `begins[p] + part` | The last part may be shorter. |
# | `range(0, len(x), part)` | `range(0, len(x), part := len(x))` | The numbers are added one by one; add up each part on its own first. |
# | `return total` | `return math.fsum(x[i] for i in range(len(x)))` | That is the exact sum; rounding after each addition belongs to the one that is asked for. |
# | `return total` | `return float(np.sum(sums))` | `np.sum` has an order of its own; add the sums one after another. |
# | `for p in range(len(sums)):` | `for p in range(len(sums) - 1, -1, -1):` | The sums are added from first to last. |
# | `range(thread, len(sums), threads)` | `range(thread, len(sums))` | Each part belongs to one thread. |
#
# </details>


# %%
@compiled
def add_up(x, begin, end, sums, place):
    total = 0.0
    for i in range(begin, end):
        total += x[i]
    sums[place] = total


def in_threads(x, threads, part):
    """Add up on so many threads, in parts of a fixed length, or with one part for each thread if part is None."""
    length = part or -(-len(x) // threads)
    begins = range(0, len(x), length)
    sums = np.zeros(len(begins))
    with ThreadPoolExecutor(threads) as pool:
        for place, begin in enumerate(begins):
            pool.submit(add_up, x, begin, min(begin + length, len(x)), sums, place)
    return sum(sums.tolist())


count = lesson.scale(2_000_000, 5_000)
many = rng.standard_normal(count) * 10.0 ** rng.uniform(-3, 3, count)
print("threads   a part for each thread       fixed parts")
kept = {"for each": [], "fixed": []}
for threads in range(1, 5):
    kept["for each"].append(in_threads(many, threads, None))
    kept["fixed"].append(in_threads(many, threads, 65_536))
    print(f"{threads:7}   {kept['for each'][-1]:<28.17g} {kept['fixed'][-1]:.17g}")
assert len(set(kept["fixed"])) == 1
course.say(
    f"Different results: **{len(set(kept['for each']))}** on the left, **{len(set(kept['fixed']))}** on the right."
)

# %% [markdown]
# ## 7. Softmax: three passes, two, one
#
# The softmax of a row is $e^{x_i} / \sum_j e^{x_j}$. With scores of a thousand, $e^{x}$ is not a number that a computer
# can hold. Nothing changes if all scores are lowered by the largest one, $m$, and then no exponent is above zero.
#
# ### Exercise 16.8 (easy): a softmax that does not overflow
#
# Fill `out` (n,) with the softmax of `x` (n,). Each number of x may be read twice, and each of `out` once: look for the largest
# score, write the exponentials and add them up, then divide. Some scores of the judge are in the thousands, above zero or
# below, and some rows have one score that is far above the others.


# %%
# Exercise 16.8
def softmax(x, out):
    """Fill out (n,) with the softmax of x (n,) and return it."""
    ...


# %%
def draw_scores(rng):
    n = int(rng.integers(9, 20))
    x = rng.standard_normal(n) + float(rng.choice([-3000.0, 0.0, 3000.0]))
    x[rng.integers(n)] += float(rng.choice([0.0, 2000.0]))
    return tuple(traced(8, x, np.full(n, 7.0)))


def softmax_holds(answer, x, out):
    gaps = np.array([[b - a for b in x.values] for a in x.values])  # 1 / sum of exp(x_j - x_i)
    n = len(x)
    with np.errstate(over="ignore"):  # 1 / inf is right: 0
        right = 1 / np.exp(gaps).sum(1)
    return counts_of(answer, right, reads_0=2 * n, reads_1=n, writes_1=2 * n)


lesson.check(softmax, draw=draw_scores, law=softmax_holds, times=8)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Three loops, one after another. `largest` begins at `-math.inf`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# In the second loop keep `e = math.exp(x[i] - largest)` in a variable: it is written to `out`, and added to the total.
#
# </details>
# <details><summary>Solution 16.8</summary>
#
# ```python
# def softmax(x, out):
#     largest, total = -math.inf, 0.0
#     for i in range(len(x)):
#         largest = max(largest, x[i])
#     for i in range(len(x)):
#         e = math.exp(x[i] - largest)
#         out[i] = e
#         total += e
#     for i in range(len(x)):
#         out[i] /= total
#     return out
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `math.exp(x[i] - largest)` | `math.exp(x[i])` | Scores in the thousands overflow: lower them by the largest. |
# | `largest, total = -math.inf, 0.0` | `largest, total = 0.0, 0.0` | With scores far below zero every exponential underflows, and the total is zero. |
# | `max(largest, x[i])` | `min(largest, x[i])` | It is the largest score that has to be taken away. |
# | `out[i] /= total` | `out[i] /= len(x)` | The exponentials are divided by their sum. |
# | `x[i] - largest` | `x[i] / largest` | The largest score is taken away from each, not divided by. |
# | `out[i] /= total` | `pass` | The exponentials have to be divided by their sum. |
# | `total += e` | `total = e` | The total is a sum over all scores. |
#
# </details>

# %% [markdown]
# The first two loops can be one (Milakov and Gimelshein 2018). Keep the largest score *so far* and the total with respect
# to it. When a larger one comes, everything that was added up is too large by the factor $e^{m' - m}$, and a single
# product puts that right:
#
# $$ m' = \max(m, x_i), \qquad t' = t\,e^{m - m'} + e^{x_i - m'} . $$
#
# This is the **online softmax**.

# %%
some = rng.standard_normal(7)
before, after = some[:5], some[:6]
m, m_next = before.max(), after.max()
t = np.exp(before - m).sum()
course.equal(
    "one score more", np.exp(after - m_next).sum(), t * np.exp(m - m_next) + np.exp(some[5] - m_next)
)

# %% [markdown]
# ### Exercise 16.9 (core): the total in one pass
#
# Return the largest of the scores `x` (n,), $m$, and $\sum_j e^{x_j - m}$, two numbers, reading each score once.


# %%
# Exercise 16.9
def online(x):
    """Return the largest of x (n,) and the sum of exp(x - largest), two numbers."""
    ...


# %%
def draw_stream(rng):
    n = int(rng.integers(9, 20))
    x = np.sort(rng.standard_normal(n))
    order = {0: x, 1: x[::-1]}.get(int(rng.integers(4)), rng.permutation(x))
    return tuple(traced(8, order + float(rng.choice([-3000.0, 0.0, 3000.0]))))


def online_holds(answer, x):
    if not (isinstance(answer, tuple) and len(answer) == 2 and all(np.ndim(one) == 0 for one in answer)):
        return "return two numbers, the largest score and the total."
    largest = max(x.values.tolist())
    total = math.fsum(math.exp(one - largest) for one in x.values)
    if answer[0] != largest:
        return f"the largest score is {answer[0]:.6g}; expected {largest:.6g}."
    if not abs(answer[1] - total) <= 1e-12 * total:
        return f"the total is {answer[1]:.9g}; expected {total:.9g}."
    return too_much(reads_0=len(x))


lesson.check(online, draw=draw_stream, law=online_holds, times=12)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `largest` begins at `-math.inf` and `total` at 0. `math.exp(-math.inf)` is 0, so the first score needs no special case.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Compute the new largest score first, use both in the line of the total, and only then replace the old one.
#
# </details>
# <details><summary>Solution 16.9</summary>
#
# ```python
# def online(x):
#     largest, total = -math.inf, 0.0
#     for i in range(len(x)):
#         score = x[i]
#         new = max(largest, score)
#         total = total * math.exp(largest - new) + math.exp(score - new)
#         largest = new
#     return largest, total
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `total * math.exp(largest - new)` | `total` | What was added up before has to be scaled to the new largest score. |
# | `math.exp(largest - new)` | `math.exp(new - largest)` | Upside down: when a larger score comes, the old total shrinks. |
# | `total * math.exp(largest - new)` | `(total * math.exp(new - largest) if i else 0)` | Upside down: when a larger score comes, the old total shrinks. |
# | `total * math.exp(largest - new)` | `(total if new == largest else 0)` | When a larger score comes, what was added up before is scaled, not thrown away. |
# | `largest, total = -math.inf, 0.0` | `largest, total = 0.0, 0.0` | All scores may be below zero: the largest so far begins at minus infinity. |
# | `return largest, total` | `return largest, largest + math.log(total)` | That is the logarithm of the whole sum; the total is asked for as it is. |
# | `math.exp(score - new)` | `math.exp(score - largest)` | The new score is compared with the new largest one. |
# | `        largest = new` | `        pass` | The largest score so far has to be kept. |
# | `new = max(largest, score)` | `new = score` | The largest score so far may still be the old one. |
#
# </details>

# %% [markdown]
# ## 8. FlashAttention
#
# Now attention. For a query $q$ it forms the score $s_j = q \cdot k_j / \sqrt D$ with every key, takes the softmax, and
# adds up the values: $\sum_j p_j v_j$. As NumPy does it, the scores of all queries are a matrix of n rows and n columns,
# which is written, read for the largest, read again for the total, written, read again. FlashAttention (Dao et al. 2022)
# never writes it. It takes keys and values as they come, block by block, and keeps three things for each query: the
# largest score so far, the total, and the *output* so far, with respect to that largest score. When a larger one comes,
# total and output are scaled by the same factor. At the end the output is divided by the total. The idea is that of
# exercise 16.9, and there is nothing more to it.
#
# ### Exercise 16.10 (hard): attention in one pass
#
# Fill `out` (D,) with the attention of the query `q` (D,) to `keys` (n,D) and `values` (n,D). Each number of keys and
# values is read once. What `out` holds before is not a number (NaN), and some scores of the judge are in the thousands.


# %%
# Exercise 16.10
def attend(q, keys, values, out):
    """Fill out (D,) with the mean of values (n,D) under the softmax of q @ keys / sqrt(D), and return it."""
    ...


# %%
def draw_attention(rng):
    n, D = int(rng.integers(5, 12)), int(rng.integers(3, 8))
    q, keys, values = rng.standard_normal(D), rng.standard_normal((n, D)), rng.standard_normal((n, D))
    size = abs(keys @ q).max() / math.sqrt(D)  # of the largest score
    return tuple(traced(32, float(rng.choice([1, 2000 / size])) * q, keys, values, np.full(D, np.nan)))


def attend_holds(answer, q, keys, values, out):
    one, cu_seqlens = q.values[None], np.array([0, len(keys)])
    queries = np.repeat(one, len(keys), axis=0)[:, None]  # minibert's attention has as many queries as keys
    right = Ops().attention(queries, keys.values[:, None], values.values[:, None], cu_seqlens)[0][0, 0]
    return counts_of(answer, right, reads_1=keys.size, reads_2=values.size)


lesson.check(attend, draw=draw_attention, law=attend_holds, times=8)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Set `out` to zero. For each key: the score, the new largest one, the factor `math.exp(largest - new)` for what was
# before, and the weight `math.exp(score - new)` of the new value.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `out[d] = out[d] * factor + weight * values[j, d]`, and the total likewise with 1 in place of the value.
#
# </details>
# <details><summary>Solution 16.10</summary>
#
# ```python
# def attend(q, keys, values, out):
#     n, D = keys.shape
#     largest, total = -math.inf, 0.0
#     for d in range(D):
#         out[d] = 0.0
#     for j in range(n):
#         score = 0.0
#         for d in range(D):
#             score += q[d] * keys[j, d]
#         score /= math.sqrt(D)
#         new = max(largest, score)
#         factor, weight = math.exp(largest - new), math.exp(score - new)
#         for d in range(D):
#             out[d] = out[d] * factor + weight * values[j, d]
#         total = total * factor + weight
#         largest = new
#     for d in range(D):
#         out[d] /= total
#     return out
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `out[d] * factor + weight` | `out[d] + weight` | The output so far has to be scaled to the new largest score, as the total is. |
# | `total * factor + weight` | `total + weight` | The total so far has to be scaled to the new largest score, as the output is. |
# | `score /= math.sqrt(D)` | `pass` | Scores are divided by the root of D. |
# | `math.sqrt(D)` | `math.sqrt(n)` | D is how many numbers a key has, not how many keys there are. |
# | `out[d] /= total` | `pass` | The output has to be divided by the total of the weights. |
# | `weight * values[j, d]` | `weight * keys[j, d]` | The values are averaged; the keys only say with which weights. |
# | `out[d] /= total` | `out[d] /= n` | The output is divided by the total of the weights. |
# | `        largest = new` | `        pass` | The largest score so far has to be kept. |
# | `weight * values[j, d]` | `score * values[j, d]` | A value is weighted with the exponential of its score. |
# | `out[d] = 0.0` | `pass` | The output begins at zero, whatever was in out. |
#
# </details>

# %%
lengths = np.array([64, 128, 256, 512, 1024, 2048])
D = 64
whole_map = 8 * (4 * lengths * D + 4 * lengths**2)  # q, k, v, out once; the map written twice and read twice
one_pass = 8 * 4 * lengths * D
figure, axes = plt.subplots(figsize=(6.6, 3), layout="constrained")
axes.loglog(lengths, whole_map / 1e6, "C1^--", label="the map is written and read twice")
axes.loglog(lengths, one_pass / 1e6, "C0o-", label="the map never exists")
axes.set(
    xlabel="tokens", ylabel="million bytes moved, at least", title="One head of attention, double precision"
)
axes.legend(frameon=False, fontsize=8)
course.show(
    figure,
    "Bytes moved by one head against the number of tokens: with the map they grow with the square, without it linearly.",
)

# %% [markdown]
# ## 9. What the clock says
#
# Counts are certain; what they are worth in seconds depends on the machine, and on who else uses it at the moment. Here
# are pairs of loops that compute the same, compiled by Numba and run on large arrays. Where you have solved the exercise,
# the second of each pair is yours.


# %%
def bias_gelu_in_two(x, bias, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] + bias[j]
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y = out[i, j]
            out[i, j] = y * (1 + math.erf(y / math.sqrt(2))) / 2
    return out


def bias_gelu_in_one(x, bias, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y = x[i, j] + bias[j]
            out[i, j] = y * (1 + math.erf(y / math.sqrt(2))) / 2
    return out


def product_by_definition(a, b, out, block):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0.0
            for k in range(b.shape[0]):
                total += a[i, k] * b[k, j]
            out[i, j] = total
    return out


def product_blocked(a, b, out, block):
    out[:] = 0
    for top in range(0, b.shape[0], block):
        for left in range(0, b.shape[1], block):
            for i in range(a.shape[0]):
                for k in range(top, min(top + block, b.shape[0])):
                    for j in range(left, min(left + block, b.shape[1])):
                        out[i, j] += a[i, k] * b[k, j]
    return out


side, small = lesson.scale(1536, 24), lesson.scale(384, 16)
x, out = rng.standard_normal((side, side)), np.empty((side, side))
bias = rng.standard_normal(side)
a, b, c = rng.standard_normal((3, small, small))
PAIRS = {  # exercise, plain, yours, the judge's, arguments, bytes that have to be moved
    "column sums": ("16.2", by_columns, column_sums, by_rows, (x, bias.copy()), 8 * x.size),
    "bias and GELU": ("16.3", bias_gelu_in_two, bias_gelu, bias_gelu_in_one, (x, bias, out), 16 * x.size),
    "transpose": ("16.4", transpose_plain, transpose, transpose_blocked, (x, out, 16), 16 * x.size),
    "product": ("16.5", product_by_definition, product, product_blocked, (a, b, c, 64), 24 * small**2),
}
ratios = {}
print(f"{'':16}{'plain':>10}{'better':>10}{'ratio':>8}{'GB/s':>12}, of bytes that have to be moved")
for name, (number, plain, yours, judges, arguments, moved) in PAIRS.items():
    better = machine_code(number, yours, judges, *arguments)
    slow, fast = (
        best_seconds(lambda run=run, given=arguments: run(*given)) for run in (compiled(plain), better)
    )
    ratios[name] = slow / fast
    print(f"{name:16}{1e3 * slow:8.1f}ms{1e3 * fast:8.1f}ms{slow / fast:8.1f}{moved / fast / 1e9:12.2f}")

# %%
figure, axes = plt.subplots(figsize=(6.6, 2.4), layout="constrained")
for height, ratio in enumerate(reversed(ratios.values())):
    axes.barh(height, ratio, color="C0")
    axes.annotate(f" {ratio:.1f}", (ratio, height), va="center", fontsize=9)
axes.axvline(1, color="k", lw=0.8)
axes.set_yticks(range(len(ratios)), reversed(list(ratios)))
axes.set(
    xscale="log",
    xlabel="times as fast as the plain loop",
    title="The same results, on this machine, at this moment",
)
course.show(figure, "How many times as fast the better loop of each pair is, as bars beside a line at one.")

# %% [markdown]
# If fusing hardly shows here, the error function is the reason. It takes so long, computed for one number at a time, that
# nobody was waiting for the bytes that were saved. That is the roof again: first find out which limit holds.

# %% [markdown]
# ## 10. The ladder
#
# From your blocked product to that of a library there are a few more steps, and each is a file: keep a small square of the
# result in the registers, copy blocks so that they are contiguous, use vector instructions, share out among threads. The
# folder `benchmarks/ladder/` of the project has three such ladders: a product, attention, and LayerNorm. Each climbs from
# plain loops to the kernel of minibert's own engine, checks every rung, times it, and keeps the steps that did not pay.
# `make ladder` climbs them all. Here is the one of LayerNorm, if this is a checkout and there is a C++ compiler.

# %%
ladder = Path(minibert.__file__).parents[1] / "benchmarks" / "ladder"
tools = [one for one in ("make", "c++") if not shutil.which(one)]
if not ladder.exists():
    print("This is not a checkout: get one, and run make ladder in it.")
elif tools:
    print(f"{' and '.join(tools)} can't be found: install a C++ compiler and make, then run make ladder.")
else:
    rungs = sorted(path.name for path in (ladder / "layer_norm").glob("*.*") if path.name[:1].isdigit())
    print("rungs:", ", ".join(rungs))
    if lesson.scale(True, False):
        command = ["make", "-s", "--no-print-directory", "-C", str(ladder), "LADDER=layer_norm"]
        try:
            climbed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
            print(climbed.stdout[-4000:] or climbed.stderr[-2000:])
        except subprocess.TimeoutExpired:
            print("This machine is busy, and four minutes were not enough: run make ladder in a terminal.")

# %% [markdown]
# ## 11. One switch: JAX
#
# All of this by hand, and all gradients by hand: is that how people work today? Mostly not. **JAX** takes a function
# written with `jax.numpy` in place of `numpy`, and `jax.grad` returns another function that computes its gradient. It
# follows the rules of chapter 5, one operation after another, from the last to the first, and XLA, its compiler, fuses
# loops as you did above. Below is the feed-forward block of BERT in the way that JAX's users write it, and its gradient
# next to that of minibert's backward, which is written by hand. JAX is an extra. Where it is not installed, the cells
# say so and go on.

# %%
has_jax = importlib.util.find_spec("jax") is not None
if has_jax:
    import jax
    import jax.numpy as jnp
else:
    print(
        "JAX is not installed, and these cells have nothing to show: pip install '.[jax]' from the checkout."
    )


# %%
T, H, F = lesson.scale((256, 128, 512), (6, 4, 8))
shapes = {
    "in_weight": (H, F),
    "in_bias": (F,),
    "out_weight": (F, H),
    "out_bias": (H,),
    "gamma": (H,),
    "beta": (H,),
}
weights = {name: (rng.standard_normal(shape) / 8).astype(np.float32) for name, shape in shapes.items()}
tokens, upward = rng.standard_normal((2, T, H)).astype(np.float32)


class Form:
    """What minibert's block asks of a configuration."""

    gelu_form, layer_norm_eps, A, D = "tanh", 1e-6, 1, H


def by_hand(tokens, weights):
    """Return the gradients of sum(upward * block), by minibert's own backward."""
    ops = Ops()
    _, saved = ops.feed_forward_block(tokens, weights, Form, None, 0)
    grads = {name: np.zeros_like(one) for name, one in weights.items()}
    d_tokens, grads = ops.feed_forward_block_backward(upward, saved, weights, grads, Form)
    return d_tokens, grads


if has_jax:

    def block(tokens, weights):
        """Compute the feed-forward block; nothing here knows of gradients."""
        inner = jax.nn.gelu(tokens @ weights["in_weight"] + weights["in_bias"], approximate=True)
        total = tokens + inner @ weights["out_weight"] + weights["out_bias"]
        centred = total - total.mean(-1, keepdims=True)
        deviation = jnp.sqrt((centred * centred).mean(-1, keepdims=True) + Form.layer_norm_eps)
        return centred / deviation * weights["gamma"] + weights["beta"]

    gradient = jax.jit(
        jax.grad(lambda tokens, weights: (upward * block(tokens, weights)).sum(), argnums=(0, 1))
    )
    d_tokens, grads = gradient(tokens, weights)
    mine_d, mine_grads = by_hand(tokens, weights)
    by_jax = {"tokens": d_tokens} | grads
    by_minibert = {"tokens": mine_d} | mine_grads
    for name in ("tokens", *shapes):
        right = by_minibert[name]
        error = float(np.abs(np.asarray(by_jax[name]) - right).max() / np.abs(right).max())
        print(f"gradient of {name:12} differs by {error:.0e}, in single precision")
        assert error < 1e-3
    seconds = {
        "NumPy, by hand": best_seconds(lambda: by_hand(tokens, weights)),
        "JAX, by jax.grad": best_seconds(lambda: jax.block_until_ready(gradient(tokens, weights))),
    }
    for name, one in seconds.items():
        print(f"{name:18}{1e3 * one:8.2f} ms")

# %% [markdown]
# Two answers to the same question, found in two ways. That is the use of a backward by hand in a world with `jax.grad`:
# each proves the other, and whoever has written one knows what the other has to keep in memory, and where it may lose
# digits. And there is a third way. minibert's operations are written for any array library, so JAX can run the backward
# by hand as well: `Ops(jax.numpy)`.

# %%
if has_jax:
    there = Ops(jnp)
    carried = {name: jnp.asarray(one) for name, one in weights.items()}
    _, saved = there.feed_forward_block(jnp.asarray(tokens), carried, Form, None, 0)
    zeros = {name: jnp.zeros_like(one) for name, one in carried.items()}
    third, _ = there.feed_forward_block_backward(jnp.asarray(upward), saved, carried, zeros, Form)
    error = float(np.abs(np.asarray(third) - mine_d).max() / np.abs(mine_d).max())
    print(f"the backward by hand, run by JAX: the gradient of tokens differs from NumPy's by {error:.0e}")
    assert error < 1e-3
else:
    print("JAX is not installed: pip install '.[jax]' from the checkout.")

# %% [markdown]
# ## What we saw
#
# * Every kernel has one of two limits. Its operations for each byte say which.
# * Memory comes in lines of eight numbers. Counting lines tells more about a loop than a clock does, and is the same
#   everywhere.
# * Fuse what is limited by bytes; cut into blocks what uses numbers more than once.
# * One pass may cost digits: two sums lose far more of them than Welford's pass.
# * Sums that are cut by the data alone have the same bits on any number of threads.
# * FlashAttention is a running mean whose scale is corrected whenever a larger score comes.
# * `jax.grad` and a backward by hand agree, and each of them proves the other.

# %% [markdown]
# ## Words
#
# - **bandwidth**: how many bytes a memory delivers in a second.
# - **arithmetic intensity**: a kernel's operations for each byte that it moves.
# - **roofline**: the most operations a second that a machine allows, drawn over the arithmetic intensity.
# - **cache line**: the piece of memory, mostly of 64 bytes, that is fetched at a time.
# - **fusing**: computing several operations in one pass over memory.
# - **online softmax**: the total of a softmax in one pass, corrected whenever a larger score comes.
#
# ## Where to go next
#
# * `benchmarks/ladder/` goes on where section 4 ends, and `minibert/engines/numba/` is a whole engine in Numba.
# * Williams et al. 2009, *Roofline*; Milakov and Gimelshein 2018, *Online normalizer calculation for softmax*; Dao et al.
#   2022, *FlashAttention*; Goto and van de Geijn 2008, *Anatomy of High-Performance Matrix Multiplication*.
# * `docs/engines.md`: what each engine of minibert is good for.
