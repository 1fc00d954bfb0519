/* Requests complete in the order in which they were posted, whatever they wait for; a Read's data
 * is there when it completes. */
#include "pair.h"

enum { REQUESTS = 24, ROUNDS = 100, SOURCE = 1 << 20, SINK = 2 << 20 };

static const struct {
	enum ibv_wr_opcode request;
	enum ibv_wc_opcode completion;
} kinds[] = {
	{ IBV_WR_RDMA_READ, IBV_WC_RDMA_READ },
	{ IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE },
	{ IBV_WR_SEND, IBV_WC_SEND },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD },
};

static void together(unsigned round)
{
	int chosen[REQUESTS], messages = 0;
	memset(memory + SINK, 0, 1 << 20);
	memset(memory + SOURCE, 1 + round % 200, 65536);
	for (int i = 0; i < REQUESTS; i++) {
		int kind = chosen[i] = rand() % 4;
		uint32_t length = kind == 0 ? 1 + rand() % 65536 : 8;
		if (kind == 2)
			receive(b, messages++, 4096, 8);
		if (kind == 0)
			post(a, kinds[kind].request, i, IBV_SEND_SIGNALED, SINK + i, length, SOURCE);
		else
			post(a, kinds[kind].request, i, IBV_SEND_SIGNALED, 0, length, 1024);
	}
	for (int i = 0; i < REQUESTS; i++) {
		struct ibv_wc wc = ends(a, i, IBV_WC_SUCCESS);
		CHECK(wc.opcode == kinds[chosen[i]].completion);
		if (chosen[i] == 0)
			CHECK(memory[SINK + i] != 0);
	}
	for (int i = 0; i < messages; i++)
		ends(b, i, IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	wanted.cap.max_send_wr = wanted.cap.max_recv_wr = REQUESTS;
	pair();
	srand(1);
	for (int round = 0; round < ROUNDS; round++)
		together(round);
	part();
	return finish();
}
