"""Read PyTorch's pickled checkpoints without unpickling them.

Read `pickled` first, the file as a whole, then `unpickling`, the stack machine that calls nothing.
"""
