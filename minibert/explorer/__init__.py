"""The explorer: a trained BERT in one HTML file, its tokenizer, forward and backward pass in JavaScript.

`packing` turns models into what the page's scripts read, `page` puts the page together. The scripts are a
second implementation, and tests hold their pieces, hidden states, logits and gradients against the first.
"""

from minibert.explorer.page import Explorer, show

__all__ = ["Explorer", "show"]
