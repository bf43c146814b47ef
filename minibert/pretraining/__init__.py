"""Pre-training: options, recipes, text, objective, budget, evaluation.

Read `run` first: from text to a run folder. It calls `preparation` (vocabulary and shards) and hands the loop
of `training` the paper's `objective`; `evaluation` measures the held-out text.
"""
