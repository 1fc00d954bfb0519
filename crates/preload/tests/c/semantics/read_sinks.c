/* Where the answer to a Read goes: one place, which may be written by this side, or by peers too,
 * as an RNIC wants it; and no other. */
#include "pair.h"

static enum ibv_wc_status read_into(unsigned access)
{
	struct ibv_mr *sink = ibv_reg_mr(pd, memory + 4096, 64, access);
	struct ibv_sge sge = { (uintptr_t)memory + 4096, 8, sink->lkey };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, 1, IBV_SEND_SIGNALED, &sge, 0), *bad;
	pair();
	memcpy(memory, "source", 7);
	memset(memory + 4096, 0, 8);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	enum ibv_wc_status status = next(a.cq).status;
	CHECK(!strcmp(memory + 4096, status ? "" : "source"));
	part();
	CHECK(ibv_dereg_mr(sink) == 0);
	return status;
}

static void one_place(void)
{
	struct ibv_device_attr device;
	CHECK(ibv_query_device(context, &device) == 0 && device.max_sge_rd == 1);
	pair();
	struct ibv_sge sges[2] = { place(64, 4), place(68, 4) };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, 1, 0, sges, 0), *bad;
	wr.num_sge = 2;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr);
	part();
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	CHECK(read_into(IBV_ACCESS_LOCAL_WRITE) == IBV_WC_SUCCESS);
	CHECK(read_into(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) == IBV_WC_SUCCESS);
	CHECK(read_into(IBV_ACCESS_REMOTE_READ) == IBV_WC_LOC_PROT_ERR);
	one_place();
	return finish();
}
