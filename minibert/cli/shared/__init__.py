"""What the commands share: the parser, common flags, reading texts, showing errors.

Read `parser` first, then `flags`; `messages` puts flags in place of Python's arguments in every error.
"""
