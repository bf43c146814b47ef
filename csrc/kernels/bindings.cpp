// The only file that knows Python, with engine.h, arrays.h and gil.h: what the module has in it, by name.

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

// A kernel under its name, and what its arguments are called, for who traces it.
template <typename Method, typename... Args>
void define(py::class_<Engine> &engine, py::dict &arguments, const char *name, Method method,
            const Args &...args) {
    engine.def(name, method, args...);
    arguments[name] = py::make_tuple(args.name...);
}

} // namespace
} // namespace mb

PYBIND11_MODULE(_kernels, m) {
    using namespace mb;
    m.doc() = "Kernels in C++ (csrc/kernels), for minibert.engines.cpp.primitives alone.";
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
    py::class_<Engine> engine(m, "Engine");
    engine.def(py::init<const std::string &, int, bool>(), "isa"_a, "threads"_a, "narrow"_a = false)
        .def("keep", &Engine::keep, "weight"_a, "int8"_a = false)
        .def_property_readonly("isa", &Engine::isa)
        .def_property_readonly("has_int8", &Engine::has_int8)
        .def_property_readonly("threads", &Engine::threads);
    py::dict arguments;
#define MB_TYPED(name, ...) define(engine, arguments, #name, &Engine::name, __VA_ARGS__);
#define MB_KERNEL(name, ...) define(engine, arguments, #name, &Engine::name, __VA_ARGS__);
#include "kernels.def"
    engine.attr("arguments") = arguments;
}
