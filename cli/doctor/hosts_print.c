/* SPDX-License-Identifier: Apache-2.0 */
/* hosts_print.c - what was gathered of several hosts, as two tables for people. */
#include <math.h>
#include <stdio.h>

#include "hosts.h"
#include "output.h"

static const char *text_at(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void print_host(json_t *h)
{
    json_t *at = json_array_get(json_object_get(h, "addresses"), 0), *clock = json_object_get(h, "clock_ms");
    if (*text_at(h, "lost")) {
        printf("  %-20s %snot asked:%s %s\n", text_at(h, "host"), out_colour(stdout, OUT_RED), out_colour(stdout, OUT_PLAIN), text_at(h, "lost"));
        return;
    }
    printf("  %-20s %s %s, MTU %lld", text_at(h, "host"), text_at(at, "interface"), text_at(at, "address"), (long long)json_integer_value(json_object_get(at, "mtu")));
    double ahead = fabs(json_real_value(clock)) < 0.05 ? 0 : json_real_value(clock); /* no "-0.0" */
    if (clock)
        printf(", clock %+.1f ms (within %.1f)", ahead, json_real_value(json_object_get(h, "clock_error_ms")));
    printf(", Unisono %s\n", text_at(json_object_get(h, "versions"), "Unisono"));
}

void hosts_print(const char *gathered)
{
    json_t *all = json_loads(gathered, 0, NULL), *v;
    size_t i;
    printf("Hosts\n");
    json_array_foreach(json_object_get(all, "hosts"), i, v)
        print_host(v);
    if (json_array_size(json_object_get(all, "pairs")))
        printf("\nConnections\n");
    json_array_foreach(json_object_get(all, "pairs"), i, v) {
        bool good = json_is_true(json_object_get(v, "connected")) && !*text_at(v, "error");
        printf("  %s -> %s  %s  ", text_at(v, "from"), text_at(v, "to"), text_at(v, "address"));
        if (good)
            printf("%.3f ms, %.3g GB/s\n", json_number_value(json_object_get(v, "ms")), json_number_value(json_object_get(v, "gbs")));
        else
            printf("%s%s%s\n", out_colour(stdout, OUT_RED), text_at(v, "error"), out_colour(stdout, OUT_PLAIN));
    }
    putchar('\n');
    json_decref(all);
}
