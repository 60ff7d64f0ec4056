/* SPDX-License-Identifier: Apache-2.0 */
/* variables.c - see variables.h. What is known of a variable stands in settings.c. */
#include "variables.h"

#include <string.h>

#include "output.h"
#include "settings.h"

static bool is_told(const struct model *m, const struct fact *s)
{
    if (!*setting_readers(s->name))
        return false;
    EACH_FACT(m, F_SETTING, before) { /* the same variable with the same value, elsewhere */
        if (before == s)
            return true;
        if (same_text(before->name, s->name) && same_text(before->value, s->value) && before->a == s->a)
            return false;
    }
    return true;
}

size_t variables_wrong(struct model *m, const char *name)
{
    size_t wrong = 0;
    EACH_FACT(m, F_SETTING, s)
        if ((!name || same_text(name, s->name)) && is_told(m, s))
            wrong += setting_opinion(m, s->name, s->value, s->a != 0).grade == GRADE_WRONG;
    return wrong;
}

void variables_print(struct model *m, bool all)
{
    static const enum out_colour colours[] = {[GRADE_FINE] = OUT_BOLD, [GRADE_NOTE] = OUT_YELLOW, [GRADE_WRONG] = OUT_RED};
    size_t told = 0;
    EACH_FACT(m, F_SETTING, s) {
        if (!is_told(m, s))
            continue;
        struct opinion o = setting_opinion(m, s->name, s->value, s->a != 0);
        if (told++ == 0)
            printf("Variables of the libraries\n");
        printf("  %s%s=%s%s  %s(read by %s)%s\n", out_colour(stdout, colours[o.grade]), s->name, s->value, out_colour(stdout, OUT_PLAIN), out_colour(stdout, OUT_DIM), setting_readers(s->name), out_colour(stdout, OUT_PLAIN));
        if (*o.text)
            printf("      %s\n", o.text);
        if (all && *setting_meaning(s->name))
            printf("      %s%s%s\n", setting_meaning(s->name), *setting_default(s->name) ? " Default: " : "", setting_default(s->name));
    }
    if (told)
        putchar('\n');
}

static void field(FILE *to, const char *key, const char *value, const char *after)
{
    fprintf(to, "\"%s\": ", key);
    out_json_string(to, value);
    fputs(after, to);
}

void variables_json(struct model *m, FILE *to)
{
    static const char *const states[] = {[GRADE_FINE] = "good", [GRADE_NOTE] = "note", [GRADE_WRONG] = "bad"};
    size_t told = 0;
    fputc('[', to);
    EACH_FACT(m, F_SETTING, s) {
        if (!is_told(m, s))
            continue;
        struct opinion o = setting_opinion(m, s->name, s->value, s->a != 0);
        fputs(told++ ? ",\n  {" : "\n  {", to);
        field(to, "name", s->name, ", ");
        field(to, "value", s->value, ", ");
        field(to, "read_by", setting_readers(s->name), ", ");
        field(to, "default", setting_default(s->name), ", ");
        field(to, "meaning", setting_meaning(s->name), ", ");
        field(to, "state", states[o.grade], ", ");
        field(to, "text", o.text, ", ");
        field(to, "remedy", o.remedy, "}");
    }
    fputc(']', to);
}
