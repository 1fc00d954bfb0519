/* One event for each arming, and none for what is there already, unless it came after the last poll
 * for an empty queue; who reads waits, is interrupted or
 * goes away as its descriptor says; a queue is destroyed when its events are acknowledged. */
#include "pair.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

static struct ibv_comp_channel *channel;
static atomic_int acknowledged;

static int taken(void)
{
	struct ibv_cq *cq = NULL;
	void *word = NULL;
	if (ibv_get_cq_event(channel, &cq, &word))
		return -errno;
	CHECK(cq == b.cq && word == &channel);
	return 1;
}

static void message(void)
{
	receive(b, 1, 0, 8);
	post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 8, 0);
	ends(a, 2, IBV_WC_SUCCESS);
}

static void on_signal(int number)
{
	(void)number;
}

static void interrupted(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct itimerval often = { { 0, 5000 }, { 0, 5000 } }, never = { { 0, 0 }, { 0, 0 } };
	CHECK(sigaction(SIGALRM, &action, NULL) == 0 && !setitimer(ITIMER_REAL, &often, NULL));
	CHECK(taken() == -EINTR && !setitimer(ITIMER_REAL, &never, NULL));
}

static void *acknowledge(void *unused)
{
	usleep(20000);
	acknowledged = 1;
	ibv_ack_cq_events(b.cq, 3);
	return unused;
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	channel = ibv_create_comp_channel(context);
	CHECK(channel);
	a.cq = make_cq(16), b.cq = ibv_create_cq(context, 16, &channel, channel, 0);
	CHECK(b.cq);
	a.qp = make_qp(a.cq), b.qp = make_qp(b.cq);
	join(a.qp, b.qp);
	interrupted();
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	CHECK(poll(&ready, 1, 0) == 0);

	/* Blocked until there is one; the engine brings it. */
	CHECK(ibv_req_notify_cq(b.cq, 0) == 0);
	message();
	CHECK(taken() == 1);
	ends(b, 1, IBV_WC_SUCCESS);
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);

	/* Not armed: nothing. Armed with one there: nothing before the next, and once. */
	message();
	ends(b, 1, IBV_WC_SUCCESS);
	CHECK(taken() == -EAGAIN);
	receive(b, 3, 0, 8);
	receive(b, 3, 0, 8);
	CHECK(modify(b.qp, IBV_QPS_ERR) == 0 && ibv_req_notify_cq(b.cq, 0) == 0);
	CHECK(taken() == -EAGAIN);
	receive(b, 4, 0, 8);
	receive(b, 4, 0, 8);
	CHECK(poll(&ready, 1, 10000) == 1 && taken() == 1 && taken() == -EAGAIN);

	/* Polled, and armed too late for what comes next: it counts. */
	struct ibv_wc wc;
	while (ibv_poll_cq(b.cq, 1, &wc))
		;
	receive(b, 5, 0, 8);
	CHECK(ibv_req_notify_cq(b.cq, 0) == 0);
	CHECK(poll(&ready, 1, 10000) == 1 && taken() == 1 && taken() == -EAGAIN);

	CHECK(ibv_destroy_qp(b.qp) == 0 && ibv_destroy_qp(a.qp) == 0);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, acknowledge, NULL) == 0);
	CHECK(ibv_destroy_cq(b.cq) == 0 && acknowledged == 1);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(ibv_destroy_cq(a.cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
	return finish();
}
