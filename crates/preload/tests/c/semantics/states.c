/* In which states requests may be posted; what draining and resetting do. */
#include "pair.h"

static int post_result(struct ibv_qp *qp)
{
	struct ibv_sge sge = place(0, 8);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED, &sge, 64), *bad = NULL;
	int error = ibv_post_send(qp, &wr, &bad);
	CHECK(!error || bad == &wr);
	return error;
}

static int receive_result(struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad = NULL;
	int error = ibv_post_recv(qp, &wr, &bad);
	CHECK(!error || bad == &wr);
	return error;
}

static void before_it_is_ready(void)
{
	struct ibv_cq *cq = make_cq(16);
	struct ibv_qp *qp = make_qp(cq), *other = make_qp(cq);
	CHECK(qp->state == IBV_QPS_RESET && receive_result(qp) == (adapter ? EINVAL : 0));
	CHECK(post_result(qp) == EINVAL);
	struct ibv_qp_attr elsewhere = { .qp_state = IBV_QPS_INIT, .port_num = 2 };
	CHECK(ibv_modify_qp(qp, &elsewhere, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						    IBV_QP_ACCESS_FLAGS) == EINVAL);
	to_init(qp);
	CHECK(receive_result(qp) == 0 && post_result(qp) == EINVAL);
	CHECK(modify(qp, IBV_QPS_RTS) == EINVAL && qp->state == IBV_QPS_INIT);
	to_rtr(qp, other->qp_num);
	CHECK(receive_result(qp) == 0 && post_result(qp) == EINVAL);
	struct ibv_qp_attr wrong = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD };
	CHECK(ibv_modify_qp(qp, &wrong, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
	to_rts(qp);
	CHECK(qp->state == IBV_QPS_RTS && post_result(qp) == 0);

	/* What was posted is gone without a completion, and all begins anew. */
	CHECK(modify(qp, IBV_QPS_RESET) == 0 && qp->state == IBV_QPS_RESET);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	join(qp, other);
	CHECK(post_result(qp) == 0 && next(cq).status == IBV_WC_SUCCESS);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(other) == 0 && ibv_destroy_cq(cq) == 0);
}

/* What was begun ends, and there is an event; what is posted then waits. */
static void drained(void)
{
	pair();
	for (int i = 0; i < 4; i++)
		CHECK(post_result(a.qp) == 0);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	struct ibv_async_event event = await(IBV_EVENT_SQ_DRAINED);
	CHECK(event.element.qp == a.qp && state(a.qp) == IBV_QPS_SQD);
	ibv_ack_async_event(&event);
	struct ibv_wc wc;
	int begun = 0;
	while (ibv_poll_cq(a.cq, 1, &wc) == 1)
		begun++;
	CHECK(post_result(a.qp) == 0 && ibv_poll_cq(a.cq, 1, &wc) == 0);
	CHECK(modify(a.qp, IBV_QPS_RTS) == 0);
	for (int i = begun; i < 5; i++)
		CHECK(next(a.cq).status == IBV_WC_SUCCESS);
	part();
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	/* Either has the smaller number now and then. */
	for (int i = 0; i < 8; i++)
		before_it_is_ready();
	/* Repeated, because the thread that waits for the last acknowledgement may be asleep or awake;
	 * nobody polls meanwhile. */
	for (int i = 0; adapter && i < 100; i++)
		drained();
	return finish();
}
