// The only file that knows Python: NumPy arrays come in, are checked, and kernels run without the GIL. Nothing is
// ever copied to make it fit: what does not fit is a ValueError that names the argument.

#include <cstdlib>
#include <memory>
#include <string>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "kernels.h"
#include "memory.h"

namespace py = pybind11;

namespace mb {
namespace {

[[noreturn]] void refuse(const char *name, const std::string &what) {
    throw py::value_error(std::string(name) + " " + what);
}

std::string shape_of(const py::array &array) { return py::str(array.attr("shape")).cast<std::string>(); }

template <typename T> const char *type_name();
template <> const char *type_name<float>() { return "float32"; }
template <> const char *type_name<int32_t>() { return "int32"; }
template <> const char *type_name<int64_t>() { return "int64"; }
template <> const char *type_name<uint32_t>() { return "uint32"; }

// An array of T with `dimensions` dimensions, rows in one piece when `contiguous`.
template <typename T>
T *checked(const char *name, const py::array &array, int dimensions, bool written, bool contiguous) {
    using Plain = std::remove_const_t<T>;
    if (!py::isinstance<py::array_t<Plain>>(array))
        refuse(name,
               "is " + py::str(array.dtype()).cast<std::string>() + "; it has to be " + type_name<Plain>());
    if (array.ndim() != dimensions)
        refuse(name, "has shape " + shape_of(array) + "; it has to have " + std::to_string(dimensions) +
                         " dimensions");
    if (reinterpret_cast<uintptr_t>(array.data()) % sizeof(Plain) != 0)
        refuse(name, "is not aligned to its elements");
    for (int i = 0; i < dimensions; ++i)
        if (array.strides(i) % static_cast<py::ssize_t>(sizeof(Plain)) != 0)
            refuse(name, "has strides that are no whole number of elements");
    if (contiguous && !(array.flags() & py::array::c_style))
        refuse(name, "is not C-contiguous");
    if (written && !array.writeable())
        refuse(name, "is read-only");
    return static_cast<T *>(const_cast<void *>(array.data()));
}

// A vector.
template <typename T> struct Line {
    T *data;
    int64_t size;
};

template <typename T> Line<const T> line(const char *name, const py::array &array) {
    return {checked<const T>(name, array, 1, false, true), array.shape(0)};
}

template <typename T> Line<T> line_out(const char *name, const py::array &array) {
    return {checked<T>(name, array, 1, true, true), array.shape(0)};
}

// Nothing, where None is given.
template <typename T> Line<const T> line_or_none(const char *name, const py::object &array) {
    return array.is_none() ? Line<const T>{nullptr, 0}
                           : line<T>(name, py::reinterpret_borrow<py::array>(array));
}

// A matrix; element (i, j) at data[i * row + j * column].
template <typename T> struct Matrix {
    T *data;
    int64_t rows, columns, row, column;
};

template <typename T> Matrix<T> any_matrix(const char *name, const py::array &array, bool written = false) {
    constexpr int64_t size = sizeof(T);
    T *data = checked<T>(name, array, 2, written, false);
    return {data, array.shape(0), array.shape(1), array.strides(0) / size, array.strides(1) / size};
}

// A matrix each of whose rows is one piece, and rows do not overlap.
template <typename T> Matrix<T> rows(const char *name, const py::array &array, bool written = false) {
    Matrix<T> found = any_matrix<T>(name, array, written);
    if (found.rows == 0 || found.columns == 0) // NumPy gives strides of no meaning then
        return {found.data, found.rows, found.columns, found.columns, 1};
    if (found.columns > 1 && found.column != 1)
        refuse(name, "has rows that are not in one piece");
    if (found.rows > 1 && found.row < found.columns)
        refuse(name, "has rows that overlap or run backwards");
    return found;
}

template <typename T> Matrix<T> rows_out(const char *name, const py::array &array) {
    return rows<T>(name, array, true);
}

void expect(const char *name, int64_t given, int64_t expected, const char *of) {
    if (given != expected)
        refuse(name,
               "has " + std::to_string(given) + " " + of + "; " + std::to_string(expected) + " belong here");
}

template <typename T> View view(const Matrix<T> &m) { return {m.data, m.row, m.column}; }

// An array whose memory goes back to the pool of memory when the array is dropped.
py::array_t<float> empty(const std::vector<py::ssize_t> &shape) {
    struct Owner {
        void *data;
        size_t bytes;
    };
    size_t bytes = sizeof(float);
    for (py::ssize_t n : shape) {
        if (n < 0)
            throw py::value_error("shape has a negative number in it");
        bytes *= static_cast<size_t>(n);
    }
    if (bytes < (size_t{1} << 16)) // the C library keeps small ones itself
        return py::array_t<float>(shape);
    auto owner = std::make_unique<Owner>(Owner{take(bytes), bytes});
    auto *data = static_cast<float *>(owner->data);
    py::capsule back(owner.release(), [](void *p) {
        std::unique_ptr<Owner> owner(static_cast<Owner *>(p));
        give(owner->data, owner->bytes);
    });
    return py::array_t<float>(shape, data, back);
}

// An instruction set and a pool of threads.
class Engine {
  public:
    Engine(const std::string &isa, int threads) : kernels_(find(isa.c_str())), pool_(threads) {
        if (kernels_ == nullptr) {
            std::string names;
            for (const Kernels *one : available())
                names += std::string(names.empty() ? "" : ", ") + one->name;
            throw py::value_error("isa='" + isa + "' can't be run here; choose from " + names);
        }
        if (threads < 1)
            throw py::value_error("threads=" + std::to_string(threads) + " is not a positive number");
    }

    const char *isa() const { return kernels_->name; }
    int threads() const { return pool_.threads(); }

    void gemm(const py::array &a, const py::array &b, const py::array &out, bool add) {
        auto A = any_matrix<const float>("a", a), B = any_matrix<const float>("b", b);
        auto C = rows_out<float>("out", out);
        expect("b", B.rows, A.columns, "rows");
        expect("out", C.rows, A.rows, "rows");
        expect("out", C.columns, B.columns, "columns");
        py::gil_scoped_release released;
        kernels_->gemm(pool_, A.rows, B.columns, A.columns, view(A), view(B), C.data, C.row, add, {});
    }

    void linear(const py::array &x, const py::array &weight, const py::object &bias, const py::array &y) {
        auto X = any_matrix<const float>("x", x), W = any_matrix<const float>("weight", weight);
        auto Y = rows_out<float>("y", y);
        auto b = line_or_none<float>("bias", bias);
        expect("weight", W.rows, X.columns, "rows");
        expect("y", Y.rows, X.rows, "rows");
        expect("y", Y.columns, W.columns, "columns");
        if (b.data != nullptr)
            expect("bias", b.size, W.columns, "elements");
        py::gil_scoped_release released;
        kernels_->linear(pool_, X.rows, W.columns, X.columns, view(X), view(W), b.data, Y.data, Y.row);
    }

  private:
    const Kernels *kernels_;
    Pool pool_;
};

} // namespace
} // namespace mb

PYBIND11_MODULE(_kernels, m) {
    using namespace mb;
    m.doc() = "Kernels in C++ (csrc/kernels), for minibert.backends.cpp_ops alone.";
    m.def("available", [] {
        std::vector<std::string> names;
        for (const Kernels *one : available())
            names.emplace_back(one->name);
        return names;
    });
    m.def("empty", &empty, py::arg("shape"));
    m.def("release", &release);
    using namespace py::literals;
    py::class_<Engine>(m, "Engine")
        .def(py::init<const std::string &, int>(), "isa"_a, "threads"_a)
        .def_property_readonly("isa", &Engine::isa)
        .def_property_readonly("threads", &Engine::threads)
        .def("gemm", &Engine::gemm, "a"_a, "b"_a, "out"_a, "add"_a = false)
        .def("linear", &Engine::linear, "x"_a, "weight"_a, "bias"_a, "y"_a);
}
