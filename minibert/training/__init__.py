"""Training, whatever the task: the loop, the steps that it asks of an engine, and the log of a run.

What a step does on a host is in `core/step.py`, optimizers are in `core/optim.py`, checkpoints in `hub/`.
"""
