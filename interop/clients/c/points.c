// Latency, bandwidth in one direction and in both, and how much of a transfer hides behind
// computation; every message is checked. Then the ways to send and receive that MPI has. Ranks
// work in pairs, half of all ranks apart.
#include "world.h"

enum { WINDOW = 16, LARGEST = 1 << 17, SMALLEST = 1, STEP = 32 };

static int *out[WINDOW], *in[WINDOW];
static int peer, first;

static void tell(const char *what, int size, double amount, const char *unit)
{
	if (rank == 0)
		printf("%s %zu octets: %.1f %s\n", what, size * sizeof(int), amount, unit);
}

static void latency(int size)
{
	double begun = MPI_Wtime();
	for (int i = 0; i < turns; i++) {
		if (first) {
			fill(out[0], i, size);
			MPI_Send(out[0], size, MPI_INT, peer, i, MPI_COMM_WORLD);
			in[0][size - 1] = -1;
		}
		MPI_Recv(in[0], size, MPI_INT, peer, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check(right(in[0], i, size), "echo", size);
		if (!first)
			MPI_Send(in[0], size, MPI_INT, peer, i, MPI_COMM_WORLD);
	}
	tell("latency", size, (MPI_Wtime() - begun) / turns / 2 * 1e6, "us");
}

/* A window of messages to whoever does not send, or to both. */
static void burst(int size, int of, int sends, int receives)
{
	MPI_Request requests[2 * WINDOW];
	int count = 0;
	for (int i = 0; i < WINDOW && receives; i++) {
		in[i][0] = in[i][size - 1] = -1;
		MPI_Irecv(in[i], size, MPI_INT, peer, 7, MPI_COMM_WORLD, &requests[count++]);
	}
	for (int i = 0; i < WINDOW && sends; i++) {
		fill(out[i], of + rank + i, size);
		MPI_Isend(out[i], size, MPI_INT, peer, 7, MPI_COMM_WORLD, &requests[count++]);
	}
	MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < WINDOW && receives; i++)
		check(right(in[i], of + peer + i, size), "message of a burst", size);
}

static void bandwidth(int size, int both)
{
	double begun = MPI_Wtime();
	for (int i = 0; i < turns; i++)
		burst(size, 100 * i, both || first, both || !first);
	/* The last message has arrived when its receiver says so. */
	int done = 0;
	MPI_Sendrecv(&done, 1, MPI_INT, peer, 8, &done, 1, MPI_INT, peer, 8, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	double octets = (1.0 + both) * turns * WINDOW * size * sizeof(int);
	tell(both ? "both directions" : "bandwidth", size, octets / (MPI_Wtime() - begun) / 1e6,
	     "MB/s");
}

static double exchange(int size, long work)
{
	MPI_Request requests[2];
	double begun = MPI_Wtime();
	in[0][0] = in[0][size - 1] = -1;
	MPI_Irecv(in[0], size, MPI_INT, peer, 9, MPI_COMM_WORLD, &requests[0]);
	MPI_Isend(out[0], size, MPI_INT, peer, 9, MPI_COMM_WORLD, &requests[1]);
	volatile double sum = 0;
	int done = 0;
	for (long i = 0; i < work; i++) {
		sum += 1.0 / (i + 1);
		if (i % 10000 == 0)
			MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
	}
	if (!done)
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	double seconds = MPI_Wtime() - begun;
	check(right(in[0], peer, size), "message behind computation", size);
	return seconds;
}

static void overlap(int size)
{
	double alone = 0, with = 0;
	fill(out[0], rank, size);
	for (int i = 0; i < turns; i++) {
		alone += exchange(size, 0);
		with += exchange(size, 1000000);
	}
	tell("transfer alone", size, alone / turns * 1e6, "us");
	tell("with computation", size, with / turns * 1e6, "us");
}

/* Synchronous, buffered, ready and persistent sends; probing; one column of a matrix. */
static void modes(int size)
{
	char *room = malloc(size * sizeof(int) + MPI_BSEND_OVERHEAD);
	MPI_Buffer_attach(room, size * sizeof(int) + MPI_BSEND_OVERHEAD);
	MPI_Status status;
	MPI_Request request, later;
	int count;
	fill(out[0], rank, size);
	MPI_Irecv(in[0], size, MPI_INT, peer, 1, MPI_COMM_WORLD, &request);
	MPI_Ssend_init(out[0], size, MPI_INT, peer, 1, MPI_COMM_WORLD, &later);
	MPI_Start(&later);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Wait(&later, MPI_STATUS_IGNORE);
	MPI_Request_free(&later);
	check(right(in[0], peer, size), "persistent send", size);
	MPI_Bsend(out[0], size, MPI_INT, peer, 2, MPI_COMM_WORLD);
	MPI_Probe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &status);
	MPI_Get_count(&status, MPI_INT, &count);
	check(count == size && status.MPI_SOURCE == peer, "probe", size);
	MPI_Recv(in[0], size, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &status);
	check(right(in[0], peer, size), "buffered send", size);
	MPI_Buffer_detach(&room, &count);
	free(room);
}

static void columns(int rows)
{
	MPI_Datatype column;
	MPI_Type_vector(rows, 1, 4, MPI_INT, &column);
	MPI_Type_commit(&column);
	fill(out[0], rank, 4 * rows);
	MPI_Sendrecv(out[0] + 1, 1, column, peer, 3, in[0], rows, MPI_INT, peer, 3, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	for (int i = 0; i < rows; i++)
		check(in[0][i] == value(peer, 4 * i + 1), "column", rows);
	MPI_Type_free(&column);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	peer = (rank + ranks / 2) % ranks, first = rank < ranks / 2;
	check(ranks % 2 == 0, "number of ranks", ranks);
	for (int i = 0; i < WINDOW; i++)
		out[i] = numbers(LARGEST), in[i] = numbers(LARGEST);
	for (int size = SMALLEST; size <= LARGEST; size *= STEP) {
		latency(size);
		bandwidth(size, 0);
		bandwidth(size, 1);
		overlap(size);
		modes(size);
		columns(size / 4 + 1);
	}
	return finish();
}
