/* SPDX-License-Identifier: Apache-2.0 */
/* faults_shrink.h - what cases of uno_comm_shrink share; faults_shrink.c has it, and faults_shrink_ends.c those in which somebody might wait for ever. */
#ifndef TEST_FAULTS_SHRINK_H
#define TEST_FAULTS_SHRINK_H

#include "faults.h"

#define SHRINK_S "2"                                             /* UNISONO_SHRINK_TIMEOUT of the cases in which somebody does not call */
uno_comm *shrink_join(int rank, const char *shrink_s);           /* shrink_s: its UNISONO_SHRINK_TIMEOUT, NULL = the default */
void shrink_rounds(uno_comm *c, int n);                          /* random collectives, each result checked */
uno_comm *shrink_made(uno_comm *old, int size, int rank);        /* shrink; this size and rank must come out */
void shrink_over(uno_comm *c);                                   /* destroy */
void shrink_last_killed(const int *statuses);                    /* a judge: the last rank was killed, the others ended well */

#endif
