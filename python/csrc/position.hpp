/* SPDX-License-Identifier: Apache-2.0 */
/*
 * position.hpp - where the Python program is: file, line and function, without the interpreter's lock and without its help, since
 * the program may hold that lock, sleep, or be in foreign code. CPython 3.11 and 3.12; elsewhere nothing is told.
 */
#pragma once

#include <cstddef>

namespace unisono {

// "train.py:212 in step": the innermost frame of this thread that is not torch's or ours; NULL if there is none. Lives for ever.
const char *own_call_site();
// Tell the library, for its reports, where the main thread is. Called with the interpreter's lock, by Python's main thread; skipped:
// folders whose files are not the program's, ':' between them.
void tell_positions(const char *skipped);

} // namespace unisono
