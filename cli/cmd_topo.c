/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_topo.c - `unisono topo`: the machine as people draw it, as JSON, or what looks wrong with it. */
#include <getopt.h>
#include <stdio.h>

#include "cli.h"
#include "output.h"
#include "unisono_plan.h"

static void usage(void)
{
    printf("usage: unisono topo [--input FILE|LINE] [--json | --check]\n\n"
           "Shows sockets, NUMA nodes, caches, cores, network cards with speed and GPUs: of this machine, of a file (hwloc XML as\n"
           "`lstopo --of xml` writes it, or our JSON) or of a line such as \"host:2 numa:2 core:8 nic:1@25G gpu:4\".\n\n"
           "      --input X  read this instead of the machine\n"
           "      --json     write JSON; --input reads it back\n"
           "      --check    say what looks wrong; exit status 1 if anything does\n");
}

static int show(const uno_topology *topology, int letter)
{
    char *text = NULL;
    int findings = 0;
    uno_err err = letter == 'j'   ? uno_topology_json(topology, &text)
                  : letter == 'c' ? uno_topology_check(topology, &text, &findings)
                                  : uno_topology_print(topology, &text);
    if (err != UNO_OK)
        return out_error("topo", "%s", uno_plan_last_error());
    fputs(text, stdout);
    if (letter == 'c' && findings == 0)
        puts("Nothing looks wrong.");
    uno_text_free(text);
    return findings ? CLI_BAD : CLI_GOOD;
}

int cmd_topo(int argc, char **argv)
{
    static const struct option options[] = {{"input", required_argument, NULL, 'i'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"check", no_argument, NULL, 'c'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const char *input = NULL;
    int form = 0;
    opterr = 0;
    optind = 0;
    for (int letter, at = 1; (letter = getopt_long(argc, argv, "+:i:h", options, NULL)) != -1; at = optind) {
        if (letter == 'h') {
            usage();
            return CLI_GOOD;
        }
        if (letter == '?')
            return out_error("topo", "there is no option %s; `unisono topo --help` lists them", argv[at]);
        if (letter == ':')
            return out_error("topo", "%s needs a file or a line such as \"numa:2 core:8\"", argv[at]);
        if (letter == 'i')
            input = optarg;
        else if (form && form != letter)
            return out_error("topo", "--json and --check exclude each other");
        else
            form = letter;
    }
    if (optind < argc)
        return out_error("topo", "\"%s\" is not understood; a file or line is given with --input", argv[optind]);
    if (input && !*input)
        return out_error("topo", "--input is empty; leave it out for this machine");
    uno_topology *topology;
    if (uno_topology_load(input, &topology) != UNO_OK)
        return out_error("topo", "%s", uno_plan_last_error());
    int rc = show(topology, form);
    uno_topology_free(topology);
    return rc;
}
