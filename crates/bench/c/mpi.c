/* Two ranks of MPI, for what MPI adds and for what computing takes from it.
 *
 *   mpi SECONDS stream OCTETS    messages from the second rank to the first: {"gbps": ...}
 *   mpi SECONDS pingpong OCTETS  messages to and fro, by halves of a round trip: {"us": their mean,
 *                                "p50": their median}
 *   mpi SECONDS comb PERCENT     the same in messages of 100 KB, while the first rank computes for
 *                                that share of each period and calls nothing: {"gbps": ...} */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trips.h"

enum { WINDOW = 16, COMB_OCTETS = 100 * 1024, WARM_UP = 100 };

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

static void trade(char *message, int bytes) {
    if (rank == 0)
        MPI_Send(message, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
    MPI_Recv(message, bytes, MPI_BYTE, !rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(message, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
}

/* The first rank says in the first byte which message is the last one. */
static void pingpong(char *message, int bytes, double seconds) {
    struct trips trips = {0};
    for (int i = 0; i < WARM_UP; i++)
        trade(message, bytes);
    double began = MPI_Wtime(), before = began;
    for (int last = 0; !last;) {
        if (rank == 0)
            message[0] = before - began > seconds;
        trade(message, bytes);
        last = message[0];
        double now = MPI_Wtime();
        add_trip(&trips, (now - before) * 1e6);
        before = now;
    }
    if (rank == 0)
        print_trips(&trips);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4) {
        fprintf(stderr, "usage: mpi SECONDS stream|pingpong|comb NUMBER\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int comb = strcmp(argv[2], "comb") == 0, number = atoi(argv[3]);
    int bytes = comb ? COMB_OCTETS : number;
    for (int slot = 0; slot < WINDOW; slot++)
        memory[slot] = calloc(1, bytes);
    if (strcmp(argv[2], "pingpong") == 0) {
        pingpong(memory[0], bytes, atof(argv[1]));
        MPI_Finalize();
        return 0;
    }
    double work = comb ? number / 100.0 : 0, seconds = atof(argv[1]);
    stream(bytes, work, seconds / 10);
    double gbps = stream(bytes, work, seconds);
    if (rank == 0)
        printf("{\"gbps\": %.6f}\n", gbps);
    MPI_Finalize();
    return 0;
}
