"""TensorFlow's checkpoint format, read without TensorFlow.

Read `google` first, a BERT as Google released it; `bundle`, `sstable` and `checksums` are the layers of the
format.
"""
