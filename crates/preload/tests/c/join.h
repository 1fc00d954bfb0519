/* Queue pairs of one process that are connected to each other over loopback. */
#include "device.h"

static struct ibv_context *context;
static union ibv_gid gid;
static int index_of_gid = -1;

static void find_loopback(void)
{
	static const uint8_t loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	struct ibv_gid_entry table[128];
	ssize_t rows = ibv_query_gid_table(context, table, 128, 0);
	for (int i = 0; i < rows; i++) {
		if (!memcmp(table[i].gid.raw, loopback, sizeof(loopback))) {
			gid = table[i].gid;
			index_of_gid = table[i].gid_index;
		}
	}
	CHECK(index_of_gid >= 0);
}

static int begin(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	return ibv_modify_qp(qp, &attr, mask);
}

/* To RTR. */
static void receive_from(struct ibv_qp *qp, uint32_t number)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = index_of_gid, .hop_limit = 9 } },
	};
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			    IBV_QP_MIN_RNR_TIMER) == 0);
}

static void join_to(struct ibv_qp *qp, uint32_t number, int rnr_retry)
{
	receive_from(qp, number);
	struct ibv_qp_attr ready = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = rnr_retry,
		.max_rd_atomic = 1,
	};
	CHECK(ibv_modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}
