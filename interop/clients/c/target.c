// What attackers attack where the tests look inside: a listener that tells its peers keys of memory
// with different rights and looks at that memory when they are gone, and queue pairs for datagrams
// that say what they got.
//
//     target connections ADDRESS PORT    until a peer has sent a message of LAST bytes
//     target queries ADDRESS PORT        listens for who looks for a queue pair for datagrams
//     target datagrams ADDRESS           a queue pair for datagrams
//     target group ADDRESS GROUP         a member of a multicast group
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 64, INBOX = 16, LAST = 1, FILL = 7, DEPTH = 4, ROOM = 2048, RECEIVES = 64 };
enum { OPEN, SINK, SOURCE, CLOSED, REGIONS };

static const int rights[REGIONS] = {
	[OPEN] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		 IBV_ACCESS_REMOTE_ATOMIC,
	[SINK] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	[SOURCE] = IBV_ACCESS_REMOTE_READ,
	[CLOSED] = IBV_ACCESS_LOCAL_WRITE,
};

// What the peer is told of each region, in network byte order.
struct __attribute__((packed)) told {
	uint64_t addr;
	uint32_t key;
};

// What a connection has of its own.
struct peer {
	struct ibv_mr *inbox;
	char room[INBOX];
};

static struct ibv_pd *pd;
static struct ibv_cq *cq;
// The regions lie between bytes that nobody is told of.
static unsigned char memory[(2 * REGIONS + 1) * SIZE] __attribute__((aligned(64)));
static struct ibv_mr *regions[REGIONS];

#define MUST(what) must(!!(what), #what)

static void must(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

static void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

static void open_memory(struct ibv_context *device)
{
	MUST(pd = ibv_alloc_pd(device));
	MUST(cq = ibv_create_cq(device, 256, NULL, NULL, 0));
	memset(memory, FILL, sizeof memory);
	for (int i = 0; i < REGIONS; i++)
		MUST(regions[i] = ibv_reg_mr(pd, memory + (2 * i + 1) * SIZE, SIZE, rights[i]));
}

static int untouched(void)
{
	for (size_t i = 0; i < sizeof memory; i++)
		if (memory[i] != FILL)
			return 0;
	return 1;
}

static void post_inbox(struct ibv_qp *qp, struct peer *peer)
{
	struct ibv_sge sge = { (uintptr_t)peer->room, INBOX, peer->inbox->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)peer, .sg_list = &sge, .num_sge = 1 }, *bad;
	MUST(!ibv_post_recv(qp, &wr, &bad));
}

// Reads from the peer into the middle of CLOSED.
static void post_read(struct ibv_qp *qp)
{
	struct ibv_mr *sink = regions[CLOSED];
	struct ibv_sge sge = { (uintptr_t)sink->addr + 16, 8, sink->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ }, *bad;
	wr.wr.rdma.rkey = 9;
	MUST(!ibv_post_send(qp, &wr, &bad));
}

// Grants what was asked for. Who says "read" is read from.
static void grant(struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct told told[REGIONS];
	struct rdma_conn_param param = {
		.private_data = told, .private_data_len = sizeof told,
		.responder_resources = DEPTH, .initiator_depth = DEPTH, .rnr_retry_count = 7,
	};
	const struct rdma_conn_param *asked = &event->param.conn;
	int reads = asked->private_data_len >= 4 && !memcmp(asked->private_data, "read", 4);
	struct peer *peer = calloc(1, sizeof *peer);
	for (int i = 0; i < REGIONS; i++) {
		told[i].addr = htobe64((uintptr_t)regions[i]->addr);
		told[i].key = htobe32(regions[i]->rkey);
	}
	MUST(peer);
	MUST(peer->inbox = ibv_reg_mr(pd, peer->room, INBOX, IBV_ACCESS_LOCAL_WRITE));
	id->context = peer;
	MUST(!rdma_create_qp(id, pd, &init));
	post_inbox(id->qp, peer);
	MUST(!rdma_accept(id, &param));
	if (reads)
		post_read(id->qp);
}

// The connection is over: its completions, and whether the memory is as it was. Whether a rightful
// peer has said that it was the last.
static int finish(struct rdma_cm_id *id)
{
	struct peer *peer = id->context;
	struct ibv_wc wc;
	int last = 0, received = 0;
	rdma_disconnect(id);
	while (!received) {
		int n = ibv_poll_cq(cq, 1, &wc);
		MUST(n >= 0);
		// That of the Read has no name.
		received = n && wc.wr_id == (uintptr_t)peer;
	}
	last = wc.status == IBV_WC_SUCCESS && wc.byte_len == LAST;
	rdma_destroy_qp(id);
	MUST(!ibv_dereg_mr(peer->inbox));
	free(peer);
	MUST(!rdma_destroy_id(id));
	if (last) {
		struct ibv_mr *open = regions[OPEN];
		printf("open %d %d\n", ((char *)open->addr)[0], ((char *)open->addr)[SIZE - 1]);
		memset(open->addr, FILL, SIZE);
	}
	say(untouched() ? "untouched" : "changed");
	return last;
}

static struct rdma_cm_id *bound(struct rdma_event_channel *channel, enum rdma_port_space space,
				const char *address, const char *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	struct rdma_cm_id *id;
	MUST(inet_pton(AF_INET, address, &at.sin_addr) == 1);
	MUST(!rdma_create_id(channel, &id, NULL, space));
	MUST(!rdma_bind_addr(id, (struct sockaddr *)&at));
	return id;
}

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	MUST(!rdma_get_cm_event(channel, &event));
	return event;
}

static void connections(const char *address, const char *port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = bound(channel, RDMA_PS_TCP, address, port);
	open_memory(listener->verbs);
	MUST(!rdma_listen(listener, 64));
	for (int over = 0; !over;) {
		struct rdma_cm_event *event = next_event(channel);
		struct rdma_cm_id *id = event->id;
		enum rdma_cm_event_type type = event->event;
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			say("asked");
			grant(event);
		}
		rdma_ack_cm_event(event);
		if (type == RDMA_CM_EVENT_DISCONNECTED)
			over = finish(id);
	}
}

static void queries(const char *address, const char *port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = bound(channel, RDMA_PS_UDP, address, port);
	struct rdma_conn_param param = { .qp_num = 0x1234 };
	MUST(!rdma_listen(listener, 64));
	for (;;) {
		struct rdma_cm_event *event = next_event(channel);
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			say("asked");
			MUST(!rdma_accept(event->id, &param));
		}
		rdma_ack_cm_event(event);
	}
}

// Says how long each message is that comes.
static void tell_messages(struct ibv_qp *qp)
{
	struct ibv_mr *mr;
	char *room = calloc(RECEIVES, ROOM);
	MUST(mr = ibv_reg_mr(pd, room, RECEIVES * ROOM, IBV_ACCESS_LOCAL_WRITE));
	for (int i = 0; i < RECEIVES; i++) {
		struct ibv_sge sge = { (uintptr_t)room + i * ROOM, ROOM, mr->lkey };
		struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
		MUST(!ibv_post_recv(qp, &wr, &bad));
	}
	printf("queue pair %u\n", qp->qp_num);
	fflush(stdout);
	for (;;) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(cq, 1, &wc);
		MUST(n >= 0);
		if (n) {
			// The route header is not the sender's.
			printf("%u bytes\n", wc.byte_len - 40);
			fflush(stdout);
		}
	}
}

static struct ibv_qp *datagram_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 1, .max_recv_wr = RECEIVES, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	MUST(!rdma_create_qp(id, pd, &init));
	return id->qp;
}

static void datagrams(const char *address)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = bound(channel, RDMA_PS_UDP, address, "0");
	open_memory(id->verbs);
	tell_messages(datagram_qp(id));
}

static void group(const char *address, const char *name)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = bound(channel, RDMA_PS_UDP, address, "0");
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct rdma_cm_event *event;
	open_memory(id->verbs);
	datagram_qp(id);
	MUST(inet_pton(AF_INET, name, &to.sin_addr) == 1);
	MUST(!rdma_join_multicast(id, (struct sockaddr *)&to, NULL));
	event = next_event(channel);
	MUST(event->event == RDMA_CM_EVENT_MULTICAST_JOIN);
	rdma_ack_cm_event(event);
	tell_messages(id->qp);
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	if (argc == 4 && !strcmp(what, "connections")) {
		connections(argv[2], argv[3]);
	} else if (argc == 4 && !strcmp(what, "queries")) {
		queries(argv[2], argv[3]);
	} else if (argc == 3 && !strcmp(what, "datagrams")) {
		datagrams(argv[2]);
	} else if (argc == 4 && !strcmp(what, "group")) {
		group(argv[2], argv[3]);
	} else {
		fprintf(stderr, "usage: %s connections|queries|datagrams|group ADDRESS ...\n", argv[0]);
		return 2;
	}
	return 0;
}
