/* Two ranks of MPI, for what MPI adds and for what computing takes from it.
 *
 *   mpi SECONDS stream OCTETS    messages from the second rank to the first: {"gbps": ...}
 *   mpi SECONDS comb PERCENT     the same in messages of 100 KB, while the first rank computes for
 *                                that share of each period and calls nothing: {"gbps": ...} */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 16, COMB_OCTETS = 100 * 1024 };

static const double PERIOD_S = 0.004;

static int rank;
static char *memory[WINDOW];
static MPI_Request requests[WINDOW];

static void begin(int slot, int bytes) {
    if (rank == 1)
        MPI_Isend(memory[slot], bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[slot]);
    else
        MPI_Irecv(memory[slot], bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[slot]);
}

static void compute(double seconds) {
    double until = MPI_Wtime() + seconds;
    while (MPI_Wtime() < until)
        ;
}

/* Whether the sender goes on; a message has its answer in its first octet, so both count alike. */
static double stream(int bytes, double work, double seconds) {
    double began = MPI_Wtime(), period = began, total = 0;
    for (int slot = 0; slot < WINDOW; slot++) {
        memory[slot][0] = 0;
        begin(slot, bytes);
    }
    for (int slot = 0, last = 0; !last; slot = (slot + 1) % WINDOW) {
        if (rank == 0 && work > 0 && MPI_Wtime() - period > PERIOD_S * (1 - work)) {
            compute(PERIOD_S * work);
            period = MPI_Wtime();
        }
        MPI_Wait(&requests[slot], MPI_STATUS_IGNORE);
        total += bytes;
        last = memory[slot][0];
        /* Both sides have as many outstanding when the last one is seen. */
        if (rank == 1)
            memory[slot][0] = !last && MPI_Wtime() - began > seconds;
        begin(slot, bytes);
    }
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    return total * 8 / (MPI_Wtime() - began) / 1e9;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4) {
        fprintf(stderr, "usage: mpi SECONDS stream|comb NUMBER\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int comb = strcmp(argv[2], "comb") == 0, number = atoi(argv[3]);
    int bytes = comb ? COMB_OCTETS : number;
    for (int slot = 0; slot < WINDOW; slot++)
        memory[slot] = calloc(1, bytes);
    double work = comb ? number / 100.0 : 0, seconds = atof(argv[1]);
    stream(bytes, work, seconds / 10);
    double gbps = stream(bytes, work, seconds);
    if (rank == 0)
        printf("{\"gbps\": %.6f}\n", gbps);
    MPI_Finalize();
    return 0;
}
