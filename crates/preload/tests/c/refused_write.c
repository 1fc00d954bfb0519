/* A Write that the peer refuses does not succeed where it is complete when it is placed, as over
 * shared memory. */
#include "peer.h"

static int heard[2];

static void server(struct rdma_cm_id *id)
{
	char over;
	CHECK(rdma_accept(id, NULL) == 0);
	/* Until the other has its completion. */
	CHECK(close(heard[1]) == 0 && read(heard[0], &over, 1) == 0);
}

static void client(struct rdma_cm_id *id)
{
	static char memory[4096];
	struct ibv_mr *mr = rdma_reg_msgs(id, memory, sizeof(memory));
	CHECK(mr && rdma_post_write(id, NULL, memory, 4096, mr, 0, 0x1000, 0x12345678) == 0);
	struct ibv_wc wc = next_of(id->send_cq);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
	CHECK(rdma_dereg_mr(mr) == 0 && close(heard[1]) == 0);
}

int main(void)
{
	CHECK(pipe(heard) == 0);
	return meet(server, client);
}
