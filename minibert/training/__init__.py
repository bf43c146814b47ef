"""Training, whatever the task: the loop, the steps that an engine takes, and the log of a run.

Read `loop` first. The step on a host is in `core/step.py`, optimizers are in `core/optim.py`, checkpoints in
`hub/`.
"""
