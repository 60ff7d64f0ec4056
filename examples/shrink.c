/* SPDX-License-Identifier: Apache-2.0 */
/* A training loop that survives: unisono run -n 4 --keep-going -- ./shrink 20   then kill -9 one of the ranks. The argument is how
 * many seconds to go on. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unisono.h>

enum { WEIGHTS = 100000 };
static float weight[WEIGHTS], gradient[WEIGHTS], sum[WEIGHTS];

/* The ranks that are left make a new communicator and agree how far they came: one may have ended a step that another one lost. */
static uno_err go_on(uno_comm **comm, long *step)
{
    uno_comm *rest;
    uno_err err = uno_comm_shrink(*comm, NULL, 0, &rest, NULL);
    if (err != UNO_OK)
        return err;
    uno_comm_destroy(*comm);
    *comm = rest;
    int64_t mine = *step, first = 0;
    err = uno_all_reduce(&mine, &first, 1, UNO_INT64, UNO_MIN, rest, NULL);
    if (err != UNO_OK)
        return err;
    *step = (long)first; /* a real program takes the weights of that step here, from a copy or from a rank that has them */
    printf("rank %d of %d goes on at step %ld\n", uno_comm_rank(rest), uno_comm_size(rest), *step);
    return UNO_OK;
}

static uno_err train(uno_comm *comm)
{
    for (int i = 0; i < WEIGHTS; i++)
        gradient[i] = 1.0f / (float)uno_comm_size(comm);
    uno_err err = uno_all_reduce(gradient, sum, WEIGHTS, UNO_FLOAT32, UNO_SUM, comm, NULL);
    for (int i = 0; err == UNO_OK && i < WEIGHTS; i++)
        weight[i] -= 0.01f * sum[i];
    return err;
}

int main(int argc, char **argv)
{
    uno_comm *comm;
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (uno_comm_init_env(&comm, NULL) != UNO_OK) {
        fprintf(stderr, "%s\n", uno_last_error(NULL));
        return 1;
    }
    int stop = 0, any = 0;
    time_t start = time(NULL);
    uno_err err = UNO_OK;
    for (long step = 0; err == UNO_OK && !any;) {
        stop = difftime(time(NULL), start) >= seconds;
        err = train(comm);
        if (err == UNO_OK)
            err = uno_all_reduce(&stop, &any, 1, UNO_INT32, UNO_MAX, comm, NULL); /* all end at the same step */
        if (err == UNO_OK) {
            step++;
        } else {
            fprintf(stderr, "step %ld: %s\n", step, uno_last_error(comm));
            while ((err = go_on(&comm, &step)) == UNO_ERR_PEER_DEAD)
                ; /* another one died meanwhile */
        }
    }
    if (err != UNO_OK)
        fprintf(stderr, "cannot go on: %s %s\n", uno_err_name(err), uno_last_error(comm));
    else
        printf("rank %d of %d has ended well\n", uno_comm_rank(comm), uno_comm_size(comm));
    uno_comm_destroy(comm);
    return err != UNO_OK;
}
