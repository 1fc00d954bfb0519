/* As when a machine's memory migrates: chunks are registered when they are to be written, each time
 * with a new key, and deregistered afterwards, while another peer writes into all of it, which
 * stays registered as a whole. A key that has gone opens nothing, and the whole keeps its own. */
#include "pair.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
	CHUNKS = 32,
	CHUNK = 32 << 10,
	ROUNDS = 3000,
	/* Where the machine's memory begins; in each chunk the upper half belongs to the whole. */
	MACHINE = 1 << 20,
	HALF = CHUNK / 2,
};

static atomic_int over, written;

static char *chunk(int number)
{
	return memory + MACHINE + number * CHUNK;
}

/* Writes into upper halves by the key of the whole, and finds what it wrote. */
static void *write_on(void *unused)
{
	struct ibv_cq *cq = make_cq(64);
	struct side c = { make_qp(cq), cq }, d = { make_qp(cq), cq };
	join(c.qp, d.qp);
	for (int i = 0; !over; i++) {
		uint64_t to = MACHINE + i % CHUNKS * CHUNK + HALF;
		memset(memory, 'A' + i % 26, HALF);
		post(c, IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED, 0, HALF, to);
		ends(c, 1, IBV_WC_SUCCESS);
		CHECK(!memcmp(memory, memory + to, HALF));
		written++;
	}
	CHECK(ibv_destroy_qp(c.qp) == 0 && ibv_destroy_qp(d.qp) == 0 && ibv_destroy_cq(cq) == 0);
	return unused;
}

static void write_to(int number, uint32_t key, char content)
{
	memset(memory + HALF, content, HALF);
	struct ibv_sge sge = place(HALF, HALF);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 2, IBV_SEND_SIGNALED, &sge, 0), *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)chunk(number), wr.wr.rdma.rkey = key;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
}

/* The key was good once. */
static void write_too_late(int number, uint32_t key)
{
	char before = chunk(number)[0];
	write_to(number, key, before + 1);
	ends(a, 2, IBV_WC_REM_ACCESS_ERR);
	CHECK(chunk(number)[0] == before && chunk(number)[HALF - 1] == before);
	part();
	pair();
}

int main(int argc, char **argv)
{
	static uint32_t keys[CHUNKS];
	begin(argc, argv);
	pthread_t writer;
	CHECK(pthread_create(&writer, NULL, write_on, NULL) == 0);
	pair();
	struct ibv_mr *chunks[4] = { NULL };
	for (int i = 0; i < ROUNDS; i++) {
		/* Some are registered at a time, and the oldest goes. */
		struct ibv_mr **oldest = &chunks[i % 4];
		if (*oldest)
			CHECK(ibv_dereg_mr(*oldest) == 0);
		int number = i % CHUNKS;
		struct ibv_mr *region = *oldest = ibv_reg_mr(pd, chunk(number), CHUNK, EVERY);
		CHECK(region && region->rkey != keys[number] && region->rkey != mr->rkey);
		keys[number] = region->rkey;
		write_to(number, region->rkey, 'a' + i % 26);
		ends(a, 2, IBV_WC_SUCCESS);
		CHECK(chunk(number)[0] == 'a' + i % 26 && chunk(number)[HALF - 1] == 'a' + i % 26);
		if (i % 100 == 99)
			write_too_late((i + CHUNKS / 2) % CHUNKS, keys[(i + CHUNKS / 2) % CHUNKS]);
	}
	for (int i = 0; i < 4; i++)
		CHECK(ibv_dereg_mr(chunks[i]) == 0);
	part();
	over = 1;
	CHECK(pthread_join(writer, NULL) == 0 && written > 0);
	return finish();
}
