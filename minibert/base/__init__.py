"""What every other room stands on: errors, files, names of models, options and safe output; no BERT in it.

Read `errors` first, since every file raises them, then `files` and `reading`, through which all files are
opened. The room itself stands on `core` alone.
"""
