// One-sided access in all of its epochs: fences, posts and starts, locks; memory that MPI brought
// and memory of the program; puts, gets, accumulates and atomics, each checked.
#include "world.h"

enum { LARGEST = 1 << 15, TICKETS = 8 };

static int *shared, *out, *in;
static MPI_Win window;
static int next, last;

static void fence(void)
{
	MPI_Win_fence(0, window);
}

static void puts_and_gets(int size)
{
	fill(out, rank, size);
	fence();
	MPI_Put(out, size, MPI_INT, next, 0, size, MPI_INT, window);
	fence();
	check(right(shared, last, size), "put", size);
	MPI_Get(in, size, MPI_INT, next, 0, size, MPI_INT, window);
	fence();
	check(right(in, rank, size), "get", size);
}

static void accumulates(int size)
{
	int sum = 0;
	for (int i = 0; i < size; i++)
		shared[i] = i, out[i] = rank + 1;
	fence();
	for (int to = 0; to < ranks; to++) {
		MPI_Accumulate(out, size, MPI_INT, to, 0, size, MPI_INT, MPI_SUM, window);
		sum += to + 1;
	}
	fence();
	for (int i = 0; i < size; i++)
		check(shared[i] == i + sum, "accumulate", size);
	fence();
	MPI_Get_accumulate(out, size, MPI_INT, in, size, MPI_INT, next, 0, size, MPI_INT, MPI_SUM,
			   window);
	fence();
	for (int i = 0; i < size; i++) {
		check(in[i] == i + sum, "what was before an accumulate", size);
		check(shared[i] == i + sum + last + 1, "accumulate that asks", size);
	}
	fence();
}

/* Exposure to the last rank, access to the next. */
static void posts_and_starts(int size)
{
	MPI_Group world, before, after;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &last, &before);
	MPI_Group_incl(world, 1, &next, &after);
	fill(out, rank + 5, size);
	MPI_Win_post(before, 0, window);
	MPI_Win_start(after, 0, window);
	MPI_Put(out, size, MPI_INT, next, 0, size, MPI_INT, window);
	MPI_Win_complete(window);
	MPI_Win_wait(window);
	check(right(shared, last + 5, size), "put between post and wait", size);
	MPI_Group_free(&before);
	MPI_Group_free(&after);
	MPI_Group_free(&world);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* The one that is accessed takes no part. */
static void locks(int size)
{
	fill(out, rank + 9, size);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window);
	MPI_Put(out, size, MPI_INT, next, 0, size, MPI_INT, window);
	MPI_Win_flush(next, window);
	MPI_Get(in, size, MPI_INT, next, 0, size, MPI_INT, window);
	MPI_Win_unlock(next, window);
	check(right(in, rank + 9, size), "get under a lock", size);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
	check(right(shared, last + 9, size), "put under a lock", size);
	MPI_Win_unlock(rank, window);
	MPI_Request requests[2];
	MPI_Win_lock_all(0, window);
	MPI_Rput(out, size, MPI_INT, next, size, size, MPI_INT, window, &requests[0]);
	MPI_Rget(in, size, MPI_INT, next, 0, size, MPI_INT, window, &requests[1]);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	MPI_Win_unlock_all(window);
	check(right(in, rank + 9, size), "get with a request", size);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
	check(right(shared + size, last + 9, size), "put with a request", size);
	MPI_Win_unlock(rank, window);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void zero(void)
{
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
	shared[0] = shared[1] = 0;
	MPI_Win_unlock(rank, window);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* All draw numbers from rank 0; each number is drawn once. */
static void tickets(void)
{
	int one = 1, mine[TICKETS], all[TICKETS * ranks], seen[TICKETS * ranks];
	zero();
	MPI_Win_lock_all(0, window);
	for (int i = 0; i < TICKETS; i++) {
		MPI_Fetch_and_op(&one, &mine[i], MPI_INT, 0, 0, MPI_SUM, window);
		MPI_Win_flush(0, window);
		check(i == 0 || mine[i] > mine[i - 1], "order of tickets", i);
	}
	MPI_Win_unlock_all(window);
	MPI_Allgather(mine, TICKETS, MPI_INT, all, TICKETS, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < TICKETS * ranks; i++)
		seen[i] = 0;
	for (int i = 0; i < TICKETS * ranks; i++) {
		check(all[i] >= 0 && all[i] < TICKETS * ranks && !seen[all[i]], "ticket", all[i]);
		seen[all[i]] = 1;
	}
}

/* A number at rank 0 that each rank swaps on when it is its turn. */
static void turn_by_turn(void)
{
	int mine = rank, following = rank + 1, found = -1;
	zero();
	MPI_Win_lock_all(0, window);
	while (found != mine) {
		MPI_Compare_and_swap(&following, &mine, &found, MPI_INT, 0, 1, window);
		MPI_Win_flush(0, window);
		check(found <= rank, "number to swap", found);
	}
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
	MPI_Get(&found, 1, MPI_INT, 0, 1, 1, MPI_INT, window);
	MPI_Win_unlock(0, window);
	check(found == ranks, "last number", found);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void all(void)
{
	for (int turn = 0; turn < turns; turn++) {
		for (int size = 1; size <= LARGEST; size *= 32) {
			puts_and_gets(size);
			accumulates(size);
			posts_and_starts(size);
			locks(size);
		}
		tickets();
		turn_by_turn();
	}
	MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	MPI_Aint room = 2 * LARGEST * sizeof(int);
	out = numbers(2 * LARGEST), in = numbers(2 * LARGEST);
	next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	MPI_Win_allocate(room, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &window);
	all();
	shared = numbers(2 * LARGEST);
	MPI_Win_create(shared, room, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	all();
	return finish();
}
