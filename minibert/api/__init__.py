"""Estimators: fine-tuning behind `fit` and `predict`, for data in memory, in scikit-learn's protocol."""
