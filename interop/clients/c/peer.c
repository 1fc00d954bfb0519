// Sends or receives numbered messages over one connection, and ends in a way of its own.
//
//     peer receive PORT COUNT SIZE [stay|event|late]
//     peer send PORT COUNT SIZE return|exit|_exit|kill|stay
//     peer send PORT COUNT SIZE fork PORT2
//
// The receiver prints "complete" once every octet of every message is right. "fork" sends half,
// forks a child that sends as much to PORT2 over a context of its own and exits, and sends the
// rest. "stay" keeps the connection, silent, until somebody ends the process, and "event" until
// rdma-cm tells of an event, whose name the receiver then prints. "late" posts one receive, and
// the others one by one after a SIGUSR1.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(ok)                                                                                   \
	do {                                                                                       \
		if (!(ok)) {                                                                       \
			fprintf(stderr, "line %d: %s: %m\n", __LINE__, #ok);                       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static int count, size;

struct peer {
	struct rdma_cm_id *id;
	unsigned char *memory;
	struct ibv_mr *mr;
};

static unsigned char octet(int message, int at)
{
	return (unsigned char)(message * 31 + at * 7 + (at >> 8));
}

static unsigned char *message(struct peer *peer, int number)
{
	return peer->memory + (size_t)number * size;
}

static struct rdma_cm_id *endpoint(const char *port, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = count, .max_recv_wr = count, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_addrinfo *info;
	struct rdma_cm_id *id;
	MUST(!rdma_getaddrinfo("127.0.0.1", port, &hints, &info));
	MUST(!rdma_create_ep(&id, info, NULL, &attr));
	rdma_freeaddrinfo(info);
	return id;
}

static void provide_memory(struct peer *peer)
{
	peer->memory = calloc(count, size);
	MUST(peer->memory);
	peer->mr = rdma_reg_msgs(peer->id, peer->memory, (size_t)count * size);
	MUST(peer->mr);
}

/* Polls no queue meanwhile: nothing but the event says that the peer has gone. */
static void print_event(struct rdma_cm_id *id)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	MUST(channel && !rdma_migrate_id(id, channel));
	MUST(!rdma_get_cm_event(channel, &event));
	printf("%s\n", rdma_event_str(event->event));
	MUST(!rdma_ack_cm_event(event));
}

static void await_signal(const sigset_t *signals)
{
	int signal;
	MUST(!sigwait(signals, &signal));
}

static void receive(const char *port, const char *end)
{
	struct rdma_cm_id *listener = endpoint(port, RAI_PASSIVE);
	int posted = !strcmp(end, "late") ? 1 : count;
	struct peer peer;
	struct ibv_wc wc;
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	MUST(!sigprocmask(SIG_BLOCK, &signals, NULL));
	MUST(!rdma_listen(listener, 1));
	MUST(!rdma_get_request(listener, &peer.id));
	provide_memory(&peer);
	for (int i = 0; i < posted; i++)
		MUST(!rdma_post_recv(peer.id, NULL, message(&peer, i), size, peer.mr));
	MUST(!rdma_accept(peer.id, NULL));
	for (int i = 0; i < count; i++) {
		if (i == 1 && posted == 1)
			await_signal(&signals);
		if (i >= posted)
			MUST(!rdma_post_recv(peer.id, NULL, message(&peer, i), size, peer.mr));
		MUST(rdma_get_recv_comp(peer.id, &wc) == 1);
		MUST(wc.status == IBV_WC_SUCCESS && wc.byte_len == (unsigned)size);
	}
	for (int i = 0; i < count; i++)
		for (int at = 0; at < size; at++)
			MUST(message(&peer, i)[at] == octet(i, at));
	printf("complete\n");
	fflush(stdout);
	if (!strcmp(end, "event"))
		print_event(peer.id);
}

static void connect_to(struct peer *peer, const char *port)
{
	peer->id = endpoint(port, 0);
	provide_memory(peer);
	for (int i = 0; i < count; i++)
		for (int at = 0; at < size; at++)
			message(peer, i)[at] = octet(i, at);
	MUST(!rdma_connect(peer->id, NULL));
}

static void send_some(struct peer *peer, int from, int to)
{
	struct ibv_wc wc;
	for (int i = from; i < to; i++)
		MUST(!rdma_post_send(peer->id, NULL, message(peer, i), size, peer->mr, 0));
	for (int i = from; i < to; i++) {
		MUST(rdma_get_send_comp(peer->id, &wc) == 1);
		MUST(wc.status == IBV_WC_SUCCESS);
	}
}

static void send_beside_a_child(struct peer *peer, const char *other_port)
{
	struct peer other;
	int status;
	send_some(peer, 0, count / 2);
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0) {
		connect_to(&other, other_port);
		send_some(&other, 0, count);
		exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && status == 0);
	send_some(peer, count / 2, count);
}

int main(int argc, char **argv)
{
	struct peer peer;
	MUST(argc >= 5);
	count = atoi(argv[3]);
	size = atoi(argv[4]);
	const char *end = argc > 5 ? argv[5] : "return";
	if (!strcmp(argv[1], "receive")) {
		receive(argv[2], end);
	} else {
		connect_to(&peer, argv[2]);
		if (!strcmp(end, "fork"))
			send_beside_a_child(&peer, argv[6]);
		else
			send_some(&peer, 0, count);
	}
	if (!strcmp(end, "exit"))
		exit(0);
	if (!strcmp(end, "_exit"))
		_exit(0);
	if (!strcmp(end, "kill"))
		raise(SIGKILL);
	if (!strcmp(end, "stay")) {
		printf("staying\n");
		fflush(stdout);
		pause();
	}
	return 0;
}
