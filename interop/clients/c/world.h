/* What the MPI programs share: numbers that tell who wrote them and where, and what to say when
 * they are wrong. The first argument is how often to do everything. Order: begin, ..., finish. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks, turns = 10;

static inline int value(int of, int at)
{
	return of * 1000003 + at;
}

static inline void check(int ok, const char *what, int size)
{
	if (ok)
		return;
	printf("rank %d: wrong %s of %d\n", rank, what, size);
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static inline void fill(int *a, int of, int size)
{
	for (int i = 0; i < size; i++)
		a[i] = value(of, i);
}

static inline int right(const int *a, int of, int size)
{
	for (int i = 0; i < size; i++)
		if (a[i] != value(of, i))
			return 0;
	return 1;
}

static inline int *numbers(size_t count)
{
	int *a = malloc(count * sizeof(int));
	check(a != NULL, "memory", (int)count);
	return a;
}

static inline void begin(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc > 1)
		turns = atoi(argv[1]);
}

static inline int finish(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("all right\n");
	MPI_Finalize();
	return 0;
}
