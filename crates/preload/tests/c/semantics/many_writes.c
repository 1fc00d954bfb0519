/* One Write on each of 64 connections, whose queue is only polled: every one of them completes,
 * however long ago its connection was used. */
#include "pair.h"

enum { PAIRS = 64, ROUNDS = 4 };

int main(int argc, char **argv)
{
	static struct side from[PAIRS], to[PAIRS];
	begin(argc, argv);
	struct ibv_cq *sent = make_cq(PAIRS), *quiet = make_cq(PAIRS);
	for (int i = 0; i < PAIRS; i++) {
		from[i] = (struct side){ make_qp(sent), sent };
		to[i] = (struct side){ make_qp(quiet), quiet };
		join(from[i].qp, to[i].qp);
	}
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t missing = ~0ull;
		for (int i = 0; i < PAIRS; i++)
			post(from[i], IBV_WR_RDMA_WRITE, i, IBV_SEND_SIGNALED, 0, 512, 1024 * i);
		while (missing) {
			struct ibv_wc wc = next(sent);
			CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id < PAIRS);
			CHECK(missing >> wc.wr_id & 1);
			missing &= ~(1ull << wc.wr_id);
		}
	}
	for (int i = 0; i < PAIRS; i++)
		CHECK(ibv_destroy_qp(from[i].qp) == 0 && ibv_destroy_qp(to[i].qp) == 0);
	CHECK(ibv_destroy_cq(sent) == 0 && ibv_destroy_cq(quiet) == 0);
	return finish();
}
