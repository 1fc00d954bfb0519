/* What fails completes although nobody asked for it, and says which request of which queue pair it
 * was, and of what kind: what came before it is complete, what comes after it is flushed. */
#include "pair.h"

enum { BEFORE = 10 };

static void refused(enum ibv_wr_opcode opcode, enum ibv_wc_opcode completion)
{
	const uint64_t id = 0x1122334455667788;
	pair();
	for (int i = 0; i < BEFORE; i++)
		post(a, IBV_WR_RDMA_WRITE, i, i % 2 ? IBV_SEND_SIGNALED : 0, 0, 8, 64 * i);
	struct ibv_sge sge = place(0, 8);
	struct ibv_send_wr wr = request(opcode, id, 0, &sge, 0), *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.rkey ^= 0x5500;
	else
		wr.wr.rdma.rkey ^= 0x5500;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	post(a, IBV_WR_RDMA_READ, 3, 0, 128, 8, 64);
	post(a, IBV_WR_RDMA_WRITE, 4, 0, 0, 8, 0);
	post(a, IBV_WR_SEND, 5, 0, 0, 8, 0);

	for (int i = 1; i < BEFORE; i += 2)
		ends(a, i, IBV_WC_SUCCESS);
	CHECK(ends(a, id, IBV_WC_REM_ACCESS_ERR).opcode == completion);
	CHECK(ends(a, 3, IBV_WC_WR_FLUSH_ERR).opcode == IBV_WC_RDMA_READ);
	CHECK(ends(a, 4, IBV_WC_WR_FLUSH_ERR).opcode == IBV_WC_RDMA_WRITE);
	CHECK(ends(a, 5, IBV_WC_WR_FLUSH_ERR).opcode == IBV_WC_SEND);
	struct ibv_wc wc;
	CHECK(state(a.qp) == IBV_QPS_ERR && ibv_poll_cq(a.cq, 1, &wc) == 0);
	part();
}

/* What fails at this side leaves what was posted before as it is, however long that takes. */
static void impossible(uint32_t length)
{
	pair();
	for (int i = 0; i < BEFORE; i++) {
		receive(b, i, 0, length);
		post(a, IBV_WR_SEND, i, IBV_SEND_SIGNALED, length, length, 0);
	}
	struct ibv_sge sge = place(0, 8);
	sge.lkey ^= 0x5500;
	struct ibv_send_wr wr = request(IBV_WR_SEND, BEFORE, 0, &sge, 0), *bad;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	post(a, IBV_WR_SEND, BEFORE + 1, 0, 0, 8, 0);
	for (int i = 0; i < BEFORE; i++) {
		ends(a, i, IBV_WC_SUCCESS);
		ends(b, i, IBV_WC_SUCCESS);
	}
	ends(a, BEFORE, IBV_WC_LOC_PROT_ERR);
	ends(a, BEFORE + 1, IBV_WC_WR_FLUSH_ERR);
	part();
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	for (int round = 0; round < 10; round++) {
		refused(IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE);
		refused(IBV_WR_RDMA_READ, IBV_WC_RDMA_READ);
		refused(IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD);
		impossible(64);
		impossible(1 << 20);
	}
	return finish();
}
