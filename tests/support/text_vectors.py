"""The vectors of a few texts."""

import numpy as np

from minibert.finetuning.frozen.features import Extractor


def vectors_of(model, texts, *how, **more):
    """One array of them; with pool "none" a list, an array for each text. The rest is as of `Extractor`."""
    extractor = Extractor(model, *how, **more)
    vectors = [vector for _, vector in extractor.stream(texts)]
    return vectors if extractor.pool == "none" else np.stack(vectors)
