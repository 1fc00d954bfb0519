/* The connection manager of an adapter takes no more private data than its messages have room for;
 * over iWARP there is more room. The arguments are the most of a request, a reply and a rejection
 * of connections, and of a request and an answer of datagrams. */
#include "cm.h"

static uint8_t words[255];

static int connects(struct rdma_cm_id *id, int length)
{
	struct rdma_conn_param param = { .private_data = words, .private_data_len = length };
	return rdma_connect(id, &param);
}

static int accepts(struct rdma_cm_id *id, int length)
{
	struct rdma_conn_param param = { .private_data = words, .private_data_len = length };
	return rdma_accept(id, &param);
}

static int refused(int code)
{
	return code == -1 && errno == EINVAL;
}

static void connection(int request, int reply)
{
	struct rdma_cm_id *listener = listening(RDMA_PS_TCP), *active = routed(RDMA_PS_TCP);
	CHECK(refused(connects(active, request + 1)) && connects(active, request) == 0);
	struct rdma_cm_id *passive = asked();
	give_qp(passive);
	CHECK(refused(accepts(passive, reply + 1)) && accepts(passive, reply) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	destroy(active);
	destroy(passive);
	destroy(listener);
}

static void rejection(int most)
{
	struct rdma_cm_id *listener = listening(RDMA_PS_TCP), *active = routed(RDMA_PS_TCP);
	CHECK(connects(active, 1) == 0);
	struct rdma_cm_id *passive = asked();
	CHECK(refused(rdma_reject(passive, words, most + 1)));
	CHECK(rdma_reject(passive, words, most) == 0);
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_REJECTED);
	CHECK(event->param.conn.private_data_len == most);
	CHECK(!memcmp(event->param.conn.private_data, words, most));
	CHECK(rdma_ack_cm_event(event) == 0);
	destroy(active);
	destroy(passive);
	destroy(listener);
}

static void datagrams(int request, int answer)
{
	struct rdma_cm_id *listener = listening(RDMA_PS_UDP), *active = routed(RDMA_PS_UDP);
	CHECK(refused(connects(active, request + 1)) && connects(active, request) == 0);
	struct rdma_cm_id *passive = asked();
	give_qp(passive);
	CHECK(refused(rdma_reject(passive, words, answer + 1)));
	CHECK(refused(accepts(passive, answer + 1)) && accepts(passive, answer) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	destroy(active);
	destroy(passive);
	destroy(listener);
}

int main(int count, char **most)
{
	CHECK(count == 6 && (events = rdma_create_event_channel()));
	for (size_t i = 0; i < sizeof words; i++)
		words[i] = i + 1;
	connection(atoi(most[1]), atoi(most[2]));
	rejection(atoi(most[3]));
	datagrams(atoi(most[4]), atoi(most[5]));
	rdma_destroy_event_channel(events);
	return 0;
}
