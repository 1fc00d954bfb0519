/* The path record of an adapter's id, which iWARP does not have. */
#include "cm.h"

static void no_path(const struct rdma_cm_id *id)
{
	CHECK(id->route.num_paths == 0 && !id->route.path_rec);
}

static void one_path(const struct rdma_cm_id *id)
{
	const struct ibv_sa_path_rec *path = id->route.path_rec;
	const struct rdma_ib_addr *ends = &id->route.addr.addr.ibaddr;
	struct ibv_port_attr port;
	CHECK(id->route.num_paths == 1 && path);
	CHECK(!memcmp(&path->sgid, &ends->sgid, 16) && !memcmp(&path->dgid, &ends->dgid, 16));
	CHECK(ibv_query_port(id->verbs, id->port_num, &port) == 0);
	CHECK(path->mtu == port.active_mtu && path->mtu_selector == 2);
	CHECK(path->pkey == 0xffff && path->numb_path == 1 && path->reversible == 1);
	CHECK(path->hop_limit == 64 && path->packet_life_time == 16);
}

int main(int count, char **device)
{
	CHECK(count == 2 && (events = rdma_create_event_channel()));
	int adapter = !strcmp(device[1], "weft0"), tos = 0x28;
	struct rdma_cm_id *listener = listening(RDMA_PS_TCP), *active;
	CHECK(rdma_create_id(events, &active, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_set_option(active, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1) == 0);
	CHECK(rdma_resolve_addr(active, NULL, (struct sockaddr *)&address, 2000) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	no_path(active);
	CHECK(rdma_resolve_route(active, 2000) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	give_qp(active);
	CHECK(rdma_connect(active, NULL) == 0);
	struct rdma_cm_id *passive = asked();
	no_path(listener);
	(adapter ? one_path : no_path)(active);
	(adapter ? one_path : no_path)(passive);
	CHECK(!adapter || active->route.path_rec->traffic_class == tos);
	destroy(active);
	destroy(passive);
	destroy(listener);
	rdma_destroy_event_channel(events);
	return 0;
}
