"""The front door: training and loading from Python, as the README's first code has it."""

import dataclasses
import inspect
import re

import numpy as np
import pytest
from paths import ROOT
from small_corpus import lines_of_small_talk
from small_tasks import reviews, write_model, write_sst2

import minibert
from minibert.errors import InputError
from minibert.finetuning.options import FinetuneOptions
from minibert.ops import Ops
from minibert.pretraining.options import PretrainOptions
from minibert.runs import FinetuneCall, PretrainCall, Run
