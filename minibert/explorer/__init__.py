"""The explorer: a trained BERT in one HTML file, its tokenizer and forward pass in JavaScript.

`packing` turns models into what the page's scripts read, `page` puts the page together. The scripts are a
second implementation, and tests hold their pieces, hidden states and logits against the first.
"""

from minibert.explorer.page import write_page

__all__ = ["write_page"]
