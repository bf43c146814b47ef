"""Metrics of held-out text, as they are written in a terminal and in tables."""

from minibert.reports.held_out import held_out_rows, held_out_text

METRICS = {
    "loss": 3.8494,
    "standard_error": 0.0971,
    "targets": 20015,
    "documents": 69,
    "unigram": 6.0771,
    "text_unigram": 3.3239,
    "shuffled_loss": 8.3186,
    "perplexity": 46.964,
    "accuracy": 0.3296,
    "next_accuracy": 0.5844,
    "next_majority": 0.5301,
}
BEFORE = {"loss": 3.5, "accuracy": 0.4, "next_accuracy": None, "targets": 20015}
TEXT = """\
Held-out loss on [MASK] positions   3.849 nats (20,015 targets, standard error 0.097 over 69 documents)
  before this training              3.500 nats (the loss has risen by 0.349)
  unigram entropy of these targets  6.077 nats (the model is 2.23 under it)
  unigram entropy of the whole text 3.324 nats (the model is 0.53 over it)
  with its context shuffled         8.319 nats
  perplexity                        47.0
  accuracy                          33.0%
Next-sentence accuracy              58.4%
  always the more frequent answer   53.0%"""


def test_terminal_and_table_write_the_same_numbers():
    rows = dict(held_out_rows(METRICS, BEFORE))
    text = held_out_text(METRICS, before=BEFORE)
    assert text == TEXT
    assert rows.pop("accuracy, before this training") == "40.0%"
    # the documents are a remark; there is a row for the loss before, and one for the change
    assert len(rows) == len(METRICS) - 1 + 2
    for label, number in rows.items():
        assert number in text, label


def test_numbers_that_a_model_does_not_have_are_left_out():
    lacking = dict.fromkeys(("standard_error", "shuffled_loss", "next_accuracy", "next_majority"))
    metrics = METRICS | lacking
    assert [label for label, _ in held_out_rows(metrics)] == [
        "targets",
        "loss, nats",
        "unigram entropy of the targets: the best guess without context",
        "unigram entropy of the whole text",
        "perplexity",
        "accuracy",
    ]
    lines = held_out_text(metrics, ["a.txt"]).splitlines()
    assert lines[:2] == [
        "Measured on                         a.txt",
        "Loss on next words                  3.849 nats (20,015 targets)",
    ]
    assert len(lines) == 6
