"""What `benchmarks/tokenizer.py` measures: a process for each job, which measures its own memory."""
