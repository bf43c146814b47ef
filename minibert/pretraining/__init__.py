"""Pre-training: options, recipes, text, objective, budget, evaluation; begin with `run.py`."""
