"""All of BERT, in NumPy alone: what everything else in the package stands on, and what runs by itself.

    python -m minibert.core             # learn word pieces, pre-train, guess words; on the books by default
    python -m minibert.core.gradcheck   # every gradient against the complex step

Read `__main__` first: the whole road from a text to a guess, in one file. Then what it calls: `wordpiece`,
`pairs` and `masks` (from text to sequences), `batch` (tokens end to end, no padding), `ops/primitives`,
`ops/attention`, `ops/losses` and `ops/blocks` (the mathematics, each backward below its forward), `bert`
(encoder and loss), `step` and `optim` (a training step). `config` and `params` say which numbers there are,
`heads` what a task adds, `folder` how a model is written, `ops/random` and `draws` where chance comes from,
`gradcheck` how a gradient is proven.
"""
