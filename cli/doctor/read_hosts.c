/* SPDX-License-Identifier: Apache-2.0 */
/* read_hosts.c - what `unisono doctor --hosts` gathered, as it was gathered or from a kept --json answer. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "read_hosts.h"

static const char *text_at(struct model *m, json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? model_words(m, s) : "";
}

static double real_at(json_t *o, const char *key)
{
    double v = json_number_value(json_object_get(o, key));
    return isfinite(v) ? v : 0;
}

static json_t *gathered_in(json_t *root)
{
    json_t *inner = json_object_get(root, "hosts");
    return json_object_get(root, "unisono_hosts") ? root : json_object_get(inner, "unisono_hosts") ? inner : NULL;
}

bool hosts_looks(json_t *root)
{
    return gathered_in(root) != NULL;
}

static struct fact host_fact(const char *file, const char *host, enum fact_kind kind)
{
    struct fact f = fact_of(kind);
    f.file = file;
    f.host = host;
    return f;
}

static void take_words(struct model *m, const char *file, const char *host, json_t *words, enum fact_kind kind)
{
    const char *key;
    json_t *v;
    json_object_foreach(words, key, v) {
        struct fact f = host_fact(file, host, kind);
        f.name = model_words(m, key);
        f.value = json_is_string(v) ? model_words(m, json_string_value(v)) : "";
        f.extra = kind == F_SETTING ? "listed" : "";
        f.text = kind == F_SETTING ? model_say(m, "%s: %s=%s", host, f.name, f.value) : model_say(m, "%s: %s %s", host, f.name, f.value);
        model_add(m, &f);
    }
}

static void take_limits(struct model *m, const char *file, const char *host, json_t *limits)
{
    const char *key;
    json_t *v;
    json_object_foreach(limits, key, v) {
        struct fact f = host_fact(file, host, F_LIMIT);
        f.name = model_words(m, key);
        f.a = json_integer_value(v);
        f.text = f.a < 0 ? model_say(m, "%s: %s unlimited", host, f.name) : model_say(m, "%s: %s %lld", host, f.name, (long long)f.a);
        model_add(m, &f);
    }
}

static void take_addresses(struct model *m, const char *file, const char *host, json_t *list)
{
    json_t *v;
    size_t i;
    json_array_foreach(list, i, v) {
        struct fact f = host_fact(file, host, F_HOST_LINK);
        f.name = text_at(m, v, "interface");
        f.value = text_at(m, v, "address");
        f.a = json_integer_value(json_object_get(v, "mtu"));
        f.b = json_integer_value(json_object_get(v, "mbit"));
        f.c = (int64_t)i;
        f.text = model_say(m, "%s: %s %s, MTU %lld", host, f.name, f.value, (long long)f.a);
        model_add(m, &f);
    }
}

static void take_host(struct model *m, const char *file, json_t *h)
{
    const char *host = text_at(m, h, "host"), *lost = text_at(m, h, "lost");
    struct fact f = host_fact(file, host, *lost ? F_HOST_LOST : F_HOST_CLOCK);
    f.value = lost;
    f.x = real_at(h, "clock_ms");
    f.a = whole(real_at(h, "clock_error_ms") * 1000);
    f.b = whole(f.x * 1000);
    f.text = *lost ? model_say(m, "%s: %s", host, lost) : model_say(m, "%s: clock %+.3f ms, known within %.3f", host, f.x, real_at(h, "clock_error_ms"));
    if (!*host || !model_add(m, &f))
        return;
    take_words(m, file, host, json_object_get(h, "settings"), F_SETTING);
    take_words(m, file, host, json_object_get(h, "versions"), F_VERSION);
    take_limits(m, file, host, json_object_get(h, "limits"));
    take_addresses(m, file, host, json_object_get(h, "addresses"));
    json_t *cards = json_object_get(h, "cards"), *c;
    size_t i;
    json_array_foreach(cards, i, c) {
        struct fact k = host_fact(file, host, F_NIC);
        k.name = json_is_string(c) ? model_words(m, json_string_value(c)) : "";
        k.b = (int64_t)i;
        k.text = model_say(m, "%s: %s", host, k.name);
        model_add(m, &k);
    }
}

static void take_pair(struct model *m, const char *file, json_t *p)
{
    struct fact f = host_fact(file, text_at(m, p, "from"), F_HOST_PAIR);
    f.name = text_at(m, p, "to");
    f.value = text_at(m, p, "address");
    f.extra = text_at(m, p, "error");
    f.more = text_at(m, p, "interface");
    f.a = json_is_true(json_object_get(p, "connected"));
    f.b = json_is_integer(json_object_get(p, "stuck")) ? json_integer_value(json_object_get(p, "stuck")) : -1;
    f.c = whole(real_at(p, "ms") * 1000);
    f.d = json_integer_value(json_object_get(p, "retransmits"));
    f.x = real_at(p, "gbs");
    f.text = *f.extra ? model_say(m, "%s -> %s %s: %s%s", f.host, f.name, f.value, f.extra, f.a ? " (small messages came through)" : "")
                      : model_say(m, "%s -> %s %s: %.3f ms, %.3g GB/s, %lld retransmits", f.host, f.name, f.value, (double)f.c / 1000, f.x, (long long)f.d);
    model_add(m, &f);
}

void hosts_take(struct model *m, const char *file, json_t *root)
{
    json_t *all = gathered_in(root), *v;
    size_t i;
    json_array_foreach(json_object_get(all, "hosts"), i, v)
        take_host(m, file, v);
    json_array_foreach(json_object_get(all, "pairs"), i, v)
        take_pair(m, file, v);
}
