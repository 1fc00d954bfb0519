/* Messages of hundreds of kilobytes are what was posted, in their order, from several entries to
 * several, also behind a receive that comes late; of one that failed at its sender, which may use
 * the memory again, the peer is told no success. */
#include "pair.h"

enum { LONGEST = 700 << 10, MESSAGES = 200, HALF = ROOM / 2 };

static uint32_t seed = 1;

static uint32_t below(uint32_t limit)
{
	seed = seed * 1664525 + 1013904223;
	return (uint64_t)seed * limit >> 32;
}

/* Bytes that are found nowhere else nearby. */
static void fill(uint64_t at, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		memory[at + i] = (seed + i * 2654435761u) >> 24;
}

/* Cuts `length` bytes from `at` into `count` entries. */
static void cut(struct ibv_sge *list, int count, uint64_t at, uint32_t length)
{
	for (int i = 0; i < count; i++) {
		uint32_t now = i + 1 < count ? below(length / 2) : length;
		list[i] = place(at, now);
		at += now, length -= now;
	}
}

static void send_one(uint32_t length, int late)
{
	struct ibv_sge from[3], to[3];
	uint64_t at = below(1000), target = HALF + below(1000);
	fill(at, length);
	memset(memory + target, 0, length);
	cut(from, 3, at, length);
	cut(to, 2, target, length);
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = to, .num_sge = 2 }, *bad_receive;
	struct ibv_send_wr wr = request(IBV_WR_SEND, 2, IBV_SEND_SIGNALED, from, 0), *bad;
	wr.num_sge = 3;
	CHECK(late || ibv_post_recv(b.qp, &receive, &bad_receive) == 0);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(!late || ibv_post_recv(b.qp, &receive, &bad_receive) == 0);
	CHECK(ends(b, 1, IBV_WC_SUCCESS).byte_len == length);
	CHECK(!memcmp(memory + at, memory + target, length));
	ends(a, 2, IBV_WC_SUCCESS);
}

/* The last byte of a Write is there after all others. */
static void write_one(uint32_t length)
{
	uint64_t at = below(1000), target = HALF + below(1000);
	fill(at, length);
	memset(memory + target, 0, length);
	memory[at + length - 1] = 1;
	post(a, IBV_WR_RDMA_WRITE, 3, IBV_SEND_SIGNALED, at, length, target);
	volatile char *last = memory + target + length - 1;
	while (!*last)
		;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	CHECK(!memcmp(memory + at, memory + target, length));
	ends(a, 3, IBV_WC_SUCCESS);
}

static void whole(void)
{
	pair();
	for (int i = 0; i < MESSAGES; i++) {
		uint32_t length = 1 + below(i % 3 ? LONGEST : 40000);
		if (i % 2)
			send_one(length, i % 4 == 1);
		else
			write_one(length);
	}
	part();
}

/* A message that finds no receive before its sender gives it up. */
static void given_up(void)
{
	pair();
	for (int i = 0; i < 4; i++)
		send_one(LONGEST, 0);
	fill(0, LONGEST);
	post(a, IBV_WR_SEND, 4, IBV_SEND_SIGNALED, 0, LONGEST, 0);
	CHECK(modify(a.qp, IBV_QPS_ERR) == 0);
	struct ibv_wc sent = next(a.cq);
	CHECK(sent.wr_id == 4);
	memset(memory, 0x77, LONGEST);
	struct ibv_sge sge = place(HALF, LONGEST);
	struct ibv_recv_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(b.qp, &wr, &bad) == 0);
	/* One that the peer does not hear of has no end here either. */
	CHECK(modify(b.qp, IBV_QPS_ERR) == 0);
	struct ibv_wc received = next(b.cq);
	CHECK(received.wr_id == 5);
	if (received.status == IBV_WC_SUCCESS)
		for (int i = 0; i < LONGEST; i++)
			CHECK(memory[HALF + i] == (char)((seed + i * 2654435761u) >> 24));
	part();
}

int main(int argc, char **argv)
{
	wanted.cap.max_send_sge = 3;
	begin(argc, argv);
	whole();
	for (int i = 0; i < 50; i++)
		given_up();
	return finish();
}
