/* Several devices, by WEFT_DEVICES=3,weft1=127.0.0.2: what is one device's is no other's, and they
 * reach each other. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>

#include "device.h"

enum { DEVICES = 3, BYTES = 4096 };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	union ibv_gid gid;
	char memory[BYTES];
};

static struct end ends[DEVICES];

static void open_device(struct end *end, const char *name)
{
	end->context = ibv_open_device(device_named(name));
	CHECK(end->context);
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, 16, NULL, NULL, 0);
	CHECK(end->pd && end->cq);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	end->mr = ibv_reg_mr(end->pd, end->memory, BYTES, access);
	CHECK(end->mr);
}

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_cq *send, struct ibv_cq *recv,
			   struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send, .recv_cq = recv, .srq = srq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	return ibv_create_qp(pd, &init);
}

/* The row of loopback's address that begins with that of the device, 127.0.0.`last`. */
static int row(struct end *end, uint8_t last)
{
	struct ibv_gid_entry table[128];
	ssize_t rows = ibv_query_gid_table(end->context, table, 128, 0);
	CHECK(rows > 0);
	for (int i = 0; i < rows; i++) {
		const uint8_t *raw = table[i].gid.raw;
		if (raw[10] == 0xff && raw[12] == 127 && raw[15] == last)
			return i;
	}
	return -1;
}

/* Objects of two devices do not go together. */
static void apart(void)
{
	struct end *a = &ends[0], *b = &ends[1];
	CHECK(!make(a->pd, b->cq, b->cq, NULL) && errno == EINVAL);
	CHECK(!make(a->pd, a->cq, b->cq, NULL) && errno == EINVAL);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(b->pd, &init);
	CHECK(srq && !make(a->pd, a->cq, a->cq, srq) && errno == EINVAL);
	CHECK(ibv_destroy_srq(srq) == 0);
	CHECK(ibv_rereg_mr(a->mr, IBV_REREG_MR_CHANGE_PD, b->pd, NULL, 0, 0) != 0);
	CHECK(errno == EINVAL && a->mr->pd == a->pd);
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(b->context, &domain);
	struct ibv_srq_init_attr_ex extended = {
		.attr = { .max_wr = 4, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = a->pd,
		.xrcd = xrcd, .cq = a->cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ,
	};
	CHECK(xrcd && !ibv_create_srq_ex(a->context, &extended) && errno == EINVAL);
	CHECK(ibv_close_xrcd(xrcd) == 0);
}

static void lead(struct end *from, int row, struct end *to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	CHECK(ibv_modify_qp(from->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    IBV_QP_ACCESS_FLAGS) == 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp->qp_num,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = to->gid, .sgid_index = row, .hop_limit = 9 } },
	};
	CHECK(ibv_modify_qp(from->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			    IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 7,
		.max_rd_atomic = 2,
	};
	CHECK(ibv_modify_qp(from->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static enum ibv_wc_status write_with(struct end *from, struct ibv_mr *mr, struct end *to)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = BYTES, .lkey = mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)to->memory, .rkey = to->mr->rkey },
	}, *bad;
	CHECK(ibv_post_send(from->qp, &wr, &bad) == 0);
	struct ibv_wc wc;
	int found;
	while ((found = ibv_poll_cq(from->cq, 1, &wc)) == 0)
		;
	CHECK(found == 1);
	return wc.status;
}

/* weft1, which has an address of its own, and weft2 reach each other; a key of weft0 does not. */
static void together(void)
{
	struct end *a = &ends[1], *b = &ends[2];
	int own = row(a, 2), other = row(b, 1);
	CHECK(own >= 0 && other >= 0 && row(a, 1) < 0 && row(b, 2) < 0);
	CHECK(ibv_query_gid(a->context, 1, own, &a->gid) == 0);
	CHECK(ibv_query_gid(b->context, 1, other, &b->gid) == 0);
	a->qp = make(a->pd, a->cq, a->cq, NULL);
	b->qp = make(b->pd, b->cq, b->cq, NULL);
	CHECK(a->qp && b->qp);
	lead(a, own, b);
	lead(b, other, a);
	memset(a->memory, 'a', BYTES);
	CHECK(write_with(a, a->mr, b) == IBV_WC_SUCCESS);
	CHECK(!memcmp(a->memory, b->memory, BYTES));
	CHECK(write_with(a, ends[0].mr, b) == IBV_WC_LOC_PROT_ERR);
}

/* An id is bound to the device that has its address. */
static void by_address(const char *address, const char *name)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	struct rdma_cm_id *listener, *id;
	CHECK(inet_pton(AF_INET, address, &addr.sin_addr) == 1);
	CHECK(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&addr) == 0);
	CHECK(rdma_listen(listener, 1) == 0);
	struct sockaddr_in to = addr;
	to.sin_port = rdma_get_src_port(listener);
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, (struct sockaddr *)&addr, (struct sockaddr *)&to, 2000) == 0);
	CHECK(id->verbs && !strcmp(ibv_get_device_name(id->verbs->device), name));
	CHECK(id->pd && id->pd->context == id->verbs);
	CHECK(rdma_destroy_id(id) == 0 && rdma_destroy_id(listener) == 0);
}

int main(void)
{
	char name[8];
	uint64_t guids[DEVICES];
	for (int i = 0; i < DEVICES; i++) {
		sprintf(name, "weft%d", i);
		open_device(&ends[i], name);
		struct ibv_device_attr attr;
		CHECK(ibv_query_device(ends[i].context, &attr) == 0);
		guids[i] = attr.node_guid;
		CHECK(guids[i] == ibv_get_device_guid(ends[i].context->device));
		for (int j = 0; j < i; j++)
			CHECK(guids[j] != guids[i]);
	}
	apart();
	together();
	by_address("127.0.0.1", "weft0");
	by_address("127.0.0.2", "weft1");
	return 0;
}
