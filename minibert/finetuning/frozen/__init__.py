"""The feature-based approach: vectors of a frozen BERT, and a tagger on top of them.

Read `features` first, which computes the vectors; `activations` keeps them on disk, and `feature_tagger` is
the model that is trained on them.
"""
