/* Peers are killed at any moment: each request of the one that is left ends once and in its turn,
 * and its other connections go on, whoever it forks. */
#include "pair.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { PEERS = 3, DEPTH = 16 };

struct call {
	uint32_t number, key;
	uint64_t at;
};

/* Connects a queue pair to one of another process, which tells its own by the same socket. */
static struct call meet(struct side *side, int other)
{
	*side = (struct side){ .cq = make_cq(64) };
	side->qp = make_qp(side->cq);
	struct call own = { side->qp->qp_num, mr->rkey, (uintptr_t)memory }, call;
	to_init(side->qp);
	CHECK(write(other, &own, sizeof(own)) == sizeof(own));
	CHECK(read(other, &call, sizeof(call)) == sizeof(call));
	to_rtr(side->qp, call.number);
	to_rts(side->qp);
	return call;
}

static void write_to(struct side side, struct call call, uint64_t wr_id)
{
	struct ibv_sge sge = place(0, 4096);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, wr_id, IBV_SEND_SIGNALED, &sge, 0), *bad;
	wr.wr.rdma.remote_addr = call.at + 65536, wr.wr.rdma.rkey = call.key;
	CHECK(ibv_post_send(side.qp, &wr, &bad) == 0);
}

/* A peer writes for as long as it lives. */
static void peer(int argc, char **argv, int other)
{
	struct side side;
	begin(argc, argv);
	struct call call = meet(&side, other);
	for (uint64_t i = 0;; i++) {
		write_to(side, call, i);
		if (next(side.cq).status != IBV_WC_SUCCESS)
			exit(1);
	}
}

/* Keeps the queue full until it fails; everything posted ends in its turn. */
static void use(struct side side, struct call call, pid_t child)
{
	uint64_t posted = 0, ended = 0;
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	int killed_at = rand() % 3000;
	while (status == IBV_WC_SUCCESS || ended < posted) {
		while (status == IBV_WC_SUCCESS && posted < ended + DEPTH)
			write_to(side, call, posted++);
		if ((int)posted >= killed_at && child) {
			CHECK(kill(child, SIGKILL) == 0);
			child = 0;
		}
		struct ibv_wc wc = next(side.cq);
		CHECK(wc.wr_id == ended++);
		CHECK(status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
		status = wc.status;
	}
	CHECK(!child && state(side.qp) == IBV_QPS_ERR);
	CHECK(ibv_destroy_qp(side.qp) == 0 && ibv_destroy_cq(side.cq) == 0);
}

static void exchange_once(void)
{
	receive(b, 1, 64, 8);
	post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 8, 0);
	ends(b, 1, IBV_WC_SUCCESS);
	ends(a, 2, IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	pid_t children[PEERS];
	int sockets[PEERS][2], status;
	for (int i = 0; i < PEERS; i++) {
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets[i]) == 0);
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0)
			peer(argc, argv, sockets[i][1]);
	}
	begin(argc, argv);
	pair();
	srand(7);
	for (int i = 0; i < PEERS; i++) {
		struct side side;
		struct call call = meet(&side, sockets[i][0]);
		use(side, call, children[i]);
		CHECK(waitpid(children[i], &status, 0) == children[i] && WTERMSIG(status) == SIGKILL);
		exchange_once();
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		exchange_once();
	}
	part();
	return finish();
}
