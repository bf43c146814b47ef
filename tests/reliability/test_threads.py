"""Threads, forks and early ends: one model and one tokenizer for several threads, and exits in a step."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from command import PATIENCE, environment
from engines import EVERY, holds_in_a_fork
from small_corpus import write_corpus
from small_tasks import reviews

import minibert

TEXTS = [text for text, _ in reviews(24, 7)]

# Trains in the main thread, or in another one; the interpreter exits in the fourth step.
EXITS = """
import os, sys, threading
import minibert

where, engine, corpus, out = sys.argv[1:]
reached = threading.Event()


def leave(step, values):
    if step == 4:
        reached.set()
        if where == "main thread":
            sys.exit(7)


def train():
    sizes = dict(size="1-16-2", vocab_size=80, seq_length="16", batch_size=4, dropout=0.0)
    minibert.pretrain(corpus, engine=engine, steps=10**6, **sizes, out=out, show=False, on_log=leave)


if where == "main thread":
    train()
threading.Thread(target=train, daemon=True).start()
assert reached.wait(300)
sys.exit(7)
"""

# Another thread is in a product of matrices, nearly always, when the interpreter exits.
EXITS_IN_A_PRODUCT = """
import sys, threading
import numpy as np
from minibert.engines.cpp import _kernels

engine = _kernels.Engine(_kernels.available()[0], 2)
a, out = np.ones((2, 200, 200), np.float32)  # short, so that it asks for the lock while Python ends
reached = threading.Event()


def multiply():
    while True:
        engine.gemm(a, a, out, False)
        reached.set()


threading.Thread(target=multiply, daemon=True).start()
assert reached.wait(300)
sys.exit(7)
"""


def answers(bert, text):
    """Vectors and guesses of a model."""
    hidden = bert.encode(text).hidden_states[-1]
    return np.asarray(hidden).tobytes(), bert.fill_mask(f"{text} [MASK]")


@pytest.mark.representatives(engine=["numpy", "cpp"])
@pytest.mark.parametrize("engine", EVERY)
def test_threads_share_one_model(model, engine):
    bert = minibert.Bert.from_pretrained(model, engine=engine)
    expected = [answers(bert, text) for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(lambda text: answers(bert, text), TEXTS)) == expected


@pytest.mark.parametrize("core", ["c", "python"])
def test_threads_share_one_tokenizer(model, core):
    tokenizer = minibert.Tokenizer.from_pretrained(model, core=core)
    expected = [tokenizer.encode(text) for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            assert list(pool.map(tokenizer.encode, TEXTS)) == expected


@pytest.mark.representatives(engine=["numpy", "cpp"])
@pytest.mark.parametrize("engine", [engine for engine in EVERY if engine != "jax"])
def test_a_model_works_in_a_fork_after_it_was_used(model, engine):
    bert = minibert.Bert.from_pretrained(model, engine=engine)
    expected = [answers(bert, text) for text in TEXTS[:3]]
    assert holds_in_a_fork(lambda: [answers(bert, text) for text in TEXTS[:3]] == expected)


def assert_exits_with_its_status(where, engine, folder):
    corpus = write_corpus(folder / "animals.txt")
    command = [sys.executable, "-c", EXITS, where, engine, str(corpus), str(folder / "run")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("engine", EVERY)
def test_the_interpreter_exits_in_a_step(tmp_path, engine):
    assert_exits_with_its_status("main thread", engine, tmp_path)


# Not jax: before Python 3.14 jaxlib may abort the process here, "FATAL: exception not rethrown".
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["numpy", "numba", "cpp"])
def test_the_interpreter_exits_while_another_thread_is_in_a_step(tmp_path, engine):
    assert_exits_with_its_status("another thread", engine, tmp_path)


@pytest.mark.parametrize("attempt", range(3))
def test_the_interpreter_exits_while_another_thread_is_in_a_kernel(attempt):
    pytest.importorskip("minibert.engines.cpp._kernels")
    command = [sys.executable, "-c", EXITS_IN_A_PRODUCT]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
