/* How calls say what went wrong: a positive errno, or NULL or -1 and errno, as each always has. */
#include "pair.h"

/* A call that gives the errno itself. */
#define GIVES(call, code) CHECK((call) == (code))
/* A call that gives NULL or -1, and sets errno. */
#define SETS(call, code)                                          \
	do {                                                      \
		errno = 0;                                        \
		intptr_t given = (intptr_t)(call);                \
		CHECK((given == 0 || given == -1) && errno == (code)); \
	} while (0)

int main(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel && fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	struct ibv_sge sge = place(0, 8);
	struct ibv_send_wr send = request(99, 1, 0, &sge, 0), *bad_send = NULL;
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 99 }, *bad_recv = NULL;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct ibv_gid_entry entry;
	struct ibv_async_event event;
	union ibv_gid gid;
	struct ibv_port_attr port;
	struct ibv_cq *cq;
	uint16_t key;
	void *word;

	GIVES(ibv_post_send(a.qp, &send, &bad_send), EINVAL);
	GIVES(ibv_post_recv(a.qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_send == &send && bad_recv == &recv);
	GIVES(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), EINVAL);
	GIVES(ibv_destroy_cq(a.cq), EBUSY);
	GIVES(ibv_dealloc_pd(pd), EBUSY);
	GIVES(ibv_resize_cq(a.cq, 0), EINVAL);
	GIVES(ibv_query_port(context, 2, &port), EINVAL);
	GIVES(ibv_query_gid_ex(context, 1, 31 + 96 * adapter, &entry, 0), ENODATA);
	GIVES(ibv_query_gid_ex(context, 1, 1000, &entry, 0), EINVAL);
	GIVES(ibv_query_gid_table(context, &entry, 0, 0), -EINVAL);

	SETS(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	SETS(ibv_reg_mr(pd, memory, 8, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	SETS(ibv_reg_mr(pd, (void *)4096, 8, 0), EFAULT);
	SETS(ibv_alloc_mw(pd, 3), EINVAL);
	SETS(ibv_query_gid(context, 1, 1000, &gid), EINVAL);
	SETS(ibv_query_gid(context, 2, 0, &gid), EINVAL);
	SETS(ibv_query_pkey(context, 1, 1000, &key), EINVAL);
	SETS(ibv_get_cq_event(channel, &cq, &word), EAGAIN);
	SETS(ibv_get_async_event(context, &event), EAGAIN);
	CHECK(ibv_get_pkey_index(context, 1, 0x1234) == -1);

	CHECK(ibv_destroy_comp_channel(channel) == 0);
	part();
	return finish();
}
