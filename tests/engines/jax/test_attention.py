"""Attention over rows in JAX: every kernel against the reference on the same tokens, and lowered for GPUs."""

import contextlib
import functools
import itertools
import re

import numpy as np
import pytest
from marks import seldom

from minibert.core.gradcheck.complex_step import distance, worst
from minibert.core.ops import dropout_bits
from minibert.gradcheck.sheet import ENGINE_FACTOR
from minibert.model.ops import Ops

jax = pytest.importorskip("jax")
jnp = jax.numpy

from minibert.engines.jax import attention as jax_attention, flash as jax_flash  # noqa: E402
from minibert.engines.jax.attention import Plan  # noqa: E402

LENGTHS = (0, 1, 7, 32, 33, 40)  # the last three end at a block of keys, one behind it, and with the row
R, n, A, D = len(LENGTHS), 40, 2, 40  # D = n, so that the identity may stand for v
SITE, RATE = 5, 0.3
SMALL = jax_flash.Blocks(queries=16, keys=32, warps=4, stages=1)  # a row has several
RESULTS = ("y", "dq", "dk", "dv")
KERNELS = {
    "plain": Plan(False, 0.0, "plain"),
    "pallas": Plan(False, 0.0, "pallas", interpret=True, forward_blocks=SMALL, backward_blocks=SMALL),
}
# Kernel, causal, rate. A compilation of an interpreted kernel takes seconds.
EXACT = [
    ("plain", False, 0.0),
    ("plain", False, RATE),
    ("plain", True, 0.0),
    ("plain", True, RATE),
    ("pallas", False, 0.0),
    ("pallas", False, RATE),
    ("pallas", True, RATE),
]
LOWER = [
    ("plain", "float32", False, RATE),
    ("pallas", "float32", False, RATE),
    ("plain", "bfloat16", True, RATE),
    ("pallas", "bfloat16", True, RATE),
]
QUICK = {"xla_backend_optimization_level": 0}  # compiles in half the time

# What a kernel's error may be besides twice NumPy's: rounding that NumPy's happens not to have.
FLOOR = 4 * float(np.finfo(np.float32).eps)


@pytest.fixture(autouse=True)
def double_precision():
    """64 bits, which JAX wants to be asked for."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@functools.cache
def tokens(dtype):
    """q k v dy (T,A,D) in float64, all of them numbers that `dtype` has; cu_seqlens; row keys (T,2)."""
    rng = np.random.default_rng(0)
    cu_seqlens = np.cumsum([0, *filter(None, LENGTHS)])
    q, k, v, dy = rng.normal(size=(4, cu_seqlens[-1], A, D)).astype(dtype).astype(np.float64)
    sequence = np.repeat(np.arange(R), LENGTHS)
    position = np.concatenate([np.arange(length) for length in LENGTHS])
    return (q, k, v, dy), cu_seqlens, dropout_bits.row_keys(np, 3, 4, sequence, position)


@functools.cache
def reference(dtype, causal, rate, precision="float64"):
    """y dq dk dv of the tokens, by the reference in `precision`."""
    arrays, cu_seqlens, keys = tokens(dtype)
    q, k, v, dy = (one.astype(precision) for one in arrays)
    y, saved = Ops().attention(q, k, v, cu_seqlens, causal, dropout_bits.Dropout(0.0, rate, keys), SITE)
    return y, *Ops().attention_backward(dy, saved)


def rows(x, fill):
    """(T,...) -> (R,n,...) with something at the pads that must not matter."""
    laid = np.random.default_rng(1).integers(-fill, fill, (R, n, *x.shape[1:])).astype(x.dtype)
    laid[is_token()] = x
    return laid


def is_token():
    return np.arange(n) < np.array(LENGTHS)[:, None]


@functools.cache
def compiled(plan):
    """Forward and backward, each in a jit of its own: between them there are arrays and nothing else."""
    both = (functools.partial(f, plan) for f in (jax_attention.forward, jax_attention.backward))
    return tuple(jax.jit(f, compiler_options=QUICK) for f in both)


def run(plan, dtype="float64", lengths=LENGTHS, between=lambda saved: saved, arrays=None):
    """y dq dk dv (R,n,A,D) of the tokens laid out in rows."""
    arrays = tokens(dtype)[0] if arrays is None else arrays
    q, k, v, dy = (jnp.asarray(rows(one, 100), dtype) for one in arrays)
    keys = dropout_bits.fold(np, tokens(dtype)[2], *dropout_bits.words(np, SITE))
    keys = jnp.asarray(rows(keys.astype(np.int64), 2**31), jnp.uint32)
    forward, backward = compiled(plan)
    y, saved = forward(q, k, v, jnp.asarray(lengths, jnp.int32), keys if plan.rate else None)
    assert all(isinstance(one, jax.Array) for one in jax.tree.leaves(saved))
    np.testing.assert_array_equal(saved.q, q)
    return [np.asarray(one, np.float64) for one in (y, *backward(dy, between(saved)))]


def error(found, dtype, causal, rate):
    """The largest distance of the four results from the reference, over tokens."""
    expected = reference(dtype, causal, rate)
    return worst(distance(one[is_token()], right) for one, right in zip(found, expected, strict=True))


def rounding(dtype, causal, rate):
    """What `error` may be in a lower precision."""
    if dtype == "float32":  # twice the error of plain NumPy in the same precision, as for all engines
        plain = reference(dtype, causal, rate, dtype)
        plain = worst(map(distance, plain, reference(dtype, causal, rate)))
        return ENGINE_FACTOR * plain + FLOOR
    return 2.0**-7  # bfloat16: two roundings to 8 bits on the way to each result


@pytest.mark.representatives(kernel="plain", causal=False, rate=RATE)
@pytest.mark.parametrize(("kernel", "causal", "rate"), seldom(EXACT, *EXACT[:4], ("pallas", True, RATE)))
def test_kernel_equals_the_reference_and_pads_get_zeros(kernel, causal, rate):
    plan = KERNELS[kernel]._replace(causal=causal, rate=rate)
    found = run(plan)
    assert error(found, "float64", causal, rate) <= 1e-12
    for name, one in zip(RESULTS, found, strict=True):
        assert (one[~is_token()] == 0).all(), name


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "dtype", "causal", "rate"), LOWER)
def test_lower_precision_errs_as_its_rounding_does(kernel, dtype, causal, rate):
    found = run(KERNELS[kernel]._replace(causal=causal, rate=rate), dtype)
    assert error(found, dtype, causal, rate) <= rounding(dtype, causal, rate)
    assert error(found, dtype, causal, rate) >= 1e-10  # it was a lower precision indeed
    for name, one in zip(RESULTS, found, strict=True):
        assert (one[~is_token()] == 0).all(), name


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_masks_are_the_reference_s_bit_for_bit_forward_and_backward(kernel):
    """Without scores all probabilities are alike; v or dy the identity then shows which ones are dropped."""
    _, cu_seqlens, keys = tokens("float64")
    positions = np.concatenate([np.arange(length) for length in LENGTHS])
    unit = np.repeat(np.eye(n)[positions][:, None], A, 1)
    nothing = np.zeros_like(unit)
    y, _, _, dv = run(KERNELS[kernel]._replace(rate=RATE), arrays=(nothing, nothing, unit, unit))
    heads = dropout_bits.fold(np, keys, *dropout_bits.words(np, SITE))
    heads = dropout_bits.fold(np, heads[:, None], np.arange(A, dtype=np.uint32))
    kept = dropout_bits.keep(np, heads, n, RATE)  # (T,A,n)
    borders = itertools.pairwise(cu_seqlens)
    for row, (begin, end) in zip(np.flatnonzero(LENGTHS), borders, strict=True):
        length = end - begin
        expected = kept[begin:end, :, :length]
        np.testing.assert_array_equal(y[row, :length, :, :length] > 0, expected)
        np.testing.assert_array_equal(dv[row, :length, :, :length] > 0, expected.transpose(2, 1, 0))
    assert 0.25 < 1 - kept.mean() < 0.35


# What a wrong kernel would compute, by a right one that is told something else.
FAULTS = {
    "ignores dropout": (False, {"rate": 0.0}, {}),
    "ignores the causal option": (True, {"causal": False}, {}),
    "ignores lengths": (False, {}, {"lengths": (n,) * R}),
    "forgets the last key": (False, {}, {"lengths": tuple(max(0, length - 1) for length in LENGTHS)}),
    "draws other bits backward": (False, {}, {"between": lambda saved: saved._replace(keys=saved.keys ^ 1)}),
}


@pytest.mark.representatives(kernel="plain", fault="ignores dropout")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_planted_fault_is_found(kernel, fault):
    causal, told, given = FAULTS[fault]
    plan = KERNELS[kernel]._replace(causal=causal, rate=RATE)._replace(**told)
    assert error(run(plan, **given), "float64", causal, RATE) > 1e-2


def test_lengths_and_keys_are_traced():
    plan = KERNELS["plain"]._replace(rate=RATE)
    run(plan)
    before = [f._cache_size() for f in compiled(plan)]
    run(plan, lengths=LENGTHS[::-1])
    assert [f._cache_size() for f in compiled(plan)] == before


def test_kernel_for_each_device(monkeypatch):
    choose = jax_attention.choose
    assert choose("cpu", "float32") == choose("tpu", "bfloat16") == choose("gpu", "float64") == "plain"
    assert choose("gpu", "bfloat16") == choose("cuda", "float16") == choose("gpu", "float32") == "pallas"
    monkeypatch.setattr(jax_flash, "THERE", False)  # as in a JAX without that backend
    assert choose("gpu", "bfloat16") == "plain"


def described_gpu():
    """Tell JAX what GPU to lower for where it asks to be told, which it does from 0.11 on."""
    if not hasattr(jax.sharding, "AbstractDevice"):
        return contextlib.nullcontext()
    gpu = jax.sharding.AbstractDevice("NVIDIA H200", 132, "gpu")
    automatic = (jax.sharding.AxisType.Auto,)
    mesh = jax.sharding.AbstractMesh((1,), ("data",), axis_types=automatic, abstract_device=gpu)
    return jax.sharding.use_abstract_mesh(mesh)


def lowered_calls(plan, dtype, n, D, wrap=lambda f: f):
    """Names of the kernels in forward and backward lowered for CUDA, no GPU being there."""

    def both(q, k, v, dy, lengths, keys):
        y, saved = jax_attention.forward(plan, q, k, v, lengths, keys)
        return y, jax_attention.backward(plan, dy, saved)

    jax.config.update("jax_enable_x64", False)
    x, lengths = jax.ShapeDtypeStruct((2, n, 3, D), dtype), jax.ShapeDtypeStruct((2,), jnp.int32)
    keys = jax.ShapeDtypeStruct((2, n, 2), jnp.uint32)
    with described_gpu():
        traced = jax.jit(wrap(both)).trace(x, x, x, x, lengths, keys)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    return re.findall(r"custom_call @([^(]+)\(", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "n", "D", "causal", "rate"),
    [
        ("bfloat16", 128, 64, False, 0.1),
        ("bfloat16", 512, 64, True, 0.0),
        ("bfloat16", 96, 128, False, 0.1),
        ("float32", 128, 32, True, 0.1),
        ("float32", 33, 40, False, 0.1),
    ],
)
def test_fused_kernel_lowers_for_a_gpu(dtype, n, D, causal, rate):
    """Forward and backward become a Triton kernel each; Triton verifies operations as they are built."""
    calls = lowered_calls(Plan(causal, rate, "pallas"), dtype, n, D)
    assert len(calls) == 2 and all("triton" in call for call in calls)
    assert lowered_calls(Plan(causal, rate, "plain"), dtype, 8, 8) == []


@pytest.mark.thorough
def test_fused_kernel_lowers_on_a_mesh_of_devices():
    rows = jax.sharding.PartitionSpec("data")

    def on_mesh(f):
        mesh = jax.sharding.get_abstract_mesh()  # of the GPU that was described
        if mesh.empty:
            mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
        return jax.shard_map(f, mesh=mesh, in_specs=rows, out_specs=rows)

    calls = lowered_calls(Plan(False, 0.1, "pallas"), "bfloat16", 256, 64, on_mesh)
    assert len(calls) == 2 and all("triton" in call for call in calls)
