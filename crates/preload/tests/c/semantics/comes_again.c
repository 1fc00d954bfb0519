/* A queue pair that is reset before its peer has heard more of it than that it asks, and comes back
 * under the same number, finds its peer and what that has posted. */
#include "pair.h"

enum { ROUNDS = 10, POLLS = 1000 };

/* Goes on with whatever is under way. */
static void poll_often(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	for (int i = 0; i < POLLS; i++)
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	for (int i = 0; i < ROUNDS; i++) {
		a.cq = make_cq(16), b.cq = make_cq(16);
		a.qp = make_qp(a.cq), b.qp = make_qp(b.cq);
		/* The one with the lesser number asks. */
		if (a.qp->qp_num > b.qp->qp_num) {
			struct side lesser = b;
			b = a, a = lesser;
		}
		to_init(a.qp), to_init(b.qp);
		to_rtr(a.qp, b.qp->qp_num), to_rts(a.qp);
		poll_often(a.cq);
		CHECK(modify(a.qp, IBV_QPS_RESET) == 0);
		to_init(a.qp);
		receive(a, 1, 0, 8);
		to_rtr(b.qp, a.qp->qp_num), to_rts(b.qp);
		post(b, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 8, 8, 0);
		poll_often(b.cq);
		to_rtr(a.qp, b.qp->qp_num), to_rts(a.qp);
		ends(a, 1, IBV_WC_SUCCESS);
		ends(b, 2, IBV_WC_SUCCESS);
		part();
	}
	return finish();
}
