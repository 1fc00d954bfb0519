/* A queue pair that is ready to receive gets what its peer sends although it may not send itself,
 * and an adapter tells of the first message by an event; what is sent to one that is not even that
 * waits for it. */
#include "pair.h"

int main(int argc, char **argv)
{
	begin(argc, argv);
	a.cq = make_cq(16), b.cq = make_cq(16);
	a.qp = make_qp(a.cq), b.qp = make_qp(b.cq);
	to_init(a.qp);
	to_init(b.qp);
	to_rtr(a.qp, b.qp->qp_num);
	to_rts(a.qp);
	receive(b, 1, 64, 8);
	memcpy(memory, "early", 6);
	post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 8, 0);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(b.cq, 1, &wc) == 0);

	to_rtr(b.qp, a.qp->qp_num);
	ends(b, 1, IBV_WC_SUCCESS);
	CHECK(!strcmp(memory + 64, "early"));
	ends(a, 2, IBV_WC_SUCCESS);
	if (adapter) {
		struct ibv_async_event event = await(IBV_EVENT_COMM_EST);
		CHECK(event.element.qp == b.qp);
		ibv_ack_async_event(&event);
		CHECK(state(b.qp) == IBV_QPS_RTR);
		receive(b, 6, 64, 8);
		post(a, IBV_WR_SEND, 7, IBV_SEND_SIGNALED, 0, 8, 0);
		ends(b, 6, IBV_WC_SUCCESS), ends(a, 7, IBV_WC_SUCCESS);
	}
	CHECK(no_event());
	post(a, IBV_WR_RDMA_READ, 3, IBV_SEND_SIGNALED, 128, 8, 64);
	ends(a, 3, IBV_WC_SUCCESS);
	CHECK(!strcmp(memory + 128, "early"));

	to_rts(b.qp);
	receive(a, 4, 64, 8);
	post(b, IBV_WR_SEND, 5, IBV_SEND_SIGNALED, 0, 8, 0);
	ends(a, 4, IBV_WC_SUCCESS);
	ends(b, 5, IBV_WC_SUCCESS);
	part();
	return finish();
}
