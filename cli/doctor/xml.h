/* SPDX-License-Identifier: Apache-2.0 */
/* xml.h - what the doctor's readers of XML share of expat. */
#ifndef UNO_DOCTOR_XML_H
#define UNO_DOCTOR_XML_H

#include <expat.h>

/* Newer versions of expat call it deprecated and have nothing else that older ones know. */
static inline unsigned long xml_line(XML_Parser parser)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return (unsigned long)XML_GetCurrentLineNumber(parser);
#pragma GCC diagnostic pop
}

#endif
