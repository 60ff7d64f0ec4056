/* SPDX-License-Identifier: Apache-2.0 */
/* settings_api.c - the settings part of unisono_watch.h: what config.h knows, as public arrays that own their strings. */
#include "base_config.h"
#include "unisono_watch.h"

#include <stdlib.h>
#include <string.h>

static char *copy(const char *s, bool *failed)
{
    size_t bytes = strlen(s) + 1;
    char *c = mem_zalloc(bytes);
    if (c)
        memcpy(c, s, bytes);
    else
        *failed = true;
    return c;
}

/* An illegal value is shown with the sentence that refuses it, as the source "illegal". */
static bool fill_setting(uno_setting *out, const struct config_row *row, size_t i)
{
    bool failed = false;
    struct text value = {0};
    const char *source = "illegal";
    uno_err err = config_show(i, &value, &source);
    if (err != UNO_OK && err != UNO_ERR_MEMORY) {
        text_free(&value);
        text_add(&value, "%s", err_text());
    }
    failed = err == UNO_ERR_MEMORY || value.failed;
    out->name = copy(row->name, &failed);
    out->kind = copy(row->kind, &failed);
    out->value = copy(value.s ? value.s : "", &failed);
    out->source = copy(source, &failed);
    out->dflt = copy(row->dflt, &failed);
    out->legal = copy(row->legal, &failed);
    out->foreign = copy(row->nccl, &failed);
    out->help = copy(row->help, &failed);
    text_free(&value);
    return !failed;
}

uno_err uno_settings(uno_setting **settings, size_t *count)
{
    if (!settings || !count)
        return err_set(UNO_ERR_ARG, "uno_settings needs places for the array and its count");
    const struct config_row *rows;
    size_t n = config_rows(&rows);
    uno_setting *list = mem_array(n, sizeof *list);
    if (!list)
        return UNO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (!fill_setting(&list[i], &rows[i], i)) {
            uno_settings_free(list, n);
            return UNO_ERR_MEMORY;
        }
    *settings = list;
    *count = n;
    return UNO_OK;
}

void uno_settings_free(uno_setting *settings, size_t count)
{
    for (size_t i = 0; settings && i < count; i++) {
        const uno_setting *s = &settings[i];
        const char *all[] = {s->name, s->kind, s->value, s->source, s->dflt, s->legal, s->foreign, s->help};
        for (size_t j = 0; j < ARRAY_LEN(all); j++)
            free((void *)all[j]);
    }
    free(settings);
}

uno_err uno_settings_audit(uno_setting_finding **findings, size_t *count)
{
    static const char *const words[] = {
        [CONFIG_USED] = "used", [CONFIG_UNKNOWN] = "unknown", [CONFIG_ILLEGAL] = "illegal",
        [CONFIG_NO_EFFECT] = "no-effect", [CONFIG_OVERRIDDEN] = "overridden"};
    if (!findings || !count)
        return err_set(UNO_ERR_ARG, "uno_settings_audit needs places for the array and its count");
    struct config_finding *found;
    size_t n;
    TRY(config_audit(&found, &n));
    uno_setting_finding *list = mem_array(n, sizeof *list);
    bool failed = !list;
    for (size_t i = 0; list && i < n; i++) {
        list[i].name = copy(found[i].name, &failed);
        list[i].value = copy(found[i].value, &failed);
        list[i].what = copy(words[found[i].what], &failed);
        list[i].text = copy(found[i].text, &failed);
    }
    free(found);
    if (failed) {
        uno_settings_audit_free(list, list ? n : 0);
        return UNO_ERR_MEMORY;
    }
    *findings = list;
    *count = n;
    return UNO_OK;
}

void uno_settings_audit_free(uno_setting_finding *findings, size_t count)
{
    for (size_t i = 0; findings && i < count; i++) {
        free((void *)findings[i].name);
        free((void *)findings[i].value);
        free((void *)findings[i].what);
        free((void *)findings[i].text);
    }
    free(findings);
}
