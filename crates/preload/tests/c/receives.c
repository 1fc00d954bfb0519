/* Two processes: messages that find no receive, and a peer that is killed. */
#include "device.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seconds that a busy machine may need besides the timers; less than a peer's silence of 30 s. */
enum { LATE = 25 };

/* What each side tells the other. */
struct address {
	uint32_t number;
	union ibv_gid gid;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static uint64_t memory[16];
static struct address own;
static int index_of_gid;

static void open_device(void)
{
	static const uint8_t loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	struct ibv_gid_entry table[128];
	context = ibv_open_device(device_named("weft0"));
	CHECK(context);
	int rows = ibv_query_gid_table(context, table, 128, 0);
	for (int i = 0; i < rows; i++)
		if (!memcmp(table[i].gid.raw, loopback, sizeof(loopback)))
			index_of_gid = i, own.gid = table[i].gid;
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && cq && mr);
}

static struct ibv_qp *connected(int other, int shares, int rnr_retry, int timer, int timeout)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct address peer;
	open_device();
	if (shares)
		CHECK((srq = ibv_create_srq(pd, &shared)));
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	own.number = qp->qp_num;
	CHECK(write(other, &own, sizeof(own)) == sizeof(own));
	CHECK(read(other, &peer, sizeof(peer)) == sizeof(peer));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer.number,
		.max_dest_rd_atomic = 1, .min_rnr_timer = timer,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = peer.gid, .sgid_index = index_of_gid } },
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = 1,
		.rnr_retry = rnr_retry, .max_rd_atomic = 1,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					IBV_QP_MAX_QP_RD_ATOMIC));
	return qp;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void post_send(struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void post_recv(struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)(memory + 8), 8, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!(srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad)));
}

static enum ibv_wc_status completed(void)
{
	struct ibv_wc wc;
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	return wc.status;
}

static enum ibv_qp_state state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static char hear(int other)
{
	char what;
	CHECK(read(other, &what, 1) == 1);
	return what;
}

static void say(int other, char what)
{
	CHECK(write(other, &what, 1) == 1);
}

/* The receiver posts a receive when it is told to, and says what state it is in. */
static void receive(int other, int shares, int timer)
{
	struct ibv_qp *qp = connected(other, shares, 7, timer, 0);
	for (char what; (what = hear(other)) != 'e';) {
		if (what == 'r')
			post_recv(qp);
		if (what == 'c')
			CHECK(completed() == IBV_WC_SUCCESS);
		say(other, state(qp) == IBV_QPS_RTS ? 'y' : 'n');
	}
	exit(0);
}

static char ask(int other, char what)
{
	say(other, what);
	return hear(other);
}

static pid_t peer(int *other, int shares, int timer)
{
	int ends[2];
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	pid_t child = fork();
	CHECK(child >= 0);
	*other = ends[child == 0];
	close(ends[child != 0]);
	if (child == 0)
		receive(*other, shares, timer);
	return child;
}

/* Row 26 is 81.92 ms; twice that, and the peer stays in RTS. */
static void retries_run_out(int shares)
{
	int other, status;
	pid_t child = peer(&other, shares, 26);
	struct ibv_qp *qp = connected(other, 0, 1, 1, 0);
	CHECK(ask(other, 'r') == 'y');
	post_send(qp);
	CHECK(completed() == IBV_WC_SUCCESS && ask(other, 'c') == 'y');
	double begun = now();
	post_send(qp);
	post_send(qp);
	CHECK(completed() == IBV_WC_RNR_RETRY_EXC_ERR);
	double took = now() - begun;
	CHECK(took > 0.16 && took < LATE);
	CHECK(completed() == IBV_WC_WR_FLUSH_ERR && state(qp) == IBV_QPS_ERR);
	CHECK(ask(other, '?') == 'y');
	say(other, 'e');
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void seven_is_for_ever(void)
{
	int other, status;
	struct ibv_wc wc;
	pid_t child = peer(&other, 0, 1);
	struct ibv_qp *qp = connected(other, 0, 7, 1, 0);
	post_send(qp);
	for (double begun = now(); now() < begun + 0.5;)
		CHECK(!ibv_poll_cq(cq, 1, &wc));
	CHECK(ask(other, 'r') == 'y');
	CHECK(completed() == IBV_WC_SUCCESS && ask(other, 'c') == 'y');
	say(other, 'e');
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* A timeout of 2^18 times 4.096 us twice is 2.1 s. */
static void a_killed_peer_is_missed(void)
{
	int other, status;
	pid_t child = peer(&other, 0, 1);
	struct ibv_qp *qp = connected(other, 0, 7, 1, 18);
	CHECK(ask(other, 'r') == 'y');
	post_send(qp);
	CHECK(completed() == IBV_WC_SUCCESS);
	double begun = now();
	CHECK(!kill(child, SIGKILL) && waitpid(child, &status, 0) == child);
	post_send(qp);
	CHECK(completed() == IBV_WC_RETRY_EXC_ERR);
	double took = now() - begun;
	CHECK(took > 1.9 && took < LATE);
	CHECK(state(qp) == IBV_QPS_ERR);
}

/* Each case is a process, so that it has a device of its own. */
int main(void)
{
	for (int i = 0; i < 4; i++) {
		int status;
		pid_t child = fork();
		if (child == 0) {
			if (i < 2)
				retries_run_out(i);
			else if (i == 2)
				seven_is_for_ever();
			else
				a_killed_peer_is_missed();
			return 0;
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	return 0;
}
