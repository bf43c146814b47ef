"""Guesses for the gaps of one text."""

from minibert.gaps import fill_texts


def fill_masks(model, tokenizer, text, top=5, **asked):
    return fill_texts(model, tokenizer, [text], top, **asked)[0]
