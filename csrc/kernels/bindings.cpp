// The only file that knows Python, with engine.h and arrays.h: what the module has in it, by name.

#include <exception>
#include <memory>
#include <new>
#include <string>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "engine.h"
#include "memory.h"

namespace mb {
namespace {

// An array whose memory goes back to the pool of memory when the array is dropped.
template <typename T> py::array taken(const std::vector<py::ssize_t> &shape) {
    struct Owner {
        void *data;
        size_t bytes;
    };
    size_t bytes = sizeof(T);
    for (py::ssize_t n : shape) {
        if (n < 0) {
            throw py::value_error("shape has a negative number in it");
        }
        if (__builtin_mul_overflow(bytes, static_cast<size_t>(n), &bytes) || bytes > PTRDIFF_MAX) {
            throw py::value_error("shape is larger than any memory");
        }
    }
    if (bytes < (size_t{1} << 16)) { // the C library keeps small ones itself
        return py::array_t<T>(shape);
    }
    auto owner = std::make_unique<Owner>(Owner{take(bytes), bytes});
    auto *data = static_cast<T *>(owner->data);
    py::capsule back(owner.release(), [](void *p) {
        std::unique_ptr<Owner> owner(static_cast<Owner *>(p));
        give(owner->data, owner->bytes);
    });
    return py::array_t<T>(shape, data, back);
}

// Of float32, or of uint16 for bfloat16.
py::array empty(const std::vector<py::ssize_t> &shape, bool narrow) {
    return narrow ? taken<uint16_t>(shape) : taken<float>(shape);
}

} // namespace
} // namespace mb

PYBIND11_MODULE(_kernels, m) {
    using namespace mb;
    m.doc() = "Kernels in C++ (csrc/kernels), for minibert.backends.cpp_primitives alone.";
    // Without a text, as Python itself says it; pybind11's own would be "std::bad_alloc".
    py::register_local_exception_translator([](std::exception_ptr error) {
        try {
            std::rethrow_exception(error);
        } catch (const std::bad_alloc &) {
            PyErr_NoMemory();
        }
    });
    m.def("available", [] {
        std::vector<std::string> names;
        for (const Kernels *one : available()) {
            names.emplace_back(one->name);
        }
        return names;
    });
    m.def("empty", &empty, py::arg("shape"), py::arg("narrow") = false);
    m.def("release", &release);
    using namespace py::literals;
    py::class_<Engine>(m, "Engine")
        .def(py::init<const std::string &, int, bool>(), "isa"_a, "threads"_a, "narrow"_a = false)
        .def_property_readonly("isa", &Engine::isa)
        .def_property_readonly("threads", &Engine::threads)
        .def("gemm", &Engine::gemm, "a"_a, "b"_a, "out"_a, "add"_a = false)
        .def("linear", &Engine::linear, "x"_a, "weight"_a, "bias"_a, "y"_a)
        .def("linear_gelu", &Engine::linear_gelu, "x"_a, "weight"_a, "bias"_a, "tanh_form"_a, "u"_a, "y"_a)
        .def("linear_gelu_backward", &Engine::linear_gelu_backward, "dy"_a, "weight"_a, "tanh_form"_a, "u"_a,
             "du"_a)
        .def("linear_softmax_cross_entropy", &Engine::linear_softmax_cross_entropy, "x"_a, "weight"_a,
             "bias"_a, "labels"_a, "gradient"_a, "nll"_a, "best"_a)
        .def("attention", &Engine::attention, "q"_a, "k"_a, "v"_a, "cu_seqlens"_a, "causal"_a, "drop"_a,
             "y"_a, "softmax"_a, "queries"_a = py::none())
        .def("attention_backward", &Engine::attention_backward, "dy"_a, "q"_a, "k"_a, "v"_a, "cu_seqlens"_a,
             "causal"_a, "drop"_a, "y"_a, "softmax"_a, "dq"_a, "dk"_a, "dv"_a, "queries"_a = py::none())
        .def("gelu", &Engine::gelu, "x"_a, "y"_a, "tanh_form"_a)
        .def("gelu_backward", &Engine::gelu_backward, "dy"_a, "x"_a, "dx"_a, "tanh_form"_a)
        .def("tanh", &Engine::tanh, "x"_a, "y"_a)
        .def("tanh_backward", &Engine::tanh_backward, "dy"_a, "y"_a, "dx"_a)
        .def("dropout", &Engine::dropout, "x"_a, "y"_a, "drop"_a)
        .def("column_sums", &Engine::column_sums, "x"_a, "weights"_a, "sums"_a, "add"_a)
        .def("layer_norm", &Engine::layer_norm, "x"_a, "gamma"_a, "beta"_a, "eps"_a, "y"_a, "mean"_a,
             "inverse"_a)
        .def("layer_norm_backward", &Engine::layer_norm_backward, "dy"_a, "x"_a, "mean"_a, "inverse"_a,
             "gamma"_a, "dx"_a, "dgamma"_a, "dbeta"_a, "add"_a)
        .def("dropout_residual_layer_norm", &Engine::dropout_residual_layer_norm, "x"_a, "out"_a, "bias"_a,
             "drop"_a, "gamma"_a, "beta"_a, "eps"_a, "sum"_a, "y"_a, "mean"_a, "inverse"_a)
        .def("dropout_residual_layer_norm_backward", &Engine::dropout_residual_layer_norm_backward, "dy"_a,
             "sum"_a, "mean"_a, "inverse"_a, "gamma"_a, "drop"_a, "dsum"_a, "dout"_a, "dgamma"_a, "dbeta"_a,
             "dbias"_a)
        .def("embedding_layer_norm", &Engine::embedding_layer_norm, "ids"_a, "word"_a, "positions"_a,
             "position"_a, "segments"_a, "segment"_a, "gamma"_a, "beta"_a, "eps"_a, "drop"_a, "sum"_a, "y"_a,
             "mean"_a, "inverse"_a)
        .def("embedding_layer_norm_backward", &Engine::embedding_layer_norm_backward, "dy"_a, "sum"_a,
             "mean"_a, "inverse"_a, "gamma"_a, "drop"_a, "dsum"_a, "dgamma"_a, "dbeta"_a)
        .def("softmax_cross_entropy", &Engine::softmax_cross_entropy, "logits"_a, "labels"_a, "nll"_a,
             "best"_a)
        .def("scale_rows", &Engine::scale_rows, "x"_a, "weights"_a)
        .def("gather", &Engine::gather, "ids"_a, "table"_a, "out"_a)
        .def("scatter_add", &Engine::scatter_add, "ids"_a, "rows"_a, "table"_a)
        .def("accumulate", &Engine::accumulate, "total"_a, "extra"_a)
        .def("clear", &Engine::clear, "x"_a)
        .def("global_norm", &Engine::global_norm, "x"_a)
        .def("adamw", &Engine::adamw, "params"_a, "grads"_a, "m"_a, "v"_a, "decayed"_a, "lr"_a, "beta1"_a,
             "beta2"_a, "eps"_a, "weight_decay"_a, "lr_scale"_a, "v_scale"_a, "clip"_a, "clears"_a = false)
        .def("multiply_add_rate", &Engine::multiply_add_rate, "seconds"_a, "narrow"_a = false);
}
