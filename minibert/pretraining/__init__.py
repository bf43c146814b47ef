"""The rooms behind `pretrain.py`: options, recipes, text to learn from, task, budget, evaluation."""
