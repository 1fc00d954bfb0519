/* What a program sees of a device that is reset: its queue pair is flushed, one event comes, each
 * command of the context fails, what was made can be destroyed, and the device can be opened again
 * once it is back. */
#include "check.h"

#include <infiniband/verbs.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct ibv_device *find(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *found = NULL;
	CHECK(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "weft0"))
			found = list[i];
	ibv_free_device_list(list);
	return found;
}

int main(void)
{
	static char memory[64];
	struct ibv_context *context = ibv_open_device(find());
	CHECK(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	CHECK(pd && mr && cq);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 16, .lkey = mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(qp, &recv, &bad) == 0);

	struct ibv_async_event event;
	CHECK(ibv_get_async_event(context, &event) == 0);
	printf("%s\n", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.wr_id == 7);
	printf("the receive: %s\n", ibv_wc_status_str(wc.status));
	struct ibv_port_attr port;
	printf("query_port: %s\n", strerror(ibv_query_port(context, 1, &port)));
	printf("modify_qp: %s\n", strerror(ibv_modify_qp(qp, &attr, mask)));
	errno = 0;
	CHECK(!ibv_alloc_pd(context));
	printf("alloc_pd: %s\n", strerror(errno));
	errno = 0;
	CHECK(!ibv_create_cq(context, 8, NULL, NULL, 0));
	printf("create_cq: %s\n", strerror(errno));
	printf("the device: %s\n", find() ? "there" : "not there");
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);

	while (!find())
		;
	context = ibv_open_device(find());
	CHECK(context && ibv_query_port(context, 1, &port) == 0);
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	printf("again: %s\n", ibv_port_state_str(port.state));
	return 0;
}
