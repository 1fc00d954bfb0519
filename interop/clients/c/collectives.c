// Every collective operation, as it is and in its nonblocking form, at several sizes; each rank
// checks what it got.
#include "world.h"

#define WORLD MPI_COMM_WORLD
#define LARGEST (1 << 15)

/* Calls MPI_NOW with the arguments, or MPI_LATER and waits. */
#define BOTH(NOW, LATER, ...)                                                                      \
	do {                                                                                       \
		MPI_Request request;                                                               \
		if (waits)                                                                         \
			MPI_##LATER(__VA_ARGS__, WORLD, &request), MPI_Wait(&request, NULL_STATUS); \
		else                                                                               \
			MPI_##NOW(__VA_ARGS__, WORLD);                                             \
	} while (0)
#define NULL_STATUS MPI_STATUS_IGNORE

static int waits;
static int *out, *in, *counts, *places, *octets;
static MPI_Datatype *types;

static void clear(int size)
{
	for (int i = 0; i < size; i++)
		in[i] = -1;
}

/* What rank `from` has for rank `to` begins with this. */
static int parcel(int from, int to)
{
	return from * ranks + to;
}

static void from_one(int size, int root)
{
	if (rank == root)
		fill(in, root, size);
	else
		clear(size);
	BOTH(Bcast, Ibcast, in, size, MPI_INT, root);
	check(right(in, root, size), "broadcast", size);
	for (int to = 0; to < ranks; to++)
		fill(out + to * size, parcel(root, to), size);
	clear(size);
	BOTH(Scatter, Iscatter, out, size, MPI_INT, in, size, MPI_INT, root);
	check(right(in, parcel(root, rank), size), "scatter", size);
	clear(size);
	BOTH(Scatterv, Iscatterv, out, counts, places, MPI_INT, in, counts[rank], MPI_INT, root);
	check(right(in, parcel(root, rank), counts[rank]), "scatterv", size);
}

static void to_one(int size, int root)
{
	fill(out, rank, size);
	clear(ranks * size);
	BOTH(Gather, Igather, out, size, MPI_INT, in, size, MPI_INT, root);
	for (int of = 0; of < ranks && rank == root; of++)
		check(right(in + of * size, of, size), "gather", size);
	clear(ranks * size);
	BOTH(Gatherv, Igatherv, out, counts[rank], MPI_INT, in, counts, places, MPI_INT, root);
	for (int of = 0; of < ranks && rank == root; of++)
		check(right(in + places[of], of, counts[of]), "gatherv", size);
}

static void to_all(int size)
{
	fill(out, rank, size);
	clear(ranks * size);
	BOTH(Allgather, Iallgather, out, size, MPI_INT, in, size, MPI_INT);
	for (int of = 0; of < ranks; of++)
		check(right(in + of * size, of, size), "allgather", size);
	clear(ranks * size);
	BOTH(Allgatherv, Iallgatherv, out, counts[rank], MPI_INT, in, counts, places, MPI_INT);
	for (int of = 0; of < ranks; of++)
		check(right(in + places[of], of, counts[of]), "allgatherv", size);
}

static void everything_to_all(int size)
{
	for (int to = 0; to < ranks; to++)
		fill(out + to * size, parcel(rank, to), size);
	clear(ranks * size);
	BOTH(Alltoall, Ialltoall, out, size, MPI_INT, in, size, MPI_INT);
	for (int of = 0; of < ranks; of++)
		check(right(in + of * size, parcel(of, rank), size), "alltoall", size);
	/* Everybody gets as much from each as counts for the one who gets it. */
	int mine[ranks], octets_mine[ranks];
	for (int of = 0; of < ranks; of++)
		mine[of] = counts[rank], octets_mine[of] = of * size * (int)sizeof(int);
	clear(ranks * size);
	BOTH(Alltoallv, Ialltoallv, out, counts, places, MPI_INT, in, mine, places, MPI_INT);
	for (int of = 0; of < ranks; of++)
		check(right(in + places[of], parcel(of, rank), mine[of]), "alltoallv", size);
	clear(ranks * size);
	BOTH(Alltoallw, Ialltoallw, out, counts, octets, types, in, mine, octets_mine, types);
	for (int of = 0; of < ranks; of++)
		check(right(in + places[of], parcel(of, rank), mine[of]), "alltoallw", size);
}

/* The sum of what ranks below `end` put at that place. */
static int sum(int end, int at)
{
	int sum = 0;
	for (int of = 0; of < end; of++)
		sum += (of + 1) * (at % 1000);
	return sum;
}

static void sums(const char *what, int size, int end, int offset)
{
	for (int i = 0; i < size; i++)
		check(in[i] == sum(end, offset + i), what, size);
}

static void reductions(int size)
{
	for (int i = 0; i < ranks * size; i++)
		out[i] = (rank + 1) * (i % 1000);
	for (int root = 0; root < ranks; root++) {
		clear(size);
		BOTH(Reduce, Ireduce, out, in, size, MPI_INT, MPI_SUM, root);
		if (rank == root)
			sums("reduction", size, ranks, 0);
	}
	BOTH(Allreduce, Iallreduce, out, in, size, MPI_INT, MPI_SUM);
	sums("reduction for all", size, ranks, 0);
	BOTH(Scan, Iscan, out, in, size, MPI_INT, MPI_SUM);
	sums("scan", size, rank + 1, 0);
	BOTH(Exscan, Iexscan, out, in, size, MPI_INT, MPI_SUM);
	if (rank > 0)
		sums("exclusive scan", size, rank, 0);
	BOTH(Reduce_scatter_block, Ireduce_scatter_block, out, in, size, MPI_INT, MPI_SUM);
	sums("block of a reduction", size, ranks, rank * size);
	BOTH(Reduce_scatter, Ireduce_scatter, out, in, counts, MPI_INT, MPI_SUM);
	int offset = 0;
	for (int of = 0; of < rank; of++)
		offset += counts[of];
	sums("part of a reduction", counts[rank], ranks, offset);
}

/* The lesser and the greater neighbour on a ring. */
static void neighbours(int size)
{
	MPI_Comm circle;
	int around = 1, last = (rank + ranks - 1) % ranks, next = (rank + 1) % ranks;
	MPI_Cart_create(WORLD, 1, &ranks, &around, 0, &circle);
	fill(out, parcel(rank, 0), size);
	fill(out + size, parcel(rank, 1), size);
	clear(2 * size);
	MPI_Neighbor_alltoall(out, size, MPI_INT, in, size, MPI_INT, circle);
	check(right(in, parcel(last, 1), size), "lesser neighbour", size);
	check(right(in + size, parcel(next, 0), size), "greater neighbour", size);
	MPI_Neighbor_allgather(out, size, MPI_INT, in, size, MPI_INT, circle);
	check(right(in, parcel(last, 0), size), "gathered neighbour", size);
	MPI_Comm_free(&circle);
}

/* Nobody leaves a barrier before the last has come: what was sent before it can be probed. */
static void barriers(void)
{
	MPI_Request request;
	if (waits)
		MPI_Ibarrier(WORLD, &request), MPI_Wait(&request, NULL_STATUS);
	else
		MPI_Barrier(WORLD);
}

static void all(int size)
{
	for (int i = 0; i < ranks; i++) {
		counts[i] = size - i % 2 * (size / 2), places[i] = i * size;
		octets[i] = places[i] * (int)sizeof(int), types[i] = MPI_INT;
	}
	for (int root = 0; root < ranks; root++) {
		from_one(size, root);
		to_one(size, root);
	}
	to_all(size);
	everything_to_all(size);
	reductions(size);
	neighbours(size);
	barriers();
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	size_t most = (size_t)LARGEST * (ranks > 2 ? ranks : 2);
	out = numbers(most), in = numbers(most);
	counts = numbers(ranks), places = numbers(ranks), octets = numbers(ranks);
	types = malloc(ranks * sizeof(*types));
	for (int turn = 0; turn < turns; turn++)
		for (int size = 1; size <= LARGEST; size *= 32)
			for (waits = 0; waits < 2; waits++)
				all(size);
	return finish();
}
