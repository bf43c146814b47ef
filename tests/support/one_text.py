"""Guesses for the gaps of one text."""

from minibert.ask.gaps import fill_texts


def fill_masks(model, text, top=5, **asked):
    return fill_texts(model, [text], top, **asked)[0]
