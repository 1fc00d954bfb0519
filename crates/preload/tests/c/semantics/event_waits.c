/* A thread that sleeps for events again and again is woken by each, is interrupted as its signal
 * handlers say, does not wait when its descriptor says so, and keeps nobody waiting while it is
 * elsewhere or not alone. */
#define _GNU_SOURCE
#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum { RECEIVES = 16, FEW = 200 };

static struct ibv_comp_channel *channel;
static atomic_int over, elsewhere, gone, interrupted, refused;
static int gate[2];

static void echo(void)
{
	struct ibv_wc wc;
	CHECK(ibv_req_notify_cq(b.cq, 0) == 0);
	while (ibv_poll_cq(b.cq, 1, &wc) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode != IBV_WC_RECV)
			continue;
		receive(b, 1, 64, 8);
		post(b, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 8, 0);
	}
}

static void *serve(void *unused)
{
	struct ibv_cq *cq;
	void *word;
	echo();
	while (!over) {
		char byte;
		if (elsewhere) {
			gone = 1;
			CHECK(read(gate[0], &byte, 1) == 1);
		}
		if (ibv_get_cq_event(channel, &cq, &word) == 0) {
			ibv_ack_cq_events(cq, 1);
			echo();
		} else if (errno == EINTR) {
			interrupted++;
		} else {
			CHECK(errno == EAGAIN && fcntl(channel->fd, F_SETFL, 0) == 0);
			refused++;
		}
	}
	return unused;
}

/* Completions of a's queue, which is polled. */
static void complete(int count)
{
	struct ibv_wc wc;
	while (count > 0) {
		int found = ibv_poll_cq(a.cq, 1, &wc);
		CHECK(found == 0 || (found == 1 && wc.status == IBV_WC_SUCCESS));
		count -= found;
	}
}

static void ping(int times)
{
	for (int i = 0; i < times; i++) {
		receive(a, 3, 128, 8);
		post(a, IBV_WR_SEND, 4, IBV_SEND_SIGNALED, 0, 8, 0);
		complete(2);
	}
}

/* As many messages at once as there are receives. */
static void burst(void)
{
	for (int i = 0; i < RECEIVES / 2; i++)
		receive(a, 3, 128, 8);
	for (int i = 0; i < RECEIVES / 2; i++)
		post(a, IBV_WR_SEND, 4, IBV_SEND_SIGNALED, 0, 8, 0);
	complete(RECEIVES);
}

static void on_signal(int number)
{
	(void)number;
}

static void handle(int number, int flags)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	CHECK(sigaction(number, &action, NULL) == 0);
}

/* Sends the signal until it interrupts a wait. */
static void interrupt(pthread_t thread, int number)
{
	for (int before = interrupted; interrupted == before; sched_yield())
		CHECK(pthread_kill(thread, number) == 0);
}

/* Sends it while there are events, none of which is lost. */
static void disturb(pthread_t thread, int number)
{
	/* What was sent before has had its effect. */
	ping(1);
	int before = interrupted;
	for (int i = 0; i < FEW; i++) {
		CHECK(pthread_kill(thread, number) == 0);
		ping(1);
	}
	CHECK(interrupted == before);
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	begin(argc, argv);
	channel = ibv_create_comp_channel(context);
	CHECK(channel && pipe(gate) == 0);
	a.cq = make_cq(64), b.cq = ibv_create_cq(context, 64, NULL, channel, 0);
	CHECK(b.cq);
	a.qp = make_qp(a.cq), b.qp = make_qp(b.cq);
	join(a.qp, b.qp);
	for (int i = 0; i < RECEIVES; i++)
		receive(b, 1, 64, 8);
	handle(SIGUSR1, 0);
	CHECK(pthread_create(&threads[0], NULL, serve, NULL) == 0);
	ping(FEW);
	interrupt(threads[0], SIGUSR1);
	for (int i = 0; i < FEW; i++)
		burst();

	handle(SIGUSR1, SA_RESTART);
	disturb(threads[0], SIGUSR1);
	handle(SIGUSR2, 0);
	interrupt(threads[0], SIGUSR2);
	disturb(threads[0], SIGUSR1);

	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	while (!refused)
		ping(1);

	/* Elsewhere, with the lease that its habit has: others do its work. */
	ping(FEW);
	elsewhere = 1;
	receive(a, 3, 128, 8);
	post(a, IBV_WR_SEND, 4, IBV_SEND_SIGNALED, 0, 8, 0);
	while (!gone)
		sched_yield();
	for (int i = 0; i < FEW; i++) {
		post(a, IBV_WR_RDMA_WRITE, 5, IBV_SEND_SIGNALED, 256, 8, 512);
		complete(1);
	}
	elsewhere = 0;
	CHECK(write(gate[1], "", 1) == 1);
	complete(2);

	ping(FEW);
	CHECK(pthread_create(&threads[1], NULL, serve, NULL) == 0);
	ping(FEW);
	for (int i = 0; i < FEW; i++)
		burst();
	over = 1;
	for (int i = 0; i < 2; i++)
		while (pthread_tryjoin_np(threads[i], NULL))
			pthread_kill(threads[i], SIGUSR2), sched_yield();
	CHECK(ibv_destroy_qp(b.qp) == 0 && ibv_destroy_qp(a.qp) == 0);
	CHECK(ibv_destroy_cq(b.cq) == 0 && ibv_destroy_cq(a.cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	return finish();
}
