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
# # 01 · Word pieces
#
# **The question.** A model needs a finite list of symbols, and people never stop inventing words. How can 8,192
# strings spell every English word, even those that nobody has written yet, and which 8,192 should they be? (The
# published BERT has 30,522. The rule is the same.)
#
# **When you have worked through this chapter, you will be able to**
#
# * show with numbers why neither letters nor whole words will do;
# * foresee what happens to accents, ligatures and other scripts on their way into BERT;
# * derive what joining two pieces does to the likelihood of a text, and choose the best pair;
# * cut a word into pieces as BERT does, and say when that cut is not the best one.
#
# At the end you have a `vocab.txt` of your own, which other libraries can load.
#
# **To run it**, install minibert from a checkout with `pip install '.[notebooks]'`. An exercise is a function whose
# body is three dots. Replace them and run the cell that follows: it calls your function with fresh random inputs, compares
# the results with those of a second method, and prints a verdict. If you leave an exercise open, everything else still
# runs. Below each one are two hints and a solution, folded. A verdict ends with `(seed=…)`, the number from which its
# inputs were drawn: with `lesson.check(..., seed=that number)` you get the same inputs again. What you wrote is kept: a
# function that later chapters use is written to `mine.py` as soon as it passes. After a restart, run the chapter from the
# top.

# %%
# %matplotlib inline
import importlib.util
import itertools
import math
import unicodedata
import warnings
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from minibert import Tokenizer, course
from minibert.core import wordpiece as simple
from minibert.data.corpus import embedded_corpus, sentences
from minibert.tokenizer import BasicTokenizer, count_files, learn_vocab
from minibert.tokenizer.greedy import GreedyCore
from minibert.tokenizer.report import nats_per_byte, segmented

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
lesson = course.begin("01")

# %% [markdown]
# ## 1. Letters or words?
#
# We count the words of the sixteen books that come with minibert. One line in fifty is set aside as held-out text: it is
# not counted, but used to measure.

# %%
guess = lesson.predict(
    "What share of the different words in the books occurs only once?", ..., choices=("4%", "12%", "36%")
)

# %%
counted = count_files([embedded_corpus()], BasicTokenizer(), held_out=50)
words, held_out = counted.words, counted.held_out
frequencies = np.sort(words.counts)[::-1]
once = float((frequencies == 1).mean())
guess.answer(f"{once:.0%}", f"{(frequencies == 1).sum():,} of {len(words):,} different words.")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
axes[0].loglog(1 + np.arange(len(frequencies)), frequencies, ".", ms=3, color="C0")
axes[0].axhspan(0.7, 1.4, color="C1", alpha=0.25)
axes[0].annotate("once", (1.5, 1), color="C1", va="center")
axes[0].set(xlabel="rank of the word", ylabel="how often it occurs", title="A few words are everywhere")
by_frequency = [word for _, word in sorted(zip(-words.counts, words, strict=True))]
rank = {word: number for number, word in enumerate(by_frequency)}
ranks = np.array([rank.get(word, len(rank)) for word in held_out])
sizes = np.unique(np.logspace(1, np.log10(len(rank)), 40).astype(int))
unknown = np.array([held_out.counts[ranks >= size].sum() for size in sizes]) / held_out.total()
axes[1].loglog(sizes, 100 * unknown, "o-", ms=3, color="C0")
axes[1].set(
    xlabel="how many words the list has",
    ylabel="% of held-out words not in it",
    title="A list of words is never long enough",
)
course.show(
    figure,
    "Left, on logarithmic axes, the frequency of words against their rank, close to a falling straight line that ends "
    "in a long tail of words that occur once. Right, the share of unknown words in held-out text falls slowly with "
    "the length of the list and does not reach zero.",
)
letters_a_word = sum(len(word) * n for word, n in held_out.items()) / held_out.total()
course.say(
    f"With all {len(rank):,} words of these books in the list, {unknown[-1]:.2%} of the held-out words are still missing, "
    f"one in {1 / unknown[-1]:.0f}. And these are lines from the *same* books. Letters, on the other hand, can spell "
    f"anything, but a word then takes {letters_a_word:.1f} symbols on average, and the model has to find out again and "
    "again that *t-h-e* means something."
)

# %% [markdown]
# The straight line on the left is the reason. A list of words spends most of its entries on words that are hardly ever
# used: names, odd forms, compounds. Yet these are made of familiar parts. So the list should hold **frequent strings**:
# long ones where they occur often, and single letters for what remains. That is a middle way, and the rest of this
# chapter is about which strings to take.
#
# ## 2. First, what is a word?
#
# Before anything is cut into pieces, the text is split into words. That sounds trivial, but most surprises
# come from this step. To the computer, a text is a sequence of numbers. Unicode gives one to every character:
# its **code point**, written like U+00E9 for é. The same visible character can have more than one spelling.
# An é is either U+00E9, or the letter e followed by U+0301, a **combining mark**: a code point that is drawn
# onto the one before it. The two look alike but are different strings.
#
# The uncased BERT, which knows no capitals, settles this in four steps:
#
# 1. remove control characters, and split at white space;
# 2. lower-case;
# 3. decompose every character into its base and its combining marks (**NFD**, the canonical decomposition of Unicode),
#    and drop the marks whose category is `Mn`, "mark, nonspacing": the accents;
# 4. make every punctuation mark a word of its own, and every Chinese character, too.

# %%
raw = "Où, l'ÉTE\u0301?"
lowered = raw.lower()
decomposed = unicodedata.normalize("NFD", lowered)
stripped = "".join(one for one in decomposed if unicodedata.category(one) != "Mn")
split = "|".join(BasicTokenizer().tokenize(raw))
stages = {
    "as typed": raw,
    "lower-case": lowered,
    "decomposed": decomposed,
    "without marks": stripped,
    "words": split,
}
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
for height, (name, string) in enumerate(stages.items()):
    axes.text(-0.3, -height + 0.4, name, ha="right", va="center")
    for left, one in enumerate(string):
        mark = unicodedata.category(one) == "Mn"
        if one == "|":
            axes.plot([left + 0.5] * 2, [-height, -height + 0.85], color="C1", lw=3)
            continue
        axes.add_patch(
            Rectangle(
                (left, -height),
                0.95,
                0.85,
                facecolor="#f6e3c5" if mark else "#dbe7f3",
                hatch="//" if mark else "",
                edgecolor="white",
            )
        )
        axes.text(
            left + 0.47, -height + 0.52, "◌" + one if mark else one, ha="center", va="center", fontsize=12
        )
        axes.text(left + 0.47, -height + 0.14, f"{ord(one):04X}", ha="center", va="center", fontsize=6)
axes.set(xlim=(-3, 14), ylim=(-len(stages) + 0.8, 1))
axes.set_axis_off()
course.show(
    figure,
    "The text as rows of boxes, one per code point, with its number. As typed, the two capital É are "
    "spelt in different ways; decomposed, both are a letter and a hatched combining mark; without marks, "
    "both are a plain e; the last row shows where words end.",
)

# %% [markdown]
# The hatched boxes are combining marks. In the first row the two É are spelt differently; from the third row on they
# are spelt alike.
#
# ### Exercise 01.1 (easy): lower-case and strip accents
# Steps 2 and 3 for one word. `unicodedata.normalize("NFD", text)` decomposes, and `unicodedata.category(character)` is
# the category of a code point. You will be asked about words from several scripts.


# %%
# Exercise 01.1
def normalise(word):
    """Return the word in lower case, decomposed (NFD), and without its nonspacing marks (category Mn)."""
    ...


# %%
def draw_word(rng):
    """A jumble of letters from many scripts; it ends with a Greek capital sigma."""
    traps = ["É", "e\u0301", "ﬁ", "ß", "İ", "Å", "ñ", "ő", "ệ", "Ж", "й", "हि", "दु", "א", "ģ", "ﬀ", "ª"]
    letters = [chr(int(code)) for code in rng.integers(ord("A"), ord("z") + 1, 5) if chr(int(code)).isalpha()]
    return ("".join(rng.permutation(traps + letters)) + "αΣ",)


lesson.check(normalise, draw=draw_word, same_as=lambda word: "".join(BasicTokenizer().tokenize(word)))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Three steps: `lower`, then `normalize`, then a loop that leaves characters out.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Lower-case the whole word at once: the Greek letter Σ becomes ς at the end of a word and σ elsewhere, so its
# neighbours matter. And `Mn` is not the only category that begins with M.
#
# </details>
# <details><summary>Solution 01.1</summary>
#
# ```python
# def normalise(word):
#     decomposed = unicodedata.normalize("NFD", word.lower())
#     return "".join(one for one in decomposed if unicodedata.category(one) != "Mn")
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `"NFD"` | `"NFC"` | NFC composes: an accent that is part of its letter is not a separate code point, and stays. |
# | `"NFD"` | `"NFKD"` | NFKD also takes ligatures such as ﬁ apart; BERT leaves them whole. |
# | `word.lower()` | `word.casefold()` | Case folding turns ß into ss; BERT only lower-cases. |
# | `word.lower()` | `"".join(one.lower() for one in word)` | Taken one character at a time, a Σ at the end of a word is not seen to be the last letter, and does not become ς. |
# | `word.lower()` | `word` | The word was never lower-cased. |
# | `unicodedata.category(one) != "Mn"` | `not unicodedata.combining(one)` | The combining class is not the category: some vowel signs of Indic scripts are Mn and have class 0. |
# | `unicodedata.category(one) != "Mn"` | `unicodedata.category(one)[0] != "M"` | Only the nonspacing marks (Mn) go; vowel signs that take up space (Mc) stay. |
# | `unicodedata.category(one) != "Mn"` | `one.isascii()` | Dropping what is not ASCII deletes every other script. |
#
# </details>

# %% [markdown]
# Now some texts that go wrong in practice. Guess first.

# %%
guess = lesson.predict(
    "Is 'ﬁnd', typed with the single character ﬁ, the same word to BERT as 'find'?",
    ...,
    choices=("the same", "different"),
)

# %%
traps = {
    "café": "é as one code point",
    "cafe\u0301": "é as two; the same word now",
    "résumé resume": "two English words become one",
    "ﬁnd": "a ligature is a letter of its own: no piece of *find* fits",
    "Straße": "ß stays, as lower-casing keeps it",
    "ΣΟΦΟΣ": "the last Σ becomes ς, the other σ",
    "don\u2019t": "a curly apostrophe is punctuation like a straight one, but a different piece",
    "soft\u00adware": "an invisible soft hyphen is removed",
    "zero\u200bwidth": "so is a zero-width space: the words are glued together",
    "日本語": "three ideographs, three words",
    "तुम": "in Hindi some vowel signs are nonspacing marks, and these are lost",
    "İstanbul": "a Turkish capital İ becomes a plain i",
}
rows = [
    f"| {text} | {len(text)} | {' · '.join(BasicTokenizer().tokenize(text))} | {about} |"
    for text, about in traps.items()
]
same = BasicTokenizer().tokenize("ﬁnd") == ["find"]
guess.answer(
    "the same" if same else "different", "NFD leaves compatibility characters such as ﬁ as they are."
)
course.say("| text | code points | words | |\n|---|---|---|---|\n" + "\n".join(rows))

# %% [markdown]
# The Hindi row is not a bug in minibert: the published uncased models do the same, and minibert follows them to the
# letter. This is why you should prefer the cased versions of the multilingual models. If your text comes from PDF
# files, look for ligatures and soft hyphens before you look for anything deeper.
#
# ## 3. Joining neighbours
#
# Now the pieces. Begin with every word cut into its letters, all but the first marked with `##`. Count the pairs of
# neighbours. Choose one pair and join it into one piece, wherever it occurs. Do that again and again until the list is
# long enough. The list then holds the letters and everything that was ever joined.
#
# One detail of the counting: joins can't overlap. Read from the left, `a ##a ##a ##a` offers the pair (`##a`,
# `##a`) only once, because the middle `##a` can be joined with only one of its neighbours;
# `a ##a ##a ##a ##a` offers it twice.
#
# ### Exercise 01.2 (easy): count the pairs
# `text` is a list of words, each a list of its pieces and the number of times that the word occurs. Return a dictionary
# from pairs (left piece, right piece) to the number of joins that are possible.


# %%
# Exercise 01.2
def count_pairs(text):
    """Return {(left, right): how often}, without overlap from the left; text is [(pieces, n), ...]."""
    ...


# %%
def draw_text(rng):
    """Words over two letters, so that runs of one piece are frequent."""

    def draw_pieces():
        inside = rng.choice(["##a", "##b"], int(rng.integers(0, 9)))
        return [str(one) for one in (rng.choice(["a", "b"]), *inside)]

    return ([(draw_pieces(), int(rng.integers(2, 40))) for _ in range(int(rng.integers(2, 7)))],)


def pairs_by_joining(text):
    """Join each pair in turn, and see by how many pieces the words become shorter."""
    joins = Counter()
    for pieces, n in text:
        for pair in set(itertools.pairwise(pieces)):
            joins[pair] += n * (len(pieces) - len(simple.join(pieces, pair, "joined")))
    return dict(joins)


lesson.check(count_pairs, draw=draw_text, same_as=pairs_by_joining, times=20)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `zip(pieces, pieces[1:])` gives the neighbours. A word that occurs n times counts n times.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Remember the last pair that you counted in this word. If the next one is equal to it, they overlap: skip it, and
# forget the last one, so that the one after it counts again.
#
# </details>
# <details><summary>Solution 01.2</summary>
#
# ```python
# def count_pairs(text):
#     counts = {}
#     for pieces, n in text:
#         last = None
#         for pair in zip(pieces, pieces[1:]):
#             last = None if pair == last else pair
#             if last is not None:
#                 counts[pair] = counts.get(pair, 0) + n
#     return counts
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `None if pair == last else pair` | `pair` | Overlapping pairs were counted: three equal pieces in a row allow one join, not two. |
# | `counts.get(pair, 0) + n` | `counts.get(pair, 0) + 1` | A word that occurs n times counts n times. |
# | `counts.get(pair, 0) + n` | `n` | The count of an earlier word was overwritten; add to it. |
# | `zip(pieces, pieces[1:])` | `set(zip(pieces, pieces[1:]))` | A pair can occur more than once in the same word. |
# | `zip(pieces, pieces[1:])` | `itertools.combinations(pieces, 2)` | Only neighbours can be joined, not any two pieces of a word. |
# | `zip(pieces, pieces[1:])` | `zip(pieces[1:], pieces)` | Left and right are swapped. |
# | `zip(pieces, pieces[1:])` | `zip(pieces, pieces[1:-1])` | The last pair of each word is missing. |
# | `zip(pieces, pieces[1:])` | `zip(pieces[::2], pieces[1::2])` | After a pair the next one begins a place further on, not two; only an overlap is left out. |
# | `last = None if pair == last else pair` | `counts[pair] = counts.get(pair, 0) + 1; last = None` | A word that occurs n times counts n times, and overlapping pairs allow one join, not two. |
#
# </details>

# %% [markdown]
# minibert's own function does it in the same way:

# %%
course.source(simple.neighbours)

# %% [markdown]
# ## 4. Which pair is the best?
#
# The obvious answer is the most frequent one. That rule is called **byte-pair encoding** (Sennrich et al. 2016).
# **WordPiece** (Schuster and Nakajima 2012), after which BERT's vocabulary is named, asks for something else: the pair
# whose joining makes the text most likely. (Google has never released the program that learnt BERT's vocabulary; we
# follow that paper's description.) Likely under which model? The simplest there is: every piece $u$ is drawn
# independently of the others, with a probability $p(u)$. Let $c(u)$ be how often piece $u$ occurs, and
# $N = \sum_u c(u)$.
# The logarithm of the probability of the whole text, its **log-likelihood**, has one term for every piece in it:
#
# $$ L = \sum_{i=1}^{N} \log p(u_i) = \sum_u c(u) \log p(u). $$
#
# **The best probabilities are the frequencies,** $p(u) = c(u)/N$. For any other probabilities $q$, use
# $\log x \le x - 1$:
#
# $$ \sum_u c(u) \log q(u) - \sum_u c(u) \log \frac{c(u)}{N} = \sum_u c(u) \log \frac{q(u)\,N}{c(u)}
#    \le \sum_u c(u) \left(\frac{q(u)\,N}{c(u)} - 1\right) = N \sum_u q(u) - N \le 0. $$
#
# With these probabilities, and $f(x) = x \log x$, $f(0) = 0$,
#
# $$ L = \sum_u c(u) \log\frac{c(u)}{N} = \sum_u c(u) \log c(u) - N \log N = \sum_u f(c(u)) - f(N). $$
#
# Each of these equations can be checked with numbers. We do so with the letters of the books as pieces.

# %%
letters = [([word[0], *(f"##{one}" for one in word[1:])], n) for word, n in words.items()]
counts, pairs = Counter(), Counter()
for pieces, n in letters:
    for piece in pieces:
        counts[piece] += n
    for pair in simple.neighbours(pieces):
        pairs[pair] += n
N = counts.total()
c = np.array(list(counts.values()), float)


def f(x):
    """x log x, and 0 at 0."""
    return x * math.log(x) if x else 0.0


course.equal(
    "sum over all N pieces of log p = sum over different ones of c log p",
    float(sum(n * sum(math.log(counts[piece] / N) for piece in pieces) for pieces, n in letters)),
    float((c * np.log(c / N)).sum()),
)
course.equal(
    "sum of c log(c/N) = sum of f(c) - f(N)", float((c * np.log(c / N)).sum()), sum(map(f, c)) - f(N)
)
rng = np.random.default_rng(0)
others = c / N * np.exp(0.1 * rng.standard_normal((1000, len(c))))
others /= others.sum(1, keepdims=True)
q = 0.9 * others[0]  # any numbers that sum to at most 1
at_q, at_p = float((c * np.log(q)).sum()), float((c * np.log(c / N)).sum())
course.equal(
    "difference of the two sums = sum of c log(qN/c)", at_q - at_p, float((c * np.log(q * N / c)).sum())
)
course.equal(
    "sum of c (qN/c - 1) = N (sum of q) - N", float((c * (q * N / c - 1)).sum()), float(N * q.sum() - N)
)
worse = (c * np.log(others)).sum(1) < (c * np.log(c / N)).sum()
course.say(
    f"Of 1,000 other distributions close to the frequencies, {worse.sum():,} make the text less likely."
)

# %% [markdown]
# **What a join changes.** Take a pair $(a, b)$ that can be joined $n$ times. Afterwards there are $n$ pieces $ab$ that
# did not exist before, $n$ fewer of $a$, $n$ fewer of $b$, and $n$ fewer pieces altogether. No other count moves, so in
# the difference $\Delta L$ of the two values of $L$ only a few terms are left.
#
# ### Exercise 01.3 (core): the gain of a join
# Find out which terms are left, for a pair of different pieces and for a pair of equal ones, and return
# $\Delta L$ in nats. A count may drop to zero. The check does not use a formula: it makes the joins, and computes $L$
# before and after.


# %%
# Exercise 01.3
def gain(counts, pair, n):
    """Return what n joins of a pair add to L; counts is {piece: how often}, all pieces of the text."""
    ...


# %%
def log_likelihood(of):
    """L of a text with these counts of its pieces."""
    return sum(map(f, of.values())) - f(of.total())


def draw_pair(rng):
    """Counts of a few pieces, and a pair of two of them; often a piece is used up entirely."""
    pieces = ["a", "##b", "##c", "##dd", "##e"][: int(rng.integers(2, 6))]
    counts = {piece: int(rng.integers(12, 400)) for piece in pieces}
    left, right = (str(one) for one in rng.choice(pieces, 2))
    most = counts[left] // 2 if left == right else min(counts[left], counts[right])
    if left == right:
        counts[left] = 2 * most
    return counts, (left, right), most if rng.random() < 0.4 else int(rng.integers(1, most + 1))


def gain_by_counting(counts, pair, n):
    """Make the joins, and compute L of the whole text before and after."""
    after = Counter(counts)
    for piece in pair:
        after[piece] -= n
    after["joined"] = n
    return log_likelihood(after) - log_likelihood(Counter(counts))


lesson.check(gain, draw=draw_pair, same_as=gain_by_counting, times=40, tolerance=1e-9)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Four counts change: those of $ab$, $a$ and $b$, and $N$. Each adds the change in its $f$ (after minus
# before); that of $N$ has a minus sign, as in $L$. Write $f$ first; the logarithm of 0 does not exist, but
# $f(0) = 0$.
#
# </details>
# <details><summary>Hint 2</summary>
#
# For one count: before the joins it adds $f(c(a))$ to $L$, afterwards $f(c(a) - n)$. Do the same for $b$, for the new
# piece (from $f(0)$ to $f(n)$) and, with a minus sign, for $N$, which is `sum(counts.values())`. With two equal pieces,
# one count loses $2n$. How many does $N$ lose?
#
# </details>
# <details><summary>Solution 01.3</summary>
#
# ```python
# def gain(counts, pair, n):
#     def f(x):
#         return x * math.log(x) if x else 0.0
#
#     left, right = pair
#     total = sum(counts.values())
#     if left == right:
#         lost = f(counts[left]) - f(counts[left] - 2 * n)
#     else:
#         lost = f(counts[left]) - f(counts[left] - n) + f(counts[right]) - f(counts[right] - n)
#     return f(n) - lost + f(total) - f(total - n)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `f(n) - lost + f(total) - f(total - n)` | `f(n) - lost` | N becomes smaller by n, too: the terms with f(N) are missing. |
# | `f(n) - lost + f(total) - f(total - n)` | `f(total) - f(total - n) - lost` | The n new pieces are in the text as well: f(n) is missing. |
# | `f(n) - lost + f(total) - f(total - n)` | `n * (math.log(n * total / counts[left] / counts[right]) - 1)` | That is the approximation for a small n, not the gain itself. |
# | `f(total - n)` | `f(total - 2 * n)` | A join makes one piece out of two, so the text has n fewer pieces, not 2n. |
# | `f(counts[left] - 2 * n)` | `f(counts[left] - n)` | Where both pieces are the same, each join takes two from one count. |
# | `f(counts[right] - n)` | `f(counts[right])` | The right piece occurs less often after the join, too. |
# | `x * math.log(x)` | `math.log(x)` | f(x) is x log x; each of the x pieces has its own term. |
# | `math.log(x)` | `math.log2(x)` | The unit is the nat, so the logarithm is the natural one. |
#
# </details>

# %% [markdown]
# **The formula.** Written out, the difference is
#
# $$ \Delta L = f(n) - \bigl[f(c(a)) - f(c(a) - n)\bigr] - \bigl[f(c(b)) - f(c(b) - n)\bigr] + \bigl[f(N) - f(N - n)\bigr] . $$
#
# If $a = b$, then each join takes two from the same count, and $f(c(a)) - f(c(a) - 2n)$ replaces the first two
# brackets. Now join a pair in all the books, count everything again, and compare.


# %%
def joined(pair):
    """Count the pieces of all the books again, after a pair was joined everywhere."""
    after = Counter()
    for pieces, times in letters:
        for piece in simple.join(pieces, pair, "joined"):
            after[piece] += times
    return after


a, b = "t", "##h"
n = pairs[a, b]
gain_of_th = f(n) - (f(counts[a]) - f(counts[a] - n)) - (f(counts[b]) - f(counts[b] - n)) + (f(N) - f(N - n))
change = log_likelihood(joined((a, b))) - log_likelihood(counts)
course.equal("t ##h: L counted anew - L before = the formula", change, gain_of_th)
twice, m = "##l", pairs["##l", "##l"]
gain_of_ll = f(m) - (f(counts[twice]) - f(counts[twice] - 2 * m)) + (f(N) - f(N - m))
change = log_likelihood(joined((twice, twice))) - log_likelihood(counts)
course.equal("##l ##l: the same, with 2n", change, gain_of_ll)
course.say(f"Joining *t* and *##h* {n:,} times makes the books {gain_of_th:,.0f} nats more likely.")

# %% [markdown]
# The real function, from minibert's plainest learner, treats equal and different pieces alike:

# %%
course.source(simple.gain)

# %% [markdown]
# **What the formula says.** Where $n$ is small compared with the other counts,
# $f(c) - f(c - n) \approx n f'(c) = n (\log c + 1)$, and the terms combine to
#
# $$ \Delta L \approx n \left[ \log \frac{n}{c(a)\,c(b)/N} - 1 \right]. $$
#
# If neighbours were independent of each other, the pair would occur $c(a)\,c(b)/N$ times. The fraction says how many
# times as often it really occurs. So a join pays when the pair is more than about $e$ times as frequent as it would
# be by chance, and it pays in proportion to $n$. Many tutorials state WordPiece's rule as "highest $n / (c(a)\,c(b))$".
# That is the fraction alone, without the factor $n$. Two questions remain: how good is the approximation, and what does
# that rule choose?

# %%
rows = []
for pair in (("##w", "##s"), ("t", "##h"), ("q", "##u")):
    n, exact = pairs[pair], simple.gain(pair, pairs[pair], counts)
    rough = n * (math.log(n * N / counts[pair[0]] / counts[pair[1]]) - 1)
    rows.append(
        f"| `{pair[0]} {pair[1]}` | {n:,} | {n / min(counts[one] for one in pair):.0%} | {exact:,.0f} | {rough:,.0f} |"
    )
course.say(
    "| pair | n | n as a share of the rarer count | ΔL | approximation |\n|---|---|---|---|---|\n"
    + "\n".join(rows)
)

# %% [markdown]
# Where $n$ is small, the two agree. Where a join uses up a piece almost entirely, as `q ##u` does, the true gain is
# larger still. The sign and the order of magnitude are right.

# %%
guess = lesson.predict(
    "Highest n / (c(a) c(b)): is its first choice frequent ('th') or rare ('00')?",
    ...,
    choices=("frequent", "rare"),
)

# %%
rules = {
    "the most frequent pair": dict(pairs),
    "the greatest gain ΔL": {pair: simple.gain(pair, n, counts) for pair, n in pairs.items()},
    "the highest n / (c(a) c(b))": {
        pair: n / counts[pair[0]] / counts[pair[1]] for pair, n in pairs.items() if n > 1
    },
}
tops = {rule: sorted(values, key=values.get, reverse=True)[:6] for rule, values in rules.items()}
ratio_first = pairs[tops["the highest n / (c(a) c(b))"][0]]
guess.answer(
    "rare" if ratio_first < 1000 else "frequent", f"it occurs {ratio_first:,} times in {N:,} letters."
)
course.say(
    "| choose | the six best pairs, and how often they occur |\n|---|---|\n"
    + "\n".join(
        f"| {rule} | {', '.join(f'`{left} {right}` {pairs[left, right]:,}' for left, right in best)} |"
        for rule, best in tops.items()
    )
)

# %%
times_chance = np.array([n * N / counts[left] / counts[right] for (left, right), n in pairs.items()])
how_often = np.array(list(pairs.values()))
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
axes.loglog(times_chance, how_often, ".", color="0.75", label="a pair of letters")
x = np.logspace(np.log10(np.e) + 0.01, 4.5, 200)
n = pairs["t", "##h"]
best_level = n * (math.log(n * N / counts["t"] / counts["##h"]) - 1)
for level in (1e3, 1e4, 1e5, best_level):
    axes.loglog(x, level / (np.log(x) - 1), color="0.4", lw=0.8)
    axes.annotate(
        f"{level:,.0f} nats",
        (x[-1], level / (np.log(x[-1]) - 1)),
        (4, 0),
        textcoords="offset points",
        fontsize=7,
        va="center",
    )
axes.axvline(np.e, color="0.4", ls=":", lw=1)
for (rule, best), marker, colour in zip(tops.items(), "so^", ("C1", "C0", "C2"), strict=True):
    axes.loglog(
        [pairs[p] * N / counts[p[0]] / counts[p[1]] for p in best],
        [pairs[p] for p in best],
        marker,
        color=colour,
        mfc="none",
        ms=9,
        mew=1.6,
        label=rule,
    )
for pair, at in {
    ("t", "##h"): (6, 6),
    ("##h", "##e"): (-32, 8),
    ("o", "##f"): (8, -2),
    ("0", "##0"): (-8, 8),
}.items():
    axes.annotate(
        " ".join(pair),
        (pairs[pair] * N / counts[pair[0]] / counts[pair[1]], pairs[pair]),
        at,
        textcoords="offset points",
        fontsize=9,
    )
axes.set(xlabel="times more frequent than by chance", ylabel="how often the pair occurs, n", ylim=(0.8, 2e6))
axes.legend(frameon=False, fontsize=8, loc="lower left")
course.show(
    figure,
    "Every pair of letters as a point: how much more frequent than chance against how frequent. Lines of equal gain "
    "fall from left to right. The most frequent pairs lie at the top, those with the greatest gain on the uppermost "
    "line at the top right, and those with the highest ratio at the far right, where pairs are rare.",
)

# %% [markdown]
# The grey lines connect points of equal gain, by the approximation; to the left of the dotted line, at $e$, a join makes
# the text less likely. Byte-pair encoding takes the highest point. The ratio takes the point furthest to the right,
# down among the rare pairs of digits. WordPiece takes the one on the highest grey line. It is willing to give up some
# frequency for a pair that belongs together: `o ##f` comes second. `##e ##r` is more frequent than that, but only
# because both of its letters are frequent: it lies left of the dotted line.
#
# ## 5. The whole learner
#
# That is all we need. The learner is a loop of counting and choosing:

# %%
course.source(simple.learn)

# %% [markdown]
# (Gains are rounded so that the last bit of a logarithm does not decide between tied pairs.) It counts the text again
# for each join, which is easy to read and slow. The function that minibert really uses makes the same choices, but only
# visits words that have changed; tests compare it with this one. It takes only a moment to learn 8,192 pieces by each
# rule.

# %%
vocabularies = {rule: learn_vocab(words, 8_192, objective=rule) for rule in ("likelihood", "frequency")}
tokenizers = {rule: Tokenizer(vocab) for rule, vocab in vocabularies.items()}
course.say(
    "| rule | the first joins |\n|---|---|\n"
    + "\n".join(
        f"| {rule} | {' '.join(f'`{piece}`' for piece in [p for p in vocab[5:] if len(p.removeprefix('##')) > 1][:18])} |"
        for rule, vocab in vocabularies.items()
    )
)

# %% [markdown]
# A single verse is enough to watch the learner at work. Press Play, or move the slider: each frame is one join. The
# words in their pieces are above, and below are the pairs that gain most, with the counts that enter the formula.

# %%
lines = filter(None, sentences([embedded_corpus()]))
verse = next(line for line in lines if line.startswith("The father shall be divided against"))
course.animations.joins(verse)

# %% [markdown]
# Joins are listed in the order in which they were made, so the first 256 pieces *are* the vocabulary of
# size 256. So we can watch how the parts of a word are joined. We take *unforgiving*, which puzzled us in the tour.


# %%
def boxes(axes, pieces, height, colour="#dbe7f3"):
    """Draw the pieces of a word as a row of boxes."""
    left = 0
    for piece in pieces:
        width = len(piece.removeprefix("##"))
        axes.add_patch(
            Rectangle((left, -height), width - 0.08, 0.8, facecolor=colour, edgecolor="0.4", lw=0.6)
        )
        axes.text(
            left + width / 2 - 0.04,
            0.38 - height,
            piece.removeprefix("##"),
            ha="center",
            va="center",
            family="monospace",
        )
        left += width


sizes = [2**k for k in range(7, 14)]
word = "unforgiving"
figure, all_axes = plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
for axes, (rule, vocab) in zip(all_axes, vocabularies.items(), strict=True):
    for height, size in enumerate(sizes):
        boxes(axes, Tokenizer(vocab[:size]).tokenize(word), height)
        axes.text(-0.3, 0.38 - height, f"{size:,}", ha="right", va="center", fontsize=8)
    axes.set(xlim=(-2, len(word) + 0.2), ylim=(-len(sizes) + 0.9, 1), title=f"by {rule}")
    axes.set_axis_off()
course.show(
    figure,
    "The word unforgiving in boxes, cut by vocabularies of 128 to 8,192 pieces, for both rules. With 128 pieces it is "
    "mostly letters; the boxes become longer with every row.",
)
with_unf = sorted(((n, one) for one, n in words.items() if one.startswith("unf")), reverse=True)
course.say(
    f"Why `unf`? In these books {sum(n for n, _ in with_unf):,} words begin with it, most often "
    + ", ".join(f"*{one}* ({n})" for n, one in with_unf[:4])
    + f". The piece was a step on the way to *{with_unf[0][1]}*, and stayed in the list."
)

# %% [markdown]
# Which rule is better? That depends on what you ask for. We take two measures on held-out text: pieces per word, and
# what the text costs under the simple model, in nats per byte. Nats per *piece* would not be a fair measure, since
# vocabularies with longer pieces have fewer of them to pay for.

# %%
guess = lesson.predict(
    "Which rule needs fewer pieces per word on held-out text?", ..., choices=("likelihood", "frequency")
)

# %%
measured = {}
for rule, vocab in vocabularies.items():
    for size in sizes:
        tokenizer = Tokenizer(vocab[:size])
        learned_from, other = segmented(tokenizer, words), segmented(tokenizer, held_out)
        measured[rule, size] = other.piece_counts.sum() / other.n_words, nats_per_byte(learned_from, other)
table = {rule: np.array([measured[rule, size] for size in sizes]) for rule in vocabularies}
fewer = min(vocabularies, key=lambda rule: table[rule][-1, 0])
guess.answer(
    fewer,
    f"{table[fewer][-1, 0]:.3f} with 8,192 pieces; the other one needs {max(t[-1, 0] for t in table.values()):.3f}.",
)

figure, axes = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
axes[0].plot(sizes, table["likelihood"][:, 0], "o-", color="C0", label="pieces per word")
axes[0].plot(sizes, table["likelihood"][:, 1], "s--", color="C1", label="nats per byte")
axes[0].set(title="By likelihood: a longer list, a shorter text", ylim=(0, None))
change = 100 * (table["frequency"] / table["likelihood"] - 1)
axes[1].plot(sizes, change[:, 0], "o-", color="C0", label="pieces per word")
axes[1].plot(sizes, change[:, 1], "s--", color="C1", label="nats per byte")
axes[1].axhline(0, color="0.4", lw=0.8)
axes[1].set(title="Frequency compared with likelihood", ylabel="difference in %")
for one in axes:
    one.set_xscale("log", base=2)
    one.set_xlabel("size of the vocabulary")
    one.legend(frameon=False)
course.show(
    figure,
    "Left: pieces per word and nats per byte both fall as the vocabulary grows. Right: compared with "
    "likelihood, the frequency rule needs fewer pieces and costs more nats per byte; both differences "
    "shrink as the vocabulary grows.",
)

# %%
course.say(
    f"Frequency needs {-change[-1, 0]:.1f}% fewer pieces per word, and likelihood pays "
    f"{100 - 100 / (1 + change[-1, 1] / 100):.1f}% less per byte. Each rule wins at its own game, and with "
    "8,192 pieces they are nearly the same. Anyone who tells you that one of them makes much better models "
    "should show you numbers."
)

# %% [markdown]
# ## 6. Cutting a word
#
# Learning is done once. Cutting is done for every word that is ever read, and here BERT does not repeat the joins. It
# uses **greedy matching**: take the longest piece that the word begins with, then the longest `##` piece that continues
# it, and so on to the end. If at some position no piece fits, the whole word becomes **[UNK]**, a special piece for
# what is unknown.
#
# ### Exercise 01.4 (core): longest match first
# Cut a word into pieces. `pieces` is a set of strings. The answer is a list of pieces, or `["[UNK]"]`. An empty word
# has no pieces: return `[]`.


# %%
# Exercise 01.4
def longest_match(word, pieces):
    """Return the pieces of a word, the longest that fits first; ["[UNK]"] where none fits."""
    ...


# %%
def draw_vocabulary(rng):
    """A word over three letters, and a set of pieces in which some letters may be missing."""
    word = "".join(rng.choice(list("abc"), int(rng.integers(0, 10))))
    strings = ["".join(one) for size in (1, 2, 3, 4) for one in itertools.product("abc", repeat=size)]
    pieces = [
        mark + one
        for one in strings
        for mark in ("", "##")
        if rng.random() < (0.9 if len(one) == 1 else 0.25)
    ]
    return word, set(pieces)


def numbered_match(word, pieces):
    """The same by ids, with minibert's own function."""
    vocab = [*simple.SPECIAL_TOKENS, *sorted(pieces)]
    return [vocab[number] for number in simple.encode(word, {piece: i for i, piece in enumerate(vocab)})]


lesson.check(longest_match, draw=draw_vocabulary, same_as=numbered_match, times=60)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Keep a position `begin` that moves through the word. Everything but the first piece needs its `##` before you look it
# up.
#
# </details>
# <details><summary>Hint 2</summary>
#
# For each `begin`, try the ends from the last letter of the word down to `begin + 1`, and stop at the first for which
# the string in between is a piece. If there is none, the word as a whole is unknown, whatever was found before.
#
# </details>
# <details><summary>Solution 01.4</summary>
#
# ```python
# def longest_match(word, pieces):
#     found, begin = [], 0
#     while begin < len(word):
#         mark = "##" if begin else ""
#         ends = (end for end in range(len(word), begin, -1) if mark + word[begin:end] in pieces)
#         end = next(ends, None)
#         if end is None:
#             return ["[UNK]"]
#         found.append(mark + word[begin:end])
#         begin = end
#     return found
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `"##" if begin else ""` | `""` | Pieces inside a word carry the mark ##. |
# | `"##" if begin else ""` | `"##"` | The first piece of a word has no mark. |
# | `return ["[UNK]"]` | `return [*found, "[UNK]"]` | Where one place has no piece, the whole word is [UNK]; what was found before is dropped. |
# | `range(len(word), begin, -1)` | `range(begin + 1, len(word) + 1)` | That takes the shortest match: try the last end first. |
# | `range(len(word), begin, -1)` | `range(len(word) - 1, begin, -1)` | The last letter never takes part: the end of a slice is not included in it. |
# | `range(len(word), begin, -1)` | `range(min(len(word), begin + 3), begin, -1)` | Pieces can be longer than three letters. |
# | `found.append(mark + word[begin:end])` | `found.append(word[begin:end])` | The mark belongs to the piece; it is part of its string. |
#
# </details>

# %% [markdown]
# And minibert's own, which returns ids and positions instead of strings:

# %%
course.source(GreedyCore.match)

# %% [markdown]
# Greedy matching is fast and simple. Is it also good? It can fail in two ways. Suppose the pieces are `ab`, `a` and
# `##bc`: the word *abc* begins with `ab`, there is no piece `##c` to continue with, and the result is [UNK],
# although `a ##bc` would have worked. (A learnt vocabulary has every letter in both forms, so this does not
# happen to words whose letters it knows.) And it can take a longer piece now and pay for it later. To see how
# often, try all the ways to cut a word, and take the one that is most likely under the model of section 4.


# %%
def every_cut(word):
    """Yield all ways to cut a word, 2 ** (len(word) - 1) of them, as lists of strings with their marks."""
    for cut in itertools.product((False, True), repeat=len(word) - 1):
        borders = [0, *(place for place, is_cut in enumerate(cut, 1) if is_cut), len(word)]
        yield [("##" if begin else "") + word[begin:end] for begin, end in itertools.pairwise(borders)]


def best_by_trying(word, log_p):
    """Return the likeliest cut of a word among all there are."""
    possible = [cut for cut in every_cut(word) if all(piece in log_p for piece in cut)]
    return max(possible, key=lambda cut: sum(log_p[piece] for piece in cut), default=["[UNK]"])


tokenizer = tokenizers["likelihood"]
used = segmented(tokenizer, words).piece_counts
log_p = {
    piece: math.log((n + 1) / (used.sum() + len(used)))
    for piece, n in zip(tokenizer.vocab, used, strict=True)
}
print(
    f"'unforgiving' has {2 ** (len('unforgiving') - 1):,} cuts; the likeliest is {' '.join(best_by_trying('unforgiving', log_p))}"
)

# %% [markdown]
# ### Exercise 01.5 (hard): the likeliest cut, without trying them all
# A word of 30 letters has half a billion cuts. Find the best one in about $30^2/2$ steps. `log_p` is a dictionary from
# pieces to the logarithms of their probabilities, and the best cut is the one with the greatest sum. Return
# `["[UNK]"]` if there is none. The words here have at least one letter.


# %%
# Exercise 01.5
def likeliest_cut(word, log_p):
    """Return the pieces of a word with the greatest sum of log_p; ["[UNK]"] if log_p allows no cut."""
    ...


# %%
def draw_probabilities(rng):
    """A word over two letters, and log-probabilities of some pieces."""
    word = "".join(rng.choice(list("ab"), int(rng.integers(1, 9))))
    strings = ["".join(one) for size in (1, 2, 3, 4) for one in itertools.product("ab", repeat=size)]
    kept = [
        mark + one
        for one in strings
        for mark in ("", "##")
        if rng.random() < (0.85 if len(one) == 1 else 0.5)
    ]
    return word, {piece: float(-rng.uniform(0.5, 6.0) * (1 + 0.4 * len(piece))) for piece in kept}


def is_likeliest(answer, word, log_p):
    """Say what is wrong with a cut; one that is just as likely as the best one is right."""
    best = best_by_trying(word, log_p)
    if "[UNK]" in best:
        return None if answer == best else f"{word} has no cut into these pieces, so {best} is expected."
    if answer not in list(every_cut(word)) or not all(piece in log_p for piece in answer):
        return f"{answer} is not a cut of {word} into pieces that have a probability."
    lost = sum(log_p[piece] for piece in best) - sum(log_p[piece] for piece in answer)
    return (
        f"{answer} is {lost:.3f} nats less likely than the best cut of {word}, {best}."
        if lost > 1e-9
        else None
    )


lesson.check(likeliest_cut, draw=draw_probabilities, law=is_likeliest, times=60)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The best cut of a word ends with some piece. What comes before this piece must be cut in the best way, too;
# otherwise the whole could be improved. So find the best cut of the first letter, of the first two letters,
# and so on.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Keep a list `best`, in which `best[end]` is the best cut of the first `end` letters, or None if there is none. `best[0]`
# is the empty list. To find `best[end]`, try every `begin` before it.
#
# </details>
# <details><summary>Solution 01.5</summary>
#
# ```python
# def likeliest_cut(word, log_p):
#     best = [[]]
#     while len(best) <= len(word):
#         end, options = len(best), []
#         for begin in range(end):
#             piece = ("##" if begin else "") + word[begin:end]
#             if best[begin] is not None and piece in log_p:
#                 options.append([*best[begin], piece])
#         best.append(max(options, key=lambda cut: sum(log_p[one] for one in cut), default=None))
#     return best[-1] or ["[UNK]"]
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `max(options,` | `min(options,` | That is the unlikeliest cut. |
# | `sum(log_p[one] for one in cut)` | `-len(cut)` | Few pieces are not the same as likely pieces. |
# | `sum(log_p[one] for one in cut)` | `log_p[cut[-1]]` | All pieces of the cut count, not only the last one. |
# | `sum(log_p[one] for one in cut)` | `sum(math.exp(log_p[one]) for one in cut)` | Probabilities multiply, so their logarithms add; the probabilities themselves don't. |
# | `max(options, key=lambda cut: sum(log_p[one] for one in cut), default=None)` | `next(iter(options), None)` | The first option has the longest last piece, which need not be the best. |
# | `("##" if begin else "")` | `""` | Pieces inside a word carry the mark ##. |
# | `range(end)` | `range(max(0, end - 2), end)` | Pieces may be longer than two letters. |
# | `[*best[begin], piece]` | `[piece, *best[begin]]` | The pieces come out from the last to the first. |
#
# </details>

# %%
short = [word for word in held_out if word.isalpha() and 4 <= len(word) <= 10]
sample = [
    short[i] for i in np.random.default_rng(1).choice(len(short), lesson.scale(1_000, 200), replace=False)
]
if lesson.passed("01.5"):
    best_cuts = {word: likeliest_cut(word, log_p) for word in sample}
    print("The best cuts below are found by your function.")
else:
    best_cuts = {word: best_by_trying(word, log_p) for word in sample}
    print("The best cuts below are found by trying all of them, since exercise 01.5 is open.")
greedy_cuts = {word: tokenizer.tokenize(word) for word in sample}
lost = {
    word: sum(log_p[piece] for piece in best_cuts[word]) - sum(log_p[piece] for piece in greedy_cuts[word])
    for word in sample
}
different = [word for word in sample if lost[word] > 1e-9]  # the others are the same, or just as likely
worst = sorted(different, key=lost.get, reverse=True)[:8]
figure, all_axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
for axes, name, cuts, colour in zip(
    all_axes,
    ("greedy matching", "the likeliest cut"),
    (greedy_cuts, best_cuts),
    ("#f6e3c5", "#dbe7f3"),
    strict=True,
):
    for height, word in enumerate(worst):
        boxes(axes, cuts[word], height, colour)
        if cuts is greedy_cuts:
            axes.text(10.4, 0.38 - height, f"+{lost[word]:.1f} nats", va="center", fontsize=8)
    axes.set(xlim=(-0.2, 13), ylim=(-len(worst) + 0.9, 1), title=name)
    axes.set_axis_off()
course.show(
    figure,
    f"Eight words cut by greedy matching, and beside them in the likeliest way, which mostly has more natural parts. "
    f"The words: {', '.join(worst)}.",
)
course.say(
    f"Of {len(sample):,} different held-out words of 4 to 10 letters, greedy matching cuts "
    f"{len(different) / len(sample):.1%} differently from the likeliest cut, and loses "
    f"{np.mean([lost[word] for word in different]):.1f} nats on these. "
    f"Averaged over all {len(sample):,} words, that is {sum(lost.values()) / len(sample):.2f} nats per word."
)

# %% [markdown]
# The picture shows the eight words that lose most. Frequent words are single pieces, so in running text the loss is
# smaller still. BERT can live with it: a network that reads *unf-or-giving* often enough learns what it means.
#
# ## 7. What the vocabulary did to the long tail
#
# One last look at the straight line of section 1, now with pieces alongside words.

# %%
piece_frequencies = np.sort(used[used > 0])[::-1]
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
axes.loglog(1 + np.arange(len(frequencies)), frequencies, "-", color="C1", lw=2, label="words")
axes.loglog(1 + np.arange(len(piece_frequencies)), piece_frequencies, "--", color="C0", lw=2, label="pieces")
axes.set(xlabel="rank", ylabel="how often it occurs")
axes.legend(frameon=False)
course.show(
    figure,
    "Frequency against rank for words and for pieces. The curves agree for frequent words; that of the pieces bends "
    "down at the end of the vocabulary, and its tail of rare ones is short.",
)
never = [piece for piece, n in zip(tokenizer.vocab[5:], used[5:], strict=True) if n == 0]
known = held_out.counts[[len(cut) == 1 for cut in map(tokenizer.tokenize, held_out)]].sum() / held_out.total()
rare = int((piece_frequencies < 10).sum())
course.say(
    f"Half of the words in the books occur {int(np.median(frequencies))} times or less; half of the pieces in use "
    f"occur {int(np.median(piece_frequencies))} times or more, and only {rare:,} of them fewer than ten times. So there is "
    f"something to learn about nearly every piece. {known:.1%} of the held-out words are a single piece, and none is unknown. "
    f"{len(never):,} pieces are never used: `{'`, `'.join([one for one in never if len(one) > 4][:6])}` and others were steps on the way to longer ones."
)

# %% [markdown]
# ## 8. Keep it
#
# A vocabulary is a plain text file with one piece on each line, and the number of the line (from 0) is the id. The five
# special pieces come first. `save_pretrained` writes this `vocab.txt`, and two JSON files which tell Hugging Face's
# libraries about lower-casing. If `transformers` is installed here, the cell compares its ids with ours.

# %%
folder = Path("vocabulary")
tokenizer.save_pretrained(folder)
again = Tokenizer.from_pretrained(folder)
print("vocab.txt begins with", " ".join((folder / "vocab.txt").read_text("utf-8").split("\n")[:8]))
lines = ["The unforgiving whale swallowed Jonah.", "Où est l'ÉTE\u0301? ﬁnd 日本語"]
for line in lines:
    ids = again(line).ids.tolist()
    print(f"{line}  ->  {' '.join(again(line).tokens)}")
    print(f"  read back: {again.decode(ids, skip_special_tokens=True)}")
if importlib.util.find_spec("transformers"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of progress bars that it has no use for here
        from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(str(folder))
    agree = all(theirs(line)["input_ids"] == again(line).ids.tolist() for line in lines)
    print(f"transformers reads the folder and gets {'the same ids' if agree else 'different ids'}.")
else:
    print("transformers is not installed here, so there is nothing to compare with.")

# %% [markdown]
# Reading back shows what is lost on the way: capitals, accents, the spaces around punctuation, and whatever was [UNK].
# A tokenizer of this kind is made for reading, not for writing.
#
# ## What we saw
#
# * Words have a long tail that no list can hold. Letters have no such tail, but a single letter says little. Pieces lie
#   in between.
# * Most surprises come before any cutting: decomposition, dropped marks, ligatures, invisible characters.
# * With $f(x) = x \log x$, a join changes the log-likelihood by a handful of terms, about $n\,[\log r - 1]$
#   for a pair $r$ times as frequent as by chance. Byte-pair encoding looks only at $n$, the ratio only at how
#   far the pair exceeds chance.
# * Cutting is greedy. In running text that is nearly always the likeliest cut as well, since frequent words are single
#   pieces.
#
# Exercises that are still open, if any:

# %%
still_open = [one.number for one in lesson.exercises if not lesson.passed(one.number)]
print(", ".join(still_open) if still_open else "none. All five have passed.")

# %% [markdown]
# ## Words
#
# - **code point**: the number that Unicode gives to a character.
# - **combining mark**: a code point that is drawn onto the one before it, such as an accent.
# - **NFD**: the canonical decomposition of Unicode, which separates letters from their marks.
# - **byte-pair encoding**: learning pieces by joining the most frequent pair of neighbours, again and again.
# - **WordPiece**: learning pieces by joining the pair that makes the text likeliest.
# - **log-likelihood**: the logarithm of the probability that a model gives to a whole text.
# - **greedy matching**: cutting a word by taking the longest piece that fits, from left to right.
# - **[UNK]**: the piece that stands for a word which can't be spelt with the vocabulary.
#
# ## Where to go next
#
# [Chapter 02](02_what_bert_reads.ipynb) gives the pieces to a model: three tables and one sum. `minibert vocab` learns a
# vocabulary from files of any size, and `minibert vocab --help` lists what else can be set.
