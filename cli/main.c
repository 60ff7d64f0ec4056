/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - the program `unisono`: one table of subcommands (commands.def) drives dispatch, help and shell completion.
 * Called under a name of nccl-tests (all_reduce_perf, ...) it is `unisono perf` of that collective.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"
#include "unisono.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
#define COMMAND(name, help) {#name, cmd_##name, help},
#include "commands.def"
#undef COMMAND
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const struct command *find_command(const char *word)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, word) == 0)
            return &commands[i];
    return NULL;
}

static void print_commands(FILE *file)
{
    fprintf(file, "Unisono %d.%d.%d - collective communication that does not hang in silence, and explains itself\n\n",
            UNO_VERSION_MAJOR, UNO_VERSION_MINOR, UNO_VERSION_PATCH);
    fprintf(file, "usage: unisono SUBCOMMAND [options]       each subcommand explains itself with --help\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(file, "  %s%-11s%s %s\n", out_colour(file, OUT_BOLD), commands[i].name, out_colour(file, OUT_PLAIN),
                commands[i].help);
    fprintf(file, "\nto begin:\n"
                  "  unisono perf all_reduce -b 8 -e 64M -f 8 --limit    how fast is this machine, and how fast could it be\n");
}

static int unknown_command(const char *word)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    const char *near = out_nearest(word, names, COMMANDS);
    if (near)
        return out_error("", "there is no subcommand \"%s\"; did you mean \"unisono %s\"?", word, near);
    return out_error("", "there is no subcommand \"%s\"; \"unisono\" alone lists them", word);
}

/* Ask the subcommand itself: every one knows --help. */
static int help_on(const char *word)
{
    const struct command *c = find_command(word);
    if (!c)
        return unknown_command(word);
    char *argv[] = {(char *)c->name, (char *)"--help", NULL};
    return c->run(2, argv);
}

int cmd_help(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "help") != 0 && argv[1][0] != '-')
        return help_on(argv[1]);
    print_commands(stdout);
    return CLI_GOOD;
}

int cmd_version(int argc, char **argv)
{
    printf("unisono %d.%d.%d\n", UNO_VERSION_MAJOR, UNO_VERSION_MINOR, UNO_VERSION_PATCH);
    return CLI_GOOD;
}

int cmd_completion(int argc, char **argv)
{
    static const char usage[] = "usage: unisono completion bash\n"
                                "  prints a script; use it with:  source <(unisono completion bash)\n";
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(usage, stdout);
        return CLI_GOOD;
    }
    if (strcmp(argv[1], "bash") != 0)
        return out_error("completion", "there is no script for \"%s\"; legal is bash", argv[1]);
    printf("_unisono() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} words\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        words='");
    for (int i = 0; i < COMMANDS; i++)
        printf("%s%s", i ? " " : "", commands[i].name);
    /* Long options are read from the subcommand's own help, so that they can never be out of date. */
    printf("'\n"
           "    else\n"
           "        words=$(\"${COMP_WORDS[0]}\" \"${COMP_WORDS[1]}\" --help 2>/dev/null | grep -oE -- '--[a-z][a-z_-]*' | sort -u)\n"
           "    fi\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "}\n"
           "complete -o default -F _unisono unisono\n");
    return CLI_GOOD;
}

/* "all_reduce_perf", also with a directory or nccl-tests' suffix "_mpi": the benchmark under its own name. */
static int is_perf_name(const char *path)
{
    const char *name = strrchr(path, '/');
    const char *tail = strstr(name ? name : path, "_perf");
    return tail && (tail[5] == 0 || strcmp(tail + 5, "_mpi") == 0);
}

/* A descriptor 0, 1 or 2 that whoever started us has closed would be given to the next pipe or socket, and what is said go there. */
static void open_standard_descriptors(void)
{
    int fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2)
        fd = dup(fd);
    if (fd > 2)
        close(fd);
}

static int run_command(int argc, char **argv)
{
    if (argc > 0 && is_perf_name(argv[0]))
        return cmd_perf(argc, argv);
    if (argc < 2) {
        print_commands(stdout);
        return CLI_GOOD;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return cmd_help(1, argv);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        return cmd_version(1, argv);
    const struct command *c = find_command(argv[1]);
    return c ? c->run(argc - 1, argv + 1) : unknown_command(argv[1]);
}

int main(int argc, char **argv)
{
    open_standard_descriptors();
    signal(SIGXFSZ, SIG_IGN); /* a file larger than `ulimit -f` is an error with a sentence */
    if (access("/sys/devices/system/cpu", F_OK) != 0) /* hwloc would print a line, here and in each rank */
        setenv("HWLOC_HIDE_ERRORS", "2", 0);
    int status = run_command(argc, argv);
    /* What a full disk has cut must not be taken for whole. A command that failed has said what it had to say. */
    if (status != CLI_ERROR && (fflush(stdout) != 0 || ferror(stdout)))
        return out_error(argc > 1 ? argv[1] : "help", "writing to standard output failed: %s", strerror(errno));
    return status;
}
