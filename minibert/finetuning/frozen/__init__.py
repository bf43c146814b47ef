"""The feature-based approach: vectors of a frozen BERT, and a tagger on top of them."""
