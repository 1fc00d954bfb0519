/* Immediate data comes with a Send and with a Write, from the first request on. */
#include "pair.h"

static void with_data(enum ibv_wr_opcode opcode, enum ibv_wc_opcode seen, uint32_t data)
{
	struct ibv_sge sge = place(0, 8);
	struct ibv_send_wr wr = request(opcode, 2, IBV_SEND_SIGNALED, &sge, 64), *bad;
	wr.imm_data = htobe32(data);
	receive(b, 1, 128, 8);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	struct ibv_wc wc = ends(b, 1, IBV_WC_SUCCESS);
	CHECK(wc.opcode == seen && wc.wc_flags & IBV_WC_WITH_IMM && wc.byte_len == 8);
	CHECK(be32toh(wc.imm_data) == data);
	ends(a, 2, IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	memset(memory, 5, 8);
	with_data(IBV_WR_SEND_WITH_IMM, IBV_WC_RECV, 0x01020304);
	CHECK(memory[128] == 5 && memory[135] == 5);
	with_data(IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RECV_RDMA_WITH_IMM, 0xfffffffe);
	CHECK(memory[64] == 5 && memory[71] == 5);
	with_data(IBV_WR_SEND_WITH_IMM, IBV_WC_RECV, 0);
	part();
	return finish();
}
