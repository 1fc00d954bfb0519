/* What is in use is not destroyed; what is destroyed takes its completions along. */
#include "pair.h"

int main(int argc, char **argv)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	begin(argc, argv);
	struct ibv_td_init_attr alone = { 0 };
	struct ibv_td *thread = ibv_alloc_td(context, &alone);
	struct ibv_parent_domain_init_attr both = { .pd = pd, .td = thread };
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &both);
	CHECK(thread && parent && ibv_dealloc_td(thread) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_td(thread) == 0);

	struct ibv_srq *srq = wanted.srq = ibv_create_srq(pd, &init);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *other = ibv_create_cq(context, 4, NULL, channel, 0);
	CHECK(srq && channel && other);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	CHECK(ibv_destroy_cq(other) == 0 && ibv_destroy_comp_channel(channel) == 0);

	pair();
	CHECK(ibv_destroy_cq(a.cq) == EBUSY && ibv_destroy_srq(srq) == EBUSY);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	/* All of it still works. */
	struct ibv_sge sge = place(0, 8);
	struct ibv_recv_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	post(a, IBV_WR_SEND, 6, IBV_SEND_SIGNALED, 0, 8, 0);
	ends(b, 5, IBV_WC_SUCCESS);
	ends(a, 6, IBV_WC_SUCCESS);

	struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { mr, (uintptr_t)memory, 8, IBV_ACCESS_REMOTE_READ },
	};
	CHECK(window && ibv_bind_mw(a.qp, window, &bind) == 0);
	CHECK(next(a.cq).status == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(mr) == EBUSY && ibv_dealloc_mw(window) == 0);

	/* Two queue pairs complete into one queue; one of them goes. */
	struct side c = { make_qp(a.cq), a.cq };
	to_init(c.qp);
	CHECK(modify(c.qp, IBV_QPS_ERR) == 0);
	post(c, IBV_WR_SEND, 7, 0, 0, 8, 0);
	post(a, IBV_WR_RDMA_WRITE, 8, IBV_SEND_SIGNALED, 0, 8, 64);
	post(c, IBV_WR_SEND, 9, 0, 0, 8, 0);
	CHECK(ibv_destroy_qp(c.qp) == 0);
	ends(a, 8, IBV_WC_SUCCESS);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);

	CHECK(ibv_destroy_qp(a.qp) == 0 && ibv_destroy_qp(b.qp) == 0);
	CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_srq(srq) == 0);
	CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_cq(a.cq) == 0 && ibv_destroy_cq(b.cq) == 0);
	return finish();
}
