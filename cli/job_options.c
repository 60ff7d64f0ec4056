/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_options.c - the command line of the commands that ask about a job: which job, help, and what each adds in a table of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "job.h"
#include "output.h"

int job_seconds(const char *command, const char *option, const char *word, double least, double most, double *seconds)
{
    char *end;
    *seconds = strtod(word, &end);
    if (*end || end == word || !(*seconds >= least) || *seconds > most)
        return out_error(command, "%s %s: it is a number of seconds from %.10g to %.10g", option, word, least, most);
    return CLI_GOOD;
}

int job_options(int argc, char **argv, const struct job_syntax *s, struct job_wanted *wanted, void *to)
{
    const char *command = wanted->command;
    int rc = CLI_GOOD;
    opterr = 0;
    optind = 0;
    for (int letter, at = 1; rc == CLI_GOOD && (letter = getopt_long(argc, argv, ":h", s->options, NULL)) != -1; at = optind)
        switch (letter) {
        case JOB_HELP: s->usage(); return CLI_BAD;
        case JOB_NAME: wanted->name = optarg; break;
        case ':': return out_error(command, "%s needs a value; `unisono %s --help`", argv[at], command);
        case '?': return out_error(command, "there is no option %s; `unisono %s --help` lists them", argv[at], command);
        default: rc = s->take(letter, optarg, to);
        }
    if (rc != CLI_GOOD)
        return rc;
    if (argc - optind > 1)
        return out_error(command, "\"%s\" is one too many: %s", argv[optind + 1], s->only_one);
    wanted->what = optind < argc ? argv[optind] : NULL;
    if ((wanted->what && !*wanted->what) || (wanted->name && !*wanted->name))
        return out_error(command, "an empty word names no job");
    return CLI_GOOD;
}
