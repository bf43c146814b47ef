"""TensorFlow's checkpoint format, read and written without TensorFlow."""
