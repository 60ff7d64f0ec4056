/* SPDX-License-Identifier: Apache-2.0 */
/* xml.c - see xml.h. */
#include "xml.h"

#include <stdio.h>
#include <string.h>

static void entity(void *user, const XML_Char *name, int is_parameter, const XML_Char *value, int bytes, const XML_Char *base, const XML_Char *system, const XML_Char *public,
                   const XML_Char *notation)
{
    XML_StopParser(((struct xml *)user)->parser, XML_FALSE);
}

/* Newer versions of expat call it deprecated and have nothing else that older ones know. */
unsigned long xml_line(const struct xml *x)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return (unsigned long)XML_GetCurrentLineNumber(x->parser);
#pragma GCC diagnostic pop
}

struct xml_end xml_walk(struct xml *x, XML_StartElementHandler start, XML_EndElementHandler end, const char *data, size_t bytes)
{
    x->parser = XML_ParserCreate(NULL);
    if (!x->parser)
        return (struct xml_end){.why = "there is no memory"};
    XML_SetUserData(x->parser, x);
    XML_SetElementHandler(x->parser, start, end);
    XML_SetEntityDeclHandler(x->parser, entity);
    struct xml_end how = {.whole = XML_Parse(x->parser, data, (int)bytes, 1) == XML_STATUS_OK};
    how.line = xml_line(x);
    how.why = XML_ErrorString(XML_GetErrorCode(x->parser));
    XML_ParserFree(x->parser);
    x->parser = NULL;
    return how;
}

bool xml_finish(struct model *m, const char *file, const struct xml_end *end, bool known, const char *wanted, const struct fact *machine, char *why, size_t why_bytes)
{
    if (!known) {
        snprintf(why, why_bytes, "it has no %s%s%s", wanted, end->whole ? "" : ", and ", end->whole ? "" : end->why);
        return false;
    }
    if (!end->whole)
        model_note(m, "%s: line %lu: %s; what stands before it was read", file, end->line, end->why);
    if (machine) {
        struct fact f = *machine;
        f.file = f.host = file;
        f.line = (long)end->line;
        model_add(m, &f);
    }
    return true;
}

const char *xml_attr(const char **atts, const char *name)
{
    for (; *atts; atts += 2)
        if (strcmp(atts[0], name) == 0)
            return atts[1];
    return "";
}
