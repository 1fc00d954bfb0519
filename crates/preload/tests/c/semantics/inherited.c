/* A child that posts on what it has inherited, or polls it, is told so at once, whatever the
 * threads of the parent were at when it was forked, and the connection of the parent stays. So is a
 * child that was made by the system call, of which the C library does not tell. */
#include "pair.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { FORKS = 40 };

static struct ibv_srq *srq;
static atomic_int over;

/* Posts all the time, so that forks find the locks of the queue held. */
static void *busy(void *argument)
{
	while (!over) {
		receive(b, 1, 0, 8);
		post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 8, 0);
		ends(a, 2, IBV_WC_SUCCESS);
		ends(b, 1, IBV_WC_SUCCESS);
	}
	return argument;
}

static void be_child(void)
{
	struct ibv_sge sge = place(0, 8);
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive = NULL;
	struct ibv_send_wr *bad = NULL;
	struct ibv_wc wc;
	alarm(120);
	for (int i = 0; i < 3; i++) {
		enum ibv_wr_opcode opcode = i ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
		struct ibv_send_wr wr = request(opcode, i, IBV_SEND_SIGNALED, &sge, 0);
		CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr);
		CHECK(ibv_post_recv(b.qp, &receive, &bad_receive) == EINVAL);
		CHECK(bad_receive == &receive);
		CHECK(ibv_post_srq_recv(srq, &receive, &bad_receive) == EINVAL);
		CHECK(ibv_poll_cq(a.cq, 1, &wc) < 0 && ibv_poll_cq(b.cq, 1, &wc) < 0);
		CHECK(ibv_req_notify_cq(a.cq, 0) == 0 && ibv_resize_cq(b.cq, 512) == EINVAL);
	}
	_exit(0);
}

/* `child` is 0 in the child itself. */
static void have_child(pid_t child)
{
	int status;
	if (child == 0)
		be_child();
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	srq = ibv_create_srq(pd, &attr);
	pthread_t thread;
	CHECK(srq && pthread_create(&thread, NULL, busy, NULL) == 0);
	for (int i = 0; i < FORKS; i++)
		have_child(fork());
	over = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	have_child(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
	CHECK(ibv_destroy_srq(srq) == 0);
	part();
	return finish();
}
