"""Fine-tuning: options, preparation, running, sweeps, predicting, class balance.

Read `run` first: from a model and a task's files to a folder that answers. It calls `preparation` and
`running`, which hand the loop of `training` a task of `tasks`; `models` loads what was trained, and
`predicting` asks it.
"""
