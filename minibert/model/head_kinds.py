"""The kinds of head of the core, and those that only the product has."""

from minibert.core.head_kinds import CLASSIFIER, KINDS as PAPER_KINDS, TOKENS, HeadKind

POOLS = ("mean", "max", "attention")  # ways to pool the windows of a long text

# For pairs of texts that are encoded separately, in `tasks/similarity_losses.py`: no output layer.
SIMILARITY = {
    "cosine": HeadKind(TOKENS, 0, "", "BertModel", "float64"),
    "contrastive": HeadKind(TOKENS, 0, "", "BertModel", label_shape=(2,)),
}

KINDS = PAPER_KINDS | SIMILARITY

# Kinds that answer for a whole text, and those of them whose outputs are its classes.
OF_TEXTS = tuple(name for name, kind in KINDS.items() if kind.architecture == CLASSIFIER)
OF_CLASSES = tuple(name for name in OF_TEXTS if KINDS[name].outputs is None)

SQUARED = ("regress", "cosine")  # kinds whose loss is a squared difference of numbers
