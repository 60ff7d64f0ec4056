/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames are read as a debugger reads those of another process, with process_vm_readv on ourselves: what is freed or changed under
 * the reader gives an error or a text that is a moment old, never a fault. The calling thread's own frames cannot change meanwhile and are
 * walked directly.
 */
#include "position.hpp"

#include <Python.h>

#include <unisono_watch.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <sys/uio.h>
#include <unistd.h>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030d0000
#define UNISONO_FRAMES 1
#endif

namespace unisono {

#ifdef UNISONO_FRAMES

namespace {

constexpr int kMostFrames = 200;

// The head of CPython's _PyInterpreterFrame (Include/internal/pycore_frame.h).
struct Frame {
#if PY_VERSION_HEX >= 0x030c0000
    PyCodeObject *code;
    Frame *previous;
    PyObject *function, *globals, *builtins, *locals, *object;
    const char *instruction;
#else
    PyObject *function, *globals, *builtins, *locals;
    PyCodeObject *code;
    PyObject *object;
    Frame *previous;
    const char *instruction;
#endif
};

PyThreadState *main_state;
std::vector<std::string> skipped_folders;

bool peek(const void *from, void *to, size_t bytes)
{
    iovec here{to, bytes}, there{const_cast<void *>(from), bytes};
    return from && process_vm_readv(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

// ASCII strings alone keep their text right behind the object; others are told as "?".
std::string peek_string(const PyObject *object)
{
    PyASCIIObject head;
    if (!peek(object, &head, sizeof head) || !head.state.ascii || !head.state.compact || head.length < 0 || head.length > 4096)
        return "?";
    std::string text(static_cast<size_t>(head.length), 0);
    return peek(reinterpret_cast<const char *>(object) + sizeof head, text.data(), text.size()) ? text : "?";
}

int varint(const unsigned char *&p, const unsigned char *end)
{
    int value = 0, shift = 0;
    while (p < end) {
        int byte = *p++;
        value |= (byte & 63) << shift;
        shift += 6;
        if (!(byte & 64) || shift > 24)
            break;
    }
    return value;
}

int signed_varint(const unsigned char *&p, const unsigned char *end)
{
    int v = varint(p, end);
    return v & 1 ? -(v >> 1) : v >> 1;
}

// The location table of CPython's Objects/locations.md: which line is the code unit number `unit`?
int line_of(const std::string &table, int first, long unit)
{
    const auto *p = reinterpret_cast<const unsigned char *>(table.data()), *end = p + table.size();
    int line = first;
    for (long at = 0; p < end;) {
        int kind = *p >> 3 & 15, length = (*p & 7) + 1;
        p++;
        if (kind == 14 || kind == 13) {
            line += signed_varint(p, end);
            for (int i = 0; kind == 14 && i < 3; i++)
                varint(p, end);
        } else if (kind >= 10 && kind <= 12) {
            line += kind - 10;
            p += 2;
        } else if (kind < 10) {
            p += 1;
        }
        if (unit < (at += length))
            return kind == 15 ? 0 : line;
    }
    return 0;
}

std::string peek_bytes(const PyObject *object)
{
    PyVarObject head;
    if (!peek(object, &head, sizeof head) || head.ob_size < 0 || head.ob_size > 1 << 20)
        return "";
    std::string bytes(static_cast<size_t>(head.ob_size), 0);
    return peek(reinterpret_cast<const char *>(object) + offsetof(PyBytesObject, ob_sval), bytes.data(), bytes.size()) ? bytes : "";
}

bool is_skipped(const std::string &file)
{
    if (file.empty() || file[0] == '<')
        return true;
    for (const std::string &folder : skipped_folders)
        if (file.compare(0, folder.size(), folder) == 0)
            return true;
    return false;
}

// "" for frames that are not the program's.
std::string describe(const PyCodeObject *where, const char *instruction)
{
    PyCodeObject code;
    if (!peek(where, &code, offsetof(PyCodeObject, co_code_adaptive)))
        return "";
    std::string file = peek_string(code.co_filename);
    if (is_skipped(file))
        return "";
    long unit = (instruction - reinterpret_cast<const char *>(where) - static_cast<long>(offsetof(PyCodeObject, co_code_adaptive))) / 2;
    int line = line_of(peek_bytes(code.co_linetable), code.co_firstlineno, std::max(0L, unit));
    size_t slash = file.rfind('/');
    char text[120];
    std::snprintf(text, sizeof text, "%.60s:%d in %.40s", file.c_str() + (slash == std::string::npos ? 0 : slash + 1), line,
                  peek_string(code.co_qualname).c_str());
    return text;
}

size_t position(void *, char *buf, size_t bytes)
{
    PyThreadState state;
    _PyCFrame top;
    Frame frame;
    if (!main_state || !peek(main_state, &state, sizeof state) || !peek(state.cframe, &top, sizeof top))
        return 0;
    const void *next = top.current_frame;
    for (int i = 0; i < kMostFrames && peek(next, &frame, sizeof frame); i++) {
        std::string text = describe(frame.code, frame.instruction);
        if (!text.empty()) {
            std::snprintf(buf, bytes, "%s", text.c_str());
            return std::strlen(buf);
        }
        next = frame.previous;
    }
    return 0;
}

// What a place in the code is called, found once. Code objects may be freed and others take their address: their names tell.
struct Place {
    const PyObject *file, *name;
    int first_line;
    const std::string *text; // of keep_text; "": not the program's
};
struct PlaceHash {
    size_t operator()(const std::pair<const void *, const void *> &p) const
    {
        return reinterpret_cast<size_t>(p.first) * 31 + reinterpret_cast<size_t>(p.second);
    }
};
// Operations that are queued hold a text, and may begin after the thread that issued them has ended: texts are of the process, and stay.
const std::string *keep_text(std::string text)
{
    static std::mutex mutex;
    static auto *all_texts = new std::unordered_set<std::string>; // elements of a set do not move
    std::lock_guard<std::mutex> lock(mutex);
    return &*all_texts->insert(std::move(text)).first;
}

thread_local std::unordered_map<std::pair<const void *, const void *>, Place, PlaceHash> places;

const std::string &place(const Frame *frame)
{
    PyCodeObject *code = frame->code;
    Place &p = places[{code, frame->instruction}];
    if (!p.text || p.file != code->co_filename || p.name != code->co_name || p.first_line != code->co_firstlineno)
        p = {code->co_filename, code->co_name, code->co_firstlineno, keep_text(describe(code, frame->instruction))};
    return *p.text;
}

} // namespace

const char *own_call_site()
{
    PyThreadState *state = PyGILState_GetThisThreadState();
    const auto *frame = state ? reinterpret_cast<const Frame *>(state->cframe->current_frame) : nullptr;
    for (int i = 0; frame && i < kMostFrames; i++, frame = frame->previous) {
        if (!frame->code || Py_TYPE(frame->code) != &PyCode_Type)
            continue;
        const std::string &text = place(frame);
        if (!text.empty())
            return text.c_str();
    }
    return nullptr;
}

void tell_positions(const char *skipped)
{
    for (const char *s = skipped; *s;) {
        size_t n = std::strcspn(s, ":");
        if (n)
            skipped_folders.emplace_back(s, n);
        s += n + (s[n] == ':');
    }
    main_state = PyThreadState_Get();
    uno_set_position_callback(position, nullptr);
}

#else

const char *own_call_site()
{
    return nullptr;
}

void tell_positions(const char *) {}

#endif

} // namespace unisono
