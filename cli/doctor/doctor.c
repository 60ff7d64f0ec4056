/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.c - read, judge, print: the whole of it, in this order. */
#include "doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hosts.h"
#include "input.h"
#include "machine.h"
#include "page.h"
#include "print.h"
#include "report.h"
#include "settings.h"
#include "shell.h"
#include "variables.h"

extern char **environ;

struct doctor {
    struct model *model;
    struct judge judge;
    struct machine machine;
};

struct doctor *doctor_new(void)
{
    struct doctor *d = calloc(1, sizeof *d);
    if (d)
        d->model = model_new();
    return d;
}

void doctor_free(struct doctor *d)
{
    if (d)
        model_free(d->model), machine_free(&d->machine);
    free(d);
}

bool doctor_read(struct doctor *d, const char *path)
{
    return input_read(d->model, path);
}

void doctor_read_text(struct doctor *d, const char *name, const char *text, size_t bytes)
{
    input_read_text(d->model, name, text, bytes);
}

size_t doctor_look_here(struct doctor *d, const char *root, bool json)
{
    size_t bad = 0;
    machine_look(&d->machine, root);
    for (int i = 0; i < d->machine.count; i++)
        bad += d->machine.checks[i].state == CHECK_BAD;
    if (!json)
        print_checks(&d->machine);
    if (d->machine.text_bytes)
        input_read_text(d->model, *root ? root : "this machine", d->machine.text, d->machine.text_bytes);
    return bad;
}

bool doctor_ask_hosts(struct doctor *d, const struct hosts_options *opt, bool json, char *why, size_t why_bytes)
{
    d->machine.hosts = hosts_gather(opt, why, why_bytes);
    if (!d->machine.hosts)
        return false;
    if (!json)
        hosts_print(d->machine.hosts);
    input_read_text(d->model, "these hosts", d->machine.hosts, strlen(d->machine.hosts));
    return true;
}

static void read_and_free(struct doctor *d, const char *name, char *text)
{
    if (text)
        input_read_text(d->model, name, text, strlen(text));
    free(text);
}

void doctor_read_topology(struct doctor *d, const char *root)
{
    const char *who = "";
    read_and_free(d, *root ? root : "this machine", machine_xml(root));
    char *links = !*root && fact_seen(d->model, F_XML) ? machine_tools(&who) : NULL;
    read_and_free(d, who, links);
}

void doctor_report(struct doctor *d, bool verbose, bool json)
{
    const struct report *first = report_all(d->model);
    if (json)
        d->machine.topologies = report_json(first);
    else
        report_print(first, verbose);
}

void doctor_variables(struct doctor *d, bool all, bool json)
{
    d->machine.variables = json;
    if (!json)
        variables_print(d->model, all);
}

size_t doctor_variables_wrong(struct doctor *d, const char *name)
{
    return variables_wrong(d->model, name);
}

void doctor_variables_json(struct doctor *d)
{
    variables_json(d->model, stdout);
}

bool doctor_is_of_others(const char *name)
{
    return setting_of_others(name) != NULL;
}

void doctor_read_environment(struct doctor *d)
{
    struct model *m = d->model;
    for (char **e = environ; *e; e++) {
        size_t n = strcspn(*e, "=");
        if (!(*e)[n] || strncmp(*e, "UNISONO_", 8) == 0 || !shell_wanted(*e, n))
            continue;
        struct fact f = fact_of(F_SETTING); /* as it is: no shell has to read it any more */
        f.file = "the environment";
        f.text = model_words(m, *e);
        f.name = model_string(m, *e, n);
        f.value = model_words(m, *e + n + 1);
        f.extra = "listed";
        model_add(m, &f);
    }
}

int doctor_be_agent(void)
{
    return hosts_agent();
}

bool doctor_is_root(const char *root)
{
    return kernel_has(root, "/sys") || kernel_has(root, "/proc");
}

size_t doctor_judge(struct doctor *d)
{
    judge_all(&d->judge, d->model);
    return d->judge.count;
}

void doctor_print(const struct doctor *d, bool verbose)
{
    print_people(&d->judge, verbose);
}

void doctor_print_json(const struct doctor *d)
{
    print_json(&d->judge, &d->machine);
}

bool doctor_write_page(struct doctor *d, const char *path)
{
    bool out = strcmp(path, "-") == 0;
    FILE *f = out ? stdout : fopen(path, "w");
    bool good = f && page_write(f, &d->judge, &d->machine);
    if (f && !out && fclose(f) != 0)
        good = false;
    return good;
}

void doctor_print_rules(bool json)
{
    print_rules(json);
}
