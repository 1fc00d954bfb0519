/* A process that has no descriptor left: `exhausted seen` has an observer that it cannot answer,
 * and spends no time on it; in `exhausted id` the calls that need one say so. */
#include <fcntl.h>
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

static void make_pair(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	CHECK(pd && cq && ibv_create_qp(pd, &attr));
}

static void be_seen(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	char report[256];
	make_pair(ibv_open_device(device_named("weft0")));
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

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	if (!strcmp(argv[1], "seen"))
		be_seen();
	else
		make_id();
	return 0;
}
