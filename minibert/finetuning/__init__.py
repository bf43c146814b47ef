"""Fine-tuning: options, preparation, running, sweeps, predicting, class balance; begin with `run.py`."""
