/* Groups that ids of rdma-cm join: what the event says, who receives, and the end. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <unistd.h>

#include "check.h"

enum { OCTETS = 40 + 32, QKEY = 0x01234567 };

/* An id with a queue pair, its memory, and how to send to the group. */
struct end {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	char memory[OCTETS];
};

static struct sockaddr_in here = { .sin_family = AF_INET }, group = { .sin_family = AF_INET };

static void resolve(struct end *end)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_cm_event *event;
	CHECK((end->channel = rdma_create_event_channel()));
	CHECK(!rdma_create_id(end->channel, &end->id, end, RDMA_PS_UDP));
	CHECK(rdma_join_multicast(end->id, (struct sockaddr *)&group, NULL) == -1);
	CHECK(!rdma_resolve_addr(end->id, (struct sockaddr *)&here, (struct sockaddr *)&group, 2000));
	CHECK(!rdma_get_cm_event(end->channel, &event));
	CHECK(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && !rdma_ack_cm_event(event));
	CHECK(!rdma_create_qp(end->id, NULL, &attr));
	CHECK((end->mr = rdma_reg_msgs(end->id, end->memory, OCTETS)));
}

static void join(struct end *end, int receives)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = (struct sockaddr *)&group,
	};
	struct rdma_cm_event *event;
	if (receives)
		CHECK(!rdma_join_multicast(end->id, (struct sockaddr *)&group, end->memory));
	else
		CHECK(!rdma_join_multicast_ex(end->id, &attr, end->memory));
	CHECK(!rdma_get_cm_event(end->channel, &event));
	CHECK(event->event == RDMA_CM_EVENT_MULTICAST_JOIN && event->status == 0);
	struct rdma_ud_param *how = &event->param.ud;
	CHECK(event->id == end->id && how->private_data == end->memory);
	CHECK(how->qp_num == 0xffffff && how->qkey == QKEY);
	CHECK(how->ah_attr.is_global && how->ah_attr.dlid >= 0xc000);
	CHECK(!memcmp(how->ah_attr.grh.dgid.raw + 12, &group.sin_addr, 4));
	CHECK(!end->ah || !ibv_destroy_ah(end->ah));
	CHECK((end->ah = ibv_create_ah(end->id->pd, &how->ah_attr)));
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_post_recv(end->id, NULL, end->memory, OCTETS, end->mr));
}

static void send_to_all(struct end *end, char fill)
{
	struct ibv_wc wc;
	static char text[32];
	memset(text, fill, sizeof(text));
	CHECK(!rdma_post_ud_send(end->id, NULL, text, sizeof(text), NULL, IBV_SEND_INLINE, end->ah,
				 0xffffff));
	CHECK(rdma_get_send_comp(end->id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
}

static void received(struct end *end, char fill)
{
	struct ibv_wc wc;
	CHECK(rdma_get_recv_comp(end->id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.byte_len == OCTETS && end->memory[OCTETS - 1] == fill);
}

static void nothing(struct end *end)
{
	struct ibv_wc wc;
	for (int i = 0; i < 2000; i++)
		CHECK(ibv_poll_cq(end->id->recv_cq, 1, &wc) == 0);
}

static void close_end(struct end *end)
{
	CHECK(!ibv_destroy_ah(end->ah) && !rdma_dereg_mr(end->mr));
	rdma_destroy_qp(end->id);
	CHECK(!rdma_destroy_id(end->id));
	rdma_destroy_event_channel(end->channel);
}

int main(void)
{
	static struct end sender, member, gone;
	struct rdma_cm_id *stream;
	char text[32];
	unsigned pid = getpid();
	snprintf(text, sizeof(text), "239.78.%u.%u", pid >> 8 & 255, pid & 255);
	CHECK(inet_pton(AF_INET, text, &group.sin_addr) == 1);
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	resolve(&sender), resolve(&member), resolve(&gone);
	join(&sender, 0), join(&member, 1), join(&gone, 1);

	send_to_all(&sender, 'a');
	received(&member, 'a');
	received(&gone, 'a');
	nothing(&sender);

	CHECK(!rdma_post_recv(member.id, NULL, member.memory, OCTETS, member.mr));
	CHECK(!rdma_post_recv(gone.id, NULL, gone.memory, OCTETS, gone.mr));
	CHECK(!rdma_leave_multicast(gone.id, (struct sockaddr *)&group));
	CHECK(rdma_leave_multicast(gone.id, (struct sockaddr *)&group) == -1);
	CHECK(errno == EADDRNOTAVAIL);
	send_to_all(&sender, 'b');
	received(&member, 'b');
	nothing(&gone);

	/* Who joins twice leaves twice, and gets nothing once it has left for the first time. */
	join(&gone, 1), join(&gone, 1);
	CHECK(!rdma_leave_multicast(gone.id, (struct sockaddr *)&group));
	CHECK(!rdma_post_recv(member.id, NULL, member.memory, OCTETS, member.mr));
	send_to_all(&sender, 'c');
	received(&member, 'c');
	nothing(&gone);
	CHECK(!rdma_leave_multicast(gone.id, (struct sockaddr *)&group));
	CHECK(rdma_leave_multicast(gone.id, (struct sockaddr *)&group) == -1);

	/* Who has left is not told any more that it has joined. */
	struct rdma_cm_event *event;
	struct pollfd waits = { gone.channel->fd, POLLIN, 0 };
	CHECK(!rdma_join_multicast(gone.id, (struct sockaddr *)&group, NULL));
	CHECK(poll(&waits, 1, -1) == 1);
	CHECK(!rdma_leave_multicast(gone.id, (struct sockaddr *)&group));
	CHECK(fcntl(gone.channel->fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(rdma_get_cm_event(gone.channel, &event) == -1 && errno == EAGAIN);

	CHECK(!rdma_create_id(sender.channel, &stream, NULL, RDMA_PS_TCP));
	CHECK(rdma_join_multicast(stream, (struct sockaddr *)&group, NULL) == -1);
	CHECK(!rdma_destroy_id(stream));
	/* A member that is destroyed has left. */
	close_end(&member), close_end(&gone), close_end(&sender);
	return 0;
}
