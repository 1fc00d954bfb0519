/* A child may end what it has inherited whatever other threads of its parent were doing with it at
 * the fork, and takes no event that is the parent's. */
#include "pair.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { CHILDREN = 100 };

static atomic_int ends_now;

static void *polls(void *none)
{
	struct ibv_wc wc;
	(void)none;
	while (!ends_now)
		CHECK(!ibv_poll_cq(a.cq, 1, &wc) && !ibv_poll_cq(b.cq, 1, &wc));
	return NULL;
}

static void be_child(struct ibv_qp *told, struct ibv_cq *tells, struct ibv_comp_channel *channel)
{
	/* Ends the child, not the test, should it wait for ever. */
	alarm(120);
	CHECK(ibv_destroy_qp(told) == 0 && ibv_destroy_cq(tells) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	part();
	_exit(finish());
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel);
	struct ibv_cq *tells = ibv_create_cq(context, 4, NULL, channel, 0);
	CHECK(tells && ibv_req_notify_cq(tells, 0) == 0);
	struct ibv_qp *told = make_qp(tells);
	to_init(told);
	struct ibv_sge sge = place(0, 8);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(told, &wr, &bad) == 0 && modify(told, IBV_QPS_ERR) == 0);
	struct pollfd readable = { channel->fd, POLLIN, 0 };
	CHECK(poll(&readable, 1, -1) == 1);
	pair();

	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, polls, NULL) == 0);
	for (int i = 0; i < CHILDREN; i++) {
		int status;
		pid_t child = fork();
		if (child == 0)
			be_child(told, tells, channel);
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	}
	ends_now = 1;
	CHECK(pthread_join(thread, NULL) == 0);

	struct ibv_cq *cq;
	void *none;
	CHECK(poll(&readable, 1, 0) == 1 && ibv_get_cq_event(channel, &cq, &none) == 0);
	CHECK(cq == tells);
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_destroy_qp(told) == 0 && ibv_destroy_cq(tells) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	part();
	return finish();
}
