/* The extended objects: completions field by field, request builders, parent domains. */
#include "device.h"

static struct ibv_context *context;
static struct ibv_pd *pd;

static void domains(void)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(context, &td_attr);
	CHECK(td && td->context == context);
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
	CHECK(parent && parent != pd && ibv_dealloc_pd(pd) == EBUSY);
	char octet;
	struct ibv_mr *mr = ibv_reg_mr(parent, &octet, 1, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->pd == parent && ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_td(td) == 0);
}

static struct ibv_cq_ex *make_cq(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);
	CHECK(cq);
	attr.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
	CHECK(!ibv_create_cq_ex(context, &attr) && errno == EOPNOTSUPP);
	attr = (struct ibv_cq_init_attr_ex){ .cqe = 8, .comp_mask = 1 << 20 };
	CHECK(!ibv_create_cq_ex(context, &attr) && errno == EINVAL);
	return cq;
}

static struct ibv_qp *make_qp(struct ibv_cq_ex *cq)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
		.cap = { .max_send_wr = 4, .max_recv_wr = 2, .max_send_sge = 2, .max_recv_sge = 1,
			 .max_inline_data = 32 },
		.qp_type = IBV_QPT_RC, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_INV |
				  IBV_QP_EX_WITH_SEND_WITH_IMM,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
	CHECK(qp && ibv_qp_to_qp_ex(qp) != NULL);
	attr.send_ops_flags = IBV_QP_EX_WITH_TSO;
	CHECK(!ibv_create_qp_ex(context, &attr) && errno == EOPNOTSUPP);
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	struct ibv_qp *plain = ibv_create_qp_ex(context, &attr);
	CHECK(plain && ibv_qp_to_qp_ex(plain) == NULL && attr.comp_mask == IBV_QP_INIT_ATTR_PD);
	CHECK(ibv_destroy_qp(plain) == 0);
	return qp;
}

static void build(struct ibv_qp_ex *qp)
{
	char text[] = "inline";
	struct ibv_data_buf parts[2] = { { text, 2 }, { text + 2, 4 } };
	struct ibv_sge sges[2] = { { (uintptr_t)text, 1, 0 }, { (uintptr_t)text, 2, 0 } };
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, text, sizeof(text));
	qp->wr_id = 2;
	ibv_wr_rdma_write(qp, 7, 0x1000);
	ibv_wr_set_inline_data_list(qp, 2, parts);
	qp->wr_id = 3;
	ibv_wr_rdma_read(qp, 7, 0x1000);
	ibv_wr_set_sge_list(qp, 2, sges);
	ibv_wr_set_sge(qp, 0, (uintptr_t)text, 1);
}

static void queues(void)
{
	struct ibv_cq_ex *cq = make_cq();
	struct ibv_qp *qp = make_qp(cq);
	struct ibv_qp_ex *builder = ibv_qp_to_qp_ex(qp);
	struct ibv_poll_cq_attr none = { 0 }, odd = { .comp_mask = 1 };
	CHECK(ibv_start_poll(cq, &none) == ENOENT && ibv_start_poll(cq, &odd) == EINVAL);

	/* Not connected: refused as a whole, and an abort leaves nothing behind. */
	build(builder);
	CHECK(ibv_wr_complete(builder) == EINVAL);
	build(builder);
	ibv_wr_abort(builder);
	ibv_wr_start(builder);
	CHECK(ibv_wr_complete(builder) == 0);
	ibv_wr_start(builder);
	ibv_wr_set_sge(builder, 0, 0, 0);
	CHECK(ibv_wr_complete(builder) == EINVAL);

	struct ibv_recv_wr receive = { .wr_id = 10 }, *bad;
	CHECK(ibv_post_recv(qp, &receive, &bad) == 0);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	build(builder);
	CHECK(ibv_wr_complete(builder) == 0);
	uint64_t expected[] = { 10, 1, 2, 3 };
	CHECK(ibv_start_poll(cq, &none) == 0);
	for (int i = 0; i < 4; i++) {
		CHECK(cq->wr_id == expected[i] && cq->status == IBV_WC_WR_FLUSH_ERR);
		CHECK(ibv_wc_read_qp_num(cq) == qp->qp_num && ibv_wc_read_wc_flags(cq) == 0);
		CHECK(ibv_next_poll(cq) == (i < 3 ? 0 : ENOENT));
	}
	ibv_end_poll(cq);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

int main(void)
{
	context = ibv_open_device(device_named("weft_iw0"));
	CHECK(context);
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	domains();
	queues();
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}
