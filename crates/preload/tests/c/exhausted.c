/* A process that has no descriptor left: `exhausted seen` has an observer that it cannot answer,
 * and spends no time on it; in `exhausted id` the calls that need one say so. `exhausted listens`
 * and `exhausted called` cannot take what comes to a listener of rdma-cm and to a queue pair, both
 * of iWARP. `exhausted last` has one descriptor left for who calls its listener, and `exhausted
 * denied` may accept nobody. `exhausted threads` can have no other thread, and `exhausted
 * forbidden` may have none. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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

static in_port_t listening(struct rdma_event_channel *channel)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct rdma_cm_id *id;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (void *)&at) == 0 && rdma_listen(id, 4) == 0);
	return rdma_get_src_port(id);
}

static void listen_without_descriptors(void)
{
	call_without_descriptors(listening(rdma_create_event_channel()));
}

/* Asks as an initiator of MPA, and stays until the other end closes. */
static void ask(in_port_t port)
{
	static const char request[] = "MPA ID Req Frame\x50\2\0\4\0\1\0\1";
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = port };
	char octet;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int call = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(call, (void *)&at, sizeof at) == 0);
	CHECK(write(call, request, sizeof request - 1) == sizeof request - 1);
	(void)!read(call, &octet, 1);
	_exit(0);
}

/* A child asks, which ends only if its stream is closed. */
static void listen_with_one_descriptor(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	int port[2], alive[2], last = -1, next;
	CHECK(pipe(port) == 0 && pipe(alive) == 0);
	if (fork() == 0) {
		in_port_t at;
		close(alive[0]);
		CHECK(read(port[0], &at, sizeof at) == sizeof at);
		ask(at);
	}
	close(alive[1]);
	in_port_t at = listening(channel);
	struct rlimit few = { 300, 300 };
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	while ((next = open("/dev/null", O_RDONLY)) >= 0)
		last = next;
	CHECK(errno == EMFILE && close(last) == 0);
	struct pollfd news[2] = { { channel->fd, POLLIN, 0 }, { alive[0], POLLIN, 0 } };
	CHECK(write(port[1], &at, sizeof at) == sizeof at);
	CHECK(poll(news, 2, -1) > 0 && (news[0].revents & POLLIN));
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	_exit(0);
}

static void forbid(unsigned call)
{
	struct sock_filter lines[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof lines / sizeof *lines, lines };
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static void open_where_threads_are_forbidden(void)
{
	struct ibv_device *device = device_named("weft0");
	forbid(SYS_clone3);
	forbid(SYS_clone);
	CHECK(!ibv_open_device(device) && errno == EPERM);
}

static void listen_where_nobody_may_be_accepted(void)
{
	forbid(SYS_accept4);
	struct sockaddr_in at = { .sin_family = AF_INET };
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	at.sin_port = listening(rdma_create_event_channel());
	int call = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(call, (void *)&at, sizeof at) == 0);
	see_that_nothing_spins();
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
	else if (!strcmp(argv[1], "last"))
		listen_with_one_descriptor();
	else if (!strcmp(argv[1], "forbidden"))
		open_where_threads_are_forbidden();
	else if (!strcmp(argv[1], "denied"))
		listen_where_nobody_may_be_accepted();
	else if (!strcmp(argv[1], "called"))
		be_called_without_descriptors();
	else
		make_id();
	return 0;
}
