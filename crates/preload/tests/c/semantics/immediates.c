/* Immediate data comes with a Send and with a Write, from the first request on, whether requests
 * are posted as structures or by builders. */
#include "pair.h"

static void build(struct ibv_qp_ex *qp, const struct ibv_send_wr *wr)
{
	ibv_wr_start(qp);
	qp->wr_id = wr->wr_id;
	qp->wr_flags = wr->send_flags;
	if (wr->opcode == IBV_WR_SEND_WITH_IMM)
		ibv_wr_send_imm(qp, wr->imm_data);
	else
		ibv_wr_rdma_write_imm(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
	ibv_wr_set_sge(qp, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
	CHECK(ibv_wr_complete(qp) == 0);
}

static void with_data(enum ibv_wr_opcode opcode, enum ibv_wc_opcode seen, uint32_t data)
{
	struct ibv_sge sge = place(0, 8);
	struct ibv_send_wr wr = request(opcode, 2, IBV_SEND_SIGNALED, &sge, 64), *bad;
	wr.imm_data = htobe32(data);
	receive(b, 1, 128, 8);
	if (ibv_qp_to_qp_ex(a.qp))
		build(ibv_qp_to_qp_ex(a.qp), &wr);
	else
		CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	struct ibv_wc wc = ends(b, 1, IBV_WC_SUCCESS);
	CHECK(wc.opcode == seen && wc.wc_flags & IBV_WC_WITH_IMM && wc.byte_len == 8);
	CHECK(be32toh(wc.imm_data) == data);
	ends(a, 2, IBV_WC_SUCCESS);
}

/* As `pair`, and the first side has builders. */
static void pair_with_builders(void)
{
	a.cq = make_cq(256), b.cq = make_cq(256);
	struct ibv_qp_init_attr_ex init = {
		.qp_type = wanted.qp_type, .cap = wanted.cap, .send_cq = a.cq, .recv_cq = a.cq, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	};
	a.qp = ibv_create_qp_ex(context, &init);
	CHECK(a.qp && ibv_qp_to_qp_ex(a.qp));
	b.qp = make_qp(b.cq);
	join(a.qp, b.qp);
}

static void exchange(void)
{
	memset(memory, 0, 256);
	memset(memory, 5, 8);
	with_data(IBV_WR_SEND_WITH_IMM, IBV_WC_RECV, 0x01020304);
	CHECK(memory[128] == 5 && memory[135] == 5);
	with_data(IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RECV_RDMA_WITH_IMM, 0xfffffffe);
	CHECK(memory[64] == 5 && memory[71] == 5);
	with_data(IBV_WR_SEND_WITH_IMM, IBV_WC_RECV, 0);
	part();
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	exchange();
	pair_with_builders();
	exchange();
	return finish();
}
