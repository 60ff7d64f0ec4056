/* SPDX-License-Identifier: Apache-2.0 */
/* xml.h - what the readers of XML share: a walk with expat in which entities, which would be expanded and of which these files have none, end it. */
#ifndef UNO_DOCTOR_XML_H
#define UNO_DOCTOR_XML_H

#include <expat.h>
#include <stdbool.h>
#include <stddef.h>

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

/* The value of an attribute, "" if there is none. */
const char *xml_attr(const char **atts, const char *name);

#endif
