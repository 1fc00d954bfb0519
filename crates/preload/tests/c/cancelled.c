/* Cancels threads, which end in none of the calls that they make meanwhile, but where they say so
 * themselves: others need the locks that those calls hold. Both ends of a connection are in one
 * process, over the device that is named. */
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <unistd.h>

#include "join.h"

enum { LEN = 64 };

static struct ibv_comp_channel *channel;
static struct ibv_pd *pd;
static struct ibv_cq *cqs[2];
static struct ibv_qp *qps[2];
static struct ibv_mr *region;
static char memory[2 * LEN];
/* The call that a thread with a cancellation before it is in. */
static const char *_Atomic inside;

static void make(void)
{
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	region = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && channel && region);
	for (int i = 0; i < 2; i++) {
		cqs[i] = ibv_create_cq(context, 16, NULL, i ? channel : NULL, 0);
		CHECK(cqs[i]);
		struct ibv_qp_init_attr attr = {
			.send_cq = cqs[i], .recv_cq = cqs[i], .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
			.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		};
		qps[i] = ibv_create_qp(pd, &attr);
		CHECK(qps[i] && begin(qps[i]) == 0);
	}
	for (int i = 0; i < 2; i++)
		join_to(qps[i], qps[1 - i]->qp_num, 7);
}

static void destroy(void)
{
	for (int i = 0; i < 2; i++)
		CHECK(ibv_destroy_qp(qps[i]) == 0 && ibv_destroy_cq(cqs[i]) == 0);
	CHECK(ibv_dereg_mr(region) == 0 && ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

static void await(struct ibv_cq *cq, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode);
}

static void send_one(void)
{
	struct ibv_sge out = { (uintptr_t)memory, LEN, region->lkey };
	struct ibv_sge in = { (uintptr_t)memory + LEN, LEN, region->lkey };
	struct ibv_recv_wr recv = { .sg_list = &in, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	inside = "ibv_post_recv";
	CHECK(ibv_post_recv(qps[1], &recv, &bad_recv) == 0);
	inside = "ibv_post_send";
	CHECK(ibv_post_send(qps[0], &send, &bad) == 0);
	inside = "ibv_poll_cq of receives";
	await(cqs[1], IBV_WC_RECV);
	inside = "ibv_poll_cq of sends";
	await(cqs[0], IBV_WC_SEND);
	inside = NULL;
}

static void died(void *unused)
{
	(void)unused;
	if (inside) {
		fprintf(stderr, "a thread was cancelled in %s\n", inside);
		_exit(1);
	}
}

/* What an adapter's library does without a call in which a thread may be cancelled. */
static void *works(void *unused)
{
	pthread_cleanup_push(died, unused);
	inside = "pthread_cancel";
	CHECK(pthread_cancel(pthread_self()) == 0);
	for (int i = 0; i < 1000; i++)
		send_one();
	inside = "ibv_req_notify_cq";
	CHECK(ibv_req_notify_cq(cqs[1], 0) == 0);
	inside = NULL;
	pthread_testcancel();
	pthread_cleanup_pop(0);
	return NULL;
}

/* Changes of objects, which hold locks too. */
static void *changes(void *unused)
{
	pthread_cleanup_push(died, unused);
	inside = "a call that makes or destroys an object";
	CHECK(pthread_cancel(pthread_self()) == 0);
	make();
	send_one();
	inside = "a call that destroys an object";
	destroy();
	inside = "a call of rdma-cm";
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *id = NULL;
	struct sockaddr_in address = { .sin_family = AF_INET };
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(events && rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == 0 && rdma_listen(id, 0) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(events);
	inside = NULL;
	pthread_testcancel();
	pthread_cleanup_pop(0);
	return NULL;
}

static void join_cancelled(void *(*body)(void *))
{
	pthread_t thread;
	void *result = NULL;
	CHECK(pthread_create(&thread, NULL, body, NULL) == 0);
	CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

static void event_after(void)
{
	struct ibv_cq *cq = NULL;
	void *cq_context;
	CHECK(ibv_req_notify_cq(cqs[1], 0) == 0);
	send_one();
	CHECK(ibv_get_cq_event(channel, &cq, &cq_context) == 0 && cq == cqs[1]);
	ibv_ack_cq_events(cq, 1);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	context = ibv_open_device(device_named(argv[1]));
	CHECK(context);
	find_loopback();
	make();
	send_one();
	join_cancelled(works);
	event_after();
	destroy();
	join_cancelled(changes);
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
