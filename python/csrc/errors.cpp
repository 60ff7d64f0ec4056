/* SPDX-License-Identifier: Apache-2.0 */
#include "errors.hpp"

#include <torch/csrc/Exceptions.h>
#include <unisono_watch.h>

#include <atomic>
#include <chrono>
#include <map>

namespace unisono {

namespace {

std::map<int, PyObject *> classes_by_code; // with the GIL; references are kept for the life of the process

class Error : public torch::PyTorchError {
 public:
    Error(uno_err code, std::string text) : torch::PyTorchError(std::move(text)), code_(code) {}
    PyObject *python_type() override
    {
        auto found = classes_by_code.find(code_);
        if (found == classes_by_code.end())
            found = classes_by_code.find(0);
        return found == classes_by_code.end() ? PyExc_RuntimeError : found->second;
    }

 private:
    int code_;
};

using Clock = std::chrono::steady_clock;
thread_local Clock::time_point looked;
thread_local bool handling; // signals, while the library waits in this thread
thread_local std::exception_ptr raised; // by a signal handler, while the library waited in this thread
unsigned long main_thread;

bool signals_raise()
{
    if (PyThread_get_thread_ident() != main_thread || !Py_IsInitialized())
        return false;
    pybind11::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0)
        return false;
    raised = std::make_exception_ptr(pybind11::error_already_set());
    return true;
}

} // namespace

void set_error_classes(pybind11::dict classes)
{
    for (auto item : classes)
        classes_by_code[item.first.cast<int>()] = item.second.inc_ref().ptr();
}

std::exception_ptr error_of(uno_err err, const std::string &text)
{
    if (raised) {
        std::exception_ptr first;
        first.swap(raised);
        return first;
    }
    // torch's users look for this word, as gloo and nccl say it.
    return std::make_exception_ptr(Error(err, err == UNO_ERR_TIMEOUT ? "a timeout passed: " + text : text));
}

void look_at_signals()
{
    Clock::time_point now = Clock::now();
    if (now - looked < std::chrono::milliseconds(90))
        return;
    looked = now;
    if (signals_raise())
        throw_raised();
}

void throw_raised()
{
    if (!raised)
        return;
    std::exception_ptr error;
    error.swap(raised);
    std::rethrow_exception(error);
}

bool in_signal_handler()
{
    return handling;
}

void refuse_in_signal_handler()
{
    if (handling)
        std::rethrow_exception(error_of(UNO_ERR_USAGE, "unisono: called in a signal handler while this thread waits in another call; let the "
                                                       "handler raise or set a flag, or call abort() of the process group"));
}

void watch_signals()
{
    // Any thread may be the first to import this; Python runs signal handlers in its main thread only.
    main_thread = pybind11::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
    uno_set_interrupt_callback([](void *) {
        handling = true;
        bool raise = signals_raise();
        handling = false;
        return static_cast<int>(raise);
    }, nullptr);
}

} // namespace unisono
