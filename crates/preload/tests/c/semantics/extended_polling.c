/* An empty queue is not open after start_poll, and a poll reads each completion's own fields. */
#include "pair.h"

int main(int argc, char **argv)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr none = { 0 }, odd = { .comp_mask = 1 };
	begin(argc, argv);
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);
	CHECK(cq);
	a.cq = ibv_cq_ex_to_cq(cq), b.cq = make_cq(16);
	a.qp = make_qp(a.cq), b.qp = make_qp(b.cq);
	join(a.qp, b.qp);

	/* Each would wait for the one before to end, if that were open. */
	for (int i = 0; i < 3; i++)
		CHECK(ibv_start_poll(cq, &none) == ENOENT && ibv_start_poll(cq, &odd) == EINVAL);
	CHECK(ibv_req_notify_cq(a.cq, 0) == 0);

	static const enum ibv_wr_opcode requests[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE };
	static const enum ibv_wc_opcode completions[] = { IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE };
	for (int i = 0; i < 8; i++)
		post(a, requests[i % 2], i, IBV_SEND_SIGNALED, 64, 16, 128);
	for (int i = 0; i < 8;) {
		int open = ibv_start_poll(cq, &none);
		if (open == ENOENT)
			continue;
		do {
			CHECK(open == 0 && cq->wr_id == (unsigned)i && cq->status == IBV_WC_SUCCESS);
			CHECK(ibv_wc_read_opcode(cq) == completions[i % 2]);
			CHECK(ibv_wc_read_qp_num(cq) == a.qp->qp_num);
			i++;
		} while (!(open = ibv_next_poll(cq)));
		CHECK(open == ENOENT);
		/* Only this queue is held: another one may be polled, and requests be posted. */
		struct ibv_wc wc;
		CHECK(ibv_poll_cq(b.cq, 1, &wc) == 0);
		post(a, IBV_WR_RDMA_WRITE, 0, 0, 0, 8, 64);
		ibv_end_poll(cq);
	}
	part();
	return finish();
}
