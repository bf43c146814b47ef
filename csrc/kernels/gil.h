// Python's lock, given up while kernels run. A part of engine.h, which alone includes it.
#pragma once

#include <chrono>
#include <thread>

#include <pybind11/pybind11.h>
#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

namespace mb {
namespace {

// Other threads of Python run as long as this lives.
class WithoutGil {
  public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    WithoutGil(const WithoutGil &) = delete;
    WithoutGil &operator=(const WithoutGil &) = delete;

    // Before 3.14, an interpreter that is ending unwinds the stack of every other thread that asks for the lock. No
    // destructor can be unwound: the process would end with std::terminate (as by pybind11's gil_scoped_release) and
    // not with its own status. Such a thread sleeps until the process has ended, as it does from 3.14 on.
    ~WithoutGil() {
#ifdef __GLIBCXX__
        try {
            PyEval_RestoreThread(state_);
        } catch (const abi::__forced_unwind &) {
            while (true) {
                std::this_thread::sleep_for(std::chrono::hours(1));
            }
        }
#else
        PyEval_RestoreThread(state_);
#endif
    }

  private:
    PyThreadState *state_;
};

} // namespace
} // namespace mb
