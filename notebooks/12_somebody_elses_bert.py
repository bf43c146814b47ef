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
# # 12 · Somebody else's BERT in your engine
#
# To run this notebook: `pip install '.[notebooks]'` from a checkout of minibert. Nothing is downloaded. It takes one or
# two minutes, most of that in the first section.
#
# **The question.** Thousands of BERTs lie on the web as folders of files. Can your engine run one of them? No library
# may open it for you. You begin with the bytes of a file, and you end with the hidden states that its maker would see,
# to ten digits.
#
# **After this chapter you can**
#
# * open a file of weights with nothing but Python, and refuse one that lies about its lengths;
# * find your parameters under somebody else's names, and say which matrices lie the other way round;
# * tell a model that is loaded correctly from one that merely loads;
# * make a vector of a sentence, and say honestly what it is worth.
#
# It needs no exercises from other chapters. But if your engine is complete, it is *your* engine that runs the
# stranger's model, sealed as in chapter 10.

# %%
# %matplotlib inline
import dataclasses
import json
import math
import re
import struct
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from safetensors.numpy import load_file

from minibert import Tokenizer, course, hub
from minibert.core.batch import Batch, Sequence
from minibert.core.bert import hidden_states
from minibert.core.config import BertConfig
from minibert.core.folder import hugging_face_names
from minibert.data.corpus import embedded_corpus, sentences
from minibert.engines import limited_threads
from minibert.model.ops import Ops
from minibert.model.params import Parameters, initialise
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain
from minibert.tasks.metrics import bootstrap, paired_bootstrap
from minibert.tokenizer import BasicTokenizer

plt.rcParams |= {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False}
limits = limited_threads(1)  # several threads are slower with matrices this small
lesson = course.begin("12")

# %% [markdown]
# ## 1. A folder from a stranger
#
# If you have a published BERT on this computer, put the path of its folder below. It has to hold `config.json`,
# `vocab.txt` and `model.safetensors`, as the folders on Hugging Face do (**safetensors** is the format of the weights;
# all-MiniLM-L6-v2 is a good one, and so is bert-base-uncased). If you have none, leave `None`: the next cell then plays
# the stranger. It has minibert's fast engine read sixteen books, which takes about a minute, and leaves a folder of the
# same form. Either way, from here on its three files are all that we know about the model.
#
# Every fifth chapter of the books is kept from the stranger. We shall need text that the model has not seen.

# %%
GIVEN = None  # or the path of a folder, in quotation marks

# %%
documents = [[]]
for line in sentences([embedded_corpus()]):
    if line:
        documents[-1].append(line)
    else:
        documents.append([])
held_out = documents[2::5]

if GIVEN:
    folder = Path(GIVEN)
else:
    work = Path(tempfile.mkdtemp())
    folder = work / "somebody"
    reading = ["\n".join(one) for number, one in enumerate(documents) if number % 5 != 2]
    (work / "reading.txt").write_text("\n\n".join(reading), encoding="utf-8")
    options = PretrainOptions(
        corpus=str(work / "reading.txt"), layout="sentences", vocab_size=lesson.scale(4_096, 1_000),
        steps=lesson.scale(800, 30), seq_length="10:0.75,32:0.25", batch_size=100, next_sentence=False,
        evaluations=0,
    )  # fmt: skip
    pretrain(options, folder, show=False)

settings = json.loads((folder / "config.json").read_text())
known = {field.name for field in dataclasses.fields(BertConfig)}
config = BertConfig(**{name: value for name, value in settings.items() if name in known})
data = (folder / "model.safetensors").read_bytes()
for name in ("config.json", "vocab.txt", "model.safetensors"):
    print(f"{name:20}{(folder / name).stat().st_size:12,} bytes")
print(f"L = {config.L} layers, H = {config.H}, A = {config.A} heads, F = {config.F}, V = {config.V:,} pieces")

# %%
guess = lesson.predict(
    "What share of the file of weights, in percent, is not weights?",
    ...,
    choices=(0.1, 1, 10, 30),
)

# %% [markdown]
# ## 2. Eight bytes and a header
#
# A file of weights used to be a *pickle*, a small program that Python runs in order to get the arrays back. Whoever
# loads one runs the code of a stranger. The format **safetensors** was made so that nothing has to be run. It has three
# parts:
#
# 1. eight bytes, a whole number $n$ without sign;
# 2. $n$ bytes of JSON, the **header**: for each tensor its type, its shape, and where its bytes begin and end;
# 3. the bytes of all tensors, one after another. Positions in the header count from the beginning of this part.
#
# The eight bytes are **little-endian**, the byte for ones comes first: $n = \sum_{i=0}^{7} b_i\, 256^i$. Here are the
# first bytes of our file.

# %%
for at in range(0, 64, 16):
    row = data[at : at + 16]
    shown = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
    print(f"{at:6}  {row.hex(' ')}  {shown}")
n = sum(byte * 256**place for place, byte in enumerate(data[:8]))
course.equal("the sum over eight bytes, and Python's own reading", n, int.from_bytes(data[:8], "little"))

# %% [markdown]
# ### Exercise 12.1 (core): open the file
#
# `data` is what the file holds, as bytes. Return the header as a dictionary, and the position in `data` where the bytes
# of the tensors begin. But a stranger wrote these eight bytes. If there are fewer than eight, or if the header is
# longer than what follows them, the file is broken or a trap: return `({}, 0)`.


# %%
# Exercise 12.1
def read_header(data):
    """Return header and begin, where the tensors begin, or ({}, 0) where the length can't be true."""
    ...


# %%
def header_by_struct(data):
    """Let Python's struct read the length, and compare it with what there is before anything is read."""
    if len(data) < 8:
        return {}, 0
    (length,) = struct.unpack("<Q", data[:8])
    behind = data[8:]
    if length > len(behind):
        return {}, 0
    return json.loads(str(memoryview(behind)[:length], "utf-8")), len(data) - len(behind) + length


def draw_file(rng):
    names = ["weight", "bias", "größe", "x" * 300, "a.b"]
    entries = {
        names[number]: {
            "dtype": "F32",
            "shape": [int(rng.integers(9))],
            "data_offsets": [0, int(rng.integers(99))],
        }
        for number in rng.permutation(5)[: rng.integers(1, 6)]
    }
    text = json.dumps(entries, ensure_ascii=False).encode()
    if rng.random() < 0.5:
        text += b" " * (-len(text) % 8)  # as the library does, so that tensors begin at a multiple of eight
    whole = len(text).to_bytes(8, "little") + text
    kind = int(rng.integers(6))
    if kind == 0:
        return (whole[: rng.integers(1, 8)],)
    if kind == 1:
        return (whole[:-1],)
    if kind == 2:
        return ((len(text) + 2**63).to_bytes(8, "little") + text + rng.bytes(9),)
    if kind == 3:
        return (whole,)  # without any tensor: short, but true
    return (whole + rng.bytes(int(rng.integers(1, 30))),)


lesson.check(read_header, draw=draw_file, same_as=header_by_struct, times=60)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `int.from_bytes(data[:8], "little")` is the length. `json.loads` takes bytes as well as strings.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The header ends at 8 + n. A single comparison with `len(data)` refuses both kinds of lies, for with fewer than eight
# bytes 8 + n is too large whatever n is. A slice does not complain when it is cut short: `data[8 : 8 + n]` of a broken
# file gives what there is.
#
# </details>
# <details><summary>Solution 12.1</summary>
#
# ```python
# def read_header(data):
#     n = int.from_bytes(data[:8], "little")
#     if len(data) < 8 + n:
#         return {}, 0
#     return json.loads(data[8 : 8 + n]), 8 + n
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `"little"` | `"big"` | The byte for ones comes first: the number is little-endian. |
# | `data[:8], "little"` | `data[:4], "little"` | The length has eight bytes; with four, a length of more than 32 bits looks small. |
# | `data[:8], "little"` | `data[:8], "little", signed=True` | The length has no sign; read with one, a huge length is negative and passes the comparison. |
# | `len(data) < 8 + n` | `len(data) < n` | The eight bytes of the length itself are not part of the header. |
# | `len(data) < 8 + n` | `len(data) <= 8 + n` | A file may end with its header: a model without tensors is odd, but no lie. |
# | `data[8 : 8 + n]` | `data[8:n]` | The slice ends at 8 + n, for it counts from the beginning of the file. |
# | `json.loads(data[8 : 8 + n]), 8 + n` | `json.loads(data[8 : 8 + n]), n` | The tensors begin behind the header, at 8 + n. |
# | `len(data) < 8 + n` | `len(data) < 8` | A header that is longer than the rest of the file is broken or a trap: compare before you read. |
# | `json.loads(data[8 : 8 + n])` | `json.loads(data[8 : 8 + n].decode("latin-1"))` | The header is UTF-8: read as Latin-1, letters beyond ASCII fall apart. |
#
# </details>

# %%
header, start = (read_header if lesson.passed("12.1") else header_by_struct)(data)
meta = header.pop("__metadata__", {})
print(f"{len(header)} tensors behind {start:,} bytes; the stranger remarks: {meta}")
for name, entry in list(header.items())[:3]:
    print(f"  {name}: {entry}")
guess.answer(100 * start / len(data), "the header is small beside the weights.")

# %%
GROUPS = {
    "word table": ("word_embeddings", "C0"), "positions": ("position_embeddings", "C1"),
    "attention": (".attention.", "C2"), "feed-forward": ("dense", "C3"), "the rest": ("", "0.5"),
}  # fmt: skip
figure, axes = plt.subplots(figsize=(9, 1.9), layout="constrained")
labelled = set()
for name, entry in header.items():
    group = next(one for one, (mark, _) in GROUPS.items() if mark in name)
    begin, end = (place / 1e6 for place in entry["data_offsets"])
    label = None if group in labelled else group
    labelled.add(group)
    axes.barh(0, end - begin, left=begin, color=GROUPS[group][1], edgecolor="w", lw=0.3, label=label)
axes.set(xlabel="place in the file (million bytes)", yticks=[], title="model.safetensors, tensor by tensor")
axes.legend(ncols=5, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.45), frameon=False)
course.show(
    figure,
    "The file as one long bar, cut into its tensors, which are coloured by what they are for; the word table is the "
    "longest single piece.",
)

# %% [markdown]
# ## 3. Never trust a length
#
# JSON can hold any number. A header may place a tensor before the file or after its end, or promise a matrix of a
# million rows in twelve bytes. In C, such a file has the program read memory that is not its own, and many break-ins
# began like that. NumPy would stop us in most cases, but not in all, and its message would come from deep inside. So we
# look first.
#
# ### Exercise 12.2 (hard): what can't be true
#
# `header` maps names to entries with "dtype", "shape" and "data_offsets" [begin, end]; `size` is the number of bytes
# after the header. Return the sorted list of the names that can't be read as the header says. An entry is good if its
# type is in `BYTES` (how many bytes a number takes), no length in its shape is negative, its bytes lie within the
# `size` bytes, and there are exactly as many of them as its shape needs. A shape `[]` is a single number.
# `"__metadata__"` is not a tensor.


# %%
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4}


# %%
# Exercise 12.2
def untrustworthy(header, size):
    """Return the sorted names of the tensors that can't be read as the header says."""
    ...


# %%
def why_not(entry, size):
    """Return the reason why an entry can't be read as it says, or ""."""
    begin, end = entry["data_offsets"]
    if entry["dtype"] not in BYTES:
        return f"there is no type {entry['dtype']}"
    count = 1
    for length in entry["shape"]:
        if length < 0:
            return f"{length} is not a length"
        count *= length
    if begin < 0 or end > size:
        return f"its bytes {begin} to {end} are not all among the {size} that there are"
    needed = count * BYTES[entry["dtype"]]
    return "" if begin + needed == end else f"it has {end - begin} bytes where its shape needs {needed}"


def refused(header, size):
    """Look for a reason, tensor by tensor."""
    return sorted(name for name, one in header.items() if name != "__metadata__" and why_not(one, size))


def names_those(answer, header, size):
    """Say which tensor an answer forgets or suspects."""
    if not isinstance(answer, list) or not all(isinstance(name, str) for name in answer):
        return "the answer is not a list of names."
    if "__metadata__" in answer:
        return "__metadata__ is in the list, and it is not a tensor."
    for name, entry in header.items():
        reason = "" if name == "__metadata__" else why_not(entry, size)
        if reason and name not in answer:
            return f"{name}, {entry}, is not in the list, although {reason}."
        if name in answer and not reason:
            return f"{name}, {entry}, is in the list, and nothing is wrong with it (size {size})."
    return (
        None if answer == refused(header, size) else "the names are not in order, or one stands there twice."
    )


def draw_header(rng):
    size, header = int(rng.integers(300, 400)), {}
    if rng.random() < 0.5:
        header["__metadata__"] = {"format": "pt"}
    for name in rng.permutation([f"tensor {letter}" for letter in "abcdefg"]):
        dtype = str(rng.choice(list(BYTES)))
        shape = [int(one) for one in rng.integers(0 if rng.random() < 0.3 else 1, 4, size=rng.integers(3))]
        lie = rng.integers(12)
        if lie == 0:
            dtype = "F7"
        if lie == 1:
            shape = [-1, -2]  # whose product looks well
        if lie == 2:
            shape = [-1, 0]
        needed = math.prod(shape) * BYTES.get(dtype, 4)
        begin = int(rng.choice([0, size - needed, rng.integers(1, size - needed)]))
        if lie == 3:
            begin = -1
        if lie == 4:
            begin = size - needed + 1
        end = begin + needed
        if lie == 5 and begin > 0:
            end -= 1
        if lie == 6 and end < size:
            end += 1
        header[str(name)] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    return header, size


lesson.check(untrustworthy, draw=draw_header, law=names_those, times=150)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `math.prod(shape)` is the number of numbers, and 1 for an empty shape. Two negative lengths have a positive product,
# so the product alone does not show them.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Three questions: does it lie inside (`begin >= 0 and end <= size`), are type and shape plausible, and is `end - begin`
# the product times the bytes of a number? Python stops at the first `and` that fails, so ask for the bytes of a type
# only once you know the type.
#
# </details>
# <details><summary>Solution 12.2</summary>
#
# ```python
# def untrustworthy(header, size):
#     wrong = []
#     for name, entry in header.items():
#         if name == "__metadata__":
#             continue
#         begin, end = entry["data_offsets"]
#         is_inside = begin >= 0 and end <= size
#         is_plausible = entry["dtype"] in BYTES and all(n >= 0 for n in entry["shape"])
#         count = math.prod(entry["shape"])
#         if not (is_inside and is_plausible and end - begin == count * BYTES[entry["dtype"]]):
#             wrong.append(name)
#     return sorted(wrong)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `begin >= 0 and end <= size` | `end <= size` | A negative beginning counts from the end in Python, and lies before the array in C. |
# | `begin >= 0 and end <= size` | `begin >= 0` | The bytes may end behind the end of the file. |
# | `end <= size` | `end < size` | The last tensor ends exactly where the file does. |
# | ` and all(n >= 0 for n in entry["shape"])` | *nothing* | Two negative lengths have a positive product, so the size alone looks right. |
# | `all(n >= 0 for n in entry["shape"])` | `all(n > 0 for n in entry["shape"])` | A length of zero is allowed: such a tensor has no numbers and no bytes. |
# | `count * BYTES[entry["dtype"]]` | `count` | The places count bytes, not numbers. |
# | `sorted(wrong)` | `wrong` | The names are asked for in order. |
# | `end - begin == count` | `end - begin >= count` | There have to be exactly as many bytes as the shape needs, not more. |
# | `count * BYTES[entry["dtype"]]` | `count * 4` | Not every type takes four bytes: `BYTES` says how many. |
# | `math.prod(entry["shape"])` | `(math.prod(entry["shape"]) if entry["shape"] else 0)` | An empty shape is a single number, for an empty product is 1. |
#
# </details>

# %%
suspicious = untrustworthy if lesson.passed("12.2") else refused
found = suspicious(header, len(data) - start)
print("tensors of this file that can't be read as the header says:", found or "none")

# %% [markdown]
# What do libraries do with such a file? Let us play a stranger who means harm, and move the end of one tensor in a copy
# of the header. The real library is as careful as you are:

# %%
victim = next(iter(header))
for what, change in {
    "the file as it is": lambda entry: entry,
    "an end behind the file": lambda entry: (
        entry | {"data_offsets": [entry["data_offsets"][0], len(data) + 4]}
    ),
    "twice as many rows": lambda entry: entry | {"shape": [2 * entry["shape"][0], *entry["shape"][1:]]},
    "two negative lengths": lambda entry: entry | {"shape": [-1, -math.prod(entry["shape"])]},
}.items():
    changed = header | {victim: change(header[victim])}
    text = json.dumps(changed).encode()
    path = Path(tempfile.mkdtemp()) / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[start:])
    try:
        load_file(path)
        said = "reads it"
    except Exception as error:
        said = f"refuses it ({type(error).__name__})"
    print(f"{what:24} yours: {suspicious(changed, len(data) - start) or 'nothing wrong'}; the library {said}")

# %% [markdown]
# ## 4. From bytes to numbers
#
# A float of 32 bits has one bit for the sign, eight for the exponent and 23 for the fraction:
#
# $$ x = (-1)^s \; 2^{e - 127} \; \Bigl(1 + \frac{f}{2^{23}}\Bigr) . $$
#
# Weights are also published in 16 bits, in two ways. F16 has five bits of exponent and ten of fraction. **bfloat16**
# (BF16) keeps all eight bits of exponent and drops the last sixteen of the fraction: it *is* the upper half of a float of
# 32 bits. NumPy does not know it, so you have to make one from halves.

# %%
number = np.float32(math.pi)
formats = {
    "F32": (int(number.view("<u4")), 32, 8),
    "F16": (int(np.float16(number).view("<u2")), 16, 5),
    "BF16": (int(number.view("<u4")) >> 16, 16, 8),
}
bits = formats["F32"][0]
sign = bits >> 31  # the first bit
exponent = bits >> 23 & 255  # the next eight
fraction = bits & (2**23 - 1)  # the last 23
course.equal(
    "the formula, and the machine's number",
    (-1) ** sign * 2.0 ** (exponent - 127) * (1 + fraction / 2**23),
    float(number),
)
figure, axes = plt.subplots(figsize=(9, 2.2), layout="constrained")
for height, (name, (bits, length, exponents)) in enumerate(formats.items()):
    for place in range(length):
        colour = "C3" if place == 0 else "C1" if place <= exponents else "C0"
        axes.barh(-height, 0.94, left=place, height=0.7, color=colour, alpha=0.3)
        axes.text(
            place + 0.47, -height, bits >> (length - 1 - place) & 1, ha="center", va="center", fontsize=8
        )
    axes.text(-0.4, -height, name, ha="right", va="center")
axes.set(xlim=(-3, 32.5), title="π in three formats: sign (red), exponent (orange), fraction (blue)")
axes.set_axis_off()
course.show(
    figure,
    "The bits of pi in 32-bit floats, in 16-bit floats with a short exponent, and in bfloat16, whose sixteen bits are the "
    "first sixteen of the 32.",
)

# %% [markdown]
# ### Exercise 12.3 (core): an array from bytes
#
# `raw` holds the bytes of one tensor, little-endian and row by row, in "F64", "F32", "F16" or "BF16". Return an array of
# this shape in float64, so that no later step loses a digit.


# %%
# Exercise 12.3
def tensor(raw, dtype, shape):
    """Return the float64 array of this shape that the bytes stand for."""
    ...


# %%
def number_by_number(raw, dtype, shape):
    """Unpack each number by itself; a bfloat16 by the formula above."""

    def bfloat16(two):
        bits = two[0] + 256 * two[1]
        return (-1) ** (bits >> 15) * 2.0 ** ((bits >> 7 & 255) - 127) * (1 + (bits & 127) / 128)

    width = BYTES[dtype]
    parts = [raw[at : at + width] for at in range(0, len(raw), width)]
    if dtype == "BF16":
        numbers = [bfloat16(one) for one in parts]
    else:
        form = {"F64": "<d", "F32": "<f", "F16": "<e"}[dtype]
        numbers = [struct.unpack(form, one)[0] for one in parts]
    return np.array(numbers, np.float64).reshape(shape)


def draw_bytes(rng):
    shape = [int(one) for one in rng.permutation([2, 3, 5])[: rng.integers(4)]]
    values = rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 3)
    dtype = str(rng.choice(["F64", "F32", "F16", "BF16"]))
    if dtype == "BF16":
        return (np.asarray(values, "<f4").view("<u4") >> 16).astype("<u2").tobytes(), dtype, shape
    return np.asarray(values, {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype]).tobytes(), dtype, shape


def is_double(answer, raw, dtype, shape):
    kind = getattr(answer, "dtype", type(answer).__name__)
    return None if kind == np.float64 else f"the answer is {kind}; expected an array of float64."


lesson.check(tensor, draw=draw_bytes, same_as=number_by_number, law=is_double, times=40)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `np.frombuffer(raw, "<f4")` reads little-endian floats of four bytes, `"<f8"` and `"<f2"` those of eight and two.
#
# </details>
# <details><summary>Hint 2</summary>
#
# For BF16 read whole numbers of two bytes (`"<u2"`), make them four bytes wide, shift them left by 16, and look at the
# result with `.view("<f4")`. The low half is zero.
#
# </details>
# <details><summary>Solution 12.3</summary>
#
# ```python
# def tensor(raw, dtype, shape):
#     if dtype == "BF16":
#         halves = np.frombuffer(raw, "<u2").astype("<u4")
#         values = (halves << 16).view("<f4")
#     else:
#         values = np.frombuffer(raw, {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype])
#     return values.reshape(shape).astype(np.float64)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `values.reshape(shape)` | `values` | The bytes are a row of numbers; the shape makes them a matrix. |
# | `values.reshape(shape)` | `values.reshape(shape[::-1]).T` | The numbers lie row by row: the last axis runs fastest. |
# | `.astype(np.float64)` | *nothing* | The numbers are right but narrow; the precision asked for is float64. |
# | `"F32": "<f4"` | `"F32": ">f4"` | The bytes are little-endian. |
# | `(halves << 16).view("<f4")` | `np.frombuffer(raw, "<f2")` | BF16 is not F16: the two divide their sixteen bits differently. |
# | `(halves << 16).view("<f4")` | `(halves << 16).astype("<f4")` | The bits have to be looked at as a float, not converted to one. |
# | `(halves << 16)` | `halves` | The sixteen bits are the upper half of a float, so they have to be shifted. |
# | `(halves << 16)` | `(halves << 8)` | The sixteen bits are the upper half of a float, so they have to be shifted by sixteen. |
# | `(halves << 16).view("<f4")` | `(np.frombuffer(raw, "<u2") << 15).astype("<u4").view("<f4")` | Shifted within sixteen bits the number is lost: widen it to 32 bits first. |
# | `values.reshape(shape)` | `values.reshape(shape, order="F")` | The numbers lie row by row: the last axis runs fastest. |
#
# </details>

# %% [markdown]
# Now every tensor of the file, next to what the library makes of it. Tensors that are not floats are not weights, and we
# pass over them: some files carry a list of positions, 0, 1, 2, …

# %%
if lesson.passed("12.3"):
    as_array = tensor
else:  # number by number would take too long for millions

    def as_array(raw, dtype, shape):
        if dtype == "BF16":
            return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4").reshape(shape).astype(float)
        kind = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype]
        return np.frombuffer(raw, kind).reshape(shape).astype(float)


tensors = {}
for name, entry in header.items():
    if "F" in entry["dtype"]:
        begin, end = entry["data_offsets"]
        tensors[name] = as_array(data[start + begin : start + end], entry["dtype"], entry["shape"])
library = load_file(folder / "model.safetensors")
course.equal(
    "the sum of all weights, yours and the library's",
    [float(one.sum()) for one in tensors.values()],
    [float(library[name].astype(np.float64).sum()) for name in tensors],
)
assert all(np.array_equal(array, library[name]) for name, array in tensors.items())
print(f"{len(tensors)} tensors, {sum(array.size for array in tensors.values()):,} numbers, each one the same")

# %% [markdown]
# ## 5. A vocabulary
#
# `vocab.txt` has one piece per line, and the number of the line, from 0, is the id of the piece. That sounds like
# `text.splitlines()`. It is not: Python ends a line at ten different characters, and a vocabulary learnt from the web
# has some of them as pieces. Had line 200 been split in two, all pieces after it would have the vectors of their
# neighbours.
#
# ### Exercise 12.4 (easy): read it
#
# `data` is the file as bytes, UTF-8. Lines end with a line feed, `\n`, or with `\r\n`, and with nothing else. The last
# line may end with one or not. Return a dictionary from pieces to ids; if a piece occurs twice, the later line counts.


# %%
# Exercise 12.4
def read_vocabulary(data):
    """Return {piece: id} of the bytes of a vocab.txt."""
    ...


# %%
def line_by_line(data):
    """Look for line feeds among the bytes."""
    ids, number = {}, 0
    while data:
        line, _, data = data.partition(b"\n")
        ids[line.removesuffix(b"\r").decode("utf-8")] = number
        number += 1
    return ids


def draw_vocabulary(rng):
    pieces = [
        "[PAD]",
        "the",
        "##s",
        "é",
        "東",
        "\u2028",
        "\x85",
        "\x0b",
        "a\u00a0b",
        "\u3000",
        "two words",
        "the",
    ]
    chosen = [pieces[number] for number in rng.permutation(len(pieces))[: rng.integers(5, 13)]]
    end = "\r\n" if rng.random() < 0.3 else "\n"
    return ((end.join(chosen) + (end if rng.random() < 0.7 else "")).encode(),)


lesson.check(read_vocabulary, draw=draw_vocabulary, same_as=line_by_line, times=60)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Decode the bytes first. Then `text.split("\n")` cuts at line feeds and nowhere else.
#
# </details>
# <details><summary>Hint 2</summary>
#
# After a final line feed `split` gives one more string, an empty one. It is not a piece.
#
# </details>
# <details><summary>Solution 12.4</summary>
#
# ```python
# def read_vocabulary(data):
#     lines = data.decode("utf-8").replace("\r\n", "\n").split("\n")
#     if lines[-1] == "":
#         lines.pop()
#     return {piece: number for number, piece in enumerate(lines)}
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `.replace("\r\n", "\n").split("\n")` | `.splitlines()` | Python ends lines at ten characters, and some of them are pieces. |
# | `.replace("\r\n", "\n").split("\n")` | `.split()` | Some pieces have a space in them, or are one. |
# | `.replace("\r\n", "\n")` | *nothing* | Of a file from Windows every piece would end with a carriage return. |
# | `decode("utf-8")` | `decode("latin-1")` | The file is UTF-8: read as Latin-1, letters beyond ASCII fall apart. |
# | `enumerate(lines)` | `enumerate(lines, 1)` | Ids begin at 0. |
# | `enumerate(lines)` | `[*enumerate(lines)][::-1]` | Of two lines with the same piece the later one counts. |
# | `        lines.pop()` | `        pass` | The empty string behind the last line feed is not a piece. |
# | `.replace("\r\n", "\n").split("\n")` | `.splitlines() + [""]` | Python ends lines at ten characters, and some of them are pieces. |
# | `enumerate(lines)` | `enumerate(line.strip() for line in lines)` | Some pieces are spaces, or have one at an end, of the kinds that `strip` removes. |
# | `    if lines[-1] == "":` | `    if True:` | The last line may end without a line feed; then its piece is lost here. |
# | `enumerate(lines)` | `enumerate(dict.fromkeys(lines))` | A piece that comes up again has a line of its own, so the lines after it keep their numbers. |
# | `{piece: number for` | `{number: piece for` | The dictionary goes from pieces to ids, not from ids to pieces. |
#
# </details>

# %% [markdown]
# To cut words there is the longest match of exercise 01.4. Here it is once more, on your vocabulary. We compare it with
# minibert's tokenizer, which has read the folder itself, on hundreds of sentences that it has never seen.

# %%
ids = (read_vocabulary if lesson.passed("12.4") else line_by_line)((folder / "vocab.txt").read_bytes())
pieces = {number: piece for piece, number in ids.items()}
words_of = BasicTokenizer().tokenize  # lower case, accents, punctuation: exercise 01.1


def cut(word):
    """Return the ids of a word: always the longest piece that fits."""
    found, begin = [], 0
    while begin < len(word):
        mark = "##" if begin else ""
        fitting = (end for end in range(len(word), begin, -1) if mark + word[begin:end] in ids)
        end = next(fitting, None)
        if end is None:
            return [ids["[UNK]"]]
        found.append(ids[mark + word[begin:end]])
        begin = end
    return found


def read(text):
    """Return the ids of a text between [CLS] and [SEP]; "[MASK]" in it is a gap."""
    found = [ids["[CLS]"]]
    for number, part in enumerate(text.split("[MASK]")):
        if number > 0:  # a gap is before each part but the first
            found.append(ids["[MASK]"])
        for word in words_of(part):
            found += cut(word)
    return np.array([*found, ids["[SEP]"]])


rng = np.random.default_rng(12)
unseen = [line for document in held_out for line in document if 8 <= len(line.split()) <= 24]
unseen = [unseen[number] for number in rng.permutation(len(unseen))[: lesson.scale(1_200, 60)]]
theirs = Tokenizer.from_pretrained(folder)
same = sum(read(line).tolist() == theirs.encode(line) for line in unseen)
print(f"{same} of {len(unseen)} sentences are cut alike; for example:")
print(" ".join(pieces[number] for number in read(unseen[0])))
assert same == len(unseen)

# %% [markdown]
# ## 6. Whose names are these?
#
# Your engine asks for `layers.0.attention.qkv_weight`. The file has nothing of that name. Here are both lists for the
# first layer, with shapes.

# %%
ours = initialise(config, 0, np.float64)
mine = [(name, array.shape) for name, array in ours.items() if name.startswith("layers.0.")]
foreign = [
    (name, array.shape)
    for name, array in sorted(tensors.items())
    if name.removeprefix("bert.").startswith("encoder.layer.0.")
]
for row in range(len(foreign)):
    left = f"{foreign[row][0]:58}{foreign[row][1]!s:13}"
    print(left + (f"{mine[row][0]:36}{mine[row][1]}" if row < len(mine) else ""))

# %% [markdown]
# Two differences go beyond names. The first: query, key and value are three matrices in the file and one of yours, side
# by side in this order. The second hides in the shapes of the feed-forward layer. A linear layer of yours computes $y =
# xW + b$ with a row $x$, so $W$ is (inputs, outputs). PyTorch, which wrote the file, keeps for each *output* the row of
# its weights, a matrix $U$ of (outputs, inputs), and computes
#
# $$ y_j = \sum_i U_{ji}\, x_i + b_j = \sum_i x_i\, (U^\top)_{ij} + b_j , \qquad \text{so } W = U^\top . $$

# %%
x, U, b = rng.standard_normal((1, 3)), rng.standard_normal((4, 3)), rng.standard_normal(4)
by_rows = [sum(U[j, i] * x[0, i] for i in range(3)) + b[j] for j in range(4)]
course.equal("a row of weights for each output, and x times the transpose", by_rows, (x @ U.T + b)[0])

# %% [markdown]
# Where a matrix is not square, the shape tells. Where it is square, both ways round fit, nothing complains, and the model
# is nonsense.

# %%
matrices = [name for name, array in tensors.items() if ".layer." in name and array.ndim == 2]
guess = lesson.predict(
    f"Of the {len(matrices)} matrices in the layers of this file, how many are square?", ...
)
square = [name for name in matrices if tensors[name].shape[0] == tensors[name].shape[1]]
guess.answer(len(square), "their shape does not tell which way round they are.")

# %% [markdown]
# ### Exercise 12.5 (core): where does it belong?
#
# `name` is the name of a tensor in a layer, with or without `bert.` in front: files of bare encoders leave it out.
# Return three things: your name of it, such as `layers.3.feed_forward.in_weight`; which third of your array it is (0,
# 1, 2 for query, key, value, and None if it is the whole); and whether it has to be transposed. The weight of a
# LayerNorm is your `gamma`, its bias your `beta`.


# %%
# Exercise 12.5
def place_of(name):
    """Return name, part and transpose: our name, 0 or 1 or 2 or None, and whether to transpose."""
    ...


# %%
def place_by_search(name):
    """Go through all our names, and look which of them the library would write under this one."""
    number = int(re.search(r"\.(\d+)\.", name)[1])
    layers = BertConfig.from_size("1-6-2", vocab_size=9)
    for own, array in initialise(layers, 0).items():
        own = own.replace("layers.0.", f"layers.{number}.")
        written = hugging_face_names(own)
        for part, other in enumerate(written):
            if other.removeprefix("bert.") == name.removeprefix("bert."):
                return own, part if len(written) == 3 else None, array.ndim == 2
    raise KeyError(name)


def draw_name(rng):
    layer, kind = int(rng.integers(24)), str(rng.choice(["weight", "bias"]))
    module = str(
        rng.choice(
            [
                "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
                "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm",
            ]
        )
    )  # fmt: skip
    front = "bert." if rng.random() < 0.5 else ""
    return (f"{front}encoder.layer.{layer}.{module}.{kind}",)


lesson.check(place_of, draw=draw_name, same_as=place_by_search, times=150)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Cut the name: after `encoder.layer.` comes a number, then the module, then `weight` or `bias`. `partition` cuts at the
# first full stop, `rpartition` at the last.
#
# </details>
# <details><summary>Hint 2</summary>
#
# A dictionary from the eight modules to the beginnings of your names and the third does the rest. Take care of
# `output.dense` and `attention.output.dense`: one is a part of the other.
#
# </details>
# <details><summary>Solution 12.5</summary>
#
# ```python
# def place_of(name):
#     number, _, rest = name.partition("encoder.layer.")[2].partition(".")
#     module, _, kind = rest.rpartition(".")
#     block, part = {
#         "attention.self.query": ("attention.qkv_", 0),
#         "attention.self.key": ("attention.qkv_", 1),
#         "attention.self.value": ("attention.qkv_", 2),
#         "attention.output.dense": ("attention.output_", None),
#         "attention.output.LayerNorm": ("attention.", None),
#         "intermediate.dense": ("feed_forward.in_", None),
#         "output.dense": ("feed_forward.out_", None),
#         "output.LayerNorm": ("feed_forward.", None),
#     }[module]
#     is_norm = module.endswith("LayerNorm")
#     if is_norm:
#         return f"layers.{number}.{block}" + {"weight": "gamma", "bias": "beta"}[kind], part, False
#     return f"layers.{number}.{block}{kind}", part, kind == "weight"
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `"attention.self.key": ("attention.qkv_", 1)` | `"attention.self.key": ("attention.qkv_", 0)` | Query, key and value are the thirds 0, 1 and 2, in this order. |
# | `{"weight": "gamma", "bias": "beta"}` | `{"weight": "beta", "bias": "gamma"}` | The weight of a LayerNorm is what it multiplies with: gamma. |
# | `part, kind == "weight"` | `part, True` | A bias has one axis; there is nothing to transpose. |
# | `part, kind == "weight"` | `part, False` | The weight of a linear layer is (outputs, inputs) in the file, the other way round than yours. |
# | `"output.dense": ("feed_forward.out_", None)` | `"output.dense": ("attention.output_", None)` | `output.dense` belongs to the feed-forward network; that of attention begins with `attention.`. |
# | `layers.{number}.{block}{kind}` | `layers.{number[0]}.{block}{kind}` | Layers can have numbers of two digits. |
# | `name.partition("encoder.layer.")[2]` | `name.removeprefix("bert.encoder.layer.")` | The name may begin with `encoder.`, without `bert.`. |
# | `[kind], part, False` | `[kind], part, kind == "weight"` | The weight of a LayerNorm has one axis; there is nothing to transpose. |
# | `{kind}", part, kind == "weight"` | `{kind}", None if part is None else part + 1, kind == "weight"` | The thirds are numbered from 0. |
# | `{kind}", part, kind == "weight"` | `{kind}", part or 0, kind == "weight"` | Where the tensor is the whole array, the second answer is None. |
# | `"attention.output.LayerNorm": ("attention.", None)` | `"attention.output.LayerNorm": ("feed_forward.", None)` | Each block ends with a LayerNorm of its own; this one is that of attention. |
#
# </details>

# %% [markdown]
# The tensors outside the layers are a list, and there is nothing to learn from writing it. Embeddings are tables, not
# linear layers, so they are not transposed. The masked-LM head scores the pieces with the word table itself (chapter 07);
# some files write it down a second time, and we leave the copy aside.

# %%
OUTSIDE = {
    "embeddings.word_embeddings.weight": "embeddings.word",
    "embeddings.position_embeddings.weight": "embeddings.position",
    "embeddings.token_type_embeddings.weight": "embeddings.segment",
    "embeddings.LayerNorm.weight": "embeddings.gamma",
    "embeddings.LayerNorm.bias": "embeddings.beta",
    "pooler.dense.weight": "pooler.weight",
    "pooler.dense.bias": "pooler.bias",
    "cls.predictions.transform.dense.weight": "mlm.weight",
    "cls.predictions.transform.dense.bias": "mlm.bias",
    "cls.predictions.transform.LayerNorm.weight": "mlm.gamma",
    "cls.predictions.transform.LayerNorm.bias": "mlm.beta",
    "cls.predictions.bias": "mlm.output_bias",
    "cls.seq_relationship.weight": "nsp.weight",
    "cls.seq_relationship.bias": "nsp.bias",
}
where = place_of if lesson.passed("12.5") else place_by_search


def load(is_turned=True):
    """Return parameters filled from the file; with is_turned=False, square matrices stay as they lie."""
    params, filled = initialise(config, 0, np.float64), set()
    for name, array in tensors.items():
        name = name.removeprefix("bert.").replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")  # as the first files of BERT spell it
        if ".layer." in name:
            own, part, transposed = where(name)
        elif name in OUTSIDE:
            own, part = OUTSIDE[name], None
            transposed = own in ("pooler.weight", "mlm.weight", "nsp.weight")
        else:
            continue
        target = params[own] if part is None else np.split(params[own], 3, axis=-1)[part]
        is_square = array.ndim == 2 and array.shape[0] == array.shape[1]
        target[...] = array.T if transposed and (is_turned or not is_square) else array
        filled.add(own)
    return params, filled


params, filled = load()
open_names = [name for name in params if name not in filled]
print(
    f"{len(filled)} of your {len(list(params))} arrays are filled; left as they were: {open_names or 'none'}"
)

# %% [markdown]
# ## 7. To the last digits
#
# That a model loads proves little. The proof is in the hidden states: those of *your* engine with the parameters you
# have filled, next to those of minibert, which reads the folder with code of its own. Both compute in float64.

# %%
complete = all(row.state == "passed" for row in lesson.sheet())
engine = lesson.sealed() if complete else lesson.engine()
batch = Batch.pack([Sequence(one, 0 * one) for one in map(read, unseen[:20])])
numbers = tuple(range(config.L + 1))
yours = hidden_states(engine, config, numbers, params.tree, batch)
_, reference, _ = hub.load(folder, np.float64)
right = hidden_states(Ops(), config, numbers, reference.tree, batch)
for number in numbers:
    name = f"hidden states behind layer {number}" if number else "what enters the layers"
    course.equal(name, yours[number], right[number], tolerance=1e-10)
who = "your sealed engine" if complete else "this engine"
course.say(
    f"**The stranger's BERT runs in {who}**: {yours[-1].size:,} numbers, equal to ten digits and more."
)

# %% [markdown]
# Now we do it wrong on purpose. Each of these loads without a complaint. Where do the hidden states first differ, and by
# how much?


# %%
def altered(change):
    """Return a copy of the parameters after a change of its layers."""
    copy = Parameters(config, params.flat.copy())
    change(copy.tree["layers"])
    return copy


def exchange_query_and_key(layers):
    for one in layers:
        for name in ("qkv_weight", "qkv_bias"):
            query, key, _ = np.split(one["attention"][name], 3, axis=-1)
            query[...], key[...] = key.copy(), query.copy()


def exchange_gamma_and_beta(layers):
    for one in layers:
        gamma, beta = one["feed_forward"]["gamma"], one["feed_forward"]["beta"]
        gamma[...], beta[...] = beta.copy(), gamma.copy()


def forget_biases(layers):
    for one in layers:
        one["attention"]["output_bias"][...] = one["feed_forward"]["out_bias"][...] = 0


def largest_errors(states):
    """Return the largest error of each layer's states, relative to the largest number of the right ones."""
    return [abs(a - b).max() / abs(b).max() for a, b in zip(states, right, strict=True)]


by_tanh = dataclasses.replace(config, hidden_act="gelu_new")
wrongly = {
    "squares not transposed": (config, load(is_turned=False)[0]),
    "query and key exchanged": (config, altered(exchange_query_and_key)),
    "gamma and beta exchanged": (config, altered(exchange_gamma_and_beta)),
    "output biases forgotten": (config, altered(forget_biases)),
    "GELU by tanh": (by_tanh, params),
}
off = {"loaded correctly": largest_errors(yours)}
for what, (form, weights) in wrongly.items():
    off[what] = largest_errors(hidden_states(engine, form, numbers, weights.tree, batch))
figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
for count, (what, errors) in enumerate(off.items()):
    axes.semilogy(numbers, np.maximum(errors, 1e-17), "os^vDx"[count] + "-", label=what, color=f"C{count}")
axes.axhline(1e-10, color="0.4", ls="--", lw=0.8)
axes.set(xlabel="layer", ylabel="largest error, relative", title="Six ways to load one file", xticks=numbers)
axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
course.show(
    figure,
    "The error of the hidden states against the layer, on a logarithmic axis. Loaded correctly it stays at rounding level; "
    "the five wrong ways jump by many powers of ten at the first layer, GELU by tanh the least.",
)

# %% [markdown]
# The bottom line is rounding. Far above it, and far below the others, lies the line of the other GELU: printed with two
# digits, its states would look right. That is why the bound is $10^{-10}$ and not "looks similar": a small mistake and no
# mistake are told apart only by digits.
#
# ## 8. Does it speak?
#
# Suppose there were no other program to compare with. Would you notice a wrong way of loading? Ask the model for masked
# words: it answers well only if everything is in its place.

# %%
has_head = "mlm.output_bias" in filled


def scores(lines, form=config, weights=params):
    """Return the scores of all pieces at each gap, (gaps,V), by your engine."""
    batch = Batch.pack([Sequence(one, 0 * one) for one in map(read, lines)])
    gaps = np.flatnonzero(batch.input_ids == ids["[MASK]"])
    (last,) = hidden_states(engine, form, (form.L,), weights.tree, batch)
    table = weights.tree["embeddings"]["word"]
    found, _ = engine.masked_lm_logits(last, gaps, weights.tree["mlm"], table, form)
    return found


clozes = (
    "and he said unto [MASK],",
    "in the [MASK] of the",
    "I do not [MASK] it.",
    "she was very [MASK] to see",
)
if has_head:
    for cloze, row in zip(clozes, scores(clozes), strict=True):
        p = np.exp(row - row.max())
        best = np.argsort(-p)[:5]
        answers = ", ".join(f"{pieces[number]} {100 * p[number] / p.sum():.0f}%" for number in best)
        print(f"{cloze:30}{answers}")
else:
    print("This file has no masked-LM head: it was published for sentence vectors. Section 9 is about them.")

# %% [markdown]
# And measured: one word in each of the held-out sentences is hidden, and the loss is $-\ln p$ of the piece that was
# there. The baseline looks at no context. It knows how often each piece is the answer among exactly these gaps, as the
# unigram floor of chapter 10 does. A model that is loaded correctly should beat it. Two controls must not beat it:
# untrained weights, and the weights whose square matrices lie the wrong way round.


# %%
def losses(rows, targets):
    """Return -ln p of each target under a softmax of its row of scores."""
    largest = rows.max(-1, keepdims=True)
    return np.log(np.exp(rows - largest).sum(-1)) + largest[:, 0] - rows[np.arange(len(rows)), targets]


hidden, targets = [], []
for line in unseen:
    words = line.split()
    place = int(rng.integers(len(words)))
    found = [one for word in words_of(words[place]) for one in cut(word)]
    if len(found) == 1:
        hidden.append(" ".join([*words[:place], "[MASK]", *words[place + 1 :]]))
        targets.append(found[0])
targets = np.array(targets)
unigram = -np.log(np.bincount(targets, minlength=config.V)[targets] / len(targets))
if has_head:
    loss_of = {"loaded correctly": losses(scores(hidden), targets)}
    for what, (form, weights) in wrongly.items():
        loss_of[what] = losses(scores(hidden, form, weights), targets)
    untrained = losses(scores(hidden, config, initialise(config, 1, np.float64)), targets)
    claim = lesson.claim(
        "the stranger's BERT uses the words around a gap",
        loss_of["loaded correctly"],
        unigram,
        {"squares not transposed": loss_of["squares not transposed"], "untrained weights": untrained},
        unit="nats per hidden word",
    )
else:
    loss_of = {"loaded correctly": unigram}

# %%
figure, axes = plt.subplots(figsize=(7.5, 2.8), layout="constrained")
for height, values in enumerate(reversed(loss_of.values())):
    low, high = bootstrap(lambda rows, values=values: values[rows].mean(), len(values))
    axes.plot([low, high], [height, height], color="C0", lw=2)
    axes.plot(values.mean(), height, "o", color="C0")
axes.axvline(unigram.mean(), color="k", lw=0.8, ls="--")
axes.annotate(
    "unigram floor", (unigram.mean(), len(loss_of) - 0.55), (4, 0), textcoords="offset points", fontsize=8
)
axes.set_yticks(range(len(loss_of)), reversed(list(loss_of)))
axes.set(xlabel="loss of hidden words (nats), with 95% intervals", ylim=(-0.5, len(loss_of) - 0.2))
axes.set_title("What a wrong way of loading costs" if has_head else "No head, no guess: the floor alone")
course.show(
    figure,
    "The mean loss of hidden words with its interval, for the model loaded correctly and in five wrong ways, beside the "
    "dashed unigram floor.",
)

# %%
if has_head:
    first = loss_of["loaded correctly"]
    for what, values in list(loss_of.items())[1:]:
        low, high = bootstrap(lambda rows, gap=values - first: gap[rows].mean(), len(first))
        seen = "shows" if low > 0 else "does not show"
        print(
            f"{what:26} costs {(values - first).mean():+.2g} nats [{low:+.2g}, {high:+.2g}]: it {seen} in the loss"
        )

# %% [markdown]
# Coarse mistakes are loud, and no second program is needed to hear them. Fine ones are not: compare the interval of the
# other GELU here with the error of its hidden states in the picture of section 7.
#
# ## 9. A vector for a sentence
#
# Many published BERTs are never asked for words. They are used to compare sentences: two with the same meaning should
# have similar vectors. The common recipe for a **sentence vector** is **mean pooling**, the mean of the last hidden
# states of all its tokens. Two vectors are similar if the angle between them is small, so we compare cosines.
#
# ### Exercise 12.6 (core): pool, then look for the nearest
#
# `states` (T,H) are the vectors of all tokens of S sequences, laid end to end as ever; sequence $s$ has the rows from
# `cu_seqlens[s]` up to `cu_seqlens[s + 1]`. `sentence_vectors` returns their means, (S,H). `nearest` gets `queries` (Q,H)
# and `keys` (K,H). For each query, return the number of the key that has the largest cosine with it, (Q,).


# %%
# Exercise 12.6
def sentence_vectors(states, cu_seqlens):
    """Return the mean of each sequence's rows, (S,H)."""
    ...


def nearest(queries, keys):
    """Return for each row of queries (Q,H) the number of the row of keys (K,H) with the largest cosine, (Q,)."""
    ...


# %%
def draw_states(rng):
    lengths = rng.permutation([1, 2, int(rng.integers(3, 8)), 4])
    return rng.standard_normal((int(lengths.sum()), 3)), np.concatenate([[0], np.cumsum(lengths)])


def pooled_one_by_one(states, cu_seqlens):
    return np.stack([states[cu_seqlens[s] : cu_seqlens[s + 1]].mean(0) for s in range(len(cu_seqlens) - 1)])


def draw_queries_and_keys(rng):
    Q, K, H = (int(one) for one in rng.permutation([4, 6, 9]))
    return rng.standard_normal((Q, H)), rng.standard_normal((K, H)) * 10.0 ** rng.uniform(-1, 1, (K, 1))


def by_angle(queries, keys):
    def angle(a, b):
        return math.acos(max(-1.0, min(1.0, float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)))))

    return np.array([min(range(len(keys)), key=lambda k: angle(query, keys[k])) for query in queries])


lesson.check(sentence_vectors, draw=draw_states, same_as=pooled_one_by_one, times=10)
lesson.check(nearest, draw=draw_queries_and_keys, same_as=by_angle, times=10)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `np.add.reduceat(states, cu_seqlens[:-1], axis=0)` adds up the rows of each sequence. Divide by how many there are.
#
# </details>
# <details><summary>Hint 2</summary>
#
# A cosine is a product divided by both lengths. Which key is nearest does not depend on the length of the query, so it is
# enough to divide by those of the keys.
#
# </details>
# <details><summary>Solution 12.6</summary>
#
# ```python
# def sentence_vectors(states, cu_seqlens):
#     sums = np.add.reduceat(states, cu_seqlens[:-1], axis=0)
#     return sums / np.diff(cu_seqlens)[:, None]
#
#
# def nearest(queries, keys):
#     lengths = np.sqrt((keys * keys).sum(1))
#     return (queries @ keys.T / lengths).argmax(1)
# ```
#
# | instead of | one writes | what went wrong |
# |---|---|---|
# | `sums / np.diff(cu_seqlens)[:, None]` | `sums` | This is a sum; the mean is divided by the number of tokens. |
# | `sums / np.diff(cu_seqlens)[:, None]` | `sums / len(states)` | Each sequence has a number of tokens of its own. |
# | `np.add.reduceat(states, cu_seqlens[:-1], axis=0)` | `states[cu_seqlens[:-1]] * np.diff(cu_seqlens)[:, None]` | That is the vector of `[CLS]` alone, not a mean over tokens. |
# | `queries @ keys.T / lengths` | `queries @ keys.T` | A long key would win by its length; a cosine is divided by it. |
# | `.argmax(1)` | `.argmin(1)` | The nearest has the largest cosine. |
# | `.argmax(1)` | `.argmax(0)` | For each query a key is asked for, not for each key a query. |
# | `np.sqrt((keys * keys).sum(1))` | `(keys * keys).sum(1)` | A length is the root of the sum of squares. |
# | `queries @ keys.T / lengths` | `-((queries[:, None] - keys) ** 2).sum(2)` | That is the smallest distance; a key that points the same way may be long, and far away. |
# | `sums / np.diff(cu_seqlens)[:, None]` | `sums / np.diff(cu_seqlens).max()` | Each sequence has a number of tokens of its own: divide by that, not by the largest. |
# | `return sums / np.diff(cu_seqlens)[:, None]` | `return (sums / np.diff(cu_seqlens)[:, None]) / np.linalg.norm(sums / np.diff(cu_seqlens)[:, None], axis=1, keepdims=True)` | The mean itself is asked for; a cosine does not need a vector of length one. |
# | `np.add.reduceat(states, cu_seqlens[:-1], axis=0)` | `np.maximum.reduceat(states, cu_seqlens[:-1], axis=0) * np.diff(cu_seqlens)[:, None]` | That is the largest number of each column, not the mean. |
# | `np.add.reduceat(states, cu_seqlens[:-1], axis=0)` | `np.add.reduceat(states, cu_seqlens[:-1], axis=0).mean(1, keepdims=True) * np.ones(states.shape[1])` | The mean runs over the tokens; each column keeps a mean of its own. |
# | `queries @ keys.T / lengths` | `abs(queries @ keys.T / lengths)` | A cosine of -1 is the opposite direction, the farthest: take no absolute value. |
# | `np.sqrt((keys * keys).sum(1))` | `np.sqrt((keys * keys).sum())` | Each key is divided by its own length, not all by one number. |
# | `queries @ keys.T / lengths` | `queries @ keys.T / np.sqrt((queries * queries).sum(1))[:, None]` | A long key would win by its length; divide by the length of the keys. |
# | `return sums / np.diff(cu_seqlens)[:, None]` | `return np.stack([(states[a + 1 : b - 1] if b - a > 2 else states[a:b]).mean(0) for a, b in zip(cu_seqlens, cu_seqlens[1:])])` | The mean runs over all tokens, `[CLS]` and `[SEP]` included. |
# | `(queries @ keys.T / lengths).argmax(1)` | `(queries @ keys.T / lengths).max(1)` | The number of the key is asked for, not its cosine. |
#
# </details>

# %% [markdown]
# For a test we need pairs that belong together and whose wording differs. The books provide them: a sentence and the
# one after it in the same chapter, from chapters that the stranger has not read. Given the first sentence of a pair,
# which of all the second ones belongs to it? With $K$ pairs a random guess is right with probability $1/K$.
#
# Two baselines know nothing but words. A **bag of words** is the vector of counts of the pieces. **TF-IDF** multiplies
# each count by the logarithm of how rare the piece is, $\ln (K / k)$ for a piece in $k$ of $K$ sentences, so that *the*
# counts for nothing and *Ishmael* for much.

# %%
guess = lesson.predict(
    "Which of the three finds most of the continuations?", ..., choices=("bag of words", "TF-IDF", "BERT")
)
pairs = []
for document in held_out:
    fits = [8 <= len(line.split()) <= 24 for line in document]
    begins = [place for place in range(len(document) - 1) if fits[place] and fits[place + 1]]
    if begins:  # one pair a chapter, from its middle
        begin = begins[len(begins) // 2]
        pairs.append((document[begin], document[begin + 1]))
pairs = pairs[: lesson.scale(300, 40)]
firsts = [first for first, _ in pairs]
seconds = [second for _, second in pairs]
pool = sentence_vectors if lesson.passed("12.6") else pooled_one_by_one
look = nearest if lesson.passed("12.6") else by_angle


def vectors(lines, weights=params):
    """Return the sentence vectors of lines, by your engine."""
    batch = Batch.pack([Sequence(one, 0 * one) for one in map(read, lines)])
    (last,) = hidden_states(engine, config, (config.L,), weights.tree, batch)
    return pool(last, batch.cu_seqlens)


def bags(lines):
    return np.stack([np.bincount(read(line), minlength=config.V) for line in lines]).astype(float)


bag_first, bag_second = bags(firsts), bags(seconds)
rarity = np.log(len(seconds) / np.maximum(1, (bag_second > 0).sum(0)))
untrained_weights = initialise(config, 1, np.float64)
truth = np.arange(len(pairs))
hits = {
    "bag of words": look(bag_first, bag_second) == truth,
    "TF-IDF": look(bag_first * rarity, bag_second * rarity + 1e-12) == truth,
    "BERT": look(vectors(firsts), vectors(seconds)) == truth,
    "untrained BERT": look(vectors(firsts, untrained_weights), vectors(seconds, untrained_weights)) == truth,
}
best = max(list(hits)[:3], key=lambda name: hits[name].mean())
print(f"{len(pairs)} pairs; by chance {1 / len(pairs):.1%}")
guess.answer(best, f"it finds {hits[best].mean():.1%}.")

# %%
figure, axes = plt.subplots(figsize=(7, 2.4), layout="constrained")
for height, right_ones in enumerate(reversed(hits.values())):
    low, high = bootstrap(lambda rows, one=right_ones: one[rows].mean(), len(truth))
    axes.plot([100 * low, 100 * high], [height, height], color="C0", lw=2)
    axes.plot(100 * right_ones.mean(), height, "o", color="C0")
axes.axvline(100 / len(pairs), color="k", lw=0.8, ls="--")
axes.set_yticks(range(len(hits)), reversed(list(hits)))
axes.set(
    xlabel="continuations found (%), with 95% intervals; dashed: chance", title="Which sentence comes next?"
)
course.show(
    figure,
    "The share of continuations that each kind of vector finds, with intervals: bag of words, TF-IDF, the loaded BERT and "
    "an untrained one, all of them above chance.",
)

# %%
verdicts = {}
for name in ("bag of words", "TF-IDF", "untrained BERT"):
    a, b = hits["BERT"], hits[name]
    low, high = paired_bootstrap(lambda rows, a=a: a[rows].mean(), lambda rows, b=b: b[rows].mean(), len(a))
    verdicts[name] = "ahead" if low > 0 else "behind" if high < 0 else "undecided"
    print(f"BERT − {name:16}{a.mean() - b.mean():+6.1%} [{low:+.1%}, {high:+.1%}]  {verdicts[name]}")
which = {"ahead": "It is", "behind": "It is not", "undecided": "These pairs can't tell"}
course.say(f"Is mean pooling of this BERT better than counting rare words? **{which[verdicts['TF-IDF']]}**.")

# %% [markdown]
# Nobody who sells sentence vectors shows you this picture, so draw it yourself before you buy. Pre-training asks for
# single words in their places. Nothing ever asked that the mean of a sentence be near that of a related one. Look at
# the untrained BERT, too: its mean is little more than a sum of one random vector for each piece, a bag of words in
# fewer numbers, and what it finds owes nothing to training. Models such as all-MiniLM-L6-v2 were trained further, on a
# billion pairs of sentences, to bring exactly these vectors together. If you have one, put its path into section 1 and
# see what that is worth, by the same yardstick.
#
# Apart from the figures: which sentences do the two take for the nearest? Each line is followed by BERT's choice and by
# that of TF-IDF.

# %%
asked = [
    "And the king spoke unto all the people.",
    "She was not happy, but she smiled.",
    "The sea was dark and the ship was lost.",
]
some = unseen[:400]
bert_says = look(vectors(asked), vectors(some))
weights = np.log(len(some) / np.maximum(1, (bags(some) > 0).sum(0)))
counts_say = look(bags(asked) * weights, bags(some) * weights + 1e-12)
for line, one, other in zip(asked, bert_says, counts_say, strict=True):
    print(f"{line}\n    BERT:   {some[one]}\n    TF-IDF: {some[other]}")

# %% [markdown]
# ## What we saw
#
# * A file of weights is a length, a header and bytes. Nothing has to be run to read it, and no length in it has to be
#   believed.
# * Names can be mapped by reading. Which way round a square matrix lies can't be seen from its shape; it has to be
#   measured.
# * Your engine and another program agree on every hidden state to ten digits. Only such a bound tells a small mistake
#   from none.
# * A model that loads may still be loaded wrongly. A hidden word and a floor find the coarse mistakes without any second
#   program.
# * A sentence vector is worth what it finds beyond a count of words, and that has to be measured each time.
#
# ## Words
#
# - **safetensors**: a format of files for weights: a length, a header in JSON, and the bytes of the tensors.
# - **header**: the part of a file that says what the rest is and where it lies.
# - **little-endian**: of a number in several bytes, with the byte for ones first.
# - **bfloat16**: the upper half of a float of 32 bits: the same exponent, seven bits of fraction.
# - **sentence vector**: one vector that stands for a whole sentence.
# - **mean pooling**: taking the mean of the vectors of all tokens.
# - **bag of words**: how often each piece occurs in a text, without their order.
# - **TF-IDF**: a bag of words whose counts are multiplied by the logarithm of how rare each piece is.
#
# ## Where to go next
#
# * Fill in `GIVEN` with any BERT that you find, and read the three pictures again.
# * [Chapter 11](11_fine_tuning.ipynb) teaches a BERT a task. It works with a folder such as this one, too.
# * [Chapter 13](13_what_heads_learn.ipynb) looks inside, and takes such a folder as well.
# * `minibert/hub/hugging_face.py` and `minibert/core/folder.py` are what you wrote here, with more spellings and stricter
#   refusals. The [format](https://github.com/huggingface/safetensors) is described by its authors on one page.
