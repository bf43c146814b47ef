"""The rooms behind `pretrain.py`: recipes, text to learn from, task, budget, how good the result is."""
