/* Between start and complete a builder holds its own send queue only: the same thread may use any
 * other verb, and the peer goes on. What is refused at complete is not begun. */
#include "pair.h"

static struct ibv_qp *make_extended(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .cap = wanted.cap, .qp_type = IBV_QPT_RC, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	return qp;
}

static void put(struct ibv_qp_ex *builder, uint64_t to)
{
	ibv_wr_rdma_write(builder, mr->rkey, (uintptr_t)memory + to);
	ibv_wr_set_sge(builder, mr->lkey, (uintptr_t)memory, 8);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	a.cq = make_cq(16), b.cq = make_cq(16);
	a.qp = make_extended(a.cq), b.qp = make_extended(b.cq);
	join(a.qp, b.qp);
	struct ibv_qp_ex *one = ibv_qp_to_qp_ex(a.qp), *other = ibv_qp_to_qp_ex(b.qp);
	strcpy(memory, "built");

	ibv_wr_start(one);
	one->wr_id = 1, one->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(one, mr->rkey, (uintptr_t)memory + 64);
	ibv_wr_set_sge(one, mr->lkey, (uintptr_t)memory, 8);
	/* Meanwhile, all that a program may want. */
	struct ibv_mr *region = ibv_reg_mr(pd, memory, 64, EVERY);
	struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_cq *cq = make_cq(4);
	struct ibv_qp *qp = make_qp(cq);
	struct ibv_wc wc;
	receive(a, 9, 0, 8);
	CHECK(region && window && ibv_poll_cq(a.cq, 1, &wc) == 0 && ibv_req_notify_cq(a.cq, 0) == 0);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_mw(window) == 0);
	ibv_wr_start(other);
	other->wr_id = 2, other->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(other, mr->rkey, (uintptr_t)memory);
	ibv_wr_set_sge(other, region->lkey, (uintptr_t)memory + 32, 8);
	CHECK(ibv_wr_complete(other) == 0);
	ends(b, 2, IBV_WC_SUCCESS);
	CHECK(!strcmp(memory + 32, "built") && memory[64] == 0 && ibv_dereg_mr(region) == 0);
	CHECK(ibv_wr_complete(one) == 0);
	ends(a, 1, IBV_WC_SUCCESS);
	CHECK(!strcmp(memory + 64, "built"));

	/* With one more than there is room for none is posted. */
	ibv_wr_start(one);
	for (int i = 0; i <= (int)wanted.cap.max_send_wr; i++)
		put(one, 128);
	CHECK(ibv_wr_complete(one) == ENOMEM);
	ibv_wr_start(one);
	one->wr_id = 3;
	put(one, 192);
	CHECK(ibv_wr_complete(one) == 0);
	ends(a, 3, IBV_WC_SUCCESS);
	CHECK(!strcmp(memory + 192, "built") && memory[128] == 0);
	CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
	part();
	return finish();
}
