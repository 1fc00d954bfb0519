/* What the queue pairs of a connection over an adapter are told of it: whose number of retries
 * counts, and from which row of the table it begins; and how datagrams are refused. */
#include "cm.h"

#include <unistd.h>

static struct rdma_cm_id *calling(enum rdma_port_space space, struct rdma_conn_param *param)
{
	struct rdma_cm_id *id = routed(space);
	CHECK(rdma_connect(id, param) == 0);
	return id;
}

static struct rdma_cm_id *asked_for(int retries, int rnr_retries)
{
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	CHECK(event->param.conn.retry_count == retries);
	CHECK(event->param.conn.rnr_retry_count == rnr_retries);
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static void has(struct rdma_cm_id *id, int retries, int rnr_retries)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	union ibv_gid gid;
	int mask = IBV_QP_AV | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	CHECK(ibv_query_qp(id->qp, &attr, mask, &init) == 0);
	CHECK(attr.retry_cnt == retries && attr.rnr_retry == rnr_retries);
	static const uint8_t loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	CHECK(attr.ah_attr.is_global && attr.ah_attr.grh.hop_limit == 64);
	CHECK(ibv_query_gid(id->verbs, 1, attr.ah_attr.grh.sgid_index, &gid) == 0);
	CHECK(!memcmp(gid.raw, loopback, 16));
}

/* Each side says how often the other repeats what finds no receive; how often requests are repeated
 * is for the side that connects to say (rdma_connect(3)). */
static void connection(struct rdma_conn_param *asks, struct rdma_conn_param *answers)
{
	int retries = asks ? asks->retry_count : 7, rnr = asks ? asks->rnr_retry_count : 7;
	struct rdma_cm_id *listener = listening(RDMA_PS_TCP);
	struct rdma_cm_id *active = calling(RDMA_PS_TCP, asks);
	struct rdma_cm_id *passive = asked_for(retries, rnr);
	/* Programs may connect the queue pair by themselves before they accept. */
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	int mask;
	CHECK(rdma_init_qp_attr(passive, &attr, &mask) == 0);
	CHECK(attr.retry_cnt == retries && attr.rnr_retry == rnr);
	give_qp(passive);
	CHECK(rdma_accept(passive, answers) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	has(active, retries, answers ? answers->rnr_retry_count : 7);
	has(passive, retries, rnr);
	CHECK(rdma_disconnect(active) == 0);
	struct rdma_cm_id *all[] = { active, passive };
	for (int i = 0; i < 2; i++) {
		rdma_destroy_qp(all[i]);
		CHECK(rdma_destroy_id(all[i]) == 0);
	}
	CHECK(rdma_destroy_id(listener) == 0);
}

/* Who refuses datagrams is unreachable, with the status of a service ID resolution. */
static void refused_datagrams(void)
{
	struct rdma_conn_param param = { .private_data = "hello", .private_data_len = 5 };
	struct rdma_cm_id *listener = listening(RDMA_PS_UDP);
	struct rdma_cm_id *active = calling(RDMA_PS_UDP, &param);
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *passive = event->id;
	CHECK(rdma_ack_cm_event(event) == 0 && rdma_reject(passive, "no", 2) == 0);
	CHECK(rdma_destroy_id(passive) == 0);
	event = next(RDMA_CM_EVENT_UNREACHABLE);
	CHECK(event->status == 2 && event->param.ud.private_data_len == 136);
	CHECK(!memcmp(event->param.ud.private_data, "no", 2));
	CHECK(rdma_ack_cm_event(event) == 0);
	rdma_destroy_qp(active);
	CHECK(rdma_destroy_id(active) == 0 && rdma_destroy_id(listener) == 0);
	/* Nobody listens any more. */
	active = calling(RDMA_PS_UDP, &param);
	event = next(RDMA_CM_EVENT_UNREACHABLE);
	CHECK(event->status == 1);
	CHECK(rdma_ack_cm_event(event) == 0);
	rdma_destroy_qp(active);
	CHECK(rdma_destroy_id(active) == 0);
}

int main(void)
{
	CHECK((events = rdma_create_event_channel()));
	struct rdma_conn_param few = { .retry_count = 3, .rnr_retry_count = 2 };
	struct rdma_conn_param more = { .retry_count = 6, .rnr_retry_count = 5 };
	connection(&few, &more);
	connection(&more, NULL);
	connection(NULL, &few);
	connection(NULL, NULL);
	refused_datagrams();
	rdma_destroy_event_channel(events);
	return 0;
}
