/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.h - the one header of cli/doctor/: whatever an engineer has of a job that failed -> what was the cause.
 *
 * Readers (readers.def) turn each format into facts (facts.def) of one model; rules (rules.def), one small function a kind of fault, turn
 * facts into findings; judge.c orders them; print.c and page.c say them. A reader judges nothing, a rule reads no file.
 */
#ifndef UNO_DOCTOR_H
#define UNO_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

struct doctor;

/* Make a doctor that has read nothing. NULL without memory. */
struct doctor *doctor_new(void);
void doctor_free(struct doctor *d);

/* Read a file, every file of a folder (and its folders), or "-", standard input. Returns false when nothing of it could be read; why is
 * among the notes. Blocks as long as reading takes. */
bool doctor_read(struct doctor *d, const char *path);

/* Read a text that was made here (of the machine, of the environment) as if it were a file called `name`. */
void doctor_read_text(struct doctor *d, const char *name, const char *text, size_t bytes);

/* Look at this machine, and at the environment of this process; prints one line a check (not with `json`, where doctor_print_json says them). Returns
 * how many checks are bad. What files could say, too, is kept for doctor_judge. root: "" = this machine, else a folder with a copy of another's
 * /sys and /proc, which lives as long as d; no probes then. */
size_t doctor_look_here(struct doctor *d, const char *root, bool json);

/* Ask several hosts what they see, and how they reach each other; prints two tables (not with `json`). False with a sentence in why when the list
 * names no host; a host that cannot be asked is a finding. Blocks for seconds. */
struct hosts_options {
    char *names;          /* "a,b,c" */
    const char *launcher; /* NULL = ssh */
    const char *program;  /* path of unisono there; NULL = as here */
};
bool doctor_ask_hosts(struct doctor *d, const struct hosts_options *opt, bool json, char *why, size_t why_bytes);

/* Read how GPUs and cards of this machine (or of a copy, see doctor_look_here) are connected, for doctor_report. */
void doctor_read_topology(struct doctor *d, const char *root);

/* Print which GPUs reach each other over what, of all topologies, tables and logs that were read; with `json` it is kept for doctor_print_json. */
void doctor_report(struct doctor *d, bool verbose, bool json);

/* Print the variables of libraries that were read, who reads each, and what its value becomes; `all`: with meaning and default. With `json`
 * nothing is printed, and doctor_print_json tells them. */
void doctor_variables(struct doctor *d, bool all, bool json);
/* How many of them do not do what they say; of that name, or all with NULL. */
size_t doctor_variables_wrong(struct doctor *d, const char *name);
void doctor_variables_json(struct doctor *d);

/* Is it a name of NCCL's or RCCL's family that images, builds or others' plugins use (NCCL_VERSION), so that its being read by no library is no fault? */
bool doctor_is_of_others(const char *name);

/* Read the environment of this process, but for our own variables. */
void doctor_read_environment(struct doctor *d);

/* The other side of doctor_ask_hosts, on each host. Returns an exit status of the tool. */
int doctor_be_agent(void);

/* Does a folder look as if it stood for / ? */
bool doctor_is_root(const char *root);

/* Judge what was read. Returns the number of findings. */
size_t doctor_judge(struct doctor *d);

/* Print the findings for people (one screen, all with `verbose`) or for programs. */
void doctor_print(const struct doctor *d, bool verbose);
void doctor_print_json(const struct doctor *d);

/* Write the findings, a picture of the ranks and of the machines that were read as one page of HTML that needs nothing but itself. `path`: a file, made
 * or replaced; "-" = standard output. False when it cannot be written; errno says why. */
bool doctor_write_page(struct doctor *d, const char *path);

/* Print what to set for a job that "gpus=64 gpu=MI300X net=RoCE framework=deepspeed" describes. Returns an exit status of the tool; a word that is not
 * understood is told on stderr. */
int doctor_advise(const char *job, bool json);

/* Print every rule: kind, what it looks for, source. */
void doctor_print_rules(bool json);

#endif
