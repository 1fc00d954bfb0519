/* A request that the peer refuses leaves the Reads and Atomics before it as they are: they are
 * answered first, however long that takes. */
#include "pair.h"

enum { ROUNDS = 20, LONG = 1 << 19, SINK = 1 << 20, REQUESTS = 5, BEHIND = 8 };

static const enum ibv_wc_status flushed = IBV_WC_WR_FLUSH_ERR;

/* Posts what is answered, what is refused, and what comes after it, in one list. */
static void post_list(struct side side, enum ibv_wr_opcode refused, uint64_t sink)
{
	struct ibv_sge sges[REQUESTS] = {
		place(sink, 8), place(sink + 8, LONG), place(sink + 8 + LONG, 8), place(0, 64),
		place(0, 8),
	};
	const enum ibv_wr_opcode opcodes[REQUESTS] = {
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, refused,
		IBV_WR_RDMA_READ,
	};
	struct ibv_send_wr list[REQUESTS], *bad;
	for (int i = 0; i < REQUESTS; i++) {
		list[i] = request(opcodes[i], i, IBV_SEND_SIGNALED, &sges[i], 0);
		list[i].next = i + 1 < REQUESTS ? &list[i + 1] : NULL;
		if (opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD)
			list[i].wr.atomic.compare_add = 1;
	}
	if (refused != IBV_WR_SEND)
		list[3].wr.rdma.rkey ^= 0x5500;
	CHECK(ibv_post_send(side.qp, list, &bad) == 0);
}

static void are_answered(struct side side, enum ibv_wc_status refusal)
{
	uint64_t old[2];
	for (int i = 0; i < 3; i++)
		ends(side, i, IBV_WC_SUCCESS);
	ends(side, 3, refusal);
	ends(side, 4, flushed);
	memcpy(old, memory + SINK, 8);
	memcpy(old + 1, memory + SINK + 8 + LONG, 8);
	CHECK(old[1] == old[0] + 1 && !memcmp(memory + SINK + 16, memory + 8, LONG - 8));
}

static void before(enum ibv_wr_opcode refused, enum ibv_wc_status refusal)
{
	pair();
	if (refused == IBV_WR_SEND)
		receive(b, 9, 3 << 20, 8);
	memset(memory + SINK, 0, LONG);
	post_list(a, refused, SINK);
	are_answered(a, refusal);
	if (refused == IBV_WR_SEND)
		ends(b, 9, IBV_WC_LOC_LEN_ERR);
	CHECK(state(b.qp) == IBV_QPS_ERR);
	part();
}

/* The answers come although a message before them waits for a receive, which nobody posts. */
static void behind_a_message(void)
{
	pair();
	post(b, IBV_WR_SEND, 9, 0, 0, 8, 0);
	memset(memory + SINK, 0, LONG);
	post_list(a, IBV_WR_RDMA_WRITE, SINK);
	are_answered(a, IBV_WC_REM_ACCESS_ERR);
	part();
}

/* Each end refuses a request of the other, whichever comes first, and whatever is behind it: more
 * than a lane and the buffers of Shuttle hold. */
static void both(int behind)
{
	pair();
	post_list(a, IBV_WR_RDMA_WRITE, SINK);
	post_list(b, IBV_WR_RDMA_WRITE, 2 << 20);
	for (int i = 0; i < behind; i++) {
		post(a, IBV_WR_RDMA_WRITE, REQUESTS + i, 0, 0, ROOM, 0);
		post(b, IBV_WR_RDMA_WRITE, REQUESTS + i, 0, 0, ROOM, 0);
	}
	for (int i = 0; i < REQUESTS + behind; i++) {
		CHECK(next(a.cq).wr_id == i);
		CHECK(next(b.cq).wr_id == i);
	}
	CHECK(state(a.qp) == IBV_QPS_ERR && state(b.qp) == IBV_QPS_ERR);
	part();
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	for (int i = 8; i < LONG; i++)
		memory[i] = rand();
	for (int round = 0; round < ROUNDS; round++) {
		before(IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
		before(IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR);
		before(IBV_WR_SEND, IBV_WC_REM_INV_REQ_ERR);
		if (adapter)
			behind_a_message();
		both(round % 4 ? 0 : BEHIND);
	}
	return finish();
}
