/* Two connected queue pairs of weft0 in one process: the first sends twenty messages to the second.
 * Says on stdout what became of them, then which events came; what goes wrong is in the
 * environment.
 *
 *     faults [RNR_RETRY [EVENTS [failed]]]    waits until so many events have come
 *
 * With `failed` the first queue pair stays in RTR until it is in the error state.
 *
 * Another thread tells of events, before or after the completions. */
#include "join.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>

enum { MESSAGES = 20, OCTETS = 16, EVENTS_MAX = 8 };

static char memory[64], arrivals[64];

#define TRY(name, made)                                 \
	do {                                            \
		if (!(made)) {                          \
			printf("%s: %d\n", name, errno); \
			exit(0);                        \
		}                                       \
	} while (0)

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	TRY("create_qp", qp);
	TRY("modify_qp", begin(qp) == 0);
	return qp;
}

/* Posts the messages; gives how many were taken. */
static int post_all(struct ibv_qp *from, struct ibv_qp *to, struct ibv_mr *mr[2])
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = OCTETS, .lkey = mr[0]->lkey };
	struct ibv_sge into = { .addr = (uintptr_t)arrivals, .length = OCTETS, .lkey = mr[1]->lkey };
	int posted = 0;
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_recv_wr recv = { .sg_list = &into, .num_sge = 1 }, *bad_recv;
		TRY("post_recv", (errno = ibv_post_recv(to, &recv, &bad_recv)) == 0);
	}
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_send_wr send = { .wr_id = i, .opcode = IBV_WR_SEND, .num_sge = 1,
					    .sg_list = &sge, .send_flags = IBV_SEND_SIGNALED }, *bad;
		int error = ibv_post_send(from, &send, &bad);
		if (error)
			printf("post_send %d: %d\n", i, error);
		else
			posted++;
	}
	return posted;
}

static enum ibv_event_type events[EVENTS_MAX];
static int event_count;

/* Takes the events that there are; whether one was the end of a completion queue. */
static int take_events(void)
{
	CHECK(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
	struct ibv_async_event event;
	int queue_ended = 0;
	while (ibv_get_async_event(context, &event) == 0) {
		CHECK(event_count < EVENTS_MAX);
		events[event_count++] = event.event_type;
		queue_ended |= event.event_type == IBV_EVENT_CQ_ERR;
		ibv_ack_async_event(&event);
	}
	return queue_ended;
}

/* Says which events came, once there are so many. */
static void say_events(int wanted)
{
	struct pollfd told = { context->async_fd, POLLIN, 0 };
	take_events();
	while (event_count < wanted) {
		CHECK(poll(&told, 1, -1) == 1);
		take_events();
	}
	for (int i = 0; i < event_count; i++)
		printf("event: %s\n", ibv_event_type_str(events[i]));
}

/* Says how the messages ended: each status, and how often in a row. */
static void poll_all(struct ibv_cq *cq, int posted)
{
	int last = -1, run = 0, count = 0;
	while (posted > 0) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(cq, 1, &wc);
		if (n == 0) {
			if (!take_events())
				continue;
			printf("%dx%d\nno more\n", last, run);
			return;
		}
		if (n > 0 && (int)wc.status == last) {
			run++;
		} else {
			if (run)
				printf("%dx%d\n", last, run);
			last = n > 0 ? (int)wc.status : -1;
			run = n > 0;
		}
		if (n < 0) {
			printf("poll_cq: %d\n", n);
			return;
		}
		CHECK(wc.status != IBV_WC_SUCCESS || (int)wc.wr_id >= count);
		count = wc.wr_id;
		posted--;
	}
	printf("%dx%d\n", last, run);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr now;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(qp, &now, IBV_QP_STATE, &init) == 0);
	return now.qp_state;
}

int main(int argc, char **argv)
{
	int rnr_retry = argc > 1 ? atoi(argv[1]) : 7;
	context = ibv_open_device(device_named("weft0"));
	CHECK(context);
	find_loopback();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	TRY("alloc_pd", pd);
	struct ibv_mr *mr[2];
	for (int i = 0; i < 2; i++) {
		mr[i] = ibv_reg_mr(pd, i ? arrivals : memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
		TRY("reg_mr", mr[i]);
	}
	struct ibv_cq *first = ibv_create_cq(context, 64, NULL, NULL, 0);
	TRY("create_cq", first);
	struct ibv_cq *second = ibv_create_cq(context, 64, NULL, NULL, 0);
	TRY("create_cq", second);
	struct ibv_qp *from = make(pd, first), *to = make(pd, second);
	if (argc > 3) {
		receive_from(from, to->qp_num);
		while (state_of(from) != IBV_QPS_ERR)
			sched_yield();
	} else {
		join_to(from, to->qp_num, rnr_retry);
	}
	join_to(to, from->qp_num, rnr_retry);
	poll_all(first, post_all(from, to, mr));
	printf("%s\n", state_of(from) == IBV_QPS_ERR ? "failed" : "alive");
	say_events(argc > 2 ? atoi(argv[2]) : 0);
	return 0;
}
