/* Two queue pairs of one device that are each other's peers, in one process. The first argument of
 * the program names the device. Order: begin, pair, ..., part, finish. */
#include "../device.h"

#include <fcntl.h>
#include <unistd.h>

enum {
	EVERY = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
	ROOM = 4 << 20,
};

/* A queue pair and where all its requests complete. */
struct side {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static int adapter;
/* Both sides use this memory, whose places are named by their offsets. */
static char memory[ROOM] __attribute__((aligned(4096)));
static struct ibv_mr *mr;
static struct side a, b;
/* What queue pairs are made with. */
static struct ibv_qp_init_attr wanted = {
	.qp_type = IBV_QPT_RC,
	.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4,
		 .max_inline_data = 64 },
};

static inline void begin(int argc, char **argv)
{
	CHECK(argc == 2);
	adapter = !strcmp(argv[1], "weft0");
	context = ibv_open_device(device_named(argv[1]));
	CHECK(context && fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
	pd = ibv_alloc_pd(context);
	mr = ibv_reg_mr(pd, memory, ROOM, EVERY);
	CHECK(pd && mr);
}

static inline struct ibv_cq *make_cq(int room)
{
	struct ibv_cq *cq = ibv_create_cq(context, room, NULL, NULL, 0);
	CHECK(cq);
	return cq;
}

static inline struct ibv_qp *make_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = wanted;
	init.send_cq = init.recv_cq = cq;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = EVERY & ~IBV_ACCESS_MW_BIND,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_ACCESS_FLAGS));
}

/* An adapter's row is that of loopback; an RNIC's is the first address of the machine. */
static inline int row(union ibv_gid *gid)
{
	static const uint8_t loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	struct ibv_gid_entry table[128];
	int rows = ibv_query_gid_table(context, table, 128, 0), found = 1;
	for (int i = 0; i < rows && adapter; i++)
		if (!memcmp(table[i].gid.raw, loopback, sizeof(loopback)))
			found = i;
	CHECK(rows > found);
	*gid = table[found].gid;
	return found;
}

static inline void to_rtr(struct ibv_qp *qp, uint32_t number)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	attr.ah_attr.grh.sgid_index = row(&attr.ah_attr.grh.dgid);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

static inline void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 16,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void join(struct ibv_qp *one, struct ibv_qp *other)
{
	to_init(one);
	to_init(other);
	to_rtr(one, other->qp_num);
	to_rtr(other, one->qp_num);
	to_rts(one);
	to_rts(other);
}

static inline void pair(void)
{
	a.cq = make_cq(256), b.cq = make_cq(256);
	a.qp = make_qp(a.cq), b.qp = make_qp(b.cq);
	join(a.qp, b.qp);
}

static inline void part(void)
{
	CHECK(ibv_destroy_qp(a.qp) == 0 && ibv_destroy_qp(b.qp) == 0);
	CHECK(ibv_destroy_cq(a.cq) == 0 && ibv_destroy_cq(b.cq) == 0);
}

static inline int finish(void)
{
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}

static inline struct ibv_wc next(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;
	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(count == 1);
	return wc;
}

/* The next completion, which must be of that request and end so. */
static inline struct ibv_wc ends(struct side side, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = next(side.cq);
	if (wc.wr_id != wr_id || wc.status != status)
		fprintf(stderr, "%d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
	CHECK(wc.wr_id == wr_id && wc.status == status && wc.qp_num == side.qp->qp_num);
	return wc;
}

/* A request between two places of the memory. */
static inline struct ibv_send_wr request(enum ibv_wr_opcode opcode, uint64_t wr_id, int flags,
					 struct ibv_sge *sge, uint64_t to)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = flags,
	};
	int atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	if (atomic)
		wr.wr.atomic.remote_addr = (uintptr_t)memory + to, wr.wr.atomic.rkey = mr->rkey;
	else
		wr.wr.rdma.remote_addr = (uintptr_t)memory + to, wr.wr.rdma.rkey = mr->rkey;
	return wr;
}

static inline struct ibv_sge place(uint64_t from, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)memory + from, length, mr->lkey };
}

static inline void post(struct side side, enum ibv_wr_opcode opcode, uint64_t wr_id, int flags,
			uint64_t from, uint32_t length, uint64_t to)
{
	struct ibv_sge sge = place(from, length);
	struct ibv_send_wr wr = request(opcode, wr_id, flags, &sge, to), *bad;
	CHECK(ibv_post_send(side.qp, &wr, &bad) == 0);
}

static inline void receive(struct side side, uint64_t wr_id, uint64_t to, uint32_t length)
{
	struct ibv_sge sge = place(to, length);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(side.qp, &wr, &bad) == 0);
}

static inline int modify(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static inline enum ibv_qp_state state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

/* Waits for an event of that type, and acknowledges others. */
static inline struct ibv_async_event await(enum ibv_event_type type)
{
	struct ibv_async_event event;
	for (;;) {
		if (ibv_get_async_event(context, &event)) {
			CHECK(errno == EAGAIN);
			continue;
		}
		if (event.event_type == type)
			return event;
		ibv_ack_async_event(&event);
	}
}

static inline int no_event(void)
{
	struct ibv_async_event event;
	return ibv_get_async_event(context, &event) == -1 && errno == EAGAIN;
}
