/* Queue pairs that are reset are connected to others than before: each finds its new peer, whatever
 * its old one did. */
#include "pair.h"

enum { PAIRS = 2, ROUNDS = 6, TAG = 100 };

static struct side left[PAIRS], right[PAIRS];

static void renew(struct side *side, int made_anew)
{
	CHECK(modify(side->qp, IBV_QPS_ERR) == 0);
	if (made_anew) {
		CHECK(ibv_destroy_qp(side->qp) == 0);
		side->qp = make_qp(side->cq);
	} else {
		CHECK(modify(side->qp, IBV_QPS_RESET) == 0);
	}
}

/* One message in each direction. */
static void exchange(struct side one, struct side other)
{
	receive(one, TAG, 0, 8);
	receive(other, TAG + 1, 0, 8);
	post(one, IBV_WR_SEND, TAG + 2, IBV_SEND_SIGNALED, 8, 8, 0);
	ends(other, TAG + 1, IBV_WC_SUCCESS);
	ends(one, TAG + 2, IBV_WC_SUCCESS);
	post(other, IBV_WR_SEND, TAG + 3, IBV_SEND_SIGNALED, 8, 8, 0);
	ends(one, TAG, IBV_WC_SUCCESS);
	ends(other, TAG + 3, IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	for (int i = 0; i < PAIRS; i++) {
		left[i].cq = make_cq(16), right[i].cq = make_cq(16);
		left[i].qp = make_qp(left[i].cq), right[i].qp = make_qp(right[i].cq);
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < PAIRS; i++)
			join(left[i].qp, right[(i + round) % PAIRS].qp);
		for (int i = 0; i < PAIRS; i++)
			exchange(left[i], right[(i + round) % PAIRS]);
		/* All reset, or one side of each made anew. */
		for (int i = 0; i < PAIRS; i++) {
			renew(&left[i], round % 3 == 1);
			renew(&right[i], round % 3 == 2);
		}
	}
	for (int i = 0; i < PAIRS; i++) {
		a = left[i], b = right[i];
		part();
	}
	return finish();
}
