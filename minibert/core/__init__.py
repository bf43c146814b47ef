"""All of BERT in NumPy alone. It runs by itself, and the rest of the package builds on it.

    python -m minibert.core             # learn word pieces, pre-train, guess words; on the books by default
    python -m minibert.core.gradcheck   # every gradient against the complex step

Read `__main__` first: the whole way from a text to a guess, in one file. Then what it calls: `wordpiece`,
`pairs` and `masks` (from text to sequences), `batch` (tokens end to end, no padding), `ops/primitives`,
`ops/attention`, `ops/losses` and `ops/blocks` (the mathematics, each backward below its forward), `bert`
(encoder and loss), `step` and `optim` (a training step). `config` and `params` define the sizes and the
parameters, `heads` what a task adds to the encoder, `folder` how a model is saved, and `gradcheck` how a
gradient is verified.

Random numbers have four sources. `ops/dropout_bits` hashes in 32 bits, which JAX and kernels can do as well.
`draws` hashes in 64, for masks and orders: a draw depends on its key alone, so nothing is replayed to resume.
`random.Random`, seeded by such a key, draws pairs, one at a time; `default_rng` draws the initial parameters.
"""
