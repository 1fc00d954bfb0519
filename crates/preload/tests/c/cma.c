/* Uses librdmacm by event channels: both ends of a connection in one process, over the transport
 * that WEFT_TRANSPORT names. */
#include <stdio.h>
#include <arpa/inet.h>
#include <sys/syscall.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

static struct rdma_event_channel *here, *there;
static struct rdma_cm_id *listener;
static struct sockaddr_in address;
static int adapter;

static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = NULL;
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type)
		fprintf(stderr, "%s (%d)\n", rdma_event_str(event->event), event->status);
	CHECK(event->event == type);
	return event;
}

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	CHECK(rdma_ack_cm_event(next(channel, type)) == 0);
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *channel, void *context)
{
	struct rdma_cm_id *id = NULL;
	CHECK(rdma_create_id(channel, &id, context, RDMA_PS_TCP) == 0);
	CHECK(id->channel == channel && id->context == context && id->ps == RDMA_PS_TCP);
	CHECK(id->qp_type == IBV_QPT_RC && !id->verbs && !id->qp && !id->event);
	return id;
}

static void give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	attr.cap.max_send_wr = 8;
	attr.cap.max_recv_wr = 8;
	attr.cap.max_send_sge = 1;
	attr.cap.max_recv_sge = 1;
	CHECK(rdma_create_qp(id, NULL, &attr) == 0);
	CHECK(attr.cap.max_send_wr >= 8 && attr.send_cq == id->send_cq && attr.recv_cq == id->recv_cq);
	CHECK(id->qp && id->qp->qp_num && id->qp->pd == id->pd && id->pd->context == id->verbs);
	CHECK(id->send_cq && id->recv_cq && id->send_cq_channel && id->recv_cq_channel);
	CHECK(id->send_cq->cq_context == id && id->send_cq->channel == id->send_cq_channel);
	CHECK(id->qp->state == IBV_QPS_INIT);
	CHECK(rdma_create_qp(id, NULL, &attr) == -1 && errno == EINVAL);
}

static void channels(void)
{
	struct rdma_cm_event *event;
	here = rdma_create_event_channel();
	there = rdma_create_event_channel();
	CHECK(here && there && here->fd != there->fd);
	CHECK(fcntl(here->fd, F_GETFD) & FD_CLOEXEC);
	int flags = fcntl(here->fd, F_GETFL);
	CHECK(!(flags & O_NONBLOCK));
	CHECK(fcntl(here->fd, F_SETFL, flags | O_NONBLOCK) == 0);
	CHECK(rdma_get_cm_event(here, &event) == -1 && errno == EAGAIN);
	CHECK(fcntl(here->fd, F_SETFL, flags) == 0);
	CHECK(rdma_get_cm_event(NULL, &event) == -1 && errno == EINVAL);
	CHECK(rdma_ack_cm_event(NULL) == -1 && errno == EINVAL);
}

static void on_alarm(int signal)
{
	(void)signal;
}

static void interruption(void)
{
	struct rdma_cm_event *event;
	struct sigaction action = { .sa_handler = on_alarm };
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	ualarm(20000, 20000);
	CHECK(rdma_get_cm_event(here, &event) == -1 && errno == EINTR);
	ualarm(0, 0);
}

static atomic_int woken, sleeper_id;

static void *sleeper(void *channel)
{
	struct rdma_cm_event *event;
	sleeper_id = (int)syscall(SYS_gettid);
	rdma_get_cm_event(channel, &event);
	woken = 1;
	return NULL;
}

/* Whether the sleeper waits in the kernel. */
static int sleeps(void)
{
	char path[64], state = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", sleeper_id);
	FILE *stat = sleeper_id ? fopen(path, "r") : NULL;
	if (stat) {
		if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
			state = 0;
		fclose(stat);
	}
	return state == 'S';
}

/* Programs end by destroying a channel in which a thread of theirs sleeps. */
static void destruction_wakes_nobody(void)
{
	pthread_t thread;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(pthread_create(&thread, NULL, sleeper, channel) == 0);
	while (!sleeps())
		usleep(10000);
	rdma_destroy_event_channel(channel);
	usleep(50000);
	CHECK(!woken);
	pthread_detach(thread);
}

enum { RACES = 1000 };

static pthread_barrier_t destroyed;
static atomic_int late_code;

static void *late_reader(void *channel)
{
	struct rdma_cm_event *event;
	pthread_barrier_wait(&destroyed);
	CHECK(rdma_get_cm_event(channel, &event) == -1);
	late_code = errno;
	return NULL;
}

/* A thread on its way back into a channel learns no more of its end than one that sleeps in it:
 * only a signal brings it back. */
static void a_late_reader_sleeps_too(void)
{
	pthread_t thread;
	struct sigaction on = { .sa_handler = on_alarm }, before;
	CHECK(sigaction(SIGALRM, &on, &before) == 0);
	CHECK(pthread_barrier_init(&destroyed, NULL, 2) == 0);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(pthread_create(&thread, NULL, late_reader, channel) == 0);
	rdma_destroy_event_channel(channel);
	pthread_barrier_wait(&destroyed);
	while (!late_code) {
		pthread_kill(thread, SIGALRM);
		usleep(1000);
	}
	CHECK(late_code == EINTR);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(sigaction(SIGALRM, &before, NULL) == 0);
}

/* Nor does one that is just about to sleep. */
static void a_racing_reader_sleeps_too(void)
{
	struct sigaction on = { .sa_handler = on_alarm }, before;
	CHECK(sigaction(SIGALRM, &on, &before) == 0);
	for (int i = 0; i < RACES; i++) {
		pthread_t thread;
		struct rdma_event_channel *channel = rdma_create_event_channel();
		late_code = 0;
		CHECK(pthread_create(&thread, NULL, late_reader, channel) == 0);
		pthread_barrier_wait(&destroyed);
		for (int spins = i * 4; spins > 0; spins--)
			__asm__ volatile("");
		rdma_destroy_event_channel(channel);
		while (!late_code) {
			pthread_kill(thread, SIGALRM);
			usleep(100);
		}
		CHECK(late_code == EINTR && pthread_join(thread, NULL) == 0);
	}
	CHECK(sigaction(SIGALRM, &before, NULL) == 0);
}

static void port_spaces(void)
{
	struct rdma_cm_id *id = NULL;
	CHECK(rdma_create_id(here, &id, NULL, RDMA_PS_IB) == -1 && errno == EPROTONOSUPPORT);
	CHECK(rdma_create_id(here, &id, NULL, 0) == -1);
	CHECK(rdma_create_id(here, &id, NULL, RDMA_PS_UDP) == 0 && id->qp_type == IBV_QPT_UD);
	struct sockaddr_in any = address;
	any.sin_port = 0;
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&any) == 0 && id->verbs);
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_UD };
	attr.cap.max_send_wr = attr.cap.max_recv_wr = attr.cap.max_send_sge = 1;
	CHECK(rdma_create_qp(id, NULL, &attr) == 0 && id->qp->state == IBV_QPS_RTS && id->send_cq);
	CHECK(!strcmp(id->verbs->device->name, "weft0"));
	rdma_destroy_qp(id);
	CHECK(rdma_join_multicast(id, (struct sockaddr *)&address, NULL) == -1);
	/* No group. */
	CHECK(errno == EINVAL);
	CHECK(rdma_destroy_id(id) == 0);
}

static void listen_here(void)
{
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = new_id(here, &address);
	CHECK(rdma_listen(NULL, 0) == -1 && errno == EINVAL);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
	/* Loopback is no adapter's own address. */
	CHECK((listener->verbs == NULL) == adapter && (listener->pd == NULL) == adapter);
	CHECK(rdma_listen(listener, 0) == 0);
	address.sin_port = rdma_get_src_port(listener);
	CHECK(address.sin_port && rdma_get_dst_port(listener) == 0);
	struct sockaddr_in *local = (struct sockaddr_in *)rdma_get_local_addr(listener);
	CHECK(local->sin_family == AF_INET && local->sin_port == address.sin_port);

	struct rdma_cm_id *wild = new_id(here, NULL);
	struct sockaddr_in any = { .sin_family = AF_INET };
	CHECK(rdma_bind_addr(wild, (struct sockaddr *)&any) == 0 && !wild->verbs && !wild->pd);
	CHECK(rdma_destroy_id(wild) == 0);
	struct rdma_cm_id *same = new_id(here, NULL);
	CHECK(rdma_bind_addr(same, (struct sockaddr *)&address) == -1 && errno == EADDRINUSE);
	CHECK(rdma_destroy_id(same) == 0);
}

static struct rdma_cm_id *route(void)
{
	struct rdma_cm_id *id = new_id(there, NULL);
	struct sockaddr wrong = { .sa_family = AF_UNIX };
	CHECK(rdma_resolve_addr(id, NULL, &wrong, 1000) == -1 && errno == EINVAL);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000) == 0);
	expect(there, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs && id->pd && id->port_num == 1);
	CHECK(rdma_get_dst_port(id) == address.sin_port && rdma_get_src_port(id) != 0);
	CHECK(id->route.addr.addr.ibaddr.sgid.raw[15] == 1);
	CHECK(rdma_resolve_route(id, 1000) == 0);
	expect(there, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(id->route.num_paths == adapter);
	return id;
}

static void options(void)
{
	struct rdma_cm_id *id = new_id(there, NULL);
	uint8_t octet = 16;
	int on = 1;
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &octet, 1) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof(on)) == -1);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &octet, 1) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, 77, &octet, 1) == -1 && errno == ENOSYS);
	CHECK(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &octet, 1) == -1);
	CHECK(rdma_set_option(id, 77, 0, &octet, 1) == -1 && errno == ENOSYS);
	CHECK(rdma_destroy_id(id) == 0);
}

static void wrong_order(void)
{
	struct rdma_cm_id *id = new_id(there, NULL);
	struct rdma_conn_param param = { 0 };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	CHECK(rdma_create_qp(id, NULL, &attr) == -1 && errno == EINVAL);
	CHECK(rdma_connect(id, &param) == -1 && errno == EINVAL);
	CHECK(rdma_accept(id, &param) == -1 && errno == EINVAL);
	CHECK(rdma_reject(id, NULL, 0) == -1 && errno == EINVAL);
	CHECK(rdma_disconnect(id) == -1 && errno == EINVAL);
	CHECK(rdma_establish(id) == -1 && errno == EINVAL);
	CHECK(rdma_notify(id, IBV_EVENT_COMM_EST) == -1 && errno == EINVAL);
	struct rdma_cm_id *request;
	CHECK(rdma_get_request(listener, &request) == -1 && errno == EINVAL);
	CHECK(rdma_destroy_id(id) == 0);
}

static void states(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask = -1;
	CHECK(rdma_init_qp_attr(id, &attr, &mask) == 0);
	int rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	int wanted = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
	if (adapter) {
		rights |= IBV_ACCESS_REMOTE_ATOMIC;
		wanted |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	}
	CHECK(mask == wanted && attr.qp_access_flags == (unsigned)rights);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(rdma_init_qp_attr(id, &attr, &mask) == 0 && !mask == !adapter);
	attr.qp_state = IBV_QPS_RESET;
	CHECK(rdma_init_qp_attr(id, &attr, &mask) == -1 && errno == EINVAL);
}

static void send_one(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
	char out[] = "over and out", in[32] = "";
	struct ibv_mr *source = ibv_reg_mr(from->pd, out, sizeof(out), 0);
	struct ibv_mr *sink = ibv_reg_mr(to->pd, in, sizeof(in), IBV_ACCESS_LOCAL_WRITE);
	CHECK(source && sink);
	struct ibv_sge from_sge = { (uintptr_t)out, sizeof(out), source->lkey };
	struct ibv_sge to_sge = { (uintptr_t)in, sizeof(in), sink->lkey };
	struct ibv_recv_wr recv = { .sg_list = &to_sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &from_sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	CHECK(ibv_post_recv(to->qp, &recv, &bad_recv) == 0);
	CHECK(ibv_post_send(from->qp, &send, &bad) == 0);
	struct ibv_wc wc;
	while (ibv_poll_cq(to->recv_cq, 1, &wc) == 0)
		;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == sizeof(out) && !strcmp(in, out));
	while (ibv_poll_cq(from->send_cq, 1, &wc) == 0)
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(source) == 0 && ibv_dereg_mr(sink) == 0);
}

static enum ibv_qp_state state_of(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

static struct rdma_cm_id *request(const char *private_data)
{
	struct rdma_cm_event *event = next(here, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	CHECK(event->listen_id == listener && id != listener && event->status == 0);
	CHECK(id->context == listener->context && id->channel == here && id->verbs && id->pd);
	CHECK(event->param.conn.private_data_len == (adapter ? 56 : strlen(private_data)));
	CHECK(!memcmp(event->param.conn.private_data, private_data, strlen(private_data)));
	CHECK(event->param.conn.initiator_depth == 4 && event->param.conn.responder_resources == 2);
	CHECK(rdma_get_src_port(id) == address.sin_port && rdma_get_dst_port(id) != 0);
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static const struct rdma_conn_param hello = {
	.private_data = "hello", .private_data_len = 5, .responder_resources = 4, .initiator_depth = 2,
};

static void connection(void)
{
	struct rdma_cm_id *active = route();
	uint8_t timeout = 14;
	CHECK(rdma_set_option(active, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1) == 0);
	struct rdma_conn_param param = hello, deep = hello;
	CHECK(adapter || (rdma_connect(active, &param) == -1 && errno == EINVAL));
	give_qp(active);
	states(active);
	deep.initiator_depth = 200;
	CHECK(rdma_connect(active, &deep) == -1 && errno == EINVAL);
	CHECK(rdma_connect(active, &param) == 0);

	struct rdma_cm_id *passive = request("hello");
	give_qp(passive);
	struct rdma_conn_param answer = hello;
	answer.private_data = "welcome";
	answer.private_data_len = 7;
	CHECK(rdma_accept(passive, &answer) == 0);
	struct rdma_cm_event *event = next(there, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == active && !event->listen_id);
	CHECK(event->param.conn.private_data_len == (adapter ? 196 : 7));
	CHECK(event->param.conn.qp_num == (adapter ? passive->qp->qp_num : 0));
	CHECK(!memcmp(event->param.conn.private_data, "welcome", 7));
	CHECK(active->qp->state == IBV_QPS_RTS);
	expect(here, RDMA_CM_EVENT_ESTABLISHED);
	/* The private data lives as long as its event. */
	CHECK(!memcmp(event->param.conn.private_data, "welcome", 7) && rdma_ack_cm_event(event) == 0);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(active->qp, &attr, IBV_QP_TIMEOUT, &init) == 0 && attr.timeout == 14);
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.max_rd_atomic == 2);
	CHECK(rdma_notify(active, IBV_EVENT_COMM_EST) == 0);

	send_one(active, passive);
	send_one(passive, active);

	CHECK(rdma_migrate_id(passive, there) == 0 && passive->channel == there);
	CHECK(rdma_disconnect(active) == 0);
	expect(there, RDMA_CM_EVENT_DISCONNECTED);
	expect(there, RDMA_CM_EVENT_DISCONNECTED);
	/* An adapter's queue pair outlives its connection until its program disconnects too. */
	CHECK(state_of(active) == IBV_QPS_ERR);
	CHECK(state_of(passive) == (adapter ? IBV_QPS_RTS : IBV_QPS_ERR));
	CHECK(rdma_disconnect(passive) == 0 && rdma_disconnect(active) == 0);
	CHECK(state_of(passive) == IBV_QPS_ERR);
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_id *id = i ? passive : active;
		rdma_destroy_qp(id);
		CHECK(!id->qp && !id->send_cq && !id->recv_cq && !id->send_cq_channel);
		CHECK(rdma_destroy_id(id) == 0);
	}
}

/* Requests that wait move with their listener, and with them what comes of them. */
static void moved_listener(void)
{
	struct rdma_cm_id *active = route();
	give_qp(active);
	struct rdma_conn_param param = hello;
	CHECK(rdma_connect(active, &param) == 0);
	struct pollfd waits = { here->fd, POLLIN, 0 };
	CHECK(poll(&waits, 1, -1) == 1 && rdma_migrate_id(listener, there) == 0);
	struct rdma_cm_event *event = next(there, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *passive = event->id;
	CHECK(passive->channel == there && rdma_ack_cm_event(event) == 0);
	CHECK(rdma_migrate_id(listener, here) == 0);
	give_qp(passive);
	CHECK(rdma_accept(passive, &param) == 0);
	for (int i = 0; i < 2; i++)
		expect(there, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(rdma_disconnect(active) == 0 && rdma_disconnect(passive) == 0);
	for (int i = 0; i < 2; i++)
		expect(there, RDMA_CM_EVENT_DISCONNECTED);
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_id *id = i ? passive : active;
		rdma_destroy_qp(id);
		CHECK(rdma_destroy_id(id) == 0);
	}
}

static void rejection(void)
{
	struct rdma_cm_id *active = route();
	give_qp(active);
	struct rdma_conn_param param = hello;
	CHECK(rdma_connect(active, &param) == 0);
	struct rdma_cm_id *passive = request("hello");
	CHECK(rdma_reject(passive, "no", 2) == 0);
	CHECK(rdma_destroy_id(passive) == 0);
	struct rdma_cm_event *event = next(there, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == (adapter ? 28 : -ECONNREFUSED));
	CHECK(event->param.conn.private_data_len == (adapter ? 148 : 2));
	CHECK(!memcmp(event->param.conn.private_data, "no", 2));
	CHECK(rdma_ack_cm_event(event) == 0);
	rdma_destroy_ep(active);
}

/* The queue pair is the program's own, and rdma-cm knows it by its number. */
static void foreign_queue_pair(void)
{
	struct rdma_cm_id *active = route();
	struct ibv_cq *cq = ibv_create_cq(active->verbs, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq };
	init.sq_sig_all = 1;
	init.cap.max_send_wr = init.cap.max_recv_wr = 4;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	struct ibv_qp *qp = ibv_create_qp(active->pd, &init);
	CHECK(qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;
	CHECK(rdma_init_qp_attr(active, &attr, &mask) == 0 && ibv_modify_qp(qp, &attr, mask) == 0);
	struct rdma_conn_param param = hello;
	param.qp_num = qp->qp_num ^ 1;
	/* An adapter's may be anybody's. */
	CHECK(adapter || (rdma_connect(active, &param) == -1 && errno == EINVAL));
	param.qp_num = qp->qp_num;
	CHECK(rdma_connect(active, &param) == 0);
	struct rdma_cm_id *passive = request("hello");
	give_qp(passive);
	CHECK(rdma_accept(passive, NULL) == 0);
	if (adapter) {
		expect(there, RDMA_CM_EVENT_CONNECT_RESPONSE);
		for (attr.qp_state = IBV_QPS_RTR; attr.qp_state <= IBV_QPS_RTS; attr.qp_state++) {
			CHECK(rdma_init_qp_attr(active, &attr, &mask) == 0);
			CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
		}
		CHECK(rdma_establish(active) == 0 && rdma_establish(active) == -1);
	} else {
		expect(there, RDMA_CM_EVENT_ESTABLISHED);
	}
	expect(here, RDMA_CM_EVENT_ESTABLISHED);
	/* The ids see the queue pair for as long as it takes to send. */
	active->qp = qp;
	active->send_cq = active->recv_cq = cq;
	send_one(active, passive);
	send_one(passive, active);
	active->qp = NULL;
	active->send_cq = active->recv_cq = NULL;
	CHECK(rdma_destroy_id(active) == 0);
	expect(here, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	rdma_destroy_ep(passive);
}

/* The same where the one that is called has its own. */
static void foreign_queue_pair_that_is_called(void)
{
	struct rdma_cm_id *active = route();
	give_qp(active);
	struct rdma_conn_param param = hello;
	CHECK(rdma_connect(active, &param) == 0);
	struct rdma_cm_id *passive = request("hello");
	struct ibv_cq *cq = ibv_create_cq(passive->verbs, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq };
	init.sq_sig_all = 1;
	init.cap.max_send_wr = init.cap.max_recv_wr = 4;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	struct ibv_qp *qp = ibv_create_qp(passive->pd, &init);
	CHECK(qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	for (int mask; attr.qp_state <= (adapter ? IBV_QPS_RTS : IBV_QPS_INIT); attr.qp_state++) {
		CHECK(rdma_init_qp_attr(passive, &attr, &mask) == 0);
		CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
	}
	param.qp_num = qp->qp_num;
	CHECK(rdma_accept(passive, &param) == 0);
	expect(there, RDMA_CM_EVENT_ESTABLISHED);
	expect(here, RDMA_CM_EVENT_ESTABLISHED);
	passive->qp = qp;
	passive->send_cq = passive->recv_cq = cq;
	send_one(active, passive);
	send_one(passive, active);
	passive->qp = NULL;
	passive->send_cq = passive->recv_cq = NULL;
	CHECK(rdma_disconnect(active) == 0);
	expect(there, RDMA_CM_EVENT_DISCONNECTED);
	expect(here, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(rdma_destroy_id(passive) == 0);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	rdma_destroy_ep(active);
}

static void devices(void)
{
	int count = 0;
	struct ibv_context **list = rdma_get_devices(&count);
	CHECK(list && count == 2 && !list[2]);
	struct rdma_cm_id *routed = route();
	CHECK((list[0] == routed->verbs) != (list[1] == routed->verbs));
	CHECK(rdma_destroy_id(routed) == 0);
	rdma_free_devices(list);
	struct ibv_ece ece = { .vendor_id = 1 };
	struct rdma_cm_id *id = new_id(there, NULL);
	CHECK(rdma_set_local_ece(id, &ece) == 0);
	CHECK(rdma_get_remote_ece(id, &ece) == 0 && ece.vendor_id == 0);
	CHECK(rdma_destroy_id(id) == 0);
}

/* A connection of which both ends are here. */
static struct rdma_cm_id *left, *right;

static void connect_both(void)
{
	channels();
	address.sin_port = 0;
	listen_here();
	left = route();
	struct rdma_conn_param param = hello;
	give_qp(left);
	CHECK(rdma_connect(left, &param) == 0);
	right = request("hello");
	give_qp(right);
	CHECK(rdma_accept(right, &param) == 0);
	expect(there, RDMA_CM_EVENT_ESTABLISHED);
	expect(here, RDMA_CM_EVENT_ESTABLISHED);
}

static atomic_int watches;

/* Threads that still run while the process ends may have no memory left for an event, and find no
 * completion either. */
static void *watcher(void *unused)
{
	for (;;) {
		struct pollfd ends[] = { { here->fd, POLLIN, 0 }, { there->fd, POLLIN, 0 } };
		struct ibv_wc wc;
		if (poll(ends, 2, 0) != 0 || ibv_poll_cq(right->recv_cq, 1, &wc) != 0)
			_exit(1);
		watches = 1;
	}
	return unused;
}

/* Handlers and destructors that run while the process ends may still use a connection. */
static void last_words(void)
{
	send_one(left, right);
	CHECK(rdma_disconnect(left) == 0);
	expect(there, RDMA_CM_EVENT_DISCONNECTED);
	expect(here, RDMA_CM_EVENT_DISCONNECTED);
	/* What the end of the process ends. */
	connect_both();
	pthread_t thread;
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad;
	CHECK(ibv_post_recv(right->qp, &recv, &bad) == 0);
	CHECK(pthread_create(&thread, NULL, watcher, NULL) == 0);
	while (!watches)
		usleep(1000);
}

int main(void)
{
	/* Called after what the library registers later. */
	CHECK(atexit(last_words) == 0);
	adapter = !strcmp(getenv("WEFT_TRANSPORT"), "shuttle");
	channels();
	interruption();
	listen_here();
	port_spaces();
	options();
	wrong_order();
	devices();
	connection();
	moved_listener();
	rejection();
	foreign_queue_pair();
	foreign_queue_pair_that_is_called();
	struct pollfd ends[] = { { here->fd, POLLIN, 0 }, { there->fd, POLLIN, 0 } };
	CHECK(poll(ends, 2, 0) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
	destruction_wakes_nobody();
	a_late_reader_sleeps_too();
	a_racing_reader_sleeps_too();
	connect_both();
	return 0;
}
