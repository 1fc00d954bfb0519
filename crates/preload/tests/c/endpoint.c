/* Uses librdmacm by endpoints, where each call waits: a server and a client thread. */
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "check.h"

static char port[16];
static struct rdma_cm_id *listener;

static struct rdma_addrinfo *resolve(int flags, const char *service)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found = NULL;
	CHECK(rdma_getaddrinfo("127.0.0.1", service, &hints, &found) == 0 && found);
	CHECK(found->ai_qp_type == IBV_QPT_RC && found->ai_port_space == RDMA_PS_TCP);
	return found;
}

static struct ibv_qp_init_attr attributes(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 2;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	attr.cap.max_inline_data = 16;
	return attr;
}

static void *serve(void *unused)
{
	char in[16] = "", out[16] = "pong";
	struct rdma_cm_id *id = NULL;
	struct ibv_wc wc;
	CHECK(rdma_get_request(listener, &id) == 0);
	CHECK(id && id->qp && id->event && id->event->listen_id == listener && id->pd);
	CHECK(id->event->param.conn.private_data_len >= 4);
	CHECK(!memcmp(id->event->param.conn.private_data, "data", 4));
	struct ibv_mr *mr = rdma_reg_msgs(id, in, sizeof(in));
	CHECK(mr && rdma_post_recv(id, NULL, in, sizeof(in), mr) == 0);
	CHECK(rdma_accept(id, NULL) == 0 && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && !strcmp(in, "ping"));
	CHECK(rdma_post_send(id, NULL, out, sizeof(out), NULL, IBV_SEND_INLINE) == 0);
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_disconnect(id) == 0 && id->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CHECK(rdma_disconnect(id) == 0);
	CHECK(rdma_dereg_mr(mr) == 0);
	rdma_destroy_ep(id);

	CHECK(rdma_get_request(listener, &id) == 0);
	CHECK(rdma_reject(id, NULL, 0) == 0);
	rdma_destroy_ep(id);
	return unused;
}

static struct rdma_cm_id *client(void)
{
	struct rdma_addrinfo *to = resolve(0, port);
	to->ai_connect = strdup("data");
	to->ai_connect_len = 4;
	struct ibv_qp_init_attr attr = attributes();
	struct rdma_cm_id *id = NULL;
	CHECK(rdma_create_ep(&id, to, NULL, &attr) == 0);
	CHECK(id->qp && id->verbs && attr.cap.max_inline_data >= 16);
	rdma_freeaddrinfo(to);
	return id;
}

static void talk(void)
{
	char in[16] = "", out[16] = "ping";
	struct rdma_cm_id *id = client();
	struct ibv_wc wc;
	struct ibv_mr *mr = rdma_reg_msgs(id, in, sizeof(in));
	CHECK(rdma_post_recv(id, NULL, in, sizeof(in), mr) == 0);
	CHECK(rdma_connect(id, NULL) == 0 && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	CHECK(rdma_post_send(id, NULL, out, sizeof(out), NULL, IBV_SEND_INLINE) == 0);
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && !strcmp(in, "pong"));
	CHECK(rdma_disconnect(id) == 0);
	CHECK(rdma_dereg_mr(mr) == 0);
	rdma_destroy_ep(id);
}

static void refused(void)
{
	struct rdma_cm_id *id = client();
	CHECK(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED);
	CHECK(id->event->event == RDMA_CM_EVENT_REJECTED);
	rdma_destroy_ep(id);
}

static void shared_receives(void)
{
	struct rdma_addrinfo *to = resolve(0, port);
	struct rdma_cm_id *id = NULL;
	CHECK(rdma_create_ep(&id, to, NULL, NULL) == 0 && !id->qp);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	CHECK(rdma_create_srq(id, NULL, &srq) == 0 && id->srq && srq.attr.max_wr >= 4);
	CHECK(rdma_create_srq(id, NULL, &srq) == -1 && errno == EINVAL);
	struct ibv_qp_init_attr attr = attributes();
	CHECK(rdma_create_qp(id, NULL, &attr) == 0 && id->qp->srq == id->srq);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(to);
}

int main(void)
{
	pthread_t server;
	struct rdma_addrinfo *from = resolve(RAI_PASSIVE, "0");
	struct ibv_qp_init_attr attr = attributes();
	CHECK(rdma_create_ep(&listener, from, NULL, &attr) == 0 && !listener->qp);
	rdma_freeaddrinfo(from);
	CHECK(rdma_listen(listener, 0) == 0);
	snprintf(port, sizeof(port), "%d", be16toh(rdma_get_src_port(listener)));
	CHECK(pthread_create(&server, NULL, serve, NULL) == 0);
	talk();
	refused();
	CHECK(pthread_join(server, NULL) == 0);
	shared_receives();
	rdma_destroy_ep(listener);

	struct rdma_cm_id *id = client();
	CHECK(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED);
	rdma_destroy_ep(id);
	return 0;
}
