"""The rooms behind `finetune.py`: options, tasks, batches, running, predicting, reports."""
