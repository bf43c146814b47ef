"""The kinds of head of the core, and those that only the product has."""

from minibert.core.head_kinds import KINDS as PAPER_KINDS, TOKENS, HeadKind

POOLS = ("mean", "max", "attention")  # how the windows of a long text are made one

KINDS = PAPER_KINDS | {
    # Of pairs of texts that are read one by one, in `tasks/similarity_losses.py`: no output layer.
    "cosine": HeadKind(TOKENS, 0, "BertModel", "float64"),
    "contrastive": HeadKind(TOKENS, 0, "BertModel", label_shape=(2,)),
}
