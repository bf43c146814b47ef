"""Read PyTorch's pickled checkpoints without unpickling them."""
