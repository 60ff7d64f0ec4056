/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file.c - a file -> plan, JSON or XML by its first character; bounded, so that no file can eat the memory. */
#include "plan_text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read all of fd; *text is the caller's to free, also after an error. */
static uno_err read_bounded(int fd, const char *path, char **text, size_t *bytes)
{
    size_t cap = 0;
    for (;;) {
        TRY(mem_grow(text, &cap, *bytes + 65536, 1));
        ssize_t n = read(fd, *text + *bytes, cap - *bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys("cannot read %.200s", path);
        if (n == 0)
            return UNO_OK;
        *bytes += (size_t)n;
        if (*bytes > PLAN_MAX_FILE_BYTES)
            return err_set(UNO_ERR_PARSE, "%.200s is larger than %u MB, which no plan is", path, PLAN_MAX_FILE_BYTES >> 20);
    }
}

static uno_err parse(const char *text, size_t bytes, const char *path, struct plan **plan)
{
    size_t at = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a byte order mark */
    text += at;
    bytes -= at;
    for (at = 0; at < bytes && isspace((unsigned char)text[at]);)
        at++;
    if (at == bytes)
        return err_set(UNO_ERR_PARSE, "%.200s is empty", path);
    if (text[at] == '<')
        return plan_from_xml(text, bytes, path, plan);
    if (text[at] == '{')
        return plan_from_json(text, bytes, path, plan);
    return err_set(UNO_ERR_PARSE, "%.200s is not a plan: it begins neither with { (JSON) nor with < (MSCCL XML)", path);
}

uno_err plan_from_file(const char *path, struct plan **plan)
{
    char *text = NULL;
    size_t bytes = 0;
    *plan = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys("cannot open %.200s", path);
    uno_err err = read_bounded(fd, path, &text, &bytes);
    close(fd);
    if (err == UNO_OK)
        err = parse(text, bytes, path, plan);
    free(text);
    return err;
}
