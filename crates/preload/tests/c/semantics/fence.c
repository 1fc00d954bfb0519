/* A fenced request begins when the Reads before it are complete, so it sends what they brought. */
#include "pair.h"

enum { LENGTH = 1 << 20, SOURCE = LENGTH, BETWEEN = 2 * LENGTH, TARGET = 3 * LENGTH };

int main(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	for (int round = 1; round <= 20; round++) {
		memset(memory + SOURCE, round, LENGTH);
		memset(memory + BETWEEN, 0, LENGTH);
		post(a, IBV_WR_RDMA_READ, 1, 0, BETWEEN, LENGTH, SOURCE);
		post(a, IBV_WR_RDMA_WRITE, 2, IBV_SEND_FENCE | IBV_SEND_SIGNALED, BETWEEN, LENGTH,
		     TARGET);
		ends(a, 2, IBV_WC_SUCCESS);
		receive(b, 3, 0, 8);
		post(a, IBV_WR_SEND, 4, IBV_SEND_SIGNALED, 0, 8, 0);
		ends(a, 4, IBV_WC_SUCCESS);
		ends(b, 3, IBV_WC_SUCCESS);
		CHECK(!memcmp(memory + SOURCE, memory + TARGET, LENGTH));
	}
	part();
	return finish();
}
