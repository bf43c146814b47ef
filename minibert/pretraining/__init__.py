"""Pre-training: options, recipes, text to learn from, objective, budget, evaluation; begin with `run.py`."""
