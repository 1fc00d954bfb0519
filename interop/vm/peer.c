/*
 * One end of a connection, to try what the standard programs do not: private data, rejection, who
 * speaks first, the depths agreed, and requests that the other end must refuse.
 *
 *     peer listen PORT [OPTION...]
 *     peer connect ADDRESS PORT [OPTION...]
 *
 *     private=N   octets of private data sent with the request, reply or rejection
 *     expect=N    octets of private data that must come from the other end
 *     reject      the listener rejects, and the connector takes that for success
 *     ird=N ord=N depths asked for (1 each)
 *     times=N     connections, one after the other (1)
 *     speak=WHO   who sends the first message: client (the default) or server
 *     size=N      octets in each message (64)
 *     fault=WHAT  after the messages, this end errs: write or read (of memory that the other end
 *                 does not have), long (a message that does not fit) or many (more messages than
 *                 the other end waits for)
 *     status=N    how the read that errs must complete (any failure)
 *     broken      after the messages, the other end errs, or dies
 *     siw         a send may complete in error although it arrived: siw does that when the other
 *                 end closes before the kernel has returned from sending
 *
 * Both ends exchange a message each way, whose every octet is checked; then the one that sent last
 * disconnects. Exit status 0 means that all happened as the options say; lines on stdout say what
 * did.
 */
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECEIVES = 4, ROOM = 4096, LONG = 2 * ROOM, PATIENCE_MS = 40000 };

static struct {
	int server, reject, server_speaks, broken, siw;
	int private_data, expected, ird, ord, times, size, status;
	const char *fault;
} options = {.ird = 1, .ord = 1, .times = 1, .size = 64, .fault = ""};

struct link {
	/* Its own: the end of this connection and a request for the next come in either order. */
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	/* The receives, one after the other, then what is sent. */
	unsigned char memory[RECEIVES * ROOM + LONG];
	int received, flushed;
};

static void fail(const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	fputs("peer: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(1);
}

static void check(int failed, const char *what) {
	if (failed) {
		fail("%s: %m", what);
	}
}

static void wait_for(int fd, const char *what) {
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	if (poll(&ready, 1, PATIENCE_MS) != 1) {
		fail("%sno %s within %d s", options.siw ? "siw: " : "", what, PATIENCE_MS / 1000);
	}
}

/* What the octets of one end look like: no two ends and no two places are alike. */
static unsigned char octet(int of_server, int at) {
	return (unsigned char)(at * 7 + at / 256 + (of_server ? 101 : 3));
}

static void fill(void *memory, int length) {
	for (int i = 0; i < length; i++) {
		((unsigned char *)memory)[i] = octet(options.server, i);
	}
}

static void verify(const void *memory, int length, const char *what) {
	for (int i = 0; i < length; i++) {
		if (((const unsigned char *)memory)[i] != octet(!options.server, i)) {
			fail("octet %d of %s is wrong", i, what);
		}
	}
}

static struct rdma_event_channel *open_events(void) {
	struct rdma_event_channel *events = rdma_create_event_channel();
	check(!events, "rdma_create_event_channel");
	return events;
}

/* The next event; every one but `wanted` is a failure. The caller acknowledges it. */
static struct rdma_cm_event *await_event(struct rdma_event_channel *events,
					 enum rdma_cm_event_type wanted) {
	struct rdma_cm_event *event;
	wait_for(events->fd, rdma_event_str(wanted));
	check(rdma_get_cm_event(events, &event), "rdma_get_cm_event");
	if (event->event != wanted) {
		fail("%s (status %d) instead of %s", rdma_event_str(event->event), event->status,
		     rdma_event_str(wanted));
	}
	return event;
}

static void verify_private_data(const struct rdma_cm_event *event) {
	const struct rdma_conn_param *param = &event->param.conn;
	if (param->private_data_len != options.expected) {
		fail("%d octets of private data instead of %d", param->private_data_len,
		     options.expected);
	}
	verify(param->private_data, options.expected, "private data");
	printf("%s: %d octets of private data, ird %d, ord %d\n", rdma_event_str(event->event),
	       param->private_data_len, param->responder_resources, param->initiator_depth);
}

static void post_receive(struct link *link, int slot) {
	struct ibv_sge sge = {(uintptr_t)link->memory + slot * ROOM, ROOM, link->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
	check(ibv_post_recv(link->id->qp, &wr, &bad), "ibv_post_recv");
}

static void post(struct link *link, enum ibv_wr_opcode opcode, int length) {
	struct ibv_sge sge = {
		(uintptr_t)link->memory + RECEIVES * ROOM, length, link->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = RECEIVES, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = 0x1000, .rkey = 0xdeadbe00},
	};
	struct ibv_send_wr *bad;
	check(ibv_post_send(link->id->qp, &wr, &bad), "ibv_post_send");
}

static void open_link(struct link *link) {
	struct rdma_cm_id *id = link->id;
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	check(!(link->pd = ibv_alloc_pd(id->verbs)), "ibv_alloc_pd");
	check(!(link->channel = ibv_create_comp_channel(id->verbs)), "ibv_create_comp_channel");
	check(!(link->cq = ibv_create_cq(id->verbs, 64, NULL, link->channel, 0)), "ibv_create_cq");
	link->mr = ibv_reg_mr(link->pd, link->memory, sizeof(link->memory), access);
	check(!link->mr, "ibv_reg_mr");
	attr.send_cq = attr.recv_cq = link->cq;
	check(rdma_create_qp(id, link->pd, &attr), "rdma_create_qp");
	for (int slot = 0; slot < RECEIVES; slot++) {
		post_receive(link, slot);
	}
}

static void close_link(struct link *link) {
	rdma_destroy_qp(link->id);
	check(ibv_dereg_mr(link->mr), "ibv_dereg_mr");
	check(ibv_destroy_cq(link->cq), "ibv_destroy_cq");
	check(ibv_destroy_comp_channel(link->channel), "ibv_destroy_comp_channel");
	check(ibv_dealloc_pd(link->pd), "ibv_dealloc_pd");
	check(rdma_destroy_id(link->id), "rdma_destroy_id");
	rdma_destroy_event_channel(link->events);
}

static struct ibv_wc next_completion(struct link *link) {
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	int polled = ibv_poll_cq(link->cq, 1, &wc);
	while (polled == 0) {
		check(ibv_req_notify_cq(link->cq, 0), "ibv_req_notify_cq");
		polled = ibv_poll_cq(link->cq, 1, &wc);
		if (polled != 0) {
			break;
		}
		wait_for(link->channel->fd, "completion");
		check(ibv_get_cq_event(link->channel, &cq, &context), "ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
		polled = ibv_poll_cq(link->cq, 1, &wc);
	}
	check(polled < 0, "ibv_poll_cq");
	return wc;
}

/* Sends one message; what is received meanwhile is counted. */
static void send_message(struct link *link) {
	struct ibv_wc wc;
	fill(link->memory + RECEIVES * ROOM, options.size);
	post(link, IBV_WR_SEND, options.size);
	while ((wc = next_completion(link)).wr_id != RECEIVES) {
		link->received += wc.status == IBV_WC_SUCCESS;
	}
	if (wc.status != IBV_WC_SUCCESS && !options.siw) {
		fail("the message was not sent: %s", ibv_wc_status_str(wc.status));
	}
}

static void receive_message(struct link *link) {
	while (link->received == 0) {
		struct ibv_wc wc = next_completion(link);
		if (wc.status != IBV_WC_SUCCESS) {
			fail("no message was received: %s", ibv_wc_status_str(wc.status));
		}
		link->received++;
	}
	verify(link->memory, options.size, "the message");
}

/* Posts what the other end must refuse; the number of its completions. */
static int err(struct link *link) {
	if (!strcmp(options.fault, "write")) {
		post(link, IBV_WR_RDMA_WRITE, 64);
	} else if (!strcmp(options.fault, "read")) {
		post(link, IBV_WR_RDMA_READ, 64);
	} else if (!strcmp(options.fault, "long")) {
		post(link, IBV_WR_SEND, LONG);
	} else {
		for (int i = 0; i < RECEIVES; i++) {
			post(link, IBV_WR_SEND, 16);
		}
		return RECEIVES;
	}
	return 1;
}

/* After the end of the connection every request left has completed, once, in error or not. */
static void drain(struct link *link, int sent) {
	int left = RECEIVES - link->received + sent, sends = 0;
	while (left-- > 0) {
		struct ibv_wc wc = next_completion(link);
		if (wc.wr_id == RECEIVES) {
			sends++;
			printf("request: %s\n", ibv_wc_status_str(wc.status));
			int status = wc.status;
			int wanted = options.status ? status == options.status : status;
			if (!strcmp(options.fault, "read") && !wanted) {
				fail("the read of memory that does not exist ended like that");
			}
		} else if (wc.status == IBV_WC_SUCCESS && !options.broken) {
			fail("a message that nobody sent was received");
		}
	}
	struct ibv_wc wc;
	if (sends != sent || ibv_poll_cq(link->cq, 1, &wc) != 0) {
		fail("%d of %d requests completed, or more did", sends, sent);
	}
}

/* From established to closed. */
static void converse(struct link *link) {
	int speaks_first = options.server == options.server_speaks, sent = 0;
	if (speaks_first) {
		send_message(link);
	}
	receive_message(link);
	if (!speaks_first) {
		send_message(link);
	}
	if (*options.fault) {
		sent = err(link);
	} else if (!speaks_first && !options.broken) {
		check(rdma_disconnect(link->id), "rdma_disconnect");
	}
	rdma_ack_cm_event(await_event(link->events, RDMA_CM_EVENT_DISCONNECTED));
	if (*options.fault || options.broken || speaks_first) {
		rdma_disconnect(link->id);
	}
	drain(link, sent);
}

static struct rdma_conn_param parameters(unsigned char *private_data) {
	fill(private_data, options.private_data);
	return (struct rdma_conn_param){
		.private_data = private_data, .private_data_len = options.private_data,
		.responder_resources = options.ird, .initiator_depth = options.ord,
	};
}

static void serve(struct link *link, struct rdma_cm_id *listener) {
	unsigned char private_data[256];
	struct rdma_cm_event *event = await_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	verify_private_data(event);
	struct rdma_conn_param param = parameters(private_data);
	rdma_ack_cm_event(event);
	if (options.reject) {
		check(rdma_reject(id, private_data, options.private_data), "rdma_reject");
		check(rdma_destroy_id(id), "rdma_destroy_id");
		return;
	}
	*link = (struct link){.events = open_events(), .id = id};
	check(rdma_migrate_id(id, link->events), "rdma_migrate_id");
	open_link(link);
	check(rdma_accept(id, &param), "rdma_accept");
	rdma_ack_cm_event(await_event(link->events, RDMA_CM_EVENT_ESTABLISHED));
	converse(link);
	close_link(link);
}

static void call(struct link *link, struct rdma_addrinfo *address) {
	unsigned char private_data[256];
	struct rdma_conn_param param = parameters(private_data);
	struct rdma_event_channel *events = open_events();
	struct rdma_cm_event *event;
	*link = (struct link){.events = events};
	check(rdma_create_id(events, &link->id, NULL, RDMA_PS_TCP), "rdma_create_id");
	check(rdma_resolve_addr(link->id, NULL, address->ai_dst_addr, 10000), "rdma_resolve_addr");
	rdma_ack_cm_event(await_event(events, RDMA_CM_EVENT_ADDR_RESOLVED));
	check(rdma_resolve_route(link->id, 10000), "rdma_resolve_route");
	rdma_ack_cm_event(await_event(events, RDMA_CM_EVENT_ROUTE_RESOLVED));
	open_link(link);
	check(rdma_connect(link->id, &param), "rdma_connect");
	event = await_event(events, options.reject ? RDMA_CM_EVENT_REJECTED
						   : RDMA_CM_EVENT_ESTABLISHED);
	verify_private_data(event);
	rdma_ack_cm_event(event);
	if (!options.reject) {
		converse(link);
	}
	close_link(link);
}

static int number(const char *argument, const char *name, int *value) {
	size_t length = strlen(name);
	if (strncmp(argument, name, length) || argument[length] != '=') {
		return 0;
	}
	*value = atoi(argument + length + 1);
	return 1;
}

static void parse(const char *argument) {
	if (!strcmp(argument, "reject")) {
		options.reject = 1;
	} else if (!strcmp(argument, "broken")) {
		options.broken = 1;
	} else if (!strcmp(argument, "siw")) {
		options.siw = 1;
	} else if (!strcmp(argument, "speak=server")) {
		options.server_speaks = 1;
	} else if (!strncmp(argument, "fault=", 6)) {
		options.fault = argument + 6;
	} else if (!number(argument, "private", &options.private_data) &&
		   !number(argument, "expect", &options.expected) &&
		   !number(argument, "ird", &options.ird) &&
		   !number(argument, "ord", &options.ord) &&
		   !number(argument, "times", &options.times) &&
		   !number(argument, "size", &options.size) &&
		   !number(argument, "status", &options.status)) {
		fail("unknown option %s", argument);
	}
}

int main(int argc, char **argv) {
	static struct link link;
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *address;
	options.server = argc > 2 && !strcmp(argv[1], "listen");
	int used = options.server ? 3 : 4;
	if (argc < used || (!options.server && strcmp(argv[1], "connect"))) {
		fail("usage: peer listen PORT [OPTION...] | peer connect ADDRESS PORT [OPTION...]");
	}
	for (int i = used; i < argc; i++) {
		parse(argv[i]);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	hints.ai_flags = options.server ? RAI_PASSIVE : 0;
	check(rdma_getaddrinfo(options.server ? NULL : argv[2], argv[used - 1], &hints, &address),
	      "rdma_getaddrinfo");
	struct rdma_cm_id *listener = NULL;
	if (options.server) {
		check(rdma_create_id(open_events(), &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
		check(rdma_bind_addr(listener, address->ai_src_addr), "rdma_bind_addr");
		check(rdma_listen(listener, 8), "rdma_listen");
	}
	for (int i = 0; i < options.times; i++) {
		options.server ? serve(&link, listener) : call(&link, address);
	}
	printf("%d connections as expected\n", options.times);
	return 0;
}
