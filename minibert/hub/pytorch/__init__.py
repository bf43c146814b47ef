"""PyTorch's pickled checkpoints, read without unpickling anything."""
