/* Who waits for solicited completions only is not told of others, but of errors. An event may come
 * after its completion was polled, so those that must come are waited for, and those that must not
 * are looked for once more at the end. */
#include "pair.h"

#include <poll.h>

static struct ibv_comp_channel *channel;

/* Whether there was an event. */
static int told(void)
{
	struct ibv_cq *cq;
	void *word;
	if (ibv_get_cq_event(channel, &cq, &word)) {
		CHECK(errno == EAGAIN);
		return 0;
	}
	CHECK(cq == b.cq);
	ibv_ack_cq_events(cq, 1);
	return 1;
}

/* Waits for the event that must come. */
static void hears(void)
{
	struct pollfd waits = { .fd = channel->fd, .events = POLLIN };
	CHECK(poll(&waits, 1, -1) == 1 && told());
}

static void message(int flags)
{
	receive(b, 1, 0, 8);
	post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED | flags, 0, 8, 0);
	ends(a, 2, IBV_WC_SUCCESS);
	ends(b, 1, IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	channel = ibv_create_comp_channel(context);
	CHECK(channel && fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	a.cq = make_cq(16);
	b.cq = ibv_create_cq(context, 16, NULL, channel, 0);
	CHECK(b.cq);
	a.qp = make_qp(a.cq), b.qp = make_qp(b.cq);
	join(a.qp, b.qp);

	CHECK(ibv_req_notify_cq(b.cq, 1) == 0);
	message(0);
	CHECK(!told());
	message(IBV_SEND_SOLICITED);
	hears();
	message(IBV_SEND_SOLICITED);
	CHECK(!told());

	CHECK(ibv_req_notify_cq(b.cq, 1) == 0);
	receive(b, 3, 0, 8);
	CHECK(modify(b.qp, IBV_QPS_ERR) == 0);
	ends(b, 3, IBV_WC_WR_FLUSH_ERR);
	hears();
	part();
	CHECK(!told());
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	return finish();
}
