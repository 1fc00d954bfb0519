/* What a queue pair of the adapter lets its peer do, whatever the region allows. */
#include "device.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid gid;
static int index_of_gid;
static uint64_t memory[16];
static struct ibv_mr *mr;

static struct ibv_qp *make(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

static void connect_to(struct ibv_qp *qp, uint32_t number, int access)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = index_of_gid } },
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					IBV_QP_MAX_QP_RD_ATOMIC));
}

/* How a request ends at a peer whose queue pair grants `access`. */
static enum ibv_wc_status attempt(enum ibv_wr_opcode opcode, int access)
{
	struct ibv_qp *from = make(), *to = make();
	connect_to(to, from->qp_num, access);
	connect_to(from, to->qp_num, 0);
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.remote_addr = (uintptr_t)(memory + 8), wr.wr.atomic.rkey = mr->rkey;
	else
		wr.wr.rdma.remote_addr = (uintptr_t)(memory + 8), wr.wr.rdma.rkey = mr->rkey;
	CHECK(ibv_post_send(from, &wr, &bad) == 0);
	struct ibv_wc wc;
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	CHECK(wc.qp_num == from->qp_num);
	CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
	return wc.status;
}

int main(void)
{
	static const uint8_t loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	struct ibv_gid_entry table[128];
	context = ibv_open_device(device_named("weft0"));
	CHECK(context);
	int rows = ibv_query_gid_table(context, table, 128, 0);
	for (int i = 0; i < rows; i++)
		if (!memcmp(table[i].gid.raw, loopback, sizeof(loopback)))
			index_of_gid = i, gid = table[i].gid;
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE |
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(pd && cq && mr);

	static const struct { enum ibv_wr_opcode opcode; int access; } all[] = {
		{ IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE },
		{ IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC },
	};
	const int every = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	for (int i = 0; i < 3; i++) {
		CHECK(attempt(all[i].opcode, all[i].access) == IBV_WC_SUCCESS);
		CHECK(attempt(all[i].opcode, every & ~all[i].access) == IBV_WC_REM_ACCESS_ERR);
	}
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
