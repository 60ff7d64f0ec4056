/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks share the work of a sum and add their parts: unisono run -n 4 -- ./pi   (or mpirun, torchrun, srun, or plain ./pi) */
#include <stdio.h>
#include <unisono.h>

static int fail(const uno_comm *comm)
{
    fprintf(stderr, "pi: %s\n", uno_last_error(comm));
    return 1;
}

int main(void)
{
    uno_comm *comm;
    if (uno_comm_init_env(&comm, NULL) != UNO_OK)
        return fail(NULL);
    int rank = uno_comm_rank(comm), size = uno_comm_size(comm);

    const long terms = 100000000;
    double part = 0, pi;
    for (long i = rank; i < terms; i += size)
        part += (i % 2 ? -4.0 : 4.0) / (2.0 * (double)i + 1);
    if (uno_all_reduce(&part, &pi, 1, UNO_FLOAT64, UNO_SUM, comm, NULL) != UNO_OK)
        return fail(comm);
    if (rank == 0)
        printf("%d rank%s: pi is about %.7f\n", size, size == 1 ? "" : "s", pi);
    return uno_comm_destroy(comm) == UNO_OK ? 0 : 1;
}
