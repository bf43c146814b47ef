"""The explorer: a trained BERT in one HTML file, with tokenizer, forward and backward pass in JavaScript.

`packing` converts models to the data that the scripts read, and `page` assembles the page. The scripts are a
second implementation; tests compare their pieces, hidden states, logits and gradients with those of Python.
"""

from minibert.explorer.page import Explorer, show

__all__ = ["Explorer", "show"]
