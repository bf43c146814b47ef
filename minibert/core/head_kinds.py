"""The kinds of head, one row each: what a head reads, what its outputs are, and what Hugging Face calls it.

The losses that compare outputs with labels are in `heads.py`.
"""

from typing import NamedTuple

SEQUENCES, TOKENS, LABELS = "sequences", "tokens", "labels"
CLASSIFIER = "BertForSequenceClassification"
# The loss that compares the outputs with the labels; "" for a head with a loss of its own.
SOFTMAX, SIGMOIDS, SQUARES, CHOICES, SPANS = "softmax", "sigmoids", "squares", "choices", "spans"
SINGLE_LABEL, MULTI_LABEL = "single_label_classification", "multi_label_classification"


class HeadKind(NamedTuple):
    """The properties that all heads of one kind share."""

    reads: str  # the pooled [CLS] of each of the SEQUENCES, all TOKENS, or the tokens with LABELS
    outputs: int | None  # number of outputs for each row that is read; None: one for each class
    loss: str  # one of the losses above; the formulas are in `heads.py`
    architecture: str  # name of Hugging Face's class
    label_dtype: str = "int32"
    label_shape: tuple[int, ...] = ()  # shape of one label; (0,): one number for each output
    output_layer: str = "classifier"  # Hugging Face's name of the layer
    names_outputs: bool = False  # whether `config.json` names the outputs, as id2label
    problem_type: str | None = None  # entry of `config.json`, except for a classifier with a single output


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
