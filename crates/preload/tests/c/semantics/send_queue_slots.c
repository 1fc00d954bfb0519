/* A send queue takes as many requests as it was granted. A slot comes back when a completion is
 * polled that stands for it, and not when its request is done. */
#include "pair.h"

static int room;

/* Posts `count` in one list, of which the last is signaled; gives how many were taken. */
static int post_list(int count, int *error)
{
	struct ibv_send_wr list[count], *bad = NULL;
	for (int i = 0; i < count; i++) {
		list[i] = request(IBV_WR_RDMA_WRITE_WITH_IMM, i, 0, NULL, 0);
		list[i].num_sge = 0;
		list[i].next = i + 1 < count ? &list[i + 1] : NULL;
	}
	list[room - 1].send_flags = IBV_SEND_SIGNALED;
	*error = ibv_post_send(a.qp, list, &bad);
	return *error ? (int)(bad - list) : count;
}

static void receive_all(int count)
{
	for (int i = 0; i < count; i++)
		CHECK(next(b.cq).status == IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int error;
	CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init) == 0);
	room = init.cap.max_send_wr;
	CHECK(room >= (int)wanted.cap.max_send_wr);

	for (int i = 0; i < room; i++)
		receive(b, i, 0, 8);
	CHECK(post_list(room + 1, &error) == room && error == ENOMEM);
	/* All have arrived, but no completion was polled. */
	receive_all(room);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 1, 0, NULL, 0), *bad;
	wr.num_sge = 0;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == ENOMEM && bad == &wr);
	/* One completion, that of the last, gives all slots back. */
	ends(a, room - 1, IBV_WC_SUCCESS);
	for (int i = 0; i < room; i++)
		receive(b, i, 0, 8);
	CHECK(post_list(room, &error) == room);
	receive_all(room);
	ends(a, room - 1, IBV_WC_SUCCESS);
	part();

	/* Where all are to be signaled, each completes, whatever its flags say. */
	wanted.sq_sig_all = 1;
	pair();
	for (int i = 0; i < 3; i++)
		post(a, IBV_WR_RDMA_WRITE, i, 0, 0, 1, 8);
	for (int i = 0; i < 3; i++)
		ends(a, i, IBV_WC_SUCCESS);
	part();
	return finish();
}
