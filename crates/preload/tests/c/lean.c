/* The life of connections, made by hand and by rdma-cm, where memory is short: every verb does what
 * it is to do or says ENOMEM, and as soon as there is memory all of them work again.
 *
 * `lean DEVICE sparse` has an allocation of every so many fail (starve.c); `lean DEVICE short` has
 * no address space to allocate from. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "device.h"

/* Of starve.c. */
unsigned starve(unsigned n) __attribute__((weak));

enum { DEPTH = 20000, OBJECTS = 4000 };

/* Gives up this life if `done` failed, which only lack of memory may make it do. */
#define NEED(done) \
	do { \
		errno = 0; \
		if (!(done)) { \
			CHECK(errno == ENOMEM); \
			return 0; \
		} \
	} while (0)

/* The same, where the C library says EAGAIN if it has no memory for the engine's first thread. */
#define NEED_THREAD(made) \
	do { \
		errno = 0; \
		if (!(made)) { \
			CHECK(errno == ENOMEM || errno == EAGAIN); \
			return 0; \
		} \
	} while (0)

struct life {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp[2];
};

static char memory[8192];

static struct ibv_qp *make_qp(struct life *life, unsigned depth)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	init.send_cq = init.recv_cq = life->cq;
	init.cap.max_send_wr = init.cap.max_recv_wr = depth;
	init.cap.max_send_sge = init.cap.max_recv_sge = 2;
	init.cap.max_inline_data = 64;
	return ibv_create_qp(life->pd, &init);
}

/* Connects `qp` to the queue pair `peer` of this process. */
static int connect_qp(struct life *life, struct ibv_qp *qp, unsigned peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	union ibv_gid gid;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	NEED(ibv_modify_qp(qp, &attr, mask) == 0);
	/* The first identifier of an RNIC is no address. */
	int row = life->context->device->transport_type == IBV_TRANSPORT_IWARP;
	NEED(ibv_query_gid(life->context, 1, row, &gid) == 0);
	struct ibv_qp_attr ready = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024 };
	ready.dest_qp_num = peer;
	ready.max_dest_rd_atomic = 1;
	ready.min_rnr_timer = 12;
	ready.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1 };
	ready.ah_attr.grh = (struct ibv_global_route){ .dgid = gid, .sgid_index = row };
	NEED(ibv_modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	struct ibv_qp_attr send = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7 };
	send.rnr_retry = 7;
	send.max_rd_atomic = 1;
	NEED(ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	return 1;
}

/* A message from one queue pair to the other, and its two completions. */
static int message(struct ibv_qp *from, struct ibv_qp *to, struct ibv_cq *cq, struct ibv_mr *mr)
{
	struct ibv_sge source = { (uintptr_t)memory, 3000, mr->lkey };
	struct ibv_sge target = { (uintptr_t)memory + 4096, 4096, mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &target, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_wc wc;
	memset(memory, 7, 3000);
	memset(memory + 4096, 0, 4096);
	NEED((errno = ibv_post_recv(to, &receive, &bad_receive)) == 0);
	send.send_flags = IBV_SEND_SIGNALED;
	NEED((errno = ibv_post_send(from, &send, &bad)) == 0);
	for (int seen = 0; seen < 2;) {
		int count = ibv_poll_cq(cq, 1, &wc);
		CHECK(count >= 0);
		if (count)
			CHECK(wc.status == IBV_WC_SUCCESS);
		seen += count;
	}
	CHECK(!memcmp(memory, memory + 4096, 3000));
	return 1;
}

/* Everything up to a message, into `life`, of what there is memory for. */
static int live(struct life *life, struct ibv_device *device)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = DEPTH, .max_sge = 2 } };
	struct ibv_device **list;
	NEED(list = ibv_get_device_list(NULL));
	ibv_free_device_list(list);
	NEED_THREAD(life->context = ibv_open_device(device));
	NEED(life->pd = ibv_alloc_pd(life->context));
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	NEED(life->mr = ibv_reg_mr(life->pd, memory, sizeof memory, rights));
	NEED(life->channel = ibv_create_comp_channel(life->context));
	NEED(life->cq = ibv_create_cq(life->context, DEPTH, NULL, life->channel, 0));
	NEED(life->srq = ibv_create_srq(life->pd, &shared));
	for (int i = 0; i < 2; i++)
		NEED(life->qp[i] = make_qp(life, DEPTH));
	for (int i = 0; i < 2; i++)
		if (!connect_qp(life, life->qp[i], life->qp[!i]->qp_num))
			return 0;
	return message(life->qp[0], life->qp[1], life->cq, life->mr);
}

/* Ends what there is, which needs no memory. */
static void end(struct life *life)
{
	for (int i = 0; i < 2; i++)
		CHECK(!life->qp[i] || ibv_destroy_qp(life->qp[i]) == 0);
	CHECK(!life->srq || ibv_destroy_srq(life->srq) == 0);
	CHECK(!life->cq || ibv_destroy_cq(life->cq) == 0);
	CHECK(!life->channel || ibv_destroy_comp_channel(life->channel) == 0);
	CHECK(!life->mr || ibv_dereg_mr(life->mr) == 0);
	CHECK(!life->pd || ibv_dealloc_pd(life->pd) == 0);
	CHECK(!life->context || ibv_close_device(life->context) == 0);
	*life = (struct life){};
}

struct meeting {
	struct rdma_event_channel *channel[2];
	struct rdma_cm_id *listener, *id[2];
	struct ibv_mr *mr;
};

/* Waits for the next event, which must be of this type; gives its id. */
static struct rdma_cm_id *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	errno = 0;
	if (rdma_get_cm_event(channel, &event))
		return NULL;
	if (event->event != type)
		fprintf(stderr, "%s (%d)\n", rdma_event_str(event->event), event->status);
	CHECK(event->event == type);
	struct rdma_cm_id *id = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static int give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	init.cap.max_send_wr = init.cap.max_recv_wr = 16;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	NEED(rdma_create_qp(id, NULL, &init) == 0);
	return 1;
}

static int meet(struct meeting *meeting)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct rdma_conn_param param = { .responder_resources = 1, .retry_count = 7 };
	any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < 2; i++)
		NEED_THREAD(meeting->channel[i] = rdma_create_event_channel());
	struct rdma_event_channel *here = meeting->channel[0], *there = meeting->channel[1];
	NEED(rdma_create_id(here, &meeting->listener, NULL, RDMA_PS_TCP) == 0);
	NEED(rdma_bind_addr(meeting->listener, (struct sockaddr *)&any) == 0);
	NEED(rdma_listen(meeting->listener, 4) == 0);
	NEED(rdma_create_id(there, &meeting->id[1], NULL, RDMA_PS_TCP) == 0);
	struct sockaddr *at = rdma_get_local_addr(meeting->listener);
	NEED(rdma_resolve_addr(meeting->id[1], NULL, at, 2000) == 0);
	NEED(next(there, RDMA_CM_EVENT_ADDR_RESOLVED));
	NEED(rdma_resolve_route(meeting->id[1], 2000) == 0);
	NEED(next(there, RDMA_CM_EVENT_ROUTE_RESOLVED));
	if (!give_qp(meeting->id[1]))
		return 0;
	NEED(rdma_connect(meeting->id[1], &param) == 0);
	NEED(meeting->id[0] = next(here, RDMA_CM_EVENT_CONNECT_REQUEST));
	if (!give_qp(meeting->id[0]))
		return 0;
	NEED(rdma_accept(meeting->id[0], &param) == 0);
	NEED(next(there, RDMA_CM_EVENT_ESTABLISHED));
	NEED(next(here, RDMA_CM_EVENT_ESTABLISHED));
	return 1;
}

static void part(struct meeting *meeting)
{
	for (int i = 0; i < 2; i++) {
		if (meeting->id[i] && meeting->id[i]->qp)
			rdma_destroy_qp(meeting->id[i]);
		CHECK(!meeting->id[i] || rdma_destroy_id(meeting->id[i]) == 0);
	}
	CHECK(!meeting->listener || rdma_destroy_id(meeting->listener) == 0);
	for (int i = 0; i < 2; i++)
		if (meeting->channel[i])
			rdma_destroy_event_channel(meeting->channel[i]);
	*meeting = (struct meeting){};
}

static void sparse(struct ibv_device *device)
{
	static const unsigned rates[] = { 1, 2, 3, 5, 7, 11, 17, 29, 53 };
	unsigned refused = 0;
	struct life first = {};
	/* The machine's addresses are known. */
	CHECK(live(&first, device));
	end(&first);
	for (unsigned i = 0; i < sizeof rates / sizeof *rates; i++) {
		struct life life = {};
		struct meeting meeting = {};
		int lived = 0, met = 0;
		starve(rates[i]);
		/* Where not every piece is refused, it works sooner or later. */
		do {
			lived |= live(&life, device);
			met |= meet(&meeting);
			part(&meeting);
			end(&life);
		} while (i > 0 && !(lived && met));
		refused += starve(0);
		CHECK(live(&life, device) && meet(&meeting));
		part(&meeting);
		end(&life);
	}
	CHECK(refused > 100);
}

/* Leaves this process the address space that it has. */
static void run_short(void)
{
	unsigned long pages;
	FILE *statm = fopen("/proc/self/statm", "r");
	CHECK(statm && fscanf(statm, "%lu", &pages) == 1);
	fclose(statm);
	struct rlimit limit = { .rlim_max = RLIM_INFINITY };
	limit.rlim_cur = pages * sysconf(_SC_PAGESIZE);
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	/* What the C library has at hand goes too. */
	static void *hoard[1 << 20];
	int kept = 0;
	for (size_t size = 1 << 16; size >= 16; size /= 2)
		while (kept < 1 << 20 && (hoard[kept] = malloc(size)))
			kept++;
	CHECK(kept < 1 << 20);
}

static void breathe(void)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static struct ibv_qp *crowd[OBJECTS];
static struct ibv_mr *regions[10 * OBJECTS];

/* Makes queue pairs and regions until there is no memory for any; gives how many it got. */
static unsigned fill(struct life *life)
{
	unsigned made = 0, registered = 0;
	errno = 0;
	while (made < OBJECTS && (crowd[made] = make_qp(life, 16)))
		made++;
	CHECK(made < OBJECTS && errno == ENOMEM);
	while (registered < 10 * OBJECTS &&
		(regions[registered] = ibv_reg_mr(life->pd, memory, sizeof memory, 0)))
		registered++;
	CHECK(registered < 10 * OBJECTS && errno == ENOMEM);
	CHECK(!ibv_alloc_pd(life->context) && errno == ENOMEM);
	CHECK(!ibv_create_cq(life->context, 10, NULL, NULL, 0) && errno == ENOMEM);
	CHECK(!rdma_create_event_channel() && errno == ENOMEM);
	return made + registered;
}

static void empty(void)
{
	for (int i = 0; i < OBJECTS && crowd[i]; i++)
		CHECK(ibv_destroy_qp(crowd[i]) == 0);
	for (int i = 0; i < 10 * OBJECTS && regions[i]; i++)
		CHECK(ibv_dereg_mr(regions[i]) == 0);
	memset(crowd, 0, sizeof crowd);
	memset(regions, 0, sizeof regions);
}

/* Memory of the device that was there before is there, and no more. */
static void device_memory(struct ibv_context *context, struct ibv_dm *dm)
{
	static char text[1 << 20], back[1 << 20];
	struct ibv_alloc_dm_attr more = { .length = 1 << 20 };
	memset(text, 9, sizeof text);
	CHECK(ibv_memcpy_to_dm(dm, 0, text, sizeof text) == 0);
	CHECK(ibv_memcpy_from_dm(back, dm, 0, sizeof back) == 0 && !memcmp(text, back, sizeof back));
	CHECK(!ibv_alloc_dm(context, &more) && errno == ENOMEM);
}

static void without_memory(struct ibv_device *device)
{
	struct life life = {}, other = {};
	struct meeting meeting = {};
	CHECK(live(&life, device));
	struct ibv_alloc_dm_attr some = { .length = 1 << 20 };
	struct ibv_dm *dm = ibv_alloc_dm(life.context, &some);
	CHECK(dm);
	run_short();
	/* There is no room for it, although the reserve is whole. */
	CHECK(!ibv_alloc_dm(life.context, &some) && errno == ENOMEM);
	fprintf(stderr, "%u objects in the reserve\n", fill(&life));
	/* What was connected before goes on, and ends. */
	for (int i = 0; i < 100; i++)
		message(life.qp[i % 2], life.qp[!(i % 2)], life.cq, life.mr);
	device_memory(life.context, dm);
	CHECK(!live(&other, device) && !meet(&meeting));
	end(&other);
	part(&meeting);
	empty();
	CHECK(ibv_free_dm(dm) == 0);
	end(&life);
	breathe();
	CHECK(live(&life, device) && meet(&meeting));
	part(&meeting);
	end(&life);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	struct ibv_device *device = device_named(argv[1]);
	if (!strcmp(argv[2], "sparse"))
		sparse(device);
	else
		without_memory(device);
	return 0;
}
