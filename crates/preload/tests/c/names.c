/* Names that librdmacm resolves while the program goes on, and events of the program's own. */
#include "newest.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

static int (*write_cm_event)(struct rdma_cm_id *, int, int, uint64_t);
static int (*resolve_addrinfo)(struct rdma_cm_id *, const char *, const char *,
			       const struct rdma_addrinfo *);
static int (*query_addrinfo)(struct rdma_cm_id *, struct rdma_addrinfo **);

static struct rdma_event_channel *channel;

static struct rdma_cm_event *next(int type)
{
	struct rdma_cm_event *event = NULL;
	CHECK(rdma_get_cm_event(channel, &event) == 0 && (int)event->event == type);
	return event;
}

static int is_quiet(void)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	return poll(&fd, 1, 0) == 0;
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *where)
{
	struct rdma_cm_id *id = NULL;
	CHECK(rdma_create_id(where, &id, NULL, RDMA_PS_TCP) == 0);
	return id;
}

static void *wake(void *id)
{
	CHECK(write_cm_event(id, CM_EVENT_USER, -7, 0x55667788aabbccdd) == 0);
	return NULL;
}

static void own_events(void)
{
	struct rdma_cm_id *id = new_id(channel);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, wake, id) == 0);
	struct rdma_cm_event *event = next(CM_EVENT_USER);
	uint64_t arg;
	memcpy(&arg, &event->param, sizeof(arg));
	CHECK(event->id == id && !event->listen_id && event->status == -7);
	CHECK(arg == 0x55667788aabbccdd);
	CHECK(!strcmp(rdma_event_str(event->event), "RDMA_CM_EVENT_USER"));
	CHECK(rdma_ack_cm_event(event) == 0 && pthread_join(thread, NULL) == 0);
	for (int type = -1; type < 32; type++)
		if (type != CM_EVENT_USER)
			CHECK(write_cm_event(id, type, 0, 0) == -1 && errno == EINVAL);
	CHECK(write_cm_event(NULL, CM_EVENT_USER, 0, 0) == -1 && errno == EINVAL);
	CHECK(is_quiet());
	/* What nobody reads goes with the id. */
	CHECK(write_cm_event(id, CM_EVENT_USER, 0, 0) == 0 && !is_quiet());
	CHECK(rdma_destroy_id(id) == 0 && is_quiet());
}

static void is_loopback(const struct rdma_addrinfo *info, int port)
{
	const struct sockaddr_in *to = (const void *)info->ai_dst_addr;
	CHECK(info->ai_family == AF_INET && info->ai_dst_len == sizeof(*to) && !info->ai_next);
	CHECK(to->sin_addr.s_addr == htonl(INADDR_LOOPBACK) && to->sin_port == htons(port));
	CHECK(info->ai_port_space == RDMA_PS_TCP && info->ai_qp_type == IBV_QPT_RC);
}

static void names_are_resolved(void)
{
	struct rdma_cm_id *id = new_id(channel);
	struct rdma_addrinfo *info = NULL, *again = NULL, hints = { .ai_flags = ADDRINFO_DNS };
	CHECK(query_addrinfo(id, &info) == -1 && errno == ENODATA);
	CHECK(resolve_addrinfo(id, "127.0.0.1", "7174", &hints) == 0);
	struct rdma_cm_event *event = next(CM_EVENT_ADDRINFO_RESOLVED);
	CHECK(event->id == id && event->status == 0 && rdma_ack_cm_event(event) == 0);
	CHECK(query_addrinfo(id, &info) == 0 && query_addrinfo(id, &again) == 0 && info != again);
	CHECK(query_addrinfo(id, NULL) == -1 && errno == EINVAL);
	is_loopback(info, 7174);
	is_loopback(again, 7174);
	rdma_freeaddrinfo(again);
	CHECK(rdma_resolve_addr(id, NULL, info->ai_dst_addr, 1000) == 0);
	CHECK(rdma_ack_cm_event(next(RDMA_CM_EVENT_ADDR_RESOLVED)) == 0);
	rdma_freeaddrinfo(info);

	hints.ai_flags = RAI_NUMERICHOST;
	CHECK(resolve_addrinfo(id, "not-a-number", NULL, &hints) == 0);
	event = next(CM_EVENT_ADDRINFO_ERROR);
	CHECK(event->status == EAI_NONAME && rdma_ack_cm_event(event) == 0);
	CHECK(query_addrinfo(id, &info) == -1 && errno == ENODATA);
	CHECK(rdma_destroy_id(id) == 0);
}

static void what_cannot_be_resolved(void)
{
	struct rdma_cm_id *id = new_id(channel);
	struct rdma_addrinfo *info, hints = { .ai_flags = ADDRINFO_SA };
	CHECK(resolve_addrinfo(id, NULL, "service", &hints) == -1 && errno == EOPNOTSUPP);
	CHECK(rdma_getaddrinfo(NULL, "service", &hints, &info) == -1 && errno == EOPNOTSUPP);
	hints.ai_flags |= ADDRINFO_DNS;
	CHECK(resolve_addrinfo(id, NULL, "service", &hints) == -1 && errno == EINVAL);
	CHECK(resolve_addrinfo(id, NULL, NULL, NULL) == -1 && errno == EINVAL);
	CHECK(resolve_addrinfo(NULL, "127.0.0.1", NULL, NULL) == -1 && errno == EINVAL);
	CHECK(query_addrinfo(NULL, &info) == -1 && errno == EINVAL);
	CHECK(is_quiet() && rdma_destroy_id(id) == 0);
}

/* The thread that looks a name up may outlive the id. */
static void ids_end_meanwhile(void)
{
	for (int i = 0; i < 50; i++) {
		struct rdma_cm_id *id = new_id(channel);
		CHECK(resolve_addrinfo(id, "localhost", "7174", NULL) == 0);
		CHECK(rdma_destroy_id(id) == 0);
	}
	CHECK(is_quiet());
}

static void without_a_channel(void)
{
	struct rdma_cm_id *id = new_id(NULL);
	struct rdma_addrinfo *info = NULL, hints = { .ai_flags = RAI_NUMERICHOST };
	CHECK(resolve_addrinfo(id, "127.0.0.1", "9", &hints) == 0);
	CHECK(id->event && (int)id->event->event == CM_EVENT_ADDRINFO_RESOLVED);
	CHECK(query_addrinfo(id, &info) == 0);
	is_loopback(info, 9);
	rdma_freeaddrinfo(info);
	CHECK(resolve_addrinfo(id, "not-a-number", NULL, &hints) == -1);
	CHECK(id->event && (int)id->event->event == CM_EVENT_ADDRINFO_ERROR);
	CHECK(rdma_destroy_id(id) == 0);
}

int main(void)
{
	write_cm_event = newest("librdmacm.so.1", "rdma_write_cm_event", "RDMACM_1.4");
	resolve_addrinfo = newest("librdmacm.so.1", "rdma_resolve_addrinfo", "RDMACM_1.4");
	query_addrinfo = newest("librdmacm.so.1", "rdma_query_addrinfo", "RDMACM_1.4");
	channel = rdma_create_event_channel();
	CHECK(channel);
	own_events();
	names_are_resolved();
	what_cannot_be_resolved();
	ids_end_meanwhile();
	without_a_channel();
	rdma_destroy_event_channel(channel);
	return 0;
}
