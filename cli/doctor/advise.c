/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advise.c - `unisono doctor --advise 'gpus=64 gpu=MI300X net=RoCE framework=deepspeed'`: what to set for such a job, why, and how to see that it took
 * effect. advice.def holds the sentences; this file finds those that hold.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "doctor.h"
#include "output.h"

static const struct advice {
    const char *when, *what, *why, *verify, *source;
} advices[] = {
#define ADVICE(when, what, why, verify, source) {when, what, why, verify, source},
#include "advice.def"
#undef ADVICE
};

/* Keys that people give, with the words that are legal; NULL = any. */
static const struct { const char *key, *words; } keys[] = {
    {"gpus", NULL}, {"hosts", NULL}, {"gpu", NULL}, {"net", "roce ib efa tcp none"}, {"framework", "none torch deepspeed megatron verl accelerate lightning trainer ray torchtitan horovod vllm sglang"}, {"model", NULL}};
enum { KEYS = sizeof keys / sizeof *keys };

struct job {
    char value[KEYS][32];
    long gpus, hosts;
    const char *vendor;
};

static int key_index(const char *key, size_t n)
{
    for (int i = 0; i < KEYS; i++)
        if (strlen(keys[i].key) == n && strncasecmp(key, keys[i].key, n) == 0)
            return i;
    return -1;
}

static bool is_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p; p += strspn(p, " ")) {
        size_t k = strcspn(p, " ");
        if (k == n && memcmp(p, word, n) == 0)
            return true;
        p += k;
    }
    return false;
}

static int take_pair(const char *p, size_t n, struct job *j)
{
    const char *eq = memchr(p, '=', n);
    int k = eq ? key_index(p, (size_t)(eq - p)) : -1;
    if (k < 0)
        return out_error("doctor", "--advise: \"%.*s\" is not understood; keys are gpus= hosts= gpu= net= framework= model=, as in 'gpus=64 gpu=MI300X net=RoCE framework=deepspeed'", (int)n, p);
    size_t bytes = n - (size_t)(eq + 1 - p);
    char *to = j->value[k];
    snprintf(to, sizeof j->value[k], "%.*s", (int)bytes, eq + 1);
    for (char *c = to; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    if (strcmp(to, "infiniband") == 0)
        snprintf(to, sizeof j->value[k], "ib");
    if (strcmp(to, "ethernet") == 0 || strcmp(to, "socket") == 0)
        snprintf(to, sizeof j->value[k], "tcp");
    static const struct { const char *other, *word; } same[] = {{"pytorch", "torch"}, {"ddp", "torch"}, {"fsdp", "torch"}, {"megatron-lm", "megatron"}, {"transformers", "trainer"}, {"trl", "trainer"}, {"huggingface", "trainer"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (strcmp(keys[k].key, "framework") == 0 && strcmp(to, same[i].other) == 0)
            snprintf(to, sizeof j->value[k], "%s", same[i].word);
    if (keys[k].words && !is_word(keys[k].words, to))
        return out_error("doctor", "--advise: %s=%s is not known; legal are: %s", keys[k].key, to, keys[k].words);
    return CLI_GOOD;
}

static int understand(const char *text, struct job *j)
{
    *j = (struct job){0};
    for (const char *p = text; *(p += strspn(p, " \t,")); p += strcspn(p, " \t,")) {
        int rc = take_pair(p, strcspn(p, " \t,"), j);
        if (rc != CLI_GOOD)
            return rc;
    }
    j->gpus = strtol(j->value[0], NULL, 10);
    j->hosts = *j->value[1] ? strtol(j->value[1], NULL, 10) : (j->gpus + 7) / 8;
    static const char *const amd[] = {"mi", "radeon", "gfx", "instinct", "amd", "rx", "w7"};
    j->vendor = *j->value[2] ? "nvidia" : "";
    for (size_t i = 0; i < sizeof amd / sizeof *amd; i++)
        if (strncmp(j->value[2], amd[i], strlen(amd[i])) == 0)
            j->vendor = "amd";
    if (!*j->value[4])
        snprintf(j->value[4], sizeof j->value[4], "none");
    return CLI_GOOD;
}

/* 70B, 8x7b: parameters of a model as people write them. */
static double billions(const char *model)
{
    char *end;
    double v = strtod(model, &end);
    if (*end == 'x')
        v *= strtod(end + 1, &end);
    return *end == 'b' ? v : *end == 't' ? v * 1000 : 0;
}

static const char *fact_of_job(const struct job *j, const char *key, size_t n)
{
    if (n == 6 && memcmp(key, "vendor", 6) == 0)
        return j->vendor;
    if (n == 5 && memcmp(key, "scale", 5) == 0)
        return j->gpus >= 256 ? "large" : "small";
    if (n == 7 && memcmp(key, "weights", 7) == 0)
        return billions(j->value[key_index("model", 5)]) >= 30 ? "many" : "few";
    if (n == 5 && memcmp(key, "hosts", 5) == 0)
        return j->hosts > 1 ? "many" : "one";
    int k = key_index(key, n);
    return k >= 0 ? j->value[k] : "";
}

static bool holds(const struct job *j, const char *when)
{
    for (const char *p = when; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " "), key = strcspn(p, "=");
        const char *word = p + key + 1;
        bool not = *word == '!';
        word += not;
        size_t bytes = (size_t)(p + n - word);
        const char *is = fact_of_job(j, p, key);
        if ((strlen(is) == bytes && memcmp(is, word, bytes) == 0) == not)
            return false;
        p += n;
    }
    return true;
}

int doctor_advise(const char *text, bool json)
{
    struct job j;
    int rc = understand(text, &j), n = 0;
    if (rc != CLI_GOOD)
        return rc;
    if (json)
        printf("{\"version\": 1, \"advice\": [");
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++) {
        const struct advice *a = &advices[i];
        if (!holds(&j, a->when))
            continue;
        n++;
        if (!json) {
            printf("%s%d. %s%s\n     why:    %s\n     verify: %s\n     source: %s\n", out_colour(stdout, OUT_BOLD), n, a->what, out_colour(stdout, OUT_PLAIN), a->why, a->verify, a->source);
            continue;
        }
        printf("%s\n  {\"what\": ", n > 1 ? "," : "");
        out_json_string(stdout, a->what);
        fputs(", \"why\": ", stdout);
        out_json_string(stdout, a->why);
        fputs(", \"verify\": ", stdout);
        out_json_string(stdout, a->verify);
        fputs(", \"source\": ", stdout);
        out_json_string(stdout, a->source);
        putchar('}');
    }
    if (json)
        printf("]}\n");
    return CLI_GOOD;
}
