"""All that is asked of a pre-trained model: hidden states, attention maps, words for gaps, scores of texts.

Read `inference` first: `Bert` loads a model from `hub`, reads texts with `tokenizer` and computes with an
engine. `gaps` and `scoring` are called by its methods, and `encoded` shows their results in a notebook.
"""
