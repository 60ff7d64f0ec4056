/* SPDX-License-Identifier: Apache-2.0 */
/* xml.h - what the readers of XML share: a walk with expat in which entities, which would be expanded and of which these files have none, end it. */
#ifndef UNO_DOCTOR_XML_H
#define UNO_DOCTOR_XML_H

#include <expat.h>
#include <stdbool.h>
#include <stddef.h>

#include "model.h"

/* The first member of what a reader hands to its elements. */
struct xml {
    XML_Parser parser; /* to stop; NULL before and after the walk */
};

struct xml_end {
    bool whole;        /* all of it was walked */
    unsigned long line;
    const char *why;   /* static */
};

/* Walk all of data; `start` and `end` get x. */
struct xml_end xml_walk(struct xml *x, XML_StartElementHandler start, XML_EndElementHandler end, const char *data, size_t bytes);

/* The line that the walk stands in. */
unsigned long xml_line(const struct xml *x);

/* What both readers end with: the machine (F_XML; NULL = the file is of none) is given to the model when `known`, else why says what the file has not; what
 * was not walked is noted. Returns known. */
bool xml_finish(struct model *m, const char *file, const struct xml_end *end, bool known, const char *wanted, const struct fact *machine, char *why, size_t why_bytes);

/* The value of an attribute, "" if there is none. */
const char *xml_attr(const char **atts, const char *name);

#endif
