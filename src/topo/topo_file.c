/* SPDX-License-Identifier: Apache-2.0 */
/* topo_file.c - a topology from a file: looks at the first bytes and hands it to the reader of that format. */
#include "topo_build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_LIMIT (64u << 20)

static uno_err read_all(const char *path, char **data, size_t *bytes)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_sys("cannot read %.300s", path);
    uno_err err = UNO_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        err = err_set(UNO_ERR_PARSE, "%.300s is not a file", path);
    else if (st.st_size > FILE_LIMIT)
        err = err_set(UNO_ERR_PARSE, "%.300s has more than 64 MB; that is no topology", path);
    else if (!(*data = mem_zalloc((size_t)st.st_size + 1)))
        err = UNO_ERR_MEMORY;
    *bytes = 0;
    for (ssize_t n; err == UNO_OK && *bytes < (size_t)st.st_size; *bytes += (size_t)n) {
        n = read(fd, *data + *bytes, (size_t)st.st_size - *bytes);
        if (n < 0)
            err = err_sys("cannot read %.300s", path);
        if (n <= 0)
            break;
    }
    close(fd);
    return err;
}

static bool has_root(const char *text, const char *element)
{
    const char *found = strstr(text, element);
    return found && found - text < 4096;
}

uno_err topo_from_file(const char *path, struct graph **graph)
{
    char *data = NULL;
    size_t bytes = 0;
    *graph = NULL;
    uno_err err = read_all(path, &data, &bytes);
    const char *start = data;
    while (err == UNO_OK && (*start == ' ' || *start == '\n' || *start == '\r' || *start == '\t'))
        start++;
    if (err != UNO_OK)
        ;
    else if (*start == '{')
        err = topo_from_json(data, bytes, path, graph);
    else if (*start == '<' && has_root(start, "<topology"))
        err = topo_from_hwloc_xml(path, graph);
    else if (*start == '<' && has_root(start, "<system"))
        err = err_set(UNO_ERR_UNSUPPORTED, "%.300s is a topology of NCCL or RCCL; these are not read yet", path);
    else
        err = err_set(UNO_ERR_PARSE, "%.300s is neither hwloc XML (`lstopo --of xml`) nor our JSON (`unisono topo --json`)", path);
    free(data);
    return err;
}
