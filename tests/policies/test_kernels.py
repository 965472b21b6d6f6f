"""Kernels of whole slices: the native ones against their definition in NumPy, and the user's."""

import shutil
import subprocess

import numpy as np
import pytest

from hocket import testing
from hocket.errors import PolicyError, UsageError
from hocket.policy.kernels import BUILTINS, kernel, library_kernel
from hocket.policy.policy import Policy
from hocket.reference.kernels import KERNELS


def _sent(n):
    """Lengths of places, codes and scales of 3 elements of each 16."""
    count = n // 16 * 3 + min(3, n % 16)
    return [2 * count, -(-count // 4), 2 * -(-n // 16)]


LENGTHS = {
    "top_k.f32": (lambda n: ([n], [n // 3, n // 3, 1]), ()),
    "quantise.int8": (lambda n: ([n], [n, -(-n // 16)]), (16,)),
    "dequantise.int8": (lambda n: ([n, -(-n // 16)], [n]), (16,)),
    "dequantise_add.int8": (lambda n: ([n, -(-n // 16)], [n]), (16,)),
    "quantise.int4": (lambda n: ([n], [-(-n // 2), -(-n // 16)]), (16,)),
    "dequantise.int4": (lambda n: ([-(-n // 2), -(-n // 16)], [n]), (16,)),
    "dequantise_add.int4": (lambda n: ([-(-n // 2), -(-n // 16)], [n]), (16,)),
    "top_k.int2": (lambda n: ([n], _sent(n)), (16, 3)),
    "matmul.f32": (lambda n: ([3 * n, n * 2], [6]), None),
    "orthogonalise.f32": (lambda n: ([], [3 * n]), None),
    "clamp.f32": (None, (-0.5, 0.25)),
    "clamp.f64": (None, (-0.5, 0.25)),
    "fill.f32": (None, (3.0,)),
    "fill.f64": (None, (3.0,)),
}


SPARSE = {
    "scatter_add.f32",
    "scatter_add.int2",
    "clear_at.f32",
    "scatter_add_rows.f32",
    "scatter_add_rows.f64",
}
"""Indices are within their outputs: below, and in `tests/oracle/test_gathered_programs.py`."""


def definition(name):
    taken = BUILTINS[name]

    def call(*arguments):
        *arrays, constants = arguments
        KERNELS[name](arrays[: len(taken.inputs)], arrays[len(taken.inputs) :], constants)

    return call


@pytest.mark.parametrize("name", sorted(set(BUILTINS) - SPARSE))
@pytest.mark.parametrize("size", [1, 2, 7, 64, 333])
def test_builtin(name, size):
    """The native executor and the reference would give different gradients."""
    lengths, constants = LENGTHS.get(name, (None, ()))
    if name == "matmul.f32":
        for left, right in ((0, 0), (1, 0), (0, 1), (1, 1)):
            testing.check_kernel(
                name,
                definition(name),
                lengths=lengths,
                constants=(3, size, 2, left, right),
                sizes=(size,),
                relative=1e-3,
            )
        return
    if name == "orthogonalise.f32":
        constants = (size, 3)
        if size < 3:
            return
    testing.check_kernel(
        name,
        definition(name),
        lengths=lengths,
        constants=constants,
        sizes=(size,),
        relative=2e-3 if name == "orthogonalise.f32" else 1e-6,
    )


@pytest.mark.parametrize("name", ["scatter_add.f32", "clear_at.f32"])
def test_sparse_builtins(name):
    """Selected gradients would land elsewhere."""
    indices, count = np.array([1, 4, 1, 9], np.int32), np.array([3], np.int64)
    inputs = [np.array([1, 2, 3, 4], np.float32), indices, count][3 - len(BUILTINS[name].inputs) :]
    ours, theirs = np.ones(10, np.float32), np.ones(10, np.float32)
    testing.kernels.run(BUILTINS[name], inputs, [ours])
    KERNELS[name](inputs, [theirs], ())
    assert np.array_equal(ours, theirs)
    assert not np.array_equal(ours, np.ones(10))


def test_scattered_bits_stay_in_their_chunks():
    """Broken: a place from a peer's memory would write elsewhere, or a sign or a magnitude would be another element's."""
    codes, scales = np.array([0b10_01_00_11], np.uint8), np.array([1, 2, 3, 4], np.float32)
    for places, expected in (([1, 3, 0, 1], [0, -2, 0, 1, 4, -3]), ([1, 3, 0, 2], None)):
        inputs = [np.array(places, "<u2").view(np.uint8), codes, scales]
        ours, theirs = np.zeros(6, np.float32), np.zeros(6, np.float32)
        if expected is None:
            with pytest.raises(Exception, match="place 2 of 2 elements"):
                testing.kernels.run(BUILTINS["scatter_add.int2"], inputs, [ours], (4, 2))
            with pytest.raises(IndexError):
                KERNELS["scatter_add.int2"](inputs, [theirs], (4, 2))
        else:
            testing.kernels.run(BUILTINS["scatter_add.int2"], inputs, [ours], (4, 2))
            KERNELS["scatter_add.int2"](inputs, [theirs], (4, 2))
            assert ours.tolist() == theirs.tolist() == expected


def test_a_numba_kernel_in_a_policy():
    """A user's codec would not run."""
    numba = pytest.importorskip("numba")
    assert numba

    @kernel(inputs=["f32"], outputs=["f32"], elementwise=True)
    def halve(x, out, constants):
        for i in range(len(out)):
            out[i] = x[i] * constants[0]

    def expected(x, out, constants):
        out[:] = x * np.float32(constants[0])

    testing.check_kernel(halve, expected, constants=(0.5,))

    class Halved(Policy):
        contract = "same"

        def on_buffer_ready(self, cx, buffer):
            half = cx.alloc(len(buffer))
            cx.apply(halve, [buffer], [half], 0.5)
            cx.all_reduce(half, op="mean")
            cx.copy(half, into=buffer)

    result = testing.run(Halved(), world=3, shapes=((50,),))
    assert np.allclose(result.gradients[0][1]["g0"], result.mean()["g0"] / 2, atol=1e-6)


def test_a_kernel_that_is_not_elementwise_is_found():
    """Chunking would change its result."""
    pytest.importorskip("numba")

    @kernel(inputs=["f32"], outputs=["f32"], elementwise=True)
    def first(x, out, _constants):
        for i in range(len(out)):
            out[i] = x[0]

    def expected(x, out, _constants):
        out[:] = x[:1] if len(x) else 0

    with pytest.raises(AssertionError, match="declared elementwise"):
        testing.check_kernel(first, expected, sizes=(64,))


def test_a_wrong_kernel_is_found():
    """The first element that differs, with both values."""

    def wrong(x, out, constants):
        out[:] = np.clip(x, *constants)
        out[5] += 1

    with pytest.raises(AssertionError, match=r"size 64, output 0: element 5"):
        testing.check_kernel("clamp.f32", wrong, constants=(-0.5, 0.5), sizes=(64,))


def test_a_kernel_of_a_shared_library(tmp_path):
    """C code would not be callable."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source = tmp_path / "twice.c"
    source.write_text(
        "#include <stdint.h>\n"
        "void twice(const void *const *in, const int64_t *in_bytes, void *const *out, const int64_t *out_bytes,\n"
        "           const double *constants) {\n"
        "  const float *x = in[0]; float *y = out[0];\n"
        "  for (int64_t i = 0; i < out_bytes[0] / 4; i++) y[i] = 2 * x[i];\n"
        "}\n"
    )
    library = tmp_path / "libtwice.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    twice = library_kernel(library, "twice", inputs=["f32"], outputs=["f32"], elementwise=True)

    def expected(x, out, _constants):
        out[:] = 2 * x

    testing.check_kernel(twice, expected)
    with pytest.raises(UsageError, match="thrice"):
        library_kernel(library, "thrice", inputs=["f32"], outputs=["f32"])


def test_misuse_of_kernels_is_explained():
    """A wrong type would read beyond its memory."""
    with pytest.raises(UsageError, match=r"kernels take .* not f16"):
        library_kernel("x.so", "f", inputs=["f16"], outputs=["f32"])
    pytest.importorskip("numba")
    with pytest.raises(UsageError, match="takes 2 arguments"):
        kernel(inputs=["f32"], outputs=["f32"])(lambda x, out: None)

    class Wrong(Policy):
        def on_buffer_ready(self, cx, buffer):
            cx.apply("clamp.f32", [buffer], [cx.alloc(len(buffer), "f64")], 0, 1)

    with pytest.raises(PolicyError, match=r"called as \(f32\) → \(f64\)"):
        testing.run(Wrong(), world=2)
