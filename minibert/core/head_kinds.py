"""The kinds of head, a row each: what a head reads, what its outputs are, and what Hugging Face calls it.

What the outputs are compared with stands beside the formulas, in `heads.py`.
"""

from typing import NamedTuple

SEQUENCES, TOKENS, LABELS = "sequences", "tokens", "labels"
CLASSIFIER = "BertForSequenceClassification"
# What the outputs are compared with the labels by; "": by a loss of its own.
SOFTMAX, SIGMOIDS, SQUARES, CHOICES, SPANS = "softmax", "sigmoids", "squares", "choices", "spans"
SINGLE_LABEL, MULTI_LABEL = "single_label_classification", "multi_label_classification"


class HeadKind(NamedTuple):
    """What all heads of a kind have in common."""

    reads: str  # pooled [CLS] of all SEQUENCES, all TOKENS, or those with LABELS
    outputs: int | None  # for each of what it reads; None: one for each class
    loss: str  # one of those above, a formula in `heads.py`
    architecture: str  # Hugging Face's class
    label_dtype: str = "int32"
    label_shape: tuple[int, ...] = ()  # of a label; (0,): a number for each output
    output_layer: str = "classifier"  # as Hugging Face has it
    names_outputs: bool = False  # whether `config.json` names them, as id2label
    problem_type: str | None = None  # there, with several outputs or with one that is a number


KINDS = {
    "pretraining": HeadKind(SEQUENCES, 0, "", "BertForPreTraining"),
    "classify": HeadKind(SEQUENCES, None, SOFTMAX, CLASSIFIER, names_outputs=True, problem_type=SINGLE_LABEL),
    "multilabel": HeadKind(
        SEQUENCES, None, SIGMOIDS, CLASSIFIER, "float64", (0,), names_outputs=True, problem_type=MULTI_LABEL
    ),
    "regress": HeadKind(
        SEQUENCES, 1, SQUARES, CLASSIFIER, "float64", names_outputs=True, problem_type="regression"
    ),
    "span": HeadKind(
        TOKENS, 2, SPANS, "BertForQuestionAnswering", label_shape=(2,), output_layer="qa_outputs"
    ),
    "choice": HeadKind(SEQUENCES, 1, CHOICES, "BertForMultipleChoice"),
    "tag": HeadKind(LABELS, None, SOFTMAX, "BertForTokenClassification", names_outputs=True),
}
