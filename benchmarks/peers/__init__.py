"""What `step.py`, `inference.py` and `peak.py` share: the work, those who do it, and a process for each."""
