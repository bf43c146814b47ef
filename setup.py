"""Where native extensions are declared; everything else about the package stands in pyproject.toml.

There are none yet: minibert is pure Python today. Those to come (kernels in C++, the tokenizer's core
in C) will be optional, so that an installation without a compiler keeps working.
"""

from setuptools import setup

setup(ext_modules=[])
