/* Twenty messages between two queue pairs of weft0, by Sends, or by Writes with an argument: when
 * the receiver has all of them, says how many are not what was sent, and how many of the requests
 * are complete. */
#include "join.h"

#include <stdio.h>

enum { MESSAGES = 20, OCTETS = 16 };

static char source[MESSAGES * OCTETS], target[MESSAGES * OCTETS];

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp && begin(qp) == 0);
	return qp;
}

int main(int argc, char **argv)
{
	(void)argv;
	context = ibv_open_device(device_named("weft0"));
	CHECK(context);
	find_loopback();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *from_mr = ibv_reg_mr(pd, source, sizeof(source), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *to_mr = ibv_reg_mr(pd, target, sizeof(target),
					  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_cq *sends = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_cq *receives = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(pd && from_mr && to_mr && sends && receives);
	struct ibv_qp *from = make(pd, sends), *to = make(pd, receives);
	join_to(from, to->qp_num, 7);
	join_to(to, from->qp_num, 7);
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_sge sge = { (uintptr_t)target + i * OCTETS, OCTETS, to_mr->lkey };
		struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;
		CHECK(ibv_post_recv(to, &recv, &bad) == 0);
	}
	memset(source, 0x5a, sizeof(source));
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_sge sge = { (uintptr_t)source + i * OCTETS, OCTETS, from_mr->lkey };
		struct ibv_send_wr send = {
			.opcode = argc > 1 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND,
			.sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)target + i * OCTETS, to_mr->rkey },
		}, *bad;
		CHECK(ibv_post_send(from, &send, &bad) == 0);
	}
	struct ibv_wc wc;
	int failed = 0;
	for (int left = MESSAGES; left > 0;) {
		int n = ibv_poll_cq(receives, 1, &wc);
		CHECK(n >= 0);
		left -= n;
		failed |= n && wc.status != IBV_WC_SUCCESS;
		/* What comes first of a failure is with the sender. */
		if (failed)
			break;
	}
	int wrong = 0, complete = 0, n;
	for (int i = 0; i < MESSAGES && !failed; i++)
		wrong += memcmp(target + i * OCTETS, source, OCTETS) != 0;
	if (failed) {
		while ((n = ibv_poll_cq(sends, 1, &wc)) == 0 || wc.status == IBV_WC_SUCCESS)
			CHECK(n >= 0);
		printf("the send: %s\n", ibv_wc_status_str(wc.status));
		return 0;
	}
	/* Long enough for acknowledgements that are not late. */
	for (int i = 0; i < 1000000 && complete < MESSAGES; i++)
		complete += ibv_poll_cq(sends, 1, &wc) == 1;
	printf("%d wrong, %d complete\n", wrong, complete);
	return 0;
}
