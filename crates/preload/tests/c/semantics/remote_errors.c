/* How a request that is refused ends on either side, and what the side that refused it is told. */
#include "pair.h"

/* What is wrong: with the request, or with the receive. */
static const struct {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t wrong_key;
	uint64_t to;
	uint32_t receive_length;
	uint32_t wrong_receive_key;
	enum ibv_wc_status requester, receiver;
	enum ibv_event_type event;
} cases[] = {
	{ "write, no such key", IBV_WR_RDMA_WRITE, 0x100, 0, 8, 0, IBV_WC_REM_ACCESS_ERR,
	  IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR },
	{ "write, too far", IBV_WR_RDMA_WRITE, 0, ROOM - 7, 8, 0, IBV_WC_REM_ACCESS_ERR,
	  IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR },
	{ "read, no such key", IBV_WR_RDMA_READ, 0x100, 0, 8, 0, IBV_WC_REM_ACCESS_ERR,
	  IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR },
	{ "read, too far", IBV_WR_RDMA_READ, 0, ROOM - 7, 8, 0, IBV_WC_REM_ACCESS_ERR,
	  IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR },
	{ "atomic, no such key", IBV_WR_ATOMIC_FETCH_AND_ADD, 0x100, 0, 8, 0,
	  IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR },
	{ "atomic, not aligned", IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 4, 8, 0, IBV_WC_REM_INV_REQ_ERR,
	  IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_REQ_ERR },
	{ "send, too long", IBV_WR_SEND, 0, 0, 7, 0, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR,
	  IBV_EVENT_QP_REQ_ERR },
	{ "send, bad receive", IBV_WR_SEND, 0, 0, 8, 0x100, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR,
	  IBV_EVENT_QP_FATAL },
};

static void refused(int i)
{
	pair();
	struct ibv_sge sge = place(64, cases[i].receive_length);
	sge.lkey ^= cases[i].wrong_receive_key;
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	CHECK(ibv_post_recv(b.qp, &recv, &bad_recv) == 0);
	receive(b, 2, 64, 8);
	sge = place(0, 8);
	struct ibv_send_wr wr = request(cases[i].opcode, 3, IBV_SEND_SIGNALED, &sge, cases[i].to);
	struct ibv_send_wr *bad;
	if (cases[i].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.rkey ^= cases[i].wrong_key;
	else
		wr.wr.rdma.rkey ^= cases[i].wrong_key;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	post(a, IBV_WR_RDMA_WRITE, 4, 0, 0, 8, 64);

	ends(a, 3, cases[i].requester);
	ends(a, 4, IBV_WC_WR_FLUSH_ERR);
	ends(b, 1, cases[i].receiver);
	ends(b, 2, IBV_WC_WR_FLUSH_ERR);
	CHECK(state(a.qp) == IBV_QPS_ERR && state(b.qp) == IBV_QPS_ERR);
	struct ibv_async_event event;
	do {
		event = await(cases[i].event);
		ibv_ack_async_event(&event);
		/* The requester of an adapter has its completion. */
		CHECK(!adapter || event.element.qp == b.qp);
	} while (event.element.qp != b.qp);
	CHECK(!adapter || no_event());
	part();
}

/* A key of its own that is wrong fails the request that has it, before anything is sent. The peer
 * of an adapter hears nothing of it. */
static void own_key(void)
{
	pair();
	receive(b, 1, 64, 8);
	struct ibv_sge sge = place(0, 8);
	sge.lkey ^= 0x100;
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 3, 0, &sge, 128), *bad;
	memory[128] = 5, memory[0] = 0;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	ends(a, 3, IBV_WC_LOC_PROT_ERR);
	CHECK(state(a.qp) == IBV_QPS_ERR && memory[128] == 5);
	if (adapter) {
		post(b, IBV_WR_RDMA_WRITE, 4, IBV_SEND_SIGNALED, 64, 8, 0);
		ends(b, 4, IBV_WC_RETRY_EXC_ERR);
		ends(b, 1, IBV_WC_WR_FLUSH_ERR);
		CHECK(no_event());
	}
	part();
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fprintf(stderr, "%s\n", cases[i].name);
		refused(i);
	}
	own_key();
	return finish();
}
