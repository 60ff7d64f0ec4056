/* SPDX-License-Identifier: Apache-2.0 */
/* err.c - the calling thread's sentence. The code is for programs, the sentence for people. */
#include "base.h"

#include <errno.h>
#include <string.h>

static _Thread_local char sentence[ERR_TEXT_BYTES];

uno_err err_set(uno_err code, const char *fmt, ...)
{
    char fresh[ERR_TEXT_BYTES]; /* an argument may be err_text() itself */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(fresh, sizeof fresh, fmt, ap);
    va_end(ap);
    memcpy(sentence, fresh, sizeof fresh);
    return code;
}

uno_err err_sys(const char *fmt, ...)
{
    int saved = errno;
    char fresh[ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(fresh, sizeof fresh, fmt, ap);
    va_end(ap);
    errno = saved;
    return err_set(saved == ENOMEM ? UNO_ERR_MEMORY : UNO_ERR_SYSTEM, "%.800s: %s", fresh, strerror(saved));
}

uno_err err_wrap(uno_err code, const char *fmt, ...)
{
    char context[ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    return err_set(code, "%.400s: %s", context, sentence);
}

const char *err_text(void)
{
    return sentence;
}
