/* The device that programs connect by themselves: its attributes, its queue pairs' states. */
#include "device.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid gid;
static int index_of_gid = -1;

static void device(void)
{
	struct ibv_device *device = device_named("weft0");
	CHECK(device->node_type == IBV_NODE_CA && device->transport_type == IBV_TRANSPORT_IB);
	CHECK(ibv_get_device_guid(device) != ibv_get_device_guid(device_named("weft_iw0")));
	context = ibv_open_device(device);
	CHECK(context && context->device == device);

	struct ibv_device_attr attr;
	CHECK(ibv_query_device(context, &attr) == 0 && attr.max_pkeys == 1 && attr.max_ah > 0);
	struct ibv_port_attr port;
	CHECK(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
	CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET && port.lid == 0);
	CHECK(port.port_cap_flags & IBV_PORT_IP_BASED_GIDS && port.flags & IBV_QPF_GRH_REQUIRED);

	/* Every row is an address, and one of them is loopback's. */
	static const uint8_t loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	struct ibv_gid_entry table[128];
	ssize_t rows = ibv_query_gid_table(context, table, 128, 0);
	CHECK(rows > 0 && rows <= port.gid_tbl_len);
	for (int i = 0; i < rows; i++) {
		CHECK(table[i].gid_type == IBV_GID_TYPE_ROCE_V2 && table[i].ndev_ifindex > 0);
		if (!memcmp(table[i].gid.raw, loopback, sizeof(loopback)))
			index_of_gid = i;
	}
	CHECK(index_of_gid >= 0 && ibv_query_gid(context, 1, index_of_gid, &gid) == 0);
	CHECK(!memcmp(gid.raw, loopback, sizeof(loopback)));
	CHECK(ibv_query_gid_ex(context, 1, rows, &table[0], 0) == ENODATA);
}

static struct ibv_qp *make(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	return ibv_create_qp(pd, &init);
}

static int initialise(struct ibv_qp *qp, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
}

static struct ibv_qp_attr towards(uint32_t number)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number,
		.rq_psn = 7, .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .sl = 3,
			     .grh = { .dgid = gid, .sgid_index = index_of_gid, .hop_limit = 9 } },
	};
}

#define RECEIVE_UC (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RECEIVE_RC (RECEIVE_UC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define SEND_UC (IBV_QP_STATE | IBV_QP_SQ_PSN)
#define SEND_RC (SEND_UC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
		 IBV_QP_MAX_QP_RD_ATOMIC)

static struct ibv_qp_attr query(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &attr, -1, &init) == 0);
	return attr;
}

static void walk(enum ibv_qp_type type)
{
	int rc = type == IBV_QPT_RC;
	struct ibv_qp *qp = make(type), *other = make(type);
	CHECK(qp && other && qp->qp_num != other->qp_num && qp->qp_num >> 24 == 0);
	CHECK(qp->state == IBV_QPS_RESET && query(qp).qp_state == IBV_QPS_RESET);
	struct ibv_recv_wr recv = { 0 }, *bad;
	CHECK(ibv_post_recv(qp, &recv, &bad) == EINVAL);

	CHECK(initialise(qp, IBV_QP_PKEY_INDEX | IBV_QP_PORT) == EINVAL);
	CHECK(initialise(qp, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	CHECK(qp->state == IBV_QPS_INIT && ibv_post_recv(qp, &recv, &bad) == 0);

	int receive = rc ? RECEIVE_RC : RECEIVE_UC, send = rc ? SEND_RC : SEND_UC;
	struct ibv_qp_attr attr = towards(other->qp_num);
	CHECK(ibv_modify_qp(qp, &attr, receive & ~IBV_QP_AV) == EINVAL);
	CHECK(ibv_modify_qp(qp, &attr, receive | IBV_QP_TIMEOUT) == EINVAL);
	attr.ah_attr.grh.sgid_index = 127;
	CHECK(ibv_modify_qp(qp, &attr, receive) == EINVAL && qp->state == IBV_QPS_INIT);
	attr = towards(other->qp_num);
	attr.ah_attr.is_global = 0;
	CHECK(ibv_modify_qp(qp, &attr, receive) == EINVAL && qp->state == IBV_QPS_INIT);
	attr = towards(other->qp_num);
	CHECK(ibv_modify_qp(qp, &attr, receive) == 0 && qp->state == IBV_QPS_RTR);

	struct ibv_qp_attr ready = {
		.qp_state = IBV_QPS_RTS, .sq_psn = 8, .timeout = 14, .retry_cnt = 6, .rnr_retry = 7,
		.max_rd_atomic = 2,
	};
	CHECK(ibv_modify_qp(qp, &ready, send) == 0 && qp->state == IBV_QPS_RTS);
	struct ibv_qp_attr now = query(qp);
	CHECK(now.dest_qp_num == other->qp_num && now.path_mtu == IBV_MTU_1024 && now.sq_psn == 8);
	CHECK(!memcmp(&now.ah_attr.grh.dgid, &gid, sizeof(gid)) && now.ah_attr.sl == 3);
	CHECK(now.ah_attr.grh.sgid_index == index_of_gid && now.ah_attr.is_global == 1);
	CHECK(now.qp_access_flags == IBV_ACCESS_REMOTE_WRITE && now.port_num == 1);
	CHECK(!rc || (now.timeout == 14 && now.retry_cnt == 6 && now.max_dest_rd_atomic == 4));

	struct ibv_qp_attr drained = { .qp_state = IBV_QPS_SQD };
	CHECK(ibv_modify_qp(qp, &drained, IBV_QP_STATE) == 0);
	struct ibv_qp_attr again = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD };
	CHECK(ibv_modify_qp(qp, &again, IBV_QP_STATE | IBV_QP_CUR_STATE) == 0);
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	CHECK(ibv_modify_qp(qp, &reset, IBV_QP_STATE) == 0 && qp->state == IBV_QPS_RESET);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(other) == 0);
}

static void handles(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = index_of_gid },
	};
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah && ah->pd == pd && ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_ah(ah) == 0);
	attr.grh.sgid_index = 127;
	CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL);
	attr.is_global = 0;
	CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL);

	/* A datagram from 127.0.0.2 to the address of the row; the way back leads there. */
	static const uint8_t header[20] = { 0x45, [3] = 60, [8] = 64, 17, 0x7c, 0xae,
					    127, 0, 0, 2, 127, 0, 0, 1 };
	struct ibv_grh grh = { 0 };
	memcpy((char *)&grh + 20, header, sizeof(header));
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .sl = 2 };
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == 0 && attr.is_global == 1);
	CHECK(attr.grh.sgid_index == index_of_gid && attr.grh.dgid.raw[15] == 2);
	ah = ibv_create_ah_from_wc(pd, &wc, &grh, 1);
	CHECK(ah && ibv_destroy_ah(ah) == 0);
	uint8_t mac[6];
	uint16_t vlan = 0;
	attr.grh.dgid = gid;
	CHECK(ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vlan) == 0 && vlan == 0xffff);
}

int main(void)
{
	device();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(pd && cq);
	walk(IBV_QPT_RC);
	walk(IBV_QPT_UC);
	handles();
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
