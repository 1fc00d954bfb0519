/* A process that has no descriptor left: `exhausted seen` has an observer that it cannot answer,
 * and spends no time on it; in `exhausted id` the calls that need one say so. `exhausted threads`
 * can have no other thread. `exhausted listens` and `exhausted called` cannot take what comes to a
 * listener of rdma-cm and to a queue pair, both of iWARP. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <rdma/rdma_cma.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "device.h"

static struct rlimit before;

static void leave_no_descriptor(void)
{
	struct rlimit none;
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = before;
	none.rlim_cur = 0;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	CHECK(open("/dev/null", O_RDONLY) < 0 && errno == EMFILE);
}

static double seconds(clockid_t clock)
{
	struct timespec now;
	CHECK(clock_gettime(clock, &now) == 0);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* A thread that tries again and again takes all the time that it is given. */
static void see_that_nothing_spins(void)
{
	double spent = seconds(CLOCK_PROCESS_CPUTIME_ID), until = seconds(CLOCK_MONOTONIC) + 3;
	while (seconds(CLOCK_MONOTONIC) < until) {
		CHECK(seconds(CLOCK_PROCESS_CPUTIME_ID) < spent + 0.3);
		usleep(20000);
	}
}

static struct ibv_qp *make_qp(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	CHECK(pd && cq);
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	CHECK(qp);
	return qp;
}

static void be_seen(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	char report[256];
	make_qp(ibv_open_device(device_named("weft0")));
	int reader = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(reader >= 0);
	leave_no_descriptor();
	snprintf(name.sun_path, sizeof name.sun_path, "%s/weft/%d-0.sock",
		 getenv("XDG_RUNTIME_DIR"), (int)getpid());
	CHECK(connect(reader, (void *)&name, sizeof name) == 0);
	see_that_nothing_spins();
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK(read(reader, report, sizeof report) > 0);
}

static void make_id(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	CHECK(channel);
	leave_no_descriptor();
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == -1 && errno == EMFILE);
	CHECK(!rdma_get_devices(NULL) && errno == EMFILE);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_destroy_id(id) == 0);
}

/* Nobody's processes are counted and limited; those of root are not. */
static void open_without_threads(void)
{
	struct ibv_device *device = device_named("weft0");
	struct rlimit none = { 0, 0 };
	CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
	if (geteuid() == 0)
		CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	CHECK(!ibv_open_device(device) && errno == EAGAIN);
}

/* Calls `port` from another program's sockets, as it were, once there is no descriptor left. */
static void call_without_descriptors(in_port_t port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = port };
	int calls[4];
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < 4; i++)
		CHECK((calls[i] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	leave_no_descriptor();
	for (int i = 0; i < 4; i++)
		CHECK(connect(calls[i], (void *)&at, sizeof at) == 0);
	see_that_nothing_spins();
}

static void listen_without_descriptors(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct rdma_cm_id *id;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (void *)&at) == 0 && rdma_listen(id, 4) == 0);
	call_without_descriptors(rdma_get_src_port(id));
}

static void be_called_without_descriptors(void)
{
	struct ibv_context *context = ibv_open_device(device_named("weft_iw0"));
	struct ibv_qp *qp = make_qp(context);
	struct ibv_qp_attr begin = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	/* The smaller number is that of who calls. */
	struct ibv_qp_attr join = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 0x100,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 9 } },
	};
	CHECK(ibv_query_gid(context, 1, 0, &join.ah_attr.grh.dgid) == 0);
	CHECK(ibv_modify_qp(qp, &begin, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    IBV_QP_ACCESS_FLAGS) == 0);
	CHECK(ibv_modify_qp(qp, &join, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			    IBV_QP_MIN_RNR_TIMER) == 0);
	call_without_descriptors(htons(qp->qp_num >> 8));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	if (!strcmp(argv[1], "seen"))
		be_seen();
	else if (!strcmp(argv[1], "threads"))
		open_without_threads();
	else if (!strcmp(argv[1], "listens"))
		listen_without_descriptors();
	else if (!strcmp(argv[1], "called"))
		be_called_without_descriptors();
	else
		make_id();
	return 0;
}
