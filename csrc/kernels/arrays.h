// How arrays of Python reach the kernels: checked for dtype, shape and layout, never copied to make them fit. What does
// not fit is a ValueError that names the argument. A part of engine.h, which alone includes it.
#pragma once

#include <algorithm>
#include <string>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "gemm.h"
#include "random.h"

namespace py = pybind11;

namespace mb {
namespace {

[[noreturn]] void refuse(const char *name, const std::string &what) {
    throw py::value_error(std::string(name) + " " + what);
}

std::string shape_of(const py::array &array) { return py::str(array.attr("shape")).cast<std::string>(); }

// What NumPy calls a type, and its own type for it.
template <typename T> struct Numpy;
template <> struct Numpy<float> {
    using Type = float;
    static constexpr const char *name = "float32";
};
template <> struct Numpy<bf16> {
    using Type = uint16_t;
    static constexpr const char *name = "uint16 (the bits of bfloat16)";
};
template <> struct Numpy<int32_t> {
    using Type = int32_t;
    static constexpr const char *name = "int32";
};
template <> struct Numpy<int64_t> {
    using Type = int64_t;
    static constexpr const char *name = "int64";
};
template <> struct Numpy<uint32_t> {
    using Type = uint32_t;
    static constexpr const char *name = "uint32";
};

bool is_narrow(const py::array &array) { return py::isinstance<py::array_t<uint16_t>>(array); }

// call(float{}) or call(bf16{}), by the type of an array.
template <typename Call> void by_type(const py::array &array, Call call) {
    if (is_narrow(array)) {
        call(bf16{});
    } else {
        call(float{});
    }
}

// An array of T with `dimensions` dimensions, in one piece where `contiguous`. Here and below an array of a T
// that is not const has to be writeable.
template <typename T>
T *checked(const char *name, const py::array &array, int dimensions, bool contiguous = true) {
    using Plain = std::remove_const_t<T>;
    if (!py::isinstance<py::array_t<typename Numpy<Plain>::Type>>(array)) {
        refuse(name,
               "is " + py::str(array.dtype()).cast<std::string>() + "; it has to be " + Numpy<Plain>::name);
    }
    if (array.ndim() != dimensions) {
        refuse(name, "has shape " + shape_of(array) + "; it has to have " + std::to_string(dimensions) +
                         " dimensions");
    }
    if (reinterpret_cast<uintptr_t>(array.data()) % sizeof(Plain) != 0) {
        refuse(name, "is not aligned to its elements");
    }
    for (int i = 0; i < dimensions; ++i) {
        if (array.strides(i) % static_cast<py::ssize_t>(sizeof(Plain)) != 0) {
            refuse(name, "has strides that are not multiples of its element size");
        }
    }
    if (contiguous && !(array.flags() & py::array::c_style)) {
        refuse(name, "is not C-contiguous");
    }
    if (!std::is_const_v<T> && !array.writeable()) {
        refuse(name, "is read-only");
    }
    return static_cast<T *>(const_cast<void *>(array.data()));
}

// A vector.
template <typename T> struct Line {
    T *data;
    int64_t size;
};

template <typename T> Line<T> line(const char *name, const py::array &array) {
    return {checked<T>(name, array, 1), array.shape(0)};
}

// What may be None, or stands in a tuple: an array once it is known to be one.
py::array array_of(const char *name, const py::object &given) {
    if (!py::isinstance<py::array>(given)) {
        refuse(name, "is " + py::repr(given).cast<std::string>() + "; it has to be an array");
    }
    return py::reinterpret_borrow<py::array>(given);
}

// Nothing, where None is given.
template <typename T> Line<T> line_or_none(const char *name, const py::object &array) {
    return array.is_none() ? Line<T>{nullptr, 0} : line<T>(name, array_of(name, array));
}

void expect(const char *name, int64_t given, int64_t expected, const char *of) {
    if (given != expected) {
        refuse(name,
               "has " + std::to_string(given) + " " + of + "; " + std::to_string(expected) + " belong here");
    }
}

// A matrix; element (i, j) at data[i * row + j * column].
template <typename T> struct Matrix {
    T *data;
    int64_t rows, columns, row, column;
};

template <typename T> Matrix<T> any_matrix(const char *name, const py::array &array) {
    constexpr int64_t size = sizeof(T);
    T *data = checked<T>(name, array, 2, false);
    return {data, array.shape(0), array.shape(1), array.strides(0) / size, array.strides(1) / size};
}

// A matrix each of whose rows is one piece, and rows do not overlap.
template <typename T> Matrix<T> rows(const char *name, const py::array &array) {
    Matrix<T> found = any_matrix<T>(name, array);
    if (found.rows == 0 || found.columns == 0) { // NumPy gives strides of no meaning then
        return {found.data, found.rows, found.columns, found.columns, 1};
    }
    if (found.columns > 1 && found.column != 1) {
        refuse(name, "has rows that are not in one piece");
    }
    if (found.rows > 1 && found.row < found.columns) {
        refuse(name, "has rows that overlap or run backwards");
    }
    return found;
}

// A matrix of any shape in one piece.
template <typename T> Matrix<T> whole_rows(const char *name, const py::array &array) {
    T *data = checked<T>(name, array, 2);
    return {data, array.shape(0), array.shape(1), array.shape(1), 1};
}

// One of that shape.
template <typename T> T *whole(const char *name, const py::array &array, int64_t n_rows, int64_t n_columns) {
    auto found = whole_rows<T>(name, array);
    expect(name, found.rows, n_rows, "rows");
    expect(name, found.columns, n_columns, "columns");
    return found.data;
}

// A vector of that length.
template <typename T> T *sized(const char *name, const py::array &array, int64_t size) {
    T *data = checked<T>(name, array, 1);
    expect(name, array.shape(0), size, "elements");
    return data;
}

// An array of any shape in one piece, as a line.
template <typename T> Line<T> all(const char *name, const py::array &array) {
    return {checked<T>(name, array, static_cast<int>(array.ndim())), array.size()};
}

// An array of the shape of another one.
template <typename T> T *like(const char *name, const py::array &array, const py::array &other) {
    auto found = all<T>(name, array);
    if (array.ndim() != other.ndim() ||
        !std::equal(other.shape(), other.shape() + other.ndim(), array.shape())) {
        refuse(name, "has shape " + shape_of(array) + "; " + shape_of(other) + " belongs here");
    }
    return found.data;
}

// An operand of a matrix product.
struct Operand {
    View view;
    int64_t rows, columns;
};

inline Operand operand(const char *name, const py::array &array) {
    Operand found;
    by_type(array, [&](auto zero) {
        auto m = any_matrix<const decltype(zero)>(name, array);
        found = {{m.data, m.row, m.column, sizeof zero == sizeof(bf16)}, m.rows, m.columns};
    });
    return found;
}

// A tensor (T,A,D) in which the heads of a token lie side by side.
template <typename T> struct Tokens {
    T *data;
    int64_t T_, A, D, stride;
};

template <typename T> Tokens<T> tokens(const char *name, const py::array &array) {
    constexpr int64_t size = sizeof(T);
    T *data = checked<T>(name, array, 3, false);
    Tokens<T> found{data, array.shape(0), array.shape(1), array.shape(2), array.strides(0) / size};
    if (array.size() == 0) {
        return found;
    }
    if ((found.D > 1 && array.strides(2) != size) || (found.A > 1 && array.strides(1) != size * found.D)) {
        refuse(name, "has tokens whose heads do not lie side by side");
    }
    if (found.T_ > 1 && found.stride < found.A * found.D) {
        refuse(name, "has tokens that overlap or run backwards");
    }
    return found;
}

template <typename T, typename U>
void like(const char *name, const Tokens<T> &given, const Tokens<U> &expected) {
    expect(name, given.T_, expected.T_, "tokens");
    expect(name, given.A, expected.A, "heads");
    expect(name, given.D, expected.D, "elements in a head");
}

// Where sequences begin: from 0 to T, none of them backwards.
Line<const int32_t> sequences(const char *name, const py::array &array, int64_t T) {
    auto found = line<const int32_t>(name, array);
    if (found.size < 1 || found.data[0] != 0 || found.data[found.size - 1] != T) {
        refuse(name, "does not go from 0 to the " + std::to_string(T) + " tokens there are");
    }
    for (int64_t s = 1; s < found.size; ++s) {
        if (found.data[s] < found.data[s - 1]) {
            refuse(name, "falls at sequence " + std::to_string(s - 1));
        }
    }
    return found;
}

// Where the tokens of each sequence begin, and where those do that ask, which are all of them if `queries` is None.
struct Borders {
    Line<const int32_t> tokens, queries;
};

template <typename T>
Borders borders(const py::array &cu_seqlens, const py::object &queries, const Tokens<T> &q,
                const Tokens<T> &k, bool causal) {
    auto all = sequences("cu_seqlens", cu_seqlens, k.T_);
    if (queries.is_none()) {
        like("k", k, q);
        return {all, all};
    }
    if (causal) {
        refuse("queries", "goes with attention in both directions only, and causal is true");
    }
    auto asking = sequences("queries", array_of("queries", queries), q.T_);
    expect("queries", asking.size, all.size, "elements");
    expect("k", k.A, q.A, "heads");
    expect("k", k.D, q.D, "elements in a head");
    for (int64_t s = 0; s + 1 < all.size; ++s) {
        if (all.data[s] == all.data[s + 1] && asking.data[s] < asking.data[s + 1]) {
            refuse("queries",
                   "has some in sequence " + std::to_string(s) + ", which has no tokens to look at");
        }
    }
    return {all, asking};
}

// Every index at least 0 and below `limit`.
Line<const int32_t> indices(const char *name, const py::array &array, int64_t limit) {
    auto found = line<const int32_t>(name, array);
    for (int64_t i = 0; i < found.size; ++i) {
        if (found.data[i] < 0 || found.data[i] >= limit) {
            throw py::value_error(name + ("[" + std::to_string(i) + "]=" + std::to_string(found.data[i])) +
                                  " is outside 0.." + std::to_string(limit - 1));
        }
    }
    return found;
}

// Dropout as (row keys (T,2), (site, threshold)), or nothing as ().
Drop dropout_of(const py::tuple &drop, int64_t T) {
    if (drop.empty()) {
        return {};
    }
    if (drop.size() != 2) {
        refuse("drop", "is neither empty nor a pair of arrays");
    }
    auto keys = array_of("drop", drop[0]);
    auto *rows = checked<const uint32_t>("drop", keys, 2);
    expect("drop", keys.shape(0), T, "rows");
    expect("drop", keys.shape(1), 2, "columns");
    auto facts = line<const uint32_t>("drop", array_of("drop", drop[1]));
    expect("drop", facts.size, 2, "facts");
    constexpr uint32_t kDraws = 1 << 16;
    if (facts.data[1] >= kDraws) {
        refuse("drop", "has a threshold of " + std::to_string(facts.data[1]) + ", beyond its draws");
    }
    return {rows, facts.data[0], facts.data[1],
            static_cast<float>(static_cast<double>(kDraws) / (kDraws - facts.data[1]))};
}

} // namespace
} // namespace mb
