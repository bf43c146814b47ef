"""All of BERT in NumPy alone. It runs by itself, and the rest of the package builds on it.

    python -m minibert.core             # learn word pieces, pre-train, guess words; on the books by default
    python -m minibert.core.gradcheck   # every gradient against the complex step

Read `__main__` first: the whole way from a text to a guess, in one file. Then what it calls: `wordpiece`,
`pairs` and `masks` (from text to sequences), `batch` (tokens end to end, no padding), `ops/primitives`,
`ops/attention`, `ops/losses` and `ops/blocks` (the mathematics, each backward below its forward), `bert`
(encoder and loss), `step` and `optim` (a training step). `config` and `params` define the sizes and the
parameters, `heads` what a task adds to the encoder, `folder` how a model is saved, `ops/random` and `draws`
the random numbers, and `gradcheck` how a gradient is verified.
"""
