"""Whom the benchmarks of speed measure do the same work: one ugly padded batch, the reference's numbers."""

import agreement
import inference
import numpy as np
import ops
import pytest
import step
from peers import children, operations, ways
from peers.ops_minibert import Reference
from peers.work import Work, weights

from minibert import engines
from minibert.model.params import initialise


@pytest.fixture
def given():
    """A configuration without dropout, sequences of all lengths, weights in general position, one thread."""
    config = agreement.config()
    return config, Work("tiny", 24, 8, "phrases").make_batch(config), weights(config), 1


def found(way, given):
    module, _, name = way.factory.partition(":")
    library = {"train_jax": "jax", "encode_onnx": "onnxruntime"}.get(module)
    pytest.importorskip(library or "transformers")
    made = getattr(__import__(f"peers.{module}", fromlist=[name]), name)
    config, batch, flat, threads = given
    return children.result(made(config, batch, flat.copy(), threads, **way.options))


def titles(all_ways):
    """Compiling takes a minute, and who compiles is compared in every run of the benchmark: here without."""
    kept = [way for way in all_ways if way.engine != "PyTorch compiled"]
    plain = [{"compiled": False} if "compiled" in way.options else {} for way in kept]
    return [
        pytest.param(way._replace(options=way.options | changed), id=way.title)
        for way, changed in zip(kept, plain, strict=True)
    ]


@pytest.mark.parametrize("way", titles(ways.training()))
def test_everyone_s_steps_have_the_reference_s_losses(way, given):
    expected = found(ways.training()[0], given)
    assert step.complaint(found(way, given), expected, way.dtype) is None
    assert np.isfinite(expected).all()


def test_what_pytorch_compiles_is_one_graph(given):
    """A graph that breaks runs mostly uncompiled, without a word, as at the properties of a configuration."""
    torch = pytest.importorskip("torch")
    train_pytorch = pytest.importorskip("peers.train_pytorch")
    config, batch, flat, threads = given
    plain = train_pytorch.Tuned(config, batch, flat.copy(), threads, "float32")
    whole = torch.compile(train_pytorch.pretraining_loss, fullgraph=True, backend="eager")
    loss = whole(plain._shape, plain._named, plain._batch, plain._mask)
    torch.testing.assert_close(loss, plain.loss())
    with pytest.raises(torch._dynamo.exc.Unsupported):
        whole(config, plain._named, plain._batch, plain._mask)


@pytest.mark.parametrize("way", titles(ways.encoding()))
def test_everyone_s_hidden_states_are_the_reference_s(way, given):
    needs_int8_products = way.dtype == "int8" and way.engine in ("cpp", "ONNX Runtime")
    if needs_int8_products and not engines.create("cpp").has_int8:
        pytest.skip("without them in the processor ours has no kernel, and sums of ONNX Runtime saturate")
    expected = found(ways.encoding()[0], given)
    assert inference.complaint(found(way, given), expected, way.dtype) is None


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, id=f"{case.title}, {dtype}")
        for case in operations.plan(True)
        for dtype in ops.WIDE
        if case.comes_in(dtype)
    ],
)
def test_pytorch_s_single_operations_are_the_reference_s(case, dtype):
    pytest.importorskip("torch")
    pytorch, reference = __import__("peers.ops_pytorch", fromlist=["PyTorch"]), Reference(1, dtype="float64")
    case = case._replace(dropout=False)
    made = pytorch.PyTorch(1, dtype)
    made.choose(case), reference.choose(case, dtype)
    bound = ops.OF_PYTORCH.get((case.op, dtype), ops.TOLERANCES[dtype])
    assert ops.wrongness(made.result(), reference.result(), bound) is None


def test_a_peer_that_computes_something_else_is_found_out(given, monkeypatch):
    """The smallest fault: the other form of GELU, which changes the fifth digit of the loss."""
    reference, *_ = ways.training()
    [tuned] = [way for way in ways.training() if way.title == "PyTorch tuned, float32"]
    functional = pytest.importorskip("torch").nn.functional
    right = functional.gelu
    monkeypatch.setattr(functional, "gelu", lambda x: right(x, approximate="tanh"))
    given[2][:] += 2 * (given[2] - initialise(given[0], 1).flat)  # activations at which the forms differ
    complaint = step.complaint(found(tuned, given), found(reference, given), "float32")
    assert complaint is not None and "the reference's" in complaint
