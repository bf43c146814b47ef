"""Training, whatever the task: the step, the loop around it, optimizers, checkpoints, the log of a run."""
