// Messages around a ring, a reduction, and one-sided access, each checked, at many sizes.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST (1 << 18)

static int rank, ranks;

static int value(int of, int at)
{
	return of * 1000003 + at;
}

static void check(int ok, const char *what, int size)
{
	if (ok)
		return;
	printf("rank %d: wrong %s of %d\n", rank, what, size);
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(int *a, int of, int size)
{
	for (int i = 0; i < size; i++)
		a[i] = value(of, i);
}

static int right(const int *a, int of, int size)
{
	for (int i = 0; i < size; i++)
		if (a[i] != value(of, i))
			return 0;
	return 1;
}

static void ring(int *out, int *in, int size)
{
	int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	fill(out, rank, size);
	MPI_Sendrecv(out, size, MPI_INT, next, 1, in, size, MPI_INT, last, 1, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	check(right(in, last, size), "message", size);
}

static void reduce(int *out, int *in, int size)
{
	int sum = 0;
	for (int i = 0; i < ranks; i++)
		sum += i;
	for (int i = 0; i < size; i++)
		out[i] = rank * (i % 1000);
	MPI_Allreduce(out, in, size, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++)
		check(in[i] == sum * (i % 1000), "sum", size);
}

static void one_sided(MPI_Win window, int *shared, int *out, int *in, int size)
{
	int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	fill(out, rank, size);
	MPI_Win_fence(0, window);
	MPI_Put(out, size, MPI_INT, next, 0, size, MPI_INT, window);
	MPI_Win_fence(0, window);
	check(right(shared, last, size), "put", size);
	MPI_Get(in, size, MPI_INT, next, 0, size, MPI_INT, window);
	MPI_Win_fence(0, window);
	check(right(in, rank, size), "get", size);
}

int main(int argc, char **argv)
{
	MPI_Win window;
	int *shared, *out = malloc(LARGEST * sizeof(int)), *in = malloc(LARGEST * sizeof(int));
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Win_allocate(LARGEST * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &shared,
			 &window);
	for (int size = 1; size <= LARGEST; size *= 8) {
		ring(out, in, size);
		reduce(out, in, size);
		one_sided(window, shared, out, in, size);
	}
	MPI_Win_free(&window);
	if (rank == 0)
		printf("all right\n");
	MPI_Finalize();
	return 0;
}
