// Messages around a ring, a reduction, and one-sided access, each checked, at many sizes.
#include "world.h"

#define LARGEST (1 << 18)

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
	begin(argc, argv);
	MPI_Win window;
	int *shared, *out = numbers(LARGEST), *in = numbers(LARGEST);
	MPI_Win_allocate(LARGEST * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &shared,
			 &window);
	for (int size = 1; size <= LARGEST; size *= 8) {
		ring(out, in, size);
		reduce(out, in, size);
		one_sided(window, shared, out, in, size);
	}
	MPI_Win_free(&window);
	return finish();
}
