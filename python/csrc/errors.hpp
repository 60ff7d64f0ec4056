/* SPDX-License-Identifier: Apache-2.0 */
/* errors.hpp - errors of the library as Python exceptions, and signals that arrive while it waits. */
#pragma once

#include <unisono.h>

#include <exception>
#include <string>

#include <pybind11/pybind11.h>

namespace unisono {

// The exception for `err`: the Python class that was set for it (unisono/torch/errors.py), with `text`. A signal whose handler
// raised in this thread while it waited goes first.
std::exception_ptr error_of(uno_err err, const std::string &text);
// classes: dict of code -> exception class; code 0 stands for all others.
void set_error_classes(pybind11::dict classes);

// Python's main thread: run its signal handlers if 100 ms have passed since *last_ns; throws what they raise. Takes the GIL only then.
void look_at_signals();
// Throws what a signal handler raised in this thread while the library waited, though what it waited for went well.
void throw_raised();
// Does a signal handler run in this thread, while the thread waits in a call of the library? Nothing but uno_comm_abort may be called then.
bool in_signal_handler();
// Throws if so: what would be called waits for the call below it.
void refuse_in_signal_handler();
// Let the library ask for signals while it waits for others.
void watch_signals();

} // namespace unisono
