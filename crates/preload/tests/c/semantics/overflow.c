/* A completion queue that has no room for one more fails, and with it the queue pairs that complete
 * there; it is not made smaller than what it holds. */
#include "pair.h"

#include <poll.h>

static int fill(struct ibv_cq *cq)
{
	int held = cq->cqe;
	for (int i = 0; i < held; i++)
		receive(b, i, 0, 8);
	for (int i = 0; i < held; i++)
		post(a, IBV_WR_SEND, i, IBV_SEND_SIGNALED, 0, 8, 0);
	for (int i = 0; i < held; i++)
		ends(a, i, IBV_WC_SUCCESS);
	return held;
}

/* What was not read of a queue goes with it: nobody is woken for it any more. */
static void unread(void)
{
	struct pollfd told = { .fd = context->async_fd, .events = POLLIN };
	a.cq = make_cq(64), b.cq = make_cq(4);
	a.qp = make_qp(a.cq), b.qp = make_qp(b.cq);
	join(a.qp, b.qp);
	int held = fill(b.cq);
	receive(b, held, 0, 8);
	post(a, IBV_WR_SEND, held, IBV_SEND_SIGNALED, 0, 8, 0);
	CHECK(poll(&told, 1, 10000) == 1);
	part();
	CHECK(poll(&told, 1, 0) == 0 && no_event());
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	a.cq = make_cq(64), b.cq = make_cq(4);
	CHECK(b.cq->cqe < 64);
	wanted.cap.max_send_wr = wanted.cap.max_recv_wr = 64;
	a.qp = make_qp(a.cq), b.qp = make_qp(b.cq);
	struct ibv_qp *idle = make_qp(b.cq);
	to_init(idle);
	join(a.qp, b.qp);

	int held = fill(b.cq);
	CHECK(ibv_resize_cq(b.cq, held - 1) == EINVAL && b.cq->cqe == held);
	CHECK(no_event());
	receive(b, held, 0, 8);
	post(a, IBV_WR_SEND, held, IBV_SEND_SIGNALED, 0, 8, 0);
	struct ibv_async_event event = await(IBV_EVENT_CQ_ERR);
	CHECK(event.element.cq == b.cq);
	ibv_ack_async_event(&event);

	struct ibv_wc wc;
	int count, seen = 0;
	while ((count = ibv_poll_cq(b.cq, 1, &wc)) > 0)
		seen++;
	CHECK(count < 0 && seen <= held);
	struct ibv_qp *told[2];
	for (int i = 0; i < 2; i++) {
		event = await(IBV_EVENT_QP_FATAL);
		told[i] = event.element.qp;
		ibv_ack_async_event(&event);
	}
	CHECK(told[0] != told[1] && (told[0] == b.qp || told[0] == idle));
	CHECK(state(b.qp) == IBV_QPS_ERR && state(idle) == IBV_QPS_ERR);
	CHECK(ibv_destroy_qp(idle) == 0);
	part();
	unread();
	return finish();
}
