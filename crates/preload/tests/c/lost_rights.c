/* What the receiver may not read any more from the sender's memory does not succeed: one that gives
 * up its rights to be read fails, and the receiver has all that has succeeded. */
#define _GNU_SOURCE
#include "peer.h"

#include <sys/prctl.h>

enum { BYTES = 65536, BEFORE = 8, NOBODY = 65534 };

static int told[2];

static void server(struct rdma_cm_id *id)
{
	static char memory[DEPTH][BYTES];
	int received = 0, succeeded;
	struct ibv_mr *mr = rdma_reg_msgs(id, memory, sizeof(memory));
	CHECK(mr);
	for (int i = 0; i < DEPTH; i++)
		CHECK(rdma_post_recv(id, NULL, memory[i], BYTES, mr) == 0);
	CHECK(rdma_accept(id, NULL) == 0);
	while (next_of(id->recv_cq).status == IBV_WC_SUCCESS) {
		CHECK(memory[received][0] == received && memory[received][BYTES - 1] == received);
		received++;
	}
	CHECK(read(told[0], &succeeded, sizeof(succeeded)) == sizeof(succeeded));
	CHECK(succeeded >= BEFORE && succeeded <= received);
	CHECK(rdma_dereg_mr(mr) == 0);
}

static void client(struct rdma_cm_id *id)
{
	static char memory[BYTES];
	int succeeded = 0;
	struct ibv_mr *mr = rdma_reg_msgs(id, memory, BYTES);
	CHECK(mr);
	for (; succeeded < 2 * BEFORE; succeeded++) {
		if (succeeded == BEFORE)
			CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
		memset(memory, succeeded, BYTES);
		CHECK(rdma_post_send(id, NULL, memory, BYTES, mr, 0) == 0);
		if (next_of(id->send_cq).status != IBV_WC_SUCCESS)
			break;
	}
	CHECK(write(told[1], &succeeded, sizeof(succeeded)) == sizeof(succeeded));
	CHECK(rdma_dereg_mr(mr) == 0);
}

int main(void)
{
	/* Root may read every process. */
	if (geteuid() == 0)
		CHECK(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
	CHECK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
	CHECK(pipe(told) == 0);
	return meet(server, client);
}
