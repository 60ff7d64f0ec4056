/* SPDX-License-Identifier: Apache-2.0 */
/* all.cpp - the extension as one piece: nine tenths of compiling any of these files goes into torch's headers. */
#include "backend.cpp"
#include "collectives.cpp"
#include "errors.cpp"
#include "memory.cpp"
#include "module.cpp"
#include "p2p.cpp"
#include "position.cpp"
#include "queue.cpp"
#include "scratch.cpp"
#include "types.cpp"
